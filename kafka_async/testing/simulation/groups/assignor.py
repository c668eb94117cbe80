"""The assignment that a coordinator makes: even, then as close to the previous one as possible, like Kafka's uniform assignor's.

Decides: which member should have which partition. Owns: nothing. Must never give a partition to two members.
"""

from collections.abc import Mapping, Set
from typing import TypeAlias
from uuid import UUID

Part: TypeAlias = tuple[UUID, int]
"""A partition, by the id of its topic."""


def uniform(subscribed: Mapping[str, Set[Part]], before: Mapping[str, Set[Part]]) -> dict[str, frozenset[Part]]:
    """Return the partitions that each member should have. ``subscribed``: those it may have; ``before``: those it had."""
    shares: dict[str, set[Part]] = {member: set() for member in sorted(subscribed)}
    free = set().union(*subscribed.values()) if subscribed else set()
    for member, share in shares.items():
        share |= before.get(member, frozenset()) & subscribed[member] & free
        free -= share
    for part in sorted(free, key=lambda part: (part[0].int, part[1])):
        takers = [member for member in shares if part in subscribed[member]]
        shares[min(takers, key=lambda member: len(shares[member]))].add(part)
    while _moved(shares, subscribed):
        pass
    return {member: frozenset(share) for member, share in shares.items()}


def _moved(shares: dict[str, set[Part]], subscribed: Mapping[str, Set[Part]]) -> bool:
    """Move one partition from a member with too many to one with too few; return whether there was one to move."""
    for poor in sorted(shares, key=lambda member: len(shares[member])):
        for rich in sorted(shares, key=lambda member: -len(shares[member])):
            if len(shares[rich]) - len(shares[poor]) < 2:
                break
            common = shares[rich] & subscribed[poor]
            if common:
                part = max(common, key=lambda part: (part[0].int, part[1]))
                shares[rich].remove(part)
                shares[poor].add(part)
                return True
    return False
