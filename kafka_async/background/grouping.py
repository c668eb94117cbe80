"""Partitions by topic, which is how requests name them.

Decides: the order of topics, that of their first partition. Owns nothing. Must never know what a request is for.
"""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def by_topic(pairs: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """Return what belongs to each topic (its name, its id, or both), in the order given."""
    topics: dict[K, list[V]] = {}
    for topic, what in pairs:
        topics.setdefault(topic, []).append(what)
    return {topic: tuple(parts) for topic, parts in topics.items()}
