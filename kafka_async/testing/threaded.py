"""A simulated cluster on TCP with a thread and an event loop of its own, for programs that have no loop, or that block theirs.

Decides: nothing. Owns: the thread. Must never let two threads touch the cluster: all work on it happens in its thread.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from attrs import define, field

from .clusters import Cluster

T = TypeVar("T")


@define(eq=False)
class ThreadedCluster:
    """Listens on the loopback for as long as the ``with`` block lasts."""

    cluster: Cluster
    bootstrap: str = field(default="", init=False)
    """``host:port`` of every broker, separated by commas."""
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _over: asyncio.Event | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="simulated-cluster", daemon=True)
        self._thread.start()
        self.bootstrap = ready.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._loop is not None and self._over is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._loop = None

    async def _serve(self, ready: "Future[str]") -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self.cluster:
                ready.set_result(await self.cluster.serve())
                await self._over.wait()
        except OSError as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def call(self, fn: Callable[[Cluster], T]) -> "Future[T]":
        """Call ``fn`` with the cluster in its thread; return the future. Raises ``RuntimeError`` outside the ``with`` block."""
        if self._loop is None:
            raise RuntimeError("the cluster is not running; use it in a 'with' block")
        done: Future[T] = Future()

        def work() -> None:
            try:
                done.set_result(fn(self.cluster))
            except Exception as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(work)
        return done
