"""What a task was handed, in whatever way, is committed by nobody else before it asks for more, ends well, or commits it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import anyio
import pytest
from anyio.lowlevel import current_token

from kafka_async import TopicPartition

from .support import Ownership, virtual

INTERVAL: Final = 1.0
RECORDS: Final = 40
Take = Callable[[Any, TopicPartition, Any], Awaitable[list[Any]]]


async def by_getone(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    return [await consumer.getone(only)]


async def by_getmany(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    return list((await consumer.getmany(only, timeout_ms=5000, max_records=3))[only])


async def by_getone_of_all(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    return [await consumer.getone()]


async def by_anext_of_the_consumer(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    return [await anext(consumer)]


async def by_leaving_a_loop(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    async for record in consumer:
        return [record]
    return []


async def by_new_iterators(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    return [await anext(aiter(consumer))]


async def by_a_shared_iterator(consumer: Any, only: TopicPartition, shared: AsyncIterator[Any]) -> list[Any]:
    return [await anext(shared)]


async def by_a_shared_loop(consumer: Any, only: TopicPartition, shared: AsyncIterator[Any]) -> list[Any]:
    async for record in shared:
        return [record]
    return []


async def by_wait_for(consumer: Any, only: TopicPartition, shared: Any) -> list[Any]:
    """Up to Python 3.11 the read runs in a task of its own."""
    if hasattr(current_token().native_token, "run_sync_soon"):
        return [await consumer.getone()]  # on trio
    return [await asyncio.create_task(consumer.getone())]


async def by_wait_for_a_step(consumer: Any, only: TopicPartition, shared: AsyncIterator[Any]) -> list[Any]:
    if hasattr(current_token().native_token, "run_sync_soon"):
        return [await anext(shared)]
    return [await asyncio.ensure_future(anext(shared))]


WAYS: Final[tuple[Take, ...]] = (
    by_getone,
    by_getmany,
    by_getone_of_all,
    by_anext_of_the_consumer,
    by_leaving_a_loop,
    by_new_iterators,
    by_a_shared_iterator,
    by_a_shared_loop,
    by_wait_for,
    by_wait_for_a_step,
)
every_way = pytest.mark.parametrize("take", WAYS, ids=lambda take: take.__name__)


@pytest.mark.slow
@pytest.mark.parametrize("interval", [INTERVAL, 0.0])
@every_way
@virtual
async def test_the_interval_of_a_task_that_waits_covers_nothing_that_another_one_holds(take: Take, interval: float) -> None:
    """Two partitions: one task waits for a quiet one, the other one works on records of the busy one, each for a while."""
    place = Ownership()
    (quiet,), (busy,) = place.topic("quiet", records=0), place.topic("busy", records=RECORDS)
    async with (
        place.consumer("quiet", "busy", auto_commit_interval_ms=int(interval * 1000)) as consumer,
        anyio.create_task_group() as tasks,
    ):

        async def waits() -> None:
            while True:
                await consumer.getmany(quiet, timeout_ms=700)

        tasks.start_soon(waits)
        shared = aiter(consumer)
        for _ in range(6):
            records = await take(consumer, busy, shared)
            await anyio.sleep(INTERVAL * 2.5)
            assert (place.committed(busy) or 0) <= records[0].offset
        assert (place.committed(busy) or 0) > 0, "what was done before is committed by whoever comes by"
        tasks.cancel_scope.cancel()


@every_way
@virtual
async def test_a_stop_by_another_task_commits_nothing_that_running_tasks_hold(take: Take) -> None:
    """Three tasks work on a record each, one of them for the first time."""
    place = Ownership()
    (partition,) = place.topic("t", records=RECORDS)
    async with anyio.create_task_group() as tasks:
        async with place.consumer("t", auto_commit_interval_ms=10**9) as consumer:
            shared = aiter(consumer)
            held: dict[int, int] = {}

            async def work(number: int) -> None:
                for _ in range(number):
                    records = await take(consumer, partition, shared)
                    held[number] = records[0].offset
                    await anyio.sleep(0.01)
                await anyio.sleep_forever()

            for number in (4, 1, 2):
                tasks.start_soon(work, number)
            await anyio.sleep(1)
            assert len(set(held.values())) == 3
        assert (place.committed(partition) or 0) == min(held.values())
        tasks.cancel_scope.cancel()


@every_way
@virtual
async def test_an_iteration_that_is_passed_to_another_task_is_in_the_hands_of_that_one(take: Take) -> None:
    """The task that made it goes on to other things, and ends."""
    place = Ownership()
    (partition,) = place.topic("t", records=RECORDS)
    async with anyio.create_task_group() as tasks:
        async with place.consumer("t", auto_commit_interval_ms=10**9) as consumer:
            made: list[Any] = []

            async def make() -> None:
                made.append(aiter(consumer))
                await anext(made[0])

            async with anyio.create_task_group() as makers:
                makers.start_soon(make)
            held: list[int] = []

            async def work() -> None:
                held.extend([(await take(consumer, partition, made[0]))[0].offset for _ in range(3)])
                await anyio.sleep_forever()

            tasks.start_soon(work)
            await anyio.sleep(1)
            assert len(held) == 3
        # On trio nobody can see that the maker has ended well.
        trio = hasattr(current_token().native_token, "run_sync_soon")
        assert (place.committed(partition) or 0) == (0 if trio else held[-1])
        tasks.cancel_scope.cancel()


@virtual
async def test_what_a_task_that_failed_left_undone_is_committed_by_nobody_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    if hasattr(current_token().native_token, "run_sync_soon"):
        return  # nobody can see there how a task ended
    place = Ownership()
    (partition,) = place.topic("t", records=RECORDS)
    async with place.consumer("t", auto_commit_interval_ms=int(INTERVAL * 1000)) as consumer:

        async def fail() -> None:
            await consumer.getmany(partition, timeout_ms=1000, max_records=7)
            record = await consumer.getone()
            raise ValueError(record.offset)

        with pytest.raises(ValueError, match="7"):
            await asyncio.create_task(fail())
        for _ in range(10):
            await consumer.getmany(timeout_ms=700, max_records=2)
            await anyio.sleep(INTERVAL / 2)
        assert place.committed(partition) == 7
        held_up = [each.getMessage() for each in caplog.records if "auto-committed" in each.getMessage()]
        assert len(held_up) == 1
        assert "t-0" in held_up[0]
        assert "offset 7" in held_up[0]
        await consumer.commit()
        assert place.committed(partition) == 28
