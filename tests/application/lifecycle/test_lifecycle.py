"""``kafka_async.application.lifecycle.lifecycle``: the table, and what each phase says to a call."""

import sys
import threading
from collections.abc import Callable
from itertools import count, product
from types import FrameType
from typing import Any

import pytest
from attrs import define, field

from kafka_async.application.lifecycle import lifecycle as module
from kafka_async.application.lifecycle.lifecycle import TRANSITIONS, Happening, Lifecycle, Phase
from kafka_async.background.boundary import EventHandler, LoopInterrupted
from kafka_async.errors import BackgroundLoopError, ConsumerStoppedError, IllegalStateError, KafkaConnectionError

P, H = Phase, Happening
WAYS: dict[Phase, tuple[Happening, ...]] = {
    P.NEW: (),
    P.STARTING: (H.START,),
    P.RUNNING: (H.START, H.STARTED),
    P.UNDOING: (H.START, H.UNDO),
    P.PARTING: (H.START, H.STARTED, H.PART),
    P.CLOSED: (H.START, H.STARTED, H.PART, H.PARTED),
    P.FAILED: (H.START, H.STARTED, H.FAIL),
}


@define(eq=False)
class Loop:
    """A loop that may run again, or not."""

    can_revive: bool = False
    revived: int = 0

    def revive(self) -> bool:
        self.revived += 1
        return self.can_revive


@define(eq=False)
class World:
    loop: Loop = field(factory=Loop)
    boundary: EventHandler = field(factory=lambda: EventHandler(lambda: None, lambda: None))

    def at(self, phase: Phase) -> Lifecycle:
        made = Lifecycle(self.boundary, self.loop)
        for happening in WAYS[phase]:
            made.move(happening)
        assert made.phase is phase
        return made


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("phase", "happening"), [pair for pair in product(P, H) if pair not in TRANSITIONS])
def test_what_is_not_in_the_table_is_a_bug(world: World, phase: Phase, happening: Happening) -> None:
    lifecycle = world.at(phase)
    with pytest.raises(RuntimeError, match=f"a consumer in state {phase.name} cannot take the input {happening.name}"):
        lifecycle.move(happening)
    assert lifecycle.phase is phase


@pytest.mark.parametrize("phase", [P.STARTING, P.RUNNING])
def test_a_loop_that_ended_by_itself_fails_the_consumer_with_its_error(world: World, phase: Phase) -> None:
    lifecycle, cause = world.at(phase), KafkaConnectionError("gone")
    world.boundary.ended = cause
    with pytest.raises(BackgroundLoopError, match="gone") as caught:
        lifecycle.check_running()
    assert (lifecycle.phase, caught.value.__cause__) == (P.FAILED, cause)


def test_a_loop_that_was_interrupted_runs_again_with_the_next_call(world: World) -> None:
    lifecycle, world.loop.can_revive = world.at(P.RUNNING), True
    world.boundary.ended = LoopInterrupted()
    assert lifecycle.look() is P.RUNNING
    assert world.loop.revived == 0, "to look is not to call"
    lifecycle.check_running()
    assert world.loop.revived == 1


def test_a_loop_that_cannot_run_again_was_stopped(world: World) -> None:
    lifecycle = world.at(P.RUNNING)
    world.boundary.ended = LoopInterrupted()
    with pytest.raises(ConsumerStoppedError, match="cancelled with the event loop"):
        lifecycle.check_running()
    assert lifecycle.phase is P.FAILED


@pytest.mark.parametrize(
    ("phase", "error", "text"),
    [
        (P.NEW, IllegalStateError, "was not started"),
        (P.UNDOING, ConsumerStoppedError, "is stopping"),
        (P.PARTING, ConsumerStoppedError, "is stopping"),
        (P.CLOSED, ConsumerStoppedError, "is stopped"),
    ],
)
def test_nothing_is_read_before_the_start_and_from_the_stop_on(
    world: World, phase: Phase, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        world.at(phase).check_readable()


def test_a_listener_may_still_commit_while_the_consumer_is_parting(world: World) -> None:
    world.at(P.PARTING).check_running()


@pytest.mark.parametrize(("happenings", "after"), [((H.UNDONE,), P.NEW), ((H.PART, H.UNDONE), P.CLOSED)])
def test_a_start_that_was_undone_may_be_made_again_unless_the_consumer_was_stopped_meanwhile(
    world: World, happenings: tuple[Happening, ...], after: Phase
) -> None:
    lifecycle = world.at(P.UNDOING)
    for happening in happenings:
        lifecycle.move(happening)
    assert lifecycle.phase is after


def test_a_start_into_whose_last_step_a_signal_handler_raises_is_undone(world: World) -> None:
    lifecycle = world.at(P.STARTING)
    lifecycle.started()
    assert lifecycle.part(H.UNDO)
    lifecycle.move(H.UNDONE)
    assert lifecycle.phase is P.NEW


@pytest.mark.parametrize("phase", [P.STARTING, P.RUNNING, P.UNDOING, P.PARTING, P.FAILED])
def test_a_consumer_whose_event_loop_is_gone_is_closed_at_once(world: World, phase: Phase) -> None:
    lifecycle = world.at(phase)
    lifecycle.abandon()
    assert lifecycle.phase is P.CLOSED
    with pytest.raises(ConsumerStoppedError):
        lifecycle.check_open()


def test_a_consumer_whose_event_loop_is_gone_may_be_told_so_twice(world: World) -> None:
    lifecycle = world.at(P.RUNNING)
    lifecycle.abandon()
    lifecycle.abandon()
    assert lifecycle.phase is P.CLOSED


def outcome(work: Callable[[], object]) -> object:
    """Return what ``work`` does, or the error that it raises."""
    try:
        return work()
    except Exception as error:
        return type(error)


def between(step: int, work: Callable[[], object], other: Callable[[], object]) -> tuple[object, object] | None:
    """Do ``work``, and have another thread do ``other`` before its step of this number; ``None``: it has fewer."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(outcome(other)))
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == step:
                thread.start()
                thread.join(0.01)  # it goes on later if it has to wait
        return trace

    sys.settrace(trace)
    try:
        done = outcome(work)
    finally:
        sys.settrace(None)
    if steps < step:
        return None
    thread.join()
    return done, found[0]


def stop(lifecycle: Lifecycle) -> bool:
    return lifecycle.part(H.PART)


def undone(lifecycle: Lifecycle) -> None:
    lifecycle.move(H.UNDONE)


@pytest.mark.parametrize(
    ("phase", "work", "other", "after"),
    [
        (P.UNDOING, undone, stop, {(None, False, P.CLOSED), (None, True, P.PARTING)}),
        (P.UNDOING, stop, undone, {(False, None, P.CLOSED), (True, None, P.PARTING)}),
        (P.NEW, Lifecycle.start, stop, {(True, True, P.PARTING), (False, True, P.PARTING)}),
        (P.STARTING, Lifecycle.started, stop, {(None, True, P.PARTING), (ConsumerStoppedError, True, P.PARTING)}),
        (P.RUNNING, stop, stop, {(True, False, P.PARTING), (False, True, P.PARTING)}),
    ],
)
def test_a_stop_by_another_thread_comes_before_or_after_what_it_meets(
    phase: Phase,
    work: Callable[[Lifecycle], object],
    other: Callable[[Lifecycle], object],
    after: set[tuple[object, object, Phase]],
) -> None:
    """Exactly one of them then ends the consumer."""
    seen = set[tuple[object, ...]]()
    for step in count(1):
        lifecycle = World().at(phase)
        found = between(step, lambda: work(lifecycle), lambda: other(lifecycle))  # noqa: B023
        if found is None:
            break
        seen.add((*found, lifecycle.phase))
    assert seen <= after


@pytest.mark.parametrize("other", [stop, Lifecycle.look])
def test_two_threads_that_find_a_loop_gone_agree(other: Callable[[Lifecycle], object]) -> None:
    for step in count(1):
        lifecycle = World().at(P.RUNNING)
        lifecycle.boundary.ended = KafkaConnectionError("gone")
        found = between(step, lifecycle.look, lambda: other(lifecycle))  # noqa: B023
        if found is None:
            break
        assert RuntimeError not in found
        assert lifecycle.phase is (P.PARTING if other is stop else P.FAILED)
