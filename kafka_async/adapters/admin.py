"""Questions about groups: which there are, who is in one, what it has committed.

Decides: which broker is asked, and what its answer says. Owns nothing. Must never change anything on the cluster: offsets are
committed by a consumer.

Sources: Java's ``KafkaAdminClient``, ``DescribeConsumerGroupsHandler`` (the consumer protocol first, then the classic one),
``ListConsumerGroupOffsetsHandler``, ``CoordinatorStrategy``; KIP-518, 709, 848.
"""

from functools import partial
from typing import Final

from attrs import frozen

from ..errors import GroupIdNotFound, MalformedResponseError, UnsupportedVersionError, for_code
from ..model import Node, OffsetAndMetadata, TopicPartition
from ..wire import FindCoordinatorRequest, OffsetFetchRequest, decode_assignment
from ..wire.messages import OffsetFetchRequestGroup
from ..wire.messages.admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupMember,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from .requests import Client

_BY_NAME: Final = 9
"""Highest version of OffsetFetch that names topics; later ones answer with ids alone, also of topics that are gone."""


@frozen(kw_only=True)
class GroupListing:
    """A group as its coordinator lists it. An empty string: the broker is too old to say."""

    group_id: str
    kind: str
    """``classic``, ``consumer`` (KIP-848), ``share``, ``streams``; in lower case whatever the broker's spelling."""
    protocol: str
    """What its members are: ``consumer``, ``connect``; empty for a group that only has committed offsets."""
    state: str


@frozen(kw_only=True)
class Member:
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
    members: tuple[Member, ...]


@frozen
class Admin:
    """Asks brokers about groups."""

    client: Client

    # --- questions -------------------------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        """Ask every broker for the groups it coordinates. Return them by name. Raises when one broker does not answer."""
        found: list[GroupListing] = []
        for node_id in self.client.nodes:
            found += await self.client.persist(partial(self._list_groups_of, node_id))
        return sorted(found, key=lambda group: group.group_id)

    async def describe(self, group_id: str) -> Group:
        """Ask the coordinator who is in a group. Raises ``GroupIdNotFound`` for one that does not exist."""
        return await self.client.persist(lambda: self._describe(group_id))

    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Ask the coordinator for all offsets that a group has committed; none for a group that does not exist."""
        return await self.client.persist(lambda: self._committed(group_id))

    # --- one attempt at each ---------------------------------------------------------------------------------------------------

    async def _list_groups_of(self, node_id: int) -> list[GroupListing]:
        answer = await self.client.ask(ListGroupsRequest(), node_id)
        _check(answer.error_code)
        return [
            GroupListing(
                group_id=group.group_id, kind=group.group_type.lower(), protocol=group.protocol_type, state=group.group_state
            )
            for group in answer.groups
        ]

    async def _coordinator(self, group_id: str) -> Node:
        answer = await self.client.ask(FindCoordinatorRequest(coordinator_keys=(group_id,)))
        for coordinator in answer.coordinators:
            _check(coordinator.error_code, coordinator.error_message)
            node = Node(coordinator.node_id, coordinator.host, coordinator.port)
            self.client.learn(node)
            return node
        raise MalformedResponseError(f"a FindCoordinator response leaves the group {group_id!r} out")

    async def _describe(self, group_id: str) -> Group:
        coordinator = await self._coordinator(group_id)
        try:
            return await self._describe_consumer(group_id, coordinator)
        except (GroupIdNotFound, UnsupportedVersionError):  # a classic group, or a broker that has no others
            return await self._describe_classic(group_id, coordinator)

    async def _describe_consumer(self, group_id: str, coordinator: Node) -> Group:
        answer = await self.client.ask(ConsumerGroupDescribeRequest(group_ids=(group_id,)), coordinator.id)
        for group in answer.groups:
            _check(group.error_code, group.error_message)
            return Group(
                group_id=group_id,
                kind="consumer",
                state=group.group_state,
                assignor=group.assignor_name,
                epoch=group.group_epoch,
                coordinator=coordinator,
                members=tuple(_member(member) for member in group.members),
            )
        raise MalformedResponseError(f"a ConsumerGroupDescribe response leaves the group {group_id!r} out")

    async def _describe_classic(self, group_id: str, coordinator: Node) -> Group:
        answer = await self.client.ask(DescribeGroupsRequest(groups=(group_id,)), coordinator.id)
        for group in answer.groups:
            if group.group_state == "Dead" or group.error_code == GroupIdNotFound.errno:  # before version 6 the state says it
                raise GroupIdNotFound(f"group {group_id!r} does not exist, or is no group of consumers")
            _check(group.error_code, group.error_message)
            return Group(
                group_id=group_id,
                kind="classic",
                state=group.group_state,
                assignor=group.protocol_data,
                epoch=None,
                coordinator=coordinator,
                members=tuple(_classic_member(member, group.protocol_type) for member in group.members),
            )
        raise MalformedResponseError(f"a DescribeGroups response leaves the group {group_id!r} out")

    async def _committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        coordinator = await self._coordinator(group_id)
        message = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id),))
        answer = await self.client.ask(message, coordinator.id, highest_version=_BY_NAME)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for group in answer.groups:
            _check(group.error_code)
            for topic in group.topics:
                for part in topic.partitions:
                    _check(part.error_code)
                    if part.committed_offset >= 0:
                        epoch = part.committed_leader_epoch if part.committed_leader_epoch >= 0 else None
                        found[TopicPartition(topic.name, part.partition_index)] = OffsetAndMetadata(
                            part.committed_offset, part.metadata or "", epoch
                        )
        return found


def _check(code: int, message: str | None = None) -> None:
    if code:
        raise for_code(code, message)


def _member(member: ConsumerGroupMember) -> Member:
    assigned = member.assignment.topic_partitions
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=member.member_epoch,
        partitions=tuple(sorted(TopicPartition(topic.topic_name, part) for topic in assigned for part in topic.partitions)),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> Member:
    partitions: list[TopicPartition] = []
    if protocol_type == "consumer" and member.member_assignment:  # others (Kafka Connect) give their members something else
        assigned = decode_assignment(member.member_assignment).assigned_partitions
        partitions = [TopicPartition(topic.topic, part) for topic in assigned for part in topic.partitions]
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=None,
        partitions=tuple(sorted(partitions)),
    )
