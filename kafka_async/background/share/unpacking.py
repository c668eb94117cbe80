"""From the bytes of a ShareFetch answer to the records that are locked for us (KIP-932).

The broker sends whole record batches; ``AcquiredRecords`` says which of their offsets are ours. An acquired offset without a record
(compaction, a control record) would stay locked without need, so it is found here, before the application reads. An offset past the
end of the bytes is not a gap: its record may have been cut off.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from ...errors import CorruptRecordException, KafkaError, UnsupportedCodecError
from ...model import ConsumerRecord, TopicPartition
from ...records import RecordReader
from ...records.header import read_header
from ...values import define, field
from ...wire.messages import AcquiredRecords

Record = ConsumerRecord[bytes | None, bytes | None]

_offset: Final = attrgetter("offset")
_ALL: Final = 2**31 - 1
_LAST: Final = 2**63 - 2


@define(eq=False)
class Unpacked:
    """What was acquired of one partition."""

    records: list[Record] = field(factory=list)
    """In offset order."""
    counts: list[int] = field(factory=list)
    """How often each record has been delivered, this time included."""
    gaps: list[int] = field(factory=list)
    """Acquired offsets without a record."""
    missing: list[int] = field(factory=list)
    """Acquired offsets past the end of the bytes."""
    bad: list[tuple[int, int]] = field(factory=list)
    """Acquired offsets in batches that cannot be read, with their delivery counts."""
    error: KafkaError | None = None
    """Why the first of these cannot be read."""
    batch: int = 0
    """Offsets in the first batch, whoever has them; 0: not known."""


def unpack(
    partition: TopicPartition, data: bytes, acquired: Sequence[AcquiredRecords], *, check_crcs: bool, max_decompressed_bytes: int
) -> Unpacked:
    """Return the acquired records in ``data``. ``acquired``: ranges in ascending order that do not overlap."""
    found = Unpacked()
    if not acquired:
        return found
    spoilt: list[tuple[int, int]] = []
    every: list[Record] = []
    end = acquired[0].first_offset
    reader = RecordReader(
        partition.topic, partition.partition, data, end, check_crcs=check_crcs, max_decompressed_bytes=max_decompressed_bytes
    )
    last = acquired[-1].last_offset
    try:
        first = read_header(data, 0)
        found.batch = first.last_offset - first.base_offset + 1 if first is not None else 0
        while not reader.exhausted and reader.next_offset <= last:  # what comes after it in the last batch belongs to others
            every += reader.read(last - reader.next_offset + 1)
        end = reader.next_offset
    except (CorruptRecordException, UnsupportedCodecError) as error:
        # The rest is read batch by batch: what can be read of it is handed out.
        found.error = error
        spoilt, end = _read_around(partition, data, reader.next_offset, every, check_crcs, max_decompressed_bytes)
    _divide(found, every, acquired, spoilt, end)
    return found


def _read_around(
    partition: TopicPartition, data: bytes, start: int, records: list[Record], check_crcs: bool, limit: int
) -> tuple[list[tuple[int, int]], int]:
    """Read the batches from offset ``start`` on one by one into ``records``.

    Return the ranges of offsets that cannot be read, and the offset after everything that is complete in the data.
    """
    spoilt: list[tuple[int, int]] = []
    place = 0
    while True:
        try:
            header = read_header(data, place)
        except (CorruptRecordException, UnsupportedCodecError):
            return [*spoilt, (start, _LAST)], _LAST  # where the next batch begins is unknown
        if header is None:
            return spoilt, start
        if header.last_offset >= start:
            reader = RecordReader(
                partition.topic,
                partition.partition,
                data[place : header.end],
                start,
                check_crcs=check_crcs,
                max_decompressed_bytes=limit,
            )
            before = len(records)
            try:
                while not reader.exhausted:
                    records += reader.read(_ALL)
            except (CorruptRecordException, UnsupportedCodecError):
                del records[before:]
                spoilt.append((start, header.last_offset))
            start = header.last_offset + 1
        place = header.end


def _divide(
    found: Unpacked, records: Sequence[Record], acquired: Sequence[AcquiredRecords], spoilt: list[tuple[int, int]], end: int
) -> None:
    """Keep the records that are ours, and say what becomes of the other acquired offsets."""
    place = 0
    for batch in acquired:
        first, last, count = batch.first_offset, batch.last_offset, batch.delivery_count
        place = bisect_left(records, first, place, key=_offset)
        after = bisect_right(records, last, place, key=_offset)
        ours = records[place:after]
        place = after
        found.records += ours
        found.counts += [count] * len(ours)
        if len(ours) == last - first + 1:
            continue
        expected = first
        for record in ours:
            if record.offset > expected:
                _without_record(found, expected, record.offset - 1, count, spoilt, end)
            expected = record.offset + 1
        if expected <= last:
            _without_record(found, expected, last, count, spoilt, end)


def _without_record(found: Unpacked, first: int, last: int, count: int, spoilt: list[tuple[int, int]], end: int) -> None:
    for offset in range(first, last + 1):
        if any(low <= offset <= high for low, high in spoilt):
            found.bad.append((offset, count))
        else:
            (found.gaps if offset < end else found.missing).append(offset)
