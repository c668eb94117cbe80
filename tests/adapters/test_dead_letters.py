"""What the log says while dead letters cannot be written, what is too large, and which threads writing takes.

``test_processing_letters`` tests with brokers what is written.
"""

import logging
import threading
from collections.abc import Awaitable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from kafka_async import ConsumerRecord, Reject
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.adapters.retry_topics import RetryTopics
from kafka_async.errors import KafkaTimeoutError
from tests.testing.test_clusters import Run, on_both
from tests.virtual import run_virtual, run_virtual_asyncio


class _Producer:
    """Refuses writes until a moment, and those of one key for good."""

    def __init__(self, until: float = 0.0, refused: bytes = b"") -> None:
        self.until, self.refused = until, refused

    async def send_and_wait(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> None:
        if anyio.current_time() < self.until or key == self.refused:
            raise ConnectionError("nobody answers")


def _record(offset: int, key: bytes = b"k") -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("orders", 0, offset, 1, 0, key, b"v", (), None, 1, 1, None)


def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_writes_that_fail_are_one_warning_and_one_line_when_they_succeed_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    write = DeadLetters(_Producer(until=4.5), "orders-dead", group="billing")

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            for offset in (3, 6):
                tasks.start_soon(write, _record(offset), ValueError("no"), 1)

    run_virtual(both)
    warning = "[billing] a dead letter cannot be written to orders-dead; trying again (ConnectionError('nobody answers'))"
    recovered = "[billing] recovered: dead letters to orders-dead, after 5.0 s and 10 failures"
    assert _lines(caplog) == [("WARNING", warning), ("INFO", recovered)]


def test_a_letter_that_alone_is_refused_does_not_recover_because_others_are_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    write = DeadLetters(_Producer(refused=b"large"), "orders-dead", patience_ms=10_000)

    async def large() -> None:
        with pytest.raises(ConnectionError):
            await write(_record(9, b"large"), ValueError("no"), 1)

    async def beside_others() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(large)
            for offset in range(9):
                await write(_record(offset), ValueError("no"), 1)
                await anyio.sleep(0.5)

    run_virtual(beside_others)
    assert [level for level, _ in _lines(caplog)] == ["WARNING"]


def test_an_outage_in_which_every_write_was_cancelled_ends_with_the_next_write(caplog: pytest.LogCaptureFixture) -> None:
    """A rebalance cancels handlers and their writes. If nobody ended the outage, the next one would be silent."""
    caplog.set_level(logging.INFO)
    producer = _Producer(until=4.5)
    write = DeadLetters(producer, "orders-dead")

    async def twice() -> None:
        with anyio.move_on_after(2.5):
            await write(_record(3), ValueError("no"), 1)
        await anyio.sleep(5)
        await write(_record(4), ValueError("no"), 1)
        producer.until = anyio.current_time() + 0.5
        await write(_record(5), ValueError("no"), 1)

    run_virtual(twice)
    assert [level for level, _ in _lines(caplog)] == ["WARNING", "INFO", "WARNING", "INFO"]


_LIKELY = "the producer may not have been started, or its brokers may not be reachable"


class _Persistent:
    """Tries for as long as it takes, and never says that it fails, as an idempotent producer of aiokafka."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.sends = seconds, 0

    async def send_and_wait(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> None:
        self.sends += 1
        await anyio.sleep(self.seconds)


@on_both
def test_a_write_that_is_not_acknowledged_is_one_warning_and_no_other_write(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    producer = _Persistent(60.0)

    async def scenario() -> None:
        began = anyio.current_time()
        await DeadLetters(producer, "orders-dead")(_record(1), ValueError("no"), 1)
        assert anyio.current_time() - began == pytest.approx(60)

    run(scenario)
    assert producer.sends == 1
    assert [level for level, _ in _lines(caplog)] == ["WARNING", "INFO"]
    assert f"a dead letter to orders-dead has not been acknowledged for 10 s; waiting: {_LIKELY}" in caplog.text
    assert "recovered: dead letters to orders-dead, after 50.0 s and 1 failure" in caplog.text


@pytest.mark.parametrize("made", ["dead letters", "retry topics"])
def test_a_producer_of_aiokafka_that_was_not_started_is_named_as_the_likely_cause(
    made: str, caplog: pytest.LogCaptureFixture
) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed: pip install '.[test]'")

    async def scenario() -> None:
        producer = aiokafka.AIOKafkaProducer(acks="all")
        try:
            write: Any = (
                DeadLetters(producer, "orders-dead")
                if made == "dead letters"
                else RetryTopics(producer, delays=(60,), then="stop", group="billing")
            )
            with pytest.raises(KafkaTimeoutError, match=_LIKELY):
                await write(_record(1), ValueError("no"), 1)
        finally:
            await producer.stop()

    run_virtual_asyncio(scenario)
    [(level, text)] = _lines(caplog)
    assert level == "WARNING"
    assert "has not been acknowledged for 10 s" in text
    assert ("orders-dead" if made == "dead letters" else "orders.billing.retry.60") in text
    assert _LIKELY in text


@on_both
def test_a_producer_that_never_gives_up_is_waited_for_as_long_as_patience_says(run: Run) -> None:
    async def scenario() -> None:
        producer = _Persistent(100_000.0)
        began = anyio.current_time()
        with pytest.raises(
            KafkaTimeoutError, match=rf"dead letter to orders-dead was not acknowledged in time \(120 s\); {_LIKELY}"
        ) as caught:
            await DeadLetters(producer, "orders-dead")(_record(1), ValueError("no"), 1)
        assert anyio.current_time() - began == pytest.approx(120)
        assert caught.value.__cause__ is None
        with anyio.move_on_after(1_000) as scope:
            await DeadLetters(producer, "orders-dead", patience_ms=0)(_record(1), ValueError("no"), 1)
        assert scope.cancelled_caught, "one try, and the producer says when it is over"
        assert producer.sends == 2

    run(scenario)


def test_the_cause_of_a_timeout_is_the_last_failure() -> None:
    class Failing(_Persistent):
        async def send_and_wait(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> None:
            await super().send_and_wait(topic, value=value, key=key, headers=headers)
            raise ConnectionError("nobody answers")

    async def scenario() -> None:
        producer = Failing(50.0)
        with pytest.raises(KafkaTimeoutError) as caught:
            await DeadLetters(producer, "orders-dead")(_record(1), ValueError("no"), 1)
        assert anyio.current_time() == pytest.approx(120)
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert producer.sends == 3

    run_virtual(scenario)


class _Librdkafka:
    """Takes records, and delivers them once it is told to; reports come to whoever polls."""

    def __init__(self) -> None:
        self.undelivered: list[Any] = []
        self.delivers = threading.Event()
        self.polls, self.most_polls = 0, 0
        self._lock = threading.Lock()

    def produce(self, topic: str, value: bytes, key: bytes, headers: Any, on_delivery: Any) -> None:
        self.undelivered.append(on_delivery)

    def poll(self, seconds: float) -> None:
        with self._lock:
            self.polls += 1
            self.most_polls = max(self.most_polls, self.polls)
        if self.delivers.wait(seconds):
            while self.undelivered:
                self.undelivered.pop()(None, None)
        with self._lock:
            self.polls -= 1


async def test_letters_that_are_not_delivered_leave_the_threads_of_the_program_alone() -> None:
    producer = _Librdkafka()
    write = DeadLetters(producer, "orders-dead")
    async with anyio.create_task_group() as tasks:
        for offset in range(200):
            tasks.start_soon(write, _record(offset), ValueError("no"), 1)
        while len(producer.undelivered) < 200 or not producer.polls:
            await anyio.lowlevel.checkpoint()
        assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        with anyio.fail_after(10):
            assert await anyio.to_thread.run_sync(lambda: "an endpoint") == "an endpoint"
        producer.delivers.set()
    assert producer.most_polls == 1


async def test_a_producer_that_needs_no_start_is_not_said_to_lack_one() -> None:
    silent = r"was not acknowledged in time \(0\.05 s\); its brokers may not be reachable$"
    with pytest.raises(KafkaTimeoutError, match=silent):
        await DeadLetters(_Librdkafka(), "orders-dead", patience_ms=50)(_record(1), ValueError("no"), 1)


async def test_a_letter_whose_poll_was_cancelled_holds_up_no_other() -> None:
    producer = _Librdkafka()
    write = DeadLetters(producer, "orders-dead")
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.05):
            await write(_record(1), ValueError("no"), 1)
        tasks.start_soon(write, _record(2), ValueError("no"), 1)
        producer.delivers.set()


class _Limited:
    """Refuses what is too large, as aiokafka does."""

    class TooLargeError(Exception):
        errno = 10

    def __init__(self, most: int) -> None:
        self.most, self.tries = most, 0
        self.written: list[Any] = []

    async def send_and_wait(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> None:
        self.tries += 1
        if len(key) + len(value) > self.most:
            raise self.TooLargeError
        self.written.append((key, value, dict(headers)))


class _Batching:
    """Sends what comes within a moment together; a batch that is too large is refused as a whole, as brokers do."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.batch: list[int] = []
        self.written: list[Any] = []

    async def send_and_wait(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> None:
        batch = self.batch
        batch.append(len(key) + len(value))
        await anyio.sleep(0.1)
        if batch is self.batch:
            self.batch = []
        await anyio.sleep(0.1)
        if sum(batch) > self.most:
            raise _Limited.TooLargeError
        self.written.append((key, value, dict(headers)))


@on_both
def test_a_letter_that_was_too_large_together_with_others_is_written_as_it_is(run: Run) -> None:
    producer = _Batching(20)

    async def scenario() -> None:
        write = DeadLetters(producer, "orders-dead")
        async with anyio.create_task_group() as tasks:
            for offset in range(10):
                record = _record(offset, b"%d" % offset)._replace(value=b"x" * (100 if offset == 5 else 10))
                tasks.start_soon(write, record, ValueError("no"), 1)

    run(scenario)
    written = {key: (len(value), headers.get("dead-letter-value-left-out")) for key, value, headers in producer.written}
    assert written == {b"%d" % offset: (0, b"100") if offset == 5 else (10, None) for offset in range(10)}


def test_what_is_too_large_without_its_value_too_fails_at_once() -> None:
    producer = _Limited(5)

    async def scenario() -> None:
        write = DeadLetters(producer, "orders-dead")
        with pytest.raises(_Limited.TooLargeError):
            await write(_record(1, b"a long key"), ValueError("no"), 1)
        assert anyio.current_time() == 0
        await write(_record(2)._replace(value=b"a long value"), Reject("no"), 1)
        assert anyio.current_time() == 0

    run_virtual(scenario)
    [(key, value, headers)] = producer.written
    assert (key, value, headers["dead-letter-value-left-out"]) == (b"k", b"", b"12")
    assert headers["dead-letter-exception"] == b"kafka_async.Reject"


class _Batch:
    """Takes records of any kind, as aiokafka's batches do."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.closed = False

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any) -> None:
        self.records.append((key, value, dict(headers)))

    def close(self) -> None:
        self.closed = True


class _Particular:
    """Does not take a record with neither key nor value, unless in a batch, as aiokafka's producer."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def send_and_wait(self, topic: str, *, value: bytes | None, key: bytes | None, headers: Any) -> None:
        assert not (value is None and key is None), "Need at least one: key or value"

    def create_batch(self) -> _Batch:
        return _Batch()

    async def partitions_for(self, topic: str) -> set[int]:
        return {3}

    async def send_batch(self, batch: _Batch, topic: str, *, partition: int) -> Awaitable[None]:
        async def written() -> None:
            await anyio.sleep(1)
            assert batch.closed
            self.written.append((topic, partition, *batch.records))

        return written()


def test_a_record_with_neither_key_nor_value_is_written_as_it_is() -> None:
    producer = _Particular()

    async def scenario() -> None:
        await DeadLetters(producer, "orders-dead")(_record(1)._replace(key=None, value=None), ValueError("no"), 1)
        assert anyio.current_time() == 1

    run_virtual(scenario)
    [(topic, partition, (key, value, headers))] = producer.written
    assert (topic, partition, key, value, headers["dead-letter-offset"]) == ("orders-dead", 3, None, None, b"1")


def test_a_producer_that_does_not_take_such_data_fails_at_once() -> None:
    class Serializing:
        async def send_and_wait(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> None:
            raise TypeError("bytes are not serializable")

    async def scenario() -> None:
        with pytest.raises(TypeError, match="not serializable"):
            await DeadLetters(Serializing(), "orders-dead")(_record(1), ValueError("no"), 1)
        with pytest.raises(TypeError, match="expected the name of a topic"):
            await DeadLetters(_Producer(), lambda record: None)(_record(1), ValueError("no"), 1)  # type: ignore[arg-type, return-value]  # what is tested
        assert anyio.current_time() == 0

    run_virtual(scenario)
