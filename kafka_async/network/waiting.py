"""How a task or a thread waits to be woken, again and again.

No wake-up is lost: ``ticket`` is read before looking, and ``wait`` returns at once if a wake-up came since.

anyio's ``Event`` and ``move_on_after`` do the same on every event loop, at about 50 us for each wait; on asyncio a bare future
does it in a tenth of that, and every round trip to a broker waits more than once. One alarm serves all waits there: a task that
is woken early leaves it set, since the next wait will need one at about the same time, and setting a new one for each wait costs
more than the wait.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
from anyio.lowlevel import current_token

from ..values import define, field

T = TypeVar("T")


class Signal(Protocol):
    """Where callers wait for the other side to have something for them."""

    on_wake: Callable[[], None] | None
    """Called by ``wake``, first, unless the callers are threads: for tasks that are to be told something while they do not wait
    here.
    """

    def ticket(self) -> int:
        """Return a number that changes with every wake-up."""

    async def wait(self, ticket: int, seconds: float) -> None:
        """Return when a wake-up came after ``ticket`` was read, or after ``seconds``."""

    async def checkpoint(self) -> None:
        """Let others run."""

    def wake(self) -> None:
        """Wake every task that waits."""

    def rest(self) -> None:
        """Leave nothing on the event loop, unless a task waits."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running asyncio event loop; ``None`` on another one, or outside."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def begin_task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
    """Begin a task; none of it has run when this returns, also with ``asyncio.eager_task_factory`` (Python 3.12)."""
    if sys.version_info >= (3, 12):
        if getattr(loop.get_task_factory(), "__code__", None) is asyncio.eager_task_factory.__code__:
            return asyncio.Task(coroutine, loop=loop, name=name)
    return loop.create_task(coroutine, name=name)


def thread_begins() -> Callable[[], object]:
    """Tell the event loop that a task waits for a thread; return what to call when it does not any more.

    A loop with virtual time (``kafka_async.testing``) wants to know: it must not jump over the time that the thread takes.
    """
    loop = running_loop()
    if loop is None:
        return _keep_trio_from_jumping()
    begins: Callable[[], Callable[[], object]] | None = getattr(loop, "thread_begins", None)
    return begins() if begins is not None else _nothing


_HELD: Final[WeakKeyDictionary[Any, tuple[int, float]]] = WeakKeyDictionary()
"""For clocks of ``trio.testing``: how many threads there are for which they may not jump, and the threshold that they had."""


def _keep_trio_from_jumping() -> Callable[[], object]:
    """As ``thread_begins``, for trio, whose virtual clock does not know of threads that are not trio's own."""
    trio = sys.modules.get("trio")
    clock = None if trio is None else trio.lowlevel.current_clock()
    threshold = getattr(clock, "autojump_threshold", None)
    if clock is None or threshold is None:
        return _nothing
    threads, threshold = _HELD.get(clock, (0, threshold))
    _HELD[clock], clock.autojump_threshold = (threads + 1, threshold), inf

    def ends() -> None:
        threads, threshold = _HELD.pop(clock)
        if threads > 1:
            _HELD[clock] = threads - 1, threshold
        else:
            clock.autojump_threshold = threshold

    return ends


def _nothing() -> None:
    pass


def loop_clock() -> Callable[[], float]:
    """Return the clock of the current event loop, without the detours of ``anyio.current_time``."""
    loop = running_loop()
    if loop is None:
        return anyio.current_time
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


async def pause() -> None:
    """Let others on the event loop run."""
    if running_loop() is not None:
        await asyncio.sleep(0)
    else:
        await anyio.lowlevel.checkpoint()


def threadsafe(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that has ``function`` called soon on the current event loop, and may be called from any thread."""
    token = current_token()
    native: Any = token.native_token  # asyncio's event loop or trio's token
    schedule = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon

    def call() -> None:
        try:
            schedule(function)
        except RuntimeError:  # the loop is closed: no task is left to be woken
            return

    return call


@define(eq=False)
class LoopSignal:
    """Callers are tasks of one event loop, and ``wake`` is called on it."""

    on_wake: Callable[[], None] | None = field(default=None, init=False, repr=False)
    _count: int = field(default=0, init=False)
    _futures: dict["asyncio.Future[None]", float] = field(factory=dict, init=False, repr=False)
    """Who waits on asyncio, and until when."""
    _alarm: "asyncio.TimerHandle | None" = field(default=None, init=False, repr=False)
    """Rings when the first of them has waited long enough, or before."""
    _alarm_at: float = field(default=inf, init=False, repr=False)
    _loop: "asyncio.AbstractEventLoop | None" = field(default=None, init=False, repr=False)
    _clock: Callable[[], float] = field(default=time.monotonic, init=False, repr=False)
    """That of ``_loop``."""
    _events: set[anyio.Event] = field(factory=set, init=False, repr=False)

    def ticket(self) -> int:
        return self._count

    async def wait(self, ticket: int, seconds: float) -> None:
        if ticket != self._count or seconds <= 0:
            await pause()
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            await self._wait_on_anyio(seconds)
            return
        if loop is not self._loop:  # the alarm would never ring: the consumer was started again on another event loop
            self._loop, self._clock = loop, loop_clock()
            self._alarm, self._alarm_at = None, inf
        future: asyncio.Future[None] = loop.create_future()
        self._futures[future] = until = self._clock() + seconds
        if until < self._alarm_at:
            self._set_alarm(until)
        try:
            await future
        finally:
            del self._futures[future]

    def _set_alarm(self, until: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = until
        if until < inf and self._loop is not None:
            self._alarm = self._loop.call_at(until, self._ring)

    def _ring(self) -> None:
        self._alarm, now = None, self._alarm_at
        for future, until in self._futures.items():
            if until <= now and not future.done():
                future.set_result(None)
        self._set_alarm(min((until for future, until in self._futures.items() if not future.done()), default=inf))

    def rest(self) -> None:
        if not self._futures:
            self._set_alarm(inf)

    async def _wait_on_anyio(self, seconds: float) -> None:
        event = anyio.Event()
        self._events.add(event)
        try:
            with anyio.move_on_after(seconds if seconds < inf else None):
                await event.wait()
        finally:
            self._events.discard(event)

    async def checkpoint(self) -> None:
        await pause()

    def wake(self) -> None:
        try:
            if self.on_wake is not None:
                self.on_wake()
        finally:
            self._count += 1
            for future in self._futures:
                if not future.done():
                    future.set_result(None)
            for event in self._events:
                event.set()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait."""
        return len(self._futures) + len(self._events)


SIGNALS_AFTER: Final = 0.25
"""Seconds after which a thread that waits runs the handlers of signals that did not interrupt it. A signal interrupts the main
thread while it waits, but not if it comes just before; and on Windows only a wait with a timeout is interrupted at all."""


@define(eq=False)
class ThreadSignal:
    """The caller is a thread without an event loop: coroutines that wait here block it, and so never suspend.

    That is what lets the blocking facade run the asyncio consumer's coroutines without an event loop.

    Each waiter has a lock of its own, which ``wake`` opens, so that a signal handler that raises in the middle of a wait affects no
    other waiter. (A ``Condition`` would take its lock again on the way out, which can be interrupted too.)
    """

    on_wake: Callable[[], None] | None = field(default=None, init=False, repr=False)
    _count: int = field(default=0, init=False)
    _waiters: "set[threading.Lock]" = field(factory=set, init=False, repr=False)

    def ticket(self) -> int:
        return self._count

    async def wait(self, ticket: int, seconds: float) -> None:
        lock = threading.Lock()
        lock.acquire()
        self._waiters.add(lock)
        try:
            left = min(seconds, 3600.0)  # the caller looks again
            while ticket == self._count and left > 0 and not lock.acquire(timeout=min(left, SIGNALS_AFTER)):
                left -= SIGNALS_AFTER
        finally:
            self._waiters.discard(lock)

    async def checkpoint(self) -> None:
        return

    def wake(self) -> None:
        self._count += 1
        for lock in tuple(self._waiters):
            try:
                lock.release()
            except RuntimeError:  # another thread woke it already
                continue

    def rest(self) -> None:
        return
