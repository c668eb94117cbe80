"""Columns as an Arrow record batch (extra ``arrow``).

Arrays wrap the buffers that the decoder filled, and keep them alive. Things are done once per run (a stretch of rows from one
partition) or once per column, never per record; header keys that are not UTF-8 are the one exception. ``pyarrow.array``,
``pyarrow.scalar``, and functions of ``pyarrow.compute`` with a plain value are not called: each of them imports pandas if it is
installed, which takes a second. ``array_of`` and ``scalar_of`` build the same from buffers.

Layout: the Arrow columnar format, https://arrow.apache.org/docs/format/Columnar.html.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Context, Decimal
from itertools import accumulate
from struct import Struct
from typing import Any, Final

from ...records import ALL_COLUMNS, BinaryColumn, Columns, HeadersColumn, ViewColumn

try:
    import pyarrow as pa
except ImportError as missing:
    raise ImportError(
        "Arrow record batches need pyarrow, which the extra 'arrow' brings: pip install '/path/to/clone[arrow]'"
    ) from missing

__all__ = ["ALL_COLUMNS", "SCHEMA", "VIEW_SCHEMA", "array_of", "check_views", "record_batch", "scalar_of"]

_HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", _HEADER, nullable=False)), nullable=False),
    ]
)
"""All columns, in order. A topic is a dictionary entry, since runs repeat it; a timestamp is null if a record has none (-1)."""

VIEW_SCHEMA: Final = pa.schema(
    [pa.field(field.name, pa.binary_view()) if field.name in ("key", "value") else field for field in SCHEMA]
)
"""The same with views of keys and values."""

_INT32: Final = Struct("=i")


def check_views() -> None:
    """Raise ``ImportError`` if pyarrow cannot wrap buffers as views (before 19; apache/arrow #44651)."""
    if not hasattr(pa.DataType, "has_variadic_buffers"):
        raise ImportError(f"view=True needs pyarrow 19 or later; installed is {pa.__version__}")


def record_batch(columns: Columns, names: Collection[str] = ALL_COLUMNS) -> pa.RecordBatch:
    """Return ``columns`` as a record batch, in the order of ``SCHEMA``, wrapping their buffers.

    Keys and values that were collected as views are views (``VIEW_SCHEMA``).
    Columns that were not collected are left out, and ``topic`` and ``partition`` if ``names`` lacks them. In header keys that
    are not UTF-8 the replacement character stands for the bytes that are wrong.
    """
    build: dict[str, Callable[[], Any]] = {"topic": lambda: _topics(columns), "partition": lambda: _partitions(columns)}
    if columns.offsets is not None:
        build["offset"] = lambda: plain_array(pa.int64(), columns.rows, columns.offsets)
    if columns.timestamps is not None:
        build["timestamp"] = lambda: _timestamps(columns.rows, columns.timestamps)
    if columns.timestamp_types is not None:
        build["timestamp_type"] = lambda: plain_array(pa.int8(), columns.rows, columns.timestamp_types)
    if (keys := columns.keys) is not None:
        build["key"] = lambda: binary_array(keys)
    if (values := columns.values) is not None:
        build["value"] = lambda: binary_array(values)
    if (key_views := columns.key_views) is not None:
        build["key"] = lambda: view_array(key_views)
    if (value_views := columns.value_views) is not None:
        build["value"] = lambda: view_array(value_views)
    if (headers := columns.headers) is not None:
        build["headers"] = lambda: _headers(columns.rows, headers)
    schema = SCHEMA if key_views is None and value_views is None else VIEW_SCHEMA
    fields = [field for field in schema if field.name in build and field.name in names]
    return pa.RecordBatch.from_arrays([build[field.name]() for field in fields], schema=pa.schema(fields))


def plain_array(kind: Any, length: int, data: Any) -> Any:
    """Return an array of numbers that wraps ``data``."""
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(data)])


def _repeated(runs: Iterable[tuple[int, int]]) -> bytes:
    """Return int32 values, each as often as its run is long."""
    return b"".join(_INT32.pack(value) * rows for value, rows in runs)


def _topics(columns: Columns) -> Any:
    codes: dict[str, int] = {}
    runs = [(codes.setdefault(topic, len(codes)), rows) for topic, _, rows in columns.runs]
    return pa.DictionaryArray.from_arrays(
        plain_array(pa.int32(), columns.rows, _repeated(runs)), array_of(pa.string(), list(codes))
    )


def _partitions(columns: Columns) -> Any:
    return plain_array(pa.int32(), columns.rows, _repeated((partition, rows) for _, partition, rows in columns.runs))


def _timestamps(length: int, data: Any) -> Any:
    import pyarrow.compute as pc  # makes a Python function of each of Arrow's, 30 ms: not every reader has use for one

    numbers = plain_array(pa.int64(), length, data)
    if length and pc.min(numbers).as_py() < 0:
        numbers = pc.if_else(pc.less(numbers, scalar_of(pa.int64(), 0)), pa.nulls(1, pa.int64())[0], numbers)
    return numbers.view(pa.timestamp("ms", tz="UTC"))


def binary_array(column: BinaryColumn) -> Any:
    """Return a column of byte strings as an array that wraps its buffers."""
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), column.length, buffers, column.nulls)


def view_array(column: ViewColumn) -> Any:
    """Return a column of views as an array that wraps its buffers and what they refer to."""
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.views), *map(pa.py_buffer, column.sources)]
    return pa.Array.from_buffers(pa.binary_view(), column.length, buffers, column.nulls)


def _headers(length: int, column: HeadersColumn) -> Any:
    entries = pa.StructArray.from_arrays([text_array(binary_array(column.keys)), binary_array(column.values)], fields=list(_HEADER))
    return pa.Array.from_buffers(SCHEMA.field("headers").type, length, [None, pa.py_buffer(column.offsets)], children=[entries])


def text_array(entries: Any) -> Any:
    """Return byte strings as text; bytes that are not UTF-8 become the replacement character."""
    try:
        return entries.cast(pa.string())  # checks each entry and copies none
    except pa.ArrowInvalid:
        return array_of(pa.string(), [entry.as_py().decode("utf-8", "replace") for entry in entries])


# --- Python's values -------------------------------------------------------------------------------------------------------------

_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_UNSIGNED: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS: Final = {4: "f", 8: "d"}
_EXACT: Final = Context(prec=100)


def scalar_of(kind: Any, value: Any) -> Any:
    """Return one value as Arrow's scalar."""
    return array_of(kind, [value])[0]


def array_of(kind: Any, values: Sequence[Any]) -> Any:
    """Return Python's values as an array of an Arrow type; ``None`` is null.

    Dates and times are given as numbers in the unit of the type, maps as mappings or lists of pairs, structs as mappings. Decimals
    are ``Decimal``, or bytes: a whole number in two's complement, the highest byte first, in the scale of ``Unscaled`` or the type.
    Characters that UTF-8 cannot encode become question marks. Raises ``OverflowError`` for a number that the type cannot hold.
    """
    validity = None if None not in values else _validity(values)
    if pa.types.is_nested(kind):
        return _nested(kind, values, validity)
    if pa.types.is_string(kind) and (buffers := _ascii(values, validity)):
        pass
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        parts = [b"" if each is None else each.encode("utf-8", "replace") if isinstance(each, str) else each for each in values]
        buffers = [_ends(map(len, parts)), pa.py_buffer(b"".join(parts))]
    elif pa.types.is_boolean(kind):
        buffers = [_bits([bool(value) for value in values])]
    elif pa.types.is_decimal(kind):
        buffers = [pa.py_buffer(b"".join(_decimal(kind, value) for value in values))]
    else:
        size = kind.bit_width // 8
        codes = _FLOATS if pa.types.is_floating(kind) else _UNSIGNED if pa.types.is_unsigned_integer(kind) else _CODES
        buffers = [pa.py_buffer(array(codes[size], [0 if value is None else value for value in values] if validity else values))]
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers])


def _ascii(values: Sequence[Any], validity: Any) -> list[Any]:
    """Return the buffers of texts that are encoded all at once; none if one is not ASCII, or no text."""
    texts = values if validity is None else ["" if each is None else each for each in values]
    try:
        whole = "".join(texts)
    except TypeError:
        return []
    return [_ends(map(len, texts)), pa.py_buffer(whole.encode())] if whole.isascii() else []


def _nested(kind: Any, values: Sequence[Any], validity: Any) -> Any:
    if pa.types.is_struct(kind):
        rows = [{} if value is None else value for value in values] if validity else values
        children = [array_of(part.type, [row.get(part.name) for row in rows]) for part in kind]
        return pa.Array.from_buffers(kind, len(values), [validity], children=children)
    lists = [() if value is None else value.items() if isinstance(value, dict) else value for value in values]
    entries = [entry for entries in lists for entry in entries]
    if pa.types.is_map(kind):
        both = [array_of(kind.key_type, [key for key, _ in entries]), array_of(kind.item_type, [item for _, item in entries])]
        child = pa.StructArray.from_arrays(both, fields=[kind.key_field, kind.item_field])
    else:
        child = array_of(kind.value_type, entries)
    return pa.Array.from_buffers(kind, len(values), [validity, _ends(map(len, lists))], children=[child])


def _validity(values: Sequence[Any]) -> Any:
    """Return a bitmap of what is not ``None``. As a rule, few values are ``None``."""
    bits = bytearray(b"\xff" * -(-len(values) // 8))
    for place, value in enumerate(values):
        if value is None:
            bits[place >> 3] &= ~(1 << (place & 7))
    return pa.py_buffer(bits)


def _bits(flags: Sequence[bool]) -> Any:
    """Return a bitmap, the lowest bit first."""
    text = "".join("1" if flag else "0" for flag in reversed(flags))
    return pa.py_buffer(int(text or "0", 2).to_bytes(-(-len(flags) // 8), "little"))


def _ends(sizes: Iterable[int]) -> Any:
    return pa.py_buffer(array("i", accumulate(sizes, initial=0)))


class Unscaled(bytes):
    """A decimal as the bytes of a whole number, with its own scale."""

    scale: int


def _decimal(kind: Any, value: Decimal | bytes | None) -> bytes:
    if value is None:
        return bytes(16)
    if isinstance(value, bytes):
        whole, rest = _rescaled(value, kind.scale)
    else:
        number = value.scaleb(kind.scale, _EXACT)
        whole = int(number)
        rest = whole != number
    if rest or abs(whole) >= 10**kind.precision:
        raise OverflowError(f"a number that does not fit {kind}")
    return whole.to_bytes(16, "little", signed=True)


def _rescaled(value: bytes, scale: int) -> tuple[int, bool]:
    """Return a number in units of another scale, and whether something is left over."""
    whole = int.from_bytes(value, "big", signed=True)
    digits = (value.scale if isinstance(value, Unscaled) else scale) - scale
    if digits <= 0:
        return whole * 10**-digits, False
    # The scale may be any number. No number of so many bytes can be divided by ten more often.
    whole, rest = divmod(whole, 10 ** min(digits, 3 * len(value) + 1))
    return whole, bool(rest)
