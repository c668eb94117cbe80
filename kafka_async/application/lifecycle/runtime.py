"""Where the background loop runs: as a task on the application's event loop, or on a thread of its own.

The same two queues serve every mode; only the wake-up differs.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from ...errors import IllegalStateError, KafkaTimeoutError
from ...events import BackgroundSnapshot, Call
from ...network.event_loops import own_event_loop
from ...network.waiting import LoopSignal, Signal, ThreadSignal, begin_task, loop_clock, running_loop, threadsafe
from ...values import define, field
from ..task_context import TaskContext, ThreadContext, task_context_here

T = TypeVar("T")

_NAME: Final = "kafka_async background loop"
ANSWER_TIME: Final = 5.0
"""Seconds within which the background's thread must answer a synchronous call."""


class Launchable(Protocol):
    """The background loop, as far as a runtime sees it."""

    def snapshot(self) -> BackgroundSnapshot: ...

    async def run(self) -> None: ...

    def resume(self) -> None: ...

    def wake(self) -> None: ...


class Runtime(Protocol):
    """Runs the background loop and carries wake-ups between the sides."""

    signal: Signal
    task_context: TaskContext | None
    """The callers; ``None`` before the start."""

    def clock(self) -> float:
        """Return the time of the background loop's clock, in seconds."""

    @property
    def has_system_clock(self) -> bool:
        """``clock`` is the system's monotonic clock."""

    @property
    def blocks(self) -> bool:
        """The application's calls block their thread: it may have no event loop."""

    def snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics, from where it may be touched."""

    def launch(self, loop: Launchable) -> None: ...

    def wake_background(self) -> None: ...

    def wake_application(self) -> None: ...

    def shield(self) -> AbstractContextManager[Any]:
        """Return a context in which the cancellation of the surrounding scope waits."""

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        """Return a context that ends what waits in it after ``seconds``, if there is an event loop to do so."""

    def ask_now(self, direct: Callable[[], T], send: Callable[[Call[T]], None]) -> T:
        """Return an answer of the background without awaiting: by ``direct`` if we are in its thread, else by an event."""

    async def apart(self, function: Callable[[], T]) -> T:
        """Call a function that takes long, such as a large import: in a thread if an event loop would stand still meanwhile.

        A clock that is not the system's may jump while a thread is at work, so there it is called right away.
        """

    async def join(self, seconds: float) -> None:
        """Wait until the loop that is stopping is gone; at most ``seconds``, since the system may hold it (a name look-up)."""

    @property
    def can_revive(self) -> bool:
        """See ``Reviver``."""

    def revive(self) -> bool:
        """See ``Reviver``."""

    def reset(self) -> None:
        """Be as before the launch, if the loop is gone: the next one may be launched elsewhere."""

    def abort(self) -> None:
        """End the loop now."""

    def abandon(self) -> None:
        """End the loop soon, from any thread: the consumer is garbage."""


def _is_system_clock(task_context: TaskContext | None) -> bool:
    """Whether the event loop of ``callers`` measures the system's monotonic clock; loops of tests may not."""
    loop = getattr(task_context, "loop", None)
    return loop is not None and type(loop).time in (asyncio.BaseEventLoop.time, getattr(_uvloop(), "time", None))


def _uvloop() -> Any:
    return getattr(sys.modules.get("uvloop"), "Loop", None)


def _snapshot_of(loop: Launchable | None) -> BackgroundSnapshot:
    if loop is None:
        raise IllegalStateError("the consumer was not started")
    return loop.snapshot()


async def _apart(task_context: TaskContext | None, function: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(function) if _is_system_clock(task_context) else function()


async def _run_in_scope(run: Callable[[], Coroutine[Any, Any, None]], scope: anyio.CancelScope, gone: anyio.Event) -> None:
    try:
        with scope:
            await run()
    finally:
        gone.set()


@define(eq=False)
class TaskRuntime:
    """The loop is a task on the application's own event loop."""

    signal: Signal = field(factory=LoopSignal)
    task_context: TaskContext | None = field(default=None, init=False)
    _loop: Launchable | None = field(default=None, init=False)
    _home: int = field(default=0, init=False)
    """The thread of the event loop."""
    _wake_from_afar: Callable[[], None] | None = field(default=None, init=False)
    _wake_application_from_afar: Callable[[], None] | None = field(default=None, init=False)
    _task: "asyncio.Task[None] | None" = field(default=None, init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)
    _cancel_from_afar: Callable[[], None] | None = field(default=None, init=False)
    """Cancels ``_scope`` soon."""
    _aborted: bool = field(default=False, init=False)
    _gone: anyio.Event = field(factory=anyio.Event, init=False)
    clock: Callable[[], float] = field(default=anyio.current_time, init=False)

    @property
    def has_system_clock(self) -> bool:
        return _is_system_clock(self.task_context)

    @property
    def blocks(self) -> bool:
        return False

    def snapshot(self) -> BackgroundSnapshot:
        return _snapshot_of(self._loop)

    def launch(self, loop: Launchable) -> None:
        self._loop = loop
        self._home = threading.get_ident()
        self._wake_from_afar = threadsafe(loop.wake)
        self._wake_application_from_afar = threadsafe(self.signal.wake)
        self.task_context = task_context_here()
        self._aborted = False
        self._gone = gone = anyio.Event()
        if hasattr(current_token().native_token, "run_sync_soon"):
            import trio  # it is running, so it is imported already

            self.clock = trio.lowlevel.current_clock().current_time  # anyio's is that of the thread which asks
            self._scope = scope = anyio.CancelScope()
            self._cancel_from_afar = threadsafe(scope.cancel)
            trio.lowlevel.spawn_system_task(_run_in_scope, loop.run, scope, gone, name=_NAME)
        else:
            self.clock = loop_clock()  # anyio.current_time looks this up at each call
            self._task = begin_task(asyncio.get_running_loop(), loop.run(), _NAME)

    def wake_background(self) -> None:
        if self._loop is None or self._wake_from_afar is None:
            return
        if threading.get_ident() == self._home:
            self._loop.wake()
        else:  # a handler on a thread acknowledges a shared record
            self._wake_from_afar()

    def wake_application(self) -> None:
        if self._wake_application_from_afar is None or threading.get_ident() == self._home:
            self.signal.wake()
        else:  # a handler on a thread has ended with a shared record
            self._wake_application_from_afar()

    def shield(self) -> AbstractContextManager[Any]:
        return anyio.CancelScope(shield=True)

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        return anyio.move_on_after(seconds)

    def ask_now(self, direct: Callable[[], T], send: Callable[[Call[T]], None]) -> T:
        return direct()

    async def apart(self, function: Callable[[], T]) -> T:
        return await _apart(self.task_context, function)

    async def join(self, seconds: float) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)
        if self._scope is not None:
            with anyio.move_on_after(seconds):
                await self._gone.wait()
        self.signal.rest()

    @property
    def can_revive(self) -> bool:
        return self._task is not None and not self._aborted and self.task_context is not None and not self.task_context.is_gone

    def revive(self) -> bool:
        home: asyncio.AbstractEventLoop | None = getattr(self.task_context, "loop", None)
        if self._loop is None or home is None or running_loop() is not home:
            return False
        self._loop.resume()
        self._task = begin_task(home, self._loop.run(), _NAME)
        return True

    def reset(self) -> None:
        if self._gone.is_set() or (self._task is not None and self._task.done()):
            self.task_context = self._task = self._scope = None  # what the loop knew at its end can still be looked at
            self._wake_from_afar = self._wake_application_from_afar = self._cancel_from_afar = None

    def abort(self) -> None:
        self._aborted = True
        if self._task is not None:
            self._task.cancel()
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        self._aborted = True
        loop = getattr(self.task_context, "loop", None)
        if self._task is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._task.cancel)
        if self._cancel_from_afar is not None:
            self._cancel_from_afar()


@define(eq=False)
class ThreadRuntime:
    """The loop has a thread and an event loop of its own; the application is a task elsewhere, or a thread without a loop."""

    signal: Signal
    task_context: TaskContext | None = field(default=None, init=False)
    _loop: Launchable | None = field(default=None, init=False)
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

    @property
    def has_system_clock(self) -> bool:
        return True

    @property
    def blocks(self) -> bool:
        return isinstance(self.signal, ThreadSignal)

    def snapshot(self) -> BackgroundSnapshot:
        return _snapshot_of(self._loop)

    def launch(self, loop: Launchable) -> None:
        self._loop = loop
        self.task_context = ThreadContext() if self.blocks else task_context_here()
        self._ended = ended = threading.Event()
        self._wake_application = self.signal.wake if self.blocks else threadsafe(self.signal.wake)
        # A daemon: a program that forgets to stop its consumer must still be able to exit.
        self._thread = threading.Thread(target=self._main, args=(loop, ended), name=_NAME, daemon=True)
        self._thread.start()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Have the calls come from tasks of the running event loop, for as long as the block lasts, instead of from threads.

        For the blocking facade, which processes on an event loop of another thread. No other call may be under way.
        """
        before = self.signal, self.task_context, self._wake_application
        self.signal = LoopSignal()
        self.task_context = task_context_here()
        self._wake_application = threadsafe(self.signal.wake)
        try:
            yield
        finally:
            self.signal, self.task_context, self._wake_application = before
            self.wake_application()  # the next call sees what came meanwhile

    def _main(self, loop: Launchable, ended: threading.Event) -> None:
        async def main() -> None:
            with anyio.CancelScope() as scope:
                self._abort = threadsafe(scope.cancel)
                self._wake_background = threadsafe(loop.wake)
                await loop.run()

        try:
            anyio.run(main, backend_options={"loop_factory": own_event_loop})
        finally:
            ended.set()  # not the attribute: what hangs may keep a thread until the next one is launched
            self.wake_application()

    def wake_background(self) -> None:
        if self._wake_background is not None:
            self._wake_background()

    def wake_application(self) -> None:
        if self._wake_application is not None:
            self._wake_application()

    def shield(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.blocks else anyio.CancelScope(shield=True)

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        return nullcontext() if self.blocks else anyio.move_on_after(seconds)

    def ask_now(self, direct: Callable[[], T], send: Callable[[Call[T]], None]) -> T:
        if threading.current_thread() is self._thread:  # a trace listener, a handler of the log or a token provider asks
            return direct()
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

    async def apart(self, function: Callable[[], T]) -> T:
        return await _apart(self.task_context, function)  # a thread without an event loop has nothing that would stand still

    async def join(self, seconds: float) -> None:
        deadline = self.clock() + seconds
        while not self._ended.is_set() and (left := deadline - self.clock()) > 0:
            ticket = self.signal.ticket()
            if not self._ended.is_set():
                await self.signal.wait(ticket, left)
        if self._thread is not None and self._ended.is_set():
            self._thread.join(1.0)  # it has nothing left to do
        self.signal.rest()

    @property
    def can_revive(self) -> bool:
        return False  # nobody else's tasks run on the event loop of the thread

    def revive(self) -> bool:
        return False

    def reset(self) -> None:
        if self._ended.is_set():
            self.task_context = self._thread = None
            self._wake_background = self._wake_application = self._abort = None

    def abort(self) -> None:
        if self._abort is not None:
            self._abort()

    def abandon(self) -> None:
        self.abort()
