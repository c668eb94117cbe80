"""What every public call of the consumer stands on.

Decides: in which order a call meets errors, events of the background and records. Owns: the queues' upper end, the errors that
wait to be raised, the proposals that wait to be applied. Must never be part of the public API: ``consumer.py`` says what callers
see.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from math import inf
from typing import Any, Final, TypeAlias, TypeVar

from attrs import evolve

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
    AssignPartitions,
    BackgroundSnapshot,
    Call,
    ClusterDescription,
    CommitOffsets,
    ErrorEvent,
    FindPositions,
    GroupChanged,
    HaltPartition,
    ListOffsets,
    MetadataUpdated,
    PausePartitions,
    PositionFound,
    ResetOffset,
    ResumePartitions,
    RevokePartitions,
    Seek,
    Stop,
    TakeSnapshot,
    TopicMetadata,
)
from ..model import ConsumerState, GroupMetadata, Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ..network import TransportFactory
from ..trace import Fault, LoggingListener, StateChanged, TraceEvent
from .arguments import one_partition, partition_set, seconds
from .callbacks import Deserializers, check_callbacks, settled
from .committing import AutoCommit, LastCommit, position_before
from .metrics import Metrics
from .observing import measured
from .otlp import OtlpSource, messages
from .reading import Reader
from .rebalancing import Rebalancing
from .reported import Reported
from .runtime import Runtime, TaskRuntime, ThreadRuntime
from .unread import PartitionUnread, Unread

T = TypeVar("T")
Report: TypeAlias = Callable[[], None] | None

GRACE: Final = 0.5
"""Seconds that a caller waits beyond a call's deadline for the background to say why it was not met."""

_numbers = count(1)


class ConsumerCore:
    """State and steps that the public calls share."""

    def __init__(self, config: ConsumerConfig, runtime: Runtime | None, transport_factory: TransportFactory | None) -> None:
        self._config = config
        self._runtime = runtime or (TaskRuntime() if config.background == "task" else ThreadRuntime.for_tasks())
        self._metrics = Metrics(client_id=config.client_id)
        self._logging = LoggingListener()
        self._handler = EventHandler(self._runtime.wake_background, self._runtime.wake_application)
        buffer = FetchBuffer(config.fetch_buffer_bytes, self._runtime.wake_application, self._runtime.wake_background)
        self._unread = Unread(config, buffer, self._refetch, self._halt, self._park)
        self._loop = BackgroundLoop(
            config=config,
            handler=self._handler,
            buffer=buffer,
            trace=self._trace,
            transport_factory=transport_factory,
            metrics_source=self._telemetry(),
            clock=self._runtime.clock,
            on_end=self._runtime.wake_application,
        )
        self._reader = Reader(
            unread=self._unread,
            runtime=self._runtime,
            deserializers=Deserializers.of(config.key_deserializer, config.value_deserializer),
            interceptors=config.interceptors,
            entered=self._read_entered,
            held=lambda: self._handler.session_deadline < self._runtime.clock(),
            handler=self._handler,
            idle=self._metrics.idle,
            committed=self._committed,
            commit_due_at=lambda: self._auto_commit.due_at if self._auto_commits else inf,
            commit_due=lambda now: self._auto_commit.look(self._positions_that_stay, now),
            quiet=self._is_quiet,
            before_read=self._handle_events,
            max_poll_records=config.max_poll_records,
        )
        self._cluster = ClusterDescription(cluster_id=None, brokers=(), topics={})
        self._topics: frozenset[str] = frozenset()
        self._pattern: Callable[[str], bool] | None = None
        self._assigned_by_user = False
        self._reported = Reported()
        self._group = GroupMetadata(group_id=config.group_id, group_instance_id=config.group_instance_id)
        self._rebalancing = Rebalancing(
            unread=self._unread,
            send=self._send,
            give_back=self._reader.give_back,
            before_revocation=self._commit_before_revocation,
            forget=lambda partitions: self._auto_commit.forget(partitions),
            trace=self._trace,
            clock=self._runtime.clock,
        )
        self._auto_commit = AutoCommit(
            interval=config.auto_commit_interval_ms / 1000,
            retry=config.retry_backoff,
            timeout=config.default_api_timeout_ms / 1000,
            send=lambda call, offsets: self._send(CommitOffsets(call=call, offsets=offsets)),
            wake=self._runtime.wake_application,
            trace=self._trace,
        )
        # Not as long as the group would wait: a topic that was deleted meanwhile can never be committed (KAFKA-20959).
        seconds = min(config.request_timeout_ms, config.max_poll_interval_ms / 2) / 1000
        self._last_commit = LastCommit(self._auto_commit, self._runtime, self._committed, seconds)
        self._handler.progress = self._reader.progress
        self._auto_commits = config.group_id is not None and config.enable_auto_commit
        self._group_state: ConsumerState | None = None
        self._coordinator: Node | None = None
        self._started = False
        self._parting = False
        self._interrupted = False
        """``stop`` is telling the listener: all but reading is still allowed, since this is where applications commit."""
        self._state = ConsumerState.STARTING

    @staticmethod
    def _configure(options: Mapping[str, Any]) -> ConsumerConfig:
        """Return the configuration; a consumer without a ``client_id`` gets one as Java gives it."""
        config = ConsumerConfig.from_options(options)
        check_callbacks(config)
        if "client_id" in options:
            return config
        name = f"consumer-{(config.group_id or 'none')[:200]}-{next(_numbers)}"
        return ConsumerConfig.from_options({**options, "client_id": name})

    def _telemetry(self) -> OtlpSource | None:
        """Return what measures and encodes for the cluster's operators; ``None`` where that is off or cannot be."""
        proto = messages() if self._config.enable_metrics_push else None
        if proto is None or isinstance(proto, Exception):
            return None
        return OtlpSource(proto=proto, measure=self._measure, resource=self._describe_us)

    def _launch(self) -> None:
        self._runtime.launch(self._loop)
        missing = messages() if self._config.enable_metrics_push else None
        if isinstance(missing, Exception):
            reason = f"no opentelemetry-proto (extra 'otel'): {missing!r}"
            off = StateChanged(now=self._runtime.clock(), subject="telemetry", before="OFF", after="OFF", reason=reason)
            self._trace(off)

    def _measure(self, now: float) -> dict[str, dict[str, float]]:
        return measured(self._config, self._metrics, self._unread, now)

    def _describe_us(self) -> dict[str, str | None]:
        """Return what operators tell consumers apart by (KIP-714); the brokers know the rest."""
        config, member = self._config, self._group.member_id
        us = {"group_id": config.group_id, "group_instance_id": config.group_instance_id, "group_member_id": member}
        return {"client_rack": config.client_rack, **us}

    # --- checks ----------------------------------------------------------------------------------------------------------------

    def _trace(self, event: TraceEvent) -> None:
        self._metrics(event)
        self._logging(event)
        if self._config.trace is not None:
            self._config.trace(event)

    def _check_open(self) -> None:
        if (self._state is ConsumerState.CLOSED or self._interrupted) and not self._parting:
            raise ConsumerStoppedError("the consumer is stopped")

    def interrupt(self) -> None:
        """End calls that wait, and refuse new ones: somebody is about to stop the consumer from another thread."""
        self._interrupted = True
        self._runtime.wake_application()

    def _check_running(self) -> None:
        self._check_open()
        if not self._started:
            raise IllegalStateError("the consumer was not started; use 'async with', or await start() first")
        if self._loop.ended:
            failure = self._loop.failure
            if isinstance(failure, Exception):
                raise BackgroundLoopError(f"the background loop failed: {failure!r}") from failure
            raise ConsumerStoppedError("the background loop was cancelled with the event loop it ran on")

    def _only(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        for partition in partitions:
            self._entry(partition)
        return partitions

    def _entry(self, partition: TopicPartition) -> PartitionUnread:
        entry = self._unread.partitions.get(partition) if isinstance(partition, TopicPartition) else None
        if entry is None:
            raise IllegalStateError(f"{one_partition(partition)} is not assigned")
        return entry

    def _assigned(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        chosen = partition_set(partitions) or tuple(self._unread.partitions)
        if not chosen:
            raise IllegalStateError("no partitions are assigned")
        return self._only(chosen)

    def _watermarks(self, partition: TopicPartition) -> Watermarks | None:
        self._entry(partition)
        return self._unread.buffer.watermarks.get(partition)

    # --- events ----------------------------------------------------------------------------------------------------------------

    def _send(self, event: ApplicationEvent) -> None:
        self._handler.add(event)

    def _refetch(self, entry: PartitionUnread, *, check: bool = False) -> None:
        if entry.position is not None:
            epoch = entry.leader_epoch if check else None
            self._send(
                Seek(partition=entry.partition, stamp=entry.stamp, offset=entry.position, leader_epoch=epoch, until=entry.until)
            )

    def _halt(self, entry: PartitionUnread) -> None:
        self._send(HaltPartition(partition=entry.partition, stamp=entry.stamp))

    def _park(self, partitions: Collection[TopicPartition], parked: bool) -> None:
        event = PausePartitions if parked else ResumePartitions
        self._send(event(partitions=frozenset(partitions)))

    def _sort_events(self) -> None:
        """Take over what the background told. An assignment that it proposes waits for the next read call."""
        for event in self._handler.drain_background():
            match event:
                case ErrorEvent():
                    self._reported.add(event)
                case MetadataUpdated():
                    self._cluster = event.cluster
                case AssignPartitions() | RevokePartitions():
                    if not self._assigned_by_user and (self._topics or self._pattern):
                        self._rebalancing.proposals.append(event)
                case GroupChanged():
                    self._group = evolve(self._group, member_id=event.member_id, generation_id=event.generation)
                    self._group_state, self._coordinator = event.state, event.coordinator

    def _is_quiet(self) -> bool:
        """Whether nothing must be dealt with before records are read."""
        return not (self._handler.background_events or self._reported or self._rebalancing.proposals or self._parting)

    async def _handle_events(self) -> None:
        """Before anything is read: end if stopped, carry a rebalance out, raise what the background reports."""
        if self._parting:
            raise ConsumerStoppedError("the consumer is stopping")
        self._check_running()
        self._sort_events()
        if self._rebalancing.proposals:
            try:
                await self._rebalancing.carry_out()
            finally:  # a proposal may have been made for the subscription before this one
                self._follow_subscription()
            self._check_running()  # a call-back, or another task meanwhile, may have stopped us: what is read now nobody commits
        self._reported.raise_any()

    def _follow_subscription(self) -> None:
        if not self._assigned_by_user:
            self._unread.follow(self._pattern or self._topics.__contains__)

    # --- committing ------------------------------------------------------------------------------------------------------------

    def _positions(self, which: Callable[[PartitionUnread], bool] = lambda _: True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what was consumed so far: the position of every partition that has one."""
        return {
            partition: OffsetAndMetadata(entry.position, "", entry.leader_epoch)
            for partition, entry in self._unread.partitions.items()
            if entry.position is not None and which(entry)
        }

    def _positions_that_stay(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the interval commits: partitions that are revoked have a commit of their own."""
        return self._positions(lambda entry: not entry.revoked)

    def _read_entered(self, now: float) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """A read call begins: everything that was handed out before is consumed (promise 1). Return what auto-commit achieved."""
        self._handler.polled_at = now
        self._unread.before.clear()
        return self._auto_commit.read_entered(self._positions_that_stay, now) if self._auto_commits else None

    async def _committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._config.interceptors:
            await settled(interceptor.on_commit(offsets))

    async def _commit_before_revocation(self, reason: object, partitions: frozenset[TopicPartition]) -> bool:
        consumed = self._positions(lambda entry: entry.partition in partitions)
        return not self._auto_commits or await self._last_commit.made(reason, consumed)

    async def _commit_consumed(self, consumed: Mapping[TopicPartition, OffsetAndMetadata], seconds: float) -> None:
        """Commit what of these offsets auto-commit has not committed yet. A failure is reported and stops nothing."""
        offsets = self._auto_commit.fresh(consumed)
        if not self._auto_commits or not offsets:
            return
        try:
            deadline = self._runtime.clock() + seconds
            await self._call(lambda call: CommitOffsets(call=call, offsets=offsets), deadline)
        except KafkaError as error:
            self._trace(Fault(now=self._runtime.clock(), text="consumed offsets could not be committed", error=error))
        else:
            self._auto_commit.committed(offsets)
            await self._committed(offsets)

    def _commit_dropped(self, kept: Collection[TopicPartition]) -> None:
        """Auto-commit what was consumed of partitions that ``assign`` drops; nobody else would any more (KAFKA-20166)."""
        dropped = {partition: offset for partition, offset in self._positions().items() if partition not in kept}
        offsets = self._auto_commit.fresh(dropped) if self._auto_commits and self._started else {}
        if offsets:
            deadline = self._runtime.clock() + self._config.default_api_timeout_ms / 1000
            self._send(CommitOffsets(call=Call(deadline), offsets=offsets))

    def _need_group(self, what: str) -> None:
        self._check_open()
        if self._config.group_id is None:
            raise IllegalOperation(f"{what} needs a group_id")

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit because the caller asked; errors are the caller's."""
        if offsets:
            await self._call(lambda call: CommitOffsets(call=call, offsets=offsets), self._deadline(None))
            self._auto_commit.committed(offsets)
            await self._committed(offsets)

    # --- calls to the background -----------------------------------------------------------------------------------------------

    async def _ask(self, event: Callable[[Call[T]], ApplicationEvent], timeout_ms: float | None = None) -> T:
        """Send the event and wait for its answer; raise what the background reports meanwhile, but not of reads alone."""
        return await self._call(event, self._deadline(timeout_ms), report=self._reported.raise_lasting)

    async def _find(self, event: Callable[[Call[T]], ApplicationEvent], timeout_ms: float | None = None) -> T:
        """Ask for something on the way to records: what keeps those from coming ends it too."""
        return await self._call(event, self._deadline(timeout_ms), report=self._reported.raise_any)

    def _deadline(self, timeout_ms: float | None) -> float:
        self._check_running()
        return self._runtime.clock() + seconds(self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    async def _call(
        self, event: Callable[[Call[T]], ApplicationEvent], deadline: float, *, report: Report = None, grace: float = GRACE
    ) -> T:
        call: Call[T] = Call(deadline, self._runtime.wake_application)
        self._send(event(call))
        runtime = self._runtime
        try:
            while True:
                ticket = runtime.signal.ticket()
                if call.done:
                    return call.result()
                if report is not None or self._loop.ended:  # the event may have been queued behind the loop's back as it ended
                    self._check_running()
                if report is not None:
                    self._sort_events()
                    report()
                remaining = deadline + grace - runtime.clock()
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

    async def _stop(self, timeout_ms: float | None, *, clean: bool) -> None:
        if self._state is ConsumerState.CLOSED:
            return
        allowed = seconds(self._config.request_timeout_ms if timeout_ms is None else timeout_ms)
        deadline = self._runtime.clock() + allowed if self._started else 0.0
        at = self._reader.current
        self._reader.give_back()
        consumed: Mapping[TopicPartition, OffsetAndMetadata] = self._positions()
        if not clean:
            # What the last read call handed out may not be worked off: an exception is on its way through the application.
            consumed = {**consumed, **(self._unread.before if at is None else position_before(consumed, at))}
        self._state = ConsumerState.CLOSED
        if not self._started:
            return
        self._runtime.wake_application()
        with self._runtime.shield():
            try:
                if not self._loop.ended:
                    await self._say_goodbye(consumed, deadline, allowed)
            finally:  # an interceptor's on_commit may raise, and the loop must end all the same
                self._parting = False
                await self._end(deadline)

    async def _say_goodbye(self, consumed: Mapping[TopicPartition, OffsetAndMetadata], deadline: float, seconds: float) -> None:
        """Commit and call back, within half of the time, so that there is always some left to leave the group."""
        if self._auto_commits:
            await self._commit_consumed(consumed, seconds / 2)
        owned = frozenset(self._unread.partitions)
        listener = self._rebalancing.listener
        if listener is not None and owned and not self._assigned_by_user:
            self._parting = True
            with self._runtime.limit(max(0.0, deadline - seconds / 4 - self._runtime.clock())):
                try:
                    await settled(listener.on_partitions_revoked(owned))
                except Exception as error:
                    # The boundary to the user's code: stopping goes on, and says so.
                    self._trace(Fault(now=self._runtime.clock(), text="on_partitions_revoked failed while stopping", error=error))

    async def _end(self, deadline: float) -> None:
        """Tell the loop to stop and wait until it is gone, whatever happens; then it is ended for good."""
        try:
            if not self._loop.ended:
                await self._call(lambda call: Stop(call=call), deadline, grace=0.0)
        except (KafkaTimeoutError, ConsumerStoppedError, BackgroundLoopError):
            pass  # it was told, and it ends below whatever it answered
        finally:
            if not self._loop.ended:
                self._runtime.abort()
        await self._runtime.join(max(0.0, deadline - self._runtime.clock()) + GRACE)

    async def _find_topics(self) -> None:
        """Wait for the cluster, and until every topic that is subscribed or assigned exists; the broker may create it."""
        topics = self._topics | {partition.topic for partition in self._unread.partitions}
        deadline = self._runtime.clock() + self._config.default_api_timeout_ms / 1000
        missing_until = inf
        while True:
            left_ms = max(0.0, (deadline - self._runtime.clock()) * 1000)
            cluster: ClusterDescription = await self._find(
                lambda call: TopicMetadata(call=call, topics=topics, create=True, fail_fast=True), left_ms
            )
            missing = sorted(name for name in topics if name not in cluster.topics or not cluster.topics[name].partitions)
            if not missing:
                return
            missing_until = min(missing_until, self._runtime.clock() + self._config.request_timeout_ms / 1000, deadline)
            if self._runtime.clock() + 0.2 >= missing_until:
                raise UnknownTopicOrPartitionError(f"topics that do not exist: {', '.join(missing)}")
            await self._runtime.signal.wait(self._runtime.signal.ticket(), 0.1)

    async def _find_assignment(self) -> None:
        if not self._topics:
            return
        deadline = self._runtime.clock() + self._config.request_timeout_ms / 1000
        while not self._rebalancing.assigned_once and self._runtime.clock() < deadline:
            ticket = self._runtime.signal.ticket()
            await self._handle_events()
            if not self._rebalancing.assigned_once:
                await self._runtime.signal.wait(ticket, deadline - self._runtime.clock())
        # The background has then heard that the assignment is taken over, and ``state`` says so.
        await self._find(lambda call: TakeSnapshot(call=call))

    async def _find_positions(self, partitions: Collection[TopicPartition]) -> None:
        wanted = frozenset(partitions)
        found: Mapping[TopicPartition, PositionFound] = await self._find(lambda call: FindPositions(call=call, partitions=wanted))
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

    async def _list_offsets(
        self, of: Iterable[TopicPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partition_set(of), timestamp)
        found: Mapping[TopicPartition, OffsetAndTimestamp | None] = await self._ask(
            lambda call: ListOffsets(call=call, timestamps=wanted), timeout_ms
        )
        return {partition: answer.offset for partition, answer in found.items() if answer is not None}
