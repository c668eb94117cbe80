"""``kafka_async.background.classic_states``: the table and the verdicts."""

import pytest

from kafka_async.background.classic_states import HEARTBEATING, TRANSITIONS, ClassicInput, ClassicState, Verdict, judge
from kafka_async.errors import (
    BY_CODE,
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MalformedResponseError,
    for_code,
)

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


NAMED = {
    -1: Verdict.REPORT,
    15: Verdict.REDISCOVER,
    16: Verdict.REDISCOVER,
    22: Verdict.OLD_GENERATION,
    25: Verdict.UNKNOWN_MEMBER,
    27: Verdict.REBALANCING,
    29: Verdict.REPORT,
    30: Verdict.REPORT,
    79: Verdict.NAMED,
}


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_code_has_a_verdict(code: int) -> None:
    expected = Verdict.RETRY if BY_CODE[code].retriable else Verdict.FATAL
    assert judge(for_code(code)) is NAMED.get(code, expected)


def test_a_code_of_a_newer_broker_is_reported_and_tried_again() -> None:
    assert judge(for_code(4711)) is Verdict.REPORT


@pytest.mark.parametrize("error", [KafkaConnectionError("x"), KafkaTimeoutError("x"), MalformedResponseError("x")])
def test_a_connection_that_fails_makes_the_coordinator_doubtful(error: Exception) -> None:
    assert isinstance(error, KafkaConnectionError | KafkaTimeoutError | MalformedResponseError)
    assert judge(error) is Verdict.REDISCOVER


def test_refused_credentials_are_reported() -> None:
    assert judge(AuthenticationFailedError("no")) is Verdict.REPORT
