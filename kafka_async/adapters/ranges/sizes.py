"""How many bytes a record has: brokers do not say, so a few are read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...model import TopicPartition
from ...values import frozen

if TYPE_CHECKING:
    from ...records import Columns
    from ..sync import KafkaConsumer

SAMPLE: Final = 50
"""Offsets at the beginning of a range that are read."""
MOST_SAMPLED: Final = 16 << 20
"""Bytes of keys and values that are read to learn how large records are."""
_SAMPLING_MS: Final = 10_000.0
"""How long to wait for these records."""


@frozen(kw_only=True)
class Sample:
    """What was seen of a range of offsets."""

    first: int
    """The range holds no record before this offset; its end: none at all."""
    size: float
    """Bytes of keys and values per offset from there on."""


def samples_of(consumer: "KafkaConsumer", ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Sample]:
    """Read ``SAMPLE`` offsets at the beginning of each range, and on to its first records if these hold none.

    Compaction and aborted transactions leave such gaps. Ends early after ``MOST_SAMPLED`` bytes; then partitions may be missing.
    """
    samples = _seen(consumer, ranges)
    consumer.assign_ranges({})  # else what lies behind them is fetched as well, and kept for nobody
    return samples


def _seen(consumer: "KafkaConsumer", ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Sample]:
    seen: dict[TopicPartition, int] = {}
    heads = {partition: (start, min(end, start + SAMPLE)) for partition, (start, end) in ranges.items()}
    consumer.assign_ranges(heads)
    while sum(seen.values()) < MOST_SAMPLED and (columns := _next(consumer)) is not None:
        for partition, (_, size) in _records(columns).items():
            seen[partition] = seen.get(partition, 0) + size
    samples = {partition: _sample(consumer, partition, heads[partition], size) for partition, size in seen.items()}
    gaps = {partition: (end, ranges[partition][1]) for partition, (_, end) in heads.items() if partition not in seen}
    while gaps and sum(seen.values()) < MOST_SAMPLED:
        consumer.assign_ranges(gaps)
        if (columns := _next(consumer)) is None:
            return samples | {partition: Sample(first=end, size=0.0) for partition, (_, end) in gaps.items()}
        for partition, (first, size) in _records(columns).items():
            seen[partition] = size
            samples[partition] = _sample(consumer, partition, (first, gaps[partition][1]), size)
        gaps = {partition: (consumer.position(partition), end) for partition, (_, end) in gaps.items() if partition not in seen}
    return samples


def _next(consumer: "KafkaConsumer") -> "Columns | None":
    return consumer.next_columns(("offset", "key", "value"), timeout_ms=_SAMPLING_MS)


def _sample(consumer: "KafkaConsumer", partition: TopicPartition, read: tuple[int, int], size: int) -> Sample:
    """``read``: the range that was read, up to where the position is by now, which may lie behind its end."""
    return Sample(first=read[0], size=size / (min(consumer.position(partition), read[1]) - read[0]))


def _records(columns: "Columns") -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset of each partition, and the bytes of keys and values. A record counts as one at least."""
    offsets = memoryview(columns.offsets or b"").cast("q")
    found: dict[TopicPartition, tuple[int, int]] = {}
    at = 0
    for topic, number, rows in columns.runs:
        first, size = found.get(TopicPartition(topic, number), (offsets[at], 0))
        several = [memoryview(column.offsets).cast("i") for column in (columns.keys, columns.values) if column is not None]
        size += max(rows, sum(ends[at + rows] - ends[at] for ends in several))
        found[TopicPartition(topic, number)] = (first, size)
        at += rows
    return found
