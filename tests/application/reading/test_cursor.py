"""One partition on the application's side: what comes next, and what its position is meanwhile."""

from uuid import UUID

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.application.reading.cursor import (
    Beginning,
    Cursor,
    Failure,
    Halted,
    PartitionCustody,
    PauseReason,
    Piece,
    Raw,
    Refusal,
    standing_in,
)
from kafka_async.application.reading.iteration import PORTION
from kafka_async.background.boundary import FetchedData, Repositioned
from kafka_async.errors import CorruptRecordException, DeserializationError, UnknownTopicOrPartitionError
from kafka_async.model import ConsumerRecord
from kafka_async.records import RecordReader
from tests.background.support import records

TP = TopicPartition("t", 0)
ONE, OTHER = UUID(int=1), UUID(int=2)
CORRUPT = CorruptRecordException("bad")


def read(start: int, count: int, epoch: int = 3) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    return RecordReader(TP.topic, TP.partition, records(start, count, epoch=epoch), start).read(count)


def portion(start: int, count: int, *, end: int | None = None, place: int = 0) -> Piece:
    found = read(start, count)
    made = PORTION(found, found, (start, 2 if start == 5 else 3), (start + count if end is None else end, 3))
    made.place = place
    return made


def cursor(*pieces: Piece, taken_to: int | None = 10) -> Cursor:
    made = Cursor(TP, 1)
    made.ahead.extend(pieces)
    made.taken_to = None if taken_to is None else (taken_to, 3)
    return made


def test_a_new_partition_has_no_position_and_nothing_to_commit() -> None:
    new = Cursor(TP, 1)
    assert (new.standing, new.position, new.leader_epoch, new.to_commit, new.begun_at) == (None,) * 5
    assert (new.has_more, new.front(), new.is_halted, new.problem) == (False, None, False, None)


@pytest.mark.parametrize(
    ("place", "standing"),
    [(0, (5, 2)), (1, (6, 3)), (2, (7, 3)), (3, (9, 3))],
    ids=["nothing was handed out", "one", "two", "all, and the gap after them"],
)
def test_a_position_is_exact_within_a_portion(place: int, standing: tuple[int, int]) -> None:
    piece = portion(5, 3, end=9, place=place)
    assert not isinstance(piece, (Raw, Refusal, Failure, Halted))
    assert standing_in(piece) == standing
    assert cursor(piece, portion(9, 1)).standing == standing


def test_a_position_is_before_what_was_not_handed_out_whatever_that_is() -> None:
    found = read(5, 2)
    raw = Raw(found, (5, 2), (7, 3))
    refusal = Refusal(DeserializationError("bad", found[0]), (5, 2))
    spent = portion(3, 2, end=5, place=2)
    for piece in (raw, refusal, portion(5, 2)):
        assert cursor(piece).standing == (5, 2)
        assert cursor(spent, piece).standing == (5, 2), "what was handed out to its end is passed, and not dropped by a look"
    for failure in (Failure(CORRUPT, halts=True), Halted(CORRUPT, 0.0)):
        assert cursor(failure).standing == (10, 3), "all before it was taken"


def test_looking_changes_nothing_and_front_passes_what_was_handed_out() -> None:
    here = cursor(portion(3, 2, place=2), portion(5, 3, place=1))
    before = list(here.ahead)
    assert (here.position, here.consumed_records, here.problem, here.is_halted) == (6, 3, None, False)
    assert list(here.ahead) == before
    assert here.front() is before[1]
    assert list(here.ahead) == before[1:]
    assert here.consumed_records == 3, "also of a portion that was passed"


def test_what_is_committed_carries_the_epoch_and_the_topic() -> None:
    here = cursor(portion(5, 3, place=2))
    here.belong(ONE)
    assert here.to_commit == OffsetAndMetadata(7, "", 3, ONE)


def test_a_committed_position_is_known_to_be_committed_and_a_first_one_to_be_the_beginning() -> None:
    stored = Cursor(TP, 1)
    stored.follow(Repositioned(partition=TP, stamp=1, offset=7, leader_epoch=2, is_committed=True, topic_id=ONE))
    assert (stored.standing, stored.begun_at, stored.stored.committed, stored.stored.begins) == ((7, 2), 7, 7, None)
    stored.follow(Repositioned(partition=TP, stamp=1, offset=9, is_committed=True, topic_id=ONE))
    assert stored.stored.committed == 7, "a commit of ours that came before says more"
    first = Cursor(TP, 1)
    first.follow(Repositioned(partition=TP, stamp=1, offset=0, is_first=True))
    assert (first.stored.committed, first.stored.begins) == (None, 0)
    first.forget_stored()
    assert first.stored.begins is None


def test_each_beginning_is_another_one_also_at_the_same_offset() -> None:
    here = Cursor(TP, 1)
    here.place((5, None))
    before = here.beginning
    here.place((5, None))
    assert isinstance(before, Beginning)
    assert here.beginning is not before
    here.place(None)
    assert (here.beginning, here.position) == (None, None)


def test_what_is_known_of_a_topic_is_not_known_of_the_next_one_of_its_name() -> None:
    here = Cursor(TP, 1)
    here.stored.committed, here.corrupt_at = 5, 5
    here.belong(ONE)
    assert (here.stored.committed, here.stored.topic_id, here.corrupt_at) == (5, ONE, 5), "the topic had no name yet"
    here.belong(None)
    here.belong(UUID(int=1))
    assert here.stored.committed == 5
    assert (here.is_of(ONE), here.is_of(None), here.is_of(OTHER)) == (True, True, False)
    before = here.stored
    here.belong(OTHER)
    assert here.stored is not before
    assert [here.stored.committed, here.stored.topic_id, here.corrupt_at] == [None, OTHER, None]


def test_the_application_means_another_topic_only_after_an_error_said_so() -> None:
    error = UnknownTopicOrPartitionError("t")
    assert cursor().meant() is None
    assert cursor(Failure(error, halts=True, topic_id=OTHER)).meant() is None
    assert cursor(Halted(error, 0.0, OTHER)).meant() == OTHER


def test_a_failure_is_a_problem_once_everything_before_it_was_handed_out() -> None:
    for failure in (Failure(CORRUPT, halts=True), Halted(CORRUPT, 0.0)):
        assert cursor(portion(5, 2, place=1), failure).problem is None
        assert cursor(portion(5, 2, place=2), failure).problem is CORRUPT
    assert cursor(Halted(CORRUPT, 0.0)).is_halted
    assert not cursor(Failure(CORRUPT, halts=True)).is_halted, "it was not raised yet"


def test_there_is_more_as_long_as_anything_was_fetched() -> None:
    assert cursor(portion(5, 1)).has_more
    assert not cursor(portion(5, 1, place=1)).has_more
    fetched = FetchedData(TP, 1, 5, records(5, 1))
    unopened, opened = Cursor(TP, 1), Cursor(TP, 1)
    unopened.parcels.append(fetched)
    opened.data = fetched
    assert unopened.has_more
    assert opened.has_more


@pytest.mark.parametrize("custody", list(PartitionCustody))
def test_only_what_is_ours_and_not_paused_is_readable(custody: PartitionCustody) -> None:
    assert Cursor(TP, 1, custody).is_readable is (custody is PartitionCustody.OURS)
    assert not any(Cursor(TP, 1, custody, frozenset({why})).is_readable for why in PauseReason)


def test_what_is_discarded_is_not_handed_out_by_an_iteration_that_has_it() -> None:
    held = portion(5, 3, place=1)
    here = cursor(held, Failure(CORRUPT, halts=True), portion(8, 1))
    here.discard_ahead()
    assert not isinstance(held, (Raw, Refusal, Failure, Halted))
    assert (held.records, held.place) == ([], 0)
    assert (list(here.ahead), here.consumed_records, here.position) == ([], 1, 10)
