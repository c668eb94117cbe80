"""How many bytes a micro-batch takes (``maxBytesPerTrigger``).

Brokers do not report the size of records before they are read. So the driver reads a few of the waiting records at their beginning,
and a few halfway to where the batch would then end: ``SAMPLE`` offsets of each partition. It reads none if far fewer wait than the
limit allows.
"""

from collections.abc import Mapping
from typing import Final

from ....model import TopicPartition
from ....values import define, field
from ...ranges.offsets import Offsets
from .lookup import Lookup

SAMPLE: Final = 50
"""Offsets of a partition that are read to learn how large its records are."""
UNKNOWN: Final = 1000.0
"""Bytes of a record, as long as none was seen."""
_FAR: Final = 4
"""Waiting records are far below the limit if they could be so many times as large."""

Sizes = Mapping[TopicPartition, float]
"""Bytes of keys and values per offset."""


@define(eq=False)
class Volume:
    """Limits the batches of one stream to about ``most`` bytes."""

    lookup: Lookup
    most: int
    _sizes: dict[TopicPartition, float] = field(factory=dict, init=False)

    def limited(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return where a batch ends that takes about ``most`` bytes, of each partition in proportion to what waits in it."""
        waiting = {partition: (starts.get(partition, 0), end) for partition, end in ends.items()}
        waiting = {partition: (start, end) for partition, (start, end) in waiting.items() if start < end}
        if waiting.keys() <= self._sizes.keys() and _FAR * volume(waiting, self._sizes) <= self.most:
            return ends
        first = self.lookup.sizes({partition: (start, min(end, start + SAMPLE)) for partition, (start, end) in waiting.items()})
        self._sizes |= first
        if not first:  # they cannot be read at the moment
            return ends | share_bytes(waiting, self._known(waiting), self.most)
        cut = share_bytes(waiting, self._known(waiting), self.most)
        middles = {partition: (start + cut[partition]) // 2 for partition, (start, _) in waiting.items()}
        later = self.lookup.sizes(
            {partition: (at, min(cut[partition], at + SAMPLE)) for partition, at in middles.items() if at < cut[partition]}
        )
        self._sizes |= {partition: (first.get(partition, size) + size) / 2 for partition, size in later.items()}
        return ends | share_bytes(waiting, self._known(waiting), self.most)

    def _known(self, waiting: Mapping[TopicPartition, tuple[int, int]]) -> Sizes:
        """Return a size for each partition: that of the others if nothing was seen of it."""
        seen = [self._sizes[partition] for partition in waiting if partition in self._sizes]
        others = sum(seen) / len(seen) if seen else UNKNOWN
        return {partition: self._sizes.get(partition, others) for partition in waiting}


def volume(waiting: Mapping[TopicPartition, tuple[int, int]], sizes: Sizes) -> float:
    """Return the bytes of ranges of offsets."""
    return sum((end - start) * sizes[partition] for partition, (start, end) in waiting.items())


def share_bytes(waiting: Mapping[TopicPartition, tuple[int, int]], sizes: Sizes, most: int) -> Offsets:
    """Return ends that take ``most`` bytes, the same part of what waits in each partition, but at least one offset."""
    total = volume(waiting, sizes)
    part = min(1.0, most / total) if total else 1.0
    return {partition: start + max(1, int((end - start) * part)) for partition, (start, end) in waiting.items()}
