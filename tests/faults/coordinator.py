"""A group coordinator for the cluster in memory: both protocols, as many members as come.

Decides: who has which partitions. Owns: the groups. Must never look at the clock but for sessions that have ended.

``install`` puts it into a cluster. In the classic protocol a join waits for all members; in the consumer protocol (KIP-848) a
member gets a partition only when the one before has given it up.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import anyio
from attrs import Factory, define

from kafka_async.errors import UnknownMemberIdError
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicPartitions,
)
from tests.fake import FakeBroker, FakeCluster

UNKNOWN_MEMBER: Final = UnknownMemberIdError.errno
ILLEGAL_GENERATION, REBALANCING, ID_REQUIRED, FENCED_EPOCH = 22, 27, 79, 110
_SESSION: Final = 45.0

Part = tuple[UUID, int]


@define(eq=False)
class Seat:
    """One member of a group of either protocol."""

    seen: float
    protocols: Mapping[str, bytes] = Factory(dict)
    joined: bool = False
    topics: tuple[str, ...] = ()
    owned: frozenset[Part] = frozenset()
    epoch: int = 0


@define(eq=False)
class Group:
    """One group."""

    seats: dict[str, Seat] = Factory(dict)
    pending: set[str] = Factory(set)
    """Member ids that were handed out and did not join yet (KIP-394)."""
    generation: int = 0
    joining: bool = False
    rounds: int = 0
    """Times that all members had joined."""
    plan: dict[str, bytes] = Factory(dict)
    rotation: int = 0


@define(eq=False)
class FakeCoordinator:
    """Coordinates every group of a cluster, whichever broker is asked."""

    cluster: FakeCluster
    groups: dict[str, Group] = Factory(dict)
    given: int = 0
    """Member ids handed out."""

    def rebalance(self, group_id: str) -> None:
        """Have every member of a group join again, and in the consumer protocol change places."""
        group = self.groups.setdefault(group_id, Group())
        group.rotation += 1
        self._unsettle(group)

    def expel(self, group_id: str) -> None:
        """Forget all members, as after the end of their sessions."""
        group = self.groups.setdefault(group_id, Group())
        group.seats.clear()
        self._unsettle(group)

    def _group(self, group_id: str) -> Group:
        group = self.groups.setdefault(group_id, Group())
        silent = [key for key, seat in group.seats.items() if anyio.current_time() - seat.seen > _SESSION]
        for key in silent:
            del group.seats[key]
        if silent:
            self._unsettle(group)
        return group

    def _unsettle(self, group: Group) -> None:
        if not group.joining:  # else those who have joined wait already
            for seat in group.seats.values():
                seat.joined = False
        group.joining = True
        group.generation += 1
        self.cluster.changed()

    # --- classic ---------------------------------------------------------------------------------------------------------------

    async def join(self, broker: FakeBroker, request: JoinGroupRequest, version: int, error: int) -> JoinGroupResponse:
        """KIP-62, KIP-394."""
        group, key = self._group(request.group_id), request.member_id
        if not error and not key:
            self.given += 1
            group.pending.add(f"member-{self.given}")
            return JoinGroupResponse(error_code=ID_REQUIRED, member_id=f"member-{self.given}")
        if error:
            return JoinGroupResponse(error_code=error)
        if key not in group.seats and key not in group.pending:
            return JoinGroupResponse(error_code=UNKNOWN_MEMBER)
        if key in group.pending or not group.joining:
            group.pending.discard(key)
            group.seats.setdefault(key, Seat(anyio.current_time()))
            self._unsettle(group)
        seat = group.seats[key]
        seat.seen, seat.joined = anyio.current_time(), True
        seat.protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        self.cluster.changed()
        await self._all_joined(group, anyio.current_time() + max(request.rebalance_timeout_ms, 0) / 1000)
        if group.seats.get(key) is not seat:
            return JoinGroupResponse(error_code=UNKNOWN_MEMBER)
        leader = min(group.seats)
        chosen = next(name for name in seat.protocols if all(name in other.protocols for other in group.seats.values()))
        members = tuple(JoinGroupResponseMember(member_id=k, metadata=s.protocols[chosen]) for k, s in group.seats.items())
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type="consumer",
            protocol_name=chosen,
            leader=leader,
            member_id=key,
            members=members if key == leader else (),
        )

    async def _all_joined(self, group: Group, deadline: float) -> None:
        """Wait until all members have joined. One that leaves right after that sends nobody back to waiting."""
        rounds = group.rounds
        while group.rounds == rounds:
            if anyio.current_time() >= deadline:
                group.seats = {key: seat for key, seat in group.seats.items() if seat.joined}
            if all(seat.joined for seat in group.seats.values()):
                group.rounds += 1
                group.joining = False
                group.plan = {}
                self.cluster.changed()
            else:
                await self.cluster.wait_for_change(deadline)

    async def sync(self, broker: FakeBroker, request: SyncGroupRequest, version: int, error: int) -> SyncGroupResponse:
        """Wait for what the leader hands in."""
        group = self._group(request.group_id)
        code = error or self._check(group, request)
        if not code and request.assignments:
            group.plan = {each.member_id: each.assignment for each in request.assignments}
            self.cluster.changed()
        deadline = anyio.current_time() + _SESSION
        while not code and not group.plan and anyio.current_time() < deadline:
            await self.cluster.wait_for_change(deadline)
            code = self._check(group, request)
        if code:
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=group.plan.get(request.member_id, b""),
        )

    def heartbeat(self, broker: FakeBroker, request: HeartbeatRequest, version: int, error: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=error or self._check(self._group(request.group_id), request))

    def _check(self, group: Group, request: SyncGroupRequest | HeartbeatRequest) -> int:
        seat = group.seats.get(request.member_id)
        if seat is None:
            return UNKNOWN_MEMBER
        seat.seen = anyio.current_time()
        if group.joining:
            return REBALANCING
        return 0 if request.generation_id == group.generation else ILLEGAL_GENERATION

    def leave(self, broker: FakeBroker, request: LeaveGroupRequest, version: int, error: int) -> LeaveGroupResponse:
        group = self._group(request.group_id)
        for member in request.members:
            group.pending.discard(member.member_id)
            if group.seats.pop(member.member_id, None) is not None:
                self._unsettle(group)
        return LeaveGroupResponse(error_code=error, members=tuple(MemberResponse(member_id=m.member_id) for m in request.members))

    # --- consumer --------------------------------------------------------------------------------------------------------------

    def beat(
        self, broker: FakeBroker, request: ConsumerGroupHeartbeatRequest, version: int, error: int
    ) -> ConsumerGroupHeartbeatResponse:
        """KIP-848; the assignment is told with every answer."""
        group, key = self._group(request.group_id), request.member_id
        if error:
            return ConsumerGroupHeartbeatResponse(error_code=error)
        if request.member_epoch < 0:
            if group.seats.pop(key, None) is not None:
                self._unsettle(group)
            return ConsumerGroupHeartbeatResponse(member_id=key, member_epoch=request.member_epoch)
        if request.member_epoch == 0:
            group.seats[key] = Seat(anyio.current_time())
            self._unsettle(group)
        seat = group.seats.get(key)
        if seat is None:
            return ConsumerGroupHeartbeatResponse(error_code=UNKNOWN_MEMBER)
        if request.member_epoch not in (0, seat.epoch):
            return ConsumerGroupHeartbeatResponse(error_code=FENCED_EPOCH)
        self._hear(seat, request)
        return self._tell(group, key, seat)

    def _hear(self, seat: Seat, request: ConsumerGroupHeartbeatRequest) -> None:
        seat.seen = anyio.current_time()
        if request.subscribed_topic_names is not None:
            seat.topics = request.subscribed_topic_names
        if request.topic_partitions is not None:
            parts = request.topic_partitions
            seat.owned = frozenset((tp.topic_id, p) for tp in parts if tp.topic_id is not None for p in tp.partitions)

    def _tell(self, group: Group, key: str, seat: Seat) -> ConsumerGroupHeartbeatResponse:
        target = self._target(group, key)
        elsewhere = frozenset[Part]().union(*(other.owned for name, other in group.seats.items() if name != key))
        if seat.owned <= target:  # otherwise it has to give something up first, in its old epoch
            seat.epoch = group.generation
        granted = target - elsewhere if seat.owned <= target else target & seat.owned
        seat.owned |= granted
        topics: dict[UUID, list[int]] = {}
        for topic_id, index in sorted(granted, key=str):
            topics.setdefault(topic_id, []).append(index)
        told = tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in topics.items())
        return ConsumerGroupHeartbeatResponse(
            member_id=key,
            member_epoch=max(seat.epoch, 1),
            heartbeat_interval_ms=1000,
            assignment=Assignment(topic_partitions=told),
        )

    def _target(self, group: Group, key: str) -> frozenset[Part]:
        keys = sorted(group.seats)
        found = set()
        for topic in self.cluster.topics.values():
            takers = [k for k in keys if topic.name in group.seats[k].topics]
            if key in takers:
                mine = (takers.index(key) + group.rotation) % len(takers)
                found |= {(topic.id, part.index) for part in topic.partitions if part.index % len(takers) == mine}
        return frozenset(found)


def install(cluster: FakeCluster) -> FakeCoordinator:
    """Give a cluster a coordinator."""
    coordinator = FakeCoordinator(cluster)
    more: dict[Api, Any] = {
        Api.JOIN_GROUP: coordinator.join,
        Api.SYNC_GROUP: coordinator.sync,
        Api.HEARTBEAT: coordinator.heartbeat,
        Api.LEAVE_GROUP: coordinator.leave,
        Api.CONSUMER_GROUP_HEARTBEAT: coordinator.beat,
    }
    cluster.handlers.update(more)
    return coordinator
