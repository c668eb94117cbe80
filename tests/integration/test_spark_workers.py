"""Spark's Python workers: they keep connections from task to task, and follow partitions that move in the middle of one."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from tests.brokers import KafkaCluster, payload
from tests.faults.proxy import Proxy, proxied

from .spark import source
from .spark_probe import GATE, NAME, OPEN, ProbeSource
from .tools import PATIENCE, new_topic, wait_until

pytestmark = pytest.mark.spark

FETCH: Final = 1
RECORDS: Final = 20_000
LONG: Final = 2 * PATIENCE
"""Seconds: the first task of a session starts its workers, which takes its time on a busy machine."""


@pytest.fixture(autouse=True)
def _probe(spark: Any) -> None:
    spark.dataSource.register(ProbeSource)


@pytest.fixture
async def proxy(kafka_cluster3: KafkaCluster) -> AsyncIterator[Proxy]:
    async with proxied(kafka_cluster3) as found:
        yield found


async def test_a_worker_keeps_its_connection_from_one_query_to_the_next(
    spark: Any, kafka_cluster3: KafkaCluster, proxy: Proxy
) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 50)
    given = {"subscribe": topic, "columns": "offset", "kafka.bootstrap.servers": proxy.bootstrap_servers}

    def query() -> int:
        """Read the topic in one task, and return the worker that did."""
        found = [tuple(row) for row in source(spark, kafka_cluster3, given, kind=NAME).load().collect()]
        assert [offset for offset, _ in found] == list(range(50))
        (worker,) = {pid for _, pid in found}
        return int(worker)

    workers: list[int] = []
    async with asyncio.timeout(LONG):
        while len(workers) == len(set(workers)):  # Spark takes any idle worker: until one has had two queries
            workers.append(await asyncio.to_thread(query))
    assert proxy.carried[FETCH] == len(set(workers)) < len(workers)


def test_partitions_that_move_in_the_middle_of_tasks_cost_no_row(spark: Any, kafka_cluster3: KafkaCluster, tmp_path: Path) -> None:
    topic = new_topic(kafka_cluster3, 2, replicas=1)
    kafka_cluster3.produce(topic, RECORDS, 300, partitions=2)
    moves = {number: [(kafka_cluster3.leader(topic, number) + 1) % 3] for number in range(2)}
    given = {
        "subscribe": topic,
        "columns": "partition,offset,value",
        # Small, so that most of each partition is still to be fetched when it moves.
        "kafka.max.partition.fetch.bytes": "50000",
        "kafka.fetch.buffer.bytes": "300000",
        GATE: str(tmp_path),
    }
    frame = source(spark, kafka_cluster3, given, kind=NAME).load()
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(frame.collect)
        try:
            wait_until(lambda: reading.done() or len(list(tmp_path.glob("task-*"))) == 2, LONG)
            kafka_cluster3.reassign(topic, moves)
        finally:
            (tmp_path / OPEN).touch()
        found = sorted((row.partition, row.offset, bytes(row.value)) for row in reading.result(LONG))
    assert found == [(number, offset, payload(2 * offset + number, 300)) for number in range(2) for offset in range(RECORDS // 2)]
    assert {number: [kafka_cluster3.leader(topic, number)] for number in range(2)} == moves
