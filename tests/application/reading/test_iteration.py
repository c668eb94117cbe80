"""The two halves of ``iteration``: one contract, tested on both."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_async.application.reading import iteration
from kafka_async.application.task_context import AsyncioTaskContext

KINDS: dict[str, tuple[Any, Any, Any, Any]] = {
    "python": (iteration.HandOut, iteration.RecordIterator, iteration.Portion, iteration.Hand),
    "chosen": (iteration.HANDOUT, iteration.ITERATOR, iteration.PORTION, iteration.HAND),
}
ENDLESS = float("inf")


class Source:
    """Refills that wait until they are given something."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.callers: list[Any] = []

    @property
    def refills(self) -> int:
        return len(self.callers)

    async def __call__(self, caller: Any) -> Any:
        self.callers.append(caller)
        item = await self.queue.get()
        if isinstance(item, BaseException):
            raise item
        return item


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> SimpleNamespace:
    hand_out, iterator, portion, hand = KINDS[request.param]
    source, clock, mine = Source(), SimpleNamespace(now=0.0), hand("me")
    handout: iteration.HandOut[Any] = hand_out(lambda: clock.now)
    handout.set_callers(lambda: "me")

    def load(records: list[Any], look_at: float = ENDLESS) -> Any:
        loaded = portion(records, records, (0, None), (len(records), None))
        handout.load([loaded], mine, handout.looked(), look_at)
        return loaded

    return SimpleNamespace(
        handout=handout, source=source, clock=clock, load=load, iterator=lambda: iterator(handout, source), mine=mine, hand=hand
    )


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


async def test_portions_of_several_partitions_follow_one_another(made: SimpleNamespace) -> None:
    """Those that others took, or that were left meanwhile, are passed; each record is held with the beginning of its partition."""
    portions = [made.load([number * 10, number * 10 + 1]) for number in range(4)]
    for portion in portions:
        portion.beginning = f"of {portion.records[0]}"
    made.handout.load(portions, made.mine, made.handout.looked(), ENDLESS)
    assert made.handout.left == 8
    records = made.iterator()
    assert [await anext(records), await anext(records)] == [0, 1]
    portions[1].place, portions[2].records = 2, [20]
    assert made.handout.left == 3
    assert (await anext(records), made.mine.last, made.mine.beginning) == (20, 20, "of 20")
    portions[3].discard()
    made.source.queue.put_nowait(99)
    assert await anext(records) == 99
    assert made.handout.left == 0


async def test_what_is_discarded_is_not_handed_out(made: SimpleNamespace) -> None:
    portion = made.load([1, 2, 3])
    records = made.iterator()
    assert await anext(records) == 1
    assert (made.handout.left, made.mine.last, portion.place) == (2, 1, 1)
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
    made.handout.load([portion], made.mine, made.handout.looked(), ENDLESS)
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
    made.handout.load([portion], made.mine, looked, ENDLESS)
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


async def test_a_record_goes_into_the_hand_of_whoever_asks_for_the_step(made: SimpleNamespace) -> None:
    portion = made.load([1, 2, 3])
    records = made.iterator()
    assert await anext(records) == 1
    made.handout.set_callers(lambda: "somebody")
    step = anext(records)
    made.handout.set_callers(lambda: "me")
    made.source.queue.put_nowait("asked for by somebody")
    assert await step == "asked for by somebody"
    assert (made.mine.last, made.source.callers) == (1, ["somebody"])
    theirs = made.hand("somebody")
    made.handout.load([portion], theirs, made.handout.looked(), ENDLESS)
    made.source.queue.put_nowait("asked for by me")
    assert await anext(records) == "asked for by me"
    made.handout.set_callers(lambda: "somebody")
    assert await anext(records) == 2
    assert (made.mine.last, theirs.last, made.source.callers) == (1, 2, ["somebody", "me"])


async def test_the_running_task_is_found_where_the_event_loop_keeps_it(made: SimpleNamespace) -> None:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    known, key = AsyncioTaskContext().running_tasks()
    assert (known is None) == (sys.version_info >= (3, 14))
    made.handout.set_callers(asyncio.current_task, known, key)
    assert made.handout.caller() is task
    assert key in (loop, None)


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
