"""Access that is taken away from a member and given back: it is told, stays what it is, and goes on without a gap."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark what it re-exports
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_async.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from tests.brokers import KafkaCluster

from .groups import Reading, both, exactly, new_group, reading, shared
from .tools import new_topic, offsets, read, until

pytestmark = pytest.mark.brokers

_EVERYBODY = ("User:ANONYMOUS", "*")  # whom the broker takes a client without authentication for


@contextmanager
def _unreadable(cluster: KafkaCluster, kind: ResourceType, name: str) -> Iterator[None]:
    """Forbid to read the topic or group while the block runs; all else stays allowed, which a rule of its own has to say then."""
    what = (kind, name, ResourcePatternType.LITERAL, *_EVERYBODY)
    rules = [
        AclBinding(*what, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(*what, AclOperation.READ, AclPermissionType.DENY),
    ]
    for made in cluster.admin.create_acls(rules).values():
        made.result()
    try:
        yield
    finally:
        every = AclBindingFilter(*what, AclOperation.ANY, AclPermissionType.ANY)
        cluster.admin.delete_acls([every])[every].result()


async def _told(member: Reading) -> None:
    """Wait until a read call raised something."""
    await until(lambda: bool(member.errors))


@both
async def test_a_topic_that_may_not_be_read_for_a_while_is_read_on_without_a_gap(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44, 2)
    group = new_group(kafka44, protocol)
    before = kafka44.produce(topic, 20, partitions=2).offsets
    async with reading(group, topic, enable_auto_commit=False) as member:
        await exactly([member], before)
        with _unreadable(kafka44, ResourceType.TOPIC, topic):
            await _told(member)
            with pytest.raises(TopicAuthorizationFailedError):
                await member.consumer.commit()
            after = kafka44.produce(topic, 20, partitions=2).offsets
        await exactly([member], {partition: before[partition] + after[partition] for partition in before})
        await member.consumer.commit()
        assert member.journal.entries == [("assigned", frozenset({0, 1}))]
        member.raised(TopicAuthorizationFailedError)
    assert group.committed() == {0: 20, 1: 20}


@both
async def test_a_group_that_may_not_be_used_for_a_while_keeps_its_member(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44, 2)
    group = new_group(kafka44, protocol, session_ms=30_000)
    before = kafka44.produce(topic, 20, partitions=2).offsets
    async with reading(group, topic, enable_auto_commit=False) as member:
        await exactly([member], before)
        with _unreadable(kafka44, ResourceType.GROUP, group.name):
            await _told(member)
            with pytest.raises(GroupAuthorizationFailedError):
                await member.consumer.commit()
            with pytest.raises(GroupAuthorizationFailedError):
                async with group.member(topic):
                    pytest.fail("it started")
            after = kafka44.produce(topic, 20, partitions=2).offsets
        await exactly([member], {partition: before[partition] + after[partition] for partition in before})
        await member.consumer.commit()
        assert member.journal.entries == [("assigned", frozenset({0, 1}))]
        member.raised(GroupAuthorizationFailedError)
    assert group.committed() == {0: 20, 1: 20}


@both
async def test_a_member_whose_session_ended_without_access_joins_again_when_it_has_it(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44, 2)
    group = new_group(kafka44, protocol, session_ms=1_500)
    kafka44.produce(topic, 20, partitions=2)
    async with reading(group, topic) as member:
        await shared([member], 2)
        with _unreadable(kafka44, ResourceType.GROUP, group.name):
            await _told(member)
            await until(lambda: not kafka44.admin.describe_consumer_groups([group.name])[group.name].result().members)
        await until(lambda: bool(member.journal.all_of("lost")))
        await shared([member], 2)
        kafka44.produce(topic, 20, partitions=2)
        await until(lambda: {number for numbers in member.offsets.values() for number in numbers} == set(range(20)))
        member.raised(GroupAuthorizationFailedError)
    async with group.member(topic) as next_one:
        kafka44.produce(topic, 2, partitions=2)
        assert offsets(await read(next_one, 2)) == {0: [20], 1: [20]}
