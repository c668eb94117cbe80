"""One partition's log: batches as bytes, epochs, transactions.

Batches are built with ``batches.py``, which is written from the format and not from the decoder.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from attrs import define, evolve, field, frozen

from ..batches import (
    CONTROL,
    NONE,
    TRANSACTIONAL,
    BatchSpec,
    Header,
    RecordSpec,
    marker,
    placed,
    read_header,
    read_records,
    stamped,
)
from .waking import TIMESTAMP


@frozen(kw_only=True)
class StoredBatch:
    """A batch as it is in the log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes
    timestamps: tuple[tuple[int, int], ...] = ()
    """``(timestamp, offset)`` of its records."""


@define(eq=False, repr=False)
class PartitionLog:
    """Batches with rising offsets."""

    start: int = 0
    end: int = 0
    batches: list[StoredBatch] = field(factory=list)
    aborted: list[tuple[int, int, int]] = field(factory=list)
    """``(producer id, first offset, offset of the marker)``."""
    open_transactions: dict[int, int] = field(factory=dict)
    """Producer id -> first offset."""
    latest: int = -1000
    """The latest timestamp of all records that ever were in it."""
    held_back: int | None = None
    """The high watermark if it is not the end of the log."""

    @property
    def high_watermark(self) -> int:
        return self.end if self.held_back is None else min(self.held_back, self.end)

    def next_timestamp(self, now: int) -> int:
        """Return the timestamp of the next record if none is given: a second after the latest, or ``now`` if that is later."""
        return max(now, self.latest + 1000)

    @property
    def last_stable_offset(self) -> int:
        return min([self.high_watermark, *self.open_transactions.values()]) if self.open_transactions else self.high_watermark

    # --- writing ---------------------------------------------------------------------------------------------------------------

    def append(
        self,
        values: Iterable[bytes | None],
        *,
        epoch: int = 0,
        now: int = TIMESTAMP,
        codec: int = NONE,
        producer_id: int = -1,
        keys: Iterable[bytes | None] | None = None,
        headers: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> int:
        """Append one batch and return its base offset. With a producer id it belongs to that producer's transaction."""
        values = list(values)
        known_keys = [None] * len(values) if keys is None else list(keys)
        records = tuple(
            RecordSpec(delta=i, timestamp_delta=i * 1000, key=known_keys[i], value=value, headers=headers)
            for i, value in enumerate(values)
        )
        spec = BatchSpec(
            records=records,
            base_offset=self.end,
            leader_epoch=epoch,
            codec=codec,
            base_timestamp=self.next_timestamp(now),
            producer_id=producer_id,
            attributes=TRANSACTIONAL if producer_id >= 0 else 0,
        )
        if producer_id >= 0:
            self.open_transactions.setdefault(producer_id, self.end)
        return self.append_batch(spec)

    def append_batch(self, spec: BatchSpec) -> int:
        """Append a batch that the test has made, at its own base offset. Return that offset."""
        timestamps = tuple((spec.base_timestamp + r.timestamp_delta, spec.base_offset + r.delta) for r in spec.records)
        return self.append_bytes(spec.encode(), spec.base_offset, spec.last_offset, spec.leader_epoch, timestamps)

    def append_bytes(
        self, data: bytes, base_offset: int, last_offset: int, epoch: int = 0, timestamps: tuple[tuple[int, int], ...] = ()
    ) -> int:
        """Append bytes that need not be a batch at all."""
        self.batches.append(
            StoredBatch(base_offset=base_offset, last_offset=last_offset, leader_epoch=epoch, data=data, timestamps=timestamps)
        )
        self.end = last_offset + 1
        self.latest = max([self.latest, *(stamp for stamp, _ in timestamps)])
        return base_offset

    def append_produced(
        self, batch: bytes, header: Header, epoch: int, *, transactional: bool, records: tuple[RecordSpec, ...], stamp: int | None
    ) -> int:
        """Append a batch that a producer sent; return its base offset. ``stamp``: a timestamp of the broker for all its records."""
        base = self.end
        if transactional:
            self.open_transactions.setdefault(header.producer_id, base)
        stamps = tuple((header.base_timestamp + r.timestamp_delta if stamp is None else stamp, base + r.delta) for r in records)
        kept = batch if stamp is None else stamped(batch, stamp)
        return self.append_bytes(placed(kept, base, epoch), base, base + header.last_offset_delta, epoch, stamps)

    def compact(self) -> None:
        """Keep only the last record of each key, and drop records without a value, like a cleaner that has caught up.

        It goes as far as the last stable offset, and drops the records of aborted transactions.
        """
        stable = self.last_stable_offset
        latest = {record.key: offset for offset, record in self._keyed(stable)}
        kept = []
        for batch in self.batches:
            header = read_header(batch.data)
            if header.attributes & CONTROL or batch.base_offset >= stable:
                kept.append(batch)
                continue
            records = tuple(
                r for r in read_records(batch.data) if latest.get(r.key) == batch.base_offset + r.delta and r.value is not None
            )
            if not records and batch is not self.batches[-1]:
                continue
            spec = BatchSpec(
                records=records,
                base_offset=batch.base_offset,
                last_offset_delta=batch.last_offset - batch.base_offset,
                leader_epoch=batch.leader_epoch,
                attributes=header.attributes & ~7,
                codec=header.attributes & 7,
                base_timestamp=header.base_timestamp,
                max_timestamp=header.max_timestamp,
                producer_id=header.producer_id,
            )
            kept.append(
                evolve(batch, data=spec.encode(), timestamps=tuple(t for t in batch.timestamps if _holds(records, t, batch)))
            )
        self.batches = kept

    def _keyed(self, end: int) -> Iterator[tuple[int, RecordSpec]]:
        for batch in self.between(0, end):
            if not read_header(batch.data).attributes & CONTROL and not self.is_aborted(batch):
                yield from ((batch.base_offset + r.delta, r) for r in read_records(batch.data) if r.key is not None)

    def retain(self, since: int) -> None:
        """Delete the batches at the start whose records are all older than a timestamp (ms), like retention by time."""
        while self.batches and read_header(self.batches[0].data).max_timestamp < since:
            self.start = self.batches.pop(0).last_offset + 1

    def shrink(self, size: int) -> None:
        """Delete batches at the start as long as ``size`` bytes are left, like retention by size."""
        left = sum(len(batch.data) for batch in self.batches)
        while self.batches and left - len(self.batches[0].data) >= size:
            batch = self.batches.pop(0)
            left -= len(batch.data)
            self.start = batch.last_offset + 1

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0, now: int = TIMESTAMP) -> None:
        """Write the marker that ends the producer's transaction, which may have written nothing here."""
        first, offset = self.open_transactions.pop(producer_id, None), self.end
        if first is not None and not commit:
            self.aborted.append((producer_id, first, offset))
        data = marker(offset, producer_id, commit=commit, leader_epoch=epoch, timestamp=now)
        self.append_bytes(data, offset, offset, epoch, ((now, offset),))

    def corrupt(self, offset: int) -> bytes:
        """Flip a bit in the last value of the batch that holds ``offset``; return the bytes as they were, for ``mend``."""
        index = self._index(offset)
        whole = self.batches[index].data
        self.batches[index] = evolve(self.batches[index], data=whole[:-2] + bytes([whole[-2] ^ 1, whole[-1]]))
        return whole

    def mend(self, offset: int, data: bytes) -> None:
        """Put the right bytes back."""
        index = self._index(offset)
        self.batches[index] = evolve(self.batches[index], data=data)

    def truncate(self, offset: int) -> None:
        """Cut off everything from ``offset`` on, like a follower that becomes leader without it."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.end = self.batches[-1].last_offset + 1 if self.batches else min(offset, self.end)
        self.aborted = [entry for entry in self.aborted if entry[2] < self.end]
        self.open_transactions = self._unfinished()

    def _unfinished(self) -> dict[int, int]:
        """Return the open transactions as the batches have it: one whose marker was cut off is open again."""
        found: dict[int, int] = {}
        for batch in self.batches:
            header = read_header(batch.data)
            if header.attributes & CONTROL:
                found.pop(header.producer_id, None)
            elif header.attributes & TRANSACTIONAL:
                found.setdefault(header.producer_id, batch.base_offset)
        return found

    def delete_before(self, offset: int) -> None:
        """Move the log start."""
        self.start = offset
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]

    # --- reading ---------------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, committed: bool, whole: bool) -> bytes:
        """Return batches from the one that holds ``offset`` on; with ``whole`` the first comes even if it is too large."""
        limit = self.last_stable_offset if committed else self.high_watermark
        if offset >= limit:
            return b""
        found: list[bytes] = []
        size = 0
        for batch in self.between(offset, limit):
            if size + len(batch.data) > max_bytes and (found or not whole):
                break
            found.append(batch.data)
            size += len(batch.data)
        return b"".join(found)

    def between(self, offset: int, limit: int) -> Iterator[StoredBatch]:
        """Yield the batches from the one that holds ``offset``, or the next, to the last that begins before ``limit``."""
        # Searched for and not walked to: consumers that follow a long log ask for its end thousands of times.
        for index in range(bisect_left(self.batches, offset, key=_last_offset), len(self.batches)):
            batch = self.batches[index]
            if batch.base_offset >= limit:
                return
            yield batch

    def read_all(self, *, committed: bool) -> list[StoredBatch]:
        """Return all batches that a reader may see."""
        limit = self.last_stable_offset if committed else self.high_watermark
        return [batch for batch in self.batches if batch.base_offset < limit]

    def aborted_from(self, offset: int) -> tuple[tuple[int, int], ...]:
        """Return producer id and first offset of the aborted transactions that reach past ``offset``."""
        return tuple((producer, first) for producer, first, last in self.aborted if last >= offset)

    def is_aborted(self, batch: StoredBatch) -> bool:
        """Return whether a batch holds records of an aborted transaction."""
        header = read_header(batch.data)
        return bool(header.attributes & TRANSACTIONAL) and any(
            producer == header.producer_id and first <= batch.base_offset < last for producer, first, last in self.aborted
        )

    def find_time(self, timestamp: int) -> tuple[int, int, int] | None:
        """Return timestamp, offset and epoch of the first record with that timestamp or a later one."""
        for batch in self.batches:
            for stamp, offset in batch.timestamps:
                if stamp >= timestamp and offset >= self.start:
                    return stamp, offset, batch.leader_epoch
        return None

    def find_latest(self) -> tuple[int, int, int] | None:
        """Return timestamp, offset and epoch of the first record with the latest timestamp."""
        found = [
            (stamp, offset, batch.leader_epoch)
            for batch in self.batches
            for stamp, offset in batch.timestamps
            if offset >= self.start
        ]
        return max(found, key=lambda each: each[0], default=None)

    def epoch_end(self, epoch: int, current_epoch: int) -> tuple[int, int]:
        """Return the highest epoch that is not above ``epoch`` and the offset after its last record; -1 and -1 for none."""
        if epoch == current_epoch:
            return epoch, self.end
        known = [batch.leader_epoch for batch in self.batches if batch.leader_epoch <= epoch]
        if not known or epoch > current_epoch:
            return -1, -1
        best = max(known)
        return best, next((batch.base_offset for batch in self.batches if batch.leader_epoch > best), self.end)

    def _index(self, offset: int) -> int:
        return next(i for i, batch in enumerate(self.batches) if batch.base_offset <= offset <= batch.last_offset)


def _last_offset(batch: StoredBatch) -> int:
    return batch.last_offset


def _holds(records: tuple[RecordSpec, ...], stamp: tuple[int, int], batch: StoredBatch) -> bool:
    return any(batch.base_offset + record.delta == stamp[1] for record in records)
