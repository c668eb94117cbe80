"""Run async code under a virtual clock: time passes only when every task waits, so nothing sleeps and nothing is flaky."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from trio.testing import MockClock

T = TypeVar("T")


def run_virtual(fn: Callable[[], Awaitable[T]]) -> T:
    """Return what ``fn`` returns. ``anyio.current_time()`` starts at 0 and jumps to the next deadline whenever all tasks wait."""
    return anyio.run(fn, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})
