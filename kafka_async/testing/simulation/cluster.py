"""The cluster: brokers, topics, leaders, and everything that a test can do to them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from attrs import define, field

from ...errors import (
    FencedLeaderEpochError,
    NotLeaderForPartitionError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from ...model import TopicPartition
from ...wire import Api, Response
from .broker import FakeBroker
from .config_admin import BrokerSettings
from .groups import Groups
from .groups.offsets import CommittedPositions
from .handlers import HANDLERS, Handler
from .kafka_settings import TopicSettings, topic_settings
from .link import FakeNetwork, Server
from .log import PartitionLog
from .producing import Producers
from .sharing import Shares
from .traffic import Control, LoggedRequest, SimulatedTraffic
from .versions import KAFKA_4_4
from .waking import TIMESTAMP, Changes, SimulatedClock


@define(eq=False, repr=False)
class FakePartition:
    """One partition: its log and who leads it."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    epoch: int = 0
    log: PartitionLog = field(factory=PartitionLog)
    error: int = 0
    """What Fetch answers for it instead of records."""


@define(eq=False, repr=False)
class FakeTopic:
    """One topic."""

    name: str
    id: UUID
    partitions: list[FakePartition]
    internal: bool = False
    settings: TopicSettings = field(factory=TopicSettings)
    error: int = 0
    """What Metadata, Fetch, ListOffsets and OffsetCommit answer for it instead of serving it, such as 29 (no access).

    OffsetFetch answers 29 as well, and answers about all topics leave out those that have it.
    """


@define(eq=False, kw_only=True, repr=False)
class FakeCluster:
    """Brokers 0, 1, ... at hosts ``b0``, ``b1``, ... port 9092."""

    size: int = 1
    max_versions: Mapping[Api, int] = KAFKA_4_4
    latency: float = 0.001
    """Seconds from a request to its answer, and for a connection to be made."""
    chunk: int | None = None
    """Most bytes that one read of the client returns."""
    racks: Mapping[int, str] = field(factory=dict)
    broker_settings: BrokerSettings = field(factory=BrokerSettings)
    changes: Changes = field(factory=lambda: Changes(SimulatedClock(TIMESTAMP)))
    brokers: dict[int, FakeBroker] = field(init=False)
    topics: dict[str, FakeTopic] = field(factory=dict, init=False)
    traffic: SimulatedTraffic = field(factory=SimulatedTraffic)
    network: FakeNetwork = field(init=False)
    handlers: dict[Api, Handler] = field(factory=lambda: dict(HANDLERS), init=False)
    groups: Groups = field(init=False)
    producers: Producers = field(init=False)
    _names: dict[int, str] = field(factory=dict, init=False)
    """The names of all topics that ever existed, by their ids."""

    def __attrs_post_init__(self) -> None:
        self.brokers = {node_id: FakeBroker(node_id, self) for node_id in range(self.size)}
        self.network = FakeNetwork(self)
        self.groups = Groups(self)
        self.producers = Producers(self)

    @property
    def clock(self) -> SimulatedClock:
        """The time and the date of the brokers."""
        return self.changes.clock

    @property
    def shares(self) -> Shares:
        """Share groups."""
        return self.groups.shares

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers.values())

    @property
    def group_settings(self) -> dict[str, str]:
        """Settings of groups, such as ``consumer.session.timeout.ms``."""
        return self.groups.settings

    @property
    def committed(self) -> CommittedPositions:
        """Committed offsets, by group and partition."""
        return self.groups.offsets.positions

    @property
    def metadata(self) -> dict[tuple[str, TopicPartition], str]:
        """The metadata committed along with the offsets."""
        return self.groups.offsets.metadata

    @property
    def requests(self) -> deque[LoggedRequest]:
        """The requests as they arrived; the oldest may be forgotten."""
        return self.traffic.requests

    # --- topics ----------------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int | None = None,
        internal: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> list[TopicPartition]:
        """Create a topic whose brokers lead in turn; return its partitions. Raises ``ValueError`` for a bad setting."""
        settings = TopicSettings(topic_settings(config or {}), self.broker_settings.defaults)
        nodes = sorted(self.brokers)
        count = len(nodes) if replicas is None else replicas
        made = []
        for index in range(partitions):
            chosen = tuple(nodes[(index + i) % len(nodes)] for i in range(count))
            made.append(FakePartition(index, chosen[0], chosen))
        number = len(self._names) + 1
        self._names[number] = name
        self.topics[name] = FakeTopic(name, UUID(int=number), made, internal, settings)
        self.changed()
        return [TopicPartition(name, index) for index in range(partitions)]

    def add_partitions(self, name: str, count: int, replicas: Sequence[tuple[int, ...]] | None = None) -> None:
        """Grow a topic to ``count`` partitions. ``replicas``: the brokers of each new one, the leader first."""
        nodes = sorted(self.brokers)
        known = self.topics[name].partitions
        before = len(known)
        for index in range(before, count):
            chosen = tuple(nodes) if replicas is None else replicas[index - before]
            known.append(FakePartition(index, nodes[index % len(nodes)] if replicas is None else chosen[0], chosen))
        self.changed()

    def may_replicate(self, nodes: Sequence[int]) -> bool:
        """Return whether these brokers can have the copies of a partition."""
        return 0 < len(set(nodes)) == len(nodes) and set(nodes) <= self.brokers.keys()

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and what groups have committed for it."""
        del self.topics[name]
        self.groups.offsets.forget_topic(name)
        self.changed()

    def recreate(self, name: str) -> None:
        """Delete the topic and create it again: empty, with a new id."""
        before = self.topics[name]
        self.delete_topic(name)
        copies = len(before.partitions[0].replicas)
        self.create_topic(name, len(before.partitions), replicas=copies, config=before.settings.given)

    def partition(self, tp: TopicPartition) -> FakePartition:
        return self.topics[tp.topic].partitions[tp.partition]

    def find(self, topic: str, index: int) -> FakePartition | None:
        known = self.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return None
        if known.settings.given or known.settings.defaults:
            known.settings.retain(known.partitions[index].log, self.clock.date())
        return known.partitions[index]

    def has_enough_replicas(self, tp: TopicPartition) -> bool:
        """Return whether enough replicas are up for a producer with ``acks=all``."""
        up = sum(map(self.is_up, self.partition(tp).replicas))
        return up >= self.topics[tp.topic].settings.number("min.insync.replicas")

    def refusal(self, node_id: int, topic: str, index: int, current_epoch: int, *, follower: bool = False) -> int:
        """Return the error code with which a broker refuses to serve a partition, 0 if it serves it."""
        partition = self.find(topic, index)
        if partition is None:
            return UnknownTopicOrPartitionError.errno
        known = self.topics[topic]
        if known.error:
            return known.error
        if node_id != partition.leader and not (follower and node_id in partition.replicas):
            return NotLeaderForPartitionError.errno
        if 0 <= current_epoch < partition.epoch:
            return FencedLeaderEpochError.errno
        return UnknownLeaderEpochError.errno if current_epoch > partition.epoch else 0

    def name_of(self, topic_id: UUID | None) -> str | None:
        if topic_id is None:
            return None
        name = self._names.get(topic_id.int, "")
        topic = self.topics.get(name)
        return name if topic is not None and topic.id.int == topic_id.int else None

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return a partition's log. Call ``changed`` after changing it by hand."""
        return self.partition(tp).log

    def produce(self, tp: TopicPartition, *values: bytes | str | None, **options: Any) -> int:
        """Append one batch and return its base offset."""
        partition = self.partition(tp)
        data = [value.encode() if isinstance(value, str) else value for value in values]
        offset = partition.log.append(data, epoch=partition.epoch, now=self.clock.date(), **options)
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
        self.brokers[node_id].reach = how
        self.brokers[node_id].forget_sessions()
        self.disconnect(node_id)
        self.changed()

    def start(self, node_id: int) -> None:
        """Bring a broker back. It has forgotten its fetch sessions."""
        self.brokers[node_id].reach = "accept"
        self.changed()

    def disconnect(self, node_id: int) -> None:
        """Break the connections to a broker; new ones are accepted."""
        for transport in self.network.live(node_id):
            transport.end()

    def freeze(self, node_id: int) -> None:
        """Leave the connections to a broker half-open, and let new ones hang."""
        self.brokers[node_id].reach = "hang"
        for transport in self.network.live(node_id):
            transport.hang()

    def elect(self) -> None:
        """For each partition whose leader is down, elect a replica that is up, if there is one."""
        for topic in self.topics.values():
            for part in topic.partitions:
                up = [node for node in part.replicas if self.is_up(node)]
                if up and part.leader not in up:
                    self.move_leader(TopicPartition(topic.name, part.index), up[0])

    def is_up(self, node_id: int) -> bool:
        return self.reach(node_id) == "accept"

    def reach(self, node_id: int) -> str:
        return self.brokers[node_id].reach

    def server_at(self, host: str, port: int) -> Server | None:
        return next((broker for broker in self.brokers.values() if broker.is_at(host, port)), None)

    # --- control ---------------------------------------------------------------------------------------------------------------

    def control(self, api: Api, fn: Control, *, keep: bool = False, node: int | None = None) -> Callable[[], None]:
        """Let ``fn`` see the next request of ``api`` (``keep``: every one) and decide. Return a function that ends this.

        A call that lets a request pass counts as well, as in franz-go's kfake.
        """
        return self.traffic.control(api, fn, keep=keep, node=node)

    # --- time ------------------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Wake the long polls: something that they may be waiting for has happened."""
        self.changes.wake()

    async def wait_for_change(self, deadline: float) -> None:
        """Return after the next change, or at ``deadline``, a time of ``clock``."""
        await self.changes.wait(deadline)

    def delay(self) -> float:
        """Return how long the next answer takes."""
        random = self.network.random
        return self.latency if random is None else random.uniform(0, 2 * self.latency)

    # --- requests --------------------------------------------------------------------------------------------------------------

    def asked(self, *apis: Api, since: float = 0.0) -> list[LoggedRequest]:
        """Return the requests of ``apis`` (none: all but ApiVersions) that arrived at ``since`` or later."""
        return self.traffic.asked(*apis, since=since)

    def answering(self, response: Response) -> Control:
        """Return a control function that gives this answer."""
        return lambda broker, request: response
