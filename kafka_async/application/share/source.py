"""What processing needs from a share consumer: records, and notice of locks that end.

It takes the place that ``Source`` has for other consumers. There are no positions, no commits and no rebalances: locked records
stay ours when their partition leaves.
"""

import time
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any, Final
from uuid import UUID

from ...background.share.orders import FALL, Flush, in_time
from ...errors import DeserializationError, KafkaError
from ...model import OffsetAndMetadata, TopicPartition
from ...trace import Fault, Listener, RecordFailed
from ...values import define, field
from ..callbacks import Batch
from ..lifecycle.lifecycle import Phase
from ..processing.lanes import Lanes
from ..processing.process_settings import ProcessSettings
from ..processing.retry import exponential
from ..processing.source import Account, Chained, Owning
from .parts import ShareParts
from .record import ShareRecord
from .work import ShareWork

Record = ShareRecord[Any, Any]

_SETTLING = 5.0
"""How many seconds processing waits for answers to acknowledgements at the end."""
_RECORDS: Final = 10
_SECONDS: Final = 0.25
"""The pace is measured over so many records, or over so long in handlers."""
_FASTEST: Final = 1e-9
"""Seconds for a record: 0 would say that the pace is not known."""

_doubled: Final = exponential(1, 60)


def _release_later(record: Record) -> None:
    """Release a record that failed, after 1 s at most if it was delivered once, and twice as long each time.

    What is released at once comes back at once: a dependency that is down for a second would cost a record all its deliveries.
    """
    record.release(delay_ms=1000 * _doubled(record.delivery_count, Exception()))


@define(eq=False)
class ShareSource:
    """One share consumer, as far as processing uses it."""

    parts: ShareParts = field(repr=False)
    _work: ShareWork | None = field(default=None, init=False)
    _owner: Owning | None = field(default=None, init=False)
    _refused: list[tuple[Record, DeserializationError]] = field(factory=list, init=False)
    _paced: tuple[int, float] = field(default=(0, 0.0), init=False)
    """Records settled, and seconds that handlers took for them, when their pace was last looked at."""
    _progressed: tuple[tuple[int, int], float] = field(default=((0, 0), 0.0), init=False)
    """The progress of the handlers when it was last looked at, and since when it has been the same."""
    _stuck: bool = field(default=False, init=False)
    """No handler has begun or ended for so long that the waiting records were released."""
    _lost_at: float = field(default=-inf, init=False)
    """How many records had been settled when some that waited lost their locks."""

    @property
    def clock(self) -> Callable[[], float]:
        runtime = self.parts.runtime
        return time.monotonic if runtime.has_system_clock else runtime.clock  # the same, without two calls in between

    @property
    def trace(self) -> Listener:
        return self.parts.life.trace

    @property
    def commits(self) -> bool:
        return False

    @property
    def commit_interval(self) -> float:
        """How often the pace of the handlers is looked at."""
        return min(5.0, self.parts.exchange.lock_seconds / 4)

    @property
    def retry_backoff(self) -> float:
        return self.parts.config.retry_backoff

    @property
    def longest_drain(self) -> float:
        return 0.0  # nothing has to end before a partition leaves

    @property
    def last_commit(self) -> float:
        return _SETTLING

    @property
    def stopping(self) -> bool:
        return self.parts.guard.lifecycle.phase in (Phase.PARTING, Phase.CLOSED)

    def holds(self, now: float) -> bool:
        return True  # each record has a lock of its own, which is looked at as it is begun

    @property
    def consequence(self) -> str:
        return "its lock is renewed up to max_processing_ms"

    def work(self, settings: ProcessSettings) -> Account:
        self._work = ShareWork(settings.room, Lanes(settings.batch or 1, settings.linger), give_back=_release_later)
        return self._work

    # --- life ------------------------------------------------------------------------------------------------------------------

    def begin(self, chained: Chained, owner: Owning) -> None:
        """Register the call-backs for lost locks, and block other reads."""
        parts = self.parts
        parts.guard.check_readable()
        parts.reader.take_over()
        parts.guard.occupant = self._owner = owner
        parts.custody.on_lost = self._lost
        parts.custody.on_unwanted = self._unwanted
        parts.exchange.demand.pace = 0.0  # of earlier reads
        self._pace()

    def end(self, unfinished: Mapping[TopicPartition, OffsetAndMetadata], *, failed: bool) -> None:
        parts = self.parts
        self.put_back()
        parts.custody.on_lost = parts.custody.on_unwanted = None
        if not failed:
            parts.guard.occupant = None
        demand = parts.exchange.demand
        demand.handlers, demand.pace = 0, 0.0

    def put_back(self) -> None:
        """Release what is not done: others may have it."""
        if self._work is None or self.parts.guard.lifecycle.phase is Phase.CLOSED:
            return
        self.parts.exchange.demand.held_back = True
        for record in self._work.left:
            self._release(record)

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
            self.trace(Fault(now=self.clock(), text=text, error=error))

    # --- locks -----------------------------------------------------------------------------------------------------------------

    def _lost(self, record: Record) -> None:
        """Cancel the handler that works on the record; one that works on several goes on while it still has others."""
        if self._work is not None and self._owner is not None and self._work.lose(record):
            self._lost_at = self._work.settled
            self._owner.give_up_lost()

    def _unwanted(self) -> None:
        """Release waiting records of topics that are no longer subscribed; running handlers go on."""
        if self._work is None or self._owner is None:
            return
        running, wants = self._owner.in_handlers(), self.parts.custody.wants
        waiting = [record for record in self._work.left if record not in running]
        unwanted = [record for record in [*waiting, *(refused for refused, _ in self._refused)] if not wants(record.topic)]
        for record in unwanted:
            self._release(record)
        self._refused = [(record, poison) for record, poison in self._refused if wants(record.topic)]
        if unwanted:
            self._owner.look_again()

    def _release(self, record: Record) -> None:
        if record._said is None:
            record.release()
        if self._work is not None:
            self._work.lose(record)

    # --- reading ---------------------------------------------------------------------------------------------------------------

    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> tuple[Batch, Batch]:
        """Return up to ``limit`` records as soon as there are any, by partition; none if none came within ``seconds``.

        The second value has the same records as they were before deserializers. Raises ``DeserializationError`` for one that
        cannot be deserialized at its last delivery; before that it is released.
        """
        self._pace()
        self._release_waiting()
        if self._stuck:
            limit = 0
        if self._stuck or (self._owner is not None and self._owner.reads_nothing):
            self.parts.exchange.demand.held_back = True
        if not self._refused:
            records = await self.parts.reader.read(seconds, limit, self._refuse)
            if records:
                return self._sorted(records)
        if self._refused:
            record, poison = self._refused.pop(0)
            error = DeserializationError(str(poison), record, poison.field)
            error.__cause__ = poison.__cause__
            raise error
        return {}, {}

    def take(self, limit: int, waiting: Collection[TopicPartition]) -> tuple[Batch, Batch]:
        """As ``read``, but only what is there already, in one step."""
        return self._sorted(self.parts.reader.at_once(limit))

    def _sorted(self, records: list[Record]) -> tuple[Batch, Batch]:
        batch: dict[TopicPartition, list[Any]] = {}
        raw: dict[TopicPartition, list[Any]] = {}
        for record in records:
            partition = record.topic_partition
            batch.setdefault(partition, []).append(record)
            raw.setdefault(partition, []).append(record._raw)
        return batch, raw

    def _refuse(self, record: Record, poison: DeserializationError) -> None:
        if record.delivery_count >= self.parts.settings.bad_record_deliveries:
            self._refused.append((record, poison))
            self.parts.runtime.wake_application()
            return
        record.release()
        self.trace(
            RecordFailed(
                now=self.clock(),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                attempt=0,
                error=poison,
                outcome="released",
                final=False,
            )
        )

    def _pace(self) -> None:
        """Tell the background how many records there are handlers for, and how fast these are."""
        owner, demand, work = self._owner, self.parts.exchange.demand, self._work
        if owner is None or work is None:
            return
        demand.handlers = work.most
        seconds = owner.seconds_in_handlers
        records, spent = work.settled - self._paced[0], seconds - self._paced[1]
        if records >= _RECORDS or (records > 0 and spent >= _SECONDS):
            demand.pace = max(spent / records / owner.settings.concurrency, demand.pace * FALL, _FASTEST)
            self._paced = work.settled, seconds
        # Until the pace is known, nothing waits for a handler: all of it would have to be given back if the first ones are slow.
        ahead = in_time(demand.pace, self.parts.exchange.lock_seconds, work.settled - self._lost_at)
        work.in_time = owner.settings.concurrency * (owner.settings.batch or 1) + ahead

    def _release_waiting(self) -> None:
        """Release the records that wait for a handler if none has begun or ended for the time of a lock: others may have them.

        Until one does, no more are read: they would wait as long, and each time cost one of their deliveries.
        """
        owner, work, now, exchange = self._owner, self._work, self.clock(), self.parts.exchange
        if owner is None or work is None:
            return
        progress, since = self._progressed
        if work.progress != progress or not (work.lanes.some_ready or self._stuck):
            self._progressed, self._stuck = (work.progress, now), False
            return
        waiting = work.waiting(owner.in_handlers(), now - exchange.lock_seconds)
        if self._stuck or not waiting or now < since + exchange.lock_seconds:
            return
        for record in waiting:
            self._release(record)
        self._stuck, self._lost_at = True, work.settled
        exchange.demand.pace = max(exchange.demand.pace, exchange.lock_seconds)

    # --- what share groups do not have -----------------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}

    def position(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return None

    def paused(self) -> Collection[TopicPartition]:
        return ()

    def is_missing(self, topic: str) -> bool:
        return False

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        return None  # each lock knows its topic

    def go_back(self, partition: TopicPartition, offset: int | None) -> None: ...

    def sought(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}

    def assignment(self) -> Collection[TopicPartition]:
        return ()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata | None], KafkaError | None]:
        return {}, None

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID | None]:
        return {}
