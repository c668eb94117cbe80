"""Signals lose no wake-up and leave nobody behind."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

import anyio
import anyio.lowlevel
import pytest

from kafka_async.network.waiting import LoopSignal, ThreadSignal, threadsafe
from tests.application.support import virtual


@virtual
async def test_a_wake_up_between_looking_and_waiting_is_not_lost() -> None:
    signal = LoopSignal()
    ticket = signal.ticket()
    signal.wake()
    await signal.wait(ticket, 100)
    assert anyio.current_time() == 0


@virtual
async def test_a_wake_up_ends_every_wait() -> None:
    signal = LoopSignal()
    ended: list[float] = []

    async def wait() -> None:
        await signal.wait(signal.ticket(), 100)
        ended.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)
        await anyio.sleep(5)
        assert signal.waiting == 3
        signal.wake()
    assert ended == [5, 5, 5]
    assert signal.waiting == 0


@pytest.mark.parametrize("seconds", [0.0, 7.0])
@virtual
async def test_a_wait_ends_with_its_time(seconds: float) -> None:
    signal = LoopSignal()
    await signal.wait(signal.ticket(), seconds)
    assert anyio.current_time() == seconds
    assert signal.waiting == 0


@virtual
async def test_a_wait_without_a_limit_is_ended_by_a_wake_up_or_a_cancellation() -> None:
    signal = LoopSignal()
    with anyio.move_on_after(9):
        await signal.wait(signal.ticket(), float("inf"))
    assert anyio.current_time() == 9
    assert signal.waiting == 0


def test_a_thread_is_woken_by_another() -> None:
    signal = ThreadSignal()
    ticket = signal.ticket()
    threading.Thread(target=signal.wake).start()
    with pytest.raises(StopIteration):
        signal.wait(ticket, 60).send(None)
    assert signal.ticket() != ticket


def test_a_thread_that_looked_too_early_does_not_wait() -> None:
    signal = ThreadSignal()
    ticket = signal.ticket()
    signal.wake()
    with pytest.raises(StopIteration):
        signal.wait(ticket, 60).send(None)


class Interrupted(Exception):
    """Raised by the handler of a signal."""


@pytest.fixture
def unnoticed_signal() -> Iterator[Callable[[], None]]:
    """Let a signal arrive that does not interrupt the main thread, as if it came just before a wait. Its handler raises."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    arrive = threading.Event()

    def take() -> None:
        assert arrive.wait(60)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    thread = threading.Thread(target=take)
    thread.start()
    yield arrive.set
    arrive.set()
    with contextlib.suppress(Interrupted):
        thread.join()
    signal.signal(signal.SIGUSR1, before)


def test_a_thread_that_waits_handles_a_signal_that_did_not_interrupt_it(unnoticed_signal: Callable[[], None]) -> None:
    waits = ThreadSignal()
    began = time.monotonic()
    with pytest.raises(Interrupted):  # noqa: PT012 - the signal may come at once
        unnoticed_signal()
        waits.wait(waits.ticket(), 60).send(None)
    assert time.monotonic() - began < 30


async def test_a_function_is_called_on_its_event_loop_from_any_thread() -> None:
    called = anyio.Event()
    where: list[int] = []

    def note() -> None:
        where.append(threading.get_ident())
        called.set()

    call = threadsafe(note)
    threading.Thread(target=call).start()
    with anyio.fail_after(10):
        await called.wait()
    assert where == [threading.get_ident()]


def test_a_call_for_an_event_loop_that_is_gone_is_dropped() -> None:
    async def make() -> object:
        return threadsafe(lambda: None)

    call = anyio.run(make)
    assert callable(call)
    call()


@virtual
async def test_what_is_raised_on_a_wake_up_keeps_nobody_waiting() -> None:
    signal = LoopSignal()

    def interrupt() -> None:
        raise KeyboardInterrupt

    signal.on_wake = interrupt
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(signal.wait, signal.ticket(), 100)
        await anyio.sleep(5)
        with pytest.raises(KeyboardInterrupt):
            signal.wake()
    assert anyio.current_time() == 5
