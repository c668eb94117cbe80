"""The read calls: waiting for records and handing them over.

The hand-over of records is one synchronous step: a cancellation before it takes nothing, and none can come between it and the
return (promise 2). Deserializers and interceptors may await; what they work on stays in its place meanwhile.

Between two records of an iteration everything may happen that may happen between two calls: a step takes the next record at once if
nothing has changed; otherwise it goes through ``step``, which checks everything that a call checks.
"""

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...background.boundary import EventHandler
from ...config import ConsumerConfig
from ...errors import DeserializationError, IllegalStateError
from ...model import ConsumerRecord, TopicPartition
from ...records import ColumnBuilder
from ...values import define, field
from ..callbacks import Batch, Deserialized, Preparation
from ..committing.auto_commit import AutoCommit, HeldRange
from ..group.rebalancing import Rebalancing
from ..group.subscribed import Subscribed
from ..inbox import Inbox
from ..lifecycle.lifecycle import Lifecycle, Phase
from ..lifecycle.metrics import Idle
from .cursor import Piece, Raw, Refusal
from .in_vain import InVain
from .iteration import PORTION, HandOut, Portion
from .unread import Unread

if TYPE_CHECKING:
    from ..lifecycle.runtime import Runtime

T = TypeVar("T")
Record = ConsumerRecord[Any, Any]

TURN: Final = 0.02
"""Seconds for which reads that find data in the buffer may go on without letting others run on the event loop."""
PACE: Final = 0.2
"""Seconds that an application should take for one portion of an iteration, if call-backs have to see its records first."""
TAKEN_OVER: Final = "process() began to read from this consumer while this call waited; nothing else can read meanwhile"


class NothingCame(Exception):
    """No record came for as long as an iteration waits for one."""


@define(eq=False)
class Gate:
    """Checked before records are read: a stop, a rebalance, an error, a session that may have expired."""

    lifecycle: Lifecycle
    handler: EventHandler = field(repr=False)
    inbox: Inbox
    rebalancing: Rebalancing
    subscribed: Subscribed
    unread: Unread

    @property
    def is_open(self) -> bool:
        """Whether nothing has to be dealt with before records are read."""
        return self.is_clear and not self.unread.failing

    @property
    def is_clear(self) -> bool:
        """Whether ``pass_through`` has nothing to do."""
        running = self.lifecycle.phase in (Phase.RUNNING, Phase.STARTING) and self.handler.ended is None
        return running and self.inbox.is_empty and self.rebalancing.is_quiet

    @property
    def reads_nothing(self) -> bool:
        """Whether nothing is subscribed or assigned, and nothing is being given up for that."""
        return self.subscribed.is_nothing and not self.rebalancing.is_unsubscribing

    async def pass_through(self) -> None:
        """End if stopped, carry a rebalance out, raise what the background reports."""
        self.lifecycle.check_readable()
        self.inbox.sort()
        if not self.rebalancing.is_quiet:
            try:
                await self.rebalancing.carry_out()
            finally:  # a proposal may have been made for the subscription before this one
                self.subscribed.follow(self.unread)
            # A call-back, or another task, may have stopped the consumer meanwhile: what is read now would never be committed.
            self.lifecycle.check_readable()
        self.inbox.reported.raise_any()

    def is_over(self, now: float) -> bool:
        """Whether nothing may be handed out, because the partitions may belong to another member by now."""
        return self.handler.session_deadline < now


@define(eq=False)
class Reader:
    """Carries out read calls on the unread records."""

    config: ConsumerConfig
    unread: Unread
    runtime: "Runtime"
    gate: Gate
    auto_commit: AutoCommit
    preparation: Preparation | None
    idle: Idle
    """How long read calls wait."""
    handout: "HandOut[Record]"
    in_vain: InVain
    _era: int = field(default=0, init=False)
    """How often somebody else took over."""
    _turn_ends: float = field(default=0.0, init=False)
    _pace: int = field(default=8, init=False)
    _loaded_at: float = field(default=0.0, init=False)
    _preparing: bool = field(default=False, init=False)

    def take_over(self) -> None:
        """Somebody reads alone from now on: calls that wait raise ``IllegalStateError``, instead of taking records beside that."""
        self._era += 1
        self.handout.attend()  # an iteration takes its next records without a call
        self.runtime.wake_application()

    # --- batches ---------------------------------------------------------------------------------------------------------------

    async def batch(
        self, only: Collection[TopicPartition], seconds: float, max_records: int, raw: Batch | None = None, holder: Any = None
    ) -> Batch:
        """Return up to ``max_records`` records by partition, as soon as there are any; ``{}`` if none came in time.

        ``raw`` is filled with the same records as they were before deserializers and interceptors. ``holder``: the task or thread
        that gets them. The method that hands them to the caller sets ``unread.taken`` to ``None`` as the last thing before it
        returns.
        """
        now = self.runtime.clock()
        self.unread.settle()
        batch: Batch = {}
        there = self.preparation is None and not self.unread.is_empty
        if there and now < self._turn_ends and self.gate.is_open and not self.gate.is_over(now):
            # With data in the buffer a read is this one step: no event, no task switch, no system call.
            self._entered(now)
            self.auto_commit.read_entered(now)
            batch = self.unread.take(max_records, only, raw=raw)
        if not batch:
            decode = self.preparation is None
            take = self.unread.take
            found = await self._until(only, seconds, max_records, lambda: take(max_records, only, decode=decode, raw=raw), holder)
            batch = found or {}
        self._hand(holder)
        return batch

    def at_once(self, only: Collection[TopicPartition], max_records: int, raw: Batch | None = None) -> Batch:
        """Return up to ``max_records`` records that are there, as ``batch`` does, without letting anything else run.

        ``{}`` also if something has to be dealt with first, which takes a ``batch``: a rebalance, a failure, call-backs.
        """
        now = self.runtime.clock()
        self.unread.settle()
        if not self.gate.is_open or self.gate.is_over(now):
            return {}
        self._entered(now)
        self.auto_commit.read_entered(now)
        batch = self.unread.take(max_records, only, decode=self.preparation is None, raw=raw)
        self._hand(None)
        return batch

    def _hand(self, holder: Any) -> None:
        if self.auto_commit.enabled and self.unread.taken:
            spans = self.unread.taken_spans()
            self.auto_commit.holdings.handed(holder, {tp: HeldRange(first, past) for tp, first, past in spans if past > first})

    async def columns(
        self,
        only: Collection[TopicPartition],
        seconds: float,
        max_records: int,
        into: ColumnBuilder,
        ended: Callable[[], bool] = lambda: False,
        holder: Any = None,
    ) -> int:
        """Append up to ``max_records`` records to ``into`` as soon as there are any; return how many. As ``batch``.

        ``ended`` is called after a look that found none, and returns whether waiting for more is in vain.
        """
        self.unread.settle()
        take, before = self.unread.take_columns, into.rows
        await self._until(only, seconds, None, lambda: bool(take(max_records, into, only) or ended()), holder)
        self._hand(holder)
        return into.rows - before

    # --- one by one ------------------------------------------------------------------------------------------------------------

    async def next_portion(self, only: Collection[TopicPartition], holder: Any, seconds: float = inf) -> "Portion[Record]":
        """Return the portion whose next record is to be handed to ``holder`` by one call, and remember that.

        Raises ``NothingCame`` after ``seconds``.
        """
        if only:
            portion = await self._one(only, holder)
        elif self.handout.calm and self.handout.has_more:
            self._entered(self.runtime.clock())
            portion = self.handout.portion
        else:
            portion = await self.step(holder, seconds)
        if self.auto_commit.enabled:
            self.auto_commit.holdings.handed_one(holder, portion.records[portion.place])
        return portion

    async def _one(self, only: Collection[TopicPartition], holder: Any) -> "Portion[Record]":
        """Return the portion whose next record is to be handed out, waiting for it as long as it takes.

        Raises ``IllegalStateError`` once none of ``only`` is assigned any more, unless a rebalance may still bring one back.
        """
        self.unread.settle()
        decode, limit, unread = self.preparation is None, self._limit, self.unread

        def found() -> "Portion[Record] | None":
            if unread.partitions.keys().isdisjoint(only) and unread.set_aside.keys().isdisjoint(only):
                raise IllegalStateError(f"{', '.join(map(str, sorted(only)))}: not assigned any more; no record of it can come")
            return unread.portion(limit, only, decode=decode)

        portion = await self._until(only, inf, limit, found, holder)
        if portion is None:
            raise NothingCame
        return portion

    async def _next_ones(self, holder: Any, seconds: float) -> "list[Portion[Record]]":
        """Return the portions whose records are to be handed out next, waiting up to ``seconds`` for one."""
        self.unread.settle()
        decode, limit, take = self.preparation is None, self._limit, self.unread.portions
        portions = await self._until((), seconds, limit, lambda: take(limit, decode=decode), holder, from_last=True)
        if portions is None:
            raise NothingCame
        return portions

    @property
    def _limit(self) -> int:
        return self._pace if self.preparation is not None else self.config.max_poll_records

    async def step(self, holder: Any, seconds: float = inf) -> "Portion[Record]":
        """Return the portion whose next record is handed to ``holder``, which is done with what it had, and let its following
        steps take theirs at once while nothing happens. Raises ``NothingCame`` after ``seconds``.
        """
        handout, holdings = self.handout, self.auto_commit.holdings
        calm = handout.calm
        if handout.has_more and calm:  # the last step was that of another task
            self.turn_to(holder)
        else:
            looked = handout.looked()
            portions = await self._next_ones(holder, seconds)
            portion = portions[0]
            if portion is not handout.portion:
                self._keep_pace()
            look_at = min(self.gate.handler.session_deadline, self.auto_commit.look_at)
            handout.load(portions, holdings.hand_for(holder, portion.records[portion.place]), looked, look_at)
        handout.hand.last = handout.portion.records[handout.portion.place]
        return handout.portion

    def turn_to(self, holder: Any) -> None:
        """Hand what the following steps take at once to ``holder``, which is done with what it had."""
        holdings, portion = self.auto_commit.holdings, self.handout.portion
        holdings.asked(holder)
        self.handout.hand = holdings.hand_for(holder, portion.records[portion.place])

    def _keep_pace(self) -> None:
        """Let call-backs see about as many records at once as the application consumed in the last ``PACE`` seconds."""
        now = self.runtime.clock()
        took = now - self._loaded_at
        most = self.config.max_poll_records
        self._pace = min(most, self._pace * 2) if took < PACE else max(1, int(self._pace * PACE / took))
        self._loaded_at = now

    # --- waiting ---------------------------------------------------------------------------------------------------------------

    def _entered(self, now: float) -> None:
        """A read call begins."""
        self.gate.handler.polled_at = now

    async def _until(
        self,
        only: Collection[TopicPartition],
        seconds: float,
        stage: int | None,
        attempt: Callable[[], T],
        holder: Any,
        *,
        from_last: bool = False,
    ) -> T | None:
        """Return what ``attempt`` finds, waiting for it up to ``seconds``.

        ``stage``: how many records to pass to call-backs if none is ready. ``holder``: who holds what is found. ``from_last``: the
        seconds begin anew with each record that call-backs have seen, whatever they made of it.
        """
        runtime, unread, handler, era = self.runtime, self.unread, self.gate.handler, self._era
        deadline, prepared = runtime.clock() + seconds, False
        await self._enter(runtime.clock())
        while True:
            ticket = runtime.signal.ticket()
            if not self.gate.is_clear:
                await self.gate.pass_through()
            self._check_era(era)
            if unread.failing:
                self._raise_failure(only, holder)
            if not self.gate.is_over(runtime.clock()) and not (stage is None and self._preparing):
                if found := attempt():
                    return found
                # Once at least, however short the time is. Interceptors may drop all that they see, again and again.
                if stage is not None and (not prepared or runtime.clock() < deadline) and await self._prepare(stage, only):
                    prepared = not from_last
                    deadline = runtime.clock() + seconds if from_last else deadline
                    await self._go_on()
                    continue
            if unread.failing:
                self._raise_failure(only, holder)
            remaining = deadline - runtime.clock()
            commit_in = self.auto_commit.due_at - runtime.clock()
            if commit_in <= 0:
                await self._look_at_commits()
                continue
            if remaining <= 0:
                await self._take_turn()
                return None
            look_in = self._begin_wait(only)
            handler.reading += 1  # not in there: whatever raises before ``try``, such as a trace listener, would leave it so
            try:
                await runtime.signal.wait(ticket, min(remaining, commit_in, look_in))
            finally:
                handler.polled_at = now = runtime.clock()  # first: a thread of the background may look between these
                handler.reading -= 1
                self._end_wait(ticket, now)

    def _check_era(self, era: int) -> None:
        if era != self._era:
            raise IllegalStateError(TAKEN_OVER)

    def _raise_failure(self, only: Collection[TopicPartition], holder: Any) -> None:
        # A record that was refused counts as handed out once that is raised, and the position is past it.
        now = self.runtime.clock()
        failure = self.unread.failure(only, records=not self.gate.is_over(now), now=now)
        if failure is None:
            return
        if isinstance(failure, DeserializationError) and self.auto_commit.enabled:
            # A task that gets the error of a bad record holds that record like any other: leaving because of it must not commit
            # past it.
            self.auto_commit.holdings.handed_one(holder, failure.record)
        raise failure.with_traceback(None)

    async def _enter(self, now: float) -> None:
        """As ``_entered``, and let commits be called back and others run if it is time."""
        self._entered(now)
        self.auto_commit.read_entered(now)
        if self.auto_commit.commits.achieved:
            await self.auto_commit.commits.intercept()
        # A loop that ignores errors must not keep other tasks from running.
        if self.gate.inbox.reported.final is not None or self.runtime.clock() >= self._turn_ends:
            await self._take_turn()

    async def _look_at_commits(self) -> None:
        self.auto_commit.look(self.runtime.clock())
        await self.auto_commit.commits.intercept()

    def _begin_wait(self, only: Collection[TopicPartition]) -> float:
        """Return after how many seconds to look again though nothing has come."""
        now, look_in = self.runtime.clock(), inf
        if not self.unread.partitions or self.in_vain.since < inf:
            look_in = self.in_vain.look(now, nothing=self.gate.reads_nothing)
        if self.unread.buffer.hungry:
            self.unread.ask_for(only, waiting=self.gate.handler.reading > 0)
        self.idle.enter(now)
        return look_in

    def _end_wait(self, ticket: int, now: float) -> None:
        if self.runtime.signal.ticket() != ticket:
            self.auto_commit.unsettle()
        if not self.gate.handler.reading and self.unread.buffer.asked:
            self.unread.buffer.asked = frozenset()
        self.in_vain.ended_at = now
        self.idle.leave(now)
        self._turn_ends = now + TURN

    async def _go_on(self) -> None:
        """What is due in a read that neither returns nor waits: it counts as polling, commits and lets others run."""
        self._entered(self.runtime.clock())
        if self.auto_commit.due_at <= self.runtime.clock():
            await self._look_at_commits()
        if self.runtime.clock() >= self._turn_ends:
            await self._take_turn()

    async def _take_turn(self) -> None:
        """Let others run."""
        await self.runtime.signal.checkpoint()
        self._turn_ends = self.runtime.clock() + TURN

    # --- call-backs ------------------------------------------------------------------------------------------------------------

    async def _prepare(self, limit: int, only: Collection[TopicPartition]) -> bool:
        """Pass the next records to call-backs, if there are any; return whether there were records.

        One task at a time keeps the order within a partition.
        """
        preparation = self.preparation
        if self._preparing or preparation is None:
            return False
        staged = self.unread.stage(limit, only)
        if not staged:
            return False
        self._preparing = True
        try:
            batch = {cursor.partition: raw.records for cursor, raw in staged.items()}
            made = await preparation.prepare(batch, {cursor.partition: raw.made for cursor, raw in staged.items()})
        finally:
            self._preparing = False
            self.runtime.wake_application()
        retriable: Exception | None = None
        for cursor, raw in staged.items():
            result = made[cursor.partition]
            wanted = self.unread.replace(cursor, raw, _pieces(raw, result))
            if wanted and result.retriable is not None and not result.done:
                retriable = retriable or result.retriable
                self.unread.give_way(cursor)
        if retriable is not None:
            raise retriable
        return True


def _pieces(raw: Raw, result: Deserialized) -> list[Piece]:
    """Return what replaces ``raw``: ready records, the record that was refused, and those that call-backs still have to see."""
    done = result.done
    if done == len(raw.records):
        return [PORTION(result.records, raw.records, raw.start, raw.end)]
    stopped = raw.records[done]
    before = raw.records[:done]
    at = (before[-1].offset + 1, before[-1].leader_epoch) if before else raw.start
    pieces: list[Piece] = [PORTION(result.records, before, raw.start, at)] if before else []
    if result.poison is None:
        return [*pieces, Raw(raw.records[done:], at, raw.end)]
    pieces.append(Refusal(result.poison, (stopped.offset, at[1])))
    rest = raw.records[done + 1 :]
    return [*pieces, Raw(rest, (stopped.offset + 1, stopped.leader_epoch), raw.end)] if rest else pieces
