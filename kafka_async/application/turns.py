"""Whose turn it is: the order in which partitions with something to read hand it out.

A partition keeps its turn until it has decoded its part of a round, in records or in bytes, or has no more data. Then it goes to
the end of the line. How the data came, in small parcels or in large ones, has no influence: the next parcel of a busy partition
is always there before the last one is used up, so a turn that ended with the data would never end.

A round is as many turns as there are partitions in line when it begins, and all of its turns together have ``ROUND`` records.
Whoever comes to the end of the line during a round has its turn in the next one at the latest: after ``2 * ROUND`` records at
most.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

from ..background.boundary import FetchedData
from ..model import TopicPartition
from ..values import define, field
from .cursor import Cursor, PartitionCustody

ROUND: Final = 5000
"""Records of a round."""
TURN_BYTES: Final = 1024 * 1024
"""Fetched bytes after which a turn ends, if the parcel that holds them is used up: records can be large."""


@define(eq=False)
class Turn:
    """What a partition has decoded in its turn."""

    records: int = 0
    bytes: int = 0
    held: int = 0
    """What the batch in which the last turn ended was decompressed to."""


@define(eq=False)
class Turns:
    """The partitions with something to read, in the order of their turns."""

    most_held: int
    """Bytes that batches may be decompressed to of partitions whose turn it is not. A batch past that is decompressed again."""
    _held: int = field(default=0, init=False)
    line: OrderedDict[Cursor, Turn] = field(factory=OrderedDict, init=False)
    _most: int = field(default=ROUND, init=False)
    """Records of each turn of this round."""
    _left: int = field(default=0, init=False)
    """Turns that the round still has."""

    def join(self, cursor: Cursor) -> None:
        """There is something to read of a partition: it waits for its turn, unless it does so already."""
        if cursor not in self.line:
            self.line[cursor] = Turn()

    def leave(self, cursor: Cursor) -> None:
        """There is nothing more to read, or the partition is not ours any more."""
        turn = self.line.pop(cursor, None)
        if turn is not None:
            self._left -= 1
            self._held -= turn.held

    def readable(self, only: Collection[TopicPartition]) -> Iterable[tuple[Cursor, bool]]:
        """Return the partitions (of ``only``) that may be read now, in order, each with whether it is the only one."""
        if len(self.line) > 1:
            return self._of_several(only)
        for cursor in self.line:  # nearly always the only one
            if cursor.custody is PartitionCustody.OURS and not cursor.paused and (not only or cursor.partition in only):
                return ((cursor, True),)
        return ()

    def _of_several(self, only: Collection[TopicPartition]) -> Iterator[tuple[Cursor, bool]]:
        if self._left <= 0:
            self._left = max(1, sum(cursor.is_readable for cursor in self.line))
            self._most = max(1, ROUND // self._left)
        found = (cursor for cursor in tuple(self.line) if cursor.is_readable and (not only or cursor.partition in only))
        first, second = next(found, None), next(found, None)
        if first is None:
            return
        if second is None:
            yield first, True
            return
        # Records that were decoded in a turn belong to it, so it has not ended before they are handed out.
        is_over = first.front() is None and self.end_if_over(first)
        for cursor in chain((second,), found, (first,)) if is_over else chain((first, second), found):
            yield cursor, False

    def left(self, turn: Turn) -> int:
        """Return how many records may still be decoded in a turn; at least 1, since a turn that is over has ended."""
        return max(self._most - turn.records, 1)

    @staticmethod
    def is_long(turn: Turn, read: FetchedData | None) -> bool:
        """Whether a turn in which ``read`` was used up as well has had its bytes."""
        return turn.bytes + (0 if read is None else read.size) >= TURN_BYTES

    def end_if_over(self, cursor: Cursor) -> bool:
        """Put a partition at the end of the line if it has had its part of the round; return whether it had."""
        turn = self.line.get(cursor)
        is_over = turn is not None and (turn.records >= self._most or turn.bytes >= TURN_BYTES)
        if turn is not None and is_over:
            self.line.move_to_end(cursor)  # in one step: a signal handler may raise between any two
            turn.records = turn.bytes = 0
            self._hold(turn, 0 if cursor.reader is None else cursor.reader.held)
            if self._held > self.most_held and turn.held:
                cursor.reader = None
                self._hold(turn, 0)
            self._left -= 1
        return is_over

    def _hold(self, turn: Turn, held: int) -> None:
        self._held += held - turn.held
        turn.held = held
