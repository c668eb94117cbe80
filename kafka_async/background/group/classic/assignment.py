"""How the leader of a classic group divides partitions: the contract between a membership and an assignor.

Sources: Java's ``ConsumerPartitionAssignor``; KIP-429 (rebalance protocols), KIP-792 (generations of owned partitions), KIP-881
(racks).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from ....errors import IllegalStateError
from ....model import TopicPartition
from ....values import frozen

GroupTopics: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
"""What an assignor is told about topics: by name, each topic that a member subscribes to and that exists. Its value has an item for
each partition, from 0 on: the racks in which the partition has replicas; empty if the brokers name no racks.
"""

NO_GENERATION = -1
"""The member has not been in a generation yet, or its client does not say."""


class RebalanceProtocol(Enum):
    """When members give up partitions that move to others (KIP-429)."""

    EAGER = "every member gives up everything before it joins"
    COOPERATIVE = "members keep what they own and give up what an assignment takes away; then they join again"


@frozen(kw_only=True)
class GroupMember:
    """A member of the group, as the assignor of the group's leader sees it."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    """``group_instance_id`` of a static member (KIP-345)."""
    owned: tuple[TopicPartition, ...] = ()
    """What the member owns while it joins; empty under the eager protocol."""
    generation: int = NO_GENERATION
    """The generation in which ``owned`` was assigned."""
    rack: str | None = None
    user_data: bytes | None = None
    """The user data of the member's own assignor (``Assignor.user_data``); another client may have written it."""


class Assignor(Protocol):
    """A way to divide partitions among the members of a classic group.

    Each consumer has an instance of its own, because an assignor may remember things.

    Called on the background loop: it must not block. What it raises is raised from the caller's next call, and the group tries
    again.
    """

    @property
    def name(self) -> str:
        """The assignor's name; all members of the group must have an assignor of this name."""

    @property
    def protocols(self) -> Collection[RebalanceProtocol]:
        """The rebalance protocols under which the assignor works. ``COOPERATIVE`` promises that ``assign`` gives no partition to a
        member while another one owns it."""

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return bytes about this member for the leader's assignor (``GroupMember.user_data``), or ``None``; ``topics`` are those
        that it subscribes to."""

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> Mapping[str, Iterable[TopicPartition]]:
        """Return the partitions of each member, by member id; a member that is left out gets none.

        Must depend on nothing but the arguments, and must give no partition to two members.
        """

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Remember the partitions that this member was assigned, whichever member leads."""


def join_order(member: GroupMember) -> tuple[bool, str]:
    """Sort key of members: static ones first, by their instance id, so that a restart changes nothing (KIP-345)."""
    return (member.instance_id is None, member.member_id if member.instance_id is None else member.instance_id)


def racks_matter(member_racks: Iterable[str | None], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Return whether racks matter for the assignment (KIP-881).

    They do not if no member has a replica in its rack, or if every partition has a replica in every rack.
    """
    partitions = list(partition_racks)
    everywhere = frozenset().union(*partitions)
    return not everywhere.isdisjoint(rack for rack in member_racks if rack) and any(racks != everywhere for racks in partitions)


def in_rack(member: GroupMember, racks: frozenset[str]) -> bool:
    """Return whether the member has a replica in its rack, or does not care."""
    return not member.rack or member.rack in racks


def subscribers(topics: GroupTopics, members: Sequence[GroupMember]) -> dict[str, list[GroupMember]]:
    """Return the members of each topic that exists and has any, in join order; topics sorted by name."""
    ordered = sorted(members, key=join_order)
    found = {topic: [member for member in ordered if topic in member.topics] for topic in sorted(topics)}
    return {topic: some for topic, some in found.items() if some}


def checked(
    result: Mapping[str, Iterable[TopicPartition]], members: Sequence[GroupMember], protocol: RebalanceProtocol
) -> dict[str, tuple[TopicPartition, ...]]:
    """Return what an assignor answered, sorted, for every member. Raises ``IllegalStateError`` for what would break the group."""
    known = {member.member_id: member for member in members}
    strangers = result.keys() - known.keys()
    if strangers:
        raise IllegalStateError(f"members {', '.join(sorted(map(repr, strangers)))} are not in the group")
    given = {member_id: tuple(sorted(result.get(member_id, ()))) for member_id in known}
    takers: dict[TopicPartition, str] = {}
    for member_id, partitions in given.items():
        for partition in partitions:
            if partition in takers:
                raise IllegalStateError(f"{partition} is given to {takers[partition]!r} and to {member_id!r}")
            takers[partition] = member_id
    if protocol is RebalanceProtocol.COOPERATIVE:
        _check_owners(takers, members)
    return given


def _check_owners(takers: Mapping[TopicPartition, str], members: Sequence[GroupMember]) -> None:
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    for partition, taker in takers.items():
        if taker not in owners.get(partition, {taker}):
            raise IllegalStateError(f"{partition} is given to {taker!r} while another member owns it, which is not cooperative")
