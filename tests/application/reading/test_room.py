"""Room in the fetch buffer: reads that ask for certain partitions in turns throw nothing away that was fetched for others."""

from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition

from ..support import Consumer, consumer_on, filled, virtual


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
