"""Single JSON values as ``from_json`` reads them; ``integration/test_spark_values.py`` asks Spark itself."""

import math
from datetime import UTC
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kafka_async.adapters.values.ddl import parse_fields  # needs pyarrow

from .json_alone import read_alone  # needs pyarrow


def read(kind: str, text: str | bytes) -> tuple[Any, str | None]:
    """Return the field ``a``, and what is wrong."""
    value = text.encode() if isinstance(text, str) else text
    (found,), problem = read_alone(parse_fields(f"a {kind}"), UTC, value)
    return found, problem


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("INT", '{"a":1,"a":2}', 2),
        ("STRING", '{"a":"\\ud800"}', "?"),
        ("STRING", '{"a":{"q":1.50, "z":[1, "é", null, true]}}', '{"q":1.5,"z":[1,"é",null,true]}'),
        ("STRING", '{"a":1e10}', "10000000000.0"),
        ("STRING", '{"a":1e3}', "1000.0"),
        ("STRING", '{"a":-0.0}', "-0.0"),
        ("STRING", '{"a":0.001}', "0.001"),
        ("STRING", '{"a":0.00012}', "0.00012"),
        ("STRING", '{"a":12345678.5}', "12345678.5"),
        ("STRING", '{"a":NaN}', "NaN"),
        ("DOUBLE", '{"a":-Infinity}', -math.inf),
        ("DOUBLE", '{"a":1e400}', math.inf),
        ("DOUBLE", '{"a":-1e99999999999999999999}', -math.inf),
        ("DOUBLE", '{"a":1e-99999999999999999999}', 0.0),
        ("STRING", '{"a":1e99999999999999999999}', "Infinity"),
        ("DOUBLE", '{"a":' + "1" * 400 + "}", math.inf),
        ("TIMESTAMP", '{"a":2}', 2_000_000),
        ("BINARY", '{"a":"aGk="}', b"hi"),
        ("MAP<STRING, INT>", '{"a":{"k":1,"n":null}}', {"k": 1, "n": None}),
        ("ARRAY<BOOLEAN>", '{"a":[true,null]}', [True, None]),
        ("INT", "{}", None),
        ("INT", '{"A":1}', None),
        ("INT", ' \r\n\t{"a":1} \r\n\t', 1),
    ],
)
def test_a_value_is_read(kind: str, text: str, expected: Any) -> None:
    assert read(kind, text) == (expected, None)


def test_not_a_number_is_read() -> None:
    found, problem = read("DOUBLE", '{"a":NaN}')

    assert (math.isnan(found), problem) == (True, None)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("INT", "null", "expected a JSON object, found null"),
        ("INT", '[{"a":1}]', "expected a JSON object, found an array"),
        ("INT", "", "it is empty"),
        ("INT", " \n", "it is empty"),
        ("INT", '{"a":1}\n{"a":2}', "it is not JSON (Extra data: line 2 column 1 (char 8))"),
        ("INT", '{"a":1,}', "it is not JSON"),
        ("INT", "{'a':1}", "it is not JSON"),  # this one and the next four are what from_json takes
        ("DOUBLE", '{"a":+INF}', "it is not JSON"),
        ("DOUBLE", '{"a":"NaN"}', "field 'a': expected DOUBLE, found a string"),
        ("DOUBLE", '{"a":"-Infinity"}', "field 'a': expected DOUBLE, found a string"),
        ("DECIMAL(6,2)", '{"a":"1,234.5"}', "field 'a': a number that does not fit DECIMAL(6,2)"),
        ("INT", '{"a":"raw\n"}', "it is not JSON"),
        ("INT", '\ufeff{"a":1}', "it is not JSON"),
        ("INT", '{"a":' + "[" * 100_000, "it is not JSON"),
        ("INT", '{"a":' + "1" * 10_000 + "}", "it is not JSON"),
        ("INT", '{"a":99999999999}', "field 'a': a number too large for INT"),
        ("TINYINT", '{"a":128}', "field 'a': a number too large for TINYINT"),
        ("BIGINT", '{"a":1.0}', "field 'a': expected BIGINT, found a number"),
        ("BIGINT", '{"a":true}', "field 'a': expected BIGINT, found a boolean"),
        ("BOOLEAN", '{"a":"true"}', "field 'a': expected BOOLEAN, found a string"),
        ("DOUBLE", '{"a":"1.5"}', "field 'a': expected DOUBLE, found a string"),
        ("DECIMAL(6,2)", '{"a":9999.999}', "field 'a': a number that does not fit DECIMAL(6,2)"),
        ("DECIMAL(6,2)", '{"a":1e999999999}', "field 'a': a number that does not fit DECIMAL(6,2)"),
        ("DECIMAL(6,2)", '{"a":1e99999999999999999999}', "field 'a': expected DECIMAL(6,2), found a number"),
        ("DECIMAL(6,2)", '{"a":"1e99999999999999999999"}', "field 'a': a number that does not fit DECIMAL(6,2)"),
        ("INT", '{"a":1e99999999999999999999}', "field 'a': expected INT, found a number"),
        ("DECIMAL(6,2)", '{"a":NaN}', "field 'a': expected DECIMAL(6,2), found a number"),
        ("DATE", '{"a":18000}', "field 'a': expected DATE, found a number"),
        ("DATE", '{"a":""}', "field 'a': a string that is not DATE"),
        ("TIMESTAMP", '{"a":1.5}', "field 'a': expected TIMESTAMP, found a number"),
        ("TIMESTAMP", '{"a":99999999999999999}', "field 'a': a number too large for TIMESTAMP"),
        ("TIMESTAMP_NTZ", '{"a":"2020-01-02T00:00Z"}', "field 'a': a string that is not TIMESTAMP_NTZ"),
        ("BINARY", '{"a":"***"}', "field 'a': a string that is not base64"),
        ("ARRAY<INT>", '{"a":[1,"x"]}', "field 'a': expected INT, found a string"),
        ("MAP<STRING, INT>", '{"a":[1]}', "field 'a': expected map<string,int>, found an array"),
        ("STRUCT<x: INT>", '{"a":1}', "field 'a': expected struct<x:int>, found a number"),
    ],
)
def test_the_error_names_what_is_wrong(kind: str, text: str, problem: str) -> None:
    found, told = read(kind, text)

    assert found is None
    assert told is not None
    assert told.startswith(problem)


def test_a_bad_field_of_a_struct_leaves_its_neighbors() -> None:
    kind = "STRUCT<x: INT, y: STRING>"

    assert read(kind, '{"a":{"x":"bad","y":"q"}}') == ({"x": None, "y": "q"}, "field 'x': expected INT, found a string")
    assert read(f"ARRAY<{kind}>", '{"a":[{"x":"bad"},{"x":3}]}')[0] == [{"x": None, "y": None}, {"x": 3, "y": None}]


def test_no_value_is_no_fault() -> None:
    assert read_alone(parse_fields("a INT"), UTC, None) == ([None], None)
