"""How much may be received and not done: a number of records, and of bytes.

Bytes are seldom counted: not while as many records of the largest size so far would fit.
"""

from collections.abc import Callable, Sequence
from math import inf

from ...values import define, field


@define(eq=False)
class Room:
    """The limits, and what is known of the sizes of records."""

    records: int
    bytes: float = inf
    largest: int = 0
    """Bytes of the largest record so far."""
    _last: Sequence[int] = field(default=(1,), init=False)
    """Bytes of the records received last."""

    def receive(self, sizes: Sequence[int]) -> None:
        """Learn the sizes of records, in bytes."""
        self.largest = max(self.largest, max(sizes))
        self._last = sizes

    def limit(self, wanted: int, load: int, held_bytes: Callable[[], int]) -> int:
        """Return for how many of the ``wanted`` records there is room in bytes, beside ``load`` that are held; one if none is."""
        if wanted <= 0 or (load + wanted) * self.largest <= self.bytes:
            return wanted
        left = self.bytes - held_bytes()
        if left <= 0:
            return 0 if load else 1
        average = max(1.0, sum(self._last) / len(self._last))
        return max(1, min(wanted, int(left // average)))


def room(limits: "Room | int") -> Room:
    """Return limits; a number is one of records."""
    return limits if isinstance(limits, Room) else Room(limits)
