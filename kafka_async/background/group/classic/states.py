"""The states of a member in the classic protocol.

Sources: Java's ``AbstractCoordinator`` (``MemberState``, and the flags ``rejoinNeeded``, ``needsJoinPrepare``, which are states
here); KIP-394, KIP-429.
"""

from enum import Enum
from typing import Final

from ....errors import KafkaError
from ....states import StateTable
from ....trace import MEMBERSHIP, Listener
from ....values import define, field


class ClassicState(Enum):
    UNSUBSCRIBED = "not a member"
    REVOKING = "the application is giving up partitions before we join"
    LOSING = "no longer a member; the application is giving up partitions that others may already own"
    JOINING = "a JoinGroup is due or unanswered"
    LEADING = "we lead the generation, and wait for the metadata of the group's topics"
    SYNCING = "a SyncGroup is due or unanswered"
    ASSIGNING = "the application is taking over its assignment"
    OVERTAKEN = "the same, and the next rebalance has already begun"
    STABLE = "the application has its assignment"
    LEAVING = "a LeaveGroup is due or unanswered"
    FATAL = "refused for good; the application got the error"


class ClassicInput(Enum):
    SUBSCRIBE = "the application subscribed"
    LEAVE = "the application unsubscribed"
    REVOKE = "a rebalance, before which something has to be given up"
    REJOIN = "a rebalance, before which nothing has to be given up"
    LOSE = "the coordinator no longer counts us as a member, and we hold partitions"
    REVOKED = "the application gave them up"
    LED = "joined; we lead"
    FOLLOWED = "joined; another member leads"
    PLANNED = "we have made everybody's assignment"
    SYNCED = "our assignment has come"
    CURTAILED = "our assignment has come, and takes something away from us for another member (KIP-429)"
    ASSIGNED = "the application has taken it over"
    OVERTAKE = "a rebalance while the application is taking over its assignment"
    LEFT = "the LeaveGroup was answered, or is not needed"
    FAIL = "the coordinator refused us for good"


_S, _I = ClassicState, ClassicInput
TRANSITIONS: Final = StateTable(
    MEMBERSHIP,
    {
        (_S.UNSUBSCRIBED, _I.SUBSCRIBE): _S.JOINING,
        (_S.UNSUBSCRIBED, _I.LEAVE): _S.LEAVING,
        (_S.UNSUBSCRIBED, _I.FAIL): _S.FATAL,
        (_S.REVOKING, _I.SUBSCRIBE): _S.REVOKING,
        (_S.REVOKING, _I.LEAVE): _S.LEAVING,
        (_S.REVOKING, _I.LOSE): _S.LOSING,
        (_S.REVOKING, _I.REJOIN): _S.JOINING,
        (_S.REVOKING, _I.REVOKED): _S.JOINING,
        (_S.REVOKING, _I.FAIL): _S.FATAL,
        (_S.LOSING, _I.SUBSCRIBE): _S.LOSING,
        (_S.LOSING, _I.LEAVE): _S.LEAVING,
        (_S.LOSING, _I.REVOKED): _S.JOINING,
        (_S.LOSING, _I.FAIL): _S.FATAL,
        (_S.JOINING, _I.SUBSCRIBE): _S.JOINING,
        (_S.JOINING, _I.LEAVE): _S.LEAVING,
        (_S.JOINING, _I.REJOIN): _S.JOINING,
        (_S.JOINING, _I.LOSE): _S.LOSING,
        (_S.JOINING, _I.LED): _S.LEADING,
        (_S.JOINING, _I.FOLLOWED): _S.SYNCING,
        (_S.JOINING, _I.FAIL): _S.FATAL,
        (_S.LEADING, _I.SUBSCRIBE): _S.LEADING,
        (_S.LEADING, _I.LEAVE): _S.LEAVING,
        (_S.LEADING, _I.PLANNED): _S.SYNCING,
        (_S.LEADING, _I.REJOIN): _S.JOINING,  # the assignor raised
        (_S.LEADING, _I.FAIL): _S.FATAL,
        (_S.SYNCING, _I.SUBSCRIBE): _S.SYNCING,
        (_S.SYNCING, _I.LEAVE): _S.LEAVING,
        (_S.SYNCING, _I.REJOIN): _S.JOINING,
        (_S.SYNCING, _I.LOSE): _S.LOSING,
        (_S.SYNCING, _I.SYNCED): _S.ASSIGNING,
        (_S.SYNCING, _I.CURTAILED): _S.OVERTAKEN,
        (_S.SYNCING, _I.FAIL): _S.FATAL,
        (_S.ASSIGNING, _I.SUBSCRIBE): _S.ASSIGNING,
        (_S.ASSIGNING, _I.LEAVE): _S.LEAVING,
        (_S.ASSIGNING, _I.ASSIGNED): _S.STABLE,
        (_S.ASSIGNING, _I.OVERTAKE): _S.OVERTAKEN,
        (_S.ASSIGNING, _I.REJOIN): _S.JOINING,
        (_S.ASSIGNING, _I.LOSE): _S.LOSING,
        (_S.ASSIGNING, _I.FAIL): _S.FATAL,
        (_S.OVERTAKEN, _I.SUBSCRIBE): _S.OVERTAKEN,
        (_S.OVERTAKEN, _I.LEAVE): _S.LEAVING,
        (_S.OVERTAKEN, _I.OVERTAKE): _S.OVERTAKEN,
        (_S.OVERTAKEN, _I.REVOKE): _S.REVOKING,
        (_S.OVERTAKEN, _I.REJOIN): _S.JOINING,
        (_S.OVERTAKEN, _I.LOSE): _S.LOSING,
        (_S.OVERTAKEN, _I.FAIL): _S.FATAL,
        (_S.STABLE, _I.SUBSCRIBE): _S.STABLE,
        (_S.STABLE, _I.LEAVE): _S.LEAVING,
        (_S.STABLE, _I.REVOKE): _S.REVOKING,
        (_S.STABLE, _I.REJOIN): _S.JOINING,
        (_S.STABLE, _I.LOSE): _S.LOSING,
        (_S.STABLE, _I.FAIL): _S.FATAL,
        (_S.LEAVING, _I.SUBSCRIBE): _S.LEAVING,  # joins when it has left
        (_S.LEAVING, _I.LEAVE): _S.LEAVING,
        (_S.LEAVING, _I.LEFT): _S.UNSUBSCRIBED,
        (_S.LEAVING, _I.FAIL): _S.FATAL,
        (_S.FATAL, _I.SUBSCRIBE): _S.JOINING,  # the cause may have been removed
        (_S.FATAL, _I.LOSE): _S.LOSING,
        (_S.FATAL, _I.LEAVE): _S.LEAVING,
        (_S.FATAL, _I.FAIL): _S.FATAL,
    },
)

HEARTBEATING = frozenset((_S.REVOKING, _S.ASSIGNING, _S.OVERTAKEN, _S.STABLE))
"""States in which heartbeats are sent, and their responses move the member.

In JOINING and SYNCING the coordinator counts the member as alive because it waits. As long as the member holds partitions,
heartbeats are sent there too, on another connection, only to know that it does; the answer of JoinGroup or SyncGroup moves it.
"""

NOT_OURS = frozenset((_S.UNSUBSCRIBED, _S.LOSING, _S.LEAVING, _S.FATAL))
"""States in which what the application holds is not the group's (any more), so that it may be silent.

In all others it may not, however often the group rebalances: a cooperative member joins again with its partitions, by itself.
"""

PROPOSING = frozenset((_S.ASSIGNING, _S.OVERTAKEN, _S.LOSING, _S.FATAL))
"""States in which the application may still be about to take over what we proposed."""

_EXPLAINED = frozenset((_I.REVOKE, _I.REJOIN, _I.LOSE, _I.OVERTAKE, _I.FAIL))
"""Inputs that come with a reason of their own."""


@define(eq=False)
class ClassicStanding:
    """The state of one member, moved by the table alone."""

    trace: Listener = field(repr=False)
    state: ClassicState = field(default=_S.UNSUBSCRIBED, init=False)
    turn: int = field(default=0, init=False)
    """Grows with every change of state; a request of an earlier turn is over."""
    reason: str = field(default="", init=False)
    """Why we last moved or are about to: a JoinGroup or LeaveGroup carries it for the broker's log (KIP-800)."""
    failure: KafkaError | None = field(default=None, init=False)
    """FATAL: what refused us."""
    is_denied: bool = field(default=False, init=False)
    """The group refuses us for a reason that only an operator can remove; ends with the next answer that accepts us."""

    def move(self, what: ClassicInput, now: float) -> bool:
        """Return whether the state is another one now."""
        moved = TRANSITIONS.move(self, what, now, self.trace, self.reason if what in _EXPLAINED else "")
        if moved:
            self.turn += 1
            if self.state is not _S.FATAL:
                self.failure = None
        return moved
