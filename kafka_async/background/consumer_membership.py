"""A member of a group in the consumer protocol (KIP-848): ConsumerGroupHeartbeat and nothing else.

Decides: when a heartbeat is sent, what an answer does to the member, which assignment the application is asked to carry out, when a
silent application costs the member its place. Owns: the member's id and epoch, its state, its target and current assignment. Must never
apply an assignment, commit or call the application: it proposes through ``MembershipHost`` and waits for the number to come back.

The state is ``TRANSITIONS``, one table; an unknown pair is a bug. It is Java's ``MemberState`` (``AbstractMembershipManager``) with the
flags beside it turned into states: ASSIGNING is RECONCILING with ``reconciliationInProgress``, AWAY is STALE after the release. Java's
PREPARE_LEAVING is missing, because here the application gives its partitions up before it asks to leave.

What holds in every state:

- One heartbeat is in flight, and a farewell besides at most. Each carries the incarnation of the member; an answer to an old one is ignored.
- There is one target, the last that was received. What it names by topic ids that the metadata cannot name yet is left for later.
- A target has a local epoch, so that "the same partitions again" after something else is carried out and acknowledged again.
- After any error the coordinator is told everything again, the owned partitions included: a lost acknowledgement repeats itself (KAFKA-17170).
- The coordinator being away changes nothing: member id and epoch are kept, no partition is given up.

Sources: KIP-848, KIP-1082 (member ids), KIP-345 (static members), KIP-62 (poll interval); ``ConsumerMembershipManager``,
``ConsumerHeartbeatRequestManager``.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from attrs import define, evolve, field, frozen

from ..config import ConsumerConfig
from ..errors import FencedInstanceIdError, KafkaError, MalformedResponseError, UnknownMemberIdError, for_code
from ..events import Call, TopicDescription
from ..model import ConsumerState, Node, TopicPartition
from ..network import Lane, UnsentRequest
from ..trace import Fault, Listener, Notice, StateChanged
from ..wire import ConsumerGroupHeartbeatResponse
from .find_coordinator import backoff_of
from .heartbeat import (
    JOIN_EPOCH,
    HeartbeatFields,
    PartitionIds,
    PollInterval,
    Verdict,
    assigned_partitions,
    farewell,
    heartbeat,
    judge,
)
from .membership import CommitFailure, Identity, MembershipHost, Subscription
from .request_manager import NEVER, Backoff, Poll

SESSION_TIMEOUT: Final = 45.0
"""Seconds: the default of the broker's ``group.consumer.session.timeout.ms``. The protocol does not tell a member the real one."""

FIRST_INTERVAL: Final = 5.0
"""Seconds between heartbeats until the first answer says: the default of ``group.consumer.heartbeat.interval.ms``."""


class MemberState(Enum):
    UNSUBSCRIBED = "not a member"
    JOINING = "joining: a full heartbeat with epoch 0 is due or unanswered"
    RECONCILING = "the target is another than the current assignment; the application was not asked yet"
    ASSIGNING = "the application carries an assignment out"
    ACKNOWLEDGING = "a heartbeat with the partitions that are owned now is due"
    STABLE = "the target is carried out"
    FENCED = "no member any more; the application gives its partitions up"
    STALE = "left, because the application does not read; it has its partitions still to give up"
    AWAY = "left and gave up; joins again when the application reads"
    LEAVING = "a farewell is due or unanswered"
    FATAL = "refused for good; the application was told"


class MemberInput(Enum):
    SUBSCRIBE = "the application subscribed"
    LEAVE = "the application unsubscribed"
    JOINED = "the coordinator took us in"
    TARGET = "there is a target that is not carried out"
    PROPOSED = "the application was asked to carry the target out"
    ASSIGNED = "the application did"
    ACKNOWLEDGED = "the heartbeat that says so was handed to the network"
    FENCE = "the coordinator does not count us in any more"
    EXPIRE = "the application has not read for too long"
    REVOKED = "the application gave its partitions up"
    READ = "the application reads again"
    LEFT = "the farewell was answered, or cannot be sent"
    FAIL = "the coordinator refused us for good"
    FALL_BACK = "somebody else takes over with another protocol"


_S, _I = MemberState, MemberInput
TRANSITIONS: Mapping[tuple[MemberState, MemberInput], MemberState] = {
    (_S.UNSUBSCRIBED, _I.SUBSCRIBE): _S.JOINING,
    (_S.UNSUBSCRIBED, _I.LEAVE): _S.UNSUBSCRIBED,
    (_S.JOINING, _I.SUBSCRIBE): _S.JOINING,
    (_S.JOINING, _I.LEAVE): _S.LEAVING,
    (_S.JOINING, _I.JOINED): _S.STABLE,
    (_S.JOINING, _I.FENCE): _S.FENCED,
    (_S.JOINING, _I.FAIL): _S.FATAL,
    (_S.JOINING, _I.FALL_BACK): _S.UNSUBSCRIBED,
    (_S.RECONCILING, _I.SUBSCRIBE): _S.RECONCILING,
    (_S.RECONCILING, _I.LEAVE): _S.LEAVING,
    (_S.RECONCILING, _I.TARGET): _S.RECONCILING,
    (_S.RECONCILING, _I.PROPOSED): _S.ASSIGNING,
    (_S.RECONCILING, _I.FENCE): _S.FENCED,
    (_S.RECONCILING, _I.EXPIRE): _S.STALE,
    (_S.RECONCILING, _I.FAIL): _S.FATAL,
    (_S.ASSIGNING, _I.SUBSCRIBE): _S.ASSIGNING,
    (_S.ASSIGNING, _I.LEAVE): _S.LEAVING,
    (_S.ASSIGNING, _I.TARGET): _S.ASSIGNING,  # waits until the one that is being carried out is done
    (_S.ASSIGNING, _I.ASSIGNED): _S.ACKNOWLEDGING,
    (_S.ASSIGNING, _I.FENCE): _S.FENCED,
    (_S.ASSIGNING, _I.EXPIRE): _S.STALE,
    (_S.ASSIGNING, _I.FAIL): _S.FATAL,
    (_S.ACKNOWLEDGING, _I.SUBSCRIBE): _S.ACKNOWLEDGING,
    (_S.ACKNOWLEDGING, _I.LEAVE): _S.LEAVING,
    (_S.ACKNOWLEDGING, _I.TARGET): _S.ACKNOWLEDGING,  # what was done is said first
    (_S.ACKNOWLEDGING, _I.ACKNOWLEDGED): _S.STABLE,
    (_S.ACKNOWLEDGING, _I.FENCE): _S.FENCED,
    (_S.ACKNOWLEDGING, _I.EXPIRE): _S.STALE,
    (_S.ACKNOWLEDGING, _I.FAIL): _S.FATAL,
    (_S.STABLE, _I.SUBSCRIBE): _S.STABLE,
    (_S.STABLE, _I.LEAVE): _S.LEAVING,
    (_S.STABLE, _I.TARGET): _S.RECONCILING,
    (_S.STABLE, _I.FENCE): _S.FENCED,
    (_S.STABLE, _I.EXPIRE): _S.STALE,
    (_S.STABLE, _I.FAIL): _S.FATAL,
    (_S.FENCED, _I.SUBSCRIBE): _S.FENCED,
    (_S.FENCED, _I.LEAVE): _S.UNSUBSCRIBED,
    (_S.FENCED, _I.REVOKED): _S.JOINING,
    (_S.STALE, _I.SUBSCRIBE): _S.STALE,
    (_S.STALE, _I.LEAVE): _S.UNSUBSCRIBED,
    (_S.STALE, _I.REVOKED): _S.AWAY,
    (_S.AWAY, _I.SUBSCRIBE): _S.AWAY,
    (_S.AWAY, _I.LEAVE): _S.UNSUBSCRIBED,
    (_S.AWAY, _I.READ): _S.JOINING,
    (_S.LEAVING, _I.SUBSCRIBE): _S.JOINING,  # epoch 0 starts the member afresh, whether the farewell was sent or not
    (_S.LEAVING, _I.LEAVE): _S.LEAVING,
    (_S.LEAVING, _I.LEFT): _S.UNSUBSCRIBED,
    (_S.FATAL, _I.SUBSCRIBE): _S.JOINING,  # Java stays silent here for ever; the cause may have been removed
    (_S.FATAL, _I.LEAVE): _S.UNSUBSCRIBED,
    (_S.FATAL, _I.REVOKED): _S.FATAL,
}

MEMBER: Final = frozenset((_S.RECONCILING, _S.ASSIGNING, _S.ACKNOWLEDGING, _S.STABLE))
"""States with an epoch of the coordinator's."""
_SPEAKING: Final = MEMBER | {_S.JOINING, _S.LEAVING}
"""States that need the coordinator."""
_AT_ONCE: Final = frozenset((_S.JOINING, _S.ACKNOWLEDGING, _S.LEAVING))
"""States in which a heartbeat does not wait for the interval."""

_SHOWN: Mapping[MemberState, ConsumerState] = {
    _S.UNSUBSCRIBED: ConsumerState.STEADY,
    _S.JOINING: ConsumerState.JOINING,
    _S.RECONCILING: ConsumerState.REBALANCING,
    _S.ASSIGNING: ConsumerState.REBALANCING,
    _S.ACKNOWLEDGING: ConsumerState.REBALANCING,
    _S.STABLE: ConsumerState.STEADY,
    _S.FENCED: ConsumerState.REBALANCING,
    _S.STALE: ConsumerState.REBALANCING,
    _S.AWAY: ConsumerState.JOINING,
    _S.LEAVING: ConsumerState.REBALANCING,
    _S.FATAL: ConsumerState.FATAL,
}


class Coordinator(Protocol):
    """Who coordinates the group, as far as a member needs it (``FindCoordinatorManager``)."""

    @property
    def coordinator(self) -> Node | None: ...
    @property
    def latest(self) -> Node | None: ...
    @property
    def fatal(self) -> KafkaError | None: ...
    def request(self, now: float) -> None: ...
    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None: ...


class Metadata(Protocol):
    """What a member reads of the cluster's metadata (``MetadataManager``)."""

    @property
    def version(self) -> int: ...
    @property
    def names(self) -> Mapping[UUID, str]: ...
    @property
    def topics(self) -> Mapping[str, TopicDescription]: ...
    def request_update(self, now: float) -> None: ...


@frozen
class LocalAssignment:
    """Partitions by topic id, as assigned for the ``local_epoch``-th time in this incarnation."""

    local_epoch: int = 0
    partitions: PartitionIds = frozenset()


@define(eq=False)
class _Sent:
    """One heartbeat on its way; ``fields`` is ``None`` for a farewell."""

    incarnation: int
    node_id: int
    at: float
    fields: HeartbeatFields | None


@define(eq=False)
class ConsumerMembership:
    """Implements ``Membership`` for the consumer protocol."""

    config: ConsumerConfig
    coordinator: Coordinator = field(repr=False)
    metadata: Metadata = field(repr=False)
    host: MembershipHost = field(repr=False)
    new_member_id: Callable[[], str] = field(repr=False)
    """Makes the member's id, a random UUID; called once."""
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    fall_back: Callable[[KafkaError], bool] = field(default=lambda error: False, repr=False)
    """Asked when the group cannot be joined in this protocol. True: somebody else takes the subscription over from here."""

    member_state: MemberState = field(default=MemberState.UNSUBSCRIBED, init=False)
    _group: str = field(init=False)
    _member_id: str = field(init=False)
    _epoch: int = field(default=JOIN_EPOCH, init=False)
    _incarnation: int = field(default=0, init=False)
    _subscription: Subscription | None = field(default=None, init=False)
    _topics: tuple[str, ...] = field(default=(), init=False)
    _matched_version: int = field(default=0, init=False)
    """Version of the metadata that the pattern was evaluated on."""

    _target: LocalAssignment = field(factory=LocalAssignment, init=False)
    _proposal: LocalAssignment = field(factory=LocalAssignment, init=False)
    _current: LocalAssignment = field(factory=LocalAssignment, init=False)
    _names: Mapping[UUID, str] = field(factory=dict, init=False)
    """Names of the topics in the proposal: a deleted topic must still have one when it is revoked."""
    _naming: Backoff = field(init=False)
    _number: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)
    """Number of the proposal that the application has still to answer; 0: none."""

    _told: HeartbeatFields | None = field(default=None, init=False)
    _flying: list[_Sent] = field(factory=list, init=False)
    _backoff: Backoff = field(init=False)
    _interval: float = field(default=FIRST_INTERVAL, init=False)
    _due_at: float = field(default=0.0, init=False)
    _heard_at: float | None = field(default=None, init=False)
    """When the last heartbeat was sent that was answered well."""
    _leave_calls: list[Call[None]] = field(factory=list, init=False)
    _leave_until: float = field(default=0.0, init=False)
    _reading: PollInterval = field(init=False)
    _expired_at: float = field(default=0.0, init=False)
    _polled_at: float = field(default=0.0, init=False)
    _coordinator_seen_at: float | None = field(default=None, init=False)
    _reported: KafkaError | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._group = self.config.group_id or ""
        self._member_id = self.new_member_id()
        self._backoff = backoff_of(self.config, self.random)
        self._naming = backoff_of(self.config, self.random)
        self._reading = PollInterval(self.config.max_poll_interval_ms / 1000)

    # --- questions -------------------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        if self.member_state is MemberState.UNSUBSCRIBED:
            return Identity()
        epoch = self._epoch if self.member_state in MEMBER else -1
        return evolve(self._speaker(), generation=epoch)

    def _speaker(self) -> Identity:
        return Identity(
            member_id=self._member_id,
            generation=self._epoch,
            instance_id=self.config.group_instance_id,
            consumer_protocol=True,
        )

    @property
    def state(self) -> ConsumerState:
        seen_at = self._coordinator_seen_at
        if self.member_state in _SPEAKING and seen_at is not None and self.coordinator.coordinator is None:
            if self._polled_at >= seen_at + self._interval:
                return ConsumerState.COORDINATOR_LOST
        return _SHOWN[self.member_state]

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        if self._subscription is None:
            return frozenset()
        return self._subscription.topics  # None for both kinds of pattern: names of any topic may be needed

    @property
    def awaits_epoch(self) -> bool:
        return self.member_state in MEMBER or self.member_state is MemberState.JOINING

    @property
    def session_deadline(self) -> float:
        return NEVER if self._heard_at is None else self._heard_at + SESSION_TIMEOUT

    # --- what the application and the commits say ------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self._subscription = subscription
        self._topics = tuple(sorted(subscription.topics or ()))
        self._matched_version = 0
        self._resolve_leave_calls()
        self._move(MemberInput.SUBSCRIBE, now)

    def leave(self, call: Call[None] | None, now: float) -> None:
        # Only who has an epoch is surely known to the group, and worth a search for the coordinator.
        self._leave_until = now + self.config.request_timeout_ms / 1000 if self.member_state in MEMBER else now
        self._subscription = None
        if call is not None:
            self._leave_calls.append(call)
        if self.member_state is not MemberState.LEAVING:
            self._end_incarnation()
        self._move(MemberInput.LEAVE, now)
        if self.member_state is MemberState.UNSUBSCRIBED:
            self._resolve_leave_calls()

    def revoked(self, number: int, now: float) -> None:
        if number == self._asked and self.member_state not in MEMBER:
            self._asked = 0
            self._move(MemberInput.REVOKED, now)

    def assigned(self, number: int, now: float) -> None:
        if number == self._asked and self.member_state is MemberState.ASSIGNING:
            self._asked = 0
            self._current = self._proposal
            self._move(MemberInput.ASSIGNED, now)

    def refused(self, failure: CommitFailure, identity: Identity, now: float) -> None:
        if self.member_state not in MEMBER or identity != self.identity:
            return
        match failure:
            case CommitFailure.UNKNOWN_MEMBER | CommitFailure.ILLEGAL_GENERATION:
                self._fence(UnknownMemberIdError(f"a commit was refused: {failure.value}"), now)
            case CommitFailure.FENCED_INSTANCE:
                instance = self.config.group_instance_id
                self._fail(
                    FencedInstanceIdError(f"another member of group {self._group!r} has group_instance_id {instance!r}"), now
                )
            case CommitFailure.REBALANCING:
                pass  # a heartbeat brings the new epoch

    def enforce_rebalance(self, reason: str, now: float) -> None:
        text = (
            f"group {self._group!r}: the consumer protocol has no enforced rebalance, the coordinator decides; asked for: {reason}"
        )
        self.trace(Notice(now=now, text=text))

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        self._polled_at = now
        if self.member_state is MemberState.AWAY and not self._read_again(now):
            return Poll(wake_at=now + self._interval)  # a read call need not make an event
        if self.member_state not in _SPEAKING:
            return Poll()
        node = self.coordinator.coordinator
        wake_at = self._without_coordinator(now) if node is None else NEVER
        requests: list[UnsentRequest] = []
        if node is not None:
            self._coordinator_seen_at = now
            requests.extend(self._speak(node, now))
            wake_at = self._heartbeat_at()
        return Poll(tuple(requests), min(wake_at, self._reconcile(now), self._watch_reading(now)))

    def poll_on_close(self, now: float) -> Poll:
        """Leave, if there is anything to leave and any broker to say it to: there is no time for a search any more."""
        node = self.coordinator.coordinator or self.coordinator.latest
        if self.member_state not in _SPEAKING or node is None or self._farewell_is_flying():
            return Poll()
        self.leave(None, now)
        return Poll((self._farewell(node, now),))

    def _speak(self, node: Node, now: float) -> list[UnsentRequest]:
        if self.member_state in MEMBER and self._ends_at(now) <= now:
            return [self._expire(node, now)]
        self._match_topics()
        if self._heartbeat_at() > now:
            return []
        return [self._farewell(node, now) if self.member_state is MemberState.LEAVING else self._heartbeat(node, now)]

    def _heartbeat_at(self) -> float:
        """When the next heartbeat is due, as far as time decides."""
        if self.member_state is MemberState.LEAVING:
            return NEVER if self._farewell_is_flying() else self._backoff.retry_at
        if self.member_state not in _SPEAKING or self._flying or not self._may_join():
            return NEVER
        if self.member_state in _AT_ONCE or self._told is None or not self._told.subscribes_like(self._fields()):
            return self._backoff.retry_at
        return max(self._due_at, self._backoff.retry_at)

    def _may_join(self) -> bool:
        """A pattern has to be evaluated before the group can be told topics."""
        return self._subscription is not None and (self._subscription.matches is None or self._matched_version > 0)

    def _farewell_is_flying(self) -> bool:
        return any(sent.fields is None for sent in self._flying)

    def _without_coordinator(self, now: float) -> float:
        if self.member_state is MemberState.LEAVING:
            return self._leave_without_coordinator(now)
        self.coordinator.request(now)
        error = self.coordinator.fatal
        if error is not None and error is not self._reported:
            self._reported = error
            self.host.publish_error(error)
        if self._coordinator_seen_at is None:
            self._coordinator_seen_at = now
        shown_at = self._coordinator_seen_at + self._interval  # when ``state`` calls the coordinator lost
        return shown_at if shown_at > now else NEVER

    def _leave_without_coordinator(self, now: float) -> float:
        if self._farewell_is_flying():
            return NEVER
        if now >= self._leave_until or self.coordinator.fatal is not None:
            self._left(now)
            return NEVER
        self.coordinator.request(now)
        return self._leave_until

    # --- what is said ----------------------------------------------------------------------------------------------------------

    def _match_topics(self) -> None:
        """Evaluate a pattern again when the metadata changed."""
        matches = self._subscription.matches if self._subscription is not None else None
        if matches is None or self._matched_version == self.metadata.version:
            return
        self._matched_version = self.metadata.version
        excluded = self.config.exclude_internal_topics
        described = self.metadata.topics.items()
        self._topics = tuple(sorted(name for name, topic in described if matches(name) and not (excluded and topic.internal)))

    def _fields(self) -> HeartbeatFields:
        return HeartbeatFields(
            rack_id=self.config.client_rack or None,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            assignor=self.config.group_remote_assignor,
            topics=self._topics,
            regex=(self._subscription.regex if self._subscription is not None else None) or "",
            owned=self._current.partitions,
        )

    def _heartbeat(self, node: Node, now: float) -> UnsentRequest:
        fields = self._fields()
        message = heartbeat(self._group, self._speaker(), fields, self._told)
        if self.member_state is MemberState.ACKNOWLEDGING:
            self._move(MemberInput.ACKNOWLEDGED, now)
            self._follow_target(now)
        return self._request(message, _Sent(self._incarnation, node.id, now, fields), now)

    def _farewell(self, node: Node, now: float) -> UnsentRequest:
        return self._request(farewell(self._group, self._speaker()), _Sent(self._incarnation, node.id, now, None), now)

    def _request(self, message: ConsumerGroupHeartbeatRequest, sent: _Sent, now: float) -> UnsentRequest:
        self._flying.append(sent)
        return UnsentRequest(
            message=message,
            node_id=sent.node_id,
            lane=Lane.GROUP,
            on_done=lambda outcome, at: self._answered(sent, outcome, at),
            expires_at=now + self.config.request_timeout_ms / 1000,
            last_word=sent.fields is None,
        )

    # --- what is answered ------------------------------------------------------------------------------------------------------

    def _answered(self, sent: _Sent, outcome: object, now: float) -> None:
        self._flying.remove(sent)
        error = _error_of(outcome)
        verdict = judge(error) if error is not None else None
        if error is not None and verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE):
            self.coordinator.lost(sent.node_id, error, now)  # true of the broker, whoever asked
        if sent.incarnation != self._incarnation:
            return
        if sent.fields is None:
            self._left_or_again(error, verdict, now)
        elif error is not None and verdict is not None:
            self._refused(error, verdict, now)
        elif isinstance(outcome, ConsumerGroupHeartbeatResponse):
            self._succeeded(sent, sent.fields, outcome, now)

    def _succeeded(self, sent: _Sent, fields: HeartbeatFields, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        try:
            partitions = assigned_partitions(response)
        except MalformedResponseError as error:
            self._again(error, now)
            return
        self._member_id = response.member_id or self._member_id  # version 0: the coordinator's choice
        self._epoch = response.member_epoch
        self._told = fields
        self._heard_at = sent.at
        if response.heartbeat_interval_ms > 0:
            self._interval = response.heartbeat_interval_ms / 1000
        self._due_at = sent.at + self._interval
        self._backoff.succeeded()
        if self.member_state is MemberState.JOINING:
            self._move(MemberInput.JOINED, now)
        if partitions is not None and (self._target.local_epoch == 0 or partitions != self._target.partitions):
            self._target = LocalAssignment(self._target.local_epoch + 1, partitions)
            self._follow_target(now)

    def _refused(self, error: KafkaError, verdict: Verdict, now: float) -> None:
        """Do what the verdict on an error in place of an answer asks for."""
        self._told = None
        match verdict:
            case Verdict.REDISCOVER:
                pass  # the search has a backoff of its own
            case Verdict.UNREACHABLE | Verdict.RETRY:
                self._again(error, now)
            case Verdict.REPORT:
                self._again(error, now)
                self.host.publish_error(error)
            case Verdict.FENCED:
                self._fence(error, now)
            case Verdict.GROUP_GONE if self.member_state in MEMBER:
                # It was deleted after we had been fenced, for example while this process was stopped. Joining makes it anew.
                self._fence(error, now)
            case Verdict.GROUP_GONE | Verdict.UNSUPPORTED if self.member_state is MemberState.JOINING and self.fall_back(error):
                self._end_incarnation()
                self._subscription = None
                self._move(MemberInput.FALL_BACK, now, str(error))
            case _:
                self._fail(error, now)

    def _again(self, error: KafkaError, now: float) -> None:
        self._told = None
        self._backoff.failed(now)
        self.trace(Fault(now=now, text=f"group {self._group!r}: the heartbeat failed; trying again", error=error))

    def _left_or_again(self, error: KafkaError | None, verdict: Verdict | None, now: float) -> None:
        """A farewell to a coordinator that is gone is said to the next one; any other answer means that we are out."""
        again = verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE, Verdict.RETRY) and now < self._leave_until
        if again:
            self._backoff.failed(now)
            return
        if error is not None and verdict not in (Verdict.FENCED, Verdict.GROUP_GONE):
            self.trace(Fault(now=now, text=f"group {self._group!r}: could not leave; the session will end by itself", error=error))
        self._left(now)

    def _left(self, now: float) -> None:
        self._move(MemberInput.LEFT, now)
        self._resolve_leave_calls()

    def _resolve_leave_calls(self) -> None:
        calls, self._leave_calls = self._leave_calls, []
        for call in calls:
            call.resolve(None)

    # --- the end of an incarnation ---------------------------------------------------------------------------------------------

    def _end_incarnation(self) -> frozenset[TopicPartition]:
        """Forget the group; return what the application owns or is just taking over, for it is others' now."""
        held = self.host.owned()
        if self.member_state is MemberState.ASSIGNING:
            held |= self._named(self._proposal)
        self._incarnation += 1
        self._epoch = JOIN_EPOCH
        self._asked = 0
        self._told = None
        self._heard_at = None
        self._target = self._proposal = self._current = LocalAssignment()
        self._names = {}
        self._reading.stop()
        self._backoff.succeeded()
        self._naming.succeeded()
        return held

    def _give_up(self, what: MemberInput, held: frozenset[TopicPartition], now: float, reason: str) -> None:
        """Move and have the application release ``held``; a member that holds nothing need not wait for it."""
        self._move(what, now, reason)
        if held:
            self.host.stop_fetching(held)
            self._asked = self._next_number()
            self.host.publish_revocation(self._asked, held, lost=True)
        else:
            self._move(MemberInput.REVOKED, now)

    def _fence(self, error: KafkaError, now: float) -> None:
        joining, failures = self.member_state is MemberState.JOINING, self._backoff.failures
        held = self._end_incarnation()
        if joining:  # a coordinator that refuses who has just begun would be asked without end
            self._backoff.failures = failures
            self._backoff.failed(now)
        self.trace(Fault(now=now, text=f"group {self._group!r}: not a member any more; joining again", error=error))
        self._give_up(MemberInput.FENCE, held, now, str(error))

    def _fail(self, error: KafkaError, now: float) -> None:
        held = self._end_incarnation()
        self._give_up(MemberInput.FAIL, held, now, str(error))
        self.host.publish_error(error)

    def _expire(self, node: Node, now: float) -> UnsentRequest:
        """Leave, because the application does not read: others can work on its partitions meanwhile (KIP-62)."""
        held = self._end_incarnation()
        self._expired_at = now
        text = (
            f"group {self._group!r}: left, because the application has not called a read method for max_poll_interval_ms="
            f"{self.config.max_poll_interval_ms}; it joins again when it reads. Handle less between two reads, or raise the option"
        )
        self.trace(Fault(now=now, text=text))
        request = self._farewell(node, now)
        self._incarnation += 1  # nobody waits for the answer
        self._give_up(MemberInput.EXPIRE, held, now, "max_poll_interval_ms")
        return request

    # --- the application -------------------------------------------------------------------------------------------------------

    def _watch_reading(self, now: float) -> float:
        """Warn before the poll interval strikes; return when to look again."""
        if self.member_state not in MEMBER or self._ends_at(now) == NEVER:
            return NEVER
        warning = self._reading.warning(now)
        if warning is not None:
            self.trace(Fault(now=now, text=warning))
        return self._reading.wake_at(now)

    def _ends_at(self, now: float) -> float:
        if not self._target.partitions and not self.host.owned():
            self._reading.stop()
            return NEVER
        return self._reading.ends_at(self.host.progress(), now)

    def _read_again(self, now: float) -> bool:
        progress = self.host.progress()
        if not progress.polling and progress.polled_at <= self._expired_at:
            return False
        self._move(MemberInput.READ, now)
        return True

    # --- reconciliation --------------------------------------------------------------------------------------------------------

    def _follow_target(self, now: float) -> None:
        if self._target != self._current:
            self._move(MemberInput.TARGET, now)

    def _reconcile(self, now: float) -> float:
        """Propose what can be named of the target; return when to ask for names again."""
        if self.member_state is not MemberState.RECONCILING:
            return NEVER
        names = {topic_id: self._name(topic_id) for topic_id in {topic_id for topic_id, _ in self._target.partitions}}
        known = frozenset(part for part in self._target.partitions if names[part[0]] is not None)
        if known == self._target.partitions:
            self._naming.succeeded()
            self._propose(self._target, now)
            return NEVER
        if self._naming.ready(now):
            self.metadata.request_update(now)
            self._naming.failed(now)
        if known != self._current.partitions:  # else there is nothing to do and nothing new to acknowledge (KAFKA-20145)
            self._propose(LocalAssignment(self._target.local_epoch, known), now)
            return NEVER
        return self._naming.retry_at

    def _name(self, topic_id: UUID) -> str | None:
        return self.metadata.names.get(topic_id) or self._names.get(topic_id)

    def _named(self, assignment: LocalAssignment) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(self._names[topic_id], partition) for topic_id, partition in assignment.partitions)

    def _propose(self, proposal: LocalAssignment, now: float) -> None:
        self._names = {topic_id: self._name(topic_id) or "" for topic_id in {topic_id for topic_id, _ in proposal.partitions}}
        self._proposal = proposal
        partitions = self._named(proposal)
        revoked = self.host.owned() - partitions
        if revoked:
            self.host.stop_fetching(revoked)
        self._move(MemberInput.PROPOSED, now)
        text = f"group {self._group!r}, epoch {self._epoch}: assigned {len(partitions)} partitions, of which {{}} are new"
        self.trace(Notice(now=now, text=text.format(len(partitions - self.host.owned()))))
        self._asked = self._next_number()
        self.host.publish_assignment(self._asked, partitions)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _move(self, what: MemberInput, now: float, reason: str = "") -> None:
        before = self.member_state
        self.member_state = TRANSITIONS[before, what]
        if self.member_state is not before:
            change = StateChanged(
                now=now, subject="membership", before=before.name, after=self.member_state.name, reason=reason or what.value
            )
            self.trace(change)


def _error_of(outcome: object) -> KafkaError | None:
    """Return the error that an outcome is or carries."""
    if isinstance(outcome, KafkaError):
        return outcome
    if isinstance(outcome, ConsumerGroupHeartbeatResponse):
        return for_code(outcome.error_code, outcome.error_message) if outcome.error_code else None
    return MalformedResponseError(f"a heartbeat was answered with {type(outcome).__name__}")
