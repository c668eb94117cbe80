"""What the bytes mean: Kafka's messages and their versions.

Decides: how a message of the newest shape is carried by the version that a broker speaks. Owns: the messages and the tables of
versions. Must never wait, read a clock, or remember anything about a broker or a connection.

    messages/        every message once, in its newest shape
    shapes.py        the few whose older versions are built differently
    versions.py      what we speak, what a broker offers, which version carries a request
    schema.py        which fields a version has (the only module that imports kio)
    compiler.py      readers and writers made from that
    primitives.py    strings, arrays, tags
    codec.py         headers, whole messages, errors
"""

from typing import TYPE_CHECKING

from ..lazy import on_first_use
from .codec import (
    decode_assignment,
    decode_response,
    decode_subscription,
    encode_assignment,
    encode_request,
    encode_subscription,
    response_correlation_id,
)
from .versions import SUPPORTED, UNSUPPORTED_VERSION, BrokerVersions, VersionRange, next_api_versions

if TYPE_CHECKING:
    from . import messages
    from .messages import (
        Api,
        ApiVersionsRequest,
        ApiVersionsResponse,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        FetchRequest,
        FetchResponse,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        MetadataRequest,
        MetadataResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        PushTelemetryRequest,
        PushTelemetryResponse,
        Request,
        Response,
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
        Struct,
        SyncGroupRequest,
        SyncGroupResponse,
    )
else:
    __getattr__ = on_first_use(
        __name__,
        {
            ".messages": (
                "Api ApiVersionsRequest ApiVersionsResponse ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse "
                "ConsumerProtocolAssignment ConsumerProtocolSubscription DescribeClusterRequest DescribeClusterResponse "
                "DescribeConfigsRequest DescribeConfigsResponse FetchRequest FetchResponse FindCoordinatorRequest "
                "FindCoordinatorResponse GetTelemetrySubscriptionsRequest GetTelemetrySubscriptionsResponse HeartbeatRequest "
                "HeartbeatResponse JoinGroupRequest JoinGroupResponse LeaveGroupRequest LeaveGroupResponse ListOffsetsRequest "
                "ListOffsetsResponse MetadataRequest MetadataResponse OffsetCommitRequest OffsetCommitResponse "
                "OffsetFetchRequest OffsetFetchResponse OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse "
                "PushTelemetryRequest PushTelemetryResponse Request Response SaslAuthenticateRequest SaslAuthenticateResponse "
                "SaslHandshakeRequest SaslHandshakeResponse Struct SyncGroupRequest SyncGroupResponse"
            ),
        },
        modules="messages",
    )

__all__ = [
    "SUPPORTED",
    "UNSUPPORTED_VERSION",
    "Api",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "BrokerVersions",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
    "Request",
    "Response",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "Struct",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "VersionRange",
    "decode_assignment",
    "decode_response",
    "decode_subscription",
    "encode_assignment",
    "encode_request",
    "encode_subscription",
    "messages",
    "next_api_versions",
    "response_correlation_id",
]
