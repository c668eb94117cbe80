"""Event loops whose threads nobody waits for."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_async.network.event_loops import MOST_CALLS, DaemonThreadsLoop, on_daemon, own_event_loop


def test_a_function_is_called_on_a_daemon_and_what_it_raises_is_raised() -> None:
    assert on_daemon(lambda: threading.current_thread().daemon).result()
    with pytest.raises(ZeroDivisionError):
        on_daemon(lambda: 1 // 0).result()


def test_the_event_loop_that_a_program_has_chosen_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chosen(asyncio.SelectorEventLoop):
        """As uvloop's."""

    loop = own_event_loop()
    assert type(loop) is DaemonThreadsLoop
    loop.close()
    monkeypatch.setattr(asyncio, "new_event_loop", Chosen)
    loop = own_event_loop()
    assert type(loop) is Chosen
    loop.close()


def test_an_executor_that_is_named_is_used() -> None:
    async def main() -> str:
        with ThreadPoolExecutor(1, "mine") as executor:
            return await asyncio.get_running_loop().run_in_executor(executor, lambda: threading.current_thread().name)

    with asyncio.Runner(loop_factory=own_event_loop) as runner:
        assert runner.run(main()) == "mine_0"


def test_the_end_of_an_event_loop_does_not_wait_for_a_call() -> None:
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()
        ended.set()

    async def main() -> None:
        hanging = asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.to_thread(begun.wait)
        hanging.cancel()

    with asyncio.Runner(loop_factory=own_event_loop) as runner:
        runner.run(main())
    assert not ended.is_set()
    gate.set()
    assert ended.wait(60)


def test_no_thread_is_an_error_while_the_main_thread_lives_but_none_is_needed_to_end() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await asyncio.to_thread(lambda: 1)

    before = threading.stack_size(2**48)  # more than there are addresses
    try:
        with asyncio.Runner(loop_factory=own_event_loop) as runner:
            runner.run(main())
    finally:
        threading.stack_size(before)


def test_calls_that_hang_do_not_take_ever_more_threads() -> None:
    gate = threading.Event()

    async def main() -> None:
        hanging = [asyncio.ensure_future(asyncio.to_thread(gate.wait)) for _ in range(MOST_CALLS)]
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match=f"^{MOST_CALLS} calls have not returned"):
            await asyncio.to_thread(gate.wait)
        gate.set()
        await asyncio.gather(*hanging)
        assert await asyncio.to_thread(gate.wait)

    with asyncio.Runner(loop_factory=own_event_loop) as runner:
        runner.run(main())


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 3), reason="no thread starts once the main thread has ended: gh-113964")
@pytest.mark.brokers
def test_calls_are_made_after_the_main_thread_has_ended_and_at_the_exit_and_do_not_keep_a_program() -> None:
    """Where no thread starts at the exit, the call is made at once."""
    program = """
import asyncio, atexit, threading
from kafka_async.network.event_loops import own_event_loop

async def main():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    print(await asyncio.to_thread(lambda: 1), flush=True)

def work():
    threading.main_thread().join()
    with asyncio.Runner(loop_factory=own_event_loop) as runner:
        runner.run(main())

async def last():
    print(await asyncio.to_thread(lambda: 2), flush=True)

def at_exit():
    threading.stack_size(2**48)
    with asyncio.Runner(loop_factory=own_event_loop) as runner:
        runner.run(last())

atexit.register(at_exit)
threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - ours
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n2\n", "")
