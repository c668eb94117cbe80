"""The assignments that a coordinator makes: even and then as close to the previous one as possible, or a range for each member."""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

Part: TypeAlias = tuple[UUID, int]
"""A partition, by the id of its topic."""
P = TypeVar("P", bound=tuple[Any, int])


def by_topic(parts: Iterable[Part]) -> dict[UUID, tuple[int, ...]]:
    """Return partitions by the id of their topic, in order."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(parts):
        topics.setdefault(topic_id, []).append(index)
    return {topic_id: tuple(indexes) for topic_id, indexes in topics.items()}


def uniform(subscribed: Mapping[str, Set[P]], before: Mapping[str, Set[P]]) -> dict[str, frozenset[P]]:
    """Return the partitions that each member should have. ``subscribed``: those it may have; ``before``: those it had."""
    shares: dict[str, set[P]] = {member: set() for member in sorted(subscribed)}
    free = set().union(*subscribed.values()) if subscribed else set()
    for member, share in shares.items():
        share |= before.get(member, frozenset()) & subscribed[member] & free
        free -= share
    for part in sorted(free):
        takers = [member for member in shares if part in subscribed[member]]
        shares[min(takers, key=lambda member: len(shares[member]))].add(part)
    while _moved(shares, subscribed):
        pass
    return {member: frozenset(share) for member, share in shares.items()}


def ranged(subscribed: Mapping[str, Set[P]], before: Mapping[str, Set[P]]) -> dict[str, frozenset[P]]:
    """Return the same with a range of each topic's partitions for each member that may have them, in the members' order."""
    shares: dict[str, set[P]] = {member: set() for member in subscribed}
    for topic in {part[0] for parts in subscribed.values() for part in parts}:
        takers = [member for member, parts in subscribed.items() if any(part[0] == topic for part in parts)]
        found = sorted({part for member in takers for part in subscribed[member] if part[0] == topic})
        each, more = divmod(len(found), len(takers))
        for number, member in enumerate(takers):
            start = number * each + min(number, more)
            shares[member] |= set(found[start : start + each + (number < more)])
    return {member: frozenset(share) for member, share in shares.items()}


Assignor: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, frozenset[Any]]]
UNIFORM: Final = "uniform"
ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: uniform, "range": ranged}
"""The assignors that a member of a consumer group may ask for (``group.consumer.assignors``)."""


def beside(
    claims: Mapping[str, frozenset[P]],
    subscribed: Mapping[str, Set[P]],
    before: Mapping[str, Set[P]],
    assign: Assignor = uniform,
) -> dict[str, frozenset[P]]:
    """Return what ``assign`` does where some members take what they claim. The first of two claims counts."""
    taken: set[P] = set()
    found: dict[str, frozenset[P]] = {}
    for member, claimed in claims.items():
        found[member] = claimed - taken
        taken |= claimed
    return assign({member: parts - taken for member, parts in subscribed.items() if member not in claims}, before) | found


def _moved(shares: dict[str, set[P]], subscribed: Mapping[str, Set[P]]) -> bool:
    """Move one partition from a member with too many to one with too few; return whether there was one to move."""
    for poor in sorted(shares, key=lambda member: len(shares[member])):
        for rich in sorted(shares, key=lambda member: -len(shares[member])):
            if len(shares[rich]) - len(shares[poor]) < 2:
                break
            common = shares[rich] & subscribed[poor]
            if common:
                part = max(common)
                shares[rich].remove(part)
                shares[poor].add(part)
                return True
    return False
