"""How the caller waits: on an event loop, or by blocking its thread.

Decides: nothing. Owns: whoever waits. Must never lose a wake-up: ``ticket`` is read before looking, and ``wait`` returns at
once if a wake-up came since. The facade is written once, as coroutines; with ``ThreadSignal`` they never suspend, which is
what lets the blocking facade run them without an event loop.
"""

import threading
from collections.abc import Callable
from math import inf
from typing import Any, Protocol

import anyio
import anyio.lowlevel
from anyio.lowlevel import current_token
from attrs import define, field


class Signal(Protocol):
    """Where callers wait for the background to have something for them."""

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
        """Wake everybody who waits. Safe from any thread where the mode needs it."""
        ...


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
    """Callers are tasks of one event loop."""

    _count: int = field(default=0, init=False)
    _waiting: set[anyio.Event] = field(factory=set, init=False, repr=False)

    def ticket(self) -> int:
        return self._count

    async def wait(self, ticket: int, seconds: float) -> None:
        if ticket != self._count:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        self._waiting.add(event)
        try:
            with anyio.move_on_after(seconds if seconds < inf else None):
                await event.wait()
        finally:
            self._waiting.discard(event)

    async def checkpoint(self) -> None:
        await anyio.lowlevel.checkpoint()

    def wake(self) -> None:
        self._count += 1
        for event in self._waiting:
            event.set()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait."""
        return len(self._waiting)


@define(eq=False)
class ThreadSignal:
    """The caller is a thread without an event loop; waiting blocks it."""

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
