"""``kafka_async.background.group.group_managers``: which protocol a member speaks, and what the application hears of the group."""

from math import inf
from typing import Any

import pytest

from kafka_async.background.positions.subscription import Subscription
from kafka_async.events import Call, GroupChanged, PartitionsAssigned
from kafka_async.model import ConsumerState
from kafka_async.wire.messages import FindCoordinatorRequest

from ..support import World


def group(world: World) -> Any:
    assert world.background.group is not None
    return world.background.group


def subscribed(world: World, subscription: Subscription | None = None) -> Any:
    managers = group(world)
    managers.subscribe(subscription or Subscription(topics=frozenset("t")), 0.0)
    managers.poll(0.0)
    return managers


def changes(world: World) -> list[GroupChanged]:
    return [event for event in world.events() if isinstance(event, GroupChanged)]


def test_a_consumer_that_only_commits_is_no_member() -> None:
    world = World(group_id="g")
    managers = group(world)
    managers.poll(0.0)
    assert (managers.state, managers.wanted_topics, changes(world)) == (None, frozenset(), [])
    managers.carried_out(PartitionsAssigned(number=1), 0.0)
    assert not managers.is_leaving


def test_a_member_whose_protocol_is_not_known_yet_is_joining_and_has_its_topics_looked_up() -> None:
    world = World(group_id="g")
    world.network.offered = None
    managers = subscribed(world)
    assert (managers.state, managers.wanted_topics) == (ConsumerState.JOINING, frozenset("t"))
    assert not managers.is_being_named


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_leaves_is_told_of_once_and_has_no_session(protocol: str) -> None:
    world = World(group_id="g", group_protocol=protocol)
    managers = subscribed(world)
    assert [event.state for event in changes(world)] == [ConsumerState.JOINING]
    call: Call[None] = Call(9.0)
    managers.unsubscribe(call, 1.0)
    for now in (1.0, 2.0):
        managers.poll(now)
    assert [event.state for event in changes(world)] == [ConsumerState.STEADY]
    assert world.handler.session_deadline == inf


def test_unsubscribing_what_was_never_subscribed_is_done_at_once() -> None:
    call: Call[None] = Call(9.0)
    group(World(group_id="g")).unsubscribe(call, 0.0)
    assert call.done


def test_a_member_has_its_coordinator_looked_for() -> None:
    world = World(group_id="g", group_protocol="consumer")
    managers = group(world)
    managers.subscribe(Subscription(topics=frozenset("t")), 0.0)
    asked = [request.message for request in world.background.poll(0.0).requests]
    assert any(isinstance(message, FindCoordinatorRequest) for message in asked)
