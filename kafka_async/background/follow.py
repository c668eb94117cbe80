"""Following topics without a group: every partition of the subscribed topics belongs to this consumer.

Decides: what the assignment should be, from the subscription and the cluster's metadata (aiokafka's behavior for
``group_id=None``). Owns: the subscription and the assignment that was last proposed. Must never apply it: the application
takes it over inside its own read call, exactly as it does for a group's.
"""

from collections.abc import Callable

from attrs import define, field

from ..model import TopicPartition
from .metadata import MetadataManager


@define(eq=False)
class TopicFollower:
    """Turns a subscription into a proposed assignment."""

    metadata: MetadataManager = field(repr=False)
    propose: Callable[[frozenset[TopicPartition]], None] = field(repr=False)
    """Has the application take the assignment over."""
    topics: frozenset[str] = frozenset()
    matches: Callable[[str], bool] | None = None
    exclude_internal: bool = True
    active: bool = False
    _proposed: frozenset[TopicPartition] | None = field(default=None, init=False)
    _version: int = field(default=-1, init=False)

    @property
    def wanted(self) -> frozenset[str] | None:
        """Topics whose metadata is needed; ``None``: all, to match a pattern against."""
        return None if self.active and self.matches is not None else self.topics

    def subscribe(self, topics: frozenset[str]) -> None:
        self._start(topics, None)

    def subscribe_pattern(self, matches: Callable[[str], bool], *, exclude_internal: bool) -> None:
        self.exclude_internal = exclude_internal
        self._start(frozenset(), matches)

    def unsubscribe(self) -> None:
        self.topics = frozenset()
        self.matches = None
        self.active = False

    def _start(self, topics: frozenset[str], matches: Callable[[str], bool] | None) -> None:
        self.topics = topics
        self.matches = matches
        self.active = True
        self._proposed = None
        self._version = -1

    def check(self) -> None:
        """Propose a new assignment where metadata or subscription changed it."""
        if not self.active or self._version == self.metadata.version or not self.metadata.nodes:
            return
        self._version = self.metadata.version
        target = frozenset(
            TopicPartition(name, part.partition)
            for name, topic in self.metadata.topics.items()
            if self._follows(name, internal=topic.internal)
            for part in topic.partitions
        )
        target |= self._away()
        if not target and not self._proposed:
            return  # nothing yet: the topics may be on their way
        if target != self._proposed:
            self._proposed = target
            self.propose(target)

    def _away(self) -> frozenset[TopicPartition]:
        """Return partitions of subscribed topics that the cluster does not know at the moment.

        A broker that lags behind says so of topics that exist. Giving them up would lose the position: without a group nothing else
        holds it. They are kept; that a topic does not exist reaches the caller as an error.
        """
        known = {name for name, topic in self.metadata.topics.items() if topic.partitions}
        return frozenset(tp for tp in self._proposed or () if tp.topic not in known and tp.topic in self.topics)

    def _follows(self, name: str, *, internal: bool) -> bool:
        if self.matches is None:
            return name in self.topics
        return self.matches(name) and not (internal and self.exclude_internal)
