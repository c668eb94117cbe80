import struct
import zlib

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import CorruptRecordException, UnsupportedCodecError
from kafka_async.records.columns import Row
from kafka_async.records.legacy import read_rows
from tests.strategies import APPEND_TIME, GZIP, LZ4, SNAPPY, ZSTD, MessageSpec, compress, message_sets, mutated, wrap

LIMIT = 2**20


def rows(message: bytes, check_crcs: bool = True, limit: int = LIMIT) -> list[Row]:
    return read_rows(message, 0, len(message), check_crcs, limit)


def recrc(message: bytes) -> bytes:
    """The message with a checksum that fits what it now holds."""
    return message[:12] + struct.pack(">I", zlib.crc32(message[16:])) + message[16:]


def three(magic: int) -> tuple[MessageSpec, ...]:
    return tuple(MessageSpec(magic=magic, offset=20 + i, timestamp=100 + i, value=b"v%d" % i) for i in (0, 2, 3))


def test_format_0_has_no_timestamp() -> None:
    message = MessageSpec(magic=0, offset=5, key=b"k", value=None).encode()
    checksum = zlib.crc32(message[16:])
    assert rows(message) == [(5, -1, -1, b"k", None, (), checksum, None)]


@pytest.mark.parametrize(("attributes", "kind"), [(0, 0), (APPEND_TIME, 1)])
def test_format_1_has_a_timestamp_and_its_type(attributes: int, kind: int) -> None:
    message = MessageSpec(magic=1, offset=5, timestamp=77, attributes=attributes).encode()
    assert [row[:5] for row in rows(message)] == [(5, 77, kind, None, b"value")]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapped_messages_have_absolute_offsets(magic: int, codec: int) -> None:
    found = rows(wrap(three(magic), codec).encode())
    assert [(row[0], row[4]) for row in found] == [(20, b"v0"), (22, b"v2"), (23, b"v3")]
    assert [row[1] for row in found] == ([100, 102, 103] if magic else [-1, -1, -1])


def test_append_time_of_the_wrapper_holds_for_all_inside() -> None:
    wrapper = evolve(wrap(three(1), GZIP, attributes=APPEND_TIME), timestamp=999)
    assert [row[1:3] for row in rows(wrapper.encode())] == [(999, 1)] * 3


def test_a_wrong_checksum_is_corrupt_unless_nobody_asks() -> None:
    message = bytearray(MessageSpec().encode())
    message[-1] ^= 1
    with pytest.raises(CorruptRecordException, match="checksum"):
        rows(bytes(message))
    assert rows(bytes(message), check_crcs=False)[0][4] == b"valud"


def test_a_wrong_checksum_inside_a_wrapper_is_corrupt() -> None:
    inner = bytearray(MessageSpec().encode())
    inner[-1] ^= 1
    message = MessageSpec(codec=GZIP, value=compress(GZIP, bytes(inner))).encode()
    with pytest.raises(CorruptRecordException, match="checksum"):
        rows(message)


def test_zstd_is_not_a_codec_of_these_formats() -> None:
    with pytest.raises(UnsupportedCodecError, match="codec 4"):
        rows(MessageSpec(codec=ZSTD).encode())


def test_a_bomb_in_a_wrapper_is_refused() -> None:
    bomb = MessageSpec(codec=GZIP, value=compress(GZIP, bytes(LIMIT + 1))).encode()
    with pytest.raises(CorruptRecordException, match=f"max_decompressed_bytes={LIMIT}"):
        rows(bomb)


def test_many_messages_in_a_wrapper_count_for_what_they_become() -> None:
    """A message of 26 bytes is ten times as large as a row, and compresses to nothing."""
    empty = MessageSpec(magic=0, value=None).encode()
    bomb = MessageSpec(codec=GZIP, value=compress(GZIP, empty * (LIMIT // len(empty)))).encode()
    with pytest.raises(CorruptRecordException, match=f"more than 2048 messages, the most for max_decompressed_bytes={LIMIT}"):
        rows(bomb)


BAD_WRAPPERS = {
    "null value": MessageSpec(codec=GZIP, value=None),
    "no messages": MessageSpec(codec=GZIP, value=compress(GZIP, b"")),
    "cut off inside": MessageSpec(codec=GZIP, value=compress(GZIP, MessageSpec().encode()[:-1])),
    "a few bytes inside": MessageSpec(codec=GZIP, value=compress(GZIP, b"0123456789")),
    "compressed twice": MessageSpec(codec=GZIP, value=compress(GZIP, wrap(three(1), GZIP).encode())),
    "format 2 inside": MessageSpec(codec=GZIP, value=compress(GZIP, bytes(16) + b"\2" + bytes(50))),
    "length too small": MessageSpec(codec=GZIP, value=compress(GZIP, struct.pack(">qi", 0, 13) + bytes(30))),
    "negative length": MessageSpec(codec=GZIP, value=compress(GZIP, struct.pack(">qi", 0, -5) + bytes(30))),
    "offsets fall": MessageSpec(
        codec=GZIP, offset=9, value=compress(GZIP, MessageSpec(offset=3).encode() + MessageSpec(offset=1).encode())
    ),
    "offset below zero": MessageSpec(
        codec=GZIP, offset=1, value=compress(GZIP, MessageSpec(offset=0).encode() + MessageSpec(offset=5).encode())
    ),
    "offset above the wrapper": MessageSpec(
        magic=0, codec=GZIP, offset=1, value=compress(GZIP, MessageSpec(magic=0, offset=5).encode())
    ),
}


@pytest.mark.parametrize("wrapper", BAD_WRAPPERS.values(), ids=BAD_WRAPPERS.keys())
def test_a_wrapper_that_does_not_hold_together_is_corrupt(wrapper: MessageSpec) -> None:
    with pytest.raises(CorruptRecordException):
        rows(wrapper.encode())


@pytest.mark.parametrize(("place", "size"), [(26, -2), (26, 1000), (30, 1000), (30, -2), (30, 4)])
def test_sizes_of_key_and_value_are_checked(place: int, size: int) -> None:
    message = MessageSpec().encode()
    changed = recrc(message[:place] + struct.pack(">i", size) + message[place + 4 :])
    with pytest.raises(CorruptRecordException):
        rows(changed)


@pytest.mark.slow
@given(data=st.data(), magic=st.integers(0, 1))
def test_mutated_messages_give_rows_or_our_error(data: st.DataObject, magic: int) -> None:
    for spec in data.draw(message_sets(magic)):
        message = data.draw(mutated(spec.encode()))
        if len(message) >= 34:
            message = recrc(message)
            try:
                found = read_rows(message, 0, len(message), False, 2**16)
            except (CorruptRecordException, UnsupportedCodecError):
                continue
            assert [row[0] for row in found] == sorted({row[0] for row in found})
