"""Metrics for the operators of the cluster: the client telemetry request manager (KIP-714).

A ``MetricsSource`` provides the bytes to send. A failure costs the operators some numbers and the application nothing.

It speaks only to brokers that offer telemetry, which takes a plugin on their side, and wakes the loop once in an interval of the
broker's. The first push comes after half an interval to one and a half, so that clients that start together do not push together.
Sources: KIP-714; Java's ``ClientTelemetryReporter`` and ``ClientTelemetryUtils.maybeFetchErrorIntervalMs``. Unlike Java's, a push
that was too large or came too early keeps its subscription, as the KIP says.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    IllegalStateError,
    KafkaError,
    MalformedResponseError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    for_code,
)
from ...events import Call
from ...network import UnsentRequest
from ...records.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress
from ...states import StateTable
from ...trace import Fault, Listener
from ...values import define, evolve, field, frozen
from ...wire import Api
from ...wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ..loop.environment import Network
from ..loop.request_manager import NEVER, Poll
from .metrics_source import MetricsSelection, MetricsSource

DEFAULT_INTERVAL: Final = 300.0
"""Seconds between attempts while no broker has said how often (the default of Java's client, and of a subscription)."""
LEAST_INTERVAL: Final = 0.1
"""Seconds: the least ``interval.ms`` that a broker lets operators set. A smaller one must not make us spin."""
LAST_PUSH_TIMEOUT: Final = 1.0
"""Seconds that the last push may take out of the time for stopping."""
EARLY: Final = 0.5
SPREAD: Final = 1.0
"""The first push comes after ``EARLY`` to ``EARLY + SPREAD`` intervals."""
UNCOMPRESSED: Final = 0
CODECS: Final = frozenset((GZIP, SNAPPY, LZ4, ZSTD))


class TelemetryState(Enum):
    SUBSCRIPTION_NEEDED = "a broker will be asked what it wants, when it is time"
    SUBSCRIPTION_IN_PROGRESS = "a broker has been asked, and has not answered yet"
    PUSH_NEEDED = "metrics will be pushed, when it is time"
    PUSH_IN_PROGRESS = "metrics have been pushed; the broker has not answered yet"
    TERMINATING = "the consumer is stopping, and the last push is on its way"
    TERMINATED = "nothing more is sent"


class TelemetryInput(Enum):
    REQUESTED = "a request for the subscription was handed to the network"
    SUBSCRIBED = "metrics are wanted"
    UNSUBSCRIBED = "no metrics are wanted, for now"
    FAILED = "no useful answer this time"
    PUSHED = "a push was handed to the network"
    TAKEN = "the push was accepted"
    OUTDATED = "the subscription is no longer valid"
    REFUSED = "telemetry is refused for good"
    LAST_PUSH = "the consumer stops, and a last push was handed to the network"
    STOP = "the consumer stops"


_S, _I = TelemetryState, TelemetryInput
TRANSITIONS: Final = StateTable(
    "telemetry",
    {
        (_S.SUBSCRIPTION_NEEDED, _I.REQUESTED): _S.SUBSCRIPTION_IN_PROGRESS,
        (_S.SUBSCRIPTION_NEEDED, _I.STOP): _S.TERMINATED,
        (_S.SUBSCRIPTION_IN_PROGRESS, _I.SUBSCRIBED): _S.PUSH_NEEDED,
        (_S.SUBSCRIPTION_IN_PROGRESS, _I.UNSUBSCRIBED): _S.SUBSCRIPTION_NEEDED,
        (_S.SUBSCRIPTION_IN_PROGRESS, _I.FAILED): _S.SUBSCRIPTION_NEEDED,
        (_S.SUBSCRIPTION_IN_PROGRESS, _I.REFUSED): _S.TERMINATED,
        (_S.SUBSCRIPTION_IN_PROGRESS, _I.STOP): _S.TERMINATED,
        (_S.PUSH_NEEDED, _I.PUSHED): _S.PUSH_IN_PROGRESS,
        (_S.PUSH_NEEDED, _I.LAST_PUSH): _S.TERMINATING,
        (_S.PUSH_NEEDED, _I.STOP): _S.TERMINATED,
        (_S.PUSH_IN_PROGRESS, _I.TAKEN): _S.PUSH_NEEDED,
        (_S.PUSH_IN_PROGRESS, _I.FAILED): _S.PUSH_NEEDED,
        (_S.PUSH_IN_PROGRESS, _I.OUTDATED): _S.SUBSCRIPTION_NEEDED,
        (_S.PUSH_IN_PROGRESS, _I.REFUSED): _S.TERMINATED,
        (_S.PUSH_IN_PROGRESS, _I.LAST_PUSH): _S.TERMINATING,  # brokers take a last push however early it comes
        (_S.PUSH_IN_PROGRESS, _I.STOP): _S.TERMINATED,
        (_S.TERMINATING, _I.STOP): _S.TERMINATED,
        (_S.TERMINATED, _I.STOP): _S.TERMINATED,
    },
)

_VERDICTS: Mapping[type[KafkaError], TelemetryInput] = {
    UnknownSubscriptionIdError: _I.OUTDATED,
    UnsupportedCompressionTypeError: _I.OUTDATED,
    TelemetryTooLargeError: _I.FAILED,
    ThrottlingQuotaExceededError: _I.FAILED,
}
"""What a broker's error for a push means; any other error that is not retriable means ``REFUSED``."""


@frozen(kw_only=True)
class TelemetrySubscription:
    """What a broker wants."""

    id: int
    wanted: MetricsSelection
    interval: float
    """Seconds between pushes."""
    codecs: tuple[int, ...]
    """Compression types that the broker reads, the preferred first."""
    max_bytes: int


@define(eq=False)
class TelemetryManager:
    """Asks which metrics are wanted and pushes them."""

    config: ConsumerConfig
    source: MetricsSource = field(repr=False)
    network: Network = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)

    state: TelemetryState = field(default=TelemetryState.SUBSCRIPTION_NEEDED, init=False)
    instance_id: UUID | None = field(default=None, init=False)
    """The id by which the operators know this client; kept through subscriptions."""
    refusal: KafkaError | None = field(default=None, init=False)
    """Why telemetry ended before the consumer did."""
    last_error: KafkaError | None = field(default=None, init=False)
    """Why the last request for a subscription was not answered: a cause for timeouts."""
    _subscription: TelemetrySubscription | None = field(default=None, init=False)
    _due_at: float = field(default=-NEVER, init=False)
    _brief: bool = field(default=False, init=False)
    _unread_codecs: set[int] = field(factory=set, init=False)
    """Compression types that a broker said it reads and then did not."""
    _calls: list[Call[UUID]] = field(factory=list, init=False)

    # --- what the application asks ---------------------------------------------------------------------------------------------

    def answer_call(self, call: Call[UUID]) -> None:
        """Resolve ``call`` with the id of this client, as soon as there is one."""
        self._calls.append(call)
        self._answer_calls()

    def _is_offered(self) -> bool | None:
        """Whether a broker that we are connected to offers telemetry; ``None`` while we are connected to none."""
        versions = self.network.versions()
        return versions.supports(Api.GET_TELEMETRY_SUBSCRIPTIONS) if versions is not None else None

    def _answer_calls(self) -> None:
        self._calls = [call for call in self._calls if not call.done]
        if not self._calls:
            return
        error: KafkaError | None = None
        if self.state in (_S.TERMINATING, _S.TERMINATED):
            error = self.refusal or IllegalStateError("the consumer is stopping")
        elif self._is_offered() is False:
            error = UnsupportedVersionError("the brokers do not offer client telemetry (KIP-714), which gives this id")
        for call in self._calls:
            if self.instance_id is not None:
                call.resolve(self.instance_id)
            elif error is not None:
                call.fail(error)

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the request that is due. While no broker offers telemetry nothing is due, and the loop is not woken."""
        self._answer_calls()
        if self.state not in (_S.SUBSCRIPTION_NEEDED, _S.PUSH_NEEDED) or not self._is_offered():
            return Poll()
        if now < self._due_at:
            return Poll(wake_at=self._due_at)
        if self.state is _S.PUSH_NEEDED and self._subscription is not None:
            request = self._push(self._subscription, self._encode(self._subscription, now), now, terminating=False)
            self._feed(_I.PUSHED, now)
        else:
            request = self._ask(now)
            self._feed(_I.REQUESTED, now)
        return Poll((request,))

    def poll_on_close(self, now: float) -> Poll:
        """Push a last time, to a broker that we are connected to; it is waited for up to ``LAST_PUSH_TIMEOUT``."""
        subscription = self._subscription
        if self.state not in (_S.PUSH_NEEDED, _S.PUSH_IN_PROGRESS) or subscription is None or not self._is_offered():
            self._feed(_I.STOP, now)
            return Poll()
        # Metrics of a push that is on its way are not sent twice; the last push is then empty.
        data = self._encode(subscription, now) if self.state is _S.PUSH_NEEDED else b""
        request = self._push(subscription, data, now, terminating=True)
        self._feed(_I.LAST_PUSH, now)
        return Poll((request,))

    def _feed(self, what: TelemetryInput, now: float, error: KafkaError | None = None) -> None:
        TRANSITIONS.move(self, what, now, self.trace, "" if error is None else f"{what.value}: {error}")

    def _refused(
        self, error: KafkaError, now: float, text: str = "the cluster refuses our telemetry; no more metrics are sent to it"
    ) -> None:
        self.refusal = error
        self._feed(_I.REFUSED, now, error)
        self.trace(Fault(now=now, text=text, error=error))
        self._answer_calls()

    # --- which metrics are wanted ----------------------------------------------------------------------------------------------

    def _ask(self, now: float) -> UnsentRequest:
        return UnsentRequest(
            message=GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id),
            on_done=self._subscription_answered,
            expires_at=now + self.config.request_timeout_ms / 1000,
        )

    def _subscription_answered(self, outcome: object, now: float) -> None:
        if self.state is not _S.SUBSCRIPTION_IN_PROGRESS:
            return  # the consumer stops
        try:
            subscription = self._read(outcome)
        except KafkaError as error:
            if outcome is not error and _verdict(error) is _I.REFUSED:
                self._refused(error, now)
            else:
                self.last_error = error
                self._feed(_I.FAILED, now, error)
                self._due_at = now + self._interval
            return
        self._subscription, self._brief = subscription, False
        if subscription.wanted.prefixes and (problem := self.source.prepare()) is not None:
            self._refused(problem, now, "the cluster wants metrics, and none can be sent")
        elif subscription.wanted.prefixes:
            self._feed(_I.SUBSCRIBED, now)
            self._due_at = now + subscription.interval * (EARLY + SPREAD * self.random())
        else:
            self._feed(_I.UNSUBSCRIBED, now)
            self._due_at = now + subscription.interval
        self._answer_calls()

    def _read(self, outcome: object) -> TelemetrySubscription:
        if isinstance(outcome, KafkaError):
            raise outcome
        if not isinstance(outcome, GetTelemetrySubscriptionsResponse):
            raise MalformedResponseError(f"a question about telemetry was answered with {type(outcome).__name__}")
        if outcome.error_code:
            raise for_code(outcome.error_code)
        if outcome.client_instance_id is None:
            raise MalformedResponseError("a telemetry subscription without the id of this client")
        self.instance_id = outcome.client_instance_id
        interval = outcome.push_interval_ms / 1000
        return TelemetrySubscription(
            id=outcome.subscription_id,
            wanted=MetricsSelection(prefixes=outcome.requested_metrics, delta=outcome.delta_temporality),
            interval=max(interval, LEAST_INTERVAL) if interval > 0 else DEFAULT_INTERVAL,
            codecs=outcome.accepted_compression_types,
            max_bytes=outcome.telemetry_max_bytes,
        )

    @property
    def _interval(self) -> float:
        return self._subscription.interval if self._subscription is not None else DEFAULT_INTERVAL

    # --- the metrics -----------------------------------------------------------------------------------------------------------

    def _push(self, subscription: TelemetrySubscription, data: bytes, now: float, *, terminating: bool) -> UnsentRequest:
        usable = CODECS - self._unread_codecs if data else ()
        codec = next((codec for codec in subscription.codecs if codec in usable), UNCOMPRESSED)

        def answered(outcome: object, at: float) -> None:
            if self.state is _S.TERMINATING and terminating:
                self._feed(_I.STOP, at)
            elif self.state is _S.PUSH_IN_PROGRESS and not terminating:
                self._pushed(outcome, codec, at)

        return UnsentRequest(
            message=PushTelemetryRequest(
                client_instance_id=self.instance_id,
                subscription_id=subscription.id,
                terminating=terminating,
                compression_type=codec,
                metrics=data if codec == UNCOMPRESSED else compress(codec, data),
            ),
            on_done=answered,
            expires_at=now + (LAST_PUSH_TIMEOUT if terminating else self.config.request_timeout_ms / 1000),
            final=terminating,
        )

    def _encode(self, subscription: TelemetrySubscription, now: float) -> bytes:
        """Return as much as the broker takes: all, or without brokers and partitions, or nothing, which is a valid push too."""
        wanted, limit = subscription.wanted, subscription.max_bytes
        for brief in (False, True):
            if brief or not self._brief:
                data = self.source.encode(evolve(wanted, brief=brief), now)
                if limit <= 0 or len(data) <= limit:
                    return data
        self.trace(Fault(now=now, text=f"even without brokers and partitions the metrics exceed {limit} B; none are sent"))
        return b""

    def _pushed(self, outcome: object, codec: int, now: float) -> None:
        error = _push_error(outcome)
        self._due_at = now + self._interval
        if error is None:
            self.source.delivered()
            self._feed(_I.TAKEN, now)
            return
        verdict = _I.FAILED if outcome is error else _verdict(error)
        if verdict is _I.REFUSED:
            self._refused(error, now)
            return
        self._feed(verdict, now, error)
        if verdict is _I.OUTDATED:
            self._due_at = now
        if isinstance(error, UnsupportedCompressionTypeError):
            self._unread_codecs.add(codec)
        elif isinstance(error, TelemetryTooLargeError):
            self._brief = True


def _push_error(outcome: object) -> KafkaError | None:
    """Return the error that the outcome of a push is or carries."""
    if isinstance(outcome, KafkaError):
        return outcome
    if not isinstance(outcome, PushTelemetryResponse):
        return MalformedResponseError(f"a push of telemetry was answered with {type(outcome).__name__}")
    return for_code(outcome.error_code) if outcome.error_code else None


def _verdict(error: KafkaError) -> TelemetryInput:
    """Return what a broker's error means. Java gives up on every code that is not listed; here codes that may pass are retried."""
    return _VERDICTS.get(type(error), _I.FAILED if error.retriable else _I.REFUSED)
