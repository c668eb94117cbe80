"""Delayed retries on a real broker: members killed, rebalances, a restart during the delay; producers that fail or hang."""

import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from attrs import Factory, define
from confluent_kafka import Producer

from kafka_async import ProcessingContext, TopicPartition
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.adapters.retry_topics import RetryTopics
from kafka_async.errors import ProcessingError, UnknownTopicOrPartitionError
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from tests.brokers import KafkaCluster

from .groups import SESSION_MS, Group, both_at_once, new_group
from .test_processing_letters import PRODUCERS, producing
from .tools import PATIENCE, Record, make, new_topic, read, until, wait_until

pytestmark = pytest.mark.brokers

COUNT: Final = 300
DELAYS: Final = (6, 3)


class Attempt(NamedTuple):
    """One line of ``retry_job``."""

    value: int
    attempt: int
    topic: str
    at: int
    due: int
    well: int


@define(eq=False)
class Service:
    """Several members of one group, each a process."""

    group: Group
    background: str
    producer: str
    topic: str
    file: Path
    members: list[asyncio.subprocess.Process] = Factory(list)

    async def start(self) -> None:
        arguments = [self.group.cluster.bootstrap_servers, self.group.name, self.group.protocol, self.background]
        arguments += [str(SESSION_MS), self.producer, self.topic, ",".join(map(str, DELAYS)), str(self.file)]
        command = [sys.executable, "-m", "tests.integration.retry_job", *arguments]
        self.members.append(await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL))

    async def kill(self) -> None:
        member = self.members.pop(0)
        member.kill()
        await member.wait()

    def attempts(self) -> list[Attempt]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [Attempt(*(word if index == 2 else int(word) for index, word in enumerate(line.split()))) for line in lines]  # type: ignore[arg-type]

    @property
    def topics(self) -> list[str]:
        return [f"{self.topic}.{self.group.name}.retry.{seconds}" for seconds in DELAYS]

    def all_done(self) -> bool:
        return len({each.value for each in self.attempts() if each.well}) == COUNT

    async def trouble(self, restarted: asyncio.Event) -> None:
        """Kill members and add others while records wait."""
        await self.start()
        await self.start()
        await until(lambda: len({each.value for each in self.attempts()}) == COUNT, 60)
        await self.kill()
        await self.start()
        await restarted.wait()
        await self.kill()
        await self.start()
        await until(self.all_done, 120)


@pytest.fixture
def broker(kafka44: KafkaCluster) -> Iterator[KafkaCluster]:
    yield kafka44
    kafka44.heal()


def retry_topics(cluster: KafkaCluster, topic: str, group: str, delays: Any = DELAYS) -> list[str]:
    return [cluster.create_topic(f"{topic}.{group}.retry.{seconds}", 2) for seconds in delays]


def check(service: Service) -> int:
    """Check that nothing was lost or early. Return by how many milliseconds the latest attempt was late."""
    by_value: dict[int, list[Attempt]] = defaultdict(list)
    for each in service.attempts():
        by_value[each.value].append(each)
        assert each.at >= each.due, f"{each} was handled before it was due"
        wanted = service.topic if each.attempt == 1 else service.topics[each.attempt - 2]
        assert each.topic == wanted
    assert set(by_value) == set(range(COUNT))
    for value, attempts in by_value.items():
        assert {each.attempt for each in attempts} == set(range(1, value % 3 + 2))
    return max(each.at - each.due for each in service.attempts() if each.due)


async def test_every_record_is_handled_and_none_before_it_is_due_whatever_happens_meanwhile(
    broker: KafkaCluster, tmp_path: Path
) -> None:
    """Two members in each protocol and with each background: one is killed, one comes, the broker restarts, another is killed."""
    ways = [("classic", "task", "aiokafka"), ("classic", "thread", "confluent"), ("consumer", "task", "confluent")]
    ways.append(("consumer", "thread", "aiokafka"))
    services = []
    for protocol, background, producer in ways:
        topic, group = new_topic(broker, 4), new_group(broker, protocol)
        retry_topics(broker, topic, group.name)
        broker.produce(topic, COUNT, partitions=4, values=lambda index: b"%d" % index, keys=lambda index: b"k%d" % (index % 9))
        services.append(Service(group, background, producer, topic, tmp_path / f"{protocol}-{background}"))
    restarted = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            for service in services:
                tasks.create_task(service.trouble(restarted))
            await until(lambda: all({each.attempt for each in service.attempts()} >= {1, 2} for service in services), 120)
            await asyncio.to_thread(broker.restart, 0)
            restarted.set()
        late = [check(service) for service in services]
        assert max(late) < 60_000, late
        for service in services:
            ends = {tp: end for topic in (service.topic, *service.topics) for tp, end in _ends(broker, topic).items() if end}
            await until(lambda service=service, ends=ends: broker.committed(service.group.name).items() >= ends.items(), 30)  # type: ignore[misc]
    finally:
        for service in services:
            while service.members:
                await service.kill()


def _ends(cluster: KafkaCluster, topic: str) -> dict[tuple[str, int], int]:
    return {(topic, partition): end for partition, end in cluster.end_offsets(topic).items()}


@both_at_once
@pytest.mark.parametrize("which", PRODUCERS)
async def test_copies_have_the_bytes_of_the_record_and_dead_letters_the_place_where_it_was_first(
    kafka44: KafkaCluster, which: str, protocol: str
) -> None:
    topic, group, dead = new_topic(kafka44), new_group(kafka44, protocol), new_topic(kafka44)
    names = retry_topics(kafka44, topic, group.name, (1, 2))
    kafka44.produce(topic, 1, values=lambda index: b"\xff\x00", keys=lambda index: b"\x00k")
    began, tries = time.time() * 1000, list[tuple[str, int, float]]()

    async def handle(record: Record, context: ProcessingContext) -> None:
        tries.append((record.topic, context.attempt, time.time() * 1000))
        raise ValueError("no")

    async with producing(which, kafka44) as producer:
        retry = RetryTopics(producer, delays=(1, 2), then=DeadLetters(producer, dead))
        assert retry.topics(topic, group.name) == names
        async with group.member(topic, *names) as consumer, consumer.processing(handle, on_failure=retry) as run:
            await until(lambda: run.statistics().dead_letters == 1)
            assert run.statistics().redelivered == 2
    assert [(where, attempt) for where, attempt, _ in tries] == [(topic, 1), (names[0], 2), (names[1], 3)]
    times = [at for _, _, at in tries]
    assert began <= times[0]
    assert times[0] + 1_000 <= times[1]
    assert times[1] + 2_000 <= times[2]
    async with make(kafka44, dead) as consumer:
        (letter,) = await read(consumer, 1)
    assert (letter.key, letter.value) == (b"\x00k", b"\xff\x00")
    headers = dict(letter.headers)
    assert [headers[f"dead-letter-{name}"] for name in ("topic", "partition", "offset", "attempts")] == [
        topic.encode(),
        b"0",
        b"0",
        b"3",
    ]
    assert not any(name.startswith("retry-") for name in headers)


@both_at_once
async def test_a_commit_is_never_ahead_of_a_copy_that_is_not_acknowledged(broker: KafkaCluster, protocol: str) -> None:
    """The producer hangs while the broker is frozen, or fails; in both cases the record is read again."""
    topic, group = new_topic(broker), new_group(broker, protocol)
    names = retry_topics(broker, topic, group.name, (1,))
    broker.produce(topic, 3, values=lambda index: b"%d" % index)
    tries: list[tuple[str, bytes]] = []

    async def handle(record: Record) -> None:
        tries.append((record.topic, record.value))
        if record.value == b"1" and record.topic == topic:
            raise ValueError("no")

    class Hanging:
        """Never answers."""

        async def send_and_wait(self, topic: str, **how: Any) -> None:
            await asyncio.Event().wait()

    class Failing:
        """Always fails."""

        async def send_and_wait(self, topic: str, **how: Any) -> None:
            raise ConnectionError("nobody answers")

    async with group.member(topic, *names, auto_commit_interval_ms=100) as consumer:
        retry = RetryTopics(Hanging(), delays=(1,), then="stop")
        async with consumer.processing(handle, on_failure=retry, drain_timeout_ms=500):
            await until(lambda: broker.committed(group.name).get((topic, 0)) == 1)
        assert broker.committed(group.name)[topic, 0] == 1
        with pytest.raises(ProcessingError, match="nobody answers"):
            await consumer.process(handle, on_failure=RetryTopics(Failing(), delays=(1,), then="stop", patience_ms=1_500))
        assert broker.committed(group.name)[topic, 0] == 1
    assert not sum(broker.end_offsets(names[0]).values())
    async with (
        producing("aiokafka", broker) as producer,
        group.member(topic, *names) as consumer,
        consumer.processing(handle, on_failure=RetryTopics(producer, delays=(1,), then="stop")),
    ):
        await until(lambda: (names[0], b"1") in tries)
        await until(lambda: broker.committed(group.name).get((topic, 0)) == 3)
    assert [value for where, value in tries if where == topic].count(b"1") == 3
    assert [value for where, value in tries if where == topic].count(b"2") == 1, "the map of what is done was kept"


async def test_a_topic_that_is_missing_is_named_at_the_start_and_not_created(kafka44: KafkaCluster) -> None:
    topic, group = new_topic(kafka44), new_group(kafka44, "consumer")
    async with producing("aiokafka", kafka44) as producer, group.member(topic) as consumer:
        retry = RetryTopics(producer, delays=(1, 2), then="skip")
        names = retry.topics(topic, group.name)
        for missing in (names, names[1:]):
            with pytest.raises(UnknownTopicOrPartitionError, match=f"create them first: {', '.join(missing)}$"):
                await consumer.process(lambda record: None, on_failure=retry)
            kafka44.create_topic(missing[0], 1)
        async with consumer.processing(lambda record: None, on_failure=retry):
            pass


@both_at_once
async def test_a_partition_waits_and_the_membership_and_other_partitions_go_on(kafka44: KafkaCluster, protocol: str) -> None:
    topic, group = new_topic(kafka44, 2), new_group(kafka44, protocol)
    kafka44.produce(topic, 2_000, partitions=2)
    due = time.time() * 1000 + 1.5 * SESSION_MS
    done: list[tuple[int, float]] = []

    async def handle(record: Record) -> None:
        done.append((record.partition, time.time() * 1000))

    async with (
        group.member(topic, max_poll_interval_ms=SESSION_MS) as consumer,
        consumer.processing(handle, not_before=lambda record: due if record.partition else None) as run,
    ):
        await until(lambda: len(done) == 1_000)
        assert run.statistics().delayed_until == {TopicPartition(topic, 1): round(due)}
        await until(lambda: len(done) == 2_000, PATIENCE)
        assert consumer.statistics().state.value == "steady"
    assert min(at for partition, at in done if partition == 1) >= due
    assert {partition for partition, at in done if at < due} == {0}
    assert group.committed() == {0: 1_000, 1: 1_000}


def test_a_program_without_an_event_loop_has_retry_topics_and_dead_letters(kafka44: KafkaCluster) -> None:
    topic, group, dead = new_topic(kafka44), new_group(kafka44, "consumer"), new_topic(kafka44)
    names = retry_topics(kafka44, topic, group.name, (1,))
    kafka44.produce(topic, 3, values=lambda index: b"%d" % index)
    tries: list[tuple[str, bytes, int]] = []

    def handle(record: Record, context: ProcessingContext) -> None:
        tries.append((record.topic, record.value, context.attempt))
        if record.value == b"2" or (record.value == b"1" and context.attempt == 1):
            raise ValueError("no")

    producer = Producer({"bootstrap.servers": kafka44.bootstrap_servers, "log_level": 0})
    retry = RetryTopics(producer, delays=(1,), then=DeadLetters(producer, dead))
    options: dict[str, Any] = {"bootstrap_servers": kafka44.bootstrap_servers, "auto_offset_reset": "earliest", **group.options()}
    with (
        BlockingConsumer(topic, *names, **options) as consumer,
        consumer.processing(handle, on_failure=retry) as run,
    ):
        wait_until(lambda: run.statistics().dead_letters == 1)
        wait_until(lambda: run.statistics().handled == 2)
    assert sorted(tries[3:]) == [(names[0], b"1", 2), (names[0], b"2", 2)]
    assert sum(kafka44.end_offsets(dead).values()) == 1
