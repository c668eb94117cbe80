"""Handlers that stop their consumer, in whatever way: nobody waits for a handler that waits for them."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import pytest

from kafka_async import ShareConsumer
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from kafka_async.sync import ShareConsumer as BlockingShareConsumer
from kafka_async.testing import Cluster, ThreadedCluster

from .world import until, world

SOON = 25.0
"""Seconds: less than the 30 that are given to handlers that do not end, and time enough for a machine that is busy."""


def at_work() -> list[str]:
    """Return our threads. ``stop`` has let go of handlers that wait for it, and returns to them a little later."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka_async")]


async def by_wait_for(consumer: Any) -> None:
    await asyncio.wait_for(consumer.stop(), 60)


async def by_a_task(consumer: Any) -> None:
    await asyncio.create_task(consumer.stop())


async def by_a_task_group(consumer: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.stop())


async def by_a_thread(consumer: Any) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(consumer.stop(), loop).result(60))


WAYS = [by_wait_for, by_a_task, by_a_task_group, by_a_thread]


@pytest.mark.parametrize("background", ["task", pytest.param("thread", marks=pytest.mark.slow)])
@pytest.mark.parametrize("stoppers", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stop", WAYS)
async def test_an_async_handler(stop: Callable[[Any], Any], stoppers: int, background: str) -> None:
    some = world()
    some.produce(6, keys=6)
    finished: list[int] = []

    async def handle(record: Any) -> None:
        if record.offset >= 6 - stoppers:
            await stop(consumer)
        else:
            await asyncio.sleep(0.3)
            finished.append(record.offset)

    consumer = some.consumer(background=background)
    async with consumer:
        began = time.monotonic()
        await consumer.process(handle, concurrency=6)
        assert time.monotonic() - began < SOON
    assert sorted(finished) == list(range(6 - stoppers)), "the other handlers were waited for"
    assert some.committed() == 6 - stoppers
    await until(lambda: not at_work())  # a stop that was cancelled with its handler ends the background a little later


async def test_a_plain_handler() -> None:
    some = world()
    some.produce(4, keys=4)
    finished: list[int] = []
    loop = asyncio.get_running_loop()

    def handle(record: Any) -> None:
        if record.offset == 3:
            anyio.from_thread.run(consumer.stop)
        elif record.offset == 2:
            asyncio.run_coroutine_threadsafe(consumer.stop(), loop).result(60)
        else:
            threading.Event().wait(0.3)
            finished.append(record.offset)

    consumer = some.consumer()
    async with consumer:
        began = time.monotonic()
        await consumer.process(handle, concurrency=4)
        assert time.monotonic() - began < SOON
    assert sorted(finished) == [0, 1]
    assert some.committed() == 2
    await until(lambda: not at_work())


async def test_a_task_that_a_handler_left_behind_stops_and_the_others_are_drained() -> None:
    some = world()
    some.produce(6, keys=6)
    finished: list[int] = []
    tasks: list[Any] = []

    async def handle(record: Any) -> None:
        if record.offset == 0:
            tasks.append(asyncio.create_task(consumer.stop()))
        else:
            await asyncio.sleep(0.5)
        finished.append(record.offset)

    consumer = some.consumer()
    async with consumer:
        await consumer.process(handle, concurrency=6)
        await tasks[0]
    assert sorted(finished) == list(range(6))
    assert some.committed() == 6


@pytest.mark.parametrize("made", [BlockingConsumer, BlockingShareConsumer])
def test_the_blocking_facade(made: Any) -> None:
    cluster = Cluster()
    cluster.topic("t")
    cluster.group("g", share_auto_offset_reset="earliest")
    cluster.produce_many("t", [b"%d" % number for number in range(4)])
    finished: list[bytes] = []
    with ThreadedCluster(cluster) as served:
        options: dict[str, Any] = {"bootstrap_servers": served.bootstrap, "group_id": "g"}
        if made is BlockingConsumer:
            options["auto_offset_reset"] = "earliest"
        consumer = made("t", **options)

        def handle(record: Any) -> None:
            if record.value == b"3":
                consumer.stop()
            else:
                threading.Event().wait(0.3)
                finished.append(record.value)

        with consumer:
            began = time.monotonic()
            consumer.process(handle, concurrency=4)
            assert time.monotonic() - began < SOON
    assert sorted(finished) == [b"0", b"1", b"2"]
    last = time.monotonic() + 60
    while at_work() and time.monotonic() < last:
        threading.Event().wait(0.01)
    assert not at_work()


@pytest.mark.parametrize("stop", WAYS)
async def test_a_share_consumer(stop: Callable[[Any], Any]) -> None:
    cluster = Cluster()
    cluster.topic("t")
    cluster.group("g", share_auto_offset_reset="earliest")
    cluster.produce_many("t", [b"%d" % number for number in range(4)])
    finished: list[bytes] = []

    async def handle(record: Any) -> None:
        if record.value == b"3":
            await stop(consumer)
        else:
            await asyncio.sleep(0.3)
            finished.append(record.value)

    consumer = ShareConsumer("t", group_id="g", **cluster.options())
    async with consumer:
        began = time.monotonic()
        await consumer.process(handle, concurrency=4)
        assert time.monotonic() - began < SOON
    assert sorted(finished) == [b"0", b"1", b"2"]
