"""Ranges of offsets on a fake cluster, under virtual time."""

import re
import struct
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    LogTruncationError,
    OffsetOutOfRangeError,
)
from kafka_async.records import Columns
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire import Api

from ..support import Consumer, consumer_on, virtual

Found = dict[TopicPartition, list[int]]


def offsets_in(columns: Columns) -> Found:
    """Return the offsets of columns by partition."""
    assert columns.offsets is not None
    numbers = struct.unpack(f"={columns.rows}q", columns.offsets)
    found: Found = {}
    at = 0
    for topic, partition, rows in columns.runs:
        found.setdefault(TopicPartition(topic, partition), []).extend(numbers[at : at + rows])
        at += rows
    assert at == columns.rows
    return found


async def read(consumer: Consumer, *, until: int | None = None, **options: Any) -> Found:
    """Read the ranges to their ends, or ``until`` so many records have come."""
    found: Found = {}
    while until is None or sum(map(len, found.values())) < until:
        columns = await consumer.next_columns(("value",), **options)
        if columns is None:
            break
        for partition, offsets in offsets_in(columns).items():
            found.setdefault(partition, []).extend(offsets)
    return found


@virtual
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"columns": 5}, "columns=5: expected a collection of names of columns"),
        ({"columns": "value"}, "columns='value': expected a collection of names of columns"),
        ({"columns": [5]}, "columns: 5: expected the name of a column"),
        ({"batch_bytes": "x"}, "batch_bytes='x': expected an integer of at least 1"),
        ({"batch_bytes": 0}, "batch_bytes=0: expected an integer of at least 1"),
    ],
)
async def test_what_cannot_be_asked_for_is_named(options: dict[str, Any], complaint: str) -> None:
    async with consumer_on(FakeCluster()) as consumer:
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(complaint)}$"):
            await consumer.next_columns(**options)
        if "columns" in options:
            pytest.importorskip("pyarrow")
            with pytest.raises(TypeError, match=f"^{re.escape(complaint)}$"):
                await consumer.getarrow(**options)


@virtual
async def test_names_of_columns_that_can_be_read_once_are_enough() -> None:
    pytest.importorskip("pyarrow")
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 3)
    async with consumer_on(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        batch = await consumer.getarrow(timeout_ms=1000, columns=(name for name in ("offset", "value")))  # type: ignore[arg-type]
        assert batch.column_names == ["offset", "value"]
        assert batch.num_rows == 3


@virtual
async def test_exactly_the_offsets_of_each_range_come() -> None:
    cluster = FakeCluster(size=2)
    first, second, third = cluster.create_topic("t", 3)
    for partition in (first, second, third):
        cluster.fill(partition, 100, per_batch=7)
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({first: (0, 100), second: (13, 58), third: (40, 40)})
        found = await read(consumer)
        assert await consumer.next_columns() is None
    assert found == {first: list(range(100)), second: list(range(13, 58))}


@virtual
async def test_columns_have_about_the_bytes_that_were_asked_for() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 2000, per_batch=100, size=100)
    sizes = []
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({partition: (0, 2000)})
        while (columns := await consumer.next_columns(("value",), batch_bytes=20_000)) is not None:
            sizes.append(columns.rows)
    assert sum(sizes) == 2000
    assert max(sizes[1:]) <= 20_000 // 100


@virtual
async def test_columns_keep_to_their_bytes_whatever_the_rows_before_were_like() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    sizes = [10] * 500 + [5000] * 9 + [10] * 500 + [50_000] * 2 + [10] * 20
    cluster.produce(partition, *("v" * size for size in sizes))
    found = []
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({partition: (0, len(sizes))})
        while (columns := await consumer.next_columns(("value",), batch_bytes=20_000)) is not None:
            assert columns.values is not None
            found.append((columns.rows, len(columns.values.data)))
    assert sum(rows for rows, _ in found) == len(sizes)
    assert sum(size for _, size in found) == sum(sizes)
    assert [(rows, size) for rows, size in found if size > 20_000] == [(1, 50_000)] * 2


@virtual
async def test_nothing_is_fetched_past_the_end_of_a_range() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 1000)
    async with consumer_on(cluster, max_partition_fetch_bytes=2000) as consumer:
        consumer.assign_ranges({partition: (0, 500)})
        assert await read(consumer) == {partition: list(range(500))}
        await anyio.sleep(5)
        before = len(cluster.asked(Api.FETCH))
        await anyio.sleep(60)
        assert len(cluster.asked(Api.FETCH)) == before
        asked = [part.fetch_offset for e in cluster.asked(Api.FETCH) for topic in e.request.topics for part in topic.partitions]
    assert max(asked) < 500


@virtual
async def test_gaps_in_a_log_are_passed_in_silence() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.produce(partition, "0", "1", producer_id=7)
    cluster.log(partition).end_transaction(7, commit=False)
    cluster.produce(partition, "3")
    cluster.produce(partition, "4", producer_id=7)
    cluster.log(partition).end_transaction(7, commit=True)
    cluster.changed()
    async with consumer_on(cluster, isolation_level="read_committed") as consumer:
        consumer.assign_ranges({partition: (0, 6)})
        assert await read(consumer) == {partition: [3, 4]}
        consumer.assign_ranges({partition: (0, 3)})
        assert await read(consumer) == {}


@virtual
async def test_ranges_follow_each_other_on_one_consumer() -> None:
    cluster = FakeCluster()
    first, second = cluster.create_topic("t", 2)
    cluster.fill(first, 100)
    cluster.fill(second, 100)
    async with consumer_on(cluster) as consumer:
        for start in (0, 90, 5):
            consumer.assign_ranges({first: (start, start + 10), second: (start, start + 3)})
            assert await read(consumer) == {first: list(range(start, start + 10)), second: list(range(start, start + 3))}
        assert len(cluster.asked(Api.METADATA)) <= 3, "what is known of a topic is not asked for again"


@virtual
async def test_a_partition_that_is_assigned_after_its_range_is_read_on_and_on() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 10)
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({partition: (2, 4)})
        assert await read(consumer) == {partition: [2, 3]}
        consumer.assign([partition])
        records = await consumer.getmany(timeout_ms=5000)
    assert [record.offset for record in records[partition]] == list(range(10))


@virtual
async def test_offsets_that_retention_took_are_an_error_whatever_the_policy() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 100)
    cluster.log(partition).delete_before(50)
    async with consumer_on(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign_ranges({partition: (10, 60)})
        with pytest.raises(
            OffsetOutOfRangeError, match="offset 10 of t-0 is outside the log and the range that is read ends at 60"
        ) as caught:
            await consumer.next_columns()
        consumer.assign_ranges({partition: (50, 60)})
        assert await read(consumer) == {partition: list(range(50, 60))}
    assert caught.value.offsets == {partition: 10}


@virtual
async def test_a_log_that_ends_inside_a_range_is_reported_soon() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 10)
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({partition: (5, 20)})
        columns = await consumer.next_columns()
        assert columns is not None
        assert offsets_in(columns) == {partition: [5, 6, 7, 8, 9]}
        begin = anyio.current_time()
        with pytest.raises(OffsetOutOfRangeError, match="offsets 10 to 19 of t-0 are not in its log, which ends at 10"):
            await consumer.next_columns(timeout_ms=120_000)
        assert anyio.current_time() - begin < 10


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@virtual
async def test_a_log_that_ends_inside_a_range_is_reported_although_its_broker_is_silent_about_it(isolation: str) -> None:
    """An incremental response leaves out a partition that has not changed (KIP-227), and everything was fetched before the call."""
    cluster = FakeCluster()
    partition, other = cluster.create_topic("t", 2)
    cluster.fill(partition, 10)
    cluster.fill(other, 20)
    async with consumer_on(cluster, isolation_level=isolation) as consumer:
        consumer.assign_ranges({partition: (5, 20), other: (0, 20)})
        assert await read(consumer, until=25) == {partition: [5, 6, 7, 8, 9], other: list(range(20))}
        await anyio.sleep(3)
        begin = anyio.current_time()
        with pytest.raises(OffsetOutOfRangeError, match="offsets 10 to 19 of t-0 are not in its log, which ends at 10") as caught:
            await consumer.next_columns(timeout_ms=120_000)
        assert anyio.current_time() - begin < 10
        assert caught.value.offsets == {partition: 10}


@virtual
async def test_a_log_that_grows_while_its_end_is_looked_up_is_read_on() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 10)

    def late(broker: object, request: object) -> None:
        cluster.fill(partition, 10)

    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({partition: (0, 20)})
        assert await read(consumer, until=10) == {partition: list(range(10))}
        cluster.control(Api.LIST_OFFSETS, late)
        assert await read(consumer) == {partition: list(range(10, 20))}


@virtual
async def test_a_broker_that_does_not_come_back_is_a_timeout_that_names_the_place() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 10)
    async with consumer_on(cluster) as consumer:
        cluster.stop(0)
        consumer.assign_ranges({partition: (5, 10)})
        with pytest.raises(KafkaTimeoutError, match="no records came for 20 s of t-0 at offset 5"):
            await consumer.next_columns(timeout_ms=20_000)
        cluster.start(0)
        assert await read(consumer) == {partition: [5, 6, 7, 8, 9]}


@virtual
async def test_a_partition_that_moves_is_read_to_its_end() -> None:
    cluster = FakeCluster(size=2)
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 300)
    async with consumer_on(cluster, max_partition_fetch_bytes=1000) as consumer:
        consumer.assign_ranges({partition: (0, 300)})
        columns = await consumer.next_columns(batch_bytes=2000)
        assert columns is not None
        cluster.move_leader(partition, 1)
        rest = await read(consumer)
    assert offsets_in(columns)[partition] + rest[partition] == list(range(300))


@virtual
async def test_a_topic_that_was_made_anew_is_an_error() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 100)
    async with consumer_on(cluster, max_partition_fetch_bytes=200) as consumer:
        consumer.assign_ranges({partition: (0, 100)})
        await consumer.next_columns(batch_bytes=200)
        cluster.recreate("t")
        cluster.fill(partition, 100)
        with pytest.raises((OffsetOutOfRangeError, LogTruncationError)):
            await read(consumer, timeout_ms=400_000)


@virtual
async def test_a_corrupt_batch_names_topic_partition_and_offset_after_the_good_records() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    cluster.fill(partition, 30)
    cluster.log(partition).corrupt(15)
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({partition: (0, 30)})
        columns = await consumer.next_columns()
        assert columns is not None
        assert offsets_in(columns) == {partition: list(range(10))}
        with pytest.raises(CorruptRecordException) as caught:
            await consumer.next_columns()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 10)


@virtual
async def test_what_is_no_range_is_named_and_a_subscription_is_in_the_way() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create_topic("t")
    async with consumer_on(cluster, "t") as consumer:
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.assign_ranges({partition: (0, 1)})
    with pytest.raises(ConsumerStoppedError):
        consumer.assign_ranges({partition: (0, 1)})


@virtual
async def test_a_range_that_does_not_come_says_why_if_that_is_known() -> None:
    cluster = FakeCluster(size=2)
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 10)
    async with consumer_on(cluster) as consumer:
        consumer.assign_ranges({tp: (0, 20)})
        await consumer.next_columns(("value",))
        cluster.stop(cluster.partition(tp).leader)
        with pytest.raises(KafkaTimeoutError, match="no records came") as caught:
            await consumer.next_columns(("value",), timeout_ms=20_000)
    assert isinstance(caught.value.__cause__, LeaderNotAvailableError)


@virtual
async def test_an_open_transaction_inside_a_range_is_waited_for() -> None:
    """It was said that the log ends there."""
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 10)
    cluster.produce(tp, "open", producer_id=7)
    cluster.fill(tp, 10)
    async with consumer_on(cluster, isolation_level="read_committed") as consumer:
        consumer.assign_ranges({tp: (0, 21)})
        assert await read(consumer, until=10) == {tp: list(range(10))}
        with pytest.raises(KafkaTimeoutError, match="no records came") as caught:
            await consumer.next_columns(("value",), timeout_ms=20_000)
        assert "what follows offset 9 of t-0 is held back by an open transaction" in str(caught.value.__cause__)
        cluster.log(tp).end_transaction(7, commit=True)
        cluster.changed()
        assert await read(consumer) == {tp: list(range(10, 21))}
