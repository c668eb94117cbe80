"""Partitions that were read, given up and assigned anew are read again in full, whatever times answers take.

The sequence that once hung for five minutes, and that nobody could repeat: a consumer without a group had read six partitions,
``unsubscribe()``, ``assign()`` of the same ones, and ``getarrow`` in a loop found too few rows. What an answer that was asked for
before the assignment could do wrong (a position, a fetch, a picture of the cluster) depends on when it comes, so times are random.
"""

from contextlib import aclosing
from random import Random
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.testing import Cluster
from tests.virtual import run_seeds, run_virtual_asyncio

from .support import Ownership

PATIENCE = 300.0
"""Virtual seconds after which a read has hung: longer than every timeout of a request and every back-off together."""
SEEDS = 40
PARTS = [pytest.param(part, marks=pytest.mark.apart) if part % 2 else part for part in range(8)]
"""The programs are divided among eight tests; every other one is left out of each run, since they have held for long."""
WAYS = ("getmany", "getone", "iteration", "getarrow", "arrow_batches")
Found = list[tuple[int, int]]


class Program:
    """One consumer that assigns the same partitions again and again, with what happens in between chosen at random."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)  # noqa: S311 - repeatable on purpose
        kafka = random.choice(("4.4", "4.4", "3.9", "2.8", "2.1"))
        self.brokers = random.choice((1, 1, 2, 3))
        kit = Cluster(self.brokers, kafka, latency=random.choice((0.001, 0.02, 0.2, 1.0)), seed=seed)
        self.place = Ownership("classic", kit)
        self.count = random.choice((1, 2, 6))
        self.records = random.choice((5, 30, 100))
        self.partitions = kit.topic("t", self.count)
        self.other = kit.topic("other")
        for partition in self.partitions:
            size = random.choice((0, 1000))
            self.place.cluster.fill(partition, self.records, per_batch=random.choice((1, 7, 50)), size=size)
        options: dict[str, Any] = {"metadata_max_age_ms": random.choice((50, 300, 300_000))}
        if random.random() < 0.3:
            options |= {"fetch_buffer_bytes": random.choice((30_000, 200_000)), "max_partition_fetch_bytes": 1000}
        made = self.place.consumer if random.random() < 0.3 else self.place.plain
        self.consumer = made(*random.choice(((), ("t",))), **options)
        if not self.consumer.subscription():
            self.consumer.assign(self.partitions)

    async def run(self) -> None:
        """Read, give up, assign anew, and read all."""
        random = self.random
        async with self.consumer:
            whole = self.count * self.records
            await self.read(random.choice((whole, random.randint(1, whole))))
            for _ in range(random.choice((1, 2, 4))):
                await self.perhaps_sleep()
                self.consumer.unsubscribe()
                await self.perhaps_assign_others()
                await self.perhaps_sleep()
                self.perhaps_disturb()
                self.consumer.assign(self.partitions)
                await self.consumer.seek_to_beginning()
                found = await self.read(whole)
                assert sorted(found) == [(part, offset) for part in range(self.count) for offset in range(self.records)]

    async def perhaps_sleep(self) -> None:
        if self.random.random() < 0.4:
            await anyio.sleep(self.random.choice((0.001, 0.5, 3.0)) * self.random.random())

    async def perhaps_assign_others(self) -> None:
        """Be at something else for a while, for which requests are under way when the partitions come back."""
        match self.random.randrange(8):
            case 0:
                self.consumer.assign(self.random.sample(self.partitions, self.random.randint(1, self.count)))
            case 1:
                self.consumer.assign(self.other)
            case 2:
                self.consumer.subscribe(["other", "t"])
            case _:
                return
        await self.perhaps_sleep()
        self.consumer.unsubscribe()

    def perhaps_disturb(self) -> None:
        match self.random.randrange(8):
            case 0:
                self.place.cluster.move_leader(self.random.choice(self.partitions), self.random.randrange(self.brokers))
            case 1:
                self.place.cluster.disconnect(self.random.randrange(self.brokers))

    async def read(self, count: int) -> Found:
        """Return so many records, in a way chosen at random."""
        found: Found = []
        way = self.random.choice(WAYS)
        with anyio.move_on_after(PATIENCE):
            while len(found) < count:
                found += await self.some(way, count - len(found))
            return found
        raise AssertionError(f"{way} found {len(found)} of {count} records: {self.consumer.statistics()}")

    async def some(self, way: str, count: int) -> Found:
        limit = min(count, self.random.choice((1, 7, 250)))
        timeout = self.random.choice((10, 10_000))
        if way == "getmany":
            batch = await self.consumer.getmany(timeout_ms=timeout, max_records=limit)
            return [(record.partition, record.offset) for records in batch.values() for record in records]
        if way == "getone":
            record = await self.consumer.getone()
            return [(record.partition, record.offset)]
        if way == "getarrow":
            return _rows(await self.consumer.getarrow(timeout_ms=timeout, max_records=limit))
        found: Found = []
        if way == "arrow_batches":
            async with aclosing(self.consumer.arrow_batches(max_records=limit)) as batches:
                return _rows(await anext(batches))
        async for record in self.consumer:
            found.append((record.partition, record.offset))
            if len(found) >= limit:
                break
        return found


def _rows(batch: Any) -> Found:
    return list(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))


async def _run(seed: int) -> None:
    await Program(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_what_is_assigned_anew_is_read_in_full(part: int) -> None:
    run_seeds(_run, range(part * SEEDS, (part + 1) * SEEDS))


def test_partitions_of_two_topics_change_places_while_answers_are_late() -> None:
    """Each assignment replaces the other before it has an answer; the last one is read."""

    async def scenario() -> None:
        place = Ownership("classic", Cluster(latency=0.3, seed=1))
        one, other = place.topic("t", 3), place.topic("u", 3)
        async with place.plain() as consumer:
            for delay in (0.0, 0.01, 0.1, 0.2, 0.4, 0.7, 1.1):
                for partitions in (one, other, one):
                    consumer.assign(partitions)
                    await anyio.sleep(delay)
                    consumer.unsubscribe()
                consumer.assign(other)
                found: list[TopicPartition] = []
                with anyio.fail_after(PATIENCE):
                    while len(found) < 60:
                        batch = await consumer.getmany(timeout_ms=1000)
                        found += [partition for partition, records in batch.items() for _ in records]
                assert {partition: found.count(partition) for partition in other} == dict.fromkeys(other, 20)
                consumer.unsubscribe()

    run_virtual_asyncio(scenario)
