"""Subscribing, giving up and coming back on a real broker: what holds in between, and what nothing is left of."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, ConsumerState, TopicPartition
from kafka_async.errors import FencedInstanceIdError, KafkaConnectionError, KafkaError
from kafka_async.trace import RequestSent, TraceEvent
from tests.brokers import KafkaCluster, free_ports

from .groups import Journal, both, new_group, reading
from .test_caller_iteration import both_backgrounds, both_backgrounds_at_once
from .tools import PATIENCE, all_of, flat, make, new_topic, read, topic_name, until

pytestmark = pytest.mark.brokers


async def _join(*members: Any, others: Collection[Any] = ()) -> None:
    """Start members while ``others`` read, until each has a partition: a start waits for those who have something to give up."""
    async with asyncio.timeout(PATIENCE):
        starting = asyncio.gather(*(member.start() for member in members))
        while not starting.done() or not all(len(member.assignment()) == 1 for member in (*members, *others)):
            for batch in await asyncio.gather(*(member.getmany(timeout_ms=100) for member in others)):
                assert not batch
            for member in members if starting.done() else ():
                await member.getmany(timeout_ms=100)
        await starting


class Seeking(ConsumerRebalanceListener):
    """Goes to offset 50 of what is new, and takes its time before and after."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0.3)
        for partition in assigned:
            self.consumer.seek(partition, 50)
        await asyncio.sleep(0.3)


@both
@both_backgrounds_at_once
async def test_no_task_is_handed_a_record_before_on_partitions_assigned_has_returned(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44, 2)
    await asyncio.to_thread(kafka44.produce, topic, 200, partitions=2)
    group = new_group(kafka44, protocol)
    offsets: dict[int, list[int]] = {}
    consumer = group.member(background=background, enable_auto_commit=False)
    consumer.subscribe([topic], listener=Seeking(consumer))

    async def work() -> None:
        while True:
            for record in flat(await consumer.getmany(timeout_ms=100, max_records=10)):
                offsets.setdefault(record.partition, []).append(record.offset)

    async with reading(group, topic, enable_auto_commit=False) as other, consumer:
        working = [asyncio.create_task(work()) for _ in range(2)]
        await until(lambda: len(offsets) == 1)
        await other.stop()
        await until(lambda: sum(map(len, offsets.values())) >= 100)
        for task in working:
            task.cancel()
    assert {partition: min(found) for partition, found in offsets.items()} == {0: 50, 1: 50}


@both
@both_backgrounds_at_once
async def test_an_assignment_that_waits_has_no_effect_after_unsubscribe(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    old, new = new_topic(kafka44, 2), new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, new, 20)
    group = new_group(kafka44, protocol)
    before, after = Journal(), Journal()
    consumer = group.member(background=background)
    consumer.subscribe([old], listener=before)
    async with consumer:
        other = group.member(old)
        await _join(other, others=[consumer])
        await other.stop()
        await asyncio.sleep(1)  # what the other one had is proposed, and nobody reads
        consumer.unsubscribe()
        consumer.subscribe([new], listener=after)
        assert {record.topic for record in await read(consumer, 20)} == {new}
        assert consumer.assignment() == set(all_of(new))
    assert before.entries[-1][0] == "revoked"
    assert {partitions for what, partitions in after.entries if partitions} == {frozenset({0})}


@both
@both_backgrounds
async def test_unsubscribe_commits_and_a_second_run_over_offsets_that_were_reset_commits_too(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44)
    (partition,) = all_of(topic)
    await asyncio.to_thread(kafka44.produce, topic, 100)
    group = new_group(kafka44, protocol)
    journal = Journal()
    consumer = group.member(background=background)
    consumer.subscribe([topic], listener=journal)
    async with consumer:
        assert len(await read(consumer, 100)) == 100
        consumer.unsubscribe()
        await until(lambda: group.committed() == {0: 100})
        assert journal.entries[-1] == ("revoked", frozenset({0}))
        async with group.outsider() as operator:
            await _until_committed(operator, partition, 0)
        consumer.assign([partition])
        assert [record.offset for record in await read(consumer, 100)] == list(range(100))
    assert group.committed() == {0: 100}


async def _until_committed(operator: Any, partition: TopicPartition, offset: int) -> None:
    """Commit for a group whose last member is about to leave: that is refused until it has left."""
    operator.assign([partition])
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await operator.commit({partition: offset})
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                return


@both_backgrounds
async def test_a_pause_survives_an_eager_rebalance_of_a_partition_that_stays(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44, 2)
    await asyncio.to_thread(kafka44.produce, topic, 200, partitions=2)
    group = new_group(kafka44, "classic")
    options: dict[str, Any] = {"partition_assignment_strategy": ("range",), "enable_auto_commit": False}
    async with group.member(topic, background=background, **options) as stays:
        await read(stays, 1)
        stays.pause(*stays.assignment())
        for partition in stays.assignment():
            stays.seek(partition, 7)
        comes = group.member(topic, **options)
        try:
            await _join(comes, others=[stays])
            (kept,) = stays.assignment()
            assert stays.paused() == {kept}
            assert await stays.getmany(timeout_ms=300) == {}
            stays.resume(kept)
            assert (await stays.getone(kept)).offset == 7
        finally:
            await comes.stop()


async def test_subscribing_after_the_start_lets_the_broker_create_the_topic(kafka44: KafkaCluster) -> None:
    allowed, denied = topic_name(), topic_name()
    options: dict[str, Any] = {"metadata_max_age_ms": 500}
    async with make(kafka44, **options) as consumer, make(kafka44, allow_auto_create_topics=False, **options) as careful:
        consumer.subscribe([allowed])
        careful.subscribe([denied])
        async with asyncio.timeout(PATIENCE):
            while not consumer.assignment():
                await asyncio.gather(consumer.getmany(timeout_ms=100), careful.getmany(timeout_ms=100))
        await careful.getmany(timeout_ms=1000)
        assert denied not in await careful.topics()


@both
async def test_start_with_a_pattern_waits_and_subscription_names_what_it_matches(kafka44: KafkaCluster, protocol: str) -> None:
    name = topic_name()
    topics = [kafka44.create_topic(f"{name}-{letter}", 1) for letter in "ab"]
    group = new_group(kafka44, protocol)
    options = {"partition_assignment_strategy": ("roundrobin",)} if protocol == "classic" else {}
    one, two = group.member(**options), group.member(**options)
    one.subscribe(pattern=f"{name}-.*")
    two.subscribe(pattern=f"{name}-.*")
    async with one:
        assert {partition.topic for partition in one.assignment()} == set(topics)
        assert one.subscription() == set(topics)
        try:
            await _join(two, others=[one])
            assert one.subscription() == two.subscription() == set(topics)
        finally:
            await two.stop()


@both_backgrounds
async def test_a_start_that_failed_can_be_tried_again(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 10)
    (port,) = free_ports(1)
    consumer = make(kafka44, topic, background=background, bootstrap_servers=f"127.0.0.1:{port}")
    with pytest.raises(KafkaConnectionError):
        await consumer.start()
    host, real = kafka44.bootstrap_servers.split(",")[0].rsplit(":", 1)

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(real))
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    server = await asyncio.start_server(through, "127.0.0.1", port)
    async with server, consumer:
        assert len(await read(consumer, 10)) == 10
    assert consumer.state is ConsumerState.CLOSED


@both_backgrounds
async def test_every_call_of_a_fenced_static_member_raises(kafka44: KafkaCluster, background: str) -> None:
    topic = new_topic(kafka44)
    group = new_group(kafka44, "classic")
    options: dict[str, Any] = {"group_instance_id": "one", "background": background}
    async with group.member(topic, **options) as old, group.member(topic, **options):
        with pytest.raises(FencedInstanceIdError):
            await asyncio.wait_for(anext(aiter(old)), PATIENCE)
        for _ in range(2):
            for call in (
                lambda: old.getone(),
                lambda: old.getmany(timeout_ms=100),
                lambda: old.getarrow(timeout_ms=100),
                lambda: anext(aiter(old)),
                lambda: old.commit({TopicPartition(topic, 0): 0}),
                lambda: old.commit(),
            ):
                with pytest.raises(FencedInstanceIdError):
                    await asyncio.wait_for(call(), PATIENCE)
        assert not old.alive


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
async def test_unsubscribing_while_the_coordinator_answers_holds_up_no_rebalance(kafka44: KafkaCluster, api: str) -> None:
    """Neither is a member waited for that was named as it had given up, nor does anybody wait for a SyncGroup of one that left."""
    topic = new_topic(kafka44, 2)
    group = new_group(kafka44, "classic", session_ms=30_000)
    asked = asyncio.Event()

    def trace(event: TraceEvent) -> None:
        if isinstance(event, RequestSent) and event.api == api:
            asked.set()

    hasty = group.member(trace=trace)
    async with reading(group, topic) as steady, hasty:
        for _ in range(5):
            asked.clear()
            hasty.subscribe([topic])
            async with asyncio.timeout(15):  # half a session
                await asked.wait()
            hasty.unsubscribe()
        hasty.subscribe([topic])
        async with asyncio.timeout(15):
            while len(hasty.assignment()) != 1 or len(steady.consumer.assignment()) != 1:
                await hasty.getmany(timeout_ms=100)
