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
    _said: set[tuple[str, str, UUID]] = field(factory=set, init=False)

    def last(self, topic: str) -> UUID | None:
        """Return the id of the last topic of that name that was known, whether it still exists or not."""
        return self._last.get(topic)

    def note(self, topic: str, topic_id: UUID) -> None:
        """The cluster has this topic."""
        self._last[topic] = topic_id

    def keep(self, topics: Collection[str]) -> None:
        """Forget all other names."""
        self._last = {name: topic_id for name, topic_id in self._last.items() if name in topics}

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
