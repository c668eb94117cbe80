"""The life of a group: members join, share, leave, die, come back; static members; who we are."""

import asyncio
import contextlib
from typing import Any

import pytest

from kafka_async import ConsumerState, KafkaConsumer, TopicPartition
from kafka_async.errors import CommitFailedError, FencedInstanceIdError, UnreleasedInstanceIdError, UnsupportedAssignorError
from tests.brokers import KafkaCluster

from .groups import Journal, both, exactly, new_group, reading, several, shared
from .tools import PATIENCE, Consumer, all_of, eventually, make, new_topic, nothing_more, offsets, read, until

pytestmark = pytest.mark.brokers


@both
async def test_a_member_goes_on_where_the_last_one_stopped(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 3)
    kafka_cluster3.produce(topic, 30, partitions=3)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic) as first:
        assert first.state is ConsumerState.STEADY
        assert first.assignment() == set(all_of(topic, 3))
        assert len(await read(first, 30)) == 30
    assert group.committed() == {0: 10, 1: 10, 2: 10}
    produced = kafka_cluster3.produce(topic, 6, partitions=3)
    async with group.member(topic, background="thread") as second:
        assert second.state is ConsumerState.STEADY
        assert offsets(await read(second, 6)) == produced.offsets
        await nothing_more(second)


@both
async def test_members_share_the_partitions_as_they_come_and_go(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 6)
    group = new_group(kafka_cluster3, protocol)
    expected = kafka_cluster3.produce(topic, 60, partitions=6).offsets
    async with reading(group, topic) as first:
        await shared([first], 6)
        async with reading(group, topic) as second:
            await shared([first, second], 6)
            async with reading(group, topic) as third:
                await shared([first, second, third], 6)
                more = kafka_cluster3.produce(topic, 60, partitions=6).offsets
                expected = {partition: expected[partition] + more[partition] for partition in expected}
                await exactly([first, second, third], expected)
            await shared([first, second], 6)
        await shared([first], 6)
        more = kafka_cluster3.produce(topic, 60, partitions=6).offsets
        expected = {partition: expected[partition] + more[partition] for partition in expected}
        await exactly([first, second, third], expected)


@both
async def test_group_metadata_names_the_member_until_it_leaves(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic, group_instance_id="i-1") as consumer:
        me = consumer.group_metadata()
        assert (me.group_id, me.group_instance_id) == (group.name, "i-1")
        assert me.generation_id > 0
        assert me.member_id
        members = kafka_cluster3.admin.describe_consumer_groups([group.name])[group.name].result().members
        assert [(member.member_id, member.group_instance_id) for member in members] == [(me.member_id, "i-1")]
        assert consumer.statistics().generation == me.generation_id
        consumer.unsubscribe()
        await until(lambda: consumer.group_metadata().generation_id == -1)


@both
async def test_members_that_stop_leave_the_group_at_once(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    group = new_group(kafka_cluster3, protocol, session_ms=30_000)
    async with group.member(topic):
        pass
    assert not kafka_cluster3.admin.describe_consumer_groups([group.name])[group.name].result().members


@both
async def test_starts_that_are_cancelled_at_any_moment_leave_no_ghost_in_the_group(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol, session_ms=30_000)
    async with reading(group, topic) as stays:
        await shared([stays], 2)
        for milliseconds in range(0, 120, 8):
            consumer = group.member(topic)
            start = asyncio.create_task(consumer.start())
            await asyncio.sleep(milliseconds / 1000)  # the moments are what is tested
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await start
            await consumer.stop()  # it may have been quicker
        async with asyncio.timeout(20):  # before a session is over
            await shared([stays], 2)
        await exactly([stays], kafka_cluster3.produce(topic, 10, partitions=2).offsets)


@both
async def test_static_members_come_back_without_a_rebalance(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 4)
    group = new_group(kafka_cluster3, protocol, session_ms=20_000)
    async with reading(group, topic, group_instance_id="stays") as stays:
        async with reading(group, topic, group_instance_id="bounces") as bounced:
            await shared([stays, bounced], 4)
            owned, noted = bounced.owned, list(stays.journal.entries)
        for _ in range(2):
            async with reading(group, topic, group_instance_id="bounces") as bounced:
                await until(lambda member=bounced: member.owned == owned)  # type: ignore[misc]  # bound at once, used at once
        assert stays.journal.entries == noted
        expected = kafka_cluster3.produce(topic, 40, partitions=4).offsets
        async with reading(group, topic, group_instance_id="bounces") as bounced:
            await exactly([stays, bounced], expected)
        assert stays.journal.entries == noted


@both
async def test_a_static_member_that_subscribes_anew_at_once_stays_one(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic, other = new_topic(kafka_cluster3, 2), new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic, group_instance_id="one") as consumer:
        for wanted in (other, topic, topic):
            consumer.unsubscribe()
            consumer.subscribe([wanted])
            produced = kafka_cluster3.produce(wanted, 10, partitions=2)
            assert offsets(await read(consumer, 10)) == produced.offsets


async def test_a_second_static_member_of_a_name_ends_the_first_in_the_classic_protocol(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, "classic")
    async with reading(group, topic, group_instance_id="one") as old, group.member(topic, group_instance_id="one") as new:
        await until(lambda: old.errors)
        await old.pause()
        old.raised(FencedInstanceIdError)
        kafka_cluster3.produce(topic, 10, partitions=2)
        assert len(await read(new, 10)) == 10
        assert not old.records
        old.consumer.subscribe([topic], listener=old.journal)
        old.go_on()
        await until(lambda: old.owned == {0, 1})
        with pytest.raises(FencedInstanceIdError):
            await eventually(lambda: _read(new))
        expected = kafka_cluster3.produce(topic, 10, partitions=2).offsets
        await until(lambda: sum(map(len, old.offsets.values())) >= sum(map(len, expected.values())))


async def _read(consumer: Consumer) -> bool:
    return bool(await consumer.getmany(timeout_ms=200)) and False


async def test_a_second_static_member_of_a_name_is_refused_in_the_consumer_protocol(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, "consumer")
    async with reading(group, topic, group_instance_id="one") as old:
        with pytest.raises(UnreleasedInstanceIdError):
            async with group.member(topic, group_instance_id="one"):
                pytest.fail("the second member was let in")
        expected = kafka_cluster3.produce(topic, 10, partitions=2).offsets
        await exactly([old], expected)
        assert old.journal.all_of("assigned") == [frozenset({0, 1})]


@both
async def test_a_member_that_does_not_read_for_too_long_leaves_and_rejoins(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 4)
    group = new_group(kafka_cluster3, protocol)
    async with (
        reading(group, topic, max_poll_interval_ms=2_000, auto_commit_interval_ms=50) as idle,
        reading(group, topic) as busy,
    ):
        await shared([idle, busy], 4)
        held = idle.owned
        await idle.pause()
        await until(lambda: len(busy.owned) == 4)
        expected = kafka_cluster3.produce(topic, 40, partitions=4).offsets
        await exactly([busy], expected)
        idle.go_on()
        await shared([idle, busy], 4)
        assert not idle.records, "a partition that moved away was read all the same"
        assert idle.journal.all_of("lost") == [held]


@both
async def test_the_group_rebalances_when_asked_to(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol)
    async with reading(group, topic) as member:
        before = member.consumer.group_metadata().generation_id
        member.consumer.enforce_rebalance("a test")
        if protocol == "classic":
            await until(lambda: member.consumer.group_metadata().generation_id > before)
        await shared([member], 2)
        expected = kafka_cluster3.produce(topic, 10, partitions=2).offsets
        await exactly([member], expected)
        if protocol == "consumer":
            assert member.consumer.group_metadata().generation_id == before


@both
async def test_partitions_that_stay_keep_position_pause_and_data_through_a_rebalance(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 4)
    options: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)} if protocol == "classic" else {}
    group = new_group(kafka_cluster3, protocol)
    kafka_cluster3.produce(topic, 400, partitions=4)
    async with group.member(**options, enable_auto_commit=False) as stays:
        journal = Journal()
        stays.subscribe([topic], listener=journal)
        await read(stays, 1)
        stays.pause(*stays.assignment())
        for partition in stays.assignment():
            stays.seek(partition, 7)
        async with reading(group, topic, **options, enable_auto_commit=False) as comes:
            await _until_shared_while_reading(stays, comes.consumer)
            kept = stays.assignment()
            assert stays.paused() == kept
            assert {await stays.position(partition) for partition in kept} == {7}
            assert journal.all_of("revoked") == [comes.owned]
        stays.resume(*kept)
        records = await read(stays, 93, *kept)
        assert {found[0] for found in offsets(records).values()} == {7}


async def _until_shared_while_reading(stays: KafkaConsumer, comes: KafkaConsumer) -> None:
    """A paused member carries its part of a rebalance out inside read calls like any other."""
    async with asyncio.timeout(PATIENCE):
        while len(stays.assignment()) != 2 or len(comes.assignment()) != 2:
            assert await stays.getmany(timeout_ms=100) == {}


@both
async def test_two_topics_are_shared_by_five_members_of_whom_one_gets_nothing(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topics = [new_topic(kafka_cluster3, 2), new_topic(kafka_cluster3, 2)]
    group = new_group(kafka_cluster3, protocol)
    options: dict[str, Any] = {"partition_assignment_strategy": ("roundrobin",)} if protocol == "classic" else {}
    async with several(group, 5, *topics, **options) as members:
        await until(lambda: sorted(len(member.consumer.assignment()) for member in members) == [0, 1, 1, 1, 1])
        await until(lambda: all(member.consumer.state is ConsumerState.STEADY for member in members))


@both
async def test_a_lone_consumer_with_a_group_commits_but_is_no_member(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol)
    async with make(kafka_cluster3, group_id=group.name, enable_auto_commit=False) as lone:
        lone.assign([partition])
        await read(lone, 10)
        await lone.commit()
        assert await lone.committed(partition) == 10
        assert lone.group_metadata().generation_id == -1
    async with reading(group, topic), make(kafka_cluster3, group_id=group.name, enable_auto_commit=False) as stranger:
        stranger.assign([partition])
        with pytest.raises(CommitFailedError, match="has members"):
            await stranger.commit({partition: 3})  # a stranger must not move their offsets
    assert group.committed() == {0: 10}


@pytest.mark.parametrize(("assignor", "shares"), [("range", [0, 2]), ("uniform", [1, 1])])
async def test_the_broker_assigns_by_the_assignor_that_was_asked_for(
    kafka_cluster3: KafkaCluster, assignor: str, shares: list[int]
) -> None:
    topics = [new_topic(kafka_cluster3), new_topic(kafka_cluster3)]
    group = new_group(kafka_cluster3, "consumer")
    async with several(group, 2, *topics, group_remote_assignor=assignor) as members:
        await until(lambda: sorted(len(member.consumer.assignment()) for member in members) == shares)


async def test_an_assignor_that_the_broker_does_not_have_is_an_error_of_the_start(kafka_cluster3: KafkaCluster) -> None:
    group = new_group(kafka_cluster3, "consumer")
    with pytest.raises(UnsupportedAssignorError, match="fairest"):
        await group.member(new_topic(kafka_cluster3), group_remote_assignor="fairest").start()


async def test_without_a_protocol_asked_for_the_newest_one_is_spoken(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, "auto")
    async with make(kafka_cluster3, topic, group_id=group.name) as consumer:
        assert len(await read(consumer, 10)) == 10
        described = kafka_cluster3.admin.describe_consumer_groups([group.name])[group.name].result()
        assert (described.type.name, len(described.members)) == ("CONSUMER", 1)
    assert group.committed() == {0: 10}
