"""Waking those who wait for something to happen in the cluster, from any thread.

Decides: nothing. Owns: the waiting. A consumer with ``background="thread"`` waits in an event loop of its own, while the test
produces in another one or in none.

An answer that takes time is a generator (``Answering``): it yields the time at which to look again, or what has to be awaited, and
returns the answer in the end. So a broker's behaviour is written once for both kinds of connections: those that a task reads from
drive it with ``finished``, the others without a task.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from attrs import define, field

T = TypeVar("T")
Answering: TypeAlias = Generator[float | Awaitable[Any], Any, T]
"""Yields a time (go on after the next change in the cluster, or then) or an awaitable (go on with what it returns)."""


def clock() -> float:
    """Return the time of the running event loop; if none runs, that of loops in real time."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        pass
    try:
        return anyio.current_time()
    except anyio.NoEventLoopError:
        return time.monotonic()


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


@define(eq=False)
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


@define(eq=False)
class Changes:
    """What long polls wait for."""

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
        """Return after the next change, or at ``deadline``."""
        event = anyio.Event()
        entry = self.park(Home(), event.set)
        try:
            with anyio.CancelScope(deadline=deadline):
                await event.wait()
        finally:
            self.forget(entry)
