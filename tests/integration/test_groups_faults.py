"""A group whose coordinator dies, freezes or forgets it; a commit on its way at that moment; how long stop() takes then."""

import asyncio
import contextlib
import time

import pytest

from kafka_async import ConsumerState, TopicPartition
from kafka_async.errors import KafkaError, KafkaTimeoutError
from tests.brokers import KafkaCluster

from .groups import both, exactly, new_group, reading, shared
from .tools import eventually, make, new_topic, offsets, read, until

pytestmark = pytest.mark.integration


@both
async def test_a_coordinator_that_is_killed_costs_no_record_and_no_place(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 4)
    group = new_group(kafka_cluster3, protocol, session_ms=20_000)
    first = kafka_cluster3.produce(topic, 40, partitions=4).offsets
    async with reading(group, topic) as one, reading(group, topic) as two:
        await shared([one, two], 4)
        await exactly([one, two], first)
        noted = [list(one.journal.entries), list(two.journal.entries)]
        kafka_cluster3.kill(kafka_cluster3.coordinator(group.name))
        expected = await asyncio.to_thread(kafka_cluster3.produce, topic, 40, partitions=4)
        await exactly([one, two], {partition: first[partition] + expected.offsets[partition] for partition in first})
        await one.consumer.commit()  # waits for the next coordinator
        await until(lambda: one.consumer.state is ConsumerState.STEADY)
        assert [one.journal.entries, two.journal.entries] == noted
        assert not one.errors + two.errors
        await asyncio.to_thread(kafka_cluster3.heal)
    assert await group.commits(topic, 4) == dict.fromkeys(range(4), 20)


@both
async def test_a_coordinator_that_freezes_past_the_session_costs_no_record(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 4)
    group = new_group(kafka_cluster3, protocol, session_ms=3_000)
    first = kafka_cluster3.produce(topic, 40, partitions=4).offsets
    async with reading(group, topic, request_timeout_ms=3_000) as one, reading(group, topic, request_timeout_ms=3_000) as two:
        await shared([one, two], 4)
        await exactly([one, two], first)
        coordinator = kafka_cluster3.coordinator(group.name)
        kafka_cluster3.pause(coordinator)
        commit = asyncio.create_task(one.consumer.commit())  # under way when the coordinator freezes
        await until(lambda: ConsumerState.COORDINATOR_LOST in (one.consumer.state, two.consumer.state))
        more = await asyncio.to_thread(kafka_cluster3.produce, topic, 40, partitions=4)
        kafka_cluster3.unpause(coordinator)
        with contextlib.suppress(KafkaError):  # refused when the group went on without us; hanging would be a fault
            await asyncio.wait_for(commit, 70)
        await shared([one, two], 4)
        wanted = {partition: first[partition] + more.offsets[partition] for partition in first}
        await until(lambda: {p: sorted({*one.offsets.get(p, ()), *two.offsets.get(p, ())}) for p in wanted} == wanted)
        await asyncio.to_thread(kafka_cluster3.heal)
    assert await group.commits(topic, 4) == dict.fromkeys(range(4), 20)


@both
@pytest.mark.parametrize("how", ["dead", "frozen"])
async def test_stop_is_bounded_while_the_coordinator_does_not_answer(kafka_cluster3: KafkaCluster, protocol: str, how: str) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol)
    consumer = group.member(topic, auto_commit_interval_ms=3_600_000)
    async with consumer:
        await read(consumer, 10)
        coordinator = kafka_cluster3.coordinator(group.name)
        if how == "dead":
            for broker in range(3):
                kafka_cluster3.kill(broker)
        else:
            kafka_cluster3.pause(coordinator)
        started = time.monotonic()
        await consumer.stop(timeout_ms=2_000)
        assert time.monotonic() - started < 3.5
    await asyncio.to_thread(kafka_cluster3.heal)


@both
async def test_a_commit_under_way_when_the_coordinator_dies_is_made_or_refused_in_time(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol, session_ms=20_000)
    async with group.member(topic, enable_auto_commit=False) as consumer:
        await read(consumer, 10)
        commits = [asyncio.create_task(consumer.commit({partition: offset})) for offset in range(1, 11)]
        await asyncio.sleep(0)
        kafka_cluster3.kill(kafka_cluster3.coordinator(group.name))
        await asyncio.wait_for(asyncio.gather(*commits), 50)
        assert await consumer.committed(partition) == 10
        await asyncio.to_thread(kafka_cluster3.heal)


@both
async def test_a_commit_whose_time_is_over_is_not_made_later(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol, session_ms=30_000)
    async with group.member(topic, enable_auto_commit=False, default_api_timeout_ms=1_000) as consumer:
        await read(consumer, 10)
        await consumer.commit({partition: 1})
        coordinator = kafka_cluster3.coordinator(group.name)
        kafka_cluster3.kill(coordinator)
        kafka_cluster3.kill((coordinator + 1) % 3)  # no majority: nobody takes the group over
        started = time.monotonic()
        with pytest.raises(KafkaTimeoutError):
            await consumer.commit({partition: 2})
        assert time.monotonic() - started < 3
        cancelled = asyncio.create_task(consumer.commit({partition: 3}))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await asyncio.to_thread(kafka_cluster3.heal)

        async def answers() -> bool:
            with contextlib.suppress(KafkaTimeoutError):
                return await consumer.committed(partition) is not None
            return False

        await eventually(answers)
        assert await consumer.committed(partition) == 1
    assert await group.commits(topic) == {0: 1}


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


async def test_without_a_protocol_asked_for_the_newest_that_the_broker_has_is_spoken(
    kafka_cluster3: KafkaCluster, kafka39: KafkaCluster
) -> None:
    for cluster, type_ in ((kafka_cluster3, "CONSUMER"), (kafka39, "CLASSIC")):
        topic = new_topic(cluster)
        cluster.produce(topic, 10)
        group = new_group(cluster, "auto")
        async with make(cluster, topic, group_id=group.name) as consumer:
            assert len(await read(consumer, 10)) == 10
            described = cluster.admin.describe_consumer_groups([group.name])[group.name].result()
            assert (described.type.name, len(described.members)) == (type_, 1)
        assert group.committed() == {0: 10}


async def test_the_consumer_protocol_demanded_of_a_broker_without_it_is_a_plain_error(kafka39: KafkaCluster) -> None:
    topic = new_topic(kafka39)
    with pytest.raises(KafkaError, match="consumer"):
        async with make(kafka39, topic, group_id="any", group_protocol="consumer", request_timeout_ms=10_000):
            pytest.fail("it started")
