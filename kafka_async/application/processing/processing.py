"""Processing the records of one consumer: reading, handling, committing, rebalances, the end.

Decides: when to read, when to commit, and in which order things end. Owns: the tasks, which live as long as the ``async with``
block. Must never commit what is not done, or let a record of a partition that was given up run on
without counting its result as late.

Reads go on whatever happens, since rebalances are carried out in them: if there is no room, or nothing is to be read, they ask for
nothing. While the handlers of partitions that leave are given time to end, a read inside the call-back goes on for the others.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Final, Self

import anyio
from anyio import CancelScope, Lock, create_task_group, move_on_after

from ...errors import (
    CommitFailedError,
    ConsumerStoppedError,
    DeserializationError,
    IllegalStateError,
    KafkaError,
    OffsetMetadataTooLargeError,
)
from ...model import OffsetAndMetadata, TopicPartition, at_offset
from ...network.waiting import LoopSignal
from ...trace import Fault, Notice, ProcessingFailed, Recovered, TraceEvent
from ...values import define, field
from ..callbacks import Batch
from .handling import Handling
from .process_settings import ProcessSettings
from .source import Account, Chained, Supplier
from .statistics import PROCESSING, ProcessingStatistics
from .tasks import Running, Tasks, tasks_here
from .work import Intake

LAST_COMMIT: Final = 5.0
"""Seconds for the commit before a revocation, after the handlers' own time: the group waits for it."""
UNWINDING: Final = 1.0
"""Seconds for which handlers that were cancelled may clean up before their partition is given up."""
DRAINING: Final = 2 / 3
"""Handlers may go on for this share of the time that a stop leaves to processing."""
LOOK_AGAIN: Final = 0.1
"""Seconds after which partitions that wait for room are checked again, even if fewer records than expected are done; and a session
that may be over."""
_FULL: Final = "room for records that are tried again later"
_NOTHING: Final = Intake(0, (), 0, 0)


@define(eq=False)
class _Reading:
    """Where the reading task is."""

    tasks: list[Running] = field(factory=list)
    """The task that reads, and those that look at the time and at threads."""
    scope: CancelScope | None = None
    """Of a read that may be interrupted."""
    commit: Running | None = None
    """A commit that is under way."""
    commit_at: float = 0.0
    finishing: bool = False
    """Nothing more is started."""
    ended: bool = False
    """Nothing more will be read or handled."""
    over: bool = False
    """The consumer was given back."""


@define(eq=False)
class _Warned:
    """What has been warned of."""

    stalled: tuple[TopicPartition, int] | None = None
    """A record that has been unfinished for too long."""
    full: bool = False
    """What later attempts hold up has reached its limit."""


@define(eq=False)
class Processing:
    """Handlers running on a consumer's records; made by ``KafkaConsumer.processing``.

    An ``async with`` block: the handlers run while its body runs. When it is left, no more handlers start, running ones get
    ``drain_timeout_ms``, and what is done is committed. If processing fails, the body is cancelled and the block raises the error.
    """

    source: Supplier
    handler: Callable[..., Any] = field(repr=False)
    settings: ProcessSettings
    _work: Account = field(init=False, repr=False)
    _handling: Handling = field(init=False, repr=False)
    _reading: _Reading = field(factory=_Reading, init=False, repr=False)
    _tasks: Tasks | None = field(default=None, init=False, repr=False)
    _failure: BaseException | None = field(default=None, init=False, repr=False)
    _finished: anyio.Event = field(factory=anyio.Event, init=False, repr=False)
    """Nothing more will be read: ``stop`` was called, here or on the consumer."""
    _changes: LoopSignal = field(factory=LoopSignal, init=False, repr=False)
    """Wakes waiting tasks when something happened that they may be waiting for."""
    _committing: Lock = field(factory=Lock, init=False, repr=False)
    _holding: bool = field(default=False, init=False, repr=False)
    """``drain`` or ``pause`` was called: nothing is read."""
    _left_at: dict[TopicPartition, int] = field(factory=dict, init=False, repr=False)
    """For partitions that left, the offset up to which everything was done; until the next assignment."""
    _waiting: int = field(default=0, init=False, repr=False)
    """Tasks that wait for a change."""
    _warned: _Warned = field(factory=_Warned, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        settings, clock = self.settings, self.source.clock
        self._work = self.source.work(settings)
        self._handling = Handling(
            self.handler,
            settings,
            self._work,
            clock,
            self,
        )

    # --- for the body ----------------------------------------------------------------------------------------------------------

    def statistics(self) -> ProcessingStatistics:
        """Return one frozen snapshot of the processing."""
        work, counts, now = self._work, self._handling.counts, self.source.clock()
        oldest, retrying, held_up = work.oldest, work.retrying, work.lanes.held_up
        running = self._handling.running
        age = now - oldest[2] if oldest is not None else 0.0
        return ProcessingStatistics(
            running=running,
            waiting=max(0, work.held - running - retrying),
            retrying=retrying,
            held_up=held_up.records,
            held_up_bytes=held_up.bytes,
            full=work.full,
            far_ahead=work.far_ahead,
            lanes=work.open_lanes,
            oldest_age=age,
            oldest=(*oldest[0], oldest[1]) if oldest is not None else None,
            stalled=age >= self.settings.stalled_after,
            done_ahead=work.done_ahead,
            handled=work.settled - counts.skipped - counts.dead_letters,
            attempts=counts.attempts,
            failures=counts.failures,
            skipped=counts.skipped,
            dead_letters=counts.dead_letters,
            late_results=work.late_results + len(counts.late_threads),
            seconds_in_queue=counts.seconds_in_queue,
            seconds_in_handlers=counts.seconds_in_handlers,
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return ``statistics`` as a group of metrics. From any thread."""
        return {PROCESSING: self.statistics().metrics()}

    def pause(self) -> None:
        """Start no more handlers, and read no records, until ``resume``. Running handlers go on, and so does the membership."""
        self._holding = True
        self._handling.halt()
        self._interrupt()

    def resume(self) -> None:
        """Go on after ``pause`` or ``drain``."""
        if self._ending:
            return
        self._holding = False
        self._handling.halt(halted=False)
        self._interrupt()

    async def drain(self) -> None:
        """Read no more until ``resume``, wait until everything that was received is done, retries included, and commit that.

        Records of partitions that are paused (``consumer.pause``) are not waited for.
        """
        self._holding = True
        if not self._ending:
            self._handling.halt(halted=False)
        self._interrupt()
        await self._until(lambda: self._work.held <= self._work.suspended or self._ending)
        await self._commit(self._work.to_commit(self.source.positions()))
        await self.source.settle()

    def stop(self) -> None:
        """Make ``wait`` return. Running handlers are drained when the block is left."""
        self._finished.set()

    async def wait(self) -> None:
        """Wait until ``stop`` is called, here or on the consumer, or until processing fails, which leaving the block raises."""
        await self._finished.wait()

    def abort(self) -> None:
        """As ``stop``, but running handlers are cancelled now instead of drained. What is done is still committed."""
        self._finished.set()
        self._handling.halt()
        self._handling.cancel()

    @property
    def seconds_in_handlers(self) -> float:
        """How long handlers have worked, all together (for the source)."""
        return self._handling.counts.seconds_in_handlers

    @property
    def over(self) -> bool:
        """The consumer was given back, and may be read from (for the consumer)."""
        return self._reading.over

    @property
    def failed_for_good(self) -> bool:
        """Processing has failed: nothing is handled any more (for the consumer)."""
        return self._failure is not None

    @property
    def reads_nothing(self) -> bool:
        """Nothing is read, until ``resume`` or for good (for the source)."""
        return self._holding or self._ending

    @property
    def stalled(self) -> bool:
        """Whether a record has been unfinished for longer than ``stalled_after_ms``."""
        return self._warned.stalled is not None

    @property
    def _ending(self) -> bool:
        return self._failure is not None or self._reading.finishing

    # --- life ------------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise IllegalStateError("this processing was already started; make a new one")
        self.source.begin(Chained(self._on_revoked, self._on_assigned, self._on_lost, self._on_sought, self._calling_back), self)
        try:
            await self._take_over(self.source.assignment())
            await self._on_sought(tuple(self.source.assignment()))
        except BaseException:
            self._reading.over = True
            self.source.end({}, failed=False)
            raise
        self._reading.commit_at = self.source.clock() + self.source.commit_interval
        self._tasks = tasks = tasks_here(self.failed, self._swept)

        def ended() -> bool:
            return self._reading.ended

        for _ in range(self.settings.concurrency):
            self._handling.add_worker(tasks, ended)
        self._reading.tasks += [
            tasks.start(self._keep_reading, ended),
            tasks.start(self._keep_time, ended, lookout=True),
        ]
        if self._handling.uses_threads:
            self._reading.tasks.append(tasks.start(self._handling.look, ended))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        tasks = self._tasks
        assert tasks is not None  # noqa: S101 - entered
        try:
            swallowed = await tasks.left(exc)
            with CancelScope(shield=True):
                await self.finish(inf)
        finally:  # a second cancellation, which a shield stops only if it comes from a cancel scope, ends everything at once
            self._end()
            try:
                if left := await tasks.join():
                    text = f"{left} handlers ignore that they were cancelled, and go on; their results will not count"
                    self.report(Fault(now=self.source.clock(), text=text))
            finally:
                self._handling.close()
                self._give_back()
        if self._failure is not None and (exc is None or swallowed):
            raise self._failure
        return swallowed

    def _end(self) -> None:
        """End every task."""
        self._reading.ended = True
        self._handling.end()
        for running in self._reading.tasks:
            running.cancel()
        if self._reading.commit is not None:
            self._reading.commit.cancel()
        self._changes.rest()
        self._change()

    def _swept(self) -> None:
        """All tasks were cancelled, which is how some programs shut down, perhaps without leaving the block."""
        self._finished.set()
        self._handling.halt()
        if self._tasks is not None:
            self._tasks.start(self._end_alone)

    async def _end_alone(self) -> None:
        try:
            await self.finish(inf)
        finally:
            self._end()

    @property
    def swept(self) -> bool:
        """Whether all tasks were cancelled (for the workers)."""
        return self._tasks is not None and self._tasks.swept

    def report(self, event: TraceEvent) -> None:
        """Tell listeners, and the log (for the workers)."""
        self.source.trace(event)

    async def finish(self, seconds: float) -> None:
        """Begin nothing more, drain running handlers for ``seconds`` at most, and commit. A second call waits for the first.

        A handler may call it: what the handler holds is not waited for, and not done.
        """
        self._finished.set()
        self._handling.stops()
        if self._reading.finishing:
            self._change()
        elif self._tasks is None:  # nothing has begun yet
            await self._finish(seconds)
        else:
            self._reading.finishing = self._holding = True
            # In a task of its own: whoever calls may be cancelled, and everybody else would wait for it in vain.
            self._tasks.start(partial(self._finish, seconds))
        with move_on_after(seconds):
            await self._until(lambda: self._reading.ended)

    async def _finish(self, seconds: float) -> None:
        try:
            await self._drain_and_commit(seconds)
        finally:
            self._reading.ended = True
            self._change()

    async def _drain_and_commit(self, seconds: float) -> None:
        clock = self.source.clock
        until = clock() + seconds
        self._reading.finishing = self._holding = True
        self._handling.halt()
        self._interrupt()
        with move_on_after(min(seconds * DRAINING, self.settings.drain_timeout)):
            await self._until(lambda: self._work.running <= self._handling.stopping())
        self._handling.cancel()
        with move_on_after(min(max(0.0, until - clock()) / 2, UNWINDING)):
            await self._until(lambda: self._work.running <= self._handling.stopping())
        self.source.put_back()
        with move_on_after(min(max(0.0, until - clock()), self.source.last_commit)):
            await self._commit_at_the_end()

    async def _commit_at_the_end(self) -> None:
        """Commit, again if need be: a broker may be away for a moment, and what is not committed will be handled again."""
        while not self.source.stopping:
            if await self._commit(self._work.to_commit(self.source.positions())):
                await anyio.sleep(self.source.retry_backoff)
            else:
                await self.source.settle()
                return

    def _give_back(self) -> None:
        """Let the consumer go on at the first record of each partition that is not done, and keep the maps that are committed.

        A partition without received records may have one too, of an earlier owner. A partition that left in a rebalance that is
        not over has its position past all that was received, which an auto-commit would take for consumed.
        """
        work, positions = self._work, {} if self.source.stopping else self.source.positions()
        unfinished = work.unfinished()
        points = {tp: point for tp in tuple(work.parts) if (point := work.completed(tp, positions.get(tp))) is not None}
        kept = {tp: point for tp, point in points.items() if tp in unfinished or point.metadata}
        left = {tp: OffsetAndMetadata(offset, "") for tp, offset in self._left_at.items() if tp not in points}
        work.forget(tuple(work.parts))
        self._reading.over = True
        self.source.end(left | kept, failed=self.failed_for_good)

    def in_handlers(self) -> set[Any]:
        """Return the records that are being handled (for the source)."""
        return self._handling.under_way()

    async def commit(self) -> None:
        """Commit what is done (for the consumer)."""
        await self._commit(self._work.to_commit(self.source.positions()))

    def attend_to_pauses(self) -> None:
        """Partitions were paused or resumed (for the consumer)."""
        self._handling.take_back()
        self._work.suspend(self.source.paused())
        self._handling.rouse()
        self._change()

    def look_again(self) -> None:
        """Records that waited are gone: there is room (for the source)."""
        self._interrupt()

    def give_up_lost(self) -> None:
        """Cancel handlers all of whose records are no longer ours (for the source)."""
        self._handling.cancel_gone()
        self._change()

    def failed(self, error: BaseException) -> None:
        """End with this error: the body is cancelled, running handlers are drained (for the workers)."""
        if self._failure is None:
            self._failure = error
            self.report(ProcessingFailed(now=self.source.clock(), error=error))
            self._finished.set()
            self._handling.halt()
            self._change()
            if self._tasks is not None:
                self._tasks.interrupt()

    # --- waiting ---------------------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        self._changes.wake()

    def progressed(self) -> None:
        """A record was handled, or given up (for the workers)."""
        if self._waiting:
            self._change()
        if self._work.load <= self._handling.low_water:
            self._refill()

    def starved(self) -> None:
        """A worker finds nothing ready, though there may be more to read (for the workers)."""
        self._refill()

    def may_begin(self, now: float) -> bool:
        """Return whether what was received is surely still ours (for the workers)."""
        return self.source.holds(now)

    def doubted(self) -> None:
        """What was received may belong to others by now (for the workers)."""
        self._change()

    def _refill(self) -> None:
        """There is room: take in at once what was fetched already; if there is nothing, let the read wait for it."""
        self._handling.low_water = -1
        if self.reads_nothing:
            return
        intake = self._work.intake()
        batch: Batch = {}
        if intake.limit:
            batch, raw = self.source.take(intake.limit, intake.waiting)
        if batch:
            self._receive(batch, raw)
            self._handling.low_water = intake.most - intake.step
        elif intake.waiting or not intake.limit:
            self._handling.low_water = self._work.load - intake.step
        else:
            self._interrupt()

    def retry_waits(self) -> None:
        """A record waits for its next attempt (for the workers)."""
        self._change()

    def position(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the next offset that will be read (for the workers)."""
        return self.source.position(partition)

    async def _until(self, condition: Callable[[], bool]) -> None:
        self._waiting += 1
        try:
            while not condition():
                self._handling.watched = True
                await self._changes.wait(self._changes.ticket(), inf)
        finally:
            self._waiting -= 1
            self._handling.watched = bool(self._waiting)

    def _interrupt(self) -> None:
        """End the read that is under way: there may be more to ask for now, or less."""
        self._handling.low_water = -1
        self._change()
        if self._reading.scope is not None:
            self._reading.scope.cancel()

    # --- reading ---------------------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        while not self._reading.ended:
            if not await self._try_to_read():
                self._finished.set()
                await self._until(lambda: self._reading.ended)
                return
            self._commit_if_due()

    async def _try_to_read(self) -> bool:
        """Read once; ``False``: the consumer is being stopped."""
        try:
            await self._read()
        except ConsumerStoppedError:
            return False
        except Exception as error:
            await self._refused(error)
        return True

    async def _refused(self, error: Exception) -> None:
        """A read raised: wait a little if it may succeed later, else end with it."""
        if isinstance(error, DeserializationError) and error.record is not None:
            record = error.record
            self._work.receive_refused(TopicPartition(record.topic, record.partition), record, error, self.source.clock())
            self._handling.rouse()
        elif isinstance(error, KafkaError) and error.retriable:
            self.source.trace(Fault(now=self.source.clock(), text="a read failed; trying again", error=error))
            await anyio.sleep(self.source.retry_backoff)
        else:
            self.failed(error)
            await anyio.sleep(self.source.retry_backoff)

    async def _read(self) -> None:
        work, reading = self._work, self._reading
        intake = _NOTHING if self.reads_nothing else work.intake()
        seconds = max(0.0, reading.commit_at - self.source.clock())
        if intake.waiting:
            self._handling.low_water, seconds = work.load - intake.step, min(seconds, LOOK_AGAIN)
        else:
            self._handling.low_water = max(0, intake.most - intake.step) if intake.limit == 0 and intake is not _NOTHING else -1
        before = reading.scope
        with CancelScope() as scope:
            reading.scope = scope
            try:
                self._receive(*await self.source.read(intake.limit, intake.waiting, seconds))
            finally:
                reading.scope = before

    def _receive(self, batch: Batch, raw: Batch) -> None:
        if not batch:
            return
        now, work = self.source.clock(), self._work
        for partition, records in batch.items():
            work.receive(partition, records, now, raw[partition], self.source.topic_id(partition))
        self._handling.rouse()
        if work.lanes.due_at is not None:
            self._change()

    # --- time ------------------------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        """Handle records whose time has come, and report those that take too long."""
        while not self._reading.ended:
            now = self.source.clock()
            ready = self._work.expire(now)
            self._look_for_room(now)
            due_at = min(self._work.due_at or inf, self._look_for_stalls(now))
            if self._handling.doubtful:
                due_at = now + LOOK_AGAIN
                if self.source.holds(now):
                    self._handling.rouse()
            elif ready:
                self._handling.rouse(1)  # mostly there is one; the worker that begins it wakes others if there are more
            await self._changes.wait(self._changes.ticket(), due_at - now)

    def _look_for_room(self, now: float) -> None:
        """Report that no more is read because of what later attempts hold up, and the end of that."""
        full, before = self._work.full, self._warned.full
        self._warned.full = full
        if full and not before:
            text = f"{self._work.lanes.held_up.records} records wait for later attempts or behind them, which is the limit"
            self.report(Fault(now=now, text=f"{text}: no more is read of their partitions", outage=_FULL))
        elif before and not full:
            self.report(Recovered(now=now, outage=_FULL))
            self._interrupt()

    def _look_for_stalls(self, now: float) -> float:
        """Warn, once, about a record that has been unfinished for too long. Return when to look again."""
        limit, oldest = self.settings.stalled_after, self._work.oldest
        if oldest is None:
            self._warned.stalled = None
            return now + limit
        partition, offset, since = oldest
        if now - since < limit:
            return since + limit
        if self._warned.stalled != (partition, offset):
            self._warned.stalled = (partition, offset)
            text = f"{at_offset(*partition, offset)} has been unfinished for {now - since:.0f} s"
            self.source.trace(Fault(now=now, text=f"{text}: {self.source.consequence}"))
        return now + limit

    # --- committing ------------------------------------------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        """Commit every so often, without waiting for the answer."""
        now, reading = self.source.clock(), self._reading
        if now < reading.commit_at:
            return
        reading.commit_at = now + self.source.commit_interval
        if self._ending or self.source.stopping:
            return  # the end commits
        self._work.forget(self._work.parts.keys() - set(self.source.assignment()))
        if self._tasks is not None and (reading.commit is None or reading.commit.done):
            offsets = self._work.to_commit(self.source.positions())
            if offsets:
                reading.commit = self._tasks.start(partial(self._commit, offsets))

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Commit. A failure is reported and stops nothing: the next commit covers what this one did not.

        Return whether it failed, and another attempt may succeed.
        """
        if not self.source.commits:
            return False
        async with self._committing:
            while offsets:
                try:
                    await self.source.commit(offsets)
                except OffsetMetadataTooLargeError as error:
                    if not self._work.keep_done:
                        self._report(error)
                        return False
                    self._work.keep_done = False
                    self.source.trace(
                        Fault(now=self.source.clock(), text="committing without the map of done records", error=error)
                    )
                    offsets = {tp: offset._replace(metadata="") for tp, offset in offsets.items()}
                except CommitFailedError as error:
                    self._report(error)
                    self._work.committed({tp: offset for tp, offset in offsets.items() if error.lost and tp not in error.lost})
                    return False
                except KafkaError as error:
                    self._report(error)
                    return error.retriable
                except ConsumerStoppedError as error:  # another task has stopped it, or cancelled its background loop
                    self._report(error, "done records could not be committed; they will be handled again")
                    return False
                else:
                    self._work.committed(offsets)
                    return False
        return False

    def _report(self, error: Exception, text: str = "done records could not be committed; trying again") -> None:
        self.source.trace(Fault(now=self.source.clock(), text=text, error=error))

    # --- rebalances ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _calling_back(self) -> Iterator[None]:
        """A call-back runs inside a read, which must not be interrupted meanwhile, but only after the call-back has returned."""
        outer, self._reading.scope = self._reading.scope, None
        try:
            yield
        finally:
            self._reading.scope = outer
            self._interrupt()

    async def _on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._work.forget(partitions)
        self.source.sought(partitions)  # before it was ours
        found = await self._take_over(partitions)
        for partition in partitions:
            # An eager rebalance brings partitions back with the position past all that was read. Records that were received and
            # not done were forgotten as the partitions left, and would never be handled.
            point, left_at = found.get(partition), self._left_at.pop(partition, None)
            if point is not None or left_at is not None:
                self.source.go_back(partition, point.offset if point is not None else left_at)
        self._left_at.clear()

    async def _take_over(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Begin with partitions, without repeating what an earlier owner had done beyond its commit. Return what is committed."""
        partitions = tuple(partitions)
        found, error = await self.source.committed(partitions)
        if error is not None:
            text = "the map of done records could not be read; some of them are handled again"
            self.source.trace(Fault(now=self.source.clock(), text=text, error=error))
        with_metadata = {tp.topic for tp, offset in found.items() if offset is not None and offset.metadata}
        ids = await self.source.topic_ids({tp.topic for tp in partitions} if self._work.keep_done else with_metadata)
        foreign = [tp for tp in partitions if not self._work.assign(tp, found.get(tp), ids.get(tp.topic))]
        if foreign:
            text = f"{len(foreign)} partitions have commit metadata of another program or another topic; it is ignored"
            self.source.trace(Notice(now=self.source.clock(), text=text))
        self._work.suspend(self.source.paused())
        return found

    async def _on_sought(self, partitions: Collection[TopicPartition]) -> None:
        """A program that keeps offsets elsewhere has sought to them: their metadata says what is done, not that of the commit."""
        found = {tp: target for tp, target in self.source.sought(partitions).items() if target.metadata}
        ids = await self.source.topic_ids({tp.topic for tp in found})
        for partition, target in found.items():
            self._work.go_on_at(partition, target, ids.get(partition.topic))

    async def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Give running handlers of these partitions time to end, commit, and forget them. The others go on.

        Those of a topic that was deleted run on, but nobody waits for them: there is nothing to commit, and nobody to hand over to.
        """
        self._leave(frozenset(partitions))
        leaving = frozenset(tp for tp in partitions if not self.source.is_missing(tp.topic))
        with move_on_after(min(self.settings.drain_timeout, self.source.longest_drain)):
            await self._drained(leaving)
        self._cancel(leaving)
        with move_on_after(UNWINDING):
            await self._until(lambda: not self._runs(leaving))
        known = [tp for tp in leaving if tp in self._work.parts]
        positions = self.source.positions()
        offsets = self._work.to_commit(positions, known)
        reached = {tp: self._work.completed(tp, positions.get(tp)) for tp in known}
        self._left_at |= {tp: point.offset for tp, point in reached.items() if point is not None}
        self._work.forget(partitions)
        with move_on_after(LAST_COMMIT):
            await self._commit(offsets)
        self._change()

    async def _drained(self, leaving: frozenset[TopicPartition]) -> None:
        """Wait until no handler of these partitions runs, and read on for the others meanwhile."""
        if not self._runs(leaving):
            return
        async with create_task_group() as both:
            if not self.source.stopping:
                both.start_soon(self._read_meanwhile)
            await self._until(lambda: not self._runs(leaving))
            both.cancel_scope.cancel()

    def _runs(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether a handler of these partitions runs that should be waited for."""
        stopping = self._handling.stopping(lambda item: item.part.progress.partition in partitions)
        return self._work.running_of(partitions) > stopping

    async def _read_meanwhile(self) -> None:
        while not self._ending and await self._try_to_read():
            self._commit_if_due()

    async def _on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Another member has these partitions: cancel their handlers, and commit nothing."""
        lost = frozenset(partitions)
        self._leave(lost)
        self._cancel(lost)
        self._work.forget(lost)
        self._change()

    def _leave(self, partitions: frozenset[TopicPartition]) -> None:
        """Begin nothing more of these partitions."""
        self._handling.take_back()
        self._work.leave(partitions)
        self._handling.rouse()

    def _cancel(self, partitions: frozenset[TopicPartition]) -> None:
        self._handling.cancel(lambda item: item.part.progress.partition in partitions)
