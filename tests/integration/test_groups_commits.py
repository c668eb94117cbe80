"""Commits of a group: every form, metadata, lost partitions, what stop() commits, and when nothing may be committed."""

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import CommitFailedError, IllegalOperation, IllegalStateError, UnknownTopicOrPartitionError
from tests.brokers import KafkaCluster

from .groups import both, new_group, reading, shared
from .tools import Consumer, all_of, eventually, flat, make, new_topic, nothing_more, offsets, read, until

pytestmark = pytest.mark.brokers


@both
async def test_commits_in_every_form_are_read_back(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 3)
    zero, one, two = all_of(topic, 3)
    kafka_cluster3.produce(topic, 30, partitions=3)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic, enable_auto_commit=False) as consumer:
        assert await consumer.committed_offsets() == {zero: None, one: None, two: None}
        await read(consumer, 30)
        await consumer.commit({zero: 4, one: (5, "note"), two: OffsetAndMetadata(6, "all", 0)})
        assert await consumer.committed_offsets() == {
            zero: OffsetAndMetadata(4),
            one: OffsetAndMetadata(5, "note"),
            two: OffsetAndMetadata(6, "all", 0),
        }
        assert await consumer.committed(one) == 5
        assert await consumer.seek_to_committed(zero, two) == {zero: 4, two: 6}
        assert offsets(await read(consumer, 10)) == {0: [4, 5, 6, 7, 8, 9], 2: [6, 7, 8, 9]}
        await consumer.commit()
        assert group.committed() == {0: 10, 1: 10, 2: 10}
        epochs = {partition: found and found.leader_epoch for partition, found in (await consumer.committed_offsets()).items()}
        assert epochs == {zero: 0, one: 0, two: 0}
        await consumer.commit({zero: 10, one: (10, "note"), two: 9})
        assert await consumer.committed_offsets() == {
            zero: OffsetAndMetadata(10, "", 0),
            one: OffsetAndMetadata(10, "note", 0),
            two: OffsetAndMetadata(9),
        }
        with pytest.raises(ValueError, match="not empty"):
            await consumer.commit({})
        with pytest.raises(IllegalStateError, match="not assigned"):
            await consumer.commit({TopicPartition(topic, 7): 1})
        with pytest.raises(ValueError, match="-1"):
            await consumer.commit({zero: -1})
    assert group.committed() == {0: 10, 1: 10, 2: 9}


async def test_commits_need_a_group(kafka_cluster3: KafkaCluster) -> None:
    topic = new_topic(kafka_cluster3)
    async with make(kafka_cluster3, topic) as consumer:
        with pytest.raises(IllegalOperation):
            await consumer.commit()
        with pytest.raises(IllegalOperation):
            await consumer.committed(TopicPartition(topic, 0))


@both
async def test_a_commit_of_lost_partitions_commits_the_rest_and_names_them(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, protocol)
    async with reading(group, topic, enable_auto_commit=False) as old:
        await shared([old], 2)
        async with reading(group, topic, enable_auto_commit=False) as new:
            await shared([old, new], 2)
            (kept,), (gone,) = old.owned, new.owned
            with pytest.raises(CommitFailedError, match=f"{topic}-{gone}") as refused:
                await old.consumer.commit({TopicPartition(topic, kept): 3, TopicPartition(topic, gone): 4})
            assert refused.value.lost == (TopicPartition(topic, gone),)
            assert group.committed() == {kept: 3}


@both
async def test_stop_commits_what_was_handed_out_and_an_exception_what_was_done(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 30)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic, auto_commit_interval_ms=3_600_000) as consumer:
        await consumer.getmany(timeout_ms=10_000, max_records=10)
    assert group.committed() == {0: 10}
    with pytest.raises(ZeroDivisionError):
        await _fail_after_two_batches(group.member(topic, auto_commit_interval_ms=3_600_000))
    assert group.committed() == {0: 15}
    with pytest.raises(ZeroDivisionError):
        await _fail_at(group.member(topic, auto_commit_interval_ms=3_600_000), 17)
    assert group.committed() == {0: 17}
    async with group.member(topic, enable_auto_commit=False) as consumer:
        await read(consumer, 13)
    assert group.committed() == {0: 17}


async def _fail_after_two_batches(starting: Consumer) -> None:
    async with starting as consumer:
        first, second = [await consumer.getmany(timeout_ms=10_000, max_records=5) for _ in range(2)]
        assert offsets(flat(first)) == {0: [10, 11, 12, 13, 14]}
        assert offsets(flat(second)) == {0: [15, 16, 17, 18, 19]}
        raise ZeroDivisionError


async def _fail_at(starting: Consumer, offset: int) -> None:
    async with starting as consumer:
        async for record in consumer:
            if record.offset == offset:
                raise ZeroDivisionError


@both
async def test_a_revocation_commits_what_was_consumed(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3, 2)
    kafka_cluster3.produce(topic, 20, partitions=2)
    group = new_group(kafka_cluster3, protocol)
    async with reading(group, topic, auto_commit_interval_ms=3_600_000) as old:
        await until(lambda: len(old.records) == 20)
        async with reading(group, topic) as new:
            await shared([old, new], 2)
            (gone,) = new.owned
            assert group.committed()[gone] == 10
            assert await new.consumer.position(TopicPartition(topic, gone)) == 10
            assert not new.records


async def test_a_topic_that_was_deleted_holds_up_no_commit_of_another_one(kafka_cluster3: KafkaCluster) -> None:
    kept, gone = new_topic(kafka_cluster3), new_topic(kafka_cluster3)
    for topic in (kept, gone):
        kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, "classic")
    consumer = make(kafka_cluster3, group_id=group.name, auto_commit_interval_ms=200)
    async with consumer:
        consumer.assign([TopicPartition(kept, 0), TopicPartition(gone, 0)])
        await read(consumer, 20)
        positions = {TopicPartition(topic, 0): 9 for topic in (kept, gone)}
        await consumer.commit(positions)  # so that there is something new to commit of both
        kafka_cluster3.delete_topics(gone)

        async def refused() -> bool:
            """Whether the brokers know of it: the topic's deletion reaches them one by one."""
            call = asyncio.create_task(consumer.commit(positions))
            done, _ = await asyncio.wait([call], timeout=0.5)
            call.cancel()
            return not done

        await eventually(refused)
        await until(lambda: kafka_cluster3.committed(group.name).get((kept, 0)) == 9)
        kafka_cluster3.produce(kept, 5, start=10)

        async def read_on() -> bool:
            await _whatever(consumer.getmany(TopicPartition(kept, 0), timeout_ms=200))
            return kafka_cluster3.committed(group.name).get((kept, 0)) == 15

        await eventually(read_on)
        kafka_cluster3.produce(kept, 5, start=15)
        await eventually(lambda: _position(consumer, TopicPartition(kept, 0), 20))
        before = time.monotonic()
    assert time.monotonic() - before < 5
    assert kafka_cluster3.committed(group.name)[kept, 0] == 20


async def _whatever(call: Awaitable[object]) -> None:
    """Await it; that the other topic does not exist any more is said by reads in between."""
    with suppress(UnknownTopicOrPartitionError):
        await call


async def _position(consumer: Consumer, partition: TopicPartition, offset: int) -> bool:
    await _whatever(consumer.getmany(partition, timeout_ms=200))
    return await consumer.position(partition) == offset


@both
async def test_many_commits_at_once_end_with_the_last(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    partition = TopicPartition(topic, 0)
    kafka_cluster3.produce(topic, 100)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic, enable_auto_commit=False) as consumer:
        await read(consumer, 100)
        await asyncio.gather(*(consumer.commit({partition: offset}) for offset in range(1, 101)))
        assert await consumer.committed(partition) == 100


@both
async def test_a_group_without_commits_follows_the_reset_policy(kafka_cluster3: KafkaCluster, protocol: str) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 10)
    group = new_group(kafka_cluster3, protocol)
    async with group.member(topic, auto_offset_reset="latest", enable_auto_commit=False) as consumer:
        await nothing_more(consumer)
        assert await consumer.position(TopicPartition(topic, 0)) == 10
    async with group.member(topic, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}
