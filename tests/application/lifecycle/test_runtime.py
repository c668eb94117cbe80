"""Where the background loop runs: beside the caller, on a thread, on either kind of event loop. Real time, but nobody sleeps."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from attrs import define, field

from kafka_async import Statistics
from kafka_async.application.lifecycle.runtime import TaskRuntime, ThreadRuntime
from kafka_async.errors import BackgroundLoopError
from kafka_async.events import BackgroundSnapshot
from kafka_async.testing.simulation import FakeCluster

from ..support import consumer_on, numbers, read_values, virtual


def filled() -> FakeCluster:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 100)
    return cluster


def forget(kept: list[Any]) -> None:
    kept.clear()
    gc.collect()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "kafka_async" in thread.name]


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_asyncio_reads_with_either_background(background: str) -> None:
    async with consumer_on(filled(), "t", background=background) as consumer:
        assert len(threads()) == (background == "thread")
        assert await read_values(consumer, 100) == numbers(100)
        seen = consumer.statistics()
        assert (seen.records_consumed, seen.cluster_id) == (100, "fake-cluster")
    assert threads() == []
    assert [task for task in asyncio.all_tasks() if "kafka_async" in task.get_name()] == []


@pytest.mark.parametrize("background", ["task", "thread"])
def test_trio_reads_with_either_background(background: str) -> None:
    async def read() -> None:
        async with consumer_on(filled(), "t", background=background) as consumer:
            assert await read_values(consumer, 100) == numbers(100)

    anyio.run(read, backend="trio")
    assert threads() == []


async def test_a_thread_outlives_no_failed_start() -> None:
    cluster = FakeCluster()
    cluster.stop(0)
    with pytest.raises(Exception, match="b0:9092"):
        await consumer_on(cluster, "t", background="thread").start()
    assert threads() == []


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_a_bug_in_the_loop_reaches_the_caller_from_either_background(background: str) -> None:
    armed = False

    def listener(event: object) -> None:
        if armed:
            raise RuntimeError("a bug")

    consumer = consumer_on(filled(), "t", background=background, trace=listener, fetch_max_wait_ms=10)
    await consumer.start()
    await read_values(consumer, 100)
    armed = True
    with pytest.raises(BackgroundLoopError, match="a bug"):
        await consumer.getone()
    await consumer.stop()
    assert threads() == []


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_what_the_background_calls_may_ask_for_statistics(background: str) -> None:
    seen: list[Statistics] = []
    armed = False

    def listener(event: object) -> None:
        if armed:
            seen.append(consumer.statistics())

    async with consumer_on(filled(), "t", background=background, trace=listener) as consumer:
        armed = True
        assert await read_values(consumer, 100) == numbers(100)
        armed = False
    assert seen[0].cluster_id == "fake-cluster"


async def test_two_event_loops_can_have_a_consumer_each() -> None:
    found: list[list[bytes]] = []

    def elsewhere() -> None:
        async def read() -> None:
            async with consumer_on(filled(), "t") as consumer:
                found.append(await read_values(consumer, 100))

        asyncio.run(read())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    async with consumer_on(filled(), "t") as consumer:
        found.append(await read_values(consumer, 100))
    await asyncio.to_thread(thread.join)
    assert found == [numbers(100)] * 2


@pytest.mark.slow
async def test_an_event_loop_that_is_shut_down_under_a_consumer_is_no_hang() -> None:
    def program() -> None:
        async def leave_it() -> Any:
            consumer = consumer_on(filled(), "t")
            await consumer.start()
            return consumer

        kept = [asyncio.run(leave_it())]
        with pytest.warns(ResourceWarning, match="was not stopped"):
            forget(kept)

    await asyncio.to_thread(program)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_task_of_a_consumer_that_is_forgotten_ends(backend: str) -> None:
    async def program() -> None:
        cluster, runtime = filled(), TaskRuntime()
        kept = [consumer_on(cluster, "t", runtime=runtime)]
        await kept[0].start()
        assert cluster.network.live()
        with pytest.warns(ResourceWarning, match="was not stopped"):
            forget(kept)
        await runtime.join(5.0)
        assert not cluster.network.live()

    anyio.run(program, backend=backend)


@virtual
async def test_a_task_that_is_aborted_is_gone_when_join_returns() -> None:
    cluster = filled()
    runtime = TaskRuntime()
    consumer = consumer_on(cluster, "t", runtime=runtime)
    await consumer.start()
    cluster.freeze(0)
    await consumer.stop(timeout_ms=0)
    assert not cluster.network.live()


async def test_a_thread_answers_questions_that_cannot_wait() -> None:
    runtime = ThreadRuntime.for_tasks()
    async with consumer_on(filled(), "t", runtime=runtime) as consumer:
        assert runtime.ask_now(lambda: 1, lambda call: call.resolve(2)) == 2
        assert consumer.statistics().brokers[0].host == "b0"


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "control-c"])
def test_what_a_signal_handler_raises_while_the_background_runs_ends_the_program(raised: BaseException) -> None:
    async def program() -> None:
        left = [raised]

        def trace(event: object) -> None:
            task = asyncio.current_task()
            if left and task is not None and task.get_name() == "kafka_async background loop":
                raise left.pop()

        async with consumer_on(filled(), "t", trace=trace) as consumer:
            await asyncio.wait_for(consumer.getmany(timeout_ms=5_000), 5)

    with pytest.raises(type(raised)):
        asyncio.run(program())


@pytest.mark.slow  # waits for some seconds
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_statistics_are_told_while_a_thread_takes_leave_of_a_coordinator_that_does_not_answer(protocol: str) -> None:
    cluster = filled()
    # Without a commit, which most of the time would be spent on, it takes leave from the beginning.
    options: dict[str, Any] = {"group_protocol": protocol, "enable_auto_commit": False}
    consumer = consumer_on(cluster, "t", group_id="g", background="thread", **options)
    await consumer.start()
    await read_values(consumer, 100)
    cluster.freeze(0)
    stop = asyncio.create_task(consumer.stop(timeout_ms=6_000))
    while not stop.done():
        began = time.monotonic()
        consumer.statistics()
        assert time.monotonic() - began < 4.5  # a thread that answers once it has taken leave is an error after 5
        await asyncio.sleep(0.05)
    await stop
    consumer.statistics()


@define(eq=False)
class Loop:
    """A background loop that ends when it is woken, after its ``work``."""

    work: Callable[[], object] | None = None
    begun: threading.Event = field(factory=threading.Event, init=False)
    woken: anyio.Event = field(factory=anyio.Event, init=False)

    async def run(self) -> None:
        self.begun.set()
        await self.woken.wait()
        if self.work is not None:
            self.work()

    def wake(self) -> None:
        self.woken.set()

    def resume(self) -> None:
        raise NotImplementedError

    def snapshot(self) -> BackgroundSnapshot:
        raise NotImplementedError


async def test_a_thread_that_ends_late_says_nothing_of_the_next_one() -> None:
    runtime, gate = ThreadRuntime.for_tasks(), threading.Event()
    for loop in (Loop(gate.wait), Loop()):
        runtime.launch(loop)
        await asyncio.to_thread(loop.begun.wait)
        if loop.work is not None:
            runtime.wake_background()
            (late,) = (thread for thread in threading.enumerate() if "kafka_async" in thread.name)
    gate.set()
    await asyncio.to_thread(late.join)
    runtime.reset()
    assert runtime.task_context is not None, "the thread still runs"
    runtime.wake_background()
    await runtime.join(5.0)
    runtime.reset()
    assert runtime.task_context is None
    assert threads() == []


@define(eq=False)
class Asking(Loop):
    """It has ``work`` done by the executor of its event loop, and leaves a call behind there that hangs."""

    gate: threading.Event = field(factory=threading.Event, init=False)
    answers: list[object] = field(factory=list, init=False)

    async def run(self) -> None:
        running = asyncio.get_running_loop()
        assert self.work is not None
        try:
            self.answers.append(await running.run_in_executor(None, self.work))
        except ZeroDivisionError as error:
            self.answers.append(error)
        hanging = running.run_in_executor(None, self.gate.wait)
        self.begun.set()
        await self.woken.wait()
        hanging.cancel()


async def test_what_the_executor_of_the_threads_event_loop_does_has_an_answer_and_holds_up_no_end() -> None:
    for work in (lambda: 1, lambda: 1 // 0):
        runtime, loop = ThreadRuntime.for_tasks(), Asking(work)
        runtime.launch(loop)
        await asyncio.to_thread(loop.begun.wait)
        runtime.wake_background()
        await runtime.join(5.0)
        left = threads()
        loop.gate.set()
        assert left == []
        assert loop.answers == [1] or isinstance(loop.answers[0], ZeroDivisionError)


def test_a_task_on_trio_that_ends_late_says_nothing_of_the_next_one() -> None:
    async def main() -> None:
        runtime, late, loop = TaskRuntime(), Loop(), Loop()
        runtime.launch(late)
        await wait_all_tasks_blocked()
        runtime.launch(loop)
        late.wake()
        await wait_all_tasks_blocked()
        runtime.reset()
        assert runtime.task_context is not None, "the task still runs"
        runtime.wake_background()
        await runtime.join(5.0)
        runtime.reset()
        assert runtime.task_context is None

    anyio.run(main, backend="trio")


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 3), reason="no thread starts once the main thread has ended: gh-113964")
@pytest.mark.brokers
def test_the_executor_of_the_threads_event_loop_works_after_the_main_thread_has_ended() -> None:
    program = """
import anyio, threading
from kafka_async.application.lifecycle.runtime import ThreadRuntime

class Loop:
    async def run(self):
        print(len(await anyio.getaddrinfo("localhost", 9092)) > 0)  # as an HTTP client of a token provider does

    def wake(self): ...

def work():
    threading.main_thread().join()
    runtime = ThreadRuntime.for_threads()
    runtime.launch(Loop())
    anyio.run(runtime.join, 5.0)

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - ours
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.brokers
def test_a_function_of_atexit_can_end_the_thread_without_a_word_though_no_thread_starts_any_more() -> None:
    program = """
import anyio, atexit, threading
from kafka_async.application.lifecycle.runtime import ThreadRuntime

class Loop:
    def __init__(self):
        self.begun = threading.Event()

    async def run(self):
        self.stopped = anyio.Event()
        self.begun.set()
        await self.stopped.wait()
        print(len(await anyio.getaddrinfo("localhost", 9092)) > 0)  # as for the last commit

    def wake(self):
        self.stopped.set()

def stop():
    threading.stack_size(2**48)  # 3.12.1, for one, starts none anyway
    runtime.wake_background()
    anyio.run(runtime.join, 5.0)

runtime, loop = ThreadRuntime.for_threads(), Loop()
runtime.launch(loop)
loop.begun.wait()
atexit.register(stop)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - ours
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
