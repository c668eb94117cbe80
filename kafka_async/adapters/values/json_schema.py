"""The fields that a JSON Schema describes, as Confluent's serializers write them.

``connect.type`` and the titles of Kafka Connect's logical types win over what the schema says otherwise. What has no type of a
column (several types, anything at all, what contains itself) is STRING, which holds the JSON as it is; ``doubts`` says where that
was done. Values are not validated: a field of another type counts as bad, rules such as ``minimum`` do not.

Sources: JSON Schema 2020-12; the page on JSON Schema of Confluent's schema registry; Kafka Connect's ``JsonSchemaData``.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ...errors import KafkaConfigurationError
from ...values import define, field, frozen
from .ddl import TIMESTAMP, list_type, shown
from .inference import DEEPEST
from .registry import RegisteredSchema

_SIMPLE: Final = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_CONNECT: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bytes": pa.binary(),
}
_FORMATS: Final = {"date-time": TIMESTAMP, "date": pa.date32()}
_OF_CONNECT: Final = "org.apache.kafka.connect.data."
"""What the titles of logical types begin with. Dates and times are then numbers, in days and milliseconds, and stay numbers."""

_ITSELF: Final = "contains itself"
"""What stands for a schema within itself."""
MOST_PARTS: Final = 10_000
"""Schemas that are looked at: where parts refer to each other again and again, a few of them describe fields without number."""


def fields_of(found: RegisteredSchema, where: str) -> tuple[Any, tuple[str, ...]]:
    """Return the ``pyarrow.Schema`` of the values, and a sentence for each field that is STRING for want of a type.

    ``found``: texts, and those that are referred to by name. Raises ``KafkaConfigurationError`` for what describes no object.
    """
    schema = _loaded(found.schema, where)
    others = {name: _loaded(text, where) for name, text in found.references}
    reader = _SchemaReader(others, where)
    try:
        parts = reader.properties(*reader.resolved(schema, _Way(schema, (schema,))))
        if not parts:
            raise KafkaConfigurationError(f"{where}: expected a JSON Schema of an object with properties")
        kinds = [(name, reader.kind(part, way, name, 1)) for name, (part, way) in parts.items()]
    except RecursionError:  # such as ``allOf`` within ``allOf``, a thousand times
        raise KafkaConfigurationError(f"{where} is nested too deeply") from None
    return pa.schema(kinds), tuple(reader.doubts)


def _loaded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise KafkaConfigurationError(f"{where} is not JSON") from None


@frozen(eq=False)
class _Way:
    """How a schema was come to."""

    document: Any
    """The one that it is in."""
    around: tuple[Any, ...]
    """What was referred to on the way; a reference to one of these leads in a circle."""


@define(eq=False)
class _SchemaReader:
    others: Mapping[str, Any]
    where: str
    doubts: list[str] = field(factory=list)
    looked_at: int = 0

    def kind(self, schema: Any, way: _Way, place: str, depth: int) -> Any:
        """Return the type of what a schema describes."""
        schema, way = self.resolved(schema, way)
        if schema is _ITSELF:
            return self._text(place, _ITSELF)
        if not isinstance(schema, dict) or depth >= DEEPEST:
            return self._text(place, "may be anything" if depth < DEEPEST else "is nested too deeply")
        if (told := _told(schema)) is not None:
            return told
        names = _types(schema)
        if names == ["object"]:
            return self._object(schema, way, place, depth)
        if names == ["array"]:
            items = schema.get("items")
            if not isinstance(items, dict):
                return self._text(place, "is an array of anything")
            return list_type(self.kind(items, way, f"{place}[]", depth + 1))
        if names == ["string"]:
            return _FORMATS.get(str(schema.get("format")), pa.string())
        if len(names) == 1:
            return _SIMPLE[names[0]]
        if set(names) == {"integer", "number"}:
            return pa.float64()
        return self._text(place, f"may be {' or '.join(names)}" if names else "may be anything")

    def _object(self, schema: Any, way: _Way, place: str, depth: int) -> Any:
        if parts := self.properties(schema, way):
            return pa.struct([(name, self.kind(part, of, f"{place}.{name}", depth + 1)) for name, (part, of) in parts.items()])
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and others:
            return pa.map_(pa.string(), self.kind(others, way, f"{place}.*", depth + 1))
        return self._text(place, "is an object of anything")

    def properties(self, schema: Any, way: _Way) -> dict[str, tuple[Any, _Way]]:
        """Return the properties of an object, and how each was come to, in the order of ``connect.index``."""
        if not isinstance(schema, dict):
            return {}
        found: dict[str, tuple[Any, _Way]] = {}
        for part in schema.get("allOf") or ():
            found |= self.properties(*self.resolved(part, way))
        given = schema.get("properties")
        found |= {name: (part, way) for name, part in given.items()} if isinstance(given, dict) else {}
        return dict(sorted(found.items(), key=lambda each: _index(each[1][0])))

    def resolved(self, schema: Any, way: _Way) -> tuple[Any, _Way]:
        """Return what a schema stands for, without the null that it may be, and how this was come to.

        Raises ``KafkaConfigurationError`` after ``MOST_PARTS`` of them.
        """
        self.looked_at += 1
        if self.looked_at > MOST_PARTS:
            text = f"{self.where} describes too many fields: its parts refer to each other again and again, or it is very large"
            raise KafkaConfigurationError(text)
        for _ in range(DEEPEST):
            if not isinstance(schema, dict):
                break
            if isinstance(schema.get("$ref"), str):
                schema, way = self._referred(schema["$ref"], way)
                continue
            choices = next((schema[word] for word in ("oneOf", "anyOf") if isinstance(schema.get(word), list)), None)
            some = [part for part in choices or () if not (isinstance(part, dict) and part.get("type") == "null")]
            if len(some) != 1:
                break
            schema = some[0]
        return schema, way

    def _referred(self, name: str, way: _Way) -> tuple[Any, _Way]:
        root = way.document
        document, _, pointer = name.partition("#")
        if document:
            if document not in self.others:
                raise KafkaConfigurationError(f"{self.where} refers to {document!r}, which the registry did not send")
            root = self.others[document]
        found = root
        for step in filter(None, pointer.split("/")):
            # In a URI "Page<A>" is "Page%3CA%3E" (RFC 6901, 6), which may be the name itself, and "a/b" is "a~1b" or "a%2Fb".
            names = [each.replace("~1", "/").replace("~0", "~") for each in (step, unquote(step))]
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, dict) and (there := [each for each in names if each in found]):
                found = found[there[0]]
            else:
                raise KafkaConfigurationError(f"{self.where}: there is nothing at {name!r}")
        if any(found is each for each in way.around):
            return _ITSELF, way
        return found, _Way(root, (*way.around, found))

    def _text(self, place: str, why: str) -> Any:
        self.doubts.append(f"field {place!r} {why}: {shown(pa.string())}")
        return pa.string()


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that values may have, without null."""
    given = schema.get("type", "object" if "properties" in schema else [])
    if "enum" in schema and "type" not in schema:
        given = ["string"] if all(isinstance(each, str | None) for each in schema["enum"]) else []
    return [str(name) for name in (given if isinstance(given, list) else [given]) if name in (*_SIMPLE, "array", "object")]


def _told(schema: Mapping[str, Any]) -> Any:
    """Return the type that Kafka Connect has noted; ``None`` if it has not."""
    if str(schema.get("title", "")).startswith(_OF_CONNECT) and schema.get("type") != "string":
        return pa.int64() if schema.get("type") == "integer" else pa.float64() if schema.get("type") == "number" else None
    return _CONNECT.get(str(schema.get("connect.type")))


def _index(schema: Any) -> float:
    found = schema.get("connect.index") if isinstance(schema, dict) else None
    return found if isinstance(found, int) else float("inf")
