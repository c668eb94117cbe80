"""What the parts of one processing share: how far it is, who waits for what happens to it, and where workers rest."""

from collections.abc import Awaitable, Callable
from math import inf

import anyio

from ...network.waiting import LoopSignal
from ...trace import Listener, ProcessingFailed
from ...values import define, field
from .tasks import Running, Tasks


@define(eq=False)
class RunState:
    """One processing, from its beginning to the moment when the consumer is given back."""

    clock: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    tasks: Tasks | None = field(default=None, init=False, repr=False)
    """``None``: nothing has begun yet."""
    errands: list[Running] = field(factory=list, init=False, repr=False)
    """Tasks that end with it: those that read, look at the time and at threads, and commit."""
    failure: BaseException | None = field(default=None, init=False)
    """Why processing ends, if it has failed."""
    halted: bool = field(default=False, init=False)
    """No handler begins."""
    holding: bool = field(default=False, init=False)
    """``drain`` or ``pause`` was called: nothing is read."""
    drained: int = field(default=0, init=False)
    """How often everything was done that a ``drain`` waited for."""
    finishing: bool = field(default=False, init=False)
    """Nothing more is started."""
    ended: bool = field(default=False, init=False)
    """Nothing more will be read or handled."""
    over: bool = field(default=False, init=False)
    """The consumer was given back."""
    waiting: int = field(default=0, init=False)
    """Tasks that wait for a change: workers report each unit then."""
    finished: anyio.Event = field(factory=anyio.Event, init=False, repr=False)
    """Nothing more will be read: ``stop`` was called, here or on the consumer."""
    _changes: LoopSignal = field(factory=LoopSignal, init=False, repr=False)

    @property
    def ending(self) -> bool:
        return self.failure is not None or self.finishing

    @property
    def reads_nothing(self) -> bool:
        """Nothing is read, until ``resume`` or for good."""
        return self.holding or self.ending

    @property
    def swept(self) -> bool:
        """Whether all tasks were cancelled, and not only a handler."""
        return self.tasks is not None and self.tasks.swept

    def fail(self, error: BaseException) -> None:
        """End with this error: the body is cancelled, running handlers are drained. Only the first one counts."""
        if self.failure is not None:
            return
        self.failure = error
        self.trace(ProcessingFailed(now=self.clock(), error=error))
        self.finished.set()
        self.halted = True
        self.change()
        if self.tasks is not None:
            self.tasks.interrupt()

    def start(self, tasks: Tasks, function: Callable[[], Awaitable[object]]) -> Running:
        """Start a task that ends with it."""
        self.errands = [errand for errand in self.errands if not errand.done]
        self.errands.append(tasks.start(function))
        return self.errands[-1]

    # --- waiting ---------------------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """Wake the tasks that wait: something happened that they may be waiting for."""
        self._changes.wake()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, up to ``seconds``."""
        await self._changes.wait(self._changes.ticket(), seconds)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds."""
        self.waiting += 1
        try:
            while not condition():
                await self._changes.wait(self._changes.ticket(), inf)
        finally:
            self.waiting -= 1

    def rest(self) -> None:
        """Nothing waits any more."""
        self._changes.rest()
        self.change()


@define(eq=False)
class Bench:
    """The workers that rest, and the turn of the others."""

    resting: list[anyio.Event] = field(factory=list)
    woken: int = 0
    """How many were woken the last time."""
    rising: int = 0
    """How many of them have not started yet."""
    turn_ends: float = 0.0
    """Until then workers may go on without letting others run on the event loop."""
    turning: bool = False
    """A worker lets others run, and begins the next turn then."""

    def wake(self, most: int = 2) -> None:
        """Wake workers that rest. The last of them to begin wakes more if there is more to do.

        If handlers never wait, the first worker leaves nothing to do for the others that are woken, so only a few are.
        """
        self.woken = max(1, min(most, len(self.resting)))
        for _ in range(min(most, len(self.resting))):
            self.rising += 1
            self.resting.pop().set()

    def wake_more(self) -> None:
        """There is something for another worker: wake twice as many as the last time, unless some of those have not begun yet."""
        if self.resting and not self.rising:
            self.wake(2 * self.woken)

    async def rest(self) -> None:
        """Return when woken."""
        event = anyio.Event()
        self.resting.append(event)
        try:
            await event.wait()
        finally:
            if event.is_set():
                self.rising -= 1
            else:
                self.resting.remove(event)
