"""Writing: Produce, and the transactions of producers.

A broker does not decompress: it keeps the bytes, and sets only the offsets and the epoch in them.

Source: the behaviour of ``UnifiedLog``, ``ProducerStateManager`` and ``TransactionCoordinator`` in Kafka 4.3; KIP-98, 360, 447.
"""

import struct
import time
from math import inf
from typing import TYPE_CHECKING, Final

from attrs import define, field

from ...model import OffsetAndMetadata, TopicPartition
from ...wire.messages.produce import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..batches import CONTROL, TRANSACTIONAL, Header, read_header, read_records, split_batches
from .kafka_settings import NOT_ENOUGH_REPLICAS

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster

CORRUPT, UNKNOWN_TOPIC, OUT_OF_ORDER, DUPLICATE, INVALID_TXN_STATE, INVALID_MAPPING = 2, 3, 45, 46, 48, 49
INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER, PRODUCER_FENCED, UNKNOWN_TOPIC_ID = 47, 59, 90, 100
_SEQUENCES: Final = 2**31
_REMEMBERED: Final = 5
"""How many batches of a producer a partition remembers, to recognize one that comes again."""


@define(eq=False)
class ProducerState:
    """What the cluster knows about one producer."""

    id: int
    epoch: int = 0
    transactional_id: str | None = None
    partitions: set[TopicPartition] = field(factory=set)
    """Partitions that its open transaction has written to, or is about to."""
    groups: set[str] = field(factory=set)
    timeout: float = 60.0
    began: float | None = None
    """When its transaction began; ``None`` if there is none."""
    ended: bool | None = None
    """How the last transaction of this epoch ended: committed or aborted. Ending it so again changes nothing."""
    recent: dict[TopicPartition, list[tuple[int, int, int]]] = field(factory=dict)
    """Epoch, base sequence and base offset of the last batches of each partition."""
    following: dict[TopicPartition, tuple[int, int]] = field(factory=dict)
    """Epoch, and the next sequence of each partition."""


@define(eq=False, repr=False)
class Producers:
    """The producers of a cluster."""

    cluster: "FakeCluster"
    known: dict[int, ProducerState] = field(factory=dict)

    # --- ids -------------------------------------------------------------------------------------------------------------------

    def init(self, broker: "FakeBroker", request: InitProducerIdRequest, version: int, error: int) -> InitProducerIdResponse:
        """KIP-98, KIP-360: a transactional id keeps its producer id and gets a new epoch, which fences the one before."""
        name = request.transactional_id
        code = error or (self.cluster.groups.elsewhere(broker, name) if name is not None else 0)
        if code:
            return InitProducerIdResponse(error_code=code)
        before = next((each for each in self.known.values() if name is not None and each.transactional_id == name), None)
        if before is None:
            before = self.known[len(self.known) + 1000] = ProducerState(len(self.known) + 1000, -1, name)
        elif request.producer_id >= 0 and request.producer_epoch not in (before.epoch, before.epoch - 1):
            return InitProducerIdResponse(error_code=PRODUCER_FENCED if version >= 4 else INVALID_PRODUCER_EPOCH)
        self._end(before, commit=False)
        before.epoch += 1
        before.ended = None
        before.timeout = request.transaction_timeout_ms / 1000
        return InitProducerIdResponse(producer_id=before.id, producer_epoch=before.epoch)

    # --- transactions ----------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Abort the transactions whose time is over. A broker does so by itself: whoever asks something finds it done."""
        now = self.cluster.clock.now()
        for state in self.known.values():
            if state.began is not None and now >= state.began + state.timeout:  # exactly as ``next_expiry`` says
                self._end(state, commit=False)
                state.epoch += 1

    def next_expiry(self) -> float:
        """Return when the time of the first open transaction is over, as a time of ``clock``; infinity if none is open."""
        return min((state.began + state.timeout for state in self.known.values() if state.began is not None), default=inf)

    def _transaction(self, broker: "FakeBroker", name: str, producer_id: int, epoch: int) -> ProducerState | int:
        """Return the producer of a transactional id, or the code if the caller may not act for it."""
        code = self.cluster.groups.elsewhere(broker, name)
        state = self.known.get(producer_id)
        if code:
            return code
        if state is None or state.transactional_id != name:
            return INVALID_MAPPING
        return state if state.epoch == epoch else PRODUCER_FENCED

    def add_partitions(
        self, broker: "FakeBroker", request: AddPartitionsToTxnRequest, version: int, error: int
    ) -> AddPartitionsToTxnResponse:
        """A transaction is about to write to partitions."""
        state = self._transaction(
            broker,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        code = error or (state if isinstance(state, int) else 0)
        code = INVALID_PRODUCER_EPOCH if code == PRODUCER_FENCED and version < 2 else code
        results = []
        for topic in request.v3_and_below_topics:
            parts = []
            for index in topic.partitions:
                found = code or (0 if self.cluster.find(topic.name, index) is not None else UNKNOWN_TOPIC)
                if not found and isinstance(state, ProducerState):
                    self._begin(state).partitions.add(TopicPartition(topic.name, index))
                parts.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=found))
            results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(parts)))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(results))

    def add_offsets(
        self, broker: "FakeBroker", request: AddOffsetsToTxnRequest, version: int, error: int
    ) -> AddOffsetsToTxnResponse:
        """A transaction is about to commit offsets of a group."""
        state = self._transaction(broker, request.transactional_id, request.producer_id, request.producer_epoch)
        if error or isinstance(state, int):
            return AddOffsetsToTxnResponse(error_code=error or (state if isinstance(state, int) else 0))
        self._begin(state).groups.add(request.group_id)
        return AddOffsetsToTxnResponse()

    def commit_offsets(
        self, broker: "FakeBroker", request: TxnOffsetCommitRequest, version: int, error: int
    ) -> TxnOffsetCommitResponse:
        """Keep offsets until the transaction ends (KIP-447)."""
        state = self.known.get(request.producer_id)
        code = error or self.cluster.groups.elsewhere(broker, request.group_id)
        if not code and (state is None or state.epoch != request.producer_epoch):
            code = INVALID_PRODUCER_EPOCH
        if not code:
            code = self.cluster.groups.refuses_transaction(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
            )
        topics = []
        for topic in request.topics:
            for part in topic.partitions if not code else ():
                epoch = part.committed_leader_epoch
                self.cluster.groups.offsets.pending.setdefault(request.producer_id, {})[
                    request.group_id, TopicPartition(topic.name, part.partition_index)
                ] = OffsetAndMetadata(part.committed_offset, part.committed_metadata or "", epoch if epoch >= 0 else None)
            parts = tuple(
                TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code) for p in topic.partitions
            )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return TxnOffsetCommitResponse(topics=tuple(topics))

    def end(self, broker: "FakeBroker", request: EndTxnRequest, version: int, error: int) -> EndTxnResponse:
        """Commit or abort."""
        state = self._transaction(broker, request.transactional_id, request.producer_id, request.producer_epoch)
        if error or isinstance(state, int):
            return EndTxnResponse(error_code=error or (state if isinstance(state, int) else 0))
        if state.began is None:
            return EndTxnResponse(error_code=0 if state.ended is request.committed else INVALID_TXN_STATE)
        self._end(state, commit=request.committed)
        return EndTxnResponse()

    def _begin(self, state: ProducerState) -> ProducerState:
        if state.began is None:
            state.began, state.ended = self.cluster.clock.now(), None
        return state

    def _end(self, state: ProducerState, *, commit: bool) -> None:
        for tp in sorted(state.partitions):
            partition = self.cluster.find(*tp)
            if partition is not None:
                partition.log.end_transaction(state.id, commit=commit, epoch=partition.epoch, now=self.cluster.clock.date())
        self.cluster.groups.offsets.decide(state.id, commit)
        state.partitions.clear()
        state.groups.clear()
        state.began, state.ended = None, commit
        self.cluster.changed()

    # --- records ---------------------------------------------------------------------------------------------------------------

    def produce(self, broker: "FakeBroker", request: ProduceRequest, version: int, error: int) -> ProduceResponse:
        """Append batches."""
        found = tuple(self._topic(broker, topic, error, request.acks) for topic in request.topic_data)
        self.cluster.changed()
        return ProduceResponse(responses=found)

    def _topic(self, broker: "FakeBroker", topic: TopicProduceData, error: int, acks: int) -> TopicProduceResponse:
        name = topic.name or self.cluster.name_of(topic.topic_id)
        parts = tuple(self._partition(broker, name, part, error, acks) for part in topic.partition_data)
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)

    def _partition(
        self, broker: "FakeBroker", name: str | None, part: PartitionProduceData, error: int, acks: int
    ) -> PartitionProduceResponse:
        if name is None:
            return PartitionProduceResponse(index=part.index, error_code=error or UNKNOWN_TOPIC_ID)
        code = error or self.cluster.refusal(broker.node_id, name, part.index, -1)
        if code:
            return PartitionProduceResponse(index=part.index, error_code=code)
        tp = TopicPartition(name, part.index)
        if acks == -1 and not self.cluster.has_enough_replicas(tp):
            return PartitionProduceResponse(index=part.index, error_code=NOT_ENOUGH_REPLICAS)
        try:
            batches = split_batches(part.records or b"")
        except (ValueError, struct.error):
            return PartitionProduceResponse(index=part.index, error_code=CORRUPT)
        base = -1
        for batch in batches:
            code, offset = self._append(tp, batch)
            base = offset if base < 0 else base
            if code:
                return PartitionProduceResponse(index=part.index, error_code=code, base_offset=base)
        log = self.cluster.log(tp)
        stamp = self.cluster.clock.date() if self.cluster.topics[name].settings.stamps else -1
        return PartitionProduceResponse(index=part.index, base_offset=base, log_append_time_ms=stamp, log_start_offset=log.start)

    def take(self, tp: TopicPartition, batch: bytes, *, stamped: bool) -> tuple[int, int]:
        """Append a batch as if a producer had sent it; return an error code and its base offset.

        ``stamped``: its timestamps are given, and not those that a record has by default, which may be ahead of time.
        """
        return self._append(tp, batch, stamped=stamped)

    def _append(self, tp: TopicPartition, batch: bytes, *, stamped: bool = True) -> tuple[int, int]:
        header = read_header(batch)
        if header.attributes & CONTROL:
            return CORRUPT, -1
        code, before = self._in_order(tp, header)
        if code or before >= 0:
            return code, before
        settings = self.cluster.topics[tp.topic].settings
        records, now = tuple(read_records(batch)), self.cluster.clock.date()
        times = [header.base_timestamp + record.timestamp_delta for record in records] if stamped else []
        # A program under virtual time may take timestamps from the system's clock.
        latest = max(now, round(time.time() * 1000))
        code = settings.refusal(len(batch), (record.key for record in records), times, now, latest)
        if code:
            return code, -1
        partition = self.cluster.partition(tp)
        offset = partition.log.append_produced(
            batch,
            header,
            partition.epoch,
            transactional=bool(header.attributes & TRANSACTIONAL),
            records=records,
            stamp=now if settings.stamps else None,
        )
        state = self.known.get(header.producer_id)
        if state is not None:
            following = (header.base_sequence + header.last_offset_delta + 1) % _SEQUENCES
            state.following[tp] = header.producer_epoch, following
            state.recent.setdefault(tp, []).append((header.producer_epoch, header.base_sequence, offset))
            del state.recent[tp][:-_REMEMBERED]
        return 0, offset

    def _in_order(self, tp: TopicPartition, header: Header) -> tuple[int, int]:
        """Return why a producer's batch is refused (0: it is not), and its offset if it has come before."""
        if header.producer_id < 0:
            return 0, -1
        state = self.known.get(header.producer_id)
        if state is None:
            return UNKNOWN_PRODUCER, -1
        if header.producer_epoch != state.epoch:
            return INVALID_PRODUCER_EPOCH, -1
        if header.attributes & TRANSACTIONAL and tp not in state.partitions:
            return INVALID_TXN_STATE, -1
        for epoch, sequence, offset in state.recent.get(tp, ()):
            if (epoch, sequence) == (header.producer_epoch, header.base_sequence):
                return 0, offset
        epoch, following = state.following.get(tp, (header.producer_epoch, header.base_sequence))
        wanted = following if epoch == header.producer_epoch else 0
        return (0 if header.base_sequence == wanted else OUT_OF_ORDER), -1
