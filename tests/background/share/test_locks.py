"""Until when records are locked, and which locks are renewed."""

from uuid import UUID

from kafka_async.background.share.locks import Locks, PartitionLocks
from kafka_async.background.share.orders import Keep
from kafka_async.model import TopicPartition

TP = TopicPartition("t", 0)


def locked(*offsets: int, longest: float = 100.0) -> Locks:
    locks = Locks(longest)
    locks.duration = 10.0
    locks.add(TP, PartitionLocks(UUID(int=1), 1), offsets, 7, 0.0)
    return locks


def due(locks: Locks, now: float) -> list[int]:
    return [offset for _, _, chosen in locks.due(now) for offset in chosen]


def test_locks_are_renewed_at_half_their_time() -> None:
    locks = locked(1, 2)
    assert locks.renewal_at == 5.0
    assert due(locks, 4.9) == []
    assert due(locks, 5.0) == [1, 2]
    renewed = locks.renewed(TP, locks.held(TP, (1, 2), 7), 5.2)
    assert {offset: lock.deadline for offset, lock in renewed.items()} == {1: 15.2, 2: 15.2}
    assert locks.renewal_at == 10.2


def test_a_renewal_is_of_the_records_that_it_was_asked_for() -> None:
    locks = locked(1, 2, 3)
    asked = locks.held(TP, (1, 2), 7)
    locks.acknowledge(TP, (2,), 7)
    locks.add(TP, PartitionLocks(UUID(int=1), 1), (1,), 8, 5.0)
    renewed = locks.renewed(TP, asked, 5.2)
    assert {offset: (lock.deadline, lock.acknowledged) for offset, lock in renewed.items()} == {2: (15.2, True)}
    assert {lock.deadline for lock in locks.held(TP, (3,), 7).values()} == {10.0}
    assert {lock.deadline for lock in locks.held(TP, (1,), 8).values()} == {15.0}


def test_records_that_were_handed_out_are_renewed_only_while_somebody_works_on_them() -> None:
    locks = locked(1, 2)
    locks.keep(TP, 7, (1, 2), kept=False)
    assert due(locks, 5.0) == []
    locks.keep(TP, 7, (2,), kept=True)
    assert due(locks, 5.0) == [2]


def test_a_lock_that_was_looked_at_early_with_others_is_looked_at_again_at_half_its_time() -> None:
    """The application need not say before that it works on the record."""
    locks = locked(1)
    locks.add(TP, PartitionLocks(UUID(int=1), 1), (2,), 8, 1.0)
    locks.keep(TP, 8, (2,), kept=False)
    assert due(locks, 5.0) == [1]
    assert locks.renewal_at == 6.0
    locks.keep(TP, 8, (2,), kept=True)
    assert due(locks, 6.0)[-1:] == [2]


def test_locks_of_one_read_call_are_renewed_while_the_application_works_on_one_of_them() -> None:
    locks = locked(1, 2, 3)
    locks.handed_out(TP, 7, (1, 2, 3), Keep.WAITING, 4, 0.0)
    assert due(locks, 5.0) == [1, 2, 3]
    locks.renewed(TP, locks.held(TP, (1, 2, 3), 7), 5.0)
    assert due(locks, 10.0) == []
    assert locks.renewal_at == 11.25, "the application may go on"
    locks.acknowledge(TP, (1,), 7, 11.0)
    assert due(locks, 11.25) == [2, 3]
    locks.keep(TP, 7, (2,), kept=True)
    locks.renewed(TP, locks.held(TP, (2, 3), 7), 11.25)
    locks.look_at(locks.held(TP, (2,), 7)[2])
    assert due(locks, 30.0) == [2, 3], "a task works on one of them"


def test_a_record_is_released_later() -> None:
    locks = locked(1, 2)
    locks.keep(TP, 7, (1, 2), kept=False)
    locks.release_later(TP, 7, 2, 20.0)
    assert locks.releases_at == 20.0
    assert due(locks, 5.0) == [2]
    assert list(locks.releases(19.0)) == []
    assert list(locks.releases(20.0)) == [(TP, 7, 2)]


def test_unread_locks_are_given_up_and_no_others() -> None:
    locks = locked(1, 2, 3)
    locks.keep(TP, 7, (1,), kept=False)
    locks.keep(TP, 7, (2,), kept=True)
    assert [list(unread) for _, _, unread in locks.give_up_unread()] == [[3]]
    assert list(locks.held(TP, (1, 2, 3), 7)) == [1, 2]


def test_a_lock_is_renewed_for_so_long_and_no_longer() -> None:
    locks = locked(1, longest=5.0)
    assert due(locks, 5.0) == []


def test_locks_that_end_are_reported_once_but_not_those_of_acknowledged_records() -> None:
    locks = locked(1, 2)
    assert list(locks.acknowledge(TP, (2,), 7)) == [2]
    assert list(locks.held(TP, (1, 2), 7)) == [1], "what is acknowledged is not acknowledged again"
    assert list(locks.ended(9.9)) == []
    assert [(tp, [offset for offset, _ in over]) for tp, over in locks.ended(10.0)] == [(TP, [1])]
    assert list(locks.ended(11.0)) == []
    assert locks.are_out


def test_an_offset_that_comes_again_is_another_lock() -> None:
    locks = locked(1)
    locks.add(TP, PartitionLocks(UUID(int=1), 1), (1,), 8, 20.0)
    assert not locks.held(TP, (1,), 7)
    assert list(locks.held(TP, (1,), 8)) == [1]


def test_locks_of_another_broker_take_the_place_of_those_before() -> None:
    locks = locked(1)
    locks.add(TP, PartitionLocks(UUID(int=1), 2), (5,), 8, 0.0)
    assert locks.given_by(1) == []
    assert locks.given_by(2) == [TP]
