"""Records as Spark's Arrow batches."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

import pyarrow as pa
from attrs import frozen
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_async.adapters.spark.columns import BatchBuilder
from kafka_async.adapters.values.ddl import Fields
from kafka_async.adapters.values.decoding import Piece, ValueDecoder
from kafka_async.adapters.values.formats import decoder_for
from kafka_async.errors import DeserializationError
from kafka_async.records import ColumnBuilder

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: dict[str, Any] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def spark_schema(*names: str) -> Any:
    return to_arrow_schema(StructType([StructField(name, TYPES[name]) for name in names or TYPES]), timezone="UTC")


def records() -> ColumnBuilder:
    into = ColumnBuilder()
    into.append((5, 1_700_000_000_123, 0, b"k", None, (("a", b"1"), ("a", None)), None, 0))
    into.append((6, -1, 1, None, b"\xff", (), None, 0))
    into.end_run("t", 3, 2)
    into.append((0, 0, 0, None, b"", (("b", b""),), None, 0))
    into.end_run("u", 0, 1)
    return into


@pytest.mark.parametrize("milliseconds", [2**63 - 1, -(2**63), 2**63 // 1000 + 1])
def test_a_timestamp_that_spark_cannot_hold_is_an_error_that_names_the_record(milliseconds: int) -> None:
    into = ColumnBuilder()
    into.append((5, 2**63 // 1000, 0, None, b"", (), None, 0))
    into.end_run("t", 3, 1)
    into.append((6, 1, 0, None, b"", (), None, 0))
    into.append((7, milliseconds, 0, None, b"", (), None, 0))
    into.end_run("u", 4, 2)
    columns = into.finish()

    with pytest.raises(DeserializationError, match=f"u-4 at offset 7: the timestamp {milliseconds} ms is out of range"):
        BatchBuilder(("timestamp",), spark_schema("timestamp")).build(columns)
    assert BatchBuilder(("offset",), spark_schema("offset")).build(columns).to_pydict() == {"offset": [5, 6, 7]}


def test_every_column_is_what_spark_expects() -> None:
    schema = spark_schema()
    batch = BatchBuilder(tuple(TYPES), schema).build(records().finish())

    batch.validate(full=True)
    assert batch.schema.equals(schema)
    rows = batch.to_pydict()
    assert [int(moment.timestamp() * 1e6) for moment in rows.pop("timestamp")] == [1_700_000_000_123_000, -1000, 0]
    assert rows == {
        "key": [b"k", None, None],
        "value": [None, b"\xff", b""],
        "topic": ["t", "t", "u"],
        "partition": [3, 3, 0],
        "offset": [5, 6, 0],
        "timestampType": [0, 1, 0],
        "headers": [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [{"key": "b", "value": b""}]],
    }


def test_columns_come_in_the_order_and_under_the_names_of_the_schema() -> None:
    schema = pa.schema([pa.field("Offset", pa.int64(), nullable=False), pa.field("topic", pa.string())])
    batch = BatchBuilder(("offset", "topic"), schema).build(records().finish())
    assert batch.schema.equals(schema)
    assert batch.to_pydict() == {"Offset": [5, 6, 0], "topic": ["t", "t", "u"]}


def test_a_long_run_after_a_short_one_repeats_its_topic() -> None:
    builder = BatchBuilder(("topic",), spark_schema("topic"))
    for rows in (1, 50_000, 3):
        into = ColumnBuilder({"offset"})
        for offset in range(rows):
            into.append((offset, 0, 0, None, None, (), None, 0))
        into.end_run("t", 0, rows)
        assert builder.build(into.finish()).column("topic").to_pylist() == ["t"] * rows


@frozen(kw_only=True)
class Lengths(ValueDecoder):
    """A decoder whose columns are the length of a value and where it stood."""

    columns: Fields = (("length", pa.int64()), ("place", pa.string()))
    permissive: bool = False

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        return Piece(arrays=[pa.array([None if v is None else len(v) for v in values.to_pylist()], pa.int64())])

    def decode(self, values: Any, *, topic: str, partition: int, offsets: Any, ids: Any = None) -> list[Any]:
        places = [f"{topic}-{partition}@{offset}" for offset in offsets.to_pylist()]
        return [*self.piece(values).arrays, pa.array(places)]


def test_a_decoder_sees_values_partition_by_partition() -> None:
    schema = pa.schema([("place", pa.string()), ("length", pa.int64()), ("offset", pa.int64())])
    builder = BatchBuilder(("place", "length", "offset"), schema, {"value": Lengths()})
    assert builder.wanted == {"value", "offset"}
    assert builder.build(records().finish()).to_pydict() == {
        "place": ["t-3@5", "t-3@6", "u-0@0"],
        "length": [None, 1, 0],
        "offset": [5, 6, 0],
    }


def test_fields_that_are_only_checked_are_no_columns() -> None:
    schema = pa.schema([("_corrupt", pa.binary())])
    json = decoder_for({"value.format": "json", "value.schema": "a INT, b STRING"})
    assert json is not None
    builder = BatchBuilder(("_corrupt",), schema, {"value": json.select(("_corrupt",))})
    into = ColumnBuilder({*builder.wanted, "offset"})  # it is always there
    for offset, value in enumerate([b'{"a":1}', b'{"a":"x"}', None]):
        into.append((offset, 0, 0, None, value, (), None, 0))
    into.end_run("t", 0, 3)
    assert builder.build(into.finish()).to_pydict() == {"_corrupt": [None, b'{"a":"x"}', None]}


def test_a_decoder_that_is_not_needed_is_not_asked() -> None:
    builder = BatchBuilder(("offset",), spark_schema("offset"), {"value": Lengths()})
    into = ColumnBuilder(builder.wanted)
    into.append((5, 0, 0, None, None, (), None, 0))
    into.end_run("t", 0, 1)
    assert builder.build(into.finish()).to_pydict() == {"offset": [5]}


def test_keys_and_values_are_decoded_side_by_side() -> None:
    options = {"key.format": "json", "key.schema": "id INT", "value.format": "json", "value.schema": "id INT"}
    decoders = {part: found for part in ("key", "value") if (found := decoder_for(options, part=part)) is not None}
    names = ("key_id", "_corrupt_key", "id", "_corrupt", "value")
    kinds = [pa.int32(), pa.binary(), pa.int32(), pa.binary(), pa.binary()]
    builder = BatchBuilder(names, pa.schema(list(zip(names, kinds, strict=True))), decoders)
    assert builder.wanted == {"key", "value"}
    into = ColumnBuilder({*builder.wanted, "offset"})
    for offset, (key, value) in enumerate([(b'{"id":1}', b'{"id":2}'), (b"{", None), (None, b"}")]):
        into.append((offset, 0, 0, key, value, (), None, 0))
    into.end_run("t", 0, 3)
    assert list(zip(*builder.build(into.finish()).to_pydict().values(), strict=True)) == [
        (1, None, 2, None, b'{"id":2}'),
        (None, b"{", None, None, None),
        (None, None, None, b"}", b"}"),
    ]


@frozen(kw_only=True)
class Ids(ValueDecoder):
    """A decoder whose column is the header that it asks for."""

    columns: Fields = (("id", pa.binary()),)
    permissive: bool = False

    @property
    def id_header(self) -> str:
        return "__value_schema_id"

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        return Piece(arrays=[ids])


def test_the_last_header_of_a_name_is_the_id_of_a_schema() -> None:
    builder = BatchBuilder(("id",), pa.schema([("id", pa.binary())]), {"value": Ids()})
    assert builder.wanted == {"value", "headers"}
    into = ColumnBuilder({*builder.wanted, "offset"})
    name = "__value_schema_id"
    for offset, headers in enumerate(
        [((name, b"1"), ("a", b"x"), (name, b"2")), (), (("a", b"x"),), ((name, None),), ((name, b"3"),)]
    ):
        into.append((offset, 0, 0, None, b"", headers, None, 0))
    into.end_run("t", 0, 3)
    into.end_run("u", 0, 2)
    assert builder.build(into.finish()).to_pydict() == {"id": [b"2", None, None, None, b"3"]}
