"""Puts the managers together and carries out ApplicationEvents: Java's RequestManagers and ApplicationEventProcessor in one.

Decides: the order in which managers are polled, and which manager an event is for. Owns: the managers and the deadlines of
calls. Must never wait: an event is carried out at once, and what takes time is left to a manager and resolved through the
event's ``Call``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, assert_never
from uuid import UUID

from attrs import define, field

from ..config import ConsumerConfig
from ..errors import IllegalStateError, KafkaError, KafkaTimeoutError
from ..events import (
    ApplicationEvent,
    AssignFromUser,
    AssignmentApplied,
    AssignPartitions,
    BackgroundSnapshot,
    Call,
    ClusterDescription,
    CommitOffsets,
    EnforceRebalance,
    FetchCommitted,
    FindClientInstanceId,
    FindPositions,
    HaltPartition,
    ListOffsets,
    MetadataUpdated,
    PartitionsAssigned,
    PartitionSnapshot,
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
from ..model import Node, TopicPartition
from ..network import UnsentRequest
from ..trace import Fault, Listener, TraceEvent
from .event_handler import EventHandler
from .fetch import FetchManager
from .fetch_buffer import FetchBuffer
from .follow import TopicFollower
from .list_offsets import ListOffsetsManager
from .membership import Subscription
from .metadata import MetadataManager
from .positions import PositionsManager
from .request_manager import Poll, RequestManager
from .subscription import FetchPosition, FetchState, SubscriptionState

if TYPE_CHECKING:  # imported where they are made: not every consumer has a group, or somebody who measures
    from .group import Group
    from .telemetry import MetricsSource, TelemetryManager


@define(eq=False)
class Background:
    """Everything that decides, in one object without a clock, a socket or an event loop."""

    config: ConsumerConfig
    handler: EventHandler = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    wall_ms: Callable[[float], int] = field(repr=False)
    trace: Listener = field(repr=False)
    has_usable_node: Callable[[float], bool] = field(repr=False)
    connection_error: Callable[[], KafkaError | None] = field(repr=False)
    connections: Callable[[], tuple[int, int]] = field(repr=False)
    """Open connections and requests in flight, for the statistics."""
    offers_consumer_protocol: Callable[[], bool | None] = field(repr=False)
    """Whether the brokers offer the consumer protocol (KIP-848); ``None`` while no broker was heard."""
    new_member_id: Callable[[], str] = field(repr=False)
    """Returns a random member id (KIP-1082)."""
    offers_telemetry: Callable[[], bool | None] = field(repr=False)
    """Whether the brokers offer client telemetry (KIP-714); ``None`` while no broker was heard."""
    metrics_source: "MetricsSource | None" = field(repr=False)
    """Who measures for telemetry; ``None``: it is off."""

    subscription: SubscriptionState = field(init=False)
    metadata: MetadataManager = field(init=False)
    list_offsets: ListOffsetsManager = field(init=False)
    positions: PositionsManager = field(init=False)
    fetch: FetchManager = field(init=False)
    follower: TopicFollower = field(init=False)
    group: "Group | None" = field(default=None, init=False)
    """``None`` for a consumer without a ``group_id``."""
    telemetry: "TelemetryManager | None" = field(default=None, init=False)
    """``None`` where telemetry is off."""
    managers: tuple[RequestManager, ...] = field(init=False)
    stopping: Call[None] | None = field(default=None, init=False)
    wake_ups: int = field(default=0, init=False)
    _calls: list[tuple[Call[Any], Callable[[], BaseException | None]]] = field(factory=list, init=False)
    _published: int = field(default=-1, init=False)
    _cluster: ClusterDescription | None = field(default=None, init=False)
    _missing_since: dict[TopicPartition, float] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        config, random, trace = self.config, self.random, self._report
        self.subscription = SubscriptionState()
        self.metadata = MetadataManager(
            config=config,
            random=random,
            trace=trace,
            followed=self._followed_topics,
            asked=lambda: self.list_offsets.topics,
            has_usable_node=self.has_usable_node,
            connection_error=self.connection_error,
            on_change=self._leaders_changed,
            on_recreated=lambda topic: self.positions.topic_recreated(topic),
            on_error=self.handler.publish_error,
            on_lasting_error=partial(self.handler.publish_error, to_all=True),
        )
        self.list_offsets = ListOffsetsManager(config=config, metadata=self.metadata, random=random, trace=trace)
        self.positions = PositionsManager(
            config=config,
            subscription=self.subscription,
            metadata=self.metadata,
            list_offsets=self.list_offsets,
            deliver=self.buffer.put,
            on_error=self.handler.publish_error,
            wall_ms=self.wall_ms,
            random=random,
            trace=trace,
        )
        self.fetch = FetchManager(
            config=config,
            subscription=self.subscription,
            metadata=self.metadata,
            positions=self.positions,
            buffer=self.buffer,
            on_error=self.handler.publish_error,
            on_lasting_error=partial(self.handler.publish_error, to_all=True),
            random=random,
            trace=trace,
        )
        self.follower = TopicFollower(
            metadata=self.metadata,
            propose=lambda partitions: self.handler.publish(AssignPartitions(number=0, partitions=partitions)),
        )
        self.subscription.on_change = self._partition_changed
        # Whoever asks another manager for something is polled before it, so that the request leaves in the same turn: the group
        # asks for its coordinator, positions for committed offsets and look-ups. Fetch uses what all of them decided. Metadata
        # last: every one of them may find that it needs an update, and polled before them it would sleep over that.
        self.managers = (self.positions, self.list_offsets, self.fetch, self.metadata)
        if config.group_id is not None:
            self.group = group = self._make_group()
            self.positions.initialize = group.fetches.initialize
            self.managers = (
                group,
                self.positions,
                group.commits,
                group.fetches,
                group.coordinator,
                self.list_offsets,
                self.fetch,
                self.metadata,
            )
        if self.metrics_source is not None:
            from .telemetry import TelemetryManager

            self.telemetry = TelemetryManager(
                config=config, source=self.metrics_source, offered=self.offers_telemetry, random=random, trace=trace
            )
            self.managers = (*self.managers, self.telemetry)

    def _make_group(self) -> "Group":
        from .group import Group

        return Group(
            config=self.config,
            handler=self.handler,
            subscription=self.subscription,
            metadata=self.metadata,
            deliver=self.buffer.put,
            offers_consumer_protocol=self.offers_consumer_protocol,
            new_member_id=self.new_member_id,
            random=self.random,
            trace=self._report,
        )

    def _report(self, event: TraceEvent) -> None:
        """Pass a trace event on, but for the faults that stopping itself makes: connections end under requests in flight."""
        if self.stopping is None or not isinstance(event, Fault):
            self.trace(event)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Carry out what waits in the queue, then ask every manager what it wants."""
        self.wake_ups += 1
        for event in self.handler.drain_application():
            self.dispatch(event, now)
        self.follower.check()
        if self._published != self.metadata.version:
            self._published = self.metadata.version
            self._publish_cluster()
            self._report_missing(now)
        requests: list[UnsentRequest] = []
        wake_at = self._reap(now)
        for manager in self.managers:
            poll = manager.poll(now)
            requests.extend(poll.requests)
            wake_at = min(wake_at, poll.wake_at)
        return Poll(tuple(requests), wake_at)

    def _publish_cluster(self) -> None:
        """Tell the application only of what changed: one that does not read must not find an event per metadata answer."""
        cluster = self.metadata.describe()
        if cluster != self._cluster:
            self._cluster = cluster
            self.handler.publish(MetadataUpdated(cluster=cluster))

    def _report_missing(self, now: float) -> None:
        """A partition that its topic lacks may be on its way; after a request timeout the caller is told, and again after each."""
        missing = {partition: self.metadata.missing(partition) for partition in self.subscription.partitions}
        self._missing_since = {tp: self._missing_since.get(tp, now) for tp, error in missing.items() if error is not None}
        for partition, since in self._missing_since.items():
            error = missing[partition]
            if error is not None and now - since >= self.config.request_timeout_ms / 1000:
                self._missing_since[partition] = now
                self.handler.publish_error(error)
            elif now > since:  # said by a second answer: an assignment may know more than the metadata of the moment
                self._report(Fault(now=now, text="assigned partitions do not exist; asking again", error=error))

    def poll_on_close(self, now: float) -> Poll:
        """Collect the last words of every manager."""
        # The group last: leaving shares a connection with the last commits and must not overtake them.
        managers = sorted(self.managers, key=lambda manager: manager is self.group)
        return Poll(tuple(request for manager in managers for request in manager.poll_on_close(now).requests))

    @property
    def is_being_named(self) -> bool:
        """See ``Membership``."""
        return self.group is not None and self.group.is_being_named

    @property
    def nodes(self) -> Mapping[int, Node]:
        return self.metadata.nodes

    def fail_calls(self, error: BaseException) -> None:
        """Fail whatever waits: the loop ends."""
        for event in self.handler.drain_application():
            call = getattr(event, "call", None)
            if isinstance(call, Call):
                call.fail(error)
        for call, _ in self._calls:
            call.fail(error)

    def _reap(self, now: float) -> float:
        """Fail calls whose deadline passed, with the reason why they were not answered; return the next deadline."""
        self._calls = [entry for entry in self._calls if not entry[0].done]
        for call, cause in self._calls:
            if call.deadline <= now:
                reason = cause()
                text = "the call was not answered before its deadline"
                error = KafkaTimeoutError(f"{text}: {reason}" if reason is not None else text)
                error.__cause__ = reason
                call.fail(error)
        return min((call.deadline for call, _ in self._calls if not call.done), default=inf)

    def _partition_changed(self, partition: TopicPartition) -> None:
        self.positions.changed(partition)
        self.fetch.changed(partition)

    def _leaders_changed(self, partitions: frozenset[TopicPartition], now: float) -> None:
        self.positions.leaders_changed(partitions)
        self.list_offsets.leaders_changed(partitions)
        for partition in partitions:
            self._partition_changed(partition)

    def _followed_topics(self) -> frozenset[str] | None:
        followed = self.follower.wanted if self.group is None else self.group.wanted_topics
        return None if followed is None else followed | self.subscription.topics

    # --- events ----------------------------------------------------------------------------------------------------------------

    def dispatch(self, event: ApplicationEvent, now: float) -> None:  # noqa: C901 - one match, a line or two per event
        """Carry out one event."""
        match event:
            case AssignFromUser():
                self.follower.unsubscribe()
                self._assign(event.stamps, now)
            case AssignmentApplied():
                self._assign(event.stamps, now)
            case SubscribeTopics() | SubscribePattern() | SubscribeRegex():
                self._subscribe(event, now)
                self.metadata.request_new_topics(now)
            case Unsubscribe():
                self._assign({}, now)
                self.follower.unsubscribe()
                if self.group is not None:
                    self.group.unsubscribe(event.call, now)
                elif event.call is not None:
                    event.call.resolve(None)
            case Seek():
                self._seek(event)
            case ResetOffset():
                self._reset(event)
            case HaltPartition():
                entry = self.subscription.get(event.partition)
                if entry is not None and entry.stamp <= event.stamp and entry.state is not FetchState.HALTED:
                    entry.stamp = event.stamp
                    self.subscription.halt(entry)
            case EnforceRebalance() | CommitOffsets() | FetchCommitted() | PartitionsRevoked() | PartitionsAssigned():
                if self.group is not None:  # without one only PartitionsAssigned comes, and there is nobody to tell
                    self._dispatch_to_group(self.group, event, now)
            case PausePartitions():
                self.subscription.pause(event.partitions, paused=True)
            case ResumePartitions():
                self.subscription.pause(event.partitions, paused=False)
            case FindPositions():
                self._track(event.call, lambda: self.positions.problem(event.partitions))
                self.positions.find(event.call, event.partitions)
            case ListOffsets():
                self._track(event.call, lambda: self.list_offsets.last_error(event.timestamps))
                self.list_offsets.answer_call(event.call, event.timestamps)
            case TopicMetadata():
                names = event.topics or frozenset()
                self._track(event.call, lambda: self._problem_with(names))
                self.metadata.look_up(event.call, event.topics, create=event.create, fail_fast=event.fail_fast)
            case TakeSnapshot():
                event.call.resolve(self.snapshot())
            case FindClientInstanceId():
                self._find_client_instance_id(event.call)
            case Stop():
                self.stopping = event.call
            case _:
                assert_never(event)

    def _subscribe(self, event: SubscribeTopics | SubscribePattern | SubscribeRegex, now: float) -> None:
        match event:
            case SubscribeTopics() if self.group is None:
                self.follower.subscribe(event.topics)
            case SubscribePattern() if self.group is None:
                self.follower.subscribe_pattern(event.matches, exclude_internal=event.exclude_internal)
            case SubscribeTopics() if self.group is not None:
                self.group.subscribe(Subscription(topics=event.topics), now)
            case SubscribePattern() if self.group is not None:
                self.group.subscribe(Subscription(matches=event.matches), now)
            case SubscribeRegex() if self.group is not None:
                self.group.subscribe(Subscription(regex=event.regex), now)

    def _dispatch_to_group(
        self,
        group: "Group",
        event: EnforceRebalance | CommitOffsets | FetchCommitted | PartitionsRevoked | PartitionsAssigned,
        now: float,
    ) -> None:
        match event:
            case EnforceRebalance():
                group.enforce_rebalance(event, now)
            case CommitOffsets():
                self._track(event.call, lambda: group.commits.last_error(event.call))
                group.commits.commit(event.call, event.offsets, now)
            case FetchCommitted():
                self._track(event.call, lambda: group.fetches.last_error)
                group.fetches.fetch(event.call, event.partitions, now)
            case PartitionsRevoked() | PartitionsAssigned():
                group.carried_out(event, now)
            case _:
                assert_never(event)

    def _find_client_instance_id(self, call: Call[UUID]) -> None:
        telemetry = self.telemetry
        if telemetry is None:
            off = "enable_metrics_push=False, or opentelemetry-proto (extra 'otel') cannot be imported"
            call.fail(IllegalStateError(f"client telemetry is off: {off}"))
        else:
            self._track(call, lambda: telemetry.last_error)
            telemetry.answer_call(call)

    def _track(self, call: Call[Any], cause: Callable[[], BaseException | None]) -> None:
        self._calls.append((call, cause))

    def _problem_with(self, topics: frozenset[str]) -> KafkaError | None:
        problems = (self.metadata.problem(topic) for topic in (*sorted(topics), ""))
        return next((problem for problem in problems if problem is not None), None)

    def _assign(self, stamps: Mapping[TopicPartition, int], now: float) -> None:
        for partition in self.subscription.assign(stamps):
            self.buffer.forget(partition)
        if not self.subscription.topics <= self.metadata.topics.keys():
            self.metadata.request_new_topics(now)

    def _seek(self, event: Seek) -> None:
        entry = self.subscription.get(event.partition)
        if entry is not None and entry.stamp <= event.stamp:
            entry.stamp, entry.until = event.stamp, event.until
            position = FetchPosition(event.offset, event.leader_epoch)
            self.subscription.seek(entry, position, validate=event.leader_epoch is not None)

    def _reset(self, event: ResetOffset) -> None:
        for partition, stamp in event.stamps.items():
            entry = self.subscription.get(partition)
            if entry is not None and entry.stamp <= stamp:
                entry.stamp = stamp
                entry.suspended = False
                self.subscription.reset(entry, event.strategy)

    def snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics."""
        connections, in_flight = self.connections()
        partitions = {}
        for partition, entry in self.subscription.partitions.items():
            leader = self.metadata.leader(partition)
            partitions[partition] = PartitionSnapshot(
                state=entry.state.value, leader=leader.node_id if leader is not None else None, read_replica=entry.read_replica
            )
        return BackgroundSnapshot(
            cluster_id=self.metadata.cluster_id,
            brokers=tuple(self.metadata.nodes.values()),
            connections=connections,
            requests_in_flight=in_flight,
            wake_ups=self.wake_ups,
            partitions=partitions,
        )
