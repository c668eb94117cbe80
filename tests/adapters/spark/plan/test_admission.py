"""How much a micro-batch takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import TopicPartition
from kafka_async.adapters.spark.plan.admission import Admission, share

from ..support import A0, A1, B0

START = {A0: 100, A1: 0}
END = {A0: 190, A1: 10}


def test_without_limits_a_batch_takes_all() -> None:
    assert Admission().end(START, END, None, wait=True, now=0.0) == END


def test_each_partition_gives_in_proportion_and_the_small_ones_at_least_one() -> None:
    assert share(START, END, 50) == {A0: 145, A1: 5}
    assert share({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10) == {A0: 9, A1: 1}


def test_what_rounding_leaves_over_is_handed_out() -> None:
    latest = {TopicPartition("t", number): 666_667 if number < 2 else 666_666 for number in range(3)}
    ends = share(dict.fromkeys(latest, 0), latest, 1_000_000)
    assert sum(ends.values()) == 1_000_000
    rest = share(ends, latest, 1_000_000)
    assert rest == latest, "two batches take two million"


def test_a_new_partition_gives_from_its_start() -> None:
    assert share({A0: 0}, {A0: 100, B0: 100}, 100) == {A0: 50, B0: 50}


def test_a_partition_that_went_back_takes_nothing_from_the_others() -> None:
    assert share({A0: 100, A1: 0}, {A0: 5, A1: 100}, 10) == {A0: 5, A1: 10}


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=8), st.integers(1, 2**41))
def test_batches_reach_the_end_and_never_pass_it(parts: list[tuple[int, int]], most: int) -> None:
    starts = {TopicPartition("t", number): start for number, (start, _) in enumerate(parts)}
    latest = {TopicPartition("t", number): start + size for number, (start, size) in enumerate(parts)}

    ends = share(starts, latest, most)

    taken = sum(ends.values()) - sum(starts.values())
    assert all(starts[partition] <= ends[partition] <= latest[partition] for partition in latest)
    assert min(most, sum(size for _, size in parts)) <= taken <= most + len(parts)
    assert taken > 0 or starts == latest


@pytest.mark.parametrize(("now", "waits"), [(0.0, False), (899.0, True), (900.0, False)])
def test_a_batch_that_is_too_small_waits_until_its_time_has_come(now: float, waits: bool) -> None:
    admission = Admission(least=1000, max_delay=900.0)
    if now:
        admission.end(START, END, None, wait=True, now=0.0)
    assert admission.end(START, END, None, wait=True, now=now) == (START if waits else END)


def test_a_batch_that_is_large_enough_does_not_wait() -> None:
    admission = Admission(least=100)
    admission.end(START, END, None, wait=True, now=0.0)
    assert admission.end(START, END, 60, wait=True, now=1.0) == {A0: 154, A1: 6}


def test_nothing_waits_if_nothing_more_is_to_come() -> None:
    admission = Admission(least=1000)
    admission.end(START, END, None, wait=False, now=0.0)
    assert admission.end(START, END, None, wait=False, now=1.0) == END
