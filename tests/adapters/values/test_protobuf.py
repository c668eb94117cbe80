"""Protobuf values to columns, by themselves and in Confluent's wire format."""

import base64
import json
import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("ptars", reason="ptars is not installed: pip install '.[protobuf]'")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402  # of the same extra

from kafka_async.adapters.values import framed as framed_values  # noqa: E402  # beside the others
from kafka_async.adapters.values import registry as module  # noqa: E402  # beside the others
from kafka_async.adapters.values.decoding import ValueDecoder  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.formats import decoder_for  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.registry import RegistryError  # noqa: E402  # beside the others
from kafka_async.errors import DeserializationError, KafkaConfigurationError  # noqa: E402  # beside the others
from kafka_async.network.backoff import ExponentialBackoff  # noqa: E402  # beside the others

from .batches import decoder as typed  # noqa: E402  # needs pyarrow
from .batches import records  # noqa: E402  # needs pyarrow
from .registry_server import RegistryServer, registry_server  # noqa: E402  # beside the others

T = descriptor_pb2.FieldDescriptorProto
TIMESTAMP, DURATION = "google/protobuf/timestamp.proto", "google/protobuf/duration.proto"


def field(message: Any, name: str, number: int, kind: Any, *, many: bool = False, **more: Any) -> None:
    message.field.add(name=name, number=number, type=kind, label=T.LABEL_REPEATED if many else T.LABEL_OPTIONAL, **more)


def order_file() -> Any:
    """Return a file whose second message has what values may have; the first is another one."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.extend([TIMESTAMP, DURATION, "money.proto", "confluent/meta.proto"])
    field(file.message_type.add(name="Other"), "id", 1, T.TYPE_INT64)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        (("id", T.TYPE_INT64), ("item", T.TYPE_STRING), ("small", T.TYPE_UINT32), ("large", T.TYPE_UINT64), ("raw", T.TYPE_BYTES)),
        1,
    ):
        field(order, name, number, kind)
    field(order, "at", 6, T.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    field(order, "took", 7, T.TYPE_MESSAGE, type_name=".google.protobuf.Duration")
    field(order, "color", 8, T.TYPE_ENUM, type_name=".shop.Color")
    field(order, "tags", 9, T.TYPE_STRING, many=True)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, T.TYPE_STRING)
    field(entry, "value", 2, T.TYPE_UINT32)
    field(order, "counts", 10, T.TYPE_MESSAGE, many=True, type_name=".shop.Order.CountsEntry")
    field(order, "price", 11, T.TYPE_MESSAGE, type_name=".shop.Money")
    order.oneof_decl.add(name="to")
    field(order, "shop", 12, T.TYPE_STRING, oneof_index=0)
    field(order, "street", 13, T.TYPE_INT32, oneof_index=0)
    order.oneof_decl.add(name="_note")
    field(order, "note", 14, T.TYPE_STRING, oneof_index=1, proto3_optional=True)
    line = order.nested_type.add(name="Line")
    field(line, "amount", 1, T.TYPE_INT32)
    field(order, "lines", 15, T.TYPE_MESSAGE, many=True, type_name=".shop.Order.Line")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    return file


def money_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    money = file.message_type.add(name="Money")
    field(money, "cents", 1, T.TYPE_INT64)
    return file


def classes() -> dict[str, Any]:
    from google.protobuf import duration_pb2, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    order = order_file()
    order.dependency.remove("confluent/meta.proto")
    for data in (timestamp_pb2.DESCRIPTOR.serialized_pb, duration_pb2.DESCRIPTOR.serialized_pb):
        pool.AddSerializedFile(data)
    for file in (money_file(), order):
        pool.AddSerializedFile(file.SerializeToString())
    names = ("Order", "Other", "Order.Line")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names}


CLASSES = classes()


def order(**fields: Any) -> bytes:
    made = CLASSES["Order"](**fields)
    return bytes(made.SerializeToString())


def put(server: RegistryServer, *, second: Any = None) -> None:
    """Have versions of a subject: ids 10 and 20."""
    money = base64.b64encode(money_file().SerializeToString()).decode()
    server.answers["/subjects/money/versions/1?format=serialized&deleted=true"] = answer(money)
    references = [{"name": "money.proto", "subject": "money", "version": 1}]
    versions = [order_file(), second] if second is not None else [order_file()]
    for number, file in enumerate(versions, 1):
        file.name = ""  # the registry has no name for it
        more = {"id": 10 * number, "version": number, "references": references, "guid": str(UUID(int=number))}
        found = answer(base64.b64encode(file.SerializeToString()).decode(), **more)
        for path in (f"versions/{number}", "versions/latest"):
            server.answers[f"/subjects/orders-value/{path}?format=serialized"] = found
        server.answers[f"/schemas/ids/{10 * number}?format=serialized"] = found
        server.answers[f"/schemas/guids/{UUID(int=number)}?format=serialized"] = found
    server.answers["/subjects/orders-value/versions"] = (200, json.dumps([*range(1, len(versions) + 1)]).encode())


def answer(schema: str, **more: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"schema": schema, "schemaType": "PROTOBUF", **more}).encode()


def framed(number: int, indexes: bytes, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + data


ORDER, OTHER, LINE = b"\x02\x02", b"\0", b"\x04\x02\x02"
"""Lists of indexes: the second message, the first, and the one message in the second that is no entry of a map."""


def decoder(**options: str) -> ValueDecoder:
    given = {"value.format": "protobuf", **{f"value.{name.replace('_', '.')}": text for name, text in options.items()}}
    found = decoder_for(given, topics=("orders",))
    assert found is not None
    return found


def rows(decoder: ValueDecoder, values: Sequence[bytes | None], ids: Sequence[bytes | None] | None = None) -> list[dict[str, Any]]:
    where: dict[str, Any] = {"topic": "orders", "partition": 0, "offsets": pa.array(range(len(values)), pa.int64())}
    headers = None if ids is None else pa.array(ids, pa.binary())
    arrays = decoder.decode(pa.array(values, pa.binary()), ids=headers, **where)
    assert [(name, array.type) for (name, _), array in zip(decoder.fields, arrays, strict=True)] == list(decoder.fields)
    found: list[dict[str, Any]] = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in decoder.fields]).to_pylist()
    return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(module, "PAUSES", ExponentialBackoff(0.01, 2.0))
    monkeypatch.setattr(framed_values, "ONCE_MORE", 0.01)
    monkeypatch.setattr(module, "PATIENCE", 5.0)  # which one answer may take, on a busy machine
    with registry_server() as found:
        yield found


EMPTY: dict[str, Any] = {
    **{"id": 0, "item": "", "small": 0, "large": Decimal(0), "raw": b"", "at": None, "took": None, "color": "RED", "tags": []},
    **{"counts": [], "price": None, "shop": None, "street": None, "note": None, "lines": []},
    **{"_corrupt": None, "_corrupt_reason": None},
}


def test_messages_become_columns(server: RegistryServer) -> None:
    put(server)
    found = decoder(schema_registry_url=server.url, message="shop.Order")
    full = {
        "id": 7,
        "item": "é",
        "small": 2**32 - 1,
        "large": 2**64 - 1,
        "raw": b"\xff",
        "color": 1,
        "tags": ["a", "b"],
        "counts": {"x": 3},
    }
    at = datetime(2026, 11, 25, 12, tzinfo=UTC)
    value = order(**full, at=at, took=timedelta(seconds=90), price={"cents": 5}, street=4, note="", lines=[{"amount": 1}, {}])
    first, second, third = rows(found, [framed(10, ORDER, value), framed(10, ORDER, b""), None])
    assert first == EMPTY | {
        **{
            "id": 7,
            "item": "é",
            "small": 2**32 - 1,
            "large": Decimal(2**64 - 1),
            "raw": b"\xff",
            "color": "BLUE",
            "tags": ["a", "b"],
        },
        **{"counts": [("x", 3)], "at": at, "took": timedelta(seconds=90), "price": {"cents": 5}, "street": 4, "note": ""},
        "lines": [{"amount": 1}, {"amount": 0}],
    }
    assert second == EMPTY
    assert set(third.values()) == {None}


def test_the_message_is_the_first_of_its_file_unless_the_user_says_another(server: RegistryServer) -> None:
    put(server)
    found = decoder(schema_registry_url=server.url)
    assert [name for name, _ in found.fields] == ["id", "_corrupt", "_corrupt_reason"]
    other = CLASSES["Other"](id=5).SerializeToString()
    values = [framed(10, OTHER, other), framed(10, b"\x02\0", other), framed(10, ORDER, other), framed(10, b"\x02\x08", other)]
    assert [row["id"] for row in rows(found, values)] == [5, 5, None, None]
    assert [row["_corrupt_reason"] for row in rows(found, values)[2:]] == [
        "it is a message shop.Order, not shop.Other",
        "it does not name a message of its schema",
    ]
    nested = decoder(schema_registry_url=server.url, message="shop.Order.Line")
    assert rows(nested, [framed(10, LINE, CLASSES["Order.Line"](amount=3).SerializeToString())])[0]["amount"] == 3


def test_bad_values_are_kept_and_the_others_are_read(server: RegistryServer) -> None:
    put(server)
    found = decoder(schema_registry_url=server.url, message="shop.Order")
    good = [framed(10, ORDER, order(id=number)) for number in range(50)]
    cut, unknown, bare = framed(10, ORDER, b"\x12\x05ab"), framed(99, ORDER, order(id=1)), b"\x08"
    values = [*good[:20], cut, *good[20:40], unknown, bare, *good[40:], framed(10, ORDER, b"\x12\x01\xff"), b"\0\0\0\0\x0a"]
    read = rows(found, values)
    assert [row["id"] for row in read if row["_corrupt"] is None] == list(range(50))
    assert [(row["_corrupt"], row["_corrupt_reason"]) for row in read if row["_corrupt"] is not None] == [
        (cut, "it is not a message of the schema (unexpected EOF)"),
        (unknown, "the registry has no schema 99"),
        (bare, "it does not begin with a zero byte and the id of a schema"),
        (values[-2], "it is not a message of the schema (invalid UTF-8)"),
        (values[-1], "it does not name a message of its schema"),
    ]
    with pytest.raises(DeserializationError, match=r"^orders-0, offset 1: the value cannot be decoded: it is not a message"):
        rows(decoder(schema_registry_url=server.url, message="shop.Order", mode="failfast"), [good[0], cut])


def test_ids_may_be_in_headers(server: RegistryServer) -> None:
    put(server)
    found = decoder(schema_registry_url=server.url, message="shop.Order")
    guid = b"\1" + UUID(int=1).bytes
    headers = [guid + ORDER, b"\0\0\0\0\x0a" + ORDER, guid + OTHER, guid, None, b"\2"]
    values = [*[order(id=7)] * 4, framed(10, ORDER, order(id=7)), order(id=7)]
    assert [row["id"] for row in rows(found, values, headers)] == [7, 7, None, None, 7, None]


def test_tasks_have_the_versions_of_the_subject_and_a_stream_keeps_the_first(server: RegistryServer) -> None:
    put(server)
    begun = decoder(schema_registry_url=server.url, message="shop.Order").select({"id"})
    changed = order_file()
    changed.message_type[1].field[0].type = T.TYPE_STRING
    put(server, second=changed)
    now = decoder(schema_registry_url=server.url, message="shop.Order")
    asked = len(server.asked)
    assert (begun.kept, now.kept) == ("orders:id=10,version=1", "orders:id=20,version=2")
    with pytest.raises(
        KafkaConfigurationError, match="in which field 'id' was BIGINT, and in the newest, id 20, version 2, it is STRING"
    ):
        now.keeping(begun.kept)
    item = now.select({"item"}).keeping(begun.kept)
    sent = pickle.loads(pickle.dumps(item))  # noqa: S301  # our own bytes
    assert [row["item"] for row in rows(sent, [framed(10, ORDER, order(item="x"))])] == ["x"]
    assert len(server.asked) == asked


def test_a_topic_that_was_written_without_a_registry_is_an_error(server: RegistryServer) -> None:
    put(server)
    found = decoder(schema_registry_url=server.url, message="shop.Order")
    with pytest.raises(KafkaConfigurationError, match="none of 5 values has the id of a schema that the registry knows"):
        rows(found, [order(id=7)] * 5)


@pytest.mark.slow
@pytest.mark.parametrize("behind", [True, False])
def test_any_number_of_messages_without_an_id_are_bad_ones_in_a_topic_that_has_ids(server: RegistryServer, behind: bool) -> None:
    put(server)
    good, bare = [framed(10, ORDER, order(id=7))], [framed(number, ORDER, order(id=8)) for number in range(1000, 1100)]
    values = bare + good if behind else good + bare
    found = rows(decoder(schema_registry_url=server.url, message="shop.Order"), values)
    assert [row["_corrupt"] for row in found] == [None if value in good else value for value in values]
    assert [row["id"] for row in found if row["_corrupt"] is None] == [7]


def test_bare_messages_are_read_with_a_file_of_descriptors(tmp_path: Path) -> None:
    file = order_file()
    file.dependency.remove("confluent/meta.proto")
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[money_file(), file]).SerializeToString())
    found = decoder(descriptor=str(path), message="shop.Order")
    assert [row["id"] for row in rows(found, [order(id=7), b"\x08", None])] == [7, None, None]
    assert found.id_header is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "needs one of value.descriptor and value.schema.registry.url"),
        ({"value.descriptor": "/nope", "value.message": "x"}, "value.descriptor='/nope': No such file"),
        ({"value.descriptor": "/nope"}, "value.descriptor needs value.message"),
        ({"value.schema": "x"}, "value.schema has no meaning with value.format=protobuf"),
        (
            {"value.schema.registry.url": "https://127.0.0.1:1", "value.schema.registry.version": "1"},
            "value.schema.registry.subject is missing",
        ),
    ],
)
def test_options_are_refused_by_name(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        decoder_for({"value.format": "protobuf", **options}, topics=("a", "b"))
    assert complaint in str(caught.value)


def test_what_has_no_column_or_is_no_descriptor_is_refused(server: RegistryServer) -> None:
    put(server)
    with pytest.raises(KafkaConfigurationError, match=r"subject 'orders-value' has no message 'shop\.Nope'"):
        decoder(schema_registry_url=server.url, message="shop.Nope")
    path = "/subjects/orders-value/versions/latest?format=serialized"
    server.answers[path] = answer('syntax = "proto3";')
    with pytest.raises(KafkaConfigurationError, match="is not a descriptor; the registry has to know format=serialized"):
        decoder(schema_registry_url=server.url)
    file = descriptor_pb2.FileDescriptorProto(package="p", syntax="proto3")
    node = file.message_type.add(name="Node")
    field(node, "next", 1, T.TYPE_MESSAGE, type_name=".p.Node")
    server.answers[path] = answer(base64.b64encode(file.SerializeToString()).decode())
    with pytest.raises(KafkaConfigurationError, match=r"message p\.Node contains itself"):
        decoder(schema_registry_url=server.url)
    server.answers[path] = answer(base64.b64encode(order_file().SerializeToString()).decode())
    with pytest.raises(KafkaConfigurationError, match=r"imports 'money\.proto', which the registry did not send"):
        decoder(schema_registry_url=server.url)


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"google/protobuf/{name}.proto"
            for name in (
                *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
                "wrappers",
            )
        ),
        *(
            f"google/type/{name}.proto"
            for name in (
                *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng"),
                *("localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
            )
        ),
        "confluent/meta.proto",
        "confluent/type/decimal.proto",
    ],
)
def test_what_serializers_know_is_imported_without_a_reference(server: RegistryServer, name: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(package="p", syntax="proto3", dependency=[name])
    field(file.message_type.add(name="M"), "id", 1, T.TYPE_INT64)
    schema = base64.b64encode(file.SerializeToString()).decode()
    server.answers["/subjects/orders-value/versions/latest?format=serialized"] = answer(schema)

    assert decoder(schema_registry_url=server.url).columns == (("id", pa.int64()),)


def test_a_type_of_googles_is_a_column(server: RegistryServer) -> None:
    file = descriptor_pb2.FileDescriptorProto(package="p", syntax="proto3", dependency=["google/type/money.proto"])
    field(file.message_type.add(name="M"), "price", 1, T.TYPE_MESSAGE, type_name=".google.type.Money")
    found = answer(base64.b64encode(file.SerializeToString()).decode())
    server.answers["/subjects/orders-value/versions/latest?format=serialized"] = found
    server.answers["/schemas/ids/1?format=serialized"] = found
    value = framed(1, b"\0", b"\x0a\x09\x0a\x03EUR\x10\x03\x18\x05")

    price = rows(decoder(schema_registry_url=server.url), [value])[0]["price"]
    assert price == {"currency_code": "EUR", "units": 3, "nanos": 5}


# --- without Spark ---------------------------------------------------------------------------------------------------------------


def test_a_class_that_protoc_made_is_a_schema() -> None:
    found = typed("protobuf", schema=CLASSES["Order"], on_bad="column")
    batch = pickle.loads(pickle.dumps(found)).batch(records([order(id=7, price={"cents": 5}, tags=["a"]), None, b"\xff"]))  # noqa: S301  # ours
    first, second, third = batch.to_pylist()

    assert (first["id"], first["price"], first["tags"], first["color"]) == (7, {"cents": 5}, ["a"], "RED")
    assert set(second.values()) == {None}
    assert (third["id"], third["_corrupt"]) == (None, b"\xff")
    with pytest.raises(ValueError, match=r"^schema: a class says which message it is"):
        typed("protobuf", schema=CLASSES["Order"], message="shop.Order")


@pytest.mark.slow
@pytest.mark.parametrize("refusal", [(500, b""), (401, b""), (200, b"<html>")])
def test_a_registry_that_refuses_us_makes_no_bad_values(server: RegistryServer, refusal: tuple[int, bytes]) -> None:
    put(server)
    found = decoder(schema_registry_url=server.url, message="shop.Order")
    value = framed(10, ORDER, order(id=1))
    assert rows(found, [value])[0]["id"] == 1
    server.answers["/schemas/ids/99?format=serialized"] = refusal

    with pytest.raises((RegistryError, KafkaConfigurationError)):
        rows(found, [value, framed(99, ORDER, order(id=1))])


def test_a_schema_that_is_of_no_use_is_asked_for_once(server: RegistryServer) -> None:
    put(server)
    server.answers["/schemas/ids/99?format=serialized"] = (200, b'{"schema": "\\"int\\""}')
    found = decoder(schema_registry_url=server.url, message="shop.Order")

    after = rows(found, [framed(10, ORDER, order(id=1)), *[framed(99, ORDER, b"")] * 50])
    assert [row["id"] for row in after] == [1, *[None] * 50]
    assert "is a schema of type 'AVRO'" in after[1]["_corrupt_reason"]
    assert server.asked_for.count("/schemas/ids/99?format=serialized") == 1


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.builds(
                order,
                id=st.integers(-(2**63), 2**63 - 1),
                item=st.text(max_size=3),
                large=st.integers(0, 2**64 - 1),
                tags=st.lists(st.text(max_size=2), max_size=2),
                counts=st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
                color=st.integers(0, 3),
            ),
            st.none(),
            st.binary(max_size=6),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_a_message_means_does_not_depend_on_its_neighbors(values: list[bytes | None]) -> None:
    found = typed("protobuf", schema=CLASSES["Order"], on_bad="column")

    together = found.batch(records(values)).to_pylist()
    assert together == [found.batch(records([value])).to_pylist()[0] for value in values]
