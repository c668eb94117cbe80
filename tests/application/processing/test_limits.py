"""A rate, a breaker and an end for too many failures, in ``process``."""

import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import Breaker, ConsumerState, Failed, Reject, Retry, RetryLater, Router, Skip, TopicPartition
from kafka_async.application.processing.limits import TokenBucket
from kafka_async.errors import ProcessingError, TooManyFailuresError
from tests.application.support import virtual
from tests.virtual import run_virtual_asyncio

from .world import Record, processed, until, world

# --- rate -----------------------------------------------------------------------------------------------------------------------


MOST = 100_000
"""Tokens that are taken at most: more would take the test too long."""


@pytest.mark.slow
@given(st.floats(0.1, 5000), st.lists(st.floats(0, 3), max_size=60))
def test_never_more_than_the_rate_and_one_second_of_it(rate: float, waits: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate), 0.0, 0
    for wait in waits:
        now += wait
        while bucket.has(now) and taken < MOST:
            bucket.take(1)
            taken += 1
        assert taken <= rate * now + max(1.0, rate) + max(1.0, rate * 0.01)
        assert bucket.due_at > now or taken == MOST  # then some are left
    assert bucket.has(now + 1 / rate + 0.02)


def test_tokens_that_are_owed_are_waited_for() -> None:
    bucket = TokenBucket(10)
    assert bucket.has(0)
    bucket.take(20)
    assert not bucket.has(1.9)
    assert bucket.due_at == pytest.approx(2.0)
    assert bucket.has(2.01)


@virtual
async def test_records_begin_at_the_rate_and_a_wait_is_no_stall(caplog: pytest.LogCaptureFixture) -> None:
    some = world()
    some.produce(100)
    began = anyio.current_time()
    async with processed(some, concurrency=20, rate=2, stalled_after_ms=5000) as run:
        await until(lambda: len(some.started) == 21, 20)
        assert anyio.current_time() - began == pytest.approx(10, abs=0.2)
        await until(lambda: len(some.done) == 100, 60)
        assert not run.statistics().stalled
    assert anyio.current_time() - began == pytest.approx(49.5, abs=0.5)
    assert some.committed() == 100
    assert "unfinished" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{}, {"rate": 1000}, {"breaker": Breaker(OSError)}, {"too_many_failures": (50, 100)}])
@pytest.mark.parametrize("order", ["none", "key"])
@virtual
async def test_a_handler_that_hangs_is_a_stall_whatever_waits_for_it(
    limits: dict[str, Any], order: Any, caplog: pytest.LogCaptureFixture
) -> None:
    some = world(2)
    some.seconds = lambda record: 100.0 if record.partition else 1.0
    some.produce(20)
    async with some.consumer() as consumer:
        options: dict[str, Any] = {"concurrency": 2, "order": order, "stalled_after_ms": 10_000, "drain_timeout_ms": 0} | limits
        async with consumer.processing(some.handle, **options) as run:
            await anyio.sleep(0.1)
            some.produce(20, partition=1)
            await anyio.sleep(60)
            assert run.statistics().stalled
            states = [consumer.state]
            assert "has been unfinished for" in caplog.text
            some.seconds = lambda record: 0.01
            await until(lambda: len(some.done) == 40, 200)
            some.seconds = lambda record: 1.0
            some.produce(20)
            await until(lambda: run.statistics().running == 2)
            assert not run.statistics().stalled
            assert [*states, consumer.state] == [ConsumerState.STALLED, ConsumerState.STEADY]


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [{}, {"rate": 1000}, {"rate": contextlib.nullcontext()}, {"breaker": Breaker(OSError)}, {"too_many_failures": (50, 100)}],
)
@virtual
async def test_a_record_that_is_tried_again_and_again_is_a_stall_that_is_said_once(
    limits: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    some = world()

    async def handle(record: Record) -> None:
        if record.offset == 0:
            raise RetryLater(5)

    async with processed(some, handle, order="none", stalled_after_ms=10_000, drain_timeout_ms=0, **limits) as run:
        for _ in range(12):
            some.produce(1100)  # the rate is reached each time
            await anyio.sleep(5)
        assert run.statistics().stalled
    assert caplog.text.count("has been unfinished for") == 1


@pytest.mark.parametrize("batch", [None, 3])
@virtual
async def test_a_record_that_was_tried_again_is_no_stall_any_more_once_it_is_done(batch: int | None) -> None:
    some, attempts = world(), Counter[int]()

    async def handle(given: Any) -> None:
        for record in given if isinstance(given, list) else [given]:
            attempts[record.offset] += 1
            if record.offset == 0 and attempts[0] < 4:
                raise RetryLater(5)

    some.produce(3)
    options: dict[str, Any] = {} if batch is None else {"batch": batch}
    async with processed(some, handle, order="none", stalled_after_ms=10_000, rate=contextlib.nullcontext(), **options) as run:
        await anyio.sleep(12)
        assert run.statistics().stalled
        await until(lambda: some.committed() == 3)
        assert not run.statistics().stalled


@pytest.mark.slow
@virtual
async def test_the_wait_of_a_record_that_is_tried_again_for_the_rate_is_no_stall() -> None:
    some, failed = world(60), set[int]()

    async def handle(record: Record) -> None:
        some.done.append(record)
        if record.partition not in failed:  # once for each partition
            failed.add(record.partition)
            raise RetryLater(1)

    for partition in range(60):
        some.produce(2, partition=partition)
    async with processed(some, handle, order="partition", concurrency=5, rate=2, stalled_after_ms=10_000) as run:
        while len(some.done) < 180:
            await anyio.sleep(1)
            assert not run.statistics().stalled


@pytest.mark.slow
@virtual
async def test_an_outage_is_no_stall_of_a_record_that_had_failed_before() -> None:
    some, down = world(), True

    async def handle(record: Record) -> None:
        some.started.append(record)
        if record.offset == 0 and len(some.started) == 1:
            raise RetryLater(2)
        if down:
            raise OSError("down")
        some.done.append(record)

    some.produce(20)
    breaker = Breaker(OSError, window=4, probe_after=5)
    async with processed(some, handle, order="none", concurrency=4, breaker=breaker, stalled_after_ms=10_000) as run:
        for _ in range(120):
            await anyio.sleep(1)
            assert not run.statistics().stalled
        down = False
        while len(some.done) < 20:
            await anyio.sleep(0.1)
            assert not run.statistics().stalled


@pytest.mark.slow
@virtual
async def test_what_waits_behind_a_limiter_of_the_program_is_no_stall() -> None:
    some = world()

    class Slow(contextlib.AbstractAsyncContextManager[None]):
        turn = anyio.Lock()

        async def __aenter__(self) -> None:
            async with self.turn:
                await anyio.sleep(1)

        async def __aexit__(self, *_: object) -> None:
            return

    some.produce(60)
    async with processed(some, rate=Slow(), concurrency=5, stalled_after_ms=10_000) as run:
        while len(some.done) < 60:
            await anyio.sleep(1)
            assert not run.statistics().stalled


@virtual
async def test_a_batch_takes_as_many_tokens_as_it_has_records() -> None:
    some, sizes = world(), list[int]()

    async def handle(batch: list[Record]) -> None:
        sizes.append(len(batch))

    some.produce(100)
    began = anyio.current_time()
    async with processed(some, handle, rate=10, batch=10, order="partition"):
        await until(lambda: sum(sizes) == 100)
    assert anyio.current_time() - began == pytest.approx(9, abs=1.2)


@virtual
async def test_a_stop_does_not_wait_for_the_rate() -> None:
    some = world()
    some.produce(100)
    async with processed(some, rate=0.1):
        await until(lambda: len(some.done) == 1)
        began = anyio.current_time()
    assert anyio.current_time() - began < 1
    assert some.committed() == 1


@virtual
async def test_a_context_manager_is_entered_around_each_attempt() -> None:
    some, inside = world(), 0
    most = 0

    class Two(contextlib.AbstractAsyncContextManager[None]):
        room = anyio.Semaphore(2)

        async def __aenter__(self) -> None:
            nonlocal inside, most
            await self.room.acquire()
            inside += 1
            most = max(most, inside)

        async def __aexit__(self, *_: object) -> None:
            nonlocal inside
            inside -= 1
            self.room.release()

    some.produce(50)
    async with processed(some, rate=Two()):
        await until(lambda: len(some.done) == 50)
    assert (most, inside, some.peak) == (2, 0, 2)

    def plain(_: Record) -> None:
        raise AssertionError

    async with some.consumer() as consumer:
        with pytest.raises(TypeError, match="an async context manager is for async def handlers"):
            consumer.processing(plain, rate=Two())


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rate": 0}, ValueError, "rate=0: expected records a second, more than 0"),
        ({"rate": "5"}, TypeError, "rate='5': expected a number of records a second, or an async context manager"),
        ({"breaker": True}, TypeError, "breaker=True: expected a Breaker"),
        ({"too_many_failures": 5}, TypeError, "too_many_failures=5: expected two integers"),
        ({"too_many_failures": (5, 4)}, ValueError, r"too_many_failures=\(5, 4\)"),
    ],
)
async def test_bad_arguments_are_refused(options: Any, error: type[Exception], text: str) -> None:
    async with world().consumer() as consumer:
        with pytest.raises(error, match=text):
            consumer.processing(print, **options)


# --- breaker --------------------------------------------------------------------------------------------------------------------


class Dependency:
    """Something that is down at times."""

    def __init__(self) -> None:
        self.down = False
        self.asked: list[float] = []
        self.served: Counter[tuple[int, int]] = Counter()
        self.given_up: list[int] = []

    async def handle(self, record: Record) -> None:
        await anyio.sleep(0.01)
        self.asked.append(anyio.current_time())
        if self.down:
            raise ConnectionError("down")
        self.served[record.partition, record.offset] += 1

    async def give_up(self, record: Record, error: BaseException, attempts: int) -> None:
        self.given_up.append(record.offset)


@contextlib.asynccontextmanager
async def produced(some: Any, per_second: int) -> AsyncIterator[Callable[[], None]]:
    """Produce while the block runs, or until what it is given is called."""

    scope = anyio.CancelScope()

    async def produce() -> None:
        with scope:
            while True:
                some.produce(per_second, keys=50)
                await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        yield scope.cancel
        scope.cancel()


@pytest.mark.slow
@virtual
async def test_ten_minutes_without_what_handlers_need(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    some, needed = world(), Dependency()
    breaker = Breaker(ConnectionError)
    async with (
        produced(some, 50) as end,
        processed(some, needed.handle, concurrency=20, on_failure=needed.give_up, breaker=breaker) as run,
    ):
        await until(lambda: needed.served.total() > 100)
        needed.down = True
        await anyio.sleep(5)
        needed.asked.clear()
        await anyio.sleep(595)
        probes = len(needed.asked)
        assert run.statistics().breaker in ("open", "half-open")
        assert not run.statistics().stalled
        needed.down = False
        back = anyio.current_time()
        await until(lambda: run.statistics().breaker == "closed", 70)
        assert anyio.current_time() - back < 65
        end()
        await until(lambda: len(needed.served) == some.cluster.log(some.partitions[0]).end, 200)
    assert 8 <= probes <= 40
    assert needed.given_up == []
    assert set(needed.served.values()) == {1}
    assert caplog.text.count("the breaker is open") == 1
    assert some.committed() == len(needed.served)


@virtual
async def test_one_record_that_cannot_be_served_is_no_outage() -> None:
    some, needed = world(), Dependency()

    async def handle(record: Record) -> None:
        if record.offset == 7:
            raise ConnectionError("its own")
        await needed.handle(record)

    options: dict[str, Any] = {"on_failure": needed.give_up, "breaker": Breaker(ConnectionError), "retry": Retry(attempts=2)}
    async with produced(some, 20) as end, processed(some, handle, **options) as run:
        await until(lambda: needed.given_up == [7])
        end()
        count = some.cluster.log(some.partitions[0]).end
        await until(lambda: len(needed.served) == count - 1)
        assert run.statistics().breaker == "closed"
    assert some.committed() == count


@pytest.mark.slow
@virtual
async def test_one_record_that_cannot_be_served_keeps_those_that_come_seldom_waiting_for_a_while_only() -> None:
    some, needed = world(), Dependency()

    async def handle(record: Record) -> None:
        if record.offset == 0:
            raise ConnectionError("its own")
        await needed.handle(record)

    breaker = Breaker(ConnectionError, in_a_row=1, probe_after=1)
    async with processed(some, handle, order="none", concurrency=2, breaker=breaker, on_failure=needed.give_up) as run:
        for _ in range(12):
            some.produce(1)
            await anyio.sleep(30)
        assert needed.given_up == [0]
        assert sorted(needed.served) == [(0, offset) for offset in range(1, 12)]
        assert run.statistics().breaker == "closed"
    assert some.committed() == 12


@pytest.mark.slow
@virtual
async def test_a_dependency_that_flaps_fills_no_topic_of_dead_letters() -> None:
    some, needed = world(3), Dependency()
    for partition in range(3):
        some.produce(2000, keys=20, partition=partition)
    options: dict[str, Any] = {"breaker": Breaker(ConnectionError, probe_after=0.2), "on_failure": needed.give_up}
    async with processed(some, needed.handle, order="partition", **options):
        for _ in range(30):
            needed.down = not needed.down
            await anyio.sleep(0.7)
        needed.down = False
        await until(lambda: len(needed.served) == 6000)
    assert needed.given_up == []


@virtual
async def test_partitions_that_leave_and_a_stop_while_it_is_open() -> None:
    some, needed = world(2), Dependency()
    needed.down = True
    for partition in (0, 1):
        some.produce(100, keys=10, partition=partition)
    async with some.consumer() as consumer:
        run = consumer.processing(needed.handle, breaker=Breaker(ConnectionError, probe_after=5), on_failure=needed.give_up)
        async with run:
            await until(lambda: run.statistics().breaker == "open")
            consumer.seek(TopicPartition("t", 0), 50)
            consumer.pause(TopicPartition("t", 1))
            await anyio.sleep(20)
            assert consumer.ready
            needed.down = False
            consumer.resume(TopicPartition("t", 1))
            await until(lambda: len(needed.served) == 150)
            needed.down = True
            some.produce(100, keys=10)
            await until(lambda: run.statistics().breaker == "open")
            began = anyio.current_time()
        assert anyio.current_time() - began < 1
    assert needed.given_up == []
    assert needed.served.total() == 150
    assert some.committed() == 100


@virtual
async def test_an_outage_ends_with_its_process_and_the_next_one_has_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    some, needed = world(), Dependency()
    needed.down = True
    some.produce(20, keys=10)
    async with some.consumer() as consumer:
        for _ in range(2):
            async with consumer.processing(needed.handle, breaker=Breaker(ConnectionError)) as run:
                await until(lambda: run.statistics().breaker == "open")
    lines = [line.partition("] ")[2].partition(",")[0] for line in caplog.messages if "breaker" in line]
    assert [line.partition(" is open")[0] for line in lines] == ["the breaker", "no longer needed: the breaker of process"] * 2


@virtual
async def test_order_by_key_holds_across_an_outage() -> None:
    some, seen, down = world(), dict[bytes | None, list[int]](), True

    async def handle(record: Record) -> None:
        await anyio.sleep(0.01)
        if down:
            raise ConnectionError
        seen.setdefault(record.key, []).append(record.offset)

    some.produce(200, keys=5)
    async with processed(some, handle, breaker=Breaker(ConnectionError, probe_after=1)):
        await anyio.sleep(30)
        down = False
        await until(lambda: sum(map(len, seen.values())) == 200)
    assert all(offsets == sorted(offsets) for offsets in seen.values())


async def test_plain_handlers() -> None:
    some, asked, served, down = world(), 0, set[int](), True

    def handle(record: Record) -> None:
        nonlocal asked
        asked += 1
        if down:
            raise ConnectionError
        served.add(record.offset)

    some.produce(200)
    async with processed(some, handle, concurrency=4, breaker=Breaker(ConnectionError, probe_after=0.2), on_failure="stop") as run:
        await until(lambda: run.statistics().breaker_opened >= 2)
        assert asked < 60
        down = False
        await until(lambda: len(served) == 200)
        await until(lambda: run.statistics().breaker == "closed")
    assert some.committed() == 200


@virtual
async def test_a_probe_time_that_is_none_stops_and_says_so() -> None:
    some = world()
    some.produce(20)

    async def handle(_: Record) -> None:
        raise ConnectionError

    with pytest.raises(ProcessingError, match="probe_after='soon'"):
        async with processed(some, handle, breaker=Breaker(OSError, probe_after=lambda opened, error: "soon")) as run:
            await run.wait()


# --- too many failures ----------------------------------------------------------------------------------------------------------


@virtual
async def test_a_service_stops_if_dead_letters_are_not_the_exception() -> None:
    some, letters = world(), list[int]()

    async def handle(record: Record) -> None:
        if record.offset % 100 < 3 or record.offset >= 400:
            raise ValueError
        if record.offset % 10 == 5:
            raise Skip

    async def bury(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(record.offset)

    some.produce(1000)
    with pytest.raises(TooManyFailuresError, match="10 of the last 50 records failed for good") as caught:
        async with processed(some, handle, order="partition", on_failure=bury, too_many_failures=(10, 50)) as run:
            await run.wait()
    assert caught.value.record.offset == letters[-1] == 409
    assert some.committed() == 410, "what was written as a dead letter is done"


@virtual
async def test_a_record_that_the_handler_skips_is_no_failure() -> None:
    some = world()

    async def handle(record: Record) -> None:
        raise Skip

    some.produce(100)
    async with processed(some, handle, too_many_failures=(1, 1)) as run:
        await until(lambda: run.statistics().skipped == 100)


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@virtual
async def test_of_a_batch_each_record_counts_by_itself(order: Any) -> None:
    some = world()

    async def handle(batch: list[Record]) -> list[Failed]:
        return [Failed(index, Reject()) for index, record in enumerate(batch) if record.offset % 10 == 7 or record.offset >= 500]

    some.produce(600, keys=1)
    how: Any = {"batch": 10, "order": order, "on_failure": "skip", "too_many_failures": (25, 50)}
    with pytest.raises(TooManyFailuresError, match="25 of the last 50 records failed for good") as caught:
        async with processed(some, handle, concurrency=1, **how) as run:
            await run.wait()
    assert caught.value.record.offset >= 500
    assert run.statistics().handled == 450


@virtual
async def test_the_cause_is_that_of_the_record_even_if_others_are_given_up_meanwhile() -> None:
    some = world()

    async def handle(record: Record) -> None:
        raise ValueError(record.offset)

    async def bury(record: Record, error: BaseException, attempts: int) -> None:
        await anyio.sleep(1 + record.offset % 10 / 10)

    some.produce(40)
    with pytest.raises(TooManyFailuresError) as caught:
        async with processed(some, handle, on_failure=bury, too_many_failures=(5, 20)) as run:
            await run.wait()
    cause = caught.value.__cause__
    assert cause is not None
    assert cause.args == (caught.value.record.offset,)


# --- together with what else there is -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("raises", [True, False])
@virtual
async def test_records_of_a_batch_that_failed_alone_are_kept_during_an_outage_and_others_go_on(raises: bool) -> None:
    some, up, letters, calls = world(), False, dict[int, Exception](), 0

    async def handle(batch: list[Record]) -> Failed | list[Failed] | None:
        nonlocal calls
        calls += 1
        if up:
            return None
        down = Failed(0, ConnectionError("down"))
        if raises:
            raise down
        return [down, Failed(1, ValueError("bad"))] if len(batch) > 1 else down

    async def on_failure(record: Record, error: Exception, attempt: int) -> None:
        letters[record.offset] = error

    some.produce(10)
    breaker = Breaker(ConnectionError, in_a_row=2, probe_after=5.0)
    async with processed(some, handle, batch=10, order="partition", breaker=breaker, on_failure=on_failure) as run:
        await until(lambda: run.statistics().breaker == "open", 5)
        await anyio.sleep(100)
        assert calls < 30
        assert not run.statistics().failures - len(letters)
        up = True
        await until(lambda: some.committed() == 10, 10)
    assert list(map(type, letters.values())) == ([] if raises else [ValueError])


@pytest.mark.slow
@virtual
async def test_what_the_failed_ones_of_a_batch_have_left_is_no_success_in_between() -> None:
    some, sizes = world(), list[int]()

    async def handle(batch: list[Record]) -> Failed | None:
        sizes.append(len(batch))
        return Failed(0, ConnectionError("overloaded")) if len(batch) > 1 else None

    some.produce(100)
    breaker = Breaker(ConnectionError, in_a_row=3, window=1000, probe_after=5.0)
    async with processed(some, handle, batch=2, order="none", concurrency=1, breaker=breaker) as run:
        await until(lambda: run.statistics().breaker == "open", 4)
        assert sizes == [2, 2, 2]
        await until(lambda: some.committed() == 100, 500)


@pytest.mark.slow
@virtual
async def test_what_the_failed_ones_of_a_batch_have_left_shows_that_others_can() -> None:
    """A record in each batch that failed by its own fault opened the breaker at each probe, and was kept for ever."""
    some, letters = world(), list[int]()

    async def handle(batch: list[Record]) -> list[Failed]:
        return [Failed(place, TimeoutError()) for place, record in enumerate(batch) if record.offset % 2 == 0]

    async def on_failure(record: Record, error: Exception, attempt: int) -> None:
        letters.append(record.offset)

    how: Any = {"batch": 2, "order": "none", "retry": Retry(attempts=1), "on_failure": on_failure}
    async with processed(some, handle, breaker=Breaker(TimeoutError, probe_after=5.0), drain_timeout_ms=0, **how):
        for _ in range(10):
            some.produce(2)
            await anyio.sleep(60)
        assert 0 in letters


@virtual
async def test_a_record_that_took_long_to_fail_beside_one_that_is_kept_is_a_stall_at_once() -> None:
    some = world()

    async def handle(batch: list[Record]) -> list[Failed]:
        await anyio.sleep(12)
        return [Failed(0, ConnectionError()), Failed(1, ValueError())]

    some.produce(2)
    how: Any = {"batch": 2, "order": "none", "retry": Retry(attempts=3, delay=60), "stalled_after_ms": 10_000}
    breaker = Breaker(ConnectionError, in_a_row=1, probe_after=100)
    async with processed(some, handle, breaker=breaker, drain_timeout_ms=0, **how) as run:
        await until(lambda: run.statistics().breaker == "open", 20)
        assert run.statistics().stalled


@pytest.mark.parametrize("order", ["none", "partition"])
@virtual
async def test_a_record_that_failed_for_a_reason_of_its_own_has_no_more_attempts_because_others_of_its_batch_are_kept(
    order: Any,
) -> None:
    some, up, tried, letters = world(), False, Counter[int](), dict[int, int]()

    async def handle(batch: list[Record]) -> list[Failed] | None:
        tried.update(record.offset for record in batch)
        if up:
            return None
        errors = [ValueError("bad") if record.offset else ConnectionError("down") for record in batch]
        return [Failed(index, error) for index, error in enumerate(errors)]

    async def on_failure(record: Record, error: Exception, attempt: int) -> None:
        letters[record.offset] = attempt

    some.produce(2)
    how: Any = {"batch": 2, "order": order, "retry": Retry(attempts=3, delay=1), "on_failure": on_failure}
    async with processed(some, handle, breaker=Breaker(ConnectionError, probe_after=5.0), **how) as run:
        await anyio.sleep(100)
        assert letters == ({1: 3} if order == "none" else {}), "in a lane it waits for the one before it"
        assert tried[1] == (3 if order == "none" else 1)
        assert tried[0] > 10
        up = True
        await until(lambda: some.committed() == 2, 10)
        assert run.statistics().failures == (3 if order == "none" else 1)


@virtual
async def test_what_was_kept_goes_on_after_the_probe_though_nothing_else_happens() -> None:
    some, router, up = world(), Router(), True
    tried: list[float] = []

    @router.on(header=("kind", "slow"), concurrency=1)
    async def slow(record: Record) -> None:
        await anyio.sleep(500)

    @router.on(header=("kind", "fast"))
    async def fast(record: Record) -> None:
        tried.append(anyio.current_time())
        if not up:
            raise ConnectionError("down")

    def produce(kind: bytes, count: int) -> None:
        log = some.cluster.log(some.partitions[0])
        log.append([b"v"] * count, headers=((b"kind", kind),))
        some.cluster.changed()

    produce(b"slow", 1)
    breaker = Breaker(ConnectionError, in_a_row=2, window=100, probe_after=5.0)
    async with processed(some, router, concurrency=8, order="none", breaker=breaker) as run:
        await anyio.sleep(1)
        up = False
        produce(b"fast", 3)
        await until(lambda: run.statistics().breaker == "open", 5)
        produce(b"slow", 1)
        await anyio.sleep(1)
        up = True
        began = anyio.current_time()
        await until(lambda: run.statistics().retrying == 0, 10)
        assert anyio.current_time() - began < 6
        assert len(tried) == 5


@pytest.mark.parametrize("limit", [{"rate": 2}, {"breaker": Breaker(ConnectionError, in_a_row=1, probe_after=5.0)}])
def test_nothing_turns_while_a_limit_is_over_and_there_is_nothing_to_do(limit: dict[str, Any]) -> None:
    async def main() -> None:
        some = world()
        some.produce(3)

        async def handle(record: Record) -> None:
            raise ConnectionError

        async with (
            some.consumer() as consumer,
            consumer.processing(handle, concurrency=5, retry=Retry(attempts=2), on_failure="skip", **limit),
        ):
            await until(lambda: bool(consumer.assignment()), 10)
            await anyio.sleep(1)
            consumer.pause(*consumer.assignment())
            await anyio.sleep(100)  # the loop raises if it turns without time passing

    run_virtual_asyncio(main)
