"""Puts the background of a share consumer together, and carries out what the application asks of it.

It takes the place that ``Background`` has for other consumers, on
the same loop, with the same metadata and the same search for the coordinator. There are no positions and no offsets.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from ...config import ConsumerConfig
from ...events import (
    BackgroundSnapshot,
    FindClientInstanceId,
    GroupChanged,
    PartitionSnapshot,
    ShareEvent,
    Stop,
    SubscribeTopics,
    TakeSnapshot,
    TopicMetadata,
    Unsubscribe,
)
from ...model import ConsumerState
from ...network import UnsentRequest
from ...values import define, evolve, field
from ..boundary import EventHandler, Exchange, FetchBuffer
from ..cluster.cluster_reports import ClusterReports
from ..cluster.metadata import MetadataManager
from ..cluster.wanted_topics import WantedTopics
from ..group.find_coordinator import FindCoordinatorManager
from ..loop.assembly import telemetry_of
from ..loop.deadlines import Deadlines
from ..loop.dispatch import find_client_instance_id
from ..loop.environment import Environment
from ..loop.loop_state import LoopState
from ..loop.request_manager import Poll, parting_poll
from ..positions.subscription import Subscription, SubscriptionState
from .closing import ClosingState
from .fetch import ShareFetchManager
from .orders import Close, Flush
from .share_membership import ShareMembership, ShareMemberState
from .share_settings import ShareSettings

if TYPE_CHECKING:  # imported where it is made
    from ..cluster.telemetry import TelemetryManager

Assembly = Callable[[ConsumerConfig, EventHandler[ShareEvent], FetchBuffer, Environment], "ShareBackground"]


@define(eq=False, kw_only=True)
class ShareBackground:
    """Everything that decides for a share consumer, without a clock, a socket or an event loop."""

    config: ConsumerConfig
    exchange: Exchange = field(repr=False)
    metadata: MetadataManager
    coordinator: FindCoordinatorManager
    membership: ShareMembership
    fetch: ShareFetchManager
    cluster_reports: ClusterReports
    loop_state: LoopState
    telemetry: "TelemetryManager | None"
    """``None`` if telemetry is off."""
    deadlines: Deadlines = field(factory=Deadlines, init=False)
    _published: GroupChanged | None = field(default=None, init=False)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Carry out what waits in the queues, then ask every manager what it wants."""
        self.loop_state.wake_ups += 1
        for event in self.exchange.handler.drain_application():
            self._carry_out(event, now)
        for call in self.fetch.take_orders(now):
            self.deadlines.watch(call, self.fetch.problem)
        self.cluster_reports.publish(now)
        wake_at = self.deadlines.poll(now)
        requests: list[UnsentRequest] = []
        # Metadata last: every other manager may find that it needs an update.
        managers = (self.fetch, self.membership, self.coordinator, self.metadata)
        for manager in managers if self.telemetry is None else (*managers, self.telemetry):
            poll = manager.poll(now)
            requests.extend(poll.requests)
            wake_at = min(wake_at, poll.wake_at)
            if manager is self.fetch:
                for call in self.fetch.closed():
                    self.membership.unsubscribe(call, now)
        self._publish(now)
        return Poll(tuple(requests), wake_at)

    def poll_on_close(self, now: float) -> Poll:
        """Leave the group, if that was not done, and push metrics for the last time."""
        last = self.telemetry.poll_on_close(now).requests if self.telemetry is not None else ()
        return Poll((*last, *self.membership.poll_on_close(now).requests))

    @property
    def is_leaving(self) -> bool:
        """A request to leave is due, or not answered yet."""
        return self.membership.is_leaving

    def poll_leaving(self, now: float) -> Poll:
        """Return what a member that is leaving has to ask before it has left: the coordinator may have moved."""
        return parting_poll((self.membership, self.coordinator, self.metadata), now)

    @property
    def is_being_named(self) -> bool:
        """Members of share groups name themselves."""
        return False

    def snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics."""
        leaders = {partition: self.metadata.cluster.leader(partition) for partition in self.fetch.partitions}
        partitions = {
            partition: PartitionSnapshot(state="fetching", leader=leader.node_id if leader is not None else None, read_replica=None)
            for partition, leader in leaders.items()
        }
        return evolve(self.cluster_reports.snapshot(self.loop_state.wake_ups), partitions=partitions)

    def fail_calls(self, error: BaseException) -> None:
        """Fail every waiting call, since the loop ends."""
        for order in tuple(self.exchange.orders):
            if isinstance(order, Flush | Close):
                order.call.fail(error)
        self.deadlines.fail_all(error, self.exchange.handler.drain_application())

    # --- events ----------------------------------------------------------------------------------------------------------------

    def _carry_out(self, event: ShareEvent, now: float) -> None:
        match event:
            case SubscribeTopics():
                self.exchange.handler.subscription = event.subscription
                self.membership.subscribe(Subscription(topics=event.topics), now)
                self.metadata.request_new_topics(now)
            case Unsubscribe():
                self.exchange.handler.subscription = event.subscription
                self.membership.unsubscribe(event.call, now)
            case TopicMetadata():
                self.deadlines.watch(event.call, lambda: self.metadata.problem_with(event.topics or frozenset()))
                self.metadata.look_up(event.call, event.topics, create=event.create, fail_fast=event.fail_fast)
            case FindClientInstanceId():
                find_client_instance_id(event.call, self.telemetry, self.deadlines)
            case TakeSnapshot():
                event.call.resolve(self.snapshot())
            case Stop():
                self.loop_state.stopping = event.call
            case _:
                assert_never(event)

    def _publish(self, now: float) -> None:
        member = self.membership
        changed = GroupChanged(
            member_id=member.member_id,
            generation=member.epoch,
            state=member.shown(now) if self.fetch.closing is ClosingState.OPEN else ConsumerState.CLOSED,
            coordinator=self.coordinator.coordinator,
            subscription=self.exchange.handler.subscription,
            denied=self.coordinator.fatal is not None or member.state is ShareMemberState.FATAL,
        )
        if changed != self._published:
            self._published = changed
            self.exchange.handler.publish(changed)


def assembly(exchange: Exchange, settings: ShareSettings) -> Assembly:
    """Return what puts the background together once the loop lends its environment."""

    def assemble(
        config: ConsumerConfig, handler: EventHandler[ShareEvent], buffer: FetchBuffer, environment: Environment
    ) -> ShareBackground:
        loop_state = LoopState(environment.trace)
        random, trace, network = environment.random, loop_state.trace, environment.network
        subscription = SubscriptionState()  # for positions; there are none
        wanted_topics = WantedTopics(subscription)
        metadata = MetadataManager(
            config=config, wanted_topics=wanted_topics, network=network, handler=handler, random=random, trace=trace
        )
        coordinator = FindCoordinatorManager(config=config, brokers=metadata, random=random, trace=trace)
        member_id = environment.new_member_id()
        fetch = ShareFetchManager(
            config=config,
            settings=settings,
            exchange=exchange,
            metadata=metadata,
            network=network,
            member_id=member_id,
            random=random,
            trace=trace,
        )
        membership = ShareMembership(
            config=config,
            coordinator=coordinator,
            metadata=metadata,
            handler=handler,
            trace=trace,
            random=random,
            member_id=member_id,
            on_assignment=fetch.assign,
        )
        wanted_topics.followers.append(membership)
        return ShareBackground(
            config=config,
            exchange=exchange,
            metadata=metadata,
            coordinator=coordinator,
            membership=membership,
            fetch=fetch,
            cluster_reports=ClusterReports(
                config, handler, metadata.cluster, subscription, network, trace, assigned_elsewhere=lambda: fetch.partitions
            ),
            loop_state=loop_state,
            telemetry=telemetry_of(config, environment),
        )

    return assemble
