"""How much a scan will read, and about how long it takes: a sample of the records is read.

Brokers do not say how large records are. So a few are read at the beginning and in the middle of each partition, and then more of
the largest one, to see how fast they come and become columns here.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...errors import DataLossError, KafkaError, OffsetOutOfRangeError
from ...model import TopicPartition
from ...trace import counted
from ...values import frozen
from ..ranges.planner import OffsetRange
from ..ranges.sizes import SAMPLE, Sample, samples_of
from .pinning import REMEDY, Pinned, PinnedRanges
from .progress import lasting
from .streams import Job, Opened, read

if TYPE_CHECKING:
    from ..sync import KafkaConsumer

_TIMED_BYTES: Final = 4 << 20
"""About so many bytes are read to see how fast that is."""
_UNKNOWN_BYTES: Final = 1000.0
"""What a record counts for where no size is known: enough are read to see how fast that is, and not millions."""
_log = logging.getLogger("kafka_async.scan")
_SMALL_FETCHES: Final = {"max_partition_fetch_bytes": 64 << 10, "fetch_buffer_bytes": 8 << 20}


@frozen(kw_only=True)
class ScanPlan:
    """What a scan will read. Bytes and seconds are estimates from a sample."""

    ranges: PinnedRanges
    offsets: int
    """How many; there are as many records, or fewer."""
    bytes: int
    """Of keys and values."""
    seconds: float
    held_back: Mapping[TopicPartition, int]
    """Offsets that are left out, since they lie behind a transaction that is open."""

    def __str__(self) -> str:
        lines = [
            f"{counted(self.offsets, 'offset')} of {counted(len(self.ranges), 'partition')}, "
            f"about {_amount(self.bytes)}, about {lasting(self.seconds)}"
        ]
        for partition, (start, end) in sorted(self.ranges.items()):
            held = self.held_back.get(partition, 0)
            behind = f", {held:,} more behind an open transaction" if held else ""
            lines.append(f"  {partition}: {start} to {end}{f', {end - start:,} offsets' if end > start else ', empty'}{behind}")
        return "\n".join(lines)


def estimate(job: Job, pinned: Pinned, opened: Opened, clock: Callable[[], float] = time.perf_counter) -> ScanPlan:
    """Return what will be read. Raises ``DataLossError`` for offsets that are gone, if that ends the scan."""
    pieces = pinned.pieces()
    sizes = _sizes(job, pieces, opened)
    known = [size for size in sizes.values() if size]
    usual = sum(known) / len(known) if known else 0.0
    by_piece = {piece.partition: piece.size * sizes.get(piece.partition, usual) for piece in pieces}
    offsets = sum(piece.size for piece in pieces)
    return ScanPlan(
        ranges=pinned.ranges,
        offsets=offsets,
        bytes=round(sum(by_piece.values())),
        seconds=_seconds(job, pieces, by_piece, opened, clock),
        held_back=pinned.held_back,
    )


def _sizes(job: Job, pieces: list[OffsetRange], opened: Opened) -> dict[TopicPartition, float]:
    """Return the bytes of keys and values per offset of each partition; those that cannot be read now are left out."""
    halves: list[dict[TopicPartition, tuple[int, int]]] = [{}, {}]
    for piece in pieces:
        middle = (piece.start + piece.end) // 2 if piece.size > 2 * SAMPLE else piece.end
        halves[0][piece.partition] = (piece.start, middle)
        if middle < piece.end:
            halves[1][piece.partition] = (middle, piece.end)
    found: dict[TopicPartition, list[float]] = {}
    try:
        with opened.consumer(dict(job.options) | _SMALL_FETCHES) as consumer:
            for ranges in filter(None, halves):
                for partition, sample in _samples(consumer, ranges, fails=job.fails).items():
                    start, end = ranges[partition]
                    found.setdefault(partition, []).append(sample.size * (end - sample.first) / (end - start))
    except DataLossError:
        raise
    except KafkaError as error:  # such as a topic that is gone: what reads it finds out what to do about that
        _log.warning("the size of records is not known: %s", error)
    return {partition: sum(several) / len(several) for partition, several in found.items()}


def _samples(
    consumer: "KafkaConsumer", ranges: Mapping[TopicPartition, tuple[int, int]], *, fails: bool
) -> dict[TopicPartition, Sample]:
    """Return samples of ranges, of those whose first offsets are gone behind these."""
    try:
        return samples_of(consumer, ranges)
    except OffsetOutOfRangeError as error:
        begins = consumer.beginning_offsets(ranges)
        if fails and any(begins[partition] > start for partition, (start, _) in ranges.items()):
            text = f"{error}; {REMEDY}"
            raise DataLossError(text) from error
    left = {partition: (max(start, begins[partition]), end) for partition, (start, end) in ranges.items()}
    there = {partition: (start, end) for partition, (start, end) in left.items() if start < end}
    gone = {partition: Sample(first=ranges[partition][1], size=0.0) for partition in left.keys() - there.keys()}
    return gone | (samples_of(consumer, there) if there else {})


def _seconds(
    job: Job, pieces: list[OffsetRange], sizes: Mapping[TopicPartition, float], opened: Opened, clock: Callable[[], float]
) -> float:
    """Return how long all takes, judged by a part of the largest range, which is read as the scan reads it."""
    if not pieces:
        return 0.0
    largest = max(pieces, key=lambda piece: sizes[piece.partition])
    per_offset = max(1.0, sizes[largest.partition] / largest.size) if any(sizes.values()) else _UNKNOWN_BYTES
    end = min(largest.end, largest.start + max(1, int(_TIMED_BYTES / per_offset)))
    part = OffsetRange(largest.partition, largest.start, end, largest.topic_id)
    began, first = clock(), 0.0
    reported: list[Any] = []
    for _ in read(job, [(part,)], opened, reported.append):
        first = first or clock() - began  # connecting is done once, whatever there is to read
    took = max(clock() - began - first, 1e-6)
    of_part = max(1.0, part.size * per_offset)
    return first + took * max(0.0, sum(sizes.values()) - of_part) / of_part + took


def _amount(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
