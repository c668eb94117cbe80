"""The assignment, and the table of what may become of a partition's position."""

from collections.abc import Callable

import pytest

from kafka_async import TopicPartition
from kafka_async.background.positions.subscription import (
    TRANSITIONS,
    FetchPosition,
    FetchState,
    PartitionState,
    PositionInput,
    PreferredReplica,
    SubscriptionState,
)

from ..support import A, B, C


class ChangeRecorder:
    """Keeps what changed."""

    def __init__(self, told: list[TopicPartition]) -> None:
        self.told = told

    def changed(self, partition: TopicPartition) -> None:
        self.told.append(partition)


def in_state(state: FetchState) -> tuple[SubscriptionState, PartitionState]:
    subscription = SubscriptionState()
    subscription.assign({A: 1})
    entry = subscription.partitions[A]
    if state is not FetchState.INITIALIZING:
        acts: dict[FetchState, Callable[[], None]] = {
            FetchState.AWAIT_RESET: lambda: subscription.reset(entry, None),
            FetchState.AWAIT_VALIDATION: lambda: subscription.seek(entry, FetchPosition(1, 1), validate=True),
            FetchState.FETCHING: lambda: subscription.seek(entry, FetchPosition(1)),
            FetchState.HALTED: lambda: subscription.halt(entry),
        }
        acts[state]()
    return subscription, entry


EXPECTED = {
    PositionInput.POSITION: FetchState.FETCHING,
    PositionInput.VALIDATE: FetchState.AWAIT_VALIDATION,
    PositionInput.RESET: FetchState.AWAIT_RESET,
    PositionInput.HALT: FetchState.HALTED,
}


@pytest.mark.parametrize("state", FetchState)
@pytest.mark.parametrize("what", PositionInput)
def test_every_input_in_every_state(state: FetchState, what: PositionInput) -> None:
    subscription, entry = in_state(state)
    acts: dict[PositionInput, Callable[[], None]] = {
        PositionInput.POSITION: lambda: subscription.seek(entry, FetchPosition(5)),
        PositionInput.VALIDATE: lambda: subscription.seek(entry, FetchPosition(5, 1), validate=True),
        PositionInput.RESET: lambda: subscription.reset(entry, "latest"),
        PositionInput.HALT: lambda: subscription.halt(entry),
    }
    act = acts[what]
    if (state, what) == (FetchState.HALTED, PositionInput.HALT):
        assert (state, what) not in TRANSITIONS
        with pytest.raises(RuntimeError, match="a partition in state HALTED cannot take the input HALT"):
            act()
        assert entry.state is state
    else:
        act()
        assert entry.state is EXPECTED[what]


@pytest.mark.parametrize("state", FetchState)
def test_only_fetching_is_fetchable_and_a_pause_ends_that(state: FetchState) -> None:
    subscription, entry = in_state(state)
    assert entry.fetchable is (state is FetchState.FETCHING)
    subscription.pause([A, B], paused=True)
    assert not entry.fetchable


def test_what_stays_under_its_stamp_keeps_everything() -> None:
    subscription = SubscriptionState()
    subscription.assign({A: 1, B: 2})
    subscription.seek(subscription.partitions[A], FetchPosition(9))
    kept = subscription.partitions[A]
    assert subscription.assign({A: 1, C: 3}) == (B,)
    assert subscription.partitions[A] is kept
    assert subscription.get(B) is None
    assert subscription.topics == {"t"}


def test_a_new_stamp_starts_afresh_without_the_pause_that_the_application_has_forgotten() -> None:
    subscription = SubscriptionState()
    subscription.assign({A: 1})
    subscription.seek(subscription.partitions[A], FetchPosition(9))
    subscription.pause([A], paused=True)
    subscription.assign({A: 2})
    entry = subscription.partitions[A]
    assert (entry.position, entry.state, entry.paused) == (None, FetchState.INITIALIZING, False)


def test_every_change_is_reported_and_nothing_else() -> None:
    told: list[TopicPartition] = []
    subscription = SubscriptionState([ChangeRecorder(told)])
    subscription.assign({A: 1, B: 2})
    subscription.assign({A: 1, B: 2})
    assert told == [A, B]
    subscription.pause([A], paused=True)
    subscription.pause([A], paused=True)
    assert told == [A, B, A]
    subscription.assign({B: 2})
    assert told == [A, B, A, A]


def test_a_seek_forgets_the_troubles_before_it() -> None:
    subscription, entry = in_state(FetchState.FETCHING)
    subscription.advance(entry, FetchPosition(2), checked_epoch=None, suspended=True)
    subscription.delay(entry, 50.0)
    assert (entry.setbacks.failures, entry.retry_at, entry.suspended) == (1, 50.0, True)
    subscription.seek(entry, FetchPosition(3, 2))
    assert (entry.setbacks.failures, entry.retry_at, entry.suspended, entry.fetchable) == (0, 0.0, False, True)
    assert entry.position == FetchPosition(3, 2)


def test_a_reset_has_no_position_until_it_is_found() -> None:
    subscription, entry = in_state(FetchState.FETCHING)
    subscription.read_from(entry, PreferredReplica(4, 100.0))
    subscription.reset(entry, "earliest")
    assert (entry.position, entry.strategy, entry.replica) == (None, "earliest", None)
    assert entry.state is FetchState.AWAIT_RESET


def test_the_end_of_a_range_is_not_fetched() -> None:
    subscription, entry = in_state(FetchState.FETCHING)
    subscription.read_until(entry, 10)
    subscription.seek(entry, FetchPosition(9))
    assert entry.fetchable
    subscription.advance(entry, FetchPosition(10), checked_epoch=None, suspended=False)
    assert not entry.fetchable


def test_a_partition_set_aside_is_not_owned_and_keeps_its_position_until_it_comes_back() -> None:
    subscription = SubscriptionState()
    subscription.assign({A: 1, B: 2, C: 3})
    kept = subscription.partitions[A]
    subscription.seek(kept, FetchPosition(9))
    subscription.pause([B], paused=True)
    assert subscription.assign({}, {A, B}) == (C,)
    assert subscription.owned == frozenset()
    assert not kept.fetchable
    assert subscription.assign({A: 1, B: 2}) == ()
    assert subscription.partitions[A] is kept
    assert (kept.fetchable, kept.position) == (True, FetchPosition(9))
    assert subscription.partitions[B].paused
    assert subscription.owned == {A, B}


def test_what_is_set_aside_and_does_not_come_back_is_dropped() -> None:
    told: list[TopicPartition] = []
    subscription = SubscriptionState([ChangeRecorder(told)])
    subscription.assign({A: 1, B: 2})
    subscription.assign({}, {A, B})
    told.clear()
    assert subscription.assign({A: 7}) == (B,)
    assert (subscription.partitions[A].stamp, subscription.get(B)) == (7, None)
    assert set(told) == {A, B}


def test_what_was_to_be_revoked_and_is_assigned_all_the_same_is_fetched_again() -> None:
    subscription, entry = in_state(FetchState.FETCHING)
    subscription.revoke([A])
    assert not entry.fetchable
    subscription.assign({A: 1})
    assert entry.fetchable


def test_an_older_number_does_not_count() -> None:
    subscription = SubscriptionState()
    subscription.assign({A: 5})
    assert subscription.renumber(A, 4) is None
    assert subscription.renumber(B, 9) is None
    assert subscription.renumber(A, 6) is subscription.partitions[A]
    assert subscription.partitions[A].stamp == 6
