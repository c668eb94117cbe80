"""Which of the fetched bytes are ours, and what becomes of acquired offsets without a record."""

from kafka_async.background.share.unpacking import Unpacked, unpack
from kafka_async.errors import CorruptRecordException
from kafka_async.model import TopicPartition
from kafka_async.testing.batches import CONTROL, BatchSpec, RecordSpec
from kafka_async.wire.messages import AcquiredRecords

TP = TopicPartition("t", 0)


def batch(start: int, *deltas: int, last: int | None = None, attributes: int = 0) -> bytes:
    records = tuple(RecordSpec(delta=delta, value=b"%d" % (start + delta)) for delta in deltas)
    return BatchSpec(records=records, base_offset=start, last_offset_delta=last, attributes=attributes).encode()


def unpacked(data: bytes, *acquired: tuple[int, int, int]) -> Unpacked:
    ranges = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in acquired]
    return unpack(TP, data, ranges, check_crcs=True, max_decompressed_bytes=1 << 20)


def offsets(found: Unpacked) -> list[int]:
    return [record.offset for record in found.records]


def test_only_acquired_offsets_are_handed_out_each_with_its_delivery_count() -> None:
    found = unpacked(batch(0, *range(10)), (2, 3, 1), (6, 6, 4))
    assert offsets(found) == [2, 3, 6]
    assert found.counts == [1, 1, 4]
    assert (found.gaps, found.missing, found.bad, found.error) == ([], [], [], None)


def test_records_that_were_not_acquired_are_left_out() -> None:
    assert offsets(unpacked(batch(0, 0, 1))) == []


def test_offsets_that_compaction_removed_are_gaps() -> None:
    found = unpacked(batch(10, 0, 2, 5, last=7), (10, 17, 1))
    assert offsets(found) == [10, 12, 15]
    assert found.gaps == [11, 13, 14, 16, 17]


def test_control_records_are_gaps() -> None:
    marker = BatchSpec(
        records=(RecordSpec(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0"),), base_offset=2, attributes=CONTROL, producer_id=7
    ).encode()
    found = unpacked(batch(0, 0, 1) + marker, (0, 2, 1))
    assert offsets(found) == [0, 1]
    assert found.gaps == [2]


def test_offsets_past_the_end_of_the_bytes_are_no_gaps() -> None:
    found = unpacked(batch(0, 0, 1) + batch(2, 0, 1)[:-3], (0, 3, 1))
    assert offsets(found) == [0, 1]
    assert (found.gaps, found.missing) == ([], [2, 3])


def test_a_corrupt_batch_spoils_its_own_offsets_only() -> None:
    broken = bytearray(batch(2, 0, 1))
    broken[-1] ^= 1
    found = unpacked(batch(0, 0, 1) + bytes(broken) + batch(4, 0, 1), (0, 2, 1), (3, 5, 2))
    assert offsets(found) == [0, 1, 4, 5]
    assert found.counts == [1, 1, 2, 2]
    assert found.bad == [(2, 1), (3, 2)]
    assert (found.gaps, found.missing) == ([], [])
    assert isinstance(found.error, CorruptRecordException)


def test_past_bytes_that_are_no_batch_nothing_can_be_known() -> None:
    found = unpacked(batch(0, 0) + b"\xff" * 80, (0, 4, 1))
    assert offsets(found) == [0]
    assert found.bad == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert isinstance(found.error, CorruptRecordException)
