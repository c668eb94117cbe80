"""Handlers side by side on a real broker: topics with gaps, topics made anew, metadata of others, and where the loops run."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest
import trio

from kafka_async import KafkaConsumer, OffsetAndMetadata, Retry, TopicPartition
from kafka_async.application.processing.encoding import is_ours
from tests.brokers import KafkaCluster

from .groups import both, new_group
from .test_processing_groups import Handled, fill, processed, up_to
from .tools import PATIENCE, Record, make, new_topic, read, until

pytestmark = pytest.mark.brokers


@both
async def test_the_lag_of_a_compacted_topic_reaches_0(kafka44: KafkaCluster, protocol: str) -> None:
    topic = new_topic(
        kafka44, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="1000", min_compaction_lag_ms="0"
    )
    for start in range(0, 200, 50):
        kafka44.produce(topic, 50, start=start, keys=lambda index: b"k%d" % (index % 10))
        await asyncio.sleep(1.1)
    kafka44.produce(topic, 1, keys=lambda _: b"last")
    deadline = time.monotonic() + PATIENCE
    while True:
        async with make(kafka44, topic) as reader:
            found = [record.offset for record in await read(reader, 1)]
        if len(found) < 150:
            break
        assert time.monotonic() < deadline, "nothing was compacted"
    group, handled = new_group(kafka44, protocol), Handled(up_to(0.02))
    async with processed(group, topic, handled, concurrency=7) as (consumer, _):
        end = (await consumer.end_offsets(consumer.assignment())).popitem()[1]
        await until(lambda: group.committed() == {0: end})
    assert end == 201
    assert len(handled.done) < 150, "there are gaps"


@both
async def test_what_was_done_of_a_topic_is_not_believed_of_the_one_that_took_its_name(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 100, 100, 1)
    group = new_group(kafka44, protocol)
    first = Handled(lambda record: 1_000 if record.offset == 0 else 0.0)
    async with processed(group, topic, first, order="none", drain_timeout_ms=0):
        await until(lambda: len(first.done) == 99)
    async with group.outsider() as outsider:
        kept = (await outsider.committed_offsets(TopicPartition(topic, 0)))[TopicPartition(topic, 0)]
    assert kept is not None
    assert kept.offset == 0
    assert is_ours(kept.metadata)
    kafka44.delete_topics(topic)
    kafka44.create_topic(topic, 1)
    kafka44.produce(topic, 100)
    async with group.outsider() as outsider:
        await outsider.describe_topics(topic)
        outsider.assign([TopicPartition(topic, 0)])
        await outsider.commit({TopicPartition(topic, 0): kept})  # a broker may have forgotten it with the topic
    again = Handled(lambda record: 0.0)
    async with processed(group, topic, again):
        await until(lambda: len(again.done) == 100)
    assert group.committed() == {0: 100}


@both
async def test_a_topic_that_is_deleted_under_its_handler_lets_the_other_one_go_on(kafka44: KafkaCluster, protocol: str) -> None:
    topic, deleted = fill(kafka44, 10, 10, 1), fill(kafka44, 1, 1, 1)
    group = new_group(kafka44, protocol)
    seen: list[float] = []
    go_on, began = asyncio.Event(), asyncio.Event()

    async def handle(record: Record) -> None:
        if record.topic == deleted:
            began.set()
            await go_on.wait()
        seen.append(time.monotonic())

    async with (
        group.member(topic, deleted, metadata_max_age_ms=1_000) as consumer,
        consumer.processing(handle, drain_timeout_ms=600_000) as run,
    ):
        await asyncio.wait_for(began.wait(), PATIENCE)
        kafka44.delete_topics(deleted)
        await until(lambda: not any(tp.topic == deleted for tp in consumer.assignment()))
        assert not go_on.is_set(), "the handler still runs"
        kafka44.produce(topic, 10, start=10)
        await until(lambda: len(seen) == 20)
        go_on.set()
        await until(lambda: run.statistics().late_results == 1)


@both
async def test_metadata_of_others_is_left_out(kafka44: KafkaCluster, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = fill(kafka44, 30, 10, 1)
    group, partition = new_group(kafka44, protocol), TopicPartition(topic, 0)
    async with group.outsider() as outsider:
        outsider.assign([partition])
        await outsider.commit({partition: OffsetAndMetadata(10, "AgAAAYAAAA==")})
    handled = Handled(lambda record: 0.0)
    with caplog.at_level("INFO", "kafka_async"):
        async with processed(group, topic, handled):
            await until(lambda: len(handled.done) == 20)
    assert group.committed() == {0: 30}
    assert sum("metadata of another program" in line for line in caplog.messages) == 1


@both
async def test_on_a_thread_of_its_own_a_handler_that_blocks_costs_no_membership(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 40, 20, 2)
    group = new_group(kafka44, protocol, session_ms=6_000)
    done: list[int] = []

    async def handle(record: Record) -> None:
        if len(done) == 5:
            time.sleep(9)  # noqa: ASYNC251 - a handler that blocks for longer than the session
        done.append(record.offset)

    async with processed(group, topic, handle, options={"background": "thread"}) as (consumer, run):
        before = consumer.group_metadata()
        await until(lambda: len(done) == 40)
        await run.drain()
        assert consumer.group_metadata() == before
    assert group.committed() == {0: 20, 1: 20}


@both
def test_on_trio_it_is_the_same(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 2_000, 100, 2)
    group = new_group(kafka44, protocol)
    seen: dict[tuple[int, bytes], list[int]] = {}
    calls: list[int] = []

    async def handle(record: Record) -> None:
        calls.append(record.offset)
        await trio.sleep(record.offset % 7 / 1_000)
        if record.offset == 11 and calls.count(11) <= 2:
            raise OSError
        seen.setdefault((record.partition, record.key), []).append(record.offset)

    async def main() -> None:
        with trio.fail_after(PATIENCE):
            policy = Retry(attempts=3, delay=0.1)
            async with group.member(topic) as consumer, consumer.processing(handle, concurrency=30, retry=policy) as run:
                while sum(map(len, seen.values())) < 2_000:  # noqa: ASYNC110 - the handlers are the event
                    await trio.sleep(0.05)
                await run.drain()

    trio.run(main)
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert group.committed() == {0: 1_000, 1: 1_000}


@both
async def test_several_consumers_of_one_process_share_the_work(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 4_000, 200)
    group, handled = new_group(kafka44, protocol), Handled(up_to(0.02))
    other, alone = new_group(kafka44, protocol), Handled(lambda record: 0.0)
    async with (
        processed(group, topic, handled, concurrency=20) as (_, first),
        processed(group, topic, handled, concurrency=20) as (_, second),
        processed(other, topic, alone),
    ):
        await until(lambda: len(set(handled.done)) == 4_000)
        await until(lambda: len(alone.done) == 4_000)
        await first.drain()
        await second.drain()
    assert len(handled.started) == 4_000
    assert first.statistics().handled + second.statistics().handled == 4_000
    assert handled.in_order()
    assert group.committed() == other.committed() == dict.fromkeys(range(4), 1_000)


@both
async def test_in_a_thread_that_does_not_end_a_result_after_the_session_is_late(kafka44: KafkaCluster, protocol: str) -> None:
    topic = fill(kafka44, 1, 1, 1)
    group, release, calls = new_group(kafka44, protocol, session_ms=6_000), threading.Event(), list[int]()

    def handle(record: Record) -> None:
        calls.append(record.offset)
        if len(calls) == 1:
            release.wait(60)

    async with processed(group, topic, handle, drain_timeout_ms=500) as (_, run):
        await until(lambda: len(calls) == 1)
        time.sleep(9)  # noqa: ASYNC251 - a loop that is blocked for longer than the session
        await until(lambda: len(calls) == 2)
        await until(lambda: run.statistics().handled == 1)
        release.set()
        await until(lambda: run.statistics().late_results == 1)
    assert group.committed() == {0: 1}


@pytest.mark.parametrize("how", ["getmany", "getone", "async for", "commit"])
async def test_two_reads_at_once_are_refused(kafka44: KafkaCluster, how: str) -> None:
    topic = fill(kafka44, 10, 10, 1)
    group, handled = new_group(kafka44, "consumer"), Handled(lambda record: 0.0)

    async def iterate(consumer: "KafkaConsumer[Any, Any]") -> None:
        async for _ in consumer:
            return

    async with processed(group, topic, handled) as (consumer, _):
        calls: dict[str, Any] = {
            "getmany": consumer.getmany,
            "getone": consumer.getone,
            "commit": consumer.commit,
            "async for": partial(iterate, consumer),
        }
        with pytest.raises(Exception, match=r"process\(\)"):
            await calls[how]()
        await until(lambda: len(handled.done) == 10)
