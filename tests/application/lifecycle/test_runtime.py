"""Where the background loop runs: beside the caller, on a thread, on either kind of event loop. Real time, but nobody sleeps."""

import asyncio
import gc
import threading
from typing import Any

import anyio
import pytest

from kafka_async import Statistics
from kafka_async.application.lifecycle.runtime import TaskRuntime, ThreadRuntime
from kafka_async.errors import BackgroundLoopError
from kafka_async.testing.simulation import FakeCluster

from ..support import consumer_on, numbers, read_values, virtual


def filled() -> FakeCluster:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 100)
    return cluster


def forget(kept: list[Any]) -> None:
    kept.clear()
    gc.collect()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "kafka_async" in thread.name]


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_asyncio_reads_with_either_background(background: str) -> None:
    async with consumer_on(filled(), "t", background=background) as consumer:
        assert len(threads()) == (background == "thread")
        assert await read_values(consumer, 100) == numbers(100)
        seen = consumer.statistics()
        assert (seen.records_consumed, seen.cluster_id) == (100, "fake-cluster")
    assert threads() == []
    assert [task for task in asyncio.all_tasks() if "kafka_async" in task.get_name()] == []


@pytest.mark.parametrize("background", ["task", "thread"])
def test_trio_reads_with_either_background(background: str) -> None:
    async def read() -> None:
        async with consumer_on(filled(), "t", background=background) as consumer:
            assert await read_values(consumer, 100) == numbers(100)

    anyio.run(read, backend="trio")
    assert threads() == []


async def test_a_thread_outlives_no_failed_start() -> None:
    cluster = FakeCluster()
    cluster.stop(0)
    with pytest.raises(Exception, match="b0:9092"):
        await consumer_on(cluster, "t", background="thread").start()
    assert threads() == []


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_a_bug_in_the_loop_reaches_the_caller_from_either_background(background: str) -> None:
    armed = False

    def listener(event: object) -> None:
        if armed:
            raise RuntimeError("a bug")

    consumer = consumer_on(filled(), "t", background=background, trace=listener, fetch_max_wait_ms=10)
    await consumer.start()
    await read_values(consumer, 100)
    armed = True
    with pytest.raises(BackgroundLoopError, match="a bug"):
        await consumer.getone()
    await consumer.stop()
    assert threads() == []


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_what_the_background_calls_may_ask_for_statistics(background: str) -> None:
    seen: list[Statistics] = []
    armed = False

    def listener(event: object) -> None:
        if armed:
            seen.append(consumer.statistics())

    async with consumer_on(filled(), "t", background=background, trace=listener) as consumer:
        armed = True
        assert await read_values(consumer, 100) == numbers(100)
        armed = False
    assert seen[0].cluster_id == "fake-cluster"


async def test_two_event_loops_can_have_a_consumer_each() -> None:
    found: list[list[bytes]] = []

    def elsewhere() -> None:
        async def read() -> None:
            async with consumer_on(filled(), "t") as consumer:
                found.append(await read_values(consumer, 100))

        asyncio.run(read())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    async with consumer_on(filled(), "t") as consumer:
        found.append(await read_values(consumer, 100))
    await asyncio.to_thread(thread.join)
    assert found == [numbers(100)] * 2


async def test_an_event_loop_that_is_shut_down_under_a_consumer_is_no_hang() -> None:
    def program() -> None:
        async def leave_it() -> Any:
            consumer = consumer_on(filled(), "t")
            await consumer.start()
            return consumer

        kept = [asyncio.run(leave_it())]
        with pytest.warns(ResourceWarning, match="was not stopped"):
            forget(kept)

    await asyncio.to_thread(program)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_task_of_a_consumer_that_is_forgotten_ends(backend: str) -> None:
    async def program() -> None:
        cluster, runtime = filled(), TaskRuntime()
        kept = [consumer_on(cluster, "t", runtime=runtime)]
        await kept[0].start()
        assert cluster.network.live()
        with pytest.warns(ResourceWarning, match="was not stopped"):
            forget(kept)
        await runtime.join(5.0)
        assert not cluster.network.live()

    anyio.run(program, backend=backend)


@virtual
async def test_a_task_that_is_aborted_is_gone_when_join_returns() -> None:
    cluster = filled()
    runtime = TaskRuntime()
    consumer = consumer_on(cluster, "t", runtime=runtime)
    await consumer.start()
    cluster.freeze(0)
    await consumer.stop(timeout_ms=0)
    assert not cluster.network.live()


async def test_a_thread_answers_questions_that_cannot_wait() -> None:
    runtime = ThreadRuntime.for_tasks()
    async with consumer_on(filled(), "t", runtime=runtime) as consumer:
        assert runtime.ask_now(lambda: 1, lambda call: call.resolve(2)) == 2
        assert consumer.statistics().brokers[0].host == "b0"
