"""The model check: whatever arrives, ends, fails, leaves, is committed and crashes, in any order, the promises of ``process`` hold.

- What is committed is never beyond the first record that is not done.
- After a crash, and after partitions moved to another member, each record that the committed state does not call done comes again,
  and what it calls done was done.
- The successful starts of a lane are in order, and a lane runs one at a time.
- No record is handled before it is due, nor behind one of its partition that is not.
- As many records are held as were received and not done. Those that a later attempt holds up are among them, and are not handled.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, precondition, rule

from kafka_async import OffsetAndMetadata, Retry, TopicPartition
from kafka_async.application.processing.attempts import Unit
from kafka_async.application.processing.delays import Delays
from kafka_async.application.processing.encoding import decode
from kafka_async.application.processing.items import Item, Pack
from kafka_async.application.processing.lanes import Lanes
from kafka_async.application.processing.process_settings import key_of, partition_of
from kafka_async.application.processing.work import Work
from kafka_async.model import ConsumerRecord
from tests.virtual import run_virtual_asyncio

from .world import world

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
ORDERS: dict[str, Any] = {"key": key_of, "partition": partition_of, "none": None, "callable": lambda record: record.value % 3}
TOPIC = UUID(int=7)
partitions = st.sampled_from(PARTITIONS)


class Member:
    """One process: what it has received and does."""

    def __init__(self, order: str, batch: int, *, keep_done: bool, delayed: bool) -> None:
        self.delays = Delays(lambda record: record.timestamp) if delayed else None
        self.work = Work(ORDERS[order], 200, Lanes(batch, 0.0, self.delays), order == "callable", keep_done)
        self.batch = batch
        self.next: dict[TopicPartition, int] = {}
        """What it reads next."""
        self.busy: dict[Hashable, int] = defaultdict(int)


class Processing(RuleBasedStateMachine):
    """A group of which one member at a time has all that is alive; the log and what is committed outlive it."""

    running = Bundle("running")

    @initialize(
        order=st.sampled_from(sorted(ORDERS)), batch=st.sampled_from([1, 1, 3]), keep_done=st.booleans(), delayed=st.booleans()
    )
    def begin(self, order: str, batch: int, keep_done: bool, delayed: bool) -> None:
        self.order, self.batch, self.keep_done, self.delayed = order, batch, keep_done, delayed
        self.log: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = defaultdict(list)
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.done: set[tuple[TopicPartition, int]] = set()
        self.successes: dict[Hashable, list[tuple[TopicPartition, int]]] = defaultdict(list)
        self.now = self.wall = 0.0
        self.leaving: set[TopicPartition] = set()
        self.member = Member(order, batch, keep_done=keep_done, delayed=delayed)
        for partition in PARTITIONS:
            self.produce(partition, [None, b"a", b"b", b"a", b"c", b"b"], 2)
            self.assign(partition)

    # --- the world ---------------------------------------------------------------------------------------------------------

    @rule(
        partition=partitions,
        keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), min_size=1, max_size=8),
        gap=st.integers(0, 3),
        due=st.integers(0, 10),
    )
    def produce(self, partition: TopicPartition, keys: list[bytes | None], gap: int, due: int = 0) -> None:
        """Write records, with a gap behind them (control records, compaction). ``due``: when, if they are delayed."""
        for key in keys:
            offset = self.ends[partition]
            self.log[partition].append(
                ConsumerRecord(partition.topic, partition.partition, offset, due, 0, key, offset, (), None, 1, 1, 3)
            )
            self.ends[partition] += 1
        self.ends[partition] += gap

    @precondition(lambda self: len(self.member.next) < len(PARTITIONS))
    @rule(partition=partitions)
    def assign(self, partition: TopicPartition) -> None:
        """A partition comes, from wherever; it starts from what is committed."""
        if partition in self.member.next:
            return
        found = self.committed.get(partition)
        assert self.member.work.assign(partition, found, TOPIC)
        self.member.next[partition] = 0 if found is None else found.offset

    @rule(partition=partitions, most=st.integers(1, 10))
    def receive(self, partition: TopicPartition, most: int) -> None:
        work, start = self.member.work, self.member.next.get(partition)
        intake = work.intake()
        if start is None or partition in self.leaving or intake.limit == 0 or partition in intake.waiting:
            return
        records = [record for record in self.log[partition] if record.offset >= start][: min(most, intake.limit)]
        if records:
            work.receive(partition, records, self.now, topic_id=TOPIC)
            self.admit()
            after = [record.offset for record in self.log[partition] if record.offset > records[-1].offset]
            self.member.next[partition] = after[0] if after else self.ends[partition]
        elif not any(record.offset >= start for record in self.log[partition]):
            self.member.next[partition] = self.ends[partition]  # a position in front of a gap, where it was committed, moves on

    # --- handlers ----------------------------------------------------------------------------------------------------------

    def lane(self, item: Item) -> Hashable:
        """Return what must not run twice at once: not even what still runs of a partition that was sought in meanwhile.

        What still runs of a partition that has left is of another one.
        """
        if item.lane is None:
            return item
        return item.lane if self.order == "callable" else (id(item.part.lanes), item.lane)

    @precondition(lambda self: self.member.work.lanes.some_ready)
    @rule(target=running, count=st.integers(1, 6))
    def take(self, count: int) -> Any:
        return multiple(*(taken for _ in range(count) if (taken := self.take_one()) is not None))

    @precondition(lambda self: self.member.work.lanes.some_ready)
    @rule(target=running, ends=st.lists(st.booleans(), min_size=2, max_size=12))
    def handle(self, ends: list[bool]) -> Any:
        """Begin some, and end some of them, in no order."""
        left = []
        for end in ends:
            if (taken := self.take_one()) is not None:
                if end:
                    self.succeed(taken)
                else:
                    left.append(taken)
        return multiple(*left)

    def take_one(self) -> Any:
        unit: Unit | None = self.member.work.take() if self.batch == 1 else self.member.work.take_pack()
        if unit is None:
            return None
        lanes = {self.lane(item) for item in unit.items}
        assert unit.items
        if self.order != "none" and len(unit.items) > 1:
            assert len(lanes) == 1 or all(item.lane is None for item in unit.items)
        for item in unit.items:
            delayed = None if self.member.delays is None else self.member.delays.first(item.part)
            assert delayed is None or item.record.offset < delayed.record.offset
        for lane in lanes:
            self.member.busy[lane] += 1
            assert self.member.busy[lane] == 1, "a lane runs one at a time"
        return unit, self.member, lanes

    @staticmethod
    def _end(member: Member, lanes: set[Hashable]) -> None:
        for lane in lanes:
            member.busy[lane] -= 1

    @rule(taken=consumes(running))
    def succeed(self, taken: Any) -> None:
        unit, member, lanes = taken
        self._end(member, lanes)
        self._note(unit.items, member)
        if isinstance(unit, Pack):
            member.work.pack_succeeded(unit, self.now)
        else:
            member.work.succeeded(unit, self.now)

    def _note(self, items: list[Item], member: Member) -> None:
        """These were handled well."""
        for item in items:
            place = (item.part.progress.partition, item.record.offset)
            if member is self.member and not item.part.gone:
                self.done.add(place)
                if item.lane is not None:
                    self.successes[self.lane(item), item.part].append(place)

    @rule(taken=consumes(running), after=st.floats(0, 3))
    def fail(self, taken: Any, after: float) -> None:
        unit, member, lanes = taken
        self._end(member, lanes)
        member.work.retry(unit, self.now + after, self.now)

    @rule(taken=consumes(running), well=st.integers(0, 3), left=st.integers(0, 3), after=st.floats(0, 3))
    def fail_in_part(self, taken: Any, well: int, left: int, after: float) -> None:
        """The first records of a batch are done, and the last ones were not handled."""
        unit, member, lanes = taken
        if isinstance(unit, Pack):
            well = min(well, len(unit.items) - 1)
            left = min(left, len(unit.items) - 1 - well)
            done, unhandled = unit.items[:well], unit.items[len(unit.items) - left :]
            if done:
                self._note(done, member)
                member.work.pack_succeeded(member.work.split(unit, done), self.now)
            if unhandled:
                member.work.unhandled(unit, unhandled, self.now)
        self._end(member, lanes)
        member.work.retry(unit, self.now + after, self.now)

    @rule(taken=consumes(running))
    def interrupt(self, taken: Any) -> None:
        unit, member, lanes = taken
        self._end(member, lanes)
        member.work.interrupted(unit, self.now)

    @rule(seconds=st.floats(0, 2))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds
        self.admit()
        self.member.work.expire(self.now)

    @rule(jump=st.integers(-10, 10))
    def set_the_clock(self, jump: int) -> None:
        """The wall clock jumps."""
        self.wall += jump
        self.admit()

    def admit(self) -> None:
        delays = self.member.delays
        waited = [] if delays is None else [(part, first) for part in delays.parts if (first := delays.first(part)) is not None]
        self.member.work.lanes.admit(self.wall, self.now)
        for part, first in waited:
            assert delays is not None
            assert (delays.first(part) is first) is (first.record.timestamp > self.wall)

    # --- commits, rebalances, crashes ------------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: OffsetAndMetadata(offset, "", 3) for partition, offset in self.member.next.items()}

    @rule(accepted=st.booleans())
    def commit(self, accepted: bool) -> None:
        offsets = self.member.work.to_commit(self.positions())
        for partition, offset in offsets.items():
            self.check(partition, offset)
        if accepted:
            self.committed |= offsets
            self.member.work.committed(offsets)

    @rule(partition=partitions, really=st.integers(0, 4))
    def begin_to_leave(self, partition: TopicPartition, really: int) -> None:
        if really < 4:
            return
        self.member.work.leave([partition])
        self.leaving.add(partition)

    @precondition(lambda self: self.leaving)
    @rule()
    def leave(self) -> None:
        for partition in self.leaving:
            if partition in self.member.next:
                self.revoke(partition)
        self.leaving.clear()

    def revoke(self, partition: TopicPartition) -> None:
        offsets = self.member.work.to_commit(self.positions(), [partition])
        for where, offset in offsets.items():
            self.check(where, offset)
        self.committed |= offsets
        self._forget(partition)

    @rule(partition=partitions, really=st.integers(0, 4))
    def lose(self, partition: TopicPartition, really: int) -> None:
        if really == 4 and partition in self.member.next:
            self._forget(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self.member.work.forget([partition])
        del self.member.next[partition]

    @rule(really=st.integers(0, 9))
    def may_crash(self, really: int) -> None:
        if really == 9:
            self.crash()

    def crash(self) -> None:
        """All that is not committed is forgotten; handlers of the dead process never end for the new one."""
        self.member = Member(self.order, self.batch, keep_done=self.keep_done, delayed=self.delayed)
        self.leaving.clear()

    @rule(partition=partitions)
    def seek_back(self, partition: TopicPartition) -> None:
        """Go back to what is committed. (Seeking past what is not done would be the user's wish to leave it out.)"""
        if partition in self.member.next and partition not in self.leaving:
            self.member.work.go_elsewhere(partition)
            self.member.next[partition] = start = self.committed[partition].offset if partition in self.committed else 0
            self.member.work.see_again(partition, start)

    # --- what must hold ----------------------------------------------------------------------------------------------------

    def check(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """What is committed was done, all of it: records below, and those of the map."""
        recorded = decode(offset.metadata, offset.offset, TOPIC)
        assert recorded is not None or not offset.metadata
        assert not offset.metadata or self.keep_done
        for record in self.log[partition]:
            covered = record.offset < offset.offset or (recorded is not None and record.offset in recorded)
            assert not covered or (partition, record.offset) in self.done

    @invariant()
    def lanes_are_in_order(self) -> None:
        for places in getattr(self, "successes", {}).values():
            by_partition: dict[TopicPartition, list[int]] = defaultdict(list)
            for partition, offset in places:
                by_partition[partition].append(offset)
            assert all(offsets == sorted(offsets) for offsets in by_partition.values())

    @invariant()
    def as_many_are_held_as_are_not_done(self) -> None:
        if hasattr(self, "member"):
            work = self.member.work
            assert work.held == sum(part.progress.unfinished if part.live else part.running for part in work.parts.values())
            held_up = work.lanes.held_up
            assert held_up.records == sum(part.held_up for part in work.parts.values())
            assert held_up.bytes == sum(part.held_up_bytes for part in work.parts.values())
            assert all(0 <= part.held_up <= part.progress.unfinished - part.running for part in work.parts.values())
            assert work.retrying + work.delayed <= held_up.records <= work.held
            assert work.suspended == work.delayed  # nothing is paused here
            assert work.running == len([lane for lane, count in self.member.busy.items() if count]) or self.batch > 1

    def teardown(self) -> None:
        """From any state a fresh member finishes everything, once if the map is kept, and commits the ends."""
        if not hasattr(self, "member"):
            return
        self.crash()
        self.wall = 100.0
        for partition in PARTITIONS:
            self.assign(partition)
        for _ in range(10_000):
            for partition in PARTITIONS:
                self.receive(partition, 10)
            if (taken := self.take_one()) is not None:
                self.succeed(taken)
            elif not any(self.log[tp] and self.member.next[tp] <= self.log[tp][-1].offset for tp in PARTITIONS):
                break
        assert (self.member.work.held, self.member.work.lanes.held_up.records, self.member.work.lanes.held_up.bytes) == (0, 0, 0)
        assert self.done == {(partition, record.offset) for partition, records in self.log.items() for record in records}
        self.commit(accepted=True)
        for partition, records in self.log.items():
            if records:
                assert self.committed[partition].offset == self.ends[partition]


Processing.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestProcessing = pytest.mark.slow(Processing.TestCase)


# --- handlers and tasks that are cancelled -------------------------------------------------------------------------------------

MANNERS = [
    "returns",
    "waits",
    "raises",
    "cancels itself",
    "swallows",
    "returns cancelled",
    "awaits a cancelled task",
    "rolls back",
    "nests",
]
"""What a handler does at its first attempt; at later ones it returns."""


async def _behave(manner: str) -> None:
    """Do what a handler with this manner does."""
    task = asyncio.current_task()
    assert task is not None
    match manner:
        case "waits":
            await asyncio.sleep(1)
        case "raises":
            raise ValueError(manner)
        case "cancels itself":
            task.cancel()
            await asyncio.sleep(1)
        case "swallows":
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        case "returns cancelled":
            task.cancel()
        case "awaits a cancelled task":
            other = asyncio.ensure_future(asyncio.sleep(1))
            other.cancel()
            await other
        case "rolls back":
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(0.3)
        case "nests":  # one timeout inside another, both over at once
            async with asyncio.timeout(0.5):
                async with asyncio.timeout(0.5):
                    await asyncio.sleep(1)


@pytest.mark.slow
@given(
    manners=st.lists(st.sampled_from(MANNERS), min_size=1, max_size=25),
    cancelled=st.lists(st.tuples(st.integers(0, 24), st.floats(0, 3)), max_size=8),
    workers=st.integers(1, 6),
    keys=st.integers(1, 8),
    ends_after=st.floats(0, 20),
)
@settings(max_examples=40, deadline=None)
def test_whatever_is_cancelled_is_a_failure_of_its_record_alone(
    manners: list[str], cancelled: list[tuple[int, float]], workers: int, keys: int, ends_after: float
) -> None:
    """Each record is handled until its handler has returned, in order of its key; no worker is lost; what is committed is done."""
    tried: dict[int, int] = defaultdict(int)
    done: list[tuple[bytes | None, int]] = []
    running: dict[int, asyncio.Task[Any]] = {}
    busy: set[bytes | None] = set()
    some = world()
    some.produce(len(manners), keys=keys)
    manners = [*manners, *["returns"] * 10][: some.cluster.log(some.partitions[0]).end]  # it writes whole batches

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling(), "nothing is left of what was meant for another record"
        assert record.key not in busy, "a lane runs one at a time"
        busy.add(record.key)
        running[record.offset] = task
        tried[record.offset] += 1
        try:
            if tried[record.offset] == 1:
                await _behave(manners[record.offset])
            else:
                await asyncio.sleep(0.01)
            done.append((record.key, record.offset))
        finally:
            busy.discard(record.key)
            running.pop(record.offset, None)

    async def cancel(offset: int, after: float) -> None:
        await asyncio.sleep(after)
        if offset in running:
            running[offset].cancel()

    async def run(seconds: float) -> bool:
        async with some.consumer(auto_commit_interval_ms=500) as consumer:
            how: dict[str, Any] = {
                "concurrency": workers,
                "retry": Retry(attempts=20, delay=0.1),
                "timeout_ms": 5_000,
                "drain_timeout_ms": 1_000,
            }
            async with consumer.processing(handle, **how) as processing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        while processing.statistics().handled < len(manners) and len(set(done)) < len(manners):  # noqa: ASYNC110 - virtual
                            await asyncio.sleep(0.05)
                        await processing.drain()
        assert not running
        committed = some.committed() or 0
        return {offset for _, offset in done} >= set(range(committed))

    async def main() -> None:
        cancellers = [asyncio.create_task(cancel(*each)) for each in cancelled]
        assert await run(ends_after)
        assert await run(200)
        await asyncio.gather(*cancellers)

    run_virtual_asyncio(main)
    assert {offset for _, offset in done} == set(range(len(manners)))
    assert some.committed() == len(manners)
    for key in {key for key, _ in done}:
        firsts = list(dict.fromkeys(offset for each, offset in done if each == key))
        assert firsts == sorted(firsts)
