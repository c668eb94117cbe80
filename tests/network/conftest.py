"""What tests of threads beside an event loop share."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine function; nothing in it may take long, though threads hang."""

    def runner(fn: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(60):
                await fn()

        anyio.run(bounded, backend=request.param)

    return runner
