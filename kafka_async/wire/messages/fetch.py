"""Reading a log: Fetch, ListOffsets, OffsetForLeaderEpoch.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Fields that only a replica uses are left out (``layout.SKIPPED``). Must never do anything.
Sources: FetchRequest.json, ListOffsetsRequest.json, OffsetForLeaderEpochRequest.json and their responses; KIP-98, 227, 320, 392,
516, 951.
"""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
from .base import Api, Request, Response, Struct


@frozen(kw_only=True)
class FetchPartition(Struct):
    """A partition to read, and from where."""

    partition: int
    current_leader_epoch: int = -1  # leader epoch that we know, to fence stale brokers (KIP-320); v9+
    fetch_offset: int  # first offset wanted
    last_fetched_epoch: int = -1  # epoch of the last record read, to detect divergence; v12+
    partition_max_bytes: int  # most bytes wanted of this partition; the first batch is sent whole anyway (KIP-74)


@frozen(kw_only=True)
class FetchTopic(Struct):
    """Partitions of one topic to read. The version in use decides whether the name or the id goes on the wire."""

    topic: str = ""  # name of the topic; v4-12
    topic_id: UUID | None = None  # id of the topic; v13+
    partitions: tuple[FetchPartition, ...] = ()


@frozen(kw_only=True)
class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = ""  # name of the topic; v7-12
    topic_id: UUID | None = None  # id of the topic; v13+
    partitions: tuple[int, ...] = ()


@frozen(kw_only=True)
class AbortedTransaction(Struct):
    """A transaction whose records a reader of committed data has to skip (KIP-98)."""

    producer_id: int
    first_offset: int  # offset of the first record of the transaction


@frozen(kw_only=True)
class DivergingEpoch(Struct):
    """Where the leader's log parts from what we have read; -1 if it does not."""

    epoch: int = -1  # highest epoch both sides share
    end_offset: int = -1  # offset after the last record of that epoch


@frozen(kw_only=True)
class LeaderIdAndEpoch(Struct):
    """A hint at the partition's new leader; -1 if there is none (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


@frozen(kw_only=True)
class PartitionData(Struct):
    """What came back of one partition."""

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1  # offset after the last replicated record
    last_stable_offset: int = -1  # offset before which every transaction is decided
    log_start_offset: int = -1  # first offset that still exists; v5+
    diverging_epoch: DivergingEpoch = DivergingEpoch()  # set if the log was truncated below our position; v12+
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()  # set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH; v12+
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None  # None under read_uncommitted
    preferred_read_replica: int = -1  # closer replica to read from, or -1 (KIP-392); v11+
    records: bytes | None = None  # batches; the last one may be cut short


@frozen(kw_only=True)
class FetchableTopicResponse(Struct):
    """What came back of one topic, under its name or its id as the request had it."""

    topic: str = ""  # name of the topic; v4-12
    topic_id: UUID | None = None  # id of the topic; v13+
    partitions: tuple[PartitionData, ...] = ()


@frozen(kw_only=True)
class NodeEndpoint(Struct):
    """Address of a leader that the answer hints at (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@frozen(kw_only=True)
class FetchResponse(Response):
    """Records of the partitions that have some, and errors."""

    throttle_time_ms: int = 0
    error_code: int = 0  # error of the whole answer, such as a lost fetch session; v7+
    session_id: int = 0  # fetch session, or 0; v7+
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # addresses of the leaders hinted at; v16+


@frozen(kw_only=True)
class FetchRequest(Request[FetchResponse]):
    """Ask for records; with a session (KIP-227) only what changed since the last request is listed."""

    api: ClassVar = Api.FETCH
    response: ClassVar = FetchResponse
    max_wait_ms: int  # longest the broker may hold the request back
    min_bytes: int = 1  # bytes worth answering for before max_wait_ms is over
    max_bytes: int = 2**31 - 1  # most bytes wanted in all; the first batch is sent whole anyway
    isolation_level: int = 0  # 0: everything, 1: committed transactions only
    session_id: int = 0  # fetch session, or 0 for a new one; v7+
    session_epoch: int = -1  # -1: no session, 0: open one, then counting up; v7+
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()  # what to drop from the session; v7+
    rack_id: str = ""  # rack of this client, for the closest replica (KIP-392); v11+


@frozen(kw_only=True)
class ListOffsetsPartition(Struct):
    """A partition and the time looked for."""

    partition_index: int
    current_leader_epoch: int = -1  # leader epoch that we know, to fence stale brokers; v4+
    timestamp: int  # ms since the epoch, or -1 latest, -2 earliest, -3 highest timestamp, -4 .. -6 tiered storage


@frozen(kw_only=True)
class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...] = ()


@frozen(kw_only=True)
class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition."""

    partition_index: int
    error_code: int = 0
    timestamp: int = -1  # timestamp of the record found, or -1
    offset: int = -1  # offset found, or -1 for none
    leader_epoch: int = -1  # epoch of the record found, or -1; v4+


@frozen(kw_only=True)
class ListOffsetsTopicResponse(Struct):
    """Offsets found in one topic."""

    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


@frozen(kw_only=True)
class ListOffsetsResponse(Response):
    """Offsets found."""

    throttle_time_ms: int = 0  # v2+
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


@frozen(kw_only=True)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Look up offsets by time."""

    api: ClassVar = Api.LIST_OFFSETS
    response: ClassVar = ListOffsetsResponse
    isolation_level: int = 0  # 1: the latest offset is the last stable one; v2+
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: int = 0  # longest the broker may read from remote storage (KIP-1075); v10+


@frozen(kw_only=True)
class OffsetForLeaderPartition(Struct):
    """A partition and the epoch whose end is looked for."""

    partition: int
    current_leader_epoch: int = -1  # leader epoch that we know, to fence stale brokers
    leader_epoch: int  # epoch of the last record read


@frozen(kw_only=True)
class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


@frozen(kw_only=True)
class EpochEndOffset(Struct):
    """Where an epoch ends in the leader's log."""

    error_code: int = 0
    partition: int
    leader_epoch: int = -1  # the epoch asked for or the highest one below it
    end_offset: int = -1  # offset after the last record of that epoch


@frozen(kw_only=True)
class OffsetForLeaderTopicResult(Struct):
    """Epoch ends of one topic."""

    topic: str
    partitions: tuple[EpochEndOffset, ...] = ()


@frozen(kw_only=True)
class OffsetForLeaderEpochResponse(Response):
    """Epoch ends."""

    throttle_time_ms: int = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()


@frozen(kw_only=True)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Ask where an epoch ends, to detect truncation (KIP-320). Before v3 the broker wants cluster permissions for it."""

    api: ClassVar = Api.OFFSET_FOR_LEADER_EPOCH
    response: ClassVar = OffsetForLeaderEpochResponse
    topics: tuple[OffsetForLeaderTopic, ...] = ()
