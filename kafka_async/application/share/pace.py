"""How long the application takes for a record, if it reads by itself; ``process`` counts its handlers' time (``ShareSource``).

The time for which a read call waits does not count. Without the pace, a member whose jobs take long would lock hundreds of them,
and renew these locks, while others have nothing to do. So nothing is read ahead before it is known.
"""

from typing import Final

from ...background.boundary import Exchange
from ...background.share.orders import FALL
from ...values import define, field

_RECORDS: Final = 10
_SECONDS: Final = 0.25
"""A measurement ends with so many records, or after so long: several tasks that read come in bursts."""


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

    def begin(self, now: float) -> None:
        """A read call begins: the records handed out before are taken to be done."""
        since, self._since = self._since, None
        records = self.exchange.taken - self._taken
        demand = self.exchange.demand
        if since is None or records <= 0 or demand.handlers:
            return
        self._records += records
        self._seconds += now - since
        if self._records >= _RECORDS or self._seconds >= _SECONDS:
            demand.pace = max(self._seconds / self._records, demand.pace * FALL, 1e-6)  # 0 would stand for not known
            self._records, self._seconds = 0, 0.0

    def end(self, now: float, records: int) -> None:
        """A read call ends with so many records."""
        if self._since is None:  # else other tasks are at work too: what they have counts as well
            self._taken = self.exchange.taken - records
        self._since = now
