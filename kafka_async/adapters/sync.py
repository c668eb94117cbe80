"""The blocking facade: the same consumer for programs without an event loop.

Every method runs the coroutine of the asyncio consumer in the caller's thread. The background loop has a thread of its own, so no
event loop is needed here: it works in scripts, in notebooks that run a loop already, and in a worker process after a fork, as long
as the consumer was started after the fork.

With ``ThreadSignal`` those coroutines block where they would wait, so they end at their first step. ``process`` is the exception:
it runs on an event loop in a thread of its own, to which the consumer is lent meanwhile. A rebalance listener runs on yet another
thread then, as a guest: the event loop carries out what it calls.
"""

import re
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, Unpack

import anyio
from anyio import from_thread, get_cancelled_exc_class
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typing_extensions import TypeVar

from ..application import arguments
from ..application.callbacks import (
    INTERCEPTOR_METHODS,
    LISTENER_METHODS,
    ConsumerRebalanceListener,
    check_listener,
    settled,
)
from ..application.consumer import KafkaConsumer as AsyncConsumer
from ..application.lifecycle.runtime import ThreadRuntime
from ..application.parts import assemble
from ..application.reading.ranges import RANGE_BATCH_BYTES
from ..application.reading.read_calls import ARROW_ROWS
from ..application.reading.reader import NothingCame
from ..config import ConsumerConfig
from ..errors import ConsumerStoppedError, IllegalStateError, shown
from ..functions import called_of, is_async
from ..model import ConsumerRecord, ConsumerState, SubscriptionPattern, TopicPartition
from ..network.waiting import SIGNALS_AFTER, running_loop
from ..records import ALL_COLUMNS, Columns

if TYPE_CHECKING:
    import pyarrow

    from ..application.processing.process_options import ProcessOptions
    from ..application.processing.process_settings import Handler
    from ..application.processing.processing import Processing as AsyncProcessing
    from ..application.processing.statistics import ProcessingStatistics
    from ..config import ConsumerOptions
    from ..network import TransportFactory

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T")
P = ParamSpec("P")
Partitions = Collection[TopicPartition]
Callback = Callable[[Partitions], Awaitable[None] | None]


LEAVE_TIME: Final = 5.0
"""Seconds that ``stop`` gives another thread to leave its read call; one that is in a call-back of the user may not."""
LOOK_AGAIN: Final = 0.005
CALL_BACK_TIME: Final = 30.0
"""Seconds for which the end of processing waits for a rebalance listener that is at work."""


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise IllegalStateError("an 'async def' call-back needs an event loop; give the blocking consumer plain functions")


class Seated(Protocol):
    """Has a seat for one thread."""

    _seat: "Seat"


C = TypeVar("C", bound=Seated)


def exclusive(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Let one thread at a time into the consumer."""

    @wraps(method)
    def guarded(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        seat = self._seat
        mine = seat.enter()
        try:
            return method(self, *args, **kwargs)
        finally:
            if mine:
                seat.taken_by = {}

    return guarded


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs one of the asyncio consumer in the calling thread, which has the consumer meanwhile."""

    @exclusive
    def alone(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(method(self._consumer, *args, **kwargs))

    @wraps(method)
    def blocks(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._seat.is_guest:
            return from_thread.run(lambda: method(self._consumer, *args, **kwargs))
        return alone(self, *args, **kwargs)

    return blocks


def forwarding(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The same for a method that does not wait."""
    alone = exclusive(looking(method))

    @wraps(method)
    def forwards(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._seat.is_guest:
            return from_thread.run_sync(lambda: method(self._consumer, *args, **kwargs))
        return method(self._consumer, *args, **kwargs) if self._seat.is_host else alone(self, *args, **kwargs)

    return forwards


def looking(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The same for one that may be called from any thread."""

    @wraps(method)
    def looks(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._consumer, *args, **kwargs)

    return looks


class Blocked(Protocol):
    """The consumer that a thread occupies."""

    @property
    def state(self) -> ConsumerState: ...


class Seat:
    """Where one thread at a time sits (Java: ConcurrentModificationException for a second one).

    Not a lock, since leaving is an assignment: the interpreter runs no signal handler between it and the ``return`` of a read
    call, so nothing that such a handler raises can take away records that count as delivered.
    """

    def __init__(self, consumer: Blocked, runtime: ThreadRuntime) -> None:
        self.consumer = consumer
        self.runtime = runtime
        self.taken_by: dict[str, threading.Thread] = {}
        self.processing: Processing | None = None
        """The consumer is lent to its thread."""
        self._guests: set[threading.Thread] = set()

    def try_enter(self) -> bool | None:
        """Take the seat: ``True``; ``False``: the thread has it already; ``None``: another one has it."""
        me = threading.current_thread()
        while True:
            taken_by = self.taken_by
            before = len(taken_by)
            if taken_by.setdefault("thread", me) is me:
                return before == 0
            if taken_by is self.taken_by:
                return None

    def enter(self) -> bool:
        """Take the seat; return whether it has to be left. Raises if another thread has it, or the consumer is being stopped."""
        mine = self.try_enter()
        if mine is None:
            if self.consumer.state is ConsumerState.CLOSED:
                raise ConsumerStoppedError("the consumer is being stopped by another thread")
            raise IllegalStateError("the blocking consumer is in use by another thread; it serves one at a time")
        return mine

    @property
    def is_guest(self) -> bool:
        """Whether the calling thread runs a rebalance listener while the consumer is lent to an event loop."""
        return threading.current_thread() in self._guests

    @property
    def is_host(self) -> bool:
        """Whether the caller is on the event loop that the consumer is lent to, such as an interceptor."""
        loop = running_loop()
        return loop is not None and getattr(self.runtime.task_context, "loop", None) is loop

    def see_off(self) -> None:
        """The consumer is lent no more. A listener that is still running may use it as any other thread may."""
        self._guests.clear()

    def call_back(self, method: Callback, partitions: Partitions) -> Awaitable[None] | None:
        """Call a method of a rebalance listener where it may use the consumer."""
        return method(partitions) if self.runtime.blocks else self._host(method, partitions)

    async def _host(self, method: Callback, partitions: Partitions) -> None:
        # On the thread of the event loop the method could not wait for what that loop has to do.
        from ..application.processing.threads import Threads

        def visit() -> Awaitable[None] | None:
            me = threading.current_thread()
            self._guests.add(me)
            try:
                return method(partitions)
            finally:
                self._guests.discard(me)

        threads = Threads(1, freed=lambda: None)
        try:
            await settled(await threads.run(visit), "the rebalance listener")
        finally:
            threads.close()

    @contextmanager
    def when_left(self, seconds: float) -> Iterator[float]:
        """Take the seat to stop the consumer. The value is how many of the ``seconds`` for that are left.

        A thread that is in a read call leaves it now; stopping at the same time would read what it is changing.
        """
        began = time.monotonic()
        mine, until = self.try_enter(), began + min(LEAVE_TIME, seconds / 2)
        while mine is None and time.monotonic() < until:
            time.sleep(LOOK_AGAIN)
            mine = self.try_enter()
        try:
            yield max(0.0, seconds - (time.monotonic() - began))
        finally:
            if mine:
                self.taken_by = {}


class Hosted(ConsumerRebalanceListener):
    """A rebalance listener that may use the blocking consumer also while that is lent to an event loop."""

    def __init__(self, listener: ConsumerRebalanceListener, seat: Seat) -> None:
        self._listener = listener
        self._seat = seat

    def on_partitions_revoked(self, revoked: Partitions) -> Awaitable[None] | None:
        return self._seat.call_back(self._listener.on_partitions_revoked, revoked)

    def on_partitions_assigned(self, assigned: Partitions) -> Awaitable[None] | None:
        return self._seat.call_back(self._listener.on_partitions_assigned, assigned)

    def on_partitions_lost(self, lost: Partitions) -> Awaitable[None] | None:
        return self._seat.call_back(self._listener.on_partitions_lost, lost)


class Processing:
    """Handlers running on threads; made by ``KafkaConsumer.processing``.

    A ``with`` block: the handlers run while its body runs. When it is left, no more handlers start, running ones get
    ``drain_timeout_ms``, and what is done is committed; a rebalance listener that is at work gets 30 s to return. A second
    ``KeyboardInterrupt`` meanwhile gives up what runs. If processing fails, ``wait`` returns and the block raises the cause. The
    methods may be called from any thread. Once processing is over, ``statistics`` returns the last ones, and the others do nothing.
    """

    def __init__(
        self, seat: Seat, make: "Callable[[], AsyncProcessing]", call_back_ends: Callable[[float], Awaitable[None]] | None = None
    ) -> None:
        self._seat = seat
        self._make = make
        self._call_back_ends = call_back_ends
        """Waits for a rebalance listener for so many seconds; ``None``: there are none."""
        self._call_back_time = CALL_BACK_TIME
        self._mine = False
        self._thread: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None
        self._ended: Future[BaseException | None] = Future()
        self._run: tuple[AsyncProcessing, anyio.Event] | None = None
        self._stops: list[anyio.Event] = []
        self._lent = False

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise IllegalStateError("this processing was already started; make a new one")
        self._mine = self._seat.enter()
        self._thread = start_blocking_portal(name="kafka_async process")
        try:
            self._portal = self._thread.__enter__()
            self._seat.processing = self  # before it begins, which may take long: the consumer is lent meanwhile
            self._ended, self._run = self._portal.start_task(self._serve)
        except BaseException as error:  # also one of a signal handler, while it begins
            self._seat.processing, self._ended = None, Future()
            self._ended.set_result(None)  # who stops the consumer in this moment finds no event loop, and waits for the seat
            self._close(error)
            raise
        return self

    async def _serve(self, *, task_status: "TaskStatus[tuple[AsyncProcessing, anyio.Event]]") -> BaseException | None:
        """Process on the event loop of our thread until asked to end. Returns what would end the loop: what is no ``Exception``."""
        left = anyio.Event()
        try:
            with self._seat.runtime.lent():
                self._lent = True
                try:
                    async with self._make() as run:
                        task_status.started((run, left))
                        await left.wait()
                finally:
                    try:
                        await self._call_back_is_through()
                    finally:
                        await self._stops_are_through()
        except BaseException as error:
            if isinstance(error, Exception | get_cancelled_exc_class()):
                raise
            return error
        return None

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            failure = self._leave()
        finally:
            self._seat.processing = None
            self._close()
        if failure is not None and exc is None:
            raise failure

    def _leave(self) -> BaseException | None:
        """Drain, commit and return why processing failed."""
        run, left = self._begun()
        try:
            self._call(left.set)
            _wait_for(self._ended)
        except BaseException:  # of a signal handler: a second signal is meant
            self._call(self._give_up, run, left)
            _wait_for(self._ended)
            raise
        return self._ended.exception() or self._ended.result()

    async def _give_up(self, run: "AsyncProcessing", left: anyio.Event) -> None:
        left.set()
        run.abort()
        self._call_back_time = 0.0
        await self._call_back_is_through()

    def _close(self, error: BaseException | None = None) -> None:
        """End our thread. With an ``error`` what runs on it is cancelled; nobody else would tell it to end."""
        try:
            if self._thread is not None and self._portal is not None:
                kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
                self._thread.__exit__(kind, error, traceback)
        finally:
            if self._mine:
                self._mine, self._seat.taken_by = False, {}

    def _begun(self) -> "tuple[AsyncProcessing, anyio.Event]":
        if self._run is None:
            raise IllegalStateError("enter the block first: with consumer.processing(...) as run")
        return self._run

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, or await a coroutine function, on the event loop of our thread, unless processing has ended."""
        assert self._portal is not None  # noqa: S101 - entered
        if self._ended.done():
            return None
        try:
            called = self._portal.start_task_soon(function, *arguments)
        except RuntimeError:
            if self._ended.done():  # and our thread with it, just now
                return None
            raise
        _wait_for(called)
        return called.result()

    def statistics(self) -> "ProcessingStatistics":
        """Return one frozen snapshot of what is going on."""
        return self._begun()[0].statistics()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return ``statistics`` as a group of metrics."""
        return self._begun()[0].metrics()

    def pause(self) -> None:
        """Start no more handlers, and read no records, until ``resume``. Running handlers go on, and so does the membership."""
        self._call(self._begun()[0].pause)

    def resume(self) -> None:
        """Go on after ``pause`` or ``drain``."""
        self._call(self._begun()[0].resume)

    def drain(self) -> None:
        """Read no more until ``resume``, wait until everything that was received is done, retries included, and commit that.
        From then on no handler starts until ``resume``.
        """
        self._call(self._begun()[0].drain)

    def stop(self) -> None:
        """Make ``wait`` return. Running handlers are drained when the block is left."""
        self._call(self._begun()[0].stop)

    def abort(self) -> None:
        """As ``stop``, but give up running handlers instead of draining them: threads go on, results do not count."""
        self._call(self._begun()[0].abort)

    def wait(self) -> None:
        """Wait until ``stop``, here or of the consumer, or until processing fails, which leaving the block raises."""
        self._call(self._begun()[0].wait)

    def stop_consumer(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Stop the consumer from the thread that it is lent to (for ``KafkaConsumer.stop``); ``False`` if that has ended."""
        return bool(self._call(self._stop_here, stop))

    async def _stop_here(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        if not self._lent:
            return False
        ended = anyio.Event()
        self._stops.append(ended)
        try:
            await stop()
        finally:
            self._stops.remove(ended)
            ended.set()
        return True

    async def _call_back_is_through(self) -> None:
        """Wait for a rebalance listener that is at work: it runs on this event loop, and may use the consumer."""
        if self._call_back_ends is not None:
            with anyio.CancelScope(shield=True):
                await self._call_back_ends(self._call_back_time)

    async def _stops_are_through(self) -> None:
        """Wait for those who stop the consumer from here: once it is no longer lent to this event loop, nothing wakes them."""
        with anyio.CancelScope(shield=True):
            while self._stops:
                await self._stops[0].wait()
        self._lent = False
        self._seat.see_off()


def _wait_for(future: "Future[Any]") -> None:
    """Wait, so that a signal handler may raise."""
    while not future.done():
        wait((future,), timeout=SIGNALS_AFTER)


def plain(function: Any, name: str) -> None:
    """Raise ``TypeError`` for an ``async def``, which has no event loop here.

    Dead letters and retry topics need only some event loop, unless their producer belongs to another one: see ``any_loop``.
    """
    if getattr(function, "any_loop", False):
        return
    if (callable(function) and is_async(function)) or getattr(function, "is_async", False):  # the second: a router
        raise TypeError(
            f"{name}={function!r}: the blocking consumer runs it on threads; expected a plain function, not an async one"
        )


def no_loop(function: Any, name: str) -> None:
    """Raise ``TypeError`` for an ``async def`` that would be called inside a read or commit call, where no event loop runs.

    There most of them fail as soon as they wait for something. For a deserializer that would look like a bad record, and its
    records would be passed over.
    """
    if callable(function) and is_async(function):
        raise TypeError(f"{name}={shown(function)}: the blocking consumer has no event loop for it; expected a plain function")


def no_loop_for(config: ConsumerConfig) -> None:
    """Check the call-backs that are options."""
    for name in ("key_deserializer", "value_deserializer"):
        no_loop(called_of(getattr(config, name)), name)
    for interceptor in config.interceptors:
        for method in INTERCEPTOR_METHODS:
            no_loop(getattr(interceptor, method), f"interceptors: {method}")


def ends_after(consumer_timeout_ms: float) -> float:
    """Return the seconds without a record after which an iteration ends; kafka-python has a negative number for never."""
    found = arguments.seconds(consumer_timeout_ms, "consumer_timeout_ms")
    return found if found >= 0 else inf


class KafkaConsumer(Generic[K, V]):
    """A Kafka consumer that blocks the calling thread; arguments and results are those of ``kafka_async.KafkaConsumer``.

    Use it as ``with KafkaConsumer(...) as consumer``. Deserializers, interceptors, listeners and handlers must be plain functions
    (``TypeError`` otherwise). It is used by one thread at a time (``IllegalStateError`` otherwise); ``stop`` may be called from any
    thread. If a signal handler raises inside a read call, such as ``KeyboardInterrupt``, no record is lost: the next call returns
    what that call had in hand.
    """

    def __init__(
        self,
        *topics: str,
        # Not options of Kafka: those that were checked before, and what opens connections, for tests.
        config: ConsumerConfig | None = None,
        transport_factory: "TransportFactory | None" = None,
        # kafka-python's. In a program with an event loop ``getmany(timeout_ms=...)`` does that.
        consumer_timeout_ms: float = inf,
        **options: "Unpack[ConsumerOptions[K, V]]",
    ) -> None:
        options.pop("background", None)
        self._ends_after = ends_after(consumer_timeout_ms)
        runtime = ThreadRuntime.for_threads()
        self._parts = assemble(ConsumerConfig.of(**options) if config is None else config, runtime, transport_factory)
        no_loop_for(self._parts.config)
        self._consumer: AsyncConsumer[K, V] = AsyncConsumer(*topics, parts=self._parts)
        self._seat = Seat(self._consumer, runtime)

    @classmethod
    def from_config(cls, config: ConsumerConfig, *topics: str, consumer_timeout_ms: float = inf) -> Self:
        """Return a consumer with options that were checked before, such as those of ``ConsumerConfig.from_env``."""
        return cls(*topics, config=arguments.checked_config(config), consumer_timeout_ms=consumer_timeout_ms)

    # --- life ------------------------------------------------------------------------------------------------------------------

    start = blocking(AsyncConsumer.start)

    def stop(self, timeout_ms: float | None = None) -> None:
        """Stop within ``timeout_ms``. A read that waits in another thread ends, and a ``for`` loop in another thread too.

        Not for a signal handler: that runs in the thread which has a record in hand, and the record would count as done. Let the
        handler raise instead, as ``signal.default_int_handler`` does.
        """
        self._stop(timeout_ms, clean=True)

    def _stop(self, timeout_ms: float | None, *, clean: bool) -> None:
        self._parts.guard.ownership.check_process()  # and no more: while it processes, it is lent to an event loop
        processing, parting = self._seat.processing, self._parts.parting
        if processing is not None and processing.stop_consumer(partial(parting.stop, self._parts.guard, timeout_ms, clean=clean)):
            return  # it drained and committed first
        allowed = parting.allowed(timeout_ms)
        if not parting.begin():
            finish(parting.wait_for_the_first(allowed))
            return
        with self._seat.when_left(allowed) as left:
            finish(parting.finish(left, clean=clean))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self._stop(None, clean=exc_type is None)

    def __repr__(self) -> str:
        return f"<blocking {self._consumer!r}>"

    # --- read ------------------------------------------------------------------------------------------------------------------

    # The last steps of each read call are assignments; see ``Seat``.

    def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Return the next record, waiting for it as long as it takes."""
        return self._getone(partitions, inf)

    def _getone(self, partitions: tuple[TopicPartition, ...], seconds: float) -> ConsumerRecord[K, V]:
        mine = self._seat.enter()
        try:
            portion = finish(self._parts.reads.portion(partitions, self._parts.reads.asks(), seconds))
            record: ConsumerRecord[K, V] = portion.records[portion.place]
            portion.place += 1
            return record
        finally:
            if mine:
                self._seat.taken_by = {}

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are any; ``{}`` if none came within ``timeout_ms``."""
        mine = self._seat.enter()
        try:
            batch = finish(self._parts.reads.many(partitions, timeout_ms, max_records, self._parts.reads.asks()))
            self._parts.unread.taken = None
            return batch
        finally:
            if mine:
                self._seat.taken_by = {}

    def getarrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Collection[str] | None = None,
        view: bool = False,
    ) -> "pyarrow.RecordBatch":
        """Return records as an Arrow record batch (extra ``arrow``); see ``kafka_async.KafkaConsumer.getarrow``."""
        mine = self._seat.enter()
        try:
            holder = self._parts.reads.asks()
            batch = finish(self._parts.reads.arrow(holder, partitions, timeout_ms, max_records, columns, view))
            self._parts.unread.taken = None
            return batch
        finally:
            if mine:
                self._seat.taken_by = {}

    def arrow_batches(
        self,
        *partitions: TopicPartition,
        max_records: int = ARROW_ROWS,
        columns: Collection[str] | None = None,
        view: bool = False,
    ) -> "Iterator[pyarrow.RecordBatch]":
        """Iterate over Arrow record batches until the consumer is stopped. Closing the iterator early loses nothing."""
        while True:
            try:
                batch = self.getarrow(*partitions, timeout_ms=3_600_000, max_records=max_records, columns=columns, view=view)
            except ConsumerStoppedError:
                return
            if batch.num_rows:
                yield batch

    assign_ranges = forwarding(AsyncConsumer.assign_ranges)

    def next_columns(
        self, columns: Collection[str] = ALL_COLUMNS, *, batch_bytes: int = RANGE_BATCH_BYTES, timeout_ms: float | None = None
    ) -> Columns | None:
        """Return the next records of the ranges as columns; ``None``: all are read."""
        mine = self._seat.enter()
        try:
            found = finish(self._parts.reads.columns(self._parts.reads.asks(), columns, batch_bytes, timeout_ms))
            self._parts.unread.taken = None
            return found
        finally:
            if mine:
                self._seat.taken_by = {}

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Iterate over records until the consumer is stopped, or none has come for ``consumer_timeout_ms``; then it may be iterated
        over again. A record is done when the next one is asked for, and so when the iteration ends by itself.
        """
        reader, seat = self._parts.reads.reader, self._seat
        handout = reader.handout
        while True:
            hand = handout.hand
            if handout.calm and not seat.taken_by and handout.has_more:
                if hand.holder is None:  # the last record came by a call
                    reader.turn_to(threading.current_thread())
                    continue  # another thread may have come in between; it cannot before the record is taken below
                portion = handout.portion
                record: ConsumerRecord[K, V] = portion.records[portion.place]
                hand.last, hand.beginning = record, portion.beginning
                portion.place += 1
            else:
                try:
                    record = self._getone((), self._ends_after)
                except (ConsumerStoppedError, NothingCame):
                    return
            yield record

    # --- process ---------------------------------------------------------------------------------------------------------------

    def process(self, handler: "Handler[ConsumerRecord[K, V]]", **options: "Unpack[ProcessOptions]") -> None:
        """Call ``handler`` on threads for every record, many at once, until ``stop`` or until it raises.

        Arguments, promises and errors are those of ``kafka_async.KafkaConsumer.process``; handler and ``on_failure`` must be plain
        functions (``TypeError`` otherwise). If a signal handler raises here, such as ``KeyboardInterrupt``, running handlers are
        drained and their records committed first; a second one ends that at once.
        """
        with self.processing(handler, **options) as run:
            run.wait()

    def processing(self, handler: "Handler[ConsumerRecord[K, V]]", **options: "Unpack[ProcessOptions]") -> Processing:
        """Do what ``process`` does, as a ``with`` block: the handlers run on threads while its body runs.

        Its value has ``statistics()``, ``pause()``, ``resume()``, ``drain()``, ``wait()`` and ``stop()``. The consumer is in use
        for as long as the block lasts: of its own methods, only ``stop`` and those that read known state may be called. A rebalance
        listener, which has a thread of its own meanwhile, may call all but those that read records; deserializers and interceptors
        those that do not wait.
        """
        from ..application.processing.process_settings import checked
        from ..application.processing.settlement import processing_of

        plain(handler, "handler")
        plain(options.get("on_failure"), "on_failure")
        settings = checked(handler, **options)
        call_back_ends = self._parts.rebalancing.listening.join
        return Processing(self._seat, lambda: processing_of(self._parts, handler, settings), call_back_ends)

    # --- what ------------------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe as ``kafka_async.KafkaConsumer.subscribe`` does; the methods of ``listener`` must be plain (``TypeError``)."""
        for method in LISTENER_METHODS:
            no_loop(getattr(listener, method, None), f"listener.{method}")
        check_listener(listener)
        self._subscribe(topics, pattern, None if listener is None else Hosted(listener, self._seat))

    _subscribe = forwarding(AsyncConsumer.subscribe)
    unsubscribe = forwarding(AsyncConsumer.unsubscribe)
    subscription = looking(AsyncConsumer.subscription)
    assign = forwarding(AsyncConsumer.assign)
    assignment = looking(AsyncConsumer.assignment)
    partitions_for_topic = forwarding(AsyncConsumer.partitions_for_topic)
    topics = blocking(AsyncConsumer.topics)
    describe_topics = blocking(AsyncConsumer.describe_topics)

    # --- where -----------------------------------------------------------------------------------------------------------------

    position = blocking(AsyncConsumer.position)
    seek = forwarding(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    seek_to_timestamp = blocking(AsyncConsumer.seek_to_timestamp)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    highwater = looking(AsyncConsumer.highwater)
    last_stable_offset = looking(AsyncConsumer.last_stable_offset)
    last_poll_timestamp = looking(AsyncConsumer.last_poll_timestamp)
    current_lag = forwarding(AsyncConsumer.current_lag)
    pause = forwarding(AsyncConsumer.pause)
    resume = forwarding(AsyncConsumer.resume)
    paused = looking(AsyncConsumer.paused)

    # --- commit ----------------------------------------------------------------------------------------------------------------

    commit = blocking(AsyncConsumer.commit)
    committed_offsets = blocking(AsyncConsumer.committed_offsets)
    seek_to_committed = blocking(AsyncConsumer.seek_to_committed)
    next_offsets = forwarding(AsyncConsumer.next_offsets)
    group_metadata = looking(AsyncConsumer.group_metadata)
    enforce_rebalance = forwarding(AsyncConsumer.enforce_rebalance)
    committed = blocking(AsyncConsumer.committed)

    # --- see -------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing."""
        return self._consumer.state

    @property
    def ready(self) -> bool:
        """Whether records can come; see ``kafka_async.KafkaConsumer.ready``."""
        return self._consumer.ready

    @property
    def assigned_once(self) -> bool:
        """Whether the group has given this member an assignment; see ``kafka_async.KafkaConsumer.assigned_once``."""
        return self._consumer.assigned_once

    @property
    def alive(self) -> bool:
        """Whether the consumer can recover by itself; see ``kafka_async.KafkaConsumer.alive``."""
        return self._consumer.alive

    metrics = looking(AsyncConsumer.metrics)
    client_instance_id = blocking(AsyncConsumer.client_instance_id)
    statistics = looking(AsyncConsumer.statistics)
