"""Run a program until it ends or gets a signal: SIGTERM is handled as ``asyncio.run`` handles Ctrl-C.

The process ends when its ``async with`` blocks are left: a member that does not leave keeps its partitions until its session ends.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

EXIT_CODE: Final = 128 + signal.SIGTERM
"""The exit code of a process that ended by SIGTERM, as in shells: 143."""
PATIENCE: Final = 60.0
"""Seconds in which the tasks that were cancelled with ``main`` end, after it has: what a stop takes at most by default."""
SAME_REQUEST: Final = 1.0
"""Seconds after a signal in which another one is the same request: ``timeout`` signals a process and then its whole group."""


class Terminated(Exception):  # not an error: it shows how the program ended
    """SIGTERM came, or another signal that ends the program, and it has ended because of it. Its argument is the exit code."""

    @property
    def code(self) -> int:
        """The exit code of a process that ended by this signal, as in shells."""
        return int(self.args[0])


async def until_terminated(main: Coroutine[Any, Any, T], gone: asyncio.Event | None = None, *, hangup: bool = False) -> T:
    """Await ``main``; SIGTERM cancels it, and so does ``gone``. A second SIGTERM, a second later or more, ends the process at once.

    ``hangup``: so does SIGHUP, which a terminal sends that goes away, unless ``nohup`` has it ignored.

    Raises ``Terminated`` if ``main`` has ended by that cancellation. Outside the main thread signals belong to other code, and
    this only awaits.
    """
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    cancellations: dict[asyncio.Task[Any], int] | None = None
    code = EXIT_CODE

    def cancel(number: int = signal.SIGTERM) -> None:
        nonlocal cancellations, code
        if cancellations is None:  # a second time, what ends in order would be cut short
            code = 128 + number
            cancellations = {each: each.cancelling() for each in asyncio.all_tasks()}
            task.cancel()

    try:
        before = _install(_handler(lambda number: loop.call_soon_threadsafe(cancel, number)), hangup=hangup)
    except ValueError:  # not the main thread
        return await task
    watching = asyncio.ensure_future(gone.wait()) if gone is not None else None
    if watching is not None:
        watching.add_done_callback(lambda watched: None if watched.cancelled() else cancel())
    try:
        try:
            return await task
        finally:
            if cancellations is not None:
                await _left(cancellations)
    except asyncio.CancelledError:
        if cancellations is None:
            raise
        raise Terminated(code) from None
    finally:
        if watching is not None:
            watching.cancel()
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)


def _install(handler: Callable[[int, FrameType | None], None], *, hangup: bool) -> dict[int, Any]:
    """Handle SIGTERM, and SIGHUP. Return what was there before. Raises ``ValueError`` outside the main thread."""
    before: dict[int, Any] = {signal.SIGTERM: signal.signal(signal.SIGTERM, handler)}
    number = getattr(signal, "SIGHUP", None)  # not on every system
    if hangup and number is not None and signal.getsignal(number) is signal.SIG_DFL:
        before[number] = signal.signal(number, handler)
    return before


async def _left(before: dict[asyncio.Task[Any], int]) -> None:
    """Wait for the tasks that were cancelled since ``before``, the number of cancellations of each.

    ``gather`` ends with the first task that is cancelled, and ``main`` with it. The others are still draining, and the end of the
    event loop would cancel them a second time. Older cancellations do not tell that a task is ending: some libraries cancel one
    for a time-out and never take it back.
    """
    cancelled = {each for each in asyncio.all_tasks() if each.cancelling() > before.get(each, 0)}
    if leaving := cancelled - {asyncio.current_task()}:
        await asyncio.wait(leaving, timeout=PATIENCE)


def _handler(cancel: Callable[[int], object]) -> Callable[[int, FrameType | None], None]:
    """Return a handler that calls ``cancel`` for the first signal, and ends the process for one that comes later."""
    first_at: float | None = None

    def terminate(number: int, _frame: FrameType | None) -> None:
        nonlocal first_at
        now = time.monotonic()  # the event loop's clock may be a virtual one
        if first_at is None:
            first_at = now
            cancel(number)
        elif now - first_at >= SAME_REQUEST:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    return terminate


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run a coroutine as ``asyncio.run`` does, and end it cleanly at SIGTERM too. Return what it returns.

    SIGTERM cancels ``main``, as Ctrl-C does: ``async with consumer`` is left, the member leaves its group, and the others get its
    partitions at once instead of after ``session_timeout_ms``. At SIGTERM, tasks that are cancelled with ``main``, such as those of
    ``gather``, have another minute to end once it has ended. The exit code is then 143. Records that a cancelled task holds are not
    consumed: they are read again. To finish them first, call ``consumer.stop()`` in a signal handler, or use ``process``. A second
    SIGTERM, a second later or more, ends the process at once.

    Raises what ``main`` raises, ``SystemExit(143)`` after SIGTERM, ``RuntimeError`` if an event loop runs already.
    """
    with asyncio.Runner(debug=debug) as runner:
        try:
            return runner.run(until_terminated(main))
        except Terminated as ended:
            code = ended.code
    raise SystemExit(code)
