"""The two halves of ``iteration``: one contract, tested on both."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_async.application import iteration

KINDS: dict[str, tuple[Any, Any, Any]] = {
    "python": (iteration.HandOut, iteration.RecordIterator, iteration.Portion),
    "chosen": (iteration.HANDOUT, iteration.ITERATOR, iteration.PORTION),
}
ENDLESS = float("inf")


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


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> SimpleNamespace:
    hand_out, iterator, portion = KINDS[request.param]
    source, clock = Source(), SimpleNamespace(now=0.0)
    handout: iteration.HandOut[Any] = hand_out(lambda: clock.now)

    def load(records: list[Any], look_at: float = ENDLESS) -> Any:
        loaded = portion(records, records, (0, None), (len(records), None))
        handout.load(loaded, handout.looked(), look_at)
        return loaded

    return SimpleNamespace(handout=handout, source=source, clock=clock, load=load, iterator=lambda: iterator(handout, source, "me"))


async def some(awaitable: Awaitable[Any]) -> Any:
    """Wait for something that is no coroutine, as ``asyncio.create_task`` wants one."""
    return await awaitable


async def test_records_come_in_order_and_then_from_refills(made: SimpleNamespace) -> None:
    made.load([(1,), (2,)])
    for item in ((3,), None, StopAsyncIteration()):
        made.source.queue.put_nowait(item)
    assert [record async for record in made.iterator()] == [(1,), (2,), (3,), None]
    assert made.source.refills == 3


async def test_a_new_list_goes_on_in_the_same_iteration(made: SimpleNamespace) -> None:
    made.load([1])
    records = made.iterator()
    assert await anext(records) == 1
    made.load([2, 3])
    assert [await anext(records), await anext(records)] == [2, 3]


async def test_what_is_discarded_is_not_handed_out(made: SimpleNamespace) -> None:
    portion = made.load([1, 2, 3])
    records = made.iterator()
    assert await anext(records) == 1
    assert (made.handout.left, made.handout.last, portion.place) == (2, 1, 1)
    portion.discard()
    assert made.handout.left == 0
    made.source.queue.put_nowait(9)
    assert await anext(records) == 9


async def test_a_portion_that_others_take_from_goes_on_behind_that(made: SimpleNamespace) -> None:
    portion = made.load([1, 2, 3, 4])
    records = made.iterator()
    portion.place += 1
    assert await anext(records) == 2
    portion.place += 1
    assert await anext(records) == 4


async def test_a_step_goes_the_long_way_once_something_has_happened(made: SimpleNamespace) -> None:
    portion = made.load([1, 2])
    records = made.iterator()
    assert await anext(records) == 1
    assert made.handout.calm
    made.handout.attend()
    assert not made.handout.calm
    made.source.queue.put_nowait("looked")
    assert await anext(records) == "looked"
    made.handout.load(portion, made.handout.looked(), ENDLESS)
    assert await anext(records) == 2


async def test_a_step_goes_the_long_way_in_another_thread(made: SimpleNamespace) -> None:
    made.load([1, 2])
    made.source.queue.put_nowait("waited for")
    records = made.iterator()
    assert await anext(records) == 1
    assert await asyncio.to_thread(lambda: asyncio.run(some(anext(records)))) == "waited for"
    assert await anext(records) == 2


async def test_what_happens_during_a_look_asks_for_another_one(made: SimpleNamespace) -> None:
    portion = made.load([1])
    looked = made.handout.looked()
    made.handout.attend()
    made.handout.load(portion, looked, ENDLESS)
    assert not made.handout.calm


async def test_a_step_goes_the_long_way_when_its_time_has_come(made: SimpleNamespace) -> None:
    made.load([1, 2], look_at=5.0)
    records = made.iterator()
    assert await anext(records) == 1
    made.clock.now = 5.0
    made.source.queue.put_nowait("looked")
    assert await anext(records) == "looked"


async def test_the_systems_clock_is_read_as_the_given_one(made: SimpleNamespace) -> None:
    made.handout.set_clock(time.monotonic, monotonic=True)
    made.load([1], look_at=time.monotonic() + 1000)
    assert made.handout.calm
    made.load([1], look_at=time.monotonic() - 1)
    assert not made.handout.calm


async def test_an_iteration_knows_what_it_handed_out_last_and_to_whom(made: SimpleNamespace) -> None:
    made.load([1, 2])
    first, second = made.iterator(), made.iterator()
    assert [await anext(first), await anext(second)] == [1, 2]
    assert (first.last, second.last, made.handout.last, made.handout.holder) == (1, 2, 2, "me")
    made.source.queue.put_nowait(3)
    made.handout.holder = "somebody"
    assert await anext(first) == 3
    assert (first.last, first.holder) == (3, "somebody")


async def test_a_step_that_nobody_awaits_takes_nothing(made: SimpleNamespace) -> None:
    made.load([1])
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
    made.load([1, 2])
    async with contextlib.aclosing(made.iterator()) as records:
        async for _ in records:
            break
    assert await anext(records) == 2


async def test_a_step_can_be_driven_by_hand(made: SimpleNamespace) -> None:
    """Python 3.12 and later, and whatever traces, ask with ``next`` or ``send``; the answer is the value of the exception."""
    made.load([("a", "tuple")])
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
