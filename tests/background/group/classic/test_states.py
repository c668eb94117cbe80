"""``kafka_async.background.group.classic.states``: the table."""

import pytest

from kafka_async.background.group.classic.states import HEARTBEATING, TRANSITIONS, ClassicInput, ClassicState

S, I = ClassicState, ClassicInput  # noqa: E741 - the letters of the table


def test_every_state_can_be_left_and_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == set(S)
    assert set(TRANSITIONS.values()) == set(S)
    assert {what for _, what in TRANSITIONS} == set(I)


@pytest.mark.parametrize("state", S)
def test_the_application_can_subscribe_leave_and_be_refused_in_every_state(state: ClassicState) -> None:
    assert TRANSITIONS[state, I.LEAVE] is S.LEAVING
    assert TRANSITIONS[state, I.FAIL] is S.FATAL
    assert TRANSITIONS[state, I.SUBSCRIBE] in (state, S.JOINING)


@pytest.mark.parametrize("state", sorted(HEARTBEATING, key=str))
def test_a_heartbeating_member_can_lose_its_place(state: ClassicState) -> None:
    assert TRANSITIONS[state, I.LOSE] is S.LOSING


def test_answers_and_acknowledgements_move_only_who_waits_for_them() -> None:
    waits = {
        I.REVOKED: {S.REVOKING, S.LOSING},
        I.LED: {S.JOINING},
        I.FOLLOWED: {S.JOINING},
        I.PLANNED: {S.LEADING},
        I.SYNCED: {S.SYNCING},
        I.CURTAILED: {S.SYNCING},
        I.ASSIGNED: {S.ASSIGNING},
        I.OVERTAKE: {S.ASSIGNING, S.OVERTAKEN},
        I.LEFT: {S.LEAVING},
    }
    for what, states in waits.items():
        assert {state for state in S if (state, what) in TRANSITIONS} == states
