"""KafkaConsumer: what the caller holds.

Decides: what each public call means in events and positions, and which arguments are wrong. Owns: the caller's side of
everything: the subscription as the caller sees it, the unread records, the errors to raise. Must never wait but through
``Runtime`` (the blocking facade runs these same coroutines without an event loop), and never leave a waiter, a task or half a
decision behind.

Method names, arguments and return shapes are those of aiokafka's ``AIOKafkaConsumer``; what each does is Java's ``KafkaConsumer``.
"""

import re
import time
import warnings
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Self
from uuid import UUID

from typing_extensions import TypeVar

from ..errors import CommitFailedError, ConsumerStoppedError, IllegalOperation, IllegalStateError, KafkaTimeoutError
from ..events import (
    AssignFromUser,
    ClusterDescription,
    EnforceRebalance,
    FetchCommitted,
    FindClientInstanceId,
    ListOffsets,
    PausePartitions,
    ResumePartitions,
    SubscribePattern,
    SubscribeRegex,
    SubscribeTopics,
    TopicMetadata,
    Unsubscribe,
)
from ..model import (
    ConsumerRecord,
    ConsumerState,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Statistics,
    SubscriptionPattern,
    TopicPartition,
)
from ..network import TransportFactory
from ..records import ColumnBuilder
from . import arguments
from .arguments import commit_offsets, one_partition, partition_set, seconds, seek_target, subscribed_pattern, subscribed_topics
from .callbacks import ConsumerRebalanceListener
from .iteration import ITERATOR
from .observing import lag, statistics
from .ranges import RangeCalls
from .reading import record_limit
from .runtime import Runtime

if TYPE_CHECKING:
    import pyarrow

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


FAREWELL_MS: Final = 1000
"""Milliseconds for which a ``start`` that failed tries to leave the group: without a farewell the others wait for its ghost."""
ARROW_ROWS: Final = 65_536
"""Rows of an Arrow batch where the caller does not say: ``max_poll_records`` is made for objects that are worked off one by one."""


class KafkaConsumer(RangeCalls, Generic[K, V]):
    """An asyncio-native Kafka consumer.

    ``topics`` are subscribed at once; ``options`` are Kafka's configuration keys with ``_`` for ``.`` (see ``ConsumerConfig``).
    Use it as ``async with KafkaConsumer(...) as consumer``, or call ``start`` and ``stop``.

    Raises ``TypeError`` for an unknown option and ``ValueError`` for a bad value.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        # Not options of Kafka's: where the background loop runs and what connects, for the blocking facade and for tests.
        runtime: Runtime | None = options.pop("runtime", None)
        transport_factory: TransportFactory | None = options.pop("transport_factory", None)
        super().__init__(self._configure(options), runtime, transport_factory)
        if topics:
            self.subscribe(topics)

    # --- life ------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, learn about the cluster and, for a subscription, wait for the first assignment.

        Raises ``KafkaConnectionError`` when no bootstrap server can be reached, or each has cut two connections short or left
        them unanswered, ``KafkaTimeoutError`` when the cluster says nothing within ``default_api_timeout_ms``,
        ``UnknownTopicOrPartitionError`` when a topic does not exist within ``request_timeout_ms`` (the broker may create it),
        ``AuthenticationFailedError`` and the authorization errors. After an error the consumer is stopped.
        """
        if self._state is ConsumerState.CLOSED:
            raise ConsumerStoppedError("the consumer was stopped; make a new one")
        if self._started:
            raise IllegalStateError("the consumer was started already")
        self._started = True
        self._launch()
        try:
            await self._find_topics()
            await self._find_assignment()
        except BaseException:
            await self.stop(FAREWELL_MS)
            raise
        self._state = ConsumerState.STEADY

    async def stop(self, timeout_ms: float | None = None) -> None:
        """Stop: commit what was handed out (auto-commit), leave the group, close fetch sessions and connections.

        Returns within ``timeout_ms`` (default: ``request_timeout_ms``), always. Leaving ``async with`` by an exception
        commits only what was done: neither the last batch nor the record that an iteration was at. Pending calls end with
        ``ConsumerStoppedError``, iterations just end. Stopping twice is no error.
        """
        await self._stop(timeout_ms, clean=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        await self._stop(None, clean=exc_type is None)

    def __del__(self) -> None:
        if getattr(self, "_started", False) and self._state is not ConsumerState.CLOSED:
            warnings.warn(f"{self!r} was not stopped", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<KafkaConsumer client_id={self._config.client_id!r} state={str(self.state)!r}>"

    # --- read ------------------------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Return the next record (of ``partitions``, or of all), waiting for it as long as it takes.

        Raises ``ConsumerStoppedError`` after ``stop``, ``DeserializationError`` once for a record that cannot be
        deserialized, ``CorruptRecordException`` for a batch that is corrupt, ``OffsetOutOfRangeError`` and
        ``NoOffsetForPartitionError`` by policy, and what the background has to report.
        """
        self._check_running()
        record: ConsumerRecord[K, V] = await self._reader.one(self._only(partitions))
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are any, at most ``max_records`` (default: ``max_poll_records``).

        Waits up to ``timeout_ms`` for the first; ``{}`` where none came. Raises as ``getone`` does. Cancelling it loses no record.
        """
        self._check_running()
        limit = record_limit(self._config.max_poll_records if max_records is None else max_records)
        return await self._reader.batch(self._only(partitions), seconds(timeout_ms), limit)

    async def getarrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Collection[str] | None = None,
    ) -> "pyarrow.RecordBatch":
        """Return records as one Arrow record batch, without making an object per record (extra ``arrow``).

        Columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers, or those of ``columns``. Keys and
        values are bytes: deserializers and interceptors do not apply. At most ``max_records`` rows (default 65,536); none where
        nothing came within ``timeout_ms``.
        """
        from .arrow import ALL_COLUMNS, record_batch

        self._check_running()
        limit = record_limit(ARROW_ROWS if max_records is None else max_records)
        into = ColumnBuilder(ALL_COLUMNS if columns is None else columns)
        await self._reader.columns(self._only(partitions), seconds(timeout_ms), limit, into)
        return record_batch(into.finish(), ALL_COLUMNS if columns is None else columns)

    async def arrow_batches(
        self, *partitions: TopicPartition, max_records: int = ARROW_ROWS, columns: Collection[str] | None = None
    ) -> "AsyncIterator[pyarrow.RecordBatch]":
        """Iterate over Arrow record batches of up to ``max_records`` rows, until the consumer is stopped."""
        while True:
            try:
                batch = await self.getarrow(*partitions, timeout_ms=3_600_000, max_records=max_records, columns=columns)
            except ConsumerStoppedError:
                return
            if batch.num_rows:
                yield batch

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Iterate over records until the consumer is stopped. Leaving the iteration loses none: the next read goes on behind it."""
        self._check_running()
        return ITERATOR(self._reader.handout, self.__anext__)

    async def __anext__(self) -> ConsumerRecord[K, V]:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # --- what ------------------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to ``topics``, or to every topic that ``pattern`` matches (``re.match``); replaces the last subscription.

        With a ``group_id`` the group shares the partitions; without one this consumer reads all of them. Raises ``TypeError``
        unless exactly one of topics and pattern is given, ``ValueError`` for topic names or patterns that cannot be,
        ``IllegalStateError`` after ``assign``.
        """
        self._check_open()
        if self._assigned_by_user:
            raise IllegalStateError("partitions were assigned with assign(); call unsubscribe() first")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"listener={listener!r}: expected a ConsumerRebalanceListener")
        if bool(topics) == (pattern is not None):
            raise TypeError("subscribe() takes either topics or a pattern")
        names, matches = frozenset[str](), None
        event: SubscribeRegex | SubscribeTopics | SubscribePattern
        if isinstance(pattern, SubscriptionPattern):
            if self._config.group_id is None or self._config.group_protocol == "classic":
                raise IllegalOperation(
                    "a SubscriptionPattern is evaluated by the coordinator: it needs a group_id and its protocol"
                )
            matches = subscribed_pattern("")  # the coordinator knows better; this only says that there is a pattern
            event = SubscribeRegex(regex=arguments.subscribed_regex(pattern))
        elif pattern is None:
            names = subscribed_topics(topics)
            event = SubscribeTopics(topics=names)
        else:
            matches = subscribed_pattern(pattern)
            event = SubscribePattern(matches=matches, exclude_internal=self._config.exclude_internal_topics)
        self._reader.give_back()
        self._rebalancing.listener, self._rebalancing.assigned_once = listener, False
        self._topics, self._pattern = names, matches
        self._send(event)
        self._follow_subscription()

    def unsubscribe(self) -> None:
        """Give up subscription and assignment. Unread records are dropped."""
        self._check_open()
        self._reader.give_back()
        self._topics, self._pattern, self._rebalancing.listener = frozenset(), None, None
        self._rebalancing.proposals.clear()
        self._assigned_by_user = False
        self._unread.assign(())
        self._send(Unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed, or matched by the pattern."""
        if self._pattern is not None:
            return frozenset(partition.topic for partition in self._unread.partitions)
        return self._topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group. Those that were assigned before keep their position and unread records.

        Raises ``IllegalStateError`` after ``subscribe``, ``TypeError`` for anything but ``TopicPartition`` values.
        """
        self._check_open()
        wanted = partition_set(partitions)
        if self._topics or self._pattern is not None:
            raise IllegalStateError("topics were subscribed with subscribe(); call unsubscribe() first")
        self._reader.give_back()
        self._assigned_by_user = bool(wanted)
        self._commit_dropped(wanted)
        self._send(AssignFromUser(stamps=self._unread.assign(wanted)))

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned at the moment."""
        return set(self._unread.partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition ids of a topic as far as metadata is at hand, else ``None``."""
        self._sort_events()
        known = self._cluster.topics.get(topic)
        return {part.partition for part in known.partitions} if known is not None and known.partitions else None

    async def topics(self) -> set[str]:
        """Ask the cluster for all topics that we may see."""
        return set((await self.describe_topics()).topics)

    async def describe_topics(self, *topics: str) -> ClusterDescription:
        """Ask the cluster about ``topics`` (none: all): ids, partitions, leaders, replicas. Those that do not exist are missing."""
        names = arguments.topic_names(topics) or None
        return await self._ask(lambda call: TopicMetadata(call=call, topics=names))

    # --- where -----------------------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that will be returned, looking it up where it is not known yet.

        Raises ``IllegalStateError`` for a partition that is not assigned, ``KafkaTimeoutError`` after ``default_api_timeout_ms``.
        """
        self._check_running()
        self._reader.give_back()
        if self._unread.locate(self._entry(partition)) is None:
            await self._find_positions((partition,))
        position = self._unread.locate(self._entry(partition))
        if position is None:
            raise KafkaTimeoutError(f"{one_partition(partition)} has no position: it was assigned anew meanwhile")
        return position

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from ``offset``. With an ``OffsetAndMetadata`` that has a leader epoch the log is checked first (KIP-320).

        Raises ``IllegalStateError`` for a partition that is not assigned, ``ValueError`` for a negative offset.
        """
        self._check_open()
        target = seek_target(offset)
        self._reader.give_back()
        entry = self._entry(partition)
        self._unread.move(entry, target.offset, target.leader_epoch)
        self._refetch(entry, check=target.leader_epoch is not None)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Go to the first offset of ``partitions`` (none: all assigned). Return ``True`` when the positions are found."""
        return await self._seek_by_lookup(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Go to the end (``read_committed``: the last stable offset) of ``partitions`` (none: all). Return ``True`` when found."""
        return await self._seek_by_lookup(partitions, "latest")

    async def seek_to_timestamp(
        self, when: int | Mapping[TopicPartition, int], *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Go to the first record at or after ``when`` (milliseconds), of ``partitions`` (none: all) or per partition of a mapping.

        Return what was found; a partition without such a record is read from its end on.
        """
        wanted = dict(when) if isinstance(when, Mapping) else dict.fromkeys(self._assigned(partitions), when)
        for partition in wanted:
            self._entry(partition)
        found = await self.offsets_for_times(wanted)
        for partition, target in found.items():
            if target is not None:
                self.seek(partition, target.offset)
        beyond = [partition for partition, target in found.items() if target is None]
        if beyond:
            await self.seek_to_end(*beyond)
        return found

    async def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up, per partition, the first offset at or after the given timestamp (milliseconds); ``None`` if there is none.

        The partitions need not be assigned. Raises ``ValueError`` for a negative timestamp, ``KafkaTimeoutError`` with the reason.
        """
        wanted = arguments.timestamps(timestamps)
        return dict(await self._ask(lambda call: ListOffsets(call=call, timestamps=wanted)))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the first offsets of the partitions, which need not be assigned, within ``timeout_ms``."""
        return await self._list_offsets(partitions, -2, timeout_ms)

    async def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Look up the offsets that come next (``read_committed``: the last stable offsets), within ``timeout_ms``."""
        return await self._list_offsets(partitions, -1, timeout_ms)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch; ``None`` before the first."""
        marks = self._watermarks(partition)
        return marks.high_watermark if marks is not None else None

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset (KIP-98) as of the last fetch; ``None`` before the first."""
        marks = self._watermarks(partition)
        return marks.last_stable_offset if marks is not None else None

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when the high watermark was last heard (milliseconds since the epoch); ``None`` before the first fetch."""
        marks = self._watermarks(partition)
        if marks is None:
            return None
        return int((time.time() - (self._runtime.clock() - marks.fetched_at)) * 1000)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets lie between the position and the end as of the last fetch; ``None`` where not known."""
        self._reader.give_back()
        return lag(self._config, self._entry(partition), self._watermarks(partition))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions until ``resume``. What was fetched of them is kept."""
        self._check_open()
        self._reader.give_back()
        for entry in [self._entry(partition) for partition in partitions]:
            entry.paused = True
        self._send(PausePartitions(partitions=frozenset(partitions)))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._check_open()
        for entry in [self._entry(partition) for partition in partitions]:
            entry.paused = False
        self._send(ResumePartitions(partitions=frozenset(partitions)))
        self._runtime.wake_application()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {partition for partition, entry in tuple(self._unread.partitions.items()) if entry.paused}

    # --- commit ----------------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None) -> None:
        """Commit ``offsets`` (the next offsets to read), or everything handed out so far, to the group.

        Without ``offsets``, or with an ``OffsetAndMetadata`` that has one, the leader epoch is carried along (KIP-320).
        Raises ``IllegalOperation`` without a ``group_id``, ``IllegalStateError`` for a partition that was never assigned, and
        ``CommitFailedError`` when the group refuses; its ``lost`` names partitions that are no longer ours, the others were
        committed.
        """
        self._need_group("commit()")
        self._check_running()
        self._reader.give_back()
        wanted = self._positions() if offsets is None else commit_offsets(offsets)
        lost = tuple(partition for partition in wanted if partition in self._rebalancing.lost)
        ours = {partition: offset for partition, offset in wanted.items() if partition not in lost}
        for partition in ours:
            self._entry(partition)
        await self._commit(ours)
        if lost:
            names = ", ".join(map(one_partition, lost))
            raise CommitFailedError(f"committed all but partitions that are no longer ours: {names}", lost)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what ``commit()`` would commit now: the next offset to read and the last leader epoch, by partition (KIP-1094).

        For commits of one's own (a database, a transaction of a producer): adding 1 to the offset of the last record knows neither
        the epoch nor the control records and gaps that a read has passed. Assigned partitions without a position are missing.
        """
        self._check_open()
        self._reader.give_back()
        return self._positions()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of a partition, ``None`` if there is none. Raises ``IllegalOperation`` without a group."""
        found = (await self.committed_offsets(partition))[partition]
        return found.offset if found is not None else None

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of ``partitions`` (none: all assigned) with all that was committed, in one request."""
        self._need_group("committed_offsets()")
        wanted = frozenset(partition_set(partitions) or self._unread.partitions)
        return dict(await self._ask(lambda call: FetchCommitted(call=call, partitions=wanted)))

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Go to the committed offsets of ``partitions`` (none: all assigned) and return them; one without any stays where it is."""
        self._need_group("seek_to_committed()")
        found = await self.committed_offsets(*self._assigned(partitions))
        for partition, target in found.items():
            if target is not None:
                self.seek(partition, target)
        return {partition: target.offset if target is not None else None for partition, target in found.items()}

    def group_metadata(self) -> GroupMetadata:
        """Return who we are in the group, for a transactional producer (KIP-447). Raises ``IllegalOperation`` without a group."""
        self._need_group("group_metadata()")
        self._sort_events()
        return self._group

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance at the next opportunity (KIP-568); without effect in the consumer protocol, as in Java."""
        self._need_group("enforce_rebalance()")
        self._check_running()
        self._send(EnforceRebalance(reason=arguments.text(reason or "the application asked for it", "reason")))

    # --- see -------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing, as one word for people and health checks."""
        if self._loop.failure is not None and isinstance(self._loop.failure, Exception):
            return ConsumerState.FATAL
        if self._state is ConsumerState.STEADY:
            self._sort_events()
            return self._group_state or self._state
        return self._state

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name; the names are Kafka's (``consumer-fetch-manager-metrics`` and so on)."""
        return self._measure(self._runtime.clock() if self._started else 0.0)

    async def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """Return the id by which the cluster's operators know this client (KIP-714), waiting for it where it was not given yet.

        Raises ``IllegalStateError`` where telemetry is off (``enable_metrics_push``, extra ``otel``), ``UnsupportedVersionError``
        where the brokers do not offer it, ``KafkaTimeoutError`` after ``timeout_ms`` (default: ``default_api_timeout_ms``).
        """
        return await self._ask(lambda call: FindClientInstanceId(call=call), timeout_ms)

    def statistics(self) -> Statistics:
        """Return one frozen snapshot of where the consumer and each of its partitions stand."""
        self._reader.give_back()
        return statistics(self._config, self.state, self._unread, self._snapshot(), self._group, self._coordinator)
