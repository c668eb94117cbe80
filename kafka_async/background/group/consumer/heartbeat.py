"""The contents of a heartbeat of the consumer protocol and of its answer (KIP-848).

Java: ``HeartbeatState.SentFields``.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from ....errors import (
    KafkaError,
    MalformedResponseError,
    UnsupportedVersionError,
    for_code,
)
from ....events import TopicDescription
from ....values import define, field, frozen
from ....wire import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ....wire.messages import TopicPartitions
from ...by_topic import by_topic
from ...positions.subscription import Subscription
from ..membership import Identity

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The member goes away but keeps its partitions for the session timeout, because it comes back (KIP-345)."""

FIRST_INTERVAL: Final = 5.0
"""Seconds between heartbeats until the first answer names an interval: the default of ``group.consumer.heartbeat.interval.ms``."""

LONGEST_INTERVAL: Final = 60.0
"""Most seconds between heartbeats that are accepted from a coordinator: four times ``group.consumer.max.heartbeat.interval.ms``.
With garbage in this field a member would be silent for weeks, and removed from the group.
"""

PartitionIds: TypeAlias = frozenset[tuple[UUID, int]]


def error_of(outcome: object, group: str | None = None) -> KafkaError | None:
    """Return the error that the outcome of a heartbeat is or carries; a denial names ``group``."""
    if isinstance(outcome, KafkaError):
        return outcome
    if isinstance(outcome, ConsumerGroupHeartbeatResponse):
        return for_code(outcome.error_code, outcome.error_message, group=group) if outcome.error_code else None
    return MalformedResponseError(f"a heartbeat was answered with {type(outcome).__name__}")


@define(eq=False)
class SubscribedTopics:
    """The topics that the application subscribed to, as they are sent to the coordinator."""

    exclude_internal: bool
    topics: tuple[str, ...] = field(default=(), init=False)
    """Sorted names; empty if the coordinator evaluates a pattern."""
    regex: str = field(default="", init=False)
    wanted_topics: frozenset[str] | None = field(default=frozenset(), init=False)
    """Topics that metadata is needed of. All (``None``) for patterns of both kinds: any topic may have to be named."""
    _matches: Callable[[str], bool] | None = field(default=None, init=False)
    _matched_version: int = field(default=0, init=False)

    def subscribe(self, subscription: Subscription | None) -> None:
        """Take over what the application asked for; ``None``: nothing."""
        subscription = subscription or Subscription(topics=frozenset())
        self.topics = tuple(sorted(subscription.topics or ()))
        self.regex = subscription.regex or ""
        self.wanted_topics = subscription.topics
        self._matches = subscription.matches
        self._matched_version = 0

    @property
    def known(self) -> bool:
        """A pattern of ours says nothing before it is evaluated."""
        return self._matches is None or self._matched_version > 0

    def follow(self, version: int, topics: Mapping[str, TopicDescription]) -> None:
        """Evaluate a pattern of ours on the ``version``-th picture of the cluster, which has all topics."""
        if self._matches is None or self._matched_version == version:
            return
        self._matched_version = version
        visible = (name for name, topic in topics.items() if not (self.exclude_internal and topic.internal))
        self.topics = tuple(sorted(filter(self._matches, visible)))

    def is_reported(self, fields: "HeartbeatFields") -> bool:
        """Whether ``fields`` ask for these topics. Asked in every turn; nested tuples compare by identity first."""
        return (fields.topics, fields.regex) == (self.topics, self.regex)


@frozen(kw_only=True)
class HeartbeatFields:
    """What the coordinator knows, or should know, about a member."""

    rack_id: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    topics: tuple[str, ...]
    """Sorted names; empty with a pattern."""
    regex: str
    """RE2 pattern; empty with names."""
    owned: PartitionIds


def heartbeat(
    group_id: str, member: Identity, fields: HeartbeatFields, reported: HeartbeatFields | None
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat with what differs from ``reported``, or with everything. The epoch is ``member.generation``."""
    full = reported is None
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=member.generation,
        instance_id=member.instance_id,
        rack_id=fields.rack_id if full else None,
        rebalance_timeout_ms=fields.rebalance_timeout_ms if full else -1,
        server_assignor=fields.assignor if full else None,
        subscribed_topic_names=fields.topics if reported is None or reported.topics != fields.topics else None,
        # With names "" takes an earlier pattern back; always said in full, because librdkafka's mock broker wants it.
        subscribed_topic_regex=fields.regex if reported is None or reported.regex != fields.regex else None,
        topic_partitions=_owned(fields.owned) if reported is None or reported.owned != fields.owned else None,
    )


def leave_heartbeat(group_id: str, member_id: str, instance_id: str | None) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat that leaves the group; a static member leaves to come back."""
    epoch = LEAVE_EPOCH if instance_id is None else LEAVE_STATIC_EPOCH
    return ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id)


def _owned(partitions: PartitionIds) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic(sorted(partitions)).items())


def assigned_partitions(response: ConsumerGroupHeartbeatResponse) -> PartitionIds | None:
    """Return the target assignment in an answer without an error code, ``None`` if it is unchanged.

    Raises ``MalformedResponseError`` for what no coordinator says to a member: an epoch that is not positive (KAFKA-19335), a topic
    without an id, a negative partition.
    """
    if response.member_epoch <= 0:
        raise MalformedResponseError(f"a heartbeat was answered with member epoch {response.member_epoch}; expected 1 or more")
    if response.assignment is None:
        return None
    partitions: set[tuple[UUID, int]] = set()
    for topic in response.assignment.topic_partitions:
        if topic.topic_id is None or any(partition < 0 for partition in topic.partitions):
            raise MalformedResponseError(f"an assignment names partitions {topic.partitions} of topic id {topic.topic_id}")
        partitions.update((topic.topic_id, partition) for partition in topic.partitions)
    return frozenset(partitions)


def explained(error: KafkaError, group: str) -> KafkaError:
    """Return the error with its context: UNSUPPORTED_VERSION alone does not say which feature is missing."""
    if not isinstance(error, UnsupportedVersionError):
        return error
    wanted = "which group_protocol='consumer' and a SubscriptionPattern need"
    named = UnsupportedVersionError(f"the coordinator of group {group!r} does not offer the consumer protocol (KIP-848), {wanted}")
    named.__cause__ = error
    return named
