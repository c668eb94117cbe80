"""What the managers of the group's offsets know about the group.

It points at the coordinator's manager, the metadata and the membership.

Sources: Java's ``CommitRequestManager`` (``handleCoordinatorDisconnect``, ``markCoordinatorUnknown``), KIP-345, KIP-848.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from ...errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from ...model import TopicPartition
from ...network import Channel
from ...values import define, field
from ..cluster.metadata import MetadataManager
from .find_coordinator import FindCoordinatorManager
from .membership import CommitFailure, Identity, Membership

MEMBER_EPOCH: Final = 9
"""Lowest version of OffsetCommit that carries a member epoch (KIP-848); below it the number would be taken for a generation."""

REFUSED: Final[Mapping[type[KafkaError], CommitFailure]] = {
    UnknownMemberIdError: CommitFailure.UNKNOWN_MEMBER,
    GroupIdNotFound: CommitFailure.UNKNOWN_MEMBER,  # a group that has vanished knows none of its members
    FencedMemberEpochError: CommitFailure.ILLEGAL_GENERATION,
    IllegalGenerationError: CommitFailure.ILLEGAL_GENERATION,
    FencedInstanceIdError: CommitFailure.FENCED_INSTANCE,
}
"""Errors that mean that we are no longer the member that sent the request."""

_COORDINATOR_LOST: Final = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    RequestTimedOutError,
    KafkaConnectionError,
    KafkaTimeoutError,
)


@define(eq=False)
class GroupAccess:
    """The group as the managers of its offsets see it."""

    coordinator: FindCoordinatorManager = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    owned: Callable[[], frozenset[TopicPartition]] = field(repr=False)
    """The partitions of ``author``: what the application has taken over, or had when it ended that membership."""
    membership: Membership | None = None
    """Our membership in the group; ``None`` while the application assigns partitions itself.

    ``GroupManagers`` sets it when the application subscribes, and to ``None`` when it has unsubscribed.
    """
    parting: Membership | None = None
    """The membership that the application has ended, until it has left the group or is subscribed anew.

    ``GroupManagers`` sets it, too. Commits that were made before may still be under way as this member's.
    """

    @property
    def identity(self) -> Identity:
        """Our identity at this moment, for what is asked from now on."""
        return self.membership.identity if self.membership is not None and self.parting is None else Identity()

    @property
    def author(self) -> Membership | None:
        """The membership as which a member's commits are stored."""
        return self.parting or self.membership

    @property
    def stored_as(self) -> Identity:
        """The identity of ``author`` at this moment."""
        return self.author.identity if self.author is not None else Identity()

    @property
    def failure(self) -> KafkaError | None:
        """Why our membership has ended for good, until the application subscribes again."""
        return self.membership.failure if self.membership is not None and self.parting is None else None

    @property
    def channel(self) -> Channel:
        """The connection to the coordinator that is free for commits and offset fetches."""
        return self.author.channel if self.author is not None else Channel.GROUP

    @property
    def is_leaving(self) -> bool:
        """The group still has us as the member that we were, so it takes no offsets of a lone consumer yet."""
        return self.parting is not None

    def awaits_epoch(self, stale: Identity | None) -> bool:
        """Whether we were refused as ``stale`` and the heartbeat that may bring the new epoch is under way or due."""
        return stale is not None and self.author is not None and self.stored_as == stale and self.author.awaits_epoch

    def has_moved_on(self, stale: Identity | None) -> bool:
        """Whether we were refused as ``stale`` and have another identity by now."""
        return stale is not None and self.stored_as != stale

    def topics_by_id(self, topics: Iterable[str]) -> dict[UUID, str]:
        """Return those of the topics whose id is known. A request uses ids only if all are known; the wire package sees to that."""
        ids = ((self.metadata.topic_id(topic), topic) for topic in topics)
        return {topic_id: topic for topic_id, topic in ids if topic_id is not None}

    def report_error(self, error: KafkaError, made_as: Identity, node_id: int, now: float) -> None:
        """Report what an error of ``node_id``, or of the connection to it, shows about the coordinator, metadata and membership."""
        if isinstance(error, _COORDINATOR_LOST):
            self.coordinator.lost(node_id, error, now)
        elif error.invalid_metadata:
            self.metadata.request_update(now)
        failure = CommitFailure.REBALANCING if isinstance(error, RebalanceInProgressError) else REFUSED.get(type(error))
        if failure is not None and self.author is not None and made_as.generation > 0:
            self.author.refused(failure, made_as, now)
