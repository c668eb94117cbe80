"""What is done beyond the committed offset, as text that travels in the commit's metadata.

Text that another program wrote is ignored.

``ka1.`` and base64url (without padding) of: the first four bytes of the SHA-256 of the topic's id, then run lengths as unsigned
varints. The runs start at the committed offset and alternate between not done and done; only the first may be empty, the last one
is done. Records after it are not done. The topic's id is included since a topic that is created again starts at offset 0, and the
old map would skip records.

A broker refuses more than ``offset.metadata.max.bytes`` (4096 by default). Runs that do not fit are left out of a commit, from the
end; the only consequence is that their records are handled again after a restart. Text that is kept elsewhere has all of them:
there a record that is handled again may count twice.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Final
from uuid import UUID

PREFIX: Final = "ka1."
LONGEST: Final = 4096
"""Characters: the broker's default for ``offset.metadata.max.bytes``."""
_TOPIC_BYTES: Final = 4
_MOST_BYTES: Final = (LONGEST - len(PREFIX)) * 3 // 4
ROOM: Final = _MOST_BYTES - _TOPIC_BYTES
"""Bytes that runs may take."""
_NO_ID: Final = UUID(int=0)


class DoneMap:
    """Offsets from the committed one on, some of which are done."""

    __slots__ = ("_bounds", "offset")

    def __init__(self, offset: int, runs: Iterable[int]) -> None:
        self.offset = offset
        self._bounds = list(accumulate(runs, initial=offset))[1:]

    @property
    def end(self) -> int:
        """The offset after the last one that is done."""
        return self._bounds[-1] if self._bounds else self.offset

    def __contains__(self, offset: int) -> bool:
        """Whether the record at ``offset`` is done. Offsets before the committed one are not known here."""
        return offset >= self.offset and bisect_right(self._bounds, offset) % 2 == 1 and offset < self.end

    def done_from(self, offset: int) -> list[tuple[int, int]]:
        """Return the runs of done offsets from ``offset`` on: the first offset of each, and the one after its last."""
        bounds = self._bounds
        return [(max(first, offset), end) for first, end in zip(bounds[::2], bounds[1::2], strict=True) if end > offset]

    def runs(self) -> list[int]:
        """Return the lengths of the runs: not done, done, not done, ..., done."""
        return [second - first for first, second in pairwise([self.offset, *self._bounds])]


def varint_size(value: int) -> int:
    """Return how many bytes a run of this length takes."""
    return max(1, (value.bit_length() + 6) // 7)


def _topic_tag(topic_id: UUID | None) -> bytes:
    return sha256((topic_id or _NO_ID).bytes).digest()[:_TOPIC_BYTES]


def encode(runs: Iterable[int], topic_id: UUID | None, *, fits: bool = True) -> str:
    """Return the metadata for run lengths (not done, done, ...), ``""`` if nothing is done; ``fits``: as many as a commit takes."""
    data = bytearray(_topic_tag(topic_id))
    ends = iter(runs)
    some = False
    for not_done in ends:
        pair = bytearray()
        for value in (not_done, next(ends)):
            while value >= 0x80:
                pair.append(value & 0x7F | 0x80)
                value >>= 7
            pair.append(value)
        if fits and len(data) + len(pair) > _MOST_BYTES:
            break
        data += pair
        some = True
    return PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode() if some else ""


def is_ours(metadata: str) -> bool:
    """Whether this version of this package wrote the text."""
    return metadata.startswith(PREFIX)


def decode(metadata: str, offset: int, topic_id: UUID | None, *, fits: bool = True) -> DoneMap | None:
    """Return what was done beyond the committed ``offset``; ``None`` for text that is not ours or about another topic.

    ``fits``: it was in a commit, so longer text is not ours.
    """
    if not is_ours(metadata) or not metadata.isascii() or (fits and len(metadata) > 2 * LONGEST):
        return None
    text = metadata[len(PREFIX) :]
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        return None
    if data[:_TOPIC_BYTES] != _topic_tag(topic_id):
        return None
    runs = _runs(data[_TOPIC_BYTES:])
    return DoneMap(offset, runs) if runs is not None else None


def _runs(data: bytes) -> list[int] | None:
    runs: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            runs.append(value)
            value = shift = 0
        elif shift > 63:
            return None
    return None if shift or len(runs) % 2 or not all(runs[1:]) else runs
