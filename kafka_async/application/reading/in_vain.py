"""Reads that wait while nothing is subscribed or assigned.

Java raises ``IllegalStateException`` there. Here another task may subscribe meanwhile, so the read goes on waiting, and the log
says why nothing comes.
"""

from math import inf
from typing import TYPE_CHECKING, Final

from ...trace import Fault, Listener, Recovered
from ...values import define, field

if TYPE_CHECKING:
    from ..lifecycle.runtime import Runtime

OUTAGE: Final = "reading"
PATIENCE: Final = 3.0
"""Seconds for which it is normal: between two subscriptions, or while the program starts."""


@define(eq=False)
class InVain:
    """Says so once, and once more when it is over, however many reads wait meanwhile."""

    trace: Listener = field(repr=False)
    runtime: "Runtime" = field(repr=False)
    text: str
    since: float = field(default=inf, init=False)
    """When the first of the reads began that wait in vain now, one after the other or at once."""
    ended_at: float = field(default=inf, init=False)
    """When a read last ended that had waited, whatever for; its reader writes this. Infinity: none has since the last look."""
    _said: bool = field(default=False, init=False)

    def look(self, now: float, *, nothing: bool) -> float:
        """A read is about to wait. Return after how many seconds it is to look again. ``nothing``: there is nothing to read."""
        if not nothing:
            self.over()
            return inf
        if not self._said and now > self.ended_at + PATIENCE:
            self.since = inf  # nobody missed anything meanwhile
        self.since, self.ended_at = min(self.since, now), inf
        left = self.since + PATIENCE - now
        if left <= 0 and not self._said:
            self._said = True
            self.trace(Fault(now=now, text=self.text, outage=OUTAGE))
        return left if left > 0 else inf

    def over(self, *, needed: bool = True) -> None:
        """There is something to read, or nobody reads any more (``needed=False``): it ends now, and not with the next read."""
        said, self.since, self._said = self._said, inf, False
        if said:
            self.trace(Recovered(now=self.runtime.clock(), outage=OUTAGE, needed=needed))
