"""``kafka_async.background.group.find_coordinator``: ``poll(0.0)``, an answer, ``poll(0.1)``; no event loop."""

from itertools import product
from math import inf

import pytest

from kafka_async.background.group.find_coordinator import TRANSITIONS, FindCoordinatorManager, SearchInput, SearchState
from kafka_async.background.loop.request_manager import Poll
from kafka_async.errors import (
    BY_CODE,
    AuthenticationFailedError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    NodeNotReadyError,
    NotCoordinatorError,
    UnsupportedVersionError,
)
from kafka_async.model import Node
from kafka_async.network import Channel
from kafka_async.trace import Fault, Notice, Recovered
from kafka_async.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse
from tests.background.group.offsets_world import ONE, TWO, World, found, only

S, I = SearchState, SearchInput  # noqa: E741 - one letter each, as in the table

NEVER_HAPPENS = {
    (S.UNKNOWN, I.SENT),
    (S.UNKNOWN, I.FOUND),
    (S.UNKNOWN, I.FAILED),
    (S.UNKNOWN, I.LOST),
    (S.UNKNOWN, I.FORGET),
    (S.WANTED, I.FOUND),
    (S.WANTED, I.FAILED),
    (S.WANTED, I.LOST),
    (S.SEARCHING, I.SENT),
    (S.SEARCHING, I.LOST),
    (S.SEARCHING, I.FORGET),
    (S.KNOWN, I.SENT),
    (S.KNOWN, I.FOUND),
    (S.KNOWN, I.FAILED),
    (S.KNOWN, I.FORGET),
}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def manager(world: World) -> FindCoordinatorManager:
    return world.coordinator


def test_every_pair_is_in_the_table_or_a_bug() -> None:
    assert set(product(S, I)) == NEVER_HAPPENS | TRANSITIONS.keys()
    assert not NEVER_HAPPENS & TRANSITIONS.keys()


def test_nobody_asks_so_nothing_is_sent_and_nobody_is_woken(manager: FindCoordinatorManager) -> None:
    assert manager.poll(0.0) == Poll()
    assert manager.state in (SearchState.UNKNOWN, SearchState.KNOWN)


def test_a_search_asks_any_broker_for_the_group(manager: FindCoordinatorManager) -> None:
    manager.request(1.0)
    request = only(manager.poll(1.0))
    assert request.message == FindCoordinatorRequest(coordinator_keys=("g",))
    assert (request.node_id, request.channel, request.expires_at) == (None, Channel.MAIN, 31.0)


def test_one_search_is_in_flight_at_a_time_and_waiting_for_it_wakes_nobody(manager: FindCoordinatorManager) -> None:
    manager.request(0.0)
    manager.poll(0.0)
    manager.request(0.1)
    assert manager.poll(0.1) == Poll(wake_at=inf)
    assert manager.state in (SearchState.WANTED, SearchState.SEARCHING)


def test_the_answer_is_the_coordinator(world: World, manager: FindCoordinatorManager) -> None:
    world.find(0.0, TWO)
    assert manager.coordinator == TWO
    assert manager.poll(1.0) == Poll()
    manager.request(1.0)
    assert manager.poll(1.0) == Poll()
    assert [event.text for event in world.traced if isinstance(event, Notice)] == [
        "the coordinator of group 'g' is two:9092 (id 2)"
    ]


@pytest.mark.parametrize(
    "outcome",
    [
        found(error_code=CoordinatorNotAvailableError.errno),
        found(error_code=14),
        KafkaConnectionError("gone"),
        KafkaTimeoutError("late"),
        found(key="another"),
        FindCoordinatorResponse(),
        found(Node(-1, "", -1)),
    ],
)
def test_a_search_that_fails_is_repeated_after_a_growing_backoff(manager: FindCoordinatorManager, outcome: object) -> None:
    manager.request(0.0)
    request = only(manager.poll(0.0))
    for now, retry_at in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.7), (0.7, 1.5), (1.5, 2.5)):
        request.on_done(outcome, now)
        waiting = manager.poll(now)
        assert not waiting.requests
        assert waiting.wake_at == pytest.approx(retry_at)
        request = only(manager.poll(retry_at + 1e-9))
    assert manager.failure is not None
    assert manager.fatal is None


def _warned_at(world: World, manager: FindCoordinatorManager, outcome: object, seconds: float) -> list[float]:
    """Search in vain for so long; return when that was warned about."""
    now = 0.0
    while now < seconds:
        manager.request(now)
        for request in manager.poll(now).requests:
            request.on_done(outcome, now)
        now += 0.05
    return [round(event.now, 2) for event in world.traced if isinstance(event, Fault)]


def test_a_cluster_that_names_no_coordinator_yet_is_warned_about_after_a_second(
    world: World, manager: FindCoordinatorManager
) -> None:
    warned_at = _warned_at(world, manager, found(error_code=CoordinatorNotAvailableError.errno), 4.0)
    assert len(warned_at) >= 2  # the log shows one of them
    assert 1.0 <= warned_at[0] < 2.5


def test_one_that_cannot_be_asked_or_that_has_named_one_is_warned_about_at_once(
    world: World, manager: FindCoordinatorManager
) -> None:
    assert _warned_at(world, manager, KafkaConnectionError("gone"), 0.1) == [0.0]
    world.traced.clear()
    other = FindCoordinatorManager(config=world.config, brokers=manager.brokers, random=lambda: 0.5, trace=world.traced.append)
    other.latest = TWO
    assert _warned_at(world, other, found(error_code=CoordinatorNotAvailableError.errno), 0.1) == [0.0]


def test_an_answer_that_makes_no_sense_is_named(manager: FindCoordinatorManager) -> None:
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(found(key="another"), 0.0)
    assert isinstance(manager.failure, MalformedResponseError)
    assert "'g'" in str(manager.failure)


@pytest.mark.parametrize("code", sorted(code for code, error in BY_CODE.items() if not error.retriable))
def test_an_error_that_no_retry_heals_is_fatal_until_the_next_answer(world: World, code: int) -> None:
    manager = world.coordinator
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(found(error_code=code), 0.0)
    assert type(manager.fatal) is BY_CODE[code]
    assert manager.poll(0.5) == Poll(wake_at=1.0)
    request = only(manager.poll(1.0))
    assert manager.fatal is not None
    request.on_done(found(), 1.1)
    assert manager.fatal is None
    assert manager.failure is None
    assert manager.coordinator == ONE


@pytest.mark.parametrize("error", [AuthenticationFailedError("no"), UnsupportedVersionError("old")])
def test_a_refusal_on_the_way_is_fatal_too(manager: FindCoordinatorManager, error: KafkaError) -> None:
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(error, 0.0)
    assert manager.fatal is error


def test_a_denied_group_is_named(manager: FindCoordinatorManager) -> None:
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(found(error_code=GroupAuthorizationFailedError.errno), 0.0)
    assert isinstance(manager.fatal, GroupAuthorizationFailedError)
    assert "group 'g': " in str(manager.fatal)


def test_a_retriable_failure_clears_a_fatal_one(manager: FindCoordinatorManager) -> None:
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(found(error_code=GroupAuthorizationFailedError.errno), 0.0)
    only(manager.poll(1.0)).on_done(KafkaTimeoutError("late"), 1.0)
    assert manager.fatal is None


def test_a_search_ends_when_nobody_needs_it_any_more_and_the_other_managers_are_polled_once_more(
    manager: FindCoordinatorManager,
) -> None:
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(found(error_code=GroupAuthorizationFailedError.errno), 0.0)
    assert manager.poll(30.1) == Poll(wake_at=30.1)
    assert manager.fatal is None
    assert manager.poll(30.1) == Poll()
    assert manager.state in (SearchState.UNKNOWN, SearchState.KNOWN)
    manager.request(31.0)
    assert manager.poll(31.0).requests


def test_a_loss_right_after_a_search_is_followed_by_another_after_a_backoff(world: World, manager: FindCoordinatorManager) -> None:
    world.find(0.0)
    error = NotCoordinatorError()
    manager.lost(ONE.id, error, 0.5)
    assert manager.coordinator is None
    assert manager.latest == ONE
    assert manager.failure is error
    assert manager.poll(0.5) == Poll(), "nobody has asked yet"
    manager.request(0.5)
    assert manager.poll(0.5) == Poll(wake_at=0.6)
    assert manager.poll(0.6).requests
    assert any(isinstance(event, Fault) and event.error is error for event in world.traced)


def test_a_loss_without_a_reason_has_a_name_all_the_same(world: World, manager: FindCoordinatorManager) -> None:
    world.find(0.0)
    manager.lost(ONE.id, None, 1.0)
    assert isinstance(manager.failure, CoordinatorNotAvailableError)


def test_news_of_another_broker_than_the_coordinator_count_for_nothing(world: World, manager: FindCoordinatorManager) -> None:
    manager.lost(ONE.id, NotCoordinatorError(), 0.0)
    world.find(0.0, TWO)
    manager.lost(ONE.id, NotCoordinatorError(), 1.0)
    assert manager.coordinator == TWO
    manager.lost(TWO.id, NotCoordinatorError(), 2.0)
    manager.lost(TWO.id, NotCoordinatorError(), 2.0)
    assert manager.coordinator is None


def test_a_coordinator_that_refuses_at_once_is_searched_for_less_and_less_often(
    world: World, manager: FindCoordinatorManager
) -> None:
    now, waits = 0.0, []
    world.find(now)
    for _ in range(6):
        manager.lost(ONE.id, NotCoordinatorError(), now)
        manager.request(now)
        wake_at = manager.poll(now).wake_at
        waits.append(round(wake_at - now, 6))
        now = wake_at
        only(manager.poll(now)).on_done(found(), now)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_an_outage_of_the_coordinator_goes_on_while_the_cluster_names_the_one_that_is_dead(
    world: World, manager: FindCoordinatorManager
) -> None:
    """For some seconds a cluster names a broker that has died, which was logged as a recovery and a new loss each time."""

    def recoveries() -> list[Recovered]:
        return [event for event in world.traced if isinstance(event, Recovered)]

    world.find(0.0)
    for now in (10.0, 12.0, 14.0):
        manager.lost(ONE.id, KafkaConnectionError("refused"), now)
        world.find(now + 1)
        assert recoveries() == []
    manager.served(16.0)
    manager.served(17.0)
    assert [(event.now, event.subject) for event in recoveries()] == [(16.0, "group")]


def test_an_outage_of_the_coordinator_ends_when_another_broker_is_named(world: World, manager: FindCoordinatorManager) -> None:
    world.find(0.0)
    manager.lost(ONE.id, KafkaConnectionError("refused"), 10.0)
    world.find(11.0, TWO)
    manager.served(12.0)
    assert [event.now for event in world.traced if isinstance(event, Recovered)] == [11.0]


def test_a_coordinator_that_served_for_a_while_is_searched_for_at_once(world: World, manager: FindCoordinatorManager) -> None:
    manager.request(0.0)
    for now in (0.0, 0.1, 0.3 + 1e-9, 0.7 + 1e-8):
        only(manager.poll(now)).on_done(KafkaTimeoutError("late"), now)
    only(manager.poll(5.0)).on_done(found(), 5.0)
    manager.lost(ONE.id, NotCoordinatorError(), 60.0)
    manager.request(60.0)
    only(manager.poll(60.0)).on_done(found(), 60.0)
    manager.lost(ONE.id, NotCoordinatorError(), 60.1)
    manager.request(60.1)
    assert manager.poll(60.1).wake_at == pytest.approx(60.2), "it was named again and failed again"


def test_without_a_configured_backoff_a_failing_search_still_pauses() -> None:
    manager = World({"retry_backoff_ms": 0, "retry_backoff_max_ms": 0}).coordinator
    manager.request(0.0)
    only(manager.poll(0.0)).on_done(KafkaConnectionError("refused"), 0.0)
    assert manager.poll(0.0) == Poll(wake_at=0.01)


def test_a_coordinator_that_the_metadata_do_not_list_is_offered_once_they_do(world: World, manager: FindCoordinatorManager) -> None:
    world.metadata.cluster.nodes = {}
    world.find(0.0, TWO)
    assert manager.coordinator is None
    assert world.metadata_wanted == [0.0]
    assert manager.poll(0.0) == Poll(wake_at=0.1)
    world.metadata.cluster.nodes = {2: TWO}
    assert manager.coordinator == TWO
    assert manager.poll(0.05) == Poll()


def test_a_coordinator_that_stays_unlisted_is_searched_for_again(world: World, manager: FindCoordinatorManager) -> None:
    world.metadata.cluster.nodes = {}
    world.find(0.0, TWO)
    assert manager.poll(0.1).wake_at == pytest.approx(0.3)
    assert isinstance(manager.failure, NodeNotReadyError)
    assert manager.poll(0.3 + 1e-9).requests


def test_a_coordinator_is_not_lost_because_older_metadata_do_not_list_it(world: World, manager: FindCoordinatorManager) -> None:
    """At the start both are asked for at once, and a busy cluster may answer in any order."""
    world.metadata.cluster.nodes = {}
    world.brokers.are_old = True
    world.find(0.0, TWO)
    manager.request(5.0)
    assert manager.poll(5.0) == Poll(), "the answer will wake us"
    assert [event.text for event in world.traced if isinstance(event, Fault)] == []
    world.brokers.are_old = False
    world.metadata.cluster.nodes = {2: TWO}
    assert manager.coordinator == TWO
    world.metadata.cluster.nodes = {1: ONE}
    assert manager.poll(5.1).requests, "now the metadata say that it is not there"


def test_a_coordinator_that_vanishes_from_the_metadata_is_lost(world: World, manager: FindCoordinatorManager) -> None:
    world.find(0.0, TWO)
    world.metadata.cluster.nodes = {1: ONE}
    assert manager.coordinator is None
    assert manager.poll(60.0) == Poll(), "nobody needs it"
    manager.request(60.0)
    assert manager.poll(60.0).requests
    assert world.metadata_wanted == [60.0]


def test_a_search_has_no_last_words(manager: FindCoordinatorManager) -> None:
    manager.request(0.0)
    assert manager.poll_on_close(0.0) == Poll()


@pytest.mark.parametrize("state", list(SearchState))
def test_wake_at_is_never_in_the_past(state: SearchState) -> None:
    """Whatever the state, a second poll in the same instant has nothing to send and does not ask to be called at once."""
    manager = World().coordinator
    if state is not SearchState.UNKNOWN:
        manager.request(0.0)
    if state in (SearchState.WANTED, SearchState.KNOWN):
        only(manager.poll(0.0)).on_done(found() if state is SearchState.KNOWN else KafkaTimeoutError("late"), 0.0)
    manager.poll(5.0)
    again = manager.poll(5.0)
    assert not again.requests
    assert again.wake_at > 5.0
