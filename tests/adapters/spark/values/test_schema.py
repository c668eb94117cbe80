"""Columns and schemas."""

import pytest

from kafka_async.adapters.spark.values.schema import Field, ddl, kafka_columns, layout, projection
from kafka_async.errors import KafkaConfigurationError

USUAL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_columns_are_those_of_sparks_own_connector() -> None:
    assert list(layout(headers=False)) == USUAL
    assert list(layout(headers=True)) == [*USUAL, "headers"]
    assert ddl(layout(headers=False, only=("key", "offset"))) == "`key` BINARY, `offset` BIGINT"


def test_decoded_columns_stand_in_place_of_the_value() -> None:
    found = layout(headers=False, decoded={"value": [("id", "BIGINT"), ("wei`rd", "STRING")]})
    assert list(found) == ["key", "id", "wei`rd", *USUAL[2:]]
    assert "`wei``rd` STRING" in ddl(found)
    assert list(layout(headers=False, decoded={"value": [("value", "STRING")]})) == USUAL


@pytest.mark.parametrize("name", ["offset", "Key", "timestampType"])
def test_a_decoded_column_with_the_name_of_another_is_refused(name: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=name):
        layout(headers=False, decoded={"value": [(name, "INT")]})


def test_two_decoded_columns_with_one_name_are_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="'A'"):
        layout(headers=False, decoded={"value": [("a", "INT"), ("A", "INT")]})


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(KafkaConfigurationError, match="columns: 'valu' is not one of key, value"):
        layout(headers=False, only=("valu",))


def test_what_is_kept_stands_beside_what_it_is_decoded_to() -> None:
    decoded = {"key": [("key_id", "INT")], "value": [("id", "INT")]}
    assert list(layout(headers=False, decoded=decoded, kept=("value",))) == ["key_id", "value", "id", *USUAL[2:]]
    with pytest.raises(
        KafkaConfigurationError, match=r"a field 'value' would have the name of another column; value\.prefix gives"
    ):
        layout(headers=False, decoded={"value": [("value", "STRING")]}, kept=("value",))
    with pytest.raises(KafkaConfigurationError, match=r"key\.schema: a field 'Value' would"):
        layout(headers=False, decoded={"key": [("Value", "INT")]})
    with pytest.raises(KafkaConfigurationError, match=r"value\.schema: a field 'id' would"):
        layout(headers=False, decoded={"key": [("id", "INT")], "value": [("id", "INT")]})


def test_a_schema_of_the_users_chooses_columns() -> None:
    fields = [Field("Value", "binary", True), Field("offset", "bigint", False)]
    assert projection(fields, layout(headers=False)) == ("value", "offset")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (Field("val", "binary", True), "no column 'val'"),
        (Field("headers", "array<struct<key:string,value:binary>>", True), "set includeHeaders to true"),
        (Field("value", "string", True), "column value is BINARY, not STRING"),
        (Field("offset", "int", True), "column offset is BIGINT, not INT"),
        (Field("key", "binary", False), "column key can be null"),
        (Field("offset", "bigint", False, whole=True), "the content of column offset can be null"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(field: Field, message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        projection([field], layout(headers=False))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="schema: there are no columns; expected at least one of key, value"):
        projection([], layout(headers=False))


def test_headers_have_one_type() -> None:
    field = Field("headers", "array<struct<key:string,value:binary>>", True)
    assert projection([field], layout(headers=True)) == ("headers",)


def test_what_is_not_wanted_is_not_decoded() -> None:
    assert kafka_columns(("value", "offset")) == {"value", "offset"}
    assert kafka_columns(("timestampType", "id", "amount"), {"id": "value", "amount": "value"}) == {"timestamp_type", "value"}
