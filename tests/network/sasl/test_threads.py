"""Logins have threads, whatever the rest of the program does with anyio's."""

import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked

from kafka_async.errors import KafkaConnectionError
from kafka_async.network.sasl.factory import SaltedPasswords
from kafka_async.network.sasl.threads import MOST_CALLS, on_thread
from kafka_async.network.sasl.tokens import bearers

from ..conftest import Run
from .test_kerberos import Library, context

LOGINS: dict[str, Callable[[], Awaitable[Any]]] = {
    "scram": lambda: SaltedPasswords("SCRAM-SHA-256", "pencil").derive(b"salt", 4096),
    "provider": lambda: bearers(lambda: "token")(),
    "kerberos": lambda: context(Library()).step(None),
}


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
def test_work_in_all_threads_of_anyio_holds_up_no_login(run: Run, login: Callable[[], Awaitable[Any]]) -> None:
    gate = threading.Event()

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, lambda: gate.wait())
            await wait_all_tasks_blocked()
            try:
                assert await login()
            finally:
                gate.set()

    run(main)


def test_a_login_that_is_cancelled_does_not_wait_for_its_thread(run: Run) -> None:
    begun, gate = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()

    async def main() -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(on_thread, work)
                await anyio.to_thread.run_sync(begun.wait)
                tasks.cancel_scope.cancel()
        finally:
            gate.set()

    run(main)


async def test_no_thread_for_a_login_is_an_error_that_may_pass() -> None:
    before = threading.stack_size(2**48)  # more than there are addresses
    try:
        for _ in range(MOST_CALLS + 1):
            with pytest.raises(KafkaConnectionError, match="no login, for want of a thread: can't start new thread"):
                await on_thread(lambda: 1)
    finally:
        threading.stack_size(before)
    assert await on_thread(lambda: 1) == 1


@pytest.mark.brokers
def test_a_function_of_atexit_can_log_in_though_no_thread_starts_any_more() -> None:
    program = """
import anyio, atexit, threading
from kafka_async.network.sasl.threads import on_thread

def stop():
    threading.stack_size(2**48)  # 3.12.1, for one, starts none anyway
    print(anyio.run(on_thread, lambda: "token"))

atexit.register(stop)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - ours
    assert (done.returncode, done.stdout, done.stderr) == (0, "token\n", "")


def test_what_a_call_raises_is_raised(run: Run) -> None:
    def fails() -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"^a bug$"):
            await on_thread(fails)

    run(main)
