"""Which topics metadata is requested for, and which part needs them."""

from typing import Protocol

from ...values import define, field
from ..positions.subscription import SubscriptionState


class Follower(Protocol):
    """Follows topics: the subscription, with or without a group. An error event reports topics that are not available."""

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """The topics that are needed; ``None`` for all of them, to match a pattern against."""


class Asker(Protocol):
    """Needs single topics; no error event reports them: it asks ``MetadataManager.refusal`` or ``problem``."""

    @property
    def topics(self) -> frozenset[str]: ...


@define(eq=False)
class WantedTopics:
    """All parts that need topics."""

    subscription: SubscriptionState = field(repr=False)
    followers: list[Follower] = field(factory=list, repr=False)
    askers: list[Asker] = field(factory=list, repr=False)

    @property
    def assigned(self) -> frozenset[str]:
        """The topics of which partitions are read, whether they exist or not."""
        return self.subscription.topics

    @property
    def followed(self) -> frozenset[str] | None:
        """The topics that the subscription and the assignment need; ``None`` for all of them."""
        found = self.subscription.topics
        for follower in self.followers:
            topics = follower.wanted_topics
            if topics is None:
                return None
            found |= topics
        return found

    @property
    def wanted(self) -> frozenset[str] | None:
        """All topics that are needed; ``None`` for all there are."""
        followed = self.followed
        return None if followed is None else followed.union(*(asker.topics for asker in self.askers))
