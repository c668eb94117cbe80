"""Events to the application about the cluster.

What changed is worth an event, and partitions that have been missing for too long.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...config import ConsumerConfig
from ...errors import KafkaError
from ...events import BackgroundSnapshot, ClusterDescription, ClusterReachability, MetadataUpdated, PartitionSnapshot
from ...model import TopicPartition
from ...trace import Fault, Listener, Recovered
from ...values import define, field
from ..boundary import EventHandler, FetchBuffer
from ..loop.environment import Network
from ..positions.partition_outage import LASTING
from ..positions.subscription import SubscriptionState
from .cluster_view import ClusterView


@define(eq=False)
class _PartitionTrouble:
    """Partitions with the same trouble, from the first answer that says so until one says that it is over."""

    name: str
    text: str
    """What the log says of it."""
    since: dict[TopicPartition, float] = field(factory=dict, init=False)
    errors: dict[TopicPartition, KafkaError] = field(factory=dict, init=False)
    """Why, by the last answer that said so."""

    def update(
        self,
        found: Mapping[TopicPartition, KafkaError],
        unknown: Collection[TopicPartition],
        assigned: Collection[TopicPartition],
        now: float,
    ) -> frozenset[TopicPartition]:
        """Take over what an answer says; return those that it is over for. Of those that are ``unknown`` it ends nothing."""
        before = self.since
        self.since = {tp: before.get(tp, now) for tp in (*found, *(tp for tp in unknown if tp in before))}
        self.errors = {tp: found[tp] if tp in found else self.errors[tp] for tp in self.since}
        return frozenset(tp for tp in before if tp in assigned and tp not in self.since)

    def lasting(self, now: float) -> dict[TopicPartition, KafkaError]:
        """Return those that have had it for longer than an election takes, and why."""
        return {tp: error for tp, error in self.errors.items() if now - self.since[tp] >= LASTING}


@define(eq=False)
class ClusterReports:
    """Publishes ``MetadataUpdated`` and ``ClusterReachability``, and takes the background's half of the statistics."""

    config: ConsumerConfig
    handler: EventHandler[Any] = field(repr=False)
    cluster: ClusterView = field(repr=False)
    subscription: SubscriptionState = field(repr=False)
    network: Network = field(repr=False)
    trace: Listener = field(repr=False)
    buffer: FetchBuffer | None = field(default=None, repr=False)
    assigned_elsewhere: Callable[[], Collection[TopicPartition]] | None = field(default=None, repr=False)
    """Returns what is assigned where there are no positions: in share groups ``subscription`` is empty."""
    _version: int = field(default=-1, init=False)
    _published: ClusterDescription | None = field(default=None, init=False)
    _unreachable_since: float | None = field(default=None, init=False)
    _missing: _PartitionTrouble = field(init=False)
    _told: dict[TopicPartition, float] = field(factory=dict, init=False)
    """When the application was told last that a partition does not exist; at first, when that was seen first."""
    _leaderless: _PartitionTrouble = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._missing = _PartitionTrouble("assigned partitions", "assigned partitions do not exist; asking again")
        text = "assigned partitions have no leader, so nothing of them can be read; asking again"
        self._leaderless = _PartitionTrouble("partitions without a leader", text)

    def publish(self, now: float) -> None:
        """Publish what changed since the last turn."""
        if self.network.unreachable_since != self._unreachable_since:
            reachability = self.network.reachability()
            self._unreachable_since = reachability.unreachable_since
            self.handler.publish(
                ClusterReachability(unreachable_since=reachability.unreachable_since, last_answer_at=reachability.last_answer_at)
            )
        if self._version != self.cluster.version:
            self._version = self.cluster.version
            self._publish_cluster()
            self._report_missing(now)
            self._report_leaderless(now)
            self._show(now)
        elif self.handler.unavailable:  # one of them may have left
            self._show(now)

    def _publish_cluster(self) -> None:
        """Publish only changes: an application that does not read must not find an event per metadata answer."""
        described = self.cluster.describe()
        if described != self._published:
            self._published = described
            self.handler.publish(MetadataUpdated(cluster=described))

    def _report_missing(self, now: float) -> None:
        """A partition that its topic lacks may be about to appear; the caller gets an error after each request timeout."""
        assigned = self._assigned()
        found = {partition: error for partition in assigned if (error := self.cluster.missing(partition)) is not None}
        # A topic that is gone altogether says nothing about its partitions: they are still missing.
        self._update(self._missing, found, [partition for partition in assigned if not self._has_partitions(partition.topic)], now)
        self._told = {partition: self._told.get(partition, now) for partition in self._missing.since}
        confirmed = []
        for partition, error in found.items():
            if now - self._told[partition] >= self.config.request_timeout_ms / 1000:
                self._told[partition] = now
                self.handler.publish_error(error)
            elif now > self._told[partition]:  # a second answer confirms it: an assignment may be newer than the metadata
                confirmed.append(partition)
        self._trace(self._missing, confirmed, now)

    def _report_leaderless(self, now: float) -> None:
        """Nothing is asked of a partition without a leader, so nothing else would say why no records come."""
        led_by_none = [partition for partition in self._assigned() if self.cluster.leader(partition) is None]
        found = {partition: error for partition in led_by_none if (error := self.cluster.leaderless(partition)) is not None}
        # A topic that is gone altogether has no leaders either: it ends nothing.
        self._update(self._leaderless, found, led_by_none, now)
        self._trace(self._leaderless, found.keys() & self._leaderless.lasting(now).keys(), now)

    def _update(
        self, outage: _PartitionTrouble, found: Mapping[TopicPartition, KafkaError], unknown: Collection[TopicPartition], now: float
    ) -> None:
        if back := outage.update(found, unknown, self._assigned(), now):
            self.trace(Recovered(now=now, outage=outage.name, subject="fetch", partitions=back))

    def _trace(self, outage: _PartitionTrouble, partitions: Collection[TopicPartition], now: float) -> None:
        if partitions:
            error, which = outage.errors[min(partitions)], frozenset(partitions)
            self.trace(Fault(now=now, text=outage.text, error=error, subject="fetch", outage=outage.name, partitions=which))

    def _show(self, now: float) -> None:
        """Keep what the application sees of them."""
        found = self._missing.lasting(now) | self._leaderless.lasting(now)
        if self.buffer is not None:
            if found or self.buffer.unavailable:
                self.buffer.unavailable = found
        elif found or self.handler.unavailable:  # its application does not know which partitions are assigned
            assigned = self._assigned()
            self.handler.unavailable = {partition: error for partition, error in found.items() if partition in assigned}

    def _assigned(self) -> Collection[TopicPartition]:
        return self.subscription.partitions if self.assigned_elsewhere is None else self.assigned_elsewhere()

    def _has_partitions(self, topic: str) -> bool:
        known = self.cluster.topics.get(topic)
        return known is not None and bool(known.partitions)

    def snapshot(self, wake_ups: int) -> BackgroundSnapshot:
        """Return the background's half of the statistics."""
        states = self.network.connection_states()
        reachability = self.network.reachability()
        partitions = {}
        for partition in self.subscription.owned:
            entry = self.subscription.partitions[partition]
            leader = self.cluster.leader(partition)
            partitions[partition] = PartitionSnapshot(
                state=entry.state.value,
                leader=leader.node_id if leader is not None else None,
                read_replica=entry.replica.node_id if entry.replica is not None else None,
            )
        return BackgroundSnapshot(
            cluster_id=self.cluster.cluster_id,
            brokers=tuple(self.cluster.nodes.values()),
            connections=sum(state.state.may_send for state in states),
            requests_in_flight=sum(state.in_flight for state in states),
            wake_ups=wake_ups,
            partitions=partitions,
            unreachable_since=reachability.unreachable_since,
            last_answer_at=reachability.last_answer_at,
        )
