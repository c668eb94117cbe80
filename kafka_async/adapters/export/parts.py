"""How ranges of offsets are cut into parts, a file for each, and which parts are written at a time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...model import TopicPartition
from ...values import frozen

PART_OFFSETS: Final = 5_000_000
"""Offsets of a part: what an export that was ended writes again is at most a few parts."""
AT_ONCE: Final = 4
"""Parts that are written at a time, if there are large ones: each holds a row group."""
MOST: Final = 64
"""The same for small ones: reading several partitions at a time costs less than one after the other."""


@frozen
class ExportPart:
    """Offsets of one partition that go into one file."""

    partition: TopicPartition
    start: int
    end: int
    """The one behind the last."""

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start

    def name(self, ending: str) -> str:
        """Return the name of its file; those of a partition sort by offset.

        Readers of folders pass over names that begin with an underscore or a point, as those of topics may.
        """
        hidden = self.partition.topic.startswith(("_", "."))
        return f"{'part-' if hidden else ''}{self.partition}-{self.start:020}{ending}"


def cut(ranges: Mapping[TopicPartition, tuple[int, int]], size: int) -> list[ExportPart]:
    """Return the parts of ranges: at most ``size`` offsets each, the same ones for the same ranges."""
    return [
        ExportPart(partition, at, min(at + size, end))
        for partition, (start, end) in sorted(ranges.items())
        for at in range(start, end, size)
    ]


def rounds(parts: Iterable[ExportPart], size: int, at_once: int = AT_ONCE) -> list[list[ExportPart]]:
    """Return which parts are written at a time: of each partition one at most.

    That is ``at_once`` of them, or more if all of them together are smaller than ``size`` offsets.
    """
    waiting = _by_partition(parts)
    found = []
    while waiting:
        chosen: list[ExportPart] = []
        for partition in list(waiting):
            if len(chosen) >= MOST or (len(chosen) >= at_once and sum(part.size for part in chosen) >= size):
                break
            left = waiting.pop(partition)
            chosen.append(left[0])
            if len(left) > 1:
                waiting[partition] = left[1:]  # at the end: others come before it again
        found.append(chosen)
    return found


def _by_partition(parts: Iterable[ExportPart]) -> dict[TopicPartition, list[ExportPart]]:
    found: dict[TopicPartition, list[ExportPart]] = {}
    for part in parts:
        found.setdefault(part.partition, []).append(part)
    return found


def ranges_of(parts: Sequence[ExportPart]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the ranges that parts of different partitions have."""
    return {part.partition: (part.start, part.end) for part in parts}
