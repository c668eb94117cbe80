"""The assignment, and the table of what may become of a partition's position."""

from collections.abc import Callable

import pytest

from kafka_async import TopicPartition
from kafka_async.background.subscription import (
    TRANSITIONS,
    FetchPosition,
    FetchState,
    PartitionState,
    PositionInput,
    SubscriptionState,
)

from .support import A, B, C


def in_state(state: FetchState) -> tuple[SubscriptionState, PartitionState]:
    subscription = SubscriptionState()
    subscription.assign({A: 1})
    entry = subscription.partitions[A]
    entry.state = state
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
        with pytest.raises(KeyError):
            act()
        assert entry.state is state
    else:
        act()
        assert entry.state is EXPECTED[what] is TRANSITIONS[state, what]


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


def test_a_new_stamp_starts_afresh_but_for_the_pause() -> None:
    subscription = SubscriptionState()
    subscription.assign({A: 1})
    subscription.seek(subscription.partitions[A], FetchPosition(9))
    subscription.pause([A], paused=True)
    subscription.assign({A: 2})
    entry = subscription.partitions[A]
    assert (entry.position, entry.state, entry.paused) == (None, FetchState.INITIALIZING, True)


def test_every_change_is_told_and_nothing_else() -> None:
    told: list[TopicPartition] = []
    subscription = SubscriptionState(on_change=told.append)
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
    subscription.delay(entry, 50.0)
    entry.suspended = True
    assert (entry.failures, entry.retry_at) == (1, 50.0)
    subscription.seek(entry, FetchPosition(3, 2))
    assert (entry.failures, entry.retry_at, entry.suspended, entry.fetchable) == (0, 0.0, False, True)
    assert entry.position == FetchPosition(3, 2)


def test_a_reset_has_no_position_until_it_is_found() -> None:
    subscription, entry = in_state(FetchState.FETCHING)
    subscription.read_from(entry, 4, 100.0)
    subscription.reset(entry, "earliest")
    assert (entry.position, entry.strategy, entry.read_replica) == (None, "earliest", None)
    assert entry.state is FetchState.AWAIT_RESET


def test_the_end_of_a_range_is_not_fetched() -> None:
    subscription, entry = in_state(FetchState.FETCHING)
    entry.until = 10
    subscription.seek(entry, FetchPosition(9))
    assert entry.fetchable
    subscription.advance(entry, FetchPosition(10))
    assert not entry.fetchable
