"""Dead letters on their way back, on real brokers and with other people's producers."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from typing import Any

import pytest

pytest.importorskip("typer")

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Ownership

from kafka_async import ConsumerRecord, Reject, TopicPartition
from kafka_async.adapters.cli.producers import Outgoing, open_producer
from kafka_async.adapters.dead_letters import DeadLetters
from tests.brokers import KafkaCluster

from .cli import lines, run
from .secure import PASSWORD, Secure
from .tools import eventually, make, new_topic, read, topic_name, until

pytestmark = pytest.mark.brokers

HEADERS: list[tuple[str, Any]] = [("trace", b"\x00\xff"), ("trace", b"2"), ("none", None)]
Lines = list[dict[str, Any]]


class OutOfStock(Exception):
    """What a handler may raise."""


def fill(cluster: KafkaCluster) -> str:
    """Return a topic of two partitions and ten records; 2, 5 and 7 fail in ``work``, and 7 has no key."""
    topic = new_topic(cluster, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for index in range(10):
        key = None if index == 7 else b"k%d" % index
        producer.produce(
            topic, b'{"n":   %d}' % index, key, partition=index % 2, headers=HEADERS, timestamp=1_700_000_000_000 + index
        )
    producer.flush()
    return topic


async def work(cluster: KafkaCluster, source: str, letters: str, count: int, most: int = 1_000_000) -> None:
    """Handle ``count`` records with a group of its own for the topic; those that fail become dead letters."""
    handled = 0

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        nonlocal handled
        handled += 1
        number = json.loads(record.value)["n"]
        if number in (2, 7):
            raise OutOfStock(f"no {number}")
        if number == 5:
            raise Reject("broken")

    options: dict[str, Any] = {"group_id": f"work-{source}", "auto_offset_reset": "earliest"}
    async with (
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=most) as producer,
        make(cluster, source, **options) as consumer,
        consumer.processing(handle, on_failure=DeadLetters(producer, letters, group="billing")) as processing,
    ):
        await until(lambda: handled >= count)
        await processing.drain()


def show(cluster: KafkaCluster, letters: str, *arguments: str) -> Lines:
    return lines(run(cluster, "deadletters", "show", letters, "-J", *arguments))


def redrive(cluster: KafkaCluster, letters: str, *arguments: str) -> tuple[Lines, str]:
    result = run(cluster, "deadletters", "redrive", letters, "-J", *arguments)
    return lines(result), result.stderr


async def records_of(cluster: KafkaCluster, topic: str, count: int) -> list[ConsumerRecord[Any, Any]]:
    async with make(cluster, topic, auto_offset_reset="earliest") as reader:
        return await read(reader, count)


async def test_letters_go_back_once_by_choice_and_then_the_rest(kafka44: KafkaCluster) -> None:
    source, letters = fill(kafka44), new_topic(kafka44, 2)
    await work(kafka44, source, letters, 10)

    shown = await asyncio.to_thread(show, kafka44, letters)
    by_source = sorted(shown, key=lambda row: (row["from"]["partition"], row["from"]["offset"]))
    assert [(row["from"], row["reason"], row["group"], row["attempts"], row["redrives"]) for row in by_source] == [
        ({"topic": source, "partition": 0, "offset": 1}, "no 2", "billing", 1, 0),
        ({"topic": source, "partition": 1, "offset": 2}, "broken", "billing", 1, 0),
        ({"topic": source, "partition": 1, "offset": 3}, "no 7", "billing", 1, 0),
    ]
    dry, said = await asyncio.to_thread(redrive, kafka44, letters)
    assert sum(row["letters"] for row in dry) == 3
    assert not any(row["written"] for row in dry)
    assert "Dry run: nothing was written. --execute writes 3 letters back." in said

    done, said = await asyncio.to_thread(redrive, kafka44, letters, "--exception", "OutOfStock", "--execute")
    assert [(row["to"], row["letters"], row["written"]) for row in done] == [(source, 2, 2)]
    assert "Wrote 2 letters back." in said
    assert [row["reason"] for row in await asyncio.to_thread(show, kafka44, letters)] == ["broken"]
    again, said = await asyncio.to_thread(redrive, kafka44, letters, "--reason", "no ", "--execute")
    assert (again, said) == ([], "The options choose no letter; 1 letter could go back.\n")

    done, _ = await asyncio.to_thread(redrive, kafka44, letters, "--execute")
    assert [(row["exception"], row["written"]) for row in done] == [("kafka_async.Reject", 1)]
    assert not await asyncio.to_thread(show, kafka44, letters)
    assert len(await asyncio.to_thread(show, kafka44, letters, "--all")) == 3

    records = await records_of(kafka44, source, 13)
    first = {json.loads(record.value)["n"]: record for record in records if record.offset < 5}
    back = {json.loads(record.value)["n"]: record for record in records if record.offset >= 5}
    assert sorted(back) == [2, 5, 7]
    for number, record in back.items():
        original = first[number]
        assert (record.partition, record.key, record.value) == (original.partition, original.key, original.value)
        assert record.headers == (*original.headers, ("dead-letter-redrives", b"1"))
        assert record.timestamp > original.timestamp


async def test_two_at_once_write_each_letter_once(kafka44: KafkaCluster) -> None:
    source, letters = fill(kafka44), new_topic(kafka44, 2)
    await work(kafka44, source, letters, 10)

    async def one() -> int:
        line = ["deadletters", "redrive", letters, "-b", kafka44.bootstrap_servers, "-J", "--execute"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "kafka_async", *line, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
        assert process.returncode == 0 or b"member" in err, err
        return sum(json.loads(row)["written"] for row in out.splitlines())

    written = 0
    while not written:  # both may see each other, and leave
        written = sum(await asyncio.gather(one(), one(), one()))
    assert written == 3
    assert not await asyncio.to_thread(show, kafka44, letters)
    async with make(kafka44, group_id=None) as consumer:
        ends = await consumer.end_offsets([TopicPartition(source, number) for number in range(2)])
    assert sum(ends.values()) == 13


async def test_what_fails_again_comes_back_counted_until_it_has_gone_back_often_enough(kafka44: KafkaCluster) -> None:
    source, letters = fill(kafka44), new_topic(kafka44)
    await work(kafka44, source, letters, 10)
    for turn in (1, 2):
        done, _ = await asyncio.to_thread(redrive, kafka44, letters, "--max-redrives", "2", "--execute")
        assert sum(row["written"] for row in done) == 3
        await work(kafka44, source, letters, 3)
        shown = await asyncio.to_thread(show, kafka44, letters)
        assert [row["redrives"] for row in shown] == [turn] * 3
        assert {row["from"]["topic"] for row in shown} == {source}

    done, said = await asyncio.to_thread(redrive, kafka44, letters, "--max-redrives", "2", "--execute")
    assert done == []
    assert "3 letters went back 2 times already and stay (--max-redrives)." in said


async def test_a_value_that_was_left_out_comes_from_the_first_record_while_it_is_there(kafka44: KafkaCluster) -> None:
    source, letters = new_topic(kafka44), new_topic(kafka44)
    large = b'{"n": 5, "text": "%s"}' % (b"x" * 500_000)
    producer = Producer({"bootstrap.servers": kafka44.bootstrap_servers, "log_level": 0})
    for _ in range(2):
        producer.produce(source, large, b"k")
    producer.flush()
    await work(kafka44, source, letters, 2, most=100_000)
    assert [row["value_left_out"] for row in await asyncio.to_thread(show, kafka44, letters)] == [len(large)] * 2

    done, _ = await asyncio.to_thread(redrive, kafka44, letters, "--count", "1", "--execute")
    assert [row["written"] for row in done] == [1]
    assert (await records_of(kafka44, source, 3))[2].value == large

    kafka44.admin.delete_records([Ownership(source, 0, 3)])[Ownership(source, 0)].result()
    result = await asyncio.to_thread(run, kafka44, "deadletters", "redrive", letters, "--execute")
    assert result.exit_code == 1
    assert f"% Not written: 0:1: the record, of which the letter has not everything, is no longer at {source}:0:1" in result.stderr
    assert len(await asyncio.to_thread(show, kafka44, letters)) == 1


async def test_letters_go_to_another_topic_if_asked_and_their_own_must_exist(kafka44: KafkaCluster) -> None:
    source, letters, other = fill(kafka44), new_topic(kafka44), new_topic(kafka44, 5)
    await work(kafka44, source, letters, 10)

    done, _ = await asyncio.to_thread(redrive, kafka44, letters, "--letter", "0:0", "--to", other, "--keep-timestamps", "--execute")
    assert [(row["to"], row["written"]) for row in done] == [(other, 1)]
    (record,) = await records_of(kafka44, other, 1)
    assert 1_700_000_000_000 <= record.timestamp <= 1_700_000_000_009

    missing = await asyncio.to_thread(run, kafka44, "deadletters", "redrive", letters, "--to", "nowhere-at-all")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "topic 'nowhere-at-all' does not exist; --to names another" in missing.stderr


def test_records_that_are_no_letters_are_counted_and_left(kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 3)
    shown = run(kafka44, "deadletters", "show", topic)
    assert "no letters; 3 records are not dead letters" in shown.stderr
    assert "There is nothing to write back." in run(kafka44, "deadletters", "redrive", topic, "--execute").stderr
    unknown = run(kafka44, "deadletters", "show", topic_name())
    assert (unknown.exit_code, "does not exist" in unknown.stderr) == (1, True)


@pytest.mark.parametrize("copies", [False, True])
async def test_letters_that_brokers_write_for_a_share_group_go_back_as_the_records_were(
    kafka_share: KafkaCluster, copies: bool
) -> None:
    jobs = fill(kafka_share)
    group = f"workers-{jobs}"
    letters = kafka_share.create_topic(f"dlq.{jobs}", config={"errors.deadletterqueue.group.enable": "true"})
    configure = [
        "share.auto.offset.reset=earliest",
        f"errors.deadletterqueue.topic.name={letters}",
        f"errors.deadletterqueue.copy.record.enable={str(copies).lower()}",
    ]
    await asyncio.to_thread(run, kafka_share, "groups", "configure", group, *configure)
    rejected = await asyncio.to_thread(run, kafka_share, "share", "consume", jobs, "-G", group, "--reject", "-c", "10", "-q")
    assert rejected.exit_code == 0

    async def letters_there() -> bool:
        return len(await asyncio.to_thread(show, kafka_share, letters)) == 10

    await eventually(letters_there)
    shown = await asyncio.to_thread(show, kafka_share, letters)
    assert {(row["from"]["topic"], row["group"], row["attempts"], row["exception"]) for row in shown} == {(jobs, group, 1, None)}

    done, _ = await asyncio.to_thread(redrive, kafka_share, letters, "--count", "9", "--execute")
    assert [(row["to"], row["letters"], row["written"]) for row in done] == [(jobs, 9, 9)]
    records = await records_of(kafka_share, jobs, 19)
    first = {json.loads(record.value)["n"]: record for record in records if record.offset < 5}
    back = [record for record in records if record.offset >= 5]
    assert len(back) == 9
    for record in back:
        original = first[json.loads(record.value)["n"]]
        assert (record.partition, record.key) == (original.partition, original.key)
        assert record.headers == (*original.headers, ("dead-letter-redrives", b"1"))

    # What is not in the topic any more goes back from the letter, if that has a copy.
    for partition in range(2):
        kafka_share.admin.delete_records([Ownership(jobs, partition, -1)])[Ownership(jobs, partition)].result()
    result = await asyncio.to_thread(run, kafka_share, "deadletters", "redrive", letters, "--execute")
    assert result.exit_code == (0 if copies else 1), result.stderr
    if copies:
        (last,) = await records_of(kafka_share, jobs, 1)
        assert last.headers == (("dead-letter-redrives", b"1"),)


@pytest.mark.parametrize("library", ["aiokafka", "confluent_kafka"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", None])
async def test_both_producers_write_with_the_consumers_options(kafka_secure: Secure, library: str, mechanism: str | None) -> None:
    topic = new_topic(kafka_secure.cluster, 3)
    options: dict[str, Any] = {
        "bootstrap_servers": kafka_secure.cluster.listener("TLSLOGIN" if mechanism else "TLS"),
        "security_protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl_cafile": str(kafka_secure.authority),
        "client_id": "kafka-async",
    }
    if mechanism:
        options |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    records = [
        Outgoing(topic=topic, partition=2, key=b"k", value=b"%d" % number, headers=HEADERS, timestamp=None) for number in range(3)
    ]
    empty = Outgoing(topic=topic, partition=2, key=None, value=None, headers=HEADERS, timestamp=1_700_000_000_000)
    large = Outgoing(topic=topic, partition=2, key=b"k", value=b"x" * 5_000_000, headers=[], timestamp=None)

    async with open_producer(library, options) as write:
        outcomes = await write([*records, empty, large])

    assert outcomes[:4] == [None] * 4
    assert "large" in str(outcomes[4]).lower() or "MessageSizeTooLarge" in repr(outcomes[4])
    found = await records_of(kafka_secure.cluster, topic, 4)
    assert [(record.partition, record.value, record.headers) for record in found] == [
        *((2, b"%d" % number, tuple(HEADERS)) for number in range(3)),
        (2, None, tuple(HEADERS)),
    ]
    assert (found[3].key, found[3].timestamp) == (None, 1_700_000_000_000)
