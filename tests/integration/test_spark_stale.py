"""Brokers that answer with older ends for a while, as after a change of leaders: no row is lost, none comes twice (SPARK-26267)."""

import asyncio
import time
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from tests.effort import apart

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from attrs import Factory, define, evolve
from confluent_kafka import TopicPartition

from kafka_async.testing.server import encode_response
from kafka_async.wire import Api, decode_response
from kafka_async.wire.messages.fetch import ListOffsetsRequest
from tests.brokers import KafkaCluster
from tests.faults.proxy import Proxy, proxied

from .spark import rows, source
from .test_spark_stream import Job, places
from .tools import PATIENCE, new_topic, until

pytestmark = pytest.mark.spark

LONG: Final = 2 * PATIENCE
"""Seconds: the first task of a session starts its workers, which takes its time on a busy machine."""


@define(eq=False)
class Stale:
    """Lowers the next answers that tell where a topic ends, or begins."""

    topic: str
    end: int = 0
    most: float = inf
    left: int = 0
    lowered: asyncio.Event = Factory(asyncio.Event)
    """All answers that were to be lowered have been."""

    def answer(self, times: int, end: int, most: float = inf) -> None:
        """Let the next ``times`` answers say that the topic ends at ``end``, where they would say more, but not above ``most``."""
        self.end, self.most, self.left = end, most, times
        self.lowered.clear()

    def edit(self, api: int, version: int, frame: bytes) -> bytes:
        if api != Api.LIST_OFFSETS or not self.left:
            return frame
        response = decode_response(ListOffsetsRequest, version, frame)
        offsets = [part.offset for topic in response.topics if topic.name == self.topic for part in topic.partitions]
        if not any(self.end < offset <= self.most for offset in offsets):
            return frame
        self.left -= 1
        if not self.left:
            self.lowered.set()
        topics = tuple(
            evolve(topic, partitions=tuple(evolve(part, offset=min(part.offset, self.end)) for part in topic.partitions))
            for topic in response.topics
        )
        correlation_id = int.from_bytes(frame[:4], "big")
        return encode_response(evolve(response, topics=topics), Api.LIST_OFFSETS, version, correlation_id)[4:]


@pytest.fixture
async def proxy(kafka_cluster3: KafkaCluster) -> AsyncIterator[Proxy]:
    async with proxied(kafka_cluster3) as found:
        yield found


@pytest.fixture
def stale(kafka_cluster3: KafkaCluster, proxy: Proxy) -> Stale:
    found = Stale(new_topic(kafka_cluster3))
    proxy.everyone.edit = found.edit
    return found


@pytest.fixture
def job(spark: Any, kafka_cluster3: KafkaCluster, tmp_path: Path) -> Job:
    return Job(spark, kafka_cluster3, tmp_path / "checkpoint")


def options(proxy: Proxy, stale: Stale, **more: str) -> dict[str, str]:
    servers = {"kafka__bootstrap__servers": proxy.bootstrap_servers}
    return servers | {"subscribe": stale.topic, "startingOffsets": "earliest", "fetchOffset__retryIntervalMs": "200"} | more


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("times", [*apart(1, 2), 4])
async def test_a_query_goes_on_behind_ends_that_are_older_than_what_it_has_read(
    job: Job, proxy: Proxy, stale: Stale, times: int, strict: str
) -> None:
    wanted = options(proxy, stale, failOnDataLoss=strict)
    job.cluster.produce(stale.topic, 100)
    query = await asyncio.to_thread(lambda: job.start(now=False, **wanted))
    try:
        await until(lambda: job.sink.places == places(stale.topic, p0=100), LONG)
        stale.answer(times, 90)
        if times == 4 and strict == "true":  # three answers in a row count, as for Spark's own connector
            with pytest.raises(Exception, match=f"DataLossError: {stale.topic}-0 was read up to offset 100 and ends at 90 now"):
                await asyncio.to_thread(query.awaitTermination, LONG)
            query = await asyncio.to_thread(lambda: job.start(now=False, **wanted))
        async with asyncio.timeout(LONG):
            await stale.lowered.wait()
        job.cluster.produce(stale.topic, 50, start=100)
        await until(lambda: len(job.sink.places) >= 150, LONG)
    finally:
        await asyncio.to_thread(query.stop)
    assert job.sink.places == places(stale.topic, p0=150)


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("times", [*apart(1), 2])
async def test_available_now_does_not_end_where_a_stale_answer_says(
    job: Job, proxy: Proxy, stale: Stale, times: int, strict: str
) -> None:
    wanted = options(proxy, stale, failOnDataLoss=strict)
    job.cluster.produce(stale.topic, 100)
    await asyncio.to_thread(lambda: job.run(**wanted))
    job.cluster.produce(stale.topic, 50, start=100)
    stale.answer(times, 90)
    await asyncio.to_thread(lambda: job.run(**wanted))
    assert stale.lowered.is_set()
    assert job.sink.places == places(stale.topic, p0=150)


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize(
    "given",
    [
        {"endingOffsets": '{"%s":{"0":95}}'},
        {"startingOffsets": '{"%s":{"0":93}}'},
        {"endingTimestamp": "%d"},
    ],
    ids=["end", "start", "time"],
)
async def test_a_batch_reads_what_its_options_say_behind_a_stale_end(
    spark: Any, kafka_cluster3: KafkaCluster, proxy: Proxy, stale: Stale, given: dict[str, str], strict: str
) -> None:
    began = int(time.time() * 1000) - 3_600_000  # retention goes by it
    kafka_cluster3.produce(stale.topic, 100, timestamps=lambda index: began + index)
    named = {name: text.replace("%s", stale.topic).replace("%d", str(began + 95)) for name, text in given.items()}
    wanted = options(proxy, stale, failOnDataLoss=strict) | named
    stale.answer(1, 90)
    found = await asyncio.to_thread(
        lambda: rows(source(spark, kafka_cluster3, wanted).load().select("topic", "partition", "offset"))
    )
    assert stale.lowered.is_set()
    first, end = (93, 100) if "startingOffsets" in given else (0, 95)
    assert found == [(stale.topic, 0, offset) for offset in range(first, end)]


@pytest.mark.parametrize("times", [1, 2, 4])
async def test_a_batch_from_the_earliest_offset_begins_where_the_log_does_when_it_is_read(
    spark: Any, kafka_cluster3: KafkaCluster, proxy: Proxy, stale: Stale, times: int
) -> None:
    """A broker may be late to learn what was deleted, and records may be deleted before a task of a long job begins."""
    kafka_cluster3.produce(stale.topic, 100)
    for done in kafka_cluster3.admin.delete_records([TopicPartition(stale.topic, 0, 50)]).values():
        done.result()
    stale.answer(times, 0, most=50)
    frame = source(spark, kafka_cluster3, options(proxy, stale)).load().select("topic", "partition", "offset")
    assert await asyncio.to_thread(lambda: rows(frame)) == [(stale.topic, 0, offset) for offset in range(50, 100)]
    assert stale.lowered.is_set()
