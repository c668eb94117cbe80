"""The policy of retries: numbers in, numbers out."""

from asyncio import CancelledError
from typing import Any

import pytest

from kafka_async.application.processing.retry import Reject, Retry, RetryLater, exponential

FAILURE = OSError("down")


def test_the_number_of_attempts_includes_the_first() -> None:
    policy = Retry(attempts=3, delay=2)
    assert [policy.after(attempt, FAILURE) for attempt in (1, 2, 3)] == [2.0, 2.0, None]
    assert Retry(attempts=1).after(1, FAILURE) is None


def test_only_the_named_exceptions_are_tried_again() -> None:
    policy = Retry(attempts=5, on=(OSError, KeyError))
    assert policy.after(1, TimeoutError()) == 0.0
    assert policy.after(1, KeyError()) == 0.0
    assert policy.after(1, ValueError()) is None


@pytest.mark.parametrize("leak", [CancelledError, GeneratorExit])
def test_what_a_handler_leaks_of_what_it_awaits_is_tried_again_as_any_failure_is(leak: type[BaseException]) -> None:
    assert Retry(attempts=2).after(1, leak()) == 0.0
    assert Retry(attempts=2).after(2, leak()) is None
    assert Retry(attempts=2, on=OSError).after(1, leak()) is None


def test_a_group_is_tried_again_if_all_in_it_are() -> None:
    policy = Retry(attempts=5, on=OSError)
    assert policy.after(1, ExceptionGroup("", [OSError(), ExceptionGroup("", [TimeoutError()])])) == 0.0
    assert policy.after(1, ExceptionGroup("", [OSError(), ValueError()])) is None


def test_the_handler_has_the_last_word() -> None:
    policy = Retry(attempts=1, on=OSError)
    assert policy.after(100, RetryLater(30)) == 30.0
    assert Retry(attempts=9).after(1, Reject()) is None


def test_a_callable_gets_the_attempt_and_the_error() -> None:
    seen: list[Any] = []

    def delay(attempt: int, error: BaseException) -> float:
        seen.append((attempt, error))
        return attempt * 10

    policy = Retry(attempts=9, delay=delay)
    assert [policy.after(attempt, FAILURE) for attempt in (1, 2)] == [10.0, 20.0]
    assert seen == [(1, FAILURE), (2, FAILURE)]


def test_a_callable_that_returns_no_number_is_an_error() -> None:
    with pytest.raises(TypeError, match="delay='soon'"):
        Retry(attempts=2, delay=lambda attempt, error: "soon").after(1, FAILURE)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="delay=-1"):
        Retry(attempts=2, delay=lambda attempt, error: -1).after(1, FAILURE)


def test_an_exponential_delay_doubles_up_to_its_bound() -> None:
    longest = exponential(0.5, 30, random=lambda: 0.0)
    assert [longest(attempt, FAILURE) for attempt in (1, 2, 3, 6, 7, 8, 10_000)] == [0.5, 1, 2, 16, 30, 30, 30]
    shortest = exponential(0.5, 30, random=lambda: 1.0)
    assert [shortest(attempt, FAILURE) for attempt in (1, 2, 10_000)] == [0.25, 0.5, 15]


def test_the_jitter_differs_from_one_delay_to_the_next() -> None:
    delay = exponential(1, 1)
    found = {delay(1, FAILURE) for _ in range(20)}
    assert len(found) > 1
    assert all(0.5 <= seconds <= 1 for seconds in found)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"attempts": 0}, ValueError, "attempts=0"),
        ({"attempts": 1.5}, TypeError, "attempts=1.5"),
        ({"attempts": True}, TypeError, "attempts=True"),
        ({"attempts": 2, "delay": "1"}, TypeError, "delay='1'"),
        ({"attempts": 2, "delay": -1}, ValueError, "delay=-1"),
        ({"attempts": 2, "delay": float("nan")}, ValueError, "delay=nan"),
        ({"attempts": 2, "on": ()}, TypeError, r"on=\(\)"),
        ({"attempts": 2, "on": "OSError"}, TypeError, "on='OSError'"),
        ({"attempts": 2, "on": (KeyboardInterrupt,)}, TypeError, "on="),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Retry(**arguments)


def test_bad_delays_are_named() -> None:
    with pytest.raises(ValueError, match="most=1"):
        exponential(2, 1)
    with pytest.raises(TypeError, match="first=None"):
        exponential(None, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds=-1"):
        RetryLater(-1)
