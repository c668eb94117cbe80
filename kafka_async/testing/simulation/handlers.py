"""What the broker answers, one function per API.

A handler takes the broker, the request, its version, and an error code that a control function wants the answer to carry (0: none).
"""

from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...model import TopicPartition
from ...wire import SUPPORTED, Api, Response
from ...wire.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EpochEndOffset,
    FinalizedFeatureKey,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from . import config_admin, group_admin, share_admin
from .admin import (
    colliding,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    is_topic_name,
)
from .broker import FakeBroker
from .groups.registry import TOPIC_FORBIDDEN, find_coordinator
from .sessions import fetch
from .versions import KAFKA_4_4
from .waking import Answering

if TYPE_CHECKING:
    from .cluster import FakeTopic

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, UNKNOWN_TOPIC_ID, REBOOTSTRAP_REQUIRED = 3, 5, 17, 100, 129
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
"""Timestamps that mean something else (KIP-79, 734, 405)."""

FEATURES: Final = (
    FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1),
    FinalizedFeatureKey(name="share.version", max_version_level=2, min_version_level=2),
)
"""Features of a new cluster of Kafka 4.4, as far as they are simulated."""

Answer: TypeAlias = Response | Answering[Any] | Awaitable[Response]
Handler: TypeAlias = Callable[[FakeBroker, Any, int, int], Answer]


def api_versions(broker: FakeBroker, request: ApiVersionsRequest, version: int, error: int) -> ApiVersionsResponse:
    """KIP-35, KIP-511, KIP-584, KIP-1242."""
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        broker.cluster.broker_settings.cluster_id,
        broker.node_id,
    ):
        error = REBOOTSTRAP_REQUIRED
    offered = tuple(
        ApiVersion(api_key=api, min_version=SUPPORTED[api].lowest, max_version=highest)
        for api, highest in broker.cluster.max_versions.items()
    )
    new = broker.cluster.max_versions.get(Api.API_VERSIONS, 0) >= KAFKA_4_4[Api.API_VERSIONS]
    return ApiVersionsResponse(
        error_code=error,
        api_keys=offered,
        finalized_features_epoch=0 if new else -1,
        finalized_features=FEATURES if new else (),
    )


def metadata(broker: FakeBroker, request: MetadataRequest, version: int, error: int) -> MetadataResponse:
    """``error`` above 0 applies to every topic asked for, REBOOTSTRAP_REQUIRED to the whole answer."""
    cluster = broker.cluster
    # Of all topics, brokers leave out those that the client may not see; they refuse only what is asked for by name.
    seen = (MetadataRequestTopic(name=name) for name in sorted(cluster.topics) if cluster.topics[name].error != TOPIC_FORBIDDEN)
    names = seen if request.topics is None else request.topics
    return MetadataResponse(
        error_code=error if error == REBOOTSTRAP_REQUIRED else 0,
        brokers=tuple(
            MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in cluster.brokers.values()
            if cluster.is_up(b.node_id)
        ),
        cluster_id=cluster.broker_settings.cluster_id,
        controller_id=0,
        topics=tuple(_wanted(broker, topic, request.allow_auto_topic_creation, error) for topic in names),
    )


def _wanted(broker: FakeBroker, topic: MetadataRequestTopic, may_create: bool, error: int) -> MetadataResponseTopic:
    """Topics are asked for by name, or by id if they have no name."""
    name = topic.name if topic.name is not None else broker.cluster.name_of(topic.topic_id)
    if name is None:
        return MetadataResponseTopic(name=None, topic_id=topic.topic_id, error_code=error or UNKNOWN_TOPIC_ID)
    return _describe(broker, name, may_create and topic.name is not None, error)


def _describe(broker: FakeBroker, name: str, may_create: bool, error: int) -> MetadataResponseTopic:
    cluster = broker.cluster
    if error:
        return MetadataResponseTopic(name=name, error_code=error)
    if not is_topic_name(name):
        return MetadataResponseTopic(name=name, error_code=INVALID_TOPIC)
    topic = cluster.topics.get(name)
    count = cluster.broker_settings.auto_create
    if topic is None and may_create and count and colliding(name, cluster.topics) is None:
        cluster.create_topic(name, count)
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
    """KIP-79; for readers of committed data the end of the log is the last stable offset."""
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
    limit = log.last_stable_offset if isolation else log.high_watermark
    if asked.timestamp in (_LATEST, _EARLIEST, _EARLIEST_LOCAL):
        offset = limit if asked.timestamp == _LATEST else log.start
        return ListOffsetsPartitionResponse(partition_index=index, offset=offset, leader_epoch=partition.epoch)
    found = log.find_latest() if asked.timestamp == _MAX_TIMESTAMP else log.find_time(asked.timestamp)
    if asked.timestamp < _MAX_TIMESTAMP or found is None or found[1] >= limit:  # nothing is in tiered storage
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


def _of(method: str) -> Handler:
    """Return the handler that lets a part of the cluster answer, such as its groups."""
    find = attrgetter(method)

    def handle(broker: FakeBroker, request: Any, version: int, error: int) -> Answer:
        handler: Handler = find(broker.cluster)
        return handler(broker, request, version, error)

    return handle


HANDLERS: dict[Api, Handler] = {
    Api.API_VERSIONS: api_versions,
    Api.METADATA: metadata,
    Api.LIST_OFFSETS: list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.FETCH: fetch,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.OFFSET_COMMIT: _of("groups.commit"),
    Api.OFFSET_FETCH: _of("groups.fetch_offsets"),
    Api.JOIN_GROUP: _of("groups.join"),
    Api.SYNC_GROUP: _of("groups.sync"),
    Api.HEARTBEAT: _of("groups.heartbeat"),
    Api.LEAVE_GROUP: _of("groups.leave"),
    Api.CONSUMER_GROUP_HEARTBEAT: _of("groups.beat"),
    Api.DESCRIBE_CONFIGS: config_admin.describe,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.CREATE_TOPICS: create_topics,
    Api.INCREMENTAL_ALTER_CONFIGS: config_admin.alter,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.DELETE_TOPICS: delete_topics,
    Api.DELETE_RECORDS: delete_records,
    Api.LIST_GROUPS: group_admin.list_groups,
    Api.DESCRIBE_GROUPS: group_admin.describe_groups,
    Api.CONSUMER_GROUP_DESCRIBE: group_admin.describe_consumer_groups,
    Api.DELETE_GROUPS: group_admin.delete_groups,
    Api.OFFSET_DELETE: group_admin.delete_offsets,
    Api.PRODUCE: _of("producers.produce"),
    Api.INIT_PRODUCER_ID: _of("producers.init"),
    Api.ADD_PARTITIONS_TO_TXN: _of("producers.add_partitions"),
    Api.ADD_OFFSETS_TO_TXN: _of("producers.add_offsets"),
    Api.TXN_OFFSET_COMMIT: _of("producers.commit_offsets"),
    Api.END_TXN: _of("producers.end"),
    Api.SHARE_GROUP_HEARTBEAT: _of("shares.beat"),
    Api.SHARE_FETCH: _of("shares.fetch"),
    Api.SHARE_ACKNOWLEDGE: _of("shares.acknowledge"),
    Api.SHARE_GROUP_DESCRIBE: share_admin.describe,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: share_admin.offsets,
    Api.ALTER_SHARE_GROUP_OFFSETS: share_admin.alter,
    Api.DELETE_SHARE_GROUP_OFFSETS: share_admin.delete,
}
