"""What was handed out and is not done when a partition is given up, or when the consumer ends, on a real broker."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, TopicPartition
from kafka_async.errors import DeserializationError
from tests.brokers import KafkaCluster

from .groups import Group, both, new_group
from .test_caller_iteration import both_backgrounds
from .tools import PATIENCE, Record, all_of, flat, new_topic, until

pytestmark = pytest.mark.brokers

EACH = 200
"""Records of a partition."""
STRATEGIES = pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])


async def _two_full_partitions(cluster: KafkaCluster) -> str:
    topic = new_topic(cluster, 2)
    await asyncio.to_thread(cluster.produce, topic, 2 * EACH, partitions=2)
    return topic


def _first_missing(done: Collection[tuple[int, int]]) -> dict[int, int]:
    return {number: min(offset for offset in range(EACH + 1) if (number, offset) not in done) for number in range(2)}


@STRATEGIES
@both_backgrounds
async def test_what_was_read_ahead_of_a_partition_that_comes_back_is_processed(
    kafka44: KafkaCluster, strategy: str, background: str
) -> None:
    topic = await _two_full_partitions(kafka44)
    group = new_group(kafka44, "classic")
    done: list[tuple[int, int]] = []

    async def handle(record: Record) -> None:
        await asyncio.sleep(0.005)
        done.append((record.partition, record.offset))

    def member() -> Any:
        return group.member(topic, background=background, partition_assignment_strategy=(strategy,))

    async with member() as stays, stays.processing(handle, concurrency=2, order="partition"):
        await until(lambda: len(done) > 40)
        async with member() as comes, comes.processing(handle, concurrency=2, order="partition"):
            await until(lambda: len(stays.assignment()) == 1)
            await until(lambda: len(set(done)) == 2 * EACH)
    assert len(done) == len(set(done))
    assert group.committed() == {0: EACH, 1: EACH}


@both
@both_backgrounds
async def test_a_stop_beside_processing_commits_nothing_that_is_not_done(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = await _two_full_partitions(kafka44)
    group = new_group(kafka44, protocol)
    done: set[tuple[int, int]] = set()

    class Slow(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await asyncio.sleep(0.2)  # the processing task ends meanwhile

    async def handle(record: Record) -> None:
        await asyncio.sleep(0.005)
        done.add((record.partition, record.offset))

    consumer = group.member(background=background)
    consumer.subscribe([topic], listener=Slow())
    await consumer.start()
    processing = asyncio.create_task(consumer.process(handle, concurrency=2, order="partition"))
    await until(lambda: len(done) > 40)
    await consumer.stop()
    await processing
    assert group.committed() == _first_missing(done)


async def _work(group: Group, topic: str, done: list[tuple[int, int]], ends: Callable[[], bool], options: dict[str, Any]) -> None:
    """Work through a queue for each partition; commit what is done and forget the rest if it is revoked, as Java's users do."""
    queues: dict[TopicPartition, deque[Record]] = {}
    consumer = group.member(enable_auto_commit=False, max_poll_records=50, **options)

    class Committing(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            leaving = {partition: queues.pop(partition) for partition in revoked if partition in queues}
            if offsets := {partition: queue[0].offset for partition, queue in leaving.items() if queue}:
                await consumer.commit(offsets)

    consumer.subscribe([topic], listener=Committing())
    async with consumer:
        while not ends():
            for partition, records in (await consumer.getmany(timeout_ms=1)).items():
                queues.setdefault(partition, deque()).extend(records)
            for queue in tuple(queues.values()):
                if len(queue) > 1:
                    record = queue.popleft()
                    done.append((record.partition, record.offset))
                    await asyncio.sleep(0.005)
            if sum(map(len, queues.values())) > 50:
                consumer.pause(*consumer.assignment())
            else:
                consumer.resume(*consumer.assignment())


@STRATEGIES
async def test_a_listener_that_commits_less_than_was_handed_out_is_handed_the_rest_again(
    kafka44: KafkaCluster, strategy: str
) -> None:
    topic = await _two_full_partitions(kafka44)
    group = new_group(kafka44, "classic")
    done: list[tuple[int, int]] = []
    options = {"partition_assignment_strategy": (strategy,)}
    all_but_the_last = {(number, offset) for number in range(2) for offset in range(EACH - 1)}
    second_ends = asyncio.Event()

    def is_over() -> bool:
        return all_but_the_last <= set(done)

    first = asyncio.create_task(_work(group, topic, done, is_over, options))
    await until(lambda: len(done) > 40)
    second = asyncio.create_task(_work(group, topic, done, second_ends.is_set, options))
    before = len(done)
    await until(lambda: len(done) > before + 100)
    second_ends.set()
    await second
    await until(is_over)
    await first


@both
@both_backgrounds
async def test_what_a_listener_commits_while_the_consumer_stops_is_the_last_word(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = await _two_full_partitions(kafka44)
    group = new_group(kafka44, protocol)
    consumer = group.member(background=background)

    class Committing(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await consumer.commit(dict.fromkeys(revoked, 7))

    consumer.subscribe([topic], listener=Committing())
    async with consumer:
        count = 0
        while count < 2 * EACH:
            count += len(flat(await consumer.getmany(timeout_ms=1000)))
    assert group.committed() == {0: 7, 1: 7}


@both
@both_backgrounds
async def test_a_bad_record_that_ended_a_task_of_wait_for_holds_up_no_commit_if_reading_goes_on(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    """``asyncio.wait_for`` makes a task for the read up to Python 3.11, and the error ends that task."""
    topic = new_topic(kafka44)
    await asyncio.to_thread(kafka44.produce, topic, 100, values=lambda index: b"%d" % index)
    group = new_group(kafka44, protocol)
    offsets: list[int] = []

    def refuse(data: bytes) -> int:
        if data == b"5":
            raise ValueError(data)
        return int(data)

    options: dict[str, Any] = {"value_deserializer": refuse, "auto_commit_interval_ms": 3_600_000}
    async with group.member(topic, background=background, **options) as consumer:
        while len(offsets) < 100:
            try:
                offsets.append((await asyncio.create_task(consumer.getone())).offset)
            except DeserializationError as error:
                offsets.append(error.record.offset)
    assert offsets == list(range(100))
    (partition,) = all_of(topic)
    assert group.committed() == {partition.partition: 100}


@both
@both_backgrounds
async def test_a_partition_that_one_task_gives_up_begins_elsewhere_with_what_another_task_was_at(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    topic = await _two_full_partitions(kafka44)
    group = new_group(kafka44, protocol)
    holds: dict[int, int] = {}
    at_work = asyncio.Event()

    async def works(consumer: Any, partition: TopicPartition) -> None:
        batch = await consumer.getmany(partition, timeout_ms=5000, max_records=50)
        holds[partition.partition] = batch[partition][0].offset
        await at_work.wait()  # on what it was handed, until the end

    async def reads(consumer: Any) -> None:
        while True:
            await consumer.getmany(timeout_ms=100, max_records=10)

    options: dict[str, Any] = {"background": background, "auto_commit_interval_ms": 3_600_000}
    async with group.member(topic, **options) as stays, asyncio.TaskGroup() as tasks:
        for partition in all_of(topic, 2):
            tasks.create_task(works(stays, partition))
        await until(lambda: len(holds) == 2)
        reading = tasks.create_task(reads(stays))
        async with group.member(topic, **options) as comes:
            record = await asyncio.wait_for(comes.getone(), PATIENCE)
            assert record.offset == holds[record.partition]
        at_work.set()
        reading.cancel()


@both
@pytest.mark.parametrize("way", ["iteration", "getone", "wait_for"])
async def test_the_interval_of_a_task_that_waits_covers_no_record_that_another_task_is_at(
    kafka44: KafkaCluster, protocol: str, way: str
) -> None:
    """If the process were killed at that moment, the record would be lost."""
    topic = new_topic(kafka44, 2)
    await asyncio.to_thread(kafka44.produce, topic, 20, partitions=[1])
    group = new_group(kafka44, protocol)
    quiet, busy = all_of(topic, 2)

    async def waits(consumer: Any) -> None:
        while True:
            await consumer.getmany(quiet, timeout_ms=150)

    async with group.member(topic, auto_commit_interval_ms=50) as consumer, asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(waits(consumer))
        records = aiter(consumer)
        for offset in range(8):
            if way == "iteration":
                record = await anext(records)
            else:
                record = await (asyncio.wait_for(consumer.getone(busy), PATIENCE) if way == "wait_for" else consumer.getone(busy))
            assert record.offset == offset
            if offset:  # what came before is committed meanwhile, by whoever comes by
                await until(lambda done=offset: group.committed().get(1, 0) >= done)  # type: ignore[misc]  # of this turn
            assert group.committed().get(1, 0) == offset
        waiting.cancel()
