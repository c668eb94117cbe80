"""What the tests of single edges share: a cluster with a group whose other members do as the test says, and its consumer."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, ParamSpec

import anyio
import pytest
from attrs import Factory, define

from kafka_async import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka_async.testing import Cluster
from kafka_async.testing.simulation import FakeCluster
from tests.virtual import run_virtual, run_virtual_asyncio, virtual_on

from .others import BEAT_MS, GROUP, Others

P = ParamSpec("P")

GROUPS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"group_protocol": "classic", "heartbeat_interval_ms": BEAT_MS},
    "cooperative": {
        "group_protocol": "classic",
        "heartbeat_interval_ms": BEAT_MS,
        "partition_assignment_strategy": ("cooperative-sticky",),
    },
    "consumer": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", sorted(GROUPS))


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test under virtual time, on asyncio and then on trio."""
    return virtual_on(test, run_virtual_asyncio, run_virtual)


@define(eq=False)
class Ownership:
    """A cluster, the other members of its group, and a consumer's options."""

    protocol: str = "consumer"
    kit: Cluster = Factory(Cluster)
    others: Others = Factory(lambda self: Others(self.kit), takes_self=True)

    @property
    def cluster(self) -> FakeCluster:
        """The simulated brokers."""
        return self.kit.simulated

    def topic(self, name: str, partitions: int = 1, records: int = 20) -> list[TopicPartition]:
        """Create a topic whose records' values are their offsets."""
        made = self.cluster.create_topic(name, partitions)
        for partition in made:
            self.cluster.fill(partition, records, per_batch=5)
        return made

    def consumer(self, *topics: str, **options: Any) -> Any:
        """Return a member of the group ``g``. It is untyped, since parts of what is tested may be new."""
        return self.plain(*topics, **({"group_id": GROUP} | GROUPS[self.protocol] | options))

    def plain(self, *topics: str, **options: Any) -> Any:
        """Return a consumer without a group."""
        defaults: dict[str, Any] = {
            **self.kit.options(),
            "auto_offset_reset": "earliest",
        }
        consumer: Any = KafkaConsumer(*topics, **(defaults | options))
        return consumer

    def committed(self, partition: TopicPartition) -> int | None:
        return self.cluster.committed.get((GROUP, partition))


@define(eq=False)
class RecordingListener(ConsumerRebalanceListener):
    """Records the calls that it gets; each takes ``takes`` seconds."""

    takes: float = 0.0
    began: list[tuple[str, frozenset[TopicPartition]]] = Factory(list)
    ended: list[tuple[str, frozenset[TopicPartition]]] = Factory(list)
    on_assigned: Callable[[Collection[TopicPartition]], Any] = lambda partitions: None

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._called("revoked", revoked)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._called("lost", lost)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._called("assigned", assigned)

    async def _called(self, what: str, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return  # the consumer has checked, and nothing is new
        self.began.append((what, frozenset(partitions)))
        if self.takes:
            await anyio.sleep(self.takes)
        if what == "assigned":
            self.on_assigned(partitions)
        self.ended.append((what, frozenset(partitions)))


async def offsets_of(consumer: Any, count: int, seconds: float = 20.0) -> dict[TopicPartition, list[int]]:
    """Read until ``count`` records have come or the time is over; return their offsets."""
    found: dict[TopicPartition, list[int]] = {}
    with anyio.move_on_after(seconds):
        while sum(map(len, found.values())) < count:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                found.setdefault(partition, []).extend(record.offset for record in records)
    return found
