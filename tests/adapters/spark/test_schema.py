"""Columns and schemas."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from kafka_async.adapters.spark.schema import COLUMNS, kafka_columns, layout, projection
from kafka_async.errors import KafkaConfigurationError

USUAL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_columns_are_those_of_sparks_own_connector() -> None:
    assert list(layout(headers=False)) == USUAL
    assert list(layout(headers=True)) == [*USUAL, "headers"]
    assert layout(headers=False, only=("key", "offset")) == {"key": BinaryType(), "offset": LongType()}


def test_decoded_columns_stand_in_place_of_the_value() -> None:
    found = layout(headers=False, decoded={"value": [("id", LongType()), ("wei`rd", StringType())]})
    assert list(found) == ["key", "id", "wei`rd", *USUAL[2:]]
    assert found["wei`rd"] == StringType()
    assert list(layout(headers=False, decoded={"value": [("value", StringType())]})) == USUAL


@pytest.mark.parametrize("name", ["offset", "Key", "timestampType"])
def test_a_decoded_column_with_the_name_of_another_is_refused(name: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=name):
        layout(headers=False, decoded={"value": [(name, IntegerType())]})


def test_two_decoded_columns_with_one_name_are_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="'A'"):
        layout(headers=False, decoded={"value": [("a", IntegerType()), ("A", IntegerType())]})


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(KafkaConfigurationError, match="columns: 'valu' is not one of key, value"):
        layout(headers=False, only=("valu",))


def test_what_is_kept_stands_beside_what_it_is_decoded_to() -> None:
    decoded = {"key": [("key_id", IntegerType())], "value": [("id", IntegerType())]}
    assert list(layout(headers=False, decoded=decoded, kept=("value",))) == ["key_id", "value", "id", *USUAL[2:]]
    with pytest.raises(
        KafkaConfigurationError, match=r"a field 'value' would have the name of another column; value\.prefix gives"
    ):
        layout(headers=False, decoded={"value": [("value", StringType())]}, kept=("value",))
    with pytest.raises(KafkaConfigurationError, match=r"key\.schema: a field 'Value' would"):
        layout(headers=False, decoded={"key": [("Value", IntegerType())]})
    with pytest.raises(KafkaConfigurationError, match=r"value\.schema: a field 'id' would"):
        layout(headers=False, decoded={"key": [("id", IntegerType())], "value": [("id", IntegerType())]})


def test_a_schema_of_the_users_chooses_columns() -> None:
    schema = StructType([StructField("Value", BinaryType()), StructField("offset", LongType(), nullable=False)])
    assert projection(schema, layout(headers=False)) == ("value", "offset")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("val", BinaryType()), "no column 'val'"),
        (StructField("headers", COLUMNS["headers"]), "set includeHeaders to true"),
        (StructField("value", StringType()), "column value is BINARY, not STRING"),
        (StructField("offset", IntegerType()), "column offset is BIGINT, not INT"),
        (StructField("key", BinaryType(), nullable=False), "column key can be null"),
        (StructField("m", MapType(StringType(), StringType())), "column m is map<string,int>, not map<string,string>"),
        (StructField("m", MapType(StringType(), IntegerType()), nullable=False), "column m can be null"),
        (StructField("m", MapType(StringType(), IntegerType(), valueContainsNull=False)), "the content of column m can be null"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(field: StructField, message: str) -> None:
    known = layout(headers=False) | {"m": MapType(StringType(), IntegerType())}
    with pytest.raises(KafkaConfigurationError, match=message):
        projection(StructType([field]), known)


def test_types_that_only_look_alike_are_told_apart() -> None:
    known: dict[str, DataType] = {"s": StructType([StructField("c", IntegerType()), StructField("d", IntegerType())])}
    wanted = StructType([StructField("s", StructType([StructField("c:int,d", IntegerType())]))])
    with pytest.raises(KafkaConfigurationError, match="schema: column s is"):
        projection(wanted, known)


def test_a_column_is_there_once() -> None:
    twice = StructType([StructField("offset", LongType()), StructField("Offset", LongType())])
    with pytest.raises(KafkaConfigurationError, match="schema: column offset appears twice"):
        projection(twice, layout(headers=False))


def test_a_comment_makes_no_other_type() -> None:
    known: dict[str, DataType] = {"s": StructType([StructField("x", IntegerType())])}
    wanted = StructType([StructField("s", StructType([StructField("x", IntegerType(), metadata={"comment": "y"})]))])
    assert projection(wanted, known) == ("s",)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="schema: there are no columns; expected at least one of key, value"):
        projection(StructType([]), layout(headers=False))


def test_headers_have_one_type() -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    assert projection(StructType([StructField("headers", ArrayType(header))]), layout(headers=True)) == ("headers",)


def test_what_is_not_wanted_is_not_decoded() -> None:
    assert kafka_columns(("value", "offset")) == {"value", "offset"}
    assert kafka_columns(("timestampType", "id", "amount"), {"id": "value", "amount": "value"}) == {"timestamp_type", "value"}
