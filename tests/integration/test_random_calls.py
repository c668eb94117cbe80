"""Random sequences of calls against a model: whatever the order, each partition yields the records from its position on."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from kafka_async import TopicPartition
from tests.brokers import KafkaCluster

from .tools import Consumer, Record, all_of, flat, make, new_topic, read

pytestmark = pytest.mark.brokers

PARTITIONS = 3
COUNT = 900
"""Records of each partition."""


class Model:
    """What a consumer must do: positions, pauses and assignment, one step after the other."""

    def __init__(self, consumer: Consumer, topic: str, seed: int) -> None:
        self.consumer = consumer
        self.random = random.Random(seed)  # noqa: S311  # a fixed seed, not a secret
        self.partitions = all_of(topic, PARTITIONS)
        self.positions = dict.fromkeys(self.partitions, 0)
        self.paused: set[TopicPartition] = set()
        self.log: list[str] = []
        self.delivered = 0

    def some(self) -> TopicPartition:
        return self.random.choice(self.partitions)

    def expect(self, records: list[Record], *only: TopicPartition) -> None:
        """Check what a read returned, and move on behind it."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            assert record.offset == self.positions[partition], f"{partition} at {self.positions[partition]}: {self.log[-12:]}"
            assert partition not in self.paused, f"{partition} is paused: {self.log[-12:]}"
            assert not only or partition in only, f"{partition} was not asked for: {self.log[-12:]}"
            self.positions[partition] += 1
        self.delivered += len(records)

    async def getmany(self) -> None:
        limit = self.random.choice([1, 5, 50, None])
        self.expect(flat(await self.consumer.getmany(timeout_ms=self.random.choice([0, 1, 50]), max_records=limit)))

    async def getmany_of_some(self) -> None:
        only = tuple({self.some(), self.some()})
        self.expect(flat(await self.consumer.getmany(*only, timeout_ms=30, max_records=20)), *only)

    async def getone(self) -> None:
        """Read one record with a time limit, which cancels."""
        only = self.random.choice([(), (self.some(),)])
        try:
            async with asyncio.timeout(self.random.choice([0.001, 0.05])):
                self.expect([await self.consumer.getone(*only)], *only)
        except TimeoutError:
            self.log.append("cancelled")

    async def iterate(self) -> None:
        left = self.random.randint(1, 30)
        try:
            async with asyncio.timeout(self.random.choice([0.002, 0.1])):
                async for record in self.consumer:
                    self.expect([record])
                    left -= 1
                    if not left:
                        return
        except TimeoutError:
            self.log.append("cancelled")

    async def arrow(self) -> None:
        batch = await self.consumer.getarrow(timeout_ms=20, max_records=self.random.choice([1, 40]))
        columns = (batch[name].to_pylist() for name in ("topic", "partition", "offset"))
        for topic, index, offset in zip(*columns, strict=True):
            partition = TopicPartition(topic, index)
            assert (offset, partition in self.paused) == (self.positions[partition], False), f"{partition}: {self.log[-12:]}"
            self.positions[partition] += 1
        self.delivered += batch.num_rows

    async def seek(self) -> None:
        partition = self.some()
        self.positions[partition] = self.random.randint(0, COUNT)
        self.consumer.seek(partition, self.positions[partition])

    async def seek_to_an_end(self) -> None:
        partition = self.some()
        if self.random.random() < 0.7:
            assert await self.consumer.seek_to_beginning(partition)
            self.positions[partition] = 0
        else:
            assert await self.consumer.seek_to_end(partition)
            self.positions[partition] = COUNT

    async def cancelled_seek(self) -> None:
        """A look-up that is cancelled still goes where it was sent."""
        partition = self.some()
        task = asyncio.ensure_future(self.consumer.seek_to_beginning(partition))
        asyncio.get_running_loop().call_later(self.random.random() * 0.002, task.cancel)
        await asyncio.wait([task])
        self.positions[partition] = 0

    async def pause_or_resume(self) -> None:
        partition = self.some()
        if partition in self.paused:
            self.consumer.resume(partition)
            self.paused.discard(partition)
        else:
            self.consumer.pause(partition)
            self.paused.add(partition)

    async def compare(self) -> None:
        partition = self.some()
        assert await self.consumer.position(partition) == self.positions[partition], f"{partition}: {self.log[-12:]}"
        assert self.consumer.paused() == self.paused
        self.consumer.statistics()

    async def assign_again(self) -> None:
        """Take one partition away and give it back: it starts anew; the others go on."""
        partition = self.some()
        self.consumer.assign(other for other in self.partitions if other != partition)
        if self.random.random() < 0.5:
            others = flat(await self.consumer.getmany(timeout_ms=1, max_records=5))
            self.expect(others, *(other for other in self.partitions if other != partition))
        self.consumer.assign(self.partitions)
        self.positions[partition] = 0
        self.paused.discard(partition)

    async def run(self, steps: int) -> None:
        actions: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.getmany, 6),
            (self.getmany_of_some, 3),
            (self.getone, 3),
            (self.iterate, 3),
            (self.arrow, 2),
            (self.seek, 3),
            (self.seek_to_an_end, 1),
            (self.cancelled_seek, 1),
            (self.pause_or_resume, 2),
            (self.compare, 2),
            (self.assign_again, 1),
        ]
        for _ in range(steps):
            action = self.random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]
            self.log.append(getattr(action, "__name__", "?"))
            await action()
        self.consumer.resume(*self.paused)
        self.paused.clear()
        left = sum(COUNT - position for position in self.positions.values())
        self.expect(await read(self.consumer, left) if left else [])
        assert set(self.positions.values()) == {COUNT}
        assert self.delivered > COUNT


@pytest.mark.parametrize(
    ("seed", "background", "buffer"), [(1, "task", 16 << 10), (2, "thread", 16 << 10), (3, "task", 1 << 20), (4, "thread", 1 << 20)]
)
async def test_any_sequence_of_calls_yields_each_partition_from_its_position_on(
    kafka44: KafkaCluster, seed: int, background: str, buffer: int
) -> None:
    topic = new_topic(kafka44, PARTITIONS)
    kafka44.produce(topic, COUNT * PARTITIONS, partitions=PARTITIONS, settings={"batch.size": 2500}, codec="lz4")
    limits = {"fetch_buffer_bytes": buffer, "max_partition_fetch_bytes": 4 << 10, "max_poll_records": 60}
    async with make(kafka44, background=background, **limits) as consumer:
        consumer.assign(all_of(topic, PARTITIONS))
        await Model(consumer, topic, seed).run(300)
