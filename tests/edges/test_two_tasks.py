"""Two tasks read from one consumer: a commit made because partitions leave does not cover what the other task holds."""

import gc
from typing import Any, Final
from weakref import ref

import anyio
import pytest
from anyio.lowlevel import current_token

from kafka_async import TopicPartition

from .support import Ownership, every_protocol, virtual

NEVER: Final = 10**9
"""Milliseconds of an interval that never ends."""
HOWS = pytest.mark.parametrize("how", ["at work", "ended well", "cancelled"])


def _on_trio() -> bool:
    return hasattr(current_token().native_token, "run_sync_soon")


async def _hold(consumer: Any, partition: TopicPartition, how: str) -> None:
    batch = await consumer.getmany(partition, timeout_ms=5000, max_records=10)
    assert [record.offset for record in batch[partition]] == list(range(10))
    if how != "ended well":
        await anyio.sleep_forever()


def _expected(how: str) -> int:
    """Trio does not show how a task ended, so there the records that it held are not consumed."""
    return 10 if how == "ended well" and not _on_trio() else 0


@pytest.mark.parametrize("first", ["holds", "gives up"])
@HOWS
@every_protocol
@virtual
async def test_a_revocation_that_one_task_carries_out_commits_nothing_that_another_one_holds(
    protocol: str, how: str, first: str
) -> None:
    """``first``: the task that entered its read first."""
    place = Ownership(protocol)
    one, two = place.topic("t", 2)
    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer, anyio.create_task_group() as tasks:

        async def read_the_other() -> None:
            while one in consumer.assignment():
                await consumer.getmany(two, timeout_ms=4000)

        async with anyio.create_task_group() as holding:
            if first == "gives up":
                tasks.start_soon(read_the_other)
                await anyio.sleep(0.5)
            holding.start_soon(_hold, consumer, one, how)
            await anyio.sleep(0.5)
            with anyio.CancelScope(shield=True):
                if how == "cancelled":
                    holding.cancel_scope.cancel()
                    await anyio.sleep(0.1)
                tasks.start_soon(read_the_other)
                place.others.take([one])
                while one in consumer.assignment():  # noqa: ASYNC110  # nobody announces it, and time is virtual
                    await anyio.sleep(0.1)
            assert (place.committed(one) or 0) == _expected(how)
            holding.cancel_scope.cancel()


@HOWS
@every_protocol
@virtual
async def test_unsubscribing_commits_nothing_that_another_task_holds(protocol: str, how: str) -> None:
    place = Ownership(protocol)
    (partition,) = place.topic("t")
    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer, anyio.create_task_group() as holding:
        holding.start_soon(_hold, consumer, partition, how)
        await anyio.sleep(0.5)
        with anyio.CancelScope(shield=True):
            if how == "cancelled":
                holding.cancel_scope.cancel()
                await anyio.sleep(0.1)
            consumer.unsubscribe()
            await anyio.sleep(1)
            assert (place.committed(partition) or 0) == _expected(how)
        holding.cancel_scope.cancel()


@virtual
async def test_what_the_application_commits_is_held_by_no_task_any_more() -> None:
    place = Ownership()
    (partition,) = place.topic("t")
    async with anyio.create_task_group() as holding:
        async with place.consumer("t", auto_commit_interval_ms=1000) as consumer:
            holding.start_soon(_hold, consumer, partition, "at work")
            await anyio.sleep(2)
            assert len((await consumer.getmany(timeout_ms=1000, max_records=5))[partition]) == 5
            await anyio.sleep(0.5)
            assert not place.committed(partition), "another task is at work on the first ten"
            await consumer.commit({partition: 10})
        assert place.committed(partition) == 15
        holding.cancel_scope.cancel()


@pytest.mark.slow
@virtual
async def test_tasks_that_read_once_are_not_kept() -> None:
    place = Ownership()
    (partition,) = place.topic("t", records=300)
    known: list[Any] = []

    async def read_one(consumer: Any) -> None:
        import asyncio

        import trio

        known.append(ref(trio.lowlevel.current_task() if _on_trio() else asyncio.current_task()))
        await consumer.getone()

    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer:
        for _ in range(200):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read_one, consumer)
        gc.collect()
        assert sum(task() is not None for task in known) < 100
    assert place.committed(partition) == (0 if _on_trio() else 200)


@pytest.mark.parametrize("is_sought", [False, True])
@virtual
async def test_more_failed_tasks_than_are_kept_hold_what_they_had_until_it_is_read_again(is_sought: bool) -> None:
    place = Ownership()
    (partition,) = place.topic("t", records=300)

    async def read_one(consumer: Any) -> None:
        await consumer.getone()
        raise ValueError

    async with place.consumer("t", auto_commit_interval_ms=NEVER) as consumer:
        for number in range(200):
            if is_sought and number == 100:
                consumer.seek(partition, 50)
            with pytest.raises(ExceptionGroup):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read_one, consumer)
    assert (place.committed(partition) or 0) == (50 if is_sought else 0)
