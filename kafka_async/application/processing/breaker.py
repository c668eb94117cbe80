"""A circuit breaker: what depends on something that is down is not begun, and its failures are nobody's fault.

While it is closed, failures of the named exceptions count. Enough of them open it: no handler begins, the membership goes on, and
records that failed are kept. After a while one record is tried, the probe. If that succeeds, more follow slowly, or all that have
waited would fall upon a service that has just come back; if it fails, the next probe waits longer.

Without a loop, a clock or randomness of its own: ``now`` is an argument, and ``probe_after`` brings the jitter.
"""

from collections import deque
from enum import Enum
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...functions import check_plain, returned
from ...states import StateTable
from ...values import define, field, frozen
from .retry import Delay, count, exceptions, exponential

PROOF: Final = 3
"""So many records must succeed between failures of one to show that others can: one may be the last before an outage. More than so
many between two of them show no more than that."""
STRIKES: Final = 2
"""How often that must be shown until failures are that record's own: once, the next outage may have begun."""


class CircuitState(Enum):
    """What a breaker does."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    RISING = "rising"


class CircuitInput(Enum):
    """What happens to it."""

    TRIPPED = "too many attempts failed"
    TIME_HAS_COME = "it is time for a probe"
    FAILED = "the probe, or one that followed it, failed"
    SUCCEEDED = "the probe succeeded"
    RISEN = "as many handlers run as may"


CIRCUIT: Final = StateTable(
    "the breaker of process",
    {
        (CircuitState.CLOSED, CircuitInput.TRIPPED): CircuitState.OPEN,
        (CircuitState.OPEN, CircuitInput.TIME_HAS_COME): CircuitState.HALF_OPEN,
        (CircuitState.HALF_OPEN, CircuitInput.FAILED): CircuitState.OPEN,
        (CircuitState.HALF_OPEN, CircuitInput.SUCCEEDED): CircuitState.RISING,
        (CircuitState.RISING, CircuitInput.FAILED): CircuitState.OPEN,
        (CircuitState.RISING, CircuitInput.RISEN): CircuitState.CLOSED,
    },
)


def _ratio(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"ratio={value!r}: expected a number")
    if not 0 < value <= 1:
        raise ValueError(f"ratio={value!r}: expected more than 0 and at most 1")
    return float(value)


def _window(value: Any) -> int:
    return count(value, "window", " attempt")


def _in_a_row(value: Any) -> int | None:
    return None if value is None else count(value, "in_a_row", " attempt")


def _probe_after(value: Any) -> Delay:
    if callable(value):
        check_plain(value, "probe_after", "seconds, or a function of how often it has opened and the exception", 2)
    else:
        _seconds(value)
    delay: Delay = value
    return delay


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"probe_after={value!r}: expected a number of seconds")
    if not 0 < value < float("inf"):
        raise ValueError(f"probe_after={value!r}: expected seconds, more than 0")
    return float(value)


@frozen
class Breaker:
    """When ``process`` starts no more handlers, because what they depend on is down.

    - ``on``: the exceptions that say so, such as ``(ConnectionError, TimeoutError)``.
    - ``ratio``, ``window``: it opens if ``ratio * window`` of the last ``window`` attempts failed with one of them.
    - ``in_a_row``: it also opens if this many attempts in a row failed with one of them. ``None``: that does not matter.
    - ``probe_after``: seconds until a record is tried; or a function that returns them, of how often it has opened since it was
      closed, and of the exception.

    While it is open, failures with one of ``on`` do not count as attempts and never reach ``on_failure``, so that an outage fills
    no topic of dead letters. In the other states, those of a probe included, such a failure counts only if it is the record's own
    fault: after six other records have succeeded in between failures of this record. At most three of them count from any one gap,
    so at least two gaps are needed. A record that failed is tried again after others.

    Raises ``TypeError`` and ``ValueError`` for bad arguments.
    """

    on: tuple[type[Exception], ...] = field(converter=exceptions)
    ratio: float = field(default=0.5, converter=_ratio, kw_only=True)
    window: int = field(default=20, converter=_window, kw_only=True)
    in_a_row: int | None = field(default=None, converter=_in_a_row, kw_only=True)
    probe_after: Delay = field(factory=lambda: exponential(1, 30), converter=_probe_after, kw_only=True)

    def covers(self, error: BaseException) -> bool:
        """Whether an exception says that what handlers depend on is down. Of a group, all must."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.covers, error.exceptions))
        return isinstance(error, self.on)

    def pause(self, opened: int, error: BaseException) -> float:
        """Return the seconds until a probe. Raises what ``probe_after`` raises, and ``TypeError`` or ``ValueError`` if that returns
        no number of seconds.
        """
        after = self.probe_after
        return _seconds(returned(after(opened, error), "probe_after") if callable(after) else after)


@define(eq=False)
class Circuit:
    """A breaker at work."""

    breaker: Breaker
    most: int
    """Handlers that may run if it is closed."""
    state: CircuitState = field(default=CircuitState.CLOSED, init=False)
    opened: int = field(default=0, init=False)
    """How often it has opened in all."""
    probe_at: float = field(default=0.0, init=False)
    """While it is open: when it lets a record through."""
    _in_turn: int = field(default=0, init=False)
    """How often it has opened since it was closed."""
    _failed: deque[bool] = field(init=False)
    """The last attempts while it is closed."""
    _successes: int = field(default=0, init=False)
    _suspects: WeakKeyDictionary[Any, tuple[int, int]] = field(factory=WeakKeyDictionary, init=False, repr=False)
    """Units that have failed, each with how many others had succeeded by then, and how many of these have succeeded between two of
    its failures. Those that leave are forgotten."""
    _running: dict[Any, int] = field(factory=dict, init=False, repr=False)
    """Units under way, each with how often it had opened when they began. One that began before says nothing about now."""
    _allowed: int = field(default=1, init=False)
    """How many may run while it is not closed."""
    _risen: int = field(default=0, init=False)
    """Successes at this height."""

    def __attrs_post_init__(self) -> None:
        self._failed = deque(maxlen=max(self.breaker.window, self.breaker.in_a_row or 0))

    def admits(self, now: float) -> bool:
        """Whether another unit may begin."""
        if self.state is CircuitState.CLOSED:
            return True
        if self.state is CircuitState.OPEN:
            if now < self.probe_at:
                return False
            CIRCUIT.move(self, CircuitInput.TIME_HAS_COME)
            self._allowed = 1
        return sum(began == self.opened for began in self._running.values()) < self._allowed

    @property
    def due_at(self) -> float | None:
        """When it lets a record through; ``None``: that depends on no time."""
        return self.probe_at if self.state is CircuitState.OPEN else None

    def begins(self, unit: Any) -> None:
        """A unit is handled from now on."""
        self._running[unit] = self.opened

    def ends(self, unit: Any) -> None:
        """A unit ended without a result that counts."""
        self._running.pop(unit, None)

    def gone(self, unit: Any) -> None:
        """A unit is done."""
        self.ends(unit)
        self._suspects.pop(unit, None)

    def succeeded(self, unit: Any) -> None:
        """A handler has returned, or failed for a reason of its own.

        What others of a batch have left did not begin: it shows that others can, but the batch is one attempt, which failed.
        """
        began = self._running.pop(unit, None)
        counts = began == self.opened
        self._successes += 1
        if began is None:
            return
        if self.state is CircuitState.CLOSED:
            self._failed.append(False)
        elif counts and self.state is CircuitState.HALF_OPEN:
            CIRCUIT.move(self, CircuitInput.SUCCEEDED)
            self._rise()
        elif counts and self.state is CircuitState.RISING:
            self._risen += 1
            if self._risen >= self._allowed:
                self._rise()

    def _rise(self) -> None:
        self._allowed, self._risen = 2 * self._allowed, 0
        if self._allowed >= self.most and self.state is CircuitState.RISING:
            CIRCUIT.move(self, CircuitInput.RISEN)
            self._failed.clear()
            self._in_turn = 0

    def failed(self, unit: Any, error: BaseException, now: float) -> bool:
        """A handler has failed. Return whether that is not an attempt, and the unit is to be kept.

        Raises what ``probe_after`` raises.
        """
        if not self.breaker.covers(error):
            self.succeeded(unit)
            return False
        counts = self._running.pop(unit, None) == self.opened
        successes, before = self._suspects.get(unit, (self._successes, 0))
        is_open = self.state is CircuitState.OPEN
        # Between two failures there may never be as many as prove something, if few records come: one at each probe.
        between = before + (0 if is_open else min(PROOF, self._successes - successes))
        self._suspects[unit] = self._successes, between
        if not is_open and between >= STRIKES * PROOF:
            return False
        if between // PROOF > before // PROOF:
            return True  # others can: this says nothing about what they depend on
        if self.state is CircuitState.CLOSED:
            self._failed.append(True)
            if self._is_too_much():
                self._open(CircuitInput.TRIPPED, error, now)
        elif counts and not is_open:
            self._open(CircuitInput.FAILED, error, now)
        return True

    def _is_too_much(self) -> bool:
        failed, row = self._failed, self.breaker.in_a_row
        if sum(islice(reversed(failed), self.breaker.window)) >= self.breaker.ratio * self.breaker.window:
            return True
        return row is not None and len(failed) >= row and all(islice(reversed(failed), row))

    def _open(self, what: CircuitInput, error: BaseException, now: float) -> None:
        pause = self.breaker.pause(self._in_turn + 1, error)
        CIRCUIT.move(self, what)
        self.opened += 1
        self._in_turn += 1
        self.probe_at = now + pause
        self._failed.clear()
