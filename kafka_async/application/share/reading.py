"""Read calls of a share consumer: waiting for records, and handing them over in one synchronous step.

A cancellation leaves unread records where they were, those that deserializers are at work on included.
"""

from collections.abc import Callable
from math import inf
from typing import Final, TypeAlias

from ...background.boundary import EventHandler
from ...errors import DeserializationError, IllegalStateError
from ...events import ShareEvent
from ...model import TopicPartition
from ...values import define, field
from ..callbacks import Deserialized, Deserializers
from ..inbox import Inbox
from ..lifecycle.lifecycle import Lifecycle, Phase
from ..lifecycle.runtime import Runtime
from ..reading.in_vain import InVain
from ..reading.reader import TAKEN_OVER
from .custody import Custody, Raw, Record
from .pace import Pace

Refused: TypeAlias = Callable[[Record, DeserializationError], None]

TURN: Final = 0.02
"""Seconds for which reads that find records may go on without letting others run on the event loop."""

_REMEMBERED: Final = 1000
"""So many records that were reported and given back are known: of several members, another one may reject them."""


@define(eq=False)
class ShareReader:
    """Carries out read calls."""

    lifecycle: Lifecycle
    handler: EventHandler[ShareEvent] = field(repr=False)
    runtime: Runtime = field(repr=False)
    inbox: Inbox = field(repr=False)
    custody: Custody
    deserializers: Deserializers | None
    bad_record_deliveries: int
    in_vain: InVain
    _turn_ends: float = field(default=0.0, init=False)
    pace: Pace = field(init=False, repr=False)
    _deserializing: bool = field(default=False, init=False)
    _said: dict[tuple[TopicPartition, int], int] = field(factory=dict, init=False)
    """Records that were reported, since they cannot be deserialized: at which delivery. The oldest come first."""

    _era: int = field(default=0, init=False)
    """How often somebody else took over."""

    def __attrs_post_init__(self) -> None:
        self.pace = Pace(self.custody.exchange)

    def take_over(self) -> None:
        """Somebody reads alone from now on: calls that wait raise ``IllegalStateError``, instead of taking records beside that."""
        self._era += 1
        self.runtime.wake_application()

    async def read(self, seconds: float, size: int, refused: Refused | None = None) -> list[Record]:
        """Return up to ``size`` records as soon as there are any; none if none came in time.

        ``refused`` is called with records that cannot be deserialized. Their locks are renewed automatically, as are those of the
        records that are returned. Without it such records are given back, and their error is raised once.
        """
        clock, signal, handler = self.runtime.clock, self.runtime.signal, self.handler
        now, era = clock(), self._era
        until = now + seconds
        handler.polled_at = now
        demand = self.custody.exchange.demand
        self.pace.begin(now)
        records: list[Record] = []
        if size:
            demand.held_back = False
            demand.asked, demand.missed = size, 0
            demand.read_at = now
        # No call comes between these and what undoes them, so no signal handler either.
        handler.reading += 1
        demand.wanted += size
        try:
            if now >= self._turn_ends:
                await signal.checkpoint()
                self._turn_ends = clock() + TURN
            waits = False
            while True:
                ticket = signal.ticket()
                self._look()
                if era != self._era:
                    raise IllegalStateError(TAKEN_OVER)
                records = await self._take(size, refused)
                if records:
                    return records
                left = until - clock()
                if left <= 0:
                    if size and not waits:
                        demand.missed = size
                        handler.wake_background()
                    return []
                if not waits:
                    waits = True
                    handler.wake_background()  # which reads on only for somebody who wants records
                await self._wait(ticket, left)
        finally:
            handler.polled_at = now = clock()  # first, as the next: a thread of the background may look between these
            if size:
                demand.read_at = now
            handler.reading -= 1
            demand.wanted -= size
            self.pace.end(now, len(records))

    async def _wait(self, ticket: int, seconds: float) -> None:
        look_in = self.in_vain.look(self.runtime.clock(), nothing=not self.custody.exchange.topics)
        try:
            await self.runtime.signal.wait(ticket, min(seconds, look_in))
        finally:
            self.in_vain.ended_at = self.runtime.clock()

    def _look(self) -> None:
        """End if stopped, and raise what the background reports."""
        self.lifecycle.check_readable()
        self.inbox.sort()
        self.inbox.reported.raise_any()
        self.custody.sort()
        self.custody.report_lost()

    def at_once(self, size: int) -> list[Record]:
        """As ``read`` for records that need no deserializers, without waiting for any."""
        if self.deserializers is not None or self.lifecycle.phase is not Phase.RUNNING:
            return []
        self.custody.sort()
        self.custody.exchange.demand.read_at = self.runtime.clock()
        return self.custody.hand_out(size, kept=True)

    def at_hand(self, *, fairly: bool) -> Record | None:
        """As ``read`` for one record that needs nothing but to be handed out; ``None``: ``read`` has to look.

        ``fairly``: others on the event loop are to run before.
        """
        if self.deserializers is not None or not self.inbox.is_empty or self.custody.exchange.reports:
            return None
        now = self.runtime.clock()
        if fairly and now >= self._turn_ends:
            return None
        self.handler.polled_at = self.custody.exchange.demand.read_at = now
        return self.custody.hand_out_one()

    async def _take(self, size: int, refused: Refused | None) -> list[Record]:
        custody, kept = self.custody, refused is not None
        if self.deserializers is None:
            return custody.hand_out(size, kept=kept)
        # If another task is at it, it wakes us. A wake-up without need would have this one look again at once, for ever.
        if self._deserializing or not custody.has_records(size):
            return []
        self._deserializing = True
        try:
            while True:
                failed = await self._deserialize(self.deserializers, size)
                self.lifecycle.check_readable()
                records = custody.hand_out(size, kept=kept)
                if records:
                    return records
                if failed is not None:
                    raise failed
                bad = custody.take_bad()
                if bad is None:
                    return []
                self._refuse(*bad, refused)
        finally:
            self._deserializing = False
            self.runtime.wake_application()

    async def _deserialize(self, deserializers: Deserializers, size: int) -> Exception | None:
        """Make the next unread records ready; they stay unread. Return what a deserializer that may be asked again raised."""
        while (piece := self.custody.to_deserialize(size)) is not None:
            given, done = piece.records, list[Raw]()
            try:
                result = await deserializers.apply(list(given), done)
            except BaseException:  # cancelled: what is done by then need not be done again
                self.custody.deserialized(piece, given, Deserialized(records=done, done=len(done)))
                raise
            self.custody.deserialized(piece, given, result)
            if result.retriable is not None:
                return result.retriable
        return None

    def _refuse(self, record: Record, poison: DeserializationError, refused: Refused | None) -> None:
        """A record cannot be deserialized: pass it to ``refused``, or give it back and raise its error, once."""
        if refused is not None:
            refused(record, poison)
            return
        where, count = (record.topic_partition, record.offset), record.delivery_count
        said_at = self._said.pop(where, inf)
        if count >= self.bad_record_deliveries:
            record.reject()
        else:
            record.release()
            self._said[where] = count
            if len(self._said) > _REMEMBERED:
                del self._said[next(iter(self._said))]
        # The same record comes back with a higher count. Otherwise it may be another one with its offset: the topic was made anew,
        # or the group was set back. Brokers forget a count if the leader moves: that record is reported again.
        if count <= said_at:
            raise poison
