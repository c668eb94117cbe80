"""The clusters that tests share: one of each kind in a session, started when first asked for, running while a test needs it.

Decides: in which order tests come, and which of the clusters run. An idle cluster of three costs a tenth of a core and a gigabyte,
so the tests of one kind of cluster come together, and a cluster rests as soon as a test begins that does not need it. Its data and
its ports stay: it runs again for tests that need it later. Must never stop a cluster that belongs to a test or a module alone.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import pytest
from attrs import define, field

from . import tiers
from .brokers import KafkaCluster

KINDS: Final = ("kafka_secure", "kafka_identity", "kafka_share", "kafka39", "kafka43", "_three_brokers", "kafka44")
"""Fixtures of the clusters that tests share, in the order in which their tests come within a tier."""


@define(eq=False)
class Shared:
    """The shared clusters of this session, by the name of their fixture."""

    _clusters: dict[str, KafkaCluster] = field(factory=dict, init=False)

    def add(self, kind: str, cluster: KafkaCluster) -> None:
        """Take in a cluster that has been started."""
        self._clusters[kind] = cluster

    def remove(self, kind: str) -> None:
        """Forget a cluster that ends."""
        del self._clusters[kind]

    def prepare(self, item: pytest.Item) -> None:
        """Let run what a test needs, and nothing else."""
        needed = kinds_needed(item)
        for kind, cluster in self._clusters.items():
            if kind not in needed:
                cluster.rest()
        for kind, cluster in self._clusters.items():
            if kind in needed:
                cluster.heal()


SHARED: Final = Shared()


def kinds_needed(item: pytest.Item) -> set[str]:
    """Return which of ``KINDS`` a test has among its fixtures, or names in a parameter, to ask for them by name."""
    names = set(getattr(item, "fixturenames", ()))
    if call := getattr(item, "callspec", None):
        names |= {value for value in call.params.values() if isinstance(value, str)}
    return names & set(KINDS)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order in which they cost least: by tier, by kind of cluster, and by file.

    Spark comes first and what is fast comes last: workers take a file at a time, and at the end none is left alone with a long one.
    """
    kinds = {item: _kind(item) for item in items}
    counts: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for item, kind in kinds.items():
        counts[_place(item)][kind] += 1
    files = {file: number for number, file in enumerate(dict.fromkeys(str(item.path) for item in items))}

    def key(item: pytest.Item) -> tuple[int, int, int, int]:
        place = _place(item)
        return place[0], min(counts[place], key=lambda kind: (-counts[place][kind], kind)), files[place[1]], kinds[item]

    return sorted(items, key=key)


def _place(item: pytest.Item) -> tuple[int, str]:
    return -tiers.TIERS.index(tiers.tier_of(mark.name for mark in item.iter_markers())), str(item.path)


def _kind(item: pytest.Item) -> int:
    """Return the number of the first shared cluster that a test needs; the last number is for tests without one."""
    needed = kinds_needed(item)
    return next((number for number, kind in enumerate(KINDS) if kind in needed), len(KINDS))
