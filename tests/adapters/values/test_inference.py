"""The fields of JSON that a sample shows."""

import json
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install '.[json]'")

from kafka_async.adapters.values.inference import MOST_FIELDS, Inferred, infer  # noqa: E402  # needs pyarrow

from .batches import decoder, records  # noqa: E402  # needs pyarrow

TIME = pa.timestamp("us", tz="UTC")


def inferred(*values: Any) -> Inferred:
    return infer(pa.array([each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in values], pa.binary()))


def kind(*values: Any) -> Any:
    """Return the type of the field ``a`` with these values."""
    return inferred(*({"a": value} for value in values)).schema.field("a").type


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None], pa.bool_()),
        ([1, -(2**63)], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([1, 2**63], pa.float64()),
        (["x", ""], pa.string()),
        (["2026-01-02", "0001-01-01"], pa.date32()),
        (["2026-01-02", "2026-02-30"], pa.string()),
        (["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123+01:00"], TIME),
        (["2026-01-02T03:04:05", None], pa.timestamp("us")),
        (["2026-01-02T03:04:05", "2026-01-02T03:04:05Z"], pa.string()),
        (["2026-01-02", "2026-01-02T03:04:05Z"], pa.string()),
        (["2026-01-02T03:04:05Z", "later"], pa.string()),
        ([[1], [], [2.5, None]], pa.list_(pa.field("element", pa.float64()))),
        ([{"x": 1}, {"y": "z"}], pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ([{str(number): number} for number in range(MOST_FIELDS + 1)], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_values_with_a_type_in_common_have_it(values: list[Any], expected: Any) -> None:
    assert kind(*values) == expected
    assert inferred(*({"a": value} for value in values)).conflicts == ()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1, 2, "x"], "field 'a' is a number in 2 and a text in 1 values: STRING"),
        ([{"x": 1}, [1]], "field 'a' is an object in 1 and an array in 1 values: STRING"),
        ([None], "field 'a' is always null: STRING"),
        ([[], []], "field 'a' is always an empty array: STRING"),
        ([{}], "field 'a' is always an empty object: STRING"),
        ([[[1], ["x"]]], "field 'a[][]' is a number in 1 and a text in 1 values: STRING"),
        ([{"b": [{"c": None}]}], "field 'a.b[].c' is always null: STRING"),
        ([True, 1], "field 'a' is a boolean in 1 and a number in 1 values: STRING"),
    ],
)
def test_values_without_a_type_in_common_are_texts_and_it_is_said(values: list[Any], why: str) -> None:
    found = inferred(*({"a": value} for value in values))

    assert found.conflicts == (why,)
    decoded = decoder("json", schema=found.schema)  # nothing in the sample is bad
    assert decoded.batch(records([json.dumps({"a": value}).encode() for value in values])).num_rows == len(values)


def test_fields_come_in_the_order_in_which_they_were_seen() -> None:
    found = inferred({"b": 1}, {"a": 1, "b": 2})

    assert (found.schema.names, found.values) == (["b", "a"], 2)


def test_values_that_are_no_objects_are_passed_over_and_it_is_said() -> None:
    found = inferred({"a": 1}, b"nope", None, b"\0\0\0\0\1" + b'{"a":2}', [1])

    assert (found.schema, found.values) == (pa.schema([("a", pa.int64())]), 2)
    assert found.conflicts == ("2 of 4 values are not JSON objects",)


def test_values_that_are_nested_too_deeply_are_texts() -> None:
    value: Any = 1
    for _ in range(150):
        value = {"a": value}
    found = inferred(value)

    assert "is nested too deeply: STRING" in found.conflicts[0]
    assert decoder("json", schema=found.schema).batch(records([json.dumps(value).encode()])).num_rows == 1


@pytest.mark.parametrize(
    ("values", "why"), [([], "there are no values"), ([b"x", b"{}", b"7"], "none of 3 values is a JSON object with a field")]
)
def test_without_objects_there_is_nothing_to_be_found(values: list[bytes], why: str) -> None:
    with pytest.raises(ValueError, match=rf"^schema='infer': {why}; a schema has to be given$"):
        inferred(*values)


def test_a_decoder_keeps_what_was_doubtful() -> None:
    found = decoder("json", schema="infer", sample=pa.array([b'{"a":1,"b":null}'], pa.binary()))

    assert found.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert found.conflicts == ("field 'b' is always null: STRING",)
