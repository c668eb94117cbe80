"""A simulated cluster on which many handlers run at once, under virtual time, and what the tests of it do again and again."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from attrs import Factory, define, field

from kafka_async import ConsumerRecord, Router, TopicPartition
from kafka_async.application.processing.encoding import PREFIX
from kafka_async.application.processing.processing import Processing
from kafka_async.testing.simulation import FakeCluster
from kafka_async.testing.simulation.groups import Groups
from tests.application.support import Consumer, consumer_on

Record = ConsumerRecord[Any, Any]
GROUP = "billing"


@define(eq=False)
class World:
    """A cluster with a topic ``t``, a group coordinator, and what handlers did."""

    cluster: FakeCluster
    partitions: list[TopicPartition]
    coordinator: Groups
    started: list[Record] = Factory(list)
    done: list[Record] = Factory(list)
    running: Counter[Any] = Factory(Counter)
    peak: int = 0
    seconds: Callable[[Record], float] = field(default=lambda record: 0.01)
    """How long the handler takes for a record."""

    def consumer(self, **options: Any) -> Consumer:
        options = {"group_id": GROUP, "group_protocol": "consumer", "enable_auto_commit": False, **options}
        return consumer_on(self.cluster, "t", **options)

    async def handle(self, record: Record) -> None:
        """A handler that takes its time."""
        self.started.append(record)
        lane = (record.partition, record.key)
        self.running[lane] += 1
        assert self.running[lane] == 1 or record.key is None
        self.peak = max(self.peak, self.running.total())
        try:
            await anyio.sleep(self.seconds(record))
        finally:
            self.running[lane] -= 1
        self.done.append(record)

    def produce(self, count: int, keys: int = 0, partition: int = 0) -> None:
        log = self.cluster.log(self.partitions[partition])
        for start in range(log.end, log.end + count, 10):
            end = min(start + 10, log.end + count if start == log.end else start + 10)
            wanted = range(start, min(start + 10, end))
            log.append([b"%d" % n for n in wanted], keys=[b"k%d" % (n % keys) if keys else None for n in wanted])
        self.cluster.changed()

    def committed(self, partition: int = 0) -> int | None:
        return self.cluster.committed.get((GROUP, self.partitions[partition]))

    def metadata(self, partition: int = 0) -> str:
        return self.cluster.metadata.get((GROUP, self.partitions[partition]), "")

    def offsets(self, records: Iterable[Record] | None = None) -> list[int]:
        return [record.offset for record in (self.done if records is None else records)]


def world(partitions: int = 1, brokers: int = 1) -> World:
    cluster = FakeCluster(size=brokers)
    tps = cluster.create_topic("t", partitions)
    return World(cluster, tps, cluster.groups)


@asynccontextmanager
async def processed(
    some: World, handler: Callable[..., Any] | Router | None = None, *, consumer: Any = None, **how: Any
) -> AsyncIterator[Processing]:
    """A consumer of the world that processes."""
    async with some.consumer(**(consumer or {})) as started, started.processing(handler or some.handle, **how) as run:
        yield run


async def until(condition: Callable[[], bool], seconds: float = 100.0) -> None:
    """Wait until it holds, in virtual time."""
    with anyio.move_on_after(seconds):
        while not condition():  # noqa: ASYNC110 - the conditions of tests are no events, and time is virtual
            await anyio.sleep(0.05)
    assert condition()


async def leave_a_map(some: World, count: int) -> None:
    """Handle so many records but for one that never ends: 5 is committed, with a map of the rest."""
    some.produce(count)
    some.seconds = lambda record: 10_000.0 if record.offset == 5 else 0.01
    async with processed(some, drain_timeout_ms=0):
        await until(lambda: len(some.done) == count - 1)
    assert some.committed() == 5
    assert some.metadata().startswith(PREFIX)
    some.seconds = lambda record: 0.01
    some.started.clear()
    some.done.clear()
