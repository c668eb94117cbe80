"""A share session with one broker: which partitions the broker reads for us, sent as increments (KIP-932).

The epoch goes up with every ShareFetch and every ShareAcknowledge, so a broker has one request of ours at a time. A session lives
as long as the connection that opened it. After any doubt a new one is opened with epoch 0, which may not carry acknowledgements.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from ...model import TopicPartition
from ...values import define, field
from ...wire.messages import AcknowledgementBatch, ShareFetchPartition, ShareFetchTopic, ShareForgottenTopic
from ..by_topic import by_topic

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

Batches = tuple[AcknowledgementBatch, ...]
Listed = tuple[tuple[ShareFetchTopic, ...], tuple[ShareForgottenTopic, ...]]


@define(eq=False)
class ShareSession:
    """The session with one broker. Partitions go by topic id, so a topic that was deleted and created again is another one."""

    wanted: dict[TopicPartition, UUID] = field(factory=dict)
    """What is to be read there from now on."""
    epoch: int = field(default=INITIAL_EPOCH, init=False)
    _registered: dict[TopicPartition, UUID] = field(factory=dict, init=False)
    _sending: dict[TopicPartition, UUID] = field(factory=dict, init=False)

    @property
    def is_open(self) -> bool:
        """The broker knows the session, as far as we know."""
        return self.epoch != INITIAL_EPOCH

    def includes(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether the broker has this partition of this topic in the session."""
        return self._registered.get(partition) == topic_id

    def want(self, partition: TopicPartition, topic_id: UUID | None) -> None:
        """Read a partition of this topic from the next request on; ``None``: not at all."""
        if topic_id is None:
            self.wanted.pop(partition, None)
        else:
            self.wanted[partition] = topic_id

    def build(self, batches: Mapping[TopicPartition, Batches]) -> Listed:
        """Return the topics and the forgotten topics of the next ShareFetch, with acknowledgements of wanted partitions."""
        self._sending = dict(self.wanted)
        listed: dict[tuple[UUID, int], Batches] = {
            (topic_id, partition.partition): batches.get(partition, ())
            for partition, topic_id in self.wanted.items()
            if partition in batches or self._registered.get(partition) != topic_id
        }
        gone = ((topic_id, tp.partition) for tp, topic_id in self._registered.items() if self.wanted.get(tp) != topic_id)
        topics = tuple(
            ShareFetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    ShareFetchPartition(partition_index=index, acknowledgement_batches=listed[topic_id, index]) for index in indexes
                ),
            )
            for topic_id, indexes in by_topic(sorted(listed)).items()
        )
        forgotten = tuple(
            ShareForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(sorted(gone)).items()
        )
        return topics, forgotten

    @property
    def known(self) -> dict[TopicPartition, UUID]:
        """Partitions that an answer may name: those the broker remembers and those it is being sent."""
        return self._registered | self.wanted

    def fetched(self) -> None:
        """A ShareFetch was answered without an error for the whole request."""
        self._registered = self._sending
        self.acknowledged()

    def acknowledged(self) -> None:
        """A ShareAcknowledge was answered without an error for the whole request."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """What the broker remembers is in doubt: open a new session."""
        self.epoch = INITIAL_EPOCH
        self._registered = {}
