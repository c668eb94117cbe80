"""Settings of topics on the simulated cluster: their effects that a consumer can notice."""

from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError
from kafka_async.testing import Cluster
from tests.virtual import run_virtual_asyncio


def reading(cluster: Cluster, **options: Any) -> KafkaConsumer[Any, Any]:
    return KafkaConsumer("t", **{"auto_offset_reset": "earliest", **cluster.options(), **options})


def test_old_records_are_deleted_as_time_passes() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t", retention_ms=60_000)
        for value in "abc":
            cluster.produce("t", value=value)
        async with reading(cluster) as consumer:
            (tp,) = consumer.assignment()
            assert await consumer.beginning_offsets([tp]) == {tp: 0}
            await anyio.sleep(61.5)  # the records are a second apart
            assert await consumer.beginning_offsets([tp]) == {tp: 2}

    run_virtual_asyncio(main)


def test_old_records_are_deleted_if_there_are_too_many_bytes() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t", retention_bytes=3000)
        for _ in range(10):
            cluster.produce("t", value="x" * 1000)
        async with reading(cluster) as consumer:
            records = (await consumer.getmany(timeout_ms=1000))[TopicPartition("t", 0)]
            assert [record.offset for record in records] == [7, 8, 9]

    run_virtual_asyncio(main)


def test_the_broker_sets_the_timestamps_of_records() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t", message_timestamp_type="LogAppendTime")
        await anyio.sleep(5)
        cluster.produce("t", value="v", timestamp=7)
        async with reading(cluster) as consumer:
            record = await consumer.getone()
            assert (record.timestamp, record.timestamp_type) == (1_700_000_005_000, 1)
            found = await consumer.offsets_for_times({TopicPartition("t", 0): 1_700_000_000_000})
            assert [each.offset for each in found.values() if each is not None] == [0]

    run_virtual_asyncio(main)


def test_records_that_a_topic_does_not_allow_are_refused() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("small", max_message_bytes=500)
        cluster.topic("keyed", cleanup_policy="compact")
        cluster.topic("punctual", message_timestamp_before_max_ms=1000)
        cluster.produce("small", value="x" * 100)
        with pytest.raises(MessageSizeTooLargeError):
            cluster.produce("small", value="x" * 1000)
        with pytest.raises(InvalidRecordError):
            cluster.produce("keyed", value="v")
        with pytest.raises(InvalidRecordError):
            cluster.produce_many("keyed", ["v"], partition=0)
        with pytest.raises(InvalidTimestampError):
            cluster.produce("punctual", value="v", timestamp=7)
        cluster.produce("keyed", key="k", value="v")
        assert [cluster.end((name, 0)) for name in ("small", "keyed", "punctual")] == [1, 1, 0]

    run_virtual_asyncio(main)


def test_settings_that_kafka_does_not_have_are_named() -> None:
    cluster = Cluster()
    for wrong, text in (
        ({"retention": 1}, "retention: Kafka has no such setting for a topic"),
        ({"retention_ms": "soon"}, "retention.ms=soon: expected a number of at least -1"),
        ({"cleanup_policy": "wipe"}, "cleanup.policy=wipe: expected delete, compact"),
        ({"message_timestamp_type": "Now"}, "message.timestamp.type=Now: expected CreateTime or LogAppendTime"),
    ):
        given: dict[str, Any] = wrong
        with pytest.raises(ValueError, match=text):
            cluster.topic("t", **given)
    dotted: dict[str, Any] = {"cleanup.policy": "compact,delete"}
    cluster.topic("t", segment_ms=1000, **dotted)  # settings that nobody can notice are accepted
    assert cluster.simulated.topics["t"].settings.given == {"segment.ms": "1000", "cleanup.policy": "compact,delete"}
