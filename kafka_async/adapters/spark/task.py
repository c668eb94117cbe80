"""A task: ranges of offsets to Arrow record batches, in a Python worker of an executor.

A ``TaskReader`` travels to executors: it holds values only.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from ...values import field, frozen
from ..ranges.offsets import LOOKS, SECOND_LOOK
from ..ranges.planner import Task
from ..ranges.reading import LossPolicy, RangesReading
from .connections import Lease, leased_for_a_task

if TYPE_CHECKING:  # a process that only plans needs none of them
    from ..values.decoding import ValueDecoder

_log = logging.getLogger("kafka_async.spark")


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
    looks: int = LOOKS
    """How often brokers are asked before what one says against the plan is believed."""
    pause: float = SECOND_LOOK
    """Seconds between two of these looks."""
    lease: Lease = leased_for_a_task
    sleep: Callable[[float], None] = time.sleep

    @property
    def _losses(self) -> LossPolicy:
        return LossPolicy(
            fails=self.fail_on_data_loss,
            remedy="set failOnDataLoss to false to go on without these records",
            report=_log.warning,
            timeout_ms=self.poll_timeout_ms,
            sleep=self.sleep,
            looks=self.looks,
            pause=self.pause,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of a task that Spark sent as ``pyarrow.RecordBatch``.

        Raises ``DataLossError`` for offsets that are gone (with ``fail_on_data_loss``; else they are left out and reported),
        ``KafkaTimeoutError`` if a broker does not answer, ``CorruptRecordException``.
        """
        if not partition.value:  # Spark makes up a partition of nothing if there is none
            return
        task: Task = partition.value[0]
        schemas: Mapping[str, str] = partition.value[1]
        from .columns import BatchBuilder

        decoders = {part: decoder.keeping(schemas.get(part, "")) for part, decoder in self.decoders.items()}
        builder = BatchBuilder(self.names, self.schema, decoders)
        wanted = builder.wanted
        with self.lease(self.kafka) as consumer:
            reading = RangesReading(consumer, task, self._losses)
            while (columns := reading.next(wanted)) is not None:
                if columns.rows:
                    yield builder.build(columns)


def input_partitions(tasks: Iterable[Task], schemas: Mapping[str, str] = {}) -> list[InputPartition]:
    """Return tasks as what Spark sends to executors; ``schemas``: those that decoders are to keep."""
    return [InputPartition((task, schemas)) for task in tasks if task]
