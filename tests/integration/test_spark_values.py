"""Values to columns inside Spark: beside ``from_json``, and from a topic."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyarrow")

from kafka_async.adapters.values.ddl import parse_fields
from tests.adapters.values.json_texts import MORE_THAN_ONE_OBJECT, NO_OBJECT, SCHEMA, TEXTS
from tests.adapters.values.registry_server import registry_server
from tests.brokers import KafkaCluster

pytestmark = pytest.mark.spark


def options(cluster: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    return given | {f"value.{name.replace('_', '.')}": text for name, text in more.items()}


def filled(cluster: KafkaCluster, name: str, values: Sequence[bytes | None], partitions: int = 1) -> str:
    topic = cluster.create_topic(name, partitions)
    cluster.produce(topic, len(values), values=lambda index: values[index], partitions=partitions)
    return topic


def test_json_is_read_as_from_json_reads_it(spark: Any, kafka44: KafkaCluster) -> None:
    from pyspark.sql import functions

    topic = filled(kafka44, "values-json", [*(text.encode() for text in TEXTS), None])
    names = [name for name, _ in parse_fields(SCHEMA)]
    wanted = ["offset", "{0}_corrupt IS NOT NULL", *(f"CAST({{0}}{name} AS STRING)" for name in names)]
    as_json = functions.from_json(
        functions.col("value").cast("string"), f"{SCHEMA}, _corrupt STRING", {"columnNameOfCorruptRecord": "_corrupt"}
    )
    theirs = spark.read.format("kafka").options(**options(kafka44, topic)).load().select("offset", as_json.alias("r"))
    ours = spark.read.format("kafka_async").options(**options(kafka44, topic, format="json", schema=SCHEMA)).load()

    expected = theirs.selectExpr(*(each.format("r.") for each in wanted)).collect()
    found = ours.selectExpr(*(each.format("") for each in wanted)).collect()

    pairs = zip(sorted(map(tuple, found)), sorted(map(tuple, expected)), strict=True)
    assert {[*TEXTS, None][mine[0]]: (mine, other) for mine, other in pairs if mine != other} == {}


def test_a_value_that_is_not_one_object_is_bad_though_from_json_takes_it(spark: Any, kafka44: KafkaCluster) -> None:
    texts = [*MORE_THAN_ONE_OBJECT, *NO_OBJECT]
    topic = filled(kafka44, "values-json-one-object", [text.encode() for text in texts])
    read = spark.read.format("kafka_async").options(**options(kafka44, topic, format="json", schema="a INT")).load()

    found = sorted(map(tuple, read.select("offset", "a", "_corrupt").collect()))

    assert found == [(place, None, text.encode()) for place, text in enumerate(texts)]


def test_avro_of_a_registry_becomes_columns_and_a_stream_outlives_a_poisoned_value(
    spark: Any, kafka44: KafkaCluster, tmp_path: Path
) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}
    topic = filled(kafka44, "values-avro", [b"\0\0\0\0\1" + bytes([2 * n]) + b"\4ab" for n in range(20)] + [b"poison", None])
    with registry_server() as registry:
        registry.put(f"/subjects/{topic}-value/versions/latest", schema)
        registry.put("/schemas/ids/1", schema)
        given = options(kafka44, topic, format="avro", schema_registry_url=registry.url) | {"startingOffsets": "earliest"}
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


def test_a_stream_keeps_the_schema_of_the_registry_that_it_began_with(spark: Any, kafka44: KafkaCluster, tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    versions = [
        {"type": "record", "name": "R", "fields": [{"name": "id", "type": kind}, {"name": "item", "type": "string"}]}
        for kind in ("long", "string")
    ]
    topic = filled(kafka44, "values-kept", [b"\0\0\0\0\1" + bytes([2 * n]) + b"\4ab" for n in range(20)])

    def run(**more: str) -> list[tuple[Any, ...]]:
        given = options(kafka44, topic, format="avro", schema_registry_url=registry.url, **more) | {"startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka_async").options(**given).load().select("offset", "id", "item")
        found: list[tuple[Any, ...]] = []
        writer = rows.writeStream.foreachBatch(lambda frame, _: found.extend(map(tuple, frame.collect())))
        writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
        return sorted(found)

    with registry_server() as registry:
        for number, schema in enumerate(versions, 1):
            for path in (f"/subjects/{topic}-value/versions/{number}", f"/subjects/{topic}-value/versions/latest"):
                registry.put(path, schema, id=number, version=number)
            registry.put(f"/schemas/ids/{number}", schema)
            if number == 1:
                assert run() == [(n, n, "ab") for n in range(20)]
        kafka44.produce(topic, 5, values=lambda n: b"\0\0\0\0\1" + bytes([2 * n]) + b"\4cd")
        with pytest.raises(Exception, match="began with the schema of id 1, version 1, in which field 'id' was BIGINT"):
            run()
        assert run(schema_registry_version="1") == [(20 + n, n, "cd") for n in range(5)]


def test_avro_with_ids_in_headers_becomes_columns(spark: Any, kafka44: KafkaCluster) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    guid = UUID("12345678-1234-5678-1234-567812345678")
    topic = kafka44.create_topic("values-header-ids", 1)
    kafka44.produce(topic, 3, values=lambda n: bytes([2 * n]), headers=[("a", b"x"), ("__value_schema_id", b"\1" + guid.bytes)])
    kafka44.produce(topic, 2, values=lambda n: b"\0\0\0\0\1" + bytes([20 + 2 * n]), headers=[("a", b"x")])
    with registry_server() as registry:
        registry.put(f"/subjects/{topic}-value/versions/latest", schema)
        registry.put("/schemas/ids/1", schema)
        registry.put(f"/schemas/guids/{guid}", schema)
        given = options(kafka44, topic, format="avro", schema_registry_url=registry.url)
        read = spark.read.format("kafka_async").options(**given).load().select("offset", "id", "_corrupt_reason")
        found = sorted(map(tuple, read.collect()))

    assert found == [(0, 0, None), (1, 1, None), (2, 2, None), (3, 10, None), (4, 11, None)]


def test_a_topic_without_ids_is_an_error_though_bad_values_are_permitted(spark: Any, kafka44: KafkaCluster) -> None:
    pytest.importorskip("fastavro")
    topic = filled(kafka44, "values-no-ids", [b"\2"] * 20)
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    with registry_server() as registry:
        given = options(kafka44, topic, format="avro", schema=json.dumps(schema), schema_registry_url=registry.url)
        read = spark.read.format("kafka_async").options(**given).load()
        with pytest.raises(Exception, match="none of 20 values has the id of a schema"):
            read.collect()


def test_a_topic_without_ids_is_an_error_though_each_partition_has_few_records(spark: Any, kafka44: KafkaCluster) -> None:
    pytest.importorskip("fastavro")
    topic = kafka44.create_topic("values-few-without-ids", partitions=8)
    kafka44.produce(topic, 24, partitions=8, values=lambda _: b"\2")
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    with registry_server() as registry:
        given = options(kafka44, topic, format="avro", schema=json.dumps(schema), schema_registry_url=registry.url)
        read = spark.read.format("kafka_async").options(**given).option("minPartitions", "1").load()
        with pytest.raises(Exception, match=r"none of \d+ values has the id of a schema"):
            read.collect()


def test_avro_without_a_registry_becomes_columns(spark: Any, kafka44: KafkaCluster) -> None:
    pytest.importorskip("fastavro")
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    topic = filled(kafka44, "values-bare-avro", [b"\2\2\4ab", b"\4\0", b"\4", None])
    read = spark.read.format("kafka_async").options(**options(kafka44, topic, format="avro", schema=schema)).load()

    found = sorted(map(tuple, read.select("offset", "id", "item", "_corrupt").collect()))

    assert found == [(0, 1, "ab", None), (1, 2, None, None), (2, None, None, b"\4"), (3, None, None, None)]


def test_texts_are_read_as_texts(spark: Any, kafka44: KafkaCluster) -> None:
    topic = filled(kafka44, "values-string", ["é".encode(), b"", b"a\xff", None])
    read = spark.read.format("kafka_async").options(**options(kafka44, topic, format="string")).load()

    found = sorted(map(tuple, read.select("offset", "value", "_corrupt").collect()))

    assert read.schema["value"].dataType.simpleString() == "string"
    assert found == [(0, "é", None), (1, "", None), (2, None, b"a\xff"), (3, None, None)]


def test_keys_become_columns_and_values_stay_beside_theirs(spark: Any, kafka44: KafkaCluster) -> None:
    topic = kafka44.create_topic("values-keys", 1)
    kafka44.produce(
        topic,
        3,
        keys=lambda n: b'{"id":%d}' % n if n else b"bad",
        values=lambda n: b'{"id":%d,"item":"x"}' % (10 * n),
    )
    more = {"key.format": "json", "key.schema": "id INT", "value.keep": "true"}
    read = spark.read.format("kafka_async").options(**options(kafka44, topic, format="json", schema="id INT, item STRING"), **more)
    frame = read.load()

    found = sorted(map(tuple, frame.select("offset", "key_id", "_corrupt_key", "_corrupt_key_reason", "id", "value").collect()))

    assert frame.columns[:6] == ["key_id", "_corrupt_key", "_corrupt_key_reason", "value", "id", "item"]
    assert [row[:3] for row in found] == [(0, None, b"bad"), (1, 1, None), (2, 2, None)]
    assert found[0][3].startswith("it is not JSON")
    assert [row[4:] for row in found] == [(10 * n, b'{"id":%d,"item":"x"}' % (10 * n)) for n in range(3)]


def test_bad_values_are_found_without_reading_the_fields(spark: Any, kafka44: KafkaCluster) -> None:
    topic = filled(kafka44, "values-dead-letters", [b'{"id":%d,"m":{"a":1}}' % n if n % 7 else b'{"id":"bad"}' for n in range(20)])
    given = options(kafka44, topic, format="json", schema="id INT, m MAP<STRING, INT>")
    read = spark.read.format("kafka_async").options(**given)

    counts = [
        tuple(frame.selectExpr("count(*)", "count(_corrupt)").first())
        for frame in (read.schema("_corrupt BINARY").load(), read.schema("_corrupt BINARY, m MAP<STRING, INT>").load())
    ]

    assert counts == [(20, 3), (20, 3)]


def test_bad_records_go_to_a_table_of_their_own_with_the_reason(spark: Any, kafka44: KafkaCluster, tmp_path: Path) -> None:
    topic = filled(kafka44, "values-dead-letter-table", [b'{"id":%d}' % n if n % 7 else b'{"id":"bad"}' for n in range(20)])
    given = options(kafka44, topic, format="json", schema="id INT") | {"startingOffsets": "earliest"}
    bad_ones: list[int] = []

    def write(batch: Any, number: int) -> None:
        batch.persist()
        bad = batch.where("_corrupt IS NOT NULL").select("partition", "offset", "_corrupt", "_corrupt_reason")
        bad.write.mode("append").parquet(str(tmp_path / "bad"))
        batch.where("_corrupt IS NULL").drop("_corrupt", "_corrupt_reason").write.mode("append").parquet(str(tmp_path / "good"))
        bad_ones.append(bad.count())
        batch.unpersist()

    stream = spark.readStream.format("kafka_async").options(**given).load()
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)

    assert bad_ones == [3]
    reason = "field 'id': expected INT, found a string"
    assert sorted(map(tuple, spark.read.parquet(str(tmp_path / "bad")).collect())) == [
        (0, offset, b'{"id":"bad"}', reason) for offset in (0, 7, 14)
    ]
    assert spark.read.parquet(str(tmp_path / "good")).count() == 17


def test_a_poisoned_value_ends_a_failfast_read_and_is_named(spark: Any, kafka44: KafkaCluster) -> None:
    topic = filled(kafka44, "values-poison", [b'{"a":1}'] * 5 + [b"{"])
    read = (
        spark.read.format("kafka_async").options(**options(kafka44, topic, format="json", schema="a INT", mode="failfast")).load()
    )

    with pytest.raises(
        Exception, match=r"DeserializationError: values-poison-0, offset 5: the value cannot be decoded: it is not JSON"
    ):
        read.collect()


def test_protobuf_of_a_registry_becomes_columns(spark: Any, kafka44: KafkaCluster) -> None:
    pytest.importorskip("ptars", reason="ptars is not installed: pip install '.[protobuf]'")
    from tests.adapters.values import test_protobuf as messages

    full = {"id": 7, "large": 2**64 - 1, "tags": ["a"], "counts": {"x": 3}, "price": {"cents": 5}, "lines": [{"amount": 1}]}
    value = messages.order(**full, took=timedelta(seconds=90), at=datetime(2026, 11, 25, 12, tzinfo=UTC), color=1)
    values = [messages.framed(10, messages.ORDER, each) for each in (value, b"")]
    topic = filled(kafka44, "values-protobuf", [*values, b"poison", None])
    with registry_server() as registry:
        messages.put(registry)
        given = options(kafka44, topic, format="protobuf", message="shop.Order", schema_registry_url=registry.url) | {
            "value.schema.registry.subject": "orders-value"
        }
        frame = spark.read.format("kafka_async").options(**given).load()
        shown = ["CAST(took AS STRING)", "CAST(at AS STRING)", "color", "note", "_corrupt"]
        picked = frame.orderBy("offset").selectExpr("id", "large", "tags", "counts.x", "price.cents", "lines.amount", *shown)
        found = [tuple(row) for row in picked.collect()]
    assert found == [
        (7, Decimal(2**64 - 1), ["a"], 3, 5, [1], "INTERVAL '0 00:01:30' DAY TO SECOND", "2026-11-25 12:00:00", "BLUE", None, None),
        (0, Decimal(0), [], None, None, [], None, None, "RED", None, None),
        (*[None] * 10, b"poison"),
        (None,) * 11,
    ]


def test_a_union_of_several_types_is_a_struct(spark: Any, kafka44: KafkaCluster) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "string", "long"]}]}
    topic = filled(kafka44, "values-unions", [b"\2\4ab", b"\4\6", b"\0", b"\6"])
    given = options(kafka44, topic, format="avro", schema=json.dumps(schema))
    frame = spark.read.format("kafka_async").options(**given).load()
    found = [tuple(row) for row in frame.orderBy("offset").selectExpr("u.member0", "u.member1", "u IS NULL", "_corrupt").collect()]
    assert found == [("ab", None, False, None), (None, 3, False, None), (None, None, True, None), (None, None, True, b"\6")]
