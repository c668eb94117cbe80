"""ShareConsumer: a queue on Kafka (KIP-932), as the caller holds it. The parts of the application's side are put together here."""

import warnings
from collections.abc import AsyncIterator, Collection
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack
from uuid import UUID

from typing_extensions import TypeVar

from ...errors import ConsumerStoppedError, KafkaError
from ...events import FindClientInstanceId, SubscribeTopics, Unsubscribe
from ...model import ConsumerState, TopicPartition
from ...network import TransportFactory
from ...started import note
from ..arguments import at_least_one, seconds, subscribed_topics
from ..lifecycle.lifecycle import Phase
from ..lifecycle.observing import is_alive, is_stale, milliseconds_of, state_of
from ..lifecycle.runtime import Runtime
from .parts import ShareParts, assemble_share
from .record import ShareRecord
from .statistics import ShareStatistics

if TYPE_CHECKING:
    from ...network import TransportFactory
    from ..lifecycle.runtime import Runtime
    from ..processing.process_settings import Handler
    from ..processing.processing import Processing
    from .options import ShareOptions, ShareProcessOptions

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)

_numbers = count(1)


class ShareConsumer(Generic[K, V]):
    """An asyncio-native consumer of a share group (KIP-932): its members share partitions, and each record goes to one of them.

    ``topics`` are subscribed at once; ``options`` are those of ``ShareOptions``; ``group_id`` is required. Use it as
    ``async with ShareConsumer(...) as consumer``, or call ``start`` and ``stop``. It belongs to the event loop on which it is
    started. Records are acknowledged one by one, see ``ShareRecord``; those that are neither acknowledged nor lost when the
    consumer stops are released. Needs Kafka 4.2 or newer.

    The group's own configuration sets where it starts (``share.auto.offset.reset``, by default the end of the log), how long a lock
    lasts (``share.record.lock.duration.ms``) and how often a record is delivered (``share.delivery.count.limit``).
    A broker counts a delivery when it locks the record, even if the application never gets it: the consumer stops, the process
    dies, the connection breaks, or the event loop is blocked for as long as a lock lasts. The record then comes again, after later
    ones perhaps, unless that was its last delivery. So little is read ahead (``max_poll_records``). If members are restarted
    several times within seconds, give the group a higher ``share.delivery.count.limit``, or set ``strict_max_records``.

    In a cluster of fewer than three brokers, ``share.coordinator.state.topic.replication.factor`` (3 by default) and
    ``share.coordinator.state.topic.min.isr`` (2) have to be lowered. If not, no record ever comes, and brokers report no error; a
    warning says that no partitions come.

    Raises ``TypeError`` for an unknown option, ``ValueError`` for a bad value and for an option that share groups do not have.
    """

    def __init__(
        self,
        *topics: str,
        # Not Kafka's options: where the background loop runs and what connects, for tests; the blocking facade gives all parts.
        runtime: "Runtime | None" = None,
        transport_factory: "TransportFactory | None" = None,
        parts: ShareParts | None = None,
        **options: "Unpack[ShareOptions[K, V]]",
    ) -> None:
        self._parts = assemble_share(options, runtime, transport_factory) if parts is None else parts
        if topics:
            self.subscribe(topics)

    # --- life ------------------------------------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect, learn about the cluster, join the group and, for a subscription, wait for the first assignment.

        Waits up to ``timeout_ms`` (default: ``default_api_timeout_ms``), and up to ``request_timeout_ms`` for an assignment. If
        none comes, ``start`` logs that and returns, and reads go on waiting.

        Raises ``UnsupportedVersionError`` if the cluster does not serve share groups, ``KafkaConnectionError``,
        ``KafkaTimeoutError``, ``UnknownTopicOrPartitionError``, ``AuthenticationFailedError`` and the authorization errors. After
        an error the consumer may be started again.
        """
        self._parts.guard.ownership.check()
        note(self, self._parts.config.client_id)
        await self._parts.life.start(timeout_ms)

    async def stop(self, timeout_ms: float | None = None) -> None:
        """Stop: send the acknowledgements, release every other record, close the sessions, leave the group.

        Always returns within ``timeout_ms`` (default: ``request_timeout_ms``). Other tasks that work on a record within
        ``async with`` get up to a third of that time to finish, as do handlers of ``process``, which are then cancelled. A block
        that begins after that wait raises ``LockLostError``. Pending reads end with ``ConsumerStoppedError`` (``getmany``: ``{}``),
        iterations just end. A second call waits for the first; stopping again is not an error.
        """
        await self._parts.life.stop(self._parts.guard, timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        parts = getattr(self, "_parts", None)
        if parts is not None and parts.guard.ownership.was_forgotten():
            warnings.warn(f"Unclosed {type(self).__name__}: {self!r} was not stopped", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<ShareConsumer client_id={self._parts.config.client_id!r} state={str(self.state)!r}>"

    # --- subscribe -------------------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on, instead of the former ones.

        Records of other topics are released if they were not handed out, or wait in ``process``. Records that were handed out can
        still be acknowledged, and running handlers go on.

        Raises ``ValueError`` for a name that no topic can have and if there is no name, ``TypeError`` for a bare string.
        """
        self._parts.guard.check_open()
        names = subscribed_topics(topics)
        if not names:
            raise ValueError("topics: expected at least one; unsubscribe() ends a subscription")
        event = SubscribeTopics(topics=names, subscription=self._parts.inbox.subscribe())
        self._parts.life.subscribed = event
        self._parts.custody.want(names)
        self._parts.calls.outbox.add(event)
        self._parts.reader.in_vain.over()

    async def unsubscribe(self) -> None:
        """Leave the group. Records that were not handed out are released, and so are those that wait in ``process``.

        Those that were handed out can still be acknowledged, and running handlers go on. ``process`` continues with the next
        subscription.
        """
        self._parts.guard.check_open()
        number = self._parts.inbox.subscribe(leaves=True)
        self._parts.life.subscribed = None
        self._parts.custody.want(frozenset())
        if self._parts.guard.lifecycle.phase is Phase.NEW:
            self._parts.calls.outbox.add(Unsubscribe(call=None, subscription=number))
            return
        await self._parts.calls.ask(lambda call: Unsubscribe(call=call, subscription=number))
        self._parts.custody.want(self.subscription())  # a thread may have delivered something meanwhile

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed."""
        subscribed = self._parts.life.subscribed
        return subscribed.topics if subscribed is not None else frozenset()

    # --- read ------------------------------------------------------------------------------------------------------------------

    async def getone(self) -> ShareRecord[K, V]:
        """Return the next record, waiting for it as long as it takes.

        Raises ``ConsumerStoppedError`` after ``stop``, ``DeserializationError`` once for a record that cannot be deserialized,
        ``CorruptRecordException`` for a corrupt batch (both are released, and from the ``bad_record_deliveries``-th delivery on
        rejected), and errors of the background. Cancelling it loses no record.
        """
        record: ShareRecord[K, V] | None = _at_hand(self._parts)
        if record is not None:
            return record
        self._parts.guard.check_readable()
        records: list[ShareRecord[K, V]] = await self._parts.reader.read(inf, 1)
        return records[0]

    async def getmany(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord[K, V]]]:
        """Return records by partition as soon as there are any, at most ``max_records`` (default: ``max_poll_records``).

        Waits up to ``timeout_ms`` for the first; ``{}`` if none came, or if ``stop`` is called meanwhile. Raises as
        ``getone`` does. Cancelling it loses no record.
        """
        self._parts.guard.check_readable()
        size = self._parts.config.max_poll_records if max_records is None else at_least_one(max_records, "max_records")
        batch: dict[TopicPartition, list[ShareRecord[K, V]]] = {}
        try:
            records = await self._parts.reader.read(seconds(timeout_ms), size)
        except ConsumerStoppedError:
            if self._parts.guard.lifecycle.is_over:
                return batch
            raise
        parcel, alike = None, list[ShareRecord[K, V]]()
        for record in records:
            if (delivery := record._delivery) is not parcel:  # neighbours were delivered together
                parcel = delivery
                alike = batch.setdefault(parcel.partition, [])
            alike.append(record)
        return batch

    def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        return _Iteration(self, self._parts)

    async def process(self, handler: "Handler[ShareRecord[K, V]]", **options: "Unpack[ShareProcessOptions]") -> None:
        """Call ``handler`` for every record, many at once, until cancelled, until ``stop``, or until it raises.

        ``handler(record)`` or ``handler(record, context)`` is an ``async def``, or a plain function, which runs on threads; or a
        ``Router`` of such. When it returns, the record is accepted, unless the handler has acknowledged it otherwise (which also
        works on a thread). The lock is renewed automatically, up to ``max_processing_ms``, while the record waits, is handled or
        waits for another attempt. If the lock is lost, the handler is cancelled, since others get the record. Nothing else can read
        from the consumer meanwhile. No order is kept. Only as many records are read ahead as the handlers can get to within a third
        of the lock's time.

        Options, each with its default; times in milliseconds, sizes in bytes:

        - ``concurrency`` (10): how many handlers run at once, at most.
        - ``batch`` (None), ``linger_ms`` (0): call the handler with a list of up to ``batch`` records, after waiting up to
          ``linger_ms`` for that many. It is cancelled once the locks of all of them are lost.
        - ``retry`` (ONCE, no retries): which failures are tried again here, how often and when. A handler may also raise
          ``RetryLater`` (tried again here), ``Skip`` (accepted) and ``Reject`` (rejected, after ``on_failure`` was called if it is
          a function; never stops).
        - ``on_failure`` ("stop"): what happens after the last attempt. ``"stop"`` releases the record and raises. ``"release"``
          leaves it to another attempt, here or elsewhere, as often as the group delivers it. Each time it stays locked for a while
          first: up to 1 s after the first delivery, then twice as long each time, 60 s at most. For other times, release it in a
          function of your own: ``record.release(delay_ms=...)``. ``"skip"`` rejects it, and so does ``async def (record, error,
          attempts)`` once it has returned, unless it has acknowledged the record otherwise. A record that cannot be deserialized is
          passed to it, with its bytes and after 0 attempts, at its ``bad_record_deliveries``-th delivery; before that it is
          released. If its deserializer raised an error with ``retriable = True``, that is called again until it succeeds. If the
          brokers write dead letters of the group (KIP-1191), they write one for each record that is rejected or released too often:
          ``adapters/cli/README.md`` says when to use which.
        - ``timeout_ms`` (None): for one attempt; one that takes longer is cancelled once, and has failed when it ends. If it goes
          on for as long again (at least a second), it is cancelled again. A thread cannot be ended, only left behind: its result
          does not count, and if twice as many threads as ``concurrency`` are at work, no handler starts until one ends.
        - ``stalled_after_ms`` (60_000): if a record takes longer, a warning is logged and ``state`` says so.
        - ``drain_timeout_ms`` (30_000): how long running handlers may go on at the end. Then they are cancelled, and their records
          are released.
        - ``max_held_bytes`` (67_108_864): how many bytes of keys and values may be received and not done (as records, ten for each
          handler, or twice ``batch``). If it is less than what ``concurrency`` handlers work on, fewer run.
        - ``rate`` (None), ``breaker`` (None), ``too_many_failures`` (None): as those of ``KafkaConsumer.process``. While the
          breaker is open, one record at a time is read, to try it with; locks are renewed up to ``max_processing_ms``.
        - ``tracing`` (None): ``kafka_async.adapters.tracing.Tracing()`` makes a span of OpenTelemetry for each attempt, linked to
          the one that wrote the record.

        Raises ``ProcessingError`` for the record that stopped it, the errors of a read, and ``TypeError`` and ``ValueError`` for
        bad arguments. Before it returns or raises, records that are done are acknowledged and the others are released.
        """
        async with self.processing(handler, **options) as run:
            await run.wait()

    def processing(self, handler: "Handler[ShareRecord[K, V]]", **options: "Unpack[ShareProcessOptions]") -> "Processing":
        """Do what ``process`` does, as an ``async with`` block: the handlers run while its body runs.

        Its value has ``statistics()``, ``pause()``, ``resume()``, ``await drain()`` and ``await wait()``. When the block is left,
        no more handlers start, running ones get ``drain_timeout_ms``, and the other records are released. If processing fails,
        the body is cancelled and the block raises the error.
        """
        from ..processing.process_settings import checked_shared
        from .settlement import processing_of_shared

        settings = checked_shared(handler, **options)
        return processing_of_shared(self._parts, handler, settings)

    async def flush(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Wait until every acknowledgement so far has a result, and return the results since the last flush.

        By partition: ``None`` if all count, else the error of the first that does not; ``ShareRecord.lost`` says which those
        are. If the connection broke or the lock ended before there was a response, it is unknown whether the acknowledgement
        counts. Its error says so even if the broker accepts it later, since brokers also accept acknowledgements of records that
        another member has accepted. Only in one case does this pass for success: the partition's leadership left its broker and
        came back unnoticed (within half a second, or while nothing was read and nothing acknowledged).
        Raises ``KafkaTimeoutError`` after ``timeout_ms`` (default: ``default_api_timeout_ms``). The results are those of the next
        flush then, as they are if this one is cancelled.
        """
        self._parts.guard.check_running()
        answer = await self._parts.life.flush(self._parts.calls.deadline(timeout_ms))
        self._parts.custody.sort()
        return answer

    # --- observe ---------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """What the consumer is doing, as one value for people and health checks."""
        state = state_of(self._parts.guard.lifecycle, self._parts.inbox)
        return ConsumerState.STALLED if state is ConsumerState.STEADY and self._parts.guard.stalled else state

    @property
    def ready(self) -> bool:
        """Whether records can come: it is started, topics are subscribed, a broker can be reached, and the member has
        partitions.

        For a readiness probe. It is ``False`` while the coordinator or every broker is unreachable, while access to a topic is
        denied, and while a partition cannot be read (``ShareStatistics.problems``), and becomes ``True`` again by itself. Once
        ``process`` has failed it is ``False`` until something else reads.
        """
        guard, inbox = self._parts.guard, self._parts.inbox
        is_steady = self._parts.life.subscribed is not None and state_of(guard.lifecycle, inbox) is ConsumerState.STEADY
        return is_steady and not guard.has_failed and not inbox.handler.denied and not self._parts.problems()

    @property
    def assigned_once(self) -> bool:
        """Whether the group has given this member an assignment since the consumer was made, even one without partitions.

        What a rolling update waits for: it stays ``True`` while the group rebalances, and while no broker can be reached, when
        ``ready`` is ``False``.
        """
        self._parts.inbox.sort()
        return self._parts.inbox.assigned_once

    @property
    def alive(self) -> bool:
        """Whether the consumer can recover by itself: it is started, not stopped, has no final error, and its loop runs.

        For a liveness probe. A cluster that is down leaves it ``True``: a restart of the process would not help. Once ``process``
        has failed, and drained the records that were being handled, it is ``False`` until something else reads.
        """
        return (
            is_alive(self._parts.guard.lifecycle, self._parts.inbox, self._parts.runtime) and not self._parts.guard.failed_for_good
        )

    def statistics(self) -> ShareStatistics:
        """Return one frozen snapshot. Raises ``KafkaTimeoutError`` if a background thread does not answer within 5 s."""
        self._parts.guard.ownership.check_process()
        self._parts.inbox.sort()
        self._parts.custody.sort()
        below, inbox, custody = self._parts.calls.snapshot(), self._parts.inbox, self._parts.custody
        counts, state, clock = custody.counts, self.state, self._parts.runtime.clock
        return ShareStatistics(
            state=state,
            client_id=self._parts.config.client_id,
            cluster_id=below.cluster_id,
            group_id=self._parts.config.group_id or "",
            member_id=inbox.group.member_id or None,
            member_epoch=inbox.group.generation_id if inbox.group.generation_id > 0 else None,
            coordinator=inbox.coordinator,
            brokers=below.brokers,
            assignment=frozenset(below.partitions),
            problems={partition: str(error) for partition, error in self._parts.problems().items()},
            connections=below.connections,
            requests_in_flight=below.requests_in_flight,
            wake_ups=below.wake_ups,
            unreachable_since=milliseconds_of(below.unreachable_since, clock),
            last_answer_at=milliseconds_of(below.last_answer_at, clock),
            stale=is_stale(below, state),
            unread=custody.unread,
            out=custody.out,
            unanswered=counts.unanswered,
            delivered=counts.delivered,
            accepted=counts.accepted,
            released=counts.released,
            rejected=counts.rejected,
            refused=counts.refused,
            lost=counts.lost,
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name; the names are those of Java's ``KafkaShareConsumer`` if it has them.

        While ``process`` runs there is a group ``consumer-processing-metrics`` too.
        """
        self._parts.guard.ownership.check_process()
        self._parts.custody.sort()
        found = self._parts.measure(0.0 if self._parts.guard.lifecycle.phase is Phase.NEW else self._parts.runtime.clock())
        return found | self._parts.guard.metrics()

    async def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """Return the id by which the cluster's operators know this client (KIP-714), waiting for it if necessary.

        Raises ``IllegalStateError`` if telemetry is off (``enable_metrics_push``, extra ``otel``), ``UnsupportedVersionError``
        if the brokers do not offer it, ``KafkaTimeoutError`` after ``timeout_ms`` (default: ``default_api_timeout_ms``).
        """
        self._parts.guard.check_running()
        return await self._parts.calls.ask(lambda call: FindClientInstanceId(call=call), timeout_ms)


class _Iteration(AsyncIterator[ShareRecord[K, V]]):
    """``async for``. Not a generator: trio warns about generators that are left before their end."""

    def __init__(self, consumer: ShareConsumer[K, V], parts: ShareParts) -> None:
        self._consumer = consumer
        self._parts = parts

    async def __anext__(self) -> ShareRecord[K, V]:
        record: ShareRecord[K, V] | None = _at_hand(self._parts)
        if record is not None:
            return record
        try:
            return await self._consumer.getone()
        except ConsumerStoppedError:
            if self._parts.guard.lifecycle.is_over:
                raise StopAsyncIteration from None
            raise


def _at_hand(parts: ShareParts) -> Any:
    """Return the next record if it needs nothing but to be handed out. Raises ``IllegalStateError`` as ``getone`` does."""
    guard = parts.guard
    if guard.lifecycle.phase is not Phase.RUNNING or guard.occupant is not None:
        return None
    guard.ownership.check()
    return parts.reader.at_hand(fairly=True)
