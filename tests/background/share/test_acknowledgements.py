"""What goes into a request, and what becomes of acknowledgements that a broker refused."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.background.share.acknowledgements import LINGER, AcknowledgementPortion, Acknowledgements
from kafka_async.background.share.locks import Lock
from kafka_async.background.share.orders import AcknowledgeType
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    CoordinatorNotAvailableError,
    InvalidRecordStateError,
    KafkaConnectionError,
    KafkaError,
    NotLeaderOrFollowerError,
)
from kafka_async.model import TopicPartition
from kafka_async.wire.messages import AcquiredRecords

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)
ACCEPT, RELEASE, RENEW, GAP = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW, AcknowledgeType.GAP


class World:
    def __init__(self) -> None:
        self.settled: dict[int, KafkaError | None] = {}
        self.all = Acknowledgements(ConsumerConfig.of(retry_backoff_ms=100), self._settle, lambda: 30.0)

    def _settle(self, portion: AcknowledgementPortion, error: KafkaError | None, now: float) -> None:
        for offset, (_, lock) in portion.entries.items():
            assert offset not in self.settled
            if lock is not None:
                self.settled[offset] = error

    def add(self, *offsets: int, kind: AcknowledgeType = ACCEPT, partition: TopicPartition = TP, ends: float = 30.0) -> None:
        self.all.add(partition, ID, {offset: (kind, Lock(1, 0.0, ends)) for offset in offsets}, 0.0, renewal=kind is RENEW)

    def take(self, now: float = 1.0, *, renewal: bool = False) -> list[AcknowledgementPortion]:
        return self.all.take(now, renewal=renewal)


def ranges(portion: AcknowledgementPortion) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in portion.batches()]


def test_runs_of_one_type_are_one_range() -> None:
    world = World()
    world.add(3, 1, 2, 9)
    world.add(4, 5, kind=RELEASE)
    (portion,) = world.take()
    assert ranges(portion) == [(1, 3, (1,)), (4, 5, (2,)), (9, 9, (1,))]


def test_acknowledgements_wait_a_moment_for_company() -> None:
    world = World()
    assert world.all.due_at() == float("inf")
    world.add(1)
    assert world.all.due_at() == LINGER
    world.all.hurry(0.001)
    assert world.all.due_at() == 0.001


def test_renewals_go_at_once_and_by_themselves() -> None:
    world = World()
    world.add(1)
    world.add(2, kind=RENEW)
    assert world.all.due_at() == 0.0
    assert [ranges(portion) for portion in world.take(renewal=True)] == [[(2, 2, (4,))]]
    assert [ranges(portion) for portion in world.take()] == [[(1, 1, (1,))]]
    assert not world.all


def test_a_record_that_is_settled_is_not_renewed_any_more() -> None:
    world = World()
    world.add(1, kind=RENEW)
    world.add(1)
    assert world.take(renewal=True) == []


@pytest.mark.slow
@given(st.sets(st.integers(0, 60), min_size=1), st.sets(st.integers(0, 60)))
def test_what_the_broker_refuses_is_found_and_everything_else_counts(offsets: set[int], bad: set[int]) -> None:
    world = World()
    world.add(*offsets)
    for _ in range(500):
        portions = world.take()
        assert len(portions) <= 1  # one of a partition in a request: it counts as a whole or not at all
        for portion in portions:
            error = InvalidRecordStateError() if portion.entries.keys() & bad else None
            world.all.answered(portion, error, 1.0)
    assert not world.all
    assert {offset for offset, error in world.settled.items() if error is None} == offsets - bad
    assert world.settled.keys() == offsets


@pytest.mark.slow
@given(st.sets(st.integers(0, 60), min_size=1), st.sets(st.integers(1, 59)))
def test_what_is_refused_of_renewals_is_found_and_the_others_are_renewed(offsets: set[int], bad: set[int]) -> None:
    world = World()
    world.add(0, *offsets, 60, kind=RENEW)
    for _ in range(500):
        for portion in world.take(renewal=True):
            error = InvalidRecordStateError() if portion.entries.keys() & bad else None
            world.all.answered(portion, error, 1.0)
    assert not world.all
    assert {offset for offset, error in world.settled.items() if error is None} == (offsets | {0, 60}) - bad
    assert world.settled.keys() == offsets | {0, 60}


def test_a_group_that_allows_no_renewals_is_not_asked_about_each_record() -> None:
    world = World()
    world.add(*range(500), kind=RENEW)
    world.add(1000, kind=RENEW, partition=OTHER)
    requests = 0
    while portions := world.take(renewal=True):
        requests += 1
        for portion in portions:
            world.all.answered(portion, InvalidRecordStateError("not enabled"), 1.0)
    assert requests == 3
    assert not world.all
    assert len(world.settled) == 501


def test_records_past_their_own_lock_are_distinguished_at_once() -> None:
    world = World()
    world.add(1, ends=0.5)
    world.add(2, 3)
    (portion,) = world.take()
    world.all.answered(portion, InvalidRecordStateError(), 1.0)
    assert set(world.settled) == {1}
    (rest,) = world.take()
    assert ranges(rest) == [(2, 3, (1,))]


def test_nobody_looks_for_what_was_refused_of_gaps() -> None:
    world = World()
    world.all.add(TP, ID, dict.fromkeys((1, 2, 3), (GAP, None)), 0.0)
    (portion,) = world.take()
    world.all.answered(portion, InvalidRecordStateError(), 1.0)
    assert not world.all


def test_a_coordinator_that_is_away_is_tried_again_after_a_backoff() -> None:
    world = World()
    world.add(1)
    (portion,) = world.take()
    world.all.answered(portion, CoordinatorNotAvailableError(), 1.0)
    assert world.take(1.0) == []
    assert world.all.due_at() == 1.1
    assert len(world.take(1.1)) == 1


def test_a_renewal_is_not_tried_again_for_a_lock_that_has_ended_or_a_record_that_was_acknowledged_meanwhile() -> None:
    world = World()
    world.add(1, kind=RENEW, ends=1.0)
    world.add(2, 3, kind=RENEW)
    world.add(4, kind=RENEW, partition=OTHER, ends=1.0)
    first, other = world.take(renewal=True)
    world.add(3)
    for portion in (first, other):
        world.all.answered(portion, CoordinatorNotAvailableError(), 1.0)
    assert [ranges(portion) for portion in world.take(2.0, renewal=True)] == [[(2, 2, (4,))]]
    assert [ranges(portion) for portion in world.take(2.0)] == [[(3, 3, (1,))]]
    assert not world.all


def test_a_leader_that_moved_is_final() -> None:
    world = World()
    world.add(1)
    (portion,) = world.take()
    world.all.answered(portion, NotLeaderOrFollowerError(), 1.0)
    assert isinstance(world.settled[1], NotLeaderOrFollowerError)


def test_what_got_no_answer_is_sent_again_and_a_refusal_then_says_that_it_may_have_counted() -> None:
    world = World()
    world.add(1)
    (portion,) = world.take()
    world.all.unanswered(portion, KafkaConnectionError("cut"))
    (again,) = world.take()
    world.all.answered(again, InvalidRecordStateError(), 1.0)
    assert "may have counted then: cut" in str(world.settled[1])


def test_a_yes_to_what_got_no_answer_before_proves_nothing() -> None:
    world = World()
    world.add(1)
    (portion,) = world.take()
    world.all.unanswered(portion, KafkaConnectionError("cut"))
    (again,) = world.take()
    world.all.answered(again, None, 1.0)
    assert "it is unknown whether it counts" in str(world.settled[1])
    assert isinstance(world.settled[1].__cause__, KafkaConnectionError)  # type: ignore[union-attr]  # an error


def test_what_was_said_and_not_sent_before_the_connection_was_gone_is_sent_and_proves_nothing() -> None:
    world = World()
    world.add(1)
    world.add(2, kind=RENEW)
    world.all.disconnected(KafkaConnectionError("cut"))
    assert world.take(renewal=True) == []  # those locks are lost
    world.add(3)
    (first,) = world.take()
    assert ranges(first) == [(1, 1, (1,))]
    world.all.answered(first, None, 1.0)
    (second,) = world.take()
    world.all.answered(second, None, 1.0)
    assert "it is unknown whether it counts" in str(world.settled[1])
    assert world.settled[3] is None


def test_a_refusal_of_what_was_never_sent_before_leaves_no_doubt() -> None:
    world = World()
    world.add(1)
    world.all.disconnected(KafkaConnectionError("cut"))
    (portion,) = world.take()
    world.all.answered(portion, InvalidRecordStateError("gone"), 1.0)
    assert "may" not in str(world.settled[1])


def test_a_yes_counts_until_the_lock_has_ended() -> None:
    world = World()
    world.add(1, ends=5.0)
    world.add(2, ends=5.1)
    (portion,) = world.take()
    world.all.answered(portion, None, 5.0)
    assert "the lock had ended" in str(world.settled[1])
    assert world.settled[2] is None


def test_a_request_that_was_refused_as_a_whole_is_sent_again_without_a_doubt() -> None:
    world = World()
    world.add(1)
    (portion,) = world.take()
    world.all.again(portion)
    (again,) = world.take()
    world.all.answered(again, None, 1.0)
    assert world.settled[1] is None


def test_what_was_said_under_a_former_lock_does_not_hit_the_new_one() -> None:
    world = World()
    world.add(1, 2, 3, 7)
    world.add(2, partition=OTHER)
    (first, _) = world.take()
    world.all.unanswered(first, KafkaConnectionError("cut"))
    world.all.add(TP, ID, {8: (RELEASE, None), 9: (RELEASE, None)}, 0.0)
    came_again = [AcquiredRecords(first_offset=o, last_offset=p, delivery_count=2) for o, p in ((2, 3), (8, 20))]
    world.all.supersede(TP, came_again, InvalidRecordStateError("again"), 1.0)
    assert set(world.settled) == {2, 3}
    assert "may have counted" in str(world.settled[2])
    assert [ranges(portion) for portion in world.take()] == [[(1, 1, (1,)), (7, 7, (1,))]]
    assert not world.all


def test_acknowledgements_without_a_broker_end_with_the_time_of_the_locks() -> None:
    world = World()
    world.add(1)
    assert world.all.expire(29.0, None) == 30.0
    world.all.expire(30.0, KafkaConnectionError("down"))
    assert not world.all
    error = world.settled[1]
    assert isinstance(error, InvalidRecordStateError)
    assert isinstance(error.__cause__, KafkaConnectionError)


def test_a_partition_that_is_lost_takes_no_other_along() -> None:
    world = World()
    world.add(1)
    world.add(2, partition=OTHER)
    world.all.drop(lambda portion: NotLeaderOrFollowerError() if portion.partition == TP else None, 1.0)
    assert set(world.settled) == {1}
    assert [portion.partition for portion in world.take()] == [OTHER]
