"""Read calls on a fake cluster: nothing lost, nothing repeated, nothing left behind, nobody silent."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition
from kafka_async.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    DeserializationError,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from kafka_async.testing.simulation import KAFKA_2_1, KAFKA_2_8, KAFKA_4_3, FakeCluster
from kafka_async.wire import Api

from ..support import Consumer, Gate, Records, cancelled_at, consumer_on, iteration, numbers, offsets, read_values, virtual, watched

TOTAL = 60
PLACES = range(1, 13)


def flat(batch: Records) -> list[ConsumerRecord[Any, Any]]:
    return [record for part in batch.values() for record in part]


async def by_getone(consumer: Consumer) -> list[ConsumerRecord[Any, Any]]:
    return [await consumer.getone()]


async def by_getone_of(consumer: Consumer) -> list[ConsumerRecord[Any, Any]]:
    return [await consumer.getone(*consumer.assignment())]


async def by_getmany(consumer: Consumer) -> list[ConsumerRecord[Any, Any]]:
    return flat(await consumer.getmany(timeout_ms=1000, max_records=4))


async def by_impatient_getmany(consumer: Consumer) -> list[ConsumerRecord[Any, Any]]:
    await anyio.sleep(0.001)
    return flat(await consumer.getmany())


async def by_next(consumer: Consumer) -> list[ConsumerRecord[Any, Any]]:
    return [await consumer.__anext__()]


READS: dict[str, Callable[[Consumer], Coroutine[Any, Any, list[ConsumerRecord[Any, Any]]]]] = {
    "getone": by_getone,
    "getone of partitions": by_getone_of,
    "getmany": by_getmany,
    "getmany without waiting": by_impatient_getmany,
    "next": by_next,
}


async def slowly(data: bytes) -> bytes:
    await anyio.sleep(0.001)
    return data


OPTIONS: dict[str, dict[str, Any]] = {"plain": {}, "async deserializer": {"value_deserializer": slowly}}


# Promise 2: cancelling a read loses nothing, repeats nothing, leaves nothing behind.


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@virtual
async def test_a_read_may_be_cancelled_at_any_await(
    read: Callable[[Consumer], Coroutine[Any, Any, list[ConsumerRecord[Any, Any]]]], options: dict[str, Any]
) -> None:
    for place in PLACES:
        cluster = FakeCluster()
        tp, other = cluster.create_topic("t", 2)
        runtime, signal = watched()
        seen: list[ConsumerRecord[Any, Any]] = []
        async with consumer_on(cluster, "t", runtime=runtime, **options) as consumer, anyio.create_task_group() as tasks:
            tasks.start_soon(_produce_slowly, cluster, tp, other)
            while len(seen) < TOTAL:
                cut = await cancelled_at(place, read(consumer))
                assert signal.waiting == 0
                seen += cut[0] if cut else await read(consumer)
        for each in (tp, other):
            assert [r.offset for r in seen if r.partition == each.partition] == list(range(TOTAL // 2)), f"place {place}"


async def _produce_slowly(cluster: FakeCluster, *tps: TopicPartition) -> None:
    for _ in range(TOTAL // 2 // 5):
        for tp in tps:
            cluster.fill(tp, 5, per_batch=2)
        await anyio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@virtual
async def test_an_iteration_may_be_cancelled_at_any_await_and_begun_again(options: dict[str, Any]) -> None:
    for place in PLACES:
        cluster = FakeCluster()
        (tp,) = cluster.create_topic("t")
        runtime, signal = watched()
        seen: list[int] = []
        async with consumer_on(cluster, "t", runtime=runtime, **options) as consumer, anyio.create_task_group() as tasks:
            tasks.start_soon(_produce_slowly, cluster, tp)

            async def iterate(consumer: Consumer = consumer, seen: list[int] = seen) -> None:
                async with iteration(consumer) as records:
                    async for record in records:
                        seen.append(record.offset)
                        if len(seen) == TOTAL // 2:
                            return

            while len(seen) < TOTAL // 2:
                before = len(seen)
                await cancelled_at(place, iterate())
                assert signal.waiting == 0
                if len(seen) == before:
                    seen.append((await consumer.getone()).offset)
        assert seen == list(range(TOTAL // 2)), f"place {place}"


@virtual
async def test_reads_with_less_time_than_a_deserializer_takes_for_all_get_there() -> None:
    """Each began with the first record again."""
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 40)
    made: list[bytes] = []

    async def thoroughly(data: bytes) -> bytes:
        await anyio.sleep(0.1)
        made.append(data)
        return data

    seen: list[int] = []
    async with consumer_on(cluster, "t", value_deserializer=thoroughly) as consumer:
        with anyio.fail_after(60):
            while len(seen) < 40:
                with anyio.move_on_after(0.55):
                    seen += [record.offset for record in flat(await consumer.getmany(timeout_ms=1000))]
    assert seen == list(range(40))
    assert len(made) == 40, "none was made twice"


@virtual
async def test_one_iterator_goes_on_after_its_step_was_cancelled() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    async with consumer_on(cluster, "t") as consumer, iteration(consumer) as records:
        with anyio.move_on_after(1):
            await anext(records)
        cluster.fill(tp, 2)
        assert (await anext(records)).offset == 0


@virtual
async def test_two_tasks_that_read_one_by_one_share_the_records() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 100, per_batch=7)
    seen: list[int] = []

    async def reader(consumer: Consumer) -> None:
        while len(seen) < 100:
            with anyio.move_on_after(1):
                seen.append((await consumer.getone()).offset)
            await anyio.lowlevel.checkpoint()

    async with consumer_on(cluster, "t", max_poll_records=10) as consumer, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader, consumer)
    assert sorted(seen) == list(range(100))


@virtual
async def test_concurrent_getmany_calls_share_the_records() -> None:
    cluster = FakeCluster(size=2)
    tps = cluster.create_topic("t", 4)
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}

    async def reader(consumer: Consumer) -> None:
        while sum(map(len, seen.values())) < 200:
            for tp, found in offsets(await consumer.getmany(timeout_ms=100, max_records=9)).items():
                seen[tp] += found

    async with consumer_on(cluster, "t") as consumer, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader, consumer)
        for tp in tps:
            cluster.fill(tp, 50)
    assert {tp: sorted(found) for tp, found in seen.items()} == {tp: list(range(50)) for tp in tps}


# Promise 4: poison and corruption.


def refuse(*poison: bytes) -> Callable[[bytes], bytes]:
    def deserialize(data: bytes) -> bytes:
        if data in poison:
            raise ValueError("poison")
        return data

    return deserialize


@virtual
async def test_a_poison_record_comes_after_the_good_ones_and_is_passed() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 10, per_batch=10)
    async with consumer_on(cluster, "t", value_deserializer=refuse(b"4")) as consumer:
        assert offsets(await consumer.getmany(timeout_ms=1000)) == {tp: [0, 1, 2, 3]}
        with pytest.raises(DeserializationError) as caught:
            await consumer.getmany(timeout_ms=1000)
        assert (caught.value.record.offset, caught.value.record.value, caught.value.field) == (4, b"4", "value")
        assert isinstance(caught.value.__cause__, ValueError)
        assert await consumer.position(tp) == 5
        assert offsets(await consumer.getmany(timeout_ms=1000)) == {tp: [5, 6, 7, 8, 9]}


@pytest.mark.parametrize("poison", [(b"0",), (b"9",), (b"0", b"1"), (b"3", b"4", b"9")])
@virtual
async def test_poison_records_are_raised_once_each_by_an_iteration(poison: tuple[bytes, ...]) -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 12, per_batch=5)
    seen: list[bytes] = []
    refused: list[bytes] = []
    order: list[int] = []
    async with consumer_on(cluster, "t", value_deserializer=refuse(*poison)) as consumer:
        while len(seen) + len(refused) < 12:
            try:
                seen.append((await consumer.getone()).value)
            except DeserializationError as error:
                refused.append(error.record.value)
                order.append(len(seen) + len(refused) - 1)
    assert refused == list(poison)
    assert order == [int(value) for value in poison]
    assert seen == [value for value in numbers(12) if value not in poison]


@virtual
async def test_a_poison_record_in_one_partition_does_not_keep_others_from_being_read() -> None:
    cluster = FakeCluster()
    bad, good = cluster.create_topic("t", 2)
    cluster.produce(bad, "poison", "after")
    cluster.produce(good, "one", "two")
    values: list[bytes] = []
    refused = 0
    async with consumer_on(cluster, "t", value_deserializer=refuse(b"poison")) as consumer:
        for _ in range(4):
            try:
                values += [record.value for record in flat(await consumer.getmany(timeout_ms=200))]
            except DeserializationError:
                refused += 1
    assert (sorted(values), refused) == ([b"after", b"one", b"two"], 1)


@virtual
async def test_two_tasks_and_a_poison_record() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 60, per_batch=6)
    seen: list[int] = []
    refused: list[int] = []

    async def deserialize(data: bytes) -> bytes:
        await anyio.sleep(0.001)
        if int(data) % 10 == 7:
            raise ValueError("poison")
        return data

    async def reader(consumer: Consumer) -> None:
        while len(seen) + len(refused) < 60:
            with anyio.move_on_after(1):
                try:
                    seen.append((await consumer.getone()).offset)
                except DeserializationError as error:
                    refused.append(error.record.offset)

    options = {"value_deserializer": deserialize, "max_poll_records": 9}
    async with consumer_on(cluster, "t", **options) as consumer, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader, consumer)
    assert refused == [7, 17, 27, 37, 47, 57]
    assert sorted(seen) == [n for n in range(60) if n % 10 != 7]


@virtual
async def test_a_corrupt_batch_is_fetched_once_more() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 30)
    whole = cluster.log(tp).corrupt(15)
    async with consumer_on(cluster, "t") as consumer:
        assert offsets(await consumer.getmany(timeout_ms=1000)) == {tp: list(range(10))}
        cluster.log(tp).mend(15, whole)
        assert await read_values(consumer, 20) == numbers(20, 10)


@virtual
async def test_a_batch_that_stays_corrupt_stops_its_partition_and_no_other() -> None:
    cluster = FakeCluster()
    bad, good = cluster.create_topic("t", 2)
    cluster.fill(bad, 30)
    cluster.fill(good, 10)
    cluster.log(bad).corrupt(15)
    raised: list[CorruptRecordException] = []
    values: list[bytes] = []
    async with consumer_on(cluster, "t") as consumer:
        for _ in range(6):
            try:
                values += [record.value for record in flat(await consumer.getmany(timeout_ms=500))]
            except CorruptRecordException as error:
                raised.append(error)
        assert [(error.topic, error.partition, error.offset) for error in raised] == [("t", 0, 10)]
        assert sorted(values) == sorted(numbers(10) + numbers(10))
        assert await consumer.position(bad) == 10
        cluster.fill(good, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)
        consumer.seek(bad, 20)
        assert await read_values(consumer, 10) == numbers(10, 20)


@virtual
async def test_a_read_that_can_return_nothing_else_raises_the_corruption_again() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 10)
    cluster.log(tp).corrupt(5)
    async with consumer_on(cluster, "t") as consumer:
        for _ in range(3):
            with pytest.raises(CorruptRecordException):
                await consumer.getone()
        fetches = len(cluster.asked(Api.FETCH))
        await anyio.sleep(10)
        assert len(cluster.asked(Api.FETCH)) <= fetches + 1


@virtual
async def test_without_check_crcs_a_wrong_checksum_is_not_looked_at() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, "x")
    cluster.log(tp).corrupt(0)
    async with consumer_on(cluster, "t", check_crcs=False) as consumer:
        assert (await consumer.getone()).offset == 0


# Promise 10, and reads of some partitions while others have data.


@pytest.mark.slow
@virtual
async def test_a_slow_reader_bounds_what_is_fetched() -> None:
    cluster = FakeCluster(size=3)
    tps = cluster.create_topic("t", 9)
    for tp in tps:
        cluster.fill(tp, 100, per_batch=1, size=1000)
    largest = 0
    seen = 0
    limit = 64 * 1024
    async with consumer_on(cluster, "t", fetch_buffer_bytes=limit, max_partition_fetch_bytes=8192) as consumer:
        while seen < 900:
            await anyio.sleep(0.05)
            largest = max(largest, consumer.statistics().buffered_bytes)
            seen += len(flat(await consumer.getmany(timeout_ms=1000, max_records=7)))
        assert consumer.statistics().buffered_bytes <= limit
    assert 0 < largest <= limit


@virtual
async def test_a_record_larger_than_every_limit_still_arrives() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, b"x" * 200_000)
    cluster.produce(tp, b"y")
    async with consumer_on(
        cluster, "t", fetch_buffer_bytes=10_000, max_partition_fetch_bytes=1000, fetch_max_bytes=500
    ) as consumer:
        assert [len(value) for value in await read_values(consumer, 2)] == [200_000, 1]


@virtual
async def test_a_filtered_read_gets_its_records_while_others_fill_the_buffer() -> None:
    cluster = FakeCluster()
    full, wanted = cluster.create_topic("t", 2)
    cluster.fill(full, 500, per_batch=1, size=1000)
    async with consumer_on(cluster, "t", fetch_buffer_bytes=32_768, max_partition_fetch_bytes=8192) as consumer:
        await anyio.sleep(5)
        cluster.fill(wanted, 100, size=1000)
        values = await read_values(consumer, 100, wanted)
        assert [int(value.rstrip(b".")) for value in values] == list(range(100))
        rest = await read_values(consumer, 500)
        assert [int(value.rstrip(b".")) for value in rest] == list(range(500))


@virtual
async def test_a_paused_partition_that_fills_the_buffer_does_not_starve_the_others() -> None:
    cluster = FakeCluster()
    full, wanted = cluster.create_topic("t", 2)
    cluster.fill(full, 200, per_batch=1, size=1000)
    async with consumer_on(cluster, "t", fetch_buffer_bytes=32_768, max_partition_fetch_bytes=8192) as consumer:
        await anyio.sleep(5)
        consumer.pause(full)
        cluster.fill(wanted, 50, size=1000)
        assert len(await read_values(consumer, 50)) == 50
        consumer.resume(full)
        rest = await read_values(consumer, 200)
        assert [int(value.rstrip(b".")) for value in rest] == list(range(200))


@virtual
async def test_tasks_that_read_different_partitions_do_not_starve_each_other() -> None:
    cluster = FakeCluster()
    tps = cluster.create_topic("t", 3)
    for tp in tps:
        cluster.fill(tp, 60, per_batch=1, size=1000)
    seen: dict[TopicPartition, list[bytes]] = {}

    async def reader(consumer: Consumer, tp: TopicPartition) -> None:
        seen[tp] = await read_values(consumer, 60, tp)

    options = {"fetch_buffer_bytes": 16_384, "max_partition_fetch_bytes": 8192}
    async with consumer_on(cluster, "t", **options) as consumer, anyio.create_task_group() as tasks:
        for tp in tps:
            tasks.start_soon(reader, consumer, tp)
    for tp in tps:
        assert [int(value.rstrip(b".")) for value in seen[tp]] == list(range(60))


# Positions while records are on their way.


@virtual
async def test_pause_keeps_what_was_fetched() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 10)
    async with consumer_on(cluster, "t") as consumer:
        assert offsets(await consumer.getmany(timeout_ms=1000, max_records=3)) == {tp: [0, 1, 2]}
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.getmany(timeout_ms=1000) == {}
        cluster.stop(0, "hang")
        consumer.resume(tp)
        assert offsets(await consumer.getmany()) == {tp: [3, 4, 5, 6, 7, 8, 9]}


@virtual
async def test_pause_in_the_middle_of_an_iteration_keeps_the_rest_for_later() -> None:
    cluster = FakeCluster()
    tp, other = cluster.create_topic("t", 2)
    cluster.fill(tp, 10)
    async with consumer_on(cluster, "t") as consumer:
        assert [(await consumer.getone()).offset for _ in range(4)] == [0, 1, 2, 3]
        consumer.pause(tp)
        cluster.fill(other, 1)
        record = await consumer.getone()
        assert (record.partition, record.offset) == (1, 0)
        consumer.resume(tp)
        assert [(await consumer.getone()).offset for _ in range(6)] == [4, 5, 6, 7, 8, 9]


@virtual
async def test_a_seek_during_an_iteration_takes_effect_at_the_next_record() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 30)
    seen: list[int] = []
    async with consumer_on(cluster, "t") as consumer:
        async with iteration(consumer) as records:
            async for record in records:
                seen.append(record.offset)
                if seen == [0, 1, 2]:
                    consumer.seek(tp, 20)
                elif record.offset == 22:
                    consumer.seek(tp, 5)
                elif len(seen) == 8:
                    break
        assert seen == [0, 1, 2, 20, 21, 22, 5, 6]
        assert await consumer.position(tp) == 7


@virtual
async def test_a_seek_while_records_are_being_deserialized_wins() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 30)
    seen: list[int] = []
    gate = Gate()
    async with consumer_on(cluster, "t", value_deserializer=gate) as consumer, anyio.create_task_group() as tasks:

        async def read() -> None:
            seen.extend([(await consumer.getone()).offset for _ in range(5)])

        tasks.start_soon(read)
        await gate.entered.wait()
        consumer.seek(tp, 20)
        gate.opened.set()
    assert seen == [20, 21, 22, 23, 24]


@virtual
async def test_a_position_asked_for_while_records_are_being_deserialized_is_before_them() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 10)
    gate = Gate()
    async with consumer_on(cluster, "t", value_deserializer=gate) as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.getone)
        await gate.entered.wait()
        assert await consumer.position(tp) == 0
        gate.opened.set()


@virtual
async def test_a_partition_that_leaves_while_its_records_are_being_deserialized_returns_none_of_them() -> None:
    cluster = FakeCluster()
    tp, other = cluster.create_topic("t", 2)
    cluster.fill(tp, 30)
    found: list[Records] = []
    gate = Gate()
    async with consumer_on(cluster, value_deserializer=gate) as consumer, anyio.create_task_group() as tasks:
        consumer.assign([tp, other])

        async def read() -> None:
            found.append(await consumer.getmany(timeout_ms=5000))

        tasks.start_soon(read)
        await gate.entered.wait()
        consumer.assign([other])
        gate.opened.set()
    assert found == [{}]


@virtual
async def test_records_before_the_position_in_a_batch_are_left_out() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 20, per_batch=20)
    async with consumer_on(cluster) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 13)
        assert await read_values(consumer, 7) == numbers(7, 13)


@pytest.mark.slow
@virtual
async def test_the_position_passes_what_compaction_left_out() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 5)
    cluster.log(tp).end = 12
    cluster.fill(tp, 3)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_values(consumer, 8) == numbers(5) + numbers(3, 12)
        assert await consumer.position(tp) == 15


# Transactions.


@virtual
async def test_committed_reads_see_neither_open_nor_aborted_transactions() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    log = cluster.log(tp)
    cluster.produce(tp, "aborted", producer_id=1)
    cluster.produce(tp, "committed", producer_id=2)
    log.end_transaction(1, commit=False)
    log.end_transaction(2, commit=True)
    cluster.produce(tp, "open", producer_id=3)
    cluster.produce(tp, "plain")
    async with consumer_on(cluster, "t", isolation_level="read_committed") as consumer:
        assert await read_values(consumer, 3, seconds=3) == [b"committed"]
        assert (consumer.last_stable_offset(tp), consumer.highwater(tp)) == (4, 6)
        assert consumer.current_lag(tp) == 0
        log.end_transaction(3, commit=True)
        cluster.changed()
        assert await read_values(consumer, 2) == [b"open", b"plain"]
        assert await consumer.position(tp) == 7
    async with consumer_on(cluster, "t") as consumer:
        assert len(await read_values(consumer, 9, seconds=3)) == 4


# What a read waits for and what ends it.


@virtual
async def test_getmany_returns_at_once_by_default() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with consumer_on(cluster, "t") as consumer:
        before = anyio.current_time()
        assert await consumer.getmany() == {}
        assert anyio.current_time() == before


@virtual
async def test_getmany_waits_for_its_timeout() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    async with consumer_on(cluster, "t") as consumer, anyio.create_task_group() as tasks:
        before = anyio.current_time()
        assert await consumer.getmany(timeout_ms=1500) == {}
        assert anyio.current_time() == pytest.approx(before + 1.5)

        async def produce_later() -> None:
            await anyio.sleep(2)
            cluster.produce(tp, "x")

        tasks.start_soon(produce_later)
        assert offsets(await consumer.getmany(timeout_ms=60_000)) == {tp: [0]}
        assert anyio.current_time() == pytest.approx(before + 3.5, abs=0.1)


@virtual
async def test_no_more_than_max_records_are_returned() -> None:
    cluster = FakeCluster()
    tps = cluster.create_topic("t", 3)
    for tp in tps:
        cluster.fill(tp, 40)
    async with consumer_on(cluster, "t", max_poll_records=25) as consumer:
        await anyio.sleep(1)
        assert len(flat(await consumer.getmany())) == 25
        assert len(flat(await consumer.getmany(max_records=3))) == 3
        assert len(flat(await consumer.getmany(max_records=1000))) == 92


@virtual
async def test_every_partition_gets_its_turn() -> None:
    cluster = FakeCluster()
    tps = cluster.create_topic("t", 3)
    for tp in tps:
        cluster.fill(tp, 40)
    async with consumer_on(cluster, "t") as consumer:
        await anyio.sleep(1)
        first = [next(iter(await consumer.getmany(max_records=40))) for _ in tps]
        assert sorted(first) == tps


@virtual
async def test_a_partition_with_much_data_does_not_starve_another() -> None:
    cluster = FakeCluster()
    much, little = cluster.create_topic("t", 2)
    cluster.fill(much, 5000)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=2000, fetch_buffer_bytes=40_000) as consumer:
        await consumer.getone(much)
        cluster.fill(little, 5)
        seen: list[int] = []
        for _ in range(200):
            await anyio.sleep(0.01)
            seen += [record.partition for record in flat(await consumer.getmany(timeout_ms=1000, max_records=7))]
        assert seen.count(1) == 5
        assert seen.count(0) > 500


@pytest.mark.parametrize("read", [by_getone, by_getmany, by_getone_of])
@virtual
async def test_stop_ends_a_pending_read(read: Callable[[Consumer], Coroutine[Any, Any, Any]]) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    ended: list[type[BaseException]] = []
    async with consumer_on(cluster, "t") as consumer, anyio.create_task_group() as tasks:

        async def wait() -> None:
            try:
                await read(consumer)
            except ConsumerStoppedError as error:
                ended.append(type(error))

        tasks.start_soon(wait)
        await anyio.sleep(0.5)
        await consumer.stop()
    assert ended == [ConsumerStoppedError] * (read is not by_getmany)


@virtual
async def test_stop_ends_an_iteration_without_an_error() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 3)
    seen: list[int] = []
    async with consumer_on(cluster, "t") as consumer, anyio.create_task_group() as tasks:

        async def iterate() -> None:
            seen.extend([record.offset async for record in consumer])

        tasks.start_soon(iterate)
        await anyio.sleep(5)
        await consumer.stop()
    assert seen == [0, 1, 2]
    with pytest.raises(StopAsyncIteration):
        await consumer.__anext__()


# Policies.


@virtual
async def test_out_of_range_without_a_policy_is_raised_and_a_seek_goes_on() -> None:
    cluster = FakeCluster()
    tp, other = cluster.create_topic("t", 2)
    cluster.fill(tp, 20)
    cluster.fill(other, 5)
    async with consumer_on(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([tp, other])
        consumer.seek(tp, 100)
        consumer.seek(other, 0)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await consumer.getone(tp)
        assert caught.value.offsets == {tp: 100}
        assert await read_values(consumer, 5, seconds=5) == numbers(5)
        consumer.seek(tp, 18)
        assert await read_values(consumer, 2) == numbers(2, 18)


@virtual
async def test_no_position_without_a_policy_is_raised() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    async with consumer_on(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError) as caught:
            await consumer.getone()
        assert caught.value.partitions == (tp,)
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.position(tp)


@virtual
async def test_out_of_range_is_reset_by_policy() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 30)
    cluster.log(tp).delete_before(10)
    async with consumer_on(cluster) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 3)
        assert await read_values(consumer, 20) == numbers(20, 10)


@virtual
async def test_generic_consumers_are_typed() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.produce(tp, "7")
    consumer: KafkaConsumer[None, int] = KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=int,
        transport_factory=cluster.network,
    )
    async with consumer:
        record = await consumer.getone()
    assert record.value + 1 == 8


# Everything at once.


class Weather:
    """Faults that lose no record: connections that break, brokers that go and come, leaders that move."""

    def __init__(self, cluster: FakeCluster, tps: list[TopicPartition], dice: Random) -> None:
        self.cluster, self.tps, self.dice = cluster, tps, dice

    async def run(self, seconds: float) -> None:
        """Make trouble for a while, then leave everything well."""
        end = anyio.current_time() + seconds
        while anyio.current_time() < end:
            await anyio.sleep(self.dice.uniform(0.0, 1.5))
            node = self.dice.choice(sorted(self.cluster.brokers))
            self.dice.choice((self._break, self._move, self._bounce, self._freeze, self._refuse))(node)
        for node in self.cluster.brokers:
            self.cluster.start(node)

    def _break(self, node: int) -> None:
        self.cluster.disconnect(node)

    def _move(self, node: int) -> None:
        self.cluster.move_leader(self.dice.choice(self.tps), node)

    def _bounce(self, node: int) -> None:
        if self.cluster.is_up(node):
            self.cluster.stop(node, self.dice.choice(("refuse", "hang")))
        else:
            self.cluster.start(node)

    def _freeze(self, node: int) -> None:
        self.cluster.freeze(node)
        self.cluster.start(node)

    def _refuse(self, node: int) -> None:
        code = self.dice.choice((3, 6, 70, 71, 74, 75, 78, 100, 106))
        self.cluster.control(Api.FETCH, lambda broker, request: code)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_whatever_the_weather_every_record_comes_once_and_in_order(seed: int) -> None:
    dice = Random(seed)  # noqa: S311 - dice, not keys
    cluster = FakeCluster(size=3, max_versions=dice.choice((KAFKA_2_1, KAFKA_2_8, KAFKA_4_3)), chunk=dice.choice((None, 50)))
    tps = cluster.create_topic("t", 4)
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
    options: dict[str, Any] = dice.choice(({}, {"value_deserializer": slowly}, {"fetch_buffer_bytes": 3000}))
    options = {"request_timeout_ms": 3000, "max_poll_records": 7, "max_partition_fetch_bytes": 400, **options}

    async def produce() -> None:
        for _ in range(40):
            await anyio.sleep(dice.uniform(0.0, 1.0))
            cluster.fill(dice.choice(tps), dice.randint(1, 20), per_batch=dice.randint(1, 6))

    async with consumer_on(cluster, "t", **options) as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        tasks.start_soon(Weather(cluster, tps, dice).run, 30.0)
        with anyio.move_on_after(120):
            while anyio.current_time() < 45 or any(len(seen[tp]) < cluster.log(tp).end for tp in tps):
                read = dice.choice((by_getone, by_getmany, by_next, by_impatient_getmany))
                with anyio.move_on_after(dice.choice((0.0, 0.01, 1.0))):
                    for record in await read(consumer):
                        seen[TopicPartition(record.topic, record.partition)].append(record.offset)
                if dice.random() < 0.05:
                    tp = dice.choice(tps)
                    assert await consumer.position(tp) == len(seen[tp])
    assert seen == {tp: list(range(cluster.log(tp).end)) for tp in tps}


@pytest.mark.parametrize("unsubscribes", [False, True])
@virtual
async def test_a_wait_for_a_record_of_a_partition_ends_as_that_leaves(unsubscribes: bool) -> None:
    cluster = FakeCluster()
    tp, other = cluster.create_topic("t", 2)
    raised: list[IllegalStateError] = []

    async def wait(consumer: Consumer) -> None:
        with pytest.raises(IllegalStateError, match="t-0: not assigned any more") as caught:
            await consumer.getone(tp)
        raised.append(caught.value)

    async with consumer_on(cluster) as consumer:
        consumer.assign([tp, other])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, consumer)
            await anyio.sleep(5)
            if unsubscribes:
                consumer.unsubscribe()
            else:
                consumer.assign([other])
            await anyio.sleep(5)
            assert raised


class Sieve:
    """An interceptor that takes its time, and lets hardly a record pass."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted

    async def on_consume(self, records: Records) -> Records:
        await anyio.sleep(0.1)
        return {tp: [record for record in part if record.offset == self.wanted] for tp, part in records.items()}

    def on_commit(self, offsets: object) -> None: ...


@pytest.mark.slow
@virtual
async def test_a_read_whose_records_are_all_dropped_ends_in_its_time() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 20_000, per_batch=500)
    async with consumer_on(cluster, "t", interceptors=[Sieve(19_999)], max_poll_records=500) as consumer:
        await consumer.getmany()
        began = anyio.current_time()
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert anyio.current_time() - began < 1.5
        assert (await consumer.getone()).offset == 19_999


@pytest.mark.slow
@virtual
async def test_a_read_whose_records_are_all_dropped_polls_and_commits() -> None:
    """The member was put out of its group, and began where it had begun before."""
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 30_000, per_batch=500)
    options: dict[str, Any] = {
        "group_id": "g",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 1000,
        "max_poll_records": 500,
    }
    async with (
        consumer_on(cluster, "t", interceptors=[Sieve(29_999)], max_poll_interval_ms=2000, **options) as consumer,
        anyio.create_task_group() as tasks,
    ):
        read: list[int] = []

        async def read_one() -> None:
            read.extend(record.offset for record in flat(await consumer.getmany(timeout_ms=60_000)))

        tasks.start_soon(read_one)
        await anyio.sleep(4)
        assert 0 < cluster.committed["g", tp] < 29_999
        with anyio.fail_after(10):
            while not read:  # noqa: ASYNC110 - virtual time
                await anyio.sleep(0.1)
    assert read == [29_999]
    assert len(consumer_epochs(cluster)) == 1


def consumer_epochs(cluster: FakeCluster) -> list[Any]:
    """Return the heartbeats with which a member joined."""
    return [each for each in cluster.asked(Api.CONSUMER_GROUP_HEARTBEAT) if each.request.member_epoch == 0]


@virtual
async def test_an_interceptor_may_change_the_lists_that_it_is_given() -> None:
    class Changes:
        def on_consume(self, records: Records) -> Records:
            for part in records.values():
                part[:] = [record._replace(value=b"x" + record.value) for record in part if record.offset % 3]
            return records

        def on_commit(self, offsets: object) -> None: ...

    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 10)
    async with consumer_on(cluster, "t", interceptors=[Changes()]) as consumer:
        found = await read_values(consumer, 6)
        assert found == [b"x%d" % offset for offset in range(10) if offset % 3]
        assert await consumer.getmany() == {}
        assert await consumer.position(tp) == 10


@virtual
async def test_an_iteration_ends_as_process_takes_over() -> None:
    """It took records that were in hand, and process committed past them."""
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 50)
    handled: list[int] = []
    iterated: list[int] = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        handled.append(record.offset)

    async with consumer_on(cluster, "t", group_id="g") as consumer:

        async def iterate(begun: anyio.Event, go_on: anyio.Event) -> None:
            async for record in consumer:
                iterated.append(record.offset)
                if record.offset == 3:
                    begun.set()
                    await go_on.wait()

        begun, go_on = anyio.Event(), anyio.Event()

        async def ends() -> None:
            with pytest.raises(IllegalStateError, match="process"):
                await iterate(begun, go_on)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends)
            await begun.wait()
            async with consumer.processing(handle):
                go_on.set()
                with anyio.fail_after(10):
                    while len(handled) < 46:  # noqa: ASYNC110 - virtual time
                        await anyio.sleep(0.1)
    assert iterated == [0, 1, 2, 3]
    assert handled == list(range(4, 50))
