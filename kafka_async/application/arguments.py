"""What callers pass in, checked.

Each function returns a clean value, or raises an error that names what was wrong and what was expected.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard
from uuid import UUID

from ..config import ConsumerConfig, is_sendable
from ..errors import shown
from ..model import OffsetAndMetadata, SubscriptionPattern, TopicPartition

if TYPE_CHECKING:
    from datetime import datetime

_INT32 = range(2**31)
_INT64 = range(2**63)
_LEGAL_TOPIC = r"[A-Za-z0-9._-]{1,249}"


def checked_config(config: Any) -> ConsumerConfig:
    """Return the configuration. Raises ``TypeError`` for anything else, which may hold secrets and is not shown."""
    if not isinstance(config, ConsumerConfig):
        what = "expected a ConsumerConfig, such as ConsumerConfig.of(group_id=...) or ConsumerConfig.from_env()"
        raise TypeError(f"config is of type {type(config).__name__}: {what}")
    return config


def as_partition(partition: Any) -> TopicPartition:
    """Return a partition as a ``TopicPartition``; any equal tuple is accepted. Raises ``TypeError`` for anything else."""
    if isinstance(partition, TopicPartition):
        return partition
    match partition:
        case (str(topic), int(number)) if isinstance(partition, tuple) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise TypeError(f"{shown(partition)}: expected a TopicPartition")


def one_partition(partition: Any) -> str:
    """Return ``topic-partition`` for a message. Raises ``TypeError`` for anything but a partition."""
    topic, number = as_partition(partition)
    return f"{topic}-{number}"


def partition_set(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions without repetition, in their order. Raises ``TypeError`` or ``ValueError`` for anything else."""
    if isinstance(partitions, str) or _is_partition(partitions) or not isinstance(partitions, Iterable):
        raise TypeError(f"{shown(partitions)}: expected a collection of TopicPartition values")
    given = tuple(map(as_partition, partitions))
    for partition in given:
        if not _is_integer(partition.partition, _INT32):
            raise ValueError(f"{shown(partition)}: expected a partition number from 0 to {_INT32[-1]}")
        _check_topic(partition.topic)
    return tuple(dict.fromkeys(given))


def _is_partition(value: Any) -> bool:
    return isinstance(value, TopicPartition) or (
        isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int)
    )


def offset_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the ranges. Raises ``TypeError`` or ``ValueError`` for anything but partitions and two offsets in order."""
    for partition in partition_set(ranges):
        match ranges[partition]:
            case (int(start), int(end)) if 0 <= start <= end:
                pass
            case other:
                raise ValueError(
                    f"range {shown(other)} of {one_partition(partition)}: expected two offsets, the first not above the second"
                )
    return {as_partition(partition): offsets for partition, offsets in ranges.items()}


def _is_integer(value: Any, among: range) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value in among


def _check_topic(topic: Any) -> None:
    if isinstance(topic, (list, tuple, set, frozenset)):
        raise TypeError(f"topic {shown(topic)}: expected a name; a consumer is given topics one by one: KafkaConsumer(*topics)")
    if not isinstance(topic, str) or topic in (".", "..") or re.fullmatch(_LEGAL_TOPIC, topic) is None:
        raise ValueError(f"topic {shown(topic)}: expected 1 to 249 letters, digits, '.', '_' or '-'")


def subscribed_topics(topics: Collection[str]) -> frozenset[str]:
    """Return the topics of a subscription. Raises ``ValueError`` for impossible names, ``TypeError`` for a bare string."""
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise TypeError(f"topics={shown(topics)}: expected a collection of topic names, not one string")
    for topic in topics:
        _check_topic(topic)
    return frozenset(topics)


def topic_names(topics: Collection[str]) -> frozenset[str]:
    """Return the names to ask the cluster about; they need not be valid. Raises ``TypeError`` for anything but strings."""
    return frozenset(topic_name(topic) for topic in topics)


def subscribed_pattern(pattern: Any) -> Callable[[str], bool]:
    """Return a predicate for topic names. Raises ``ValueError`` for an invalid expression, ``TypeError`` for anything else."""
    if isinstance(pattern, str):
        try:
            pattern = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern={shown(pattern)}: not a regular expression: {error}") from error
    if not isinstance(pattern, re.Pattern):
        raise TypeError(f"pattern={shown(pattern)}: expected a regular expression")
    match = pattern.match
    return lambda topic: match(topic) is not None


def subscribed_regex(pattern: SubscriptionPattern) -> str:
    """Return the expression that the broker is to evaluate.

    Raises ``ValueError`` for an empty one: the broker takes that for no pattern.
    """
    return text(pattern.pattern, "pattern", least=1)


def topic_name(topic: Any) -> str:
    """Return the name of a topic, which need not be valid. Raises ``TypeError`` for anything but a string."""
    if not isinstance(topic, str):
        raise TypeError(f"{shown(topic)}: expected the name of a topic")
    return topic


def column_names(columns: Any) -> frozenset[str]:
    """Return the names of columns, which need not exist. Raises ``TypeError`` for anything but a collection of strings."""
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise TypeError(f"columns={shown(columns)}: expected a collection of names of columns")
    names = list(columns)  # once: it may be one that ends
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns: {shown(name)}: expected the name of a column")
    return frozenset(names)


def at_least_one(value: Any, name: str) -> int:
    """Return a number of records, bytes or deliveries. Raises ``ValueError`` for anything but an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={shown(value)}: expected an integer of at least 1")
    return value


def text(value: Any, name: str, *, least: int = 0) -> str:
    """Return a string that can be sent. Raises ``ValueError`` for anything else."""
    if not is_sendable(value) or len(value) < least:
        raise ValueError(f"{name}={shown(value, 100)}: expected a string of {least} to 32767 bytes in UTF-8")
    return str(value)


def seconds(timeout_ms: Any, name: str = "timeout_ms") -> float:
    """Return a timeout in seconds; one below 0 has passed already. Raises ``ValueError`` for anything but a number."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)) or timeout_ms != timeout_ms:
        raise ValueError(f"{name}={shown(timeout_ms)}: expected a number of milliseconds")
    return timeout_ms / 1000


def offset_number(offset: Any, name: str = "offset") -> int:
    """Return an offset. Raises ``ValueError`` for anything but an integer of at least 0."""
    if not _is_integer(offset, _INT64):
        raise ValueError(f"{name}={shown(offset)}: expected an integer of at least 0")
    return offset


def seek_target(offset: Any) -> OffsetAndMetadata:
    """Return where to seek to, with the leader epoch if one was given."""
    if isinstance(offset, OffsetAndMetadata):
        offset_number(offset.offset)
        _check_epoch(offset.leader_epoch, "offset")
        _check_topic_id(offset.topic_id, "offset")
        return offset
    return OffsetAndMetadata(offset_number(offset))


def commit_offsets(offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what to commit, from an offset, ``(offset, metadata)`` or ``OffsetAndMetadata``.

    Raises ``TypeError`` for a key that is no partition and for metadata that is no string, as aiokafka does; else ``ValueError``.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError(f"offsets={shown(offsets)}: expected a mapping of partitions to offsets that is not empty")
    partition_set(offsets)
    return {as_partition(partition): _commit_offset(partition, value) for partition, value in offsets.items()}


def _commit_offset(partition: TopicPartition, value: Any) -> OffsetAndMetadata:
    name = f"offset of {one_partition(partition)}"
    if isinstance(value, tuple):
        if not 2 <= len(value) <= 3:
            raise ValueError(f"{name}={shown(value)}: expected an offset, (offset, metadata) or an OffsetAndMetadata")
        wanted = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(*value)
        if not isinstance(wanted.metadata, str):
            raise TypeError(f"{name}: metadata={shown(wanted.metadata)}: expected a string")
        text(wanted.metadata, f"{name}: metadata")
        _check_epoch(wanted.leader_epoch, name)
        _check_topic_id(wanted.topic_id, name)
        return wanted._replace(offset=offset_number(wanted.offset, name))
    return OffsetAndMetadata(offset_number(value, name))


def _check_topic_id(topic_id: Any, name: str) -> None:
    if not (topic_id is None or isinstance(topic_id, UUID)):
        raise ValueError(f"{name}: topic_id={shown(topic_id)}: expected a UUID, or None if it is not known")


def _check_epoch(epoch: Any, name: str) -> None:
    if epoch is not None and not _is_integer(epoch, _INT32):
        raise ValueError(f"{name}: leader_epoch={shown(epoch)}: expected an integer of at least 0, or None if it is not known")


def milliseconds(when: Any) -> int:
    """Return a time as milliseconds since the epoch, rounded up, since records at or after it are wanted.

    Raises ``ValueError`` for a ``datetime`` without a time zone: it would mean another moment on another machine.
    """
    from datetime import UTC, datetime, timedelta  # for few

    if not isinstance(when, datetime):
        return offset_number(when, "timestamp")
    if when.utcoffset() is None:
        raise ValueError(
            f"timestamp={shown(when)}: expected a datetime with a time zone, such as when.astimezone() for local time or "
            "when.replace(tzinfo=UTC)"
        )
    return offset_number(-((datetime.fromtimestamp(0, UTC) - when) // timedelta(milliseconds=1)), "timestamp")


def timestamps(wanted: "Mapping[TopicPartition, int | datetime]") -> dict[TopicPartition, int]:
    """Return the timestamps of a look-up by time, milliseconds since the epoch."""
    if not isinstance(wanted, Mapping):
        raise TypeError(f"timestamps={shown(wanted)}: expected a mapping of partitions to timestamps")
    partition_set(wanted)
    return {as_partition(partition): milliseconds(value) for partition, value in wanted.items()}
