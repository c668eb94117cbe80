"""Following topics without a group: every partition of the subscribed topics belongs to this consumer.

As aiokafka for ``group_id=None``. The application takes the assignment over inside its own read call, exactly as it does for a
group's.
"""

from ...config import ConsumerConfig
from ...events import AssignPartitions, Call
from ...model import TopicPartition
from ...values import define, field, frozen
from ..boundary import EventHandler
from ..cluster.cluster_view import ClusterView
from ..loop.request_manager import NEVER, Poll
from .subscription import Subscription

_NOTHING = Subscription(topics=frozenset())


@frozen
class _Missing:
    """A topic that the cluster does not know any more."""

    since: float
    version: int
    """Of the first picture without it."""


@define(eq=False)
class TopicFollower:
    """Turns a subscription into a proposed assignment. It is polled like a manager, but sends nothing."""

    config: ConsumerConfig
    cluster: ClusterView = field(repr=False)
    handler: EventHandler = field(repr=False)
    _subscription: Subscription = field(default=_NOTHING, init=False)
    _proposed: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """Also for an earlier subscription: what stays subscribed keeps its positions."""
    _is_new: bool = field(default=False, init=False)
    """Nothing was proposed for this subscription."""
    _version: int = field(default=-1, init=False)
    _missing: dict[str, _Missing] = field(factory=dict, init=False)
    """Topics of ``_proposed`` that are away."""
    _look_at: float = field(default=NEVER, init=False)
    """When one of them is away for too long, seconds."""

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics whose metadata is needed; ``None``: all, to match a pattern against."""
        return self._subscription.topics

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Follow these topics from now on."""
        self._subscription = subscription
        self._is_new = True
        self._version, self._look_at = -1, NEVER  # it is looked at as soon as a broker is known

    def unsubscribe(self, call: Call[None] | None, now: float) -> None:
        """Follow nothing any more."""
        self._subscription = _NOTHING
        self._proposed, self._missing, self._look_at = frozenset(), {}, NEVER
        if call is not None:
            call.resolve(None)

    def poll(self, now: float) -> Poll:
        """Propose a new assignment if metadata or subscription changed it, or a topic of a pattern stays away."""
        is_due = self._version != self.cluster.version or self._look_at <= now
        if self._subscription is not _NOTHING and is_due and self.cluster.nodes:
            self._version = self.cluster.version
            self._propose(now)
        # While no broker is known nothing can be told, however long it is due: the answer of one brings us back.
        return Poll(wake_at=self._look_at if self.cluster.nodes else NEVER)

    def poll_on_close(self, now: float) -> Poll:
        """There are no final requests."""
        return Poll()

    def _propose(self, now: float) -> None:
        target = frozenset(
            TopicPartition(name, part.partition)
            for name, topic in self.cluster.topics.items()
            if self._follows(name, internal=topic.internal)
            for part in topic.partitions
        )
        target |= self._away(now)
        if not target and self._is_new:
            return  # nothing yet: the topics may be about to appear
        if target != self._proposed or self._is_new:
            self._proposed, self._is_new = target, False
            self.handler.publish(AssignPartitions(number=0, partitions=target, subscription=self.handler.subscription))

    def _away(self, now: float) -> frozenset[TopicPartition]:
        """Return partitions of subscribed topics that the cluster does not know at the moment.

        A broker that lags behind may not know topics that exist, and one whose rules are being replaced may not show them. Giving
        them up would lose the position: without a group nothing else stores it. So they are kept. The caller gets an error if a
        topic that it named does not exist; one that matches a pattern is given up once it was away for a request timeout.
        """
        known = {name for name, topic in self.cluster.topics.items() if topic.partitions}
        away = {partition.topic for partition in self._proposed} - known
        version = self.cluster.version
        self._missing = {name: self._missing.get(name) or _Missing(now, version) for name in away}
        kept = frozenset(name for name, missing in self._missing.items() if self._is_kept(name, missing, now))
        ends = (missing.since + self._patience for missing in self._missing.values())
        self._look_at = min((end for end in ends if end > now), default=NEVER) if self._subscription.topics is None else NEVER
        return frozenset(partition for partition in self._proposed if partition.topic in kept)

    @property
    def _patience(self) -> float:
        return self.config.request_timeout_ms / 1000

    def _is_kept(self, name: str, missing: _Missing, now: float) -> bool:
        topics, matches = self._subscription.topics, self._subscription.matches
        if topics is not None or matches is None:
            return name in (topics or ())
        is_gone = now >= missing.since + self._patience and self.cluster.version != missing.version  # not by one answer alone
        return matches(name) and not is_gone

    def _follows(self, name: str, *, internal: bool) -> bool:
        matches = self._subscription.matches
        if matches is None:
            return name in (self._subscription.topics or ())
        return matches(name) and not (internal and self.config.exclude_internal_topics)
