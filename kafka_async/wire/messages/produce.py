"""Writing, for tools and tests only: Produce, and the requests of producers before and after it (KIP-98, 360, 447, 516, 890)."""

from uuid import UUID

from ...values import frozen
from .base import Request, Response, Struct, int16, int32, int64, since
from .fetch import LeaderIdAndEpoch, NodeEndpoint


@frozen(kw_only=True)
class PartitionProduceData(Struct):
    """Records for one partition."""

    index: int32
    records: bytes | None = None  # batches


@frozen(kw_only=True)
class TopicProduceData(Struct):
    """Records for one topic. The version in use decides whether the name or the id goes on the wire."""

    name: str = since(0, until=12, default="")  # name of the topic
    topic_id: UUID | None = since(13, default=None)  # id of the topic
    partition_data: tuple[PartitionProduceData, ...] = ()


@frozen(kw_only=True)
class BatchIndexAndErrorMessage(Struct):
    """A record that the broker refused."""

    batch_index: int32
    batch_index_error_message: str | None = None


@frozen(kw_only=True)
class PartitionProduceResponse(Struct):
    """Where the records of one partition are."""

    index: int32
    error_code: int16 = 0
    base_offset: int64 = -1  # offset of the first record
    log_append_time_ms: int64 = -1  # the timestamp that the broker gave the records; -1: they have the producer's own
    log_start_offset: int64 = since(5, default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = since(8, default=())
    error_message: str | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch = since(10, tag=0, default=LeaderIdAndEpoch())


@frozen(kw_only=True)
class TopicProduceResponse(Struct):
    """What became of the records for one topic, under its name or its id as the request had it."""

    name: str = since(0, until=12, default="")  # name of the topic
    topic_id: UUID | None = since(13, default=None)  # id of the topic
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


@frozen(kw_only=True)
class ProduceResponse(Response):
    """What became of the records."""

    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: int32 = 0
    node_endpoints: tuple[NodeEndpoint, ...] = since(10, tag=0, default=())  # addresses of the leaders hinted at


@frozen(kw_only=True)
class ProduceRequest(Request[ProduceResponse]):
    """Append records. With ``acks`` 0 there is no answer."""

    transactional_id: str | None = None
    acks: int16 = -1  # -1: when all in-sync replicas have them, 1: when the leader has, 0: no answer
    timeout_ms: int32 = 30_000
    topic_data: tuple[TopicProduceData, ...] = ()


@frozen(kw_only=True)
class InitProducerIdResponse(Response):
    """The id and epoch of a producer."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0


@frozen(kw_only=True)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Ask for an id; with a transactional id, fence its former owner and end the transaction that it left open."""

    transactional_id: str | None = None
    transaction_timeout_ms: int32 = 60_000
    producer_id: int64 = since(3, default=-1)  # to have its epoch raised (KIP-360)
    producer_epoch: int16 = since(3, default=-1)


@frozen(kw_only=True)
class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: tuple[int32, ...] = ()


@frozen(kw_only=True)
class AddPartitionsToTxnPartitionResult(Struct):
    """Whether one partition was added."""

    partition_index: int32
    partition_error_code: int16 = 0


@frozen(kw_only=True)
class AddPartitionsToTxnTopicResult(Struct):
    """Whether the partitions of one topic were added."""

    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


@frozen(kw_only=True)
class AddPartitionsToTxnResponse(Response):
    """Whether the partitions were added."""

    throttle_time_ms: int32 = 0
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = ()


@frozen(kw_only=True)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Say which partitions a transaction is about to write to. Newer versions are for brokers."""

    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int64
    v3_and_below_producer_epoch: int16
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


@frozen(kw_only=True)
class AddOffsetsToTxnResponse(Response):
    """Whether the group was added."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


@frozen(kw_only=True)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Say that a transaction is about to commit offsets of a group."""

    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    group_id: str


@frozen(kw_only=True)
class EndTxnResponse(Response):
    """Whether the transaction has ended."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


@frozen(kw_only=True)
class EndTxnRequest(Request[EndTxnResponse]):
    """End a transaction."""

    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    committed: bool


@frozen(kw_only=True)
class TxnOffsetCommitRequestPartition(Struct):
    """The position to store for one partition."""

    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since(2, default=-1)
    committed_metadata: str | None = None


@frozen(kw_only=True)
class TxnOffsetCommitRequestTopic(Struct):
    """Positions in one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


@frozen(kw_only=True)
class TxnOffsetCommitResponsePartition(Struct):
    """Whether one position was taken."""

    partition_index: int32
    error_code: int16 = 0


@frozen(kw_only=True)
class TxnOffsetCommitResponseTopic(Struct):
    """Outcome of one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


@frozen(kw_only=True)
class TxnOffsetCommitResponse(Response):
    """Which positions were taken."""

    throttle_time_ms: int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


@frozen(kw_only=True)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Store positions when the transaction commits."""

    transactional_id: str
    group_id: str
    producer_id: int64
    producer_epoch: int16
    generation_id_or_member_epoch: int32 = since(3, default=-1)  # generation (classic), member epoch (consumer protocol)
    member_id: str = since(3, default="")
    group_instance_id: str | None = since(3, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsPartition(Struct):
    """Before which offset to delete."""

    partition_index: int32
    offset: int64  # -1: the high watermark


@frozen(kw_only=True)
class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsPartitionResult(Struct):
    """Where one partition begins now."""

    partition_index: int32
    low_watermark: int64 = -1
    error_code: int16 = 0


@frozen(kw_only=True)
class DeleteRecordsTopicResult(Struct):
    """Where the partitions of one topic begin now."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsResponse(Response):
    """Where the partitions begin now."""

    throttle_time_ms: int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


@frozen(kw_only=True)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Delete records by offset."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: int32 = 30_000
