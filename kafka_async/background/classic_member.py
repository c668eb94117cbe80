"""What a member in the classic protocol is, and what it has the application do.

Decides: what is given up before a rebalance (eager) or after an assignment (cooperative, KIP-429), what is lost with the
membership. Owns: identity, state, subscription, and the proposals to the application. Must never send anything:
``classic_membership.py`` does, and adds what an answer does to the member.
"""

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from attrs import define, evolve, field

from ..config import ConsumerConfig
from ..errors import FencedInstanceIdError, IllegalStateError, KafkaError
from ..events import Call
from ..model import ConsumerState, Node, TopicPartition
from ..network import Lane
from ..trace import MEMBERSHIP, Listener, StateChanged
from .assignment import NO_GENERATION, Assignor, RebalanceProtocol
from .assignors import common_protocol
from .classic_leader import GroupMetadata, Leadership
from .classic_states import HEARTBEATING, TRANSITIONS, ClassicInput, ClassicState, Verdict
from .membership import CommitFailure, Identity, MembershipHost, Subscription
from .request_manager import RequestState, backoff_of

_S, _I = ClassicState, ClassicInput
_PROPOSING: Final = frozenset((_S.ASSIGNING, _S.OVERTAKEN, _S.LOSING, _S.FATAL))
"""States in which the application may still be about to take over what we proposed."""

_EXPLAINED: Final = frozenset((_I.REVOKE, _I.REJOIN, _I.LOSE, _I.OVERTAKE, _I.FAIL))
"""Inputs that come with a reason of their own."""


class GroupCoordinator(Protocol):
    """What a membership needs of ``FindCoordinatorManager``."""

    @property
    def coordinator(self) -> Node | None: ...

    @property
    def latest(self) -> Node | None:
        """The last one known, for last words."""
        ...

    @property
    def fatal(self) -> KafkaError | None: ...

    def request(self, now: float) -> None: ...

    def lost(self, node_id: int, error: KafkaError | None, now: float) -> None: ...


@define(eq=False, kw_only=True)
class ClassicMember:
    """Identity, state and proposals of one member."""

    config: ConsumerConfig
    coordinator: GroupCoordinator = field(repr=False)
    metadata: GroupMetadata = field(repr=False)
    host: MembershipHost = field(repr=False)
    assignors: tuple[Assignor, ...] = field(repr=False)
    """Best first; of this consumer alone (``assignors_from``)."""
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)

    _protocol: RebalanceProtocol = field(init=False)
    _state: ClassicState = field(default=_S.UNSUBSCRIBED, init=False)
    _subscription: Subscription | None = field(default=None, init=False)
    _identity: Identity = field(init=False)
    _assignor: Assignor = field(init=False)
    """The one that the group agreed on."""
    _leadership: Leadership | None = field(default=None, init=False)
    _joined_topics: frozenset[str] = field(default=frozenset(), init=False)
    """The subscription that the last JoinGroup carried."""
    _proposed: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """What the application is taking over."""
    _reason: str = field(default="", init=False)
    """Why we join, for the broker's log."""

    _exchange: RequestState = field(init=False)
    """JoinGroup, SyncGroup, LeaveGroup."""
    _heartbeat: RequestState = field(init=False)
    _turn: int = field(default=0, init=False)
    """Grows with every change of state; an exchange of an earlier turn is over."""
    _number: int = field(default=0, init=False)
    """Of the last proposal to the application."""
    _until: float = field(default=0.0, init=False)
    """JOINING, SYNCING: when the request in flight expires. LEADING, LEAVING: how long to wait at most."""
    _heard_at: float = field(default=0.0, init=False)
    _metadata_from: int = field(default=-1, init=False)
    """A pattern needs metadata newer than this version."""
    _compared: int = field(default=-1, init=False)
    """Version of the metadata that the generation was last compared with."""
    _leave_calls: list[Call[None]] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._protocol = common_protocol(self.assignors)
        self._assignor = self.assignors[0]
        self._identity = Identity(instance_id=self.config.group_instance_id)
        self._exchange = self._request_state()
        self._heartbeat = self._request_state()

    # --- what the application did -----------------------------------------------------------------------------------------------

    def revoked(self, number: int, now: float) -> None:
        if number == self._number and self._state in (_S.REVOKING, _S.LOSING):
            self._move(_I.REVOKED, now)

    def assigned(self, number: int, now: float) -> None:
        if number != self._number or self._state not in (_S.ASSIGNING, _S.OVERTAKEN):
            return
        self._proposed = frozenset()
        if self._state is _S.OVERTAKEN:
            self._rebalance(self._reason, now)
        else:
            self._compared = -1
            self._move(_I.ASSIGNED, now)

    def refused(self, failure: CommitFailure, identity: Identity, now: float) -> None:
        """A commit was refused; in JOINING, LEADING and SYNCING our own request brings the news."""
        if identity != self._identity or self._state not in HEARTBEATING:
            return
        match failure:
            case CommitFailure.UNKNOWN_MEMBER:
                self._expelled(Verdict.UNKNOWN_MEMBER, f"a commit found that {failure.value}", now)
            case CommitFailure.ILLEGAL_GENERATION:
                self._expelled(Verdict.OLD_GENERATION, f"a commit found that {failure.value}", now)
            case CommitFailure.FENCED_INSTANCE:
                self._fail(FencedInstanceIdError(), now)
            case CommitFailure.REBALANCING:
                self._overtake("a commit found the group rebalancing", now)

    def enforce_rebalance(self, reason: str, now: float) -> None:
        """Join again (KIP-568). A rebalance that is under way already is enough."""
        self._overtake(reason or "rebalance enforced by the application", now)

    # --- what others want to know ----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def lane(self) -> Lane:
        """``GROUP``, but while a JoinGroup or SyncGroup waits there for the other members."""
        return Lane.MAIN if self._state in (_S.JOINING, _S.SYNCING) and self._exchange.in_flight else Lane.GROUP

    @property
    def state(self) -> ConsumerState:
        if self._state is _S.FATAL:
            return ConsumerState.FATAL
        if self._state in (_S.UNSUBSCRIBED, _S.LEAVING):
            return ConsumerState.STEADY
        if self._state is _S.STABLE:
            return ConsumerState.STEADY if self.coordinator.coordinator is not None else ConsumerState.COORDINATOR_LOST
        if self._identity.generation == NO_GENERATION and self._state is _S.JOINING:
            return ConsumerState.JOINING
        return ConsumerState.REBALANCING

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """The topics of the subscription; for a leader those of the whole group."""
        if self._subscription is None:
            return frozenset()
        if self._subscription.topics is None:
            return None
        return self._subscription.topics | (self._leadership.topics if self._leadership is not None else frozenset())

    @property
    def awaits_epoch(self) -> bool:
        """Whether a new generation is on its way."""
        return self._state in (_S.JOINING, _S.LEADING, _S.SYNCING)

    @property
    def session_deadline(self) -> float:
        """Last answer plus session timeout; while a JoinGroup or SyncGroup waits, when that request expires.

        The coordinator counts a member that waits as alive, and does not answer its heartbeats. Infinity without a generation: what
        the coordinator took from us is given up through ``publish_revocation``.
        """
        if self._identity.generation == NO_GENERATION:
            return inf
        deadline = self._heard_at + self.config.session_timeout_ms / 1000
        waits = self._state in (_S.JOINING, _S.SYNCING) and self._exchange.in_flight
        return max(deadline, self._until) if waits else deadline

    # --- what we stand for ------------------------------------------------------------------------------------------------------

    def _topics(self) -> frozenset[str]:
        """Return the names that the subscription stands for at the moment."""
        if self._subscription is None:
            return frozenset()
        if self._subscription.matches is None:
            return self._subscription.topics or frozenset()
        return frozenset(
            name
            for name, topic in self.metadata.topics.items()
            if self._subscription.matches(name) and not (topic.internal and self.config.exclude_internal_topics)
        )

    def _compare(self, now: float) -> None:
        """Have the group rebalance when subscription or topics are not those of the generation any more."""
        if self._state is not _S.STABLE or self._compared == self.metadata.version:
            return
        self._compared = self.metadata.version
        changes = self._leadership.changes(self.metadata) if self._leadership is not None else ()
        if self._topics() != self._joined_topics:
            self._rebalance("the subscription has changed", now)
        elif changes:
            self._rebalance(f"the partitions of {', '.join(changes)} have changed", now)

    # --- proposals --------------------------------------------------------------------------------------------------------------

    def _propose(self, partitions: frozenset[TopicPartition], now: float) -> None:
        taken = self._held() - partitions
        curtailed = bool(taken) and self._protocol is RebalanceProtocol.COOPERATIVE
        if taken:
            self.host.stop_fetching(taken)
        if curtailed:
            self._reason = "gave up partitions that the assignment gives to other members"
        self._proposed = partitions
        self._number += 1
        self._move(_I.CURTAILED if curtailed else _I.SYNCED, now)
        self.host.publish_assignment(self._number, partitions)

    # --- moves -----------------------------------------------------------------------------------------------------------------

    def _overtake(self, reason: str, now: float) -> None:
        """The group rebalances: at once if nothing is under way, after the application is done if it is taking something over."""
        if self._state is _S.STABLE:
            self._rebalance(reason, now)
        elif self._state in (_S.ASSIGNING, _S.OVERTAKEN):
            self._reason = reason
            self._move(_I.OVERTAKE, now)

    def _rebalance(self, reason: str, now: float) -> None:
        held = self._held()
        self._reason = reason
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            topics = self._topics()
            held = frozenset(partition for partition in held if partition.topic not in topics)
        self._move(_I.REVOKE if held else _I.REJOIN, now)
        if held:
            self._give_up(held, lost=False)

    def _give_up(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        self._number += 1
        self.host.stop_fetching(partitions)
        self.host.publish_revocation(self._number, partitions, lost=lost)

    def _held(self) -> frozenset[TopicPartition]:
        """Return what the application has, or will have when it comes to our last proposal."""
        return self.host.owned() | self._proposed

    def _move(self, what: ClassicInput, now: float) -> None:
        before, self._state = self._state, TRANSITIONS[self._state, what]
        if self._state is before:
            return
        self._turn += 1
        self._exchange.in_flight = False
        if self._state not in _PROPOSING:
            self._proposed = frozenset()
        reason = self._reason if what in _EXPLAINED else what.value
        self.trace(StateChanged(now=now, subject=MEMBERSHIP, before=before.name, after=self._state.name, reason=reason))

    def _become(self, identity: Identity) -> None:
        """Be somebody else: what was asked as the old one is not for us any more."""
        self._identity = identity
        self._heartbeat = self._request_state()

    def _request_state(self) -> RequestState:
        return RequestState(backoff_of(self.config, self.random))

    # --- the end of a membership ------------------------------------------------------------------------------------------------

    def _stumbled(self, what: str, cause: Exception, now: float) -> None:
        """Something that only a person can put right, in this client or another one: say it, and try again slowly."""
        error = IllegalStateError(f"group {self.config.group_id!r}: {what}: {cause!r}")
        error.__cause__ = cause
        self._exchange.failed(now)
        self._exchange.backoff.retry_at = now + self._exchange.backoff.limit
        self._reason = what
        self.host.publish_error(error)
        self._move(_I.REJOIN, now)

    def _expelled(self, verdict: Verdict, reason: str, now: float) -> None:
        keeps_id = verdict is Verdict.OLD_GENERATION
        self._become(evolve(self._identity, member_id=self._identity.member_id if keeps_id else "", generation=NO_GENERATION))
        self._lose(reason, now)

    def _lose(self, reason: str, now: float) -> None:
        held = self._held()
        self._reason = reason
        self._move(_I.LOSE if held else _I.REJOIN, now)
        if held:
            self._give_up(held, lost=True)

    def _fail(self, error: KafkaError, now: float) -> None:
        held = self._held()
        self._become(Identity(instance_id=self.config.group_instance_id))
        self._reason = str(error)
        self._subscription = None
        self._move(_I.FAIL, now)
        if held:
            self._give_up(held, lost=True)
        self._resolve_leave_calls()
        self.host.publish_error(error)

    def _resolve_leave_calls(self) -> None:
        for call in self._leave_calls:
            call.resolve(None)
        self._leave_calls.clear()
