"""Run async code under a virtual clock: time passes only when every task waits, so nothing sleeps and nothing is flaky."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

import anyio
from trio.testing import MockClock

from kafka_async.testing import clock

T = TypeVar("T")
SPINNING: Final = 20_000
"""Turns of the event loop without time passing that are too many in a test of this package, whose programs do little at once."""


class VirtualLoop(clock.VirtualLoop):
    """The loop for users, with a bound on its turns."""

    def __init__(self) -> None:
        super().__init__(SPINNING)


def run_virtual(fn: Callable[[], Awaitable[T]]) -> T:
    """Return what ``fn`` returns. ``anyio.current_time()`` starts at 0 and jumps to the next deadline whenever all tasks wait."""
    return anyio.run(fn, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})


def run_virtual_asyncio(fn: Callable[[], Awaitable[T]]) -> T:
    """As ``run_virtual``, on asyncio. ``asyncio.get_running_loop()`` is a ``VirtualLoop``."""
    return anyio.run(fn, backend="asyncio", backend_options={"loop_factory": VirtualLoop})


def run_seeds(scenario: Callable[[int], Awaitable[None]], seeds: Iterable[int]) -> None:
    """Run a random program with each seed, one in eight on trio. What fails has a note with its seed."""
    for seed in seeds:
        run = run_virtual if seed % 8 == 7 else run_virtual_asyncio
        try:
            run(partial(scenario, seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
