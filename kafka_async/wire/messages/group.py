"""Being a member of a group: the classic protocol, the consumer protocol, and the data that classic members exchange.

Sources: KIP-62, 345, 394, 429, 559, 800, 814, 848, 881, 1082.
"""

from uuid import UUID

from ...values import frozen
from .base import Request, Response, Struct, int16, int32, since


@frozen(kw_only=True)
class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, and its data for the leader."""

    name: str
    metadata: bytes  # an encoded ``ConsumerProtocolSubscription``


@frozen(kw_only=True)
class JoinGroupResponseMember(Struct):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None = since(5, default=None)
    metadata: bytes = b""  # an encoded ``ConsumerProtocolSubscription``


@frozen(kw_only=True)
class JoinGroupResponse(Response):
    """The generation joined; the leader also gets the members."""

    throttle_time_ms: int32 = since(2, default=0)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = since(7, default=None)
    protocol_name: str | None = since(0, null=7, default="")  # the assignor chosen; None with an error from v7
    leader: str = ""  # member id of the leader
    skip_assignment: bool = since(9, default=False)  # the leader is a returning static one and must not assign (KIP-814)
    member_id: str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()  # for the leader only


@frozen(kw_only=True)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Join a classic group; waits for the other members."""

    group_id: str
    session_timeout_ms: int32  # silence after which the member is out
    rebalance_timeout_ms: int32 = -1  # longest wait for the member to rejoin (KIP-62)
    member_id: str = ""  # empty at first; the broker gives one (KIP-394)
    group_instance_id: str | None = since(5, default=None)  # static member (KIP-345)
    protocol_type: str = "consumer"
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()  # best first
    reason: str | None = since(8, default=None)  # why, for the broker's log (KIP-800)


@frozen(kw_only=True)
class SyncGroupRequestAssignment(Struct):
    """What the leader gives one member."""

    member_id: str
    assignment: bytes  # an encoded ``ConsumerProtocolAssignment``


@frozen(kw_only=True)
class SyncGroupResponse(Response):
    """What this member was given."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)
    assignment: bytes = b""  # an encoded ``ConsumerProtocolAssignment``, or empty


@frozen(kw_only=True)
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Hand in the assignments (leader) and wait for one's own."""

    group_id: str
    generation_id: int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)  # static member
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)  # the assignor used
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()  # from the leader only


@frozen(kw_only=True)
class HeartbeatResponse(Response):
    """Whether the generation still holds."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0


@frozen(kw_only=True)
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Sign of life of a classic member."""

    group_id: str
    generation_id: int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)  # static member


@frozen(kw_only=True)
class MemberIdentity(Struct):
    """A member that leaves."""

    member_id: str
    group_instance_id: str | None = None  # static member
    reason: str | None = since(5, default=None)  # why, for the broker's log (KIP-800)


@frozen(kw_only=True)
class MemberResponse(Struct):
    """Whether one member has left."""

    member_id: str
    group_instance_id: str | None = None
    error_code: int16 = 0


@frozen(kw_only=True)
class LeaveGroupResponse(Response):
    """Whether the members have left. Before v3 the only error is the top-level one."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
    members: tuple[MemberResponse, ...] = since(3, default=())


@frozen(kw_only=True)
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Leave a classic group. Before v3 only one member can leave at a time."""

    group_id: str
    members: tuple[MemberIdentity, ...] = ()


@frozen(kw_only=True)
class TopicPartitions(Struct):
    """Partitions of one topic, by id."""

    topic_id: UUID | None
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class Assignment(Struct):
    """The partitions that the coordinator wants a member to have."""

    topic_partitions: tuple[TopicPartitions, ...] = ()


@frozen(kw_only=True)
class ConsumerGroupHeartbeatResponse(Response):
    """The member's epoch and, if it changed, its target assignment."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0  # when the next heartbeat is due
    assignment: Assignment | None = None  # None: unchanged


@frozen(kw_only=True)
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """The whole consumer protocol: join (epoch 0), stay, acknowledge, leave (-1, or -2 for a static member to come back)."""

    group_id: str
    member_id: str = ""  # chosen by the client from v1 (KIP-1082), given by the broker in v0
    member_epoch: int32
    instance_id: str | None = None  # static member; None: unchanged or none
    rack_id: str | None = None  # None: unchanged or none
    rebalance_timeout_ms: int32 = -1  # -1: unchanged
    subscribed_topic_names: tuple[str, ...] | None = None  # None: unchanged
    subscribed_topic_regex: str | None = since(1, default=None)  # RE2 pattern; None: unchanged
    server_assignor: str | None = None  # None: unchanged or the broker's choice
    topic_partitions: tuple[TopicPartitions, ...] | None = None  # partitions owned; None: unchanged


@frozen(kw_only=True)
class ConsumerProtocolTopicPartition(Struct):
    """Partitions of one topic, by name."""

    topic: str
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class ConsumerProtocolSubscription(Struct):
    """What a classic member sends to the leader."""

    topics: tuple[str, ...] = ()  # topics subscribed to
    user_data: bytes | None = None  # the assignor's own
    owned_partitions: tuple[ConsumerProtocolTopicPartition, ...] = since(1, default=())  # partitions still held (KIP-429)
    generation_id: int32 = since(2, default=-1)  # generation in which they were assigned
    rack_id: str | None = since(3, default=None)  # rack of the member (KIP-881)


@frozen(kw_only=True)
class ConsumerProtocolAssignment(Struct):
    """What the leader gives a classic member."""

    assigned_partitions: tuple[ConsumerProtocolTopicPartition, ...] = ()
    user_data: bytes | None = None  # the assignor's own
