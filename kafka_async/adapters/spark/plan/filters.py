"""What Spark's filters say of the offsets to read.

Decides: which ranges a filter rules out. Owns nothing; pure. Must never rule out a record that could pass: filters that say nothing
here are let be, and Spark checks every filter again on what was read.

Times bound a read from below only: the first offset at or after a time is known, but a younger record may lie before an older one.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from attrs import evolve, frozen
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ....model import TopicPartition
from .planner import OffsetRange


@frozen
class Bounds:
    """What may be read: topics and partition numbers (``None``: all), offsets, and a time to begin at."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    first: int = 0
    """Lowest offset."""
    end: int | None = None
    """Offset after the highest; ``None``: no bound."""
    since: int = 0
    """Milliseconds; no record before is wanted."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> "Bounds":
        """Return the bounds that hold if all ``filters`` do."""
        bounds = cls()
        for each in filters:
            attribute: tuple[str, ...] = getattr(each, "attribute", ())
            if len(attribute) == 1:
                bounds = bounds._with(attribute[0].lower(), each)
        return bounds

    def _with(self, column: str, each: Filter) -> "Bounds":
        match column, each:
            case "topic", EqualTo(value=str(name)):
                return evolve(self, topics=_both(self.topics, {name}))
            case "topic", In(value=names):
                return evolve(self, topics=_both(self.topics, names))
            case "partition", EqualTo(value=int(number)):
                return evolve(self, numbers=_both(self.numbers, {number}))
            case "partition", In(value=numbers):
                return evolve(self, numbers=_both(self.numbers, numbers))
            case "timestamp", EqualTo(value=moment) | GreaterThan(value=moment) | GreaterThanOrEqual(value=moment):
                return evolve(self, since=max(self.since, _milliseconds(moment)))
            case "offset", _:
                return self._with_offset(each)
            case _:
                return self

    def _with_offset(self, each: Filter) -> "Bounds":
        match each:
            case EqualTo(value=int(offset)):
                return self._between(offset, offset + 1)
            case GreaterThan(value=int(offset)):
                return self._between(offset + 1, None)
            case GreaterThanOrEqual(value=int(offset)):
                return self._between(offset, None)
            case LessThan(value=int(offset)):
                return self._between(0, offset)
            case LessThanOrEqual(value=int(offset)):
                return self._between(0, offset + 1)
            case _:
                return self

    def _between(self, first: int, end: int | None) -> "Bounds":
        ends = [bound for bound in (self.end, end) if bound is not None]
        return evolve(self, first=max(self.first, first), end=min(ends) if ends else None)

    def wants(self, partition: TopicPartition) -> bool:
        """Say whether anything of the partition may pass."""
        topics, numbers = self.topics, self.numbers
        return (topics is None or partition.topic in topics) and (numbers is None or partition.partition in numbers)

    def cut(self, piece: OffsetRange) -> OffsetRange:
        """Return the part of the range that may pass."""
        end = piece.end if self.end is None else min(piece.end, max(self.end, 0))
        return evolve(piece, start=max(piece.start, self.first), end=end)


def _both(known: frozenset[Any] | None, more: Iterable[Any]) -> frozenset[Any]:
    return frozenset(more) if known is None else known & frozenset(more)


def _milliseconds(moment: Any) -> int:
    """Return a time as milliseconds, 0 for what is none; a time without a zone is the machine's, as Spark hands it over."""
    return max(0, int(moment.timestamp() * 1000)) if isinstance(moment, datetime) else 0
