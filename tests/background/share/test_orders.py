"""How many records are read ahead, and what unread ones count as."""

from math import inf

import pytest

from kafka_async.background.boundary import EventHandler, Exchange
from kafka_async.background.share.orders import CAREFUL, OVERHEAD, Acknowledge, AcknowledgeType, Lost, in_time, weight
from kafka_async.errors import InvalidRecordStateError
from kafka_async.records import RecordReader
from tests.background.support import records

from .world import LOCK, TP


@pytest.mark.parametrize(
    ("pace", "since", "expected"),
    [
        (0.0, inf, 0),
        (1.0, inf, 10),
        (20.0, inf, 0),
        (0.001, inf, 1_000),
        (0.05, inf, 20),
        (0.5, inf, 10),
        (0.001, 5 * CAREFUL, 5),
        (0.001, -3.0, 0),
    ],
    ids=[
        "not known",
        "a third of the lock",
        "too slow for one",
        "a second of work",
        "the same",
        "ten if they take longer",
        "some were lost not long ago",
        "some were lost just now",
    ],
)
def test_as_many_are_read_ahead_as_the_application_gets_to_soon(pace: float, since: float, expected: int) -> None:
    assert in_time(pace, LOCK, since) == expected


def test_records_weigh_their_bytes_and_the_objects_around_them() -> None:
    found = RecordReader("t", 0, records(0, 3, size=7), 0).read(3)
    assert weight(found) == 3 * (7 + OVERHEAD), "a key that is null weighs nothing"
    assert weight([]) == 0


class Queues:
    def __init__(self) -> None:
        self.woken: list[str] = []
        self.exchange = Exchange(EventHandler(lambda: self.woken.append("background"), lambda: self.woken.append("application")))

    def acknowledge(self, **how: bool) -> None:
        self.exchange.order(Acknowledge(TP, 0, 1, AcknowledgeType.ACCEPT), **how)


def test_the_background_is_woken_once_for_all_that_it_finds_in_its_next_turn() -> None:
    queues = Queues()
    queues.acknowledge()
    queues.acknowledge()
    assert (queues.woken, len(queues.exchange.orders)) == (["background"], 2)
    queues.exchange.turn += 1
    queues.acknowledge()
    assert queues.woken == ["background"] * 2


def test_a_background_that_looks_soon_anyway_or_need_not_know_yet_is_not_woken_unless_it_is_urgent() -> None:
    queues = Queues()
    queues.acknowledge(quiet=True)
    queues.exchange.attentive = True
    queues.acknowledge()
    assert queues.woken == []
    queues.acknowledge(urgent=True)
    assert queues.woken == ["background"]


def test_each_report_wakes_the_application() -> None:
    queues = Queues()
    queues.exchange.report(Lost(TP, ((1, 0),), InvalidRecordStateError("over")))
    assert queues.woken == ["application"]


def test_unread_is_what_was_delivered_and_not_taken() -> None:
    exchange = Queues().exchange
    exchange.delivered, exchange.taken, exchange.put_bytes, exchange.taken_bytes = 7, 3, 700, 250
    assert (exchange.unread, exchange.unread_bytes) == (4, 450)
