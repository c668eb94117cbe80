"""Three brokers: leaders that die and move, closest replicas, logs that are truncated."""

import asyncio
from typing import Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as AdminPartition

from kafka_async import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.errors import LogTruncationError
from tests.brokers import KafkaCluster

from .tools import PATIENCE, Consumer, all_of, eventually, flat, make, new_topic, nothing_more, offsets, read

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SHORT: dict[str, Any] = {"request_timeout_ms": 3000, "reconnect_backoff_max_ms": 200, "retry_backoff_max_ms": 200}


def replicas(cluster: KafkaCluster, topic: str) -> list[int]:
    return list(cluster.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].replicas)


async def led_by_another(cluster: KafkaCluster, topic: str, broker: int) -> int:
    """Ask until ``broker`` no longer leads the topic's first partition, under the test's own time limit; return who does."""

    leader = broker
    while leader in (broker, -1):
        leader = await asyncio.to_thread(cluster.leader, topic)
    return leader


# A broker that stops gives its leaderships away first: the easier case, which other tests have as they restart brokers.
@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.apart), "kill"])
async def test_reading_follows_a_leader_that_moves_and_comes_back(kafka_cluster3: KafkaCluster, how: str) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    kafka_cluster3.produce(topic, 500)
    async with make(kafka_cluster3, topic, **SHORT) as consumer:
        records = await read(consumer, 500)
        old = kafka_cluster3.leader(topic)
        await asyncio.to_thread(kafka_cluster3.stop if how == "stop" else kafka_cluster3.kill, old)
        await asyncio.to_thread(kafka_cluster3.produce, topic, 500)
        records += await read(consumer, 500)
        new = await led_by_another(kafka_cluster3, topic, old)
        assert consumer.statistics().partitions[partition].leader == new
        await asyncio.to_thread(kafka_cluster3.start, old)

        def elect() -> bool:
            """Give the leadership back as soon as the old leader is in sync."""
            wanted = [AdminPartition(topic, 0)]
            kafka_cluster3.admin.elect_leaders(ElectionType.PREFERRED, wanted).result()
            return kafka_cluster3.leader(topic) == old

        await eventually(lambda: asyncio.to_thread(elect))
        await asyncio.to_thread(kafka_cluster3.produce, topic, 500)
        records += await read(consumer, 500)
        await nothing_more(consumer)
        assert consumer.statistics().partitions[partition].leader == old
    assert [record.offset for record in records] == list(range(1500))


@pytest.mark.apart  # test_groups_faults.py restarts brokers one by one in each run, under groups that read
async def test_a_rolling_restart_of_all_brokers_goes_unnoticed(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 6)
    expected: dict[int, list[int]] = {index: [] for index in range(6)}
    records = []
    async with make(kafka_cluster3, topic, **SHORT) as consumer:
        for broker in range(3):
            restart = asyncio.create_task(asyncio.to_thread(kafka_cluster3.restart, broker))
            while not restart.done():
                produced = await asyncio.to_thread(kafka_cluster3.produce, topic, 60, partitions=6)
                for index, found in produced.offsets.items():
                    expected[index] += found
                records += flat(await consumer.getmany(timeout_ms=200))
            await restart
        records += await read(consumer, sum(map(len, expected.values())) - len(records))
        await nothing_more(consumer)
    assert offsets(records) == expected


async def test_a_replica_in_the_same_rack_is_read_and_its_death_is_survived(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    leader, follower = replicas(kafka_cluster3, topic)[:2]
    kafka_cluster3.produce(topic, 500)
    async with make(kafka_cluster3, topic, client_rack=f"rack-{follower}", **SHORT) as consumer:
        records = await read(consumer, 500)
        await asyncio.to_thread(kafka_cluster3.produce, topic, 500)
        records += await read(consumer, 500)
        statistics = consumer.statistics().partitions[partition]
        assert (statistics.leader, statistics.preferred_read_replica) == (leader, follower)
        await asyncio.to_thread(kafka_cluster3.kill, follower)
        await asyncio.to_thread(kafka_cluster3.produce, topic, 500)
        records += await read(consumer, 500)
        assert consumer.statistics().partitions[partition].preferred_read_replica != follower
        await asyncio.to_thread(kafka_cluster3.start, follower)

        async def from_the_follower() -> bool:
            records.extend(flat(await consumer.getmany(timeout_ms=200)))
            return consumer.statistics().partitions[partition].preferred_read_replica == follower

        before = consumer.statistics().wake_ups
        await asyncio.to_thread(kafka_cluster3.produce, topic, 500)
        records += await read(consumer, 2000 - len(records))
        await eventually(from_the_follower)
        await nothing_more(consumer)
        assert consumer.statistics().wake_ups - before < 1000
    assert [record.offset for record in records] == list(range(2000))


async def test_a_seek_outside_the_log_is_settled_by_the_leader_when_a_follower_is_read(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    follower = replicas(kafka_cluster3, topic)[1]
    kafka_cluster3.produce(topic, 50)
    async with make(kafka_cluster3, topic, client_rack=f"rack-{follower}", **SHORT) as consumer:
        await read(consumer, 50)
        consumer.seek(partition, 10_000)
        assert [record.offset for record in await read(consumer, 50)] == list(range(50))


async def test_a_truncated_log_is_noticed(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, replicas=2, unclean_leader_election_enable="true", min_insync_replicas="1")
    partition = TopicPartition(topic, 0)
    leader, follower = replicas(kafka_cluster3, topic)
    kafka_cluster3.produce(topic, 100, values=lambda index: b"kept")
    await asyncio.to_thread(kafka_cluster3.kill, follower)
    await asyncio.to_thread(kafka_cluster3.produce, topic, 100, values=lambda index: b"lost")

    async def read_to_the_end(consumer: Consumer) -> None:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert {record.value for record in (await read(consumer, 200))[100:]} == {b"lost"}

    async with (
        KafkaConsumer(bootstrap_servers=kafka_cluster3.bootstrap_servers, auto_offset_reset="none", **SHORT) as strict,
        make(kafka_cluster3, **SHORT) as lenient,
    ):
        await read_to_the_end(strict)
        await read_to_the_end(lenient)
        await asyncio.to_thread(kafka_cluster3.kill, leader)
        await asyncio.to_thread(kafka_cluster3.start, follower)
        assert await led_by_another(kafka_cluster3, topic, leader) == follower
        await asyncio.to_thread(kafka_cluster3.produce, topic, 50, values=lambda index: b"new")

        records = await read(lenient, 50)
        assert [(record.offset, record.value) for record in records] == [(offset, b"new") for offset in range(100, 150)]
        await nothing_more(lenient)

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(LogTruncationError) as caught:
                await strict.getone()
        assert caught.value.positions == {partition: 200}
        divergent = caught.value.divergent_offsets[partition]
        assert isinstance(divergent, OffsetAndMetadata)
        assert divergent.offset == 100
        strict.seek(partition, divergent)
        assert [record.offset for record in await read(strict, 50)] == list(range(100, 150))


async def test_every_partition_of_every_broker_is_read(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 12, replicas=1)
    produced = kafka_cluster3.produce(topic, 6000, partitions=12, codec="lz4")
    async with make(kafka_cluster3, topic, fetch_buffer_bytes=64 << 10, max_partition_fetch_bytes=8 << 10) as consumer:
        records = await read(consumer, 6000)
        await nothing_more(consumer)
        assert {entry.leader for entry in consumer.statistics().partitions.values()} == {0, 1, 2}
        assert await consumer.end_offsets(all_of(topic, 12)) == dict.fromkeys(all_of(topic, 12), 500)
    assert offsets(records) == produced.offsets
