"""Ranges that are cut into parts, and which parts are written at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.export.parts import MOST, ExportPart, cut, ranges_of, rounds
from kafka_async.model import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def test_ranges_are_cut_from_their_first_offset_on() -> None:
    assert cut({B: (3, 3), A: (5, 26)}, 10) == [ExportPart(A, 5, 15), ExportPart(A, 15, 25), ExportPart(A, 25, 26)]


def test_names_say_where_a_part_begins_and_sort_in_order() -> None:
    names = [part.name(".parquet") for part in cut({A: (0, 12), C: (7, 8)}, 10)]

    assert names == [
        "orders-0-00000000000000000000.parquet",
        "orders-0-00000000000000000010.parquet",
        "orders-2-00000000000000000007.parquet",
    ]
    assert names == sorted(names)


def test_no_name_is_one_that_readers_of_folders_pass_over() -> None:
    names = [ExportPart(TopicPartition(topic, 0), 7, 8).name(".csv") for topic in ("_orders", ".events")]

    assert names == ["part-_orders-0-00000000000000000007.csv", "part-.events-0-00000000000000000007.csv"]


def test_a_few_large_parts_are_written_at_a_time_and_many_small_ones() -> None:
    large = cut({TopicPartition("t", number): (0, 20) for number in range(6)}, 10)
    small = cut({TopicPartition("t", number): (0, 1) for number in range(100)}, 1000)

    assert [len(each) for each in rounds(large, 10)] == [4, 4, 4]
    assert [len(each) for each in rounds(small, 1000)] == [MOST, 100 - MOST]


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted).map(tuple)),
    st.integers(1, 20),
    st.integers(1, 3),
)
def test_all_offsets_are_in_one_part_and_each_round_has_a_partition_once(
    ranges: dict[TopicPartition, tuple[int, int]], size: int, at_once: int
) -> None:
    parts = cut(ranges, size)
    chosen = rounds(parts, size, at_once)

    assert sorted(part for each in chosen for part in map(repr, each)) == sorted(map(repr, parts))
    assert all(len(ranges_of(each)) == len(each) for each in chosen)
    offsets = {(part.partition, offset) for part in parts for offset in range(part.start, part.end)}
    assert len(offsets) == sum(part.size for part in parts)
    assert offsets == {(partition, offset) for partition, (start, end) in ranges.items() for offset in range(start, end)}
