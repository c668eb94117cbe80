"""Which offsets are committed, and when they are auto-committed: by interval, before partitions leave, and at the end.

Positions are read at the entry of a read call, before anything new is handed out (promise 1): a loop that reads positions while the
application works commits records that are not processed yet.

Auto-commit never moves a partition's committed offset back: each cursor keeps the last committed offset, and only offsets past it
are new. A seek forgets it, and so does a position that the background had to reset. A commit by the application always counts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...config import ConsumerConfig
from ...errors import ConsumerStoppedError, KafkaTimeoutError
from ...model import ConsumerRecord, TopicPartition
from ...trace import Fault
from ...values import define, field, frozen
from ..arguments import one_partition
from ..reading.cursor import Beginning, Cursor, PartitionCustody
from ..reading.iteration import HAND, Hand, HandOut
from ..reading.unread import Unread
from .commits import NO_ANSWER, Commit, Commits, Offsets, Why

if TYPE_CHECKING:
    from ..lifecycle.runtime import Runtime

PATIENCE: Final = 0.01
"""Seconds for which a read call waits for the commit that precedes a revocation, before it goes on with the partitions that stay.

Not zero: a slow application would work through another batch before it gives up what another member waits for.
"""

SHORTEST_INTERVAL: Final = 0.1
"""Seconds between two commits of ``process``, at least, and of a read call that waits if ``auto_commit_interval_ms`` is 0: they
would do nothing else otherwise.
"""

MOST_HOLDERS: Final = 64
"""Number of tasks and threads whose records are tracked, above which those that have ended are dropped."""


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
        task_context = self.runtime.task_context
        return None if task_context is None else task_context.current()

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
        task_context = self.runtime.task_context
        for holder, hand in tuple(self._hands.items()):
            if task_context is not None and task_context.has_ended(holder):
                for partition, part in _held(hand) if not task_context.has_ended_well(holder) else ():
                    self._abandon((partition, task_context.failure(holder) is not None), part)
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
        caller, task_context = self.current(), self.runtime.task_context

        def is_done(holder: Any) -> bool:
            return clean if holder is caller else task_context is not None and task_context.has_ended_well(holder)

        return self._before(self._held_unless(is_done, unknown=False), which)

    def consumed_so_far(self, which: Callable[[Cursor], bool]) -> tuple[Offsets, dict[TopicPartition, HeldRange]]:
        """Return the positions, but not past records that a task holds, and those records among them whose tasks failed."""
        task_context = self.runtime.task_context
        failed = [(tp, part) for (tp, known), part in self._abandoned.items() if known]

        def is_done(holder: Any) -> bool:
            return task_context is not None and task_context.has_ended(holder) and task_context.failure(holder) is None

        held = self._held_unless(is_done, unknown=True)
        for holder, hand in self._hands.items():
            if task_context is not None and task_context.failure(holder) is not None:
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
    unread: Unread = field(repr=False)
    commits: Commits
    holdings: Holdings
    suspended: bool = False
    """While ``process`` runs, nothing is committed here."""
    _due_at: float | None = field(default=None, init=False)
    _pending: Commit | None = field(default=None, init=False)
    _last: list[Commit] = field(factory=list, init=False)
    """Commits of partitions that were given up at once, or whose call-back a stop has cancelled; only ``stop`` waits for them."""
    _settled: bool = field(default=False, init=False)
    """Nothing was left to commit when the last interval ended, and no position can have moved since."""
    _held_up: dict[TopicPartition, int] = field(factory=dict, init=False)
    """Offsets of records that hold up commits because their tasks failed, as far as that was said."""

    @property
    def enabled(self) -> bool:
        return self.config.group_id is not None and self.config.enable_auto_commit and not self.suspended

    def read_entered(self, now: float) -> None:
        """A read call begins: everything that was handed out before is consumed. Commit if the interval has passed."""
        self.unsettle()
        if self.enabled:
            self.look(now)
        elif self._last:
            self._collect_last()

    def unsettle(self) -> None:
        """Positions may move from here on, with records or without: past what was aborted, or what an interceptor drops.

        All read calls that wait look again when the interval is over: the one that moves them may be the last of its task.
        """
        if self._settled:
            self._settled = False
            self.runtime.wake_application()

    @property
    def due_at(self) -> float:
        """When a read call that waits must ``look`` again: the last offsets before a silence are committed too."""
        if not self.enabled:
            return inf
        if self._pending is not None:
            return -inf if self._pending.done else inf
        if self._settled or self._due_at is None:
            return inf
        return self._due_at if self.config.auto_commit_interval_ms else self._due_at + SHORTEST_INTERVAL

    @property
    def look_at(self) -> float:
        """When an iteration must ``look`` again. It hands out more until then, so a commit under way, or nothing left to commit,
        does not put that off.
        """
        return inf if not self.enabled or self._due_at is None else self._due_at

    def look(self, now: float) -> None:
        """The same as ``read_entered``, while that call waits."""
        self.collect(now)
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
            fresh = self.commits.fresh(consumed)
            # What another task holds now may be done at the next interval, with nobody else to commit it.
            self._settled = not fresh and consumed == self.unread.positions(stays)
            self._report_failed(failed, now)
            if fresh:
                self._pending = self.commits.begin(fresh, Why.INTERVAL, now + self.config.default_api_timeout_ms / 1000)

    def _report_failed(self, failed: Mapping[TopicPartition, HeldRange], now: float) -> None:
        """Say once that what a task left undone holds up the commits of a partition."""
        for partition, part in failed.items():
            if self._held_up.get(partition) != part.first:
                text = f"{one_partition(partition)}: nothing past offset {part.first} is auto-committed, since the task that was "
                text += "handed it failed or was cancelled; seek back to read it again, or commit() yourself to go on past it"
                self.commits.trace(Fault(now=now, text=text, subject="commit", partitions=frozenset([partition])))
        self._held_up = {partition: part.first for partition, part in failed.items()}

    def collect(self, now: float) -> None:
        """Take the result of the commit under way, if it has ended."""
        commit = self._pending
        if commit is None or not commit.done:
            return
        self._pending = None
        self.commits.end(commit)
        if (failure := commit.failure) is not None:
            retry, interval = self.config.retry_backoff, self.config.auto_commit_interval_ms / 1000
            self._due_at = now + (retry if failure.retriable else max(retry, interval))

    def withdraw(self) -> None:
        """Drop a commit under way, because a later one replaces it or none is needed. What was sent is stored before that."""
        if self._pending is not None:
            self._pending.call.withdraw()
            self._pending = None

    def give_way(self, partitions: Collection[TopicPartition]) -> None:
        """The application commits these partitions itself: drop a commit under way that names no others.

        Otherwise it goes on, since nothing else commits those. It takes nothing back: of one partition, the background stores the
        commit that was begun last after all others.
        """
        if self._pending is not None and self._pending.offsets.keys() <= set(partitions):
            self.withdraw()

    def send_last(self, partitions: "frozenset[TopicPartition] | None" = None) -> None:
        """Commit consumed offsets (of ``partitions``) without waiting for the response: they would not be committed later
        (KAFKA-20166).
        """
        if not self.enabled:
            return
        consumed = self.holdings.consumed(lambda cursor: partitions is None or cursor.partition in partitions)
        self.give_up(self.commits.fresh(consumed))

    def give_up(self, offsets: Offsets) -> None:
        """Commit these offsets of partitions that leave now, without waiting for the response."""
        if offsets:
            deadline = self.runtime.clock() + self.config.default_api_timeout_ms / 1000
            self._last.append(self.commits.begin(offsets, Why.GIVEN_UP, deadline))

    def follow(self, commit: Commit) -> None:
        """A stop has cancelled who waited for this commit of partitions that leave. It is under way, and may well be stored."""
        self._last.append(Commit(Why.LEAVING, commit.offsets, commit.call, commit.beginnings, commit.stored))

    def follows(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a commit of this offset is among those whose end is waited for, and reported, when the consumer stops."""
        return any(partition in commit.offsets and commit.offsets[partition].offset == offset for commit in self._last)

    def _collect_last(self) -> None:
        if not self._last:
            return
        ended = [commit for commit in self._last if commit.done]
        self._last = [commit for commit in self._last if not commit.done]
        for commit in ended:
            self.commits.end(commit)

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

    def end_last(self) -> None:
        """Nothing more is answered: say which of those commits were not."""
        left, self._last = self._last, []
        for commit in left:
            try:
                if commit.done:
                    self.commits.end(commit)
                    continue
            except ConsumerStoppedError:
                pass
            self.commits.fail(commit, KafkaTimeoutError(NO_ANSWER))


@frozen
class _UnderWay:
    """A commit for partitions that leave."""

    reason: object
    commit: Commit
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
        commits = self.auto_commit.commits
        while (pending := self._pending) is not None:
            await self._wait(pending.commit, pending.until)
            if not pending.commit.done:
                return False
            self._pending = None
            commits.end(pending.commit)
            await commits.intercept()
            tried, fresh = pending.commit.offsets, self._fresh(leaving)
            more = {tp: offset for tp, offset in fresh.items() if tp not in tried or offset.offset > tried[tp].offset}
            self._pending = self._begun(reason, more, pending.commit.call.deadline, pending.until)
        return True

    def _fresh(self, leaving: frozenset[TopicPartition]) -> Offsets:
        consumed = self.auto_commit.holdings.consumed(lambda cursor: cursor.partition in leaving)
        return self.auto_commit.commits.fresh(consumed)

    def _begun(self, reason: object, offsets: Offsets, deadline: float, until: float) -> _UnderWay | None:
        return _UnderWay(reason, self.auto_commit.commits.begin(offsets, Why.LEAVING, deadline), until) if offsets else None

    async def _wait(self, commit: Commit, until: float) -> None:
        while True:
            ticket = self.runtime.signal.ticket()
            left = until - self.runtime.clock()
            if commit.done or left <= 0:
                return
            await self.runtime.signal.wait(ticket, left)
