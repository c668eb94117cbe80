"""The read calls: waiting for records and handing them over.

Decides: the order of things inside a read (errors, events of the background, records) and when the event loop gets a turn.
Owns: the batch that an iteration is in the middle of. The hand-over of records is one synchronous step: a cancellation before
it takes nothing, and none can come between it and the return (promise 2). Deserializers and interceptors may await; what they
were working on is put back when they are cancelled.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from math import inf
from typing import Any, Final, TypeVar

from attrs import define, field

from ..background.event_handler import EventHandler
from ..errors import DeserializationError
from ..model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..records import ColumnBuilder
from .callbacks import Batch, Deserializers, settled
from .iteration import HANDOUT, HandOut
from .metrics import Idle
from .runtime import Runtime
from .unread import Hold, Unread

T = TypeVar("T")
Record = ConsumerRecord[Any, Any]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]

TURN: Final = 0.02
"""Seconds for which reads that find data in the buffer may go on without letting others run on the event loop."""


PACE: Final = 0.2
"""Seconds that an application should take for one batch of an iteration."""


def record_limit(max_records: Any) -> int:
    """Return how many records a read may return. Raises ``ValueError`` for anything but an integer of at least 1."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
        raise ValueError(f"max_records={max_records!r}: expected an integer of at least 1")
    return max_records


def _checked(batch: Any, interceptor: Any, given: Batch) -> Batch:
    """Raise ``TypeError`` for an interceptor that forgets to return the records, or moves them elsewhere: they would be lost."""
    if not isinstance(batch, dict):
        raise TypeError(f"{interceptor!r}.on_consume() returned {batch!r}: expected records by partition")
    if strange := batch.keys() - given.keys():
        raise TypeError(f"{interceptor!r}.on_consume() returned records of {strange}: expected only partitions it was given")
    return batch


@define(eq=False)
class _Iteration:
    """Where the records that are handed out one by one come from."""

    taken: Mapping[TopicPartition, list[Record]] = field(factory=dict)
    """The batch before deserializers and interceptors saw it."""
    holds: Mapping[TopicPartition, Hold] = field(factory=dict)


@define(eq=False)
class Reader:
    """Carries out read calls on the unread records."""

    unread: Unread
    runtime: Runtime
    deserializers: Deserializers | None
    interceptors: tuple[Any, ...]
    entered: Callable[[float], Offsets | None]
    """Told that a read call begins: what was handed out before it is consumed. Returns offsets that were just committed."""
    committed: Callable[[Offsets], Awaitable[None]]
    """Tells interceptors of committed offsets."""
    commit_due_at: Callable[[], float]
    """When auto-commit has to be looked at while a call waits."""
    commit_due: Callable[[float], Offsets | None]
    """Looks at it; returns offsets that were just committed."""
    quiet: Callable[[], bool]
    """Whether the background has said nothing that must be dealt with before records are read."""
    before_read: Callable[[], Awaitable[None]]
    """Raises what the background has to report and applies what it proposes."""
    held: Callable[[], bool]
    """Whether nothing may be handed out, because the partitions may be somebody else's by now."""
    handler: EventHandler
    idle: Idle
    """Told when a read call waits."""
    max_poll_records: int
    handout: HandOut[Record] = field(factory=lambda: HANDOUT(), init=False)
    """What iterations hand out, record by record."""
    _iteration: _Iteration = field(factory=_Iteration, init=False)
    _turn_ends: float = field(default=0.0, init=False)
    _pace: int = field(default=8, init=False)
    _filled_at: float = field(default=0.0, init=False)
    _decoding: bool = field(default=False, init=False)

    # --- batches ---------------------------------------------------------------------------------------------------------------

    async def batch(self, only: Collection[TopicPartition], seconds: float, max_records: int) -> Batch:
        """Return up to ``max_records`` records by partition, as soon as there are any; ``{}`` where none came in time."""
        self.give_back()
        if self.deserializers is None and not self.interceptors and (taken := self._at_once(only, max_records)):
            return taken
        return (await self._read(only, seconds, max_records))[0]

    def _at_once(self, only: Collection[TopicPartition], max_records: int) -> Batch | None:
        """Return what is in the buffer, the way ``_until`` would, where nothing else is to be done and it is not our turn to wait.

        With data in the buffer a read is this one step: no event, no task switch, no system call.
        """
        now = self.runtime.clock()
        if now >= self._turn_ends or not self.quiet() or self.unread.troubled or self.held():
            return None
        self.entered(now)
        return self.unread.take(max_records, only)

    async def _read(self, only: Collection[TopicPartition], seconds: float, max_records: int) -> tuple[Batch, Batch]:
        """Return the records for the application, and the same as they were taken."""
        if self.deserializers is None and not self.interceptors:
            taken = await self._until(only, seconds, lambda: self.unread.take(max_records, only)) or {}
            return taken, taken
        deadline = self.runtime.clock() + seconds
        while True:
            left = deadline - self.runtime.clock()
            taken = await self._until(only, left, lambda: {} if self._decoding else self.unread.take(max_records, only)) or {}
            if not taken:
                return {}, {}
            batch = await self._call_back(taken)
            if batch:
                return batch, taken

    async def columns(
        self,
        only: Collection[TopicPartition],
        seconds: float,
        max_records: int,
        into: ColumnBuilder,
        ended: Callable[[], bool] = lambda: False,
    ) -> int:
        """Append up to ``max_records`` records to ``into`` as soon as there are any; return how many.

        ``ended`` says after a look that found none whether waiting for more is in vain.
        """
        self.give_back()
        take, before = self.unread.take_columns, into.rows
        await self._until(only, seconds, lambda: bool((not self._decoding and take(max_records, into, only)) or ended()))
        return into.rows - before

    async def _until(self, only: Collection[TopicPartition], seconds: float, attempt: Callable[[], T]) -> T | None:
        """Return what ``attempt`` finds, waiting for it up to ``seconds``."""
        runtime, unread = self.runtime, self.unread
        deadline = runtime.clock() + seconds
        await self._tell(self.entered(runtime.clock()))
        handed_out = unread.consumed_records
        await self._take_turn()
        unread.unpark(only)
        while True:
            ticket = runtime.signal.ticket()
            await self.before_read()
            self._raise_failure(only)
            if not self.held() and (found := attempt()):
                return found
            self._raise_failure(only)
            remaining = deadline - runtime.clock()
            # What another task was handed out since is not consumed yet: its own next call commits it (promise 1).
            commit_in = self.commit_due_at() - runtime.clock() if handed_out == unread.consumed_records else inf
            if commit_in <= 0:
                await self._tell(self.commit_due(runtime.clock()))
                continue
            if remaining <= 0:
                await self._take_turn(now=True)
                return None
            if unread.starved:
                unread.drop_others(only or self._unpaused())
            self.handler.reading += 1
            self.idle.enter(runtime.clock())
            try:
                await runtime.signal.wait(ticket, min(remaining, commit_in))
            finally:
                self.handler.reading -= 1
                self.handler.polled_at = runtime.clock()
                self.idle.leave(self.handler.polled_at)
            self._turn_ends = self.handler.polled_at + TURN

    async def _tell(self, achieved: Offsets | None) -> None:
        if achieved:
            await self.committed(achieved)

    def _raise_failure(self, only: Collection[TopicPartition]) -> None:
        failure = self.unread.failure(only)
        if failure is not None:
            raise failure

    def _unpaused(self) -> Collection[TopicPartition]:
        return [partition for partition, entry in self.unread.partitions.items() if not entry.paused]

    async def _take_turn(self, *, now: bool = False) -> None:
        """Let others run if reads have kept the event loop for a while."""
        time = self.runtime.clock()
        if now or time >= self._turn_ends:
            await self.runtime.signal.checkpoint()
            self._turn_ends = self.runtime.clock() + TURN

    async def _call_back(self, taken: Batch) -> Batch:
        """Deserialize and intercept. Whatever interrupts it, what is not delivered is put back, in order."""
        holds = self.unread.hold(taken)
        self._decoding = True  # another task must not take the records behind these meanwhile: order within a partition
        try:
            batch, refused = await self._deserialize(taken)
            for interceptor in self.interceptors:
                if batch:
                    batch = _checked(await settled(interceptor.on_consume(dict(batch))), interceptor, batch)
        except BaseException:
            self.unread.put_back(taken, holds)
            raise
        finally:
            self._decoding = False
            self.runtime.wake_application()
        valid = self.unread.deliver(holds)
        for partition, (rest, error) in refused.items():
            if partition in valid:
                self.unread.put_back({partition: rest}, holds)
                self.unread.refuse(partition, error.record.offset, error)
        batch = {partition: records for partition, records in batch.items() if records and partition in valid}
        if not batch:
            self._raise_failure(tuple(valid & refused.keys()))
        return batch

    async def _deserialize(self, taken: Batch) -> tuple[Batch, dict[TopicPartition, tuple[list[Record], DeserializationError]]]:
        """Return what could be deserialized, and per partition the records behind a poison one with the error about it."""
        if self.deserializers is None:
            return taken, {}
        batch: Batch = {}
        refused: dict[TopicPartition, tuple[list[Record], DeserializationError]] = {}
        for partition, records in taken.items():
            done, error = await self.deserializers.apply(records)
            if done:
                batch[partition] = done
            if error is not None:
                refused[partition] = (records[len(done) + 1 :], error)
        return batch, refused

    # --- one by one ------------------------------------------------------------------------------------------------------------

    async def one(self, only: Collection[TopicPartition]) -> Record:
        """Return the next record, waiting for it as long as it takes."""
        if only:
            while True:
                batch = await self.batch(only, 3600.0, 1)
                for records in batch.values():
                    return records[0]
        while not self.handout.left:
            await self.fill()
        return self.handout.take()

    async def fill(self) -> None:
        """Wait for records to iterate over: as many as the application worked off in about ``PACE`` before.

        A slow application thereby comes back often enough for commits and rebalances, and pays nothing per record for it.
        """
        now = self.runtime.clock()
        took = now - self._filled_at
        self._pace = min(self.max_poll_records, self._pace * 2) if took < PACE else max(1, int(self._pace * PACE / took))
        batch, taken = await self._read((), 3600.0, self._pace)
        if self.handout.left:  # another task was faster; its records come before these
            self.unread.put_back(taken, self.unread.holds(taken))
            return
        lists = list(batch.values())
        self.handout.load(lists[0] if len(lists) == 1 else [record for part in lists for record in part])
        self._iteration = _Iteration(taken, self.unread.holds(taken))
        self._filled_at = self.runtime.clock()

    def progress(self) -> int:
        """Return a number that changes while the application works through a batch record by record."""
        return self.handout.left

    @property
    def current(self) -> Record | None:
        """The record that an iteration handed out last, while it is the last thing that was handed out."""
        return self.handout.last

    def give_back(self) -> None:
        """Put back what an iteration took and did not hand out yet, so that positions and other reads are exact."""
        iteration, self._iteration = self._iteration, _Iteration()
        first: dict[TopicPartition, int] = {}
        for record in self.handout.drain():
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        rest = {tp: [record for record in iteration.taken[tp] if record.offset >= offset] for tp, offset in first.items()}
        if rest:
            self.unread.put_back(rest, iteration.holds)
