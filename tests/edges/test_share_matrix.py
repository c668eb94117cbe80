"""Share consumers: every way of reading, with every kind of deserializer, meets every event; each job is done, and nothing is left.

On the simulated cluster, in virtual time. Two topics of two partitions; the events concern the first, except the deletion.
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import KafkaError
from kafka_async.testing import Cluster
from tests.testing.test_clusters import Run, on_both

JOBS, LARGE, LOCK = 40, 700, 3.0


class Member:
    """A share consumer and what it has done."""

    def __init__(self, cluster: Cluster, deserializer: Any) -> None:
        self.cluster = cluster
        self.consumer: ShareConsumer[Any, Any] = ShareConsumer(
            "jobs", "others", group_id="workers", value_deserializer=deserializer, **cluster.options()
        )
        self.done: Counter[tuple[str, int, int]] = Counter()
        self.rest: Callable[[], None] = lambda: None
        """Makes the reader rest."""
        self.go_on: Callable[[], None] = lambda: None
        self.scope = anyio.CancelScope()
        """Of the read that is under way."""

    def jobs(self, *topics: str) -> int:
        """How many different jobs of topics are done."""
        return sum(topic in topics for topic, _, _ in self.done)

    async def work(self, job: Any) -> None:
        async with job:
            await anyio.sleep(0.002)
            self.done[job.topic, job.partition, job.offset] += 1

    async def reading(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """Read, and again if the read was cancelled."""
        while True:
            with anyio.CancelScope() as self.scope:
                return await read()

    # The ways of reading.

    async def getone(self) -> None:
        while True:
            await self.work(await self.reading(self.consumer.getone))

    async def getmany(self) -> None:
        while True:
            batch = await self.reading(lambda: self.consumer.getmany(timeout_ms=200, max_records=7))
            for job in itertools.chain(*batch.values()):
                await self.work(job)

    async def iterate(self) -> None:
        iteration = aiter(self.consumer)
        while True:
            await self.work(await self.reading(lambda: anext(iteration)))

    async def process(self) -> None:
        async with self.consumer.processing(self.work, concurrency=3) as processing:
            self.rest, self.go_on = processing.pause, processing.resume
            await processing.wait()


async def _slow(data: bytes) -> str:
    await anyio.sleep(0.001)
    return data.decode()


DESERIALIZERS: dict[str, Any] = {"none": None, "plain": bytes.decode, "async": _slow}


# The events.


async def _nothing(member: Member) -> None:
    await anyio.sleep(0.1)


async def _cancelled_reads(member: Member) -> None:
    for turn in range(60):
        await anyio.sleep(0.0007 * (turn % 5 + 1))
        member.scope.cancel()
        member.rest()
        member.go_on()


async def _paused(member: Member) -> None:
    member.rest()
    await anyio.sleep(2 * LOCK)
    member.go_on()


async def _deleted(member: Member) -> None:
    member.cluster.delete("others")
    await anyio.sleep(1)


async def _subscribed_anew(member: Member) -> None:
    for _ in range(3):
        await anyio.sleep(0.005)
        await member.consumer.unsubscribe()
        member.consumer.subscribe(["jobs", "others"])


async def _large_batch(member: Member) -> None:
    with member.cluster.transaction() as transaction:
        transaction.produce("jobs", *(f"large {number}" for number in range(LARGE)), partition=0)
    await anyio.sleep(0.1)


async def _cut(member: Member) -> None:
    for _ in range(3):
        await anyio.sleep(0.02)
        member.cluster.cut()


async def _moved(member: Member) -> None:
    for broker in (1, 0):
        await anyio.sleep(0.02)
        member.cluster.move_leader(("jobs", 0), broker)


EVENTS = [_nothing, _cancelled_reads, _paused, _deleted, _subscribed_anew, _large_batch, _cut, _moved]
EXACT = (_nothing, _cancelled_reads, _deleted, _large_batch)
"""Events that cost no lock: each job is done once."""


def _filled() -> Cluster:
    cluster = Cluster(brokers=2)
    settings = {"share_record_lock_duration_ms": int(LOCK * 1000), "share_delivery_count_limit": 10}
    cluster.group("workers", share_auto_offset_reset="earliest", **settings)
    for topic in ("jobs", "others"):
        cluster.topic(topic, partitions=2)
    return cluster


async def _write(cluster: Cluster) -> None:
    for number in range(JOBS):
        for topic in ("jobs", "others"):
            if topic in cluster.simulated.topics:
                cluster.produce(topic, value=f"{topic} {number}", partition=number % 2)
        await anyio.sleep(0.001)


async def _read(member: Member, way: Any, errors: list[KafkaError]) -> None:
    while True:
        try:
            await way(member)
        except KafkaError as error:
            errors.append(error)


async def _until_done(member: Member, count: int, *topics: str) -> None:
    with anyio.move_on_after(60):
        while member.jobs(*topics) < count:  # noqa: ASYNC110 - nothing else tells
            await anyio.sleep(0.1)
    await anyio.sleep(0.5)
    assert member.jobs(*topics) == count


WAYS = (Member.getone, Member.getmany, Member.iterate, Member.process)
COMBINATIONS = [
    pytest.param(
        way,
        deserializer,
        event,
        id=f"{way.__name__}-{deserializer}-{event.__name__}",
        marks=() if number % 7 == 0 else pytest.mark.slow if number % 7 < 4 else pytest.mark.apart,
    )
    for number, (way, deserializer, event) in enumerate(itertools.product(WAYS, DESERIALIZERS, EVENTS))
]
"""One in seven is fast, so each way, deserializer and event comes up; three are slow, and three apart."""


@on_both
@pytest.mark.parametrize(("way", "deserializer", "event"), COMBINATIONS)
def test_every_job_is_done_and_nothing_is_left(run: Run, way: Any, deserializer: str, event: Any) -> None:
    async def main() -> None:
        cluster = _filled()
        member = Member(cluster, DESERIALIZERS[deserializer])
        errors: list[KafkaError] = []
        async with member.consumer:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, member, way, errors)
                tasks.start_soon(_write, cluster)
                await event(member)
                stays = ("jobs",) if event is _deleted else ("jobs", "others")
                await _until_done(member, JOBS * len(stays) + (LARGE if event is _large_batch else 0), *stays)
                tasks.cancel_scope.cancel()
            await member.consumer.flush()
            told = member.consumer.statistics()
            assert told.unanswered == 0
            if event in EXACT:
                assert (set(member.done.values()), errors) == ({1}, [])
            if event is not _deleted:
                ends = {(topic, part): cluster.end((topic, part)) for topic in ("jobs", "others") for part in (0, 1)}
                assert cluster.shared("workers") == ends
                assert (told.unread, told.out, told.lost if event in EXACT else 0) == (0, 0, 0)
        assert cluster.members("workers") == []

    run(main)
