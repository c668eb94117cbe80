"""Following topics without a group: every partition of the subscribed topics belongs to this consumer.

As aiokafka for ``group_id=None``. The application takes the assignment over inside its own read call, exactly as it does for a
group's.
"""

from ...config import ConsumerConfig
from ...events import AssignPartitions, Call
from ...model import TopicPartition
from ...values import define, field
from ..boundary import EventHandler
from ..cluster.cluster_view import ClusterView
from ..loop.request_manager import IDLE, Poll
from .subscription import Subscription

_NOTHING = Subscription(topics=frozenset())


@define(eq=False)
class TopicFollower:
    """Turns a subscription into a proposed assignment. It is polled like a manager, but sends nothing."""

    config: ConsumerConfig
    cluster: ClusterView = field(repr=False)
    handler: EventHandler = field(repr=False)
    _subscription: Subscription = field(default=_NOTHING, init=False)
    _proposed: frozenset[TopicPartition] | None = field(default=None, init=False)
    _version: int = field(default=-1, init=False)

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics whose metadata is needed; ``None``: all, to match a pattern against."""
        return self._subscription.topics

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Follow these topics from now on."""
        self._subscription = subscription
        self._proposed = None
        self._version = -1

    def unsubscribe(self, call: Call[None] | None, now: float) -> None:
        """Follow nothing any more."""
        self._subscription = _NOTHING
        if call is not None:
            call.resolve(None)

    def poll(self, now: float) -> Poll:
        """Propose a new assignment if metadata or subscription changed it."""
        if self._subscription is not _NOTHING and self._version != self.cluster.version and self.cluster.nodes:
            self._version = self.cluster.version
            self._propose()
        return IDLE

    def poll_on_close(self, now: float) -> Poll:
        """There are no final requests."""
        return Poll()

    def _propose(self) -> None:
        target = frozenset(
            TopicPartition(name, part.partition)
            for name, topic in self.cluster.topics.items()
            if self._follows(name, internal=topic.internal)
            for part in topic.partitions
        )
        target |= self._away()
        if not target and not self._proposed:
            return  # nothing yet: the topics may be about to appear
        if target != self._proposed:
            self._proposed = target
            self.handler.publish(AssignPartitions(number=0, partitions=target, subscription=self.handler.subscription))

    def _away(self) -> frozenset[TopicPartition]:
        """Return partitions of subscribed topics that the cluster does not know at the moment.

        A broker that lags behind may not know topics that exist. Giving them up would lose the position: without a group nothing
        else stores it. So they are kept; the caller gets an error if a topic does not exist.
        """
        topics = self._subscription.topics or frozenset()
        known = {name for name, topic in self.cluster.topics.items() if topic.partitions}
        return frozenset(tp for tp in self._proposed or () if tp.topic not in known and tp.topic in topics)

    def _follows(self, name: str, *, internal: bool) -> bool:
        matches = self._subscription.matches
        if matches is None:
            return name in (self._subscription.topics or ())
        return matches(name) and not (internal and self.config.exclude_internal_topics)
