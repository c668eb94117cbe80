"""How records of a share group that are done come to count: by acknowledgements. And what becomes of those whose locks end.

There are no positions, no commits and no rebalances: locked records stay ours when their partition leaves.
"""

import time
from collections.abc import Collection
from math import inf
from typing import Any, Final

from ...background.share.orders import Flush, in_time
from ...errors import KafkaConfigurationError, KafkaError
from ...trace import Fault
from ...values import define, field
from ..lifecycle.lifecycle import Phase
from ..processing.bulkheads import limited
from ..processing.feed import Feed
from ..processing.handling import Handling
from ..processing.lanes import Lanes
from ..processing.limits import behind_limits
from ..processing.process_settings import ProcessSettings
from ..processing.processing import Processing
from ..processing.redelivery import WRITTEN_TO, Redelivery
from ..processing.retry import exponential
from ..processing.router import NOT_READ
from ..processing.run_state import Bench, RunState
from .pace import Measurements
from .parts import ShareParts
from .source import Record, ShareSource
from .work import ShareWork

_SETTLING: Final = 5.0
"""How many seconds processing waits for answers to acknowledgements at the end."""
_LONGEST: Final = 5.0
"""Seconds between two looks at the pace, at most."""

_doubled: Final = exponential(1, 60)


def _release_later(record: Record) -> None:
    """Release a record that failed, after 1 s at most if it was delivered once, and twice as long each time.

    What is released at once comes back at once: a dependency that is down for a second would cost a record all its deliveries.
    """
    record.release(delay_ms=1000 * _doubled(record.delivery_count, Exception()))


@define(eq=False)
class LockSettlement:
    """Acknowledges what is done, releases what will not be done here, and gives up what was lost."""

    parts: ShareParts = field(repr=False)
    work: ShareWork
    source: ShareSource = field(repr=False)
    handling: Handling = field(repr=False)
    feed: Feed = field(repr=False)
    run: RunState = field(repr=False)
    redelivery: Redelivery | None = field(default=None, repr=False)
    look_at: float = field(default=0.0, init=False)
    """When reads end at the latest, to look at the pace of the handlers."""
    _paced: tuple[int, float] = field(default=(0, 0.0), init=False)
    """Records settled, and seconds that handlers took for them, when their pace was last looked at."""
    _measurements: Measurements = field(init=False, repr=False)
    _lost_at: float = field(default=-inf, init=False)
    """How many records had been settled when some that waited lost their locks."""

    def __attrs_post_init__(self) -> None:
        self._measurements = self.parts.reader.pace.measurements

    @property
    def consequence(self) -> str:
        """What happens if a record is not done for long."""
        return "its lock is renewed up to max_processing_ms"

    @property
    def last(self) -> float:
        """Seconds that the answers may take at the end."""
        return _SETTLING

    @property
    def is_done(self) -> bool:
        """Whether everything that was received is done."""
        return self.work.held <= 0

    # --- life ------------------------------------------------------------------------------------------------------------------

    async def begin(self, processing: Processing) -> None:
        """Register the call-backs for lost locks, and block other reads."""
        parts = self.parts
        parts.guard.check_readable()
        parts.guard.occupant = processing  # before anything is waited for: another processing may be about to begin
        try:
            await self._check_redelivery(parts.exchange.topics)
        except BaseException:
            self.run.over = True
            parts.guard.occupant = None
            raise
        router, topics = self.handling.settings.router, parts.exchange.topics
        if router is not None and topics and (unread := router.unread(topics, topics.__contains__)):
            self.run.trace(Fault(now=self.run.clock(), text=NOT_READ.format(", ".join(unread))))
        parts.reader.take_over()  # not before: if this is refused, reads that wait go on
        parts.custody.on_lost = self._lost
        parts.custody.on_unwanted = self._unwanted
        self._measurements.forget()  # of earlier reads
        self.source.on_read = self._attend
        self._pace()
        self.look()

    async def _check_redelivery(self, topics: Collection[str]) -> None:
        """Raise ``KafkaConfigurationError`` if records would not wait until they are due, and as ``check_topics`` does."""
        if self.redelivery is None:
            return
        if early := sorted(filter(self.redelivery.serves, topics)):
            text = "a share group does not wait until a record is due; read retry topics with a KafkaConsumer"
            raise KafkaConfigurationError(f"{text}: {', '.join(early)}")
        await self.parts.calls.check_topics(frozenset(self.redelivery.topics(topics)), WRITTEN_TO)

    def look(self) -> None:
        """Have the next reads end in time to look at the pace again."""
        now = self.run.clock()
        if now >= self.look_at:
            self.look_at = now + min(_LONGEST, self.parts.exchange.lock_seconds / 4)

    def _attend(self) -> None:
        """Tell the background how fast handlers are, and give back what they do not get to."""
        self._pace()
        self._release_waiting(self.run.clock())

    async def settle(self) -> None:
        """Wait until the acknowledgements are answered."""
        parts = self.parts
        if parts.guard.lifecycle.phase is not Phase.RUNNING:
            return
        try:
            until = parts.runtime.clock() + _SETTLING
            await parts.life.ask(lambda call: Flush(call=call, tells=False), until)
        except KafkaError as error:
            text = "not all acknowledgements have been answered; trying again"
            self.run.trace(Fault(now=self.run.clock(), text=text, error=error))

    async def finish(self) -> None:
        """Release what is not done, since others may have it, and wait until the acknowledgements are answered."""
        self._put_back()
        await self.settle()

    def end(self, *, failed: bool) -> None:
        """Give the consumer back."""
        self.run.over = True
        self._put_back()
        self.parts.custody.on_lost = self.parts.custody.on_unwanted = None
        if not failed:
            self.parts.guard.occupant = None
        self.parts.exchange.demand.handlers = 0
        self._measurements.forget()

    def _put_back(self) -> None:
        if self.parts.guard.lifecycle.phase is Phase.CLOSED:
            return
        self.parts.exchange.demand.held_back = True
        for record in self.work.left:
            self._release(record)

    # --- locks -----------------------------------------------------------------------------------------------------------------

    def _lost(self, record: Record) -> None:
        """Cancel the handler that works on the record; one that works on several goes on while it still has others."""
        if self.work.lose(record):
            self._lost_at = self.work.settled
            self.handling.cancel_gone()
            self.run.change()

    def _unwanted(self) -> None:
        """Release waiting records of topics that are no longer subscribed; running handlers go on."""
        running, wants, source = self.handling.take_in_ended(), self.parts.custody.wants, self.source
        waiting = [record for record in self.work.left if record not in running]
        unwanted = [record for record in [*waiting, *(refused for refused, _ in source.poisoned)] if not wants(record.topic)]
        for record in unwanted:
            self._release(record)
        source.poisoned = [(record, poison) for record, poison in source.poisoned if wants(record.topic)]
        if unwanted:
            self.feed.interrupt()

    def _release(self, record: Record) -> None:
        if record._said is None:
            record.release()
        self.work.lose(record)

    # --- pace ------------------------------------------------------------------------------------------------------------------

    def _pace(self) -> None:
        """Tell the background how many records there are handlers for, and how fast these are."""
        demand, work, settings = self.parts.exchange.demand, self.work, self.handling.settings
        demand.handlers = work.most
        seconds = self.handling.counts.seconds_in_handlers
        records, spent = work.settled - self._paced[0], seconds - self._paced[1]
        if self._measurements.add(records, spent, settings.concurrency):
            self._paced = work.settled, seconds
        # Until the pace is known, nothing waits for a handler: all of it would have to be given back if the first ones are slow.
        ahead = in_time(demand.pace, self.parts.exchange.lock_seconds, work.settled - self._lost_at)
        work.in_time = settings.concurrency * (settings.batch or 1) + ahead

    def _release_waiting(self, now: float) -> None:
        """Release the records that wait for a handler if none has begun or ended for the time of a lock: others may have them.

        Until one does, no more are read: they would wait as long, and each time cost one of their deliveries.
        """
        work, exchange, barrier = self.work, self.parts.exchange, self.handling.barrier
        if barrier is not None and barrier.is_down:
            return  # others are no better off; locks are renewed as long as may be
        running = self.handling.take_in_ended()
        since = work.stuck_since(now, self.handling.laid_out)
        if since is None or work.stuck or now < since + exchange.lock_seconds:
            return
        self.handling.take_back()  # a thread that ends now begins none that others may have
        waiting = work.waiting(running | self.handling.under_way(), now - exchange.lock_seconds)
        if not waiting:
            return
        for record in waiting:
            self._release(record)
        work.stuck, self._lost_at = True, work.settled
        self._measurements.stuck_for(exchange.lock_seconds)


def processing_of_shared(parts: ShareParts, handler: Any, settings: ProcessSettings) -> Processing:
    """Put together what processes the records of a share consumer."""
    settings, redelivery = settings.for_group(parts.config, lambda: time.time() * 1000)
    handler, settings = settings.around(handler, parts.config)
    runtime = parts.runtime
    clock = time.monotonic if runtime.has_system_clock else runtime.clock  # the same, without two calls in between
    run = RunState(clock, parts.life.trace)
    work = ShareWork(settings.room, Lanes(settings.batch or 1, settings.linger), give_back=_release_later)
    work.lanes.due_sooner = run.change
    source = ShareSource(parts, work, run)
    feed = Feed(source, work, run, Bench())
    queue, barrier = behind_limits(limited(work, settings), settings.limits, settings.concurrency, run)
    source.barrier = barrier
    handling = Handling(handler, settings, queue, run, feed, None, barrier)
    return Processing(settings, work, run, feed, handling, LockSettlement(parts, work, source, handling, feed, run, redelivery))
