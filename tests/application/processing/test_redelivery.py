"""Records that failed come again from retry topics, on a simulated cluster under virtual time: the program handles them later."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from attrs import Factory, define

from kafka_async import (
    ConsumerRecord,
    KafkaConsumer,
    ProcessingContext,
    Reject,
    Retry,
    RetryLater,
    Router,
    ShareConsumer,
    TopicPartition,
)
from kafka_async.adapters.retry_topics import RetryTopics
from kafka_async.application.processing.processing import Processing
from kafka_async.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    MessageSizeTooLargeError,
    ProcessingError,
    TooManyFailuresError,
    UnknownTopicOrPartitionError,
)
from kafka_async.testing import Cluster
from tests.application.support import virtual

from .world import until

Record = ConsumerRecord[Any, Any]
GROUP = "billing"
DELAYS = (10, 100)


@define(eq=False)
class Producer:
    """Writes to the cluster as aiokafka's producer does, once it is let."""

    cluster: Cluster
    hangs: bool = False
    fails: bool = False
    too_large: bytes | None = None
    """A value that the topics do not take."""
    under_way: int = 0

    async def send_and_wait(self, topic: str, *, value: bytes | None, key: bytes | None, headers: Any) -> None:
        self.under_way += 1
        try:
            while self.hangs:  # noqa: ASYNC110 - time is virtual
                await anyio.sleep(0.1)
            await anyio.sleep(0.1)
        finally:
            self.under_way -= 1
        if self.fails:
            raise ConnectionError("nobody answers")
        if value is not None and value == self.too_large:
            raise MessageSizeTooLargeError
        self.cluster.produce(topic, key=key, value=value, headers=headers, timestamp=round(now(self.cluster)))


def now(cluster: Cluster) -> float:
    return cluster.simulated.network.date()


@define(eq=False)
class Service:
    """A program with its cluster, and when it handled what."""

    cluster: Cluster
    producer: Producer
    failing: Callable[[Record, int], BaseException | None] = lambda record, attempt: None
    attempts: dict[bytes, list[tuple[str, int, float]]] = Factory(dict)
    """By value: topic, number of the attempt and second, of each attempt."""
    given_up: list[tuple[Record, int]] = Factory(list)

    async def handle(self, record: Record, context: ProcessingContext) -> None:
        seconds = (now(self.cluster) - self.began) / 1000
        self.attempts.setdefault(record.value, []).append((record.topic, context.attempt, seconds))
        if (error := self.failing(record, context.attempt)) is not None:
            raise error

    began: float = 0.0

    async def then(self, record: Record, error: BaseException, attempts: int) -> None:
        self.given_up.append((record, attempts))

    @property
    def retry(self) -> RetryTopics:
        return RetryTopics(self.producer, delays=DELAYS, then=self.then)

    def consumer(self, *topics: str, **options: Any) -> KafkaConsumer[Any, Any]:
        options = {"group_id": GROUP, "auto_offset_reset": "earliest", **self.cluster.options(), **options}
        return KafkaConsumer(*(topics or ("orders", *self.retry.topics("orders", GROUP))), **options)

    @asynccontextmanager
    async def running(self, handler: Any = None, **how: Any) -> AsyncIterator[Processing]:
        how = {"on_failure": self.retry, **how}
        async with self.consumer() as consumer, consumer.processing(handler or self.handle, **how) as run:
            yield run

    def committed(self, topic: str, partition: int = 0) -> int | None:
        found = self.cluster.committed(GROUP).get(TopicPartition(topic, partition))
        return None if found is None else found.offset


def service(*topics: str) -> Service:
    cluster = Cluster()
    for topic in topics or ("orders", f"orders.{GROUP}.retry.10", f"orders.{GROUP}.retry.100"):
        cluster.topic(topic, partitions=2 if topic == "orders" else 1)
    made = Service(cluster, Producer(cluster))
    made.began = now(cluster)
    return made


@pytest.mark.slow
@virtual
async def test_a_record_that_fails_comes_again_after_each_delay_with_attempts_going_on() -> None:
    some = service()
    some.failing = lambda record, attempt: ValueError() if record.value == b"bad" and attempt < 4 else None
    for value in (b"good", b"bad", b"after"):
        some.cluster.produce("orders", key=b"k", value=value, partition=0)
    async with some.running(retry=Retry(attempts=2, delay=1)) as run:
        await until(lambda: len(some.attempts.get(b"bad", ())) == 4, 200)
        await until(lambda: run.statistics().handled == 3)
        assert (run.statistics().redelivered, run.statistics().dead_letters) == (2, 0)
    topics, attempts, seconds = zip(*some.attempts[b"bad"], strict=True)
    assert topics == ("orders", "orders", f"orders.{GROUP}.retry.10", f"orders.{GROUP}.retry.100")
    assert attempts == (1, 2, 3, 4)
    assert 10 <= seconds[2] - seconds[1] < 11
    assert 100 <= seconds[3] - seconds[2] < 101
    assert some.attempts[b"after"][0][2] < seconds[2]
    assert [some.committed("orders"), some.committed(topics[2]), some.committed(topics[3])] == [3, 1, 1]


@pytest.mark.slow
@virtual
async def test_after_the_last_delay_a_record_is_given_up_as_it_was_first_and_a_reject_at_once() -> None:
    some = service()
    some.failing = lambda record, attempt: Reject() if record.value == b"useless" else ValueError()
    first = some.cluster.produce("orders", key=b"k", value=b"bad", headers=[("a", b"1")], partition=1)
    some.cluster.produce("orders", value=b"useless", partition=0)
    async with some.running() as run:
        await until(lambda: len(some.given_up) == 1)
        assert (now(some.cluster) - some.began) / 1000 < 9
        await until(lambda: len(some.given_up) == 2, 200)
        await until(lambda: run.statistics().dead_letters == 2)
    (useless, once), (bad, attempts) = some.given_up
    assert (useless.value, once, attempts) == (b"useless", 1, 3)
    assert (TopicPartition(bad.topic, bad.partition), bad.offset) == first
    assert (bad.key, bad.value, bad.headers) == (b"k", b"bad", (("a", b"1"),))


@pytest.mark.slow
@pytest.mark.parametrize("routed", [False, True])
@virtual
async def test_in_a_retry_topic_a_record_has_one_attempt_even_if_retry_would_allow_it_more(routed: bool) -> None:
    some = service()
    some.failing = lambda record, attempt: {1: ValueError(), 2: ConnectionError(), 3: RetryLater(5)}.get(attempt)
    some.cluster.produce("orders", key=b"k", value=b"bad", partition=0)
    retry, router = Retry(attempts=5, delay=1, on=ConnectionError), Router()

    @router.on(topic="orders", retry=retry)
    async def handle(record: Record, context: ProcessingContext) -> None:
        await some.handle(record, context)

    async with some.running(router if routed else None, **({} if routed else {"retry": retry})) as run:
        await until(lambda: run.statistics().handled == 1, 200)
        assert run.statistics().redelivered == 2
    topics = [topic for topic, _, _ in some.attempts[b"bad"]]
    assert topics == ["orders", f"orders.{GROUP}.retry.10", *[f"orders.{GROUP}.retry.100"] * 2]
    assert [attempt for _, attempt, _ in some.attempts[b"bad"]] == [1, 2, 3, 4]


@virtual
async def test_topics_that_are_missing_are_named_at_the_start() -> None:
    some = service("orders", f"orders.{GROUP}.retry.10")
    some.cluster.produce("orders", value=b"x")
    async with some.consumer("orders") as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match=rf"create them first: orders\.{GROUP}\.retry\.100$"):
            await consumer.process(some.handle, on_failure=some.retry)
        assert not some.attempts
        assert len(await consumer.getmany(timeout_ms=5_000)) == 1
    async with some.consumer("orders", group_id=None) as consumer:
        with pytest.raises(ValueError, match="give the consumer a group_id"):
            consumer.processing(some.handle, on_failure=some.retry)


@virtual
async def test_topics_that_nobody_here_reads_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    some = service()
    async with some.consumer("orders") as consumer, consumer.processing(some.handle, on_failure=some.retry):
        pass
    names = f"orders.{GROUP}.retry.10, orders.{GROUP}.retry.100"
    assert f"records are written to topics that this consumer does not read: {names}" in caplog.text
    assert caplog.text.count("loses its place in the order") == 1


@virtual
async def test_nothing_is_committed_before_the_copy_is_acknowledged() -> None:
    some = service()
    some.failing = lambda record, attempt: ValueError() if record.value == b"bad" else None
    some.producer.hangs = True
    for value in (b"good", b"bad", b"after"):
        some.cluster.produce("orders", value=value, partition=0)
    async with some.running(drain_timeout_ms=2_000) as run:
        await until(lambda: len(some.attempts) == 3)
        await anyio.sleep(60)
        assert some.committed("orders") == 1
        assert run.statistics().running == 1
    assert some.committed("orders") == 1
    assert some.producer.under_way == 0
    some.producer.hangs = False
    async with some.running():
        await until(lambda: some.committed("orders") == 3)
    assert len(some.attempts[b"after"]) == 1
    assert [topic for topic, _, _ in some.attempts[b"bad"]] == ["orders", "orders"]


@virtual
async def test_a_copy_that_cannot_be_written_stops_processing_and_is_not_committed() -> None:
    some = service()
    some.failing = lambda record, attempt: ValueError("no") if record.value == b"bad" else None
    some.producer.fails = True
    for value in (b"good", b"bad"):
        some.cluster.produce("orders", value=value, partition=0)
    impatient = RetryTopics(some.producer, delays=DELAYS, then="skip", patience_ms=5_000)
    with pytest.raises(ProcessingError, match="nobody answers") as raised:
        async with some.running(on_failure=impatient):
            await anyio.sleep(100)
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert some.committed("orders") == 1


@virtual
async def test_then_stop_raises_the_records_own_error() -> None:
    some = service()
    some.failing = lambda record, attempt: Reject("bad")
    some.cluster.produce("orders", value=b"x", partition=0)
    with pytest.raises(ProcessingError, match="bad") as raised:
        async with some.running(on_failure=RetryTopics(some.producer, delays=DELAYS, then="stop")):
            await anyio.sleep(100)
    assert isinstance(raised.value.__cause__, Reject)


@virtual
async def test_records_of_a_batch_go_to_the_retry_topic_and_come_again() -> None:
    some = service()
    tries: list[list[bytes]] = []

    async def handle(records: list[Record]) -> None:
        tries.append([record.value for record in records])
        if records[0].topic == "orders":
            raise ValueError

    for number in range(6):
        some.cluster.produce("orders", key=b"k", value=b"%d" % number, partition=0)
    async with some.running(handle, batch=6, linger_ms=100) as run:
        await until(lambda: run.statistics().handled == 6)
        assert run.statistics().redelivered == 6
    assert sorted(value for batch in tries[1:] for value in batch) == [b"%d" % number for number in range(6)]


@virtual
async def test_a_batch_has_no_records_with_fewer_attempts_before_than_others() -> None:
    """All were given up after the first, or never, as it was with the record that stood in front."""
    some = service()
    tries: list[tuple[int, set[str]]] = []

    async def handle(records: list[Record], context: ProcessingContext) -> None:
        tries.append((context.attempt, {record.topic for record in records}))
        if any(record.value == b"bad" for record in records):
            raise ValueError

    async with some.running(handle, order="none", batch=5, linger_ms=1_000) as run:
        some.cluster.produce("orders", value=b"bad", partition=0)
        await until(lambda: run.statistics().redelivered == 1)
        while run.statistics().redelivered < 2:
            some.cluster.produce("orders", value=b"good", partition=0)
            await anyio.sleep(0.1)
    assert all(topics == ({"orders"} if attempt == 1 else {f"orders.{GROUP}.retry.10"}) for attempt, topics in tries)


@virtual
async def test_only_those_records_of_a_batch_failed_for_good_that_no_retry_topic_takes() -> None:
    some = service()

    async def handle(records: list[Any]) -> None:
        if records[0].topic == "orders":
            raise ValueError

    for number in range(6):
        some.cluster.produce("orders", key=b"k", value=b"large" if number == 2 else b"%d" % number, partition=0)
    some.producer.too_large = b"large"
    async with some.running(handle, batch=6, linger_ms=100) as run:
        await until(lambda: run.statistics().handled == 5)
        assert (run.statistics().redelivered, run.statistics().dead_letters) == (5, 1)
    assert [(record.value, attempts) for record, attempts in some.given_up] == [(b"large", 1)]
    assert some.committed("orders") == 6


@pytest.mark.parametrize("batch", [None, 10])
@virtual
async def test_a_release_that_fails_at_everything_stops_before_the_whole_topic_is_in_the_retry_topic(batch: int | None) -> None:
    some = service()

    async def handle(records: Any) -> None:
        raise ValueError("always")

    for number in range(200):
        some.cluster.produce("orders", value=b"%d" % number, partition=0)
    with pytest.raises(TooManyFailuresError, match=r"\d+ of the last 20 records failed for good") as raised:
        async with some.running(handle, batch=batch, concurrency=1, too_many_failures=(10, 20)) as run:
            await run.wait()
    assert isinstance(raised.value.__cause__, ValueError)
    assert run.statistics().redelivered == some.committed("orders") == 10


@virtual
async def test_records_that_a_retry_topic_took_are_no_successes_for_the_share_of_failures() -> None:
    some = service()

    async def handle(record: Record) -> None:
        if record.offset % 2:
            raise ValueError

    for number in range(200):
        some.cluster.produce("orders", value=b"%d" % number, partition=0)
    with pytest.raises(TooManyFailuresError, match="10 of the last 20 records failed for good"):
        async with some.running(handle, concurrency=1, order="partition", too_many_failures=(10, 20)) as run:
            await run.wait()
    assert some.committed("orders") == 20


@virtual
async def test_a_share_group_rejects_only_those_records_of_a_batch_that_no_retry_topic_takes() -> None:
    some = service()
    some.producer.too_large = b"large"

    async def handle(records: list[Any]) -> None:
        raise ValueError

    shared: ShareConsumer[Any, Any] = ShareConsumer("orders", group_id=GROUP, **some.cluster.options())
    async with shared:
        async with shared.processing(handle, on_failure=some.retry, batch=6, linger_ms=1000) as run:
            await anyio.sleep(10)
            for number in range(6):
                some.cluster.produce("orders", value=b"large" if number == 2 else b"%d" % number, partition=0)
            await until(lambda: run.statistics().redelivered == 5)
        assert (shared.statistics().accepted, shared.statistics().rejected) == (5, 1)


@pytest.mark.slow
@virtual
async def test_a_time_of_the_program_and_that_of_a_retry_topic_both_count() -> None:
    some = service()
    some.failing = lambda record, attempt: ValueError() if attempt == 1 else None
    some.cluster.produce("orders", value=b"x", partition=0)
    due = some.began + 30_000
    async with some.running(not_before=lambda record: due) as run:
        await until(lambda: run.statistics().handled == 1)
    (_, _, first), (_, _, second) = some.attempts[b"x"]
    assert 30 <= first < 31
    assert 10 <= second - first < 11


@virtual
async def test_a_broken_header_makes_a_record_wait_no_longer_than_its_delay_from_when_it_was_read() -> None:
    some = service()
    due = round(now(some.cluster)) + 1_000_000_000
    some.cluster.produce(
        f"orders.{GROUP}.retry.10", value=b"x", headers=[("retry-due", b"%d" % due), ("retry-attempts", b"1")], partition=0
    )
    async with some.running() as run:
        await until(lambda: run.statistics().handled == 1)
    ((_, attempt, seconds),) = some.attempts[b"x"]
    assert attempt == 2
    assert 10 <= seconds < 16


@virtual
async def test_a_share_group_writes_to_retry_topics_and_does_not_read_them() -> None:
    some = service()

    async def handle(record: Any) -> None:
        raise ValueError

    def consumer(*topics: str) -> ShareConsumer[Any, Any]:
        return ShareConsumer(*topics, group_id=GROUP, **some.cluster.options())

    async with consumer("orders") as shared, shared.processing(handle, on_failure=some.retry) as run:
        await anyio.sleep(10)
        some.cluster.produce("orders", value=b"x", partition=0)
        await until(lambda: run.statistics().redelivered == 1)
    names = some.retry.topics("orders", GROUP)
    async with consumer("orders", *names) as shared:
        with pytest.raises(KafkaConfigurationError, match=rf"KafkaConsumer: orders\.{GROUP}\.retry\.10"):
            await shared.process(handle, on_failure=some.retry)
        assert await shared.getmany(timeout_ms=10) == {}, "the consumer is given back"
    async with some.consumer("orders", *names, group_id="reader") as reader:
        with anyio.fail_after(60):
            while f"orders.{GROUP}.retry.10" not in {tp.topic for tp in await reader.getmany(timeout_ms=1_000)}:
                pass


@virtual
async def test_a_process_of_a_share_group_that_is_refused_leaves_reads_that_wait_alone() -> None:
    some = service()
    names = some.retry.topics("orders", GROUP)
    read: list[Any] = []

    async with ShareConsumer[Any, Any]("orders", *names, group_id=GROUP, **some.cluster.options()) as shared:

        async def wait() -> None:
            read.append(await shared.getone())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(10)
            with pytest.raises(KafkaConfigurationError):
                await shared.process(lambda record: None, on_failure=some.retry)
            some.cluster.produce("orders", value=b"x", partition=0)
    assert [record.value for record in read] == [b"x"]


@virtual
async def test_only_one_of_two_that_begin_at_once_reads_from_a_share_group() -> None:
    some = service()
    refused: list[str] = []

    async def handle(record: Any) -> None:
        raise ValueError

    async with ShareConsumer[Any, Any]("orders", group_id=GROUP, **some.cluster.options()) as shared:

        async def process() -> None:
            try:
                async with shared.processing(handle, on_failure=some.retry):
                    await anyio.sleep(1)
            except IllegalStateError as error:
                refused.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process)
            tasks.start_soon(process)
    assert refused == ["process() is reading from this consumer; nothing else can read meanwhile"]
