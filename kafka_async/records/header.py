"""The header of a record batch, and the words for everything that can be wrong with one.

Both decoders use the layouts and the sentences of ``Flaw``.

Sources: KIP-98 and ``DefaultRecordBatch`` (magic 2), KIP-32 and ``LegacyRecord`` (magic 0 and 1), ``ByteBufferLogInputStream`` for
the order of the checks.
"""

from enum import StrEnum
from struct import Struct
from typing import Final, NamedTuple

from ..errors import CorruptRecordException, UnsupportedCodecError

INT64_MAX: Final = 2**63 - 1

UP_TO_LENGTH: Final = 12
"""Bytes of the offset and the length, which the length itself does not count."""
UP_TO_MAGIC: Final = 17
V2_SIZE: Final = 61
CRC_FROM: Final = 21
"""Where the bytes begin that the CRC of a batch covers."""
SMALLEST: Final = {0: 14, 1: 22, 2: V2_SIZE - UP_TO_LENGTH}
"""Smallest value of the length field, by magic."""
SMALLEST_RECORD: Final = 7
HEADER_COST: Final = 128
"""Bytes of memory that a record's header is taken to need in addition to its own, which can be two."""

CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_V2: Final = Struct(">qiibIhiqqqhii")


class Flaw(StrEnum):
    """What is wrong with a batch. The compiled decoder refers to these by their place in this list."""

    LENGTH = "the length field is smaller than the smallest batch of its format"
    MAGIC = "the magic byte is not 0, 1 or 2"
    OFFSETS = "the base offset or the last offset delta is negative, or their sum is above 2**63-1"
    CRC = "the checksum of the bytes differs from the one in the header"
    COUNT_HIGH = "the record count is negative, or higher than the offsets or the bytes of the batch allow"
    COUNT_LOW = "bytes are left over after the last record that the header counts"
    VARINT = "a variable-length integer is longer than its type allows"
    RECORD_LENGTH = "the length of a record is negative, goes past the end of its batch, or differs from what its fields take"
    RECORD_CUT = "the fields of a record go past its end"
    OFFSET_DELTA = "an offset delta is not above the one before it, or is above the last offset delta of its batch"
    TIMESTAMP = "a timestamp is outside the range of 64 bits"
    SIZE = "the size of a key, value or header is below -1 (which means null)"
    HEADER_COUNT = "the number of headers is negative or higher than the bytes of the record allow"
    HEADER_KEY = "the key of a header is null"
    CONTROL = "a control batch has no record whose key holds a version and a type"


class BatchHeader(NamedTuple):
    """The header of a batch, or of a message of format 0 or 1, which then counts as a batch of one offset."""

    start: int
    """Place of its first byte in the data; ``end`` is the place after its last byte."""
    end: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    """-1 if unknown."""
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    """-1 if the producer is neither idempotent nor transactional."""
    record_count: int
    """The header's number of records; to be trusted only after ``check_count``."""


class Span(NamedTuple):
    """What the headers alone show about fetched record data."""

    next_offset: int
    """Offset after the last complete batch; the fetch offset if no complete batch reaches it."""
    leader_epoch: int | None
    """Epoch of the last complete batch at or after the fetch offset."""
    size: int
    """Bytes of all complete batches."""
    corrupt: bool
    """The walk ended at a header that Kafka cannot have written; reading will raise there."""


def corrupt(flaw: Flaw) -> CorruptRecordException:
    """Return the error for ``flaw``; the caller adds the partition."""
    return CorruptRecordException(flaw.value)


def too_many_headers(limit: int) -> CorruptRecordException:
    """Return the error for a batch with more headers than there is room for, at ``HEADER_COST`` each."""
    return CorruptRecordException(
        f"the batch has more than {limit // HEADER_COST} headers, the most for max_decompressed_bytes={limit}"
    )


def unsupported_codec(codec: int) -> UnsupportedCodecError:
    """Return the error for codec bits that Kafka does not define for the format."""
    return UnsupportedCodecError(
        f"the batch is compressed with codec {codec}; expected 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or, in format 2, 4 (zstd)"
    )


def read_header(data: bytes, start: int) -> BatchHeader | None:
    """Return the header at ``start``, or ``None`` if the data ends before its batch does.

    Raises ``CorruptRecordException`` if no batch can begin like this. The record count is not checked.
    """
    left = len(data) - start
    if left < UP_TO_LENGTH:
        return None
    offset, length = _OFFSET_AND_LENGTH.unpack_from(data, start)
    if length < SMALLEST[0]:
        raise corrupt(Flaw.LENGTH)
    if left < UP_TO_MAGIC:
        return None
    magic = data[start + UP_TO_MAGIC - 1]
    if magic not in SMALLEST:
        raise corrupt(Flaw.MAGIC)
    if length < SMALLEST[magic]:
        raise corrupt(Flaw.LENGTH)
    end = start + UP_TO_LENGTH + length
    if end > len(data):
        return None
    if magic < 2:
        if not 0 <= offset < INT64_MAX:
            raise corrupt(Flaw.OFFSETS)
        return BatchHeader(start, end, magic, offset, offset, -1, 0, 0, -1, -1, -1, 1)
    return _read_v2(data, start, end)


def _read_v2(data: bytes, start: int, end: int) -> BatchHeader:
    base, _, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp, producer, _, _, count = _V2.unpack_from(
        data, start
    )
    if base < 0 or delta < 0 or base > INT64_MAX - 1 - delta:
        raise corrupt(Flaw.OFFSETS)
    return BatchHeader(
        start, end, magic, base, base + delta, epoch, crc, attributes, base_timestamp, max_timestamp, producer, count
    )


def check_count(header: BatchHeader, size: int) -> None:
    """Raise unless the records that ``header`` counts fit into its offsets and into ``size`` bytes of records."""
    count = header.record_count
    if count < 0 or count - 1 > header.last_offset - header.base_offset or count * SMALLEST_RECORD > size:
        raise corrupt(Flaw.COUNT_HIGH)
