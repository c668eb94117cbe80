"""Avro schemas: what is read with them, and the Spark type of each of theirs.

Sources: the Avro 1.12 specification, "Schema Declaration" and "Logical Types"; the tables of types in Spark's Avro guide.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import gcd
from typing import Any, Final

import pyarrow as pa

from ...errors import KafkaConfigurationError
from .ddl import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ, Fields, check_names, decimal, list_type
from .registry import RegisteredSchema

LOGICAL: Final = "kafka_async.logical"
"""Where ``plain`` puts the logical type of a number."""
DECIMAL: Final = "kafka_async.decimal"
"""What ``plain`` calls the logical type of a decimal. Avro readers make numbers of those that they know, as the writer's schema has
it: of none if it has bytes there, and rounded to its digits."""
TIME: Final = "kafka_async.time"
"""What ``plain`` calls the logical type of a number in some unit of time: it is read in the unit of the reader's schema."""

_PRIMITIVE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): TIMESTAMP_NTZ,
}
_UNITS: Final = {
    ("int", "date"): ("instant", 86_400_000_000_000),
    ("long", "timestamp-millis"): ("instant", 1_000_000),
    ("long", "timestamp-micros"): ("instant", 1_000),
    ("long", "timestamp-nanos"): ("instant", 1),
    ("long", "local-timestamp-millis"): ("instant", 1_000_000),
    ("long", "local-timestamp-micros"): ("instant", 1_000),
    ("long", "local-timestamp-nanos"): ("instant", 1),
    ("int", "time-millis"): ("time of day", 1_000_000),
    ("long", "time-micros"): ("time of day", 1_000),
}
"""What the numbers of some types count, and in how many nanoseconds. Registries do not compare them between versions."""
_PROMOTED: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""Types that may have been written where another one is read (Avro 1.12, "Schema Resolution")."""
_NAMED: Final = ("record", "error", "enum", "fixed")
_WIDER: Final = {
    frozenset(("int", "long")): "long",
    frozenset(("float", "double")): "double",
}


def plain(found: RegisteredSchema, where: str) -> tuple[Any, dict[str, Any]]:
    """Return a schema whose only logical types are ``DECIMAL`` and ``TIME``, and its named types by full name.

    What they were, except for decimals, is under the key ``LOGICAL``, which Avro readers pass over: numbers stay numbers.
    Names become full ones. Raises ``KafkaConfigurationError`` for arrays whose elements take no bytes: a count of 2^60 of them
    would fit in a few.
    """
    named: dict[str, Any] = {}
    defined: dict[str, tuple[Any, str]] = {}
    _define(found.references, "", defined)
    return _Plain(named, defined, where).schema(found.schema, ""), named


def _full_name(schema: Mapping[str, Any], space: str = "") -> str:
    """Return the name of a type with its namespace; ``space``: that of what the type stands in."""
    name, space = str(schema.get("name", "")), str(schema.get("namespace", space) or "")
    return name if "." in name or not space else f"{space}.{name}"


def _define(schema: Any, space: str, defined: dict[str, tuple[Any, str]]) -> None:
    """Have ``defined`` get the types that have a name, wherever they are defined in references, and the namespace there."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _define(part, space, defined)
    if not isinstance(schema, dict):
        return
    if schema.get("type") in _NAMED:
        full = _full_name(schema, space)
        defined.setdefault(full, (schema, space))
        space = full.rpartition(".")[0]
    fields = schema.get("fields")
    types = [part.get("type") for part in fields if isinstance(part, dict)] if isinstance(fields, list) else []
    for inner in (*types, *(schema.get(name) for name in ("type", "items", "values"))):
        _define(inner, space, defined)


class _Plain:
    def __init__(self, named: dict[str, Any], defined: Mapping[str, tuple[Any, str]], where: str) -> None:
        self._named = named
        self._defined = defined
        """What the references define, and the namespace that it stands in."""
        self._where = where

    def schema(self, schema: Any, space: str) -> Any:
        if isinstance(schema, list):
            return [self.schema(part, space) for part in schema]
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if not isinstance(schema, dict):
            raise KafkaConfigurationError(f"{self._where}: expected an Avro schema, found {schema!r}")
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.schema(kind, space)  # {"type": {"type": ...}}: only a longer way to say the inner one
        full = _full_name(schema, space) if kind in _NAMED else ""
        if full in self._named and self._defined.get(full, (None, ""))[0] is schema:
            return full  # it was put where it was first used, and what it is defined in comes later
        return self._object(dict(schema), str(kind), space)

    def _by_name(self, name: str, space: str) -> Any:
        """Return the full name of a type; its definition if it comes from a reference and is met for the first time."""
        for full in (f"{space}.{name}", name):
            if full in self._named:
                return full
            if full in self._defined:
                return self.schema(*self._defined[full])
        return name

    def _object(self, found: dict[str, Any], kind: str, space: str) -> Any:
        if kind in _NAMED:
            space = self._name(found, space)
        if "logicalType" in found:
            if found["logicalType"] in ("decimal", DECIMAL) and kind in ("bytes", "fixed") and _digits_are_numbers(found):
                found["logicalType"] = DECIMAL
            elif found["logicalType"] != TIME:
                found[LOGICAL] = found.pop("logicalType")
                if _unit(found) is not None:
                    found["logicalType"] = TIME
        if kind in ("record", "error"):
            if not isinstance(fields := found.get("fields"), list):
                raise KafkaConfigurationError(f"{self._where}: expected a list of fields")
            found["fields"] = [self._field(part, space) for part in fields]
        elif kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            found[inner] = self.schema(found.get(inner), space)
            if kind == "array" and self._empty(found[inner]):
                raise KafkaConfigurationError(
                    f"{self._where}: the elements of an array take no bytes, so their number has no limit"
                )
        return found

    def _field(self, part: Any, space: str) -> Any:
        if not isinstance(part, dict):
            raise KafkaConfigurationError(f"{self._where}: expected fields that are objects with name and type")
        # A logical type next to the type of a field, and not within it, is ignored (Avro 1.12, "Logical Types").
        kind = self.schema(part.get("type"), space)
        found = {**{key: value for key, value in part.items() if key != "logicalType"}, "type": kind}
        if type(found.get("default")) is int and isinstance(kind, dict) and kind.get("type") in ("float", "double"):
            with suppress(OverflowError):
                found["default"] = float(found["default"])  # any number may stand there, and fastavro wants one with a point
        return found

    def _name(self, found: dict[str, Any], space: str) -> str:
        """Give a type its full name, and return the namespace of what stands in it."""
        found["name"] = full = _full_name(found, space)
        found.pop("namespace", None)
        self._named[full] = found
        return full.rpartition(".")[0]

    def _empty(self, schema: Any) -> bool:
        """Say whether a value of this type is written with no bytes at all."""
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if not isinstance(schema, dict):
            return False
        if schema["type"] == "fixed":
            return schema.get("size") == 0
        # The fields of a record that is not at its end yet are not known: then it is within itself, and has a byte to say so.
        fields = schema.get("fields", ["?"]) if schema["type"] == "record" else ["?"]
        return schema["type"] == "null" or all(isinstance(part, dict) and self._empty(part["type"]) for part in fields)


def _digits_are_numbers(schema: Mapping[str, Any]) -> bool:
    scale = schema.get("scale", 0)
    return type(schema.get("precision")) is int and type(scale) is int and scale >= 0


def _unit(schema: Any) -> tuple[str, int] | None:
    return _UNITS.get((str(schema.get("type")), str(schema.get(LOGICAL)))) if isinstance(schema, dict) else None


def rate(writer: Any, reader: Any) -> tuple[int, int]:
    """Return by what a writer's number is multiplied, and what it is divided by then, to be one in the unit of the reader's schema.

    One and one if it stays as it is: both have the same unit, or do not both have one, or count different things.
    """
    of_writer, of_reader = _unit(writer), _unit(reader)
    if of_writer is None or of_reader is None or of_writer[0] != of_reader[0]:
        return 1, 1
    common = gcd(of_writer[1], of_reader[1])
    return of_writer[1] // common, of_reader[1] // common


class Types:
    """Arrow types of Avro types, in which arrays are built: times are in the unit of their numbers."""

    def __init__(self, named: Mapping[str, Any], where: str) -> None:
        self._named = named
        self._where = where
        self._open: list[str] = []

    def record(self, schema: Mapping[str, Any]) -> Fields:
        """Return the columns of a record."""
        name = str(schema["name"])
        if name in self._open:
            raise self._refused(f"record {name} contains itself")
        self._open.append(name)
        found = tuple((str(part["name"]), self.kind(part["type"], str(part["name"]))) for part in schema["fields"])
        self._open.pop()
        check_names((part for part, _ in found), self._where)
        return found

    def kind(self, schema: Any, place: str) -> Any:
        """Return the type of an Avro type. Raises ``KafkaConfigurationError`` for one that has none in Spark."""
        if isinstance(schema, list):
            return self._union(schema, place)
        if isinstance(schema, str) and schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if isinstance(schema, str):
            if schema not in self._named:
                raise self._refused(f"field {place!r} is {schema!r}")
            schema = self._named[schema]
        kind = schema["type"]
        if schema.get("logicalType") == DECIMAL:
            precision, scale = schema["precision"], schema.get("scale", 0)
            if scale <= MAX_PRECISION < precision:
                precision = MAX_PRECISION  # Kafka Connect writes 64 where it knows of none
            return decimal(precision, scale, f"{self._where}, field {place!r}")
        return _TIMES.get((kind, str(schema.get(LOGICAL)))) or self._nested(schema, kind, place)

    def _nested(self, schema: Mapping[str, Any], kind: str, place: str) -> Any:
        match kind:
            case "record":
                return pa.struct(list(self.record(schema)))
            case "array":
                return list_type(self.kind(schema["items"], place))
            case "map":
                return pa.map_(pa.string(), self.kind(schema["values"], place))
            case "enum":
                return pa.string()
            case "fixed":
                return pa.binary()
            case _:
                return self.kind(kind, place)

    def _union(self, schema: Sequence[Any], place: str) -> Any:
        if members := _members(schema):
            return pa.struct([(f"member{number}", self.kind(part, place)) for number, part in enumerate(members)])
        parts = [part for part in schema if part != "null"]
        if not parts:
            raise self._refused(f"field {place!r} is always null")
        return self.kind(parts[0], place) if len(parts) == 1 else _PRIMITIVE[_wider(parts)]

    def _refused(self, what: str) -> KafkaConfigurationError:
        return KafkaConfigurationError(f"{self._where}: {what}, which has no column type")


# --- unions ----------------------------------------------------------------------------------------------------------------------


def _members(schema: Any) -> list[Any]:
    """Return the types of a union of which a value has one, without null; none if it is not a union, or one of them is enough."""
    parts = [part for part in schema if part != "null"] if isinstance(schema, list) else []
    return parts if len(parts) > 1 and not _wider(parts) else []


def _wider(parts: Sequence[Any]) -> str:
    """Return the type that holds the values of both types of a union; nothing if there is none."""
    return _WIDER.get(frozenset(part for part in parts if isinstance(part, str)), "") if len(parts) == 2 else ""


def has_members(schema: Any) -> bool:
    """Return whether there is a union of several types somewhere in a schema."""
    if _members(schema):
        return True
    if isinstance(schema, list):
        return any(map(has_members, schema))
    if not isinstance(schema, dict):
        return False
    inner = (
        *(part["type"] for part in schema.get("fields", ())),
        *(schema[name] for name in ("items", "values") if name in schema),
    )
    return any(map(has_members, inner))


def with_members(schema: Any, reader: Any) -> Any:
    """Return a writer's schema, or the reader's own, with a record around each member of the unions that ``reader`` has.

    A record of one field has the bytes of that field, so the same values are read, and what is read says which member it is:
    ``{"member1": "x"}``, as ``from_avro`` has it. Where the reader has a union and the writer one type, that is such a record too.
    """
    members = _Members(_named(schema, {}), _named(reader, {}), own=schema is reader)
    return members.defined(members.within(schema, reader, ""), set())


def _named(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return the named types of a plain schema; ``found`` gets them."""
    for part in schema if isinstance(schema, list) else [schema]:
        if isinstance(part, dict):
            if "name" in part:
                found[part["name"]] = part
            for inner in (*(each["type"] for each in part.get("fields", ())), part.get("items"), part.get("values")):
                _named(inner, found)
    return found


class _Members:
    def __init__(self, writers: Mapping[str, Any], readers: Mapping[str, Any], *, own: bool) -> None:
        self._writers = writers
        self._readers = readers
        self._own = own
        self._records: dict[str, Any] = {}
        """What the writer's records become, by name. Where they are defined may be a part that the reader does not have."""

    def defined(self, schema: Any, known: set[str]) -> Any:
        """Return a schema with each named type where it is met for the first time; ``known``: those that were met."""
        if isinstance(schema, list):
            return [self.defined(part, known) for part in schema]
        name = schema if isinstance(schema, str) else schema.get("name")
        if name in self._writers:
            if name in known:
                return name
            known.add(name)
            schema = self._records.get(name, self._writers[name])
        if not isinstance(schema, dict):
            return schema
        found = schema | {inner: self.defined(schema[inner], known) for inner in ("items", "values") if inner in schema}
        if "fields" in schema:
            found["fields"] = [{**part, "type": self.defined(part["type"], known)} for part in schema["fields"]]
        return found

    def within(self, schema: Any, reader: Any, place: str) -> Any:
        """Return what a type of the writer is in place of it, a record by its name. ``place``: where it stands, as the reader
        names it.
        """
        if isinstance(reader, str):
            reader = self._readers.get(reader, reader)
        if members := _members(reader):
            branches = schema if isinstance(schema, list) else [schema]
            found = [part if part == "null" else self._member(part, members, place) for part in branches]
            return found if isinstance(schema, list) else found[0]
        if isinstance(schema, list):
            return [part if part == "null" else self.within(part, reader, place) for part in schema]
        if isinstance(reader, list):
            reader = next((part for part in reader if part != "null"), None)
            reader = self._readers.get(reader, reader) if isinstance(reader, str) else reader
        if not isinstance(reader, dict):
            return schema
        name = schema if isinstance(schema, str) else schema.get("name")
        if "fields" in reader and "fields" in self._writers.get(name, ()):
            return self._record(name, self._readers.get(name, reader))
        return self._nested(schema, reader, place) if isinstance(schema, dict) else schema

    def _record(self, name: str, reader: Mapping[str, Any]) -> str:
        """Have a record of the writer read as one of the reader's, wherever it is defined."""
        if name not in self._records:
            self._records[name] = self._writers[name]  # it may be within itself
            self._records[name] = self._nested(self._writers[name], reader, "")
        return name

    def _nested(self, schema: Mapping[str, Any], reader: Mapping[str, Any], place: str) -> Any:
        found = dict(schema)
        for inner in ("items", "values"):
            if inner in schema and inner in reader:
                found[inner] = self.within(schema[inner], reader[inner], f"{place}_{inner}")
        if "fields" in schema and "fields" in reader:
            known = {name: part for part in reader["fields"] for name in (part["name"], *part.get("aliases", ()))}
            found["fields"] = [
                {
                    **part,
                    "type": self.within(
                        part["type"], known[part["name"]]["type"], f"{reader['name']}_{known[part['name']]['name']}"
                    ),
                }
                if part["name"] in known
                else part
                for part in schema["fields"]
            ]
        return found

    def _member(self, part: Any, members: Sequence[Any], place: str) -> dict[str, Any]:
        keys = [self._key(each, self._readers) for each in members]
        key = self._key(part, self._writers)
        name = f"{place}_{key}".replace(".", "_")
        inner = self.within(part, members[keys.index(key)], name) if key in keys else part
        if not self._own:
            return {"type": "record", "name": name, "fields": [{"name": "value", "type": inner}]}
        number = keys.index(key)
        promoted = [f"{place}_{other}".replace(".", "_") for other in _PROMOTED.get(key, ()) if other not in keys]
        field = {"name": f"member{number}", "aliases": ["value"], "type": inner}
        return {"type": "record", "name": name, "aliases": promoted, "fields": [field]}

    @staticmethod
    def _key(schema: Any, named: Mapping[str, Any]) -> str:
        """Return what tells a type from the others of a union: its name, or what it is (Avro 1.12, "Unions")."""
        schema = named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, dict):
            return str(schema["name"]).rpartition(".")[2] if "name" in schema else str(schema["type"])
        return str(schema)


# --- defaults --------------------------------------------------------------------------------------------------------------------


def set_defaults(parsed: Any, schema: Any) -> None:
    """Give the fields of ``parsed``, which is ``with_members`` of ``schema`` as fastavro takes it, what their defaults mean.

    Schemas have them in JSON, and fastavro hands out what it finds. One that is none of its type is taken away: only a value that
    needs it cannot be read.
    """
    named = _named(schema, {})
    for name, record in _named(parsed, {}).items():
        for part in record.get("fields", ()):
            if "default" in part:
                kind = next(each["type"] for each in named[name]["fields"] if each["name"] == part["name"])
                try:
                    part["default"] = _meant(part["default"], kind, named)
                except (ValueError, OverflowError):
                    del part["default"]


def _meant(default: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """Return what a default means, as a value of its type is read.

    Raises ``ValueError`` if it is none of the type, ``OverflowError`` for a number that is too large.
    """
    if isinstance(schema, list):
        return _meant_of_union(default, schema, named)
    schema = named.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    match schema["type"], default:
        case ("null", None) | ("boolean", bool()) | ("string" | "enum", str()):
            return default
        case "int" | "long", int() if not isinstance(default, bool):
            return default
        case "float" | "double", int() | float() if not isinstance(default, bool):
            return float(default)
        case "bytes" | "fixed", str():
            return default.encode("latin-1")  # a character stands for a byte (Avro 1.12, "Complex Types")
        case "array", list():
            return [_meant(each, schema["items"], named) for each in default]
        case "map", dict():
            return {key: _meant(each, schema["values"], named) for key, each in default.items()}
        case "record" | "error", dict():
            return {part["name"]: _meant_of_field(default, part, named) for part in schema["fields"]}
    raise ValueError(f"expected a default of type {schema['type']!r}")


def _meant_of_field(default: Mapping[str, Any], part: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    """Return what a record's default means for one of its fields, which may have one of its own."""
    if part["name"] not in default and "default" not in part:
        raise ValueError(f"expected a default with {part['name']!r}")
    return _meant(default.get(part["name"], part.get("default")), part["type"], named)


def _meant_of_union(default: Any, schema: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return a default as the first of the types that has such values reads it."""
    members = _members(schema)
    for part in schema:
        with suppress(ValueError, OverflowError):
            found = _meant(default, part, named)
            return {f"member{members.index(part)}": found} if part in members else found
    raise ValueError("expected a default of one of the types of a union")


def in_microseconds(columns: Fields) -> Fields:
    """Return the columns with times in microseconds, as Spark has them."""
    return tuple((name, _in_microseconds(kind)) for name, kind in columns)


def _in_microseconds(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _in_microseconds(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _in_microseconds(kind.item_type))
    return list_type(_in_microseconds(kind.value_type)) if pa.types.is_list(kind) else kind
