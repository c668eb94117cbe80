"""The snapshot of a processing, and its metrics."""

from functools import wraps
from typing import Any

import anyio
import pytest
from attrs import evolve

from kafka_async import Failed, Retry, Router, TopicPartition
from kafka_async.application.processing.statistics import NOTHING
from tests.application.support import virtual

from .world import Record, processed, until, world


def test_metrics_are_numbers_and_zero_before_the_first_record() -> None:
    assert set(NOTHING.metrics().values()) == {0}


def test_partitions_that_wait_until_their_next_record_is_due_are_counted() -> None:
    some = evolve(NOTHING, delayed=5, delayed_until={TopicPartition("t", 0): 10, TopicPartition("t", 1): 20})
    assert (some.metrics()["records-delayed"], some.metrics()["partitions-delayed"]) == (5, 2)


def test_times_are_milliseconds_unless_their_names_say_seconds() -> None:
    some = evolve(NOTHING, oldest_age=1.5, seconds_in_queue=2.0, seconds_in_handlers=3.0).metrics()
    assert (some["oldest-age-seconds"], some["queue-time-total"], some["handler-time-total"]) == (1.5, 2_000, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 60])
@pytest.mark.parametrize("batch", [None, 2])
@virtual
async def test_a_record_does_not_wait_for_a_handler_while_it_is_handled_and_waits_for_its_next_attempt(
    delay: int, batch: int | None
) -> None:
    some, attempts = world(), 0

    async def handle(given: Any) -> None:
        nonlocal attempts
        attempts += 1
        await anyio.sleep(5)
        if attempts < 4:
            raise ValueError(attempts)

    some.produce(2 if batch else 1)
    options: dict[str, Any] = {} if batch is None else {"batch": batch}
    async with processed(some, handle, order="partition", retry=Retry(attempts=4, delay=delay), **options) as run:
        await until(lambda: bool(some.committed()), 300)
        assert (attempts, run.statistics().attempts) == (4, 4)
        assert run.statistics().seconds_in_queue < 1


@virtual
async def test_records_that_a_handler_did_not_get_to_did_not_wait_for_it_while_it_ran() -> None:
    some, failed = world(), set[int]()

    async def handle(batch: list[Record]) -> None:
        await anyio.sleep(5)
        if (offset := batch[0].offset) not in failed:
            failed.add(offset)
            raise Failed(0, ValueError())

    some.produce(5)
    async with processed(some, handle, batch=5, order="partition", retry=Retry(attempts=2, delay=0)) as run:
        await until(lambda: some.committed() == 5)
        assert run.statistics().seconds_in_queue == pytest.approx(5 * (4 + 3 + 2 + 1), abs=1), "each waits behind those before it"


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
@virtual
async def test_each_record_of_a_batch_waits_for_its_handler(plain: bool) -> None:
    some = world()

    async def handle(batch: list[Record]) -> None: ...

    def handle_on_thread(batch: list[Record]) -> None: ...

    some.produce(10)
    how: Any = {"batch": 5, "order": "none", "rate": 0.1}  # the second batch waits for its turn, 50 s
    async with processed(some, handle_on_thread if plain else handle, **how) as run:
        await until(lambda: run.statistics().handled == 10)
        assert run.statistics().seconds_in_queue == pytest.approx(250, abs=10)


@virtual
@pytest.mark.parametrize("how", ["async", "a lambda", "a decorator", "a batch", "a timeout", "a route"])
async def test_the_time_that_a_handler_takes_counts_however_it_is_given_and_ends(how: str) -> None:
    some = world()
    some.produce(10)

    async def handle(record: Any) -> None:
        await anyio.sleep(2)
        if (record[0] if how == "a batch" else record).offset == 7:
            raise ValueError

    @wraps(handle)
    def decorated(*arguments: Any) -> Any:
        return handle(*arguments)

    def returning(record: Any) -> Any:
        return handle(record)

    router = Router()
    router.default(returning)
    handler: Any = {"async": handle, "a decorator": decorated, "a route": router}.get(how, returning)
    limits: dict[str, Any] = {"batch": 1 if how == "a batch" else None, "timeout_ms": 5_000 if how == "a timeout" else None}
    async with processed(some, handler, on_failure="skip", concurrency=2, **limits) as run:
        await until(lambda: run.statistics().handled + run.statistics().skipped == 10)
        found = run.statistics()
        assert (found.attempts, found.failures) == (10, 1)
        assert found.seconds_in_handlers == pytest.approx(20, abs=1)
        assert found.seconds_in_queue == pytest.approx(2 * sum(range(0, 10, 2)), abs=1)
