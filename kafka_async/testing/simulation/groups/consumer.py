"""One group of the consumer protocol (KIP-848): epochs, the target assignment, and how members get there.

Source: the behaviour of ``ConsumerGroup``, ``CurrentAssignmentBuilder`` and ``GroupMetadataManager`` in Kafka 4.3.
"""

from collections.abc import Iterator, Mapping, Set
from math import inf
from typing import Final

from attrs import Factory, define

from ....wire.messages import ConsumerGroupHeartbeatRequest
from ..traffic import Caller
from .assignor import ASSIGNORS, UNIFORM, Part, beside
from .fellows import Fellow

UNKNOWN_MEMBER, FENCED_INSTANCE, FENCED_EPOCH, UNRELEASED_INSTANCE, STALE_EPOCH = 25, 82, 110, 111, 113
LEAVES: Final = -1
"""Member epoch of a member that leaves."""
LEAVES_FOR_A_WHILE: Final = -2
"""Member epoch of a static member that leaves, perhaps to come back."""
_NOTHING: Final[frozenset[Part]] = frozenset()


class Refused(Exception):
    """A heartbeat is answered with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@define(eq=False)
class ConsumerMember:
    """One member."""

    id: str
    instance: str | None
    seen: float
    epoch: int = 0
    previous: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    rebalance: float = 300.0
    assigned: frozenset[Part] = _NOTHING
    revoking: frozenset[Part] = _NOTHING
    """Partitions that it has to give up, and may still have."""
    revoking_since: float = 0.0
    caller: Caller = Factory(Caller)
    assignor: str | None = None
    """The assignor that it would have."""
    fellow: Fellow | None = None
    """A test plays its part."""

    @property
    def away(self) -> bool:
        """A static member that may come back."""
        return self.epoch == LEAVES_FOR_A_WHILE


@define(eq=False, repr=False)
class ConsumerGroup:
    """One group."""

    id: str
    session: float = 45.0
    """Seconds of silence after which a member is out."""
    epoch: int = 0
    members: dict[str, ConsumerMember] = Factory(dict)
    target: dict[str, frozenset[Part]] = Factory(dict)
    subscribed: dict[str, frozenset[Part]] = Factory(dict)
    """What each member could have when the target was made."""
    claims: dict[str, frozenset[Part]] = Factory(dict)
    """What some members take for themselves."""

    # --- members ---------------------------------------------------------------------------------------------------------------

    def static(self, instance: str | None) -> ConsumerMember | None:
        """Return the member with an instance id."""
        return next((each for each in self.members.values() if instance is not None and each.instance == instance), None)

    def expire(self, now: float) -> list[str]:
        """Remove members that were silent, or kept what they had to give up, for too long; return their ids."""
        late = [
            each.id
            for each in self.members.values()
            if each.seen + self.session <= now or (each.revoking and each.revoking_since + each.rebalance <= now)
        ]
        for key in late:
            del self.members[key]
        return late

    def check(self, member_id: str, epoch: int) -> int:
        """Return why a member may not commit or look up offsets in an epoch, 0 if it may."""
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER
        return 0 if epoch == member.epoch else STALE_EPOCH

    def leave(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Make a member leave. Raises ``Refused`` for one that is not known."""
        member = self._known(request)
        if request.member_epoch == LEAVES_FOR_A_WHILE:
            member.epoch = LEAVES_FOR_A_WHILE
        else:
            del self.members[member.id]

    def enter(self, request: ConsumerGroupHeartbeatRequest, now: float) -> ConsumerMember:
        """Return the member that joins. Raises ``Refused`` if its instance id is taken, even by itself: who left comes back."""
        before = self.static(request.instance_id)
        if before is not None:
            if not before.away:
                raise Refused(UNRELEASED_INSTANCE)
            del self.members[before.id]
            member = ConsumerMember(request.member_id, request.instance_id, now, assigned=before.assigned)
            member.assignor = before.assignor
            member.epoch, member.topics, member.pattern = 0, before.topics, before.pattern
            self.target[member.id] = self.target.pop(before.id, _NOTHING)
            self.subscribed[member.id] = self.subscribed.pop(before.id, _NOTHING)
            self.members[member.id] = member
        return self.members.setdefault(request.member_id, ConsumerMember(request.member_id, request.instance_id, now))

    def stay(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        """Return a member that stays. Raises ``Refused`` if it is not known, or not in that epoch."""
        member = self._known(request)
        if request.member_epoch == member.epoch:
            return member
        owned = owned_by(request)
        late = request.member_epoch == member.previous and owned is not None and owned <= member.assigned
        if not late:  # otherwise it is the answer that was lost
            raise Refused(FENCED_EPOCH)
        return member

    def _known(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        holder = self.static(request.instance_id)
        if request.instance_id is not None and holder is None:
            raise Refused(UNKNOWN_MEMBER)
        if holder is not None and holder.id != request.member_id:
            raise Refused(FENCED_INSTANCE)
        if request.member_id not in self.members:
            raise Refused(UNKNOWN_MEMBER)
        return self.members[request.member_id]

    # --- the target ------------------------------------------------------------------------------------------------------------

    def aim(self, subscribed: Mapping[str, frozenset[Part]], claims: Mapping[str, frozenset[Part]]) -> bool:
        """Make a new target if the members, or what they may have or claim, changed; return whether there is one."""
        if self.subscribed == subscribed and self.claims == claims:
            return False
        self.subscribed, self.claims = dict(subscribed), dict(claims)
        # Static members first and by their instance ids, as the range assignor counts them.
        keys = sorted(subscribed, key=lambda key: (self.members[key].instance is None, self.members[key].instance or key))
        self.target = beside(claims, {key: subscribed[key] for key in keys}, self.target, ASSIGNORS[self.assignor])
        self.epoch += 1
        return True

    @property
    def assignor(self) -> str:
        """The assignor that most members would have."""
        votes = [each.assignor for each in self.members.values() if each.assignor is not None]
        return max(votes, key=votes.count, default=UNIFORM)

    def rotate(self) -> None:
        """Make a new target in which the members swap partitions, as far as their subscriptions allow."""
        keys = sorted(self.members)
        turned = {key: self.target.get(keys[i - 1], _NOTHING) for i, key in enumerate(keys)}
        self.target = beside(self.claims, self.subscribed, turned)
        self.epoch += 1

    def seat(self, fellow: Fellow) -> None:
        """Take in a member whose part a test plays."""
        self.members[fellow.id] = ConsumerMember(fellow.id, None, inf, topics=fellow.topics, fellow=fellow)

    def play(self, now: float) -> None:
        """Have the members whose part a test plays give up what they should, and take what is free."""
        for member in self.members.values():
            if member.fellow is not None:
                self.reconcile(member, member.assigned & self.target.get(member.id, _NOTHING), now)

    def reconcile(self, member: ConsumerMember, owned: Set[Part] | None, now: float) -> None:
        """Bring a member closer to its target: first it gives up partitions, then it gets those that others have given up."""
        if member.revoking:
            if owned is None or owned & member.revoking:
                return
            member.revoking = _NOTHING
        target = self.target.get(member.id, _NOTHING)
        keep, gone = member.assigned & target, member.assigned - target
        if gone and (owned is None or owned & gone):
            member.assigned, member.revoking, member.revoking_since = keep, gone, now
            return
        member.assigned = keep | ((target - keep) - self._held_by_others(member))
        if member.epoch != self.epoch:
            member.previous, member.epoch = member.epoch, self.epoch

    def _held_by_others(self, member: ConsumerMember) -> frozenset[Part]:
        return _NOTHING.union(*(other.assigned | other.revoking for other in self.members.values() if other is not member))

    @property
    def state(self) -> str:
        """The group's state by Kafka's name."""
        if not self.members:
            return "Empty"
        return "Stable" if self.settled() else "Reconciling"

    def settled(self) -> bool:
        """Return whether every member has what it should have, and knows it."""
        here = [each for each in self.members.values() if not each.away]
        return all(
            each.epoch == self.epoch and not each.revoking and each.assigned == self.target.get(each.id, _NOTHING) for each in here
        )


def owned_by(request: ConsumerGroupHeartbeatRequest) -> frozenset[Part] | None:
    """Return the partitions that a member reports as owned; ``None`` if it does not report any."""
    return None if request.topic_partitions is None else frozenset(_parts(request))


def _parts(request: ConsumerGroupHeartbeatRequest) -> Iterator[Part]:
    for each in request.topic_partitions or ():
        if each.topic_id is not None:
            yield from ((each.topic_id, index) for index in each.partitions)
