"""The threads that call plain handlers: each goes on with the next unit by itself, without a detour through the event loop.

A thread that handed each result to the event loop and waited for the next record would lose about 0.2 ms each time, and the loop
could serve about 6,000 a second. So while every worker is busy, the loop lays out a few units in advance, and takes in results
when it has time. Units that were laid out count as begun for the lanes, and can be taken back until a thread begins them.
"""

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from inspect import isawaitable
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

from attrs import define, field

from ...network.waiting import LoopSignal, threadsafe
from .attempts import Unit
from .context import ProcessingContext
from .contexts import Changes, set_since
from .retry import check_return

LOOK: Final = 0.002
"""Seconds after which the event loop looks for results by itself, as long as it finds some. If each thread woke it for each result,
that would cost more than the rest of its work for a record: it releases the GIL for that, and has to wait for it again."""


class Outcome(NamedTuple):
    """How a call of the handler ended. Times are those of the loop's clock."""

    unit: Unit
    began: float
    ended: float
    error: BaseException | None = None
    awaitable: Any = None
    """An awaitable that a plain function returned, such as a lambda around a coroutine function."""
    changes: Changes = []  # noqa: RUF012 - a field of a tuple
    """Context variables that it set, unless it is over."""


@define(eq=False)
class Stint:
    """The units that one thread handles in a row, until none is left, one fails, or the thread is given up."""

    unit: Unit | None
    """The one under way; ``None`` in between."""
    context: ProcessingContext | None = field(default=None, init=False)
    given_up: bool = field(default=False, init=False)
    """Results of the thread no longer count."""
    _lock: Lock = field(factory=Lock, init=False, repr=False)

    def begin(self, unit: Unit, context: ProcessingContext | None) -> bool:
        """Begin with a unit; ``False``: the thread was given up. Called by the thread, like ``end``."""
        with self._lock:
            if self.given_up:
                return False
            self.unit, self.context = unit, context
            return True

    def end(self, result: "Outcome | Unit | None", results: "deque[Outcome | Unit]") -> bool:
        """The unit is over; ``False``: its result does not count. ``None``: the event loop takes the unit from here.

        The result is there first. The thread may be interrupted in between, and who finds the unit under way no more counts on it.
        """
        with self._lock:
            if not self.given_up and result is not None:
                results.append(result)
                self.unit = None
            return not self.given_up

    def give_up(self, unit: Unit | None = None) -> bool:
        """Let results of the thread no longer count; with ``unit`` only if that is under way. Called by the event loop."""
        with self._lock:
            if unit is not None and self.unit is not unit:
                return False
            self.given_up = True
            if self.context is not None:
                self.context.cancelled = True
            return True


class Foreman(Protocol):
    """Whom the threads work for."""

    def call(self, unit: Unit, context: ProcessingContext | None) -> Any:
        """Call the handler, on the thread."""

    def is_open(self, unit: Unit) -> bool:
        """Whether the unit may still be handled. From any thread."""

    def context_on_thread(self, unit: Unit) -> ProcessingContext:
        """Return the handler's context, on the thread."""

    def take_in(self) -> None:
        """There are results. On the event loop."""


@define(eq=False)
class HandlerThreads:
    """What the event loop and the threads share."""

    foreman: Foreman = field(repr=False)
    clock: Callable[[], float] = field(repr=False)
    late: deque[None] = field(repr=False)
    """One for each call that ended after its result had ceased to count."""
    enough: int
    """Units below which more should be laid out."""
    with_context: bool
    """The handler wants a context."""
    turn_ends: float = field(default=0.0, init=False)
    """Until then threads go on by themselves. After that the event loop has to see first whether more may begin."""
    laid_out: deque[Unit] = field(factory=deque, init=False)
    """Any thread may use it. The threads take units from it, and the event loop to take units back."""
    _results: deque[Outcome | Unit] = field(factory=deque, init=False)
    """Outcomes, and units that were not begun."""
    looking: bool = field(default=False, init=False)
    """The event loop looks for results soon anyway."""
    signal: LoopSignal = field(factory=LoopSignal, init=False)
    """Wakes the task that looks for results."""
    _announced: bool = field(default=False, init=False)
    """The event loop is going to look at the results."""
    _announce: Callable[[], None] | None = field(default=None, init=False)

    def open(self) -> None:
        """Work for the current event loop."""
        if self._announce is None:
            self._announce = threadsafe(self._take_in)

    def _take_in(self) -> None:
        self.foreman.take_in()

    def results(self) -> list[Outcome | Unit]:
        """Take the results so far, for the event loop."""
        self._announced = False  # first: a thread that appends one from now on announces it
        taken: list[Outcome | Unit] = []
        while self._results:
            taken.append(self._results.popleft())
        return taken

    def next(self) -> Unit | None:
        """Return a unit that was laid out."""
        try:
            return self.laid_out.popleft()
        except IndexError:
            return None

    # --- on a thread -----------------------------------------------------------------------------------------------------------

    def work(self, stint: Stint) -> Outcome | None:
        """Handle units as long as it goes well. Return the outcome that the event loop has to deal with."""
        unit = stint.unit
        while unit is not None:
            context = self.foreman.context_on_thread(unit) if self.with_context else None
            if not stint.begin(unit, context):
                if stint.unit is not unit:  # else the event loop has it already
                    self._hand_in(unit)
                return None
            if not self.foreman.is_open(unit):  # not before: what is lost from here on is seen to be under way, and ended
                if stint.end(unit, self._results):  # else the event loop has it already
                    self._announce_results()
                return None
            outcome = self._call(unit, context)
            fine = outcome.error is None and outcome.awaitable is None
            if not stint.end(outcome if fine else None, self._results):
                self.late.append(None)
                return None if fine else outcome  # what it returned to be awaited is dropped
            if not fine:
                return outcome
            unit = self._following(stint, outcome.ended)
            # The record after this one in its lane waits for the result.
            ordered = outcome.unit.items[0].lane is not None
            if unit is not None and (ordered or not self.looking or len(self.laid_out) < self.enough):
                self._announce_results()
        return None  # the event loop looks then

    def _call(self, unit: Unit, context: ProcessingContext | None) -> Outcome:
        began, inside = self.clock(), copy_context()
        try:
            result = inside.run(self.foreman.call, unit, context)
            awaitable = result if result is not None and isawaitable(result) else None
            if awaitable is None:
                check_return(result)
        except BaseException as error:  # whatever it is, the event loop decides what becomes of the record
            return Outcome(unit, began, self.clock(), error, None, set_since(copy_context(), inside))
        if awaitable is not None:
            return Outcome(unit, began, self.clock(), None, awaitable, set_since(copy_context(), inside))
        return Outcome(unit, began, self.clock())

    def _following(self, stint: Stint, now: float) -> Unit | None:
        while not stint.given_up and now < self.turn_ends:
            unit = self.next()
            if unit is None or self.foreman.is_open(unit):
                return unit
            self._hand_in(unit)
        return None

    def _hand_in(self, result: Outcome | Unit) -> None:
        self._results.append(result)
        self._announce_results()

    def _announce_results(self) -> None:
        if not self._announced and self._announce is not None:
            self._announced = True
            self._announce()
