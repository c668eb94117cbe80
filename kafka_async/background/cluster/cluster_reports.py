"""Events to the application about the cluster.

What changed is worth an event, and partitions that have been missing for too long.
"""

from typing import Any, Final

from ...config import ConsumerConfig
from ...errors import KafkaError
from ...events import BackgroundSnapshot, ClusterDescription, ClusterReachability, MetadataUpdated, PartitionSnapshot
from ...model import TopicPartition
from ...trace import Fault, Listener, Recovered
from ...values import define, field
from ..boundary import EventHandler
from ..loop.environment import Network
from ..positions.subscription import SubscriptionState
from .cluster_view import ClusterView

_MISSING: Final = "assigned partitions"
"""Outage of partitions that their topics do not have."""
_LEADERLESS: Final = "partitions without a leader"
"""Outage of partitions of which nothing can be read, since no broker leads them."""
_ELECTION: Final = 3.0
"""Seconds that an election may take until it is worth a line."""


@define(eq=False)
class ClusterReports:
    """Publishes ``MetadataUpdated`` and ``ClusterReachability``, and takes the background's half of the statistics."""

    config: ConsumerConfig
    handler: EventHandler[Any] = field(repr=False)
    cluster: ClusterView = field(repr=False)
    subscription: SubscriptionState = field(repr=False)
    network: Network = field(repr=False)
    trace: Listener = field(repr=False)
    _version: int = field(default=-1, init=False)
    _published: ClusterDescription | None = field(default=None, init=False)
    _unreachable_since: float | None = field(default=None, init=False)
    _missing_since: dict[TopicPartition, float] = field(factory=dict, init=False)
    _leaderless_since: dict[TopicPartition, float] = field(factory=dict, init=False)

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

    def _publish_cluster(self) -> None:
        """Publish only changes: an application that does not read must not find an event per metadata answer."""
        described = self.cluster.describe()
        if described != self._published:
            self._published = described
            self.handler.publish(MetadataUpdated(cluster=described))

    def _report_missing(self, now: float) -> None:
        """A partition that its topic lacks may be about to appear; the caller gets an error after each request timeout."""
        before = self._missing_since
        found = {partition: self.cluster.missing(partition) for partition in self.subscription.partitions}
        missing = {partition: error for partition, error in found.items() if error is not None}
        # A topic that is gone altogether says nothing about its partitions: they are still missing.
        lasting = {partition for partition in before.keys() & found.keys() if not self._has_partitions(partition.topic)}
        self._missing_since = {partition: before.get(partition, now) for partition in missing.keys() | lasting}
        if back := frozenset(before.keys() & found.keys() - self._missing_since.keys()):
            self.trace(Recovered(now=now, outage=_MISSING, subject="fetch", partitions=back))
        confirmed: dict[TopicPartition, KafkaError] = {}
        for partition, error in missing.items():
            since = self._missing_since[partition]
            if now - since >= self.config.request_timeout_ms / 1000:
                self._missing_since[partition] = now
                self.handler.publish_error(error)
            elif now > since:  # a second answer confirms it: an assignment may be newer than the metadata
                confirmed[partition] = error
        if confirmed:
            text, first = "assigned partitions do not exist; asking again", confirmed[min(confirmed)]
            which = frozenset(confirmed)
            self.trace(Fault(now=now, text=text, error=first, subject="fetch", outage=_MISSING, partitions=which))

    def _report_leaderless(self, now: float) -> None:
        """Nothing is asked of a partition without a leader, so nothing else would say why no records come."""
        before, assigned = self._leaderless_since, self.subscription.partitions
        led_by_none = [partition for partition in assigned if self.cluster.leader(partition) is None]
        found = {partition: error for partition in led_by_none if (error := self.cluster.leaderless(partition)) is not None}
        # A topic that is gone altogether has no leaders either: it ends nothing.
        since = {partition: before.get(partition, now) for partition in led_by_none if partition in found or partition in before}
        self._leaderless_since = since
        if back := frozenset(before.keys() & assigned.keys() - since.keys()):
            self.trace(Recovered(now=now, outage=_LEADERLESS, subject="fetch", partitions=back))
        if which := frozenset(partition for partition in found if now - since[partition] >= _ELECTION):
            text = "assigned partitions have no leader, so nothing of them can be read; asking again"
            self.trace(Fault(now=now, text=text, error=found[min(which)], subject="fetch", outage=_LEADERLESS, partitions=which))

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
