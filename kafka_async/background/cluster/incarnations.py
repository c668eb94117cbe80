"""Topics that were deleted and created again: what belongs to the former one has no effect on the one that has its name now.

Nothing is guessed: an offset without a topic id (brokers before 2.8) is taken as it is.
"""

from collections.abc import Collection
from uuid import UUID

from ...model import TopicPartition
from ...trace import Fault, Listener
from ...values import define, field


@define(eq=False)
class Incarnations:
    """Topics by name and id (KIP-516)."""

    _last: dict[str, UUID] = field(factory=dict, init=False)
    """Ids by name. They are kept while a wanted topic is missing, so that a new topic of that name is recognized as new."""
    _replaced: dict[str, set[UUID]] = field(factory=dict, init=False)
    """Ids that others came after, by name."""
    _doubted: dict[str, float] = field(factory=dict, init=False)
    """Since when only replaced ids have come, by name."""
    _said: set[tuple[str, str, UUID]] = field(factory=set, init=False)

    def last(self, topic: str) -> UUID | None:
        """Return the id of the last topic of that name that was known, whether it still exists or not."""
        return self._last.get(topic)

    def note(self, topic: str, topic_id: UUID) -> None:
        """The cluster has this topic."""
        if self.is_former(topic, topic_id):
            self._replaced.setdefault(topic, set()).add(self._last[topic])
        self._last[topic] = topic_id
        self._doubted.pop(topic, None)

    def is_outdated(self, topic: str, topic_id: UUID | None, now: float, patience: float) -> bool:
        """Whether a broker that names this id is behind: another one has come after it.

        Believing it makes the topic anew twice, there and back, and all that was read of it since is read once more. If only such
        ids come for ``patience`` seconds, the cluster was set up again from what it was before.
        """
        if topic_id not in self._replaced.get(topic, ()) or not self.is_former(topic, topic_id):
            return False
        return now - self._doubted.setdefault(topic, now) < patience

    def enter_another_cluster(self) -> None:
        """What is named from now on is not compared with what was replaced: the cluster is another one."""
        self._replaced.clear()

    def keep(self, topics: Collection[str]) -> None:
        """Forget all other names."""
        for memory in (self._last, self._replaced, self._doubted):
            for name in memory.keys() - topics:
                del memory[name]

    def is_former(self, topic: str, topic_id: UUID | None) -> bool:
        """Whether this is another id than that of the last topic of that name."""
        known = self._last.get(topic)
        return topic_id is not None and known is not None and topic_id != known

    def say(
        self, what: str, partition: TopicPartition, topic_id: UUID | None, now: float, trace: Listener, *, subject: str
    ) -> None:
        """Say that an offset of a former topic has no effect: once for each kind and topic."""
        if topic_id is None or (what, partition.topic, topic_id) in self._said:
            return
        self._said.add((what, partition.topic, topic_id))
        text = f"topic {partition.topic!r} was deleted and created again: {what} of the former topic is dropped"
        trace(Fault(now=now, text=text, subject=subject, partitions=frozenset((partition,))))
