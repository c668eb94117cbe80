"""The cluster: brokers, topics, leaders, and everything that a test can do to them.

Decides: who leads what. Owns: the topics, the brokers, the sessions of the control functions and the log of requests. Must never
be in a hurry: time is the event loop's, and tests run it under a virtual clock.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

import anyio
from attrs import define, field, frozen

from kafka_async.errors import (
    FencedLeaderEpochError,
    NotLeaderForPartitionError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from kafka_async.model import TopicPartition
from kafka_async.wire import Api, Request, Response

from .broker import FakeBroker
from .handlers import HANDLERS, Handler
from .link import FakeNetwork, Server
from .log import PartitionLog
from .versions import KAFKA_4_3

Control: TypeAlias = Callable[[FakeBroker, Any], Any]
"""Sees ``(broker, request)``. Returns ``None`` to let it pass, a response, an error code, ``HANG`` or an exception (``Drop``)."""


@frozen
class LoggedRequest:
    """One request as it arrived."""

    time: float
    node_id: int
    api: Api
    version: int
    request: Any


@define(eq=False)
class FakePartition:
    """One partition: its log and who leads it."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    epoch: int = 0
    log: PartitionLog = field(factory=PartitionLog)


@define(eq=False)
class FakeTopic:
    """One topic."""

    name: str
    id: UUID
    partitions: list[FakePartition]
    internal: bool = False
    error: int = 0
    """What Metadata, Fetch and ListOffsets answer for it instead of serving it, such as 29 (no access)."""


@define(eq=False)
class _Controlled:
    api: Api
    fn: Control
    keep: bool
    node_id: int | None


@define(eq=False, kw_only=True)
class FakeCluster:
    """Brokers 0, 1, ... at hosts ``b0``, ``b1``, ... port 9092."""

    size: int = 1
    max_versions: Mapping[Api, int] = KAFKA_4_3
    latency: float = 0.001
    """Seconds from a request to its answer, and for a connection to be made."""
    chunk: int | None = None
    """Most bytes that one read of the client returns."""
    auto_create: int = 0
    """Partitions of a topic that a client's metadata request creates; 0: none is created."""
    racks: Mapping[int, str] = field(factory=dict)
    cluster_id: str = "fake-cluster"
    group_settings: dict[str, str] = field(factory=lambda: {"consumer.session.timeout.ms": "45000"})
    brokers: dict[int, FakeBroker] = field(init=False)
    topics: dict[str, FakeTopic] = field(factory=dict, init=False)
    requests: list[LoggedRequest] = field(factory=list, init=False)
    network: FakeNetwork = field(init=False)
    handlers: dict[Api, Handler] = field(factory=lambda: dict(HANDLERS), init=False)
    committed: dict[tuple[str, TopicPartition], int] = field(factory=dict, init=False)
    _down: dict[int, str] = field(factory=dict, init=False)
    _controls: list[_Controlled] = field(factory=list, init=False)
    _changed: anyio.Event | None = field(default=None, init=False)
    _ids: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.brokers = {node_id: FakeBroker(node_id, self) for node_id in range(self.size)}
        self.network = FakeNetwork(self)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"b{node_id}:9092" for node_id in self.brokers)

    # --- topics ----------------------------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, internal: bool = False
    ) -> list[TopicPartition]:
        """Create a topic whose leaders go round the brokers; return its partitions."""
        nodes = sorted(self.brokers)
        count = len(nodes) if replicas is None else replicas
        self._ids += 1
        made = []
        for index in range(partitions):
            chosen = tuple(nodes[(index + i) % len(nodes)] for i in range(count))
            made.append(FakePartition(index, chosen[0], chosen))
        self.topics[name] = FakeTopic(name, UUID(int=self._ids), made, internal)
        self.changed()
        return [TopicPartition(name, index) for index in range(partitions)]

    def add_partitions(self, name: str, count: int) -> None:
        """Grow a topic to ``count`` partitions."""
        nodes = sorted(self.brokers)
        known = self.topics[name].partitions
        for index in range(len(known), count):
            known.append(FakePartition(index, nodes[index % len(nodes)], tuple(nodes)))
        self.changed()

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        self.changed()

    def recreate(self, name: str) -> None:
        """Delete the topic and create it again: empty, with a new id."""
        count = len(self.topics.pop(name).partitions)
        self.create_topic(name, count)

    def partition(self, tp: TopicPartition) -> FakePartition:
        return self.topics[tp.topic].partitions[tp.partition]

    def find(self, topic: str, index: int) -> FakePartition | None:
        known = self.topics.get(topic)
        return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None

    def refusal(self, node_id: int, topic: str, index: int, current_epoch: int, *, follower: bool = False) -> int:
        """Return the error code with which a broker refuses to serve a partition, 0 where it serves it."""
        known, partition = self.topics.get(topic), self.find(topic, index)
        if known is None or partition is None:
            return UnknownTopicOrPartitionError.errno
        if known.error:
            return known.error
        if node_id != partition.leader and not (follower and node_id in partition.replicas):
            return NotLeaderForPartitionError.errno
        if 0 <= current_epoch < partition.epoch:
            return FencedLeaderEpochError.errno
        return UnknownLeaderEpochError.errno if current_epoch > partition.epoch else 0

    def name_of(self, topic_id: UUID | None) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.id == topic_id), None)

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return a partition's log. Call ``changed`` after changing it by hand."""
        return self.partition(tp).log

    def produce(self, tp: TopicPartition, *values: bytes | str | None, **options: Any) -> int:
        """Append one batch and return its base offset."""
        partition = self.partition(tp)
        data = [value.encode() if isinstance(value, str) else value for value in values]
        offset = partition.log.append(data, epoch=partition.epoch, **options)
        self.changed()
        return offset

    def fill(self, tp: TopicPartition, count: int, *, per_batch: int = 10, size: int = 0) -> None:
        """Append ``count`` records whose values are their offsets in decimal, padded to ``size`` bytes."""
        log = self.log(tp)
        first = log.end
        for start in range(first, first + count, per_batch):
            end = min(start + per_batch, first + count)
            log.append([str(n).encode().ljust(size, b".") for n in range(start, end)], epoch=self.partition(tp).epoch)
        self.changed()

    def truncate(self, tp: TopicPartition, offset: int) -> None:
        """Cut the log off at ``offset`` (a batch boundary), in a new leader epoch."""
        self.log(tp).truncate(offset)
        self.partition(tp).epoch += 1
        self.changed()

    # --- brokers ---------------------------------------------------------------------------------------------------------------

    def move_leader(self, tp: TopicPartition, node_id: int) -> None:
        """Elect ``node_id``, in a new epoch."""
        partition = self.partition(tp)
        partition.leader = node_id
        partition.epoch += 1
        if node_id not in partition.replicas:
            partition.replicas = (*partition.replicas, node_id)
        self.changed()

    def stop(self, node_id: int, how: str = "refuse") -> None:
        """Take a broker down: its connections break, new ones are refused (``refuse``) or not answered (``hang``)."""
        self._down[node_id] = how
        self.brokers[node_id].forget_sessions()
        self.disconnect(node_id)
        self.changed()

    def start(self, node_id: int) -> None:
        """Bring a broker back. It has forgotten its fetch sessions."""
        self._down.pop(node_id, None)
        self.changed()

    def disconnect(self, node_id: int) -> None:
        """Break the connections to a broker; new ones are accepted."""
        for transport in self.network.live(node_id):
            transport.end()

    def freeze(self, node_id: int) -> None:
        """Leave the connections to a broker half-open, and let new ones hang."""
        self._down[node_id] = "hang"
        for transport in self.network.live(node_id):
            transport.hang()

    def is_up(self, node_id: int) -> bool:
        return node_id not in self._down

    def reach(self, node_id: int) -> str:
        return self._down.get(node_id, "accept")

    def server_at(self, host: str, port: int) -> Server | None:
        found = (broker for broker in self.brokers.values() if (broker.host, broker.port) == (host, port))
        return next(found, None)

    # --- control ---------------------------------------------------------------------------------------------------------------

    def control(self, api: Api, fn: Control, *, keep: bool = False, node: int | None = None) -> Callable[[], None]:
        """Have ``fn`` see the next request of ``api`` (``keep``: every one) and decide. Return a function that ends it.

        A call that lets a request pass counts as well, as in franz-go's kfake.
        """
        entry = _Controlled(api, fn, keep, node)
        self._controls.append(entry)
        return lambda: self._controls.remove(entry) if entry in self._controls else None

    def decide(self, broker: FakeBroker, request: Request[Any]) -> Any:
        """Return what the first control function with an opinion says; ``None``: the broker answers as it always does."""
        for entry in list(self._controls):
            if entry.api is request.api and entry.node_id in (None, broker.node_id):
                if not entry.keep:
                    self._controls.remove(entry)
                outcome = entry.fn(broker, request)
                if outcome is not None:
                    return outcome
        return None

    # --- time ------------------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Wake the long polls: something that they may wait for has happened."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_for_change(self, deadline: float) -> None:
        """Return after the next change, or at ``deadline``."""
        if self._changed is None:
            self._changed = anyio.Event()
        event = self._changed
        with anyio.CancelScope(deadline=deadline):
            await event.wait()

    # --- what was asked --------------------------------------------------------------------------------------------------------

    def note(self, node_id: int, api: Api, version: int, request: Any) -> None:
        self.requests.append(LoggedRequest(anyio.current_time(), node_id, api, version, request))

    def asked(self, *apis: Api, since: float = 0.0) -> list[LoggedRequest]:
        """Return the requests of ``apis`` (none: all but ApiVersions) that arrived at ``since`` or later."""
        return [
            entry
            for entry in self.requests
            if entry.time >= since and (entry.api in apis if apis else entry.api is not Api.API_VERSIONS)
        ]

    def answering(self, response: Response) -> Control:
        """Return a control function that gives this answer."""
        return lambda broker, request: response
