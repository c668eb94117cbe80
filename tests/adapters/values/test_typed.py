"""Values to columns without Spark: what the arguments mean, and what a bad value becomes."""

import io
import json
import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install '.[json]'")
fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install '.[avro]'")

from kafka_async.adapters.values.framed import FRAME  # noqa: E402  # needs pyarrow
from kafka_async.errors import DeserializationError, KafkaConfigurationError  # noqa: E402  # beside the others

from .batches import decoder, records  # noqa: E402  # needs pyarrow
from .registry_server import RegistryServer, registry_server  # noqa: E402  # beside the others

DDL = "id BIGINT, at TIMESTAMP"
GOOD = b'{"id":1,"at":"2026-01-02T03:04:05Z"}'
ROW = {"id": 1, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}
NOTHING = {"id": None, "at": None}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}
WIDE = pa.schema(
    [
        pa.field("id", pa.uint8(), nullable=False),
        ("big", pa.uint64()),
        ("text", pa.large_string()),
        ("view", pa.string_view()),
        ("raw", pa.large_binary()),
        ("word", pa.dictionary(pa.int32(), pa.string())),
        ("ms", pa.timestamp("ms", tz="Europe/Berlin")),
        ("ns", pa.timestamp("ns")),
        ("day", pa.date64()),
        ("half", pa.float16()),
        ("money", pa.decimal256(8, 2)),
        ("parts", pa.large_list(pa.field("item", pa.struct([pa.field("x", pa.uint16(), nullable=False)]), nullable=False))),
        ("counts", pa.map_(pa.string(), pa.uint32())),
    ]
)
EVERYTHING = {
    "id": 255, "big": 2**64 - 1, "text": "é", "view": "a text that is longer than a view", "raw": "aGk=", "word": "red",
    "ms": "2026-01-02T03:04:05.123456Z", "ns": "2026-01-02T03:04:05.123456", "day": "2026-01-02", "half": 1.5, "money": 1.25,
    "parts": [{"x": 65535}, None], "counts": {"a": 1},
}  # fmt: skip


def rows(found: Any, values: Sequence[bytes | None], **how: Any) -> Any:
    batch = found.batch(records(values, **how))
    assert batch.schema == found.schema
    batch.validate(full=True)
    return batch.to_pylist()


def test_the_fields_of_a_schema_are_the_columns_and_may_be_null() -> None:
    found = decoder("json", schema=DDL)

    assert found.schema == pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    assert rows(found, [GOOD, None, b"{}"]) == [ROW, NOTHING, NOTHING]
    assert found.needs == {"topic", "partition", "offset", "value"}


def test_a_decoder_is_the_same_in_another_process() -> None:
    found = pickle.loads(pickle.dumps(decoder("json", schema=WIDE, on_bad="column", timezone="Europe/Berlin")))  # noqa: S301  # ours

    assert found == decoder("json", schema=WIDE, on_bad="column", timezone="Europe/Berlin")


def test_a_schema_of_arrow_has_types_that_spark_does_not() -> None:
    (row, empty) = rows(decoder("json", schema=WIDE), [json.dumps(EVERYTHING).encode(), b"{}"])

    assert row == EVERYTHING | {
        "raw": b"hi",
        "ms": datetime(2026, 1, 2, 3, 4, 5, 123000, tzinfo=UTC),
        "ns": datetime(2026, 1, 2, 3, 4, 5, 123456),
        "day": date(2026, 1, 2),
        "money": Decimal("1.25"),
        "counts": [("a", 1)],
    }
    assert set(empty.values()) == {None}


def test_anything_that_shows_arrow_a_schema_is_one() -> None:
    class Shown:
        def __arrow_c_schema__(self) -> Any:
            return pa.schema([("id", pa.int8())]).__arrow_c_schema__()

    assert decoder("json", schema=Shown()).schema == pa.schema([("id", pa.int8())])


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (pa.uint8(), "-1", "field 'a': a number too large for UINT8"),
        (pa.uint8(), "256", "field 'a': a number too large for UINT8"),
        (pa.uint64(), str(2**64), "field 'a': a number too large for UINT64"),
        (pa.uint32(), "1.5", "field 'a': expected UINT32, found a number"),
        (pa.timestamp("ns"), '"2999-01-01T00:00:00"', r"field 'a' is out of range for timestamp\[ns\]"),
        (pa.list_(pa.timestamp("ns")), '["2999-01-01T00:00:00"]', "field 'a' is out of range for list"),
    ],
)
def test_what_the_type_of_a_field_cannot_hold_is_a_bad_value(kind: Any, text: str, why: str) -> None:
    values = [b'{"a":null}', b'{"a":%s}' % text.encode(), b"{}"]
    with pytest.raises(DeserializationError, match=f"^orders-0 at offset 11: the value cannot be decoded: {why}"):
        decoder("json", schema=pa.schema([("a", kind)])).batch(records(values))

    found = rows(decoder("json", schema=pa.schema([("a", kind)]), on_bad="column"), values)
    assert [each["a"] for each in found] == [None] * 3
    assert [each["_corrupt"] for each in found] == [None, values[1], None]


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.duration("s"), pa.null(), pa.struct([]), pa.list_(pa.time64("us"))])
def test_types_that_nothing_becomes_are_refused_by_name(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"^schema, field 'a': "):
        decoder("json", schema=pa.schema([("a", kind)]))


def test_a_bad_value_ends_the_read_if_that_is_wanted_and_the_error_says_where_it_is() -> None:
    with pytest.raises(DeserializationError, match=r"^orders-0 at offset 12: the value cannot be decoded: it is not JSON"):
        decoder("json", schema=DDL).batch(records([GOOD, None, b"nope", b"no"]))


def test_bad_values_are_null_beside_their_bytes_or_without() -> None:
    values = [GOOD, b"nope", b'{"id":2,"at":"x"}', None]
    found = rows(decoder("json", schema=DDL, on_bad="column"), values)

    assert rows(decoder("json", schema=DDL, on_bad="null"), values) == [ROW, NOTHING, {"id": 2, "at": None}, NOTHING]
    assert found == [
        ROW | {"_corrupt": None, "_corrupt_reason": None},
        NOTHING | {"_corrupt": b"nope", "_corrupt_reason": "it is not JSON (Expecting value: line 1 column 1 (char 0))"},
        {"id": 2, "at": None, "_corrupt": values[2], "_corrupt_reason": "field 'at': a string that is not TIMESTAMP"},
        NOTHING | {"_corrupt": None, "_corrupt_reason": None},
    ]


def test_fewer_fields_cost_less_and_their_faults_are_not_noticed() -> None:
    values = [GOOD, b'{"id":2,"at":"x"}']

    assert rows(decoder("json", schema=DDL).select(["id", "other"]), values) == [{"id": 1}, {"id": 2}]
    assert rows(decoder("json", schema=DDL, on_bad="column").select(["id"]), values) == [{"id": 1}, {"id": 2}]
    assert rows(decoder("json", schema=DDL, on_bad="column").select(["id", "_corrupt_reason"]), values) == [
        {"id": 1, "_corrupt_reason": None},
        {"id": 2, "_corrupt_reason": "field 'at': a string that is not TIMESTAMP"},
    ]
    assert decoder("json", schema=DDL).select([]).batch(records(values)).num_rows == 2


def test_json_in_a_frame_of_a_registry_is_json() -> None:
    assert rows(decoder("json", schema=DDL), [FRAME.pack(0, 7) + GOOD, GOOD, FRAME.pack(0, 300) + b"{}"]) == [ROW, ROW, NOTHING]


def test_times_without_a_zone_are_in_the_one_that_is_given() -> None:
    found = decoder("json", schema="at TIMESTAMP", timezone="Europe/Berlin")

    assert rows(found, [b'{"at":"2026-01-02 03:04:05"}']) == [{"at": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)}]


@pytest.mark.parametrize("timezone", [None, "UTC"])
def test_texts_are_one_field(timezone: str | None) -> None:
    found = decoder("text", on_bad="null", timezone=timezone)  # that of all times unless one is given: it says nothing

    assert found.schema == pa.schema([("value", pa.string())])
    assert rows(found, ["é".encode(), None, b"\xff"]) == [{"value": "é"}, {"value": None}, {"value": None}]


def test_a_batch_without_records_has_the_columns() -> None:
    for found in (decoder("json", schema=WIDE, on_bad="column"), decoder("text"), decoder("avro", schema=json.dumps(ORDER))):
        assert rows(found, []) == []


def test_views_of_values_and_slices_of_batches_are_read_too() -> None:
    whole = records([GOOD, b"{}", GOOD])
    views = whole.set_column(6, "value", whole.column("value").cast(pa.binary_view()))

    assert decoder("json", schema=DDL).batch(views).to_pylist() == [ROW, NOTHING, ROW]
    assert decoder("json", schema=DDL).batch(whole.slice(1)).to_pylist() == [NOTHING, ROW]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"values": "jsn"}, "values='jsn': expected one of json, avro, protobuf, text; did you mean 'json'?"),
        ({"values": "json"}, "values='json' needs schema: a pyarrow schema, columns in DDL such as 'id BIGINT"),
        ({"values": "json", "schema": DDL, "on_bad": "rais"}, "on_bad='rais': expected one of column, null, raise; did you mean"),
        ({"values": "json", "schema": "a IT"}, "schema: 'IT' is not a supported type; expected BOOLEAN"),
        ({"values": "json", "schema": 7}, "schema: expected a pyarrow schema, columns in DDL or 'infer', got int"),
        ({"values": "json", "schema": pa.schema([])}, "schema: there are no fields"),
        ({"values": "json", "schema": pa.schema([("a", pa.int8())] * 2)}, "schema: two fields have the name 'a'"),
        ({"values": "json", "schema": "infer"}, "schema='infer' needs a sample of values"),
        ({"values": "json", "schema": DDL, "timezone": "Mars"}, "timezone='Mars': expected a name such as Europe/Berlin"),
        ({"values": "text", "registry": "http://h"}, "registry has no meaning with values='text'"),
        ({"values": "json", "schema": DDL, "message": "m"}, "message has no meaning with values='json'"),
        ({"values": "text", "timezone": "Etc/UTC"}, "timezone has no meaning with values='text'"),
        ({"values": "avro", "registry": "http://h", "timezone": "Nowhere/Land"}, "timezone has no meaning with values='avro'"),
        ({"values": "text", "schema": DDL}, "schema has no meaning with values='text'"),
        ({"values": "avro", "schema": 7}, "schema: expected an Avro schema, as a mapping or in JSON, got int"),
        ({"values": "avro", "registry": {"subject": "s"}}, "registry: the option 'url' is missing"),
        ({"values": "avro", "registry": {"url": "http://h", "subjct": "s"}}, "registry: unknown option 'subjct'; did you mean"),
    ],
)  # fmt: skip
def test_arguments_that_mean_nothing_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared
        decoder(**arguments)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"values": "avro"}, "values=avro needs schema or registry url"),
        ({"values": "avro", "registry": "http://localhost:1"}, "registry subject is missing: more than one topic may be read"),
        ({"values": "avro", "registry": "localhost:1"}, "registry url: expected https://host[:port][/path]"),
        ({"values": "protobuf"}, "values=protobuf needs one of schema and registry url"),
        ({"values": "protobuf", "schema": "f"}, "schema needs message, the full name of the message"),
    ],
)
def test_options_of_formats_are_refused_by_the_names_of_the_arguments(arguments: dict[str, Any], why: str) -> None:
    if arguments["values"] == "protobuf":
        pytest.importorskip("ptars", reason="ptars is not installed: pip install '.[protobuf]'")
    with pytest.raises(KafkaConfigurationError) as caught:
        decoder(**arguments)
    assert str(caught.value).startswith(why)


# --- registries ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


def avro(number: int | None, record: Any, schema: Any = ORDER) -> bytes:
    out = io.BytesIO(b"" if number is None else FRAME.pack(0, number))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


@pytest.mark.brokers
def test_avro_of_a_registry_has_ids_in_front_or_in_headers(server: RegistryServer) -> None:
    server.put("/subjects/orders-value/versions/latest", ORDER, id=7, version=1)
    server.put("/schemas/ids/7", ORDER)
    found = decoder("avro", registry={"url": server.url}, topics=["orders"])
    one = {"id": 1, "item": "x"}
    header = ("__value_schema_id", FRAME.pack(0, 7))

    assert found.needs == {"topic", "partition", "offset", "value", "headers"}
    assert found.schema == pa.schema([("id", pa.int64()), ("item", pa.string())])
    values = [avro(7, one), avro(None, one), avro(7, one), None]
    there = [[], [("a", b"1"), ("__value_schema_id", b"?"), header], [("a", b"1")], [header]]
    assert rows(found, values, headers=there) == [one, one, one, {"id": None, "item": None}]
    whole = records(values, headers=there)
    assert found.batch(whole.slice(1)).to_pylist() == [one, one, {"id": None, "item": None}]


@pytest.mark.brokers
def test_each_topic_has_a_subject_of_its_own(server: RegistryServer) -> None:
    longer = {**ORDER, "fields": [*ORDER["fields"][::-1]]}
    for topic, number, schema in (("orders", 7, ORDER), ("more", 8, longer)):
        server.put(f"/subjects/{topic}-value/versions/latest", schema, id=number, version=1)
        server.put(f"/schemas/ids/{number}", schema)
    found = decoder("avro", registry=server.url, topics=["orders", "more"])
    one = {"id": 1, "item": "x"}

    values: list[bytes | None] = [avro(7, one), avro(8, one, longer), avro(8, one, longer), avro(7, one)]
    assert rows(found, values, topics=["orders", "more", "more", "orders"]) == [one] * 4


def test_a_schema_of_avro_may_be_a_mapping() -> None:
    assert decoder("avro", schema=ORDER) == decoder("avro", schema=json.dumps(ORDER))


def test_protobuf_is_read_with_a_file_of_descriptors(tmp_path: Path) -> None:
    pytest.importorskip("ptars", reason="ptars is not installed: pip install '.[protobuf]'")
    from google.protobuf import descriptor_pb2, wrappers_pb2

    file = tmp_path / "wrappers.desc"
    own = descriptor_pb2.FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb)
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[own]).SerializeToString())
    found = decoder("protobuf", schema=str(file), message="google.protobuf.Int64Value")
    value = wrappers_pb2.Int64Value(value=3).SerializeToString()

    assert rows(found, [value, None, b""]) == [{"value": 3}, {"value": None}, {"value": 0}]
    with pytest.raises(DeserializationError, match=r"^orders-0 at offset 11: the value cannot be decoded: it is not a message"):
        found.batch(records([value, b"\xff"]))


# --- many at once, and one by one ------------------------------------------------------------------------------------------------

FIELDS = {
    "id": st.one_of(st.integers(-1, 300), st.integers(0, 2**65), st.floats(allow_nan=False), st.text(max_size=2)),
    "big": st.one_of(st.integers(-1, 2**65), st.booleans()),
    "text": st.one_of(st.text(max_size=3), st.integers(), st.lists(st.integers(0, 3), max_size=2)),
    "word": st.sampled_from(["red", "blue", 1, None]),
    "ns": st.sampled_from(["2026-01-02T03:04:05", "2026-01-02 03:04:05.1234567", "2999-01-01T00:00:00", "x", 7]),
    "ms": st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02", "x", 7, 2**50]),
    "parts": st.lists(st.one_of(st.none(), st.just(7), st.fixed_dictionaries({"x": st.integers(-1, 70000)})), max_size=2),
}


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.fixed_dictionaries({}, optional=FIELDS).map(lambda each: json.dumps(each).encode()),
            st.none(),
            st.binary(max_size=4),
            st.just(FRAME.pack(0, 1) + b'{"id":7}'),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([WIDE, pa.schema([WIDE.field(name) for name in ("id", "big", "ms")])]),
)
def test_what_a_value_means_does_not_depend_on_its_neighbors(values: list[bytes | None], schema: Any) -> None:
    found = decoder("json", schema=schema, on_bad="column")

    together = rows(found, values)
    assert together == [rows(found, [value])[0] for value in values]
