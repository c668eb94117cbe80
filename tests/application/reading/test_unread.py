"""What the application has not read yet, without a loop and without a network."""

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any, cast
from uuid import UUID

import pytest

from kafka_async import TopicPartition
from kafka_async.application.reading.cursor import Cursor, PartitionCustody, PauseReason, Raw, Refusal
from kafka_async.application.reading.iteration import PORTION
from kafka_async.background.boundary import Repositioned
from kafka_async.errors import CorruptRecordException, DeserializationError, NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka_async.events import PausePartitions, ResumePartitions

from ..support import offsets
from .unread_world import A, B, C, World


def test_records_come_in_order_and_bytes_are_given_back_when_they_are_used_up() -> None:
    world = World(A)
    world.fetched(A, 0, 5)
    world.fetched(A, 5, 5)
    assert world.take(3) == {A: [0, 1, 2]}
    assert world.entry(A).position == 3
    assert world.buffer.total.unread > 0
    assert world.take() == {A: [3, 4, 5, 6, 7, 8, 9]}
    assert world.buffer.total.unread == 0
    assert world.take() == {}


def test_a_partition_goes_to_the_end_of_the_line_when_its_data_is_used_up() -> None:
    world = World(A, B)
    world.fetched(A, 0, 4)
    world.fetched(B, 0, 4)
    assert [world.take(3), world.take(3)] == [{A: [0, 1, 2]}, {A: [3], B: [0, 1]}]
    world.fetched(A, 4, 4)
    assert [world.take(3), world.take(3)] == [{B: [2, 3], A: [4]}, {A: [5, 6, 7]}]


def test_only_what_is_asked_for_is_taken() -> None:
    world = World(A, B)
    world.fetched(A, 0, 2)
    world.fetched(B, 0, 2)
    assert world.take(100, B) == {B: [0, 1]}
    assert world.take(100, B) == {}
    assert world.take() == {A: [0, 1]}


def test_paused_partitions_keep_their_data() -> None:
    world = World(A)
    world.fetched(A, 0, 2)
    world.unread.pause([A], paused=True)
    assert world.take() == {}
    world.unread.pause([A], paused=False)
    assert world.take() == {A: [0, 1]}


def test_a_partition_is_read_again_once_it_has_no_reason_for_a_pause_left() -> None:
    world = World(A)
    world.fetched(A, 0, 2)
    world.unread.pause([A], paused=True)
    world.unread.pause([A], paused=True, why=PauseReason.DELAY)
    world.unread.pause([A], paused=False)
    assert world.take() == {}
    world.unread.pause([A], paused=True)
    world.unread.pause([A], paused=False, why=PauseReason.DELAY)
    assert world.take() == {}
    world.unread.pause([A], paused=False)
    assert world.take() == {A: [0, 1]}
    assert [type(event) for event in world.handler.application_events] == [PausePartitions, ResumePartitions]


def test_a_move_ends_the_wait_for_the_record_that_came_next() -> None:
    world = World(A, B)
    for partition in (A, B):
        world.fetched(partition, 0, 2)
    world.unread.pause([A, B], paused=True, why=PauseReason.DELAY)
    world.unread.pause([B], paused=True)
    for partition in (A, B):
        world.unread.move(world.entry(partition), (20, None))
        world.fetched(partition, 20, 1)
    assert world.take() == {A: [20]}
    world.unread.pause([B], paused=False)
    assert world.take() == {B: [20]}


@pytest.mark.parametrize("which", ["another topic of the name", "a log that was cut"])
def test_what_replaces_the_log_ends_the_wait_for_its_next_record(which: str) -> None:
    world = World(A)
    world.entry(A).belong(UUID(int=1))
    world.fetched(A, 0, 5)
    assert world.take(5) == {A: [0, 1, 2, 3, 4]}
    world.unread.pause([A], paused=True, why=PauseReason.DELAY)
    topic_id = UUID(int=2 if which.startswith("another") else 1)
    world.buffer.put(Repositioned(partition=A, stamp=world.entry(A).stamp, offset=3, topic_id=topic_id))
    world.fetched(A, 3, 1)
    world.unread.receive()
    assert world.take() == {A: [3]}


def test_what_comes_back_after_a_rebalance_waits_for_nothing() -> None:
    world = World(A, B)
    world.unread.pause([A, B], paused=True, why=PauseReason.DELAY)
    world.unread.pause([B], paused=True)
    world.unread.put_aside([A, B])
    world.unread.begin_anew_aside([A, B])
    world.unread.assign([A, B])
    assert (world.entry(A).is_readable, world.entry(B).paused) == (True, frozenset({PauseReason.USER}))


def test_a_move_drops_what_was_fetched_for_the_old_position_and_what_is_on_its_way() -> None:
    world = World(A)
    old = world.entry(A).stamp
    world.fetched(A, 0, 5)
    assert world.take(2) == {A: [0, 1]}
    world.unread.move(world.entry(A), (20, None))
    world.fetched(A, 5, 5, stamp=old)
    assert world.take() == {}
    assert world.buffer.total.unread == 0
    world.fetched(A, 20, 1)
    assert world.take() == {A: [20]}


def test_what_leaves_the_assignment_gives_its_bytes_back_and_what_stays_keeps_everything() -> None:
    world = World(A, B)
    world.fetched(A, 0, 3)
    world.fetched(B, 0, 3)
    assert world.take(1) == {A: [0]}
    stamp = world.entry(A).stamp
    stamps = world.unread.assign([A, C])
    assert stamps[A] == stamp
    assert world.take() == {A: [1, 2]}
    assert world.buffer.total.unread == 0
    assert world.unread.assign([A, B, C])[B] not in (stamp, stamps[C])


def test_a_new_position_comes_behind_the_data_before_it() -> None:
    world = World(A)
    world.fetched(A, 0, 2)
    world.buffer.put(Repositioned(partition=A, stamp=world.entry(A).stamp, offset=50))
    world.fetched(A, 50, 1)
    assert world.take() == {A: [0, 1, 50]}


def test_the_first_position_is_that_of_the_first_parcel() -> None:
    world = World(A, B)
    assert world.unread.locate(world.entry(A)) is None
    world.fetched(A, 7, 1)
    world.buffer.put(Repositioned(partition=B, stamp=world.entry(B).stamp, offset=50))
    assert world.unread.locate(world.entry(A)) == 7
    assert world.unread.locate(world.entry(B)) == 50


def test_a_failure_comes_behind_the_data_before_it_and_is_raised_once_while_others_go_on() -> None:
    world = World(A, B)
    error = OffsetOutOfRangeError("gone")
    world.fetched(A, 0, 2)
    world.failed(A, error)
    assert world.unread.failure() is None
    assert world.take() == {A: [0, 1]}
    assert world.take() == {}
    assert world.unread.failure() is error
    assert world.unread.failure() is None
    world.fetched(B, 0, 1)
    assert world.take() == {B: [0]}


def test_a_read_that_could_return_nothing_else_meets_the_failure_again() -> None:
    world = World(A, B)
    error = OffsetOutOfRangeError("gone")
    world.failed(A, error)
    world.take()
    assert [world.unread.failure((A,)) for _ in range(3)] == [error, error, error]
    assert world.unread.failure() is None
    world.unread.move(world.entry(A), (3, None))
    assert world.unread.failure((A,)) is None


def test_a_take_that_did_not_reach_the_caller_is_undone() -> None:
    world = World(A, B)
    world.fetched(A, 0, 6)
    assert world.take(2) == {A: [0, 1]}
    world.fetched(B, 0, 2)
    assert offsets(world.unread.take(5)) == {A: [2, 3, 4, 5], B: [0]}
    assert world.entry(A).position == 6
    world.unread.settle()  # an exception came before the caller had them
    assert (world.entry(A).position, world.entry(B).position) == (2, 0)
    assert world.unread.consumed_records == 2
    assert world.refetched == [(A, 2), (B, 0)]
    assert world.take() == {}
    world.fetched(A, 2, 4)
    assert world.take() == {A: [2, 3, 4, 5]}


def test_a_take_that_is_undone_keeps_the_failure_of_a_partition_without_a_position() -> None:
    world = World(A, B)
    error = NoOffsetForPartitionError("nothing is stored", partitions=(A,))
    world.failed(A, error)
    world.fetched(B, 0, 2)
    assert offsets(world.unread.take(5)) == {B: [0, 1]}
    world.unread.settle()
    assert world.unread.failure() is error


def test_a_seek_after_a_take_that_did_not_reach_the_caller_wins() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    world.unread.take(4)
    world.unread.move(world.entry(A), (100, None))
    world.unread.settle()
    assert world.entry(A).position == 100


def test_records_that_call_backs_are_working_on_keep_the_position_before_them() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    raw = world.staged(4)[A]
    assert [record.offset for record in raw.records] == [0, 1, 2, 3]
    assert world.entry(A).position == 0
    assert world.take() == {}
    assert world.staged(4) == {A: raw}
    world.unread.replace(world.entry(A), raw, [PORTION(raw.records, raw.records, raw.start, raw.end)])
    assert world.entry(A).position == 0
    assert world.take(4) == {A: [0, 1, 2, 3]}
    assert world.entry(A).position == 4


def test_what_call_backs_made_of_records_that_were_left_meanwhile_is_forgotten() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    raw = world.staged(4)[A]
    world.unread.move(world.entry(A), (100, None))
    world.unread.replace(world.entry(A), raw, [PORTION(raw.records, raw.records, raw.start, raw.end)])
    assert (world.take(), world.entry(A).position) == ({}, 100)


def test_a_portion_knows_how_far_it_was_handed_out() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    portion = world.unread.portion(4)
    assert portion is not None
    assert world.entry(A).position == 0
    portion.place += 3
    assert (world.entry(A).position, world.unread.consumed_records) == (3, 3)
    assert world.unread.portion(4) is portion
    assert world.take(2) == {A: [3, 4]}
    assert world.take() == {A: [5]}
    assert (world.entry(A).position, world.unread.consumed_records) == (6, 6)


def test_a_portion_of_a_position_that_was_left_hands_out_nothing() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    portion = world.unread.portion(4)
    assert portion is not None
    portion.place += 1
    world.unread.move(world.entry(A), (100, None))
    assert portion.records == []
    assert world.entry(A).position == 100


def test_a_partition_set_aside_keeps_its_position() -> None:
    world = World(A, B)
    world.fetched(A, 0, 6)
    assert world.take(2) == {A: [0, 1]}
    world.unread.pause([A], paused=True)
    stamp = world.entry(A).stamp
    world.unread.put_aside([A, B])
    assert (world.unread.partitions, world.take()) == ({}, {})
    world.buffer.put(Repositioned(partition=A, stamp=stamp, offset=50))
    stamps = world.unread.assign([A, C], arriving=True)
    assert stamps[A] == stamp
    assert world.entry(A).paused
    assert world.unread.set_aside == {}
    world.unread.pause([A], paused=False)
    assert world.take() == {}
    world.unread.give([A, C], PartitionCustody.OURS)
    assert world.take() == {A: [2, 3, 4, 5]}


def test_what_is_not_ours_yet_or_any_more_is_kept_and_not_handed_out() -> None:
    world = World(A)
    world.fetched(A, 0, 2)
    for custody in (PartitionCustody.ARRIVING, PartitionCustody.UNSUBSCRIBED, PartitionCustody.LEAVING):
        world.unread.give([A], custody)
        assert (world.take(), world.unread.portion(1)) == ({}, None)
    world.unread.give([A], PartitionCustody.OURS)
    assert world.take() == {A: [0, 1]}


def test_corrupt_data_is_fetched_once_more_and_then_stops_the_partition() -> None:
    world = World(A)
    world.fetched(A, 0, 2)
    world.fetched(A, 2, 2, corrupt=True)
    assert world.take() == {A: [0, 1]}
    assert world.take() == {}
    assert world.refetched == [(A, 2)]
    assert world.unread.failure() is None
    world.fetched(A, 2, 2, corrupt=True)
    assert world.take() == {}
    assert world.halted == [A]
    error = world.unread.failure()
    assert isinstance(error, CorruptRecordException)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    assert world.buffer.total.unread == 0


def test_corrupt_data_of_a_log_that_was_cut_off_meanwhile_stops_nothing() -> None:
    world = World(A)
    world.fetched(A, 0, 10, epoch=3)
    world.take()
    world.fetched(A, 10, 1, corrupt=True)
    assert world.take() == {}
    world.fetched(A, 10, 1, corrupt=True)
    world.buffer.put(Repositioned(partition=A, stamp=world.entry(A).stamp, offset=5, leader_epoch=2))
    assert world.take() == {}
    assert world.checked == [(A, 10, 3), (A, 10, 3)], "what the background has found goes by a former stamp: it finds it again"
    assert (world.halted, world.unread.failure()) == ([], None)


def test_corrupt_data_that_is_well_the_second_time_goes_on() -> None:
    world = World(A)
    world.fetched(A, 0, 2, corrupt=True)
    world.take()
    world.fetched(A, 0, 2)
    assert world.take() == {A: [0, 1]}
    world.fetched(A, 2, 2, corrupt=True)
    world.take()
    assert world.refetched == [(A, 0), (A, 2)]


def refuse_the_first(world: World, error: DeserializationError) -> None:
    """Have the first of three records refused, as call-backs do."""
    raw = world.staged(3)[A]
    rest = Raw(raw.records[1:], (1, None), raw.end)
    world.unread.replace(world.entry(A), raw, [Refusal(error, raw.start), rest])


def test_a_refused_record_is_reported_before_anything_after_it() -> None:
    world = World(A)
    world.fetched(A, 0, 3)
    error = DeserializationError("poison")
    refuse_the_first(world, error)
    assert world.take() == {}
    assert world.entry(A).position == 0  # a commit must not cover a record that nobody was told of
    assert world.unread.failure() is error
    assert world.unread.failure() is None
    assert world.entry(A).position == 1
    assert [record.offset for record in world.staged(3)[A].records] == [1, 2]


def test_giving_room_to_others_forgets_no_refused_record() -> None:
    world = World(A, B, fetch_buffer_bytes=400)
    world.fetched(A, 0, 3)
    world.fetched(A, 3, 3)
    world.fetched(A, 6, 30)
    error = DeserializationError("poison")
    refuse_the_first(world, error)
    world.asks_in_vain(B)
    assert world.refetched == [(A, 6)]
    assert world.unread.failure() is error
    assert [record.offset for record in world.staged(3)[A].records] == [1, 2]


def test_room_is_given_back_by_what_is_not_asked_for_and_no_more_than_it_takes() -> None:
    world = World(A, B, C, fetch_buffer_bytes=800)
    for start in range(0, 30, 10):
        world.fetched(A, start, 10)
    world.fetched(B, 0, 3)
    world.fetched(C, 0, 3)
    world.take(1, A)
    world.asks_in_vain(B)
    assert world.buffer.room() >= 200
    assert world.refetched == [(A, 20)]
    assert world.take(100, B, C) == {B: [0, 1, 2], C: [0, 1, 2]}
    assert world.take() == {A: list(range(1, 20))}
    world.fetched(A, 20, 1)
    assert world.take() == {A: [20]}


@pytest.mark.parametrize(
    ("taken", "others", "again"), [(1, 25, (10, 4)), (10, 25, (20, 5)), (15, 25, (20, 5)), (20, 60, (20, 5)), (25, 60, (25, 6))]
)
def test_what_gave_room_is_fetched_again_with_the_epoch_before_it(taken: int, others: int, again: tuple[int, int]) -> None:
    """The log may have changed behind it since; what the background has found of that is dropped too."""
    world = World(A, B, C, fetch_buffer_bytes=800)
    for start, epoch in ((0, 4), (10, 5), (20, 6)):
        world.fetched(A, start, 10, epoch=epoch)
    world.take(taken, A)
    world.fetched(B, 0, others)
    world.asks_in_vain(B, C)
    assert world.checked == [(A, *again)]


def test_a_paused_partition_gives_room_first() -> None:
    world = World(A, B, C, fetch_buffer_bytes=1000)
    for start in range(0, 30, 10):
        world.fetched(A, start, 10)
    world.fetched(C, 0, 30)
    world.unread.pause([C], paused=True)
    world.asks_in_vain(B)
    assert world.refetched == [(C, 0)]
    assert world.take() == {A: list(range(30))}


def test_a_thousand_idle_partitions_cost_a_read_nothing() -> None:
    looked = 0

    class Watched(dict[TopicPartition, Cursor]):
        def __getitem__(self, key: TopicPartition) -> Cursor:
            return cast("Cursor", self.get(key))

        def get(self, key: TopicPartition, default: Any = None) -> Any:
            nonlocal looked
            looked += 1
            return super().get(key, default)

        def every(self) -> Any:
            raise AssertionError("a read looked at every partition")

        __iter__ = keys = values = items = every

    partitions = [TopicPartition("t", index) for index in range(1000)]
    world = World(*partitions)
    world.fetched(partitions[500], 0, 2)
    world.unread.partitions = Watched(world.unread.partitions)
    assert world.take() == {partitions[500]: [0, 1]}
    assert world.unread.failure() is None
    assert 0 < looked < 10


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_any_limit_gives_every_record_once(limit: int) -> None:
    world = World(A, B)
    for start in range(0, 12, 4):
        world.fetched(A, start, 4)
        world.fetched(B, start, 4)
    seen: dict[TopicPartition, list[int]] = {A: [], B: []}
    for _ in range(24):
        for partition, found in world.take(limit).items():
            seen[partition] += found
    assert seen == {A: list(range(12)), B: list(range(12))}


class OfASignalHandlerError(Exception):
    """What a signal handler raises, between any two steps."""


def interrupted(step: int, work: Callable[[], object]) -> bool:
    """Do ``work``, and have an exception come before the line of the package with this number; ``False``: it has fewer."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if "kafka_async" not in frame.f_globals.get("__name__", ""):
            return None
        if event == "line":
            lines += 1
            if lines == step:
                sys.settrace(None)
                raise OfASignalHandlerError
        return trace

    sys.settrace(trace)
    try:
        work()
    except OfASignalHandlerError:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("way", ["batch", "portion", "position"])
def test_an_exception_between_any_two_steps_of_a_read_skips_and_repeats_nothing(way: str) -> None:
    for step in count(1):
        world = World(A, B)
        world.buffer.put(Repositioned(partition=A, stamp=world.entry(A).stamp, offset=0))
        world.fetched(A, 0, 5)
        world.fetched(B, 0, 10)
        world.fetched(A, 5, 5)
        entry = world.entry(A)
        calls: dict[str, Callable[[], object]] = {
            "batch": lambda world=world: world.unread.take(15),  # type: ignore[misc]  # the world of this turn
            "portion": lambda world=world: world.unread.portion(3),  # type: ignore[misc]  # likewise
            "position": lambda world=world, entry=entry: world.unread.locate(entry),  # type: ignore[misc]  # likewise
        }
        hit = interrupted(step, calls[way])
        found: dict[TopicPartition, list[int]] = {A: [], B: []}
        for _ in range(5):
            for partition, some in world.take().items():
                found[partition] += some
            back = dict(world.refetched)
            world.handler.application_events.clear()
            for partition, offset in back.items():
                world.fetched(partition, offset, 10 - offset)
        assert found == {A: list(range(10)), B: list(range(10))}, f"the exception came before line {step}"
        if not hit:
            break
    assert step > 10


def test_what_call_backs_see_after_a_new_position_begins_there() -> None:
    """Else columns would leave out what lies before the old position."""
    world = World(A)
    world.fetched(A, 0, 6)
    assert world.take() == {A: [0, 1, 2, 3, 4, 5]}
    world.buffer.put(Repositioned(partition=A, stamp=world.entry(A).stamp, offset=0))
    world.fetched(A, 0, 4)
    world.unread.stage(10)
    assert world.entry(A).position == 0
