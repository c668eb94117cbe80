"""Metadata requests while answers are late. When the first one goes out: ``test_metadata.py``."""

import pytest

from kafka_async.errors import KafkaConnectionError
from kafka_async.events import Call, ClusterDescription, SubscribeTopics, TopicMetadata
from kafka_async.network import LATE
from kafka_async.trace import Fault
from kafka_async.wire.messages import MetadataRequest

from ..support import World, cluster, described, until


def test_while_an_answer_is_late_another_broker_is_asked_after_twice_the_time_each() -> None:
    world, now, asked = World(), 0.0, []
    while now < 30:
        asked += [now] * len(world.poll(now))
        now = min(world.wake_at, 30.0)
    assert asked == [0, 1, 2, 4, 8], "no more if less than half of the time is left"
    assert [request.expires_at for request in world.unsent] == [30.0] * 5
    assert [request.withdrawn() for request in world.unsent] == [True] * 4 + [False], "what was not written yet is superseded"


def test_the_first_answer_counts_and_nothing_that_becomes_of_earlier_requests() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.poll(0.0)
    world.poll(LATE)
    frozen, prompt = world.unsent
    prompt.on_done(cluster(described("t", (1, 2), epoch=1)), 1.1)
    world.poll(1.1)
    assert world.background.metadata.cluster.topics.keys() == {"t"}
    world.unsent.clear()
    frozen.on_done(KafkaConnectionError("gone"), 1.2)
    frozen.on_done(cluster(), 1.2)
    assert world.background.metadata.cluster.topics.keys() == {"t"}
    assert world.poll(5.0) == []
    assert not any(isinstance(event, Fault) for event in world.seen)


def test_a_late_answer_counts_if_it_comes_first_and_so_does_the_next_one() -> None:
    world = World(allow_auto_create_topics=False)
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.poll(0.0)
    world.poll(0.5)
    call: Call[ClusterDescription] = Call(60.0)
    world.send(TopicMetadata(call=call, topics=frozenset("u")))
    world.poll(LATE)
    first, second = world.unsent
    first.on_done(cluster(described("t", (1, 2))), 1.1)
    world.poll(1.1)
    assert world.background.metadata.cluster.topics.keys() == {"t"}
    assert not call.done, "it was made after the first request was sent"
    second.on_done(cluster(described("t", (1, 2)), described("u", (1,))), 1.2)
    assert call.result().topics.keys() == {"u"}


def test_requests_that_all_fail_are_one_failure() -> None:
    world = World()
    world.poll(0.0)
    world.poll(LATE)
    for request in tuple(world.unsent):
        request.on_done(KafkaConnectionError("gone"), 1.1)
    world.unsent.clear()
    assert sum(isinstance(event, Fault) for event in world.seen) == 1
    assert until(world, lambda: bool(world.waiting(MetadataRequest)), 1.1) == pytest.approx(1.2)
