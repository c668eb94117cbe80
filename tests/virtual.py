"""Run async code under a virtual clock: time passes only when every task waits, so nothing sleeps and nothing is flaky."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

import anyio
from trio.testing import MockClock

from kafka_async.testing import clock

P = ParamSpec("P")
T = TypeVar("T")
ENOUGH: Final = 1000.0
"""Virtual seconds that a test may take: only one that hangs needs more."""
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


def virtual_on(test: Callable[P, Awaitable[None]], *runs: Callable[[Callable[[], Awaitable[None]]], None]) -> Callable[P, None]:
    """Return the test, run by each of ``runs``, one after the other; each of them has so much virtual time."""

    @wraps(test)
    def running(*args: P.args, **kwargs: P.kwargs) -> None:
        async def within_limits() -> None:
            with anyio.fail_after(ENOUGH):
                await test(*args, **kwargs)

        for run in runs:
            run(within_limits)

    return running


def run_seeds(scenario: Callable[[int], Awaitable[None]], seeds: Iterable[int]) -> None:
    """Run a random program with each seed, one in eight on trio. What fails has a note with its seed."""
    for seed in seeds:
        run = run_virtual if seed % 8 == 7 else run_virtual_asyncio
        try:
            run(partial(scenario, seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
