"""Which offsets are committed, and when they are auto-committed: by interval, before partitions leave, and at the end.

Decides: when a commit is due, which consumed offsets are new, and which records are not consumed yet when the consumer stops.
Owns: the commits under way, and which task holds which records. Must never read a position later than at the entry of a read call,
before anything new is handed out (promise 1): a loop that reads positions while the application works commits records that are not
processed yet.

Auto-commit never moves a partition's committed offset back: each cursor keeps the last committed offset, and only offsets past it
are new. A seek forgets it, and so does a position that the background had to reset. A commit by the application always counts.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..config import ConsumerConfig
from ..errors import CommitFailedError, KafkaError, TopicRecreatedError
from ..events import Call, CommitOffsets, Refusals
from ..model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..trace import Fault, Listener, Recovered
from ..values import define, field, frozen
from .arguments import one_partition
from .callbacks import settled
from .cursor import Beginning, Cursor, PartitionCustody
from .iteration import HAND, Hand, HandOut
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


def told(refused: Refusals) -> Refusals:
    """Return what the caller has to know of. That an offset of a deleted topic was dropped is said in the log."""
    return {partition: error for partition, error in refused.items() if not isinstance(error, TopicRecreatedError)}


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
        return offset.offset > (-1 if cursor.stored.committed is None else cursor.stored.committed) and offset.offset >= (
            cursor.stored.attempted or 0
        )

    def attempt(self, offsets: Offsets) -> Offsets:
        """Remember that ``offsets`` are about to be committed, and return them."""
        for partition, offset in offsets.items():
            cursor = self.unread.partitions.get(partition)
            if cursor is not None:
                cursor.stored.attempted = offset.offset
        return offsets

    def book(self, offsets: Offsets, refused: Refusals) -> Offsets:
        """Remember what of ``offsets`` was committed, and return it. What was dropped needs no other attempt."""
        achieved = {partition: offset for partition, offset in offsets.items() if partition not in refused}
        for partition in achieved.keys() | (refused.keys() - told(refused).keys()):
            cursor = self.unread.partitions.get(partition)
            if cursor is not None and cursor.is_of(offsets[partition].topic_id):
                cursor.stored.committed = offsets[partition].offset
        return achieved

    def report(self, text: str, error: KafkaError) -> None:
        """Report that a commit that the caller did not ask for failed; it stops nothing."""
        self.trace(Fault(now=self.runtime.clock(), text=text, error=error, subject="commit"))

    def report_interval(self, offsets: Offsets, refused: Refusals) -> None:
        """Report the refused offsets of an auto-commit by interval, and that those refused before are committed."""
        # Of a partition that has left meanwhile nothing is tried again, and nothing would end an outage.
        gone = {
            partition: error
            for partition, error in told(refused).items()
            if isinstance(error, CommitFailedError) or partition not in self.unread.partitions
        }
        denied = {partition: error for partition, error in told(refused).items() if partition not in gone}
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


class HeldRange(NamedTuple):
    """Records of one partition that a task was handed: from ``first`` up to ``past``, the position after them."""

    first: int
    past: int
    beginning: Beginning | None = None
    """What had been begun when they were handed out. What is begun later hands them out again, or passes them on purpose."""


@define(eq=False)
class Holdings:
    """The records that each task was handed and is not done with yet, in whatever way it got them.

    A task is done with what it had when it asks for more, or has ended well. Records of a task that still runs, was cancelled or
    failed are not consumed (promises 1 and 19), until the application commits them. They do not count any more once reading begins
    anew, by a seek or an assignment: what is not passed on purpose is handed out again. The task that counts is the one that calls;
    what it calls may run in another one, which ``asyncio.wait_for`` makes up to Python 3.11.

    If the event loop cannot tell how a task ended, that holds up no interval, since it would for ever; but nothing that it held is
    consumed when partitions leave or the consumer stops.
    """

    runtime: "Runtime" = field(repr=False)
    unread: Unread
    handout: "HandOut[ConsumerRecord[Any, Any]]" = field(repr=False)
    _hands: dict[Any, "Hand[ConsumerRecord[Any, Any]]"] = field(factory=dict, init=False)
    _abandoned: dict[tuple[TopicPartition, bool], HeldRange] = field(factory=dict, init=False)
    """Records of tasks that ended, and did not end well (``True``) or may not have. The tasks themselves are not kept."""

    def current(self) -> Any:
        """Return the task or thread that calls."""
        callers = self.runtime.callers
        return None if callers is None else callers.current()

    def hand(self, holder: Any) -> "Hand[ConsumerRecord[Any, Any]]":
        """Return what a task or thread holds, for more to be put there."""
        hand = self._hands.get(holder)
        if hand is None:
            if len(self._hands) > MOST_HOLDERS:
                self._tidy()
            hand = self._hands[holder] = HAND(holder)
        return hand

    def asks(self) -> Any:
        """Return the task or thread that calls. It asks for more, so it is done with the records it had."""
        holder = self.handout.caller()
        # As in asked(), written out: each step that takes the slow path pays for a call.
        if (hand := self._hands.get(holder)) is not None:
            hand.last, hand.ranges = None, {}
        return holder

    def asked(self, holder: Any) -> None:
        """A task or thread asks for more: it is done with the records it had."""
        if (hand := self._hands.get(holder)) is not None:
            hand.last, hand.ranges = None, {}

    def handed(self, holder: Any, records: Mapping[TopicPartition, HeldRange]) -> None:
        """A task or thread was handed these records."""
        hand = self.hand(holder)
        if self.handout.hand is hand:
            self.handout.hand = HAND(None)  # a step at once would not look at ranges
        for partition, (first, past, _) in records.items():
            beginning = self._beginning(partition)
            known = hand.ranges.get(partition)
            if known is not None and known[2] is beginning:
                first, past = min(known[0], first), max(known[1], past)
            hand.ranges[partition] = HeldRange(first, past, beginning)

    def hand_for(self, holder: Any, record: ConsumerRecord[Any, Any]) -> "Hand[ConsumerRecord[Any, Any]]":
        """Return the hand into which a task or thread takes ``record``, and those after it that it takes without another look."""
        hand = self._hands.get(holder) or self.hand(holder)
        cursor = self.unread.partitions.get(TopicPartition(record.topic, record.partition))
        hand.beginning = None if cursor is None else cursor.beginning
        return hand

    def _beginning(self, partition: TopicPartition) -> Beginning | None:
        cursor = self.unread.partitions.get(partition)
        return None if cursor is None else cursor.beginning

    def handed_one(self, holder: Any, record: ConsumerRecord[Any, Any]) -> None:
        """A task or thread was handed one record, or the error of one."""
        self.handed(holder, {TopicPartition(record.topic, record.partition): HeldRange(record.offset, record.offset + 1)})

    def _tidy(self) -> None:
        """Drop tasks that have ended, and those that hold nothing. What did not end well is still not consumed."""
        callers = self.runtime.callers
        for holder, hand in tuple(self._hands.items()):
            if callers is not None and callers.has_ended(holder):
                for partition, part in _held(hand) if not callers.has_ended_well(holder) else ():
                    self._abandon((partition, callers.failure(holder) is not None), part)
            elif hand is self.handout.hand or hand.last is not None or hand.ranges:
                continue
            del self._hands[holder]

    def _abandon(self, where: tuple[TopicPartition, bool], part: HeldRange) -> None:
        known = self._abandoned.get(where)
        if known is not None and self._counts(where[0], known):
            if known.beginning is part.beginning:
                part = HeldRange(min(known.first, part.first), max(known.past, part.past), part.beginning)
            elif not self._counts(where[0], part):
                return
        self._abandoned[where] = part

    def _counts(self, partition: TopicPartition, part: HeldRange) -> bool:
        """Whether it was neither committed meanwhile, nor handed out before the partition was lost or sought in."""
        cursor = self.unread.partitions.get(partition)
        if cursor is None:  # given up; it may come back as it was
            return True
        committed = cursor.stored.committed
        return part.beginning is cursor.beginning and (committed is None or committed < part.past)

    def consumed(self, which: Callable[[Cursor], bool] = lambda _: True, *, clean: bool = True) -> Offsets:
        """Return the positions, but not past records that a task holds and is not done with, for partitions that leave.

        ``clean``: what the current task or thread holds is consumed.
        """
        caller, callers = self.current(), self.runtime.callers

        def is_done(holder: Any) -> bool:
            return clean if holder is caller else callers is not None and callers.has_ended_well(holder)

        return self._before(self._held_unless(is_done, unknown=False), which)

    def consumed_so_far(self, which: Callable[[Cursor], bool]) -> tuple[Offsets, dict[TopicPartition, HeldRange]]:
        """Return the positions, but not past records that a task holds, and those records among them whose tasks failed."""
        callers = self.runtime.callers
        failed = [(tp, part) for (tp, known), part in self._abandoned.items() if known]

        def is_done(holder: Any) -> bool:
            return callers is not None and callers.has_ended(holder) and callers.failure(holder) is None

        held = self._held_unless(is_done, unknown=True)
        for holder, hand in self._hands.items():
            if callers is not None and callers.failure(holder) is not None:
                failed += _held(hand)
        return self._before(held, which), {tp: part for tp, part in failed if self._counts(tp, part)}

    def _held_unless(self, is_done: Callable[[Any], bool], *, unknown: bool) -> list[tuple[TopicPartition, HeldRange]]:
        found = [(partition, part) for (partition, known), part in self._abandoned.items() if known or not unknown]
        for holder, hand in self._hands.items():
            if (hand.last is not None or hand.ranges) and not is_done(holder):
                found += _held(hand)
        return found

    def _before(self, held: Iterable[tuple[TopicPartition, HeldRange]], which: Callable[[Cursor], bool]) -> Offsets:
        consumed = self.unread.positions(which)
        for partition, part in held:
            position = consumed.get(partition)
            if position is not None and part.first < position.offset and self._counts(partition, part):
                consumed[partition] = position._replace(offset=part.first)
        return consumed


def _held(hand: "Hand[ConsumerRecord[Any, Any]]") -> list[tuple[TopicPartition, HeldRange]]:
    """Return all that a hand holds."""
    found = [(partition, HeldRange(*part)) for partition, part in hand.ranges.items()]
    if (last := hand.last) is not None:
        part = HeldRange(last.offset, last.offset + 1, hand.beginning)
        found.append((TopicPartition(last.topic, last.partition), part))
    return found


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
    _held_up: dict[TopicPartition, int] = field(factory=dict, init=False)
    """Offsets of records that hold up commits because their tasks failed, as far as that was said."""

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
        """The same as ``read_entered``, while that call waits."""
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
            stays = lambda cursor: cursor.custody is not PartitionCustody.LEAVING  # noqa: E731
            consumed, failed = self.holdings.consumed_so_far(stays)
            fresh = self.ledger.fresh(consumed)
            # What another task holds now may be done at the next interval, with nobody else to commit it.
            self._settled = not fresh and consumed == self.unread.positions(stays)
            self._report_failed(failed, now)
            if fresh:
                call: Call[Refusals] = Call(now + self.config.default_api_timeout_ms / 1000, self.runtime.wake_application)
                self._pending = (call, fresh)
                self.outbox.add(CommitOffsets(call=call, offsets=self.ledger.attempt(fresh), once=True))
        return achieved

    def _report_failed(self, failed: Mapping[TopicPartition, HeldRange], now: float) -> None:
        """Say once that what a task left undone holds up the commits of a partition."""
        for partition, part in failed.items():
            if self._held_up.get(partition) != part.first:
                text = f"{one_partition(partition)}: nothing past offset {part.first} is auto-committed, since the task that was "
                text += "handed it failed or was cancelled; seek back to read it again, or commit() yourself to go on past it"
                self.ledger.trace(Fault(now=now, text=text, subject="commit", partitions=frozenset([partition])))
        self._held_up = {partition: part.first for partition, part in failed.items()}

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
                if refused := told(refused):
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
        if told(refused):
            ledger.report("some consumed offsets could not be committed", refusal(told(refused)))
        await ledger.intercept(ledger.book(offsets, refused))

    async def _wait(self, call: Call[Refusals], until: float) -> None:
        while True:
            ticket = self.runtime.signal.ticket()
            left = until - self.runtime.clock()
            if call.done or left <= 0:
                return
            await self.runtime.signal.wait(ticket, left)
