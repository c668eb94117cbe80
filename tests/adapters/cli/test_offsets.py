from typing import Any

import pytest

pytest.importorskip("typer")

import typer

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.admin import DescribedMember, Group
from kafka_async.adapters.cli.done_maps import Committed
from kafka_async.adapters.cli.groups import refusal
from kafka_async.adapters.cli.offsets import Move, Target, before, milliseconds, record_place, topic_choice
from kafka_async.application.processing.encoding import encode
from kafka_async.errors import NoOffsetForPartitionError
from kafka_async.model import Node
from kafka_async.testing.simulation import FakeCluster
from tests.application.support import consumer_on
from tests.virtual import run_virtual

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NOTHING: dict[str, Any] = {
    "earliest": False,
    "latest": False,
    "offset": None,
    "moment": None,
    "ago": None,
    "shift": None,
    "now": 90_000_000,
}


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"earliest": True}, Target(kind="earliest")),
        ({"latest": True}, Target(kind="latest")),
        ({"offset": 0}, Target(kind="offset", number=0)),
        ({"shift": -3}, Target(kind="shift", number=-3)),
        ({"moment": "1970-01-01T00:00:01"}, Target(kind="time", number=1000)),
        ({"ago": "P1D"}, Target(kind="time", number=3_600_000)),
        ({"ago": "PT0.5S"}, Target(kind="time", number=89_999_500)),
        ({"ago": "P400D"}, Target(kind="time", number=0)),
    ],
)
def test_each_way_to_say_where_to_move_a_group_is_understood(given: dict[str, Any], target: Target) -> None:
    assert Target.parse(**(NOTHING | given)) == target


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "expected one of --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by$"),
        ({"earliest": True, "shift": 0}, "found --to-earliest and --shift-by"),
    ],
)
def test_no_target_or_two_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(typer.BadParameter, match=complaint):
        Target.parse(**(NOTHING | given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T02:00:00+01:00", 3_600_000),
        ("2026-01-31T09:30:00.123", 1_769_851_800_123),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1969-12-31T23:59:59", "1700000000"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected a time"):
        milliseconds(text)


@pytest.mark.parametrize("text", ["", "1d", "P", "PT", "-P1D", "P1M"])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected a duration as PnDTnHnMnS"):
        before(90_000_000, text)


@pytest.mark.parametrize(("text", "meant"), [("1h", "PT1H"), ("-90 s", "PT90S"), ("7d", "P7D")])
def test_a_duration_as_scan_takes_it_is_refused_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"did you mean '{meant}'"):
        before(90_000_000, text)


def test_a_move_says_what_is_handled_again() -> None:
    kept = Committed.read(OffsetAndMetadata(3, encode([1, 4], None)), None)

    assert Move.within(A0, 3, 3, 0, 9, kept).note == "4 done offsets after it will be handled again"
    assert Move.within(A0, 3, 90, 0, 9, kept).note == "90 is outside of 0..9"
    assert Move.within(A0, 3, -1, 0, 9, kept).note == "-1 is outside of 0..9; 4 done offsets after it will be handled again"


def test_a_record_is_named_by_topic_partition_and_offset() -> None:
    assert record_place("orders:2:17") == (TopicPartition("orders", 2), 17)


@pytest.mark.parametrize("text", ["", "orders", "orders:1", ":1:2", "orders:x:1", "orders:1:", "orders:1:-2", "orders:1:2:3"])
def test_a_name_of_a_record_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected TOPIC:PARTITION:OFFSET"):
        record_place(text)


def test_a_topic_comes_with_all_or_some_partitions() -> None:
    assert topic_choice("orders") == ("orders", ())
    assert topic_choice("orders:2,0,2") == ("orders", (2, 0))


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:x", "orders:1,,2", "orders:-1"])
def test_a_topic_choice_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="orders:0,1"):
        topic_choice(text)


@pytest.mark.parametrize(
    ("wanted", "new", "note"),
    [(7, 7, ""), (5, 5, ""), (10, 10, ""), (4, 5, "4 is outside of 5..10"), (11, 10, "11 is outside of 5..10")],
)
def test_a_move_stays_within_the_log(wanted: int, new: int, note: str) -> None:
    assert Move.within(A0, None, wanted, 5, 10) == Move(partition=A0, current=None, new=new, note=note)


def find(target: Target, current: dict[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    cluster = FakeCluster()
    cluster.create_topic("a", 2)
    cluster.fill(A0, 10)

    async def main() -> dict[TopicPartition, int]:
        async with consumer_on(cluster) as consumer:
            return await target.find(consumer, current, {A0: 10, A1: 0})

    return run_virtual(main)


def test_targets_are_found_in_each_partition() -> None:
    current: dict[TopicPartition, int | None] = {A0: 4, A1: 3}

    assert find(Target(kind="earliest"), current) == {A0: 0, A1: 0}
    assert find(Target(kind="latest"), current) == {A0: 10, A1: 0}
    assert find(Target(kind="offset", number=99), current) == {A0: 99, A1: 99}
    assert find(Target(kind="shift", number=-5), current) == {A0: -1, A1: -2}
    assert find(Target(kind="time", number=2**50), current) == {A0: 10, A1: 0}


def test_a_shift_needs_something_committed() -> None:
    with pytest.raises(NoOffsetForPartitionError, match="no offset is committed for a:1") as raised:
        find(Target(kind="shift", number=1), {A0: 4, A1: None})
    assert raised.value.partitions == (A1,)


def test_a_refusal_names_members_and_what_to_do() -> None:
    members = tuple(
        DescribedMember(member_id=f"m-{number}", instance_id=None, client_id="web", host="/10.0.0.1", epoch=None, partitions=())
        for number in range(7)
    )
    group = Group(
        group_id="g", kind="classic", state="Stable", assignor="range", epoch=None, coordinator=Node(0, "h", 1), members=members
    )

    text = refusal(group)

    assert text.startswith("group 'g' is in use by 7 members; stop them first: web at 10.0.0.1 (m-0), ")
    assert text.endswith("(m-4) and 2 more")
