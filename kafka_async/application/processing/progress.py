"""What is done in each partition, and what may be committed of it: the record that a consumer with offsets keeps."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import anyio
from anyio import Lock

from ...errors import (
    CommitFailedError,
    ConsumerStoppedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from ...events import Refusals
from ...model import OffsetAndMetadata, TopicPartition
from ...trace import Fault, Notice
from ...values import define, field
from ..committing.commits import NO_ANSWER, Why, refusal
from .items import Item
from .retry import KEPT, MaybeElsewhere
from .router import NOT_READ, Router
from .run_state import RunState
from .source import Source
from .work import Ahead, Offsets, Work

_UNKNOWN = (UnknownTopicOrPartitionError, UnknownTopicIdError)
"""The topic may have been deleted: nothing waits for another attempt, at the end neither."""
_LATER: Final = "done records could not be committed; trying again"
_ELSEWHERE: Final = "done records could not be committed; they will be handled again"
"""For what no later commit can cover: another member has the partition."""


@define(eq=False)
class Progress:
    """The partitions of one consumer that are processed."""

    work: Work
    source: Source
    run: RunState
    _committing: Lock = field(factory=Lock, init=False, repr=False)
    _error: Exception | None = field(default=None, init=False, repr=False)
    """Why the last attempt to commit for the last time has failed."""
    _told: Offsets = field(factory=dict, init=False, repr=False)
    """What it was said of that it is not committed, and will not be."""

    def holds(self, now: float) -> bool:
        """Return whether what was received is surely still ours: the session lasts, and nothing was lost."""
        return self.source.holds(now)

    def completed(self, partition: TopicPartition, also: Sequence[Item], now: float) -> OffsetAndMetadata | None:
        """Return what may be committed for a partition once the records of ``also`` are done too; ``None``: nothing is known.

        Raises ``MaybeElsewhere`` unless these are surely still ours. If the process was frozen, say, the handler goes on before the
        loop learns that the session is over. Or its partition has left, and is back as another one, which does not know the record.
        """
        if any(item.part.gone for item in also) or not self.holds(now):
            raise MaybeElsewhere(KEPT, "another member may have the record by now")
        return self.work.completed(partition, self.source.position(partition), also)

    def to_commit(self) -> Offsets:
        """Return what may be committed and differs from what was committed last."""
        return self.work.to_commit(self.source.positions())

    def to_commit_by_interval(self) -> Offsets:
        """As ``to_commit``, without topics that the cluster does not know any more: each interval's commit would be refused.

        Whether a topic is there is asked each time. If it comes back, what is done in it is committed as before.
        """
        offsets = self.to_commit()
        missing = {topic for topic in {tp.topic for tp in offsets} if self.source.is_missing(topic)}
        return {tp: offset for tp, offset in offsets.items() if tp.topic not in missing} if missing else offsets

    def ahead(self) -> Ahead:
        return Ahead(self.work.far_ahead, self.work.open_lanes, self.work.done_ahead)

    async def check_redelivery(self) -> None:
        """Raise ``UnknownTopicOrPartitionError`` if a topic that records are written to does not exist; log what is unusual."""
        source, run = self.source, self.run
        wanted = await source.redelivery_topics()
        if not wanted:
            return
        run.trace(Notice(now=run.clock(), text="a record that is written to a retry topic loses its place in the order"))
        if unread := sorted(frozenset(wanted) - frozenset(source.subscription())):
            text = f"records are written to topics that this consumer does not read: {', '.join(unread)}"
            run.trace(Fault(now=run.clock(), text=text))

    def check_group(self) -> None:
        """Log that nothing is committed if there is no group: what is done is known to nobody after a restart."""
        source, now = self.source, self.run.clock()
        if source.commits:
            return
        text = "process commits nothing, since the consumer has no group_id"
        if source.is_meant_to_commit:
            self.run.trace(Fault(now=now, text=f"{text}; with enable_auto_commit=False this is no warning", subject="commit"))
        else:
            self.run.trace(Notice(now=now, text=text, subject="commit"))

    def check_routes(self, router: Router | None) -> None:
        """Log which topics of routes are not read: their handlers are never called."""
        subscription = self.source.subscription()
        if router is not None and subscription and (unread := router.unread(subscription, self.source.reads)):
            self.run.trace(Fault(now=self.run.clock(), text=NOT_READ.format(", ".join(unread))))

    # --- partitions that come --------------------------------------------------------------------------------------------------

    async def take_over(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Begin with partitions, without repeating what an earlier owner had done beyond its commit. Return what is committed."""
        partitions = tuple(partitions)
        found, error = await self.source.committed(partitions)
        self._report_maps(error)
        with_metadata = {tp.topic for tp, offset in found.items() if offset is not None and offset.metadata}
        ids, error = await self.source.topic_ids({tp.topic for tp in partitions} if self.work.commits_maps else with_metadata)
        self._report_maps(error)
        unknown = {tp.topic for tp in partitions} - ids.keys() if error is not None else frozenset()
        foreign = [
            tp for tp in partitions if not self.work.assign(tp, found.get(tp), ids.get(tp.topic)) and tp.topic not in unknown
        ]
        if foreign:
            text = f"{len(foreign)} partitions have commit metadata of another program or another topic; it is ignored"
            self.run.trace(Notice(now=self.run.clock(), text=text))
        self.work.suspend(self.source.paused())
        return found

    async def go_on_where_sought(self, sought: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """What was committed says no more what is done. A program that keeps offsets elsewhere has sought to them with that."""
        for partition, target in sought.items():
            self.work.see_again(partition, target.offset)
        found = {tp: target for tp, target in sought.items() if target.metadata}
        ids, error = await self.source.topic_ids({tp.topic for tp in found})
        self._report_maps(error)
        for partition, target in found.items():
            self.work.go_on_at(partition, target, ids.get(partition.topic))

    def _report_maps(self, error: KafkaError | None) -> None:
        if error is not None:
            self._report(error, "the map of done records could not be read; some of them are handled again")

    # --- committing ------------------------------------------------------------------------------------------------------------

    async def commit(self, find: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]], leaving: Offsets | None = None) -> bool:
        """Commit what ``find`` returns when it is this commit's turn: nothing older is ever committed after something newer.

        A failure is reported and stops nothing: the next commit covers what this one did not.
        ``leaving``: no later commit does. What is committed is removed from it, and what is left of it is for the caller to report.
        Return whether it failed, and another attempt may succeed.
        """
        if not self.source.commits:
            return False
        async with self._committing:
            try:
                return await self._commit(find(), leaving)
            except ConsumerStoppedError as error:  # another task has stopped it, or cancelled its background loop
                self._error = error  # the end says what is not committed
                return False

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], leaving: Offsets | None) -> bool:
        again, last = False, leaving is not None or self.run.finishing
        covered = {tp: (part.progress, part.progress.new) for tp in offsets if (part := self.work.parts.get(tp)) is not None}
        while offsets and not self.source.gives_up:  # its call-back commits what leaves, and waits for this to end
            try:
                refused = await self.source.commit(offsets, leaving=bool(leaving))
            except KafkaError as error:
                if isinstance(error, CommitFailedError):
                    self._told.update(offsets)
                    self._report(error, _ELSEWHERE)
                else:
                    self._failed(error, last=last)
                return again or error.retriable
            stored = {tp: offset for tp, offset in offsets.items() if tp not in refused}
            self.work.committed(stored)
            for progress, new in (covered[tp] for tp in stored if tp in covered):
                progress.committed += new  # what was done meanwhile is for the next commit
            if leaving is not None:
                for partition in stored:
                    leaving.pop(partition, None)
            offsets = self._without_maps(offsets, refused, last=last)
            again |= any(error.retriable and not isinstance(error, _UNKNOWN) for error in refused.values())
        return again

    def _without_maps(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], refused: Refusals, *, last: bool) -> Offsets:
        """Report what was refused. Return what to commit without the map of done records, because the map is too large.

        All else that was refused is not tried again before the next interval.
        """
        too_large = {tp: error for tp, error in refused.items() if isinstance(error, OffsetMetadataTooLargeError)}
        smaller = {tp: offsets[tp]._replace(metadata="") for tp in too_large if self.work.commits_maps}
        if smaller:
            self.work.commit_without_maps()
            self._report(next(iter(too_large.values())), "committing without the map of done records")
        left = {tp: error for tp, error in refused.items() if tp not in smaller}
        if lost := {tp: error for tp, error in left.items() if isinstance(error, CommitFailedError)}:
            self._told.update((tp, offsets[tp]) for tp in lost)
            self._report(refusal(lost), _ELSEWHERE)
        if others := {tp: error for tp, error in left.items() if tp not in lost}:
            self._failed(refusal(others), last=last)
        return smaller

    def _failed(self, error: KafkaError, *, last: bool) -> None:
        """An attempt has failed. ``last``: what comes of it in the end is said then, once."""
        if last:
            self._error = error
        else:
            self._report(error)

    async def commit_at_the_end(self) -> None:
        """Commit, again if need be: a broker may be away for a moment, and what is not committed will be handled again.

        With nothing to commit, a commit that is under way is not waited for.
        """
        while not self.source.stopping and self.to_commit() and await self.commit(self.to_commit):  # noqa: ASYNC110 - no event
            await anyio.sleep(self.source.retry_backoff)

    async def commit_what_leaves(self, offsets: Offsets, done: Collection[TopicPartition], seconds: float) -> None:
        """Commit, within ``seconds``, what is done of partitions that leave. Say what could not be, unless a stop cancels this
        while the commit is under way: that says it, once it is known.

        ``done``: those in which a record was done that is not committed. Of the others nothing comes again.
        """
        leaving = {tp: offset for tp, offset in offsets.items() if tp in done}
        self._error = None
        try:
            with anyio.move_on_after(seconds):
                await self.commit(lambda: offsets, leaving)  # found before they were forgotten
        finally:
            self.report_uncommitted({tp: offset for tp, offset in leaving.items() if not self.source.follows(tp, offset)})

    def uncommitted(self) -> Offsets:
        """Return what is not committed of partitions in which a record was done since: it comes again unless a later commit covers
        it.

        Also if the consumer is stopped by now.
        """
        if not self.source.commits:
            return {}
        offsets, parts = self.work.to_commit(self.source.last_positions()), self.work.parts
        return {tp: offset for tp, offset in offsets.items() if parts[tp].progress.new}

    def is_committed(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether this very offset is committed, though with another map of what is done after it."""
        return self.work.committed_at(partition, offset) or self.source.is_committed(partition, offset)

    def report_uncommitted(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Say once that these are not committed, and will not be, as without ``process``."""
        left = {tp: offset for tp, offset in offsets.items() if self._told.get(tp) != offset}
        if not left or not self.source.commits:
            return
        self._told.update(left)
        error = self._error or KafkaTimeoutError(NO_ANSWER)
        text, now = Why.LEAVING.value, self.run.clock()
        self.run.trace(Fault(now=now, text=text, error=error, subject="commit", partitions=frozenset(left)))

    def _report(self, error: Exception, text: str = _LATER) -> None:
        self.run.trace(Fault(now=self.run.clock(), text=text, error=error))

    # --- the end ---------------------------------------------------------------------------------------------------------------

    def give_back(self, left_at: Mapping[TopicPartition, int]) -> Offsets:
        """Forget all. Return the first record of each partition that is not done, where the consumer goes on.

        A partition without received records may have one too, of an earlier owner. A partition that left in a rebalance that is
        not over (``left_at``) has its position past all that was received, which an auto-commit would take for consumed.
        """
        work, positions = self.work, {} if self.source.stopping else self.source.positions()
        unfinished = work.unfinished()
        points = {tp: point for tp in tuple(work.parts) if (point := work.committable(tp, positions.get(tp))) is not None}
        kept = {tp: point for tp, point in points.items() if tp in unfinished or point.metadata}
        left = {tp: OffsetAndMetadata(offset, "") for tp, offset in left_at.items() if tp not in points}
        work.forget(tuple(work.parts))
        return left | kept
