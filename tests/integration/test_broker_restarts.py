"""One broker that restarts, dies or freezes while it is read: reading goes on by itself, in order and complete."""

import asyncio
from collections.abc import Iterator

import pytest

from kafka_async import ConsumerState, TopicPartition
from tests.brokers import KafkaCluster
from tests.effort import apart

from .tools import PATIENCE, all_of, make, new_topic, nothing_more, offsets, read, until

pytestmark = pytest.mark.brokers

SHORT = {"request_timeout_ms": 2000, "reconnect_backoff_max_ms": 200, "retry_backoff_max_ms": 200}


@pytest.fixture
def broker(kafka44: KafkaCluster) -> Iterator[KafkaCluster]:
    """The single broker, healed afterwards."""
    yield kafka44
    kafka44.heal()


@pytest.mark.parametrize(
    ("how", "background"), [("restart", "thread"), ("kill", "task"), ("pause", "task"), *apart(("pause", "thread"))]
)
async def test_reading_goes_on_after_the_broker(broker: KafkaCluster, how: str, background: str) -> None:
    topic = new_topic(broker, 2)
    before = broker.produce(topic, 2000, partitions=2)
    async with make(broker, topic, background=background, max_poll_records=100, **SHORT) as consumer:
        records = await read(consumer, 500)
        if how == "restart":
            await asyncio.to_thread(broker.restart, 0)
        elif how == "kill":
            broker.kill(0)
            records += await read(consumer, 1)  # what was fetched can be read on
            await asyncio.to_thread(broker.start, 0)
        else:
            broker.pause(0)
            frozen_until = asyncio.get_running_loop().time() + 5
            while (left := frozen_until - asyncio.get_running_loop().time()) > 0:
                batch = await consumer.getmany(timeout_ms=left * 1000)
                records += [record for part in batch.values() for record in part]
            broker.unpause(0)
        after = await asyncio.to_thread(broker.produce, topic, 1000, partitions=2, start=2000)
        records += await read(consumer, 3000 - len(records))
        await nothing_more(consumer)
    assert offsets(records) == {index: before.offsets[index] + after.offsets[index] for index in (0, 1)}


async def test_an_iteration_goes_on_after_a_restart(broker: KafkaCluster) -> None:
    topic = new_topic(broker)
    broker.produce(topic, 10)
    seen = []
    tenth = asyncio.Event()

    async with make(broker, topic, **SHORT) as consumer:

        async def iterate() -> None:
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 10:
                    tenth.set()
                if len(seen) == 20:
                    return

        task = asyncio.create_task(iterate())
        await asyncio.wait_for(tenth.wait(), PATIENCE)
        await asyncio.to_thread(broker.restart, 0)
        await asyncio.to_thread(broker.produce, topic, 10)
        await asyncio.wait_for(task, PATIENCE)
    assert seen == list(range(20))


async def test_without_a_broker_reads_are_empty_the_loop_is_idle_and_stop_is_quick(broker: KafkaCluster) -> None:
    topic = new_topic(broker)
    async with make(broker, topic, **SHORT) as consumer:
        await nothing_more(consumer)
        broker.kill(0)
        await until(lambda: consumer.statistics().connections == 0)
        before = consumer.statistics().wake_ups
        assert await consumer.getmany(timeout_ms=2000) == {}
        assert consumer.statistics().wake_ups - before < 100
        assert consumer.state is ConsumerState.UNREACHABLE
        clock = asyncio.get_running_loop().time
        began = clock()
        await consumer.stop()
        assert clock() - began < 20


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_stop_is_bounded_although_the_broker_is_frozen(broker: KafkaCluster, background: str) -> None:
    topic = new_topic(broker)
    broker.produce(topic, 10)
    clock = asyncio.get_running_loop().time
    async with make(broker, topic, background=background) as consumer:
        await read(consumer, 10)
        broker.pause(0)
        assert await consumer.getmany(timeout_ms=300) == {}
        began = clock()
        await consumer.stop(timeout_ms=1000)
        assert clock() - began < 20


async def test_a_look_up_waits_for_the_broker_to_come_back_within_its_deadline(broker: KafkaCluster) -> None:
    topic = new_topic(broker)
    broker.produce(topic, 10)
    async with make(broker, topic, default_api_timeout_ms=250_000, **SHORT) as consumer:
        broker.kill(0)
        asking = asyncio.create_task(consumer.end_offsets(all_of(topic)))
        await asyncio.to_thread(broker.start, 0)
        assert await asyncio.wait_for(asking, PATIENCE) == {TopicPartition(topic, 0): 10}
