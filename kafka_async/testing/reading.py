"""What is in a log: its batches as records, for tests that look at what a program has written.

Must not use the consumer's decoder: see ``batches.py``.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ..model import ConsumerRecord, TopicPartition
from .batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Header, RecordSpec, read_header, read_records

WrittenRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
_LENGTH_AT, _BEFORE_LENGTH = 8, 12


def batches_in(data: bytes) -> Iterator[bytes]:
    """Yield the whole batches of a Fetch response; the last one may be cut short."""
    place = 0
    while place + _BEFORE_LENGTH <= len(data):
        (size,) = struct.unpack_from(">i", data, place + _LENGTH_AT)
        end = place + _BEFORE_LENGTH + size
        if end > len(data):
            return
        yield data[place:end]
        place = end


def records_in(
    tp: TopicPartition, batches: Iterable[bytes], first: int, aborted: Iterable[tuple[int, int]]
) -> Iterator[WrittenRecord]:
    """Yield the records of batches from the offset ``first`` on, without markers.

    ``aborted``: producer ids and first offsets of transactions whose records are left out (KIP-98).
    """
    waiting, ended = sorted(aborted, key=lambda each: each[1]), set[int]()
    for batch in batches:
        header = read_header(batch)
        while waiting and waiting[0][1] <= header.base_offset:
            ended.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            ended.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in ended):
            yield from (_record(tp, header, each) for each in read_records(batch) if header.base_offset + each.delta >= first)


def _record(tp: TopicPartition, header: Header, record: RecordSpec) -> WrittenRecord:
    stamped = bool(header.attributes & LOG_APPEND_TIME)
    return ConsumerRecord(
        topic=tp.topic,
        partition=tp.partition,
        offset=header.base_offset + record.delta,
        timestamp=header.max_timestamp if stamped else header.base_timestamp + record.timestamp_delta,
        timestamp_type=int(stamped),
        key=record.key,
        value=record.value,
        headers=tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers),
        checksum=None,
        serialized_key_size=-1 if record.key is None else len(record.key),
        serialized_value_size=-1 if record.value is None else len(record.value),
        leader_epoch=header.leader_epoch,
    )
