"""Keys and values as Arrow's views: nothing that is longer than a view is copied, and all of it is kept."""

import gc
import struct
import sys
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from kafka_async.application.reading import arrow  # noqa: E402  # after the skip where pyarrow is missing
from kafka_async.application.reading.arrow import SCHEMA, VIEW_SCHEMA, record_batch  # noqa: E402  # as above
from kafka_async.records import ColumnBuilder, Columns, RecordReader  # noqa: E402  # as above
from kafka_async.records.codecs import LZ4, compress, decompress  # noqa: E402  # as above
from tests.strategies import CODECS, GZIP, BatchSpec, MessageSpec, RecordSpec  # noqa: E402  # as above

from .implementations import both_readers  # noqa: E402  # as above
from .test_decode import CORPUS, LONG  # noqa: E402  # as above


def batch(base: int, *values: bytes | None, codec: int = 0) -> bytes:
    records = tuple(RecordSpec(delta=i, value=value) for i, value in enumerate(values))
    return BatchSpec(base_offset=base, records=records, codec=codec).encode()


def read(reader: type[RecordReader], data: Any, *, view: bool = True, limit: int = 2**31 - 1, chunk: int = 1000) -> Columns:
    """Read until nothing is left, or the columns are full."""
    opened, builder = reader("t", 0, data, 0, check_crcs=False), ColumnBuilder(view=view, max_column_bytes=limit)
    while not opened.exhausted and opened.read_columns(chunk, builder):
        pass
    return builder.finish()


def plain(views: Any) -> Any:
    """Return a batch of views as one of plain columns."""
    return views.cast(SCHEMA)


def sources(columns: Columns) -> tuple[Any, ...]:
    assert columns.value_views is not None
    return columns.value_views.sources


def address(buffer: Any) -> int:
    return int(pa.py_buffer(buffer).address)


@both_readers
class TestViews:
    @pytest.mark.parametrize("data", [*CORPUS, *(BatchSpec(records=LONG, codec=codec).encode() for codec in CODECS.values())])
    @pytest.mark.parametrize("chunk", [1, 5, 1000])
    def test_views_hold_what_plain_columns_hold(self, reader: type[RecordReader], data: bytes, chunk: int) -> None:
        views = record_batch(read(reader, data, chunk=chunk))
        views.validate(full=True)
        assert views.schema == VIEW_SCHEMA
        assert plain(views) == record_batch(read(reader, data, view=False))

    @pytest.mark.parametrize("size", [0, 1, 4, 11, 12, 13, 14, 100])
    def test_up_to_twelve_bytes_are_in_the_view_itself(self, reader: type[RecordReader], size: int) -> None:
        columns = read(reader, batch(0, bytes(range(size)), None))
        assert len(sources(columns)) == (size > 12)
        assert record_batch(columns).column("value").to_pylist() == [bytes(range(size)), None]
        assert columns.value_views is not None
        assert columns.value_views.views[16:] == bytes(16)
        if size <= 12:
            assert columns.value_views.views[:16] == struct.pack("=i12s", size, bytes(range(size)))

    def test_nothing_is_copied_and_all_batches_of_an_answer_have_one_source(self, reader: type[RecordReader]) -> None:
        data = batch(0, b"a" * 50, b"b" * 50) + batch(2, b"c" * 50)
        columns = read(reader, data, chunk=1)
        assert [address(source) for source in sources(columns)] == [address(data)]
        values = record_batch(columns).column("value")
        assert values.buffers()[2].address == address(data)
        assert values.to_pylist() == [b"a" * 50, b"b" * 50, b"c" * 50]

    def test_each_compressed_batch_is_a_source(self, reader: type[RecordReader]) -> None:
        data = batch(0, b"a" * 50, b"b" * 50, codec=GZIP) + batch(2, b"c" * 50, codec=GZIP) + batch(3, b"short", codec=GZIP)
        columns = read(reader, data, chunk=1)
        assert len(sources(columns)) == 2, "what no view refers to is not kept"
        assert record_batch(columns).column("value").to_pylist() == [b"a" * 50, b"b" * 50, b"c" * 50, b"short"]

    def test_several_answers_and_records_of_before(self, reader: type[RecordReader]) -> None:
        """Records that a deserializer has seen already are objects, and come first."""
        builder = ColumnBuilder(view=True)
        builder.append((7, 0, 0, b"k" * 20, b"o" * 20, (), None, 0))
        builder.end_run("t", 0, 1)
        for partition in range(3):
            reader("t", partition, batch(0, b"%d" % partition * 20), 0).read_columns(9, builder)
        builder.append((8, 0, 0, None, b"p" * 20, (), None, 0))
        builder.end_run("t", 0, 1)
        views = record_batch(builder.finish())
        views.validate(full=True)
        assert views.column("value").to_pylist() == [b"o" * 20, b"0" * 20, b"1" * 20, b"2" * 20, b"p" * 20]
        assert views.column("key").to_pylist() == [b"k" * 20, None, None, None, None]

    def test_old_messages_between_batches_are_copied(self, reader: type[RecordReader]) -> None:
        data = (
            MessageSpec(offset=0, value=b"o" * 20).encode() + batch(1, b"n" * 20) + MessageSpec(offset=2, value=b"p" * 20).encode()
        )
        data += batch(3, b"m" * 20)
        views = record_batch(read(reader, data))
        views.validate(full=True)
        assert views.column("value").to_pylist() == [b"o" * 20, b"n" * 20, b"p" * 20, b"m" * 20]

    def test_what_the_numbers_of_a_view_cannot_reach_is_copied(self, reader: type[RecordReader]) -> None:
        values = [bytes([65 + i]) * 20 for i in range(12)]
        columns = read(reader, batch(0, *values), limit=200)
        views = record_batch(columns)
        views.validate(full=True)
        assert 4 < len(views) < 12 + 1
        assert views.column("value").to_pylist() == values[: len(views)]
        assert len(sources(columns)) == 2
        assert len(sources(columns)[1]) <= 200

    @pytest.mark.parametrize("codec", [0, GZIP])
    def test_an_array_keeps_what_it_refers_to(self, reader: type[RecordReader], codec: int) -> None:
        data = bytearray(batch(0, *(b"%05d" % i * 20 for i in range(100)), codec=codec))
        part = record_batch(read(reader, bytes(data))).column("value").slice(50, 2)
        data[:] = bytes(len(data))
        gc.collect()
        others = [bytes(size) for size in range(2000, 20000, 100)]
        assert part.to_pylist() == [b"00050" * 20, b"00051" * 20]
        assert others

    def test_no_records_give_the_schema_and_no_rows(self, reader: type[RecordReader]) -> None:
        views = record_batch(read(reader, b""))
        views.validate(full=True)
        assert (views.num_rows, views.schema) == (0, VIEW_SCHEMA)

    def test_dropped_rows_take_their_sources_along(self, reader: type[RecordReader]) -> None:
        builder = ColumnBuilder(view=True)
        data = batch(0, b"a" * 50, None, codec=GZIP) + batch(2, b"b" * 50, codec=GZIP) + batch(3, b"c" * 50, None, codec=GZIP)
        reader("t", 0, data, 0).read_columns(9, builder)
        assert builder.drop_from(2) == 3
        reader("t", 1, batch(9, b"d" * 50), 0).read_columns(9, builder)
        columns = builder.finish()
        assert len(sources(columns)) == 2
        assert record_batch(columns).column("value").to_pylist() == [b"a" * 50, None, b"d" * 50]


def test_only_columns_asked_for_are_there() -> None:
    builder = ColumnBuilder({"offset", "value"}, view=True)
    builder.append((0, 0, 0, b"k", b"v", (), None, 0))
    builder.end_run("t", 0, 1)
    assert record_batch(builder.finish(), {"offset", "value"}).schema.types == [pa.int64(), pa.binary_view()]


def test_what_a_small_compressed_batch_becomes_takes_no_more_than_twice_its_size() -> None:
    """The largest block of lz4 is 64 times as large."""
    output = decompress(LZ4, memoryview(compress(LZ4, b"x" * 1000)), 2**20)
    assert len(output) == 1000
    assert sys.getsizeof(output) < 2 * 1000 + 100


def test_a_pyarrow_that_cannot_wrap_views_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older:
        __version__ = "18.1.0"
        DataType = object

    arrow.check_views()
    monkeypatch.setattr(arrow, "pa", Older)
    with pytest.raises(ImportError, match=r"view=True needs pyarrow 19 or later; installed is 18\.1\.0"):
        arrow.check_views()
