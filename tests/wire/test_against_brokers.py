"""Real brokers understand every version that both sides speak, and are understood to the last byte."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import UUID

import pytest
from attrs import evolve

from kafka_async.errors import UnsupportedVersionError
from kafka_async.wire import (
    SUPPORTED,
    Api,
    ApiVersionsRequest,
    BrokerVersions,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    Request,
    Response,
    SyncGroupRequest,
    decode_assignment,
    decode_response,
    decode_subscription,
    encode_assignment,
    encode_request,
    encode_subscription,
    messages,
    next_api_versions,
    response_correlation_id,
)
from kafka_async.wire.messages import admin
from tests.brokers import CURRENT, OLDER, PREVIOUS, KafkaCluster, available, required

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(available() is not None and not required(), reason=available() or "a real broker is here"),
]

R = TypeVar("R", bound=Response)
TOPIC, GROUP = "orders", "billing"


class Connection:
    """A broker on the other end of a plain socket."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._sent = 0
        self.versions = BrokerVersions.from_response(self.call(ApiVersionsRequest(), 0))

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Request[R], version: int) -> R:
        self._sent += 1
        return decode_response(request, version, self.exchange(encode_request(request, version, self._sent, "wire"), self._sent))

    def exchange(self, data: bytes, correlation_id: int) -> bytes:
        self._socket.sendall(data)
        frame = self._receive(struct.unpack(">i", self._receive(4))[0])
        assert response_correlation_id(frame) == correlation_id
        return frame

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the broker closed the connection, so it did not understand the request"
            data += more
        return data

    def every_version(self, request: Request[R]) -> Iterator[tuple[int, R]]:
        """Send a request in every common version that can carry it, which the highest one always can."""
        common = self.versions.range(request.api)
        assert common is not None
        for version in range(common.lowest, common.highest):
            with contextlib.suppress(UnsupportedVersionError):
                yield version, self.call(request, version)
        yield common.highest, self.call(request, common.highest)


@pytest.fixture(scope="module", params=[CURRENT, PREVIOUS, OLDER])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(version=request.param) as running:
        running.create_topic(TOPIC, 3)
        running.produce(TOPIC, 30)
        with contextlib.closing(Connection(running.address(0))) as connection:
            for group in (GROUP, "modern", *(f"classic-{version}" for version in range(10))):
                wait_for_coordinator(connection, group)
        yield running


def wait_for_coordinator(connection: Connection, group: str) -> None:
    """Ask until the group can be used: its part of the offsets topic is created and loaded on first use."""
    while connection.call(FindCoordinatorRequest(coordinator_keys=(group,)), 4).coordinators[0].error_code:
        pass  # every question takes the broker a while; pytest ends what takes too long
    wanted = OffsetFetchRequest(groups=(messages.OffsetFetchRequestGroup(group_id=group),))
    while connection.call(wanted, 8).groups[0].error_code:
        pass


@pytest.fixture
def broker(cluster: KafkaCluster) -> Iterator[Connection]:
    with contextlib.closing(Connection(cluster.address(0))) as connection:
        yield connection


@pytest.fixture
def topic_id(broker: Connection) -> UUID:
    answer = broker.call(MetadataRequest(topics=(messages.MetadataRequestTopic(name=TOPIC),)), 12)
    found = answer.topics[0].topic_id
    assert found is not None
    return found


PLAIN: list[Request[Any]] = [
    ApiVersionsRequest(client_software_name="kafka-async", client_software_version="1.0"),
    MetadataRequest(),
    MetadataRequest(topics=()),
    MetadataRequest(topics=(messages.MetadataRequestTopic(name=TOPIC),), include_topic_authorized_operations=True),
    FindCoordinatorRequest(coordinator_keys=(GROUP,)),
    FindCoordinatorRequest(coordinator_keys=(GROUP, "other")),
    DescribeClusterRequest(),
    DescribeConfigsRequest(resources=(messages.DescribeConfigsResource(resource_type=2, resource_name=TOPIC),)),
    admin.ListGroupsRequest(),
    admin.DescribeGroupsRequest(groups=(GROUP,)),
    admin.ConsumerGroupDescribeRequest(group_ids=(GROUP,)),
    admin.CreateTopicsRequest(
        topics=(admin.CreatableTopic(name="new", num_partitions=1, replication_factor=1),), validate_only=True
    ),
    admin.DeleteTopicsRequest(topics=(admin.DeleteTopicState(name="missing"),)),
]


@pytest.mark.parametrize("request_", PLAIN, ids=lambda request: type(request).__name__)
def test_every_version_is_understood(broker: Connection, request_: Request[Any]) -> None:
    answers = list(broker.every_version(request_))
    assert answers[-1][0] == broker.versions.range(request_.api).highest  # type: ignore[union-attr] # it is offered
    for _, answer in answers:
        assert getattr(answer, "error_code", 0) == 0


def test_unknown_version_of_api_versions_is_answered_with_the_known_one(broker: Connection) -> None:
    frame = broker.exchange(struct.pack(">ihhihb", 11, Api.API_VERSIONS, 99, 2, 0, 0), 2)
    answer = decode_response(ApiVersionsRequest, SUPPORTED[Api.API_VERSIONS].highest, frame)
    assert answer.error_code == 35
    assert next_api_versions(99, answer) == min(answer.api_keys[0].max_version, SUPPORTED[Api.API_VERSIONS].highest)
    assert next_api_versions(99, answer) in (4, 5)


def test_records_come_in_every_version(broker: Connection, topic_id: UUID) -> None:
    partitions = tuple(messages.FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=10_000) for i in (0, 1, 2, 7))
    topic = messages.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=partitions)
    for version, answer in broker.every_version(FetchRequest(max_wait_ms=100, topics=(topic,))):
        (back,) = answer.responses
        assert (back.topic, back.topic_id) == ((TOPIC, None) if version < 13 else ("", topic_id))
        assert {part.partition_index: part.error_code for part in back.partitions} == {0: 0, 1: 0, 2: 0, 7: 3}
        assert sum(part.high_watermark for part in back.partitions if not part.error_code) == 30
        assert any(part.records for part in back.partitions)


def test_offsets_are_found_in_every_version(broker: Connection) -> None:
    for timestamp, offset in ((-2, 0), (2**62, -1)):
        parts = tuple(messages.ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(3))
        for _, found in broker.every_version(ListOffsetsRequest(topics=(messages.ListOffsetsTopic(name=TOPIC, partitions=parts),))):
            assert [part.offset for part in found.topics[0].partitions] == [offset] * 3
    epoch = messages.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=(messages.OffsetForLeaderTopic(topic=TOPIC, partitions=(epoch,)),))
    for _, ends in broker.every_version(request):
        assert ends.topics[0].partitions[0].leader_epoch == 0


def test_positions_are_stored_and_found_in_every_version(broker: Connection, topic_id: UUID) -> None:
    stored = messages.OffsetCommitRequestPartition(partition_index=1, committed_offset=3, committed_metadata="x")
    topics = (messages.OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=(stored,)),)
    for _, outcome in broker.every_version(OffsetCommitRequest(group_id=GROUP, topics=topics)):
        assert outcome.topics[0].partitions == (messages.OffsetCommitResponsePartition(partition_index=1),)
    wanted = messages.OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=(1,))
    for question in ((wanted,), None):
        group = messages.OffsetFetchRequestGroup(group_id=GROUP, topics=question)
        for _, found in broker.every_version(OffsetFetchRequest(groups=(group,), require_stable=True)):
            (back,) = found.groups
            assert (back.group_id, back.error_code) == (GROUP, 0)
            assert back.topics[0].partitions[0].committed_offset == 3


def test_classic_member_lives_in_every_version(broker: Connection) -> None:
    told = ConsumerProtocolSubscription(topics=(TOPIC,))
    given = ConsumerProtocolAssignment(
        assigned_partitions=(messages.ConsumerProtocolTopicPartition(topic=TOPIC, partitions=(0, 1)),)
    )
    common = {api: broker.versions.range(api) for api in (Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP)}
    lowest, highest = common[Api.JOIN_GROUP] or (0, 0)

    def at(api: Api, version: int) -> int:
        return min(version, (common[api] or (0, 0))[1])

    for version in range(lowest, highest + 1):
        protocols = (messages.JoinGroupRequestProtocol(name="range", metadata=encode_subscription(told)),)
        join = JoinGroupRequest(
            group_id=f"classic-{version}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocols=protocols
        )
        joined = broker.call(join, version)
        if joined.error_code == 79:  # MEMBER_ID_REQUIRED (KIP-394)
            joined = broker.call(evolve(join, member_id=joined.member_id), version)
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        assert decode_subscription(joined.members[0].metadata) == told
        member: dict[str, Any] = {"group_id": join.group_id, "generation_id": joined.generation_id, "member_id": joined.member_id}
        share = messages.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=encode_assignment(given))
        sync = SyncGroupRequest(**member, protocol_type="consumer", protocol_name="range", assignments=(share,))
        synced = broker.call(sync, at(Api.SYNC_GROUP, version))
        assert (synced.error_code, decode_assignment(synced.assignment)) == (0, given)
        assert broker.call(HeartbeatRequest(**member), at(Api.HEARTBEAT, version)).error_code == 0
        leave = LeaveGroupRequest(group_id=join.group_id, members=(messages.MemberIdentity(member_id=joined.member_id),))
        assert broker.call(leave, at(Api.LEAVE_GROUP, version)).error_code == 0


def test_consumer_protocol_member_joins_in_every_version(broker: Connection) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=(TOPIC,),
        subscribed_topic_regex="",
        topic_partitions=(),
    )
    for version, answer in broker.every_version(request):
        # a 3.9 broker lists the API and refuses it unless the preview was switched on
        assert answer.error_code == (0 if broker.versions.supports(Api.CONSUMER_GROUP_HEARTBEAT, 1) else 35), version
