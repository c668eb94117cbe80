"""How processing ends: by leaving, by a cancellation, by an exception, by stopping the consumer; bad arguments."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kafka_async import (
    ConsumerState,
)
from kafka_async.application.processing.encoding import decode
from kafka_async.errors import (
    IllegalStateError,
)
from tests.application.support import Consumer, cancelled_at, consumer_on, virtual, virtual_on_trio

from .world import GROUP, processed, until, world


@virtual
async def test_leaving_lets_what_runs_end_and_begins_nothing_more() -> None:
    some = world()
    some.produce(100, keys=100)
    some.seconds = lambda record: 2.0
    async with processed(some, concurrency=10):
        await until(lambda: some.running.total() == 10)
    assert sorted(some.offsets()) == list(range(10))
    assert some.committed() == 10


@virtual
async def test_a_cancellation_drains_and_commits() -> None:
    some = world()
    some.produce(100, keys=100)
    some.seconds = lambda record: 2.0
    with anyio.move_on_after(1.0) as scope:
        async with processed(some, concurrency=10):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert sorted(some.offsets()) == list(range(10))
    assert some.committed() == 10


@virtual
async def test_an_exception_of_the_body_drains_commits_and_comes_out_as_it_is() -> None:
    some = world()
    some.produce(10, keys=10)
    some.seconds = lambda record: 2.0

    async def body() -> None:
        async with processed(some, concurrency=10):
            await until(lambda: some.running.total() == 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    assert some.committed() == 10


@virtual
async def test_the_end_takes_no_longer_than_it_may() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0
    async with processed(some, drain_timeout_ms=4_000, consumer={"auto_commit_interval_ms": 100}):
        await until(lambda: some.running.total() == 10)
        began = anyio.current_time()
    assert 4 <= anyio.current_time() - began < 6
    assert some.running.total() == 0


async def _process(consumer: Consumer, handler: Callable[..., Any]) -> None:
    async with consumer, consumer.processing(handler, concurrency=4, drain_timeout_ms=500) as run:
        await run.wait()


@virtual
async def _cancelled_at(place: int) -> None:
    some = world()
    some.produce(30, keys=5)
    some.seconds = lambda record: (record.offset % 4) / 20
    with anyio.move_on_after(10):
        await cancelled_at(place, _process(some.consumer(auto_commit_interval_ms=50), some.handle))
    assert some.running.total() == 0
    committed, done = some.committed() or 0, set(some.offsets())
    assert done >= set(range(committed))
    recorded = decode(some.metadata(), committed, some.cluster.topics["t"].id)
    marked = {offset for offset in range(30) if recorded is not None and offset in recorded}
    assert marked <= done
    some.started.clear()
    async with processed(some) as run:
        await until(lambda: set(some.offsets()) == set(range(30)))
        await run.drain()
    assert set(some.offsets(some.started)) == set(range(committed, 30)) - marked
    assert some.committed() == 30


@pytest.mark.slow
@pytest.mark.parametrize("places", [range(start, start + 20) for start in range(1, 101, 20)], ids=str)
def test_cancelled_at_any_await_what_is_committed_is_done_and_what_is_not_done_comes_again(places: range) -> None:
    for place in places:
        _cancelled_at(place)


@virtual
async def test_stopping_the_consumer_ends_processing() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 2.0
    consumer = some.consumer()
    await consumer.start()
    async with consumer.processing(some.handle) as run:
        await until(lambda: some.running.total() == 10)
        await consumer.stop()
        await run.wait()
    assert len(some.done) == 10
    assert some.committed() == 10


@virtual
async def test_process_runs_until_the_consumer_stops() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: len(some.done) == 10)
        await consumer.stop()
    assert some.committed() == 10


@virtual
async def test_stop_drains_partitions_that_the_user_assigned() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 2.0
    consumer = consumer_on(some.cluster, group_id=GROUP)
    consumer.assign(some.partitions)
    async with consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: some.running.total() == 10)
        await consumer.stop()
        assert some.committed() == 10


@virtual
async def test_stop_takes_no_longer_than_it_may() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0
    async with some.consumer() as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: some.running.total() == 10)
        began = anyio.current_time()
        await consumer.stop(6_000)
        assert anyio.current_time() - began < 6.5
    assert some.running.total() == 0


@virtual_on_trio
@pytest.mark.parametrize("stoppers", [1, 3])
async def test_a_handler_that_stops_the_consumer_is_not_waited_for_by_itself(stoppers: int) -> None:
    some = world()
    some.produce(6, keys=6)
    finished: list[int] = []
    stopped: list[int] = []
    consumer = some.consumer()

    async def handle(record: Any) -> None:
        if record.offset >= 6 - stoppers:
            await consumer.stop()  # the first one returns; the others are cancelled, as handlers that take too long are
            stopped.append(record.offset)
        else:
            await anyio.sleep(2.0)
            finished.append(record.offset)

    async with consumer:
        began = anyio.current_time()
        await consumer.process(handle, concurrency=6)
        assert 2.0 <= anyio.current_time() - began < 4.0, "the other handlers were waited for, and they alone"
    assert len(stopped) >= 1
    assert sorted(finished) == list(range(6 - stoppers))
    assert some.committed() == 6 - stoppers, "the records of handlers that stop are not done"


@virtual
async def test_nobody_else_reads_or_commits_what_was_read() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer, consumer.processing(some.handle):
        for call in (consumer.getmany, consumer.getone, consumer.getarrow, consumer.commit):
            with pytest.raises(IllegalStateError, match=r"process\(\)"):
                await call()
        with pytest.raises(IllegalStateError, match=r"process\(\)"):
            await consumer.process(some.handle)
        await consumer.commit({some.partitions[0]: 0})


@virtual
async def test_after_it_records_are_read_as_before() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0 if record.offset == 4 else 0.01
    async with some.consumer(enable_auto_commit=True, auto_commit_interval_ms=100) as consumer:
        async with consumer.processing(some.handle, drain_timeout_ms=0):
            await until(lambda: len(some.done) == 9)
        assert await consumer.position(some.partitions[0]) == 4
        assert some.metadata() != ""
        found = await consumer.getmany(timeout_ms=1_000)
        assert some.offsets(found[some.partitions[0]]) == [4, 5, 6, 7, 8, 9]
    assert some.committed() == 10


@pytest.mark.slow
@virtual
async def test_the_state_says_that_a_record_is_stuck() -> None:
    some = world()
    some.produce(3)
    some.seconds = lambda record: 300 if record.offset == 1 else 0.01
    async with some.consumer() as consumer, consumer.processing(some.handle, stalled_after_ms=10_000, drain_timeout_ms=0):
        states = []
        for seconds in (9, 5, 400):
            await anyio.sleep(seconds)
            states.append(consumer.state)
    assert states == [ConsumerState.STEADY, ConsumerState.STALLED, ConsumerState.STEADY]


@virtual
async def test_a_run_is_used_once() -> None:
    some = world()
    async with processed(some) as run:
        with pytest.raises(IllegalStateError, match="already started"):
            await run.__aenter__()


@virtual
async def test_a_map_of_what_is_done_is_tied_to_the_topic() -> None:
    some = world()
    some.produce(3)
    some.seconds = lambda record: 1_000 if record.offset == 0 else 0.01
    async with processed(some, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 2)
    assert decode(some.metadata(), 0, some.cluster.topics["t"].id) is not None
