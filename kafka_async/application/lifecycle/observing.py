"""Observing a consumer: trace events for listeners, metrics, statistics, its state.

Nothing refers to the consumer itself: the background holds this object, and a consumer that is garbage must be noticed.
"""

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from ...background.boundary import Watermarks
from ...config import ConsumerConfig
from ...errors import KafkaError
from ...events import BackgroundSnapshot
from ...model import ConsumerState, IsolationLevel, PartitionStatistics, Statistics, TopicPartition
from ...trace import ROUTINE, Fetched, LoggingListener, StateChanged, TraceEvent
from ...values import define, field
from ..inbox import Inbox
from ..reading.cursor import Cursor, PauseReason
from ..reading.unread import Unread
from .lifecycle import Lifecycle, Phase
from .metrics import Metrics, of_stopped
from .otlp import OtlpSource, missing, source_of

if TYPE_CHECKING:
    from ...network import Dated
    from .runtime import Runtime

LOOK: Final = 1.0
"""Seconds between two checks whether anything listens to the events of round trips."""
SLACK: Final = 30.0
"""Seconds past its own deadline after which the loop counts as stuck."""


def state_of(lifecycle: Lifecycle, inbox: Inbox) -> ConsumerState:
    """Return what a consumer is doing."""
    match lifecycle.look():
        case Phase.NEW:
            return ConsumerState.NEW
        case Phase.STARTING:
            return ConsumerState.STARTING
        case Phase.UNDOING | Phase.PARTING | Phase.CLOSED:
            return ConsumerState.CLOSED
        case Phase.FAILED:
            return ConsumerState.FATAL if isinstance(lifecycle.boundary.ended, Exception) else ConsumerState.CLOSED
        case Phase.RUNNING:
            return _running_state(inbox)


def is_alive(lifecycle: Lifecycle, inbox: Inbox, runtime: "Runtime") -> bool:
    """Return whether a consumer can recover by itself."""
    if lifecycle.look() not in (Phase.STARTING, Phase.RUNNING) or inbox.reported.final is not None:
        return False
    return runtime.clock() <= lifecycle.boundary.wakes_at + SLACK


def is_stale(below: BackgroundSnapshot, state: ConsumerState) -> bool:
    """Return whether what statistics say of the cluster may be out of date."""
    return below.unreachable_since is not None or state in (ConsumerState.CLOSED, ConsumerState.FATAL)


def milliseconds_of(at: float | None, clock: Callable[[], float]) -> int | None:
    """Return a time of the loop's clock as milliseconds since the epoch."""
    return None if at is None else int((time.time() - (clock() - at)) * 1000)


def _running_state(inbox: Inbox) -> ConsumerState:
    inbox.sort()
    if inbox.reported.final is not None:
        return ConsumerState.FATAL
    if inbox.reachability.unreachable_since is not None:
        return ConsumerState.UNREACHABLE
    return inbox.group_state or ConsumerState.STEADY


@define(eq=False)
class Observer:
    """Takes trace events, and answers questions about the consumer."""

    config: ConsumerConfig
    runtime: "Runtime" = field(repr=False)
    lifecycle: Lifecycle
    inbox: Inbox = field(repr=False)
    unread: Unread = field(repr=False)
    metrics: Metrics = field(repr=False)
    dated: "Dated | None" = field(default=None, repr=False)
    """What knows the date while time is virtual."""
    logging: LoggingListener = field(repr=False)
    cursors: Callable[[], Mapping[TopicPartition, Cursor]] = field(repr=False, init=False)
    """What is assigned, as calls see it; from any thread, in one step: another one may be in a read call that changes it."""
    _look_at: float = field(default=-inf, init=False)

    @logging.default
    def _log_as_this_consumer(self) -> LoggingListener:
        return LoggingListener(client_id=self.config.client_id, group_id=self.config.group_id)

    def __call__(self, event: TraceEvent) -> None:
        """Pass a trace event on to metrics, the log and the listener of the user."""
        routine = isinstance(event, ROUTINE)
        if not (routine and isinstance(event, Fetched)):  # no number is about that one
            self.metrics.requests(event)
        if routine:
            if event.now < self._look_at:
                return  # nothing listens to the events of round trips
            self._look_at = -inf if self.config.trace is not None or self.logging.is_verbose else event.now + LOOK
        self.logging(event)
        if self.config.trace is not None:
            self.config.trace(event)

    # --- state -----------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        return state_of(self.lifecycle, self.inbox)

    @property
    def ready(self) -> bool:
        is_denied = bool(self.inbox.handler.denied)
        return self.state is ConsumerState.STEADY and not is_denied and not self._stopped(self.cursors())

    @cursors.default
    def _all_of_them(self) -> Callable[[], Mapping[TopicPartition, Cursor]]:
        return self.unread.partitions.copy

    @property
    def assigned_once(self) -> bool:
        self.inbox.sort()
        without_group = self.inbox.group_state is None and self.lifecycle.phase is Phase.RUNNING
        return self.inbox.assigned_once or (without_group and bool(self.unread.partitions))

    def _stopped(self, cursors: Mapping[TopicPartition, Cursor]) -> dict[TopicPartition, KafkaError]:
        """Return the partitions of which nothing can be read, and why."""
        problems = ((partition, self._problem(partition, cursor)) for partition, cursor in cursors.items())
        return {partition: problem for partition, problem in problems if problem is not None}

    def _problem(self, partition: TopicPartition, cursor: Cursor) -> KafkaError | None:
        buffer = self.unread.buffer
        return cursor.problem or buffer.refused.get(partition) or buffer.unavailable.get(partition)

    @property
    def alive(self) -> bool:
        return is_alive(self.lifecycle, self.inbox, self.runtime)

    # --- metrics ---------------------------------------------------------------------------------------------------------------

    def measure(self, now: float) -> dict[str, dict[str, float]]:
        """Return the metrics by group and name. From any thread."""
        unread, config = self.unread, self.config
        # A stopped consumer has no partitions: a lag that stays what it was would look like a member that is stuck.
        closed = self.lifecycle.phase is Phase.CLOSED
        cursors = {} if closed else self.cursors()
        found = self.metrics.snapshot(
            now,
            lags={partition: lag(config, cursor, unread.buffer.watermarks.get(partition)) for partition, cursor in cursors.items()},
            stopped=len(self._stopped(cursors)),
            consumed={partition: cursor.consumed_records for partition, cursor in cursors.items()},
            records_consumed=unread.consumed_records,
            bytes_consumed=unread.buffer.total.released,
            polled_at=self.lifecycle.boundary.last_poll(now),
        )
        return of_stopped(found) if closed else found

    def telemetry(self) -> OtlpSource | None:
        """Return the source of metrics for the cluster's operators; ``None`` if telemetry is off or not possible."""
        return source_of(self.config, self.measure, lambda: self.inbox.group.member_id)

    def started(self) -> None:
        """Log why there is no telemetry although it is wanted."""
        why = missing() if self.config.enable_metrics_push else None
        if why is not None:
            reason = f"no opentelemetry-proto (extra 'otel'): {why!r}"
            self(StateChanged(now=self.runtime.clock(), subject="telemetry", before="OFF", after="OFF", reason=reason))

    # --- statistics ------------------------------------------------------------------------------------------------------------

    def statistics(self, below: BackgroundSnapshot) -> Statistics:
        """Return one frozen snapshot."""
        unread, inbox = self.unread, self.inbox
        buffer = unread.buffer
        state = self.state
        return Statistics(
            state=state,
            client_id=self.config.client_id,
            cluster_id=below.cluster_id,
            group_id=self.config.group_id,
            member_id=inbox.group.member_id or None,
            generation=inbox.group.generation_id if inbox.group.generation_id >= 0 else None,
            coordinator=inbox.coordinator,
            brokers=below.brokers,
            connections=below.connections,
            requests_in_flight=below.requests_in_flight,
            buffered_bytes=buffer.total.unread,
            buffer_limit=buffer.limit,
            records_consumed=unread.consumed_records,
            bytes_consumed=buffer.total.released,
            wake_ups=below.wake_ups,
            unreachable_since=milliseconds_of(below.unreachable_since, self.runtime.clock),
            last_answer_at=milliseconds_of(below.last_answer_at, self.runtime.clock),
            stale=is_stale(below, state),
            partitions={tp: self._partition(tp, cursor, below) for tp, cursor in self.cursors().items()},
        )

    def _partition(self, partition: TopicPartition, cursor: Cursor, below: BackgroundSnapshot) -> PartitionStatistics:
        buffer = self.unread.buffer
        marks, seen = buffer.watermarks.get(partition), below.partitions.get(partition)
        problem = self._problem(partition, cursor)
        return PartitionStatistics(
            position=cursor.position,
            high_watermark=marks.high_watermark if marks is not None else None,
            last_stable_offset=marks.last_stable_offset if marks is not None else None,
            log_start_offset=marks.log_start_offset if marks is not None and marks.log_start_offset >= 0 else None,
            lag=lag(self.config, cursor, marks),
            buffered_bytes=buffer.unread(partition),
            paused=PauseReason.USER in cursor.paused,
            state=seen.state if seen is not None else "assigned",
            leader=seen.leader if seen is not None else None,
            preferred_read_replica=seen.read_replica if seen is not None else None,
            problem=None if problem is None else str(problem),
        )

    def wall_ms(self) -> float:
        """Return the wall clock's time, in milliseconds since the epoch."""
        dated = None if self.runtime.has_system_clock else self.dated
        return time.time() * 1000 if dated is None else dated.date()


def lag(config: ConsumerConfig, cursor: Cursor, marks: Watermarks | None) -> int | None:
    """Return how many offsets lie between the position and the end that readers see; ``None`` if not known."""
    position = cursor.position
    if marks is None or position is None:
        return None
    committed_only = config.isolation_level is IsolationLevel.READ_COMMITTED
    end = marks.last_stable_offset if committed_only else marks.high_watermark
    return max(0, end - position)
