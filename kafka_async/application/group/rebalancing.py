"""Carrying out assignments that the background proposes, inside the caller's own read calls (before the first one: ``unasked.py``).

The order of a rebalance: stop returning records, commit, call the listener, give up, take over, call the listener, acknowledge,
return records of new partitions. If a cancellation interrupts a proposal, the next read call goes on with it: a call-back that
began goes on meanwhile, and the next call waits for it. If a call-back raises, the proposal is carried out all the same, and the
error reaches the caller, or that of the next read call if this one is cancelled before. A call-back that is cancelled has raised.

A slow commit holds up only the partitions that it is for: the read call goes on with those that stay, and the
next one looks at the commit again.
"""

import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ...errors import IllegalStateError, KafkaTimeoutError
from ...events import AssignmentApplied, AssignPartitions, PartitionsAssigned, PartitionsRevoked, RevokePartitions, Unsubscribe
from ...functions import finished
from ...model import TopicPartition
from ...trace import Fault, Listener, Notice, plural
from ...values import define, field
from ..callbacks import CANCELLED, LISTENER, ConsumerRebalanceListener, settled
from ..committing.auto_commit import LastCommit
from ..inbox import Inbox
from ..outbox import Outbox
from ..reading.cursor import PartitionCustody
from ..reading.unread import Unread

if TYPE_CHECKING:
    from ..lifecycle.runtime import Runtime
    from ..task_context import Owned

Proposal = AssignPartitions | RevokePartitions
Callback = Callable[[frozenset[TopicPartition]], Any]

UNANSWERED: Final = -1
"""The number of a proposal that the background did not make."""

_inside: Final[ContextVar[object]] = ContextVar("kafka_async_inside_callback", default=None)
"""The listener's call-back that the current code runs in, or was started from."""


@define(eq=False)
class Listening:
    """Calls the rebalance listener.

    One call-back at a time; an awaitable one runs to its end, even if nobody waits for it any more.
    """

    runtime: "Runtime" = field(repr=False)
    listener: ConsumerRebalanceListener | None = None
    chain: Callable[[ConsumerRebalanceListener | None], ConsumerRebalanceListener] | None = field(default=None, init=False)
    """Puts a listener of this package before the user's."""
    _at_work: "Owned | None" = field(default=None, init=False)
    _calling: object = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)
    """What the call-back that ended last raised; for the call that waits for it."""
    _next: Callable[[], None] | None = field(default=None, init=False)
    kept: Exception | None = field(default=None, init=False)
    """What a call-back has raised and no read call yet: one that is cancelled meanwhile leaves it to the next one. Every read looks
    at it, so it is not a method."""
    untold: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """Partitions that were taken before the first read, without a listener: it tells one that was set since."""
    is_silent: bool = field(default=False, init=False)
    """No read is under way in which a listener could be called, also not one that a trace listener has just set."""

    def keep(self, error: Exception | None) -> None:
        """A read call has to raise this; the first of several counts."""
        self.kept = self.kept or error

    def take_kept(self) -> Exception | None:
        """Return what is to be raised, once."""
        error, self.kept = self.kept, None
        return error

    def listen(self, listener: ConsumerRebalanceListener | None) -> None:
        """Call this listener back from now on, and the one that is chained before it."""
        self.listener = listener if self.chain is None else self.chain(listener)

    @property
    def is_inside(self) -> bool:
        """Whether the caller is a call-back of this listener, or was started by one that is running."""
        return self._calling is not None and _inside.get() is self._calling

    def begin(
        self, callback: Callback, partitions: frozenset[TopicPartition], ended: Callable[[], None] = lambda: None
    ) -> Exception | None:
        """Call back. What goes on afterwards is waited for with ``finish``, and ``ended`` is called after it.

        Return what was raised at once.
        """
        import asyncio  # a program that names the class imports none

        self._calling = calling = object()
        token = _inside.set(calling)
        try:
            result = callback(partitions)
            if inspect.isawaitable(result) and self.runtime.task_context is not None:
                self._at_work = self.runtime.task_context.own(_awaited(result), lambda: self._ended(ended))
                if self._at_work.done:  # there is no event loop that it could wait on
                    self._ended(ended)
            else:
                finished(result, LISTENER)
                self._calling = None
        except Exception as error:  # the boundary to the user's code: raised from the read call when the rebalance is carried out
            self._calling = None
            return error
        except asyncio.CancelledError as error:  # nobody can cancel a call that does not await: it asked for a result without one
            self._calling = None
            failure = IllegalStateError(CANCELLED.format(LISTENER))
            failure.__cause__ = error
            return failure
        except BaseException:
            self._calling = None
            raise
        finally:
            _inside.reset(token)
        return None

    def _ended(self, ended: Callable[[], None]) -> None:
        if self._at_work is not None:
            self._error = self._error or self._at_work.error
        self._at_work, self._calling = None, None
        ended()
        following, self._next = self._next, None
        if following is not None:
            following()
        self.runtime.wake_application()

    def after(self, following: Callable[[], None]) -> None:
        """Call ``following`` once the call-back that is running has returned; at once if there is none."""
        if self.is_busy and not self.is_inside:
            self._next = following
        else:
            following()

    async def call(self, callback: Callback, partitions: frozenset[TopicPartition]) -> None:
        """Call back and wait for it as part of the caller. Raises what it raises."""
        self._calling = calling = object()
        token = _inside.set(calling)
        try:
            await settled(callback(partitions), LISTENER)
        finally:
            self._calling = None
            _inside.reset(token)

    @property
    def is_busy(self) -> bool:
        return self._at_work is not None

    async def finish(self, seconds: float | None = None) -> Exception | None:
        """Wait for a call-back that is at work, up to ``seconds`` and then cancel it. Return what it raised."""
        until = None if seconds is None else self.runtime.clock() + seconds
        while self._at_work is not None:
            ticket = self.runtime.signal.ticket()
            left = 3600.0 if until is None else until - self.runtime.clock()
            if left <= 0:
                self._at_work.cancel()
                self._at_work, self._calling, self._next = None, None, None
                return TimeoutError("a call-back of the rebalance listener did not return in time; it was cancelled")
            await self.runtime.signal.wait(ticket, left)
        error, self._error = self._error, None
        if error is None or isinstance(error, Exception):
            return error
        raise error

    async def join(self, seconds: float | None = None) -> None:
        """Do what ``finish`` does, and have a read call raise what it returns."""
        self.keep(await self.finish(seconds))


async def _awaited(result: Any) -> None:
    await settled(result, LISTENER)


def _at_once(step: Coroutine[Any, Any, None]) -> None:
    """Run a step that has nothing to wait for."""
    try:
        step.send(None)
    except StopIteration:
        return
    step.close()
    raise RuntimeError("a step of a rebalance without a listener waits")


@define(eq=False)
class _Carrying:
    """How far a proposal has been carried out."""

    proposal: Proposal
    before: frozenset[TopicPartition]
    """What was ours when it began."""
    given_up: frozenset[TopicPartition] | None = None
    """Partitions that the listener knows are leaving."""
    took_over: bool = False


@define(eq=False)
class Rebalancing:
    """The application's side of rebalances."""

    unread: Unread
    inbox: Inbox = field(repr=False)
    outbox: Outbox = field(repr=False)
    listening: Listening
    last_commit: LastCommit
    trace: Listener = field(repr=False)
    runtime: "Runtime" = field(repr=False)
    assigned_once: bool = False
    losing: frozenset[TopicPartition] = frozenset()
    """Partitions that were lost when the consumer stopped or unsubscribed, which the listener does not know yet."""
    lost: frozenset[TopicPartition] = frozenset()
    """Partitions that are no longer ours: a commit of them is refused, and the error names them."""
    _carrying: _Carrying | None = field(default=None, init=False)
    _busy: bool = field(default=False, init=False)
    _unsubscribing: Unsubscribe | None = field(default=None, init=False)
    """To be sent when the call-back for it has returned."""
    _error: Exception | None = field(default=None, init=False)
    """What the call-back of ``unsubscribe`` raised before it awaited."""
    _callback_pending: bool = field(default=False, init=False)
    """What that call-back raises is still to be raised from a read."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be carried out or raised."""
        return not (self.inbox.proposals or self._callback_pending or self.listening.kept or self.listening.untold)

    @property
    def given_up(self) -> frozenset[TopicPartition]:
        """Partitions that the listener knows are leaving, while the rest of that rebalance is still to be carried out."""
        return (self._carrying.given_up if self._carrying is not None else None) or frozenset()

    @property
    def is_unsubscribing(self) -> bool:
        """Whether a call-back of ``unsubscribe`` is running; the partitions are given up when it returns."""
        return self._unsubscribing is not None

    @property
    def parting(self) -> frozenset[TopicPartition]:
        """Partitions that ``unsubscribe`` gives up when its call-back returns. Until then they stay, so that it can commit them."""
        if not self.is_unsubscribing:
            return frozenset()
        return frozenset(tp for tp, cursor in self.unread.partitions.items() if cursor.custody is PartitionCustody.LEAVING)

    async def carry_out(self) -> None:
        """Carry out what waits, up to a commit that is under way. Raises what a call-back raised, after all that is done."""
        if self._busy or self.listening.is_inside:
            self._give_way()
            return  # a call-back that reads, or another task: the partitions concerned are not returned meanwhile
        self._busy = True
        try:
            self.listening.keep(await self.finish_unsubscribing())
            while (proposal := self._next_told()) is not None:
                carrying = self._carry(proposal)
                committed = await self._committed(carrying)
                if not self._stands(carrying):
                    continue
                if not committed:
                    break
                await (self._revoke(carrying) if isinstance(carrying.proposal, RevokePartitions) else self._assign(carrying))
                if self._stands(carrying):
                    self.inbox.proposals.popleft()
                    self._carrying = None
        except BaseException:
            self._busy = False
            if not self.is_quiet:
                # Reads of other tasks saw that this one was at it, and wait: else nobody would go on before something else happens.
                self.runtime.wake_application()
            raise
        self._busy = False
        if (raised := self.listening.take_kept()) is not None:
            raise raised

    def carry_out_at_once(self, allowed: Callable[[Proposal], bool]) -> None:
        """Carry out what waits, up to the first proposal that is not ``allowed``.

        Nothing is committed, and nobody is called back. So nothing is carried out if there is a listener, or if partitions were
        lost: a member that has left because its application does not read would come back. What raises (a trace listener) leaves
        the proposal to the next call of this, or to the next read, which go on with it.
        """
        if self.listening.listener is not None or self.inbox.has_losses:
            return
        while self.listening.listener is None and (proposal := self._next_proposal()) is not None and allowed(proposal):
            carrying = self._carry(proposal)
            self.listening.is_silent = True
            try:
                _at_once(self._revoke(carrying) if isinstance(proposal, RevokePartitions) else self._assign(carrying))
            finally:
                self.listening.is_silent = False
                if carrying.took_over:
                    self.listening.untold |= self.unread.partitions.keys() - carrying.before
            if self._stands(carrying):
                self.inbox.proposals.popleft()
                self._carrying = None

    def _next_told(self) -> Proposal | None:
        """Return what is to be carried out next, once a listener was called for what was taken at once."""
        proposal = self._next_proposal()  # what is lost by now leaves
        if not self.listening.untold:
            return proposal
        self._begin_late()
        return self._next_proposal()

    def _begin_late(self) -> None:
        """Call a listener that was set since with ``on_partitions_assigned`` of what was taken at once, as this read would have.

        From here on it is a proposal like any other whose call-back has begun, only that nobody waits for the answer.
        """
        untold, self.listening.untold = self.listening.untold, frozenset()
        listener = self.listening.listener
        owned = frozenset(self.unread.partitions)
        late = frozenset(tp for tp in untold & owned if self.unread.partitions[tp].custody is not PartitionCustody.LEAVING)
        if listener is None or not late:
            return
        self.unread.give(late, PartitionCustody.ARRIVING)
        proposal = AssignPartitions(number=UNANSWERED, partitions=owned)
        self.inbox.proposals.appendleft(proposal)
        self._carrying = _Carrying(proposal, owned - late, took_over=True)
        self.listening.keep(self.listening.begin(listener.on_partitions_assigned, late))

    def _next_proposal(self) -> Proposal | None:
        """Return what is to be carried out next; more may have come while the last call-back was running."""
        self.inbox.sort()
        self._give_way()
        return self.inbox.proposals[0] if self.inbox.proposals else None

    def _give_way(self) -> None:
        """Return nothing more of partitions that were lost while another proposal waited, and carry out nothing that came before.

        Those partitions were lost before the listener was called, so it is called with ``on_partitions_lost``. Only a proposal
        whose call-backs have begun is carried out to its end.
        """
        proposals = self.inbox.proposals
        losses = [index for index, each in enumerate(tuple(proposals)) if isinstance(each, RevokePartitions) and each.lost]
        if not losses:
            return
        for index in losses:
            self.unread.give(proposals[index].partitions, PartitionCustody.LEAVING)
        begun = self._carrying is not None and (self._carrying.given_up is not None or self._carrying.took_over)
        for index in range(losses[-1] - 1, -1, -1):
            if not (begun and index == 0) and index not in losses:
                del proposals[index]

    def end(self) -> None:
        """Reading is over: the step that is running is the last one of a rebalance."""
        self.inbox.sort()
        waiting = [each.partitions for each in tuple(self.inbox.proposals) if isinstance(each, RevokePartitions) and each.lost]
        self.losing = frozenset().union(*waiting) & frozenset(self.unread.partitions) - self.given_up
        self.inbox.proposals.clear()

    def _carry(self, proposal: Proposal) -> _Carrying:
        if self._carrying is None or self._carrying.proposal is not proposal:
            self._carrying = _Carrying(proposal, frozenset(self.unread.partitions))
        return self._carrying

    def _stands(self, carrying: _Carrying) -> bool:
        """Whether the proposal still holds: a call-back, or another task while one awaits, may have unsubscribed."""
        return bool(self.inbox.proposals) and self.inbox.proposals[0] is carrying.proposal

    async def _committed(self, carrying: _Carrying) -> bool:
        """Return nothing more of what leaves, and commit what was consumed of it; ``False`` while that is under way.

        Partitions that stay are read on meanwhile.
        """
        owned = frozenset(self.unread.partitions)
        proposal = carrying.proposal
        revoking = isinstance(proposal, RevokePartitions)
        leaving = owned & proposal.partitions if revoking else owned - proposal.partitions
        if not leaving or carrying.given_up is not None:
            return True
        self.unread.give(leaving, PartitionCustody.LEAVING)
        lost = isinstance(proposal, RevokePartitions) and proposal.lost
        return lost or await self.last_commit.made(proposal, leaving)

    async def _revoke(self, carrying: _Carrying) -> None:
        proposal = carrying.proposal
        assert isinstance(proposal, RevokePartitions)  # noqa: S101 - the type of what the caller matched
        gone = proposal.partitions & carrying.before
        await self._give_up(carrying, gone, lost=proposal.lost)
        if not self._stands(carrying):
            return
        if proposal.returning:
            self.unread.put_aside(gone & frozenset(self.unread.partitions))
        else:
            self.unread.drop_aside()
        if gone:
            stamps = self.unread.keep(frozenset(self.unread.partitions) - gone)
            self.outbox.add(AssignmentApplied(stamps=stamps, set_aside=frozenset(self.unread.set_aside)))
        self.outbox.add(PartitionsRevoked(number=proposal.number))

    async def _assign(self, carrying: _Carrying) -> None:
        proposal = carrying.proposal
        assert isinstance(proposal, AssignPartitions)  # noqa: S101 - the type of what the caller matched
        await self._give_up(carrying, carrying.before - proposal.partitions, lost=False)
        if not self._stands(carrying):
            return
        added = proposal.partitions - carrying.before
        if not carrying.took_over:
            carrying.took_over = True
            paused = frozenset[TopicPartition]() if proposal.successive else self.unread.drop_aside(but_pause=True)
            with self.outbox.together():  # nothing is fetched of what stays paused
                self.outbox.add(AssignmentApplied(stamps=self.unread.assign(proposal.partitions, arriving=True)))
                if again := paused & added:
                    self.unread.pause(again, paused=True)
            self.lost -= proposal.partitions
            count = len(proposal.partitions)
            text = f"assigned {count} partition{plural(count)}, {len(added)} of them new"
            self.trace(Notice(now=self.runtime.clock(), text=text, subject="group", partitions=proposal.partitions))
            await self._call("on_partitions_assigned", added)
        else:
            await self._join()
        if self._stands(carrying):
            self.unread.give([tp for tp in added if self._is_arriving(tp)], PartitionCustody.OURS)
            self.assigned_once = True
            self.outbox.add(PartitionsAssigned(number=proposal.number))

    def _is_arriving(self, partition: TopicPartition) -> bool:
        cursor = self.unread.partitions.get(partition)
        return cursor is not None and cursor.custody is PartitionCustody.ARRIVING

    async def _give_up(self, carrying: _Carrying, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        if not partitions or carrying.took_over:
            return
        if carrying.given_up is not None:
            await self._join()
            self._gave_up(carrying, partitions)
            return
        carrying.given_up = partitions
        now, count = self.runtime.clock(), len(partitions)
        if lost:  # nothing of them was committed, and another member may be reading them already
            self.lost |= partitions
            self.trace(Fault(now=now, text=f"lost {count} partition{plural(count)}", subject="group", partitions=partitions))
        else:
            self.trace(Notice(now=now, text=f"revoked {count} partition{plural(count)}", subject="group", partitions=partitions))
        await self._call("on_partitions_lost" if lost else "on_partitions_revoked", partitions)
        self._gave_up(carrying, partitions)

    def _gave_up(self, carrying: _Carrying, partitions: frozenset[TopicPartition]) -> None:
        """Refuse commits of ``partitions`` from now on: until here, the call-back may commit what leaves.

        After ``unsubscribe``, which ends what was under way, ``assign`` may have taken them by hand meanwhile.
        """
        if self._stands(carrying):
            self.lost |= partitions

    async def _call(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        if self.listening.listener is not None and not self.listening.is_silent:
            self.listening.keep(self.listening.begin(getattr(self.listening.listener, name), partitions))
            await self._join()

    async def _join(self) -> None:
        """Wait for the call-back that is running; a call that is cancelled here leaves it to the next one."""
        await self.listening.join()

    # --- leaving the group for unsubscribe -------------------------------------------------------------------------------------

    def unsubscribe(self, number: int, *, owned: bool) -> Exception | None:
        """Call back that all partitions leave, then give them up. Return what was raised at once.

        ``owned``: the group assigned them to us. An awaitable call-back is waited for by the next read, or by ``stop``.
        """
        self.unread.drop_aside()  # whatever comes back belongs to a new membership, and begins where it is committed
        if self._unsubscribing is not None:  # a second call, while the call-back of the first is running
            self.unread.keep(self.parting)
            self.outbox.add(Unsubscribe(subscription=number))
            return None
        partitions = frozenset(self.unread.partitions)
        leaving = partitions - self.given_up
        lost, self.losing = self.losing & leaving, frozenset()
        self._carrying = None
        self.unread.give(partitions, PartitionCustody.LEAVING)
        self._unsubscribing = Unsubscribe(subscription=number)
        self.outbox.hold()
        self._callback_pending = self.listening.is_busy
        listener, self._error = self.listening.listener if owned else None, None
        callbacks = [("on_partitions_lost", lost), ("on_partitions_revoked", leaving - lost)]
        self.listening.after(lambda: self._call_back_leaving(listener, callbacks))
        error, self._error = self._error, None
        return error

    def _call_back_leaving(
        self, listener: ConsumerRebalanceListener | None, callbacks: list[tuple[str, frozenset[TopicPartition]]]
    ) -> None:
        """Call back that partitions leave; when that has returned, or at once if it does not await, give them up."""
        while listener is not None and callbacks and not self.listening.is_inside:
            name, leaving = callbacks.pop(0)
            if leaving:
                callback, following = getattr(listener, name), lambda: self._call_back_leaving(listener, callbacks)
                try:
                    error = self.listening.begin(callback, leaving, following)
                except BaseException:  # an interrupt: the next call is not to wait for a call-back that is over
                    self._unsubscribed()
                    raise
                self._error = self._error or error
            if self.listening.is_busy:
                self._callback_pending = True
                return
        self._unsubscribed()

    async def unsubscribed(self, deadline: float) -> None:
        """Wait until ``unsubscribe`` has left the group, unless the caller is its own call-back.

        Raises ``KafkaTimeoutError`` at ``deadline``: seconds of the loop's clock.
        """
        while self._unsubscribing is not None and not self.listening.is_inside:
            ticket = self.runtime.signal.ticket()
            left = deadline - self.runtime.clock()
            if self._unsubscribing is None:
                return
            if left <= 0:
                raise KafkaTimeoutError("the call-back of the rebalance listener for unsubscribe() did not return in time")
            await self.runtime.signal.wait(ticket, left)

    def _unsubscribed(self) -> None:
        """Give up the partitions that leave and notify the background: the call-back has returned."""
        event, self._unsubscribing = self._unsubscribing, None
        if event is None:
            return
        self.unread.keep([tp for tp, cursor in self.unread.partitions.items() if cursor.custody is not PartitionCustody.LEAVING])
        self.outbox.add_now(event)
        self.outbox.release()
        self.runtime.wake_application()  # a read may wait for a partition that has left

    async def finish_unsubscribing(self, seconds: float | None = None) -> Exception | None:
        """Wait for the call-back of ``unsubscribe``, if one is running; then leave. Return what it raised."""
        if not self._callback_pending:
            return None
        error = await self.listening.finish(seconds) or self._error
        self._callback_pending, self._error = False, None
        self._unsubscribed()
        return error
