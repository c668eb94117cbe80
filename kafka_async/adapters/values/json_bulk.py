"""Whole batches of JSON values by Arrow's reader, where every value is plainly valid.

No Python object is made of a record.

All values of a batch are read as one text, a line each, with a field more at the beginning of each object: the mark, whose name no
value can know. A string cannot hold a raw newline, and no object can begin inside another one but as the value of a field or an
element: so if there are as many rows as values, each with the mark, then every row is one value, and no value holds more than one
object. Arrow refuses values that it cannot convert, names that appear twice, and bytes that are not UTF-8. If Arrow
would accept more than ``from_json`` does, or something else, the type is read as a string and cast (dates), or checked (decimals).
"""

import base64
import os
from datetime import UTC, date, tzinfo
from struct import Struct
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ...application.reading.arrow import plain_array, scalar_of
from .ddl import TIMESTAMP, TIMESTAMP_NTZ, Fields, list_type
from .json_records import BLANKS

_TWO_INT32: Final = Struct("=ii")
_MARK: Final = "\x7f" + base64.urlsafe_b64encode(os.urandom(3)).decode()
"""It is short, because Arrow compares it in every row, and begins with a character that no schema's names begin with."""
_NOTHING: Final = b'{"%s":true}' % _MARK.encode()
_BEGIN: Final = _NOTHING[:-1] + b","
_BLANK: Final = rf"\A[{BLANKS}]*\{{[{BLANKS}]*\}}[{BLANKS}]*\z"
_YEAR_1: Final = date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
"""Days from 1970-01-01 to the first day of the year 1."""
_DAY: Final = 86_400_000_000
"""Microseconds."""
_MINUS_ZERO: Final = {pa.float32(): (pa.int32(), -(1 << 31)), pa.float64(): (pa.int64(), -(1 << 63))}
"""The bits of minus zero as a whole number."""


def raw_type(columns: Fields, zone: tzinfo) -> Any:
    """Return the type that Arrow's reader gets for a row; ``None`` if it cannot read one of the columns."""
    return _raw(pa.struct(list(columns)), zone) if columns else None


def read_all(values: Any, columns: Fields, zone: tzinfo) -> list[Any] | None:
    """Return the columns; ``None`` if any value, or any type, needs a closer look."""
    raw = raw_type(columns, zone)
    if raw is None or not len(values):
        return None
    try:
        read = _read(values, raw)
        if read is None:
            return None
        arrays = [array.cast(kind) for array, (_, kind) in zip(read, columns, strict=True)]
        return None if any(map(_is_doubtful, arrays)) else arrays
    except (pa.ArrowException, UnicodeDecodeError):
        # Those without a field may be why: only "{}" itself is told from the others at once, which costs less.
        blank = pc.and_(pc.match_substring_regex(values, _BLANK), pc.not_equal(values, scalar_of(pa.binary(), b"{}")))
        return read_all(pc.if_else(blank, scalar_of(pa.binary(), b"{}"), values), columns, zone) if blank.true_count else None


def _read(values: Any, fields: Any) -> list[Any] | None:
    """Return the columns as they are read first; ``None`` if a value is other than one object. Raises ``ArrowInvalid``."""
    texts = values.cast(pa.string())  # raises for values that are not UTF-8, and copies nothing
    if not _all(pc.starts_with(values, "{")):
        values = pc.utf8_ltrim(texts, BLANKS).cast(pa.binary())
        if not _all(pc.starts_with(values, "{")):
            return None
    empty = pc.equal(values, scalar_of(pa.binary(), b"{}"))
    values = pc.binary_replace_slice(values, 0, 1, _BEGIN)
    if empty.true_count:
        values = pc.if_else(empty, scalar_of(pa.binary(), _NOTHING), values)
    if values.null_count:
        values = pc.fill_null(values, scalar_of(pa.binary(), _NOTHING))
    one_list = pa.ListArray.from_arrays(plain_array(pa.int32(), 2, _TWO_INT32.pack(0, len(values))), values)
    text = pc.binary_join(one_list, scalar_of(pa.binary(), b"\n"))[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),  # one block, so that no row is cut
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([(_MARK, pa.bool_()), *fields]), unexpected_field_behavior="ignore"
        ),
    )
    marks, *columns = table.columns
    if len(marks) != len(values) or marks.num_chunks != 1 or marks.null_count:
        return None
    return [column.chunk(0) for column in columns]


def _all(checked: Any) -> bool:
    """Return whether all are true, or null."""
    return pc.all(checked).as_py() is not False


def _raw(kind: Any, zone: tzinfo) -> Any:
    """Return the type to read a column with, before it is cast to ``kind``."""
    if pa.types.is_struct(kind):
        parts = [(part.name, _raw(part.type, zone)) for part in kind]
        return None if any(raw is None for _, raw in parts) else pa.struct(parts)
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return None  # there is no conversion to maps, and none from base64
    if pa.types.is_list(kind):
        raw = _raw(kind.value_type, zone)
        return None if raw is None else list_type(raw)
    if pa.types.is_decimal(kind):
        return pa.decimal256(kind.precision, kind.scale)  # 128 bits overflow without an error where digits are added for the scale
    if kind == pa.float32():
        return pa.float64()  # json_rows has no other floats; of one that is rounded twice the last bit may differ
    # Arrow reads a number as a date, and drops the zone of a time that should have none.
    if pa.types.is_date(kind) or kind == TIMESTAMP_NTZ or (kind == TIMESTAMP and zone is not UTC):
        return pa.string()
    return kind


def _is_doubtful(array: Any) -> bool:
    """Return whether something in a column may be other than Arrow reads it.

    That is a date before the year 1: the year 0 is none. And minus zero: ``-0`` is a whole number, which has no sign, and ``-0.0``
    is none.
    """
    kind = array.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        lowest = pc.min(array.view(pa.int32() if pa.types.is_date(kind) else pa.int64())).as_py()
        return lowest is not None and lowest < (_YEAR_1 if pa.types.is_date(kind) else _YEAR_1 * _DAY)
    if kind in _MINUS_ZERO:
        bits, zero = _MINUS_ZERO[kind]
        return pc.any(pc.equal(array.view(bits), scalar_of(bits, zero))).as_py() is True
    if pa.types.is_list(kind):
        return _is_doubtful(array.flatten())
    return pa.types.is_struct(kind) and any(_is_doubtful(part) for part in array.flatten())
