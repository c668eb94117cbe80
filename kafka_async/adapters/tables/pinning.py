"""Which offsets a scan reads: found once, so that all who use the scan see the same records."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...config.spelling import did_you_mean
from ...errors import (
    DataLossError,
    KafkaConfigurationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from ...model import TopicPartition
from ...trace import counted
from ...values import define, field, frozen
from ..ranges.offsets import LOOKS, SECOND_LOOK, Offsets, Ranges, below, names_of
from ..ranges.planner import OffsetRange
from .moments import Moment, check_order

if TYPE_CHECKING:
    from ...events import TopicDescription
    from ..sync import KafkaConsumer

REMEDY: Final = "on_loss='skip' goes on without these records"
_log = logging.getLogger("kafka_async.scan")

Connect = Callable[..., AbstractContextManager["KafkaConsumer"]]
"""Gives a connected consumer with some more options."""


class PinnedRanges(dict[TopicPartition, tuple[int, int]]):
    """The first offset of each partition, and the one after the last, with the ids of the topics."""

    def __init__(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]] = {},
        *,
        topic_ids: Mapping[str, UUID] = {},
        oldest: int | None = None,
        newest: int | None = None,
    ) -> None:
        super().__init__(ranges)
        self.topic_ids = dict(topic_ids)
        """The id of each topic; a topic that was made anew has another."""
        self.oldest = oldest
        """Records with an earlier timestamp (milliseconds) are left out; ``None``: none are."""
        self.newest = newest
        """Records with this timestamp or a later one are left out; ``None``: none are."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _ranges_of, (dict(self), self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return all of it in types that JSON has; ``from_json`` takes it back."""
        topics: dict[str, dict[str, list[int]]] = {}
        for partition, (start, end) in sorted(self.items()):
            topics.setdefault(partition.topic, {})[str(partition.partition)] = [start, end]
        ids = {topic: str(topic_id) for topic, topic_id in self.topic_ids.items()}
        return {"ranges": topics, "topic_ids": ids, "oldest": self.oldest, "newest": self.newest}

    @classmethod
    def from_json(cls, shaped: Mapping[str, Any]) -> "PinnedRanges":
        """Return what ``as_json`` was made of."""
        ranges = {
            TopicPartition(topic, int(number)): (start, end)
            for topic, parts in shaped["ranges"].items()
            for number, (start, end) in parts.items()
        }
        ids = {topic: UUID(text) for topic, text in shaped["topic_ids"].items()}
        return cls(ranges, topic_ids=ids, oldest=shaped["oldest"], newest=shaped["newest"])


def _ranges_of(_ranges: Mapping[TopicPartition, tuple[int, int]], shaped: Mapping[str, Any]) -> PinnedRanges:
    return PinnedRanges.from_json(shaped)


@frozen(kw_only=True)
class Asked:
    """What was asked for."""

    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...] = ()
    """Those of the topics that are read; none: all."""
    since: Moment
    until: Moment
    late: int = 0
    """Milliseconds of timestamps behind ``until`` within which earlier ones are still looked for."""
    ranges: PinnedRanges | None = None
    """What was pinned before; then ``since`` and ``until`` say nothing."""
    committed_only: bool = True
    fails: bool = True
    """Offsets that are gone end the scan."""


@frozen(kw_only=True)
class Pinned:
    """What is read."""

    ranges: PinnedRanges
    held_back: Mapping[TopicPartition, int] = field(factory=dict)
    """Offsets behind an open transaction, which are left out."""
    losses: tuple[str, ...] = ()
    """What is known to be gone."""

    def pieces(self) -> list[OffsetRange]:
        """Return the ranges as what the planner takes."""
        ids = self.ranges.topic_ids
        return [OffsetRange(tp, start, end, ids.get(tp.topic)) for tp, (start, end) in sorted(self.ranges.items()) if start < end]


@define(eq=False)
class Pinning:
    """Asks a cluster for the ranges of one scan."""

    asked: Asked
    connect: Connect
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _losses: list[str] = field(factory=list, init=False)

    def pin(self) -> Pinned:
        """Return the ranges.

        Raises ``UnknownTopicOrPartitionError``, ``DataLossError`` and ``OffsetOutOfRangeError`` for offsets that are not there,
        ``NoOffsetForPartitionError`` for a group that has committed nothing.
        """
        with self.connect(isolation_level="read_uncommitted") as consumer:
            ids, partitions = self._found(consumer)
            begins = consumer.beginning_offsets(partitions) if partitions else {}
            ends = self._ends(consumer, begins)
            ranges = self._ranges(consumer, ids, begins, ends)
        if not self.asked.committed_only or not ranges:
            return Pinned(ranges=ranges, losses=tuple(self._losses))
        with self.connect(isolation_level="read_committed") as consumer:
            consumer.describe_topics(*self.asked.topics)  # for their leaders: else they are asked for after a backoff, 0.1 s
            # Ranges that were pinned before were stable up to their ends, as a rule: a leader that says otherwise may be behind.
            known = 0 if self.asked.ranges is None else 1
            stable = self._ends(consumer, {partition: range_[known] for partition, range_ in ranges.items()})
        return self._without_open_transactions(ranges, stable)

    # --- what there is ---------------------------------------------------------------------------------------------------------

    def _found(self, consumer: "KafkaConsumer") -> tuple[dict[str, UUID], list[TopicPartition]]:
        """Return the ids of the topics, and the partitions.

        What was pinned before was there: an answer that says otherwise may be that of a broker that lags behind. Without ``fails``
        what is still missing then is left out.
        """
        looks = 1 if self.asked.ranges is None else LOOKS
        while True:
            looks -= 1
            try:
                topics = self._topics(consumer)
                ids = _ids_of(topics)
                self._check_ids(ids)  # before partitions: a topic that was made anew may have fewer, which would say less
                return ids, self._partitions(topics)
            except (UnknownTopicOrPartitionError, DataLossError):
                if not looks and (self.asked.fails or self.asked.ranges is None):
                    raise
            if not looks and self.asked.ranges is not None:
                return self._left(consumer, self.asked.ranges)
            self.sleep(SECOND_LOOK)

    def _left(self, consumer: "KafkaConsumer", ranges: PinnedRanges) -> tuple[dict[str, UUID], list[TopicPartition]]:
        """Return what ``_found`` does, of what is left of ranges, and report the rest."""
        topics = consumer.describe_topics(*self.asked.topics).topics
        ids = _ids_of(topics)
        others = {name for name, topic_id in ids.items() if ranges.topic_ids.get(name, topic_id) != topic_id}
        gone = {partition for partition in ranges if partition.topic in others}
        missing = ranges.keys() - _partitions_of(topics) - gone
        for partitions, what in ((gone, "deleted and created again"), (missing, "deleted")):
            if lost := [partition for partition in partitions if ranges[partition][0] < ranges[partition][1]]:
                self._report(f"{names_of(lost)}: {what} since these offsets were pinned; the records are left out")
        return ids, sorted(ranges.keys() - gone - missing)

    def _topics(self, consumer: "KafkaConsumer") -> "Mapping[str, TopicDescription]":
        topics = consumer.describe_topics(*self.asked.topics).topics
        for name in self.asked.topics:
            if name not in topics:
                raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist{did_you_mean(name, consumer.topics())}")
        return topics

    def _check_ids(self, ids: Mapping[str, UUID]) -> None:
        for topic, topic_id in (self.asked.ranges.topic_ids if self.asked.ranges is not None else {}).items():
            if ids.get(topic, topic_id) != topic_id:
                raise DataLossError(f"topic {topic!r} was deleted and created again since its offsets were pinned")

    def _partitions(self, topics: "Mapping[str, TopicDescription]") -> list[TopicPartition]:
        there = _partitions_of(topics)
        named = {*self.asked.partitions, *self.asked.since.offsets, *self.asked.until.offsets, *(self.asked.ranges or ())}
        if missing := named - there:
            raise UnknownTopicOrPartitionError(f"partitions that do not exist: {names_of(missing)}")
        if self.asked.ranges is not None:
            return sorted(self.asked.ranges)
        return sorted(self.asked.partitions or there)

    def _ends(self, consumer: "KafkaConsumer", known: Mapping[TopicPartition, int]) -> Offsets:
        """Return where logs end. An end below an offset that is ``known`` is asked for again: a new leader may be behind."""
        if not known:
            return {}
        ends = consumer.end_offsets(known)
        for _ in range(LOOKS - 1):
            if not below(ends, known):
                break
            self.sleep(SECOND_LOOK)
            consumer.describe_topics(*{partition.topic for partition in known})  # leads to the leader of now
            ends = consumer.end_offsets(known)
        return ends

    # --- what is read ----------------------------------------------------------------------------------------------------------

    def _ranges(self, consumer: "KafkaConsumer", ids: Mapping[str, UUID], begins: Offsets, ends: Offsets) -> PinnedRanges:
        asked = self.asked
        if asked.ranges is not None:
            found = {partition: range_ for partition, range_ in asked.ranges.items() if partition in begins}
            return PinnedRanges(
                self._within(found, begins, self._ends(consumer, {tp: end for tp, (_, end) in found.items()})),
                topic_ids=asked.ranges.topic_ids or ids,
                oldest=asked.ranges.oldest,
                newest=asked.ranges.newest,
            )
        now = round(self.clock() * 1000)
        since, until = asked.since.at(now), asked.until.at(now)
        check_order(since, until)
        starts = self._resolved(consumer, since, begins, ends, since.ms)
        stops = self._resolved(consumer, until, begins, ends, until.ms + asked.late)
        both = {tp: (starts[tp], stops[tp]) for tp in begins}
        for partition, (start, stop) in both.items():
            if start > stop and partition in since.offsets and partition in until.offsets:
                raise KafkaConfigurationError(f"since: {start} of {partition} is behind until, {stop}")
        ends = ends | self._ends(consumer, {tp: max(both[tp]) for tp, end in ends.items() if max(both[tp]) > end})
        return PinnedRanges(
            self._within(both, begins, ends),
            topic_ids=ids,
            oldest=since.ms if since.kind == "time" else None,
            newest=until.ms if until.kind == "time" and asked.late else None,
        )

    def _resolved(self, consumer: "KafkaConsumer", where: Moment, begins: Offsets, ends: Offsets, ms: int) -> Offsets:
        """Return the offset that a moment means in each partition."""
        if where.kind == "committed":
            return self._committed(where, begins)
        if where.kind == "time":
            found = consumer.offsets_for_times(dict.fromkeys(begins, ms)) if begins else {}
            return {tp: ends[tp] if (at := found.get(tp)) is None else min(at.offset, ends[tp]) for tp in begins}
        if where.kind == "offsets":
            others = begins if where.option == "since" else ends
            return {tp: where.offsets.get(tp, others[tp]) for tp in begins}
        return dict(begins if where.kind == "beginning" else ends)

    def _committed(self, where: Moment, begins: Offsets) -> Offsets:
        with self.connect(group_id=where.group) as consumer:
            found = consumer.committed_offsets(*begins) if begins else {}
        none = sorted(tp for tp in begins if found.get(tp) is None)
        if none and (where.option == "until" or len(none) == len(begins)):  # of none at all: most likely the name is wrong
            text = f"{where.option}: group {where.group!r} has committed nothing for {names_of(none)}"
            raise NoOffsetForPartitionError(text, tuple(none))
        if none:
            _log.info("group %s has committed nothing for %s; beginning at the first offset", where.group, names_of(none))
        return {tp: begins[tp] if (at := found.get(tp)) is None else at.offset for tp in begins}

    def _within(self, ranges: Ranges, begins: Offsets, ends: Offsets) -> Ranges:
        """Return what of ranges is in the logs; the rest is lost, or was never there."""
        found: Ranges = {}
        beyond = {tp: max(each) for tp, each in ranges.items() if max(each) > ends[tp]}
        if beyond:
            text = "; ".join(
                f"offsets {ends[tp]} to {stop - 1} of {tp} are not in its log, which ends at {ends[tp]}"
                for tp, stop in beyond.items()
            )
            if self.asked.fails:
                raise OffsetOutOfRangeError(text, offsets={tp: ends[tp] for tp in beyond})
            self._report(text)
        for partition, (start, stop) in ranges.items():
            begin, end = begins[partition], ends[partition]
            if start < min(begin, stop):
                text = f"offsets {start} to {min(begin, stop) - 1} of {partition} are gone: its log begins at {begin}"
                if self.asked.fails:
                    raise DataLossError(f"{text}; {REMEDY}")
                self._report(text)
            first = min(max(start, begin), end)
            found[partition] = (first, max(first, min(stop, end)))
        return found

    def _report(self, text: str) -> None:
        self._losses.append(text)
        _log.warning("%s", text)

    def _without_open_transactions(self, ranges: PinnedRanges, stable: Offsets) -> Pinned:
        held = {tp: end - max(start, stable[tp]) for tp, (start, end) in ranges.items() if stable[tp] < end}
        if held:
            which = ", ".join(f"{count} of {tp}" for tp, count in sorted(held.items()))
            _log.warning(
                "%s held back by transactions that are still open, and left out: %s; a later scan reads them once "
                "they have ended, and isolation_level='read_uncommitted' reads them now",
                counted(sum(held.values()), "offset", "are"),
                which,
            )
        kept = {tp: (start, max(start, min(end, stable[tp]))) for tp, (start, end) in ranges.items()}
        pinned = PinnedRanges(kept, topic_ids=ranges.topic_ids, oldest=ranges.oldest, newest=ranges.newest)
        return Pinned(ranges=pinned, held_back=held, losses=tuple(self._losses))


def _ids_of(topics: "Mapping[str, TopicDescription]") -> dict[str, UUID]:
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id is not None}


def _partitions_of(topics: "Mapping[str, TopicDescription]") -> set[TopicPartition]:
    return {TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions}


def topics_of(ranges: Iterable[TopicPartition], topics: Collection[str]) -> tuple[str, ...]:
    """Return the topics of ranges, those that were named first."""
    found = {partition.topic for partition in ranges}
    return (*(topic for topic in topics if topic in found), *sorted(found.difference(topics)))
