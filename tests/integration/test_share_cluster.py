"""Share groups (KIP-932) on three brokers: leaders that die, and random faults with a check of every job."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from kafka_async.application.share.consumer import ShareConsumer
from tests.brokers import CURRENT, KafkaCluster
from tests.faults.proxy import PROXIED, proxied

from .share import LOCK, from_the_start, member, share_properties

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def brokers(real_brokers: None) -> Iterator[KafkaCluster]:
    """Three brokers that serve share groups, directly and through proxies."""
    listeners = {PROXIED: "PLAINTEXT"}
    properties = share_properties(3)
    with KafkaCluster(CURRENT, brokers=3, properties=properties, heap_mb=256, listeners=listeners, proxied=[PROXIED]) as cluster:
        yield cluster


class Jobs:
    """Who was told that which job is accepted."""

    def __init__(self) -> None:
        self.accepted: Counter[int] = Counter()
        self.refused: set[int] = set()
        self._news = asyncio.Event()

    async def work(self, consumer: ShareConsumer[bytes, bytes], pause: float) -> None:
        """Take jobs in batches, accept them, and note what became of it; until cancelled."""
        while True:
            batch = await consumer.getmany(timeout_ms=500, max_records=50)
            records = [record for found in batch.values() for record in found]
            await asyncio.sleep(pause)
            for record in records:
                record.accept()
            await consumer.flush()
            for record in records:
                if record.lost:
                    self.refused.add(int(record.value.rstrip(b".")))
                else:
                    self.accepted[int(record.value.rstrip(b"."))] += 1
            self._news.set()

    async def until(self, jobs: int, seconds: float) -> None:
        """Wait until every job was accepted by somebody."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.accepted.keys() | self.refused) < jobs:
                    self._news.clear()
                    await self._news.wait()
        await asyncio.sleep(2 * LOCK)  # what was refused may be on its way to somebody

    def check(self, jobs: int) -> None:
        """Every job was accepted; by those who were told so, once. What was lost on the way may have counted or not."""
        assert sorted(self.accepted.keys() | self.refused) == list(range(jobs))
        assert {job: times for job, times in self.accepted.items() if times > 1} == {}
        assert len(self.accepted) > jobs * 0.8


async def nothing_is_left(brokers: KafkaCluster, topic: str) -> None:
    """Raise where a job is neither accepted nor with a member: another member would get it."""
    async with member(brokers, topic, topic) as heir:
        assert await heir.getmany(timeout_ms=2.5 * LOCK * 1000) == {}


async def test_every_job_is_accepted_once_although_the_leader_is_killed(brokers: KafkaCluster) -> None:
    topic = brokers.create_topic(f"jobs-{uuid4().hex[:8]}", 3)
    from_the_start(brokers, topic)
    jobs = Jobs()
    async with member(brokers, topic, topic) as one, member(brokers, topic, topic) as two:
        workers = [asyncio.create_task(jobs.work(consumer, 0.01)) for consumer in (one, two)]
        await asyncio.to_thread(brokers.produce, topic, 500, partitions=3)
        victim = brokers.leader(topic, 0)
        await asyncio.to_thread(brokers.kill, victim)
        try:
            await asyncio.to_thread(brokers.produce, topic, 500, partitions=3, start=500)
            await jobs.until(1000, 60)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await asyncio.to_thread(brokers.start, victim)
        await nothing_is_left(brokers, topic)
    jobs.check(1000)


async def test_every_job_is_accepted_while_connections_are_cut(brokers: KafkaCluster) -> None:
    topic = brokers.create_topic(f"jobs-{uuid4().hex[:8]}", 3)
    from_the_start(brokers, topic, share_delivery_count_limit="10")
    jobs = Jobs()
    chance = random.Random(1)  # noqa: S311 - which connection is cut
    async with proxied(brokers) as proxy, contextlib.AsyncExitStack() as stack:
        consumers: list[ShareConsumer[bytes, bytes]] = [
            ShareConsumer(topic, bootstrap_servers=proxy.bootstrap_servers, group_id=topic, client_id=f"worker-{i}")
            for i in range(3)
        ]
        for consumer in consumers:
            await stack.enter_async_context(consumer)
        workers = [asyncio.create_task(jobs.work(consumer, 0.005)) for consumer in consumers]
        for start in range(0, 2000, 200):
            await asyncio.to_thread(brokers.produce, topic, 200, partitions=3, start=start)
            await asyncio.sleep(1.0)
            proxy.cut(f"worker-{chance.randrange(3)}")
        await jobs.until(2000, 60)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    await nothing_is_left(brokers, topic)
    jobs.check(2000)
