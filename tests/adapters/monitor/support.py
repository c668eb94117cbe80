"""Polls of a simulated cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.admin import Admin, Client
from kafka_async.adapters.monitor import Book, GroupView, Snapshot, Survey
from kafka_async.config import ConsumerConfig
from kafka_async.testing.simulation import FakeCluster

INTERVAL = 5.0


@asynccontextmanager
async def watching(cluster: FakeCluster, *names: str, **book: Any) -> AsyncIterator[Survey]:
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers})
    async with Client.connect(config, cluster.network) as client:
        yield Survey(Admin(client), Book(INTERVAL, **book), names, wall=lambda: cluster.clock.date() / 1000)


async def next_poll(survey: Survey) -> Snapshot:
    await anyio.sleep(INTERVAL)
    return await survey.poll()


def group_of(snapshot: Snapshot, name: str = "g") -> GroupView:
    found = snapshot.find(name)
    assert found is not None
    return found


def commit(cluster: FakeCluster, group: str, tp: TopicPartition, offset: int) -> None:
    cluster.groups.offsets.store(group, tp, OffsetAndMetadata(offset))
