"""Data that was fetched and not handed out yet, over all assigned partitions.

Synchronous on purpose: taking records is one step that no cancellation can split (promise 2).

A take moves positions before its records are in the caller's hands, and an exception can come in between: ``MemoryError``
anywhere, and in the blocking facade whatever a signal handler raises. So each take is undone unless ``taken`` was set to ``None``,
which the outermost frame of a read call does in its last step (an assignment, between which and the ``return`` the interpreter
runs no signal handler). Undoing drops what was fetched of the partitions concerned and has it fetched again from where they stood
before.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from ...background.boundary import FetchBuffer, FetchedData, PartitionFailed, Repositioned
from ...config import ConsumerConfig
from ...errors import CorruptRecordException, KafkaError, UnsupportedCodecError
from ...events import HaltPartition, PausePartitions, ResumePartitions, Seek
from ...model import ConsumerRecord, IsolationLevel, OffsetAndMetadata, TopicPartition, at_offset
from ...records import ColumnBuilder, RecordReader, measure
from ...values import define, field
from ..outbox import Outbox
from .cursor import (
    OTHER_PIECES,
    Cursor,
    Failure,
    Halted,
    PartitionCustody,
    PauseReason,
    Piece,
    Raw,
    Refusal,
    Standing,
    standing_in,
)
from .iteration import PORTION, HandOut, Portion
from .turns import READY, TURNS, Taken, Turns

Record = ConsumerRecord[Any, Any]
Batch = dict[TopicPartition, list[Record]]


def _without_a_batch(partition: TopicPartition, offset: int) -> CorruptRecordException:
    text = f"{at_offset(*partition, offset)}: no complete batch in the data reaches the offset"
    return CorruptRecordException(text, topic=partition.topic, partition=partition.partition, offset=offset)


def _after(piece: "Portion[Record] | Raw", last: Record, rest: list[Record]) -> "Portion[Record] | Raw":
    """Return what is left of ``piece`` after ``last`` was handed out; ``rest`` are the records as they were decoded."""
    start = (last.offset + 1, last.leader_epoch)
    if isinstance(piece, Raw):
        return Raw(rest, start, piece.end)
    records = rest if piece.raw is piece.records else [record for record in piece.records if record.offset > last.offset]
    return PORTION(records, rest, start, piece.end)


_offset: Final = attrgetter("offset")


def _undecoded(portion: "Portion[Record]", records: list[Record]) -> list[Record]:
    """Return what ``records`` of a portion were before deserializers and interceptors saw them; an interceptor may have left some
    out.
    """
    if portion.raw is portion.records:
        return records
    first, last = (
        bisect_left(portion.raw, records[0].offset, key=_offset),
        bisect_right(portion.raw, records[-1].offset, key=_offset),
    )
    found = portion.raw[first:last]
    if len(found) == len(records):
        return found
    by_offset = {record.offset: record for record in found}
    return [by_offset.get(record.offset, record) for record in records]


_DELAYED: Final = frozenset((PauseReason.DELAY,))
_OF_A_READ: Final = (CorruptRecordException, UnsupportedCodecError)


@define(eq=False)
class Unread:
    """All assigned partitions on the application's side."""

    config: ConsumerConfig
    buffer: FetchBuffer = field(repr=False)
    outbox: Outbox = field(repr=False)
    handout: "HandOut[Record]" = field(repr=False)
    partitions: dict[TopicPartition, Cursor] = field(factory=dict)
    set_aside: dict[TopicPartition, Cursor] = field(factory=dict)
    """Given up for an eager rebalance; what the next assignment brings back goes on where it was."""
    taken: Taken | None = None
    """The take that is not delivered: how each partition stood before, and how many records of it were handed out.

    ``None``: all is delivered. Only the frame that hands the records to the caller may set that.
    """
    half: type[Turns] = TURNS
    """Which half of the pair takes turns."""
    _turns: Turns = field(init=False)
    failing: set[TopicPartition] = field(factory=set, init=False)
    """Partitions with a refusal or a failure somewhere ahead; reads check ``failure`` if there are any."""
    on_pause: Callable[[PauseReason], None] | None = field(default=None, init=False)
    """Called when the program has paused or resumed partitions, and when a delay has ended because a position was moved (for
    ``process``).
    """
    _stamp: int = field(default=0, init=False)
    _left_records: int = field(default=0, init=False)
    """Records handed out of partitions that have left."""

    def __attrs_post_init__(self) -> None:
        self._turns = self.half(self, self.config.fetch_buffer_bytes)

    @property
    def consumed_records(self) -> int:
        """Records handed out, those of partitions that have left included."""
        # Another thread may look while a partition is put aside, or comes back: it is in one of the two, or in both.
        cursors = {**self.partitions, **self.set_aside, **self.partitions}
        return self._left_records + sum(cursor.consumed_records for cursor in cursors.values())

    # --- assignment and positions ----------------------------------------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition], *, arriving: bool = False) -> Mapping[TopicPartition, int]:
        """Make ``partitions`` the assignment; those that stay keep position, pause and unread data. Return all stamps.

        Partitions that were set aside come back as they were, others are new: nothing of them is handed out while ``arriving``.
        A partition of which a range was read does not stay: it is fetched again.
        """
        self.keep([tp for tp in partitions if tp in self.partitions and self.partitions[tp].until is None])
        for partition in partitions:
            if partition not in self.partitions:
                back = self.set_aside.get(partition)
                self.partitions[partition] = back if back is not None else Cursor(partition, self.next_stamp())
                self.set_aside.pop(partition, None)
                self.partitions[partition].custody = PartitionCustody.ARRIVING if arriving else PartitionCustody.OURS
                if back is not None and back.has_more:
                    self._turns.join(back)
        self.drop_aside()
        self.handout.attend()
        return self.stamps(self.partitions)

    def keep(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Drop every other partition from the assignment. Return the stamps of those that stay."""
        self.settle()
        for partition, cursor in tuple(self.partitions.items()):
            if partition not in partitions:
                self._forget(cursor)
        self.handout.attend()
        return self.stamps(self.partitions)

    def put_aside(self, partitions: Collection[TopicPartition]) -> None:
        """Take ``partitions`` out of the assignment; the next one may bring them back as they are."""
        self.settle()
        for partition in partitions:
            cursor = self.set_aside[partition] = self.partitions[partition]
            del self.partitions[partition]
            self._turns.leave(cursor)
            cursor.custody = PartitionCustody.ASIDE
        self.handout.attend()

    def drop_aside(self, *, but_pause: bool = False) -> frozenset[TopicPartition]:
        """Forget partitions that were set aside: another member may have owned them meanwhile. Return those that the program had
        paused.
        """
        paused = frozenset(tp for tp, cursor in self.set_aside.items() if PauseReason.USER in cursor.paused)
        for cursor in self.set_aside.values():
            self._leave(cursor)
        self.set_aside.clear()
        return paused if but_pause else frozenset()

    def begin_anew_aside(self, partitions: Iterable[TopicPartition]) -> None:
        """What was set aside of ``partitions`` comes back where it is committed, with its pause."""
        for partition in partitions:
            cursor = self.set_aside.get(partition)
            if cursor is not None:
                self._leave(cursor)
                self.set_aside[partition] = Cursor(partition, self.next_stamp(), PartitionCustody.ASIDE, cursor.paused - _DELAYED)

    def _forget(self, cursor: Cursor) -> None:
        del self.partitions[cursor.partition]
        self._turns.leave(cursor)
        self._leave(cursor)

    def _leave(self, cursor: Cursor) -> None:
        self._drop(cursor)
        self.failing.discard(cursor.partition)
        self._left_records += cursor.passed_records

    def next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def stamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.partitions[partition].stamp for partition in partitions if partition in self.partitions}

    def give(self, partitions: Iterable[TopicPartition], custody: PartitionCustody) -> None:
        """Say whose these partitions are from now on."""
        for partition in partitions:
            cursor = self.partitions.get(partition)
            if cursor is not None:
                cursor.custody = custody
                self._turns.rejoin(cursor)
        self.handout.attend()

    def follow(self, wanted: Callable[[str], bool]) -> None:
        """Return nothing of topics that are not ``wanted``. Their partitions stay until a rebalance takes them."""
        for partition, cursor in self.partitions.items():
            if cursor.custody in (PartitionCustody.OURS, PartitionCustody.UNSUBSCRIBED):
                cursor.custody = PartitionCustody.OURS if wanted(partition.topic) else PartitionCustody.UNSUBSCRIBED
        self.handout.attend()

    def pause(self, partitions: Collection[TopicPartition], *, paused: bool, why: PauseReason = PauseReason.USER) -> None:
        """Hand out and fetch nothing of these partitions, or go on if no other reason is left. What was fetched is kept."""
        changed = set()
        for partition in partitions:
            cursor = self.partitions[partition]
            before = cursor.paused
            cursor.paused = before | {why} if paused else before - {why}
            if bool(before) is not bool(cursor.paused):
                changed.add(partition)
                if before:
                    self._turns.rejoin(cursor)
        if changed:
            self.outbox.add((PausePartitions if paused else ResumePartitions)(partitions=frozenset(changed)))
        self.handout.attend()
        if self.on_pause is not None and why is PauseReason.USER:
            self.on_pause(why)

    def _end_delay(self, cursor: Cursor) -> None:
        """The position was moved elsewhere: the record that was not due does not come next any more."""
        if PauseReason.DELAY in cursor.paused and self.partitions.get(cursor.partition) is cursor:
            self.pause((cursor.partition,), paused=False, why=PauseReason.DELAY)
            if self.on_pause is not None:
                self.on_pause(PauseReason.DELAY)

    def move(self, cursor: Cursor, standing: Standing | None) -> None:
        """Put the position elsewhere: unread data is dropped, and whatever is on its way for the old one will be."""
        self._end_delay(cursor)
        self._drop(cursor)
        cursor.stamp = self.next_stamp()
        cursor.place(standing)
        cursor.corrupt_at = None
        cursor.forget_stored()
        self.failing.discard(cursor.partition)
        self._turns.leave(cursor)
        if self.taken is not None:
            self.taken.pop(cursor, None)
        self.handout.attend()

    def give_back(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, parting: bool) -> None:
        """A call-back says with a commit how far the partitions that leave are done: what was handed out past that is not.

        If they come back in an eager rebalance, or when the consumer stops (``parting``), nothing may go on past it.
        """
        for partition, offset in offsets.items():
            cursor = self.partitions.get(partition)
            if cursor is None or not (parting or cursor.custody is PartitionCustody.LEAVING):
                continue
            if cursor.position is not None and offset.offset < cursor.position:
                self.move(cursor, (offset.offset, offset.leader_epoch))
                self.refetch(cursor)

    def refetch(self, cursor: Cursor) -> None:
        """Have the background fetch the partition from its position, under its new stamp. If the epoch before it is known, the
        background compares the log first (KIP-320).

        The sequence that loses records: they are read and lost in an election, the background finds that out, and a record that
        was fetched before then turns out bad. What the background has found goes by a former stamp, so it has to find it again.
        """
        if cursor.taken_to is not None:
            offset, epoch = cursor.taken_to
            self._have_fetched(cursor, offset, cursor.stored.topic_id, epoch)

    def _have_fetched(self, cursor: Cursor, offset: int, topic_id: UUID | None, epoch: int | None) -> None:
        event = Seek(
            partition=cursor.partition,
            stamp=cursor.stamp,
            offset=offset,
            leader_epoch=epoch,
            until=cursor.until,
            topic_id=topic_id,
        )
        self.outbox.add(event)

    def _drop(self, cursor: Cursor) -> None:
        cursor.discard_ahead()
        self._drop_data(cursor)

    def _drop_data(self, cursor: Cursor) -> None:
        if cursor.parcels and cursor.parcels[-1] is self.buffer.next:
            self.buffer.take()  # an exception has come between the steps of ``receive``
        cursor.reader = None
        if cursor.data is not None:
            self.buffer.release(cursor.data)
            cursor.data = None
        for parcel in cursor.parcels:
            if isinstance(parcel, FetchedData):
                self.buffer.release(parcel)
        cursor.parcels.clear()

    def positions(self, which: Callable[[Cursor], bool] = lambda _: True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of every partition that has one, with its leader epoch, as it would be committed.

        Also of one of which nothing was read yet. Its next owner would begin elsewhere if that were not stored: at the end of the
        log, past what was written meanwhile, or at its beginning, as if the partition were new.
        """
        chosen = {partition: cursor for partition, cursor in self.partitions.items() if which(cursor)}
        self.locate_all(chosen.values())
        return {partition: position for partition, cursor in chosen.items() if (position := cursor.to_commit) is not None}

    # --- a take and its delivery -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Undo a take that did not reach the caller, since an exception came between. Called before anything looks at positions."""
        taken = self.taken
        if taken is None:
            return
        for cursor, (standing, consumed) in tuple(taken.items()):
            if standing is None and cursor.taken_to is None:
                continue  # it has no position, so nothing of it was taken; that it failed is kept
            if self.partitions.get(cursor.partition) is cursor:
                before = (cursor.stored, cursor.beginning)
                self.move(cursor, standing)
                cursor.stored, cursor.beginning = before
                cursor.passed_records = consumed
                self.refetch(cursor)
        self.taken = None

    def taken_spans(self) -> list[tuple[TopicPartition, int, int]]:
        """Return each partition of the take that is not delivered, with the positions before and past it."""
        return [
            (cursor.partition, standing[0], past)
            for cursor, (standing, _) in (self.taken or {}).items()
            if standing is not None and (past := cursor.position) is not None
        ]

    def _begin(self) -> Taken:
        self.settle()
        taken: Taken = {}
        self.taken = taken
        return taken

    def _end(self, found: bool) -> None:
        if not found:
            self.taken = None

    # --- room in the buffer ----------------------------------------------------------------------------------------------------

    def ask_for(self, only: Collection[TopicPartition], *, waiting: bool) -> None:
        """A read waits for ``only`` (none: for all) and there is no room in the buffer for everything: have them fetched first.

        ``waiting``: other reads wait too.
        """
        wanted = frozenset(only or [partition for partition, cursor in self.partitions.items() if not cursor.paused])
        self.buffer.ask(wanted | self.buffer.asked if waiting else wanted)
        if self.buffer.starving:
            self._make_room()

    def _make_room(self) -> None:
        """Drop a little of what nobody waits for: the room that is kept for those that are asked for holds what others have left.

        What was fetched last is fetched again. Records that are decoded already stay.
        """
        useful = min(self.config.max_partition_fetch_bytes, max(self.buffer.limit // 4, 1))
        others = [cursor for cursor in self.partitions.values() if cursor.partition not in self.buffer.asked]
        for cursor in sorted(others, key=lambda cursor: (not cursor.paused, -self.buffer.unread(cursor.partition))):
            self.locate(cursor)
            if cursor.taken_to is None or any(isinstance(piece, (Failure, Halted)) for piece in cursor.ahead):
                continue
            again: tuple[int, UUID | None] | None = None
            while self.buffer.room() < useful and cursor.parcels and isinstance(last := cursor.parcels[-1], FetchedData):
                self.buffer.release(cursor.parcels.pop())  # type: ignore[arg-type]  # it is ``last``
                again = last.fetch_offset, last.topic_id
            if self.buffer.room() < useful and not cursor.parcels and cursor.data is not None:
                again = cursor.taken_to[0], cursor.data.topic_id
                self._drop_data(cursor)
            if again is not None:
                cursor.stamp = self.next_stamp()
                self._have_fetched(cursor, *again, self._last_epoch(cursor))

    @staticmethod
    def _last_epoch(cursor: Cursor) -> int | None:
        """Return the leader epoch past everything that was fetched of a partition and not dropped; ``None`` if it is unknown."""
        for parcel in (*reversed(cursor.parcels), cursor.data):
            if isinstance(parcel, FetchedData) and (epoch := measure(parcel.records, parcel.fetch_offset).leader_epoch) is not None:
                return epoch
            if isinstance(parcel, Repositioned):
                return parcel.leader_epoch
        return None if cursor.taken_to is None else cursor.taken_to[1]

    @property
    def is_empty(self) -> bool:
        """A read would find no records."""
        return not (self._turns.line or self.buffer.parcels)

    # --- receiving -------------------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Sort what the background put into the buffer to its partitions.

        A signal handler may raise between any two steps, so a parcel leaves the buffer when it is in its place, and not before.
        """
        while (parcel := self.buffer.next) is not None:
            cursor = self.partitions.get(parcel.partition) or self.set_aside.get(parcel.partition)
            if cursor is not None and cursor.stamp == parcel.stamp:
                if isinstance(parcel, Repositioned) and self._goes_back(cursor, parcel):
                    self._end_delay(cursor)
                if isinstance(parcel, Repositioned) and not cursor.is_of(parcel.topic_id):
                    self._forget_failure(cursor)
                if not (cursor.parcels and cursor.parcels[-1] is parcel):
                    cursor.parcels.append(parcel)
                if cursor.partition in self.partitions:
                    self._turns.join(cursor)
            elif isinstance(parcel, FetchedData):
                self.buffer.release(parcel)
            self.buffer.take()

    def _forget_failure(self, cursor: Cursor) -> None:
        """What stopped the partition was in a topic that was deleted; another one has its name now."""
        if self._fails(cursor):
            cursor.ahead.pop()
        if not any(isinstance(piece, Refusal) for piece in cursor.ahead):
            self.failing.discard(cursor.partition)
        cursor.parcels = deque(parcel for parcel in cursor.parcels if not isinstance(parcel, PartitionFailed))

    def locate_all(self, cursors: Iterable[Cursor]) -> None:
        """See ``locate``."""
        for cursor in cursors:
            if cursor.taken_to is None:
                self.locate(cursor)

    def locate(self, cursor: Cursor) -> int | None:
        """Return the position; if nothing has been handed out yet, the position of the first thing in the buffer."""
        self.receive()
        if cursor.taken_to is None and cursor.parcels:
            match cursor.parcels[0]:
                case FetchedData() as data:
                    cursor.belong(data.topic_id)
                    cursor.place((data.fetch_offset, None))
                case Repositioned() as moved:
                    cursor.follow(moved)
                case PartitionFailed():
                    self._open(cursor)
        return cursor.position

    def _open(self, cursor: Cursor) -> RecordReader | None:
        """Return the reader of the next unread data, passing positions on the way; ``None``: nothing to read, or a failure is
        ahead.

        Records that were taken and not delivered yet, and pieces ahead, never come together with those of another topic of the
        name, nor with those from a position that lies before them: a position belongs to one of them.
        """
        while True:
            if cursor.reader is None and (data := cursor.data) is not None:
                cursor.reader = RecordReader(
                    data.partition.topic,
                    data.partition.partition,
                    data.records,
                    data.fetch_offset if cursor.taken_to is None else cursor.taken_to[0],
                    read_committed=self.config.isolation_level is IsolationLevel.READ_COMMITTED,
                    aborted=data.aborted,
                    check_crcs=self.config.check_crcs,
                    max_decompressed_bytes=self.config.max_decompressed_bytes,
                )
            if cursor.reader is not None:
                if not cursor.reader.exhausted:
                    return cursor.reader
                if cursor.data is not None and cursor.reader.next_offset <= cursor.data.fetch_offset:
                    # The background suspended the partition behind such data: passing over it would be silence for ever.
                    self.corrupt(cursor, _without_a_batch(cursor.partition, cursor.data.fetch_offset))
                    return None
                self._close(cursor)
            if not cursor.parcels or self._fails(cursor):
                return None
            parcel = cursor.parcels[0]
            if isinstance(parcel, Repositioned) and self._goes_back(cursor, parcel) and self._is_amid(cursor):
                return None
            if isinstance(parcel, FetchedData) and cursor.taken_to is not None and parcel.fetch_offset != cursor.taken_to[0]:
                # An exception has come between two steps of ours: whatever went missing is fetched again.
                self._drop_data(cursor)
                cursor.stamp = self.next_stamp()
                self.refetch(cursor)
                return None
            self._unpack(cursor, parcel)
            cursor.parcels.popleft()

    @staticmethod
    def _goes_back(cursor: Cursor, moved: Repositioned) -> bool:
        return not cursor.is_of(moved.topic_id) or (cursor.taken_to is not None and moved.offset < cursor.taken_to[0])

    def _is_amid(self, cursor: Cursor) -> bool:
        """Whether something of the partition is taken and not delivered, or ready and not handed out."""
        before = self.taken.get(cursor) if self.taken is not None else None
        return cursor.front() is not None or (before is not None and before[0] != cursor.standing)

    @staticmethod
    def _fails(cursor: Cursor) -> bool:
        return bool(cursor.ahead) and isinstance(cursor.ahead[-1], (Failure, Halted))

    def _unpack(self, cursor: Cursor, parcel: FetchedData | Repositioned | PartitionFailed) -> None:
        match parcel:
            case FetchedData():
                if parcel.topic_id is not cursor.stored.topic_id:
                    cursor.belong(parcel.topic_id)
                cursor.data = parcel
            case Repositioned():
                goes_back = self._goes_back(cursor, parcel)
                if cursor.taken_to is not None and parcel.offset < cursor.taken_to[0]:
                    cursor.forget_stored()
                cursor.follow(parcel)
                if goes_back and self.taken is not None and cursor in self.taken:
                    # Nothing of it was taken yet: what this take holds, or puts back, begins here and not at the former position.
                    self.taken[cursor] = (cursor.standing, self.taken[cursor][1])
            case PartitionFailed():
                self._fail(cursor, Failure(parcel.error, parcel.halted, parcel.topic_id))

    def _fail(self, cursor: Cursor, piece: Failure | Refusal) -> None:
        cursor.ahead.append(piece)
        self.failing.add(cursor.partition)

    def _close(self, cursor: Cursor) -> None:
        if cursor.reader is not None:
            cursor.taken_to = self._end_of(cursor, cursor.reader)
            cursor.reader = None
        if cursor.data is not None:
            if (turn := self._turns.line.get(cursor)) is not None:
                turn.bytes += cursor.data.size
            self.buffer.release(cursor.data)
            cursor.data = None

    @staticmethod
    def _end_of(cursor: Cursor, reader: RecordReader) -> Standing:
        epoch = reader.leader_epoch
        if epoch is None and cursor.taken_to is not None:
            epoch = cursor.taken_to[1]
        return reader.next_offset, epoch

    def corrupt(self, cursor: Cursor, error: KafkaError) -> None:
        """Fetch once more: a disk or a network may have flipped a bit on the way. The second time the partition stops, unless the
        background has found since that the log has changed, as after a truncation: the record may be there no more.
        """
        at = self._end_of(cursor, cursor.reader) if cursor.reader is not None else cursor.taken_to
        cursor.taken_to = at
        again = at is not None and cursor.corrupt_at == at[0] and all(isinstance(parcel, FetchedData) for parcel in cursor.parcels)
        self._drop_data(cursor)
        cursor.stamp = self.next_stamp()
        if again:
            cursor.corrupt_at = None
            self._fail(cursor, Failure(error, halts=True))
            self.outbox.add(HaltPartition(partition=cursor.partition, stamp=cursor.stamp, topic_id=cursor.stored.topic_id))
        else:
            cursor.corrupt_at = None if at is None else at[0]
            self.refetch(cursor)

    # --- turns -----------------------------------------------------------------------------------------------------------------

    @staticmethod
    def may_read(cursor: Cursor, only: Collection[TopicPartition] = ()) -> bool:
        return cursor.is_readable and (not only or cursor.partition in only)

    def settle_turn(self, cursor: Cursor) -> None:
        """Let a partition keep its turn while it has not had its part, and while pieces are ahead. See ``Supply``."""
        if cursor.reader is not None and cursor.reader.exhausted:
            self._close(cursor)
        if not cursor.ahead or cursor.front() is None:
            if cursor.data is None and not cursor.parcels:
                self._turns.leave(cursor)
            else:
                self._turns.end_if_over(cursor)

    def give_way(self, cursor: Cursor) -> None:
        """Call-backs can do nothing for the partition now: all others come before they are asked again."""
        self._turns.rejoin(cursor)

    # --- handing out a batch ---------------------------------------------------------------------------------------------------

    def take(
        self, max_records: int, only: Collection[TopicPartition] = (), *, decode: bool = True, raw: Batch | None = None
    ) -> Batch:
        """Return up to ``max_records`` unread records by partition and move the positions past them.

        Without ``decode`` only what is ready: the rest has to pass call-backs first (``stage``). An empty answer means that
        nothing is there, or that a failure waits (``failure``). The caller sets ``taken`` to ``None`` in the last step of
        delivering the records. ``raw`` is filled with the same records as they were before deserializers and interceptors.
        """
        if self.is_empty:
            self.settle()
            return {}
        self.receive()
        before = self._begin()
        batch: Batch = {}
        of = partial(self._take_from, decode=decode, raw=raw)
        self._turns.take(max_records, only, before, batch, of, plain=decode and raw is None)
        self._end(bool(batch))
        return batch

    def stand(self, cursor: Cursor) -> tuple[Standing | None, int]:
        """See ``Supply.stand``."""
        if cursor.taken_to is None:
            self.locate(cursor)
        if cursor.ahead:
            return cursor.standing, cursor.consumed_records
        return cursor.taken_to, cursor.passed_records

    def _take_from(self, cursor: Cursor, max_records: int, alone: bool, *, decode: bool, raw: Batch | None) -> list[Record]:
        """Take records of one partition. ``alone``: no other one waits for its turn."""
        undecoded: list[Record] | None = None if raw is None else []
        records = self._take_portions(cursor, max_records, undecoded) if cursor.ahead else []
        if decode and (ready := len(records)) < max_records:
            records = self.decode(cursor, max_records, records, alone=alone)
            cursor.passed_records += len(records) - ready
        if raw is not None and undecoded is not None and records:
            raw.setdefault(cursor.partition, []).extend(undecoded + records[len(undecoded) :])
        return records

    def _take_portions(self, cursor: Cursor, max_records: int, raw: list[Record] | None) -> list[Record]:
        records: list[Record] = []
        while len(records) < max_records and (portion := self._portion(cursor)) is not None:
            stop = portion.place + max_records - len(records)
            more = portion.records[portion.place : stop]
            records = more if not records else records + more
            if raw is not None:
                raw += _undecoded(portion, more)
            portion.place += len(more)
        return records

    @staticmethod
    def _portion(cursor: Cursor) -> "Portion[Record] | None":
        piece = cursor.front()
        return None if piece is None or isinstance(piece, OTHER_PIECES) else piece

    def decode(self, cursor: Cursor, max_records: int, records: list[Record], *, alone: bool) -> list[Record]:
        """See ``Supply.decode``."""
        turn = self._turns.line[cursor]
        if not alone:
            most = len(records) + self._turns.left(turn)
            max_records = most if most < max_records else max_records
        while len(records) < max_records and not (cursor.ahead and cursor.front() is not None):
            reader = cursor.reader
            if (reader is None or reader.exhausted) and (reader := self._open(cursor)) is None:
                break
            try:
                more = reader.read(max_records - len(records))
            except _OF_A_READ as error:
                self.corrupt(cursor, error)
                break
            turn.records += len(more)
            cursor.taken_to = self._end_of(cursor, reader)
            records = more if not records else records + more
            if more and reader.exhausted and (not cursor.parcels or (not alone and self._turns.is_long(turn, cursor.data))):
                break  # what settles the turn closes the reader
        return records

    # --- handing out one by one ------------------------------------------------------------------------------------------------

    def portion(self, max_records: int, only: Collection[TopicPartition] = (), *, decode: bool = True) -> "Portion[Record] | None":
        """Return the portion whose records come next; decodes one of up to ``max_records`` if none is ready. Hands nothing
        out.
        """
        found = self.portions(max_records, only, decode=decode, alone=True)
        return found[0] if found else None

    def portions(
        self, max_records: int, only: Collection[TopicPartition] = (), *, decode: bool = True, alone: bool = False
    ) -> "list[Portion[Record]]":
        """Return the portions whose records come next, in order, with about ``max_records`` in all, or the first one ``alone``;
        decodes them if none are ready. Hands nothing out.
        """
        if self.is_empty:
            return []
        self.receive()
        found = self._turns.portions(max_records, only, self._begin(), decode=decode, alone=alone)
        self.taken = None
        return found

    def stage(self, max_records: int, only: Collection[TopicPartition] = ()) -> dict[Cursor, Raw]:
        """Decode up to ``max_records`` records for call-backs to see and return them, with those that wait for call-backs
        already.
        """
        self.receive()
        before = self._begin()
        staged: dict[Cursor, Raw] = {}
        for cursor, alone in self._turns.readable(only):
            if max_records <= 0:
                break
            if cursor.front() is None:
                self.put_ahead(cursor, min(max_records, READY), before, alone=alone, ready=False)
            piece = cursor.front()
            if isinstance(piece, Raw):
                staged[cursor] = piece
                max_records -= len(piece.records)
            self.settle_turn(cursor)
        self.taken = None
        return staged

    def put_ahead(self, cursor: Cursor, max_records: int, before: Taken, *, alone: bool, ready: bool) -> None:
        """See ``Supply.put_ahead``."""
        if cursor.taken_to is None:
            self.locate(cursor)
        if cursor.parcels and isinstance(cursor.parcels[0], Repositioned):
            self._open(cursor)  # a piece begins at the new position, and not at the one before
        start = cursor.taken_to
        before[cursor] = (start, cursor.consumed_records)
        records = self.decode(cursor, max_records, [], alone=alone)
        end = cursor.taken_to
        if records and end is not None:
            begin = (records[0].offset, end[1]) if start is None else start
            piece: Piece = PORTION(records, records, begin, end) if ready else Raw(records, begin, end)
            failed = cursor.ahead.pop() if self._fails(cursor) else None  # found after these records, and put into the line first
            cursor.ahead.append(piece)
            if failed is not None:
                cursor.ahead.append(failed)
        before.pop(cursor, None)

    def replace(self, cursor: Cursor, raw: Raw, pieces: Iterable[Piece]) -> bool:
        """Put into the line what call-backs made of ``raw``; ``False``: the position was moved elsewhere meanwhile."""
        if not (cursor.ahead and cursor.ahead[0] is raw):
            return False
        cursor.ahead.popleft()
        for piece in reversed(tuple(pieces)):
            cursor.ahead.appendleft(piece)
            if isinstance(piece, Refusal):
                self.failing.add(cursor.partition)
        self.settle_turn(cursor)
        return True

    # --- handing out columns ---------------------------------------------------------------------------------------------------

    def take_columns(self, max_records: int, into: ColumnBuilder, only: Collection[TopicPartition] = ()) -> int:
        """Append up to ``max_records`` unread records to ``into`` and move the positions past them. Return how many."""
        self.receive()
        before = self._begin()
        left, is_full = max_records, False
        while left > 0 and not is_full:
            wanted = left
            for cursor, alone in self._turns.readable(only):
                if cursor not in before:
                    self.locate(cursor)
                    before[cursor] = (cursor.standing, cursor.consumed_records)
                rows, is_full = self._columns_of(cursor, left, into, alone=alone)
                cursor.passed_records += rows
                left -= rows
                if is_full:
                    break
                self.settle_turn(cursor)
                if left <= 0:
                    break
            if left == wanted:  # nobody had anything
                break
        self._end(left < max_records)
        return max_records - left

    def _columns_of(self, cursor: Cursor, max_records: int, into: ColumnBuilder, *, alone: bool) -> tuple[int, bool]:
        """Append records of one partition; return how many, and whether the columns are as large as they can get."""
        copied = self._copy_columns(cursor, max_records, into) if cursor.ahead else 0
        if cursor.front() is not None:
            return copied, False
        more, is_full = self._read_columns(cursor, max_records - copied, into, alone=alone)
        return copied + more, is_full

    def _read_columns(self, cursor: Cursor, max_records: int, into: ColumnBuilder, *, alone: bool) -> tuple[int, bool]:
        """As ``_take_data``; return also whether the columns are as large as they can get."""
        turn = self._turns.line[cursor]
        if not alone:
            max_records = min(max_records, self._turns.left(turn))
        rows = 0
        while rows < max_records and cursor.front() is None and (reader := self._open(cursor)) is not None:
            try:
                count = reader.read_columns(max_records - rows, into)
            except _OF_A_READ as error:
                self.corrupt(cursor, error)
                break
            if count == 0 and not reader.exhausted:
                return rows, True
            turn.records += count
            if count and cursor.until is not None and reader.next_offset > cursor.until:
                count -= into.drop_from(cursor.until)
            rows += count
            cursor.taken_to = self._end_of(cursor, reader)
            if cursor.until is not None and reader.next_offset >= cursor.until:
                self._drop(cursor)  # whatever else was fetched lies past the range
            elif count and reader.exhausted and not alone and self._turns.is_long(turn, cursor.data):
                break
        return rows, False

    def _copy_columns(self, cursor: Cursor, max_records: int, into: ColumnBuilder) -> int:
        """Append records that were decoded as objects already, as they were before deserializers and interceptors saw them."""
        rows = 0
        while rows < max_records and (piece := self._records_ahead(cursor)) is not None:
            start = piece.start[0] if isinstance(piece, Raw) else standing_in(piece)[0]
            left = [record for record in (piece.records if isinstance(piece, Raw) else piece.raw) if record.offset >= start]
            some = left[: max_records - rows]
            for record in some:
                into.append(
                    (record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers, None, None)
                )
            into.end_run(cursor.partition.topic, cursor.partition.partition, len(some))
            rows += len(some)
            cursor.pass_front()
            if len(some) < len(left):
                cursor.ahead.appendleft(_after(piece, some[-1], left[len(some) :]))
            if not isinstance(piece, Raw):
                piece.discard()
        return rows

    @staticmethod
    def _records_ahead(cursor: Cursor) -> "Portion[Record] | Raw | None":
        piece = cursor.front()
        return None if piece is None or isinstance(piece, (Refusal, Failure, Halted)) else piece

    # --- failures --------------------------------------------------------------------------------------------------------------

    def failure(self, only: Collection[TopicPartition] = (), *, records: bool = True, now: float = 0.0) -> KafkaError | None:
        """Return the failure that the next read has to raise: once, and again if the read could return nothing else, or if the
        partition is still halted a request timeout later.

        Not ``records``: of records nothing may be said now, so those that were refused keep their places.
        """
        if not self.failing:
            return None
        self.receive()  # the topic of what failed may have been deleted and created again
        for partition in tuple(self.failing):
            cursor = self.partitions.get(partition)
            if cursor is None:
                if partition not in self.set_aside:
                    self.failing.discard(partition)
            elif self.may_read(cursor, only) and (error := self._pass_failure(cursor, now, records=records)) is not None:
                return error
        asked = [self.partitions[tp] for tp in only if tp in self.partitions] if only else list(self.partitions.values())
        if asked and all(cursor.is_halted for cursor in asked):
            piece = asked[0].ahead[0]
            return piece.error if isinstance(piece, Halted) else None
        return None

    def failure_ahead(self, partitions: Collection[TopicPartition]) -> KafkaError | None:
        """Return what keeps one of ``partitions`` from having a position; the next read raises it too."""
        for partition in partitions:
            cursor = self.partitions.get(partition)
            piece = cursor.front() if cursor is not None else None
            if isinstance(piece, (Failure, Halted)):
                return piece.error
        return None

    def _pass_failure(self, cursor: Cursor, now: float, *, records: bool) -> KafkaError | None:
        piece = cursor.front()
        if isinstance(piece, Halted):
            if now - piece.raised_at < self.config.request_timeout_ms / 1000:
                return None
            cursor.ahead[0] = Halted(piece.error, now, piece.topic_id)
            return piece.error
        if not isinstance(piece, (Refusal, Failure)) or (isinstance(piece, Refusal) and not records):
            return None
        cursor.ahead.popleft()
        if isinstance(piece, Failure) and piece.halts:
            cursor.ahead.appendleft(Halted(piece.error, now, piece.topic_id))
        elif not any(isinstance(other, (Refusal, Failure)) for other in cursor.ahead):
            self.failing.discard(cursor.partition)
        if cursor.has_more:
            self._turns.join(cursor)
        return piece.error
