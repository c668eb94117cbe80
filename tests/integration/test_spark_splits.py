"""Logs with gaps in pieces: ``minPartitions`` and ``maxRecordsPerPartition`` where offsets have no record.

A piece may begin or end anywhere: where compaction left nothing, on a transaction's marker, inside an aborted transaction, inside a
batch. Whatever the pieces, the rows are those of one piece, and those of Spark's own connector.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from attrs import frozen
from pyspark.sql.datasource import InputPartition

from kafka_async import TopicPartition
from kafka_async.adapters.ranges.planner import OffsetRange, plan
from kafka_async.adapters.spark.connections import connections
from tests.brokers import KafkaCluster

from .spark import JVM, Row, rows, source
from .test_read_committed import Transactions
from .test_spark_tasks import task_reader
from .tools import new_topic, wait_until

pytestmark = pytest.mark.spark

ISOLATIONS: Final = ("read_uncommitted", "read_committed")
ROUND: Final = 40
ROUNDS: Final[tuple[Literal["commit", "abort"] | None, ...]] = ("commit", "abort", None, "commit")
"""How each round of records ends; ``None``: it is no transaction."""
MARKERS: Final = 3
HEADERS: Final = [("trace", b"\x00\x01"), ("none", None)]


@frozen
class Logs:
    """Two topics with gaps, and what Spark's own connector reads of them, by isolation level."""

    topics: tuple[str, str]
    ranges: tuple[OffsetRange, ...]
    """All partitions, from the first offset to the last one."""
    rows: Mapping[str, list[Row]]

    def sizes(self, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> list[int]:
        """Return how many offsets of each partition lie between two of a stream's own marks; ``None``: the beginning."""
        places = [(each.partition.topic, str(each.partition.partition)) for each in self.ranges]
        return [end[topic][number] - (start or {}).get(topic, {}).get(number, 0) for topic, number in places]


def tasks_of(most: int, sizes: Iterable[int]) -> int:
    """Return into how many tasks of at most ``most`` offsets ranges fall, where no two pieces are so small that they share one."""
    return sum(-(-size // most) for size in sizes)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    connections().close()


@pytest.fixture(scope="module")
def logs(spark: Any, kafka44: KafkaCluster) -> Logs:
    topics = _compacted(kafka44), _transactional(kafka44)
    ends = {TopicPartition(topic, number): end for topic in topics for number, end in kafka44.end_offsets(topic).items()}
    theirs = {level: rows(source(spark, kafka44, options(topics, level), kind=JVM).load()) for level in ISOLATIONS}
    return Logs(topics, tuple(OffsetRange(partition, 0, end) for partition, end in ends.items()), theirs)


def options(topics: Iterable[str], isolation: str) -> dict[str, str]:
    return {"subscribe": ",".join(topics), "includeHeaders": "true", "kafka.isolation.level": isolation}


def _compacted(cluster: KafkaCluster) -> str:
    """Return a topic of which the cleaner took what it may: single records, whole batches, aborted transactions."""
    topic = new_topic(cluster, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="60000")
    now = int(time.time() * 1000)
    last: dict[bytes, int] = {}

    def key(index: int) -> bytes:
        return b"own %d" % index if index % 5 == 0 else b"%d" % (index % 7)

    for number, end in enumerate(ROUNDS):
        start = number * ROUND
        found = cluster.produce(topic, ROUND, start=start, keys=key, headers=HEADERS, transaction=end, timestamps=lambda i: now)
        if end != "abort":
            last |= {key(start + place): offset for place, offset in enumerate(found.offsets[0])}
    _until_marked(cluster, topic, {0: len(ROUNDS) * ROUND + MARKERS})
    # So much later than the others, this one closes their segment; the cleaner takes nothing from an open one.
    closing = cluster.produce(topic, 1, keys=lambda i: b"last", timestamps=lambda i: now + 120_000)
    kept = sorted([*last.values(), *closing.offsets[0]])
    whole = OffsetRange(TopicPartition(topic, 0), 0, kept[-1] + 1)
    wait_until(lambda: [offset for offset, _ in read(cluster, "read_uncommitted", [whole])] == kept)
    return topic


def _transactional(cluster: KafkaCluster) -> str:
    """Return a topic with transactions of several batches one after the other, and then two that overlap."""
    topic = new_topic(cluster, 2)
    for number, end in enumerate(ROUNDS):
        cluster.produce(
            topic,
            ROUND,
            start=number * ROUND,
            partitions=2,
            codec="lz4" if number % 2 else "none",
            headers=HEADERS if number % 3 else (),
            keys=lambda i: None if i % 3 else b"key %d" % i,
            values=lambda i: None if i % 7 == 0 else b"\xff value %d" % i,
            transaction=end,
            settings={"batch.num.messages": 7},
        )
    transactions = Transactions(cluster, topic)
    keeps, drops = transactions.begin(), transactions.begin()
    for turn in range(3):
        transactions.write(keeps, *(f"kept {turn}.{number}" for number in range(3)))
        transactions.write(drops, *(f"dropped {turn}.{number}" for number in range(3)))
        cluster.produce(topic, 2)
    drops.abort_transaction(30)
    keeps.commit_transaction(30)
    each = len(ROUNDS) * ROUND // 2 + MARKERS
    _until_marked(cluster, topic, {0: each + 3 * 8 + 2, 1: each})
    return topic


def _until_marked(cluster: KafkaCluster, topic: str, ends: dict[int, int]) -> None:
    """Wait for the markers: a transaction is over for its producer before they are in the log."""
    wait_until(lambda: cluster.end_offsets(topic) == ends)


def read(cluster: KafkaCluster, isolation: str, pieces: Iterable[OffsetRange]) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of the pieces, each of which is a task of its own, without Spark."""
    reader = task_reader(cluster, {"kafka.isolation.level": isolation}, sizes={})
    batches = [batch for piece in pieces for batch in reader.read(InputPartition(((piece,), {})))]
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_seam_may_be_at_any_offset(kafka44: KafkaCluster, logs: Logs, isolation: str) -> None:
    for whole in logs.ranges:
        partition, end = whole.partition, whole.end
        expected = [(row[4], row[1]) for row in logs.rows[isolation] if row[2:4] == tuple(partition)]
        assert read(kafka44, isolation, [whole]) == expected
        for size in (1, 4):
            pieces = [OffsetRange(partition, start, min(start + size, end)) for start in range(0, end, size)]
            assert read(kafka44, isolation, pieces) == expected


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_batch_in_pieces_has_the_rows_of_one_that_is_whole(spark: Any, kafka44: KafkaCluster, logs: Logs, isolation: str) -> None:
    def read_with(more: Mapping[str, str]) -> tuple[int, list[Row]]:
        frame = source(spark, kafka44, {**options(logs.topics, isolation), **more}).load()
        return frame.rdd.getNumPartitions(), rows(frame)

    there = {(row[2], row[3], row[4]) for row in logs.rows[isolation]}
    seams = {(*piece.partition, piece.start) for task in plan(logs.ranges, min_partitions=11) for piece in task}
    assert seams - there, "no seam is where there is no record"
    together = plan(logs.ranges, cores=os.cpu_count() or 1)
    assert read_with({}) == (len(together), logs.rows[isolation])
    assert read_with({"minPartitions": "11"}) == (11, logs.rows[isolation])
    assert read_with({"maxRecordsPerPartition": "30"}) == (tasks_of(30, (each.size for each in logs.ranges)), logs.rows[isolation])


@pytest.mark.parametrize(("option", "number"), [("minPartitions", 6), ("maxRecordsPerPartition", 20)])
def test_a_stream_in_pieces_has_the_rows_of_a_batch(
    spark: Any, kafka44: KafkaCluster, logs: Logs, tmp_path: Path, option: str, number: int
) -> None:
    found: list[Row] = []
    tasks: list[int] = []

    def write(frame: Any, _: int) -> None:
        tasks.append(frame.rdd.getNumPartitions())
        found.extend(rows(frame))

    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "150", option: str(number)}
    frame = source(spark, kafka44, options(logs.topics, "read_committed") | given, stream=True).load()
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()

    assert sorted(found, key=lambda row: row[2:5]) == logs.rows["read_committed"]
    progress = [json.loads(each.json)["sources"][0] for each in query.recentProgress]
    sizes = [logs.sizes(each["startOffset"], each["endOffset"]) for each in progress if each["startOffset"] != each["endOffset"]]
    assert [sum(each) for each in sizes] == [150, 150, 56]
    assert tasks == [number if option == "minPartitions" else tasks_of(number, each) for each in sizes]
