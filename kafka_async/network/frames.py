"""Bytes of one connection cut into frames, without copying them.

Nothing is allocated for a length that was only announced: the buffer doubles while bytes really arrive (CVE-2026-10142: 2 GiB in
four bytes).

A frame is a big-endian int32 length and that many bytes. The socket writes at ``get_buffer()``, ``next_frame()`` hands out a
read-only view of the same memory, and the space is used again: a fresh buffer of several megabytes for each Fetch response costs
more in page faults than everything else together. So a frame is valid only until the next ``get_buffer()``.
"""

from struct import Struct
from typing import Final

from ..errors import FrameSizeError, SslAuthenticationError

PREFIX: Final = 4
_LENGTH: Final = Struct(">i")
SMALLEST_CAPACITY: Final = 64 * 1024
LARGEST_READ: Final = 1024 * 1024  # one read of the socket; bounds how long the event loop is held by one copy
_TIGHT: Final = 4096  # less room than this is not worth a system call

_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
_TLS_PORT: Final = "this is a TLS port, set security_protocol='SSL' or 'SASL_SSL'"

# The first bytes of protocols that answer on ports that people mistake for Kafka's.
_PEERS: Final = (
    (b"HTTP", "the server answered with HTTP; this is not a Kafka port"),
    (b"SSH-", "the server answered with SSH; this is not a Kafka port"),
    (b"\x15\x03", f"the server answered with a TLS alert; {_TLS_PORT}"),
    (b"\x16\x03", f"the server answered with a TLS handshake; {_TLS_PORT}"),
    (b"220 ", "the server answered like SMTP or FTP; this is not a Kafka port"),
    (b"<htm", "the server answered with HTML; this is not a Kafka port"),
    (b"<!DO", "the server answered with HTML; this is not a Kafka port"),
)


def describe_peer(head: bytes) -> str | None:
    """Return what the first bytes of an answer look like when they are another protocol's, else ``None``."""
    return next((text for prefix, text in _PEERS if head.startswith(prefix)), None)


class FrameBuffer:
    """The receive buffer of one connection."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Largest frame accepted, in bytes without the prefix. Small until the peer is known, see ``link.py``."""
        self._view = memoryview(bytearray(SMALLEST_CAPACITY))
        self._start = 0  # first byte that belongs to no frame handed out yet
        self._end = 0  # one past the last byte received
        self._recent = 0  # largest frame of late; fades with each frame, see _shrink

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._view)

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._end - self._start

    def get_buffer(self) -> memoryview:
        """Return where the next bytes go: writable, at least one byte. Ends the validity of frames handed out before."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._view) == SMALLEST_CAPACITY:
                return self._view  # nothing is kept, nothing is known of what comes, and there is nothing to give back
            self._shrink()
        needed = PREFIX + (self._announced() or 0)
        self._make_room(needed)
        capacity = len(self._view)
        # A large frame is read up to its very end, so that the next one starts at the front and nothing has to be moved.
        stop = self._start + needed if needed > SMALLEST_CAPACITY else capacity
        return self._view[self._end : min(stop, capacity, self._end + LARGEST_READ)]

    def buffer_updated(self, count: int) -> None:
        """Take note that ``count`` bytes were written into the buffer last handed out."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its prefix, or ``None``.

        Raises ``FrameSizeError`` for a length that is negative or above ``limit``, and ``SslAuthenticationError`` if the peer
        begins with TLS; the connection is then useless.
        """
        if self._end - self._start < PREFIX:
            return None
        size: int = _LENGTH.unpack_from(self._view, self._start)[0]
        if not 0 <= size <= self.limit:
            head = bytes(self._view[self._start : min(self._end, self._start + 16)])
            expected = f"frame length {size}: expected 0 to {self.limit}"
            peer = describe_peer(head)
            if peer and self._recent == 0 and head.startswith(_TLS_RECORDS):  # the first bytes; later ones are just corrupt
                raise SslAuthenticationError(peer)
            raise FrameSizeError(f"{peer} ({expected})" if peer else expected)
        begin = self._start + PREFIX
        if self._end - begin < size:
            return None
        self._start = begin + size
        self._recent = max(size + PREFIX, self._recent - self._recent // 32)
        return self._view[begin : self._start].toreadonly()

    def _announced(self) -> int | None:
        if self._end - self._start < PREFIX:
            return None
        size: int = _LENGTH.unpack_from(self._view, self._start)[0]
        return size

    def _make_room(self, needed: int) -> None:
        held = self._end - self._start
        if self._start and (self._start + needed > self.capacity or self.capacity - self._end < _TIGHT):
            self._move(self._view, held)
        if self._end == self.capacity:
            # Full, and the frame is not complete: this many bytes did arrive, so twice as many is a fair guess. The memory is
            # zeroed lazily by the system, so what is never received is never resident.
            self._move(memoryview(bytearray(2 * self.capacity)), held)

    def _move(self, target: memoryview, held: int) -> None:
        target[:held] = self._view[self._start : self._end]
        self._view, self._start, self._end = target, 0, held

    def _shrink(self) -> None:
        # Empty long polls alternate with large answers, so the size is given back only after many small frames.
        capacity = self.capacity
        while capacity > SMALLEST_CAPACITY and capacity > 4 * self._recent:
            capacity //= 2
        if capacity < self.capacity:
            self._view = memoryview(bytearray(capacity))
