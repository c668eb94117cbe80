"""Members that are started and not read from yet: they hold nobody up."""

import time
from collections import Counter
from collections.abc import Iterable

import pytest

from kafka_async.errors import BackgroundLoopError
from kafka_async.trace import Notice, TraceEvent
from tests.brokers import KafkaCluster

from .groups import both, new_group
from .tools import Consumer, Record, flat, new_topic, offsets, read, until

pytestmark = pytest.mark.brokers

UNTIMELY = 20.0
"""Seconds: a start that waits for others does so for ``request_timeout_ms``, which is longer."""


async def read_in_turn(members: Iterable[Consumer], count: int) -> list[Record]:
    """Read from one member after the other, again and again, until so many records came."""
    records: list[Record] = []
    while len(records) < count:
        for member in members:
            records += flat(await member.getmany(timeout_ms=100))
    return records


@both
async def test_one_task_starts_two_members_and_then_reads_from_one_after_the_other(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka44, 2)
    produced = kafka44.produce(topic, 200, partitions=2).offsets
    group = new_group(kafka44, protocol)
    async with group.member(topic, request_timeout_ms=30_000) as second:
        first = group.member(topic, request_timeout_ms=30_000)
        began = time.monotonic()
        await first.start()
        assert time.monotonic() - began < UNTIMELY
        assert group.committed() == {}
        records = [await first.getone() for _ in range(10)]
        await first.stop()
        records += await read(second, 190)
    found = {partition: sorted(numbers) for partition, numbers in offsets(records).items()}
    assert found == produced


@pytest.mark.parametrize("background", ["task", "thread"])
@both
async def test_a_start_does_not_wait_for_members_that_are_not_read_from(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44, 6)
    produced = kafka44.produce(topic, 60, partitions=6).offsets
    group = new_group(kafka44, protocol)
    options = {"background": background, "request_timeout_ms": 30_000, "enable_auto_commit": False}
    began = time.monotonic()
    async with (
        group.member(topic, **options) as one,
        group.member(topic, **options) as two,
        group.member(topic, **options) as three,
    ):
        assert time.monotonic() - began < UNTIMELY
        members = (one, two, three)
        await until(lambda: [len(member.assignment()) for member in members] == [2, 2, 2])
        assert len(set[object]().union(*(member.assignment() for member in members))) == 6
        assert group.committed() == {}
        records = await read_in_turn(members, 60)
    assert {partition: sorted(numbers) for partition, numbers in offsets(records).items()} == produced
    assert max(Counter((record.partition, record.offset) for record in records).values()) == 1


@pytest.mark.parametrize("background", ["task", "thread"])
@both
async def test_what_a_trace_listener_raises_in_such_a_rebalance_reaches_the_next_call(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = new_topic(kafka44, 2)
    produced = kafka44.produce(topic, 20, partitions=2).offsets
    group = new_group(kafka44, protocol)
    raised = False

    def trace(event: TraceEvent) -> None:
        nonlocal raised
        if not raised and isinstance(event, Notice) and event.text.startswith("revoked"):
            raised = True
            raise ZeroDivisionError("trace")

    options = {"background": background, "request_timeout_ms": 30_000}
    async with group.member(topic, trace=trace, **options) as one, group.member(topic, **options) as two:
        await until(lambda: raised)
        assert one.alive
        with pytest.raises(BackgroundLoopError) as error:
            await one.getmany(timeout_ms=0)
        assert isinstance(error.value.__cause__, ZeroDivisionError)
        records = await read_in_turn((one, two), 20)
    assert {partition: sorted(numbers) for partition, numbers in offsets(records).items()} == produced
