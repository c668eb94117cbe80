"""The data source as Spark makes it."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.cloudpickle import dumps, loads
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType

from kafka_async.adapters.spark.source import KafkaDataSource
from kafka_async.errors import KafkaConfigurationError
from tests.adapters.values.registry_server import registry_server

VALUE = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize("key", ["hunter2", "env:KEY"])
def test_a_stream_warns_of_a_secret_that_its_plan_shows(caplog: pytest.LogCaptureFixture, key: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.ssl.keystore.key": key}
    KafkaDataSource(given).streamReader(VALUE)
    warned = [record.getMessage() for record in caplog.records if "the secret in kafka.ssl.keystore.key" in record.getMessage()]
    assert len(warned) == (key == "hunter2")
    assert "hunter2" not in caplog.text


PLAIN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@pytest.mark.parametrize("reader", ["reader", "streamReader"])
def test_a_schema_without_columns_is_refused(reader: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="schema: there are no columns"):
        getattr(KafkaDataSource(PLAIN), reader)(StructType([]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (3, 1.0)),
        ({"fetchOffset.numRetries": "10", "fetchOffset.retryIntervalMs": "2000"}, (10, 2.0)),
        ({"fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "10"}, (3, 1.0)),
    ],
)
def test_tasks_look_as_often_as_the_driver_and_not_less_often_than_other_readings(
    given: dict[str, str], expected: tuple[int, float]
) -> None:
    tasks = loads(dumps(KafkaDataSource(PLAIN | given).streamReader(VALUE)))  # type: ignore[no-untyped-call]  # Spark's own
    assert (tasks.looks, tasks.pause) == expected


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
STRICT = StructType([StructField("key", StringType()), StructField("value", BinaryType(), nullable=False)])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("headers", ArrayType(STRICT)),
        ("headers", ArrayType(HEADER, containsNull=False)),
        ("s", StructType([StructField("x", IntegerType(), nullable=False)])),
        ("m", MapType(StringType(), LongType(), valueContainsNull=False)),
        ("n", ArrayType(StructType([StructField("x", IntegerType(), nullable=False)]))),
    ],
)
def test_what_can_be_null_within_a_column_cannot_be_denied(name: str, kind: DataType) -> None:
    schema = "s STRUCT<x: INT>, m MAP<STRING, BIGINT>, n ARRAY<STRUCT<x: INT>>"
    given = PLAIN | {"includeHeaders": "true", "value.format": "json", "value.schema": schema}
    with pytest.raises(KafkaConfigurationError, match=f"schema: the content of column {name} can be null; it cannot be NOT NULL"):
        KafkaDataSource(given).reader(StructType([StructField(name, kind)]))


@pytest.mark.parametrize(
    ("name", "complaint"), [("a", "column a is INT, not STRING"), ("_corrupt", "_corrupt is BINARY, not STRING")]
)
def test_a_decoded_column_of_another_type_is_refused(name: str, complaint: str) -> None:
    given = PLAIN | {"value.format": "json", "value.schema": "a INT"}
    with pytest.raises(KafkaConfigurationError, match=complaint):
        KafkaDataSource(given).reader(StructType([StructField(name, StringType())]))


def test_the_schema_is_what_the_options_say() -> None:
    given = PLAIN | {
        "value.format": "json",
        "value.schema": "`a b` INT, s STRUCT<x: DECIMAL(6,2), m MAP<STRING, ARRAY<DATE>>>",
        "value.prefix": "v_",
    }
    found = {field.name: field.dataType.simpleString() for field in KafkaDataSource(given).schema()}
    assert found == {
        "key": "binary",
        "v_a b": "int",
        "v_s": "struct<x:decimal(6,2),m:map<string,array<date>>>",
        "_corrupt": "binary",
        "_corrupt_reason": "string",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }


@pytest.mark.parametrize("reader", ["reader", "streamReader"])
def test_strays_are_said_once_and_mean_nothing(caplog: pytest.LogCaptureFixture, reader: str) -> None:
    getattr(KafkaDataSource(PLAIN | {"path": "/data", "inferSchema": "true"}), reader)(VALUE)
    assert [record.getMessage() for record in caplog.records] == ["options that mean nothing to kafka_async: inferSchema, path"]


def test_what_plaintext_turns_off_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    off = {"kafka.security.protocol": "PLAINTEXT", "kafka.ssl.truststore.location": "/nowhere/trust.jks"}
    KafkaDataSource(PLAIN | off).reader(VALUE)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["no effect with kafka.security.protocol=PLAINTEXT: kafka.ssl.truststore.location"]


@pytest.mark.parametrize("writer", ["writer", "streamWriter"])
@pytest.mark.parametrize("given", [{}, {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, PLAIN])
def test_who_wants_to_write_learns_where(writer: str, given: dict[str, str]) -> None:
    with pytest.raises(KafkaConfigurationError, match=r'kafka_async only reads; to write, use .* format\("kafka"\)'):
        getattr(KafkaDataSource(given), writer)(VALUE, overwrite=False)


@pytest.mark.parametrize("given", [{}, {"topic": "t"}])
def test_a_read_of_nothing_is_refused(given: dict[str, str]) -> None:
    source = KafkaDataSource(given)
    for read in (source.schema, lambda: source.reader(VALUE), lambda: source.streamReader(VALUE)):
        with pytest.raises(KafkaConfigurationError, match="expected exactly one of subscribe, subscribePattern and assign"):
            read()


RECORD: Any = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize(
    ("chosen", "text"), [("subscribe", "orders"), ("assign", '{"orders":[0]}'), ("assign", '{"orders":[1,0],"refunds":[0]}')]
)
def test_the_topics_that_are_named_name_the_subjects_of_a_registry(chosen: str, text: str) -> None:
    pytest.importorskip("fastavro")
    with registry_server() as server:
        for subject in ("orders-value", "refunds-value"):
            server.put(f"/subjects/{subject}/versions/latest", RECORD, id=1, version=1)
        given = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            chosen: text,
            "value.format": "avro",
            "value.schema.registry.url": server.url,
        }
        assert "id" in KafkaDataSource(given).schema().names
        asked = {path for path in server.asked if path.endswith("latest")}
    assert asked == {f"/subjects/{topic}-value/versions/latest" for topic in (json.loads(text) if chosen == "assign" else [text])}


def test_a_pattern_names_no_subject() -> None:
    pytest.importorskip("fastavro")
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribePattern": "orders",
        "value.format": "avro",
        "value.schema.registry.url": "http://127.0.0.1:1",
    }
    with pytest.raises(KafkaConfigurationError, match="subject is missing: more than one topic may be read"):
        KafkaDataSource(given).schema()
