"""``kafka_async.background.group.consumer.heartbeat``: what is said, what errors mean, the application's silence."""

import pytest
from attrs import evolve

from kafka_async.background.group.consumer.heartbeat import (
    HeartbeatFields,
    SubscribedTopics,
    assigned_partitions,
    error_of,
    heartbeat,
    leave_heartbeat,
)
from kafka_async.background.group.membership import Identity
from kafka_async.background.positions.subscription import Subscription
from kafka_async.errors import (
    BrokerResponseError,
    MalformedResponseError,
    StaleMemberEpochError,
)
from kafka_async.wire.messages import HeartbeatResponse, TopicPartitions
from tests.background.group.consumer.world import A, B, answer, refusal, topic

FIELDS = HeartbeatFields(
    rack_id="r",
    rebalance_timeout_ms=300_000,
    assignor="uniform",
    topics=("a", "b"),
    regex="",
    owned=frozenset({(B, 1), (A, 2), (A, 0)}),
)
MEMBER = Identity(member_id="m", generation=3, consumer_protocol=True)


# --- what is said -----------------------------------------------------------------------------------------------------------------


def test_the_first_heartbeat_says_everything() -> None:
    request = heartbeat("g", MEMBER, FIELDS, None)
    assert (request.group_id, request.member_id, request.member_epoch, request.instance_id) == ("g", "m", 3, None)
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == ("r", 300_000, "uniform")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (("a", "b"), "")
    assert request.topic_partitions == (
        TopicPartitions(topic_id=A, partitions=(0, 2)),
        TopicPartitions(topic_id=B, partitions=(1,)),
    )


def test_a_heartbeat_without_news_says_only_who_speaks() -> None:
    request = heartbeat("g", evolve(MEMBER, instance_id="i"), FIELDS, FIELDS)
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m", 3, "i")
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == (None, -1, None)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions) == (None, None, None)


def test_a_heartbeat_says_what_changed() -> None:
    request = heartbeat("g", MEMBER, evolve(FIELDS, topics=(), regex="x.*"), FIELDS)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions) == ((), "x.*", None)
    request = heartbeat("g", MEMBER, evolve(FIELDS, owned=frozenset()), FIELDS)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions) == (None, None, ())


def test_a_static_member_leaves_to_come_back() -> None:
    assert leave_heartbeat("g", "m", None).member_epoch == -1
    assert (leave_heartbeat("g", "m", "i").member_epoch, leave_heartbeat("g", "m", "i").instance_id) == (-2, "i")


def test_a_pattern_is_evaluated_when_the_picture_changes_and_leaves_internal_topics_out() -> None:
    asked: list[str] = []

    def matches(name: str) -> bool:
        asked.append(name)
        return name != "b"

    interest = SubscribedTopics(exclude_internal=True)
    interest.subscribe(Subscription(matches=matches))
    topics = {"a": topic("a"), "b": topic("b"), "__c": topic("__c", internal=True)}
    interest.follow(0, {})
    assert (interest.known, interest.wanted_topics) == (False, None)
    interest.follow(1, topics)
    interest.follow(1, topics)
    assert (interest.known, interest.topics, asked) == (True, ("a",), ["a", "b"])
    interest.follow(2, {**topics, "d": topic("d")})
    assert interest.topics == ("a", "d")


def test_internal_topics_can_be_let_in() -> None:
    interest = SubscribedTopics(exclude_internal=False)
    interest.subscribe(Subscription(matches=lambda name: True))
    interest.follow(1, {"__c": topic("__c", internal=True)})
    assert interest.topics == ("__c",)


def test_an_expression_of_the_coordinators_needs_the_names_of_all_topics() -> None:
    interest = SubscribedTopics(exclude_internal=True)
    interest.subscribe(Subscription(regex="x.*"))
    assert (interest.topics, interest.regex, interest.wanted_topics, interest.known) == ((), "x.*", None, True)
    interest.subscribe(None)
    assert (interest.topics, interest.regex, interest.wanted_topics) == ((), "", frozenset())


# --- what is answered ------------------------------------------------------------------------------------------------------------


def test_a_denied_group_is_named() -> None:
    assert "group 'billing'" in str(error_of(refusal(30, None), "billing"))


def test_the_error_of_an_outcome_carries_the_brokers_words() -> None:
    error = error_of(refusal(113, "epoch 3 is not 4"))
    assert isinstance(error, StaleMemberEpochError)
    assert "epoch 3 is not 4" in str(error)
    assert error_of(answer()) is None
    assert error_of(error) is error
    assert isinstance(error_of(HeartbeatResponse()), MalformedResponseError)
    assert isinstance(error_of(refusal(113)), BrokerResponseError)


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_an_epoch_that_no_member_has_is_malformed(epoch: int) -> None:
    with pytest.raises(MalformedResponseError, match=f"epoch {epoch}"):
        assigned_partitions(answer(epoch=epoch))


def test_partitions_that_cannot_be_are_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="-1"):
        assigned_partitions(answer({A: (0, -1)}))


def test_an_assignment_may_name_a_partition_twice() -> None:
    assert assigned_partitions(answer({A: (0, 0)})) == frozenset({(A, 0)})
    assert assigned_partitions(answer()) is None
    assert assigned_partitions(answer({})) == frozenset()
