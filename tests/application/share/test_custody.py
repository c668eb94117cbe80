"""What the application's side does with unread records and with those that are out: deliveries, losses and results by hand."""

import sys
from collections import deque
from threading import Event, Thread, current_thread
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kafka_async.application.callbacks import Deserialized
from kafka_async.application.lifecycle.runtime import TaskRuntime
from kafka_async.application.share.custody import Held
from kafka_async.background.boundary import Exchange
from kafka_async.background.share.orders import (
    Acknowledge,
    AcknowledgeType,
    Hold,
    Keep,
    Lost,
    Order,
    RecordsDropped,
    RecordsHandedOut,
    ReleaseLater,
    Renewed,
    Settled,
)
from kafka_async.errors import DeserializationError, IllegalStateError, LockLostError
from kafka_async.model import ConsumerRecord
from tests.virtual import run_virtual_asyncio

from .world import ERROR, OTHER, TP, World, offsets


def test_records_are_handed_out_in_the_order_of_their_delivery_and_the_background_is_told() -> None:
    world = World()
    world.deliver(0, 3)
    world.deliver(10, 2, OTHER)
    assert offsets(world.take(4)) == [0, 1, 2, 10]
    assert world.orders() == [
        RecordsHandedOut(TP, 1, (0, 1, 2), Keep.WAITING, 1),
        RecordsHandedOut(OTHER, 2, (10,), Keep.WAITING, 1),
    ]
    assert offsets(world.take(1)) == [11]
    assert world.orders() == [RecordsHandedOut(OTHER, 2, (11,))]
    assert (world.custody.unread, world.custody.out, world.exchange.unread) == (0, 5, 0)


def test_process_has_its_records_renewed_whatever_happens() -> None:
    world = World()
    world.deliver(0, 2)
    world.take(2, kept=True)
    assert world.orders() == [RecordsHandedOut(TP, 1, (0, 1), Keep.HELD)]


def test_records_whose_locks_have_ended_are_not_handed_out_and_make_room() -> None:
    world = World()
    world.deliver(0, 3)
    world.deliver(3, 3, deadline=60.0)
    world.exchange.report(Lost(TP, ((2, 4),), ERROR))
    world.now = 40.0
    assert offsets(world.take(10)) == [3, 5]
    assert (world.exchange.unread, world.custody.unread, world.custody.counts.lost) == (0, 0, 1)


def test_records_that_come_too_late_are_released_since_the_background_may_go_on_renewing_their_locks() -> None:
    world = World()
    world.deliver(0, 3)
    world.now = 30.0
    assert world.take(10) == []
    assert world.orders() == [RecordsDropped(TP, 1, (0, 1, 2))]
    assert (world.exchange.unread, world.custody.unread) == (0, 0)


@pytest.mark.parametrize("why", ["too late", "not wanted"])
def test_records_that_were_dropped_and_are_lost_too_do_not_count_twice(why: str) -> None:
    world = World()
    number = world.deliver(0, 4)
    first, second = world.take(2)
    world.exchange.report(Renewed(TP, ((number, 0), (number, 1)), 50.0))
    if why == "too late":
        world.now = 30.0
        assert world.take(2) == []
    else:
        world.custody.want(frozenset(("u",)))
    world.exchange.report(Lost(TP, ((number, 2), (number, 3)), ERROR))
    world.exchange.report(Lost(TP, ((number, 0),), ERROR))
    assert (first.lost, second.lost) == (True, False), "it is still known that these are out"
    assert (world.exchange.unread, world.custody.out, world.custody.counts.lost) == (0, 1, 3)


def test_a_loss_makes_room_though_nobody_reads() -> None:
    world = World()
    world.deliver(0, 3)
    world.exchange.report(Lost(TP, ((1, 0), (1, 1), (1, 2)), ERROR))
    world.custody.sort()
    assert (world.exchange.unread, world.custody.unread) == (0, 0)


def test_records_of_topics_that_are_not_wanted_any_more_are_released_and_others_stay() -> None:
    world = World()
    world.deliver(0, 2)
    world.deliver(10, 2, OTHER)
    world.custody.want(frozenset(("u",)))
    assert world.orders() == [RecordsDropped(TP, 1, (0, 1))]
    assert offsets(world.take(10)) == [10, 11]


def deserialized(world: World, size: int, done: int, poison: bool = False) -> None:
    world.custody.sort()
    piece = world.custody.to_deserialize(size)
    assert piece is not None
    made = [record._replace(value=f"value {record.offset}") for record in piece.records[:done]]
    error = DeserializationError("bad", piece.records[done]) if poison else None
    world.custody.deserialized(piece, piece.records, Deserialized(records=made, done=done, poison=error))


def test_records_at_work_in_deserializers_stay_unread_and_what_is_done_is_done_once() -> None:
    world = World(deserializes=True)
    world.deliver(0, 4)
    world.deliver(4, 4)
    assert world.take(8) == []
    deserialized(world, 8, 4)
    deserialized(world, 8, 1)
    assert world.custody.unread == 8
    found = world.take(3)
    assert [record.value for record in found] == ["value 0", "value 1", "value 2"]
    assert [record.value for record in world.take(8)] == ["value 3", "value 4"], "what is not ready waits"
    piece = world.custody.to_deserialize(1)
    assert piece is not None
    assert offsets(piece.records) == [5]


def test_a_record_that_cannot_be_deserialized_waits_for_its_turn() -> None:
    world = World(deserializes=True)
    world.deliver(0, 4)
    deserialized(world, 8, 2, poison=True)
    assert world.custody.to_deserialize(8) is None, "it comes first"
    assert world.custody.take_bad() is None
    assert offsets(world.take(8)) == [0, 1]
    bad = world.custody.take_bad()
    assert bad is not None
    assert (bad[0].offset, bad[1].args[0]) == (2, "bad")
    deserialized(world, 8, 1)
    assert offsets(world.take(8)) == [3]


def test_deserializers_that_worked_on_records_that_are_gone_have_worked_in_vain() -> None:
    world = World(deserializes=True)
    world.deliver(0, 2)
    world.custody.sort()
    piece = world.custody.to_deserialize(8)
    assert piece is not None
    given = piece.records
    world.exchange.report(Lost(TP, ((1, 0),), ERROR))
    world.custody.sort()
    world.custody.deserialized(piece, given, Deserialized(records=list(given), done=2))
    assert world.take(8) == []
    deserialized(world, 8, 1)
    assert offsets(world.take(8)) == [1]


@pytest.mark.parametrize("step", ["looked for", "handed out", "handed out as a bad one"])
def test_locks_that_were_renewed_while_deserializers_worked_last_longer(step: str) -> None:
    world = World(deserializes=True)
    number = world.deliver(0, 2)
    world.custody.sort()
    piece = world.custody.to_deserialize(1)
    assert piece is not None
    world.now = 31.0
    world.exchange.report(Renewed(TP, ((number, 0), (number, 1)), 45.0))
    if step == "handed out as a bad one":
        error = DeserializationError("bad", piece.records[0])
        world.custody.deserialized(piece, piece.records, Deserialized(records=[], done=0, poison=error))
        bad = world.custody.take_bad()
        assert bad is not None
        assert bad[0].offset == 0
    else:
        world.custody.deserialized(piece, piece.records, Deserialized(records=list(piece.records), done=1))
        if step == "looked for":
            following = world.custody.to_deserialize(2)
            assert following is not None
            assert offsets(following.records) == [1]
        assert offsets(world.custody.hand_out(2)) == [0]
    assert not [order for order in world.orders() if isinstance(order, RecordsDropped)]


def test_locks_that_a_later_report_renews_are_not_late_because_another_one_was_lost() -> None:
    world = World()
    number = world.deliver(0, 3)
    world.custody.sort()
    (first,) = world.custody.hand_out(1)
    world.now = 50.0
    rest = ((number, 1), (number, 2))
    world.exchange.report(Renewed(TP, rest, 45.0))
    world.exchange.report(Lost(TP, ((number, first.offset),), ERROR))
    world.exchange.report(Renewed(TP, rest, 60.0))
    assert offsets(world.custody.hand_out(5)) == [1, 2]
    assert not [order for order in world.orders() if isinstance(order, RecordsDropped)]


@pytest.mark.slow
def test_other_threads_take_over_reports_while_one_thread_reads() -> None:
    world = World(deserializes=True)
    delivered, errors = 3000, list[BaseException]()
    done = Event()

    def work() -> None:
        try:
            for start in range(delivered):
                number = world.deliver(start, 1)
                if start % 7 == 0:
                    world.exchange.report(Lost(TP, ((number, start),), ERROR))
                world.custody.sort()
        except RuntimeError as error:
            errors.append(error)
        finally:
            done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    worker = Thread(target=work)
    worker.start()
    found: list[int] = []
    try:
        while True:
            ended = done.is_set()
            world.custody.has_records(5)
            piece = world.custody.to_deserialize(5)
            if piece is not None:
                given = piece.records
                result = Deserialized(records=list(given), done=len(given))
                world.custody.deserialized(piece, given, result)
            found += offsets(world.custody.hand_out(5))
            assert world.custody.unread >= 0
            if ended and not world.exchange.unread:
                break
    finally:
        worker.join()
        sys.setswitchinterval(interval)
    assert errors == []
    assert set(found) >= {start for start in range(delivered) if start % 7}
    assert len(found) == len(set(found))
    assert world.custody.unread == 0


def test_a_record_is_acknowledged_once_and_later_if_so_wanted() -> None:
    world = World()
    world.deliver(0, 3)
    first, second, third = world.take(3)
    world.orders()
    first.accept()
    second.release(delay_ms=1500)
    third.renew()
    third.reject()
    for record in (first, second, third):
        with pytest.raises(IllegalStateError, match="before; a record can be acknowledged only once"):
            record.accept()
    assert world.orders() == [
        Acknowledge(TP, 0, 1, AcknowledgeType.ACCEPT),
        ReleaseLater(TP, 1, 1, 1.5),
        Acknowledge(TP, 2, 1, AcknowledgeType.RENEW),
        Acknowledge(TP, 2, 1, AcknowledgeType.REJECT),
    ]
    with pytest.raises(ValueError, match="delay_ms='soon'"):
        first.release(delay_ms="soon")


def test_results_are_counted_and_refused_records_are_lost() -> None:
    world = World()
    number = world.deliver(0, 4)
    found = world.take(4)
    for record in found[:3]:
        record.accept()
    world.exchange.report(Settled(TP, number, (0, 1), AcknowledgeType.ACCEPT, None))
    world.exchange.report(Settled(TP, number, (2,), AcknowledgeType.ACCEPT, ERROR))
    world.exchange.report(Renewed(TP, ((number, 3),), 50.0))
    world.now = 40.0
    assert [record.lost for record in found] == [False, False, True, False]
    counts = world.custody.counts
    assert (counts.accepted, counts.refused, counts.unanswered, world.custody.out) == (2, 1, 0, 1)
    world.custody.close()
    assert found[3].lost
    found[3].accept()
    assert (counts.refused, counts.unanswered) == (2, 0)


def test_a_raw_record_is_kept_beside_the_deserialized_one() -> None:
    world = World(deserializes=True)
    world.deliver(0, 1)
    world.custody.sort()
    deserialized(world, 1, 1)
    (record,) = world.take(1)
    assert record.fields() == ConsumerRecord(*record.fields())
    assert record.value == "value 0"


def test_one_record_is_handed_out_with_a_note_and_several_with_an_order() -> None:
    world = World()
    world.deliver(0, 2)
    world.custody.sort()
    first = world.custody.hand_out_one()
    assert first is not None
    assert (first.offset, world.orders()) == (0, [])
    assert world.exchange.notes == {(1, 0): RecordsHandedOut(TP, 1, (0,))}
    first.accept()
    assert world.exchange.notes == {}, "the background need not know any more that it was out"
    last = world.custody.hand_out_one()
    assert last is not None
    assert (world.custody.hand_out_one(), world.custody.unread, world.exchange.unread) == (None, 0, 0)
    counts = world.custody.counts
    assert (counts.delivered, counts.bytes) == (2, 2)


@pytest.mark.parametrize(
    "why", ["its lock has ended", "another one's lock was lost", "its topic is not wanted", "not deserialized"]
)
def test_a_record_that_needs_a_closer_look_is_not_handed_out_alone(why: str) -> None:
    world = World(deserializes=why == "not deserialized")
    world.deliver(0, 3)
    world.custody.sort()
    if why == "its lock has ended":
        world.now = 30.0
    elif why == "another one's lock was lost":
        world.exchange.report(Lost(TP, ((1, 2),), ERROR))
        world.custody.sort()
    elif why == "its topic is not wanted":
        world.exchange.topics = frozenset()
    assert world.custody.hand_out_one() is None


def test_bytes_are_counted_alike_however_records_are_handed_out() -> None:
    one, several = World(), World()
    for world in (one, several):
        world.deliver(0, 2)
        world.custody.sort()
    while one.custody.hand_out_one() is not None:
        pass
    several.custody.hand_out(2)
    assert one.exchange.taken_bytes == several.exchange.taken_bytes > 0
    assert one.custody.counts.bytes == several.custody.counts.bytes == 2


def test_the_background_reads_on_once_half_is_handed_out() -> None:
    world = World(half=2)
    world.deliver(0, 4)
    world.custody.sort()
    woken = []
    for _ in range(4):
        before = world.woken
        assert world.custody.hand_out_one() is not None
        woken.append(world.woken - before)
    assert woken == [0, 0, 1, 1], "when fewer than two are unread, and when none is"


def test_a_task_that_works_on_a_record_has_it_renewed_and_the_background_is_told_when_it_has_to_know() -> None:
    world = World()
    world.exchange.lock_seconds = 30.0
    world.deliver(0, 2)
    early, late = world.take(2)
    world.orders()
    assert world.custody.enter(early)
    assert (world.exchange.notes, world.orders()) == ({(1, 0): Hold(TP, 1, 0)}, [])
    world.now = 20.0
    assert world.custody.enter(late)
    assert world.orders() == [Hold(TP, 1, 1)], "half of the lock's time is over: it is looked at now"


@pytest.mark.parametrize("lost", ["by a report", "by the time"])
def test_a_lost_record_cannot_be_entered(lost: str) -> None:
    world = World()
    number = world.deliver(0, 1)
    (record,) = world.take(1)
    if lost == "by a report":
        world.exchange.report(Lost(TP, ((number, 0),), ERROR))
    else:
        world.now = 30.0
    assert not world.custody.enter(record)
    with pytest.raises(LockLostError, match="the lock has ended"), record:
        raise AssertionError("entered")


def test_a_record_that_is_lost_while_it_is_out_is_reported_once_and_not_if_it_was_acknowledged() -> None:
    world = World()
    told: list[int] = []
    world.custody.on_lost = lambda record: told.append(record.offset)
    number = world.deliver(0, 3)
    found = world.take(3)
    found[1].accept()
    world.exchange.report(Lost(TP, ((number, 0), (number, 1)), ERROR))
    for _ in range(2):
        world.custody.sort()
        world.custody.report_lost()
    assert told == [0]
    assert [record.lost for record in found] == [True, True, False]
    assert world.custody.out == 1


def test_a_renewal_moves_the_end_of_unread_records_and_of_those_that_are_out() -> None:
    world = World()
    number = world.deliver(0, 3)
    (out,) = world.take(1)
    world.exchange.report(Renewed(TP, ((number, 0), (number, 1), (number, 2), (7, 0)), 50.0))
    assert out.deadline == 50.0
    world.now = 40.0
    assert offsets(world.take(5)) == [1, 2]


def test_reports_about_deliveries_that_are_settled_change_nothing_but_the_counts() -> None:
    world = World()
    number = world.deliver(0, 1)
    (record,) = world.take(1)
    record.accept()
    world.exchange.report(Settled(TP, number, (0,), AcknowledgeType.ACCEPT, None))
    world.exchange.report(Lost(TP, ((number, 0),), ERROR))
    world.exchange.report(Renewed(TP, ((number, 0),), 50.0))
    assert not record.lost
    world.custody.sort()
    assert (world.custody.counts.accepted, world.custody.counts.lost, world.custody.out) == (1, 1, 0)


def test_a_subscription_that_changes_is_told_to_whoever_reads() -> None:
    world = World()
    told: list[str] = []
    world.custody.on_unwanted = lambda: told.append("unwanted")
    world.custody.want(frozenset(("t",)))
    assert told == ["unwanted"]
    assert (world.custody.wants("t"), world.custody.wants("u")) == (True, False)


def test_what_is_said_after_the_end_does_not_count() -> None:
    world = World()
    world.deliver(0, 2)
    one, other = world.take(2)
    world.orders()
    world.custody.close()
    one.accept()
    other.renew()
    assert (one.lost, other.lost, world.orders(), world.custody.counts.refused) == (True, True, [], 1)
    assert world.custody.closed


class TestHeld:
    """Blocks of tasks; ``test_holding.py`` has what they mean to their tasks."""

    def test_of_nested_blocks_only_the_outermost_is_one(self) -> None:
        async def main() -> None:
            world, held = _held()
            (record,) = world.take(1)
            assert not held.is_inside(record)
            held.enter(record)
            assert held.is_inside(record)
            assert held.is_inside(record)
            assert [held.leave_inner(record) for _ in range(3)] == [True, True, False]
            assert held
            assert not held.leave(record, None)
            assert not held

        run_virtual_asyncio(main)

    def test_a_wait_ends_when_no_other_task_works_on_a_record(self) -> None:
        async def main() -> None:
            world, held = _held()
            (record,) = world.take(1)

            async def work() -> None:
                held.enter(record)
                await anyio.sleep(2)
                held.leave(record, None)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                await anyio.sleep(1)
                assert held.by_others
                await held.wait(10)
            assert anyio.current_time() == 2
            held.enter(record)
            assert not held.by_others, "the own work is not waited for"
            await held.wait(10)
            assert anyio.current_time() == 2

        run_virtual_asyncio(main)

    def test_a_wait_is_bounded_and_lost_records_and_tasks_that_are_gone_are_not_waited_for(self) -> None:
        async def main() -> None:
            world, held = _held()
            number = world.deliver(1, 1)
            first, second = world.take(2)

            async def forgets() -> None:
                held.enter(first)

            async def works() -> None:
                held.enter(second)
                await anyio.sleep(20)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(forgets)
                tasks.start_soon(works)
                await anyio.lowlevel.checkpoint()
                await held.wait(5)
                assert anyio.current_time() == 5
                world.exchange.report(Lost(TP, ((number, 1),), ERROR))
                assert not held.by_others
                await held.wait(5)
                assert anyio.current_time() == 5

        run_virtual_asyncio(main)


def test_work_that_would_begin_after_a_stop_has_waited_for_the_others_does_not_begin() -> None:
    async def main() -> None:
        world, held = _held()
        world.custody.held = held
        world.deliver(1, 2)
        one, other, late = world.take(3)
        inside, go_on = Event(), Event()

        def work() -> None:
            with one:
                inside.set()
                go_on.wait(30)

        worker = Thread(target=work)
        worker.start()
        assert inside.wait(30)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.wait, 10)
            await anyio.lowlevel.checkpoint()
            async with other:
                pass  # it is let in while others are waited for
            go_on.set()
            worker.join()
        assert one.lost is False
        with pytest.raises(LockLostError, match="the consumer stopped before the work on the record began"):
            await late.__aenter__()
        assert late.lost

    run_virtual_asyncio(main)


def test_a_thread_has_acknowledged_its_record_before_a_stop_goes_on() -> None:
    """The clock is asked between the end of the work and the acknowledgement: there the other thread looks."""

    async def main() -> None:
        world, held = _held()
        world.custody.held = held
        (record,) = world.take(1)
        waited_for: list[bool] = []

        def now() -> float:
            if current_thread() is worker and working.is_set():
                looking = Thread(target=lambda: waited_for.append(held.by_others))
                looking.start()
                looking.join()
            return 0.0

        def work() -> None:
            with record:
                working.set()

        world.custody.clock = now
        working, worker = Event(), Thread(target=work)
        worker.start()
        worker.join()  # it needs nothing of this loop
        assert set(waited_for) == {True}
        assert not held.by_others
        assert world.orders()[-1] == Acknowledge(TP, 0, 1, AcknowledgeType.ACCEPT)

    run_virtual_asyncio(main)


class Looking(deque[Order]):
    """Looks at the notes as an order comes: another thread may look there at any moment."""

    exchange: Exchange
    seen: list[tuple[str, str]]

    def append(self, order: Order) -> None:
        (note,) = self.exchange.notes.values()
        self.seen.append((type(order).__name__, type(note).__name__))
        super().append(order)


def test_the_background_finds_an_order_or_a_note_about_a_record_that_is_out() -> None:
    """With neither of them it would take the record for unread, and give it back. And no note undoes what an order said."""
    world = World()
    world.deliver(0, 4)
    world.custody.sort()
    orders, notes = Looking(), world.exchange.notes
    orders.exchange, orders.seen = world.exchange, []
    world.exchange.orders = orders
    for number in range(4):
        record = world.custody.hand_out_one()
        assert record is not None
        if number == 0:
            record.accept()
        elif number == 1:
            record.release(delay_ms=1_000)
        else:
            world.now = 20.0 if number == 2 else 0.0  # half of the lock's time is over, or not
            assert world.custody.enter(record)
            assert list(map(type, notes.values())) == [Hold]
            notes.clear()
        assert not notes
    assert orders.seen == [("Acknowledge", "RecordsHandedOut"), ("ReleaseLater", "Hold"), ("Hold", "Hold")]


class Idle:
    """A loop of the background that does nothing."""

    async def run(self) -> None:
        return

    def snapshot(self) -> Any: ...

    def resume(self) -> None: ...

    def wake(self) -> None: ...


def _held() -> tuple[World, Held]:
    runtime = TaskRuntime()
    runtime.launch(Idle())
    world = World()
    world.deliver(0, 1)
    return world, Held(runtime)
