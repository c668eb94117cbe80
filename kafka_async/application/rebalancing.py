"""Carrying out what the background proposes for the assignment, inside the caller's own read calls.

Decides: the order of a rebalance: stop returning records, commit, call back, give up, take over, call back, acknowledge. Owns: the
proposals that wait. A proposal that a cancellation interrupts is carried out again from its start by the next read call, so nothing
stays half done (promise 2); one that a call-back refuses is carried out all the same, and what was raised reaches the caller.

A commit that takes its time holds up nobody but the partitions that it is for: the read call goes on with those that stay, and the
next one looks at the commit again.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from attrs import define, field

from ..events import ApplicationEvent, AssignmentApplied, AssignPartitions, PartitionsAssigned, PartitionsRevoked, RevokePartitions
from ..model import TopicPartition
from ..trace import Listener, Notice
from .callbacks import ConsumerRebalanceListener, settled
from .unread import Unread


@define(eq=False)
class Rebalancing:
    """The application's side of rebalances."""

    unread: Unread
    send: Callable[[ApplicationEvent], None] = field(repr=False)
    give_back: Callable[[], None] = field(repr=False)
    """Ends an iteration, so that what it did not hand out is not handed out any more."""
    before_revocation: Callable[[object, frozenset[TopicPartition]], Awaitable[bool]] = field(repr=False)
    """Commits, for a proposal, what was consumed of the partitions. ``False``: that is under way; ask again."""
    forget: Callable[[frozenset[TopicPartition]], None] = field(repr=False)
    """Told of partitions that are gone."""
    trace: Listener = field(repr=False)
    clock: Callable[[], float] = field(repr=False)
    listener: ConsumerRebalanceListener | None = None
    assigned_once: bool = False
    lost: frozenset[TopicPartition] = frozenset()
    """Partitions that were ours and are not: a commit of them is refused by name."""
    proposals: deque[AssignPartitions | RevokePartitions] = field(factory=deque, init=False)
    _begun: tuple[AssignPartitions, frozenset[TopicPartition]] | None = field(default=None, init=False)
    """The assignment that is being carried out, and what was ours before it began."""
    _busy: bool = field(default=False, init=False)

    async def carry_out(self) -> None:
        """Carry out what waits, up to a commit that is under way. Raises what a call-back raised, after all that is done."""
        if self._busy:
            return  # a call-back that reads, or another task: the partitions concerned are not returned meanwhile
        self._busy = True
        raised: Exception | None = None
        try:
            while self.proposals:
                proposal = self.proposals[0]
                if not await self._committed(proposal):
                    break
                if not self._stands(proposal):
                    continue
                if isinstance(proposal, RevokePartitions):
                    error = await self._revoke(proposal)
                else:
                    error = await self._assign(proposal)
                if self._stands(proposal):
                    self.proposals.popleft()
                raised = raised or error
        finally:
            self._busy = False
        if raised is not None:
            raise raised

    async def _committed(self, proposal: AssignPartitions | RevokePartitions) -> bool:
        """Return nothing more of what leaves, and commit what was consumed of it; ``False`` while that is under way.

        Partitions that stay are read on meanwhile.
        """
        owned = frozenset(self.unread.partitions)
        revoking = isinstance(proposal, RevokePartitions)
        leaving = owned & proposal.partitions if revoking else owned - proposal.partitions
        if not leaving:
            return True
        self.give_back()
        for partition in leaving:
            self.unread.partitions[partition].revoked = True
        lost = isinstance(proposal, RevokePartitions) and proposal.lost
        return lost or await self.before_revocation(proposal, leaving)

    def _stands(self, proposal: AssignPartitions | RevokePartitions) -> bool:
        """Whether the proposal still holds: a call-back, or another task while one awaits, may have unsubscribed."""
        return bool(self.proposals) and self.proposals[0] is proposal

    async def _revoke(self, proposal: RevokePartitions) -> Exception | None:
        owned = frozenset(self.unread.partitions)
        gone = proposal.partitions & owned
        error = await self._give_up(gone, lost=proposal.lost)
        if not self._stands(proposal):
            return error
        if gone:
            self.send(AssignmentApplied(stamps=self.unread.assign(owned - gone)))
        self.send(PartitionsRevoked(number=proposal.number))
        return error

    async def _assign(self, proposal: AssignPartitions) -> Exception | None:
        now_ours = frozenset(self.unread.partitions)
        if self._begun is None or self._begun[0] is not proposal:
            self._begun = (proposal, now_ours)
        # Carried out again after a cancellation, a listener is told of the same partitions as the first time.
        before = self._begun[1]
        error = await self._give_up((before & now_ours) - proposal.partitions, lost=False)
        if not self._stands(proposal):
            return error
        self.send(AssignmentApplied(stamps=self.unread.assign(proposal.partitions)))
        added = proposal.partitions - before
        self.lost -= proposal.partitions
        self.assigned_once = True
        self.trace(Notice(now=self.clock(), text=f"assigned {len(proposal.partitions)} partitions, {len(added)} of them new"))
        if self.listener is not None:
            error = await self._call(self.listener.on_partitions_assigned, added) or error
        if self._stands(proposal):
            self.send(PartitionsAssigned(number=proposal.number))
        return error

    async def _give_up(self, partitions: frozenset[TopicPartition], *, lost: bool) -> Exception | None:
        if not partitions:
            return None
        error: Exception | None = None
        if self.listener is not None:
            told = self.listener.on_partitions_lost if lost else self.listener.on_partitions_revoked
            error = await self._call(told, partitions)
        self.lost |= partitions
        self.forget(partitions)
        self.trace(Notice(now=self.clock(), text=f"{'lost' if lost else 'gave up'} {len(partitions)} partitions"))
        return error

    async def _call(
        self, callback: Callable[[frozenset[TopicPartition]], object], partitions: frozenset[TopicPartition]
    ) -> Exception | None:
        try:
            await settled(callback(partitions))
        except Exception as error:  # the boundary to the user's code: raised from the read call when the rebalance is carried out
            return error
        return None
