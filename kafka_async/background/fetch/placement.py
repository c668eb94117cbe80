"""Which broker each partition is fetched from.

A partition is placed when something about it changed, so the work depends on the number of changes: 1,000 idle partitions cost
nothing.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from ...model import TopicPartition
from ...values import define, field
from ..cluster.cluster_view import Leader
from ..cluster.metadata import MetadataManager
from ..loop.request_manager import NEVER
from .fetch_broker import FetchBroker

B = TypeVar("B", bound=FetchBroker[Any])


@define(eq=False)
class Timers:
    """When partitions are to be looked at again."""

    next: float = NEVER
    """When the first of them is due."""
    _heap: list[tuple[float, TopicPartition]] = field(factory=list)
    _set: set[tuple[float, TopicPartition]] = field(factory=set)
    """What is in the heap: a partition is placed after every answer, and its lease of a replica is the same each time."""

    def set(self, partition: TopicPartition, at: float) -> None:
        if (at, partition) not in self._set:
            self._set.add((at, partition))
            heappush(self._heap, (at, partition))
            self.next = self._heap[0][0]

    def due(self, now: float) -> Iterator[TopicPartition]:
        """Yield the partitions whose time has come, and forget them."""
        while self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)
            self._set.discard(timer)
            self.next = self._heap[0][0] if self._heap else NEVER
            yield timer[1]


@define(eq=False)
class Placement(Generic[B]):
    """The brokers, and the partitions that their sessions are to have."""

    metadata: MetadataManager = field(repr=False)
    make: Callable[[int], B] = field(repr=False)
    """Returns a new conversation with a broker."""
    brokers: dict[int, B] = field(factory=dict, init=False)
    placed: dict[TopicPartition, int] = field(factory=dict, init=False)
    """The broker that each partition is read from."""
    changed: set[TopicPartition] = field(factory=set, init=False)
    """Partitions that are to be placed again."""
    timers: Timers = field(factory=Timers, init=False)
    _leaderless: set[TopicPartition] = field(factory=set, init=False)
    """Partitions that wait for the metadata to name a leader whose address is known."""
    _seen: int = field(default=-1, init=False)

    def broker(self, node_id: int) -> B:
        """Return the conversation with a broker; a new one if there is none."""
        broker = self.brokers.get(node_id)
        if broker is None:
            broker = self.brokers[node_id] = self.make(node_id)
        return broker

    def collect(self, now: float) -> bool:
        """Add to ``changed`` what is due. Return whether the cluster is known in another version than before."""
        if self.timers.next <= now:
            self.changed.update(self.timers.due(now))
        version = self.metadata.cluster.version
        if version == self._seen:
            return False
        self._seen = version
        self.changed |= self._leaderless
        self._leaderless.clear()
        return True

    def leader(self, partition: TopicPartition, now: float) -> Leader | None:
        """Return a partition's leader; ``None`` if it is not known: the partition is placed again once the metadata may tell."""
        leader = self.metadata.cluster.leader(partition)
        if leader is None:
            self.metadata.need_leader(now)
            self._leaderless.add(partition)
        return leader

    def put(self, partition: TopicPartition, node_id: int | None, how: Any = None) -> None:
        """Have a partition read from a broker, as ``how`` says, and from no other; ``None``: from none."""
        before = self.placed.get(partition)
        if before is not None and before != node_id:
            del self.placed[partition]
            self.brokers[before].session.want(partition, None)
        if node_id is not None:
            self.placed[partition] = node_id
            (self.brokers.get(node_id) or self.broker(node_id)).session.want(partition, how)
