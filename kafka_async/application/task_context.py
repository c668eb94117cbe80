"""The callers: tasks of an asyncio event loop, tasks of trio, or threads without a loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Protocol

import anyio
from anyio.lowlevel import current_token

from ..errors import IllegalStateError
from ..network.waiting import begin_task, running_loop
from ..values import define, field
from .callbacks import CANCELLED, LISTENER

_FOREIGN = "the consumer belongs to the event loop on which it was started; call it from there"
_GONE = "the event loop on which the consumer was started is closed; make a new consumer"


class Owned(Protocol):
    """An awaitable call-back of the user that is running. It goes on if the read call that began it is cancelled."""

    @property
    def done(self) -> bool: ...

    @property
    def error(self) -> BaseException | None:
        """What it raised; only after ``done``. Its cancellation is nobody else's, so it is ``IllegalStateError`` here."""

    def cancel(self) -> None:
        """End it."""


class Stay(Protocol):
    """A task's or thread's stay in a block that can be ended from outside, as with a timeout."""

    @property
    def holder(self) -> Any:
        """The task or thread."""

    def end(self) -> None:
        """Cancel the block. A thread cannot be cancelled."""

    def leave(self, error: BaseException | None) -> bool:
        """The block is left with ``error``. Return whether that is the cancellation by ``end``, and nobody else's."""


class TaskContext(Protocol):
    """The tasks or threads that use a consumer."""

    def enter(self) -> Stay:
        """The current task or thread enters a block."""

    def current(self) -> Any:
        """Return the current task or thread."""

    def has_ended(self, holder: Any) -> bool:
        """Whether a task or thread has ended, in whatever way."""

    def has_ended_well(self, holder: Any) -> bool:
        """Whether a task returned without an exception; ``False`` if that is not known."""

    def failure(self, holder: Any) -> BaseException | None:
        """Return the exception or cancellation that ended a task; ``None`` also if that is not known."""

    def check(self) -> None:
        """Raise ``IllegalStateError`` anywhere but on the consumer's event loop."""

    @property
    def is_gone(self) -> bool:
        """The event loop on which the consumer was started is closed."""

    def running_tasks(self) -> tuple[Mapping[Any, Any] | None, Any]:
        """Return where the current task may be looked up, and by what: that is a tenth of the time that ``current`` takes."""

    def own(self, coroutine: Coroutine[Any, Any, None], ended: Callable[[], None]) -> Owned:
        """Run a coroutine to its end, even if nobody waits for it any more; then call ``ended``."""


@define(eq=False)
class _TaskStay:
    holder: "asyncio.Task[Any]"
    before: int
    """Cancellations of the task that were under way before."""
    ended: bool = False

    def end(self) -> None:
        self.ended = not self.holder.done() and self.holder.cancel()

    def leave(self, error: BaseException | None) -> bool:
        return self.ended and self.holder.uncancel() <= self.before and isinstance(error, asyncio.CancelledError)


@define(eq=False)
class _ThreadStay:
    holder: threading.Thread

    def end(self) -> None:
        return

    def leave(self, error: BaseException | None) -> bool:
        return False


@define(eq=False)
class _OwnedTask:
    task: "asyncio.Task[None]"

    @property
    def done(self) -> bool:
        return self.task.done()

    @property
    def error(self) -> BaseException | None:
        return IllegalStateError(CANCELLED.format(LISTENER)) if self.task.cancelled() else self.task.exception()

    def cancel(self) -> None:
        self.task.cancel()


@define(eq=False)
class AsyncioTaskContext:
    """Tasks of one asyncio event loop."""

    loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop)

    def enter(self) -> Stay:
        holder = self.current()
        return _TaskStay(holder, holder.cancelling()) if isinstance(holder, asyncio.Task) else _ThreadStay(holder)

    def current(self) -> Any:
        try:
            return asyncio.current_task()
        except RuntimeError:  # a handler on a thread
            return threading.current_thread()

    def has_ended(self, holder: Any) -> bool:
        return isinstance(holder, asyncio.Task) and holder.done()

    def has_ended_well(self, holder: Any) -> bool:
        return isinstance(holder, asyncio.Task) and holder.done() and not holder.cancelled() and holder.exception() is None

    def failure(self, holder: Any) -> BaseException | None:
        if not isinstance(holder, asyncio.Task) or not holder.done():
            return None
        return asyncio.CancelledError() if holder.cancelled() else holder.exception()

    def check(self) -> None:
        if running_loop() is not self.loop:
            raise IllegalStateError(_GONE if self.is_gone else _FOREIGN)

    @property
    def is_gone(self) -> bool:
        return self.loop.is_closed()

    def running_tasks(self) -> tuple[Mapping[Any, Any] | None, Any]:
        # A step of an iteration must not pay for a call. Python 3.14 has it elsewhere, and finds it faster.
        known = getattr(asyncio.tasks, "_current_tasks", None)
        is_that = isinstance(known, dict) and known.get(self.loop) is asyncio.current_task(self.loop) is not None
        return (known, self.loop) if is_that else (None, None)

    def own(self, coroutine: Coroutine[Any, Any, None], ended: Callable[[], None]) -> Owned:
        task = begin_task(self.loop, coroutine, "kafka_async call-back")
        task.add_done_callback(lambda _: ended())
        return _OwnedTask(task)


@define(eq=False)
class _ScopeStay:
    holder: Any
    scope: Any
    """A cancel scope of trio."""

    def end(self) -> None:
        self.scope.cancel()

    def leave(self, error: BaseException | None) -> bool:
        ended = self.scope.__exit__(None if error is None else type(error), error, None if error is None else error.__traceback__)
        return bool(ended) and error is not None  # a scope of trio also says yes to a block that was left without an error


@define(eq=False)
class _OwnedSystemTask:
    done: bool = False
    error: BaseException | None = None
    scope: anyio.CancelScope = field(factory=anyio.CancelScope)

    def cancel(self) -> None:
        self.scope.cancel()

    async def run(self, coroutine: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        try:
            with self.scope:
                await coroutine
        except Exception as error:  # of the user: raised from the read call that waits for it
            self.error = error
        finally:
            self.done = True
            ended()


@define(eq=False)
class TrioTaskContext:
    """Tasks of one trio run. Trio does not say how a task ended."""

    token: Any = field(factory=lambda: current_token().native_token)

    def enter(self) -> Stay:
        import trio  # it is running, so it is imported already

        holder = self.current()
        if isinstance(holder, threading.Thread):
            return _ThreadStay(holder)
        scope = trio.CancelScope()
        scope.__enter__()
        return _ScopeStay(holder, scope)

    def current(self) -> Any:
        import trio  # it is running, so it is imported already

        try:
            return trio.lowlevel.current_task()
        except RuntimeError:  # a handler on a thread
            return threading.current_thread()

    def has_ended(self, holder: Any) -> bool:
        return getattr(getattr(holder, "coro", None), "cr_frame", holder) is None

    def has_ended_well(self, holder: Any) -> bool:
        return False

    def failure(self, holder: Any) -> BaseException | None:
        return None

    def check(self) -> None:
        try:
            running = current_token().native_token
        except Exception:  # no event loop at all: which error that is depends on what is installed
            running = None
        if running is not self.token:
            raise IllegalStateError(_FOREIGN)

    @property
    def is_gone(self) -> bool:
        return False

    def running_tasks(self) -> tuple[Mapping[Any, Any] | None, Any]:
        return None, None

    def own(self, coroutine: Coroutine[Any, Any, None], ended: Callable[[], None]) -> Owned:
        import trio

        owned = _OwnedSystemTask()
        name, context = "kafka_async call-back", copy_context()
        trio.lowlevel.spawn_system_task(owned.run, coroutine, ended, name=name, context=context)
        return owned


@define(eq=False)
class _OwnedCall:
    error: BaseException | None
    done: bool = True

    def cancel(self) -> None:
        return


@define(eq=False)
class ThreadContext:
    """Threads without an event loop. Nothing shows whether one ended well."""

    def enter(self) -> Stay:
        return _ThreadStay(threading.current_thread())

    def current(self) -> Any:
        return threading.current_thread()

    def has_ended(self, holder: Any) -> bool:
        return isinstance(holder, threading.Thread) and not holder.is_alive()

    def has_ended_well(self, holder: Any) -> bool:
        return False

    def failure(self, holder: Any) -> BaseException | None:
        return None

    def check(self) -> None:
        return

    @property
    def is_gone(self) -> bool:
        return False

    def running_tasks(self) -> tuple[Mapping[Any, Any] | None, Any]:
        return None, None

    def own(self, coroutine: Coroutine[Any, Any, None], ended: Callable[[], None]) -> Owned:
        try:
            coroutine.send(None)
        except StopIteration:
            return _OwnedCall(None)
        except Exception as error:
            return _OwnedCall(error)
        coroutine.close()
        return _OwnedCall(
            IllegalStateError("an 'async def' call-back needs an event loop; give the blocking consumer plain functions")
        )


def cancellations() -> int:
    """Return how often the current task was cancelled, felt or not."""
    task = asyncio.current_task() if running_loop() is not None else None
    return task.cancelling() if task is not None else 0


@contextmanager
def in_this_task(whose: str, before: int) -> Iterator[None]:
    """A call-back of the user runs in the caller's task. If what it waits for was cancelled, and not the task, that is its failure.

    The sequence: a program cancels all its tasks and stops the consumer, and the listener waits for one of them. ``whose``: whose
    call-back it is. ``before``: the cancellations of the task that it has felt.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if running_loop() is None or cancellations() > before:
            raise
        raise IllegalStateError(CANCELLED.format(whose)) from error


def task_context_here() -> TaskContext:
    """Return the kind of callers for the running event loop."""
    return AsyncioTaskContext() if running_loop() is not None else TrioTaskContext()
