"""How records that are done come to count for a consumer with offsets: by commits. And what happens to them in a rebalance.

While the handlers of partitions that leave are given time to end, and while it is asked what is done in those that come, a read
inside the call-back goes on for the others.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from anyio import create_task_group, move_on_after

from ...model import OffsetAndMetadata, TopicPartition
from ...values import define, field
from ..parts import Parts
from ..reading.cursor import Cursor, PauseReason
from .bulkheads import limited
from .delaying import Delayer
from .feed import Feed
from .handling import Handling
from .limits import behind_limits
from .process_settings import ProcessSettings
from .processing import UNWINDING, Processing
from .progress import Progress
from .run_state import Bench, RunState
from .source import Source
from .tasks import Running

LAST_COMMIT: Final = 5.0
"""Seconds for the commit before a revocation, after the handlers' own time: the group waits for it."""


class _Left(NamedTuple):
    """A partition that left."""

    cursor: Cursor
    """If another one comes back, others may have had the partition meanwhile, and have gone on."""
    offset: int
    """Up to there everything was done."""


@define(eq=False)
class CommitSettlement:
    """Commits what is done every so often, before partitions leave, and at the end; and takes part in rebalances."""

    progress: Progress
    handling: Handling
    feed: Feed
    run: RunState
    look_at: float = field(default=0.0, init=False)
    """When the next commit is due."""
    _commit: Running | None = field(default=None, init=False, repr=False)
    """One that is under way."""
    _left: dict[TopicPartition, _Left] = field(factory=dict, init=False, repr=False)
    """Partitions that left and were not sought since, until the next assignment."""
    _revoking: int = field(default=0, init=False, repr=False)
    """Call-backs of partitions that leave which have not committed yet."""
    _outside: Context = field(factory=Context, init=False, repr=False)
    """The context in which it began, as that of all its tasks."""

    @property
    def consequence(self) -> str:
        """What happens if a record is not done for long."""
        return "nothing after it is committed"

    @property
    def last(self) -> float:
        """Seconds that the commit at the end may take: a broker may be away for a moment."""
        return self.progress.source.last_commit

    @property
    def is_done(self) -> bool:
        """Whether everything that was received is done, but for the records of partitions that are paused.

        Handlers that run for what the program has sought back from count: they are not done.
        """
        work = self.progress.work
        return work.held <= work.suspended and not any(part.gone for part in work.running_of(work.parts))

    async def begin(self, processing: Processing) -> None:
        """Take the partitions of the consumer over."""
        self._outside, source = copy_context(), self.progress.source
        source.begin(self, processing)
        try:
            await self.progress.check_redelivery()
            self.progress.check_group()
            self.progress.check_routes(self.handling.settings.router)
            await self.progress.take_over(source.assignment())
            await self.progress.go_on_where_sought(source.sought(source.assignment()))
        except BaseException:
            self.run.over = True
            source.end({}, (), failed=False)
            raise
        self.look_at = self.run.clock() + source.commit_interval

    def look(self) -> None:
        """Commit if it is time, without waiting for the answer."""
        now, progress = self.run.clock(), self.progress
        if now < self.look_at:
            return
        self.look_at = now + progress.source.commit_interval
        if self.run.ending or progress.source.stopping:
            return  # the end commits
        progress.work.forget(progress.work.parts.keys() - set(progress.source.assignment()))
        tasks = self.run.tasks
        if tasks is not None and (self._commit is None or self._commit.done):
            # Not as part of a call-back of a rebalance, which may be reading on: what that commits says how far the partitions that
            # leave are done, and moves their positions back, while handlers of theirs still run.
            self._commit = self._outside.run(self.run.start, tasks, partial(progress.commit, progress.to_commit_by_interval))

    async def settle(self) -> None:
        """Commit what is done."""
        await self.run.until(lambda: not self._leaves or self.run.ending)
        if self.progress.to_commit():
            await self.progress.commit(self.progress.to_commit)
        await self.progress.source.given_up()

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions leave now, by ``assign`` or ``unsubscribe``: commit what is done of them, and forget them.

        Nobody else gets them, so handlers that run may go on, but what they do does not count.
        """
        work, source = self.progress.work, self.progress.source
        self.handling.take_in()  # first: a record whose thread has ended is done
        self._leave(partitions)
        source.give_up(work.to_commit(source.positions(), [tp for tp in partitions if tp in work.parts]))
        work.forget(partitions)
        self.run.change()

    async def finish(self) -> None:
        """Commit what is done for the last time."""
        while not self.progress.source.stopping:
            await self.run.until(lambda: not self._leaves)  # after the end it would find nothing to commit
            await self.progress.commit_at_the_end()
            if not self._leaves:  # else it has come in between
                return

    @property
    def _leaves(self) -> bool:
        """Whether the call-back of ``unsubscribe`` is to commit what is done, or about to, and the caller is not part of it."""
        return self.progress.source.gives_up and bool(self._revoking or self.progress.work.parts)

    def end(self, *, failed: bool) -> None:
        """Let the consumer go on at the first record of each partition that is not done, and keep the maps that are committed."""
        left_at = {tp: offset for tp in self._left if (offset := self._left_at(tp)) is not None}
        source, uncommitted = self.progress.source, self.progress.uncommitted()
        # Auto-commit has no maps: of the same offset it could only overwrite the one that is committed with an empty one.
        later = {tp for tp, offset in uncommitted.items() if source.commits_later and not self.progress.is_committed(tp, offset)}
        self.progress.report_uncommitted({tp: offset for tp, offset in uncommitted.items() if tp not in later})
        points = self.progress.give_back(left_at)
        self.run.over = True
        source.end(points, later, failed=failed)

    def on_pauses(self, why: PauseReason) -> None:
        """Partitions were paused or resumed for this reason."""
        self.handling.take_back()
        self.progress.work.suspend(self.progress.source.paused())
        self.feed.look(self.run.clock())
        self.feed.bench.wake()
        self.run.change()

    def on_seek(self, partition: TopicPartition, target: OffsetAndMetadata) -> None:
        """A partition was sought elsewhere."""
        self._left.pop(partition, None)
        if self.progress.work.see_again(partition, target.offset):
            self.feed.interrupt()  # there is more room, and a drain may have nothing more to wait for

    def still_to_do(self, partition: TopicPartition, offset: int, topic_id: UUID | None) -> int | None:
        """Return where to read a log that was cut off, instead of at ``offset``: see ``Work``."""
        return self.progress.work.still_to_do(partition, offset, topic_id)

    # --- rebalances ------------------------------------------------------------------------------------------------------------

    def calling_back(self) -> AbstractContextManager[None]:
        """Return the context that every call-back of a rebalance runs in, including the user's."""
        return self.feed.undisturbed()

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Begin with new partitions."""
        self.progress.work.forget(partitions)
        await self._reading_on(lambda: self._take_over(partitions))

    async def _take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is awaited between the work's beginning with a partition and going back in it: what commits meanwhile, such as a
        stop, would pass over records that are not done.
        """
        source = self.progress.source
        found = await self.progress.take_over(partitions)
        sought = source.sought(partitions)  # by the program, while the above was awaited: it goes on there, as without ``process``
        for partition in partitions:
            # An eager rebalance brings partitions back with the position past all that was read. Records that were received and
            # not done were forgotten as the partitions left, and would never be handled.
            # What is committed lies after that if the program sought back and this could not be committed.
            point, left_at = found.get(partition), self._left_at(partition)
            starts = [offset for offset in (None if point is None else point.offset, left_at) if offset is not None]
            if partition not in sought:
                source.go_back(partition, min(starts, default=None))
        self._left.clear()
        await self.progress.go_on_where_sought(sought)

    def _left_at(self, partition: TopicPartition) -> int | None:
        """Return up to where everything was done of a partition that left, if it comes back as it was."""
        left = self._left.get(partition)
        return left.offset if left is not None and left.cursor is self.progress.source.cursor(partition) else None

    async def on_sought(self, partitions: Collection[TopicPartition]) -> None:
        """The user's call-back of an assignment has returned, and may have sought."""
        sought = self.progress.source.sought(partitions)
        await self._reading_on(lambda: self.progress.go_on_where_sought(sought))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Give running handlers of these partitions time to end, commit, and forget them. The others go on.

        Those of a topic that was deleted run on, but nobody waits for them: there is nothing to commit, and nobody to hand over to.
        """
        self._revoking += 1
        try:
            await self._hand_over(partitions)
        finally:
            self._revoking -= 1
            self.run.change()

    async def _hand_over(self, partitions: Collection[TopicPartition]) -> None:
        work, source = self.progress.work, self.progress.source
        self._leave(partitions)
        gone = await self._gone({tp.topic for tp in partitions})
        leaving = frozenset(tp for tp in partitions if tp.topic not in gone)
        with move_on_after(min(self.handling.settings.drain_timeout, source.longest_drain)):
            await self._drained(leaving)
        self._cancel(leaving)
        with move_on_after(UNWINDING):
            await self.run.until(lambda: not self._runs(leaving))
        known = [tp for tp in leaving if tp in work.parts]
        positions = source.positions()
        offsets, done = work.to_commit(positions, known), {tp for tp in known if work.parts[tp].progress.new}
        reached = {tp: work.committable(tp, positions.get(tp)) for tp in known}
        for tp, point in reached.items():
            if point is not None and (cursor := source.cursor(tp)) is not None:
                self._left[tp] = _Left(cursor, point.offset)
        source.give_back({tp: point for tp, point in reached.items() if point is not None})
        work.forget(partitions)
        source.sought(partitions)  # until now: if they come back, only what is sought from now on counts
        if offsets:
            await self.progress.commit_what_leaves(offsets, done, LAST_COMMIT)

    async def _gone(self, topics: Collection[str]) -> Collection[str]:
        """Return which topics were deleted. What one broker does not know is asked for again: it may lag behind."""
        source, found = self.progress.source, set[str]()
        missing = {topic for topic in topics if source.is_missing(topic)}

        async def look_again() -> None:
            found.update(await source.gone(missing))

        if source.stopping:
            return missing
        if missing:
            with move_on_after(LAST_COMMIT):
                await self._reading_on(look_again)
        return found

    async def _drained(self, leaving: frozenset[TopicPartition]) -> None:
        """Wait until no handler of these partitions runs."""
        if self._runs(leaving):
            await self._reading_on(lambda: self.run.until(lambda: not self._runs(leaving)))

    async def _reading_on(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait, and read on for the partitions that stay meanwhile. Raises what ``wait`` does."""
        failure: Exception | None = None
        async with create_task_group() as both:
            if not self.progress.source.stopping:
                both.start_soon(self._read_meanwhile)
            try:
                await wait()
            except Exception as error:  # raised here it would come out wrapped in a group
                failure = error
            both.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def _runs(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether a handler of these partitions runs that should be waited for."""
        running = self.progress.work.running_of(partitions)
        return sum(running.values()) > self.handling.stopping(lambda item: item.part in running)

    async def _read_meanwhile(self) -> None:
        while not self.run.ending and await self.feed.try_to_read(self.look_at):
            self.look()

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Another member has these partitions: cancel their handlers, and commit nothing."""
        self._leave(partitions)
        self._cancel(frozenset(partitions))
        self.progress.work.forget(partitions)
        self.run.change()

    def _leave(self, partitions: Collection[TopicPartition]) -> None:
        """Begin nothing more of these partitions."""
        self.handling.take_back()
        self.progress.work.leave(partitions)
        self.handling.leave()
        self.feed.look(self.run.clock())
        self.feed.bench.wake()

    def _cancel(self, partitions: frozenset[TopicPartition]) -> None:
        self.handling.cancel(lambda item: item.part.progress.partition in partitions)


def processing_of(parts: Parts, handler: Any, settings: ProcessSettings) -> Processing:
    """Put together what processes the records of a consumer."""
    source = Source(parts)
    settings, source.redelivery = settings.for_group(parts.config, source.wall)
    handler, settings = settings.around(handler, parts.config)
    work = source.work(settings)
    run = RunState(source.clock, parts.observer)
    work.lanes.due_sooner = run.change
    delayer = None if work.lanes.delays is None else Delayer(work.lanes.delays, work, source)
    feed = Feed(source, work, run, Bench(), delayer)
    progress = Progress(work, source, run)
    queue, barrier = behind_limits(limited(work, settings), settings.limits, settings.concurrency, run)
    handling = Handling(handler, settings, queue, run, feed, progress, barrier)
    return Processing(settings, work, run, feed, handling, CommitSettlement(progress, handling, feed, run))
