"""Reading from a real broker: every record once, in order, unchanged, by every read call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from kafka_async import TopicPartition, sync
from kafka_async.errors import CorruptRecordException, DeserializationError
from tests.brokers import KafkaCluster, Produced, payload

from .tools import PATIENCE, Consumer, Record, all_of, flat, make, new_topic, nothing_more, offsets, read, spoil

pytestmark = pytest.mark.brokers

COUNT = 3000
Offsets = dict[int, list[int]]


async def by_getone(consumer: Consumer, count: int) -> Offsets:
    return offsets([await consumer.getone() for _ in range(count)])


async def by_getmany(consumer: Consumer, count: int) -> Offsets:
    return offsets(await read(consumer, count))


async def by_iteration(consumer: Consumer, count: int) -> Offsets:
    records: list[Record] = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return offsets(records)


async def by_new_iterations(consumer: Consumer, count: int) -> Offsets:
    """Leave the iteration after every 7 records and begin another."""
    records: list[Record] = []
    while len(records) < count:
        taken = 0
        async for record in consumer:
            records.append(record)
            taken += 1
            if taken == 7 or len(records) == count:
                break
    return offsets(records)


def _from_columns(batch: pa.RecordBatch, into: Offsets) -> int:
    for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True):
        into.setdefault(partition, []).append(offset)
    return int(batch.num_rows)


async def by_getarrow(consumer: Consumer, count: int) -> Offsets:
    found: Offsets = {}
    seen = 0
    while seen < count:
        seen += _from_columns(await consumer.getarrow(timeout_ms=10_000, max_records=700), found)
    return found


async def by_arrow_batches(consumer: Consumer, count: int) -> Offsets:
    found: Offsets = {}
    seen = 0
    async with aclosing(consumer.arrow_batches(max_records=900)) as batches:  # type: ignore[type-var]  # typed AsyncIterator
        async for batch in batches:
            seen += _from_columns(batch, found)
            if seen >= count:
                break
    return found


READERS = [by_getone, by_getmany, by_iteration, by_new_iterations, by_getarrow, by_arrow_batches]


@pytest.fixture(scope="module", params=[1, 6])
def filled(request: pytest.FixtureRequest, kafka44: KafkaCluster) -> tuple[str, Produced]:
    topic = new_topic(kafka44, request.param)
    return topic, kafka44.produce(topic, COUNT, partitions=request.param, codec="lz4")


@pytest.mark.parametrize("reader", READERS)
async def test_every_record_comes_once_in_order(
    kafka44: KafkaCluster, filled: tuple[str, Produced], reader: Callable[[Consumer, int], Any]
) -> None:
    topic, produced = filled
    async with make(kafka44, topic) as consumer, asyncio.timeout(PATIENCE):
        assert await reader(consumer, COUNT) == produced.offsets
        await nothing_more(consumer)
        for partition, expected in produced.offsets.items():
            assert await consumer.position(TopicPartition(topic, partition)) == len(expected)


@pytest.mark.parametrize("partitions", [1, 6])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_codec_are_unchanged(kafka44: KafkaCluster, codec: Any, partitions: int) -> None:
    def key(index: int) -> bytes | None:
        return None if index % 3 == 0 else b"" if index % 3 == 1 else b"key %d" % index

    def value(index: int) -> bytes | None:
        return None if index % 5 == 0 else b"" if index % 5 == 1 else payload(index, 1024)

    headers = [("source", b"test"), ("nothing", None), ("source", b""), ("größe", b"\xff\x00")]
    topic = new_topic(kafka44, partitions)
    produced = kafka44.produce(
        topic,
        600,
        partitions=partitions,
        codec=codec,
        keys=key,
        values=value,
        headers=headers,
        timestamps=lambda index: 1_700_000_000_000 + index,
    )

    async with make(kafka44, topic) as consumer:
        records = await read(consumer, 600)
        consumer.unsubscribe()
        consumer.assign(all_of(topic, partitions))
        rows: list[dict[str, Any]] = []
        while len(rows) < 600:
            rows += (await consumer.getarrow(timeout_ms=10_000, max_records=250)).to_pylist()
        await consumer.seek_to_beginning()
        batches: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in batches) < 600:
            batches.append(await consumer.getarrow(timeout_ms=10_000, max_records=250, view=True))
    views: list[dict[str, Any]] = []
    for batch in batches:  # which hold what they refer to, after the consumer has gone
        batch.validate(full=True)
        assert (batch.schema.field("key").type, batch.schema.field("value").type) == (pa.binary_view(), pa.binary_view())
        views += batch.to_pylist()

    assert offsets(records) == produced.offsets
    by_index = sorted(records, key=lambda record: record.timestamp)
    assert [record.timestamp for record in by_index] == [1_700_000_000_000 + index for index in range(600)]
    assert [record.key for record in by_index] == [key(index) for index in range(600)]
    assert [record.value for record in by_index] == [value(index) for index in range(600)]
    for index, record in enumerate(by_index):
        assert list(record.headers) == headers
        assert (record.topic, record.timestamp_type, record.checksum) == (topic, 0, None)
        assert record.serialized_key_size == (-1 if key(index) is None else len(record.key))
        assert record.serialized_value_size == (-1 if value(index) is None else len(record.value))
        assert record.leader_epoch == 0
    assert sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows) == sorted(
        (record.partition, record.offset, record.key, record.value) for record in records
    )
    place = itemgetter("partition", "offset")
    assert sorted(views, key=place) == sorted(rows, key=place)


async def test_log_append_time_is_distinguished_from_create_time(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, message_timestamp_type="LogAppendTime")
    kafka44.produce(topic, 3, timestamps=lambda index: 1_700_000_000_000)
    async with make(kafka44, topic) as consumer:
        records = await read(consumer, 3)
    assert {record.timestamp_type for record in records} == {1}
    assert all(record.timestamp > 1_700_000_000_000 for record in records)


@pytest.mark.parametrize("by", ["getone", "getmany"])
async def test_a_record_beyond_every_limit_of_the_consumer_arrives(kafka44: KafkaCluster, by: str) -> None:
    topic = new_topic(kafka44, max_message_bytes=str(12 << 20))
    settings = {"message.max.bytes": 12 << 20, "linger.ms": 0}
    kafka44.produce(topic, 5, start=0)
    kafka44.produce(topic, 2, size=6 << 20, start=5, settings=settings)
    kafka44.produce(topic, 5, start=7)
    limits = {"max_partition_fetch_bytes": 64 << 10, "fetch_max_bytes": 128 << 10, "fetch_buffer_bytes": 1 << 20}
    async with make(kafka44, topic, **limits) as consumer, asyncio.timeout(PATIENCE):
        records = [await consumer.getone() for _ in range(12)] if by == "getone" else await read(consumer, 12)
    assert [record.offset for record in records] == list(range(12))
    assert [len(record.value) for record in records] == [100] * 5 + [6 << 20] * 2 + [100] * 5
    assert records[5].value == payload(5, 6 << 20)


async def test_a_getone_on_an_empty_topic_ends_with_the_first_record(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    async with make(kafka44, topic) as consumer:
        await nothing_more(consumer)
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.to_thread(kafka44.produce, topic, 1)
        async with asyncio.timeout(PATIENCE):
            assert (await waiting).offset == 0


async def test_getmany_returns_an_empty_dict_when_nothing_came_in_time(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    clock = asyncio.get_running_loop().time
    async with make(kafka44, topic) as consumer:
        began = clock()
        assert await consumer.getmany() == {}
        assert clock() - began < 5.0
        assert await consumer.getmany(timeout_ms=300) == {}
        assert 0.25 < clock() - began < 15.0
        assert (await consumer.getarrow(timeout_ms=50)).num_rows == 0


async def test_max_records_bounds_a_batch_over_all_partitions(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 4)
    produced = kafka44.produce(topic, 1000, partitions=4, codec="zstd")
    async with make(kafka44, topic, max_poll_records=130) as consumer:
        records = []
        for limit in (None, 1, 7, None):
            batch = flat(await consumer.getmany(timeout_ms=10_000, max_records=limit))
            assert 0 < len(batch) <= (limit or 130)
            records += batch
        records += await read(consumer, 1000 - len(records))
    assert offsets(records) == produced.offsets


async def test_reading_chosen_partitions_keeps_the_others_for_later(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 3)
    produced = kafka44.produce(topic, 300, partitions=3)
    first, second, third = all_of(topic, 3)
    async with make(kafka44, topic) as consumer:
        only_second = await read(consumer, 100, second)
        assert offsets(only_second) == {1: produced.offsets[1]}
        assert (await consumer.getone(third)).offset == 0
        others = await read(consumer, 199)
        assert offsets(others) == {0: produced.offsets[0], 2: produced.offsets[2][1:]}
        await nothing_more(consumer, first)


async def test_a_starved_partition_is_read_although_the_others_fill_the_buffer(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    produced = kafka44.produce(topic, 4000, size=1024, partitions=2)
    async with make(kafka44, topic, fetch_buffer_bytes=64 << 10, max_partition_fetch_bytes=32 << 10) as consumer:
        records = await read(consumer, 2000, TopicPartition(topic, 1))
        records += await read(consumer, 2000, TopicPartition(topic, 0))
        await nothing_more(consumer)
    assert offsets(records) == produced.offsets


async def _first_of_the_other(consumer: Any, way: str) -> int:
    """Return how many records of partition 0 came before the first one of partition 1."""
    before = 0
    if way == "iteration":
        async for record in consumer:
            if record.partition == 1:
                break
            before += 1
        return before
    while True:
        if way == "getarrow":
            partitions = (await consumer.getarrow(timeout_ms=10_000))["partition"].to_pylist()
        else:
            batch = await consumer.getmany(timeout_ms=10_000)
            partitions = [record.partition for records in batch.values() for record in records]
        if 1 in partitions:
            return before + int(partitions.index(1))
        before += len(partitions)


@pytest.mark.parametrize("way", ["getmany", "iteration", "getarrow", "thread", "sync"])
async def test_a_partition_with_much_to_read_does_not_hold_up_one_with_little(kafka44: KafkaCluster, way: str) -> None:
    topic = new_topic(kafka44, 2)
    kafka44.produce(topic, 60_000, partitions=[0])
    kafka44.produce(topic, 600, partitions=[1])
    options: dict[str, Any] = {"background": "thread"} if way == "thread" else {}
    if way == "sync":
        with sync.KafkaConsumer(topic, bootstrap_servers=kafka44.bootstrap_servers, auto_offset_reset="earliest") as blocking:
            before = next(index for index, record in enumerate(blocking) if record.partition == 1)
    else:
        async with make(kafka44, topic, **options) as consumer, asyncio.timeout(PATIENCE):
            before = await _first_of_the_other(consumer, way)
    assert before <= 10_000


async def test_two_hundred_partitions_are_read_and_followed(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 200)
    first = kafka44.produce(topic, 2000, partitions=200)
    async with make(kafka44, topic, fetch_buffer_bytes=16 << 10, max_poll_records=50) as consumer:
        records = await read(consumer, 2000)
        more = await asyncio.to_thread(kafka44.produce, topic, 600, partitions=range(0, 200, 50))
        records += await read(consumer, 600)
        await nothing_more(consumer)
    assert offsets(records) == {index: found + more.offsets.get(index, []) for index, found in first.offsets.items()}


async def test_two_tasks_that_read_share_the_records(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 500)
    async with make(kafka44, topic) as consumer, asyncio.timeout(PATIENCE):

        async def reader() -> list[int]:
            return [(await consumer.getone()).offset for _ in range(250)]

        one, two = await asyncio.gather(reader(), reader())
    assert sorted(one + two) == list(range(500))
    assert one == sorted(one)
    assert two == sorted(two)


async def test_iteration_ends_when_the_consumer_is_stopped(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 3)
    consumer = make(kafka44, topic)
    await consumer.start()
    third = asyncio.Event()
    seen: list[int] = []

    async def iterate(records: AsyncIterator[Any]) -> None:
        async for record in records:
            seen.append(record.offset)
            if record.offset == 2:
                third.set()

    task = asyncio.create_task(iterate(aiter(consumer)))
    async with asyncio.timeout(PATIENCE):
        await third.wait()
        await consumer.stop()
        await task
    assert seen == [0, 1, 2]


async def test_a_corrupt_batch_stops_its_partition_and_nothing_else(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44, 2)
    for start in range(0, 100, 10):
        kafka44.produce(topic, 10, partitions=[0], start=start, values=lambda index: b"record %d." % index)
    kafka44.produce(topic, 5, partitions=[1])
    spoil(kafka44, topic, b"record 45.")
    bad, good = all_of(topic, 2)
    async with make(kafka44, topic) as consumer:
        records = await read(consumer, 45)
        assert offsets(records) == {0: list(range(40)), 1: list(range(5))}
        with pytest.raises(CorruptRecordException) as caught:
            await consumer.getmany(timeout_ms=10_000)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 40)
        assert await consumer.position(bad) == 40
        await asyncio.to_thread(kafka44.produce, topic, 5, partitions=[1])
        assert offsets(await read(consumer, 5)) == {1: list(range(5, 10))}
        assert await consumer.position(good) == 10
        consumer.seek(bad, 50)
        assert offsets(await read(consumer, 50)) == {0: list(range(50, 100))}
        await nothing_more(consumer)
    async with make(kafka44, check_crcs=False) as trusting:
        trusting.assign([bad])
        assert offsets(await read(trusting, 100)) == {0: list(range(100))}


async def test_deserializers_see_every_record_and_a_poison_one_stops_nothing(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10, values=lambda index: b"poison" if index == 6 else b"%d" % index)
    async with make(kafka44, topic, value_deserializer=int) as consumer:
        assert [record.value for record in await read(consumer, 6)] == [0, 1, 2, 3, 4, 5]
        with pytest.raises(DeserializationError) as caught:
            await consumer.getmany(timeout_ms=5000)
        assert caught.value.record.offset == 6
        assert caught.value.record.value == b"poison"
        assert [record.value for record in await read(consumer, 3)] == [7, 8, 9]
