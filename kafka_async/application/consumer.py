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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from ..background.event_handler import EventHandler
from ..background.fetch_buffer import FetchBuffer, Watermarks
from ..background.loop import BackgroundLoop
from ..config import ConsumerConfig
from ..errors import (
    BackgroundLoopError,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from ..events import (
    ApplicationEvent,
    AssignFromUser,
    AssignmentApplied,
    AssignPartitions,
    BackgroundSnapshot,
    Call,
    ClusterDescription,
    ErrorEvent,
    FindPositions,
    HaltPartition,
    ListOffsets,
    MetadataUpdated,
    PausePartitions,
    PositionFound,
    ResetOffset,
    ResumePartitions,
    Seek,
    Stop,
    SubscribePattern,
    SubscribeTopics,
    TakeSnapshot,
    TopicMetadata,
    Unsubscribe,
)
from ..model import (
    ConsumerRecord,
    ConsumerState,
    IsolationLevel,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionStatistics,
    Statistics,
    SubscriptionPattern,
    TopicPartition,
)
from ..network import TransportFactory
from ..records import ColumnBuilder
from ..trace import LoggingListener, Notice, TraceEvent
from .arguments import one_partition, partition_set, seek_target, subscribed_pattern, subscribed_topics, timestamps
from .callbacks import ConsumerRebalanceListener, Deserializers, settled
from .metrics import Metrics
from .reading import Reader
from .runtime import Runtime, TaskRuntime, ThreadRuntime
from .unread import PartitionUnread, Unread

if TYPE_CHECKING:
    import pyarrow

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

GRACE: Final = 0.5
"""Seconds that a caller waits beyond a call's deadline for the background to say why it was not met."""

_numbers = count(1)


class KafkaConsumer(Generic[K, V]):
    """An asyncio-native Kafka consumer.

    ``topics`` are subscribed at once; ``options`` are Kafka's configuration keys with ``_`` for ``.`` (see ``ConsumerConfig``).
    Use it as ``async with KafkaConsumer(...) as consumer``, or call ``start`` and ``stop``.

    Raises ``TypeError`` for an unknown option and ``ValueError`` for a bad value.
    """

    def __init__(
        self,
        *topics: str,
        runtime: Runtime | None = None,
        transport_factory: TransportFactory | None = None,
        **options: Any,
    ) -> None:
        self._state = ConsumerState.CLOSED  # until all of this has succeeded: __del__ must not warn about a bad option
        config = ConsumerConfig.from_options(options)
        if config.client_id == "kafka-async":
            options = {**options, "client_id": f"consumer-{config.group_id or 'none'}-{next(_numbers)}"}
            config = ConsumerConfig.from_options(options)
        self._config = config
        self._runtime = runtime or (TaskRuntime() if config.background == "task" else ThreadRuntime.for_tasks())
        self._metrics = Metrics(client_id=config.client_id)
        self._logging = LoggingListener()
        self._handler = EventHandler(self._runtime.wake_background, self._runtime.wake_application)
        buffer = FetchBuffer(config.fetch_buffer_bytes, self._runtime.wake_application, self._runtime.wake_background)
        self._unread = Unread(config, buffer, self._refetch, self._halt)
        self._loop = BackgroundLoop(
            config=config,
            handler=self._handler,
            buffer=buffer,
            trace=self._trace,
            transport_factory=transport_factory,
            clock=self._runtime.clock,
            on_end=self._runtime.wake_application,
        )
        self._reader = Reader(
            unread=self._unread,
            runtime=self._runtime,
            deserializers=Deserializers.of(config.key_deserializer, config.value_deserializer),
            interceptors=config.interceptors,
            before_read=self._handle_events,
            max_poll_records=config.max_poll_records,
        )
        self._cluster = ClusterDescription(cluster_id=None, brokers=(), topics={})
        self._topics: frozenset[str] = frozenset()
        self._pattern: Callable[[str], bool] | None = None
        self._assigned_by_user = False
        self._listener: ConsumerRebalanceListener | None = None
        self._assigned_once = False
        self._errors: list[KafkaError] = []
        self._proposal: AssignPartitions | None = None
        self._started = False
        self._state = ConsumerState.STARTING
        if topics:
            self.subscribe(topics)

    # --- life ------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, learn about the cluster and, for a subscription, wait for the first assignment.

        Raises ``KafkaConnectionError`` when no bootstrap server can be reached, ``UnknownTopicOrPartitionError`` when a topic
        does not exist within ``request_timeout_ms`` (the broker may create it), ``AuthenticationFailedError`` and the
        authorization errors. After an error the consumer is stopped.
        """
        if self._started:
            raise IllegalStateError("the consumer was started already")
        if self._state is ConsumerState.CLOSED:
            raise ConsumerStoppedError("the consumer was stopped; make a new one")
        self._started = True
        self._runtime.launch(self._loop)
        try:
            await self._find_cluster()
            await self._find_topics()
            await self._find_assignment()
        except BaseException:
            await self.stop(timeout_ms=0)
            raise
        self._state = ConsumerState.STEADY

    async def stop(self, timeout_ms: float | None = None) -> None:
        """Stop: close fetch sessions and connections. Returns within ``timeout_ms`` (default: ``request_timeout_ms``), always.

        Pending calls end with ``ConsumerStoppedError``, iterations just end. Stopping twice is no error.
        """
        if self._state is ConsumerState.CLOSED:
            return
        self._reader.give_back()
        self._state = ConsumerState.CLOSED
        if not self._started:
            return
        self._runtime.wake_application()
        seconds = (self._config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = self._runtime.clock() + seconds
        with self._runtime.shield():
            try:
                if not self._loop.ended:
                    await self._call(lambda call: Stop(call=call), deadline)
            except (KafkaTimeoutError, ConsumerStoppedError, BackgroundLoopError):
                pass  # told it, and it ends below whatever it answered
            finally:
                if not self._loop.ended:
                    self._runtime.abort()
            await self._runtime.join()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        if getattr(self, "_state", ConsumerState.CLOSED) is not ConsumerState.CLOSED and self._started:
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
        limit = self._max_records(max_records)
        return await self._reader.batch(self._only(partitions), timeout_ms / 1000, limit)

    async def getarrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Collection[str] | None = None,
    ) -> "pyarrow.RecordBatch":
        """Return records as one Arrow record batch, without making an object per record (extra ``arrow``).

        Columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers, or those of ``columns``. Keys and
        values are bytes: deserializers and interceptors do not apply. No rows where nothing came within ``timeout_ms``.
        """
        from .arrow import ALL_COLUMNS, record_batch

        self._check_running()
        limit = self._max_records(max_records)
        into = ColumnBuilder(ALL_COLUMNS if columns is None else columns)
        await self._reader.columns(self._only(partitions), timeout_ms / 1000, limit, into)
        return record_batch(into.finish())

    async def arrow_batches(
        self, *partitions: TopicPartition, max_records: int = 65536, columns: Collection[str] | None = None
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
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        # The iterator over the batch is shared with the reader, which can end it (a seek, another read). Nothing here runs
        # per record but the step of this generator.
        reader = self._reader
        while True:
            for record in reader.iterator:
                yield record
            try:
                self._check_running()
                await reader.fill()
            except ConsumerStoppedError:
                return

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

        Without a ``group_id`` this consumer reads every partition of the topics. Raises ``TypeError`` unless exactly one of
        topics and pattern is given, ``ValueError`` for topic names or patterns that cannot be, ``IllegalStateError`` after
        ``assign``.
        """
        self._check_open()
        if self._assigned_by_user:
            raise IllegalStateError("partitions were assigned with assign(); call unsubscribe() first")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"listener={listener!r}: expected a ConsumerRebalanceListener")
        if bool(topics) == (pattern is not None):
            raise TypeError("subscribe() takes either topics or a pattern")
        if self._config.group_id is not None:
            raise IllegalOperation("subscribe() with a group_id needs group membership; use assign(), or leave group_id out")
        self._listener = listener
        self._assigned_once = False
        if pattern is None:
            self._topics, self._pattern = subscribed_topics(topics), None
            self._send(SubscribeTopics(topics=self._topics))
        else:
            self._topics, self._pattern = frozenset(), subscribed_pattern(pattern)
            self._send(SubscribePattern(matches=self._pattern, exclude_internal=self._config.exclude_internal_topics))

    def unsubscribe(self) -> None:
        """Give up subscription and assignment. Unread records are dropped."""
        self._check_open()
        self._reader.give_back()
        self._topics, self._pattern, self._listener = frozenset(), None, None
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
        cluster: ClusterDescription = await self._ask(lambda call: TopicMetadata(call=call, topics=None))
        return set(cluster.topics)

    async def describe_topics(self, *topics: str) -> ClusterDescription:
        """Ask the cluster about ``topics`` (none: all): ids, partitions, leaders, replicas. Those that do not exist are missing."""
        names = frozenset(topics) or None
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

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up, per partition, the first offset at or after the given timestamp (milliseconds); ``None`` if there is none.

        The partitions need not be assigned. Raises ``ValueError`` for a negative timestamp, ``KafkaTimeoutError`` with the reason.
        """
        wanted = timestamps(timestamps_ms)
        return dict(await self._ask(lambda call: ListOffsets(call=call, timestamps=wanted)))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up the first offsets of the partitions, which need not be assigned."""
        return await self._list_offsets(partitions, -2)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up the offsets that come next in the partitions (``read_committed``: the last stable offsets)."""
        return await self._list_offsets(partitions, -1)

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
        return self._lag(self._entry(partition), self._watermarks(partition))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions until ``resume``. What was fetched of them is kept."""
        self._check_open()
        self._reader.give_back()
        for partition in partitions:
            self._entry(partition).paused = True
        self._send(PausePartitions(partitions=frozenset(partitions)))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._check_open()
        for partition in partitions:
            self._entry(partition).paused = False
        self._send(ResumePartitions(partitions=frozenset(partitions)))
        self._runtime.wake_application()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {partition for partition, entry in self._unread.partitions.items() if entry.paused}

    # --- commit ----------------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit offsets to the group. Raises ``IllegalOperation`` without a ``group_id``."""
        raise IllegalOperation("commit() needs a group_id")

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group. Raises ``IllegalOperation`` without a ``group_id``."""
        raise IllegalOperation("committed() needs a group_id")

    # --- see -------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing, as one word for people and health checks."""
        if self._loop.failure is not None and isinstance(self._loop.failure, Exception):
            return ConsumerState.FATAL
        return self._state

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name; the names are Kafka's (``consumer-fetch-manager-metrics`` and so on)."""
        lags = {partition: self._lag(entry, self._watermarks(partition)) for partition, entry in self._unread.partitions.items()}
        consumed = {partition: entry.consumed_records for partition, entry in self._unread.partitions.items()}
        now = self._runtime.clock() if self._started else 0.0
        return self._metrics.snapshot(now, lags=lags, consumed=consumed)

    def statistics(self) -> Statistics:
        """Return one frozen snapshot of where the consumer and each of its partitions stand."""
        self._reader.give_back()
        below = self._snapshot()
        buffer = self._unread.buffer
        partitions = {}
        for partition, entry in self._unread.partitions.items():
            marks = self._watermarks(partition)
            seen = below.partitions.get(partition)
            partitions[partition] = PartitionStatistics(
                position=entry.position,
                high_watermark=marks.high_watermark if marks is not None else None,
                last_stable_offset=marks.last_stable_offset if marks is not None else None,
                log_start_offset=marks.log_start_offset if marks is not None else None,
                lag=self._lag(entry, marks),
                buffered_bytes=buffer.unread(partition),
                paused=entry.paused,
                state=seen.state if seen is not None else "assigned",
                leader=seen.leader if seen is not None else None,
                preferred_read_replica=seen.read_replica if seen is not None else None,
            )
        return Statistics(
            state=self.state,
            client_id=self._config.client_id,
            cluster_id=below.cluster_id,
            group_id=self._config.group_id,
            member_id=None,
            generation=None,
            coordinator=None,
            brokers=below.brokers,
            connections=below.connections,
            requests_in_flight=below.requests_in_flight,
            buffered_bytes=buffer.total.unread,
            buffer_limit=buffer.limit,
            records_consumed=sum(entry.consumed_records for entry in self._unread.partitions.values()),
            bytes_consumed=buffer.total.released,
            wake_ups=below.wake_ups,
            partitions=partitions,
        )

    # --- how -------------------------------------------------------------------------------------------------------------------

    def _trace(self, event: TraceEvent) -> None:
        self._metrics(event)
        self._logging(event)
        if self._config.trace is not None:
            self._config.trace(event)

    def _check_open(self) -> None:
        if self._state is ConsumerState.CLOSED:
            raise ConsumerStoppedError("the consumer is stopped")

    def _check_running(self) -> None:
        self._check_open()
        if not self._started:
            raise IllegalStateError("the consumer was not started; use 'async with', or await start() first")
        if self._loop.ended:
            failure = self._loop.failure
            if isinstance(failure, Exception):
                raise BackgroundLoopError(f"the background loop failed: {failure!r}") from failure
            raise ConsumerStoppedError("the background loop was cancelled with the event loop it ran on")

    def _send(self, event: ApplicationEvent) -> None:
        self._handler.add(event)

    def _only(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        for partition in partitions:
            self._entry(partition)
        return partitions

    def _max_records(self, max_records: int | None) -> int:
        if max_records is None:
            return self._config.max_poll_records
        if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
            raise ValueError(f"max_records={max_records!r}: expected an integer of at least 1")
        return max_records

    def _entry(self, partition: TopicPartition) -> PartitionUnread:
        entry = self._unread.partitions.get(partition)
        if entry is None:
            raise IllegalStateError(f"{one_partition(partition)} is not assigned")
        return entry

    def _assigned(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        chosen = tuple(partition_set(partitions)) or tuple(self._unread.partitions)
        if not chosen:
            raise IllegalStateError("no partitions are assigned")
        for partition in chosen:
            self._entry(partition)
        return chosen

    def _watermarks(self, partition: TopicPartition) -> Watermarks | None:
        self._entry(partition)
        return self._unread.buffer.watermarks.get(partition)

    def _lag(self, entry: PartitionUnread, marks: Watermarks | None) -> int | None:
        if marks is None or entry.position is None:
            return None
        committed_only = self._config.isolation_level is IsolationLevel.READ_COMMITTED
        end = marks.last_stable_offset if committed_only else marks.high_watermark
        return max(0, end - entry.position)

    def _refetch(self, entry: PartitionUnread, *, check: bool = False) -> None:
        if entry.position is not None:
            epoch = entry.leader_epoch if check else None
            self._send(Seek(partition=entry.partition, stamp=entry.stamp, offset=entry.position, leader_epoch=epoch))

    def _halt(self, entry: PartitionUnread) -> None:
        self._send(HaltPartition(partition=entry.partition, stamp=entry.stamp))

    # Events of the background.

    def _sort_events(self) -> None:
        """Take over what the background told. Assignments that it proposes wait for the next read call."""
        for event in self._handler.drain_background():
            match event:
                case ErrorEvent():
                    self._errors.append(event.error)
                case MetadataUpdated():
                    self._cluster = event.cluster
                case AssignPartitions():
                    self._proposal = event

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

    async def _handle_events(self) -> None:
        """Before anything is read: end if stopped, apply a new assignment, raise what the background reports."""
        self._check_running()
        self._sort_events()
        if self._proposal is not None:
            proposal, self._proposal = self._proposal, None
            await self._apply(proposal.partitions)
        self._raise_error()

    async def _apply(self, partitions: frozenset[TopicPartition]) -> None:
        before = self.assignment()
        if self._assigned_by_user or not (self._topics or self._pattern):
            return  # proposed before the caller changed its mind
        self._reader.give_back()
        if self._listener is not None and before - partitions:
            await settled(self._listener.on_partitions_revoked(before - partitions))
        self._send(AssignmentApplied(stamps=self._unread.assign(partitions)))
        self._assigned_once = True
        added = partitions - before
        self._trace(Notice(now=self._runtime.clock(), text=f"assigned {len(partitions)} partitions ({len(added)} new)"))
        if self._listener is not None:
            await settled(self._listener.on_partitions_assigned(added))

    # Calls to the background.

    async def _ask(self, event: Callable[[Call[T]], ApplicationEvent], timeout_ms: float | None = None) -> T:
        """Send the event and wait for its answer; raise what the background reports meanwhile."""
        self._check_running()
        seconds = (self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        return await self._call(event, self._runtime.clock() + seconds, report=True)

    async def _call(self, event: Callable[[Call[T]], ApplicationEvent], deadline: float, *, report: bool = False) -> T:
        call: Call[T] = Call(deadline, self._runtime.wake_application)
        self._send(event(call))
        runtime = self._runtime
        try:
            while True:
                ticket = runtime.signal.ticket()
                if call.done:
                    return call.result()
                if report:
                    self._check_running()
                    self._sort_events()
                    self._raise_error()
                remaining = deadline + (GRACE if report else 0.0) - runtime.clock()
                if remaining <= 0:
                    raise KafkaTimeoutError("the call was not answered before its deadline")
                await runtime.signal.wait(ticket, remaining)
        finally:
            call.withdraw()

    def _snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics; waits for its thread where it has one."""
        if not self._started or self._loop.ended:
            return self._loop.background.snapshot()
        return self._runtime.ask_now(self._loop.background.snapshot, lambda call: self._send(TakeSnapshot(call=call)))

    async def _find_cluster(self) -> None:
        await self._ask(
            lambda call: TopicMetadata(call=call, topics=frozenset(), fail_fast=True), timeout_ms=self._config.request_timeout_ms
        )

    async def _find_topics(self) -> None:
        """Wait until every topic that is subscribed or assigned exists; the broker may create it."""
        topics = self._topics | {partition.topic for partition in self._unread.partitions}
        deadline = self._runtime.clock() + self._config.request_timeout_ms / 1000
        while topics:
            left = max(0.0, (deadline - self._runtime.clock()) * 1000)
            cluster: ClusterDescription = await self._ask(
                lambda call: TopicMetadata(call=call, topics=frozenset(topics), create=True), timeout_ms=left
            )
            missing = sorted(name for name in topics if name not in cluster.topics or not cluster.topics[name].partitions)
            if not missing:
                return
            if self._runtime.clock() + 0.2 >= deadline:
                raise UnknownTopicOrPartitionError(f"topics that do not exist: {', '.join(missing)}")
            await self._runtime.signal.wait(self._runtime.signal.ticket(), 0.1)

    async def _find_assignment(self) -> None:
        if not self._topics:
            return
        deadline = self._runtime.clock() + self._config.request_timeout_ms / 1000
        while not self._assigned_once and self._runtime.clock() < deadline:
            ticket = self._runtime.signal.ticket()
            await self._handle_events()
            if not self._assigned_once:
                await self._runtime.signal.wait(ticket, deadline - self._runtime.clock())

    async def _find_positions(self, partitions: Collection[TopicPartition]) -> None:
        wanted = frozenset(partitions)
        found: Mapping[TopicPartition, PositionFound] = await self._ask(lambda call: FindPositions(call=call, partitions=wanted))
        for partition in wanted:
            entry = self._entry(partition)
            answer = found.get(partition)
            if self._unread.locate(entry) is None and answer is not None and answer.stamp == entry.stamp:
                entry.position, entry.leader_epoch = answer.offset, answer.leader_epoch
        failure = self._unread.failure(tuple(wanted))
        if failure is not None:
            raise failure

    async def _seek_by_lookup(self, partitions: tuple[TopicPartition, ...], strategy: str) -> bool:
        self._check_running()
        chosen = self._assigned(partitions)
        self._reader.give_back()
        for partition in chosen:
            self._unread.move(self._entry(partition), None)
        self._send(ResetOffset(stamps=self._unread.stamps(chosen), strategy=strategy))
        await self._find_positions(chosen)
        return True

    async def _list_offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partition_set(partitions), timestamp)
        found: Mapping[TopicPartition, OffsetAndTimestamp | None] = await self._ask(
            lambda call: ListOffsets(call=call, timestamps=wanted)
        )
        return {partition: answer.offset for partition, answer in found.items() if answer is not None}
