"""Batches in files of each format, read back by others."""

import csv
import gzip
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402  # part of pyarrow

from kafka_async.adapters.export import forms  # noqa: E402  # needs pyarrow
from kafka_async.adapters.export.forms import FORMS, form_for, form_named, form_of, plain_schema  # noqa: E402  # needs pyarrow
from kafka_async.application.reading.arrow import SCHEMA  # noqa: E402  # needs pyarrow

from ..values.batches import records  # noqa: E402  # needs pyarrow

FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("word", pa.dictionary(pa.int32(), pa.string())),
        ("number", pa.float64()),
        ("money", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", tz="Europe/Berlin")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("took", pa.duration("us")),
        ("parts", pa.list_(pa.struct([("x", pa.int32()), ("raw", pa.binary())]))),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
ROW = {
    "id": 1,
    "text": 'é "\n',
    "word": "red",
    "number": 1.5,
    "money": Decimal("1.20"),
    "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "raw": b"raw",
    "took": timedelta(seconds=-1.5),
    "parts": [{"x": 1, "raw": b"y"}, None],
    "counts": [("a", 1)],
}
EMPTY: dict[str, Any] = {**dict.fromkeys(FIELDS.names), "text": "", "parts": [], "number": float("inf")}
NULL = dict.fromkeys(FIELDS.names)


def batch(*rows: Any) -> Any:
    return pa.RecordBatch.from_pylist(list(rows), schema=FIELDS)


def written(name: str, *batches: Any, schema: Any = FIELDS, **how: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with form_named(name).open(sink, schema, **how) as writer:
        for each in batches:
            writer.write(each)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_formats_with_types_give_back_what_was_written(name: str) -> None:
    data = pa.py_buffer(written(name, batch(ROW, EMPTY), batch(NULL), batch()))
    table = pq.read_table(pa.BufferReader(data)) if name == "parquet" else pa.ipc.open_file(data).read_all()

    assert table.schema == plain_schema(FIELDS)
    assert table.to_pylist() == [ROW, EMPTY, NULL]


def test_topics_that_differ_between_batches_go_into_one_file_of_arrow() -> None:
    """Arrow's file refuses a dictionary that differs between batches."""
    data = written("arrow", records([b"a"], topics=["orders"]), records([b"b"], topics=["more"]), schema=SCHEMA)

    assert pa.ipc.open_file(pa.py_buffer(data)).read_all().column("topic").to_pylist() == ["orders", "more"]


def test_lines_of_json_have_texts_for_what_json_lacks() -> None:
    lines = written("ndjson", batch(ROW, EMPTY, NULL)).decode().splitlines()

    assert [json.loads(line) for line in lines] == [
        ROW
        | {"money": "1.20", "at": "2026-01-02T03:04:05.000000Z", "day": "2026-01-02", "raw": "raw", "took": "-1.5s"}
        | {"parts": [{"x": 1, "raw": "y"}, None], "counts": {"a": 1}},
        EMPTY | {"number": "Infinity"},
        NULL,
    ]
    assert lines[0].startswith('{"id":1,"text":"é \\"\\n","word":"red"')


@pytest.mark.parametrize("value", [b"\xff", b"a\x80b", "é".encode() + b"\xc3"])
def test_every_byte_comes_back_from_lines_of_json(value: bytes) -> None:
    row = json.loads(written("ndjson", records([value, None], start=5), schema=SCHEMA).splitlines()[0])

    assert row["value"].encode("utf-8", "surrogateescape") == value
    assert row | {"value": ""} == {
        "topic": "orders", "partition": 0, "offset": 5, "timestamp": "1970-01-01T00:00:00.000Z", "timestamp_type": 0, "key": "k",
        "value": "", "headers": [],
    }  # fmt: skip


FAR = pa.schema(
    [
        ("at", pa.timestamp("ms", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("seconds", pa.timestamp("s")),
        ("day", pa.date32()),
        ("day64", pa.date64()),
        ("near", pa.timestamp("ms", tz="UTC")),
        ("within", pa.list_(pa.date32())),
    ]
)
DAYS = 20_000_000


def far(*rows: tuple[int | None, ...]) -> Any:
    columns = []
    for values, kind in zip(zip(*rows, strict=True), FAR.types, strict=True):
        plain = pa.int32() if kind == pa.date32() else pa.int64()
        if kind == FAR.field("within").type:
            columns.append(pa.array([[value] for value in values], pa.list_(pa.int32())).cast(kind))
        else:
            columns.append(pa.array(values, plain).view(kind))
    return pa.RecordBatch.from_arrays(columns, schema=FAR)


def test_times_beyond_the_years_that_arrow_can_write_are_texts_of_iso_8601() -> None:
    """A producer that sets timestamps in microseconds has such ones."""
    day = 86_400
    batch = far(
        (1_795_000_000_123_456, DAYS * day * 10**6 + 1, -DAYS * day, DAYS, -DAYS * day * 1000, 0, DAYS),
        (None, 0, None, None, 0, None, 0),
    )
    lines = [json.loads(line) for line in written("ndjson", batch, schema=FAR).splitlines()]
    texts = list(csv.reader(io.StringIO(written("csv", batch, far((0,) * 7), schema=FAR).decode())))

    expected = [
        "+58851-04-14T23:08:43.456Z",
        "+56728-02-22T00:00:00.000001",
        "-52789-11-11T00:00:00",
        "+56728-02-22",
        "-52789-11-11",
    ]
    assert list(lines[0].values()) == [*expected, "1970-01-01T00:00:00.000Z", ["+56728-02-22"]]
    assert list(lines[1].values()) == [None, "1970-01-01T00:00:00.000000", None, None, "1970-01-01", None, ["1970-01-01"]]
    assert texts == [
        FAR.names,
        [*expected, "1970-01-01 00:00:00.000Z", '["+56728-02-22"]'],
        ["", "1970-01-01 00:00:00.000000", "", "", "1970-01-01", "", '["1970-01-01"]'],
        ["1970-01-01 00:00:00.000Z", "1970-01-01 00:00:00.000000", "1970-01-01 00:00:00", "1970-01-01", "1970-01-01",
         "1970-01-01 00:00:00.000Z", '["1970-01-01"]'],
    ]  # fmt: skip


@pytest.mark.parametrize("days", [-12_687_428, 11_248_737])
def test_the_first_and_the_last_time_that_arrow_can_write_are_written_by_it(days: int) -> None:
    batch = far((days * 86_400_000,) + (0,) * 6, ((days + (1 if days > 0 else -1)) * 86_400_000,) + (0,) * 6)
    near, beyond = (json.loads(line)["at"] for line in written("ndjson", batch, schema=FAR).splitlines())

    assert [near, beyond] == (
        ["32767-12-31T00:00:00.000Z", "+32768-01-01T00:00:00.000Z"]
        if days > 0
        else ["-32767-01-01T00:00:00.000Z", "-32768-12-31T00:00:00.000Z"]
    )


def test_csv_has_json_for_what_is_nested_and_tells_null_from_an_empty_text() -> None:
    text = written("csv", batch(ROW, EMPTY, NULL)).decode()
    rows = list(csv.reader(io.StringIO(text)))

    assert rows[0] == FIELDS.names
    assert rows[1] == [
        "1", 'é "\n', "red", "1.5", "1.20", "2026-01-02 04:04:05.000000+0100", "2026-01-02", "raw", "-1.5s",
        '[{"x":1,"raw":"y"},null]', '{"a":1}',
    ]  # fmt: skip
    assert text.splitlines()[3:] == [',"",,inf,,,,,,"[]",', ",,,,,,,,,,"]


def test_bytes_that_csv_cannot_hold_are_refused_with_what_can() -> None:
    with pytest.raises(
        ValueError, match=r"^column 'value' has bytes that are not UTF-8, which CSV cannot hold; parquet, arrow and"
    ):
        written("csv", records([b"\xff"]), schema=SCHEMA)


@pytest.mark.parametrize("name", FORMS)
def test_a_file_without_rows_is_one_all_the_same(name: str) -> None:
    data = written(name)

    if name == "parquet":
        assert pq.read_schema(pa.BufferReader(data)) == plain_schema(FIELDS)
    elif name == "arrow":
        assert pa.ipc.open_file(pa.py_buffer(data)).schema == plain_schema(FIELDS)
    else:
        assert data.decode() == {"csv": ",".join(f'"{each}"' for each in FIELDS.names) + "\n", "ndjson": ""}[name]


def _groups(data: bytes) -> list[int]:
    found = pq.ParquetFile(pa.BufferReader(data))
    return [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)]


@pytest.mark.slow
def test_row_groups_have_a_million_rows_whatever_the_batches_are() -> None:
    schema = pa.schema([("id", pa.int64())])
    column = pa.array(range(700_000), pa.int64())
    batches = [pa.RecordBatch.from_arrays([column], schema=schema)] * 4

    assert _groups(written("parquet", *batches, schema=schema)) == [1_000_000, 1_000_000, 800_000]


def test_row_groups_end_earlier_if_they_take_too_much_memory() -> None:
    schema = pa.schema([("raw", pa.binary())])
    one = pa.RecordBatch.from_arrays([pa.array([b"x" * 1000] * 100)], schema=schema)

    assert _groups(written("parquet", *[one] * 5, schema=schema, group_bytes=150_000)) == [200, 200, 100]


def test_texts_may_be_compressed_and_the_ends_of_names_say_how(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with form_of("orders.ndjson.gz").open(sink, FIELDS) as writer:
        writer.write(batch(NULL))
        writer.write(batch(NULL))

    assert gzip.decompress(bytes(sink.getvalue())).count(b"\n") == 2
    assert (form_of("a.b/orders.CSV.zst").ending, form_of("x.parquet").ending) == (".csv.zst", ".parquet")


@pytest.mark.parametrize("name", ["orders", "orders.txt", "orders.parquet.gz", "orders.gz", ".parquet", "orders.csv.bz2"])
def test_other_names_are_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected a name that ends in \.parquet, \.arrow, \.csv, \.ndjson, or in / for a folder"):
        form_of(name)


@pytest.mark.parametrize(
    ("name", "chosen", "ending"),
    [
        ("orders.csv.gz", "csv", ".csv.gz"),
        ("orders.NDJSON.ZST", "ndjson", ".ndjson.zst"),
        ("orders.gz", "ndjson", ".ndjson.gz"),
        ("orders.txt.zst", "csv", ".csv.zst"),
        ("orders.parquet", "parquet", ".parquet"),
        ("orders.txt", "csv", ".csv"),
        ("v1.2/orders", "arrow", ".arrow"),
        ("/dev/fd/3", "parquet", ".parquet"),
    ],
)
def test_a_format_that_is_chosen_is_packed_as_the_name_says(name: str, chosen: str, ending: str) -> None:
    assert form_for(name, chosen).ending == ending


@pytest.mark.parametrize(
    ("name", "chosen", "why"),
    [
        ("orders.csv", "parquet", "is the name of a file of the format csv, not parquet"),
        ("orders.csv.gz", "ndjson", "is the name of a file of the format csv, not ndjson"),
        ("orders.Parquet", "arrow", "is the name of a file of the format parquet, not arrow"),
        ("orders.parquet.gz", "parquet", "files of the format parquet are not packed as a whole; only csv and ndjson may be"),
        ("orders.zst", "arrow", "files of the format arrow are not packed as a whole"),
    ],
)
def test_a_name_that_says_another_format_than_the_one_that_is_chosen_is_refused(name: str, chosen: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        form_for(name, chosen)
    assert repr(name) in str(raised.value)


def test_a_format_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"^'parket': expected one of parquet, arrow, csv, ndjson; did you mean 'parquet'\?$"):
        form_named("parket")


@pytest.mark.parametrize("name", [*FORMS, "csv.gz", "ndjson.zst"])
def test_what_is_abandoned_writes_nothing_more(name: str) -> None:
    sink = pa.BufferOutputStream()

    def fails() -> None:
        with form_of(f"orders.{name}").open(sink, FIELDS) as writer:
            writer.write(batch(ROW))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    sink.close()  # what is collected later does not write to it


def test_rows_become_texts_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "CHUNK_ROWS", 2)

    assert written("ndjson", batch(*[NULL] * 5)).count(b"\n") == 5
    assert written("csv", batch(*[NULL] * 5)).count(b"\n") == 6
