"""Threads that can be left behind: at a timeout, at the end of a drain, if processing is stopped or cancelled again."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import from_thread

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.application.processing.handling import TURN
from kafka_async.application.processing.processing import Processing
from kafka_async.application.processing.threads import Threads
from kafka_async.testing import Cluster
from tests.testing.test_clusters import Run, on_both

Made = Callable[[], Any]


@pytest.fixture(params=[KafkaConsumer, ShareConsumer])
def make(request: pytest.FixtureRequest) -> Made:
    """Return what makes a consumer of either kind, on a topic of 60 records."""
    cluster = Cluster()
    cluster.topic("jobs", partitions=1)
    cluster.group("workers", share_auto_offset_reset="earliest")
    for number in range(60):
        cluster.produce("jobs", key=str(number), value=str(number))
    more = {"auto_offset_reset": "earliest"} if request.param is KafkaConsumer else {}
    return lambda: request.param("jobs", group_id="workers", **cluster.options(), **more)


class Hanging:
    """A plain function that hangs until it is let go, and then returns."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.began: list[Any] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, record: Any, *more: Any) -> None:
        self.threads.add(threading.current_thread())
        self.began.append(record)
        self.go_on.wait(60)


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    """A function that hangs, until the test is over."""
    function = Hanging()
    yield function
    function.go_on.set()
    for thread in function.threads:
        await asyncio.to_thread(thread.join, 10)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the conditions of tests are no events
            await asyncio.sleep(0.01)


async def fails(record: Any) -> None:
    raise ValueError("no")


@asynccontextmanager
async def lasting(at_most: float) -> AsyncIterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < at_most


async def test_a_handler_that_hangs_is_left_behind_at_the_end_of_the_drain(
    make: Made, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    async with make() as consumer:
        async with consumer.processing(hanging, concurrency=3, drain_timeout_ms=200):
            await until(lambda: len(hanging.began) == 3)
            leaving = time.monotonic()
        assert time.monotonic() - leaving < 5
    assert all(thread.daemon for thread in hanging.threads), "the interpreter may exit"
    assert caplog.text.count("its handler goes on though its time is over") == 1
    assert "3 threads go on with plain functions whose time is over" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [3, 4, 8])
async def test_every_worker_begins_though_the_event_loop_is_busy(make: Made, hanging: Hanging, concurrency: int) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def busy() -> None:
        began = time.monotonic()
        while time.monotonic() - began < 1.2 * TURN:  # no turn is long enough for two workers
            pass
        if not over.is_set():
            loop.call_soon(busy)

    async with make() as consumer:
        loop.call_soon(busy)
        async with consumer.processing(hanging, concurrency=concurrency, drain_timeout_ms=200):
            await until(lambda: len(hanging.began) == concurrency, 30)  # after 60 they end, and others would begin
            over.set()


@pytest.mark.parametrize("how", ["drain", "stop", "second cancellation"])
async def test_an_on_failure_that_blocks_holds_up_no_end(make: Made, hanging: Hanging, how: str) -> None:
    consumer = make()
    long = 60_000 if how == "second cancellation" else 200
    runs: list[Processing] = []

    async def main() -> None:
        async with consumer, consumer.processing(fails, concurrency=3, on_failure=hanging, drain_timeout_ms=long) as run:
            runs.append(run)
            await run.wait()

    task = asyncio.create_task(main())
    await until(lambda: len(hanging.began) == 3)
    async with lasting(8):
        if how == "stop":
            await consumer.stop(3_000)
            await task
        else:
            task.cancel()
            if how == "second cancellation":
                await asyncio.sleep(0.1)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert runs[0].statistics().dead_letters == 0


async def test_handlers_that_hang_use_up_no_more_threads_than_there_may_be(
    make: Made, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        make() as consumer,
        consumer.processing(hanging, concurrency=3, timeout_ms=300, on_failure="skip", drain_timeout_ms=200) as run,
    ):
        await until(lambda: run.statistics().skipped == 6)
        await until(lambda: "6 threads go on with plain functions whose time is over; no handler begins" in caplog.text)
        assert len(hanging.began) == 6
        assert sum("no handler begins" in line for line in caplog.text.splitlines()) == 1
        assert run.statistics().failures == 6, "no record fails because there is no thread"
        hanging.go_on.set()
        await until(lambda: run.statistics().handled + run.statistics().skipped == 60)
        assert len(hanging.threads) <= 6
        await until(lambda: run.statistics().late_results >= 6)  # a thread may tell it last of all; more, if the machine is slow


async def test_handlers_on_threads_may_call_the_event_loop(make: Made) -> None:
    found: list[Any] = []

    async def ask(record: Any) -> None:
        found.append((record.value, asyncio.current_task() is not None))

    def handle(record: Any) -> None:
        from_thread.run(ask, record)

    async with make() as consumer, consumer.processing(handle, concurrency=3) as run:
        await until(lambda: run.statistics().handled == 60)
    assert len(found) == 60
    assert all(on_loop for _, on_loop in found)


async def test_a_call_waits_for_a_thread_and_gives_its_place_up_if_it_is_cancelled() -> None:
    go_on, freed = threading.Event(), []
    threads = Threads(1, lambda: freed.append(True))
    first = asyncio.create_task(threads.run(go_on.wait, 10))
    await until(lambda: threads.used_up)
    second, third = asyncio.create_task(threads.run(int, "2")), asyncio.create_task(threads.run(int, "3"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await first
    assert await third == 3
    assert second.cancelled()
    with pytest.raises(ValueError, match="x"):
        await threads.run(int, "x")
    assert freed
    threads.close()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_call_that_is_cancelled_as_it_gets_a_thread_gives_it_to_the_next(others: int) -> None:
    go_on, freed = threading.Event(), list[bool]()
    threads = Threads(1, lambda: freed.append(True))

    async def run_and_cancel() -> None:
        await threads.run(go_on.wait, 10)
        second.cancel()  # in the step before the one in which it would hear of the thread

    first = asyncio.create_task(run_and_cancel())
    await until(lambda: threads.used_up)
    second = asyncio.create_task(threads.run(int, "2"))
    more = [asyncio.create_task(threads.run(int, "3")) for _ in range(others)]
    await asyncio.sleep(0)
    go_on.set()
    await first
    await until(second.done)
    assert second.cancelled()
    async with asyncio.timeout(10):
        assert [await task for task in more] == [3] * others
    assert freed, "workers that rest until there is a thread hear of it"
    threads.close()


async def test_a_thread_that_another_call_took_meanwhile_is_not_said_to_be_free() -> None:
    go_on, go_on_again, freed = threading.Event(), threading.Event(), list[bool]()
    threads = Threads(1, lambda: freed.append(True))

    async def run_twice() -> None:
        await threads.run(go_on.wait, 10)
        second.cancel()
        await threads.run(go_on_again.wait, 10)

    first = asyncio.create_task(run_twice())
    await until(lambda: threads.used_up)
    second = asyncio.create_task(threads.run(int, "2"))
    await asyncio.sleep(0)
    go_on.set()
    await until(second.done)
    assert (second.cancelled(), threads.used_up, freed) == (True, True, [])
    go_on_again.set()
    await first
    assert freed
    threads.close()


async def test_a_thread_that_was_left_behind_counts_until_it_ends() -> None:
    go_on = threading.Event()
    threads = Threads(2, lambda: None)
    task = asyncio.create_task(threads.run(go_on.wait, 10))
    await until(lambda: threads.busy == 1)
    task.cancel()
    await until(task.done)
    assert (threads.busy, threads.left) == (1, 1)
    assert await threads.run(int, "2") == 2
    go_on.set()
    await until(lambda: threads.busy == 0)
    assert threads.left == 0
    threads.close()


async def test_a_coroutine_that_a_plain_function_returned_too_late_is_closed() -> None:
    go_on = threading.Event()

    def late() -> Any:
        go_on.wait(10)
        return asyncio.sleep(1)  # it would warn that it was never awaited

    threads = Threads(1, lambda: None)
    task = asyncio.create_task(threads.run(late))
    await until(lambda: threads.busy == 1)
    task.cancel()
    await until(task.done)
    go_on.set()
    await until(lambda: threads.busy == 0)
    threads.close()


@on_both
def test_virtual_time_waits_for_threads(run: Run) -> None:
    async def main() -> None:
        threads = Threads(2, lambda: None)

        async def call(seconds: float) -> None:
            await threads.run(threading.Event().wait, seconds)

        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                group.start_soon(call, 0.05)
                group.start_soon(call, 0.1)
        with anyio.move_on_after(100):
            await anyio.sleep(1_000)
        assert 100 <= anyio.current_time() < 200, "without threads it jumps"
        threads.close()

    run(main)
