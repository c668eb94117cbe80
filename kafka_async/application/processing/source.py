"""What processing needs from a consumer: records, positions, commits, and call-backs of rebalances.

Owns: the place of the rebalance listener while records are processed; the user's listener is called after ours. The only file of
this package that knows the parts of a consumer.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self
from uuid import UUID

from ...errors import ConsumerStoppedError, KafkaError
from ...model import OffsetAndMetadata, TopicPartition
from ...trace import Listener
from ...values import define, field
from ..callbacks import Batch, ConsumerRebalanceListener, settled
from ..lifecycle.lifecycle import Phase
from ..lifecycle.ownership import Occupant
from ..parts import Parts
from .handling import Assigned
from .lanes import Lanes, Part, Record
from .process_settings import ProcessSettings
from .work import Intake, Offsets, Work

SHORTEST_INTERVAL: Final = 0.1
"""Seconds between two commits, at least."""

CallBack = Callable[[Collection[TopicPartition]], Awaitable[None]]
Around = Callable[[], AbstractContextManager[None]]


@define(eq=False)
class Chained(ConsumerRebalanceListener):
    """Notifies processing of a rebalance first, then the user's listener."""

    revoked: CallBack
    assigned: CallBack
    lost: CallBack
    sought: CallBack
    """Called after the user's call-back of an assignment, which may have sought."""
    around: Around
    """The context that every call-back runs in, including the user's."""
    inner: ConsumerRebalanceListener | None = None

    def before(self, inner: ConsumerRebalanceListener | None) -> Self:
        """Come before this listener from now on: every ``subscribe`` sets the user's again, while a read may be under way."""
        self.inner = inner
        return self

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        with self.around():
            await self.revoked(revoked)
            if self.inner is not None:
                await settled(self.inner.on_partitions_revoked(revoked), "on_partitions_revoked")

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        with self.around():
            await self.assigned(assigned)
            if self.inner is not None:
                await settled(self.inner.on_partitions_assigned(assigned), "on_partitions_assigned")
                await self.sought(assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        with self.around():
            await self.lost(lost)
            if self.inner is not None:
                await settled(self.inner.on_partitions_lost(lost), "on_partitions_lost")


class Account(Assigned, Protocol):
    """What was received and what has happened to it: ``Work``, or what share consumers have in its place."""

    @property
    def most(self) -> int: ...

    keep_done: bool
    settled: int
    late_results: int
    parts: dict[TopicPartition, Part]

    @property
    def load(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def far_ahead(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def retrying(self) -> int: ...
    @property
    def open_lanes(self) -> int: ...
    @property
    def done_ahead(self) -> int: ...
    @property
    def oldest(self) -> tuple[TopicPartition, int, float] | None: ...
    @property
    def due_at(self) -> float | None: ...
    def expire(self, now: float) -> bool: ...
    def intake(self) -> Intake: ...
    def receive(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        now: float,
        raw: Sequence[Record] | None = None,
        topic_id: UUID | None = None,
    ) -> None: ...
    def receive_refused(self, partition: TopicPartition, record: Record, error: BaseException, now: float) -> None: ...
    def to_commit(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], only: Collection[TopicPartition] | None = None
    ) -> Offsets: ...
    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...
    def unfinished(self) -> Mapping[TopicPartition, int]: ...
    def assign(
        self, partition: TopicPartition, committed: OffsetAndMetadata | None = None, topic_id: UUID | None = None
    ) -> bool: ...
    def go_on_at(self, partition: TopicPartition, sought: OffsetAndMetadata, topic_id: UUID | None) -> None: ...
    def suspend(self, paused: Collection[TopicPartition]) -> None: ...
    @property
    def suspended(self) -> int: ...
    def leave(self, partitions: Iterable[TopicPartition]) -> None: ...
    def forget(self, partitions: Iterable[TopicPartition]) -> None: ...
    def running_of(self, partitions: Iterable[TopicPartition]) -> int: ...


class Owning(Occupant, Protocol):
    """Who reads and commits in place of the application: ``Processing``."""

    @property
    def settings(self) -> ProcessSettings: ...
    @property
    def reads_nothing(self) -> bool: ...
    @property
    def seconds_in_handlers(self) -> float: ...
    async def commit(self) -> None: ...
    def attend_to_pauses(self) -> None: ...
    def in_handlers(self) -> set[Any]: ...
    def give_up_lost(self) -> None: ...
    def look_again(self) -> None: ...


class Supplier(Protocol):
    """What processing needs from a consumer: ``Source``, or what share consumers have in its place."""

    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def trace(self) -> Listener: ...
    @property
    def commits(self) -> bool: ...
    @property
    def commit_interval(self) -> float: ...
    @property
    def retry_backoff(self) -> float: ...
    @property
    def longest_drain(self) -> float: ...
    @property
    def last_commit(self) -> float: ...
    @property
    def stopping(self) -> bool: ...
    def holds(self, now: float) -> bool: ...
    @property
    def consequence(self) -> str: ...
    def work(self, settings: ProcessSettings) -> Account: ...
    def begin(self, chained: Chained, owner: Owning) -> None: ...
    def end(self, unfinished: Mapping[TopicPartition, OffsetAndMetadata], *, failed: bool) -> None: ...
    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> tuple[Batch, Batch]: ...
    def take(self, limit: int, waiting: Collection[TopicPartition]) -> tuple[Batch, Batch]: ...
    def put_back(self) -> None: ...
    async def settle(self) -> None: ...
    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]: ...
    def position(self, partition: TopicPartition) -> OffsetAndMetadata | None: ...
    def paused(self) -> Collection[TopicPartition]: ...
    def is_missing(self, topic: str) -> bool: ...
    def topic_id(self, partition: TopicPartition) -> UUID | None: ...
    def go_back(self, partition: TopicPartition, offset: int | None) -> None: ...
    def sought(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]: ...
    def assignment(self) -> Collection[TopicPartition]: ...
    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...
    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata | None], KafkaError | None]: ...
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID | None]: ...


@define(eq=False)
class Source:
    """One consumer, as far as processing uses it."""

    parts: Parts = field(repr=False)
    chained: Chained | None = field(default=None, init=False)

    def work(self, settings: ProcessSettings) -> Work:
        """Return an empty account of what is received and done."""
        return Work(
            settings.lane_of,
            settings.room,
            Lanes(settings.batch or 1, settings.linger),
            one_set_of_lanes=settings.one_set_of_lanes,
            keep_done=settings.keep_done and self.commits,
        )

    @property
    def consequence(self) -> str:
        """What happens if a record is not done for long."""
        return "nothing after it is committed"

    @property
    def clock(self) -> Callable[[], float]:
        runtime = self.parts.runtime
        return time.monotonic if runtime.has_system_clock else runtime.clock  # the same, without two calls in between

    @property
    def trace(self) -> Listener:
        return self.parts.observer

    @property
    def commits(self) -> bool:
        """Whether there is a group to commit to."""
        return self.parts.config.group_id is not None

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
        return self.parts.guard.lifecycle.phase in (Phase.PARTING, Phase.CLOSED)

    def holds(self, now: float) -> bool:
        """Return whether what was received is surely still ours: the session lasts, and nothing was lost."""
        return not (self.parts.reads.reader.gate.is_over(now) or self.parts.inbox.has_losses)

    # --- life ------------------------------------------------------------------------------------------------------------------

    def begin(self, chained: Chained, owner: Owning) -> None:
        """Be notified of rebalances, and let nothing else read or commit."""
        parts = self.parts
        parts.guard.check_readable()
        parts.reads.reader.take_over()
        parts.guard.occupant = owner
        self.chained = chained
        listening = parts.rebalancing.listening
        listening.chain = chained.before
        listening.listen(listening.listener)
        parts.assigned.on_pause = owner.attend_to_pauses
        parts.commits.instead = owner.commit
        parts.commits.auto_commit.suspended = True

    def end(self, unfinished: Mapping[TopicPartition, OffsetAndMetadata], *, failed: bool) -> None:
        """Give listener and auto-commit back, with positions at the first record of each partition that is not done.

        ``failed``: the consumer is not alive until something else reads from it.
        """
        parts = self.parts
        listening, auto_commit = parts.rebalancing.listening, parts.commits.auto_commit
        listening.chain = parts.assigned.on_pause = parts.commits.instead = None
        if self.chained is not None:
            listening.listen(self.chained.inner)
        self.chained = None
        if not failed:
            parts.guard.occupant = None
        if self.stopping:
            return  # positions are past what is not done, so auto-commit must not make the commits of the end
        parts.unread.begin_anew_aside(unfinished)  # those that left in a rebalance that is not over: what is done was committed
        ours = {tp: offset for tp, offset in unfinished.items() if tp in parts.unread.partitions}
        parts.guard.check_open()
        for partition, offset in ours.items():
            parts.assigned.seek(partition, OffsetAndMetadata(offset.offset, topic_id=offset.topic_id))
        # They were committed with the map of what is done after them, which a commit of the same offsets would overwrite.
        auto_commit.commits.book(ours)
        auto_commit.suspended = False

    # --- reading ---------------------------------------------------------------------------------------------------------------

    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> tuple[Batch, Batch]:
        """Return up to ``limit`` records as soon as there are any, none of ``waiting`` partitions; ``{}`` after ``seconds``.

        The second value has the same records as they were before deserializers and interceptors. With a limit of 0 it waits and
        carries out rebalances, as every read does.
        """
        self.parts.guard.lifecycle.check_readable()
        only = self._without(waiting)
        raw = self._room_for_raw()
        batch = await self.parts.reads.reader.batch(only, seconds, limit if only or not waiting else 0, raw)
        self.parts.unread.taken = None  # delivered: nothing can come between this and the return
        return batch, batch if raw is None else raw

    def take(self, limit: int, waiting: Collection[TopicPartition]) -> tuple[Batch, Batch]:
        """As ``read``, but only what is there already, in one step; nothing if a read has something else to deal with first."""
        only = self._without(waiting)
        if waiting and not only:
            return {}, {}
        raw = self._room_for_raw()
        batch = self.parts.reads.reader.at_once(only, limit, raw)
        self.parts.unread.taken = None
        return batch, batch if raw is None else raw

    def put_back(self) -> None:
        """Nothing more will be handled. Records that were not handled are not committed, so they are read again."""

    async def settle(self) -> None:
        """Wait until what was done counts. Here it does once it is committed."""

    def _without(self, waiting: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
        return tuple(tp for tp in self.parts.unread.partitions if tp not in waiting) if waiting else ()

    def _room_for_raw(self) -> Batch | None:
        """Return the place to collect records as they were before deserializers; ``None`` if nothing changes them."""
        return None if self.parts.reads.reader.preparation is None else {}

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset to read of each partition, as after the last read."""
        self.parts.guard.check_open()
        return self.parts.assigned.next_offsets()

    def position(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """As ``positions``, for one partition, however many there are."""
        self.parts.guard.check_open()
        return self.parts.assigned.next_offset(partition)

    def paused(self) -> Collection[TopicPartition]:
        """Return the partitions that are paused: none of their records is to be handled."""
        return self.parts.assigned.paused()

    def is_missing(self, topic: str) -> bool:
        """Whether the cluster does not know this topic of the assignment any more: nobody will read its records again."""
        inbox = self.parts.inbox
        inbox.sort()
        found = inbox.cluster.topics.get(topic)
        return found is None or not found.partitions

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """Return the id of the topic that the last records of a partition belong to."""
        cursor = self.parts.unread.partitions.get(partition)
        return None if cursor is None else cursor.stored.topic_id

    def go_back(self, partition: TopicPartition, offset: int | None) -> None:
        """Read on from ``offset`` if the partition's position is elsewhere."""
        cursor = self.parts.unread.partitions.get(partition)
        if cursor is not None and offset is not None and cursor.position not in (None, offset):
            self.parts.guard.check_open()
            self.parts.assigned.seek(partition, OffsetAndMetadata(offset))

    def sought(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return to which offsets partitions were sought, each once, if nothing of them was read since."""
        return self.parts.assigned.take_sought(partitions)

    def assignment(self) -> Collection[TopicPartition]:
        return self.parts.unread.partitions.keys()

    # --- committing ------------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit. Raises what ``KafkaConsumer.commit`` raises."""
        await self.parts.commits.commit(offsets)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata | None], KafkaError | None]:
        """Return the committed offsets with their metadata, or the error if they could not be had."""
        if not self.commits or not partitions:
            return {}, None
        try:
            found = await self.parts.commits.committed(partitions)
            # An auto-commit of the same offsets, if processing ends at once, would overwrite the maps that are with them.
            there = {tp: offset for tp, offset in found.items() if offset is not None}
            self.parts.commits.auto_commit.commits.book(there)
            return found, None
        except ConsumerStoppedError:
            raise
        except KafkaError as error:
            return {}, error

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID | None]:
        """Return the ids of topics; ``None`` for those for which the brokers know none."""
        self.parts.inbox.sort()
        known = self.parts.inbox.cluster.topics
        if any(name not in known for name in topics):
            known = (await self.parts.calls.describe(frozenset(topics))).topics
        return {name: found.topic_id for name in topics if (found := known.get(name)) is not None}
