"""Threads for what logins wait for: a KDC, a signer, a provider of tokens, the derivation of a key.

They are anyio's, under a limit of their own. anyio's default limit, 40 for each event loop, is for the rest of the program: while
its work, such as the plain endpoints of a web framework, waits for a slow server, connections must still be made.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ...errors import KafkaConnectionError

T = TypeVar("T")

MOST_CALLS: Final = 64
"""Calls at once for the logins of one event loop."""

_limiter: Final = RunVar[anyio.CapacityLimiter]("kafka_async logins")


async def on_thread(function: Callable[[], T]) -> T:
    """Return what ``function`` returns, called on a thread. A login that is cancelled does not wait for it.

    Raises what it raises, or ``KafkaConnectionError`` if the system has no thread to spare.
    """
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MOST_CALLS)
        _limiter.set(limiter)
    begun = False

    def call() -> T:
        nonlocal begun
        begun = True
        return function()

    try:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
    except RuntimeError as error:
        if begun:
            raise
        if threading.main_thread().is_alive():
            raise KafkaConnectionError(f"no login, for want of a thread: {error}") from error
        return function()  # Python 3.12.1, for one, starts none in functions of ``atexit``, where blocking consumers are stopped
