"""The assignors range and roundrobin, and how the option ``partition_assignment_strategy`` names assignors.

They divide exactly as Java's ``RangeAssignor`` and ``RoundRobinAssignor`` do, so that it does not matter which client leads a
group. No code is loaded that a string names: a user's assignor is passed as a class or an object. Sources: KIP-881 (racks), KIP-429
(protocols).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, Final

from ....config import ConsumerConfig
from ....errors import shown
from ....model import TopicPartition
from ....values import define, field
from .assignment import Assignor, GroupMember, GroupTopics, RebalanceProtocol, in_rack, join_order, racks_matter, subscribers
from .sticky_assignors import CooperativeStickyAssignor, StickyAssignor


class RangeAssignor:
    """Gives each member of a topic a row of consecutive partitions; the first members get one more if it does not come out even.

    Topics with equal numbers of partitions and equal members are divided alike, so that partition n of all of them has one owner.
    Racks count only as far as that stays true.
    """

    name = "range"
    protocols = frozenset((RebalanceProtocol.EAGER,))

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return None

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Nothing to remember."""

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> Mapping[str, list[TopicPartition]]:
        """Divide topic by topic; partitions with a replica in a member's rack are placed first."""
        ranges = [_TopicRange(topic, topics[topic], some) for topic, some in subscribers(topics, members).items() if topics[topic]]
        if any(topic.rack_aware for topic in ranges):
            for alike in _divided_alike(ranges):
                _place_by_rack(alike)
        for topic in ranges:
            topic.fill(_anyhow)
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in ranges:
            for member_id, numbers in topic.given.items():
                given[member_id].extend(TopicPartition(topic.topic, number) for number in sorted(numbers))
        return given


@define(eq=False)
class _TopicRange:
    """One topic while it is divided."""

    topic: str
    racks: Sequence[frozenset[str]]
    members: list[GroupMember]
    rack_aware: bool = field(init=False)
    free: list[int] = field(init=False)
    given: dict[str, list[int]] = field(init=False)
    extras: int = field(init=False)
    """How many members may still get one more than the others."""

    def __attrs_post_init__(self) -> None:
        self.rack_aware = racks_matter((member.rack for member in self.members), self.racks)
        self.free = list(range(len(self.racks)))
        self.given = {member.member_id: [] for member in self.members}
        self.extras = len(self.racks) % len(self.members)

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for topics that must be divided alike."""
        return (len(self.racks), frozenset((member.member_id, member.rack) for member in self.members))

    def room(self, member: GroupMember) -> int:
        quota = len(self.racks) // len(self.members) + (self.extras > 0)
        return max(0, quota - len(self.given[member.member_id]))

    def give(self, member: GroupMember, numbers: Sequence[int]) -> None:
        mine = self.given[member.member_id]
        mine.extend(numbers)
        if len(mine) > len(self.racks) // len(self.members):
            self.extras -= 1
        taken = set(numbers)
        self.free = [number for number in self.free if number not in taken]

    def fill(self, suits: Callable[[GroupMember, frozenset[str]], bool]) -> None:
        for member in self.members:
            numbers = [number for number in self.free if suits(member, self.racks[number])][: self.room(member)]
            if numbers:
                self.give(member, numbers)


def _anyhow(member: GroupMember, racks: frozenset[str]) -> bool:
    return True


def _divided_alike(ranges: Sequence[_TopicRange]) -> Iterator[list[_TopicRange]]:
    groups: dict[tuple[object, ...], list[_TopicRange]] = defaultdict(list)
    for topic in ranges:
        groups[topic.alike].append(topic)
    return iter(groups.values())


def _place_by_rack(topics: list[_TopicRange]) -> None:
    if len(topics) == 1:
        if topics[0].rack_aware:
            topics[0].fill(in_rack)
        return
    members = topics[0].members
    for number in range(len(topics[0].racks)):
        fitting = (
            member for member in members if all(topic.room(member) and in_rack(member, topic.racks[number]) for topic in topics)
        )
        member = next(fitting, None)
        if member is not None:
            for topic in topics:
                topic.give(member, (number,))


class RoundRobinAssignor:
    """Deals all partitions of all topics, in order, to the members in turn; a member that is not subscribed is passed over."""

    name = "roundrobin"
    protocols = frozenset((RebalanceProtocol.EAGER,))

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return None

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Nothing to remember."""

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> Mapping[str, list[TopicPartition]]:
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        turns = cycle(sorted(members, key=join_order))
        for topic in subscribers(topics, members):
            for number in range(len(topics[topic])):
                member = next(member for member in turns if topic in member.topics)
                given[member.member_id].append(TopicPartition(topic, number))
        return given


# --- the option -----------------------------------------------------------------------------------------------------------------

_BUILT_IN: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_JAVA_NAMES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_OPTION: Final = "partition_assignment_strategy"


def assignors_from(config: ConsumerConfig) -> tuple[Assignor, ...]:
    """Return new assignors for ``partition_assignment_strategy``, best first.

    An entry is a name (``"range"``, ``"roundrobin"``, ``"sticky"``, ``"cooperative-sticky"``, or Java's class name), an
    ``Assignor``, a class that makes one, or an assignor of another client whose ``name`` is one of these. Raises ``ValueError``
    naming what is wrong.

    If the option is not set, ``roundrobin`` is offered after Java's defaults: members that run aiokafka offer nothing else, and
    a group cannot be taken over from them one by one without an assignor in common. It changes nothing elsewhere. The coordinator
    takes the assignor that most members prefer among those that all of them offer, and no member prefers the last one; the
    rebalance protocol is eager with ``range`` in the list already.
    """
    entries: Any = config.partition_assignment_strategy
    if isinstance(entries, str):
        entries = [entry.strip() for entry in entries.split(",") if entry.strip()]
    if not isinstance(entries, Sequence):
        entries = (entries,)
    if _OPTION not in config.given:
        entries = (*entries, RoundRobinAssignor.name)
    if not entries:
        raise ValueError(f"{_OPTION}={shown(config.partition_assignment_strategy)}: expected at least one assignor")
    assignors = tuple(_assignor(entry) for entry in entries)
    names = [assignor.name for assignor in assignors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{_OPTION}: {', '.join(map(repr, twice))} is given more than once")
    common_protocol(assignors)
    return assignors


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the protocol that a member with these assignors follows: cooperative only if all of them can be.

    Raises ``ValueError`` if they have none in common.
    """
    common = frozenset(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        names = ", ".join(repr(assignor.name) for assignor in assignors)
        raise ValueError(f"{_OPTION}: {names} have no rebalance protocol in common; expected all eager or all cooperative")
    return RebalanceProtocol.COOPERATIVE if RebalanceProtocol.COOPERATIVE in common else RebalanceProtocol.EAGER


def _assignor(entry: Any) -> Assignor:
    if isinstance(entry, str):
        name = _JAVA_NAMES.get(entry.removeprefix("org.apache.kafka.clients.consumer."), entry)
        if name not in _BUILT_IN:
            raise ValueError(
                f"{_OPTION}: {shown(entry)} is not known; expected one of {', '.join(map(repr, _BUILT_IN))}, or an assignor"
            )
        return _BUILT_IN[name]()
    if _can_assign(entry):
        return _made(entry)
    foreign = getattr(entry, "name", None)
    if isinstance(foreign, str) and foreign in _BUILT_IN:
        return _BUILT_IN[foreign]()
    raise ValueError(f"{_OPTION}: {shown(entry)} is not an assignor; it needs name, protocols, user_data, assign and on_assignment")


def _can_assign(entry: Any) -> bool:
    methods = (getattr(entry, method, None) for method in ("user_data", "assign", "on_assignment"))
    return hasattr(entry, "name") and hasattr(entry, "protocols") and all(callable(method) for method in methods)


def _made(entry: Any) -> Assignor:
    """Return the entry, or what the class makes; its name and protocols must be valid."""
    try:
        assignor: Assignor = entry() if isinstance(entry, type) else entry
    except Exception as error:  # the boundary to the user's code
        raise ValueError(f"{_OPTION}: {shown(entry)} cannot be made without arguments: {error}") from error
    if not isinstance(assignor.name, str) or not assignor.name:
        raise ValueError(f"{_OPTION}: {shown(entry)} has the name {shown(assignor.name)}; expected a string that is not empty")
    if not all(isinstance(protocol, RebalanceProtocol) for protocol in assignor.protocols):
        raise ValueError(
            f"{_OPTION}: {shown(assignor.name)} has the protocols {assignor.protocols!r}; expected RebalanceProtocol values"
        )
    return assignor
