"""Members whose part a test plays: never silent, at once back after a rebalance, and quick to give up what others should have."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import define

from ....model import TopicPartition
from ....wire import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from ....wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, ConsumerProtocolTopicPartition
from .assignor import beside

COOPERATIVE: Final = "cooperative-sticky"
"""The assignor whose members keep what they have while they join again."""


@define(eq=False)
class Fellow:
    """What one such member is like."""

    id: str
    topics: frozenset[str]
    wanted: frozenset[TopicPartition] | None = None
    """What it takes for itself; ``None``: its share, as the group's assignor decides."""
    owned: frozenset[TopicPartition] = frozenset()
    """What it has in a classic group."""

    def subscription(self, protocol: str, generation: int) -> bytes:
        """Return what it tells the leader of a classic group. It has given up what it does not want, or everything."""
        kept = self.owned if protocol == COOPERATIVE else frozenset()
        self.owned = kept if self.wanted is None else kept & self.wanted
        said = ConsumerProtocolSubscription(
            topics=tuple(sorted(self.topics)), owned_partitions=_by_topic(self.owned), generation_id=generation
        )
        return encode_subscription(said)

    def assigned(self, assignment: bytes) -> bool:
        """Take what the leader gives it; return whether it has given anything up."""
        before = self.owned
        self.owned = _given(assignment)
        return not before <= self.owned


def gives_up(protocol: str | None, subscription: bytes, assignment: bytes) -> bool:
    """Return whether a member still has what it should not have, gives it up, and joins again: others get it after that."""
    if protocol != COOPERATIVE or not subscription:
        return False
    return not _partitions(decode_subscription(subscription).owned_partitions) <= _given(assignment)


def plan(
    subscriptions: Mapping[str, bytes],
    claims: Mapping[str, frozenset[TopicPartition]],
    parts_of: Callable[[Iterable[str]], frozenset[TopicPartition]],
) -> dict[str, bytes]:
    """Return the assignment that such a member makes as the leader. ``claims``: what members take for themselves."""
    said = {key: decode_subscription(data) for key, data in subscriptions.items()}
    owned = {key: _partitions(each.owned_partitions) for key, each in said.items()}
    target = beside(claims, {key: parts_of(each.topics) for key, each in said.items()}, owned)
    given = {key: parts.difference(*(owned[other] for other in owned if other != key)) for key, parts in target.items()}
    assignments = {key: ConsumerProtocolAssignment(assigned_partitions=_by_topic(parts)) for key, parts in given.items()}
    return {key: encode_assignment(each) for key, each in assignments.items()}


def _given(assignment: bytes) -> frozenset[TopicPartition]:
    return _partitions(decode_assignment(assignment).assigned_partitions) if assignment else frozenset()


def _by_topic(parts: Iterable[TopicPartition]) -> tuple[ConsumerProtocolTopicPartition, ...]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(parts):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return tuple(ConsumerProtocolTopicPartition(topic=name, partitions=tuple(found)) for name, found in topics.items())


def _partitions(topics: Iterable[ConsumerProtocolTopicPartition]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, index) for each in topics for index in each.partitions)
