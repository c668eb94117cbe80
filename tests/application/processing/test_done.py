"""One partition: what is done and what may be committed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import OffsetAndMetadata
from kafka_async.application.processing.done import MOST_AHEAD, MOST_SPAN, PartitionProgress
from kafka_async.application.processing.encoding import DoneMap, decode, encode

from .support import TOPIC_ID, TP, record, records


def received(offsets: range | list[int]) -> PartitionProgress:
    progress = PartitionProgress(TP)
    progress.receive(records(offsets), 0.0)
    return progress


def committable(progress: PartitionProgress, position: int | None = None) -> int | None:
    point = progress.point(None if position is None else OffsetAndMetadata(position))
    return None if point is None else point.offset


def test_the_first_unfinished_record_is_committed() -> None:
    progress = received(range(5, 10))
    assert committable(progress, 10) == 5
    for number in (1, 3):
        progress.mark(number)
    assert committable(progress, 10) == 5
    progress.mark(0)
    assert committable(progress, 10) == 7
    assert progress.unfinished == 2


def test_the_position_is_committed_if_all_are_done() -> None:
    """Control records and compacted tails are covered, so that the lag reaches 0."""
    progress = received(range(3))
    for number in range(3):
        progress.mark(number)
    assert committable(progress, 9) == 9
    assert committable(progress, None) == 3
    assert committable(progress, 2) == 3, "somebody sought back and nothing was received yet"


def test_nothing_is_committed_before_anything_is_known() -> None:
    assert committable(PartitionProgress(TP)) is None
    assert committable(PartitionProgress(TP), 40) == 40


def test_gaps_hold_up_nothing() -> None:
    progress = received([0, 7, 100, 101])
    for number in (0, 1, 2):
        progress.mark(number)
    assert committable(progress, 102) == 101


def test_the_epoch_is_that_of_the_record_that_is_committed() -> None:
    """An older one would look like a truncated log to whoever reads on from there (KIP-320)."""
    progress = PartitionProgress(TP)
    progress.receive([record(offset, epoch=5 if offset < 3 else 6) for offset in range(6)], 0.0)
    progress.mark(0)
    assert progress.point(None) == OffsetAndMetadata(1, "", 5)
    for number in (1, 2, 3):
        progress.mark(number)
    assert progress.point(None) == OffsetAndMetadata(4, "", 6)


def test_runs_are_counted_in_offsets() -> None:
    progress = received([10, 11, 12, 20, 21, 30])
    for number in (1, 2, 4):
        progress.mark(number)
    assert progress.runs() == [1, 9, 1, 9]
    assert progress.ahead == 3


def test_records_can_be_counted_as_done_before_they_are() -> None:
    progress = received(range(4))
    progress.mark(2)
    point = progress.point(OffsetAndMetadata(4), also=[0])
    assert point is not None
    assert point.offset == 1
    assert progress.runs(also=[0]) == [1, 1]
    assert committable(progress, 4) == 0, "nothing was marked by that"


def test_what_an_earlier_owner_had_done_is_known() -> None:
    progress = PartitionProgress(TP, DoneMap(5, [1, 3, 1, 1]))
    assert [offset for offset in range(5, 20) if progress.known(offset)] == [6, 7, 8, 10]
    assert not progress.known(6), "behind the map it was forgotten"


def test_a_seek_back_forgets_the_map() -> None:
    progress = PartitionProgress(TP, DoneMap(5, [1, 3]))
    assert not progress.known(4)
    assert not progress.known(6)


def test_a_record_that_comes_again_does_not_follow() -> None:
    progress = received(range(5))
    assert progress.follows(5)
    assert not progress.follows(4)
    for number in range(5):
        progress.mark(number)
    assert not progress.follows(4)


@pytest.mark.slow
def test_50_000_records_behind_one_that_never_ends_are_one_run() -> None:
    progress = received(range(50_001))
    for number in range(1, 50_001):
        progress.mark(number)
    assert committable(progress, 50_001) == 0
    assert progress.runs() == [1, 50_000]
    assert len(encode(progress.runs(), TOPIC_ID)) < 20
    assert not progress.too_far(keep_done=True), "a restart repeats none of them"
    assert progress.too_far(keep_done=False)


def test_without_a_map_too_far_is_a_number_of_records() -> None:
    progress = received(range(MOST_AHEAD + 1))
    for number in range(1, MOST_AHEAD):
        progress.mark(number)
    assert not progress.too_far(keep_done=False)
    progress.mark(MOST_AHEAD)
    assert progress.too_far(keep_done=False)
    progress.mark(0)
    assert not progress.too_far(keep_done=False)


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, 50, 1_000])
def test_with_a_map_too_far_is_a_number_of_records_that_are_not_in_it(every: int) -> None:
    progress = PartitionProgress(TP)
    while not progress.too_far(keep_done=True):
        number = progress.receive(records(range(progress.end or 0, (progress.end or 0) + 100)), 0.0)
        for each in range(number, number + 100):
            if each % every:
                progress.mark(each)
    recorded = decode(encode(progress.runs(), TOPIC_ID), 0, TOPIC_ID)
    assert recorded is not None
    repeated = sum(offset % every > 0 and offset not in recorded for offset in range(progress.end or 0))
    if every == 1_000:
        assert progress.span == MOST_SPAN
    else:
        assert MOST_AHEAD <= repeated < 1.02 * MOST_AHEAD
    for number in range(0, progress.end or 0, every):
        progress.mark(number)
    assert not progress.too_far(keep_done=True)


@pytest.mark.slow
def test_memory_is_given_back() -> None:
    progress = PartitionProgress(TP)
    for start in range(0, 1_000_000, 1_000):
        first = progress.receive(records(range(start, start + 1_000)), float(start))
        for number in range(first, first + 1_000):
            progress.mark(number)
    assert committable(progress, None) == 1_000_000
    assert progress.ahead == 0
    with pytest.raises(IndexError):
        progress.mark(1_000_000)


def test_the_oldest_is_the_first_that_is_not_done() -> None:
    progress = PartitionProgress(TP)
    assert progress.oldest is None
    progress.receive(records(range(3)), 1.0)
    progress.receive(records(range(3, 6)), 2.0)
    assert progress.oldest == (0, 1.0)
    for number in range(4):
        progress.mark(number)
    assert progress.oldest == (4, 2.0)


@pytest.mark.slow
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_records_that_were_put_off_have_been_unfinished_since_then(counts: list[int], data: st.DataObject) -> None:
    progress, since, epochs = PartitionProgress(TP), list[float](), list[int]()
    for count in counts:
        start, now = len(since), float(len(since))
        epochs += sorted(data.draw(st.lists(st.integers(start, start + 1), min_size=count, max_size=count)))
        progress.receive([record(offset, epoch=epochs[offset]) for offset in range(start, start + count)], now)
        since += [now] * count
    firsts = sorted(data.draw(st.lists(st.integers(0, len(since) - 1), unique=True)))  # of those that are let go together
    for number, following in pairwise([*firsts, len(since)]):
        progress.put_off(number, following - 1, 1_000.0 + number)
        since[number:following] = [1_000.0 + number] * (following - number)
    for number in range(len(since)):
        assert progress.oldest == (number, since[number])
        assert progress.point(None) == OffsetAndMetadata(number, "", epochs[number])
        progress.mark(number)


def test_records_that_are_let_go_together_are_as_old_though_the_leader_changed_between_them() -> None:
    progress = PartitionProgress(TP)
    progress.receive([record(offset, epoch=3 if offset < 2 else 4) for offset in range(4)], 0.0)
    progress.put_off(0, 3, 600.0)
    for number in range(4):
        assert progress.oldest == (number, 600.0)
        assert progress.point(None) == OffsetAndMetadata(number, "", 3 if number < 2 else 4)
        progress.mark(number)
