"""Records whose time has not come: ``not_before`` says when one may be handled, in milliseconds since the epoch.

Only the first of them is asked for its time. Those behind it wait with it, also if they have no time or an earlier one, or an order
by partition would be lost. In a topic with one delay for all, records become due in the order of the log anyway.

A wall clock may jump. What counts is what it shows now: each look compares again, so a record that became due by a jump is let go
with the next look, and none is let go before the clock shows its time, however long it has waited.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from ...errors import shown
from ...functions import returned
from ...model import TopicPartition
from ...values import define, field
from .items import Item, Part, Record
from .redelivery import Redelivery

NotBefore = Callable[[Record], float | None]

YEAR_10000: Final = 253_402_300_800_000
"""Milliseconds since the epoch. A time from there on was given in another unit."""


@define(eq=False)
class Delays:
    """The records that may not be handled yet."""

    not_before: NotBefore | None = None
    """For the records of all topics."""
    redelivery: Redelivery | None = None
    """For those of its topics too; of two times the later one counts."""
    _waiting: dict[Part, deque[Item]] = field(factory=dict, init=False)
    _until: dict[Part, float] = field(factory=dict, init=False)
    """When the first one is due; missing: it was not asked for yet."""
    _fresh: list[Item] = field(factory=list, init=False)
    """Those that came since they were looked at."""
    records: int = field(default=0, init=False)
    """How many wait."""

    def keep(self, part: Part, items: Sequence[Item]) -> bool:
        """Keep records that were received until ``take_due`` returns them. ``False``: nothing can delay records of this topic."""
        waiting = self._waiting.get(part)
        if waiting is None:
            topic = part.progress.partition.topic
            if self.not_before is None and (self.redelivery is None or not self.redelivery.serves(topic)):
                return False
            waiting = self._waiting[part] = deque()
        waiting.extend(items)
        self._fresh += items
        self.records += len(items)
        return True

    def take_due(self, wall: float) -> list[tuple[Part, list[Item]]]:
        """Take out the records that are due at ``wall``, in milliseconds since the epoch, by partition."""
        due = []
        for part, waiting in tuple(self._waiting.items()):
            items: list[Item] = []
            while waiting:
                until = self._until.get(part)
                if until is None:
                    until = self._due_of(waiting[0])
                if until > wall:
                    self._until[part] = until  # no other: a thread that looks would see when a record that is let go was due
                    break
                items.append(waiting.popleft())
                self._until.pop(part, None)
            if not waiting:
                del self._waiting[part]
            if items:
                self.records -= len(items)
                due.append((part, items))
        return due

    def take_fresh(self) -> list[Item]:
        """Return the records that have come since this was called last and are not due."""
        fresh, self._fresh = self._fresh, []
        return [item for item in fresh if (waiting := self._waiting.get(item.part)) and item.number >= waiting[0].number]

    def forget(self, part: Part) -> None:
        """The partition leaves, or goes on elsewhere."""
        self.records -= len(self._waiting.pop(part, ()))
        self._until.pop(part, None)

    def _due_of(self, item: Item) -> float:
        if item.error is not None:
            return -inf  # it is not handed to a handler
        record, redelivery = item.record, self.redelivery
        times = [] if self.not_before is None else [self.not_before]
        if redelivery is not None and redelivery.serves(record.topic):
            item.attempt = 1 + redelivery.attempts_before(record)
            times.append(redelivery.not_before)
        try:
            return max(_checked(returned(time(record), "not_before")) for time in times)
        except Exception as error:  # the user's function, or what it returns is no time: the record's failure, not ours
            item.error, item.attempt = error, 0
            return -inf

    # --- looking ---------------------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> list[Part]:
        """The partitions with records that wait."""
        return list(self._waiting)

    def count(self, part: Part) -> int:
        """Return how many records of a partition wait."""
        return len(self._waiting.get(part, ()))

    def first(self, part: Part) -> Item | None:
        """Return the first record of a partition that waits. From any thread."""
        waiting = self._waiting.get(part)
        try:
            return None if waiting is None else waiting[0]
        except IndexError:  # it was let go in between
            return None

    @property
    def due_at(self) -> float:
        """When the first record is due, in milliseconds since the epoch; infinite if none waits."""
        return min(self._until.values(), default=inf)

    def until(self) -> dict[TopicPartition, int]:
        """Return when each partition goes on, in milliseconds since the epoch. From any thread."""
        return {part.progress.partition: round(due) for part, due in tuple(self._until.items())}


def _checked(due: Any) -> float:
    """Return a time. Raises ``TypeError`` and ``ValueError`` for what is none."""
    if due is None:
        return -inf
    if isinstance(due, bool) or not isinstance(due, int | float):
        raise TypeError(f"not_before returned {shown(due)}: expected milliseconds since the epoch, or None")
    if not due < YEAR_10000:
        raise ValueError(f"not_before returned {due!r}: expected milliseconds since the epoch, before the year 10000")
    return due
