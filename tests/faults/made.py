"""What brokers answer to requests of which there is no capture: logins, telemetry, settings, questions about groups and topics.

Decides: what these answers say, as a broker would. Owns nothing. Must never stand in for evidence: they are here to be spoiled.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final
from uuid import UUID

from kafka_async.background.group.consumer.group_settings import GROUP
from kafka_async.testing.server import encode_response
from kafka_async.wire import (
    SUPPORTED,
    ConsumerProtocolAssignment,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    Request,
    Response,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    encode_assignment,
    encode_request,
)
from kafka_async.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
    admin,
    produce,
    share,
)
from kafka_async.wire.messages.describing import DescribeClusterBroker
from kafka_async.wire.messages.group import ConsumerProtocolTopicPartition

from .capture import Capture

_ID: Final = UUID(int=7)
_SETTING: Final = DescribeConfigsResourceResult(name="consumer.session.timeout.ms", value="10000")
_ASSIGNED: Final = admin.NamedAssignment(
    topic_partitions=(admin.NamedTopicPartitions(topic_id=_ID, topic_name="t", partitions=(1, 0)),)
)
_CLASSIC: Final = encode_assignment(
    ConsumerProtocolAssignment(assigned_partitions=(ConsumerProtocolTopicPartition(topic="t", partitions=(0, 1)),))
)
_MEMBER: Final = admin.ConsumerGroupMember(member_id="m", member_epoch=4, client_id="c", client_host="/h", assignment=_ASSIGNED)
_CLASSIC_MEMBER: Final = admin.DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=_CLASSIC)


def _dialogues() -> Iterator[tuple[Request[Any], Response]]:
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI")
    yield SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(mechanisms=mechanisms)
    yield SaslAuthenticateRequest(auth_bytes=b"said"), SaslAuthenticateResponse(auth_bytes=b"heard", session_lifetime_ms=60_000)
    yield SaslAuthenticateRequest(auth_bytes=b"said"), SaslAuthenticateResponse(error_code=58, error_message="wrong")
    for metrics in (("",), ("org.apache.kafka.consumer.",), ()):
        subscription = GetTelemetrySubscriptionsResponse(
            client_instance_id=_ID,
            subscription_id=3,
            accepted_compression_types=(4, 1),
            push_interval_ms=10_000,
            telemetry_max_bytes=2**20,
            delta_temporality=True,
            requested_metrics=metrics,
        )
        yield GetTelemetrySubscriptionsRequest(), subscription
    yield PushTelemetryRequest(client_instance_id=_ID, subscription_id=3, metrics=b"otlp"), PushTelemetryResponse()
    group = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=(_SETTING.name,))
    result = DescribeConfigsResult(resource_type=GROUP, resource_name="g", configs=(_SETTING,))
    yield DescribeConfigsRequest(resources=(group,)), DescribeConfigsResponse(results=(result,))
    brokers = tuple(DescribeClusterBroker(broker_id=node, host=f"b{node}", port=9092, rack="r") for node in range(2))
    yield DescribeClusterRequest(), DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=brokers)
    yield from _about_groups()
    yield from _about_topics()
    yield from _about_writing()
    yield from _about_shares()
    yield from _about_tools_of_shares()


def _about_shares() -> Iterator[tuple[Request[Any], Response]]:
    has = share.ShareAssignment(topic_partitions=(share.ShareTopicPartitions(topic_id=_ID, partitions=(0, 1)),))
    beat = share.ShareGroupHeartbeatResponse(member_id="m", member_epoch=1, heartbeat_interval_ms=5000, assignment=has)
    yield share.ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0), beat
    data = share.SharePartitionData(
        partition_index=0,
        records=b"batch",
        acquired_records=(share.AcquiredRecords(first_offset=0, last_offset=4, delivery_count=1),),
    )
    fetched = share.ShareFetchResponse(
        acquisition_lock_timeout_ms=30_000, responses=(share.ShareFetchableTopicResponse(topic_id=_ID, partitions=(data,)),)
    )
    yield share.ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=0, max_wait_ms=500), fetched
    part = share.ShareAcknowledgePartitionResponse(partition_index=0)
    taken = share.ShareAcknowledgeResponse(responses=(share.ShareAcknowledgeTopicResponse(topic_id=_ID, partitions=(part,)),))
    yield share.ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=1), taken


def _about_tools_of_shares() -> Iterator[tuple[Request[Any], Response]]:
    member = admin.ShareGroupMember(member_id="m", client_id="c", client_host="/h", assignment=_ASSIGNED)
    group = admin.DescribedShareGroup(group_id="g", group_state="Stable", assignor_name="simple", members=(member,))
    yield admin.ShareGroupDescribeRequest(group_ids=("g",)), admin.ShareGroupDescribeResponse(groups=(group,))
    where = admin.SharePartitionOffset(partition_index=0, start_offset=5, leader_epoch=1, lag=3)
    topic = admin.ShareTopicOffsets(topic_name="t", topic_id=_ID, partitions=(where,))
    yield (
        admin.DescribeShareGroupOffsetsRequest(groups=(admin.ShareGroupChoice(group_id="g"),)),
        admin.DescribeShareGroupOffsetsResponse(groups=(admin.ShareGroupOffsets(group_id="g", topics=(topic,)),)),
    )
    moved = admin.AlteredTopic(topic_name="t", topic_id=_ID, partitions=(admin.AlteredPartition(partition_index=0),))
    there = admin.TopicToAlter(topic_name="t", partitions=(admin.PartitionToAlter(partition_index=0, start_offset=5),))
    yield (
        admin.AlterShareGroupOffsetsRequest(group_id="g", topics=(there,)),
        admin.AlterShareGroupOffsetsResponse(responses=(moved,)),
    )
    yield (
        admin.DeleteShareGroupOffsetsRequest(group_id="g", topics=(admin.TopicToForget(topic_name="t"),)),
        admin.DeleteShareGroupOffsetsResponse(responses=(admin.DeletedOffsets(topic_name="t", topic_id=_ID),)),
    )
    setting = admin.AlterableConfig(name="share.auto.offset.reset", value="earliest")
    yield (
        admin.IncrementalAlterConfigsRequest(
            resources=(admin.ConfiguredResource(resource_type=GROUP, resource_name="g", configs=(setting,)),)
        ),
        admin.IncrementalAlterConfigsResponse(responses=(admin.AlteredResource(resource_type=GROUP, resource_name="g"),)),
    )


def _about_writing() -> Iterator[tuple[Request[Any], Response]]:
    told = produce.TopicProduceResponse(
        topic_id=_ID, partition_responses=(produce.PartitionProduceResponse(index=0, base_offset=5, log_start_offset=0),)
    )
    sent = produce.TopicProduceData(topic_id=_ID, partition_data=(produce.PartitionProduceData(index=0, records=b"batch"),))
    yield produce.ProduceRequest(topic_data=(sent,)), produce.ProduceResponse(responses=(told,))
    who: dict[str, Any] = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
    yield produce.InitProducerIdRequest(transactional_id="x"), produce.InitProducerIdResponse(producer_id=1)
    added = produce.AddPartitionsToTxnPartitionResult(partition_index=0)
    yield (
        produce.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=(produce.AddPartitionsToTxnTopic(name="t", partitions=(0,)),),
        ),
        produce.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=(produce.AddPartitionsToTxnTopicResult(name="t", results_by_partition=(added,)),)
        ),
    )
    yield produce.AddOffsetsToTxnRequest(group_id="g", **who), produce.AddOffsetsToTxnResponse()
    stored = produce.TxnOffsetCommitResponseTopic(
        name="t", partitions=(produce.TxnOffsetCommitResponsePartition(partition_index=0),)
    )
    yield produce.TxnOffsetCommitRequest(group_id="g", **who), produce.TxnOffsetCommitResponse(topics=(stored,))
    yield produce.EndTxnRequest(committed=True, **who), produce.EndTxnResponse()
    low = produce.DeleteRecordsPartitionResult(partition_index=0, low_watermark=3)
    yield (
        produce.DeleteRecordsRequest(topics=()),
        produce.DeleteRecordsResponse(topics=(produce.DeleteRecordsTopicResult(name="t", partitions=(low,)),)),
    )


def _about_groups() -> Iterator[tuple[Request[Any], Response]]:
    gone = admin.DeletableGroupResult(group_id="g", error_code=68)
    yield admin.DeleteGroupsRequest(groups_names=("g",)), admin.DeleteGroupsResponse(results=(gone,))
    dropped = admin.OffsetDeleteResponsePartition(partition_index=0, error_code=86)
    yield (
        admin.OffsetDeleteRequest(group_id="g"),
        admin.OffsetDeleteResponse(topics=(admin.OffsetDeleteResponseTopic(name="t", partitions=(dropped,)),)),
    )
    grown = admin.CreatePartitionsTopicResult(name="t", error_message="no")
    yield (
        admin.CreatePartitionsRequest(topics=(admin.CreatePartitionsTopic(name="t", count=2),)),
        admin.CreatePartitionsResponse(results=(grown,)),
    )
    listed = [
        admin.ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type=kind)
        for kind in ("Classic", "Consumer")
    ]
    yield admin.ListGroupsRequest(), admin.ListGroupsResponse(groups=tuple(listed))
    described = admin.DescribedConsumerGroup(
        group_id="g", group_state="Stable", group_epoch=5, assignor_name="uniform", members=(_MEMBER,)
    )
    yield admin.ConsumerGroupDescribeRequest(group_ids=("g",)), admin.ConsumerGroupDescribeResponse(groups=(described,))
    classic = admin.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=(_CLASSIC_MEMBER,)
    )
    yield admin.DescribeGroupsRequest(groups=("g",)), admin.DescribeGroupsResponse(groups=(classic,))


def _about_topics() -> Iterator[tuple[Request[Any], Response]]:
    setting = admin.CreatableTopicConfigs(name="retention.ms", value="1", read_only=False)
    created = admin.CreatableTopicResult(name="t", topic_id=_ID, num_partitions=2, replication_factor=1, configs=(setting,))
    topic = admin.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    yield admin.CreateTopicsRequest(topics=(topic,)), admin.CreateTopicsResponse(topics=(created,))
    deleted = admin.DeletableTopicResult(name="t", topic_id=_ID)
    gone = admin.DeleteTopicState(name="t")
    yield admin.DeleteTopicsRequest(topics=(gone,)), admin.DeleteTopicsResponse(responses=(deleted,))


@cache
def made() -> tuple[Capture, ...]:
    """Return them as if they had been captured, each in its newest version."""
    return tuple(_captured(request, response) for request, response in _dialogues())


def _captured(request: Request[Any], response: Response) -> Capture:
    version = SUPPORTED[request.api].highest
    asked, answered = encode_request(request, version, 0, "c"), encode_response(response, request.api, version, 0)
    return Capture(request=asked[4:], response=answered[4:])
