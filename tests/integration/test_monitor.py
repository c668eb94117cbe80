"""The monitor on a real broker: a classic, a consumer and a share group that is behind, stops, and loses its topic to another."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.adapters.admin import Admin, Client
from kafka_async.adapters.monitor import Book, Certainty, GroupView, Status, Survey
from kafka_async.config import ConsumerConfig
from tests.brokers import KafkaCluster

pytestmark = pytest.mark.brokers

INTERVAL: Final = 2.0
LATER: Final = 10_000
"""Records that come while the member reads nothing."""
PATIENCE: Final = 60.0

KINDS: Final = ("classic", "consumer", "share")


@asynccontextmanager
async def watching(cluster: KafkaCluster, group: str) -> AsyncIterator[Survey]:
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers})
    async with Client.connect(config) as client:
        yield Survey(Admin(client), Book(INTERVAL), (group,))


async def polls_until(survey: Survey, group: str, holds: Callable[[GroupView], bool], most: int) -> list[GroupView]:
    """Return what each poll said about the group, until it holds; raises if it does not within ``most`` polls."""
    found: list[GroupView] = []
    async for snapshot in survey.snapshots():
        view = snapshot.find(group)
        if view is not None:
            found.append(view)
            if holds(view):
                return found
        most -= 1
        if not most:
            break
    raise AssertionError([(view.status, view.lag, view.notes, view.age) for view in found])


@asynccontextmanager
async def member(cluster: KafkaCluster, kind: str, topic: str, group: str) -> AsyncIterator[Any]:
    where: Any = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group}
    if kind == "share":
        async with ShareConsumer(topic, **where) as jobs:
            yield jobs
    else:
        where |= {"group_protocol": kind, "auto_offset_reset": "earliest"}
        async with KafkaConsumer(topic, **where) as consumer:
            yield consumer


async def read_all(consumer: Any, count: int) -> None:
    """Read and finish so many records."""
    left, until = count, time.monotonic() + PATIENCE
    while left and time.monotonic() < until:
        batch = await consumer.getmany(timeout_ms=500, max_records=left)
        left -= sum(map(len, batch.values()))
        if isinstance(consumer, ShareConsumer):
            for job in (job for jobs in batch.values() for job in jobs):
                job.accept()
            await consumer.flush()
        else:
            await consumer.commit()
    assert not left


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_that_stops_is_behind_and_whose_topic_is_created_again(kafka_share: KafkaCluster, kind: str) -> None:
    topic = kafka_share.create_topic(f"monitor-{uuid.uuid4().hex[:8]}", 1)
    group = f"monitored-{uuid.uuid4().hex[:8]}"
    async with watching(kafka_share, group) as survey:
        async with member(kafka_share, kind, topic, group) as consumer:
            if kind == "share":  # it begins at the end of the log
                await consumer.getmany(timeout_ms=3000)
            await asyncio.to_thread(kafka_share.produce, topic, 10)
            await read_all(consumer, 10)
            running = (await polls_until(survey, group, lambda view: view.lag == 0, 15))[-1]
            assert (running.kind, running.status, running.members and len(running.members)) == (kind, Status.OK, 1)
            assert running.partitions[0].owner is not None

            # It has a member, which reads nothing more: seconds, to an interval.
            began = time.monotonic()
            await asyncio.to_thread(kafka_share.produce, topic, LATER)
            ended = time.monotonic()
            late = (await polls_until(survey, group, lambda view: view.lag == LATER and view.age is not None, 5))[-1]
            later = (await polls_until(survey, group, lambda view: True, 1))[-1]
            for view, now in ((late, None), (later, time.monotonic())):
                assert view.age is not None
                assert view.age.certainty is Certainty.SEEN
                if now is not None:
                    assert now - ended - INTERVAL <= view.age.seconds <= now - began + INTERVAL
            assert later.in_rate is not None

        # The member has left.
        stopped = await polls_until(survey, group, lambda view: view.status is Status.STOP, 3)
        assert stopped[-1].lag == LATER
        assert stopped[-1].members == ()

        await asyncio.to_thread(kafka_share.delete_topics, topic)
        await asyncio.to_thread(kafka_share.create_topic, topic, 1)
        await asyncio.to_thread(kafka_share.produce, topic, 5)
        found = await polls_until(survey, group, lambda view: view.status is Status.UNREADABLE, 8)
        assert "created again" in found[-1].notes[0]
        later = (await polls_until(survey, group, lambda view: True, 1))[-1]
        assert later.status is Status.UNREADABLE


async def test_the_records_of_a_group_that_began_long_before_are_dated_by_their_timestamps(kafka_share: KafkaCluster) -> None:
    topic = kafka_share.create_topic(f"monitor-{uuid.uuid4().hex[:8]}", 1)
    group = f"monitored-{uuid.uuid4().hex[:8]}"
    began = time.monotonic()
    await asyncio.to_thread(kafka_share.produce, topic, 100)
    ended = time.monotonic()
    async with member(kafka_share, "consumer", topic, group) as consumer:
        await read_all(consumer, 50)
    await asyncio.sleep(3)  # so that the records are older than a look
    looked = time.monotonic()
    async with watching(kafka_share, group) as survey:
        view = (await polls_until(survey, group, lambda view: view.lag == 50, 2))[-1]
    assert view.status is Status.STOP
    assert view.age is not None
    assert view.age.certainty is Certainty.ABOUT
    # ``Search`` ends once it knows the time to a second.
    assert looked - ended - 1 <= view.age.seconds <= time.monotonic() - began + 1
