"""The contract of a request manager, and the backoff that all of them share.

Java's ``RequestManager.poll``, ``PollResult`` and ``RequestState``, with an absolute deadline in place of a relative wait, so that
answers compose with ``min`` and cannot go stale. ``now`` is seconds on the loop's clock.

A manager never returns a ``wake_at`` in the past for something that it cannot do yet: that is how clients spin (promise 9).
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple, Protocol

from ...config import ConsumerConfig
from ...network import NO_JITTER, ExponentialBackoff, UnsentRequest
from ...values import define, evolve, field

NEVER = inf
"""A ``wake_at`` that never falls due: only an event or a response can change anything."""


class Poll(NamedTuple):
    """The result of a poll: requests to send now, and the latest time (seconds, absolute) at which to poll again."""

    requests: tuple[UnsentRequest, ...] = ()
    wake_at: float = NEVER

    def until(self, wake_at: float) -> "Poll":
        """Return the same with a time that is not later than ``wake_at``."""
        return self if self.wake_at <= wake_at else Poll(self.requests, wake_at)


IDLE: Final = Poll()
"""Nothing to send, and nothing to be woken for."""


class RequestManager(Protocol):
    """Owns one kind of request to the cluster."""

    def poll(self, now: float) -> Poll:
        """Return what to send. Called once per turn of the loop; never blocks, and raises only because of a bug."""

    def poll_on_close(self, now: float) -> Poll:
        """Return the final requests: what must still be sent when the consumer stops."""


def parting_poll(managers: Iterable[RequestManager], now: float) -> Poll:
    """Poll ``managers`` once while the consumer stops. What they ask is still sent then (``UnsentRequest.final``)."""
    polls = [manager.poll(now) for manager in managers]
    requests = tuple(evolve(request, final=True) for poll in polls for request in poll.requests)
    return Poll(requests, min((poll.wake_at for poll in polls), default=NEVER))


@define(eq=False)
class Backoff:
    """Exponential backoff with jitter (KIP-580): base, twice as long after each failure, at most ``limit``; +-20 %."""

    base: float
    limit: float
    random: Callable[[], float] = field(repr=False)
    failures: int = 0
    retry_at: float = 0.0

    def failed(self, now: float) -> None:
        self.retry_at = now + ExponentialBackoff(self.base, self.limit).delay(self.failures, self.random())
        self.failures += 1

    def succeeded(self) -> None:
        self.failures = 0
        self.retry_at = 0.0

    def ready(self, now: float) -> bool:
        return now >= self.retry_at


def backoff_of(config: ConsumerConfig, random: Callable[[], float]) -> Backoff:
    """Return the backoff that ``retry_backoff_ms`` and ``retry_backoff_max_ms`` describe."""
    return Backoff(config.retry_backoff, config.retry_backoff_max, random)


def retry_delay(config: ConsumerConfig, failures: int) -> float:
    """Return the seconds to wait after so many earlier failures, without jitter: for what one consumer repeats by itself."""
    return ExponentialBackoff(config.retry_backoff, config.retry_backoff_max).delay(failures, NO_JITTER)


@define(eq=False)
class RequestState:
    """Whether one kind of request may go out: at most one in flight, and not before its backoff has passed."""

    backoff: Backoff
    in_flight: bool = False

    def may_send(self, now: float) -> bool:
        return not self.in_flight and self.backoff.ready(now)

    def sent(self) -> None:
        self.in_flight = True

    def succeeded(self) -> None:
        self.in_flight = False
        self.backoff.succeeded()

    def failed(self, now: float) -> None:
        self.in_flight = False
        self.backoff.failed(now)

    def wake_at(self) -> float:
        """When ``may_send`` becomes true by the passing of time alone."""
        return NEVER if self.in_flight else self.backoff.retry_at
