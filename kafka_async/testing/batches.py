"""Record batches as brokers keep and send them: a plain encoder.

It is written from the format (KIP-98, KIP-31, KIP-32), not from the decoder, and must not import ``kafka_async.records``: otherwise
both could have the same bug unnoticed. Everything about a batch can be set by hand, so that tests can also build batches that no
broker would.
"""

import gzip
import struct
from typing import Final

import cramjam
from attrs import frozen
from crc32c import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

TRANSACTIONAL = 0x10
CONTROL = 0x20
LOG_APPEND_TIME = 0x08


@frozen(kw_only=True)
class RecordSpec:
    """One record of a batch of format 2; deltas are relative to its batch. Header keys are bytes, as they are on the wire."""

    delta: int = 0
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@frozen(kw_only=True)
class BatchSpec:
    """A batch of format 2. Fields that are ``None`` follow from the records."""

    records: tuple[RecordSpec, ...] = ()
    base_offset: int = 0
    last_offset_delta: int | None = None
    leader_epoch: int = 0
    codec: int = NONE
    attributes: int = 0
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None

    @property
    def last_offset(self) -> int:
        """Last offset of the batch; its record may be gone."""
        if self.last_offset_delta is not None:
            return self.base_offset + self.last_offset_delta
        return self.base_offset + (self.records[-1].delta if self.records else 0)

    def encode(self) -> bytes:
        """Return the batch as a broker would send it."""
        return encode_batch(self, b"".join(map(encode_record, self.records)))


def varint(value: int) -> bytes:
    """Return the zigzag encoding of a signed integer of up to 64 bits."""
    if -64 <= value < 64:  # nearly all of them
        return _SHORT[value]
    unsigned = (value << 1 ^ value >> 63) & (2**64 - 1)
    encoded = bytearray()
    while unsigned >= 0x80:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


_SHORT: Final = [bytes([value << 1]) for value in range(64)] + [bytes([(-value << 1) - 1]) for value in range(-64, 0)]
"""The encodings of one byte, those of negative numbers at the end, where an index below 0 finds them."""


def sized(data: bytes | None) -> bytes:
    """Return the bytes after their length as a varint; -1 for ``None``."""
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: RecordSpec) -> bytes:
    """Return a record of format 2 with its length before it."""
    headers = b"".join(sized(key) + sized(value) for key, value in record.headers)
    return framed(
        b"\0"
        + varint(record.timestamp_delta)
        + varint(record.delta)
        + sized(record.key)
        + sized(record.value)
        + varint(len(record.headers))
        + headers
    )


def framed(fields: bytes) -> bytes:
    """Return the fields of a record with their length before them."""
    return varint(len(fields)) + fields


def encode_batch(batch: BatchSpec, records: bytes) -> bytes:
    """Return a batch with the header of ``batch`` and the bytes ``records``, whatever they are, compressed."""
    return encode_compressed(batch, compress(batch.codec, records))


def encode_compressed(batch: BatchSpec, body: bytes) -> bytes:
    """Return a batch with the header of ``batch`` and ``body`` as it is; the CRC is right."""
    count = len(batch.records) if batch.count is None else batch.count
    latest = max((r.timestamp_delta for r in batch.records), default=0)
    max_timestamp = batch.base_timestamp + latest if batch.max_timestamp is None else batch.max_timestamp
    covered = (
        struct.pack(
            ">hiqqqhii",
            batch.attributes | batch.codec,
            batch.last_offset - batch.base_offset,
            batch.base_timestamp,
            max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            count,
        )
        + body
    )
    head = struct.pack(">qiibI", batch.base_offset, len(covered) + 9, batch.leader_epoch, 2, crc32c(covered))
    return head + covered


def marker(offset: int, producer_id: int, *, commit: bool, leader_epoch: int = 0, timestamp: int = 1_700_000_000_000) -> bytes:
    """Return the control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return BatchSpec(
        records=(RecordSpec(key=key, value=struct.pack(">hi", 0, 0)),),
        base_offset=offset,
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        base_timestamp=timestamp,
    ).encode()


def compress(codec: int, data: bytes) -> bytes:
    """Return the bytes as Java's producer compresses them; snappy is in snappy-java's chunks."""
    match codec:
        case 1:
            return gzip.compress(data, mtime=0)
        case 2:
            return xerial(data)
        case 3:
            frame = cramjam.lz4.Compressor(block_linked=False)  # Java's broker refuses blocks that depend on each other
            frame.compress(data)
            return bytes(frame.finish())
        case 4:
            return bytes(cramjam.zstd.compress(data))
        case _:
            return data


def xerial(data: bytes, chunk: int = 32 << 10) -> bytes:
    """Return the bytes in snappy-java's framing."""
    chunks = [bytes(cramjam.snappy.compress_raw(data[place : place + chunk])) for place in range(0, len(data), chunk)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(c)) + c for c in chunks)


# --- what producers send --------------------------------------------------------------------------------------------------------

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT, _BEFORE_LENGTH, _MAGIC_AT, _CRC_AT, _COVERED_FROM = 8, 12, 16, 17, 21


@frozen
class Header:
    """The header of a batch of format 2."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


def read_header(batch: bytes) -> Header:
    """Return the header of a batch of format 2. Raises ``struct.error`` if it is too short."""
    return Header(*_HEADER.unpack_from(batch))


def split_batches(data: bytes) -> list[bytes]:
    """Return the batches that a producer sent. Raises ``ValueError`` if they are not whole, of another format, or broken."""
    found = []
    place = 0
    while place < len(data):
        end = place + _BEFORE_LENGTH + int.from_bytes(data[place + _LENGTH_AT : place + _BEFORE_LENGTH], "big")
        batch = data[place:end]
        if end > len(data) or len(batch) < _HEADER.size or batch[_MAGIC_AT] != 2:
            raise ValueError("not a batch of format 2")
        if crc32c(batch[_COVERED_FROM:]) != int.from_bytes(batch[_CRC_AT:_COVERED_FROM], "big"):
            raise ValueError("the checksum is wrong")
        found.append(batch)
        place = end
    return found


def placed(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return the batch with its offset and epoch in the log; the checksum does not cover them."""
    return struct.pack(">q", base_offset) + batch[8:12] + struct.pack(">i", leader_epoch) + batch[16:]


def stamped(batch: bytes, timestamp: int) -> bytes:
    """Return the batch with a broker's own timestamp for all of its records (``LogAppendTime``)."""
    covered = bytearray(batch[_COVERED_FROM:])
    struct.pack_into(">h", covered, 0, int.from_bytes(covered[:2], "big", signed=True) | LOG_APPEND_TIME)
    struct.pack_into(">q", covered, 14, timestamp)
    return batch[:_CRC_AT] + crc32c(bytes(covered)).to_bytes(4, "big") + bytes(covered)


def decompress(codec: int, data: bytes) -> bytes:
    """Return the bytes of a batch's records. Snappy may be raw or in snappy-java's chunks."""
    match codec:
        case 0:
            return data
        case 1:
            return gzip.decompress(data)
        case 2:
            return _unxerial(data) if data.startswith(b"\x82SNAPPY\0") else bytes(cramjam.snappy.decompress_raw(data))
        case 3:
            return bytes(cramjam.lz4.decompress(data))
        case _:
            return bytes(cramjam.zstd.decompress(data))


def _unxerial(data: bytes) -> bytes:
    found, place = [], 16
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        found.append(bytes(cramjam.snappy.decompress_raw(data[place + 4 : place + 4 + size])))
        place += 4 + size
    return b"".join(found)


def read_records(batch: bytes) -> tuple[RecordSpec, ...]:
    """Return the records of a batch of format 2, since a cluster needs their keys and timestamps."""
    header = read_header(batch)
    body = decompress(header.attributes & 7, batch[_HEADER.size :])
    found, place = [], 0
    for _ in range(header.count):
        size, place = _read_varint(body, place)
        found.append(_read_record(body, place))
        place += size
    return tuple(found)


def _read_record(body: bytes, place: int) -> RecordSpec:
    timestamp, place = _read_varint(body, place + 1)
    delta, place = _read_varint(body, place)
    key, place = _read_sized(body, place)
    value, place = _read_sized(body, place)
    count, place = _read_varint(body, place)
    headers = []
    for _ in range(count):
        name, place = _read_sized(body, place)
        text, place = _read_sized(body, place)
        headers.append((name or b"", text))
    return RecordSpec(delta=delta, timestamp_delta=timestamp, key=key, value=value, headers=tuple(headers))


def _read_sized(body: bytes, place: int) -> tuple[bytes | None, int]:
    size, place = _read_varint(body, place)
    return (None, place) if size < 0 else (body[place : place + size], place + size)


def _read_varint(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), place
        shift += 7
