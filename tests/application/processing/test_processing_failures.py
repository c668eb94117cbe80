"""Handlers that fail, take too long or decide for themselves; records that cannot be deserialized."""

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from attrs import Factory, define

from kafka_async import (
    ConsumerInterceptor,
)
from kafka_async.application.processing.context import ProcessingContext
from kafka_async.application.processing.retry import Failed, Reject, Retry, RetryLater, Skip, exponential
from kafka_async.application.processing.statistics import PROCESSING
from kafka_async.errors import (
    DeserializationError,
    ProcessingError,
)
from tests.application.support import virtual

from .world import Record, processed, until, world


@define(eq=False)
class Failing:
    """A handler that fails for some offsets, the first few times."""

    times: dict[int, int]
    error: Callable[[], BaseException] = lambda: OSError("down")
    calls: list[tuple[int, float, int]] = Factory(list)
    done: list[int] = Factory(list)

    async def __call__(self, record: Record, context: ProcessingContext) -> None:
        self.calls.append((record.offset, anyio.current_time(), context.attempt))
        if context.attempt <= self.times.get(record.offset, 0):
            raise self.error()
        self.done.append(record.offset)

    def attempts(self, offset: int) -> list[int]:
        return [attempt for known, _, attempt in self.calls if known == offset]


ALWAYS = 10**6


@virtual
async def test_a_record_is_tried_again_and_only_its_lane_waits() -> None:
    some = world()
    some.produce(10, keys=2)
    failing = Failing({0: 2})
    async with processed(some, failing, retry=Retry(attempts=3, delay=1.0)) as run:
        await until(lambda: failing.done == [1, 3, 5, 7, 9])
        assert run.statistics().retrying == 1
        await until(lambda: len(failing.done) == 10)
        assert (run.statistics().failures, run.statistics().attempts) == (2, 12)
    assert failing.done[5:] == [0, 2, 4, 6, 8]
    times = [time for offset, time, _ in failing.calls if offset == 0]
    assert times[1] - times[0] == pytest.approx(1.0, abs=0.01)
    assert some.committed() == 10


@pytest.mark.slow
@virtual
async def test_half_of_the_records_fail_over_and_over_and_memory_is_bounded() -> None:
    some = world()
    some.produce(2_000, keys=1_000)
    failing = Failing(dict.fromkeys(range(0, 2000, 2), 3))
    async with processed(some, failing, retry=Retry(attempts=9, delay=exponential(0.1, 1)), concurrency=10) as run:
        held = 0
        while len(failing.done) < 2_000:
            await anyio.sleep(0.05)
            found = run.statistics()
            held = max(held, found.running + found.waiting + found.retrying - found.held_up)
            assert found.held_up_bytes < 2_000 * 1_000
        assert held <= 110, "and only those that were held up and are due come on top"
    assert some.committed() == 2_000


@pytest.mark.slow
@virtual
async def test_records_that_wait_for_long_keep_only_their_own_lanes_waiting() -> None:
    some = world()
    some.produce(8_000, keys=100)
    unwell = {b"k7", b"k50"}

    async def handle(record: Record) -> None:
        if record.key in unwell and anyio.current_time() < 600:
            raise RetryLater(600)
        await some.handle(record)

    async with processed(some, handle, concurrency=4) as run:
        await until(lambda: len(some.done) >= 7_840, 60)
        found = run.statistics()
        assert (found.retrying, found.held_up, found.full, found.far_ahead) == (2, 160, False, 0)
        assert found.held_up_bytes > 160 * 512
        assert found.waiting + found.running == 158, "behind those that wait"
        await until(lambda: len(some.done) == 8_000, 700)
        await run.drain()
        assert run.statistics().held_up == 0
    for key in unwell:
        offsets = [record.offset for record in some.done if record.key == key]
        assert offsets == sorted(offsets)
    assert some.committed() == 8_000


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("failing", ["records", "keys"])
async def test_records_that_fail_for_good_do_not_slow_the_others_down(failing: str) -> None:
    """The README's retry, with 2 % of the records, or of the keys, failing."""
    some = world(partitions=2)
    for partition in range(2):
        some.produce(10_000, keys=1_000, partition=partition)
    letters: list[int] = []

    def is_unwell(record: Record) -> bool:
        number = int(record.key[1:]) if failing == "keys" else (record.offset * 7919) % 10_007
        return number % 50 == 0

    async def handle(record: Record) -> None:
        await anyio.sleep(0.01)
        if is_unwell(record):
            raise OSError("down")
        some.done.append(record)

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(record.offset)

    retry = Retry(attempts=5, delay=exponential(0.5, 30))
    async with processed(some, handle, concurrency=20, retry=retry, on_failure=write):
        began = anyio.current_time()
        await until(lambda: len(some.done) >= 18_000, 100)
        seconds = anyio.current_time() - began
    assert seconds < 1.25 * 18_000 * 0.01 / 20


@pytest.mark.slow
@virtual
async def test_too_much_that_waits_for_later_is_said_once_and_stops_only_its_partitions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_async")
    monkeypatch.setattr("kafka_async.application.processing.work.MOST_HELD_UP", 50 * 600)
    some = world(partitions=2)
    some.produce(200, keys=200)
    some.produce(200, keys=200, partition=1)

    async def handle(record: Record) -> None:
        if record.partition == 0 and anyio.current_time() < 100:
            raise RetryLater(100 - anyio.current_time())
        await some.handle(record)

    async with processed(some, handle, concurrency=4) as run:
        await until(lambda: len(some.done) == 200, 50)
        found = run.statistics()
        assert found.full
        assert 50 <= found.retrying == found.held_up < 100
        await until(lambda: len(some.done) == 400, 200)
        assert not run.statistics().full
    said = [entry.message for entry in caplog.records if "which is the limit" in entry.message or "recovered" in entry.message]
    assert len(said) == 2
    assert "no more is read of their partitions" in said[0]


@virtual
async def test_the_last_failure_stops_everything_and_nothing_is_skipped() -> None:
    some = world()
    some.produce(10, keys=10)
    failing = Failing({4: ALWAYS})

    async def handle(record: Record, context: ProcessingContext) -> None:
        await anyio.sleep(0.1)
        await failing(record, context)

    async with some.consumer() as consumer:
        with pytest.raises(ProcessingError, match=r"t-0 at offset 4 failed after attempt 2: OSError\('down'\)") as caught:
            async with consumer.processing(handle, retry=Retry(attempts=2, delay=0.5)):
                await anyio.sleep_forever()
        assert (caught.value.record.offset, caught.value.attempts) == (4, 2)
        assert isinstance(caught.value.__cause__, OSError)
        assert some.committed() == 4
        assert await consumer.position(some.partitions[0]) == 4
        failing.times.clear()
        failing.calls.clear()
        async with consumer.processing(handle) as again:
            await until(lambda: bool(failing.calls))
            await again.drain()
        assert {offset for offset, _, _ in failing.calls} == {4}, "the rest was done and is remembered"
    assert some.committed() == 10


@virtual
async def test_skipped_records_are_logged_each(caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(10)
    failing = Failing(dict.fromkeys(range(5), ALWAYS))
    async with processed(some, failing, on_failure="skip") as run:
        await until(lambda: len(failing.done) == 5)
        await run.drain()
        assert run.statistics().skipped == 5
    said = [entry.message.partition("] ")[2] for entry in caplog.records if "skipped" in entry.message]
    assert [f"t-0 at offset {offset}: skipped after attempt 1 (OSError('down'))" for offset in range(5)] == said
    assert some.committed() == 10


@virtual
async def test_a_dead_letter_is_written_before_the_record_counts_as_done() -> None:
    some = world()
    some.produce(3)
    letters: list[tuple[int, str, int]] = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        await anyio.sleep(60)  # a producer that is down for a minute
        letters.append((record.offset, repr(error), attempts))

    failing = Failing({1: ALWAYS})
    async with processed(
        some, failing, retry=Retry(attempts=2), on_failure=write, consumer={"auto_commit_interval_ms": 500}
    ) as run:
        await anyio.sleep(30)
        assert some.committed() == 1
        await until(lambda: bool(letters))
        await run.drain()
        assert run.statistics().dead_letters == 1
    assert letters == [(1, "OSError('down')", 2)]
    assert some.committed() == 3


@virtual
async def test_a_dead_letter_that_cannot_be_written_stops_everything() -> None:
    some = world()
    some.produce(3)

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        raise ConnectionError("the producer is down too")

    with pytest.raises(ProcessingError, match="the producer is down too") as caught:
        async with processed(some, Failing({1: ALWAYS}), on_failure=write):
            await anyio.sleep_forever()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert isinstance(caught.value.__cause__.__context__, OSError)
    assert some.committed() == 1


@virtual
async def test_what_is_no_exception_of_a_dead_letter_ends_it_as_it_is() -> None:
    some = world()
    some.produce(5)

    async def refuse(record: Record) -> None:
        if record.offset == 3:
            raise ValueError("no")

    async def leave(record: Record, error: BaseException, attempts: int) -> None:
        raise SystemExit(3)

    async with some.consumer() as consumer:
        with pytest.raises(SystemExit):
            await consumer.process(refuse, on_failure=leave)
        assert some.committed() == 3


@virtual
async def test_the_handler_may_decide_for_itself() -> None:
    some = world()
    some.produce(4)
    letters = []
    calls: list[tuple[int, float]] = []

    async def handle(record: Record, context: ProcessingContext) -> None:
        calls.append((record.offset, anyio.current_time()))
        if record.offset == 1 and context.attempt == 1:
            raise RetryLater(30)
        if record.offset == 2:
            raise Skip("a duplicate")
        if record.offset == 3:
            raise Reject("not for us")

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, attempts))

    async with processed(some, handle, retry=Retry(attempts=5), on_failure=write) as run:
        await anyio.sleep(40)
        await run.drain()
        found = run.statistics()
    times = [time for offset, time in calls if offset == 1]
    assert times[1] - times[0] == pytest.approx(30, abs=0.1)
    assert letters == [(3, 1)]
    assert (found.skipped, found.dead_letters) == (1, 1)
    assert some.committed() == 4


@virtual
async def test_a_record_that_cannot_be_deserialized_goes_to_on_failure_with_its_bytes(caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(5)

    def integer(data: bytes) -> int:
        if data == b"2":
            raise ValueError("not a number that we like")
        return int(data)

    letters = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, record.value, type(error), attempts))

    seen = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    async with processed(some, handle, retry=Retry(attempts=5), on_failure=write, consumer={"value_deserializer": integer}) as run:
        await until(lambda: len(seen) == 4)
        await run.drain()
    assert seen == [0, 1, 3, 4]
    assert letters == [(2, b"2", DeserializationError, 0)]
    assert some.committed() == 5
    (said,) = [entry.getMessage() for entry in caplog.records]
    assert "t-0 at offset 2: dead letter before a handler had it, since it cannot be deserialized (DeserializationError(" in said


def _refuse(data: bytes | Record) -> Any:
    raise ValueError("not for a handler")


@pytest.mark.parametrize("how", ["deserializer", "order", "not_before"])
@virtual
async def test_a_record_that_no_handler_had_has_had_no_attempt(how: str, caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(1)
    options: dict[str, Any] = {"consumer": {"value_deserializer": _refuse}} if how == "deserializer" else {how: _refuse}
    why = ", since it cannot be deserialized" if how == "deserializer" else ""
    letters = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(attempts)

    async with processed(some, on_failure=write, retry=Retry(attempts=5), **options) as run:
        await until(lambda: bool(letters))
        await run.drain()
        assert run.statistics().attempts == 0
    assert letters == [0]
    assert f"t-0 at offset 0: dead letter before a handler had it{why} (" in caplog.text
    some = world()
    some.produce(1)
    with pytest.raises(
        ProcessingError, match=f"^t-0 at offset 0 failed before a handler had it{why}: .*not for a handler"
    ) as caught:
        async with processed(some, **options) as run:
            await run.wait()
    assert caught.value.attempts == 0


@pytest.mark.parametrize("batch", [None, 2])
@virtual
async def test_a_record_whose_order_cannot_be_told_is_not_tried_again_whatever_says_so(batch: int | None) -> None:
    """``Failed`` is for handlers of batches: it decides about records that these were given."""
    some = world()
    some.produce(3)
    letters = []

    def order(record: Record) -> Any:
        if record.offset == 1:
            raise Failed(0, ValueError("not for a handler"))

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, type(error), attempts))

    async def handle(argument: Any) -> None: ...

    async with processed(some, handle, order=order, on_failure=write, retry=Retry(attempts=5, delay=1.0), batch=batch) as run:
        await until(lambda: some.committed() == 3)
        assert (run.statistics().failures, run.statistics().retrying) == (1, 0)
    assert letters == [(1, Failed, 0)]


class Named:
    """What a deserializer may make of a key: equal to nothing but itself."""

    def __init__(self, data: bytes) -> None:
        self.data = data


@virtual
@pytest.mark.parametrize("made", [Named, lambda data: {"key": data}], ids=["no equality", "no hash"])
async def test_the_lane_of_a_key_is_its_bytes_whatever_a_deserializer_makes_of_them(made: Any) -> None:
    some = world()
    some.produce(40, keys=4)
    seen: list[tuple[Any, int]] = []

    async def handle(record: Record) -> None:
        key = record.key.data if isinstance(record.key, Named) else record.key["key"]
        await anyio.sleep(0.2 if record.offset < 8 else 0.01)
        seen.append((key, record.offset))

    async with processed(some, handle, concurrency=20, consumer={"key_deserializer": made}):
        await until(lambda: len(seen) == 40)
    for key in {key for key, _ in seen}:
        offsets = [offset for other, offset in seen if other == key]
        assert offsets == sorted(offsets)
        assert len(offsets) == 10


@virtual
@pytest.mark.parametrize("raw", [True, False])
async def test_on_failure_may_ask_for_the_bytes_of_a_record(raw: bool) -> None:
    some = world()
    some.produce(30)
    letters: list[tuple[int, Any]] = []

    class Letters:
        raw_records = raw

        async def __call__(self, record: Record, error: BaseException, attempts: int) -> None:
            letters.append((record.offset, record.value))

    class Leaving(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            return {tp: [record for record in some if record.offset % 3] for tp, some in records.items()}

        def on_commit(self, offsets: Any) -> None:
            return

    async def handle(record: Record) -> None:
        if record.offset % 2:
            raise Reject

    how = {"value_deserializer": int, "interceptors": [Leaving()]}
    async with processed(some, handle, on_failure=Letters(), consumer=how):
        await until(lambda: len(letters) == 10)
    assert sorted(letters) == [(n, b"%d" % n if raw else n) for n in range(30) if n % 2 and n % 3]
    assert some.committed() == 30


@virtual
async def test_metrics_show_what_statistics_show_while_it_runs() -> None:
    some = world()
    some.produce(20)
    async with some.consumer() as consumer:
        assert PROCESSING not in consumer.metrics()
        async with consumer.processing(some.handle, on_failure="skip") as run:
            await until(lambda: len(some.done) == 20)
            found = consumer.metrics()[PROCESSING]
            assert found == run.statistics().metrics()
            assert found["records-handled-total"] == found["attempt-total"] == 20
            assert found["handler-time-total"] == pytest.approx(200, abs=1)
        assert PROCESSING not in consumer.metrics()


@virtual
async def test_an_attempt_that_takes_too_long_is_a_failure() -> None:
    some = world()
    some.produce(3)
    letters = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, type(error)))

    some.seconds = lambda record: 1_000 if record.offset == 1 else 0.01
    async with processed(some, timeout_ms=500, on_failure=write) as run:
        await until(lambda: bool(letters))
        await run.drain()
    assert letters == [(1, TimeoutError)]
    assert some.committed() == 3


@virtual
async def test_an_exception_group_is_a_failure_like_any_other() -> None:
    some = world()
    some.produce(3)
    failing = Failing({1: 1}, error=lambda: ExceptionGroup("two", [OSError(), OSError()]))
    async with processed(some, failing, retry=Retry(attempts=2, on=OSError)):
        await until(lambda: len(failing.done) == 3)


@virtual
async def test_what_is_no_exception_ends_it_as_it_is() -> None:
    some = world()
    some.produce(3, keys=3)

    async def handle(record: Record) -> None:
        if record.offset == 1:
            raise KeyboardInterrupt
        await some.handle(record)

    with pytest.raises(KeyboardInterrupt):
        async with processed(some, handle, on_failure="skip"):
            await anyio.sleep_forever()
    assert some.committed() == 1
    assert 0 in some.offsets()


@virtual
async def test_a_record_that_takes_too_long_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(3)
    some.seconds = lambda record: 300 if record.offset == 1 else 0.01
    async with processed(some, stalled_after_ms=10_000, drain_timeout_ms=0) as run:
        await anyio.sleep(9)
        assert not run.statistics().stalled
        await anyio.sleep(100)
        found = run.statistics()
        assert found.stalled
        assert found.oldest == ("t", 0, 1)
        assert found.oldest_age > 100
    assert sum("t-0 at offset 1 has been unfinished" in entry.message for entry in caplog.records) == 1


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{}, {"rate": 1_000}])
@virtual
async def test_what_waits_for_resume_is_not_stalled_but_a_handler_that_hangs_is(
    limits: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 5.0
    how = {"concurrency": 2, "stalled_after_ms": 20_000, "drain_timeout_ms": 0} | limits
    async with processed(some, **how) as run:
        await until(lambda: len(some.started) == 2)
        run.pause()
        await anyio.sleep(600)
        assert run.statistics().waiting == 8
        assert not run.statistics().stalled
        run.resume()
        await until(lambda: len(some.done) == 6)
        assert not any("unfinished" in entry.message for entry in caplog.records)
        some.seconds = lambda record: 10_000.0
        await until(lambda: len(some.done) == 8)
        run.pause()
        await anyio.sleep(30)
        assert run.statistics().running == 2
        assert run.statistics().stalled
        run.resume()
        assert run.statistics().stalled, "it ran all the time"
