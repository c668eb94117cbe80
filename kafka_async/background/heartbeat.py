"""What a heartbeat of the consumer protocol says, what an error in its answer means, and how long the application may be silent.

Decides: which fields a heartbeat carries (Java: ``HeartbeatState.SentFields``), the verdict on each error (Java:
``AbstractHeartbeatRequestManager.onErrorResponse``), when ``max_poll_interval_ms`` is over (KIP-62). Owns: the topics that a
pattern matches, and since when the application is silent. Must never move the state of a member; ``consumer_membership.py`` does,
by the verdict.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from attrs import define, field, frozen

from ..errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    KafkaError,
    MalformedResponseError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    for_code,
)
from ..events import TopicDescription
from ..model import Node
from ..wire import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ..wire.messages import TopicPartitions
from .membership import Identity, Progress, Subscription
from .request_manager import NEVER

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The member goes away but keeps its partitions for the session timeout, because it comes back (KIP-345)."""

FIRST_INTERVAL: Final = 5.0
"""Seconds between heartbeats until the first answer says: the default of ``group.consumer.heartbeat.interval.ms``."""

LONGEST_INTERVAL: Final = 60.0
"""Seconds between heartbeats that a coordinator is believed: four times ``group.consumer.max.heartbeat.interval.ms``. With garbage
in this field a member would be silent, and thrown out, for weeks.
"""

EAGER: Final = 5
"""Heartbeats in an interval while others are about to make room for us, or to ask us for some."""

WARN_AT: Final = 0.8
"""Share of ``max_poll_interval_ms`` after which a silent application is warned about."""

PartitionIds: TypeAlias = frozenset[tuple[UUID, int]]


class Coordinator(Protocol):
    """Who coordinates the group, as far as a member needs it (``FindCoordinatorManager``)."""

    @property
    def coordinator(self) -> Node | None: ...
    @property
    def latest(self) -> Node | None: ...
    @property
    def fatal(self) -> KafkaError | None: ...
    def request(self, now: float) -> None: ...
    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None: ...


class Verdict(Enum):
    """What an error in place of a heartbeat's answer means for the member."""

    REDISCOVER = "ask another coordinator, the first time without backoff"
    UNREACHABLE = "the coordinator does not answer: look for it again, after a backoff"
    RETRY = "the same again after a backoff"
    REPORT = "tell the application and go on after a backoff: access can be given"
    FENCED = "no member any more: give the partitions up and join again"
    GROUP_GONE = "there is no such group of the consumer protocol"
    UNSUPPORTED = "the broker does not offer the consumer protocol"
    FATAL = "nothing that this member can do"


_VERDICTS: Mapping[type[KafkaError], Verdict] = {
    NotCoordinatorError: Verdict.REDISCOVER,
    CoordinatorNotAvailableError: Verdict.REDISCOVER,
    FencedMemberEpochError: Verdict.FENCED,
    UnknownMemberIdError: Verdict.FENCED,
    GroupAuthorizationFailedError: Verdict.REPORT,
    TopicAuthorizationFailedError: Verdict.REPORT,
    GroupIdNotFound: Verdict.GROUP_GONE,
    UnsupportedVersionError: Verdict.UNSUPPORTED,
}


def judge(error: KafkaError) -> Verdict:
    """Return what ``error`` means.

    Java gives up on every code that it does not list; here a code that is retriable by its class (a coordinator that is loading, a
    disk that hiccups) is tried again. Java also gives up without access to the group; here as in the classic protocol it can be
    given back.
    """
    verdict = _VERDICTS.get(type(error))
    if verdict is not None:
        return verdict
    if isinstance(error, AuthenticationFailedError):
        return Verdict.REPORT
    if not error.retriable:
        return Verdict.FATAL
    return Verdict.RETRY if isinstance(error, BrokerResponseError) else Verdict.UNREACHABLE


def error_of(outcome: object, group: str | None = None) -> KafkaError | None:
    """Return the error that the outcome of a heartbeat is or carries; a denial names ``group``."""
    if isinstance(outcome, KafkaError):
        return outcome
    if isinstance(outcome, ConsumerGroupHeartbeatResponse):
        return for_code(outcome.error_code, outcome.error_message, group=group) if outcome.error_code else None
    return MalformedResponseError(f"a heartbeat was answered with {type(outcome).__name__}")


@define(eq=False)
class Interest:
    """The topics that the application subscribed to, as the coordinator is told them."""

    exclude_internal: bool
    topics: tuple[str, ...] = field(default=(), init=False)
    """Sorted names; empty where the coordinator evaluates a pattern."""
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
        """Evaluate a pattern of ours on the ``version``-th picture of the cluster; version 0 is no picture yet."""
        if self._matches is None or self._matched_version == version:
            return
        self._matched_version = version
        visible = (name for name, topic in topics.items() if not (self.exclude_internal and topic.internal))
        self.topics = tuple(sorted(filter(self._matches, visible)))

    def is_told(self, fields: "HeartbeatFields") -> bool:
        """Whether ``fields`` ask for these topics. Asked in every turn; nested tuples compare by identity first."""
        return (fields.topics, fields.regex) == (self.topics, self.regex)


@frozen(kw_only=True)
class HeartbeatFields:
    """What the coordinator knows, or should know, of a member."""

    rack_id: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    topics: tuple[str, ...]
    """Sorted names; empty with a pattern."""
    regex: str
    """RE2 pattern; empty with names."""
    owned: PartitionIds


def heartbeat(
    group_id: str, member: Identity, fields: HeartbeatFields, told: HeartbeatFields | None
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat that says what differs from ``told``, or everything. The epoch is ``member.generation``."""
    full = told is None
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=member.generation,
        instance_id=member.instance_id,
        rack_id=fields.rack_id if full else None,
        rebalance_timeout_ms=fields.rebalance_timeout_ms if full else -1,
        server_assignor=fields.assignor if full else None,
        subscribed_topic_names=fields.topics if told is None or told.topics != fields.topics else None,
        # With names "" takes an earlier pattern back; always said in full, because librdkafka's mock broker wants it.
        subscribed_topic_regex=fields.regex if told is None or told.regex != fields.regex else None,
        topic_partitions=_by_topic(fields.owned) if told is None or told.owned != fields.owned else None,
    )


def farewell(group_id: str, member_id: str, instance_id: str | None) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat that leaves the group; a static member leaves to come back."""
    epoch = LEAVE_EPOCH if instance_id is None else LEAVE_STATIC_EPOCH
    return ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id)


def _by_topic(partitions: PartitionIds) -> tuple[TopicPartitions, ...]:
    topics: dict[UUID, list[int]] = defaultdict(list)
    for topic_id, partition in partitions:
        topics[topic_id].append(partition)
    return tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(topics[topic_id]))) for topic_id in sorted(topics))


def assigned_partitions(response: ConsumerGroupHeartbeatResponse) -> PartitionIds | None:
    """Return the target assignment in an answer without an error code, ``None`` where it is unchanged.

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


def next_heartbeat(sent_at: float, interval: float, waits_since: float) -> float:
    """Return when the heartbeat after the one of ``sent_at`` is due: sooner while something is likely to have changed.

    A rebalance takes two steps in both protocols, and a member learns of the second one by its heartbeat alone. So whoever waits
    for it, from ``waits_since`` on, asks more often for as long as the others need at most: their interval.
    """
    return sent_at + (interval / EAGER if sent_at < waits_since + interval else interval)


@define(eq=False)
class PollInterval:
    """Time since the application last read, while it holds partitions."""

    limit: float
    """Seconds: ``max_poll_interval_ms``."""
    _since: float | None = field(default=None, init=False)
    _warned_since: float | None = field(default=None, init=False)

    def stop(self) -> None:
        """The member holds no partition: the interval does not run."""
        self._since = None

    def ends_at(self, progress: Progress, now: float) -> float:
        """Return when the interval is over: counted from the last read call or the first partition, whichever was later."""
        if self._since is None or progress.polling:
            self._since = now
        self._since = max(self._since, progress.polled_at)
        return self._since + self.limit

    def warning(self, now: float) -> str | None:
        """Return the warning where it is due; once for each silence."""
        if self._since is None or self._since == self._warned_since or now < self._since + WARN_AT * self.limit:
            return None
        self._warned_since = self._since
        return (
            f"the application has not called a read method for {now - self._since:.1f} s; "
            f"will leave the group in {max(self._since + self.limit - now, 0.0):.1f} s (max_poll_interval_ms)"
        )

    def wake_at(self, now: float) -> float:
        """Return when the interval is to be looked at again: at the warning, then at its end; later than ``now``."""
        if self._since is None or now >= self._since + self.limit:
            return NEVER
        warning_at = self._since + WARN_AT * self.limit
        return warning_at if warning_at > now else self._since + self.limit


def explained(error: KafkaError, group: str) -> KafkaError:
    """Return the error with what it is about: UNSUPPORTED_VERSION alone does not say which of our wishes it refuses."""
    if not isinstance(error, UnsupportedVersionError):
        return error
    wanted = "which group_protocol='consumer' and a SubscriptionPattern need"
    named = UnsupportedVersionError(f"the coordinator of group {group!r} does not offer the consumer protocol (KIP-848), {wanted}")
    named.__cause__ = error
    return named
