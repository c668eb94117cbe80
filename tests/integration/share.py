"""Brokers that serve share groups with short times, and what tests of them do again and again."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kafka_async.application.share.consumer import ShareConsumer
from tests.brokers import KafkaCluster

LOCK = 3.0
"""Seconds that a lock lasts on these brokers."""
LONG = 60.0
"""Seconds that the longest lasts: what must come sooner has not waited for its end."""


def share_properties(replicas: int = 1) -> dict[str, str]:
    """Return broker properties for share groups that settle at once."""
    return {
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.session.timeout.ms": "6000",
        "group.share.min.session.timeout.ms": "1000",
        "group.share.record.lock.duration.ms": str(int(LOCK * 1000)),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.assignment.interval.ms": "0",
    }


def from_the_start(cluster: KafkaCluster, group: str, **settings: str) -> None:
    """Have a group begin at the first record, and set its other configuration."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    cluster.alter_config("group", group, {"share.auto.offset.reset": "earliest"} | given)


@contextlib.asynccontextmanager
async def member(cluster: KafkaCluster, topic: str, group: str, **options: Any) -> AsyncIterator[ShareConsumer[bytes, bytes]]:
    """A member of a share group."""
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **options
    )
    async with consumer:
        yield consumer
