"""``kafka_async.states``: a table moves what it is about, refuses the rest, and tells of each move."""

from enum import Enum

import pytest
from attrs import define

from kafka_async.states import StateTable
from kafka_async.trace import StateChanged, TraceEvent


class Light(Enum):
    RED = "red"
    GREEN = "green"


class What(Enum):
    GO = "go on"
    LOOK = "look"


TABLE = StateTable("a light", {(Light.RED, What.GO): Light.GREEN, (Light.RED, What.LOOK): Light.RED})


@define
class Crossing:
    state: Light = Light.RED


def test_a_move_gives_the_state_that_the_table_says_and_is_told_once_it_is_done() -> None:
    crossing, told = Crossing(), list[tuple[Light, TraceEvent]]()
    assert TABLE.move(crossing, What.GO, 1.0, lambda event: told.append((crossing.state, event)))
    assert told == [(Light.GREEN, StateChanged(now=1.0, subject="a light", before="RED", after="GREEN", reason="go on"))]


def test_a_reason_is_told_in_place_of_the_input() -> None:
    told: list[TraceEvent] = []
    TABLE.move(Crossing(), What.GO, 1.0, told.append, "it is time")
    assert [getattr(event, "reason", None) for event in told] == ["it is time"]


def test_what_changes_nothing_is_not_told() -> None:
    told: list[TraceEvent] = []
    assert not TABLE.move(Crossing(), What.LOOK, 1.0, told.append)
    assert not told


def test_what_is_not_in_the_table_raises_and_changes_nothing() -> None:
    crossing, told = Crossing(Light.GREEN), list[TraceEvent]()
    with pytest.raises(RuntimeError, match="a light in state GREEN cannot take the input GO"):
        TABLE.move(crossing, What.GO, 1.0, told.append)
    assert (crossing.state, told) == (Light.GREEN, [])
