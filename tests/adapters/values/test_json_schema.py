"""The fields that a JSON Schema in a registry describes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install '.[json]'")

from kafka_async.adapters.values.framed import FRAME  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.json_schema import fields_of  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.registry import RegisteredSchema  # noqa: E402  # beside the others
from kafka_async.errors import KafkaConfigurationError  # noqa: E402  # beside the others

from .batches import decoder, records  # noqa: E402  # needs pyarrow
from .registry_server import registry_server  # noqa: E402  # beside the others


def described(part: Any, *, more: Any = None, others: tuple[tuple[str, Any], ...] = ()) -> tuple[Any, tuple[str, ...]]:
    """Return the type of a property ``a``, and what is doubtful."""
    schema = {"type": "object", "properties": {"a": part}, **(more or {})}
    found, doubts = fields_of(RegisteredSchema(json.dumps(schema), tuple((name, json.dumps(each)) for name, each in others)), "s")
    return found.field("a").type, doubts


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "integer", "connect.type": "int16"}, pa.int16()),
        ({"type": "number"}, pa.float64()),
        ({"type": ["integer", "number", "null"]}, pa.float64()),
        ({"type": "string"}, pa.string()),
        ({"type": "string", "connect.type": "bytes"}, pa.binary()),
        ({"type": "string", "format": "date-time"}, pa.timestamp("us", tz="UTC")),
        ({"type": "string", "format": "date"}, pa.date32()),
        ({"type": "string", "format": "email"}, pa.string()),
        ({"enum": ["red", "blue"]}, pa.string()),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, pa.int64()),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, pa.date32()),
        ({"type": ["null", "string"], "default": None}, pa.string()),
        ({"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp"}, pa.int64()),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(pa.field("element", pa.int64()))),
        ({"type": "object", "additionalProperties": {"type": "number"}}, pa.map_(pa.string(), pa.float64())),
        ({"properties": {"y": {"type": "string"}, "x": {"type": "integer"}}}, pa.struct([("y", pa.string()), ("x", pa.int64())])),
        (
            {"properties": {"y": {"type": "string", "connect.index": 1}, "x": {"type": "integer", "connect.index": 0}}},
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
        ),
        ({"allOf": [{"properties": {"x": {"type": "integer"}}}], "type": "object"}, pa.struct([("x", pa.int64())])),
    ],
)
def test_what_a_schema_describes_has_a_type(part: Any, kind: Any) -> None:
    assert described(part) == (kind, ())


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (True, "field 'a' may be anything: STRING"),
        ({}, "field 'a' may be anything: STRING"),
        ({"type": ["string", "integer"]}, "field 'a' may be string or integer: STRING"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "field 'a' may be anything: STRING"),
        ({"type": "object"}, "field 'a' is an object of anything: STRING"),
        ({"type": "array"}, "field 'a' is an array of anything: STRING"),
        ({"type": "object", "properties": {"b": {"type": "array", "items": {}}}}, "field 'a.b[]' may be anything: STRING"),
        ({"enum": [1, "x"]}, "field 'a' may be anything: STRING"),
    ],
)
def test_what_has_no_type_of_a_column_is_text_and_it_is_said(part: Any, why: str) -> None:
    assert described(part)[1] == (why,)


def test_schemas_refer_to_parts_of_themselves_and_to_others() -> None:
    more = {"$defs": {"Id": {"type": "integer"}, "a/b": {"$ref": "#/$defs/Id"}}}
    other = {
        "definitions": {"Day": {"type": "string", "format": "date"}},
        "type": "object",
        "properties": {"d": {"$ref": "#/definitions/Day"}},
    }

    assert described({"$ref": "#/$defs/a~1b"}, more=more)[0] == pa.int64()
    assert described({"$ref": "other.json"}, others=(("other.json", other),))[0] == pa.struct([("d", pa.date32())])
    assert described({"$ref": "other.json#/definitions/Day"}, others=(("other.json", other),))[0] == pa.date32()


def test_a_reference_is_a_uri_and_leads_through_arrays() -> None:
    defined = {"Page<a b>": {"type": "integer"}, "50%": {"type": "boolean"}, "a/b/c": {"type": "string"}}
    day = {"type": "string", "format": "date"}
    more = {"$defs": {**defined, "List%3CB%3E": day}, "allOf": [{}, {"type": "number"}]}

    assert described({"$ref": "#/$defs/Page%3Ca%20b%3E"}, more=more)[0] == pa.int64()
    assert described({"$ref": "#/$defs/50%25"}, more=more)[0] == pa.bool_()
    assert described({"$ref": "#/$defs/a%2Fb~1c"}, more=more)[0] == pa.string()
    assert described({"$ref": "#/$defs/List%3CB%3E"}, more=more)[0] == pa.date32(), "it may be the name itself"
    assert described({"$ref": "#/allOf/1"}, more=more)[0] == pa.float64()
    for nowhere in ("#/allOf/2", "#/allOf/-1", "#/allOf/x"):
        with pytest.raises(KafkaConfigurationError, match=f"there is nothing at '{nowhere}'"):
            described({"$ref": nowhere}, more=more)


NODE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}, "right": {"$ref": "#/$defs/Node"}}}


def test_a_schema_within_itself_ends_as_text_however_often_it_refers_to_itself() -> None:
    more = {"$defs": {"Node": NODE, "Loop": {"$ref": "#/$defs/Loop"}}}

    assert described({"$ref": "#/$defs/Node"}, more=more) == (
        pa.struct([("left", pa.string()), ("right", pa.string())]),
        ("field 'a.left' contains itself: STRING", "field 'a.right' contains itself: STRING"),
    )
    assert described({"$ref": "#/$defs/Loop"}, more=more) == (pa.string(), ("field 'a' contains itself: STRING",))
    assert described({"type": "array", "items": {"$ref": "#"}})[1] == ("field 'a[]' contains itself: STRING",)
    assert described({"$ref": "tree.json"}, others=(("tree.json", {"properties": {"up": {"$ref": "tree.json"}}}),)) == (
        pa.struct([("up", pa.string())]),
        ("field 'a.up' contains itself: STRING",),
    )


def test_what_refers_to_a_schema_in_two_places_does_not_contain_itself() -> None:
    more = {"$defs": {"Id": {"type": "integer"}, "Two": {"properties": {"x": {"$ref": "#/$defs/Id"}, "y": {"$ref": "#/$defs/Id"}}}}}

    assert described({"$ref": "#/$defs/Two"}, more=more) == (pa.struct([("x", pa.int64()), ("y", pa.int64())]), ())


def test_a_schema_that_is_all_of_itself_adds_nothing_to_it() -> None:
    assert described({"type": "integer"}, more={"allOf": [{"$ref": "#"}]}) == (pa.int64(), ())


@pytest.mark.parametrize(
    ("part", "times", "why"),
    [
        (lambda next_: {"type": "object", "properties": {"x": next_, "y": next_}}, 30, "describes too many fields"),
        (lambda next_: {"type": "object", "allOf": [next_, next_]}, 30, "describes too many fields"),
        (lambda next_: {"type": "object", "allOf": [next_]}, 5000, "is nested too deeply"),
    ],
)
def test_schemas_that_describe_fields_without_number_are_refused(part: Any, times: int, why: str) -> None:
    parts = {f"D{i}": part({"$ref": f"#/$defs/D{i + 1}"}) for i in range(times)} | {f"D{times}": NODE}
    with pytest.raises(KafkaConfigurationError, match=rf"^s {why}"):
        fields_of(RegisteredSchema(json.dumps({"$ref": "#/$defs/D0", "$defs": parts | {"Node": NODE}})), "s")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "^s is not JSON$"),
        ('{"type": "string"}', "^s: expected a JSON Schema of an object with properties$"),
        ("[]", "^s: expected a JSON Schema of an object with properties$"),
        ('{"properties": {"a": {"$ref": "x.json"}}}', "^s refers to 'x.json', which the registry did not send$"),
        ('{"properties": {"a": {"$ref": "#/no/where"}}}', "^s: there is nothing at '#/no/where'$"),
    ],
)
def test_what_describes_no_object_is_refused(text: str, why: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=why):
        fields_of(RegisteredSchema(text), "s")


@pytest.mark.brokers
def test_values_are_read_with_the_schema_of_a_registry() -> None:
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}, "any": {}},
    }
    with registry_server() as server:
        server.put("/subjects/orders-value/versions/latest", schema, id=7, version=1, schemaType="JSON")
        server.put("/subjects/avro-value/versions/latest", schema, id=8, version=1)
        found = decoder("json", registry=server.url, topics=["orders"])
        with pytest.raises(KafkaConfigurationError, match="is a schema of type 'AVRO'; expected JSON"):
            decoder("json", registry={"url": server.url, "subject": "avro-value"})

    assert found.conflicts == ("field 'any' may be anything: STRING",)
    batch = found.batch(records([FRAME.pack(0, 7) + b'{"id":1,"at":"2026-01-02T03:04:05Z","any":[1]}', b'{"id":2}']))
    assert batch.to_pylist() == [
        {"id": 1, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "any": "[1]"},
        {"id": 2, "at": None, "any": None},
    ]


def test_a_registry_of_json_needs_a_subject_and_no_schema() -> None:
    with pytest.raises(ValueError, match=r"^registry: the option 'subject' is missing: more than one topic may be read$"):
        decoder("json", registry="http://localhost:1")
    with pytest.raises(ValueError, match=r"^values='json' takes schema or registry: "):
        decoder("json", registry="http://localhost:1", schema="a INT")
