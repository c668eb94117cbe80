"""Virtual time on asyncio: an event loop whose clock jumps to the next deadline when nothing is ready.

Decides: when time passes. Owns: that clock. Must never wait in real time while a timer is due later: a test that spans an hour
takes as long as its work does. On trio, ``trio.testing.MockClock(autojump_threshold=0)`` is the same thing.

Its limits: sockets and threads live in real time, and it does not wait for them. While a timer runs, time jumps past them;
if no timer runs, the loop raises an error, since everything would wait for ever.
"""

import asyncio
import selectors
from typing import Any, Final

SPINNING: Final = 20_000
"""More turns than this without time passing mean that a program spins."""
LOOKS: Final = 10
"""An event loop that is never idle looks at its sockets once in so many turns."""
RESIDUE: Final = 1e-9
"""Seconds, the resolution of asyncio's clock: timers fire up to this much early, and the rest of a deadline would never pass."""


class _Jumping(selectors.DefaultSelector):
    """Never waits: when the event loop would, time jumps."""

    now = 0.0
    turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.turns += 1
        if timeout == 0 and self.turns % LOOKS:
            return []  # tasks are ready; sockets are looked at before time jumps
        found = super().select(0)
        if self.turns % 100 == 0:
            self.now += RESIDUE
        if self.turns > SPINNING:
            raise RuntimeError("the event loop spins: time does not pass")
        if found or timeout == 0:
            return found
        if timeout is None:
            raise RuntimeError("everything waits for ever")
        self.now += timeout
        self.turns = 0
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with a clock that starts at 0 and jumps to the next deadline whenever all tasks wait."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def block(self, seconds: float) -> None:
        """Let time pass while no task runs, as a handler that blocks does."""
        self._jumping.now += seconds


def virtual_loop() -> VirtualLoop:
    """Return a new event loop with virtual time: a loop factory for ``asyncio.Runner`` or ``asyncio.run(..., loop_factory=...)``.

    ``loop.time()`` starts at 0. Raises ``RuntimeError`` from within the loop if every task waits for something that can never come.
    """
    return VirtualLoop()
