"""``kafka_async.application.lifecycle.lifecycle``: the table, and what each phase says to a call."""

from itertools import product

import pytest
from attrs import define, field

from kafka_async.application.lifecycle.lifecycle import TRANSITIONS, Happening, Lifecycle, Phase
from kafka_async.background.boundary import EventHandler, LoopInterrupted
from kafka_async.errors import BackgroundLoopError, ConsumerStoppedError, IllegalStateError, KafkaConnectionError

P, H = Phase, Happening
WAYS: dict[Phase, tuple[Happening, ...]] = {
    P.NEW: (),
    P.STARTING: (H.START,),
    P.RUNNING: (H.START, H.STARTED),
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


@pytest.mark.parametrize("phase", [P.STARTING, P.RUNNING, P.PARTING, P.FAILED])
def test_a_consumer_whose_event_loop_is_gone_is_closed_at_once(world: World, phase: Phase) -> None:
    lifecycle = world.at(phase)
    lifecycle.abandon()
    assert lifecycle.phase is P.CLOSED
    with pytest.raises(ConsumerStoppedError):
        lifecycle.check_open()
