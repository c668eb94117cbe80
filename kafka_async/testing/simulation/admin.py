"""Requests of tools: create and delete topics, delete records, list and describe groups, and so on.

Decides: error codes. Owns: nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...model import TopicPartition
from ...wire.messages import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...wire.messages.admin import (
    AlterableConfig,
    AlteredResource,
    ConfiguredResource,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    NamedAssignment,
    NamedTopicPartitions,
)
from ...wire.messages.produce import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from .groups.assignor import Part
from .settings import TopicSettings, group_settings, topic_settings

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 1, 3, 17, 36, 37
TOPIC, GROUP = 2, 32
"""Kinds of resources."""
INVALID_REQUEST = 42
INVALID_REPLICATION, INVALID_CONFIG, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_ID = 38, 40, 69, 100
CLUSTER_ID: Final = "fake-cluster"


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None and name not in (".", "..")


def create_topics(broker: "FakeBroker", request: CreateTopicsRequest, version: int, error: int) -> CreateTopicsResponse:
    """Create topics."""
    return CreateTopicsResponse(
        topics=tuple(_create(broker.cluster, topic, error, request.validate_only) for topic in request.topics)
    )


def _create(cluster: "FakeCluster", topic: CreatableTopic, error: int, only_check: bool) -> CreatableTopicResult:
    count = len(topic.assignments) or (1 if topic.num_partitions == -1 else topic.num_partitions)
    replicas = 1 if topic.replication_factor == -1 else topic.replication_factor
    code = error or _refused(cluster, topic.name, count, replicas)
    config = {each.name: each.value for each in topic.configs if each.value is not None}
    try:
        topic_settings(config)
    except ValueError as problem:
        return CreatableTopicResult(name=topic.name, error_code=code or INVALID_CONFIG, error_message=str(problem))
    if code:
        return CreatableTopicResult(name=topic.name, error_code=code)
    if only_check:
        return CreatableTopicResult(name=topic.name, num_partitions=count, replication_factor=replicas)
    cluster.create_topic(topic.name, count, replicas=replicas, config=config)
    made = cluster.topics[topic.name]
    return CreatableTopicResult(name=topic.name, topic_id=made.id, num_partitions=count, replication_factor=replicas)


def _refused(cluster: "FakeCluster", name: str, count: int, replicas: int) -> int:
    if not is_topic_name(name):
        return INVALID_TOPIC
    if name in cluster.topics:
        return TOPIC_EXISTS
    if count < 1:
        return INVALID_PARTITIONS
    return 0 if 1 <= replicas <= len(cluster.brokers) else INVALID_REPLICATION


def alter_configs(
    broker: "FakeBroker", request: IncrementalAlterConfigsRequest, version: int, error: int
) -> IncrementalAlterConfigsResponse:
    """KIP-339, for topics and groups."""
    return IncrementalAlterConfigsResponse(
        responses=tuple(_altered(broker.cluster, asked, error, request.validate_only) for asked in request.resources)
    )


def _altered(cluster: "FakeCluster", asked: ConfiguredResource, error: int, only_check: bool) -> AlteredResource:
    kind, name = asked.resource_type, asked.resource_name
    topic = cluster.topics.get(name)
    code, text = error, None
    if kind not in (TOPIC, GROUP):
        code, text = code or INVALID_REQUEST, "only the settings of topics and groups are simulated"
    elif kind == TOPIC and topic is None:
        code = code or UNKNOWN_TOPIC
    before = cluster.groups.own.get(name, {}) if kind == GROUP else topic.settings.given if topic is not None else {}
    try:
        after = _applied(before, asked.configs)
        found = group_settings(after) if kind == GROUP else topic_settings(after)
    except ValueError as problem:
        code, text, found = code or INVALID_CONFIG, str(problem), {}
    if not code and not only_check:
        if kind == GROUP:
            cluster.groups.own[name] = found
        elif topic is not None:
            topic.settings = TopicSettings(found)
        cluster.changed()
    return AlteredResource(error_code=code, error_message=text, resource_type=kind, resource_name=name)


def _applied(before: Mapping[str, str], changes: Iterable[AlterableConfig]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        match change.config_operation:
            case 0:
                after[change.name] = change.value or ""
            case 1:
                after.pop(change.name, None)
            case _:
                raise ValueError(f"{change.name}: appending to lists and taking away from them is not simulated")
    return after


def delete_topics(broker: "FakeBroker", request: DeleteTopicsRequest, version: int, error: int) -> DeleteTopicsResponse:
    """Delete topics by name or id."""
    return DeleteTopicsResponse(responses=tuple(_delete(broker.cluster, topic, error) for topic in request.topics))


def _delete(cluster: "FakeCluster", topic: DeleteTopicState, error: int) -> DeletableTopicResult:
    name = topic.name if topic.name is not None else cluster.name_of(topic.topic_id)
    if name is None or name not in cluster.topics:
        code = error or (UNKNOWN_TOPIC if name is not None else UNKNOWN_TOPIC_ID)
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code)
    found = cluster.topics[name]
    if not error:
        cluster.delete_topic(name)
    return DeletableTopicResult(name=name, topic_id=found.id, error_code=error)


def delete_records(broker: "FakeBroker", request: DeleteRecordsRequest, version: int, error: int) -> DeleteRecordsResponse:
    """Move the starts of logs (KIP-107)."""
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(_delete_before(broker, topic.name, part, error) for part in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _delete_before(broker: "FakeBroker", topic: str, part: DeleteRecordsPartition, error: int) -> DeleteRecordsPartitionResult:
    code = error or broker.cluster.refusal(broker.node_id, topic, part.partition_index, -1)
    if code:
        return DeleteRecordsPartitionResult(partition_index=part.partition_index, error_code=code)
    log = broker.cluster.log(TopicPartition(topic, part.partition_index))
    offset = log.high_watermark if part.offset == -1 else part.offset
    if offset > log.high_watermark:
        return DeleteRecordsPartitionResult(partition_index=part.partition_index, error_code=OFFSET_OUT_OF_RANGE)
    log.delete_before(max(offset, log.start))
    broker.cluster.changed()
    return DeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=log.start)


def describe_cluster(broker: "FakeBroker", request: DescribeClusterRequest, version: int, error: int) -> DescribeClusterResponse:
    """The brokers that are up."""
    cluster = broker.cluster
    up = (each for each in cluster.brokers.values() if cluster.is_up(each.node_id))
    results = tuple(DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack) for each in up)
    return DescribeClusterResponse(error_code=error, cluster_id=CLUSTER_ID, controller_id=0, brokers=results)


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
        assignor_name="uniform",
        members=members,
    )


def named(cluster: "FakeCluster", parts: frozenset[Part]) -> NamedAssignment:
    """Return partitions with the names of their topics."""
    found = []
    for topic_id in sorted({topic_id for topic_id, _ in parts}):
        indexes = tuple(sorted(index for other, index in parts if other == topic_id))
        found.append(NamedTopicPartitions(topic_id=topic_id, topic_name=cluster.name_of(topic_id) or "", partitions=indexes))
    return NamedAssignment(topic_partitions=tuple(found))
