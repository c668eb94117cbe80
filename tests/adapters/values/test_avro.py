"""Avro values to columns, by themselves and in Confluent's wire format."""

import io
import json
import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pytest

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

from kafka_async.adapters.values import avro_bulk  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values import framed as framed_values  # noqa: E402  # needs no more than the others
from kafka_async.adapters.values import registry as module  # noqa: E402  # needs no more than the others
from kafka_async.adapters.values.avro import record_reader  # noqa: E402  # needs both
from kafka_async.adapters.values.decoding import REASON, ValueDecoder  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.formats import decoder_for  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.framed import FEW, FRAME, MAX_UNKNOWN  # noqa: E402  # beside the others
from kafka_async.adapters.values.registry import Registry, RegistryError  # noqa: E402  # beside the others
from kafka_async.errors import DeserializationError, KafkaConfigurationError  # noqa: E402  # beside the others
from kafka_async.network.backoff import ExponentialBackoff  # noqa: E402  # beside the others

from .registry_server import RegistryServer, registry_server  # noqa: E402  # beside the others

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "parts", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
    ],
}
ONE = {"id": 1, "day": date(2020, 1, 2), "at": datetime(2020, 1, 2, 3, tzinfo=UTC), "price": Decimal("1.25"), "parts": [{"a": 1}]}
ROW = (1, date(2020, 1, 2), datetime(2020, 1, 2, 3, tzinfo=UTC), Decimal("1.25"), [[("a", 1)]], None)
BAD = (("_corrupt", pa.binary()), ("_corrupt_reason", pa.string()))
ID = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
RENAMED = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "aliases": ["id"], "type": "long"}, {"name": "note", "type": "string", "default": "none"}],
}


def written(record: Any, schema: Any = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def framed(number: int, data: bytes) -> bytes:
    return FRAME.pack(0, number) + data


def decoder(schema: Any = None, **options: str) -> ValueDecoder:
    given = {"value.format": "avro", **{f"value.{name.replace('_', '.')}": text for name, text in options.items()}}
    if schema is not None:
        given["value.schema"] = json.dumps(schema)
    found = decoder_for(given, topics=("orders",))
    assert found is not None
    return found


def rows(
    decoder: ValueDecoder, values: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None
) -> list[tuple[Any, ...]]:
    """Return rows without the reason why a value is bad."""
    where: dict[str, Any] = {"topic": "orders", "partition": 0, "offsets": pa.array(range(10, 10 + len(values)), pa.int64())}
    ids = None if headers is None else pa.array(headers, pa.binary())
    columns = decoder.decode(pa.array(values, pa.binary()), ids=ids, **where)
    named = zip(decoder.fields, columns, strict=True)
    return list(zip(*(column.to_pylist() for (name, _), column in named if name != REASON), strict=True))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(module, "PAUSES", ExponentialBackoff(0.01, 2.0))
    monkeypatch.setattr(framed_values, "ONCE_MORE", 0.01)
    monkeypatch.setattr(module, "PATIENCE", 5.0)  # which one answer may take, on a busy machine
    with registry_server() as found:
        yield found


def test_records_become_columns() -> None:
    assert rows(decoder(ORDER), [written(ONE), None, written({**ONE, "at": None})]) == [
        ROW, (None,) * 6, (*ROW[:2], None, *ROW[3:])
    ]  # fmt: skip


@pytest.mark.parametrize("value", [b"", written(ONE)[:-1], written(ONE) + b"x", b"\xff" * 20])
def test_what_is_no_record_is_kept(value: bytes) -> None:
    assert rows(decoder(ORDER), [written(ONE), value]) == [ROW, (None,) * 5 + (value,)]


def test_failfast_names_the_record() -> None:
    with pytest.raises(DeserializationError, match=r"^orders-0, offset 11: the value cannot be decoded: it is cut off"):
        rows(decoder(ID, mode="failfast"), [written({"id": 1}, ID), b""])


def test_a_time_out_of_range_is_a_bad_value() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    plain = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}
    bad = written({"at": 2**62}, plain)

    assert rows(decoder(schema), [written({"at": 0}, plain), bad]) == [(datetime(1970, 1, 1, tzinfo=UTC), None), (None, bad)]


def test_a_decoder_for_fewer_columns_reads_those_alone() -> None:
    narrow = decoder(ORDER).select(("id",))

    assert narrow.fields == (("id", pa.int64()), *BAD)
    assert rows(narrow, [written(ONE)]) == [(1, None)]


def test_what_counts_as_corrupt_does_not_depend_on_the_fields_that_are_read() -> None:
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, at]}
    bad = written({"id": 1, "at": 2**62}, {**schema, "fields": [schema["fields"][0], {"name": "at", "type": "long"}]})
    narrow = decoder(schema).select(("id", "_corrupt"))

    corrupt = [name for name, _ in narrow.fields].index("_corrupt")
    assert [row[corrupt] for row in rows(narrow, [written({"id": 1, "at": 0}, schema), bad])] == [None, bad]


def test_the_registry_names_the_columns_and_the_writers_schema(server: RegistryServer) -> None:
    server.put("/subjects/orders-value/versions/latest", RENAMED)
    server.put("/schemas/ids/1", ID)
    server.put("/schemas/ids/2", RENAMED)
    found, again = (pickle.loads(pickle.dumps(decoder(schema_registry_url=server.url))) for _ in range(2))  # noqa: S301  # our own

    values = [framed(1, written({"id": 7}, ID)), framed(2, written({"number": 8, "note": "x"}, RENAMED))]

    assert found.fields == (("number", pa.int64()), ("note", pa.string()), *BAD)
    assert rows(found, values * 2) == [(7, "none", None), (8, "x", None)] * 2
    assert rows(again, values) == [(7, "none", None), (8, "x", None)]
    assert server.asked_for == ["/subjects/orders-value/versions/latest"] * 2 + ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_schema_of_the_users_is_the_readers(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", ID)

    found = decoder(RENAMED, schema_registry_url=server.url)

    assert rows(found, [framed(1, written({"id": 7}, ID))]) == [(7, "none", None)]


def test_schemas_that_build_on_others_are_read(server: RegistryServer) -> None:
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "order", "type": "Order"}, {"name": "other", "type": "Order"}]}
    references = [{"name": "Order", "subject": "order", "version": 1}]
    server.put("/subjects/order/versions/1?deleted=true", ID)
    server.put("/subjects/orders-value/versions/latest", outer, references=references)
    server.put("/schemas/ids/5", outer, references=references)
    whole = {**outer, "fields": [{"name": "order", "type": ID}, {"name": "other", "type": "Order"}]}
    value = framed(5, written({"order": {"id": 1}, "other": {"id": 2}}, whole))

    assert rows(decoder(schema_registry_url=server.url), [value]) == [({"id": 1}, {"id": 2}, None)]


def test_a_type_that_is_defined_within_a_reference_is_read(server: RegistryServer) -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
    customer = {"type": "record", "name": "shop.Customer", "fields": [{"name": "home", "type": address}]}
    fields = [{"name": "to", "type": "shop.Address"}, {"name": "by", "type": "shop.Customer"}]
    order = {"type": "record", "name": "shop.Order", "fields": fields}
    references = [{"name": "shop.Customer", "subject": "customer", "version": 1}]
    server.put("/subjects/customer/versions/1?deleted=true", customer)
    server.put("/subjects/orders-value/versions/latest", order, references=references)
    server.put("/schemas/ids/5", order, references=references)
    value = framed(5, b"\2\4")

    assert rows(decoder(schema_registry_url=server.url), [value]) == [({"zip": 1}, {"home": {"zip": 2}}, None)]
    read = record_reader(Registry.of({"value.schema.registry.url": server.url}))
    assert read(value, None) == {"to": {"zip": 1}, "by": {"home": {"zip": 2}}}


def test_a_schema_is_looked_for_in_the_context_of_the_subject(server: RegistryServer) -> None:
    server.put("/subjects/%3A.prod%3Aorders-value/versions/latest", ID)
    server.put("/schemas/ids/1", RENAMED)
    server.put("/schemas/ids/1?subject=%3A.prod%3A", ID)

    found = decoder(schema_registry_url=server.url, schema_registry_subject=":.prod:orders-value")

    assert rows(found, [framed(1, b"\x0e")]) == [(7, None)]


@pytest.mark.parametrize("value", [b"", b"\0\0\0", b"\1\0\0\0\1\2", framed(9, b"\2")])
def test_what_is_not_framed_or_has_no_schema_is_kept(server: RegistryServer, value: bytes) -> None:
    server.put("/schemas/ids/1", ID)

    found = rows(decoder(ID, schema_registry_url=server.url), [value, framed(1, b"\2"), value])

    assert found == [(None, value), (1, None), (None, value)]


def test_a_record_that_does_not_resolve_is_kept(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", {"type": "record", "name": "Order", "fields": [{"name": "other", "type": "int"}]})
    value = framed(1, b"\2")

    assert rows(decoder(ID, schema_registry_url=server.url), [value]) == [(None, value)]


@pytest.mark.slow  # waits for some seconds
def test_a_registry_that_does_not_answer_is_no_bad_value(server: RegistryServer) -> None:
    server.answers["/schemas/ids/1"] = (500, b"")

    with pytest.raises(RegistryError):
        rows(decoder(ID, schema_registry_url=server.url), [framed(1, b"\2")])


UNUSABLE = {
    "another type": (200, b'{"schema": "{}", "schemaType": "PROTOBUF"}'),
    "no Avro": (200, b'{"schema": "{\\"type\\": \\"record\\", \\"name\\": \\"R\\"}"}'),
    "no JSON": (200, b'{"schema": "{"}'),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_a_value_of_another_kind_among_those_of_the_topic_is_kept(server: RegistryServer, answer: tuple[int, bytes]) -> None:
    server.put("/schemas/ids/1", ID)
    server.answers["/schemas/ids/2"] = answer
    good, other = framed(1, b"\2"), framed(2, b"\2")

    assert rows(decoder(ID, schema_registry_url=server.url), [good, other, other, good]) == [
        (1, None),
        (None, other),
        (None, other),
        (1, None),
    ]
    assert server.asked_for.count("/schemas/ids/2") == 1
    with pytest.raises(DeserializationError, match=r"orders-0, offset 11: .*(PROTOBUF|expected a list of fields|is not JSON)"):
        rows(decoder(ID, schema_registry_url=server.url, mode="failfast"), [good, other])


def test_a_topic_of_another_kind_is_an_error_that_says_so(server: RegistryServer) -> None:
    server.answers["/schemas/ids/2"] = UNUSABLE["another type"]
    with pytest.raises(KafkaConfigurationError, match=r"topic 'orders': no value can be read; .* of type 'PROTOBUF'"):
        rows(decoder(ID, schema_registry_url=server.url), [framed(2, b"\2")] * FEW)


@pytest.mark.parametrize(
    ("holder", "begin", "end"),
    [
        ({"type": "array", "items": "Order"}, b"\2", b"\0"),
        ({"type": "map", "values": "Order"}, b"\2\2k", b"\0"),
        (["null", "Order"], b"\2", b""),
    ],
)
def test_a_writers_type_that_holds_itself_is_read_as_deep_as_is_safe(
    server: RegistryServer, holder: Any, begin: bytes, end: bytes
) -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "next", "type": holder}]
    server.put("/schemas/ids/1", {"type": "record", "name": "Order", "fields": fields})
    flat, deep = (framed(1, (b"\6" + begin) * depth + b"\6\0" + end * depth) for depth in (2, 200_000))

    assert rows(decoder(ID, schema_registry_url=server.url), [flat, deep, flat]) == [(3, None), (None, deep), (3, None)]


@pytest.mark.slow
def test_values_that_are_not_framed_do_not_ask_for_ever(server: RegistryServer) -> None:
    with pytest.raises(KafkaConfigurationError, match="none of 1000 values has the id of a schema that the registry knows"):
        rows(decoder(ID, schema_registry_url=server.url), [framed(number, b"\2") for number in range(1000)])
    assert len(server.asked_for) == MAX_UNKNOWN + FEW, "the first few were asked for twice"


BARE = [framed(number, b"\2") for number in range(1000, 1100)]
"""What the first bytes of bare values may look like."""


@pytest.fixture(params=[True, False], ids=["compiled", "one by one"])
def each_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_bulk, "AVAILABLE", request.param and avro_bulk.AVAILABLE)


@pytest.mark.slow
@pytest.mark.usefixtures("each_reader")
@pytest.mark.parametrize("earlier", [True, False])
def test_any_number_of_values_without_an_id_are_bad_ones_in_a_topic_that_has_ids(server: RegistryServer, earlier: bool) -> None:
    server.put("/schemas/ids/1", ID)
    server.put("/schemas/ids/2", ID)
    found = decoder(ID, schema_registry_url=server.url)
    good = [framed(1, b"\2")]
    if earlier:
        assert rows(found, good) == [(1, None)]

    assert rows(found, [*good, *BARE, framed(2, b"\4"), *good]) == [
        (1, None), *((None, value) for value in BARE), (2, None), (1, None)
    ]  # fmt: skip
    assert len(server.asked_for) == len(BARE) + FEW + 2


@pytest.mark.slow
@pytest.mark.usefixtures("each_reader")
def test_where_the_first_value_with_an_id_stands_does_not_matter(server: RegistryServer) -> None:
    server.put("/subjects/orders-value/versions/latest", ID, id=7)
    server.put("/subjects/orders-value/versions/1", ID, id=7)
    server.answers["/subjects/orders-value/versions"] = (200, b"[1]")
    server.put("/schemas/ids/2", ID)

    found = rows(decoder(schema_registry_url=server.url), [*BARE, framed(2, b"\4"), framed(7, b"\2")])

    assert found == [*((None, value) for value in BARE), (2, None), (1, None)]


@pytest.mark.slow
@pytest.mark.usefixtures("each_reader")
def test_a_topic_that_has_ids_does_not_ask_for_ever_either(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_values, "MAX_ASKED", 80)
    server.put("/schemas/ids/1", ID)
    server.put("/schemas/ids/2", ID)
    found = decoder(ID, schema_registry_url=server.url)
    assert rows(found, [framed(2, b"\4")]) == [(2, None)]
    values = [framed(1, b"\2"), *BARE, framed(2, b"\4"), framed(1, b"\2")]

    columns = found.decode(
        pa.array(values, pa.binary()), topic="orders", partition=0, offsets=pa.array(range(len(values)), pa.int64())
    )

    assert columns[0].to_pylist() == [1, *[None] * len(BARE), 2, 1]
    assert columns[-1].to_pylist()[80:82] == [
        "the registry has no schema 1079",
        "the registry was not asked for schema 1080, since it has none of 80 others of the batch",
    ]
    assert len(server.asked_for) == 80 + FEW + 2


GUID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize("header", [b"\1" + GUID.bytes, b"\0\0\0\0\7"])
def test_an_id_in_a_header_comes_first_and_the_value_is_bare(server: RegistryServer, header: bytes) -> None:
    server.put(f"/schemas/guids/{GUID}", ID)
    server.put("/schemas/ids/7", ID)
    server.put("/schemas/ids/1", RENAMED)
    bare, with_prefix = written({"id": 8}, ID), framed(1, written({"number": 9, "note": ""}, RENAMED))

    found = rows(decoder(RENAMED, schema_registry_url=server.url), [bare, with_prefix, None, bare], [header, None, header, header])

    assert found == [(8, "none", None), (9, "", None), (None, None, None), (8, "none", None)]
    assert len(server.asked_for) == 2


@pytest.mark.parametrize("header", [b"", b"\1", b"\2" + GUID.bytes, b"\0\0", b"\1" + GUID.bytes + b"x"])
def test_a_header_that_is_no_id_makes_a_bad_value(server: RegistryServer, header: bytes) -> None:
    server.put("/schemas/ids/1", ID)
    value = framed(1, b"\2")

    assert rows(decoder(ID, schema_registry_url=server.url), [value, value], [header, None]) == [(None, value), (1, None)]


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_a_topic_of_which_nothing_has_an_id_is_an_error_in_any_mode(server: RegistryServer, mode: str) -> None:
    server.put("/schemas/ids/1", ID)
    found = decoder(ID, schema_registry_url=server.url, mode=mode)

    with pytest.raises(
        KafkaConfigurationError,
        match=rf"topic 'orders': none of {FEW} values has the id of a schema that the registry knows, in the header",
    ):
        rows(found, [b"\2", None] * FEW)


LONGS = {"type": "record", "name": "Longs", "fields": [{"name": name, "type": "long"} for name in "abcdef"]}


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_bare_records_that_begin_with_a_zero_byte_are_an_error_in_any_mode(server: RegistryServer, mode: str) -> None:
    values = [written({**dict.fromkeys("abcdef", 0), "e": number}, LONGS) for number in range(FEW)]
    assert {value[0] for value in values} == {0}

    with pytest.raises(KafkaConfigurationError, match=rf"none of {FEW} values has the id of a schema .* \(it has no schema 0\)"):
        rows(decoder(LONGS, schema_registry_url=server.url, mode=mode), values)


def test_a_schema_in_a_header_that_the_registry_does_not_know_is_no_id(server: RegistryServer) -> None:
    found = decoder(ID, schema_registry_url=server.url)

    with pytest.raises(KafkaConfigurationError, match=rf"\(it has no schema {GUID}\), in the header __value_schema_id"):
        rows(found, [b"\2"] * FEW, [b"\1" + GUID.bytes] * FEW)


def test_values_without_an_id_are_counted_over_partitions_and_batches(server: RegistryServer) -> None:
    found = decoder(ID, schema_registry_url=server.url)

    assert rows(found, [b"\2"] * (FEW - 1)) == [(None, b"\2")] * (FEW - 1)
    with pytest.raises(KafkaConfigurationError, match=f"none of {FEW} values has the id of a schema"):
        rows(found, [b"\2"])


def test_bad_values_after_good_ones_or_only_a_few_are_kept(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", ID)
    found = decoder(ID, schema_registry_url=server.url)

    assert rows(found, [b"\2"] * (FEW - 1)) == [(None, b"\2")] * (FEW - 1)
    assert rows(found, [framed(1, b"\2")]) == [(1, None)]
    assert rows(found, [b"\2"] * 100) == [(None, b"\2")] * 100


def test_keys_have_a_header_and_a_subject_of_their_own_in_the_registry_of_the_values(server: RegistryServer) -> None:
    server.put("/subjects/orders-key/versions/latest", ID)
    found = decoder_for({"key.format": "avro", "value.schema.registry.url": server.url}, topics=("orders",), part="key")

    assert found is not None
    assert (found.fields[0], found.id_header) == (("key_id", pa.int32()), "__key_schema_id")
    assert server.asked_for == ["/subjects/orders-key/versions/latest"]


def test_an_id_that_the_registry_does_not_know_is_not_asked_for_in_every_batch(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", ID)
    found = decoder(ID, schema_registry_url=server.url)
    assert rows(found, [framed(1, b"\2")]) == [(1, None)]

    assert [rows(found, [framed(3, b"\2")]) for _ in range(5)] == [[(None, framed(3, b"\2"))]] * 5
    assert server.asked_for == ["/schemas/ids/1", "/schemas/ids/3", "/schemas/ids/3"]


def test_an_id_that_the_registrys_follower_has_not_learnt_yet_is_asked_for_once_more(server: RegistryServer) -> None:
    server.put("/schemas/ids/3", ID)
    server.answers["/schemas/ids/3"] = [(404, b'{"error_code":40403}'), server.answers["/schemas/ids/3"]]

    assert rows(decoder(ID, schema_registry_url=server.url), [framed(3, b"\2")]) == [(1, None)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 300),
        ("long", 1 << 40),
        ("double", 2.5),
        ("string", "hello"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abcd"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        (["null", "int"], 300),
        ({"type": "array", "items": "int"}, [300, 4]),
        ({"type": "map", "values": "int"}, {"k": 300}),
    ],
)
def test_a_value_that_is_cut_anywhere_is_said_to_be_cut_off(kind: Any, value: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "a", "type": kind}]}
    whole = io.BytesIO()
    fastavro.schemaless_writer(whole, schema, {"id": 1, "a": value})
    cut = [whole.getvalue()[:size] for size in range(whole.tell())]

    columns = decoder(schema).decode(
        pa.array(cut, pa.binary()), topic="t", partition=0, offsets=pa.array(range(len(cut)), pa.int64())
    )

    assert columns[-1].to_pylist() == ["it is cut off"] * len(cut)


def test_the_reason_says_what_is_wrong_without_the_value(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", ID)
    found = decoder(ID, schema_registry_url=server.url)
    values = pa.array([framed(1, b"\2"), b"no frame", framed(2, b"\2"), framed(1, b""), framed(1, b"\2\2"), None], pa.binary())

    columns = found.decode(values, topic="t", partition=0, offsets=pa.array(range(6), pa.int64()))

    assert columns[-1].to_pylist() == [
        None,
        "it does not begin with a zero byte and the id of a schema",
        "the registry has no schema 2",
        "it is cut off",
        "1 bytes are left over",
        None,
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "needs value.schema or value.schema.registry.url"),
        ({"value.schema.registry.subject": "x"}, "(value.schema.registry.subject alone says nothing)"),
        ({"value.schema": "{"}, "expected an Avro schema in JSON"),
        ({"value.schema": '"int"'}, "expected a record, whose fields become columns"),
        ({"value.schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"?"}]}'}, "is not an Avro schema"),
        (
            {"value.schema.registry.url": "https://127.0.0.1:1", "value.schema.registry.version": "1"},
            "value.schema.registry.subject is missing",
        ),
    ],
)
def test_options_are_refused_by_name(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        decoder_for({"value.format": "avro", **options}, topics=("a", "b"))

    assert complaint in str(caught.value)


def test_tasks_have_the_schemas_of_the_subjects_versions_from_the_driver(server: RegistryServer) -> None:
    server.put("/subjects/orders-value/versions/latest", RENAMED, id=8)
    server.answers["/subjects/orders-value/versions"] = (200, b"[2, 1]")
    server.put("/subjects/orders-value/versions/1", ID, id=7, guid=str(UUID(int=7)))
    server.put("/subjects/orders-value/versions/2", RENAMED, id=8)
    sent = pickle.loads(pickle.dumps(decoder(schema_registry_url=server.url)))  # noqa: S301  # our own
    server.answers.clear()
    server.asked.clear()

    values = [framed(7, b"\2"), framed(8, b"\4\4hi"), b"\6"]
    assert rows(sent, values, [None, None, b"\1" + UUID(int=7).bytes]) == [(1, "none", None), (2, "hi", None), (3, "none", None)]
    assert server.asked == []


def test_a_version_that_cannot_be_read_with_is_left_to_the_task_that_meets_it(server: RegistryServer) -> None:
    nothing = {"type": "record", "name": "Order", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    server.answers["/subjects/orders-value/versions"] = (200, b"[1, 2]")
    server.put("/subjects/orders-value/versions/1", nothing, id=6)
    server.put("/subjects/orders-value/versions/2", ID, id=7)

    assert [name for name, _ in decoder(ID, schema_registry_url=server.url).known] == [7]  # type: ignore[attr-defined]  # Avro's


# --- the schema that a stream began with -----------------------------------------------------------------------------------------

VERSIONS = (
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}]},
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "note", "type": "string"}]},
)


def subject(server: RegistryServer, *versions: Any) -> str:
    """Have a subject with versions, whose ids are ten times their numbers."""
    for number, schema in enumerate(versions, 1):
        for path in (f"/subjects/orders-value/versions/{number}", "/subjects/orders-value/versions/latest"):
            server.put(path, schema, id=10 * number, version=number, subject="orders-value")
        server.put(f"/schemas/ids/{10 * number}", schema)
    server.answers["/subjects/orders-value/versions"] = (200, json.dumps([*range(1, len(versions) + 1)]).encode())
    return server.url


def test_a_stream_reads_on_with_the_schema_that_it_began_with(server: RegistryServer) -> None:
    begun = decoder(schema_registry_url=subject(server, VERSIONS[0]))
    assert begun.kept == "orders:id=10,version=1"
    now = decoder(schema_registry_url=subject(server, *VERSIONS))
    assert now.kept == "orders:id=20,version=2"
    value = framed(10, written({"id": 7, "note": "x"}, VERSIONS[0]))
    assert rows(now, [value])[0][-1] == value, "the newest schema does not read it"
    message = (
        "began with the schema of id 10, version 1, in which field 'id' was INT, and in the newest, id 20, version 2, it is STRING"
    )
    with pytest.raises(KafkaConfigurationError, match=rf"{message}; value\.schema\.registry\.version=1 goes on as before"):
        now.keeping(begun.kept)
    chosen = decoder(schema_registry_url=server.url, schema_registry_version="1")
    assert rows(chosen.keeping(now.kept), [value]) == [(7, "x", None)], "what the user says counts"
    note = now.select({"note"}).keeping(begun.kept)
    assert note.kept == begun.kept
    assert pickle.loads(pickle.dumps(note)) == note  # noqa: S301  # our own bytes
    assert rows(note, [value]) == [("x", None)], "the other columns are not read"
    assert now.keeping("") is now


def test_the_schema_that_a_stream_began_with_is_asked_for_if_it_is_older_than_what_was_planned(server: RegistryServer) -> None:
    now = decoder(schema_registry_url=subject(server, *VERSIONS))
    server.put("/schemas/ids/5", ID | {"fields": [{"name": "note", "type": "string"}]})
    assert rows(now.select({"note"}).keeping("id=5,version=9"), [b"\0\0\0\0\x05" + b"\x02x"]) == [("x", None)]
    with pytest.raises(KafkaConfigurationError, match="field 'id' was not there"):
        now.keeping("id=5,version=9")
    with pytest.raises(KafkaConfigurationError, match="checkpoint: 'seven' is not like 'id=7,version=2'"):
        now.keeping("seven")
    assert decoder(VERSIONS[0]).keeping("id=5,version=9").kept == ""


# --- unions ----------------------------------------------------------------------------------------------------------------------


def of(*kinds: Any, name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(kinds)]}


POINT = {"type": "record", "name": "a.Point", "fields": [{"name": "x", "type": ["null", "int", "boolean"]}]}
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}


def test_the_member_of_a_union_that_a_value_is_has_a_field_of_its_own() -> None:
    schema = of(
        ["null", "string", "long", COLOR], ["int", POINT], {"type": "array", "items": ["a.Point", "bytes", "null"]}, ["int", "long"]
    )
    found = decoder(schema)
    assert [str(kind) for _, kind in found.fields[:4]] == [
        "struct<member0: string, member1: int64, member2: string>",
        "struct<member0: int32, member1: struct<x: struct<member0: int32, member1: bool>>>",
        "list<element: struct<member0: struct<x: struct<member0: int32, member1: bool>>, member1: binary>>",
        "int64",
    ]
    values = [
        {"f0": "BLUE", "f1": {"x": True}, "f2": [{"x": 7}, b"b", None], "f3": 1},
        {"f0": 5, "f1": 6, "f2": [], "f3": 2**40},
        {"f0": None, "f1": {"x": None}, "f2": [], "f3": 3},
    ]
    first, second, third = rows(found, [written(value, schema) for value in values])
    assert first == (
        {"member0": "BLUE", "member1": None, "member2": None},  # fastavro writes the first member that fits
        {"member0": None, "member1": {"x": {"member0": None, "member1": True}}},
        [{"member0": {"x": {"member0": 7, "member1": None}}, "member1": None}, {"member0": None, "member1": b"b"}, None],
        1,
        None,
    )
    assert second[:2] == ({"member0": None, "member1": 5, "member2": None}, {"member0": 6, "member1": None})
    assert third[:2] == (None, {"member0": None, "member1": {"x": None}})
    assert rows(found, [b"\x06\x02" + b"\x00\x02" + b"\x00" + b"\x00\x02"])[0][0] == {
        "member0": None,
        "member1": None,
        "member2": "BLUE",
    }


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (["int", "string"], ["null", "string", "int"], "x", {"member0": "x", "member1": None}),
        (["int", "string"], ["null", "string", "int"], 5, {"member0": None, "member1": 5}),
        ("string", ["int", "string"], "x", {"member0": None, "member1": "x"}),
        (["null", "string"], ["int", "string"], "x", {"member0": None, "member1": "x"}),
        (["int", "string"], "string", "x", "x"),
        (["int", "string"], ["string", "double"], 5, {"member0": None, "member1": 5.0}),
        (["int", POINT], [POINT, "string"], {"x": 7}, {"member0": {"x": {"member0": 7, "member1": None}}, "member1": None}),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": ["string", "int"]},
            {"a": 1},
            [("a", {"member0": None, "member1": 1})],
        ),
        (["int", "boolean"], ["string", "int"], True, None),
    ],
)
def test_members_are_found_by_what_they_are(server: RegistryServer, writer: Any, reader: Any, value: Any, expected: Any) -> None:
    server.put("/schemas/ids/1", of(writer))
    found = decoder(of(reader), schema_registry_url=server.url)
    assert rows(found, [framed(1, written({"f0": value}, of(writer)))])[0][0] == expected


EXACT = Context(prec=40)
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
PAIR = {"type": "fixed", "name": "Pair", "size": 2}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [{"name": "raw", "type": "bytes"}, {"name": "price", "type": ["null", MONEY], "default": None}],
}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (MONEY, "\u0001\u0000", Decimal("2.56")),
        ([MONEY, "null"], "\u00ff", Decimal("-0.01")),
        ("bytes", "\u00ff", b"\xff"),
        (PAIR, "\u00ff\u0001", b"\xff\x01"),
        (["string", "long"], "x", {"member0": "x", "member1": None}),
        (["string", "long"], 3, {"member0": None, "member1": 3}),
        ({"type": "double"}, 0, 0.0),
        ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        ({"type": "array", "items": MONEY}, ["\u0001"], [Decimal("0.01")]),
        ({"type": "map", "values": ["string", "bytes"]}, {"k": "x"}, [("k", {"member0": "x", "member1": None})]),
        (NESTED, {"raw": "\u00ff"}, {"raw": b"\xff", "price": None}),
        (COLOR, "BLUE", "BLUE"),
    ],
)
def test_a_field_that_a_record_does_not_have_is_what_its_default_means(
    server: RegistryServer, kind: Any, default: Any, expected: Any
) -> None:
    server.put("/schemas/ids/1", ID)
    newer = {**ID, "fields": [*ID["fields"], {"name": "more", "type": kind, "default": default}]}

    assert rows(decoder(newer, schema_registry_url=server.url), [framed(1, b"\x0e")]) == [(7, expected, None)]


@pytest.mark.parametrize(
    ("kind", "default"), [("double", "1.5"), ({"type": "array", "items": "int"}, ["x"]), (NESTED, {}), ("bytes", "\u0100")]
)
def test_a_default_that_is_none_of_its_type_is_none(server: RegistryServer, kind: Any, default: Any) -> None:
    newer = {**ID, "fields": [*ID["fields"], {"name": "more", "type": kind, "default": default}]}
    server.put("/schemas/ids/1", ID)
    value = framed(1, b"\x0e")

    assert rows(decoder(newer, schema_registry_url=server.url), [value]) == [(None, None, value)]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("writer", "reader", "unscaled", "expected"),
    [
        ("bytes", MONEY, 256, Decimal("2.56")),
        ({**PAIR, "name": "P"}, {**PAIR, "name": "P", "logicalType": "decimal", "precision": 4, "scale": 2}, 256, Decimal("2.56")),
        (MONEY, "bytes", 256, b"\1\0"),
        (MONEY, "string", 0x6162, "ab"),
        ({**MONEY, "precision": 6}, {**MONEY, "precision": 12}, 12345678, Decimal("123456.78")),
        ({**MONEY, "precision": 12}, {**MONEY, "precision": 6}, 12345678, None),
        (MONEY, {**MONEY, "scale": 4}, 12345678, Decimal("123456.7800")),
        ({**MONEY, "scale": 4}, MONEY, 12345600, Decimal("1234.56")),
        ({**MONEY, "scale": 4}, MONEY, 12345678, None),
        ({**MONEY, "scale": 10**9}, MONEY, 1, None),
        ({**MONEY, "scale": 10**9}, MONEY, 0, Decimal("0.00")),
        ({**MONEY, "precision": 64}, {**MONEY, "precision": 64}, 12345678, Decimal("123456.78")),
        ({**MONEY, "precision": 64}, {**MONEY, "precision": 64}, 10**38 - 1, Decimal(10**38 - 1).scaleb(-2, EXACT)),
        ({**MONEY, "precision": 64}, {**MONEY, "precision": 64}, 10**38, None),
        ([MONEY, "string"], ["string", {**MONEY, "scale": 3}], 256, {"member0": None, "member1": Decimal("2.560")}),
    ],
)
def test_decimals_are_numbers_if_the_readers_schema_says_so_and_keep_all_digits(
    monkeypatch: pytest.MonkeyPatch,
    server: RegistryServer,
    writer: Any,
    reader: Any,
    unscaled: int,
    expected: Any,
    compiled: bool,
) -> None:
    """Clients and Connect do not look at the precision, and registries do not compare logical types."""
    monkeypatch.setattr(avro_bulk, "AVAILABLE", compiled and avro_bulk.AVAILABLE)
    server.put("/schemas/ids/1", of(writer))
    data = unscaled.to_bytes(-(-(unscaled.bit_length() + 1) // 8), "big")
    fixed, union = isinstance(writer, dict) and writer["type"] == "fixed", isinstance(writer, list)
    value = framed(1, b"\0" * union + (b"" if fixed else bytes([2 * len(data)])) + data)

    assert rows(decoder(of(reader), schema_registry_url=server.url), [value])[0][0] == expected


MILLIS, MICROS, NANOS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros", "nanos"))
LOCAL_MILLIS, LOCAL_MICROS = ({"type": "long", "logicalType": f"local-timestamp-{unit}"} for unit in ("millis", "micros"))
DAY = {"type": "int", "logicalType": "date"}
AT = datetime(2025, 11, 29, 7, 6, 40, tzinfo=UTC)
SECONDS = 1_764_400_000


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (MILLIS, MICROS, SECONDS * 10**3, AT),
        (MICROS, MILLIS, SECONDS * 10**6 + 999, AT),
        (MICROS, MILLIS, -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (NANOS, MICROS, SECONDS * 10**9, AT),
        (LOCAL_MILLIS, LOCAL_MICROS, SECONDS * 10**3, AT.replace(tzinfo=None)),
        (LOCAL_MICROS, MILLIS, SECONDS * 10**6, AT),
        (DAY, MICROS, 1, datetime(1970, 1, 2, tzinfo=UTC)),
        (["null", MILLIS], ["null", MICROS], SECONDS * 10**3, AT),
        (["null", MILLIS], ["null", MICROS], None, None),
        (MILLIS, ["null", MICROS], SECONDS * 10**3, AT),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, [SECONDS * 10**3], [AT]),
        (of(MILLIS, name="In"), of(MICROS, name="In"), {"f0": SECONDS * 10**3}, {"f0": AT}),
        ([MILLIS, "string"], ["string", MICROS], SECONDS * 10**3, {"member0": None, "member1": AT}),
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}, 7, 7000),
        (MILLIS, "long", 7, 7),
        (MILLIS, "double", 7, 7.0),
        ("long", MICROS, SECONDS * 10**6, AT),
        (MILLIS, MICROS, 2**62, None),
    ],
)
def test_times_are_read_in_the_unit_that_they_were_written_in(
    monkeypatch: pytest.MonkeyPatch, server: RegistryServer, writer: Any, reader: Any, value: Any, expected: Any, compiled: bool
) -> None:
    monkeypatch.setattr(avro_bulk, "AVAILABLE", compiled and avro_bulk.AVAILABLE)
    server.put("/schemas/ids/1", of(writer))
    server.put("/schemas/ids/2", of(reader))
    server.put("/subjects/orders-value/versions/latest", of(reader), id=2)
    server.put("/subjects/orders-value/versions/1", of(writer), id=1)
    before = framed(1, written({"f0": value}, of(writer)))

    assert rows(decoder(of(reader), schema_registry_url=server.url), [before])[0][0] == expected
    server.answers["/subjects/orders-value/versions"] = (200, b"[1]")  # the driver sends it then
    sent = pickle.loads(pickle.dumps(decoder(schema_registry_url=server.url)))  # noqa: S301  # our own bytes
    assert rows(sent, [before])[0][0] == expected


def test_a_single_decimal_keeps_all_digits(server: RegistryServer) -> None:
    server.put("/schemas/ids/1", of({**MONEY, "precision": 6}, ["null", {**MONEY, "precision": 6}]))
    read = record_reader(Registry.of({"value.schema.registry.url": server.url}))

    assert read(framed(1, b"\x08\x00\xbc\x61\x4e" + b"\x02\x02\xff"), None) == {"f0": Decimal("123456.78"), "f1": Decimal("-0.01")}


ADDRESS = {"type": "record", "name": "a.Address", "fields": [{"name": "zip", "type": ["int", "string"]}]}
COMPANY = of(ADDRESS, name="a.Company")
TREE = of({"type": "array", "items": "a.Tree"}, ADDRESS, name="a.Tree")


@pytest.mark.parametrize(
    ("first", "value"),
    [
        (ADDRESS, {"zip": "old"}),
        ({"type": "array", "items": ["null", ADDRESS]}, [{"zip": 1}, None]),
        (["null", COMPANY], {"f0": {"zip": "old"}}),
        (TREE, {"f0": [{"f0": [], "f1": {"zip": 1}}], "f1": {"zip": "old"}}),
    ],
)
def test_a_type_is_known_though_the_field_in_which_it_was_defined_is_no_longer_read(
    server: RegistryServer, first: Any, value: Any
) -> None:
    older, newest = of("long", first, "a.Address", {"type": "array", "items": "a.Address"}), of("long", "string")
    newest["fields"][1:] = [
        {"name": "f2", "type": ADDRESS},
        {"name": "f3", "type": {"type": "array", "items": "a.Address"}},
    ]
    server.put("/schemas/ids/1", older)
    found = decoder(newest, schema_registry_url=server.url)
    written_before = framed(1, written({"f0": 5, "f1": value, "f2": {"zip": 7}, "f3": [{"zip": "x"}]}, older))
    assert rows(found, [written_before]) == [
        (5, {"zip": {"member0": 7, "member1": None}}, [{"zip": {"member0": None, "member1": "x"}}], None)
    ]


def test_a_type_that_stands_where_the_reader_has_another_one_is_read_as_its_own_where_it_is_named(server: RegistryServer) -> None:
    renamed = ADDRESS | {"fields": [{"name": "code", "aliases": ["zip"], "type": ["int", "string"]}]}
    older, newest = of(["null", COLOR, ADDRESS], "a.Address"), of(["null", COLOR, "string"], renamed)
    server.put("/schemas/ids/1", older)
    found = decoder(newest, schema_registry_url=server.url)
    assert rows(found, [framed(1, written({"f0": "RED", "f1": {"zip": "x"}}, older))])[0][:2] == (
        {"member0": "RED", "member1": None},
        {"code": {"member0": None, "member1": "x"}},
    )


# --- several topics --------------------------------------------------------------------------------------------------------------


def test_each_topic_has_a_subject_of_its_own(server: RegistryServer) -> None:
    other = {"type": "record", "name": "Payment", "fields": [*VERSIONS[0]["fields"][::-1]]}  # in another order
    server.put("/subjects/a-value/versions/latest", VERSIONS[0], id=10, version=1)
    server.put("/subjects/b-value/versions/latest", other, id=20, version=4)
    server.put("/schemas/ids/10", VERSIONS[0])
    server.put("/schemas/ids/20", other)
    given = {"value.format": "avro", "value.schema.registry.url": server.url}
    found = decoder_for(given, topics=("b", "a"))
    assert found is not None
    assert found.kept == "a:id=10,version=1;b:id=20,version=4"
    assert found.keeping(found.kept) == found
    sent = pickle.loads(pickle.dumps(found.select({"note"})))  # noqa: S301  # our own bytes
    for decoder, topic, number, schema in ((found, "a", 10, VERSIONS[0]), (found, "b", 20, other), (sent, "b", 20, other)):
        value = framed(number, written({"id": 7, "note": "x"}, schema))
        arrays = decoder.decode(pa.array([value, b"?"]), topic=topic, partition=0, offsets=pa.array([0, 1], pa.int64()))
        row = {name: array.to_pylist() for (name, _), array in zip(decoder.fields, arrays, strict=True)}
        assert row["note"] == ["x", None]
        assert row["_corrupt"] == [None, b"?"]


def test_a_stream_that_reads_more_or_fewer_topics_keeps_the_schema_of_each(server: RegistryServer) -> None:
    more = ID | {"fields": [*ID["fields"], {"name": "note", "type": "string", "default": ""}]}
    for topic, number in (("a", 10), ("b", 20)):
        server.put(f"/subjects/{topic}-value/versions/latest", more, id=number + 1, version=2)
        server.put(f"/schemas/ids/{number}", ID)
    given = {"value.format": "avro", "value.schema.registry.url": server.url}
    one, both = (decoder_for(given, topics=topics) for topics in (("a",), ("a", "b")))
    shared = decoder_for(given | {"value.schema.registry.subject": "a-value"}, topics=("a", "b"))
    assert one is not None
    assert both is not None
    assert shared is not None

    def kept(now: ValueDecoder, before: str) -> str:
        return now.select({"id"}).keeping(before).kept

    assert kept(one, "a:id=10,version=1;b:id=20,version=1") == "a:id=10,version=1"
    assert kept(one, "id=10,version=1") == "a:id=10,version=1", "several topics had one subject"
    assert kept(both, "a:id=10,version=1") == "a:id=10,version=1;b:id=21,version=2"
    assert kept(both, "id=10,version=1") == both.kept, "nobody knows of which topic it was"
    assert kept(shared, "a:id=10,version=1") == "id=10,version=1"
    assert kept(shared, "a:id=10,version=1;b:id=20,version=1") == shared.kept, "the user has chosen another subject for both"


def test_subjects_with_different_columns_are_refused(server: RegistryServer) -> None:
    for topic, schema in (("a", VERSIONS[0]), ("b", VERSIONS[1])):
        server.put(f"/subjects/{topic}-value/versions/latest", schema, id=1, version=1)
    given = {"value.format": "avro", "value.schema.registry.url": server.url}
    message = "a-value and b-value have different columns \\('id' is INT and STRING\\); value.schema.registry.subject says"
    with pytest.raises(KafkaConfigurationError, match=message):
        decoder_for(given, topics=("a", "b"))
    found = decoder_for(given | {"value.schema.registry.subject": "b-value"}, topics=("a", "b"))
    assert found is not None
    assert found.columns[0] == ("id", pa.string())
