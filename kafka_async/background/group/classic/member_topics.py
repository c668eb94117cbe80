"""The topics that a member in the classic protocol stands for, and whether they are still those of its generation.

Whether topics have changed is compared, not remembered.
"""

from ....values import define, field
from ...positions.subscription import Subscription
from .leader import MembershipMetadata

_NOT_COMPARED = -1


@define(eq=False)
class MemberTopics:
    """What the application subscribed to, as names."""

    metadata: MembershipMetadata = field(repr=False)
    exclude_internal: bool
    subscription: Subscription | None = field(default=None, init=False)
    """``None``: nothing."""
    joined: frozenset[str] = field(default=frozenset(), init=False)
    """What the last JoinGroup carried."""
    _needs_newer: int = field(default=-1, init=False)
    """A pattern needs metadata newer than this version."""
    _compared: int = field(default=_NOT_COMPARED, init=False)
    """Version of the metadata that the generation was last compared with."""

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self.subscription = subscription
        self._needs_newer = self.metadata.version
        self.compare_anew()
        self.metadata.request_update(now)

    @property
    def is_known(self) -> bool:
        """Whether the names are known: a pattern must first be evaluated on metadata of all topics, requested since."""
        if self.subscription is None or self.subscription.matches is None:
            return True
        return self.metadata.covers_all and self.metadata.version > self._needs_newer

    @property
    def names(self) -> frozenset[str]:
        """The names that the subscription stands for at the moment."""
        if self.subscription is None:
            return frozenset()
        if self.subscription.matches is None:
            return self.subscription.topics or frozenset()
        return frozenset(
            name
            for name, topic in self.metadata.topics.items()
            if self.subscription.matches(name) and not (topic.internal and self.exclude_internal)
        )

    @property
    def has_changed(self) -> bool:
        """Whether the subscription stands for other names than those that we joined with."""
        return self.names != self.joined

    def compare_anew(self) -> None:
        """Compare the next generation, or subscription, whether the metadata has changed or not."""
        self._compared = _NOT_COMPARED

    def is_to_compare(self) -> bool:
        """Return once for each version of the metadata whether anything may have changed."""
        if self._compared == self.metadata.version or not self.is_known:
            return False
        self._compared = self.metadata.version
        return True
