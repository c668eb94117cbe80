"""Values with a schema in a registry, as JSON on the command line."""

import base64
import io
import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("typer")
pytest.importorskip("fastavro")
pytest.importorskip("ptars")

import fastavro
import typer
from google.protobuf import any_pb2, descriptor_pb2, wrappers_pb2

from kafka_async.adapters.cli.formats import formatter, json_line
from kafka_async.adapters.cli.serdes import Serdes, as_json
from kafka_async.testing import Cluster
from kafka_async.testing.threaded import ThreadedCluster
from tests.adapters.values.registry_server import RegistryServer, registry_server

from .test_commands import run
from .test_formats import record

GUID = UUID("12345678-1234-5678-1234-567812345678")
MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": "Money"},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
ONE = {"id": 1, "day": date(2020, 1, 2), "price": {"cents": 990}, "raw": b"\x00\xff"}
SHOWN = {"id": 1, "day": "2020-01-02", "price": {"cents": 990}, "raw": "\x00\xff"}


@pytest.mark.parametrize(
    ("given", "url", "complaint"),
    [
        (["xml"], "http://localhost", "'xml': expected avro, protobuf or json, or one part as in value=avro"),
        (["header=avro"], "http://localhost", "'header=avro': expected"),
        (["avro"], None, "-s needs -r, the URL of the schema registry"),
        ([], "http://localhost", "-r and --registry-option need -s"),
        (["avro"], "localhost:8081", "registry url: expected https://host"),
    ],
)
def test_what_is_wrong_is_said(given: list[str], url: str | None, complaint: str) -> None:
    with pytest.raises(typer.BadParameter, match=complaint):
        Serdes.parse(given, url, [])


@pytest.mark.parametrize("option", ["basic.auth.user.info=me:hunter-2", "hunter-2", "=hunter-2"])
def test_a_login_is_not_shown_nor_sent_without_tls(option: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        Serdes.parse(["avro"], "http://registry.example.org", [option])
    assert "hunter-2" not in str(raised.value)


def test_without_the_options_nothing_is_read_differently() -> None:
    assert Serdes.parse([], None, []) is None


def test_values_become_what_json_has() -> None:
    value = {
        "at": datetime(2020, 1, 2, 3, tzinfo=UTC),
        "price": Decimal("1.20"),
        "id": GUID,
        "numbers": [math.nan, math.inf, -math.inf, 1.5],
        "nothing": None,
    }
    assert as_json(value) == {
        "at": "2020-01-02T03:00:00+00:00",
        "price": "1.20",
        "id": str(GUID),
        "numbers": ["NaN", "Infinity", "-Infinity", 1.5],
        "nothing": None,
    }


# --- the command ---------------------------------------------------------------------------------------------------------------


def avro(record: Any, frame: bytes = b"\0\0\0\0\x07") -> bytes:
    out = io.BytesIO(frame)
    out.seek(len(frame))
    named: dict[str, Any] = {}
    fastavro.parse_schema(MONEY, named_schemas=named)
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), record)
    return out.getvalue()


def descriptor() -> str:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    message = file.message_type.add(name="Order")
    message.field.add(name="order_id", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="note", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    return base64.b64encode(file.SerializeToString()).decode()


def descriptor_with_any() -> str:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="event.proto", package="shop", syntax="proto3", dependency=["google/protobuf/any.proto"]
    )
    held = file.message_type.add(name="Event").field.add(name="held", number=1, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL)
    held.type_name = ".google.protobuf.Any"
    file.message_type.add(name="Sold").field.add(name="count", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    return base64.b64encode(file.SerializeToString()).decode()


def event(name: str, data: bytes, levels: int = 1) -> bytes:
    """Return an event whose ``Any`` holds a message, with more of them around it for more levels."""
    held = any_pb2.Any(type_url=f"type.googleapis.com/{name}", value=data)
    for _ in range(levels - 1):
        held = any_pb2.Any(type_url="type.googleapis.com/google.protobuf.Any", value=held.SerializeToString())
    # A message whose first field is made of bytes has the form of one that holds another message there.
    return b"\0\0\0\0\x0a\0" + bytes(wrappers_pb2.BytesValue(value=held.SerializeToString()).SerializeToString())


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    def write(cluster: Cluster) -> None:
        for topic in ("avro", "protobuf", "json", "bad", "any", "unknown", "deep-any", "deep-json"):
            cluster.topic(topic)
        cluster.produce("avro", key=b"k", value=avro(ONE))
        cluster.produce("avro", key=b"k", value=None)
        cluster.produce("avro", key=b"k", value=avro(ONE, b""), headers=[("__value_schema_id", b"\1" + GUID.bytes)])
        cluster.produce("protobuf", value=b"\0\0\0\0\x08\x02\x02" + b"\x08\x05\x12\x03mug")
        cluster.produce("json", value=b'\0\0\0\0\x09{"id": 1}')
        cluster.produce("json", value=b'{"id": 2}', headers=[("__value_schema_id", b"\0\0\0\0\x09")])
        cluster.produce("bad", value=avro(ONE))
        cluster.produce("bad", value=b'{"id": 2}')
        for topic in ("any", "unknown", "deep-any"):
            cluster.produce(topic, value=event("shop.Sold", b"\x08\x05"))
        cluster.produce("any", value=event("google.protobuf.StringValue", b"\x0a\x03mug"))
        cluster.produce("unknown", value=event("shop.Stolen", b""))
        cluster.produce("deep-any", value=event("shop.Sold", b"", 1000))
        for levels in (1, 100_000):
            cluster.produce("deep-json", value=b"\0\0\0\0\x09" + b"[" * levels + b"]" * levels)

    with ThreadedCluster(Cluster()) as cluster:
        cluster.call(write).result()
        yield cluster.bootstrap


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        references = [{"name": "Money", "subject": "money", "version": 1}]
        server.put("/schemas/ids/7", ORDER, references=references)
        server.put(f"/schemas/guids/{GUID}", ORDER, references=references)
        server.put("/subjects/money/versions/1", MONEY)
        body = json.dumps({"schema": descriptor(), "schemaType": "PROTOBUF"})
        server.answers["/schemas/ids/8?format=serialized"] = (200, body.encode())
        body = json.dumps({"schema": descriptor_with_any(), "schemaType": "PROTOBUF"})
        server.answers["/schemas/ids/10?format=serialized"] = (200, body.encode())
        yield server


def consume(brokers: str, topic: str, *arguments: str) -> Any:
    return run("consume", topic, "-b", brokers, "-e", "-q", "-X", "fetch.max.wait.ms=10", *arguments)


@pytest.mark.brokers
def test_avro_values_are_json_with_references_and_ids_in_front_or_in_a_header(brokers: str, registry: RegistryServer) -> None:
    result = consume(brokers, "avro", "-s", "value=avro", "-r", registry.url, "-J")
    lines = [json.loads(line) for line in result.stdout.splitlines()]

    assert [(line["key"], line["payload"]) for line in lines] == [("k", SHOWN), ("k", None), ("k", SHOWN)]
    reference = "/subjects/money/versions/1?deleted=true"
    assert sorted(registry.asked) == sorted([reference, reference, "/schemas/ids/7", f"/schemas/guids/{GUID}"])

    result = consume(brokers, "avro", "-s", "value=avro", "-r", registry.url, "-Z", "-f", r"%k %s\n")
    assert [line.partition(" ")[2] for line in result.stdout.splitlines()] == [
        lines[0]["payload"] and _text(SHOWN),
        "NULL",
        _text(SHOWN),
    ]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("\\u00ff", "ÿ")


@pytest.mark.brokers
def test_protobuf_and_json_are_json_too(brokers: str, registry: RegistryServer) -> None:
    protobuf = consume(brokers, "protobuf", "-s", "value=protobuf", "-r", registry.url)
    assert json.loads(protobuf.stdout) == {"order_id": 5, "note": "mug"}

    plain = consume(brokers, "json", "-s", "value=json")
    assert [json.loads(line) for line in plain.stdout.splitlines()] == [{"id": 1}, {"id": 2}]


@pytest.mark.brokers
def test_any_holds_messages_of_the_schema_and_googles(brokers: str, registry: RegistryServer) -> None:
    result = consume(brokers, "any", "-s", "value=protobuf", "-r", registry.url)

    assert [json.loads(line)["held"] for line in result.stdout.splitlines()] == [
        {"@type": "type.googleapis.com/shop.Sold", "count": 5},
        {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "mug"},
    ]


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("topic", "kind", "why"),
    [
        ("unknown", "protobuf", "Protobuf's JSON cannot hold it (Can not find message descriptor by type_url"),
        ("deep-any", "protobuf", "it is nested too deeply"),
        ("deep-json", "json", "it is nested too deeply"),
    ],
)
def test_a_value_that_json_cannot_hold_is_named_after_those_before_it(
    brokers: str, registry: RegistryServer, topic: str, kind: str, why: str
) -> None:
    result = consume(brokers, topic, "-s", f"value={kind}", *(() if kind == "json" else ("-r", registry.url)))

    assert result.exit_code == 1
    assert f"{topic} [0] at offset 1: the value cannot be read as {kind}: {why}" in " ".join(result.stderr.split())
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize("levels", range(100, 1100, 50))
def test_how_deep_a_value_may_be_is_known_before_it_is_written(levels: int) -> None:
    text = b"[" * levels + b"]" * levels
    chosen = Serdes.parse(["value=json"], None, [])
    assert chosen is not None
    reading = chosen.open()
    deep = record(value=b"\0\0\0\0\x09" + text)
    try:
        reading.objects(deep)
    except ValueError as error:
        assert str(error).endswith("it is nested too deeply")  # noqa: PT017  # how deep that is depends on the Python
        return
    assert reading.writer(formatter("%s"), as_json=False)(deep) == text
    assert text in reading.writer(json_line, as_json=True)(deep)


@pytest.mark.brokers
def test_a_value_that_cannot_be_read_is_named_after_those_before_it(brokers: str, registry: RegistryServer) -> None:
    result = consume(brokers, "bad", "-s", "value=avro", "-r", registry.url)

    assert result.exit_code == 1
    assert "bad [0] at offset 1: the value cannot be read as avro: it does not begin with a zero byte" in result.stderr
    assert json.loads(result.stdout) == SHOWN


@pytest.mark.brokers
def test_a_key_without_a_schema_is_told_from_a_value_without_one(brokers: str, registry: RegistryServer) -> None:
    result = consume(brokers, "avro", "-s", "avro", "-r", registry.url)

    assert result.exit_code == 1
    assert "avro [0] at offset 0: the key cannot be read as avro: it does not begin with a zero byte" in result.stderr
    assert "; to read only values with a schema: -s value=avro" in result.stderr


@pytest.mark.brokers
def test_a_schema_that_is_not_there_is_named(brokers: str, registry: RegistryServer) -> None:
    del registry.answers["/schemas/ids/7"]
    result = consume(brokers, "avro", "-s", "value=avro", "-r", registry.url)

    assert result.exit_code == 1
    assert "avro [0] at offset 0: the value cannot be read as avro: " in result.stderr
    assert f"{registry.url}/schemas/ids/7: the registry has no such entry" in result.stderr
