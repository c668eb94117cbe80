"""Reading a log: Fetch, ListOffsets, OffsetForLeaderEpoch (KIP-98, 227, 320, 392, 516, 951)."""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
from .base import NotOurs, Request, Response, Struct, int8, int16, int32, int64, since


@frozen(kw_only=True)
class FetchPartition(Struct):
    """A partition to read, and from where."""

    partition: int32
    current_leader_epoch: int32 = since(9, default=-1)  # leader epoch that we know, to fence stale brokers (KIP-320)
    fetch_offset: int64  # first offset wanted
    last_fetched_epoch: int32 = since(12, default=-1)  # epoch of the last record read, to detect divergence
    log_start_offset: ClassVar = NotOurs(int64, default=-1, first=5)  # a replica's
    partition_max_bytes: int32  # most bytes wanted of this partition; the first batch is sent whole anyway (KIP-74)
    replica_directory_id: ClassVar = NotOurs(UUID | None, default=None, first=17, tag=0)  # a replica's


@frozen(kw_only=True)
class FetchTopic(Struct):
    """Partitions of one topic to read. The version in use decides whether the name or the id goes on the wire."""

    topic: str = since(0, until=12, default="")  # name of the topic
    topic_id: UUID | None = since(13, default=None)  # id of the topic
    partitions: tuple[FetchPartition, ...] = ()


@frozen(kw_only=True)
class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = since(0, until=12, default="")  # name of the topic
    topic_id: UUID | None = since(13, default=None)  # id of the topic
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class AbortedTransaction(Struct):
    """A transaction whose records a reader of committed data has to skip (KIP-98)."""

    producer_id: int64
    first_offset: int64  # offset of the first record of the transaction


@frozen(kw_only=True)
class DivergingEpoch(Struct):
    """Where the leader's log parts from what we have read; -1 if it does not."""

    epoch: int32 = -1  # highest epoch both sides share
    end_offset: int64 = -1  # offset after the last record of that epoch


@frozen(kw_only=True)
class LeaderIdAndEpoch(Struct):
    """A hint at the partition's new leader; -1 if there is none (KIP-951)."""

    leader_id: int32 = -1
    leader_epoch: int32 = -1


@frozen(kw_only=True)
class PartitionData(Struct):
    """What came back of one partition."""

    partition_index: int32
    error_code: int16 = 0
    high_watermark: int64 = -1  # offset after the last replicated record
    last_stable_offset: int64 = -1  # offset before which every transaction is decided
    log_start_offset: int64 = since(5, default=-1)  # first offset that still exists
    diverging_epoch: DivergingEpoch = since(12, tag=0, default=DivergingEpoch())  # set if the log was truncated below our position
    # set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH
    current_leader: LeaderIdAndEpoch = since(12, tag=1, default=LeaderIdAndEpoch())
    snapshot_id: ClassVar = NotOurs(object, default=None, first=12, tag=2)  # for replicas
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None  # None under read_uncommitted
    preferred_read_replica: int32 = since(11, default=-1)  # closer replica to read from, or -1 (KIP-392)
    records: bytes | None = None  # batches; the last one may be cut short


@frozen(kw_only=True)
class FetchableTopicResponse(Struct):
    """What came back of one topic, under its name or its id as the request had it."""

    topic: str = since(0, until=12, default="")  # name of the topic
    topic_id: UUID | None = since(13, default=None)  # id of the topic
    partitions: tuple[PartitionData, ...] = ()


@frozen(kw_only=True)
class NodeEndpoint(Struct):
    """Address of a leader that the answer hints at (KIP-951)."""

    node_id: int32
    host: str
    port: int32
    rack: str | None = None


@frozen(kw_only=True)
class FetchResponse(Response):
    """Records of the partitions that have some, and errors."""

    throttle_time_ms: int32 = 0
    error_code: int16 = since(7, default=0)  # error of the whole answer, such as a lost fetch session
    session_id: int32 = since(7, default=0)  # fetch session, or 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = since(16, tag=0, default=())  # addresses of the leaders hinted at


@frozen(kw_only=True)
class FetchRequest(Request[FetchResponse]):
    """Ask for records; with a session (KIP-227) only what changed since the last request is listed."""

    cluster_id: ClassVar = NotOurs(str | None, default=None, first=12, tag=0)  # a replica's
    replica_id: ClassVar = NotOurs(int32, default=-1, until=14)  # a consumer
    replica_state: ClassVar = NotOurs(object, default=None, first=15, tag=1)  # a replica's
    max_wait_ms: int32  # longest the broker may hold the request back
    min_bytes: int32 = 1  # bytes worth answering for before max_wait_ms is over
    max_bytes: int32 = 2**31 - 1  # most bytes wanted in all; the first batch is sent whole anyway
    isolation_level: int8 = 0  # 0: everything, 1: committed transactions only
    session_id: int32 = since(7, default=0)  # fetch session, or 0 for a new one
    session_epoch: int32 = since(7, default=-1)  # -1: no session, 0: open one, then counting up
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: tuple[ForgottenTopic, ...] = since(7, default=())  # what to drop from the session
    rack_id: str = since(11, default="")  # rack of this client, for the closest replica (KIP-392)


@frozen(kw_only=True)
class ListOffsetsPartition(Struct):
    """A partition and the time looked for."""

    partition_index: int32
    current_leader_epoch: int32 = since(4, default=-1)  # leader epoch that we know, to fence stale brokers
    timestamp: int64  # ms since the epoch, or -1 latest, -2 earliest, -3 highest timestamp, -4 .. -6 tiered storage


@frozen(kw_only=True)
class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...] = ()


@frozen(kw_only=True)
class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition."""

    partition_index: int32
    error_code: int16 = 0
    timestamp: int64 = -1  # timestamp of the record found, or -1
    offset: int64 = -1  # offset found, or -1 for none
    leader_epoch: int32 = since(4, default=-1)  # epoch of the record found, or -1


@frozen(kw_only=True)
class ListOffsetsTopicResponse(Struct):
    """Offsets found in one topic."""

    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


@frozen(kw_only=True)
class ListOffsetsResponse(Response):
    """Offsets found."""

    throttle_time_ms: int32 = since(2, default=0)
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


@frozen(kw_only=True)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Look up offsets by time."""

    replica_id: ClassVar = NotOurs(int32, default=-1)  # a consumer
    isolation_level: int8 = since(2, default=0)  # 1: the latest offset is the last stable one
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: int32 = since(10, default=0)  # longest the broker may read from remote storage (KIP-1075)


@frozen(kw_only=True)
class OffsetForLeaderPartition(Struct):
    """A partition and the epoch whose end is looked for."""

    partition: int32
    current_leader_epoch: int32 = -1  # leader epoch that we know, to fence stale brokers
    leader_epoch: int32  # epoch of the last record read


@frozen(kw_only=True)
class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


@frozen(kw_only=True)
class EpochEndOffset(Struct):
    """Where an epoch ends in the leader's log."""

    error_code: int16 = 0
    partition: int32
    leader_epoch: int32 = -1  # the epoch asked for or the highest one below it
    end_offset: int64 = -1  # offset after the last record of that epoch


@frozen(kw_only=True)
class OffsetForLeaderTopicResult(Struct):
    """Epoch ends of one topic."""

    topic: str
    partitions: tuple[EpochEndOffset, ...] = ()


@frozen(kw_only=True)
class OffsetForLeaderEpochResponse(Response):
    """Epoch ends."""

    throttle_time_ms: int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()


@frozen(kw_only=True)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Ask where an epoch ends, to detect truncation (KIP-320). Before v3 the broker wants cluster permissions for it."""

    replica_id: ClassVar = NotOurs(int32, default=-1, first=3)  # a consumer
    topics: tuple[OffsetForLeaderTopic, ...] = ()
