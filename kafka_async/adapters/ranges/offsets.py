"""What is said of offsets by partition."""

from collections.abc import Iterable, Mapping
from typing import Final

from ...model import TopicPartition

Offsets = dict[TopicPartition, int]
Ranges = dict[TopicPartition, tuple[int, int]]
"""The first offset of each partition, and the one behind the last."""

LOOKS: Final = 3
"""How often brokers are asked before what one says against what is known is believed: it may be behind the others."""
SECOND_LOOK: Final = 1.0
"""Seconds between two looks."""


def below(ends: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
    """Return the partitions that end before an offset that is known to be there, or to have been."""
    return frozenset(partition for partition, at in known.items() if ends.get(partition, at) < at)


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of partitions, in order."""
    return ", ".join(map(str, sorted(partitions)))
