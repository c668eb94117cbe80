from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.cli.done_maps import Committed, commit_around
from kafka_async.application.processing.encoding import decode, encode
from kafka_async.errors import IllegalStateError

TP = TopicPartition("orders", 0)
ID, OTHER = UUID(int=1), UUID(int=2)


def committed(offset: int, *runs: int) -> Committed:
    return Committed.read(OffsetAndMetadata(offset, encode(runs, ID)), ID)


def test_a_stuck_group_is_explained() -> None:
    stuck = committed(17, 1, 500, 3, 84)

    assert stuck.note == "offset 17 unfinished, 584 after it done"
    assert stuck.lost_by(17) == "584 done offsets after it will be handled again"
    assert stuck.lost_by(520) == "84 done offsets after it will be handled again"
    assert stuck.lost_by(700) == ""


def test_metadata_without_a_map_say_nothing() -> None:
    found = Committed.read(OffsetAndMetadata(17, "somebody else's"), ID)

    assert (found.note, found.lost_by(0)) == ("", "")


def test_a_map_of_an_earlier_topic_is_told_apart() -> None:
    found = Committed.read(OffsetAndMetadata(17, encode([1, 5], OTHER)), ID)

    assert found.note == "its map of what is done is of an earlier topic of this name"
    assert found.lost_by(0) == ""


def test_the_record_that_holds_the_group_up_is_passed() -> None:
    assert committed(17, 1, 500, 3, 84).skip(TP, 17) == OffsetAndMetadata(518, encode([3, 84], ID))


def test_a_later_record_is_passed_without_moving_the_group() -> None:
    assert committed(17, 1, 500, 3, 84).skip(TP, 519) == OffsetAndMetadata(17, encode([1, 500, 1, 1, 1, 84], ID))


def test_without_a_map_only_the_committed_offset_is_passed() -> None:
    plain = Committed.read(OffsetAndMetadata(17), ID)

    assert plain.skip(TP, 17) == OffsetAndMetadata(18)
    with pytest.raises(IllegalStateError, match="orders:0 is at offset 17; a later one can be passed only where"):
        plain.skip(TP, 18)


def test_what_is_to_be_committed_is_an_offset_of_the_topic_that_was_looked_at() -> None:
    assert committed(17, 1, 500).skip(TP, 17).topic_id == ID
    assert commit_around([(17, False), (18, True)], 20, ID).topic_id == ID


@pytest.mark.parametrize("offset", [16, 18, 520 + 84])
def test_what_is_done_cannot_be_passed(offset: int) -> None:
    with pytest.raises(IllegalStateError, match=f"offset {offset} of orders:0 is done already; the group is at 17"):
        committed(17, 1, 500, 3, 84).skip(TP, offset)


def test_an_offset_that_the_metadata_have_no_room_for_is_refused() -> None:
    with pytest.raises(IllegalStateError, match="no room"):
        committed(0, *[1, 1] * 1532).skip(TP, 1_000_000)


@pytest.mark.slow
@given(st.integers(0, 100), st.lists(st.integers(1, 9), max_size=12).filter(lambda runs: len(runs) % 2 == 0), st.integers(0, 150))
def test_passing_one_offset_changes_nothing_else(offset: int, runs: list[int], skipped: int) -> None:
    before = committed(offset, *runs)
    done = {each for each in range(300) if each < offset or each in (before.done or ())}
    try:
        new = before.skip(TP, skipped)
    except IllegalStateError:
        assert skipped in done or not runs
        return
    after = decode(new.metadata, new.offset, ID)
    assert {each for each in range(300) if each < new.offset or each in (after or ())} == done | {skipped}
