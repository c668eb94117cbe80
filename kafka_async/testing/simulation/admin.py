"""Requests of tools about topics and brokers: create, grow and delete topics, delete records, describe the cluster."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...model import TopicPartition
from ...wire.messages import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...wire.messages.admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...wire.messages.produce import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from .kafka_settings import topic_settings

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 1, 3, 17, 36, 37
INVALID_REPLICATION, INVALID_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION, UNKNOWN_TOPIC_ID = 38, 39, 40, 44, 100


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None and name not in (".", "..")


def colliding(name: str, others: Iterable[str]) -> str | None:
    """Return the topic whose name differs only in ``.`` and ``_``: the metrics of brokers would be the same for both."""
    return next((other for other in others if other != name and other.replace(".", "_") == name.replace(".", "_")), None)


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
    if not is_topic_name(name) or colliding(name, cluster.topics) is not None:
        return INVALID_TOPIC
    if name in cluster.topics:
        return TOPIC_EXISTS
    if count < 1:
        return INVALID_PARTITIONS
    return 0 if 1 <= replicas <= len(cluster.brokers) else INVALID_REPLICATION


def create_partitions(broker: "FakeBroker", request: CreatePartitionsRequest, version: int, error: int) -> CreatePartitionsResponse:
    """Give topics more partitions (KIP-195)."""
    return CreatePartitionsResponse(
        results=tuple(_grown(broker.cluster, topic, error, request.validate_only) for topic in request.topics)
    )


def _grown(cluster: "FakeCluster", asked: CreatePartitionsTopic, error: int, only_check: bool) -> CreatePartitionsTopicResult:
    known = cluster.topics.get(asked.name)
    code = error or (UNKNOWN_TOPIC if known is None else 0)
    chosen = None if asked.assignments is None else tuple(each.broker_ids for each in asked.assignments)
    if not code and known is not None:
        before = len(known.partitions)
        if asked.count <= before:
            code = INVALID_PARTITIONS
        elif chosen is not None and (len(chosen) != asked.count - before or not all(map(cluster.may_replicate, chosen))):
            code = INVALID_ASSIGNMENT
    if not code and not only_check:
        cluster.add_partitions(asked.name, asked.count, chosen)
    return CreatePartitionsTopicResult(name=asked.name, error_code=code)


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
    if broker.cluster.topics[topic].settings.only_compacts:
        return DeleteRecordsPartitionResult(partition_index=part.partition_index, error_code=POLICY_VIOLATION)
    if not 0 <= offset <= log.high_watermark:
        return DeleteRecordsPartitionResult(partition_index=part.partition_index, error_code=OFFSET_OUT_OF_RANGE)
    log.delete_before(max(offset, log.start))
    broker.cluster.changed()
    return DeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=log.start)


def describe_cluster(broker: "FakeBroker", request: DescribeClusterRequest, version: int, error: int) -> DescribeClusterResponse:
    """The brokers that are up."""
    cluster = broker.cluster
    up = (each for each in cluster.brokers.values() if cluster.is_up(each.node_id))
    results = tuple(DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack) for each in up)
    return DescribeClusterResponse(
        error_code=error, cluster_id=cluster.broker_settings.cluster_id, controller_id=0, brokers=results
    )
