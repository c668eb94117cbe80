"""Topics that grow while a group reads them from their ends: nothing that is written to new partitions is missed (promise 15)."""

import asyncio
from collections.abc import Iterable

import pytest

from kafka_async import KafkaConsumer, TopicPartition
from tests.brokers import KafkaCluster

from .groups import both, new_group
from .tools import PATIENCE, new_topic

pytestmark = pytest.mark.brokers

LATEST = {"auto_offset_reset": "latest", "metadata_max_age_ms": 2_000, "auto_commit_interval_ms": 200}
GROWN = 6


def _written(cluster: KafkaCluster, topic: str, partitions: Iterable[int]) -> set[tuple[int, int]]:
    """Write ten records to each of the partitions; return partition and offset of each."""
    numbers = list(partitions)
    produced = cluster.produce(topic, 10 * len(numbers), partitions=numbers)
    return {(partition, offset) for partition, offsets in produced.offsets.items() for offset in offsets}


async def _seen(consumer: "KafkaConsumer[bytes, bytes]", wanted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Read until all that is wanted has come."""
    found: set[tuple[int, int]] = set()
    async with asyncio.timeout(PATIENCE):
        while not wanted <= found:
            batch = await consumer.getmany(timeout_ms=200)
            found |= {(record.partition, record.offset) for records in batch.values() for record in records}
    return found


@both
async def test_a_partition_that_a_member_finds_later_is_read_from_its_beginning(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 20, partitions=2)
    group = new_group(kafka44, protocol)
    async with group.member(topic, **LATEST) as consumer:
        old = await asyncio.to_thread(_written, kafka44, topic, range(2))
        assert await _seen(consumer, old) == old, "what was there before is not read"
        await asyncio.to_thread(kafka44.add_partitions, topic, GROWN)
        new = await asyncio.to_thread(_written, kafka44, topic, range(2, GROWN))
        assert await _seen(consumer, new) == new


@both
async def test_a_member_that_comes_after_the_topic_grew_learns_it_from_what_the_group_has_committed(
    kafka44: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 20, partitions=2)
    group = new_group(kafka44, protocol)
    async with group.member(topic, **LATEST) as consumer:
        old = await asyncio.to_thread(_written, kafka44, topic, range(1))
        await _seen(consumer, old)  # nothing of partition 1, whose position is committed as well
    await asyncio.to_thread(kafka44.add_partitions, topic, GROWN)
    new = await asyncio.to_thread(_written, kafka44, topic, range(2, GROWN))
    async with group.member(topic, **LATEST) as consumer:
        assert await _seen(consumer, new) == new


@both
async def test_members_that_commit_by_themselves_and_die_leave_no_new_partition_that_counts_as_old(
    kafka44: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 20, partitions=2)
    group = new_group(kafka44, protocol)
    by_hand = LATEST | {"enable_auto_commit": False}
    async with group.member(topic, **by_hand) as consumer:
        old = await asyncio.to_thread(_written, kafka44, topic, range(1))
        await _seen(consumer, old)
        await consumer.commit({TopicPartition(topic, 0): 20})  # partition 1 has had no record
    await asyncio.to_thread(kafka44.add_partitions, topic, GROWN)
    new = await asyncio.to_thread(_written, kafka44, topic, range(2, GROWN))
    async with group.member(topic, **by_hand) as consumer:
        await consumer.position(TopicPartition(topic, GROWN - 1))
        await consumer.commit({TopicPartition(topic, GROWN - 1): 10})  # and dies before it has read from the others
    new = {(partition, offset) for partition, offset in new if partition != GROWN - 1}
    async with group.member(topic, **by_hand) as consumer:
        assert await _seen(consumer, new) == new


@both
async def test_static_members_that_were_all_away_find_what_was_added(kafka44: KafkaCluster, protocol: str) -> None:
    """In the classic protocol the brokers leave such members what they had, and the leader divides nothing (KIP-814)."""
    topic = new_topic(kafka44, 2)
    group = new_group(kafka44, protocol)
    async with group.member(topic, group_instance_id="a", **LATEST) as consumer:
        old = await asyncio.to_thread(_written, kafka44, topic, range(2))
        await _seen(consumer, old)
    await asyncio.to_thread(kafka44.add_partitions, topic, GROWN)
    new = await asyncio.to_thread(_written, kafka44, topic, range(2, GROWN))
    async with group.member(topic, group_instance_id="a", **LATEST) as consumer:
        assert await _seen(consumer, new) == new
