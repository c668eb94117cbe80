"""Which records are due, without a clock: any times, in any order, with a wall clock that jumps."""

from math import inf
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import TopicPartition
from kafka_async.application.processing.delays import YEAR_10000, Delays
from kafka_async.application.processing.done import PartitionProgress
from kafka_async.application.processing.items import Item, Part

from .support import OTHER, TP, Record, record

TIMES = st.one_of(st.none(), st.integers(0, 100), st.floats(0, 100))


def _items(part: Part, offsets: range) -> list[Item]:
    partition = part.progress.partition
    return [Item(part, None, record(offset, partition=partition), offset, 0.0, 0.0) for offset in offsets]


def _parts() -> dict[TopicPartition, Part]:
    return {tp: Part(PartitionProgress(tp)) for tp in (TP, OTHER)}


STEPS = st.lists(st.one_of(st.tuples(st.sampled_from([TP, OTHER]), st.lists(TIMES, min_size=1, max_size=4)), st.integers(0, 110)))


@pytest.mark.slow
@given(STEPS)
def test_none_is_early_all_come_in_order_and_those_that_wait_are_counted(steps: list[Any]) -> None:
    times: dict[tuple[TopicPartition, int], float | None] = {}
    parts, ends, taken = _parts(), {TP: 0, OTHER: 0}, {TP: list[int](), OTHER: list[int]()}
    delays = Delays(lambda found: times[TopicPartition(found.topic, found.partition), found.offset])

    def look(wall: float) -> None:
        for part, items in delays.take_due(wall):
            for item in items:
                due = times[part.progress.partition, item.record.offset]
                assert due is None or due <= wall
                taken[part.progress.partition].append(item.record.offset)
        assert set(delays.until()) == {part.progress.partition for part in delays.parts}
        assert delays.due_at > wall

    for step in steps:
        if isinstance(step, int):
            look(step)
            continue
        tp, more = step
        times |= {(tp, ends[tp] + index): due for index, due in enumerate(more)}
        delays.keep(parts[tp], _items(parts[tp], range(ends[tp], ends[tp] + len(more))))
        ends[tp] += len(more)
        assert delays.records == sum(ends.values()) - sum(map(len, taken.values()))
        first = delays.first(parts[tp])
        assert first is not None
        assert first.record.offset == len(taken[tp])
    look(1_000)
    assert taken == {tp: list(range(end)) for tp, end in ends.items()}
    assert (delays.records, delays.parts, delays.due_at) == (0, [], inf)


def test_a_thread_that_looks_as_records_are_let_go_finds_no_time_or_one_that_is_to_come() -> None:
    """``statistics()`` raised ``OverflowError``."""
    times, parts, seen = [None, "no time", 50, 200], _parts(), list[dict[TopicPartition, int]]()
    delays = Delays(lambda found: cast("Any", times[found.offset]))

    class Looking(float):
        """A wall clock that has another thread look whenever a time is compared with it."""

        def __lt__(self, other: float) -> bool:
            seen.append(delays.until())
            return super().__lt__(other)

    delays.keep(parts[TP], _items(parts[TP], range(4)))
    ((_, items),) = delays.take_due(Looking(100.0))
    assert len(items) == 3
    assert seen == [{}] * 4
    assert delays.until() == {TP: 200}


@pytest.mark.slow
@given(STEPS)
def test_each_record_is_fresh_once_at_most_and_only_while_it_waits(steps: list[Any]) -> None:
    delays, parts, ends, seen = Delays(lambda found: found.offset * 10), _parts(), {TP: 0, OTHER: 0}, set[tuple[int, int]]()
    for step in steps:
        if isinstance(step, int):
            due = {id(item) for _, items in delays.take_due(step) for item in items}
            fresh = delays.take_fresh()
            assert not due & {id(item) for item in fresh}
            places = [(item.record.partition, item.record.offset) for item in fresh]
            assert seen.isdisjoint(places)
            seen.update(places)
        else:
            tp, more = step
            delays.keep(parts[tp], _items(parts[tp], range(ends[tp], ends[tp] + len(more))))
            ends[tp] += len(more)


def test_a_record_is_asked_for_its_time_once_and_not_before_it_comes_first() -> None:
    asked: list[int] = []

    def not_before(found: Record) -> float:
        asked.append(found.offset)
        return found.offset * 10

    delays, part = Delays(not_before), _parts()[TP]
    delays.keep(part, _items(part, range(4)))
    for wall in (5, 5, 0, 6):
        delays.take_due(wall)
        assert asked == [0, 1]
    assert delays.due_at == 10
    delays.take_due(20)
    assert asked == [0, 1, 2, 3]


def test_a_partition_that_is_forgotten_has_nothing_that_waits() -> None:
    delays, parts = Delays(lambda found: 50), _parts()
    for tp, part in parts.items():
        delays.keep(part, _items(part, range(3)))
        assert delays.count(parts[tp]) == 3
    delays.take_due(0)
    delays.forget(parts[TP])
    assert (delays.records, delays.until()) == (3, {OTHER: 50})
    assert delays.first(parts[TP]) is None
    assert [(part, len(items)) for part, items in delays.take_due(50)] == [(parts[OTHER], 3)]


@pytest.mark.parametrize(
    ("bad", "kind"),
    [("x", TypeError), (b"1", TypeError), (True, TypeError), ([], TypeError), (inf, ValueError), (YEAR_10000, ValueError)],
)
def test_what_is_no_time_is_the_records_failure_and_keeps_no_other_waiting(bad: Any, kind: type[Exception]) -> None:
    delays, part = Delays(lambda found: bad if found.offset == 1 else None), _parts()[TP]
    delays.keep(part, _items(part, range(3)))
    ((_, items),) = delays.take_due(0)
    assert [type(item.error) for item in items] == [type(None), kind, type(None)]


def test_a_record_that_cannot_be_handled_has_no_time() -> None:
    def never(found: Record) -> float:
        raise AssertionError

    delays, part = Delays(never), _parts()[TP]
    error = ValueError("cannot be deserialized")
    delays.keep(part, [Item(part, None, record(0), 0, 0.0, 0.0, 1, error)])
    ((_, (item,)),) = delays.take_due(0)
    assert item.error is error


class _Retries:
    """A topic ``t`` whose records are due at 30, after two attempts."""

    def serves(self, topic: str) -> bool:
        return topic == "t"

    def not_before(self, found: Record) -> float:
        return 30

    def attempts_before(self, found: Record) -> int:
        return 2

    def topics(self, topics: Any) -> list[str]:
        return ["t"]


def test_topics_of_redelivery_have_their_times_and_attempts_and_no_others() -> None:
    delays, part = Delays(None, _Retries()), _parts()[TP]
    elsewhere = Part(PartitionProgress(TopicPartition("u", 0)))
    assert not delays.keep(elsewhere, _items(elsewhere, range(2)))
    assert delays.keep(part, _items(part, range(1)))
    assert (delays.take_due(29), delays.until()) == ([], {TP: 30})
    ((_, (item,)),) = delays.take_due(30)
    assert item.attempt == 3


@pytest.mark.parametrize(("own", "due"), [(10, 30), (60, 60), (None, 30)])
def test_of_two_times_the_later_one_counts(own: float | None, due: int) -> None:
    delays, part = Delays(lambda found: own, _Retries()), _parts()[TP]
    delays.keep(part, _items(part, range(1)))
    delays.take_due(0)
    assert delays.until() == {TP: due}
