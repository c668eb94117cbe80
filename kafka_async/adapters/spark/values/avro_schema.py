"""Avro schemas: what is read with them, and the Spark type of each of theirs.

Decides: which Spark type an Avro type becomes (as ``from_avro`` does), and which schemas are refused. Owns nothing. Must never
read a value.

Sources: the Avro 1.12 specification, "Schema Declaration" and "Logical Types"; the tables of types in Spark's Avro guide.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ....errors import KafkaConfigurationError
from .ddl import TIMESTAMP, TIMESTAMP_NTZ, Fields, array_of, check_names, decimal
from .registry import Found

LOGICAL: Final = "kafka_async.logical"
"""Where ``plain`` puts the logical type of a number."""

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
    ("int", "date"): (pa.date32(), pa.date32()),
    ("long", "timestamp-millis"): (pa.timestamp("ms", tz="UTC"), TIMESTAMP),
    ("long", "timestamp-micros"): (TIMESTAMP, TIMESTAMP),
    ("long", "local-timestamp-millis"): (pa.timestamp("ms"), TIMESTAMP_NTZ),
    ("long", "local-timestamp-micros"): (TIMESTAMP_NTZ, TIMESTAMP_NTZ),
}
"""Type that Arrow builds from the numbers, and Spark's."""
_NAMED: Final = ("record", "error", "enum", "fixed")
_WIDER: Final = {
    frozenset(("int", "long")): "long",
    frozenset(("float", "double")): "double",
}


def plain(found: Found, where: str) -> tuple[Any, dict[str, Any]]:
    """Return a schema without logical types but decimals, so that numbers stay numbers, and its named types by full name.

    The other logical types go under the key ``LOGICAL``, which Avro readers pass over. Names become full ones. Raises
    ``KafkaConfigurationError`` for arrays whose elements take no bytes: a count of 2^60 of them would fit in a few.
    """
    named: dict[str, Any] = {}
    return _Plain(named, {_full_name(each): each for each in found.references}, where).schema(found.schema, ""), named


def _full_name(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    name, space = str(schema.get("name", "")), str(schema.get("namespace") or "")
    return name if "." in name or not space else f"{space}.{name}"


class _Plain:
    def __init__(self, named: dict[str, Any], references: dict[str, Any], where: str) -> None:
        self._named = named
        self._references = references
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
        return self._object(dict(schema), str(kind), space)

    def _by_name(self, name: str, space: str) -> Any:
        """Return the full name of a type; its definition if it comes from a reference and is met for the first time."""
        for full in (f"{space}.{name}", name):
            if full in self._named:
                return full
            if full in self._references:
                return self.schema(self._references.pop(full), "")
        return name

    def _object(self, found: dict[str, Any], kind: str, space: str) -> Any:
        if kind in _NAMED:
            space = self._name(found, space)
        if "logicalType" in found and found["logicalType"] != "decimal":
            found[LOGICAL] = found.pop("logicalType")
        if kind in ("record", "error"):
            found["fields"] = [self._field(part, space) for part in _list(found.get("fields"), self._where)]
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
        return {**{key: value for key, value in part.items() if key != "logicalType"}, "type": self.schema(part.get("type"), space)}

    def _name(self, found: dict[str, Any], space: str) -> str:
        name = str(found.get("name", ""))
        space = name.rpartition(".")[0] if "." in name else str(found.get("namespace", space) or "")
        found["name"] = full = name if "." in name or not space else f"{space}.{name}"
        found.pop("namespace", None)
        self._named[full] = found
        return space

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


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise KafkaConfigurationError(f"{where}: expected a list of fields")
    return value


class Types:
    """Arrow types for Avro types, pairs of what is built and what Spark gets."""

    def __init__(self, named: Mapping[str, Any], where: str) -> None:
        self._named = named
        self._where = where
        self._open: list[str] = []

    def record(self, schema: Mapping[str, Any]) -> tuple[Fields, Fields]:
        """Return the columns of a record as they are built, and as Spark gets them."""
        name = str(schema["name"])
        if name in self._open:
            raise self._refused(f"record {name} contains itself")
        self._open.append(name)
        found = [(str(part["name"]), self.pair(part["type"], str(part["name"]))) for part in schema["fields"]]
        self._open.pop()
        check_names((part for part, _ in found), self._where)
        return tuple((part, pair[0]) for part, pair in found), tuple((part, pair[1]) for part, pair in found)

    def pair(self, schema: Any, place: str) -> tuple[Any, Any]:
        """Return both types of an Avro type. Raises ``KafkaConfigurationError`` for one that has none in Spark."""
        if isinstance(schema, list):
            return self._union(schema, place)
        if isinstance(schema, str) and schema in _PRIMITIVE:
            return _PRIMITIVE[schema], _PRIMITIVE[schema]
        if isinstance(schema, str):
            schema = self._found(schema, place)
        kind = schema["type"]
        if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            found = decimal(int(schema["precision"]), int(schema.get("scale", 0)), f"{self._where}, field {place!r}")
            return found, found
        if (times := _TIMES.get((kind, str(schema.get(LOGICAL))))) is not None:
            return times
        return self._nested(schema, kind, place)

    def _nested(self, schema: Mapping[str, Any], kind: str, place: str) -> tuple[Any, Any]:
        match kind:
            case "record":
                built, wanted = self.record(schema)
                return pa.struct(list(built)), pa.struct(list(wanted))
            case "array":
                built, wanted = self.pair(schema["items"], place)
                return array_of(built), array_of(wanted)
            case "map":
                built, wanted = self.pair(schema["values"], place)
                return pa.map_(pa.string(), built), pa.map_(pa.string(), wanted)
            case "enum":
                return pa.string(), pa.string()
            case "fixed":
                return pa.binary(), pa.binary()
            case _:
                return self.pair(kind, place)

    def _union(self, schema: Sequence[Any], place: str) -> tuple[Any, Any]:
        parts = [part for part in schema if part != "null"]
        if len(parts) == 1:
            return self.pair(parts[0], place)
        wider = _WIDER.get(frozenset(part for part in parts if isinstance(part, str))) if len(parts) == 2 else None
        if wider is None:
            raise self._refused(f"field {place!r} is a union of several types")
        return _PRIMITIVE[wider], _PRIMITIVE[wider]

    def _found(self, name: str, place: str) -> Any:
        if name not in self._named:
            raise self._refused(f"field {place!r} is {name!r}")
        return self._named[name]

    def _refused(self, what: str) -> KafkaConfigurationError:
        return KafkaConfigurationError(f"{self._where}: {what}, which has no column type")
