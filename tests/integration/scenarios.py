"""Where a scenario takes place, on the simulated cluster or on real brokers, and what scenarios have in common."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.errors import KafkaError
from kafka_async.testing import Cluster, RealCluster
from tests.virtual import run_virtual_asyncio

PATIENCE: Final = 45.0
"""Seconds for which a scenario waits."""
_AT_ONCE: Final = 6
_numbers = itertools.count()


@define(eq=False)
class Ownership:
    """Where a scenario runs. ``t`` and ``g`` are its own topic and group."""

    cluster: Any
    run: int = field(factory=lambda: next(_numbers))

    @property
    def t(self) -> str:
        return f"scenario-{self.run}"

    @property
    def g(self) -> str:
        return f"group-{self.run}"

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.t, partition)

    def filled(self, *values: str | None, partitions: int = 1) -> None:
        """Create the topic, and write the values to its first partition."""
        self.cluster.topic(self.t, partitions)
        for value in values:
            self.cluster.produce(self.t, value=value, partition=0)

    def spread(self, count: int, partitions: int) -> None:
        """Create the topic, and write numbers to its partitions in turn."""
        self.cluster.topic(self.t, partitions)
        for number in range(count):
            self.cluster.produce(self.t, value=str(number), partition=number % partitions)

    @asynccontextmanager
    async def reader(self, *partitions: int, **options: Any) -> AsyncIterator[KafkaConsumer[Any, Any]]:
        """A consumer without subscription that reads partitions."""
        async with self.new(**options) as consumer:
            consumer.assign([self.tp(index) for index in partitions or (0,)])
            yield consumer

    def new(self, *topics: str, **options: Any) -> KafkaConsumer[Any, Any]:
        return KafkaConsumer(
            *topics, **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **self.cluster.options(), **options}
        )

    def member(self, protocol: str, **options: Any) -> KafkaConsumer[Any, Any]:
        """A member of the group, subscribed to the topic."""
        return self.new(self.t, group_id=self.g, group_protocol=protocol, **options)

    @asynccontextmanager
    async def joining(
        self, protocol: str, *others: KafkaConsumer[Any, Any], **options: Any
    ) -> AsyncIterator[KafkaConsumer[Any, Any]]:
        """Such a member, which joins while others read. With an eager assignor its start waits until they have joined again."""

        async def read() -> None:
            while True:
                for other in others:
                    await other.getmany(timeout_ms=20, max_records=1)

        member = self.member(protocol, **options)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await member.start()
            tasks.cancel_scope.cancel()
        try:
            yield member
        finally:
            await member.stop()

    def from_the_start(self, **config: object) -> None:
        """Have the share group begin at the first record."""
        self.cluster.group(self.g, share_auto_offset_reset="earliest", **config)

    def committed(self) -> dict[int, tuple[int, str]]:
        return {tp.partition: (offset.offset, offset.metadata) for tp, offset in self.cluster.committed(self.g).items()}


Scenario = Callable[[Ownership], Awaitable[Any]]


async def read(consumer: KafkaConsumer[Any, Any], count: int, seconds: float = PATIENCE) -> list[Any]:
    """Read so many values."""
    found: list[Any] = []
    with anyio.move_on_after(seconds):
        while len(found) < count:
            batch = await consumer.getmany(timeout_ms=200)
            found += [record for records in batch.values() for record in records]
    return found


async def values(consumer: KafkaConsumer[Any, Any], count: int, seconds: float = PATIENCE) -> list[str | None]:
    return [None if record.value is None else record.value.decode() for record in await read(consumer, count, seconds)]


async def until(condition: Callable[[], bool], *consumers: KafkaConsumer[Any, Any]) -> bool:
    """Poll the consumers until something holds; return whether it did."""
    with anyio.move_on_after(PATIENCE):
        while not condition():
            for consumer in consumers:
                await consumer.getmany(timeout_ms=20, max_records=1)
            await anyio.sleep(0.02)
        return True
    return False


async def outcome(call: Awaitable[Any]) -> Any:
    """Return what a call returns, or the name of what it raises."""
    try:
        return await call
    except (KafkaError, ValueError) as error:
        return type(error).__name__


def indexes(consumer: KafkaConsumer[Any, Any]) -> list[int]:
    return sorted(tp.partition for tp in consumer.assignment())


def worker(p: Ownership, **options: Any) -> ShareConsumer[Any, Any]:
    return ShareConsumer(p.t, **{"group_id": p.g, **p.cluster.options(), **options})


async def jobs(consumer: ShareConsumer[Any, Any], count: int, seconds: float = PATIENCE) -> list[Any]:
    """Take so many records."""
    found: list[Any] = []
    with anyio.move_on_after(seconds):
        while len(found) < count:
            batch = await consumer.getmany(timeout_ms=200, max_records=count - len(found))
            found += [record for records in batch.values() for record in records]
    return found


async def settled(consumer: ShareConsumer[Any, Any]) -> list[str]:
    """Send the acknowledgements; return what became of them, by partition."""
    told = await consumer.flush()
    return [type(error).__name__ for error in told.values()]


def told(records: list[Any]) -> list[tuple[int, str, int]]:
    return [(record.offset, record.value.decode(), record.delivery_count) for record in records]


def transactions(p: Ownership) -> None:
    p.filled("before")
    with p.cluster.transaction() as writing:
        writing.produce(p.t, "committed")
    with pytest.raises(ZeroDivisionError), p.cluster.transaction() as writing:
        raise ZeroDivisionError(writing.produce(p.t, "aborted"))
    p.cluster.produce(p.t, value="after", partition=0)


async def on_real(bootstrap: str, scenarios: Mapping[str, Scenario]) -> dict[str, Any]:
    """Run scenarios on real brokers, some at a time; return what each returned or raised.

    Each has an event loop of its own, in a thread: the methods of ``RealCluster`` block it, on a busy machine for as long as a lock
    lasts, or a session.
    """
    found: dict[str, Any] = {}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def alone(scenario: Scenario) -> Any:
        async with RealCluster(bootstrap) as cluster:
            return await scenario(Ownership(cluster))

    async def one(name: str) -> None:
        async with limit:
            try:
                found[name] = await asyncio.to_thread(asyncio.run, alone(scenarios[name]))
            except Exception as error:
                found[name] = error

    await asyncio.gather(*map(one, scenarios))
    return found


def on_simulated(scenario: Scenario) -> Any:
    """Run a scenario on a simulated cluster of its own; return what it returned."""

    async def simulated() -> Any:
        async with asyncio.timeout(1000):
            return await scenario(Ownership(Cluster()))

    return run_virtual_asyncio(simulated)
