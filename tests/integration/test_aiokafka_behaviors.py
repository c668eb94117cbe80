"""What programs that come from aiokafka rely on, as far as no other test here shows it on a real broker.

The list is that of aiokafka's own ``test_consumer.py`` and ``test_pep492.py``; what differs on purpose is in
``kafka_async/application/MIGRATING.md``.
"""

import asyncio

import pytest

from kafka_async import TopicPartition
from kafka_async.errors import InvalidSessionTimeoutError, NoOffsetForPartitionError
from tests.brokers import KafkaCluster

from .groups import Group, both, exactly, new_group, reading, shared
from .tools import Record, all_of, make, new_topic, offsets, read, until

pytestmark = pytest.mark.brokers


def test_a_consumer_may_be_made_before_there_is_an_event_loop(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    consumer = make(kafka44, topic)

    async def run() -> dict[int, list[int]]:
        async with consumer:
            return offsets(await read(consumer, 5))

    assert asyncio.run(run()) == {0: list(range(5))}


async def test_a_seek_into_a_compressed_batch_returns_nothing_older(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 100, codec="gzip")
    async with make(kafka44, topic) as consumer:
        for offset in (37, 99, 0, 50):
            consumer.seek(TopicPartition(topic, 0), offset)
            assert (await consumer.getone()).offset == offset


async def test_a_group_of_aiokafka_members_is_taken_over_one_by_one(kafka44: KafkaCluster) -> None:
    """They offer roundrobin and nothing else; where a group of the classic protocol exists, ``auto`` speaks it too."""
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is in the extra 'bench'")
    topic = new_topic(kafka44, 4)
    group = Group(cluster=kafka44, protocol="classic", name=f"g-{topic}", session_ms=6_000)
    before = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka44.bootstrap_servers,
        group_id=group.name,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
    )
    await before.start()
    try:
        await until(lambda: len(before.assignment()) == 4)
        async with reading(group, topic) as after, reading(group, topic, group_protocol="auto") as last:
            await until(
                lambda: (
                    [len(owner) for owner in (before.assignment(), after.owned | last.owned)] == [1, 3]
                    or [len(owner) for owner in (before.assignment(), after.owned | last.owned)] == [2, 2]
                )
            )
            await before.stop()
            await shared([after, last], 4)
            expected = kafka44.produce(topic, 40, partitions=4).offsets
            await exactly([after, last], expected)
    finally:
        await before.stop()


@both
async def test_a_commit_is_not_blocked_by_a_long_poll(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    group = new_group(kafka44, protocol)
    async with group.member(topic, fetch_max_wait_ms=20_000, enable_auto_commit=False) as consumer:
        await read(consumer, 5)
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=10_000))
        await asyncio.sleep(0)  # it waits by now, and the broker holds a fetch
        async with asyncio.timeout(9):
            await consumer.commit()
            assert await consumer.committed(TopicPartition(topic, 0)) == 5
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.parametrize("session_ms", [500, 3_600_000])
async def test_a_session_timeout_that_the_broker_refuses_is_raised_by_start(kafka44: KafkaCluster, session_ms: int) -> None:
    topic = new_topic(kafka44)
    options = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": 100, "group_protocol": "classic"}
    with pytest.raises(InvalidSessionTimeoutError):
        async with make(kafka44, topic, group_id="refused", **options):
            pytest.fail("it started")


@both
async def test_an_unsubscription_right_after_a_subscription_is_no_membership(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    group = new_group(kafka44, protocol)
    async with group.member() as consumer:
        consumer.subscribe([topic])
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.subscribe([topic])
        assert offsets(await read(consumer, 5)) == {0: list(range(5))}
        consumer.unsubscribe()
    assert not kafka44.admin.describe_consumer_groups([group.name])[group.name].result().members


@both
async def test_who_assigns_its_partitions_with_a_group_goes_on_at_its_commits(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 20, partitions=2)
    group = new_group(kafka44, protocol)
    assert len(await _assigned_reads(group, topic, 20)) == 20
    kafka44.produce(topic, 4, partitions=2)
    assert offsets(await _assigned_reads(group, topic, 4)) == {0: [10, 11], 1: [10, 11]}
    assert group.committed() == {0: 12, 1: 12}


async def _assigned_reads(group: Group, topic: str, count: int) -> list[Record]:
    consumer = group.member()
    consumer.assign(all_of(topic, 2))
    async with consumer:
        return await read(consumer, count)


async def test_times_are_searched_in_many_partitions_at_once(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 30)
    kafka44.produce(topic, 300, partitions=30, timestamps=lambda index: 1_600_000_000_000 + index)
    async with make(kafka44) as consumer:
        found = await consumer.offsets_for_times(dict.fromkeys(all_of(topic, 30), 1_600_000_000_000 + 150))
    assert {where.offset for where in found.values() if where is not None} == {5}
    assert len(found) == 30


async def test_an_iteration_that_raised_can_be_begun_again(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    async with make(kafka44, topic, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError):
            _ = [record async for record in consumer]
        consumer.seek(TopicPartition(topic, 0), 2)
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                break
        assert seen == [2, 3, 4]
