"""When a breaker opens, whom it lets through, and what counts as an attempt."""

import gc
import weakref
from typing import Any

import pytest
from attrs import Factory, define
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import Breaker
from kafka_async.application.processing.breaker import Circuit, CircuitState

DOWN = ConnectionError("down")


def circuit(most: int = 8, **options: Any) -> Circuit:
    return Circuit(Breaker(ConnectionError, **{"window": 4, "probe_after": 10, **options}), most)


class Unit:
    """Something that is handled."""


NAMED: dict[str, Unit] = {name: Unit() for name in "abcdef"}


def unit_of(unit: Unit | str) -> Unit:
    return NAMED[unit] if isinstance(unit, str) else unit


def fail(some: Circuit, unit: Unit | str, now: float = 0.0, error: BaseException = DOWN) -> bool:
    some.begins(unit_of(unit))
    return some.failed(unit_of(unit), error, now)


def succeed(some: Circuit, unit: Unit | str) -> None:
    some.begins(unit_of(unit))
    some.succeeded(unit_of(unit))
    some.gone(unit_of(unit))


def opened() -> Circuit:
    some = circuit()
    assert [fail(some, unit) for unit in "ab"] == [True, True]
    return some


def test_it_opens_when_enough_of_the_last_attempts_failed() -> None:
    some = circuit()
    fail(some, "a")
    for unit in "bcd":
        succeed(some, unit)
    fail(some, "e")
    assert some.state is CircuitState.CLOSED, "the first failure is not among the last four"
    fail(some, "f")
    assert (some.state, some.opened, some.probe_at) == (CircuitState.OPEN, 1, 10.0)


def test_other_failures_are_no_sign_of_an_outage() -> None:
    some = circuit()
    assert [fail(some, unit, error=ValueError()) for unit in "abcdef"] == [False] * 6
    assert [fail(some, unit, error=ExceptionGroup("", [DOWN, ValueError()])) for unit in "ab"] == [False] * 2
    assert some.opened == 0
    assert [fail(some, unit, error=ExceptionGroup("", [DOWN, DOWN])) for unit in "ab"] == [True] * 2
    assert some.state is CircuitState.OPEN


def others(some: Circuit, count: int) -> None:
    for _ in range(count):
        succeed(some, Unit())


def test_a_failure_counts_once_others_have_succeeded_between_two_of_them_twice() -> None:
    some, unit = circuit(window=100), Unit()
    assert fail(some, unit), "perhaps an outage"
    assert fail(some, unit), "nobody has succeeded since"
    others(some, 2)
    assert fail(some, unit), "these may have been the last ones"
    others(some, 3)
    assert fail(some, unit), "others can, but the next outage may have begun"
    others(some, 3)
    assert not fail(some, unit), "it is this record"
    assert not fail(some, unit)
    some.gone(unit)
    others(some, 3)
    assert fail(some, unit), "another record"


def test_a_record_that_fails_by_itself_does_not_open_it_again() -> None:
    some, unit = opened(), Unit()
    assert some.admits(10)
    others(some, 1)
    assert some.state is CircuitState.RISING
    assert fail(some, unit, 10)
    assert some.opened == 2, "nothing tells it from an outage"
    assert some.admits(20)
    others(some, 3)
    assert fail(some, unit, 20)
    others(some, 3)
    assert not fail(some, unit, 20)
    assert some.opened == 2


@pytest.mark.parametrize("between", [1, 2])
def test_where_few_records_come_one_that_always_fails_does_not_keep_it_open_for_ever(between: int) -> None:
    some, unit, now = opened(), Unit(), 0.0
    kept = []
    for _ in range(6 // between + 1):
        now += 10.0
        assert some.admits(now)
        others(some, between)
        kept.append(fail(some, unit, now))
    assert kept == [True] * (6 // between) + [False]
    some.gone(unit)
    now += 10.0
    assert some.admits(now)
    others(some, 10)
    assert some.state is CircuitState.CLOSED


def test_so_many_in_a_row_open_it_too() -> None:
    some = circuit(window=100, in_a_row=3)
    fail(some, Unit())
    fail(some, Unit())
    others(some, 1)
    fail(some, Unit())
    fail(some, Unit())
    assert some.state is CircuitState.CLOSED
    fail(some, Unit())
    assert some.opened == 1


@pytest.mark.slow
def test_what_leaves_is_forgotten() -> None:
    some = circuit(window=100)
    units = [Unit() for _ in range(100)]
    for unit in units[:40]:
        fail(some, unit)
    gone = [weakref.ref(unit) for unit in units]
    del units, unit
    gc.collect()
    assert not any(each() for each in gone)


def test_while_it_is_open_nothing_begins_and_nothing_counts() -> None:
    some = circuit()
    for unit in "abcd":
        some.begins(unit_of(unit))
    assert [some.failed(unit_of(unit), DOWN, 0.0) for unit in "abcd"] == [True] * 4
    assert some.opened == 1, "what began before says nothing about now"
    assert not some.admits(9.9)
    assert some.due_at == 10.0
    assert some.admits(10.0)


def test_one_is_tried_and_then_more_at_once() -> None:
    some = opened()
    assert some.admits(10)
    some.begins("probe")
    assert not some.admits(11)
    assert some.due_at is None
    some.succeeded("probe")
    at_once = list[int]()
    while some.state is CircuitState.RISING:
        units = list[int]()
        while some.admits(12) and len(units) < 8:
            units.append(len(units))
            some.begins(units[-1])
        at_once.append(len(units))
        for unit in units:
            some.succeeded(unit)
    assert at_once == [2, 4]
    assert some.state is CircuitState.CLOSED


def test_one_handler_at_a_time_needs_no_rise() -> None:
    some = circuit(most=1)
    fail(some, "a")
    fail(some, "a")
    assert some.admits(10)
    succeed(some, "a")
    assert some.state is not CircuitState.HALF_OPEN
    succeed(some, "b")
    succeed(some, "c")
    assert some.state is CircuitState.CLOSED


def test_a_probe_that_fails_waits_longer() -> None:
    some = circuit(probe_after=lambda opened, error: 10.0 * opened)
    fail(some, "a")
    fail(some, "b", 5.0)
    assert some.probe_at == 15.0
    assert some.admits(15)
    assert fail(some, "a", 16.0)
    assert (some.state, some.probe_at, some.opened) == (CircuitState.OPEN, 36.0, 2)
    assert some.admits(40)
    succeed(some, "a")
    for _ in range(20):
        succeed(some, "b")
    assert some.state is CircuitState.CLOSED
    fail(some, "a")
    fail(some, "b", 50.0)
    assert some.probe_at == 60.0, "short again after it was closed"


def test_a_probe_without_a_result_makes_room_for_another() -> None:
    some = opened()
    assert some.admits(10)
    some.begins("probe")
    some.ends("probe")
    assert some.admits(10)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"on": ()}, TypeError, r"on=\(\): expected an exception class"),
        ({"on": (3,)}, TypeError, "on="),
        ({"on": BaseException}, TypeError, "on="),
        ({"ratio": 0}, ValueError, "ratio=0: expected more than 0"),
        ({"ratio": "1"}, TypeError, "ratio='1'"),
        ({"window": 0}, ValueError, "window=0"),
        ({"window": 1.5}, TypeError, "window=1.5"),
        ({"probe_after": 0}, ValueError, "probe_after=0: expected seconds, more than 0"),
        ({"probe_after": "soon"}, TypeError, "probe_after='soon'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Breaker(**{"on": OSError, **arguments})


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "succeed", "fail", "other", "end", "wait"]), st.integers(0, 9)), max_size=120)


@define(eq=False)
class Work:
    """Units that are handled by a circuit's leave."""

    some: Circuit
    now: float = 0.0
    running: dict[Unit, int] = Factory(dict)
    """Each with how often the breaker had opened as it began."""

    def step(self, what: str, place: int) -> None:
        some = self.some
        if what == "wait":
            self.now += place
        elif what == "begin":
            if len(self.running) < some.most and some.admits(self.now):
                self.begin()
        elif self.running:
            unit = list(self.running)[place % len(self.running)]
            del self.running[unit]
            self.end(unit, what)

    def begin(self) -> None:
        if self.some.state is CircuitState.HALF_OPEN:
            assert self.some.opened not in self.running.values(), "one probe at a time"
        unit = Unit()
        self.running[unit] = self.some.opened
        self.some.begins(unit)

    def end(self, unit: Unit, what: str) -> None:
        if what == "succeed":
            self.some.succeeded(unit)
        elif what == "end":
            self.some.ends(unit)
        else:
            kept = self.some.failed(unit, DOWN if what == "fail" else ValueError(), self.now)
            assert what == "fail" or not kept


@pytest.mark.slow
@given(STEPS, st.integers(1, 6), st.integers(1, 5))
def test_whatever_happens_one_probe_runs_and_it_can_always_close(steps: list[tuple[str, int]], window: int, most: int) -> None:
    work = Work(circuit(most, window=window, probe_after=5))
    for what, place in steps:
        work.step(what, place)
    some = work.some
    for unit in work.running:
        some.ends(unit)
    for unit in (Unit() for _ in range(100)):
        work.now += 5
        assert some.admits(work.now)
        some.begins(unit)
        some.succeeded(unit)
    assert some.state is CircuitState.CLOSED
