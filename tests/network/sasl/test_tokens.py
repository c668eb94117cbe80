"""How providers are asked, and how long a token is kept."""

import functools
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError
from kafka_async.network.sasl.oauthbearer import Bearer
from kafka_async.network.sasl.threads import MOST_CALLS
from kafka_async.network.sasl.tokens import PATIENCE, AbstractTokenProvider, CachingTokenProvider, Token, bearers
from tests.application.support import virtual


class Own(AbstractTokenProvider):
    async def token(self) -> str:
        return "own"


class Extended(Own):
    def extensions(self) -> dict[str, str]:
        return {"cluster": "one"}


class AsyncExtensions:
    async def token(self) -> str:
        return "own"

    async def extensions(self) -> dict[str, str]:
        return {"cluster": "one"}


class AsyncCall:
    async def __call__(self) -> str:
        return "own"


async def plain_async(token: str = "own") -> str:
    return token


@pytest.mark.parametrize(
    ("provider", "extensions"),
    [
        (Own(), {}),
        (Extended(), {"cluster": "one"}),
        (AsyncExtensions(), {"cluster": "one"}),
        (AsyncCall(), {}),
        (plain_async, {}),
        (functools.partial(plain_async, "own"), {}),
        (lambda: "own", {}),
        (lambda: plain_async(), {}),
    ],
)
async def test_whatever_gives_a_token_is_a_provider(provider: Any, extensions: dict[str, str]) -> None:
    assert await bearers(provider)() == Bearer(token="own", extensions=extensions)  # no secret


async def test_a_plain_function_may_block_because_it_runs_on_a_thread() -> None:
    threads: list[threading.Thread] = []

    def token() -> str:
        threads.append(threading.current_thread())
        return "own"

    await bearers(token)()
    assert threads[0] is not threading.current_thread()


async def test_calls_of_a_plain_function_that_return_are_not_counted() -> None:
    fetch = bearers(lambda: "token")
    for _ in range(MOST_CALLS + 1):
        assert await fetch() == Bearer(token="token")


async def cancelled_when(call: Callable[[], object], scope: anyio.CancelScope) -> None:
    await anyio.to_thread.run_sync(call)
    scope.cancel()


async def test_a_plain_function_that_never_returns_does_not_get_threads_without_end() -> None:
    ended = threading.Event()
    begun = threading.Semaphore(0)

    def token() -> str:
        begun.release()
        ended.wait()
        return "token"

    fetch = bearers(token)
    try:
        for _ in range(MOST_CALLS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancelled_when, begun.acquire, tasks.cancel_scope)
                await fetch()
        with pytest.raises(KafkaConnectionError, match=f"{MOST_CALLS} calls have not returned"):
            await fetch()
    finally:
        ended.set()


async def test_what_a_provider_raises_is_tried_again_and_its_words_stay_in_the_cause() -> None:
    def token() -> str:
        raise OSError("the password is secret")

    with pytest.raises(KafkaConnectionError, match="sasl_oauth_token_provider raised OSError") as caught:
        await bearers(token)()
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_provider_may_say_that_trying_again_is_useless() -> None:
    async def token() -> str:
        raise AuthenticationFailedError("the account is locked")

    with pytest.raises(AuthenticationFailedError, match="locked"):
        await bearers(token)()


class Kept(CachingTokenProvider):
    """Fetches numbered tokens; each fetch waits for ``go``."""

    def __init__(self, lifetime: float | None = 100.0) -> None:
        self.now = 1000.0
        super().__init__(clock=lambda: self.now)
        self.lifetime = lifetime
        self.fetches = 0
        self.fails = 0
        self.go: Callable[[], Awaitable[Any]] = anyio.lowlevel.checkpoint

    async def fetch(self) -> Token:
        self.fetches += 1
        number = self.fetches
        await self.go()
        if number <= self.fails:
            raise KafkaConnectionError("no answer")
        return Token(value=f"token{number}", lifetime=self.lifetime)


async def test_a_token_is_used_for_most_of_its_life() -> None:
    provider = Kept()
    assert await provider.token() == "token1"
    provider.now += 79.9
    assert await provider.token() == "token1"
    provider.now += 0.2
    assert await provider.token() == "token2"


async def test_while_no_new_token_can_be_had_the_old_one_is_used_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    provider = Kept()
    assert await provider.token() == "token1"
    provider.fails = 3
    provider.now += 85
    assert await provider.token() == "token1"
    assert [record.getMessage() for record in caplog.records] == [
        "no new token could be had; the last one is used while it is valid (KafkaConnectionError: no answer)"
    ]
    provider.now += 4
    assert await provider.token() == "token1"
    provider.now += 2  # with nine seconds left, it may have ended before the broker looks at it
    provider.fails = 4
    with pytest.raises(KafkaConnectionError, match="no answer"):
        await provider.token()
    assert await provider.token() == "token5"


@virtual
async def test_a_login_does_not_wait_long_for_a_new_token_if_the_old_one_is_valid() -> None:
    provider = Kept()
    await provider.token()
    provider.now += 85
    provider.go = anyio.sleep_forever
    begin, got = anyio.current_time(), []

    async def ask() -> None:
        got.append(await provider.token())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert got == ["token1"] * 3
    assert anyio.current_time() - begin == pytest.approx(PATIENCE), "they share one fetch"


async def test_a_clock_that_was_set_back_does_not_make_a_token_live_longer() -> None:
    provider = Kept()
    await provider.token()
    provider.now -= 1.0
    assert await provider.token() == "token2"


@pytest.mark.parametrize("lifetime", [None, 0.0, -5.0])
async def test_a_token_of_unknown_life_is_used_once(lifetime: float | None) -> None:
    provider = Kept(lifetime)
    assert [await provider.token(), await provider.token()] == ["token1", "token2"]


@pytest.mark.parametrize("lifetime", [100.0, None])
async def test_many_who_ask_at_once_share_one_fetch(lifetime: float | None) -> None:
    provider = Kept(lifetime)
    provider.go = (started := anyio.Event()).wait
    got: list[str] = []

    async def ask() -> None:
        got.append(await provider.token())

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        started.set()
    assert got == ["token1"] * 10
    assert provider.fetches == 1


async def test_a_failure_is_shared_too_and_not_kept() -> None:
    provider = Kept()
    provider.fails = 1
    provider.go = (started := anyio.Event()).wait
    seen: list[KafkaConnectionError] = []

    async def ask() -> None:
        try:
            await provider.token()
        except KafkaConnectionError as error:
            seen.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        started.set()
    assert provider.fetches == 1
    assert len(set(map(id, seen))) == 3
    assert await provider.token() == "token2"


async def test_cancelling_who_fetches_leaves_the_fetch_to_the_next() -> None:
    provider = Kept()
    provider.go = (started := anyio.Event()).wait
    got: list[str] = []

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            got.append(await provider.token())

    first = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask, anyio.CancelScope())
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        started.set()
    assert got == ["token2"]


@pytest.mark.slow
def test_one_provider_serves_several_event_loops() -> None:
    provider = Kept()
    assert anyio.run(provider.token) == "token1"
    provider.now += 90
    assert anyio.run(provider.token) == "token2"
    assert anyio.run(provider.token, backend="trio") == "token2"
    gc.collect()


def test_a_token_does_not_show() -> None:
    assert "own" not in repr(Token(value="own", lifetime=1.0))
