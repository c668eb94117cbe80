"""Many handlers at once on a fake cluster, under virtual time: order, commits, retries, dead letters, rebalances, the end."""

import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from attrs import Factory, define, field

from kafka_async import (
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    ConsumerRecord,
    ConsumerState,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka_async.application.processing.encoding import decode
from kafka_async.application.processing.processing import Processing
from kafka_async.application.processing.retry import Reject, Retry, RetryLater, Skip, exponential
from kafka_async.application.processing.settings import ProcessingContext
from kafka_async.application.processing.statistics import PROCESSING
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    DeserializationError,
    IllegalStateError,
    OffsetMetadataTooLargeError,
    ProcessingError,
)
from kafka_async.testing.simulation import FakeBroker, FakeCluster
from kafka_async.testing.simulation.groups import Groups
from kafka_async.wire import Api
from kafka_async.wire.messages import OffsetCommitRequest
from tests.application.support import Consumer, cancelled_at, consumer_on, virtual

Record = ConsumerRecord[Any, Any]
GROUP = "billing"


@define(eq=False)
class World:
    """A cluster with a topic ``t``, a group coordinator, and what handlers did."""

    cluster: FakeCluster
    partitions: list[TopicPartition]
    coordinator: Groups
    started: list[Record] = Factory(list)
    done: list[Record] = Factory(list)
    running: Counter[Any] = Factory(Counter)
    peak: int = 0
    seconds: Callable[[Record], float] = field(default=lambda record: 0.01)
    """How long the handler takes for a record."""

    def consumer(self, **options: Any) -> Consumer:
        options = {"group_id": GROUP, "group_protocol": "consumer", "enable_auto_commit": False, **options}
        return consumer_on(self.cluster, "t", **options)

    async def handle(self, record: Record) -> None:
        """A handler that takes its time."""
        self.started.append(record)
        lane = (record.partition, record.key)
        self.running[lane] += 1
        assert self.running[lane] == 1 or record.key is None
        self.peak = max(self.peak, self.running.total())
        try:
            await anyio.sleep(self.seconds(record))
        finally:
            self.running[lane] -= 1
        self.done.append(record)

    def produce(self, count: int, keys: int = 0, partition: int = 0) -> None:
        log = self.cluster.log(self.partitions[partition])
        for start in range(log.end, log.end + count, 10):
            end = min(start + 10, log.end + count if start == log.end else start + 10)
            wanted = range(start, min(start + 10, end))
            log.append([b"%d" % n for n in wanted], keys=[b"k%d" % (n % keys) if keys else None for n in wanted])
        self.cluster.changed()

    def committed(self, partition: int = 0) -> int | None:
        return self.cluster.committed.get((GROUP, self.partitions[partition]))

    def metadata(self, partition: int = 0) -> str:
        return self.cluster.metadata.get((GROUP, self.partitions[partition]), "")

    def offsets(self, records: Iterable[Record] | None = None) -> list[int]:
        return [record.offset for record in (self.done if records is None else records)]


def world(partitions: int = 1, brokers: int = 1) -> World:
    cluster = FakeCluster(size=brokers)
    tps = cluster.create_topic("t", partitions)
    return World(cluster, tps, cluster.groups)


@asynccontextmanager
async def processed(
    some: World, handler: Callable[..., Any] | None = None, *, consumer: Any = None, **how: Any
) -> AsyncIterator[Processing]:
    """A consumer of the world that processes."""
    async with some.consumer(**(consumer or {})) as started, started.processing(handler or some.handle, **how) as run:
        yield run


async def until(condition: Callable[[], bool], seconds: float = 100.0) -> None:
    """Wait until it holds, in virtual time."""
    with anyio.move_on_after(seconds):
        while not condition():  # noqa: ASYNC110 - the conditions of tests are no events, and time is virtual
            await anyio.sleep(0.05)
    assert condition()


# Order and concurrency.


@virtual
async def test_all_records_are_handled_in_order_within_a_key_and_committed() -> None:
    some = world(4)
    some.seconds = lambda record: (record.offset * 7 % 5) / 100
    for partition in range(4):
        some.produce(500, keys=20, partition=partition)
    async with processed(some, concurrency=30) as run:
        await until(lambda: len(some.done) == 2_000)
        assert run.statistics().handled == 2_000
    assert some.peak == 30
    by_lane = defaultdict(list)
    for record in some.done:
        by_lane[record.partition, record.key].append(record.offset)
    assert len(by_lane) == 80
    assert all(offsets == sorted(offsets) for offsets in by_lane.values())
    assert [some.committed(partition) for partition in range(4)] == [500] * 4


@virtual
async def test_by_partition_one_record_of_each_is_handled_at_a_time() -> None:
    some = world(3)
    for partition in range(3):
        some.produce(20, partition=partition)
    async with processed(some, concurrency=10, order="partition"):
        await until(lambda: len(some.done) == 60)
    assert some.peak == 3


@virtual
async def test_without_order_as_many_run_as_may() -> None:
    some = world()
    some.produce(200, keys=1)
    some.running = Counter()
    peak = 0
    now = 0

    async def handle(record: Record) -> None:
        nonlocal peak, now
        now += 1
        peak = max(peak, now)
        await anyio.sleep(0.1)
        now -= 1
        some.done.append(record)

    async with processed(some, handle, concurrency=7, order="none"):
        await until(lambda: len(some.done) == 200)
    assert peak == 7


@virtual
async def test_a_callable_says_what_is_handled_one_after_the_other() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(10, partition=partition)
    async with processed(some, order=lambda record: record.offset % 2):
        await until(lambda: len(some.done) == 20)
    assert some.peak == 2


@virtual
async def test_a_batch_is_a_list_of_one_lane() -> None:
    some = world()
    some.produce(40, keys=4)
    batches: list[list[Record]] = []

    async def handle(records: list[Record]) -> None:
        batches.append(records)
        await anyio.sleep(0.1)

    async with processed(some, handle, batch=5, linger_ms=50) as run:
        await until(lambda: run.statistics().handled == 40)
    assert {len(batch) for batch in batches} == {5}
    assert all(len({record.key for record in batch}) == 1 for batch in batches)
    assert some.committed() == 40


@virtual
async def test_a_batch_that_is_not_full_waits_no_longer_than_it_may() -> None:
    some = world()
    some.produce(3, keys=1)
    batches: list[tuple[float, int]] = []

    async def handle(records: list[Record]) -> None:
        batches.append((anyio.current_time(), len(records)))

    async with processed(some, handle, batch=5, linger_ms=2_000):
        began = anyio.current_time()
        await until(lambda: bool(batches))
    assert batches[0][1] == 3
    assert 2 <= batches[0][0] - began < 2.5


# Committing.


@virtual
async def test_commits_go_by_the_interval_and_only_if_something_changed() -> None:
    some = world(2)
    some.produce(10)
    async with processed(some, consumer={"auto_commit_interval_ms": 1_000}):
        await until(lambda: some.committed() == 10)
        before = len(some.cluster.asked(Api.OFFSET_COMMIT))
        await anyio.sleep(10)
        assert len(some.cluster.asked(Api.OFFSET_COMMIT)) == before


@virtual
async def test_with_auto_commit_on_nobody_else_commits() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 3 else 0.01
    async with processed(some, consumer={"enable_auto_commit": True, "auto_commit_interval_ms": 100}, drain_timeout_ms=0):
        await anyio.sleep(5)
        assert some.committed() == 3
    assert some.committed() == 3
    assert some.metadata() != "", "stopping must not overwrite the map of what is done"


@virtual
async def test_only_what_never_ended_comes_again() -> None:
    some = world()
    some.produce(100)
    some.seconds = lambda record: 1_000 if record.offset == 5 else 0.01
    async with processed(some, drain_timeout_ms=1_000):
        await until(lambda: len(some.done) == 99)
    assert some.committed() == 5
    some.started.clear()
    some.done.clear()
    some.seconds = lambda record: 0.01
    async with processed(some):
        await until(lambda: bool(some.done))
        await anyio.sleep(1)
    assert some.offsets(some.started) == [5]
    assert some.committed() == 100
    assert some.metadata() == ""


@virtual
async def test_without_keep_done_what_is_after_it_comes_again() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 5 else 0.01
    async with processed(some, drain_timeout_ms=1_000, keep_done=False):
        await until(lambda: len(some.done) == 9)
    assert (some.committed(), some.metadata()) == (5, "")


@virtual
async def test_control_records_at_the_end_are_covered() -> None:
    some = world()
    log = some.cluster.log(some.partitions[0])
    log.append([b"a", b"b"], producer_id=7)
    log.end_transaction(7, commit=True)
    log.append([b"c"], producer_id=7)
    log.end_transaction(7, commit=False)
    some.cluster.changed()
    async with processed(some, consumer={"isolation_level": "read_committed", "auto_commit_interval_ms": 500}):
        await until(lambda: some.committed() == 5)
    assert sorted(some.offsets()) == [0, 1]


@virtual
async def test_a_topic_that_was_made_anew_is_handled_from_its_start() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 0 else 0.01
    async with processed(some, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 9)
    some.cluster.recreate("t")
    some.produce(10)
    some.seconds = lambda record: 0.01
    some.done.clear()
    async with processed(some):
        await until(lambda: len(some.done) == 10)


@virtual
async def test_metadata_of_others_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    some = world(3)
    for index, tp in enumerate(some.partitions):
        some.produce(3, partition=index)
        some.cluster.committed[GROUP, tp] = 1
        some.cluster.metadata[GROUP, tp] = "somebody else's"
    with caplog.at_level(logging.INFO, "kafka_async"):
        async with processed(some):
            await until(lambda: len(some.done) == 6)
    assert sum("metadata of another program" in entry.message for entry in caplog.records) == 1
    assert [some.metadata(index) for index in range(3)] == [""] * 3


@virtual
async def test_metadata_that_is_refused_as_too_large_is_left_out() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000 if record.offset == 0 else 0.01

    def refuse(broker: FakeBroker, request: OffsetCommitRequest) -> Any:
        parts = [part for topic in request.topics for part in topic.partitions]
        return OffsetMetadataTooLargeError.errno if any(part.committed_metadata for part in parts) else None

    some.cluster.control(Api.OFFSET_COMMIT, refuse, keep=True)
    async with processed(some, consumer={"auto_commit_interval_ms": 500}, drain_timeout_ms=0):
        await until(lambda: some.committed() == 0)
    assert some.metadata() == ""


@virtual
async def test_a_handler_can_ask_what_would_be_committed_if_it_had_returned() -> None:
    some = world()
    some.produce(10)
    kept = []

    async def handle(record: Record, context: ProcessingContext) -> None:
        kept.append(context.completed(TopicPartition(record.topic, record.partition)))

    async with processed(some, handle, order="partition"):
        await until(lambda: len(kept) == 10)
    assert [point.offset for point in kept if point is not None] == list(range(1, 11))


@virtual
async def test_what_was_kept_elsewhere_goes_on_there_with_what_was_done_beyond_it() -> None:
    some = world()
    some.produce(60)
    kept: dict[TopicPartition, OffsetAndMetadata] = {}
    handled: list[int] = []

    class GoOn(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            return

        async def on_partitions_assigned(self, assigned: Any) -> None:
            for partition in kept.keys() & assigned:
                consumer.seek(partition, kept[partition])

    async def handle(record: Record, context: ProcessingContext) -> None:
        await anyio.sleep(1_000 if record.offset == 5 and len(handled) < 30 else record.offset % 7 / 100)
        where = TopicPartition(record.topic, record.partition)
        reached = context.completed(where)
        assert reached is not None
        kept[where] = reached
        handled.append(record.offset)

    for count in (30, 60):
        consumer = some.consumer()
        consumer.subscribe(["t"], listener=GoOn())
        async with consumer, consumer.processing(handle, drain_timeout_ms=0):
            await until(lambda: len(handled) >= count)  # noqa: B023 - called within the loop
        some.cluster.committed.clear()  # nobody looks there
    assert sorted(handled) == list(range(60))
    assert next(iter(kept.values())).offset == 60


# Failures.


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
            held = max(held, found.running + found.waiting + found.retrying)
        assert held <= 100
    assert some.committed() == 2_000


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
async def test_a_record_that_cannot_be_deserialized_goes_to_on_failure_with_its_bytes() -> None:
    some = world()
    some.produce(5)

    def integer(data: bytes) -> int:
        if data == b"2":
            raise ValueError("not a number that we like")
        return int(data)

    letters = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, record.value, type(error)))

    seen = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    async with processed(some, handle, retry=Retry(attempts=5), on_failure=write, consumer={"value_deserializer": integer}) as run:
        await until(lambda: len(seen) == 4)
        await run.drain()
    assert seen == [0, 1, 3, 4]
    assert letters == [(2, b"2", DeserializationError)]
    assert some.committed() == 5


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


# Intake.


@virtual
async def test_what_is_received_and_not_done_is_bounded() -> None:
    some = world(2)
    some.produce(2_000, keys=100)
    some.produce(2_000, keys=100, partition=1)
    async with processed(some, concurrency=5) as run:
        most = 0
        while len(some.done) < 300:
            await anyio.sleep(0.02)
            found = run.statistics()
            most = max(most, found.running + found.waiting + found.retrying)
    assert 40 <= most <= 50


@virtual
async def test_a_hot_key_does_not_keep_other_partitions_waiting() -> None:
    some = world(2)
    some.produce(1_000, keys=1)
    some.seconds = lambda record: 1.0 if record.partition == 0 else 0.01
    async with processed(some, concurrency=4, drain_timeout_ms=0):
        await anyio.sleep(10)
        some.produce(10, keys=10, partition=1)
        began = anyio.current_time()
        await until(lambda: sum(record.partition == 1 for record in some.done) == 10)
        assert anyio.current_time() - began < 2


@virtual
async def test_pause_begins_nothing_and_resume_goes_on() -> None:
    some = world()
    some.produce(100, keys=100)
    async with processed(some, concurrency=2) as run:
        await until(lambda: len(some.done) > 10)
        run.pause()
        await anyio.sleep(1)
        count = len(some.started)
        assert len(some.done) == count
        await anyio.sleep(60)
        assert len(some.started) == count
        run.resume()
        await until(lambda: len(some.done) == 100)


@virtual
async def test_drain_waits_for_all_that_was_received_and_commits_it() -> None:
    some = world()
    some.produce(1_000)
    async with processed(some, concurrency=2) as run:
        await until(lambda: len(some.done) > 10)
        await run.drain()
        found = run.statistics()
        assert (found.running, found.waiting, found.retrying) == (0, 0, 0)
        assert some.committed() == len(some.done) < 1_000
        some.produce(1)
        run.resume()
        await until(lambda: len(some.done) == 1_001)


# Rebalances.


@virtual
async def test_no_record_is_handled_by_two_members_when_a_second_one_comes() -> None:
    some = world(4)
    for partition in range(4):
        some.produce(300, keys=10, partition=partition)
    some.seconds = lambda record: 0.2
    async with processed(some, concurrency=20):
        await until(lambda: len(some.done) > 50)
        async with processed(some, concurrency=20):
            await until(lambda: len(some.done) == 1_200)
    assert len({(record.partition, record.offset) for record in some.done}) == 1_200
    assert len(some.started) == 1_200, "no handler was begun twice"
    by_lane = defaultdict(list)
    for record in some.done:
        by_lane[record.partition, record.key].append(record.offset)
    assert all(offsets == sorted(offsets) for offsets in by_lane.values())
    assert [some.committed(partition) for partition in range(4)] == [300] * 4


@virtual
@pytest.mark.parametrize("commits", [True, False])
async def test_what_waits_when_an_eager_rebalance_begins_is_handled_by_the_member_that_gets_it(commits: bool) -> None:
    some = world(4)
    for partition in range(4):
        some.produce(200, keys=20, partition=partition)
    some.seconds = lambda record: 0.1  # 20 s in all: the rebalance comes in the middle
    how = {"group_protocol": "classic", "auto_commit_interval_ms": 500}
    if not commits:
        some.cluster.control(Api.OFFSET_COMMIT, lambda broker, request: CoordinatorLoadInProgressError.errno, keep=True)
    async with processed(some, concurrency=4, consumer=how):
        await until(lambda: len(some.done) > 50)
        async with processed(some, concurrency=4, consumer=how) as second:
            await until(lambda: second.statistics().running > 0)
            assert len(some.done) < 600
            await until(lambda: len({(record.partition, record.offset) for record in some.done}) == 800, 300)


@virtual
async def test_while_a_partition_drains_the_others_go_on() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(2_000, keys=40, partition=partition)
    some.seconds = lambda record: 20.0 if record.key == b"k0" else 0.1
    async with processed(some, concurrency=20, drain_timeout_ms=30_000):
        await until(lambda: sum(record.key == b"k0" for record in some.started) >= 2)
        async with some.consumer() as other, anyio.create_task_group() as tasks:

            async def join() -> None:
                while True:
                    await other.getmany(timeout_ms=1_000, max_records=1)

            tasks.start_soon(join)
            await anyio.sleep(5)
            before = Counter(record.partition for record in some.done)
            await anyio.sleep(5)
            after = Counter(record.partition for record in some.done)
            assert other.assignment() == set(), "the slow one still runs"
            assert sorted((after - before).values())[-1] > 100, "more than was received before"
            assert len(after - before) == 1
            tasks.cancel_scope.cancel()


@virtual
async def test_what_does_not_end_in_time_is_cancelled_and_comes_again_elsewhere() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(5, keys=5, partition=partition)
    first: list[Record] = []
    cancelled: list[Record] = []

    async def stuck(record: Record) -> None:
        first.append(record)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(record)
            raise

    async with processed(some, stuck, drain_timeout_ms=3_000):
        await until(lambda: len(first) == 10)
        async with processed(some, drain_timeout_ms=0):
            began = anyio.current_time()
            await until(lambda: len(some.done) == 5)
            assert anyio.current_time() - began < 10
            assert len(cancelled) == 5
            assert len({record.partition for record in some.done}) == 1
        assert some.committed(some.done[0].partition) == 5
    assert len(cancelled) == 10


@virtual
async def test_what_runs_of_lost_partitions_is_cancelled_and_not_committed() -> None:
    some = world()
    some.produce(10, keys=10)
    some.seconds = lambda record: 3.0
    async with processed(some, consumer={"auto_commit_interval_ms": 100_000}):
        await until(lambda: len(some.started) == 10)
        some.coordinator.kick(GROUP)
        await until(lambda: len(some.started) == 20)
        await until(lambda: len(some.done) >= 10)
        assert some.committed() is None
    assert len(some.done) == 10
    assert some.committed() == 10


@virtual
async def test_the_users_listener_is_called_after_the_drain() -> None:
    some = world()
    some.produce(3)
    told: list[tuple[str, int, int | None]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            told.append(("revoked", some.running.total(), some.committed()))

        def on_partitions_assigned(self, assigned: Any) -> None:
            told.append(("assigned", 0, None))

    consumer = consumer_on(some.cluster, group_id=GROUP, group_protocol="consumer", enable_auto_commit=False)
    consumer.subscribe(["t"], listener=Listener())
    some.seconds = lambda record: 1.0
    async with consumer, consumer.processing(some.handle):
        await until(lambda: some.running.total() == 3)
        await consumer.stop()
    assert told == [("assigned", 0, None), ("revoked", 0, 3)]


@virtual
async def test_a_partition_that_comes_back_takes_nothing_from_what_still_runs() -> None:
    """A handler that ignores its cancellation ends when its record has been handled by somebody else."""
    some = world()
    some.produce(3, keys=3)
    late = []

    async def stubborn(record: Record) -> None:
        some.started.append(record)
        if len(some.started) > 3:
            some.done.append(record)
            return
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)
        late.append(record)

    async with processed(some, stubborn) as run:
        await until(lambda: len(some.started) == 3)
        some.coordinator.kick(GROUP)
        await until(lambda: len(some.done) == 3)
        assert not late
        await until(lambda: len(late) == 3)
        assert run.statistics().late_results == 3
        assert run.statistics().running == 0
    assert some.committed() == 3


@virtual
async def test_seeking_back_while_handlers_run_handles_the_records_again() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer, consumer.processing(some.handle) as run:
        await until(lambda: len(some.done) == 10)
        await run.drain()
        assert some.committed() == 10
        consumer.seek(some.partitions[0], 4)
        run.resume()
        await until(lambda: len(some.done) == 16)
        await run.drain()
    assert sorted(some.offsets()[10:]) == [4, 5, 6, 7, 8, 9]
    assert some.committed() == 10


@virtual
async def test_partitions_that_the_user_assigned_are_processed() -> None:
    some = world(2)
    for partition in range(2):
        some.produce(10, partition=partition)
    consumer = consumer_on(some.cluster, group_id=GROUP, enable_auto_commit=False)
    consumer.assign(some.partitions[:1])
    async with consumer, consumer.processing(some.handle) as run:
        await until(lambda: len(some.done) == 10)
        consumer.assign(some.partitions)
        await until(lambda: len(some.done) == 20)
        await run.drain()
    assert [some.committed(index) for index in range(2)] == [10, 10]


@virtual
async def test_without_a_group_nothing_is_committed() -> None:
    some = world()
    some.produce(10)
    consumer = consumer_on(some.cluster, "t")
    async with consumer, consumer.processing(some.handle, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 10)
    assert some.cluster.asked(Api.OFFSET_COMMIT) == []


# The end.


@virtual
async def test_leaving_lets_what_runs_end_and_begins_nothing_more() -> None:
    some = world()
    some.produce(100, keys=100)
    some.seconds = lambda record: 2.0
    async with processed(some, concurrency=10):
        await until(lambda: some.running.total() == 10)
    assert sorted(some.offsets()) == list(range(10))
    assert some.committed() == 10


@virtual
async def test_a_cancellation_drains_and_commits() -> None:
    some = world()
    some.produce(100, keys=100)
    some.seconds = lambda record: 2.0
    with anyio.move_on_after(1.0) as scope:
        async with processed(some, concurrency=10):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert sorted(some.offsets()) == list(range(10))
    assert some.committed() == 10


@virtual
async def test_an_exception_of_the_body_drains_commits_and_comes_out_as_it_is() -> None:
    some = world()
    some.produce(10, keys=10)
    some.seconds = lambda record: 2.0

    async def body() -> None:
        async with processed(some, concurrency=10):
            await until(lambda: some.running.total() == 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    assert some.committed() == 10


@virtual
async def test_the_end_takes_no_longer_than_it_may() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0
    async with processed(some, drain_timeout_ms=4_000, consumer={"auto_commit_interval_ms": 100}):
        await until(lambda: some.running.total() == 10)
        began = anyio.current_time()
    assert 4 <= anyio.current_time() - began < 6
    assert some.running.total() == 0


async def _process(consumer: Consumer, handler: Callable[..., Any]) -> None:
    async with consumer, consumer.processing(handler, concurrency=4, drain_timeout_ms=500) as run:
        await run.wait()


@virtual
async def _cancelled_at(place: int) -> None:
    some = world()
    some.produce(30, keys=5)
    some.seconds = lambda record: (record.offset % 4) / 20
    with anyio.move_on_after(10):
        await cancelled_at(place, _process(some.consumer(auto_commit_interval_ms=50), some.handle))
    assert some.running.total() == 0
    committed, done = some.committed() or 0, set(some.offsets())
    assert done >= set(range(committed))
    recorded = decode(some.metadata(), committed, some.cluster.topics["t"].id)
    marked = {offset for offset in range(30) if recorded is not None and offset in recorded}
    assert marked <= done
    some.started.clear()
    async with processed(some) as run:
        await until(lambda: set(some.offsets()) == set(range(30)))
        await run.drain()
    assert set(some.offsets(some.started)) == set(range(committed, 30)) - marked
    assert some.committed() == 30


@pytest.mark.parametrize("places", [range(start, start + 20) for start in range(1, 101, 20)], ids=str)
def test_cancelled_at_any_await_what_is_committed_is_done_and_what_is_not_done_comes_again(places: range) -> None:
    for place in places:
        _cancelled_at(place)


@virtual
async def test_stopping_the_consumer_ends_processing() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 2.0
    consumer = some.consumer()
    await consumer.start()
    async with consumer.processing(some.handle) as run:
        await until(lambda: some.running.total() == 10)
        await consumer.stop()
        await run.wait()
    assert len(some.done) == 10
    assert some.committed() == 10


@virtual
async def test_process_runs_until_the_consumer_stops() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: len(some.done) == 10)
        await consumer.stop()
    assert some.committed() == 10


@virtual
async def test_stop_drains_partitions_that_the_user_assigned() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 2.0
    consumer = consumer_on(some.cluster, group_id=GROUP)
    consumer.assign(some.partitions)
    async with consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: some.running.total() == 10)
        await consumer.stop()
        assert some.committed() == 10


@virtual
async def test_stop_takes_no_longer_than_it_may() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0
    async with some.consumer() as consumer, anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.process, some.handle)
        await until(lambda: some.running.total() == 10)
        began = anyio.current_time()
        await consumer.stop(6_000)
        assert anyio.current_time() - began < 6.5
    assert some.running.total() == 0


@virtual
async def test_nobody_else_reads_or_commits_what_was_read() -> None:
    some = world()
    some.produce(10)
    async with some.consumer() as consumer, consumer.processing(some.handle):
        for call in (consumer.getmany, consumer.getone, consumer.getarrow, consumer.commit):
            with pytest.raises(IllegalStateError, match=r"process\(\)"):
                await call()
        with pytest.raises(IllegalStateError, match=r"process\(\)"):
            await consumer.process(some.handle)
        await consumer.commit({some.partitions[0]: 0})


@virtual
async def test_after_it_records_are_read_as_before() -> None:
    some = world()
    some.produce(10)
    some.seconds = lambda record: 1_000.0 if record.offset == 4 else 0.01
    async with some.consumer(enable_auto_commit=True, auto_commit_interval_ms=100) as consumer:
        async with consumer.processing(some.handle, drain_timeout_ms=0):
            await until(lambda: len(some.done) == 9)
        assert await consumer.position(some.partitions[0]) == 4
        assert some.metadata() != ""
        found = await consumer.getmany(timeout_ms=1_000)
        assert some.offsets(found[some.partitions[0]]) == [4, 5, 6, 7, 8, 9]
    assert some.committed() == 10


@virtual
async def test_the_state_says_that_a_record_is_stuck() -> None:
    some = world()
    some.produce(3)
    some.seconds = lambda record: 300 if record.offset == 1 else 0.01
    async with some.consumer() as consumer, consumer.processing(some.handle, stalled_after_ms=10_000, drain_timeout_ms=0):
        states = []
        for seconds in (9, 5, 400):
            await anyio.sleep(seconds)
            states.append(consumer.state)
    assert states == [ConsumerState.STEADY, ConsumerState.STALLED, ConsumerState.STEADY]


@virtual
async def test_a_run_is_used_once() -> None:
    some = world()
    async with processed(some) as run:
        with pytest.raises(IllegalStateError, match="already started"):
            await run.__aenter__()


@virtual
async def test_a_map_of_what_is_done_is_tied_to_the_topic() -> None:
    some = world()
    some.produce(3)
    some.seconds = lambda record: 1_000 if record.offset == 0 else 0.01
    async with processed(some, drain_timeout_ms=0):
        await until(lambda: len(some.done) == 2)
    assert decode(some.metadata(), 0, some.cluster.topics["t"].id) is not None


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"concurrency": 0}, ValueError, "concurrency=0: expected at least 1"),
        ({"concurrency": "10"}, TypeError, "concurrency='10': expected an integer"),
        ({"order": "keys"}, ValueError, "order='keys': expected \"key\""),
        ({"order": None}, TypeError, "order=None"),
        ({"batch": 0}, ValueError, "batch=0"),
        ({"linger_ms": 5}, ValueError, "linger_ms=5: only batches"),
        ({"batch": 2, "linger_ms": -1}, ValueError, "linger_ms=-1"),
        ({"retry": 3}, TypeError, "retry=3: expected a Retry"),
        ({"on_failure": "ignore"}, ValueError, "on_failure='ignore'"),
        ({"on_failure": None}, TypeError, "on_failure=None"),
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
