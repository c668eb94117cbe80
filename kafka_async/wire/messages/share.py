"""Share groups (KIP-932): being a member, fetching records under a lock, acknowledging them.

KIP-1206 added a strict limit of records, KIP-1222 the renewal of locks.
"""

from uuid import UUID

from ...values import frozen
from .base import Request, Response, Struct, int8, int16, int32, int64, since


@frozen(kw_only=True)
class ShareTopicPartitions(Struct):
    """Partitions of one topic, by id."""

    topic_id: UUID | None
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class ShareAssignment(Struct):
    """The partitions that a member reads; others may read the same ones."""

    topic_partitions: tuple[ShareTopicPartitions, ...] = ()


@frozen(kw_only=True)
class ShareGroupHeartbeatResponse(Response):
    """The member's epoch and, if it changed or was asked for, its assignment."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0  # when the next heartbeat is due
    assignment: ShareAssignment | None = None  # None: unchanged


@frozen(kw_only=True)
class ShareGroupHeartbeatRequest(Request[ShareGroupHeartbeatResponse]):
    """Join (epoch 0), stay, leave (-1)."""

    group_id: str
    member_id: str  # chosen by the client, the same for all its life
    member_epoch: int32
    rack_id: str | None = None  # None: unchanged or none
    subscribed_topic_names: tuple[str, ...] | None = None  # None: unchanged


@frozen(kw_only=True)
class AcknowledgementBatch(Struct):
    """What becomes of a range of offsets: one type for all of them, or one for each.

    0: there is no record; 1: accepted; 2: released; 3: rejected; 4: the lock is renewed (version 2).
    """

    first_offset: int64
    last_offset: int64
    acknowledge_types: tuple[int8, ...] = ()


@frozen(kw_only=True)
class ShareFetchPartition(Struct):
    """A partition to read from now on, or to acknowledge records of."""

    partition_index: int32
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()  # in ascending order


@frozen(kw_only=True)
class ShareFetchTopic(Struct):
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: tuple[ShareFetchPartition, ...] = ()


@frozen(kw_only=True)
class ShareForgottenTopic(Struct):
    """Partitions to drop from the share session."""

    topic_id: UUID | None
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class ShareLeader(Struct):
    """A hint at the partition's new leader; -1 if there is none (KIP-951)."""

    leader_id: int32 = -1
    leader_epoch: int32 = -1


@frozen(kw_only=True)
class AcquiredRecords(Struct):
    """A range of offsets that are locked for this member, each delivered as often."""

    first_offset: int64
    last_offset: int64
    delivery_count: int16 = 0


@frozen(kw_only=True)
class SharePartitionData(Struct):
    """What came back of one partition, of its records and of its acknowledgements."""

    partition_index: int32
    error_code: int16 = 0
    error_message: str | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: ShareLeader = ShareLeader()  # set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH
    records: bytes = b""  # whole batches; only acquired records are ours
    acquired_records: tuple[AcquiredRecords, ...] = ()


@frozen(kw_only=True)
class ShareFetchableTopicResponse(Struct):
    """What came back of one topic."""

    topic_id: UUID | None
    partitions: tuple[SharePartitionData, ...] = ()


@frozen(kw_only=True)
class ShareNodeEndpoint(Struct):
    """Address of a leader that the answer hints at (KIP-951)."""

    node_id: int32
    host: str
    port: int32
    rack: str | None = None


@frozen(kw_only=True)
class ShareFetchResponse(Response):
    """Records, and what became of the acknowledgements that came with the request."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = 0  # for how long the records are locked
    responses: tuple[ShareFetchableTopicResponse, ...] = ()
    node_endpoints: tuple[ShareNodeEndpoint, ...] = ()  # addresses of the leaders hinted at


@frozen(kw_only=True)
class ShareFetchRequest(Request[ShareFetchResponse]):
    """Lock records of the session's partitions and return them; acknowledge others. Lists only what changes in the session."""

    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int32  # 0: open a session, then counting up; -1: close it
    max_wait_ms: int32  # longest the broker may hold the request back
    min_bytes: int32 = 1  # bytes worth answering for before max_wait_ms is over
    max_bytes: int32 = 2**31 - 1  # most bytes wanted in all
    max_records: int32 = 0  # most records wanted, to the next end of a batch; 0: acquire nothing
    batch_size: int32 = 0  # records that acquired ranges are split at
    share_acquire_mode: int8 = since(2, default=0)  # 0: whole batches are acquired, 1: max_records is strict
    is_renew_ack: bool = since(2, default=False)  # some acknowledgements renew locks, and nothing is fetched
    topics: tuple[ShareFetchTopic, ...] = ()
    forgotten_topics_data: tuple[ShareForgottenTopic, ...] = ()


@frozen(kw_only=True)
class ShareAcknowledgePartition(Struct):
    """A partition with records to acknowledge."""

    partition_index: int32
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()  # in ascending order


@frozen(kw_only=True)
class ShareAcknowledgeTopic(Struct):
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: tuple[ShareAcknowledgePartition, ...] = ()


@frozen(kw_only=True)
class ShareAcknowledgePartitionResponse(Struct):
    """What became of the acknowledgements of one partition: all of them, or none."""

    partition_index: int32
    error_code: int16 = 0
    error_message: str | None = None
    current_leader: ShareLeader = ShareLeader()  # set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH


@frozen(kw_only=True)
class ShareAcknowledgeTopicResponse(Struct):
    """What became of the acknowledgements of one topic."""

    topic_id: UUID | None
    partitions: tuple[ShareAcknowledgePartitionResponse, ...] = ()


@frozen(kw_only=True)
class ShareAcknowledgeResponse(Response):
    """What became of acknowledgements."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = since(2, default=0)  # for how long renewed records are locked
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = ()
    node_endpoints: tuple[ShareNodeEndpoint, ...] = ()  # addresses of the leaders hinted at


@frozen(kw_only=True)
class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    """Acknowledge records without fetching, or close the session: the broker then releases what is not acknowledged."""

    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int32  # never 0; -1: close the session
    is_renew_ack: bool = since(2, default=False)  # some acknowledgements renew locks
    topics: tuple[ShareAcknowledgeTopic, ...] = ()
