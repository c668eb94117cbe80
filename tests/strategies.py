"""Hypothesis strategies for record batches, on top of the encoder of the test kit, whose names can be imported from here too."""

import struct
import zlib
from collections.abc import Sequence

from attrs import evolve, frozen
from hypothesis import strategies as st

from kafka_async.testing.batches import CODECS as CODECS
from kafka_async.testing.batches import CONTROL as CONTROL
from kafka_async.testing.batches import GZIP as GZIP
from kafka_async.testing.batches import LOG_APPEND_TIME as LOG_APPEND_TIME
from kafka_async.testing.batches import LZ4 as LZ4
from kafka_async.testing.batches import NONE as NONE
from kafka_async.testing.batches import SNAPPY as SNAPPY
from kafka_async.testing.batches import TRANSACTIONAL as TRANSACTIONAL
from kafka_async.testing.batches import ZSTD as ZSTD
from kafka_async.testing.batches import BatchSpec as BatchSpec
from kafka_async.testing.batches import RecordSpec as RecordSpec
from kafka_async.testing.batches import compress as compress
from kafka_async.testing.batches import encode_batch as encode_batch
from kafka_async.testing.batches import encode_compressed as encode_compressed
from kafka_async.testing.batches import encode_record as encode_record
from kafka_async.testing.batches import framed as framed
from kafka_async.testing.batches import marker as marker
from kafka_async.testing.batches import sized as sized
from kafka_async.testing.batches import varint as varint
from kafka_async.testing.batches import xerial as xerial

APPEND_TIME = LOG_APPEND_TIME


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
            value = compress(self.codec, b"".join(message.encode() for message in self.inner))
        body = struct.pack(">bb", self.magic, self.attributes | self.codec)
        if self.magic:
            body += struct.pack(">q", self.timestamp)
        body += _sized32(self.key) + _sized32(value)
        return struct.pack(">qiI", self.offset, len(body) + 4, zlib.crc32(body)) + body


def _sized32(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def wrap(messages: tuple[MessageSpec, ...], codec: int, attributes: int = 0) -> MessageSpec:
    """Return the message that holds ``messages`` compressed, with relative offsets inside in format 1 (KIP-31)."""
    magic, last = messages[0].magic, messages[-1]
    first = messages[0].offset if magic else 0
    inner = tuple(evolve(message, offset=message.offset - first) for message in messages)
    return MessageSpec(
        magic=magic, offset=last.offset, timestamp=last.timestamp, codec=codec, inner=inner, value=None, attributes=attributes
    )


def plain_batches(batches: int, records: int, value_size: int, key: bytes | None = b"12345678", codec: int = NONE) -> bytes:
    """Return consecutive batches of equal records, from offset 0 on."""
    specs = tuple(RecordSpec(delta=i, timestamp_delta=i, key=key, value=b"v" * value_size) for i in range(records))
    return b"".join(BatchSpec(records=specs, base_offset=n * records, codec=codec).encode() for n in range(batches))


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
