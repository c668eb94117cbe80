"""Writing: Produce, and the requests of producers before and after it; for tools and tests only.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Must never do anything. Sources: ProduceRequest.json, InitProducerIdRequest.json,
AddPartitionsToTxnRequest.json, AddOffsetsToTxnRequest.json, EndTxnRequest.json, TxnOffsetCommitRequest.json,
DeleteRecordsRequest.json and their responses; KIP-98, 360, 447, 516, 890.
"""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
from .base import Api, Request, Response, Struct
from .fetch import LeaderIdAndEpoch, NodeEndpoint


@frozen(kw_only=True)
class PartitionProduceData(Struct):
    """Records for one partition."""

    index: int
    records: bytes | None = None  # batches


@frozen(kw_only=True)
class TopicProduceData(Struct):
    """Records for one topic. The version in use decides whether the name or the id goes on the wire."""

    name: str = ""  # name of the topic; v3-12
    topic_id: UUID | None = None  # id of the topic; v13+
    partition_data: tuple[PartitionProduceData, ...] = ()


@frozen(kw_only=True)
class BatchIndexAndErrorMessage(Struct):
    """A record that the broker refused."""

    batch_index: int
    batch_index_error_message: str | None = None


@frozen(kw_only=True)
class PartitionProduceResponse(Struct):
    """Where the records of one partition are."""

    index: int
    error_code: int = 0
    base_offset: int = -1  # offset of the first record
    log_append_time_ms: int = -1  # the timestamp that the broker gave the records; -1: they have the producer's own
    log_start_offset: int = -1  # v5+
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()  # v8+
    error_message: str | None = None  # v8+
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()  # v10+


@frozen(kw_only=True)
class TopicProduceResponse(Struct):
    """What became of the records for one topic, under its name or its id as the request had it."""

    name: str = ""  # name of the topic; v3-12
    topic_id: UUID | None = None  # id of the topic; v13+
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


@frozen(kw_only=True)
class ProduceResponse(Response):
    """What became of the records."""

    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # addresses of the leaders hinted at; v10+


@frozen(kw_only=True)
class ProduceRequest(Request[ProduceResponse]):
    """Append records. With ``acks`` 0 there is no answer."""

    api: ClassVar = Api.PRODUCE
    response: ClassVar = ProduceResponse
    transactional_id: str | None = None
    acks: int = -1  # -1: when all in-sync replicas have them, 1: when the leader has, 0: no answer
    timeout_ms: int = 30_000
    topic_data: tuple[TopicProduceData, ...] = ()


@frozen(kw_only=True)
class InitProducerIdResponse(Response):
    """The id and epoch of a producer."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0


@frozen(kw_only=True)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Ask for an id; with a transactional id, fence its former owner and end the transaction that it left open."""

    api: ClassVar = Api.INIT_PRODUCER_ID
    response: ClassVar = InitProducerIdResponse
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: int = -1  # to have its epoch raised (KIP-360); v3+
    producer_epoch: int = -1  # v3+


@frozen(kw_only=True)
class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: tuple[int, ...] = ()


@frozen(kw_only=True)
class AddPartitionsToTxnPartitionResult(Struct):
    """Whether one partition was added."""

    partition_index: int
    partition_error_code: int = 0


@frozen(kw_only=True)
class AddPartitionsToTxnTopicResult(Struct):
    """Whether the partitions of one topic were added."""

    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


@frozen(kw_only=True)
class AddPartitionsToTxnResponse(Response):
    """Whether the partitions were added."""

    throttle_time_ms: int = 0
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = ()


@frozen(kw_only=True)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Say which partitions a transaction is about to write to. Newer versions are for brokers."""

    api: ClassVar = Api.ADD_PARTITIONS_TO_TXN
    response: ClassVar = AddPartitionsToTxnResponse
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


@frozen(kw_only=True)
class AddOffsetsToTxnResponse(Response):
    """Whether the group was added."""

    throttle_time_ms: int = 0
    error_code: int = 0


@frozen(kw_only=True)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Say that a transaction is about to commit offsets of a group."""

    api: ClassVar = Api.ADD_OFFSETS_TO_TXN
    response: ClassVar = AddOffsetsToTxnResponse
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@frozen(kw_only=True)
class EndTxnResponse(Response):
    """Whether the transaction has ended."""

    throttle_time_ms: int = 0
    error_code: int = 0


@frozen(kw_only=True)
class EndTxnRequest(Request[EndTxnResponse]):
    """End a transaction."""

    api: ClassVar = Api.END_TXN
    response: ClassVar = EndTxnResponse
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@frozen(kw_only=True)
class TxnOffsetCommitRequestPartition(Struct):
    """The position to store for one partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1  # v2+
    committed_metadata: str | None = None


@frozen(kw_only=True)
class TxnOffsetCommitRequestTopic(Struct):
    """Positions in one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


@frozen(kw_only=True)
class TxnOffsetCommitResponsePartition(Struct):
    """Whether one position was taken."""

    partition_index: int
    error_code: int = 0


@frozen(kw_only=True)
class TxnOffsetCommitResponseTopic(Struct):
    """Outcome of one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


@frozen(kw_only=True)
class TxnOffsetCommitResponse(Response):
    """Which positions were taken."""

    throttle_time_ms: int = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


@frozen(kw_only=True)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Store positions when the transaction commits."""

    api: ClassVar = Api.TXN_OFFSET_COMMIT
    response: ClassVar = TxnOffsetCommitResponse
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int = -1  # v3+
    member_id: str = ""  # v3+
    group_instance_id: str | None = None  # v3+
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsPartition(Struct):
    """Before which offset to delete."""

    partition_index: int
    offset: int  # -1: the high watermark


@frozen(kw_only=True)
class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsPartitionResult(Struct):
    """Where one partition begins now."""

    partition_index: int
    low_watermark: int = -1
    error_code: int = 0


@frozen(kw_only=True)
class DeleteRecordsTopicResult(Struct):
    """Where the partitions of one topic begin now."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsResponse(Response):
    """Where the partitions begin now."""

    throttle_time_ms: int = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Delete records by offset."""

    api: ClassVar = Api.DELETE_RECORDS
    response: ClassVar = DeleteRecordsResponse
    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: int = 30_000
