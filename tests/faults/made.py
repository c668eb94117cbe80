"""What brokers answer to requests of which there is no capture: logins, telemetry, settings, questions about groups and topics.

Decides: what these answers say, as a broker would. Owns nothing. Must never stand in for evidence: they are here to be spoiled.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final
from uuid import UUID

from kafka_async.background.group_settings import GROUP
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
)
from kafka_async.wire.messages.cluster import DescribeClusterBroker
from kafka_async.wire.messages.group import ConsumerProtocolTopicPartition
from tests.wire.server import encode_response

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


def _about_groups() -> Iterator[tuple[Request[Any], Response]]:
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
