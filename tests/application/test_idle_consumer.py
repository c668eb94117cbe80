"""Promise 9 of ``tests/README.md``: a consumer that waits, or whose cluster is down, does not spin."""

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.errors import (
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafka_async.wire import Api

from .support import consumer_on, filled, numbers, read_values, virtual


@virtual
async def test_an_idle_consumer_wakes_only_with_its_long_polls() -> None:
    cluster, _ = filled(partitions=6, size=3)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 120)
        before, asked = consumer.statistics().wake_ups, len(cluster.asked())
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 3 * 2 * 60 * 2
        assert len(cluster.asked()) - asked <= 3 * 2 * 60 + 3


@virtual
async def test_a_consumer_with_nothing_assigned_sleeps() -> None:
    cluster, _ = filled()
    async with consumer_on(cluster) as consumer:
        await anyio.sleep(5)
        before = consumer.statistics().wake_ups
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 2


@virtual
async def test_a_paused_consumer_sleeps() -> None:
    cluster, tps = filled()
    async with consumer_on(cluster, "t") as consumer:
        consumer.pause(*tps)
        await anyio.sleep(5)
        before = consumer.statistics().wake_ups
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 2


@virtual
async def test_a_full_buffer_lets_the_loop_sleep() -> None:
    cluster, (tp,) = filled(0)
    cluster.fill(tp, 100, per_batch=1, size=1000)
    async with consumer_on(cluster, "t", fetch_buffer_bytes=20_000) as consumer:
        await anyio.sleep(5)
        before = consumer.statistics().wake_ups
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before <= 2


@pytest.mark.parametrize("trouble", ["refuse", "hang", "freeze"])
@virtual
async def test_a_dead_cluster_is_tried_at_intervals(trouble: str) -> None:
    cluster, _ = filled(size=3, partitions=3)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 60)
        for node in cluster.brokers:
            if trouble == "freeze":
                cluster.freeze(node)
            else:
                cluster.stop(node, trouble)
        await anyio.sleep(60)
        before, attempts = consumer.statistics().wake_ups, cluster.network.attempts
        await anyio.sleep(60)
        assert consumer.statistics().wake_ups - before < 60 * 60
        assert cluster.network.attempts - attempts < 60 * 4
        for node in cluster.brokers:
            cluster.start(node)
        before_read = anyio.current_time()
        cluster.fill(TopicPartition("t", 0), 1)
        assert await read_values(consumer, 1) == [b"20"]
        assert anyio.current_time() - before_read < 40


@pytest.mark.parametrize("code", [1, 3, 5, 6, 9, 29, 56, 70, 71, 74, 75, 78, 100, 103, 106, -1])
@virtual
async def test_a_fetch_error_that_never_ends_is_met_at_intervals_and_survived(code: int) -> None:
    cluster, (tp,) = filled(5)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 5)
        end = cluster.control(Api.FETCH, lambda broker, request: code, keep=True)
        start = anyio.current_time()
        await anyio.sleep(30)
        assert len(cluster.asked(since=start)) < 30 * 35
        end()
        cluster.fill(tp, 3)
        values: list[bytes] = []
        for _ in range(5):
            try:
                values += await read_values(consumer, 3, seconds=3)
            except TopicAuthorizationFailedError:
                continue
        # Out of range is believed, and the policy is "earliest": the log is read again from its beginning.
        assert values == (numbers(8) if code == OffsetOutOfRangeError.errno else numbers(3, 5))


@pytest.mark.parametrize(
    ("api", "code"),
    [(Api.METADATA, 3), (Api.METADATA, 5), *((Api.LIST_OFFSETS, code) for code in (3, 5, 6, 9, 56, 74, 75, 78, 14))],
)
@virtual
async def test_errors_on_the_way_to_a_position_are_survived(api: Api, code: int) -> None:
    cluster, _ = filled(5)
    end = cluster.control(api, lambda broker, request: code, keep=True)
    async with anyio.create_task_group() as tasks:

        async def mend() -> None:
            await anyio.sleep(5)
            end()

        tasks.start_soon(mend)
        async with consumer_on(cluster, "t") as consumer:
            assert await read_values(consumer, 5) == numbers(5)
            assert 5 < anyio.current_time() < 7
            assert len(cluster.asked()) < 5 * 35
