"""The life of a consumer, as one table.

Nothing else in the package keeps a flag about being started, stopping or stopped.

The background loop ends by itself only because of a bug or the end of the event loop it runs on. It records that at the boundary
(``EventHandler.ended``); the phase follows at the next look.
"""

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
    PARTING = "parting"
    """``stop`` is under way, or a start that failed is being undone. Reads are over. Commits and methods that only look still work,
    since a listener's ``on_partitions_revoked`` needs them."""
    CLOSED = "closed"
    """Stopped for good. Only what no longer changes can be looked at."""
    FAILED = "failed"
    """The loop ended by itself. Every call raises that error, until ``stop``."""


class Happening(Enum):
    """What moves a consumer from one phase of its life to the next."""

    START = "start() was called"
    STARTED = "start() is done"
    PART = "stop() was called, or start() failed"
    PARTED = "the loop is gone"
    UNDONE = "start() failed, and its loop is gone"
    FAIL = "the loop ended by itself"


TRANSITIONS: Final = StateTable(
    "a consumer",
    {
        (Phase.NEW, Happening.START): Phase.STARTING,
        (Phase.NEW, Happening.PART): Phase.PARTING,
        (Phase.STARTING, Happening.STARTED): Phase.RUNNING,
        (Phase.STARTING, Happening.PART): Phase.PARTING,
        (Phase.STARTING, Happening.FAIL): Phase.FAILED,
        (Phase.RUNNING, Happening.PART): Phase.PARTING,
        (Phase.RUNNING, Happening.FAIL): Phase.FAILED,
        (Phase.FAILED, Happening.PART): Phase.PARTING,
        (Phase.PARTING, Happening.PARTED): Phase.CLOSED,
        (Phase.PARTING, Happening.UNDONE): Phase.NEW,
    },
)
"""Every other pair is a bug and raises ``RuntimeError``."""

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

    def move(self, happening: Happening) -> None:
        """Enter the phase that follows. Raises ``RuntimeError`` if the table has none."""
        self.phase = TRANSITIONS[self.phase, happening]

    def abandon(self) -> None:
        """End without leaving the group: the event loop that the consumer ran on is gone."""
        if self.phase is not Phase.PARTING:
            self.move(Happening.PART)
        self.move(Happening.PARTED)

    def look(self) -> Phase:
        """Return the phase, after a look at whether the loop is still there."""
        if self.boundary.ended is not None and self.phase in (Phase.STARTING, Phase.RUNNING) and not self._may_go_on:
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
            raise IllegalStateError("the consumer was not started; use 'async with', or await start() first")
        if phase is Phase.FAILED or (phase is Phase.PARTING and self.boundary.ended is not None):
            raise self.failure()
        self.check_open()

    def check_readable(self) -> None:
        """Raise unless records may be handed out: as ``check_running``, and not while parting."""
        if self.phase is Phase.RUNNING and self.boundary.ended is None:
            return  # nearly always
        self.check_running()
        if self.phase is Phase.PARTING:
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
