"""Commits, and looks at what is committed, that the caller asks for."""

from collections.abc import Collection, Mapping
from typing import Protocol

from ...background.by_topic import named
from ...errors import CommitFailedError, IllegalOperation, IllegalStateError
from ...events import FetchCommitted, Refusals
from ...model import OffsetAndMetadata, TopicPartition
from ...values import define, field
from ..arguments import commit_offsets
from ..background_calls import BackgroundCalls
from ..group.assigned import AssignedPartitions
from ..lifecycle.ownership import CallGuard
from ..reading.cursor import Cursor, PartitionCustody
from .auto_commit import AutoCommit
from .commits import Why, refusal

Wanted = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]


class Settling(Protocol):
    """Commits what is done while ``process`` runs, which decides what that is."""

    async def settle(self) -> None:
        """Commit what is done."""

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what is done of partitions that leave now, without waiting for the response."""


@define(eq=False)
class CommitCalls:
    """The commits of one consumer's caller."""

    guard: CallGuard
    calls: BackgroundCalls = field(repr=False)
    assigned: AssignedPartitions
    auto_commit: AutoCommit
    instead: Settling | None = field(default=None, init=False)

    def check_group(self, what: str) -> None:
        """Raise ``IllegalOperation`` without a group."""
        self.guard.check_open()
        if self.calls.config.group_id is None:
            raise IllegalOperation(f"{what} needs a group_id")

    async def commit(self, offsets: Wanted | None) -> None:
        """See ``KafkaConsumer.commit``."""
        wanted, deadline = await self._enter(offsets)
        rebalancing = self.assigned.rebalancing
        if offsets is None and self.instead is not None and self.guard.reads_alone is not None:
            if rebalancing.listening.is_inside:  # as programs do that read by themselves
                await self.instead.settle()
                return
            raise IllegalStateError("process() commits records that are done; commit() would commit all that were read")
        gives_up = offsets is None and rebalancing.is_unsubscribing and not rebalancing.listening.is_inside
        lost, refused = await self._commit(wanted, deadline, once=False)
        if gives_up and not rebalancing.is_unsubscribing:  # what the application itself has given up is no part of everything
            lost = ()
            refused = {partition: error for partition, error in refused.items() if not isinstance(error, CommitFailedError)}
        if refused:
            raise refusal(refused)
        if lost:
            text = f"committed all offsets but those of partitions that are no longer assigned: {named(lost)}"
            raise CommitFailedError(text, lost)

    async def commit_once(self, offsets: Wanted, *, leaving: bool = False) -> Refusals:
        """Commit; the first answer about a partition is final. Return what was refused; the other offsets are committed.

        Raises the error of a commit of which nothing is known about single partitions.
        ``leaving``: no later commit covers these. If a stop cancels the caller, it follows the commit to its end.
        """
        wanted, deadline = await self._enter(offsets)
        lost, refused = await self._commit(wanted, deadline, once=True, leaving=leaving)
        gone = {tp: CommitFailedError(f"{named([tp])}: no longer assigned, so its offset was not committed", (tp,)) for tp in lost}
        return {**gone, **refused}

    def give_up(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit what is consumed of partitions that leave now, by ``assign`` or ``unsubscribe``, without waiting."""
        if self.instead is None:
            self.auto_commit.send_last(partitions)
        else:
            self.instead.give_up(partitions)

    async def _enter(self, offsets: Wanted | None) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], float]:
        """Return what is to be committed, and until when, once it can be."""
        self.guard.ask()
        self.check_group("commit()")
        self.guard.check_running()
        inbox, unread, deadline = self.calls.inbox, self.assigned.unread, self.calls.deadline()
        wanted = None if offsets is None else commit_offsets(offsets)
        concerned = [unread.partitions.get(partition) for partition in (unread.partitions if wanted is None else wanted)]
        # What leaves is committed while it is ours: the call-back may wait for the very task that commits it.
        if any(cursor is not None and cursor.custody is not PartitionCustody.LEAVING for cursor in concerned):
            await self.assigned.rebalancing.unsubscribed(deadline)
        inbox.sort()
        inbox.reported.raise_final()
        unread.settle()
        return (self.assigned.to_commit() if wanted is None else wanted), deadline

    async def _commit(
        self, wanted: Mapping[TopicPartition, OffsetAndMetadata], deadline: float, *, once: bool, leaving: bool = False
    ) -> tuple[tuple[TopicPartition, ...], Refusals]:
        """Commit what is still ours. Return the partitions that are not, and what was refused of the others."""
        unread, rebalancing = self.assigned.unread, self.assigned.rebalancing
        # Those of ``process`` may leave, by ``assign``, after it has looked at what is done.
        lost = tuple(tp for tp in wanted if tp in rebalancing.lost or (once and tp not in unread.partitions))
        ours = {partition: offset for partition, offset in wanted.items() if partition not in lost}
        ours = {partition: _completed(offset, self.assigned.held(partition)) for partition, offset in ours.items()}
        if rebalancing.listening.is_inside:
            unread.give_back(ours, parting=self.guard.lifecycle.is_parting)
        if not ours:
            return lost, {}
        commits = self.auto_commit.commits
        self.auto_commit.give_way(ours)
        commit = commits.begin(ours, Why.CALLER, deadline, once=once)

        def follow() -> bool:
            follows = leaving and self.guard.lifecycle.is_parting  # once it has stopped, nobody would look
            if follows:
                self.auto_commit.follow(commit)
            return follows

        await self.calls.answer(commit.call, keep=follow)
        self.auto_commit.collect(self.calls.runtime.clock())  # interceptors hear of commits in the order in which they were stored
        refused = commits.end(commit)
        await commits.intercept()
        if (failure := commit.failure) is not None:
            raise failure
        return lost, refused

    async def committed(
        self, partitions: Collection[TopicPartition], *, partial: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See ``KafkaConsumer.committed_offsets``. ``partial``: without those whose offset cannot be read, if others can."""
        self.check_group("committed_offsets()")
        wanted = tuple(partitions or self.assigned.cursors())
        self.guard.check_running()
        self.calls.inbox.sort()
        self.calls.inbox.reported.raise_final()
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = await self.calls.ask(
            lambda call: FetchCommitted(call=call, partitions=frozenset(wanted), partial=partial)
        )
        return {partition: found[partition] for partition in wanted if not partial or partition in found}


def _completed(offset: OffsetAndMetadata, cursor: Cursor) -> OffsetAndMetadata:
    """Return an offset as one of the topic that is read. The position gets the leader epoch, which goes with no other."""
    offset, position = offset.of(cursor.stored.topic_id), cursor.to_commit
    is_position = position is not None and (position.offset, position.topic_id) == (offset.offset, offset.topic_id)
    if position is None or not is_position or offset.leader_epoch is not None:
        return offset
    return offset._replace(leader_epoch=position.leader_epoch)
