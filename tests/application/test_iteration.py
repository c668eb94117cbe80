"""The two halves of ``iteration``: one contract, tested on both."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_async.application import iteration

PAIRS: dict[str, tuple[Any, Any]] = {
    "python": (iteration.HandOut, iteration.RecordIterator),
    "chosen": (iteration.HANDOUT, iteration.ITERATOR),
}


class Source:
    """Refills that wait until they are given something."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.refills = 0

    async def __call__(self) -> Any:
        self.refills += 1
        item = await self.queue.get()
        if isinstance(item, BaseException):
            raise item
        return item


@pytest.fixture(params=PAIRS)
def made(request: pytest.FixtureRequest) -> SimpleNamespace:
    hand_out, iterator = PAIRS[request.param]
    source = Source()
    handout: iteration.HandOut[Any] = hand_out()
    return SimpleNamespace(handout=handout, source=source, iterator=lambda: iterator(handout, source))


async def some(awaitable: Awaitable[Any]) -> Any:
    """Wait for something that is no coroutine, as ``asyncio.create_task`` wants one."""
    return await awaitable


async def test_records_come_in_order_and_then_from_refills(made: SimpleNamespace) -> None:
    made.handout.load([(1,), (2,)])
    for item in ((3,), None, StopAsyncIteration()):
        made.source.queue.put_nowait(item)
    assert [record async for record in made.iterator()] == [(1,), (2,), (3,), None]
    assert made.source.refills == 3


async def test_a_new_list_goes_on_in_the_same_iteration(made: SimpleNamespace) -> None:
    made.handout.load([1])
    records = made.iterator()
    assert await anext(records) == 1
    made.handout.load([2, 3])
    assert [await anext(records), await anext(records)] == [2, 3]


async def test_what_is_drained_is_not_handed_out(made: SimpleNamespace) -> None:
    made.handout.load([1, 2, 3])
    records = made.iterator()
    assert await anext(records) == 1
    assert (made.handout.left, made.handout.last) == (2, 1)
    assert made.handout.drain() == [2, 3]
    assert (made.handout.left, made.handout.last) == (0, None)
    made.source.queue.put_nowait(9)
    assert await anext(records) == 9


async def test_taking_one_and_iterating_share_the_list(made: SimpleNamespace) -> None:
    made.handout.load([1, 2, 3, 4])
    records = made.iterator()
    assert made.handout.take() == 1
    assert await anext(records) == 2
    assert list(made.handout) == [3, 4]
    assert made.handout.left == 0


async def test_a_step_that_nobody_awaits_takes_nothing(made: SimpleNamespace) -> None:
    made.handout.load([1])
    records = made.iterator()
    with contextlib.closing(records.__anext__()):
        pass
    assert made.handout.left == 1


async def test_a_cancelled_step_is_taken_again(made: SimpleNamespace) -> None:
    records = made.iterator()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(some(anext(records)), 0.001)
    made.source.queue.put_nowait("late")
    assert await asyncio.wait_for(some(anext(records)), 10) == "late"


async def test_an_error_of_a_refill_does_not_end_the_iterator(made: SimpleNamespace) -> None:
    records = made.iterator()
    for item in (ValueError("poison"), "good"):
        made.source.queue.put_nowait(item)
    with pytest.raises(ValueError, match="poison"):
        await anext(records)
    assert await anext(records) == "good"


async def test_an_iteration_that_was_left_can_be_begun_again(made: SimpleNamespace) -> None:
    made.handout.load([1, 2])
    async with contextlib.aclosing(made.iterator()) as records:
        async for _ in records:
            break
    assert await anext(records) == 2


async def test_a_step_can_be_driven_by_hand(made: SimpleNamespace) -> None:
    """Python 3.12 and later, and whatever traces, ask with ``next`` or ``send``; the answer is the value of the exception."""
    made.handout.load([("a", "tuple")])
    drive: Callable[[Any], Any] = made.iterator().__anext__().__await__().send
    with pytest.raises(StopIteration) as answer:
        drive(None)
    assert answer.value.value == ("a", "tuple")


async def test_the_step_of_a_step_waits_with_next_and_ends_with_the_record(made: SimpleNamespace) -> None:
    async def one() -> Any:
        return await anext(made.iterator())

    waiting: Coroutine[Any, Any, Any] = one()
    task = asyncio.create_task(waiting)
    await asyncio.sleep(0)
    made.source.queue.put_nowait("x")
    assert await task == "x"
