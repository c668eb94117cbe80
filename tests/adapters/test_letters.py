"""What a dead letter says, and what of it goes back."""

from typing import Any

import pytest

from kafka_async import ConsumerRecord
from kafka_async.adapters.dead_letters import LEFT_OUT, reasons
from kafka_async.adapters.letters import REDRIVES, DeadLetter, headers_back
from kafka_async.adapters.publishing import Headers

OWN: Headers = [("trace", b"\xff"), ("trace", None)]


def record(headers: Headers, topic: str = "orders", offset: int = 7) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(topic, 2, offset, 1000, 0, b"k", b"v", tuple(headers), None, 1, 1, None)


def letter_of(
    source: ConsumerRecord[Any, Any], *more: tuple[str, bytes | None], topic: str = "orders-dead"
) -> ConsumerRecord[Any, Any]:
    headers = [*source.headers, *reasons(source, ValueError("no\nway"), 3, "billing"), *more]
    return record(headers, topic, 40)


def read(letter: ConsumerRecord[Any, Any]) -> DeadLetter:
    found = DeadLetter.read(letter)
    assert found is not None
    return found


def test_a_letter_says_where_its_record_came_from_and_why() -> None:
    letter = read(letter_of(record(OWN), (LEFT_OUT, b"900")))

    assert (letter.partition, letter.offset, letter.written_at) == (2, 40, 1000)
    assert (letter.source, letter.source_offset, letter.timestamp) == (("orders", 2), 7, 1000)
    assert (letter.exception, letter.attempts, letter.group) == ("builtins.ValueError", 3, "billing")
    assert (letter.left_out, letter.redrives) == (900, 0)


def test_what_goes_back_has_the_records_own_headers_and_a_count() -> None:
    assert headers_back(letter_of(record(OWN), (LEFT_OUT, b"900"))) == [*OWN, (REDRIVES, b"1")]


def test_a_record_that_went_back_and_failed_again_is_counted_on() -> None:
    letter = letter_of(record([*OWN, (REDRIVES, b"2")]))

    assert read(letter).redrives == 2
    assert headers_back(letter) == [*OWN, (REDRIVES, b"3")]


def test_a_letter_that_failed_itself_goes_back_as_the_letter_that_it_was() -> None:
    inner = letter_of(record(OWN))
    outer = letter_of(inner, topic="orders-dead-dead")

    assert read(outer).source == ("orders-dead", 2)
    assert headers_back(outer) == [*inner.headers, (REDRIVES, b"1")]


def test_headers_that_a_producer_adds_go_back_too() -> None:
    assert headers_back(letter_of(record(OWN), ("traceparent", b"00"))) == [*OWN, ("traceparent", b"00"), (REDRIVES, b"1")]


BROKERS: Headers = [
    ("__dlq.errors.topic", b"jobs"),
    ("__dlq.errors.partition", b"1"),
    ("__dlq.errors.offset", b"9"),
    ("__dlq.errors.group", b"workers"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"too often"),
]


def test_a_letter_of_a_broker_is_incomplete() -> None:
    letter = read(record(BROKERS))

    assert (letter.source, letter.source_offset, letter.group) == (("jobs", 1), 9, "workers")
    assert (letter.attempts, letter.reason, letter.exception, letter.timestamp) == (5, "too often", None, None)
    assert letter.incomplete
    assert DeadLetter.read(record(BROKERS[:-1])) is None


@pytest.mark.parametrize(
    "headers",
    [
        [],
        OWN,
        [("dead-letter-topic", b"orders")],
        [(name, b"x" if name == "dead-letter-offset" else value) for name, value in reasons(record([]), ValueError(), 1)],
        [(name, None) for name, _ in reasons(record([]), ValueError(), 1)],
    ],
)
def test_a_record_that_is_no_letter_is_none(headers: Headers) -> None:
    assert DeadLetter.read(record(headers)) is None


def test_a_record_without_our_headers_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="orders:2:7 is not a dead letter: it has no header dead-letter-topic"):
        headers_back(record(OWN))
