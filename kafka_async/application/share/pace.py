"""How long the application takes for a record: between read calls, or in the handlers of ``process`` (``LockSettlement``).

The time for which a read call waits does not count. Without the pace, a member whose jobs take long would lock hundreds of them,
and renew these locks, while others have nothing to do. So nothing is read ahead before it is known.
"""

from typing import Final

from ...background.boundary import Demand, Exchange
from ...values import define, field

_RECORDS: Final = 10
_SECONDS: Final = 0.25
"""A measurement ends with so many records, or after so long: several tasks that read come in bursts."""
_FALL: Final = 0.75
"""With each ``_RECORDS``, the pace falls by no more than this: after a long job among short ones, another one may soon follow."""
_MOMENT: Final = 0.05
"""Seconds of work by which the average goes, about: longer than a program pauses to collect garbage, or waits for a processor."""
_FASTEST: Final = 1e-9
"""Seconds for a record: 0 would say that the pace is not known."""


@define(eq=False)
class Measurements:
    """Makes two figures of what records took: a careful one, and an average that pauses of the program do not spoil.

    A consumer has one, for its reads and for ``process``: what one of them forgets the other does not know either.
    """

    demand: Demand = field(repr=False)
    _records: float = field(default=0.0, init=False)
    _seconds: float = field(default=0.0, init=False)
    """What records took of late, all handlers or tasks together."""

    def add(self, records: int, seconds: float, alongside: int = 1) -> bool:
        """So many records took so long, ``alongside`` each other. ``False``: they are too few to tell, and are to come again."""
        if not records or (records < _RECORDS and seconds < _SECONDS):
            return False
        demand, seconds = self.demand, seconds / alongside
        if seconds > 2 * _MOMENT:  # what came before says nothing if records took longer than a pause
            self._records = self._seconds = 0.0
        self._records += records
        self._seconds += seconds
        # Records count, not measurements: with hundreds of records in each, a pause would not be forgotten for thousands of them.
        least = demand.pace * _FALL ** max(1, records // _RECORDS)
        # The pace comes last: a background with a thread of its own may look in between, and takes a pace to have an average.
        demand.average = max(self._seconds / self._records, _FASTEST)
        demand.pace = max(seconds / records, least, _FASTEST)
        if self._seconds > _MOMENT:
            self._records *= _MOMENT / self._seconds
            self._seconds = _MOMENT
        return True

    def stuck_for(self, seconds: float) -> None:
        """No record was done for so many seconds."""
        demand = self.demand
        demand.average = self._seconds = max(demand.pace, seconds)
        demand.pace, self._records = self._seconds, 1.0

    def forget(self) -> None:
        """It is not known any more how long records take."""
        self.demand.pace = self.demand.average = self._records = self._seconds = 0.0


@define(eq=False)
class Pace:
    """Measures the time from the end of a read call to the beginning of the next one."""

    exchange: Exchange = field(repr=False)
    _since: float | None = field(default=None, init=False)
    """When the last read call ended; ``None`` while another one goes on."""
    _taken: int = field(default=0, init=False)
    """As it was before that call handed out its records."""
    _records: int = field(default=0, init=False)
    _seconds: float = field(default=0.0, init=False)
    measurements: Measurements = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.measurements = Measurements(self.exchange.demand)

    def begin(self, now: float) -> None:
        """A read call begins: the records handed out before are taken to be done."""
        since, self._since = self._since, None
        records = self.exchange.taken - self._taken
        if since is None or records <= 0 or self.exchange.demand.handlers:
            return
        self._records += records
        self._seconds += now - since
        if self.measurements.add(self._records, self._seconds):
            self._records, self._seconds = 0, 0.0

    def end(self, now: float, records: int) -> None:
        """A read call ends with so many records."""
        if self._since is None:  # else other tasks are at work too: what they have counts as well
            self._taken = self.exchange.taken - records
        self._since = now
