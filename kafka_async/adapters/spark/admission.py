"""How much a micro-batch takes.

Decides: where the next micro-batch ends, and whether it is worth one yet. Owns: when there was one last. Pure: the time is an
argument. Must never let a large partition starve a small one, or wait for more where nothing more is to come.

``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` mean what they do in Spark's own connector
(``KafkaMicroBatchStream``). Spark's Python API has no limit that is made of several, so they are put together here.
"""

from collections.abc import Mapping
from math import inf

from attrs import define, field

from ...model import TopicPartition
from .offsets import Offsets


@define(eq=False)
class Admission:
    """Decides about one stream. Numbers of offsets, ``None``: no limit; seconds."""

    least: int | None = None
    max_delay: float = 900.0
    _batch_at: float = field(default=-inf, init=False)

    def end(self, starts: Offsets, latest: Offsets, most: int | None, *, wait: bool, now: float) -> Offsets:
        """Return where the next batch ends: ``starts`` where it is not worth one yet.

        ``latest``: where the partitions end; they are those of the next batch. ``wait``: whether ``least`` counts.
        """
        if wait and self.least is not None:
            waiting = sum(max(0, end - starts.get(partition, 0)) for partition, end in latest.items())
            if waiting < self.least and now < self._batch_at + self.max_delay:
                return starts
            self._batch_at = now
        return latest if most is None else share(starts, latest, most)


def share(starts: Mapping[TopicPartition, int], latest: Offsets, most: int) -> Offsets:
    """Return ends that take about ``most`` offsets, of each partition in proportion to what waits in it, but at least one."""
    waiting = {partition: end - starts.get(partition, 0) for partition, end in latest.items()}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= most:
        return latest
    ends = {}
    for partition, size in waiting.items():
        part = max(1, most * size // total) if size > 0 else size
        ends[partition] = starts.get(partition, 0) + min(part, size)
    return ends
