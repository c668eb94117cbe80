"""Subscriptions of a group that change: patterns, topics and partitions that come and go, unsubscribe."""

import asyncio
import re

import pytest

from kafka_async import SubscriptionPattern, TopicPartition
from tests.brokers import KafkaCluster

from .groups import Journal, both, exactly, new_group, reading, shared
from .tools import PATIENCE, Consumer, all_of, new_topic, nothing_more, offsets, read, topic_name, until

pytestmark = pytest.mark.brokers

FRESH = 500
"""``metadata_max_age_ms`` where a change has to be noticed."""


@both
async def test_a_pattern_follows_topics_that_come_and_go(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    prefix = topic_name()
    first = kafka_cluster3.create_topic(f"{prefix}-a", 2)
    kafka_cluster3.create_topic(f"other-{prefix}", 1)
    group = new_group(kafka_cluster3, protocol)
    # A topic that is missing from the metadata counts as deleted once it was missing for as long as a request may take.
    async with group.member(metadata_max_age_ms=FRESH, request_timeout_ms=3_000) as consumer:
        consumer.subscribe(pattern=re.compile(f"{prefix}-.*"))
        await _reads_until_assigned(consumer, set(all_of(first, 2)))
        second = kafka_cluster3.create_topic(f"{prefix}-b", 1)
        await _reads_until_assigned(consumer, {*all_of(first, 2), *all_of(second)})
        assert consumer.subscription() == {first, second}
        kafka_cluster3.produce(first, 4, partitions=2)
        kafka_cluster3.produce(second, 2)
        assert {record.topic for record in await read(consumer, 6)} == {first, second}
        kafka_cluster3.delete_topics(first)
        await _reads_until_assigned(consumer, set(all_of(second)))
        kafka_cluster3.produce(second, 2)
        assert offsets(await read(consumer, 2)) == {0: [2, 3]}


async def _reads_until_assigned(consumer: Consumer, wanted: set[TopicPartition]) -> None:
    async with asyncio.timeout(PATIENCE):
        while consumer.assignment() != wanted:
            assert await consumer.getmany(timeout_ms=100) == {}


async def test_a_pattern_of_the_broker_follows_topics_that_are_created_later(kafka_cluster3: KafkaCluster) -> None:
    prefix = topic_name()
    first = kafka_cluster3.create_topic(f"{prefix}-a", 2)
    group = new_group(kafka_cluster3, "consumer")
    async with group.member(metadata_max_age_ms=FRESH) as consumer:
        consumer.subscribe(pattern=SubscriptionPattern(f"{prefix}-[a-m]"))
        await _reads_until_assigned(consumer, set(all_of(first, 2)))
        kafka_cluster3.create_topic(f"{prefix}-z", 1)
        second = kafka_cluster3.create_topic(f"{prefix}-m", 1)
        # The coordinator evaluates patterns anew at most every ten seconds.
        await _reads_until_assigned(consumer, {*all_of(first, 2), *all_of(second)})


@both
async def test_partitions_that_are_added_are_shared_and_read_from_their_beginning(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol)
    async with reading(group, topic, metadata_max_age_ms=FRESH) as one, reading(group, topic, metadata_max_age_ms=FRESH) as two:
        await shared([one, two], 2)
        kafka_cluster3.add_partitions(topic, 6)
        expected = kafka_cluster3.produce(topic, 60, partitions=6).offsets
        await shared([one, two], 6)
        await exactly([one, two], expected)


@both
async def test_a_topic_that_is_deleted_leaves_the_assignment_and_the_rest_goes_on(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    kept, gone = new_topic(kafka_cluster3), new_topic(kafka_cluster3)
    group = new_group(kafka_cluster3, protocol)
    async with reading(group, kept, gone, metadata_max_age_ms=FRESH) as member:
        await until(lambda: len(member.consumer.assignment()) == 2)
        kafka_cluster3.delete_topics(gone)
        await until(lambda: member.consumer.assignment() == {TopicPartition(kept, 0)})
        expected = kafka_cluster3.produce(kept, 10).offsets
        await exactly([member], expected)


@both
async def test_unsubscribe_gives_everything_to_the_others_and_a_new_subscription_takes_it_back(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol, session_ms=30_000)
    kafka_cluster3.produce(topic, 10, partitions=2)
    async with group.member(topic) as leaver:
        await read(leaver, 10)
        await leaver.commit()
        leaver.unsubscribe()
        assert leaver.assignment() == set()
        assert leaver.subscription() == frozenset()
        async with reading(group, topic) as other:
            await shared([other], 2)
            journal = Journal()
            leaver.subscribe([topic], listener=journal)
            async with asyncio.timeout(PATIENCE):
                while len(leaver.assignment()) != 1:
                    await leaver.getmany(timeout_ms=100)
            await until(lambda: len(other.owned) == 1)
            assert not other.records
            await nothing_more(leaver)


@both
async def test_a_subscription_that_changes_keeps_what_stays(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    first, second = new_topic(kafka_cluster3), new_topic(kafka_cluster3)
    kafka_cluster3.produce(first, 10)
    kafka_cluster3.produce(second, 10)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(first, max_poll_records=5) as consumer:
        assert len(await read(consumer, 5)) == 5
        consumer.subscribe([first, second])
        records = await read(consumer, 15)
        found = {name: [record.offset for record in records if record.topic == name] for name in (first, second)}
        assert found == {first: [5, 6, 7, 8, 9], second: list(range(10))}
        consumer.subscribe([second])
        await _reads_until_assigned(consumer, set(all_of(second)))
