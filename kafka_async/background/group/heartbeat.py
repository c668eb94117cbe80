"""The meaning of errors of heartbeats, and when the next heartbeat is due, for both protocols.

Java: ``AbstractHeartbeatRequestManager.onErrorResponse``, and the response handlers of ``AbstractCoordinator``; KIP-62.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from ...errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaError,
    MemberIdRequired,
    NotCoordinatorError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from ...values import define, field
from ..loop.request_manager import NEVER
from .membership import PollProgress

EAGER: Final = 5
"""Heartbeats in an interval, at least, while partitions are about to be assigned to us or taken from us."""

SOON: Final = 0.25
"""Seconds until the first of them."""

WARN_AT: Final = 0.8
"""Share of ``max_poll_interval_ms`` after which a silent application is warned about."""


class Verdict(Enum):
    """What an error of the coordinator means for the member."""

    UNKNOWN_MEMBER = "the coordinator does not know our member id"
    OLD_GENERATION = "it knows us, but the group has moved on"
    GROUP_GONE = "there is no such group, or none of this protocol"
    REBALANCING = "a rebalance is under way"
    NAMED = "come back with the member id in the answer (KIP-394)"
    REDISCOVER = "ask another coordinator, the first time without backoff"
    UNREACHABLE = "the coordinator does not answer: look for it again, after a backoff"
    RETRY = "the same again after a backoff"
    REPORT = "report it to the application and go on after a backoff: access may be given"
    UNSUPPORTED = "the broker does not offer the protocol"
    FATAL = "nothing that this member can do"


OUT: Final = frozenset((Verdict.UNKNOWN_MEMBER, Verdict.OLD_GENERATION, Verdict.GROUP_GONE))
"""We are no longer a member, or not under this identity: give the partitions up and join again."""

NOT_HEARD: Final = frozenset((Verdict.REDISCOVER, Verdict.UNREACHABLE, Verdict.RETRY))
"""The coordinator, if it was one, has not acted on the request. To leave is asked again, perhaps of another one."""

_VERDICTS: Mapping[type[KafkaError], Verdict] = {
    UnknownMemberIdError: Verdict.UNKNOWN_MEMBER,
    IllegalGenerationError: Verdict.OLD_GENERATION,
    FencedMemberEpochError: Verdict.OLD_GENERATION,
    GroupIdNotFound: Verdict.GROUP_GONE,
    RebalanceInProgressError: Verdict.REBALANCING,
    MemberIdRequired: Verdict.NAMED,
    NotCoordinatorError: Verdict.REDISCOVER,
    CoordinatorNotAvailableError: Verdict.REDISCOVER,
    GroupAuthorizationFailedError: Verdict.REPORT,
    TopicAuthorizationFailedError: Verdict.REPORT,
    UnknownError: Verdict.REPORT,
    UnsupportedVersionError: Verdict.UNSUPPORTED,
}


def judge(error: KafkaError) -> Verdict:
    """Return what ``error`` means. A code that is not listed goes by its class: retriable or not.

    Java gives up on every code that it does not list; here a code that is retriable by its class (a coordinator that is loading, a
    disk that hiccups) is tried again. Java also gives up without access to the group; here access may be given back.
    """
    verdict = _VERDICTS.get(type(error))
    if verdict is not None:
        return verdict
    if isinstance(error, AuthenticationFailedError):
        return Verdict.REPORT
    if not error.retriable:
        return Verdict.FATAL
    return Verdict.RETRY if isinstance(error, BrokerResponseError) else Verdict.UNREACHABLE


def next_heartbeat(sent_at: float, interval: float, waits_since: float, longer: float = 0.0) -> float:
    """Return when the heartbeat after the one of ``sent_at`` is due: sooner while something is likely to have changed.

    A rebalance takes two steps in both protocols, and a member learns of the second one by its heartbeat alone. So a member that
    waits for it, from ``waits_since`` on, sends more heartbeats for as long as the others need at most: their interval, until they
    hear of it, and ``longer`` for what they do then.
    """
    if sent_at >= waits_since + interval + longer:
        return sent_at + interval
    return sent_at + min(interval / EAGER, max(SOON, sent_at - waits_since))


@define(eq=False)
class PollInterval:
    """Time since the application last read, while it holds partitions."""

    limit: float
    """Seconds: ``max_poll_interval_ms``."""
    _since: float | None = field(default=None, init=False)
    _warned_since: float | None = field(default=None, init=False)
    _expired_at: float = field(default=0.0, init=False)

    def stop(self) -> None:
        """The member holds no partition: the interval does not run."""
        self._since = None

    def expire(self, now: float) -> None:
        """The interval is over, and the member leaves because of it."""
        self._expired_at = now
        self.stop()

    def reads_again(self, progress: PollProgress) -> bool:
        """Whether the application has read since the interval was over."""
        return progress.polling or progress.polled_at > self._expired_at

    def ends_at(self, progress: PollProgress, now: float) -> float:
        """Return when the interval is over: counted from the last read call or the first partition, whichever was later."""
        if self._since is None or progress.polling:
            self._since = now
        self._since = max(self._since, progress.polled_at)
        return self._since + self.limit

    def warning(self, now: float) -> str | None:
        """Return the warning if it is due; once for each silence."""
        if self._since is None or self._since == self._warned_since or now < self._since + WARN_AT * self.limit:
            return None
        self._warned_since = self._since
        return (
            f"the application has not called a read method for {now - self._since:.1f} s; "
            f"will leave the group in {max(self._since + self.limit - now, 0.0):.1f} s (max_poll_interval_ms)"
        )

    def wake_at(self, now: float) -> float:
        """Return when the interval is to be looked at again: at the warning, then at its end; later than ``now``."""
        if self._since is None or now >= self._since + self.limit:
            return NEVER
        warning_at = self._since + WARN_AT * self.limit
        return warning_at if warning_at > now else self._since + self.limit
