"""Where a consumer reads: positions, seeks, look-ups, resets, watermarks, pauses."""

import asyncio
import time

import pytest
from confluent_kafka import TopicPartition as AdminPartition

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tests.brokers import KafkaCluster

from .tools import PATIENCE, all_of, make, new_topic, nothing_more, offsets, read, until

pytestmark = pytest.mark.brokers

BEGAN_MS = 1_700_000_000_000


def raise_log_start(cluster: KafkaCluster, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records before ``offset`` (DeleteRecords)."""
    wanted = AdminPartition(topic, partition, offset)
    cluster.admin.delete_records([wanted])[wanted].result()


async def test_position_is_the_next_offset_to_be_returned(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20)
    partition = TopicPartition(topic, 0)
    async with make(kafka44, topic) as consumer:
        assert await consumer.position(partition) == 0
        await consumer.getmany(timeout_ms=5000, max_records=7)
        assert await consumer.position(partition) == 7
        await consumer.getone()
        assert await consumer.position(partition) == 8
        async for record in consumer:
            if record.offset == 12:
                break
        assert await consumer.position(partition) == 13
        assert (await consumer.getone()).offset == 13
        with pytest.raises(IllegalStateError, match="not assigned"):
            await consumer.position(TopicPartition(topic, 1))


async def test_seek_goes_back_and_forth_whatever_is_buffered(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 1000, codec="lz4")
    partition = TopicPartition(topic, 0)
    async with make(kafka44, topic) as consumer:
        for target in (500, 3, 999, 0, 501, 500):
            consumer.seek(partition, target)
            assert await consumer.position(partition) == target
            assert (await consumer.getone()).offset == target
            records = (await consumer.getmany(timeout_ms=5000, max_records=5)).get(partition, []) if target < 999 else []
            assert [record.offset for record in records] == list(range(target + 1, target + 1 + len(records)))
        consumer.seek(partition, OffsetAndMetadata(700, "", 0))
        assert [record.offset for record in await read(consumer, 300)] == list(range(700, 1000))
        consumer.seek(partition, 1000)
        await nothing_more(consumer)


async def test_a_seek_in_the_middle_of_an_iteration_takes_effect_at_the_next_record(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 100)
    seen = []
    async with make(kafka44, topic) as consumer, asyncio.timeout(PATIENCE):
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                consumer.seek(TopicPartition(topic, 0), 50)
            if len(seen) == 6:
                break
    assert seen == [0, 1, 2, 50, 51, 52]


async def test_seek_to_the_ends_and_back(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 3)
    produced = kafka44.produce(topic, 90, partitions=3)
    partitions = all_of(topic, 3)
    async with make(kafka44, topic) as consumer:
        await read(consumer, 10)
        assert await consumer.seek_to_end()
        assert [await consumer.position(partition) for partition in partitions] == [30, 30, 30]
        await nothing_more(consumer)
        assert await consumer.seek_to_beginning(partitions[1])
        assert offsets(await read(consumer, 30)) == {1: produced.offsets[1]}
        await nothing_more(consumer)
        with pytest.raises(IllegalStateError):
            await consumer.seek_to_end(TopicPartition(topic, 7))
        with pytest.raises(ValueError, match="-1"):
            consumer.seek(partitions[0], -1)


async def test_look_ups_by_time_find_the_first_record_at_or_after_it(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 100, partitions=2, timestamps=lambda index: BEGAN_MS + 10 * index)
    zero, one = all_of(topic, 2)
    async with make(kafka44) as consumer:
        found = await consumer.offsets_for_times({zero: BEGAN_MS + 401, one: BEGAN_MS + 10_000})
        at = found[zero]
        assert at is not None
        assert (at.offset, at.timestamp, at.leader_epoch) == (21, BEGAN_MS + 420, 0)
        assert found[one] is None
        assert await consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
        assert await consumer.end_offsets([zero, one]) == {zero: 50, one: 50}
        assert await consumer.offsets_for_times({}) == {}
        with pytest.raises(ValueError, match="-5"):
            await consumer.offsets_for_times({zero: -5})


async def test_seek_to_timestamp_reads_from_there_or_from_the_end_if_no_record_is_that_young(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 10, partitions=[0], timestamps=lambda index: BEGAN_MS + index)
    kafka44.produce(topic, 10, partitions=[1], timestamps=lambda index: BEGAN_MS - 1000 + index)
    zero, one = all_of(topic, 2)
    async with make(kafka44, topic) as consumer:
        found = await consumer.seek_to_timestamp(BEGAN_MS + 4)
        assert found[zero] is not None
        assert found[one] is None
        assert offsets(await read(consumer, 6)) == {0: [4, 5, 6, 7, 8, 9]}
        assert await consumer.position(one) == 10


async def test_a_look_up_in_an_unknown_topic_ends_at_its_deadline_with_the_reason(kafka44: KafkaCluster) -> None:
    missing = TopicPartition("no-such-topic", 0)
    async with make(kafka44, default_api_timeout_ms=700, allow_auto_create_topics=False) as consumer:
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)) as caught:
            await consumer.end_offsets([missing])
        assert "no-such-topic" in f"{caught.value} {caught.value.__cause__}"
        topic = new_topic(kafka44)
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            await consumer.beginning_offsets([TopicPartition(topic, 5)])
        assert await consumer.beginning_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


async def test_watermarks_and_lag_follow_the_log(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    kafka44.produce(topic, 10)
    async with make(kafka44, topic, max_poll_records=4) as consumer:
        await consumer.getmany(timeout_ms=5000)
        assert consumer.highwater(partition) == 10
        assert consumer.last_stable_offset(partition) == 10
        assert consumer.current_lag(partition) == 6
        polled_at = consumer.last_poll_timestamp(partition)
        assert polled_at is not None
        assert abs(polled_at - time.time() * 1000) < 10_000
        await read(consumer, 6)
        assert consumer.current_lag(partition) == 0
        await asyncio.to_thread(kafka44.produce, topic, 3)
        await until(lambda: consumer.highwater(partition) == 13)
        assert consumer.current_lag(partition) == 3
        statistics = consumer.statistics().partitions[partition]
        assert (statistics.position, statistics.lag, statistics.log_start_offset) == (10, 3, 0)


async def test_a_paused_partition_is_silent_and_keeps_its_position(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    zero, one = all_of(topic, 2)
    produced = kafka44.produce(topic, 200, partitions=2)
    async with make(kafka44, topic, max_poll_records=10) as consumer:
        records = await read(consumer, 15)
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        before = await consumer.position(zero)
        while len([record for record in records if record.partition == 1]) < 100:
            got = await consumer.getmany(timeout_ms=10_000)
            assert set(got) == {one}
            records += got[one]
        await nothing_more(consumer)
        await asyncio.to_thread(kafka44.produce, topic, 10, partitions=[0])
        await nothing_more(consumer)
        assert await consumer.position(zero) == before
        consumer.resume(zero)
        assert consumer.paused() == set()
        records += await read(consumer, 210 - len(records))
    assert offsets(records) == {0: list(range(110)), 1: produced.offsets[1]}


async def test_a_pause_in_the_middle_of_an_iteration_holds_from_the_next_record_on(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20)
    async with make(kafka44, topic) as consumer:
        async for record in consumer:
            if record.offset == 4:
                break
        consumer.pause(TopicPartition(topic, 0))
        await nothing_more(consumer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await consumer.getone()
        consumer.resume(TopicPartition(topic, 0))
        assert (await consumer.getone()).offset == 5


async def test_latest_reads_only_what_comes_after_the_start(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    partition = TopicPartition(topic, 0)
    async with make(kafka44, topic, auto_offset_reset="latest") as consumer:
        assert await consumer.position(partition) == 5
        await asyncio.to_thread(kafka44.produce, topic, 2)
        assert [record.offset for record in await read(consumer, 2)] == [5, 6]


async def test_none_without_an_offset_says_so_and_a_seek_heals_it(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 5)
    partition = TopicPartition(topic, 0)
    async with make(kafka44, topic, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError) as caught:
            await consumer.getmany(timeout_ms=5000)
        assert caught.value.partitions == (partition,)
        consumer.seek(partition, 2)
        assert [record.offset for record in await read(consumer, 3)] == [2, 3, 4]


async def test_by_duration_starts_with_records_that_are_young_enough(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    now = int(time.time() * 1000)
    hour = 3_600_000
    kafka44.produce(topic, 10, partitions=[0], timestamps=lambda index: now - (10 - index) * hour + 60_000)
    kafka44.produce(topic, 3, partitions=[1], timestamps=lambda index: now - 20 * hour)
    async with make(kafka44, topic, auto_offset_reset="by_duration:PT3H") as consumer:
        assert offsets(await read(consumer, 3)) == {0: [7, 8, 9]}
        assert await consumer.position(TopicPartition(topic, 1)) == 3


@pytest.mark.parametrize("target", [1_000, 2])
async def test_an_offset_outside_the_log_is_reset_by_policy(kafka44: KafkaCluster, target: int) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 20)
    raise_log_start(kafka44, topic, 5)
    partition = TopicPartition(topic, 0)
    async with make(kafka44, topic) as consumer:
        consumer.seek(partition, target)
        assert [record.offset for record in await read(consumer, 15)] == list(range(5, 20))
    async with make(kafka44, topic, auto_offset_reset="latest") as consumer:
        consumer.seek(partition, target)
        await nothing_more(consumer)
        await asyncio.to_thread(kafka44.produce, topic, 1)
        assert [record.offset for record in await read(consumer, 1)] == [20]
    async with make(kafka44, topic, auto_offset_reset="none") as consumer:
        consumer.seek(partition, target)
        with pytest.raises(OffsetOutOfRangeError, match=str(target)):
            await consumer.getone()
        with pytest.raises(OffsetOutOfRangeError):  # again, as it is all that there is to say
            await consumer.getmany(timeout_ms=5000)
        consumer.seek(partition, 19)
        assert [record.offset for record in await read(consumer, 2)] == [19, 20]


async def test_deleted_records_move_a_reader_to_the_new_log_start(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    produced = kafka44.produce(topic, 4000, size=1024, partitions=2)
    options = {"fetch_buffer_bytes": 256 << 10, "max_partition_fetch_bytes": 32 << 10, "max_poll_records": 10}
    settings = {"batch.size": 16_384}
    small = new_topic(kafka44)
    kafka44.produce(small, 2000, size=1024, settings=settings)
    async with make(kafka44, topic, small, **options) as consumer:
        records = await read(consumer, 50)
        await asyncio.to_thread(raise_log_start, kafka44, small, 1500)
        records += await read(consumer, 4500 - len(records))
        while await consumer.position(TopicPartition(small, 0)) < 2000 or len(records) < 4500:
            records += await read(consumer, 1)
        await nothing_more(consumer)
        marks = consumer.statistics().partitions[TopicPartition(small, 0)]
        assert marks.log_start_offset == 1500
    assert offsets(record for record in records if record.topic == topic) == produced.offsets
    seen = [record.offset for record in records if record.topic == small]
    assert seen == sorted(set(seen))
    assert seen[-500:] == list(range(1500, 2000))


async def test_positions_survive_a_wider_assignment(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    produced = kafka44.produce(topic, 100, partitions=2)
    zero, one = all_of(topic, 2)
    async with make(kafka44) as consumer:
        consumer.assign([zero])
        records = await read(consumer, 1)
        consumer.assign([zero, one])
        assert consumer.assignment() == {zero, one}
        records += await read(consumer, 100 - len(records))
        assert offsets(records) == produced.offsets
        consumer.assign([one])
        with pytest.raises(IllegalStateError):
            await consumer.position(zero)
        assert await consumer.position(one) == 50
        consumer.assign([zero, one])
        assert offsets(await read(consumer, 50)) == {0: produced.offsets[0]}


async def test_assign_before_start_and_a_seek_right_behind_it(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10)
    consumer = make(kafka44)
    consumer.assign(all_of(topic))
    consumer.seek(TopicPartition(topic, 0), 6)
    async with consumer:
        assert [record.offset for record in await read(consumer, 4)] == [6, 7, 8, 9]
