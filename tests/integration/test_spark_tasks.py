"""One task on a real broker, without Spark around it: a log that changes meanwhile, and how much Spark is handed at once."""

import json
import logging
import statistics
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from kafka_async import TopicPartition
from kafka_async.adapters.ranges.planner import OffsetRange
from kafka_async.adapters.spark.connections import connections
from kafka_async.adapters.spark.options.source_options import SourceOptions
from kafka_async.adapters.spark.source import KafkaDataSource
from kafka_async.adapters.spark.task import TaskReader
from kafka_async.errors import DataLossError
from tests.adapters.spark.test_columns import spark_schema
from tests.brokers import KafkaCluster

from .test_reading_positions import raise_log_start
from .tools import new_topic

pytestmark = pytest.mark.spark

RECORDS = 60_000
SCHEMA = spark_schema("value", "offset")
OFFSET = StructType([StructField("offset", LongType())])
OFFSETS = spark_schema("offset")
EVERY_COLUMN = spark_schema("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
SMALL_FETCHES = {"fetch_buffer_bytes": "300000", "max_partition_fetch_bytes": "50000"}
"""So that most of the range is still at the broker when something happens to it."""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    connections().close()


def task_reader(
    cluster: KafkaCluster,
    options: Mapping[str, str] | None = None,
    *,
    schema: Any = SCHEMA,
    sizes: Mapping[str, str] = SMALL_FETCHES,
) -> TaskReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", **(options or {})}
    parsed = SourceOptions.parse(given)
    return TaskReader(
        kafka={**parsed.reading, **sizes},
        decoders={},
        names=tuple(schema.names),
        schema=schema,
        fail_on_data_loss=parsed.fail_on_data_loss,
        poll_timeout_ms=parsed.poll_timeout_ms,
    )


def whole(cluster: KafkaCluster) -> tuple[str, tuple[OffsetRange, ...]]:
    topic = new_topic(cluster)
    cluster.produce(topic, RECORDS)
    return topic, (OffsetRange(TopicPartition(topic, 0), 0, RECORDS),)


def offsets(batches: Any) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_broker_that_restarts_is_waited_for(kafka44: KafkaCluster) -> None:
    _, task = whole(kafka44)
    reading = task_reader(kafka44).read(InputPartition((task, {})))
    first = offsets([next(reading)])
    restart = threading.Thread(target=kafka44.restart, args=(0,))
    restart.start()
    rest = offsets(reading)
    restart.join()
    assert first + rest == list(range(RECORDS))


def test_retention_that_passes_a_task_is_an_error_that_names_the_offset(kafka44: KafkaCluster) -> None:
    topic, task = whole(kafka44)
    reading = task_reader(kafka44).read(InputPartition((task, {})))
    next(reading)
    raise_log_start(kafka44, topic, RECORDS - 10)
    with pytest.raises(DataLossError, match=f"offset \\d+ of {topic}-0 is outside the log"):
        offsets(reading)


def test_retention_that_passes_a_task_leaves_out_what_is_gone(kafka44: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic, task = whole(kafka44)
    reading = task_reader(kafka44, {"failOnDataLoss": "false"}).read(InputPartition((task, {})))
    found = offsets([next(reading)])
    raise_log_start(kafka44, topic, RECORDS - 10)
    with caplog.at_level(logging.WARNING, "kafka_async.spark"):
        found += offsets(reading)
    kept = len(found) - 10
    assert found == [*range(kept), *range(RECORDS - 10, RECORDS)]
    assert kept < RECORDS - 10
    assert f"{topic}-0: offsets" in caplog.text


def test_a_deleted_topic_is_reported_and_not_waited_for(kafka44: KafkaCluster) -> None:
    topic, task = whole(kafka44)
    reading = task_reader(kafka44, {"kafkaConsumer.pollTimeoutMs": "2000"}).read(InputPartition((task, {})))
    next(reading)
    kafka44.delete_topics(topic)
    with pytest.raises(DataLossError, match=f"{topic}-0"):
        offsets(reading)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_topic_that_was_made_anew_before_a_read_is_read_by_a_worker_that_knows_the_old_one(
    kafka44: KafkaCluster, strict: str
) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    given = {"subscribe": topic, "failOnDataLoss": strict}

    def read() -> list[int]:
        tasks = KafkaDataSource({"kafka.bootstrap.servers": kafka44.bootstrap_servers, **given}).reader(OFFSET).partitions()
        return [offset for task in tasks for offset in offsets(task_reader(kafka44, given, schema=OFFSETS).read(task))]

    assert read() == list(range(10))
    kafka44.delete_topics(topic)
    kafka44.create_topic(topic)
    kafka44.produce(topic, 25)
    assert read() == list(range(25))


@pytest.mark.parametrize("before", [False, True], ids=["a new worker", "a worker that knows the old one"])
def test_a_topic_that_was_made_anew_since_a_task_was_planned_is_an_error_or_left_out(kafka44: KafkaCluster, before: bool) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    given = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 5}})}
    (task,) = KafkaDataSource({"kafka.bootstrap.servers": kafka44.bootstrap_servers, **given}).reader(OFFSET).partitions()
    if before:
        assert offsets(task_reader(kafka44, given, schema=OFFSETS).read(task)) == [5, 6, 7, 8, 9]
    kafka44.delete_topics(topic)
    kafka44.create_topic(topic)
    kafka44.produce(topic, 25)
    assert offsets(task_reader(kafka44, given | {"failOnDataLoss": "false"}, schema=OFFSETS).read(task)) == []
    with pytest.raises(DataLossError, match=f"{topic}-0: deleted and created again since this read was planned"):
        offsets(task_reader(kafka44, given, schema=OFFSETS).read(task))


@pytest.mark.parametrize(("size", "count"), [(100, 120_000), (10_000, 1200)], ids=["100 B", "10 KB"])
def test_batches_have_one_to_two_megabytes_by_default(kafka44: KafkaCluster, size: int, count: int) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, count, size)
    for schema in (EVERY_COLUMN, SCHEMA):
        batches = list(
            task_reader(kafka44, schema=schema, sizes={}).read(
                InputPartition(((OffsetRange(TopicPartition(topic, 0), 0, count),), {}))
            )
        )
        assert offsets(batches) == list(range(count))
        sizes = [batch.nbytes for batch in batches]
        assert max(sizes) <= 2_000_000
        # The last one of each fetch is smaller, and so is the very first: nobody knows yet how large its rows are.
        assert statistics.median(sizes) >= 1_000_000, sizes


def test_a_value_that_is_larger_than_a_batch_comes_alone(kafka44: KafkaCluster) -> None:
    topic, large = new_topic(kafka44), {10, 500, 501}
    settings = {"message.max.bytes": 4_000_000}
    kafka44.produce(topic, 600, values=lambda i: b"v" * (3_000_000 if i in large else 10), settings=settings)
    batches = list(task_reader(kafka44, sizes={}).read(InputPartition(((OffsetRange(TopicPartition(topic, 0), 0, 600),), {}))))
    assert offsets(batches) == list(range(600))
    assert [offsets([batch]) for batch in batches if batch.nbytes > 2_000_000] == [[10], [500], [501]]
