"""``kafka_async.network.delegate``: ``plan(0.0)``, an answer, ``plan(0.1)``; no event loop."""

import time
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import (
    AuthenticationFailedError,
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestWithdrawnError,
    SslAuthenticationError,
    TlsHandshakeError,
)
from kafka_async.model import Node
from kafka_async.network import LATE, Channel, ConnectionState, Open, Reachability
from kafka_async.network.delegate import HEDGE
from kafka_async.network.protocol import EXPIRY_GRACE, MAX_IN_FLIGHT
from kafka_async.trace import ConnectionOpened
from kafka_async.wire import Api
from kafka_async.wire.messages import ApiVersionsResponse, HeartbeatResponse, MetadataRequest, MetadataResponse
from tests.network.peers import BOOT, BOOT_TWO, OLDER, ONE, TWO, VERSIONS, World, heartbeat, metadata, opens, response_bytes, shuts

REFUSED = KafkaConnectionError("refused")


def test_an_idle_delegate_does_nothing_and_is_never_woken() -> None:
    plan = World(BOOT).plan(0.0)
    assert (plan.actions, plan.wake_at, plan.settled) == ((), inf, 0)


def test_planning_again_when_nothing_happened_changes_nothing() -> None:
    world = World(BOOT, ONE)
    world.add(heartbeat(world.done), metadata(world.done))
    first = world.plan(0.0)
    again = world.plan(0.0)
    assert first.actions
    assert (again.actions, again.wake_at) == ((), first.wake_at)


def test_a_request_goes_to_its_broker_and_its_answer_to_its_handler() -> None:
    world = World(ONE, TWO)
    world.add(heartbeat(world.done, node_id=2))
    assert opens(world.plan(0.0)) == [(2, Channel.MAIN)]
    world.negotiate(0.1, 2)
    world.plan(0.1)
    world.reply(HeartbeatResponse(error_code=27), 0.2, 2)
    assert world.outcomes == [HeartbeatResponse(error_code=27)]


def test_connections_open_in_parallel() -> None:
    world = World(ONE, TWO)
    world.add(heartbeat(world.done, node_id=1), heartbeat(world.done, node_id=2))
    assert len(opens(world.plan(0.0))) == 2


def test_requests_are_pipelined_up_to_the_limit() -> None:
    world = World(ONE)
    world.connect()
    world.add(*(heartbeat(world.done) for _ in range(MAX_IN_FLIGHT + 2)))
    world.plan(1.0)
    for answered in (1.1, 1.2):
        assert len(world.peer().asked) == MAX_IN_FLIGHT
        world.reply(HeartbeatResponse(), answered)
        world.plan(answered)
    assert len(world.peer().asked) == MAX_IN_FLIGHT
    world.reply(HeartbeatResponse(), 1.3)
    world.plan(1.3)
    assert len(world.peer().asked) == MAX_IN_FLIGHT - 1


def test_an_unknown_broker_ends_its_requests_at_once() -> None:
    world = World(ONE)
    world.add(heartbeat(world.done, node_id=9))
    assert world.plan(0.0).settled == 1
    assert isinstance(world.outcomes[0], NodeNotReadyError)


def test_requests_of_a_broker_whose_connection_fails_end_at_once_and_so_do_those_in_its_backoff() -> None:
    world = World(ONE, TWO)
    world.add(heartbeat(world.done), heartbeat(world.done), heartbeat(world.done, node_id=2))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1)
    assert len(world.outcomes) == 2
    assert all(isinstance(outcome, KafkaConnectionError) and outcome.__cause__ is REFUSED for outcome in world.outcomes)
    assert world.seen().retry_at == pytest.approx(0.15)
    world.add(heartbeat(world.done))
    assert world.plan(0.12).settled == 1
    assert opens(world.plan(0.12)) == []
    world.add(heartbeat(world.done))
    assert opens(world.plan(0.16)) == [(1, Channel.MAIN)]


def test_a_lost_connection_ends_everything_in_flight() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done), heartbeat(world.done))
    world.plan(1.0)
    world.delegate.lost(world.key(), KafkaConnectionError("reset by peer"), 1.1)
    assert [str(outcome) for outcome in world.outcomes] == ["reset by peer"] * 2


def test_a_wrong_correlation_id_closes_the_connection_and_fails_its_requests_retriably() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done), heartbeat(world.done))
    world.plan(1.0)
    world.receive(response_bytes(HeartbeatResponse(), Api.HEARTBEAT, 4, 99), 1.1, world.key())
    assert shuts(world.plan(1.1)) == [world.key()]
    assert [type(outcome) for outcome in world.outcomes] == [CorrelationIdError] * 2
    assert all(outcome.retriable for outcome in world.outcomes)


# Deadlines.


def test_time_in_the_queue_counts() -> None:
    world = World(ONE)
    world.add(heartbeat(world.done, expires_at=3.0))
    assert world.plan(0.0).wake_at == 3.0
    assert world.plan(3.0).settled == 1
    assert isinstance(world.outcomes[0], KafkaTimeoutError)
    assert "was not sent in time: one:9092 (id 1) has not accepted the connection yet" in str(world.outcomes[0])


def test_an_expired_request_carries_the_last_failure_as_its_cause() -> None:
    world = World(BOOT)
    world.add(metadata(world.done, expires_at=1.0))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1, -1)
    world.plan(1.0)
    assert isinstance(world.outcomes[0], KafkaTimeoutError)
    assert world.outcomes[0].__cause__ is REFUSED


def test_without_any_broker_the_expiry_says_so() -> None:
    world = World()
    world.add(metadata(world.done, expires_at=1.0))
    assert world.plan(0.0).wake_at == 1.0
    world.plan(1.0)
    assert "no broker is known" in str(world.outcomes[0])


def test_an_answer_that_does_not_come_costs_the_connection() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done, expires_at=5.0), heartbeat(world.done, expires_at=60.0))
    assert world.plan(1.0).wake_at == 5.0
    assert world.plan(5.0).wake_at == 5.0 + EXPIRY_GRACE
    plan = world.plan(5.0 + EXPIRY_GRACE)
    assert (shuts(plan), plan.settled) == ([world.key()], 2)
    assert [type(outcome) for outcome in world.outcomes] == [KafkaTimeoutError, KafkaConnectionError]
    assert world.seen().retry_at > 5.0 + EXPIRY_GRACE


def test_after_a_blocked_loop_an_answer_that_lies_in_the_socket_still_counts() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done, expires_at=5.0))
    world.plan(1.0)
    world.plan(300.0)
    world.reply(HeartbeatResponse(), 300.0)
    assert world.outcomes == [HeartbeatResponse()]
    assert world.seen().state is ConnectionState.READY


def test_a_withdrawn_request_is_not_sent_and_ends_as_withdrawn() -> None:
    world = World(ONE)
    wanted = True
    world.add(heartbeat(world.done, withdrawn=lambda: not wanted))
    world.plan(0.0)
    wanted = False
    assert world.plan(0.05).settled == 1, "the layer above has an end to look at"
    world.negotiate(0.1)
    world.plan(0.1)
    assert not world.peer().asked
    assert [type(outcome) for outcome in world.outcomes] == [RequestWithdrawnError]
    assert world.plan(60.0).settled == 0, "it does not expire: it is gone"


def test_nobody_waits_behind_a_request_that_was_withdrawn_and_may_never_be_answered() -> None:
    """A SyncGroup of a member that has left by another connection meanwhile."""
    world = World(ONE)
    world.connect(channel=Channel.GROUP)
    wanted = True
    world.add(heartbeat(world.done, channel=Channel.GROUP, abandonable=True, withdrawn=lambda: not wanted))
    world.plan(1.0)
    wanted, old = False, world.key(channel=Channel.GROUP)
    assert shuts(world.plan(1.5)) == [], "nobody has to wait"
    world.add(heartbeat(world.done, channel=Channel.GROUP))
    plan = world.plan(2.0)
    assert (shuts(plan), opens(plan)) == ([old], [(1, Channel.GROUP)])
    world.negotiate(2.1, channel=Channel.GROUP)
    world.plan(2.1)
    world.reply(HeartbeatResponse(), 2.2, channel=Channel.GROUP)
    assert world.outcomes[1:] == [HeartbeatResponse()]


def test_a_request_that_somebody_waits_for_is_not_given_up_for_another_one() -> None:
    world = World(ONE)
    world.connect(channel=Channel.GROUP)
    world.add(heartbeat(world.done, channel=Channel.GROUP, abandonable=True))
    world.plan(1.0)
    world.add(heartbeat(world.done, channel=Channel.GROUP))
    plan = world.plan(2.0)
    assert (shuts(plan), opens(plan), world.outcomes) == ([], [], [])


# Throttling (KIP-219).


def test_throttling_is_obeyed() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.reply(HeartbeatResponse(throttle_time_ms=700), 1.0)
    world.add(heartbeat(world.done))
    assert world.plan(1.1).wake_at == pytest.approx(1.7)
    assert not world.peer().asked
    world.plan(1.7)
    assert len(world.peer().asked) == 1


def silent_world() -> World:
    """Two brokers that answered at 0, with MAIN and FETCH connections to each; a heartbeat to the first is asked at 10."""
    world = World(ONE, TWO)
    for node_id in (1, 2):
        for channel in (Channel.MAIN, Channel.FETCH):
            world.connect(0.0, node_id, channel)
    world.add(heartbeat(world.done, expires_at=40.0), now=10.0)
    world.plan(10.0)
    return world


def expired(world: World) -> set[tuple[int, Channel]]:
    """The heartbeat is given up. Return which connections are closed."""
    world.plan(40.0)
    gone = set(shuts(world.plan(40.0 + EXPIRY_GRACE)))
    return {place for place, key in world.keys.items() if key in gone}


def test_a_connection_that_answers_nothing_makes_those_as_silent_suspect_so_that_each_next_request_opens_a_new_one() -> None:
    world = silent_world()
    assert expired(world) == {(1, Channel.MAIN), (1, Channel.FETCH), (2, Channel.MAIN), (2, Channel.FETCH)}
    world.add(
        metadata(world.done, expires_at=70.0), heartbeat(world.done, node_id=2, channel=Channel.FETCH, expires_at=70.0), now=40.2
    )
    assert {channel for _, channel in opens(world.plan(40.2))} == {Channel.MAIN, Channel.FETCH}


def test_a_connection_that_has_brought_something_meanwhile_is_good() -> None:
    world = silent_world()
    for node_id, channel in ((1, Channel.FETCH), (2, Channel.MAIN)):
        world.add(heartbeat(world.done, node_id=node_id, channel=channel, expires_at=50.0), now=20.0)
        world.plan(20.0)
        world.reply(HeartbeatResponse(), 20.1, node_id, channel)
    assert expired(world) == {(1, Channel.MAIN), (2, Channel.FETCH)}


def test_a_request_that_the_broker_holds_back_is_left_alone_unless_it_went_to_the_same_host() -> None:
    world = silent_world()
    for node_id in (1, 2):
        world.add(heartbeat(world.done, node_id=node_id, channel=Channel.FETCH, expires_at=400.0, max_wait=300.0), now=20.0)
    world.plan(20.0)
    assert expired(world) == {(1, Channel.MAIN), (1, Channel.FETCH), (2, Channel.MAIN)}
    assert [type(outcome) for outcome in world.outcomes] == [KafkaTimeoutError, KafkaConnectionError]


def test_what_waits_for_an_answer_elsewhere_on_a_connection_as_silent_is_asked_again_at_once() -> None:
    world = silent_world()
    world.add(heartbeat(world.done, node_id=2, expires_at=60.0), now=30.0)
    world.plan(30.0)
    assert (2, Channel.MAIN) in expired(world)
    assert [type(outcome) for outcome in world.outcomes] == [KafkaTimeoutError, KafkaConnectionError]


def test_a_slow_broker_casts_no_doubt_on_other_connections() -> None:
    """It answered something meanwhile, only not the request that is overdue."""
    world = silent_world()
    world.add(heartbeat(world.done, expires_at=45.0), now=15.0)
    world.plan(15.0)
    world.reply(HeartbeatResponse(), 16.0)
    world.plan(45.0)
    assert shuts(world.plan(45.0 + EXPIRY_GRACE)) == [world.key()]
    world = silent_world()
    world.receive(b"\0\0", 20.0, world.key())  # the begin of a response
    assert expired(world) == {(1, Channel.MAIN)}


def test_a_request_that_expires_under_throttling_says_why() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 1.0)
    world.add(heartbeat(world.done, expires_at=5.0))
    world.plan(1.0)
    world.plan(5.0)
    assert "the broker throttles this client" in str(world.outcomes[1])


def test_requests_for_any_broker_avoid_a_throttled_one() -> None:
    world = World(ONE, TWO)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 1.0)
    world.add(metadata(world.done))
    assert opens(world.plan(1.0)) == [(2, Channel.MAIN)]


# Any broker.


def test_the_least_loaded_ready_broker_is_chosen() -> None:
    world = World(ONE, TWO)
    world.connect(0.0, 1)
    world.connect(0.0, 2)
    world.add(heartbeat(world.done, node_id=1), heartbeat(world.done, node_id=1), heartbeat(world.done, node_id=2))
    world.plan(1.0)
    world.add(metadata(world.done))
    world.plan(1.0)
    assert [asked.api for asked in world.peer(2).asked] == [Api.HEARTBEAT, Api.METADATA]


@pytest.mark.parametrize(
    ("nodes", "refuses"), [((ONE, TWO), True), ((ONE, TWO), False), ((ONE, TWO, Node(3, "three", 9092)), False)]
)
def test_a_broker_that_owes_an_answer_is_asked_only_if_no_other_is_there_in_time(nodes: tuple[Node, ...], refuses: bool) -> None:
    world = World(*nodes, random=lambda: 0.0)
    world.connect(0.0, 1)
    fetch = heartbeat(world.done, node_id=1, max_wait=0.5, channel=Channel.FETCH)
    world.connect(0.0, 1, Channel.FETCH)
    world.add(fetch)
    world.plan(0.0)
    world.add(metadata(world.done))
    world.plan(0.4 + LATE)
    assert len(world.peer(1).asked) == 1, "it may keep a fetch for so long"
    world.add(metadata(world.done))
    assert opens(world.plan(0.5 + LATE)) == [(2, Channel.MAIN)]
    world.plan(0.4 + LATE + HEDGE)
    assert len(world.peer(1).asked) == 1, "the other one may accept the connection"
    if refuses:
        world.fail_open(REFUSED, 0.4 + LATE + HEDGE, 2)
    world.plan((0.4 if refuses else 0.5) + LATE + HEDGE)
    assert len(world.peer(1).asked) == 2


@pytest.mark.parametrize(("random", "chosen"), [(0.0, 1), (0.6, 2)])
def test_randomness_breaks_ties(random: float, chosen: int) -> None:
    world = World(ONE, TWO, random=lambda: random)
    world.connect(0.0, 1)
    world.connect(0.0, 2)
    world.add(metadata(world.done))
    world.plan(1.0)
    assert [asked.api for asked in world.peer(chosen).asked] == [Api.METADATA]


def test_a_ready_broker_is_preferred_to_opening_another_connection() -> None:
    world = World(ONE, TWO)
    world.connect(0.0, 2)
    world.add(metadata(world.done))
    assert opens(world.plan(1.0)) == []
    assert len(world.peer(2).asked) == 1


def test_one_connection_is_opened_for_many_requests_to_any_broker() -> None:
    world = World(ONE, TWO)
    world.add(metadata(world.done), metadata(world.done))
    assert len(opens(world.plan(0.0))) == 1


def test_a_silent_server_is_not_waited_for_when_there_is_another_one() -> None:
    world = World(BOOT, BOOT_TWO, random=lambda: 0.0)
    world.add(metadata(world.done))
    plan = world.plan(0.0)
    assert (opens(plan), plan.wake_at) == ([(-1, Channel.MAIN)], HEDGE)
    plan = world.plan(HEDGE)
    assert (opens(plan), plan.wake_at) == ([(-2, Channel.MAIN)], 30.0)


def test_when_every_server_has_failed_the_request_waits_and_they_are_tried_again() -> None:
    world = World(BOOT, BOOT_TWO, random=lambda: 0.0)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.0, -1)
    assert opens(world.plan(0.0)) == [(-2, Channel.MAIN)]
    world.fail_open(REFUSED, 0.01, -2)
    plan = world.plan(0.01)
    assert opens(plan) == []
    assert plan.wake_at == pytest.approx(0.04)
    assert not world.delegate.has_usable_node(0.01)
    assert opens(world.plan(plan.wake_at)) == [(-1, Channel.MAIN)]
    assert world.outcomes == []


def test_a_server_to_start_from_that_hung_up_once_is_usable_and_twice_is_not() -> None:
    world = World(BOOT, random=lambda: 0.0)
    world.add(metadata(world.done))
    now = 0.0
    for usable in (True, False):
        world.plan(now)
        world.delegate.opened(world.key(-1), now)
        world.delegate.lost(world.key(-1), None, now)
        assert world.delegate.has_usable_node(now) is usable
        now += 10.0
    world.plan(now)
    assert world.delegate.has_usable_node(now), "it is being tried"


def test_a_server_to_start_from_that_refuses_the_login_is_not_usable() -> None:
    world = World(BOOT, random=lambda: 0.0)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.delegate.opened(world.key(-1), 0.0)
    world.delegate.lost(world.key(-1), AuthenticationFailedError("who are you?"), 0.0)
    assert not world.delegate.has_usable_node(0.0)


def test_brokers_whose_connections_were_cut_are_usable_until_they_cannot_be_reached() -> None:
    world = World(ONE, TWO, random=lambda: 0.0)
    for node in (ONE, TWO):
        world.connect(node_id=node.id)
    for node in (ONE, TWO):
        world.delegate.lost(world.key(node.id), None, 1.0)
    assert world.delegate.has_usable_node(1.0)
    for node in (ONE, TWO):
        world.add(heartbeat(world.done, node_id=node.id))
        world.plan(2.0)
        world.fail_open(REFUSED, 2.0, node.id)
        assert world.delegate.has_usable_node(2.0) is (node is ONE)
    assert world.delegate.has_usable_node(12.0), "they may be tried again"


def test_four_thousand_brokers_cost_what_they_are() -> None:
    world = World(ONE, random=lambda: 0.0)
    world.connect()
    nodes = {1: ONE, **{number: Node(number, "many", number) for number in range(2, 4_001)}}
    world.add(metadata(world.done))
    begin = time.process_time()
    for now in range(2, 7):
        world.delegate.set_nodes(dict(nodes), float(now))
        assert world.delegate.has_usable_node(float(now))
        world.plan(float(now))
    assert time.process_time() - begin < 5, "a walk over all links for each broker takes five times as long"


def test_the_server_with_fewer_failures_comes_first() -> None:
    world = World(BOOT, BOOT_TWO, random=lambda: 0.0)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.0, -1)
    assert opens(world.plan(10.0)) == [(-2, Channel.MAIN)]


def test_refused_credentials_end_a_request_for_any_broker_when_no_other_broker_is_left() -> None:
    world = World(BOOT, BOOT_TWO, random=lambda: 0.0)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.fail_open(AuthenticationFailedError("certificate expired"), 0.0, -1)
    assert opens(world.plan(0.0)) == [(-2, Channel.MAIN)]
    assert world.outcomes == []
    world.fail_open(REFUSED, 0.01, -2)
    world.plan(0.01)
    assert [str(outcome) for outcome in world.outcomes] == ["certificate expired"]
    assert isinstance(world.outcomes[0], AuthenticationFailedError)


# Brokers come and go.


def test_a_bootstrap_connection_becomes_the_brokers_own_when_the_address_is_the_same() -> None:
    world = World(BOOT)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.negotiate(0.0, -1)
    world.plan(0.0)
    world.reply(MetadataResponse(), 0.1, -1)
    world.delegate.set_nodes({5: Node(5, "boot", 9092, "rack"), 1: ONE}, 0.1)
    world.add(heartbeat(world.done, node_id=5))
    assert opens(world.plan(0.1)) == []
    assert [asked.api for asked in world.peer(-1).asked] == [Api.HEARTBEAT]
    assert {state.node.id for state in world.delegate.connection_states()} == {5}


def test_another_bootstrap_connection_ends_when_its_answers_are_in() -> None:
    world = World(BOOT)
    world.add(metadata(world.done), metadata(world.done))
    world.plan(0.0)
    world.negotiate(0.0, -1)
    world.plan(0.0)
    world.reply(MetadataResponse(), 0.1, -1)
    world.delegate.set_nodes({1: ONE}, 0.1)
    assert shuts(world.plan(0.1)) == []
    world.reply(MetadataResponse(), 0.2, -1)
    assert shuts(world.plan(0.2)) == [world.key(-1)]
    assert len(world.outcomes) == 2


@pytest.mark.parametrize("nodes", [{2: TWO}, {1: Node(1, "elsewhere", 9092), 2: TWO}], ids=["gone", "moved"])
def test_a_broker_that_vanished_or_moved_is_disconnected_and_its_requests_end(nodes: dict[int, Node]) -> None:
    world = World(ONE, TWO)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.delegate.set_nodes(nodes, 1.0)
    assert [type(outcome) for outcome in world.outcomes] == [KafkaConnectionError]
    assert shuts(world.plan(1.0)) == [world.key()]


def test_a_broker_that_only_changed_its_rack_keeps_its_connection() -> None:
    world = World(ONE)
    world.connect()
    world.delegate.set_nodes({1: Node(1, "one", 9092, "b")}, 1.0)
    assert world.plan(1.0).actions == ()
    assert world.seen().state is ConnectionState.READY


def test_disconnecting_all_starts_again_from_the_bootstrap_servers() -> None:
    world = World(BOOT)
    world.delegate.set_nodes({1: ONE}, 0.0)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.delegate.disconnect_all(1.0)
    assert [type(outcome) for outcome in world.outcomes] == [KafkaConnectionError]
    world.add(metadata(world.done))
    plan = world.plan(1.0)
    assert (shuts(plan), opens(plan)) == ([world.key()], [(-1, Channel.MAIN)])


def test_backoff_outlives_a_new_start() -> None:
    world = World(BOOT)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.0, -1)
    world.delegate.disconnect_all(0.01)
    plan = world.plan(0.01)
    assert opens(plan) == []
    assert plan.wake_at == pytest.approx(0.05)


def test_versions_of_a_broker_are_known_once_it_is_connected() -> None:
    world = World(ONE)
    assert world.delegate.versions() is None
    world.connect()
    versions = world.delegate.versions()
    assert versions is not None
    assert versions.supports(Api.CONSUMER_GROUP_HEARTBEAT)


# The end.


def test_draining_sends_last_words_only() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done), heartbeat(world.done, final=True))
    world.delegate.drain(1.0)
    assert [type(outcome) for outcome in world.outcomes] == [KafkaConnectionError]
    world.add(heartbeat(world.done))
    assert len(world.outcomes) == 2
    assert not world.delegate.is_drained
    world.plan(1.0)
    assert len(world.peer().asked) == 1
    assert not world.delegate.is_drained
    world.reply(HeartbeatResponse(), 1.1)
    assert world.delegate.is_drained
    assert world.outcomes[2] == HeartbeatResponse()


def test_last_words_are_not_throttled_and_may_still_open_a_connection() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.reply(HeartbeatResponse(throttle_time_ms=60_000), 1.0)
    world.delegate.drain(1.0)
    world.add(heartbeat(world.done, final=True), heartbeat(world.done, final=True, channel=Channel.GROUP))
    plan = world.plan(1.0)
    assert len(world.peer().asked) == 1
    assert opens(plan) == [(1, Channel.GROUP)]


def test_closing_ends_everything_and_takes_nothing_more() -> None:
    world = World(ONE)
    world.connect()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.add(heartbeat(world.done, channel=Channel.GROUP, final=True))
    world.delegate.close(1.0)
    world.add(heartbeat(world.done, final=True))
    assert [type(outcome) for outcome in world.outcomes] == [KafkaConnectionError] * 3
    plan = world.plan(1.0)
    assert (shuts(plan), opens(plan), plan.wake_at) == ([world.key()], [], inf)


def test_statistics_are_values() -> None:
    world = World(ONE)
    world.connect()
    before = world.delegate.connection_states()
    world.add(heartbeat(world.done))
    world.plan(1.0)
    assert [(state.state, state.in_flight) for state in before] == [(ConnectionState.READY, 0)]
    assert [(state.state, state.in_flight) for state in world.delegate.connection_states()] == [(ConnectionState.READY, 1)]


# Whatever happens: one outcome for each request, no wish to be woken in the past, no spinning.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([None, 1, 2, 7]), st.sampled_from(list(Channel))),
        st.tuples(st.sampled_from(["opened", "failed", "lost", "answer", "garbage", "throttle"]), st.integers(0, 3)),
        st.tuples(st.just("nodes"), st.sampled_from([(), (ONE,), (ONE, TWO), (TWO,), (Node(1, "new", 1),)])),
        st.tuples(st.just("rebootstrap")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.3, 2.0, 40.0])),
    ),
    max_size=40,
)


class Chaos:
    """A world in which anything may happen at any time."""

    def __init__(self) -> None:
        self.world = World(BOOT, BOOT_TWO)
        self.now = 0.0
        self.added = 0
        self.open: list[int] = []

    def step(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        world = self.world
        if name == "add":
            make = metadata if arguments[0] is None else heartbeat
            world.add(make(world.done, node_id=arguments[0], channel=arguments[1], expires_at=self.now + 5), now=self.now)
            self.added += 1
        elif name == "nodes":
            world.delegate.set_nodes({node.id: node for node in arguments[0]}, self.now)
        elif name == "rebootstrap":
            world.delegate.disconnect_all(self.now)
        elif name == "wait":
            self.now += arguments[0]
        elif self.open:
            self.happen(name, self.open[arguments[0] % len(self.open)])

    def happen(self, name: str, key: int) -> None:
        world, now = self.world, self.now
        states = {action: world.delegate.get_buffer(action) is not None for action in self.open}
        if name == "opened" and not states[key]:
            world.delegate.opened(key, now)
        elif name == "failed" and not states[key]:
            world.delegate.open_failed(key, REFUSED, now)
        elif name == "lost":
            world.delegate.lost(key, None, now)
        elif name == "garbage" and states[key]:
            world.receive(b"HTTP/1.1 400 Bad Request", now, key)
        elif name in ("answer", "throttle") and states[key] and world.peers[key].asked:
            self.answer(key, 500 if name == "throttle" else 0)

    def answer(self, key: int, throttle: int) -> None:
        answers: dict[Api, Any] = {
            Api.API_VERSIONS: VERSIONS,
            Api.METADATA: MetadataResponse(throttle_time_ms=throttle),
            Api.HEARTBEAT: HeartbeatResponse(throttle_time_ms=throttle),
        }
        peer = self.world.peers[key]
        self.world.receive(peer.answer(answers[peer.asked[0].api]), self.now, key)

    def plan(self) -> float:
        before = len(self.world.outcomes)
        plan = self.world.plan(self.now)
        assert plan.settled >= len(self.world.outcomes) - before
        self.open += [action.key for action in plan.actions if isinstance(action, Open)]
        self.open = [key for key in self.open if key not in shuts(plan)]
        again = self.world.delegate.plan(self.now)
        assert (again.actions, again.settled) == ((), 0)
        assert again.wake_at >= plan.wake_at  # later where a request routed after another took away what that one waited for
        return plan.wake_at


@pytest.mark.slow
@given(STEPS)
def test_every_request_ends_exactly_once_and_nothing_spins(steps: list[tuple[Any, ...]]) -> None:
    chaos = Chaos()
    for step in steps:
        chaos.step(step)
        chaos.plan()
    turns = 0
    while len(chaos.world.outcomes) < chaos.added:
        wake_at = chaos.plan()
        turns += 1
        assert turns < 200
        assert wake_at < inf or len(chaos.world.outcomes) == chaos.added
        chaos.now = min(wake_at, chaos.now + 60)
    assert len(chaos.world.outcomes) == chaos.added
    assert all(isinstance(outcome, KafkaError | HeartbeatResponse | MetadataResponse) for outcome in chaos.world.outcomes)
    chaos.world.delegate.close(chaos.now)
    assert len(chaos.world.outcomes) == chaos.added


def test_no_broker_can_be_reached_once_every_one_was_tried_in_vain() -> None:
    world = World(ONE, TWO)
    world.connect(0.0, 1)
    assert world.delegate.reachability() == Reachability(None, 0.0)
    world.delegate.lost(world.key(), None, 1.0)
    assert world.delegate.reachability().unreachable_since is None, "a connection that is lost may be made again"
    world.add(heartbeat(world.done, node_id=1), heartbeat(world.done, node_id=2), now=2.0)
    world.plan(2.0)
    world.fail_open(REFUSED, 2.1, 1)
    assert world.delegate.reachability().unreachable_since is None, "the other broker may yet answer"
    world.fail_open(REFUSED, 2.2, 2)
    assert world.delegate.reachability() == Reachability(2.1, 0.0)
    world.connect(5.0, 2)
    assert world.delegate.reachability() == Reachability(None, 5.0)


def test_a_server_that_has_not_been_tried_keeps_up_hope() -> None:
    world = World(BOOT, BOOT_TWO)
    world.add(metadata(world.done))
    first = opens(world.plan(0.0))[0][0]
    world.fail_open(REFUSED, 0.1, first)
    assert world.delegate.reachability() == Reachability()
    second = opens(world.plan(0.1))[0][0]
    world.fail_open(REFUSED, 0.2, second)
    assert world.delegate.reachability() == Reachability(0.1)


def test_a_broker_that_hangs_up_after_the_handshake_is_not_reached() -> None:
    world = World(ONE)
    for start in (0.0, 10.0):
        world.add(heartbeat(world.done, expires_at=start + 30), now=start)
        world.plan(start)
        world.negotiate(start, 1)
        world.delegate.lost(world.key(), None, start + 0.5)
    assert world.delegate.reachability() == Reachability(0.5)


def test_a_connection_that_is_idle_or_in_another_lane_says_nothing_against_a_broker_that_answers() -> None:
    world = World(ONE)
    world.connect(0.0, 1, Channel.GROUP)
    world.add(heartbeat(world.done))
    world.plan(1.0)
    world.fail_open(REFUSED, 1.1)
    assert world.delegate.reachability().unreachable_since is None, "the group's connection is there"
    world.plan(700.0)
    assert world.delegate.reachability().unreachable_since is None, "it was closed because nobody used it"


def test_bootstrapping_again_does_not_make_a_cluster_reachable() -> None:
    world = World(ONE)
    world.delegate.set_bootstrap([BOOT])
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1)
    world.delegate.disconnect_all(0.2)
    assert world.delegate.reachability() == Reachability(0.1)


@pytest.mark.parametrize("error", [SslAuthenticationError("unknown_ca"), TlsHandshakeError("internal_error")])
def test_one_tls_handshake_that_fails_may_have_been_unlucky_and_two_in_a_row_were_not(error: KafkaError) -> None:
    world = World(BOOT)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.fail_open(error, 0.1, -1)
    assert world.outcomes == []
    assert world.delegate.has_usable_node(0.1)
    assert opens(world.plan(0.2)) == [(-1, Channel.MAIN)]
    world.fail_open(error, 0.3, -1)
    assert not world.delegate.has_usable_node(0.3)
    world.plan(0.3)
    assert [type(outcome) for outcome in world.outcomes] == ([type(error)] if not error.retriable else [])
    assert world.delegate.problem() is error


def test_an_alert_that_somebody_forged_does_not_end_what_the_next_attempt_brings() -> None:
    world = World(BOOT)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.fail_open(SslAuthenticationError("handshake_failure"), 0.1, -1)
    world.plan(0.1)
    world.plan(0.2)
    world.negotiate(0.2, -1)
    world.plan(0.2)
    world.reply(MetadataResponse(), 0.3, -1)
    assert world.outcomes == [MetadataResponse()]


def test_a_requests_own_broker_whose_tls_fails_once_costs_it_a_retriable_error() -> None:
    world = World(ONE)
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.fail_open(SslAuthenticationError("unknown_ca"), 0.1)
    (outcome,) = world.outcomes
    assert outcome.retriable
    assert "tried once more" in str(outcome)


# Connections that lead to another broker (KIP-1242).


def in_cluster(*nodes: Node) -> World:
    """A bootstrap server and the brokers of cluster ``c``, of which the first has been connected to before."""
    world = World(*nodes)
    world.connect(node_id=nodes[0].id)
    world.delegate.set_nodes({node.id: node for node in nodes}, 1.0, cluster_id="c")
    return world


def meant(world: World, node_id: int = 1, channel: Channel = Channel.MAIN) -> list[tuple[str | None, int]]:
    """Which broker of which cluster each introduction on the newest connection was meant for."""
    return [(request.cluster_id, request.node_id) for request in world.said(node_id, channel)]


def test_a_broker_is_told_which_one_is_meant_once_that_is_known() -> None:
    world = in_cluster(ONE, TWO)
    assert meant(world) == [(None, -1)]
    world.add(heartbeat(world.done, node_id=2), now=1.0)
    world.plan(1.0)
    world.negotiate(1.1, 2)
    assert meant(world, 2) == [("c", 2)]
    assert world.seen(2).state is ConnectionState.READY


def test_a_broker_that_would_not_look_at_it_is_not_told() -> None:
    """It would refuse the version, and cost each connection a round trip."""
    world = World(ONE, TWO)
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.delegate.opened(world.key(), 0.0)
    world.plan(0.0)
    world.reply(OLDER, 0.1)
    world.delegate.set_nodes({1: ONE, 2: TWO}, 1.0, cluster_id="c")
    world.add(heartbeat(world.done, node_id=2), now=1.0)
    world.plan(1.0)
    world.delegate.opened(world.key(2), 1.0)
    world.plan(1.0)
    assert [asked.version for asked in world.peer(2).asked] == [4]


def test_a_connection_that_leads_to_another_broker_is_refused_by_name_and_reported_once() -> None:
    world = in_cluster(ONE, TWO)
    world.add(heartbeat(world.done, node_id=2), now=1.0)
    world.plan(1.0)
    world.delegate.opened(world.key(2), 1.0)
    world.plan(1.0)
    world.reply(ApiVersionsResponse(error_code=129), 1.1, 2)
    text = "another broker than broker 2 of cluster 'c' answers at two:9092"
    assert text in str(world.outcomes[0])
    assert world.seen(2).state is ConnectionState.WAITING
    assert text in str(world.delegate.take_misrouted())
    assert world.delegate.take_misrouted() is None


def test_a_bootstrap_connection_is_asked_where_it_leads_when_it_becomes_a_brokers() -> None:
    world = World(BOOT)
    world.add(metadata(world.done))
    world.plan(0.0)
    world.negotiate(0.0, -1)
    world.plan(0.0)
    world.reply(MetadataResponse(), 0.1, -1)
    key = world.key(-1)
    world.delegate.set_nodes({5: Node(5, "boot", 9092)}, 0.2, cluster_id="c")
    world.plan(0.2)
    assert [(r.cluster_id, r.node_id) for r in world.said(-1)] == [(None, -1), ("c", 5)]
    world.receive(world.peers[key].answer(ApiVersionsResponse(error_code=129)), 0.3, key)
    assert shuts(world.plan(0.3)) == [key]
    assert world.delegate.take_misrouted() is not None


# Answers of another cluster: brokers before 4.4 refuse nothing.


def led_to(cluster_id: str | None, node_id: int = 1) -> World:
    """A broker of cluster ``c`` whose connection brings the metadata of a cluster, and a heartbeat waits for an answer there."""
    world = in_cluster(ONE, TWO) if node_id > 0 else World(BOOT)
    world.add(metadata(world.done), *(heartbeat(world.done) for _ in range(node_id > 0)), now=1.0)
    world.plan(1.0)
    if node_id < 0:
        world.negotiate(1.0, node_id)
        world.plan(1.0)
    world.reply(MetadataResponse(cluster_id=cluster_id), 1.1, node_id)
    return world


def test_a_broker_that_answers_for_another_cluster_is_refused_by_name_and_reported_once() -> None:
    world = led_to("abc")
    text = "cluster 'abc' answers at one:9092, which was broker 1 of cluster 'c'"
    assert all(isinstance(outcome, KafkaConnectionError) and text in str(outcome) for outcome in world.outcomes)
    assert len(world.outcomes) == 2
    assert world.seen().state is ConnectionState.WAITING
    assert shuts(world.plan(1.1)) == [world.key()]
    assert text in str(world.delegate.take_misrouted())
    assert world.delegate.take_misrouted() is None


def test_a_broker_that_keeps_answering_for_another_cluster_is_asked_ever_more_rarely() -> None:
    world = led_to("abc")
    waits = []
    for _ in range(4):
        now = world.seen().retry_at
        world.add(metadata(world.done, node_id=1, expires_at=now + 30), now=now)
        world.plan(now)
        world.negotiate(now)
        world.plan(now)
        world.reply(MetadataResponse(cluster_id="abc"), now)
        waits.append(world.seen().retry_at - now)
    assert waits == sorted(waits)
    assert waits[-1] > 5 * waits[0]


@pytest.mark.parametrize(
    ("cluster_id", "node_id"),
    [("c", 1), (None, 1), ("abc", -1)],
    ids=["the same", "an old broker names none", "a server to start from"],
)
def test_an_answer_that_nothing_speaks_against_is_taken(cluster_id: str | None, node_id: int) -> None:
    """Where the name of a server leads to is the user's decision."""
    world = led_to(cluster_id, node_id)
    assert world.outcomes == [MetadataResponse(cluster_id=cluster_id)]
    assert world.delegate.take_misrouted() is None


def test_once_it_has_started_again_from_the_servers_any_cluster_may_answer() -> None:
    world = led_to("abc")
    world.delegate.set_bootstrap([BOOT])
    world.delegate.disconnect_all(2.0)
    world.outcomes.clear()
    world.add(metadata(world.done), now=2.0)
    world.plan(2.0)
    world.negotiate(2.0, -1)
    world.plan(2.0)
    world.reply(MetadataResponse(cluster_id="abc"), 2.1, -1)
    assert world.outcomes == [MetadataResponse(cluster_id="abc")]


def connected_to_older() -> World:
    """A broker of cluster ``c`` of before 4.4, connected to once it was known which one it is to be; a heartbeat is in flight."""
    world = World(ONE, TWO)
    world.connect(node_id=2)
    world.delegate.set_nodes({1: ONE, 2: TWO}, 0.5, cluster_id="c")
    world.delegate.set_nodes({1: ONE}, 0.5, cluster_id="c")
    world.add(heartbeat(world.done), now=1.0)
    world.plan(1.0)
    world.delegate.opened(world.key(), 1.0)
    world.plan(1.0)
    return world


def opened(world: World) -> list[str]:
    return [event.node for event in world.trace if isinstance(event, ConnectionOpened)]


@pytest.mark.parametrize("answer", ["c", "abc"])
def test_an_older_broker_is_asked_for_its_cluster_and_what_else_it_answers_counts_only_after_that(answer: str) -> None:
    world = connected_to_older()
    world.receive(world.peer().answer(ApiVersionsResponse(error_code=35)), 1.0, world.key())  # it takes no introduction
    world.plan(1.0)
    world.reply(OLDER, 1.0)
    world.plan(1.0)
    assert [asked.api for asked in world.peer().asked] == [Api.METADATA, Api.HEARTBEAT]
    assert world.peer().heard[-2] == MetadataRequest(topics=())
    assert world.outcomes == []
    before = opened(world)
    metadata_answer = world.peer().answer(MetadataResponse(cluster_id=answer))
    world.receive(metadata_answer + world.peer().answer(HeartbeatResponse()), 1.1, world.key())
    if answer == "c":
        assert world.outcomes == [HeartbeatResponse()]
        assert opened(world) == [*before, str(ONE)]
    else:
        assert "cluster 'abc' answers at one:9092" in str(world.outcomes[0])
        assert opened(world) == before, "an outage that goes on is said once"


def test_a_broker_that_was_not_told_who_is_meant_since_others_are_older_is_told_once_it_is_known_to_look_at_it() -> None:
    """In the middle of an upgrade; or the address leads to a cluster that is newer."""
    world = World(ONE, TWO)
    world.add(heartbeat(world.done, node_id=2))
    world.plan(0.0)
    world.delegate.opened(world.key(2), 0.0)
    world.plan(0.0)
    world.reply(OLDER, 0.0, 2)
    world.delegate.set_nodes({1: ONE, 2: TWO}, 0.5, cluster_id="c")
    world.add(heartbeat(world.done), now=1.0)
    world.plan(1.0)
    world.negotiate(1.0)
    world.plan(1.0)
    assert meant(world) == [(None, -1), ("c", 1)]
    assert [asked.api for asked in world.peer().asked] == [Api.API_VERSIONS, Api.HEARTBEAT]
    world.reply(ApiVersionsResponse(error_code=129), 1.1)
    assert "another broker than broker 1 of cluster 'c'" in str(world.outcomes[0])
    assert world.delegate.take_misrouted() is not None
