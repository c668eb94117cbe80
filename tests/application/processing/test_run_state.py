"""What the parts of one processing share."""

import anyio

from kafka_async.application.processing.run_state import Bench, RunState
from kafka_async.trace import ProcessingFailed, TraceEvent
from tests.application.support import virtual


@virtual
async def test_only_the_first_failure_counts_and_nothing_is_begun_or_read_after_it() -> None:
    events: list[TraceEvent] = []
    run = RunState(lambda: 7.0, events.append)
    assert not run.reads_nothing
    first = ValueError("first")
    run.fail(first)
    run.fail(ValueError("second"))
    assert run.failure is first
    assert (run.halted, run.ending, run.reads_nothing, run.finished.is_set()) == (True, True, True, True)
    (event,) = events
    assert isinstance(event, ProcessingFailed)
    assert (event.now, event.error) == (7.0, first)


@virtual
async def test_who_waits_looks_again_at_each_change_and_is_counted_meanwhile() -> None:
    run, looks = RunState(lambda: 0.0, lambda event: None), 0

    def enough() -> bool:
        nonlocal looks
        looks += 1
        return looks == 3

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.until, enough)
        await anyio.wait_all_tasks_blocked()
        assert (looks, run.waiting) == (1, 1)
        run.change()
        await anyio.wait_all_tasks_blocked()
        assert (looks, run.waiting) == (2, 1)
        run.change()
    assert (looks, run.waiting) == (3, 0)


@virtual
async def test_as_many_workers_are_woken_as_are_asked_for_and_rest() -> None:
    bench, awake = Bench(), list[int]()

    async def work(number: int) -> None:
        await bench.rest()
        awake.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(work, number)
        await anyio.wait_all_tasks_blocked()
        bench.wake(2)
        assert (bench.woken, bench.rising) == (2, 2)
        await anyio.wait_all_tasks_blocked()
        assert (len(awake), bench.rising, len(bench.resting)) == (2, 0, 1)
        bench.wake(5)
        assert bench.woken == 1
    bench.wake()
    assert (bench.woken, len(awake)) == (1, 3)


@virtual
async def test_a_worker_that_is_cancelled_while_it_rests_leaves_the_bench() -> None:
    bench = Bench()
    with anyio.move_on_after(1):
        await bench.rest()
    assert bench.resting == []
