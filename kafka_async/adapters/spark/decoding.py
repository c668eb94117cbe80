"""What every format of values has in common: whole batches at once, the rest one by one, and what becomes of bad values.

Decides: which values a bulk decoder gets again in smaller pieces, and what a bad value leaves. Owns nothing: decoders are values
that travel to executors. Must never drop a value: it is decoded, or its bytes are in ``_corrupt``, or the read ends with an error
that says where it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import pyarrow as pa
from attrs import evolve, frozen

from ...errors import DeserializationError, KafkaConfigurationError
from .ddl import Fields, ddl

CORRUPT: Final = "_corrupt"
"""The column of the bytes of values that could not be decoded."""
FEW: Final = 64
"""A piece that bulk decoding refuses is halved down to this many values, which are then decoded one by one."""


class BadValueError(ValueError):
    """A value is not what the format or the schema says; the text says why, without the value."""


@frozen(kw_only=True)
class Piece:
    """Decoded values: an array for each column, and why some values are bad, by their place."""

    arrays: Sequence[Any]
    bad: Mapping[int, str] = {}


@frozen(kw_only=True)
class Decoder(ABC):
    """Makes columns of values. A subclass says how; this class sorts out what is bad."""

    columns: Fields
    permissive: bool = True
    """Bad values are null and their bytes are in ``_corrupt``; else the first ends the read."""
    prefix: str = ""
    """Stands before the name of each column."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Name and DDL type of the columns that stand in place of ``value``."""
        found = tuple((self.prefix + name, ddl(kind)) for name, kind in self.columns)
        return (*found, (CORRUPT, "BINARY")) if self.permissive else found

    def select(self, types: Mapping[str, Any]) -> Self:
        """Return a decoder of fewer columns: what is not decoded costs nothing, and its faults are not noticed.

        ``types``: name and Arrow type of the columns that are wanted. Names that are none of this decoder's are passed over. With
        ``_corrupt`` among them all columns stay, for whoever asked to leave out: what counts as bad does not depend on which others
        are wanted. Raises ``KafkaConfigurationError`` for a column that has another type.
        """
        kept = []
        for name, kind in self.columns:
            if (wanted := types.get(self.prefix + name)) is not None:
                if wanted != kind:
                    raise KafkaConfigurationError(f"schema: column {self.prefix + name} is {ddl(kind)}, not {wanted}")
                kept.append((name, kind))
        if self.permissive and CORRUPT in types:
            if types[CORRUPT] != pa.binary():
                raise KafkaConfigurationError(f"schema: column {CORRUPT} is BINARY, not {types[CORRUPT]}")
            return self
        return evolve(self, columns=tuple(kept))

    def decode(self, values: Any, *, topic: str, partition: int, offsets: Any) -> list[Any]:
        """Return one array per field for a ``pyarrow.BinaryArray``; ``offsets`` is an int64 array of the same length.

        A null value is null in every column. Raises ``DeserializationError`` with topic, partition and offset for the first bad
        value unless the decoder is permissive.
        """
        parts: list[list[Any]] = [[] for _ in self.fields]
        start = 0
        for piece, count in self._pieces(values):
            if piece.bad and not self.permissive:
                first = min(piece.bad)
                where = f"{topic}-{partition}, offset {offsets[start + first].as_py()}"
                raise DeserializationError(f"{where}: the value cannot be decoded: {piece.bad[first]}")
            arrays = [*piece.arrays, _corrupt(values, start, count, piece.bad)] if self.permissive else piece.arrays
            for part, array in zip(parts, arrays, strict=True):
                part.append(array)
            start += count
        return [part[0] if len(part) == 1 else pa.concat_arrays(part) for part in parts]

    def _pieces(self, values: Any) -> Iterator[tuple[Piece, int]]:
        """Yield the values decoded, in order, in as few pieces as their faults allow."""
        count = len(values)
        arrays = self.bulk(values)
        if arrays is not None:
            yield Piece(arrays=arrays), count
        elif count <= FEW or not self.has_bulk:
            yield self.each(values.to_pylist()), count
        else:
            yield from self._pieces(values.slice(0, count // 2))
            yield from self._pieces(values.slice(count // 2))

    @property
    @abstractmethod
    def has_bulk(self) -> bool:
        """Whether ``bulk`` can do anything with these columns."""

    @abstractmethod
    def bulk(self, values: Any) -> list[Any] | None:
        """Return the columns, or ``None`` where any value needs a closer look."""

    @abstractmethod
    def each(self, values: list[bytes | None]) -> Piece:
        """Return the values decoded one by one."""


def one_of(options: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """Return the value of an option; the first of ``words`` where it is not given. Raises ``KafkaConfigurationError``."""
    word = options.get(name, words[0]).strip().lower()
    if word not in words:
        raise KafkaConfigurationError(f"{name}={options[name]!r}: expected {' or '.join(words)}")
    return word


def _corrupt(values: Any, start: int, count: int, bad: Mapping[int, str]) -> Any:
    if not bad:
        return pa.nulls(count, pa.binary())
    return pa.array([values[start + place].as_py() if place in bad else None for place in range(count)], pa.binary())
