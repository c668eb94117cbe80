"""The known state of the cluster: brokers, topics, leaders.

Leader epochs (KIP-320, KIP-951) and topic ids (KIP-516) say which response to believe. Changes are reported here, and others act on
them. Java: ``Metadata`` and ``MetadataSnapshot``.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from ...errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from ...events import ClusterDescription, PartitionDescription, TopicDescription
from ...model import Node, TopicPartition
from ...values import define, field, frozen
from ...wire.messages import MetadataResponse, MetadataResponseTopic
from .incarnations import Incarnations


@frozen
class Leader:
    """Where a partition is led, and in which epoch (``None``: the broker does not say)."""

    node_id: int
    epoch: int | None


@frozen
class ClusterChanges:
    """What changed in the cluster."""

    leaders: frozenset[TopicPartition] = frozenset()
    """Partitions whose leader or leader epoch changed."""
    recreated: frozenset[str] = frozenset()
    """Topics whose id changed."""
    outdated: frozenset[str] = frozenset()
    """Topics of which the answer is not believed: the broker names an id that was replaced."""
    identified: frozenset[str] = frozenset()
    """Topics that have an id and had none, or the reverse: brokers are being upgraded, or downgraded."""


@define(eq=False)
class ClusterView:
    """The cluster as every manager sees it."""

    patience: float
    """Seconds for which an older leader epoch than the known one, and the id of a former topic, are not believed."""
    nodes: Mapping[int, Node] = field(factory=dict)
    """Brokers by id; empty until the first answer and after the decision to bootstrap again."""
    topics: dict[str, TopicDescription] = field(factory=dict)
    leaders: dict[TopicPartition, Leader] = field(factory=dict)
    names: dict[UUID, str] = field(factory=dict)
    cluster_id: str | None = None
    former_nodes: Mapping[int, Node] = field(factory=dict)
    """The brokers as last known, while none is known: one of them may come back before a bootstrap server does."""
    version: int = 0
    """Grows with every change."""
    covers_all: bool = False
    """The last answer was about all topics: what is not among them does not exist. A pattern can be evaluated."""
    incarnations: Incarnations = field(factory=Incarnations, init=False)
    _doubted: dict[TopicPartition, float] = field(factory=dict, init=False)
    """Since when only epochs older than the known one have come."""
    _seen_epochs: dict[TopicPartition, tuple[int, float]] = field(factory=dict, init=False)
    """Epochs newer than that of the known leader, and when they were first seen."""

    # --- questions -------------------------------------------------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition if it is known and its address is."""
        leader = self.leaders.get(partition)
        return leader if leader is not None and leader.node_id in self.nodes else None

    def is_behind(self, partition: TopicPartition, now: float) -> bool:
        """Whether a newer epoch than the leader's was seen, and an election may still be the reason.

        If the cluster does not name a leader of that epoch within the time that elections take, the epoch is of another cluster,
        or of one that was set up again.
        """
        leader, seen = self.leaders.get(partition), self._seen_epochs.get(partition)
        if leader is None or leader.epoch is None or seen is None:
            return False
        epoch, since = seen
        return leader.epoch < epoch and now - since < self.patience

    def topic_id(self, topic: str) -> UUID | None:
        known = self.topics.get(topic)
        topic_id: UUID | None = known.topic_id if known is not None else None
        return topic_id

    def has_known(self, topic: str) -> bool:
        """Whether the topic exists, or did."""
        return topic in self.topics or self.incarnations.last(topic) is not None

    def missing(self, partition: TopicPartition) -> KafkaError | None:
        """Return the error for a partition that its existing topic does not have; ``None`` if it has it."""
        known = self.topics.get(partition.topic)
        if known is None or not known.partitions or partition.partition < len(known.partitions):
            return None
        text = f"topic {partition.topic!r} has no partition {partition.partition}; it has {len(known.partitions)}, from 0 on"
        return UnknownTopicOrPartitionError(text)

    def leaderless(self, partition: TopicPartition) -> KafkaError | None:
        """Return the error for a partition that is there and has no leader; ``None`` if it has one, or nothing is known of it."""
        known = self.topics.get(partition.topic)
        found = known.partitions[partition.partition : partition.partition + 1] if known is not None else ()
        if not found or found[0].leader is not None:
            return None
        brokers = ", ".join(map(str, found[0].replicas))
        text = f"{partition} has no leader; its replicas are on brokers {brokers}"
        return LeaderNotAvailableError(text)

    def describe(self, names: Collection[str] | None = None) -> ClusterDescription:
        """Return the cluster as a value; if names are given, with these topics only."""
        topics = self.topics if names is None else {name: self.topics[name] for name in names if name in self.topics}
        return ClusterDescription(cluster_id=self.cluster_id, brokers=tuple(self.nodes.values()), topics=dict(topics))

    # --- what brokers say ------------------------------------------------------------------------------------------------------

    def update(
        self,
        response: MetadataResponse,
        asked: frozenset[str] | None,
        wanted: frozenset[str] | None,
        now: float,
        *,
        assigned: frozenset[str] = frozenset(),
    ) -> ClusterChanges:
        """Take an answer over. ``asked``: the topics it is about, ``wanted``: the topics that are needed; ``None``: all topics.

        ``assigned``: topics that are read. If one comes back, it is compared with the one that was read.
        """
        self.nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}
        if self.cluster_id not in (None, response.cluster_id):
            self.incarnations.enter_another_cluster()
        self.cluster_id = response.cluster_id
        self.covers_all = asked is None
        changed: set[TopicPartition] = set()
        recreated: set[str] = set()
        outdated: set[str] = set()
        identified: set[str] = set()
        seen: set[str] = set()
        for topic in response.topics:
            if topic.name is None or (asked is not None and topic.name not in asked):
                continue  # an id must not get the name of a topic that was not requested: assignments by id would use it
            seen.add(topic.name)
            if topic.error_code == UnknownTopicOrPartitionError.errno:
                changed |= self._drop_topic(topic.name)
            elif self.incarnations.is_outdated(topic.name, topic.topic_id, now, self.patience):
                outdated.add(topic.name)
            elif _has_content(topic, known=topic.name in self.topics):
                if self.incarnations.is_former(topic.name, topic.topic_id):
                    self._drop_topic(topic.name)
                    recreated.add(topic.name)
                before = self.topics.get(topic.name)
                if before is not None and (before.topic_id is None) is not (topic.topic_id is None):
                    identified.add(topic.name)
                changed |= self._update_topic(topic.name, topic, now)
        gone = set(self.topics) - seen if asked is None else set(self.topics) - (wanted or frozenset(self.topics)) - seen
        for name in gone:
            changed |= self._drop_topic(name)
        kept = (wanted or frozenset()) | self.topics.keys() | assigned
        self.incarnations.keep(kept)
        self.version += 1
        return ClusterChanges(frozenset(changed), frozenset(recreated), frozenset(outdated), frozenset(identified))

    def _update_topic(self, name: str, topic: MetadataResponseTopic, now: float) -> set[TopicPartition]:
        changed: set[TopicPartition] = set()
        partitions = []
        for part in sorted(topic.partitions, key=lambda p: p.partition_index):
            partition = TopicPartition(name, part.partition_index)
            leader = Leader(part.leader_id, part.leader_epoch if part.leader_epoch >= 0 else None)
            if self._believe(partition, leader, now):
                changed.add(partition)
            known = self.leaders.get(partition, leader)
            partitions.append(
                PartitionDescription(
                    partition=part.partition_index,
                    leader=known.node_id if known.node_id >= 0 else None,
                    leader_epoch=known.epoch,
                    replicas=part.replica_nodes,
                    isr=part.isr_nodes,
                )
            )
        topic_id = topic.topic_id
        self.topics[name] = TopicDescription(name=name, topic_id=topic_id, internal=topic.is_internal, partitions=tuple(partitions))
        if topic_id is not None:
            self.names[topic_id] = name
            self.incarnations.note(name, topic_id)
        return changed

    def _believe(self, partition: TopicPartition, leader: Leader, now: float) -> bool:
        """Take a leader over unless its epoch is older than the known one: brokers learn of elections at different times.

        If only older epochs were named for as long as an election may take, then the known one was wrong: an error of a broker, or
        a cluster that was set up again. Holding on to it would mean waiting for ever for an epoch that no broker knows.
        """
        known = self.leaders.get(partition)
        older = known is not None and known.epoch is not None and leader.epoch is not None and leader.epoch < known.epoch
        if older and now - self._doubted.setdefault(partition, now) < self.patience:
            return False
        self._doubted.pop(partition, None)
        self.leaders[partition] = leader
        return known != leader

    def _drop_topic(self, name: str) -> set[TopicPartition]:
        known = self.topics.pop(name, None)
        if known is None:
            return set()
        if known.topic_id is not None:
            self.names.pop(known.topic_id, None)
        dropped = {TopicPartition(name, part.partition) for part in known.partitions}
        for partition in dropped:
            for memory in (self.leaders, self._doubted, self._seen_epochs):
                memory.pop(partition, None)
        return dropped

    def update_leader(self, partition: TopicPartition, leader: Leader, endpoints: Mapping[int, Node]) -> bool:
        """Take over a leader that an error response named (KIP-951). Return whether it is newer than what was known."""
        known = self.leaders.get(partition)
        if known is None or leader.epoch is None or (known.epoch is not None and leader.epoch <= known.epoch):
            return False
        if leader.node_id not in self.nodes and leader.node_id not in endpoints:
            return False
        self.nodes = {**self.nodes, **{node_id: endpoints[node_id] for node_id in endpoints if node_id == leader.node_id}}
        self.leaders[partition] = leader
        self.version += 1
        return True

    def see_epoch(self, partition: TopicPartition, epoch: int | None, now: float) -> bool:
        """Remember a leader epoch that a committed offset, a seek or a broker names (Java's ``updateLastSeenEpochIfNewer``).

        Return whether it is newer than the known one, and was not seen for as long as an election may take. The known leader is
        still asked, but what it says against a position may be out of date: see ``is_behind``.
        """
        leader = self.leaders.get(partition)
        if epoch is None or leader is None or leader.epoch is None:
            return False
        known = self._seen_epochs.get(partition)
        if epoch > leader.epoch and (known is None or epoch > known[0]):
            self._seen_epochs[partition] = (epoch, now)
        return self.is_behind(partition, now)

    def forget_brokers(self, *, misled: bool) -> None:
        """No broker can be reached at its known address: bootstrap again. ``misled``: what was known may be another cluster's."""
        self.former_nodes = {} if misled else self.nodes
        self.nodes = {}
        self.version += 1


def _has_content(topic: MetadataResponseTopic, *, known: bool) -> bool:
    """Whether the answer contains more than an error."""
    if topic.error_code == LeaderNotAvailableError.errno:  # there is no leader, which does not mean that there are no partitions
        return bool(topic.partitions) or not known
    return not topic.error_code
