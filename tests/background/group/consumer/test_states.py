"""``kafka_async.background.group.consumer.states``: every state with every input."""

from itertools import product

import pytest

from kafka_async.background.group.consumer.states import (
    AT_ONCE,
    LEAVABLE,
    MEMBER,
    RELEASING,
    SHOWN,
    SPEAKING,
    TRANSITIONS,
    MemberInput,
    MemberState,
)

S, I = MemberState, MemberInput  # noqa: E741 - a table reads better with one letter

EVERYWHERE: dict[MemberInput, dict[MemberState, MemberState]] = {
    I.SUBSCRIBE: {
        S.UNSUBSCRIBED: S.JOINING,
        S.LEAVING: S.JOINING,
        S.FATAL: S.JOINING,
        **{state: state for state in S if state not in (S.UNSUBSCRIBED, S.LEAVING, S.FATAL)},
    },
    I.LEAVE: {
        **dict.fromkeys(LEAVABLE, S.LEAVING),
        **dict.fromkeys((S.UNSUBSCRIBED, S.STALE, S.AWAY, S.FATAL), S.UNSUBSCRIBED),
    },
    I.JOINED: {S.JOINING: S.STABLE},
    I.TAKEN: {S.JOINING: S.RECLAIMING},
    I.RECLAIMED: {S.RECLAIMING: S.JOINING},
    I.TARGET: {
        S.STABLE: S.RECONCILING,
        S.RECONCILING: S.RECONCILING,
        S.ASSIGNING: S.ASSIGNING,
        S.ACKNOWLEDGING: S.ACKNOWLEDGING,
    },
    I.PROPOSED: {S.RECONCILING: S.ASSIGNING},
    I.ASSIGNED: {S.ASSIGNING: S.ACKNOWLEDGING},
    I.ACKNOWLEDGED: {S.ACKNOWLEDGING: S.STABLE},
    I.FENCE: dict.fromkeys(MEMBER | {S.JOINING}, S.FENCED),
    I.EXPIRE: dict.fromkeys(MEMBER, S.STALE),
    I.REVOKED: {S.FENCED: S.JOINING, S.STALE: S.AWAY, S.FATAL: S.FATAL},
    I.READ: {S.AWAY: S.JOINING},
    I.LEFT: {S.LEAVING: S.UNSUBSCRIBED},
    I.FAIL: dict.fromkeys(MEMBER | {S.JOINING, S.RECLAIMING}, S.FATAL),
    I.FALL_BACK: {S.JOINING: S.UNSUBSCRIBED},
}


@pytest.mark.parametrize(("state", "what"), list(product(S, I)), ids=lambda value: value.name)
def test_every_pair_leads_where_it_should_or_nowhere(state: MemberState, what: MemberInput) -> None:
    assert TRANSITIONS.get((state, what)) is EVERYWHERE[what].get(state)


def test_every_state_can_be_reached_and_left_for_good() -> None:
    reached, frontier = {S.UNSUBSCRIBED}, [S.UNSUBSCRIBED]
    while frontier:
        here = frontier.pop()
        for (state, _), after in TRANSITIONS.items():
            if state is here and after not in reached:
                reached.add(after)
                frontier.append(after)
    assert reached == set(S)


def test_the_sets_of_states_agree_with_the_table() -> None:
    assert {state for state in S if (state, I.EXPIRE) in TRANSITIONS} == MEMBER
    assert {state for state in S if (state, I.REVOKED) in TRANSITIONS} == RELEASING
    assert {state for state in S if TRANSITIONS[state, I.LEAVE] is S.LEAVING} == LEAVABLE
    assert AT_ONCE <= SPEAKING <= LEAVABLE
    assert not SPEAKING & RELEASING
    assert set(SHOWN) == set(S)
