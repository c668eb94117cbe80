"""KafkaConsumer: what the caller holds.

Everything waits through ``Runtime``: the blocking facade runs these same coroutines without an event loop.

Method names, arguments and return shapes are those of aiokafka's ``AIOKafkaConsumer``; behaviour is that of Java's
``KafkaConsumer``.
"""

import re
import time
import warnings
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack
from uuid import UUID

from typing_extensions import TypeVar

from ..background.boundary import Watermarks
from ..config import ConsumerConfig
from ..errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
    shown,
)
from ..events import (
    AssignFromUser,
    ClusterDescription,
    EnforceRebalance,
    FindClientInstanceId,
    FindPositions,
    ListOffsets,
    PositionFound,
    ResetOffset,
    SubscribePattern,
    SubscribeRegex,
    SubscribeTopics,
)
from ..functions import runs_elsewhere
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
from ..records import ALL_COLUMNS, Columns
from ..started import note
from . import arguments
from .arguments import (
    as_partition,
    checked_config,
    one_partition,
    partition_set,
    seek_target,
    subscribed_pattern,
    subscribed_topics,
)
from .callbacks import ConsumerRebalanceListener, check_listener
from .lifecycle.lifecycle import Phase
from .lifecycle.observing import lag
from .parts import Parts, assemble
from .reading.cursor import PartitionCustody
from .reading.iteration import ITERATOR
from .reading.ranges import RANGE_BATCH_BYTES
from .reading.read_calls import ARROW_ROWS

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow

    from ..config import ConsumerOptions
    from ..network import TransportFactory
    from .lifecycle.runtime import Runtime
    from .processing.process_options import ProcessOptions
    from .processing.process_settings import Handler
    from .processing.processing import Processing

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class KafkaConsumer(Generic[K, V]):
    """An asyncio-native Kafka consumer.

    ``topics`` are subscribed at once; ``options`` are Kafka's configuration keys with ``_`` for ``.`` (see ``ConsumerConfig``).
    Use it as ``async with KafkaConsumer(...) as consumer``, or call ``start`` and ``stop``. It belongs to the event loop on which
    it is started: calls from another one raise ``IllegalStateError``. What only reads known state (``state``, ``ready``, ``alive``,
    ``assigned_once``, ``subscription``, ``metrics``, ``statistics``, ``assignment``, ``paused``, ``highwater``,
    ``last_stable_offset``, ``last_poll_timestamp``, ``group_metadata``) may be called from any thread.

    Raises ``TypeError`` for an unknown option and ``ValueError`` for a bad value.
    """

    def __init__(
        self,
        *topics: str,
        # Not options of Kafka: where the background loop runs and what opens connections, for tests; the blocking facade gives all
        # parts.
        runtime: "Runtime | None" = None,
        transport_factory: "TransportFactory | None" = None,
        parts: Parts | None = None,
        **options: "Unpack[ConsumerOptions[K, V]]",
    ) -> None:
        self._parts = assemble(ConsumerConfig.of(**options), runtime, transport_factory) if parts is None else parts
        if topics:
            self.subscribe(topics)

    @classmethod
    def from_config(cls, config: ConsumerConfig, *topics: str) -> Self:
        """Return a consumer with options that were checked before, such as those of ``ConsumerConfig.from_env``."""
        return cls(*topics, parts=assemble(checked_config(config)))

    # --- starting and stopping
    # ------------------------------------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect, learn about the cluster and, for a subscription, wait for the first assignment.

        Waits up to ``timeout_ms``; by default, ``default_api_timeout_ms`` for the cluster and then ``request_timeout_ms`` for an
        assignment. If the group is still rebalancing after that, this is not an error: ``start`` returns and logs it, and reads
        go on waiting. Until something is asked of the consumer, and if it has no listener, the assignment may change by itself,
        where the next owner of a partition begins at the same record: other members do not wait for the first read.

        Raises ``KafkaConnectionError`` if no bootstrap server can be reached, or each has closed two connections early or left
        them unanswered, ``KafkaTimeoutError`` if the cluster does not answer in time, ``UnknownTopicOrPartitionError`` if a
        topic does not exist within ``request_timeout_ms`` (the broker may create it),
        ``AuthenticationFailedError`` and the authorization errors. After an error ``start`` may be called again.
        """
        self._parts.guard.ownership.check()
        note(self, self._parts.config.client_id, self._parts.subscribed)
        await self._parts.starting.start(timeout_ms)

    async def stop(self, timeout_ms: float | None = None) -> None:
        """Stop: commit the consumed records (auto-commit), leave the group, close fetch sessions and connections.

        Always returns within ``timeout_ms`` (default: ``request_timeout_ms``). Records count as consumed if they were returned to
        the task that stops, or to a task that has ended normally; not if their task still runs, was cancelled or failed. Pending
        calls end with ``ConsumerStoppedError`` (``getmany``: ``{}``), iterations just end. A second call waits for the first;
        stopping again is not an error. A handler of ``process`` may call it: it waits for the other handlers, and the record of
        this one is not done.

        Raises ``IllegalStateError`` if called on an event loop other than the consumer's; if the consumer's is closed, the
        consumer ends without a commit and without leaving the group.
        """
        await self._parts.parting.stop(self._parts.guard, timeout_ms, clean=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        # If the block ended by an exception or a cancellation, the last records of this task are not consumed.
        await self._parts.parting.stop(self._parts.guard, None, clean=exc_type is None)

    def __del__(self) -> None:
        parts = getattr(self, "_parts", None)
        if parts is not None and parts.guard.ownership.was_forgotten():
            warnings.warn(f"Unclosed {type(self).__name__}: {self!r} was not stopped", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<KafkaConsumer client_id={self._parts.config.client_id!r} state={str(self.state)!r}>"

    def _watermarks(self, partition: TopicPartition) -> Watermarks | None:
        self._parts.guard.ownership.check_process()
        self._parts.assigned.cursor(partition)
        return self._parts.unread.buffer.watermarks.get(partition)

    # --- read ------------------------------------------------------------------------------------------------------------------

    @runs_elsewhere
    def getone(self, *partitions: TopicPartition) -> Coroutine[Any, Any, ConsumerRecord[K, V]]:
        """Return the next record (of ``partitions``, or of all), waiting for it as long as it takes.

        Raises ``ConsumerStoppedError`` after ``stop``, ``DeserializationError`` once for a record that cannot be
        deserialized, ``CorruptRecordException`` for a corrupt batch, ``OffsetOutOfRangeError`` and
        ``NoOffsetForPartitionError`` if ``auto_offset_reset`` is ``none``, ``IllegalStateError`` once none of ``partitions`` is
        assigned any more, and errors of the background.
        """
        return self._getone_for(self._parts.reads.asks(), partitions)

    async def _getone_for(self, holder: Any, partitions: tuple[TopicPartition, ...]) -> ConsumerRecord[K, V]:
        portion = await self._parts.reads.portion(partitions, holder)
        record: ConsumerRecord[K, V] = portion.records[portion.place]
        portion.place += 1  # the record is handed out: nothing can come between this and the return
        return record

    @runs_elsewhere
    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Coroutine[Any, Any, dict[TopicPartition, list[ConsumerRecord[K, V]]]]:
        """Return records by partition as soon as there are any, at most ``max_records`` (default: ``max_poll_records``).

        Waits up to ``timeout_ms`` for the first; ``{}`` if none came, or if ``stop`` is called meanwhile. Raises as
        ``getone`` does. Cancelling it loses no record.
        """
        return self._getmany_for(self._parts.reads.asks(), partitions, timeout_ms, max_records)

    async def _getmany_for(
        self, holder: Any, partitions: tuple[TopicPartition, ...], timeout_ms: float, max_records: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        batch = await self._parts.reads.many(partitions, timeout_ms, max_records, holder)
        self._parts.unread.taken = None  # delivered: nothing can come between this and the return
        return batch

    @runs_elsewhere
    def getarrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Collection[str] | None = None,
        view: bool = False,
    ) -> "Coroutine[Any, Any, pyarrow.RecordBatch]":
        """Return records as one Arrow record batch, without making an object per record (extra ``arrow``).

        Columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers, or those of ``columns``. Keys and
        values are bytes: deserializers and interceptors do not apply. At most ``max_records`` rows (default 65,536); none if
        no record came within ``timeout_ms``.

        With ``view=True`` the columns ``key`` and ``value`` have the type ``binary_view``; the others do not change. A view
        holds up to 12 bytes itself. Longer values are not copied: they stay where they were received, or decompressed to. polars
        and DataFusion take views as they are; ``batch.column("value").cast(pyarrow.binary())`` converts them to the plain type.
        Needs pyarrow 19; raises ``ImportError`` with an older one.

        A batch of views keeps the fetched data that its rows refer to, for as long as one of its arrays lives, and this data no
        longer counts towards ``fetch_buffer_bytes``. It is the data of whole answers for a partition (each as large as
        ``max_partition_fetch_bytes``, or several times that if the broker is far away and that option is not set), which may hold
        rows of the arrays before and after too; or of whole compressed batches, each with up to twice the bytes that it
        decompresses to. To keep a few rows of many batches, read with ``view=False`` or copy those rows. Messages in the formats
        before Kafka 0.11 are copied.

        Raises as ``getone`` does, except for deserializers, and ``ImportError`` without pyarrow.
        """
        return self._getarrow_for(self._parts.reads.asks(), partitions, timeout_ms, max_records, columns, view)

    async def _getarrow_for(self, *arguments: Any) -> "pyarrow.RecordBatch":
        batch = await self._parts.reads.arrow(*arguments)
        self._parts.unread.taken = None  # delivered: nothing can come between this and the return
        return batch

    async def arrow_batches(
        self,
        *partitions: TopicPartition,
        max_records: int = ARROW_ROWS,
        columns: Collection[str] | None = None,
        view: bool = False,
    ) -> "AsyncIterator[pyarrow.RecordBatch]":
        """Iterate over Arrow record batches of up to ``max_records`` rows, until the consumer is stopped.

        ``columns`` and ``view``: see ``getarrow``. Raises as ``getarrow`` does, which ends the iteration; a new one goes on from
        there.
        """
        while True:
            try:
                batch = await self.getarrow(*partitions, timeout_ms=3_600_000, max_records=max_records, columns=columns, view=view)
            except ConsumerStoppedError:
                return
            if batch.num_rows:
                yield batch

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Iterate over records until the consumer is stopped. Leaving the iteration loses none: the next read goes on from there.

        A record counts as consumed when the next one is asked for. Between two records everything may happen that may happen
        between two calls, such as a rebalance or an auto-commit.
        """
        self._parts.guard.check_readable()
        iterator: AsyncIterator[ConsumerRecord[K, V]] = ITERATOR(self._parts.reads.reader.handout, self._step)
        return iterator

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[K, V]]:
        return self._next_for(self._parts.reads.asks())

    async def _next_for(self, holder: Any) -> ConsumerRecord[K, V]:
        try:
            return await self._getone_for(holder, ())
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    async def _step(self, holder: Any) -> ConsumerRecord[K, V]:
        """Take the slow path to the next record of an iteration."""
        try:
            self._parts.guard.check_readable()
            self._parts.reads.reader.auto_commit.holdings.asked(holder)
            portion = await self._parts.reads.reader.step(holder)
        except ConsumerStoppedError:
            raise StopAsyncIteration from None
        record: ConsumerRecord[K, V] = portion.records[portion.place]
        portion.place += 1  # the record is handed out: nothing can come between this and the return
        return record

    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read exactly these offsets of each partition: from the first number up to, but not including, the second.

        Fetching starts at once, for all partitions together and within ``fetch_buffer_bytes``, and stops at the ends. Replaces
        ranges and partitions that were assigned before. Raises ``ValueError`` for anything but a range, ``IllegalStateError`` after
        ``subscribe``.
        """
        wanted = arguments.offset_ranges(ranges)
        with self._parts.outbox.together():
            self._assign(wanted, kept=())
            self._parts.reads.ranges.begin(wanted)

    @runs_elsewhere
    def next_columns(
        self,
        columns: Collection[str] = ALL_COLUMNS,
        *,
        batch_bytes: int = RANGE_BATCH_BYTES,
        timeout_ms: float | None = None,
    ) -> Coroutine[Any, Any, Columns | None]:
        """Return the next records of the ranges as columns of about ``batch_bytes``, as soon as there are any.

        Neither all keys nor all values together exceed ``batch_bytes``, unless a single record does.
        ``None``: all ranges are read to their ends. The column ``offset`` is always there. Raises ``OffsetOutOfRangeError`` if
        the log begins after, or ends before, an offset of a range, whatever ``auto_offset_reset`` is; ``KafkaTimeoutError``
        with the partitions if no record came for ``timeout_ms`` (default: ``default_api_timeout_ms``);
        ``CorruptRecordException`` as ``getmany`` does.
        """
        return self._next_columns_for(self._parts.reads.asks(), columns, batch_bytes, timeout_ms)

    async def _next_columns_for(self, *arguments: Any) -> Columns | None:
        found = await self._parts.reads.columns(*arguments)
        self._parts.unread.taken = None  # delivered: nothing can come between this and the return
        return found

    # --- process ---------------------------------------------------------------------------------------------------------------

    async def process(self, handler: "Handler[ConsumerRecord[K, V]]", **options: "Unpack[ProcessOptions]") -> None:
        """Call ``handler`` for every record, many at once, until cancelled, until ``stop``, or until it raises.

        ``handler(record)`` or ``handler(record, context)``: ``async def``, or plain, then on threads; or a ``Router``. A record is
        done when its handler returns. Only records that are done are committed, every ``auto_commit_interval_ms``, even if
        ``enable_auto_commit`` is off. Meanwhile no other call may read from the consumer or commit its positions. If the session
        may have expired, no handler starts until a heartbeat shows that it has not.

        Options, each with its default; times in milliseconds, sizes in bytes:

        - ``concurrency`` (10): how many handlers run at once, at most.
        - ``order`` ("key"): which records are handled one after another: those with the same ``"key"`` (within a partition; records
          without a key have no order), those of a ``"partition"``, ``"none"``, or those for which a function of the record returns
          the same value.
        - ``batch`` (None), ``linger_ms`` (0): call the handler with a list of up to ``batch`` records that belong together in
          ``order``, and wait for up to ``linger_ms`` for so many. If it raises, all of them have failed; with ``Failed(index,
          error)``, raised or returned, only that record has.
        - ``retry`` (ONCE, no retries): which failures are tried again, how often and when. A handler may also raise ``RetryLater``,
          ``Skip``, ``Reject``, in a task group too. Only the record's lane waits for its next attempt. At most 64 MiB of records
          wait that way; then no more is read of their partitions (``ProcessingStatistics.full``), and a warning is logged.
        - ``on_failure`` ("stop"): after the last attempt ``"stop"``, ``"skip"``, or ``async def (record, error, attempts)``, after
          which the record counts as done. A record that cannot be deserialized is passed to it with its bytes, after 0 attempts;
          one whose deserializer raised an error with ``retriable = True`` is not, but read again until that succeeds. A callable
          with the attribute ``raw_records = True`` gets every record with the bytes of its key and value, from before
          deserializers; ``kafka_async.adapters.dead_letters.DeadLetters`` is one, ``kafka_async.adapters.retry_topics.RetryTopics``
          another, which has the record handled again later.
        - ``timeout_ms`` (None): of one attempt; one that takes longer is cancelled once, and fails when it ends. If it goes on for
          as long again (at least a second), it is cancelled again. A thread cannot be ended, only left behind: its result does not
          count, and if twice as many threads as ``concurrency`` are at work, no handler starts until one ends.
        - ``stalled_after_ms`` (60_000): if a record is not done after this time, a warning is logged and ``state`` says so.
        - ``drain_timeout_ms`` (30_000): how long running handlers may go on when their partition is revoked, or at the end. Then
          they are cancelled, and their records come again, even if they raise another error.
        - ``max_held_bytes`` (67_108_864): how many bytes of keys and values may be received and not done (as records, ten for each
          handler, or twice ``batch``). What was fetched ahead (``fetch_buffer_bytes``) may come on top when records grow. If it is
          less than what ``concurrency`` handlers work on, fewer run.
        - ``keep_done`` (True): store with each commit which records after the committed offset are done as well, so that they are
          not handled again after a restart. ``context.completed`` has them too, and a ``seek`` to it.
        - ``not_before`` (None): a function of a record that returns when it may be handled, in milliseconds since the epoch, or
          ``None``. Until the wall clock shows that time its partition waits: nothing behind the record is handled, and nothing more
          is fetched of it. Other partitions go on, and so does the membership. A record is at most a second late if the clock is
          set forward, and never early. ``ProcessingStatistics.delayed_until`` says which partitions wait. If the function raises or
          returns something else, that is the record's failure, after 0 attempts. See ``application/DELAYS.md``.
        - ``rate`` (None): how many records begin in a second, at most, in this process; or an async context manager that is entered
          around each attempt of an ``async def``.
        - ``breaker`` (None): ``Breaker(on=(ConnectionError,))`` begins no handler while what handlers depend on is down; failures
          of that outage do not count as attempts.
        - ``too_many_failures`` (None): ``(50, 100)`` raises ``TooManyFailuresError`` once 50 of the last 100 records went to
          ``on_failure``, to skip them or to write them to a retry topic included; those of a handler's own ``Skip`` do not count.
        - ``tracing`` (None): ``kafka_async.adapters.tracing.Tracing()`` makes a span of OpenTelemetry for each attempt, linked to
          the one that wrote the record.

        Raises ``ProcessingError`` for the record that stopped it, the errors of a read, and ``TypeError`` and ``ValueError`` for
        bad arguments. It commits the records that are done before it returns or raises; the next call reads the others again.
        Each attempt has a copy of its own of the context variables (PEP 567) of the task in which processing began; ``on_failure``
        sees what the last attempt set.
        """
        async with self.processing(handler, **options) as run:
            await run.wait()

    def processing(self, handler: "Handler[ConsumerRecord[K, V]]", **options: "Unpack[ProcessOptions]") -> "Processing":
        """Do what ``process`` does, as an ``async with`` block: the handlers run while its body runs.

        Its value has ``statistics()``, ``pause()``, ``resume()``, ``await drain()`` and ``await wait()``. When the block is left,
        no more handlers start, running ones get ``drain_timeout_ms``, and what is done is committed. If processing fails, the body
        is cancelled and the block raises the cause. Otherwise raises as ``process`` does.
        """
        from .processing.process_settings import checked
        from .processing.settlement import processing_of

        settings = checked(handler, **options)
        return processing_of(self._parts, handler, settings)

    # --- what ------------------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to ``topics``, or to every topic that ``pattern`` matches (``re.match``); replaces the last subscription.

        With a ``group_id`` the group shares the partitions; without one this consumer reads all of them. Raises ``TypeError``
        unless exactly one of topics and pattern is given, ``ValueError`` for invalid topic names or patterns,
        ``IllegalStateError`` after ``assign``, ``IllegalOperation`` for a ``SubscriptionPattern`` without a ``group_id`` or with
        options that only the classic protocol has.

        ``listener`` is told of what changes from now on. If nothing was read yet, the first read also tells it of partitions that
        were taken since ``start`` returned, but not of those that have left since.
        """
        self._parts.guard.check_open()
        if self._parts.subscribed.by_user:
            raise IllegalStateError("partitions were assigned with assign(); call unsubscribe() first")
        check_listener(listener)
        if hasattr(pattern, "on_partitions_assigned"):
            raise TypeError(f"pattern={shown(pattern)}: it is a listener; give it by its name: subscribe(topics, listener=...)")
        if bool(topics) == (pattern is not None):
            raise TypeError("subscribe() takes either topics or a pattern")
        names, matches = frozenset[str](), None
        event: SubscribeRegex | SubscribeTopics | SubscribePattern
        number = self._parts.inbox.subscription + 1
        if isinstance(pattern, SubscriptionPattern):
            if self._parts.config.group_id is None or self._parts.config.decided_protocol == "classic":
                raise IllegalOperation(
                    "a SubscriptionPattern is evaluated by the coordinator: it needs a group_id and its protocol"
                )
            matches = subscribed_pattern("")  # the coordinator decides; this only marks that there is a pattern
            event = SubscribeRegex(regex=arguments.subscribed_regex(pattern), subscription=number)
        elif pattern is None:
            names = subscribed_topics(topics)
            event = SubscribeTopics(topics=names, subscription=number)
        else:
            matches = subscribed_pattern(pattern)
            event = SubscribePattern(
                matches=matches, exclude_internal=self._parts.config.exclude_internal_topics, subscription=number
            )
        self._parts.inbox.subscribe(joins=self._parts.config.group_id is not None)
        self._parts.rebalancing.listening.listen(listener)
        self._parts.rebalancing.assigned_once = False
        self._parts.subscribed.topics, self._parts.subscribed.pattern, self._parts.subscribed.event = names, matches, event
        self._parts.outbox.add(event)
        self._parts.subscribed.follow(self._parts.unread)
        self._parts.reads.reader.in_vain.over()

    def unsubscribe(self) -> None:
        """Give up subscription and assignment, and leave the group: commit the consumed records (auto-commit), call the listener,
        leave.

        Unread records are dropped, and whatever was under way for the subscription has no more effect. An ``async def``
        call-back runs on its own; the next read, or ``stop``, waits for it, and the group is left when it has returned. Until then
        other tasks can commit what they have of these partitions. If the coordinator cannot store what was committed at once, the
        member stays in the group for that, up to ``request_timeout_ms``. A new subscription waits as long, and then as long again
        for commits of partitions that were assigned by hand; these wait until the member has left. Raises what a plain call-back
        raises, when all is done.
        """
        self._parts.guard.ask()
        self._parts.guard.check_open()
        owned, running = (
            self._parts.subscribed.is_subscription,
            self._parts.guard.lifecycle.look() in (Phase.STARTING, Phase.RUNNING),
        )
        self._parts.unread.settle()
        if running:
            self._parts.reads.reader.auto_commit.withdraw()
            if owned:
                self._parts.reads.reader.auto_commit.send_last()
            else:
                self._parts.commits.give_up(frozenset(self._parts.unread.partitions) - self._parts.rebalancing.parting)
        self._parts.rebalancing.end()
        number = self._parts.inbox.subscribe(leaves=True)
        error = self._parts.rebalancing.unsubscribe(number, owned=owned and running)
        self._parts.subscribed.clear()
        self._parts.rebalancing.listening.listen(None)
        if error is not None:
            raise error

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed, or matched by the pattern."""
        self._parts.guard.ownership.check_process()
        self._parts.inbox.sort()
        return self._parts.subscribed.names(self._parts.inbox.cluster, self._parts.unread)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group. Those that were assigned before keep their position and unread records.

        Raises ``IllegalStateError`` after ``subscribe``, ``TypeError`` for anything but ``TopicPartition`` values.
        """
        wanted = partition_set(partitions)
        self._assign(wanted, kept=wanted)

    def _assign(self, wanted: Collection[TopicPartition], *, kept: Collection[TopicPartition]) -> None:
        self._parts.guard.check_open()
        if self._parts.subscribed.is_subscription:
            raise IllegalStateError("topics were subscribed with subscribe(); call unsubscribe() first")
        self._parts.unread.settle()
        # Partitions that unsubscribe() is still giving up are assigned anew. Its call-back may still commit the others.
        parting = self._parts.rebalancing.parting - frozenset(wanted)
        ours = {tp for tp, cursor in self._parts.unread.partitions.items() if cursor.custody is not PartitionCustody.LEAVING}
        kept = [tp for tp in kept if tp in ours]
        dropped = frozenset(ours) - frozenset(kept)
        if dropped and self._parts.guard.lifecycle.look() in (Phase.STARTING, Phase.RUNNING):
            self._parts.commits.give_up(dropped)
        number = self._parts.inbox.subscribe(leaves=True)
        self._parts.subscribed.by_user = bool(wanted)
        self._parts.unread.keep((*kept, *parting))
        self._parts.rebalancing.lost -= frozenset(wanted)
        self._parts.unread.assign((*wanted, *parting))
        self._parts.outbox.add(AssignFromUser(stamps=self._parts.unread.stamps(wanted), subscription=number))
        self._parts.runtime.wake_application()  # a read may wait for a partition that has left
        if wanted:
            self._parts.reads.reader.in_vain.over()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned now."""
        self._parts.guard.ownership.check_process()
        return set(self._parts.assigned.cursors())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition ids of a topic if its metadata is known, else ``None``.

        Known are the topics that are subscribed or assigned, once the consumer has started, and what was asked about since.
        ``describe_topics`` asks the cluster.
        """
        self._parts.guard.ownership.check_process()
        self._parts.inbox.sort()
        known = self._parts.inbox.topic(arguments.topic_name(topic))
        return {part.partition for part in known.partitions} if known is not None and known.partitions else None

    async def topics(self) -> set[str]:
        """Ask the cluster for all topics that this client may see.

        Raises ``KafkaTimeoutError`` after ``default_api_timeout_ms``.
        """
        return set((await self.describe_topics()).topics)

    async def describe_topics(self, *topics: str) -> ClusterDescription:
        """Ask the cluster about ``topics`` (none: all): ids, partitions, leaders, replicas. Topics that do not exist are left out.

        Raises ``InvalidTopicError`` for a name that no topic can have, ``KafkaTimeoutError`` after ``default_api_timeout_ms``.
        """
        names = arguments.topic_names(topics) or None
        self._parts.guard.check_running()
        return await self._parts.calls.describe(names)

    # --- where -----------------------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that will be returned, looking it up if it is not known yet.

        Raises ``IllegalStateError`` for a partition that is not assigned, ``KafkaTimeoutError`` after ``default_api_timeout_ms``.
        """
        self._parts.guard.ask()
        self._parts.guard.check_running()
        self._parts.unread.settle()
        if self._parts.unread.locate(self._parts.assigned.cursor(partition)) is None:
            await self._find_positions((as_partition(partition),))
        position = self._parts.unread.locate(self._parts.assigned.cursor(partition))
        if position is None:
            raise KafkaTimeoutError(f"{one_partition(partition)} has no position: it was assigned again meanwhile")
        return position

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from ``offset``. If an ``OffsetAndMetadata`` has a leader epoch, the log is checked for truncation first
        (KIP-320).

        The metadata of a handler's ``context.completed`` has the records after its offset that are done. If you seek to it before
        ``process`` begins, or in ``on_partitions_assigned``, ``process`` skips those records. After a seek to any other offset than
        the committed one, or while ``process`` runs, it skips none, whatever was committed (``keep_done``): you want to see them
        again.
        Raises ``IllegalStateError`` for a partition that is not assigned, such as one that has left before the first call
        (``start``), ``ValueError`` for a negative offset.
        """
        self._parts.guard.ask()
        self._parts.guard.check_open()
        self._parts.assigned.seek(partition, seek_target(offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Seek to the first offset of ``partitions`` (none: all assigned). Return ``True`` when the positions are found.

        Raises ``IllegalStateError`` for a partition that is not assigned, ``KafkaTimeoutError`` after ``default_api_timeout_ms``.
        """
        return await self._seek_by_lookup(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Seek to the end (``read_committed``: the last stable offset) of ``partitions`` (none: all). Return ``True`` when found.

        Raises as ``seek_to_beginning`` does.
        """
        return await self._seek_by_lookup(partitions, "latest")

    async def seek_to_timestamp(
        self, when: "int | datetime | Mapping[TopicPartition, int | datetime]", *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Seek to the first record at or after ``when``, in ``partitions`` (none: all) or by partition of a mapping.

        ``when``: milliseconds since the epoch, or a ``datetime`` with a time zone. Returns the offsets found; a partition without
        such a record is read from its end on. Raises as ``offsets_for_times`` does, and ``IllegalStateError`` for a partition that
        is not assigned.
        """
        wanted = dict(when) if isinstance(when, Mapping) else dict.fromkeys(self._parts.assigned.chosen(partitions), when)
        meant = {partition: self._parts.assigned.meant(self._parts.assigned.cursor(partition)) for partition in wanted}
        times = arguments.timestamps(wanted)
        # The ends first: what is written between the two answers is late enough, and must not lie before them.
        ends = await self.end_offsets(times)
        found = await self.offsets_for_times(times)
        for partition, target in found.items():
            offset = ends[partition] if target is None else target.offset
            self.seek(partition, OffsetAndMetadata(offset, topic_id=meant[partition]))
        return found

    async def offsets_for_times(
        self, timestamps: "Mapping[TopicPartition, int | datetime]"
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up, per partition, the first offset at or after the given timestamp; ``None`` if there is none.

        A timestamp is a number of milliseconds since the epoch or a ``datetime`` with a time zone. The partitions need not be
        assigned. Raises ``ValueError`` for a negative timestamp and for a ``datetime`` without a time zone, ``KafkaTimeoutError``
        with the reason.
        """
        self._parts.guard.ask()
        wanted = arguments.timestamps(timestamps)
        self._parts.guard.check_running()
        return dict(await self._parts.calls.ask(lambda call: ListOffsets(call=call, timestamps=wanted)))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the first offsets of the partitions, which need not be assigned.

        Raises ``KafkaTimeoutError`` with the reason after ``timeout_ms`` (default: ``default_api_timeout_ms``), also for a topic or
        a partition that does not exist, since it may be created meanwhile.
        """
        return await self._list_offsets(partitions, -2, timeout_ms)

    async def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Look up the offsets that come next (``read_committed``: the last stable offsets) in partitions that need not be assigned.

        Raises as ``beginning_offsets`` does.
        """
        return await self._list_offsets(partitions, -1, timeout_ms)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark, an offset, as of the last fetch; ``None`` before the first.

        Raises ``IllegalStateError`` for a partition that is not assigned.
        """
        marks = self._watermarks(partition)
        return marks.high_watermark if marks is not None else None

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset (KIP-98) as of the last fetch; ``None`` before the first.

        Raises ``IllegalStateError`` for a partition that is not assigned.
        """
        marks = self._watermarks(partition)
        return marks.last_stable_offset if marks is not None else None

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when the high watermark was last received (milliseconds since the epoch); ``None`` before the first fetch.

        Raises ``IllegalStateError`` for a partition that is not assigned.
        """
        marks = self._watermarks(partition)
        if marks is None:
            return None
        return int((time.time() - (self._parts.runtime.clock() - marks.fetched_at)) * 1000)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets lie between the position and the end, as of the last fetch; ``None`` if unknown.

        Raises ``IllegalStateError`` for a partition that is not assigned.
        """
        marks = self._watermarks(partition)
        return lag(self._parts.config, self._parts.assigned.cursor(partition), marks)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions until ``resume``. Fetched records are kept, even through a rebalance in which
        the partitions stay here. ``process`` starts no more handlers for them; running ones go on.

        Raises ``IllegalStateError`` for a partition that is not assigned.
        """
        self._parts.guard.ask()
        self._parts.guard.check_open()
        self._parts.assigned.pause(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again. Raises ``IllegalStateError`` for a partition that is not assigned."""
        self._parts.guard.ask()
        self._parts.guard.check_open()
        self._parts.assigned.pause(partitions, paused=False)
        self._parts.runtime.wake_application()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        self._parts.guard.ownership.check_process()
        return self._parts.assigned.paused()

    async def _find_positions(self, partitions: Collection[TopicPartition]) -> None:
        wanted = frozenset(partitions)
        found: Mapping[TopicPartition, PositionFound] = await self._parts.calls.find(
            lambda call: FindPositions(call=call, partitions=wanted)
        )
        for partition in partitions:
            cursor = self._parts.assigned.cursor(partition)
            answer = found.get(partition)
            if self._parts.unread.locate(cursor) is None and answer is not None and answer.stamp == cursor.stamp:
                cursor.belong(answer.topic_id)
                cursor.place((answer.offset, answer.leader_epoch))
        failure = self._parts.unread.failure_ahead(partitions)
        if failure is not None:
            raise failure.with_traceback(None)

    async def _seek_by_lookup(self, partitions: tuple[TopicPartition, ...], strategy: str) -> bool:
        self._parts.guard.ask()
        self._parts.guard.check_running()
        chosen = self._parts.assigned.chosen(partitions)
        for partition in chosen:
            self._parts.assigned.seek_by_lookup(partition, strategy)
        self._parts.outbox.add(ResetOffset(stamps=self._parts.unread.stamps(chosen), strategy=strategy))
        await self._find_positions(chosen)
        return True

    async def _list_offsets(
        self, of: Iterable[TopicPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self._parts.guard.ask()
        wanted = dict.fromkeys(partition_set(of), timestamp)
        self._parts.guard.check_running()
        found: Mapping[TopicPartition, OffsetAndTimestamp | None] = await self._parts.calls.ask(
            lambda call: ListOffsets(call=call, timestamps=wanted), timeout_ms
        )
        return {partition: answer.offset for partition, answer in found.items() if answer is not None}

    # --- commit ----------------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None) -> None:
        """Commit ``offsets`` (the next offsets to read), or everything handed out so far, to the group.

        The leader epoch is committed too (KIP-320) if an ``OffsetAndMetadata`` has one, and of each offset that is the position:
        without ``offsets`` all are, and ``record.offset + 1`` is after the last record that was handed out. While ``process`` runs,
        only a rebalance listener may call it without ``offsets``, which commits what is done.
        Raises ``IllegalOperation`` without a ``group_id``, ``IllegalStateError`` for a partition that was never assigned,
        ``CommitFailedError`` if the group refuses (its ``lost`` has the partitions that are no longer assigned, such as those that
        have left before the first call; the others were committed), ``KafkaTimeoutError`` after ``default_api_timeout_ms`` (nothing
        is sent later), and the authorization errors.
        """
        await self._parts.commits.commit(offsets)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what ``commit()`` would commit now: the next offset to read and the last leader epoch, by partition (KIP-1094).

        Use it if you store offsets yourself (in a database, or in a producer's transaction). The offset of the last record plus 1
        lacks the epoch, and does not pass control records and gaps after that record. Partitions without a position are left out.
        """
        self._parts.guard.ask()
        self._parts.guard.check_open()
        return self._parts.assigned.hand_over()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of a partition, ``None`` if there is none. Raises as ``committed_offsets`` does."""
        self._parts.commits.check_group("committed()")
        found = (await self.committed_offsets(partition))[as_partition(partition)]
        return found.offset if found is not None else None

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of ``partitions`` (none: all assigned), with metadata and leader epochs, in one request.

        The answer has the partitions in the order in which they were given, as those of the other look-ups do.
        Raises ``IllegalOperation`` without a group, ``KafkaTimeoutError`` after ``default_api_timeout_ms``, and the authorization
        errors. An error is never taken to mean that nothing is committed.
        """
        return await self._parts.commits.committed(partition_set(partitions))

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Seek to the committed offsets of ``partitions`` (none: all assigned) and return them. Without one, the position stays.

        A partition that leaves meanwhile, or leaves and comes back, begins at the committed offset wherever it is read next. So
        without ``partitions`` it is not sought; those that are named do not leave before the next read.

        Raises ``IllegalStateError`` for a partition that is not assigned, ``IllegalOperation`` without a group,
        ``KafkaTimeoutError`` after ``default_api_timeout_ms``.
        """
        if partitions:
            self._parts.guard.ask()
        chosen = self._parts.assigned.chosen(partitions)  # before the group, as in aiokafka
        self._parts.commits.check_group("seek_to_committed()")
        before = self._parts.assigned.cursors()
        found = await self.committed_offsets(*chosen)
        # Once something was asked, nothing leaves without a read: what is not assigned any more then is an error, as in ``seek``.
        now = before if self._parts.guard.unasked is None else self._parts.assigned.cursors()
        self._parts.guard.check_open()
        for partition, target in found.items():
            if target is not None and now.get(partition) is before[partition]:
                self._parts.assigned.seek(partition, target)
        return {partition: target.offset if target is not None else None for partition, target in found.items()}

    def group_metadata(self) -> GroupMetadata:
        """Return this member's identity in the group, for a transactional producer (KIP-447).

        Raises ``IllegalOperation`` without a group.
        """
        self._parts.guard.ownership.check_process()
        if self._parts.config.group_id is None:
            raise IllegalOperation("group_metadata() needs a group_id")
        self._parts.inbox.sort()
        return self._parts.inbox.group

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Make the group rebalance at the next opportunity (KIP-568). Has no effect in the consumer protocol, as in Java.

        Raises ``IllegalOperation`` without a group, ``ConsumerStoppedError`` after ``stop``.
        """
        self._parts.guard.ask()
        self._parts.commits.check_group("enforce_rebalance()")
        self._parts.guard.check_running()
        self._parts.outbox.add(EnforceRebalance(reason=arguments.text(reason or "the application asked for it", "reason")))

    # --- see -------------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing, as one value for people and health checks."""
        state = self._parts.observer.state
        return ConsumerState.STALLED if state is ConsumerState.STEADY and self._parts.guard.stalled else state

    @property
    def ready(self) -> bool:
        """Whether records can come: it is started, something is subscribed or assigned, a broker can be reached, in a group the
        member has an assignment, even one without partitions, and no partition is stopped.

        For a readiness probe. It is ``False`` while the group rebalances, while the coordinator or every broker is
        unreachable, while a broker refuses a partition, or while one has had no leader for three seconds, and becomes ``True``
        again by itself; after a partition was halted (a corrupt batch, an offset that the log does not hold) only with a seek.
        That a broker has ended is seen at once; that it is frozen, or cut off in silence, when a request to it has had no answer
        for ``request_timeout_ms``, or sooner if ``session_timeout_ms`` is short.
        Once ``process`` has failed it is ``False`` until something else reads. ``statistics()`` has the reason.
        """
        parts = self._parts
        return parts.observer.ready and not parts.subscribed.is_nothing and not parts.guard.has_failed

    @property
    def assigned_once(self) -> bool:
        """Whether the group has given this member an assignment since the consumer was made, even one without partitions.

        What a rolling update waits for: it stays ``True`` while the group rebalances, and while no broker can be reached, when
        ``ready`` is ``False``. Without a group: the consumer has been started and has partitions.
        """
        return self._parts.observer.assigned_once

    @property
    def alive(self) -> bool:
        """Whether the consumer can recover by itself: it is started, not stopped, has no final error, and its loop runs.

        For a liveness probe. A cluster that is down leaves it ``True``: a restart of the process would not help. Once ``process``
        has failed, and drained the records that were being handled, it is ``False`` until something else reads.
        """
        return self._parts.observer.alive and not self._parts.guard.failed_for_good

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name; the names are Kafka's (``consumer-fetch-manager-metrics`` and so on).

        While ``process`` runs there is a group ``consumer-processing-metrics`` too.
        """
        self._parts.guard.ownership.check_process()
        found = self._parts.observer.measure(0.0 if self._parts.guard.lifecycle.phase is Phase.NEW else self._parts.runtime.clock())
        return found | self._parts.guard.metrics()

    async def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """Return the id by which the cluster's operators know this client (KIP-714), waiting for it if necessary.

        Raises ``IllegalStateError`` if telemetry is off (``enable_metrics_push``, extra ``otel``), ``UnsupportedVersionError``
        if the brokers do not offer it, ``KafkaTimeoutError`` after ``timeout_ms`` (default: ``default_api_timeout_ms``).
        """
        self._parts.guard.check_running()
        return await self._parts.calls.ask(lambda call: FindClientInstanceId(call=call), timeout_ms)

    def statistics(self) -> Statistics:
        """Return one frozen snapshot of the consumer and each of its partitions.

        Raises ``KafkaTimeoutError`` if a background thread does not answer within 5 s.
        """
        self._parts.guard.ownership.check_process()
        return self._parts.observer.statistics(self._parts.calls.snapshot())
