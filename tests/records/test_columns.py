"""The builder on its own; that the decoders fill it alike is in ``test_decode.py``."""

import struct

import pyarrow as pa
import pytest

from kafka_async.errors import IllegalArgumentError
from kafka_async.records import ALL_COLUMNS, BinaryColumn, ColumnBuilder
from kafka_async.records.columns import Row


def row(
    offset: int, key: bytes | None = None, value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Row:
    return offset, 1000 + offset, 0, key, value, headers, None, 1


def arrow(column: BinaryColumn) -> list[bytes | None]:
    """What Arrow, which is the judge of the layout, makes of the buffers."""
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    array = pa.Array.from_buffers(pa.binary(), column.length, buffers, null_count=column.nulls)
    array.validate(full=True)
    values: list[bytes | None] = array.to_pylist()
    return values


def test_buffers_are_what_arrow_reads() -> None:
    builder = ColumnBuilder()
    values = [b"a", None, b"", b"longer", None, *(bytes([i]) for i in range(10))]
    for offset, value in enumerate(values):
        builder.append(row(offset, key=b"k" if offset % 3 else None, value=value))
    builder.end_run("t", 0, len(values))
    columns = builder.finish()
    assert columns.values is not None
    assert columns.keys is not None
    assert columns.offsets is not None
    assert arrow(columns.values) == values
    assert arrow(columns.keys) == [b"k" if i % 3 else None for i in range(len(values))]
    assert struct.unpack(f"={len(values)}q", columns.offsets) == tuple(range(len(values)))
    assert columns.runs == (("t", 0, len(values)),)


def test_a_column_without_nulls_has_no_validity_bitmap() -> None:
    builder = ColumnBuilder({"value"})
    builder.append(row(0))
    column = builder.finish().values
    assert column is not None
    assert column.validity is None
    assert column.nulls == 0


def test_headers_are_lists_of_keys_and_values() -> None:
    builder = ColumnBuilder({"headers"})
    builder.append(row(0, headers=(("a", b"1"), ("b", None))))
    builder.append(row(1))
    builder.append(row(2, headers=(("\udcff", b""),)))
    headers = builder.finish().headers
    assert headers is not None
    assert struct.unpack("=4i", headers.offsets) == (0, 2, 2, 3)
    assert arrow(headers.keys) == [b"a", b"b", b"\xff"]
    assert arrow(headers.values) == [b"1", None, b""]


def test_columns_that_were_not_asked_for_take_no_memory() -> None:
    builder = ColumnBuilder({"offset", "topic"})
    builder.append(row(0, key=b"k" * 1000, headers=(("a", b"1"),)))
    columns = builder.finish()
    assert builder.nbytes == 8
    assert (columns.timestamps, columns.timestamp_types) == (None, None)
    assert (columns.keys, columns.values, columns.headers) == (None, None, None)


def test_an_unknown_column_is_refused_by_name() -> None:
    with pytest.raises(IllegalArgumentError, match=r"columns=\['offest'\]: expected some of .*offset"):
        ColumnBuilder({"offest", "value"})


def test_neighboring_runs_of_one_partition_become_one() -> None:
    builder = ColumnBuilder({"offset"})
    for topic, partition, rows in [("t", 0, 2), ("t", 0, 3), ("t", 1, 0), ("t", 1, 1), ("t", 0, 1)]:
        builder.end_run(topic, partition, rows)
    assert builder.finish().runs == (("t", 0, 5), ("t", 1, 1), ("t", 0, 1))


@pytest.mark.parametrize(
    ("full", "more"),
    [
        (row(0, key=b"12345678"), row(1, key=b"123")),
        (row(0, value=b"12345678"), row(1, value=b"123")),
        (row(0, headers=(("12345678", b""),)), row(1, headers=(("123", b""),))),
        (row(0, headers=(("", b"12345678"),)), row(1, headers=(("", b"123"),))),
    ],
    ids=["key", "value", "header key", "header value"],
)
def test_a_row_that_would_overflow_a_buffer_does_not_fit(full: Row, more: Row) -> None:
    builder = ColumnBuilder(max_column_bytes=10)
    assert builder.fits(full)
    builder.append(full)
    assert not builder.fits(more)
    assert builder.fits(row(1, value=None))
    first = ColumnBuilder(max_column_bytes=5)
    assert first.fits(full)
    first.append(full)
    assert not first.fits(more)
    assert first.fits(row(1, value=None))
    assert ColumnBuilder(ALL_COLUMNS).max_column_bytes == 2**31 - 1


@pytest.mark.parametrize("kept", [*range(11), 16, 17, 24])
def test_rows_dropped_at_the_end_leave_what_the_others_alone_would_have_made(kept: int) -> None:
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None))
    rows = [row(3 * i, b"k" * i if i % 3 else None, None if i % 5 == 1 else b"v" * i, headers[: i % 3]) for i in range(24)]
    whole, fresh = ColumnBuilder(), ColumnBuilder()
    for builder, part in ((whole, rows), (fresh, rows[:kept])):
        for each in part:
            builder.append(each)
        builder.end_run("t", 0, len(part))

    assert whole.drop_from(3 * kept) == len(rows) - kept

    assert whole.rows == kept
    assert whole.finish() == fresh.finish()


def test_only_rows_of_the_last_run_are_dropped() -> None:
    builder = ColumnBuilder()
    for topic, offsets in (("t", (50, 60)), ("u", (1, 2, 9))):
        for offset in offsets:
            builder.append(row(offset))
        builder.end_run(topic, 0, len(offsets))

    assert builder.drop_from(3) == 1
    assert builder.drop_from(0) == 2
    assert builder.runs == [("t", 0, 2)]


def test_rows_go_on_after_some_were_dropped() -> None:
    builder = ColumnBuilder()
    for offset in range(3):
        builder.append(row(offset, value=None))
    builder.end_run("t", 0, 3)
    builder.drop_from(1)
    builder.append(row(7, value=b"x"))
    builder.end_run("u", 0, 1)
    columns = builder.finish()
    assert columns.values is not None
    assert arrow(columns.values) == [None, b"x"]
    assert columns.runs == (("t", 0, 1), ("u", 0, 1))


def test_without_offsets_nothing_can_be_dropped() -> None:
    builder = ColumnBuilder({"value"})
    builder.append(row(5))
    builder.end_run("t", 0, 1)
    assert builder.drop_from(0) == 0
