"""One piece of work on its consumer: its records, exactly, whatever happens to its topics meanwhile."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from ...application.reading.ranges import RANGE_BATCH_BYTES
from ...errors import (
    DataLossError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from ...model import TopicPartition
from ...values import frozen
from .offsets import LOOKS, SECOND_LOOK, Ranges, below, names_of
from .planner import OffsetRange

if TYPE_CHECKING:  # a process that only plans needs none of them
    from ...events import TopicDescription
    from ...records import Columns
    from ..sync import KafkaConsumer

_PATIENCE_MS: Final = 10_000.0
"""Milliseconds without a record before checking whether the topics are still there."""


@frozen(kw_only=True)
class LossPolicy:
    """What is done about offsets that are gone."""

    fails: bool
    """They end the reading with ``DataLossError``; else they are left out and reported."""
    remedy: str
    """How to go on without them, for the error."""
    report: Callable[[str], None]
    timeout_ms: int
    """How long to wait for records."""
    sleep: Callable[[float], None] = time.sleep
    looks: int = LOOKS
    """How often brokers are asked before what one says against the plan is believed."""
    pause: float = SECOND_LOOK
    """Seconds between two of these looks."""


class RangesReading:
    """Reads ranges with a consumer that nobody else uses meanwhile."""

    def __init__(self, consumer: "KafkaConsumer", ranges: Iterable[OffsetRange], policy: LossPolicy) -> None:
        planned = tuple(ranges)
        self._consumer = consumer
        self._policy = policy
        self._ids = {each.partition.topic: each.topic_id for each in planned if each.topic_id is not None}
        """Which topics have the offsets that were planned."""
        self._confirmed = not self._ids
        """The consumer reads these topics. It follows names, and so would read another topic that got the name since the plan. From
        now on it finds out by itself if the id of a topic changes."""
        self._begins = {each.partition: each.start for each in planned if each.earliest}
        """Where ranges begin by now that were to begin where their logs do."""
        self._doubts = Counter[TopicPartition]()
        """How often a broker has refused offsets that are there, since the last records of the partition."""
        self._assign({each.partition: (each.start, each.end) for each in planned})

    def _assign(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._consumer.assign_ranges(ranges)

    def next(self, wanted: Collection[str], batch_bytes: int = RANGE_BATCH_BYTES) -> "Columns | None":
        """Return the next columns, about ``batch_bytes`` of them, ``None`` at the end."""
        patience = min(_PATIENCE_MS, float(self._policy.timeout_ms))
        deadline = time.monotonic() + self._policy.timeout_ms / 1000
        while True:
            try:
                try:
                    columns = self._consumer.next_columns(wanted, batch_bytes=batch_bytes, timeout_ms=patience)
                    if columns is None or self._is_confirmed():
                        self._trust(columns)
                        return columns
                except (OffsetOutOfRangeError, LogTruncationError) as error:
                    self._go_on_behind_loss(error)
            except (KafkaTimeoutError, UnknownTopicOrPartitionError):  # the topic may have been deleted at any moment
                self._check_topics()
                if time.monotonic() >= deadline:
                    raise

    def _trust(self, columns: "Columns | None") -> None:
        """Forget that brokers refused what they sent now: the next time may be hours from here."""
        for topic, number, _ in columns.runs if columns is not None and self._doubts else ():
            del self._doubts[TopicPartition(topic, number)]

    def _is_confirmed(self) -> bool:
        """Return whether the records that came are of the topics that were planned; if not, all is read again without the others.

        Asked only once there are records: if a topic still is the one that was planned, so it was when they were fetched.
        """
        if not self._confirmed:
            try:
                self._confirmed = not self._leave_out_what_is_gone()
            except KafkaError:
                self._assign(self._ranges)
                raise
        return self._confirmed

    def _left(self) -> Ranges:
        """Return what is still to be read."""
        if not self._confirmed:
            return self._ranges
        left = {partition: (self._consumer.position(partition), end) for partition, (_, end) in self._ranges.items()}
        return {partition: (start, end) for partition, (start, end) in left.items() if start < end}

    def _go_on_behind_loss(self, error: Exception) -> None:
        """Read what is left of the ranges, or raise ``DataLossError``."""
        if self._ids and self._leave_out_what_is_gone():
            return
        left = self._left()
        if self._ids and isinstance(error, OffsetOutOfRangeError) and not error.offsets:
            # Not an offset, but the id of the topic was wrong: the consumer had read an older topic of this name for another task.
            self._assign(left)
            return
        there = self._there(left)
        is_refused = there == left and isinstance(error, OffsetOutOfRangeError)
        refused = error.offsets if isinstance(error, OffsetOutOfRangeError) and error.offsets else left
        if is_refused and max((self._doubts[partition] for partition in refused), default=0) < self._policy.looks:
            self._doubts.update(refused.keys())  # all of it is there: the broker that refused it is behind the others
            self._policy.sleep(self._policy.pause)
        elif self._policy.fails and (isinstance(error, LogTruncationError) or not self._only_begin_later(left, there)):
            text = f"{error}; {self._policy.remedy}"
            raise DataLossError(text) from error
        elif isinstance(error, LogTruncationError):
            self._report_truncated(error)
            if there == left:
                for partition in error.positions:  # to assign all again would forget by what truncations of the others are known
                    self._consumer.seek(partition, self._consumer.position(partition))
                return
        elif is_refused:  # nothing can be skipped, and to ask again would be for ever
            raise DataLossError(f"{error}; its leader refuses them, and says that they are there") from error
        self._go_on_with(left, there)

    def _go_on_with(self, left: Ranges, there: Ranges) -> None:
        """Say what is gone of what was left to read, and read what is there."""
        for partition, (start, end) in left.items():
            if (kept := there[partition]) != (start, end):
                what = f"{kept[0]} to {kept[1] - 1}" if kept[0] < kept[1] else "nothing"
                text = f"{partition}: offsets {start} to {end - 1} are gone, in part or all; reading {what} of them"
                self._policy.report(text)
        unread = (partition for partition, (start, _) in left.items() if start == self._begins.get(partition))
        self._begins = {partition: there[partition][0] for partition in unread}
        self._assign({partition: (first, last) for partition, (first, last) in there.items() if first < last})

    def _report_truncated(self, error: LogTruncationError) -> None:
        """Report records that were read and are gone. Others that have their offsets now are not read."""
        for partition, position in error.positions.items():
            text = str(error)
            if (kept := error.divergent_offsets.get(partition)) is not None:
                first = max(kept.offset, self._ranges[partition][0])
                text = (
                    f"{partition}: offsets {first} to {position - 1} were read and are gone; what has these offsets now is left out"
                )
            self._policy.report(text)

    def _only_begin_later(self, left: Ranges, there: Ranges) -> bool:
        """Return whether only the front is gone, of ranges that were to begin where their logs do and of which nothing was read."""
        changed = [partition for partition in left if there[partition] != left[partition]]
        unread = (left[each][0] == self._begins.get(each) and there[each][1] == left[each][1] for each in changed)
        return bool(changed) and all(unread)

    def _there(self, left: Ranges) -> Ranges:
        """Return what the log holds of ranges, which may be nothing.

        It held all when they were planned, so an end within them is asked for again.
        """
        for look in range(self._policy.looks):
            if look:
                self._policy.sleep(self._policy.pause)
                self._consumer.describe_topics(*{partition.topic for partition in left})  # leads to the leader of now
            begins, ends = self._consumer.beginning_offsets(left), self._consumer.end_offsets(left)
            if not below(ends, {partition: end for partition, (_, end) in left.items()}):
                break
        return {partition: (max(start, begins[partition]), min(end, ends[partition])) for partition, (start, end) in left.items()}

    def _check_topics(self) -> None:
        """Raise ``DataLossError`` for partitions that are gone, or leave them out."""
        with contextlib.suppress(KafkaTimeoutError):  # no broker answers: nothing is known
            self._leave_out_what_is_gone()

    def _leave_out_what_is_gone(self) -> bool:
        """Leave out partitions that are gone, or that another topic of the name has now, and return whether there are any.

        Any broker answers, and one that has just started may have none of them, or older topics: only what no look sees is gone.
        Raises ``DataLossError`` for it if the policy is to fail.
        """
        left = self._left()
        lost = self._lost(left)
        for _ in range(self._policy.looks - 1):
            if not lost:
                return False
            self._policy.sleep(self._policy.pause)
            lost = {partition: what for partition, what in self._lost(left).items() if partition in lost}
        for what in sorted({*lost.values()}):
            names = names_of(partition for partition in lost if lost[partition] == what)
            if self._policy.fails:
                text = f"{names}: {what}; {self._policy.remedy}"
                raise DataLossError(text)
            self._policy.report(f"{names}: {what}; its records are left out")
        if lost:
            self._assign({partition: each for partition, each in left.items() if partition not in lost})
        return bool(lost)

    def _lost(self, left: Ranges) -> dict[TopicPartition, str]:
        """Return what happened to partitions that are no longer those that were planned."""
        topics = self._consumer.describe_topics(*{partition.topic for partition in left}).topics
        there = {TopicPartition(topic.name, part.partition) for topic in topics.values() for part in topic.partitions}
        gone = dict.fromkeys(left.keys() - there, "deleted while it is read")
        others = (partition for partition in left.keys() & there if self._is_another(topics[partition.topic]))
        return gone | dict.fromkeys(others, "deleted and created again since this read was planned")

    def _is_another(self, topic: "TopicDescription") -> bool:
        """Return whether a topic only has the name of the one that was planned."""
        planned = self._ids.get(topic.name)
        return None not in (planned, topic.topic_id) and planned != topic.topic_id
