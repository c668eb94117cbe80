"""The life of a consumer, as one table.

Nothing else in the package keeps a flag about being started, stopping or stopped.

The background loop ends by itself only because of a bug or the end of the event loop it runs on. It records that at the boundary
(``EventHandler.ended``); the phase follows at the next look.
"""

import threading
from enum import Enum
from typing import Any, Final, Protocol

from ...background.boundary import EventHandler, LoopInterrupted
from ...errors import LONGEST_REASON, BackgroundLoopError, ConsumerStoppedError, IllegalStateError, shown
from ...states import StateTable
from ...values import define, field


class Phase(Enum):
    """The phase of a consumer's life."""

    NEW = "new"
    """Made and not started. Subscribing, assigning and seeking are recorded for the start; other calls are refused."""
    STARTING = "starting"
    """``start`` is under way: the loop runs, and the cluster or the group has not answered yet."""
    RUNNING = "running"
    """Every call works."""
    UNDOING = "undoing"
    """A start that failed is being undone, as ``stop`` would do it. Then there may be another one, unless ``stop`` is called."""
    PARTING = "parting"
    """``stop`` is under way. Reads are over. Commits and methods that only look still work, since a listener's
    ``on_partitions_revoked`` needs them."""
    CLOSED = "closed"
    """Stopped for good. Only what no longer changes can be looked at."""
    FAILED = "failed"
    """The loop ended by itself. Every call raises that error, until ``stop``."""


class Happening(Enum):
    """What moves a consumer from one phase of its life to the next."""

    START = "start() was called"
    STARTED = "start() is done"
    UNDO = "start() failed"
    UNDONE = "the loop of the start that failed is gone"
    PART = "stop() was called"
    PARTED = "the loop is gone"
    FAIL = "the loop ended by itself"


TRANSITIONS: Final = StateTable(
    "a consumer",
    {
        (Phase.NEW, Happening.START): Phase.STARTING,
        (Phase.NEW, Happening.PART): Phase.PARTING,
        (Phase.STARTING, Happening.STARTED): Phase.RUNNING,
        (Phase.STARTING, Happening.UNDO): Phase.UNDOING,
        (Phase.STARTING, Happening.PART): Phase.PARTING,
        (Phase.STARTING, Happening.FAIL): Phase.FAILED,
        (Phase.RUNNING, Happening.UNDO): Phase.UNDOING,  # a signal handler raised in the last step
        (Phase.RUNNING, Happening.PART): Phase.PARTING,
        (Phase.RUNNING, Happening.FAIL): Phase.FAILED,
        (Phase.FAILED, Happening.UNDO): Phase.UNDOING,
        (Phase.FAILED, Happening.PART): Phase.PARTING,
        (Phase.UNDOING, Happening.UNDONE): Phase.NEW,
        (Phase.UNDOING, Happening.PART): Phase.PARTING,
        (Phase.PARTING, Happening.UNDONE): Phase.CLOSED,
        (Phase.PARTING, Happening.PARTED): Phase.CLOSED,
    },
)
"""Every other pair is a bug and raises ``RuntimeError``."""

_OVER: Final = (Phase.UNDOING, Phase.PARTING, Phase.CLOSED)
_STOPPED: Final = "the consumer is stopped"


class Reviver(Protocol):
    """Runs the background loop (``Runtime``)."""

    @property
    def can_revive(self) -> bool:
        """A loop that was interrupted may run again. From any thread."""

    def revive(self) -> bool:
        """Run it again, if this is its event loop; return whether it does."""


@define(eq=False)
class Lifecycle:
    """The phase of one consumer."""

    boundary: EventHandler[Any] = field(repr=False)
    reviver: Reviver = field(repr=False)
    phase: Phase = Phase.NEW
    parting_by: Any = None
    """The task or thread that is parting, while one is."""
    _lock: "threading.RLock" = field(factory=threading.RLock, init=False, repr=False)
    """Held from a look at the phase to the move that depends on it: of a blocking consumer, any thread may call ``stop`` between.

    The same thread may take it again, since a signal handler may call ``stop`` anywhere.
    """

    def move(self, happening: Happening) -> None:
        """Enter the phase that follows. Raises ``RuntimeError`` if the table has none."""
        with self._lock:
            self.phase = TRANSITIONS[self.phase, happening]

    def start(self) -> bool:
        """Enter STARTING. ``False``: another thread has stopped the consumer."""
        with self._lock:
            if self.is_over:
                return False
            self.move(Happening.START)
            return True

    def started(self) -> None:
        """Enter RUNNING. Raises as ``check_readable`` does, such as if ``stop`` was called meanwhile."""
        with self._lock:
            self.check_readable()
            self.move(Happening.STARTED)

    def part(self, why: Happening) -> bool:
        """Begin to stop, or to undo a start. ``False``: another call is ending the consumer, or has ended it.

        Or it is undoing a start. That ends as a stop then.
        """
        with self._lock:
            before = self.phase
            if before not in (Phase.PARTING, Phase.CLOSED):
                self.move(why)
            return before not in _OVER

    @property
    def is_parting(self) -> bool:
        """The consumer is being stopped, or a start that failed is being undone."""
        return self.phase in (Phase.UNDOING, Phase.PARTING)

    @property
    def is_over(self) -> bool:
        """Reads are over, at least until another start."""
        return self.phase in _OVER

    def abandon(self) -> None:
        """End without leaving the group: the event loop that the consumer ran on is gone."""
        with self._lock:
            self.part(Happening.PART)
            if self.phase is not Phase.CLOSED:
                self.move(Happening.PARTED)

    def look(self) -> Phase:
        """Return the phase, after a look at whether the loop is still there."""
        if self.boundary.ended is not None:
            with self._lock:
                if self.phase in (Phase.STARTING, Phase.RUNNING) and not self._may_go_on:
                    self.move(Happening.FAIL)
        return self.phase

    @property
    def _may_go_on(self) -> bool:
        return isinstance(self.boundary.ended, LoopInterrupted) and self.reviver.can_revive

    def runs(self) -> bool:
        """Return whether the loop runs, again if its task was cancelled by somebody else.

        A program that shuts down may cancel every task of its event loop, and commits and stops its consumers only then.
        """
        return self.boundary.ended is None or (self._may_go_on and self.reviver.revive())

    def check_new(self) -> None:
        """Raise unless the consumer may be started: ``ConsumerStoppedError`` after the end, ``IllegalStateError`` before it."""
        if self.phase in (Phase.PARTING, Phase.CLOSED):
            raise ConsumerStoppedError("the consumer was stopped; make a new one")
        if self.phase is not Phase.NEW:
            raise IllegalStateError("the consumer was started already")

    def check_open(self) -> None:
        """Raise ``ConsumerStoppedError`` once the consumer is closed."""
        if self.phase is Phase.CLOSED:
            raise ConsumerStoppedError(_STOPPED)

    def check_running(self) -> None:
        """Raise unless the background can answer: ``IllegalStateError`` before the start, ``ConsumerStoppedError`` after the
        end.
        """
        self.runs()
        phase = self.look()
        if phase is Phase.RUNNING or phase is Phase.STARTING:
            return
        if phase is Phase.NEW:
            raise IllegalStateError("the consumer was not started; use 'async with' ('with' in kafka_async.sync), or start() first")
        if phase is Phase.FAILED or (self.is_parting and self.boundary.ended is not None):
            raise self.failure()
        self.check_open()

    def check_readable(self) -> None:
        """Raise unless records may be handed out: as ``check_running``, and not while parting."""
        if self.phase is Phase.RUNNING and self.boundary.ended is None:
            return  # nearly always
        self.check_running()
        if self.is_parting:
            raise ConsumerStoppedError("the consumer is stopping")

    def failure(self) -> Exception:
        """Return the error that says why the loop is gone."""
        cause = self.boundary.ended
        if isinstance(cause, Exception) and not isinstance(cause, ConsumerStoppedError):
            error = BackgroundLoopError(f"the background loop failed: {shown(cause, LONGEST_REASON)}")
            error.__cause__ = cause
            return error
        if cause is not None and not isinstance(cause, ConsumerStoppedError):
            return ConsumerStoppedError("the background loop was cancelled with the event loop it ran on")
        return ConsumerStoppedError(_STOPPED)
