"""Columns as an Arrow record batch (extra ``arrow``).

Decides: which Arrow type each column has. Owns nothing: arrays wrap the buffers that the decoder filled, and keep them alive.
Must never do anything per record. What is done once per run (a stretch of rows from one partition) or once per column is fine;
header keys that are not UTF-8 are the one exception.

Layout: the Arrow columnar format, https://arrow.apache.org/docs/format/Columnar.html.
"""

from collections.abc import Callable, Collection, Iterable
from struct import Struct
from typing import Any, Final

from ..records import ALL_COLUMNS, BinaryColumn, Columns, HeadersColumn

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise ImportError("Arrow record batches need pyarrow: pip install 'kafka-async[arrow]'") from missing

__all__ = ["ALL_COLUMNS", "SCHEMA", "record_batch"]

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
"""All columns, in order. A topic is a dictionary entry, since runs repeat it; a timestamp is null where a record has none (-1)."""

_INT32: Final = Struct("=i")


def record_batch(columns: Columns, names: Collection[str] = ALL_COLUMNS) -> pa.RecordBatch:
    """Return ``columns`` as a record batch, in the order of ``SCHEMA``, wrapping their buffers.

    Columns that were not collected are left out, and ``topic`` and ``partition`` where ``names`` lacks them. Header keys that are
    not UTF-8 have the replacement character for the bytes that are wrong.
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
    if (headers := columns.headers) is not None:
        build["headers"] = lambda: _headers(columns.rows, headers)
    fields = [field for field in SCHEMA if field.name in build and field.name in names]
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
        plain_array(pa.int32(), columns.rows, _repeated(runs)), pa.array(list(codes), pa.string())
    )


def _partitions(columns: Columns) -> Any:
    return plain_array(pa.int32(), columns.rows, _repeated((partition, rows) for _, partition, rows in columns.runs))


def _timestamps(length: int, data: Any) -> Any:
    numbers = plain_array(pa.int64(), length, data)
    if length and pc.min(numbers).as_py() < 0:
        numbers = pc.if_else(pc.less(numbers, 0), pa.scalar(None, pa.int64()), numbers)
    return numbers.view(pa.timestamp("ms", tz="UTC"))


def binary_array(column: BinaryColumn) -> Any:
    """Return a column of byte strings as an array that wraps its buffers."""
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), column.length, buffers, column.nulls)


def _headers(length: int, column: HeadersColumn) -> Any:
    entries = pa.StructArray.from_arrays([text_array(binary_array(column.keys)), binary_array(column.values)], fields=list(_HEADER))
    return pa.Array.from_buffers(SCHEMA.field("headers").type, length, [None, pa.py_buffer(column.offsets)], children=[entries])


def text_array(array: Any) -> Any:
    """Return byte strings as text; bytes that are not UTF-8 become the replacement character."""
    try:
        return array.cast(pa.string())  # checks each entry and copies none
    except pa.ArrowInvalid:
        return pa.array([entry.as_py().decode("utf-8", "replace") for entry in array], pa.string())
