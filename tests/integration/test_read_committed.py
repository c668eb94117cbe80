"""read_committed and compacted logs: what is skipped is skipped exactly, and the position passes it."""

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import Any, Literal

import pytest
from confluent_kafka import Producer

from kafka_async import OffsetAndMetadata, TopicPartition
from tests.brokers import KafkaCluster

from .tools import Record, eventually, flat, make, new_topic, nothing_more, read

pytestmark = pytest.mark.brokers

COMMITTED = {"isolation_level": "read_committed"}


class Transactions:
    """Transactional producers that are open at the same time and write into partition 0 of one topic."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic

    def begin(self) -> Producer:
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    def write(self, producer: Producer, *values: str) -> None:
        for value in values:
            producer.produce(self.topic, value, partition=0)
        producer.flush(30)


def values(records: list[Record]) -> list[str]:
    return [record.value.decode() for record in records]


async def test_exactly_the_committed_records_come_in_order(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    expected: list[bytes] = []
    start = 0
    outcomes: list[Literal["commit", "abort"] | None] = [
        "commit",
        "abort",
        None,
        "abort",
        "commit",
        "abort",
        "abort",
        None,
        "commit",
        "abort",
    ]
    for outcome in outcomes:
        kafka44.produce(topic, 30, transaction=outcome, start=start, values=lambda index: b"%d" % index)
        if outcome != "abort":
            expected += [b"%d" % index for index in range(start, start + 30)]
        start += 30
    partition = TopicPartition(topic, 0)
    async with make(kafka44, topic, **COMMITTED, max_poll_records=7) as consumer:
        assert [record.value for record in await read(consumer, len(expected))] == expected
        await nothing_more(consumer)
        end = (await consumer.end_offsets([partition]))[partition]
        assert await consumer.position(partition) == end == 308  # 300 records and 8 markers
        assert consumer.current_lag(partition) == 0
        rows = 0
        consumer.seek(partition, 0)
        while rows < len(expected):
            batch = await consumer.getarrow(timeout_ms=5000)
            assert batch["value"].to_pylist() == expected[rows : rows + batch.num_rows]
            rows += batch.num_rows
    async with make(kafka44, topic) as everything:
        assert [record.value for record in await read(everything, 300)] == [b"%d" % index for index in range(300)]
        await nothing_more(everything)


async def test_the_next_offsets_are_past_the_marker_and_can_be_committed(kafka44: KafkaCluster) -> None:
    """KIP-1094: one more than the offset of the last record would leave a lag of one for ever."""
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    kafka44.produce(topic, 5, transaction="commit")
    group = {"group_id": uuid.uuid4().hex, "enable_auto_commit": False}
    async with make(kafka44, **COMMITTED, **group) as consumer:
        consumer.assign([partition])
        records = await read(consumer, 5)
        await nothing_more(consumer)
        following = consumer.next_offsets()
        assert following == {partition: OffsetAndMetadata(6, "", records[-1].leader_epoch)}
        assert await consumer.end_offsets([partition]) == {partition: 6}
        await consumer.commit(following)
        assert await consumer.committed_offsets() == following
    async with make(kafka44, **COMMITTED, **group) as successor:
        successor.assign([partition])
        assert await successor.position(partition) == 6


async def test_overlapping_transactions_are_kept_apart(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    transactions = Transactions(kafka44, topic)
    keeps, drops = transactions.begin(), transactions.begin()
    transactions.write(keeps, "a1", "a2")
    transactions.write(drops, "x1")
    kafka44.produce(topic, 1, values=lambda index: b"plain")
    transactions.write(keeps, "a3")
    drops.abort_transaction(30)
    drops.begin_transaction()
    transactions.write(drops, "b1")
    drops.commit_transaction(30)
    keeps.commit_transaction(30)
    async with make(kafka44, topic, **COMMITTED) as consumer:
        assert values(await read(consumer, 5)) == ["a1", "a2", "plain", "a3", "b1"]
        await nothing_more(consumer)


async def test_nothing_beyond_an_open_transaction_comes_until_it_ends(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    transactions = Transactions(kafka44, topic)
    kafka44.produce(topic, 3, values=lambda index: b"before")
    producer = transactions.begin()
    transactions.write(producer, "open1", "open2")
    kafka44.produce(topic, 2, values=lambda index: b"after")
    async with make(kafka44, topic, **COMMITTED) as consumer:
        assert values(await read(consumer, 3)) == ["before"] * 3
        await nothing_more(consumer)
        assert await consumer.end_offsets([partition]) == {partition: 3}
        assert consumer.highwater(partition) == 7
        assert consumer.last_stable_offset(partition) == 3
        assert consumer.current_lag(partition) == 0
        assert await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 3
        await asyncio.to_thread(producer.commit_transaction, 30)
        assert values(await read(consumer, 4)) == ["open1", "open2", "after", "after"]


async def test_a_log_that_ends_with_aborted_records_only_does_not_stall(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    kafka44.produce(topic, 500, size=1000, transaction="abort")
    kafka44.produce(topic, 500, size=1000, transaction="abort")
    options = {"fetch_buffer_bytes": 64 << 10, "max_partition_fetch_bytes": 16 << 10}
    async with make(kafka44, topic, **COMMITTED, **options) as consumer:

        async def at_the_end() -> bool:
            assert not await consumer.getmany(timeout_ms=100)
            return await consumer.position(partition) == 1002

        await eventually(at_the_end)
        await asyncio.to_thread(kafka44.produce, topic, 1, transaction="commit")
        assert [record.offset for record in await read(consumer, 1)] == [1002]


async def test_a_seek_into_an_aborted_transaction_shows_nothing_of_it(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 10, transaction="abort")
    kafka44.produce(topic, 2, transaction="commit", start=100)
    async with make(kafka44, topic, **COMMITTED) as consumer:
        consumer.seek(TopicPartition(topic, 0), 5)
        assert [record.offset for record in await read(consumer, 2)] == [11, 12]


async def test_aborted_records_span_batches_and_fetches(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    small = {"batch.size": 4096}
    kafka44.produce(topic, 300, size=500, transaction="abort", settings=small)
    kafka44.produce(topic, 300, size=500, transaction="commit", settings=small, codec="zstd")
    kafka44.produce(topic, 300, size=500, transaction="abort", settings=small)
    kafka44.produce(topic, 300, size=500, settings=small)
    async with make(kafka44, topic, **COMMITTED, max_partition_fetch_bytes=8192, fetch_buffer_bytes=32_768) as consumer:
        records = await read(consumer, 600)
    assert [record.offset for record in records] == [*range(301, 601), *range(903, 1203)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_any_interleaving_of_transactions_yields_the_committed_records(kafka44: KafkaCluster, seed: int) -> None:
    topic = new_topic(kafka44)
    partition = TopicPartition(topic, 0)
    dice = random.Random(seed)  # noqa: S311  # a fixed seed, not a secret
    transactions = Transactions(kafka44, topic)
    open_values: dict[Producer, set[str]] = {transactions.begin(): set() for _ in range(4)}
    committed: set[str] = set()
    for index in range(150):
        producer = dice.choice(list(open_values))
        written = [f"{index}.{number}" for number in range(dice.randint(1, 5))]
        await asyncio.to_thread(transactions.write, producer, *written)
        open_values[producer].update(written)
        if dice.random() < 0.3 or index > 145:
            keep = dice.random() < 0.5
            await asyncio.to_thread(producer.commit_transaction if keep else producer.abort_transaction, 30)
            committed |= open_values[producer] if keep else set()
            open_values[producer] = set()
            producer.begin_transaction()
    for producer in open_values:
        await asyncio.to_thread(producer.abort_transaction, 30)

    async with make(kafka44, topic) as everything, make(kafka44, topic, **COMMITTED) as decided:
        # A transaction is over for its producer before its marker is in the log: then the last stable offset is the end.
        while (ends := await everything.end_offsets([partition])) != await decided.end_offsets([partition]):
            pass
        end = ends[partition]
        log: list[Record] = []
        while await everything.position(partition) < end:
            log += flat(await everything.getmany(timeout_ms=200))
    expected = {record.offset: record.value.decode() for record in log if record.value.decode() in committed}
    assert len(expected) == len(committed)
    limits = {"max_partition_fetch_bytes": 700, "fetch_buffer_bytes": 4096, "max_poll_records": 9}
    async with make(kafka44, topic, **COMMITTED, **limits) as consumer:
        for start in (0, *(dice.randrange(end) for _ in range(8))):
            consumer.seek(partition, start)
            rest = {offset: value for offset, value in expected.items() if offset >= start}
            records = await read(consumer, len(rest)) if rest else []
            assert {record.offset: record.value.decode() for record in records} == rest
            assert [record.offset for record in records] == sorted(rest)
            await nothing_more(consumer)
            assert await consumer.position(partition) == end


async def _one_by_one(consumer: Any, count: int) -> list[tuple[int, bytes]]:
    records = [await consumer.getone() for _ in range(count)]
    return [(record.offset, record.value) for record in records]


async def _iterated(consumer: Any, count: int) -> list[tuple[int, bytes]]:
    records = aiter(consumer)
    found = [await anext(records) for _ in range(count)]
    return [(record.offset, record.value) for record in found]


async def _as_batches(consumer: Any, count: int) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value) for record in await read(consumer, count)]


async def _as_columns(consumer: Any, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        batch = await consumer.getarrow(timeout_ms=5000, max_records=count - len(found))
        found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_in_a_group_every_way_of_reading_skips_what_was_aborted_and_commits_past_the_last_marker(
    kafka44: KafkaCluster, background: str
) -> None:
    topic = new_topic(kafka44)
    expected: list[tuple[int, bytes]] = []
    offset = 0
    for start, outcome in enumerate(("commit", "abort", "commit", "abort", "abort", "commit", "abort")):
        await asyncio.to_thread(
            kafka44.produce,
            topic,
            10,
            transaction=outcome,  # type: ignore[arg-type]  # each is one of the two
            start=start * 10,
            values=lambda index: b"%d" % index,
        )
        expected += [(offset + n, b"%d" % (start * 10 + n)) for n in range(10)] if outcome == "commit" else []
        offset += 11  # and the marker
    for way in (_one_by_one, _iterated, _as_batches, _as_columns):
        group = f"g-{uuid.uuid4().hex[:12]}"
        async with make(kafka44, topic, **COMMITTED, group_id=group, background=background, max_poll_records=7) as consumer:
            assert await way(consumer, len(expected)) == expected
            await nothing_more(consumer)  # which reads past what was aborted at the end
        assert kafka44.committed(group) == {(topic, 0): offset}, way.__name__


def _compacted(cluster: KafkaCluster, fill: Callable[[str], None]) -> str:
    """Return a topic whose first segment, written by ``fill``, is closed, so that the cleaner may take it."""
    topic = new_topic(
        cluster,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="0",
        segment_ms="60000",
        min_compaction_lag_ms="0",
    )
    fill(topic)
    return topic


async def test_the_position_passes_what_compaction_removed(kafka44: KafkaCluster) -> None:
    hour_ago = 1_700_000_000_000

    def fill(topic: str) -> None:
        for start in range(0, 400, 100):  # the same 10 keys again and again, in several batches
            kafka44.produce(topic, 100, start=start, keys=lambda index: b"%d" % (index % 10), timestamps=lambda index: hour_ago)
        kafka44.produce(topic, 1, start=400, keys=lambda index: b"last", timestamps=lambda index: hour_ago + 3_600_000)

    topic = await asyncio.to_thread(_compacted, kafka44, fill)
    partition = TopicPartition(topic, 0)

    async def survivors() -> list[int]:
        async with make(kafka44, topic) as consumer:
            found: list[int] = []
            while await consumer.position(partition) < 401:
                found += [record.offset for record in flat(await consumer.getmany(timeout_ms=1000))]
            return found if len(found) < 401 else []

    found = await eventually(survivors)
    assert found == [*range(390, 401)]

    async with make(kafka44, topic) as consumer:
        for target in (0, 150, 389):  # offsets that are gone
            consumer.seek(partition, target)
            assert (await consumer.getone()).offset == 390
        await read(consumer, 10)
        assert await consumer.position(partition) == 401
        assert consumer.current_lag(partition) == 0
