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
class _Stay:
    """The time in which a member that the application has ended stays in the group, because its last commits are under way.

    The sequence that loses them otherwise: a broker goes, or a rebalance is about to end, so that the commit has to be sent again,
    while the request to leave arrives at the same coordinator or the next one.
    """

    owned: frozenset[TopicPartition]
    """What it had. Nobody else gets it before the member has left: for the group the application is still giving it up."""
    until: float


@define(eq=False)
class _Wanted:
    """A subscription of the application."""

    subscription: Subscription
    waits_until: float | None = None
    """Until when at most it waits for what a lone consumer has committed; ``None``: it does not. If the member before it stays for
    its own commits, this wait begins when that member leaves.

    The sequence that loses that otherwise: the coordinator moves, so that the commit has to be sent again, after a backoff. The
    request to join is first, and a group with members takes no offsets of a lone consumer.
    """


@define(eq=False)
class _Host:
    """What a membership may use of the other parts. A member that only stays has an application that is silent."""

    handler: EventHandler
    subscription: SubscriptionState
    metadata: MetadataManager
    _seen: int = field(default=0, init=False)
    _progressed_at: float = field(default=0.0, init=False)
    now: float = field(default=0.0, init=False)
    stay: _Stay | None = field(default=None, init=False)

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        self.stop_fetching(partitions)
        subscription = self.handler.subscription
        self._publish(
            RevokePartitions(number=number, partitions=partitions, lost=lost, returning=returning, subscription=subscription)
        )

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        subscription = self.handler.subscription
        self._publish(AssignPartitions(number=number, partitions=partitions, successive=successive, subscription=subscription))

    def _publish(self, proposal: RevokePartitions | AssignPartitions) -> None:
        if self.stay is None:
            self.handler.publish(proposal)

    def publish_error(self, error: KafkaError, *, final: bool = False) -> None:
        if self.stay is None:
            self.handler.publish_error(error, final=final)

    def stop_fetching(self, partitions: frozenset[TopicPartition]) -> None:
        if self.stay is None:  # else they may be assigned by hand by now
            self.subscription.revoke(partitions)

    def owned(self) -> frozenset[TopicPartition]:
        return self.subscription.owned if self.stay is None else self.stay.owned

    def progress(self) -> PollProgress:
        """Return when the application last did something; working through an iteration's batch counts as well."""
        if self.stay is not None:
            return PollProgress(polled_at=self.now, polling=True)
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
    _wanted: _Wanted | None = field(default=None, init=False)
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
        """Be a member with this subscription, once the commits that a lone consumer made before have ended."""
        before, self._wanted = self._wanted, _Wanted(subscription)
        self._access.membership = self._membership
        if self._host.stay is not None:
            return  # when the member that stays has left
        self._wanted.waits_until = self._waits_until(now) if before is None else before.waits_until
        self._take_up(self._wanted, now)

    def _waits_until(self, now: float) -> float | None:
        return now + self.config.request_timeout_ms / 1000 if self.commits.is_storing_alone(now) else None

    def _take_up(self, wanted: _Wanted, now: float) -> None:
        """Have our membership take the subscription up, if it need not wait; the first membership is made in a poll."""
        if self._membership is not None and wanted.waits_until is None:
            self._access.parting = None
            self._membership.subscribe(wanted.subscription, now)

    def unsubscribe(self, call: Call[None] | None, now: float) -> None:
        """Leave the group, once the commits that were made before have ended. Later ones are those of a lone consumer.

        To be called while the subscription still has the partitions.
        """
        self._wanted = self._access.membership = None
        membership = self._membership
        if membership is not None:
            self._access.parting = membership
            if self._host.stay is None and self.commits.is_storing(now):
                self._host.stay = _Stay(self._host.owned(), now + self.config.request_timeout_ms / 1000)
        if membership is not None and self._host.stay is None:
            membership.leave(call, now)
        elif call is not None:
            call.resolve(None)  # also while the member stays: the application follows nothing any more

    def _stay_no_longer(self, membership: Membership, now: float) -> None:
        self._host.stay = None
        if membership.wanted_topics is None:  # so far all there are were asked for, and none by its name
            self.metadata.request_new_topics(now)
        membership.leave(None, now)
        if self._wanted is not None:
            # Who has committed alone since has to be out of the group: one that joins again without leaving stays a member.
            self._wanted.waits_until = self._waits_until(now)
            self._take_up(self._wanted, now)

    def enforce_rebalance(self, event: EnforceRebalance, now: float) -> None:
        if self._member is not None:
            self._member.enforce_rebalance(event.reason, now)

    def carried_out(self, event: PartitionsRevoked | PartitionsAssigned, now: float) -> None:
        """The application carried a proposal out."""
        if self._member is None:
            return
        if isinstance(event, PartitionsRevoked):
            self._member.revoked(event.number, now)
        else:
            self._member.assigned(event.number, now)
        self._publish()  # before the application's next call is answered: it may look at the state

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Poll the membership, once it is known which protocol is spoken."""
        self._host.now = now
        wanted = self._wanted
        if wanted is not None and wanted.waits_until is not None and self._has_waited(wanted.waits_until, now):
            wanted.waits_until = None
            self._take_up(wanted, now)
        if wanted is not None and wanted.waits_until is None and self._membership is None:
            self._choose(wanted.subscription, now)
        poll = self._poll_membership(self._membership, now) if self._membership is not None else Poll()
        if wanted is not None and wanted.waits_until is not None:
            poll = poll.until(wanted.waits_until)
        self._publish()
        if self._settings is None or self.handler.session_deadline == inf:
            return poll
        settings = self._settings.poll(now)
        return Poll(poll.requests + settings.requests, min(poll.wake_at, settings.wake_at))

    def _has_waited(self, until: float, now: float) -> bool:
        return now >= until or not self.commits.is_storing_alone(now)

    def _poll_membership(self, membership: Membership, now: float) -> Poll:
        stay = self._host.stay
        if stay is not None and now < stay.until and self.commits.is_storing(now):
            return membership.poll(now).until(stay.until)
        if stay is not None:
            self._stay_no_longer(membership, now)
        poll = membership.poll(now)
        if not membership.is_leaving:
            self._access.parting = None
        return poll

    def poll_on_close(self, now: float) -> Poll:
        """Leave the group, if we are in it."""
        if self._membership is None:
            return Poll()
        if self._member is None:
            self._wanted = self._access.membership = None  # else it would subscribe anew, and ask only once to leave that
        if self._host.stay is not None:  # the commits were sent for the last time
            self._stay_no_longer(self._membership, now)
        return self._membership.poll_on_close(now)

    @property
    def _member(self) -> Membership | None:
        """Our membership; ``None`` also while it only stays, since the application is done with it, and while a new subscription
        waits.
        """
        waits = self._wanted is not None and self._wanted.waits_until is not None
        return None if waits or self._host.stay is not None else self._membership

    @property
    def state(self) -> ConsumerState | None:
        """What the membership is doing; ``None`` for a consumer that only commits."""
        if self._wanted is None:
            return None
        return self._member.state if self._member is not None else ConsumerState.JOINING

    @property
    def is_leaving(self) -> bool:
        """See ``Membership``."""
        return self._host.stay is not None or (self._membership is not None and self._membership.is_leaving)

    @property
    def is_being_named(self) -> bool:
        """See ``Membership``."""
        return self._member is not None and self._member.is_being_named

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics whose metadata the subscription needs; ``None``: all."""
        # Before the protocol is known, too, or the first picture lacks what a pattern matches.
        wanted = self._wanted.subscription.topics if self._wanted is not None else frozenset()
        if self._host.stay is not None and self._membership is not None and self._membership.wanted_topics is None:
            return None
        return self._member.wanted_topics if self._wanted is not None and self._member is not None else wanted

    @property
    def topics(self) -> frozenset[str]:
        """What a leader needs besides, to divide the partitions of its group; one that only stays may have to do so once more.

        It asks for them as an ``Asker``: an error about them may not reach the application, which has not subscribed to them, or
        has ended that subscription.
        """
        if self._membership is None:
            return frozenset()
        stays = self._host.stay is not None
        return self._membership.group_topics | ((stays and self._membership.wanted_topics) or frozenset())

    def _publish(self) -> None:
        membership = self._member
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
        if self.config.group_protocol != "auto" or wanted is None or wanted.subscription.regex is not None:
            return False
        self.environment.trace(
            Notice(
                now=self._host.now,
                text=f"the group does not accept the consumer protocol ({error}); joining as classic",
                subject="group",
            )
        )
        self._become(self._classic(), wanted.subscription, self._host.now)
        return True
