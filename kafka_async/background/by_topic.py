"""Partitions by topic, which is how requests name them."""

from collections.abc import Iterable
from typing import TypeVar

from ..model import TopicPartition
from ..trace import first_of

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
    return first_of([str(partition) for partition in sorted(partitions)], 10)
