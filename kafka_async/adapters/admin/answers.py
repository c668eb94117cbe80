"""Groups, their members and their offsets, and how they are read from a broker's response.

Pure: who is asked, and when again, is decided in ``admin.py`` for one group, in ``batches.py`` for many.

Sources: Java's ``DescribeConsumerGroupsHandler``, ``ListConsumerGroupOffsetsHandler``; KIP-518, 848, 932, 1226.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from attrs import field, frozen

from ...errors import GroupIdNotFound, KafkaError, for_code
from ...model import Node, OffsetAndMetadata, TopicPartition
from ...wire import decode_assignment
from ...wire.messages import OffsetFetchResponseGroup
from ...wire.messages.admin import (
    ConsumerGroupMember,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    DescribedShareGroup,
    ListGroupsResponse,
    ShareGroupMember,
    ShareGroupOffsets,
)

K = TypeVar("K")
V = TypeVar("V")

BY_NAME: Final = 9
"""Highest version of OffsetFetch that names topics; later ones answer with ids alone, also of topics that are gone."""


@frozen(kw_only=True)
class GroupListing:
    """A group as its coordinator lists it. An empty string: the broker is too old to send it."""

    group_id: str
    kind: str
    """``classic``, ``consumer`` (KIP-848), ``share``, ``streams``; in lower case whatever the broker's spelling."""
    protocol: str
    """What its members are: ``consumer``, ``connect``; empty for a group that only has committed offsets."""
    state: str
    coordinator: int | None = field(default=None, eq=False)
    """The broker that listed it, which is the one to ask about it."""

    @property
    def reads(self) -> bool:
        """Whether it reads topics. The workers of Kafka Connect, and others, have groups that never commit an offset."""
        return self.kind not in ("", "classic") or self.protocol in ("", "consumer")


@frozen(kw_only=True)
class DescribedMember:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    """``group_instance_id`` of a static member (KIP-345)."""
    client_id: str
    host: str
    epoch: int | None
    """Member epoch; ``None`` in the classic protocol."""
    partitions: tuple[TopicPartition, ...]


@frozen(kw_only=True)
class Group:
    """A group and its members."""

    group_id: str
    kind: str
    state: str
    assignor: str
    epoch: int | None
    """Group epoch; ``None`` in the classic protocol."""
    coordinator: Node
    members: tuple[DescribedMember, ...]
    protocol: str = "consumer"
    """What its members are, as in ``GroupListing``."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of all members."""
        return frozenset(partition for member in self.members for partition in member.partitions)


@frozen
class ShareOffset:
    """How far a share group is in a partition."""

    start: int | None
    """The first offset that is not acknowledged; ``None``: nothing was read yet."""
    lag: int | None
    """Records that are not acknowledged (KIP-1226); ``None``: not known."""


def check(code: int, message: str | None = None) -> None:
    """Raise the error of a code that is not 0."""
    if code:
        raise for_code(code, message)


def check_parts(parts: Mapping[K, tuple[int, str | None]], names: Callable[[Iterable[K]], str], done: str) -> None:
    """Raise the error of the first part of a request that was refused.

    Brokers carry such a request out in part, so the text names all that was refused, and what was ``done``. Each part comes with
    its code, and with the broker's words if there are any.
    """
    refused: dict[tuple[int, str | None], list[K]] = {}
    for part, outcome in parts.items():
        if outcome[0]:
            refused.setdefault(outcome, []).append(part)
    if not refused:
        return
    error, *others = (for_code(code, message) for code, message in refused)
    texts = [f"{names(each)}: {why.args[0]}".rstrip(".") for each, why in zip(refused.values(), (error, *others), strict=True)]
    if carried_out := [part for part, (code, _) in parts.items() if not code]:
        texts.append(f"{done}: {names(carried_out)}")
    error.args = ("; ".join(texts),)
    raise error


def certain(outcomes: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """Return what was answered. Raises the first error among it."""
    found: dict[K, V] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise outcome
        found[key] = outcome
    return found


def listings(answer: ListGroupsResponse, node_id: int) -> list[GroupListing]:
    """Return the groups that a broker lists. Raises its error."""
    check(answer.error_code)
    return [
        GroupListing(
            group_id=group.group_id,
            kind=group.group_type.lower(),
            protocol=group.protocol_type,
            state=group.group_state,
            coordinator=node_id,
        )
        for group in answer.groups
    ]


def consumer_group(group: DescribedConsumerGroup, coordinator: Node) -> Group:
    """Return a group of the consumer protocol. Raises the broker's error, ``GroupIdNotFound`` for one of another kind."""
    check(group.error_code, group.error_message)
    return Group(
        group_id=group.group_id,
        kind="consumer",
        state=group.group_state,
        assignor=group.assignor_name,
        epoch=group.group_epoch,
        coordinator=coordinator,
        members=tuple(_member(member, member.instance_id) for member in group.members),
    )


def classic_group(group: DescribedGroup, coordinator: Node) -> Group:
    """Return a classic group. Raises the broker's error, ``GroupIdNotFound`` for one that does not exist."""
    if group.group_state == "Dead" or group.error_code == GroupIdNotFound.errno:  # before version 6 only the state shows it
        raise GroupIdNotFound(f"group {group.group_id!r} does not exist")
    check(group.error_code, group.error_message)
    return Group(
        group_id=group.group_id,
        kind="classic",
        state=group.group_state,
        assignor=group.protocol_data,
        epoch=None,
        coordinator=coordinator,
        members=tuple(_classic_member(member, group.protocol_type) for member in group.members),
        protocol=group.protocol_type,
    )


def share_group(group: DescribedShareGroup, coordinator: Node) -> Group:
    """Return a share group. Raises the broker's error."""
    check(group.error_code, group.error_message)
    return Group(
        group_id=group.group_id,
        kind="share",
        state=group.group_state,
        assignor=group.assignor_name,
        epoch=group.group_epoch,
        coordinator=coordinator,
        members=tuple(_member(member) for member in group.members),
        protocol="share",
    )


def committed_offsets(group: OffsetFetchResponseGroup) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
    """Return what a group has committed; for a partition that cannot be read, its error: that is not a missing offset.

    Raises the error of the group.
    """
    check(group.error_code)
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
    for topic in group.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                found[partition] = for_code(part.error_code)
            elif part.committed_offset >= 0:
                epoch = part.committed_leader_epoch if part.committed_leader_epoch >= 0 else None
                found[partition] = OffsetAndMetadata(part.committed_offset, part.metadata or "", epoch)
    return found


def share_group_offsets(group: ShareGroupOffsets) -> dict[TopicPartition, ShareOffset | KafkaError]:
    """Return how far a share group is; for a partition that the broker does not tell about, its error. Raises that of the group."""
    check(group.error_code, group.error_message)
    found: dict[TopicPartition, ShareOffset | KafkaError] = {}
    for topic in group.topics:
        for part in topic.partitions:
            start, lag = part.start_offset, part.lag
            found[TopicPartition(topic.topic_name, part.partition_index)] = (
                for_code(part.error_code, part.error_message)
                if part.error_code
                else ShareOffset(start if start >= 0 else None, lag if lag >= 0 else None)
            )
    return found


def _member(member: ConsumerGroupMember | ShareGroupMember, instance_id: str | None = None) -> DescribedMember:
    assigned = member.assignment.topic_partitions
    return DescribedMember(
        member_id=member.member_id,
        instance_id=instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=member.member_epoch,
        partitions=tuple(sorted(TopicPartition(topic.topic_name, part) for topic in assigned for part in topic.partitions)),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> DescribedMember:
    partitions: list[TopicPartition] = []
    if protocol_type == "consumer" and member.member_assignment:  # others (Kafka Connect) give their members something else
        assigned = decode_assignment(member.member_assignment).assigned_partitions
        partitions = [TopicPartition(topic.topic, part) for topic in assigned for part in topic.partitions]
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=None,
        partitions=tuple(sorted(partitions)),
    )
