"""Handlers of batches that say which of their records failed."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kafka_async import Failed, Reject, Retry, RetryLater, Skip
from kafka_async.errors import ProcessingError
from tests.application.support import virtual

from .test_on_asyncio import until as until_on_asyncio
from .world import Record, processed, until, world


class Batches:
    """A handler of batches that fails for some offsets, and says so in one way or another."""

    def __init__(self, how: str, errors: dict[int, list[Exception]]) -> None:
        self.how, self.errors = how, errors
        self.batches: list[list[int]] = []
        self.done: list[int] = []
        self.letters: list[tuple[int, BaseException, int]] = []

    async def __call__(self, records: list[Record]) -> Any:
        return self.handle(records)

    def handle(self, records: list[Record]) -> Any:
        self.batches.append([record.offset for record in records])
        failures = []
        for index, record in enumerate(records):
            if self.errors.get(record.offset):
                failures.append(Failed(index, self.errors[record.offset].pop(0)))
                if self.how == "raised":
                    raise failures[0]
            elif self.how != "group":
                self.done.append(record.offset)
        if self.how == "group" and failures:
            raise ExceptionGroup("some", [ExceptionGroup("one", failures[:1]), *failures[1:]])
        if self.how == "group":
            self.done += [record.offset for record in records]
        return failures[0] if self.how == "returned" and len(failures) == 1 else [None, *failures]

    async def write(self, record: Record, error: BaseException, attempts: int) -> None:
        await anyio.sleep(0.01)
        self.letters.append((record.offset, error, attempts))


def _poison(*offsets: int) -> dict[int, list[Exception]]:
    return {offset: [ValueError("poison") for _ in range(10)] for offset in offsets}


@virtual
@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("how", ["raised", "returned", "group"])
async def test_one_poison_record_of_a_batch_is_the_only_dead_letter(how: str, order: Any) -> None:
    some = world()
    some.produce(30, keys=1)
    batches = Batches(how, _poison(4, 7, 23))
    async with processed(some, batches, batch=10, order=order, on_failure=batches.write, concurrency=2) as run:
        await until(lambda: run.statistics().handled + run.statistics().dead_letters == 30)
        found = run.statistics()
        await run.drain()
    assert sorted(offset for offset, *_ in batches.letters) == [4, 7, 23]
    assert all(isinstance(error, ValueError) for _, error, _ in batches.letters)
    assert sorted(batches.done) == [offset for offset in range(30) if offset not in (4, 7, 23)], "each once"
    assert (found.handled, found.failures, found.dead_letters, found.running) == (27, 3, 3, 0)
    assert some.committed() == 30


async def test_plain_handlers_may_say_it_too() -> None:
    some = world()
    some.produce(30, keys=1)
    batches = Batches("returned", _poison(4, 23))
    async with (
        some.consumer() as consumer,
        consumer.processing(batches.handle, batch=10, order="partition", on_failure=batches.write) as run,
    ):
        await until_on_asyncio(lambda: run.statistics().handled + run.statistics().dead_letters == 30)
    assert sorted(offset for offset, *_ in batches.letters) == [4, 23]
    assert sorted(batches.done) == [offset for offset in range(30) if offset not in (4, 23)]
    assert some.committed() == 30


@virtual
@pytest.mark.parametrize("how", ["raised", "returned"])
async def test_what_comes_after_a_record_that_is_tried_again_waits_for_it(how: str) -> None:
    some = world()
    some.produce(30, keys=1)
    batches = Batches(how, {4: [OSError("down"), RetryLater(5)], 6: [Skip("a duplicate")], 8: [Reject("no")]})
    retry = Retry(attempts=5, delay=1)
    async with processed(some, batches, batch=10, order="key", retry=retry, on_failure=batches.write) as run:
        await until(lambda: run.statistics().retrying == 1, 1)
        await anyio.sleep(0.5)
        assert all(offset < 10 for offset in batches.done), "the lane waits"
        await until(lambda: run.statistics().handled == 28)
        found = run.statistics()
    assert [(offset, type(error), attempts) for offset, error, attempts in batches.letters] == [(8, Reject, 1)]
    assert found.skipped == 1
    assert sorted(batches.done) == [offset for offset in range(30) if offset not in (6, 8)]
    if how == "raised":
        assert batches.done == sorted(batches.done), "in order throughout"
    else:
        assert batches.batches[:3] == [list(range(10)), [4], [4]]
    assert some.committed() == 30


@virtual
async def test_who_blames_a_record_that_is_not_there_blames_all() -> None:
    some = world()
    some.produce(10, keys=1)

    async def handle(records: list[Record]) -> Failed:
        return Failed(10, ValueError("poison"))

    async with some.consumer() as consumer:
        with pytest.raises(ProcessingError, match=r"Failed\(10, \.\.\.\): there are only 10 records"):
            await consumer.process(handle, batch=10, linger_ms=100)
    assert not some.committed()


@virtual
async def test_a_handler_of_one_record_may_blame_it() -> None:
    some = world()
    some.produce(3)
    letters: list[Any] = []

    async def handle(record: Record) -> Any:
        return Failed(0, ValueError("poison")) if record.offset == 1 else None

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, type(error)))

    async with processed(some, handle, on_failure=write) as run:
        await until(lambda: run.statistics().handled + run.statistics().dead_letters == 3)
    assert letters == [(1, ValueError)]


@virtual
async def test_a_stop_within_a_batch_commits_its_neighbours() -> None:
    some = world()
    some.produce(10, keys=1)
    batches = Batches("returned", _poison(4, 7))
    async with some.consumer() as consumer:
        with pytest.raises(ProcessingError, match="offset 4 failed"):
            await consumer.process(batches, batch=10, linger_ms=100)
        assert some.committed() == 4
        batches.errors.clear()
        batches.batches.clear()
        async with consumer.processing(batches, batch=10, linger_ms=100) as run:
            await until(lambda: run.statistics().handled == 2)
    assert batches.batches == [[4, 7]], "the rest was done and is remembered"
    assert some.committed() == 10


@virtual
async def test_what_is_left_of_a_batch_is_not_lost_if_its_dead_letters_are_cancelled() -> None:
    some = world()
    some.produce(10, keys=1)
    batches = Batches("returned", _poison(2, 5, 8))

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        if record.offset == 5:
            await anyio.sleep_forever()

    async with processed(some, batches, batch=10, linger_ms=100, on_failure=write, drain_timeout_ms=100) as run:
        await until(lambda: run.statistics().dead_letters == 1)
    assert some.committed() == 5
    assert run.statistics().running == 0


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("others", ["given up", "tried again"])
async def test_what_is_left_of_a_batch_keeps_its_order_if_its_dead_letters_are_cancelled(others: str) -> None:
    some = world(2)
    some.produce(1, partition=1)
    handled: list[tuple[str, list[tuple[int, int]]]] = []

    async def handle(records: list[Record]) -> Any:
        batch = [(record.partition, record.offset) for record in records]
        handled.append(("began", batch))
        if len(handled) == 1:
            last = ValueError() if others == "given up" else RetryLater(1)
            return [Failed(0, Reject("no")), Failed(1, Reject("no")), Failed(2, last)]
        await anyio.sleep(20)
        handled.append(("ended", batch))
        return None

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        await anyio.sleep_forever()

    how: Any = {"order": lambda record: "all", "batch": 3, "linger_ms": 2_000, "concurrency": 3}
    async with processed(some, handle, on_failure=write, drain_timeout_ms=1_000, **how) as run:
        await anyio.sleep(1)
        some.produce(2)
        await until(lambda: bool(handled))
        await anyio.sleep(5)
        async with processed(some, lambda records: None, batch=3):
            await until(lambda: run.statistics().handled >= 2)
    assert handled.pop(0) == ("began", [(1, 0), (0, 0), (0, 1)]), "the first one leaves"
    assert [what for what, _ in handled] == ["began", "ended"] * (len(handled) // 2), "one after the other"
    assert [each for what, batch in handled for each in batch if what == "ended"] == [(0, 0), (0, 1)]


@virtual
@pytest.mark.parametrize("other", [RetryLater(1), ValueError()], ids=["tried again", "given up"])
async def test_a_dead_letter_function_that_stops_the_consumer_does_not_wait_for_the_rest_of_its_batch(other: Exception) -> None:
    some = world()
    some.produce(2, keys=1)
    took: list[float] = []
    letters: list[int] = []

    async with some.consumer() as consumer:

        async def write(record: Record, error: BaseException, attempts: int) -> None:
            letters.append(record.offset)
            assert run.statistics().running == 2, "both records are held"
            began = anyio.current_time()
            await consumer.stop()
            took.append(anyio.current_time() - began)

        def fail(records: list[Record]) -> list[Failed]:
            return [Failed(0, Reject("no")), Failed(1, other)]

        async with consumer.processing(fail, batch=2, linger_ms=100, order="key", on_failure=write) as run:
            await until(lambda: bool(took))
    assert took[0] < 2
    assert letters[0] == 0


@pytest.mark.slow
@virtual
@pytest.mark.parametrize(("other", "seconds"), [(RetryLater(1), 1), (ValueError(), 4)], ids=["tried again", "given up"])
async def test_records_that_wait_for_the_dead_letter_of_another_one_leave_without_it(other: Exception, seconds: float) -> None:
    some = world(2)
    some.produce(1)
    handled: list[int] = []
    letters: list[tuple[int, str]] = []

    async def handle(records: list[Record]) -> Any:
        handled.append(len(records))
        if len(handled) > 1:
            return None
        order = sorted(range(2), key=lambda index: records[index].partition == leaving)
        return [Failed(order[0], Reject("no")), Failed(order[1], other)]

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.partition, "began"))
        try:
            await anyio.sleep(60)
        except BaseException:
            letters.append((record.partition, "cancelled"))
            raise
        letters.append((record.partition, "ended"))

    leaving = 1
    how: Any = {"order": lambda record: "all", "batch": 2, "linger_ms": 2_000, "concurrency": 3}
    async with processed(some, handle, on_failure=write, drain_timeout_ms=3_000, **how) as run:
        await anyio.sleep(1)
        some.produce(1, partition=leaving)
        await until(lambda: bool(letters))
        assert run.statistics().running == 2
        elsewhere: list[tuple[int, int]] = []
        async with processed(some, lambda records: elsewhere.extend((r.partition, r.offset) for r in records), batch=2):
            began = anyio.current_time()
            await until(lambda: bool(elsewhere))
            assert anyio.current_time() - began < seconds
            await until(lambda: len(letters) == 2)
    assert elsewhere == [(leaving, 0)]
    assert letters == [(1 - leaving, "began"), (1 - leaving, "ended")]


@pytest.mark.slow
@virtual
@pytest.mark.parametrize(("order", "at"), [("none", 1), ("key", 51)])
async def test_records_of_a_batch_wait_for_the_dead_letters_of_others_only_if_they_stand_in_a_lane(order: Any, at: float) -> None:
    some = world()
    some.produce(3, keys=1)
    handled: list[tuple[list[int], float]] = []

    async def handle(records: list[Record]) -> Any:
        handled.append(([record.offset for record in records], anyio.current_time() - began))
        return [Failed(0, Reject("no")), Failed(2, RetryLater(1))] if len(records) == 3 else None

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        await anyio.sleep(50)

    async with processed(some, handle, batch=3, linger_ms=100, order=order, on_failure=write, concurrency=2) as run:
        began = anyio.current_time()
        await until(lambda: run.statistics().handled + run.statistics().dead_letters == 3)
    assert [offsets for offsets, _ in handled] == [[0, 1, 2], [2]]
    assert handled[1][1] == pytest.approx(at, abs=0.5)
    assert some.committed() == 3


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda: Failed(-1, ValueError()), ValueError),
        (lambda: Failed(True, ValueError()), TypeError),
        (lambda: Failed("1", ValueError()), TypeError),  # type: ignore[arg-type]  # what is tested
        (lambda: Failed(1, "poison"), TypeError),  # type: ignore[arg-type]  # what is tested
    ],
)
def test_a_bad_blame_is_an_error(made: Callable[[], Failed], error: type[Exception]) -> None:
    with pytest.raises(error, match="expected"):
        made()
