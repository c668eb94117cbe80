"""Threads on which the user's plain functions run, and that can be left behind.

Nothing can end a thread. So a function whose time is over is left to itself: nobody waits for it, its result does not count, and
its thread does not keep the interpreter from exiting (it is a daemon, unlike the threads of anyio and of asyncio). Until it ends it
counts as one of the threads that there may be, or functions that hang would use up the machine.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

from ...network.waiting import thread_begins, threadsafe
from ...values import define, field

T = TypeVar("T")

PARTING: Final = 1.0
"""Seconds for which an idle thread may take to end."""


@define(eq=False)
class Errand:
    """One call of a function on a thread."""

    context: Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    ended: anyio.Event = field(factory=anyio.Event)
    left: bool = False
    """Nobody waits for it any more."""
    result: Any = None
    error: BaseException | None = None


@define(eq=False)
class _Line:
    """A thread, and how it gets its calls."""

    calls: "SimpleQueue[Errand | None]" = field(factory=SimpleQueue)
    thread: Thread = field(init=False)


@define(eq=False)
class Threads:
    """At most ``most`` threads."""

    most: int
    freed: Callable[[], None] = field(repr=False)
    """Called when there is a thread again after there was none."""
    busy: int = field(default=0, init=False)
    """Threads at work, with those that were left behind."""
    left: int = field(default=0, init=False)
    """Those that were left behind."""
    _idle: list[_Line] = field(factory=list, init=False, repr=False)
    _ended: deque[tuple[_Line, Errand]] = field(factory=deque, init=False, repr=False)
    _announce: Callable[[], None] | None = field(default=None, init=False, repr=False)
    _token: EventLoopToken | None = field(default=None, init=False, repr=False)
    _closed: bool = field(default=False, init=False)
    _waiting: deque[anyio.Event] = field(factory=deque, init=False, repr=False)

    @property
    def used_up(self) -> bool:
        """Whether a call would have to wait for a thread."""
        return self.busy >= self.most

    async def run(self, function: Callable[..., T], *arguments: Any, left: Callable[[], None] = lambda: None) -> T:
        """Call a function on a thread, once there is one. If cancelled, call ``left``: the function is left to itself."""
        while self.used_up:
            await self._until_one_is_free()
        if self._announce is None:
            self._announce, self._token = threadsafe(self._take_in), current_token()
        line = self._idle.pop() if self._idle else self._start()
        call = Errand(copy_context(), function, arguments)
        self.busy += 1
        over = thread_begins()
        line.calls.put(call)
        try:
            await call.ended.wait()
        except BaseException:
            if call.ended.is_set():
                _drop(call.result)
            else:
                call.left = True
                self.left += 1
                left()
            raise
        finally:
            over()
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on the event loop, from one of the threads."""
        return from_thread.run_sync(function, *arguments, token=self._token)

    def close(self) -> None:
        """End the threads that are idle now, and the others when their functions end."""
        self._closed = True
        self._take_in()
        idle, self._idle = self._idle, []
        for line in idle:
            line.calls.put(None)
        for line in idle:
            line.thread.join(PARTING)  # it has nothing left to do

    async def _until_one_is_free(self) -> None:
        event = anyio.Event()
        self._waiting.append(event)
        try:
            await event.wait()
        except BaseException:
            if event.is_set():
                self._one_is_free()  # it was meant for this call, which has no use for it any more
            else:
                self._waiting.remove(event)
            raise

    def _one_is_free(self) -> None:
        if self.used_up:
            return  # another call took it first, and says so when it ends
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self.freed()

    def _take_in(self) -> None:
        """Calls have ended; on the event loop."""
        while self._ended:
            line, call = self._ended.popleft()
            used_up = self.used_up
            self.busy -= 1
            if call.left:
                self.left -= 1
                _drop(call.result)
            if self._closed:
                line.calls.put(None)
            else:
                self._idle.append(line)
            call.ended.set()
            if self._waiting or used_up:
                self._one_is_free()

    # --- on a thread -----------------------------------------------------------------------------------------------------------

    def _start(self) -> _Line:
        line = _Line()
        line.thread = Thread(target=self._serve, args=(line,), name="kafka_async handler", daemon=True)
        line.thread.start()
        return line

    def _serve(self, line: _Line) -> None:
        # What anyio sets on its own threads: handlers may use ``anyio.from_thread`` without a token.
        from_thread.threadlocals.current_token = self._token  # type: ignore[attr-defined]  # not public
        while (call := line.calls.get()) is not None:
            try:
                call.result = call.context.run(call.function, *call.arguments)
            except BaseException as error:  # it is raised where the call is waited for
                call.error = error
            self._ended.append((line, call))
            del call
            if self._announce is not None:
                self._announce()
            if self._closed:
                return  # the event loop may be gone, so nobody would end this thread


def _drop(result: Any) -> None:
    """A plain function may have returned a coroutine, which nobody will await."""
    coroutine = getattr(result, "awaitable", result)
    if isinstance(coroutine, Coroutine):
        coroutine.close()
