"""Avro values to columns (``value.format=avro``, extra ``avro``).

A value does not decide how much is allocated: ``avro_schema`` refuses arrays whose elements take no bytes.

Without a registry a value is the bytes of one record in ``value.schema``. With one (``framed.py``) the columns are those of
``value.schema`` if that is given too, else those of the registry's newest schema of the subject at the time the read is planned;
each record is resolved from its writer's schema to that one. A value is bad if it is cut off, if bytes are left over, if it cannot
be resolved, and if the registry says that there is no such id.

Batches are read by the compiled reader where it can (``avro_bulk``), and else value by value, with fastavro: seven times the time.
Numbers stand for dates and times until Arrow has them: no object is made for one. Sources: the Avro 1.12 specification;
"Wire Format" of Confluent's schema registry.
"""

import contextlib
import functools
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...application.reading.arrow import Unscaled, array_of, scalar_of
from ...errors import KafkaConfigurationError
from ...values import frozen
from . import avro_bulk
from .avro_schema import DECIMAL, TIME, Types, has_members, in_microseconds, plain, rate, set_defaults, with_members
from .ddl import Fields
from .decoding import BadValueError, Piece
from .framed import FRAME, RegisteredDecoder, Writers, in_front, in_header, kept_schema
from .names import REGISTRY
from .registry import RegisteredSchema, Registry, UnusableSchemaError
from .secrets import References

try:
    import fastavro
    from fastavro.read import LOGICAL_READERS
    from fastavro.schema import SchemaParseException, UnknownType
except ImportError as missing:
    raise ImportError("Avro values need fastavro, which the extra 'avro' brings: pip install '/path/to/clone[avro]'") from missing
try:
    from fastavro._read_py import schemaless_reader as read_in_python  # no public name leads to it if the other is compiled
except ImportError:
    read_in_python = fastavro.schemaless_reader


_NO_ID: Final = -1
"""What stands for the id of a schema where there is none."""
_EXACT_DECIMAL: Final = "kafka_async.exact_decimal"
"""The logical type of decimals that become Python's: fastavro's own rounds one that has more digits than its schema says."""


def _unscaled(data: bytes, writer: Any, reader: Any) -> Any:
    """Return the bytes of a decimal, which are a number only if the reader's schema says so too."""
    if (reader["type"] if isinstance(reader, dict) else reader) == "string":
        return data.decode()
    found = Unscaled(data)
    found.scale = writer.get("scale", 0)
    return found


def _exact(data: bytes, writer: Any, reader: Any) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-writer.get("scale", 0), _ALL_DIGITS)


def _in_readers_unit(data: int, writer: Any, reader: Any) -> int:
    if reader is None:  # it is the same schema
        return data
    times, parts = rate(writer, reader)
    return data * times // parts


_ALL_DIGITS: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
for _kind in ("bytes", "fixed"):  # names of our own: what else uses fastavro in this process is not changed
    LOGICAL_READERS[f"{_kind}-{DECIMAL}"] = _unscaled
    LOGICAL_READERS[f"{_kind}-{_EXACT_DECIMAL}"] = _exact
for _kind in ("int", "long"):
    LOGICAL_READERS[f"{_kind}-{TIME}"] = _in_readers_unit


@frozen(kw_only=True)
class AvroDecoder(RegisteredDecoder):
    """Records of one Avro schema, read from whatever schema each was written with. Schemas are texts of JSON."""

    def of_schema(self, number: int) -> tuple[str, Fields, Fields]:
        """Return a schema of the registry for reading, the types that Arrow builds, and the columns."""
        registry, known = self.registry, dict(self.known).get(number)
        schema, built = _reader_of(registry, number, known) if registry is not None else (self.schema, self.built)
        return schema, built, in_microseconds(built)

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values decoded, each by itself.

        Raises ``KafkaConfigurationError`` if the first values of a topic have no id, ``RegistryError`` if the registry cannot
        be asked.
        """
        if (found := self._at_once(values, ids, topic)) is not None:
            return found
        read = _Reader(self, topic)
        listed = values.to_pylist()
        of_headers = [None] * len(listed) if ids is None else ids.to_pylist()
        records: list[Mapping[str, Any]] = []
        bad = {}
        for place, (value, said) in enumerate(zip(listed, of_headers, strict=True)):
            try:
                records.append({} if value is None else read(value, said))
            except BadValueError as error:
                records.append({})
                bad[place] = str(error)
        if not read.writers.check(len(listed) - values.null_count):
            return self.piece(values, ids, topic)
        types = dict(self.built)
        columns = [(name, types[name], kind) for name, kind in self.columns]
        try:
            arrays = [_array(records, *column) for column in columns]
        except (pa.ArrowException, OverflowError):
            _leave_out(records, columns, bad)
            arrays = [_array(records, *column) for column in columns]
        return Piece(arrays=arrays, bad=bad)

    def _at_once(self, values: Any, ids: Any, topic: str) -> Piece | None:
        """Return the values decoded by the compiled reader; ``None`` if something needs a closer look."""
        if not avro_bulk.AVAILABLE or not self.columns:
            return None
        types = dict(self.built)
        columns = tuple((name, types[name], kind) for name, kind in self.columns)
        built = tuple((name, kind) for name, kind, _ in columns)
        read = _Reader(self, topic)
        bad: dict[int, str] = {}
        parts: list[tuple[Any, list[Any]]] = []
        for rows, frame, name in _groups(values, ids, self.registry is not None):
            try:
                writer = read.writer(name)
            except BadValueError as error:
                places = pc.indices_nonzero(values.is_valid()) if rows is None else rows
                bad |= dict.fromkeys(places.to_pylist(), str(error))
                continue
            how = _program(writer, read.schema, tuple(name for name, _ in built))
            if how is None:
                return None
            arrays, odd = avro_bulk.read(how, values if rows is None else values.take(rows), frame, built)
            for place in odd if rows is None else [rows[each].as_py() for each in odd]:
                why = read.fault(values[place].as_py(), None if ids is None else ids[place].as_py(), columns)
                if not why:
                    return None
                bad[place] = why
            parts.append((rows, arrays))
        if not read.writers.check(len(values) - values.null_count):
            return self._at_once(values, ids, topic)
        try:
            arrays = [array.cast(kind) for array, (_, _, kind) in zip(_in_order(parts, columns, len(values)), columns, strict=True)]
        except pa.ArrowInvalid:  # a time out of range
            return None
        return Piece(arrays=arrays, bad=dict(sorted(bad.items())))


Column = tuple[str, Any, Any]
"""Name, the type that is built, and the type in the end."""


def _groups(values: Any, ids: Any, registered: bool) -> Iterator[tuple[Any, int, str | int | bytes | None]]:
    """Yield rows (``None``: all), the bytes in front of their records, and what names the schema that they were written with.

    That is an id, a header, -1 if there is neither, and ``None`` for the reader's own schema.
    """
    if not registered:
        yield None, 0, None
        return
    numbers = avro_bulk.frames(values)
    if ids is not None and ids.null_count < len(ids):
        for header in pc.unique(ids.filter(values.is_valid())).drop_null():
            yield pc.indices_nonzero(pc.and_(pc.equal(ids, header), values.is_valid())), 0, header.as_py()
        numbers = pc.if_else(ids.is_valid(), pa.nulls(1, pa.int64())[0], numbers)
    found = pc.unique(numbers).drop_null().to_pylist()
    for number in found:
        one = len(found) == 1 and numbers.null_count == values.null_count
        yield None if one else pc.indices_nonzero(pc.equal(numbers, scalar_of(pa.int64(), number))), FRAME.size, number


def _in_order(parts: Sequence[tuple[Any, list[Any]]], columns: Sequence[Column], count: int) -> Sequence[Any]:
    """Return the columns of all rows from those of groups of them; what is in no group is null."""
    if not parts:
        return [pa.nulls(count, built) for _, built, _ in columns]
    if parts[0][0] is None:
        return parts[0][1]
    order: list[int | None] = [None] * count
    for number, row in enumerate(row for rows, _ in parts for row in rows.to_pylist()):
        order[row] = number
    places = array_of(pa.int32(), order)
    return [pa.concat_arrays([arrays[i] for _, arrays in parts]).take(places) for i in range(len(columns))]


@functools.lru_cache(maxsize=100)
def _program(writer: "_Schema", reader: "_Schema", names: tuple[str, ...]) -> avro_bulk.Program | None:
    return avro_bulk.program(writer.given, reader.given, names)


def _leave_out(records: list[Mapping[str, Any]], columns: Sequence[tuple[str, Any, Any]], bad: dict[int, str]) -> None:
    """Empty the records that Arrow cannot hold, such as one with a time out of range; ``bad`` gets why."""
    for place, record in enumerate(records):
        for column in columns:
            try:
                _array([record], *column)
            except (pa.ArrowException, OverflowError):
                records[place] = {}
                bad[place] = f"field {column[0]!r} is out of range"
                break


def _array(records: Sequence[Mapping[str, Any]], name: str, built: Any, kind: Any) -> Any:
    """Return a field of records as an array, ``built`` in the type of its numbers, in the type that Spark has."""
    return array_of(built, [record.get(name) for record in records]).cast(kind)


class _Reader:
    """Reads the values of one batch."""

    def __init__(self, decoder: AvroDecoder, topic: str) -> None:
        self._decoder = decoder
        self.schema = _parsed(decoder.schema, decoder.schema)
        self.writers = Writers(
            decoder,
            topic,
            parse=lambda text: _parsed(text, decoder.schema),
            load=lambda registry, name: _writer(registry, name, decoder.schema),
        )

    def __call__(self, value: bytes, header: bytes | None) -> Mapping[str, Any]:
        """Return the record in a value. Raises ``BadValueError``."""
        data = io.BytesIO(value)
        name = None if self._decoder.registry is None else in_front(data) if header is None else in_header(header)
        writer = self.schema if name is None else self.writers(name)
        reader = None if writer is self.schema else self.schema.parsed
        record = _decoded(writer, data, len(value), reader, "a record of the schema")
        return cast(Mapping[str, Any], record)  # the schema is a record's

    def writer(self, name: str | int | bytes | None) -> "_Schema":
        """Return the schema that ``_groups`` names. Raises ``BadValueError``."""
        if name is None:
            return self.schema
        if name == _NO_ID:
            in_front(io.BytesIO())  # raises
        return self.writers(in_header(name) if isinstance(name, bytes) else name)

    def fault(self, value: bytes, header: bytes | None, columns: "Sequence[Column]") -> str:
        """Return what is wrong with a value; the empty text if nothing is."""
        try:
            records = [self(value, header)]
        except BadValueError as error:
            return str(error)
        found: dict[int, str] = {}
        _leave_out(records, columns, found)
        return found.get(0, "")


@functools.lru_cache(maxsize=1000)
def _writer(registry: Registry, name: str | int, reader: str) -> "_Schema | str":
    """Return a schema, or why values cannot be read with it.

    An id means the same schema for ever, so what was found once is kept; that none was found is not.
    """
    try:
        found = registry.schema(name)
    except UnusableSchemaError as error:
        return str(error)
    try:
        schema, _ = plain(found, f"schema {name}")
        return _parse(_with_members(schema, reader), f"schema {name}")
    except KafkaConfigurationError as error:
        return str(error)


@functools.lru_cache(maxsize=100)
def _reader_of(registry: Registry, number: int, known: str | None) -> tuple[str, Fields]:
    """Return a schema for reading, and the types that Arrow builds. ``known``: the schema, if it was asked for before."""
    where = f"schema {number}"
    schema, named = plain(RegisteredSchema(json.loads(known)) if known is not None else registry.schema(number), where)
    return json.dumps(schema), Types(named, where).record(schema)


@functools.lru_cache(maxsize=100)
def _parsed(text: str, reader: str) -> "_Schema":
    """Return a writer's schema for a reader's; the same object for the same texts, which are read without a reader's schema."""
    schema = json.loads(text)
    if text != reader:
        return _parse(_with_members(schema, reader), "value.schema")
    found = _parse(_with_members(schema, ""), "value.schema")
    set_defaults(found.parsed, schema)
    return found


def _with_members(schema: Any, reader: str) -> Any:
    """Return a schema whose values say which member of a union they are; ``reader``: the other schema, if it is not the same."""
    like = json.loads(reader) if reader else schema
    return with_members(schema, like) if has_members(like) else schema


@frozen(eq=False)
class _Schema:
    """A schema as fastavro takes it, and what reads a value that was written with it."""

    given: Any
    """As it was before fastavro parsed it."""
    parsed: Any
    read: Callable[[io.BytesIO, Any, Any], Any]


def _decoded(schema: _Schema, data: io.BytesIO, size: int, reader: Any, what: str) -> Any:
    start = data.tell()
    try:
        value = schema.read(data, schema.parsed, reader)
    except EOFError:
        raise BadValueError("it is cut off") from None
    except Exception as error:  # fastavro has no base class of its own; wrong bytes raise whatever they meet
        # A number that is cut off is an IndexError to it, and so is a number that stands for nothing.
        if isinstance(error, IndexError) and _ends_early(schema, data.getvalue()[start:], reader):
            raise BadValueError("it is cut off") from None
        raise BadValueError(f"it is not {what} ({type(error).__name__})") from None
    if left := size - data.tell():
        raise BadValueError(f"{left} bytes are left over")
    return value


def _ends_early(schema: _Schema, value: bytes, reader: Any) -> bool:
    """Return whether reading a value, which fails, asks for more bytes than there are."""
    watched = _WatchedBytes(value)
    with contextlib.suppress(Exception):  # known already: this is to find out where
        schema.read(watched, schema.parsed, reader)
    return watched.short


class _WatchedBytes(io.BytesIO):
    """Bytes that know whether more was asked for than they have. Slower, so only values that failed are read from them."""

    short = False

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.short = self.short or (size is not None and len(found) < size)
        return found


def _parse(schema: Any, where: str, references: Iterable[Any] = (), whole: Any = None) -> _Schema:
    """``whole``: the schema with what it refers to in place."""
    named: dict[str, Any] = {}
    try:
        for each in references:
            fastavro.parse_schema(each, named_schemas=named)
        parsed = fastavro.parse_schema(schema, named_schemas=named)
        # Of a type that holds itself, values say how deep they go. The compiled reader follows until the process breaks down, at
        # some 20,000 levels; the one in Python until RecursionError.
        deep = _holds_itself(schema if whole is None else whole)
        return _Schema(schema, parsed, read_in_python if deep else fastavro.schemaless_reader)
    except (SchemaParseException, UnknownType, TypeError, KeyError, AttributeError) as error:
        raise KafkaConfigurationError(f"{where} is not an Avro schema: {type(error).__name__}: {error}") from None


def _holds_itself(schema: Any, within: tuple[str, ...] = ()) -> bool:
    if isinstance(schema, str):
        return schema in within
    if isinstance(schema, list):
        return any(_holds_itself(part, within) for part in schema)
    parts = [part["type"] for part in schema.get("fields", ())] + [schema[part] for part in ("items", "values") if part in schema]
    return any(_holds_itself(part, (*within, schema.get("name", ""))) for part in parts)


def _with_exact_decimals(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_exact_decimals(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = ("type", "items", "values", "fields")
    found = {key: _with_exact_decimals(part) if key in inner else part for key, part in schema.items()}
    return found | ({"logicalType": _EXACT_DECIMAL} if found.get("logicalType") == "decimal" else {})


def record_reader(registry: Registry) -> Callable[[bytes, bytes | None], Any]:
    """Return what reads single values as Python objects: a value, and its header with the id of its schema if there is one.

    It is read as its writer's schema has it, with logical types. Raises ``BadValueError`` for a value that is none,
    ``UnknownSchemaError`` for an id that the registry does not have, and what ``Registry.schema`` raises.
    """

    @functools.lru_cache(maxsize=1000)
    def schema_of(name: int | str) -> _Schema:
        found, where = registry.schema(name), f"schema {name}"
        whole, _ = plain(found, where)  # refuses what would allocate without end
        return _parse(_with_exact_decimals(found.schema), where, map(_with_exact_decimals, found.references), whole)

    def read(value: bytes, header: bytes | None) -> Any:
        data = io.BytesIO(value)
        schema = schema_of(in_front(data) if header is None else in_header(header))
        return _decoded(schema, data, len(value), None, "a value of its schema")

    return read


def avro_decoder(
    options: Mapping[str, str], topics: Sequence[str], common: Mapping[str, Any], references: References
) -> AvroDecoder:
    """Return the decoder that the options ask for. Raises ``KafkaConfigurationError``, and what ``registry`` raises."""
    registry = Registry.of(options, references) if f"{REGISTRY}url" in options else None
    subject = options.get(f"{REGISTRY}subject") or (f"{topics[0]}-{common['part']}" if len(topics) == 1 else "")
    given, where = _given(options, subject, registry)
    schema, named = plain(given, where)
    _parse(schema, where)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise KafkaConfigurationError(f"{where}: expected a record, whose fields become columns")
    built = Types(named, where).record(schema)
    known = _known(registry.planned(subject)) if registry is not None and subject else ()
    columns = in_microseconds(built)
    common = {**common, **kept_schema(given, options, topics), "registry": registry, "known": known}
    return AvroDecoder(columns=columns, built=built, schema=json.dumps(schema), **common)


def _known(found: Mapping[int | str, RegisteredSchema]) -> tuple[tuple[int | str, str], ...]:
    """Return the schemas as tasks read with them; one that cannot be read with is left for the task that meets it."""
    known = []
    for name, each in found.items():
        with contextlib.suppress(KafkaConfigurationError):
            known.append((name, json.dumps(plain(each, f"schema {name}")[0])))
    return tuple(known)


def _given(options: Mapping[str, str], subject: str, registry: Registry | None) -> tuple[RegisteredSchema, str]:
    """Return the reader's schema and what to call it."""
    if text := options.get("value.schema", "").strip():
        try:
            return RegisteredSchema(json.loads(text)), "value.schema"
        except (ValueError, RecursionError):
            raise KafkaConfigurationError("value.schema: expected an Avro schema in JSON") from None
    if registry is None:
        unused = [name for name in options if name.startswith(REGISTRY)]
        also = f" ({unused[0]} alone says nothing)" if unused else ""
        raise KafkaConfigurationError(f"value.format=avro needs value.schema or value.schema.registry.url{also}")
    if not subject:
        raise KafkaConfigurationError(f"{REGISTRY}subject is missing: more than one topic may be read")
    return registry.newest(subject, options.get(f"{REGISTRY}version", "latest")), f"subject {subject!r}"
