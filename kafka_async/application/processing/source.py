"""One consumer, as far as processing uses it: records, positions, commits, and call-backs of rebalances.

While records are processed, what takes part in rebalances for them comes before the user's listener.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from ...background.by_topic import named
from ...errors import ConsumerStoppedError, KafkaError
from ...events import Refusals
from ...model import OffsetAndMetadata, TopicPartition
from ...values import define, field, frozen
from ..callbacks import Batch, ConsumerRebalanceListener, settled
from ..committing.auto_commit import SHORTEST_INTERVAL
from ..committing.commit_calls import Settling
from ..lifecycle.lifecycle import Phase
from ..lifecycle.ownership import Occupant
from ..parts import Parts
from ..reading.cursor import Cursor, PauseReason
from .delays import Delays
from .items import Record
from .lanes import Lanes
from .process_settings import ProcessSettings
from .redelivery import WRITTEN_TO, Redelivery
from .work import Received, Supply, Work


class RebalanceFollower(Settling, Protocol):
    """Takes part in rebalances before the user's listener does, while records are processed."""

    def calling_back(self) -> AbstractContextManager[None]:
        """Return the context that every call-back runs in, including the user's."""

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None: ...
    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    async def on_lost(self, partitions: Collection[TopicPartition]) -> None: ...
    async def on_sought(self, partitions: Collection[TopicPartition]) -> None:
        """The user's call-back of an assignment has returned, and may have sought."""

    def on_pauses(self, why: PauseReason) -> None:
        """Partitions were paused or resumed for this reason."""

    def on_seek(self, partition: TopicPartition, target: OffsetAndMetadata) -> None:
        """A partition was sought elsewhere."""

    def still_to_do(self, partition: TopicPartition, offset: int, topic_id: UUID | None) -> int | None:
        """Return where to read a log that was cut off, if not at ``offset``: not all that was received before that is done."""


@frozen(eq=False)
class Chained(ConsumerRebalanceListener):
    """Notifies processing of a rebalance first, then the user's listener."""

    follower: RebalanceFollower
    inner: ConsumerRebalanceListener | None = None

    def before(self, inner: ConsumerRebalanceListener | None) -> "Chained":
        """Return what comes before this listener: every ``subscribe`` sets the user's again, while a read may be under way.

        A call-back that was due before that is still one of the listener that was there then.
        """
        return Chained(self.follower, inner)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        with self.follower.calling_back():
            await self.follower.on_revoked(revoked)
            if self.inner is not None:
                await settled(self.inner.on_partitions_revoked(revoked), "on_partitions_revoked")

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        with self.follower.calling_back():
            await self.follower.on_assigned(assigned)
            if self.inner is not None:
                await settled(self.inner.on_partitions_assigned(assigned), "on_partitions_assigned")
                await self.follower.on_sought(assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        with self.follower.calling_back():
            await self.follower.on_lost(lost)
            if self.inner is not None:
                await settled(self.inner.on_partitions_lost(lost), "on_partitions_lost")


@define(eq=False)
class Source:
    """One consumer, as far as processing uses it."""

    parts: Parts = field(repr=False)
    redelivery: Redelivery | None = field(default=None, repr=False)
    follower: RebalanceFollower | None = field(default=None, init=False)
    """What takes part in rebalances, while records are processed."""

    def work(self, settings: ProcessSettings) -> Work:
        """Return an empty account of what is received and done."""
        work = Work(
            settings.lane_of,
            settings.room,
            Lanes(settings.batch or 1, settings.linger, self.delays(settings)),
            one_set_of_lanes=settings.one_set_of_lanes,
            keep_done=settings.keep_done,
        )
        if not self.commits:
            work.commit_without_maps()
        return work

    def delays(self, settings: ProcessSettings) -> Delays | None:
        """Return what keeps records until they are due; ``None`` if all are."""
        if settings.not_before is None and self.redelivery is None:
            return None
        return Delays(settings.not_before, self.redelivery)

    def wall(self) -> float:
        """Return the wall clock's time, in milliseconds since the epoch."""
        return self.parts.observer.wall_ms()

    @property
    def clock(self) -> Callable[[], float]:
        runtime = self.parts.runtime
        return time.monotonic if runtime.has_system_clock else runtime.clock  # the same, without two calls in between

    @property
    def commits(self) -> bool:
        """Whether there is a group to commit to."""
        return self.parts.config.group_id is not None

    @property
    def is_meant_to_commit(self) -> bool:
        """Whether it may be an oversight that there is no group: topics are subscribed, and auto-commit is not turned off."""
        return self.parts.config.enable_auto_commit and self.parts.subscribed.is_subscription

    @property
    def commits_later(self) -> bool:
        """Whether auto-commit covers what processing leaves uncommitted: at the next interval, or when the consumer stops."""
        lifecycle = self.parts.guard.lifecycle
        return self.parts.config.enable_auto_commit and not self.stopping and lifecycle.look() is not Phase.FAILED

    @property
    def commit_interval(self) -> float:
        """Seconds. Reads end as often, so with 0 they would never wait."""
        return max(SHORTEST_INTERVAL, self.parts.config.auto_commit_interval_ms / 1000)

    @property
    def retry_backoff(self) -> float:
        return self.parts.config.retry_backoff

    @property
    def longest_drain(self) -> float:
        """Seconds that a drain may take: half of what the group waits for a member before it goes on without it."""
        return self.parts.config.max_poll_interval_ms / 2000

    @property
    def last_commit(self) -> float:
        """Seconds that the commit at the end may take: a broker may be away for a moment."""
        return self.parts.config.request_timeout_ms / 1000

    @property
    def stopping(self) -> bool:
        return self.parts.guard.lifecycle.is_over

    def holds(self, now: float) -> bool:
        """Return whether what was received is surely still ours: the session lasts, and nothing was lost."""
        return not (self.parts.reads.reader.gate.is_over(now) or self.parts.inbox.has_losses)

    # --- life ------------------------------------------------------------------------------------------------------------------

    def begin(self, follower: RebalanceFollower, occupant: Occupant) -> None:
        """Be notified of rebalances, and let nothing else read or commit."""
        parts = self.parts
        parts.guard.check_readable()
        parts.reads.reader.take_over()
        parts.guard.occupant = occupant
        self.follower, chained = follower, Chained(follower)
        listening = parts.rebalancing.listening
        listening.chain = chained.before
        listening.listen(listening.listener)
        parts.unread.on_pause = follower.on_pauses
        parts.assigned.on_seek = follower.on_seek
        parts.commits.instead = follower
        parts.commits.auto_commit.suspended = True

    def end(
        self, unfinished: Mapping[TopicPartition, OffsetAndMetadata], uncommitted: Collection[TopicPartition], *, failed: bool
    ) -> None:
        """Give listener and auto-commit back, with positions at the first record of each partition that is not done.

        ``uncommitted``: partitions that are done further than is committed, which is left to auto-commit.
        ``failed``: the consumer is not alive until something else reads from it.
        """
        parts = self.parts
        listening, auto_commit = parts.rebalancing.listening, parts.commits.auto_commit
        self.delay(self.delayed(), delayed=False)
        listening.chain = parts.unread.on_pause = parts.assigned.on_seek = parts.commits.instead = None
        if isinstance(chained := listening.listener, Chained):
            listening.listen(chained.inner)
        self.follower = None
        if not failed:
            parts.guard.occupant = None
        if self.stopping:
            return  # positions are past what is not done, so auto-commit must not make the commits of the end
        try:
            parts.unread.begin_anew_aside(unfinished)  # those that left in a rebalance that is not over: what is done was committed
            cursors = parts.assigned.cursors()  # without those that ``unsubscribe`` gives up, which are read no more
            ours = {tp: offset for tp, offset in unfinished.items() if tp in cursors}
            for partition, offset in ours.items():
                parts.assigned.seek(partition, OffsetAndMetadata(offset.offset, topic_id=offset.topic_id))
            # They were committed with the map of what is done after them, which a commit of the same offsets would overwrite.
            auto_commit.commits.book({tp: offset for tp, offset in ours.items() if tp not in uncommitted})
        finally:
            auto_commit.suspended = False

    # --- reading ---------------------------------------------------------------------------------------------------------------

    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> Supply:
        """Return up to ``limit`` records as soon as there are any, none of ``waiting`` partitions; ``{}`` after ``seconds``.

        With a limit of 0 it waits and carries out rebalances, as every read does.
        """
        self.parts.guard.lifecycle.check_readable()
        only = self._without(waiting)
        raw = self._room_for_raw()
        batch = await self.parts.reads.reader.batch(only, seconds, limit if only or not waiting else 0, raw)
        self.parts.unread.taken = None  # delivered: nothing can come between this and the return
        return self._supply(batch, raw)

    def take(self, limit: int, waiting: Collection[TopicPartition]) -> Supply:
        """As ``read``, but only what is there already, in one step; nothing if a read has something else to deal with first."""
        only = self._without(waiting)
        if waiting and not only:
            return {}
        raw = self._room_for_raw()
        batch = self.parts.reads.reader.at_once(only, limit, raw)
        self.parts.unread.taken = None
        return self._supply(batch, raw)

    def refused(self, partition: TopicPartition, record: Record) -> Supply:
        """Return a record that a read has refused as ``read`` returns others: not if reading goes on at an earlier one."""
        return self._supply({partition: [record]}, None)

    def _supply(self, batch: Batch, raw: Batch | None) -> Supply:
        supply = {tp: Received(records, records if raw is None else raw[tp], self._topic_id(tp)) for tp, records in batch.items()}
        for partition in [tp for tp in supply if self._is_cut(tp) and self._goes_back(tp, supply[tp])]:
            del supply[partition]
        return supply

    def _is_cut(self, partition: TopicPartition) -> bool:
        cursor = self.parts.unread.partitions.get(partition)
        return cursor is not None and cursor.beginning is not None and cursor.beginning.is_cut

    def _goes_back(self, partition: TopicPartition, received: Received) -> bool:
        """Whether a log was cut off behind records that are not done: reading goes on at the first of those, and not here."""
        follower, offset = self.follower, received.records[0].offset
        first = None if follower is None else follower.still_to_do(partition, offset, received.topic_id)
        self.go_back(partition, first)
        return first is not None

    def _without(self, waiting: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
        return tuple([tp for tp in self.parts.unread.partitions if tp not in waiting]) if waiting else ()

    def _room_for_raw(self) -> Batch | None:
        """Return the place to collect records as they were before deserializers; ``None`` if nothing changes them."""
        return None if self.parts.reads.reader.preparation is None else {}

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset to read of each partition, as after the last read."""
        self.parts.guard.check_open()
        return self.parts.assigned.next_offsets()

    def last_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``positions``, also when the consumer is stopped."""
        return self.parts.assigned.next_offsets()

    def position(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """As ``positions``, for one partition, however many there are."""
        self.parts.guard.check_open()
        return self.parts.assigned.next_offset(partition)

    def paused(self) -> Collection[TopicPartition]:
        """Return the partitions that are paused: none of their records is to be handled."""
        return self.parts.assigned.paused()

    def delayed(self) -> Collection[TopicPartition]:
        """Return the partitions that are paused until their next record is due."""
        return [tp for tp, cursor in self.parts.unread.partitions.items() if PauseReason.DELAY in cursor.paused]

    def delay(self, partitions: Collection[TopicPartition], *, delayed: bool) -> None:
        """Pause partitions until their next record is due, or let them go on. Those that have left are ignored."""
        unread = self.parts.unread
        unread.pause([tp for tp in partitions if tp in unread.partitions], paused=delayed, why=PauseReason.DELAY)
        if not delayed:
            self.parts.runtime.wake_application()

    def is_missing(self, topic: str) -> bool:
        """Whether the cluster does not know this topic of the assignment any more: nobody will read its records again."""
        inbox = self.parts.inbox
        inbox.sort()
        found = inbox.cluster.topics.get(topic)
        return found is None or not found.partitions

    async def gone(self, topics: Collection[str]) -> Collection[str]:
        """Return which topics do not exist any more, as the cluster says when it is asked again: a single broker may lag behind."""
        try:
            return await self.parts.calls.missing(frozenset(topics))
        except (KafkaError, ConsumerStoppedError):
            return ()

    def _topic_id(self, partition: TopicPartition) -> UUID | None:
        """Return the id of the topic that the last records of a partition belong to."""
        cursor = self.parts.unread.partitions.get(partition)
        return None if cursor is None else cursor.stored.topic_id

    def go_back(self, partition: TopicPartition, offset: int | None) -> None:
        """Read on from ``offset`` if the partition's position is elsewhere."""
        cursor = self.parts.unread.partitions.get(partition)
        if cursor is not None and offset is not None and cursor.position not in (None, offset):
            self.parts.guard.check_open()
            self.parts.assigned.seek(partition, OffsetAndMetadata(offset))

    def give_back(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Have partitions that leave stand where they are done up to: a listener may keep positions, and seek to them later."""
        self.parts.unread.give_back(offsets, parting=self.parts.guard.lifecycle.is_parting)

    def sought(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return to which offsets partitions were sought, each once. If something was read since, without metadata."""
        return self.parts.assigned.take_sought(partitions)

    def assignment(self) -> Collection[TopicPartition]:
        return self.parts.unread.partitions.keys()

    def cursor(self, partition: TopicPartition) -> Cursor | None:
        """Return what a partition is read with: the same as before only if it is still ours, or comes back as it was."""
        return self.parts.unread.partitions.get(partition) or self.parts.unread.set_aside.get(partition)

    # --- committing ------------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, leaving: bool = False) -> Refusals:
        """Commit. Return which partitions were refused, and why; all others are committed.

        Raises the error of a commit of which nothing is known about single partitions.

        A partition of a topic that brokers do not know is not tried again: it may have been deleted, and all other commits, a
        rebalance and a stop would wait for it. ``leaving``: no later commit covers it. If a stop cancels the wait, it ``follows``
        the commit instead.
        """
        return await self.parts.commits.commit_once(offsets, leaving=leaving)

    def follows(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether the end of the consumer says what became of a commit of this offset."""
        return self.parts.commits.auto_commit.follows(partition, offset.offset)

    def is_committed(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether this offset was committed last, perhaps with other metadata."""
        cursor = self.parts.unread.partitions.get(partition)
        return cursor is not None and cursor.stored.committed == offset.offset and cursor.is_of(offset.topic_id)

    @property
    def gives_up(self) -> bool:
        """Whether a call-back of ``unsubscribe`` is running, and the caller is not part of it: it commits what leaves."""
        rebalancing = self.parts.rebalancing
        return rebalancing.is_unsubscribing and not rebalancing.listening.is_inside

    def give_up(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets of partitions that leave now, without waiting for the response."""
        if self.commits:
            self.parts.commits.auto_commit.give_up(offsets)

    async def given_up(self) -> None:
        """Wait for the commits of ``give_up``."""
        await self.parts.commits.auto_commit.finish_last(self.last_commit)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata | None], KafkaError | None]:
        """Return the committed offsets with their metadata, as far as they could be had, and the error if not all could."""
        if not self.commits or not partitions:
            return {}, None
        try:
            found = await self.parts.commits.committed(partitions, partial=True)
        except KafkaError as error:
            return {}, error
        # An auto-commit of the same offsets, if processing ends at once, would overwrite the maps that are with them.
        self.parts.commits.auto_commit.commits.book({tp: offset for tp, offset in found.items() if offset is not None})
        missing = [tp for tp in partitions if tp not in found]
        return found, KafkaError(f"no committed offset could be read of {named(missing)}") if missing else None

    def subscription(self) -> Collection[str]:
        """Return the topics that are read."""
        subscribed, inbox = self.parts.subscribed, self.parts.inbox
        inbox.sort()
        names = subscribed.names(inbox.cluster, self.parts.unread)
        return names or {tp.topic for tp in self.parts.unread.partitions}

    def reads(self, topic: str) -> bool:
        """Whether a topic is read, or will be if it is created. Of an expression that brokers evaluate that is not known: yes."""
        subscribed = self.parts.subscribed
        return subscribed.pattern is not None and subscribed.pattern(topic)

    async def redelivery_topics(self) -> Collection[str]:
        """Return the topics that records which failed are written to. Raises ``UnknownTopicOrPartitionError`` if one is missing."""
        if self.redelivery is None:
            return ()
        wanted = frozenset(self.redelivery.topics(self.subscription()))
        if wanted:
            await self.parts.calls.check_topics(wanted, WRITTEN_TO)
        return wanted

    async def topic_ids(self, topics: Collection[str]) -> tuple[Mapping[str, UUID | None], KafkaError | None]:
        """Return the ids of topics, ``None`` for those for which the brokers know none, and the error if not all could be had."""
        self.parts.inbox.sort()
        known = self.parts.inbox.cluster.topics
        failure: KafkaError | None = None
        if any(name not in known for name in topics):
            try:
                known = (await self.parts.calls.describe(frozenset(topics))).topics
            except KafkaError as error:
                failure = error
        return {name: found.topic_id for name in topics if (found := known.get(name)) is not None}, failure
