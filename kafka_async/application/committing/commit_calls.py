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
from ..lifecycle.lifecycle import Phase
from ..lifecycle.ownership import CallGuard
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
        await self._enter()
        unread = self.assigned.unread
        if offsets is None and self.instead is not None and self.guard.reads_alone is not None:
            if self.assigned.rebalancing.listening.is_inside:  # as programs do that read by themselves
                await self.instead.settle()
                return
            raise IllegalStateError("process() commits records that are done; commit() would commit all that were read")
        lost, refused = await self._commit(unread.positions() if offsets is None else commit_offsets(offsets), once=False)
        if refused:
            raise refusal(refused)
        if lost:
            text = f"committed all offsets but those of partitions that are no longer assigned: {named(lost)}"
            raise CommitFailedError(text, lost)

    async def commit_once(self, offsets: Wanted) -> Refusals:
        """Commit; the first answer about a partition is final. Return what was refused; the other offsets are committed.

        Raises the error of a commit of which nothing is known about single partitions.
        """
        await self._enter()
        lost, refused = await self._commit(commit_offsets(offsets), once=True)
        gone = {tp: CommitFailedError(f"{named([tp])}: no longer assigned, so its offset was not committed", (tp,)) for tp in lost}
        return {**gone, **refused}

    def give_up(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit what is consumed of partitions that leave now, by ``assign`` or ``unsubscribe``, without waiting."""
        if self.instead is None:
            self.auto_commit.send_last(partitions)
        else:
            self.instead.give_up(partitions)

    async def _enter(self) -> None:
        self.check_group("commit()")
        self.guard.check_running()
        inbox = self.calls.inbox
        await self.assigned.rebalancing.unsubscribed()
        inbox.sort()
        inbox.reported.raise_final()
        self.assigned.unread.settle()

    async def _commit(
        self, wanted: Mapping[TopicPartition, OffsetAndMetadata], *, once: bool
    ) -> tuple[tuple[TopicPartition, ...], Refusals]:
        """Commit what is still ours. Return the partitions that are not, and what was refused of the others."""
        unread, rebalancing = self.assigned.unread, self.assigned.rebalancing
        # Those of ``process`` may leave, by ``assign``, after it has looked at what is done.
        lost = tuple(tp for tp in wanted if tp in rebalancing.lost or (once and tp not in unread.partitions))
        ours = {partition: offset for partition, offset in wanted.items() if partition not in lost}
        ours = {partition: offset.of(self.assigned.cursor(partition).stored.topic_id) for partition, offset in ours.items()}
        if rebalancing.listening.is_inside:
            unread.give_back(ours, parting=self.guard.lifecycle.phase is Phase.PARTING)
        if not ours:
            return lost, {}
        commits = self.auto_commit.commits
        self.auto_commit.withdraw()
        commit = commits.begin(ours, Why.CALLER, self.calls.deadline(), once=once)
        await self.calls.answer(commit.call)
        refused = commits.end(commit)
        await commits.intercept()
        if (failure := commit.failure) is not None:
            raise failure
        return lost, refused

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See ``KafkaConsumer.committed_offsets``."""
        self.check_group("committed_offsets()")
        wanted = frozenset(partitions or self.assigned.cursors())
        self.guard.check_running()
        self.calls.inbox.sort()
        self.calls.inbox.reported.raise_final()
        return dict(await self.calls.ask(lambda call: FetchCommitted(call=call, partitions=wanted)))
