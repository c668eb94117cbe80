"""ACLs of a real broker: a denial names the resource, reaches the call that it concerns, and is over when the ACL is given."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from .secure import Secure, acl, login
from .tools import PATIENCE, Consumer, all_of, eventually, new_topic, read, until

pytestmark = pytest.mark.brokers

PROTOCOLS = ["classic", "consumer"]


def bobs(secure: Secure, *topics: str, **options: Any) -> Consumer:
    """A consumer of a user whom no ACL knows."""
    return secure.consumer("LOGIN", *topics, **login("bob"), **options)


async def denied(call: Callable[[], Awaitable[Any]], kind: type[KafkaError], name: str) -> None:
    """Repeat ``call`` until the denial reaches it, which must be soon, and name the resource."""
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(kind) as caught:
            await forever(call)
    assert name in str(caught.value)


async def forever(call: Callable[[], Awaitable[Any]]) -> None:
    """Repeat ``call`` until it raises."""
    while True:
        await call()


async def healed(call: Callable[[], Awaitable[list[int]]], kind: type[KafkaError]) -> list[int]:
    """What ``call`` returns once the denial is over; one that was on its way may still come."""

    async def attempt() -> list[int]:
        try:
            return await call()
        except kind:
            return []

    return await eventually(attempt)


async def offsets_read(consumer: Consumer, count: int) -> list[int]:
    return [record.offset for record in await read(consumer, count)]


async def test_a_denied_topic_fails_the_start_by_name_and_the_next_one_works(kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 5)
    with kafka_secure.only("alice", "TOPIC", topic):
        async with asyncio.timeout(PATIENCE):
            consumer = bobs(kafka_secure, topic)
            with pytest.raises(TopicAuthorizationFailedError, match=topic):
                await consumer.start()
            await consumer.stop()
        kafka_secure.allow(acl("bob", "TOPIC", topic, "READ"))
        async with bobs(kafka_secure, topic) as consumer:
            assert await offsets_read(consumer, 5) == [0, 1, 2, 3, 4]


async def test_a_topic_that_is_denied_later_is_said_by_reads_and_goes_on_without_a_gap(kafka_secure: Secure) -> None:
    topic, other = new_topic(kafka_secure.cluster), new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 5)
    async with bobs(kafka_secure) as consumer:
        consumer.assign([*all_of(topic), *all_of(other)])
        assert await offsets_read(consumer, 5) == [0, 1, 2, 3, 4]
        with kafka_secure.only("alice", "TOPIC", topic):
            await denied(lambda: consumer.getmany(timeout_ms=200), TopicAuthorizationFailedError, topic)
            kafka_secure.cluster.produce(topic, 3, start=5)
            kafka_secure.cluster.produce(other, 3)

            async def others() -> list[int]:
                records = (await consumer.getmany(*all_of(other), timeout_ms=200)).get(TopicPartition(other, 0), [])
                return [record.offset for record in records]

            assert await healed(others, TopicAuthorizationFailedError) == [0, 1, 2], "the other topic goes on"
        assert await healed(lambda: offsets_read(consumer, 3), TopicAuthorizationFailedError) == [5, 6, 7]


async def test_access_that_was_given_back_is_followed_by_one_error_at_most(kafka_secure: Secure) -> None:
    """Every partition is denied, time and again, while nobody reads."""
    topic = new_topic(kafka_secure.cluster, 6)
    kafka_secure.cluster.produce(topic, 6, partitions=6)
    async with bobs(kafka_secure, retry_backoff_ms=50, retry_backoff_max_ms=100) as consumer:
        consumer.assign(all_of(topic, 6))
        await read(consumer, 6)
        with kafka_secure.only("alice", "TOPIC", topic):
            await denied(lambda: consumer.getmany(timeout_ms=200), TopicAuthorizationFailedError, topic)
            woken = consumer.statistics().wake_ups
            await until(lambda: consumer.statistics().wake_ups > woken + 10)
        kafka_secure.cluster.produce(topic, 6, partitions=6, start=6)
        await until(lambda: consumer.statistics().buffered_bytes > 0)
        errors, records = 0, 0
        async with asyncio.timeout(PATIENCE):
            while records < 6:
                try:
                    batch = await consumer.getmany(timeout_ms=200)
                    records += sum(map(len, batch.values()))
                except TopicAuthorizationFailedError:
                    errors += 1
        assert errors <= 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_denied_group_fails_the_start_by_name(kafka_secure: Secure, protocol: str) -> None:
    topic = new_topic(kafka_secure.cluster)
    with kafka_secure.only("alice", "GROUP", f"g-{topic}"):
        consumer = bobs(kafka_secure, topic, group_id=f"g-{topic}", group_protocol=protocol)
        await denied(consumer.start, GroupAuthorizationFailedError, f"g-{topic}")
        await consumer.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_denied_group_is_said_by_reads_and_joined_when_the_acl_is_given(kafka_secure: Secure, protocol: str) -> None:
    topic = new_topic(kafka_secure.cluster)
    group = f"g-{topic}"
    kafka_secure.cluster.produce(topic, 5)
    with kafka_secure.only("alice", "GROUP", group):
        async with bobs(kafka_secure, group_id=group, group_protocol=protocol) as consumer:
            consumer.subscribe([topic])
            await denied(lambda: consumer.getmany(timeout_ms=200), GroupAuthorizationFailedError, group)
            kafka_secure.allow(acl("bob", "GROUP", group, "ALL"))
            assert await healed(lambda: offsets_read(consumer, 5), GroupAuthorizationFailedError) == [0, 1, 2, 3, 4]
            await consumer.commit()
    assert kafka_secure.cluster.committed(group) == {(topic, 0): 5}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_commits_and_reads_raise_if_the_group_is_denied_later(kafka_secure: Secure, protocol: str) -> None:
    topic = new_topic(kafka_secure.cluster)
    group = f"g-{topic}"
    kafka_secure.cluster.produce(topic, 5)
    options = {"group_id": group, "group_protocol": protocol, "enable_auto_commit": False}
    async with bobs(kafka_secure, topic, **options) as consumer:
        await read(consumer, 5)
        with kafka_secure.only("alice", "GROUP", group):
            await denied(consumer.commit, GroupAuthorizationFailedError, group)
        await healed(lambda: committed(consumer), GroupAuthorizationFailedError)
    assert kafka_secure.cluster.committed(group) == {(topic, 0): 5}


async def committed(consumer: Consumer) -> list[int]:
    """Commit, rejoining before where that is needed."""
    await consumer.getmany(timeout_ms=200)
    try:
        await consumer.commit()
    except CommitFailedError:
        return []
    return [1]


async def test_a_commit_for_a_denied_topic_names_it_and_commits_the_rest(kafka_secure: Secure) -> None:
    topic, other = new_topic(kafka_secure.cluster), new_topic(kafka_secure.cluster)
    group = f"g-{topic}"
    async with bobs(kafka_secure, group_id=group) as consumer:
        consumer.assign([*all_of(topic), *all_of(other)])
        positions = {TopicPartition(name, 0): OffsetAndMetadata(1, "") for name in (topic, other)}
        await consumer.commit({TopicPartition(topic, 0): 0, TopicPartition(other, 0): 0})
        with kafka_secure.only("alice", "TOPIC", topic):
            with pytest.raises(TopicAuthorizationFailedError, match=topic) as caught:
                await consumer.commit(positions)
            assert other not in str(caught.value)
        assert kafka_secure.cluster.committed(group) == {(topic, 0): 0, (other, 0): 1}
        await consumer.commit(positions)
    assert kafka_secure.cluster.committed(group) == {(topic, 0): 1, (other, 0): 1}


async def test_questions_about_a_denied_topic_and_group_name_them(kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    group = f"g-{topic}"
    partition = TopicPartition(topic, 0)
    async with bobs(kafka_secure, group_id=group) as consumer:
        with kafka_secure.only("alice", "TOPIC", topic), kafka_secure.only("alice", "GROUP", group):
            await denied(lambda: consumer.end_offsets([partition]), TopicAuthorizationFailedError, topic)
            await denied(lambda: consumer.committed(partition), GroupAuthorizationFailedError, group)
        assert await consumer.end_offsets([partition]) == {partition: 0}

        async def stored() -> list[int]:
            return [await consumer.committed(partition) or -1]

        assert await healed(stored, GroupAuthorizationFailedError) == [-1]
