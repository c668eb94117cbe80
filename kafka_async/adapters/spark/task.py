"""A task: ranges of offsets to Arrow record batches, in a Python worker of an executor.

Decides: what happens when offsets are gone in the middle of a job. Owns nothing but the consumer that it leases. Must never return
a record twice, or leave out one that is there: records that it cannot read are an error, or are reported.

A ``TaskReader`` travels to executors: it holds values only.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen
from pyspark.sql.datasource import InputPartition

from ...errors import DataLossError, KafkaTimeoutError, LogTruncationError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from ...model import TopicPartition
from .connections import Lease, leased_for_a_task
from .plan.offsets import names_of
from .plan.planner import Task

if TYPE_CHECKING:  # a process that only plans needs none of them
    from ...records import Columns
    from ..sync import KafkaConsumer
    from .values.decoding import ValueDecoder

_PATIENCE_MS: Final = 10_000.0
"""Milliseconds without a record before checking whether the topics are still there."""
_log = logging.getLogger("kafka_async.spark")

Ranges = dict[TopicPartition, tuple[int, int]]


@frozen(kw_only=True)
class TaskReader:
    """Reads tasks. ``names``: the columns in the order of ``schema``, a ``pyarrow.Schema``."""

    kafka: Mapping[str, str] = field(repr=False)
    decoders: "Mapping[str, ValueDecoder]"
    """What decodes values, and keys."""
    names: tuple[str, ...]
    schema: Any
    fail_on_data_loss: bool
    poll_timeout_ms: int
    lease: Lease = leased_for_a_task

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of a task that Spark sent as ``pyarrow.RecordBatch``.

        Raises ``DataLossError`` for offsets that are gone (with ``fail_on_data_loss``; else they are left out and reported),
        ``KafkaTimeoutError`` if a broker does not answer, ``CorruptRecordException``.
        """
        task: Task = partition.value or ()  # Spark makes up a partition of nothing if there is none
        if not task:
            return
        from .values.columns import BatchBuilder

        builder = BatchBuilder(self.names, self.schema, self.decoders)
        wanted = builder.wanted
        with self.lease(self.kafka) as consumer:
            reading = _TaskReading(consumer, {each.partition: (each.start, each.end) for each in task}, self)
            while (columns := reading.next(wanted)) is not None:
                if columns.rows:
                    yield builder.build(columns)


class _TaskReading:
    """One task on its consumer."""

    def __init__(self, consumer: "KafkaConsumer", ranges: Ranges, settings: TaskReader) -> None:
        self._consumer = consumer
        self._settings = settings
        self._ranges = ranges
        consumer.assign_ranges(ranges)

    def next(self, wanted: Collection[str]) -> "Columns | None":
        """Return the next columns, ``None`` at the end."""
        patience = min(_PATIENCE_MS, float(self._settings.poll_timeout_ms))
        deadline = time.monotonic() + self._settings.poll_timeout_ms / 1000
        while True:
            try:
                try:
                    return self._consumer.next_columns(wanted, timeout_ms=patience)
                except (OffsetOutOfRangeError, LogTruncationError) as error:
                    self._go_on_behind_loss(error)
            except (KafkaTimeoutError, UnknownTopicOrPartitionError):  # the topic may have been deleted at any moment
                self._check_topics()
                if time.monotonic() >= deadline:
                    raise

    def _left(self) -> Ranges:
        """Return what is still to be read."""
        left = {partition: (self._consumer.position(partition), end) for partition, (_, end) in self._ranges.items()}
        return {partition: (start, end) for partition, (start, end) in left.items() if start < end}

    def _go_on_behind_loss(self, error: Exception) -> None:
        """Read what is left of the ranges, or raise ``DataLossError``."""
        if self._settings.fail_on_data_loss:
            text = f"{error}; set failOnDataLoss to false to go on without these records"
            raise DataLossError(text) from error
        left = self._left()
        begins, ends = self._consumer.beginning_offsets(left), self._consumer.end_offsets(left)
        there: Ranges = {}
        for partition, (start, end) in left.items():
            first, last = max(start, begins[partition]), min(end, ends[partition])
            if (first, last) != (start, end):
                _log.warning("%s: offsets %d to %d are gone, in part or all; reading %d to %d of them",
                             partition, start, end - 1, first, last - 1)  # fmt: skip
            if first < last:
                there[partition] = (first, last)
        self._ranges = there
        self._consumer.assign_ranges(there)

    def _check_topics(self) -> None:
        """Raise ``DataLossError`` for partitions that are gone, or leave them out."""
        left = self._left()
        try:
            topics = self._consumer.describe_topics(*{partition.topic for partition in left}).topics
        except KafkaTimeoutError:
            return  # no broker answers: nothing is known
        there = {TopicPartition(topic.name, part.partition) for topic in topics.values() for part in topic.partitions}
        gone = left.keys() - there
        if gone and self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{names_of(gone)}: deleted while a job reads it; set failOnDataLoss to false to go on without these records"
            )
        if gone:
            _log.warning("%s: deleted while a job reads it; its records are left out", names_of(gone))
            self._ranges = {partition: each for partition, each in left.items() if partition in there}
            self._consumer.assign_ranges(self._ranges)


def input_partitions(tasks: Iterable[Task]) -> list[InputPartition]:
    """Return tasks as what Spark sends to executors."""
    return [InputPartition(task) for task in tasks]


def received(tasks: TaskReader) -> TaskReader:
    """Return the parts of a Spark reader that a task needs, so that a task need not import the reader's own modules."""
    return tasks
