"""Avro schemas as Spark's types."""

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kafka_async.adapters.values.avro_schema import Types, in_microseconds, plain  # needs pyarrow
from kafka_async.adapters.values.ddl import shown  # needs pyarrow
from kafka_async.adapters.values.registry import RegisteredSchema  # beside the others
from kafka_async.errors import KafkaConfigurationError  # beside the others


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": each} for i, each in enumerate(types)]}


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def types(schema: Any, *references: Any) -> list[str]:
    found, named = plain(RegisteredSchema(schema, references), "here")
    return [shown(kind) for _, kind in in_microseconds(Types(named, "here").record(found))]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("bytes", "BINARY"),
        ("string", "STRING"),
        ({"type": "string"}, "STRING"),
        ({"type": {"type": "int", "logicalType": "date"}}, "DATE"),
        (logical("long", "timestamp-millis"), "TIMESTAMP"),
        (logical("long", "timestamp-micros"), "TIMESTAMP"),
        (logical("long", "local-timestamp-millis"), "TIMESTAMP_NTZ"),
        (logical("bytes", "decimal", precision=6, scale=2), "DECIMAL(6,2)"),
        (logical("fixed", "decimal", name="F", size=4, precision=6), "DECIMAL(6,0)"),
        (logical("bytes", "decimal", precision=64, scale=2), "DECIMAL(38,2)"),
        (logical("bytes", "decimal"), "BINARY"),  # a logical type without what it needs counts for nothing
        (logical("bytes", "decimal", precision="6"), "BINARY"),
        (logical("string", "uuid"), "STRING"),
        (logical("int", "time-millis"), "INT"),
        (logical("string", "date"), "STRING"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 2}, "BINARY"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": logical("long", "timestamp-millis")}, "map<string,timestamp>"),
        (record("int", name="I"), "struct<f0:int>"),
        (["null", "long"], "BIGINT"),
        (["int", "long"], "BIGINT"),
        (["float", "null", "double"], "DOUBLE"),
    ],
)
def test_a_type_has_the_one_that_from_avro_gives_it(kind: Any, expected: str) -> None:
    assert types(record(kind)) == [expected]


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    other = {"type": "fixed", "name": "x.E", "size": 1}

    assert types({**record(inner, other, "E", "x.E", "a.b.E"), "namespace": "a.b"}) == [
        "STRING", "BINARY", "STRING", "BINARY", "STRING"
    ]  # fmt: skip


def test_references_are_put_where_they_are_first_used() -> None:
    one = {"type": "enum", "name": "One", "namespace": "a", "symbols": ["A"]}
    two = {**record("One", "int", name="Two"), "namespace": "a"}

    schema, _ = plain(RegisteredSchema(record("a.One", "a.Two", {"type": "array", "items": "a.One"}), (two, one)), "here")

    assert types(record("a.One", "a.Two", {"type": "array", "items": "a.One"}), two, one) == [
        "STRING", "struct<f0:string,f1:int>", "array<string>"
    ]  # fmt: skip
    assert json.dumps(schema).count('"symbols"') == 1


INNER = {"type": "enum", "name": "Inner", "symbols": ["A"]}
OUTER = {**record({"type": "array", "items": [INNER, "null"]}, name="Outer"), "namespace": "a"}


@pytest.mark.parametrize("reference", [OUTER, [OUTER, "null"], {"type": OUTER}])
def test_a_type_within_a_reference_is_put_where_it_is_first_used(reference: Any) -> None:
    for fields, expected in (
        (("a.Inner",), ["STRING"]),
        (("a.Inner", "a.Outer", "a.Inner"), ["STRING", "struct<f0:array<string>>", "STRING"]),
        (("a.Outer", "a.Inner"), ["struct<f0:array<string>>", "STRING"]),
    ):
        schema, _ = plain(RegisteredSchema(record(*fields), (reference,)), "here")

        assert types(record(*fields), reference) == expected
        assert json.dumps(schema).count('"symbols"') == 1


def test_a_type_within_a_reference_may_hold_what_it_is_in() -> None:
    inner = {**record(["null", "Outer"], name="Inner"), "namespace": "a"}
    outer = {**record(inner, name="Outer"), "namespace": "a"}

    schema, named = plain(RegisteredSchema(record("a.Inner"), (outer,)), "here")

    assert set(named) == {"R", "a.Inner", "a.Outer"}
    assert json.dumps(schema).count('"fields"') == 3


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (record(["null", "R"]), "record R contains itself"),
        (record(["null"]), "field 'f0' is always null"),
        (record("null"), "field 'f0' is 'null'"),
        (record("Unknown"), "field 'f0' is 'Unknown'"),
        (record(logical("bytes", "decimal", precision=60, scale=40)), "DECIMAL(60,40); expected 1 to 38 digits"),
        (record(logical("bytes", "decimal", precision=2, scale=3)), "DECIMAL(2,3); expected 1 to 38 digits, scale within"),
        (record({"type": "array", "items": "null"}), "take no bytes"),
        (record({"type": "array", "items": record(name="Nothing")}), "take no bytes"),
        (record({"type": "fixed", "name": "F", "size": 0}, {"type": "array", "items": "F"}), "take no bytes"),
        ({"type": "record", "name": "R"}, "expected a list of fields"),
        ({"type": "record", "name": "R", "fields": ["x"]}, "expected fields that are objects"),
        (record(None), "expected an Avro schema, found None"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}, "two fields"),
    ],
)
def test_what_has_no_columns_is_refused_by_name(schema: Any, complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        types(schema)

    assert str(caught.value).startswith("here")
    assert complaint in str(caught.value)
