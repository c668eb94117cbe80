"""How fast, and whether at all, handlers may begin: a rate, a breaker, and an end if too many records fail for good.

A queue that hands out nothing while a limit says no. Records that were received stay where they are, heartbeats and commits go on.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import repeat
from math import inf
from operator import itemgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...errors import TooManyFailuresError
from ...functions import is_async, takes_context
from ...model import TopicPartition
from ...trace import Fault, Listener, Recovered
from ...values import define, field, frozen
from .breaker import Breaker, Circuit, CircuitState
from .context import ProcessingContext
from .items import Item, Pack, Record
from .lanes import Lanes
from .queues import Fate, Queue
from .run_state import RunState

Unit = Item | Pack
Unfinished = tuple[TopicPartition, int, float]
"""Partition and offset of a record, and since when it has been unfinished."""

BREAKER: Final = "the breaker of process"
"""The outage while it is not closed."""
_ROUNDING: Final = 1e-6
"""Of a token: what came at its time must not be waited for once more."""
STEP: Final = 0.01
"""Seconds. After a rate was reached, as many records begin together as it has for so long: a wake-up for each costs more."""


@define(eq=False)
class TokenBucket:
    """A rate: ``rate`` tokens a second, of which those of one second (but one at least) are kept. Starts with one step's."""

    rate: float
    _tokens: float = field(init=False)
    _at: float = field(default=-inf, init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens = self._step

    @property
    def _step(self) -> float:
        return max(1.0, self.rate * STEP)

    def _fill(self, now: float) -> None:
        if now > self._at:
            if self._at > -inf:
                self._tokens = min(max(1.0, self.rate), self._tokens + (now - self._at) * self.rate)
            self._at = now

    def has(self, now: float) -> bool:
        """Whether there is a token."""
        self._fill(now)
        return self._tokens >= 1.0 - _ROUNDING

    def take(self, count: int) -> None:
        """Take tokens; what is not there is owed."""
        self._tokens -= count

    @property
    def due_at(self) -> float:
        """When there are tokens for a step."""
        return self._at + max(0.0, self._step - self._tokens) / self.rate


@define(eq=False)
class FailureShare:
    """How many of the last records were given up."""

    most: int
    of: int
    _given_up: deque[bool] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._given_up = deque(maxlen=self.of)

    def done(self, count: int) -> None:
        """Records were handled."""
        self._given_up.extend(repeat(False, min(count, self.of)))

    def given_up(self, count: int) -> int | None:
        """Records were given up. Return how many of the last ones were, if these are too many."""
        self._given_up.extend(repeat(True, min(count, self.of)))
        found = sum(self._given_up)
        return found if found >= self.most else None


@frozen
class HandlerLimits:
    """The limits of one ``process``, checked."""

    rate: float | None
    around: AbstractAsyncContextManager[Any] | None
    """What is entered around each attempt instead of a rate."""
    breaker: Breaker | None
    too_many_failures: tuple[int, int] | None
    """Records that were given up, of so many."""


@define(eq=False)
class Barrier:
    """A queue behind limits."""

    queue: Queue
    bucket: TokenBucket | None
    circuit: Circuit | None
    failures: FailureShare | None
    clock: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    fail: Callable[[BaseException], None] = field(repr=False)
    """Ends all with an error."""
    changed: Callable[[], None] = field(repr=False)
    """Called when something else may begin than before, or nothing until ``due_at``."""
    free_since: float = -inf
    """Since when nothing keeps units that are ready from beginning; infinity: something may that is not known here."""
    _began: dict[Unit, float] = field(factory=dict, init=False, repr=False)
    """Units that are handled, each with the time at which that began: the first attempt, if others failed."""
    _tried: WeakKeyDictionary[Item, tuple[float, float]] = field(factory=WeakKeyDictionary, init=False, repr=False)
    """Records of which an attempt failed: when the first one began, and the next is due. Weak: some leave with their partition."""
    _shut: bool = field(default=False, init=False)
    _too_fast: bool = field(default=False, init=False)
    """Shut because of the rate."""

    @property
    def lanes(self) -> Lanes:
        return self.queue.lanes

    @property
    def held(self) -> int:
        return self.queue.held

    @property
    def is_down(self) -> bool:
        """Whether what handlers depend on is down, as far as is known."""
        return self.circuit is not None and self.circuit.state in (CircuitState.OPEN, CircuitState.HALF_OPEN)

    @property
    def shut(self) -> bool:
        """Whether nothing begins now."""
        return self._shut and not self._admits(self.clock())

    @property
    def due_at(self) -> float:
        """When something may begin again; infinity: now, or that does not depend on the time."""
        if not self._shut:
            return inf
        if self._too_fast:
            return inf if self.bucket is None else self.bucket.due_at
        probe_at = None if self.circuit is None else self.circuit.due_at
        return inf if probe_at is None else probe_at

    def _admits(self, now: float) -> bool:
        """Whether a unit may begin. Say so if that is no longer so."""
        bucket = self.bucket
        self._too_fast = bucket is not None and not (bucket.has(now) and (not self._too_fast or now >= bucket.due_at))
        before, self._shut = self._shut, self._too_fast or not (self.circuit is None or self.circuit.admits(now))
        if self._shut and not before:
            self.changed()
        elif before and not self._shut:
            self.free_since = max(self.free_since, now)
        return not self._shut

    def busiest(self, oldest: Unfinished | None) -> Unfinished | None:
        """Return the record that has kept us busy the longest, and since when; ``None`` if none does. From any thread.

        ``oldest``: the record that has been unfinished the longest. If its handler has not begun, that counts only since nothing is
        kept from beginning: such a wait is no fault of a handler's, and hides none either. A record that is tried again has kept us
        busy since its first attempt, but for the times from when it was due until it began: a limit may have kept it then.
        """
        found: list[Unfinished] = []
        if oldest is not None and not self._shut and self.free_since < inf:
            found.append((oldest[0], oldest[1], max(oldest[2], self.free_since)))
        busy = list(self._began.items())
        now = self.clock()
        tried = (item for each in self._tried.keyrefs() if (item := each()) is not None)  # a copy: the loop may be at work
        busy.extend((item, self._tried_since(item, now)) for item in tried if self.queue.is_open(item))
        for unit, began in busy:
            item = next((item for item in tuple(unit.items) if item.part.live and not item.part.paused), None)
            if item is not None:
                record = item.record
                found.append((TopicPartition(record.topic, record.partition), record.offset, began))
        return min(found, key=itemgetter(2), default=None)

    def _tried_since(self, item: Item, now: float) -> float:
        """Return when its first attempt began, or would have if it had never waited once it was due."""
        since, due = self._tried.get(item, (now, now))
        return since + max(0.0, now - due)

    def _begins(self, unit: Unit) -> None:
        now = self.clock()
        self._began[unit] = min((self._tried_since(item, now) for item in unit.items if item.attempt > 1), default=now)
        if self.bucket is not None:
            self.bucket.take(len(unit.items))
        if self.circuit is not None:
            self.circuit.begins(unit)

    def take(self) -> Item | None:
        if not self._admits(self.clock()):
            return None
        item = self.queue.take()
        if item is not None:
            self._begins(item)
        elif self.is_down:
            self.changed()  # no record is tried: one of those that failed may be
        return item

    def take_pack(self) -> Pack | None:
        if not self._admits(self.clock()):
            return None
        pack = self.queue.take_pack()
        if pack is not None:
            self._begins(pack)
        elif self.is_down:
            self.changed()
        return pack

    def covers(self, error: BaseException) -> bool:
        """Whether an exception says that what handlers depend on is down."""
        return self.circuit is not None and self.circuit.breaker.covers(error)

    def failed(self, unit: Unit, error: BaseException) -> bool:
        """A handler has failed. Return whether that is not an attempt, and the unit is kept. Raises what a user's function does."""
        if self.circuit is None:
            return False
        before, opened, now = self.circuit.state, self.circuit.opened, self.clock()
        kept = self.circuit.failed(unit, error, now)
        if self.circuit.opened == opened:
            self._look_after_success(before, now)  # it may have failed for a reason of its own
        else:
            seconds = round(self.circuit.probe_at - now, 1)
            text = f"the breaker is open: no handler begins; a record is tried in {seconds:g} s"
            self.trace(Fault(now=now, text=text, error=error, outage=BREAKER))
            self._admits(now)
        return kept

    def _look_after_success(self, before: CircuitState, now: float) -> None:
        if self.circuit is None or before is CircuitState.CLOSED:
            return
        self.changed()  # those that failed may begin again
        if self.circuit.state is CircuitState.CLOSED:
            self.trace(Recovered(now=now, outage=BREAKER))

    def _succeeded(self, unit: Unit, now: float) -> None:
        if self.circuit is not None:
            before = self.circuit.state
            self.circuit.succeeded(unit)
            self.circuit.gone(unit)
            self._look_after_success(before, now)
        if self.failures is not None:
            self.failures.done(len(unit.items))

    def _finished(self, unit: Unit) -> None:
        self._began.pop(unit, None)
        for item in unit.items:
            if item.attempt > 1:
                self._tried.pop(item, None)

    def succeeded(self, item: Item, now: float) -> None:
        self._finished(item)
        self.queue.succeeded(item, now)
        self._succeeded(item, now)

    def pack_succeeded(self, pack: Pack, now: float) -> None:
        self._finished(pack)
        self.queue.pack_succeeded(pack, now)
        self._succeeded(pack, now)

    def gave_up(self, unit: Unit, fate: Fate, now: float) -> None:
        self._finished(unit)
        self.queue.gave_up(unit, fate, now)
        if self.circuit is not None:
            self.circuit.gone(unit)

    def refused(self, records: Sequence[Record], error: BaseException) -> None:
        """Records were given up because of ``error``."""
        if self.failures is None:
            return
        if (found := self.failures.given_up(len(records))) is not None:
            text = f"{found} of the last {self.failures.of} records failed for good: the service stops (too_many_failures)"
            failure = TooManyFailuresError(text, records[0])
            failure.__cause__ = error
            self.fail(failure)

    def retry(self, unit: Unit, due: float, now: float, *, counts: bool = True) -> bool:
        began = self._began.get(unit, now)
        self._ends(unit)
        if not self.queue.retry(unit, due, now, counts=counts):
            return False
        if counts:  # else the attempts before this one still do
            self._tried.update((item, (began, due)) for item in unit.items)
        return True

    def interrupted(self, unit: Unit, now: float) -> None:
        self._ends(unit)
        self.queue.interrupted(unit, now)

    def _ends(self, unit: Unit) -> None:
        self._began.pop(unit, None)
        if self.circuit is not None:
            self.circuit.ends(unit)

    def is_open(self, unit: Unit) -> bool:
        return self.queue.is_open(unit)

    def split(self, pack: Pack, items: Collection[Item]) -> Pack:
        part = self.queue.split(pack, items)
        self._began[part] = self._began.get(pack, self.clock())
        return part

    def unhandled(self, pack: Pack, items: Collection[Item], now: float) -> None:
        self.queue.unhandled(pack, items, now)


def checked_limits(rate: Any, breaker: Any, too_many_failures: Any) -> HandlerLimits | None:
    """Return the limits; ``None`` if there are none. Raises ``TypeError`` and ``ValueError`` that name what is wrong."""
    around = rate if isinstance(rate, AbstractAsyncContextManager) else None
    number = rate if around is None else None
    if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
        raise TypeError(f"rate={rate!r}: expected a number of records a second, or an async context manager")
    if number is not None and not 0 < number < inf:
        raise ValueError(f"rate={rate!r}: expected records a second, more than 0")
    if breaker is not None and not isinstance(breaker, Breaker):
        raise TypeError(f"breaker={breaker!r}: expected a Breaker")
    share = None if too_many_failures is None else _share(too_many_failures)
    return None if rate is None and breaker is None and share is None else HandlerLimits(number, around, breaker, share)


def within(around: AbstractAsyncContextManager[Any], handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that runs within a context manager. Raises ``TypeError`` for a plain one."""
    if not is_async(handler):
        raise TypeError(f"rate={around!r}: an async context manager is for async def handlers; for plain ones give a number")
    with_context = takes_context(handler)

    async def limited(argument: Any, context: ProcessingContext) -> Any:
        async with around:
            return await (handler(argument, context) if with_context else handler(argument))

    return limited


def _share(value: Any) -> tuple[int, int]:
    expected = "expected two integers: so many records that failed for good, of so many"
    if not isinstance(value, tuple) or len(value) != 2 or not all(type(each) is int for each in value):
        raise TypeError(f"too_many_failures={value!r}: {expected}")
    most, of = value
    if not 1 <= most <= of:
        raise ValueError(f"too_many_failures={value!r}: {expected}, the first at most the second")
    return most, of


def behind_limits(queue: Queue, limits: HandlerLimits | None, concurrency: int, run: RunState) -> tuple[Queue, Barrier | None]:
    """Put a queue behind limits, if there are any."""
    if limits is None:
        return queue, None
    barrier = Barrier(
        queue,
        None if limits.rate is None else TokenBucket(limits.rate),
        None if limits.breaker is None else Circuit(limits.breaker, concurrency),
        None if limits.too_many_failures is None else FailureShare(*limits.too_many_failures),
        run.clock,
        run.trace,
        run.fail,
        run.change,
        -inf if limits.around is None else inf,  # it keeps handlers that have begun, and so what is behind them
    )
    return barrier, barrier
