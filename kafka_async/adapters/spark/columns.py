"""Columns of records as Arrow record batches in exactly the types that Spark wants.

Decides: how Kafka's columns become Spark's: times in microseconds, ``timestampType`` as 32 bits, headers null where a record has
none. Owns arrays of repeated topics and partition numbers, which every batch takes a slice of. Must never do anything per record.

Spark checks only the first batch of a task against its schema, and what does not fit in a later one breaks in the JVM: every batch
is built from the same schema here, by the same steps.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from ...application.arrow import binary_array, plain_array, text_array
from ...errors import KafkaConfigurationError
from ...records import Columns, HeadersColumn
from .schema import kafka_columns
from .values import ValueDecoder

_ROWS: Final = 16_384


@define(eq=False)
class BatchBuilder:
    """Builds the batches of one task. ``names`` are the columns of ``COLUMNS``, or of the decoder, in the order of ``schema``."""

    names: tuple[str, ...]
    schema: Any
    """The ``pyarrow.Schema`` that Spark expects."""
    decoder: ValueDecoder | None = None
    _topics: dict[str, Any] = field(factory=dict, init=False)
    _partitions: dict[int, Any] = field(factory=dict, init=False)

    @property
    def wanted(self) -> frozenset[str]:
        """The columns that have to be decoded from the records."""
        return kafka_columns(self.names)

    def build(self, columns: Columns) -> Any:
        """Return ``columns`` as a ``pyarrow.RecordBatch``."""
        build: dict[str, Callable[[], Any]] = {
            "topic": lambda: _joined([self._repeat(self._topics, topic, rows) for topic, _, rows in columns.runs]),
            "partition": lambda: _joined([self._repeat(self._partitions, number, rows) for _, number, rows in columns.runs]),
            "offset": lambda: plain_array(pa.int64(), columns.rows, columns.offsets),
            "timestamp": lambda: _timestamps(columns),
            "timestampType": lambda: plain_array(pa.int8(), columns.rows, columns.timestamp_types).cast(pa.int32()),
            "key": lambda: binary_array(_there(columns.keys)),
            "value": lambda: binary_array(_there(columns.values)),
            "headers": lambda: _headers(columns.rows, _there(columns.headers), self.schema.field(self.names.index("headers")).type),
        }
        decoded = self._decoded(columns) if self.decoder is not None else {}
        arrays = [decoded[name] if name in decoded else build[name]() for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _repeat(self, known: dict[Any, Any], value: Any, rows: int) -> Any:
        array = known.get(value)
        if array is None or len(array) < rows:
            kind = pa.string() if isinstance(value, str) else pa.int32()
            array = known[value] = pa.repeat(pa.scalar(value, kind), max(_ROWS, 2 * rows))
        return array.slice(0, rows)

    def _decoded(self, columns: Columns) -> dict[str, Any]:
        """Return the columns that the decoder makes of ``value``, run by run: its errors name topic, partition and offset."""
        decoder = self.decoder
        names = [name for name, _ in decoder.fields] if decoder is not None else []
        if decoder is None or not set(names) & set(self.names):
            return {}
        values = binary_array(_there(columns.values))
        offsets = plain_array(pa.int64(), columns.rows, columns.offsets)
        parts: list[Sequence[Any]] = []
        at = 0
        for topic, partition, rows in columns.runs:
            where = {"topic": topic, "partition": partition, "offsets": offsets.slice(at, rows)}
            parts.append(decoder.decode(values.slice(at, rows), **where))
            at += rows
        return {name: _joined([part[i] for part in parts]) for i, name in enumerate(names)}


def _there(column: Any) -> Any:
    if column is None:
        raise KafkaConfigurationError("a column was not decoded")
    return column


def _joined(arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _timestamps(columns: Columns) -> Any:
    milliseconds = plain_array(pa.int64(), columns.rows, columns.timestamps)
    return pc.multiply(milliseconds, pa.scalar(1000, pa.int64())).view(pa.timestamp("us", tz="UTC"))


def _headers(rows: int, column: HeadersColumn, kind: Any) -> Any:
    """Return Arrow's ``list<struct<key, value>>``; null where a record has no headers, as Spark's own connector has it."""
    arrays = [text_array(binary_array(column.keys)), binary_array(column.values)]
    entries = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    ends = plain_array(pa.int32(), rows + 1, column.offsets)
    some = pc.not_equal(ends.slice(0, rows), ends.slice(1))
    validity = some.buffers()[1]
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(column.offsets)], children=[entries])
