"""Read calls of a share consumer: waiting for records, and handing them over in one synchronous step.

Decides: when a read ends. Owns: the mark that a task is preparing records. A cancellation leaves unread records where they were.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from ...background.boundary import EventHandler
from ...errors import DeserializationError
from ...model import TopicPartition
from ...values import define, evolve, field
from ..callbacks import Deserialized, Deserializers
from ..inbox import Inbox
from ..lifecycle import Lifecycle, Phase
from ..runtime import Runtime
from .custody import Custody, ParcelPiece, Record
from .pace import Pace

Refused: TypeAlias = Callable[[Record, DeserializationError], None]

TURN: Final = 0.02
"""Seconds for which reads that find records may go on without letting others run on the event loop."""


@define(eq=False)
class ShareReader:
    """Carries out read calls."""

    lifecycle: Lifecycle
    handler: EventHandler = field(repr=False)
    runtime: Runtime = field(repr=False)
    inbox: Inbox = field(repr=False)
    custody: Custody
    deserializers: Deserializers | None
    bad_record_deliveries: int
    _turn_ends: float = field(default=0.0, init=False)
    _pace: Pace = field(init=False, repr=False)
    _preparing: bool = field(default=False, init=False)
    _said: set[tuple[TopicPartition, int]] = field(factory=set, init=False)
    """Records that were reported before, since they cannot be deserialized."""

    def __attrs_post_init__(self) -> None:
        self._pace = Pace(self.custody.exchange)

    async def read(self, seconds: float, size: int, refused: Refused | None = None) -> list[Record]:
        """Return up to ``size`` records as soon as there are any; none if none came in time.

        ``refused`` is called with records that cannot be deserialized. Their locks are renewed automatically, as are those of the
        records that are returned. Without it such records are given back, and their error is raised once.
        """
        clock, signal, handler = self.runtime.clock, self.runtime.signal, self.handler
        now = clock()
        until = now + seconds
        handler.polled_at = now
        handler.reading += 1
        demand = self.custody.exchange.demand
        demand.wanted += size
        self._pace.begin(now)
        records: list[Record] = []
        if size:
            demand.held_back = False
            demand.asked, demand.missed = size, 0
        try:
            if now >= self._turn_ends:
                await signal.checkpoint()
                self._turn_ends = clock() + TURN
            waits = False
            while True:
                ticket = signal.ticket()
                self._look()
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
                await signal.wait(ticket, left)
        finally:
            handler.reading -= 1
            demand.wanted -= size
            handler.polled_at = now = clock()
            self._pace.end(now, len(records))

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
        return self.custody.hand_out(self.custody.cut(size), kept=True)

    def at_hand(self, *, fairly: bool) -> Record | None:
        """As ``read`` for one record that needs nothing but to be handed out; ``None``: ``read`` has to look.

        ``fairly``: others on the event loop are to run before.
        """
        if self.deserializers is not None or not self.inbox.is_empty or self.custody.exchange.reports:
            return None
        now = self.runtime.clock()
        if fairly and now >= self._turn_ends:
            return None
        self.handler.polled_at = now
        return self.custody.hand_out_one()

    async def _take(self, size: int, refused: Refused | None) -> list[Record]:
        if self.deserializers is None:
            return self.custody.hand_out(self.custody.cut(size), kept=refused is not None)
        if self._preparing:
            return []  # another task is preparing some; it wakes us
        pieces = self.custody.cut(size)
        if not pieces:
            return []
        self._preparing = True
        try:
            ready = await self._deserialize(self.deserializers, pieces, refused)
        except BaseException:
            self.custody.put_back(pieces)
            raise
        finally:
            self._preparing = False
            self.runtime.wake_application()
        self.custody.put_back(pieces)
        self.lifecycle.check_readable()
        return self.custody.hand_out(ready, kept=refused is not None)

    async def _deserialize(
        self, deserializers: Deserializers, pieces: list[ParcelPiece], refused: Refused | None
    ) -> list[ParcelPiece]:
        """Return what can be handed out; the rest stays in ``pieces``. A bad record at the front is given back and raised."""
        ready: list[ParcelPiece] = []
        for piece in pieces:
            result: Deserialized = await deserializers.apply(list(piece.records))
            if result.done:
                done = piece.cut(result.done)
                ready.append(evolve(done, records=result.records, raw=done.records))
            if result.poison is None and result.retriable is None:
                continue
            if not ready:
                self._give_back(piece, result, refused)
            break
        return ready

    def _give_back(self, piece: ParcelPiece, result: Deserialized, refused: Refused | None) -> None:
        """The first record cannot be deserialized: report it."""
        if result.retriable is not None:
            raise result.retriable
        bad = piece.cut(1)
        if refused is not None and result.poison is not None:
            for record in self.custody.hand_out([bad], kept=True):
                refused(record, result.poison)
            return
        where, reject = (bad.parcel.partition, bad.records[0].offset), bad.counts[0] >= self.bad_record_deliveries
        self.custody.drop_bad(bad, reject=reject)
        first = where not in self._said
        (self._said.discard if reject else self._said.add)(where)  # what is rejected does not come again
        if first and result.poison is not None:
            raise result.poison
