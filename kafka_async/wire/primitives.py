"""Kafka's primitive types, read from and written to bytes.

A length is compared with the bytes at hand before anything is made, so that no message allocates more than they justify.

Reading happens on attacker-controlled bytes. Running off the end raises ``IndexError`` or ``struct.error``; a slice that is cut
short raises nothing, but leaves the offset beyond the end, where the next read or the final comparison with the length fails.
That is why no reader may ever move the offset backwards: negative lengths are refused.

Sources: the protocol guide's "Protocol Primitive Types", KIP-482 (compact types, tags), KIP-893 (nullable structs).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct, unpack_from
from struct import pack as pack_values
from typing import Any, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview
Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
"""Takes bytes and an offset; returns a value and the offset after it."""
Writer: TypeAlias = Callable[[Any, bytearray], None]
"""Takes a value and appends it to bytes."""

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
NO_UUID = bytes(16)
"""Stands for no id."""
_ITEM_SIZES = {"b": 1, "h": 2, "i": 4, "q": 8}


@lru_cache(maxsize=8192)
def to_uuid(data: bytes) -> UUID | None:
    """Return the id in 16 bytes; all zeros mean none. Cached: the same topic ids come back in every response."""
    return None if data == NO_UUID else UUID(bytes=data)


def read_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes (``ByteUtils.readUnsignedVarint``)."""
    result = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, offset
    raise ValueError(f"a varint is longer than 5 bytes at offset {offset - 5}")


def write_varint(value: int, out: bytearray) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def compact_length(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Read a compact length: the varint minus one, so that -1 is null."""
    length = buffer[offset]
    if length < 0x80:
        return length - 1, offset + 1
    more = buffer[offset + 1]
    if more < 0x80:  # a small batch of records
        return (length & 0x7F | more << 7) - 1, offset + 2
    length, offset = read_varint(buffer, offset)
    return length - 1, offset


def _int16_length(buffer: Buffer, offset: int) -> tuple[int, int]:
    length: int = INT16.unpack_from(buffer, offset)[0]
    return length, offset + 2


def _int32_length(buffer: Buffer, offset: int) -> tuple[int, int]:
    length: int = INT32.unpack_from(buffer, offset)[0]
    return length, offset + 4


def write_compact_length(length: int, out: bytearray) -> None:
    """Append a compact length: the varint plus one."""
    if length < 0x7F:
        out.append(length + 1)  # nearly always
    else:
        write_varint(length + 1, out)


def _write_int16_length(length: int, out: bytearray) -> None:
    if length > 0x7FFF:
        raise ValueError(f"a string of {length} bytes is too long for this version (32767)")
    out += INT16.pack(length)


def _write_int32_length(length: int, out: bytearray) -> None:
    out += INT32.pack(length)


def _refuse_length(length: int, buffer: Buffer, offset: int) -> None:
    if length == -1:
        raise ValueError(f"null where a value must be, before offset {offset}")
    raise ValueError(f"length {length} with {len(buffer) - offset} bytes left at offset {offset}")


def string_reader(*, compact: bool, nullable: bool) -> Reader:
    """Return the reader of a UTF-8 string."""
    read_length = compact_length if compact else _int16_length

    def read_string(buffer: Buffer, offset: int) -> tuple[str | None, int]:
        length, offset = read_length(buffer, offset)
        if length < 0:
            if length == -1 and nullable:
                return None, offset
            _refuse_length(length, buffer, offset)
        end = offset + length
        return str(buffer[offset:end], "utf-8"), end

    return read_string


def bytes_reader(*, compact: bool, nullable: bool) -> Reader:
    """Return the reader of a byte string; the bytes are copied once, out of the receive buffer."""
    read_length = compact_length if compact else _int32_length

    def read_bytes(buffer: Buffer, offset: int) -> tuple[bytes | None, int]:
        length, offset = read_length(buffer, offset)
        if length < 0:
            if length == -1 and nullable:
                return None, offset
            _refuse_length(length, buffer, offset)
        end = offset + length
        return bytes(buffer[offset:end]), end

    return read_bytes


def string_writer(*, compact: bool, nullable: bool) -> Writer:
    """Return the writer of a UTF-8 string."""
    write_length = write_compact_length if compact else _write_int16_length

    def write_string(value: str | None, out: bytearray) -> None:
        if value is None:
            _write_null(write_length, out, nullable)
            return
        data = value.encode()
        write_length(len(data), out)
        out += data

    return write_string


def bytes_writer(*, compact: bool, nullable: bool) -> Writer:
    """Return the writer of a byte string."""
    write_length = write_compact_length if compact else _write_int32_length

    def write_bytes(value: bytes | None, out: bytearray) -> None:
        if value is None:
            _write_null(write_length, out, nullable)
            return
        write_length(len(value), out)
        out += value

    return write_bytes


def _write_null(write_length: Callable[[int, bytearray], None], out: bytearray, nullable: bool) -> None:
    if not nullable:
        raise ValueError("None where a value must be")
    write_length(-1, out)


def _array_length(buffer: Buffer, offset: int, compact: bool, nullable: bool, item_size: int) -> tuple[int, int]:
    """Read the length of an array; every item takes at least ``item_size`` bytes, so a length beyond that is a lie."""
    length, offset = compact_length(buffer, offset) if compact else _int32_length(buffer, offset)
    if length == -1 and nullable:
        return length, offset
    if not 0 <= length * item_size <= len(buffer) - offset:
        _refuse_length(length, buffer, offset)
    return length, offset


def array_reader(read_item: Reader, *, compact: bool, nullable: bool) -> Reader:
    """Return the reader of an array of strings or structs, as a tuple."""

    def read_array(buffer: Buffer, offset: int) -> tuple[tuple[Any, ...] | None, int]:
        length, offset = _array_length(buffer, offset, compact, nullable, 1)
        if length < 1:
            return (None if length else ()), offset
        items = []
        for _ in range(length):
            item, offset = read_item(buffer, offset)
            items.append(item)
        return tuple(items), offset

    return read_array


def int_array_reader(code: str, *, compact: bool, nullable: bool) -> Reader:
    """Return the reader of an array of integers, given their ``struct`` code, as a tuple."""
    size = _ITEM_SIZES[code]

    def read_ints(buffer: Buffer, offset: int) -> tuple[tuple[int, ...] | None, int]:
        length, offset = _array_length(buffer, offset, compact, nullable, size)
        if length < 1:
            return (None if length else ()), offset
        return unpack_from(f">{length}{code}", buffer, offset), offset + length * size

    return read_ints


def array_writer(write_item: Writer, *, compact: bool, nullable: bool) -> Writer:
    """Return the writer of an array of strings or structs."""
    write_length = write_compact_length if compact else _write_int32_length

    def write_array(value: tuple[Any, ...] | None, out: bytearray) -> None:
        if value is None:
            _write_null(write_length, out, nullable)
            return
        write_length(len(value), out)
        for item in value:
            write_item(item, out)

    return write_array


def int_array_writer(code: str, *, compact: bool, nullable: bool) -> Writer:
    """Return the writer of an array of integers, given their ``struct`` code."""
    write_length = write_compact_length if compact else _write_int32_length

    def write_ints(value: tuple[int, ...] | None, out: bytearray) -> None:
        if value is None:
            _write_null(write_length, out, nullable)
            return
        write_length(len(value), out)
        out += pack_values(f">{len(value)}{code}", *value)

    return write_ints


def nullable_reader(read_value: Reader) -> Reader:
    """Return the reader of a struct that may be null: a byte -1 for null, 1 before a value (KIP-893)."""

    def read_nullable(buffer: Buffer, offset: int) -> tuple[Any, int]:
        marker = INT8.unpack_from(buffer, offset)[0]
        return (None, offset + 1) if marker < 0 else read_value(buffer, offset + 1)

    return read_nullable


def nullable_writer(write_value: Writer) -> Writer:
    """Return the writer of a struct that may be null (KIP-893)."""

    def write_nullable(value: Any, out: bytearray) -> None:
        if value is None:
            out += INT8.pack(-1)
            return
        out += INT8.pack(1)
        write_value(value, out)

    return write_nullable


def read_tags(buffer: Buffer, offset: int, readers: Mapping[int, tuple[str, Reader]], into: object) -> int:
    """Read a tag buffer (KIP-482): known tags become attributes of ``into``, others are skipped. Returns the offset after it."""
    count, offset = read_varint(buffer, offset)
    for _ in range(count):
        tag, offset = read_varint(buffer, offset)
        size, offset = read_varint(buffer, offset)
        end = offset + size
        if end > len(buffer):
            _refuse_length(size, buffer, offset)
        known = readers.get(tag)
        if known is not None:
            name, read_value = known
            value, offset = read_value(buffer, offset)
            if offset != end:
                raise ValueError(f"tag {tag} announced {size} bytes and took {size + offset - end}")
            setattr(into, name, value)
        offset = end
    return offset


def write_tags(values: list[tuple[int, Writer, Any]], out: bytearray) -> None:
    """Append a tag buffer; ``values`` are in the order of their tags."""
    write_varint(len(values), out)
    for tag, write_value, value in values:
        data = bytearray()
        write_value(value, data)
        write_varint(tag, out)
        write_varint(len(data), out)
        out += data
