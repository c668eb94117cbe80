"""``kafka_async.background.group.consumer.reconciliation``: targets, names that come late, acknowledgments."""

from kafka_async.background.group.consumer.reconciliation import Reconciliation
from kafka_async.background.loop.request_manager import NEVER, Backoff
from kafka_async.model import TopicPartition
from tests.background.group.consumer.world import A0, A1, B0, LATE, A, B, FakeMetadata

LATE0 = TopicPartition("late", 0)


def made(metadata: FakeMetadata) -> Reconciliation:
    return Reconciliation(metadata, Backoff(0.1, 1.0, lambda: 0.5))


def test_the_first_target_is_to_be_carried_out_even_when_it_is_empty() -> None:
    work = made(FakeMetadata())
    assert work.is_done
    work.receive(frozenset())
    assert not work.is_done
    assert work.propose(0.0) == frozenset()
    work.carried_out()
    assert work.is_done


def test_the_same_target_again_changes_nothing() -> None:
    work = made(FakeMetadata())
    work.receive(frozenset({(A, 0)}))
    work.propose(0.0)
    work.carried_out()
    work.receive(frozenset({(A, 0)}))
    assert work.is_done


def test_a_target_that_comes_back_after_another_one_is_carried_out_again() -> None:
    work = made(FakeMetadata())
    work.receive(frozenset({(A, 0)}))
    work.propose(0.0)
    work.carried_out()
    work.receive(frozenset({(A, 1)}))
    work.receive(frozenset({(A, 0)}))
    assert not work.is_done
    assert work.propose(0.0) == frozenset({A0})
    work.carried_out()
    assert work.is_done


def test_only_what_can_be_named_is_proposed_and_the_rest_follows() -> None:
    metadata = FakeMetadata()
    work = made(metadata)
    work.receive(frozenset({(A, 0), (LATE, 0)}))
    assert work.propose(1.0) == frozenset({A0})
    assert metadata.updates == [1.0]
    work.carried_out()
    assert not work.is_done
    assert work.propose(1.0) is None
    metadata.names[LATE] = "late"
    assert work.propose(2.0) == frozenset({A0, LATE0})
    work.carried_out()
    assert work.is_done


def test_names_are_asked_for_with_a_backoff_and_never_at_a_time_that_is_past() -> None:
    metadata = FakeMetadata()
    work = made(metadata)
    assert work.wake_at == NEVER
    work.receive(frozenset({(LATE, 0)}))
    now = 0.0
    for _ in range(6):
        assert work.propose(now) is None
        assert work.propose(now) is None
        assert work.wake_at > now
        now = work.wake_at
    assert len(metadata.updates) == 6
    assert metadata.updates[-1] - metadata.updates[-2] == 1.0


def test_a_target_without_names_takes_away_what_is_not_in_it_at_once() -> None:
    work = made(FakeMetadata())
    work.receive(frozenset({(A, 0), (A, 1)}))
    work.propose(0.0)
    work.carried_out()
    work.receive(frozenset({(A, 1), (LATE, 0)}))
    assert work.propose(0.0) == frozenset({A1})


def test_the_name_of_an_assigned_topic_outlives_its_deletion() -> None:
    metadata = FakeMetadata()
    work = made(metadata)
    work.receive(frozenset({(A, 0), (B, 0)}))
    assert work.propose(0.0) == frozenset({A0, B0})
    work.carried_out()
    del metadata.names[B]
    work.receive(frozenset({(B, 0)}))
    assert work.propose(0.0) == frozenset({B0})


def test_a_topic_that_was_made_again_is_reported_by_its_new_id() -> None:
    metadata = FakeMetadata()
    work = made(metadata)
    work.receive(frozenset({(A, 0)}))
    work.propose(0.0)
    work.carried_out()
    metadata.names = {LATE: "a"}
    work.receive(frozenset({(LATE, 0)}))
    assert work.propose(0.0) == frozenset({A0})
    work.carried_out()
    assert work.current.partitions == {(LATE, 0)}
