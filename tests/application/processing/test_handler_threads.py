"""Threads that go on with the next unit by themselves: what they begin, and whose results count."""

from collections import deque
from typing import Any

import pytest
from attrs import define, field

from kafka_async import ConsumerRecord, TopicPartition
from kafka_async.application.processing.attempts import Unit
from kafka_async.application.processing.context import ProcessingContext
from kafka_async.application.processing.done import PartitionProgress
from kafka_async.application.processing.handler_threads import HandlerThreads, Outcome, Stint
from kafka_async.application.processing.items import Item, Part

PART = Part(PartitionProgress(TopicPartition("jobs", 0)))


def item(offset: int) -> Item:
    record: ConsumerRecord[Any, Any] = ConsumerRecord("jobs", 0, offset, 0, 0, None, b"", (), None, -1, 0, None)
    return Item(PART, None, record, offset, 0.0, 0.0)


@define(eq=False)
class Work:
    """A handler that does what it is told for each offset."""

    does: dict[int, Any] = field(factory=dict)
    closed: set[int] = field(factory=set)
    handled: list[int] = field(factory=list)

    def call(self, unit: Unit, context: ProcessingContext | None) -> Any:
        offset = unit.items[0].record.offset
        self.handled.append(offset)
        return self.does[offset]() if offset in self.does else None

    def is_open(self, unit: Unit) -> bool:
        return unit.items[0].record.offset not in self.closed

    def context_on_thread(self, unit: Unit) -> ProcessingContext:
        raise NotImplementedError

    def take_in(self) -> None: ...


def handler_threads(work: Work, *laid_out: Item, turn_ends: float = 100.0, late: "deque[None] | None" = None) -> HandlerThreads:
    made = HandlerThreads(work, lambda: 1.0, deque() if late is None else late, enough=1, with_context=False)
    made.laid_out.extend(laid_out)
    made.turn_ends = turn_ends
    return made


def test_a_thread_handles_what_is_laid_out_in_order() -> None:
    work, items = Work(), [item(offset) for offset in range(4)]
    some = handler_threads(work, *items[1:])
    assert some.work(Stint(items[0])) is None
    assert work.handled == [0, 1, 2, 3]
    assert [result.unit for result in some.results() if isinstance(result, Outcome)] == items


def test_a_thread_leaves_the_rest_to_others_after_a_failure() -> None:
    def fail() -> None:
        raise ValueError("no")

    work, items = Work({1: fail}), [item(offset) for offset in range(3)]
    some, stint = handler_threads(work, *items[1:]), Stint(items[0])
    outcome = some.work(stint)
    assert outcome is not None
    assert (outcome.unit, repr(outcome.error)) == (items[1], "ValueError('no')")
    assert stint.unit is items[1], "if the worker is cancelled before it has the outcome, it knows whose it was"
    assert list(some.laid_out) == [items[2]]


def test_what_has_to_be_awaited_goes_back_to_the_event_loop() -> None:
    async def rest() -> None: ...

    work, first = Work({0: rest}), item(0)
    outcome = handler_threads(work).work(Stint(first))
    assert outcome is not None
    with pytest.raises(StopIteration):
        outcome.awaitable.send(None)


def test_what_is_lost_is_not_begun_and_handed_in() -> None:
    work, items = Work(closed={1}), [item(offset) for offset in range(3)]
    some = handler_threads(work, *items[1:])
    some.work(Stint(items[0]))
    assert work.handled == [0, 2]
    assert items[1] in some.results()


def test_what_is_lost_just_before_a_thread_shows_that_it_works_on_it_is_not_begun() -> None:
    class Losing(Work):
        def context_on_thread(self, unit: Unit) -> ProcessingContext:
            record = unit.items[0].record
            self.closed |= {record.offset} & {1}
            return ProcessingContext(record, 1, lambda partition, context: None)

    work, items = Losing(), [item(offset) for offset in range(3)]
    some = HandlerThreads(work, lambda: 1.0, deque(), enough=1, with_context=True)
    some.laid_out.extend(items[1:])
    some.turn_ends = 100.0
    stint = Stint(items[0])
    assert some.work(stint) is None
    assert work.handled == [0]
    assert items[1] in some.results()
    assert stint.unit is None, "its worker goes on"
    assert list(some.laid_out) == [items[2]]


def test_a_thread_asks_the_event_loop_first_once_its_turn_is_over() -> None:
    work, items = Work(), [item(0), item(1)]
    some = handler_threads(work, items[1], turn_ends=1.0)
    some.work(Stint(items[0]))
    assert work.handled == [0]
    assert list(some.laid_out) == [items[1]]


def test_the_result_of_a_thread_that_was_given_up_counts_as_late() -> None:
    items, late = [item(0), item(1)], deque[None]()
    stint = Stint(items[0])
    work = Work({0: stint.give_up})
    some = handler_threads(work, items[1], late=late)
    assert some.work(stint) is None
    assert (work.handled, len(late)) == ([0], 1)
    assert some.results() == []
    assert stint.unit is items[0], "the event loop decides what becomes of it"


def test_the_result_of_a_unit_is_there_once_it_is_under_way_no_more() -> None:
    """The thread may be interrupted at that moment: the event loop would find the unit nowhere, and give its record back."""
    seen: list[tuple[Unit | None, list[Any]]] = []

    class Interrupted(Stint):
        def end(self, *args: Any, **kwargs: Any) -> bool:
            counts = super().end(*args, **kwargs)
            seen.append((self.unit, [getattr(result, "unit", result) for result in some.results()]))
            return counts

    items = [item(0), item(1)]
    some = handler_threads(Work(closed={2}), items[1])
    some.work(Interrupted(items[0]))
    some.work(Interrupted(lost := item(2)))
    assert seen == [(None, [items[0]]), (None, [items[1]]), (None, [lost])]


def test_a_thread_given_up_before_it_began_begins_nothing() -> None:
    work, first = Work(), item(0)
    stint = Stint(first)
    stint.give_up()
    some = handler_threads(work)
    some.work(stint)
    assert work.handled == []
    assert some.results() == [], "its worker has the unit"


def test_a_thread_that_went_on_is_not_given_up_for_its_former_unit() -> None:
    items = [item(0), item(1)]
    stint = Stint(items[0])
    given_up: list[bool] = []
    work = Work({1: lambda: given_up.append(stint.give_up(items[0]))})
    some = handler_threads(work, items[1])
    some.work(stint)
    assert given_up == [False]
    assert len(some.results()) == 2
