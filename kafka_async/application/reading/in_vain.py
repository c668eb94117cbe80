"""Reads that wait while nothing is subscribed or assigned.

Java raises ``IllegalStateException`` there. Here another task may subscribe meanwhile, so the read goes on waiting, and the log
says why nothing comes.
"""

from math import inf
from typing import Final

from ...trace import Fault, Listener, Recovered
from ...values import define, field

OUTAGE: Final = "reading"
PATIENCE: Final = 3.0
"""Seconds for which it is normal: between two subscriptions, or while the program starts."""


@define(eq=False)
class InVain:
    """Says so once, and once more when it is over, however many reads wait meanwhile."""

    trace: Listener = field(repr=False)
    text: str
    since: float = field(default=inf, init=False)
    """When the first of the reads began that wait in vain now."""
    _said: bool = field(default=False, init=False)

    def look(self, now: float, *, nothing: bool) -> float:
        """A read is about to wait. Return after how many seconds it is to look again. ``nothing``: there is nothing to read."""
        if not nothing:
            if self._said:
                self.trace(Recovered(now=now, outage=OUTAGE))
            self.since, self._said = inf, False
            return inf
        self.since = min(self.since, now)
        left = self.since + PATIENCE - now
        if left <= 0 and not self._said:
            self._said = True
            self.trace(Fault(now=now, text=self.text, outage=OUTAGE))
        return left if left > 0 else inf
