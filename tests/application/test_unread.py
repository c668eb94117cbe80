"""What the application has not read yet, without a loop and without a network."""

from typing import Any

import pytest

from kafka_async import TopicPartition
from kafka_async.application.unread import PartitionUnread, Unread
from kafka_async.background.fetch_buffer import FetchBuffer, FetchedData, PartitionFailed, Repositioned
from kafka_async.config import ConsumerConfig
from kafka_async.errors import CorruptRecordException, DeserializationError, KafkaError, OffsetOutOfRangeError
from tests.fake import PartitionLog

from .support import offsets

A, B, C = (TopicPartition("t", index) for index in range(3))


class World:
    """An ``Unread`` and what it asked for."""

    def __init__(self, *partitions: TopicPartition, **options: Any) -> None:
        config = ConsumerConfig.from_options(options)
        self.buffer = FetchBuffer(config.fetch_buffer_bytes, lambda: None, lambda: None)
        self.refetched: list[tuple[TopicPartition, int | None]] = []
        self.halted: list[TopicPartition] = []
        self.parked: list[tuple[set[TopicPartition], bool]] = []
        self.unread = Unread(config, self.buffer, self._refetch, self._halt, self._park)
        self.unread.assign(partitions)

    def _refetch(self, entry: PartitionUnread) -> None:
        self.refetched.append((entry.partition, entry.position))

    def _halt(self, entry: PartitionUnread) -> None:
        self.halted.append(entry.partition)

    def _park(self, partitions: Any, parked: bool) -> None:
        self.parked.append((set(partitions), parked))

    def entry(self, partition: TopicPartition) -> PartitionUnread:
        return self.unread.partitions[partition]

    def fetched(
        self, partition: TopicPartition, start: int, count: int, *, corrupt: bool = False, stamp: int | None = None
    ) -> None:
        log = PartitionLog(end=start)
        log.append([str(n).encode() for n in range(start, start + count)])
        if corrupt:
            log.corrupt(start)
        data = log.batches[0].data
        stamp = self.entry(partition).stamp if stamp is None else stamp
        self.buffer.put(FetchedData(partition=partition, stamp=stamp, fetch_offset=start, records=data))

    def failed(self, partition: TopicPartition, error: KafkaError) -> None:
        self.buffer.put(PartitionFailed(partition=partition, stamp=self.entry(partition).stamp, error=error))

    def take(self, count: int = 100, *only: TopicPartition) -> dict[TopicPartition, list[int]]:
        return offsets(self.unread.take(count, only))


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


def test_a_partition_whose_data_keeps_coming_lets_the_others_have_their_turn() -> None:
    world = World(A, B)
    world.fetched(A, 0, 4)
    world.fetched(B, 0, 1)
    seen: set[TopicPartition] = set()
    for turn in range(1, 20):
        world.fetched(A, 4 * turn, 4)
        seen |= world.take(3).keys()
    assert seen == {A, B}


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
    world.entry(A).paused = True
    assert world.take() == {}
    world.entry(A).paused = False
    assert world.take() == {A: [0, 1]}


def test_a_move_drops_what_was_fetched_for_the_old_position_and_what_is_on_its_way() -> None:
    world = World(A)
    old = world.entry(A).stamp
    world.fetched(A, 0, 5)
    assert world.take(2) == {A: [0, 1]}
    world.unread.move(world.entry(A), 20)
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
    world.unread.move(world.entry(A), 3)
    assert world.unread.failure((A,)) is None


def test_records_that_were_not_delivered_come_first_again() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    taken = world.unread.take(4)
    world.unread.put_back({A: taken[A][1:]}, world.unread.holds(taken))
    assert world.entry(A).position == 1
    assert world.take(2) == {A: [1, 2]}
    assert world.entry(A).position == 3
    assert world.take() == {A: [3, 4, 5]}
    assert world.entry(A).position == 6


def test_a_position_stays_before_records_that_are_held_until_they_are_delivered() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    holds = world.unread.hold(world.unread.take(4))
    assert world.entry(A).position == 0
    assert world.unread.deliver(holds) == {A}
    assert world.entry(A).position == 4


def test_records_that_come_back_too_late_are_forgotten() -> None:
    world = World(A)
    world.fetched(A, 0, 6)
    taken = world.unread.take(4)
    holds = world.unread.hold(taken)
    assert world.entry(A).position == 0
    world.unread.move(world.entry(A), 100)
    assert world.unread.deliver(holds) == set()
    world.unread.put_back(taken, holds)
    assert (world.take(), world.entry(A).position) == ({}, 100)


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


def test_corrupt_data_that_is_well_the_second_time_goes_on() -> None:
    world = World(A)
    world.fetched(A, 0, 2, corrupt=True)
    world.take()
    world.fetched(A, 0, 2)
    assert world.take() == {A: [0, 1]}
    world.fetched(A, 2, 2, corrupt=True)
    world.take()
    assert world.refetched == [(A, 0), (A, 2)]


def test_a_refused_record_is_reported_before_anything_behind_it() -> None:
    world = World(A)
    world.fetched(A, 0, 3)
    taken = world.unread.take(3)
    error = DeserializationError("poison")
    world.unread.put_back({A: taken[A][1:]}, world.unread.holds(taken))
    world.unread.refuse(A, 0, error)
    assert world.take() == {}
    assert world.unread.partitions[A].position == 0  # a commit must not cover a record that nobody has heard of
    assert world.unread.failure() is error
    assert world.unread.failure() is None
    assert world.unread.partitions[A].position == 1
    assert world.take() == {A: [1, 2]}


def test_giving_room_to_others_forgets_no_refused_record() -> None:
    world = World(A, B, fetch_buffer_bytes=1000)
    world.fetched(A, 0, 3)
    world.fetched(A, 3, 3)
    taken = world.unread.take(3)
    error = DeserializationError("poison")
    world.unread.put_back({A: taken[A][1:]}, world.unread.holds(taken))
    world.unread.refuse(A, 0, error)
    world.unread.drop_others([B])
    assert world.refetched == [(A, 1)]
    assert world.unread.failure() is error


def test_room_is_given_back_by_what_is_not_asked_for() -> None:
    world = World(A, B, fetch_buffer_bytes=1000)
    world.fetched(A, 0, 3)
    world.fetched(B, 0, 3)
    world.take(1, A)
    world.unread.drop_others([B])
    assert world.refetched == [(A, 1)]
    assert world.take() == {B: [0, 1, 2]}
    assert world.entry(A).position == 1
    assert world.parked == [({A}, True)]
    world.unread.unpark(())
    assert world.parked[-1] == ({A}, False)


def test_a_thousand_idle_partitions_cost_a_read_nothing() -> None:
    looked = 0

    class Watched(dict[TopicPartition, PartitionUnread]):
        def __getitem__(self, key: TopicPartition) -> PartitionUnread:
            nonlocal looked
            looked += 1
            return super().__getitem__(key)

        def values(self) -> Any:
            raise AssertionError("a read looked at every partition")

    partitions = [TopicPartition("t", index) for index in range(1000)]
    world = World(*partitions)
    world.fetched(partitions[500], 0, 2)
    world.unread.partitions = Watched(world.unread.partitions)
    assert world.take() == {partitions[500]: [0, 1]}
    assert world.unread.failure() is None
    assert looked < 10


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
