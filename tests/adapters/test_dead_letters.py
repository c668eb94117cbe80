"""What the log says while dead letters cannot be written. ``test_processing_letters`` tests with brokers what is written."""

import logging
from typing import Any

import anyio
import pytest

from kafka_async import ConsumerRecord
from kafka_async.adapters.dead_letters import DeadLetters
from tests.virtual import run_virtual


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
