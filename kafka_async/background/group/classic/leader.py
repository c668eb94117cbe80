"""The data that members of a classic group exchange through the coordinator, and the work of the group's leader.

Only topics and numbers of partitions are watched: a rack that comes and goes in the metadata while brokers restart would make the
group rebalance at every step of a rolling restart (librdkafka #4742). Sources: Java's ``ConsumerCoordinator.onLeaderElected``;
KIP-814, KIP-881.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from ....errors import BrokerResponseError, KafkaError
from ....events import TopicDescription
from ....model import Node, TopicPartition
from ....values import define, field
from ....wire import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ....wire.messages import ConsumerProtocolTopicPartition, SyncGroupRequestAssignment
from ...by_topic import by_topic
from .assignment import Assignor, GroupMember, GroupTopics, RebalanceProtocol, checked

FRESH: Final = 1.0
"""Seconds. Older metadata may lack what has been added since, and the group would rebalance again as soon as newer ones come: the
leader waits for newer ones, for as long at most.
"""


class MembershipMetadata(Protocol):
    """The part of the cluster's metadata that a membership needs (``MetadataManager``)."""

    @property
    def topics(self) -> Mapping[str, TopicDescription]: ...

    @property
    def nodes(self) -> Mapping[int, Node]: ...

    @property
    def version(self) -> int:
        """Grows with every change."""

    @property
    def covers_all(self) -> bool:
        """What is not among the topics does not exist."""

    def request_update(self, now: float) -> None: ...

    def answered_since(self, moment: float) -> bool:
        """Whether it is from an answer that came after ``moment``."""

    def problem(self, topic: str) -> KafkaError | None:
        """Return why a topic is not there."""


def _named(partitions: Iterable[TopicPartition]) -> tuple[ConsumerProtocolTopicPartition, ...]:
    topics = by_topic(sorted(partitions))
    return tuple(ConsumerProtocolTopicPartition(topic=topic, partitions=numbers) for topic, numbers in topics.items())


def _flat(topics: Iterable[ConsumerProtocolTopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)


def write_subscription(
    topics: frozenset[str], user_data: bytes | None, owned: frozenset[TopicPartition], generation: int, rack: str
) -> bytes:
    """Return the bytes that a member sends to the leader."""
    return encode_subscription(
        ConsumerProtocolSubscription(
            topics=tuple(sorted(topics)),
            user_data=user_data,
            owned_partitions=_named(owned),
            generation_id=generation,
            rack_id=rack or None,
        )
    )


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Return what the leader gave this member; no bytes at all are no partitions. Raises ``MalformedResponseError``."""
    return frozenset(_flat(decode_assignment(data).assigned_partitions)) if data else frozenset()


@define(eq=False)
class Leadership:
    """One generation as its leader sees it."""

    members: tuple[GroupMember, ...]
    topics: frozenset[str]
    """What any of the members subscribes to."""
    skip: bool
    """A static leader that came back must not divide again what the group already has (KIP-814). What that is, the group says: the
    topics may have grown while the leader was away.
    """
    began_at: float
    """When it became the leader; seconds."""
    counts: Mapping[str, int] = field(factory=dict, init=False)
    """Numbers of partitions that the assignments were made of."""
    must_learn: bool = field(init=False)
    """What the group already has is still to be found out."""

    def __attrs_post_init__(self) -> None:
        self.must_learn = self.skip

    @classmethod
    def of(cls, response: JoinGroupResponse, now: float) -> "Leadership":
        """Read what the members sent. Raises ``MalformedResponseError``."""
        members = []
        for member in response.members:
            subscription = decode_subscription(member.metadata)
            members.append(
                GroupMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    topics=frozenset(subscription.topics),
                    owned=_flat(subscription.owned_partitions),
                    generation=subscription.generation_id,
                    rack=subscription.rack_id,
                    user_data=subscription.user_data,
                )
            )
        topics: frozenset[str] = frozenset().union(*(member.topics for member in members))
        return cls(tuple(members), topics, response.skip_assignment, now)

    def is_informed(self, metadata: MembershipMetadata) -> bool:
        """Whether the metadata cover every topic: its partitions, or why it has none. A pattern has all topics asked for."""
        if metadata.covers_all and metadata.answered_since(self.began_at - FRESH):
            return True
        return all(topic in metadata.topics or isinstance(metadata.problem(topic), BrokerResponseError) for topic in self.topics)

    def look_at(self, metadata: MembershipMetadata) -> float:
        """Return when to divide the partitions if nothing newer has come; in the past if the metadata are new enough."""
        return self.began_at + (0.0 if self.skip or metadata.answered_since(self.began_at - FRESH) else FRESH)

    def plan(
        self, assignor: Assignor, protocol: RebalanceProtocol, metadata: MembershipMetadata
    ) -> tuple[SyncGroupRequestAssignment, ...]:
        """Return every member's assignment.

        Raises what a user's assignor raises, and ``IllegalStateError`` for what an assignor must not answer.
        """
        self.counts = self._counts(metadata)
        if self.skip:
            return ()
        given = checked(assignor.assign(self._topics(metadata), self.members), self.members, protocol)
        return tuple(
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_named(mine)))
            )
            for member_id, mine in given.items()
        )

    def learn(self, assignments: Iterable[bytes]) -> None:
        """Take what the members have as what was divided. Raises ``MalformedResponseError``, and would again."""
        self.must_learn = False
        had = by_topic(sorted(frozenset[TopicPartition]().union(*map(read_assignment, assignments))))
        self.counts = {topic: len(numbers) for topic, numbers in had.items()}

    def changes(self, metadata: MembershipMetadata) -> tuple[str, ...]:
        """Return the topics that have changed since the assignments were made."""
        counts = self._counts(metadata)
        return tuple(sorted(topic for topic in self.topics if counts.get(topic) != self.counts.get(topic)))

    def _counts(self, metadata: MembershipMetadata) -> dict[str, int]:
        return {topic: len(metadata.topics[topic].partitions) for topic in self.topics if topic in metadata.topics}

    def _topics(self, metadata: MembershipMetadata) -> GroupTopics:
        racks = {node_id: node.rack for node_id, node in metadata.nodes.items() if node.rack}
        return {
            topic: tuple(
                frozenset(racks[replica] for replica in partition.replicas if replica in racks)
                for partition in metadata.topics[topic].partitions
            )
            for topic in self.counts
        }
