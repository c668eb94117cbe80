"""The conversation with one broker, and the partitions that are read there.

A broker has one request of ours at a time, since the session's epoch goes up with each. So an acknowledgement cannot overtake a
long poll. That is why a poll is long only while no record is locked, and why brokers answer at once while some are unread. A
session lives as long as its connection. When that breaks, the broker releases all that it had locked for us: the records that we
hold from it are lost, and acknowledgements without an answer are sent once more.
"""

from math import inf
from uuid import UUID

from ...errors import KafkaError
from ...model import TopicPartition
from ...values import define
from ..fetch.fetch_broker import FetchBroker
from .acknowledgements import AcknowledgementPortion, Acknowledgements
from .session import ShareSession


@define(eq=False)
class SentRequest:
    """The request in flight to one broker."""

    at: float
    fetches: bool
    portions: list[AcknowledgementPortion]
    names: dict[tuple[UUID | None, int], TopicPartition]
    closes: bool = False
    rests_until: float = 0.0
    """When the answer to a fetch is due, however long the broker holds it back."""


@define(eq=False, kw_only=True)
class ShareBroker(FetchBroker[ShareSession]):
    """As for other consumers, with the acknowledgements on their way."""

    acknowledgements: Acknowledgements
    in_flight: SentRequest | None = None
    failure: KafkaError | None = None
    asked_at: float = -inf
    """When it was last asked for records."""
    dry_until: float = -inf
    """It had nothing more to lock; until then it is asked again only if the application waits for records."""
    renewed: bool = False
    """The last request renewed locks."""
    empty: bool = False
    """Its session was opened only to send old acknowledgements: nothing is acquired before they are settled."""


@define(eq=False)
class AssignedPartition:
    """A partition that is to be read."""

    topic_id: UUID
    node_id: int | None = None
    """The broker that led it last."""
    retry_at: float = 0.0
    failures: int = 0

    def is_read_at(self, topic_id: UUID, node_id: int) -> bool:
        """Whether this is the topic, and its partition is led by this broker as far as we know."""
        return self.topic_id == topic_id and self.node_id in (None, node_id)
