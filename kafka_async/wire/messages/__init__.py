"""Every message that a consumer speaks, one class each, in its newest shape.

Decides: nothing. Owns: nothing; the classes stand in the modules beside this file, by theme, those for tools and tests in
``admin``, which is not imported here. Must never hold a version number: managers see one type per message, and ``codec.py``
carries it down to the version in use and back up.
"""

from typing import TYPE_CHECKING

from ...lazy import on_first_use
from .base import (
    Api,
    Request,
    Response,
    Struct,
)

if TYPE_CHECKING:
    from .cluster import (
        ApiVersion,
        ApiVersionsRequest,
        ApiVersionsResponse,
        Coordinator,
        DescribeClusterBroker,
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
        DescribeConfigsSynonym,
        FinalizedFeatureKey,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
        PushTelemetryRequest,
        PushTelemetryResponse,
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
        SupportedFeatureKey,
    )
    from .fetch import (
        AbortedTransaction,
        DivergingEpoch,
        EpochEndOffset,
        FetchableTopicResponse,
        FetchPartition,
        FetchRequest,
        FetchResponse,
        FetchTopic,
        ForgottenTopic,
        LeaderIdAndEpoch,
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
        ListOffsetsTopicResponse,
        NodeEndpoint,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
        OffsetForLeaderTopicResult,
        PartitionData,
    )
    from .group import (
        Assignment,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
        ConsumerProtocolTopicPartition,
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupRequestProtocol,
        JoinGroupResponse,
        JoinGroupResponseMember,
        LeaveGroupRequest,
        LeaveGroupResponse,
        MemberIdentity,
        MemberResponse,
        SyncGroupRequest,
        SyncGroupRequestAssignment,
        SyncGroupResponse,
        TopicPartitions,
    )
    from .offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartitions,
        OffsetFetchResponseTopics,
    )
else:
    __getattr__ = on_first_use(
        __name__,
        {
            ".cluster": (
                "ApiVersion ApiVersionsRequest ApiVersionsResponse Coordinator DescribeClusterBroker DescribeClusterRequest "
                "DescribeClusterResponse DescribeConfigsRequest DescribeConfigsResource DescribeConfigsResourceResult "
                "DescribeConfigsResponse DescribeConfigsResult DescribeConfigsSynonym FinalizedFeatureKey "
                "FindCoordinatorRequest FindCoordinatorResponse GetTelemetrySubscriptionsRequest "
                "GetTelemetrySubscriptionsResponse MetadataRequest MetadataRequestTopic MetadataResponse "
                "MetadataResponseBroker MetadataResponsePartition MetadataResponseTopic PushTelemetryRequest "
                "PushTelemetryResponse SaslAuthenticateRequest SaslAuthenticateResponse SaslHandshakeRequest "
                "SaslHandshakeResponse SupportedFeatureKey"
            ),
            ".fetch": (
                "AbortedTransaction DivergingEpoch EpochEndOffset FetchableTopicResponse FetchPartition FetchRequest "
                "FetchResponse FetchTopic ForgottenTopic LeaderIdAndEpoch ListOffsetsPartition ListOffsetsPartitionResponse "
                "ListOffsetsRequest ListOffsetsResponse ListOffsetsTopic ListOffsetsTopicResponse NodeEndpoint "
                "OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse OffsetForLeaderPartition OffsetForLeaderTopic "
                "OffsetForLeaderTopicResult PartitionData"
            ),
            ".group": (
                "Assignment ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse ConsumerProtocolAssignment "
                "ConsumerProtocolSubscription ConsumerProtocolTopicPartition HeartbeatRequest HeartbeatResponse "
                "JoinGroupRequest JoinGroupRequestProtocol JoinGroupResponse JoinGroupResponseMember LeaveGroupRequest "
                "LeaveGroupResponse MemberIdentity MemberResponse SyncGroupRequest SyncGroupRequestAssignment "
                "SyncGroupResponse TopicPartitions"
            ),
            ".offsets": (
                "OffsetCommitRequest OffsetCommitRequestPartition OffsetCommitRequestTopic OffsetCommitResponse "
                "OffsetCommitResponsePartition OffsetCommitResponseTopic OffsetFetchRequest OffsetFetchRequestGroup "
                "OffsetFetchRequestTopics OffsetFetchResponse OffsetFetchResponseGroup OffsetFetchResponsePartitions "
                "OffsetFetchResponseTopics"
            ),
        },
    )

__all__ = [
    "AbortedTransaction",
    "Api",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "Assignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolTopicPartition",
    "Coordinator",
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "DivergingEpoch",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "FinalizedFeatureKey",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "ForgottenTopic",
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "LeaderIdAndEpoch",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "MemberIdentity",
    "MemberResponse",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "NodeEndpoint",
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopics",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
    "PartitionData",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
    "Request",
    "Response",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "Struct",
    "SupportedFeatureKey",
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
    "TopicPartitions",
]
