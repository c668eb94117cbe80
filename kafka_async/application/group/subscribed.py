"""What the application subscribed to or assigned."""

from collections.abc import Callable

from ...events import ClusterDescription, SubscribePattern, SubscribeRegex, SubscribeTopics
from ...values import define
from ..reading.unread import Unread


@define(eq=False)
class Subscribed:
    """Topics, a pattern, or partitions that were assigned by hand; or nothing."""

    topics: frozenset[str] = frozenset()
    pattern: Callable[[str], bool] | None = None
    """Evaluated here; for an expression that the broker evaluates it matches every topic."""
    event: SubscribeTopics | SubscribePattern | SubscribeRegex | None = None
    """What the background was sent; sent again by a second start."""
    by_user: bool = False
    """Partitions were assigned with ``assign`` or ``assign_ranges``."""

    @property
    def is_subscription(self) -> bool:
        return self.event is not None

    @property
    def is_nothing(self) -> bool:
        """The consumer only asks the cluster, or commits for others."""
        return self.event is None and not self.by_user

    def clear(self) -> None:
        self.topics, self.pattern, self.event, self.by_user = frozenset(), None, None, False

    def names(self, cluster: ClusterDescription, unread: Unread) -> frozenset[str]:
        """Return the topics that are subscribed, or matched by the pattern."""
        if self.pattern is None:
            return self.topics
        assigned = frozenset(partition.topic for partition in tuple(unread.partitions))
        if not isinstance(self.event, SubscribePattern):
            return assigned
        internal = self.event.exclude_internal
        known = {name for name, topic in cluster.topics.items() if self.pattern(name) and not (internal and topic.internal)}
        return assigned | known

    def follow(self, unread: Unread) -> None:
        """Stop returning records of topics that are not subscribed any more."""
        if not self.by_user:
            unread.follow(self.pattern or self.topics.__contains__)
