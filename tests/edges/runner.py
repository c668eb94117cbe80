"""Runs a program on a consumer and notifies the model of everything that it sees.

Decides: how a step is done, and what must be true after it. Owns: the consumer. Must never use anything but the public interface.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any, Final, cast

import anyio
from attrs import Factory, define, field

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    CorruptRecordException,
    DeserializationError,
    IllegalOperation,
    IllegalStateError,
    KafkaError,
)
from kafka_async.testing.simulation.waking import TIMESTAMP
from tests.application.support import cancelled_at
from tests.virtual import VirtualLoop, run_virtual, run_virtual_asyncio

from .programs import COMMITS, LOOKS, MOVES, WAYS, Call, Cut, During, End, Event, Program, Read, Step, Timed
from .world import MAX_POLL, FakeWorld, FlakyError, Listener, PlainListener, World

QUIET: Final = 8
"""After so many reads without a record nothing more will come."""
UNREADABLE: Final = (2, 8, 76, 87, 109, 116)
"""What a broker says of a partition that it cannot read at the moment."""
FAIR: Final = 10_000
"""So many records are handed out at most before a partition that has data gets its turn."""
LONGEST: Final = 7
"""Records that a read of a random program waits for at most."""
SESSION: Final = 45.0
"""Seconds without a heartbeat after which the group gives a member's partitions away."""
NOTICED: Final = 3.5
"""Seconds after which a heartbeat of the consumer's background was answered."""


class Stopped(Exception):
    """The consumer ended under a read."""


@define(eq=False)
class Runner:
    """One run of a program."""

    program: Program
    world: World = Factory(lambda self: FakeWorld(self.program), takes_self=True)
    consumer: KafkaConsumer[Any, Any] = field(init=False)
    listener: Listener | PlainListener = field(init=False)
    journal: list[str] = Factory(list)
    alive: bool = False
    by_others: bool = False
    """The last records went to a task other than ours."""
    _records: Any = None
    _cut_short: bool = False
    """The last read for one record was cancelled: a call-back may have returned, or may yet, after which the next read goes on."""
    _has_read: bool = False
    """The last step was an undisturbed read."""
    _read_at: float = -inf
    """When the last read began."""
    _kind: str = ""
    """Whether records were read one by one or in batches; a change may show call-backs a record again."""
    _due: dict[TopicPartition, int] | None = None
    """What must be committed soon after the next read: auto-commit is due."""
    _expected: dict[TopicPartition, int] | None = None
    """The same, for the step that is being taken."""

    def __attrs_post_init__(self) -> None:
        self.listener = (PlainListener if self.program.plain else Listener)(self.world)

    # --- the whole -------------------------------------------------------------------------------------------------------------

    async def run(self) -> list[str]:
        """Run the program; return what was wrong."""
        model = self.world.model
        found: list[str] = []
        try:
            with anyio.fail_after(self.world.enough):
                for step in self.program.steps:
                    if not self.alive:
                        await self.begin()
                    await self.step(step)
                    if model.breaches:
                        break
                if not model.breaches:
                    await self.finish()
        except TimeoutError:
            model.breach("the program does not end")
        except Exception as error:  # noqa: BLE001,RUF100  # whatever it is, it is a finding
            model.breach(f"{type(error).__name__}: {error}")
        finally:
            found += model.breaches  # without the consequences of stopping in the middle
            if self.alive:
                with anyio.CancelScope(shield=True), suppress(Exception):
                    await self.consumer.stop(1000)
        return found

    async def begin(self) -> None:
        """Start a consumer."""
        world = self.world
        world.model.begun_anew()
        world.ending, self.by_others, self._due = False, False, None
        if world.by_hand:
            world.assigns_itself(False)
        self.consumer = world.consumer = KafkaConsumer(**world.options())
        if self.program.manual:
            self._assign(world.partitions)
        else:
            self.consumer.subscribe([self.world.topic], listener=self.listener)
        await self.consumer.start()
        self._learn()
        self._records = aiter(self.consumer)
        self.alive = True

    def _learn(self) -> None:
        """Ask the consumer what nobody else knows."""
        paused = self.consumer.paused()
        for partition in self.listener.notifier.unsure:
            if partition in self.world.model.cursors:
                self.world.model.cursors[partition].paused = partition in paused
        self.listener.notifier.unsure.clear()

    async def step(self, step: Step) -> None:
        """Take one step, and check that all is well after it."""
        self._expected, self._due = self._due, None
        self.journal.append(repr(step))
        try:
            await self._take(step)
        except Stopped:
            if not self.world.model.stopped:
                self.world.model.breach("a read says that the consumer was stopped")
        self._has_read = isinstance(step, Read)
        if self.alive:
            self._learn()
            if isinstance(step, Read):  # after any other step a call-back may have returned, after which the next read goes on
                await self._check()

    async def _take(self, step: Step) -> None:
        match step:
            case Read():
                self._reads_itself()
                await self.read(step)
            case Call():
                await self.call(step)
            case Event():
                await self.event(step)
            case During():
                await self._during(step)
            case Cut(read=read, place=place):
                await cancelled_at(place, self.read(read))
                self.world.model.see_again()
            case Timed(read=read, seconds=seconds, times=times):
                for _ in range(times):
                    with anyio.move_on_after(seconds):
                        await self.read(read)
                    self.world.model.see_again()
            case End(how=how):
                await self._end(how)

    def _reads_itself(self) -> None:
        """Records handed to another task are done now. On trio they stay open: nobody can see whether a task has ended well."""
        self.by_others = self.by_others and self.program.backend == "trio"

    async def _during(self, step: During) -> None:
        async def other() -> None:
            await anyio.sleep(step.after)
            if isinstance(step.step, Call):
                self.world.model.another_task_acts()
            try:
                if isinstance(step.step, Read):
                    await self.read(step.step)
                else:
                    await self._take(step.step)
            except Stopped:
                self.world.model.breach("a read says that the consumer was stopped")
            except Exception as error:  # noqa: BLE001,RUF100  # from a task of its own it would come in a group
                self.world.model.breach(f"{type(error).__name__}: {error}")
            self.world.model.another_task_done()  # on trio too: a task of which nobody knows how it ended holds up no interval

        # The one that takes a partition away reads until it is gone.
        if isinstance(step.step, Read) or (isinstance(step.step, Event) and step.step.name == "taken_and_given_back"):
            self.by_others = self.world.model.two_read = True
        moves = not (isinstance(step.step, Call) and step.step.name in LOOKS + COMMITS)
        self.world.model.moving = moves
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await self.read(step.read)
        if self.world.model.two_read:
            self.world.model.another_task_ended(known=self.program.backend != "trio")
        self.world.model.moving = False
        if moves:
            self.world.model.see_again()

    async def _check(self) -> None:
        """After a read: auto-commit, assignment and pauses are as they must be."""
        world, model, due = self.world, self.world.model, self._expected
        if due:
            await anyio.sleep(self.program.commit_takes + 0.2)
            await world.refresh()
            for partition, offset in due.items():
                if partition in model.cursors and world.start_of(partition) < offset and partition not in world.refused:
                    model.breach(f"auto-commit was due: {offset} of {partition}, committed is {world.committed(partition)}")
        owned = self.consumer.assignment() - (model.parting.keys() - model.cursors.keys())  # until the call-back has returned
        if owned != set(model.cursors) and not self._cut_short:
            model.breach(f"assignment() is {sorted(owned)}, call-backs say {sorted(model.cursors)}")
        paused = {tp for tp, cursor in model.cursors.items() if cursor.paused}
        if self.consumer.paused() != paused:
            model.breach(f"paused() is {sorted(self.consumer.paused())}, expected {sorted(paused)}")

    # --- reading ---------------------------------------------------------------------------------------------------------------

    async def read(self, read: Read) -> None:
        """Read, and notify the model of what came, including errors."""
        self._read_at = anyio.current_time()
        only = () if read.only is None else (self.world.partitions[read.only],)
        ways: dict[str, Callable[[Read, tuple[TopicPartition, ...]], Awaitable[None]]] = {
            "getone": self._getone,
            "getmany": self._getmany,
            "iterate": self._iterate,
            "getarrow": self._getarrow,
        }
        kind = "one by one" if read.way == "iterate" or (read.way == "getone" and not only) else "in batches"
        if kind != self._kind:
            self._kind = kind
            self.world.model.see_again()
        was_cut_short = self._cut_short
        try:
            await ways[read.way](read, only)
        except DeserializationError as error:
            self._refused(error, error.record, error.__cause__)
        except CorruptRecordException as error:
            self.world.model.corrupt_raised(TopicPartition(error.topic or "", error.partition or 0), error.offset)
            self.world.model.see_again()
        except FlakyError as error:
            self.world.model.flaky_raised(self.world.partitions[0], int(str(error).rsplit(" ", 1)[1]))
        except (ConsumerStoppedError, StopAsyncIteration):
            raise Stopped from None
        except IllegalStateError:
            if not set(only) - self.consumer.assignment():
                raise
            self._expected = None  # a read that is refused commits nothing
            self._cut_short = was_cut_short  # nor does it go on after a call-back

    def _refused(self, error: DeserializationError, record: Any, cause: BaseException | None) -> None:
        partition = TopicPartition(record.topic, record.partition)
        if isinstance(cause, FlakyError):
            self.world.model.flaky_raised(partition, record.offset)
        else:
            self.world.model.poison_raised(partition, record.offset, topic=self._topic_of(record.value))

    def _enter(self) -> None:
        self.world.model.read_entered()

    async def _getone(self, read: Read, only: tuple[TopicPartition, ...]) -> None:
        for _ in range(read.count):
            await self._one(lambda: self.consumer.getone(*only))

    async def _one(self, read: Callable[[], Awaitable[Any]]) -> None:
        """Wait for a record for a while. Call-backs that were interrupted then see their record again."""
        self._enter()
        self._cut_short = False
        with anyio.move_on_after(self.world.wait) as scope:
            self._got(await read())
        if scope.cancelled_caught:
            self._cut_short = True
            self.world.model.see_again()

    def _got(self, record: Any) -> None:
        partition = TopicPartition(record.topic, record.partition)
        self.world.model.handed_out(partition, [record.offset], topic=self._topic_of(record.value))

    @staticmethod
    def _topic_of(value: Any) -> int:
        """Return of which topic of the name a record is: how often it was created again before."""
        text = value if isinstance(value, str) else bytes(value).decode()
        return int(text.partition(":anew")[2] or 0)

    async def _iterate(self, read: Read, only: tuple[TopicPartition, ...]) -> None:
        for _ in range(read.count):
            await self._one(lambda: anext(self._records))

    async def _getmany(self, read: Read, only: tuple[TopicPartition, ...]) -> None:
        self._enter()
        self._cut_short = False
        batch = await self.consumer.getmany(*only, timeout_ms=self.world.wait * 1000, max_records=read.count)
        for record in (record for records in batch.values() for record in records):
            self._got(record)
        count = sum(map(len, batch.values()))
        if count > read.count or not all(batch.values()):
            self.world.model.breach(f"getmany(max_records={read.count}) returned {count} records of {sorted(batch)}")

    async def _getarrow(self, read: Read, only: tuple[TopicPartition, ...]) -> None:
        self._enter()
        self._cut_short = False
        batch = await self.consumer.getarrow(*only, timeout_ms=self.world.wait * 1000, max_records=read.count)
        if batch.num_rows > read.count:
            self.world.model.breach(f"getarrow(max_records={read.count}) returned {batch.num_rows} records")
        columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "value"))
        for topic, partition, offset, value in zip(*columns, strict=True):
            self.world.model.handed_out(TopicPartition(topic, partition), [offset], raw=True, topic=self._topic_of(value))

    # --- calls -----------------------------------------------------------------------------------------------------------------

    async def call(self, call: Call) -> None:
        """Make a call, and compare what it says."""
        partition = self.world.partitions[call.partition]
        ours = partition in self.consumer.assignment()
        if ours and partition not in self.world.model.cursors and call.name in MOVES:
            return  # its call-back is running: the partition is on its way in or out, whatever is done to it
        method: Callable[[TopicPartition, int], Coroutine[Any, Any, None]] = getattr(self, f"_call_{call.name}")
        try:
            await method(partition, call.offset)
        except IllegalStateError:
            if ours and partition in self.consumer.assignment():
                raise
        except DeserializationError as error:  # a call that waits for a position may find what a read would raise
            self._refused(error, error.record, error.__cause__)

    async def _call_position(self, partition: TopicPartition, offset: int) -> None:
        self.world.model.position_seen(partition, await self.consumer.position(partition), "position()")

    async def _call_committed(self, partition: TopicPartition, offset: int) -> None:
        await self.world.refresh()
        before = self.world.committed(partition)
        said = await self.consumer.committed(partition)
        await self.world.refresh()
        if said not in (before, self.world.committed(partition)):
            self.world.model.breach(f"committed() says {said}, stored is {self.world.committed(partition)}")

    async def _call_committed_offsets(self, partition: TopicPartition, offset: int) -> None:
        if set(await self.consumer.committed_offsets(partition)) != {partition}:
            self.world.model.breach("committed_offsets() answers about other partitions")

    async def _call_statistics(self, partition: TopicPartition, offset: int) -> None:
        known = self.consumer.statistics().partitions.get(partition)
        if known is not None and known.position is not None:
            self.world.model.position_seen(partition, known.position, "statistics()")

    async def _call_metrics(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.metrics()

    async def _call_current_lag(self, partition: TopicPartition, offset: int) -> None:
        cursor = self.world.model.cursors.get(partition)
        end, lag = self.world.end(partition), self.consumer.current_lag(partition)
        if lag is not None and cursor is not None and cursor.position is not None and lag > end - cursor.position:
            self.world.model.breach(f"current_lag() says {lag} at {cursor.position} of {end}")

    async def _call_next_offsets(self, partition: TopicPartition, offset: int) -> None:
        for known, next_offset in self.consumer.next_offsets().items():
            self.world.model.position_seen(known, next_offset.offset, "next_offsets()")

    async def _call_highwater(self, partition: TopicPartition, offset: int) -> None:
        if (self.consumer.highwater(partition) or 0) > self.world.end(partition):
            self.world.model.breach("highwater() is beyond the end")

    async def _call_last_stable_offset(self, partition: TopicPartition, offset: int) -> None:
        if (self.consumer.last_stable_offset(partition) or 0) > self.world.end(partition):
            self.world.model.breach("last_stable_offset() is beyond the end")

    async def _call_paused(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.paused()

    async def _call_subscription(self, partition: TopicPartition, offset: int) -> None:
        expected = set() if self.program.manual or self.world.by_hand else {self.world.topic}
        if set(self.consumer.subscription()) != expected:
            self.world.model.breach(f"subscription() says {self.consumer.subscription()}")

    async def _call_assignment(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.assignment()

    async def _call_state(self, partition: TopicPartition, offset: int) -> None:
        str(self.consumer.state)

    async def _call_partitions_for_topic(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.partitions_for_topic(self.world.topic)

    async def _call_group_metadata(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.group_metadata()

    async def _call_end_offsets(self, partition: TopicPartition, offset: int) -> None:
        if (await self.consumer.end_offsets([partition]))[partition] > self.world.end(partition):
            self.world.model.breach("end_offsets() is beyond the end")

    async def _call_beginning_offsets(self, partition: TopicPartition, offset: int) -> None:
        if await self.consumer.beginning_offsets([partition]) != {partition: 0}:
            self.world.model.breach("beginning_offsets() is not the beginning")

    async def _call_offsets_for_times(self, partition: TopicPartition, offset: int) -> None:
        await self.consumer.offsets_for_times({partition: TIMESTAMP + offset * 1000})

    async def _call_topics(self, partition: TopicPartition, offset: int) -> None:
        await self.consumer.topics()

    async def _call_commit(self, partition: TopicPartition, offset: int) -> None:
        await self._commit(None, self.consumer.commit)

    async def _call_commit_offsets(self, partition: TopicPartition, offset: int) -> None:
        if partition in self.world.model.cursors:
            offsets = {partition: min(offset, self.world.end(partition))}
            if self.program.manual:
                await self.consumer.position(
                    partition
                )  # reading begins at the committed offset if the commit comes before the first look-up
            await self._commit(offsets, lambda: self.consumer.commit(offsets))

    async def _commit(self, offsets: dict[TopicPartition, int] | None, commit: Callable[[], Awaitable[None]]) -> None:
        world = self.world
        excused, since = world.unsettled(), len(world.arrived)
        wanted = world.model.commit_called(offsets)
        try:
            await commit()
        except (CommitFailedError, KafkaError, IllegalOperation):
            if not (excused or world.unsettled()):
                raise
            return
        await world.refresh()
        for partition, offset in wanted.items():
            stored = (partition, offset) in world.arrived[since:] or world.committed(partition) == offset
            if not stored and partition in world.model.cursors:
                world.model.breach(f"commit() returned, and {offset} of {partition} is not stored")

    async def _call_pause(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.pause(partition)
        self.world.model.paused(partition, True)

    async def _call_resume(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.resume(partition)
        self.world.model.paused(partition, False)

    async def _call_pause_and_resume(self, partition: TopicPartition, offset: int) -> None:
        await self._call_pause(partition, offset)
        await self._call_resume(partition, offset)

    async def _call_seek(self, partition: TopicPartition, offset: int) -> None:
        target = min(offset, self.world.end(partition))
        self.consumer.seek(partition, target)
        if partition in self.world.model.cursors:
            self.world.model.sought(partition, target)

    async def _call_seek_to_beginning(self, partition: TopicPartition, offset: int) -> None:
        await self._look_up(partition, 0, self.consumer.seek_to_beginning)

    async def _call_seek_to_end(self, partition: TopicPartition, offset: int) -> None:
        await self._look_up(partition, self.world.end(partition), self.consumer.seek_to_end)

    async def _look_up(self, partition: TopicPartition, target: int, seek: Callable[..., Awaitable[bool]]) -> None:
        if partition in self.world.model.cursors:
            self.world.model.sought(partition, target)
        await seek(partition)

    async def _call_seek_to_committed(self, partition: TopicPartition, offset: int) -> None:
        found = (await self.consumer.seek_to_committed(partition))[partition]
        if found is not None:
            self.world.model.sought_after_a_wait(partition, found)

    async def _call_seek_to_timestamp(self, partition: TopicPartition, offset: int) -> None:
        found = (await self.consumer.seek_to_timestamp(TIMESTAMP + offset * 1000, partition))[partition]
        self.world.model.sought_after_a_wait(partition, self.world.end(partition) if found is None else found.offset)

    async def _call_subscribe_again(self, partition: TopicPartition, offset: int) -> None:
        if not self.program.manual and not self.world.by_hand:
            self.consumer.subscribe([self.world.topic], listener=self.listener)
            self.world.model.see_again()

    async def _call_resubscribe(self, partition: TopicPartition, offset: int) -> None:
        self._unsubscribe()
        if self.program.manual:
            self._assign(self.world.partitions)
        else:
            self.consumer.subscribe([self.world.topic], listener=self.listener)
            self.world.assigns_itself(False)

    def _unsubscribe(self) -> None:
        self.world.model.all_done()
        self.world.unsubscribing = True  # its commit is on its way when a plain call-back runs, and cannot be waited for
        try:
            self.consumer.unsubscribe()
        finally:
            self.world.unsubscribing = False
        if self.program.manual or self.world.by_hand:
            self._gave_up()
        else:
            self.world.model.unsubscribed()

    def _gave_up(self) -> None:
        """Partitions that were assigned by hand are gone; no listener knew them."""
        self.world.model.assigned_by_user({})

    async def _call_reassign(self, partition: TopicPartition, offset: int) -> None:
        if not (self.program.manual or self.world.by_hand):
            self._unsubscribe()
        self.world.assigns_itself(True)
        self._assign([partition] if offset % 2 else self.world.partitions)

    def _assign(self, partitions: list[TopicPartition]) -> None:
        self.consumer.assign(partitions)
        owed = self.program.auto_commit and not self.world.troubled
        self.world.model.assigned_by_user({tp: self.world.start_of(tp) for tp in partitions}, owed=owed)

    async def _call_enforce_rebalance(self, partition: TopicPartition, offset: int) -> None:
        if not (self.program.manual or self.world.by_hand):
            self.consumer.enforce_rebalance()

    # --- events ----------------------------------------------------------------------------------------------------------------

    async def event(self, event: Event) -> None:
        """Make something happen."""
        partition = self.world.partitions[event.partition]
        method: Callable[[TopicPartition], Coroutine[Any, Any, None]] = getattr(self, f"_event_{event.name}")
        world, model = self.world, self.world.model
        before = dict(model.cursors)
        # While a rebalance waits for a read to carry it out, the member learns nothing more.
        quiet = self._has_read and world.is_settled_with(before.keys())
        await method(partition)
        if event.wait:
            await anyio.sleep(event.wait * world.pace)
        if quiet and event.wait >= NOTICED and not self.program.manual and not world.by_hand:
            expelled = event.name == "expelled"
            gone = set(before) if expelled else world.said
            model.gone((tp for tp in gone if model.cursors.get(tp) is before.get(tp)), lost=expelled)

    async def _event_nothing(self, partition: TopicPartition) -> None:
        await anyio.lowlevel.checkpoint()

    async def _event_pass(self, partition: TopicPartition) -> None:
        await anyio.sleep(self.world.pace)

    async def _event_due(self, partition: TopicPartition) -> None:
        """Auto-commit falls due. The next read commits what was handed out before it."""
        await anyio.sleep(self.world.interval + 0.3)
        if self.program.auto_commit and not self.world.unsettled():
            known = {tp: cursor.position for tp, cursor in self.world.model.cursors.items() if cursor.done is not None}
            self._due = {tp: position for tp, position in known.items() if position is not None}

    async def _event_blocked(self, partition: TopicPartition) -> None:
        """A handler blocks the event loop for less than a session."""
        self._block(20.0)

    async def _event_blocked_for_long(self, partition: TopicPartition) -> None:
        """A handler blocks the event loop for longer than a session; others have everything meanwhile."""
        self._block(50.0)
        if not self.program.manual and not self.world.by_hand:
            self.world.expel()
            self.world.model.gone(set(self.world.model.cursors))

    def _block(self, seconds: float) -> None:
        if self.program.backend == "asyncio":
            cast("VirtualLoop", asyncio.get_running_loop()).block(seconds)
        else:
            import trio.lowlevel

            trio.lowlevel.current_clock().jump(seconds)  # type: ignore[attr-defined]  # a MockClock

    async def _event_idle_for_long(self, partition: TopicPartition) -> None:
        """The application takes longer than ``max_poll_interval_ms`` for a record, or for the first after a read under way."""
        await anyio.sleep(MAX_POLL + 8 + LONGEST * self.world.wait)
        if not self.program.manual and not self.world.by_hand:
            self.world.outside = True
            self.world.model.gone(set(self.world.model.cursors), lost=True)

    async def _event_outage(self, partition: TopicPartition) -> None:
        self.world.troubled = True
        for each in self.world.partitions:  # the commit of what was given up just now may not get through
            self.world.model.commit_refused(each, self.world.start_of(each))
        await self.world.outage()

    async def _event_half_open(self, partition: TopicPartition) -> None:
        """A load balancer forgets all connections. Heartbeats and records go on within one session."""
        world = self.world
        settled = not world.program.manual and not world.by_hand and world.is_settled_with(world.model.cursors.keys())
        before, world.troubled = world.member, True
        for each in world.partitions:
            world.model.commit_refused(each, world.start_of(each))
        await anyio.sleep(NOTICED)  # the loop may have been blocked until now: the session counts from a heartbeat
        world.half_open()
        await anyio.sleep(SESSION + 5)
        in_time = anyio.current_time() < self._read_at + MAX_POLL
        if settled and in_time and not world.outside and world.member != before:
            world.model.breach(f"half-open connections cost the membership: {before} is now {world.member}")

    async def _event_produce(self, partition: TopicPartition) -> None:
        self.world.produce(partition, 3, {})

    async def _event_new_poison(self, partition: TopicPartition) -> None:
        if self.program.call_backs:
            self.world.produce(partition, 3, {self.world.end(partition) + 1: "poison"})

    async def _event_refused(self, partition: TopicPartition) -> None:
        """The topic's offsets cannot be committed any more."""
        self.world.refused.add(partition)
        self.world.troubled = True

    async def _event_unreadable(self, partition: TopicPartition) -> None:
        """A broker cannot read a partition for a few seconds."""
        self.world.refuse_reading(partition, UNREADABLE[len(self.journal) % len(UNREADABLE)])
        await anyio.sleep(3)
        self.world.refuse_reading(partition, 0)

    async def _event_made_anew(self, partition: TopicPartition) -> None:
        """The topic is deleted and created again."""
        self.world.troubled = True  # what was read of the former topic is not committed
        self.world.make_anew()
        self._due = None
        await anyio.sleep(NOTICED)

    async def _event_two_read(self, partition: TopicPartition) -> None:
        """Another task waits for a partition until auto-commit was due, while ours is handed records by another call and works
        on them.
        """
        world, consumer = self.world, self.consumer
        pausing = partition in consumer.assignment() - consumer.paused() and partition in world.model.cursors
        if pausing:
            await self._call_pause(partition, 0)
        read = Read(WAYS[len(self.journal) % len(WAYS)], 1, 1 - partition.partition)
        await self.read(read)
        async with anyio.create_task_group() as tasks:
            if pausing:
                tasks.start_soon(self._wait_beside, partition)
            await anyio.sleep(0.3)
            await self.read(read)  # at once, since nothing has happened in between
            await anyio.sleep(world.interval + 1)
        if pausing and partition in consumer.paused() and partition in world.model.cursors:
            await self._call_resume(partition, 0)

    async def _wait_beside(self, partition: TopicPartition) -> None:
        """Wait for a partition of which nothing comes. The call is no read of the program's task: that holds what it has."""
        with suppress(IllegalStateError):  # it is not assigned
            batch = await self.consumer.getmany(partition, timeout_ms=(self.world.interval + 0.6) * 1000, max_records=1)
            for record in (record for records in batch.values() for record in records):
                self._got(record)

    async def _event_parked(self, partition: TopicPartition) -> None:
        """A read of one partition, of which there is nothing more, carries out a revocation, and a read of all partitions comes
        before they are assigned again. With a full buffer the others gave way to the one.
        """
        only = Read("getmany", 50, partition.partition)
        for _ in range(4):
            await self.read(only)
        with self.world.without_assignments():
            await self.world.rebalance()
            for _ in range(6):
                await self.read(only)
            await self.read(Read("getmany", 2))
        await anyio.sleep(1)

    async def _event_busy(self, partition: TopicPartition) -> None:
        """So much comes of one partition that the other one would never have its turn."""
        world, model = self.world, self.world.model
        quiet = world.partitions[1 - partition.partition]
        world.produce(quiet, 3, {})
        for _ in range(
            0 if self.program.call_backs or self.program.small else 11
        ):  # what call-backs saw takes long to look through
            world.produce(partition, 1000, {})
        await anyio.sleep(2)
        before, busy = self._open_cursor(quiet), model.cursors.get(partition)
        way, handed_out = WAYS[len(self.journal) % len(WAYS)], 0
        while busy is not None and busy.position is not None and handed_out < FAIR:
            place = busy.position
            await self.read(Read(way, 500))
            if model.breaches or model.cursors.get(partition) is not busy or busy.position <= place:
                return
            handed_out += busy.position - place
            if before is None or self._open_cursor(quiet) != before:
                return
        if handed_out >= FAIR:
            model.breach(f"{handed_out} records of {partition} came before the first of {quiet}")

    def _open_cursor(self, partition: TopicPartition) -> tuple[Any, int | None] | None:
        """Return what tells whether a record of a partition came, if one may come."""
        cursor = self.world.model.cursors.get(partition)
        if cursor is None or not cursor.ready or cursor.paused or cursor.halted or cursor.gone or cursor.unsure:
            return None
        return cursor, cursor.position

    async def _event_rebalance(self, partition: TopicPartition) -> None:
        await self.world.rebalance()

    async def _event_taken(self, partition: TopicPartition) -> None:
        await self.world.take(*self.world.partitions)

    async def _event_taken_one(self, partition: TopicPartition) -> None:
        await self.world.take(partition)

    async def _event_given_back(self, partition: TopicPartition) -> None:
        await self.world.take()

    async def _event_taken_and_given_back(self, partition: TopicPartition) -> None:
        await self.world.take(partition)
        with anyio.move_on_after(self.world.wait * 2):
            while not self.world.model.stopped and self.world.is_to_give_up:
                await self.read(Read("getmany", 2))
                await anyio.sleep(0.01)  # where a read raises the same again at once
        await self.world.take()

    async def _event_expelled(self, partition: TopicPartition) -> None:
        self.world.expel()

    # --- the end ---------------------------------------------------------------------------------------------------------------

    async def _end(self, how: str) -> None:
        world, model = self.world, self.world.model
        before = {tp: cursor.position for tp, cursor in model.cursors.items() if cursor.position is not None}
        world.ending = True
        method: Callable[[], Coroutine[Any, Any, bool]] = getattr(self, f"_end_by_{how}")
        clean = await method()
        model.stopped, self.alive = True, False
        await world.refresh()
        if world.connections_left():
            model.breach(f"{how}: connections are left")
        if self.program.auto_commit and not world.troubled and clean:
            self._check_last_commit(how, before)
        if model.cursors and not (self.program.manual or world.by_hand):
            model.breach(f"{how}: on_partitions_revoked was not called for {sorted(model.cursors)}")
        if model.parting:
            model.breach(f"{how}: on_partitions_revoked was not called for what unsubscribe gave up: {sorted(model.parting)}")

    def _check_last_commit(self, how: str, before: dict[TopicPartition, int]) -> None:
        world = self.world
        for partition, position in before.items():
            if world.start_of(partition) < position:  # more: the application committed it, or ``commit_arrived`` complains
                world.model.breach(f"{how}: {partition} was read up to {position}, committed is {world.committed(partition)}")

    async def _end_by_stop(self) -> bool:
        excused = self.world.unsettled()
        self.world.model.all_done()
        await self.consumer.stop()
        return not self.by_others and not excused

    async def _end_by_stop_twice(self) -> bool:
        excused = self.world.unsettled()
        self.world.model.all_done()
        expected = {tp: c.position for tp, c in self.world.model.cursors.items() if c.position is not None}

        async def stop(after: float) -> None:
            await anyio.sleep(after)
            await self.consumer.stop()
            await self.world.refresh()
            if self.world.connections_left():
                self.world.model.breach("stop() returned before the consumer was stopped")
            if self.program.auto_commit and not self.world.troubled and not self.by_others and not excused:
                self._check_last_commit("a stop() that returned", expected)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop, 0.01)
            await stop(0.0)
        return not self.by_others and not excused

    async def _end_by_stop_elsewhere(self) -> bool:
        """Another task stops while we work on the records that we got: they are not done."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.consumer.stop)
            await anyio.sleep(10 * self.world.pace)
        return False

    async def _end_by_stop_while_reading(self) -> bool:
        """Another task stops while we read: the read ends in the way of its kind."""

        async def stop() -> None:
            await anyio.sleep(0.3)
            self.world.ending = True
            await self.consumer.stop()

        self.world.ending = False
        with suppress(Stopped):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stop)
                while str(self.consumer.state) != "closed":
                    await self._read_once_more()
        return False

    async def _read_once_more(self) -> None:
        with suppress(Stopped):
            await self.read(Read(("getone", "iterate", "getarrow")[len(self.journal) % 3], 1))
            await anyio.sleep(0.05)

    async def _end_by_error(self) -> bool:
        error = ValueError("of the application")
        await self.consumer.__aexit__(ValueError, error, None)
        return False

    async def _end_by_cancelled(self) -> bool:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.lowlevel.checkpoint()
            except BaseException as error:
                await self.consumer.__aexit__(type(error), error, None)
                raise
        return False

    async def _end_by_unsubscribe_and_stop(self) -> bool:
        excused = self.world.unsettled()
        self._unsubscribe()
        await self.consumer.stop()
        return not self.by_others and not excused

    async def finish(self) -> None:
        """Read all that there is, and stop."""
        if not self.alive:
            return
        world, model = self.world, self.world.model
        world.refused.clear()
        if world.has_taken:
            await world.take()
        self._reads_itself()
        give_up_at = anyio.current_time() + world.drain
        empty = 0
        while not model.breaches and not self._all_read(sure=empty < QUIET):
            for partition in self.consumer.paused():  # each time: partitions that an eager rebalance takes come back paused
                self.consumer.resume(partition)
                model.paused(partition, False)
            before = {tp: cursor.due for tp, cursor in model.cursors.items()}
            if anyio.current_time() > give_up_at:
                stands = {tp.partition: sorted(cursor.due) for tp, cursor in model.cursors.items()}
                model.breach(f"not everything was read: {stands}, state {self.consumer.state}")
                return
            await self.read(Read("getmany", 50))
            self._skip_corrupt()
            empty = empty + 1 if before == {tp: cursor.due for tp, cursor in model.cursors.items()} else 0
            await anyio.sleep(0.01)
        if not model.breaches:
            self.journal.append("(all was read; stop)")
            await self._end("stop")

    def _all_read(self, *, sure: bool) -> bool:
        """Whether everything was read; not ``sure``: nothing has come for long, and the model cannot know where reading began."""
        cursors = self.world.model.cursors
        expected = set(cursors) if self.program.manual or self.world.by_hand else set(self.world.partitions)
        ends = {tp: self.world.end(tp) for tp in cursors}
        return expected == set(cursors) and all(
            cursor.due == {ends[tp]} or (not sure and ends[tp] in cursor.due) for tp, cursor in cursors.items()
        )

    def _skip_corrupt(self) -> None:
        for partition, cursor in self.world.model.cursors.items():
            if cursor.halted or cursor.unsure:
                last = max(batch[1] for batch in self.world.model.corrupt[partition])
                self.consumer.seek(partition, last + 1)
                self.world.model.sought(partition, last + 1)


def run(program: Program) -> list[str]:
    """Run a program; return what was wrong: nothing, if all is well."""
    runner = Runner(program)
    start = run_virtual_asyncio if program.backend == "asyncio" else run_virtual
    try:
        return start(runner.run)
    except Exception as error:  # noqa: BLE001,RUF100  # from the event loop: it spins, or everything waits for ever
        return [*runner.world.model.breaches, f"{type(error).__name__}: {error}"]
