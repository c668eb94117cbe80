"""Processing the records of one consumer: what the caller holds, the tasks, and the end."""

from functools import partial
from math import inf
from types import TracebackType
from typing import Final, Protocol, Self

from anyio import CancelScope, move_on_after

from ...errors import IllegalStateError
from ...model import TopicPartition, at_offset
from ...trace import Fault, Recovered
from ...values import define, field
from .feed import LOOK_AGAIN, Feed
from .handling import NO_THREADS, Handling
from .lanes import Lanes
from .limits import BREAKER, Unfinished
from .process_settings import ProcessSettings
from .run_state import RunState
from .statistics import PROCESSING, ProcessingStatistics
from .tasks import tasks_here
from .work import Ahead

OWN_STOP: Final = 1.0
"""Seconds that a handler has left whose task or thread has called ``stop``, once the others are done: it may wait for that."""
UNWINDING: Final = 1.0
"""Seconds for which handlers that were cancelled may clean up before their partition is given up."""
DRAINING: Final = 2 / 3
"""Handlers may go on for this share of the time that a stop leaves to processing."""
_FULL: Final = "room for records that are tried again later"


class Workload(Protocol):
    """The queue of work, as far as it says what there is to do."""

    lanes: Lanes
    held: int
    settled: int
    """Records for which nothing more is to be done."""
    late_results: int
    """Records whose handler ended after they had ceased to be ours."""

    @property
    def running(self) -> int:
        """Records that are being handled."""

    @property
    def retrying(self) -> int:
        """Records that wait for their next attempt."""

    @property
    def full(self) -> bool:
        """What later attempts hold up has reached its limit."""

    @property
    def oldest(self) -> tuple[TopicPartition, int, float] | None:
        """Partition and offset of the record that has been unfinished the longest, and when it was received. From any thread."""

    @property
    def due_at(self) -> float | None:
        """When the next unit that waits for its time is ready."""

    def expire(self, now: float) -> bool:
        """Make ready the units whose time has come. Return whether any is ready."""


class Settlement(Protocol):
    """How records that are done come to count: by commits, or by acknowledgements."""

    @property
    def consequence(self) -> str:
        """What happens if a record is not done for long, in words."""

    @property
    def last(self) -> float:
        """Seconds that ``finish`` may take."""

    @property
    def is_done(self) -> bool:
        """Whether everything is done that was received and may be handled."""

    @property
    def look_at(self) -> float:
        """When it is time to ``look``."""

    async def begin(self, processing: "Processing") -> None:
        """Read alone from the consumer. Raises if it cannot be read from."""

    def look(self) -> None:
        """Do what is due, without waiting. Called after each read."""

    async def settle(self) -> None:
        """Have all count that is done."""

    async def finish(self) -> None:
        """As ``settle``, for the last time: what is not done will not be done here."""

    def end(self, *, failed: bool) -> None:
        """Give the consumer back. ``failed``: it is not alive until something else reads from it."""


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

    settings: ProcessSettings
    _queue: Workload = field(repr=False)
    _run: RunState = field(repr=False)
    _feed: Feed = field(repr=False)
    _handling: Handling = field(repr=False)
    _settlement: Settlement = field(repr=False)
    _warned: _Warned = field(factory=_Warned, init=False, repr=False)
    _resumed_at: float = field(default=-inf, init=False, repr=False)
    """When handlers could begin again after a time in which none ran because none was to begin."""

    # --- for the body ----------------------------------------------------------------------------------------------------------

    def statistics(self) -> ProcessingStatistics:
        """Return one frozen snapshot of the processing."""
        work, counts, now = self._queue, self._handling.counts, self._run.clock()
        progress = self._handling.progress
        ahead = Ahead() if progress is None else progress.ahead()
        oldest, retrying, held_up, barrier = work.oldest, work.retrying, work.lanes.held_up, self._handling.barrier
        delays, ours = work.lanes.delays, self._handling.running(lambda item: not item.part.gone)  # others are not held
        delayed, until = (0, {}) if delays is None else (delays.records, delays.until())
        age = now - oldest[2] if oldest is not None else 0.0
        return ProcessingStatistics(
            running=self._handling.running(),
            waiting=max(0, work.held - ours - retrying - delayed),
            retrying=retrying,
            delayed=delayed,
            delayed_until=until,
            held_up=held_up.records,
            held_up_bytes=held_up.bytes,
            full=work.full,
            far_ahead=ahead.far_ahead,
            lanes=ahead.lanes,
            oldest_age=age,
            oldest=(*oldest[0], oldest[1]) if oldest is not None else None,
            stalled=self.stalled,
            done_ahead=ahead.done_ahead,
            handled=work.settled - counts.skipped - counts.dead_letters - counts.redelivered - counts.released,
            attempts=counts.attempts,
            failures=counts.failures,
            skipped=counts.skipped,
            dead_letters=counts.dead_letters,
            redelivered=counts.redelivered,
            breaker=None if barrier is None or barrier.circuit is None else barrier.circuit.state.value,
            breaker_opened=0 if barrier is None or barrier.circuit is None else barrier.circuit.opened,
            late_results=work.late_results + len(counts.late_threads),
            seconds_in_queue=counts.seconds_in_queue,
            seconds_in_handlers=counts.seconds_in_handlers,
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return ``statistics`` as a group of metrics. From any thread."""
        return {PROCESSING: self.statistics().metrics()}

    def pause(self) -> None:
        """Start no more handlers, and read no records, until ``resume``. Running handlers go on, and so does the membership."""
        self._run.holding = True
        self._handling.halt()
        self._feed.interrupt()

    def resume(self) -> None:
        """Go on after ``pause`` or ``drain``."""
        if self._run.ending:
            return
        self._go_on(holding=False)

    def _go_on(self, *, holding: bool) -> None:
        """Let handlers begin again, and read unless ``holding``."""
        if self._rests:
            self._resumed_at = self._run.clock()
        self._run.holding = holding
        self._handling.halt(halted=False)
        self._feed.interrupt()

    async def drain(self) -> None:
        """Read no more until ``resume``, wait until everything that was received is done, retries included, and commit that.
        From then on no handler starts until ``resume``.

        Records of partitions that are paused (``consumer.pause``) are not waited for, nor those that stand behind them in a lane
        that several partitions share, nor those that are not due (``not_before``).
        """
        if self._run.ending:
            self._run.holding = True
            self._feed.interrupt()
        else:
            self._go_on(holding=True)
        run, feed, settlement, before = self._run, self._feed, self._settlement, self._run.drained

        def drained() -> bool:
            # For every drain that waited as the first of them returned, all was done then. By now more may be due.
            # After a ``resume`` meanwhile there is always a read that asks.
            return run.drained > before or (settlement.is_done and not (run.holding and feed.asking)) or run.ending

        await run.until(drained)
        if run.drained == before:  # else the first of them did this, and another drain may have begun since
            run.drained += 1
            if run.holding:
                self._handling.halt()  # what was not waited for, such as records that become due, begins after ``resume``
        await self._settlement.settle()

    def stop(self) -> None:
        """Make ``wait`` return. Running handlers are drained when the block is left."""
        self._run.finished.set()

    async def wait(self) -> None:
        """Wait until ``stop`` is called, here or on the consumer, or until processing fails, which leaving the block raises."""
        await self._run.finished.wait()

    def abort(self) -> None:
        """As ``stop``, but running handlers are cancelled now instead of drained. What is done is still committed."""
        self._run.finished.set()
        self._handling.halt()
        self._handling.cancel()

    @property
    def over(self) -> bool:
        """The consumer was given back, and may be read from (for the consumer)."""
        return self._run.over

    @property
    def failed(self) -> bool:
        """Processing has failed: nothing more is begun (for the consumer)."""
        return self._run.failure is not None

    @property
    def failed_for_good(self) -> bool:
        """It has failed and does not drain: who restarts the program meanwhile would interrupt handlers (for the consumer)."""
        return self.failed and (self._run.ended or not self._run.finishing)

    @property
    def stalled(self) -> bool:
        """Whether a record has been unfinished for longer than ``stalled_after_ms``. From any thread."""
        busiest = self._busiest
        return busiest is not None and self._run.clock() - busiest[2] >= self.settings.stalled_after

    # --- life ------------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._run.tasks is not None:
            raise IllegalStateError("this processing was already started; make a new one")
        await self._settlement.begin(self)
        run = self._run
        run.tasks = tasks = tasks_here(self._fail, self._swept)

        def ended() -> bool:
            return run.ended

        for _ in range(self.settings.concurrency):
            self._handling.add_worker(tasks, ended)
        run.errands += [tasks.start(self._keep_reading, ended), tasks.start(self._keep_time, ended, lookout=True)]
        if self._handling.uses_threads:
            run.errands.append(tasks.start(self._handling.look, ended))
        return self

    def _fail(self, error: BaseException) -> None:
        """A task has failed, which ends it all."""
        self._run.fail(error)
        self._handling.take_back()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        tasks = self._run.tasks
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
                    self._run.trace(Fault(now=self._run.clock(), text=text))
            finally:
                self._handling.close()
                self._end_outages()
                self._settlement.end(failed=self.failed)
        if self._run.failure is not None and (exc is None or swallowed):
            raise self._run.failure
        return swallowed

    def _end(self) -> None:
        """End every task."""
        self._run.ended = True
        self._handling.end()
        for running in self._run.errands:
            running.cancel()
        self._run.rest()

    def _end_outages(self) -> None:
        """What fails is not needed any more. Whatever handles the consumer's records next has outages of its own."""
        for outage in (BREAKER, _FULL, NO_THREADS):
            self._run.trace(Recovered(now=self._run.clock(), outage=outage, needed=False))

    def _swept(self) -> None:
        """All tasks were cancelled, which is how some programs shut down, perhaps without leaving the block."""
        self._run.finished.set()
        self._handling.halt()
        if self._run.tasks is not None:
            self._run.tasks.start(self._end_alone)

    async def _end_alone(self) -> None:
        try:
            await self.finish(inf)
        finally:
            self._end()

    async def finish(self, seconds: float) -> None:
        """Begin nothing more, drain running handlers for ``seconds`` at most, and commit. A second call waits for the first.

        A handler may call it: what the handler holds is not waited for, and not done.
        """
        run = self._run
        run.finished.set()
        self._handling.stops()
        if run.finishing:
            run.change()
        elif run.tasks is None:  # nothing has begun yet
            await self._finish(seconds)
        else:
            run.finishing = run.holding = True
            # In a task of its own: whoever calls may be cancelled, and everybody else would wait for it in vain.
            run.tasks.start(partial(self._finish, seconds))
        with move_on_after(seconds):
            await run.until(lambda: run.ended)

    async def _finish(self, seconds: float) -> None:
        try:
            await self._drain_and_settle(seconds)
        finally:
            self._run.ended = True
            self._run.change()

    async def _drain_and_settle(self, seconds: float) -> None:
        run, queue, handling = self._run, self._queue, self._handling
        until = run.clock() + seconds
        run.finishing = run.holding = True
        handling.halt()
        self._feed.interrupt()
        with move_on_after(min(seconds * DRAINING, self.settings.drain_timeout)):
            await run.until(lambda: queue.running <= handling.stopping(perhaps=True))
            with move_on_after(OWN_STOP):
                await run.until(lambda: queue.running <= handling.stopping())
        handling.give_way()
        handling.cancel()
        with move_on_after(min(max(0.0, until - run.clock()) / 2, UNWINDING)):
            await run.until(lambda: queue.running <= handling.stopping())
        with move_on_after(min(max(0.0, until - run.clock()), self._settlement.last)):
            await self._settlement.finish()

    # --- reading ---------------------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        run = self._run
        while not run.ended:
            if not await self._feed.try_to_read(self._settlement.look_at):
                run.finished.set()
                await run.until(lambda: run.ended)
                return
            self._settlement.look()

    # --- time ------------------------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        """Handle records whose time has come, and report those that take too long."""
        run, bench, progress = self._run, self._feed.bench, self._handling.progress
        while not run.ended:
            now = run.clock()
            look_at = self._feed.look(now)
            barrier = self._handling.barrier
            admits = barrier is None or not barrier.shut  # asked each time: only that ends a time that is over
            if barrier is not None and barrier.is_down and self._queue.lanes.some_ready:
                ready, due_at = admits, barrier.due_at  # a record that has not failed yet tells more than one that has
            else:
                ready = self._queue.expire(now) and admits
                due_at = min(self._queue.due_at or inf, inf if barrier is None else barrier.due_at)
            self._look_for_room(now)
            due_at = min(due_at, self._look_for_stalls(now), look_at)
            if run.halted:
                self._handling.take_back()
            if self._handling.doubtful:
                due_at = now + LOOK_AGAIN
                if progress is None or progress.holds(now):
                    bench.wake()
            elif ready:
                bench.wake(1)  # mostly there is one; the worker that begins it wakes others if there are more
            await run.wait(due_at - now)

    def _look_for_room(self, now: float) -> None:
        """Report that no more is read because of what later attempts hold up, and the end of that."""
        full, before = self._queue.full, self._warned.full
        self._warned.full = full
        if full and not before:
            text = f"{self._queue.lanes.held_up.records} records wait for later attempts or behind them, which is the limit"
            self._run.trace(Fault(now=now, text=f"{text}: no more is read of their partitions", outage=_FULL))
        elif before and not full:
            self._run.trace(Recovered(now=now, outage=_FULL))
            self._feed.interrupt()

    @property
    def _busiest(self) -> Unfinished | None:
        """The record that has kept us busy the longest, and since when. From any thread.

        Until ``resume`` records are meant to wait, so none does unless a handler still runs.
        """
        if self._rests:
            return None
        oldest, barrier = self._queue.oldest, self._handling.barrier
        found = oldest if barrier is None else barrier.busiest(oldest)
        return None if found is None else (found[0], found[1], max(found[2], self._resumed_at))

    @property
    def _rests(self) -> bool:
        """Whether no handler runs, and none begins before ``resume``. From any thread."""
        return self._run.holding and self._run.halted and not self._handling.running()

    def _look_for_stalls(self, now: float) -> float:
        """Warn, once, about a record that has been unfinished for too long. Return when to look again."""
        limit, busiest = self.settings.stalled_after, self._busiest
        if busiest is None:
            self._warned.stalled = None
            return now + limit
        partition, offset, since = busiest
        if now - since < limit:
            return since + limit
        if self._warned.stalled != (partition, offset):
            self._warned.stalled = (partition, offset)
            text = f"{at_offset(*partition, offset)} has been unfinished for {now - since:.0f} s"
            self._run.trace(Fault(now=now, text=f"{text}: {self._settlement.consequence}"))
        return now + limit
