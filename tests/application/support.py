"""Consumers on a fake cluster, under virtual time."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar, cast
from zlib import crc32

import anyio
from attrs import Factory, define

from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition
from kafka_async.application.lifecycle.runtime import TaskRuntime
from kafka_async.network.waiting import LoopSignal
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.virtual import run_virtual, run_virtual_asyncio, virtual_on

P = ParamSpec("P")
T = TypeVar("T")

Consumer = KafkaConsumer[Any, Any]
Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]

REBALANCES: Final[dict[str, dict[str, Any]]] = {
    "eager": {"group_protocol": "classic", "partition_assignment_strategy": ("range",), "heartbeat_interval_ms": 500},
    "cooperative": {
        "group_protocol": "classic",
        "partition_assignment_strategy": ("cooperative-sticky",),
        "heartbeat_interval_ms": 500,
    },
    "consumer": {"group_protocol": "consumer"},
}
"""Options of members, for each way in which a group rebalances."""


def filled(count: int = 20, partitions: int = 1, **options: Any) -> tuple[FakeCluster, list[TopicPartition]]:
    """Return a cluster with a topic ``t`` of ``count`` records in each partition."""
    cluster = FakeCluster(**options)
    tps = cluster.create_topic("t", partitions)
    for tp in tps:
        cluster.fill(tp, count)
    return cluster, tps


def consumer_on(cluster: FakeCluster, *topics: str, **options: Any) -> Consumer:
    """Return a consumer of ``cluster`` that reads from the beginning unless told otherwise."""
    options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", **options}
    return KafkaConsumer(*topics, transport_factory=cluster.network, **options)


async def read_values(consumer: Consumer, count: int, *only: TopicPartition, seconds: float = 60.0) -> list[bytes]:
    """Read until ``count`` records have come, and return their values; fewer if the time is over."""
    values: list[bytes] = []
    with anyio.move_on_after(seconds):
        while len(values) < count:
            batch = await consumer.getmany(*only, timeout_ms=1000, max_records=count - len(values))
            values += [record.value for records in batch.values() for record in records]
    return values


async def read_all(consumers: Sequence[Consumer], seconds: float = 3.0) -> dict[TopicPartition, list[int]]:
    """Read from all at the same time, and return the offsets that came, in their order."""
    found: dict[TopicPartition, list[int]] = {}

    async def read(consumer: Consumer) -> None:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                found.setdefault(partition, []).extend(record.offset for record in records)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            for consumer in consumers:
                tasks.start_soon(read, consumer)
    return found


@asynccontextmanager
async def iteration(consumer: Consumer) -> AsyncIterator[AsyncIterator[ConsumerRecord[Any, Any]]]:
    """Iterate over the records of a consumer, with an end to it: trio warns of iterations that are just left."""
    async with aclosing(cast("AsyncGenerator[ConsumerRecord[Any, Any], None]", aiter(consumer))) as records:
        yield records


@define(eq=False)
class Gate:
    """A deserializer that waits to be let through."""

    entered: anyio.Event = Factory(anyio.Event)
    opened: anyio.Event = Factory(anyio.Event)

    async def __call__(self, data: bytes) -> bytes:
        self.entered.set()
        await self.opened.wait()
        return data


def offsets(records: Records) -> dict[TopicPartition, list[int]]:
    """Return the offsets of a batch."""
    return {tp: [record.offset for record in part] for tp, part in records.items()}


def commit_answer(
    request: OffsetCommitRequest, code: Callable[[OffsetCommitRequestTopic, OffsetCommitRequestPartition], int]
) -> OffsetCommitResponse:
    """Return the answer to a commit, with an error code for each partition; 0 is none."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code(topic, part))
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def numbers(count: int, start: int = 0) -> list[bytes]:
    """Return the values that ``FakeCluster.fill`` wrote."""
    return [str(n).encode() for n in range(start, start + count)]


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test under virtual time.

    On asyncio, which most programs have; every fourth test, chosen by its name, on trio, which takes a third more of a CPU.
    """
    return virtual_on(test, run_virtual if crc32(test.__qualname__.encode()) % 4 == 0 else run_virtual_asyncio)


def virtual_on_trio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """As ``virtual``, for what only trio has: a clock that a test can set, scopes that shield from every cancellation."""
    return virtual_on(test, run_virtual)


@define(eq=False)
class _Steps(Awaitable[T]):
    """Runs a coroutine, and cancels the scope around it the ``place``-th time that it suspends."""

    coroutine: Coroutine[Any, Any, T]
    place: int
    scope: anyio.CancelScope

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = partial(self.coroutine.send, None)
        suspended = 0
        while True:
            try:
                trap = step()
            except StopIteration as end:
                result: T = end.value
                return result
            suspended += 1
            if suspended == self.place:
                self.scope.cancel()
            try:
                step = partial(self.coroutine.send, (yield trap))
            except BaseException as error:  # whatever the event loop throws in belongs to the coroutine
                step = partial(self.coroutine.throw, error)


async def cancelled_at(place: int, coroutine: Coroutine[Any, Any, T]) -> tuple[T] | None:
    """Return the result of a coroutine that is cancelled at its ``place``-th suspension, from 1; ``None``: that ended it."""
    with anyio.CancelScope() as scope:
        return (await _Steps(coroutine, place, scope),)
    return None


def watched() -> tuple[TaskRuntime, LoopSignal]:
    """Return a runtime and the signal at which calls of its consumer wait."""
    signal = LoopSignal()
    return TaskRuntime(signal=signal), signal


async def settle(cluster: FakeCluster, seconds: float = 1.0) -> None:
    """Let everything that is going on come to rest."""
    await anyio.sleep(seconds)
    assert not cluster.network.live()
