"""A dependency that is down, on a real broker: nothing is lost or given up, few records reach it, and members come and go."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from kafka_async import Breaker, ShareConsumer
from kafka_async.errors import TooManyFailuresError
from tests.brokers import KafkaCluster
from tests.effort import apart

from .groups import both, both_at_once, new_group
from .share import from_the_start
from .tools import new_topic, until

pytestmark = pytest.mark.brokers


class Dependency:
    """Something that handlers need, and that is down at times."""

    def __init__(self) -> None:
        self.down = False
        self.asked = 0
        self.served: Counter[bytes] = Counter()
        self.given_up: list[bytes] = []

    async def handle(self, record: Any) -> None:
        await asyncio.sleep(0.002)
        self.asked += 1
        if self.down:
            raise ConnectionError
        self.served[record.value] += 1

    async def give_up(self, record: Any, error: BaseException, attempts: int) -> None:
        self.given_up.append(record.value)


async def produce(cluster: KafkaCluster, topic: str, count: int, per_second: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 97))
            await asyncio.sleep(1 / per_second)


@both_at_once
@pytest.mark.parametrize("background", ["task", *apart("thread")])
async def test_an_outage_of_what_handlers_need(kafka44: KafkaCluster, protocol: str, background: str) -> None:
    topic, needed, count = new_topic(kafka44, 4), Dependency(), 3000
    group = new_group(kafka44, protocol)
    options: dict[str, Any] = {
        "concurrency": 20,
        "breaker": Breaker((ConnectionError,), probe_after=lambda opened, error: min(2.0, 0.25 * 2**opened)),
        "on_failure": needed.give_up,
    }
    producing = asyncio.create_task(produce(kafka44, topic, count, 300))
    async with group.member(topic, background=background) as first, first.processing(needed.handle, **options) as run:
        await until(lambda: len(needed.served) > 200)
        needed.down = True
        await until(lambda: run.statistics().breaker_opened >= 2)
        asked = needed.asked
        async with group.member(topic, background=background) as second:
            async with second.processing(needed.handle, **options):
                await asyncio.sleep(5)
                assert needed.asked - asked < 60, "probes, and what tells a second member that it is down"
            await second.stop()
        await asyncio.sleep(1)
        assert first.ready
        assert first.alive
        needed.down = False
        await until(lambda: len(needed.served) == count, 60)
        await until(lambda: run.statistics().breaker == "closed")
        await until(lambda: sum(group.committed().values()) == count)
    await producing
    assert needed.given_up == []
    assert set(needed.served.values()) == {1}


async def test_an_outage_uses_up_no_deliveries(kafka_share: KafkaCluster) -> None:
    topic, needed, deliveries = new_topic(kafka_share), Dependency(), Counter[bytes]()
    from_the_start(kafka_share, topic)

    async def handle(record: Any) -> None:
        deliveries[record.value] = max(deliveries[record.value], record.delivery_count)
        await needed.handle(record)

    await produce(kafka_share, topic, 500, 5000)
    needed.down = True
    async with (
        ShareConsumer(topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic) as consumer,
        consumer.processing(handle, breaker=Breaker(ConnectionError, probe_after=0.5), on_failure=needed.give_up) as run,
    ):
        await until(lambda: run.statistics().breaker_opened >= 8)
        needed.down = False
        await until(lambda: len(needed.served) == 500)
    assert needed.given_up == []
    assert max(deliveries.values()) <= 2
    assert set(needed.served.values()) == {1}


@both
async def test_a_rate_and_too_many_failures(kafka44: KafkaCluster, protocol: str) -> None:
    topic, needed = new_topic(kafka44), Dependency()
    await produce(kafka44, topic, 600, 5000)
    group = new_group(kafka44, protocol)
    loop = asyncio.get_running_loop()
    async with group.member(topic) as consumer:
        async with consumer.processing(needed.handle, rate=100, concurrency=50):
            await until(lambda: len(needed.served) >= 1)
            began = loop.time()
            await until(lambda: len(needed.served) >= 201)
            assert loop.time() - began > 1.8
        done = len(needed.served)
        needed.down = True
        with pytest.raises(TooManyFailuresError, match="20 of the last 40 records failed for good"):
            async with consumer.processing(needed.handle, on_failure=needed.give_up, too_many_failures=(20, 40)) as run:
                await run.wait()
    assert 20 <= len(needed.given_up) <= 30
    await until(lambda: group.committed() == {0: done + len(needed.given_up)})
