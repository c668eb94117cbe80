"""A simulated cluster on TCP with a thread and an event loop of its own, for programs that have no loop, or that block theirs.

All work on the cluster happens in its thread.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self, TypeVar
from weakref import WeakKeyDictionary

from attrs import define, field

from .clusters import Cluster

T = TypeVar("T")


@define(eq=False, repr=False)
class _Service:
    """The thread of one cluster."""

    cluster: Cluster
    bootstrap: str = ""
    users: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _over: asyncio.Event | None = None

    def start(self) -> None:
        """Start the thread. Raises ``OSError`` if there is no port, ``RuntimeError`` if an event loop serves the cluster."""
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="simulated-cluster", daemon=True)
        self._thread.start()
        self.bootstrap = ready.result()

    def stop(self) -> None:
        """Close the sockets, and wait for the thread."""
        if self.loop is not None and self._over is not None and self._thread is not None:
            self.loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self.loop = None

    async def _serve(self, ready: "Future[str]") -> None:
        try:
            if self.cluster.is_served:
                raise RuntimeError("an event loop serves the cluster already; a thread would touch it at the same time")
            async with self.cluster:
                bootstrap = await self.cluster.serve()
                self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
                ready.set_result(bootstrap)
                await self._over.wait()
        except (OSError, RuntimeError) as error:
            if ready.done():
                raise
            ready.set_exception(error)


_services: Final["WeakKeyDictionary[Cluster, _Service]"] = WeakKeyDictionary()
_entering: Final = threading.Lock()
"""Held while a block begins or ends."""


@define(eq=False)
class ThreadedCluster:
    """Listens on the loopback for as long as the ``with`` block lasts.

    Blocks may be nested, of one ``ThreadedCluster`` or of several with the same ``Cluster``: they share the thread and the address,
    and the last that ends closes them.
    """

    cluster: Cluster
    bootstrap: str = field(default="", init=False)
    """``host:port`` of every broker, separated by commas."""
    _entered: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        with _entering:
            service = _services.get(self.cluster) or _Service(self.cluster)
            if not service.users:
                service.start()
                _services[self.cluster] = service
            service.users += 1
            self._entered += 1
            self.bootstrap = service.bootstrap
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with _entering:
            service = _services[self.cluster]
            service.users -= 1
            self._entered -= 1
            if not service.users:
                del _services[self.cluster]
                service.stop()

    def call(self, fn: Callable[[Cluster], T]) -> "Future[T]":
        """Call ``fn`` with the cluster in its thread; return the future. Raises ``RuntimeError`` outside the ``with`` block."""
        service = _services.get(self.cluster) if self._entered else None
        if service is None or service.loop is None:
            raise RuntimeError("the cluster is not running; use it in a 'with' block")
        done: Future[T] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                result = fn(self.cluster)
            except BaseException as error:  # what pytest.fail and pytest.skip raise is no Exception
                done.set_exception(error)
            else:
                done.set_result(result)

        service.loop.call_soon_threadsafe(work)
        return done
