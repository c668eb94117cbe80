"""The fake cluster itself: every API in every version that its brokers offer."""

import struct
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.testing.simulation import HANG, KAFKA_2_1, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Drop, FakeBroker, FakeCluster
from kafka_async.testing.simulation.handlers import HANDLERS
from kafka_async.testing.simulation.waking import finished
from kafka_async.wire import SUPPORTED, Api, Request, decode_response, encode_request
from kafka_async.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MemberIdentity,
    MetadataRequest,
    MetadataRequestTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    ShareAcknowledgeRequest,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
)
from kafka_async.wire.messages.admin import (
    AlterableConfig,
    AlterShareGroupOffsetsRequest,
    ConfiguredResource,
    ConsumerGroupDescribeRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    PartitionToAlter,
    ShareGroupChoice,
    ShareGroupDescribeRequest,
    TopicToAlter,
    TopicToForget,
)
from kafka_async.wire.messages.produce import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    TxnOffsetCommitRequest,
)
from tests.application.support import virtual
from tests.strategies import plain_batches


def requests(cluster: FakeCluster) -> dict[Api, Request[Any]]:
    """Return one request of each API about topic ``t``."""
    topic_id = cluster.topics["t"].id
    position = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    found = [
        ApiVersionsRequest(client_software_name="test", client_software_version="1"),
        MetadataRequest(topics=(MetadataRequestTopic(name="t"), MetadataRequestTopic(name="missing"))),
        ListOffsetsRequest(
            topics=(ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),)),)
        ),
        OffsetForLeaderEpochRequest(
            topics=(OffsetForLeaderTopic(topic="t", partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),)),)
        ),
        FetchRequest(max_wait_ms=500, session_epoch=0, topics=(FetchTopic(topic="t", topic_id=topic_id, partitions=(part,)),)),
        FindCoordinatorRequest(coordinator_keys=("g",)),
        DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=32, resource_name="g"),)),
        OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=(position,)),)),
        OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id="g", topics=(OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=(0,)),)
                ),
            )
        ),
        JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),)
        ),
        SyncGroupRequest(group_id="g", generation_id=1, member_id="m"),
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m"),)),
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("t",)),
        InitProducerIdRequest(),
        ProduceRequest(
            topic_data=(
                TopicProduceData(
                    name="t", topic_id=topic_id, partition_data=(PartitionProduceData(index=0, records=plain_batches(1, 2, 5)),)
                ),
            )
        ),
        AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0),
        AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"),
        EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True),
        TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=1, producer_epoch=0),
        CreateTopicsRequest(topics=(CreatableTopic(name="new", num_partitions=2, replication_factor=1),)),
        DeleteTopicsRequest(topics=(DeleteTopicState(name="missing"),)),
        DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name="t", partitions=(DeleteRecordsPartition(partition_index=0, offset=3),)),)
        ),
        ListGroupsRequest(),
        DeleteGroupsRequest(groups_names=("missing",)),
        OffsetDeleteRequest(group_id="g"),
        CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=9),)),
        DescribeGroupsRequest(groups=("g",)),
        IncrementalAlterConfigsRequest(
            resources=(
                ConfiguredResource(resource_type=2, resource_name="t", configs=(AlterableConfig(name="retention.ms", value="5"),)),
            )
        ),
        ConsumerGroupDescribeRequest(group_ids=("g",)),
        DescribeClusterRequest(),
        ShareGroupHeartbeatRequest(group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=("t",)),
        ShareFetchRequest(
            group_id="s",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            topics=(ShareFetchTopic(topic_id=cluster.topics["t"].id, partitions=(ShareFetchPartition(partition_index=0),)),),
        ),
        ShareAcknowledgeRequest(group_id="s", member_id="m", share_session_epoch=1),
        ShareGroupDescribeRequest(group_ids=("s",)),
        DescribeShareGroupOffsetsRequest(groups=(ShareGroupChoice(group_id="s", topics=None),)),
        AlterShareGroupOffsetsRequest(
            group_id="s", topics=(TopicToAlter(topic_name="t", partitions=(PartitionToAlter(partition_index=0, start_offset=1),)),)
        ),
        DeleteShareGroupOffsetsRequest(group_id="s", topics=(TopicToForget(topic_name="t"),)),
    ]
    return {request.api: request for request in found}


async def ask(broker: FakeBroker, request: Request[Any], version: int) -> object:
    """Return the broker's answer; ``None`` if it closes the connection."""
    answer = await finished(broker.arrived(encode_request(request, version, 42, "me")[4:])(), broker.cluster.changes)
    if answer is None:
        return None
    size, correlation_id = struct.unpack_from(">ii", answer)
    assert (size, correlation_id) == (len(answer) - 4, 42)
    return decode_response(request, version, answer[4:])


def filled(release: Mapping[Api, int] = KAFKA_4_3) -> tuple[FakeCluster, TopicPartition]:
    cluster = FakeCluster(max_versions=release)
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, 5)
    return cluster, tp


@pytest.mark.parametrize("api", HANDLERS)
@virtual
async def test_every_version_is_answered(api: Api) -> None:
    for version in range(SUPPORTED[api].lowest, SUPPORTED[api].highest + 1):
        cluster, _ = filled()
        answer = await ask(cluster.brokers[0], requests(cluster)[api], version)
        assert type(answer).__name__ == type(requests(cluster)[api]).__name__.replace("Request", "Response")
        assert [entry.version for entry in cluster.requests] == [version]


@pytest.mark.parametrize("release", [KAFKA_2_1, KAFKA_2_8, KAFKA_3_9])
@virtual
async def test_a_version_that_is_not_offered_closes_the_connection_except_for_api_versions(release: Mapping[Api, int]) -> None:
    cluster, _ = filled(release)
    for api, request in requests(cluster).items():
        version = release.get(api, SUPPORTED[api].highest) + 1
        if version > SUPPORTED[api].highest:
            continue
        answer = await ask(cluster.brokers[0], request, version)
        if api is Api.API_VERSIONS:
            assert isinstance(answer, ApiVersionsResponse)
            assert answer.error_code == 35
        else:
            assert answer is None


@virtual
async def test_what_is_committed_is_found_again() -> None:
    cluster, tp = filled()
    await ask(cluster.brokers[0], requests(cluster)[Api.OFFSET_COMMIT], 9)
    assert cluster.committed == {("g", tp): 7}
    answer = await ask(cluster.brokers[0], requests(cluster)[Api.OFFSET_FETCH], 9)
    assert "committed_offset=7" in repr(answer)


@virtual
async def test_a_fetch_waits_for_data_or_until_its_time_is_over() -> None:
    cluster, tp = filled()
    request = requests(cluster)[Api.FETCH]
    assert isinstance(request, FetchRequest)
    at_end = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1000)
    topic = FetchTopic(topic="t", topic_id=cluster.topics["t"].id, partitions=(at_end,))
    waiting = FetchRequest(max_wait_ms=500, session_epoch=0, topics=(topic,))
    await ask(cluster.brokers[0], waiting, 17)
    assert anyio.current_time() == 0.5
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, cluster.brokers[0], waiting, 17)
        await anyio.sleep(0.1)
        cluster.fill(tp, 1)
    assert anyio.current_time() == pytest.approx(0.6)


@virtual
async def test_control_functions_are_called_in_order_and_once() -> None:
    cluster, _ = filled()
    broker, request = cluster.brokers[0], requests(cluster)[Api.METADATA]
    seen: list[str] = []

    def passing(broker: FakeBroker, request: object) -> None:
        seen.append("passing")

    cluster.control(Api.METADATA, passing)
    cluster.control(Api.METADATA, lambda broker, request: 29)
    assert "error_code=29" in repr(await ask(broker, request, 12))
    assert "error_code=29" not in repr(await ask(broker, request, 12))
    assert seen == ["passing"]
    end = cluster.control(Api.METADATA, lambda broker, request: Drop(), keep=True)
    assert [await ask(broker, request, 12) for _ in range(2)] == [None, None]
    end()
    end()
    assert await ask(broker, request, 12) is not None


@virtual
async def test_a_request_can_be_left_without_an_answer() -> None:
    cluster, _ = filled()
    cluster.control(Api.METADATA, lambda broker, request: HANG)
    with anyio.move_on_after(100) as scope:
        await ask(cluster.brokers[0], requests(cluster)[Api.METADATA], 12)
    assert scope.cancelled_caught
