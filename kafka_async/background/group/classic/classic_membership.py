"""A member of a group in the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

It proposes assignments, and waits for the number to come back: the application applies them.

The state is ``states.TRANSITIONS``. What holds in every state:

- One JoinGroup or SyncGroup is in flight, and one heartbeat besides at most. An answer to a request of an earlier state or identity
  is ignored.
- Partitions are lost only when the coordinator refuses us, or when we leave because the application does not read. While the
  coordinator is away, member id and generation are kept and used again: without them the group would wait for a member that is
  gone.
- Whether subscription and topics are still those of the generation is compared, not remembered, once the member is stable.
- While a JoinGroup waits, for the slowest member if need be, the coordinator reads nothing else from its connection. Commits,
  offset fetches and the leave request take another one then (``channel``), as do heartbeats of a member that holds partitions
  meanwhile (KIP-429). A JoinGroup that was sent does not prove that the coordinator counts us as a member: our session may have
  been over when it arrived, or it never did.

Sources: KIP-62, 345, 394, 429, 559, 792, 800, 814; Java's ``AbstractCoordinator`` and ``ConsumerCoordinator``.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ....config import ConsumerConfig
from ....errors import (
    LONGEST_REASON,
    FencedInstanceIdError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaConfigurationError,
    KafkaError,
    MalformedResponseError,
    for_code,
    shown,
)
from ....events import Call
from ....model import ConsumerState, Node, TopicPartition
from ....network import Channel, UnsentRequest
from ....trace import Fault, Listener, Notice, Recovered
from ....values import define, evolve, field
from ....wire import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from ...loop.request_manager import NEVER, Poll, RequestState, backoff_of
from ...positions.subscription import Subscription
from ..heartbeat import NOT_HEARD, OUT, PollInterval, Verdict, judge
from ..lookup import CoordinatorLookup
from ..membership import CommitFailure, CoordinatorAccess, Identity, MembershipHost
from ..parting import MembershipParting
from ..proposals import Proposals
from .assignment import NO_GENERATION, Assignor
from .coordinator_request import CoordinatorRequest
from .division import Division
from .leader import MembershipMetadata
from .member_topics import MemberTopics
from .requests import describe, heartbeat, join, leave, must_leave, sync
from .session import MemberSession
from .states import HEARTBEATING, NOT_OURS, PROPOSING, ClassicInput, ClassicStanding, ClassicState

if TYPE_CHECKING:
    from ....wire.messages.admin import DescribeGroupsResponse

_S, _I = ClassicState, ClassicInput


_ANSWERS: Final = "answers of the coordinator"
"""The outage until a JoinGroup or a heartbeat is answered."""


@define(eq=False, kw_only=True)
class ClassicMembership:
    """Implements ``Membership``."""

    config: ConsumerConfig
    trace: Listener = field(repr=False)
    host: MembershipHost = field(repr=False)
    _lookup: CoordinatorLookup
    _standing: ClassicStanding
    _member_topics: MemberTopics
    _division: Division
    _session: MemberSession
    _coordinator_request: CoordinatorRequest
    """JoinGroup, SyncGroup, LeaveGroup."""
    _proposals: Proposals
    _interval: PollInterval
    _parting: MembershipParting = field(factory=MembershipParting, init=False)
    _look: RequestState
    """DescribeGroups."""
    _outbox: list[UnsentRequest] = field(factory=list, init=False)

    @classmethod
    def of(
        cls,
        *,
        config: ConsumerConfig,
        coordinator: CoordinatorAccess,
        metadata: MembershipMetadata,
        host: MembershipHost,
        assignors: tuple[Assignor, ...],
        random: Callable[[], float],
        trace: Listener,
    ) -> "ClassicMembership":
        """Return a member with all its parts. ``assignors`` are best first, and this consumer's alone (``assignors_from``)."""
        lookup = CoordinatorLookup(coordinator, host)
        return cls(
            config=config,
            trace=trace,
            host=host,
            lookup=lookup,
            standing=ClassicStanding(trace),
            member_topics=MemberTopics(metadata, config.exclude_internal_topics),
            division=Division(assignors, metadata, config.client_rack),
            session=MemberSession(config, random),
            coordinator_request=CoordinatorRequest(lookup, RequestState(backoff_of(config, random))),
            proposals=Proposals(host),
            interval=PollInterval(config.max_poll_interval_ms / 1000),
            look=RequestState(backoff_of(config, random)),
        )

    # --- what others want to know ----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return self._session.identity

    @property
    def failure(self) -> KafkaError | None:
        return self._standing.failure

    @property
    def channel(self) -> Channel:
        """``GROUP``, but while a JoinGroup or SyncGroup waits there for the other members."""
        return Channel.MAIN if self._waits else Channel.GROUP

    @property
    def state(self) -> ConsumerState:
        match self._standing.state:
            case _S.FATAL:
                return ConsumerState.FATAL
            case _S.LEAVING if self._member_topics.subscription is not None:
                return ConsumerState.JOINING  # when it has left
            case _S.UNSUBSCRIBED | _S.LEAVING:
                return ConsumerState.STEADY
            case _S.STABLE:
                return ConsumerState.STEADY if self._lookup.known is not None else ConsumerState.COORDINATOR_LOST
            case _S.JOINING if self._session.identity.generation == NO_GENERATION:
                return ConsumerState.JOINING
        return ConsumerState.REBALANCING

    @property
    def is_leaving(self) -> bool:
        return self._standing.state is _S.LEAVING

    @property
    def is_being_named(self) -> bool:
        """See ``Membership``."""
        return self._standing.state is _S.JOINING and self._coordinator_request.in_flight and not self._session.identity.member_id

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """See ``Membership``."""
        subscription = self._member_topics.subscription
        return subscription.topics if subscription is not None else frozenset()

    @property
    def group_topics(self) -> frozenset[str]:
        """See ``Membership``."""
        return self._division.topics if self._member_topics.subscription is not None else frozenset()

    @property
    def awaits_epoch(self) -> bool:
        """Whether a new generation is on its way."""
        return self._standing.state in (_S.JOINING, _S.LEADING, _S.SYNCING)

    @property
    def is_denied(self) -> bool:
        """See ``Membership``."""
        return self._standing.is_denied

    @property
    def session_deadline(self) -> float:
        """See ``Membership`` and ``MemberSession.deadline``."""
        return self._session.deadline

    @property
    def _waits(self) -> bool:
        """A JoinGroup or SyncGroup waits at the coordinator for the other members."""
        return self._standing.state in (_S.JOINING, _S.SYNCING) and self._coordinator_request.in_flight

    # --- what the application asks for -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join with this subscription, or have the group rebalance because it changed."""
        if subscription.regex is not None:
            self._fail(KafkaConfigurationError("a SubscriptionPattern needs group_protocol='consumer' and Kafka 4.0"), now)
            return
        self._member_topics.subscribe(subscription, now)
        if self._standing.state is _S.FATAL and self._proposals.held:
            self._lose("subscribed again after a fatal error", now)
        else:
            self._move(_I.SUBSCRIBE, now)

    def leave(self, call: Call[None] | None, now: float) -> None:
        """Leave the group; a static member stays in it until its session ends (KIP-345)."""
        self._member_topics.subscription = None
        self._parting.wait(call)
        if self._standing.state is _S.LEAVING:
            return
        timeout = now + self.config.request_timeout_ms / 1000
        self._parting.until = timeout if call is None else min(timeout, call.deadline)
        self._parting.who, self._parting.channel = self._session.identity, self.channel
        self._division.forget()
        self._proposals.forget_generation()
        self._session.become(Identity(instance_id=self.config.group_instance_id))
        self._standing.is_denied = False
        self._standing.reason = "the consumer unsubscribed from all topics"
        self._move(_I.LEAVE, now)
        self._coordinator_request.request.succeeded()  # the backoff was that of another request
        if not must_leave(self._parting.who):
            self._left(now)

    def revoked(self, number: int, now: float) -> None:
        if self._proposals.is_answer(number) and self._standing.state in (_S.REVOKING, _S.LOSING):
            self._move(_I.REVOKED, now)

    def assigned(self, number: int, now: float) -> None:
        if not self._proposals.is_answer(number) or self._standing.state not in (_S.ASSIGNING, _S.OVERTAKEN):
            return
        self._proposals.taken_over()
        if self._standing.state is _S.OVERTAKEN:
            self._rebalance(self._standing.reason, now)
        else:
            self._member_topics.compare_anew()
            self._move(_I.ASSIGNED, now)

    def refused(self, failure: CommitFailure, identity: Identity, now: float) -> None:
        """A commit was refused; in JOINING, LEADING and SYNCING our own request brings the news."""
        if identity != self._session.identity or self._standing.state not in HEARTBEATING:
            return
        match failure:
            case CommitFailure.UNKNOWN_MEMBER:
                self._thrown_out(Verdict.UNKNOWN_MEMBER, f"a commit found that {failure.value}", now)
            case CommitFailure.ILLEGAL_GENERATION:
                self._thrown_out(Verdict.OLD_GENERATION, f"a commit found that {failure.value}", now)
            case CommitFailure.FENCED_INSTANCE:
                self._fail(FencedInstanceIdError(), now)
            case CommitFailure.REBALANCING:
                self._overtake("a commit found the group rebalancing", now)

    def enforce_rebalance(self, reason: str, now: float) -> None:
        """Join again (KIP-568). A rebalance that is under way already is enough."""
        self._overtake(reason or "rebalance enforced by the application", now)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return what is due: one exchange or one heartbeat, and a leave request if the application has not read for too long."""
        self._compare(now)
        wake_at = min(self._watch_application(now), self._look_at_group(now))
        request, due_at = self._next(now)
        requests = (*self._outbox, request) if request is not None else tuple(self._outbox)
        self._outbox.clear()
        return Poll(requests, min(wake_at, due_at))

    def poll_on_close(self, now: float) -> Poll:
        """Return the LeaveGroup of a dynamic member. It must follow the last commits on the connection that they share."""
        parting = tuple(request for request in self._outbox if request.final)
        self._outbox.clear()
        if not self.is_leaving:
            if not must_leave(self._session.identity):
                return Poll(parting)
            self.leave(None, now)
            self._standing.reason = "the consumer is being closed"
        self._member_topics.subscription = None  # one that waits for the end of the leave is not taken up any more
        node = self._lookup.last_known
        if node is None or self._coordinator_request.in_flight:
            return Poll(parting)
        return Poll((*parting, self._leave_request(node, now)))

    def _next(self, now: float) -> tuple[UnsentRequest | None, float]:
        match self._standing.state:
            case _S.JOINING | _S.SYNCING if self._waits and self._proposals.held:
                return self._next_heartbeat(now)
            case _S.JOINING if self._member_topics.is_known:
                return self._coordinator_request.send(self._join, now)
            case _S.LEADING:
                return self._next_plan(now)
            case _S.SYNCING:
                return self._coordinator_request.send(self._sync, now)
            case _S.LEAVING:
                return self._next_leave(now)
            case state if state in HEARTBEATING:
                return self._next_heartbeat(now)
        return None, NEVER

    def _compare(self, now: float) -> None:
        """Have the group rebalance when subscription or topics are not those of the generation any more."""
        if self._standing.state is not _S.STABLE or not self._member_topics.is_to_compare():
            return
        changes = self._division.changes()
        if self._member_topics.has_changed:
            self._rebalance("the subscription has changed", now)
        elif changes:
            self._rebalance(f"the partitions of {', '.join(changes)} have changed", now)

    def _watch_application(self, now: float) -> float:
        """Leave if the application has not read for ``max_poll_interval_ms``; return when to look again."""
        if self._standing.state in NOT_OURS or not self._proposals.held:
            # An application that has never read takes part in eager rebalances too, and they do not count as a read.
            is_eager_rebalance = self._standing.state not in NOT_OURS and self._standing.state is not _S.STABLE
            if not is_eager_rebalance or self.host.progress().polled_at:
                self._interval.stop()
            return NEVER
        ends_at = self._interval.ends_at(self.host.progress(), now)
        if now >= ends_at and self._may_give_place_up:
            self._interval.expire(now)
            self._give_place_up(now)
            return NEVER
        text = self._interval.warning(now)
        if text is not None:
            self.trace(Fault(now=now, text=text, subject="group"))
        return self._interval.wake_at(now)

    @property
    def _may_give_place_up(self) -> bool:
        """While we join, others wait for us, above all for a leader's plan, until that is over or a LeaveGroup tells the group."""
        state = self._standing.state
        can_say = self._lookup.known is not None and must_leave(self._session.identity)
        return state in HEARTBEATING or (state is not _S.LEADING and can_say)  # leading takes seconds

    def _give_place_up(self, now: float) -> None:
        text = f"the application has not read for {self.config.max_poll_interval_ms} ms (max_poll_interval_ms)"
        self.trace(Fault(now=now, text=f"{text}; leaving group {self.config.group_id!r} until it does", subject="group"))
        node, who = self._lookup.known, self._session.identity
        if node is not None and must_leave(who):
            self._outbox.append(leave(self.config, who, text, node, now, channel=self.channel, on_done=_ignored))
        self._expelled(Verdict.UNKNOWN_MEMBER, text, now)

    # --- joining ---------------------------------------------------------------------------------------------------------------

    def _join(self, node: Node, now: float) -> UnsentRequest | None:
        """Return the one JoinGroup that lists all assignors."""
        topics, who = self._member_topics.names, self._session.identity
        try:
            protocols = self._division.offer(topics, self._proposals.held, who.generation)
        except Exception as error:  # the boundary to the user's code
            self._stumbled("an assignor failed", error, now)
            return None
        self._member_topics.joined = topics
        turn = self._standing.turn
        return join(
            self.config,
            who,
            protocols,
            self._standing.reason,
            node,
            now,
            on_done=lambda outcome, at: self._joined(turn, who, node, now, outcome, at),
            withdrawn=lambda: turn != self._standing.turn,
        )

    def _joined(
        self, turn: int, who: Identity, node: Node, sent_at: float, outcome: JoinGroupResponse | KafkaError, now: float
    ) -> None:
        if turn != self._standing.turn:
            self._disown(who, node, outcome, now)
            return
        if isinstance(outcome, KafkaError):
            self._failed(outcome, now)
        elif outcome.error_code:
            self._failed(self._error(outcome.error_code), now, named=outcome.member_id)
        elif outcome.generation_id < 0 or not outcome.member_id:
            self._failed(MalformedResponseError(f"JoinGroup gave generation {outcome.generation_id} to {outcome.member_id!r}"), now)
        else:
            self._take_generation(outcome, sent_at, now)

    def _disown(self, who: Identity, node: Node, outcome: JoinGroupResponse | KafkaError, now: float) -> None:
        """Leave for a member whose id arrived after we had given up joining: the group would wait a session for it."""
        if who.member_id or isinstance(outcome, KafkaError) or outcome.member_id in ("", self._session.identity.member_id):
            return
        ghost = evolve(who, member_id=outcome.member_id)
        if must_leave(ghost):
            text = "there was nothing left to join for when the member id arrived"
            self._outbox.append(leave(self.config, ghost, text, node, now, channel=Channel.GROUP, on_done=_ignored))

    def _take_generation(self, response: JoinGroupResponse, sent_at: float, now: float) -> None:
        chosen = self._division.offers(response.protocol_name, response.protocol_type)
        if chosen is None:
            text = f"the group speaks {response.protocol_name!r} of type {response.protocol_type!r}"
            ours = [assignor.name for assignor in self._division.assignors]
            self._session.become(evolve(self._session.identity, member_id=response.member_id))  # it counts us in
            self._fail(InconsistentGroupProtocolError(f"{text}; this member offers {ours}"), now)
            return
        try:
            self._division.begin(chosen, response, now)
        except KafkaError as error:
            self._stumbled("a member's subscription cannot be read", error, now)
            return
        leads = self._division.leadership is not None
        # Whatever failed before, also under another member id or in another session, where failures are not counted any more.
        self.trace(Recovered(now=now, outage=_ANSWERS, subject="group"))
        self._coordinator_request.request.succeeded()
        self._coordinator_request.until = now + min(self.config.request_timeout_ms, self.config.session_timeout_ms / 3) / 1000
        self._accepted(sent_at)
        identity = self._session.identity
        self._session.become(evolve(identity, member_id=response.member_id, generation=response.generation_id))
        self._move(_I.LED if leads else _I.FOLLOWED, now)
        if leads:
            self._member_topics.metadata.request_update(now)
        many = "1 member" if len(response.members) == 1 else f"{len(response.members)} members"
        role = f"leader of {many}" if leads else "member"
        text = f"joined group {self.config.group_id!r} as {role}: generation {response.generation_id}, assignor {chosen.name!r}"
        self.trace(Notice(now=now, text=text, subject="group"))

    def _next_plan(self, now: float) -> tuple[UnsentRequest | None, float]:
        """Divide the partitions as soon as the topics are known; what is not known in time makes the group rebalance later."""
        ready_at = min(self._division.ready_at(), self._coordinator_request.until)
        if now < ready_at:
            return None, ready_at
        try:
            self._division.make_plan()
        except Exception as error:  # the boundary to the user's code
            self._stumbled(f"assignor {self._division.chosen.name!r} failed", error, now)
        else:
            self._report_undivided(now)
            self._move(_I.PLANNED, now)
        return self._next(now)

    def _report_undivided(self, now: float) -> None:
        """Log which topics of other members this leader does not know: they read nothing of them. About ours reads are told."""
        undivided = sorted(self._division.undivided - self._member_topics.joined)
        if undivided:
            names = ", ".join(map(repr, undivided))
            text = f"group {self.config.group_id!r}: the leader cannot divide {names}, to which only other members subscribe"
            error = self._member_topics.metadata.problem(undivided[0])
            self.trace(Fault(now=now, text=text, error=error, subject="group"))

    def _sync(self, node: Node, now: float) -> UnsentRequest:
        turn = self._standing.turn
        return sync(
            self.config,
            self._session.identity,
            self._division.chosen.name,
            self._division.plan,
            node,
            now,
            on_done=lambda outcome, at: self._synced(turn, now, outcome, at),
            withdrawn=lambda: turn != self._standing.turn,
        )

    def _synced(self, turn: int, sent_at: float, outcome: SyncGroupResponse | KafkaError, now: float) -> None:
        if turn != self._standing.turn:
            return
        if isinstance(outcome, KafkaError) or outcome.error_code:
            self._failed(outcome if isinstance(outcome, KafkaError) else self._error(outcome.error_code), now)
            return
        try:
            partitions = self._division.take(outcome.assignment, self._session.identity.generation)
        except Exception as error:  # another client's leader, and the boundary to the user's code
            self._stumbled(f"the assignment of {self._division.chosen.name!r} cannot be used", error, now)
            return
        self._session.confirm(sent_at)
        self._session.begin(now, cooperative=self._division.is_cooperative)
        if self._member_topics.has_changed:
            self._standing.reason = "the subscription has changed"
            self._move(_I.REJOIN, now)
        else:
            self._propose(partitions, now)

    def _look_at_group(self, now: float) -> float:
        """Find out what was divided before we came, to compare the topics with it: nobody else notices that they have grown.

        Return when to ask again.
        """
        node, identity = self._lookup.known, self._session.identity
        if node is None or not self._division.must_learn or self._standing.state not in HEARTBEATING:
            return NEVER
        if not self._look.may_send(now):
            return self._look.wake_at()
        self._look.sent()
        withdrawn = lambda: identity != self._session.identity  # noqa: E731
        done = lambda outcome, at: self._looked_at_group(identity, outcome, at)  # noqa: E731
        self._outbox.append(describe(self.config, node, now, on_done=done, withdrawn=withdrawn))
        return NEVER

    def _looked_at_group(self, identity: Identity, outcome: "DescribeGroupsResponse | KafkaError", now: float) -> None:
        if identity != self._session.identity:
            self._look.succeeded()
            return
        error = outcome if isinstance(outcome, KafkaError) else None
        for group in () if isinstance(outcome, KafkaError) else outcome.groups:
            error = self._error(group.error_code) if group.error_code else None
            with suppress(KafkaError):  # an assignment that cannot be read is another client's
                self._division.learn(group)
        if error is not None and not error.retriable:
            self._division.leave_unlearned()
        if self._division.must_learn:
            self._look.failed(now)
        else:
            self._look.succeeded()
        self._member_topics.compare_anew()

    def _propose(self, partitions: frozenset[TopicPartition], now: float) -> None:
        if not self._division.is_cooperative:
            self._move(_I.SYNCED, now)
            self._proposals.propose_back(partitions, self._session.identity.generation)
            return
        curtailed = bool(self._proposals.held - partitions)
        if curtailed:
            self._standing.reason = "gave up partitions that the assignment gives to other members"
        self._move(_I.CURTAILED if curtailed else _I.SYNCED, now)
        self._proposals.propose(partitions)

    # --- staying ---------------------------------------------------------------------------------------------------------------

    def _next_heartbeat(self, now: float) -> tuple[UnsentRequest | None, float]:
        session = self._session
        if not session.may_beat(now):
            return None, session.wake_at
        node = self._lookup.node(now)
        if node is None:
            return None, NEVER
        beat = session.beat_sent(now)
        request = heartbeat(
            self.config,
            session.identity,
            node,
            now,
            channel=self.channel,
            on_done=lambda outcome, at: self._beaten(beat, node, now, outcome, at),
            withdrawn=lambda: beat is not session.beat,
        )
        return request, NEVER

    def _beaten(self, beat: RequestState, node: Node, sent_at: float, outcome: HeartbeatResponse | KafkaError, now: float) -> None:
        if beat is not self._session.beat:
            return  # we have another identity by now
        error = outcome if isinstance(outcome, KafkaError) else self._error(outcome.error_code) if outcome.error_code else None
        verdict = judge(error) if error is not None else Verdict.REBALANCING
        if verdict is Verdict.REBALANCING:
            if beat.backoff.failures:
                self.trace(Recovered(now=now, outage=_ANSWERS, subject="group"))
            beat.succeeded()
            self._lookup.coordinator.served(now)
            self._accepted(sent_at)
            if error is not None:
                self._overtake("the group is rebalancing", now)
            return
        self._session.beat_failed(now)
        if error is not None and self._standing.state in HEARTBEATING:  # elsewhere the exchange under way finds out by itself
            self._act_on(verdict, error, beat, node, now)

    def _accepted(self, sent_at: float) -> None:
        """A request that was sent at ``sent_at`` was answered as a member's: nothing is refused any more."""
        self._standing.is_denied = False
        self._session.confirm(sent_at)

    def _overtake(self, reason: str, now: float) -> None:
        """The group rebalances: at once if nothing is under way, after the application is done if it is taking something over."""
        if self._standing.state is _S.STABLE:
            self._rebalance(reason, now)
        elif self._standing.state in (_S.ASSIGNING, _S.OVERTAKEN):
            self._standing.reason = reason
            self._move(_I.OVERTAKE, now)

    def _rebalance(self, reason: str, now: float) -> None:
        held = self._proposals.held
        self._standing.reason = reason
        if self._division.is_cooperative:
            topics = self._member_topics.names
            held = frozenset(partition for partition in held if partition.topic not in topics)
        self._move(_I.REVOKE if held else _I.REJOIN, now)
        if held and self._division.is_cooperative:
            self._proposals.give_up(held, lost=False)
        elif held:
            self._proposals.give_all_up(held, self._session.identity.generation)

    # --- leaving ---------------------------------------------------------------------------------------------------------------

    def _next_leave(self, now: float) -> tuple[UnsentRequest | None, float]:
        until = self._parting.until
        if self._coordinator_request.in_flight:
            return None, until if now < until else NEVER  # a request that was sent late ends by itself
        node, coordinator = self._lookup.known, self._lookup.coordinator
        in_vain = False
        if node is None and self._member_topics.subscription is not None:
            # Looked for until the time is up: who joins under a new id makes the group wait a session for the old one.
            self._lookup.node(now)
        elif node is None:
            coordinator.request(now)  # whatever is wrong with it concerns nobody: the application has ended this membership
            in_vain = coordinator.fatal is not None or coordinator.is_out_of_reach
        if now >= until or in_vain:
            self._left(now)
            return self._next(now)
        if node is None or not self._coordinator_request.request.may_send(now):
            return None, until if node is None else min(until, self._coordinator_request.request.wake_at())
        return self._leave_request(node, now), until

    def _leave_request(self, node: Node, now: float) -> UnsentRequest:
        self._coordinator_request.request.sent()
        turn = self._standing.turn

        def answered(outcome: object, at: float) -> None:
            if turn == self._standing.turn:
                self._leave_answered(node, outcome, at)

        who, reason = self._parting.who, self._standing.reason
        return leave(self.config, who, reason, node, now, channel=self._parting.channel, on_done=answered)

    def _leave_answered(self, node: Node, outcome: object, now: float) -> None:
        """A request that the coordinator has not acted on is sent again while there is time. Any other answer means: we are out."""
        code = outcome.error_code if isinstance(outcome, LeaveGroupResponse) else 0
        error = outcome if isinstance(outcome, KafkaError) else self._error(code) if code else None
        verdict = judge(error) if error is not None else None
        if verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE):
            self._lookup.coordinator.lost(node.id, error, now)
        if verdict in NOT_HEARD and now < self._parting.until:
            self._coordinator_request.request.failed(now)
        else:
            self._left(now)

    def _left(self, now: float) -> None:
        """An unknown member has left, and if the request is lost, the session ends by itself."""
        self._move(_I.LEFT, now)
        self._parting.done()
        if self._member_topics.subscription is not None:
            self._move(_I.SUBSCRIBE, now)

    # --- what errors do --------------------------------------------------------------------------------------------------------

    def _error(self, code: int) -> KafkaError:
        return for_code(code, group=self.config.group_id)

    def _failed(self, error: KafkaError, now: float, *, named: str = "") -> None:
        """A JoinGroup or SyncGroup failed; a SyncGroup is not repeated, the member joins again."""
        verdict = judge(error)
        fresh = not self._session.identity.member_id
        request = self._coordinator_request.request
        request.failed(now)
        if verdict is Verdict.NAMED and named and fresh:
            request.succeeded()
            self._session.become(evolve(self._session.identity, member_id=named))
            self._standing.reason = f"back with the member id {named}"
        elif not fresh and (verdict in OUT or (verdict is Verdict.REBALANCING and self._standing.state is _S.SYNCING)):
            request.succeeded()  # join again at once
        self._act_on(verdict, error, request, self._coordinator_request.sent_to, now)
        if self._standing.state is _S.SYNCING:
            self._standing.reason = f"SyncGroup failed: {type(error).__name__}"
            self._move(_I.REJOIN, now)

    def _act_on(self, verdict: Verdict, error: KafkaError, request: RequestState, asked: Node | None, now: float) -> None:
        self._standing.is_denied = verdict is Verdict.REPORT
        match verdict:
            case Verdict.UNKNOWN_MEMBER | Verdict.OLD_GENERATION | Verdict.GROUP_GONE:
                self._thrown_out(verdict, verdict.value, now)
            case Verdict.FATAL | Verdict.UNSUPPORTED:
                self._fail(error, now)
            case Verdict.REPORT:
                request.backoff.retry_at = now + request.backoff.limit
                self.host.publish_error(error, final=True)
            case Verdict.REDISCOVER | Verdict.UNREACHABLE:
                if asked is not None:
                    self._lookup.coordinator.lost(asked.id, error, now)
                self._lookup.coordinator.request(now)
            case Verdict.RETRY if self._lookup.coordinator.is_settling_in(error, now):
                pass
            case Verdict.RETRY:
                text = f"the coordinator of group {self.config.group_id!r} cannot answer yet; trying again"
                self.trace(Fault(now=now, text=text, error=error, subject="group", outage=_ANSWERS))
            case Verdict.REBALANCING | Verdict.NAMED:
                pass

    def _move(self, what: ClassicInput, now: float) -> None:
        if not self._standing.move(what, now):
            return
        self._coordinator_request.reset()
        if self._standing.state not in PROPOSING:
            self._proposals.taken_over()

    # --- the end of a membership ------------------------------------------------------------------------------------------------

    def _stumbled(self, what: str, cause: Exception, now: float) -> None:
        """A problem that only a person can solve, in this client or another one: report it, and try again slowly."""
        error = IllegalStateError(f"group {self.config.group_id!r}: {what}: {shown(cause, LONGEST_REASON)}")
        error.__cause__ = cause
        request = self._coordinator_request.request
        request.failed(now)
        request.backoff.retry_at = now + request.backoff.limit
        self._standing.reason = what
        self.host.publish_error(error)
        self._move(_I.REJOIN, now)

    def _thrown_out(self, verdict: Verdict, reason: str, now: float) -> None:
        if self._proposals.held:  # an operator has to read why they are lost
            text = f"group {self.config.group_id!r}: not a member any more, since {reason}; joining again"
            self.trace(Fault(now=now, text=text, subject="group"))
        self._expelled(verdict, reason, now)

    def _expelled(self, verdict: Verdict, reason: str, now: float) -> None:
        self._session.forget(keep_id=verdict is Verdict.OLD_GENERATION)
        self._proposals.forget_generation()
        self._lose(reason, now)

    def _lose(self, reason: str, now: float) -> None:
        held = self._proposals.held
        self._standing.reason = reason
        self._move(_I.LOSE if held else _I.REJOIN, now)
        if held:
            self._proposals.give_up(held, lost=True)

    def _fail(self, error: KafkaError, now: float) -> None:
        self._part(error, now)
        held = self._proposals.held
        self._session.become(Identity(instance_id=self.config.group_instance_id))
        self._proposals.forget_generation()
        self._standing.reason = str(error)
        self._member_topics.subscription = None
        self._move(_I.FAIL, now)
        self._standing.failure = error
        if held:
            self._proposals.give_up(held, lost=True)
        self._parting.done()
        self.host.publish_error(error, final=True)

    def _part(self, error: KafkaError, now: float) -> None:
        """Leave unless that was sent: the coordinator may count us in, and others would wait for the session to end (promise 8)."""
        who, channel, node = self._session.identity, self.channel, self._lookup.last_known
        if self.is_leaving:
            who, channel = self._parting.who, self._parting.channel
        is_over = isinstance(error, FencedInstanceIdError) or (self.is_leaving and self._coordinator_request.in_flight)
        if node is not None and must_leave(who) and not is_over:
            self._outbox.append(leave(self.config, who, str(error), node, now, channel=channel, on_done=_ignored))


def _ignored(outcome: object, now: float) -> None:
    """The answer is not awaited: if the request is lost, the session ends by itself."""
