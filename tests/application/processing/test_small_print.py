"""What programs do beside their handlers: pause a partition, seek, ask for statistics; and intervals of nothing."""

import logging
import sys
import threading
import time
from types import FrameType
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.application.processing.context import ProcessingContext
from tests.application.support import consumer_on, virtual

from .test_on_asyncio import until as until_on_asyncio
from .world import GROUP, Record, processed, until, world


@pytest.mark.slow
@virtual
async def test_no_handler_of_a_paused_partition_begins() -> None:
    some = world(partitions=2)
    for partition in range(2):
        some.produce(200, keys=20, partition=partition)
    paused = some.partitions[0]
    async with some.consumer() as consumer, consumer.processing(some.handle, concurrency=4, batch=None) as run:
        await until(lambda: len(some.started) >= 20)
        consumer.pause(paused)
        begun = [record for record in some.started if record.partition == 0]
        await until(lambda: sum(record.partition == 1 for record in some.done) == 200)
        assert [record for record in some.started if record.partition == 0] == begun
        assert run.statistics().waiting > 0
        with anyio.fail_after(10):
            await run.drain()  # which does not wait for what is paused
        run.resume()
        await anyio.sleep(100)
        assert not run.statistics().stalled
        consumer.seek(paused, 0)  # a new beginning is as paused as the old one
        await anyio.sleep(5)
        assert [record for record in some.started if record.partition == 0] == begun
        consumer.resume(paused)
        await until(lambda: {record.offset for record in some.done if record.partition == 0} == set(range(200)))
        await run.drain()
    assert some.committed(0) == some.committed(1) == 200


async def test_threads_begin_nothing_of_a_paused_partition() -> None:
    some = world()
    some.produce(50)
    go_on, started = threading.Event(), []

    def handle(record: Record) -> None:
        started.append(record.offset)
        go_on.wait(10)

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=2, order="none") as run:
        await until_on_asyncio(lambda: len(started) == 2)
        consumer.pause(*some.partitions)
        go_on.set()
        await until_on_asyncio(lambda: run.statistics().running == 0)
        assert len(started) == 2
        consumer.resume(*some.partitions)
        await until_on_asyncio(lambda: len(started) == 50)


@pytest.mark.slow
@virtual
async def test_a_key_is_handled_once_at_a_time_after_a_seek_too() -> None:
    """``World.handle`` fails if a key is handled twice at once."""
    some = world()
    some.produce(40, keys=4)
    some.seconds = lambda record: 5.0 if record.offset < 8 and len(some.done) < 8 else 0.01
    failed: list[BaseException] = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        failed.append(error)

    async with some.consumer() as consumer, consumer.processing(some.handle, on_failure=write) as run:
        await until(lambda: some.running.total() == 4)
        consumer.seek(some.partitions[0], 0)
        await anyio.sleep(1)
        found = run.statistics()
        assert (found.running, found.waiting) == (4, 40), "those that run were received before and are not held any more"
        await until(lambda: len(some.done) >= 44)
        await run.drain()
        assert run.statistics().late_results == 4
    assert not failed
    assert sorted(some.offsets()) == sorted([0, 1, 2, 3, *range(40)])
    assert some.committed() == 40


@pytest.mark.slow
async def test_no_more_run_than_may() -> None:
    some = world()
    some.produce(4_000)
    most, stop = 0, threading.Event()

    async with some.consumer() as consumer, consumer.processing(lambda record: time.sleep(0.0005), concurrency=10) as run:

        def look() -> None:
            nonlocal most
            while not stop.is_set():
                most = max(most, run.statistics().running)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            await until_on_asyncio(lambda: run.statistics().handled == 4_000, 60)
        finally:
            stop.set()
            looking.join()
    assert 5 <= most <= 10


@pytest.mark.slow
@virtual
async def test_an_interval_of_nothing_keeps_nothing_busy() -> None:
    some = world()
    some.produce(10)
    async with processed(some, consumer={"auto_commit_interval_ms": 0}):
        await until(lambda: some.committed() == 10)
        await anyio.sleep(100)  # virtual time passes only while every task waits


@pytest.mark.slow
@virtual
async def test_what_is_completed_costs_the_same_however_many_partitions_there_are() -> None:
    async def calls(partitions: int) -> int:
        some = world(partitions=partitions)
        some.produce(200)
        made = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        async def handle(record: Record, context: ProcessingContext) -> None:
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                for _ in range(10):
                    assert context.completed(TopicPartition("t", 0)) is not None
            finally:
                sys.setprofile(before)

        async with some.consumer() as consumer, consumer.processing(handle, order="partition") as run:
            await until(lambda: run.statistics().handled == 200)
        return made

    few = await calls(1)
    assert few > 2_000
    assert await calls(1_000) < 1.1 * few


@pytest.mark.parametrize(
    ("how", "options", "level"),
    [
        ("subscribe", {}, "WARNING"),
        ("subscribe", {"enable_auto_commit": False}, "INFO"),
        ("assign", {}, "INFO"),
        ("subscribe", {"group_id": GROUP}, None),
    ],
)
@virtual
async def test_that_nothing_is_committed_without_a_group_is_said_once(
    how: str, options: dict[str, Any], level: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    some = world()
    some.produce(3)
    consumer = consumer_on(some.cluster, *(["t"] if how == "subscribe" else []), **options)
    if how == "assign":
        consumer.assign(some.partitions)
    with caplog.at_level(logging.INFO, "kafka_async"):
        async with consumer, consumer.processing(some.handle):
            await until(lambda: len(some.done) == 3)
    said = [entry.levelname for entry in caplog.records if "process commits nothing" in entry.message]
    assert said == ([] if level is None else [level])
