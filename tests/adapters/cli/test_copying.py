import re

import pytest

pytest.importorskip("typer")

import typer

from kafka_async import TopicPartition
from kafka_async.adapters.cli.copying import Start, begin_and_end, find_partitions
from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.testing.simulation import FakeCluster
from tests.application.support import consumer_on
from tests.virtual import run_virtual


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start(kind="beginning")),
        ("end", Start(kind="end")),
        ("stored", Start(kind="stored")),
        ("17", Start(kind="offset", number=17)),
        ("-5", Start(kind="tail", number=5)),
        ("s@1700000000000", Start(kind="time", number=1_700_000_000_000)),
        ("s@1970-01-02", Start(kind="time", number=86_400_000)),
        ("s@1970-01-01T02:00+01:00", Start(kind="time", number=3_600_000)),
    ],
)
def test_each_way_to_say_where_to_begin_is_understood(text: str, start: Start) -> None:
    assert Start.parse(text) == start


@pytest.mark.parametrize(
    "text", ["", f"s@{2**63}", "-", "s@", "s@-1", "--1", "1e3", "first", "s@1969-12-31", "s@yesterday", "s@2026-02-30"]
)
def test_a_start_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected 'beginning', 'end', 'stored'"):
        Start.parse(text)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("s@20231114", "1970-01-01T05:37:11.114"),
        ("s@1700000000", "1970-01-20T16:13:20"),
        ("s@946684799999", "1999-12-31T23:59:59.999"),
    ],
)
def test_a_number_before_2000_is_refused_since_it_was_not_meant_as_milliseconds(text: str, date: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        Start.parse(text)

    assert str(caught.value) == (
        f"{text!r} is {date} UTC, since a bare number is milliseconds since 1970; write a date such as s@2026-01-31, "
        f"or s@{date} for that time"
    )
    assert Start.parse(f"s@{date}") == Start(kind="time", number=int(text[2:]))


@pytest.mark.parametrize("number", [0, 9_999_999, 946_684_800_000])
def test_numbers_of_milliseconds_are_taken_from_2000_on_and_of_the_first_hours_of_1970(number: int) -> None:
    assert Start.parse(f"s@{number}") == Start(kind="time", number=number)


def partitions(*topics: str, wanted: tuple[int, ...] = ()) -> list[TopicPartition]:
    cluster = FakeCluster()
    cluster.create_topic("a", 2)
    cluster.create_topic("b")
    cluster.create_topic("payments")

    async def main() -> list[TopicPartition]:
        async with consumer_on(cluster) as consumer:
            return await find_partitions(consumer, topics, wanted)

    return run_virtual(main)


def test_partitions_of_several_topics_are_found() -> None:
    assert partitions("b", "a") == [TopicPartition("b", 0), TopicPartition("a", 0), TopicPartition("a", 1)]
    assert partitions("a", wanted=(1,)) == [TopicPartition("a", 1)]


def test_a_topic_or_a_partition_that_is_missing_is_named() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 'c' does not exist$"):
        partitions("a", "c")
    with pytest.raises(UnknownTopicOrPartitionError, match=re.escape("topic 'payment' does not exist; did you mean 'payments'?")):
        partitions("payment")
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'b' has no partition 1, 4; it has 1, from 0 on"):
        partitions("b", wanted=(0, 4, 1))


def test_a_beginning_and_an_end_go_together() -> None:
    assert begin_and_end([]) == (None, None)
    assert begin_and_end(["-5"]) == ("-5", None)
    assert begin_and_end(["e@1970-01-02", "s@1970-01-01"]) == ("s@1970-01-01", 86_400_000)


@pytest.mark.parametrize("texts", [["end", "beginning"], ["e@1970-01-02", "e@1970-01-03"], ["s@1970-01-02", "e@1970-01-03", "5"]])
def test_two_beginnings_or_two_ends_are_refused(texts: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="expected one beginning, and one end as in e@2026-01-31"):
        begin_and_end(texts)


@pytest.mark.parametrize("text", ["e@", "e@tomorrow", "e@1969-12-31"])
def test_an_end_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected e@MILLISECONDS or e@DATE"):
        begin_and_end([text])


def test_an_end_before_2000_is_refused_since_it_was_not_meant_as_milliseconds() -> None:
    with pytest.raises(typer.BadParameter, match=r"write a date such as e@2026-01-31, or e@1970-01-01T05:37:11\.114 "):
        begin_and_end(["e@20231114"])
