"""Bytes from a terminal as keys.

Pure: what comes in pieces is kept until the rest is there.
"""

from collections.abc import Iterator
from typing import Final

from attrs import define

ESCAPE: Final = "escape"
_SEQUENCES: Final = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOH": "home",
    b"\x1bOF": "end",
}
_SINGLE: Final = {b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace", b"\t": "tab"}
_LONGEST: Final = 16
"""Bytes; no key sends more."""


@define
class KeyReader:
    """Turns bytes into the names of keys; a character that can be printed is its own name."""

    _left: bytes = b""

    @property
    def waiting(self) -> bool:
        """Whether what came may go on: an escape by itself is one only if nothing follows."""
        return bool(self._left)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete."""
        self._left += data
        return list(self._keys())

    def flush(self) -> list[str]:
        """Return the keys in what was kept, now that nothing follows."""
        left, self._left = self._left, b""
        return [ESCAPE] if left == b"\x1b" else []

    def _keys(self) -> Iterator[str]:
        while self._left:
            if self._left.startswith(b"\x1b"):
                size = _length(self._left)
                if size is None:
                    return
                sequence, self._left = self._left[:size], self._left[size:]
                if sequence == b"\x1b":
                    yield ESCAPE
                elif sequence in _SEQUENCES:
                    yield _SEQUENCES[sequence]
                continue
            size = _width(self._left[0])
            if len(self._left) < size:
                return
            one, self._left = self._left[:size], self._left[size:]
            if one in _SINGLE:
                yield _SINGLE[one]
            elif (text := one.decode(errors="replace")).isprintable():
                yield text


def _length(data: bytes) -> int | None:
    """Return how long the sequence is that ``data`` begins with; ``None`` if it has not all come."""
    if len(data) == 1:
        return None
    if data[1:2] == b"O":
        return 3 if len(data) >= 3 else None
    if data[1:2] != b"[":
        return 1
    for place in range(2, min(len(data), _LONGEST)):
        if 0x40 <= data[place] <= 0x7E:
            return place + 1
    return None if len(data) < _LONGEST else 1


def _width(first: int) -> int:
    """Return how many bytes a character in UTF-8 has."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
