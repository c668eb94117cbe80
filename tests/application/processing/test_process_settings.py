"""``kafka_async.application.processing.process_settings``: arguments are checked before anything runs."""

from functools import partial
from typing import Any

import pytest

from kafka_async.functions import takes_context
from kafka_async.testing.simulation import FakeCluster
from tests.application.support import consumer_on


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"concurrency": 0}, ValueError, "concurrency=0: expected at least 1"),
        ({"concurrency": "10"}, TypeError, "concurrency='10': expected an integer"),
        ({"order": "keys"}, ValueError, "order='keys': expected \"key\""),
        ({"order": None}, TypeError, "order=None"),
        ({"order": lambda: "all"}, TypeError, "it cannot be called with 1 argument (too many positional arguments)"),
        ({"not_before": lambda record, now: 5}, TypeError, "1 argument (missing a required argument: 'now')"),
        ({"batch": 0}, ValueError, "batch=0"),
        ({"linger_ms": 5}, ValueError, "linger_ms=5: only batches"),
        ({"batch": 2, "linger_ms": -1}, ValueError, "linger_ms=-1"),
        ({"retry": 3}, TypeError, "retry=3: expected a Retry"),
        ({"on_failure": "ignore"}, ValueError, "on_failure='ignore'"),
        ({"on_failure": None}, TypeError, "on_failure=None"),
        ({"on_failure": lambda record: None}, TypeError, "it cannot be called with 3 arguments (too many positional arguments)"),
        ({"timeout_ms": 0}, ValueError, "timeout_ms=0: expected milliseconds, more than 0"),
        ({"stalled_after_ms": float("inf")}, ValueError, "stalled_after_ms=inf"),
        ({"drain_timeout_ms": True}, TypeError, "drain_timeout_ms=True"),
        ({"keep_done": 1}, TypeError, "keep_done=1"),
    ],
)
def test_bad_arguments_are_named_before_anything_runs(how: dict[str, Any], error: type[Exception], text: str) -> None:
    consumer = consumer_on(FakeCluster(), "t")
    with pytest.raises(error) as caught:
        consumer.processing(print, **how)
    assert text in str(caught.value)


def test_a_handler_must_be_callable() -> None:
    with pytest.raises(TypeError, match="handler='x': expected a function"):
        consumer_on(FakeCluster(), "t").processing("x")  # type: ignore[arg-type]


async def _of_nothing() -> None: ...


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (_of_nothing, r"1 argument \(too many positional arguments\); expected a function of a record"),
        (lambda record, context, more: None, r"2 arguments \(missing a required argument: 'more'\)"),
        (lambda record, *, where: None, r"1 argument \(missing a required .*'where'\)"),
        (partial(lambda record: None, 1), "1 argument "),
    ],
)
def test_a_handler_that_no_record_could_be_given_is_refused_before_all_become_dead_letters(handler: Any, why: str) -> None:
    with pytest.raises(TypeError, match="it cannot be called with " + why):
        consumer_on(FakeCluster(), "t").processing(handler)


@pytest.mark.parametrize(
    ("handler", "wants"),
    [
        (lambda record: None, False),
        (lambda record, context: None, True),
        (lambda record, other: None, True),
        (lambda record, context=None: None, True),
        (lambda record, other=None: None, False),
        (lambda record, *more: None, False),
        (lambda record, *, context: None, False),
        (print, False),
    ],
)
def test_a_handler_gets_a_context_if_it_has_room_for_one(handler: Any, wants: bool) -> None:
    assert takes_context(handler) is wants
