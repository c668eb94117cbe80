"""Dead letters on real brokers, through other people's producers: what is written, and what is committed if it cannot be."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.aio import AIOProducer

from kafka_async import ConsumerRecord, KafkaConsumer, Reject, Retry
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.errors import ProcessingError
from tests.brokers import KafkaCluster

from .groups import both, new_group
from .tools import Record, make, new_topic, read, until

pytestmark = pytest.mark.brokers

PRODUCERS = ("aiokafka", "confluent asyncio", "confluent")


@asynccontextmanager
async def producing(which: str, cluster: KafkaCluster, most: int = 1_000_000) -> AsyncIterator[Any]:
    """A producer that gives a write up after three seconds, and takes records of ``most`` bytes."""
    if which == "aiokafka":
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=3_000, max_request_size=most) as producer:
            yield producer
        return
    options: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "message.timeout.ms": 3_000,
        "socket.timeout.ms": 3_000,  # or a request for metadata that nobody answers may outlast twenty messages
        "linger.ms": 0,
        "message.max.bytes": most,
        "log_level": 0,
    }
    if which == "confluent":
        yield Producer(options)
        return
    async with AIOProducer(options) as asyncio_producer:
        yield asyncio_producer


def fill(cluster: KafkaCluster) -> str:
    """Return a topic of 10 records, of which 3 and 6 fail in a handler, and 8 is no JSON."""
    topic = new_topic(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for index in range(10):
        value = b"\xff{" if index == 8 else b'{"n":   %d}' % index
        key = None if index == 6 else b"\x00k%d" % index
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00\xff"), ("trace", b"2"), ("none", None)]
        producer.produce(topic, value, key, partition=0, headers=headers)
        producer.flush()
    return topic


async def refuse(record: Record) -> None:
    if record.value["n"] in (3, 6):
        raise Reject(f"no {record.value['n']}\nfor us")


@pytest.mark.parametrize("which", PRODUCERS)
@both
async def test_a_dead_letter_has_the_bytes_of_the_record_and_the_reasons(kafka44: KafkaCluster, protocol: str, which: str) -> None:
    source, letters = fill(kafka44), new_topic(kafka44)
    group = new_group(kafka44, protocol)
    options = {"value_deserializer": json.loads, "key_deserializer": len}
    async with producing(which, kafka44) as producer, group.member(source, **options) as consumer:
        write = DeadLetters(producer, letters, group=group.name)
        async with consumer.processing(refuse, retry=Retry(attempts=3), on_failure=write) as run:
            await until(lambda: run.statistics().dead_letters == 3)
            await run.drain()
    assert group.committed() == {0: 10}
    async with make(kafka44, source, letters) as reader:
        records = await read(reader, 13)
    originals = {record.offset: record for record in records if record.topic == source}
    dead = {int(dict(record.headers)["dead-letter-offset"] or b""): record for record in records if record.topic == letters}
    assert sorted(dead) == [3, 6, 8]
    for offset, letter in dead.items():
        original = originals[offset]
        assert (letter.key, letter.value) == (original.key, original.value)
        assert letter.headers[:3] == original.headers
        _check_reasons(letter, original, group.name)


def _check_reasons(letter: ConsumerRecord[Any, Any], original: ConsumerRecord[Any, Any], group: str) -> None:
    found = dict(letter.headers[3:])
    error = b"kafka_async.errors.DeserializationError" if original.offset == 8 else b"kafka_async.Reject"
    assert found["dead-letter-topic"] == original.topic.encode()
    assert found["dead-letter-partition"] == b"0"
    assert found["dead-letter-timestamp"] == b"%d" % original.timestamp
    assert found["dead-letter-attempts"] == (b"0" if original.offset == 8 else b"1"), "no handler had the one at 8"
    assert found["dead-letter-group"] == group.encode()
    assert found["dead-letter-exception"] == error
    if original.offset != 8:
        assert found["dead-letter-reason"] == b"no %d for us" % original.offset


@pytest.mark.parametrize("which", PRODUCERS)
async def test_a_record_with_neither_key_nor_value_is_written_as_it_is(kafka44: KafkaCluster, which: str) -> None:
    source, letters = new_topic(kafka44), new_topic(kafka44, 2)
    producer = Producer({"bootstrap.servers": kafka44.bootstrap_servers, "log_level": 0})
    producer.produce(source, None, None, partition=0, headers=[("trace", b"1")])
    producer.flush()

    async def refuse_all(record: Record) -> None:
        raise Reject("no")

    async with (
        producing(which, kafka44) as writer,
        new_group(kafka44, "consumer").member(source) as consumer,
        consumer.processing(refuse_all, on_failure=DeadLetters(writer, letters)) as run,
    ):
        await until(lambda: run.statistics().dead_letters == 1)
    async with make(kafka44, letters) as reader:
        [letter] = await read(reader, 1)
    assert (letter.key, letter.value, letter.headers[0]) == (None, None, ("trace", b"1"))
    assert dict(letter.headers)["dead-letter-topic"] == source.encode()


@pytest.mark.parametrize("refused_by", ["producer", "broker"])
@pytest.mark.parametrize("which", PRODUCERS)
async def test_a_letter_that_is_too_large_is_written_without_its_value(
    kafka44: KafkaCluster, which: str, refused_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = new_topic(kafka44)
    letters = new_topic(kafka44, max_message_bytes="20000") if refused_by == "broker" else new_topic(kafka44)
    producer = Producer({"bootstrap.servers": kafka44.bootstrap_servers, "log_level": 0})
    for size in (10, 50_000, 10):
        producer.produce(source, b"x" * size, b"key", partition=0)
        producer.flush()
    group = new_group(kafka44, "consumer")
    most = 10_000 if refused_by == "producer" else 1_000_000

    async def refuse_all(record: Record) -> None:
        raise Reject("no")

    began = asyncio.get_running_loop().time()
    async with (
        producing(which, kafka44, most) as writer,
        group.member(source) as consumer,
        consumer.processing(refuse_all, on_failure=DeadLetters(writer, letters)) as run,
    ):
        await until(lambda: run.statistics().dead_letters == 3)
        await run.drain()
    assert asyncio.get_running_loop().time() - began < 60, "it is not tried for two minutes"
    async with make(kafka44, letters) as reader:
        records = {dict(record.headers)["dead-letter-offset"]: record for record in await read(reader, 3)}
    assert [len(records[b"%d" % offset].value) for offset in range(3)] == [10, 0, 10]
    assert dict(records[b"1"].headers)["dead-letter-value-left-out"] == b"50000"
    assert records[b"1"].key == b"key"
    said = f"the dead letter of {source}-0 at offset 1 is too large for {letters}; written without its value of 50000 bytes"
    assert sum(said in entry.message for entry in caplog.records) == 1


@pytest.mark.parametrize("which", ["aiokafka", "confluent"])
async def test_letters_that_are_too_large_only_together_keep_their_values(kafka44: KafkaCluster, which: str) -> None:
    source, letters = new_topic(kafka44), new_topic(kafka44, max_message_bytes="20000")
    producer = Producer({"bootstrap.servers": kafka44.bootstrap_servers, "log_level": 0})
    for number in range(20):
        producer.produce(source, b"x" * 2_000, b"%d" % number, partition=0)
    producer.flush()
    begun, all_begun = 0, asyncio.Event()

    async def refuse_all(record: Record) -> None:
        nonlocal begun
        begun += 1
        if begun == 20:
            all_begun.set()
        await all_begun.wait()  # so that their letters are one batch
        raise Reject("no")

    @asynccontextmanager
    async def writing() -> AsyncIterator[Any]:
        if which == "confluent":
            yield Producer({"bootstrap.servers": kafka44.bootstrap_servers, "linger.ms": 100, "log_level": 0})
            return
        options: dict[str, Any] = {"linger_ms": 100, "max_batch_size": 100_000}
        async with AIOKafkaProducer(bootstrap_servers=kafka44.bootstrap_servers, **options) as writer:
            yield writer

    async with (
        writing() as writer,
        new_group(kafka44, "consumer").member(source) as consumer,
        consumer.processing(refuse_all, concurrency=20, on_failure=DeadLetters(writer, letters)) as run,
    ):
        await until(lambda: run.statistics().dead_letters == 20)
    async with make(kafka44, letters) as reader:
        assert {len(record.value) for record in await read(reader, 20)} == {2_000}


@pytest.fixture(scope="module")
def elsewhere(real_brokers: None) -> Any:
    """A cluster for dead letters, so that it can be away while the other one goes on.

    Its broker keeps its session while it is frozen: the tests are about one that does not answer, not about one that is fenced.
    """
    with KafkaCluster(properties={"broker.session.timeout.ms": "60000"}) as cluster:
        yield cluster


@pytest.mark.parametrize("which", PRODUCERS)
async def test_while_nothing_can_be_written_only_what_is_done_is_committed(
    kafka44: KafkaCluster, elsewhere: KafkaCluster, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_async")
    source, letters = fill(kafka44), new_topic(elsewhere)
    group = new_group(kafka44, "consumer")
    options: dict[str, Any] = {"value_deserializer": json.loads, "auto_commit_interval_ms": 200}
    async with producing(which, elsewhere) as producer, group.member(source, **options) as consumer:
        elsewhere.pause(0)
        try:
            async with consumer.processing(refuse, on_failure=DeadLetters(producer, letters)) as run:
                await until(lambda: run.statistics().handled == 7)
                await asyncio.sleep(10)
                assert group.committed() == {0: 3}
                assert run.statistics().dead_letters == 0
                elsewhere.unpause(0)
                await until(lambda: run.statistics().dead_letters == 3, 60)
                await until(lambda: group.committed() == {0: 10})
        finally:
            elsewhere.unpause(0)
    async with make(elsewhere, letters) as reader:
        written = {dict(record.headers)["dead-letter-offset"] for record in await read(reader, 3)}
    assert written <= {b"3", b"6", b"8"}, "more than once, if its first write was not confirmed in time"
    lines = [record.getMessage() for record in caplog.records if letters in record.getMessage()]
    assert [line.split(" (")[0].split(", after")[0] for line in lines[:2]] == [
        f"a dead letter cannot be written to {letters}; trying again",
        f"recovered: dead letters to {letters}",
    ]


@pytest.mark.parametrize("which", PRODUCERS)
async def test_a_letter_that_cannot_be_written_in_time_stops_everything_and_the_record_comes_again(
    kafka44: KafkaCluster, elsewhere: KafkaCluster, which: str
) -> None:
    source, letters = fill(kafka44), new_topic(elsewhere)
    group = new_group(kafka44, "consumer")

    async def process(consumer: "KafkaConsumer[Any, Any]", write: DeadLetters) -> None:
        async with consumer:
            await consumer.process(refuse, order="partition", on_failure=write)

    async with producing(which, elsewhere) as producer:
        elsewhere.pause(0)
        try:
            with pytest.raises(ProcessingError) as caught:
                await process(group.member(source, value_deserializer=json.loads), DeadLetters(producer, letters, patience_ms=0))
        finally:
            elsewhere.unpause(0)
        assert caught.value.record.offset == 3
        assert isinstance(caught.value.__cause__, Exception)
        assert isinstance(caught.value.__cause__.__context__, Reject)
        assert group.committed() == {0: 3}


@pytest.mark.parametrize("bad", [None, 5, object()])
def test_what_is_no_producer_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="AIOKafkaProducer"):
        DeadLetters(bad, "letters")
