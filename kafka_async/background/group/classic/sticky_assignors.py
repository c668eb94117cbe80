"""The assignors sticky and cooperative-sticky: even numbers of partitions, and as few moves as that takes.

Evenness comes first, then racks (KIP-881), then staying where it is. Members of ``sticky`` give up everything before they join, so
what it was given last is kept to be reported to the leader. With ``cooperative-sticky`` (KIP-429) a partition is left out until its
owner has given it up.

Even means that no chain of moves from member to member makes the numbers of partitions more even. With the shortest chains moved
until there is none left, the result is as even as the subscriptions allow (a semi-matching without cost-reducing paths: Harvey,
Ladner, Lovasz, Tamir). Java's ``AbstractStickyAssignor`` tries single moves only.

The bytes of ``sticky`` are those of Java's ``StickyAssignor`` (user data version 1, version 0 is read), those of
``cooperative-sticky`` of Java's ``CooperativeStickyAssignor``. KIP-54, KIP-341 and KIP-792 (generations).
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from ....model import TopicPartition
from ....values import define, field, frozen
from .assignment import NO_GENERATION, GroupMember, GroupTopics, RebalanceProtocol, in_rack, join_order, racks_matter

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@frozen
class _Claim:
    """The partitions that one member claims to have had, and since which generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int


def _owners(topics: GroupTopics, members: Iterable[tuple[GroupMember, _Claim]]) -> dict[TopicPartition, str]:
    """Return whose claim on each partition counts: the one of the highest generation; of two in the same one, neither."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, claim in members:
        for partition in set(claim.partitions):
            if partition.topic not in member.topics or not 0 <= partition.partition < len(topics.get(partition.topic, ())):
                continue
            generation, _ = best.get(partition, (NO_GENERATION - 1, None))
            if claim.generation > generation:
                best[partition] = (claim.generation, member.member_id)
            elif claim.generation == generation:
                best[partition] = (generation, None)
    return {partition: member_id for partition, (_, member_id) in best.items() if member_id is not None}


@define(eq=False)
class _Division:
    """The partitions of a group while they are divided. Members are known by id."""

    topics: GroupTopics
    members: dict[str, GroupMember]
    """In join order."""
    before: Mapping[TopicPartition, str]
    """The last owner of a partition, if it has one that still wants it."""
    rack_aware: bool = field(init=False)
    takers: dict[str, list[str]] = field(init=False)
    """The subscribers of each topic that has any, in join order."""
    given: dict[str, dict[str, set[int]]] = field(init=False)
    """By member and topic."""
    holders: dict[str, set[str]] = field(init=False)
    """The members that have partitions of a topic."""
    load: dict[str, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rack_aware = racks_matter(
            (member.rack for member in self.members.values()),
            (racks for partitions in self.topics.values() for racks in partitions),
        )
        takers = {topic: [key for key, m in self.members.items() if topic in m.topics] for topic in sorted(self.topics)}
        self.takers = {topic: some for topic, some in takers.items() if some}
        self.given = {key: defaultdict(set) for key in self.members}
        self.holders = {topic: set() for topic in self.takers}
        self.load = dict.fromkeys(self.members, 0)

    def divide(self) -> dict[str, list[TopicPartition]]:
        left = self._keep()
        # Topics that few members want first: the others can make up for them.
        for topic in sorted(left, key=lambda topic: (len(self.takers[topic]), topic)):
            self._fill(topic, left[topic])
        self._even_out()
        return {
            key: [TopicPartition(topic, number) for topic in sorted(mine) for number in sorted(mine[topic])]
            for key, mine in self.given.items()
        }

    # --- bookkeeping -----------------------------------------------------------------------------------------------------------

    def _give(self, key: str, topic: str, number: int) -> None:
        self.given[key][topic].add(number)
        self.holders[topic].add(key)
        self.load[key] += 1

    def _take(self, key: str, topic: str, number: int) -> None:
        mine = self.given[key][topic]
        mine.discard(number)
        if not mine:
            self.holders[topic].discard(key)
        self.load[key] -= 1

    def _suits(self, key: str, topic: str, number: int) -> bool:
        return not self.rack_aware or in_rack(self.members[key], self.topics[topic][number])

    # --- the three steps -------------------------------------------------------------------------------------------------------

    def _keep(self) -> dict[str, list[int]]:
        """Leave partitions with their last owners, if the racks agree; return the others by topic.

        If all subscribe to the same topics, no member keeps more than its quota: the numbers of the result are known beforehand.
        """
        total = sum(len(self.topics[topic]) for topic in self.takers)
        alike = all(len(takers) == len(self.members) for takers in self.takers.values())
        quota, extras = divmod(total, len(self.members)) if alike and self.members else (total, 0)
        left: dict[str, list[int]] = {}
        for topic in self.takers:
            left[topic] = []
            for number in range(len(self.topics[topic])):
                owner = self.before.get(TopicPartition(topic, number))
                if owner is None or not self._suits(owner, topic, number) or self.load[owner] >= quota + (extras > 0):
                    left[topic].append(number)
                    continue
                extras -= self.load[owner] == quota
                self._give(owner, topic, number)
        return left

    def _fill(self, topic: str, numbers: list[int]) -> None:
        """Give each partition to the subscriber that has the fewest, if possible one whose rack has a replica."""
        order = {key: position for position, key in enumerate(self.takers[topic])}
        queue = [(self.load[key], position, key) for key, position in order.items()]
        heapify(queue)
        for number in numbers:
            passed = []
            while queue and not self._suits(queue[0][2], topic, number):
                passed.append(heappop(queue))
            _, position, key = heappop(queue) if queue else passed.pop(0)
            self._give(key, topic, number)
            for entry in (*passed, (self.load[key], position, key)):
                heappush(queue, entry)

    def _even_out(self) -> None:
        """Move along the shortest chains from members that have more to members that have less, until there is no such chain."""
        moved = True
        while moved:
            moved = False
            most = max(self.load.values(), default=0)
            for key in sorted(self.members, key=self.load.__getitem__):
                while self.load[key] < most - 1 and (chain := self._chain_to(key)):
                    moved = True
                    for taker, giver, topic in chain:
                        self._move(taker, giver, topic)

    def _chain_to(self, start: str) -> list[tuple[str, str, str]]:
        """Return moves ``(taker, giver, topic)`` that end at ``start`` and begin at a member with two or more partitions more."""
        came: dict[str, tuple[str, str]] = {}
        seen_topics: set[str] = set()
        level = [start]
        while level:
            reached: list[str] = []
            for taker in level:
                for topic in sorted(self.members[taker].topics & self.holders.keys() - seen_topics):
                    seen_topics.add(topic)
                    for giver in sorted(self.holders[topic] - came.keys() - {start}):
                        came[giver] = (taker, topic)
                        reached.append(giver)
            richest = max(reached, key=self.load.__getitem__, default=start)
            if self.load[richest] >= self.load[start] + 2:
                return _unwind(came, richest, start)
            level = reached
        return []

    def _move(self, taker: str, giver: str, topic: str) -> None:
        """Move one partition of the topic: ideally one that suits the taker's rack, was the taker's, and was not the giver's."""

        def cost(number: int) -> tuple[bool, bool, bool, int]:
            last = self.before.get(TopicPartition(topic, number))
            return (not self._suits(taker, topic, number), last != taker, last == giver, number)

        number = min(self.given[giver][topic], key=cost)
        self._take(giver, topic, number)
        self._give(taker, topic, number)


def _unwind(came: Mapping[str, tuple[str, str]], giver: str, start: str) -> list[tuple[str, str, str]]:
    chain = []
    while giver != start:
        taker, topic = came[giver]
        chain.append((taker, giver, topic))
        giver = taker
    return chain


def _divide(
    topics: GroupTopics, members: Sequence[GroupMember], claim: Callable[[GroupMember], _Claim]
) -> dict[str, list[TopicPartition]]:
    ordered = sorted(members, key=join_order)
    before = _owners(topics, ((member, claim(member)) for member in ordered))
    return _Division(topics, {member.member_id: member for member in ordered}, before).divide()


# --- the two assignors ----------------------------------------------------------------------------------------------------------


@define(eq=False)
class StickyAssignor:
    """Sticky under the eager protocol: each member reports to the leader what it was given last."""

    name: str = field(default="sticky", init=False)
    protocols: frozenset[RebalanceProtocol] = field(default=frozenset((RebalanceProtocol.EAGER,)), init=False)
    _last: _Claim | None = field(default=None, init=False)

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return _encode(self._last) if self._last is not None else None

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._last = _Claim(tuple(sorted(partitions)), generation)

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> Mapping[str, list[TopicPartition]]:
        return _divide(topics, members, lambda member: _decode(member.user_data))


@define(eq=False)
class CooperativeStickyAssignor:
    """Sticky under the cooperative protocol: members join with what they own."""

    name: str = field(default="cooperative-sticky", init=False)
    protocols: frozenset[RebalanceProtocol] = field(
        default=frozenset((RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)), init=False
    )
    _generation: int = field(default=NO_GENERATION, init=False)

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the last generation, for leaders that do not read it from the subscription (before KIP-792)."""
        return _INT32.pack(self._generation)

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._generation = generation

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> Mapping[str, list[TopicPartition]]:
        given = _divide(topics, members, _owned)
        # A member that claims a partition may still be reading it, however old the claim is.
        owners: dict[TopicPartition, set[str]] = defaultdict(set)
        for member in members:
            for partition in member.owned:
                owners[partition].add(member.member_id)
        return {
            key: [partition for partition in partitions if key in owners.get(partition, {key})] for key, partitions in given.items()
        }


def _owned(member: GroupMember) -> _Claim:
    generation = member.generation
    if generation == NO_GENERATION and member.user_data is not None and len(member.user_data) >= _INT32.size:
        generation = _INT32.unpack_from(member.user_data)[0]
    return _Claim(member.owned, generation)


# --- user data of ``sticky`` ----------------------------------------------------------------------------------------------------


def _encode(claim: _Claim) -> bytes:
    """Write ``[topic [partition]] generation``."""
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in claim.partitions:
        topics[partition.topic].append(partition.partition)
    out = bytearray(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _INT32.pack(claim.generation))


def _decode(data: bytes | None) -> _Claim:
    """Read what another member, maybe another client, wrote; what cannot be read claims nothing, as in Java."""
    nothing = _Claim((), NO_GENERATION)
    if data is None:
        return nothing
    try:
        partitions: list[TopicPartition] = []
        (count,), offset = _INT32.unpack_from(data), _INT32.size
        for _ in range(count):
            (size,) = _INT16.unpack_from(data, offset)
            offset += _INT16.size
            topic = bytes(data[offset : offset + size]).decode()
            (length,) = _INT32.unpack_from(data, offset + size)
            offset += size + _INT32.size
            numbers = struct.unpack_from(f">{length}i", data, offset) if 0 <= length <= len(data) else None
            if size < 0 or numbers is None:
                return nothing
            offset += length * _INT32.size
            partitions.extend(TopicPartition(topic, number) for number in numbers)
        # Version 0 ends here; it has no generation.
        generation = _INT32.unpack_from(data, offset)[0] if len(data) > offset else NO_GENERATION
        return _Claim(tuple(partitions), generation)
    except (struct.error, UnicodeDecodeError):
        return nothing
