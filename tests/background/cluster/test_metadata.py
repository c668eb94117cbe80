"""The Metadata request manager: when it asks, whom it believes, when it gives up."""

from math import inf
from typing import Any

import pytest
from attrs import define, evolve

from kafka_async import TopicPartition
from kafka_async.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaConnectionError,
    NoBrokersAvailable,
    RebootstrapRequiredError,
    TopicAuthorizationFailedError,
)
from kafka_async.events import AssignFromUser, Call, ClusterDescription, SubscribePattern, SubscribeTopics, TopicMetadata
from kafka_async.trace import Fault, Recovered
from kafka_async.wire.messages import ListOffsetsRequest, MetadataRequest, MetadataResponse, MetadataResponseTopic

from ..support import A, B, World, cluster, described, until


def known(*, epoch: int = 0, leader: int = 1, **options: Any) -> World:
    """Return a world that has learned of topic ``t`` at 0."""
    world = World(**options)
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.learn(described("t", (leader, 2), epoch=epoch))
    return world


def ask(world: World, topics: frozenset[str] | None, *, create: bool = False, fail_fast: bool = False) -> Call[ClusterDescription]:
    call: Call[ClusterDescription] = Call(60.0)
    world.send(TopicMetadata(call=call, topics=topics, create=create, fail_fast=fail_fast))
    return call


def again(world: World, now: float, *topics: MetadataResponseTopic) -> None:
    """Have the cluster asked once more, and answer."""
    world.background.metadata.request_update(now)
    until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(*topics), now + 0.5)


# When.


def test_it_asks_at_once_and_then_at_the_age() -> None:
    world = known(metadata_max_age_ms=60_000)
    assert world.poll(1.0) == []
    assert world.wake_at == pytest.approx(60.0)
    (request,) = world.poll(60.0)
    assert isinstance(request, MetadataRequest)
    assert [topic.name for topic in request.topics or ()] == ["t"]


def test_it_knows_how_old_the_picture_is() -> None:
    world = World()
    assert not world.background.metadata.answered_since(-inf)
    again(world, 60.0, described("t", (1, 2)))
    assert world.background.metadata.answered_since(60.4)
    assert not world.background.metadata.answered_since(60.5)


def test_without_a_subscription_only_the_brokers_are_asked_for() -> None:
    world = World()
    (request,) = world.poll(0.0)
    assert isinstance(request, MetadataRequest)
    assert (request.topics, request.allow_auto_topic_creation) == ((), False)


def test_one_request_is_in_flight_at_a_time() -> None:
    world = World()
    world.poll(0.0)
    world.background.metadata.request_update(0.1)
    assert world.poll(0.1) == []
    assert world.poll(5.0) == []


def test_needs_are_met_a_backoff_after_the_last_answer() -> None:
    world = known()
    world.background.metadata.request_update(0.0)
    assert world.poll(0.05) == []
    assert world.wake_at == pytest.approx(0.1)
    assert len(world.poll(0.1)) == 1


def test_metadata_requests_that_fail_are_repeated_at_growing_intervals() -> None:
    world = World()
    now, waits = 0.0, []
    for _ in range(6):
        then = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
        waits.append(round(then - now, 3))
        now = then
        world.answer(MetadataRequest, KafkaConnectionError("gone"), now)
    assert waits == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert any(isinstance(event, Fault) for event in world.seen)


def test_the_same_picture_is_reported_once() -> None:
    world = known()
    world.poll(0.2)
    world.events()
    again(world, 10.0, described("t", (1, 2)))
    world.poll(11.0)
    assert world.events() == []


def test_a_partition_without_a_leader_has_the_cluster_asked_again() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.learn(described("t", (-1,)))
    assert until(world, lambda: bool(world.waiting(MetadataRequest)), 0.0) == pytest.approx(0.1)


@pytest.mark.parametrize(("code", "error"), [(29, TopicAuthorizationFailedError), (17, InvalidTopicError)])
def test_what_a_subscription_may_not_have_is_reported_and_asked_again(code: int, error: type[Exception]) -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.learn(MetadataResponseTopic(name="t", error_code=code))
    (reported,) = world.errors()
    assert isinstance(reported, error)
    assert "'t'" in str(reported)
    assert until(world, lambda: bool(world.waiting(MetadataRequest)), 0.0) == pytest.approx(0.1)


def test_a_refusal_that_retrying_cannot_mend_is_reported() -> None:
    world = World()
    world.poll(0.0)
    world.answer(MetadataRequest, AuthenticationFailedError("wrong password"), 0.1)
    assert [type(error) for error in world.errors()] == [AuthenticationFailedError]


# Look-ups.


def test_a_look_up_is_answered_by_a_request_that_was_sent_after_it() -> None:
    world = known()
    world.background.metadata.request_update(0.0)
    world.poll(0.2)
    early = world.find(MetadataRequest)
    call = ask(world, frozenset("u"))
    world.poll(0.3)
    early.on_done(cluster(described("t", (1, 2))), 0.4)
    assert not call.done
    (request,) = world.poll(0.5)
    assert isinstance(request, MetadataRequest)
    assert [topic.name for topic in request.topics or ()] == ["t", "u"]
    world.answer(MetadataRequest, cluster(described("t", (1, 2)), described("u", (1,))), 0.6)
    assert set(call.result().topics) == {"u"}


def test_a_look_up_of_all_topics_asks_for_all() -> None:
    world = known()
    call = ask(world, None)
    (request,) = world.poll(1.0)
    assert isinstance(request, MetadataRequest)
    assert request.topics is None
    world.answer(MetadataRequest, cluster(described("t", (1, 2)), described("u", (1,))), 1.1)
    assert set(call.result().topics) == {"t", "u"}


def creates(world: World) -> dict[str, bool]:
    """Return the topics that the request in flight names, and whether it may create them."""
    (request,) = world.waiting(MetadataRequest)
    return dict.fromkeys([topic.name or "" for topic in request.topics or ()], request.allow_auto_topic_creation)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_subscription_after_the_start_may_have_its_topics_created(allowed: bool) -> None:
    world = known(allow_auto_create_topics=allowed)
    world.send(SubscribeTopics(topics=frozenset(("t", "new"))))
    world.poll(5.0)
    assert creates(world) == {"t": allowed, "new": allowed}


def test_what_was_deleted_stays_deleted_and_what_was_refused_is_not_offered_again_without_a_subscription() -> None:
    world = known()
    again(world, 10.0, MetadataResponseTopic(name="t", error_code=3))
    until(world, lambda: bool(world.waiting(MetadataRequest)), 10.0)
    assert creates(world) == {"t": False}
    world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="t", error_code=3)), 11.0)
    world.send(SubscribeTopics(topics=frozenset(("t", "new"))))
    world.poll(12.0)
    assert creates(world) == {"new": True}
    world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="new", error_code=3)), 12.0)
    until(world, lambda: bool(world.waiting(MetadataRequest)), 12.0)
    assert creates(world) == {"t": False, "new": False}


def test_a_request_that_may_create_names_nothing_that_somebody_only_asks_about() -> None:
    world = known()
    call = ask(world, frozenset("u"))
    world.send(SubscribeTopics(topics=frozenset("n")))
    world.poll(5.0)
    assert creates(world) == {"n": True}
    world.answer(MetadataRequest, cluster(described("n", (1,))), 5.0)
    assert not call.done
    world.poll(5.1)
    assert creates(world) == {"n": False, "u": False}


@define
class Needs:
    """A part that needs topics and does not ask a second time."""

    topics: frozenset[str] = frozenset()


def test_what_a_request_that_may_create_left_out_is_asked_for_by_the_next() -> None:
    """The sequence: a broker hangs, and its request is repeated when somebody needs two topics, of which one may be created."""
    world = World()
    needs = Needs()
    metadata = world.background.metadata
    metadata.wanted_topics.askers.append(needs)
    world.poll(0.0)
    world.send(SubscribeTopics(topics=frozenset("n")))
    needs.topics = frozenset("u")
    metadata.request_update(0.1)
    world.answer(MetadataRequest, KafkaConnectionError("timed out"), 30.0)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 30.0)
    assert creates(world) == {"n": True}
    world.answer(MetadataRequest, cluster(described("n", (1,))), now)
    then = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    assert then < now + 1
    assert creates(world) == {"n": False, "u": False}
    world.answer(MetadataRequest, cluster(described("n", (1,)), described("u", (1,))), then)
    assert world.poll(then + 20) == []


def test_a_pattern_is_compared_with_all_topics_at_the_age_though_somebody_wants_others_created_ever_again() -> None:
    world = World(metadata_max_age_ms=60_000)
    world.send(SubscribePattern(matches=lambda name: True, exclude_internal=True))
    world.learn(described("t", (1, 2)))
    missing = MetadataResponseTopic(name="u", error_code=3)
    ask(world, frozenset("u"), create=True)
    world.poll(59.0)
    assert creates(world) == {"u": True}
    world.answer(MetadataRequest, cluster(missing), 59.0)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 59.0)
    assert now < 60.0
    (request,) = world.waiting(MetadataRequest)
    assert request.topics is None


@pytest.mark.parametrize(("create", "allowed"), [(True, True), (True, False), (False, True)])
def test_topics_are_created_only_if_everybody_agrees(create: bool, allowed: bool) -> None:
    world = World(allow_auto_create_topics=allowed)
    ask(world, frozenset("u"), create=create)
    (request,) = world.poll(0.0)
    assert isinstance(request, MetadataRequest)
    assert request.allow_auto_topic_creation is (create and allowed)


def test_a_topic_that_does_not_exist_is_an_outage_that_ends_when_it_does() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset(("t", "u"))))
    missing = [MetadataResponseTopic(name=name, error_code=3) for name in ("t", "u")]
    world.learn(*missing)
    again(world, 10.0, *missing)
    faults = [event for event in world.seen if isinstance(event, Fault)]
    assert [fault.text for fault in faults] == [f"topic {name!r} does not exist; asking again" for name in "tutu"]
    again(world, 20.0, described("t", (1, 2)), missing[1])
    again(world, 30.0, described("t", (1, 2)), described("u", (1, 2)))
    ends = [(event.outage, event.now) for event in world.seen if isinstance(event, Recovered)]
    assert ends == [(faults[0].outage, 20.5), (faults[1].outage, 30.5)]


def test_a_partition_that_its_topic_lacks_is_an_outage_that_ends_when_it_is_there() -> None:
    world = World()
    world.send(AssignFromUser(stamps={A: 1, B: 2}))
    world.learn(described("t", (1,)))
    world.poll(0.1)
    for now in (10.0, 20.0):
        again(world, now, described("t", (1,)))
        world.poll(now + 0.6)
    fault = next(event for event in world.seen if isinstance(event, Fault))
    assert fault.text == "assigned partitions do not exist; asking again"
    assert fault.partitions == frozenset((B,))
    again(world, 30.0, MetadataResponseTopic(name="t", error_code=3))
    world.poll(30.6)
    assert not any(isinstance(event, Recovered) and event.partitions for event in world.seen)
    again(world, 40.0, described("t", (1, 2)))
    world.poll(40.6)
    end = next(event for event in world.seen if isinstance(event, Recovered) and event.partitions)
    assert (end.outage, end.partitions) == (fault.outage, fault.partitions)


def test_a_look_up_of_a_topic_that_does_not_exist_is_answered_without_it() -> None:
    world = World()
    call = ask(world, frozenset("u"))
    world.learn(MetadataResponseTopic(name="u", error_code=3))
    assert call.result().topics == {}


def test_a_look_up_without_access_fails() -> None:
    world = World()
    call = ask(world, frozenset("u"))
    world.learn(MetadataResponseTopic(name="u", error_code=29))
    with pytest.raises(TopicAuthorizationFailedError):
        call.result()


def test_a_look_up_waits_for_a_leader_at_the_pace_of_the_backoff() -> None:
    world = World()
    call = ask(world, frozenset("u"))
    now, requests = 0.0, 0
    while now < 2.0:
        now = until(world, lambda: bool(world.waiting(MetadataRequest)), now) + 0.001
        requests += 1
        world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="u", error_code=5)), now)
    assert not call.done
    assert requests <= 21
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("u", (1,))), now)
    assert set(call.result().topics) == {"u"}


def test_a_look_up_that_waits_for_a_leader_is_asked_again_after_an_answer_about_another_topic() -> None:
    """Topics that brokers may create are asked for alone: what is only looked up must not be created."""
    world = World(allow_auto_create_topics=True)
    call = ask(world, frozenset("u"))
    world.learn(MetadataResponseTopic(name="u", error_code=5))
    world.send(SubscribeTopics(topics=frozenset("v")))
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 0.001)
    assert [topic.name for topic in world.waiting(MetadataRequest)[0].topics or ()] == ["v"]
    world.answer(MetadataRequest, cluster(described("v", (1,))), now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now + 0.001)
    assert now < 2.0
    world.answer(MetadataRequest, cluster(described("u", (1,)), described("v", (1,))), now)
    assert set(call.result().topics) == {"u"}


def test_a_look_up_survives_a_failure_that_may_pass() -> None:
    world = World()
    call = ask(world, frozenset("t"))
    world.poll(0.0)
    world.answer(MetadataRequest, KafkaConnectionError("gone"), 0.0)
    assert not call.done
    until(world, lambda: bool(world.waiting(MetadataRequest)), 0.0)
    world.answer(MetadataRequest, cluster(described("t", (1,))), 1.0)
    assert call.done


def test_a_withdrawn_look_up_is_not_asked() -> None:
    world = known()
    ask(world, frozenset("u")).withdraw()
    assert world.poll(1.0) == []


# Giving up the known brokers (KIP-899, KIP-1102).


def test_it_bootstraps_again_when_no_broker_can_be_reached() -> None:
    world = known()
    world.background.metadata.request_update(5.0)
    world.network.usable = False
    before = dict(world.background.metadata.cluster.nodes)
    world.poll(5.0)
    assert (world.background.metadata.cluster.nodes, world.background.metadata.cluster.former_nodes) == ({}, before)


def test_it_bootstraps_again_when_metadata_does_not_come_for_long() -> None:
    world = known(metadata_recovery_rebootstrap_trigger_ms=20_000)
    world.background.metadata.request_update(10.0)
    world.poll(10.0)
    world.poll(29.9)
    assert world.background.metadata.cluster.nodes
    world.poll(30.0)
    assert world.background.metadata.cluster.nodes == {}


def test_its_own_pauses_are_no_time_without_metadata() -> None:
    world = World(metadata_recovery_rebootstrap_trigger_ms=1000)
    world.send(SubscribeTopics(topics=frozenset("t")))
    missing = MetadataResponseTopic(name="t", error_code=3)
    world.learn(missing)
    now = 0.0
    for _ in range(10):  # a topic that does not exist is asked for at growing intervals, up to a second
        now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
        world.answer(MetadataRequest, cluster(missing), now)
    assert now > 5
    assert world.background.metadata.cluster.nodes
    asked_at = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.poll(asked_at + 0.9)
    assert world.background.metadata.cluster.nodes
    world.poll(asked_at + 1.0)
    assert world.background.metadata.cluster.nodes == {}
    assert [event.text for event in world.seen if isinstance(event, Fault)][-1].startswith("no metadata for 1 s")


def test_it_bootstraps_again_when_the_broker_says_so() -> None:
    world = known()
    world.background.metadata.request_update(5.0)
    world.poll(5.0)
    world.answer(MetadataRequest, MetadataResponse(error_code=129), 5.1)
    assert world.background.metadata.cluster.nodes == {}
    assert world.background.metadata.cluster.former_nodes == {}, "they may be another cluster's by now"
    assert world.errors() == []


def test_it_bootstraps_again_when_an_address_leads_to_another_broker_but_not_for_each_attempt() -> None:
    world = known()
    error = RebootstrapRequiredError("another broker answers")
    world.network.misrouted = error
    world.poll(5.0)
    assert (world.background.metadata.cluster.nodes, world.background.metadata.cluster.former_nodes) == ({}, {})
    world.answer(MetadataRequest, cluster(), 5.1)
    assert world.background.metadata.cluster.nodes
    world.network.misrouted = error
    world.poll(6.0)
    assert world.background.metadata.cluster.nodes
    world.network.misrouted = error
    world.poll(40.0)
    assert world.background.metadata.cluster.nodes == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, "abc"), ({"metadata_cluster_check_enable": False}, None), ({"metadata_recovery_strategy": "none"}, None)],
)
def test_brokers_are_told_which_cluster_is_meant_unless_configured_otherwise(options: dict[str, Any], expected: str | None) -> None:
    world = known(**options)
    world.background.metadata.request_update(5.0)
    world.poll(5.0)
    world.answer(MetadataRequest, evolve(cluster(), cluster_id="abc"), 5.1)
    assert world.background.metadata.expected_cluster == expected


def test_another_cluster_is_said_to_be_one() -> None:
    """The servers of the configuration may lead somewhere else one day, by a proxy's mistake or on purpose."""
    world = known()
    world.background.metadata.request_update(5.0)
    world.poll(5.0)
    world.answer(MetadataRequest, evolve(cluster(), cluster_id="abc"), 5.1)
    (fault,) = [event for event in world.seen if isinstance(event, Fault)]
    assert fault.text.startswith("the bootstrap servers lead to another cluster, 'abc'; it was 'c' before")


@pytest.mark.parametrize("how", ["usable", "trigger", "asked"])
def test_it_never_bootstraps_again_if_configured_so(how: str) -> None:
    world = known(metadata_recovery_strategy="none")
    world.background.metadata.request_update(5.0)
    world.network.usable = how != "usable"
    world.poll(5.0)
    if how == "asked":
        world.answer(MetadataRequest, MetadataResponse(error_code=129), 5.1)
    world.poll(1000.0)
    assert world.background.metadata.cluster.nodes


def test_a_look_up_in_a_hurry_ends_when_every_server_was_tried() -> None:
    world = World(bootstrap_servers="one:1,two:2")
    call = ask(world, frozenset("t"), fail_fast=True)
    world.poll(0.0)
    assert not call.done
    world.network.usable = False
    world.network.error = KafkaConnectionError("refused")
    world.poll(0.1)
    with pytest.raises(NoBrokersAvailable, match=r"one:1, two:2.*refused") as caught:
        call.result()
    assert caught.value.__cause__ is world.network.error


def test_a_look_up_in_a_hurry_ends_with_the_refusal_if_there_was_one() -> None:
    world = World(bootstrap_servers="one:1,two:2")
    call = ask(world, frozenset("t"), fail_fast=True)
    world.poll(0.0)
    world.network.usable = False
    world.network.error = AuthenticationFailedError("one:1: who are you?")
    world.poll(0.1)
    with pytest.raises(AuthenticationFailedError, match="who are you"):
        call.result()


def test_a_cluster_that_is_denied_is_said_by_the_look_up_and_by_reads_and_asked_again() -> None:
    world = World()
    call = ask(world, frozenset("t"))
    world.poll(0.0)
    world.answer(MetadataRequest, MetadataResponse(error_code=ClusterAuthorizationFailedError.errno), 0.1)
    with pytest.raises(ClusterAuthorizationFailedError, match="cluster"):
        call.result()
    assert [type(error) for error in world.errors()] == [ClusterAuthorizationFailedError]
    assert world.poll(60.0)


def test_topics_of_pending_look_ups_of_offsets_are_asked_for() -> None:
    world = known()
    world.background.list_offsets.look_up(TopicPartition("u", 0), -1, lambda outcome, now: None, lambda: True)
    until(world, lambda: bool(world.waiting(MetadataRequest)), 0.2)
    world.answer(MetadataRequest, cluster(described("t", (1, 2)), described("u", (3,))), 1.0)
    until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.0)
    assert world.find(ListOffsetsRequest).node_id == 3
