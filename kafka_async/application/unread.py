"""What was fetched and not handed out yet, and where the application stands in each partition.

Decides: which records a read returns next, and in which order partitions get their turn. Owns: the unread parcels, the pauses and
the position of every assigned partition (the next offset to hand out). Synchronous on purpose: taking records is one step that no
cancellation can split (promise 2). Must never decode more than was asked for, and never hand out a record of a partition that is
paused, was sought elsewhere or is no longer assigned.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from attrs import define, field, frozen

from ..background.fetch_buffer import FetchBuffer, FetchedData, PartitionFailed, Repositioned
from ..config import ConsumerConfig
from ..errors import CorruptRecordException, KafkaError, UnsupportedCodecError
from ..model import ConsumerRecord, IsolationLevel, OffsetAndMetadata, TopicPartition
from ..records import ColumnBuilder, RecordReader

Record = ConsumerRecord[Any, Any]


@frozen
class Hold:
    """How a partition stood when records were taken from it."""

    stamp: int
    position: int | None
    """Behind the records."""


def _without_a_batch(partition: TopicPartition, offset: int) -> CorruptRecordException:
    text = f"{partition.topic}-{partition.partition} at offset {offset}: no complete batch in the data reaches the offset"
    return CorruptRecordException(text, topic=partition.topic, partition=partition.partition, offset=offset)


@define(eq=False)
class PartitionUnread:
    """One assigned partition on the application's side."""

    partition: TopicPartition
    stamp: int
    position: int | None = None
    """Next offset to hand out; ``None`` until the background found one."""
    leader_epoch: int | None = None
    paused: bool = False
    revoked: bool = False
    """Being taken away: nothing of it is returned any more."""
    unsubscribed: bool = False
    """Its topic is not subscribed any more, though the rebalance that takes it away is still to come: nothing of it is returned."""
    records: deque[Record] = field(factory=deque)
    """Decoded and given back: records that a cancelled or failed read did not deliver. They come first."""
    behind: int | None = None
    """Position behind the last of ``records``."""
    reader: RecordReader | None = None
    data: FetchedData | None = None
    """What ``reader`` reads; its bytes are released when the reader is done."""
    parcels: deque[FetchedData | Repositioned | PartitionFailed] = field(factory=deque)
    behind_refusal: int | None = None
    """Position behind the record that ``refusal`` is about."""
    refusal: KafkaError | None = None
    """About the record before ``records``: raised, once, before anything else is read."""
    failure: KafkaError | None = None
    """About what comes behind ``records``: raised by the next read of the partition.

    With ``halted`` it is raised again by reads that ask for nothing else.
    """
    halted: bool = False
    reported: bool = False
    """The failure that halted the partition was raised."""
    corrupt_at: int | None = None
    """Offset at which data was found corrupt and fetched again."""
    until: int | None = None
    """End of the range that is read (``ranges.py``): nothing from there on is handed out as columns."""
    consumed_records: int = 0

    @property
    def leaving(self) -> bool:
        return self.revoked or self.unsubscribed


@define(eq=False)
class Unread:
    """All assigned partitions on the application's side."""

    config: ConsumerConfig
    buffer: FetchBuffer = field(repr=False)
    refetch: Callable[[PartitionUnread], None] = field(repr=False)
    """Has the background fetch the partition again from ``position`` under the entry's new stamp."""
    halt: Callable[[PartitionUnread], None] = field(repr=False)
    """Has the background stop fetching the partition."""
    park: Callable[[Collection[TopicPartition], bool], None] = field(repr=False)
    """Has the background leave partitions alone (or not any more) that gave their room in the buffer to others."""
    partitions: dict[TopicPartition, PartitionUnread] = field(factory=dict)
    before: dict[TopicPartition, OffsetAndMetadata] = field(factory=dict)
    """Positions before the last read call, of the partitions that it handed records out of."""
    consumed_records: int = 0
    """Records handed out, those of partitions that have left included."""
    _ready: dict[TopicPartition, None] = field(factory=dict, init=False)
    """Partitions with something to read, in the order of their turns."""
    _failing: set[TopicPartition] = field(factory=set, init=False)
    """Partitions with a refusal or a failure."""
    _parked: set[TopicPartition] = field(factory=set, init=False)
    _stamp: int = field(default=0, init=False)

    # --- assignment and positions ----------------------------------------------------------------------------------------------

    def next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def assign(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Make ``partitions`` the assignment; those that stay keep position, pause and unread data. Return all stamps.

        A partition of which a range was read does not stay: it comes anew.
        """
        for partition, entry in tuple(self.partitions.items()):
            if partition not in partitions or entry.until is not None:
                self._drop(self.partitions.pop(partition))
                self._ready.pop(partition, None)
        for partition in partitions:
            if partition not in self.partitions:
                self.partitions[partition] = PartitionUnread(partition, self.next_stamp())
        return {partition: entry.stamp for partition, entry in self.partitions.items()}

    def follow(self, wanted: Callable[[str], bool]) -> None:
        """Return nothing of topics that are not ``wanted``. Their partitions stay until a rebalance takes them."""
        for partition, entry in self.partitions.items():
            entry.unsubscribed = not wanted(partition.topic)

    def move(self, entry: PartitionUnread, position: int | None, leader_epoch: int | None = None) -> None:
        """Put the position elsewhere: unread data is dropped, and whatever is on its way for the old one will be."""
        self._drop(entry)
        entry.stamp = self.next_stamp()
        entry.position = position
        entry.leader_epoch = leader_epoch
        entry.refusal = None
        entry.failure = None
        entry.halted = False
        entry.reported = False
        self._failing.discard(entry.partition)
        entry.corrupt_at = None
        self._ready.pop(entry.partition, None)

    def _drop(self, entry: PartitionUnread) -> None:
        entry.records.clear()
        entry.behind = None
        entry.reader = None
        if entry.data is not None:
            self.buffer.release(entry.data)
            entry.data = None
        for parcel in entry.parcels:
            if isinstance(parcel, FetchedData):
                self.buffer.release(parcel)
        entry.parcels.clear()

    def drop_others(self, keep: Collection[TopicPartition]) -> None:
        """Give the room in the buffer back that partitions outside ``keep``, or paused ones, hold.

        For a read that asks for certain partitions while the unread data of others fills the buffer: it would wait for ever. They
        are fetched again when a read asks for them.
        """
        for entry in self.partitions.values():
            held = entry.data is not None or any(isinstance(parcel, FetchedData) for parcel in entry.parcels)
            if not held or (entry.partition in keep and not entry.paused):
                continue
            position = self.locate(entry)
            if position is not None and entry.failure is None:
                corrupt_at, refusal = entry.corrupt_at, entry.refusal
                self.move(entry, position if refusal is None else entry.behind_refusal, entry.leader_epoch)
                entry.corrupt_at = corrupt_at
                self.refetch(entry)
                if refusal is not None:
                    self.refuse(entry.partition, position, refusal)
                if not entry.paused:
                    self._parked.add(entry.partition)
        if self._parked:
            self.park(self._parked, True)

    def unpark(self, only: Collection[TopicPartition]) -> None:
        """Have parked partitions fetched again that the next read asks for."""
        back = {partition for partition in self._parked if not only or partition in only}
        if back:
            self._parked -= back
            self.park(
                {partition for partition in back if partition in self.partitions and not self.partitions[partition].paused}, False
            )

    @property
    def troubled(self) -> bool:
        """A failure waits to be raised, or a partition to be fetched again."""
        return bool(self._failing or self._parked)

    @property
    def starved(self) -> bool:
        """The background waits for room in the buffer, and there is none."""
        useful = min(self.config.max_partition_fetch_bytes, max(self.buffer.limit // 4, 1))
        return self.buffer.hungry and self.buffer.room() < useful

    # --- receiving -------------------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Sort what the background put into the buffer to its partitions."""
        while (parcel := self.buffer.take()) is not None:
            entry = self.partitions.get(parcel.partition)
            if entry is not None and entry.stamp == parcel.stamp:
                entry.parcels.append(parcel)
                self._ready.setdefault(parcel.partition)
            elif isinstance(parcel, FetchedData):
                self.buffer.release(parcel)

    def locate(self, entry: PartitionUnread) -> int | None:
        """Return the position; where none was handed out from yet, that of the first thing in the buffer."""
        self.receive()
        if entry.position is None and entry.parcels:
            match entry.parcels[0]:
                case FetchedData() as data:
                    entry.position = data.fetch_offset
                case Repositioned() as moved:
                    entry.position, entry.leader_epoch = moved.offset, moved.leader_epoch
                case PartitionFailed():
                    self._open(entry)
        return entry.position

    def _open(self, entry: PartitionUnread) -> RecordReader | None:
        """Return the reader of the next unread data, passing positions and failures on the way; ``None``: nothing to read."""
        while entry.failure is None:
            if entry.reader is not None:
                if not entry.reader.exhausted:
                    return entry.reader
                if entry.data is not None and entry.reader.next_offset <= entry.data.fetch_offset:
                    # The background suspended the partition behind such data: passing over it would be silence for ever.
                    self._corrupt(entry, _without_a_batch(entry.partition, entry.data.fetch_offset))
                    continue
                self._close(entry)
            if not entry.parcels:
                return None
            parcel = entry.parcels.popleft()
            match parcel:
                case FetchedData():
                    entry.data = parcel
                    entry.reader = RecordReader(
                        entry.partition.topic,
                        entry.partition.partition,
                        parcel.records,
                        parcel.fetch_offset,
                        read_committed=self.config.isolation_level is IsolationLevel.READ_COMMITTED,
                        aborted=parcel.aborted,
                        check_crcs=self.config.check_crcs,
                        max_decompressed_bytes=self.config.max_decompressed_bytes,
                    )
                case Repositioned():
                    entry.position = parcel.offset
                    entry.leader_epoch = parcel.leader_epoch
                case PartitionFailed():
                    entry.failure = parcel.error
                    entry.halted = parcel.halted
                    self._failing.add(entry.partition)
        return None

    def _close(self, entry: PartitionUnread) -> None:
        if entry.reader is not None:
            self._advance(entry, entry.reader)
            entry.reader = None
        if entry.data is not None:
            self.buffer.release(entry.data)
            entry.data = None

    @staticmethod
    def _advance(entry: PartitionUnread, reader: RecordReader) -> None:
        entry.position = reader.next_offset
        if reader.leader_epoch is not None:
            entry.leader_epoch = reader.leader_epoch

    # --- handing out -----------------------------------------------------------------------------------------------------------

    def take(self, max_records: int, only: Collection[TopicPartition] = ()) -> dict[TopicPartition, list[Record]]:
        """Return up to ``max_records`` unread records by partition and move the positions past them.

        An empty answer means that nothing is there, or that a failure waits (``failure``). A partition keeps its turn until its
        data is used up, then goes to the end of the line.
        """
        self.receive()
        taken: dict[TopicPartition, list[Record]] = {}
        for entry in self._turns(only):
            if max_records <= 0:
                break
            if entry.refusal is not None:
                continue
            position, epoch = entry.position, entry.leader_epoch
            records = self._take_from(entry, max_records)
            if records:
                self.before[entry.partition] = OffsetAndMetadata(records[0].offset if position is None else position, "", epoch)
                taken[entry.partition] = records
                self._count(entry, len(records))
                max_records -= len(records)
            self._settle_turn(entry)
        return taken

    def take_columns(self, max_records: int, into: ColumnBuilder, only: Collection[TopicPartition] = ()) -> int:
        """Append up to ``max_records`` unread records to ``into`` and move the positions past them. Return how many."""
        self.receive()
        rows = 0
        for entry in self._turns(only):
            if (position := self.locate(entry)) is not None:
                self.before[entry.partition] = OffsetAndMetadata(position, "", entry.leader_epoch)
            if entry.records:
                copied = self._copy_columns(entry, max_records - rows, into)
                self._count(entry, copied)
                rows += copied
            while rows < max_records and (reader := self._open(entry)) is not None:
                try:
                    count = reader.read_columns(max_records - rows, into)
                except (CorruptRecordException, UnsupportedCodecError) as error:
                    self._corrupt(entry, error)
                    break
                if count == 0 and not reader.exhausted:
                    return rows  # the columns are as large as they can get
                if count and entry.until is not None and reader.next_offset > entry.until:
                    count -= into.drop_from(entry.until)
                rows += count
                self._count(entry, count)
                self._advance(entry, reader)
                if entry.until is not None and reader.next_offset >= entry.until:
                    self._drop(entry)  # whatever else was fetched lies behind the range
            self._settle_turn(entry)
        return rows

    def _count(self, entry: PartitionUnread, records: int) -> None:
        entry.consumed_records += records
        self.consumed_records += records

    def _turns(self, only: Collection[TopicPartition]) -> Iterator[PartitionUnread]:
        for partition in tuple(self._ready):
            entry = self.partitions.get(partition)
            if entry is not None and self._may_read(entry, only):
                yield entry

    @staticmethod
    def _may_read(entry: PartitionUnread, only: Collection[TopicPartition]) -> bool:
        return not entry.paused and not entry.leaving and (not only or entry.partition in only)

    def _settle_turn(self, entry: PartitionUnread) -> None:
        """Let a partition keep its turn while it has a reader open; else it goes to the end of the line, or out of it."""
        if entry.reader is not None and entry.reader.exhausted:
            self._close(entry)
        if entry.reader is None and not entry.records:
            self._ready.pop(entry.partition, None)
            if entry.parcels and entry.failure is None:
                self._ready[entry.partition] = None

    def _take_from(self, entry: PartitionUnread, max_records: int) -> list[Record]:
        records = self._take_given_back(entry, max_records)
        while len(records) < max_records and (reader := self._open(entry)) is not None:
            try:
                more = reader.read(max_records - len(records))
            except (CorruptRecordException, UnsupportedCodecError) as error:
                self._corrupt(entry, error)
                break
            self._advance(entry, reader)
            records = more if not records else records + more
        return records

    @staticmethod
    def _take_given_back(entry: PartitionUnread, max_records: int) -> list[Record]:
        records = [entry.records.popleft() for _ in range(min(max_records, len(entry.records)))]
        if records:
            entry.position = records[-1].offset + 1 if entry.records else entry.behind
        return records

    def _corrupt(self, entry: PartitionUnread, error: KafkaError) -> None:
        """Fetch once more: a disk or a network may have flipped a bit on the way. The second time the partition stops."""
        reader = entry.reader
        position = reader.next_offset if reader is not None else entry.position
        epoch, again = entry.leader_epoch, entry.corrupt_at == position
        self.move(entry, position, epoch)
        if again:
            entry.corrupt_at = None
            entry.failure = error
            entry.halted = True
            self._failing.add(entry.partition)
            self.halt(entry)
        else:
            entry.corrupt_at = position
            self.refetch(entry)

    def failure(self, only: Collection[TopicPartition] = ()) -> KafkaError | None:
        """Return the failure that the next read has to raise, once; again only for a read that could return nothing else."""
        if not self._failing:
            return None
        for partition in tuple(self._failing):
            entry = self.partitions.get(partition)
            if entry is None:
                self._failing.discard(partition)
            elif self._may_read(entry, only) and (error := self._fail(entry)) is not None:
                return error
        asked = [self.partitions[tp] for tp in only if tp in self.partitions] if only else list(self.partitions.values())
        if asked and all(entry.halted and not entry.records for entry in asked):
            return asked[0].failure
        return None

    def _fail(self, entry: PartitionUnread) -> KafkaError | None:
        if entry.refusal is not None:
            error, entry.refusal = entry.refusal, None
            entry.position = entry.behind_refusal
        elif entry.failure is None or entry.records or entry.reported:
            return None
        else:
            error = entry.failure
            entry.reported = entry.halted
            if not entry.halted:
                entry.failure = None
        if entry.failure is None:
            self._failing.discard(entry.partition)
            if entry.parcels:
                self._ready.setdefault(entry.partition)
        return error

    def holds(self, taken: Mapping[TopicPartition, Iterable[Record]]) -> dict[TopicPartition, Hold]:
        """Return what is needed to put the records back that were just taken."""
        return {tp: Hold(self.partitions[tp].stamp, self.partitions[tp].position) for tp in taken if tp in self.partitions}

    def hold(self, taken: Mapping[TopicPartition, list[Record]]) -> dict[TopicPartition, Hold]:
        """Keep the positions before records that were taken, until ``deliver``: call-backs may still refuse or be cancelled."""
        holds = self.holds(taken)
        for partition in holds:
            self.partitions[partition].position = taken[partition][0].offset
        return holds

    def deliver(self, holds: Mapping[TopicPartition, Hold]) -> set[TopicPartition]:
        """Move the positions past records that were held. Return the partitions whose records may be handed out.

        The others were sought elsewhere or taken away while call-backs were at work.
        """
        valid = set()
        for partition, held in holds.items():
            entry = self.partitions.get(partition)
            if entry is not None and entry.stamp == held.stamp and not entry.leaving:
                entry.position = held.position
                valid.add(partition)
        return valid

    def put_back(self, taken: Mapping[TopicPartition, Iterable[Record]], holds: Mapping[TopicPartition, Hold]) -> None:
        """Give back records that were taken and not delivered; they come first at the next read."""
        for partition, given in taken.items():
            entry = self.partitions.get(partition)
            held = holds.get(partition)
            records = list(given)
            if entry is None or held is None or not records or entry.stamp != held.stamp:
                continue
            if not entry.records:
                entry.behind = held.position
            entry.records.extendleft(reversed(records))
            entry.position = records[0].offset
            self._count(entry, -len(records))
            self._ready[partition] = None

    def stamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.partitions[partition].stamp for partition in partitions if partition in self.partitions}

    def refuse(self, partition: TopicPartition, at: int, error: KafkaError) -> None:
        """Have the next read of the partition raise ``error``, about the record at ``at``, before anything behind it is read."""
        entry = self.partitions.get(partition)
        if entry is not None:
            # Until it is raised the position stays at the record: a commit must not cover what nobody has heard of.
            entry.refusal, entry.behind_refusal, entry.position = error, entry.position, at
            self._failing.add(partition)

    def _copy_columns(self, entry: PartitionUnread, max_records: int, into: ColumnBuilder) -> int:
        """Append records that were given back as objects."""
        records = self._take_given_back(entry, max_records)
        for record in records:
            into.append(
                (record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers, None, None)
            )
        into.end_run(entry.partition.topic, entry.partition.partition, len(records))
        return len(records)
