"""``kafka_async.background.cluster.cluster_view``: which answer is believed."""

from typing import Any

import pytest

from kafka_async import Node, TopicPartition
from kafka_async.background.cluster.cluster_view import Leader
from kafka_async.events import SubscribeTopics
from kafka_async.trace import Notice
from kafka_async.wire.messages import MetadataRequest, MetadataResponseTopic

from ..support import A, B, World, cluster, described, topic_id, until


def known(*, epoch: int = 0, leader: int = 1, **options: Any) -> World:
    """Return a world that has learned of topic ``t`` at 0."""
    world = World(**options)
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.learn(described("t", (leader, 2), epoch=epoch))
    return world


def again(world: World, now: float, *topics: MetadataResponseTopic) -> None:
    """Have the cluster asked once more, and answer."""
    world.background.metadata.request_update(now)
    until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(*topics), now + 0.5)


# What the answers say.


def test_brokers_topics_and_leaders_are_taken_over() -> None:
    world = known(epoch=3)
    metadata = world.background.metadata
    assert metadata.cluster.nodes[2] == Node(2, "b2", 9092, "r2")
    assert (metadata.cluster.cluster_id, metadata.cluster.leader(B), metadata.cluster.topic_id("t")) == (
        "c",
        Leader(2, 3),
        topic_id("t"),
    )
    assert metadata.cluster.names[topic_id("t")] == "t"
    description = metadata.cluster.describe().topics["t"]
    assert [(part.partition, part.leader, part.leader_epoch) for part in description.partitions] == [(0, 1, 3), (1, 2, 3)]


@pytest.mark.parametrize(("epoch", "believed"), [(2, 1), (3, 3), (4, 3)])
def test_a_leader_of_an_older_epoch_is_not_believed(epoch: int, believed: int) -> None:
    world = known(epoch=3)
    again(world, 10.0, described("t", (3, 2), epoch=epoch))
    leader = world.background.metadata.cluster.leader(A)
    assert leader is not None
    assert leader.node_id == believed


def test_a_leader_that_is_no_known_broker_is_none() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    world.learn(described("t", (9, -1)))
    assert world.background.metadata.cluster.leader(A) is None
    assert world.background.metadata.cluster.leader(B) is None


def test_an_older_epoch_is_believed_when_nobody_has_said_another_for_a_request_timeout() -> None:
    world = known(epoch=32767, request_timeout_ms=30_000)
    for now in (10.0, 20.0, 39.0):
        again(world, now, described("t", (3, 2), epoch=4))
        assert world.background.metadata.cluster.leaders[A] == Leader(1, 32767)
    again(world, 40.0, described("t", (3, 2), epoch=4))
    assert world.background.metadata.cluster.leaders[A] == Leader(3, 4)


def test_a_topic_that_was_not_asked_about_is_not_learned() -> None:
    world = known()
    again(world, 10.0, described("t", (1, 2)), described("other", (1,)))
    assert set(world.background.metadata.cluster.topics) == {"t"}


def test_doubts_begin_anew_when_the_known_epoch_is_confirmed() -> None:
    world = known(epoch=8, request_timeout_ms=30_000)
    again(world, 10.0, described("t", (3, 2), epoch=7))
    again(world, 30.0, described("t", (1, 2), epoch=8))
    again(world, 50.0, described("t", (3, 2), epoch=7))
    assert world.background.metadata.cluster.leaders[A] == Leader(1, 8)


def test_a_topic_with_another_id_is_another_topic_whatever_its_epochs() -> None:
    world = known(epoch=8)
    again(world, 10.0, described("t", (3, 3), epoch=0, generation=1))
    assert world.background.metadata.cluster.leader(A) == Leader(3, 0)
    assert world.background.metadata.cluster.topic_id("t") == topic_id("t", 1)
    assert any(isinstance(event, Notice) and "created again" in event.text for event in world.seen)


def test_a_topic_with_another_id_is_noticed_although_it_was_away_in_between() -> None:
    world = known()
    again(world, 10.0, MetadataResponseTopic(name="t", error_code=3))
    again(world, 20.0, described("t", (1, 2), generation=1))
    assert any(isinstance(event, Notice) and "created again" in event.text for event in world.seen)


def test_topics_that_lost_their_leader_keep_their_partitions() -> None:
    world = known()
    again(world, 10.0, MetadataResponseTopic(name="t", error_code=5))
    assert len(world.background.metadata.cluster.describe().topics["t"].partitions) == 2


def test_every_answer_is_a_new_version_even_if_it_says_nothing_new() -> None:
    """Whoever waits for a leader waits for the next version, and asks again if the answer was about something else."""
    world = known()
    metadata = world.background.metadata
    versions = [metadata.cluster.version]
    for now in (10.0, 20.0, 30.0):
        again(world, now, described("t", (1, 2)))
        versions.append(metadata.cluster.version)
    assert versions == sorted(set(versions))


# Hints (KIP-951).


def test_a_hint_needs_a_newer_epoch_and_an_address() -> None:
    world = known(epoch=3)
    metadata = world.background.metadata
    assert not metadata.update_leader(A, Leader(2, 3), {}, 1.0)
    assert not metadata.update_leader(A, Leader(2, None), {}, 1.0)
    assert not metadata.update_leader(A, Leader(9, 4), {}, 1.0)
    assert not metadata.update_leader(TopicPartition("nobody", 0), Leader(2, 4), {}, 1.0)
    assert metadata.cluster.leader(A) == Leader(1, 3)
    assert metadata.update_leader(A, Leader(2, 4), {}, 1.0)
    assert metadata.update_leader(A, Leader(9, 5), {9: Node(9, "b9", 9092), 8: Node(8, "b8", 9092)}, 1.0)
    assert (metadata.cluster.leader(A), set(metadata.cluster.nodes)) == (Leader(9, 5), {1, 2, 3, 9})
