"""How many bytes a micro-batch takes (``maxBytesPerTrigger``).

Brokers do not report the size of records before they are read. So the driver reads a few of the waiting records of each partition
at their beginning, and a few halfway to where the batch would then end. It reads none if far fewer wait than the limit allows,
unless about as many bytes as in a batch have passed since it last read some: records may be larger by now.
"""

from collections.abc import Mapping
from typing import Final

from ....model import TopicPartition
from ....values import define, field
from ...ranges.offsets import Offsets, Ranges
from .lookup import Lookup

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
    _seen_at: dict[TopicPartition, int] = field(factory=dict, init=False)
    """The last offset at which the size of records was seen."""

    def limited(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return where a batch ends that takes about ``most`` bytes, of each partition in proportion to what waits in it."""
        waiting = rest({partition: (starts.get(partition, 0), end) for partition, end in ends.items()}, {})
        if self._is_little(waiting):
            return ends
        # What is gone takes no bytes, and cannot be sampled: a stream may have been away for longer than its topics are kept.
        waiting = rest(waiting, self.lookup.earliest(waiting))
        samples = self.lookup.samples(waiting)
        waiting = rest(waiting, {partition: sample.first for partition, sample in samples.items()})
        first = {partition: samples[partition].size for partition in samples.keys() & waiting.keys()}
        self._sizes |= first
        self._seen_at |= {partition: waiting[partition][0] for partition in first}
        cut = share_bytes(waiting, self._known(waiting), self.most)
        if not first:  # they cannot be read at the moment
            return ends | cut
        later = self.lookup.samples(
            {tp: (middle, cut[tp]) for tp, (start, _) in waiting.items() if (middle := (start + cut[tp]) // 2) < cut[tp]}
        )
        sizes = {partition: sample.size for partition, sample in later.items() if sample.size}
        self._seen_at |= {partition: later[partition].first for partition in sizes}
        self._sizes |= {partition: (first.get(partition, size) + size) / 2 for partition, size in sizes.items()}
        return ends | share_bytes(waiting, self._known(waiting), self.most)

    def _is_little(self, waiting: Ranges) -> bool:
        """Return whether what waits is far below the limit, by sizes that were seen not long before."""
        if not waiting.keys() <= self._sizes.keys() or _FAR * volume(waiting, self._sizes) > self.most:
            return False
        # What was seen may lie above what waits: in a topic that was created again, or if the batch then ended before it.
        spans = {tp: (min(start, self._seen_at[tp]), max(end, self._seen_at[tp])) for tp, (start, end) in waiting.items()}
        return volume(spans, self._sizes) <= self.most

    def _known(self, waiting: Ranges) -> Sizes:
        """Return a size for each partition: that of the others if nothing was seen of it."""
        seen = [self._sizes[partition] for partition in waiting if partition in self._sizes]
        others = sum(seen) / len(seen) if seen else UNKNOWN
        return {partition: self._sizes.get(partition, others) for partition in waiting}


def rest(waiting: Ranges, firsts: Mapping[TopicPartition, int]) -> Ranges:
    """Return what there is of ranges if partitions have nothing before ``firsts``."""
    left = {partition: (max(start, firsts.get(partition, start)), end) for partition, (start, end) in waiting.items()}
    return {partition: (start, end) for partition, (start, end) in left.items() if start < end}


def volume(waiting: Ranges, sizes: Sizes) -> float:
    """Return the bytes of ranges of offsets."""
    return sum((end - start) * sizes[partition] for partition, (start, end) in waiting.items())


def share_bytes(waiting: Ranges, sizes: Sizes, most: int) -> Offsets:
    """Return ends that take ``most`` bytes, the same part of what waits in each partition, but at least one offset."""
    total = volume(waiting, sizes)
    part = min(1.0, most / total) if total else 1.0
    return {partition: start + max(1, int((end - start) * part)) for partition, (start, end) in waiting.items()}
