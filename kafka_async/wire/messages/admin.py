"""Not for consumers: describing groups, creating and deleting topics, for tests and tools; imported by name only.

Sources: KIP-195, 229, 339, 496, 516, 848, 932, 1226.
"""

from uuid import UUID

from ...values import frozen
from .base import Request, Response, Struct, int8, int16, int32, int64, since


@frozen(kw_only=True)
class DescribedGroupMember(Struct):
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None = since(4, default=None)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""  # an encoded ``ConsumerProtocolSubscription``
    member_assignment: bytes = b""  # an encoded ``ConsumerProtocolAssignment``


@frozen(kw_only=True)
class DescribedGroup(Struct):
    """A classic group."""

    error_code: int16 = 0
    error_message: str | None = since(6, default=None)
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""  # the assignor in use
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int32 = since(3, default=-(2**31))  # bit set, or the smallest int if not asked for


@frozen(kw_only=True)
class DescribeGroupsResponse(Response):
    """Classic groups."""

    throttle_time_ms: int32 = since(1, default=0)
    groups: tuple[DescribedGroup, ...] = ()


@frozen(kw_only=True)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """Ask for the members of classic groups."""

    groups: tuple[str, ...] = ()
    include_authorized_operations: bool = since(3, default=False)


@frozen(kw_only=True)
class ListedGroup(Struct):
    """A group in a list."""

    group_id: str
    protocol_type: str = ""
    group_state: str = since(4, default="")
    group_type: str = since(5, default="")


@frozen(kw_only=True)
class ListGroupsResponse(Response):
    """Groups that a broker coordinates."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
    groups: tuple[ListedGroup, ...] = ()


@frozen(kw_only=True)
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Ask a broker for the groups it coordinates."""

    states_filter: tuple[str, ...] = since(4, default=())  # (): all states
    types_filter: tuple[str, ...] = since(5, default=())  # (): all types


@frozen(kw_only=True)
class NamedTopicPartitions(Struct):
    """Partitions of one topic, by id and name."""

    topic_id: UUID | None
    topic_name: str
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class NamedAssignment(Struct):
    """Partitions of one member."""

    topic_partitions: tuple[NamedTopicPartitions, ...] = ()


@frozen(kw_only=True)
class ConsumerGroupMember(Struct):
    """A member of a group under the consumer protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    assignment: NamedAssignment = NamedAssignment()  # what it has
    target_assignment: NamedAssignment = NamedAssignment()  # what it should have
    member_type: int8 = since(1, default=-1)  # -1: unknown, 0: classic, 1: consumer


@frozen(kw_only=True)
class DescribedConsumerGroup(Struct):
    """A group under the consumer protocol."""

    error_code: int16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: tuple[ConsumerGroupMember, ...] = ()
    authorized_operations: int32 = -(2**31)  # bit set, or the smallest int if not asked for


@frozen(kw_only=True)
class ConsumerGroupDescribeResponse(Response):
    """Groups under the consumer protocol."""

    throttle_time_ms: int32 = 0
    groups: tuple[DescribedConsumerGroup, ...] = ()


@frozen(kw_only=True)
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    """Ask for the members of groups under the consumer protocol."""

    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


@frozen(kw_only=True)
class CreatableReplicaAssignment(Struct):
    """Where the replicas of one new partition are to be."""

    partition_index: int32
    broker_ids: tuple[int32, ...] = ()


@frozen(kw_only=True)
class CreatableTopicConfig(Struct):
    """One setting of a new topic."""

    name: str
    value: str | None = None


@frozen(kw_only=True)
class CreatableTopic(Struct):
    """A topic to create."""

    name: str
    num_partitions: int32 = -1  # -1: the broker's default, or as assigned
    replication_factor: int16 = -1  # -1: the broker's default, or as assigned
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@frozen(kw_only=True)
class CreatableTopicConfigs(Struct):
    """One setting of a created topic."""

    name: str
    value: str | None = None
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False


@frozen(kw_only=True)
class CreatableTopicResult(Struct):
    """Whether one topic was created."""

    name: str
    topic_id: UUID | None = since(7, default=None)  # id of the topic
    error_code: int16 = 0
    error_message: str | None = None
    topic_config_error_code: int16 = since(5, tag=0, default=0)  # why ``configs`` is None
    num_partitions: int32 = since(5, default=-1)
    replication_factor: int16 = since(5, default=-1)
    configs: tuple[CreatableTopicConfigs, ...] | None = since(5, default=())


@frozen(kw_only=True)
class CreateTopicsResponse(Response):
    """Which topics were created."""

    throttle_time_ms: int32 = 0
    topics: tuple[CreatableTopicResult, ...] = ()


@frozen(kw_only=True)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Create topics."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: int32 = 60_000
    validate_only: bool = False


@frozen(kw_only=True)
class DeleteTopicState(Struct):
    """A topic to delete, by name, or by id with no name."""

    name: str | None = None
    topic_id: UUID | None = None


@frozen(kw_only=True)
class DeletableTopicResult(Struct):
    """Whether one topic was deleted."""

    name: str | None = since(0, null=6, default=None)
    topic_id: UUID | None = since(6, default=None)
    error_code: int16 = 0
    error_message: str | None = since(5, default=None)


@frozen(kw_only=True)
class DeleteTopicsResponse(Response):
    """Which topics were deleted."""

    throttle_time_ms: int32 = 0
    responses: tuple[DeletableTopicResult, ...] = ()


@frozen(kw_only=True)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Delete topics."""

    topics: tuple[DeleteTopicState, ...] = ()
    timeout_ms: int32 = 60_000


@frozen(kw_only=True)
class CreatePartitionsAssignment(Struct):
    """Where the replicas of one new partition are to be."""

    broker_ids: tuple[int32, ...] = ()


@frozen(kw_only=True)
class CreatePartitionsTopic(Struct):
    """A topic to grow."""

    name: str
    count: int32  # partitions that it is to have, the old ones included
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None  # of the new partitions; None: the broker decides


@frozen(kw_only=True)
class CreatePartitionsTopicResult(Struct):
    """Whether one topic has grown."""

    name: str
    error_code: int16 = 0
    error_message: str | None = None


@frozen(kw_only=True)
class CreatePartitionsResponse(Response):
    """Which topics have grown."""

    throttle_time_ms: int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


@frozen(kw_only=True)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Give topics more partitions."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: int32 = 60_000
    validate_only: bool = False


@frozen(kw_only=True)
class DeletableGroupResult(Struct):
    """Whether one group was deleted."""

    group_id: str
    error_code: int16 = 0


@frozen(kw_only=True)
class DeleteGroupsResponse(Response):
    """Which groups were deleted."""

    throttle_time_ms: int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()


@frozen(kw_only=True)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Delete groups that have no members, with what they have committed."""

    groups_names: tuple[str, ...] = ()


@frozen(kw_only=True)
class OffsetDeleteResponsePartition(Struct):
    """Whether the offset of one partition was deleted."""

    partition_index: int32
    error_code: int16 = 0


@frozen(kw_only=True)
class OffsetDeleteResponseTopic(Struct):
    """Whether the offsets of one topic were deleted."""

    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


@frozen(kw_only=True)
class OffsetDeleteResponse(Response):
    """Which offsets were deleted."""

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()


@frozen(kw_only=True)
class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset is to be deleted."""

    partition_index: int32


@frozen(kw_only=True)
class OffsetDeleteRequestTopic(Struct):
    """A topic whose offsets are to be deleted."""

    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


@frozen(kw_only=True)
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Delete offsets that a group has committed for topics it does not read (KIP-496)."""

    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


# --- share groups (KIP-932) ----------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ShareGroupMember(Struct):
    """A member of a share group."""

    member_id: str
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    assignment: NamedAssignment = NamedAssignment()


@frozen(kw_only=True)
class DescribedShareGroup(Struct):
    """A share group."""

    error_code: int16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: tuple[ShareGroupMember, ...] = ()
    authorized_operations: int32 = -(2**31)  # bit set, or the smallest int if not asked for


@frozen(kw_only=True)
class ShareGroupDescribeResponse(Response):
    """Share groups."""

    throttle_time_ms: int32 = 0
    groups: tuple[DescribedShareGroup, ...] = ()


@frozen(kw_only=True)
class ShareGroupDescribeRequest(Request[ShareGroupDescribeResponse]):
    """Ask for the members of share groups."""

    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


@frozen(kw_only=True)
class SharePartitionOffset(Struct):
    """Where a share group stands in a partition."""

    partition_index: int32
    start_offset: int64 = -1  # the first offset that is not settled; -1: none yet
    leader_epoch: int32 = -1
    lag: int64 = since(1, default=-1)  # records that are not settled; -1: not known
    error_code: int16 = 0
    error_message: str | None = None


@frozen(kw_only=True)
class ShareTopicOffsets(Struct):
    """Where a share group stands in a topic."""

    topic_name: str
    topic_id: UUID | None
    partitions: tuple[SharePartitionOffset, ...] = ()


@frozen(kw_only=True)
class ShareGroupOffsets(Struct):
    """Where a share group stands."""

    group_id: str
    topics: tuple[ShareTopicOffsets, ...] = ()
    error_code: int16 = 0
    error_message: str | None = None


@frozen(kw_only=True)
class DescribeShareGroupOffsetsResponse(Response):
    """Where share groups stand."""

    throttle_time_ms: int32 = 0
    groups: tuple[ShareGroupOffsets, ...] = ()


@frozen(kw_only=True)
class ShareTopicChoice(Struct):
    """Partitions of a topic that are asked about."""

    topic_name: str
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class ShareGroupChoice(Struct):
    """A share group that is asked about."""

    group_id: str
    topics: tuple[ShareTopicChoice, ...] | None = None  # None: all


@frozen(kw_only=True)
class DescribeShareGroupOffsetsRequest(Request[DescribeShareGroupOffsetsResponse]):
    """Ask where share groups stand."""

    groups: tuple[ShareGroupChoice, ...] = ()


@frozen(kw_only=True)
class AlteredPartition(Struct):
    """Whether a partition was moved."""

    partition_index: int32
    error_code: int16 = 0
    error_message: str | None = None


@frozen(kw_only=True)
class AlteredTopic(Struct):
    """Whether the partitions of a topic were moved."""

    topic_name: str
    topic_id: UUID | None
    partitions: tuple[AlteredPartition, ...] = ()


@frozen(kw_only=True)
class AlterShareGroupOffsetsResponse(Response):
    """Which partitions were moved."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: tuple[AlteredTopic, ...] = ()


@frozen(kw_only=True)
class PartitionToAlter(Struct):
    """Where a share group is to be in a partition."""

    partition_index: int32
    start_offset: int64


@frozen(kw_only=True)
class TopicToAlter(Struct):
    """Where a share group is to be in a topic."""

    topic_name: str
    partitions: tuple[PartitionToAlter, ...] = ()


@frozen(kw_only=True)
class AlterShareGroupOffsetsRequest(Request[AlterShareGroupOffsetsResponse]):
    """Move a share group that has no members."""

    group_id: str
    topics: tuple[TopicToAlter, ...] = ()


@frozen(kw_only=True)
class DeletedOffsets(Struct):
    """Whether a topic was forgotten."""

    topic_name: str
    topic_id: UUID | None
    error_code: int16 = 0
    error_message: str | None = None


@frozen(kw_only=True)
class DeleteShareGroupOffsetsResponse(Response):
    """Which topics were forgotten."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: tuple[DeletedOffsets, ...] = ()


@frozen(kw_only=True)
class TopicToForget(Struct):
    """A topic that a share group is to forget."""

    topic_name: str


@frozen(kw_only=True)
class DeleteShareGroupOffsetsRequest(Request[DeleteShareGroupOffsetsResponse]):
    """Have a share group that has no members forget where it stands in topics."""

    group_id: str
    topics: tuple[TopicToForget, ...] = ()


# --- configurations (KIP-339) --------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class AlteredResource(Struct):
    """Whether the configuration of a resource was changed."""

    error_code: int16 = 0
    error_message: str | None = None
    resource_type: int8
    resource_name: str


@frozen(kw_only=True)
class IncrementalAlterConfigsResponse(Response):
    """Which configurations were changed."""

    throttle_time_ms: int32 = 0
    responses: tuple[AlteredResource, ...] = ()


@frozen(kw_only=True)
class AlterableConfig(Struct):
    """One setting to change."""

    name: str
    config_operation: int8 = 0  # 0: set, 1: delete, 2: append, 3: subtract
    value: str | None = None


@frozen(kw_only=True)
class ConfiguredResource(Struct):
    """Settings of one resource to change."""

    resource_type: int8  # 2: topic, 4: broker, 32: group
    resource_name: str
    configs: tuple[AlterableConfig, ...] = ()


@frozen(kw_only=True)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Change some settings of resources, and leave the others."""

    resources: tuple[ConfiguredResource, ...] = ()
    validate_only: bool = False
