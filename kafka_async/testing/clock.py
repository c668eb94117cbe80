"""Virtual time on asyncio: an event loop whose clock jumps to the next deadline when nothing is ready.

Time jumps to the next timer that is due if no thread works: a test that spans an hour takes as long as its work does. On trio,
``trio.testing.MockClock(autojump_threshold=0)`` is the same thing.

Its limits: sockets live in real time, and it does not wait for them. While a timer runs, time jumps past them; if no timer runs,
the loop raises an error, since everything would wait for ever. While threads work that the loop waits for, such as those of plain
handlers in ``process``, time passes as it does for them: else 50 ms of their work could be an hour for everything with a timer.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final

PATIENCE: Final = 60.0
"""Seconds of real time in which tasks are ready again and again and time does not pass: more means that a program spins."""
LOOKS: Final = 10
"""An event loop that is never idle looks at its sockets once in so many turns."""
RESIDUE: Final = 1e-9
"""Seconds, the resolution of asyncio's clock: timers fire up to this much early, and the rest of a deadline would never pass."""
GIVEN_UP: Final = 5.0
"""Seconds of real time without a sign of threads that work, after which they count as hung and time jumps again."""
GRACE: Final = 600.0
"""Seconds of virtual time that it has left once it was cancelled."""


class _Jumping(selectors.DefaultSelector):
    """Never waits unless threads work: when the event loop would, time jumps."""

    now = 0.0
    turns = 0
    """Turns since time has passed."""

    def __init__(self, threads: "_Threads", most_turns: int | None, patience: float) -> None:
        super().__init__()
        self._threads = threads
        self._patience = patience
        self._most_turns = most_turns
        self.limit = inf
        """Time does not pass further than this."""
        self.over: Callable[[], None] = lambda: None
        """Called when it would."""
        self._since = 0.0
        """When time has last passed, by the system's clock."""

    def select(self, timeout: float | None = None) -> list[Any]:
        self.turns += 1
        if timeout == 0 and self.turns % LOOKS:
            return []  # tasks are ready; sockets are looked at before time jumps
        found = super().select(0)
        if self.turns % 100 == 0:
            self.now += RESIDUE
            self._check()
        if found or timeout == 0:
            return found
        if self._threads.are_busy() and (timeout is None or not self._threads.hang):
            return self._wait(timeout)
        if timeout is None:
            raise RuntimeError("everything waits for ever")
        if self.now + timeout > self.limit:
            self.over()
            return found
        self._pass(timeout)
        return found

    def _wait(self, timeout: float | None) -> list[Any]:
        """Wait in real time for what threads do."""
        began = time.monotonic()
        found = super().select(self._threads.hung_after if timeout is None else min(timeout, self._threads.hung_after))
        self._pass(time.monotonic() - began)
        return found

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.turns = 0

    def _check(self) -> None:
        """Raise an error if the program spins. Many turns alone mean nothing: it may have much to do."""
        now = time.monotonic()
        if self.turns == 100:
            self._since = now
        if now - self._since > self._patience or (self._most_turns is not None and self.turns > self._most_turns):
            raise RuntimeError(f"the event loop spins: time does not pass in {self.turns} turns and {now - self._since:.0f} s")


class _Threads:
    """The threads that work for the tasks of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hung_after: float) -> None:
        self._loop = loop
        self.hung_after = hung_after
        self._calls: set[asyncio.Future[Any]] = set()
        """Those in the threads of executors."""
        self._marks: set[object] = set()
        """One for each task that waits for another thread."""
        self._busy: set[object] = set()
        self._of_others: set[threading.Thread] = set()
        """Threads that never work for this loop. Kept, so that a turn costs the same however many there are in the process."""
        self._sign = 0.0
        """When one has last begun or told something, by the system's clock."""

    def told(self) -> None:
        """A thread has told the loop something. Called by any thread."""
        self._sign = time.monotonic()

    def begun(self, call: "asyncio.Future[Any]") -> None:
        """A call in the thread of an executor has begun."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    def begins(self) -> Callable[[], None]:
        """A task waits for a thread, until what this returns is called."""
        mark = object()
        self._marks.add(mark)
        return lambda: self._marks.discard(mark)

    def are_busy(self) -> bool:
        """Return whether any works."""
        alive = {*threading.enumerate()}
        self._of_others &= alive
        ours = alive - self._of_others
        self._of_others.update(thread for thread in ours if not self._is_worker(thread))
        busy = {*self._calls, *self._marks, *filter(self._is_busy, ours)}
        if busy - self._busy:
            self.told()
        self._busy = busy
        return bool(busy)

    @property
    def hang(self) -> bool:
        """Whether none has given a sign for long."""
        return time.monotonic() - self._sign > self.hung_after

    def _is_worker(self, thread: threading.Thread) -> bool:
        """Return whether it is a worker thread of anyio for this loop, which it is from its beginning or never."""
        return getattr(thread, "loop", None) is self._loop

    def _is_busy(self, thread: threading.Thread) -> bool:
        """Return whether a worker thread of anyio has a call of this loop: there is no other way to ask for that."""
        return self._is_worker(thread) and getattr(getattr(thread, "queue", None), "unfinished_tasks", 0) > 0


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with a clock that starts at 0 and jumps to the next deadline whenever all tasks wait.

    A program that spins gets an error: if time does not pass for ``patience`` seconds of real time, or, if ``most_turns`` is given,
    in so many turns of the loop. Threads that give no sign for ``hung_after`` seconds of real time are not waited for any longer.
    What is run until it is complete is cancelled after ``limit`` seconds of virtual time, if given, and ``TimeoutError`` is raised.
    """

    def __init__(
        self,
        most_turns: int | None = None,
        *,
        patience: float = PATIENCE,
        hung_after: float = GIVEN_UP,
        limit: float | None = None,
    ) -> None:
        self._main: asyncio.Future[Any] | None = None
        self._limit = inf if limit is None else limit
        self._threads = _Threads(self, hung_after)
        self._jumping = _Jumping(self._threads, most_turns, patience)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_until_complete(self, future: Any) -> Any:
        """See asyncio. Raises ``TimeoutError`` past the limit of virtual time, with what the consumers know."""
        jumping, found = self._jumping, ""

        def over() -> None:
            nonlocal found
            if found:
                raise TimeoutError(found)  # it goes on though it was cancelled
            found = report(self._limit)
            jumping.limit = jumping.now + GRACE
            assert self._main is not None  # noqa: S101 - it runs
            self._main.cancel()

        before = self._main, jumping.limit, jumping.over  # a call that is nested, which asyncio refuses, changes nothing
        self._main = future if asyncio.isfuture(future) else None
        jumping.limit, jumping.over = jumping.now + self._limit, over
        try:
            result = super().run_until_complete(future)
        except (asyncio.CancelledError, Exception) as error:
            if not found or str(error) == found:
                raise
            raise TimeoutError(found) from error
        finally:
            self._main, jumping.limit, jumping.over = before
        if found:
            raise TimeoutError(found)
        return result

    def create_task(self, coro: Any, **options: Any) -> Any:
        """See asyncio. The first task is the one that ``run_until_complete`` makes, after its checks."""
        task = super().create_task(coro, **options)
        if self._main is None:
            self._main = task
        return task

    def block(self, seconds: float) -> None:
        """Let time pass while no task runs, as a handler that blocks does."""
        self._jumping.now += seconds

    def thread_begins(self) -> Callable[[], None]:
        """Let time pass as in reality until what this returns is called: a task waits for a thread of its own."""
        return self._threads.begins()

    def run_in_executor(  # type: ignore[override]  # typeshed pairs the call with its arguments
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """See asyncio. Time passes as in reality until the call returns."""
        future = super().run_in_executor(executor, func, *args)
        self._threads.begun(future)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """See asyncio, which does it in a thread of its own."""
        shutting_down = self.create_future()
        self._threads.begun(shutting_down)
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            shutting_down.cancel()

    def call_soon_threadsafe(  # type: ignore[override]  # as above
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """See asyncio."""
        self._threads.told()
        return super().call_soon_threadsafe(callback, *args, context=context)


def virtual_loop(limit: float | None = None) -> VirtualLoop:
    """Return a new event loop with virtual time: a loop factory for ``asyncio.Runner`` or ``asyncio.run(..., loop_factory=...)``.

    ``loop.time()`` starts at 0. Raises ``RuntimeError`` from within the loop if every task waits for something that can never come,
    or if tasks are ready again and again for a minute and time does not pass. With a ``limit``, whatever the loop runs until it is
    complete is cancelled after so many seconds of virtual time, and ``TimeoutError`` is raised.
    """
    return VirtualLoop(limit=limit)


def report(seconds: float) -> str:
    """Return what a test is told that was not over in so much virtual time: what its consumers know."""
    from ..started import started

    lines = [f"not over after {seconds:g} s of virtual time; what takes longer on purpose says so: limit= (kafka_async.testing)"]
    for _, consumer, _ in started():
        lines.append(repr(consumer))
        try:
            known = consumer.statistics()  # type: ignore[attr-defined]  # of either kind
        except Exception as error:  # it may be one of another event loop
            lines.append(f"  {error!r}")
            continue
        fields = {name: getattr(known, name) for name in known.__slots__ if not name.startswith("_")}
        parts = fields.pop("partitions", {})
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in fields.items()))
        lines += [f"  {part}: {of_it}" for part, of_it in dict(parts).items()]
    return "\n".join(lines)
