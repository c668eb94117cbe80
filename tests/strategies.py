"""Record batches for tests: a plain encoder of what brokers send, and Hypothesis strategies on top of it.

The encoder is written from the format (KIP-98, KIP-31, KIP-32), not from the decoder: it must not import ``kafka_async.records``.
Everything about a batch can be set by hand, so that tests can also build what no broker would.
"""

import gzip
import struct
import zlib
from collections.abc import Sequence

import cramjam
from attrs import evolve, frozen
from crc32c import crc32c
from hypothesis import strategies as st

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


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
    """A batch of format 2. ``None`` means: what follows from the records."""

    records: tuple[RecordSpec, ...] = ()
    base_offset: int = 0
    last_offset_delta: int | None = None
    leader_epoch: int = 0
    codec: int = NONE
    attributes: int = 0
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int | None = None
    producer_id: int = -1
    count: int | None = None

    @property
    def last_offset(self) -> int:
        """Last offset of the batch, which need not have a record any more."""
        if self.last_offset_delta is not None:
            return self.base_offset + self.last_offset_delta
        return self.base_offset + (self.records[-1].delta if self.records else 0)

    def encode(self) -> bytes:
        """Return the batch as a broker would send it."""
        return encode_batch(self, b"".join(map(encode_record, self.records)))


@frozen(kw_only=True)
class MessageSpec:
    """A message of format 0 or 1. With ``inner`` it wraps those messages, compressed by ``codec``, and its value is ignored."""

    magic: int = 1
    offset: int = 0
    timestamp: int = 1_700_000_000_000
    attributes: int = 0
    key: bytes | None = None
    value: bytes | None = b"value"
    codec: int = NONE
    inner: tuple["MessageSpec", ...] = ()

    def encode(self) -> bytes:
        """Return the message. In format 1 the offsets of ``inner`` are written as they are: the caller makes them relative."""
        value = self.value
        if self.inner:
            value = compress(self.codec, b"".join(message.encode() for message in self.inner), self.magic)
        body = struct.pack(">bb", self.magic, self.attributes | self.codec)
        if self.magic:
            body += struct.pack(">q", self.timestamp)
        body += _sized32(self.key) + _sized32(value)
        return struct.pack(">qiI", self.offset, len(body) + 4, zlib.crc32(body)) + body


def varint(value: int) -> bytes:
    """Return the zigzag encoding of a signed integer of up to 64 bits."""
    unsigned = (value << 1 ^ value >> 63) & (2**64 - 1)
    encoded = bytearray()
    while unsigned >= 0x80:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


def sized(data: bytes | None) -> bytes:
    """Return the bytes behind their length as a varint; -1 for ``None``."""
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
    """Return a batch with the header of ``batch`` and the bytes ``records``, compressed here, whatever those are."""
    return encode_compressed(batch, compress(batch.codec, records))


def encode_compressed(batch: BatchSpec, body: bytes) -> bytes:
    """Return a batch with the header of ``batch`` around ``body`` as it is; the CRC is right."""
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
            -1,
            -1,
            count,
        )
        + body
    )
    head = struct.pack(">qiibI", batch.base_offset, len(covered) + 9, batch.leader_epoch, 2, crc32c(covered))
    return head + covered


def marker(offset: int, producer_id: int, *, commit: bool, leader_epoch: int = 0) -> bytes:
    """Return the control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return BatchSpec(
        records=(RecordSpec(key=key, value=struct.pack(">hi", 0, 0)),),
        base_offset=offset,
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=producer_id,
        leader_epoch=leader_epoch,
    ).encode()


def compress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """Return the bytes as Java's producer of that format compresses them; snappy is in snappy-java's chunks."""
    match codec:
        case 1:
            return gzip.compress(data, mtime=0)
        case 2:
            return xerial(data)
        case 3:
            frame = bytes(cramjam.lz4.compress(data))
            return broken_lz4(frame) if magic == 0 else frame
        case 4:
            return bytes(cramjam.zstd.compress(data))
        case _:
            return data


def xerial(data: bytes, chunk: int = 32 << 10) -> bytes:
    """Return the bytes in snappy-java's framing."""
    chunks = [bytes(cramjam.snappy.compress_raw(data[place : place + chunk])) for place in range(0, len(data), chunk)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(c)) + c for c in chunks)


def broken_lz4(frame: bytes) -> bytes:
    """Return an LZ4 frame with a wrong header checksum, as producers of format 0 wrote it (KAFKA-3160)."""
    place = 6 + (8 if frame[4] & 0x08 else 0)
    return frame[:place] + bytes([frame[place] ^ 0x5A]) + frame[place + 1 :]


def plain_batches(batches: int, records: int, value_size: int, key: bytes | None = b"12345678", codec: int = NONE) -> bytes:
    """Return consecutive batches of equal records, from offset 0 on."""
    specs = tuple(RecordSpec(delta=i, timestamp_delta=i, key=key, value=b"v" * value_size) for i in range(records))
    return b"".join(BatchSpec(records=specs, base_offset=n * records, codec=codec).encode() for n in range(batches))


def _sized32(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


_TEXT = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=140))
_HEADERS = st.lists(st.tuples(st.binary(max_size=8), st.one_of(st.none(), st.binary(max_size=8))), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0, codecs: Sequence[int] = tuple(CODECS.values())) -> BatchSpec:
    """A batch that a broker could send: any codec, gaps between offsets, null keys and values, headers, either timestamp type."""
    gaps = draw(st.lists(st.integers(1, 3), max_size=12))
    deltas = [sum(gaps[: i + 1]) - 1 for i in range(len(gaps))]
    records = tuple(
        RecordSpec(
            delta=delta,
            timestamp_delta=draw(st.integers(-(2**40), 2**40)),
            key=draw(_TEXT),
            value=draw(_TEXT),
            headers=draw(_HEADERS),
        )
        for delta in deltas
    )
    return BatchSpec(
        records=records,
        base_offset=base_offset,
        last_offset_delta=(deltas[-1] if deltas else 0) + draw(st.integers(0, 2)),
        leader_epoch=draw(st.integers(-1, 5)),
        codec=draw(st.sampled_from(codecs)),
        attributes=draw(st.sampled_from((0, APPEND_TIME))),
        max_timestamp=1_800_000_000_000,
    )


@st.composite
def logs(draw: st.DrawFn, start: int = 0, max_batches: int = 5) -> tuple[BatchSpec, ...]:
    """Consecutive batches, some with a gap between them, as compaction leaves it."""
    made: list[BatchSpec] = []
    offset = start
    for _ in range(draw(st.integers(1, max_batches))):
        batch = draw(batches(base_offset=offset))
        made.append(batch)
        offset = batch.last_offset + 1 + draw(st.integers(0, 2))
    return tuple(made)


@st.composite
def message_sets(draw: st.DrawFn, magic: int) -> tuple[MessageSpec, ...]:
    """Messages of format 0 or 1, plain and wrapped, with rising offsets."""
    made: list[MessageSpec] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 4))):
        plain = tuple(
            MessageSpec(magic=magic, offset=offset + i, timestamp=draw(st.integers(0, 2**40)), key=draw(_TEXT), value=draw(_TEXT))
            for i in range(draw(st.integers(1, 4)))
        )
        offset += len(plain) + draw(st.integers(0, 2))
        made.extend([wrap(plain, draw(st.sampled_from((GZIP, SNAPPY, LZ4))))] if draw(st.booleans()) else plain)
    return tuple(made)


def wrap(messages: tuple[MessageSpec, ...], codec: int, attributes: int = 0) -> MessageSpec:
    """Return the message that holds ``messages`` compressed, with relative offsets inside in format 1 (KIP-31)."""
    magic, last = messages[0].magic, messages[-1]
    first = messages[0].offset if magic else 0
    inner = tuple(evolve(message, offset=message.offset - first) for message in messages)
    return MessageSpec(
        magic=magic, offset=last.offset, timestamp=last.timestamp, codec=codec, inner=inner, value=None, attributes=attributes
    )


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with a few of them changed, removed or added, or the end cut off."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(changed) - 1, 0)))
        match draw(st.integers(0, 3)):
            case 0:
                changed[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del changed[place : place + draw(st.integers(1, 8))]
            case 2:
                changed[place:place] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del changed[place:]
    return bytes(changed)
