"""A coordinator of both protocols for one member, whose fellow members do as the test says.

Decides: which partitions the member gets: all that it subscribed to, except those that are ``taken`` for others. Owns: the
membership. Another member always leads the classic group, so that no assignor has a say. Must never let a commit of a former
generation through.
"""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import anyio
from attrs import Factory, define, evolve

from kafka_async import TopicPartition
from kafka_async.testing.simulation import FakeBroker, FakeCluster
from kafka_async.wire import Api, decode_subscription, encode_assignment
from kafka_async.wire.messages import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolTopicPartition,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicPartitions,
)

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, ID_REQUIRED, FENCED_EPOCH, STALE_EPOCH = 22, 25, 27, 79, 110, 113
SESSION: Final = 45.0
"""Seconds of silence after which a member is out."""
BEAT_MS: Final = 3000
_LEADER: Final = "another-member"


@define(eq=False)
class Coordinator:
    """Coordinates the one group of a cluster."""

    cluster: FakeCluster
    eager: bool = False
    """The member gives up everything before it joins again."""
    taken: set[TopicPartition] = Factory(set)
    """Partitions meant for others, who have them as soon as the member does not."""
    member: str | None = None
    topics: frozenset[str] = frozenset()
    generation: int = 0
    """Generation, or the member epoch to be reached."""
    settled: int = 0
    """The last generation in which the member received its assignment."""
    epoch: int = 0
    """The member's own epoch."""
    owned: frozenset[TopicPartition] = frozenset()
    """Partitions that the member may read, as far as the group knows."""
    joining: bool = False
    """The member has to join again."""
    said: set[TopicPartition] = Factory(set)
    """Partitions that the member knows to be for others."""
    joins: int = 0
    """How often a member joined, or joined again."""
    leaves: int = 0
    seen: float = 0.0
    _ids: int = 0
    _awaited: str | None = None
    """The id that was given to a member that has not joined yet (KIP-394)."""

    # --- what a test does ------------------------------------------------------------------------------------------------------

    def unsettle(self) -> None:
        """Make the group rebalance."""
        self.generation += 1
        self.joining = True

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Give others these partitions, and only these."""
        self.taken = set(partitions)
        self.said.clear()
        self.unsettle()

    def expel(self) -> None:
        """Forget the member, as after the end of its session."""
        self.member, self.owned = None, frozenset()
        self.unsettle()

    def others_own(self) -> set[TopicPartition]:
        """Return the partitions that others have by now."""
        return self.taken - self.owned

    def target(self) -> frozenset[TopicPartition]:
        """Return what the member should have."""
        found = {
            TopicPartition(name, part.index)
            for name, topic in self.cluster.topics.items()
            if name in self.topics
            for part in topic.partitions
        }
        return frozenset(found - self.taken)

    def refuses(self, member_id: str, generation: int) -> int:
        """Return the error code for a commit of this member in this generation, 0 if it is accepted."""
        if not member_id:
            return UNKNOWN_MEMBER if self.member is not None else 0
        if member_id != self.member:
            return UNKNOWN_MEMBER
        if self.epoch:
            return 0 if generation == self.epoch else STALE_EPOCH
        return 0 if self.joining or generation == self.generation else ILLEGAL_GENERATION

    def _alive(self, member_id: str) -> bool:
        if self.member is not None and anyio.current_time() - self.seen > SESSION:
            self.expel()
        if member_id != self.member:
            return False
        self.seen = anyio.current_time()
        return True

    # --- classic ---------------------------------------------------------------------------------------------------------------

    def join(self, broker: FakeBroker, request: JoinGroupRequest, version: int, error: int) -> JoinGroupResponse:
        if error:
            return JoinGroupResponse(error_code=error)
        if not request.member_id:
            self._ids += 1
            self._awaited = f"m{self._ids}"
            return JoinGroupResponse(error_code=ID_REQUIRED, member_id=self._awaited)
        if request.member_id not in (self.member, self._awaited):
            return JoinGroupResponse(error_code=UNKNOWN_MEMBER)
        self._awaited = None
        self.member, self.seen, self.epoch = request.member_id, anyio.current_time(), 0
        said = decode_subscription(request.protocols[0].metadata)
        self.eager = request.protocols[0].name != "cooperative-sticky"
        self.topics = frozenset(said.topics)
        self.owned = frozenset(TopicPartition(each.topic, index) for each in said.owned_partitions for index in each.partitions)
        self.generation += not self.joining
        self.joining = False
        self.joins += 1
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=_LEADER,
            member_id=request.member_id,
        )

    def sync(self, broker: FakeBroker, request: SyncGroupRequest, version: int, error: int) -> SyncGroupResponse:
        code = error or self._check(request)
        if code:
            return SyncGroupResponse(error_code=code)
        target = self.target()
        self.settled = self.generation
        self.said = set(self.taken)
        self.owned |= target
        topics = tuple(
            ConsumerProtocolTopicPartition(topic=name, partitions=tuple(sorted(tp.partition for tp in target if tp.topic == name)))
            for name in sorted({tp.topic for tp in target})
        )
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics)),
        )

    def heartbeat(self, broker: FakeBroker, request: HeartbeatRequest, version: int, error: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=error or self._check(request))

    def _check(self, request: SyncGroupRequest | HeartbeatRequest) -> int:
        if not self._alive(request.member_id):
            return UNKNOWN_MEMBER
        if self.joining:
            self.said |= self.taken if self.eager else set()
            return REBALANCING
        return 0 if request.generation_id == self.generation else ILLEGAL_GENERATION

    def leave(self, broker: FakeBroker, request: LeaveGroupRequest, version: int, error: int) -> LeaveGroupResponse:
        for member in request.members:
            self._left(member.member_id)
        return LeaveGroupResponse(error_code=error, members=tuple(MemberResponse(member_id=m.member_id) for m in request.members))

    def _left(self, member_id: str) -> None:
        self.leaves += 1
        if member_id == self.member:
            self.expel()

    # --- consumer --------------------------------------------------------------------------------------------------------------

    def beat(
        self, broker: FakeBroker, request: ConsumerGroupHeartbeatRequest, version: int, error: int
    ) -> ConsumerGroupHeartbeatResponse:
        """KIP-848; the assignment comes with every answer."""
        key = request.member_id
        if error:
            return ConsumerGroupHeartbeatResponse(error_code=error)
        if request.member_epoch < 0:
            self._left(key)
            return ConsumerGroupHeartbeatResponse(member_id=key, member_epoch=request.member_epoch)
        if request.member_epoch == 0:
            self.member, self.owned, self.epoch, self.seen = key, frozenset(), 0, anyio.current_time()
            self.generation += 1
            self.joins += 1
        if not self._alive(key):
            return ConsumerGroupHeartbeatResponse(error_code=UNKNOWN_MEMBER)
        if request.member_epoch not in (0, self.epoch):
            return ConsumerGroupHeartbeatResponse(error_code=FENCED_EPOCH)
        if request.subscribed_topic_names is not None:
            self.topics = frozenset(request.subscribed_topic_names)
        if request.topic_partitions is not None:
            self.owned = self._named(request.topic_partitions)
        return self._tell(key)

    def commit(self, broker: FakeBroker, request: OffsetCommitRequest, version: int, error: int) -> OffsetCommitResponse:
        """Accept every commit, whoever sent it; a test that wants to know who may commit asks ``refuses``."""
        anybody = evolve(request, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None)
        return self.cluster.groups.commit(broker, anybody, version, error)

    def _named(self, parts: tuple[TopicPartitions, ...]) -> frozenset[TopicPartition]:
        named = ((self.cluster.name_of(each.topic_id), each) for each in parts)
        return frozenset(TopicPartition(name, index) for name, each in named if name is not None for index in each.partitions)

    def _tell(self, key: str) -> ConsumerGroupHeartbeatResponse:
        target = self.target()
        if self.owned <= target:  # otherwise it has to give something up first, in its old epoch
            self.epoch, self.joining = self.generation, False
        granted = target if self.owned <= target else target & self.owned
        self.owned |= granted
        topics: dict[UUID, list[int]] = {}
        for tp in sorted(granted):
            topics.setdefault(self.cluster.topics[tp.topic].id, []).append(tp.partition)
        self.said = set(self.taken)
        topics_given = tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in topics.items())
        return ConsumerGroupHeartbeatResponse(
            member_id=key,
            member_epoch=max(self.epoch, 1),
            heartbeat_interval_ms=BEAT_MS,
            assignment=Assignment(topic_partitions=topics_given),
        )


def install(cluster: FakeCluster) -> Coordinator:
    """Give a cluster the coordinator."""
    coordinator = Coordinator(cluster)
    more: dict[Api, Any] = {
        Api.JOIN_GROUP: coordinator.join,
        Api.SYNC_GROUP: coordinator.sync,
        Api.HEARTBEAT: coordinator.heartbeat,
        Api.LEAVE_GROUP: coordinator.leave,
        Api.CONSUMER_GROUP_HEARTBEAT: coordinator.beat,
        Api.OFFSET_COMMIT: coordinator.commit,
    }
    cluster.handlers.update(more)
    return coordinator
