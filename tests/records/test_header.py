"""The layouts, apart from what both decoders' ``measure`` shows (``test_decode.py``)."""

import pytest

from kafka_async.errors import CorruptRecordException
from kafka_async.records.header import Flaw, check_count, read_header
from tests.strategies import APPEND_TIME, ZSTD, BatchSpec, MessageSpec, RecordSpec


def test_every_field_of_a_batch_header_is_read() -> None:
    batch = BatchSpec(
        records=(RecordSpec(delta=0), RecordSpec(delta=4, timestamp_delta=7)),
        base_offset=100,
        last_offset_delta=5,
        leader_epoch=9,
        codec=ZSTD,
        attributes=APPEND_TIME,
        base_timestamp=1000,
        producer_id=77,
    ).encode()
    header = read_header(b"before" + batch + b"after", 6)
    assert header is not None
    assert (header.start, header.end, header.magic) == (6, 6 + len(batch), 2)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (100, 105, 9)
    assert header.attributes == APPEND_TIME | ZSTD
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1007)
    assert (header.producer_id, header.record_count) == (77, 2)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_legacy_message_counts_as_a_batch_of_one_offset(magic: int) -> None:
    message = MessageSpec(magic=magic, offset=8).encode()
    header = read_header(message, 0)
    assert header is not None
    assert (header.base_offset, header.last_offset, header.magic, header.leader_epoch) == (8, 8, magic, -1)


@pytest.mark.parametrize("size", [0, 11, 12, 16, 17, 60, 61])
def test_a_batch_that_is_cut_off_has_no_header_yet(size: int) -> None:
    assert read_header(BatchSpec(records=(RecordSpec(),)).encode()[:size], 0) is None


@pytest.mark.parametrize(("count", "size"), [(-1, 100), (3, 100), (2, 13)])
def test_a_count_that_offsets_or_bytes_cannot_hold_is_corrupt(count: int, size: int) -> None:
    header = read_header(BatchSpec(count=count, last_offset_delta=1).encode(), 0)
    assert header is not None
    with pytest.raises(CorruptRecordException, match=Flaw.COUNT_HIGH):
        check_count(header, size)
