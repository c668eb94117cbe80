"""Waking those who wait for something to happen in the cluster, from any thread.

A consumer with ``background="thread"`` waits in an event loop of its own, while the test produces in another one or in none.

An answer that takes time is a generator (``Answering``): it yields the time at which to look again, or what has to be awaited, and
returns the answer in the end. So a broker's behaviour is written once for both kinds of connections: those that a task reads from
drive it with ``finished``, the others without a task.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from attrs import define, field

T = TypeVar("T")
TIMESTAMP: Final = 1_700_000_000_000
"""When the time of a cluster begins that was made under virtual time: 2023-11-14 22:13:20 UTC."""
_LATE: Final = 1e-6
"""Seconds by which a wait is longer than it has to be, where the sum of two floats may be the float before."""
Answering: TypeAlias = Generator[float | Awaitable[Any], Any, T]
"""Yields a time of the cluster (go on after the next change in it, or then) or an awaitable (go on with what it returns)."""


def loop_time() -> float:
    """Return the time of the running event loop; if none runs, that of loops in real time."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        pass
    try:
        return anyio.current_time()
    except anyio.NoEventLoopError:
        return time.monotonic()


class _Source(NamedTuple):
    """What measures the time."""

    owner: object
    """The event loop or clock; ``None``: the system."""
    now: float
    virtual: bool


def _source() -> _Source | None:
    """Return what measures the time here; ``None`` outside of an event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _source_on_trio()
    uvloop = getattr(sys.modules.get("uvloop"), "Loop", None)
    system = type(loop).time in (asyncio.BaseEventLoop.time, getattr(uvloop, "time", None))
    return _Source(None if system else loop, loop.time(), not system)


def _source_on_trio() -> _Source | None:
    trio = sys.modules.get("trio")
    try:
        found = None if trio is None else trio.lowlevel.current_clock()
    except RuntimeError:
        return None
    testing = sys.modules.get("trio.testing")
    virtual = testing is not None and isinstance(found, testing.MockClock)
    return None if found is None else _Source(found, found.current_time(), virtual)


@define(eq=False, repr=False)
class SimulatedClock:
    """A cluster's time. It passes as that of the event loop that looks, and goes on in the next one, which may begin at 0 again.

    Without an event loop no time passes, unless one in another thread has looked before.
    """

    began: int | None = None
    """The date at which it begins, in milliseconds; ``None``: now, or ``TIMESTAMP`` if time is virtual."""
    _owner: object = None
    _virtual: bool = False
    _known: bool = False
    """An event loop has looked."""
    _origin: float = 0.0
    """The owner's time at which the cluster's begins."""
    _last: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.now()
        if self.began is None:
            self.began = TIMESTAMP if self._virtual else round(time.time() * 1000)

    def now(self) -> float:
        """Return seconds."""
        source = _source() or self._elsewhere()
        if source is None:
            return self._last
        if not self._known or source.owner is not self._owner:
            # What is virtual began at 0; other clocks begin anywhere.
            self._origin = -self._last if source.virtual else source.now - self._last
            self._known, self._owner, self._virtual = True, source.owner, source.virtual
        self._last = source.now - self._origin
        return self._last

    def _elsewhere(self) -> _Source | None:
        """Return the system's clock if an event loop in another thread goes by it."""
        return _Source(None, time.monotonic(), virtual=False) if self._known and self._owner is None else None

    def date(self) -> int:
        """Return milliseconds since the epoch."""
        return (self.began or 0) + round(self.now() * 1000)

    def local(self, when: float) -> float:
        """Return a time of the cluster as one of the event loop."""
        self.now()
        return when + self._origin + _LATE if self._origin else when


async def finished(work: Answering[T], changes: "Changes") -> T:
    """Drive an answer to its end in this task."""
    try:
        wanted = next(work)
        while True:
            if isinstance(wanted, float):
                await changes.wait(wanted)
                wanted = work.send(None)
            else:
                wanted = work.send(await wanted)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        work.close()


@define(eq=False, repr=False)
class Home:
    """The event loop that something belongs to."""

    _native: Any = field(factory=lambda: anyio.lowlevel.current_token().native_token)
    _thread: int = field(factory=threading.get_ident)

    def run(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` in the loop: at once if this is its thread."""
        if threading.get_ident() == self._thread:
            fn()
            return
        soon = getattr(self._native, "call_soon_threadsafe", None) or self._native.run_sync_soon
        with contextlib.suppress(RuntimeError):  # the loop is gone, and those who waited with it
            soon(fn)


@define(eq=False, repr=False)
class Changes:
    """What long polls wait for."""

    clock: SimulatedClock = field(factory=SimulatedClock)
    _waiting: dict[object, tuple[Home, Callable[[], object]]] = field(factory=dict)

    def wake(self) -> None:
        """Something has happened."""
        waiting, self._waiting = self._waiting, {}
        for home, fn in waiting.values():
            home.run(fn)

    def park(self, home: Home, fn: Callable[[], object]) -> object:
        """Call ``fn`` in its home at the next change, within ``wake``. Return the entry that ``forget`` takes."""
        entry = object()
        self._waiting[entry] = home, fn
        return entry

    def forget(self, entry: object) -> None:
        """Drop an entry of ``park``."""
        self._waiting.pop(entry, None)

    async def wait(self, deadline: float) -> None:
        """Return after the next change, or at ``deadline``, a time of the cluster."""
        event = anyio.Event()
        entry = self.park(Home(), event.set)
        try:
            with anyio.CancelScope(deadline=self.clock.local(deadline)):
                await event.wait()
        finally:
            self.forget(entry)
