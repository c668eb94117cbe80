"""Names are looked up beside whatever the application does with its threads, and as long as Python lives."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from kafka_async.errors import NameResolutionError
from kafka_async.network.names import MOST_THREADS, look_up_addresses, look_up_name
from tests.network.conftest import Run

LOCAL = (socket.AF_INET, "127.0.0.1", 9092)


class Hanging:
    """A name server that does not answer before it is ``opened``, as ``socket`` asks it."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self._gate = threading.Event()

    def __call__(self, *args: object, **options: object) -> list[Any]:
        self.begun.release()
        self._gate.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))]

    def open(self) -> None:
        self._gate.set()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    server = Hanging()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.open()
    for thread in look_ups():
        thread.join()


def answering(monkeypatch: pytest.MonkeyPatch, *found: tuple[Any, ...]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: [(each[0], 0, 0, "", each[1]) for each in found])


def look_ups() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "Kafka name look-up"]


async def give_up(hanging: Hanging, count: int) -> None:
    """Begin so many look-ups, and cancel them while they hang."""
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(look_up_addresses, "b0", 9092)
        for _ in range(count):
            await anyio.to_thread.run_sync(hanging.begun.acquire)
        tasks.cancel_scope.cancel()


def test_a_name_stands_for_addresses_and_an_address_for_a_name(run: Run) -> None:
    async def main() -> None:
        assert LOCAL in await look_up_addresses("localhost", 9092)
        assert await look_up_name("127.0.0.1", 9092) == socket.getnameinfo(("127.0.0.1", 9092), 0)[0]

    run(main)


def test_an_address_is_named_once_and_with_its_network_if_it_is_good_in_that_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, wide = (socket.AF_INET6, ("fe80::1", 9092, 0, 3)), (socket.AF_INET6, ("2001:db8::1", 9092, 7, 0))
    unusable = (socket.AF_INET6, (10, b""))  # from a Python that has no IPv6
    answering(monkeypatch, local, wide, wide, (LOCAL[0], LOCAL[1:]), unusable)

    async def main() -> None:
        expected = [(socket.AF_INET6, "fe80::1%3", 9092), (socket.AF_INET6, "2001:db8::1", 9092), LOCAL]
        assert await look_up_addresses("b0", 9092) == expected

    run(main)


def test_what_the_system_says_of_a_name_is_raised(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **options: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(socket, "getnameinfo", unknown)

    async def main() -> None:
        with pytest.raises(socket.gaierror, match="not known"):
            await look_up_addresses("b0", 9092)
        with pytest.raises(socket.gaierror, match="not known"):
            await look_up_name("10.0.0.1", 9092)

    run(main)


async def test_work_in_all_threads_of_the_event_loop_holds_up_no_look_up() -> None:
    loop, gate = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    work = loop.run_in_executor(None, gate.wait)
    try:
        with anyio.fail_after(60):
            assert LOCAL in await look_up_addresses("localhost", 9092)
            assert await look_up_name("127.0.0.1", 9092)
    finally:
        gate.set()
        await work


def test_work_in_all_threads_of_anyio_holds_up_no_look_up(run: Run) -> None:
    gate = threading.Event()

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, lambda: gate.wait())
            await wait_all_tasks_blocked()
            try:
                assert LOCAL in await look_up_addresses("localhost", 9092)
            finally:
                gate.set()

    run(main)


async def test_a_look_up_that_hangs_takes_no_thread_from_the_application(hanging: Hanging) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    try:
        await give_up(hanging, 1)
        with anyio.fail_after(60):
            assert await asyncio.to_thread(lambda: 1) == 1
    finally:
        hanging.open()  # else the event loop would wait for it, in its end


def test_look_ups_that_hang_do_not_get_threads_without_end(run: Run, hanging: Hanging) -> None:
    async def main() -> None:
        await give_up(hanging, MOST_THREADS)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(look_up_addresses, "b0", 9092)
            await wait_all_tasks_blocked()
            assert len(look_ups()) == MOST_THREADS
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_up_addresses, "b0", 9092)
            await wait_all_tasks_blocked()
            hanging.open()
        assert await look_up_addresses("b0", 9092) == [LOCAL]

    run(main)


def test_no_thread_to_look_a_name_up_is_an_error_that_may_pass(run: Run) -> None:
    async def main() -> None:
        before = threading.stack_size(2**48)  # more than there are addresses
        try:
            for _ in range(MOST_THREADS + 1):
                with pytest.raises(NameResolutionError, match=r"^b0:9092: not looked up, for want of a thread: can't start new"):
                    await look_up_addresses("b0", 9092)
        finally:
            threading.stack_size(before)
        assert LOCAL in await look_up_addresses("localhost", 9092)

    run(main)


# Event loops that know names by themselves.


class Knowing(asyncio.SelectorEventLoop):
    """An event loop with a resolver of its own, as uvloop has."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        assert host == b"b0"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port))]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        return f"known-{sockaddr[0]}", str(sockaddr[1])


class Resolver(trio.abc.HostnameResolver):
    """An application's resolver on trio."""

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:
        await checkpoint()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        await checkpoint()
        return f"known-{sockaddr[0]}", str(sockaddr[1])


async def asks_the_resolver() -> None:
    assert await look_up_addresses("b0", 9092) == [(socket.AF_INET, "10.0.0.7", 9092)]
    assert await look_up_name("10.0.0.7", 9092) == "known-10.0.0.7"


def test_an_event_loop_that_looks_names_up_in_another_way_is_asked() -> None:
    anyio.run(asks_the_resolver, backend="asyncio", backend_options={"loop_factory": Knowing})


def test_a_resolver_of_the_application_is_asked_on_trio() -> None:
    async def main() -> None:
        resolver = Resolver()
        trio.socket.set_custom_hostname_resolver(resolver)
        await asks_the_resolver()
        assert trio.socket.set_custom_hostname_resolver(None) is resolver

    anyio.run(main, backend="trio")


def test_a_name_of_another_alphabet_is_written_as_dns_wants_it() -> None:
    asked: list[Any] = []

    class Asked(asyncio.SelectorEventLoop):
        async def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:  # type: ignore[override]  # a future
            asked.append(args[0])
            return []

    async def main() -> None:
        assert await look_up_addresses("straße.example", 9092) == []

    anyio.run(main, backend="asyncio", backend_options={"loop_factory": Asked})
    assert asked == [b"xn--strae-oqa.example"]


# The end of a program.


def said(program: str) -> str:
    """Run a program of which nothing is left when it ends; return what it printed."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - ours
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.brokers
def test_a_function_of_atexit_can_look_a_name_up_though_no_thread_starts_any_more() -> None:
    program = """
import atexit, anyio, threading
from kafka_async.network.names import look_up_addresses

def stop():
    threading.stack_size(2**48)  # 3.12.1, for one, starts none anyway
    print(anyio.run(look_up_addresses, "localhost", 9092)[0][2])

atexit.register(stop)
"""
    assert said(program) == "9092\n"


@pytest.mark.brokers
def test_an_event_loop_that_is_just_left_keeps_no_program_from_exiting() -> None:
    program = """
import anyio, asyncio
from kafka_async.network.names import look_up_addresses

async def background():
    async with anyio.create_task_group():
        print((await look_up_addresses("localhost", 9092))[0][2])
        loop.stop()
        await anyio.sleep_forever()

loop = asyncio.new_event_loop()
task = loop.create_task(background())
loop.run_forever()
loop.close()
task.get_loop().set_exception_handler(lambda *details: None)  # nor a word about the task
"""
    assert said(program) == "9092\n"
