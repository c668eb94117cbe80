"""How much a micro-batch takes.

``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` mean what they do in Spark's own connector
(``KafkaMicroBatchStream``). Spark's Python API has no composite limit, so they are combined here.
"""

from collections.abc import Mapping
from math import inf

from ....model import TopicPartition
from ....values import define, field
from ...ranges.offsets import Offsets


@define(eq=False)
class Admission:
    """Decides about one stream. Numbers of offsets, ``None``: no limit; seconds."""

    least: int | None = None
    max_delay: float = 900.0
    _batch_at: float = field(default=-inf, init=False)

    def end(self, starts: Offsets, latest: Offsets, most: int | None, *, wait: bool, now: float) -> Offsets:
        """Return where the next batch ends: ``starts`` if there is not enough for one yet.

        ``latest``: where the partitions end; they are those of the next batch. ``wait``: whether ``least`` counts.
        """
        if wait and self.least is not None:
            waiting = sum(max(0, end - starts.get(partition, 0)) for partition, end in latest.items())
            if waiting < self.least and now < self._batch_at + self.max_delay:
                return starts
            self._batch_at = now
        return latest if most is None else share(starts, latest, most)


def share(starts: Mapping[TopicPartition, int], latest: Offsets, most: int) -> Offsets:
    """Return ends that take ``most`` offsets, of each partition in proportion to what waits in it, but at least one.

    What is left over by rounding down goes to the first partitions, one offset each: else a batch of its own would take it at last.
    """
    waiting = {partition: end - starts.get(partition, 0) for partition, end in latest.items()}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= most:
        return latest
    parts = {partition: max(1, most * size // total) if size > 0 else size for partition, size in waiting.items()}
    left = most - sum(part for part in parts.values() if part > 0)
    for partition in sorted(parts):
        if left > 0 and 0 < parts[partition] < waiting[partition]:
            parts[partition] += 1
            left -= 1
    return {partition: starts.get(partition, 0) + part for partition, part in parts.items()}
