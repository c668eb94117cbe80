"""Tasks that end only when we end them, and that belong to no task of the application.

On asyncio anybody can cancel any task: an endpoint that cancels the task of a handler, a timeout helper that cancels the wrong one,
a shutdown that cancels them all. A worker that died of that would take all processing with it. So such a cancellation ends what the
task is doing, which begins anew. And since no task of the application owns these tasks, the block may be entered in one task and
left in another, which a task group of anyio does not allow.

A cancellation is delivered once, as asyncio does it, so that ``finally: await rollback()`` runs. anyio's cancel scopes would
cancel the roll-back as well. On trio cancel scopes are all there is, and its users know to shield what cleans up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from anyio import CancelScope, get_cancelled_exc_class, get_current_task
from anyio.lowlevel import checkpoint

from ...network.waiting import begin_task, running_loop
from ...values import define, field

Function = Callable[[], Awaitable[object]]

SECOND: float = 1.0
"""Seconds after which something that was cancelled, and goes on, is cancelled again."""


class Running(Protocol):
    """One of our tasks, which calls a function again and again."""

    cancelled: bool
    """``cancel`` was called since the function was called the last time."""
    disturbances: Callable[[], int]
    """How many cancellations reached the task that were not withdrawn, including ours."""

    @property
    def done(self) -> bool: ...

    def cancel(self) -> None:
        """Cancel what the function does, once."""

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        """Return a context that raises ``TimeoutError`` if what runs in it takes longer, after one cancellation.

        What goes on nevertheless is cancelled again, after as long again but at least ``SECOND``.
        """


class Tasks(Protocol):
    """The tasks of one processing, and the block that they run beside."""

    @property
    def swept(self) -> bool:
        """All tasks of the event loop were cancelled, as some programs do to shut down."""

    def start(self, function: Function, until: Callable[[], bool] | None = None, *, lookout: bool = False) -> Running:
        """Call ``function`` in a task, once or, even if it was cancelled, again until ``until`` holds.

        ``lookout``: it shows whether all tasks are cancelled, since nobody means this one in particular. It uses no cancel scopes.
        """

    def interrupt(self) -> None:
        """Cancel the body of the block."""

    async def left(self, error: BaseException | None) -> bool:
        """The body ended, with ``error``. Return whether that is the cancellation by ``interrupt``, and no other."""

    async def join(self) -> int:
        """Wait for all tasks, which were told to end. Return how many ignore that."""


def tasks_here(failed: Callable[[BaseException], None], swept: Callable[[], None]) -> Tasks:
    """Return a place for tasks on the running event loop, with the current task in the block.

    ``failed`` gets what a function raises, which ends its task. ``swept`` is called when all tasks were cancelled.
    """
    return _AsyncioTasks(failed, swept) if running_loop() is not None else _TrioTasks(failed)


def is_thrown_away(task: int) -> bool:
    """Whether a ``GeneratorExit`` in the task of this number means that the interpreter drops it, with its event loop.

    Otherwise something that runs in the task has raised it.
    """
    try:
        return get_current_task().id != task
    except (RuntimeError, AttributeError):  # there is no event loop any more, or it runs no task
        return True


# --- asyncio -------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class _AsyncioTask:
    function: Function
    until: Callable[[], bool] | None
    owner: "_AsyncioTasks" = field(repr=False)
    lookout: bool
    cancelled: bool = False
    task: "asyncio.Task[None]" = field(init=False)
    disturbances: Callable[[], int] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.task = begin_task(asyncio.get_running_loop(), self.run(), "kafka_async processing")
        self.disturbances = self.task.cancelling

    def cancel(self) -> None:
        self.cancelled = True
        self.task.cancel()

    @property
    def done(self) -> bool:
        return self.task.done()

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        return _Limit(self, seconds)

    @property
    def swept(self) -> bool:
        return self.lookout and not self.cancelled and self.task.cancelling() > 0

    async def run(self) -> None:
        try:
            while self.until is None or not self.until():
                try:
                    await self.function()
                except asyncio.CancelledError:
                    if self.swept:
                        self.owner.sweep()
                await self._settle()
                if self.until is None:
                    return
        except BaseException as error:  # also of functions of the application, other than handlers: none may end this unheard
            if isinstance(error, asyncio.CancelledError) or (isinstance(error, GeneratorExit) and is_thrown_away(id(self.task))):
                raise
            self.owner.failed(error)

    async def _settle(self) -> None:
        """Withdraw cancellations, since what they were meant for is over."""
        if self.task.cancelling():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # one may not have been delivered yet, and would hit what comes next
            while self.task.cancelling():
                self.task.uncancel()
        self.cancelled = False


@define(eq=False)
class _Limit:
    """As ``asyncio.timeout``, for a task that may be cancelled more than once."""

    running: _AsyncioTask
    seconds: float
    _rung: int = field(default=0, init=False)
    _alarm: "asyncio.TimerHandle | None" = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._set(self.seconds)
        return self

    def _set(self, seconds: float) -> None:
        self._alarm = self.running.task.get_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._rung += 1
        self.running.task.cancel()
        self._set(max(self.seconds, SECOND))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._rung:
            return
        for _ in range(self._rung):
            self.running.task.uncancel()
        if isinstance(error, asyncio.CancelledError) and not self.running.cancelled:
            raise TimeoutError from error


@define(eq=False)
class _AsyncioTasks:
    failed: Callable[[BaseException], None] = field(repr=False)
    when_swept: Callable[[], None] = field(repr=False)
    _swept: bool = field(default=False, init=False)
    _running: set[_AsyncioTask] = field(factory=set, init=False, repr=False)
    _body: "asyncio.Task[Any] | None" = field(factory=asyncio.current_task, init=False, repr=False)
    _interrupted: bool = field(default=False, init=False)

    @property
    def swept(self) -> bool:
        return self._swept or any(running.swept for running in self._running)

    def sweep(self) -> None:
        if not self._swept:
            self._swept = True
            self.when_swept()

    def start(self, function: Function, until: Callable[[], bool] | None = None, *, lookout: bool = False) -> Running:
        running = _AsyncioTask(function, until, self, lookout)
        self._running.add(running)
        running.task.add_done_callback(lambda _: self._running.discard(running))
        return running

    def interrupt(self) -> None:
        if self._body is not None and not self._body.done():
            self._interrupted = True
            self._body.cancel()

    async def left(self, error: BaseException | None) -> bool:
        body, self._body = self._body, None
        if not self._interrupted or body is None or body is not asyncio.current_task():
            return False
        others = body.uncancel()
        if isinstance(error, asyncio.CancelledError):
            return not others
        try:
            await asyncio.sleep(0)  # the body ended before the cancellation reached it
        except asyncio.CancelledError:
            if others:
                raise
        return False

    async def join(self) -> int:
        loop, cancelled = asyncio.get_running_loop(), False
        for last in (False, True):
            until = loop.time() + SECOND
            while self._running and (left := until - loop.time()) > 0:
                try:
                    await asyncio.wait([running.task for running in self._running], timeout=left)
                except asyncio.CancelledError:  # they end in a moment anyway
                    cancelled = True
            for running in () if last else tuple(self._running):
                running.cancel()
        if cancelled:
            raise asyncio.CancelledError
        return len(self._running)


# --- trio ----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class _TrioTask:
    function: Function
    until: Callable[[], bool] | None
    owner: "_TrioTasks" = field(repr=False)
    cancelled: bool = False
    scope: CancelScope = field(factory=CancelScope)
    done: bool = field(default=False, init=False)
    disturbances: Callable[[], int] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.disturbances = lambda: self.cancelled

    def cancel(self) -> None:
        self.cancelled = True
        self.scope.cancel()

    def limit(self, seconds: float) -> AbstractContextManager[Any]:
        return anyio.fail_after(seconds)

    async def run(self) -> None:
        number = get_current_task().id
        try:
            while self.until is None or not self.until():
                with CancelScope() as self.scope:
                    await self.function()
                self.cancelled = False
                if self.until is None:
                    return
        except BaseException as error:
            if isinstance(error, get_cancelled_exc_class()) or (isinstance(error, GeneratorExit) and is_thrown_away(number)):
                raise
            self.owner.failed(error)
        finally:
            self.done = True
            self.owner.ended(self)


@define(eq=False)
class _TrioTasks:
    failed: Callable[[BaseException], None] = field(repr=False)
    swept: bool = field(default=False, init=False)
    """There is no way to cancel all tasks but to end the run."""
    _running: set[_TrioTask] = field(factory=set, init=False, repr=False)
    _body: CancelScope | None = field(factory=lambda: CancelScope().__enter__(), init=False, repr=False)
    _entered_by: int = field(factory=lambda: get_current_task().id, init=False)
    _change: anyio.Event = field(factory=anyio.Event, init=False, repr=False)

    def start(self, function: Function, until: Callable[[], bool] | None = None, *, lookout: bool = False) -> Running:
        import trio  # it is running, so it is imported already

        running = _TrioTask(function, until, self)
        self._running.add(running)
        trio.lowlevel.spawn_system_task(running.run, name="kafka_async processing", context=copy_context())
        return running

    def ended(self, running: _TrioTask) -> None:
        self._running.discard(running)
        self._change.set()

    def interrupt(self) -> None:
        if self._body is not None:
            self._body.cancel()

    async def left(self, error: BaseException | None) -> bool:
        body, self._body = self._body, None
        if body is None or self._entered_by != get_current_task().id:  # it may be left only where it was entered
            return False
        return bool(body.__exit__(type(error) if error is not None else None, error, error.__traceback__ if error else None))

    async def join(self) -> int:
        with CancelScope(shield=True):
            while self._running:
                self._change = anyio.Event()
                await self._change.wait()
        await checkpoint()
        return 0
