"""The blocking ``ShareConsumer`` on a real broker, and share consumers on trio and with a background thread."""

import threading
import time
from collections import Counter
from typing import Any
from uuid import uuid4

import anyio
import pytest

import kafka_async
from kafka_async import Reject, ShareRecord
from kafka_async.errors import IllegalStateError
from kafka_async.sync import ShareConsumer
from tests.brokers import KafkaCluster

from .share import LOCK, from_the_start
from .tools import PATIENCE

Record = ShareRecord[Any, Any]

pytestmark = pytest.mark.brokers


@pytest.fixture
def topic(kafka_share: KafkaCluster) -> str:
    """A topic of one partition with 20 records, and a share group of the same name that starts at its beginning."""
    name = kafka_share.create_topic(f"blocking-{uuid4().hex[:8]}")
    from_the_start(kafka_share, name)
    kafka_share.produce(name, 20)
    return name


def member(kafka_share: KafkaCluster, topic: str, **options: Any) -> "ShareConsumer[Any, Any]":
    return ShareConsumer(topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic, **options)


def until(condition: Any, seconds: float = PATIENCE) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_records_are_read_one_by_one_and_in_batches(kafka_share: KafkaCluster, topic: str) -> None:
    seen: Counter[int] = Counter()
    with member(kafka_share, topic) as consumer:
        for record in consumer:
            with record:
                seen[record.offset] += 1
            if len(seen) == 5:
                break
        with pytest.raises(ValueError, match="mine"), consumer.getone() as record:
            raise ValueError("mine")
        while len(seen) < 20:
            for records in consumer.getmany(timeout_ms=1000, max_records=4).values():
                for record in records:
                    threads = [threading.Thread(target=record.accept)]  # from any thread
                    threads[0].start()
                    threads[0].join()
                    seen[record.offset] += 1
        assert consumer.flush() is not None
        assert consumer.statistics().accepted == 20
        assert consumer.statistics().released == 1
    assert set(seen.values()) == {1}


def test_handlers_on_threads_accept_reject_and_keep_long_work(kafka_share: KafkaCluster, topic: str) -> None:
    done: Counter[int] = Counter()

    def handle(record: Record) -> None:
        if record.offset == 3:
            time.sleep(1.5 * LOCK)
        if record.offset == 4:
            raise Reject
        assert not record.lost
        done[record.offset] += 1

    async def wrong(record: Record) -> None: ...

    with member(kafka_share, topic) as consumer:
        with pytest.raises(TypeError, match="plain function"):
            consumer.process(wrong)
        with consumer.processing(handle, concurrency=4) as run:
            until(lambda: len(done) == 19)
            run.drain()
            assert run.statistics().skipped == 1
        assert (consumer.statistics().accepted, consumer.statistics().rejected) == (19, 1)
    assert set(done.values()) == {1}


def test_another_thread_stops_a_read_and_is_the_only_one_let_in(kafka_share: KafkaCluster, topic: str) -> None:
    consumer = member(kafka_share, topic)
    consumer.start()
    seen: list[int] = []
    refused: list[BaseException] = []

    def read() -> None:
        for record in consumer:
            record.accept()
            seen.append(record.offset)

    thread = threading.Thread(target=read)
    thread.start()
    until(lambda: len(seen) == 20)
    try:
        consumer.getmany()
    except IllegalStateError as error:
        refused.append(error)
    consumer.stop(timeout_ms=10_000)
    thread.join(10)
    assert not thread.is_alive()
    assert len(refused) == 1


def test_process_ends_when_another_thread_stops_the_consumer(kafka_share: KafkaCluster, topic: str) -> None:
    consumer = member(kafka_share, topic)
    consumer.start()
    done: list[int] = []

    def handle(record: Record) -> None:
        done.append(record.offset)

    thread = threading.Thread(target=consumer.process, args=(handle,))
    thread.start()
    until(lambda: len(done) == 20)
    consumer.stop(timeout_ms=10_000)
    thread.join(10)
    assert not thread.is_alive()
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize(("backend", "background"), [("trio", "task"), ("trio", "thread"), ("asyncio", "thread")])
def test_other_loops_and_a_background_thread(kafka_share: KafkaCluster, topic: str, backend: str, background: Any) -> None:
    done: Counter[int] = Counter()
    every: anyio.Event

    async def handle(record: Record) -> None:
        await anyio.sleep(0.01)
        done[record.offset] += 1
        if len(done) == 20:
            every.set()

    async def main() -> None:
        nonlocal every
        every = anyio.Event()
        consumer: kafka_async.ShareConsumer[Any, Any] = kafka_async.ShareConsumer(
            topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic, background=background
        )
        with anyio.fail_after(PATIENCE):
            async with consumer:
                async for record in consumer:
                    async with record:
                        done[record.offset] += 1
                    if len(done) == 5:
                        break
                async with consumer.processing(handle, concurrency=3):
                    await every.wait()
                await consumer.flush()
                assert consumer.statistics().accepted == 20

    anyio.run(main, backend=backend)
    assert set(done.values()) == {1}
