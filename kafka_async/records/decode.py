"""The decoder in Python: the readable half of a pair that ``_decode.pyx`` is the fast half of.

``_decode.pyx`` decides everything alike: both keep one contract, given in the docstrings here, and the same tests.

A failure moves nothing: the next call meets it again. Records before it were handed out by the call that met it first, which
therefore does not raise. Any other exception leaves the reader where it was before the call, and hands nothing out. Sources:
``CompletedFetch``, ``DefaultRecordBatch``, ``DefaultRecord``; KIP-98 for read_committed.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from ..errors import CorruptRecordException, UnsupportedCodecError
from ..model import ConsumerRecord
from .checksum import crc32c
from .codecs import decompress
from .columns import At, Bytes, ColumnBuilder, Row
from .header import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_COST,
    INT64_MAX,
    TRANSACTIONAL,
    V2_SIZE,
    BatchHeader,
    Flaw,
    Span,
    check_count,
    corrupt,
    read_header,
    too_many_headers,
)
from .legacy import read_rows
from .transactions import AbortedTransactions

Headers = tuple[tuple[str, bytes | None], ...]

Placed = tuple[Row, int, int]
"""A record, and where its key and its value end in the records of its batch."""

Ended = tuple[bytes | None, int]
"""A key or a value, and where it ends."""

_ABORT: Final = 0
_SMALLEST_HEADER: Final = 2
_NONE: Final = 1
"""The length -1, as a record has it: most have no key."""


def measure(data: bytes, fetch_offset: int) -> Span:
    """Walk the batch headers in ``data``, without checksums and decompression, and return what is there."""
    place = 0
    next_offset = fetch_offset
    epoch = -1
    corrupt = False
    try:
        while (header := read_header(data, place)) is not None:
            place = header.end
            if header.last_offset >= next_offset:
                next_offset = header.last_offset + 1
                epoch = header.leader_epoch
    except CorruptRecordException:
        corrupt = True
    return Span(next_offset, epoch if epoch >= 0 else None, place, corrupt)


class Decoder:
    """Reads the record data of one partition, a number of records at a time."""

    def __init__(
        self,
        topic: str,
        partition: int,
        data: bytes,
        fetch_offset: int,
        aborted: AbortedTransactions | None,
        check_crcs: bool,
        max_decompressed_bytes: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        """Never goes back. Past records that were handed out and past whatever needs no handing out."""
        self.epoch = -1
        """Epoch of the last batch handed out or passed; -1 if unknown."""
        self.exhausted = False
        """Nothing is left to hand out; set as soon as the walk meets the end. The data is released then."""
        self._data = data if isinstance(data, bytes) else bytes(data)
        self._place = 0
        self._aborted = aborted
        self._check_crcs = check_crcs
        self._limit = max_decompressed_bytes
        self._batch: BatchHeader | None = None
        self._rows: Iterator[Placed] = iter(())
        self._source: Bytes | None = None
        """What the records of the batch lie in and views may point to; ``None`` if they were put together (formats 0 and 1)."""
        self._shift = 0
        """Where in the source the records begin."""
        self._left = 0
        """Rows of the batch that have not been looked at; the batch is passed the moment there are none."""

    @property
    def held(self) -> int:
        """Bytes that the compressed batch in which the decoder stands became; 0 if it stands in none."""
        return len(self._source) if self._left and self._source is not None and self._source is not self._data else 0

    def read(self, max_records: int) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """Return the next records, at most ``max_records``; none if nothing is left.

        Raises ``CorruptRecordException`` or ``UnsupportedCodecError`` if the very next record cannot be read.
        """
        records: list[ConsumerRecord[bytes | None, bytes | None]] = []
        topic, partition = self.topic, self.partition
        append, make = records.append, tuple.__new__  # a record is a tuple; its own constructor takes twice as long

        def take(placed: Placed) -> bool:
            offset, timestamp, kind, key, value, headers, checksum, epoch = placed[0]
            key_size = -1 if key is None else len(key)
            value_size = -1 if value is None else len(value)
            fields = topic, partition, offset, timestamp, kind, key, value, headers, checksum, key_size, value_size, epoch
            append(make(ConsumerRecord, fields))
            return True

        self._read(max_records, take)
        return records

    def read_columns(self, max_records: int, into: ColumnBuilder) -> int:
        """Append the next records to ``into`` and return how many; otherwise as ``read``.

        Fewer than ``max_records`` also if ``into`` is full; then ``exhausted`` is not set.
        """
        before = into.rows

        def take(placed: Placed) -> bool:
            row, at = placed[0], self._at(placed)
            if not into.fits(row, at):
                return False
            rows = into.rows
            try:
                into.append(row, at)
            except BaseException:
                into.truncate(rows)
                raise
            return True

        try:
            self._read(max_records, take)
        except (CorruptRecordException, UnsupportedCodecError, MemoryError):
            raise
        except BaseException:
            into.truncate(before)
            raise
        into.end_run(self.topic, self.partition, into.rows - before)
        return into.rows - before

    def _at(self, placed: Placed) -> At | None:
        row, key_end, value_end = placed
        if self._source is None:
            return None
        return self._source, self._shift + key_end - len(row[3] or b""), self._shift + value_end - len(row[4] or b"")

    def _read(self, max_records: int, take: Callable[[Placed], bool]) -> None:
        taken = 0
        before = self.next_offset, self.epoch, self.exhausted, self._place, self._data
        aborted = self._aborted.copy() if self._aborted is not None else None
        try:
            while taken < max_records and (self._left or self._open()):
                placed = next(self._rows)
                offset = placed[0][0]
                if offset >= self.next_offset:
                    if not take(placed):
                        self._rows = chain((placed,), self._rows)
                        return
                    taken += 1
                    self.next_offset = offset + 1
                    epoch = placed[0][7]
                    self.epoch = -1 if epoch is None else epoch
                self._left -= 1
                if not self._left and self._batch is not None:
                    self._pass(self._batch)
            if max_records > 0 and not self._left:
                self._next_with_records()
        except (CorruptRecordException, UnsupportedCodecError, MemoryError):
            self._left = 0
            if not taken:
                raise
        except BaseException:  # whatever else it is, such as an interrupt: what was taken is not handed out
            self.next_offset, self.epoch, self.exhausted, self._place, self._data = before
            self._aborted = aborted
            self._left = 0
            raise

    def _open(self) -> bool:
        """Make the next batch that has records the current one; ``False`` if there is none."""
        header = self._next_with_records()
        if header is None:
            return False
        if header.magic < 2:
            rows = read_rows(self._data, header.start, header.end, self._check_crcs, self._limit)
            self._rows, self._left = ((row, 0, 0) for row in rows), len(rows)
            self._source = None
        else:
            self._check_crc(header)
            body = self._body(header)
            self._rows, self._left = _rows(header, body, self._limit), header.record_count
            compressed = header.attributes & CODEC_MASK
            self._source, self._shift = (body, 0) if compressed else (self._data, header.start + V2_SIZE)
        self._batch = header
        return True

    def _next_with_records(self) -> BatchHeader | None:
        """Pass batches that have nothing to hand out; return the first that may have, or ``None`` at the end."""
        while True:
            header = read_header(self._data, self._place)
            if header is None:
                self.exhausted = True
                self._data = b""
                self._source = None
                self._place = 0
                return None
            if not self._has_nothing(header):
                return header
            self._pass(header)

    def _has_nothing(self, header: BatchHeader) -> bool:
        below = header.last_offset < self.next_offset
        if header.attributes & CONTROL:
            self._meet_marker(header, below)
            return True
        if below:
            return True
        if header.record_count == 0 or self._is_aborted(header):
            self._check_crc(header)
            return True
        return False

    def _is_aborted(self, header: BatchHeader) -> bool:
        if self._aborted is None or header.producer_id < 0:
            return False
        return self._aborted.covers(header.producer_id, header.last_offset) and bool(header.attributes & TRANSACTIONAL)

    def _meet_marker(self, header: BatchHeader, below: bool) -> None:
        """A marker that was skipped still ends its transaction, without its checksum being verified."""
        if not below:
            self._check_crc(header)
        if self._aborted is None or not self._is_aborted(header):
            return
        if below or (header.record_count and _marker_type(header, self._body(header), self._limit) == _ABORT):
            self._aborted.end(header.producer_id)

    def _pass(self, header: BatchHeader) -> None:
        """The batch is done with."""
        self._left = 0
        self._place = header.end
        if header.last_offset >= self.next_offset:
            self.next_offset = header.last_offset + 1
            self.epoch = header.leader_epoch

    def _check_crc(self, header: BatchHeader) -> None:
        if self._check_crcs and crc32c(memoryview(self._data)[header.start + CRC_FROM : header.end]) != header.crc:
            raise corrupt(Flaw.CRC)

    def _body(self, header: BatchHeader) -> bytes:
        """Return the decompressed records of a batch of format 2, with a count that can be true."""
        body = memoryview(self._data)[header.start + V2_SIZE : header.end]
        codec = header.attributes & CODEC_MASK
        records = bytes(decompress(codec, body, self._limit) if codec else body)
        check_count(header, len(records))
        return records


def _marker_type(header: BatchHeader, body: bytes, limit: int) -> int:
    key = next(_rows(header, body, limit))[0][3]
    if key is None or len(key) < 4:
        raise corrupt(Flaw.CONTROL)
    return int.from_bytes(key[2:4], "big", signed=True)


def _rows(header: BatchHeader, body: bytes, limit: int) -> Iterator[Placed]:
    """Yield the records of a batch. The last one comes only if no bytes are left after it.

    Headers count for more than their bytes: two bytes become an object, so a batch of 250 KB could otherwise take 10 GB.
    """
    place = 0
    room = limit // HEADER_COST
    previous = -1
    highest = header.last_offset - header.base_offset
    epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    append_time = bool(header.attributes & APPEND_TIME)
    kind = int(append_time)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    for left in range(header.record_count - 1, -1, -1):
        try:
            length, start = _varint(body, place)
            place = start + length
            if length < 0 or place > len(body):
                raise corrupt(Flaw.RECORD_LENGTH)
            data = body[start:place]  # so that what reads past the record is an IndexError
            timestamp_delta, at = _varint(data, 1, 64)  # byte 0: attributes, of which none is defined
            delta, at = _varint(data, at)
            key, key_end = _sized(data, at)
            value, value_end = _sized(data, key_end)
            headers: Headers = ()
            at = value_end + 1
            if data[value_end]:  # most records have none
                headers, at = _headers(data, value_end, room, limit)
                room -= len(headers)
        except IndexError as error:
            raise corrupt(Flaw.RECORD_CUT) from error
        if at != length:
            raise corrupt(Flaw.RECORD_LENGTH)
        if not previous < delta <= highest:
            raise corrupt(Flaw.OFFSET_DELTA)
        previous = delta
        timestamp = header.max_timestamp if append_time else base_timestamp + timestamp_delta
        if not -INT64_MAX - 1 <= timestamp <= INT64_MAX:
            raise corrupt(Flaw.TIMESTAMP)
        if not left and place != len(body):
            raise corrupt(Flaw.COUNT_LOW)
        row = base_offset + delta, timestamp, kind, key, value, headers, None, epoch
        yield row, start + key_end, start + value_end


def _headers(data: bytes, place: int, room: int, limit: int) -> tuple[Headers, int]:
    count, place = _varint(data, place)
    if not count:
        return (), place
    if count < 0 or count * _SMALLEST_HEADER > len(data) - place:
        raise corrupt(Flaw.HEADER_COUNT)
    if count > room:
        raise too_many_headers(limit)
    headers = []
    for _ in range(count):
        key, place = _sized(data, place)
        if key is None:
            raise corrupt(Flaw.HEADER_KEY)
        value, place = _sized(data, place)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), place


def _sized(data: bytes, place: int) -> Ended:
    if data[place] == _NONE:
        return None, place + 1
    size, place = _varint(data, place)
    if size < 0:
        if size < -1:
            raise corrupt(Flaw.SIZE)
        return None, place
    end = place + size
    if end > len(data):
        raise corrupt(Flaw.RECORD_CUT)
    return data[place:end], end


def _varint(data: bytes, place: int, bits: int = 32) -> tuple[int, int]:
    """Return a zigzag integer and the place after it. Bits above the type are dropped, as Java drops them."""
    value = data[place]
    if value < 0x80:  # nearly all have one byte or two
        return value >> 1 ^ -(value & 1), place + 1
    byte = data[place + 1]
    value += (byte << 7) - 0x80  # less the top bit of the first byte
    if byte < 0x80:
        return value >> 1 ^ -(value & 1), place + 2
    value -= 0x4000  # and that of the second
    place += 2
    shift = 14
    while byte >= 0x80:
        if shift >= bits:
            raise corrupt(Flaw.VARINT)
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    value &= (1 << bits) - 1
    return value >> 1 ^ -(value & 1), place
