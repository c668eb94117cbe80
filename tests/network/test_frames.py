"""``kafka_async.network.frames``"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import FrameSizeError, SslAuthenticationError
from kafka_async.network.frames import SMALLEST_CAPACITY, FrameBuffer, describe_peer

MIB = 1024 * 1024


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def pour(buffer: FrameBuffer, data: bytes, chunk: int = 2**31) -> list[bytes]:
    """Feed ``data`` in pieces of at most ``chunk`` bytes and return the frames."""
    frames = []
    while data:
        view = buffer.get_buffer()
        count = min(chunk, len(view), len(data))
        view[:count] = data[:count]
        buffer.buffer_updated(count)
        data = data[count:]
        while (got := buffer.next_frame()) is not None:
            frames.append(bytes(got))
    return frames


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(0, 200_000), max_size=6),
    chunks=st.lists(st.integers(500, 100_000), min_size=1, max_size=20),
)
def test_any_chunking_gives_the_same_frames(sizes: list[int], chunks: list[int]) -> None:
    bodies = [bytes([size % 251]) * size for size in sizes]
    buffer = FrameBuffer(MIB)
    data = b"".join(map(frame, bodies))
    frames = []
    turn = 0
    while data:
        piece, data = data[: chunks[turn % len(chunks)]], data[chunks[turn % len(chunks)] :]
        frames += pour(buffer, piece)
        turn += 1
    assert frames == bodies
    assert buffer.pending == 0


def test_frames_arriving_byte_by_byte() -> None:
    assert pour(FrameBuffer(100), frame(b"abc") + frame(b"") + frame(b"defg"), chunk=1) == [b"abc", b"", b"defg"]


def test_frames_are_read_only_views_of_the_buffer() -> None:
    buffer = FrameBuffer(100)
    view = buffer.get_buffer()
    view[:5] = frame(b"x")
    buffer.buffer_updated(5)
    got = buffer.next_frame()
    assert isinstance(got, memoryview)
    assert got.readonly
    view[4:5] = b"y"
    assert bytes(got) == b"y"  # the same memory, nothing was copied


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_outside_the_limit_is_an_error_and_allocates_nothing(size: int) -> None:
    buffer = FrameBuffer(100)
    view = buffer.get_buffer()
    view[:4] = struct.pack(">i", size)
    buffer.buffer_updated(4)
    with pytest.raises(FrameSizeError, match=f"frame length {size}: expected 0 to 100"):
        buffer.next_frame()
    assert buffer.capacity == SMALLEST_CAPACITY


def test_memory_follows_the_bytes_that_arrive_not_the_length_announced() -> None:
    buffer = FrameBuffer(100 * MIB)
    assert pour(buffer, struct.pack(">i", 100 * MIB) + bytes(100_000)) == []
    assert buffer.capacity <= 4 * 100_000


def test_the_buffer_is_kept_for_large_frames_and_given_back_after_many_small_ones() -> None:
    buffer = FrameBuffer(100 * MIB)
    pour(buffer, frame(bytes(10 * MIB)))
    large = buffer.capacity
    assert large >= 10 * MIB
    for _ in range(10):
        pour(buffer, frame(bytes(100)))
    pour(buffer, frame(bytes(9 * MIB)))
    assert buffer.capacity == large
    for _ in range(1000):
        pour(buffer, frame(bytes(100)))
    assert buffer.capacity == SMALLEST_CAPACITY


def test_a_large_frame_is_read_to_its_end_only() -> None:
    buffer = FrameBuffer(100 * MIB)
    pour(buffer, struct.pack(">i", 300_000) + bytes(299_990))
    assert len(buffer.get_buffer()) == 10


def test_pending_counts_the_bytes_of_an_incomplete_frame() -> None:
    buffer = FrameBuffer(100)
    pour(buffer, frame(b"whole") + frame(b"half")[:6])
    assert buffer.pending == 6


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"220 mail.example.org ESMTP", "SMTP or FTP"),
    ],
)
def test_a_server_that_is_not_kafka_is_named(head: bytes, text: str) -> None:
    buffer = FrameBuffer(MIB)
    with pytest.raises(FrameSizeError, match=text):
        pour(buffer, head)


@pytest.mark.parametrize("head", [b"\x15\x03\x03\x00\x02\x02\x50", b"\x16\x03\x01\x02\x00\x01"])
def test_a_server_that_begins_with_tls_wants_another_security_protocol(head: bytes) -> None:
    with pytest.raises(SslAuthenticationError, match=r"this is a TLS port, set security_protocol='SSL'"):
        pour(FrameBuffer(MIB), head)


def test_bytes_that_look_like_tls_later_are_only_a_bad_length() -> None:
    buffer = FrameBuffer(MIB)
    with pytest.raises(FrameSizeError):
        pour(buffer, frame(b"an answer") + b"\x15\x03\x03\x00\x02")


def test_an_unknown_peer_is_not_named() -> None:
    assert describe_peer(b"\x00\x00\x00\x10") is None
