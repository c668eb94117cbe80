import builtins
import datetime
import importlib
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from kafka_async.application.reading.arrow import ALL_COLUMNS, SCHEMA, array_of, record_batch, scalar_of  # noqa: E402  # after the skip where pyarrow is missing
from kafka_async.records import ColumnBuilder  # noqa: E402  # as above

Headers = tuple[tuple[str, bytes | None], ...]


def append(
    into: ColumnBuilder,
    offset: int,
    *,
    timestamp: int = 1000,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: Headers = (),
) -> None:
    into.append((offset, timestamp, 0, key, value, headers, None, 0))


def test_every_column_arrives_as_it_is() -> None:
    builder = ColumnBuilder()
    append(builder, 5, key=b"k", value=None, headers=(("a", b"1"), ("b", None)))
    append(builder, 6, timestamp=-1, key=None, value=b"\xff\x00")
    builder.end_run("orders", 3, 2)
    append(builder, 0, timestamp=1_700_000_000_123, value=b"")
    builder.end_run("events", 0, 1)

    batch = record_batch(builder.finish())

    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.to_pydict() == {
        "topic": ["orders", "orders", "events"],
        "partition": [3, 3, 0],
        "offset": [5, 6, 0],
        "timestamp": [
            datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            None,
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.UTC),
        ],
        "timestamp_type": [0, 0, 0],
        "key": [b"k", None, None],
        "value": [None, b"\xff\x00", b""],
        "headers": [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], []],
    }


def test_a_topic_that_returns_uses_its_first_dictionary_entry() -> None:
    builder = ColumnBuilder()
    for topic in ("a", "b", "a"):
        append(builder, 1)
        builder.end_run(topic, 0, 1)

    topics = record_batch(builder.finish()).column("topic")

    assert topics.dictionary.to_pylist() == ["a", "b"]
    assert topics.indices.to_pylist() == [0, 1, 0]


def test_no_records_give_the_schema_and_no_rows() -> None:
    batch = record_batch(ColumnBuilder().finish())

    batch.validate(full=True)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


@pytest.mark.parametrize("names", [{"key"}, {"topic", "value"}, {"offset", "timestamp", "headers"}, ALL_COLUMNS])
def test_only_the_columns_asked_for_are_there_in_the_order_of_the_schema(names: set[str]) -> None:
    builder = ColumnBuilder(names)
    append(builder, 1)
    builder.end_run("t", 0, 1)

    batch = record_batch(builder.finish(), names)

    assert batch.schema.names == [name for name in SCHEMA.names if name in names]
    assert batch.num_rows == 1


def test_header_keys_that_are_not_utf8_are_replaced_each_for_itself() -> None:
    split = "é".encode().decode("utf-8", "surrogateescape").encode()
    first, second = (split[i : i + 1].decode("utf-8", "surrogateescape") for i in (0, 1))  # valid only when joined
    builder = ColumnBuilder({"headers"})
    append(builder, 1, headers=((first, b"x"), (second, b"y"), ("fine", b"z")))
    builder.end_run("t", 0, 1)

    batch = record_batch(builder.finish())

    batch.validate(full=True)
    assert [entry["key"] for entry in batch.column("headers").to_pylist()[0]] == ["\ufffd", "\ufffd", "fine"]


def test_the_arrays_wrap_the_buffers_without_a_copy() -> None:
    builder = ColumnBuilder()
    append(builder, 1, key=b"key", value=b"value")
    builder.end_run("t", 0, 1)
    columns = builder.finish()
    assert columns.values is not None

    batch = record_batch(columns)

    assert batch.column("value").buffers()[2].address == pa.py_buffer(columns.values.data).address
    assert batch.column("offset").buffers()[1].address == pa.py_buffer(columns.offsets).address
    assert batch.column("timestamp").buffers()[1].address == pa.py_buffer(columns.timestamps).address


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(sys.modules, "kafka_async.application.reading.arrow")
    yield
    monkeypatch.undo()


def test_a_missing_pyarrow_is_named_with_the_command_that_installs_it(without_pyarrow: None) -> None:
    with pytest.raises(ImportError, match=r"need pyarrow.* extra 'arrow'.* pip install '/path/to/clone\[arrow\]'"):
        importlib.import_module("kafka_async.application.reading.arrow")


VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(st.characters(codec="utf-8"))),
    (pa.binary(), st.binary()),
    (pa.date32(), st.integers(-719_162, 2_932_896)),  # what dates of Python reach: pyarrow cannot show others
    (pa.timestamp("us", tz="UTC"), st.integers(-(2**55), 2**55)),
    (pa.decimal128(20, 4), st.decimals(-(10**16) + 1, 10**16 - 1, places=4)),
    (pa.decimal128(38, 0), st.decimals(-(10**38) + 1, 10**38 - 1, places=0, allow_nan=False)),
]


def nested(inner: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    kind, values = inner
    some = st.none() | values
    pairs = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=3), some), max_size=3)
    return st.sampled_from(
        [
            (kind, values),
            (pa.list_(pa.field("element", kind)), st.lists(some, max_size=4)),
            (pa.struct([("x", kind), ("y", pa.int32())]), st.fixed_dictionaries({}, optional={"x": some, "y": st.just(7)})),
            (pa.map_(pa.string(), kind), pairs),
        ]
    )


@pytest.mark.slow
@given(st.data())
def test_an_array_of_pythons_values_is_that_of_pyarrow(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(VALUES).flatmap(nested).flatmap(nested))
    drawn = data.draw(st.lists(st.none() | values, max_size=20))
    found = array_of(kind, drawn)
    found.validate(full=True)
    assert found.type == kind
    assert repr(found.to_pylist()) == repr(pa.array(drawn, kind).to_pylist())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 128),
        (pa.int64(), 2**63),
        (pa.date32(), 2**31),
        (pa.decimal128(4, 2), Decimal(100)),
        (pa.decimal128(4, 2), Decimal("0.001")),
    ],
)
def test_a_number_that_a_type_cannot_hold_is_an_error(kind: Any, value: Any) -> None:
    with pytest.raises(OverflowError):
        array_of(kind, [None, value])


def test_what_utf8_cannot_hold_is_a_question_mark() -> None:
    assert array_of(pa.string(), ["a\ud800"]).to_pylist() == ["a?"]
    assert scalar_of(pa.binary(), b"x").as_py() == b"x"
