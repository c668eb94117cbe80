"""Messages of format 0 and 1, as brokers before 4.0 and old segments still hold them.

Sources: ``LegacyRecord`` and ``AbstractLegacyRecordBatch``, KIP-31 (relative offsets in format 1), KIP-32 (timestamps), KIP-57.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Final
from zlib import crc32

from ..errors import CorruptRecordException
from .codecs import decompress
from .columns import Row
from .header import APPEND_TIME, CODEC_MASK, SMALLEST, UP_TO_LENGTH, UP_TO_MAGIC, Flaw, corrupt

_FIXED: Final = Struct(">qiIbb")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_CRC_FROM: Final = 16
_MESSAGE_COST: Final = 512
"""Bytes of memory that a message needs besides its own, which can be 26: a wrapper's messages become rows all at once."""

_Message = tuple[int, int, int, int, int, int, bytes | None, bytes | None]
"""Magic, attributes, offset, CRC, timestamp, timestamp type, key, value."""


def read_rows(data: bytes, start: int, end: int, check_crcs: bool, max_decompressed_bytes: int) -> list[Row]:
    """Return the rows of the message from ``start`` to ``end``, which may wrap others, in offset order.

    Raises ``CorruptRecordException`` or ``UnsupportedCodecError``; then there are no rows at all.
    """
    magic, attributes, offset, crc, timestamp, timestamp_type, key, value = _read(data, start, end, check_crcs)
    codec = attributes & CODEC_MASK
    if not codec:
        return [(offset, timestamp, timestamp_type, key, value, (), crc, None)]
    if value is None:
        raise CorruptRecordException("a compressed message has a null value; expected a message set")
    inner = bytes(decompress(codec, memoryview(value), max_decompressed_bytes, magic))
    most = max_decompressed_bytes // _MESSAGE_COST
    messages = list(islice(_read_set(inner, check_crcs), most + 1))
    if len(messages) > most:
        raise CorruptRecordException(
            f"a compressed message holds more than {most} messages, the most for max_decompressed_bytes={max_decompressed_bytes}"
        )
    if not messages:
        raise CorruptRecordException("a compressed message holds no messages; expected at least one")
    # In format 1 the wrapper has the offset of the last message inside, and those have relative ones (KIP-31).
    base = offset - messages[-1][2] if magic else 0
    append_time = timestamp if timestamp_type == 1 else None
    rows = [_row(message, base, append_time) for message in messages]
    _check_offsets(rows, offset)
    return rows


def _row(message: _Message, base: int, append_time: int | None) -> Row:
    _, _, offset, crc, timestamp, timestamp_type, key, value = message
    if append_time is not None:
        timestamp, timestamp_type = append_time, 1
    return offset + base, timestamp, timestamp_type, key, value, (), crc, None


def _check_offsets(rows: list[Row], last: int) -> None:
    previous = -1
    for row in rows:
        if not previous < row[0] <= last:
            raise CorruptRecordException("the offsets in a compressed message set do not rise up to the offset of its wrapper")
        previous = row[0]


def _read_set(data: bytes, check_crcs: bool) -> Iterator[_Message]:
    place = 0
    while place < len(data):
        start = place
        if len(data) - start < UP_TO_MAGIC:
            raise corrupt(Flaw.RECORD_CUT)
        place = start + UP_TO_LENGTH + _INT32.unpack_from(data, start + 8)[0]
        magic = data[start + UP_TO_MAGIC - 1]
        if magic > 1:
            raise CorruptRecordException(f"a message inside a message set has magic {magic}; expected 0 or 1")
        if place - start - UP_TO_LENGTH < SMALLEST[magic] or place > len(data):
            raise corrupt(Flaw.RECORD_LENGTH)
        message = _read(data, start, place, check_crcs)
        if message[1] & CODEC_MASK:
            raise CorruptRecordException("a message inside a compressed message set is compressed again")
        yield message


def _read(data: bytes, start: int, end: int, check_crcs: bool) -> _Message:
    offset, _, crc, magic, attributes = _FIXED.unpack_from(data, start)
    if check_crcs and crc32(memoryview(data)[start + _CRC_FROM : end]) != crc:
        raise corrupt(Flaw.CRC)
    place = start + _FIXED.size
    timestamp = timestamp_type = -1
    if magic:
        timestamp = _INT64.unpack_from(data, place)[0]
        timestamp_type = 1 if attributes & APPEND_TIME else 0
        place += 8
    key, place = _sized(data, place, end)
    value, place = _sized(data, place, end)
    if place != end:
        raise corrupt(Flaw.RECORD_LENGTH)
    return magic, attributes, offset, crc, timestamp, timestamp_type, key, value


def _sized(data: bytes, place: int, end: int) -> tuple[bytes | None, int]:
    if place + 4 > end:
        raise corrupt(Flaw.RECORD_CUT)
    size = _INT32.unpack_from(data, place)[0]
    place += 4
    if size < -1:
        raise corrupt(Flaw.SIZE)
    if size == -1:
        return None, place
    if place + size > end:
        raise corrupt(Flaw.RECORD_CUT)
    return data[place : place + size], place + size
