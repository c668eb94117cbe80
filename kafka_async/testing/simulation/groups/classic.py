"""One group of the classic protocol: joining, the leader's assignment, heartbeats, sessions.

Source: the behaviour of ``ClassicGroup`` and ``GroupMetadataManager`` in Kafka 4.3; KIP-62, 345, 394, 814.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from math import inf
from typing import Final

from attrs import Factory, define, evolve, field

from ....model import TopicPartition
from ....wire.messages import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember, SyncGroupRequestAssignment
from ..traffic import Caller
from .fellows import COOPERATIVE, Fellow, gives_up, plan

ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER, REBALANCING = 22, 23, 25, 27
ID_REQUIRED, FENCED_INSTANCE = 79, 82
_ID_MATTERS_FROM: Final = 4
"""Version of JoinGroup from which a member is given its id before it joins (KIP-394)."""


class State(Enum):
    """What a group is doing."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members join; the generation begins when all have, or when the rebalance timeout is over."""
    COMPLETING = "CompletingRebalance"
    """The leader has to send the assignment."""
    STABLE = "Stable"


@define(eq=False)
class ClassicMember:
    """One member."""

    id: str
    instance: str | None
    seen: float
    session: float = 45.0
    """Seconds of silence after which the member is out."""
    rebalance: float = 60.0
    protocols: dict[str, bytes] = Factory(dict)
    joined: bool = False
    """It waits for the generation to begin, or is part of it."""
    assignment: bytes = b""
    caller: Caller = Factory(Caller)
    waits: int = 0
    """Requests of this member that are held back; while there is one, its session does not end."""
    synced: int = -1
    """The generation whose assignment it was told last."""
    fellow: Fellow | None = None
    """A test plays its part."""

    @property
    def claims(self) -> bool:
        """Whether it takes certain partitions for itself."""
        return self.fellow is not None and self.fellow.wanted is not None


@define(eq=False, repr=False)
class ClassicGroup:
    """One group."""

    id: str
    new_id: Callable[[str], str]
    """Returns a new member id for a client id."""
    changed: Callable[[], None]
    """Called when something happened that a request may wait for."""
    parts_of: Callable[[Iterable[str]], frozenset[TopicPartition]]
    """Returns the partitions of topics."""
    members: dict[str, ClassicMember] = Factory(dict)
    pending: dict[str, float] = Factory(dict)
    """Ids that were given out, and until when they may be used."""
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = "consumer"
    protocol: str | None = None
    leader: str | None = None
    deadline: float = 0.0
    """When members that have not joined again are given up."""
    rounds: int = field(default=0)
    """How many generations have begun, including those without members."""

    # --- members ---------------------------------------------------------------------------------------------------------------

    def static(self, instance: str | None) -> ClassicMember | None:
        """Return the member with an instance id."""
        return next((each for each in self.members.values() if instance is not None and each.instance == instance), None)

    def check(self, member_id: str, instance: str | None, generation: int | None) -> int:
        """Return why a member may not act in a generation, 0 if it may."""
        holder = self.static(instance)
        if instance is not None and holder is None:
            return UNKNOWN_MEMBER
        if holder is not None and holder.id != member_id:
            return FENCED_INSTANCE
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return 0 if generation in (None, self.generation) else ILLEGAL_GENERATION

    def expire(self, now: float) -> None:
        """Remove the members whose session has ended; begin the generation if the rebalance timeout has passed."""
        self.pending = {key: until for key, until in self.pending.items() if until > now}
        late = [each.id for each in self.members.values() if not each.waits and each.seen + each.session <= now]
        if late:
            self.remove(late, now)
        self.complete(now)

    def next_deadline(self, now: float) -> float:
        """Return when to look again if nothing happens before."""
        return max(now, min([*self._deadlines(), now + 3600]))

    def _deadlines(self) -> Iterator[float]:
        yield from self.pending.values()
        yield from (each.seen + each.session for each in self.members.values() if not each.waits)
        if self.state is State.PREPARING:
            yield self.deadline

    def remove(self, ids: list[str], now: float) -> None:
        """Make members leave."""
        gone = [key for key in ids if self.members.pop(key, None) is not None]
        if self.leader in gone:
            self.leader = None
        if gone and self.state is State.PREPARING:
            self.complete(now)
        elif gone:
            self.prepare(now)
        self.changed()

    def seat(self, fellow: Fellow) -> None:
        """Take in a member whose part a test plays. It counts from the next generation on."""
        self.members[fellow.id] = ClassicMember(fellow.id, None, inf, inf, 0.0, fellow=fellow)

    def settled(self) -> bool:
        """Whether each member has its whole assignment: no other generation follows, in which it would get the rest."""
        protocol = self.protocol or ""
        return self.state is State.STABLE and all(
            (each.fellow is not None or each.synced == self.generation)
            and not gives_up(protocol, each.protocols.get(protocol, b""), each.assignment)
            for each in self.members.values()
        )

    def _programs(self) -> list[ClassicMember]:
        """Return the members that speak for themselves."""
        return [each for each in self.members.values() if each.fellow is None]

    # --- the generation --------------------------------------------------------------------------------------------------------

    def prepare(self, now: float) -> None:
        """Make the members join again."""
        self._ask_all()
        self.state = State.PREPARING
        self.deadline = now + max((member.rebalance for member in self.members.values()), default=0.0)
        self.changed()
        self.complete(now)

    def _ask_all(self) -> None:
        for member in self.members.values():
            member.joined = member.fellow is not None

    def complete(self, now: float) -> None:
        """Begin the generation if all members are there, or the others are not waited for any longer."""
        if self.state is not State.PREPARING:
            return
        if now >= self.deadline:  # static members are kept until their session ends (KIP-345)
            self.members = {key: each for key, each in self.members.items() if each.joined or each.instance is not None}
        elif self.pending or not all(member.joined for member in self.members.values()):
            return
        self.generation += 1
        self.rounds += 1
        self.state = State.COMPLETING if self.members else State.EMPTY
        self.protocol = self._chosen() if self.members else None
        for member in self.members.values():
            member.assignment, member.seen = b"", now
            if member.fellow is not None and self.protocol is not None:
                member.protocols = {self.protocol: member.fellow.subscription(self.protocol, self.generation - 1)}
        self._lead(now)
        self.changed()

    def _lead(self, now: float) -> None:
        """Choose the leader. One that claims partitions leads, so that no other member's assignor has a say in it."""
        here = [each for each in self.members.values() if each.joined]
        claiming, programs = [each for each in here if each.claims], [each for each in here if each.fellow is None]
        led = self.members.get(self.leader or "")
        if claiming or led is None or (led.fellow is not None and programs):
            led = next(iter(claiming or programs or here), None)
        self.leader = None if led is None else led.id
        if led is not None and led.fellow is not None:
            subscriptions = {each.id: each.protocols.get(self.protocol or "", b"") for each in self.members.values()}
            claims = {each.id: each.fellow.wanted for each in here if each.fellow is not None and each.fellow.wanted is not None}
            self._take(plan(subscriptions, claims, self.parts_of), now)

    def _common(self) -> list[str]:
        protocols = [member.protocols for member in self._programs()]
        return [name for name in protocols[0] if all(name in other for other in protocols)] if protocols else []

    def _chosen(self) -> str:
        """Every member votes for the first of its protocols that all members have."""
        common = self._common()
        votes = [next(name for name in member.protocols if name in common) for member in self._programs()]
        return max(common, key=votes.count, default="range")

    # --- requests --------------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, version: int, now: float, caller: Caller) -> JoinGroupResponse | ClassicMember:
        """Take a member in. Return the answer, or the member if it has to wait for the others."""
        offered = {protocol.name: protocol.metadata for protocol in request.protocols}
        others = [each.protocols for each in self._programs() if each.id != request.member_id]
        if not offered or (others and not any(all(name in other for other in others) for name in offered)):
            return self._refusal(INCONSISTENT, request)
        if not request.member_id:
            return self._join_new(request, offered, version, now, self.new_id(caller.client_id))
        if request.member_id in self.pending:
            del self.pending[request.member_id]
            return self._enter(self._make(request.member_id, request, now), request, offered, now)
        code = self.check(request.member_id, request.group_instance_id, None)
        if code:
            return self._refusal(code, request)
        return self._join_again(self.members[request.member_id], request, offered, now)

    def _join_new(
        self, request: JoinGroupRequest, offered: dict[str, bytes], version: int, now: float, key: str
    ) -> JoinGroupResponse | ClassicMember:
        before = self.static(request.group_instance_id)
        if before is not None:
            return self._replace(before, key, request, offered, version, now)
        if version >= _ID_MATTERS_FROM and request.group_instance_id is None:
            self.pending[key] = now + request.session_timeout_ms / 1000
            return JoinGroupResponse(error_code=ID_REQUIRED, member_id=key)
        return self._enter(self._make(key, request, now), request, offered, now)

    def _make(self, key: str, request: JoinGroupRequest, now: float) -> ClassicMember:
        self.members[key] = ClassicMember(key, request.group_instance_id, now)
        return self.members[key]

    def _replace(
        self, before: ClassicMember, key: str, request: JoinGroupRequest, offered: dict[str, bytes], version: int, now: float
    ) -> JoinGroupResponse | ClassicMember:
        """A static member is back under a new id: nobody has to join again if nothing about it has changed."""
        was_leader = self.leader == before.id
        del self.members[before.id]
        member = self._make(key, request, now)
        member.assignment, same = before.assignment, offered == before.protocols
        self._update(member, request, offered, now)
        if was_leader:
            self.leader = key
        self.changed()
        if self.state is not State.STABLE or not same:
            return self._enter(member, request, offered, now)
        member.joined = True
        answer = self.answer(member)
        if version >= 9:
            return answer if not was_leader else self.answer(member, skip=True)
        return answer if not was_leader else evolve(answer, leader=before.id, members=())

    def _join_again(
        self, member: ClassicMember, request: JoinGroupRequest, offered: dict[str, bytes], now: float
    ) -> JoinGroupResponse | ClassicMember:
        same = member.protocols == offered
        unaffected = self.state is State.COMPLETING or (self.state is State.STABLE and member.id != self.leader)
        if same and unaffected:
            member.seen = now
            return self.answer(member)
        return self._enter(member, request, offered, now)

    def _update(self, member: ClassicMember, request: JoinGroupRequest, offered: dict[str, bytes], now: float) -> None:
        member.protocols, member.seen = offered, now
        member.session = request.session_timeout_ms / 1000
        member.rebalance = (
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
        ) / 1000
        self.protocol_type = request.protocol_type

    def _enter(self, member: ClassicMember, request: JoinGroupRequest, offered: dict[str, bytes], now: float) -> ClassicMember:
        self._update(member, request, offered, now)
        if self.state is not State.PREPARING:
            self._ask_all()
            self.state = State.PREPARING
            self.deadline = now + max(each.rebalance for each in self.members.values())
        member.joined = True
        self.changed()
        self.complete(now)
        return member

    def answer(self, member: ClassicMember, *, skip: bool = False) -> JoinGroupResponse:
        """Return the JoinGroup answer for a member of the generation."""
        name = self.protocol or ""
        leads = member.id == self.leader
        members = tuple(
            JoinGroupResponseMember(member_id=each.id, group_instance_id=each.instance, metadata=each.protocols.get(name, b""))
            for each in self.members.values()
        )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=name,
            leader=self.leader or "",
            skip_assignment=skip,
            member_id=member.id,
            members=members if leads else (),
        )

    def _refusal(self, code: int, request: JoinGroupRequest) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=code, member_id=request.member_id)

    def assign(self, assignments: tuple[SyncGroupRequestAssignment, ...], now: float) -> None:
        """Take the leader's assignment."""
        self._take({each.member_id: each.assignment for each in assignments}, now)

    def _take(self, given: Mapping[str, bytes], now: float) -> None:
        gave_up = False
        for member in self.members.values():
            member.assignment, member.seen = given.get(member.id, b""), now
            if member.fellow is not None:
                gave_up |= member.fellow.assigned(member.assignment)
        self.state = State.STABLE
        self.changed()
        if gave_up and self.protocol == COOPERATIVE:  # as each of its members does, so that others get what is free now
            self.prepare(now)
