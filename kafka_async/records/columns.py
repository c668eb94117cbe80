"""Records as columns: plain buffers in Arrow's layout that a caller wraps without touching a record.

The buffers are those of the Arrow columnar format: native byte order, int32 offsets with one entry more than rows, a validity
bitmap with the lowest bit first. Code that wants arrays wraps them.

The decoders write into the buffers of ``ColumnBuilder`` directly; between two calls every buffer has exactly the length that its
rows need, so either decoder may go on where the other stopped.

Keys and values are byte strings one after the other, which takes a copy of each, or views: 16 bytes each that hold a short one, or
say where a longer one is in the data that was fetched (Arrow's "Variable-size Binary View Layout").
"""

from bisect import bisect_left
from collections.abc import Collection
from struct import Struct
from typing import Final

from ..errors import IllegalArgumentError
from ..values import define, field, frozen

ALL_COLUMNS: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"})
"""Names of the columns that can be asked for."""
MAX_COLUMN_BYTES: Final = 2**31 - 1
"""What int32 offsets can address."""
INLINE_BYTES: Final = 12
"""A byte string that is not longer is held by its view itself."""
VIEW_BYTES: Final = 16

Bytes = bytes | bytearray | memoryview
At = tuple[Bytes, int, int]
"""The data that a row was read from, and where its key and its value are in there."""

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None, int | None]
"""Offset, timestamp, timestamp type, key, value, headers, checksum, leader epoch: what differs from record to record."""

_INT32: Final = Struct("=i")
_INT64: Final = Struct("=q")
_INT8: Final = Struct("=b")
_SHORT: Final = Struct("=i12s")
_LONG: Final = Struct("=i4sii")
_NOWHERE: Final[At] = (b"", -1, -1)


@frozen(kw_only=True)
class BinaryColumn:
    """``length`` byte strings: entry i is ``data[offsets[i]:offsets[i + 1]]``."""

    length: int
    offsets: bytearray
    data: bytearray
    validity: bytearray | None
    """``None`` if no entry is null; else bit i is set if entry i is not null."""
    nulls: int


@frozen(kw_only=True)
class ViewColumn:
    """``length`` byte strings as Arrow's ``binary_view``: 16 bytes of ``views`` each, which may refer to a place in ``sources``."""

    length: int
    views: bytearray
    sources: tuple[Bytes, ...]
    """What was fetched, or became of it by decompression, as a whole: nothing in there was copied, and the column keeps it."""
    validity: bytearray | None
    nulls: int


@frozen(kw_only=True)
class HeadersColumn:
    """Headers as Arrow's ``list<struct<key, value>>``: row i has the entries from ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: bytearray
    keys: BinaryColumn
    """UTF-8 as a rule, but unchecked: Kafka does not check it either."""
    values: BinaryColumn


@frozen(kw_only=True)
class Columns:
    """``rows`` records. A column that was not asked for is ``None``."""

    rows: int
    runs: tuple[tuple[str, int, int], ...]
    """(topic, partition, rows) for each stretch of rows from one partition, in order."""
    offsets: bytearray | None
    """int64."""
    timestamps: bytearray | None
    """int64, milliseconds since the epoch; -1 if there is none."""
    timestamp_types: bytearray | None
    """int8."""
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: HeadersColumn | None
    key_views: ViewColumn | None = None
    """In place of ``keys`` if views were asked for."""
    value_views: ViewColumn | None = None


@define(eq=False)
class BinaryBuffers:
    """A column of byte strings that grows."""

    length: int = 0
    nulls: int = 0
    offsets: bytearray = field(factory=lambda: bytearray(4))
    data: bytearray = field(factory=bytearray)
    bitmap: bytearray = field(factory=bytearray)

    def append(self, value: bytes | None) -> None:
        """Append one entry; the caller has made sure that it fits."""
        if not self.length & 7:
            self.bitmap.append(0)
        if value is None:
            self.nulls += 1
        else:
            self.bitmap[-1] |= 1 << (self.length & 7)
            self.data += value
        self.length += 1
        self.offsets += _INT32.pack(len(self.data))

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` entries."""
        self.nulls = _cut_bitmap(self.bitmap, length)
        del self.data[_INT32.unpack_from(self.offsets, 4 * length)[0] :]
        del self.offsets[4 * (length + 1) :]
        self.length = length

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self.offsets) + len(self.data) + len(self.bitmap)

    def finish(self) -> BinaryColumn:
        """Return what was appended."""
        validity = self.bitmap if self.nulls else None
        return BinaryColumn(length=self.length, offsets=self.offsets, data=self.data, validity=validity, nulls=self.nulls)


@define(eq=False)
class ViewBuffers:
    """A column of views that grows.

    Byte strings that are in no data that lasts (formats 0 and 1; records that were objects already), or at a place past
    ``reach``, are copied into a source of the column's own.
    """

    reach: int = MAX_COLUMN_BYTES
    length: int = 0
    nulls: int = 0
    views: bytearray = field(factory=bytearray)
    bitmap: bytearray = field(factory=bytearray)
    sources: list[Bytes] = field(factory=list)
    _first_rows: list[int] = field(factory=list)
    """By source: the first row that may refer to it."""
    _own: bytearray = field(factory=bytearray)
    _own_index: int = -1

    @property
    def copied_bytes(self) -> int:
        """Bytes that were copied."""
        return len(self._own)

    def copies(self, size: int, place: int) -> bool:
        """Say whether so many bytes at ``place`` of their data would be copied; a negative place is none."""
        return size > INLINE_BYTES and not 0 <= place <= self.reach

    def refer(self, source: Bytes, row: int) -> int:
        """Return the index of ``source``, of which row ``row`` is the next to refer to a part."""
        if not self.sources or self.sources[-1] is not source:
            self.sources.append(source)
            self._first_rows.append(row)
        return len(self.sources) - 1

    def keep(self, value: bytes, row: int) -> tuple[int, int]:
        """Copy ``value`` for row ``row``; return the index of the source and the place in it."""
        if self._own_index < 0:
            self._own_index = self.refer(self._own, row)
        place = len(self._own)
        self._own += value
        return self._own_index, place

    def append(self, value: bytes | None, source: Bytes = b"", place: int = -1) -> None:
        """Append one entry, which is at ``place`` of ``source`` unless that is negative."""
        if value is None:
            view = bytes(VIEW_BYTES)
        elif len(value) <= INLINE_BYTES:
            view = _SHORT.pack(len(value), value)
        else:
            copies = self.copies(len(value), place)
            index, place = self.keep(value, self.length) if copies else (self.refer(source, self.length), place)
            view = _LONG.pack(len(value), value[:4], index, place)
        if not self.length & 7:
            self.bitmap.append(0)
        if value is None:
            self.nulls += 1
        else:
            self.bitmap[-1] |= 1 << (self.length & 7)
        self.views += view
        self.length += 1

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` entries, and the sources that those may refer to."""
        self.nulls = _cut_bitmap(self.bitmap, length)
        del self.views[VIEW_BYTES * length :]
        while self._first_rows and self._first_rows[-1] >= length:
            del self._first_rows[-1], self.sources[-1]
        if self._own_index >= len(self.sources):
            self._own, self._own_index = bytearray(), -1
        self.length = length

    @property
    def nbytes(self) -> int:
        """Bytes held, without what the views refer to."""
        return len(self.views) + len(self.bitmap) + self.copied_bytes

    def finish(self) -> ViewColumn:
        """Return what was appended."""
        validity = self.bitmap if self.nulls else None
        return ViewColumn(length=self.length, views=self.views, sources=tuple(self.sources), validity=validity, nulls=self.nulls)


@define(eq=False)
class HeaderBuffers:
    """A column of header lists that grows."""

    offsets: bytearray = field(factory=lambda: bytearray(4))
    keys: BinaryBuffers = field(factory=BinaryBuffers)
    values: BinaryBuffers = field(factory=BinaryBuffers)

    def append(self, headers: tuple[tuple[str, bytes | None], ...]) -> None:
        """Append the headers of one record."""
        for key, value in headers:
            self.keys.append(_encoded(key))
            self.values.append(value)
        self.offsets += _INT32.pack(self.keys.length)

    def truncate(self, length: int) -> None:
        """Keep the headers of the first ``length`` records."""
        entries = _INT32.unpack_from(self.offsets, 4 * length)[0]
        self.keys.truncate(entries)
        self.values.truncate(entries)
        del self.offsets[4 * (length + 1) :]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self.offsets) + self.keys.nbytes + self.values.nbytes

    def finish(self) -> HeadersColumn:
        """Return what was appended."""
        return HeadersColumn(offsets=self.offsets, keys=self.keys.finish(), values=self.values.finish())


class ColumnBuilder:
    """Collects the records of several readers as columns. Only the columns asked for cost anything.

    ``columns`` names them (of ``ALL_COLUMNS``); another name raises ``IllegalArgumentError``. No buffer of bytes grows past
    ``max_column_bytes``: a reader then appends fewer rows than it was asked for and goes on with the next builder. Only the first
    row always fits, so that a value of any size is read; a record is never larger than ``MAX_COLUMN_BYTES``.

    With ``view`` keys and values are views of the data that they were read from.
    """

    def __init__(
        self, columns: Collection[str] = ALL_COLUMNS, *, max_column_bytes: int = MAX_COLUMN_BYTES, view: bool = False
    ) -> None:
        unknown = sorted(set(columns) - ALL_COLUMNS)
        if unknown:
            raise IllegalArgumentError(f"columns={unknown}: expected some of {', '.join(sorted(ALL_COLUMNS))}")
        self.max_column_bytes = min(max_column_bytes, MAX_COLUMN_BYTES)
        self.rows = 0
        self.runs: list[tuple[str, int, int]] = []
        self.offsets = bytearray() if "offset" in columns else None
        self.timestamps = bytearray() if "timestamp" in columns else None
        self.timestamp_types = bytearray() if "timestamp_type" in columns else None
        self.keys = BinaryBuffers() if "key" in columns and not view else None
        self.values = BinaryBuffers() if "value" in columns and not view else None
        self.key_views = ViewBuffers(reach=self.max_column_bytes) if "key" in columns and view else None
        self.value_views = ViewBuffers(reach=self.max_column_bytes) if "value" in columns and view else None
        self.headers = HeaderBuffers() if "headers" in columns else None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        plain = (self.offsets, self.timestamps, self.timestamp_types)
        grown = (self.keys, self.values, self.key_views, self.value_views, self.headers)
        return sum(len(b) for b in plain if b is not None) + sum(b.nbytes for b in grown if b is not None)

    def fits(self, row: Row, at: At | None = None) -> bool:
        """Say whether ``row`` is the first, or can be appended without making a buffer grow past ``max_column_bytes``.

        ``at`` is where views of its key and value can point to.
        """
        _, _, _, key, value, headers, _, _ = row
        if not self.rows:
            return True
        if self.keys is not None and not self._may_hold(self.keys, len(key or b"")):
            return False
        if self.values is not None and not self._may_hold(self.values, len(value or b"")):
            return False
        _, key_place, value_place = at or _NOWHERE
        if not self._may_keep(self.key_views, key, key_place) or not self._may_keep(self.value_views, value, value_place):
            return False
        if self.headers is None or not headers:
            return True
        key_bytes, value_bytes = sum(len(_encoded(name)) for name, _ in headers), sum(len(value or b"") for _, value in headers)
        return self._may_hold(self.headers.keys, key_bytes) and self._may_hold(self.headers.values, value_bytes)

    def _may_hold(self, buffers: BinaryBuffers, size: int) -> bool:
        return not size or len(buffers.data) + size <= self.max_column_bytes

    def _may_keep(self, views: ViewBuffers | None, value: bytes | None, place: int) -> bool:
        if views is None or value is None or not views.copies(len(value), place):
            return True
        return views.copied_bytes + len(value) <= self.max_column_bytes

    def append(self, row: Row, at: At | None = None) -> None:
        """Append one record that ``fits``."""
        source, key_place, value_place = at or _NOWHERE
        offset, timestamp, timestamp_type, key, value, headers, _, _ = row
        self.rows += 1
        if self.offsets is not None:
            self.offsets += _INT64.pack(offset)
        if self.timestamps is not None:
            self.timestamps += _INT64.pack(timestamp)
        if self.timestamp_types is not None:
            self.timestamp_types += _INT8.pack(timestamp_type)
        if self.keys is not None:
            self.keys.append(key)
        if self.values is not None:
            self.values.append(value)
        if self.key_views is not None:
            self.key_views.append(key, source, key_place)
        if self.value_views is not None:
            self.value_views.append(value, source, value_place)
        if self.headers is not None:
            self.headers.append(headers)

    def end_run(self, topic: str, partition: int, rows: int) -> None:
        """The last ``rows`` rows came from the partition."""
        if not rows:
            return
        if self.runs and self.runs[-1][:2] == (topic, partition):
            rows += self.runs.pop()[2]
        self.runs.append((topic, partition, rows))

    def drop_from(self, offset: int) -> int:
        """Drop the rows at the end that are at ``offset`` or past it, all of the last run; return how many.

        Needs the column ``offset``: offsets grow within a run.
        """
        if self.offsets is None or not self.runs:
            return 0
        topic, partition, rows = self.runs.pop()
        first = self.rows - rows
        with memoryview(self.offsets).cast("q") as offsets:
            keep = bisect_left(offsets, offset, lo=first)
        self.end_run(topic, partition, keep - first)
        dropped = self.rows - keep
        if dropped:
            self.truncate(keep)
        return dropped

    def truncate(self, rows: int) -> None:
        """Keep the first ``rows`` rows, also if the one after them was appended in part. Runs are not looked at."""
        self.rows = rows
        if self.offsets is not None:
            del self.offsets[8 * rows :]
        if self.timestamps is not None:
            del self.timestamps[8 * rows :]
        if self.timestamp_types is not None:
            del self.timestamp_types[rows:]
        for buffers in (self.keys, self.values, self.key_views, self.value_views, self.headers):
            if buffers is not None:
                buffers.truncate(rows)

    def finish(self) -> Columns:
        """Return the buffers themselves, not copies; nothing may be appended afterwards."""
        return Columns(
            rows=self.rows,
            runs=tuple(self.runs),
            offsets=self.offsets,
            timestamps=self.timestamps,
            timestamp_types=self.timestamp_types,
            keys=None if self.keys is None else self.keys.finish(),
            values=None if self.values is None else self.values.finish(),
            headers=None if self.headers is None else self.headers.finish(),
            key_views=None if self.key_views is None else self.key_views.finish(),
            value_views=None if self.value_views is None else self.value_views.finish(),
        )


def _cut_bitmap(bitmap: bytearray, length: int) -> int:
    """Keep the first ``length`` bits; return how many of them are not set."""
    whole, rest = divmod(length, 8)
    del bitmap[whole + bool(rest) :]
    if rest:
        bitmap[whole] &= (1 << rest) - 1
    return length - int.from_bytes(bitmap, "little").bit_count()


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
