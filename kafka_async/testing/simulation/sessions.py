"""Fetch, as a broker does it: sessions, long poll, size limits, preferred replicas, leader hints.

Source: the behaviour of ``FetchSession.scala`` and ``ReplicaManager.scala``; KIP-74 (sizes), 227 (sessions), 320 (epochs), 392
(replicas), 516 (topic ids), 951.
"""

from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from attrs import define, field, frozen

from ...model import TopicPartition
from ...wire.messages import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from .broker import FakeBroker
from .waking import Answering

if TYPE_CHECKING:
    from .cluster import FakePartition

OFFSET_OUT_OF_RANGE, NOT_LEADER, FENCED_EPOCH, UNKNOWN_TOPIC_ID = 1, 6, 74, 100
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, SESSION_TOPIC_ID_ERROR = 70, 71, 106
_WHOLE_ANSWER: Final = (SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, SESSION_TOPIC_ID_ERROR)
_FINAL: Final = -1
_NO_LEADER: Final = LeaderIdAndEpoch()


@frozen
class Key:
    """A partition as the client named it: by name up to version 12, by id after."""

    topic: str
    topic_id: UUID | None
    partition: int


@define(eq=False)
class Remembered:
    """One partition of a session."""

    how: FetchPartition
    high_watermark: int = -1
    log_start: int = -1


Found: TypeAlias = tuple[Key, Remembered, PartitionData]
"""One partition of a session, and what was read of it."""


@define(eq=False)
class SimulatedFetchSession:
    """What a broker remembers of a client. With ``id`` 0 it remembers nothing after this request."""

    id: int
    by_id: bool
    epoch: int = 1
    partitions: dict[Key, Remembered] = field(factory=dict)


def fetch(broker: FakeBroker, request: FetchRequest, version: int, error: int) -> Answering[FetchResponse]:
    """Answer when there are ``min_bytes``, or something to report at once, or the time is over.

    ``error``: a code about the session applies to the whole answer, any other to every partition of the session.
    """
    session, incremental, code = _session(broker, request, version)
    if code or error in _WHOLE_ANSWER:
        return FetchResponse(error_code=code or error)
    if session is None:
        return FetchResponse()
    clock = broker.cluster.clock
    deadline = clock.now() + request.max_wait_ms / 1000
    producers = broker.cluster.producers
    while True:
        producers.expire()
        found, enough = _read(broker, request, session, version, error)
        if enough or not session.partitions or clock.now() >= deadline:
            return _response(broker, session, found, incremental, version)
        yield min(deadline, producers.next_expiry())


def _session(broker: FakeBroker, request: FetchRequest, version: int) -> tuple[SimulatedFetchSession | None, bool, int]:
    """Return the session, whether the answer names only what changed, and an error code for the whole answer."""
    by_id = version >= 13
    if version < 7 or (request.session_epoch == _FINAL and not request.session_id):
        return _filled(SimulatedFetchSession(0, by_id), request), False, 0
    if request.session_epoch == _FINAL:
        broker.sessions.pop(request.session_id, None)
        return None, False, 0
    if request.session_epoch == 0:
        broker.sessions.pop(request.session_id, None)
        broker.last_session += 1
        session = broker.sessions[broker.last_session] = _filled(SimulatedFetchSession(broker.last_session, by_id), request)
        return session, False, 0
    known = broker.sessions.get(request.session_id)
    if known is None:
        return None, True, SESSION_NOT_FOUND
    if known.by_id != by_id:
        return None, True, SESSION_TOPIC_ID_ERROR
    if known.epoch != request.session_epoch:
        return None, True, INVALID_SESSION_EPOCH
    known.epoch += 1
    return _filled(known, request), True, 0


def _filled(session: SimulatedFetchSession, request: FetchRequest) -> SimulatedFetchSession:
    for gone in request.forgotten_topics_data:
        for index in gone.partitions:
            session.partitions.pop(Key(gone.topic, gone.topic_id, index), None)
    for topic in request.topics:
        for part in topic.partitions:
            key = Key(topic.topic, topic.topic_id, part.partition)
            if key in session.partitions:
                session.partitions[key].how = part
            else:
                session.partitions[key] = Remembered(part)
    return session


def _read(
    broker: FakeBroker, request: FetchRequest, session: SimulatedFetchSession, version: int, error: int
) -> tuple[list[Found], bool]:
    """Return what each partition has, and whether that is worth an answer."""
    found = []
    size, urgent = 0, False
    for key, remembered in session.partitions.items():
        left = max(0, request.max_bytes - size)
        data = _read_partition(broker, request, key, remembered.how, version, error, left, not size)
        if data.records:
            size += len(data.records)
        elif data.error_code or data.preferred_read_replica >= 0:
            urgent = True
        found.append((key, remembered, data))
    return found, urgent or size >= request.min_bytes


def _read_partition(
    broker: FakeBroker, request: FetchRequest, key: Key, how: FetchPartition, version: int, error: int, left: int, first: bool
) -> PartitionData:
    cluster = broker.cluster
    name = key.topic or cluster.name_of(key.topic_id)
    if name is None:
        return _failed(key.partition, error or UNKNOWN_TOPIC_ID)
    code = error or cluster.refusal(broker.node_id, name, key.partition, how.current_leader_epoch, follower=version >= 11)
    if code:
        return _refused(broker, TopicPartition(name, key.partition), code, version)
    partition = cluster.topics[name].partitions[key.partition]
    if partition.error:
        return PartitionData(partition_index=key.partition, error_code=partition.error)
    log = partition.log
    if not log.start <= how.fetch_offset <= log.end:
        return _failed(key.partition, OFFSET_OUT_OF_RANGE)
    committed = request.isolation_level == 1
    preferred = _preferred(broker, request, partition) if version >= 11 and request.rack_id else -1
    records = b""
    if preferred < 0:
        records = log.read(how.fetch_offset, min(left, how.partition_max_bytes), committed=committed, whole=first)
    aborted = log.aborted_from(how.fetch_offset) if committed else None
    return PartitionData(
        partition_index=key.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start,
        aborted_transactions=None
        if aborted is None
        else tuple(AbortedTransaction(producer_id=producer, first_offset=offset) for producer, offset in aborted),
        preferred_read_replica=preferred,
        records=records,
    )


def _refused(broker: FakeBroker, tp: TopicPartition, code: int, version: int) -> PartitionData:
    hint = LeaderIdAndEpoch()
    known = broker.cluster.find(*tp)
    if known is not None and version >= 12 and code in (NOT_LEADER, FENCED_EPOCH):
        hint = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.epoch)
    return _failed(tp.partition, code, hint)


def _failed(index: int, code: int, hint: LeaderIdAndEpoch = _NO_LEADER) -> PartitionData:
    """Return an error of a partition. Brokers send empty records with it and never null: librdkafka takes null for a bad answer."""
    return PartitionData(partition_index=index, error_code=code, current_leader=hint, records=b"")


def _preferred(broker: FakeBroker, request: FetchRequest, partition: "FakePartition") -> int:
    """A replica in the client's rack if the leader is in another one (KIP-392)."""
    if broker.node_id != partition.leader or broker.rack == request.rack_id:
        return -1
    near = (
        node for node in partition.replicas if broker.cluster.is_up(node) and broker.cluster.brokers[node].rack == request.rack_id
    )
    return next(near, -1)


def _response(
    broker: FakeBroker, session: SimulatedFetchSession, found: list[Found], incremental: bool, version: int
) -> FetchResponse:
    topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}
    hints = set()
    for key, remembered, data in found:
        same = (remembered.high_watermark, remembered.log_start) == (data.high_watermark, data.log_start_offset)
        remembered.high_watermark, remembered.log_start = data.high_watermark, data.log_start_offset
        if data.current_leader.leader_id >= 0:
            hints.add(data.current_leader.leader_id)
        if incremental and same and not data.records and not data.error_code and data.preferred_read_replica < 0:
            continue
        topics.setdefault((key.topic, key.topic_id), []).append(data)
        if data.records:  # a partition that got something goes to the end of the line
            session.partitions[key] = session.partitions.pop(key)
    brokers = [broker.cluster.brokers[node] for node in sorted(hints)] if version >= 16 else []
    return FetchResponse(
        session_id=session.id,
        responses=tuple(
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(parts))
            for (name, topic_id), parts in topics.items()
        ),
        node_endpoints=tuple(NodeEndpoint(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in brokers),
    )
