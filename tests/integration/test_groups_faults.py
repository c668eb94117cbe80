"""A group whose coordinator dies, freezes or forgets it; a commit on its way at that moment; how long stop() takes then."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kafka_async import ConsumerState, TopicPartition
from kafka_async.errors import KafkaError, KafkaTimeoutError
from tests.brokers import KafkaCluster

from .groups import Group, Reading, both, exactly, group_of_each_protocol, load, longest_wait, new_group, reading, several, shared
from .tools import INTERVAL, PATIENCE, Consumer, eventually, new_topic, offsets, read, until

pytestmark = pytest.mark.brokers


@asynccontextmanager
async def _two_members_each(groups: list[Group], topic: str, **options: Any) -> AsyncIterator[list[list[Reading]]]:
    """Start two members of each group, which have read everything."""
    produced = groups[0].cluster.produce(topic, 40, partitions=4).offsets
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(several(group, 2, topic, **options)) for group in groups]
        for members in found:
            await shared(members, 4)
            await exactly(members, produced)
        yield found


def _coordinator(groups: list[Group]) -> int:
    (number,) = {group.cluster.coordinator(group.name) for group in groups}
    return number


async def test_a_coordinator_that_is_killed_costs_no_record_no_place_and_no_commit(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 4)
    groups = group_of_each_protocol(kafka_cluster3, session_ms=30_000)
    async with _two_members_each(groups, topic) as found:
        noted = [list(member.journal.entries) for members in found for member in members]
        victim = _coordinator(groups)
        commits = [asyncio.create_task(member.consumer.commit()) for members in found for member in members]
        await asyncio.sleep(0)  # they are on their way
        kafka_cluster3.kill(victim)
        await asyncio.to_thread(kafka_cluster3.produce, topic, 40, partitions=4)
        await asyncio.wait_for(asyncio.gather(*commits), PATIENCE)
        for members in found:
            await exactly(members, {partition: list(range(20)) for partition in range(4)})
            await members[0].consumer.commit()
            await until(lambda: all(member.consumer.state is ConsumerState.STEADY for member in members))  # noqa: B023  # awaited here
        assert [list(member.journal.entries) for members in found for member in members] == noted
        await asyncio.to_thread(kafka_cluster3.heal)
    for group in groups:
        assert await group.commits(topic, 4) == dict.fromkeys(range(4), 20)


async def test_a_rolling_restart_costs_no_record_no_place_and_no_long_wait(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 4)
    groups = group_of_each_protocol(kafka_cluster3, session_ms=30_000)
    async with _two_members_each(groups, topic) as found:
        noted = [list(member.journal.entries) for members in found for member in members]
        async with load(kafka_cluster3, topic, 4) as writing:
            for broker in range(3):
                await asyncio.to_thread(kafka_cluster3.restart, broker)
                await eventually(lambda: asyncio.to_thread(kafka_cluster3.in_sync, topic, "__consumer_offsets"))
        expected = {partition: [*range(10), *numbers] for partition, numbers in writing.offsets.items()}
        for members in found:
            await exactly(members, expected)
            assert longest_wait(members, writing) < 20  # 0.7 s where nothing else keeps the machine busy
        assert [list(member.journal.entries) for members in found for member in members] == noted
    for group in groups:
        assert await group.commits(topic, 4) == {partition: numbers[-1] + 1 for partition, numbers in expected.items()}


async def test_a_coordinator_that_freezes_past_the_session_costs_no_record(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 4)
    groups = group_of_each_protocol(kafka_cluster3, session_ms=3_000)
    async with _two_members_each(groups, topic, request_timeout_ms=3_000) as found:
        frozen = _coordinator(groups)
        kafka_cluster3.pause(frozen)
        commits = [asyncio.create_task(members[0].consumer.commit()) for members in found]  # under way meanwhile
        await until(lambda: frozen not in {_place_of(member) for members in found for member in members})
        await asyncio.to_thread(kafka_cluster3.produce, topic, 40, partitions=4)
        kafka_cluster3.unpause(frozen)
        for commit in commits:
            with contextlib.suppress(KafkaError):  # refused when the group went on without us; hanging would be a fault
                await asyncio.wait_for(commit, PATIENCE)
        for members in found:
            await shared(members, 4)
            await until(lambda: all(_read(members, partition) == set(range(20)) for partition in range(4)))  # noqa: B023
        await asyncio.to_thread(kafka_cluster3.heal)
        for group in groups:  # a member that was put out reads again what it had not committed, so this comes with time
            await eventually(partial(_committed, group, topic, 4, 20))


async def _committed(group: Group, topic: str, partitions: int, offset: int) -> bool:
    return await group.commits(topic, partitions) == dict.fromkeys(range(partitions), offset)


def _place_of(member: Reading) -> int | None:
    """Return the number of the member's coordinator; a frozen one stays until it is known to be lost."""
    coordinator = member.consumer.statistics().coordinator
    return coordinator.id if coordinator is not None else None


def _read(members: list[Reading], partition: int) -> set[int]:
    return {offset for member in members for offset in member.offsets.get(partition, ())}


@pytest.mark.parametrize("how", ["dead", "frozen"])
async def test_stop_is_bounded_while_the_coordinator_does_not_answer(kafka_cluster3: KafkaCluster, how: str) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 10)
    groups = group_of_each_protocol(kafka_cluster3)
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(group.member(topic, auto_commit_interval_ms=3_600_000)) for group in groups]
        for consumer in consumers:
            await read(consumer, 10)
        coordinator = _coordinator(groups)
        kafka_cluster3.kill(coordinator) if how == "dead" else kafka_cluster3.pause(coordinator)
        for consumer in consumers:
            started = time.monotonic()
            await consumer.stop(timeout_ms=1_500)
            assert time.monotonic() - started < 15
    await asyncio.to_thread(kafka_cluster3.heal)


async def test_a_commit_whose_time_is_over_is_not_made_later(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    kafka_cluster3.produce(topic, 10)
    groups = group_of_each_protocol(kafka_cluster3, session_ms=30_000)
    options = {"enable_auto_commit": False, "default_api_timeout_ms": 3_000}
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(group.member(topic, **options)) for group in groups]
        for consumer in consumers:
            await read(consumer, 10)
            await eventually(lambda: _commits(consumer, partition, 1))  # noqa: B023  # awaited here
        coordinator = _coordinator(groups)
        kafka_cluster3.kill(coordinator)
        kafka_cluster3.kill((coordinator + 1) % 3)  # no majority: nobody takes the groups over
        for consumer in consumers:
            started, turns = time.monotonic(), consumer.statistics().wake_ups
            with pytest.raises(KafkaTimeoutError):
                await consumer.commit({partition: 2})
            assert time.monotonic() - started < 15
            assert consumer.statistics().wake_ups - turns < 400, "the loop spins while there is no coordinator"
            cancelled = asyncio.create_task(consumer.commit({partition: 3}))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        await asyncio.to_thread(kafka_cluster3.heal)
        for consumer in consumers:
            assert await eventually(lambda: _committed_by(consumer, partition)) == 1  # noqa: B023  # awaited here
    for group in groups:
        assert await group.commits(topic) == {0: 1}


async def _commits(consumer: Consumer, partition: TopicPartition, offset: int) -> bool:
    """Commit, if the brokers, which may just have been started, do so in time."""
    with contextlib.suppress(KafkaTimeoutError):
        await consumer.commit({partition: offset})
        return True
    return False


async def _committed_by(consumer: Consumer, partition: TopicPartition) -> int | None:
    """Return what is committed, if the brokers, which may just have been started, answer in time."""
    with contextlib.suppress(KafkaTimeoutError):
        return await consumer.committed(partition)
    return None


@both
async def test_a_group_that_was_deleted_meanwhile_begins_anew(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic) as consumer:
        await read(consumer, 10)
    assert group.committed() == {0: 10}
    kafka_cluster3.admin.delete_consumer_groups([group.name])[group.name].result()
    async with group.member(topic) as consumer:
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}
    assert group.committed() == {0: 10}


@both
async def test_a_member_that_slept_while_its_group_was_deleted_begins_anew(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol, session_ms=1_500)
    async with reading(group, topic, auto_commit_interval_ms=1) as member:
        await exactly([member], {0: list(range(10))})
        await eventually(lambda: asyncio.to_thread(lambda: group.committed() == {0: 10}))
        _delete_when_empty(group)  # the event loop is blocked meanwhile, and with it the heartbeats
        kafka_cluster3.produce(topic, 10)
        await until(lambda: member.offsets[0][10:][-20:] == list(range(20)))  # what it reads before it is told comes first
    assert group.committed() == {0: 20}


def _delete_when_empty(group: Group) -> None:
    admin = group.cluster.admin
    while admin.describe_consumer_groups([group.name])[group.name].result().members:
        threading.Event().wait(INTERVAL)
    admin.delete_consumer_groups([group.name])[group.name].result()


async def test_partitions_that_move_to_other_brokers_cost_no_record_and_repeat_none(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3, 4, replicas=1)
    groups = group_of_each_protocol(kafka_cluster3)
    async with _two_members_each(groups, topic) as found:
        before = {partition: kafka_cluster3.leader(topic, partition) for partition in range(4)}
        async with load(kafka_cluster3, topic, 4) as writing:
            targets = {partition: [(broker + 1) % 3] for partition, broker in before.items()}
            await asyncio.to_thread(kafka_cluster3.reassign, topic, targets)
        expected = {partition: [*range(10), *numbers] for partition, numbers in writing.offsets.items()}
        for members in found:
            await exactly(members, expected)
    for group in groups:
        assert await group.commits(topic, 4) == {partition: numbers[-1] + 1 for partition, numbers in expected.items()}
