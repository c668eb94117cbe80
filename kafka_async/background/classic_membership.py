"""A member of a group in the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Decides: when each request is sent, what its answer does to the member, when a silent application costs it its place. Owns: the
exchange that is under way, the heartbeat, and the leader's work while it leads. Must never apply an assignment, commit or call the
application: it proposes through ``MembershipHost`` and waits for the number to come back.

The state is ``classic_states.TRANSITIONS``. What holds in every state:

- One JoinGroup or SyncGroup is in flight, and one heartbeat besides at most. An answer to a request of an earlier state or identity
  is ignored.
- Partitions are lost only when the coordinator says so, or when we leave because the application does not read. While the
  coordinator is away, member id and generation are kept and used again: without them the group would wait for our ghost.
- Whether subscription and topics are still those of the generation is compared, not remembered, once the member is stable.
- While a JoinGroup waits, for the slowest member if need be, the coordinator reads nothing else from its connection. Commits,
  offset fetches and the farewell take another one then (``lane``).

Sources: KIP-62, 345, 394, 429, 559, 792, 800, 814; Java's ``AbstractCoordinator`` and ``ConsumerCoordinator``.
"""

from collections.abc import Callable
from typing import Final

from attrs import define, evolve, field

from ..errors import (
    InconsistentGroupProtocolError,
    KafkaConfigurationError,
    KafkaError,
    MalformedResponseError,
    for_code,
)
from ..events import Call
from ..model import Node
from ..network import Lane, UnsentRequest
from ..trace import Fault, Notice
from ..wire import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from ..wire.messages import SyncGroupRequestAssignment
from .assignment import RebalanceProtocol
from .classic_leader import Leadership, read_assignment
from .classic_member import ClassicMember
from .classic_requests import PROTOCOL_TYPE, heartbeat, join, leave, offers, says_goodbye, sync
from .classic_states import HEARTBEATING, ClassicInput, ClassicState, Verdict, judge
from .heartbeat import PollInterval, next_heartbeat
from .membership import Identity, Subscription
from .request_manager import NEVER, Poll, RequestState

_S, _I = ClassicState, ClassicInput
_EXPELLED: Final = (Verdict.UNKNOWN_MEMBER, Verdict.OLD_GENERATION)


@define(eq=False, kw_only=True)
class ClassicMembership(ClassicMember):
    """Implements ``Membership``."""

    _plan: tuple[SyncGroupRequestAssignment, ...] = field(default=(), init=False)
    """The leader's work, to be sent with the SyncGroup."""
    _beat_at: float = field(default=0.0, init=False)
    """When the next heartbeat is due."""
    _synced_at: float = field(default=-NEVER, init=False)
    """When a cooperative generation began, of which the next one may follow at once."""
    _parting: Identity = field(default=Identity(), init=False)
    """LEAVING: who leaves."""
    _parting_lane: Lane = field(default=Lane.GROUP, init=False)
    _outbox: list[UnsentRequest] = field(factory=list, init=False)
    _asked: Node | None = field(default=None, init=False)
    """Who got the JoinGroup or SyncGroup."""
    _interval: PollInterval = field(init=False)
    _told: KafkaError | None = field(default=None, init=False)
    """The coordinator's fatal error that the application knows."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._interval = PollInterval(self.config.max_poll_interval_ms / 1000)

    # --- what the application asks for -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join with this subscription, or have the group rebalance because it changed."""
        if subscription.regex is not None:
            self._fail(KafkaConfigurationError("a SubscriptionPattern needs group_protocol='consumer' and Kafka 4.0"), now)
            return
        self._subscription = subscription
        self._metadata_from = self.metadata.version if subscription.matches is not None else -1
        self._compared = -1
        self.metadata.request_update(now)
        held = self._held()
        if self._state is _S.FATAL and held:
            self._lose("subscribed again after a fatal error", now)
        else:
            self._move(_I.SUBSCRIBE, now)

    def leave(self, call: Call[None] | None, now: float) -> None:
        """Leave the group; a static member stays in it until its session ends (KIP-345)."""
        self._subscription = None
        if call is not None:
            self._leave_calls.append(call)
        if self._state is _S.LEAVING:
            return
        timeout = now + self.config.request_timeout_ms / 1000
        until = timeout if call is None else min(timeout, call.deadline)
        self._parting = self._identity
        self._parting_lane = self.lane
        self._leadership = None
        self._become(Identity(instance_id=self.config.group_instance_id))
        self._reason = "the consumer unsubscribed from all topics"
        self._move(_I.LEAVE, now)
        self._until = until
        if not says_goodbye(self._parting):
            self._left(now)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return what is due: one exchange or one heartbeat, and a farewell if the application was silent for too long."""
        self._compare(now)
        wake_at = self._watch_application(now)
        request, due_at = self._next(now)
        requests = (*self._outbox, request) if request is not None else tuple(self._outbox)
        self._outbox.clear()
        return Poll(requests, min(wake_at, due_at))

    def poll_on_close(self, now: float) -> Poll:
        """Return the LeaveGroup of a dynamic member. It must follow the last commits on the connection that they share."""
        leaving = self._state is _S.LEAVING
        who = self._parting if leaving else self._identity
        node = self.coordinator.coordinator or self.coordinator.latest
        if node is None or not says_goodbye(who) or (leaving and self._exchange.in_flight):
            return Poll()
        lane = self._parting_lane if leaving else self.lane
        self._parting = Identity(instance_id=self.config.group_instance_id)
        self._become(self._parting)
        return Poll((leave(self.config, who, "the consumer is being closed", node, now, lane=lane, on_done=_ignored),))

    @property
    def is_being_named(self) -> bool:
        """See ``Membership``."""
        return self._state is _S.JOINING and self._exchange.in_flight and not self._identity.member_id

    def _next(self, now: float) -> tuple[UnsentRequest | None, float]:
        match self._state:
            case _S.JOINING if self.metadata.version > self._metadata_from:
                return self._next_exchange(self._join, now)
            case _S.LEADING:
                return self._next_plan(now)
            case _S.SYNCING:
                return self._next_exchange(self._sync, now)
            case _S.LEAVING:
                return self._next_leave(now)
            case state if state in HEARTBEATING:
                return self._next_heartbeat(now)
        return None, NEVER

    def _next_exchange(self, make: Callable[[Node, float], UnsentRequest | None], now: float) -> tuple[UnsentRequest | None, float]:
        if self._exchange.in_flight:
            return None, NEVER
        node = self._node(now)
        if node is None or not self._exchange.may_send(now):
            return None, self._exchange.wake_at() if node is not None else NEVER
        request = make(node, now)
        if request is None:
            return None, self._exchange.wake_at()
        self._exchange.sent()
        self._asked = node
        return request, NEVER

    def _node(self, now: float) -> Node | None:
        """Return the coordinator; ask for it where it is unknown, and tell the application why it cannot be had."""
        node = self.coordinator.coordinator
        if node is None:
            self.coordinator.request(now)
            fatal = self.coordinator.fatal
            if fatal is not None and fatal is not self._told:
                self.host.publish_error(fatal)
            self._told = fatal
        return node

    def _watch_application(self, now: float) -> float:
        """Leave if the application has not read for ``max_poll_interval_ms``; return when to look again."""
        if self._state not in HEARTBEATING or not self._held():
            self._interval.stop()
            return NEVER
        ends_at = self._interval.ends_at(self.host.progress(), now)
        if now >= ends_at:
            self._interval.stop()
            self._give_place_up(now)
            return NEVER
        text = self._interval.warning(now)
        if text is not None:
            self.trace(Fault(now=now, text=text))
        return self._interval.wake_at(now)

    def _give_place_up(self, now: float) -> None:
        text = f"the application has not read for {self.config.max_poll_interval_ms} ms (max_poll_interval_ms)"
        self.trace(Fault(now=now, text=f"{text}; leaving group {self.config.group_id!r} until it does"))
        node = self.coordinator.coordinator
        if node is not None and says_goodbye(self._identity):
            self._outbox.append(leave(self.config, self._identity, text, node, now, lane=Lane.GROUP, on_done=_ignored))
        self._expelled(Verdict.UNKNOWN_MEMBER, text, now)

    # --- joining ---------------------------------------------------------------------------------------------------------------

    def _join(self, node: Node, now: float) -> UnsentRequest | None:
        """Return the one JoinGroup that lists all assignors."""
        topics = self._topics()
        try:
            protocols = offers(self.assignors, topics, self._held(), self._identity.generation, self.config.client_rack)
        except Exception as error:  # the boundary to the user's code
            self._stumbled("an assignor failed", error, now)
            return None
        self._joined_topics = topics
        turn = self._turn
        request = join(
            self.config,
            self._identity,
            protocols,
            self._reason,
            node,
            now,
            on_done=lambda outcome, at: self._joined(turn, outcome, at),
            withdrawn=lambda: turn != self._turn,
        )
        self._until = request.expires_at
        return request

    def _joined(self, turn: int, outcome: JoinGroupResponse | KafkaError, now: float) -> None:
        if turn != self._turn:
            return
        if isinstance(outcome, KafkaError):
            self._failed(outcome, now)
        elif outcome.error_code:
            self._failed(self._error(outcome.error_code), now, named=outcome.member_id)
        elif outcome.generation_id < 0 or not outcome.member_id:
            self._failed(MalformedResponseError(f"JoinGroup gave generation {outcome.generation_id} to {outcome.member_id!r}"), now)
        else:
            self._take_generation(outcome, now)

    def _take_generation(self, response: JoinGroupResponse, now: float) -> None:
        chosen = next((assignor for assignor in self.assignors if assignor.name == response.protocol_name), None)
        if chosen is None or response.protocol_type not in (None, PROTOCOL_TYPE):
            text = f"the group speaks {response.protocol_name!r} of type {response.protocol_type!r}"
            self._fail(InconsistentGroupProtocolError(f"{text}; this member offers {[a.name for a in self.assignors]}"), now)
            return
        leads = response.leader == response.member_id
        try:
            self._leadership = Leadership.of(response) if leads else None
        except KafkaError as error:
            self._stumbled("a member's subscription cannot be read", error, now)
            return
        self._exchange.succeeded()
        self._heard_at = now
        self._assignor = chosen
        self._become(evolve(self._identity, member_id=response.member_id, generation=response.generation_id))
        self._plan = ()
        self._until = now + min(self.config.request_timeout_ms, self.config.session_timeout_ms / 3) / 1000
        self._move(_I.LED if leads else _I.FOLLOWED, now)
        if leads:
            self.metadata.request_update(now)
        role = f"leader of {len(response.members)} members" if leads else "member"
        text = f"joined group {self.config.group_id!r} as {role}: generation {response.generation_id}, assignor {chosen.name!r}"
        self.trace(Notice(now=now, text=text))

    def _next_plan(self, now: float) -> tuple[UnsentRequest | None, float]:
        """Divide the partitions as soon as the topics are known; what is not known in time makes the group rebalance later."""
        leadership = self._leadership
        if leadership is None or (now < self._until and not leadership.is_informed(self.metadata)):
            return None, self._until
        try:
            self._plan = leadership.plan(self._assignor, self._protocol, self.metadata)
        except Exception as error:  # the boundary to the user's code
            self._stumbled(f"assignor {self._assignor.name!r} failed", error, now)
        else:
            self._move(_I.PLANNED, now)
        return self._next(now)

    def _sync(self, node: Node, now: float) -> UnsentRequest:
        turn = self._turn
        request = sync(
            self.config,
            self._identity,
            self._assignor.name,
            self._plan,
            node,
            now,
            on_done=lambda outcome, at: self._synced(turn, outcome, at),
            withdrawn=lambda: turn != self._turn,
        )
        self._until = request.expires_at
        return request

    def _synced(self, turn: int, outcome: SyncGroupResponse | KafkaError, now: float) -> None:
        if turn != self._turn:
            return
        if isinstance(outcome, KafkaError) or outcome.error_code:
            self._failed(outcome if isinstance(outcome, KafkaError) else self._error(outcome.error_code), now)
            return
        try:
            partitions = read_assignment(outcome.assignment)
            self._assignor.on_assignment(partitions, self._identity.generation)
        except Exception as error:  # another client's leader, and the boundary to the user's code
            self._stumbled(f"the assignment of {self._assignor.name!r} cannot be used", error, now)
            return
        self._heard_at = now
        # In a cooperative group the members that give something up join again at once, and the others have to follow (KIP-429).
        self._synced_at = now if self._protocol is RebalanceProtocol.COOPERATIVE else -NEVER
        self._beat_at = self._next_beat(now)
        if self._topics() != self._joined_topics:
            self._reason = "the subscription has changed"
            self._move(_I.REJOIN, now)
        else:
            self._propose(partitions, now)

    # --- staying ---------------------------------------------------------------------------------------------------------------

    def _next_heartbeat(self, now: float) -> tuple[UnsentRequest | None, float]:
        beat = self._heartbeat
        if beat.in_flight or now < self._beat_at or not beat.backoff.ready(now):
            return None, NEVER if beat.in_flight else max(self._beat_at, beat.wake_at())
        node = self._node(now)
        if node is None:
            return None, NEVER
        beat.sent()
        self._beat_at = self._next_beat(now)
        request = heartbeat(
            self.config,
            self._identity,
            node,
            now,
            on_done=lambda outcome, at: self._beaten(beat, node, outcome, at),
            withdrawn=lambda: beat is not self._heartbeat,
        )
        return request, NEVER

    def _next_beat(self, now: float) -> float:
        return next_heartbeat(now, self.config.heartbeat_interval_ms / 1000, self._synced_at)

    def _beaten(self, beat: RequestState, node: Node, outcome: HeartbeatResponse | KafkaError, now: float) -> None:
        if beat is not self._heartbeat:
            return  # we are somebody else by now
        error = outcome if isinstance(outcome, KafkaError) else self._error(outcome.error_code) if outcome.error_code else None
        verdict = judge(error) if error is not None else Verdict.REBALANCING
        if verdict is Verdict.REBALANCING:
            beat.succeeded()
            self._heard_at = now
            if error is not None:
                self._overtake("the group is rebalancing", now)
            return
        beat.failed(now)
        self._beat_at = now
        if error is not None and self._state in HEARTBEATING:  # elsewhere the exchange that is under way finds out by itself
            self._act_on(verdict, error, beat, node, now)

    # --- leaving ---------------------------------------------------------------------------------------------------------------

    def _next_leave(self, now: float) -> tuple[UnsentRequest | None, float]:
        if now >= self._until:
            self._left(now)
            return self._next(now)
        node = None if self._exchange.in_flight else self._node(now)
        if node is None:
            return None, self._until
        self._exchange.sent()
        turn = self._turn

        def answered(outcome: object, at: float) -> None:
            if turn == self._turn:
                self._left(at)

        lane = self._parting_lane
        return leave(self.config, self._parting, self._reason, node, now, lane=lane, on_done=answered), self._until

    def _left(self, now: float) -> None:
        """Whatever the answer was: who is not known any more has left, and the session ends for who could not say so."""
        self._move(_I.LEFT, now)
        self._resolve_leave_calls()
        if self._subscription is not None:
            self._move(_I.SUBSCRIBE, now)

    # --- what errors do --------------------------------------------------------------------------------------------------------

    def _error(self, code: int) -> KafkaError:
        return for_code(code, group=self.config.group_id)

    def _failed(self, error: KafkaError, now: float, *, named: str = "") -> None:
        """A JoinGroup or SyncGroup failed; a SyncGroup is not repeated, the member joins again."""
        verdict = judge(error)
        fresh = not self._identity.member_id
        self._exchange.failed(now)
        if verdict is Verdict.NAMED and named and fresh:
            self._exchange.succeeded()
            self._become(evolve(self._identity, member_id=named))
            self._reason = f"back with the member id {named}"
        elif not fresh and (verdict in _EXPELLED or (verdict is Verdict.REBALANCING and self._state is _S.SYNCING)):
            self._exchange.succeeded()  # join again at once
        self._act_on(verdict, error, self._exchange, self._asked, now)
        if self._state is _S.SYNCING:
            self._reason = f"SyncGroup failed: {type(error).__name__}"
            self._move(_I.REJOIN, now)

    def _act_on(self, verdict: Verdict, error: KafkaError, request: RequestState, asked: Node | None, now: float) -> None:
        match verdict:
            case Verdict.UNKNOWN_MEMBER | Verdict.OLD_GENERATION:
                self._expelled(verdict, verdict.value, now)
            case Verdict.FATAL:
                self._fail(error, now)
            case Verdict.REPORT:
                request.backoff.retry_at = now + request.backoff.limit
                self.host.publish_error(error)
            case Verdict.REDISCOVER:
                if asked is not None:
                    self.coordinator.lost(asked.id, error, now)
                self.coordinator.request(now)
            case Verdict.RETRY:
                text = f"the coordinator of group {self.config.group_id!r} cannot answer yet; trying again"
                self.trace(Fault(now=now, text=text, error=error))
            case Verdict.REBALANCING | Verdict.NAMED:
                pass


def _ignored(outcome: object, now: float) -> None:
    """Nobody waits for the answer: the session ends for who could not say goodbye."""
