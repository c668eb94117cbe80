"""All that is known about the records that are processed: what is handled, committed, taken in."""

from collections import defaultdict
from typing import Any

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.application.processing.encoding import LONGEST, decode, encode
from kafka_async.application.processing.items import Item, Pack
from kafka_async.application.processing.lanes import RECORD_BYTES
from kafka_async.application.processing.work import MOST_HELD_UP, Work
from tests.effort import examples

from .support import BY_KEY, BY_PARTITION, OTHER, TOPIC_ID, TP, Record, record, records, started, work

# Committing.


def take(some: Work, *offsets: int) -> dict[int, Item]:
    """Take everything that is ready; return it by offset."""
    items = {}
    while (item := some.take()) is not None:
        items[item.record.offset] = item
    assert set(offsets) <= items.keys()
    return items


def test_only_what_changed_is_committed() -> None:
    some = work()
    some.assign(TP, OffsetAndMetadata(0), TOPIC_ID)
    some.assign(OTHER, OffsetAndMetadata(0), TOPIC_ID)
    positions = {TP: OffsetAndMetadata(2), OTHER: OffsetAndMetadata(0)}
    some.receive(TP, records(range(2)), 0.0)
    assert some.to_commit(positions) == {}
    for item in take(some).values():
        some.succeeded(item, 0.0)
    offsets = some.to_commit(positions)
    assert offsets == {TP: OffsetAndMetadata(2)}
    some.committed(offsets)
    assert some.to_commit(positions) == {}


def test_the_position_of_a_partition_without_a_commit_is_committed() -> None:
    some = work()
    some.assign(TP, None, TOPIC_ID)
    assert some.to_commit({}) == {}
    assert some.to_commit({TP: OffsetAndMetadata(40)}) == {TP: OffsetAndMetadata(40)}


def test_a_commit_that_was_refused_is_made_again() -> None:
    some = work()
    some.receive(TP, records(range(2)), 0.0)
    some.succeeded(take(some)[0], 0.0)
    assert some.to_commit({})[TP].offset == 1
    assert some.to_commit({})[TP].offset == 1


def test_what_is_done_out_of_order_travels_in_the_metadata() -> None:
    some = work()
    some.assign(TP, None, TOPIC_ID)
    some.receive(TP, records(range(5)), 0.0)
    items = take(some)
    for offset in (1, 2, 4):
        some.succeeded(items[offset], 0.0)
    point = some.to_commit({TP: OffsetAndMetadata(5)})[TP]
    assert point.offset == 0
    assert point.metadata == encode([1, 2, 1, 1], TOPIC_ID)
    later = work()
    assert later.assign(TP, point, TOPIC_ID)
    later.receive(TP, records(range(6)), 0.0)
    assert later.held == 3
    assert started(later) == [0, 3, 5]
    assert later.to_commit({TP: OffsetAndMetadata(6)}) == {}, "it is the same as before"
    assert later.completed(TP, OffsetAndMetadata(6)) == OffsetAndMetadata(0, encode([1, 2, 1, 1], TOPIC_ID), 0)


def test_without_keep_done_no_metadata_is_written_or_read() -> None:
    some = work(keep_done=False)
    some.assign(TP, OffsetAndMetadata(0, encode([1, 1], TOPIC_ID)), TOPIC_ID)
    some.receive(TP, records(range(3)), 0.0)
    items = take(some, 1)
    some.succeeded(items[1], 0.0)
    some.succeeded(items[0], 0.0)
    assert some.to_commit({}) == {TP: OffsetAndMetadata(2, "", 0)}


def test_metadata_of_others_is_left_out_and_said() -> None:
    some = work()
    assert not some.assign(TP, OffsetAndMetadata(0, "flink:42"), TOPIC_ID)
    some.receive(TP, records(range(2)), 0.0)
    assert started(some) == [0, 1]
    assert some.assign(TP, OffsetAndMetadata(0), TOPIC_ID)


def test_a_topic_that_was_made_anew_is_handled_from_its_start() -> None:
    some = work()
    some.assign(TP, OffsetAndMetadata(0, encode([1, 4], TOPIC_ID)), OTHER_ID)
    some.receive(TP, records(range(3)), 0.0)
    assert started(some) == [0, 1, 2]


OTHER_ID = type(TOPIC_ID)(int=9)


def test_what_would_be_committed_if_a_record_were_done_can_be_asked() -> None:
    some = work()
    some.assign(TP, None, TOPIC_ID)
    some.receive(TP, records(range(3)), 0.0)
    items = take(some)
    position = OffsetAndMetadata(3)
    assert some.completed(TP, position, [items[1]]) == OffsetAndMetadata(0, encode([1, 1], TOPIC_ID), 0)
    assert some.completed(TP, position, list(items.values())) == position
    assert some.completed(TP, position) == OffsetAndMetadata(0, "", 0)
    assert some.completed(OTHER, position) is None


def test_what_is_kept_elsewhere_has_all_that_is_done_however_much_it_is() -> None:
    some = work(most=10_000)
    some.assign(TP, None, TOPIC_ID)
    some.receive(TP, records(range(8_000)), 0.0)
    for offset, item in take(some).items():
        if offset % 2:
            some.succeeded(item, 0.0)
    position = OffsetAndMetadata(8_000)
    assert len(some.to_commit({TP: position})[TP].metadata) <= LONGEST, "a broker would refuse it"
    kept = some.completed(TP, position)
    assert kept is not None
    later = work(most=10_000)
    later.go_on_at(TP, kept, TOPIC_ID)
    later.receive(TP, records(range(8_001)), 0.0)
    assert sorted(take(later)) == list(range(0, 8_001, 2))
    assert later.completed(TP, OffsetAndMetadata(8_001)) == kept._replace(leader_epoch=0)


def test_without_maps_in_commits_what_is_kept_elsewhere_has_them() -> None:
    some = work()
    some.commit_without_maps()
    some.go_on_at(TP, OffsetAndMetadata(0, encode([1, 1], TOPIC_ID)), TOPIC_ID)
    some.receive(TP, records(range(4)), 0.0)
    items = take(some)
    assert sorted(items) == [0, 2, 3]
    some.succeeded(items[3], 0.0)
    assert some.to_commit({}) == {TP: OffsetAndMetadata(0, "", 0)}
    assert some.completed(TP, None) == OffsetAndMetadata(0, encode([1, 1, 1, 1], TOPIC_ID), 0)


# Retries.


def test_only_the_lane_of_a_record_waits_for_its_retry() -> None:
    some = work(BY_KEY)
    some.receive(TP, [record(0, b"a"), record(1, b"a"), record(2, b"b")], 0.0)
    items = take(some)
    assert some.retry(items[0], 5.0, 1.0)
    assert (some.running, some.retrying, some.due_at) == (1, 1, 5.0)
    some.succeeded(items[2], 1.0)
    assert not some.expire(4.9)
    assert some.expire(5.0)
    again = some.take()
    assert again is not None
    assert (again.record.offset, again.attempt) == (0, 2)
    some.succeeded(again, 5.0)
    assert started(some) == [1]


def test_what_waits_for_its_retry_takes_no_room_but_has_a_limit_of_its_own() -> None:
    some = work(most=20)
    now = 0
    while some.intake().limit and not some.intake().waiting:
        some.receive(TP, [each._replace(serialized_value_size=100_000) for each in records(range(now, now + 20))], 0.0)
        now += 20
        for item in take(some).values():
            some.retry(item, 100.0, 0.0)
        assert some.intake().limit == 20
    assert some.full
    assert some.intake().waiting == {TP}
    size = RECORD_BYTES + 100_000
    assert (some.lanes.held_up.records, some.lanes.held_up.bytes) == (now, now * size)
    assert MOST_HELD_UP <= now * size < MOST_HELD_UP + 20 * size
    some.receive(OTHER, records(range(1), partition=OTHER), 0.0)
    assert some.intake().waiting == {TP}, "others go on"
    assert some.expire(100.0)
    assert (some.lanes.held_up.records, some.lanes.held_up.bytes) == (0, 0)
    assert not some.full
    assert some.load == some.held == now + 1


def test_what_is_behind_a_later_attempt_takes_no_room_until_its_lane_has_caught_up() -> None:
    some = work(BY_KEY, most=10)
    some.receive(TP, records(range(3), b"a"), 0.0)
    first = some.take()
    assert first is not None
    some.retry(first, 100.0, 0.0)
    assert (some.load, some.lanes.held_up.records) == (0, 3)
    some.receive(TP, records(range(3, 6), b"a"), 0.0)
    assert (some.load, some.lanes.held_up.records) == (0, 6)
    assert some.expire(100.0)
    assert (some.load, some.lanes.held_up.records) == (1, 5), "only the first can be handled"
    for left in range(5, 0, -1):
        assert (some.load, some.lanes.held_up.records) == (1, left)
        if left == 3:  # also what comes while it catches up
            some.receive(TP, records(range(6, 7), b"a"), 0.0)
            assert (some.load, some.lanes.held_up.records) == (1, left + 1)
        item = some.take()
        assert item is not None
        some.succeeded(item, 101.0)
        if left == 3:
            item = some.take()
            assert item is not None
            some.succeeded(item, 101.0)
    some.receive(TP, records(range(7, 9), b"a"), 0.0)
    assert (some.load, some.lanes.held_up.records) == (3, 0), "it has caught up"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("order", [None, BY_KEY], ids=["none", "key"])
def test_what_leaves_is_held_up_no_more(batch: int, order: Any) -> None:
    some = work(order, batch=batch)
    for partition in (TP, OTHER):
        some.receive(partition, records(range(8), b"a", partition), 0.0)
    while (unit := some.take() if batch == 1 else some.take_pack()) is not None:
        some.retry(unit, 100.0, 0.0)
    assert some.lanes.held_up.records == 16
    some.leave([TP])
    assert some.retrying <= some.lanes.held_up.records <= 8, "what was packed with those that leave is ready again"
    some.forget([TP, OTHER])
    assert (some.lanes.held_up.records, some.lanes.held_up.bytes, some.held) == (0, 0, 0)


def test_a_retry_of_a_partition_that_left_is_forgotten() -> None:
    some = work(BY_KEY)
    some.receive(TP, records(range(2), b"a"), 0.0)
    some.receive(OTHER, records(range(1), b"a", OTHER), 0.0)
    for item in take(some).values():
        some.retry(item, 1.0, 0.0)
    some.forget([TP])
    assert some.retrying + len(started(some)) == 1
    assert some.held == 1


def test_a_failure_after_the_partition_left_is_not_tried_again() -> None:
    some = work()
    some.receive(TP, records(range(1)), 0.0)
    item = some.take()
    assert item is not None
    some.forget([TP])
    assert not some.retry(item, 1.0, 0.0)
    assert (some.running, some.late_results, some.due_at) == (0, 1, None)


def test_a_batch_is_tried_again_as_a_batch() -> None:
    some = work(BY_KEY, batch=3)
    some.receive(TP, records(range(4), b"a"), 0.0)
    pack = some.take_pack()
    assert pack is not None
    some.retry(pack, 1.0, 0.0)
    some.expire(1.0)
    again = some.take_pack()
    assert again is not None
    assert ([item.record.offset for item in again.items], again.attempt) == ([0, 1, 2], 2)


def test_of_a_batch_over_two_partitions_the_records_that_stay_come_again() -> None:
    for first, second in ((TP, OTHER), (OTHER, TP)):
        some = work(batch=4)
        some.receive(first, records(range(2), partition=first), 0.0)
        some.receive(second, records(range(2), partition=second), 0.0)
        pack = some.take_pack()
        assert pack is not None
        some.forget([TP])
        some.interrupted(pack, 0.0)
        left = some.take_pack()
        assert left is not None
        assert [(item.record.partition, item.record.offset) for item in left.items] == [(1, 0), (1, 1)]
        assert (some.held, some.running) == (2, 2)


# Partitions that come and go.


def test_a_partition_that_comes_back_starts_from_what_was_committed() -> None:
    """A late result must not be taken for one of the records that came again at the same offset."""
    some = work(BY_KEY)
    some.receive(TP, records(range(3), b"a"), 0.0)
    stuck = some.take()
    assert stuck is not None
    some.forget([TP])
    some.assign(TP, OffsetAndMetadata(0), TOPIC_ID)
    some.receive(TP, records(range(3), b"a"), 0.0)
    some.succeeded(stuck, 0.0)
    assert some.late_results == 1
    assert some.held == 3
    assert some.to_commit({}) == {}
    assert started(some) == [0]


def test_records_that_come_again_after_a_seek_are_handled_again() -> None:
    some = work()
    some.receive(TP, records(range(10)), 0.0)
    items = take(some)
    some.succeeded(items[0], 0.0)
    some.receive(TP, records(range(4, 8)), 0.0)
    some.succeeded(items[5], 0.0)
    assert some.late_results == 1
    assert started(some) == [4, 5, 6, 7]
    assert some.to_commit({})[TP].offset == 4


def test_seeks_back_while_handlers_run_keep_nothing_of_those_before() -> None:
    some = work()
    for _ in range(3):
        some.receive(TP, records(range(10)), 0.0)
        assert some.take() is not None
        some.see_again(TP, 0)
    assert [(each.running, each.earlier) for each in some.parts[TP].earlier] == [(1, ())] * 3


# Intake.


def test_a_partition_that_holds_as_much_as_is_left_waits() -> None:
    some = work(most=100)
    assert some.intake().limit == 100
    some.receive(TP, records(range(60)), 0.0)
    assert some.intake().limit == 40
    assert set(some.intake().waiting) == {TP}, "the room that is left is for the others"
    items = take(some)
    for offset in range(20):
        some.succeeded(items[offset], 0.0)
    assert set(some.intake().waiting) == set()


@pytest.mark.slow
def test_a_partition_that_runs_too_far_ahead_waits_until_its_oldest_record_is_done() -> None:
    some = work(most=100_000)
    some.receive(TP, records(range(40_000)), 0.0)
    items = take(some)
    for offset in range(1, 40_000, 2):
        some.succeeded(items[offset], 0.0)
    assert set(some.intake().waiting) == {TP}
    for offset in range(0, 40_000, 2):
        some.succeeded(items[offset], 0.0)
    assert set(some.intake().waiting) == set()


def test_a_record_that_could_not_be_deserialized_keeps_its_place() -> None:
    some = work(BY_PARTITION)
    some.receive(TP, records(range(2)), 0.0)
    error = ValueError("not JSON")
    some.receive_refused(TP, record(2), error, 0.0)
    some.receive(TP, records(range(3, 4)), 0.0)
    seen = []
    while (item := some.take()) is not None:
        seen.append((item.record.offset, item.error))
        some.succeeded(item, 0.0)
    assert seen == [(0, None), (1, None), (2, error), (3, None)]


def test_the_first_record_of_a_topic_that_was_made_anew_stays_if_it_could_not_be_deserialized() -> None:
    some = work()
    some.assign(TP, topic_id=TOPIC_ID)
    some.receive(TP, records(range(1)), 0.0, topic_id=TOPIC_ID)
    some.receive_refused(TP, record(0), ValueError("not JSON"), 0.0, OTHER_ID)
    some.receive(TP, records(range(1, 2)), 0.0, topic_id=OTHER_ID)
    assert started(some) == [0, 1]
    assert some.held == 2


def test_the_record_that_has_been_unfinished_for_longest_is_known() -> None:
    some = work()
    assert some.oldest is None
    some.receive(TP, records(range(2)), 3.0)
    some.receive(OTHER, records(range(2), partition=OTHER), 2.0)
    assert some.oldest == (OTHER, 0, 2.0)
    some.forget([OTHER])
    assert some.oldest == (TP, 0, 3.0)
    some.succeeded(take(some)[0], 4.0)
    assert some.oldest == (TP, 1, 3.0)


# The model: members that come, go and crash.

PARTITIONS = (TP, OTHER)
LENGTH = 40


@define(eq=False)
class Member:
    """One owner of the partitions: its work, and where it reads."""

    some: Work
    position: dict[TopicPartition, int] = field(factory=dict)
    running: list[Item | Pack] = field(factory=list)


class Owners(RuleBasedStateMachine):
    """One log of two partitions with gaps; members own it one after the other, and commit as they go.

    Committed is never beyond the first unfinished record; whatever was not marked as done comes again; the successful starts of a
    lane are in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log: dict[TopicPartition, list[Record]] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.succeeded: dict[TopicPartition, list[int]] = defaultdict(list)
        """Offsets in the order in which handlers that returned in time had been started, by partition."""

    @initialize(
        keys=st.lists(st.sampled_from([b"a", b"b", None]), min_size=LENGTH, max_size=LENGTH),
        gaps=st.sets(st.integers(0, LENGTH)),
        order=st.sampled_from([BY_KEY, BY_PARTITION, None]),
        batch=st.sampled_from([1, 1, 3]),
        linger=st.sampled_from([0.0, 1.0]),
        keep_done=st.booleans(),
        shared=st.booleans(),
    )
    def begin(self, keys: list[bytes | None], gaps: set[int], **how: Any) -> None:
        self.how = how
        for tp in PARTITIONS:
            self.log[tp] = [record(n, keys[n], tp) for n in range(LENGTH) if (n + tp.partition) not in gaps]
        self.arrive()

    def arrive(self) -> None:
        """A new member takes over what the last one left, or the first begins."""
        batch = self.how["batch"]
        self.member = Member(
            work(
                self.how["order"],
                30,
                batch=batch,
                linger=self.how["linger"] if batch > 1 else 0.0,
                keep_done=self.how["keep_done"],
                one_set_of_lanes=self.how["shared"] and self.how["order"] is BY_KEY,
            )
        )
        for tp in PARTITIONS:
            self.assign(tp)

    def assign(self, tp: TopicPartition) -> None:
        self.member.some.assign(tp, self.committed.get(tp), TOPIC_ID)
        self.member.position[tp] = self.committed[tp].offset if tp in self.committed else 0

    def read(self, tp: TopicPartition, count: int) -> None:
        intake = self.member.some.intake()
        fresh = [each for each in self.log[tp] if each.offset >= self.member.position[tp]][: min(count, intake.limit)]
        if tp in intake.waiting or not fresh:
            return
        self.member.some.receive(tp, fresh, self.now)
        self.member.position[tp] = fresh[-1].offset + 1

    def start(self, count: int) -> None:
        some = self.member.some
        for _ in range(count):
            unit = some.take() if self.how["batch"] == 1 else some.take_pack()
            if unit is not None:
                assert not any(item.part.paused for item in unit.items)
                self.member.running.append(unit)

    def finish(self, unit: Item | Pack) -> None:
        for item in unit.items:
            if not item.part.gone:
                self.succeeded[item.part.progress.partition].append(item.record.offset)
        if isinstance(unit, Pack):
            self.member.some.pack_succeeded(unit, self.now)
        else:
            self.member.some.succeeded(unit, self.now)

    @rule(
        counts=st.tuples(st.integers(0, 8), st.integers(4, 12)),
        started=st.integers(3, 12),
        ends=st.lists(
            st.tuples(st.integers(0, 30), st.sampled_from(["done", "done", "done", 0.0, 1.0, 5.0, "interrupted"])),
            min_size=2,
            max_size=10,
        ),
    )
    def handle(self, counts: tuple[int, int], started: int, ends: list[tuple[int, Any]]) -> None:
        """Read, begin, and end some of what runs, in any order: well, to be tried again after so many seconds, or interrupted."""
        for tp, count in zip(PARTITIONS, counts, strict=True):
            self.read(tp, count)
        self.start(started)
        running = self.member.running
        for place, end in ends:
            if not running:
                return
            unit = running.pop(place % len(running))
            if end == "done":
                self.finish(unit)
            elif end == "interrupted":
                self.member.some.interrupted(unit, self.now)
            else:
                self.member.some.retry(unit, self.now + end, self.now)

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.member.some.expire(self.now)

    @rule(reaches=st.booleans())
    def commit(self, reaches: bool) -> None:
        positions = {tp: OffsetAndMetadata(offset) for tp, offset in self.member.position.items()}
        offsets = self.member.some.to_commit(positions)
        if reaches:
            self.committed.update(offsets)
            self.member.some.committed(offsets)

    @rule(tp=st.sampled_from(PARTITIONS), drains=st.booleans())
    def revoke(self, tp: TopicPartition, drains: bool) -> None:
        """The partition leaves and comes back; what runs of it ends in time or late."""
        some = self.member.some
        some.leave([tp])
        if drains:
            for unit in [unit for unit in self.member.running if any(item.part is some.parts[tp] for item in unit.items)]:
                self.member.running.remove(unit)
                self.finish(unit)
            self.committed.update(some.to_commit({tp: OffsetAndMetadata(self.member.position[tp])}, [tp]))
        some.forget([tp])
        self.assign(tp)

    @rule(paused=st.sets(st.sampled_from(PARTITIONS)))
    def pause(self, paused: set[TopicPartition]) -> None:
        self.member.some.suspend(paused)

    @rule()
    def drain(self) -> None:
        """Once all has ended that may begin, nothing is left but what is held up by a pause."""
        some = self.member.some
        self.start(100)
        while self.member.running or some.due_at is not None:
            while self.member.running:
                self.finish(self.member.running.pop(0))
            self.wait(100.0)
            self.start(100)
        assert some.held == some.suspended

    @rule()
    def crash(self) -> None:
        self.arrive()

    @invariant()
    def nothing_unfinished_is_covered_by_a_commit(self) -> None:
        for tp, point in self.committed.items():
            done = set(self.succeeded[tp])
            unfinished = [each.offset for each in self.log[tp] if each.offset not in done]
            assert all(offset >= point.offset for offset in unfinished)
            recorded = decode(point.metadata, point.offset, TOPIC_ID)
            assert recorded is None or not any(offset in recorded for offset in unfinished)

    @invariant()
    def what_is_counted_is_there(self) -> None:
        if not self.log:
            return
        some = self.member.some
        assert some.held == sum(part.progress.unfinished for part in some.parts.values())
        assert some.running == sum(len(unit.items) for unit in self.member.running)

    def teardown(self) -> None:
        """In the end a member that nothing happens to handles everything that is left."""
        if not self.log:
            return
        self.arrive()
        some = self.member.some
        while some.held or any(self.member.position[tp] <= self.log[tp][-1].offset for tp in PARTITIONS if self.log[tp]):
            for tp in PARTITIONS:
                self.read(tp, 8)
            self.start(5)
            while self.member.running:
                self.finish(self.member.running.pop(0))
            self.wait(2.0)
        for tp in PARTITIONS:
            assert set(self.succeeded[tp]) >= {each.offset for each in self.log[tp]}
            position = OffsetAndMetadata(LENGTH)
            assert some.completed(tp, position) == position
        self.check_order()

    def check_order(self) -> None:
        """The first time that each record of a lane was done, it was done after all before it."""
        order = self.how["order"]
        if order is None:
            return
        for tp in PARTITIONS:
            lane_of = {each.offset: order(each) for each in self.log[tp]}
            lanes: dict[Any, list[int]] = defaultdict(list)
            for offset in dict.fromkeys(self.succeeded[tp]):
                if lane_of[offset] is not None:
                    lanes[lane_of[offset]].append(offset)
            assert all(offsets == sorted(offsets) for offsets in lanes.values())


TestOwners = Owners.TestCase
TestOwners.settings = settings(examples(0.6), stateful_step_count=30)


@pytest.mark.parametrize("received", [0, 3, 6])
def test_what_an_earlier_owner_had_done_is_kept_by_one_that_leaves_before_it_has_read_it(received: int) -> None:
    first = work(None)
    first.assign(TP, None, TOPIC_ID)
    first.receive(TP, records(range(10)), 0.0)
    for offset, item in take(first).items():
        if offset not in (2, 5):
            first.succeeded(item, 0.0)
    committed = first.to_commit({TP: OffsetAndMetadata(10)})[TP]
    assert committed.offset == 2
    second = work(None)
    assert second.assign(TP, committed, TOPIC_ID)
    if received:
        second.receive(TP, records(range(2, 2 + received)), 0.0)
    assert second.to_commit({TP: OffsetAndMetadata(2 + received)}) == {}, "nothing has become of the rest"
    for item in take(second).values():
        second.succeeded(item, 0.0)
    point = second.completed(TP, OffsetAndMetadata(2 + received))
    assert point is not None
    third = work(None)
    third.assign(TP, point, TOPIC_ID)
    third.receive(TP, records(range(point.offset, 10)), 0.0)
    left = {0: [2, 5], 3: [5], 6: []}[received]
    assert sorted(take(third)) == left
