"""Topics of a share group that are deleted while others are read, on real brokers."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from kafka_async.application.share.consumer import ShareConsumer
from tests.brokers import CURRENT, PREVIOUS, KafkaCluster

from .share import from_the_start, share_properties
from .tools import at_once, until

pytestmark = pytest.mark.brokers


@pytest.fixture(params=[CURRENT, PREVIOUS])
def brokers(request: pytest.FixtureRequest, real_brokers: None) -> Iterator[KafkaCluster]:
    """A broker of each version: the older one answers a whole fetch with an error once a topic of its session is deleted."""
    with KafkaCluster(request.param, properties=share_properties()) as cluster:
        yield cluster


@at_once("way", ["iterating", "process"])
async def test_a_topic_that_is_deleted_stops_the_jobs_of_no_other(brokers: KafkaCluster, way: str) -> None:
    name = uuid4().hex[:8]
    kept, doomed = brokers.create_topic(f"kept-{name}", 2), brokers.create_topic(f"doomed-{name}", 2)
    from_the_start(brokers, kept)
    done: Counter[str] = Counter()
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(kept, doomed, bootstrap_servers=brokers.bootstrap_servers, group_id=kept)

    async def handle(job: Any) -> None:
        await asyncio.sleep(0.001)
        done[job.topic] += 1

    async def work() -> None:
        if way == "process":
            await consumer.process(handle)
        async for job in consumer:
            async with job:
                await handle(job)

    async with consumer:
        working = asyncio.create_task(work())
        for topic in (kept, doomed):
            await asyncio.to_thread(brokers.produce, topic, 100)
        await until(lambda: done == {kept: 100, doomed: 100})
        await asyncio.to_thread(brokers.delete_topics, doomed)
        for number in range(10):
            await asyncio.to_thread(brokers.produce, kept, 20, start=100 + 20 * number)
            await asyncio.sleep(0.2)
        await until(lambda: done[kept] >= 300 or working.done())
        assert not working.done()
        assert done[kept] == 300
        assert await consumer.flush()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
