"""What a member in the classic protocol can be doing, and what an error in place of an answer means for it.

Decides: which state follows (``TRANSITIONS``, the whole of it; an unknown pair is a bug) and the verdict on each error. Owns
nothing. Must never act: ``classic_membership.py`` does. Sources: Java's ``AbstractCoordinator`` (``MemberState``, and the flags
``rejoinNeeded``, ``needsJoinPrepare``, which are states here) and its response handlers; KIP-394, KIP-429.
"""

from collections.abc import Mapping
from enum import Enum

from ..errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    MemberIdRequired,
    NotCoordinatorError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownMemberIdError,
)


class ClassicState(Enum):
    UNSUBSCRIBED = "not a member"
    REVOKING = "the application gives partitions up before we join"
    LOSING = "not a member any more; the application gives up what is others' already"
    JOINING = "a JoinGroup is due or unanswered"
    LEADING = "we lead the generation; the metadata of the group's topics are awaited"
    SYNCING = "a SyncGroup is due or unanswered"
    ASSIGNING = "the application takes the assignment over"
    OVERTAKEN = "the same, and the next rebalance has to follow"
    STABLE = "the assignment is taken over"
    LEAVING = "a LeaveGroup is due or unanswered"
    FATAL = "refused for good; the application was told"


class ClassicInput(Enum):
    SUBSCRIBE = "the application subscribed"
    LEAVE = "the application unsubscribed"
    REVOKE = "a rebalance, and something to give up before it"
    REJOIN = "a rebalance, and nothing to give up before it"
    LOSE = "the coordinator does not count us in any more, and we hold partitions"
    REVOKED = "the application gave them up"
    LED = "joined; we lead"
    FOLLOWED = "joined; another member leads"
    PLANNED = "the assignments are made"
    SYNCED = "there is an assignment"
    CURTAILED = "there is an assignment that takes something away from us for another member (KIP-429)"
    ASSIGNED = "the application took it over"
    OVERTAKE = "a rebalance while the application is at it"
    LEFT = "the LeaveGroup was answered, or there is nothing to say"
    FAIL = "the coordinator refused us for good"


_S, _I = ClassicState, ClassicInput
TRANSITIONS: Mapping[tuple[ClassicState, ClassicInput], ClassicState] = {
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
}

HEARTBEATING = frozenset((_S.REVOKING, _S.ASSIGNING, _S.OVERTAKEN, _S.STABLE))
"""States in which heartbeats are sent.

Not in JOINING and SYNCING: there the coordinator counts the member as alive because it waits, and would not answer a heartbeat on
the same connection before the request it waits with.
"""


class Verdict(Enum):
    """What an error in place of an answer means."""

    UNKNOWN_MEMBER = "the coordinator does not know our member id"
    OLD_GENERATION = "it knows us, but the group has moved on"
    REBALANCING = "a rebalance is under way"
    NAMED = "come back with the member id in the answer (KIP-394)"
    REDISCOVER = "ask for the coordinator again"
    RETRY = "the same again after a backoff"
    REPORT = "tell the application and try again, slowly: access can be given"
    FATAL = "nothing that this member can do"


_VERDICTS: Mapping[type[KafkaError], Verdict] = {
    UnknownMemberIdError: Verdict.UNKNOWN_MEMBER,
    IllegalGenerationError: Verdict.OLD_GENERATION,
    RebalanceInProgressError: Verdict.REBALANCING,
    MemberIdRequired: Verdict.NAMED,
    NotCoordinatorError: Verdict.REDISCOVER,
    CoordinatorNotAvailableError: Verdict.REDISCOVER,
    GroupAuthorizationFailedError: Verdict.REPORT,
    TopicAuthorizationFailedError: Verdict.REPORT,
    UnknownError: Verdict.REPORT,
}


def judge(error: KafkaError) -> Verdict:
    """Return what ``error`` means. A code that is not listed goes by its class: retriable or not."""
    verdict = _VERDICTS.get(type(error))
    if verdict is not None:
        return verdict
    if isinstance(error, AuthenticationFailedError):
        return Verdict.REPORT
    if not error.retriable:
        return Verdict.FATAL
    return Verdict.RETRY if isinstance(error, BrokerResponseError) else Verdict.REDISCOVER
