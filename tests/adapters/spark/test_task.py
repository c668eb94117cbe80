"""A task on a consumer that answers from a script."""

import logging
import pickle
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

import pyarrow as pa
from attrs import Factory, define
from pyspark.sql.datasource import InputPartition

from kafka_async import TopicPartition
from kafka_async.adapters.spark.plan.planner import OffsetRange, Task
from kafka_async.adapters.spark.task import TaskReader, input_partitions
from kafka_async.errors import DataLossError, KafkaTimeoutError, OffsetOutOfRangeError
from kafka_async.records import ColumnBuilder, Columns

from .support import A0, A1, Cluster

SCHEMA = pa.schema([pa.field("partition", pa.int32()), pa.field("offset", pa.int64())])
TASK = (OffsetRange(A0, 0, 10), OffsetRange(A1, 0, 5))


@define(eq=False)
class Script(Cluster):
    """Hands out what lies in the logs, and first fails as told."""

    trouble: list[Exception] = Factory(list)
    left: dict[TopicPartition, tuple[int, int]] = Factory(dict)
    assigned: list[dict[TopicPartition, tuple[int, int]]] = Factory(list)
    lease_ended: str = ""

    @contextmanager
    def lease(self, kafka: Mapping[str, str]) -> Iterator[Any]:
        self.lease_ended = "badly"
        yield self
        self.lease_ended = "well"

    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.left = dict(ranges)
        self.assigned.append(dict(ranges))

    def position(self, partition: TopicPartition) -> int:
        return self.left[partition][0]

    def next_columns(self, wanted: Collection[str], *, timeout_ms: float | None = None) -> Columns | None:
        for partition, (start, end) in self.left.items():
            if start < end:
                if self.trouble:
                    raise self.trouble.pop(0)
                take = min(start + 4, end)
                self.left[partition] = (take, end)
                return rows(partition, range(start, take))
        return None


def rows(partition: TopicPartition, offsets: Collection[int]) -> Columns:
    into = ColumnBuilder({"offset"})
    for offset in offsets:
        into.append((offset, 0, 0, None, None, (), None, 0))
    into.end_run(*partition, len(offsets))
    return into.finish()


def test_a_reader_does_not_show_what_may_be_secret() -> None:
    tasks = TaskReader(
        kafka={"sasl_plain_password": "hunter2"},
        decoders={},
        names=(),
        schema=SCHEMA,
        fail_on_data_loss=True,
        poll_timeout_ms=1,
    )
    assert "hunter2" not in repr(tasks)


def reader(consumer: Script, *, fail: bool = True, poll_timeout_ms: int = 1) -> TaskReader:
    return TaskReader(
        kafka={},
        decoders={},
        names=("partition", "offset"),
        schema=SCHEMA,
        fail_on_data_loss=fail,
        poll_timeout_ms=poll_timeout_ms,
        lease=consumer.lease,
    )


def read(consumer: Script, task: Task = TASK, **settings: Any) -> list[tuple[int, int]]:
    batches = list(reader(consumer, **settings).read(*input_partitions([task])))
    assert all(batch.schema.equals(SCHEMA) for batch in batches)
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def script(*trouble: Exception) -> Script:
    return Script(logs={A0: (0, 10), A1: (0, 5)}, trouble=list(trouble))


WHOLE = [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(5)]


def test_a_task_is_read_to_its_end_and_the_consumer_is_given_back() -> None:
    consumer = script()
    assert read(consumer) == WHOLE
    assert consumer.lease_ended == "well"


def test_a_task_of_nothing_takes_no_consumer() -> None:
    consumer = script()
    assert read(consumer, ()) == []
    assert list(reader(consumer).read(InputPartition(None))) == []
    assert consumer.lease_ended == ""


def test_a_task_that_is_left_early_does_not_give_its_consumer_back() -> None:
    consumer = script()
    reading = reader(consumer).read(*input_partitions([TASK]))
    next(reading)
    del reading
    assert consumer.lease_ended == "badly"


def test_offsets_that_are_gone_end_the_task() -> None:
    with pytest.raises(DataLossError, match="offset 3 of a-0 is outside the log; set failOnDataLoss to false"):
        read(script(OffsetOutOfRangeError("offset 3 of a-0 is outside the log")))


def test_a_topic_that_is_deleted_while_its_loss_is_looked_at_is_left_out() -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs = {A1: (0, 5)}
    assert read(consumer, fail=False, poll_timeout_ms=10_000) == [(1, offset) for offset in range(5)]


def test_offsets_that_are_gone_are_left_out_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs = {A0: (8, 10), A1: (0, 3)}
    with caplog.at_level(logging.WARNING, "kafka_async.spark"):
        assert read(consumer, fail=False) == [(0, 8), (0, 9), (1, 0), (1, 1), (1, 2)]
    assert "a-0: offsets 0 to 9 are gone, in part or all; reading 8 to 9 of them" in caplog.text


def test_a_range_that_is_gone_as_a_whole_is_left_out() -> None:
    consumer = script(OffsetOutOfRangeError("gone"))
    consumer.logs = {A0: (50, 60), A1: (0, 5)}
    assert read(consumer, fail=False) == WHOLE[10:]


def test_a_broker_that_is_silent_for_a_while_is_waited_for() -> None:
    assert read(script(KafkaTimeoutError("1"), KafkaTimeoutError("2")), poll_timeout_ms=60_000) == WHOLE


def test_a_broker_that_stays_silent_ends_the_task() -> None:
    with pytest.raises(KafkaTimeoutError, match="no records came"):
        read(script(*[KafkaTimeoutError("no records came")] * 1_000_000))


def test_a_topic_that_was_deleted_ends_the_task_or_is_left_out() -> None:
    consumer = script(KafkaTimeoutError("no records came"))
    consumer.logs = {A1: (0, 5)}
    with pytest.raises(DataLossError, match="a-0: deleted while a job reads it"):
        read(consumer, poll_timeout_ms=60_000)
    consumer = script(KafkaTimeoutError("no records came"))
    consumer.logs = {A1: (0, 5)}
    assert read(consumer, fail=False, poll_timeout_ms=60_000) == WHOLE[10:]


def test_a_task_travels() -> None:
    (sent,) = input_partitions([TASK])
    assert pickle.loads(pickle.dumps(sent)).value == TASK  # noqa: S301  # our own bytes
