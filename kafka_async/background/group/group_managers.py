"""Everything that only a consumer with a ``group_id`` has: its coordinator, its membership, its committed offsets.

``group_protocol="auto"``: the consumer protocol if the broker offers it and no option of the classic one is set.
"""

from math import inf
from typing import TYPE_CHECKING

from ...config import ConsumerConfig
from ...errors import KafkaError
from ...events import (
    AssignPartitions,
    Call,
    EnforceRebalance,
    GroupChanged,
    PartitionsAssigned,
    PartitionsRevoked,
    RevokePartitions,
)
from ...model import ConsumerState, TopicPartition
from ...trace import Notice
from ...values import define, field
from ..boundary import EventHandler, FetchBuffer
from ..cluster.metadata import MetadataManager
from ..loop.environment import Environment
from ..loop.request_manager import Poll
from ..positions.subscription import Subscription, SubscriptionState
from .access import GroupAccess
from .find_coordinator import FindCoordinatorManager
from .membership import Membership, PollProgress
from .offset_commit import OffsetCommitManager
from .offset_fetch import OffsetFetchManager

if TYPE_CHECKING:
    from .consumer.group_settings import GroupSettings


@define(eq=False)
class _Host:
    """What a membership may use of the other parts."""

    handler: EventHandler
    subscription: SubscriptionState
    metadata: MetadataManager
    _seen: int = field(default=0, init=False)
    _progressed_at: float = field(default=0.0, init=False)
    now: float = field(default=0.0, init=False)

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        self.stop_fetching(partitions)
        subscription = self.handler.subscription
        self.handler.publish(
            RevokePartitions(number=number, partitions=partitions, lost=lost, returning=returning, subscription=subscription)
        )

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        subscription = self.handler.subscription
        self.handler.publish(
            AssignPartitions(number=number, partitions=partitions, successive=successive, subscription=subscription)
        )

    def publish_error(self, error: KafkaError, *, final: bool = False) -> None:
        self.handler.publish_error(error, final=final)

    def stop_fetching(self, partitions: frozenset[TopicPartition]) -> None:
        self.subscription.revoke(partitions)

    def owned(self) -> frozenset[TopicPartition]:
        return self.subscription.owned

    def progress(self) -> PollProgress:
        """Return when the application last did something; working through an iteration's batch counts as well."""
        mark = self.handler.progress()
        if mark != self._seen:
            self._seen, self._progressed_at = mark, self.now
        return PollProgress(polled_at=max(self.handler.polled_at, self._progressed_at), polling=self.handler.reading > 0)


@define(eq=False)
class GroupManagers:
    """The consumer's group, in whichever protocol."""

    config: ConsumerConfig
    handler: EventHandler = field(repr=False)
    subscription: SubscriptionState = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    environment: Environment = field(repr=False)
    coordinator: FindCoordinatorManager = field(init=False)
    commits: OffsetCommitManager = field(init=False)
    fetches: OffsetFetchManager = field(init=False)
    _access: GroupAccess = field(init=False)
    _settings: "GroupSettings | None" = field(default=None, init=False)
    """Of a group of the consumer protocol."""
    _membership: Membership | None = field(default=None, init=False)
    _host: _Host = field(init=False)
    _wanted: Subscription | None = field(default=None, init=False)
    _published: GroupChanged | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._host = _Host(self.handler, self.subscription, self.metadata)
        self.coordinator = FindCoordinatorManager(
            config=self.config,
            brokers=self.metadata,
            random=self.environment.random,
            trace=self.environment.trace,
        )
        self._access = GroupAccess(self.coordinator, self.metadata, self._host.owned)
        self.commits = OffsetCommitManager(
            config=self.config,
            group=self._access,
            random=self.environment.random,
            trace=self.environment.trace,
            by_id=self.environment.commits_by_topic_id,
        )
        self.fetches = OffsetFetchManager(
            config=self.config,
            group=self._access,
            subscription=self.subscription,
            deliver=self.buffer.put,
            on_error=self.handler.publish_error,
            random=self.environment.random,
            trace=self.environment.trace,
            committing=self.commits.committing,
        )

    # --- what the application asks ---------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Be a member with this subscription."""
        self._wanted = subscription
        if self._membership is not None:
            self._access.membership = self._membership
            self._membership.subscribe(subscription, now)

    def unsubscribe(self, call: Call[None] | None, now: float) -> None:
        """Leave the group. Commits from then on are those of a lone consumer."""
        self._wanted = None
        self._access.membership = None
        if self._membership is not None:
            self._membership.leave(call, now)
        elif call is not None:
            call.resolve(None)

    def enforce_rebalance(self, event: EnforceRebalance, now: float) -> None:
        if self._membership is not None:
            self._membership.enforce_rebalance(event.reason, now)

    def carried_out(self, event: PartitionsRevoked | PartitionsAssigned, now: float) -> None:
        """The application carried a proposal out."""
        if self._membership is None:
            return
        if isinstance(event, PartitionsRevoked):
            self._membership.revoked(event.number, now)
        else:
            self._membership.assigned(event.number, now)
        self._publish()  # before the application's next call is answered: it may look at the state

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Poll the membership, once it is known which protocol is spoken."""
        self._host.now = now
        if self._membership is None and self._wanted is not None:
            self._choose(self._wanted, now)
        poll = self._membership.poll(now) if self._membership is not None else Poll()
        self._publish()
        if self._settings is None or self.handler.session_deadline == inf:
            return poll
        settings = self._settings.poll(now)
        return Poll(poll.requests + settings.requests, min(poll.wake_at, settings.wake_at))

    def poll_on_close(self, now: float) -> Poll:
        """Leave the group, if we are in it."""
        return self._membership.poll_on_close(now) if self._membership is not None else Poll()

    @property
    def state(self) -> ConsumerState | None:
        """What the membership is doing; ``None`` for a consumer that only commits."""
        if self._wanted is None:
            return None
        return self._membership.state if self._membership is not None else ConsumerState.JOINING

    @property
    def is_leaving(self) -> bool:
        """See ``Membership``."""
        return self._membership is not None and self._membership.is_leaving

    @property
    def is_being_named(self) -> bool:
        """See ``Membership``."""
        return self._membership is not None and self._membership.is_being_named

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics whose metadata the membership needs; ``None``: all."""
        if self._wanted is None:
            return frozenset()
        if self._membership is None:  # before the protocol is known, or the first picture lacks what a pattern matches
            return self._wanted.topics
        return self._membership.wanted_topics

    def _publish(self) -> None:
        membership = self._membership
        before = self.handler.session_deadline
        self.handler.session_deadline = membership.session_deadline if membership is not None and self._wanted is not None else inf
        if before <= self._host.now < self.handler.session_deadline:
            self.handler.wake_application()  # which may hold back what it has
        state, identity = self.state, self._access.identity
        if state is None:
            if self._published is None:
                return
            state = ConsumerState.STEADY  # we left: there is nothing to wait for any more
        changed = GroupChanged(
            member_id=identity.member_id,
            generation=identity.generation,
            state=state,
            coordinator=self.coordinator.coordinator,
            subscription=self.handler.subscription,
            denied=self.coordinator.fatal is not None or (membership is not None and membership.is_denied),
        )
        if changed != self._published:
            self._published = changed
            self.handler.publish(changed)

    # --- which protocol --------------------------------------------------------------------------------------------------------

    def _choose(self, subscription: Subscription, now: float) -> None:
        protocol = self.config.decided_protocol
        if protocol == "auto":
            offered = self.environment.offers_consumer_protocol()
            if offered is None:
                return
            protocol = "consumer" if offered else "classic"
        self._become(self._consumer() if protocol == "consumer" else self._classic(), subscription, now)

    def _become(self, membership: Membership, subscription: Subscription, now: float) -> None:
        self._membership = self._access.membership = membership
        membership.subscribe(subscription, now)

    def _consumer(self) -> Membership:
        from .consumer.consumer_membership import ConsumerMembership  # one of the protocols, not both
        from .consumer.group_settings import GroupSettings

        self._settings = settings = GroupSettings(config=self.config, random=self.environment.random, trace=self.environment.trace)
        return ConsumerMembership.of(
            config=self.config,
            coordinator=self.coordinator,
            metadata=self.metadata,
            host=self._host,
            settings=settings,
            member_id=self.environment.new_member_id(),
            fall_back=self._fall_back,
            random=self.environment.random,
            trace=self.environment.trace,
        )

    def _classic(self) -> Membership:
        from .classic.assignors import assignors_from  # one of the protocols, not both
        from .classic.classic_membership import ClassicMembership

        self._settings = None
        return ClassicMembership.of(
            config=self.config,
            coordinator=self.coordinator,
            metadata=self.metadata,
            host=self._host,
            assignors=assignors_from(self.config),
            random=self.environment.random,
            trace=self.environment.trace,
        )

    def _fall_back(self, error: KafkaError) -> bool:
        """Speak the classic protocol if the group turned out not to take the new one, unless that was demanded."""
        wanted = self._wanted
        if self.config.group_protocol != "auto" or wanted is None or wanted.regex is not None:
            return False
        self.environment.trace(
            Notice(
                now=self._host.now,
                text=f"the group does not accept the consumer protocol ({error}); joining as classic",
                subject="group",
            )
        )
        self._become(self._classic(), wanted, self._host.now)
        return True
