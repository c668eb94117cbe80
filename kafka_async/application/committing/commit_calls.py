"""Commits, and looks at what is committed, that the caller asks for."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from ...background.by_topic import named
from ...errors import CommitFailedError, IllegalOperation, IllegalStateError
from ...events import FetchCommitted
from ...model import OffsetAndMetadata, TopicPartition
from ...values import define, field
from ..arguments import commit_offsets
from ..background_calls import BackgroundCalls
from ..group.assigned import AssignedPartitions
from ..lifecycle.lifecycle import Phase
from ..lifecycle.ownership import CallGuard
from .auto_commit import AutoCommit
from .commits import Why

Wanted = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]


@define(eq=False)
class CommitCalls:
    """The commits of one consumer's caller."""

    guard: CallGuard
    calls: BackgroundCalls = field(repr=False)
    assigned: AssignedPartitions
    auto_commit: AutoCommit
    instead: Callable[[], Awaitable[None]] | None = field(default=None, init=False)
    """Commits what is done while ``process`` runs, which decides what that is."""

    def check_group(self, what: str) -> None:
        """Raise ``IllegalOperation`` without a group."""
        self.guard.check_open()
        if self.calls.config.group_id is None:
            raise IllegalOperation(f"{what} needs a group_id")

    async def commit(self, offsets: Wanted | None, *, once: bool = False) -> None:
        """See ``KafkaConsumer.commit``. ``once``: the first answer about a partition is final."""
        self.check_group("commit()")
        self.guard.check_running()
        unread, rebalancing, inbox = self.assigned.unread, self.assigned.rebalancing, self.calls.inbox
        await rebalancing.unsubscribed()
        inbox.sort()
        inbox.reported.raise_final()
        unread.settle()
        inside = rebalancing.listening.is_inside
        if offsets is None and self.instead is not None and self.guard.reads_alone is not None:
            if inside:  # as programs do that read by themselves
                await self.instead()
                return
            raise IllegalStateError("process() commits records that are done; commit() would commit all that were read")
        wanted = unread.positions() if offsets is None else commit_offsets(offsets)
        lost = tuple(partition for partition in wanted if partition in rebalancing.lost)
        ours = {partition: offset for partition, offset in wanted.items() if partition not in lost}
        ours = {partition: offset.of(self.assigned.cursor(partition).stored.topic_id) for partition, offset in ours.items()}
        if inside:
            unread.give_back(ours, parting=self.guard.lifecycle.phase is Phase.PARTING)
        await self._commit(ours, once=once)
        if lost:
            text = f"committed all offsets but those of partitions that are no longer assigned: {named(lost)}"
            raise CommitFailedError(text, lost)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, once: bool) -> None:
        """Commit at the caller's request; errors are raised to the caller."""
        if not offsets:
            return
        commits = self.auto_commit.commits
        self.auto_commit.withdraw()
        commit = commits.begin(offsets, Why.CALLER, self.calls.deadline(), once=once)
        await self.calls.answer(commit.call)
        error = commits.end(commit)
        await commits.intercept()
        if error is not None:
            raise error

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See ``KafkaConsumer.committed_offsets``."""
        self.check_group("committed_offsets()")
        wanted = frozenset(partitions or self.assigned.cursors())
        self.guard.check_running()
        self.calls.inbox.sort()
        self.calls.inbox.reported.raise_final()
        return dict(await self.calls.ask(lambda call: FetchCommitted(call=call, partitions=wanted)))
