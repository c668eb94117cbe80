"""Columns of records as Arrow record batches in exactly the types that Spark wants.

Spark checks only the first batch of a task against its schema, and a later one that does not fit fails in the JVM: every batch
is built from the same schema here, by the same steps.

``pyarrow.compute`` makes a Python function of each of Arrow's when it is imported, which takes 30 ms, and the tasks of queries that
stop early are in new processes. So Arrow's functions are called by name, through what that module has ``call_function`` from.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow._compute import CastOptions, call_function

from ...application.reading.arrow import array_of, binary_array, plain_array, scalar_of, text_array
from ...errors import DeserializationError, KafkaConfigurationError
from ...model import at_offset
from ...records import BinaryColumn, Columns, HeadersColumn
from ...values import define, field
from ..values.names import KEY
from .schema import HEADERS, kafka_columns

if TYPE_CHECKING:
    from ..values.decoding import ValueDecoder

_ROWS: Final = 16_384


@define(eq=False)
class BatchBuilder:
    """Builds the batches of one task. ``names`` are the columns of ``COLUMNS``, or of the decoder, in the order of ``schema``."""

    names: tuple[str, ...]
    schema: Any
    """The ``pyarrow.Schema`` that Spark expects."""
    decoders: "Mapping[str, ValueDecoder]" = field(factory=dict)
    """What decodes values, and keys."""
    _topics: dict[str, Any] = field(factory=dict, init=False)
    _partitions: dict[int, Any] = field(factory=dict, init=False)

    @property
    def wanted(self) -> frozenset[str]:
        """The columns that have to be decoded from the records."""
        owners = {name: part for part, decoder in self._used.items() for name, _ in decoder.fields}
        ids = any(decoder.id_header is not None for decoder in self._used.values())
        return kafka_columns(self.names, owners) | ({HEADERS} if ids else frozenset())

    @property
    def _used(self) -> "dict[str, ValueDecoder]":
        """The decoders of which a column is wanted."""
        return {part: each for part, each in self.decoders.items() if {name for name, _ in each.fields} & set(self.names)}

    def build(self, columns: Columns) -> Any:
        """Return ``columns`` as a ``pyarrow.RecordBatch``."""
        build: dict[str, Callable[[], Any]] = {
            "topic": lambda: _joined([self._repeat(self._topics, topic, rows) for topic, _, rows in columns.runs]),
            "partition": lambda: _joined([self._repeat(self._partitions, number, rows) for _, number, rows in columns.runs]),
            "offset": lambda: plain_array(pa.int64(), columns.rows, columns.offsets),
            "timestamp": lambda: _timestamps(columns),
            "timestampType": lambda: _widened(plain_array(pa.int8(), columns.rows, columns.timestamp_types)),
            "key": lambda: binary_array(_there(columns.keys)),
            "value": lambda: binary_array(_there(columns.values)),
            "headers": lambda: _headers(columns.rows, _there(columns.headers), self.schema.field(self.names.index("headers")).type),
        }
        decoded: dict[str, Any] = {}
        for part, decoder in self._used.items():
            decoded |= _decoded(decoder, _there(columns.keys if part == KEY else columns.values), columns)
        arrays = [decoded[name] if name in decoded else build[name]() for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _repeat(self, known: dict[Any, Any], value: Any, rows: int) -> Any:
        array = known.get(value)
        if array is None or len(array) < rows:
            kind = pa.string() if isinstance(value, str) else pa.int32()
            array = known[value] = pa.repeat(scalar_of(kind, value), max(_ROWS, 2 * rows))
        return array.slice(0, rows)


def _decoded(decoder: "ValueDecoder", column: BinaryColumn, columns: Columns) -> dict[str, Any]:
    """Return the columns that a decoder makes of keys or values, run by run: its errors name topic, partition and offset."""
    ids = None if decoder.id_header is None else _last_headers(columns.rows, _there(columns.headers), decoder.id_header)
    values = binary_array(column)
    offsets = plain_array(pa.int64(), columns.rows, columns.offsets)
    parts: list[Sequence[Any]] = []
    at = 0
    for topic, partition, rows in columns.runs:
        where: dict[str, Any] = {"topic": topic, "partition": partition, "offsets": offsets.slice(at, rows)}
        if ids is not None:
            where["ids"] = ids.slice(at, rows)
        parts.append(decoder.decode(values.slice(at, rows), **where))
        at += rows
    return {name: _joined([part[i] for part in parts]) for i, (name, _) in enumerate(decoder.fields)}


def _there(column: Any) -> Any:
    if column is None:
        raise KafkaConfigurationError("a column was not decoded")
    return column


def _joined(arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _timestamps(columns: Columns) -> Any:
    milliseconds = plain_array(pa.int64(), columns.rows, columns.timestamps)
    try:
        microseconds = call_function("multiply_checked", [milliseconds, scalar_of(pa.int64(), 1000)])
    except pa.ArrowInvalid:
        raise _out_of_range(columns, milliseconds.to_pylist()) from None
    return microseconds.view(pa.timestamp("us", tz="UTC"))


def _out_of_range(columns: Columns, milliseconds: Sequence[int]) -> DeserializationError:
    """Return the error about the first record whose timestamp 64 bits do not hold in microseconds. Spark's connector fails too."""
    place = next(place for place, number in enumerate(milliseconds) if not -(2**63) <= number * 1000 < 2**63)
    runs = (each for each in columns.runs for _ in range(each[2]))
    topic, partition, _ = next(islice(runs, place, None))
    offset = plain_array(pa.int64(), columns.rows, columns.offsets)[place].as_py()
    text = f"the timestamp {milliseconds[place]} ms is out of range for Spark; the option 'columns' can leave that column out"
    return DeserializationError(f"{at_offset(topic, partition, offset)}: {text}")


def _widened(numbers: Any) -> Any:
    return call_function("cast", [numbers], CastOptions.safe(pa.int32()))


def _last_headers(rows: int, column: HeadersColumn, name: str) -> Any:
    """Return the value of the last header of a name in each record, as a binary array; ``None`` if no record has one."""
    keys = binary_array(column.keys)
    found = call_function("indices_nonzero", [call_function("equal", [keys, scalar_of(pa.binary(), name.encode())])]).to_pylist()
    if not found:
        return None
    ends = plain_array(pa.int32(), rows + 1, column.offsets).to_pylist()
    places: list[int | None] = [None] * rows
    for entry in found:
        places[bisect_right(ends, entry) - 1] = entry
    return binary_array(column.values).take(array_of(pa.int32(), places))


def _headers(rows: int, column: HeadersColumn, kind: Any) -> Any:
    """Return Arrow's ``list<struct<key, value>>``; null if a record has no headers, as Spark's own connector has it."""
    arrays = [text_array(binary_array(column.keys)), binary_array(column.values)]
    entries = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    ends = plain_array(pa.int32(), rows + 1, column.offsets)
    some = call_function("not_equal", [ends.slice(0, rows), ends.slice(1)])
    validity = some.buffers()[1]
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(column.offsets)], children=[entries])
