"""At least once, as an experiment: auto-commit is never ahead of what earlier reads returned, however one reads."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

import pytest

from kafka_async import TopicPartition
from tests.brokers import KafkaCluster

from .groups import Group, both, new_group
from .tools import Consumer, Record, flat, new_topic

pytestmark = pytest.mark.brokers

READS = 600


async def _by_getone(consumer: Consumer) -> AsyncGenerator[Record, None]:
    while True:
        yield await consumer.getone()


async def _by_getmany(consumer: Consumer) -> AsyncGenerator[Record, None]:
    while True:
        for record in flat(await consumer.getmany(timeout_ms=1000)):
            yield record


async def _by_iteration(consumer: Consumer) -> AsyncGenerator[Record, None]:
    async for record in consumer:
        yield record


@both
async def test_auto_commit_is_never_ahead_of_what_earlier_reads_returned(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    ways = (_by_getone, _by_getmany, _by_iteration)
    async with asyncio.TaskGroup() as reading:
        for way in ways:
            reading.create_task(_read_and_watch(new_group(kafka_cluster3, protocol), way))


async def _read_and_watch(group: Group, way: Callable[[Consumer], AsyncGenerator[Record, None]]) -> None:
    topic = new_topic(group.cluster)
    partition = TopicPartition(topic, 0)
    group.cluster.produce(topic, READS)
    ahead: list[tuple[int, int]] = []
    times: list[float] = []
    committed = None
    async with (
        group.outsider() as outsider,
        group.member(topic, max_poll_records=1, auto_commit_interval_ms=1) as consumer,
    ):
        records = way(consumer)
        for expected in range(READS):
            record = await anext(records)
            assert record.offset == expected
            times.append(time.monotonic())
            committed = await outsider.committed(partition)  # before the record is worked off
            if committed is not None and committed > record.offset:
                ahead.append((record.offset, committed))
        await records.aclose()
    assert not ahead, f"{way.__name__}: ahead in {len(ahead)} of {READS} reads, first (record, committed): {ahead[:3]}"
    assert committed is not None, f"{way.__name__}: auto-commit did nothing"
    late = times[-1] - times[min(committed, READS - 1)]
    assert late < 2, f"{way.__name__}: auto-commit fell {late:.1f} s behind, at {committed} of {READS}"
    assert group.committed() == {0: READS}, way.__name__
