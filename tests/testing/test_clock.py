"""Virtual time on asyncio: what it takes for a program that spins, and threads."""

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio.to_thread
import pytest

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.testing import Cluster, VirtualLoop, virtual_loop


def run(main: Callable[[], Coroutine[Any, Any, Any]], **options: float) -> Any:
    with asyncio.Runner(loop_factory=partial(VirtualLoop, **options) if options else virtual_loop) as runner:  # type: ignore[arg-type]
        return runner.run(main())


@pytest.mark.slow
def test_a_program_that_has_much_to_do_does_not_spin() -> None:
    async def yields() -> None:
        for _ in range(50_000):
            await asyncio.sleep(0)

    async def reads() -> int:
        cluster = Cluster()
        cluster.topic("t")
        cluster.produce_many("t", ["v"] * 50_000, partition=0)
        found = 0
        async with KafkaConsumer("t", auto_offset_reset="earliest", **cluster.options()) as consumer:
            async for _ in consumer:
                found += 1
                await asyncio.sleep(0)
                if found == 50_000:
                    return found
        return found

    run(yields)
    assert run(reads) == 50_000


def test_a_program_that_spins_is_told() -> None:
    async def spins() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="the event loop spins: time does not pass"):
        run(spins, patience=0.2)


async def own_thread(works: Callable[[], None]) -> None:
    """Wait for a thread that the loop would know nothing of."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    ended = asyncio.Event()
    over = loop.thread_begins()
    threading.Thread(target=lambda: (works(), loop.call_soon_threadsafe(ended.set))).start()  # type: ignore[func-returns-value]
    await ended.wait()
    over()


@pytest.mark.parametrize(
    "in_thread", [anyio.to_thread.run_sync, asyncio.to_thread, own_thread], ids=["anyio", "asyncio", "its own"]
)
def test_time_passes_for_the_loop_as_it_does_for_threads_that_work_for_it(in_thread: Any) -> None:
    """While timers are due all the time, such as those of heartbeats."""

    async def beats() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0.01)

    def works() -> None:
        time.sleep(0.05)

    async def main() -> float:
        beating = asyncio.create_task(beats())
        for _ in range(20):
            await in_thread(works)
        beating.cancel()
        return asyncio.get_running_loop().time()

    assert 0.9 < run(main) < 10
    began = time.monotonic()
    assert run(lambda: asyncio.sleep(3600), hung_after=100) is None
    assert time.monotonic() - began < 60, "no thread works"  # 100 if one counted as at work


def test_a_loop_waits_for_a_thread_even_if_no_timer_runs() -> None:
    async def main() -> str:
        return await asyncio.to_thread(lambda: time.sleep(0.1) or "done")  # type: ignore[func-returns-value]  # None is false

    assert run(main) == "done"


def test_a_thread_that_hangs_does_not_hold_time_up() -> None:
    released = threading.Event()

    async def main() -> None:
        with anyio.fail_after(3600):
            await anyio.to_thread.run_sync(released.wait, abandon_on_cancel=True)

    try:
        with pytest.raises(TimeoutError):
            run(main, hung_after=0.1)
    finally:
        released.set()


def test_jobs_whose_handlers_run_in_threads_keep_their_locks() -> None:
    async def main() -> tuple[list[bytes], float]:
        cluster = Cluster()
        cluster.topic("jobs")
        cluster.group("workers", share_auto_offset_reset="earliest")
        cluster.produce_many("jobs", [str(number) for number in range(20)], partition=0)
        done: list[bytes] = []

        def handle(job: Any) -> None:
            time.sleep(0.05)
            done.append(job.value)
            if len(done) == 20:
                loop.call_soon_threadsafe(finished.set)

        loop, finished = asyncio.get_running_loop(), asyncio.Event()
        async with ShareConsumer("jobs", group_id="workers", **cluster.options()) as consumer, asyncio.TaskGroup() as tasks:
            working = tasks.create_task(consumer.process(handle, concurrency=1))
            await finished.wait()
            await consumer.stop()
            await working
        return done, asyncio.get_running_loop().time()

    done, took = run(main)
    assert sorted(map(int, done)) == list(range(20)), "each once"
    assert took < 30


def test_a_loop_has_no_limit_unless_it_gets_one() -> None:
    """It may be one for a whole run of tests, whose fixtures stay open for longer than any test."""
    for loop in (virtual_loop(), VirtualLoop()):
        loop.run_until_complete(asyncio.sleep(10 * 86_400))
        loop.close()
    with asyncio.Runner(loop_factory=partial(virtual_loop, 10)) as runner:
        runner.run(asyncio.sleep(10))
        with pytest.raises(TimeoutError, match="not over after 10 s of virtual time"):
            runner.run(asyncio.sleep(11))


def test_a_nested_run_is_refused_as_by_asyncio_and_leaves_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    loop, ran = virtual_loop(100), list[str]()

    async def inner() -> None:
        ran.append("inner")

    async def outer() -> None:
        refused = inner()
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_until_complete(refused)
        refused.close()
        await asyncio.sleep(1_000)
        ran.append("outer")

    with pytest.raises(TimeoutError, match="not over after 100 s"):
        loop.run_until_complete(outer())
    loop.close()
    refused = inner()
    with pytest.raises(RuntimeError, match="is closed"):
        loop.run_until_complete(refused)
    refused.close()
    assert ran == []
    gc.collect()
    assert caplog.messages == []


def test_what_ends_in_an_error_of_the_loop_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def interrupted() -> None:
        raise KeyboardInterrupt

    for main, error in ((never, RuntimeError), (interrupted, KeyboardInterrupt)):
        loop = virtual_loop(100)
        with pytest.raises(error):
            loop.run_until_complete(main())
        loop.close()
        del loop
        gc.collect()
    assert caplog.messages == []
