"""Requests of tools about share groups: describe members, describe, alter and delete offsets."""

from typing import TYPE_CHECKING

from ...model import TopicPartition
from ...wire.messages.admin import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeletedOffsets,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribedShareGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupChoice,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupMember,
    ShareGroupOffsets,
    SharePartitionOffset,
    ShareTopicChoice,
    ShareTopicOffsets,
)
from .group_admin import named
from .share_partition import SharePartition

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster

UNKNOWN_TOPIC, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 3, 68, 69


def describe(broker: "FakeBroker", request: ShareGroupDescribeRequest, version: int, error: int) -> ShareGroupDescribeResponse:
    """Members and what they read."""
    return ShareGroupDescribeResponse(groups=tuple(_described(broker, name, error) for name in request.group_ids))


def _described(broker: "FakeBroker", name: str, error: int) -> DescribedShareGroup:
    shares = broker.cluster.shares
    shares.expire(name)
    group = shares.groups.get(name)
    code = error or broker.cluster.groups.elsewhere(broker, name) or (GROUP_ID_NOT_FOUND if group is None else 0)
    if code or group is None:
        return DescribedShareGroup(group_id=name, error_code=code, group_state="Dead")
    members = tuple(
        ShareGroupMember(
            member_id=each.id,
            member_epoch=each.epoch,
            client_id=each.caller.client_id,
            client_host=each.caller.host,
            subscribed_topic_names=tuple(sorted(each.topics)),
            assignment=named(broker.cluster, each.assigned),
        )
        for each in group.members.values()
    )
    return DescribedShareGroup(
        group_id=name,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name="simple",
        members=members,
    )


def offsets(
    broker: "FakeBroker", request: DescribeShareGroupOffsetsRequest, version: int, error: int
) -> DescribeShareGroupOffsetsResponse:
    """The start offsets of groups, and what is left (KIP-1226)."""
    return DescribeShareGroupOffsetsResponse(groups=tuple(_offsets(broker, group, error) for group in request.groups))


def _offsets(broker: "FakeBroker", asked: ShareGroupChoice, error: int) -> ShareGroupOffsets:
    code = error or broker.cluster.groups.elsewhere(broker, asked.group_id)
    if code:
        return ShareGroupOffsets(group_id=asked.group_id, error_code=code)
    starts = broker.cluster.shares.starts(asked.group_id)
    chosen = asked.topics
    if chosen is None:
        names = sorted({tp.topic for tp in starts})
        chosen = tuple(
            ShareTopicChoice(topic_name=name, partitions=tuple(sorted(tp.partition for tp in starts if tp.topic == name)))
            for name in names
        )
    topics = tuple(
        ShareTopicOffsets(
            topic_name=topic.topic_name,
            topic_id=known.id if (known := broker.cluster.topics.get(topic.topic_name)) is not None else None,
            partitions=tuple(
                _stands(broker.cluster, asked.group_id, TopicPartition(topic.topic_name, i)) for i in topic.partitions
            ),
        )
        for topic in chosen
    )
    return ShareGroupOffsets(group_id=asked.group_id, topics=topics)


def _stands(cluster: "FakeCluster", group: str, tp: TopicPartition) -> SharePartitionOffset:
    found = cluster.find(*tp)
    if found is None:
        return SharePartitionOffset(partition_index=tp.partition, error_code=UNKNOWN_TOPIC)
    known = cluster.shares.partitions.get((group, (cluster.topics[tp.topic].id, tp.partition)))
    if known is None:
        return SharePartitionOffset(partition_index=tp.partition)
    left = found.log.high_watermark - known.start - known.settled
    return SharePartitionOffset(partition_index=tp.partition, start_offset=known.start, leader_epoch=found.epoch, lag=max(left, 0))


def alter(broker: "FakeBroker", request: AlterShareGroupOffsetsRequest, version: int, error: int) -> AlterShareGroupOffsetsResponse:
    """Move the start offsets of a group without members. A group that does not exist is created."""
    cluster = broker.cluster
    code = error or _refused(broker, request.group_id)
    if code:
        return AlterShareGroupOffsetsResponse(error_code=code)
    responses = []
    for topic in request.topics:
        known, parts = cluster.topics.get(topic.topic_name), []
        for part in topic.partitions:
            found = cluster.find(topic.topic_name, part.partition_index)
            if found is not None and known is not None:
                place = request.group_id, (known.id, part.partition_index)
                cluster.shares.partitions[place] = SharePartition(part.start_offset, found.epoch)
            refused = 0 if found is not None else UNKNOWN_TOPIC
            parts.append(AlteredPartition(partition_index=part.partition_index, error_code=refused))
        topic_id = known.id if known is not None else None
        responses.append(AlteredTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(parts)))
    return AlterShareGroupOffsetsResponse(responses=tuple(responses))


def delete(
    broker: "FakeBroker", request: DeleteShareGroupOffsetsRequest, version: int, error: int
) -> DeleteShareGroupOffsetsResponse:
    """Make a group without members begin topics anew."""
    cluster = broker.cluster
    code = error or _refused(broker, request.group_id)
    if code:
        return DeleteShareGroupOffsetsResponse(error_code=code)
    results = []
    for topic in request.topics:
        known = cluster.topics.get(topic.topic_name)
        keys = [
            key for key in cluster.shares.partitions if known is not None and key[0] == request.group_id and key[1][0] == known.id
        ]
        for key in keys:
            del cluster.shares.partitions[key]
        topic_id = known.id if known is not None else None
        results.append(
            DeletedOffsets(topic_name=topic.topic_name, topic_id=topic_id, error_code=0 if known is not None else UNKNOWN_TOPIC)
        )
    return DeleteShareGroupOffsetsResponse(responses=tuple(results))


def _refused(broker: "FakeBroker", name: str) -> int:
    broker.cluster.shares.expire(name)
    group = broker.cluster.shares.groups.get(name)
    occupied = group is not None and bool(group.members)
    return broker.cluster.groups.elsewhere(broker, name) or (NON_EMPTY_GROUP if occupied else 0)
