"""Reading record by record from a real broker: what is called between two records, and what happens between them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, TopicPartition
from kafka_async.errors import DeserializationError
from tests.brokers import KafkaCluster

from .groups import Journal, both, new_group, reading
from .tools import PATIENCE, all_of, at_once, new_topic, until

pytestmark = pytest.mark.brokers

both_backgrounds = pytest.mark.parametrize("background", ["task", "thread"])
both_backgrounds_at_once = at_once("background", ["task", "thread"])
EVERY = 5
"""Each record whose number this divides is poison."""


def _refuse(data: bytes) -> int:
    number = int(data)
    if number % EVERY == EVERY - 1:
        raise ValueError(f"{number} is poison")
    return number


async def _getone(consumer: Any) -> list[Any]:
    return [await consumer.getone()]


async def _iterate(consumer: Any) -> list[Any]:
    return [await anext(aiter(consumer))]


async def _getmany(consumer: Any) -> list[Any]:
    batch = await consumer.getmany(timeout_ms=1000, max_records=3)
    return [record for records in batch.values() for record in records]


WAYS: dict[str, Callable[[Any], Awaitable[list[Any]]]] = {"getone": _getone, "async for": _iterate, "getmany": _getmany}


def _calls(consumer: Any, partition: TopicPartition, other: TopicPartition) -> list[Callable[[], Any]]:
    return [
        consumer.commit,
        lambda: consumer.position(partition),
        consumer.statistics,
        lambda: consumer.current_lag(partition),
        consumer.next_offsets,
        lambda: consumer.pause(other),
        lambda: consumer.seek(other, 0),
        lambda: consumer.committed(partition),
        consumer.metrics,
    ]


@both
@both_backgrounds
@pytest.mark.parametrize("way", WAYS)
async def test_a_poison_record_is_raised_once_whatever_is_called(
    kafka44: KafkaCluster, protocol: str, background: str, way: str
) -> None:
    topic = new_topic(kafka44, 2)
    await asyncio.to_thread(kafka44.produce, topic, 100, partitions=1, values=lambda index: b"%d" % index)
    group = new_group(kafka44, protocol)
    partition, other = all_of(topic, 2)
    seen: list[Any] = []
    consumer: Any = group.member(topic, background=background, value_deserializer=_refuse, fetch_max_wait_ms=50)
    async with consumer:
        calls = _calls(consumer, partition, other)
        turn = 0
        async with asyncio.timeout(PATIENCE):
            while len(seen) < 100:
                try:
                    seen += [record.offset for record in await WAYS[way](consumer)]
                except DeserializationError as error:
                    seen.append(-error.record.offset)
                result = calls[turn % len(calls)]()
                turn += 1
                if asyncio.iscoroutine(result):
                    await result
    assert seen == [-offset if offset % EVERY == EVERY - 1 else offset for offset in range(100)]
    assert group.committed()[0] == 100


@both
@both_backgrounds
async def test_a_commit_after_each_record_deserializes_each_record_once(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 300)
    counts = {"deserialized": 0, "shown": 0}

    def deserialize(data: bytes) -> bytes:
        counts["deserialized"] += 1
        return data

    class Counting:
        def on_consume(self, records: Any) -> Any:
            counts["shown"] += sum(map(len, records.values()))
            return records

        def on_commit(self, offsets: Any) -> None:
            """Not what is counted."""

    options: dict[str, Any] = {"background": background, "value_deserializer": deserialize, "interceptors": (Counting(),)}
    offsets = []
    async with new_group(kafka44, protocol).member(topic, **options) as consumer:
        async for record in consumer:
            offsets.append(record.offset)
            await consumer.commit()
            if len(offsets) == 300:
                break
    assert offsets == list(range(300))
    assert counts == {"deserialized": 300, "shown": 300}


@both
@both_backgrounds_at_once
async def test_a_handler_that_turns_slow_is_handed_nothing_that_another_member_owns(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    """And what it has done is committed at its interval, and a rebalance does not wait for the end of its batch."""
    topic = new_topic(kafka44, 4)
    await asyncio.to_thread(kafka44.produce, topic, 8000, partitions=4)
    group = new_group(kafka44, protocol)
    taken_at: dict[int, float] = {}
    late: list[tuple[int, int]] = []
    clock = asyncio.get_running_loop().time
    consumer = group.member(topic, background=background, auto_commit_interval_ms=500)
    slow = asyncio.Event()
    progress: list[int] = []

    class Taking(Journal):
        def on_partitions_assigned(self, assigned: Any) -> None:
            taken_at.update(dict.fromkeys((tp.partition for tp in assigned), clock()))

    async def handle() -> None:
        async for record in consumer:
            if record.partition in taken_at:
                late.append((record.partition, record.offset))
            progress.append(record.offset)
            if len(progress) > 3000:  # in the middle of what was fetched
                slow.set()
                await asyncio.sleep(0.1)

    async with consumer:
        handling = asyncio.create_task(handle())
        try:
            await slow.wait()
            await asyncio.sleep(0.5)
            before = sum(group.committed().values())
            began = clock()
            await until(lambda: sum(group.committed().values()) > before, 5)
            async with reading(group, topic, journal=Taking()):
                await until(lambda: len(taken_at) == 2, 15)
                assert clock() - began < 15
                await asyncio.sleep(3)
        finally:
            handling.cancel()
            await asyncio.wait([handling])
    assert not late


async def test_a_member_that_was_frozen_longer_than_its_session_hands_out_nothing_before_it_has_asked(
    kafka44: KafkaCluster,
) -> None:
    """With the background in a thread of its own the session is kept meanwhile."""
    topic = new_topic(kafka44, 2)
    await asyncio.to_thread(kafka44.produce, topic, 2000, partitions=2)
    group = new_group(kafka44, "classic", session_ms=6000)
    told: list[str] = []

    class RecordingListener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            told.append("revoked")

        def on_partitions_lost(self, lost: Any) -> None:
            told.append("lost")

    consumer = group.member(background="task")
    consumer.subscribe([topic], listener=RecordingListener())
    async with consumer:
        records = aiter(consumer)
        for _ in range(300):
            await anext(records)
        time.sleep(7)  # noqa: ASYNC251  # the process is frozen
        offsets = []
        for _ in range(20):
            offsets.append(await anext(records))
            assert told, f"{offsets[-1]} came although the session may be over"
