"""Positions, transactions and errors as a caller sees them; every case on both decoders."""

import pickle
import struct
import sys
from typing import ClassVar

import pytest

from kafka_async.errors import CorruptRecordException, UnsupportedCodecError
from kafka_async.model import ConsumerRecord
from kafka_async.records import ColumnBuilder, RecordReader
from kafka_async.records.columns import At, Row
from tests.strategies import (
    CODECS,
    CONTROL,
    GZIP,
    TRANSACTIONAL,
    BatchSpec,
    MessageSpec,
    RecordSpec,
    encode_batch,
    encode_compressed,
    encode_record,
    marker,
    wrap,
)

from .implementations import PurePythonReader, both_readers, read_all


def batch(base: int, count: int, *, last: int | None = None, epoch: int = 0, codec: int = 0, producer: int = -1) -> bytes:
    """``count`` records with consecutive offsets from ``base`` on, in a batch that may end later."""
    return BatchSpec(
        records=tuple(RecordSpec(delta=i, value=b"%d" % (base + i)) for i in range(count)),
        base_offset=base,
        last_offset_delta=None if last is None else last - base,
        leader_epoch=epoch,
        codec=codec,
        producer_id=producer,
        attributes=TRANSACTIONAL if producer >= 0 else 0,
    ).encode()


def corrupted(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def offsets(reader: RecordReader, max_records: int = 1000) -> list[int]:
    return [record.offset for record in reader.read(max_records)]


@both_readers
class TestPosition:
    def test_reading_resumes_where_it_stopped(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 3, epoch=1) + batch(3, 2, epoch=2), 0)
        assert self.state(opened) == (0, None, False)
        assert offsets(opened, 2) == [0, 1]
        assert self.state(opened) == (2, 1, False)
        assert offsets(opened, 2) == [2, 3]
        assert self.state(opened) == (4, 2, False)
        assert offsets(opened, 2) == [4]
        assert self.state(opened) == (5, 2, True)
        assert offsets(opened) == []

    @staticmethod
    def state(reader: RecordReader) -> tuple[int, int | None, bool]:
        return reader.next_offset, reader.leader_epoch, reader.exhausted

    def test_taking_the_last_record_exhausts(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 2), 0)
        offsets(opened, 2)
        assert opened.exhausted

    @pytest.mark.parametrize("max_records", [0, -1])
    def test_asking_for_nothing_moves_nothing(self, reader: type[RecordReader], max_records: int) -> None:
        opened = reader("t", 0, marker(0, 1, commit=True) + batch(1, 1), 0)
        assert opened.read(max_records) == []
        assert opened.read_columns(max_records, ColumnBuilder()) == 0
        assert (opened.next_offset, opened.exhausted) == (0, False)

    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
    def test_records_before_the_requested_offset_are_dropped(self, reader: type[RecordReader], codec: int) -> None:
        opened = reader("t", 0, batch(0, 10, codec=codec), 7)
        assert offsets(opened) == [7, 8, 9]

    def test_a_batch_below_the_position_is_passed_unseen(self, reader: type[RecordReader]) -> None:
        old = corrupted(batch(0, 5, codec=GZIP))
        assert offsets(reader("t", 0, old + batch(5, 1), 5)) == [5]

    def test_batches_that_come_twice_are_delivered_once(self, reader: type[RecordReader]) -> None:
        data = batch(0, 3) + batch(0, 3) + batch(1, 3) + batch(0, 1) + batch(4, 1)
        outcome = read_all(reader, data)
        assert [record.offset for record in outcome.records] == [0, 1, 2, 3, 4]

    def test_the_position_moves_past_gaps_and_empty_batches(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 2, last=4) + batch(6, 0, last=9, epoch=3), 0)
        assert offsets(opened, 2) == [0, 1]
        assert (opened.next_offset, opened.exhausted, opened.leader_epoch) == (10, True, 3)

    def test_a_gap_at_the_end_is_passed_with_the_last_record(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 2, last=4) + batch(5, 1), 0)
        offsets(opened, 1)
        assert opened.next_offset == 1
        offsets(opened, 1)
        assert opened.next_offset == 5

    def test_records_that_compaction_removed_leave_the_offset_after_them(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 3, last=9), 6)
        assert offsets(opened) == []
        assert (opened.next_offset, opened.exhausted) == (10, True)

    def test_only_a_cut_off_batch_leaves_the_position(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(5, 3)[:-1], 5)
        assert offsets(opened) == []
        assert (opened.next_offset, opened.exhausted, opened.leader_epoch) == (5, True, None)

    def test_empty_data_has_nothing(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, b"", 5)
        assert offsets(opened) == []
        assert (opened.next_offset, opened.exhausted) == (5, True)

    def test_many_batches_of_one_record_fill_one_read(self, reader: type[RecordReader]) -> None:
        data = b"".join(batch(offset, 1) for offset in range(100))
        opened = reader("t", 0, data, 0)
        assert offsets(opened, 30) == list(range(30))
        assert opened.next_offset == 30

    def test_the_epoch_is_unknown_after_old_formats(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 1, epoch=2) + MessageSpec(offset=1).encode(), 0)
        offsets(opened)
        assert opened.leader_epoch is None


@both_readers
class TestErrors:
    def test_earlier_batches_come_first_and_the_error_stays(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 4, batch(0, 3) + corrupted(batch(3, 3)) + batch(6, 1), 0)
        assert offsets(opened) == [0, 1, 2]
        for _ in range(3):
            with pytest.raises(CorruptRecordException) as caught:
                opened.read(10)
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 4, 3)
            assert (opened.next_offset, opened.exhausted) == (3, False)

    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
    def test_records_before_a_flawed_record_come_once(self, reader: type[RecordReader], codec: int) -> None:
        records = tuple(RecordSpec(delta=delta) for delta in (0, 1, 2, 2))
        opened = reader("t", 0, BatchSpec(records=records, codec=codec, last_offset_delta=9).encode(), 0)
        assert offsets(opened, 2) == [0, 1]
        assert offsets(opened, 2) == [2]
        for _ in range(2):
            with pytest.raises(CorruptRecordException) as caught:
                opened.read(2)
            assert caught.value.offset == opened.next_offset == 3

    def test_columns_meet_the_same_error_after_the_same_rows(self, reader: type[RecordReader]) -> None:
        records = tuple(RecordSpec(delta=delta) for delta in (0, 1, 1))
        opened = reader("t", 0, BatchSpec(records=records, last_offset_delta=9).encode(), 0)
        builder = ColumnBuilder()
        assert opened.read_columns(10, builder) == 2
        with pytest.raises(CorruptRecordException) as caught:
            opened.read_columns(10, builder)
        assert caught.value.offset == 2
        columns = builder.finish()
        assert columns.rows == 2
        assert columns.runs == (("t", 0, 2),)

    def test_an_unknown_codec_keeps_the_position(self, reader: type[RecordReader]) -> None:
        bad = BatchSpec(records=(RecordSpec(),), base_offset=3, attributes=5).encode()
        opened = reader("t", 0, batch(0, 3) + bad, 0)
        assert offsets(opened) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(UnsupportedCodecError, match=r"t-0 at offset 3: .* codec 5; expected"):
                opened.read(10)
        assert opened.next_offset == 3


class Limit(int):
    """A limit that raises when it is asked for the n-th time: the decoders ask once for each batch."""

    left = 0

    def __floordiv__(self, other: int) -> int:
        type(self).left -= 1
        if type(self).left == 0:
            raise KeyboardInterrupt
        return int(self) // other


class Hasty(ColumnBuilder):
    """A builder in which the n-th record of an old format is interrupted, before it is appended or in the middle."""

    left = 0

    def append(self, row: Row, at: At | None = None) -> None:
        self.left -= 1
        if self.left == 0:
            self.rows += 1
            if self.offsets is not None:
                self.offsets += bytes(8)
            if self.values is not None:
                self.values.bitmap.append(1)
            raise KeyboardInterrupt
        super().append(row, at)


@both_readers
class TestInterruptions:
    """Whatever leaves a read by an exception has handed nothing over, and nothing is skipped."""

    DATA: ClassVar[bytes] = (
        batch(0, 3, producer=1) + marker(3, 1, commit=False) + batch(4, 3) + marker(7, 1, commit=True) + batch(8, 3)
    )

    def opened(self, reader: type[RecordReader]) -> RecordReader:
        return reader(
            "t", 0, self.DATA, 0, read_committed=True, aborted=[(1, 0)], check_crcs=False, max_decompressed_bytes=Limit(2**24)
        )

    @pytest.mark.parametrize("when", [1, 2, 3])
    def test_an_interrupted_read_is_begun_again_where_it_began(self, reader: type[RecordReader], when: int) -> None:
        opened = self.opened(reader)
        Limit.left = when
        interrupted = False
        seen: list[int] = []
        while not opened.exhausted:
            before = opened.next_offset, opened.leader_epoch
            try:
                seen += offsets(opened, 5)
            except KeyboardInterrupt:
                interrupted = True
                assert (opened.next_offset, opened.leader_epoch, opened.exhausted) == (*before, False)
        assert interrupted
        assert seen == [4, 5, 6, 8, 9, 10]

    @pytest.mark.parametrize("when", [1, 2, 3])
    def test_interrupted_columns_have_no_row_more_than_before(self, reader: type[RecordReader], when: int) -> None:
        opened, builder = self.opened(reader), ColumnBuilder()
        Limit.left = when
        while not opened.exhausted:
            rows = builder.rows
            try:
                opened.read_columns(5, builder)
            except KeyboardInterrupt:
                assert builder.rows == rows
        assert Limit.left <= 0
        columns = builder.finish()
        assert columns.offsets == bytearray(struct.pack("=6q", 4, 5, 6, 8, 9, 10))
        assert columns.runs == (("t", 0, 6),)

    @pytest.mark.parametrize("when", [1, 2, 3, 4])
    def test_a_row_that_was_appended_in_part_is_taken_back(self, reader: type[RecordReader], when: int) -> None:
        data = wrap(tuple(MessageSpec(offset=i, value=None if i == 1 else b"v") for i in range(3)), GZIP).encode()
        opened = reader("t", 0, data + MessageSpec(offset=3, value=b"v").encode(), 0)
        builder = Hasty({"offset", "value"})
        builder.left = when
        with pytest.raises(KeyboardInterrupt):
            opened.read_columns(10, builder)
        assert (builder.rows, opened.next_offset) == (0, 0)
        assert opened.read_columns(10, builder) == 4
        columns = builder.finish()
        assert columns.offsets == bytearray(struct.pack("=4q", 0, 1, 2, 3))
        assert columns.values is not None
        assert (columns.values.length, columns.values.nulls, columns.values.data) == (4, 1, bytearray(b"vvv"))

    def test_no_allocation_that_fails_loses_a_record(self, reader: type[RecordReader]) -> None:
        limits = pytest.importorskip("_testcapi", reason="this Python was built without its own test helpers")
        if reader is PurePythonReader and sys.version_info[:2] in ((3, 12), (3, 13)):
            # A method with a function in it is enough, called anew after the failure: no code of this package is needed.
            pytest.skip("CPython 3.12 and 3.13 crash by themselves after an allocation that failed while they ran Python code")
        headers = ((b"h", b"w"),)
        data = b"".join(
            BatchSpec(
                base_offset=4 * n,
                records=tuple(RecordSpec(delta=i, key=b"key", value=b"v" * 600, headers=headers) for i in range(4)),
            ).encode()
            for n in range(3)
        )
        for nth in range(1, 120):
            opened = reader("t", 0, data, 0)
            seen: list[int] = []
            got: list[ConsumerRecord[bytes | None, bytes | None]] = []
            limits.set_nomemory(nth, nth + 1)
            try:
                got = opened.read(9)
            except MemoryError:
                got = []
            finally:
                limits.remove_mem_hooks()
            seen += [record.offset for record in got]
            assert opened.next_offset == len(seen)
            assert seen + offsets(opened, 100) == list(range(12))


@both_readers
@pytest.mark.parametrize("columns", [False, True])
def test_an_error_holds_no_frame_of_the_decoder(reader: type[RecordReader], columns: bool) -> None:
    """Whoever keeps it keeps one frame of the reader, which the caller can drop, and not the data by way of a cause."""
    broken = encode_compressed(BatchSpec(records=(RecordSpec(),), codec=GZIP), b"not gzip")
    opened = reader("t", 0, broken, 0)
    with pytest.raises(CorruptRecordException) as caught:
        opened.read_columns(1, ColumnBuilder()) if columns else opened.read(1)
    chain = [caught.value.__cause__, caught.value.__context__]
    assert chain[0] is not None
    assert all(error is None or error.__traceback__ is None for error in chain)


@both_readers
class TestTransactions:
    """Producers 1 and 2. Data batches are named by their offsets."""

    def read(
        self, reader: type[RecordReader], data: bytes, *aborted: tuple[int, int], start: int = 0, size: int = 1000
    ) -> list[int]:
        outcome = read_all(reader, data, start, max_records=size, read_committed=True, aborted=aborted)
        assert outcome.error is None
        return [record.offset for record in outcome.records]

    @pytest.mark.parametrize("size", [1, 2, 1000])
    def test_aborted_records_are_dropped_and_committed_ones_kept(self, reader: type[RecordReader], size: int) -> None:
        data = (
            batch(0, 2, producer=1)
            + batch(2, 2, producer=2)
            + marker(4, 1, commit=False)
            + batch(5, 2, producer=1)
            + marker(7, 2, commit=True)
            + marker(8, 1, commit=True)
            + batch(9, 1)
        )
        assert self.read(reader, data, (1, 0), size=size) == [2, 3, 5, 6, 9]

    def test_read_uncommitted_returns_everything_but_markers(self, reader: type[RecordReader]) -> None:
        data = batch(0, 2, producer=1) + marker(2, 1, commit=False) + batch(3, 1)
        assert [record.offset for record in read_all(reader, data, aborted=[(1, 0)]).records] == [0, 1, 3]

    def test_the_position_passes_aborted_batches_and_markers(self, reader: type[RecordReader]) -> None:
        data = batch(0, 2, producer=1) + marker(2, 1, commit=False, leader_epoch=6)
        opened = reader("t", 0, data, 0, read_committed=True, aborted=[(1, 0)])
        assert opened.read(10) == []
        assert (opened.next_offset, opened.exhausted, opened.leader_epoch) == (3, True, 6)

    def test_a_marker_without_records_is_passed(self, reader: type[RecordReader]) -> None:
        assert self.read(reader, marker(0, 1, commit=False) + batch(1, 1), (1, 0)) == [1]

    def test_markers_after_the_last_record_are_passed_at_once(self, reader: type[RecordReader]) -> None:
        opened = reader("t", 0, batch(0, 1, producer=1) + marker(1, 1, commit=True), 0)
        assert offsets(opened, 1) == [0]
        assert (opened.next_offset, opened.exhausted) == (2, True)

    def test_several_transactions_of_one_producer_in_any_order(self, reader: type[RecordReader]) -> None:
        data = (
            batch(0, 1, producer=1)
            + marker(1, 1, commit=False)
            + batch(2, 1, producer=1)
            + marker(3, 1, commit=True)
            + batch(4, 1, producer=1)
            + marker(5, 1, commit=False)
            + marker(6, 1, commit=False)
            + batch(7, 1, producer=1)
        )
        assert self.read(reader, data, (1, 4), (1, 0)) == [2, 7]

    def test_records_without_a_transaction_are_kept_even_from_that_producer(self, reader: type[RecordReader]) -> None:
        idempotent = BatchSpec(records=(RecordSpec(),), base_offset=0, producer_id=1).encode()
        assert self.read(reader, idempotent, (1, 0)) == [0]

    def test_a_marker_that_was_skipped_still_ends_its_transaction(self, reader: type[RecordReader]) -> None:
        data = batch(0, 2, producer=1) + corrupted(marker(2, 1, commit=False)) + batch(3, 1, producer=1)
        assert self.read(reader, data, (1, 0), start=3) == [3]

    def test_other_control_batches_are_passed(self, reader: type[RecordReader]) -> None:
        leader_change = BatchSpec(records=(RecordSpec(key=struct.pack(">hh", 0, 2)),), base_offset=0, attributes=CONTROL).encode()
        no_records = BatchSpec(base_offset=1, attributes=CONTROL | TRANSACTIONAL, producer_id=1).encode()
        assert self.read(reader, leader_change + no_records + batch(2, 1), (1, 0)) == [2]

    @pytest.mark.parametrize("key", [None, b"\0\0\0"], ids=["null", "short"])
    def test_a_marker_without_a_type_is_corrupt(self, reader: type[RecordReader], key: bytes | None) -> None:
        bad = BatchSpec(records=(RecordSpec(key=key),), attributes=CONTROL | TRANSACTIONAL, producer_id=1).encode()
        outcome = read_all(reader, bad, read_committed=True, aborted=[(1, 0)])
        assert outcome.error is not None
        assert "a control batch has no record whose key holds a version and a type" in outcome.error[1]

    def test_a_marker_with_bytes_behind_its_record_is_corrupt(self, reader: type[RecordReader]) -> None:
        key = struct.pack(">hh", 0, 0)
        spec = BatchSpec(records=(RecordSpec(key=key),), attributes=CONTROL | TRANSACTIONAL, producer_id=1)
        bad = encode_batch(spec, encode_record(spec.records[0]) + b"more")
        outcome = read_all(reader, bad, read_committed=True, aborted=[(1, 0)])
        assert outcome.error is not None
        assert "bytes are left over" in outcome.error[1]

    def test_a_marker_with_a_wrong_crc_is_corrupt(self, reader: type[RecordReader]) -> None:
        outcome = read_all(reader, batch(0, 1) + corrupted(marker(1, 1, commit=True)))
        assert outcome.error is not None
        assert outcome.next_offset == 1


@both_readers
class TestColumns:
    def test_columns_hold_what_records_hold(self, reader: type[RecordReader]) -> None:
        data = batch(0, 300, codec=GZIP) + MessageSpec(offset=300, key=b"k").encode() + batch(301, 9)
        records = reader("t", 1, data, 0).read(1000)
        builder = ColumnBuilder()
        opened = reader("t", 1, data, 0)
        while not opened.exhausted:
            assert opened.read_columns(77, builder) <= 77
        columns = builder.finish()
        assert columns.rows == len(records) == 310
        assert columns.runs == (("t", 1, 310),)
        assert columns.offsets is not None
        assert columns.timestamps is not None
        assert columns.values is not None
        assert struct.unpack("=310q", columns.offsets) == tuple(record.offset for record in records)
        assert struct.unpack("=310q", columns.timestamps) == tuple(record.timestamp for record in records)
        assert bytes(columns.values.data) == b"".join(record.value or b"" for record in records)

    def test_several_readers_fill_one_builder(self, reader: type[RecordReader]) -> None:
        builder = ColumnBuilder({"topic", "partition", "offset"})
        for topic, partition in [("a", 0), ("a", 1), ("b", 0)]:
            assert reader(topic, partition, batch(0, 2), 0).read_columns(10, builder) == 2
        assert builder.finish().runs == (("a", 0, 2), ("a", 1, 2), ("b", 0, 2))

    @pytest.mark.parametrize("form", ["batch", "messages"])
    def test_a_full_builder_takes_fewer_rows_and_the_next_goes_on(self, reader: type[RecordReader], form: str) -> None:
        messages = b"".join(MessageSpec(offset=i, value=b"%d" % i).encode() for i in range(10))
        opened = reader("t", 0, batch(0, 10) if form == "batch" else messages, 0)
        first = ColumnBuilder(max_column_bytes=4)
        assert opened.read_columns(10, first) == 4
        assert opened.read_columns(10, first) == 0
        assert (opened.next_offset, opened.exhausted) == (4, False)
        assert offsets(opened) == [4, 5, 6, 7, 8, 9]

    @pytest.mark.parametrize("form", ["batch", "messages"])
    def test_a_row_larger_than_a_builder_may_become_is_its_first(self, reader: type[RecordReader], form: str) -> None:
        values = (b"1", b"12345678", None, b"", b"1", b"87654321", b"1")
        records = tuple(RecordSpec(delta=i, value=value) for i, value in enumerate(values))
        messages = b"".join(MessageSpec(offset=i, value=value).encode() for i, value in enumerate(values))
        opened = reader("t", 0, BatchSpec(records=records).encode() if form == "batch" else messages, 0)
        found = []
        while not opened.exhausted:
            builder = ColumnBuilder(max_column_bytes=4)
            found.append(opened.read_columns(10, builder))
        assert found == [1, 3, 1, 1, 1], "what adds no byte stands behind a row that is too large"

    def test_headers_larger_than_a_builder_may_become_are_its_first(self, reader: type[RecordReader]) -> None:
        headers = [((b"h", b"1"),), ((b"name", b""), (b"nam", b"")), (), ((b"h", b"12345678"),), ((b"h", None),)]
        records = tuple(RecordSpec(delta=i, value=None, headers=each) for i, each in enumerate(headers))
        opened = reader("t", 0, BatchSpec(records=records).encode(), 0)
        found = []
        while not opened.exhausted:
            found.append(opened.read_columns(10, ColumnBuilder(max_column_bytes=4)))
        assert found == [1, 2, 2]


@both_readers
def test_records_can_be_pickled(reader: type[RecordReader]) -> None:
    records = reader("t", 0, batch(0, 3), 0).read(3)
    assert pickle.loads(pickle.dumps(records)) == records  # noqa: S301 - our own bytes
