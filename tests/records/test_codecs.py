import gzip
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import CorruptRecordException, UnsupportedCodecError
from kafka_async.records import codecs
from kafka_async.records.codecs import GZIP, LZ4, SNAPPY, ZSTD, decompress
from tests.strategies import compress, mutated, xerial

CODECS = [
    pytest.param(GZIP, id="gzip"),
    pytest.param(SNAPPY, id="snappy"),
    pytest.param(LZ4, id="lz4"),
    pytest.param(ZSTD, id="zstd"),
]
LIMIT = 2**20
TEXT = b"".join(b"%d:" % i for i in range(60_000))


def unpack(codec: int, data: bytes, limit: int = LIMIT, magic: int = 2) -> bytes:
    return bytes(decompress(codec, memoryview(data), limit, magic))


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.one_of(st.binary(max_size=300), st.integers(0, 300_000).map(lambda size: TEXT[:size])))
def test_what_was_compressed_comes_back(codec: int, data: bytes) -> None:
    assert unpack(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.one_of(st.binary(max_size=300), st.integers(0, 300_000).map(lambda size: TEXT[:size])))
def test_what_we_compress_comes_back(codec: int, data: bytes) -> None:
    assert unpack(codec, codecs.compress(codec, data)) == data


def test_lz4_blocks_of_ours_stand_alone_because_java_reads_no_others() -> None:
    assert codecs.compress(LZ4, TEXT)[4] & 0x20


def test_a_codec_that_kafka_does_not_have_compresses_nothing() -> None:
    with pytest.raises(UnsupportedCodecError):
        codecs.compress(9, b"")


def test_raw_snappy_needs_no_chunks() -> None:
    assert unpack(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_chunks_may_be_empty_or_missing() -> None:
    assert unpack(SNAPPY, xerial(b"")) == b""
    assert unpack(SNAPPY, xerial(b"abc") + struct.pack(">i", 1) + b"\0") == b"abc"


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def test_several_members_or_frames_are_one_stream(codec: int) -> None:
    assert unpack(codec, compress(codec, b"one ") + compress(codec, TEXT)) == b"one " + TEXT


def test_a_gzip_member_that_declares_a_wrong_size_is_corrupt() -> None:
    member = gzip.compress(TEXT)
    with pytest.raises(CorruptRecordException, match="gzip data"):
        unpack(GZIP, member[:-4] + struct.pack("<I", 5))


def test_a_gzip_bomb_that_declares_a_small_size_is_refused() -> None:
    bomb = gzip.compress(bytes(8 * LIMIT))
    with pytest.raises(CorruptRecordException, match=f"max_decompressed_bytes={LIMIT}"):
        unpack(GZIP, bomb[:-4] + struct.pack("<I", 5))


def test_zstd_without_a_declared_size_is_bounded_by_its_blocks() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(TEXT)
    assert unpack(ZSTD, bytes(compressor.finish())) == TEXT


@pytest.mark.parametrize(("codec", "magic"), [(LZ4, 0x184D2A50), (ZSTD, 0x184D2A5F)], ids=["lz4", "zstd"])
def test_skippable_frames_are_skipped(codec: int, magic: int) -> None:
    skippable = struct.pack("<II", magic, 3) + b"abc"
    assert unpack(codec, skippable + compress(codec, b"data") + skippable) == b"data"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_lz4_header_with_a_wrong_checksum_is_corrupt(magic: int) -> None:
    """In format 0 too, where producers before 0.10 wrote such headers (KAFKA-3160): nothing that is alive sends them."""
    frame = compress(LZ4, TEXT)
    place = 6 + (8 if frame[4] & 0x08 else 0)
    with pytest.raises(CorruptRecordException, match="lz4 data"):
        unpack(LZ4, frame[:place] + bytes([frame[place] ^ 0x5A]) + frame[place + 1 :], magic=magic)


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (7, 2), (0, 2), (4, 0), (4, 1)])
def test_a_codec_that_the_format_does_not_have_is_unsupported(codec: int, magic: int) -> None:
    with pytest.raises(UnsupportedCodecError, match=f"codec {codec}; expected"):
        unpack(codec, b"", magic=magic)


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_refused_and_names_the_option(codec: int) -> None:
    data = bytes(LIMIT + 1)
    with pytest.raises(CorruptRecordException, match=f"max_decompressed_bytes={LIMIT}"):
        unpack(codec, compress(codec, data))
    assert unpack(codec, compress(codec, data[1:])) == data[1:]


def test_many_small_gzip_members_share_one_limit() -> None:
    with pytest.raises(CorruptRecordException, match="max_decompressed_bytes=1000"):
        unpack(GZIP, gzip.compress(bytes(300)) * 4, limit=1000)


@pytest.mark.slow
def test_gzip_members_of_any_size_follow_each_other() -> None:
    long, short = gzip.compress(bytes(range(256)) * 40_000), gzip.compress(TEXT)
    for data in (long + short, short + long, short + long + short):
        assert unpack(GZIP, data, limit=2**25) == gzip.decompress(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "data", "size"),
    [(GZIP, gzip.compress(b"a", 9) * 20_000, 20_000), (SNAPPY, xerial(b"") + b"\0\0\0\1\0" * 40_000, 0)],
    ids=["gzip", "snappy"],
)
def test_many_small_pieces_cost_no_more_than_their_bytes(codec: int, data: bytes, size: int) -> None:
    """Copying the rest for each gzip member made ten megabytes take minutes; a list of chunks took forty times their bytes."""
    tracemalloc.start()
    try:
        assert len(unpack(codec, data)) == size
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(data)


def test_a_snappy_size_that_its_bytes_cannot_hold_gets_no_memory() -> None:
    with pytest.raises(CorruptRecordException, match=r"snappy data .* cannot hold"):
        unpack(SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(20), limit=2**40)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_broken_data_gives_our_error_and_nothing_larger_than_the_limit(codec: int, data: st.DataObject) -> None:
    whole = compress(codec, TEXT[: data.draw(st.integers(0, 2000))])
    try:
        result = unpack(codec, data.draw(mutated(whole)), limit=10_000)
    except CorruptRecordException:
        return
    assert len(result) <= 10_000


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_ends_early_is_corrupt(codec: int) -> None:
    whole = compress(codec, TEXT)
    for size in (1, 3, 5, 9, 20, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CorruptRecordException):
            unpack(codec, whole[:size])
