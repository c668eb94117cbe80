"""The states of a member in the consumer protocol, as one table.

An unknown pair is a bug and raises ``RuntimeError``.

It is Java's ``MemberState`` with the flags around it turned into states: ASSIGNING is RECONCILING with
``reconciliationInProgress``, AWAY is STALE after the release. Java's PREPARE_LEAVING is missing, because here the application gives
its partitions up before it asks to leave, and a member that leaves for its application's silence does so in one step.
Sources: KIP-848, ``MemberState.java``, ``AbstractMembershipManager.java``.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from ....errors import KafkaError
from ....model import ConsumerState
from ....states import StateTable
from ....trace import MEMBERSHIP, Listener
from ....values import define, field


class MemberState(Enum):
    UNSUBSCRIBED = "not a member"
    JOINING = "joining: a full heartbeat with epoch 0 is due or unanswered"
    RECLAIMING = "our id is in use, perhaps by ourselves: the request to release it, or to leave, is due or unanswered"
    RECONCILING = "the target differs from the current assignment; the application has not been asked yet"
    ASSIGNING = "the application is moving to the target"
    ACKNOWLEDGING = "a heartbeat with the partitions that are owned now is due"
    STABLE = "the application has what the target says"
    FENCED = "no longer a member; the application is giving up its partitions"
    STALE = "left, because the application does not read; it still has to give up its partitions"
    AWAY = "left, and gave up its partitions; joins again when the application reads"
    LEAVING = "the request to leave is due or unanswered"
    FATAL = "refused for good; the application got the error"


class MemberInput(Enum):
    SUBSCRIBE = "the application subscribed"
    LEAVE = "the application unsubscribed"
    JOINED = "the coordinator accepted us as a member"
    TAKEN = "a member has our id, which may be what the coordinator still knows of us"
    RECLAIMED = "whoever has it is not known to be a member any more"
    TARGET = "there is a target that the application has not moved to"
    PROPOSED = "the application was asked to move to the target"
    ASSIGNED = "the application has moved"
    ACKNOWLEDGED = "the heartbeat that reports it was handed to the network"
    FENCE = "the coordinator no longer counts us as a member"
    EXPIRE = "the application has not read for too long"
    REVOKED = "the application gave up its partitions"
    READ = "the application reads again"
    LEFT = "the request to leave was answered, or cannot be sent"
    FAIL = "the coordinator refused us for good"
    FALL_BACK = "a member of the other protocol takes over"


_S, _I = MemberState, MemberInput
TRANSITIONS: Final = StateTable(
    MEMBERSHIP,
    {
        (_S.UNSUBSCRIBED, _I.SUBSCRIBE): _S.JOINING,
        (_S.UNSUBSCRIBED, _I.LEAVE): _S.UNSUBSCRIBED,
        (_S.JOINING, _I.SUBSCRIBE): _S.JOINING,
        (_S.JOINING, _I.LEAVE): _S.LEAVING,
        (_S.JOINING, _I.JOINED): _S.STABLE,
        (_S.JOINING, _I.TAKEN): _S.RECLAIMING,
        (_S.JOINING, _I.FENCE): _S.FENCED,
        (_S.JOINING, _I.FAIL): _S.FATAL,
        (_S.JOINING, _I.FALL_BACK): _S.UNSUBSCRIBED,
        (_S.RECLAIMING, _I.SUBSCRIBE): _S.RECLAIMING,
        (_S.RECLAIMING, _I.LEAVE): _S.LEAVING,
        (_S.RECLAIMING, _I.RECLAIMED): _S.JOINING,
        (_S.RECLAIMING, _I.FAIL): _S.FATAL,
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
        (_S.ACKNOWLEDGING, _I.TARGET): _S.ACKNOWLEDGING,  # what was done is reported first
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
        (_S.FENCED, _I.LEAVE): _S.LEAVING,  # only its epoch may have been wrong, then the coordinator still counts it in
        (_S.FENCED, _I.REVOKED): _S.JOINING,
        (_S.STALE, _I.SUBSCRIBE): _S.STALE,
        (_S.STALE, _I.LEAVE): _S.UNSUBSCRIBED,
        (_S.STALE, _I.REVOKED): _S.AWAY,
        (_S.AWAY, _I.SUBSCRIBE): _S.AWAY,
        (_S.AWAY, _I.LEAVE): _S.UNSUBSCRIBED,
        (_S.AWAY, _I.READ): _S.JOINING,
        (_S.LEAVING, _I.SUBSCRIBE): _S.JOINING,  # whether the leave request was sent or not; who may not begin anew then is TAKEN
        (_S.LEAVING, _I.LEAVE): _S.LEAVING,
        (_S.LEAVING, _I.LEFT): _S.UNSUBSCRIBED,
        (_S.FATAL, _I.SUBSCRIBE): _S.JOINING,  # Java stays silent here for ever; the cause may have been removed
        (_S.FATAL, _I.LEAVE): _S.UNSUBSCRIBED,
        (_S.FATAL, _I.REVOKED): _S.FATAL,
    },
)

MEMBER: Final = frozenset((_S.RECONCILING, _S.ASSIGNING, _S.ACKNOWLEDGING, _S.STABLE))
"""States with an epoch of the coordinator's."""
SPEAKING: Final = MEMBER | {_S.JOINING, _S.RECLAIMING, _S.LEAVING}
"""States that need the coordinator."""
LEAVABLE: Final = SPEAKING | {_S.FENCED}
"""States in which the coordinator may still count us in, so that leaving is worth a request."""
AT_ONCE: Final = frozenset((_S.JOINING, _S.RECLAIMING, _S.ACKNOWLEDGING, _S.LEAVING))
"""States in which a heartbeat does not wait for the interval."""

RELEASING: Final = frozenset((_S.FENCED, _S.STALE, _S.FATAL))
"""States in which the application may still have partitions to give up."""

SHOWN: Mapping[MemberState, ConsumerState] = {
    _S.UNSUBSCRIBED: ConsumerState.STEADY,
    _S.JOINING: ConsumerState.JOINING,
    _S.RECLAIMING: ConsumerState.JOINING,
    _S.RECONCILING: ConsumerState.REBALANCING,
    _S.ASSIGNING: ConsumerState.REBALANCING,
    _S.ACKNOWLEDGING: ConsumerState.STEADY,  # the application has what it is to have
    _S.STABLE: ConsumerState.STEADY,
    _S.FENCED: ConsumerState.REBALANCING,
    _S.STALE: ConsumerState.REBALANCING,
    _S.AWAY: ConsumerState.JOINING,
    _S.LEAVING: ConsumerState.REBALANCING,
    _S.FATAL: ConsumerState.FATAL,
}


@define(eq=False)
class ConsumerStanding:
    """The state of one member, moved by the table alone."""

    trace: Listener = field(repr=False)
    state: MemberState = field(default=_S.UNSUBSCRIBED, init=False)
    failure: KafkaError | None = field(default=None, init=False)
    """FATAL: what refused us."""
    is_denied: bool = field(default=False, init=False)
    """The group refuses us for a reason that only an operator can remove; ends with the next answer that accepts us."""

    def move(self, what: MemberInput, now: float, reason: str = "") -> None:
        if TRANSITIONS.move(self, what, now, self.trace, reason) and self.state is not _S.FATAL:
            self.failure = None
