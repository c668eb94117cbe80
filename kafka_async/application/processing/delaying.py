"""Partitions wait until their next record is due: they are paused meanwhile, and go on by themselves.

What was received of them stays here, and nothing more is fetched. There is no seek, so nothing is fetched twice.
"""

from collections.abc import Collection
from math import inf
from typing import Final, Protocol

from ...model import TopicPartition
from ...values import define, field
from .delays import Delays
from .work import Work

LOOK: Final = 1.0
"""Seconds between two looks at the wall clock while a record waits: so long a jump of it goes unnoticed."""


class Pausing(Protocol):
    """What pauses partitions until their next record is due."""

    def wall(self) -> float:
        """Return the wall clock's time, in milliseconds since the epoch."""

    def delayed(self) -> Collection[TopicPartition]:
        """Return what is paused so. A partition whose position was moved elsewhere is not any more."""

    def delay(self, partitions: Collection[TopicPartition], *, delayed: bool) -> None:
        """Pause partitions so, or let them go on. Those that have left are ignored."""


@define(eq=False)
class Delayer:
    """Lets records go once they are due, and their partitions."""

    delays: Delays
    work: Work = field(repr=False)
    source: Pausing = field(repr=False)
    look_at: float = field(default=inf, init=False)
    """When to look again."""
    _paused: frozenset[TopicPartition] = field(default=frozenset(), init=False)

    def look(self, now: float) -> None:
        """Let go what is due, and pause what is not. ``now``: seconds of the clock of ``look_at``."""
        delays, wall = self.delays, self.source.wall()
        if not self._paused and not delays.records:
            return
        for partition in self._paused - frozenset(self.source.delayed()):
            self.work.go_elsewhere(partition)
        self.work.lanes.admit(wall, now)
        wanted = frozenset(part.progress.partition for part in delays.parts)
        before = frozenset(self.source.delayed())
        self._paused = wanted
        if more := wanted - before:
            self.source.delay(more, delayed=True)
        if ended := before - wanted:
            self.source.delay(ended, delayed=False)
        self.look_at = now + min(LOOK, max(1.0, delays.due_at - wall) / 1000) if wanted else inf

    def until(self) -> dict[TopicPartition, int]:
        """Return when each partition that waits goes on, in milliseconds since the epoch. From any thread."""
        return self.delays.until()
