"""A processing that has failed and that nobody awaits, calls that wait while it begins, and a broker that is away at its end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.errors import IllegalStateError, ProcessingError
from kafka_async.testing import Cluster
from tests.application.support import virtual

from .world import World, until, world

KINDS = [KafkaConsumer, ShareConsumer]


def _made(kind: Any, records: int) -> tuple[Cluster, Any]:
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for number in range(records):
        cluster.produce("jobs", value=str(number))
    more = {"auto_offset_reset": "earliest"} if kind is KafkaConsumer else {}
    return cluster, kind("jobs", group_id="workers", **cluster.options(), **more)


async def _fails(record: Any) -> None:
    raise ZeroDivisionError("no")


async def _wait_until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(100):
        while not condition():  # noqa: ASYNC110 - the conditions of tests are no events, and time is virtual
            await anyio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_process_that_nobody_awaits_is_an_error_in_the_log_and_not_alive(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, consumer = _made(kind, 3)
    async with consumer:
        task = asyncio.create_task(consumer.process(_fails))
        await _wait_until(task.done)
        assert (consumer.alive, consumer.ready) == (False, False)
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        assert "process() has failed" in errors[0].getMessage()
        assert "ZeroDivisionError" in errors[0].getMessage()
        await asyncio.sleep(0.1)
        assert not consumer.alive
        # An application that goes on by itself is alive.
        assert await consumer.getmany(timeout_ms=5_000)
        assert (consumer.alive, consumer.ready) == (True, True)
    assert isinstance(task.exception(), ProcessingError)


@pytest.mark.slow
@virtual
async def test_a_failed_process_that_drains_is_alive_until_it_has_drained() -> None:
    some = world()
    some.produce(2, keys=2)
    done: list[int] = []

    async def handle(record: Any) -> None:
        await anyio.sleep(100 if record.offset else 1)
        if record.offset == 0:
            raise ZeroDivisionError("no")
        done.append(record.offset)

    async def process(consumer: Any) -> None:
        with pytest.raises(ProcessingError):
            await consumer.process(handle, concurrency=2, drain_timeout_ms=300_000)
        assert (consumer.alive, consumer.ready) == (False, False)

    async with some.consumer() as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(process, consumer)
        await anyio.sleep(50)
        assert (consumer.alive, consumer.ready, done) == (True, False, [])
    assert done == [1]


@pytest.mark.parametrize("kind", KINDS)
async def test_processing_again_after_a_failure_is_alive(kind: Any) -> None:
    _, consumer = _made(kind, 3)
    done = []

    async def handle(record: Any) -> None:
        done.append(record)

    async with consumer:
        with pytest.raises(ProcessingError):
            await consumer.process(_fails)
        assert not consumer.alive
        async with consumer.processing(handle) as run:
            assert (consumer.alive, consumer.ready) == (True, True)
            await _wait_until(lambda: len(done) == 3)
            await run.drain()
        assert (consumer.alive, consumer.ready) == (True, True)


@pytest.mark.parametrize("kind", KINDS)
async def test_who_waits_outside_the_block_learns_of_the_failure(kind: Any) -> None:
    _, consumer = _made(kind, 3)
    runs: list[Any] = []

    async def main() -> None:
        async with consumer, consumer.processing(_fails) as run:
            runs.append(run)
            await asyncio.sleep(100)

    task = asyncio.create_task(main())
    await _wait_until(lambda: bool(runs))
    await asyncio.wait_for(runs[0].wait(), 20)
    with pytest.raises(ProcessingError):
        await task


@pytest.mark.parametrize("kind", KINDS)
async def test_a_read_that_waits_while_process_begins_takes_no_records(kind: Any) -> None:
    cluster, consumer = _made(kind, 0)
    done: list[Any] = []

    async def handle(record: Any) -> None:
        done.append(record)

    async with consumer:
        waiting = [asyncio.create_task(consumer.getmany(timeout_ms=60_000)), asyncio.create_task(consumer.getone())]
        await asyncio.sleep(0.2)
        async with consumer.processing(handle):
            for number in range(50):
                cluster.produce("jobs", value=str(number))
            for task in waiting:
                with pytest.raises(IllegalStateError, match=r"process\(\) began to read"):
                    await asyncio.wait_for(task, 20)
            await _wait_until(lambda: len(done) == 50)


@virtual
async def test_what_is_done_is_committed_if_the_broker_comes_back_within_the_request_timeout() -> None:
    some = world()
    some.produce(10)
    async with anyio.create_task_group() as tasks, some.consumer() as consumer:
        async with consumer.processing(some.handle):
            await until(lambda: len(some.done) == 10)
            some.cluster.stop(0)
            tasks.start_soon(_start_later, some)
            began = anyio.current_time()
        assert 20 <= anyio.current_time() - began < 25
    assert some.committed() == 10


@virtual
async def test_the_last_commit_takes_no_longer_than_the_request_timeout() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer:
        async with consumer.processing(some.handle):
            await until(lambda: len(some.done) == 10)
            some.cluster.stop(0)
            began = anyio.current_time()
        assert 30 <= anyio.current_time() - began < 31


async def _start_later(some: World) -> None:
    await anyio.sleep(20)
    some.cluster.start(0)
