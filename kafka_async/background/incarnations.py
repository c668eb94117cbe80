"""Topics that were deleted and created again: what belongs to the former one has no effect on the one that has its name now.

Decides: whether an offset belongs to a former topic. Owns: what the log has said about that. Must never guess: an offset without a
topic id (brokers before 2.8) is taken as it is.
"""

from uuid import UUID

from ..model import TopicPartition
from ..trace import Fault, Listener
from ..values import define, field
from .cluster import ClusterView


@define(eq=False)
class Incarnations:
    """Topics by name and id (KIP-516)."""

    cluster: ClusterView = field(repr=False)
    trace: Listener = field(repr=False)
    _said: set[tuple[str, str, UUID]] = field(factory=set, init=False)

    def is_former(self, topic: str, topic_id: UUID | None) -> bool:
        """Whether this is the id of a topic that was deleted, and another one has its name by now."""
        known = self.cluster.incarnation(topic)
        return topic_id is not None and known is not None and topic_id != known

    def say(self, what: str, partition: TopicPartition, topic_id: UUID | None, now: float, *, subject: str) -> None:
        """Say that an offset of a former topic has no effect: once for each kind and topic."""
        if topic_id is None or (what, partition.topic, topic_id) in self._said:
            return
        self._said.add((what, partition.topic, topic_id))
        text = f"topic {partition.topic!r} was deleted and created again: {what} of the former topic is dropped"
        self.trace(Fault(now=now, text=text, subject=subject, partitions=frozenset((partition,))))
