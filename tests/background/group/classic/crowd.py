"""A classic group in memory: a coordinator that answers members, and members whose applications act when they are told to."""

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from kafka_async.errors import KafkaConnectionError
from kafka_async.model import TopicPartition
from kafka_async.network import UnsentRequest
from kafka_async.wire import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from kafka_async.wire.messages import JoinGroupResponseMember
from tests.background.group.classic.world import Host, World

UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, ID_REQUIRED = 25, 22, 27, 79


@define(eq=False)
class Application(Host):
    """Carries proposals out one by one, in order."""

    queue: list[tuple[int, frozenset[TopicPartition], bool]] = field(factory=list)
    """Number, partitions, whether they are to be given up."""

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        self.queue.append((number, partitions, True))

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        self.queue.append((number, partitions, False))


@define(eq=False)
class Seat:
    """A member as the coordinator keeps it. A request waits in it until the others have come."""

    protocols: Mapping[str, bytes] = field(factory=dict)
    join: UnsentRequest | None = None
    sync: UnsentRequest | None = None


@define(eq=False)
class Group:
    """The coordinator: GroupCoordinator of Kafka 2.3 and newer without the clock; ``forget`` is the end of a session."""

    seats: dict[str, Seat] = field(factory=dict)
    generation: int = 0
    phase: str = "stable"
    plan: dict[str, bytes] = field(factory=dict)
    given: int = 0

    def answer(self, request: UnsentRequest, now: float) -> None:
        message: Any = request.message
        match request.name:
            case "JoinGroup":
                self._join(request, message, now)
            case "SyncGroup":
                self._sync(request, message, now)
            case "Heartbeat":
                late = self.phase == "joining"
                request.on_done(HeartbeatResponse(error_code=self._check(message) or (REBALANCING if late else 0)), now)
            case "LeaveGroup":
                self.forget(message.members[0].member_id, now)
                request.on_done(LeaveGroupResponse(), now)

    def forget(self, member_id: str, now: float) -> None:
        seat = self.seats.pop(member_id, None)
        if seat is None:
            return
        if seat.join is not None:
            seat.join.on_done(JoinGroupResponse(error_code=UNKNOWN_MEMBER), now)
        if seat.sync is not None:
            seat.sync.on_done(SyncGroupResponse(error_code=UNKNOWN_MEMBER), now)
        self._rebalance(now)

    def _check(self, message: Any) -> int:
        if message.member_id not in self.seats:
            return UNKNOWN_MEMBER
        return 0 if message.generation_id == self.generation else ILLEGAL_GENERATION

    def _join(self, request: UnsentRequest, message: Any, now: float) -> None:
        if not message.member_id:
            self.given += 1
            member_id = f"member-{self.given}"
            self.seats[member_id] = Seat()
            request.on_done(JoinGroupResponse(error_code=ID_REQUIRED, member_id=member_id), now)
        elif message.member_id not in self.seats:
            request.on_done(JoinGroupResponse(error_code=UNKNOWN_MEMBER), now)
        else:
            seat = self.seats[message.member_id]
            seat.protocols = {protocol.name: protocol.metadata for protocol in message.protocols}
            seat.join = request
            self._rebalance(now)

    def _rebalance(self, now: float) -> None:
        self.phase = "joining"
        for seat in self.seats.values():
            if seat.sync is not None:
                waiting, seat.sync = seat.sync, None
                waiting.on_done(SyncGroupResponse(error_code=REBALANCING), now)
        if self.seats and all(seat.join is not None for seat in self.seats.values()):
            self._begin(now)

    def _begin(self, now: float) -> None:
        self.generation += 1
        self.phase = "syncing"
        self.plan = {}
        leader, first = next(iter(self.seats.items()))
        protocol = next(iter(first.protocols))
        members = tuple(
            JoinGroupResponseMember(member_id=key, metadata=seat.protocols[protocol]) for key, seat in self.seats.items()
        )
        for key, seat in self.seats.items():
            waiting, seat.join = seat.join, None
            response = JoinGroupResponse(
                generation_id=self.generation,
                protocol_type="consumer",
                protocol_name=protocol,
                leader=leader,
                member_id=key,
                members=members if key == leader else (),
            )
            if waiting is not None:
                waiting.on_done(response, now)

    def _sync(self, request: UnsentRequest, message: Any, now: float) -> None:
        code = self._check(message) or (REBALANCING if self.phase == "joining" else 0)
        if code:
            request.on_done(SyncGroupResponse(error_code=code), now)
            return
        self.seats[message.member_id].sync = request
        if message.assignments:
            self.phase = "stable"
            self.plan = {assignment.member_id: assignment.assignment for assignment in message.assignments}
        if self.phase == "stable":
            for key, seat in self.seats.items():
                if seat.sync is not None:
                    waiting, seat.sync = seat.sync, None
                    waiting.on_done(SyncGroupResponse(assignment=self.plan[key]), now)


@define(eq=False)
class Crowd:
    """Members of one group, each with a connection that can be cut and an application that can be slow."""

    options: dict[str, Any]
    group: Group = field(factory=Group)
    worlds: list[World] = field(factory=list)

    def add(self, now: float, subscription: Any) -> World:
        world = World(self.options, host=Application())
        self.worlds.append(world)
        world.member.subscribe(subscription, now)
        return world

    def step(self, world: World, now: float) -> None:
        """One turn of a member's loop; its requests reach the coordinator."""
        world.turn(now)
        flying, world.flying = world.flying, []
        for request in flying:
            self.group.answer(request, now)

    def act(self, world: World, now: float) -> None:
        """Have the member's application carry out the next proposal."""
        host = world.host
        assert isinstance(host, Application)
        if not host.queue:
            return
        number, partitions, gives_up = host.queue.pop(0)
        if gives_up:
            host.have -= partitions
            world.member.revoked(number, now)
        else:
            host.have = partitions
            world.member.assigned(number, now)

    def cut(self, world: World, now: float) -> None:
        """The member's connection breaks; what waits at the coordinator is not answered any more."""
        seat = self.group.seats.get(world.member.identity.member_id)
        waiting = [request for request in (seat.join, seat.sync) if request is not None] if seat is not None else []
        if seat is not None:
            seat.join = seat.sync = None
        for request in waiting:
            request.on_done(KafkaConnectionError("cut"), now)
        world.coordinator.found(world.coordinator.latest or world.metadata.nodes[1])

    def owners(self) -> list[TopicPartition]:
        """What the members own whom the coordinator knows; twice what two of them own."""
        known = [world for world in self.worlds if world.member.identity.member_id in self.group.seats]
        return sorted(partition for world in known for partition in world.host.have)
