"""Decompression with a bound, and compression for what a consumer sends (telemetry, KIP-714).

The output size comes from the format where it declares one, or from a walk over its blocks, each of which has a largest size; then
the library writes into a buffer of that size. Formats: RFC 1952 (gzip), RFC 8878 (zstd), the LZ4 frame format 1.6.3, snappy's
``format_description.txt`` and the chunked framing of snappy-java. The wrong
checksum that LZ4 headers had in format 0 (KIP-57) is not read: such a batch is corrupt.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Final

import cramjam

from ..errors import CorruptRecordException
from .header import unsupported_codec

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

Bytes = bytes | bytearray | memoryview

_GZIP_PIECE: Final = 4 << 20
_GZIP_WINDOW: Final = 512
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_XERIAL_VERSIONS: Final = b"\0\0\0\1\0\0\0\1"  # of the format, and the oldest that can read it
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_SIZES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_SIZE: Final = 128 << 10
_SKIPPABLE_MAGIC: Final = 0x184D2A50

# The most that one compressed byte can stand for. What declares more is lying, and gets no memory.
_GZIP_RATIO: Final = 1032
_SNAPPY_RATIO: Final = 64
_LZ4_RATIO: Final = 255


def decompress(codec: int, data: memoryview, limit: int, magic: int = 2) -> Bytes:
    """Return the decompressed bytes of ``data``; at most ``limit`` bytes are ever allocated for them.

    Raises ``CorruptRecordException`` if the data is broken or would be larger, and ``UnsupportedCodecError`` for a codec that
    the format ``magic`` does not have.
    """
    if codec not in (GZIP, SNAPPY, LZ4, ZSTD) or (codec == ZSTD and magic < 2):
        raise unsupported_codec(codec)
    try:
        if codec == GZIP:
            return _gunzip(data, limit)
        if codec == SNAPPY:
            return _unsnappy(data, limit)
        if codec == LZ4:
            bound = min(_bound(data, "lz4", _LZ4_MAGIC, _lz4_frame), len(data) * _LZ4_RATIO)
            return _into(cramjam.lz4.decompress_into, data, bound, limit)
        return _into(cramjam.zstd.decompress_into, data, _bound(data, "zstd", _ZSTD_MAGIC, _zstd_frame), limit)
    except (IndexError, zlib.error, cramjam.DecompressionError) as error:
        name = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}[codec]
        raise CorruptRecordException(f"the {name} data of the batch is broken: {error}") from error


def compress(codec: int, data: bytes) -> bytes:
    """Return ``data`` as Java's streams of ``codec`` read it: snappy in one chunk of snappy-java, LZ4 in blocks of their own.

    Raises ``UnsupportedCodecError`` for a number that is none of the four.
    """
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return _XERIAL_MAGIC + _XERIAL_VERSIONS + len(block).to_bytes(4, "big") + block
    if codec == LZ4:
        compressor = cramjam.lz4.Compressor(block_linked=False)  # Kafka's reader refuses blocks that refer to the one before
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    raise unsupported_codec(codec)


def _too_large(limit: int) -> CorruptRecordException:
    return CorruptRecordException(f"the batch decompresses to more than max_decompressed_bytes={limit}")


def _into(function: Callable[[Bytes, bytearray], int], data: Bytes, bound: int, limit: int) -> Bytes:
    """Decompress ``data``, which cannot become more than ``bound`` bytes, into a buffer of at most ``limit``."""
    output = bytearray(min(bound, limit))
    try:
        size = function(data, output)
    except cramjam.DecompressionError as error:
        if bound > limit:
            text = f"the batch decompresses to more than max_decompressed_bytes={limit}, or is broken: {error}"
            raise CorruptRecordException(text) from error
        raise
    del output[size:]  # the bound may be many times the size, and views (Arrow's) keep the whole output
    return output


def _gunzip(data: memoryview, limit: int) -> Bytes:
    """The last four bytes are the size of the last member modulo 2**32: as a rule the whole truth, and checked by the outcome."""
    declared = int.from_bytes(data[-4:], "little")
    if declared <= len(data) * _GZIP_RATIO:
        if declared > limit:
            raise _too_large(limit)
        output = bytearray(declared)
        try:
            if cramjam.gzip.decompress_into(data, output) == declared:
                return output
        except cramjam.DecompressionError:
            pass  # several members, or broken: the slower way below finds out
    return _gunzip_members(data, limit)


def _gunzip_members(data: memoryview, limit: int) -> Bytes:
    """Feed each member a window of the data that grows while it lasts: zlib copies whatever it is given beyond a member's end."""
    output = bytearray()
    place = 0
    while place < len(data):
        member = zlib.decompressobj(wbits=31)
        window = _GZIP_WINDOW
        while not member.eof:
            given = data[place : place + window]
            piece = member.decompress(given, min(_GZIP_PIECE, limit - len(output) + 1))
            used = len(given) - len(member.unused_data if member.eof else member.unconsumed_tail)
            if not piece and not used and not member.eof:
                raise zlib.error("the stream ends before its end mark")
            output += piece
            if len(output) > limit:
                raise _too_large(limit)
            place += used
            window = min(2 * window, _GZIP_PIECE)
    return output


def _unsnappy(data: memoryview, limit: int) -> Bytes:
    """Go through the chunks twice: a list of them, which can be empty, would take many times the memory of the data."""
    framed = bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    total = sum(map(_snappy_size, _xerial_chunks(data))) if framed else _snappy_size(data)
    if total > limit:
        raise _too_large(limit)
    output = bytearray(total)
    view = memoryview(output)
    place = 0
    for chunk in _xerial_chunks(data) if framed else (data,):
        size = _snappy_size(chunk)
        if size:
            cramjam.snappy.decompress_raw_into(chunk, view[place : place + size])
        place += size
    return output


def _xerial_chunks(data: memoryview) -> Iterator[memoryview]:
    place = _XERIAL_HEADER
    if len(data) < place:
        raise IndexError("the header of the chunks is cut off")
    while place < len(data):
        start = place + 4
        place = start + int.from_bytes(data[place:start], "big")
        if start > len(data) or place > len(data):
            raise IndexError("a chunk goes past the end")
        yield data[start:place]


def _snappy_size(chunk: memoryview) -> int:
    size = 0
    for index in range(5):
        size |= (chunk[index] & 0x7F) << (7 * index)
        if chunk[index] < 0x80:
            break
    if size > len(chunk) * _SNAPPY_RATIO:
        raise IndexError(f"{len(chunk)} bytes cannot hold the {size} that they declare")
    return size


def _bound(data: memoryview, name: str, magic: int, frame: Callable[[memoryview, int], tuple[int, int]]) -> int:
    """Add up the largest size of every frame. ``frame``: returns that of the one whose magic ends at a place, and its end."""
    bound = place = 0
    while place < len(data):
        found = _little(data, place, 4)
        if found & ~0xF == _SKIPPABLE_MAGIC:
            place += 8 + _little(data, place + 4, 4)
            continue
        if found != magic:
            raise IndexError(f"there is no {name} frame where one should begin")
        size, place = frame(data, place + 4)
        bound += size
    return bound


def _lz4_frame(data: memoryview, place: int) -> tuple[int, int]:
    """The largest size is that of all blocks."""
    bound, flags, block_size = 0, data[place], _LZ4_BLOCK_SIZES.get(data[place + 1] >> 4 & 7, 0)
    place += 3 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while size := _little(data, place, 4):
        place += 4 + (size & 0x7FFFFFFF) + (4 if flags & 0x10 else 0)
        bound += block_size
    return bound, place + 4 + (4 if flags & 0x04 else 0)


def _zstd_frame(data: memoryview, place: int) -> tuple[int, int]:
    """The largest size is the one that is declared, or else that of all blocks."""
    descriptor = data[place]
    single = bool(descriptor & 0x20)
    content_field = (int(single), 2, 4, 8)[descriptor >> 6]
    place += 1 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    declared = _little(data, place, content_field) + (256 if content_field == 2 else 0)
    blocks, place = _zstd_blocks(data, place + content_field)
    return declared if content_field else blocks, place + (4 if descriptor & 0x04 else 0)


def _zstd_blocks(data: memoryview, place: int) -> tuple[int, int]:
    bound = 0
    last = 0
    while not last:
        block = _little(data, place, 3)
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        bound += _ZSTD_BLOCK_SIZE if kind == 2 else size
        place += 3 + (1 if kind == 1 else size)
    return bound, place


def _little(data: memoryview, place: int, size: int) -> int:
    if place + size > len(data):
        raise IndexError("it ends inside a frame")
    return int.from_bytes(data[place : place + size], "little")
