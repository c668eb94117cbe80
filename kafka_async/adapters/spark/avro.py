"""Avro values to columns (``value.format=avro``, extra ``avro``).

Decides: what counts as a bad value. Owns a bounded cache of parsed schemas per process. Must never let a value decide how much is
allocated: ``avro_schema`` refuses arrays whose elements take no bytes.

Without a registry a value is the bytes of one record in ``value.schema``. With one it is in Confluent's wire format: a zero byte,
the id of the writer's schema in four bytes, the record. The columns are then those of ``value.schema`` where that is given too,
else those of the registry's newest schema of the subject at the time the read is planned; each record is resolved from its
writer's schema to that one. A value is bad where it is cut off, where bytes are left over, where it cannot be resolved, and where
the registry says that there is no such id. A registry that does not answer is an error, never a bad value.

Numbers stand for dates and times until Arrow has them: no object is made for one. Sources: the Avro 1.12 specification;
"Wire Format" of Confluent's schema registry.
"""

import functools
import io
import json
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, cast

import pyarrow as pa
from attrs import frozen

from ...errors import KafkaConfigurationError
from .avro_schema import Types, plain
from .ddl import Fields
from .decoding import BadValueError, Decoder, Piece
from .registry import Found, Registry, UnknownSchemaError

try:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType
except ImportError as missing:
    raise ImportError("Avro values need fastavro: pip install 'kafka-async[avro]'") from missing

MAGIC: Final = 0
FRAME: Final = Struct(">bI")
MAX_UNKNOWN: Final = 64
"""Ids that the registry may not know within one batch, until the values are taken for something else than framed Avro."""


@frozen(kw_only=True)
class AvroDecoder(Decoder):
    """Records of one Avro schema, read from whatever schema each was written with."""

    schema: str
    """The reader's schema, as JSON."""
    built: Fields
    """The types that Arrow builds, by column, before they are cast to those of ``columns``."""
    registry: Registry | None = None

    @property
    def has_bulk(self) -> bool:
        """Avro has no layout that could be read in bulk."""
        return False

    def bulk(self, values: Any) -> list[Any] | None:
        """Return ``None``: each value is read by itself."""
        return None

    def each(self, values: list[bytes | None]) -> Piece:
        """Return the values decoded."""
        read = _Reader(self)
        records: list[Mapping[str, Any]] = []
        bad = {}
        for place, value in enumerate(values):
            try:
                records.append({} if value is None else read(value))
            except BadValueError as error:
                records.append({})
                bad[place] = str(error)
        types = dict(self.built)
        try:
            return Piece(arrays=[_column(records, name, types[name], kind) for name, kind in self.columns], bad=bad)
        except (pa.ArrowException, OverflowError):
            return self._apart(records, bad)

    def _apart(self, records: list[Mapping[str, Any]], bad: dict[int, str]) -> Piece:
        """Return the records without those that hold what Arrow has no room for, a time out of range."""
        types = dict(self.built)
        for place, record in enumerate(records):
            try:
                for name, kind in self.columns:
                    _column([record], name, types[name], kind)
            except (pa.ArrowException, OverflowError):
                records[place] = {}
                bad[place] = f"field {name!r} is out of range"
        return Piece(arrays=[_column(records, name, types[name], kind) for name, kind in self.columns], bad=bad)


def _column(records: Sequence[Mapping[str, Any]], name: str, built: Any, kind: Any) -> Any:
    array = pa.array([record.get(name) for record in records], built)
    return array if built == kind else array.cast(kind)


class _Reader:
    """Reads the values of one batch."""

    def __init__(self, decoder: AvroDecoder) -> None:
        self._decoder = decoder
        self._schema = _parsed(decoder.schema)
        self._writers: dict[int, Any] = {}
        self._unknown: set[int] = set()

    def __call__(self, value: bytes) -> Mapping[str, Any]:
        """Return the record in a value. Raises ``BadValueError``."""
        data = io.BytesIO(value)
        writer = self._schema if self._decoder.registry is None else self._framed(self._decoder.registry, data)
        reader = None if writer is self._schema else self._schema
        try:
            record: Any = fastavro.schemaless_reader(data, writer, reader)
        except EOFError:
            raise BadValueError("it is cut off") from None
        except Exception as error:  # fastavro has no base class of its own; wrong bytes raise whatever they meet
            raise BadValueError(f"it is no record of the schema ({type(error).__name__})") from None
        if left := len(value) - data.tell():
            raise BadValueError(f"{left} bytes are left over")
        return cast(Mapping[str, Any], record)  # the schema is a record's

    def _framed(self, registry: Registry, data: io.BytesIO) -> Any:
        head = data.read(FRAME.size)
        if len(head) < FRAME.size or head[0] != MAGIC:
            raise BadValueError("it does not begin with a zero byte and the id of a schema")
        number = FRAME.unpack(head)[1]
        if number in self._unknown:
            raise BadValueError(f"the registry has no schema {number}")
        if number not in self._writers:
            try:
                self._writers[number] = _writer(registry, number)
            except UnknownSchemaError:
                self._note(number)
                raise BadValueError(f"the registry has no schema {number}") from None
        return self._writers[number]

    def _note(self, number: int) -> None:
        self._unknown.add(number)
        if len(self._unknown) > MAX_UNKNOWN:
            raise KafkaConfigurationError(
                f"the registry knows none of {MAX_UNKNOWN} ids in one batch; are the values in Confluent's wire format?"
            )


@functools.lru_cache(maxsize=1000)
def _writer(registry: Registry, number: int) -> Any:
    schema, _ = plain(registry.schema(number), f"schema {number}")
    return _parse(schema, f"schema {number}")


@functools.lru_cache(maxsize=100)
def _parsed(text: str) -> Any:
    return _parse(json.loads(text), "value.schema")


def _parse(schema: Any, where: str) -> Any:
    try:
        return fastavro.parse_schema(schema)
    except (SchemaParseException, UnknownType, TypeError, KeyError, AttributeError) as error:
        raise KafkaConfigurationError(f"{where} is no Avro schema: {type(error).__name__}: {error}") from None


def avro_decoder(options: Mapping[str, str], topics: Sequence[str], common: Mapping[str, Any]) -> AvroDecoder:
    """Return the decoder that the options ask for. Raises ``KafkaConfigurationError``, and what ``registry`` raises."""
    registry = Registry.of(options) if "value.schema.registry.url" in options else None
    given, where = _given(options, topics, registry)
    schema, named = plain(given, where)
    _parse(schema, where)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise KafkaConfigurationError(f"{where}: expected a record, whose fields become columns")
    built, columns = Types(named, where).record(schema)
    return AvroDecoder(columns=columns, built=built, schema=json.dumps(schema), registry=registry, **common)


def _given(options: Mapping[str, str], topics: Sequence[str], registry: Registry | None) -> tuple[Found, str]:
    """Return the reader's schema and what to call it."""
    if text := options.get("value.schema", "").strip():
        try:
            return Found(json.loads(text)), "value.schema"
        except (ValueError, RecursionError):
            raise KafkaConfigurationError("value.schema: expected an Avro schema in JSON") from None
    if registry is None:
        unused = [name for name in options if name.startswith("value.schema.registry.")]
        also = f" ({unused[0]} alone says nothing)" if unused else ""
        raise KafkaConfigurationError(f"value.format=avro needs value.schema or value.schema.registry.url{also}")
    subject = options.get("value.schema.registry.subject") or (f"{topics[0]}-value" if len(topics) == 1 else "")
    if not subject:
        raise KafkaConfigurationError("value.schema.registry.subject is missing: more than one topic may be read")
    return registry.newest(subject, options.get("value.schema.registry.version", "latest")), f"subject {subject!r}"
