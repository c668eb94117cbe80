"""The records that the consumer has: unread, or handed out and not settled.

Unread records stay here until the step that hands them out, also while deserializers work on them: so a read call may be cancelled
anywhere. The background owns the locks; its reports on them arrive here, and no record is handed out whose lock has ended.
"""

from collections import deque
from collections.abc import Callable
from itertools import compress
from operator import attrgetter
from threading import RLock
from typing import Any, Final

from ...background.boundary import Exchange
from ...background.share.orders import (
    OVERHEAD,
    Acknowledge,
    AcknowledgeType,
    Delivery,
    Hold,
    Keep,
    Lost,
    Order,
    RecordsDropped,
    RecordsHandedOut,
    ReleaseLater,
    Renewed,
    Report,
    Settled,
    weight,
)
from ...errors import ConsumerStoppedError, DeserializationError, KafkaError
from ...model import ConsumerRecord
from ...values import define, field
from ..callbacks import Deserialized
from ..lifecycle.runtime import Runtime
from ..task_context import Stay
from .record import HeldDelivery, ShareRecord

Record = ShareRecord[Any, Any]
Raw = ConsumerRecord[Any, Any]

_offset: Final = attrgetter("offset")
_RENEW: Final = AcknowledgeType.RENEW
"""Looked up once, since it is asked for with each acknowledgement."""


@define(eq=False)
class UnreadPiece:
    """Unread records of one delivery, next to each other."""

    delivery: HeldDelivery
    records: list[Raw]
    counts: list[int]
    ready: bool
    """They can be handed out as they are; if not, deserializers have to see them first."""
    raw: list[Raw] | None = None
    """The records as they were before deserializers; ``None`` if these have not seen them."""
    poison: DeserializationError | None = None
    """Why the record, which is the only one of the piece then, cannot be deserialized."""

    def cut(self, size: int) -> "UnreadPiece":
        """Return the first records, and keep the others."""
        raw = self.raw
        first = UnreadPiece(
            self.delivery,
            self.records[:size],
            self.counts[:size],
            self.ready,
            None if raw is None else raw[:size],
            self.poison,
        )
        del self.records[:size], self.counts[:size]
        if raw is not None:
            del raw[:size]
        return first

    def keep(self, wanted: Callable[[Raw], bool]) -> list[Raw]:
        """Leave out the other records, and return them. The lists are new ones, which tells whoever works on the old ones."""
        chosen = [wanted(record) for record in self.records]
        out = list(compress(self.records, [not keep for keep in chosen]))
        self.records, self.counts = list(compress(self.records, chosen)), list(compress(self.counts, chosen))
        self.raw = None if self.raw is None else list(compress(self.raw, chosen))
        return out


@define(eq=False)
class Counts:
    """What has happened to records since the start."""

    delivered: int = 0
    """Handed to the application."""
    bytes: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    refused: int = 0
    """Acknowledgements that did not count."""
    lost: int = 0
    """Records whose lock ended before they were acknowledged."""
    unanswered: int = 0
    """Acknowledgements on their way."""


def _lose(record: Record, error: Exception) -> None:
    """What is said of the record does not count, or may not."""
    record._lost_by = error


@define(eq=False)
class Held:
    """Records that tasks, or threads, work on within ``async with`` or ``with``: a stop waits for them."""

    runtime: Runtime = field(repr=False)
    _stays: dict[Record, Stay] = field(factory=dict, init=False)
    _depths: dict[Record, int] = field(factory=dict, init=False)
    """How many blocks inside the outermost one have been entered, of records for which there are any."""
    _awaited: bool = field(default=False, init=False)
    _is_shut: bool = field(default=False, init=False)
    """A stop has waited for those inside: nobody else is let in."""

    def __bool__(self) -> bool:
        return bool(self._stays)

    def is_inside(self, record: Record) -> bool:
        """Whether a block of the record was entered already; the outermost one decides what becomes of it."""
        if record not in self._stays:
            return False
        self._depths[record] = self._depths.get(record, 0) + 1
        return True

    def leave_inner(self, record: Record) -> bool:
        """Whether the block that is left is inside another one of the record."""
        if not self._depths:
            return False
        depth = self._depths.pop(record, 0)
        if depth > 1:
            self._depths[record] = depth - 1
        return depth > 0

    def enter(self, record: Record) -> bool:
        """The current task or thread works on a record. ``False``: it may not, since the consumer stops."""
        task_context = self.runtime.task_context
        if self._is_shut:
            return False
        if task_context is not None:
            stay = self._stays[record] = task_context.enter()
            if self._is_shut:  # just now, for a thread: whoever shuts looks once more afterwards, so one of the two sees the other
                del self._stays[record]
                stay.leave(None)
                return False
        return True

    def leave(self, record: Record, error: BaseException | None) -> bool:
        """The record is acknowledged, and nobody works on it. Return whether ``error`` is the cancellation that ``end`` caused."""
        stay = self._stays.pop(record, None)
        if self._awaited:
            self.runtime.wake_application()
        return stay is not None and stay.leave(error)

    def end(self, record: Record) -> None:
        """Cancel the work on a record, if there is any."""
        stay = self._stays.get(record)
        if stay is not None:
            stay.end()

    @property
    def by_others(self) -> bool:
        """Whether another task or thread than the current one works on a record that is still locked."""
        task_context = self.runtime.task_context
        if task_context is None:
            return False
        current = task_context.current()
        return any(
            stay.holder is not current and not task_context.has_ended(stay.holder) and not record.lost
            for record, stay in tuple(self._stays.items())
        )

    async def wait(self, seconds: float) -> None:
        """Wait until no other task works on a record, for ``seconds`` at most. From then on no work begins."""
        clock, signal = self.runtime.clock, self.runtime.signal
        self._awaited = True
        until = clock() + seconds
        try:
            while (left := until - clock()) > 0:
                ticket = signal.ticket()
                if not self.by_others:
                    self._is_shut = True
                    if not self.by_others:  # a thread may have got in just before
                        return
                await signal.wait(ticket, left)
        finally:
            self._is_shut = True


@define(eq=False)
class Custody:
    """All records of one consumer."""

    exchange: Exchange = field(repr=False)
    clock: Callable[[], float] = field(repr=False)
    half: int
    """Unread records below which the background reads on."""
    held: Held = field(repr=False)
    deserializes: bool = False
    """Records are to be deserialized before they are handed out."""
    counts: Counts = field(factory=Counts, init=False)
    on_lost: Callable[[Record], None] | None = field(default=None, init=False, repr=False)
    """Called with every record whose lock ended before it was acknowledged, instead of cancelling the block that works on it."""
    on_unwanted: Callable[[], None] | None = field(default=None, init=False, repr=False)
    """Called when the application has changed its subscription."""
    _closed: bool = field(default=False, init=False)
    """The consumer has stopped: acknowledgements no longer reach a broker."""
    _unreported: deque[Record] = field(factory=deque, init=False, repr=False)
    """Records whose locks have ended, of which nobody has been told yet."""
    _calls: int = field(default=0, init=False)
    """Read calls that have returned several records."""
    _lock: RLock = field(factory=RLock, init=False, repr=False)
    """Any thread may acknowledge a record, ask when its lock ends, or look at statistics, and takes over reports then: that changes
    what is unread, beside the thread that reads."""
    _unread: deque[UnreadPiece] = field(factory=deque, init=False, repr=False)
    _deliveries: dict[int, HeldDelivery] = field(factory=dict, init=False, repr=False)

    @property
    def out(self) -> int:
        """Records that were handed out and not settled."""
        return sum(len(delivery.out) for delivery in tuple(self._deliveries.values()))  # a copy, since another thread may look

    @property
    def unread(self) -> int:
        """Records that wait to be handed out."""
        with self._lock:
            return sum(len(piece.records) for piece in self._unread)

    # --- reports of the background ---------------------------------------------------------------------------------------------

    def sort(self) -> None:
        """Take over the background's reports on records and locks."""
        reports = self.exchange.reports
        if not reports:
            return
        with self._lock:
            some_lost = False
            while reports:
                report = reports[0]
                self._take_over(report)
                some_lost = some_lost or isinstance(report, Lost)
                if reports and reports[0] is report:  # not before: whoever finds nothing here takes a lock for one that lasts
                    reports.popleft()
            if some_lost:
                self._weed_all()  # not before: a later report may have renewed what looks late

    def report_lost(self) -> None:
        """Have the tasks that work on lost records cancelled, in the thread that reads; any thread may have found them.

        ``process`` has a call-back for that.
        """
        if not self._unreported:
            return
        with self._lock:  # a thread that is finding some has finished by then
            lost = list(self._unreported)
            self._unreported.clear()
        for record in lost:
            (self.on_lost or self.held.end)(record)

    def attend(self) -> None:
        """The background has reported something, and no task may be reading: tell tasks that work on records."""
        if self.held and self.on_lost is None:
            self.sort()
            self.report_lost()

    def _take_over(self, report: Report) -> None:
        match report:
            case Delivery(partition, number, records, counts, deadline):
                delivery = self._deliveries[number] = HeldDelivery(partition, number, deadline, left=len(records))
                self._unread.append(UnreadPiece(delivery, records, counts, ready=not self.deserializes))
            case Renewed() as renewed:
                self._renewed(renewed)
            case Lost(locks=locks, error=error):
                for number, offset in locks:
                    self._lost(number, offset, error)
            case Settled() as settled:
                self._settled(settled)

    def _renewed(self, renewed: Renewed) -> None:
        for number, offset in renewed.locks:
            delivery = self._deliveries.get(number)
            if delivery is None:
                continue
            record = delivery.out.get(offset)
            if record is not None:
                record._deadline = renewed.deadline
            else:  # unread records of a delivery are renewed together
                delivery.deadline = max(delivery.deadline, renewed.deadline)

    def _lost(self, number: int, offset: int, error: KafkaError) -> None:
        delivery = self._deliveries.get(number)
        self.counts.lost += 1
        if delivery is None or offset in delivery.gone:  # or it was dropped before
            return
        record = delivery.out.pop(offset, None)
        if record is not None:
            _lose(record, error)
            if record._said is None:
                self._unreported.append(record)
        delivery.gone.add(offset)
        self._less(delivery, 1)

    def _settled(self, settled: Settled) -> None:
        counts, size = self.counts, len(settled.offsets)
        counts.unanswered -= size
        delivery = self._deliveries.get(settled.number)
        if delivery is not None:
            take = delivery.out.pop
            found = [record for offset in settled.offsets if (record := take(offset, None)) is not None]
            self._less(delivery, len(found))
            if settled.error is not None:
                for record in found:
                    _lose(record, settled.error)
        if settled.error is not None:
            counts.refused += size
        elif settled.kind is AcknowledgeType.ACCEPT:
            counts.accepted += size
        elif settled.kind is AcknowledgeType.RELEASE:
            counts.released += size
        else:
            counts.rejected += size

    def _less(self, delivery: HeldDelivery, records: int) -> None:
        delivery.left -= records
        if delivery.left <= 0:
            self._deliveries.pop(delivery.number, None)

    # --- handing out -----------------------------------------------------------------------------------------------------------

    def hand_out(self, size: int, *, kept: bool = False) -> list[Record]:
        """Return up to ``size`` unread records that are ready, in the order in which they came: they are the application's now.

        ``kept``: their locks are renewed automatically until they are acknowledged. If not, those of several records are, while the
        application works on one of them.
        """
        self.sort()  # a deserializer may have taken long, and the locks may have been renewed meanwhile
        records: list[Record] = []
        keep, call = Keep.HELD if kept else Keep.ALONE, 0
        if size > 1 and not kept:
            self._calls = call = self._calls + 1
            keep = Keep.WAITING
        with self._lock:
            while size > 0 and self._unread and self._unread[0].ready:
                made = self._hand_out(self._next(size), keep, call)
                records += made
                size -= len(made)
        return records

    def _next(self, size: int) -> UnreadPiece:
        """Take out the first unread records."""
        piece = self._unread[0]
        if len(piece.records) <= size:
            return self._unread.popleft()
        return piece.cut(size)

    def _hand_out(self, piece: UnreadPiece, keep: Keep, call: int = 0) -> list[Record]:
        self._weed(piece)
        if not piece.records:
            return []
        delivery = piece.delivery
        raws = piece.records if piece.raw is None else piece.raw
        made: list[Record] = [
            ShareRecord(each, count, self, delivery, raw)
            for each, count, raw in zip(piece.records, piece.counts, raws, strict=True)
        ]
        offsets = tuple(map(_offset, raws))
        delivery.out.update(zip(offsets, made, strict=True))
        self.exchange.order(RecordsHandedOut(delivery.partition, delivery.number, offsets, keep, call), quiet=True)
        size = weight(raws)
        self.counts.delivered += len(made)
        self.counts.bytes += size - OVERHEAD * len(made)
        self._taken(len(made), size)
        return made

    def hand_out_one(self) -> Record | None:
        """As ``hand_out``, for the next record; ``None`` if there is none, or it needs a closer look."""
        with self._lock:
            if not self._unread:
                return None
            piece = self._unread[0]
            delivery = piece.delivery
            if (
                not piece.ready
                or piece.raw is not None
                or delivery.gone
                or delivery.deadline <= self.clock()
                or not self.wants(delivery.partition.topic)
            ):
                return None
            raw = piece.records.pop(0)
            record: Record = ShareRecord(raw, piece.counts.pop(0), self, delivery, raw)
            if not piece.records:
                self._unread.popleft()
            offset = raw.offset
            delivery.out[offset] = record
            self.exchange.notes[delivery.number, offset] = RecordsHandedOut(delivery.partition, delivery.number, (offset,))
            size = max(raw.serialized_key_size, 0) + max(raw.serialized_value_size, 0)
            self.counts.delivered += 1
            self.counts.bytes += size
            self._taken(1, size + OVERHEAD)
            return record

    def _weed(self, piece: UnreadPiece) -> None:
        """Leave out records whose locks have ended, since others may have them; release those of topics no longer subscribed.

        Those that seem late are released too: if the background went on renewing their locks, nobody would get them.
        """
        delivery = piece.delivery
        if gone := delivery.gone:
            out = piece.keep(lambda record: record.offset not in gone)
            self._taken(len(out), weight(out))
        if piece.records and (delivery.deadline <= self.clock() or not self.wants(delivery.partition.topic)):
            records = piece.keep(lambda _: False)
            offsets = tuple(raw.offset for raw in records)
            self.exchange.order(RecordsDropped(delivery.partition, delivery.number, offsets))
            self._taken(len(offsets), weight(records))
            delivery.gone.update(offsets)  # the background may have lost them just now: they do not count twice
            self._less(delivery, len(offsets))

    # --- deserializers ---------------------------------------------------------------------------------------------------------

    def has_records(self, size: int) -> bool:
        """Whether one of ``size`` unread records or more can be worked on."""
        self.sort()
        with self._lock:
            self._weed_all()
            return size > 0 and bool(self._unread)

    def to_deserialize(self, size: int) -> UnreadPiece | None:
        """Return the first of the next ``size`` unread records that deserializers have to see. They stay unread meanwhile.

        ``None``: there is none, or one that cannot be deserialized comes before.
        """
        self.sort()
        with self._lock:
            self._weed_all()
            for index, piece in enumerate(self._unread):
                if size <= 0 or piece.poison is not None:
                    return None
                if piece.ready:
                    size -= len(piece.records)
                elif len(piece.records) <= size:
                    return piece
                else:
                    first = piece.cut(size)
                    self._unread.insert(index, first)
                    return first
        return None

    def deserialized(self, piece: UnreadPiece, given: list[Raw], result: Deserialized) -> None:
        """Take over what the deserializers made of the first records of a piece, unless the piece has changed meanwhile."""
        with self._lock:
            if not given or piece.records is not given:  # all of it may have been lost before the caller could take it
                return
            index = self._unread.index(piece)
            found: list[UnreadPiece] = []
            if result.done:
                done = piece.cut(result.done)
                done.ready, done.raw, done.records = True, done.records, result.records
                found.append(done)
            if result.poison is not None:
                bad = piece.cut(1)
                bad.poison = result.poison
                found.append(bad)
            if not piece.records:
                del self._unread[index]
            for each in reversed(found):
                self._unread.insert(index, each)

    def take_bad(self) -> tuple[Record, DeserializationError] | None:
        """Hand out the next unread record if it cannot be deserialized; it is still renewed. ``None``: the next one is another."""
        self.sort()
        with self._lock:
            self._weed_all()
            if not self._unread or (poison := self._unread[0].poison) is None:
                return None
            made = self._hand_out(self._unread.popleft(), Keep.HELD)
        return (made[0], poison) if made else None  # its lock may have ended just now

    def _weed_all(self) -> None:
        for piece in self._unread:
            self._weed(piece)
        if not all(piece.records for piece in self._unread):
            self._unread = deque(piece for piece in self._unread if piece.records)

    def _taken(self, records: int, size: int) -> None:
        exchange = self.exchange
        before = exchange.delivered - exchange.taken
        exchange.taken += records
        exchange.taken_bytes += size
        after = before - records
        if before >= self.half > after or after <= 0 < before or (records and exchange.starving):
            exchange.handler.wake_background()

    def wants(self, topic: str) -> bool:
        """Whether the application is subscribed to it."""
        return topic in self.exchange.topics

    def want(self, topics: frozenset[str]) -> None:
        """The application wants these topics from now on: release records of others that were not handed out."""
        self.exchange.topics = topics
        self.sort()
        with self._lock:
            self._weed_all()
        if self.on_unwanted is not None:
            self.on_unwanted()

    # --- acknowledgements of the application -----------------------------------------------------------------------------------

    def acknowledge(self, record: Record, kind: AcknowledgeType, delay: float = 0.0) -> bool:
        """Pass on an acknowledgement. ``False``: the record was acknowledged before, by another thread perhaps."""
        renews = kind is _RENEW
        with self._lock:
            if record._said is not None:
                return False
            if not renews:
                record._said = kind
            if self._closed:
                _lose(record, ConsumerStoppedError("the consumer had stopped before the record was acknowledged"))
                self.counts.refused += not renews
                return True
            if not renews:
                self.counts.unanswered += 1
        delivery, offset, exchange = record._delivery, record._raw.offset, self.exchange  # the raw record's offset is found faster
        order: Order = Acknowledge(delivery.partition, offset, delivery.number, kind)
        if delay > 0:
            order = ReleaseLater(delivery.partition, delivery.number, offset, delay)
            # Another note, taken after the order, would have the lock renewed no more.
            exchange.notes[delivery.number, offset] = Hold(delivery.partition, delivery.number, offset)
        exchange.order(order, urgent=renews)
        if exchange.notes and not renews:  # not before: with neither of them the record would be taken for unread
            exchange.notes.pop((delivery.number, offset), None)
        return True

    @property
    def closed(self) -> bool:
        """The consumer has stopped."""
        return self._closed

    def close(self) -> None:
        """The consumer has stopped. Acknowledgements that came too late or got no answer are taken not to count."""
        self.sort()
        stopped = ConsumerStoppedError("the consumer stopped before the record was acknowledged, or the broker had answered that")
        with self._lock:
            self._closed = True
            for delivery in self._deliveries.values():
                for record in delivery.out.values():
                    _lose(record, stopped)
                delivery.out.clear()
            self.counts.refused += self.counts.unanswered
            self.counts.unanswered = 0

    def enter(self, record: Record) -> bool:
        """A task works on the record: renew its lock automatically, and cancel the block if it is lost. ``False``: it is lost."""
        if self.exchange.reports:
            self.sort()
        now = self.clock()
        if record._lost_by is not None or now >= record._deadline:
            return False
        if not self.held.enter(record):
            _lose(record, ConsumerStoppedError("the consumer stopped before the work on the record began"))
            return False
        delivery, offset = record._delivery, record.offset
        order = Hold(delivery.partition, delivery.number, offset)
        self.exchange.notes[delivery.number, offset] = order  # in any case: a former note may be taken after an order
        # The background looks at a lock once half of its time is over; before that it need not know.
        if now >= record._deadline - self.exchange.lock_seconds / 2:
            self.exchange.order(order)
        return True
