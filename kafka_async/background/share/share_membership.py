"""A member of a share group (KIP-932): ShareGroupHeartbeat and nothing else.

Fetching and acknowledging are apart from it: the brokers that lead the partitions do not even ask whether we are a member.

Several members read the same partition, so no member waits for another: a new assignment takes effect at once, and there is nothing
to revoke. After any error a heartbeat with everything is sent, which also asks for the assignment again. Nothing changes while the
coordinator is away. A member that is fenced while it joins leaves first, and joins when that is answered: brokers before
KAFKA-19233 refuse epoch 0 of a member that they know, for as long as its session lasts. Sources: KIP-932;
``ShareMembershipManager``, ``ShareHeartbeatRequestManager``.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import GroupIdNotFound, KafkaError, MalformedResponseError, UnknownError, UnsupportedVersionError, for_code
from ...events import Call, ShareEvent
from ...model import ConsumerState, TopicPartition
from ...network import Channel, UnsentRequest
from ...states import StateTable
from ...trace import MEMBERSHIP, Fault, Listener, Recovered
from ...values import define, field
from ...wire.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..boundary import EventHandler
from ..cluster.metadata import MetadataManager
from ..group.find_coordinator import FindCoordinatorManager
from ..group.heartbeat import NOT_HEARD, OUT, PollInterval, Verdict, judge, next_heartbeat
from ..group.membership import PollProgress
from ..loop.request_manager import NEVER, Backoff, Poll, backoff_of
from ..positions.subscription import Subscription

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
FIRST_INTERVAL: Final = 5.0
"""Seconds between heartbeats until the first answer sets them: the default of ``group.share.heartbeat.interval.ms``."""
LONGEST_INTERVAL: Final = 60.0
"""Most seconds between heartbeats that we accept from a coordinator: four times ``group.share.max.heartbeat.interval.ms``."""
SAY_AFTER: Final = 3.0
"""Seconds that a member waits for partitions before it says so."""
_HEARTBEATS: Final = "heartbeats"
_ASSIGNMENT: Final = "the assignment"


class ShareMemberState(Enum):
    UNSUBSCRIBED = "not a member"
    JOINING = "a full heartbeat with epoch 0 is due or unanswered"
    RECLAIMING = "our id is in use, by ourselves: the request to leave is due or unanswered; then we join"
    STABLE = "a member, with or without partitions"
    AWAY = "left, because the application does not read; joins again when it does"
    LEAVING = "the request to leave is due or unanswered"
    FATAL = "refused for good; the application got the error"


class ShareMemberInput(Enum):
    SUBSCRIBE = "the application subscribed"
    LEAVE = "the application unsubscribed"
    JOINED = "the coordinator answered without an error"
    TAKEN = "the coordinator still knows us from before"
    RECLAIMED = "it does not any more"
    FENCE = "the coordinator no longer counts us as a member"
    EXPIRE = "the application has not read for too long"
    READ = "the application reads again"
    LEFT = "the request to leave was answered, or cannot be sent"
    FAIL = "the coordinator refused us for good"


_S, _I = ShareMemberState, ShareMemberInput
TRANSITIONS: Final = StateTable(
    MEMBERSHIP,
    {
        (_S.UNSUBSCRIBED, _I.SUBSCRIBE): _S.JOINING,
        (_S.UNSUBSCRIBED, _I.LEAVE): _S.UNSUBSCRIBED,
        (_S.JOINING, _I.SUBSCRIBE): _S.JOINING,
        (_S.JOINING, _I.LEAVE): _S.LEAVING,
        (_S.JOINING, _I.JOINED): _S.STABLE,
        (_S.JOINING, _I.TAKEN): _S.RECLAIMING,
        (_S.JOINING, _I.FENCE): _S.JOINING,
        (_S.JOINING, _I.FAIL): _S.FATAL,
        (_S.RECLAIMING, _I.SUBSCRIBE): _S.RECLAIMING,
        (_S.RECLAIMING, _I.LEAVE): _S.LEAVING,
        (_S.RECLAIMING, _I.RECLAIMED): _S.JOINING,
        (_S.STABLE, _I.SUBSCRIBE): _S.STABLE,
        (_S.STABLE, _I.LEAVE): _S.LEAVING,
        (_S.STABLE, _I.JOINED): _S.STABLE,
        (_S.STABLE, _I.FENCE): _S.JOINING,
        (_S.STABLE, _I.EXPIRE): _S.AWAY,
        (_S.STABLE, _I.FAIL): _S.FATAL,
        (_S.AWAY, _I.SUBSCRIBE): _S.AWAY,
        (_S.AWAY, _I.LEAVE): _S.UNSUBSCRIBED,
        (_S.AWAY, _I.READ): _S.JOINING,
        (_S.LEAVING, _I.SUBSCRIBE): _S.JOINING,  # whether the leave request was sent or not; who may not begin anew then is TAKEN
        (_S.LEAVING, _I.LEAVE): _S.LEAVING,
        (_S.LEAVING, _I.LEFT): _S.UNSUBSCRIBED,
        (_S.FATAL, _I.SUBSCRIBE): _S.JOINING,
        (_S.FATAL, _I.LEAVE): _S.UNSUBSCRIBED,
    },
)
"""Every other pair is a bug and raises ``RuntimeError``."""

SHOWN: Mapping[ShareMemberState, ConsumerState] = {
    _S.UNSUBSCRIBED: ConsumerState.STEADY,
    _S.JOINING: ConsumerState.JOINING,
    _S.RECLAIMING: ConsumerState.JOINING,
    _S.STABLE: ConsumerState.STEADY,
    _S.AWAY: ConsumerState.JOINING,
    _S.LEAVING: ConsumerState.REBALANCING,
    _S.FATAL: ConsumerState.FATAL,
}


@define(eq=False)
class _Talk:
    """The conversation with the coordinator."""

    member_id: str
    backoff: Backoff
    interval: float = FIRST_INTERVAL
    life: int = 0
    """Grows when the member joins afresh or leaves: an answer to an earlier life is ignored (KAFKA-19335)."""
    in_flight: bool = False
    is_leaving: bool = False
    leave_until: float = inf
    """When leaving is given up: the session ends by itself."""
    subscribed: frozenset[str] | None = None
    """The topics that the coordinator has confirmed; ``None``: send everything."""
    due_at: float = 0.0
    waits_since: float = -inf
    """Since when the member has waited for partitions."""
    waits_long: bool = False
    """That was said."""
    seen_at: float | None = None
    """When a coordinator was last known."""
    reported: KafkaError | None = None
    gone: bool = False
    """The group was not found; if another attempt fails the same way, that is final."""
    calls: list[Call[None]] = field(factory=list)
    """Resolved when the member has left."""


@define(eq=False, kw_only=True)
class ShareMembership:
    """Implements ``Subscriber`` for a share group. Poll it before the manager of the coordinator."""

    config: ConsumerConfig
    coordinator: FindCoordinatorManager = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    handler: EventHandler[ShareEvent] = field(repr=False)
    trace: Listener = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    member_id: str
    """1 to 36 characters, kept for the life of the consumer."""
    on_assignment: Callable[[dict[TopicPartition, UUID], float], None] = field(repr=False)
    """Called with the partitions that are to be read from now on."""
    state: ShareMemberState = field(default=ShareMemberState.UNSUBSCRIBED, init=False)
    epoch: int = field(default=JOIN_EPOCH, init=False)
    _topics: frozenset[str] = field(default=frozenset(), init=False)
    _assigned: frozenset[tuple[UUID, int]] = field(default=frozenset(), init=False)
    """As the coordinator assigned them, including topic ids not in the metadata yet: the coordinator does not repeat them."""
    _named_at: tuple[object, int] = field(default=((), -1), init=False)
    _talk: _Talk = field(init=False)
    _reading: PollInterval = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._talk = _Talk(self.member_id, backoff_of(self.config, self.random))
        self._reading = PollInterval(self.config.max_poll_interval_ms / 1000)

    # --- questions -------------------------------------------------------------------------------------------------------------

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics whose metadata is needed."""
        return self._topics

    @property
    def is_leaving(self) -> bool:
        """A request to leave is due, or not answered yet."""
        return self.state is _S.LEAVING

    def shown(self, now: float) -> ConsumerState:
        """Return what the member is doing, for people."""
        seen_at = self._talk.seen_at
        away = self.state in (_S.JOINING, _S.RECLAIMING, _S.STABLE) and self.coordinator.coordinator is None
        if away and seen_at is not None and now >= seen_at + self._talk.interval:
            return ConsumerState.COORDINATOR_LOST
        if self.state is _S.STABLE and not self._assigned:
            return ConsumerState.JOINING
        return SHOWN[self.state]

    # --- requests of the application -------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Be a member that reads these topics."""
        self._topics = subscription.topics or frozenset()
        self._name_now(now)
        if self.state in (_S.LEAVING, _S.FATAL):
            self._restart(JOIN_EPOCH)
        self._move(_I.SUBSCRIBE, now)
        self._answer_calls()

    def unsubscribe(self, call: Call[None] | None, now: float) -> None:
        """Leave the group; ``call`` is resolved when that is done."""
        if call is not None:
            self._talk.calls.append(call)
        if self.state is not _S.LEAVING:
            self._talk.leave_until = now + self.config.request_timeout_ms / 1000
            self._restart(LEAVE_EPOCH)
            self._assign(frozenset(), now)
            self._topics = frozenset()
            self._reading.stop()
        self._move(_I.LEAVE, now)
        if self.state is _S.UNSUBSCRIBED:  # it was no member: there is nothing to leave, and the next heartbeat joins
            self._restart(JOIN_EPOCH)
            self._answer_calls()

    def _answer_calls(self) -> None:
        calls, self._talk.calls = self._talk.calls, []
        for call in calls:
            call.resolve(None)

    # --- one turn --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the heartbeat that is due."""
        if self.state is _S.AWAY and self._reading.reads_again(self._progress()):
            self._move(_I.READ, now)
        if self.state in (_S.UNSUBSCRIBED, _S.FATAL):
            return Poll()
        if self.state is _S.AWAY:
            return Poll(wake_at=now + self._talk.interval)  # a read call need not make an event
        self._name(now)
        node = self.coordinator.coordinator
        if node is None:
            return self._without_coordinator(now)
        self._talk.seen_at = now
        expires_at = self._watch_reading(now)
        if expires_at <= now:
            return self._expire(node.id, now)
        due_at = self._due_at()
        if due_at > now:
            return Poll(wake_at=min(due_at, expires_at))
        return Poll((self._heartbeat(node.id, now),), expires_at)

    def poll_on_close(self, now: float) -> Poll:
        """Leave, if there is anything to leave and a broker to send it to."""
        node = self.coordinator.coordinator or self.coordinator.latest
        if self.state not in (_S.JOINING, _S.RECLAIMING, _S.STABLE, _S.LEAVING) or node is None or self._talk.is_leaving:
            return Poll()
        self.unsubscribe(None, now)
        return Poll((self._heartbeat(node.id, now),))

    def _due_at(self) -> float:
        talk = self._talk
        if talk.is_leaving or (talk.in_flight and self.state is not _S.LEAVING):
            return NEVER
        if self.state is not _S.STABLE or talk.subscribed != self._topics:
            return talk.backoff.retry_at
        return max(talk.due_at, talk.backoff.retry_at)

    def _without_coordinator(self, now: float) -> Poll:
        if self.state is _S.LEAVING and self._leaves_in_vain(now):
            self._left(now)
            return Poll()
        self.coordinator.request(now)
        fatal = self.coordinator.fatal
        if fatal is not None and fatal is not self._talk.reported:
            self.handler.publish_error(fatal, final=True)
        self._talk.reported = fatal
        if self._talk.seen_at is None:
            self._talk.seen_at = now
        shown_at = self._talk.seen_at + self._talk.interval
        return Poll(wake_at=shown_at if shown_at > now else NEVER)

    def _leaves_in_vain(self, now: float) -> bool:
        coordinator, talk = self.coordinator, self._talk
        found = coordinator.fatal is None and talk.seen_at is not None
        return not found or coordinator.is_out_of_reach or now >= talk.leave_until

    def _progress(self) -> PollProgress:
        return PollProgress(polled_at=self.handler.polled_at, polling=self.handler.reading > 0)

    def _watch_reading(self, now: float) -> float:
        """Return when the application has gone too long without reading: its partitions may have no other member."""
        if self.state is not _S.STABLE or not self._assigned:
            self._reading.stop()
            return NEVER
        ends_at = self._reading.ends_at(self._progress(), now)
        warning = self._reading.warning(now)
        if warning is not None:
            self.trace(Fault(now=now, text=warning, subject="group"))
        return ends_at if ends_at <= now else min(ends_at, self._reading.wake_at(now))

    def _expire(self, node_id: int, now: float) -> Poll:
        self._reading.expire(now)
        self._restart(LEAVE_EPOCH)
        request = self._heartbeat(node_id, now)
        self._talk.is_leaving = False
        self._talk.life += 1
        self.epoch = JOIN_EPOCH
        self._assign(frozenset(), now)
        self._move(_I.EXPIRE, now)
        return Poll((request,), now + self._talk.interval)

    # --- heartbeats ------------------------------------------------------------------------------------------------------------

    def _heartbeat(self, node_id: int, now: float) -> UnsentRequest:
        talk = self._talk
        leaves = self.epoch == LEAVE_EPOCH
        full = not leaves and talk.subscribed is None
        topics = self._topics
        message = ShareGroupHeartbeatRequest(
            group_id=self.config.group_id or "",
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=self.config.client_rack or None if full else None,
            subscribed_topic_names=tuple(sorted(topics)) if not leaves and talk.subscribed != topics else None,
        )
        life = talk.life
        talk.in_flight = not leaves
        talk.is_leaving = leaves
        return UnsentRequest(
            message=message,
            node_id=node_id,
            channel=Channel.GROUP,
            on_done=lambda outcome, at: self._answered(life, topics, node_id, now, outcome, at),
            expires_at=now + self.config.request_timeout_ms / 1000,
            final=leaves,
        )

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, life: int, topics: frozenset[str], node_id: int, sent_at: float, outcome: object, now: float) -> None:
        if life != self._talk.life:
            return
        self._talk.in_flight = False
        error = self._error_of(outcome)
        if self.state in (_S.LEAVING, _S.RECLAIMING):
            self._leave_answered(error, node_id, now)
        elif error is not None:
            self._failed(error, node_id, now)
        elif isinstance(outcome, ShareGroupHeartbeatResponse):
            self._went_well(outcome, topics, sent_at, now)

    def _leave_answered(self, error: KafkaError | None, node_id: int, now: float) -> None:
        """A request that the coordinator has not acted on is sent again while there is time. Any other answer means: we are out.

        A member that is to join has as much time as it takes.
        """
        verdict = judge(error) if error is not None else None
        if verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE):
            self.coordinator.lost(node_id, error, now)
        if verdict in NOT_HEARD and (self.state is _S.RECLAIMING or now < self._talk.leave_until):
            self._talk.backoff.failed(now)
            self._talk.is_leaving = False
        elif self.state is _S.RECLAIMING:
            self._restart(JOIN_EPOCH)
            self._move(_I.RECLAIMED, now)
        else:
            self._left(now)

    def _error_of(self, outcome: object) -> KafkaError | None:
        if isinstance(outcome, KafkaError):
            return outcome
        if not isinstance(outcome, ShareGroupHeartbeatResponse):
            return MalformedResponseError(f"a heartbeat was answered with {type(outcome).__name__}")
        if outcome.error_code:
            return for_code(outcome.error_code, outcome.error_message, group=self.config.group_id)
        if outcome.member_epoch <= 0 and self.state not in (_S.LEAVING, _S.RECLAIMING):
            return MalformedResponseError(f"a heartbeat was answered with member epoch {outcome.member_epoch}; expected 1 or more")
        return None

    def _went_well(self, answer: ShareGroupHeartbeatResponse, topics: frozenset[str], sent_at: float, now: float) -> None:
        talk = self._talk
        self.coordinator.served(now)
        if talk.backoff.failures:
            self.trace(Recovered(now=now, outage=_HEARTBEATS, subject="group"))
        talk.backoff.succeeded()
        talk.gone = False
        if self.state is _S.JOINING or talk.subscribed != topics:
            talk.waits_since = now
        talk.subscribed = topics
        if 0 < answer.heartbeat_interval_ms <= LONGEST_INTERVAL * 1000:
            talk.interval = answer.heartbeat_interval_ms / 1000
        self.epoch = answer.member_epoch
        self._move(_I.JOINED, now)
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            self._assign(frozenset((t.topic_id, index) for t in parts if t.topic_id is not None for index in t.partitions), now)
        # The first answer is usually empty: the share state has to be written first, and only a later heartbeat brings partitions.
        talk.due_at = next_heartbeat(sent_at, talk.interval, talk.waits_since if not self._assigned else -inf)
        self._watch_wait(now)

    def _watch_wait(self, now: float) -> None:
        """Say that no partitions come, and that they have come. A coordinator that cannot write the share state gives no error."""
        talk, metadata = self._talk, self.metadata
        if self._assigned:
            if talk.waits_long:
                talk.waits_long = False
                self.trace(Recovered(now=now, outage=_ASSIGNMENT, subject="group"))
        elif now >= talk.waits_since + SAY_AFTER and not self._topics.isdisjoint(metadata.names.values()):
            talk.waits_long = True
            text = (
                "the coordinator counts us in as a member, but assigns no partitions; reads wait for them. Perhaps the brokers"
                " cannot create or write their topic __share_group_state, which they say only in their own log:"
                " share.coordinator.state.topic.replication.factor is 3 unless it was configured otherwise, and the brokers known"
                f" here are {len(metadata.cluster.nodes)}"
            )
            self.trace(Fault(now=now, text=text, subject="group", outage=_ASSIGNMENT))

    def _failed(self, error: KafkaError, node_id: int, now: float) -> None:
        talk, verdict = self._talk, judge(error)
        talk.subscribed = None
        if verdict in OUT and not (isinstance(error, GroupIdNotFound) and talk.gone):
            talk.gone = isinstance(error, GroupIdNotFound)
            if self.state is _S.JOINING and not talk.gone:
                talk.backoff.failed(now)  # a coordinator that puts every new member out would be asked without end
            self._assign(frozenset(), now)
            taken = self.state is _S.JOINING and verdict is Verdict.OLD_GENERATION
            self._restart(LEAVE_EPOCH if taken else JOIN_EPOCH)
            self._move(_I.TAKEN if taken else _I.FENCE, now, str(error))
            if taken:  # it was no member, and that lasts until it may be one
                text, outage = "the coordinator still knows this member from before; leaving first, to join then", _HEARTBEATS
            else:
                text, outage = "not a member of the share group any more; joining again", ""
            self.trace(Fault(now=now, text=text, error=error, subject="group", outage=outage))
            return
        elif verdict in (Verdict.REDISCOVER, Verdict.UNREACHABLE):
            self.coordinator.lost(node_id, error, now)
            talk.backoff.failed(now)
        elif verdict in (Verdict.RETRY, Verdict.REBALANCING) or isinstance(error, UnknownError):
            talk.backoff.failed(now)  # an unknown error is logged and not raised: records of other topics can still be read
        elif verdict is Verdict.REPORT:
            self.handler.publish_error(error, to_all=True)
            talk.backoff.failed(now)
            talk.backoff.retry_at = now + max(talk.interval, self.config.retry_backoff_max)
        else:
            self._refused(error, now)
            return
        if self.coordinator.is_settling_in(error, now):
            return
        self.trace(Fault(now=now, text="a heartbeat of the share group failed", error=error, subject="group", outage=_HEARTBEATS))

    def _refused(self, error: KafkaError, now: float) -> None:
        if isinstance(error, UnsupportedVersionError):
            error = unsupported(error, self.config.group_id or "")
        self._assign(frozenset(), now)
        self._restart(JOIN_EPOCH)
        self._move(_I.FAIL, now, str(error))
        self.handler.publish_error(error, final=True)

    def _left(self, now: float) -> None:
        self._restart(JOIN_EPOCH)
        self._move(_I.LEFT, now)
        self._answer_calls()

    def _restart(self, epoch: int) -> None:
        self.epoch = epoch
        talk = self._talk
        talk.life += 1
        talk.subscribed = None
        talk.in_flight = talk.is_leaving = False
        talk.due_at = 0.0

    # --- the assignment --------------------------------------------------------------------------------------------------------

    def _assign(self, partitions: frozenset[tuple[UUID, int]], now: float) -> None:
        self._assigned = partitions
        self._name_now(now)

    def _name(self, now: float) -> None:
        """Look up the assigned topics in new metadata; ask for an update if one is missing."""
        if self._named_at != (self._assigned, self.metadata.version):
            self._name_now(now)
            if any(topic_id not in self.metadata.names for topic_id, _ in self._assigned):
                self.metadata.request_update(now)

    def _name_now(self, now: float) -> None:
        """Have what is assigned read, except for topics of a former subscription: the coordinator learns about that later."""
        self._named_at = (self._assigned, self.metadata.version)
        names = {tid: name for tid, name in self.metadata.names.items() if name in self._topics}
        self.on_assignment({TopicPartition(names[tid], index): tid for tid, index in self._assigned if tid in names}, now)

    def _move(self, what: ShareMemberInput, now: float, reason: str = "") -> None:
        TRANSITIONS.move(self, what, now, self.trace, reason)


def unsupported(error: KafkaError, group: str) -> UnsupportedVersionError:
    """Return the error that says what a cluster without share groups lacks."""
    needs = "share groups (KIP-932) need brokers of Kafka 4.2 or newer with the feature share.version=1"
    switch = "which 'kafka-features upgrade --feature share.version=1' turns on in a cluster that was upgraded"
    named = UnsupportedVersionError(f"the cluster does not serve share group {group!r}: {needs}, {switch}")
    named.__cause__ = error
    return named
