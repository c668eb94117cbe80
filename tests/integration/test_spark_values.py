"""Values to columns inside Spark: beside ``from_json``, and from a topic."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kafka_async.adapters.spark.ddl import parse_fields
from tests.adapters.spark.json_texts import SCHEMA, TEXTS
from tests.adapters.spark.registry_server import registry_server
from tests.brokers import KafkaCluster

pytestmark = pytest.mark.integration


def options(cluster: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    return given | {f"value.{name.replace('_', '.')}": text for name, text in more.items()}


def filled(cluster: KafkaCluster, name: str, values: Sequence[bytes | None], partitions: int = 1) -> str:
    topic = cluster.create_topic(name, partitions)
    cluster.produce(topic, len(values), values=lambda index: values[index], partitions=partitions)
    return topic


def test_json_is_read_as_from_json_reads_it(spark: Any, kafka43: KafkaCluster) -> None:
    from pyspark.sql import functions

    topic = filled(kafka43, "values-json", [*(text.encode() for text in TEXTS), None])
    names = [name for name, _ in parse_fields(SCHEMA)]
    wanted = ["offset", "{0}_corrupt IS NOT NULL", *(f"CAST({{0}}{name} AS STRING)" for name in names)]
    as_json = functions.from_json(
        functions.col("value").cast("string"), f"{SCHEMA}, _corrupt STRING", {"columnNameOfCorruptRecord": "_corrupt"}
    )
    theirs = spark.read.format("kafka").options(**options(kafka43, topic)).load().select("offset", as_json.alias("r"))
    ours = spark.read.format("kafka_async").options(**options(kafka43, topic, format="json", schema=SCHEMA)).load()

    expected = theirs.selectExpr(*(each.format("r.") for each in wanted)).collect()
    found = ours.selectExpr(*(each.format("") for each in wanted)).collect()

    pairs = zip(sorted(map(tuple, found)), sorted(map(tuple, expected)), strict=True)
    assert {[*TEXTS, None][mine[0]]: (mine, other) for mine, other in pairs if mine != other} == {}


def test_avro_of_a_registry_becomes_columns_and_a_stream_outlives_a_poisoned_value(
    spark: Any, kafka43: KafkaCluster, tmp_path: Path
) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}
    topic = filled(kafka43, "values-avro", [b"\0\0\0\0\1" + bytes([2 * n]) + b"\4ab" for n in range(20)] + [b"poison", None])
    with registry_server() as registry:
        registry.put(f"/subjects/{topic}-value/versions/latest", schema)
        registry.put("/schemas/ids/1", schema)
        given = options(kafka43, topic, format="avro", schema_registry_url=registry.url) | {"startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka_async").options(**given).load().select("offset", "id", "item", "_corrupt")
        query = (
            rows.writeStream.format("memory")
            .queryName("avro")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    found = sorted(map(tuple, spark.table("avro").collect()))

    assert found == [*((n, n, "ab", None) for n in range(20)), (20, None, None, b"poison"), (21, None, None, None)]


def test_avro_without_a_registry_becomes_columns(spark: Any, kafka43: KafkaCluster) -> None:
    pytest.importorskip("fastavro")
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    topic = filled(kafka43, "values-bare-avro", [b"\2\2\4ab", b"\4\0", b"\4", None])
    read = spark.read.format("kafka_async").options(**options(kafka43, topic, format="avro", schema=schema)).load()

    found = sorted(map(tuple, read.select("offset", "id", "item", "_corrupt").collect()))

    assert found == [(0, 1, "ab", None), (1, 2, None, None), (2, None, None, b"\4"), (3, None, None, None)]


def test_texts_are_read_as_texts(spark: Any, kafka43: KafkaCluster) -> None:
    topic = filled(kafka43, "values-string", ["é".encode(), b"", b"a\xff", None])
    read = spark.read.format("kafka_async").options(**options(kafka43, topic, format="string")).load()

    found = sorted(map(tuple, read.select("offset", "value", "_corrupt").collect()))

    assert read.schema["value"].dataType.simpleString() == "string"
    assert found == [(0, "é", None), (1, "", None), (2, None, b"a\xff"), (3, None, None)]


def test_bad_values_are_found_without_reading_the_fields(spark: Any, kafka43: KafkaCluster) -> None:
    topic = filled(kafka43, "values-dead-letters", [b'{"id":%d,"m":{"a":1}}' % n if n % 7 else b'{"id":"bad"}' for n in range(20)])
    given = options(kafka43, topic, format="json", schema="id INT, m MAP<STRING, INT>")
    read = spark.read.format("kafka_async").options(**given)

    counts = [
        tuple(frame.selectExpr("count(*)", "count(_corrupt)").first())
        for frame in (read.schema("_corrupt BINARY").load(), read.schema("_corrupt BINARY, m MAP<STRING, INT>").load())
    ]

    assert counts == [(20, 3), (20, 3)]


def test_a_poisoned_value_ends_a_failfast_read_and_is_named(spark: Any, kafka43: KafkaCluster) -> None:
    topic = filled(kafka43, "values-poison", [b'{"a":1}'] * 5 + [b"{"])
    read = (
        spark.read.format("kafka_async").options(**options(kafka43, topic, format="json", schema="a INT", mode="failfast")).load()
    )

    with pytest.raises(
        Exception, match=r"DeserializationError: values-poison-0, offset 5: the value cannot be decoded: it is no JSON"
    ):
        read.collect()
