"""Rebalance listeners: plain and async, with seeks, positions, pauses, commits, errors and cancellations inside."""

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import Any

import pytest
from attrs import define, field

from kafka_async import ConsumerRebalanceListener, ConsumerState, TopicPartition
from tests.brokers import KafkaCluster

from .groups import Journal, both, exactly, new_group, reading, shared
from .tools import PATIENCE, Consumer, all_of, flat, new_topic, offsets, read, until

pytestmark = pytest.mark.brokers


@both
async def test_a_listener_seeks_pauses_asks_and_commits(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 2)
    kafka_cluster3.produce(topic, 20, partitions=2)
    group = new_group(kafka_cluster3, protocol)
    consumer = group.member(enable_auto_commit=False)
    found: dict[int, tuple[int, int | None]] = {}

    class Busy(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            for partition in assigned:
                found[partition.partition] = (await consumer.position(partition), await consumer.committed(partition))
                consumer.seek(partition, 5 + partition.partition)
            await consumer.commit(dict.fromkeys(assigned, 3))
            consumer.pause(TopicPartition(topic, 1))

        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            await consumer.commit()

    consumer.subscribe([topic], listener=Busy())
    async with consumer:
        assert found == {0: (0, None), 1: (0, None)}
        assert group.committed() == {0: 3, 1: 3}
        assert offsets(await read(consumer, 5)) == {0: [5, 6, 7, 8, 9]}
        consumer.resume(TopicPartition(topic, 1))
        assert offsets(await read(consumer, 4)) == {1: [6, 7, 8, 9]}
    assert group.committed() == {0: 10, 1: 10}


@both
async def test_the_old_owner_lets_go_before_the_new_one_takes_over(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 4)
    kafka_cluster3.produce(topic, 40, partitions=4)
    group = new_group(kafka_cluster3, protocol)
    order: list[str] = []

    class Slow(Journal):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:  # type: ignore[override]  # either
            Journal.on_partitions_revoked(self, revoked)
            order.append("old owner lets go")
            await asyncio.sleep(0.5)  # as long as a commit to a database may take
            order.append("old owner has let go")

    class Next(Journal):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            Journal.on_partitions_assigned(self, assigned)
            if assigned:
                order.append("new owner takes over")

    async with reading(group, topic, journal=Slow()) as old:
        await shared([old], 4)
        await until(lambda: len(old.records) == 40)
        async with reading(group, topic, journal=Next()) as new:
            await shared([old, new], 4)
            assert order == ["old owner lets go", "old owner has let go", "new owner takes over"]
            more = kafka_cluster3.produce(topic, 40, partitions=4).offsets
            await exactly([old, new], {partition: list(range(10)) + more[partition] for partition in more})


@both
async def test_a_slow_listener_of_another_member_delays_no_commit_and_no_look_up(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    """In the classic protocol the coordinator holds the JoinGroup of whoever is quick until all have joined (KIP-429)."""
    topic = new_topic(kafka_cluster3, 2)
    options: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)} if protocol == "classic" else {}
    group = new_group(kafka_cluster3, protocol)
    entered, enough = asyncio.Event(), asyncio.Event()

    class Slow(Journal):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:  # type: ignore[override]  # either
            Journal.on_partitions_assigned(self, assigned)
            if assigned:
                entered.set()
                await enough.wait()

    async with reading(group, topic, **options) as quick, AsyncExitStack() as stack:
        await shared([quick], 2)
        starting = asyncio.create_task(stack.enter_async_context(reading(group, topic, journal=Slow(), **options)))
        try:
            await asyncio.wait_for(entered.wait(), PATIENCE)
            quick.consumer.enforce_rebalance()
            if protocol == "classic":
                await until(lambda: quick.consumer.state is ConsumerState.REBALANCING)
            (kept,) = quick.consumer.assignment()
            async with asyncio.timeout(15):
                for offset in range(5):
                    await quick.consumer.commit({kept: offset})
                    assert await quick.consumer.committed(kept) == offset
        finally:
            enough.set()
            slow = await starting
        await shared([quick, slow], 2)


@both
@pytest.mark.parametrize("where", ["assigned", "revoked"])
async def test_what_a_listener_raises_reaches_the_caller_and_the_rebalance_is_done(
    kafka_cluster3: KafkaCluster, protocol: str, where: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol)

    class Failing(Journal):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            Journal.on_partitions_assigned(self, assigned)
            if where == "assigned" and len(self.entries) > 1:
                raise ZeroDivisionError("assigned")

        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            Journal.on_partitions_revoked(self, revoked)
            if where == "revoked":
                raise ZeroDivisionError("revoked")

    async with reading(group, topic, journal=Failing()) as member:
        await shared([member], 2)
        async with reading(group, topic) as other:
            await shared([member, other], 2)
        await shared([member], 2)
        expected = kafka_cluster3.produce(topic, 10, partitions=2).offsets
        await exactly([member], expected)
        assert {str(error) for error in member.raised(ZeroDivisionError)} == {where}


@define(eq=False)
class _CutOff(ConsumerRebalanceListener):
    """Waits in its call-back until it is let go, while the read call is cancelled."""

    consumer: Consumer
    calls: list[frozenset[TopicPartition]] = field(factory=list)
    entered: asyncio.Event = field(factory=asyncio.Event)
    let_go: asyncio.Event = field(factory=asyncio.Event)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        if not assigned:
            return  # what the group says first after a change of subscription, in the consumer protocol
        self.calls.append(frozenset(assigned))
        self.entered.set()
        await self.let_go.wait()
        for partition in assigned:
            self.consumer.seek(partition, 8)


@both
async def test_a_call_back_goes_on_when_its_read_is_cancelled_and_is_not_called_again(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    first, topic = new_topic(kafka_cluster3), new_topic(kafka_cluster3, 2)
    kafka_cluster3.produce(topic, 20, partitions=2)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(first) as consumer:
        listener = _CutOff(consumer)
        consumer.subscribe([topic], listener=listener)
        cut = asyncio.create_task(consumer.getmany(timeout_ms=30_000))
        await asyncio.wait_for(listener.entered.wait(), PATIENCE)
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        listener.let_go.set()
        assert offsets(await read(consumer, 4)) == {0: [8, 9], 1: [8, 9]}
        assert listener.calls == [frozenset(all_of(topic, 2))]


@both
async def test_a_listener_may_unsubscribe_and_subscribe(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    first, second = new_topic(kafka_cluster3), new_topic(kafka_cluster3)
    kafka_cluster3.produce(first, 5)
    kafka_cluster3.produce(second, 5)
    group = new_group(kafka_cluster3, protocol)
    async with group.member() as consumer:

        class Moving(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
                consumer.unsubscribe()
                consumer.subscribe([second])

        consumer.subscribe([first], listener=Moving())
        records = await read(consumer, 5)
        assert {record.topic for record in records} == {second}
        assert consumer.assignment() == {TopicPartition(second, 0)}


@both
async def test_no_record_of_a_revoked_partition_is_returned_from_inside_the_listener(
    kafka_cluster3: KafkaCluster, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 2)
    kafka_cluster3.produce(topic, 2000, partitions=2)
    group = new_group(kafka_cluster3, protocol)
    inside: list[tuple[Collection[TopicPartition], set[TopicPartition]]] = []
    async with group.member(max_poll_records=10) as consumer:

        class Reading(ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
                inside.append((revoked, set(await consumer.getmany(timeout_ms=200))))

        consumer.subscribe([topic], listener=Reading())
        assert flat(await consumer.getmany(timeout_ms=10_000))
        other = group.member(topic, enable_auto_commit=False)
        starting = asyncio.create_task(other.start())
        async with asyncio.timeout(PATIENCE):
            while not inside or not starting.done():
                await consumer.getmany(timeout_ms=100)
        await other.stop()
        revoked, returned = inside[0]
        assert revoked
        assert not returned & set(revoked)
