"""Following topics without a group: topics and patterns that change, topics that come, grow, go and come again."""

import asyncio
import re
from functools import partial
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, TopicPartition
from kafka_async.errors import (
    IllegalOperation,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tests.brokers import KafkaCluster

from .tools import PATIENCE, Consumer, Record, all_of, eventually, flat, make, new_topic, nothing_more, offsets, read, topic_name

pytestmark = pytest.mark.brokers

SOON = {"metadata_max_age_ms": 200}


class Listener(ConsumerRebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.calls.append(("revoked", set(revoked)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.calls.append(("assigned", set(assigned)))


async def assigned(consumer: Consumer, partitions: set[TopicPartition]) -> None:
    """Read nothing until the consumer's assignment is ``partitions``."""

    async def look() -> bool:
        await nothing_more(consumer)
        return consumer.assignment() == partitions

    await eventually(look)


async def test_a_pattern_follows_topics_that_are_created_later(kafka44: KafkaCluster) -> None:
    prefix = topic_name()
    first = kafka44.create_topic(f"{prefix}.one")
    kafka44.produce(first, 2)
    consumer = make(kafka44, **SOON)
    listener = Listener()
    consumer.subscribe(pattern=re.compile(re.escape(prefix) + r"\.\w+$"), listener=listener)
    async with consumer:
        assert {record.topic for record in await read(consumer, 2)} == {first}
        second = await asyncio.to_thread(kafka44.create_topic, f"{prefix}.two", 2)
        other = await asyncio.to_thread(kafka44.create_topic, f"{prefix}.no-match")
        await asyncio.to_thread(kafka44.produce, second, 6, partitions=2)
        await asyncio.to_thread(kafka44.produce, other, 6)
        assert {record.topic for record in await read(consumer, 6)} == {second}
        assert consumer.subscription() == {first, second}
        assert listener.calls == [("assigned", {TopicPartition(first, 0)}), ("assigned", set(all_of(second, 2)))]
        await asyncio.to_thread(kafka44.delete_topics, second)
        await assigned(consumer, {TopicPartition(first, 0)})
        assert listener.calls[2] == ("revoked", set(all_of(second, 2)))


async def test_a_pattern_leaves_internal_topics_out_by_default(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 1, transaction="commit")  # the broker creates __transaction_state for it
    internal = "__transaction_state"
    for exclude in (True, False):
        consumer = make(kafka44, exclude_internal_topics=exclude)
        consumer.subscribe(pattern=f"(__.*|{topic})$")
        async with consumer:
            await eventually(partial(consumer.getmany, timeout_ms=200))
            found = {partition.topic for partition in consumer.assignment()}
        assert topic in found
        assert (internal in found) is not exclude


async def test_added_partitions_are_read_from_their_beginning(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 3)
    async with make(kafka44, topic, **SOON) as consumer:
        await read(consumer, 3)
        await asyncio.to_thread(kafka44.add_partitions, topic, 3)
        await asyncio.to_thread(kafka44.produce, topic, 10, partitions=[1, 2])
        assert offsets(await read(consumer, 10)) == {1: [0, 1, 2, 3, 4], 2: [0, 1, 2, 3, 4]}
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
        await asyncio.to_thread(kafka44.produce, topic, 1)
        assert [(record.partition, record.offset) for record in await read(consumer, 1)] == [(0, 3)]


@pytest.mark.parametrize("follow", ["subscribe", "assign"])
async def test_a_topic_that_was_deleted_and_created_again_is_read_from_its_beginning(kafka44: KafkaCluster, follow: str) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10, values=lambda index: b"old")
    async with make(kafka44, allow_auto_create_topics=False, **SOON) as consumer:
        if follow == "assign":
            consumer.assign(all_of(topic))
        else:
            consumer.subscribe([topic])
        await read(consumer, 10)
        await asyncio.to_thread(kafka44.delete_topics, topic)
        await nothing_more(consumer)
        await asyncio.to_thread(kafka44.create_topic, topic)
        await asyncio.to_thread(kafka44.produce, topic, 20, values=lambda index: b"new")
        records = await read(consumer, 20)
        assert [(record.offset, record.value) for record in records] == [(index, b"new") for index in range(20)]


async def test_a_topic_that_was_created_again_is_an_error_without_a_reset_policy(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    partition = TopicPartition(topic, 0)
    async with make(kafka44, allow_auto_create_topics=False, auto_offset_reset="none", **SOON) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        await read(consumer, 10)
        await asyncio.to_thread(kafka44.delete_topics, topic)
        await asyncio.to_thread(kafka44.create_topic, topic)
        await asyncio.to_thread(kafka44.produce, topic, 20)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(OffsetOutOfRangeError, match=topic):
                await consumer.getone()
        consumer.seek(partition, 0)
        assert [record.offset for record in await read(consumer, 20)] == list(range(20))


async def test_start_waits_for_a_topic_that_appears(kafka44: KafkaCluster) -> None:
    name = topic_name()
    consumer = make(kafka44, name, allow_auto_create_topics=False)
    starting = asyncio.create_task(consumer.start())
    await asyncio.to_thread(kafka44.create_topic, name, 2)
    async with asyncio.timeout(PATIENCE):
        await starting
    try:
        assert consumer.assignment() == set(all_of(name, 2))
    finally:
        await consumer.stop()


async def test_start_lets_the_broker_create_the_topic(kafka44: KafkaCluster) -> None:
    name = topic_name()
    async with make(kafka44, name) as consumer, asyncio.timeout(PATIENCE):
        assert consumer.assignment() == {TopicPartition(name, 0)}
        await asyncio.to_thread(kafka44.produce, name, 1)
        assert (await consumer.getone()).topic == name


async def test_start_fails_for_a_topic_that_does_not_exist(kafka44: KafkaCluster) -> None:
    name = topic_name()
    consumer = make(kafka44, name, allow_auto_create_topics=False, request_timeout_ms=800)
    with pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError)) as caught:
        await consumer.start()
    assert name in str(caught.value)


async def test_start_fails_at_once_for_a_topic_name_that_the_broker_refuses(kafka44: KafkaCluster) -> None:
    async with asyncio.timeout(20):
        with pytest.raises((InvalidTopicError, ValueError), match="no topic name"):
            await make(kafka44, "no topic name").start()


async def test_a_subscribed_topic_that_vanishes_ends_neither_the_consumer_nor_the_other_topics(kafka44: KafkaCluster) -> None:
    kept, dropped = new_topic(kafka44), new_topic(kafka44)
    kafka44.produce(kept, 5)
    kafka44.produce(dropped, 5)
    async with make(kafka44, kept, dropped, allow_auto_create_topics=False, **SOON) as consumer:
        await read(consumer, 10)
        await asyncio.to_thread(kafka44.delete_topics, dropped)
        await asyncio.to_thread(kafka44.produce, kept, 5)
        records: list[Record] = []

        async def five_more() -> bool:
            records.extend(flat(await consumer.getmany(timeout_ms=1000)))
            return len(records) == 5

        await eventually(five_more)
        await nothing_more(consumer)
    assert [(record.topic, record.offset) for record in records] == [(kept, index) for index in range(5, 10)]


async def test_subscriptions_can_be_replaced_and_given_up_while_running(kafka44: KafkaCluster) -> None:
    one, two = new_topic(kafka44), new_topic(kafka44)
    kafka44.produce(one, 3)
    kafka44.produce(two, 3)
    async with make(kafka44, one) as consumer:
        assert {record.topic for record in await read(consumer, 3)} == {one}
        consumer.subscribe([two])
        assert {record.topic for record in await read(consumer, 3)} == {two}
        assert consumer.assignment() == {TopicPartition(two, 0)}
        consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        assert consumer.assignment() == set()
        await nothing_more(consumer)
        consumer.assign(all_of(one))
        assert {record.topic for record in await read(consumer, 3)} == {one}
        with pytest.raises(IllegalStateError):
            consumer.subscribe([two])


async def test_records_of_a_topic_that_is_no_longer_subscribed_do_not_come(kafka44: KafkaCluster) -> None:
    one, two = new_topic(kafka44), new_topic(kafka44)
    kafka44.produce(one, 500)
    kafka44.produce(two, 500)
    async with make(kafka44, one, max_poll_records=10) as consumer:
        await read(consumer, 10)
        consumer.subscribe([one, two])
        records = await read(consumer, 990)
        assert [record.offset for record in records if record.topic == one] == list(range(10, 500))
        await consumer.seek_to_beginning()
        consumer.subscribe([two])
        assert {record.topic for record in await read(consumer, 500)} == {two}


async def test_fast_unsubscribe_before_the_first_assignment(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    async with make(kafka44) as consumer:
        consumer.subscribe([topic])
        consumer.unsubscribe()
        await nothing_more(consumer)
        assert consumer.assignment() == set()


async def test_a_partition_that_does_not_exist_costs_neither_the_others_nor_the_loop_anything(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    real, absent, nowhere = TopicPartition(topic, 0), TopicPartition(topic, 9), TopicPartition(topic_name(), 0)
    options = {"allow_auto_create_topics": False, "default_api_timeout_ms": 800}
    async with make(kafka44, **options, **SOON) as consumer:
        consumer.assign([real, absent, nowhere])
        assert [record.topic for record in await read(consumer, 5)] == [topic] * 5
        before = consumer.statistics().wake_ups
        assert await consumer.getmany(timeout_ms=2000) == {}
        assert consumer.statistics().wake_ups - before < 150  # at most each long poll, metadata refresh and retry
        for partition in (absent, nowhere):
            with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
                await consumer.position(partition)
        await asyncio.to_thread(kafka44.add_partitions, topic, 10)
        await asyncio.to_thread(kafka44.produce, topic, 3, partitions=[9])
        assert offsets(await read(consumer, 3)) == {9: [0, 1, 2]}


async def test_start_waits_in_vain_for_an_assigned_topic_that_does_not_exist(kafka44: KafkaCluster) -> None:
    partition = TopicPartition(topic_name(), 0)
    consumer = make(kafka44, allow_auto_create_topics=False, request_timeout_ms=800)
    consumer.assign([partition])
    with pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError), match=partition.topic):
        await consumer.start()


async def test_the_cluster_can_be_asked_about_topics(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 3)
    async with make(kafka44) as consumer:
        assert topic in await consumer.topics()
        described = (await consumer.describe_topics(topic)).topics[topic]
        assert [part.partition for part in described.partitions] == [0, 1, 2]
        assert consumer.partitions_for_topic("unknown to all") is None
        with pytest.raises(IllegalOperation):
            await consumer.commit()
