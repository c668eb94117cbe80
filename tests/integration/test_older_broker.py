"""Older brokers: versions are negotiated down, and nothing that the caller sees changes."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import KafkaError, UnsupportedVersionError
from tests.brokers import KafkaCluster
from tests.faults.proxy import PROXIED, proxied

from .groups import new_group
from .share import member as sharing
from .tools import all_of, eventually, make, new_topic, nothing_more, offsets, read

pytestmark = pytest.mark.brokers

BEGAN_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_codec_come_once_in_order(older: KafkaCluster, codec: Any) -> None:
    topic = new_topic(older, 6)
    produced = older.produce(topic, 3000, partitions=6, codec=codec, headers=[("a", b"1"), ("b", None)])
    async with make(older, topic) as consumer:
        records = await read(consumer, 3000)
        await nothing_more(consumer)
    assert offsets(records) == produced.offsets
    assert all(list(record.headers) == [("a", b"1"), ("b", None)] for record in records)


async def test_positions_and_look_ups_are_as_on_a_newer_broker(older: KafkaCluster) -> None:
    topic = new_topic(older)
    older.produce(topic, 100, timestamps=lambda index: BEGAN_MS + index)
    partition = TopicPartition(topic, 0)
    async with make(older, topic) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 100}
        found = (await consumer.offsets_for_times({partition: BEGAN_MS + 30}))[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (30, BEGAN_MS + 30)
        consumer.seek(partition, OffsetAndMetadata(90, "", 0))
        assert [record.offset for record in await read(consumer, 10)] == list(range(90, 100))
        assert await consumer.seek_to_beginning()
        assert (await consumer.getone()).offset == 0
        consumer.seek(partition, 5_000)  # outside the log
        assert (await consumer.getone()).offset == 0
        assert topic in await consumer.topics()


async def test_read_committed_skips_what_was_aborted(older: KafkaCluster) -> None:
    topic = new_topic(older)
    older.produce(topic, 10, transaction="commit")
    older.produce(topic, 10, transaction="abort")
    older.produce(topic, 10)
    async with make(older, topic, isolation_level="read_committed") as consumer:
        assert [record.offset for record in await read(consumer, 20)] == [*range(10), *range(22, 32)]
        await nothing_more(consumer)


async def test_one_consumer_class_reads_from_both_lines_at_once(kafka39: KafkaCluster, kafka44: KafkaCluster) -> None:
    old, new = new_topic(kafka39), new_topic(kafka44)
    kafka39.produce(old, 10)
    kafka44.produce(new, 10)
    async with make(kafka39) as one, make(kafka44) as other:
        one.assign(all_of(old))
        other.assign(all_of(new))
        assert {record.topic for record in await read(one, 10)} == {old}
        assert {record.topic for record in await read(other, 10)} == {new}


async def test_a_broker_that_forgets_fetch_sessions_costs_no_record(older: KafkaCluster) -> None:
    topic = new_topic(older, 3)
    produced = older.produce(topic, 600, partitions=3)
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(make(older, topic, max_poll_records=40)) for _ in range(12)]
        seen = [await read(consumer, 600) for consumer in consumers]
        more = await asyncio.to_thread(older.produce, topic, 30, partitions=3)
        for consumer, records in zip(consumers, seen, strict=True):
            records += await read(consumer, 30)
            assert offsets(records) == {index: produced.offsets[index] + more.offsets[index] for index in range(3)}


async def test_without_a_protocol_asked_for_the_classic_one_is_spoken(kafka39: KafkaCluster) -> None:
    topic = new_topic(kafka39)
    kafka39.produce(topic, 10)
    group = new_group(kafka39, "auto")
    async with make(kafka39, topic, group_id=group.name) as consumer:
        assert len(await read(consumer, 10)) == 10
        described = kafka39.admin.describe_consumer_groups([group.name])[group.name].result()
        assert (described.type.name, len(described.members)) == ("CLASSIC", 1)
    assert group.committed() == {0: 10}


async def test_the_consumer_protocol_demanded_of_a_broker_without_it_is_a_plain_error(kafka39: KafkaCluster) -> None:
    topic = new_topic(kafka39)
    with pytest.raises(KafkaError, match="group_protocol"):
        async with make(kafka39, topic, group_id="any", group_protocol="consumer", request_timeout_ms=10_000):
            pytest.fail("it started")


async def test_share_groups_are_refused_with_what_is_needed(kafka39: KafkaCluster) -> None:
    topic = kafka39.create_topic(f"jobs-{uuid4().hex[:8]}")
    with pytest.raises(UnsupportedVersionError, match=r"need brokers of Kafka 4\.2 or newer"):
        async with sharing(kafka39, topic, topic):
            pass


async def test_nothing_is_read_of_another_cluster_to_which_the_brokers_address_leads(
    older: KafkaCluster, kafka39: KafkaCluster, kafka43: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker before 4.4 refuses no connection that was meant for another one (KIP-1242). Its answers name its cluster."""
    topic = new_topic(older, 2)
    older.produce(topic, 100, partitions=2)
    another = kafka43 if older is kafka39 else kafka39
    another.create_topic(topic, 2)
    another.produce(topic, 400, partitions=2, size=7)
    group = new_group(older, "classic")
    server = older.listener(PROXIED)  # is not led astray: where a consumer has to start again, it takes the cluster that it finds
    options: dict[str, Any] = {"bootstrap_servers": server, "enable_auto_commit": False, "reconnect_backoff_max_ms": 200}
    async with proxied(older) as proxy, group.member(topic, **options) as consumer:
        await read(consumer, 100)
        await consumer.commit()
        proxy.detours[server] = another.bootstrap_servers
        proxy.cut()
        await asyncio.to_thread(older.produce, topic, 100, partitions=2)
        address = older.advertised(PROXIED)[0]
        said = f"answers at {address}, which was broker 0 of cluster {consumer.statistics().cluster_id!r}"

        async def told() -> bool:
            assert await consumer.getmany(timeout_ms=200) == {}
            return said in caplog.text

        await eventually(told)
        assert await consumer.getmany(timeout_ms=2_000) == {}
        proxy.detours.clear()
        records = await read(consumer, 100)
        await nothing_more(consumer)
        await consumer.commit()
    assert offsets(records) == {partition: list(range(50, 100)) for partition in range(2)}
    assert await group.commits(topic, 2) == {0: 100, 1: 100}
    assert another.committed(group.name) == {}
