"""What callers may pass, and how they are told that they may not."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest

from kafka_async import ConsumerRecord, KafkaConsumer, OffsetAndMetadata, SubscriptionPattern, TopicPartition
from kafka_async.application.arguments import (
    commit_offsets,
    offset_number,
    offset_ranges,
    one_partition,
    partition_set,
    seconds,
    seek_target,
    subscribed_pattern,
    subscribed_regex,
    subscribed_topics,
    text,
    timestamps,
    topic_names,
)

TP = TopicPartition("t", 0)


def test_any_equal_tuple_is_a_partition() -> None:
    class Other(NamedTuple):
        topic: str
        partition: int

    (found,) = partition_set([Other("t", 0), TP])  # type: ignore[list-item] # aiokafka's partition
    assert type(found) is TopicPartition
    assert one_partition(Other("t", 0)) == "t-0"
    assert commit_offsets({Other("t", 0): 5}) == {TP: OffsetAndMetadata(5)}  # type: ignore[dict-item] # aiokafka's partition


def test_partitions_keep_their_order_and_lose_repetitions() -> None:
    other = TopicPartition("t", 1)
    assert partition_set([other, TP, other]) == (other, TP)
    assert partition_set(iter(())) == ()


@pytest.mark.parametrize("bad", ["t", TP, ("t", 0), None, 5, print, ["t-0"], [None], [("t", "0")], [["t", 0]], [("t", True)]])
def test_what_is_no_collection_of_partitions_is_named(bad: Any) -> None:
    with pytest.raises(TypeError, match="TopicPartition"):
        partition_set(bad)


@pytest.mark.parametrize(
    "bad",
    [
        TopicPartition("t", -1),
        TopicPartition("t", -(2**31)),
        TopicPartition("t", 2**31),
        TopicPartition("t", True),
        TopicPartition("t", [0]),  # type: ignore[arg-type]  # what is tested
        TopicPartition("a b", 0),
        TopicPartition("", 0),
    ],
)
def test_impossible_partitions_are_named(bad: TopicPartition) -> None:
    with pytest.raises(ValueError, match="expected"):
        partition_set([bad])


def test_a_partition_is_named_by_topic_and_number_and_its_name_is_none() -> None:
    assert one_partition(TP) == "t-0"
    with pytest.raises(TypeError, match="t-0"):
        one_partition("t-0")


@pytest.mark.parametrize("bad", [[""], ["a/b"], ["x" * 250], [".."], ["."], [5]])
def test_impossible_topics_are_named(bad: Any) -> None:
    with pytest.raises(ValueError, match="expected 1 to 249"):
        subscribed_topics(bad)


def test_a_list_of_topics_in_the_place_of_one_is_named() -> None:
    with pytest.raises(TypeError, match=r"topic \['a', 'b'\]: expected a name.*KafkaConsumer\(\*topics\)"):
        KafkaConsumer(["a", "b"])  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [None, 5, print])
def test_what_is_no_collection_of_topics_is_named(bad: Any) -> None:
    with pytest.raises(TypeError, match="expected a collection of topic names"):
        subscribed_topics(bad)


def test_one_string_is_no_collection_of_topics() -> None:
    with pytest.raises(TypeError, match="'orders'"):
        subscribed_topics("orders")
    assert subscribed_topics(["orders", "orders"]) == {"orders"}


@pytest.mark.parametrize("pattern", ["or.*", re.compile("or.*")])
def test_patterns_match_from_the_start_as_re_match_does(pattern: Any) -> None:
    matches = subscribed_pattern(pattern)
    assert (matches("orders"), matches("my-orders")) == (True, False)


def test_bad_patterns_are_named() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        subscribed_pattern("(")
    with pytest.raises(TypeError, match="5"):
        subscribed_pattern(5)


def test_names_to_ask_about_need_not_be_possible_but_must_be_names() -> None:
    assert topic_names(["a b", "a b"]) == {"a b"}
    with pytest.raises(TypeError, match="5: expected the name"):
        topic_names(["a", 5])  # type: ignore[list-item] # what is tested


@pytest.mark.parametrize("bad", [5, None, "", "\udcff", "x" * 2**15])
def test_what_no_broker_could_evaluate_is_no_pattern(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"pattern=.*expected a string of 1 to 32767 bytes"):
        subscribed_regex(SubscriptionPattern(bad))
    assert subscribed_regex(SubscriptionPattern("a.*")) == "a.*"


def test_a_text_may_be_empty() -> None:
    assert text("", "reason") == ""
    with pytest.raises(ValueError, match="reason=5"):
        text(5, "reason")


def test_timeouts_are_numbers_and_may_have_passed() -> None:
    assert (seconds(1500), seconds(0.5), seconds(-1), seconds(float("inf"))) == (1.5, 0.0005, -0.001, float("inf"))


@pytest.mark.parametrize("bad", ["5", None, True, float("nan"), [1]])
def test_what_is_no_timeout_is_named(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"timeout_ms=.*expected a number of milliseconds"):
        seconds(bad)


@pytest.mark.parametrize("bad", [-1, 2**31, 1.5, True, "0"])
def test_leader_epochs_are_integers_from_0_on_or_none(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"leader_epoch=.*None if it is not known"):
        seek_target(OffsetAndMetadata(1, "", bad))
    with pytest.raises(ValueError, match=r"t-0: leader_epoch="):
        commit_offsets({TP: OffsetAndMetadata(1, "", bad)})


@pytest.mark.parametrize("bad", ["\udcff", "x" * 40_000])
def test_metadata_that_cannot_be_sent_is_named(bad: str) -> None:
    with pytest.raises(ValueError, match="t-0: metadata="):
        commit_offsets({TP: (1, bad)})


@pytest.mark.parametrize("bad", [5, None, b"\x00\x02"])
def test_metadata_of_another_type_than_a_string_is_named(bad: Any) -> None:
    """In a pair and in an ``OffsetAndMetadata`` alike; the type of the error is that of aiokafka."""
    for value in ((1, bad), OffsetAndMetadata(1, bad)):
        with pytest.raises(TypeError, match=r"t-0: metadata=.*: expected a string"):
            commit_offsets({TP: value})


def test_timestamps_come_by_partition() -> None:
    with pytest.raises(TypeError, match="expected a mapping"):
        timestamps([TP])  # type: ignore[arg-type] # what is tested


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(2026, 11, 25, 12, tzinfo=timezone(timedelta(hours=2))), 1_795_600_800_000),
        (datetime(2026, 11, 25, 10, 0, 0, 1, tzinfo=UTC), 1_795_600_800_001),  # up: records at or after it are wanted
        (datetime(2026, 11, 25, 10, 0, 0, 1000, tzinfo=UTC), 1_795_600_800_001),
    ],
)
def test_a_time_may_be_a_datetime(when: datetime, expected: int) -> None:
    assert timestamps({TP: when}) == {TP: expected}


def test_a_datetime_without_a_time_zone_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"expected a datetime with a time zone, such as when.astimezone\(\) for local time"):
        timestamps({TP: datetime(2026, 11, 25)})  # what is tested
    with pytest.raises(ValueError, match="expected an integer of at least 0"):
        timestamps({TP: datetime(1969, 12, 31, tzinfo=UTC)})


@pytest.mark.parametrize("bad", [-1, 2**63, 1.5, True, "0", None])
def test_offsets_are_integers_from_0_on(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"offset=.*expected an integer of at least 0"):
        offset_number(bad)
    with pytest.raises(ValueError, match="offset"):
        seek_target(bad)
    with pytest.raises(ValueError, match="timestamp"):
        timestamps({TP: bad})


def test_a_seek_takes_a_number_or_a_committed_offset() -> None:
    assert seek_target(7) == OffsetAndMetadata(7)
    assert seek_target(OffsetAndMetadata(7, "x", 3)) == OffsetAndMetadata(7, "x", 3)
    with pytest.raises(ValueError, match="offset"):
        seek_target(OffsetAndMetadata(-7))


@pytest.mark.parametrize("bad", [(1, 0), (-1, 5), 5, None, (1,), ("0", "1")])
def test_impossible_ranges_are_named(bad: Any) -> None:
    with pytest.raises(ValueError, match="of t-0: expected two offsets"):
        offset_ranges({TP: bad})


def test_ranges_may_be_empty() -> None:
    assert offset_ranges({TP: (7, 7)}) == {TP: (7, 7)}


LARGE: ConsumerRecord[Any, Any] = ConsumerRecord("t", 0, 7, 0, 0, None, {"text": "x" * 1_000_000}, (), None, -1, 1_000_000, None)
"""Records are tuples, and are easily given in place of what they hold."""


@pytest.mark.parametrize(
    "check",
    [
        lambda: one_partition(LARGE),
        lambda: partition_set([LARGE]),  # type: ignore[list-item]  # what is tested
        lambda: seek_target(LARGE),
        lambda: commit_offsets({TP: [LARGE, LARGE]}),
        lambda: commit_offsets({TP: LARGE}),
        lambda: commit_offsets([LARGE]),  # type: ignore[arg-type]  # what is tested
        lambda: timestamps({TP: LARGE}),  # type: ignore[dict-item]  # what is tested
        lambda: offset_ranges({TP: LARGE}),  # type: ignore[dict-item]  # what is tested
        lambda: subscribed_topics([LARGE]),  # type: ignore[list-item]  # what is tested
    ],
)
def test_records_in_the_place_of_something_else_are_named_in_a_few_words(check: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected") as caught:
        check()
    assert len(str(caught.value)) < 500
