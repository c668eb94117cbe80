"""Units of work that wait until they may be tried again."""

from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain

from ...values import define, field
from .items import Item, Pack

Unit = Item | Pack


@define(eq=False)
class LaterAttempts:
    """Units that wait to be handled again, by the time when they are due."""

    _heap: list[tuple[float, int, Unit]] = field(factory=list, init=False)
    _count: int = field(default=0, init=False)
    """Of two units that are due at the same time, the one added first comes first."""
    _aside: dict[Hashable, dict[Unit, None]] = field(factory=dict, init=False)
    """Units that wait for no time, but for what has this name; the oldest first."""
    records: int = field(default=0, init=False)
    """How many records wait for their time."""

    def add(self, unit: Unit, due: float) -> None:
        """Let a unit wait until ``due``, in seconds of the caller's clock."""
        self._count += 1
        self.records += len(unit.items)
        heappush(self._heap, (due, self._count, unit))

    @property
    def units(self) -> Iterator[Unit]:
        """All that wait."""
        return chain((unit for _, _, unit in self._heap), *self._aside.values())

    def put_aside(self, unit: Unit, name: Hashable) -> None:
        """Let a unit wait until it is taken with ``bring_back``."""
        self._aside.setdefault(name, {})[unit] = None

    def bring_back(self, name: Hashable) -> Unit | None:
        """Take out the oldest unit that was put aside under this name."""
        waiting = self._aside.get(name)
        if waiting is None:
            return None
        unit = next(iter(waiting))
        self._drop(name, unit)
        return unit

    @property
    def aside(self) -> Collection[Hashable]:
        """The names under which units were put aside."""
        return tuple(self._aside)

    def _drop(self, name: Hashable, unit: Unit) -> None:
        waiting = self._aside[name]
        del waiting[unit]
        if not waiting:
            del self._aside[name]

    def take_due(self, now: float) -> Iterator[Unit]:
        """Take out the units that are due, the earliest first."""
        while self._heap and self._heap[0][0] <= now:
            unit = heappop(self._heap)[2]
            self.records -= len(unit.items)
            yield unit

    def take_unless(self, stays: Callable[[Unit], bool]) -> list[tuple[Unit, float]]:
        """Take out the units that do not stay; return each with the time when it would have been due, or arrived."""
        kept = []
        leaving = [(name, unit) for name, waiting in self._aside.items() for unit in waiting if not stays(unit)]
        for name, unit in leaving:
            self._drop(name, unit)
        taken = [(unit, unit.arrived) for _, unit in leaving]
        for entry in self._heap:
            if stays(entry[2]):
                kept.append(entry)
            else:
                taken.append((entry[2], entry[0]))
                self.records -= len(entry[2].items)
        heapify(kept)
        self._heap = kept
        return taken

    @property
    def due_at(self) -> float | None:
        """When the next is due; ``None`` if nothing waits."""
        return self._heap[0][0] if self._heap else None
