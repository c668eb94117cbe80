"""How a task or a thread waits to be woken, again and again.

Decides: nothing. Owns: whoever waits. Must never lose a wake-up: ``ticket`` is read before looking, and ``wait`` returns at once if
a wake-up came since.

anyio's ``Event`` and ``move_on_after`` say the same on every event loop, at some 50 us for each wait; on asyncio a bare future and
a timer do it in a tenth of that, and every round trip to a broker waits more than once.
"""

import asyncio
import threading
from collections.abc import Callable
from math import inf
from typing import Any, Protocol

import anyio
import anyio.lowlevel
from anyio.lowlevel import current_token
from attrs import define, field


class Signal(Protocol):
    """Where callers wait for the other side to have something for them."""

    def ticket(self) -> int:
        """Return a number that changes with every wake-up."""
        ...

    async def wait(self, ticket: int, seconds: float) -> None:
        """Return when a wake-up came after ``ticket`` was read, or after ``seconds``."""
        ...

    async def checkpoint(self) -> None:
        """Let others run."""
        ...

    def wake(self) -> None:
        """Wake everybody who waits."""
        ...


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running asyncio event loop; ``None`` on another one, or outside."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
        except RuntimeError:  # the loop is closed: nobody is left to be woken
            return

    return call


@define(eq=False)
class LoopSignal:
    """Callers are tasks of one event loop, and ``wake`` is called on it."""

    _count: int = field(default=0, init=False)
    _futures: set["asyncio.Future[None]"] = field(factory=set, init=False, repr=False)
    _events: set[anyio.Event] = field(factory=set, init=False, repr=False)

    def ticket(self) -> int:
        return self._count

    async def wait(self, ticket: int, seconds: float) -> None:
        loop = running_loop()
        if ticket != self._count or seconds <= 0:
            await pause()
        elif loop is not None:
            await self._wait_on_asyncio(loop, seconds)
        else:
            await self._wait_on_anyio(seconds)

    async def _wait_on_asyncio(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        future: asyncio.Future[None] = loop.create_future()
        self._futures.add(future)
        timer = loop.call_later(seconds, _release, future) if seconds < inf else None
        try:
            await future
        finally:
            self._futures.discard(future)
            if timer is not None:
                timer.cancel()

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
        self._count += 1
        for future in self._futures:
            _release(future)
        for event in self._events:
            event.set()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait."""
        return len(self._futures) + len(self._events)


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


@define(eq=False)
class ThreadSignal:
    """The caller is a thread without an event loop: coroutines that wait here block it, and so never suspend.

    That is what lets the blocking facade run the asyncio consumer's coroutines without an event loop.
    """

    _count: int = field(default=0, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False, repr=False)

    def ticket(self) -> int:
        return self._count

    async def wait(self, ticket: int, seconds: float) -> None:
        # A Condition without a timeout cannot be interrupted on Windows, hence the upper limit; whoever waits looks again.
        with self._changed:
            self._changed.wait_for(lambda: ticket != self._count, timeout=min(max(seconds, 0.0), 3600.0))

    async def checkpoint(self) -> None:
        return

    def wake(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()
