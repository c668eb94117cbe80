"""Topics without a group: the assignment that follows from the metadata."""

import re

import pytest

from kafka_async import TopicPartition
from kafka_async.background.positions.topic_follower import TopicFollower
from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.events import AssignPartitions, SubscribePattern, SubscribeTopics, Unsubscribe
from kafka_async.wire.messages import MetadataRequest, MetadataResponseTopic

from ..support import A, B, C, World, cluster, described


def proposals(world: World, now: float) -> list[set[TopicPartition]]:
    world.poll(now)
    return [set(event.partitions) for event in world.events() if isinstance(event, AssignPartitions)]


def answered(world: World, now: float, *topics: MetadataResponseTopic) -> list[set[TopicPartition]]:
    """Have metadata asked and answered; return what is proposed then."""
    world.background.metadata.request_update(now)
    world.poll(now)
    world.answer(MetadataRequest, cluster(*topics), now)
    return proposals(world, now)


def test_every_partition_of_the_topics_is_proposed_once() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset(("t", "u"))))
    (request,) = world.poll(0.0)
    assert isinstance(request, MetadataRequest)
    assert [topic.name for topic in request.topics or ()] == ["t", "u"]
    world.answer(MetadataRequest, cluster(described("t", (1, 2)), described("u", (1,))), 0.1)
    assert proposals(world, 0.2) == [{A, B, TopicPartition("u", 0)}]
    assert answered(world, 10.0, described("t", (2, 1)), described("u", (1,))) == []


def test_new_partitions_are_proposed_with_the_old_ones() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, described("t", (1, 1, 1))) == [{A, B, C}]


def test_nothing_is_proposed_while_the_topic_does_not_exist() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 0.0, MetadataResponseTopic(name="t", error_code=3)) == []
    assert answered(world, 10.0, described("t", (1,))) == [{A}]


@pytest.mark.parametrize("code", [3, 5])
def test_a_topic_that_is_away_keeps_its_partitions(code: int) -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, MetadataResponseTopic(name="t", error_code=code)) == []


def test_a_topic_that_stays_away_is_reported_once_in_a_request_timeout() -> None:
    world = World(request_timeout_ms=3000)
    world.send(SubscribeTopics(topics=frozenset("t")))
    reported = 0
    for second in range(10):
        world.poll(second)
        world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="t", error_code=3)), second)
        reported += sum(isinstance(error, UnknownTopicOrPartitionError) for error in world.errors())
    assert reported == 3


def test_a_pattern_asks_for_all_topics_and_leaves_internal_ones_out() -> None:
    world = World()
    matches = re.compile("t|_").match
    world.send(SubscribePattern(matches=lambda topic: matches(topic) is not None, exclude_internal=True))
    (request,) = world.poll(0.0)
    assert isinstance(request, MetadataRequest)
    assert request.topics is None
    internal = MetadataResponseTopic(name="_x", is_internal=True, partitions=described("t", (1,)).partitions)
    world.answer(MetadataRequest, cluster(described("t", (1,)), described("u", (1,)), internal), 0.1)
    assert proposals(world, 0.2) == [{A}]


def test_a_new_subscription_replaces_the_old_one() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    world.send(SubscribeTopics(topics=frozenset("u")))
    world.poll(5.0)
    assert answered(world, 10.0, described("u", (1,)))[-1:] == [{TopicPartition("u", 0)}]


def follow_pattern(world: World, pattern: str) -> None:
    matches = re.compile(pattern).match
    world.send(SubscribePattern(matches=lambda topic: matches(topic) is not None, exclude_internal=True))


def test_under_a_pattern_a_topic_that_one_answer_lacks_keeps_its_partitions() -> None:
    world = World()
    follow_pattern(world, "t")
    assert answered(world, 0.0, described("t", (1,)), described("u", (1,))) == [{A}]
    assert answered(world, 10.0, described("u", (1,))) == []
    assert answered(world, 20.0, described("t", (1,)), described("u", (1,))) == []


def test_under_a_pattern_a_topic_that_stays_away_is_given_up_after_a_request_timeout() -> None:
    world = World(request_timeout_ms=30_000)
    follow_pattern(world, "t")
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, described("u", (1,))) == []
    assert answered(world, 39.0, described("u", (1,))) == []
    assert proposals(world, 40.0) == [set()]


def test_under_a_pattern_no_topic_is_given_up_for_a_single_answer_however_old_that_is() -> None:
    world = World(request_timeout_ms=30_000)
    follow_pattern(world, "t")
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, described("u", (1,))) == []
    assert proposals(world, 41.0) == []
    assert answered(world, 42.0, described("u", (1,))) == [set()]


def test_what_is_due_while_no_broker_is_known_waits_for_one() -> None:
    """The background looked again at once, and again."""
    world = World(request_timeout_ms=30_000)
    follow_pattern(world, "t")
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, described("u", (1,))) == []
    follower = world.background.subscriber
    assert isinstance(follower, TopicFollower)
    assert follower.poll(20.0).wake_at == 40.0
    world.background.metadata.cluster.forget_brokers(misled=False)
    assert follower.poll(41.0).wake_at > 1000.0
    assert answered(world, 50.0, described("u", (1,))) == [set()]


def test_a_topic_that_is_away_keeps_its_partitions_over_a_change_of_the_subscription() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, MetadataResponseTopic(name="t", error_code=3)) == []
    world.send(SubscribeTopics(topics=frozenset(("t", "u"))))
    away, there = MetadataResponseTopic(name="t", error_code=3), described("u", (1,))
    assert answered(world, 20.0, away, there)[-1] == {A, TopicPartition("u", 0)}


def test_a_topic_that_is_away_is_not_followed_any_more_after_unsubscribe() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 0.0, described("t", (1,))) == [{A}]
    assert answered(world, 10.0, MetadataResponseTopic(name="t", error_code=3)) == []
    world.send(Unsubscribe())
    world.send(SubscribeTopics(topics=frozenset("t")))
    assert answered(world, 20.0, MetadataResponseTopic(name="t", error_code=3)) == []


def test_nothing_is_followed_after_unsubscribe() -> None:
    world = World()
    world.send(SubscribeTopics(topics=frozenset("t")))
    answered(world, 0.0, described("t", (1,)))
    world.send(Unsubscribe())
    assert answered(world, 10.0, described("t", (1, 1))) == []
