"""Which offsets are committed, and when they are auto-committed: by interval, before partitions leave, and at the end.

Decides: when a commit is due, which consumed offsets are new, and which records are not consumed yet when the consumer stops.
Owns: the commits under way, and which task holds which records. Must never read a position later than at the entry of a read call,
before anything new is handed out (promise 1): a loop that reads positions while the application works commits records that are not
processed yet.

Auto-commit never moves a partition's committed offset back: each cursor keeps the last committed offset, and only offsets past it
are new. A seek forgets it, and so does a position that the background had to reset. A commit by the application always counts.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ..config import ConsumerConfig
from ..errors import CommitFailedError, KafkaError
from ..events import Call, CommitOffsets, Refusals
from ..model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..trace import Fault, Listener, Recovered
from ..values import define, field, frozen
from .arguments import one_partition
from .callbacks import settled
from .cursor import Cursor, PartitionCustody
from .iteration import HandOut
from .outbox import Outbox
from .unread import Unread

if TYPE_CHECKING:
    from .runtime import Runtime

PATIENCE: Final = 0.01
"""Seconds for which a read call waits for the commit that precedes a revocation, before it goes on with the partitions that stay.

Not zero: a slow application would work through another batch before it gives up what another member waits for.
"""

MOST_HOLDERS: Final = 64
"""Number of tasks and threads whose records are tracked, above which those that have ended are dropped."""

AUTO_COMMIT: Final = "auto-commit"
"""The outage while the cluster refuses auto-commits by interval."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def refusal(refused: Refusals) -> KafkaError:
    """Return the error for a commit in which these partitions were refused; it names those that are not assigned to us (any
    more).
    """
    lost = tuple(sorted(partition for partition, error in refused.items() if isinstance(error, CommitFailedError)))
    first = next(iter(refused.values()))
    if not lost:
        return first
    names = ", ".join(map(one_partition, lost))
    failed = CommitFailedError(f"not assigned to this member (any more), so their offsets were not committed: {names}", lost)
    failed.__cause__ = next((error for error in refused.values() if not isinstance(error, CommitFailedError)), first)
    return failed


def _cause(refused: Refusals) -> KafkaError:
    """Return the one error of a whole commit, or else what ``refusal`` does."""
    first, *others = refused.values()
    return first if all(error is first for error in others) else refusal(refused)


@define(eq=False)
class Ledger:
    """The offsets that this consumer has committed."""

    unread: Unread = field(repr=False)
    runtime: "Runtime" = field(repr=False)
    interceptors: tuple[Any, ...]
    trace: Listener = field(repr=False)
    _refused: set[TopicPartition] = field(factory=set, init=False)
    """Partitions of ours whose last auto-commit was refused."""

    def fresh(self, consumed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the consumed offsets that are past the committed ones."""
        return {partition: offset for partition, offset in consumed.items() if self._is_fresh(partition, offset)}

    def _is_fresh(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        cursor = self.unread.partitions.get(partition)
        if cursor is None:
            return True
        return offset.offset > (-1 if cursor.committed is None else cursor.committed) and offset.offset >= (cursor.attempted or 0)

    def attempt(self, offsets: Offsets) -> Offsets:
        """Remember that ``offsets`` are about to be committed, and return them."""
        for partition, offset in offsets.items():
            cursor = self.unread.partitions.get(partition)
            if cursor is not None:
                cursor.attempted = offset.offset
        return offsets

    def book(self, offsets: Offsets, refused: Refusals) -> Offsets:
        """Remember what of ``offsets`` was committed, and return it."""
        achieved = {partition: offset for partition, offset in offsets.items() if partition not in refused}
        for partition, offset in achieved.items():
            cursor = self.unread.partitions.get(partition)
            if cursor is not None:
                cursor.committed = offset.offset
        return achieved

    def report(self, text: str, error: KafkaError) -> None:
        """Report that a commit that the caller did not ask for failed; it stops nothing."""
        self.trace(Fault(now=self.runtime.clock(), text=text, error=error, subject="commit"))

    def report_interval(self, offsets: Offsets, refused: Refusals) -> None:
        """Report the refused offsets of an auto-commit by interval, and that those refused before are committed."""
        # Of a partition that has left meanwhile nothing is tried again, and nothing would end an outage.
        gone = {
            partition: error
            for partition, error in refused.items()
            if isinstance(error, CommitFailedError) or partition not in self.unread.partitions
        }
        denied = {partition: error for partition, error in refused.items() if partition not in gone}
        now, well = self.runtime.clock(), frozenset(offsets.keys() - refused.keys()) & self._refused
        self._refused = (self._refused - well) | denied.keys()
        if denied:
            text = "auto-commit was refused; trying again at the next interval"
            error, partitions = _cause(denied), frozenset(denied)
            self.trace(Fault(now=now, text=text, error=error, subject="commit", outage=AUTO_COMMIT, partitions=partitions))
        if gone:
            text = "auto-commit was refused; records since the last commit may be read again"
            self.trace(Fault(now=now, text=text, error=_cause(gone), subject="commit", partitions=frozenset(gone)))
        if well:
            self.trace(Recovered(now=now, outage=AUTO_COMMIT, subject="commit", partitions=well))

    async def intercept(self, achieved: Offsets) -> None:
        """Pass committed offsets to the interceptors."""
        for interceptor in self.interceptors if achieved else ():
            await settled(interceptor.on_commit(achieved), f"{interceptor!r}.on_commit()")


@frozen
class HeldRange:
    """Records of one partition that a task was handed: from ``first`` up to ``past``, the position after them."""

    first: int
    past: int


@define(eq=False)
class Holdings:
    """The records that each task was handed and is not done with yet.

    A task that reads again, or asks an iteration for its next record, is done with those it had. Records of a task that still runs,
    was cancelled or failed are not consumed when partitions leave or the consumer stops (promise 1). If the event loop cannot tell
    how a task ended, it counts as failed. Records that were committed anyway, by the interval of another reader, are no longer
    held.
    """

    runtime: "Runtime" = field(repr=False)
    unread: Unread
    handout: "HandOut[ConsumerRecord[Any, Any]]" = field(repr=False)
    iterations: "WeakSet[Any]" = field(factory=WeakSet, init=False)
    """Iterators that are in use; each knows its task and the record that it handed out last."""
    _held: dict[Any, dict[TopicPartition, HeldRange]] = field(factory=dict, init=False)
    """The records that each task or thread was handed last."""
    _refused: dict[Any, BaseException] = field(factory=dict, init=False)
    """The error that a task or thread got in place of a bad record that it holds."""
    _abandoned: dict[TopicPartition, HeldRange] = field(factory=dict, init=False)
    """Records of tasks that failed or were cancelled. The tasks themselves are not kept."""

    def current(self) -> Any:
        """Return the task or thread that calls."""
        callers = self.runtime.callers
        return None if callers is None else callers.current()

    def read_entered(self) -> None:
        """The current task or thread asks for more: it is done with the records it had."""
        holder = self.current()
        if self._held:
            self._held.pop(holder, None)
        if self._refused:
            self._read_on_after_refusals(holder)
        if self.handout.last is not None and self.handout.holder is holder:
            self.handout.last = None
        for iteration in self.iterations:
            if iteration.holder is holder:
                iteration.last = None

    def handed(self, records: Mapping[TopicPartition, HeldRange]) -> None:
        """The current task or thread was handed these records."""
        if len(self._held) > MOST_HOLDERS:
            self._tidy()
        held = self._held.setdefault(self.current(), {})
        for partition, part in records.items():
            known = held.get(partition)
            held[partition] = part if known is None else HeldRange(known.first, part.past)

    def refused(self, record: ConsumerRecord[Any, Any], error: BaseException) -> None:
        """The current task or thread is about to get ``error`` for a bad record. It holds that record like any other."""
        self.handed_one(record)
        self._refused[self.current()] = error

    def handed_one(self, record: ConsumerRecord[Any, Any]) -> None:
        """The current task or thread was handed one record."""
        self.handed({TopicPartition(record.topic, record.partition): HeldRange(record.offset, record.offset + 1)})

    def _read_on_after_refusals(self, holder: Any) -> None:
        """A task that reads on has dealt with a bad record whose error ended a task of its own, such as
        ``asyncio.wait_for`` makes.
        """
        callers = self.runtime.callers
        self._refused.pop(holder, None)
        for known, error in tuple(self._refused.items()):
            if callers is not None and callers.failure(known) is error:
                del self._refused[known]
                self._held.pop(known, None)

    def _tidy(self) -> None:
        """Drop tasks that have ended. What those held that did not end well, as far as is known, is still not consumed."""
        callers = self.runtime.callers
        if callers is None:
            return
        for known, held in tuple(self._held.items()):
            if callers.has_ended(known):
                del self._held[known]
                for partition, part in held.items() if not callers.has_ended_well(known) else ():
                    self._abandon(partition, part)
        self._refused = {known: error for known, error in self._refused.items() if known in self._held}

    def _abandon(self, partition: TopicPartition, part: HeldRange) -> None:
        known = self._abandoned.get(partition)
        if known is None or not self._counts(partition, known):
            self._abandoned[partition] = part
        else:
            self._abandoned[partition] = HeldRange(min(known.first, part.first), max(known.past, part.past))

    def _counts(self, partition: TopicPartition, part: HeldRange) -> bool:
        """Whether it was neither committed meanwhile, nor handed out before the partition was lost or sought in."""
        cursor = self.unread.partitions.get(partition)
        if cursor is None:  # given up; it may come back as it was
            return True
        begun_at = cursor.begun_at
        return (begun_at is None or part.first >= begun_at) and (cursor.committed is None or cursor.committed < part.past)

    def consumed(self, which: Callable[[Cursor], bool] = lambda _: True, *, clean: bool = True) -> Offsets:
        """Return the positions, but not past records that a task holds and is not done with.

        ``clean``: what the current task or thread holds is consumed.
        """
        consumed = self.unread.positions(which)
        for partition, part in self._unfinished(clean=clean):
            position = consumed.get(partition)
            if position is not None and part.first < position.offset and self._counts(partition, part):
                consumed[partition] = OffsetAndMetadata(part.first, "", position.leader_epoch)
        return consumed

    def _unfinished(self, *, clean: bool) -> list[tuple[TopicPartition, HeldRange]]:
        """Return what each holder has not consumed."""
        caller = self.current()
        found = list(self._abandoned.items())
        for holder, held in self._held.items():
            if not self._is_done(holder, caller, clean):
                found += held.items()
        last = [(self.handout.holder, self.handout.last), *((each.holder, each.last) for each in self.iterations)]
        for holder, record in last:
            if record is not None and not self._is_done(holder, caller, clean):
                found.append((TopicPartition(record.topic, record.partition), HeldRange(record.offset, record.offset + 1)))
        return found

    def _is_done(self, holder: Any, caller: Any, clean: bool) -> bool:
        if holder is caller:
            return clean
        return self.runtime.callers is not None and self.runtime.callers.has_ended_well(holder)


@define(eq=False)
class AutoCommit:
    """Commits consumed offsets every ``auto_commit_interval_ms``, from within read calls."""

    config: ConsumerConfig
    runtime: "Runtime" = field(repr=False)
    outbox: Outbox = field(repr=False)
    unread: Unread = field(repr=False)
    ledger: Ledger
    holdings: Holdings
    suspended: bool = False
    """While ``process`` runs, nothing is committed here."""
    _due_at: float | None = field(default=None, init=False)
    _pending: tuple[Call[Refusals], Offsets] | None = field(default=None, init=False)
    _last: list[Call[Refusals]] = field(factory=list, init=False)
    """Commits of partitions that were given up at once; only ``stop`` waits for them."""
    _settled: bool = field(default=False, init=False)
    """Nothing was left to commit when the last interval ended."""

    @property
    def enabled(self) -> bool:
        return self.config.group_id is not None and self.config.enable_auto_commit and not self.suspended

    def read_entered(self, now: float) -> Offsets | None:
        """A read call begins: everything that was handed out before is consumed. Commit if the interval has passed.

        Return what an earlier commit has just achieved.
        """
        self._settled = False
        return self.look(now) if self.enabled else None

    @property
    def due_at(self) -> float:
        """When a read call that waits must ``look`` again: the last offsets before a silence are committed too."""
        if not self.enabled:
            return inf
        if self._pending is not None:
            return -inf if self._pending[0].done else inf
        return inf if self._settled or self._due_at is None else self._due_at

    @property
    def look_at(self) -> float:
        """When an iteration must ``look`` again. It hands out more until then, so a commit under way, or nothing left to commit,
        does not put that off.
        """
        return inf if not self.enabled or self._due_at is None else self._due_at

    def look(self, now: float) -> Offsets | None:
        """The same as ``read_entered``, while that call waits and nothing has been handed out since it was entered."""
        achieved = self.collect(now)
        self._collect_last()
        interval = self.config.auto_commit_interval_ms / 1000
        if self._due_at is None:
            self._due_at = now + interval
        elif now >= self._due_at and self._pending is not None:
            self._due_at = now + self.config.retry_backoff
        elif now >= self._due_at:
            self._due_at = now + interval
            # Partitions that are revoked have a commit of their own.
            fresh = self.ledger.fresh(self.unread.positions(lambda cursor: cursor.custody is not PartitionCustody.LEAVING))
            self._settled = not fresh
            if fresh:
                call: Call[Refusals] = Call(now + self.config.default_api_timeout_ms / 1000, self.runtime.wake_application)
                self._pending = (call, fresh)
                self.outbox.add(CommitOffsets(call=call, offsets=self.ledger.attempt(fresh), once=True))
        return achieved

    def collect(self, now: float) -> Offsets | None:
        """Return the result of the commit under way, if it has ended."""
        if self._pending is None or not self._pending[0].done:
            return None
        call, offsets = self._pending
        self._pending = None
        try:
            refused = call.result()
        except KafkaError as error:
            retry, interval = self.config.retry_backoff, self.config.auto_commit_interval_ms / 1000
            self._due_at = now + (retry if error.retriable else max(retry, interval))
            if error.retriable:
                self.ledger.report("auto-commit failed; trying again", error)
            else:
                self.ledger.report_interval(offsets, dict.fromkeys(offsets, error))
            return None
        self.ledger.report_interval(offsets, refused)
        return self.ledger.book(offsets, refused) or None

    def withdraw(self) -> None:
        """Drop a commit under way, because a later one replaces it or none is needed. What was sent is stored before that."""
        if self._pending is not None:
            self._pending[0].withdraw()
            self._pending = None

    def send_last(self, partitions: "frozenset[TopicPartition] | None" = None) -> None:
        """Commit consumed offsets (of ``partitions``) without waiting for the response: they would not be committed later
        (KAFKA-20166).
        """
        if not self.enabled:
            return
        consumed = self.holdings.consumed(lambda cursor: partitions is None or cursor.partition in partitions)
        fresh = self.ledger.fresh(consumed)
        if fresh:
            deadline = self.runtime.clock() + self.config.default_api_timeout_ms / 1000
            call: Call[Refusals] = Call(deadline, self.runtime.wake_application)
            self._last.append(call)
            self.outbox.add(CommitOffsets(call=call, offsets=self.ledger.attempt(fresh), once=True))
            self.ledger.book(fresh, {})

    def _collect_last(self) -> None:
        if not self._last:
            return
        ended = [call for call in self._last if call.done]
        self._last = [call for call in self._last if not call.done]
        for call in ended:
            try:
                refused = call.result()
            except KafkaError as error:
                self.ledger.report("consumed offsets of partitions that were given up could not be committed", error)
            else:
                if refused:
                    text = "some consumed offsets of partitions that were given up could not be committed"
                    self.ledger.report(text, refusal(refused))

    async def finish_last(self, seconds: float) -> None:
        """Wait for the commits of partitions that were given up, up to ``seconds``."""
        until = self.runtime.clock() + seconds
        while self._last:
            ticket = self.runtime.signal.ticket()
            self._collect_last()
            left = until - self.runtime.clock()
            if not self._last or left <= 0:
                return
            await self.runtime.signal.wait(ticket, left)


@frozen
class _UnderWay:
    """A commit for partitions that leave."""

    reason: object
    call: Call[Refusals]
    offsets: Offsets
    until: float
    """When a read call stops waiting for it."""


@define(eq=False)
class LastCommit:
    """The commit of consumed offsets of partitions that leave. It may be under way from one read call to the next.

    Nothing of these partitions is handed out any more, but another task may finish what it has meanwhile: that is committed too,
    within the time of the first commit.
    """

    auto_commit: AutoCommit
    runtime: "Runtime" = field(repr=False)
    outbox: Outbox = field(repr=False)
    _pending: _UnderWay | None = field(default=None, init=False)

    async def made(self, reason: object, leaving: frozenset[TopicPartition]) -> bool:
        """Commit the offsets of ``leaving`` that are consumed and not committed yet; return whether that has ended, well or not.

        A later call with the same ``reason`` goes on with the same commit. A failure is reported and stops nothing.
        """
        if not self.auto_commit.enabled:
            return True
        if self._pending is None or self._pending.reason is not reason:
            now, config = self.runtime.clock(), self.auto_commit.config
            # Not as long as the group would wait: a topic that was deleted meanwhile can never be committed (KAFKA-20959).
            allowed = min(config.request_timeout_ms, config.max_poll_interval_ms / 2) / 1000
            self._pending = self._begun(reason, self._fresh(leaving), now + allowed, now + PATIENCE)
        while (pending := self._pending) is not None:
            await self._wait(pending.call, pending.until)
            if not pending.call.done:
                return False
            self._pending = None
            await self._collect(pending.call, pending.offsets)
            tried, fresh = pending.offsets, self._fresh(leaving)
            more = {tp: offset for tp, offset in fresh.items() if tp not in tried or offset.offset > tried[tp].offset}
            self._pending = self._begun(reason, more, pending.call.deadline, pending.until)
        return True

    def _fresh(self, leaving: frozenset[TopicPartition]) -> Offsets:
        consumed = self.auto_commit.holdings.consumed(lambda cursor: cursor.partition in leaving)
        return self.auto_commit.ledger.fresh(consumed)

    def _begun(self, reason: object, offsets: Offsets, deadline: float, until: float) -> _UnderWay | None:
        if not offsets:
            return None
        call: Call[Refusals] = Call(deadline, self.runtime.wake_application)
        self.outbox.add(CommitOffsets(call=call, offsets=self.auto_commit.ledger.attempt(offsets), once=True))
        return _UnderWay(reason, call, offsets, until)

    async def _collect(self, call: Call[Refusals], offsets: Offsets) -> None:
        ledger = self.auto_commit.ledger
        try:
            refused = call.result()
        except KafkaError as error:
            ledger.report("consumed offsets could not be committed", error)
            return
        if refused:
            ledger.report("some consumed offsets could not be committed", refusal(refused))
        await ledger.intercept(ledger.book(offsets, refused))

    async def _wait(self, call: Call[Refusals], until: float) -> None:
        while True:
            ticket = self.runtime.signal.ticket()
            left = until - self.runtime.clock()
            if call.done or left <= 0:
                return
            await self.runtime.signal.wait(ticket, left)
