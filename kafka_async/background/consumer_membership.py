"""A member of a group in the consumer protocol (KIP-848): ConsumerGroupHeartbeat and nothing else.

Decides: when a heartbeat is sent, what an answer does to the member, when the application is asked to carry an assignment out, when
its silence costs the member its place. Owns: the member's id, epoch and state (``member_state.TRANSITIONS``). Must never apply an
assignment, commit or call the application: it proposes through ``MembershipHost`` and waits for the number to come back.

What holds in every state:

- One heartbeat is in flight, and besides it one farewell at most. Each belongs to an incarnation, which ends when the member leaves
  or is fenced; an answer to an old one is ignored (KAFKA-19335).
- After any error the coordinator is told everything again, the owned partitions included: an acknowledgment that was lost repeats
  itself (KAFKA-17170).
- A new target waits while the application carries out another one.
- The coordinator being away changes nothing: member id and epoch are kept, no partition is given up.

Sources: KIP-848, KIP-1082 (member ids), KIP-345 (static members), KIP-62 (poll interval); ``ConsumerMembershipManager``,
``ConsumerHeartbeatRequestManager``.
"""

from collections.abc import Callable

from attrs import define, field

from ..config import ConsumerConfig
from ..errors import FencedInstanceIdError, KafkaError, MalformedResponseError, UnknownMemberIdError
from ..events import Call
from ..model import ConsumerState, Node, TopicPartition
from ..network import Lane, UnsentRequest
from ..trace import MEMBERSHIP, Fault, Listener, Notice, StateChanged
from ..wire import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from .group_settings import SESSION_TIMEOUT
from .heartbeat import (
    FIRST_INTERVAL,
    LONGEST_INTERVAL,
    Coordinator,
    HeartbeatFields,
    Interest,
    PollInterval,
    Verdict,
    assigned_partitions,
    error_of,
    explained,
    farewell,
    heartbeat,
    judge,
    next_heartbeat,
)
from .member_state import AT_ONCE, LEAVABLE, MEMBER, RELEASING, SHOWN, SPEAKING, TRANSITIONS, MemberInput, MemberState
from .membership import CommitFailure, Identity, MembershipHost, Subscription
from .reconciliation import Incarnation, Metadata, Reconciliation, Sent
from .request_manager import NEVER, Backoff, Poll, backoff_of


@define(eq=False)
class ConsumerMembership:
    """Implements ``Membership`` for the consumer protocol. Poll it before the manager of the coordinator."""

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
    session_timeout: Callable[[], float] = field(default=lambda: SESSION_TIMEOUT, repr=False)
    """Returns the seconds of silence after which the coordinator gives our partitions to others. Heartbeats do not tell."""

    lane: Lane = field(default=Lane.GROUP, init=False)
    member_state: MemberState = field(default=MemberState.UNSUBSCRIBED, init=False)
    _group: str = field(init=False)
    _member_id: str = field(init=False)
    _life: Incarnation = field(init=False)
    _backoff: Backoff = field(init=False)
    _reading: PollInterval = field(init=False)
    _interval: float = field(default=FIRST_INTERVAL, init=False)
    _flying: list[Sent] = field(factory=list, init=False)
    _interest: Interest = field(init=False)
    _number: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)
    """Number of the proposal that the application has still to answer; 0: none."""
    _leave_calls: list[Call[None]] = field(factory=list, init=False)
    _leave_until: float = field(default=0.0, init=False)
    _expired_at: float = field(default=0.0, init=False)
    _polled_at: float = field(default=0.0, init=False)
    _reported: KafkaError | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._group = self.config.group_id or ""
        self._member_id = self.new_member_id()
        self._backoff = backoff_of(self.config, self.random)
        self._reading = PollInterval(self.config.max_poll_interval_ms / 1000)
        self._interest = Interest(self.config.exclude_internal_topics)
        self._life = self._new_life()

    def _new_life(self) -> Incarnation:
        return Incarnation(Reconciliation(self.metadata, backoff_of(self.config, self.random)))

    # --- questions -------------------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        if self.member_state is MemberState.UNSUBSCRIBED:
            return Identity()
        return self._identity(self._life.epoch if self.member_state in MEMBER else -1)

    def _identity(self, epoch: int) -> Identity:
        instance_id = self.config.group_instance_id
        return Identity(member_id=self._member_id, generation=epoch, instance_id=instance_id, consumer_protocol=True)

    @property
    def state(self) -> ConsumerState:
        seen_at = self._life.coordinator_seen_at
        away = self.member_state in SPEAKING and self.coordinator.coordinator is None
        lost = away and seen_at is not None and self._polled_at >= seen_at + self._interval
        return ConsumerState.COORDINATOR_LOST if lost else SHOWN[self.member_state]

    @property
    def is_being_named(self) -> bool:
        return False  # we make our member id ourselves

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        return self._interest.wanted_topics

    @property
    def awaits_epoch(self) -> bool:
        return self.member_state in MEMBER or self.member_state is MemberState.JOINING

    @property
    def session_deadline(self) -> float:
        heard_at = self._life.heard_at
        return NEVER if heard_at is None else heard_at + max(self.session_timeout(), self._interval)  # brokers demand no less

    # --- what the application and the commits say ------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self._interest.subscribe(subscription)
        if self.member_state in (MemberState.LEAVING, MemberState.FATAL):
            self._end_life()  # a farewell may still be unanswered, or a revocation
        self._move(MemberInput.SUBSCRIBE, now)
        self._resolve_leave_calls()

    def leave(self, call: Call[None] | None, now: float) -> None:
        if call is not None:
            self._leave_calls.append(call)
        if self.member_state is not MemberState.LEAVING:
            # Only who has an epoch is surely known to the group, and worth a search for the coordinator.
            self._leave_until = now + self.config.request_timeout_ms / 1000 if self.member_state in MEMBER else now
            self._interest.subscribe(None)
            self._end_life()
        self._move(MemberInput.LEAVE, now)
        if self.member_state is MemberState.UNSUBSCRIBED:
            self._resolve_leave_calls()

    def revoked(self, number: int, now: float) -> None:
        if number == self._asked and self.member_state in RELEASING:
            self._asked = 0
            self._move(MemberInput.REVOKED, now)

    def assigned(self, number: int, now: float) -> None:
        if number == self._asked and self.member_state is MemberState.ASSIGNING:
            self._asked = 0
            self._life.assignments.carried_out()
            self._move(MemberInput.ASSIGNED, now)

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
        text = f"group {self._group!r}: with the consumer protocol only the coordinator makes rebalances; asked for: {reason}"
        self.trace(Notice(now=now, text=text))

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        self._polled_at = now
        if self.member_state is MemberState.AWAY and self._reads_again():
            self._move(MemberInput.READ, now)
        if self.member_state not in SPEAKING:
            return Poll(wake_at=self._quiet_until(now))
        node = self.coordinator.coordinator
        ends_at = self._reading_ends_at(now) if self.member_state in MEMBER else NEVER
        requests: tuple[UnsentRequest, ...] = ()
        if node is None:
            wake_at = self._without_coordinator(now)
        elif ends_at <= now:
            requests, wake_at = (self._expire(node, now),), self._quiet_until(now)
        else:
            self._life.coordinator_seen_at = now
            requests, wake_at = self._speak(node, now)
        return Poll(requests, min(wake_at, self._reconcile(now), self._watch_reading(now)))

    def poll_on_close(self, now: float) -> Poll:
        """Leave, if there is anything to leave and a broker to say it to: there is no time for a search any more."""
        node = self.coordinator.coordinator or self.coordinator.latest
        if self.member_state not in LEAVABLE or node is None or self._farewell_is_flying():
            return Poll()
        self.leave(None, now)
        return Poll((self._farewell(node, now),))

    def _quiet_until(self, now: float) -> float:
        """While AWAY, look after the application from time to time: a read call need not make an event."""
        return now + self._interval if self.member_state is MemberState.AWAY else NEVER

    def _speak(self, node: Node, now: float) -> tuple[tuple[UnsentRequest, ...], float]:
        """Return what is due to be said, and when the next is."""
        self._interest.follow(self.metadata.version, self.metadata.topics)
        due_at = self._heartbeat_at()
        if due_at > now:
            return (), due_at
        request = self._farewell(node, now) if self.member_state is MemberState.LEAVING else self._heartbeat(node, now)
        return (request,), NEVER  # until it is answered

    def _heartbeat_at(self) -> float:
        """When the next heartbeat is due, as far as time decides."""
        if self.member_state is MemberState.LEAVING:
            return NEVER if self._farewell_is_flying() else self._backoff.retry_at
        if self._flying or not self._interest.known:
            return NEVER
        told = self._life.told
        if self.member_state in AT_ONCE or told is None or not self._interest.is_told(told):
            return self._backoff.retry_at
        return max(self._life.due_at, self._backoff.retry_at)

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
        if self._life.coordinator_seen_at is None:
            self._life.coordinator_seen_at = now
        shown_at = self._life.coordinator_seen_at + self._interval  # when ``state`` calls the coordinator lost
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
        message = heartbeat(self._group, self._identity(self._life.epoch), fields, self._life.told)
        if self.member_state is MemberState.ACKNOWLEDGING:
            self._move(MemberInput.ACKNOWLEDGED, now)
            self._follow_target(now)
        return self._request(message, Sent(self._life, node.id, now, fields), now)

    def _farewell(self, node: Node, now: float) -> UnsentRequest:
        message = farewell(self._group, self._member_id, self.config.group_instance_id)
        return self._request(message, Sent(self._life, node.id, now, None), now)

    def _request(self, message: ConsumerGroupHeartbeatRequest, sent: Sent, now: float) -> UnsentRequest:
        self._flying.append(sent)
        return UnsentRequest(
            message=message,
            node_id=sent.node_id,
            lane=self.lane,
            on_done=lambda outcome, at: self._answered(sent, outcome, at),
            expires_at=now + self.config.request_timeout_ms / 1000,
            last_word=sent.fields is None,
        )

    # --- what is answered ------------------------------------------------------------------------------------------------------

    def _answered(self, sent: Sent, outcome: object, now: float) -> None:
        self._flying.remove(sent)
        error = error_of(outcome, self.config.group_id)
        verdict = judge(error) if error is not None else None
        if verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE):
            self.coordinator.lost(sent.node_id, error, now)  # that is true of the broker, whichever incarnation asked
        if sent.incarnation is not self._life:
            return
        if sent.fields is None:
            self._answered_farewell(error, verdict, now)
        elif error is not None and verdict is not None:
            self._life.told = None
            self._refused(error, verdict, now)
        elif isinstance(outcome, ConsumerGroupHeartbeatResponse):
            self._succeeded(sent.at, sent.fields, outcome, now)

    def _succeeded(self, sent_at: float, fields: HeartbeatFields, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        try:
            partitions = assigned_partitions(response)
        except MalformedResponseError as error:
            self._life.told = None
            self._again(error, now)
            return
        self._member_id = response.member_id or self._member_id  # in version 0 the coordinator may choose it
        self._life.epoch = response.member_epoch
        self._life.told = fields
        self._life.heard_at = sent_at
        if response.heartbeat_interval_ms > 0:
            self._interval = min(response.heartbeat_interval_ms / 1000, LONGEST_INTERVAL)
        self._backoff.succeeded()
        if self.member_state is MemberState.JOINING:
            self._life.joined_at = sent_at
            self._move(MemberInput.JOINED, now)
        if partitions is not None:
            self._life.assignments.receive(partitions)
            self._follow_target(now)
        # What we are to get may still be somebody else's, who gives it up soon; nobody tells us when but the next heartbeat.
        waits_since = -NEVER if self._life.assignments.target.partitions else self._life.joined_at
        self._life.due_at = next_heartbeat(sent_at, self._interval, waits_since)

    def _refused(self, error: KafkaError, verdict: Verdict, now: float) -> None:
        """Do what the verdict on an error in place of an answer asks for."""
        joining = self.member_state is MemberState.JOINING
        match verdict:
            case Verdict.REDISCOVER:
                pass  # the search has a backoff of its own
            case Verdict.UNREACHABLE:
                self._backoff.failed(now)  # the search says what happened
            case Verdict.RETRY:
                self._again(error, now)
            case Verdict.REPORT:
                self._again(error, now)
                self.host.publish_error(error)
            case Verdict.FENCED:
                self._fence(error, now)
            case Verdict.GROUP_GONE if not joining:
                # It was deleted after we had been fenced, say while this process was stopped. Joining makes it anew.
                self._fence(error, now)
            case Verdict.GROUP_GONE | Verdict.UNSUPPORTED if joining:
                self._fall_back_or_fail(error, now)
            case _:
                self._fail(error, now)

    def _again(self, error: KafkaError, now: float) -> None:
        self._backoff.failed(now)
        self.trace(Fault(now=now, text=f"group {self._group!r}: the heartbeat failed; trying again", error=error))

    def _answered_farewell(self, error: KafkaError | None, verdict: Verdict | None, now: float) -> None:
        """A farewell that did not arrive is said once more, while there is time; any other answer means that we are out."""
        if verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE, Verdict.RETRY) and now < self._leave_until:
            self._backoff.failed(now)
            return
        if error is not None and verdict not in (Verdict.FENCED, Verdict.GROUP_GONE):
            self.trace(Fault(now=now, text=f"group {self._group!r}: could not leave; the session ends by itself", error=error))
        self._left(now)

    def _left(self, now: float) -> None:
        self._move(MemberInput.LEFT, now)
        self._resolve_leave_calls()

    def _resolve_leave_calls(self) -> None:
        calls, self._leave_calls = self._leave_calls, []
        for call in calls:
            call.resolve(None)

    # --- the end of an incarnation ---------------------------------------------------------------------------------------------

    def _end_life(self) -> frozenset[TopicPartition]:
        """Forget the group; return what the application owns or is just taking over."""
        held = self.host.owned()
        if self.member_state is MemberState.ASSIGNING:
            held |= self._life.assignments.proposed
        self._life = self._new_life()
        self._reading.stop()
        return held

    def _give_up(self, what: MemberInput, held: frozenset[TopicPartition], now: float, reason: str) -> None:
        """Move and have the application release ``held``; who holds nothing need not wait for it."""
        self._move(what, now, reason)
        if held:
            self.host.stop_fetching(held)
            self.host.publish_revocation(self._ask(), held, lost=True)
        else:
            self._move(MemberInput.REVOKED, now)

    def _fence(self, error: KafkaError, now: float) -> None:
        if self.member_state is MemberState.JOINING:
            self._backoff.failed(now)  # a coordinator that fences who has just come would be asked without end
        held = self._end_life()
        self.trace(Fault(now=now, text=f"group {self._group!r}: not a member any more; joining again", error=error))
        self._give_up(MemberInput.FENCE, held, now, str(error))

    def _fail(self, error: KafkaError, now: float) -> None:
        held = self._end_life()
        self._give_up(MemberInput.FAIL, held, now, str(error))
        self.host.publish_error(error)

    def _fall_back_or_fail(self, error: KafkaError, now: float) -> None:
        if not self.fall_back(error):
            self._fail(explained(error, self._group), now)
            return
        self._end_life()
        self._interest.subscribe(None)
        self._move(MemberInput.FALL_BACK, now, str(error))

    def _expire(self, node: Node, now: float) -> UnsentRequest:
        """Leave, because the application does not read: others can work on its partitions meanwhile (KIP-62)."""
        request = self._farewell(node, now)
        held = self._end_life()  # after the farewell: nobody waits for its answer
        self._expired_at = now
        text = (
            f"group {self._group!r}: left, because the application has not called a read method for max_poll_interval_ms="
            f"{self.config.max_poll_interval_ms}; it joins again when it reads. Handle less between two reads, or raise the option"
        )
        self.trace(Fault(now=now, text=text))
        self._give_up(MemberInput.EXPIRE, held, now, "max_poll_interval_ms")
        return request

    # --- the application -------------------------------------------------------------------------------------------------------

    def _watch_reading(self, now: float) -> float:
        """Warn before the poll interval strikes; return when to look again."""
        warning = self._reading.warning(now)
        if warning is not None:
            self.trace(Fault(now=now, text=f"group {self._group!r}: {warning}"))
        return self._reading.wake_at(now)

    def _reading_ends_at(self, now: float) -> float:
        if not self._life.assignments.target.partitions and not self.host.owned():
            self._reading.stop()
            return NEVER
        return self._reading.ends_at(self.host.progress(), now)

    def _reads_again(self) -> bool:
        progress = self.host.progress()
        return progress.polling or progress.polled_at > self._expired_at

    def _follow_target(self, now: float) -> None:
        if not self._life.assignments.is_done:
            self._move(MemberInput.TARGET, now)

    def _reconcile(self, now: float) -> float:
        """Ask the application for the target, as far as it can be named; return when to ask for names again."""
        if self.member_state is not MemberState.RECONCILING:
            return NEVER
        partitions = self._life.assignments.propose(now)
        if partitions is None:
            return self._life.assignments.wake_at
        owned = self.host.owned()
        if owned - partitions:
            self.host.stop_fetching(owned - partitions)
        self._move(MemberInput.PROPOSED, now)
        counts = f"{len(partitions)} partitions, {len(partitions - owned)} of them new"
        self.trace(Notice(now=now, text=f"group {self._group!r}, epoch {self._life.epoch}: assigned {counts}"))
        self.host.publish_assignment(self._ask(), partitions)
        return NEVER

    def _ask(self) -> int:
        """Return the number by which the application answers what it is asked now."""
        self._number += 1
        self._asked = self._number
        return self._number

    def _move(self, what: MemberInput, now: float, reason: str = "") -> None:
        before = self.member_state
        self.member_state = after = TRANSITIONS[before, what]
        if after is not before:
            reason = reason or what.value
            self.trace(StateChanged(now=now, subject=MEMBERSHIP, before=before.name, after=after.name, reason=reason))
