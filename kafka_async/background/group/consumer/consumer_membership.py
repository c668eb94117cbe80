"""A member of a group in the consumer protocol (KIP-848): ConsumerGroupHeartbeat and nothing else.

It proposes assignments through ``MembershipHost``, and waits for the number to come back: the application applies them.

What holds in every state:

- One heartbeat is in flight, and besides it one leave_heartbeat at most. Each belongs to an incarnation, which ends when the member
  leaves or is fenced; an answer to an old one is ignored (KAFKA-19335).
- After any error everything is sent to the coordinator again, the owned partitions included: a lost acknowledgment repeats
  itself (KAFKA-17170).
- A new target waits while the application carries out another one.
- The coordinator being away changes nothing: member id and epoch are kept, no partition is given up.
- An instance id is released before it is taken again: a coordinator lets nobody join under one that is in use, not even the member
  that has it. The answer to the release shows who has it.
- A member that is fenced while it joins leaves first, and joins when that is answered: brokers before KAFKA-19233 refuse epoch 0 of
  a member that they know, for as long as its session lasts. They let it leave, whatever its epoch.

Sources: KIP-848, KIP-1082 (member ids), KIP-345 (static members), KIP-62 (poll interval); ``ConsumerMembershipManager``,
``ConsumerHeartbeatRequestManager``.
"""

from collections.abc import Callable
from typing import Final

from ....config import ConsumerConfig
from ....errors import FencedInstanceIdError, KafkaError, MalformedResponseError, UnknownMemberIdError, UnreleasedInstanceIdError
from ....events import Call
from ....model import ConsumerState, Node, TopicPartition
from ....network import Channel, UnsentRequest
from ....trace import Fault, Listener, Notice, Recovered, plural
from ....values import define, field
from ....wire import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ...loop.request_manager import NEVER, Poll, backoff_of
from ...positions.subscription import Subscription
from ..heartbeat import NOT_HEARD, OUT, PollInterval, Verdict, judge, next_heartbeat
from ..lookup import CoordinatorLookup
from ..membership import CommitFailure, CoordinatorAccess, Identity, MembershipHost
from ..parting import MembershipParting
from ..proposals import Proposals
from .group_settings import GroupSettings
from .heartbeat import (
    LONGEST_INTERVAL,
    HeartbeatFields,
    SubscribedTopics,
    assigned_partitions,
    error_of,
    explained,
    heartbeat,
    leave_heartbeat,
)
from .reconciliation import Conversation, Incarnation, Metadata, Reconciliation, Sent
from .states import AT_ONCE, LEAVABLE, MEMBER, RELEASING, SHOWN, SPEAKING, ConsumerStanding, MemberInput, MemberState

CREATION: Final = 2.0
"""Seconds for which a member that has just joined waits for a topic that the brokers may be creating, and then for its partitions:
coordinators compute assignments once a second (``group.consumer.assignment.interval.ms``)."""
GIVING_UP: Final = 0.5
"""Seconds for which a member that has just joined waits for partitions once the others have heard of it: they commit, call back and
acknowledge. Of 40 starts at any moment of the others' interval, 8 returned without partitions before this, and none with it."""
_HEARTBEATS: Final = "heartbeats"
"""The outage from a heartbeat that failed until one is answered."""


@define(eq=False, kw_only=True)
class ConsumerMembership:
    """Implements ``Membership`` for the consumer protocol. Poll it before the manager of the coordinator."""

    config: ConsumerConfig
    trace: Listener = field(repr=False)
    metadata: Metadata = field(repr=False)
    host: MembershipHost = field(repr=False)
    settings: GroupSettings = field(repr=False)
    """Knows the session timeout, which heartbeats do not tell."""
    random: Callable[[], float] = field(repr=False)
    fall_back: Callable[[KafkaError], bool] = field(repr=False)
    """Asked if the group cannot be joined in this protocol. True: another membership takes the subscription over."""
    _lookup: CoordinatorLookup
    _standing: ConsumerStanding
    _conversation: Conversation
    _interest: SubscribedTopics
    _reading: PollInterval
    _proposals: Proposals
    _life: Incarnation = field(init=False)
    _parting: MembershipParting = field(factory=MembershipParting, init=False)

    @classmethod
    def of(
        cls,
        *,
        config: ConsumerConfig,
        coordinator: CoordinatorAccess,
        metadata: Metadata,
        host: MembershipHost,
        settings: GroupSettings,
        member_id: str,
        random: Callable[[], float],
        trace: Listener,
        fall_back: Callable[[KafkaError], bool] = lambda error: False,
    ) -> "ConsumerMembership":
        """Return a member with all its parts. ``member_id`` is a random UUID of its own (KIP-1082)."""
        return cls(
            config=config,
            metadata=metadata,
            host=host,
            settings=settings,
            random=random,
            fall_back=fall_back,
            trace=trace,
            lookup=CoordinatorLookup(coordinator, host),
            standing=ConsumerStanding(trace),
            conversation=Conversation(member_id, backoff_of(config, random)),
            interest=SubscribedTopics(config.exclude_internal_topics),
            reading=PollInterval(config.max_poll_interval_ms / 1000),
            proposals=Proposals(host),
        )

    def __attrs_post_init__(self) -> None:
        self._life = self._new_life()

    def _new_life(self) -> Incarnation:
        return Incarnation(Reconciliation(self.metadata, backoff_of(self.config, self.random)))

    @property
    def _group(self) -> str:
        return self.config.group_id or ""

    # --- questions -------------------------------------------------------------------------------------------------------------

    @property
    def member_state(self) -> MemberState:
        return self._standing.state

    @property
    def failure(self) -> KafkaError | None:
        return self._standing.failure

    @property
    def channel(self) -> Channel:
        return Channel.GROUP  # no request of this protocol waits at the coordinator

    @property
    def identity(self) -> Identity:
        if self.member_state is MemberState.UNSUBSCRIBED:
            return Identity()
        return self._identity(self._life.epoch if self.member_state in MEMBER else -1)

    def _identity(self, epoch: int) -> Identity:
        instance_id = self.config.group_instance_id
        return Identity(member_id=self._conversation.member_id, generation=epoch, instance_id=instance_id, consumer_protocol=True)

    @property
    def state(self) -> ConsumerState:
        since = self._life.coordinator_away_since
        away = self.member_state in SPEAKING and self._lookup.known is None
        lost = away and since is not None and self._conversation.polled_at >= since + self._conversation.interval
        return ConsumerState.COORDINATOR_LOST if lost else SHOWN[self.member_state]

    @property
    def is_leaving(self) -> bool:
        return self.member_state is MemberState.LEAVING

    @property
    def is_being_named(self) -> bool:
        return False  # we make our member id ourselves

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        return self._interest.wanted_topics

    @property
    def group_topics(self) -> frozenset[str]:
        return frozenset()  # the coordinator divides

    @property
    def awaits_epoch(self) -> bool:
        return self.member_state in MEMBER or self.member_state in (MemberState.JOINING, MemberState.RECLAIMING)

    @property
    def is_denied(self) -> bool:
        return self._standing.is_denied

    @property
    def session_deadline(self) -> float:
        confirmed_at = self._life.confirmed_at
        if confirmed_at is None:
            return NEVER
        return confirmed_at + max(self.settings.session_timeout, self._conversation.interval)  # brokers demand no less

    # --- what the application and the commits say ------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self._interest.subscribe(subscription)
        # Only who had an epoch has an instance id to release. Without one, most brokers let us begin anew at once.
        unsent = self.member_state is MemberState.LEAVING and not self._conversation.leave_in_flight and now < self._parting.until
        if self.member_state in (MemberState.LEAVING, MemberState.FATAL):
            self._end_life()  # a request to leave may still be unanswered, or a revocation
        self._standing.move(MemberInput.SUBSCRIBE, now)
        if unsent and self.config.group_instance_id is not None:
            self._standing.move(MemberInput.TAKEN, now, "not released yet")
        self._parting.done()

    def leave(self, call: Call[None] | None, now: float) -> None:
        self._parting.wait(call)
        if self.member_state is not MemberState.LEAVING:
            # Only who has an epoch is surely known to the group, and worth a search for the coordinator.
            self._parting.until = now + self.config.request_timeout_ms / 1000 if self.member_state in MEMBER else now
            self._interest.subscribe(None)
            self._end_life()
            self._standing.is_denied = False
        self._standing.move(MemberInput.LEAVE, now)
        if self.member_state is MemberState.UNSUBSCRIBED:
            self._parting.done()

    def revoked(self, number: int, now: float) -> None:
        if self._proposals.is_answer(number) and self.member_state in RELEASING:
            self._standing.move(MemberInput.REVOKED, now)

    def assigned(self, number: int, now: float) -> None:
        if self._proposals.is_answer(number) and self.member_state is MemberState.ASSIGNING:
            self._proposals.taken_over()
            self._life.assignments.carried_out()
            self._standing.move(MemberInput.ASSIGNED, now)

    def refused(self, failure: CommitFailure, identity: Identity, now: float) -> None:
        if self.member_state not in MEMBER or identity != self.identity:
            return
        if failure in (CommitFailure.UNKNOWN_MEMBER, CommitFailure.ILLEGAL_GENERATION):
            self._fence(UnknownMemberIdError(f"a commit was refused: {failure.value}"), now)
        elif failure is CommitFailure.FENCED_INSTANCE:
            instance = self.config.group_instance_id
            self._fail(FencedInstanceIdError(f"another member of group {self._group!r} has group_instance_id {instance!r}"), now)
        # After REBALANCING a heartbeat brings the new epoch.

    def enforce_rebalance(self, reason: str, now: float) -> None:
        text = f"group {self._group!r}: only the coordinator starts rebalances in the consumer protocol; ignored: {reason}"
        self.trace(Notice(now=now, text=text, subject="group"))

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        self._conversation.polled_at = now
        poll = self._poll(now)
        if not self._conversation.parting:
            return poll
        return Poll(self._conversation.take_parting() + poll.requests, poll.wake_at)

    def _poll(self, now: float) -> Poll:
        if self.member_state is MemberState.AWAY and self._reading.reads_again(self.host.progress()):
            self._standing.move(MemberInput.READ, now)
        if self.member_state not in SPEAKING:
            return Poll(wake_at=self._quiet_until(now))
        node = self._lookup.known
        ends_at = self._reading_ends_at(now) if self.member_state in MEMBER else NEVER
        requests: tuple[UnsentRequest, ...] = ()
        if node is None:
            wake_at = self._without_coordinator(now)
        elif ends_at <= now:
            requests, wake_at = (self._expire(node, now),), self._quiet_until(now)
        else:
            self._life.coordinator_away_since = None
            requests, wake_at = self._speak(node, now)
        return Poll(requests, min(wake_at, self._reconcile(now), self._watch_reading(now)))

    def poll_on_close(self, now: float) -> Poll:
        """Leave, if there is anything to leave. Ask the last known coordinator first: there may be no time for a search."""
        node = self._lookup.last_known
        if self.member_state not in LEAVABLE or node is None or self._conversation.leave_in_flight:
            return Poll(self._conversation.take_parting())
        self.leave(None, now)
        return Poll((self._leave_request(node, now),))

    def _quiet_until(self, now: float) -> float:
        """While AWAY, check from time to time whether the application reads: a read call need not make an event."""
        return now + self._conversation.interval if self.member_state is MemberState.AWAY else NEVER

    def _speak(self, node: Node, now: float) -> tuple[tuple[UnsentRequest, ...], float]:
        """Return the requests that are due, and when the next ones are."""
        if self.metadata.covers_all:
            self._interest.follow(self.metadata.version, self.metadata.topics)
        due_at = self._heartbeat_at()
        if due_at > now:
            return (), due_at
        leaves = self.member_state in (MemberState.LEAVING, MemberState.RECLAIMING)
        request = self._leave_request(node, now) if leaves else self._heartbeat(node, now)
        return (request,), NEVER  # until it is answered

    def _heartbeat_at(self) -> float:
        """When the next heartbeat is due, as far as time decides."""
        if self.member_state is MemberState.LEAVING:
            return NEVER if self._conversation.leave_in_flight else self._conversation.backoff.retry_at
        if self._conversation.flying or not self._interest.known:
            return NEVER
        reported = self._life.reported
        if self.member_state in AT_ONCE or reported is None or not self._interest.is_reported(reported):
            return self._conversation.backoff.retry_at
        return max(self._life.due_at, self._conversation.backoff.retry_at)

    def _without_coordinator(self, now: float) -> float:
        if self.member_state is MemberState.LEAVING:
            return self._leave_without_coordinator(now)
        self._lookup.node(now)
        if self._life.coordinator_away_since is None:
            self._life.coordinator_away_since = now
        shown_at = self._life.coordinator_away_since + self._conversation.interval  # when ``state`` calls the coordinator lost
        return shown_at if shown_at > now else NEVER

    def _leave_without_coordinator(self, now: float) -> float:
        if self._conversation.leave_in_flight:
            return NEVER
        coordinator = self._lookup.coordinator
        if now >= self._parting.until or coordinator.fatal is not None or coordinator.is_out_of_reach:
            self._left(now)
            return NEVER
        coordinator.request(now)
        return self._parting.until

    # --- what is said ----------------------------------------------------------------------------------------------------------

    def _fields(self) -> HeartbeatFields:
        return HeartbeatFields(
            rack_id=self.config.client_rack or None,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            assignor=self.config.group_remote_assignor,
            topics=self._interest.topics,
            regex=self._interest.regex,
            owned=self._life.assignments.current.partitions,
        )

    def _heartbeat(self, node: Node, now: float) -> UnsentRequest:
        fields = self._fields()
        message = heartbeat(self._group, self._identity(self._life.epoch), fields, self._life.reported)
        if self.member_state is MemberState.ACKNOWLEDGING:
            self._standing.move(MemberInput.ACKNOWLEDGED, now)
            self._follow_target(now)
        return self._request(message, Sent(self._life, node.id, now, fields), now)

    def _leave_request(self, node: Node, now: float) -> UnsentRequest:
        message = leave_heartbeat(self._group, self._conversation.member_id, self.config.group_instance_id)
        return self._request(message, Sent(self._life, node.id, now, None), now)

    def _request(self, message: ConsumerGroupHeartbeatRequest, sent: Sent, now: float) -> UnsentRequest:
        self._conversation.flying.append(sent)
        return UnsentRequest(
            message=message,
            node_id=sent.node_id,
            channel=self.channel,
            on_done=lambda outcome, at: self._answered(sent, outcome, at),
            expires_at=now + self.config.request_timeout_ms / 1000,
            final=sent.fields is None,
        )

    # --- what is answered ------------------------------------------------------------------------------------------------------

    def _answered(self, sent: Sent, outcome: object, now: float) -> None:
        self._conversation.flying.remove(sent)
        error = error_of(outcome, self.config.group_id)
        verdict = judge(error) if error is not None else None
        if verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE):
            self._lookup.coordinator.lost(sent.node_id, error, now)  # that is true of the broker, whichever incarnation asked
        if sent.incarnation is not self._life:
            return
        if sent.fields is None and self.member_state is MemberState.RECLAIMING:
            self._release_answered(error, verdict, now)
        elif sent.fields is None:
            self._leave_answered(error, verdict, now)
        elif error is not None and verdict is not None:
            self._life.reported = None
            self._refused(error, verdict, now)
        elif isinstance(outcome, ConsumerGroupHeartbeatResponse):
            self._succeeded(sent.at, sent.fields, outcome, now)

    def _succeeded(self, sent_at: float, fields: HeartbeatFields, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        try:
            partitions = assigned_partitions(response)
        except MalformedResponseError as error:
            self._life.reported = None
            self._again(error, now)
            return
        if response.member_id:  # in version 0 the coordinator may choose it
            self._conversation.member_id = response.member_id
        self._life.epoch = response.member_epoch
        if self._life.reported is not None and self._life.reported.owned != fields.owned:
            self._life.acknowledged_at, self._life.settles_at = sent_at, sent_at + self._conversation.interval
        self._life.reported = fields
        self._life.confirmed_at = sent_at
        self._standing.is_denied = False
        self._lookup.coordinator.served(now)
        if self._conversation.backoff.failures:
            self.trace(Recovered(now=now, outage=_HEARTBEATS, subject="group"))
        if response.heartbeat_interval_ms > 0:
            self._conversation.interval = min(response.heartbeat_interval_ms / 1000, LONGEST_INTERVAL)
        self._conversation.backoff.succeeded()
        if self.member_state is MemberState.JOINING:
            self._life.joined_at = sent_at
            self._standing.move(MemberInput.JOINED, now)
        if partitions is not None:
            self._life.assignments.receive(partitions)
            self._follow_target(now)
        # Partitions for us may still belong to another member that gives them up soon, or the coordinator has not assigned them
        # yet; only the next heartbeat shows it.
        expects = self._expects_partitions
        waits_since = self._life.joined_at if expects or self._may_be_created(sent_at) else -NEVER
        if sent_at < self._life.settles_at:
            waits_since = max(waits_since, self._life.acknowledged_at)
        self._life.due_at = next_heartbeat(sent_at, self._conversation.interval, waits_since, GIVING_UP if expects else 0.0)

    @property
    def _expects_partitions(self) -> bool:
        """No partition is ours, although topics that are subscribed have some."""
        if self._life.assignments.target.partitions:
            return False
        known = self.metadata.topics
        return bool(self._interest.regex) or any(name in known and known[name].partitions for name in self._interest.topics)

    def _may_be_created(self, now: float) -> bool:
        """A topic that is subscribed is not known, and brokers may be creating it because its metadata was asked for."""
        if not self.config.allow_auto_create_topics or self._life.assignments.target.partitions:
            return False
        known = self.metadata.topics
        missing = any(name not in known or not known[name].partitions for name in self._interest.topics)
        return missing and now < self._life.joined_at + CREATION

    def _refused(self, error: KafkaError, verdict: Verdict, now: float) -> None:
        """Do what the verdict on an error in place of an answer asks for."""
        joining = self.member_state is MemberState.JOINING
        self._standing.is_denied = verdict is Verdict.REPORT
        if joining and (isinstance(error, UnreleasedInstanceIdError) or verdict is Verdict.OLD_GENERATION):
            self._refused_as_known(error, now)
            return
        match verdict:
            case Verdict.REDISCOVER:
                pass  # the search has a backoff of its own
            case Verdict.UNREACHABLE:
                self._conversation.backoff.failed(now)  # the search reports what happened
            case Verdict.RETRY:
                self._again(error, now)
            case Verdict.REPORT:
                self._again(error, now)
                self.host.publish_error(error, final=True)
            case Verdict.UNKNOWN_MEMBER | Verdict.OLD_GENERATION:
                self._fence(error, now)
            case Verdict.GROUP_GONE if not joining:
                # It was deleted after we had been fenced, say while this process was stopped. Joining creates it again.
                self._fence(error, now)
            case Verdict.GROUP_GONE | Verdict.UNSUPPORTED if joining:
                self._fall_back_or_fail(error, now)
            case _:
                self._fail(error, now)

    def _refused_as_known(self, error: KafkaError, now: float) -> None:
        """Have the coordinator forget who has our id, and then join.

        The sequence that ends a static member for good otherwise: the coordinator takes it in, the answer is lost, and the next
        heartbeat with epoch 0 is refused because of the first. A broker before KAFKA-19233 refuses a dynamic one like that if its
        request to leave was not sent, or is lost.
        """
        if isinstance(error, UnreleasedInstanceIdError) and self._life.fenced is not None:
            self._fail(self._taken(self._life.fenced), now)
            return
        self._again(error, now)
        self._standing.move(MemberInput.TAKEN, now, str(error))

    def _again(self, error: KafkaError, now: float) -> None:
        self._conversation.backoff.failed(now)
        if self._lookup.coordinator.is_settling_in(error, now):
            return
        text = f"group {self._group!r}: the heartbeat failed; trying again"
        self.trace(Fault(now=now, text=text, error=error, subject="group", outage=_HEARTBEATS))

    def _release_answered(self, error: KafkaError | None, verdict: Verdict | None, now: float) -> None:
        """Join, also if the instance id is another member's: it may have left, or be leaving. What else can be wrong shows then."""
        if isinstance(error, FencedInstanceIdError):
            self._life.fenced = error
            self._standing.move(MemberInput.RECLAIMED, now)
        elif error is None or verdict is None or verdict in OUT or verdict is Verdict.UNSUPPORTED:
            self._standing.move(MemberInput.RECLAIMED, now)
        else:
            self._refused(error, verdict, now)

    def _taken(self, fenced: KafkaError) -> KafkaError:
        """Return the error for an instance id that another member has and keeps."""
        text = f"another member of group {self._group!r} has group_instance_id {self.config.group_instance_id!r}"
        error = UnreleasedInstanceIdError(f"{text}: it has to leave first, or its session has to end")
        error.__cause__ = fenced
        return error

    def _leave_answered(self, error: KafkaError | None, verdict: Verdict | None, now: float) -> None:
        """A request to leave that did not arrive is sent again while there is time; any other answer means that we are out."""
        if verdict in NOT_HEARD and now < self._parting.until:
            self._conversation.backoff.failed(now)
            return
        if error is not None and verdict not in OUT:
            self.trace(
                Fault(
                    now=now,
                    text=f"group {self._group!r}: could not leave; the session ends by itself",
                    error=error,
                    subject="group",
                )
            )
        self._left(now)

    def _left(self, now: float) -> None:
        self._standing.move(MemberInput.LEFT, now)
        self._parting.done()

    # --- the end of an incarnation ---------------------------------------------------------------------------------------------

    def _end_life(self) -> frozenset[TopicPartition]:
        """Forget the group; return what the application owns or is just taking over."""
        held = self._proposals.held
        self._proposals.taken_over()
        self._life = self._new_life()
        self._reading.stop()
        return held

    def _give_up(self, what: MemberInput, held: frozenset[TopicPartition], now: float, reason: str) -> None:
        """Move and have the application release ``held``; a member that holds nothing need not wait for it."""
        self._standing.move(what, now, reason)
        if held:
            self._proposals.give_up(held, lost=True)
        else:
            self._standing.move(MemberInput.REVOKED, now)

    def _fence(self, error: KafkaError, now: float) -> None:
        if self.member_state is MemberState.JOINING:
            self._conversation.backoff.failed(now)  # a coordinator that fences every new member would be asked without end
        held = self._end_life()
        text = f"group {self._group!r}: not a member any more; joining again"
        self.trace(Fault(now=now, text=text, error=error, subject="group"))
        self._give_up(MemberInput.FENCE, held, now, str(error))

    def _fail(self, error: KafkaError, now: float) -> None:
        node = self._lookup.last_known
        if node is not None and self._may_be_counted_in(error):
            self._conversation.part(self._leave_request(node, now))  # others would wait for its session to end (promise 8)
        held = self._end_life()
        self._give_up(MemberInput.FAIL, held, now, str(error))
        self._standing.failure = error
        self.host.publish_error(error, final=True)

    def _may_be_counted_in(self, error: KafkaError) -> bool:
        """Whether the coordinator that refuses us with ``error`` may still have us as a member; not if another one has our name."""
        if isinstance(error, (FencedInstanceIdError, UnreleasedInstanceIdError)) or judge(error) is Verdict.UNSUPPORTED:
            return False
        return self.member_state in LEAVABLE and judge(error) is not Verdict.GROUP_GONE

    def _fall_back_or_fail(self, error: KafkaError, now: float) -> None:
        if not self.fall_back(error):
            self._fail(explained(error, self._group), now)
            return
        self._end_life()
        self._interest.subscribe(None)
        self._standing.move(MemberInput.FALL_BACK, now, str(error))

    def _expire(self, node: Node, now: float) -> UnsentRequest:
        """Leave, because the application does not read: others can work on its partitions meanwhile (KIP-62)."""
        request = self._leave_request(node, now)
        held = self._end_life()  # after the request to leave, whose answer is not awaited
        self._reading.expire(now)
        text = (
            f"group {self._group!r}: left, because the application has not called a read method for max_poll_interval_ms="
            f"{self.config.max_poll_interval_ms}; it joins again when it reads. Handle less between two reads, or raise the option"
        )
        self.trace(Fault(now=now, text=text, subject="group"))
        self._give_up(MemberInput.EXPIRE, held, now, "max_poll_interval_ms")
        return request

    # --- the application -------------------------------------------------------------------------------------------------------

    def _watch_reading(self, now: float) -> float:
        """Warn before the poll interval ends; return when to look again."""
        warning = self._reading.warning(now)
        if warning is not None:
            self.trace(Fault(now=now, text=f"group {self._group!r}: {warning}", subject="group"))
        return self._reading.wake_at(now)

    def _reading_ends_at(self, now: float) -> float:
        if not self._life.assignments.target.partitions and not self.host.owned():
            self._reading.stop()
            return NEVER
        return self._reading.ends_at(self.host.progress(), now)

    def _held_until(self) -> float:
        """Until when the first assignment is not passed on: while it is empty, one with partitions is likely to follow.

        The sequence that costs an interval otherwise: ``start()`` returns with nothing, and the first records come seconds later.
        """
        if self._life.assignments.current.local_epoch or self.host.owned():
            return -NEVER
        if self._expects_partitions:
            return self._life.joined_at + self._conversation.interval + GIVING_UP
        return self._life.joined_at + CREATION if self._may_be_created(self._life.joined_at) else -NEVER

    def _follow_target(self, now: float) -> None:
        if not self._life.assignments.is_done:
            self._standing.move(MemberInput.TARGET, now)

    def _reconcile(self, now: float) -> float:
        """Ask the application for the target, as far as it can be named; return when to ask for names again."""
        if self.member_state is not MemberState.RECONCILING:
            return NEVER
        if (held_until := self._held_until()) > now:
            return held_until
        partitions = self._life.assignments.propose(now)
        if partitions is None:
            return self._life.assignments.wake_at
        owned = self.host.owned()
        self._standing.move(MemberInput.PROPOSED, now)
        counts = f"{len(partitions)} partition{plural(len(partitions))}, {len(partitions - owned)} of them new"
        text = f"group {self._group!r}: rebalancing in epoch {self._life.epoch} to {counts}"  # their names come with the result
        self.trace(Notice(now=now, text=text, subject="group"))
        self._proposals.propose(partitions)
        return NEVER
