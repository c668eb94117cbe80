"""How many bytes a micro-batch takes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import TopicPartition
from kafka_async.adapters.ranges.sizes import SAMPLE
from kafka_async.adapters.spark.plan.volume import UNKNOWN, Volume, share_bytes
from kafka_async.errors import KafkaTimeoutError
from kafka_async.records import Columns

from ..support import A0, A1, Cluster, lookup, options

START = {A0: 0, A1: 0}


def cluster() -> Cluster:
    return Cluster(logs={A0: (0, 10_000), A1: (0, 1000)}, sizes={A0: lambda _: 100, A1: lambda _: 1000})


def volume(there: Cluster, most: int) -> Volume:
    return Volume(lookup(there, options()), most)


def test_each_partition_gives_the_same_part_of_what_waits() -> None:
    assert volume(cluster(), 200_000).limited(START, {A0: 10_000, A1: 1000}) == {A0: 1000, A1: 100}


def test_all_is_taken_if_it_fits() -> None:
    assert volume(cluster(), 2_000_000).limited(START, {A0: 10_000, A1: 1000}) == {A0: 10_000, A1: 1000}


def test_one_offset_at_least_is_taken_of_each() -> None:
    assert volume(cluster(), 1).limited(START, {A0: 10_000, A1: 1000}) == {A0: 1, A1: 1}


def test_what_is_already_read_stays_as_it_is() -> None:
    assert volume(cluster(), 1000).limited({A0: 10_000, A1: 500}, {A0: 10_000, A1: 1000}) == {A0: 10_000, A1: 501}


def test_records_that_grow_are_noticed_half_way() -> None:
    def size(offset: int) -> int:
        return 100 if offset < 500 else 1000

    there = Cluster(logs={A0: (0, 10_000)}, sizes={A0: size})
    ends = volume(there, 1_000_000).limited({A0: 0}, {A0: 10_000})
    assert 500_000 < sum(map(size, range(ends[A0]))) < 2_000_000


def test_nothing_is_read_if_little_waits() -> None:
    there = cluster()
    limit = volume(there, 1_000_000)
    limit.limited({A0: 9000, A1: 900}, {A0: 10_000, A1: 1000})
    there.asked.clear()
    assert limit.limited({A0: 9990, A1: 990}, {A0: 10_000, A1: 1000}) == {A0: 10_000, A1: 1000}
    assert there.asked == []


def test_records_that_grow_while_little_waits_are_noticed() -> None:
    there = Cluster(logs={A0: (0, 100_000)}, sizes={A0: lambda offset: 100 if offset < 1000 else 10_000})
    limit, start = volume(there, 100_000), 0
    taken: dict[int, int] = {}
    while start < 3000:
        taken[start] = limit.limited({A0: start}, {A0: start + 100})[A0] - start
        start += taken[start]
    assert all(count == 100 for at, count in taken.items() if at < 1000)
    assert all(count == 10 for at, count in taken.items() if at >= 2000)


def test_a_size_is_believed_for_as_many_bytes_as_a_batch_may_have() -> None:
    there = Cluster(logs={A0: (0, 100_000)}, sizes={A0: lambda _: 100})
    limit = volume(there, 100_000)
    for start in range(0, 10_000, 100):
        assert limit.limited({A0: start}, {A0: start + 100}) == {A0: start + 100}
    assert 8 <= there.asked.count("records") // 2 <= 12, "each time at the beginning and half way"


def test_the_size_in_a_topic_that_was_created_again_is_not_that_of_the_former_one() -> None:
    there = Cluster(logs={A0: (0, 100_000)}, sizes={A0: lambda _: 100})
    limit = volume(there, 100_000)
    assert limit.limited({A0: 50_000}, {A0: 50_100}) == {A0: 50_100}
    there.sizes = {A0: lambda _: 10_000}
    assert limit.limited({A0: 0}, {A0: 100}) == {A0: 10}


@pytest.mark.parametrize(
    ("log", "ends"),
    [((5000, 10_000), {A0: 5033, A1: 66}), ((10_000, 20_000), {A0: 10_000, A1: 100})],
    ids=["the front", "all of it"],
)
def test_offsets_that_are_gone_take_no_bytes_and_hide_no_size(log: tuple[int, int], ends: dict[TopicPartition, int]) -> None:
    there = Cluster(logs={A0: log, A1: (0, 10_000)}, sizes={A0: lambda _: 100_000, A1: lambda _: 100_000})
    assert volume(there, 100 * 100_000).limited(START, {A0: 10_000, A1: 10_000}) == ends


def test_a_few_records_of_each_partition_are_read() -> None:
    read: list[int] = []
    there = Cluster(logs={A0: (0, 10_000)}, sizes={A0: lambda offset: read.append(offset) or 100})  # type: ignore[func-returns-value]
    volume(there, 500_000).limited({A0: 0}, {A0: 10_000})
    assert read == [*range(SAMPLE), *range(2500, 2500 + SAMPLE)]


def test_large_records_are_not_read_for_long_to_learn_that() -> None:
    read: list[int] = []
    there = Cluster(logs={A0: (0, 1000), A1: (0, 1000)}, sizes={A0: lambda _: 1 << 20, A1: lambda offset: read.append(offset) or 1})  # type: ignore[func-returns-value]
    assert volume(there, 100 << 20).limited(START, {A0: 1000, A1: 1000}) == {A0: 50, A1: 50}
    assert read == []


def test_a_gap_takes_no_bytes_and_says_nothing_of_the_records_behind_it() -> None:
    there = Cluster(logs={A0: (0, 10_000)}, sizes={A0: lambda offset: None if offset < 2000 else 100})
    assert volume(there, 100_000).limited({A0: 0}, {A0: 10_000}) == {A0: 3000}


def test_a_gap_at_the_end_of_a_batch_leaves_it_as_it_is() -> None:
    there = Cluster(logs={A0: (0, 10_000)}, sizes={A0: lambda offset: 100 if offset < 300 else None})
    assert volume(there, 100_000).limited({A0: 0}, {A0: 10_000}) == {A0: 1000}


def test_a_partition_without_a_record_takes_nothing_from_the_others_and_is_looked_at_again() -> None:
    there = Cluster(logs={A0: (0, 10_000), A1: (0, 10_000)}, sizes={A0: lambda o: 100 if o >= 1000 else None, A1: lambda _: 100})
    limit = volume(there, 100_000)
    assert limit.limited(START, {A0: 1000, A1: 10_000}) == {A0: 1000, A1: 1000}
    assert limit.limited({A0: 1000, A1: 1000}, {A0: 10_000, A1: 1000}) == {A0: 2000, A1: 1000}


def test_records_without_key_and_value_are_looked_at_again() -> None:
    there = Cluster(logs={A0: (0, 101_000)}, sizes={A0: lambda offset: 0 if offset < 1000 else 100})
    limit = volume(there, 100_000)
    assert limit.limited({A0: 0}, {A0: 1000}) == {A0: 1000}
    assert limit.limited({A0: 1000}, {A0: 101_000}) == {A0: 2000}


@pytest.mark.parametrize(
    ("size", "most"),
    [(lambda offset: None if offset < 100 else 100, 10_000), (lambda _: 1 << 20, 1000)],
    ids=["behind a gap", "large records"],
)
def test_behind_a_sample_nothing_is_fetched(size: Callable[[int], int | None], most: int) -> None:
    there = Cluster(logs={A0: (0, most), A1: (0, most)}, sizes={A0: size, A1: size})
    assert lookup(there, options()).samples({A0: (0, most), A1: (0, most)}).keys() >= {A0}
    assert there.reading == []


class Silent(Cluster):
    """Sends no records."""

    def next_columns(self, *wanted: Any, **how: Any) -> Columns | None:
        raise KafkaTimeoutError("late")


def test_a_size_that_is_not_known_is_asked_for_once_and_assumed() -> None:
    there = Silent(logs={A0: (0, 10_000), A1: (0, 1000)})
    assert volume(there, 110 * int(UNKNOWN)).limited(START, {A0: 10_000, A1: 1000}) == {A0: 100, A1: 10}
    assert there.asked.count("records") == 1


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 101_000), st.floats(0, 10**6))
def test_a_batch_ends_after_its_start_and_not_beyond_what_is_there(start: int, count: int, most: int, size: float) -> None:
    (end,) = share_bytes({A0: (start, start + count)}, {A0: size}, most).values()
    assert start < end <= start + count
