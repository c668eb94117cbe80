import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("typer")

import anyio
import typer

from kafka_async import TopicPartition
from kafka_async.adapters.cli.copying import Copy, Partitions, Start, begin_and_end, find_partitions
from kafka_async.adapters.cli.shell import Output
from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.testing import Cluster
from kafka_async.testing.simulation import FakeCluster
from tests.application.support import consumer_on
from tests.virtual import run_virtual, run_virtual_asyncio


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
            found = await find_partitions(consumer, topics, wanted)
            described = (await consumer.describe_topics()).topics
            assert all(topic_id == described[partition.topic].topic_id is not None for partition, topic_id in found.items())
            return list(found)

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


A0 = TopicPartition("a", 0)


def copied(event: Callable[[Cluster], None], until: int | None = None) -> list[int]:
    """Copy a topic of 100 records up to its end; after 60 of them something happens. Return the offsets."""
    found: list[int] = []

    async def main() -> None:
        async with Cluster() as cluster:
            cluster.topic("a")
            for _ in range(100):
                cluster.produce("a", value="old", partition=0)

            def write(record: Any) -> bytes:
                found.append(record.offset)
                if len(found) == 60:
                    event(cluster)
                return b""

            options: dict[str, Any] = {**cluster.options(), "auto_offset_reset": "earliest", "metadata_max_age_ms": 1000}
            options |= {"max_partition_fetch_bytes": 1, "fetch_buffer_bytes": 1000}
            reading = Partitions(topics=("a",), partitions=(), start=Start.parse("beginning"), until=until, options=options)
            with anyio.fail_after(60):
                await Copy(reading=reading, count=None, exit_at_end=True, write=write, delimiter=b"").run(Output(debug=False))

    run_virtual_asyncio(main)
    return found


def anew(cluster: Cluster, count: int, timestamp: int | None = None) -> None:
    cluster.recreate("a")
    for _ in range(count):
        cluster.produce("a", value="new", partition=0, timestamp=timestamp)


@pytest.mark.parametrize("count", [20, 200])
def test_a_topic_that_is_made_anew_under_a_copy_is_read_up_to_its_own_end(count: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert copied(lambda cluster: anew(cluster, count))[60:] == [*range(count)]
    said = capfd.readouterr().err
    assert f"% a [0]: the topic was deleted and created again; reading up to offset {count}\n" in said
    assert f"% Reached end of topic a [0] at offset {count}\n" in said


def test_the_end_that_was_given_is_looked_up_in_a_topic_that_is_made_anew() -> None:
    assert copied(lambda cluster: anew(cluster, 200, timestamp=5), until=2**62)[60:] == [*range(200)]


@pytest.mark.parametrize(("until", "end"), [(17, 17), (17.5, 18), (99, 99), (100, 100), (0, 0)])
def test_the_given_end_is_named_though_a_batch_went_beyond_it(until: float, end: int, capfd: pytest.CaptureFixture[str]) -> None:
    found: list[int] = []

    async def main() -> None:
        async with Cluster() as cluster:
            cluster.topic("a")
            for number in range(100):
                cluster.produce("a", value="x", partition=0, timestamp=10 * number)
            options: dict[str, Any] = {**cluster.options()}
            start = Start.parse("beginning")
            reading = Partitions(topics=("a",), partitions=(), start=start, until=round(10 * until), options=options)

            def write(record: Any) -> bytes:
                found.append(record.offset)
                return b""

            await Copy(reading=reading, count=None, exit_at_end=True, write=write, delimiter=b"").run(Output(debug=False))

    run_virtual_asyncio(main)
    assert found == [*range(end)]
    assert capfd.readouterr().err == f"% Reached the given end of topic a [0] at offset {end}\n"


def test_a_log_that_becomes_shorter_than_it_was_is_copied_up_to_its_new_end(capfd: pytest.CaptureFixture[str]) -> None:
    assert copied(lambda cluster: cluster.truncate(A0, 80)) == [*range(80)]
    assert "% a [0]: the log ends at 80 by now, not at 100; reading up to offset 80\n" in capfd.readouterr().err


def test_a_topic_that_is_deleted_under_a_copy_is_an_error() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'a'"):
        copied(lambda cluster: cluster.delete("a"))
