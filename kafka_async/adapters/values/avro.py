"""Avro values to columns (``value.format=avro``, extra ``avro``).

Decides: what counts as a bad value. Owns a bounded cache of parsed schemas per process. Must never let a value decide how much is
allocated: ``avro_schema`` refuses arrays whose elements take no bytes.

Without a registry a value is the bytes of one record in ``value.schema``. With one the id of the writer's schema is looked for
first in the header ``__value_schema_id`` (Confluent Platform 8: a one and the sixteen bytes of a schema's GUID, or a zero byte and
the number in four; the value is then the bare record), and else in front of the value: a zero byte, the number in four bytes, the
record. The columns are then those of ``value.schema`` if that is given too,
else those of the registry's newest schema of the subject at the time the read is planned; each record is resolved from its
writer's schema to that one. A value is bad if it is cut off, if bytes are left over, if it cannot be resolved, and if
the registry says that there is no such id. A registry that does not answer is an error, never a bad value; so is a topic of which
the first values that a process reads, ``FEW`` or more, have no id that the registry knows: it was written without a registry, or by
another one. The number in front may be the first bytes of a bare record, since those can begin with a zero byte, too.

Numbers stand for dates and times until Arrow has them: no object is made for one. Sources: the Avro 1.12 specification;
"Wire Format" of Confluent's schema registry.
"""

import contextlib
import functools
import io
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from struct import Struct
from typing import Any, Final, Self, cast
from uuid import UUID

import pyarrow as pa
from attrs import evolve, field, frozen

from ...application.arrow import array_of
from ...errors import KafkaConfigurationError
from .avro_schema import Types, has_members, in_microseconds, plain, with_members
from .ddl import Fields, shown
from .decoding import BadValueError, Piece, ValueDecoder
from .names import REGISTRY
from .registry import RegisteredSchema, Registry, UnknownSchemaError, UnusableSchemaError
from .secrets import References

try:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType
except ImportError as missing:
    raise ImportError("Avro values need fastavro, which the extra 'avro' brings: pip install '.[avro]' from a clone") from missing
try:
    from fastavro._read_py import schemaless_reader as read_in_python  # no public name leads to it if the other is compiled
except ImportError:
    read_in_python = fastavro.schemaless_reader

NUMBER: Final = 0
GUID: Final = 1
"""The first byte of an id: of a number in four bytes, or of a GUID in sixteen."""
FRAME: Final = Struct(">bI")
GUID_SIZE: Final = 17
FEW: Final = 5
"""Fewer values without an id may be bad values."""
MISSING_SECONDS: Final = 30.0
"""How long an id that the registry did not know is not asked for again: it may be about to learn it from its leader."""
MAX_UNKNOWN: Final = 64
"""Ids that the registry may not know within one batch, until the values are taken for something else than framed Avro."""


@frozen(kw_only=True)
class AvroDecoder(ValueDecoder):
    """Records of one Avro schema, read from whatever schema each was written with."""

    schema: str
    """The reader's schema, as JSON."""
    built: Fields
    """The types that Arrow builds, by column, before they are cast to those of ``columns``."""
    registry: Registry | None = None
    kept: str = ""
    """Id and version of the reader's schema, ``id=7,version=2``, if it is one of a subject."""
    chosen: bool = False
    """Whether the user has chosen that version, and not what was newest."""
    known: tuple[tuple[int | str, str], ...] = field(default=(), repr=False)
    """Schemas of writers, by id, that the driver asked for, as JSON: tasks need not ask for these."""

    @property
    def id_header(self) -> str | None:
        """The header that may hold the id of a schema; none if there is no registry."""
        return None if self.registry is None else f"__{self.part}_schema_id"

    def keeping(self, kept: str) -> Self:
        """Return a decoder whose reader's schema is the one that was newest when a stream began, if the user names no other.

        Raises ``KafkaConfigurationError`` if its columns are other ones: Spark has planned those of the newest.
        """
        if self.registry is None or not self.kept or self.chosen or kept in ("", self.kept):
            return self
        match = _KEPT.fullmatch(kept)
        if match is None:
            raise KafkaConfigurationError(f"checkpoint: {kept!r} is not like 'id=7,version=2'")
        schema, built = _reader_of(self.registry, int(match[1]), dict(self.known).get(int(match[1])))
        there = dict(in_microseconds(built))
        for name, kind in self.columns:
            if there.get(name) != kind:
                was = "not there" if name not in there else shown(there[name])
                begun, newest = (text.replace(",", ", ").replace("=", " ") for text in (kept, self.kept))
                raise KafkaConfigurationError(
                    f"the stream began with the schema of {begun}, in which field {name!r} was {was}, and in the newest, {newest}, "
                    f"it is {shown(kind)}; {self.part}.schema.registry.version={match[2]} goes on as before, and another version "
                    "begins to read with that one"
                )
        return evolve(self, schema=schema, built=built, kept=kept)

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values decoded, each by itself.

        Raises ``KafkaConfigurationError`` if the first values of a topic have no id, ``RegistryError`` if the registry cannot
        be asked.
        """
        read = _Reader(self)
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
        if self.registry is not None:
            _check_ids(self, topic, len(listed) - values.null_count, read)
        types = dict(self.built)
        columns = [(name, types[name], kind) for name, kind in self.columns]
        try:
            arrays = [_array(records, *column) for column in columns]
        except (pa.ArrowException, OverflowError):
            _leave_out(records, columns, bad)
            arrays = [_array(records, *column) for column in columns]
        return Piece(arrays=arrays, bad=bad)


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

    def __init__(self, decoder: AvroDecoder) -> None:
        self._decoder = decoder
        self._schema = _parsed(decoder.schema, decoder.schema)
        self._known = dict(decoder.known)
        self.found = False
        """Whether a value had an id that the registry knows."""
        self.unknown: set[str | int] = set()
        self.unusable = ""
        """Why values cannot be read with a schema that the registry does have."""

    def __call__(self, value: bytes, header: bytes | None) -> Mapping[str, Any]:
        """Return the record in a value. Raises ``BadValueError``."""
        data = io.BytesIO(value)
        writer = self._schema
        if (registry := self._decoder.registry) is not None:
            writer = self._writer(registry, _in_front(data) if header is None else _in_header(header))
        reader = None if writer is self._schema else self._schema.parsed
        try:
            record: Any = writer.read(data, writer.parsed, reader)
        except EOFError:
            raise BadValueError("it is cut off") from None
        except Exception as error:  # fastavro has no base class of its own; wrong bytes raise whatever they meet
            raise BadValueError(f"it is not a record of the schema ({type(error).__name__})") from None
        if left := len(value) - data.tell():
            raise BadValueError(f"{left} bytes are left over")
        return cast(Mapping[str, Any], record)  # the schema is a record's

    def _writer(self, registry: Registry, name: str | int) -> "_Schema":
        """Return the schema with an id. Raises ``BadValueError`` if the registry has none, or none that values are read with."""
        if (text := self._known.get(name)) is not None:
            self.found = True
            return _parsed(text, self._decoder.schema)
        if _missing.get((registry, name), -inf) < time.monotonic() - MISSING_SECONDS:
            try:
                writer = _writer(registry, name, self._decoder.schema)
                if isinstance(writer, str):
                    self.unusable = writer
                    raise BadValueError(writer)
            except UnknownSchemaError:
                _note_missing(registry, name)
            else:
                self.found = True
                return writer
        self.unknown.add(name)
        if len(self.unknown) > MAX_UNKNOWN:
            raise KafkaConfigurationError(
                f"the registry knows none of {MAX_UNKNOWN} ids in one batch; are the values in Confluent's wire format?"
            )
        raise BadValueError(f"the registry has no schema {name}")


def _in_front(data: io.BytesIO) -> int:
    head = data.read(FRAME.size)
    if len(head) < FRAME.size or head[0] != NUMBER:
        raise BadValueError("it does not begin with a zero byte and the id of a schema")
    number: int = FRAME.unpack(head)[1]
    return number


def _in_header(header: bytes) -> str | int:
    if len(header) == FRAME.size and header[0] == NUMBER:
        number: int = FRAME.unpack(header)[1]
        return number
    if len(header) == GUID_SIZE and header[0] == GUID:
        return str(UUID(bytes=header[1:]))
    raise BadValueError("the header holds no id of a schema")


_without_ids: dict[tuple[AvroDecoder, str], int | None] = {}
"""How many values of a topic this process has seen before the first with a known id; ``None``: it has seen such a one."""
_missing: dict[tuple[Registry, str | int], float] = {}
"""Ids that a registry did not know, and when."""
_MOST: Final = 1000


def _note_missing(registry: Registry, name: str | int) -> None:
    if len(_missing) >= _MOST:
        _missing.clear()
    _missing[registry, name] = time.monotonic()


def _check_ids(decoder: AvroDecoder, topic: str, count: int, read: _Reader) -> None:
    """Raise ``KafkaConfigurationError`` if no value of a topic had an id that the registry knows so far, in whichever batches."""
    if (before := _without_ids.get((decoder, topic), 0)) is None:
        return
    if len(_without_ids) >= _MOST:
        _without_ids.clear()
    count += before
    _without_ids[decoder, topic] = None if read.found else count
    if not read.found and count >= FEW:
        if read.unusable:
            raise KafkaConfigurationError(f"topic {topic!r}: no {decoder.part} can be read; {read.unusable}")
        unknown = f" (it has no schema {min(map(str, read.unknown))})" if read.unknown else ""
        raise KafkaConfigurationError(
            f"topic {topic!r}: none of {count} {decoder.part}s has the id of a schema that the registry knows{unknown}, in the "
            f"header {decoder.id_header} or in front; if they were written without one, give {decoder.part}.schema alone"
        )


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


_KEPT: Final = re.compile(r"id=(\d+),version=(\d+)")


@functools.lru_cache(maxsize=100)
def _reader_of(registry: Registry, number: int, known: str | None) -> tuple[str, Fields]:
    """Return a schema for reading, and the types that Arrow builds. ``known``: the schema, if it was asked for before."""
    where = f"schema {number}"
    schema, named = plain(RegisteredSchema(json.loads(known)) if known is not None else registry.schema(number), where)
    return json.dumps(schema), Types(named, where).record(schema)


@functools.lru_cache(maxsize=100)
def _parsed(text: str, reader: str) -> "_Schema":
    """Return a writer's schema for a reader's; the same object for the same texts, which are read without a reader's schema."""
    return _parse(_with_members(json.loads(text), reader if reader != text else ""), "value.schema")


def _with_members(schema: Any, reader: str) -> Any:
    """Return a schema whose values say which member of a union they are; ``reader``: the other schema, if it is not the same."""
    like = json.loads(reader) if reader else schema
    return with_members(schema, like) if has_members(like) else schema


@frozen(eq=False)
class _Schema:
    """A schema as fastavro takes it, and what reads a value that was written with it."""

    parsed: Any
    read: Callable[[io.BytesIO, Any, Any], Any]


def _parse(schema: Any, where: str) -> _Schema:
    try:
        parsed = fastavro.parse_schema(schema)
        # Of a type that holds itself, values say how deep they go. The compiled reader follows until the process breaks down, at
        # some 20,000 levels; the one in Python until RecursionError.
        return _Schema(parsed, read_in_python if _holds_itself(schema) else fastavro.schemaless_reader)
    except (SchemaParseException, UnknownType, TypeError, KeyError, AttributeError) as error:
        raise KafkaConfigurationError(f"{where} is not an Avro schema: {type(error).__name__}: {error}") from None


def _holds_itself(schema: Any, within: tuple[str, ...] = ()) -> bool:
    if isinstance(schema, str):
        return schema in within
    if isinstance(schema, list):
        return any(_holds_itself(part, within) for part in schema)
    parts = [part["type"] for part in schema.get("fields", ())] + [schema[part] for part in ("items", "values") if part in schema]
    return any(_holds_itself(part, (*within, schema.get("name", ""))) for part in parts)


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
    kept = f"id={given.id},version={given.version}" if None not in (given.id, given.version) else ""
    common = {**common, "registry": registry, "kept": kept, "chosen": f"{REGISTRY}version" in options, "known": known}
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
