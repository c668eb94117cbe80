"""``run``: what ``asyncio.run`` does at Ctrl-C, at SIGTERM too."""

import asyncio
import os
import signal
import threading
from contextlib import suppress

import pytest

from kafka_async import run
from kafka_async.adapters.running import Terminated, until_terminated


async def _value() -> int:
    return 7


def test_it_returns_what_the_program_returns_and_gives_the_signal_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run(_value()) == 7
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_error_of_the_program_is_raised_as_it_is() -> None:
    async def fails() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        run(fails())


async def _leaves(seen: list[str], *, again: bool = False) -> None:
    """End by SIGTERM, and await something on the way out, as a consumer does; ``again``: the signal comes twice."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    finally:
        if again:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.ensure_future(_value()), 5)
        seen.append("left")


def test_sigterm_leaves_the_blocks_of_the_program_and_ends_it_with_143() -> None:
    seen: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        run(_leaves(seen))
    assert (ended.value.code, seen) == (143, ["left"])
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("ignored", [False, True], ids=["terminal", "nohup"])
def test_a_terminal_that_goes_away_ends_a_command_in_order_unless_nohup_says_otherwise(ignored: bool) -> None:
    async def program() -> str:
        try:
            os.kill(os.getpid(), signal.SIGHUP)
            return await asyncio.wait_for(asyncio.Event().wait(), 0.05) and ""
        except TimeoutError:
            return "went on"
        finally:
            seen.append("left")

    seen: list[str] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        if ignored:
            assert asyncio.run(until_terminated(program(), hangup=True)) == "went on"
        else:
            with pytest.raises(Terminated) as ended:
                asyncio.run(until_terminated(program(), hangup=True))
            assert ended.value.code == 129
        assert signal.getsignal(signal.SIGHUP) == (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == ["left"]


def test_a_sigterm_that_comes_twice_at_once_cuts_nothing_short() -> None:
    seen: list[str] = []

    with pytest.raises(SystemExit) as ended:
        run(_leaves(seen, again=True))
    assert (ended.value.code, seen) == (143, ["left"])


def test_a_program_that_ends_well_in_spite_of_sigterm_has_ended_well() -> None:
    async def insists() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 3
        return 4

    assert run(insists()) == 3


@pytest.mark.parametrize(("error", "expected"), [(asyncio.CancelledError, SystemExit), (LookupError, LookupError)])
def test_tasks_that_are_ending_are_waited_for_when_another_one_has_ended_the_program(
    error: type[BaseException], expected: type[BaseException]
) -> None:
    seen: list[str] = []

    async def quick() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise error from None

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)
            seen.append("drained")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.gather(quick(), slow())

    with pytest.raises(expected):
        run(main())
    assert seen == ["drained"]


def test_a_task_that_was_cancelled_long_before_the_signal_is_not_waited_for() -> None:
    seen: list[str] = []

    async def goes_on() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async def main() -> None:
        task = asyncio.create_task(goes_on())
        await asyncio.sleep(0)
        task.cancel()
        await _leaves(seen)

    with pytest.raises(SystemExit):
        run(main())
    assert seen == ["left", "ended"]


def test_sigterm_is_why_a_program_ends_whose_tasks_end_well() -> None:
    async def closes() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.gather(closes(), closes())

    with pytest.raises(SystemExit) as ended:
        run(main())
    assert ended.value.code == 143


def test_a_cancellation_of_the_programs_own_is_one() -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(gives_up())


def test_outside_the_main_thread_it_only_runs() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(run(_value())))
    thread.start()
    thread.join()
    assert found == [7]
