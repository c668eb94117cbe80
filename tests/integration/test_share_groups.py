"""Share groups (KIP-932) on a real broker: what becomes of records, of their locks and of members that die."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.application.share.record import ShareRecord
from kafka_async.errors import (
    DeserializationError,
    IllegalStateError,
    InvalidRecordStateError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_async.model import ConsumerState, TopicPartition
from tests.brokers import CURRENT, KafkaCluster
from tests.faults.proxy import Strike, proxied

from .share import LOCK, LONG, from_the_start, member
from .tools import PATIENCE, until

Record = ShareRecord[bytes, bytes]

pytestmark = pytest.mark.brokers

SHARE_ACKNOWLEDGE = 79


@pytest.fixture
def topic(kafka_share: KafkaCluster) -> str:
    """A topic of one partition, and a share group of the same name that starts at its beginning."""
    name = kafka_share.create_topic(f"jobs-{uuid4().hex[:8]}")
    from_the_start(kafka_share, name)
    return name


async def next_of(consumer: ShareConsumer[bytes, bytes], seconds: float = PATIENCE) -> Record:
    async with asyncio.timeout(seconds):
        return await consumer.getone()


def locked_for(kafka_share: KafkaCluster, group: str, seconds: float) -> None:
    """Have locks of a group last so long."""
    from_the_start(kafka_share, group, share_record_lock_duration_ms=str(int(seconds * 1000)))


async def rest_of(consumer: ShareConsumer[bytes, bytes], seconds: float) -> list[Record]:
    """Return what comes within a time in which everything that is to come has come."""
    found: list[Record] = []
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        batch = await consumer.getmany(timeout_ms=left * 1000)
        found += [record for records in batch.values() for record in records]
    return found


# --- jobs -----------------------------------------------------------------------------------------------------------------------


async def test_two_members_share_the_jobs_of_one_partition(kafka_share: KafkaCluster, topic: str) -> None:
    done: Counter[int] = Counter()
    shares: Counter[str] = Counter()

    async def work(name: str) -> None:
        async with member(kafka_share, topic, topic, max_poll_records=50) as consumer:
            async for job in consumer:
                async with job:
                    await asyncio.sleep(0.002)
                done[int(job.value.rstrip(b"."))] += 1
                shares[name] += 1

    workers = [asyncio.create_task(work(name)) for name in ("one", "two")]
    sent = 0
    async with asyncio.timeout(PATIENCE):
        while sent < 1000 or len(shares) < 2:  # a member learns of its partitions with some heartbeat, maybe after the other
            await asyncio.to_thread(kafka_share.produce, topic, 100, start=sent)  # in batches: whole ones are acquired
            sent += 100
        await until(lambda: done.total() >= sent)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(done) == list(range(sent))
    assert set(done.values()) == {1}
    assert set(shares) == {"one", "two"}


async def test_one_large_batch_of_a_producer_is_shared_by_two_members(kafka_share: KafkaCluster, topic: str) -> None:
    from_the_start(kafka_share, topic, share_record_lock_duration_ms="30000", share_partition_max_record_locks="4000")
    done: Counter[str] = Counter()
    seen: set[int] = set()

    async def work(name: str) -> None:
        async with member(kafka_share, topic, topic) as consumer:
            ready.add(name)
            async for job in consumer:
                async with job:
                    await asyncio.sleep(0.003)
                done[name] += 1
                seen.add(job.offset)

    ready: set[str] = set()
    workers = [asyncio.create_task(work(name)) for name in ("one", "two")]
    await until(lambda: len(ready) == 2)
    settings = {"linger.ms": 2000, "batch.num.messages": 3000, "batch.size": 2_000_000, "queue.buffering.backpressure.threshold": 1}
    await asyncio.to_thread(kafka_share.produce, topic, 3000, 20, settings=settings)
    await until(lambda: len(seen) == 3000)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert min(done["one"], done["two"]) > 900, done
    assert done.total() == 3000


async def test_a_job_that_is_at_work_when_others_stop_the_consumer_twice_is_accepted(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 50)
    done: list[int] = []
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic)

    async def work() -> None:
        async for job in consumer:
            async with job:
                await asyncio.sleep(0.05)
            done.append(job.offset)

    await consumer.start()
    working = asyncio.create_task(work())
    await until(lambda: len(done) >= 5)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(consumer.stop(), consumer.stop())
        await working
    async with member(kafka_share, topic, topic) as other:
        assert [(await next_of(other)).offset for _ in range(50 - len(done))] == list(range(len(done), 50))
    assert done == list(range(len(done)))


async def test_reads_with_tiny_timeouts_and_an_async_deserializer_lose_and_repeat_no_job(
    kafka_share: KafkaCluster, topic: str
) -> None:
    async def slow(data: bytes) -> bytes:
        await asyncio.sleep(0.003)
        return data

    kafka_share.produce(topic, 100)
    done: Counter[int] = Counter()
    async with member(kafka_share, topic, topic, value_deserializer=slow) as consumer, asyncio.timeout(PATIENCE):
        for turn in count():
            try:
                job = await asyncio.wait_for(consumer.getone(), 0.002 if turn % 3 else 2)
            except TimeoutError:
                continue
            job.accept()
            done[job.offset] += 1
            if done.total() == 100:
                break
        assert await consumer.flush() == {TopicPartition(topic, 0): None}
    assert done == Counter(range(100))


async def test_unsubscribing_between_two_jobs_loses_none(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 50)
    done: Counter[int] = Counter()
    async with member(kafka_share, topic, topic) as consumer, asyncio.timeout(PATIENCE):
        async for job in consumer:
            async with job:  # what was handed out before can still be accepted
                if done.total() in (3, 20):
                    await consumer.unsubscribe()
                    consumer.subscribe([topic])
            done[job.offset] += 1
            if len(done) == 50:
                break
        assert await consumer.flush() == {TopicPartition(topic, 0): None}
    assert done == Counter(range(50))


async def test_what_is_released_comes_again_and_what_is_rejected_does_not(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 3)
    async with member(kafka_share, topic, topic) as consumer:
        records = [await next_of(consumer) for _ in range(3)]
        assert [record.delivery_count for record in records] == [1, 1, 1]
        records[0].accept()
        records[1].release()
        records[2].reject()
        again = await next_of(consumer)
        assert (again.offset, again.delivery_count) == (records[1].offset, 2)
        again.accept()
        assert await consumer.flush() == {TopicPartition(topic, 0): None}
        assert await rest_of(consumer, 1.0) == []
        statistics = consumer.statistics()
        assert (statistics.accepted, statistics.released, statistics.rejected, statistics.refused) == (2, 1, 1, 0)
        assert (statistics.delivered, statistics.out, statistics.unread, statistics.unanswered) == (4, 0, 0, 0)


async def test_a_record_that_is_delivered_too_often_is_archived(kafka_share: KafkaCluster, topic: str) -> None:
    from_the_start(kafka_share, topic, share_delivery_count_limit="2")
    kafka_share.produce(topic, 1)
    async with member(kafka_share, topic, topic) as consumer:
        for deliveries in (1, 2):
            record = await next_of(consumer)
            assert record.delivery_count == deliveries
            record.release()
        await consumer.flush()
        assert await rest_of(consumer, 1.0) == []


async def test_a_record_is_acknowledged_once(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 1)
    async with member(kafka_share, topic, topic) as consumer:
        record = await next_of(consumer)
        record.accept()
        for again in (record.accept, record.release, record.reject, record.renew):
            with pytest.raises(IllegalStateError, match=f"{topic}-0 at offset 0 was accepted before"):
                again()


async def test_a_record_left_by_an_exception_comes_again(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 1)
    async with member(kafka_share, topic, topic) as consumer:
        with pytest.raises(LookupError):
            async with await next_of(consumer):
                raise LookupError
        assert (await next_of(consumer)).delivery_count == 2


async def test_a_bad_record_is_said_once_given_back_and_then_rejected(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 3)

    def number(value: bytes) -> int:
        found = int(value.rstrip(b"."))
        if found == 1:
            raise ValueError("not this one")
        return found

    consumer: ShareConsumer[bytes, int] = ShareConsumer(
        topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic, value_deserializer=number
    )
    async with consumer:
        values: list[int] = []
        errors: list[int] = []
        async with asyncio.timeout(PATIENCE):
            while len(values) < 2 or not errors:
                try:
                    record = await consumer.getone()
                except DeserializationError as error:
                    errors.append(error.record.offset)
                else:
                    values.append(record.value)
                    record.accept()
        assert await consumer.getmany(timeout_ms=1500) == {}
        assert (values, errors) == ([0, 2], [1])
        statistics = consumer.statistics()
        assert (statistics.accepted, statistics.released, statistics.rejected) == (2, 1, 1)


# --- locks ----------------------------------------------------------------------------------------------------------------------


async def test_work_that_is_longer_than_the_lock_is_delivered_once(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 1)
    async with member(kafka_share, topic, topic) as worker, member(kafka_share, topic, topic) as other:
        record = await next_of(worker)
        first = record.deadline
        async with record:
            assert await rest_of(other, 5 * LOCK) == []
            assert not record.lost
            assert record.deadline > first + 3 * LOCK
        assert await worker.flush() == {TopicPartition(topic, 0): None}


async def test_a_lock_that_nobody_renews_ends_and_what_is_said_after_it_does_not_count(
    kafka_share: KafkaCluster, topic: str
) -> None:
    kafka_share.produce(topic, 2)
    async with member(kafka_share, topic, topic) as first, member(kafka_share, topic, topic) as second:
        held = [await next_of(first), await next_of(first)]
        again = [await next_of(second, 3 * LOCK), await next_of(second)]
        assert [record.delivery_count for record in again] == [2, 2]
        for record in again:
            record.accept()
        assert await second.flush() == {TopicPartition(topic, 0): None}
        assert all(record.lost for record in held)
        for record in held:
            record.accept()
        error = (await first.flush())[TopicPartition(topic, 0)]
        assert isinstance(error, InvalidRecordStateError)
        assert (first.statistics().refused, first.statistics().accepted) == (2, 0)


async def test_unread_records_are_kept_while_reads_go_on_and_no_longer(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 20)
    async with member(kafka_share, topic, topic) as consumer:
        for _ in range(4):  # longer than a lock lasts
            job = await next_of(consumer)
            assert job.delivery_count == 1
            job.accept()
            await asyncio.sleep(LOCK / 2)
        unread = consumer.statistics().unread
        async with member(kafka_share, topic, topic) as other:
            found = [(await next_of(other, 3 * LOCK)).delivery_count for _ in range(16)]
        assert sorted(found) == [1] * (16 - unread) + [2] * unread


async def test_one_acknowledgement_that_does_not_count_spoils_no_other(kafka_share: KafkaCluster, topic: str) -> None:
    """The broker takes those of one partition together or not at all; here the lock of one has ended before the others'."""
    lock = 3 * LOCK  # what is left of the others' locks is enough on a busy machine, too
    locked_for(kafka_share, topic, lock)
    kafka_share.produce(topic, 1)
    async with member(kafka_share, topic, topic) as consumer:
        late = await next_of(consumer)
        await asyncio.sleep(lock * 0.6)
        kafka_share.produce(topic, 9, start=1)
        good = [await next_of(consumer) for _ in range(9)]
        assert late.delivery_count == 1
        # Frozen until the first lock has ended there. It is sent with the others, since nothing was looked at here meanwhile.
        time.sleep(lock * 0.6)  # noqa: ASYNC251 - the event loop is to be blocked
        for record in (*good[:5], late, *good[5:]):
            record.accept()
        assert isinstance((await consumer.flush())[TopicPartition(topic, 0)], InvalidRecordStateError)
        assert (consumer.statistics().accepted, consumer.statistics().refused) == (9, 1)
        assert late.lost
        assert not any(record.lost for record in good)


# --- the end --------------------------------------------------------------------------------------------------------------------


async def test_what_is_neither_accepted_nor_rejected_goes_to_others_at_the_end(kafka_share: KafkaCluster, topic: str) -> None:
    locked_for(kafka_share, topic, LONG)
    kafka_share.produce(topic, 10)
    async with member(kafka_share, topic, topic) as first:
        batch = await first.getmany(timeout_ms=10_000, max_records=5)
        records = batch[TopicPartition(topic, 0)]
        records[0].accept()
    assert first.state is ConsumerState.CLOSED
    async with member(kafka_share, topic, topic) as second:
        found = [await next_of(second, LONG / 2) for _ in range(9)]
    assert sorted(record.offset for record in found) == list(range(1, 10))


async def test_flush_and_stop_do_not_wait_for_a_task_that_goes_on_acknowledging(kafka_share: KafkaCluster, topic: str) -> None:
    locked_for(kafka_share, topic, LONG)
    kafka_share.produce(topic, 500)
    said: list[Record] = []
    async with member(kafka_share, topic, topic) as first:
        found: list[Record] = []
        while len(found) < 500:  # so many that they outlast a flush on a busy machine
            found += [record for records in (await first.getmany(timeout_ms=10_000)).values() for record in records]

        async def go_on() -> None:
            for record in found:
                record.accept()
                said.append(record)
                await asyncio.sleep(0.002)

        working = asyncio.create_task(go_on())
        await until(lambda: len(said) > len(found) // 20)
        before = len(said)
        assert await first.flush() == {TopicPartition(topic, 0): None}
        assert before < len(said) < len(found)
        await first.stop()
        assert len(said) < len(found)
        working.cancel()
    counts = {record.offset for record in found if not record.lost}
    assert {record.offset for record in said[:before]} <= counts < {record.offset for record in found}
    async with member(kafka_share, topic, topic) as second:
        rest = {(await next_of(second, LONG / 2)).offset for _ in range(500 - len(counts))}
    assert rest == set(range(500)) - counts


async def test_the_records_of_a_killed_member_go_to_others_at_once(kafka_share: KafkaCluster, topic: str) -> None:
    locked_for(kafka_share, topic, LONG)
    kafka_share.produce(topic, 100)
    program = (
        "import asyncio, sys\n"
        "from kafka_async.application.share.consumer import ShareConsumer\n"
        "async def main():\n"
        "    async with ShareConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[2]) as consumer:\n"
        "        records = [await consumer.getone() for _ in range(100)]\n"
        "        print(len(records), flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, kafka_share.bootstrap_servers, topic, stdout=asyncio.subprocess.PIPE
    )
    assert victim.stdout is not None
    async with member(kafka_share, topic, topic) as heir:
        async with asyncio.timeout(PATIENCE):
            assert await victim.stdout.readline() == b"100\n"
        os.kill(victim.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        found = [await next_of(heir, LONG / 2) for _ in range(100)]
        assert time.monotonic() - killed_at < LONG
        assert {record.delivery_count for record in found} == {2}
    await victim.wait()


async def test_unsubscribe_gives_back_what_was_not_read_and_keeps_what_was(kafka_share: KafkaCluster, topic: str) -> None:
    locked_for(kafka_share, topic, LONG)
    kafka_share.produce(topic, 10)
    async with member(kafka_share, topic, topic) as consumer:
        record = await next_of(consumer)
        await consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        record.accept()
        assert await consumer.flush() == {TopicPartition(topic, 0): None}
        async with member(kafka_share, topic, topic) as other:
            assert len([await next_of(other, LONG / 2) for _ in range(9)]) == 9


async def test_cancelling_a_read_loses_nothing(kafka_share: KafkaCluster, topic: str) -> None:
    async with member(kafka_share, topic, topic) as consumer:
        seen: list[int] = []
        kafka_share.produce(topic, 50)
        for attempt in count():
            if len(seen) == 50:
                break
            read = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.001 * (attempt % 3))
            read.cancel()
            try:
                record = await read
            except asyncio.CancelledError:
                continue
            record.accept()
            seen.append(record.offset)
        assert seen == list(range(50))
        assert await consumer.flush() == {TopicPartition(topic, 0): None}


async def test_the_poll_of_a_member_that_stops_takes_no_record_that_comes_later(kafka_share: KafkaCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_share.bootstrap_servers, "log_level": 0, "linger.ms": 0})
    for turn in range(4):
        producer.produce(topic, b"first")
        await asyncio.to_thread(producer.flush)
        async with member(kafka_share, topic, topic) as first:
            job = await next_of(first)
            assert job.delivery_count == 1
            job.accept()
            await first.flush()
            assert await first.getmany(timeout_ms=700 + 60 * turn) == {}
        producer.produce(topic, b"next")
        await asyncio.to_thread(producer.flush)
        async with member(kafka_share, topic, topic) as second:
            job = await next_of(second)
            assert (job.value, job.delivery_count) == (b"next", 1)
            job.accept()


# --- faults ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def through(kafka_share: KafkaCluster) -> AsyncIterator[Any]:
    """The proxy in front of the kafka_share."""
    async with proxied(kafka_share) as proxy:
        yield proxy


async def test_a_connection_that_is_cut_loses_the_locks_and_no_job(kafka_share: KafkaCluster, topic: str, through: Any) -> None:
    kafka_share.produce(topic, 20)
    servers = through.bootstrap_servers
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(topic, bootstrap_servers=servers, group_id=topic)
    async with consumer:
        held = [await next_of(consumer) for _ in range(5)]
        through.cut()
        async with asyncio.timeout(5):
            while not held[0].lost:  # noqa: ASYNC110 - what is tested is that a look tells
                await asyncio.sleep(0.01)
        again = [await next_of(consumer) for _ in range(20)]
        assert sorted(record.offset for record in again) == list(range(20))
        assert all(record.lost for record in held)
        for record in (*again, *held):
            record.accept()
        assert isinstance((await consumer.flush())[TopicPartition(topic, 0)], InvalidRecordStateError)
        assert (consumer.statistics().accepted, consumer.statistics().refused) == (20, 5)


@pytest.mark.parametrize("way", ["request", "response"])
async def test_acknowledgements_lost_on_the_way_are_reported(kafka_share: KafkaCluster, topic: str, through: Any, way: Any) -> None:
    kafka_share.produce(topic, 5)
    servers = through.bootstrap_servers
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(topic, bootstrap_servers=servers, group_id=topic)
    async with consumer:
        records = [await next_of(consumer) for _ in range(5)]
        through.everyone.set_trap(SHARE_ACKNOWLEDGE, way, Strike.CUT)
        for record in records:
            record.accept()
        told = (await consumer.flush())[TopicPartition(topic, 0)]
        statistics = consumer.statistics()
        assert statistics.accepted + statistics.refused == 5
        again = await rest_of(consumer, 1.5)
        # Whether the broker did it or not: who was told that it counts never gets the record again, and no job is lost.
        assert (told is None) == (statistics.refused == 0)
        assert len(again) == (5 if way == "request" and told is not None else 0)


async def test_a_broker_that_restarts_hands_out_again_what_was_not_accepted(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 10)
    async with member(kafka_share, topic, topic) as consumer:
        records = [await next_of(consumer) for _ in range(10)]
        for record in records[:5]:
            record.accept()
        assert await consumer.flush() == {TopicPartition(topic, 0): None}
        await asyncio.to_thread(kafka_share.restart, 0)
        again = [await next_of(consumer, PATIENCE) for _ in range(5)]
        assert sorted(record.offset for record in again) == list(range(5, 10))
        assert all(record.lost for record in records[5:])
        for record in again:
            record.accept()
        assert await consumer.flush() == {TopicPartition(topic, 0): None}


async def test_stop_takes_no_longer_than_it_may_with_a_dead_broker(kafka_share: KafkaCluster, topic: str) -> None:
    kafka_share.produce(topic, 3)
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(topic, bootstrap_servers=kafka_share.bootstrap_servers, group_id=topic)
    await consumer.start()
    (await next_of(consumer)).accept()
    kafka_share.pause(0)
    try:
        before = time.monotonic()
        await consumer.stop(timeout_ms=1500)
        assert time.monotonic() - before < 10
    finally:
        kafka_share.unpause(0)


# --- what is refused ------------------------------------------------------------------------------------------------------------


async def test_a_topic_that_does_not_exist_is_named(kafka_share: KafkaCluster) -> None:
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        "nowhere",
        bootstrap_servers=kafka_share.bootstrap_servers,
        group_id="g",
        allow_auto_create_topics=False,
        request_timeout_ms=1000,
    )
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        await consumer.start()


async def test_a_cluster_with_the_feature_off_is_refused_with_how_to_turn_it_on(real_brokers: None) -> None:
    with KafkaCluster(CURRENT, features={"share.version": 0}) as cluster:
        topic = await asyncio.to_thread(cluster.create_topic, "jobs")
        with pytest.raises(UnsupportedVersionError, match=r"kafka-features upgrade --feature share\.version=1"):
            async with member(cluster, topic, topic):
                pass


async def test_a_broker_that_cannot_create_the_topic_of_share_groups_is_waited_for_and_the_log_says_so(
    kafka44: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await asyncio.to_thread(kafka44.create_topic, f"jobs-{uuid4().hex[:8]}")
    async with member(kafka44, topic, topic, request_timeout_ms=8000) as consumer:
        assert consumer.state is ConsumerState.JOINING
        warnings = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
        assert len([text for text in warnings if "assigns no partitions" in text]) == 1


async def test_a_stop_whose_task_is_cancelled_ends_the_loop_all_the_same(
    kafka_share: KafkaCluster, topic: str, through: Any
) -> None:
    kafka_share.produce(topic, 5)
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(topic, bootstrap_servers=through.bootstrap_servers, group_id=topic)
    await consumer.start()
    (await next_of(consumer)).accept()
    through.everyone.black_hole()  # nobody answers what the stop says
    stopping = asyncio.create_task(consumer.stop(timeout_ms=4000))
    await until(lambda: consumer.state is ConsumerState.CLOSED)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "kafka_async background loop"])
    through.everyone.heal()
