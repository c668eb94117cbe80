"""One share group's membership (KIP-932): epochs, and who reads what. There is no reconciliation, and no member owns a partition.

Source: the behaviour of ``ShareGroup``, ``SimpleAssignor`` and ``GroupMetadataManager.shareGroupHeartbeat`` in Kafka 4.3.
"""

from collections.abc import Mapping
from typing import Final

from attrs import define, field

from ....wire.messages import ShareGroupHeartbeatRequest
from ..traffic import Caller
from .assignor import Part
from .consumer import FENCED_EPOCH, LEAVES, UNKNOWN_MEMBER, Refused

INVALID_REQUEST, GROUP_ID_NOT_FOUND = 42, 69
_NOTHING: Final[frozenset[Part]] = frozenset()


@define(eq=False)
class ShareMember:
    """One member."""

    id: str
    seen: float
    epoch: int = 0
    previous: int = 0
    topics: frozenset[str] = frozenset()
    caller: Caller = field(factory=Caller)
    assigned: frozenset[Part] = _NOTHING
    """Partitions that it was assigned."""


@define(eq=False, repr=False)
class ShareGroup:
    """One group."""

    id: str
    members: dict[str, ShareMember] = field(factory=dict)
    epoch: int = 0
    target: dict[str, frozenset[Part]] = field(factory=dict)
    _subscribed: dict[str, frozenset[Part]] = field(factory=dict)

    @property
    def state(self) -> str:
        """The group's state by Kafka's name."""
        return "Stable" if self.members else "Empty"

    def settled(self) -> bool:
        """Return whether every member knows what it should read."""
        return all(each.assigned == self.target.get(each.id, _NOTHING) for each in self.members.values())

    def expire(self, now: float, session: float) -> bool:
        """Remove the members that were silent for as long as a session lasts; return whether there were any."""
        late = [each.id for each in self.members.values() if now - each.seen >= session]
        for key in late:
            del self.members[key]
        return bool(late)

    def beat(self, request: ShareGroupHeartbeatRequest, now: float) -> ShareMember | None:
        """Take in a heartbeat; return the member, ``None`` if it has left. Raises ``Refused``."""
        key, epoch = request.member_id, request.member_epoch
        if not key or (epoch == 0 and not request.subscribed_topic_names) or epoch < LEAVES:
            raise Refused(INVALID_REQUEST)
        member = self._known(key, epoch) if epoch else self.members.setdefault(key, ShareMember(key, now))
        if epoch == LEAVES:
            del self.members[key]
            return None
        member.seen = now
        if request.subscribed_topic_names is not None:
            member.topics = frozenset(request.subscribed_topic_names)
        return member

    def _known(self, key: str, epoch: int) -> ShareMember:
        if not self.epoch:
            raise Refused(GROUP_ID_NOT_FOUND)
        if key not in self.members:
            raise Refused(UNKNOWN_MEMBER)
        member = self.members[key]
        if epoch != LEAVES and epoch not in (member.epoch, member.previous):
            raise Refused(FENCED_EPOCH)
        return member

    def aim(self, subscribed: Mapping[str, frozenset[Part]]) -> bool:
        """Make a new target if the members or what they may read changed; return whether there is one."""
        if self._subscribed == subscribed:
            return False
        self._subscribed = dict(subscribed)
        self.target = simple(subscribed)
        self.epoch += 1
        return True

    def tell(self, member: ShareMember) -> bool:
        """Bring a member to the group's epoch; return whether what it reads has changed."""
        target = self.target.get(member.id, _NOTHING)
        changed = member.assigned != target
        member.assigned = target
        if member.epoch != self.epoch:
            member.previous, member.epoch = member.epoch, self.epoch
        return changed


def simple(subscribed: Mapping[str, frozenset[Part]]) -> dict[str, frozenset[Part]]:
    """Give every member some partitions, and every partition at least one member."""
    shares: dict[str, set[Part]] = {member: set() for member in sorted(subscribed)}
    parts = sorted(frozenset().union(*subscribed.values()), key=lambda part: (part[0].int, part[1]))
    for number, part in enumerate(parts):
        takers = [member for member in shares if part in subscribed[member]]
        # Each partition gets an equal share of the members, at least one: members 0, 2, ... of 4 for the first of 2.
        for member in takers[number % len(takers) :: len(parts)] or takers[:1]:
            shares[member].add(part)
    return {member: frozenset(share) for member, share in shares.items()}
