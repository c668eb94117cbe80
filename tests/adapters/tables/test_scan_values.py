"""Values as columns."""

import io
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafka_async.adapters.ranges.planner import OffsetRange
from kafka_async.adapters.tables.sampling import first_values
from kafka_async.adapters.tables.scan import scan
from kafka_async.adapters.tables.streams import Opened
from kafka_async.adapters.values.framed import FEW
from kafka_async.errors import DeserializationError, KafkaConfigurationError
from kafka_async.testing import Cluster

from ..values.registry_server import registry_server
from .support import Scanned, scanned

DDL = "id BIGINT, item STRING"
VALUES = [b'{"id": 1, "item": "tea"}', b'{"id": "x"}', None, b'{"id": 4, "item": "cup"}']


@pytest.fixture
def orders() -> Iterator[Scanned]:
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a"))
        found.do(lambda cluster: cluster.produce_many("a", VALUES, partition=0))
        yield found


def test_fields_and_where_they_come_from(orders: Scanned) -> None:
    table = orders.scan("a", values="json", schema=DDL)
    names = ["id", "item", "_corrupt", "_corrupt_reason", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    assert table.schema.names == names
    rows = table.to_arrow().to_pylist()
    found = [(row["id"], row["item"], row["_kafka_offset"]) for row in rows]
    assert found == [(1, "tea", 0), (None, None, 1), (None, None, 2), (4, "cup", 3)]
    assert [row["_corrupt"] for row in rows] == [None, VALUES[1], None, None]
    assert rows[1]["_corrupt_reason"]


@pytest.mark.parametrize(("on_bad", "ids"), [("null", [1, None, None, 4]), ("skip", [1, None, 4])])
def test_what_becomes_of_bad_values(orders: Scanned, on_bad: Any, ids: list[int | None]) -> None:
    table = orders.scan("a", values="json", schema=DDL, on_bad=on_bad)
    assert table.schema.names == ["id", "item", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    assert table.to_arrow().column("id").to_pylist() == ids
    assert table.count() == len(ids)
    assert table.head(2).num_rows == 2
    few = orders.scan("a", values="json", schema=DDL, on_bad=on_bad, columns=["_kafka_offset"])
    assert few.count() == len(ids)
    assert few.to_arrow().num_rows == len(ids)


def test_a_bad_value_of_json_keeps_its_other_fields_and_ranges_say_nothing_of_fields(orders: Scanned) -> None:
    orders.do(lambda cluster: cluster.produce("a", value=b'{"id": "x", "item": "jug"}', partition=0))
    marked = orders.scan("a", values="json", schema=DDL)
    row = marked.to_arrow().to_pylist()[4]
    assert (row["id"], row["item"], row["_corrupt"]) == (None, "jug", b'{"id": "x", "item": "jug"}')
    unmarked = orders.scan(ranges=marked.ranges, values="json", schema=DDL, on_bad="null", columns=["id", "item"])
    assert unmarked.to_arrow().to_pylist()[4] == {"id": None, "item": "jug"}
    assert "id" not in orders.scan(ranges=marked.ranges).schema.names


def test_a_bad_value_ends_the_reading_if_that_is_wanted(orders: Scanned) -> None:
    table = orders.scan("a", values="json", schema=DDL, on_bad="raise")
    with pytest.raises(DeserializationError, match="a-0 at offset 1: "):
        table.to_arrow()
    assert table.count() == 4, "counting reads no values"


def test_any_columns_of_both(orders: Scanned) -> None:
    table = orders.scan("a", values="json", schema=DDL, columns=["offset", "item", "_kafka_value"])
    assert table.to_arrow().to_pylist()[0] == {"offset": 0, "item": "tea", "_kafka_value": VALUES[0]}
    fields = orders.scan("a", values="json", schema="offset STRING, id BIGINT", columns=["offset", "_kafka_offset"])
    assert fields.to_arrow().to_pylist()[3] == {"offset": None, "_kafka_offset": 3}


def test_text(orders: Scanned) -> None:
    table = orders.scan("a", values="text", on_bad="null")
    assert table.schema.field("value").type == pa.string()
    assert table.to_arrow().column("value").to_pylist()[0] == '{"id": 1, "item": "tea"}'


def test_fields_are_found_in_the_values(orders: Scanned, caplog: pytest.LogCaptureFixture) -> None:
    table = orders.scan("a", values="json", schema="infer", columns=["id", "item"])
    with caplog.at_level(logging.WARNING, "kafka_async.scan"):
        assert table.schema.names == ["id", "item"]
    assert "schema='infer': " in caplog.text, "a number here, a text there"
    assert table.to_arrow().column("item").to_pylist() == ["tea", None, None, "cup"]


def test_a_schema_is_found_in_nothing() -> None:
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a"))
        with pytest.raises(KafkaConfigurationError, match="infer"):
            found.scan("a", values="json", schema="infer").to_arrow()


def test_fields_are_found_behind_records_without_a_value(orders: Scanned) -> None:
    orders.do(lambda cluster: cluster.topic("b", partitions=2))
    orders.do(lambda cluster: cluster.produce_many("b", [None] * 10_500, partition=0))
    orders.do(lambda cluster: cluster.produce_many("b", VALUES[:1], partition=0))
    table = orders.scan("b", values="json", schema="infer", columns=["id", "item"])
    assert str(table.schema) == "id: int64\nitem: string"


@pytest.fixture
def gaps() -> Iterator[Scanned]:
    """A topic with 20 values ``0`` behind a gap of 60 offsets in partition 0, and 60 values ``1`` in partition 1."""
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a", partitions=2, cleanup_policy="compact"))
        for partition, key, value in (
            *((0, "same" if number < 61 else f"k{number}", "0") for number in range(80)),
            *((1, f"k{number}", "1") for number in range(60)),
        ):
            found.do(partial(Cluster.produce, topic="a", key=key, value=value, partition=partition))
        found.do(lambda cluster: cluster.compact(("a", 0)))
        yield found


@pytest.mark.parametrize(("count", "least"), [(20, (0, 10)), (75, (15, 38)), (500, (20, 60))])
def test_a_sample_has_values_of_each_partition_and_more_where_one_begins_with_a_gap(
    gaps: Scanned, count: int, least: tuple[int, int]
) -> None:
    found = sampled(gaps, count=count).to_pylist()
    assert len(found) >= min(count, 80)
    assert found.count(b"0") >= least[0]
    assert found.count(b"1") >= least[1]


def test_a_sample_of_large_values_has_fewer_of_them() -> None:
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a"))
        for _ in range(20):
            found.do(lambda cluster: cluster.produce("a", value=bytes(300_000)))
        assert 0 < len(sampled(found, count=500, most_bytes=1_000_000)) < 15, "what is read at a time is in it"
        assert len(sampled(found, count=500)) == 20


def sampled(found: Scanned, **limits: int) -> Any:
    table = found.scan("a")
    pieces = [OffsetRange(partition, start, end) for partition, (start, end) in table.ranges.items()]
    options = {"bootstrap_servers": found.served.bootstrap, "auto_offset_reset": "none", "enable_auto_commit": False}
    lost: list[str] = []
    values = first_values(options, pieces, Opened(), lost.append, fails=True, **limits)
    assert lost == []
    return values


def test_several_topics_are_told_apart(orders: Scanned) -> None:
    orders.do(lambda cluster: cluster.topic("b"))
    orders.do(lambda cluster: cluster.produce_many("b", [VALUES[0]], partition=0))
    table = orders.scan("a", "b", values="json", schema=DDL, on_bad="skip", ordered=True).to_arrow()
    assert table.column("_kafka_topic").to_pylist() == ["a", "a", "a", "b"]


def test_polars_reads_only_the_fields_that_it_needs(orders: Scanned) -> None:
    polars = pytest.importorskip("polars", reason="it is in the extra 'test'")
    lazy = orders.scan("a", values="json", schema=DDL).lazy()
    assert lazy.filter(polars.col("item") == "cup").select("id").collect().to_dicts() == [{"id": 4}]
    assert lazy.filter(polars.col("_corrupt_reason").is_not_null()).select("_kafka_offset").collect().to_dicts() == [
        {"_kafka_offset": 1}
    ]


def test_avro_with_a_registry() -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}
    with registry_server() as registry, scanned() as found:
        registry.put("/subjects/a-value/versions/latest", schema, id=7, version=3)
        registry.put("/subjects/a-value/versions/3", schema, id=7, version=3)
        registry.put("/schemas/ids/7", schema)
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"id": 7, "item": "tea"})
        found.do(lambda cluster: cluster.topic("a"))
        frame = b"\0" + (7).to_bytes(4, "big") + body.getvalue()
        found.do(lambda cluster: cluster.produce_many("a", [frame, b"bad"], partition=0))
        orders = found.scan("a", values="avro", registry=registry.url, columns=["id", "item", "_corrupt"])
        assert orders.schema_version == 3
        table = orders.to_arrow()
        assert table.to_pylist() == [{"id": 7, "item": "tea", "_corrupt": None}, {"id": None, "item": None, "_corrupt": b"bad"}]
        again = {"url": registry.url, "version": orders.schema_version}
        assert found.scan("a", values="avro", registry=again, columns=["id", "item", "_corrupt"]).to_arrow() == table
        with pytest.raises(KafkaConfigurationError, match="registry: the option 'version' is a text; got NoneType"):
            found.scan("a", values="avro", registry={"url": registry.url, "version": None}).to_arrow()


@pytest.mark.slow
@pytest.mark.parametrize("topics", [["a"], ["a", "b"]])
def test_a_few_values_without_an_id_are_as_few_whenever_they_are_read_again(topics: list[str]) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    with registry_server() as registry, scanned() as found:
        for topic in topics:
            registry.put(f"/subjects/{topic}-value/versions/latest", schema, id=7, version=3)
            found.do(partial(Cluster.topic, name=topic))
            found.do(partial(Cluster.produce_many, topic=topic, values=[b"bad"] * (FEW - 2), partition=0))
        orders = found.scan(*topics, values="avro", registry=registry.url, columns=["id", "_corrupt"])
        for again in (orders, orders, orders.refresh()):
            assert again.to_arrow().to_pylist() == [{"id": None, "_corrupt": b"bad"}] * (FEW - 2) * len(topics)
            assert again.plan().offsets == (FEW - 2) * len(topics)
        found.do(lambda cluster: cluster.produce_many("a", [b"bad"] * 2, partition=0))
        with pytest.raises(KafkaConfigurationError, match=f"none of {FEW} values has the id of a schema"):
            orders.refresh().to_arrow()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"values": "jsn"}, "values='jsn': expected one of json, avro, protobuf, text; did you mean 'json'"),
        ({"values": "json"}, "needs schema"),
        ({"values": "json", "schema": "id BIGNIT"}, "BIGNIT"),
        ({"values": "json", "schema": DDL, "on_bad": "drop"}, "on_bad='drop': expected one of column, null, skip, raise"),
        ({"schema": DDL}, "schema has no meaning without values"),
        ({"on_bad": "skip"}, "on_bad='skip' has no meaning without values"),
        ({"on_bad": "raise"}, "on_bad='raise' has no meaning without values"),
        ({"values": "text", "message": "x"}, "message has no meaning with values='text'"),
        ({"values": "json", "schema": DDL, "timezone": "Nowhere/Land"}, "timezone"),
        ({"values": "json", "schema": "infer", "timezone": "Nowhere/Land"}, "timezone='Nowhere/Land': expected a name such as"),
        ({"values": "json", "registry": "http://h", "timezone": "Nowhere/Land"}, "timezone='Nowhere/Land': expected a name such"),
        ({"values": "avro", "registry": "http://h", "timezone": "+02:00"}, "timezone has no meaning with values='avro'"),
        ({"values": "avro", "registry": "http://h", "message": "x"}, "message has no meaning with values='avro'"),
        ({"timezone": "+02:00"}, "timezone has no meaning without values"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(given: dict[str, Any], match: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=match):
        scan("a", **given)


def test_the_zone_that_times_are_in_anyway_may_be_given_with_everything(orders: Scanned) -> None:
    plain = orders.scan("a", timezone="UTC")

    assert plain.schema == orders.scan("a").schema
    assert orders.scan("a", values="text", timezone="UTC").count() == plain.count()


def test_columns_that_are_not_there_are_named_once_the_fields_are_known(orders: Scanned) -> None:
    with pytest.raises(KafkaConfigurationError, match="columns: 'itm' is not one of id, item"):
        orders.scan("a", values="json", schema=DDL, columns=["itm"]).to_arrow()
    with pytest.raises(KafkaConfigurationError, match="schema: '_corrupt' is a column about bad values; on_bad='null' or 'raise'"):
        orders.scan("a", values="json", schema="_corrupt STRING")
    assert "_corrupt" in orders.scan("a", values="json", schema="_corrupt STRING", on_bad="null").schema.names
    with pytest.raises(KafkaConfigurationError, match="_kafka_offset' is a column of the record"):
        orders.scan("a", values="json", schema="_kafka_offset BIGINT").to_arrow()
