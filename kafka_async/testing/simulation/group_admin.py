"""Requests of tools about groups: list, describe and delete them, and delete offsets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...model import TopicPartition
from ...wire import decode_subscription
from ...wire.messages.admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    NamedAssignment,
    NamedTopicPartitions,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from .groups.assignor import Part, by_topic

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster

UNKNOWN_TOPIC, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, SUBSCRIBED = 3, 68, 69, 86


def list_groups(broker: "FakeBroker", request: ListGroupsRequest, version: int, error: int) -> ListGroupsResponse:
    """The groups that this broker coordinates."""
    found = [
        group
        for group in _groups(broker)
        if (not request.states_filter or group.group_state.lower() in {state.lower() for state in request.states_filter})
        and (not request.types_filter or group.group_type.lower() in {kind.lower() for kind in request.types_filter})
    ]
    return ListGroupsResponse(error_code=error, groups=() if error else tuple(found))


def _groups(broker: "FakeBroker") -> Iterator[ListedGroup]:
    groups = broker.cluster.groups
    for name in sorted(groups.names()):
        if not groups.elsewhere(broker, name):
            groups.expire(name)
            classic, consumer = groups.classic.get(name), groups.consumer.get(name)
            share = broker.cluster.shares.groups.get(name)
            if share is not None:
                yield ListedGroup(group_id=name, protocol_type="share", group_state=share.state, group_type="share")
            elif consumer is not None:
                yield ListedGroup(group_id=name, protocol_type="consumer", group_state=consumer.state, group_type="consumer")
            else:
                members = classic is not None and classic.members
                kind = classic.protocol_type if classic is not None and members else "consumer"
                state = classic.state.value if classic is not None else "Empty"
                yield ListedGroup(group_id=name, protocol_type=kind, group_state=state, group_type="classic")


def describe_groups(broker: "FakeBroker", request: DescribeGroupsRequest, version: int, error: int) -> DescribeGroupsResponse:
    """Classic groups."""
    return DescribeGroupsResponse(groups=tuple(_describe_classic(broker, name, version, error) for name in request.groups))


def _describe_classic(broker: "FakeBroker", name: str, version: int, error: int) -> DescribedGroup:
    groups = broker.cluster.groups
    groups.expire(name)
    group = groups.classic.get(name)
    code = error or groups.elsewhere(broker, name)
    if code:
        return DescribedGroup(group_id=name, error_code=code)
    if group is None:
        committed = bool(groups.offsets.of(name)) and name not in groups.consumer
        missing = GROUP_ID_NOT_FOUND if version >= 6 and not committed else 0
        return DescribedGroup(group_id=name, error_code=missing, group_state="Empty" if committed else "Dead")
    protocol = group.protocol or ""
    members = tuple(
        DescribedGroupMember(
            member_id=each.id,
            group_instance_id=each.instance,
            client_id=each.caller.client_id,
            client_host=each.caller.host,
            member_metadata=each.protocols.get(protocol, b""),
            member_assignment=each.assignment,
        )
        for each in group.members.values()
    )
    return DescribedGroup(
        group_id=name, group_state=group.state.value, protocol_type=group.protocol_type, protocol_data=protocol, members=members
    )


def describe_consumer_groups(
    broker: "FakeBroker", request: ConsumerGroupDescribeRequest, version: int, error: int
) -> ConsumerGroupDescribeResponse:
    """Groups of the consumer protocol."""
    return ConsumerGroupDescribeResponse(groups=tuple(_describe_consumer(broker, name, error) for name in request.group_ids))


def _describe_consumer(broker: "FakeBroker", name: str, error: int) -> DescribedConsumerGroup:
    groups = broker.cluster.groups
    groups.expire(name)
    group = groups.consumer.get(name)
    code = error or groups.elsewhere(broker, name) or (GROUP_ID_NOT_FOUND if group is None else 0)
    if code or group is None:
        return DescribedConsumerGroup(group_id=name, error_code=code)
    members = tuple(
        ConsumerGroupMember(
            member_id=each.id,
            instance_id=each.instance,
            member_epoch=each.epoch,
            client_id=each.caller.client_id,
            client_host=each.caller.host,
            subscribed_topic_names=tuple(sorted(each.topics)),
            subscribed_topic_regex=each.pattern or None,
            assignment=named(broker.cluster, each.assigned),
            target_assignment=named(broker.cluster, group.target.get(each.id, frozenset())),
            member_type=1,
        )
        for each in group.members.values()
    )
    return DescribedConsumerGroup(
        group_id=name,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=members,
    )


def named(cluster: "FakeCluster", parts: frozenset[Part]) -> NamedAssignment:
    """Return partitions with the names of their topics."""
    found = (
        NamedTopicPartitions(topic_id=topic_id, topic_name=cluster.name_of(topic_id) or "", partitions=indexes)
        for topic_id, indexes in by_topic(parts).items()
    )
    return NamedAssignment(topic_partitions=tuple(found))


def delete_groups(broker: "FakeBroker", request: DeleteGroupsRequest, version: int, error: int) -> DeleteGroupsResponse:
    """Groups without members go, and what they have committed (KIP-229)."""
    results = []
    for name in request.groups_names:
        code = error or _undeletable(broker, name)
        if not code:
            broker.cluster.groups.delete(name)
        results.append(DeletableGroupResult(group_id=name, error_code=code))
    return DeleteGroupsResponse(results=tuple(results))


def _undeletable(broker: "FakeBroker", name: str) -> int:
    groups = broker.cluster.groups
    if code := groups.elsewhere(broker, name):
        return code
    if groups.members(name):
        return NON_EMPTY_GROUP
    return 0 if name in groups.names() else GROUP_ID_NOT_FOUND


def delete_offsets(broker: "FakeBroker", request: OffsetDeleteRequest, version: int, error: int) -> OffsetDeleteResponse:
    """Offsets of topics that no member reads go (KIP-496)."""
    groups, name = broker.cluster.groups, request.group_id
    known = name in groups.names() and name not in broker.cluster.shares.groups
    code = error or groups.elsewhere(broker, name) or (0 if known else GROUP_ID_NOT_FOUND)
    if not code and _reads_otherwise(broker.cluster, name):
        code = NON_EMPTY_GROUP
    if code:
        return OffsetDeleteResponse(error_code=code)
    topics = tuple(_forgotten(broker.cluster, name, topic) for topic in request.topics)
    return OffsetDeleteResponse(topics=topics)


def _reads_otherwise(cluster: "FakeCluster", name: str) -> bool:
    """Return whether a classic group has members that are not consumers: what they read is not known."""
    classic = cluster.groups.classic.get(name)
    return classic is not None and bool(classic.members) and classic.protocol_type != "consumer"


def _forgotten(cluster: "FakeCluster", name: str, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    read = topic.name in _topics_of(cluster, name)
    results = []
    for part in topic.partitions:
        there = cluster.find(topic.name, part.partition_index) is not None
        if there and not read:
            cluster.groups.offsets.drop(name, TopicPartition(topic.name, part.partition_index))
        code = UNKNOWN_TOPIC if not there else SUBSCRIBED if read else 0
        results.append(OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code))
    return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(results))


def _topics_of(cluster: "FakeCluster", name: str) -> set[str]:
    """Return the topics that a group's members have subscribed to."""
    classic, consumer = cluster.groups.classic.get(name), cluster.groups.consumer.get(name)
    found: set[str] = set()
    for each in classic.members.values() if classic is not None else ():
        said = each.protocols.get(classic.protocol or "", b"") if classic is not None else b""
        found |= set(decode_subscription(said).topics) if said else set()
    for member in consumer.members.values() if consumer is not None else ():
        found |= {topic for part in member.assigned if (topic := cluster.name_of(part[0])) is not None} | member.topics
    return found
