import builtins
import datetime
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from kafka_async.application.arrow import ALL_COLUMNS, SCHEMA, record_batch  # noqa: E402  # after the skip where pyarrow is missing
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
    monkeypatch.delitem(sys.modules, "kafka_async.application.arrow")
    yield
    monkeypatch.undo()


def test_a_missing_pyarrow_is_named_with_the_command_that_installs_it(without_pyarrow: None) -> None:
    with pytest.raises(ImportError, match=r"pip install 'kafka-async\[arrow\]'"):
        importlib.import_module("kafka_async.application.arrow")
