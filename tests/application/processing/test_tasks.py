"""Tasks of the workers that others cancel, blocks that are left elsewhere, handlers that clean up, turns of the event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import pytest

from kafka_async import ConsumerState, Retry
from kafka_async.application.processing.processing import Processing
from kafka_async.errors import ProcessingError
from tests.virtual import run_virtual_asyncio

from .world import Record, World, processed, world


def on_asyncio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on asyncio, where anybody may cancel a task, under virtual time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def within_limits() -> None:
            async with asyncio.timeout(1_000):
                await test(*args, **kwargs)

        run_virtual_asyncio(within_limits)

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not condition():  # noqa: ASYNC110 - the conditions of tests are no events, and time is virtual
            await asyncio.sleep(0.05)


def now() -> float:
    return asyncio.get_running_loop().time()


# --- a handler's task that is cancelled ----------------------------------------------------------------------------------------


@on_asyncio
async def test_a_handler_whose_task_is_cancelled_is_tried_again() -> None:
    some = world()
    some.produce(10, keys=10)
    calls: list[tuple[int, int]] = []
    handlers: dict[int, asyncio.Task[Any] | None] = {}

    async def handle(record: Record, context: Any) -> None:
        calls.append((record.offset, context.attempt))
        handlers[record.offset] = asyncio.current_task()
        await asyncio.sleep(1)
        handlers.pop(record.offset)

    async with processed(some, handle, concurrency=4, retry=Retry(attempts=2)) as run:
        await until(lambda: 2 in handlers)
        task = handlers[2]
        assert task is not None
        task.cancel()
        await until(lambda: run.statistics().handled == 10)
        assert run.statistics().failures == 1
        await run.drain()
    assert sorted(calls) == sorted([(offset, 1) for offset in range(10)] + [(2, 2)])
    assert some.committed() == 10


@on_asyncio
async def test_a_handler_whose_task_is_cancelled_stops_with_its_record_if_it_may_not_be_tried_again() -> None:
    some = world()
    some.produce(10, keys=10)

    async def handle(record: Record) -> None:
        if record.offset == 2:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(0.5, task.cancel)
        await asyncio.sleep(1)

    with pytest.raises(ProcessingError, match="offset 2 failed") as caught:
        async with some.consumer() as consumer:
            await consumer.process(handle, concurrency=10)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert some.committed() == 2


@on_asyncio
async def test_a_cancellation_that_a_handler_swallows_hits_no_other_record() -> None:
    some = world()
    some.produce(20)
    ended = []

    async def handle(record: Record) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        if record.offset % 3 == 0:
            task.cancel()
            with suppress(asyncio.CancelledError):  # and no uncancel()
                await asyncio.sleep(1)
        elif record.offset % 3 == 1:
            task.cancel()  # it will be delivered when the handler has returned
        else:
            await asyncio.sleep(0.1)
        ended.append(record.offset)

    async with processed(some, handle, concurrency=2) as run:
        await until(lambda: len(ended) == 20)
        await run.drain()
        assert run.statistics().failures == 0
    assert some.committed() == 20


@on_asyncio
async def test_a_cancellation_that_on_failure_raises_stops_with_its_record() -> None:
    some = world()
    some.produce(3)

    async def handle(record: Record) -> None:
        if record.offset == 1:
            raise ValueError("no")

    async def on_failure(record: Record, error: BaseException, attempts: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    with pytest.raises(ProcessingError, match=r"offset 1.*raised when the record had failed with ValueError\('no'\)"):
        async with some.consumer() as consumer:
            await consumer.process(handle, on_failure=on_failure)
    assert some.committed() == 1


# --- all tasks that are cancelled ----------------------------------------------------------------------------------------------


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


@pytest.mark.parametrize("rolls_back", [True, False])
@on_asyncio
async def test_a_shutdown_that_cancels_all_tasks_waits_for_nothing_and_fails_no_record(rolls_back: bool) -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000
    failed: list[Record] = []
    runs: list[Processing] = []

    async def handle(record: Record) -> None:
        try:
            await some.handle(record)
        except asyncio.CancelledError:
            if rolls_back:
                raise
            raise ConnectionError("cannot roll back") from None

    async def on_failure(record: Record, error: BaseException, attempts: int) -> None:
        failed.append(record)

    async def main() -> None:
        async with (
            some.consumer() as consumer,
            consumer.processing(handle, on_failure=on_failure) as run,
        ):
            runs.append(run)
            await run.wait()

    main_task = asyncio.create_task(main())
    await until(lambda: bool(runs) and runs[0].statistics().running == 10)
    began = now()
    _cancel_all()
    with pytest.raises(asyncio.CancelledError):
        await main_task
    assert now() - began < 3
    assert not failed
    assert runs[0].statistics().failures == 0


@on_asyncio
async def test_a_shutdown_that_cancels_all_tasks_ends_a_block_that_nobody_leaves() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000
    before = asyncio.all_tasks()
    consumer = some.consumer()

    async def enter() -> None:
        await consumer.start()
        await consumer.processing(some.handle).__aenter__()

    await asyncio.create_task(enter())
    await until(lambda: some.running.total() == 10)
    for _ in range(2):
        _cancel_all()
        await until(lambda: some.running.total() == 0)
    await until(lambda: asyncio.all_tasks() <= before)
    await consumer.stop()


# --- the block -----------------------------------------------------------------------------------------------------------------


class Service:
    """As people write them: started by one task, stopped by another."""

    def __init__(self, some: World, handler: Any) -> None:
        self.consumer = some.consumer()
        self.run = self.consumer.processing(handler)

    async def start(self) -> None:
        await self.consumer.start()
        await self.run.__aenter__()

    async def stop(self) -> None:
        try:
            await self.run.__aexit__(None, None, None)
        finally:
            await self.consumer.stop()


@on_asyncio
async def test_a_block_that_is_entered_in_one_task_may_be_left_in_another() -> None:
    some = world()
    some.produce(10)
    service = Service(some, some.handle)
    await asyncio.create_task(service.start())
    await until(lambda: len(some.done) == 10)
    await asyncio.create_task(service.stop())
    assert some.committed() == 10


@on_asyncio
async def test_a_block_that_is_left_in_another_task_raises_the_real_error() -> None:
    some = world()
    some.produce(10)

    async def handle(record: Record) -> None:
        if record.offset == 5:
            raise ValueError("no")

    service = Service(some, handle)
    await asyncio.create_task(service.start())
    await asyncio.wait_for(service.run.wait(), 100)
    with pytest.raises(ProcessingError, match="offset 5"):
        await asyncio.create_task(service.stop())
    assert some.committed() == 5


@on_asyncio
async def test_a_failure_cancels_the_body_once_and_is_raised_in_its_place() -> None:
    some = world()
    some.produce(1)
    cleaned: list[str] = []

    async def handle(record: Record) -> None:
        raise ValueError("no")

    async def body() -> None:
        async with processed(some, handle):
            try:
                await asyncio.sleep(1_000)
            finally:
                await asyncio.sleep(1)
                cleaned.append("up")

    with pytest.raises(ProcessingError):
        await body()
    assert cleaned == ["up"]
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


@on_asyncio
async def test_a_failure_and_a_cancellation_of_the_body_at_once_is_a_cancellation() -> None:
    some = world()
    some.produce(1)

    async def handle(record: Record) -> None:
        body.cancel()
        raise ValueError("no")

    async def main() -> None:
        async with processed(some, handle):
            await asyncio.sleep(1_000)

    body = asyncio.create_task(main())
    with pytest.raises(asyncio.CancelledError):
        await body


# --- handlers that clean up ----------------------------------------------------------------------------------------------------


@on_asyncio
async def test_a_handler_that_is_cancelled_by_its_timeout_may_roll_back() -> None:
    some = world()
    some.produce(3)
    rolled_back: list[int] = []

    async def handle(record: Record) -> None:
        try:
            await asyncio.sleep(1_000 if record.offset == 1 else 0.01)
        finally:
            await asyncio.sleep(0.5)
            rolled_back.append(record.offset)

    async with processed(some, handle, timeout_ms=2_000, on_failure="skip") as run:
        await until(lambda: run.statistics().skipped == 1 and run.statistics().handled == 2)
        await run.drain()
    assert sorted(rolled_back) == [0, 1, 2]
    assert some.committed() == 3


@on_asyncio
async def test_a_handler_that_goes_on_after_its_timeout_is_cancelled_again() -> None:
    some = world()
    some.produce(1)
    times: list[float] = []

    async def handle(record: Record) -> None:
        began = now()
        for _ in range(3):
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                times.append(now() - began)
        raise ValueError("rolled back at last")

    with pytest.raises(ProcessingError, match="rolled back at last"):
        async with some.consumer() as consumer:
            await consumer.process(handle, timeout_ms=2_000)
    assert times == pytest.approx([2, 4, 6], abs=0.1)


@on_asyncio
async def test_a_handler_that_is_cancelled_at_the_end_may_roll_back() -> None:
    some = world()
    some.produce(3)
    rolled_back: list[int] = []

    async def handle(record: Record) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(0.5)
            rolled_back.append(record.offset)

    async with processed(some, handle, drain_timeout_ms=1_000) as run:
        await until(lambda: run.statistics().running == 3)
        began = now()
    assert sorted(rolled_back) == [0, 1, 2]
    assert now() - began < 2
    assert some.committed() in (None, 0)


@on_asyncio
async def test_a_handler_that_ignores_its_cancellation_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(1)
    over = False

    async def handle(record: Record) -> None:
        while not over:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1_000)

    async with processed(some, handle, drain_timeout_ms=1_000) as run:
        await until(lambda: run.statistics().running == 1)
        began = now()
    over = True
    assert now() - began < 6
    assert "1 handlers ignore that they were cancelled" in caplog.text
    _cancel_all()
    await asyncio.sleep(1)


# --- turns of the event loop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 10, 50])
async def test_handlers_that_never_wait_take_one_turn_all_together(concurrency: int) -> None:
    some = world()
    some.produce(500, keys=500)
    between: list[int] = []
    handled = 0

    async def handle(record: Record) -> None:
        nonlocal handled
        handled += 1
        time.sleep(0.002)  # noqa: ASYNC251 - it keeps the loop busy on purpose

    async def tick() -> None:
        before = handled
        while True:
            await asyncio.sleep(0)
            between.append(handled - before)
            before = handled

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=concurrency):
        ticking = asyncio.create_task(tick())
        await until(lambda: handled >= 400)
        ticking.cancel()
    assert max(between) <= 11, "20 ms for handlers of 2 ms, and one that began before the end"


async def test_all_workers_work_although_one_begins_each_turn() -> None:
    some = world()
    some.produce(400, keys=400)
    peak = now_running = done = 0
    meeting = asyncio.Barrier(20)

    async def handle(record: Record) -> None:
        nonlocal peak, now_running, done
        now_running += 1
        peak = max(peak, now_running)
        time.sleep(0.001)  # noqa: ASYNC251 - it keeps the loop busy on purpose, for a turn in each round of 20
        async with asyncio.timeout(60):  # a worker that rests would be waited for in vain
            await meeting.wait()
        now_running -= 1
        done += 1

    async with some.consumer() as consumer, consumer.processing(handle, concurrency=20):
        await until(lambda: done == 400)
    assert peak == 20


# --- stops -----------------------------------------------------------------------------------------------------------------------


@on_asyncio
async def test_a_handler_may_stop_the_consumer() -> None:
    some = world()
    some.produce(20, keys=20)

    async def handle(record: Record) -> None:
        if record.offset == 10:
            await consumer.stop()

    async with some.consumer() as consumer:
        await consumer.process(handle, concurrency=4)
        await until(lambda: consumer.state is ConsumerState.CLOSED)


@on_asyncio
async def test_processing_ends_although_the_stop_is_given_up() -> None:
    some = world()
    some.produce(20, keys=20)
    done: list[int] = []

    async def handle(record: Record) -> None:
        await asyncio.sleep(5 if record.offset == 10 else 0)
        done.append(record.offset)

    async with some.consumer() as consumer:
        processing = asyncio.create_task(consumer.process(handle, concurrency=4))
        await until(lambda: len(done) == 19)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await consumer.stop()
        await processing
        assert sorted(done) == list(range(20)), "running handlers are drained"
        assert some.committed() == 20
