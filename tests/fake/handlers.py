"""What the broker answers, one function per API.

Decides: error codes. Owns: nothing but the table ``HANDLERS``, of which every cluster has its own copy. A handler takes the broker,
the request, its version, and an error code that a control function wants the answer to carry (0: none).
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_async.model import TopicPartition
from kafka_async.wire import SUPPORTED, Api, Response
from kafka_async.wire.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Coordinator,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    EpochEndOffset,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

from .broker import FakeBroker
from .sessions import fetch

if TYPE_CHECKING:
    from .cluster import FakeTopic

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, REBOOTSTRAP_REQUIRED = 3, 5, 17, 129

Handler: TypeAlias = Callable[[FakeBroker, Any, int, int], Response | Awaitable[Response]]


def api_versions(broker: FakeBroker, request: ApiVersionsRequest, version: int, error: int) -> ApiVersionsResponse:
    """KIP-35, KIP-511."""
    offered = tuple(
        ApiVersion(api_key=api, min_version=SUPPORTED[api].lowest, max_version=highest)
        for api, highest in broker.cluster.max_versions.items()
    )
    return ApiVersionsResponse(error_code=error, api_keys=offered)


def metadata(broker: FakeBroker, request: MetadataRequest, version: int, error: int) -> MetadataResponse:
    """A code above 0 is that of every topic asked for, REBOOTSTRAP_REQUIRED that of the whole answer."""
    cluster = broker.cluster
    names = sorted(cluster.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
    return MetadataResponse(
        error_code=error if error == REBOOTSTRAP_REQUIRED else 0,
        brokers=tuple(
            MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in cluster.brokers.values()
            if cluster.is_up(b.node_id)
        ),
        cluster_id=cluster.cluster_id,
        controller_id=0,
        topics=tuple(_describe(broker, name, request.allow_auto_topic_creation, error) for name in names),
    )


def _describe(broker: FakeBroker, name: str, may_create: bool, error: int) -> MetadataResponseTopic:
    cluster = broker.cluster
    if error:
        return MetadataResponseTopic(name=name, error_code=error)
    if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is None:
        return MetadataResponseTopic(name=name, error_code=INVALID_TOPIC)
    topic = cluster.topics.get(name)
    if topic is None and may_create and cluster.auto_create:
        cluster.create_topic(name, cluster.auto_create)
        return MetadataResponseTopic(name=name, error_code=LEADER_NOT_AVAILABLE)
    if topic is None:
        return MetadataResponseTopic(name=name, error_code=UNKNOWN_TOPIC)
    if topic.error:
        return MetadataResponseTopic(name=name, error_code=topic.error, is_internal=topic.internal)
    return MetadataResponseTopic(
        name=name, topic_id=topic.id, is_internal=topic.internal, partitions=_describe_partitions(broker, topic)
    )


def _describe_partitions(broker: FakeBroker, topic: "FakeTopic") -> tuple[MetadataResponsePartition, ...]:
    cluster = broker.cluster
    return tuple(
        MetadataResponsePartition(
            error_code=0 if cluster.is_up(part.leader) else LEADER_NOT_AVAILABLE,
            partition_index=part.index,
            leader_id=part.leader if cluster.is_up(part.leader) else -1,
            leader_epoch=part.epoch,
            replica_nodes=part.replicas,
            isr_nodes=tuple(node for node in part.replicas if cluster.is_up(node)),
        )
        for part in topic.partitions
    )


def list_offsets(broker: FakeBroker, request: ListOffsetsRequest, version: int, error: int) -> ListOffsetsResponse:
    """KIP-79; the end of the log is the last stable offset for readers of committed data."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_list(broker, topic.name, part, request.isolation_level, error) for part in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _list(broker: FakeBroker, topic: str, asked: ListOffsetsPartition, isolation: int, error: int) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    code = error or broker.cluster.refusal(broker.node_id, topic, index, asked.current_leader_epoch)
    if code:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    partition = broker.cluster.partition(TopicPartition(topic, index))
    log = partition.log
    if asked.timestamp == -1:
        end = log.last_stable_offset if isolation else log.high_watermark
        return ListOffsetsPartitionResponse(partition_index=index, offset=end, leader_epoch=partition.epoch)
    if asked.timestamp == -2:
        return ListOffsetsPartitionResponse(partition_index=index, offset=log.start, leader_epoch=partition.epoch)
    found = log.find_time(asked.timestamp)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index)
    return ListOffsetsPartitionResponse(partition_index=index, timestamp=found[0], offset=found[1], leader_epoch=found[2])


def offset_for_leader_epoch(
    broker: FakeBroker, request: OffsetForLeaderEpochRequest, version: int, error: int
) -> OffsetForLeaderEpochResponse:
    """KIP-320."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=tuple(_epoch_end(broker, topic.topic, part, error) for part in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _epoch_end(broker: FakeBroker, topic: str, asked: OffsetForLeaderPartition, error: int) -> EpochEndOffset:
    code = error or broker.cluster.refusal(broker.node_id, topic, asked.partition, asked.current_leader_epoch)
    if code:
        return EpochEndOffset(partition=asked.partition, error_code=code)
    partition = broker.cluster.partition(TopicPartition(topic, asked.partition))
    epoch, end = partition.log.epoch_end(asked.leader_epoch, partition.epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def find_coordinator(broker: FakeBroker, request: FindCoordinatorRequest, version: int, error: int) -> FindCoordinatorResponse:
    """The broker with the smallest id that is up coordinates everything."""
    cluster = broker.cluster
    chosen = min((b for b in cluster.brokers.values() if cluster.is_up(b.node_id)), key=lambda b: b.node_id)
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(key=key, error_code=error)
            if error
            else Coordinator(key=key, node_id=chosen.node_id, host=chosen.host, port=chosen.port)
            for key in request.coordinator_keys
        )
    )


def offset_commit(broker: FakeBroker, request: OffsetCommitRequest, version: int, error: int) -> OffsetCommitResponse:
    """Store whatever comes, whoever it comes from."""
    topics = []
    for topic in request.topics:
        name = topic.name or broker.cluster.name_of(topic.topic_id) or ""
        for part in topic.partitions:
            if not error:
                tp = TopicPartition(name, part.partition_index)
                broker.cluster.committed[request.group_id, tp] = part.committed_offset
        parts = tuple(OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error) for p in topic.partitions)
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
    return OffsetCommitResponse(topics=tuple(topics))


def offset_fetch(broker: FakeBroker, request: OffsetFetchRequest, version: int, error: int) -> OffsetFetchResponse:
    """Return what was stored, for the partitions that are named."""
    groups = []
    for group in request.groups:
        topics = []
        for topic in group.topics or ():
            name = topic.name or broker.cluster.name_of(topic.topic_id) or ""
            parts = tuple(
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=broker.cluster.committed.get((group.group_id, TopicPartition(name, index)), -1),
                )
                for index in topic.partition_indexes
            )
            topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=parts))
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics), error_code=error))
    return OffsetFetchResponse(groups=tuple(groups))


def describe_configs(broker: FakeBroker, request: DescribeConfigsRequest, version: int, error: int) -> DescribeConfigsResponse:
    """Every group has the settings of the cluster."""
    settings = tuple(
        DescribeConfigsResourceResult(name=name, value=value) for name, value in broker.cluster.group_settings.items() if not error
    )
    return DescribeConfigsResponse(
        results=tuple(
            DescribeConfigsResult(
                error_code=error, resource_type=asked.resource_type, resource_name=asked.resource_name, configs=settings
            )
            for asked in request.resources
        )
    )


HANDLERS: dict[Api, Handler] = {
    Api.API_VERSIONS: api_versions,
    Api.METADATA: metadata,
    Api.LIST_OFFSETS: list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.FETCH: fetch,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.DESCRIBE_CONFIGS: describe_configs,
}
