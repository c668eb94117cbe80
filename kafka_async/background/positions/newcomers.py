"""Which partitions have appeared while the application was subscribed (promise 15).

With ``auto_offset_reset="latest"`` a partition that is added to a topic would be read from its end, and what was written to it
before anybody found it would be lost. So a partition for which no offset is stored counts as new by either of two signs:

- This consumer knew the topic with fewer partitions, or without any, since it subscribed. What it saw first is kept for as long
  as it is subscribed to the topic. All of a topic that was deleted and made anew is new.
- The group has stored offsets of other partitions of the topic. Members store the position at which they have begun with a
  partition, records or not: by themselves if they commit automatically, else along with the application's next commit. So there
  was none who had this one. Numbers say nothing: of several partitions that appear at once, one may have an offset before the
  member that is given another one looks.

The second sign is for a consumer that subscribes. What other consumers of the group have committed tells one nothing that was
given its partitions by ``assign``, since nobody reads all of the topic then.

What cannot be known: a group that had stored nothing of the topic when it grew, such as one whose first members died within
their first commit interval. For it the partition was there from the start, and ``auto_offset_reset`` holds. The other way round, a
partition that was there counts as new, and is read from its beginning, if nobody has stored an offset of it and others of the
topic have one: its member died before its first commit, or the members were another client's, which stores no offset of a
partition without records, or were given their partitions by ``assign``. KIP-1327 has brokers say which partitions are new; none
does so far.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import KafkaError, UnknownTopicOrPartitionError
from ...events import TopicDescription
from ...model import TopicPartition
from ...values import define, field
from ..cluster.cluster_view import ClusterChanges
from .subscription import Subscription

FIRST: Final = "first position"
"""The strategy of a partition for which no offset is stored."""
FIRST_OF_NEW: Final = "first position of a new partition"
"""The same, and the group's stored offsets show that the partition is new."""


class Topics(Protocol):
    """What is looked at of the cluster's metadata (``MetadataManager``)."""

    @property
    def topics(self) -> Mapping[str, TopicDescription]: ...
    @property
    def covers_all(self) -> bool: ...
    def problem(self, topic: str) -> KafkaError | None: ...


@define(eq=False)
class Newcomers:
    """The topics of a subscription as they were seen first."""

    config: ConsumerConfig
    metadata: Topics = field(repr=False)
    _names: frozenset[str] | None = field(default=frozenset(), init=False)
    """Topics that are subscribed; ``None``: a pattern, which any topic may match."""
    _seen: dict[str, tuple[UUID | None, int]] = field(factory=dict, init=False)
    """Id and number of partitions of each topic."""
    _saw_all: bool = field(default=False, init=False)
    """A pattern: all topics were seen, so one that comes later is new as a whole."""

    def subscribe(self, subscription: Subscription | None) -> None:
        """Take over what is subscribed; ``None``: nothing. Topics that stay are known as before."""
        names = frozenset() if subscription is None else subscription.topics
        if names is not None:
            self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        self._saw_all = self._saw_all and names is None and self._names is None
        self._names = names
        self._look()

    def cluster_changed(self, changes: ClusterChanges, now: float) -> None:
        """Look at topics that were not seen before; see ``ClusterListener``."""
        for name in changes.recreated & self._seen.keys():
            self._seen[name] = (self._id(name), 0)
        self._look()

    def _id(self, name: str) -> UUID | None:
        topic = self.metadata.topics.get(name)
        return topic.topic_id if topic is not None else None

    def _look(self) -> None:
        topics = self.metadata.topics
        if self._names is None:
            if self.metadata.covers_all:
                self._look_at_all(topics)
            return
        for name in self._names - self._seen.keys():
            topic = topics.get(name)
            if topic is not None and topic.partitions:
                self._seen[name] = (topic.topic_id, len(topic.partitions))
            elif isinstance(self.metadata.problem(name), UnknownTopicOrPartitionError):
                self._seen[name] = (None, 0)  # it does not exist yet

    def _look_at_all(self, topics: Mapping[str, TopicDescription]) -> None:
        """Look at every topic there is. One that was deleted is known here alone: nobody else keeps what a pattern may match."""
        for name, topic in topics.items():
            known, topic_id = self._seen.get(name), topic.topic_id
            if known is None:
                self._seen[name] = (topic_id, 0 if self._saw_all else len(topic.partitions))
            elif known[0] is not None and topic_id not in (None, known[0]):
                self._seen[name] = (topic_id, 0)
        for name in self._seen.keys() - topics.keys():
            if self._seen[name][0] is None:  # without ids, one that comes back cannot be told from one that was made anew
                self._seen[name] = (None, 0)
        self._saw_all = True

    # --- questions -------------------------------------------------------------------------------------------------------------

    def strategy(self, partition: TopicPartition, wanted: str | None) -> str:
        """Return how a partition gets a position: what is ``wanted`` of its reset, by policy where that says no more."""
        policy = self.config.auto_offset_reset
        subscribed = self._names is None or partition.topic in self._names
        if (wanted == FIRST_OF_NEW and subscribed) or (wanted == FIRST and self._is_new(partition)):
            return self.config.auto_offset_reset_new_partitions
        return policy if wanted in (None, FIRST, FIRST_OF_NEW) else wanted

    def _is_new(self, partition: TopicPartition) -> bool:
        seen = self._seen.get(partition.topic)
        return seen is not None and partition.partition >= seen[1]


def first_strategy(partition: TopicPartition, stored: Collection[TopicPartition]) -> str:
    """Return ``FIRST``, or ``FIRST_OF_NEW`` if the partitions of the group's ``stored`` offsets show that this one is new."""
    return FIRST_OF_NEW if any(other.topic == partition.topic for other in stored) else FIRST
