"""Metrics under Kafka's names, counted from trace events.

Decides: what each number means. Owns the counts. Must never read a clock: an event brings its time, ``snapshot`` is told.

Names and groups are those of Java's ``FetchMetricsRegistry``, ``SelectorMetricsRegistry`` and ``Sensor`` (two samples of 30 seconds).
Where the numbers differ from Java's: a rate divides by the time that was observed (at least a second), so that it is right from the
start, where Java divides by a full sample at least; the size of a fetch is that of its response; ``records-lag-max`` is the largest lag
now; ``records-per-request-avg`` is over the whole life. What trace events cannot tell truthfully is left out, such as
``connection-count``: a connection may be closed under another name than it was opened (see ``Statistics.connections``).

Threads: events are written by one thread, the background's, while ``snapshot`` may run in another. Each meter replaces one tuple by
another in a single assignment, and a reader takes that tuple once, so it sees a meter before an event or after it, never between.
Two meters may be one event apart. ``Consumed`` events come from the application's thread and are not counted here: the application
hands over its own totals.
"""

from collections.abc import Mapping
from math import nan
from typing import Final

from attrs import define, field

from ..model import TopicPartition
from ..trace import ConnectionClosed, ConnectionOpened, RequestSent, ResponseReceived, TraceEvent

SAMPLE_SECONDS: Final = 30.0
"""Kafka's default for ``metrics.sample.window.ms``; ``metrics.num.samples`` is 2."""
MAX_NODES: Final = 256
"""Nodes counted one by one; further ones share the entry ``other``. Names can change for as long as a process lives."""

_Sample = tuple[float, int, float, float]  # when it began, values, their sum, the largest


@define(eq=False)
class Meter:
    """Counts values for ever, and over the last 30 to 60 seconds."""

    _state: tuple[int, float, _Sample, _Sample] | None = None  # values and sum for ever; the sample before, the sample now

    def record(self, value: float, now: float) -> None:
        """Count ``value``, seen at ``now`` (seconds)."""
        state = self._state
        if state is None:
            sample = (now, 1, value, value)
            self._state = (1, value, sample, sample)
            return
        count, total, before, current = state
        start, number, amount, largest = current
        if now - start < SAMPLE_SECONDS:
            if before is current:
                before = (start, 0, 0.0, value)
            current = (start, number + 1, amount + value, value if value > largest else largest)
        else:
            before, current = current, (now, 1, value, value)
        self._state = (count + 1, total + value, before, current)

    @property
    def count(self) -> int:
        """Values seen so far."""
        return self._state[0] if self._state is not None else 0
