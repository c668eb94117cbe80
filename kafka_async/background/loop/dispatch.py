"""Carries out ApplicationEvents, and polls the managers: Java's ApplicationEventProcessor and RequestManagers.

An event is carried out at once, and longer work is left to a manager, which resolves the event's ``Call``. Put together in
``assembly.py``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, assert_never
from uuid import UUID

from ...errors import IllegalStateError
from ...events import (
    ApplicationEvent,
    AssignFromUser,
    AssignmentApplied,
    BackgroundSnapshot,
    Call,
    CommitOffsets,
    EnforceRebalance,
    FetchCommitted,
    FindClientInstanceId,
    FindPositions,
    HaltPartition,
    ListOffsets,
    PartitionsAssigned,
    PartitionsRevoked,
    PausePartitions,
    ResetOffset,
    ResumePartitions,
    Seek,
    Stop,
    SubscribePattern,
    SubscribeRegex,
    SubscribeTopics,
    TakeSnapshot,
    TopicMetadata,
    Unsubscribe,
)
from ...model import TopicPartition
from ...network import UnsentRequest
from ...trace import Listener, Unassigned
from ...values import define, field
from ..boundary import EventHandler, FetchBuffer
from ..cluster.cluster_reports import ClusterReports
from ..cluster.metadata import MetadataManager
from ..cluster.wanted_topics import Follower
from ..positions.list_offsets import ListOffsetsManager
from ..positions.positions import PositionsManager
from ..positions.subscription import FetchPosition, FetchState, Subscription, SubscriptionState
from .agenda import Agenda
from .deadlines import Deadlines
from .loop_state import LoopState
from .request_manager import Poll, parting_poll

if TYPE_CHECKING:  # imported when they are needed: not every consumer has a group or telemetry
    from ..cluster.telemetry import TelemetryManager
    from ..group.group_managers import GroupManagers


class Subscriber(Follower, Protocol):
    """Carries a subscription out."""

    def subscribe(self, subscription: Subscription, now: float) -> None: ...

    def unsubscribe(self, call: Call[None] | None, now: float) -> None:
        """Follow nothing any more; resolves ``call`` when that is done."""


@define(eq=False, kw_only=True)
class Background:
    """Everything that decides, in one object without a clock, a socket or an event loop."""

    handler: EventHandler = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    subscription: SubscriptionState
    metadata: MetadataManager
    list_offsets: ListOffsetsManager
    positions: PositionsManager
    subscriber: Subscriber
    """Follows topics: the group, or the follower of a consumer without one."""
    group: "GroupManagers | None"
    """``None`` for a consumer without a ``group_id``."""
    telemetry: "TelemetryManager | None"
    """``None`` if telemetry is off."""
    agenda: Agenda
    """Which managers are polled, and when."""
    cluster_reports: ClusterReports
    loop_state: LoopState
    trace: Listener = field(repr=False)
    deadlines: Deadlines = field(factory=Deadlines, init=False)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Carry out what waits in the queue, then ask the managers what they want."""
        self.loop_state.wake_ups += 1
        requests = self._carry_out(now) if self.handler.application_events else ()
        self.cluster_reports.publish(now)
        if self.deadlines.waiting:
            self.agenda.touch()
            wake_at = self.deadlines.poll(now)
            poll = self.agenda.poll(now).until(wake_at)
        else:
            poll = self.agenda.poll(now)
        return Poll(requests + poll.requests, poll.wake_at) if requests else poll

    def _carry_out(self, now: float) -> tuple[UnsentRequest, ...]:
        """Carry out what waits in the queue; return what has to be sent before anything else."""
        requests: tuple[UnsentRequest, ...] = ()
        for event in self.handler.drain_application():
            if isinstance(event, Unsubscribe):
                # The commit before it is made while we are still a member, and sent before the leave request.
                requests += self.agenda.poll_all(now).requests
            self.dispatch(event, now)
            self.agenda.touch()
        return requests

    def poll_on_close(self, now: float) -> Poll:
        """Collect the final requests of every manager."""
        # The group last: leaving shares a connection with the last commits and must not overtake them.
        managers = sorted(self.agenda.managers, key=lambda manager: manager is self.group)
        return Poll(tuple(request for manager in managers for request in manager.poll_on_close(now).requests))

    @property
    def is_leaving(self) -> bool:
        """See ``Membership``."""
        return self.group is not None and self.group.is_leaving

    def poll_leaving(self, now: float) -> Poll:
        """Return what a member that is leaving has to ask before it has left: the coordinator may have moved."""
        return parting_poll((self.group, self.group.coordinator, self.metadata) if self.group is not None else (), now)

    @property
    def is_being_named(self) -> bool:
        """See ``Membership``."""
        return self.group is not None and self.group.is_being_named

    def snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics."""
        return self.cluster_reports.snapshot(self.loop_state.wake_ups)

    def fail_calls(self, error: BaseException) -> None:
        """Fail whatever waits: the loop ends."""
        self.deadlines.fail_all(error, self.handler.drain_application())

    # --- events ----------------------------------------------------------------------------------------------------------------

    def dispatch(self, event: ApplicationEvent, now: float) -> None:  # noqa: C901 - one match, a line or two per event
        """Carry out one event."""
        group = self.group
        match event:
            case AssignFromUser():
                self.handler.subscription = event.subscription
                if group is None:
                    self.positions.newcomers.subscribe(None)
                    self.subscriber.unsubscribe(None, now)
                self._assign(event.stamps, now)
            case AssignmentApplied():
                self._assign(event.stamps, now, event.set_aside)
            case SubscribeTopics():
                self._subscribe(Subscription(topics=event.topics), event.subscription, now)
            case SubscribePattern():
                self._subscribe(Subscription(matches=event.matches), event.subscription, now)
            case SubscribeRegex():
                self._subscribe(Subscription(regex=event.regex), event.subscription, now)
            case Unsubscribe():
                self.handler.subscription = event.subscription
                self.subscriber.unsubscribe(event.call, now)  # first: what is ours may still be committed
                self._assign({}, now)
                self.positions.newcomers.subscribe(None)
            case Seek():
                entry = self.subscription.renumber(event.partition, event.stamp)
                if entry is not None:
                    self.subscription.read_until(entry, event.until)
                if entry is not None and not self.positions.is_void(entry, event.topic_id, "a position", now):
                    position = FetchPosition(event.offset, event.leader_epoch)
                    self.subscription.seek(entry, position, validate=event.leader_epoch is not None)
            case ResetOffset():
                for partition, stamp in event.stamps.items():
                    entry = self.subscription.renumber(partition, stamp)
                    if entry is not None:
                        self.subscription.reset(entry, event.strategy)
            case HaltPartition():
                entry = self.subscription.renumber(event.partition, event.stamp)
                void = entry is None or self.positions.is_void(entry, event.topic_id, "a bad record", now)
                if entry is not None and not void and entry.state is not FetchState.HALTED:
                    self.subscription.halt(entry)
            case PausePartitions():
                self.subscription.pause(event.partitions, paused=True)
            case ResumePartitions():
                self.subscription.pause(event.partitions, paused=False)
            case EnforceRebalance() if group is not None:
                group.enforce_rebalance(event, now)
            case CommitOffsets() if group is not None:
                commits = group.commits
                self.deadlines.watch(event.call, lambda: commits.expired(event.call))
                commits.commit(event.call, event.offsets, now, once=event.once, along=event.along)
            case FetchCommitted() if group is not None:
                fetches = group.fetches
                self.deadlines.watch(event.call, lambda: fetches.expired(event.call))
                fetches.fetch(event.call, event.partitions, now, partial=event.partial)
            case PartitionsRevoked() | PartitionsAssigned() if group is not None:
                group.carried_out(event, now)
            case EnforceRebalance() | CommitOffsets() | FetchCommitted() | PartitionsRevoked() | PartitionsAssigned():
                pass  # without a group only PartitionsAssigned comes, and no membership needs it
            case FindPositions():
                self.deadlines.watch(event.call, lambda: self.positions.problem(event.partitions))
                self.positions.find(event.call, event.partitions)
            case ListOffsets():
                self.deadlines.watch(event.call, lambda: self.list_offsets.last_error(event.timestamps))
                self.list_offsets.answer_call(event.call, event.timestamps)
                self.metadata.request_missing({partition.topic for partition in event.timestamps}, now)
            case TopicMetadata():
                self.deadlines.watch(event.call, lambda: self.metadata.problem_with(event.topics or frozenset()))
                self.metadata.look_up(event.call, event.topics, create=event.create, fail_fast=event.fail_fast)
            case TakeSnapshot():
                event.call.resolve(self.snapshot())
            case FindClientInstanceId():
                find_client_instance_id(event.call, self.telemetry, self.deadlines)
            case Stop():
                self.loop_state.stopping = event.call
            case _:
                assert_never(event)

    def _subscribe(self, subscription: Subscription, number: int, now: float) -> None:
        self.handler.subscription = number
        self.positions.newcomers.subscribe(subscription)
        self.subscriber.subscribe(subscription, now)
        self.metadata.request_new_topics(now)

    def _assign(self, stamps: Mapping[TopicPartition, int], now: float, set_aside: frozenset[TopicPartition] = frozenset()) -> None:
        afresh = frozenset(p for p, stamp in stamps.items() if (known := self.subscription.get(p)) and known.stamp != stamp)
        removed = self.subscription.assign(stamps, set_aside)
        for partition in removed:
            self.buffer.forget(partition)
        if left := afresh.union(removed):
            self.trace(Unassigned(now=now, partitions=left))
        if not self.subscription.topics <= self.metadata.cluster.topics.keys():
            self.metadata.request_new_topics(now)


def find_client_instance_id(call: Call[UUID], telemetry: "TelemetryManager | None", deadlines: Deadlines) -> None:
    """Answer with the id by which operators know this client, as soon as there is one."""
    if telemetry is None:
        off = "enable_metrics_push=False, or opentelemetry-proto (extra 'otel') cannot be imported"
        call.fail(IllegalStateError(f"client telemetry is off: {off}"))
    else:
        deadlines.watch(call, lambda: telemetry.last_error)
        telemetry.answer_call(call)
