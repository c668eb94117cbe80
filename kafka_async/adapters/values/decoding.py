"""The base of all formats of values: which columns there are, and how bad values are handled.

Decoders are values that travel to executors. No value is dropped: it is decoded, or its bytes are in ``_corrupt``, or the read ends
with an error that says where it is.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Self

import pyarrow as pa

from ...application.reading.arrow import array_of
from ...errors import DeserializationError
from ...model import TopicPartition
from ...values import evolve, frozen
from .ddl import Fields
from .names import VALUE

CORRUPT: Final = "_corrupt"
"""The column of the bytes of values that could not be decoded; ``_corrupt_key`` for keys."""
REASON: Final = "_corrupt_reason"
"""The column that says why, without showing the value; ``_corrupt_key_reason`` for keys."""


class BadValueError(ValueError):
    """A value is not what the format or the schema says; the text says why, without the value."""


@frozen(kw_only=True)
class Piece:
    """Decoded values: an array for each column, and why some values are bad, by their place."""

    arrays: Sequence[Any]
    bad: Mapping[int, str] = {}


@frozen(kw_only=True)
class ValueDecoder(ABC):
    """Makes columns of values. A subclass says how; this class sorts out what is bad."""

    columns: Fields
    permissive: bool = True
    """Bad values are null, their bytes are in ``_corrupt`` and why is in ``_corrupt_reason``; else the first ends the read."""
    prefix: str = ""
    """Prefix of each column's name."""
    part: str = VALUE
    """Which part of a record is decoded: ``value`` or ``key``."""

    @property
    def fields(self) -> Fields:
        """Name and Arrow type of the columns that stand in place of ``value``."""
        found = tuple((self.prefix + name, kind) for name, kind in self.columns)
        return (*found, *self.about_bad) if self.permissive else found

    @property
    def about_bad(self) -> Fields:
        """Name and Arrow type of the columns about what is bad."""
        corrupt, reason = (CORRUPT, REASON) if self.part == VALUE else (f"{CORRUPT}_{self.part}", f"{CORRUPT}_{self.part}_reason")
        return (corrupt, pa.binary()), (reason, pa.string())

    @property
    def id_header(self) -> str | None:
        """The header that ``decode`` wants of each record; ``None``: no header."""
        return None

    @property
    def kept(self) -> str:
        """The reader's schema, in words that ``keeping`` takes, if a stream has to keep it: what is newest changes."""
        return ""

    @property
    def version(self) -> int | None:
        """The version of the registry's schema that names the columns; ``None`` if none does, or one of each topic."""
        return None

    def keeping(self, kept: str) -> Self:
        """Return a decoder with the reader's schema that a checkpoint names, unless the user has chosen one.

        Raises ``KafkaConfigurationError`` if it has other columns.
        """
        return self

    def begin_reading(self) -> None:
        """The same records may come again: nothing that was counted of them counts any more."""
        return

    def select(self, names: Collection[str]) -> Self:
        """Return a decoder of fewer columns: others cost nothing, and their faults are not noticed.

        Names of other columns are ignored. With ``_corrupt`` or ``_corrupt_reason`` among the names, all columns stay, and the
        caller leaves the others out: what counts as bad does not depend on which other columns are wanted.
        """
        if self.permissive and any(name in names for name, _ in self.about_bad):
            return self
        return evolve(self, columns=tuple((name, kind) for name, kind in self.columns if self.prefix + name in names))

    def decode(self, values: Any, *, topic: str, partition: int, offsets: Any, ids: Any = None) -> list[Any]:
        """Return one array per field for a ``pyarrow.BinaryArray``; ``offsets`` is an int64 array of the same length.

        ``ids``: the header ``id_header`` of each record, as a binary array; null if a record has none. A null value is null in
        every column. Raises ``DeserializationError`` with topic, partition and offset for the first bad value unless the decoder is
        permissive.
        """
        piece = self.piece(values, ids, topic)
        if piece.bad and not self.permissive:
            first = min(piece.bad)
            where = f"{TopicPartition(topic, partition)}, offset {offsets[first].as_py()}"
            raise DeserializationError(f"{where}: the {self.part} cannot be decoded: {piece.bad[first]}")
        return [*piece.arrays, *bad_columns(values, piece.bad)] if self.permissive else list(piece.arrays)

    @abstractmethod
    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values of a ``pyarrow.BinaryArray`` decoded. What one of them means depends on none of the others."""


def bad_columns(values: Any, bad: Mapping[int, str]) -> list[Any]:
    """Return the columns ``_corrupt`` and ``_corrupt_reason``; ``bad``: why values are bad, by their place."""
    count = len(values)
    if not bad:
        return [pa.nulls(count, pa.binary()), pa.nulls(count, pa.string())]
    rows = array("i", bytes(4 * count))
    reasons = array("i", bytes(4 * count))
    there = bytearray(-(-count // 8))
    for number, place in enumerate(bad):
        rows[place], reasons[place] = place, number
        there[place >> 3] |= 1 << (place & 7)
    validity = pa.py_buffer(there)
    by_row, by_number = (pa.Array.from_buffers(pa.int32(), count, [validity, pa.py_buffer(each)]) for each in (rows, reasons))
    return [values.take(by_row), array_of(pa.string(), list(bad.values())).take(by_number)]
