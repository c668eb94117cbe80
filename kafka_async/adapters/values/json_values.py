"""JSON values to columns (``value.format=json``, with msgspec, which the extras ``spark`` and ``json`` bring).

The columns are the same whichever reader reads a value.

If every value of a batch is plainly valid, Arrow reads them at once (``json_bulk``). It refuses a whole batch for one value. Then a
large batch is read in pieces, and only the pieces that are refused by ``json_rows``, which takes four times as long and accepts
them. If most pieces are refused, the next batches go directly to ``json_rows``: twice as many after each further refusal, and at
most ``LONGEST_PAUSE``.
"""

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from math import inf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...application.reading.arrow import scalar_of
from ...values import define, field, frozen
from .ddl import Fields
from .decoding import Piece, ValueDecoder
from .json_bulk import raw_type, read_all
from .json_rows import RowReader

_FRAME: Final = 5
"""Bytes."""
KEPT: Final = 100
"""Schemas of which a process keeps what it compiled."""
LONGEST_PAUSE: Final = 31
"""Batches."""
PIECE_ROWS: Final = 1024
"""Values that are read again after one of a batch was refused."""
FEWEST_PIECES: Final = 4
"""A batch of fewer is read as a whole."""


@frozen(kw_only=True)
class JsonDecoder(ValueDecoder):
    """JSON objects with known fields; others are passed over."""

    zone: tzinfo = field(default=UTC)
    """The zone of times that have none of their own."""
    framed: bool = False
    """Whether a zero byte and the id of a JSON Schema in four may come before a value (Confluent's wire format)."""

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values as ``from_json`` reads them."""
        return _reader(self.columns, self.zone).read(unframed(values) if self.framed else values)


def unframed(values: Any) -> Any:
    """Return values without the zero byte and the id in front. JSON cannot begin with that byte: if there is none, the id is in a
    header, and the value is bare.
    """
    framed = pc.and_(pc.starts_with(values, "\0"), pc.greater_equal(pc.binary_length(values), scalar_of(pa.int32(), _FRAME)))
    if not pc.any(framed).as_py():
        return values
    # Not binary_slice: Arrow 26 fails at values of different lengths.
    return pc.if_else(framed, pc.binary_replace_slice(values, 0, _FRAME, b""), values)


@define(eq=False)
class JsonReader:
    """Reads batch after batch of values with some columns."""

    columns: Fields
    zone: tzinfo
    at_once: Callable[[Any, Fields, tzinfo], list[Any] | None] = read_all
    _rows: RowReader = field(init=False)
    _pause: float = field(init=False)
    """How many batches go by without Arrow's reader after a refusal."""
    _left: float = field(init=False)
    """How many of them are still to come."""

    def __attrs_post_init__(self) -> None:
        self._rows = RowReader(self.columns, self.zone)
        self._pause = 0
        self._left = 0 if raw_type(self.columns, self.zone) is not None else inf

    def read(self, values: Any) -> Piece:
        """Return the values of a ``pyarrow.BinaryArray``."""
        if self._left > 0:
            self._left -= 1
            return self._rows.piece(values.to_pylist())
        if (arrays := self.at_once(values, self.columns, self.zone)) is not None:
            self._pause = 0
            return Piece(arrays=arrays)
        if len(values) >= FEWEST_PIECES * PIECE_ROWS and (piece := self._in_pieces(values)) is not None:
            self._pause = 0
            return piece
        self._pause = self._left = min(2 * self._pause + 1, LONGEST_PAUSE)
        return self._rows.piece(values.to_pylist())

    def _in_pieces(self, values: Any) -> Piece | None:
        """Return the values read in pieces, most of them by Arrow; ``None`` if it refuses most of them."""
        parts = [values.slice(at, PIECE_ROWS) for at in range(0, len(values), PIECE_ROWS)]
        found: list[Sequence[Any] | None] = []
        refused = 0
        for part in parts:
            found.append(self.at_once(part, self.columns, self.zone))
            refused += found[-1] is None
            if 2 * refused > len(parts):
                return None
        bad: dict[int, str] = {}
        for number, part in enumerate(parts):
            if found[number] is None:
                piece = self._rows.piece(part.to_pylist())
                found[number] = piece.arrays
                bad |= {number * PIECE_ROWS + place: why for place, why in piece.bad.items()}
        return Piece(arrays=[pa.concat_arrays(each) for each in zip(*filter(None, found), strict=True)], bad=bad)


_reader = functools.lru_cache(maxsize=KEPT)(JsonReader)
