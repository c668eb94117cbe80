"""Where the background loop runs: as a task beside the application, or on a thread of its own.

Decides: how the two sides wake each other. Owns: the task or the thread. Must never know what the loop does. The same two
queues serve every mode; only the wake-up differs.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token
from attrs import define, field

from ..errors import KafkaTimeoutError
from ..events import Call
from ..network.waiting import LoopSignal, Signal, ThreadSignal, threadsafe

T = TypeVar("T")

ANSWER_TIME: Final = 5.0
"""Seconds that a synchronous question to the background's thread may take."""


class Launchable(Protocol):
    """The background loop, as far as a runtime sees it."""

    async def run(self) -> None: ...

    def wake(self) -> None: ...


class Runtime(Protocol):
    """Runs the background loop and carries wake-ups between the sides."""

    signal: Signal

    def clock(self) -> float:
        """Return the time of the background loop's clock, in seconds."""
        ...

    def launch(self, loop: Launchable) -> None: ...

    def wake_background(self) -> None: ...

    def wake_application(self) -> None: ...

    def shield(self) -> AbstractContextManager[Any]:
        """Return a context in which the cancellation of the surrounding scope waits."""
        ...

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        """Return a context that ends what waits in it after ``seconds``, where there is an event loop to do so."""
        ...

    def ask_now(self, direct: Callable[[], T], send: Callable[[Call[T]], None]) -> T:
        """Return an answer of the background without awaiting: ``direct`` where it shares our thread, else by an event."""
        ...

    async def join(self, seconds: float) -> None:
        """Wait until the loop that was told to stop is gone; at most ``seconds``, since the system may hold it (a name look-up)."""
        ...

    def abort(self) -> None:
        """End the loop now."""
        ...


@define(eq=False)
class TaskRuntime:
    """The loop is a task on the application's own event loop."""

    signal: Signal = field(factory=LoopSignal)
    _loop: Launchable | None = field(default=None, init=False)
    _task: "asyncio.Task[None] | None" = field(default=None, init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)
    _gone: anyio.Event = field(factory=anyio.Event, init=False)
    _time: Callable[[], float] = field(default=anyio.current_time, init=False)

    def clock(self) -> float:
        return self._time()

    def launch(self, loop: Launchable) -> None:
        self._loop = loop
        if hasattr(current_token().native_token, "run_sync_soon"):
            import trio  # imported where it runs already

            self._scope = anyio.CancelScope()
            trio.lowlevel.spawn_system_task(self._run_in_scope, loop.run, name="kafka_async background loop")
        else:
            self._time = asyncio.get_running_loop().time  # what anyio.current_time finds out anew at each call
            self._task = asyncio.get_running_loop().create_task(loop.run(), name="kafka_async background loop")

    async def _run_in_scope(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            with self._scope or anyio.CancelScope():
                await run()
        finally:
            self._gone.set()

    def wake_background(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def wake_application(self) -> None:
        self.signal.wake()

    def shield(self) -> AbstractContextManager[Any]:
        return anyio.CancelScope(shield=True)

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        return anyio.move_on_after(seconds)

    def ask_now(self, direct: Callable[[], T], send: Callable[[Call[T]], None]) -> T:
        return direct()

    async def join(self, seconds: float) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)
        if self._scope is not None:
            with anyio.move_on_after(seconds):
                await self._gone.wait()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._scope is not None:
            self._scope.cancel()


@define(eq=False)
class ThreadRuntime:
    """The loop has a thread and an event loop of its own; the application is a task elsewhere, or a thread without a loop."""

    signal: Signal
    _thread: threading.Thread | None = field(default=None, init=False)
    _wake_background: Callable[[], None] | None = field(default=None, init=False)
    _wake_application: Callable[[], None] | None = field(default=None, init=False)
    _abort: Callable[[], None] | None = field(default=None, init=False)
    _ended: threading.Event = field(factory=threading.Event, init=False)

    @classmethod
    def for_tasks(cls) -> "ThreadRuntime":
        """The application's calls are tasks of an event loop."""
        return cls(LoopSignal())

    @classmethod
    def for_threads(cls) -> "ThreadRuntime":
        """The application's calls block their thread."""
        return cls(ThreadSignal())

    def clock(self) -> float:
        return time.monotonic()

    def launch(self, loop: Launchable) -> None:
        blocking = isinstance(self.signal, ThreadSignal)
        self._wake_application = self.signal.wake if blocking else threadsafe(self.signal.wake)
        # A daemon: a program that forgets to stop its consumer must still be able to exit.
        self._thread = threading.Thread(target=self._main, args=(loop,), name="kafka_async background loop", daemon=True)
        self._thread.start()

    def _main(self, loop: Launchable) -> None:
        async def main() -> None:
            with anyio.CancelScope() as scope:
                self._abort = threadsafe(scope.cancel)
                self._wake_background = threadsafe(loop.wake)
                await loop.run()

        try:
            anyio.run(main)
        finally:
            self._ended.set()
            self.wake_application()

    def wake_background(self) -> None:
        if self._wake_background is not None:
            self._wake_background()

    def wake_application(self) -> None:
        if self._wake_application is not None:
            self._wake_application()

    def shield(self) -> AbstractContextManager[Any]:
        return nullcontext() if isinstance(self.signal, ThreadSignal) else anyio.CancelScope(shield=True)

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        return nullcontext() if isinstance(self.signal, ThreadSignal) else anyio.move_on_after(seconds)

    def ask_now(self, direct: Callable[[], T], send: Callable[[Call[T]], None]) -> T:
        answered = threading.Event()
        call: Call[T] = Call(self.clock() + ANSWER_TIME, answered.set)
        send(call)
        deadline = self.clock() + ANSWER_TIME
        while not answered.wait(0.05) and not self._ended.is_set() and self.clock() < deadline:
            pass
        if self._ended.is_set() and not call.done:
            return direct()  # the thread that owned it is gone
        if not call.done:
            call.withdraw()
            raise KafkaTimeoutError(f"the background thread did not answer within {ANSWER_TIME:.0f} s")
        return call.result()

    async def join(self, seconds: float) -> None:
        deadline = self.clock() + seconds
        while not self._ended.is_set() and (left := deadline - self.clock()) > 0:
            ticket = self.signal.ticket()
            if not self._ended.is_set():
                await self.signal.wait(ticket, left)
        if self._thread is not None and self._ended.is_set():
            self._thread.join(1.0)  # it has nothing left to do

    def abort(self) -> None:
        if self._abort is not None:
            self._abort()
