"""Share groups (KIP-932): heartbeats, share sessions, records under locks, acknowledgements.

A ShareFetch does not check membership: brokers do not. Source: the behaviour of ``KafkaApis``, ``SharePartitionManager`` and
``ShareSessionCache`` in Kafka 4.4.
"""

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from attrs import define, evolve, field

from ...model import TopicPartition
from ...wire.messages import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareAssignment,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareLeader,
    ShareNodeEndpoint,
    SharePartitionData,
    ShareTopicPartitions,
)
from . import dead_letters
from .groups.assignor import Part, by_topic
from .groups.consumer import Refused
from .groups.share import ShareGroup, ShareMember
from .kafka_settings import duration, is_true
from .log import PartitionLog
from .share_partition import Limits, SharePartition, WantedRecords
from .waking import Answering

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster, FakePartition

NOT_LEADER, INVALID_REQUEST, GROUP_ID_NOT_FOUND, FENCED_LEADER, UNKNOWN_TOPIC_ID = 6, 42, 69, 74, 100
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH = 122, 123
_WHOLE_ANSWER: Final = (30, 35, INVALID_REQUEST, GROUP_ID_NOT_FOUND, SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, 133)
_FINAL: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
_Asking: TypeAlias = ShareFetchRequest | ShareAcknowledgeRequest


@define(eq=False)
class SimulatedShareSession:
    """What a broker remembers of a member."""

    group: str
    member: str
    line: object
    """The connection that it belongs to."""
    epoch: int = 1
    partitions: set[Part] = field(factory=set)
    news: set[Part] = field(factory=set)
    """Partitions that the next answer must include: new ones, and those that had an error."""


@define(eq=False, repr=False)
class Shares:
    """The share groups of a cluster."""

    cluster: "FakeCluster"
    groups: dict[str, ShareGroup] = field(factory=dict)
    partitions: dict[tuple[str, Part], SharePartition] = field(factory=dict)
    sessions: dict[tuple[int, str, str], SimulatedShareSession] = field(factory=dict)
    """By broker, group and member."""

    # --- settings --------------------------------------------------------------------------------------------------------------

    def setting(self, group: str, name: str) -> str:
        """Return a setting of a group."""
        return self.cluster.groups.settings_of(group)[name]

    def limits(self, group: str) -> Limits:
        """Return what a group may hold, and for how long."""
        return Limits(
            lock=int(self.setting(group, "share.record.lock.duration.ms")) / 1000,
            deliveries=int(self.setting(group, "share.delivery.count.limit")),
            locks=int(self.setting(group, "share.partition.max.record.locks")),
            committed=self.setting(group, "share.isolation.level") == "read_committed",
            renews=is_true(self.setting(group, "share.renew.acknowledge.enable")),
        )

    # --- membership ------------------------------------------------------------------------------------------------------------

    def expire(self, name: str) -> None:
        """Remove the members whose session is over."""
        group = self.groups.get(name)
        if group is not None and group.expire(self.cluster.clock.now(), int(self.setting(name, "share.session.timeout.ms")) / 1000):
            self._aim(group)

    def kick(self, name: str, member: str | None) -> None:
        """Forget a member, or all."""
        group = self.groups.get(name)
        if group is not None:
            for gone in list(group.members) if member is None else [member]:
                group.members.pop(gone, None)
            self._aim(group)

    def beat(
        self, broker: "FakeBroker", request: ShareGroupHeartbeatRequest, version: int, error: int
    ) -> ShareGroupHeartbeatResponse:
        """Join, stay or leave."""
        name = request.group_id
        self.expire(name)
        groups = self.cluster.groups
        taken = name in groups.names() and name not in self.groups  # for good: a group stays what it is, with members or without
        code = error or groups.elsewhere(broker, name) or (GROUP_ID_NOT_FOUND if taken else 0)
        if code:
            return ShareGroupHeartbeatResponse(error_code=code, member_id=request.member_id)
        group = self.groups.get(name, ShareGroup(name))
        try:
            member = group.beat(request, self.cluster.clock.now())
        except Refused as refused:
            return ShareGroupHeartbeatResponse(error_code=refused.code, member_id=request.member_id)
        self.groups[name] = group
        self._aim(group)
        if member is not None:
            member.caller = broker.caller
        if member is None:
            return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        changed = group.tell(member)
        if changed:
            self.cluster.changed()
        whole = changed or request.member_epoch == 0 or request.subscribed_topic_names is not None
        return ShareGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=int(self.setting(name, "share.heartbeat.interval.ms")),
            assignment=_assignment_of(member.assigned) if whole else None,
        )

    def _aim(self, group: ShareGroup) -> None:
        if group.aim({key: frozenset(self._matching(member)) for key, member in group.members.items()}):
            self.cluster.changed()

    def _matching(self, member: ShareMember) -> Iterator[Part]:
        for name in member.topics & self.cluster.topics.keys():
            topic = self.cluster.topics[name]
            if not topic.error:
                yield from ((topic.id, part.index) for part in topic.partitions)

    # --- sessions --------------------------------------------------------------------------------------------------------------

    def hung_up(self, line: object) -> None:
        """A connection has ended: release what its sessions hold."""
        for key in [key for key, session in self.sessions.items() if session.line is line]:
            self._close(key)

    def forget(self, node_id: int) -> None:
        """A broker goes down in an orderly way: it ends its sessions. What they held counts as delivered (seen of Kafka 4.4)."""
        for key in [key for key in self.sessions if key[0] == node_id]:
            self._close(key)

    def _close(self, key: tuple[int, str, str]) -> None:
        """End a session: the member loses what this broker has locked for it. What another leader has locked since stays."""
        session = self.sessions.pop(key)
        for part in session.partitions:
            found = self._find(part)
            if (session.group, part) in self.partitions and found is not None and found.leader == key[0]:
                known = self._shared(session.group, part)
                known.release(session.member, self.limits(session.group))
                self._bury(session.group, part, known)
        self.cluster.changed()

    def _session(self, broker: "FakeBroker", request: _Asking) -> SimulatedShareSession | int:
        """Return the session of a request, or the error code for all of it. Counts the request."""
        group, member, epoch = request.group_id or "", request.member_id or "", request.share_session_epoch
        if not 0 < len(member) <= 36:
            return INVALID_REQUEST
        key = broker.node_id, group, member
        if epoch == 0:
            if isinstance(request, ShareAcknowledgeRequest):
                return INVALID_SESSION_EPOCH
            if any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions):
                return INVALID_REQUEST
            self.sessions[key] = SimulatedShareSession(
                group, member, broker.line
            )  # the end of an older connection no longer matters
            return self.sessions[key]
        session = self.sessions.get(key)
        if session is None:
            return SESSION_NOT_FOUND
        if epoch != _FINAL:
            if epoch != session.epoch:
                return INVALID_SESSION_EPOCH
            session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    # --- partitions ------------------------------------------------------------------------------------------------------------

    def _find(self, part: Part) -> "FakePartition | None":
        name = self.cluster.name_of(part[0])
        return self.cluster.find(name, part[1]) if name is not None else None

    def _refusal(self, broker: "FakeBroker", part: Part) -> int:
        name = self.cluster.name_of(part[0])
        return UNKNOWN_TOPIC_ID if name is None else self.cluster.refusal(broker.node_id, name, part[1], -1)

    def _shared(self, group: str, part: Part) -> SharePartition:
        """Return what a group knows about an existing partition, up to date."""
        found = self._find(part)
        assert found is not None  # noqa: S101 - nobody asks for what was refused
        known, limits = self.partitions.get((group, part)), self.limits(group)
        if known is None:
            known = self.partitions[group, part] = SharePartition(self._beginning(group, found.log), found.epoch)
        if known.leader_epoch != found.epoch:
            known.leader_epoch = found.epoch
            known.forget_locks()
        known.log_moved(found.log)
        known.expire(self.cluster.clock.now(), limits)
        self._bury(group, part, known)
        return known

    def end_locks(self) -> None:
        """Give back what was locked for too long, for those who look at what follows from it, such as dead letters."""
        for group, part in list(self.partitions):
            if self._find(part) is not None:
                self._shared(group, part)

    def _bury(self, group: str, part: Part, known: SharePartition) -> None:
        given_up, name = known.take_given_up(), self.cluster.name_of(part[0])
        if given_up and name is not None:
            dead_letters.write(self.cluster, group, TopicPartition(name, part[1]), given_up)

    def _beginning(self, group: str, log: PartitionLog) -> int:
        """Return where a group begins that knows nothing of a partition."""
        reset = self.setting(group, "share.auto.offset.reset")
        if (age := duration(reset)) is not None:
            found = log.find_time(self.cluster.clock.date() - age)
            return log.high_watermark if found is None else found[1]
        return log.start if reset == "earliest" else log.high_watermark

    def starts(self, group: str) -> dict[TopicPartition, int]:
        """Return for each partition the offset before which a group has done everything."""
        found = {}
        for name, part in self.partitions:
            topic = self.cluster.name_of(part[0])
            if name == group and topic is not None:
                found[TopicPartition(topic, part[1])] = self._shared(group, part).start
        return found

    def forget_group(self, group: str) -> None:
        """Forget what a group knows."""
        self.groups.pop(group, None)
        self.partitions = {key: known for key, known in self.partitions.items() if key[0] != group}

    # --- ShareFetch ------------------------------------------------------------------------------------------------------------

    def fetch(self, broker: "FakeBroker", request: ShareFetchRequest, version: int, error: int) -> Answering[ShareFetchResponse]:
        """The session first, then the acknowledgements, then the records, which may take until ``max_wait_ms``."""
        session = self._session(broker, request) if error not in _WHOLE_ANSWER else error
        if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
            session = INVALID_REQUEST
        if isinstance(session, int):
            return ShareFetchResponse(error_code=session)
        self._update(session, request)
        acknowledged = self._acknowledge_all(broker, session, request, 0)
        if request.share_session_epoch == _FINAL:
            self._close((broker.node_id, session.group, session.member))
            return self._answer(broker, session, acknowledged, {})
        deadline = self.cluster.clock.now() + request.max_wait_ms / 1000
        producers = self.cluster.producers
        while True:
            producers.expire()
            found = self._acquire(broker, session, request, error)
            size = sum(len(data.records) for data in found.values())
            idle = request.max_records <= 0 or request.max_bytes == 0 or not session.partitions
            urgent = any(data.error_code for data in found.values())
            late = self.cluster.clock.now() >= deadline
            if idle or urgent or size or late:  # locked records are sent at once, whatever min_bytes is
                return self._answer(broker, session, acknowledged, found)
            yield min(deadline, self._next_deadline(session), producers.next_expiry())

    def _update(self, session: SimulatedShareSession, request: ShareFetchRequest) -> None:
        for topic in request.topics:
            for each in topic.partitions:
                if topic.topic_id is not None and (topic.topic_id, each.partition_index) not in session.partitions:
                    session.partitions.add((topic.topic_id, each.partition_index))
                    session.news.add((topic.topic_id, each.partition_index))
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                if gone.topic_id is not None:
                    session.partitions.discard((gone.topic_id, index))

    def _next_deadline(self, session: SimulatedShareSession) -> float:
        known = (self.partitions.get((session.group, part)) for part in session.partitions)
        return max(min((each.next_deadline() for each in known if each is not None), default=inf), self.cluster.clock.now())

    def _acquire(
        self, broker: "FakeBroker", session: SimulatedShareSession, request: ShareFetchRequest, error: int
    ) -> dict[Part, SharePartitionData]:
        """Return what each partition of the session has. Locks nothing if nothing was asked for."""
        found: dict[Part, SharePartitionData] = {}
        left, room = request.max_records, request.max_bytes
        parts = sorted(session.partitions, key=lambda part: (part[0].int, part[1]))
        turn = session.epoch % len(parts) if parts else 0  # another one comes first each time, so that none starves
        for part in parts[turn:] + parts[:turn]:
            code = error or self._refusal(broker, part)
            if code:
                found[part] = SharePartitionData(partition_index=part[1], error_code=code, current_leader=self._hint(part, code))
                continue
            records, acquired = self._take(session, part, WantedRecords(left, room, request.share_acquire_mode == 1))
            left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
            room -= len(records)
            found[part] = SharePartitionData(partition_index=part[1], records=records, acquired_records=acquired)
        return found

    def _take(self, session: SimulatedShareSession, part: Part, wanted: WantedRecords) -> tuple[bytes, tuple[AcquiredRecords, ...]]:
        known, partition = self._shared(session.group, part), self._find(part)
        if wanted.records <= 0 or wanted.size <= 0 or partition is None:
            return b"", ()
        return known.acquire(partition.log, session.member, wanted, self.limits(session.group), self.cluster.clock.now())

    def _hint(self, part: Part, code: int) -> ShareLeader:
        partition = self._find(part)
        if partition is None or code not in (NOT_LEADER, FENCED_LEADER):
            return ShareLeader()
        return ShareLeader(leader_id=partition.leader, leader_epoch=partition.epoch)

    def _answer(
        self,
        broker: "FakeBroker",
        session: SimulatedShareSession,
        acknowledged: dict[Part, int],
        found: dict[Part, SharePartitionData],
    ) -> ShareFetchResponse:
        topics: dict[UUID, list[SharePartitionData]] = {}
        nothing = (SharePartitionData(partition_index=part[1]) for part in acknowledged)
        for part, data in (dict(zip(acknowledged, nothing, strict=True)) | found).items():
            if not (data.records or data.error_code or part in session.news or part in acknowledged):
                continue
            results = evolve(data, acknowledge_error_code=acknowledged.get(part, 0))
            topics.setdefault(part[0], []).append(results)
        session.news = {part for part, data in found.items() if data.error_code}
        leaders = {data.current_leader.leader_id for data in found.values()} - {-1}
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=round(self.limits(session.group).lock * 1000),
            responses=tuple(
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in topics.items()
            ),
            node_endpoints=self._endpoints(leaders),
        )

    def _endpoints(self, leaders: set[int]) -> tuple[ShareNodeEndpoint, ...]:
        brokers = (self.cluster.brokers[node] for node in sorted(leaders))
        return tuple(ShareNodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack) for each in brokers)

    # --- acknowledgements ------------------------------------------------------------------------------------------------------

    def acknowledge(
        self, broker: "FakeBroker", request: ShareAcknowledgeRequest, version: int, error: int
    ) -> ShareAcknowledgeResponse:
        """Settle records; with the final epoch, release what is left and close the session."""
        session = self._session(broker, request) if error not in _WHOLE_ANSWER else error
        if isinstance(session, int):
            return ShareAcknowledgeResponse(error_code=session)
        settled = self._acknowledge_all(broker, session, request, error)
        if request.share_session_epoch == _FINAL:
            self._close((broker.node_id, session.group, session.member))
        topics: dict[UUID, list[ShareAcknowledgePartitionResponse]] = {}
        for part, code in settled.items():
            results = ShareAcknowledgePartitionResponse(
                partition_index=part[1], error_code=code, current_leader=self._hint(part, code)
            )
            topics.setdefault(part[0], []).append(results)
        leaders = {each.current_leader.leader_id for parts in topics.values() for each in parts} - {-1}
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=round(self.limits(session.group).lock * 1000) if version >= 2 else 0,
            responses=tuple(
                ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in topics.items()
            ),
            node_endpoints=self._endpoints(leaders),
        )

    def _acknowledge_all(
        self, broker: "FakeBroker", session: SimulatedShareSession, request: _Asking, error: int
    ) -> dict[Part, int]:
        """Settle what a request acknowledges; return the error code of each partition in it."""
        results: dict[Part, int] = {}
        for topic in request.topics:
            for each in topic.partitions:
                if each.acknowledgement_batches and topic.topic_id is not None:
                    part = topic.topic_id, each.partition_index
                    results[part] = error or self._settle(broker, session, part, each.acknowledgement_batches, request.is_renew_ack)
        if results:
            self.cluster.changed()  # released records are there for others
        return results

    def _settle(
        self,
        broker: "FakeBroker",
        session: SimulatedShareSession,
        part: Part,
        batches: tuple[AcknowledgementBatch, ...],
        renewals: bool,
    ) -> int:
        code = self._refusal(broker, part)
        if code:
            return code
        known, limits = self._shared(session.group, part), self.limits(session.group)
        code = known.acknowledge(session.member, batches, limits, self.cluster.clock.now(), renewals=renewals)
        self._bury(session.group, part, known)
        return code


def _assignment_of(parts: frozenset[Part]) -> ShareAssignment:
    topics = by_topic(parts).items()
    return ShareAssignment(topic_partitions=tuple(ShareTopicPartitions(topic_id=each, partitions=found) for each, found in topics))
