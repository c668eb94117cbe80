"""Ranges of offsets into tasks.

``minPartitions`` and ``maxRecordsPerPartition`` mean what they do in Spark's own connector (``KafkaOffsetRangeCalculator``), in
batch reads too. Unlike there, several small ranges share a task: a task costs more than fetching a few records.
"""

from collections.abc import Iterable
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Any, Final

from ...model import TopicPartition
from ...values import evolve, field, frozen

PACK_RECORDS: Final = 1000
"""Ranges share a task up to so many offsets together, unless ``packRecords`` is set."""


@frozen
class OffsetRange:
    """The offsets of a partition from ``start`` up to, and without, ``end``."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: Any = field(default=None, eq=False)
    """The id of the topic whose offsets these are; ``None``: not known."""
    earliest: bool = field(default=False, eq=False)
    """It was to begin where the log does: what is deleted before it is read is not a loss."""

    @property
    def size(self) -> int:
        return self.end - self.start


Task = tuple[OffsetRange, ...]


def plan(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    pack: int = PACK_RECORDS,
    cores: int = 1,
) -> list[Task]:
    """Return the tasks that read ``ranges``, in the order of topics and partitions. Empty ranges are left out.

    No task reads more than ``max_records`` offsets; there are at least ``min_partitions`` tasks if there are that many offsets.
    Ranges share a task up to ``pack`` offsets (0: never), but there are at least as many tasks as ``cores`` if there are that
    many ranges: the job's own work on each record may cost more than a task.
    """
    pieces = sorted((piece for piece in ranges if piece.size > 0), key=lambda piece: (piece.partition, piece.start))
    if max_records is not None:
        pieces = [part for piece in pieces for part in _divided(piece, -(-piece.size // max_records))]
    if min_partitions is not None and 0 < len(pieces) < min_partitions:
        pieces = _spread(pieces, min_partitions)
    limit = pack if max_records is None else min(max_records, pack)
    least = max(min_partitions or 1, cores)
    fair = sum(piece.size for piece in pieces) // least + max((piece.size for piece in pieces), default=1) - 1
    return _packed(pieces, min(limit, fair), least)


def _divided(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return the range in ``parts`` pieces whose sizes differ by one at most; fewer if it has fewer offsets."""
    cuts = [piece.start + piece.size * number // parts for number in range(parts + 1)]
    return [evolve(piece, start=start, end=end) for start, end in pairwise(cuts) if start < end]


def _spread(pieces: list[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Divide ranges, always that with the largest pieces, until there are ``wanted``, or no offset is left to divide."""
    parts = [1] * len(pieces)
    largest = [(-float(piece.size), number) for number, piece in enumerate(pieces)]
    heapify(largest)
    offsets = sum(piece.size for piece in pieces)
    for _ in range(min(wanted, offsets) - len(pieces)):
        number = largest[0][1]
        parts[number] += 1
        heapreplace(largest, (-pieces[number].size / parts[number], number))
    return [part for piece, count in zip(pieces, parts, strict=True) for part in _divided(piece, count)]


def _packed(pieces: list[OffsetRange], limit: int, least: int) -> list[Task]:
    """Put neighbours together while they have at most ``limit`` offsets, and at least ``least`` tasks are left."""
    tasks: list[list[OffsetRange]] = []
    spare = len(pieces) - least
    for piece in pieces:
        if tasks and spare > 0 and sum(other.size for other in tasks[-1]) + piece.size <= limit and _apart(tasks[-1], piece):
            tasks[-1].append(piece)
            spare -= 1
        else:
            tasks.append([piece])
    return [tuple(task) for task in tasks]


def _apart(task: list[OffsetRange], piece: OffsetRange) -> bool:
    """A task reads one range of a partition."""
    return all(other.partition != piece.partition for other in task)
