"""Kafka's primitive types, alone."""

import struct
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import readers as kio_readers
from kio.serial import writers as kio_writers

from kafka_async.wire import primitives
from kafka_async.wire.primitives import Reader, Writer


def written(write: Writer, value: Any) -> bytes:
    out = bytearray()
    write(value, out)
    return bytes(out)


@given(st.integers(0, 2**35 - 1))
def test_varint_comes_back_as_it_went(value: int) -> None:
    data = written(primitives.write_varint, value)
    assert primitives.read_varint(data, 0) == (value, len(data))
    assert kio_readers.read_unsigned_varint(data, 0) == (value, len(data))


def test_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 5 bytes at offset 1"):
        primitives.read_varint(b"\0" + b"\xff" * 5 + b"\1", 1)


def test_cut_varint_is_refused() -> None:
    with pytest.raises(IndexError):
        primitives.read_varint(b"\xff\xff", 0)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_is_that_of_its_bytes(data: bytes) -> None:
    assert (primitives.to_uuid(data) or UUID(int=0)).bytes == data


def test_zero_uuid_is_none() -> None:
    assert primitives.to_uuid(bytes(16)) is None
    assert primitives.to_uuid(bytes(15) + b"\1") == UUID(int=1)


FORMS = [(compact, nullable) for compact in (False, True) for nullable in (False, True)]
every_form = pytest.mark.parametrize(("compact", "nullable"), FORMS)


def pair(kind: str, compact: bool, nullable: bool) -> tuple[Reader, Writer]:
    reader = getattr(primitives, f"{kind}_reader")
    writer = getattr(primitives, f"{kind}_writer")
    return reader(compact=compact, nullable=nullable), writer(compact=compact, nullable=nullable)


@every_form
@pytest.mark.parametrize(
    ("kind", "value"), [("string", ""), ("string", "é" * 200), ("bytes", b""), ("bytes", b"\xff" * 200)], ids=str
)
def test_value_comes_back_as_it_went(kind: str, value: Any, compact: bool, nullable: bool) -> None:
    read, write = pair(kind, compact, nullable)
    data = b"x" + written(write, value)
    assert read(data, 1) == (value, len(data))
    assert read(memoryview(data), 1) == (value, len(data))


@every_form
@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_null_only_in_nullable_fields(kind: str, compact: bool, nullable: bool) -> None:
    _, write_null = pair(kind, compact, True)
    read, write = pair(kind, compact, nullable)
    data = written(write_null, None)
    if nullable:
        assert read(data, 0) == (None, len(data))
        return
    with pytest.raises(ValueError, match="null where a value must be"):
        read(data, 0)
    with pytest.raises(ValueError, match="None where a value must be"):
        written(write, None)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize(("kind", "prefix"), [("string", b"\x80\x00"), ("bytes", b"\x80\0\0\0")])
def test_negative_length_is_refused(kind: str, prefix: bytes, nullable: bool) -> None:
    read, _ = pair(kind, False, nullable)
    with pytest.raises(ValueError, match="length -"):
        read(prefix + bytes(10), 0)


def test_invalid_utf8_is_refused() -> None:
    read, _ = pair("string", True, False)
    with pytest.raises(UnicodeDecodeError):
        read(b"\x03\xff\xfe", 0)


def test_strings_have_a_limit_in_old_versions_only() -> None:
    assert len(written(pair("string", False, False)[1], "x" * 32767)) == 32769
    assert len(written(pair("string", True, False)[1], "x" * 40_000)) == 40_003
    with pytest.raises(ValueError, match="32768 bytes is too long"):
        written(pair("string", False, False)[1], "x" * 32768)


@every_form
def test_array_of_strings_comes_back_as_it_went(compact: bool, nullable: bool) -> None:
    read_item, write_item = pair("string", compact, False)
    read = primitives.array_reader(read_item, compact=compact, nullable=nullable)
    write = primitives.array_writer(write_item, compact=compact, nullable=nullable)
    for value in ((), ("a",), ("a",) * 300):
        data = written(write, value)
        assert read(data, 0) == (value, len(data))
    assert_null(read, write, nullable)


@every_form
@pytest.mark.parametrize("code", ["b", "h", "i", "q"])
def test_array_of_integers_comes_back_as_it_went(code: str, compact: bool, nullable: bool) -> None:
    read = primitives.int_array_reader(code, compact=compact, nullable=nullable)
    write = primitives.int_array_writer(code, compact=compact, nullable=nullable)
    for value in ((), (1,), (-1, 0, 1) * 100):
        data = written(write, value)
        assert read(data, 0) == (value, len(data))
    assert_null(read, write, nullable)


def assert_null(read: Reader, write: Writer, nullable: bool) -> None:
    if nullable:
        data = written(write, None)
        assert read(data, 0) == (None, len(data))
        return
    with pytest.raises(ValueError, match="None where a value must be"):
        written(write, None)
    with pytest.raises(ValueError, match=r"null where a value must be|length -1"):
        read(b"\xff\xff\xff\xff" if read(b"\0\0\0\0", 0)[1] == 4 else b"\0", 0)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (primitives.int_array_reader("i", compact=False, nullable=False), struct.pack(">i", 3) + bytes(11)),
        (primitives.int_array_reader("q", compact=True, nullable=False), b"\xff\xff\xff\xff\x0f" + bytes(80)),
        (primitives.int_array_reader("b", compact=False, nullable=True), struct.pack(">i", -2) + bytes(80)),
        (primitives.array_reader(primitives.compact_length, compact=False, nullable=False), struct.pack(">i", 2**31 - 1)),
        (primitives.array_reader(primitives.compact_length, compact=True, nullable=True), b"\xff\xff\xff\xff\x7f" + bytes(80)),
    ],
)
def test_array_longer_than_the_bytes_is_refused_before_it_is_made(read: Reader, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"length -?\d+ with \d+ bytes left"):
        read(data, 0)


def test_nullable_struct_has_a_marker() -> None:
    read = primitives.nullable_reader(primitives.read_varint)
    write = primitives.nullable_writer(primitives.write_varint)
    assert written(write, None) == b"\xff"
    assert written(write, 300) == b"\x01\xac\x02"
    assert read(b"\xff", 0) == (None, 1)
    assert read(b"\x01\xac\x02", 0) == (300, 3)


class Target:
    number = -1


TAGS = {1: ("number", primitives.read_varint)}


@pytest.mark.parametrize(
    ("data", "number"), [(b"\0", -1), (b"\x01\x01\x02\xac\x02", 300), (b"\x02\x01\x01\x05\x07\x02xx", 5), (b"\x01\x07\0", -1)]
)
def test_known_tags_are_taken_and_others_skipped(data: bytes, number: int) -> None:
    target = Target()
    assert primitives.read_tags(data + b"rest", 0, TAGS, target) == len(data)
    assert target.number == number


@pytest.mark.parametrize(
    "data", [b"\x01\x01\x01\xac\x02", b"\x01\x01\x03\xac\x02\0", b"\x01\x09\x7f", b"\x01\x09\xff\xff\xff\xff\x0f"]
)
def test_tag_of_another_size_than_announced_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"announced|bytes left"):
        primitives.read_tags(data, 0, TAGS, Target())


def test_tags_are_written_as_kio_writes_them() -> None:
    buffer = BytesIO()
    kio_writers.write_unsigned_varint(buffer, 1)  # type: ignore[arg-type] # kio has its own integer types
    kio_writers.write_tagged_field(buffer, 3, kio_writers.write_unsigned_varint, 300)  # type: ignore[arg-type] # likewise
    out = bytearray()
    primitives.write_tags([(3, primitives.write_varint, 300)], out)
    assert out == buffer.getvalue()
