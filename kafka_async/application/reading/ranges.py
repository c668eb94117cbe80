"""Reading exact ranges of offsets as columns: without a group, without a seek, and with an end.

Nothing outside of the ranges is fetched. Compaction, transaction markers and aborted transactions leave gaps in a log, which are
skipped; an offset that was deleted is an error.

For programs that keep offsets themselves: batch jobs, data frames, copies. Brokers are asked for nothing but data, and where a log
ends if it does not come.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...config import ConsumerConfig
from ...errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError
from ...events import ListOffsets
from ...model import IsolationLevel, OffsetAndTimestamp, TopicPartition
from ...records import ColumnBuilder, Columns
from ...values import define, field
from ..arguments import one_partition, seconds
from ..background_calls import BackgroundCalls
from .cursor import Cursor
from .reader import Reader
from .unread import Unread

if TYPE_CHECKING:
    from ..lifecycle.runtime import Runtime

RANGE_BATCH_BYTES: Final = 1_250_000
"""About how many bytes of columns are returned at a time by default: small enough for caches, large enough for Arrow."""
END_TIME: Final = 5.0
"""Seconds without a record after which a log that ends inside a range counts as too short: a new leader may be behind at first."""
_LOOK: Final = 1.0
_END: Final = -1
_FIRST_ROW_BYTES: Final = 256.0


@define(eq=False)
class Ranges:
    """Reads the ranges that were assigned."""

    config: ConsumerConfig
    runtime: "Runtime" = field(repr=False)
    unread: Unread
    reader: Reader = field(repr=False)
    calls: BackgroundCalls = field(repr=False)
    _row_bytes: float = field(default=_FIRST_ROW_BYTES, init=False)

    def begin(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Have each assigned partition fetched from the start of its range to its end."""
        for partition, (start, end) in ranges.items():
            cursor = self.unread.partitions[partition]
            cursor.until = end
            self.unread.move(cursor, (start, None))
            self.unread.refetch(cursor)

    async def next_columns(
        self, columns: Collection[str], batch_bytes: int, timeout_ms: float | None, holder: Any
    ) -> Columns | None:
        """See ``KafkaConsumer.next_columns``."""
        allowed = seconds(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        clock = self.runtime.clock
        since, standing = clock(), self._standing()
        look_at = since + END_TIME
        unanswered: KafkaError | None = None
        # Rows are estimated from the size of earlier ones; later ones may be larger, so bytes have a limit of their own.
        into = ColumnBuilder({*columns, "offset"}, max_column_bytes=batch_bytes)
        while self._unfinished():
            rows = max(1, int(batch_bytes / self._row_bytes))
            left = since + allowed - clock()
            if await self.reader.columns((), min(_LOOK, left), rows, into, lambda: not self._unfinished(), holder):
                self._row_bytes = max(1.0, into.nbytes / into.rows)
                return into.finish()
            if standing != (standing := self._standing()):
                since = clock()
                look_at = since + END_TIME
            if clock() >= min(look_at, since + allowed):
                look_at = clock() + END_TIME
                unanswered = await self._check_ends()
            if clock() - since >= allowed:
                waiting = ", ".join(f"{one_partition(cursor.partition)} at offset {at}" for cursor, at, _ in self._unfinished())
                raise KafkaTimeoutError(f"no records came for {allowed:g} s of {waiting}") from self._trouble() or unanswered
        return None

    def _standing(self) -> list[int | None]:
        return [cursor.position for cursor in self.unread.partitions.values()]

    def _unfinished(self) -> list[tuple[Cursor, int, int]]:
        """Return the partitions that are not at the end of their range, with position and end."""
        return [
            (cursor, position, cursor.until)
            for cursor in self.unread.partitions.values()
            if cursor.until is not None and (position := cursor.position) is not None and position < cursor.until
        ]

    def _trouble(self) -> KafkaError | None:
        """Return why nothing can be read of a partition that is not at its end, if that is known."""
        buffer = self.unread.buffer
        known = {**buffer.unavailable, **buffer.refused}
        return next((known[cursor.partition] for cursor, _, _ in self._unfinished() if cursor.partition in known), None)

    async def _check_ends(self) -> KafkaError | None:
        """Raise if waiting is in vain: the log of a partition ends inside its range. Return why nobody knows.

        The leader is asked, since a Fetch response says nothing of a partition that has not changed (KIP-227).
        """
        waiting = dict.fromkeys([cursor.partition for cursor, _, _ in self._unfinished()], _END)
        try:
            ends: Mapping[TopicPartition, OffsetAndTimestamp | None] = await self.calls.ask(
                lambda call: ListOffsets(call=call, timestamps=waiting), _LOOK * 1000
            )
        except KafkaTimeoutError as error:
            return error
        held_back = None
        for cursor, position, until in self._unfinished():
            end, marks = ends.get(cursor.partition), self.unread.buffer.watermarks.get(cursor.partition)
            if end is not None and end.offset <= position:
                name = one_partition(cursor.partition)
                # The end that was asked for is that of what is committed.
                if self.config.isolation_level is IsolationLevel.READ_COMMITTED and marks and marks.high_watermark > position:
                    held_back = KafkaError(f"what follows offset {end.offset - 1} of {name} is held back by an open transaction")
                    continue
                text = f"offsets {position} to {until - 1} of {name} are not in its log, which ends at {end.offset}"
                raise OffsetOutOfRangeError(text, offsets={cursor.partition: position})
        return held_back
