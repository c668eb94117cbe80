"""Partitions by topic, which is how requests name them."""

from collections.abc import Iterable
from typing import TypeVar

from ..model import TopicPartition

K = TypeVar("K")
V = TypeVar("V")


def by_topic(pairs: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """Return what belongs to each topic (its name, its id, or both), in the order given."""
    topics: dict[K, list[V]] = {}
    for topic, what in pairs:
        topics.setdefault(topic, []).append(what)
    return {topic: tuple(parts) for topic, parts in topics.items()}


def named(partitions: Iterable[TopicPartition]) -> str:
    """Return the partitions as text, ten of them at most."""
    names = [str(partition) for partition in sorted(partitions)]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
