"""Whose turn it is: the order in which partitions with something to read hand it out.

A partition keeps its turn until it has decoded its part of a round, in records or in bytes, or has no more data. Then it goes to
the end of the line. How the data came, in small parcels or in large ones, has no influence: the next parcel of a busy partition
is always there before the last one is used up, so a turn that ended with the data would never end.

A turn has its part of ``ROUND`` records: as many as there were partitions in line at most, in this round or the one before.
Whoever joins the line waits for one turn of each partition that is there already, and for no longer turns than those that
began with it in line, however many leave meanwhile: after ``ROUND`` records, and what was ready before it came, it is its turn.

The classes here are the readable half of a pair; ``_iteration.pyx`` is the compiled one, under the same contract. With a hundred
partitions in line a turn has no more than eighty records, so what a turn costs counts.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Protocol

from ...background.boundary import FetchedData
from ...errors import KafkaError
from ...model import ConsumerRecord, TopicPartition
from ...values import define, field
from .cursor import OTHER_PIECES, Cursor, PartitionCustody, Standing
from .iteration import COMPILED, Portion

ROUND: Final = 8000
"""Records of one turn of each partition."""
READY: Final = 1000
"""Records of a partition that may be made ready for an iteration at once, since nothing comes before what is ready."""
TURN_BYTES: Final = 1024 * 1024
"""Fetched bytes after which a turn ends, if the parcel that holds them is used up: records can be large."""


Record = ConsumerRecord[Any, Any]
Taken = dict[Cursor, tuple[Standing | None, int]]
"""How partitions stood before a take, and how many of their records were handed out."""


class Supply(Protocol):
    """What becomes of one partition in its turn. ``alone``: no other one waits for its turn."""

    def stand(self, cursor: Cursor) -> tuple[Standing | None, int]:
        """Return the position, and how many records were handed out, before anything is taken."""

    def decode(self, cursor: Cursor, max_records: int, records: list[Record], *, alone: bool) -> list[Record]:
        """Return ``records`` with more that are decoded, up to ``max_records`` in all, or to the end of the turn."""

    def corrupt(self, cursor: Cursor, error: KafkaError) -> None:
        """The next record cannot be decoded."""

    def put_ahead(self, cursor: Cursor, max_records: int, before: Taken, *, alone: bool, ready: bool) -> None:
        """Turn the next data into a piece: a portion if it is ``ready``, or what call-backs still have to see."""

    def settle_turn(self, cursor: Cursor) -> None:
        """Let the partition keep its turn, or end it."""


@define(eq=False)
class Turn:
    """What a partition has decoded in its turn."""

    records: int = 0
    bytes: int = 0
    held: int = 0
    """What the batch in which the last turn ended was decompressed to."""
    counted: bool = False
    """The round lasts until it has had its turn, or has left."""


@define(eq=False)
class Turns:
    """The partitions with something to read, in the order of their turns."""

    supply: Supply = field(repr=False)
    most_held: int
    """Bytes that batches may be decompressed to of partitions whose turn it is not. A batch past that is decompressed again."""
    _held: int = field(default=0, init=False)
    line: OrderedDict[Cursor, Turn] = field(factory=OrderedDict, init=False)
    _most: int = field(default=ROUND, init=False)
    """Records of each turn."""
    _longest: int = field(default=1, init=False)
    """Partitions that were in line at once in this round."""
    _longest_before: int = field(default=1, init=False)
    """The same in the round before: some of those that wait have joined the line then."""
    _left: int = field(default=0, init=False)
    """Turns that the round still has."""

    def join(self, cursor: Cursor) -> None:
        """There is something to read of a partition: it waits for its turn, unless it does so already."""
        if cursor not in self.line:
            self.line[cursor] = Turn()
            if (length := len(self.line)) > self._longest:
                self._longest = length
                self._share_out()

    def leave(self, cursor: Cursor) -> None:
        """There is nothing more to read, or the partition is not ours any more."""
        turn = self.line.pop(cursor, None)
        if turn is not None:
            self._left -= turn.counted
            self._held -= turn.held

    def rejoin(self, cursor: Cursor) -> None:
        """Nothing of the partition could be read for a while, so others were counted on to come before it."""
        turn = self.line.get(cursor)
        if turn is not None:
            self.line.move_to_end(cursor)
            turn.records = turn.bytes = 0  # or it would come to its turn with one that is over
            self._left -= turn.counted
            turn.counted = False

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
            self._begin_round()
        found = (cursor for cursor in tuple(self.line) if cursor.is_readable and (not only or cursor.partition in only))
        first, second = next(found, None), next(found, None)
        if first is None:
            return
        if second is None:
            yield first, True
            return
        # Records that were decoded in a turn belong to it, so it has not ended before they are handed out.
        ended: list[Cursor] = []
        while first is not None and first.front() is None and self.end_if_over(first):
            ended.append(first)
            first, second = second, next(found, None)
        for cursor in chain((first, second), found, ended):
            if cursor is not None:
                yield cursor, False

    def _begin_round(self) -> None:
        self._left = 0
        for cursor, turn in self.line.items():
            turn.counted = cursor.is_readable
            self._left += turn.counted
        self._longest_before, self._longest = self._longest, len(self.line)
        self._share_out()

    def _share_out(self) -> None:
        self._most = max(1, ROUND // max(self._longest, self._longest_before))

    def left(self, turn: Turn) -> int:
        """Return how many records may still be decoded in a turn; at least 1, since a turn that is over has ended."""
        left = self._most - turn.records
        return left if left > 1 else 1

    @staticmethod
    def is_long(turn: Turn, read: FetchedData | None) -> bool:
        """Whether a turn in which ``read`` was used up as well has had its bytes."""
        return turn.bytes + (0 if read is None else read.size) >= TURN_BYTES

    def end_if_over(self, cursor: Cursor) -> bool:
        """Put a partition at the end of the line if it has had its part of the round; return whether it had."""
        turn = self.line.get(cursor)
        if turn is None or (turn.records < self._most and turn.bytes < TURN_BYTES):
            return False
        self.line.move_to_end(cursor)  # in one step: a signal handler may raise between any two
        turn.records = turn.bytes = 0
        held = 0 if cursor.reader is None else cursor.reader.held
        if held or turn.held:
            self._hold(turn, held)
            if self._held > self.most_held and turn.held:
                cursor.reader = None
                self._hold(turn, 0)
        self._left -= 1
        turn.counted = False
        return True

    # --- what is taken in turns ------------------------------------------------------------------------------------------------

    def take(
        self,
        max_records: int,
        only: Collection[TopicPartition],
        before: Taken,
        batch: dict[TopicPartition, list[Record]],
        of: Callable[[Cursor, int, bool], list[Record]],
        *,
        plain: bool,
    ) -> None:
        """Put up to ``max_records`` records into ``batch``, and how their partitions stood into ``before``.

        ``of``: what takes up to so many records of one partition (alone); ``plain``: it only decodes what is not ahead.
        """
        left = max_records
        while left > 0:
            wanted = left
            for cursor, alone in self.readable(only):
                if cursor not in before:
                    before[cursor] = self.supply.stand(cursor)
                if plain and not cursor.ahead:
                    records = self.supply.decode(cursor, left, [], alone=alone)
                    cursor.passed_records += len(records)
                else:
                    records = of(cursor, left, alone)
                if records:
                    known = batch.get(cursor.partition)
                    batch[cursor.partition] = records if known is None else known + records
                    left -= len(records)
                self.supply.settle_turn(cursor)
                if left <= 0:
                    return
            if left == wanted:  # nobody had anything
                return

    def portions(
        self, max_records: int, only: Collection[TopicPartition], before: Taken, *, decode: bool, alone: bool
    ) -> list[Portion[Record]]:
        """Return the portions that come next, with about ``max_records`` in all, or the first one ``alone``; decodes them if none
        are ready.
        """
        found: list[Portion[Record]] = []
        left = max_records
        for cursor, is_only in self.readable(only):
            piece = cursor.front()
            if piece is None and decode and (cursor.data is not None or cursor.parcels):
                self.supply.put_ahead(cursor, left if left < READY else READY, before, alone=is_only, ready=True)
                piece = cursor.front()
            if piece is None or (cursor.reader is not None and cursor.reader.exhausted):
                self.supply.settle_turn(cursor)
            if piece is not None and not isinstance(piece, OTHER_PIECES):
                piece.beginning = cursor.beginning
                found.append(piece)
                left -= len(piece.records) - piece.place
                if alone or left <= 0:
                    break
        return found

    def _hold(self, turn: Turn, held: int) -> None:
        self._held += held - turn.held
        turn.held = held


TURNS: type[Turns] = Turns if COMPILED is None else COMPILED.Turns
"""The half of the pair that is used."""
