"""Fetch, as a broker does it: sessions, long poll, size limits, preferred replicas, leader hints.

Decides: what a Fetch response holds. Owns: ``Session``, what a broker remembers of a client. Source: ``FetchSession.scala`` and
``ReplicaManager.scala`` in what they do; KIP-74 (sizes), 227 (sessions), 320 (epochs), 392 (replicas), 516 (topic ids), 951.
"""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

import anyio
from attrs import define, field, frozen

from kafka_async.model import TopicPartition
from kafka_async.wire.messages import (
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

OFFSET_OUT_OF_RANGE, NOT_LEADER, FENCED_EPOCH, UNKNOWN_TOPIC_ID = 1, 6, 74, 100
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, SESSION_TOPIC_ID_ERROR = 70, 71, 106
_WHOLE_ANSWER: Final = (SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, SESSION_TOPIC_ID_ERROR)
_FINAL: Final = -1


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


@define(eq=False)
class Session:
    """What a broker remembers of a client. ``id`` 0: nothing, beyond this request."""

    id: int
    by_id: bool
    epoch: int = 1
    partitions: dict[Key, Remembered] = field(factory=dict)


async def fetch(broker: FakeBroker, request: FetchRequest, version: int, error: int) -> FetchResponse:
    """Answer when there are ``min_bytes``, or something to say at once, or the time is over.

    ``error``: a code about the session is that of the whole answer, any other one that of every partition of the session.
    """
    session, incremental, code = _session(broker, request, version)
    if code or error in _WHOLE_ANSWER:
        return FetchResponse(error_code=code or error)
    if session is None:
        return FetchResponse()
    deadline = anyio.current_time() + request.max_wait_ms / 1000
    while True:
        found = list(_read(broker, request, session, version, error))
        size = sum(len(data.records or b"") for _, data in found)
        urgent = any(data.error_code or data.preferred_read_replica >= 0 for _, data in found)
        if size >= request.min_bytes or urgent or not session.partitions or anyio.current_time() >= deadline:
            return _response(broker, session, found, incremental, version)
        await broker.cluster.wait_for_change(deadline)


def _session(broker: FakeBroker, request: FetchRequest, version: int) -> tuple[Session | None, bool, int]:
    """Return the session, whether the answer names only what changed, and an error code for the whole answer."""
    by_id = version >= 13
    if version < 7 or (request.session_epoch == _FINAL and not request.session_id):
        return _filled(Session(0, by_id), request), False, 0
    if request.session_epoch == _FINAL:
        broker.sessions.pop(request.session_id, None)
        return None, False, 0
    if request.session_epoch == 0:
        broker.sessions.pop(request.session_id, None)
        broker.last_session += 1
        session = broker.sessions[broker.last_session] = _filled(Session(broker.last_session, by_id), request)
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


def _filled(session: Session, request: FetchRequest) -> Session:
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
    broker: FakeBroker, request: FetchRequest, session: Session, version: int, error: int
) -> Iterator[tuple[Key, PartitionData]]:
    left = request.max_bytes
    first = True
    for key, remembered in session.partitions.items():
        data = _read_partition(broker, request, key, remembered.how, version, error, left, first)
        if data.records:
            left = max(0, left - len(data.records))
            first = False
        yield key, data


def _read_partition(
    broker: FakeBroker, request: FetchRequest, key: Key, how: FetchPartition, version: int, error: int, left: int, first: bool
) -> PartitionData:
    cluster = broker.cluster
    name = key.topic or cluster.name_of(key.topic_id)
    if name is None:
        return PartitionData(partition_index=key.partition, error_code=error or UNKNOWN_TOPIC_ID)
    code = error or cluster.refusal(broker.node_id, name, key.partition, how.current_leader_epoch, follower=version >= 11)
    if code:
        return _refused(broker, TopicPartition(name, key.partition), code, version)
    partition = cluster.partition(TopicPartition(name, key.partition))
    log = partition.log
    if not log.start <= how.fetch_offset <= log.end:
        return PartitionData(partition_index=key.partition, error_code=OFFSET_OUT_OF_RANGE)
    committed = request.isolation_level == 1
    preferred = _preferred(broker, request, TopicPartition(name, key.partition), version)
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
    return PartitionData(partition_index=tp.partition, error_code=code, current_leader=hint)


def _preferred(broker: FakeBroker, request: FetchRequest, tp: TopicPartition, version: int) -> int:
    """A replica in the client's rack, where the leader is in another one (KIP-392)."""
    partition = broker.cluster.partition(tp)
    if version < 11 or not request.rack_id or broker.node_id != partition.leader or broker.rack == request.rack_id:
        return -1
    near = (
        node for node in partition.replicas if broker.cluster.is_up(node) and broker.cluster.brokers[node].rack == request.rack_id
    )
    return next(near, -1)


def _response(
    broker: FakeBroker, session: Session, found: list[tuple[Key, PartitionData]], incremental: bool, version: int
) -> FetchResponse:
    topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}
    for key, data in found:
        remembered = session.partitions[key]
        same = (remembered.high_watermark, remembered.log_start) == (data.high_watermark, data.log_start_offset)
        remembered.high_watermark, remembered.log_start = data.high_watermark, data.log_start_offset
        if incremental and same and not data.records and not data.error_code and data.preferred_read_replica < 0:
            continue
        topics.setdefault((key.topic, key.topic_id), []).append(data)
        if data.records:  # whoever got something goes to the end of the line
            session.partitions[key] = session.partitions.pop(key)
    hints = {data.current_leader.leader_id for _, data in found if data.current_leader.leader_id >= 0}
    brokers = [broker.cluster.brokers[node] for node in sorted(hints)] if version >= 16 else []
    return FetchResponse(
        session_id=session.id,
        responses=tuple(
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(parts))
            for (name, topic_id), parts in topics.items()
        ),
        node_endpoints=tuple(NodeEndpoint(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in brokers),
    )
