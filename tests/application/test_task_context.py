"""Tasks of asyncio, tasks of trio, and threads: who calls, how it ended, and what its call-backs come to."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async.application.task_context import (
    AsyncioTaskContext,
    Stay,
    TaskContext,
    ThreadContext,
    TrioTaskContext,
    task_context_here,
)
from kafka_async.errors import IllegalStateError
from tests.virtual import run_virtual, run_virtual_asyncio

Run = Callable[[Callable[[], Awaitable[None]]], None]
on_both = pytest.mark.parametrize("run", [run_virtual, run_virtual_asyncio], ids=["trio", "asyncio"])


def _in_thread(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread of its own. Virtual time does not wait for threads, so the loop stands still."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_the_kind_is_that_of_the_event_loop() -> None:
    found: list[type[TaskContext]] = []

    async def main() -> None:
        found.append(type(task_context_here()))

    run_virtual(main)
    run_virtual_asyncio(main)
    assert found == [TrioTaskContext, AsyncioTaskContext]


@on_both
def test_a_task_is_told_from_another_and_from_a_thread_and_nobody_but_the_loop_may_call(run: Run) -> None:
    async def main() -> None:
        callers = task_context_here()
        seen: list[Any] = []

        async def other() -> None:
            seen.append(callers.current())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
        me = callers.current()
        assert me is callers.current()
        assert seen[0] is not me
        assert callers.has_ended(seen[0])
        assert not callers.has_ended(me)
        callers.check()
        where: list[Any] = []

        def elsewhere() -> None:
            where.append(callers.current())
            with pytest.raises(IllegalStateError, match="belongs to the event loop on which it was started"):
                callers.check()

        _in_thread(elsewhere)
        assert isinstance(where[0], threading.Thread)
        assert not callers.has_ended(where[0])
        assert not callers.has_ended_well(where[0])
        assert not callers.is_gone

    run(main)


def test_asyncio_knows_how_a_task_ended() -> None:
    async def returns() -> None:
        await asyncio.sleep(0)

    async def fails() -> None:
        raise ValueError("no")

    async def main() -> None:
        callers = task_context_here()
        well, bad, cancelled = (asyncio.create_task(each()) for each in (returns, fails, returns))
        assert (callers.has_ended(well), callers.has_ended_well(well), callers.failure(well)) == (False, False, None)
        cancelled.cancel()
        await asyncio.wait([well, bad, cancelled])
        assert all(callers.has_ended(task) for task in (well, bad, cancelled))
        assert [callers.has_ended_well(task) for task in (well, bad, cancelled)] == [True, False, False]
        assert callers.failure(well) is None
        assert str(callers.failure(bad)) == "no"
        assert isinstance(callers.failure(cancelled), asyncio.CancelledError)
        known, loop = callers.running_tasks()
        assert known is None or known[loop] is callers.current()

    run_virtual_asyncio(main)


def test_a_consumer_outlives_its_event_loop_and_says_so() -> None:
    found: list[TaskContext] = []

    async def main() -> None:
        found.append(task_context_here())

    run_virtual_asyncio(main)
    assert found[0].is_gone
    with pytest.raises(IllegalStateError, match="is closed; make a new consumer"):
        found[0].check()


@on_both
def test_a_block_that_is_ended_is_cancelled_and_the_task_goes_on(run: Run) -> None:
    async def main() -> None:
        callers = task_context_here()
        stays: list[Stay] = []
        said: list[bool] = []

        async def work() -> None:
            stay = callers.enter()
            assert stay.holder is callers.current()
            stays.append(stay)
            try:
                await anyio.sleep(10)
            except BaseException as error:
                said.append(stay.leave(error))
            await anyio.sleep(1)
            said.append(True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await anyio.sleep(1)
            stays[0].end()
        assert said == [True, True]
        assert anyio.current_time() < 5

    run(main)


@on_both
def test_a_block_that_is_left_without_an_error_was_not_ended(run: Run) -> None:
    async def main() -> None:
        callers = task_context_here()
        assert not callers.enter().leave(None)

    run(main)


@on_both
def test_what_somebody_else_raises_or_cancels_is_not_our_end_of_a_block(run: Run) -> None:
    async def main() -> None:
        callers = task_context_here()
        error = ValueError("no")
        assert not callers.enter().leave(error)
        said: list[bool] = []

        async def work() -> None:
            stay = callers.enter()
            try:
                await anyio.sleep(10)
            except BaseException as error:
                said.append(stay.leave(error))
                raise

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert said == [False]

    run(main)


def test_a_block_that_is_ended_while_its_task_is_cancelled_leaves_the_cancellation_to_whoever_made_it() -> None:
    async def main() -> None:
        callers = task_context_here()
        stays: list[Stay] = []
        said: list[bool] = []

        async def work() -> None:
            stay = callers.enter()
            stays.append(stay)
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError as error:
                said.append(stay.leave(error))
                raise

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        stays[0].end()
        task.cancel()
        await asyncio.wait([task])
        assert (said, task.cancelled()) == ([False], True)
        stays[0].end()  # of a task that is gone: nothing happens

    run_virtual_asyncio(main)


@on_both
def test_a_thread_is_not_interrupted(run: Run) -> None:
    async def main() -> None:
        callers = task_context_here()

        def work() -> tuple[bool, bool]:
            stay = callers.enter()
            stay.end()
            return isinstance(stay.holder, threading.Thread), stay.leave(None)

        assert _in_thread(work) == (True, False)

    run(main)


@on_both
def test_a_call_back_runs_to_its_end_though_nobody_waits_and_its_error_is_kept(run: Run) -> None:
    async def main() -> None:
        callers, ended, done = task_context_here(), anyio.Event(), list[str]()

        async def call_back(error: Exception | None) -> None:
            await anyio.sleep(1)
            done.append("done")
            if error is not None:
                raise error

        async def begin(error: Exception | None) -> Any:
            return callers.own(call_back(error), ended.set)

        with anyio.move_on_after(0.1):
            well = await begin(None)
            await anyio.sleep(0.5)
        assert not well.done
        await ended.wait()
        assert (well.done, well.error, done) == (True, None, ["done"])
        ended = anyio.Event()
        bad = await begin(ValueError("no"))
        await ended.wait()
        assert (bad.done, str(bad.error)) == (True, "no")

    run(main)


@on_both
def test_a_call_back_can_be_ended(run: Run) -> None:
    async def main() -> None:
        callers, ended = task_context_here(), anyio.Event()

        async def call_back() -> None:
            await anyio.sleep_forever()

        owned = callers.own(call_back(), ended.set)
        await anyio.sleep(0.1)
        assert not owned.done
        owned.cancel()
        await ended.wait()
        assert owned.done

    run(main)


def test_threads_are_told_apart_and_nothing_shows_how_one_ended() -> None:
    callers = ThreadContext()
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(callers.current()))
    thread.start()
    thread.join()
    assert seen == [thread]
    assert callers.current() is threading.main_thread()
    assert (callers.has_ended(thread), callers.has_ended(callers.current())) == (True, False)
    assert (callers.has_ended_well(thread), callers.failure(thread), callers.is_gone) == (False, None, False)
    assert callers.running_tasks() == (None, None)
    callers.check()
    stay = callers.enter()
    stay.end()
    assert (stay.holder, stay.leave(ValueError())) == (threading.main_thread(), False)


def test_a_call_back_of_a_blocking_consumer_is_over_when_it_returns_and_may_not_wait() -> None:
    callers = ThreadContext()
    ended: list[str] = []

    async def returns() -> None:
        return

    async def fails() -> None:
        raise ValueError("no")

    async def waits() -> None:
        await asyncio.sleep(0)

    well, bad, waiting = (callers.own(each(), lambda: ended.append("x")) for each in (returns, fails, waits))
    assert all(owned.done for owned in (well, bad, waiting))
    assert (well.error, str(bad.error)) == (None, "no")
    assert isinstance(waiting.error, IllegalStateError)
    assert "give the blocking consumer plain functions" in str(waiting.error)
    well.cancel()
