"""One partition: what was received, what is done, and what may be committed.

Only what was received counts, and no offset is expected, so that gaps (compaction, control records, aborted transactions) hold up
nothing.

Records are numbered as they arrive. The flags are bytes in an array, so that the first one that is not done and the ends of runs
are found by the array's own search; marking a record costs the same however many there are.
"""

from collections import deque
from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

from ...model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ...values import define, field
from .encoding import ROOM, DoneMap, varint_size

Record = ConsumerRecord[Any, Any]

MOST_AHEAD: Final = 10_000
"""Records that may be done although an earlier one is not, without being in the map that is committed: a restart repeats these."""
MOST_SPAN: Final = 200_000
"""Records that may be received from the first unfinished one on, whatever the map holds: each takes some 40 bytes, and a restart
fetches them again."""
LONG_SPAN: Final = 1_000
"""With fewer records than this from the first unfinished one on, a partition cannot be too far ahead of it."""
_COMPACT_AT: Final = 4096
"""After so many done records at the front the arrays give their room back."""
_LOOK_AFTER: Final = 100
"""Records that are done before it is counted again how many are in the map."""
_NEGATED: Final = bytes([1]) + bytes(255)
"""For ``translate``: 0 becomes 1, and everything else 0."""
_RUN_BYTES: Final = 2
"""Bytes that a run takes at most, but for the few that are longer than 16,383 offsets."""


@define(eq=False)
class PartitionProgress:
    """What has happened to the records of one partition since it was assigned."""

    partition: TopicPartition
    recorded: DoneMap | None = None
    """What an earlier owner had done beyond its commit."""
    unfinished: int = field(default=0, init=False)
    """Records received and not done."""
    last_sizes: list[int] = field(factory=list, init=False)
    """Bytes of each record that was received last."""
    _offsets: list[int] = field(factory=list, init=False)
    _sizes: list[int] = field(factory=list, init=False)
    _flags: bytearray = field(factory=bytearray, init=False)
    _base: int = field(default=0, init=False)
    """Number of the record that the arrays start with."""
    _first: int = field(default=0, init=False)
    """Index of a record before which all are done."""
    _arrivals: deque[tuple[int, float, int | None]] = field(factory=deque, init=False)
    """Number of a record, when it and those after it were received, and the epoch of their leader."""
    _look_at: int = field(default=0, init=False)
    """How many records are done when it is looked again at how many of them are in the map."""
    _seen_from: int = field(default=0, init=False)
    """Number of the first unfinished record when that was looked at."""
    _exceeds: bool = field(default=False, init=False)
    """More were not in it than may be."""
    committed: int = field(default=0, init=False)
    """Records received that were done at the last commit, or that an earlier owner had done."""

    # --- receiving -------------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int | None:
        """The offset after the last record received and not forgotten; ``None`` before the first."""
        return self._offsets[-1] + 1 if self._offsets else None

    def follows(self, offset: int) -> bool:
        """Whether a record at ``offset`` can come next: no seek back, truncation or new log since the last one."""
        return not self._offsets or offset > self._offsets[-1]

    def receive(self, records: Sequence[Record], now: float) -> int:
        """Note that these records, which follow what was received, came at ``now``. Return the number of the first."""
        self._go_on()
        number, epoch = self._base + len(self._offsets), records[0].leader_epoch
        self._arrivals.append((number, now, epoch))
        if epoch != records[-1].leader_epoch:  # epochs only grow in a log
            for index, record in enumerate(records):
                if record.leader_epoch != epoch:
                    epoch = record.leader_epoch
                    self._arrivals.append((number + index, now, epoch))
        self.last_sizes = [record.serialized_key_size + record.serialized_value_size for record in records]
        self._sizes += self.last_sizes
        self._offsets += [record.offset for record in records]
        self._flags += bytes(len(records))
        self.unfinished += len(records)
        return number

    def put_off(self, number: int, last: int, now: float) -> None:
        """The records from ``number`` to ``last`` could not be handled before ``now``.

        Those behind them that came with ``last`` still wait, and are put off again.
        """
        arrivals = self._arrivals
        place = next(place for place in range(len(arrivals) - 1, -1, -1) if arrivals[place][0] <= number)
        first, _, epoch = arrivals[place]
        if first == number:
            arrivals[place] = (number, now, epoch)
        else:
            place += 1
            arrivals.insert(place, (number, now, epoch))
        for later in range(place + 1, len(arrivals)):
            first, _, epoch = arrivals[later]
            if first > last:
                break
            arrivals[later] = (first, now, epoch)

    def known(self, offset: int) -> bool:
        """Whether an earlier owner had done the record at ``offset``."""
        recorded = self.recorded
        if recorded is None:
            return False
        if offset < recorded.offset or offset >= recorded.end:  # before: sought back, to see them again; after: never needed again
            self.recorded = None
            return False
        return offset in recorded

    # --- done ------------------------------------------------------------------------------------------------------------------

    def mark(self, number: int) -> None:
        """The record with this number is done."""
        self._flags[number - self._base] = 1
        self.unfinished -= 1

    @property
    def _first_left(self) -> int:
        """Index of the first record that is not done; the length of the arrays if all are.

        It is looked for where it is needed, and not after each record: a search costs as much as all the rest of ``mark``.
        """
        first = self._flags.find(0, self._first)
        return len(self._flags) if first < 0 else first

    def _go_on(self) -> None:
        """Begin the next search where the last one ended, and give back the room of what is done before."""
        self._first = first = self._first_left
        if first >= _COMPACT_AT and 2 * first >= len(self._flags):
            self._compact()

    def _compact(self) -> None:
        kept = self._first - 1  # the last one that is done stays: it says what can come next
        del self._offsets[:kept], self._flags[:kept], self._sizes[:kept]
        self._base += kept
        self._first = 1
        arrivals = self._arrivals
        while len(arrivals) > 1 and arrivals[1][0] <= self._base:
            arrivals.popleft()

    # --- looking ---------------------------------------------------------------------------------------------------------------

    def point(self, position: OffsetAndMetadata | None, also: Sequence[int] = ()) -> OffsetAndMetadata | None:
        """Return the offset up to which all is done: the first unfinished record, or if there is none the ``position`` after all.

        ``also``: numbers of records to count as done. ``None``: nothing was received and there is no position. Without metadata.
        """
        first = self._first_left
        while first < len(self._offsets) and (self._flags[first] or first + self._base in also):
            first += 1
        if first < len(self._offsets):
            return OffsetAndMetadata(self._offsets[first], "", self._epoch(first + self._base))
        if position is not None and (self.end is None or position.offset >= self.end):
            return position._replace(metadata="")
        if self.end is None:
            return None
        return OffsetAndMetadata(self.end, "", self._epoch(len(self._offsets) - 1 + self._base))

    def runs(self, also: Sequence[int] = (), position: int | None = None) -> list[int]:
        """Return the lengths, in offsets, of runs that are in turn not done and done, from the first unfinished record on.

        ``position``: where they start if all are done. They include records that an earlier owner had done and that were not
        received yet, since a partition may leave before they are.
        """
        flags, offsets = self._flags, self._offsets
        if also:
            flags = flags[:]
            for number in also:
                flags[number - self._base] = 1
        start = flags.find(0, self._first)
        begin = offsets[start] if start >= 0 else position if position is not None else self.end
        spans: list[tuple[int, int]] = []
        while start >= 0 and (done := flags.find(1, start)) >= 0:
            after = flags.find(0, done)
            spans.append((offsets[done], offsets[after] if after >= 0 else offsets[-1] + 1))
            start = after
        if self.recorded is not None and begin is not None and begin >= self.recorded.offset:
            spans += self.recorded.done_from(max(begin, self.end or 0))
        lengths: list[int] = []
        for first, end in spans:
            if lengths and first == begin:
                lengths[-1] += end - first
            else:
                lengths += (first - (begin or 0), end - first)
            begin = end
        return lengths

    def _epoch(self, number: int) -> int | None:
        return next((epoch for first, _, epoch in reversed(self._arrivals) if first <= number), None)

    @property
    def oldest(self) -> tuple[int, float] | None:
        """Offset of the first unfinished record and when it was received; ``None`` if all are done."""
        first = self._first_left
        offsets = self._offsets[first : first + 1]  # in one step, for threads that look
        if not offsets:
            return None
        number = first + self._base
        return offsets[0], next((time for first, time, _ in reversed(tuple(self._arrivals)) if first <= number), 0.0)

    @property
    def new(self) -> int:
        """Records that were done since the last commit, and come again without another one."""
        return self.done - self.committed

    @property
    def done(self) -> int:
        """Records received that are done."""
        return len(self._offsets) + self._base - self.unfinished

    @property
    def ahead(self) -> int:
        """Records that are done after the first one that is not."""
        return len(self._flags) - self._first_left - self.unfinished

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the records that are not done. It looks at all from the first of them on."""
        return sum(compress(self._sizes[self._first :], self._flags[self._first :].translate(_NEGATED)))

    @property
    def span(self) -> int:
        """Records from the first one that is not done on."""
        return len(self._flags) - self._first_left

    def too_far(self, *, keep_done: bool) -> bool:
        """Whether no more records should be taken until the oldest one is done."""
        if self.span >= MOST_SPAN:
            return True
        ahead = self.ahead
        if ahead < MOST_AHEAD or not keep_done:
            return ahead >= MOST_AHEAD
        if 2 * _RUN_BYTES * min(ahead, self.unfinished) <= ROOM:  # all runs fit, even if each of these records ends one
            return False
        done, first = self.done, self._base + self._first_left
        if done >= self._look_at or (self._exceeds and first != self._seen_from):  # seldom, as it looks at each run
            room = MOST_AHEAD - (ahead - self._covered())
            self._look_at, self._seen_from, self._exceeds = done + max(_LOOK_AFTER, room // 2), first, room <= 0
        return self._exceeds

    def uncovered(self, *, keep_done: bool) -> int:
        """Return how many of the done records a restart would repeat."""
        if not keep_done:
            return self.ahead
        fits = 2 * _RUN_BYTES * min(self.ahead, self.unfinished) <= ROOM  # even if each of these records ends one
        return 0 if fits else self.ahead - self._covered()

    def _covered(self) -> int:
        """Return how many of the done records are in the map: runs that do not fit are left out."""
        size, covered, runs = 0, 0, iter(self.runs())
        for not_done in runs:
            done = next(runs)
            size += varint_size(not_done) + varint_size(done)
            if size > ROOM:
                break
            covered += done
        return covered
