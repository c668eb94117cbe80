"""What is in record data: every case on both decoders, and both against each other.

Positions, transactions and errors as a caller sees them are in ``test_reader.py``.
"""

import struct
from collections.abc import Callable

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import KafkaError
from kafka_async.records import ColumnBuilder, RecordReader, Span
from kafka_async.records.header import HEADER_COST, Flaw
from tests.effort import examples
from tests.strategies import (
    APPEND_TIME,
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    BatchSpec,
    MessageSpec,
    RecordSpec,
    encode_batch,
    encode_compressed,
    encode_record,
    framed,
    logs,
    marker,
    message_sets,
    mutated,
    sized,
    varint,
    wrap,
)

from .golden import JAVA, JAVA_MARKERS
from .implementations import (
    MEASURES,
    CompiledReader,
    PurePythonReader,
    Record,
    both_measures,
    both_readers,
    needs_compiled,
    read_all,
)

Measure = Callable[[bytes, int], Span]
MANY = tuple(
    RecordSpec(
        delta=i, timestamp_delta=i, key=b"k" if i % 3 else None, value=b"v" * i, headers=((b"h", b"1"), (b"g", None))[: i % 3]
    )
    for i in range(9)
)
LONG = tuple(
    RecordSpec(
        delta=i,
        key=None if i == 4 else b"key %d " % i * (i % 4),
        value=None if i == 7 else b"value"[: i % 5] * i,
        headers=((b"h", b"1"), (b"g", None))[: i % 3],
    )
    for i in range(12)
)
TWO = (RecordSpec(delta=0, value=b"a"), RecordSpec(delta=1, value=b"b"))


def expected(batch: BatchSpec) -> list[Record]:
    """The records of a batch, from its specification."""
    append = bool(batch.attributes & APPEND_TIME)
    assert batch.max_timestamp is not None
    return [
        Record(
            topic="topic",
            partition=3,
            offset=batch.base_offset + record.delta,
            timestamp=batch.max_timestamp if append else batch.base_timestamp + record.timestamp_delta,
            timestamp_type=int(append),
            key=record.key,
            value=record.value,
            headers=tuple((key.decode("utf-8", "surrogateescape"), value) for key, value in record.headers),
            checksum=None,
            serialized_key_size=-1 if record.key is None else len(record.key),
            serialized_value_size=-1 if record.value is None else len(record.value),
            leader_epoch=batch.leader_epoch if batch.leader_epoch >= 0 else None,
        )
        for record in batch.records
    ]


@both_readers
class TestRecords:
    @pytest.mark.slow
    @given(log=logs(), chunk=st.integers(1, 40))
    @examples(1)
    def test_what_was_written_is_read(self, reader: type[RecordReader], log: tuple[BatchSpec, ...], chunk: int) -> None:
        outcome = read_all(reader, b"".join(batch.encode() for batch in log), max_records=chunk)
        assert outcome.error is None
        assert list(outcome.records) == [record for batch in log for record in expected(batch)]
        assert all(type(record) is Record or isinstance(record, tuple) for record in outcome.records)
        assert outcome.next_offset == log[-1].last_offset + 1

    @pytest.mark.slow
    @given(data=st.data(), magic=st.integers(0, 1), chunk=st.integers(1, 5))
    @examples(1)
    def test_messages_of_formats_0_and_1_are_read(
        self, reader: type[RecordReader], data: st.DataObject, magic: int, chunk: int
    ) -> None:
        messages = data.draw(message_sets(magic))
        outcome = read_all(reader, b"".join(message.encode() for message in messages), max_records=chunk)
        flat = [inner for message in messages for inner in (message.inner or (message,))]
        assert outcome.error is None
        assert [(r.key, r.value) for r in outcome.records] == [(m.key, m.value) for m in flat]
        assert outcome.next_offset == messages[-1].offset + 1
        assert all(r.leader_epoch is None and r.checksum is not None and r.headers == () for r in outcome.records)

    def test_formats_may_follow_one_another(self, reader: type[RecordReader]) -> None:
        data = (
            MessageSpec(magic=0, offset=0).encode()
            + wrap(tuple(MessageSpec(offset=i) for i in (1, 2)), GZIP).encode()
            + BatchSpec(base_offset=3, records=TWO, leader_epoch=4).encode()
        )
        outcome = read_all(reader, data, max_records=2)
        assert [record.offset for record in outcome.records] == [0, 1, 2, 3, 4]
        assert outcome.leader_epoch == 4

    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
    def test_every_codec_is_read(self, reader: type[RecordReader], codec: int) -> None:
        records = tuple(RecordSpec(delta=i, value=b"%d" % i * 50) for i in range(2000))
        outcome = read_all(reader, BatchSpec(records=records, codec=codec).encode(), max_records=300)
        assert [record.value for record in outcome.records] == [record.value for record in records]

    def test_header_keys_that_are_not_utf_8_are_escaped(self, reader: type[RecordReader]) -> None:
        headers = ((b"\xff\xfe", b"1"), ("käy".encode(), None))
        (record,) = read_all(reader, BatchSpec(records=(RecordSpec(headers=headers),)).encode()).records
        assert record.headers == (("\udcff\udcfe", b"1"), ("käy", None))

    def test_a_batch_may_be_any_buffer(self, reader: type[RecordReader]) -> None:
        batch = BatchSpec(records=TWO, codec=GZIP).encode() + MessageSpec(offset=2).encode()
        view = memoryview(bytearray(b"..." + batch))[3:]
        assert read_all(reader, view).records == read_all(reader, batch).records  # type: ignore[arg-type]  # more than is promised

    def test_integers_longer_than_needed_are_read(self, reader: type[RecordReader]) -> None:
        padded = b"\x80\x80\x00"  # 0 in three bytes
        fields = b"\0" + padded + padded + sized(b"k") + sized(b"v") + padded
        (record,) = read_all(reader, encode_batch(BatchSpec(count=1), framed(fields))).records
        assert (record.key, record.value, record.headers) == (b"k", b"v", ())

    def test_extreme_timestamps_are_exact(self, reader: type[RecordReader]) -> None:
        records = (RecordSpec(delta=0, timestamp_delta=-(2**63)), RecordSpec(delta=1, timestamp_delta=2**62))
        outcome = read_all(reader, BatchSpec(records=records, base_timestamp=0, max_timestamp=0).encode())
        assert [record.timestamp for record in outcome.records] == [-(2**63), 2**62]

    def test_records_are_values(self, reader: type[RecordReader]) -> None:
        first = read_all(reader, BatchSpec(records=TWO).encode()).records
        second = read_all(reader, BatchSpec(records=TWO).encode()).records
        assert first == second
        assert hash(first[0]) == hash(second[0])
        assert first[0]._replace(key=b"other").value == b"a"
        assert isinstance(first[0], Record.__origin__)  # type: ignore[attr-defined]  # of the generic alias


_BROKEN = "format 0, lz4"


@both_readers
class TestJava:
    """An independent oracle: what Java wrote."""

    def test_the_broken_lz4_headers_of_format_0_are_corrupt(self, reader: type[RecordReader]) -> None:
        """Producers before 0.10 wrote them, and nobody after (KAFKA-3160)."""
        outcome = read_all(reader, JAVA[_BROKEN], 50)
        assert (outcome.records, outcome.next_offset) == ((), 50)
        assert outcome.error is not None
        assert "lz4 data of the batch is broken" in outcome.error[1]

    @pytest.mark.parametrize("name", [name for name in JAVA if name != _BROKEN])
    def test_batches_of_the_java_client_are_read(self, reader: type[RecordReader], name: str) -> None:
        outcome = read_all(reader, JAVA[name], 50)
        old, new = name.startswith("format 0"), name.startswith("format 2")
        assert outcome.error is None
        assert outcome.next_offset == 54
        assert [record.offset for record in outcome.records] == [50, 51, 52, 53]
        assert [record.timestamp for record in outcome.records] == [-1 if old else 1_700_000_000_000 + 10 * i for i in range(4)]
        assert [record.key for record in outcome.records] == [None, b"key1", b"key2", None]
        assert [record.value for record in outcome.records] == [b"value-%d-" % i + b"x" * 20 for i in range(4)]
        headers = [((f"h{i}", b"hv%d" % i), ("n", None)) for i in range(4)]
        assert [record.headers for record in outcome.records] == (headers if new else [()] * 4)

    @pytest.mark.parametrize(("name", "kept"), [("commit", []), ("abort", [71])])
    def test_markers_of_the_java_client_are_understood(self, reader: type[RecordReader], name: str, kept: list[int]) -> None:
        after = BatchSpec(records=(RecordSpec(),), base_offset=71, attributes=TRANSACTIONAL, producer_id=99).encode()
        outcome = read_all(reader, JAVA_MARKERS[name] + after, 70, read_committed=True, aborted=[(99, 60)])
        assert [record.offset for record in outcome.records] == kept
        assert outcome.next_offset == 72


def structure(fields: bytes, batch: BatchSpec | None = None) -> bytes:
    """A batch of one good record and one with these ``fields``, CRC right."""
    batch = batch or BatchSpec(count=2, last_offset_delta=1)
    return encode_batch(batch, encode_record(RecordSpec(value=b"good")) + fields)


SECOND = b"\0" + varint(0) + varint(1)
REST = sized(b"k") + sized(b"v") + varint(0)
GOOD = encode_record(RecordSpec(delta=1))
OVERLONG = b"\xff\xff\xff\xff\xff\x01"

FLAWED_RECORDS = {
    "record length negative": (Flaw.RECORD_LENGTH, structure(varint(-1) + SECOND + REST)),
    "record length past the end": (Flaw.RECORD_LENGTH, structure(varint(100) + SECOND + REST)),
    "record length huge": (Flaw.RECORD_LENGTH, structure(varint(2**31 - 1) + SECOND + REST)),
    "record longer than its fields": (Flaw.RECORD_LENGTH, structure(framed(SECOND + REST + b"\0"))),
    "record length cut off": (Flaw.RECORD_CUT, structure(b"\x80" * 3)),
    "record length overlong": (Flaw.VARINT, structure(OVERLONG + bytes(9))),
    "timestamp overlong": (Flaw.VARINT, structure(framed(b"\0" + b"\xff" * 10 + b"\x01" + varint(1) + REST))),
    "timestamp delta too large": (
        Flaw.TIMESTAMP,
        structure(
            framed(b"\0" + varint(2**62) + varint(1) + REST), BatchSpec(count=2, last_offset_delta=1, base_timestamp=2**63 - 9)
        ),
    ),
    "timestamp delta too small": (
        Flaw.TIMESTAMP,
        structure(framed(b"\0" + varint(-9) + varint(1) + REST), BatchSpec(count=2, last_offset_delta=1, base_timestamp=-(2**63))),
    ),
    "offset delta negative": (Flaw.OFFSET_DELTA, structure(framed(b"\0" + varint(0) + varint(-1) + REST))),
    "offset delta repeated": (Flaw.OFFSET_DELTA, structure(framed(b"\0" + varint(0) + varint(0) + REST))),
    "offset delta above the last": (Flaw.OFFSET_DELTA, structure(framed(b"\0" + varint(0) + varint(2) + REST))),
    "offset delta overlong": (Flaw.VARINT, structure(framed(b"\0" + varint(0) + OVERLONG + REST))),
    "key size below -1": (Flaw.SIZE, structure(framed(SECOND + varint(-2) + sized(b"v") + varint(0)))),
    "key size past the end": (Flaw.RECORD_CUT, structure(framed(SECOND + varint(105) + sized(b"v") + varint(0)) + bytes(200))),
    "value size below -1": (Flaw.SIZE, structure(framed(SECOND + sized(b"k") + varint(-5) + varint(0)))),
    "value size past the end": (Flaw.RECORD_CUT, structure(framed(SECOND + sized(b"k") + varint(105) + varint(0)) + bytes(200))),
    "value size huge": (Flaw.RECORD_CUT, structure(framed(SECOND + sized(b"k") + varint(2**31 - 1) + varint(0)))),
    "header count negative": (Flaw.HEADER_COUNT, structure(framed(SECOND + sized(b"k") + sized(b"v") + varint(-1)))),
    "header count huge": (Flaw.HEADER_COUNT, structure(framed(SECOND + sized(b"k") + sized(b"v") + varint(2**31 - 1)))),
    "header count too high": (
        Flaw.RECORD_CUT,
        structure(framed(SECOND + sized(b"k") + sized(b"v") + varint(2) + sized(b"key") + b"\1")),
    ),
    "header count too low": (Flaw.RECORD_LENGTH, structure(framed(SECOND + sized(b"k") + sized(b"v") + varint(0) + sized(b"h")))),
    "header key null": (Flaw.HEADER_KEY, structure(framed(SECOND + sized(b"k") + sized(b"v") + varint(1) + varint(-1) + b"\0"))),
    "header value below -1": (Flaw.SIZE, structure(framed(SECOND + sized(b"k") + sized(b"v") + varint(1) + b"\0" + varint(-2)))),
    "record empty": (Flaw.RECORD_CUT, structure(framed(b"") + bytes(9))),
    "records fewer than counted": (Flaw.RECORD_CUT, structure(GOOD, BatchSpec(count=3, last_offset_delta=2))),
}

FLAWED_BATCHES = {
    "crc": (Flaw.CRC, BatchSpec(records=TWO).encode()[:-1] + b"?"),
    "record count negative": (Flaw.COUNT_HIGH, BatchSpec(records=TWO, count=-1).encode()),
    "record count above the offsets": (Flaw.COUNT_HIGH, BatchSpec(records=TWO, count=3).encode()),
    "record count huge": (Flaw.COUNT_HIGH, BatchSpec(records=TWO, count=2**31 - 1, last_offset_delta=2**31 - 1).encode()),
    "last offset delta negative": (Flaw.OFFSETS, BatchSpec(records=TWO, last_offset_delta=-1).encode()),
    "base offset negative": (Flaw.OFFSETS, BatchSpec(records=TWO, base_offset=-1).encode()),
    "last offset too large": (Flaw.OFFSETS, BatchSpec(base_offset=2**63 - 1).encode()),
    "zeros": (Flaw.LENGTH, bytes(100)),
    "length negative": (Flaw.LENGTH, struct.pack(">qi", 0, -1) + bytes(100)),
    "length too small": (Flaw.LENGTH, struct.pack(">qiib", 0, 48, 0, 2) + bytes(100)),
    "length too small for format 1": (Flaw.LENGTH, struct.pack(">qiIb", 0, 21, 0, 1) + bytes(100)),
    "magic": (Flaw.MAGIC, (lambda b: b[:16] + b"\3" + b[17:])(BatchSpec(records=TWO).encode())),
    "magic negative": (Flaw.MAGIC, (lambda b: b[:16] + b"\xff" + b[17:])(BatchSpec(records=TWO).encode())),
    "legacy offset negative": (Flaw.OFFSETS, MessageSpec(offset=-1).encode()),
    "legacy offset too large": (Flaw.OFFSETS, MessageSpec(offset=2**63 - 1).encode()),
    "legacy crc": (Flaw.CRC, MessageSpec().encode()[:-1] + b"?"),
}


@both_readers
class TestBadInput:
    @pytest.mark.parametrize(("flaw", "batch"), FLAWED_RECORDS.values(), ids=FLAWED_RECORDS.keys())
    def test_records_before_a_flawed_one_are_read_and_then_it_is_named(
        self, reader: type[RecordReader], flaw: Flaw, batch: bytes
    ) -> None:
        outcome = read_all(reader, batch)
        assert [record.value for record in outcome.records] == [b"good", b"value"][: len(outcome.records)]
        assert outcome.error == (
            "CorruptRecordException",
            f"[Error 2] CorruptRecordException: {self.where(outcome.next_offset)}: {flaw}",
        )
        assert outcome.next_offset == len(outcome.records) >= 1

    @pytest.mark.parametrize(("flaw", "batch"), FLAWED_BATCHES.values(), ids=FLAWED_BATCHES.keys())
    def test_a_flawed_batch_is_named(self, reader: type[RecordReader], flaw: Flaw, batch: bytes) -> None:
        outcome = read_all(reader, batch)
        assert outcome.error == ("CorruptRecordException", f"[Error 2] CorruptRecordException: {self.where(0)}: {flaw}")
        assert outcome.records == ()
        assert outcome.next_offset == 0

    @staticmethod
    def where(offset: int) -> str:
        return f"topic-3 at offset {offset}"

    def test_bytes_after_the_last_record_withhold_it(self, reader: type[RecordReader]) -> None:
        outcome = read_all(reader, structure(GOOD + b"\0"))
        assert [record.value for record in outcome.records] == [b"good"]
        assert outcome.error is not None
        assert outcome.error[1].endswith(Flaw.COUNT_LOW)

    def test_an_unknown_codec_is_named(self, reader: type[RecordReader]) -> None:
        outcome = read_all(reader, encode_compressed(BatchSpec(records=TWO, attributes=6), b"".join(map(encode_record, TWO))))
        assert outcome.error is not None
        assert outcome.error[0] == "UnsupportedCodecError"
        assert outcome.error[1].startswith("topic-3 at offset 0: the batch is compressed with codec 6; expected 0 (none)")

    @pytest.mark.parametrize("codec", [1, 2, 3, 4])
    def test_a_bomb_is_refused_by_the_bound(self, reader: type[RecordReader], codec: int) -> None:
        bomb = encode_batch(BatchSpec(records=TWO, codec=codec), bytes(1_000_001))
        outcome = read_all(reader, bomb, max_decompressed_bytes=1_000_000)
        assert outcome.error is not None
        assert "max_decompressed_bytes=1000000" in outcome.error[1]

    @pytest.mark.parametrize("codec", [0, GZIP])
    def test_headers_count_for_more_than_their_bytes(self, reader: type[RecordReader], codec: int) -> None:
        """Four kilobytes became two million headers, which are 140 MB of objects."""
        limit = 10 * HEADER_COST
        records = tuple(RecordSpec(delta=i, value=b"v", headers=((b"", b""),) * 5) for i in range(3))
        assert (
            len(read_all(reader, BatchSpec(records=records[:2], codec=codec).encode(), max_decompressed_bytes=limit).records) == 2
        )
        for chunk in (1, 2, 10):
            data = BatchSpec(records=records, codec=codec).encode()
            outcome = read_all(reader, data, max_records=chunk, max_decompressed_bytes=limit)
            assert len(outcome.records) == 2
            assert outcome.error is not None
            assert outcome.error[1].endswith(f"the batch has more than 10 headers, the most for max_decompressed_bytes={limit}")

    def test_headers_of_a_row_that_waits_for_the_next_column_are_counted_once(self, reader: type[RecordReader]) -> None:
        records = tuple(RecordSpec(delta=i, value=b"v" * 10, headers=((b"h", b""),) * 5) for i in range(4))
        opened = reader("t", 0, BatchSpec(records=records).encode(), 0, max_decompressed_bytes=20 * HEADER_COST)
        rows = []
        while not opened.exhausted:
            builder = ColumnBuilder(max_column_bytes=15)
            rows.append(opened.read_columns(10, builder))
        assert rows == [1, 1, 1, 1]

    def test_each_batch_has_room_for_headers_of_its_own(self, reader: type[RecordReader]) -> None:
        batches = [BatchSpec(base_offset=i, records=(RecordSpec(delta=0, headers=((b"h", b""),) * 8),)).encode() for i in range(4)]
        assert len(read_all(reader, b"".join(batches), max_decompressed_bytes=10 * HEADER_COST).records) == 4

    def test_a_wrong_crc_may_be_ignored(self, reader: type[RecordReader]) -> None:
        outcome = read_all(
            reader, BatchSpec(records=TWO).encode()[:17] + bytes(4) + BatchSpec(records=TWO).encode()[21:], check_crcs=False
        )
        assert len(outcome.records) == 2

    @pytest.mark.parametrize("size", [1, 8, 11, 12, 16, 17, 60, 61, 76])
    def test_a_batch_that_is_cut_off_is_not_looked_at(self, reader: type[RecordReader], size: int) -> None:
        first = BatchSpec(records=TWO).encode()
        second = BatchSpec(base_offset=2, records=TWO).encode()
        assert len(second) > size
        outcome = read_all(reader, first + second[:size])
        assert outcome.error is None
        assert (len(outcome.records), outcome.next_offset) == (2, 2)


def outcome_of(reader: type[RecordReader], data: bytes, chunk: int) -> object:
    aborted = [(7, 0), (8, 3)]
    return read_all(
        reader, data, 1, max_records=chunk, check_crcs=False, read_committed=True, aborted=aborted, max_decompressed_bytes=2**18
    )


def columns_of(reader: type[RecordReader], data: bytes, chunk: int, limit: int = 2**31 - 1, *, view: bool = False) -> list[object]:
    """What both must agree on when the same data is read as columns, a builder for every chunk."""
    opened = reader("topic", 3, data, 1, check_crcs=False, max_decompressed_bytes=2**18)
    seen: list[object] = []
    while not opened.exhausted:
        builder = ColumnBuilder(max_column_bytes=limit, view=view)
        try:
            rows = opened.read_columns(chunk, builder)
        except KafkaError as error:
            seen.append((type(error), str(error)))
            break
        columns = builder.finish()
        assert rows == columns.rows <= chunk
        seen.append((columns, opened.next_offset, opened.leader_epoch))
        if not rows:
            break
    return seen


def corpus() -> list[bytes]:
    """Data of responses, to be mutated: every format and codec, transactions, markers, gaps and headers."""
    records = (
        RecordSpec(delta=0, key=b"k", value=b"first", headers=((b"h", b"1"), (b"\xff", None))),
        RecordSpec(delta=2, key=None, value=b"x" * 70, timestamp_delta=300),
        RecordSpec(delta=3, key=b"kk", value=None, timestamp_delta=-5),
    )
    batch = BatchSpec(records=records, last_offset_delta=4, leader_epoch=1)
    following = evolve(batch, base_offset=5, leader_epoch=2, attributes=APPEND_TIME, max_timestamp=9)
    transaction = evolve(batch, attributes=TRANSACTIONAL, producer_id=7)
    end = marker(5, 7, commit=False) + evolve(transaction, base_offset=6).encode() + marker(11, 7, commit=True)
    made = [evolve(batch, codec=codec).encode() + following.encode() for codec in CODECS.values()]
    made += [transaction.encode() + end, evolve(batch, records=()).encode() + following.encode(), marker(0, 8, commit=False)]
    for magic in (0, 1):
        messages = tuple(MessageSpec(magic=magic, offset=i, key=b"k" * i) for i in (1, 2, 4))
        plain = b"".join(message.encode() for message in messages)
        made += [plain + following.encode(), *(wrap(messages, codec).encode() + plain for codec in (GZIP, SNAPPY, LZ4))]
    return made


CORPUS = corpus()
MUTATED = st.sampled_from(CORPUS).flatmap(mutated)


@needs_compiled
class TestTwins:
    """The two decoders agree on results, positions and errors, down to the text."""

    @pytest.mark.slow
    @given(data=MUTATED, chunk=st.integers(1, 9))
    @examples(4)
    def test_both_readers_agree_on_mutated_data(self, data: bytes, chunk: int) -> None:
        assert outcome_of(CompiledReader, data, chunk) == outcome_of(PurePythonReader, data, chunk)

    @pytest.mark.slow
    @given(records=mutated(b"".join(map(encode_record, MANY))), chunk=st.integers(1, 9), codec=st.sampled_from((0, 0, GZIP)))
    @examples(4)
    def test_on_mutated_records_in_a_good_batch(self, records: bytes, chunk: int, codec: int) -> None:
        encoded = encode_batch(BatchSpec(records=MANY, codec=codec), records)
        assert outcome_of(CompiledReader, encoded, chunk) == outcome_of(PurePythonReader, encoded, chunk)
        assert columns_of(CompiledReader, encoded, chunk) == columns_of(PurePythonReader, encoded, chunk)

    @pytest.mark.slow
    @given(
        records=mutated(b"".join(map(encode_record, LONG))),
        chunk=st.integers(1, 9),
        codec=st.sampled_from((0, 0, GZIP)),
        limit=st.sampled_from((2**31 - 1, 200, 30)),
    )
    @examples(4)
    def test_on_views_of_mutated_records(self, records: bytes, chunk: int, codec: int, limit: int) -> None:
        encoded = encode_batch(BatchSpec(records=LONG, codec=codec), records)
        views = columns_of(CompiledReader, encoded, chunk, limit, view=True)
        assert views == columns_of(PurePythonReader, encoded, chunk, limit, view=True)

    @pytest.mark.slow
    @given(data=st.sampled_from(CORPUS), chunk=st.integers(1, 9), limit=st.sampled_from((2**31 - 1, 150, 5)))
    @examples(2)
    def test_both_readers_agree_on_views(self, data: bytes, chunk: int, limit: int) -> None:
        views = columns_of(CompiledReader, data, chunk, limit, view=True)
        assert views == columns_of(PurePythonReader, data, chunk, limit, view=True)

    @pytest.mark.slow
    @given(data=st.sampled_from(CORPUS), chunk=st.integers(1, 9), limit=st.sampled_from((2**31 - 1, 150, 5)))
    @examples(2)
    def test_both_readers_agree_on_columns(self, data: bytes, chunk: int, limit: int) -> None:
        assert columns_of(CompiledReader, data, chunk, limit) == columns_of(PurePythonReader, data, chunk, limit)

    @pytest.mark.slow
    @given(data=MUTATED, offset=st.integers(0, 20))
    @examples(3)
    def test_on_what_the_headers_say(self, data: bytes, offset: int) -> None:
        assert len({measure(data, offset) for measure in MEASURES}) == 1

    @pytest.mark.slow
    @given(data=st.binary(max_size=300))
    @examples(3)
    def test_both_readers_agree_on_noise(self, data: bytes) -> None:
        assert outcome_of(CompiledReader, data, 5) == outcome_of(PurePythonReader, data, 5)


@both_measures
class TestMeasure:
    def test_complete_batches_are_counted(self, measure: Measure) -> None:
        first, second = (
            BatchSpec(records=TWO, leader_epoch=1).encode(),
            BatchSpec(base_offset=2, records=TWO, leader_epoch=2).encode(),
        )
        span = measure(first + second, 0)
        assert span == Span(next_offset=4, leader_epoch=2, size=len(first + second), corrupt=False)

    def test_a_cut_off_batch_does_not_count(self, measure: Measure) -> None:
        first, second = BatchSpec(records=TWO, leader_epoch=1).encode(), BatchSpec(base_offset=2, records=TWO).encode()
        span = measure(first + second[:-1], 0)
        assert (span.next_offset, span.leader_epoch, span.size) == (2, 1, len(first))

    def test_nothing_complete_leaves_the_position(self, measure: Measure) -> None:
        batch = BatchSpec(base_offset=2, records=TWO).encode()
        assert measure(batch[:-1], 2) == Span(next_offset=2, leader_epoch=None, size=0, corrupt=False)

    def test_old_batches_do_not_move_the_position(self, measure: Measure) -> None:
        span = measure(BatchSpec(records=TWO, leader_epoch=5).encode(), 50)
        assert (span.next_offset, span.leader_epoch) == (50, None)

    def test_a_header_that_nobody_can_have_written_ends_the_walk(self, measure: Measure) -> None:
        good = BatchSpec(records=TWO).encode()
        assert measure(good + bytes(100), 0) == Span(next_offset=2, leader_epoch=0, size=len(good), corrupt=True)
        assert measure(bytes(100), 0) == Span(next_offset=0, leader_epoch=None, size=0, corrupt=True)

    def test_crc_and_contents_are_not_looked_at(self, measure: Measure) -> None:
        junk = encode_compressed(BatchSpec(records=TWO, codec=GZIP), b"junk")
        assert measure(junk[:17] + bytes(4) + junk[21:], 0).next_offset == 2

    def test_legacy_messages_are_measured(self, measure: Measure) -> None:
        data = MessageSpec(magic=0, offset=4).encode() + wrap((MessageSpec(offset=5), MessageSpec(offset=6)), GZIP).encode()
        span = measure(data, 4)
        assert (span.next_offset, span.leader_epoch, span.size) == (7, None, len(data))
