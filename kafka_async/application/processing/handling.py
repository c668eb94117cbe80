"""The workers: they take the next record that is ready and call the handler.

There is no task for each record, and each worker begins one record at a time.

If the session may have expired, nothing is begun until it is known that it has not, just as reads return nothing then. Workers
check this each time after others could run, so also after the process was frozen.

A worker's task ends only when we end it. A cancellation from anywhere else is the failure of the record whose handler it reached.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from inspect import isawaitable
from itertools import dropwhile
from math import inf
from typing import TYPE_CHECKING, Any, Final

from anyio import get_cancelled_exc_class, get_current_task, sleep

from ...errors import LONGEST_REASON, ProcessingError, shown
from ...functions import finished, is_async, takes_context
from ...model import OffsetAndMetadata, TopicPartition, at_offset
from ...network.waiting import pause, running_loop
from ...trace import COMES_AGAIN, STOP, Fault, RecordFailed, Recovered, attempted
from ...values import define, field
from .attempts import Unit
from .context import ProcessingContext
from .contexts import Changes, anew, called_in, put, set_since, untouched_size
from .feed import Feed
from .handler_threads import LOOK, HandlerThreads, Outcome, Stint
from .items import Item, Pack, Record
from .limits import Barrier
from .process_settings import ProcessSettings
from .queues import Fate, Queue
from .redelivery import Redelivered
from .retry import FINAL, KEPT, Blame, MaybeElsewhere, Reject, Skip, blame, check_return, decided
from .run_state import Bench, RunState
from .tasks import Running, Tasks, is_thrown_away
from .threads import Threads

if TYPE_CHECKING:
    from .progress import Progress

TURN: Final = 0.02
"""Seconds for which handlers that never wait may go on, all workers together, without letting others run on the event loop."""

NO_THREADS: Final = "threads for handlers"
"""The outage while every thread that there may be is at work on something whose time is over."""
ALONE: Final = 0.1
"""Seconds for which threads go on by themselves after the event loop has seen that the session lasts."""


_WORKER: Final[ContextVar["Slot | None"]] = ContextVar("kafka_async worker", default=None)
"""The worker whose handler runs here: tasks and threads that a handler starts have it too."""


@define(eq=False)
class Rest:
    """What is left of a pack whose records are given up one after the other."""

    pack: Pack
    errors: Mapping[Item, BaseException]
    given_up: Collection[Item]
    """Those that are not tried again."""

    def leaves(self, item: Item) -> bool:
        """Whether the record would only be tried again, which others do as soon as they have its partition."""
        return not item.part.live and item not in self.given_up


@define(eq=False)
class Slot:
    """One worker."""

    unit: Unit | None = None
    """The unit that it handles."""
    rest: Rest | None = None
    """What waits until that unit, which was part of the same pack, is dealt with."""
    context: ProcessingContext | None = None
    running: Running | None = None
    """Its task."""
    inside: Context = field(factory=Context)
    """The context variables of the attempt that has failed."""
    stint: Stint | None = None
    """What a thread does for it, which goes on with other units by itself."""
    task: int = 0
    """The number of its task."""
    stops: bool = False
    """The handler that it runs is waiting for ``stop``."""
    asks: bool = False
    """A task or a thread of a handler of its has called ``stop``, for which the handler may be waiting."""

    @property
    def under_way(self) -> Unit | None:
        """The unit that is being handled."""
        return self.unit if self.stint is None else self.stint.unit

    @property
    def items(self) -> list[Item]:
        """The records that it holds: of the unit under way, and of what waits for that. From any thread."""
        unit, rest = self.under_way, self.rest
        return [*(() if unit is None else unit.items), *(() if rest is None else rest.pack.items)]

    def cancel(self, unit: Unit | None = None) -> None:
        """End what it does, or only this unit if it is still under way and not cancelled yet; the record is not done."""
        if unit is not None and self.cancelled:
            return  # a handler that cleans up is not cancelled once more
        if self.stint is not None and not self.stint.give_up(unit):
            return  # the thread works on another one by now
        if self.context is not None:
            self.context.cancelled = True
        if self.running is not None:
            self.running.cancel()

    @property
    def cancelled(self) -> bool:
        return self.running is not None and self.running.cancelled


@define(eq=False)
class HandlerCounts:
    """What the workers did so far. Times are seconds."""

    attempts: int = 0
    """BackgroundCalls of the handler that have ended."""
    failures: int = 0
    skipped: int = 0
    dead_letters: int = 0
    redelivered: int = 0
    released: int = 0
    """Given back to be handled by any member of a share group."""
    seconds_in_queue: float = 0.0
    seconds_in_handlers: float = 0.0
    late_threads: deque[None] = field(factory=deque)
    """One for each thread that ended after its result had ceased to count; threads append to it."""


@define(eq=False)
class Handling:
    """BackgroundCalls the handler for what is ready, with as many workers as ``concurrency``."""

    handler: Callable[..., Any]
    settings: ProcessSettings
    queue: Queue
    run: RunState = field(repr=False)
    feed: Feed = field(repr=False)
    progress: "Progress | None" = field(repr=False)
    """What is known of partitions; ``None``: records are done one by one, and that is all."""
    barrier: Barrier | None = field(default=None, repr=False)
    """The queue, if there are limits."""
    counts: HandlerCounts = field(factory=HandlerCounts, init=False)
    doubtful: bool = field(default=False, init=False)
    """Nothing is begun: what was received may belong to others by now."""
    _slots: list[Slot] = field(factory=list, init=False)
    _bench: Bench = field(init=False, repr=False)
    _handler_threads: HandlerThreads | None = field(default=None, init=False)
    """What the threads of a plain handler share."""
    _threads: Threads = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._bench = self.feed.bench
        # As many as there are workers, and as many again that may be left behind.
        self._threads = Threads(2 * self.settings.concurrency, self._threads_freed)
        # With a timeout each call is waited for on the event loop, which has the clock that ends it.
        if not is_async(self.handler) and self.settings.timeout is None:
            enough, with_context = (self.settings.concurrency + 1) // 2, takes_context(self.handler)
            self._handler_threads = HandlerThreads(self, self.run.clock, self.counts.late_threads, enough, with_context)

    # --- from outside ----------------------------------------------------------------------------------------------------------

    def halt(self, *, halted: bool = True) -> None:
        """Begin nothing more, or go on."""
        self.run.halted = halted
        if halted:
            self.take_back()
        else:
            self._bench.wake()

    def cancel(self, concerns: Callable[[Item], bool] = lambda item: True) -> None:
        """Cancel the handlers of the records that this concerns, but for one that waits for its own ``stop``."""
        for slot in self._slots:
            unit = slot.under_way
            if unit is None or slot.stops:
                continue
            if any(map(concerns, unit.items)):
                slot.cancel(unit)
            else:  # a call for another record is none of theirs
                self._part_with(slot, concerns)

    def leave(self) -> None:
        """Partitions are leaving: whoever has them next need not wait for what would only be tried again."""
        for slot in self._slots:
            if slot.rest is not None:
                self._part_with(slot, slot.rest.leaves)

    def under_way(self) -> set[Any]:
        """Return the records that are being handled."""
        return {item.record for slot in self._slots for item in slot.items}

    def take_in_ended(self) -> set[Any]:
        """Take in results, and return the other records that are being handled; one that ends meanwhile is among these.

        Threads go on: asked only afterwards, it would be neither done nor under way.
        """
        before = self.under_way()
        self.take_in()
        return before | self.under_way()

    def stops(self) -> None:
        """This task stops the processing. If it is one of the workers, nobody waits for its handler, which waits for them.

        If it belongs to a handler, by ``asyncio.wait_for`` or from a thread, that may wait for it as well.
        """
        caller, worker = get_current_task().id, _WORKER.get()
        for slot in self._slots:
            slot.stops |= slot.task == caller
            slot.asks |= slot is worker

    def stopping(self, concerns: Callable[[Item], bool] = lambda item: True, *, perhaps: bool = False) -> int:
        """Return how many of the records that this concerns are held by handlers that wait for ``stop``, or ``perhaps`` do."""
        slots = [slot for slot in self._slots if slot.stops or (perhaps and slot.asks)]
        return sum(concerns(item) for slot in slots for item in slot.items)

    def give_way(self) -> None:
        """Handlers that may be waiting for ``stop`` are waited for no longer."""
        for slot in self._slots:
            slot.stops |= slot.asks

    def cancel_gone(self) -> None:
        """Cancel handlers all of whose records belong to another member by now."""
        for slot in self._slots:
            unit = slot.under_way
            self._part_with(slot, lambda item: item.part.gone)
            if unit is not None and all(item.part.gone for item in unit.items):
                slot.cancel(unit)

    def end(self) -> None:
        """End the workers, whatever they do."""
        self.run.halted = True
        self.take_back()
        for slot in self._slots:
            slot.cancel()

    def close(self) -> None:
        """End the threads that are idle; say which go on."""
        self._threads.close()
        if self._threads.left:
            text = f"{self._threads.left} threads go on with plain functions whose time is over; their results will not count"
            self.run.trace(Fault(now=self.run.clock(), text=text))

    @property
    def uses_threads(self) -> bool:
        """Whether threads go on by themselves, so that somebody has to ``look`` at their results."""
        return self._handler_threads is not None

    @property
    def laid_out(self) -> int:
        """Records that threads may begin by themselves, and have not begun."""
        handler_threads = self._handler_threads
        return 0 if handler_threads is None else sum(len(unit.items) for unit in tuple(handler_threads.laid_out))

    def running(self, concerns: Callable[[Item], bool] = lambda item: True) -> int:
        """Return how many of the records that this concerns have handlers that run. From any thread.

        A thread goes on with another record before the event loop learns how the last one ended, so the loop counts more.
        """
        return sum(concerns(item) for slot in tuple(self._slots) for item in slot.items)

    def _progressed(self) -> None:
        """A unit was handled, or given up."""
        if self.run.waiting:
            self.run.change()
        if self.queue.held - self.queue.lanes.held_up.records <= self.feed.refill_below:
            self.feed.refill()

    def _fail(self, error: BaseException) -> None:
        """End all with this error."""
        self.run.fail(error)
        self.take_back()

    def take_back(self) -> None:
        """Put what was laid out for threads back among what is ready, in the same order."""
        if self._handler_threads is None:
            return
        units = []
        while (unit := self._handler_threads.next()) is not None:
            units.append(unit)
        now = self.run.clock()
        for unit in reversed(units):
            self.queue.interrupted(unit, now)

    # --- workers ---------------------------------------------------------------------------------------------------------------

    def add_worker(self, tasks: Tasks, until: Callable[[], bool]) -> None:
        """Start a worker."""
        slot = Slot()
        self._slots.append(slot)
        slot.running = tasks.start(partial(self._work, slot), until)

    async def _work(self, slot: Slot) -> None:
        """Work until cancelled."""
        running, handler_threads = slot.running, self._handler_threads
        assert running is not None  # noqa: S101 - its task runs
        slot.task = get_current_task().id
        _WORKER.set(slot)
        try:
            if handler_threads is None:
                await called_in(copy_context(), self._serve, slot, self._invoker(slot), running.disturbances)
            else:
                await self._serve_on_threads(slot, handler_threads, running.disturbances)
        finally:
            slot.unit = slot.rest = slot.context = slot.stint = None
            slot.stops = False
            self._progressed()

    async def _serve(self, slot: Slot, invoke: Callable[[Unit], Awaitable[Any]], disturbances: Callable[[], int]) -> None:
        """Handle what is ready, until cancelled."""
        run, feed, counts, work, bench = self.run, self.feed, self.counts, self.queue, self._bench
        clock, direct, turns, held_up = run.clock, self._direct, work.lanes.turns, work.lanes.held_up
        inside, untouched = await anew(), untouched_size(_WORKER)
        alone = self.settings.batch is None
        take, succeeded = self._taking, work.succeeded if alone else work.pack_succeeded
        now = clock()
        while True:
            unit = None if run.halted or self.doubtful else take()
            if unit is None:
                now = await self._wait_for_more()
                continue
            slot.unit = unit
            if turns and not bench.rising:  # mostly some are, if handlers never wait: a call would cost more than the question
                bench.wake_more()
            counts.seconds_in_queue += now - unit.waits_since
            try:
                result = await (invoke(unit) if direct is None or unit.error is not None else direct(unit.record))
                if result is not None or len(inside) != untouched:
                    inside = await _anew_after(result)
            except BaseException as error:
                counts.seconds_in_handlers += clock() - now
                slot.inside, inside = inside, await anew()
                await self._failed(slot, unit, error)
                now = clock()
            else:
                began, now = now, clock()
                counts.seconds_in_handlers += now - began
                counts.attempts += 1
                succeeded(unit, now)
            slot.unit = slot.context = None
            if disturbances():
                return  # the cancellation was meant for this unit, which ended nevertheless, and must not reach the next one
            if run.waiting or work.held - held_up.records <= feed.refill_below:
                self._progressed()
            if now >= bench.turn_ends:
                now = await self._next_turn()

    async def _serve_on_threads(self, slot: Slot, handler_threads: HandlerThreads, disturbances: Callable[[], int]) -> None:
        """As ``_serve``, on a thread, which goes on with other units by itself for as long as they are laid out for it."""
        handler_threads.open()
        while True:
            unit = self._next(handler_threads) if self._may_begin() else None
            if unit is None:
                await self._wait_for_more()
                continue
            if self._is_more(handler_threads):
                self._bench.wake_more()
            slot.stint = stint = Stint(unit)
            self._lay_out(handler_threads)
            try:
                outcome = await self._outcome_of(slot, handler_threads, stint)
            except BaseException as error:
                stint.give_up()
                if stint.unit is None:  # cancelled between two units
                    self.take_in()  # the thread leaves it to the worker to look at its last result
                    raise
                await self._stint_failed(slot, stint.unit, error)
            else:
                if outcome is not None:
                    await self._stint_ended(slot, outcome)
            slot.unit = slot.stint = None
            if disturbances():
                return
            self.take_in()

    async def _outcome_of(self, slot: Slot, handler_threads: HandlerThreads, stint: Stint) -> Outcome | None:
        """Let a thread work, and await what a plain function returned, such as a lambda around a coroutine function."""
        outcome: Outcome | None = await self._on_thread(lambda: stint.unit, "its handler", handler_threads.work, stint)
        if outcome is not None:
            slot.inside = copy_context()
            slot.inside.run(put, outcome.changes)
            if outcome.awaitable is not None:
                try:
                    check_return(await called_in(slot.inside, _awaited, outcome.awaitable))
                except BaseException as error:
                    stint.give_up()
                    # In no variable: the error would hold this frame, and the frame the error, until the collector finds them.
                    return outcome._replace(error=error, ended=self.run.clock())
                return outcome._replace(ended=self.run.clock())
        return outcome

    def _next(self, handler_threads: HandlerThreads) -> Unit | None:
        """Return a unit that was laid out and may still be handled, else the next one that is ready."""
        while (unit := handler_threads.next()) is not None:
            if self.queue.is_open(unit):
                return unit
            self.queue.interrupted(unit, self.run.clock())  # it was lost meanwhile
        return self._take()

    def _is_more(self, handler_threads: HandlerThreads) -> bool:
        """Whether there is something for another worker.

        A worker that was woken rests once more if the turn ended before it could begin. What was laid out while it did not rest
        would wait for the handlers that run by then, which may take for ever.
        """
        return bool(self.queue.lanes.turns or handler_threads.laid_out)

    def _take(self) -> Unit | None:
        unit: Unit | None = self.queue.take() if self.settings.batch is None else self.queue.take_pack()
        return unit

    @property
    def _taking(self) -> Callable[[], Any]:
        """The function that returns what is handled next, with as little in between as possible."""
        if not is_async(self.handler):
            return lambda: self._take() if self._may_begin() else None
        return self.queue.take if self.settings.batch is None else self.queue.take_pack

    def _may_begin(self) -> bool:
        """Whether a plain handler may begin."""
        if self.run.halted or self.doubtful:
            return False
        if self._threads.used_up:
            text = (
                f"all {self._threads.most} threads go on with plain functions whose time is over; no handler begins until one ends"
            )
            self.run.trace(Fault(now=self.run.clock(), text=text, outage=NO_THREADS))
            return False
        return True

    def _threads_freed(self) -> None:
        self.run.trace(Recovered(now=self.run.clock(), outage=NO_THREADS))
        self._bench.wake()

    async def _on_thread(self, unit: Callable[[], Unit | None], what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a plain function on a thread. If it is left behind, and is the first one that goes on, say so."""

        def left() -> None:
            if self._threads.left == 1 and (given_up := unit()) is not None:
                record = given_up.items[0].record
                where = at_offset(record.topic, record.partition, record.offset)
                text = "threads cannot be ended, so it is left to itself, and its result will not count"
                self.run.trace(Fault(now=self.run.clock(), text=f"{where}: {what} goes on though its time is over; {text}"))

        return await self._threads.run(function, *arguments, left=left)

    def _lay_out(self, handler_threads: HandlerThreads) -> None:
        """While every worker is busy, lay out two units for each, which threads begin by themselves."""
        enough = 2 * self.settings.concurrency
        while len(handler_threads.laid_out) < enough and not (self.run.halted or self.doubtful or self._bench.resting):
            unit = self._take()
            if unit is None and self.feed.refill_below >= 0:
                self.feed.refill()
                unit = self._take()
            if unit is None:
                return
            handler_threads.laid_out.append(unit)

    async def look(self) -> None:
        """Take in results of threads every so often, as long as there are any; until cancelled."""
        handler_threads = self._handler_threads
        assert handler_threads is not None  # noqa: S101 - ``uses_threads``
        while True:
            await handler_threads.signal.wait(handler_threads.signal.ticket(), inf)
            while handler_threads.looking:
                await sleep(LOOK)
                handler_threads.looking = False  # first: a thread that has a result from now on announces it
                self.take_in()

    def take_in(self) -> None:
        """Take in the results of the threads."""
        handler_threads = self._handler_threads
        if handler_threads is None:
            return
        now, results = self.run.clock(), handler_threads.results()
        if results and not handler_threads.looking:
            handler_threads.looking = True
            handler_threads.signal.wake()
        for result in results:
            if isinstance(result, Outcome):
                self._count(result)
                self._succeeded(result.unit, now)
            else:
                self.queue.interrupted(result, now)
        self._progressed()
        self._begin_turn(now)
        handler_threads.turn_ends = 0.0 if self.run.halted or self.doubtful else now + ALONE
        self._lay_out(handler_threads)
        if self._is_more(handler_threads):
            self._bench.wake_more()

    def _succeeded(self, unit: Unit, now: float) -> None:
        if isinstance(unit, Item):
            self.queue.succeeded(unit, now)
        else:
            self.queue.pack_succeeded(unit, now)

    def _count(self, outcome: Outcome) -> None:
        counts = self.counts
        counts.attempts += outcome.error is None  # others are counted as they are dealt with
        counts.seconds_in_queue += outcome.began - outcome.unit.waits_since
        if isinstance(outcome.unit, Pack):
            counts.seconds_in_queue += outcome.unit.waited_behind_first(outcome.began)
        counts.seconds_in_handlers += outcome.ended - outcome.began

    async def _stint_ended(self, slot: Slot, outcome: Outcome) -> None:
        """Deal with the unit at which a thread stopped."""
        self._count(outcome)
        if outcome.error is not None:
            await self._stint_failed(slot, outcome.unit, outcome.error)
        else:
            self._succeeded(outcome.unit, self.run.clock())

    async def _stint_failed(self, slot: Slot, unit: Unit, error: BaseException) -> None:
        slot.unit, slot.stint = unit, None  # the thread is done with it
        await self._failed(slot, unit, error)

    async def _wait_for_more(self) -> float:
        """Return, with the time, when something may be ready."""
        used_up = (self._threads.used_up and not is_async(self.handler)) or (self.barrier is not None and self.barrier.shut)
        if self.feed.refill_below >= 0 and not (self.run.halted or self.doubtful or used_up):
            self.feed.refill()
            if self.queue.lanes.some_ready:
                return self.run.clock()
        await self._bench.rest()
        return await self._next_turn()

    async def _next_turn(self) -> float:
        """Return, with the time, when workers may go on: if their turn is over, others on the event loop run first.

        One worker lets them, and begins the next turn. The others rest, until there is more to do than those that work can.
        """
        bench = self._bench
        while (now := self.run.clock()) >= bench.turn_ends:
            if bench.turning:
                await bench.rest()
                continue
            bench.turning = True
            try:
                await pause()
            finally:
                bench.turning = False
                self._begin_turn(self.run.clock())
        return now

    def _begin_turn(self, now: float) -> None:
        self._bench.turn_ends = now + TURN
        before, self.doubtful = self.doubtful, self.progress is not None and not self.progress.holds(now)
        if self.doubtful and not before:
            self.run.change()

    # --- calling ---------------------------------------------------------------------------------------------------------------

    def _invoker(self, slot: Slot) -> Callable[[Unit], Awaitable[Any]]:
        """Return the function that calls the handler, with as little in between as possible."""
        handler, timeout, running = self.handler, self.settings.timeout, slot.running
        with_context = takes_context(handler)
        call: Callable[[Unit], Awaitable[Any]]
        if not is_async(handler):
            call = partial(self._call_in_thread, slot, with_context)
        elif with_context:
            call = partial(self._call_with_context, slot)
        elif self.settings.batch is None:
            call = self._call_plainly
        else:
            call = self._call_with_list
        if self.settings.batch is not None:
            call = partial(self._call_counted, call)
        return call if timeout is None or running is None else partial(self._call_in_time, slot, running.limit, timeout, call)

    @property
    def _direct(self) -> Callable[[Record], Awaitable[Any]] | None:
        """The handler itself, if workers can call it directly."""
        plain = is_async(self.handler) and not takes_context(self.handler)
        return self.handler if plain and self.settings.batch is None and self.settings.timeout is None else None

    def _call_counted(self, call: Callable[[Unit], Awaitable[Any]], unit: Unit) -> Awaitable[Any]:
        """Call, and count how long records of a pack have waited; whoever takes a unit counts the first one."""
        assert isinstance(unit, Pack)  # noqa: S101 - with ``batch`` there is nothing else
        self.counts.seconds_in_queue += unit.waited_behind_first(self.run.clock())
        return call(unit)

    def _call_plainly(self, unit: Unit) -> Awaitable[Any]:
        assert isinstance(unit, Item)  # noqa: S101 - without ``batch`` there are no packs
        if unit.error is not None:
            raise unit.error
        result: Awaitable[Any] = self.handler(unit.record)
        return result

    def _call_with_list(self, unit: Unit) -> Awaitable[Any]:
        result: Awaitable[Any] = self.handler(_argument(unit, self.settings.batch))
        return result

    def _call_with_context(self, slot: Slot, unit: Unit) -> Awaitable[Any]:
        slot.context = self._context(unit)
        result: Awaitable[Any] = self.handler(_argument(unit, self.settings.batch), slot.context)
        return result

    def call(self, unit: Unit, context: ProcessingContext | None) -> Any:
        """Call the handler (for a thread)."""
        alone = isinstance(unit, Item) and unit.error is None and self.settings.batch is None
        argument = unit.record if alone else _argument(unit, self.settings.batch)  # type: ignore[union-attr]  # it is an Item
        return self.handler(argument) if context is None else self.handler(argument, context)

    def context_on_thread(self, unit: Unit) -> ProcessingContext:
        """Return the handler's context (for a thread)."""
        return self._context(unit, in_thread=True)

    def is_open(self, unit: Unit) -> bool:
        """Whether the unit may still be handled (for a thread)."""
        return self.queue.is_open(unit)

    async def _call_in_thread(self, slot: Slot, with_context: bool, unit: Unit) -> None:
        slot.context = context = self._context(unit, in_thread=True)
        arguments = (_argument(unit, self.settings.batch), context) if with_context else (_argument(unit, self.settings.batch),)
        changes: Changes = []
        try:
            result = await self._on_thread(lambda: unit, "its handler", self._in_thread, context, arguments, changes)
        finally:
            put(changes)
        if isawaitable(result):  # a plain function that returns a coroutine, such as a lambda
            result = await result
        check_return(result)

    def _in_thread(self, context: ProcessingContext, arguments: tuple[Any, ...], changes: Changes) -> Any:
        inside = copy_context()
        try:
            return inside.run(self.handler, *arguments)
        finally:
            changes += set_since(copy_context(), inside)
            if context.cancelled:
                self.counts.late_threads.append(None)

    async def _call_in_time(
        self,
        slot: Slot,
        limit: Callable[[float], AbstractContextManager[Any]],
        timeout: float,
        call: Callable[[Unit], Awaitable[Any]],
        unit: Unit,
    ) -> None:
        try:
            with limit(timeout):
                await call(unit)
        except TimeoutError:
            if slot.context is not None:
                slot.context.cancelled = True
            raise

    def _context(self, unit: Unit, *, in_thread: bool = False) -> ProcessingContext:
        def completed(partition: TopicPartition, context: ProcessingContext) -> OffsetAndMetadata | None:
            if self.progress is None:
                return None
            if in_thread and context.cancelled:  # a handler on the event loop that ends all the same still counts
                raise MaybeElsewhere(KEPT, "the time of this call is over: its result does not count")
            return self.progress.completed(partition, unit.items, self.run.clock())

        def completed_for_thread(partition: TopicPartition, context: ProcessingContext) -> OffsetAndMetadata | None:
            return self._threads.ask(completed, partition, context)

        record = unit.items[0].record
        return ProcessingContext(record, unit.attempt, completed_for_thread if in_thread else completed)

    # --- failures --------------------------------------------------------------------------------------------------------------

    async def _failed(self, slot: Slot, unit: Unit, error: BaseException) -> None:
        """Decide what happens to a unit whose handler raised. Raises what ends the worker."""
        record, settings = unit.items[0].record, self.settings
        try:
            await self._settle_failure(slot, unit, error)
        finally:
            if settings.tracing is not None:
                slot.inside.copy().run(settings.tracing.over, record, settings.on_failure)

    async def _settle_failure(self, slot: Slot, unit: Unit, error: BaseException) -> None:
        now = self.run.clock()
        if self._ends_worker(slot, error):
            self.queue.interrupted(unit, now)
            raise error
        refused = any(item.error is not None for item in unit.items)
        self.counts.attempts += not refused
        if not self._is_of_record(error):
            self._stop_amid(slot, unit, error)
            return
        if refused or (told := blame(error)) is None:  # what refused a record is no handler, and knows of no others
            await self._decide(slot, unit, error, refused=refused)
        else:
            await self._blamed(slot, unit, told)

    async def _blamed(self, slot: Slot, unit: Unit, told: Blame) -> None:
        """The handler said which records failed. The others do not share their fate."""
        items, now = tuple(unit.items), self.run.clock()
        if (index := max(told.errors)) >= len(items):
            await self._decide(slot, unit, IndexError(f"Failed({index}, ...): there are only {len(items)} records"))
            return
        if isinstance(unit, Item):
            await self._decide(slot, unit, told.errors[0])
            return
        done = [item for place, item in enumerate(items) if place not in told.errors and told.done(place)]
        again = [item for place, item in enumerate(items) if place not in told.errors and not told.done(place)]
        if done:
            self.queue.pack_succeeded(self.queue.split(unit, done), now)
        if again:
            self.queue.unhandled(unit, again, now)
        if self._is_cancelled(slot):
            self._comes_again(slot, unit, told.errors[min(told.errors)])
            return
        await self._decide_each(slot, unit, {items[place]: decided(told.errors[place]) for place in sorted(told.errors)})

    async def _decide_each(self, slot: Slot, unit: Pack, errors: Mapping[Item, BaseException]) -> None:
        """As ``_decide``, for records of one pack that failed for reasons of their own."""
        first = next(iter(errors.values()))
        try:
            kept = self._kept(unit, errors)
            delays = {item: KEPT if item in kept else self._delay(slot, unit, error) for item, error in errors.items()}
        except BaseException as other:  # the user's delay function
            other.__context__ = first
            self._stop_amid(slot, unit, other, before=first)
            return
        if kept:
            self._begin_no_more()
        given_up = [item for item, delay in delays.items() if delay is None]
        seconds = max((delay for delay in delays.values() if delay is not None), default=0.0)
        if not given_up:
            self._try_each_again(slot, unit, errors, kept, seconds)
        elif len(given_up) == len(errors):
            await self._conclude_each(slot, unit, given_up, errors)
        elif unit.items[0].lane is None:  # what needs no order does not wait until the others are dealt with
            parted = self.queue.split(unit, given_up)
            self._try_each_again(slot, unit, errors, kept, seconds)
            await self._conclude_each(slot, parted, given_up, errors)
        elif await self._conclude_each(slot, unit, given_up, errors):
            self._try_each_again(slot, unit, errors, kept, seconds)

    async def _conclude_each(self, slot: Slot, unit: Pack, given_up: Sequence[Item], errors: Mapping[Item, BaseException]) -> bool:
        """Give up records of a pack, one after the other. Return whether any are left, to be tried again.

        A record keeps its place in the lane until it is its turn. Those that came again without it would be handled at the same
        time as those behind them.
        """
        slot.rest = Rest(unit, errors, given_up)
        try:
            for item in given_up:
                if self._is_cancelled(slot) or slot.rest is None:
                    break
                if item not in unit.items:
                    continue  # it left meanwhile
                slot.rest = slot.rest if len(unit.items) > 1 else None
                slot.unit = part = unit if slot.rest is None else self.queue.split(unit, [item])
                await self._conclude(slot, part, errors[item])
            cancelled = self._is_cancelled(slot)
            self._part_with(slot, lambda item: cancelled or not item.part.live)
            return slot.rest is not None
        except BaseException:
            if slot.rest is not None:
                self.queue.interrupted(unit, self.run.clock())
            raise
        finally:
            slot.rest = None

    def _part_with(self, slot: Slot, leaves: Callable[[Item], bool]) -> None:
        """Let records go that wait until another one of their pack is dealt with: they are handled again, here or elsewhere."""
        rest = slot.rest
        if rest is None or not (items := [item for item in rest.pack.items if leaves(item)]):
            return
        pack = rest.pack
        if len(items) < len(pack.items):
            pack = self.queue.split(pack, items)
        else:
            slot.rest = None
        for item in items:
            self._report(slot, [item], pack.attempt, rest.errors[item], COMES_AGAIN, final=False)
        self._begin_again(pack)
        self.run.change()

    def _try_each_again(
        self, slot: Slot, unit: Pack, errors: Mapping[Item, BaseException], kept: Collection[Item], seconds: float
    ) -> None:
        """Try the records of a pack again, together. ``kept``: those of which it was no attempt."""
        others = [item for item in unit.items if item not in kept]
        for item in others:
            self._count_failure(slot, [item], unit.attempt, errors[item], seconds)
        if kept:
            self._keep_some(unit, others, seconds, calls=len(kept) == len(errors))
        else:
            self._try_again(unit, seconds)

    async def _decide(self, slot: Slot, unit: Unit, error: BaseException, *, refused: bool = False) -> None:
        """Try the records of a unit again, or give them up."""
        error = decided(error)
        if self._is_cancelled(slot) and not isinstance(error, Skip):
            self._comes_again(slot, unit, error)  # what a handler raises as it cleans up is no failure of its record
            return
        if isinstance(error, MaybeElsewhere):
            self._keep(unit)
            return
        try:
            if self.barrier is not None and not refused and self.barrier.failed(unit, error):
                self._keep(unit)
                return
            delay = None if refused else self._delay(slot, unit, error)
        except BaseException as other:  # the user's delay function
            self.counts.failures += len(unit.items)
            other.__context__ = error
            self._stop_amid(slot, unit, other, before=error)
            return
        if delay is None:
            await self._conclude(slot, unit, error)
        else:
            self._count_failure(slot, unit.items, unit.attempt, error, delay)
            self._try_again(unit, delay)

    def _kept(self, unit: Pack, errors: Mapping[Item, BaseException]) -> Collection[Item]:
        """Return which records of one pack are kept as during an outage. Raises what a user's function raises."""
        barrier = self.barrier
        if barrier is None:
            return ()
        covered = [item for item, error in errors.items() if barrier.covers(error)]
        return covered if barrier.failed(unit, errors[next(iter(covered or errors))]) else ()

    def _keep(self, unit: Unit, seconds: float = KEPT, *, calls: int = 1, counts: bool = False) -> None:
        """What handlers depend on is down, or seems to be, or the session: that was no attempt. ``calls``: that do not count.

        ``counts``: it was one of this unit, though not of others in its pack.
        """
        now = self.run.clock()
        self.counts.attempts -= calls
        self.queue.retry(unit, now + seconds, now, counts=counts)
        self._begin_no_more()
        self.run.change()

    def _begin_no_more(self) -> None:
        """If nothing may begin now, that is so for what threads would begin by themselves too."""
        if self.barrier is not None and self.barrier.shut:
            self.take_back()

    def _keep_some(self, unit: Pack, others: Collection[Item], seconds: float, *, calls: int) -> None:
        """As ``_keep``, but of ``others``, which failed for reasons of their own, it was an attempt.

        Records with different numbers of attempts are not handled together. In a lane those behind the first ones stay there.
        """
        counts = False
        if unit.items[0].lane is None:
            if alone := [item for item in unit.items if item in others]:
                self._try_again(self.queue.split(unit, alone), seconds)
        else:
            counts = unit.items[0] in others
            behind = list(dropwhile(lambda item: (item in others) is counts, unit.items))
            for item in behind:
                item.attempt += item in others
            self.queue.unhandled(unit, behind, self.run.clock())
        self._keep(unit, seconds, calls=calls, counts=counts)

    def _delay(self, slot: Slot, unit: Unit, error: BaseException) -> float | None:
        """Return the seconds until the next attempt; ``None``: there is none. Raises what the user's function raises."""
        if isinstance(error, Skip):
            return None
        retry = self.settings.retry_of(unit.items[0].record)
        return slot.inside.copy().run(retry.after, unit.attempt, error)

    def _count_failure(self, slot: Slot, items: Sequence[Item], attempt: int, error: BaseException, seconds: float) -> None:
        self.counts.failures += len(items)
        self._report(slot, items, attempt, error, f"tried again in {round(seconds, 2):g} s", final=False)

    def _try_again(self, unit: Unit, seconds: float) -> None:
        now = self.run.clock()
        if self.queue.retry(unit, now + seconds, now):
            self.run.change()

    async def _conclude(self, slot: Slot, unit: Unit, error: BaseException) -> None:
        """There is no other attempt."""
        if isinstance(error, Skip):
            self._skipped(slot, unit, error, Fate.DONE)
        else:
            self.counts.failures += len(unit.items)
            if self._keeps_ours(slot, unit, error):
                await self._give_up(slot, unit, error)

    def _keeps_ours(self, slot: Slot, unit: Unit, error: BaseException) -> bool:
        """Leave what is not ours any more to whoever has it now. Return whether anything remains."""
        gone = [item for item in unit.items if item.part.gone]
        if gone and isinstance(unit, Pack) and len(gone) < len(unit.items):
            self._comes_again(slot, self.queue.split(unit, gone), error)
        elif gone:
            self._comes_again(slot, unit, error)
            return False
        return True

    async def _give_up(self, slot: Slot, unit: Unit, error: BaseException) -> None:
        """No more attempts: do what ``on_failure`` says."""
        reaction = self.settings.on_failure
        if reaction == "stop" and not (self.progress is None and isinstance(error, Reject)):  # share groups can reject a record
            self._stop(slot, unit, error)
            return
        if reaction == "release" and not isinstance(error, FINAL):
            self.counts.released += len(unit.items)
            self._report(slot, unit.items, unit.attempt, error, "released", final=True)
            self._gave_up(unit, Fate.RETURNED, error)
            return
        if isinstance(reaction, str):
            self._skipped(slot, unit, error, Fate.REFUSED)
        else:
            await self._pass_on(slot, unit, error, reaction)

    async def _pass_on(self, slot: Slot, unit: Unit, error: BaseException, reaction: Callable[..., Any]) -> None:
        """Call the function that is given as ``on_failure``."""
        results = []
        for item in unit.items:
            try:
                record = item.raw if item.raw is not None and getattr(reaction, "raw_records", False) else item.record
                # Its own copy: a thread that was given up may still be in the other one.
                results.append(await called_in(slot.inside.copy(), self._react, unit, reaction, record, item.error or error))
            except BaseException as other:
                if self._ends_worker(slot, other):
                    self.queue.interrupted(unit, self.run.clock())
                    raise
                if self._is_cancelled(slot) and self._is_of_record(other):
                    self._comes_again(slot, unit, other)
                    return
                if other is not error:
                    other.__context__ = error
                self._stop_amid(slot, unit, other, before=error)
                return
        again = [isinstance(result, Redelivered) for result in results]
        self.counts.redelivered += sum(again)
        self.counts.dead_letters += len(again) - sum(again)
        for item, result in zip(unit.items, results, strict=True):
            outcome = result.outcome if isinstance(result, Redelivered) else "dead letter"
            self._report(slot, [item], unit.attempt, error, outcome, final=outcome == "dead letter")
        if isinstance(unit, Pack) and any(again) and not all(again):
            written = [item for item, redelivered in zip(unit.items, again, strict=True) if redelivered]
            self._gave_up(self.queue.split(unit, written), Fate.DONE, error)
        self._gave_up(unit, Fate.DONE if all(again) else Fate.REFUSED, error)

    async def _react(self, unit: Unit, reaction: Callable[..., Any], record: Record, error: BaseException) -> Any:
        if is_async(reaction):
            result = await reaction(record, error, unit.attempt)
        else:
            result = await self._on_thread(lambda: unit, "on_failure", reaction, record, error, unit.attempt)
            if isawaitable(result):
                result = await result
        return finished(result, "on_failure")

    def _skipped(self, slot: Slot, unit: Unit, error: BaseException, fate: Fate) -> None:
        self.counts.skipped += len(unit.items)
        self._report(slot, unit.items, unit.attempt, error, "skipped", final=True)
        self._gave_up(unit, fate, error)

    def _gave_up(self, unit: Unit, fate: Fate, error: BaseException) -> None:
        records = [item.record for item in unit.items]
        self.queue.gave_up(unit, fate, self.run.clock())
        if self.barrier is not None and fate is not Fate.RETURNED and not isinstance(error, Skip):
            self.barrier.refused(records, error)  # also if another topic has them now: they have failed here

    def _comes_again(self, slot: Slot, unit: Unit, error: BaseException) -> None:
        """The error decides nothing about these records: they are handled again, here or elsewhere."""
        self._report(slot, unit.items, unit.attempt, error, COMES_AGAIN, final=False)
        self._begin_again(unit)

    def _begin_again(self, unit: Unit) -> None:
        now = self.run.clock()
        for item in unit.items:
            item.waits_since = now  # the time of its handler is no waiting
        self.queue.interrupted(unit, now)

    def _stop(self, slot: Slot, unit: Unit, error: BaseException, before: BaseException | None = None) -> None:
        """End all because of this record. ``before``: the failure about which a function of the application raised ``error``."""
        first = unit.items[0]
        record = first.record
        self._report(slot, unit.items, unit.attempt, error, STOP, final=False)
        gone = first.part.gone
        self.queue.interrupted(unit, self.run.clock())
        if gone:
            return  # another member has the record now, and will report what is wrong with it
        where = at_offset(record.topic, record.partition, record.offset)
        reason = shown(error, LONGEST_REASON)
        if before is not None and before is not error:
            reason += f", raised when the record had failed with {shown(before, LONGEST_REASON)}"
        failure = ProcessingError(f"{where} failed {attempted(unit.attempt, first.error)}: {reason}", record, unit.attempt)
        failure.__cause__ = error
        self._fail(failure)

    def _stop_amid(self, slot: Slot, unit: Unit, error: BaseException, before: BaseException | None = None) -> None:
        """End all because of this record, or with what is no failure of a record, as it is."""
        if self._is_of_record(error):
            self._stop(slot, unit, error, before)
        else:
            self.queue.interrupted(unit, self.run.clock())
            self._fail(error)

    @staticmethod
    def _is_of_record(error: BaseException) -> bool:
        """Whether it is the failure of a record. ``KeyboardInterrupt``, a panic of Rust and the like are not about one."""
        return isinstance(error, Exception | GeneratorExit | get_cancelled_exc_class())

    def _ends_worker(self, slot: Slot, error: BaseException) -> bool:
        """Whether the worker is being ended, and no function of the application has failed."""
        if isinstance(error, GeneratorExit):
            return is_thrown_away(slot.task)
        return isinstance(error, get_cancelled_exc_class()) and self._is_ended(slot)

    def _is_ended(self, slot: Slot) -> bool:
        """Whether a cancellation ends a handler, without its record having failed.

        A handler may raise one of its own, by awaiting a task that was cancelled, and anybody may cancel the handler's task.
        """
        return self._is_cancelled(slot) or running_loop() is None  # elsewhere only cancel scopes cancel

    def _is_cancelled(self, slot: Slot) -> bool:
        """Whether what the worker does was cancelled, by us or with all other tasks."""
        return slot.cancelled or self.run.swept

    def _report(self, slot: Slot, items: Iterable[Item], attempt: int, error: BaseException, outcome: str, *, final: bool) -> None:
        now, inside = self.run.clock(), slot.inside.copy()
        for item in items:
            record = item.record
            event = RecordFailed(
                now=now,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                attempt=attempt,
                error=error,
                outcome=outcome,
                final=final,
            )
            inside.run(self.run.trace, event)  # a log that shows context variables shows those of this record


async def _anew_after(result: Any) -> Context:
    """Leave the context variables of a handler behind, unless what it returned is no end."""
    check_return(result)
    return await anew()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _argument(unit: Unit, batch: int | None) -> Any:
    """Return the handler's argument."""
    for item in unit.items:
        if item.error is not None:
            raise item.error
    return unit.items[0].record if batch is None else [item.record for item in unit.items]
