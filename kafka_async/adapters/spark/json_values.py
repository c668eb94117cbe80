"""JSON values to columns (``value.format=json``).

Decides: what Arrow's JSON reader may decide alone, and which types it gets for those of the schema. Owns nothing. Must never make
a Python object of a record that is as it should be.

All values of a batch are read as one text, ``{"r":<value>}`` on a line each. A string cannot hold a raw newline, and no object
can begin behind another within one: so every join ends a row whatever the values are, each value makes at least one row, and as
many rows as values means one each. Arrow refuses what it cannot convert, names that come twice, and bytes that are no UTF-8; such
a piece is halved, and a small one goes to ``json_records``, which knows what Spark's ``from_json`` makes of it. Where Arrow would
accept more than ``from_json`` does, or something else, the type is read as a text and cast (dates), or checked (decimals).
"""

from datetime import UTC, tzinfo
from struct import Struct
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from attrs import field, frozen

from ...application.arrow import plain_array
from .ddl import TIMESTAMP, TIMESTAMP_NTZ
from .decoding import Decoder, Piece
from .json_records import RecordReader

_TWO_INT32: Final = Struct("=ii")
_JOIN: Final = b'}\n{"r":'


@frozen(kw_only=True)
class JsonDecoder(Decoder):
    """JSON objects with known fields; others are passed over."""

    zone: tzinfo = field(default=UTC)
    """The zone of times that have none of their own."""

    @property
    def has_bulk(self) -> bool:
        """Whether Arrow's reader knows every type."""
        return self.raw_type() is not None

    def raw_type(self) -> Any:
        """Return the type that Arrow's reader gets for a row; ``None`` where it cannot read one of the columns."""
        return _raw(pa.struct(list(self.columns)), self.zone)

    def bulk(self, values: Any) -> list[Any] | None:
        """Return the columns where every value is plainly valid."""
        raw = self.raw_type()
        if raw is None or not self.columns or not len(values):
            return None
        try:
            rows = _read(values, raw)
            if rows is None:
                return None
            return [_cast(array, kind) for array, (_, kind) in zip(rows.flatten(), self.columns, strict=True)]
        except (pa.ArrowException, UnicodeDecodeError):
            return None

    def each(self, values: list[bytes | None]) -> Piece:
        """Return the values read one by one, as ``from_json`` reads them."""
        reader = RecordReader(self.columns, self.zone)
        rows, bad = [], {}
        for place, value in enumerate(values):
            row, problem = reader.read(value)
            rows.append(row)
            if problem is not None:
                bad[place] = problem
        arrays = [pa.array([row[i] for row in rows], kind) for i, (_, kind) in enumerate(self.columns)]
        return Piece(arrays=arrays, bad=bad)


def _read(values: Any, raw: Any) -> Any:
    """Return an array of rows; ``None`` where there are not as many as values, or more nulls. Raises ``ArrowInvalid``."""
    values.cast(pa.string())  # raises for what is no UTF-8, and copies nothing
    if nulls := values.null_count:
        values = pc.fill_null(values, b"null")
    edge = pa.repeat(pa.scalar(b"", pa.binary()), 1)  # not at import: pyarrow then imports pandas, on the driver for nothing
    edged = pa.concat_arrays([edge, values, edge])
    one_list = pa.ListArray.from_arrays(plain_array(pa.int32(), 2, _TWO_INT32.pack(0, len(edged))), edged)
    whole = pc.binary_join(one_list, _JOIN)[0].as_buffer()
    # The first value is empty, and so is the last: what is left of their joins goes.
    text = whole.slice(2, whole.size - 2 - (len(_JOIN) - 1))
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),  # one block, so that no row is cut
        parse_options=pj.ParseOptions(explicit_schema=pa.schema([("r", raw)]), unexpected_field_behavior="ignore"),
    )
    rows = table.column("r")
    if len(rows) != len(values) or rows.num_chunks != 1 or rows.null_count != nulls:
        return None
    return rows.chunk(0)


def _raw(kind: Any, zone: tzinfo) -> Any:
    """Return the type to read a column with, before it is cast to ``kind``."""
    if pa.types.is_struct(kind):
        parts = [(part.name, _raw(part.type, zone)) for part in kind]
        return None if any(raw is None for _, raw in parts) else pa.struct(parts)
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return None  # there is no conversion to maps, and none from base64
    if pa.types.is_list(kind):
        raw = _raw(kind.value_type, zone)
        return None if raw is None else pa.list_(pa.field("element", raw))
    # Arrow reads a number as a date, and drops the zone of a time that should have none.
    if pa.types.is_date(kind) or kind == TIMESTAMP_NTZ or (kind == TIMESTAMP and zone is not UTC):
        return pa.string()
    return kind


def _cast(array: Any, kind: Any) -> Any:
    if array.type != kind:
        array = array.cast(kind)
    if _has_decimal(kind):
        array.validate(full=True)  # the reader checks the scale of a decimal and not its precision
    return array


def _has_decimal(kind: Any) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimal(kind.field(i).type) for i in range(kind.num_fields))
