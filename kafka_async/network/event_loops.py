"""Event loops of threads of our own. Others, such as the fetching of a token, have asyncio look names up in them.

asyncio does that in an executor, which would not do:

- It takes no work once the main thread has ended, though other threads may go on consuming.
- An event loop does not end before the calls in it do, even those that hang, and starts a thread to wait for them, which cannot be
  started any more in functions of ``atexit``, where consumers are stopped.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

MOST_CALLS: Final = 64
"""Calls of one event loop at once. One that never returns keeps its thread, and each attempt to connect may be another."""


def own_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: asyncio's own with daemon threads, or what the program has chosen in its place, such as uvloop."""
    chosen = asyncio.new_event_loop()
    if type(chosen) is not asyncio.SelectorEventLoop:
        return chosen
    chosen.close()
    return DaemonThreadsLoop()


class DaemonThreadsLoop(asyncio.SelectorEventLoop):
    """Calls functions on threads for which neither its own end waits nor that of the program."""

    def __init__(self) -> None:
        super().__init__()
        self._free = threading.Semaphore(MOST_CALLS)

    def run_in_executor(  # type: ignore[override]  # typeshed pairs the call with its arguments
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """See ``asyncio.loop``. Raises ``RuntimeError`` if too many calls have not returned."""
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        if not self._free.acquire(blocking=False):
            raise RuntimeError(f"{MOST_CALLS} calls have not returned; no further one is made")

        def call() -> T:
            try:
                return func(*args)
            finally:
                self._free.release()

        try:
            future = on_daemon(call)
        except BaseException:
            self._free.release()
            raise
        return asyncio.wrap_future(future, loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


def on_daemon(function: Callable[[], T]) -> "Future[T]":
    """Call a function on a thread of its own."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it cannot be taken back
    call_on_daemon(partial(_work, function, future), "Kafka call")
    return future


def call_on_daemon(work: Callable[[], object], name: str) -> None:
    """Have a daemon thread call a function that raises nothing. Raises ``RuntimeError`` if the system has no thread to spare."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        work()  # Python 3.12.1, for one, starts none in functions of ``atexit``, where blocking consumers are stopped


def _work(function: Callable[[], T], future: "Future[T]") -> None:
    try:
        result = function()
    except BaseException as error:  # the caller's, whatever it is
        future.set_exception(error)
    else:
        future.set_result(result)
