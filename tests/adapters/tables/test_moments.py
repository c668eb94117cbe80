"""What ``since`` and ``until`` take."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_async import TopicPartition
from kafka_async.adapters.tables.moments import moment, partition_of, span
from kafka_async.errors import KafkaConfigurationError

DAY = 86_400_000
BEGIN = 20_000 * DAY  # 2024-10-04


@pytest.mark.parametrize(
    ("given", "kind", "ms"),
    [
        ("beginning", "beginning", 0),
        ("Earliest", "beginning", 0),
        ("now", "end", 0),
        ("end", "end", 0),
        ("latest", "end", 0),
        ("2024-10-04", "time", BEGIN),
        ("2024-10-04T01:00", "time", BEGIN + 3_600_000),
        ("2024-10-04T01:00:00.5Z", "time", BEGIN + 3_600_500),
        ("2024-10-04 02:00+01:00", "time", BEGIN + 3_600_000),
        (date(2024, 10, 4), "time", BEGIN),
        (datetime(2024, 10, 4, 1), "time", BEGIN + 3_600_000),
        (datetime(2024, 10, 4, 1, tzinfo=timezone(timedelta(hours=1))), "time", BEGIN),
        (timedelta(hours=1), "ago", 3_600_000),
        (timedelta(hours=-1), "ago", 3_600_000),
        ("-1h", "ago", 3_600_000),
        ("-90m", "ago", 5_400_000),
        ("-1d12h", "ago", DAY + DAY // 2),
        ("- 0.5 h", "ago", 1_800_000),
    ],
)
def test_what_is_a_moment(given: Any, kind: str, ms: int) -> None:
    found = moment("since", given, ("a",))
    assert (found.kind, found.ms) == (kind, ms)


def test_what_is_relative_counts_from_now() -> None:
    found = moment("since", "-1h", ("a",)).at(BEGIN)
    assert (found.kind, found.ms) == ("time", BEGIN - 3_600_000)
    assert moment("since", "beginning", ("a",)).at(BEGIN).kind == "beginning"
    assert moment("since", "-1h", ("a",)).at(5).ms == 0


@pytest.mark.parametrize("given", [1_700_000_000, 5, 1.5, True])
def test_a_bare_number_is_refused_and_both_meanings_are_named(given: Any) -> None:
    with pytest.raises(
        TypeError, match=r"since=.*: a number could be an offset or a time; write \{partition: offset\} for offsets"
    ):
        moment("since", given, ("a",))


@pytest.mark.parametrize("given", ["20241104", "1700000000", "5", "-5", "", "yesterday", "1h", "-1x", "committed:", "1969-01-01"])
def test_texts_that_are_no_moment_are_refused(given: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"^until="):
        moment("until", given, ("a",))


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="until=None: expected 'beginning'"):
        moment("until", None, ("a",))


def test_a_committed_group() -> None:
    found = moment("since", "committed:billing", ("a",))
    assert (found.kind, found.group) == ("committed", "billing")


def test_offsets_by_partition() -> None:
    assert moment("since", {0: 5, TopicPartition("a", 1): 7}, ("a",)).offsets == {
        TopicPartition("a", 0): 5,
        TopicPartition("a", 1): 7,
    }
    assert moment("since", {("b", 0): 5}, ("a", "b")).offsets == {TopicPartition("b", 0): 5}


@pytest.mark.parametrize("given", [{0: -1}, {0: True}, {0: "5"}, {0: 1.5}, {"0": 1}, {-1: 1}, {("b", 0): 1}, {None: 1}])
def test_what_is_no_offset_of_a_partition_is_refused(given: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"^since: "):
        moment("since", given, ("a",))


def test_a_number_says_no_partition_where_there_are_several_topics() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"with several topics, expected TopicPartition\(topic, number\)"):
        partition_of("partitions", 0, ("a", "b"))


@pytest.mark.parametrize(("given", "ms"), [("10m", 600_000), ("0s", 0), (timedelta(seconds=1.5), 1500), ("1h30m", 5_400_000)])
def test_a_span(given: Any, ms: int) -> None:
    assert span("late", given) == ms


@pytest.mark.parametrize("given", ["-10m", "soon", "", timedelta(seconds=-1)])
def test_what_is_no_span_is_refused(given: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"^late="):
        span("late", given)


def test_a_span_is_no_number() -> None:
    with pytest.raises(TypeError, match="late=600"):
        span("late", 600)


def test_the_zone_of_a_time_counts() -> None:
    local = datetime(2024, 10, 4, 2, tzinfo=timezone(timedelta(hours=2)))
    assert moment("since", local, ("a",)) == moment("since", local.astimezone(UTC), ("a",))
