"""What only asyncio has: handlers on threads beside a real loop, tasks that are cancelled by themselves, and by others, twice."""

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Collection
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, TopicPartition
from kafka_async.application.processing.context import ProcessingContext
from kafka_async.application.processing.processing import Processing
from kafka_async.application.processing.retry import Retry, RetryLater
from kafka_async.errors import ProcessingError
from tests.application.support import Consumer

from .world import Record, World, world


async def until(condition: Any, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the conditions of tests are no events
            await asyncio.sleep(0.01)


async def _until_it_fails(consumer: Consumer, run: Processing) -> None:
    async with consumer, run:
        await run.wait()


async def test_plain_handlers_run_on_threads_as_many_as_may() -> None:
    some = world()
    some.produce(60)
    lock, meeting = threading.Lock(), threading.Barrier(6)
    now, peak, begun, done = 0, 0, 0, []

    def handle(record: Record) -> None:
        nonlocal now, peak, begun
        with lock:
            begun += 1
            among_the_first = begun <= 6
            now += 1
            peak = max(peak, now)
        if among_the_first:
            meeting.wait(60)
        time.sleep(0.01)  # so that a seventh, which must not begin, would meet six
        with lock:
            now -= 1
            done.append(record.offset)

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=6) as run:
        await until(lambda: len(done) == 60)
        await run.drain()
    assert peak == 6
    assert sorted(done) == list(range(60))
    assert some.committed() == 60


async def test_a_pause_takes_back_what_is_laid_out_for_threads() -> None:
    some = world()
    some.produce(20)
    first, go_on, done = threading.Event(), threading.Event(), []

    def handle(record: Record) -> None:
        first.set()
        go_on.wait(10)
        done.append(record.offset)

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=1, order="none") as run:
        await asyncio.to_thread(first.wait, 10)
        await until(lambda: run.statistics().waiting + run.statistics().running >= 10)
        assert run.statistics().running == 1, "what is laid out has not begun"
        run.pause()
        go_on.set()
        await until(lambda: run.statistics().running == 0)
        assert done == [0]
        run.resume()
        await until(lambda: len(done) == 20)
        await run.drain()
    assert done == list(range(20)), "in the order in which they came"


async def test_a_record_whose_thread_has_just_ended_counts_though_its_worker_is_cancelled_at_that_moment() -> None:
    some = world()
    some.produce(1)
    begun, go_on, moment, began = threading.Event(), threading.Event(), threading.Event(), time.monotonic()

    def handle(record: Record) -> None:
        begun.set()
        go_on.wait(60)

    async with some.consumer() as consumer:
        before = asyncio.all_tasks()
        async with consumer.processing(handle, concurrency=1, drain_timeout_ms=20_000) as run:
            await until(begun.is_set)
            go_on.set()
            while run.statistics().running:
                moment.wait(0.01)  # the event loop is blocked, so it has not seen the result
            for task in asyncio.all_tasks() - before:
                task.cancel()
    assert run.statistics().handled == 1
    assert some.committed() == 1
    assert time.monotonic() - began < 15, "nothing was waited for"


async def test_a_record_whose_thread_has_just_ended_is_committed_though_its_partition_is_given_up_at_that_moment() -> None:
    some = world(partitions=2)
    some.produce(1)
    begun, go_on, moment = threading.Event(), threading.Event(), threading.Event()

    def handle(record: Record) -> None:
        begun.set()
        go_on.wait(60)

    async with some.consumer() as consumer:
        consumer.unsubscribe()
        consumer.assign(some.partitions[:1])
        async with consumer.processing(handle, concurrency=1) as run:
            await until(begun.is_set)
            go_on.set()
            while run.statistics().running:
                moment.wait(0.01)  # the event loop is blocked, so it has not seen the result
            consumer.assign(some.partitions[1:])
            await until(lambda: some.committed() is not None)
            assert some.committed() == 1
            assert run.statistics().late_results == 0


async def test_a_plain_handler_that_fails_is_tried_again_and_the_others_go_on() -> None:
    some = world()
    some.produce(200)
    tried: dict[int, int] = {}

    def handle(record: Record) -> None:
        tried[record.offset] = tried.get(record.offset, 0) + 1
        if record.offset % 7 == 0 and tried[record.offset] < 3:
            raise ValueError("not yet")

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=4, retry=Retry(attempts=3, delay=0.01)) as run:
        await until(lambda: run.statistics().handled == 200)
        assert run.statistics().attempts == 200 + 2 * 29
    assert tried == {offset: 3 if offset % 7 == 0 else 1 for offset in range(200)}
    assert some.committed() == 200


async def test_keys_keep_their_order_on_threads() -> None:
    some = world()
    some.produce(300, keys=5)
    seen: dict[Any, list[int]] = {}

    def handle(record: Record) -> None:
        seen.setdefault(record.key, []).append(record.offset)

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=8, order="key") as run:
        await until(lambda: run.statistics().handled == 300)
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert sum(map(len, seen.values())) == 300


@pytest.mark.slow  # waits for some seconds
async def test_a_thread_that_ends_after_its_time_counts_as_late() -> None:
    some = world()
    some.produce(3)
    go_on, contexts = threading.Event(), []

    def handle(record: Record, context: ProcessingContext) -> None:
        if record.offset == 1:
            contexts.append(context)
            go_on.wait(60)

    consumer = some.consumer()
    run = consumer.processing(handle, timeout_ms=5_000)  # time enough for the others, which return at once
    with pytest.raises(ProcessingError, match="offset 1"):
        await _until_it_fails(consumer, run)
    assert contexts[0].cancelled
    assert run.statistics().late_results == 0
    go_on.set()
    await until(lambda: run.statistics().late_results == 1)
    assert some.committed() == 1


@pytest.mark.slow
async def test_a_thread_may_ask_what_would_be_committed_if_it_had_returned() -> None:
    some = world()
    some.produce(3_000)
    kept = []

    def handle(record: Record, context: ProcessingContext) -> None:
        kept.append((record.offset, context.completed(TopicPartition(record.topic, record.partition))))

    async with some.consumer() as consumer, consumer.processing(handle, order="partition") as run:
        await until(lambda: len(kept) == 3_000, 60)
        await run.drain()
    assert [(offset + 1) for offset, _ in kept] == [point.offset for _, point in kept if point is not None]


@pytest.mark.parametrize("timeout_ms", [None, 600_000])
async def test_a_thread_whose_partition_has_left_is_not_told_what_to_store(timeout_ms: float | None) -> None:
    """It was told that nothing is known, and a program that stored its result all the same counted the record twice."""
    some = world()
    some.produce(3)
    go_on, told, refused = threading.Event(), list[int](), list[int]()

    def handle(record: Record, context: ProcessingContext) -> None:
        if record.offset == 1:
            go_on.wait(10)
        try:
            context.completed(TopicPartition(record.topic, record.partition))
        except RetryLater:
            refused.append(record.offset)
            raise
        told.append(record.offset)

    async with some.consumer() as consumer:
        async with consumer.processing(handle, drain_timeout_ms=0, timeout_ms=timeout_ms) as run:
            await until(lambda: len(told) == 2)
        go_on.set()
        await until(lambda: run.statistics().late_results == 1)
    assert sorted(told) == [0, 2]
    assert refused == [1]


async def test_a_thread_whose_time_is_over_is_not_told_what_to_store() -> None:
    some = world()
    some.produce(3)
    go_on, told, refused = threading.Event(), list[tuple[int, int]](), list[tuple[int, int]]()

    def handle(record: Record, context: ProcessingContext) -> None:
        if record.offset == 1 and context.attempt == 1:
            go_on.wait(60)
        try:
            context.completed(TopicPartition(record.topic, record.partition))
        except RetryLater:
            refused.append((record.offset, context.attempt))
            raise
        told.append((record.offset, context.attempt))

    async with some.consumer() as consumer, consumer.processing(handle, timeout_ms=1_000, retry=Retry(attempts=2)) as run:
        await until(lambda: len(told) == 3)
        go_on.set()
        await until(lambda: run.statistics().late_results == 1)
    assert sorted(told) == [(0, 1), (1, 2), (2, 1)]
    assert refused == [(1, 1)]


async def test_a_plain_function_may_return_something_to_await() -> None:
    some = world()
    some.produce(5)
    async with some.consumer() as consumer, consumer.processing(lambda record: some.handle(record)):
        await until(lambda: len(some.done) == 5)


async def test_a_cancellation_that_a_handler_raises_is_its_failure() -> None:
    """It awaited a task that somebody cancelled; that must not end a worker, or the record be taken for done."""
    some = world()
    some.produce(3)
    calls = []

    async def handle(record: Record, context: ProcessingContext) -> None:
        calls.append((record.offset, context.attempt))
        if record.offset == 1 and context.attempt == 1:
            other = asyncio.create_task(asyncio.sleep(10))
            other.cancel()
            await other

    async with some.consumer() as consumer, consumer.processing(handle, retry=Retry(attempts=2), concurrency=1) as run:
        await until(lambda: len(calls) == 4)
        await run.drain()
        assert run.statistics().failures == 1
    assert sorted(calls) == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert some.committed() == 3


async def _run(some: World, drain_timeout_ms: float) -> None:
    async with some.consumer() as consumer, consumer.processing(some.handle, drain_timeout_ms=drain_timeout_ms) as run:
        await run.wait()


async def test_a_task_that_is_cancelled_drains() -> None:
    some = world()
    some.produce(5)
    some.seconds = lambda record: 0.3
    task = asyncio.create_task(_run(some, 30_000))
    await until(lambda: some.running.total() == 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(some.done) == 5
    assert some.committed() == 5


async def test_a_second_cancellation_ends_it_at_once() -> None:
    some = world()
    some.produce(5)
    some.seconds = lambda record: 100
    task = asyncio.create_task(_run(some, 30_000))
    await until(lambda: some.running.total() == 5)
    task.cancel()
    await asyncio.sleep(0.1)
    assert some.running.total() == 5
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 25  # 30 if they were drained
    assert some.running.total() == 0
    assert some.committed() in (None, 0)


async def test_no_task_is_left() -> None:
    some = world()
    some.produce(50, keys=3)
    before = asyncio.all_tasks()
    async with some.consumer() as consumer, consumer.processing(some.handle, concurrency=50):
        await until(lambda: len(some.done) == 50)
        assert len(asyncio.all_tasks()) > 50
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() <= before


@pytest.mark.slow
async def test_handlers_that_never_wait_let_others_run() -> None:
    some = world()
    some.produce(20_000, keys=100)
    turns = 0
    count = 0

    async def handle(record: Record) -> None:
        nonlocal count
        count += 1
        time.sleep(0.0002)  # noqa: ASYNC251 - it keeps the loop busy on purpose

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with some.consumer() as consumer, consumer.processing(handle):
        ticking = asyncio.create_task(tick())
        await until(lambda: count > 2_000)
        ticking.cancel()
    assert turns > 10


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has eager tasks from Python 3.12 on")
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_handlers_run_on_an_event_loop_that_begins_tasks_at_once(plain: bool) -> None:
    if sys.version_info >= (3, 12):
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    some, done = world(), list[int]()
    some.produce(10)

    async def handle(record: Record) -> None:
        done.append(record.offset)

    work: Any = (lambda record: done.append(record.offset)) if plain else handle
    async with some.consumer() as consumer, consumer.processing(work) as run:
        await until(lambda: len(done) == 10)
        await run.drain()
    assert (sorted(done), some.committed()) == (list(range(10)), 10)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has eager tasks from Python 3.12 on")
async def test_call_backs_that_do_not_wait_end_once_on_an_event_loop_that_begins_tasks_at_once() -> None:
    loop, wrong = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    if sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0.01)

    some = world()
    some.produce(10)
    async with some.consumer() as consumer:
        for _ in range(3):
            consumer.unsubscribe()
            consumer.subscribe(["t"], listener=Listener())
            assert await consumer.getmany(timeout_ms=2_000, max_records=1)
    assert wrong == []


@pytest.mark.slow
async def test_what_the_coroutine_of_a_plain_handler_raises_is_not_kept() -> None:
    some = world()
    some.produce(5)
    kept: list[weakref.ref[Exception]] = []

    class Failure(Exception):  # those that are built in have no weak references
        pass

    async def fail() -> None:
        error = Failure()
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error  # else it is this frame that keeps it

    gc.collect()
    gc.disable()
    try:
        async with some.consumer() as consumer, consumer.processing(lambda record: fail(), concurrency=1, on_failure="skip") as run:
            await until(lambda: run.statistics().skipped == 5)
            await run.drain()
            left = [error() for error in kept]
    finally:
        gc.enable()
    assert left[:-1] == [None] * 4, "its worker may have the last one"
