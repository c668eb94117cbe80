"""Retry topics without a cluster: which topic comes next, what the headers say, when a record is due, and what goes to ``then``."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import ConsumerRecord, Reject
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.adapters.retry_topics import RetryTopics
from kafka_async.application.processing.redelivery import Redelivered, origin_of
from kafka_async.errors import DeserializationError, KafkaConnectionError, ProcessingError
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from tests.virtual import run_virtual

Record = ConsumerRecord[Any, Any]
NOW = 1_700_000_000_000


class _TooLargeError(Exception):
    errno = 10


@define(eq=False)
class _Producer:
    """Keeps what was written, as a consumer would get it."""

    refuses: Callable[[str], Exception | None] = field(default=lambda topic: None)
    written: list[Record] = field(factory=list)

    async def send_and_wait(self, topic: str, *, value: bytes | None, key: bytes | None, headers: Any) -> None:
        if (error := self.refuses(topic)) is not None:
            raise error
        self.written.append(record(topic, offset=len(self.written), key=key, value=value, headers=headers))


def record(
    topic: str = "orders",
    *,
    offset: int = 7,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[tuple[str, bytes | None]] = (),
    partition: int = 3,
    timestamp: int = NOW,
) -> Record:
    return ConsumerRecord(topic, partition, offset, timestamp, 0, key, value, tuple(headers), None, 1, 1, None)


@define(eq=False)
class _End:
    """What ``then`` was given."""

    got: list[tuple[Record, BaseException, int]] = field(factory=list)

    async def __call__(self, record: Record, error: BaseException, attempts: int) -> None:
        self.got.append((record, error, attempts))


def _retries(producer: Any, then: Any = "stop", delays: Sequence[int] = (60, 600), **more: Any) -> RetryTopics:
    return RetryTopics(producer, delays=delays, then=then, **more).for_group("billing", lambda: NOW)


def _call(retry: RetryTopics, failed: Record, error: BaseException, attempts: int = 1) -> object:
    async def call() -> object:
        return await retry(failed, error, attempts)

    return run_virtual(call)


def _headers(found: Record) -> dict[str, bytes | None]:
    assert len(found.headers) == len(dict(found.headers))
    return dict(found.headers)


def test_what_no_handler_had_is_counted_as_no_attempt() -> None:
    producer, end = _Producer(), _End()
    retry = _retries(producer, end)
    _call(retry, record(), ValueError("no time"), 0)
    assert _headers(producer.written[0])["retry-attempts"] == b"0"
    had_three = record("orders.billing.retry.60", headers=(("retry-attempts", b"3"),))
    _call(retry, had_three, DeserializationError("x"), 0)
    _call(retry, had_three, Reject("x"), 1)
    assert [attempts for _, _, attempts in end.got] == [3, 4]


def test_a_record_goes_through_the_delays_and_to_then_as_it_was_first() -> None:
    producer, end = _Producer(), _End()
    retry = _retries(producer, end)
    first = record(headers=(("trace", b"\xff\x00"), ("none", None)))
    assert _call(retry, first, ValueError("x"), 2) == Redelivered("tried again in 60 s through orders.billing.retry.60")
    (again,) = producer.written
    assert (again.topic, again.key, again.value) == ("orders.billing.retry.60", b"k", b"v")
    assert _headers(again) == {
        "trace": b"\xff\x00",
        "none": None,
        "retry-topic": b"orders",
        "retry-partition": b"3",
        "retry-offset": b"7",
        "retry-timestamp": b"%d" % NOW,
        "retry-attempts": b"2",
        "retry-due": b"%d" % (NOW + 60_000),
        "retry-exception": b"builtins.ValueError",
    }
    assert retry.attempts_before(again) == 2
    assert retry.not_before(again) == NOW + 60_000
    _call(retry, again, KeyError("y"), 3)
    last = producer.written[-1]
    assert last.topic == "orders.billing.retry.600"
    changed = {"retry-attempts": b"3", "retry-due": b"%d" % (NOW + 600_000), "retry-exception": b"builtins.KeyError"}
    assert _headers(last) == _headers(again) | changed
    error = KeyError("z")
    assert _call(retry, last, error, 4) is None
    assert end.got == [(first, error, 4)]


def test_a_dead_letter_says_where_the_record_was_first() -> None:
    producer = _Producer()
    retry = _retries(producer, DeadLetters(producer, "dead"), (60,))
    _call(retry, record(), ValueError("x"), 1)
    _call(retry, producer.written[0], ValueError("x"), 2)
    headers = _headers(producer.written[1])
    names = ("dead-letter-topic", "dead-letter-partition", "dead-letter-offset", "dead-letter-attempts")
    assert [headers[name] for name in names] == [b"orders", b"3", b"7", b"2"]
    assert not any(name.startswith("retry-") for name in headers)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=5),
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
    st.integers(1, 100),
)
def test_headers_never_pile_up_and_bytes_stay_as_they_are(
    headers: list[tuple[str, bytes | None]], key: bytes | None, value: bytes | None, rounds: int
) -> None:
    producer = _Producer()
    retry = _retries(producer, delays=range(1, rounds + 1))
    now = record(key=key, value=value, headers=headers)

    async def go() -> None:
        nonlocal now
        for attempt in range(rounds):
            await retry(now, ValueError(), attempt + 1)
            now = producer.written[-1]

    run_virtual(go)
    assert (now.key, now.value) == (key, value)
    assert now.headers[:-7] == tuple(header for header in headers if not header[0].startswith("retry-"))
    assert [header[0] for header in now.headers[-7:]].count("retry-topic") == 1
    assert retry.attempts_before(now) == rounds
    assert origin_of(now) == "orders"


def _useless() -> list[BaseException]:
    refused = DeserializationError("no JSON", record=record())
    return [Reject(), refused, ProcessingError("no route"), ExceptionGroup("", [ValueError(), Reject()])]


@pytest.mark.parametrize("error", _useless(), ids=lambda error: type(error).__name__)
def test_what_another_attempt_does_not_help_goes_to_then_at_once(error: BaseException) -> None:
    producer, end = _Producer(), _End()
    failed = record()
    assert _call(_retries(producer, end), failed, error, 1) is None
    assert (producer.written, end.got) == ([], [(failed, error, 1)])


def test_what_another_attempt_may_help_is_tried_again() -> None:
    producer = _Producer()
    for error in (ValueError(), KafkaConnectionError(), TimeoutError(), ExceptionGroup("", [ValueError()])):
        assert isinstance(_call(_retries(producer), record(), error), Redelivered)
    assert len(producer.written) == 4


def test_then_may_stop_skip_or_be_a_plain_function() -> None:
    error = Reject("bad")
    with pytest.raises(Reject, match="bad"):
        _call(_retries(_Producer(), "stop"), record(), error)
    assert _call(_retries(_Producer(), "skip"), record(), error) is None
    got: list[int] = []
    _call(_retries(_Producer(), lambda record, error, attempts: got.append(attempts)), record(), error, 5)
    assert got == [5]
    with pytest.raises(TypeError, match="then returned the function"):
        _call(_retries(_Producer(), lambda record, error, attempts: lambda: None), record(), error)


async def test_a_plain_then_keeps_neither_a_shutdown_nor_the_program_waiting(caplog: pytest.LogCaptureFixture) -> None:
    began, ends, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def hang(*_: object) -> None:
        threads.append(threading.current_thread())
        began.set()
        ends.wait(60)

    retry = _retries(_Producer(), hang)
    with anyio.move_on_after(60) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retry, record(), Reject("bad"), 1)
            while not began.is_set():  # noqa: ASYNC110  # set on a thread
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert threads[0].daemon, "the interpreter may exit"
    assert threads[0].is_alive()
    assert "orders-3 at offset 7: then goes on though its time is over" in caplog.text
    ends.set()
    threads[0].join(60)


def test_a_copy_that_is_too_large_goes_to_then(caplog: pytest.LogCaptureFixture) -> None:
    producer, end = _Producer(lambda topic: _TooLargeError()), _End()
    failed, error = record(), ValueError()
    _call(_retries(producer, end), failed, error)
    assert end.got == [(failed, error, 1)]
    assert "orders-3 at offset 7 is too large for orders.billing.retry.60" in caplog.text


def test_a_write_that_fails_is_tried_again_and_raises_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    producer, until = _Producer(), 4.5
    producer.refuses = lambda topic: ConnectionError("nobody answers") if anyio.current_time() < until else None
    assert isinstance(_call(_retries(producer), record(), ValueError()), Redelivered)
    assert [line.levelname for line in caplog.records] == ["WARNING", "INFO"]
    assert "a retry record cannot be written to orders.billing.retry.60; trying again" in caplog.text
    until = 1e9
    with pytest.raises(ConnectionError):
        _call(_retries(producer, patience_ms=10_000), record(), ValueError())


@pytest.mark.parametrize(
    ("header", "due"),
    [
        (b"%d" % (NOW + 5_000), NOW + 5_000),
        (b"%d" % (NOW - 5_000), NOW - 5_000),
        (b"%d" % (NOW + 10**12), NOW + 60_000),
        (b"soon", NOW + 40_000),
        (b"-3", NOW + 40_000),
        (b"\xff", NOW + 40_000),
        (b"", NOW + 40_000),
        (None, NOW + 40_000),
    ],
)
def test_a_record_never_waits_longer_than_the_delay_of_its_topic(header: bytes | None, due: int) -> None:
    found = record("orders.billing.retry.60", headers=[("retry-due", b"1"), ("retry-due", header)], timestamp=NOW - 20_000)
    assert _retries(_Producer()).not_before(found) == due


def test_records_of_other_topics_are_due_and_have_had_no_attempts() -> None:
    retry = _retries(_Producer())
    for topic in ("orders", "orders.other.retry.60", "orders.billing.retry.x", ".billing.retry.60", "orders.billing.retry.06"):
        found = record(topic, headers=[("retry-due", b"%d" % (NOW + 9)), ("retry-attempts", b"3")])
        assert (retry.not_before(found), retry.attempts_before(found), retry.serves(topic)) == (None, 0, False)


def test_what_was_written_there_by_hand_has_the_topic_for_an_origin() -> None:
    producer = _Producer()
    found = record("orders.billing.retry.60", headers=[("retry-topic", b"payments"), ("retry-attempts", b"many")])
    _call(_retries(producer), found, ValueError(), 1)
    headers = _headers(producer.written[0])
    assert (producer.written[0].topic, headers["retry-topic"], headers["retry-attempts"]) == (
        "orders.billing.retry.600",
        b"orders",
        b"1",
    )


@pytest.mark.parametrize(("seconds", "following"), [(30, "60"), (60, "600"), (70, "600"), (600, None), (3600, None)])
def test_after_a_delay_that_is_no_longer_in_use_comes_a_longer_one(seconds: int, following: str | None) -> None:
    producer, end = _Producer(), _End()
    _call(_retries(producer, end), record(f"orders.billing.retry.{seconds}"), ValueError())
    assert [found.topic for found in producer.written] == ([] if following is None else [f"orders.billing.retry.{following}"])
    assert len(end.got) == (following is None)


def test_topics_are_named_after_topic_group_and_delay() -> None:
    retry = RetryTopics(_Producer(), delays=(5, 60), then="skip")
    names = ["orders.billing.retry.5", "orders.billing.retry.60"]
    assert retry.topics("orders", "billing") == names
    assert retry.topics(["orders", *names], "billing") == names
    assert retry.for_group("billing").topics(["b", "a"]) == [f"{t}.billing.retry.{s}" for t in ("a", "b") for s in (5, 60)]
    assert RetryTopics(_Producer(), then="skip", delays=(5,), group="own").topics("t", "billing") == ["t.own.retry.5"]
    assert RetryTopics(_Producer(), then="skip", delays=(5,), group="own").for_group("billing").topics("t") == ["t.own.retry.5"]


def test_names_that_no_topic_can_have_are_refused() -> None:
    retry = RetryTopics(_Producer(), then="skip")
    with pytest.raises(ValueError, match="after a group: give the consumer a group_id"):
        retry.topics("orders")
    with pytest.raises(ValueError, match="give the consumer a group_id"):
        retry.for_group(None)
    with pytest.raises(ValueError, match="group='my group': the names of retry topics contain it"):
        retry.for_group("my group")
    with pytest.raises(ValueError, match="expected 1 to 249 letters"):
        retry.topics("o" * 240, "billing")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"delays": ()}, "expected at least one"),
        ({"delays": (60, 60)}, "each another one"),
        ({"delays": (0,)}, "1 or more"),
        ({"delays": (0.5,)}, "whole seconds"),
        ({"delays": (True,)}, "whole seconds"),
        ({"delays": 60}, "such as"),
        ({"delays": "60"}, "such as"),
        ({"then": "release"}, 'expected "stop", "skip" or a function'),
        ({"then": DeadLetters}, "it is a class"),
        ({"then": None}, 'expected "stop"'),
        ({"producer": object()}, "expected aiokafka's"),
        ({"patience_ms": -1}, "0 or more"),
        ({"group": "a b"}, "letters, digits"),
    ],
)
def test_bad_arguments_are_named(how: dict[str, Any], text: str) -> None:
    given_ = {"producer": _Producer(), "then": "skip", **how}
    with pytest.raises((TypeError, ValueError), match=text):
        RetryTopics(given_.pop("producer"), **given_)


@pytest.mark.parametrize(
    ("topic", "header", "origin"),
    [
        ("orders", b"payments", "orders"),
        ("orders.billing.retry.60", b"orders", "orders"),
        ("orders.eu.billing.retry.60", b"orders.eu", "orders.eu"),
        ("orders.billing.retry.60", b"payments", "orders.billing.retry.60"),
        ("orders.billing.retry.60", None, "orders.billing.retry.60"),
        ("orders.billing.retry.x", b"orders", "orders.billing.retry.x"),
    ],
)
def test_the_origin_of_a_record_is_in_its_header_if_its_topic_agrees(topic: str, header: bytes | None, origin: str) -> None:
    assert origin_of(record(topic, headers=[("retry-topic", header)])) == origin


class _Librdkafka:
    """A producer that belongs to no event loop."""

    def produce(self, topic: str) -> None: ...
    def poll(self, seconds: float) -> None: ...


def test_a_consumer_without_an_event_loop_can_use_what_belongs_to_none() -> None:
    own, loopless = _Producer(), _Librdkafka()
    assert DeadLetters(loopless, "dead").any_loop
    assert not DeadLetters(own, "dead").any_loop
    any_loop: list[Any] = ["skip", lambda record, error, attempts: None, DeadLetters(loopless, "dead")]
    own_loop: list[Any] = [_End(), DeadLetters(own, "dead")]
    for then in any_loop:
        assert RetryTopics(loopless, then=then).any_loop
        assert not RetryTopics(own, then=then).any_loop
    for then in own_loop:
        assert not RetryTopics(loopless, then=then).any_loop
    consumer: BlockingConsumer[Any, Any] = BlockingConsumer("t", bootstrap_servers="nowhere:1", group_id="g")
    consumer.processing(print, on_failure=RetryTopics(loopless, then="skip"))
    with pytest.raises(TypeError, match="expected a plain function"):
        consumer.processing(print, on_failure=RetryTopics(own, then="skip"))
