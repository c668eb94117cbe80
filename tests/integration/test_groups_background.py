"""Members beside handlers that block: a background thread keeps the place in the group, a background task says what happened."""

import asyncio
import threading
from typing import Any

import pytest

from kafka_async import ConsumerState, TopicPartition
from kafka_async import sync as blocking
from kafka_async.trace import Fault, TraceEvent
from tests.brokers import KafkaCluster

from .groups import Group, Journal, both, exactly, new_group, reading, several, shared
from .tools import PATIENCE, eventually, flat, make, new_topic, nothing_more, offsets, until

pytestmark = pytest.mark.brokers

SESSION = 1.5
"""Seconds: the shortest that leaves a busy machine some air."""


def _block(seconds: float) -> None:
    """Hold the thread, event loop and all, as a handler that computes does."""
    threading.Event().wait(seconds)


@both
async def test_a_handler_that_blocks_past_the_session_keeps_its_place_with_a_background_thread(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol, session_ms=int(SESSION * 1000))
    async with reading(group, topic, background="thread") as member:
        await shared([member], 2)
        expected = kafka_cluster3.produce(topic, 20, partitions=2).offsets
        epoch = member.consumer.group_metadata().generation_id
        _block(3 * SESSION)
        assert len(group.cluster.admin.describe_consumer_groups([group.name])[group.name].result().members) == 1
        await exactly([member], expected)
        assert member.journal.entries == [("assigned", frozenset({0, 1}))]
        assert member.consumer.group_metadata().generation_id == epoch


@both
async def test_a_handler_that_blocks_past_the_session_is_named_and_the_member_recovers_in_task_mode(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol, session_ms=int(SESSION * 1000))
    faults: list[str] = []

    def note(event: TraceEvent) -> None:
        if isinstance(event, Fault):
            faults.append(event.text)

    kafka_cluster3.produce(topic, 20, partitions=2)
    async with reading(group, topic, trace=note, auto_commit_interval_ms=1) as member:
        await exactly([member], {0: list(range(10)), 1: list(range(10))})
        await eventually(lambda: asyncio.to_thread(lambda: group.committed() == {0: 10, 1: 10}))
        _block(3 * SESSION)
        kafka_cluster3.produce(topic, 20, partitions=2)
        await exactly([member], {0: list(range(20)), 1: list(range(20))})
        await shared([member], 2)
        assert any("the event loop was blocked for" in text for text in faults), faults


@both
def test_the_blocking_consumer_is_a_member_like_any_other(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 2)
    kafka_cluster3.produce(topic, 20, partitions=2)
    group = new_group(kafka_cluster3, protocol, session_ms=int(SESSION * 1000))
    journal = Journal()
    with _blocking(group) as consumer:
        consumer.subscribe([topic], listener=journal)
        records = flat(consumer.getmany(timeout_ms=10_000))
        while len(records) < 20:
            records += flat(consumer.getmany(timeout_ms=10_000))
        _block(2 * SESSION)
        consumer.commit()
        assert consumer.committed(TopicPartition(topic, 0)) == 10
        assert consumer.group_metadata().generation_id > 0
    assert offsets(records) == {0: list(range(10)), 1: list(range(10))}
    assert [entry for entry in journal.entries if entry[1]] == [("assigned", frozenset({0, 1})), ("revoked", frozenset({0, 1}))]
    assert group.committed() == {0: 10, 1: 10}


def _blocking(group: Group) -> blocking.KafkaConsumer[Any, Any]:
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
    return blocking.KafkaConsumer(bootstrap_servers=group.cluster.bootstrap_servers, **group.options(), **options)


@both
async def test_two_blocking_members_in_threads_share_the_partitions(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 4)
    expected = kafka_cluster3.produce(topic, 200, partitions=4).offsets
    group = new_group(kafka_cluster3, protocol)
    enough = threading.Event()
    found: dict[int, set[int]] = {partition: set() for partition in expected}

    def consume() -> None:
        with _blocking(group) as consumer:
            consumer.subscribe([topic])
            while not enough.is_set():
                for record in flat(consumer.getmany(timeout_ms=200)):
                    found[record.partition].add(record.offset)
                if all(len(numbers) == 50 for numbers in found.values()):
                    enough.set()

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(asyncio.to_thread(consume), asyncio.to_thread(consume))
    assert {partition: sorted(numbers) for partition, numbers in found.items()} == expected


@both
async def test_idle_members_rest_with_and_without_partitions(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    group = new_group(kafka_cluster3, protocol)
    async with several(group, 2, topic, fetch_max_wait_ms=500) as members:
        await until(lambda: all(member.consumer.state is ConsumerState.STEADY for member in members))
        await until(lambda: sorted(len(member.owned) for member in members) == [0, 1])
        before = [member.consumer.statistics().wake_ups for member in members]
        async with make(kafka_cluster3, topic) as other:
            await nothing_more(other)
        turns = [member.consumer.statistics().wake_ups - count for member, count in zip(members, before, strict=True)]
        assert max(turns) < 50, f"turns of the background loops in about half a second: {turns}"
