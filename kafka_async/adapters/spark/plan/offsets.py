"""Offsets as people and checkpoints write them.

Their shape in JSON is that of Spark's own connector (``JsonUtils``), so that either can go on from the other's checkpoint.

Spark compares offsets by their text: topics and partitions always come in the same order.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ....errors import KafkaConfigurationError
from ....model import TopicPartition
from ....values import field, frozen
from ...ranges.offsets import Offsets

EARLIEST: Final = -2
"""Stands for the first offset in a JSON of offsets."""
LATEST: Final = -1
"""Stands for the end."""


@frozen
class OffsetSpec:
    """Where to begin or to end, as given by an option."""

    kind: str
    """``earliest``, ``latest``, ``committed``, ``offsets`` (also ``EARLIEST`` and ``LATEST``), ``timestamp`` or ``timestamps``."""
    option: str
    """Name of the option that says so, for messages."""
    numbers: Mapping[TopicPartition, int] = field(factory=dict)
    """Offsets, or times in milliseconds, by partition."""
    timestamp: int = 0
    """Milliseconds, for all partitions."""


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as a checkpoint has them: ``{"topic": {"0": 23}}``, in order."""
    shaped: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        shaped.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return shaped


def from_json(shaped: Any, what: str) -> Offsets:
    """Return what ``as_json`` made. Raises ``KafkaConfigurationError`` that names ``what`` for anything else."""
    offsets: Offsets = {}
    for topic, parts in _items(shaped, what):
        for number, offset in _items(parts, what):
            if not number.isascii() or not number.isdigit() or isinstance(offset, bool) or not isinstance(offset, int):
                raise KafkaConfigurationError(f"{what}: {topic!r}: {{{number!r}: {offset!r}}} is not a partition and its offset")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def _items(shaped: Any, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(shaped, dict):
        raise KafkaConfigurationError(f'{what}: {shaped!r} is not like {{"topic": {{"0": 23, "1": 42}}}}')
    return shaped.items()


def _loaded(text: str, option: str, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise KafkaConfigurationError(f"{option}={text!r} is not JSON like {example}: {error}") from error


def parse_offsets(option: str, text: str, words: Iterable[str]) -> OffsetSpec:
    """Return what ``startingOffsets`` or ``endingOffsets`` says. ``words``: those that are allowed."""
    word = text.strip().lower()
    if word in words:
        return OffsetSpec(word, option)
    if not text.lstrip().startswith("{"):
        raise KafkaConfigurationError(f"{option}={text!r}: expected {', '.join(words)} or a JSON of offsets")
    numbers = from_json(_loaded(text, option, '{"topic": {"0": 23, "1": -2}}'), option)
    for partition, offset in numbers.items():
        if offset < EARLIEST:
            raise KafkaConfigurationError(f"{option}: offset {offset} of {partition}: expected 0 or more, -1 or -2")
    return OffsetSpec("offsets", option, numbers)


def parse_timestamps(option: str, text: str) -> OffsetSpec:
    """Return what ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp`` says (milliseconds)."""
    numbers = from_json(_loaded(text, option, '{"topic": {"0": 1000}}'), option)
    for partition, timestamp in numbers.items():
        if not 0 <= timestamp < 2**63:
            raise KafkaConfigurationError(f"{option}: time {timestamp} of {partition}: expected milliseconds from 0 to 2**63 - 1")
    return OffsetSpec("timestamps", option, numbers)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions of ``assign``: ``{"topic": [0, 1]}``."""
    example = '{"topic": [0, 1]}'
    partitions: list[TopicPartition] = []
    shaped = _loaded(text, "assign", example)
    for topic, numbers in shaped.items() if isinstance(shaped, dict) else (("", None),):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise KafkaConfigurationError(f"assign={text!r} is not like {example}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise KafkaConfigurationError(f"assign={text!r} names no partition; expected something like {example}")
    return tuple(sorted(set(partitions)))


def check_order(start: OffsetSpec, end: OffsetSpec) -> None:
    """Raise ``KafkaConfigurationError`` for a beginning after its end, if that can be seen without asking a broker."""
    if start.kind.rstrip("s") != end.kind.rstrip("s"):
        return  # an offset and a time
    if start.kind == end.kind == "timestamp" and start.timestamp > end.timestamp:
        raise KafkaConfigurationError(f"{start.option}={start.timestamp} is after {end.option}={end.timestamp}")
    for partition in sorted(start.numbers.keys() | end.numbers.keys()):
        first, last = (spec.numbers.get(partition, _at(spec)) for spec in (start, end))
        if first is not None and last is not None and first > last >= 0:
            raise KafkaConfigurationError(f"{start.option}: {first} of {partition} is above {end.option}, {last}")


def _at(spec: OffsetSpec) -> int | None:
    return spec.timestamp if spec.kind == "timestamp" else None
