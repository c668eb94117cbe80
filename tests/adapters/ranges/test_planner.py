"""Ranges into tasks: nothing is left out, nothing comes twice."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import TopicPartition
from kafka_async.adapters.ranges.planner import PACK_RECORDS, OffsetRange, Task, plan
from tests.adapters.spark.support import A0, A1, B0

LARGE = 10 * PACK_RECORDS


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", number), 5, 5 + size) for number, size in enumerate(sizes)]


def sizes(tasks: Iterable[Task]) -> list[int]:
    return [sum(piece.size for piece in task) for task in tasks]


def test_a_large_range_is_a_task() -> None:
    assert plan([OffsetRange(B0, 0, LARGE), OffsetRange(A1, 7, LARGE), OffsetRange(A0, 0, LARGE)]) == [
        (OffsetRange(A0, 0, LARGE),),
        (OffsetRange(A1, 7, LARGE),),
        (OffsetRange(B0, 0, LARGE),),
    ]


def test_empty_ranges_make_no_task() -> None:
    assert plan(ranges(0, 0)) == []
    assert plan([OffsetRange(A0, 9, 3)]) == []


@pytest.mark.parametrize(
    ("count", "cores", "expected"), [(3, 4, [10, 10, 10]), (3, 3, [10, 10, 10]), (3, 2, [20, 10]), (50, 5, [100] * 5), (1, 8, [10])]
)
def test_small_ranges_share_a_task_beyond_the_number_of_cores_only(count: int, cores: int, expected: list[int]) -> None:
    assert sizes(plan(ranges(*[10] * count), cores=cores)) == expected


def test_ranges_share_no_task_if_that_is_asked_for() -> None:
    assert sizes(plan(ranges(*[10] * 50), pack=0)) == [10] * 50


def test_small_ranges_share_a_task() -> None:
    assert sizes(plan(ranges(*[10] * 50))) == [500]
    assert sizes(plan(ranges(*[PACK_RECORDS // 2] * 5))) == [PACK_RECORDS, PACK_RECORDS, PACK_RECORDS // 2]


def test_small_ranges_stay_apart_if_more_tasks_are_wanted() -> None:
    assert len(plan(ranges(*[10] * 50), min_partitions=20)) == 20
    assert len(plan(ranges(10, 10, 10), min_partitions=3)) == 3


def test_there_are_never_fewer_tasks_than_wanted() -> None:
    assert sizes(plan(ranges(LARGE, LARGE, LARGE), min_partitions=7)) == [3333, 3333, 3334, 5000, 5000, 5000, 5000]
    assert len(plan(ranges(2, 1), min_partitions=10)) == 3


def test_more_tasks_than_there_are_offsets_cost_no_time() -> None:
    assert sizes(plan(ranges(3, 1, 2), min_partitions=2**63 - 1)) == [1] * 6


def test_large_ranges_are_divided_in_proportion() -> None:
    tasks = plan(ranges(30_000, 10_000, 10), min_partitions=5)
    assert [(task[0].partition.partition, task[0].size) for task in tasks] == [
        (0, 10_000),
        (0, 10_000),
        (0, 10_000),
        (1, 10_000),
        (2, 10),
    ]


def test_no_task_has_more_offsets_than_allowed() -> None:
    assert sizes(plan(ranges(25, 10), max_records=10)) == [8, 8, 9, 10]
    assert max(sizes(plan(ranges(5000, 3), max_records=300, min_partitions=3))) <= 300


@pytest.mark.parametrize("wanted", [1, 2, 7, 100])
def test_there_are_at_least_as_many_tasks_as_one_large_range_can_give(wanted: int) -> None:
    assert len(plan(ranges(LARGE), min_partitions=wanted)) == wanted


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5000)), max_size=12),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 3000),
)
def test_every_offset_is_read_once(parts: list[tuple[int, int]], wanted: int | None, most: int | None) -> None:
    pieces = [OffsetRange(TopicPartition("t", number), start, start + size) for number, (start, size) in enumerate(parts)]

    tasks = plan(pieces, min_partitions=wanted, max_records=most)

    read = sorted((piece.partition, piece.start, piece.end) for task in tasks for piece in task)
    joined: dict[TopicPartition, tuple[int, int]] = {}
    for partition, start, end in read:
        begin = joined[partition][0] if partition in joined else start
        assert partition not in joined or joined[partition][1] == start
        joined[partition] = (begin, end)
    assert joined == {piece.partition: (piece.start, piece.end) for piece in pieces if piece.size}
    assert all(len({piece.partition for piece in task}) == len(task) for task in tasks)
    assert most is None or all(size <= most for size in sizes(tasks))
    assert wanted is None or len(tasks) >= min(wanted, sum(piece.size for piece in pieces))
