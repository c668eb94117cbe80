"""What callers pass in, checked.

Decides: what an argument may be. Owns nothing. Each function returns a clean value, or raises an error that names what was wrong
and what was expected.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ..model import OffsetAndMetadata, TopicPartition

_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def one_partition(partition: Any) -> str:
    """Return ``topic-partition`` for a message. Raises ``TypeError`` for anything but a ``TopicPartition``."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r}: expected a TopicPartition")
    return f"{partition.topic}-{partition.partition}"


def partition_set(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions without repetition, in their order. Raises ``TypeError`` or ``ValueError`` for what is none."""
    if isinstance(partitions, (str, TopicPartition)):
        raise TypeError(f"{partitions!r}: expected a collection of TopicPartition values")
    unique = tuple(dict.fromkeys(partitions))
    for partition in unique:
        one_partition(partition)
        if not isinstance(partition.partition, int) or partition.partition < 0:
            raise ValueError(f"{partition!r}: expected a partition number of at least 0")
        _check_topic(partition.topic)
    return unique


def offset_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the ranges. Raises ``TypeError`` or ``ValueError`` for what is no partition, or not two offsets in order."""
    for partition in partition_set(ranges):
        match ranges[partition]:
            case (int(start), int(end)) if 0 <= start <= end:
                pass
            case other:
                raise ValueError(
                    f"range {other!r} of {one_partition(partition)}: expected two offsets, the first not above the second"
                )
    return dict(ranges)


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str) or topic in (".", "..") or _LEGAL_TOPIC.fullmatch(topic) is None:
        raise ValueError(f"topic {topic!r}: expected 1 to 249 letters, digits, '.', '_' or '-'")


def subscribed_topics(topics: Collection[str]) -> frozenset[str]:
    """Return the topics of a subscription. Raises ``ValueError`` for impossible names, ``TypeError`` for a bare string."""
    if isinstance(topics, str):
        raise TypeError(f"topics={topics!r}: expected a collection of topic names, not one string")
    for topic in topics:
        _check_topic(topic)
    return frozenset(topics)


def subscribed_pattern(pattern: Any) -> Callable[[str], bool]:
    """Return a predicate for topic names. Raises ``ValueError`` for an invalid expression, ``TypeError`` for anything else."""
    if isinstance(pattern, str):
        try:
            pattern = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern={pattern!r}: not a regular expression: {error}") from error
    if not isinstance(pattern, re.Pattern):
        raise TypeError(f"pattern={pattern!r}: expected a regular expression")
    match = pattern.match
    return lambda topic: match(topic) is not None


def offset_number(offset: Any, name: str = "offset") -> int:
    """Return an offset. Raises ``ValueError`` for anything but an integer of at least 0."""
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise ValueError(f"{name}={offset!r}: expected an integer of at least 0")
    return offset


def seek_target(offset: Any) -> OffsetAndMetadata:
    """Return where to seek to, with the leader epoch where one was given."""
    if isinstance(offset, OffsetAndMetadata):
        offset_number(offset.offset)
        return offset
    return OffsetAndMetadata(offset_number(offset))


def commit_offsets(offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what to commit, from an offset, ``(offset, metadata)`` or ``OffsetAndMetadata``. Raises ``ValueError`` otherwise."""
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError(f"offsets={offsets!r}: expected a mapping of partitions to offsets that is not empty")
    partition_set(offsets)
    return {partition: _commit_offset(partition, value) for partition, value in offsets.items()}


def _commit_offset(partition: TopicPartition, value: Any) -> OffsetAndMetadata:
    name = f"offset of {one_partition(partition)}"
    if isinstance(value, tuple):
        wanted = OffsetAndMetadata(*value) if 2 <= len(value) <= 3 else OffsetAndMetadata(-1)
        if not isinstance(wanted.metadata, str):
            raise ValueError(f"{name}: metadata={wanted.metadata!r}: expected a string")
        return wanted._replace(offset=offset_number(wanted.offset, name))
    return OffsetAndMetadata(offset_number(value, name))


def timestamps(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamps of a look-up by time, milliseconds since the epoch."""
    partition_set(wanted)
    return {partition: offset_number(value, "timestamp") for partition, value in wanted.items()}
