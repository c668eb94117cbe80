"""``ShareConsumer.process`` on a real broker: what becomes of a record whose handler returns, fails, takes long, loses its lock."""

import asyncio
import threading
import time
from collections import Counter
from typing import Any, Literal
from uuid import uuid4

import pytest

from kafka_async import ProcessingContext, ProcessingError, Reject, Retry, RetryLater, ShareConsumer, ShareRecord, Skip
from kafka_async.errors import IllegalStateError
from kafka_async.model import ConsumerState, TopicPartition
from kafka_async.trace import Fault, RequestSent, TraceEvent
from tests.brokers import KafkaCluster

from .share import LOCK, from_the_start, member
from .tools import PATIENCE, until

Record = ShareRecord[Any, Any]

pytestmark = pytest.mark.brokers


@pytest.fixture
def topic(kafka_share: KafkaCluster) -> str:
    """A topic of one partition, and a share group of the same name that starts at its beginning."""
    name = kafka_share.create_topic(f"work-{uuid4().hex[:8]}")
    from_the_start(kafka_share, name)
    return name


async def left_of(kafka_share: KafkaCluster, topic: str, count: int) -> list[Record]:
    """Return what a new member of the group gets: ``count`` records, and nothing more for a moment."""
    found: list[Record] = []
    async with member(kafka_share, topic, topic) as consumer, asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += [record for batch in (await consumer.getmany(timeout_ms=1000)).values() for record in batch]
        more = await consumer.getmany(timeout_ms=500)
        assert not more, more
        for record in found:
            record.accept()
    return found


async def test_jobs_are_handled_at_once_and_each_is_accepted(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 300)
    done: Counter[int] = Counter()
    running = peak = 0

    async def handle(job: Record) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        done[job.offset] += 1

    async with member(kafka_share, topic, topic) as consumer:
        async with asyncio.timeout(PATIENCE), consumer.processing(handle, concurrency=20) as run:
            await until(lambda: len(done) == 300)
            with pytest.raises(IllegalStateError, match="process"):
                await consumer.getmany()
            await run.drain()
            assert run.statistics().handled == 300
            assert consumer.metrics()["consumer-processing-metrics"]["records-handled-total"] == 300
        await until(lambda: consumer.statistics().accepted == 300)
    assert peak == 20
    assert set(done.values()) == {1}
    assert await left_of(kafka_share, topic, 0) == []


async def test_what_a_handler_raises_decides_what_becomes_of_its_record(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 8)
    attempts: Counter[int] = Counter()
    deliveries: Counter[int] = Counter()
    dead: list[tuple[int, str]] = []

    async def handle(job: Record) -> None:
        attempts[job.offset] += 1
        deliveries[job.offset] = job.delivery_count
        match job.offset:
            case 1:
                raise Skip
            case 2:
                raise Reject("never")
            case 3 if attempts[3] < 3:
                raise ValueError("again")
            case 4 if attempts[4] < 3:
                raise RetryLater(0.05)
            case 5:
                job.reject()
            case 6 if job.delivery_count == 1:
                job.release()
            case 7:
                raise OSError("always")

    async def bury(job: Record, error: BaseException, attempt: int) -> None:
        dead.append((job.offset, repr(error)))

    async with member(kafka_share, topic, topic) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(handle, retry=Retry(attempts=3), on_failure=bury):
            await until(lambda: len(dead) == 2 and attempts[6] == 2 and attempts[4] == 3)
        statistics = consumer.statistics()
    assert sorted(dead) == [(2, "Reject('never')"), (7, "OSError('always')")]
    assert [attempts[offset] for offset in range(8)] == [1, 1, 1, 3, 3, 1, 2, 3]
    assert deliveries[3] == deliveries[4] == 1
    assert deliveries[6] == 2
    assert (statistics.accepted, statistics.released, statistics.rejected) == (5, 1, 3)
    assert await left_of(kafka_share, topic, 0) == []


async def test_a_failure_stops_and_its_record_goes_to_others(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 5)
    done: list[int] = []

    async def handle(job: Record) -> None:
        if job.offset == 2:
            raise ValueError("no")
        done.append(job.offset)

    async with member(kafka_share, topic, topic) as consumer, asyncio.timeout(PATIENCE):
        with pytest.raises(ProcessingError, match="at offset 2 failed after attempt 1") as raised:
            await consumer.process(handle, concurrency=1)
        assert raised.value.record.offset == 2
        rest = [record for batch in (await consumer.getmany(timeout_ms=10_000)).values() for record in batch]
        assert rest[0].delivery_count == 2
        for record in rest:
            record.accept()
        while len(done) + len(rest) < 5:
            more = [record for batch in (await consumer.getmany(timeout_ms=10_000)).values() for record in batch]
            rest += more
            for record in more:
                record.accept()
    assert sorted(done + [record.offset for record in rest]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("reaction", "attempts"), [("release", 5), ("skip", 1)])
async def test_a_record_that_always_fails_ends(kafka_share: KafkaCluster, topic: str, reaction: Any, attempts: int) -> None:
    kafka_share.produce(topic, 3)
    calls: Counter[int] = Counter()

    async def handle(job: Record) -> None:
        calls[job.offset] += 1
        if job.offset == 1:
            raise ValueError("poison")

    async with member(kafka_share, topic, topic) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(handle, on_failure=reaction):
            await until(lambda: calls.total() >= 2 + attempts)
        await consumer.flush()
    assert calls == {0: 1, 1: attempts, 2: 1}
    assert await left_of(kafka_share, topic, 0) == []


async def test_a_handler_that_takes_five_locks_keeps_its_record(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 3)
    calls: Counter[int] = Counter()

    async def handle(job: Record) -> None:
        calls[job.offset] += 1
        await asyncio.sleep(5.2 * LOCK)

    async with (
        member(kafka_share, topic, topic) as consumer,
        member(kafka_share, topic, topic) as other,
        asyncio.timeout(PATIENCE),
        consumer.processing(handle),
        other.processing(handle) as second,
    ):
        began = time.monotonic()
        await until(lambda: calls.total() == 3)
        await until(lambda: consumer.statistics().accepted + other.statistics().accepted == 3)
        assert time.monotonic() - began >= 5 * LOCK
        assert second.statistics().late_results == 0
    assert set(calls.values()) == {1}


async def test_a_lock_that_ends_cancels_its_handler_and_the_record_goes_elsewhere(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 1)
    cancelled = asyncio.Event()
    taken: list[int] = []

    async def forever(job: Record) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert job.lost
            cancelled.set()
            raise

    async def once(job: Record) -> None:
        taken.append(job.delivery_count)

    async with member(kafka_share, topic, topic, max_processing_ms=1) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(forever):
            await until(lambda: consumer.statistics().out == 1)
            async with member(kafka_share, topic, topic) as other, other.processing(once):
                await cancelled.wait()
                await until(lambda: bool(taken))
        lost = consumer.statistics().lost  # the broker may hand it to the same member once more
    assert lost >= 1
    assert taken == [lost + 1]


async def test_what_cannot_be_deserialized_goes_to_on_failure_with_its_bytes(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 4)
    done: list[Any] = []
    dead: list[Record] = []

    def number(value: bytes) -> int:
        if value.startswith(b"2"):
            raise ValueError("not this one")
        return int(value.rstrip(b"."))

    async def handle(job: Record) -> None:
        done.append(job.value)

    async def bury(job: Record, error: BaseException, attempts: int) -> None:
        dead.append(job)

    async with member(kafka_share, topic, topic, value_deserializer=number) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(handle, on_failure=bury):
            await until(lambda: len(done) == 3 and len(dead) == 1)
        await consumer.flush()
        assert consumer.statistics().rejected == 1
    assert sorted(done) == [0, 1, 3]
    assert (dead[0].offset, dead[0].delivery_count) == (2, 2)
    assert dead[0].value.startswith(b"2")
    assert await left_of(kafka_share, topic, 0) == []


async def test_stop_drains_what_runs_and_releases_what_waits(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 50)
    begun: list[int] = []
    done: list[int] = []

    async def handle(job: Record) -> None:
        begun.append(job.offset)
        await asyncio.sleep(0.3)
        done.append(job.offset)

    consumer: ShareConsumer[Any, Any] = ShareConsumer(topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic)
    await consumer.start()
    working = asyncio.create_task(consumer.process(handle, concurrency=4))
    async with asyncio.timeout(PATIENCE):
        await until(lambda: len(done) >= 4)
        await consumer.stop()
        await working
    assert sorted(done) == sorted(begun)
    assert consumer.statistics().accepted == len(done)
    rest = await left_of(kafka_share, topic, 50 - len(done))
    assert sorted(done + [record.offset for record in rest]) == list(range(50))


async def test_threads_batches_and_a_pause(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 100)
    sizes: list[int] = []

    def handle(jobs: list[Record]) -> None:
        time.sleep(0.01)
        sizes.append(len(jobs))

    async with (
        member(kafka_share, topic, topic, background="thread") as consumer,
        asyncio.timeout(PATIENCE),
        consumer.processing(handle, concurrency=2, batch=10, linger_ms=50) as run,
    ):
        await until(lambda: sum(sizes) >= 20)
        run.pause()
        await until(lambda: run.statistics().running == 0)
        before = sum(sizes)
        await asyncio.sleep(0.2)
        assert sum(sizes) == before
        assert consumer.state is ConsumerState.STEADY
        run.resume()
        await until(lambda: sum(sizes) == 100)
    assert max(sizes) == 10
    assert await left_of(kafka_share, topic, 0) == []


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_handlers_on_threads_say_themselves_what_becomes_of_records(
    kafka_share: KafkaCluster, topic: str, background: Literal["task", "thread"]
) -> None:
    asyncio.get_running_loop().set_debug(True)  # it raises where a thread does what only its own may
    kafka_share.produce(topic, 60)
    handled: Counter[tuple[int, int]] = Counter()
    problems: list[object] = []

    def handle(job: Record) -> None:
        handled[job.offset, job.delivery_count] += 1
        if job.lost or job.deadline > time.monotonic() + LOCK:
            problems.append(job)
        match job.offset % 4:
            case 0:
                job.accept()
            case 1:
                job.reject()
            case 2 if job.delivery_count == 1:
                job.release()
            case _:
                job.renew()

    async with member(kafka_share, topic, topic, background=background) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(handle, concurrency=4):
            await until(lambda: sum(handled.values()) == 75)
        assert await consumer.flush() == {TopicPartition(topic, 0): None}
        counts = consumer.statistics()
    assert problems == []
    assert (counts.accepted, counts.rejected, counts.released) == (45, 15, 15)
    assert set(handled.values()) == {1}
    assert await left_of(kafka_share, topic, 0) == []


async def test_a_strict_limit_locks_what_is_asked_for(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 40)
    async with (
        member(kafka_share, topic, topic, strict_max_records=True) as first,
        member(kafka_share, topic, topic, strict_max_records=True) as second,
        asyncio.timeout(PATIENCE),
    ):
        one = await first.getone()
        some = [record for batch in (await first.getmany(timeout_ms=10_000, max_records=5)).values() for record in batch]
        others: list[Record] = []
        while len(others) < 34:
            batch = await second.getmany(timeout_ms=10_000, max_records=7)
            others += [record for records in batch.values() for record in records]
            assert second.statistics().unread == 0
        assert len(some) <= 5
        taken = [one, *some, *others]
        if len(taken) < 40:
            taken += [record for batch in (await first.getmany(timeout_ms=10_000)).values() for record in batch]
        assert sorted(record.offset for record in taken) == list(range(40))
        assert {record.delivery_count for record in taken} == {1}
        for record in taken:
            record.accept()


async def test_unread_bytes_stay_under_the_limit(kafka_share: KafkaCluster, topic: str) -> None:
    for start in range(0, 400, 20):
        kafka_share.produce(topic, 20, size=5000, start=start)
    limit = 500_000
    async with (
        member(kafka_share, topic, topic, fetch_buffer_bytes=limit, max_poll_records=1000) as consumer,
        asyncio.timeout(PATIENCE),
    ):
        seen: list[int] = []
        most = 0
        while len(seen) < 400:
            batch = await consumer.getmany(timeout_ms=5000, max_records=10)
            most = max(most, consumer.statistics().unread)
            for records in batch.values():
                for record in records:
                    record.accept()
                    seen.append(record.offset)
    assert sorted(seen) == list(range(400))
    assert 0 < most * 5000 <= limit


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_handlers_on_threads_may_work_within_with(
    kafka_share: KafkaCluster, topic: str, background: Literal["task", "thread"]
) -> None:
    asyncio.get_running_loop().set_debug(True)  # it raises where a thread does what only its own may
    kafka_share.produce(topic, 20)
    handled: Counter[int] = Counter()

    def handle(job: Record) -> None:
        with job:
            handled[job.offset] += 1

    async with member(kafka_share, topic, topic, background=background) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(handle, concurrency=4):
            await until(lambda: handled.total() == 20)
        await consumer.flush()
        assert (consumer.statistics().accepted, consumer.statistics().refused) == (20, 0)
    assert handled == Counter(range(20))


@pytest.mark.parametrize("background", ["task", "thread"])
async def test_a_stop_waits_for_a_thread_that_works_on_a_record_and_no_longer(
    kafka_share: KafkaCluster, topic: str, background: Literal["task", "thread"]
) -> None:
    from_the_start(kafka_share, topic, share_record_lock_duration_ms="30000")  # a busy machine may be late, and lose no lock
    asyncio.get_running_loop().set_debug(True)
    kafka_share.produce(topic, 2)
    begun = threading.Event()

    def work(job: Record) -> None:
        with job:
            begun.set()
            time.sleep(1)

    async with member(kafka_share, topic, topic, background=background) as consumer:
        job = await consumer.getone()
        working = asyncio.create_task(asyncio.to_thread(work, job))
        await asyncio.to_thread(begun.wait)
        began = time.monotonic()
        await consumer.stop(timeout_ms=150_000)
        assert 0.9 < time.monotonic() - began < 50 - 10, "it is woken by the thread, and does not wait for a third of its time"
        await working
        assert not job.lost
        assert (consumer.statistics().accepted, consumer.statistics().refused) == (1, 0)
    assert [left.offset for left in await left_of(kafka_share, topic, 1)] == [1]


async def test_records_laid_out_for_threads_go_to_others_on_unsubscribe_and_none_is_handled_twice(
    kafka_share: KafkaCluster, topic: str
) -> None:
    kafka_share.produce(topic, 12)  # after these it is known that handlers are quick
    go_on, handled = threading.Event(), list[int]()

    def handle(job: Record) -> None:
        if job.offset >= 12:
            go_on.wait(PATIENCE)
        handled.append(job.offset)

    async with (
        member(kafka_share, topic, topic) as consumer,
        asyncio.timeout(PATIENCE),
        consumer.processing(handle, concurrency=4) as run,
    ):
        await until(lambda: run.statistics().handled == 12)
        kafka_share.produce(topic, 100)
        await until(lambda: run.statistics().running == 4 and run.statistics().waiting > 4)
        await consumer.unsubscribe()
        go_on.set()
        await until(lambda: run.statistics().running == 0)
        assert len(handled) == 16, "nothing more of what was received is begun"
        assert len(await left_of(kafka_share, topic, 96)) == 96
    assert len(set(handled)) == 16


async def test_a_group_that_allows_no_renewals_is_not_asked_about_each_record(kafka_share: KafkaCluster, topic: str) -> None:
    from_the_start(kafka_share, topic, share_renew_acknowledge_enable="false")
    kafka_share.produce(topic, 400)
    seen: list[TraceEvent] = []
    async with member(kafka_share, topic, topic, trace=seen.append) as consumer, asyncio.timeout(PATIENCE):
        (records,) = (await consumer.getmany(timeout_ms=PATIENCE * 1000)).values()
        assert len(records) > 100
        async with records[0]:
            await asyncio.sleep(LOCK * 0.8)
    said = [event for event in seen if isinstance(event, Fault) and event.text == "locks could not be renewed"]
    assert said
    assert len([event for event in seen if isinstance(event, RequestSent) and event.api == "ShareAcknowledge"]) < 10


async def test_a_thread_whose_lock_ends_is_told_and_its_result_does_not_count(kafka_share: KafkaCluster, topic: str) -> None:
    from_the_start(kafka_share, topic, share_renew_acknowledge_enable="false")
    kafka_share.produce(topic, 10)
    told: list[bool] = []
    counts: dict[int, list[int]] = {}

    def handle(job: Record, context: ProcessingContext) -> None:
        counts.setdefault(job.offset, []).append(job.delivery_count)
        if job.offset == 0 and job.delivery_count == 1:
            until_then = time.monotonic() + PATIENCE
            while not context.cancelled and time.monotonic() < until_then:
                time.sleep(0.05)
            told.append(context.cancelled)

    async with member(kafka_share, topic, topic) as consumer, asyncio.timeout(PATIENCE):
        async with consumer.processing(handle, concurrency=2) as run:
            await until(lambda: 2 in counts.get(0, []) and bool(told))
            await until(lambda: run.statistics().late_results == 1)
            await run.drain()
        assert consumer.statistics().accepted == 10
    assert told == [True]
    assert counts == {0: [1, 2]} | {offset: [1] for offset in range(1, 10)}
