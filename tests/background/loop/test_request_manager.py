"""Backoff and the state of one kind of request."""

from math import inf

import pytest

from kafka_async.background.loop.request_manager import NEVER, Backoff, Poll, RequestState


def backoff(random: float = 0.5) -> Backoff:
    return Backoff(0.1, 1.0, lambda: random)


def test_failures_double_the_wait_up_to_the_limit() -> None:
    waits = []
    state = backoff()
    for _ in range(6):
        state.failed(10.0)
        waits.append(round(state.retry_at - 10.0, 6))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    state.succeeded()
    assert state.ready(0.0)
    state.failed(20.0)
    assert state.retry_at == pytest.approx(20.1)


@pytest.mark.parametrize(("random", "wait"), [(0.0, 0.08), (1.0, 0.12)])
def test_the_jitter_is_twenty_percent(random: float, wait: float) -> None:
    state = backoff(random)
    state.failed(0.0)
    assert state.retry_at == pytest.approx(wait)


def test_one_request_at_a_time_and_none_before_its_backoff() -> None:
    state = RequestState(backoff())
    assert state.may_send(5.0)
    state.sent()
    assert not state.may_send(1e9)
    assert state.wake_at() == NEVER == inf
    state.failed(5.0)
    assert not state.may_send(5.05)
    assert state.wake_at() == pytest.approx(5.1)
    assert state.may_send(5.11)
    state.sent()
    state.succeeded()
    assert state.may_send(0.0)


def test_a_manager_that_wants_nothing_never_wakes_the_loop() -> None:
    assert Poll() == Poll((), inf)
