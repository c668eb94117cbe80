"""Room in the fetch buffer: reads that ask for certain partitions in turns throw nothing away that was fetched for others."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.errors import FrameSizeError
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire import Api
from tests.virtual import run_virtual_asyncio

from ..support import Consumer, consumer_on, filled, read_values, virtual


def _fetched(consumer: Consumer) -> float:
    return consumer.metrics()["consumer-fetch-manager-metrics"]["bytes-consumed-total"]


async def _drain(consumer: Consumer, busy: list[TopicPartition], quiet: TopicPartition, count: int) -> None:
    """Read everything of ``busy``, with a look at ``quiet`` before each batch."""
    left = count
    with anyio.fail_after(600):
        while left:
            assert await consumer.getmany(quiet, timeout_ms=30) == {}
            batch = await consumer.getmany(*busy, timeout_ms=1000, max_records=20)
            left -= sum(map(len, batch.values()))


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [2, 9])
@virtual
async def test_waiting_for_a_quiet_partition_costs_no_second_fetch_of_a_busy_one(partitions: int) -> None:
    cluster, tps = filled(0, partitions)
    *busy, quiet = tps
    for partition in busy:
        for _ in range(40):
            cluster.produce(partition, *[bytes(1000)] * 10)
    written = 1000 * 400 * len(busy)
    options: dict[str, Any] = {"fetch_buffer_bytes": 64_000, "max_partition_fetch_bytes": 16_000, "fetch_max_wait_ms": 10}
    async with consumer_on(cluster, **options) as consumer:
        consumer.assign(tps)
        await _drain(consumer, busy, quiet, 400 * len(busy))
        assert _fetched(consumer) < 1.2 * written


@pytest.mark.slow
@virtual
async def test_a_partition_that_is_asked_for_is_fetched_however_full_the_buffer_is_of_others() -> None:
    """All but one fill the buffer and are never read; then each gets its turn, with leftovers of the others everywhere."""
    cluster, tps = filled(0, 8)
    for partition in tps:
        for _ in range(20):
            cluster.produce(partition, *[bytes(1000)] * 10)
    async with consumer_on(cluster, fetch_buffer_bytes=64_000, max_partition_fetch_bytes=16_000) as consumer:
        consumer.assign(tps)
        seen: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
        with anyio.fail_after(600):
            while any(len(offsets) < 200 for offsets in seen.values()):
                for partition in tps:
                    if len(seen[partition]) < 200:
                        batch = await consumer.getmany(partition, timeout_ms=60_000, max_records=7)
                        seen[partition] += [record.offset for record in batch[partition]]
        assert all(offsets == list(range(200)) for offsets in seen.values())


@virtual
async def test_a_backlog_is_read_to_its_end_however_short_answers_must_be() -> None:
    cluster, (tp,) = filled(0)
    for _ in range(300):
        cluster.produce(tp, *[bytes(1000)] * 10)
    async with consumer_on(cluster, "t", receive_message_max_bytes=1_000_000) as consumer:
        assert len(await read_values(consumer, 3000, seconds=20)) == 3000


@virtual
async def test_a_batch_that_is_longer_than_answers_may_be_is_an_error_that_names_the_option() -> None:
    cluster, (tp,) = filled(0)
    cluster.produce(tp, bytes(20_000))
    async with consumer_on(cluster, "t", receive_message_max_bytes=10_000) as consumer:
        with pytest.raises(FrameSizeError, match="receive_message_max_bytes=10000"):
            await consumer.getmany(timeout_ms=5000)


@virtual
async def test_paused_partitions_that_fill_the_buffer_hold_up_no_other_one() -> None:
    cluster, tps = filled(0, 5)
    *full, other = tps
    for partition in full:
        for _ in range(20):
            cluster.produce(partition, *[bytes(1000)] * 10)
    async with consumer_on(cluster, fetch_buffer_bytes=40_000, max_partition_fetch_bytes=10_000) as consumer:
        consumer.assign(tps)
        await consumer.getmany(*full, timeout_ms=1000, max_records=1)
        await anyio.sleep(5)
        consumer.pause(*full)
        cluster.produce(other, *[bytes(1000)] * 30)
        found = 0
        with anyio.fail_after(100):
            while found < 30:
                found += len((await consumer.getmany(timeout_ms=1000)).get(other, ()))
        consumer.resume(*full)
        rest = 0
        with anyio.fail_after(100):
            while rest < 799:
                rest += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))


# Busy partitions beside others.

SMALL_BUFFER = 2_000_000
"""Bytes: a request for a quarter of them brings 13,000 small records."""


def _busy_and_quiet(per_batch: int) -> tuple[FakeCluster, list[TopicPartition], list[TopicPartition]]:
    """Return a cluster with five partitions of 20,011 records among 23, and the busy and the quiet ones."""
    cluster, tps = filled(0, 23)
    busy = [tps[index] for index in (0, 7, 11, 12, 20)]
    for partition in busy:
        cluster.fill(partition, 20_011, per_batch=per_batch)
    return cluster, busy, [partition for partition in tps if partition not in busy]


async def _order(consumer: Consumer, way: str) -> AsyncGenerator[TopicPartition, None]:
    """Yield the partition of each record that is handed out."""
    while True:
        if way == "getone":
            record = await consumer.getone()
            yield TopicPartition(record.topic, record.partition)
        elif way == "iteration":
            async for record in consumer:
                yield TopicPartition(record.topic, record.partition)
        elif way == "getarrow":
            for number in (await consumer.getarrow(timeout_ms=1000))["partition"].to_pylist():
                yield TopicPartition("t", number)
        else:
            for partition, records in (await consumer.getmany(timeout_ms=1000, max_records=617)).items():
                for _ in records:
                    yield partition


async def _before_all_of(consumer: Consumer, way: str, wanted: set[TopicPartition]) -> int:
    """Return how many records are handed out before each of these partitions has had its first one."""
    missing, count = set(wanted), 0
    async with aclosing(_order(consumer, way)) as order:
        async for partition in order:
            missing.discard(partition)
            if not missing:
                return count
            count += 1
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("per_batch", [37, 211])
@pytest.mark.parametrize("way", ["getmany", "getone", "iteration", "getarrow"])
def test_each_partition_comes_within_10_000_records_however_small_the_buffer_is(way: str, per_batch: int) -> None:
    async def scenario() -> None:
        cluster, busy, quiet = _busy_and_quiet(per_batch)
        for number, partition in enumerate(quiet):
            cluster.fill(partition, 113 + number, per_batch=per_batch)
        async with consumer_on(cluster, "t", fetch_buffer_bytes=SMALL_BUFFER) as consumer:
            assert await _before_all_of(consumer, way, {*busy, *quiet}) < 10_000

    run_virtual_asyncio(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["getmany", "iteration", "getarrow"])
def test_a_partition_that_was_quiet_comes_within_10_000_records_beside_busy_ones_that_fill_the_buffer(way: str) -> None:
    async def scenario() -> None:
        cluster, _, quiet = _busy_and_quiet(211)
        async with consumer_on(cluster, "t", fetch_buffer_bytes=SMALL_BUFFER) as consumer:
            async with aclosing(_order(consumer, way)) as order:
                for _ in range(5003):
                    await anext(order)
            await anyio.sleep(3.0)  # as much is fetched as there is room for
            cluster.fill(quiet[4], 3)
            await anyio.sleep(0.01)
            assert await _before_all_of(consumer, way, {quiet[4]}) < 10_000

    run_virtual_asyncio(scenario)


@pytest.mark.parametrize("partitions", [2, 31])
def test_a_partition_that_alone_has_much_to_read_soon_gets_large_answers(partitions: int) -> None:
    async def scenario() -> None:
        cluster, (busy, *_) = filled(0, partitions)
        for _ in range(60):
            cluster.produce(busy, *[bytes(1000)] * 100)
        async with consumer_on(cluster, "t") as consumer:
            found = 0
            while found < 6000:
                found += sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=6000)).values()))
            assert len(cluster.asked(Api.FETCH)) <= 16

    run_virtual_asyncio(scenario)


@pytest.mark.parametrize(("partitions", "much"), [(2, 1), (31, 1), (31, 4), (200, 3)])
def test_partitions_with_much_to_read_are_read_as_fast_beside_idle_ones_as_alone(partitions: int, much: int) -> None:
    """Brokers hold requests for partitions that have nothing. None of the others waits for that."""

    async def scenario() -> None:
        cluster, tps = filled(0, partitions)
        for partition in tps[:much]:
            for _ in range(160 // much):
                cluster.produce(partition, *[bytes(1000)] * 50)
        count = 160 // much * much * 50
        async with consumer_on(cluster, "t") as consumer:
            found, began = 0, anyio.current_time()
            while found < count:
                found += sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=500)).values()))
                await anyio.sleep(0.002)
            assert anyio.current_time() - began < 0.2

    run_virtual_asyncio(scenario)


@pytest.mark.slow
def test_an_application_that_does_not_read_costs_no_more_requests_than_an_idle_one() -> None:
    async def scenario() -> None:
        cluster, (busy, *_) = filled(0, 3)
        for _ in range(40):
            cluster.produce(busy, *[bytes(1000)] * 50)
        async with consumer_on(cluster, "t", fetch_buffer_bytes=300_000) as consumer:
            await consumer.getmany(timeout_ms=1000, max_records=1)
            await anyio.sleep(10)
            since = anyio.current_time()
            await anyio.sleep(60)
            assert len(cluster.asked(Api.FETCH, since=since)) <= 121

    run_virtual_asyncio(scenario)


@pytest.mark.slow
def test_a_broker_of_idle_partitions_is_asked_no_more_often_while_another_has_a_busy_one() -> None:
    async def scenario() -> None:
        cluster, (busy, *_) = filled(0, 10, size=5)
        for _ in range(2000):
            cluster.produce(busy, *[bytes(1000)] * 50)
        async with consumer_on(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=1000, max_records=1)
            since, found = anyio.current_time(), 0
            while found < 90_000:
                found += sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=500)).values()))
                await anyio.sleep(0.02)
            seconds = anyio.current_time() - since
            asked = Counter(request.node_id for request in cluster.asked(Api.FETCH, since=since))
            of_busy_one, *of_idle_ones = [count for _, count in asked.most_common()]
            assert of_busy_one > 10 * seconds
            assert len(of_idle_ones) == 4
            assert max(of_idle_ones) <= 2 * seconds + 1

    run_virtual_asyncio(scenario)
