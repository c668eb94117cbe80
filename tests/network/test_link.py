"""``kafka_async.network.link``, by way of the delegate where a whole connection is needed."""

import itertools
import struct
from typing import Any

import pytest
from attrs import evolve

from kafka_async.errors import (
    AuthenticationFailedError,
    FrameSizeError,
    KafkaConnectionError,
    KafkaError,
    MalformedResponseError,
    UnknownError,
    UnsupportedVersionError,
)
from kafka_async.model import Node
from kafka_async.network import Authenticated, Channel, PendingWork, Plan, Run, UnsentRequest
from kafka_async.network.auth import Step
from kafka_async.network.link import TRANSITIONS, ConnectionInput, ConnectionState
from kafka_async.network.protocol import EXPIRY_GRACE
from kafka_async.trace import ConnectionClosed, ConnectionOpened, Fault
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    ApiVersion,
    ApiVersionsResponse,
    HeartbeatResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.network.peers import OLD_VERSIONS, OLDER, ONE, TWO, VERSIONS, Peer, World, heartbeat, opens, response_bytes, shuts

S = ConnectionState
I = ConnectionInput  # noqa: E741  # beside S, as in the table
PAIRS = list(itertools.product(ConnectionState, ConnectionInput))


LOGGED_IN = [(I.OPEN, S.CONNECTING), (I.OPENED, S.NEGOTIATING), (I.NEGOTIATED, S.AUTHENTICATING), (I.AUTHENTICATED, S.READY)]


@pytest.mark.parametrize(
    "life",
    [
        [*LOGGED_IN, (I.SHUT, S.DISCONNECTED), *LOGGED_IN],
        [*LOGGED_IN, (I.FAILED, S.WAITING), *LOGGED_IN],
        [*LOGGED_IN, (I.RENEWAL_DUE, S.PREPARING), (I.PREPARED, S.RENEWING), (I.AUTHENTICATED, S.READY)],
        [
            *LOGGED_IN,
            (I.RENEWAL_DUE, S.PREPARING),
            (I.POSTPONED, S.READY),
            (I.SESSION_ENDS, S.RENEWING),
            (I.AUTHENTICATED, S.READY),
        ],
        [*LOGGED_IN, (I.RENEWAL_DUE, S.PREPARING), (I.SESSION_ENDS, S.RENEWING), (I.FAILED, S.WAITING), (I.OPEN, S.CONNECTING)],
    ],
    ids=["opened again", "after a fault", "renewed in time", "its token came late", "its token did not come"],
)
def test_the_life_of_a_connection(life: list[tuple[ConnectionInput, ConnectionState]]) -> None:
    state = S.DISCONNECTED
    for event, then in life:
        state = TRANSITIONS[state, event]
        assert state is then


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair not in TRANSITIONS])
def test_every_other_pair_is_an_error(state: ConnectionState, event: ConnectionInput) -> None:
    with pytest.raises(RuntimeError, match=f"a connection in state {state.name} cannot take the input {event.name}"):
        TRANSITIONS[state, event]


def test_every_state_can_be_reached_and_left() -> None:
    assert {state for state, _ in TRANSITIONS} == set(ConnectionState)
    assert set(TRANSITIONS.values()) == set(ConnectionState)


@pytest.mark.parametrize("state", [S.CONNECTING, S.NEGOTIATING, S.AUTHENTICATING, S.PREPARING, S.RENEWING, S.READY])
def test_every_open_state_can_fail_and_be_shut(state: ConnectionState) -> None:
    assert TRANSITIONS[state, ConnectionInput.FAILED] is S.WAITING
    assert TRANSITIONS[state, ConnectionInput.SHUT] is S.DISCONNECTED


def state_of(world: World) -> ConnectionState:
    return world.delegate.connection_states()[0].state


def test_versions_are_negotiated_before_anything_is_sent() -> None:
    world = World(ONE)
    world.add(heartbeat(world.done))
    world.plan(0.0)
    assert state_of(world) is S.CONNECTING
    world.delegate.opened(world.key(), 0.1)
    world.plan(0.1)
    assert state_of(world) is S.NEGOTIATING
    assert [asked.api for asked in world.peer().asked] == [Api.API_VERSIONS]
    world.reply(VERSIONS, 0.2)
    assert state_of(world) is S.READY
    world.plan(0.2)
    assert [asked.api for asked in world.peer().asked] == [Api.HEARTBEAT]
    assert any(isinstance(event, ConnectionOpened) for event in world.trace)


def start(world: World) -> Peer:
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.delegate.opened(world.key(), 0.0)
    world.plan(0.0)
    return world.peer()


def test_an_older_broker_is_asked_again_in_the_version_that_it_lists() -> None:
    world = World(ONE)
    peer = start(world)
    world.receive(peer.answer(OLD_VERSIONS, version=0), 0.1, world.key())
    world.plan(0.1)
    assert [(asked.api, asked.version) for asked in peer.asked] == [(Api.API_VERSIONS, 2)]
    world.reply(VERSIONS, 0.2)
    assert state_of(world) is S.READY


def test_the_malformed_refusal_of_a_mock_broker_leads_to_version_0() -> None:
    world = World(ONE)
    peer = start(world)
    body = struct.pack(">i", peer.asked.popleft().correlation_id) + bytes.fromhex("0023 01 0012 0000 0002 00000000")
    world.receive(struct.pack(">i", len(body)) + body, 0.1, world.key())
    world.plan(0.1)
    assert [(asked.api, asked.version) for asked in peer.asked] == [(Api.API_VERSIONS, 0)]


def test_a_broker_that_refuses_version_0_too_fails_the_attempt() -> None:
    world = World(ONE)
    peer = start(world)
    for _ in range(2):
        world.receive(peer.answer(ApiVersionsResponse(error_code=35), version=0), 0.1, world.key())
        world.plan(0.1)
    assert state_of(world) is S.WAITING
    assert isinstance(world.delegate.problem(), UnsupportedVersionError)
    assert isinstance(world.outcomes[0], KafkaConnectionError)


@pytest.mark.parametrize(
    ("api", "what"), [(62, "a KRaft controller; clients need"), (18, "no broker, since it does not offer METADATA")]
)
def test_a_server_that_is_no_broker_for_clients_fails_the_attempt_and_the_error_says_what_it_is(api: int, what: str) -> None:
    world = World(ONE)
    start(world)
    world.reply(ApiVersionsResponse(api_keys=(ApiVersion(api_key=api, min_version=0, max_version=4),)), 0.0)
    assert state_of(world) is S.WAITING
    assert f"{ONE} is {what}" in str(world.delegate.problem())


def test_an_error_in_the_negotiation_fails_the_attempt() -> None:
    world = World(ONE)
    start(world)
    world.reply(ApiVersionsResponse(error_code=-1), 0.1)
    assert isinstance(world.delegate.problem(), UnknownError)


def test_a_handshake_without_an_answer_is_given_up_after_the_setup_timeout() -> None:
    world = World(ONE, socket_connection_setup_timeout_ms=2000)
    start(world)
    assert world.plan(0.5).wake_at == 2.0
    world.plan(2.0)
    plan = world.plan(2.1)
    assert shuts(plan) == [world.key()]
    assert state_of(world) is S.WAITING
    assert isinstance(world.outcomes[0], KafkaConnectionError)


def test_a_frame_of_the_handshake_may_have_one_mebibyte_at_most() -> None:
    world = World(ONE)
    start(world)
    world.receive(struct.pack(">i", 1024 * 1024 + 1), 0.1, world.key())
    assert isinstance(world.delegate.problem(), FrameSizeError)


def test_a_ready_connection_takes_frames_up_to_the_configured_limit() -> None:
    world = World(ONE, receive_message_max_bytes=5_000_000)
    world.connect()
    world.receive(struct.pack(">i", 5_000_000), 0.1, world.key())
    assert state_of(world) is S.READY


def test_a_server_that_speaks_http_is_named_in_the_error_of_the_request() -> None:
    world = World(ONE)
    start(world)
    world.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n", 0.1, world.key())
    plan = world.plan(0.1)
    assert shuts(plan) == [world.key()]
    assert "the server answered with HTTP" in str(world.outcomes[0])


def cut_before_the_first_answer(world: World, now: float) -> str:
    world.add(heartbeat(world.done, expires_at=now + 30), now=now)
    world.plan(now)
    world.delegate.opened(world.key(), now)
    world.delegate.lost(world.key(), None, now)
    return str(world.outcomes[-1])


def test_a_peer_that_closes_twice_without_a_word_raises_the_question_of_the_protocol() -> None:
    world = World(ONE)
    assert cut_before_the_first_answer(world, 0.0).endswith("closed the connection before it answered")
    assert "does the port speak another security_protocol?" in cut_before_the_first_answer(world, 1.0)


def test_a_peer_that_answered_before_raises_no_question_when_its_connections_are_cut() -> None:
    world = World(ONE)
    world.connect()
    world.delegate.lost(world.key(), None, 1.0)
    for now in (2.0, 4.0, 8.0):
        assert cut_before_the_first_answer(world, now).endswith("closed the connection before it answered")
    world.delegate.set_nodes({}, 16.0)
    world.delegate.set_nodes({1: ONE}, 17.0)
    for now in (20.0, 24.0):
        assert cut_before_the_first_answer(world, now).endswith("closed the connection before it answered")


def test_an_end_in_the_middle_of_an_answer_says_so() -> None:
    world = World(ONE)
    world.connect()
    world.receive(struct.pack(">i", 1000) + bytes(100), 1.0, world.key())
    world.delegate.lost(world.key(), None, 1.1)
    assert "in the middle of an answer, 104 bytes into it" in str(world.delegate.problem())


def test_backoff_doubles_with_each_failure_and_starts_over_after_a_success() -> None:
    world = World(ONE)  # random is 0.5: no jitter
    now, delays = 0.0, []
    for _ in range(7):
        world.add(heartbeat(world.done, expires_at=now + 30), now=now)
        assert opens(world.plan(now)) == [(1, Channel.MAIN)]
        world.fail_open(KafkaConnectionError("refused"), now)
        retry_at = world.delegate.connection_states()[0].retry_at
        delays.append(round(retry_at - now, 3))
        now = retry_at
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    world.connect(now)
    world.delegate.lost(world.key(), None, now)
    assert round(world.delegate.connection_states()[0].retry_at - now, 3) == 0.05


def test_a_port_that_hangs_up_after_the_handshake_is_not_asked_over_and_over() -> None:
    world = World(ONE)
    now, delays = 0.0, []
    for _ in range(4):
        world.add(heartbeat(world.done, expires_at=now + 30), now=now)
        world.plan(now)
        world.negotiate(now)
        world.plan(now)
        world.delegate.lost(world.key(), None, now)
        retry_at = world.delegate.connection_states()[0].retry_at
        delays.append(round(retry_at - now, 3))
        now = retry_at
    assert delays == [0.05, 0.1, 0.2, 0.4]
    first, *others = map(str, world.outcomes)
    assert first.endswith("closed the connection right after the handshake")
    assert all("right after the handshake; does the port demand SASL?" in text for text in others)
    assert len(others) == 3


def test_the_setup_timeout_grows_while_no_socket_can_be_had_and_starts_over_with_one() -> None:
    world = World(ONE)
    now, timeouts = 0.0, []
    for _ in range(4):
        world.add(heartbeat(world.done, expires_at=now + 30), now=now)
        action = world.plan(now).actions[0]
        timeouts.append((getattr(action, "timeout"), getattr(action, "attempt")))  # noqa: B009 - an Open, as the next lines show
        world.fail_open(KafkaConnectionError("timeout"), now)
        now += 5
    assert timeouts == [(10.0, 0), (20.0, 1), (30.0, 2), (30.0, 3)]
    world.connect(now)
    world.delegate.lost(world.key(), None, now)
    world.add(heartbeat(world.done, expires_at=now + 60), now=now + 5)
    assert getattr(world.plan(now + 5).actions[0], "timeout") == 10.0  # noqa: B009 - an Open, see above


def test_a_failed_attempt_is_a_fault_and_a_quiet_end_is_not() -> None:
    world = World(ONE)
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.fail_open(KafkaConnectionError("refused"), 0.0)
    faults = [event for event in world.trace if isinstance(event, Fault)]
    assert [event.text for event in faults] == ["connection to one:9092 (id 1) failed while connecting"]
    world.trace.clear()
    world.connect(1.0)
    world.delegate.lost(world.key(), None, 2.0)
    assert not [event for event in world.trace if isinstance(event, Fault)]
    assert [type(event) for event in world.trace if isinstance(event, ConnectionClosed)] == [ConnectionClosed]


class Conversation:
    """A made-up mechanism: handshake, one token, done."""

    def __init__(self, lifetime: float | None = None) -> None:
        self.lifetime = lifetime

    def start(self, *, offered: bool) -> Step:
        return SaslHandshakeRequest(mechanism="PLAIN")

    def receive(self, response: Any) -> Step:
        if isinstance(response, SaslHandshakeResponse):
            return SaslAuthenticateRequest(auth_bytes=b"token")
        if response.error_code:
            raise AuthenticationFailedError("the broker refused the token")
        return Authenticated(session_lifetime=self.lifetime)


def authenticating(lifetime: float | None = None) -> World:
    made: list[Node] = []

    def factory(node: Node) -> Conversation:
        made.append(node)
        return Conversation(lifetime)

    world = World(ONE, authenticators=factory)
    start(world)
    world.reply(VERSIONS, 0.0)
    assert made == [ONE]
    return world


def test_the_authenticator_is_driven_to_its_end_before_anything_else_is_sent() -> None:
    world = authenticating()
    assert state_of(world) is S.AUTHENTICATING
    world.plan(0.0)
    assert [asked.api for asked in world.peer().asked] == [Api.SASL_HANDSHAKE]
    world.reply(SaslHandshakeResponse(), 0.1)
    world.plan(0.1)
    assert [asked.api for asked in world.peer().asked] == [Api.SASL_AUTHENTICATE]
    world.reply(SaslAuthenticateResponse(), 0.2)
    assert state_of(world) is S.READY
    world.plan(0.2)
    assert [asked.api for asked in world.peer().asked] == [Api.HEARTBEAT]


def test_frames_stay_small_until_the_broker_has_taken_the_credentials() -> None:
    world = authenticating()
    world.plan(0.0)
    world.reply(SaslHandshakeResponse(), 0.1)
    world.receive(struct.pack(">i", 1024 * 1024 + 1), 0.1, world.key())
    assert isinstance(world.delegate.problem(), FrameSizeError)


def test_refused_credentials_end_the_requests_for_the_broker_at_once() -> None:
    world = authenticating()
    world.plan(0.0)
    world.reply(SaslHandshakeResponse(), 0.1)
    world.plan(0.1)
    world.reply(SaslAuthenticateResponse(error_code=58), 0.2)
    assert shuts(world.plan(0.2)) == [world.key()]
    assert isinstance(world.outcomes[0], AuthenticationFailedError)
    world.add(heartbeat(world.done), now=0.21)
    world.plan(0.21)
    assert isinstance(world.outcomes[1], AuthenticationFailedError)
    assert opens(world.plan(0.22)) == []


def test_a_broker_without_sasl_fails_the_attempt() -> None:
    def factory(node: Node) -> Conversation:
        return Conversation()

    world = World(ONE, authenticators=factory)
    start(world)
    world.reply(ApiVersionsResponse(api_keys=(ApiVersion(api_key=Api.METADATA, min_version=0, max_version=4),)), 0.0)
    assert isinstance(world.delegate.problem(), UnsupportedVersionError)


def test_a_session_is_renewed_on_the_same_connection_before_it_ends() -> None:
    world = authenticating(lifetime=100.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(0.0)
        world.reply(response, 0.0)
    assert world.plan(1.0).wake_at == 90.0  # 85 to 95 % of the session, at random
    world.add(heartbeat(world.done, expires_at=200.0), now=89.0)
    world.plan(89.0)
    # An answer is still due: the conversation goes behind it, and what comes later waits for the conversation.
    world.plan(90.0)
    world.add(heartbeat(world.done, expires_at=200.0), now=90.0)
    world.plan(90.0)
    assert [asked.api for asked in world.peer().asked] == [Api.HEARTBEAT, Api.SASL_HANDSHAKE]
    for response in (HeartbeatResponse(), SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.reply(response, 90.0)
        world.plan(90.0)
    assert world.outcomes == [HeartbeatResponse()] * 3
    assert world.plan(91.0).wake_at == 180.0
    opened = [event for event in world.trace if isinstance(event, ConnectionOpened)]
    assert len(opened) == 1, "it is the same connection"


def renewing(**more: Any) -> World:
    """A connection whose session of 100 s is being renewed, behind a heartbeat that is still in flight."""
    world = authenticating(lifetime=100.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(0.0)
        world.reply(response, 0.0)
    world.add(heartbeat(world.done, expires_at=500.0, **more), now=89.0)
    world.plan(89.0)
    world.plan(90.0)
    assert state_of(world) is S.RENEWING
    assert [asked.api for asked in world.peer().asked] == [Api.HEARTBEAT, Api.SASL_HANDSHAKE]
    world.outcomes.clear()
    return world


def test_a_session_that_is_not_renewed_leads_to_a_new_connection() -> None:
    """A refusal is final on a new connection only: the same credentials may still be good there."""
    world = renewing()
    world.reply(HeartbeatResponse(), 90.0)
    world.add(heartbeat(world.done, expires_at=500.0), now=90.0)
    world.plan(90.0)
    world.reply(SaslHandshakeResponse(), 90.0)
    world.plan(90.0)
    key = world.key()
    world.reply(SaslAuthenticateResponse(error_code=58), 90.1)
    plan = world.plan(90.1)
    assert shuts(plan) == [key]
    answered, waiting = world.outcomes
    assert answered == HeartbeatResponse()
    assert isinstance(waiting, KafkaConnectionError)
    assert waiting.retriable
    assert "was not renewed" in str(waiting)
    world.add(heartbeat(world.done, expires_at=500.0), now=91.0)
    assert opens(world.plan(91.0)) == [(1, Channel.MAIN)]


def test_a_renewal_waits_as_long_as_what_is_in_flight_may_take() -> None:
    world = renewing(max_wait=300.0)
    assert world.plan(150.0).wake_at >= 300.0
    world.reply(HeartbeatResponse(), 380.0)
    world.plan(380.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse()):
        world.reply(response, 380.0)
        world.plan(380.0)
    assert state_of(world) is S.READY


def renewed(world: World, now: float) -> None:
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse()):
        world.plan(now)
        world.reply(response, now)
    assert state_of(world) is S.READY


def test_a_renewal_is_not_given_up_while_the_broker_reads_nothing_because_it_throttles_us() -> None:
    world = authenticating(lifetime=100.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(0.0)
        world.reply(response, 0.0)
    world.add(heartbeat(world.done, expires_at=500.0), now=85.0)
    world.plan(85.0)
    world.reply(HeartbeatResponse(throttle_time_ms=22_000), 85.0)
    world.plan(90.0)
    assert state_of(world) is S.RENEWING
    assert world.plan(90.0).wake_at == 117.0, "the setup timeout counts from the end of the throttling"
    assert not shuts(world.plan(106.9))
    renewed(world, 107.0)
    assert not faults(world)


def test_a_renewal_behind_an_answer_that_throttles_us_has_as_much_more_time() -> None:
    world = renewing(max_wait=1.0)
    world.reply(HeartbeatResponse(throttle_time_ms=22_000), 90.5)
    assert world.plan(90.5).wake_at == 123.0
    renewed(world, 112.5)
    assert not faults(world)


def test_a_new_connection_gets_no_more_time_because_the_broker_throttled_the_last_one() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 1.0)
    world.delegate.lost(world.key(), None, 1.0)
    world.add(heartbeat(world.done, expires_at=50.0), now=2.0)
    world.plan(2.0)
    world.delegate.opened(world.key(), 2.0)
    assert world.plan(2.0).wake_at == 12.0
    world.delegate.set_nodes({1: ONE}, 2.5, cluster_id="c")
    world.reply(OLDER, 3.0)
    world.plan(3.0)
    assert [asked.api for asked in world.peer().asked] == [Api.METADATA], "whether it is the cluster that is meant"
    assert world.plan(3.0).wake_at == 13.0


def test_a_new_connection_is_as_suspect_as_any_though_the_broker_throttled_the_last_one() -> None:
    """What is asked on it is read: it is closed together with another one that brings nothing either."""
    world = World(ONE, TWO)
    for node_id in (1, 2):
        world.connect(0.0, node_id)
    world.add(heartbeat(world.done, node_id=2), now=1.0)
    world.plan(1.0)
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 1.0, node_id=2)
    world.delegate.lost(world.key(2), None, 1.0)
    world.add(heartbeat(world.done, node_id=2, expires_at=90.0, final=True), now=2.0)
    world.plan(2.0)
    world.negotiate(2.0, 2)
    world.add(heartbeat(world.done, expires_at=40.0), now=10.0)
    world.plan(10.0)
    world.plan(40.0)
    assert sorted(shuts(world.plan(40.0 + EXPIRY_GRACE))) == sorted([world.key(1), world.key(2)])


def test_a_handshake_that_the_broker_reads_late_because_it_throttles_us_from_its_first_answer_on_is_not_given_up() -> None:
    world = World(ONE, authenticators=lambda node: Conversation())
    start(world)
    world.reply(evolve(VERSIONS, throttle_time_ms=22_000), 0.0)
    world.plan(0.0)
    assert not shuts(world.plan(10.0))
    assert not shuts(world.plan(21.9))
    renewed(world, 22.0)
    assert not faults(world)


def test_a_request_that_a_broker_does_not_read_because_it_throttles_us_is_left_alone_while_another_is_silent() -> None:
    world = World(ONE, TWO)
    for node_id in (1, 2):
        world.connect(0.0, node_id)
    world.add(*(heartbeat(world.done, node_id=2, expires_at=70.0) for _ in range(2)), now=5.0)
    world.plan(5.0)
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 5.0, node_id=2)
    world.add(heartbeat(world.done, expires_at=40.0), now=10.0)
    world.plan(10.0)
    world.plan(40.0)
    assert shuts(world.plan(40.0 + EXPIRY_GRACE)) == [world.key(1)]


def test_a_broker_that_wants_a_new_session_all_the_time_does_not_keep_us_busy() -> None:
    world = authenticating(lifetime=0.001)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(0.0)
        world.reply(response, 0.0)
    assert world.plan(0.0).wake_at == pytest.approx(1.05)


class Pondering(Conversation):
    """A mechanism that has to fetch its token, and greets nobody."""

    def start(self, *, offered: bool) -> Step:
        return PendingWork(run=fetch_token)

    def receive(self, response: Any) -> Step:
        return SaslAuthenticateRequest(auth_bytes=response) if isinstance(response, bytes) else super().receive(response)


async def fetch_token() -> bytes:
    return b"token"


def pondering(node: Node) -> Pondering:
    return Pondering()


def test_work_of_the_authenticator_is_handed_out_once_and_its_result_goes_on_with_the_conversation() -> None:
    world = World(ONE, authenticators=pondering)
    start(world)
    world.reply(VERSIONS, 0.0)
    assert world.plan(0.0).actions == (Run(key=world.key(), work=PendingWork(run=fetch_token)),)
    assert world.plan(0.1).actions == ()
    world.delegate.worked(world.key(), b"token", 0.2)
    world.plan(0.2)
    assert [asked.api for asked in world.peer().asked] == [Api.SASL_AUTHENTICATE]
    world.reply(SaslAuthenticateResponse(), 0.3)
    assert state_of(world) is S.READY


def test_work_that_takes_longer_than_the_setup_timeout_fails_the_attempt() -> None:
    world = World(ONE, authenticators=pondering)
    start(world)
    world.reply(VERSIONS, 0.0)
    key = world.key()
    assert world.plan(0.0).wake_at == 10.0
    assert shuts(world.plan(10.0)) == [key]
    assert "the authentication took too long" in str(world.outcomes[0])
    world.delegate.worked(key, b"late", 10.1)
    assert state_of(world) is S.WAITING


class Bearing(Pondering):
    """A mechanism that fetches its token before the handshake."""

    def receive(self, response: Any) -> Step:
        return SaslHandshakeRequest(mechanism="PLAIN") if isinstance(response, bytes) else super().receive(response)


def preparing(**options: Any) -> World:
    """A connection whose session of 100 s is due for renewal, at 90 s: the token for the next one is being fetched."""
    world = World(ONE, authenticators=lambda node: Bearing(100.0), **options)
    start(world)
    world.reply(VERSIONS, 0.0)
    world.plan(0.0)
    world.delegate.worked(world.key(), b"token", 0.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(0.0)
        world.reply(response, 0.0)
    assert world.plan(1.0).wake_at == 90.0
    assert works(world.plan(90.0)) == [world.key()]
    assert state_of(world) is S.PREPARING
    world.outcomes.clear()
    world.trace.clear()
    return world


def works(plan: Plan) -> list[int]:
    return [action.key for action in plan.actions if isinstance(action, Run)]


def beat(world: World, now: float) -> None:
    """Send a heartbeat and answer it, at once."""
    before = len(world.outcomes)
    world.add(heartbeat(world.done, expires_at=now + 30), now=now)
    world.plan(now)
    assert [asked.api for asked in world.peer().asked] == [Api.HEARTBEAT]
    world.reply(HeartbeatResponse(), now)
    assert world.outcomes[before:] == [HeartbeatResponse()]


def faults(world: World) -> list[str]:
    return [event.text for event in world.trace if isinstance(event, Fault)]


def test_requests_go_on_while_the_token_of_a_renewal_is_fetched() -> None:
    world = preparing()
    assert state_of(world).may_send
    beat(world, 91.0)
    beat(world, 95.0)
    world.delegate.worked(world.key(), b"token", 96.0)
    assert state_of(world) is S.RENEWING
    assert not state_of(world).may_send
    world.add(heartbeat(world.done, expires_at=200.0), now=96.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(96.0)
        assert len(world.peer().asked) == 1
        world.reply(response, 96.0)
    assert world.outcomes == [HeartbeatResponse()] * 3
    assert world.plan(97.0).wake_at == 186.0
    assert not faults(world)
    assert not [event for event in world.trace if isinstance(event, ConnectionClosed)]


def test_a_token_that_cannot_be_had_is_tried_again_with_backoff_while_the_session_lasts() -> None:
    world = preparing(sasl_login_retry_backoff_ms=1000)
    now, delays = 90.0, []
    for _ in range(3):
        world.delegate.worked(world.key(), AuthenticationFailedError("no token"), now)
        assert state_of(world) is S.READY
        wake_at = world.plan(now).wake_at
        delays.append(wake_at - now)
        beat(world, now)
        now = wake_at
        assert works(world.plan(now)) == [world.key()]
    assert delays == [1.0, 2.0, 4.0]
    assert len(set(faults(world))) == 1, "one text, so that a listener can leave out the repetitions"
    world.delegate.worked(world.key(), b"token", now)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse()):
        world.plan(now)
        world.reply(response, now)
    assert state_of(world) is S.READY
    assert world.plan(now).wake_at == now + 90.0


def test_a_session_that_could_not_be_renewed_to_its_end_costs_the_connection() -> None:
    world = preparing(sasl_login_retry_backoff_ms=20_000, sasl_login_retry_backoff_max_ms=20_000)
    world.delegate.worked(world.key(), KafkaConnectionError("endpoint down"), 91.0)
    assert world.plan(91.0).wake_at == 98.0, "requests are sent for 98 % of the session"
    assert works(world.plan(98.0)) == [world.key()]
    assert state_of(world) is S.RENEWING
    world.add(heartbeat(world.done, expires_at=200.0), now=98.0)
    assert not world.peer().asked
    key = world.key()
    world.delegate.worked(key, AuthenticationFailedError("endpoint still down"), 99.0)
    assert shuts(world.plan(99.0)) == [key]
    assert state_of(world) is S.WAITING
    assert "was not renewed: endpoint still down" in str(world.outcomes[0])
    assert faults(world)[-1].endswith("failed while authenticating again")


def test_a_token_that_comes_after_the_end_of_the_session_still_renews_it_within_the_setup_timeout() -> None:
    world = preparing()
    assert world.plan(90.0).wake_at == 98.0
    assert not works(world.plan(98.0))
    world.add(heartbeat(world.done, expires_at=200.0), now=98.0)
    world.plan(98.0)
    assert not world.peer().asked, "nothing but a renewal may be said any more"
    world.delegate.worked(world.key(), b"token", 99.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.plan(99.0)
        world.reply(response, 99.0)
    assert world.outcomes == [HeartbeatResponse()]


def test_a_token_that_takes_too_long_is_asked_for_again_and_comes_too_late() -> None:
    world = preparing(socket_connection_setup_timeout_ms=3000)
    assert world.plan(90.0).wake_at == 93.0
    assert world.plan(93.0).wake_at == pytest.approx(93.1)
    assert state_of(world) is S.READY
    world.delegate.worked(world.key(), b"late", 93.05)
    assert state_of(world) is S.READY
    assert works(world.plan(93.1)) == [world.key()]
    world.delegate.worked(world.key(), b"token", 93.2)
    assert state_of(world) is S.RENEWING


def test_throttling_while_a_token_is_fetched_after_the_end_of_the_session_gives_no_request_of_the_application_more_time() -> None:
    world = preparing()
    requests = [heartbeat(world.done, expires_at=127.0) for _ in range(2)]
    world.add(*requests, now=97.0)
    world.plan(97.0)
    world.plan(98.0)
    assert state_of(world) is S.RENEWING
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 98.5)
    assert world.plan(98.5).wake_at == 100.0, "the token may take so long"
    assert [request.expires_at for request in requests] == [127.0, 127.0]
    world.delegate.worked(world.key(), b"token", 99.0)
    world.reply(HeartbeatResponse(), 126.0)
    assert world.plan(126.0).wake_at == 168.5, "the renewal is read once the throttling is over"


def test_a_connection_that_is_lost_or_unused_while_a_renewal_is_prepared_ends_as_a_ready_one() -> None:
    world = preparing()
    world.delegate.lost(world.key(), None, 91.0)
    assert state_of(world) is S.WAITING
    assert not faults(world)
    world = preparing(connections_max_idle_ms=95_000)
    key = world.key()
    assert world.plan(90.0).wake_at == 95.0
    assert shuts(world.plan(95.0)) == [key]
    assert state_of(world) is S.DISCONNECTED
    assert world.delegate.worked(key, b"token", 95.1) is False


def test_a_session_that_is_renewed_keeps_no_unused_connection_open() -> None:
    world = preparing(connections_max_idle_ms=150_000)
    key = world.key()
    world.delegate.worked(key, b"token", 90.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse()):
        world.plan(90.0)
        world.reply(response, 90.0)
    assert world.plan(91.0).wake_at == 150.0, "the next renewal is due at 180"
    assert shuts(world.plan(150.0)) == [key]


def test_a_renewal_that_spans_the_idle_deadline_is_followed_by_a_wait_and_not_by_one_that_ends_in_the_past() -> None:
    """The event loop was said to have been blocked since that deadline."""
    world = preparing(connections_max_idle_ms=95_000)
    key = world.key()
    world.delegate.worked(key, b"token", 91.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse()):
        world.plan(99.0)
        world.reply(response, 99.0)
    assert world.plan(99.0).wake_at == 100.0
    assert shuts(world.plan(100.0)) == [key]


def test_what_waits_for_a_renewal_that_spans_the_idle_deadline_is_sent_on_the_same_connection() -> None:
    """Also if all connections are looked at before it is sent, here because the metadata name a new broker just then."""
    world = preparing(connections_max_idle_ms=95_000)
    world.delegate.worked(world.key(), b"token", 91.0)
    world.add(heartbeat(world.done, expires_at=200.0), now=97.0)
    for response in (SaslHandshakeResponse(), SaslAuthenticateResponse(), HeartbeatResponse()):
        world.delegate.set_nodes({1: ONE, 2: TWO}, 99.0)
        assert not shuts(world.plan(99.0))
        world.reply(response, 99.0)
    assert world.outcomes == [HeartbeatResponse()]
    assert world.plan(101.0).wake_at == 189.0


def test_unused_connections_are_closed_and_cost_no_backoff() -> None:
    world = World(ONE, connections_max_idle_ms=60_000)
    world.connect()
    assert world.plan(1.0).wake_at == 60.0
    assert shuts(world.plan(60.0)) == [world.key()]
    assert state_of(world) is S.DISCONNECTED
    world.add(heartbeat(world.done, expires_at=90.0), now=60.0)
    assert opens(world.plan(60.0)) == [(1, Channel.MAIN)]


def test_a_connection_with_a_request_in_flight_is_never_idle() -> None:
    world = World(ONE, connections_max_idle_ms=1_000)
    world.connect()
    world.add(heartbeat(world.done, expires_at=50.0), now=0.5)
    world.plan(0.5)
    assert world.plan(10.0).wake_at == 50.0
    assert state_of(world) is S.READY


def test_answers_after_the_end_of_a_connection_are_nobodys() -> None:
    world = World(ONE)
    world.connect()
    key = world.key()
    world.delegate.lost(key, None, 1.0)
    assert world.delegate.get_buffer(key) is None
    assert world.delegate.received(key, 10, 1.0) == 0
    world.delegate.opened(key, 1.0)
    world.delegate.lost(key, None, 1.0)
    assert state_of(world) is S.WAITING


def test_a_request_that_the_broker_cannot_take_ends_at_once() -> None:
    world = World(ONE)
    start(world)
    metadata_only = ApiVersion(api_key=Api.METADATA, min_version=0, max_version=12)
    world.reply(ApiVersionsResponse(api_keys=(metadata_only,)), 0.0)
    assert world.plan(0.0).settled == 1
    assert isinstance(world.outcomes[0], UnsupportedVersionError)
    assert state_of(world) is S.READY


def test_bounds_of_the_caller_limit_the_version() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done, highest_version=2))
    world.plan(0.0)
    assert world.peer().asked[0].version == 2


def test_a_handshake_answer_that_fails_the_attempt_ends_the_reading_of_its_chunk() -> None:
    world = World(ONE)
    peer = start(world)
    bad = peer.answer(ApiVersionsResponse(error_code=-1))
    world.receive(bad + response_bytes(HeartbeatResponse(), Api.HEARTBEAT, 4, 77), 0.1, world.key())
    assert isinstance(world.delegate.problem(), UnknownError)


def test_outcomes_are_errors_of_ours_only() -> None:
    world = World(ONE)
    start(world)
    world.delegate.lost(world.key(), None, 0.1)
    assert all(isinstance(outcome, KafkaError) for outcome in world.outcomes)


def test_lanes_have_connections_of_their_own() -> None:
    world = World(ONE)
    requests: list[UnsentRequest] = [heartbeat(world.done), heartbeat(world.done, channel=Channel.GROUP)]
    world.add(*requests)
    assert sorted(opens(world.plan(0.0)), key=str) == [(1, Channel.GROUP), (1, Channel.MAIN)]


def test_an_error_keeps_nothing_of_the_answer_that_caused_it() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    asked = world.peer().asked[0]
    world.receive(struct.pack(">iib", 5, asked.correlation_id, 1), 1.1, world.key())
    errors: list[BaseException | None] = [world.outcomes[0], world.delegate.problem()]
    assert all(isinstance(error, MalformedResponseError) for error in errors)
    while errors:
        error = errors.pop()
        if error is not None:
            assert error.__traceback__ is None
            errors += [error.__cause__, error.__context__]
