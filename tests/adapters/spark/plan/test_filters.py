"""What filters rule out."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kafka_async.adapters.spark.plan.filters import Bounds
from kafka_async.adapters.spark.plan.planner import OffsetRange

from ..support import A0, A1, B0

OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)
WHOLE = OffsetRange(A0, 10, 20)


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([EqualTo(OFFSET, 12)], 12, 13),
        ([GreaterThan(OFFSET, 12)], 13, 20),
        ([GreaterThanOrEqual(OFFSET, 12)], 12, 20),
        ([LessThan(OFFSET, 12)], 10, 12),
        ([LessThanOrEqual(OFFSET, 12)], 10, 13),
        ([GreaterThan(OFFSET, 12), LessThan(OFFSET, 15), LessThan(OFFSET, 18)], 13, 15),
        ([GreaterThan(OFFSET, 2), LessThan(OFFSET, 95)], 10, 20),
        ([Not(EqualTo(OFFSET, 12)), IsNotNull(OFFSET), In(OFFSET, (1, 2))], 10, 20),
        ([EqualTo(("value",), b"x"), EqualTo(("headers", "key"), "x"), EqualTo(OFFSET, None)], 10, 20),
    ],
)
def test_filters_on_offsets_cut_the_range(filters: list[Filter], start: int, end: int) -> None:
    assert Bounds.of(filters).cut(WHOLE) == OffsetRange(A0, start, end)


def test_filters_that_contradict_each_other_leave_nothing() -> None:
    assert Bounds.of([LessThan(OFFSET, 3)]).cut(WHOLE).size <= 0
    assert Bounds.of([LessThan(OFFSET, -5)]).cut(WHOLE).size <= 0
    assert not Bounds.of([EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")]).wants(A0)


def test_partitions_and_topics_are_chosen() -> None:
    assert [Bounds.of([In(TOPIC, ("a", "c"))]).wants(each) for each in (A0, A1, B0)] == [True, True, False]
    assert [Bounds.of([EqualTo(TOPIC, "a"), In(PARTITION, (1, 5))]).wants(each) for each in (A0, A1, B0)] == [False, True, False]
    assert [Bounds.of([EqualTo(PARTITION, 0), StringStartsWith(TOPIC, "b")]).wants(each) for each in (A0, A1, B0)] == [
        True,
        False,
        True,
    ]


def test_a_time_bounds_from_below_and_never_from_above() -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, 123_999, tzinfo=UTC)
    milliseconds = 1_767_268_800_123
    for bound in (GreaterThan(TIME, moment), GreaterThanOrEqual(TIME, moment), EqualTo(TIME, moment)):
        assert Bounds.of([bound]).since == milliseconds
    assert Bounds.of([LessThan(TIME, moment)]) == Bounds()
    assert Bounds.of([GreaterThan(TIME, None)]) == Bounds()
