"""``kafka_async.background.cluster.telemetry``: ``poll(0.0)``, an answer, ``poll(0.1)``; no event loop."""

from itertools import product
from math import inf
from typing import Any, cast
from uuid import UUID

import pytest
from attrs import define, field

from kafka_async.background.cluster.metrics_source import MetricsSelection
from kafka_async.background.cluster.telemetry import (
    DEFAULT_INTERVAL,
    LAST_PUSH_TIMEOUT,
    LEAST_INTERVAL,
    TRANSITIONS,
    TelemetryInput,
    TelemetryManager,
    TelemetryState,
)
from kafka_async.background.loop.request_manager import Poll
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    IllegalStateError,
    InvalidRequestError,
    KafkaConnectionError,
    KafkaError,
    MalformedResponseError,
    UnsupportedVersionError,
)
from kafka_async.events import Call
from kafka_async.network import Channel, UnsentRequest
from kafka_async.records.codecs import GZIP, LZ4, SNAPPY, ZSTD, decompress
from kafka_async.trace import Fault, StateChanged, TraceEvent
from kafka_async.wire import BrokerVersions
from kafka_async.wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

from ..support import TELEMETRY, FakeNetwork

S, I = TelemetryState, TelemetryInput  # noqa: E741 - one letter each, as in the table

NEVER_HAPPENS = set(product(S, I)) - {
    (S.SUBSCRIPTION_NEEDED, I.REQUESTED),
    (S.SUBSCRIPTION_NEEDED, I.STOP),
    (S.SUBSCRIPTION_IN_PROGRESS, I.SUBSCRIBED),
    (S.SUBSCRIPTION_IN_PROGRESS, I.UNSUBSCRIBED),
    (S.SUBSCRIPTION_IN_PROGRESS, I.FAILED),
    (S.SUBSCRIPTION_IN_PROGRESS, I.REFUSED),
    (S.SUBSCRIPTION_IN_PROGRESS, I.STOP),
    (S.PUSH_NEEDED, I.PUSHED),
    (S.PUSH_NEEDED, I.LAST_PUSH),
    (S.PUSH_NEEDED, I.STOP),
    (S.PUSH_IN_PROGRESS, I.TAKEN),
    (S.PUSH_IN_PROGRESS, I.FAILED),
    (S.PUSH_IN_PROGRESS, I.OUTDATED),
    (S.PUSH_IN_PROGRESS, I.REFUSED),
    (S.PUSH_IN_PROGRESS, I.LAST_PUSH),
    (S.PUSH_IN_PROGRESS, I.STOP),
    (S.TERMINATING, I.STOP),
    (S.TERMINATED, I.STOP),
}
ME = UUID(int=7)
DATA = b"metrics " * 50
BRIEF = b"brief"
UNKNOWN_SUBSCRIPTION_ID, TELEMETRY_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, THROTTLING_QUOTA_EXCEEDED = 117, 118, 76, 89
INVALID_REQUEST, INVALID_RECORD, UNSUPPORTED_VERSION, REQUEST_TIMED_OUT = 42, 87, 35, 7


def subscription(**fields: Any) -> GetTelemetrySubscriptionsResponse:
    """Return a subscription to everything, every 10 s."""
    defaults = {
        "client_instance_id": ME,
        "subscription_id": 5,
        "accepted_compression_types": (ZSTD, LZ4, GZIP, SNAPPY),
        "push_interval_ms": 10_000,
        "telemetry_max_bytes": 1 << 20,
        "delta_temporality": True,
        "requested_metrics": ("*",),
    }
    return GetTelemetrySubscriptionsResponse(**{**defaults, **fields})


@define(eq=False)
class Source:
    """A ``MetricsSource`` that writes down what it is asked."""

    asked: list[MetricsSelection] = field(factory=list)
    deliveries: int = 0

    def prepare(self) -> None: ...

    def encode(self, wanted: MetricsSelection, now: float) -> bytes:
        self.asked.append(wanted)
        return BRIEF if wanted.brief else DATA

    def delivered(self) -> None:
        self.deliveries += 1


@define(eq=False)
class World:
    """A manager with brokers that offer telemetry; ``random`` is 0.5, which makes the first push wait one interval."""

    offered: BrokerVersions | None = TELEMETRY
    network: FakeNetwork = field(factory=FakeNetwork, init=False)
    chance: float = 0.5
    source: Source = field(factory=Source)
    seen: list[TraceEvent] = field(factory=list)
    manager: TelemetryManager = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.network.offered = self.offered
        self.manager = TelemetryManager(
            config=ConsumerConfig.from_options({}),
            source=self.source,
            network=self.network,
            random=lambda: self.chance,
            trace=self.seen.append,
        )

    def send(self, now: float) -> UnsentRequest:
        """Return the request that is due, after seeing that waiting for its answer sends nothing and wakes nobody."""
        (request,) = self.manager.poll(now).requests
        assert self.manager.poll(now) == Poll()
        return request

    def subscribe(self, now: float = 0.0, **fields: Any) -> None:
        self.send(now).on_done(subscription(**fields), now)

    def push(self, now: float, outcome: object | None = None) -> PushTelemetryRequest:
        """Have a push answered."""
        request = self.send(now)
        request.on_done(PushTelemetryResponse() if outcome is None else outcome, now)
        return cast("PushTelemetryRequest", request.message)

    def call(self) -> Call[UUID]:
        call: Call[UUID] = Call(1e9)
        self.manager.answer_call(call)
        return call

    def state(self) -> TelemetryState:
        return self.manager.state

    @property
    def wake_at(self) -> float:
        return self.manager.poll(0.0).wake_at


@pytest.fixture
def world() -> World:
    return World()


def refused(code: int) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=code)


def test_every_pair_is_in_the_table_or_a_bug() -> None:
    assert set(product(S, I)) == NEVER_HAPPENS | TRANSITIONS.keys()
    assert not NEVER_HAPPENS & TRANSITIONS.keys()


# --- which metrics are wanted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offered", [None, BrokerVersions()])
def test_brokers_that_do_not_offer_it_are_never_asked_and_nobody_is_woken(offered: BrokerVersions | None) -> None:
    world = World(offered)
    assert world.manager.poll(0.0) == Poll(wake_at=inf)
    assert world.manager.poll(10_000.0) == Poll(wake_at=inf)
    world.network.offered = TELEMETRY
    assert len(world.manager.poll(10_001.0).requests) == 1


def test_the_first_question_goes_to_any_broker_and_has_no_id(world: World) -> None:
    request = world.send(3.0)
    assert request.message == GetTelemetrySubscriptionsRequest(client_instance_id=None)
    assert (request.node_id, request.channel, request.expires_at, request.final) == (None, Channel.MAIN, 33.0, False)


@pytest.mark.parametrize(("chance", "after"), [(0.0, 5.0), (0.5, 10.0), (1.0, 15.0)])
def test_the_first_push_comes_after_half_an_interval_to_one_and_a_half(chance: float, after: float) -> None:
    world = World(chance=chance)
    world.subscribe(2.0)
    assert world.wake_at == 2.0 + after


def test_a_subscription_to_nothing_is_asked_for_again_after_the_interval(world: World) -> None:
    world.subscribe(1.0, requested_metrics=())
    assert (world.state(), world.wake_at) == (S.SUBSCRIPTION_NEEDED, 11.0)
    assert world.send(11.0).message == GetTelemetrySubscriptionsRequest(client_instance_id=ME)


@pytest.mark.parametrize(("said", "kept"), [(0, DEFAULT_INTERVAL), (-1, DEFAULT_INTERVAL), (1, LEAST_INTERVAL), (250, 0.25)])
def test_an_interval_that_cannot_be_does_not_make_it_spin(world: World, said: int, kept: float) -> None:
    world.subscribe(0.0, push_interval_ms=said)
    assert world.wake_at == kept


@pytest.mark.parametrize(
    "outcome",
    [
        KafkaConnectionError("gone"),
        UnsupportedVersionError("this broker does not offer it"),
        subscription(client_instance_id=None),
        PushTelemetryResponse(),
    ],
)
def test_a_question_that_was_not_answered_is_asked_again_after_the_interval(world: World, outcome: object) -> None:
    world.send(1.0).on_done(outcome, 2.0)
    assert (world.state(), world.wake_at) == (S.SUBSCRIPTION_NEEDED, 2.0 + DEFAULT_INTERVAL)
    assert isinstance(world.manager.last_error, type(outcome) if isinstance(outcome, KafkaError) else MalformedResponseError)


@pytest.mark.parametrize("code", [THROTTLING_QUOTA_EXCEEDED, REQUEST_TIMED_OUT, UNKNOWN_SUBSCRIPTION_ID])
def test_an_error_that_passes_is_no_reason_to_ask_at_once(world: World, code: int) -> None:
    world.send(0.0).on_done(GetTelemetrySubscriptionsResponse(error_code=code), 0.0)
    assert (world.state(), world.wake_at) == (S.SUBSCRIPTION_NEEDED, DEFAULT_INTERVAL)


@pytest.mark.parametrize(
    "outcome",
    [
        GetTelemetrySubscriptionsResponse(error_code=INVALID_REQUEST),
        GetTelemetrySubscriptionsResponse(error_code=UNSUPPORTED_VERSION),
    ],
)
def test_a_refusal_ends_telemetry_and_is_said_once(world: World, outcome: object) -> None:
    world.send(0.0).on_done(outcome, 0.0)
    assert world.state() is S.TERMINATED
    assert world.manager.poll(10_000.0) == Poll()
    assert len([event for event in world.seen if isinstance(event, Fault)]) == 1


# --- the metrics ----------------------------------------------------------------------------------------------------------------


def test_pushes_follow_at_the_interval_and_wake_nobody_in_between(world: World) -> None:
    world.subscribe(0.0)
    for now in (10.0, 20.0, 30.0):
        assert world.manager.poll(now - 0.001) == Poll(wake_at=now)
        message = world.push(now)
        assert (message.client_instance_id, message.subscription_id, message.terminating) == (ME, 5, False)
    assert world.source.asked == [MetricsSelection(prefixes=("*",), delta=True)] * 3
    assert world.source.deliveries == 3


@pytest.mark.parametrize("accepted", [(ZSTD,), (LZ4, ZSTD), (GZIP,), (SNAPPY, GZIP)])
def test_metrics_are_compressed_as_the_broker_prefers(world: World, accepted: tuple[int, ...]) -> None:
    world.subscribe(0.0, accepted_compression_types=accepted)
    message = world.push(10.0)
    assert message.compression_type == accepted[0]
    assert bytes(decompress(accepted[0], memoryview(message.metrics), 10_000)) == DATA


@pytest.mark.parametrize("accepted", [(), (0,), (77,)])
def test_metrics_are_not_compressed_if_the_broker_names_nothing_that_we_know(world: World, accepted: tuple[int, ...]) -> None:
    world.subscribe(0.0, accepted_compression_types=accepted)
    message = world.push(10.0)
    assert (message.compression_type, message.metrics) == (0, DATA)


def test_a_compression_that_is_refused_is_not_used_again(world: World) -> None:
    world.subscribe(0.0)
    assert world.push(10.0, refused(UNSUPPORTED_COMPRESSION_TYPE)).compression_type == ZSTD
    world.subscribe(10.0)
    assert world.push(20.0).compression_type == LZ4


def test_an_outdated_subscription_is_asked_for_at_once(world: World) -> None:
    world.subscribe(0.0)
    world.push(10.0, refused(UNKNOWN_SUBSCRIPTION_ID))
    assert world.source.deliveries == 0
    assert world.send(10.0).message == GetTelemetrySubscriptionsRequest(client_instance_id=ME)


@pytest.mark.parametrize(
    "outcome", [refused(THROTTLING_QUOTA_EXCEEDED), refused(REQUEST_TIMED_OUT), KafkaConnectionError("x"), subscription()]
)
def test_a_push_that_failed_is_repeated_at_the_next_interval(world: World, outcome: object) -> None:
    world.subscribe(0.0)
    world.push(10.0, outcome)
    assert (world.state(), world.wake_at, world.source.deliveries) == (S.PUSH_NEEDED, 20.0, 0)
    world.push(20.0)
    assert world.source.deliveries == 1


def test_metrics_that_were_too_large_come_without_brokers_and_partitions_until_the_next_subscription(world: World) -> None:
    world.subscribe(0.0)
    world.push(10.0, refused(TELEMETRY_TOO_LARGE))
    assert world.wake_at == 20.0
    world.push(20.0)
    world.push(30.0, refused(UNKNOWN_SUBSCRIPTION_ID))
    world.subscribe(30.0)
    world.push(40.0)
    assert [wanted.brief for wanted in world.source.asked] == [False, True, True, False]


def test_metrics_that_the_broker_cannot_take_are_not_sent_to_it(world: World) -> None:
    world.subscribe(0.0, telemetry_max_bytes=len(DATA) - 1, accepted_compression_types=())
    assert world.push(10.0).metrics == BRIEF
    world.push(20.0, refused(UNKNOWN_SUBSCRIPTION_ID))
    world.subscribe(20.0, telemetry_max_bytes=1)
    message = world.push(30.0)
    assert (message.metrics, message.compression_type) == (b"", 0)
    assert "1 B" in [event.text for event in world.seen if isinstance(event, Fault)][-1]


@pytest.mark.parametrize("outcome", [refused(INVALID_RECORD), refused(UNSUPPORTED_VERSION)])
def test_a_push_that_is_refused_for_good_ends_telemetry(world: World, outcome: object) -> None:
    world.subscribe(0.0)
    world.push(10.0, outcome)
    assert (world.state(), world.wake_at) == (S.TERMINATED, inf)
    assert world.manager.poll_on_close(11.0) == Poll()


def test_nothing_is_pushed_while_no_connection_offers_it(world: World) -> None:
    world.subscribe(0.0)
    world.network.offered = None
    assert world.manager.poll(10.0) == Poll()
    world.network.offered = TELEMETRY
    world.push(500.0)
    assert world.wake_at == 510.0


# --- the end --------------------------------------------------------------------------------------------------------------------


def test_the_last_push_says_that_it_is_the_last_and_is_not_waited_for_long(world: World) -> None:
    world.subscribe(0.0)
    (request,) = world.manager.poll_on_close(3.0).requests
    message = cast("PushTelemetryRequest", request.message)
    assert (message.terminating, message.subscription_id, message.compression_type) == (True, 5, ZSTD)
    assert (request.final, request.expires_at) == (True, 3.0 + LAST_PUSH_TIMEOUT)
    assert world.state() is S.TERMINATING
    request.on_done(PushTelemetryResponse(), 3.1)
    assert world.state() is S.TERMINATED


def test_what_a_push_on_its_way_says_is_not_said_twice(world: World) -> None:
    world.subscribe(0.0)
    pushing = world.send(10.0)
    (request,) = world.manager.poll_on_close(10.0).requests
    assert cast("PushTelemetryRequest", request.message).metrics == b""
    pushing.on_done(PushTelemetryResponse(), 10.1)
    assert world.state() is S.TERMINATING
    request.on_done(KafkaConnectionError("gone"), 10.2)
    assert world.state() is S.TERMINATED


def test_without_a_subscription_there_is_no_last_push(world: World) -> None:
    asking = world.send(0.0)
    assert world.manager.poll_on_close(1.0) == Poll()
    asking.on_done(subscription(), 1.1)
    assert world.state() is S.TERMINATED
    assert world.manager.poll_on_close(1.2) == Poll()


def test_without_a_connection_there_is_no_last_push(world: World) -> None:
    world.subscribe(0.0)
    world.network.offered = None
    assert world.manager.poll_on_close(1.0) == Poll()
    assert world.state() is S.TERMINATED


# --- the id ---------------------------------------------------------------------------------------------------------------------


def test_calls_for_the_id_are_answered_once_it_is_known_and_it_is_kept(world: World) -> None:
    early, withdrawn = world.call(), world.call()
    withdrawn.withdraw()
    assert not early.done
    world.subscribe(0.0)
    assert early.result() == world.call().result() == ME
    world.push(10.0, refused(UNKNOWN_SUBSCRIPTION_ID))
    assert world.call().result() == ME


def test_a_call_for_the_id_fails_if_telemetry_is_not_offered() -> None:
    world = World(None)
    early = world.call()
    world.manager.poll(0.0)
    assert not early.done
    world.network.offered = BrokerVersions()
    world.manager.poll(1.0)
    for call in (early, world.call()):
        with pytest.raises(UnsupportedVersionError, match="KIP-714"):
            call.result()


def test_a_call_for_the_id_says_why_telemetry_ended(world: World) -> None:
    call = world.call()
    world.send(0.0).on_done(GetTelemetrySubscriptionsResponse(error_code=INVALID_REQUEST), 0.0)
    with pytest.raises(InvalidRequestError):
        call.result()
    stopped = World()
    stopped.manager.poll_on_close(0.0)
    with pytest.raises(IllegalStateError, match="stopping"):
        stopped.call().result()


def test_every_move_is_traced_with_its_reason(world: World) -> None:
    world.subscribe(0.0)
    world.push(10.0, refused(UNKNOWN_SUBSCRIPTION_ID))
    moves = [event for event in world.seen if isinstance(event, StateChanged)]
    assert [event.after for event in moves] == [
        "SUBSCRIPTION_IN_PROGRESS",
        "PUSH_NEEDED",
        "PUSH_IN_PROGRESS",
        "SUBSCRIPTION_NEEDED",
    ]
    assert "outdated" in moves[-1].reason
