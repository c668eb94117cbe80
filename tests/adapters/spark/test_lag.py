"""How far a query is behind, from Spark's reports."""

import json
from typing import Any

import pytest

from kafka_async.adapters.spark.lag import Lag, lag
from kafka_async.model import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def report(*sources: Any, rate: float = 10.0) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources], "processedRowsPerSecond": rate}


def test_lag_is_reported_by_partition_and_in_seconds_at_the_speed_of_the_batch() -> None:
    found = lag(report(({"t": {"0": 5, "1": 7}}, {"t": {"0": 15, "1": 7}})))

    assert found == Lag({A: 10, B: 0}, 10.0)
    assert (found.records, found.seconds) == (10, 1.0)


def test_a_partition_that_is_new_is_behind_from_its_beginning() -> None:
    assert lag(report(({"t": {"0": 5}}, {"t": {"0": 5, "1": 7}}))) == Lag({A: 0, B: 7}, 10.0)


def test_what_is_noted_beside_the_offsets_of_a_first_batch_is_passed_over() -> None:
    found = lag(report(({"__initial__/t/0=1": {}, "t": {"0": 5}}, {"t": {"0": 6}})))

    assert found is not None
    assert found.partitions == {A: 1}


def test_several_sources_count_together_and_others_do_not() -> None:
    mine = ({"t": {"0": 1}}, {"t": {"0": 2}}), (json.dumps({"t": {"1": 1}}), json.dumps({"t": {"1": 4}}))

    assert lag(report(*mine, ({"logOffset": 3}, {"logOffset": 4}), ("7", "8"))) == Lag({A: 1, B: 3}, 10.0)


def test_several_sources_with_a_topic_of_the_same_name_count_together() -> None:
    joined = ({"t": {"0": 10}}, {"t": {"0": 110}}), ({"t": {"0": 5, "1": 1}}, {"t": {"0": 5, "1": 4}})

    assert lag(report(*joined)) == Lag({A: 100, B: 3}, 10.0)


@pytest.mark.parametrize("told", [None, {}, report(({"t": {"0": 1}}, None)), report((None, {"t": {"0": 1}})), report(("3", "4"))])
def test_a_report_that_does_not_say_is_no_lag_of_nothing(told: Any) -> None:
    assert lag(told) is None


@pytest.mark.parametrize(("behind", "rate", "seconds"), [(0, 0.0, 0.0), (5, 0.0, None), (5, 2.0, 2.5)])
def test_a_query_that_processed_nothing_has_no_speed(behind: int, rate: float, seconds: float | None) -> None:
    assert Lag({A: behind}, rate).seconds == seconds


def test_a_lag_is_described_as_people_read_it() -> None:
    assert Lag({A: 10, B: 5, TopicPartition("a", 0): 1}, 10.0).description == (
        "16 records behind (a: 1, t: 15), 1.6 s at the speed of the last batch"
    )
    assert Lag({A: 10}, 0.0).description == "10 records behind (t: 10), no speed is known"
    assert Lag({A: 0}, 10.0).description == "nothing behind (t: 0)"
