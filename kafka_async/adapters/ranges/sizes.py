"""How many bytes a record has: brokers do not say, so a few are read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...model import TopicPartition

if TYPE_CHECKING:
    from ..sync import KafkaConsumer

MOST_SAMPLED: Final = 16 << 20
"""Bytes of keys and values that are read to learn how large records are."""
_SAMPLING_MS: Final = 10_000.0
"""How long to wait for these records."""


def sizes_of(consumer: "KafkaConsumer", ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, float]:
    """Read ranges of offsets, and return the bytes of keys and values per offset of each.

    Ends early after ``MOST_SAMPLED`` bytes; then partitions may be missing.
    """
    found: dict[TopicPartition, int] = {}
    consumer.assign_ranges(ranges)
    while sum(found.values()) < MOST_SAMPLED:
        if (columns := consumer.next_columns(("key", "value"), timeout_ms=_SAMPLING_MS)) is None:
            return {partition: found.get(partition, 0) / (end - start) for partition, (start, end) in ranges.items()}
        at = 0
        for topic, number, rows in columns.runs:
            partition = TopicPartition(topic, number)
            for column in filter(None, (columns.keys, columns.values)):
                ends = memoryview(column.offsets).cast("i")
                found[partition] = found.get(partition, 0) + ends[at + rows] - ends[at]
            at += rows
    return {partition: size / (consumer.position(partition) - ranges[partition][0]) for partition, size in found.items()}
