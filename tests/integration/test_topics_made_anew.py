"""On real brokers: topics that are deleted and created again, offsets of other clusters, and ranges beyond the end of a log."""

import asyncio
import time
from typing import Any

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import OffsetOutOfRangeError
from tests.brokers import KafkaCluster

from .tools import Consumer, at_once, make, new_topic, nothing_more, read

pytestmark = pytest.mark.brokers

OLD, NEW = 100, 300


def made_anew(cluster: KafkaCluster, topic: str) -> None:
    """Delete a topic, create it again and fill it."""
    cluster.delete_topics(topic)
    cluster.create_topic(topic)
    cluster.produce(topic, NEW)


async def check_that_all_is_read(cluster: KafkaCluster, topic: str, group: str) -> None:
    """Check that the next member of the group reads every record of the new topic."""
    async with make(cluster, topic, group_id=group) as consumer:
        records = await read(consumer, NEW)
        await nothing_more(consumer)
    assert [record.offset for record in records] == list(range(NEW))


async def _left_with(cluster: KafkaCluster, way: str, seconds: float, **options: Any) -> None:
    topic = await asyncio.to_thread(new_topic, cluster)
    await asyncio.to_thread(cluster.produce, topic, OLD)
    async with make(cluster, topic, group_id=topic, **options) as consumer:
        await read(consumer, OLD)
        await asyncio.to_thread(made_anew, cluster, topic)
        await asyncio.sleep(seconds)
        if way == "commit":
            await consumer.commit()
        elif way == "commit offsets":
            await consumer.commit({TopicPartition(topic, 0): OLD})
    await check_that_all_is_read(cluster, topic, topic)


LEAVING = [
    (way, seconds, protocol)
    for way in ("stop", "commit", "commit offsets")
    for seconds in (0.5, 1, 3, 7)
    for protocol in ("classic", "consumer")
]


@at_once("leaving", LEAVING)
async def test_what_was_read_of_a_deleted_topic_is_not_committed_for_its_successor(
    kafka44: KafkaCluster, leaving: tuple[str, float, str]
) -> None:
    way, seconds, protocol = leaving
    await _left_with(kafka44, way, seconds, group_protocol=protocol)


@at_once("leaving", [leaving for leaving in LEAVING if leaving[2] == "classic"])
async def test_what_was_read_of_a_deleted_topic_is_not_committed_by_name_either(
    kafka39: KafkaCluster, leaving: tuple[str, float, str]
) -> None:
    way, seconds, _ = leaving
    await _left_with(kafka39, way, seconds)


async def test_an_offset_of_a_deleted_topic_that_was_kept_elsewhere_begins_its_successor(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    kafka44.produce(topic, OLD)
    async with make(kafka44, topic) as consumer:
        await read(consumer, OLD)
        kept = consumer.next_offsets()[partition]
        await asyncio.to_thread(made_anew, kafka44, topic)
        await read(consumer, NEW)
        assert kept.topic_id is not None
        assert kept.topic_id != consumer.next_offsets()[partition].topic_id
        consumer.seek(partition, kept)
        assert [record.offset for record in await read(consumer, NEW)] == list(range(NEW))


@at_once("policy", ["earliest", "latest", "none"])
async def test_an_offset_with_an_epoch_of_another_cluster_is_where_reading_goes_on(kafka44: KafkaCluster, policy: str) -> None:
    topic = await asyncio.to_thread(new_topic, kafka44)
    partition = TopicPartition(topic, 0)
    await asyncio.to_thread(kafka44.produce, topic, 50)
    async with make(kafka44, topic, group_id=topic) as consumer:
        await read(consumer, 50)
        await consumer.commit({partition: OffsetAndMetadata(30, "", 700)})
        consumer.seek(partition, 30)
    began = time.monotonic()
    async with make(kafka44, topic, group_id=topic, auto_offset_reset=policy, enable_auto_commit=False) as consumer:
        assert [record.offset for record in await read(consumer, 20)] == list(range(30, 50))
    assert time.monotonic() - began < 20, "no wait for a request timeout"


async def _columns(consumer: Consumer) -> int:
    found = await consumer.next_columns(("value",))
    assert found is not None
    return found.rows


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_a_range_that_ends_beyond_the_log_is_an_error_within_seconds(kafka44: KafkaCluster, isolation: str) -> None:
    topic = new_topic(kafka44, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    kafka44.produce(topic, 200, partitions=2)
    end = kafka44.end_offsets(topic)[0]
    async with make(kafka44, isolation_level=isolation) as consumer:
        consumer.assign_ranges({first: (0, end + 10), second: (0, kafka44.end_offsets(topic)[1])})
        rows = 0
        while rows < 200:
            rows += await _columns(consumer)
        await asyncio.sleep(1)  # as long as a program may take for what it was handed
        began = time.monotonic()
        with pytest.raises(
            OffsetOutOfRangeError, match=f"offsets {end} to {end + 9} of .* are not in its log, which ends at {end}"
        ):
            await consumer.next_columns(("value",))
        assert time.monotonic() - began < 15
