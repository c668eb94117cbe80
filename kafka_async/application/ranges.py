"""Reading exact ranges of offsets as columns: without a group, without a seek, and with an end.

Decides: when a range is read to its end, and when it never can be. Owns: how large the next columns are to be. Must never hand out
a record outside of the ranges, never fetch on behind their ends, and never take an offset that is gone for one without a record:
compaction, transaction markers and aborted transactions leave gaps in a log, and those are passed over in silence.

For programs that bring their own bookkeeping: batch jobs, data frames, copies. The broker is asked for nothing but data.
"""

from collections.abc import Collection, Mapping
from typing import Final

from ..errors import IllegalStateError, KafkaTimeoutError, OffsetOutOfRangeError
from ..events import AssignFromUser
from ..model import IsolationLevel, TopicPartition
from ..records import ALL_COLUMNS, ColumnBuilder, Columns
from .arguments import offset_ranges, one_partition, seconds
from .core import ConsumerCore
from .unread import PartitionUnread

RANGE_BATCH_BYTES: Final = 1_250_000
"""Bytes that columns of a range have, about, where the caller does not say: small enough for caches, large enough for Arrow."""
END_TIME: Final = 5.0
"""Seconds without a record after which a log that ends inside a range counts as too short: a new leader may be behind at first."""
_LOOK: Final = 1.0
_FIRST_ROW_BYTES: Final = 256.0


class RangeCalls(ConsumerCore):
    """The calls that read ranges."""

    _row_bytes = _FIRST_ROW_BYTES

    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read exactly the offsets from the first up to, and without, the second number of each partition.

        Fetching starts at once, of all partitions together and within ``fetch_buffer_bytes``, and stops at the ends. Replaces
        ranges and partitions that were assigned before. Raises ``ValueError`` for what is no range, ``IllegalStateError`` after
        ``subscribe``.
        """
        self._check_open()
        wanted = offset_ranges(ranges)
        if self._topics or self._pattern is not None:
            raise IllegalStateError("topics were subscribed with subscribe(); call unsubscribe() first")
        self._reader.give_back()
        self._assigned_by_user = bool(wanted)
        self._commit_dropped(())
        self._send(AssignFromUser(stamps=self._unread.assign(wanted)))
        for partition, (start, end) in wanted.items():
            entry = self._unread.partitions[partition]
            entry.until = end
            self._unread.move(entry, start)
            self._refetch(entry)

    async def next_columns(
        self,
        columns: Collection[str] = ALL_COLUMNS,
        *,
        batch_bytes: int = RANGE_BATCH_BYTES,
        timeout_ms: float | None = None,
    ) -> Columns | None:
        """Return the next records of the ranges as columns of about ``batch_bytes``, as soon as there are any.

        Neither keys nor values have more than ``batch_bytes``, but where one record alone has.
        ``None``: all ranges are read to their ends. The column ``offset`` is always there. Raises ``OffsetOutOfRangeError`` where
        the log begins behind, or ends before, an offset of a range, whatever ``auto_offset_reset`` says; ``KafkaTimeoutError``
        naming the partitions when nothing came for ``timeout_ms`` (default: ``default_api_timeout_ms``);
        ``CorruptRecordException`` as ``getmany`` does.
        """
        self._check_running()
        allowed = seconds(self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        clock = self._runtime.clock
        since, standing = clock(), self._standing()
        # Rows are counted by the size of those before, which says nothing of the next ones: bytes have a limit of their own.
        into = ColumnBuilder({*columns, "offset"}, max_column_bytes=batch_bytes)
        while self._open_ranges():
            rows = max(1, int(batch_bytes / self._row_bytes))
            left = since + allowed - clock()
            if await self._reader.columns((), min(_LOOK, left), rows, into, lambda: not self._open_ranges()):
                self._row_bytes = max(1.0, into.nbytes / into.rows)
                return into.finish()
            if standing != (standing := self._standing()):
                since = clock()
            self._check_progress(since, allowed)
        return None

    def _standing(self) -> list[int | None]:
        return [entry.position for entry in self._unread.partitions.values()]

    def _open_ranges(self) -> list[tuple[PartitionUnread, int, int]]:
        """Return the partitions that are not at the end of their range, with position and end."""
        return [
            (entry, entry.position, entry.until)
            for entry in self._unread.partitions.values()
            if entry.until is not None and entry.position is not None and entry.position < entry.until
        ]

    def _check_progress(self, since: float, seconds: float) -> None:
        """Raise where waiting is in vain, or has been for long enough."""
        now = self._runtime.clock()
        committed_only = self._config.isolation_level is IsolationLevel.READ_COMMITTED
        for entry, position, until in self._open_ranges() if now - since >= min(END_TIME, seconds) else ():
            marks = self._unread.buffer.watermarks.get(entry.partition)
            if marks is None or marks.fetched_at < since:
                continue
            end = marks.last_stable_offset if committed_only else marks.high_watermark
            if end <= position:
                name = one_partition(entry.partition)
                text = f"offsets {position} to {until - 1} of {name} are not in its log, which ends at {end}"
                raise OffsetOutOfRangeError(text, offsets={entry.partition: position})
        if now - since >= seconds:
            waiting = ", ".join(f"{one_partition(entry.partition)} at offset {at}" for entry, at, _ in self._open_ranges())
            raise KafkaTimeoutError(f"no records came for {seconds:.0f} s of {waiting}")
