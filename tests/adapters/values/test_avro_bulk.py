"""Whole batches of Avro records: what the compiled reader makes of them is what fastavro makes of each one."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install '.[avro]'")

from kafka_async.adapters.values import avro_bulk  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.avro import AvroDecoder  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.avro_schema import Types, plain  # noqa: E402  # needs pyarrow
from kafka_async.adapters.values.framed import FRAME  # noqa: E402  # beside the others
from kafka_async.adapters.values.registry import RegisteredSchema  # noqa: E402  # beside the others

from .batches import decoder, records  # noqa: E402  # needs pyarrow
from .registry_server import registry_server  # noqa: E402  # beside the others

pytestmark = pytest.mark.skipif(not avro_bulk.AVAILABLE, reason="the compiled reader was not built: pip install -e .")

Typed = tuple[Any, st.SearchStrategy[Any]]
"""An Avro type, and values of it."""

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SIMPLE: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", INT),
    ("long", LONG),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=12)),
    ({"type": "int", "logicalType": "date"}, INT),
    ({"type": "long", "logicalType": "timestamp-millis"}, LONG),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, LONG),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, st.binary(max_size=4)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38}, st.binary(max_size=18)),
]
NAMED: list[Callable[[str], Typed]] = [
    lambda name: ({"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)),
    lambda name: ({"type": "enum", "name": name, "symbols": ["RED", "BLUE"]}, st.sampled_from(["RED", "BLUE"])),
    lambda name: (
        {"type": "fixed", "name": name, "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1},
        st.binary(min_size=2, max_size=2),
    ),
]


@st.composite
def typed(draw: st.DrawFn, name: str, depth: int = 2) -> Typed:
    """Draw a type. ``name``: of what has a name, and of what is within."""
    kind = draw(st.sampled_from(["simple", "simple", "named", "null", "array", "map", "record"] if depth else ["simple", "named"]))
    if kind == "simple":
        return draw(st.sampled_from(SIMPLE))
    if kind == "named":
        return draw(st.sampled_from(NAMED))(name)
    if kind == "record":
        return draw(record(name, depth - 1))
    inner, values = draw(typed(name, depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=2), values, max_size=3)
    if isinstance(inner, list):
        return inner, values
    return draw(st.permutations(["null", inner])), st.one_of(st.none(), values)


@st.composite
def record(draw: st.DrawFn, name: str, depth: int = 2) -> Typed:
    fields = [(f"f{number}", *draw(typed(f"{name}{number}", depth))) for number in range(draw(st.integers(1, 4)))]
    schema = {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind, _ in fields]}
    return schema, st.fixed_dictionaries({each: values for each, _, values in fields})


def without_logical_types(schema: Any) -> Any:
    """Return a schema to write with: numbers stay numbers, and bytes bytes."""
    if isinstance(schema, list):
        return [without_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: without_logical_types(value) for key, value in schema.items() if key not in ("logicalType", "precision", "scale")
        }
    return schema


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical_types(schema)), value)
    return out.getvalue()


@st.composite
def damaged(draw: st.DrawFn, value: bytes) -> bytes:
    at = draw(st.integers(0, len(value)))
    match draw(st.sampled_from(["cut", "longer", "other", "whole", "whole"])):
        case "cut":
            return value[:at]
        case "longer":
            return value[:at] + draw(st.binary(min_size=1, max_size=3)) + value[at:]
        case "other":
            return value[:at] + draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :]
        case _:
            return value


@contextmanager
def one_by_one() -> Iterator[None]:
    """Have no compiled reader within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_bulk, "AVAILABLE", False)
        yield


def rows(found: Any, values: Any) -> tuple[list[Any], Any]:
    piece = found.piece(values)
    for array in piece.arrays:
        array.validate(full=True)
    # In texts NaN is the same as NaN, and dates need not be Python's.
    return [(str(array.type), array.to_string(window=99, container_window=99)) for array in piece.arrays], dict(piece.bad)


def both(found: AvroDecoder, values: list[bytes | None]) -> None:
    """Compare the two readers, also where a batch is part of a longer one."""
    array = pa.array([b"before", *values, None], pa.binary()).slice(1, len(values))
    with one_by_one():
        expected = rows(found, array)

    assert rows(found, array) == expected


def decoder_of(schema: Any) -> AvroDecoder:
    found = decoder("avro", schema=json.dumps(schema)).decoder
    assert isinstance(found, AvroDecoder)
    return found


@pytest.mark.slow
@given(st.data())
def test_a_batch_is_read_as_each_of_its_values_is(data: st.DataObject) -> None:
    schema, values = data.draw(record("R"))
    batch = data.draw(
        st.lists(
            st.one_of(values.map(lambda value: written(schema, value)).flatmap(damaged), st.none(), st.binary(max_size=6)),
            min_size=1,
            max_size=6,
        )
    )
    both(decoder_of(schema), batch)


WIDER = [("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
         ("bytes", "string"), ("string", "bytes"), ("int", "int")]  # fmt: skip


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(WIDER), st.booleans(), st.sampled_from(["both", "writer", "reader"])), min_size=1, max_size=4
    ),
    st.permutations(range(4)),
    st.data(),
)
def test_records_of_another_version_are_resolved_as_each_is(
    fields: list[tuple[tuple[str, str], bool, str]], order: list[int], data: st.DataObject
) -> None:
    simple = {kind: values for kind, values in SIMPLE if isinstance(kind, str)}
    writer: list[dict[str, Any]] = []
    reader: list[dict[str, Any]] = []
    for number, ((old, new), nullable, where) in enumerate(fields):
        if where != "reader":
            writer.append({"name": f"f{number}", "type": old})
        if where != "writer":
            default = {"string": "none", "bytes": "none", "float": 1.5, "double": 1.5}.get(new, 7)
            reader.append(
                {"name": f"f{number}", "type": ["null", new] if nullable else new, "default": None if nullable else default}
            )
    reader = [reader[place] for place in order if place < len(reader)]
    if not reader:
        return
    schemas = [{"type": "record", "name": "R", "fields": each} for each in (writer, reader)]
    values = st.fixed_dictionaries({each["name"]: simple[each["type"]] for each in writer})
    batch = data.draw(st.lists(values.map(lambda value: written(schemas[0], value)).flatmap(damaged), min_size=1, max_size=4))

    texts = [plain(RegisteredSchema(each), "s") for each in schemas]
    how = avro_bulk.program(texts[0][0], texts[1][0], [each["name"] for each in reader])
    if how is None:
        return
    built = Types(texts[1][1], "s").record(texts[1][0])
    arrays, bad = avro_bulk.read(how, pa.array(batch, pa.binary()), 0, built)
    parsed = [fastavro.parse_schema(json.loads(json.dumps(each))) for each in schemas]
    for place, value in enumerate(batch):
        if place not in bad:
            found = [array[place].as_py() for array in arrays]
            expected = resolved(value, parsed)
            assert list(map(repr, found)) == [repr(held(kind, expected[name])) for name, kind in built]


def resolved(value: bytes, schemas: list[Any]) -> Any:
    stream = io.BytesIO(value)
    found = fastavro.schemaless_reader(stream, *schemas)
    assert stream.tell() == len(value)
    return found


def held(kind: Any, value: Any) -> Any:
    """Return a value as a column holds it."""
    if pa.types.is_binary(kind) and isinstance(value, str):
        return value.encode()  # a default for bytes is written as a text
    return pa.array([value if value is None else float(value)], kind)[0].as_py() if pa.types.is_floating(kind) else value


def test_decimals_of_another_precision_are_read_as_whole_batches_and_those_of_another_scale_are_not() -> None:
    def of(**digits: int) -> Any:
        money = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2} | digits
        return plain(RegisteredSchema({"type": "record", "name": "R", "fields": [{"name": "a", "type": money}]}), "s")[0]

    assert avro_bulk.program(of(), of(precision=12), ["a"]) is not None
    assert avro_bulk.program(of(), of(scale=3), ["a"]) is None


@pytest.mark.parametrize(
    "kind",
    [
        ["int", "long"],
        ["null", "int", "string"],
        ["string"],
        ["null", {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}],
    ],
)
def test_unions_are_read_the_same_whichever_reader_reads_them(kind: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}, {"name": "b", "type": "int"}]}
    values = [1, "x", None, {"n": 2}]
    batch: list[bytes | None] = []
    for value in values:
        try:
            batch.append(written(schema, {"a": value, "b": 7}))
        except Exception:  # noqa: S112  # no value of this union
            continue
    assert batch
    both(decoder_of(schema), [*batch, b"\x09", b"\x00"])


def test_a_map_with_many_keys_or_one_twice_is_read_as_before() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}]}
    twice = b"\x04" + b"\x02a\x02" + b"\x02a\x04" + b"\x00"

    both(decoder_of(schema), [written(schema, {"m": {str(number): number for number in range(100)}}), twice])


@pytest.mark.slow
@example(value=b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", kind="long")
@example(value=b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", kind="long")
@example(value=b"\xfe\xff\xff\xff\x1f", kind="int")
@example(value=b"\x02", kind="boolean")
@example(value=b"\x03", kind="string")
@given(st.binary(max_size=12), st.sampled_from(["int", "long", "boolean", "string", "float", "double", "bytes"]))
def test_any_bytes_are_the_same_to_both(value: bytes, kind: str) -> None:
    both(decoder_of({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}), [value, None, value])


def test_bad_values_in_the_middle_cost_only_their_own_rows() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": ["null", "string"]}}]}
    good = written(schema, {"a": ["x", None, "yy"]})
    piece = decoder_of(schema).piece(
        pa.array([good, good[:-2], good + b"z", b"\x02\x02\xff", b"\x02\x04", None, good], pa.binary())
    )

    assert piece.arrays[0].to_pylist() == [["x", None, "yy"], None, None, None, None, None, ["x", None, "yy"]]
    assert dict(piece.bad) == {
        1: "it is cut off", 2: "1 bytes are left over", 3: "it is cut off",
        4: "it is not a record of the schema (IndexError)",  # the union has no member 2
    }  # fmt: skip


@pytest.mark.brokers
def test_a_batch_with_records_of_several_schemas_comes_out_in_order() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
    }
    with registry_server() as server:
        server.put("/subjects/orders-value/versions/latest", new, id=8, version=2)
        for number, schema in ((7, old), (8, new)):
            server.put(f"/schemas/ids/{number}", schema)
        found = decoder("avro", registry=server.url, topics=["orders"], on_bad="column")
        values: list[bytes | None] = []
        for number in range(20):
            schema = (old, new)[number % 3 == 0]
            values.append(FRAME.pack(0, (7, 8)[number % 3 == 0]) + written(schema, {"id": number, "note": "n"}))
        values[4], values[9], values[14], values[17] = None, b"\0\0\0\0\x09x", b"\1no frame", values[2]
        header = ("__value_schema_id", FRAME.pack(0, 7))
        headers = [[header] if number == 17 else [] for number in range(20)]
        values[17] = written(old, {"id": 17})
        got = found.batch(records(values, headers=headers))
        with one_by_one():
            expected = found.batch(records(values, headers=headers))

    assert got.to_pylist() == expected.to_pylist()
    assert [row["id"] for row in got.to_pylist()] == [None if number in (4, 9, 14) else number for number in range(20)]
    assert [row["_corrupt_reason"] for row in got.to_pylist() if row["_corrupt_reason"]] == [
        "the registry has no schema 9", "it does not begin with a zero byte and the id of a schema",
    ]  # fmt: skip


@pytest.mark.brokers
def test_a_null_value_is_not_bad_in_a_batch_whose_schema_is_unknown() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    with registry_server() as server:
        server.put("/subjects/orders-value/versions/latest", schema, id=7, version=1)
        found = decoder("avro", registry=server.url, topics=["orders"], on_bad="column")
        got = found.batch(records([b"\0\0\0\0\x09\x02", None, b"\0\0\0\0\x09\x02"]))

    assert got.column("_corrupt_reason").to_pylist() == ["the registry has no schema 9", None, "the registry has no schema 9"]
