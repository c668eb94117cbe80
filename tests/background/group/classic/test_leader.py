"""``kafka_async.background.group.classic.leader``: what members say, what the leader makes of it."""

import pytest

from kafka_async.background.group.classic.assignment import GroupMember, RebalanceProtocol
from kafka_async.background.group.classic.assignors import RangeAssignor
from kafka_async.background.group.classic.leader import Leadership, read_assignment, write_subscription
from kafka_async.errors import KafkaConnectionError, MalformedResponseError, UnknownTopicOrPartitionError
from kafka_async.model import TopicPartition
from kafka_async.wire import decode_assignment, decode_subscription
from tests.background.group.classic.world import A0, A1, A2, B0, ME, Metadata, joined, said, synced, topic


def test_a_subscription_says_what_is_owned_since_when_and_where() -> None:
    data = decode_subscription(write_subscription(frozenset("ba"), b"x", frozenset({A1, B0, A0}), 7, "r1"))
    assert (data.topics, data.user_data, data.generation_id, data.rack_id) == (("a", "b"), b"x", 7, "r1")
    assert [(t.topic, t.partitions) for t in data.owned_partitions] == [("a", (0, 1)), ("b", (0,))]


def test_no_rack_is_said_as_none() -> None:
    assert decode_subscription(write_subscription(frozenset("a"), None, frozenset(), -1, "")).rack_id is None


def test_an_assignment_is_read_and_no_bytes_are_no_partitions() -> None:
    assert read_assignment(synced(A0, B0).assignment) == {A0, B0}
    assert read_assignment(b"") == frozenset()
    with pytest.raises(MalformedResponseError):
        read_assignment(b"\0\1\0\0\0\7")


def test_the_leader_reads_what_every_member_sent() -> None:
    leadership = Leadership.of(joined(members={ME: said("ab", A0, generation=3, user_data=b"u", rack="r1"), "x": said("c")}), 0.0)
    assert leadership.members[0] == GroupMember(
        member_id=ME, topics=frozenset("ab"), owned=(A0,), generation=3, rack="r1", user_data=b"u"
    )
    assert leadership.topics == frozenset("abc")


def test_it_is_informed_when_every_topic_is_described_or_refused() -> None:
    metadata = Metadata()
    leadership = Leadership.of(joined(members={ME: said("az")}), 0.0)
    assert not leadership.is_informed(metadata)
    metadata.problems["z"] = KafkaConnectionError("says nothing about the topic")
    assert not leadership.is_informed(metadata)
    metadata.problems["z"] = UnknownTopicOrPartitionError()
    assert leadership.is_informed(metadata)


def test_a_plan_covers_every_member_even_without_partitions() -> None:
    leadership = Leadership.of(joined(members={ME: said("a"), "x": said("nothing")}), 0.0)
    plan = {
        a.member_id: decode_assignment(a.assignment) for a in leadership.plan(RangeAssignor(), RebalanceProtocol.EAGER, Metadata())
    }
    assert [(t.topic, t.partitions) for t in plan[ME].assigned_partitions] == [("a", (0, 1, 2))]
    assert plan["x"].assigned_partitions == ()


def test_racks_of_replicas_reach_the_assignor() -> None:
    leadership = Leadership.of(joined(members={"m1": said("a", rack="r2"), "m2": said("a", rack="r1")}), 0.0)
    plan = leadership.plan(RangeAssignor(), RebalanceProtocol.EAGER, Metadata(topics={"a": topic("a", 2)}))
    mine = {assignment.member_id: read_assignment(assignment.assignment) for assignment in plan}
    assert mine == {"m1": {A1}, "m2": {A0}}


def test_only_topics_and_counts_are_changes() -> None:
    metadata = Metadata()
    leadership = Leadership.of(joined(members={ME: said("abz")}), 0.0)
    leadership.plan(RangeAssignor(), RebalanceProtocol.EAGER, metadata)
    metadata.nodes = {}
    metadata.update(topic("other", 3))
    assert leadership.changes(metadata) == ()
    metadata.update(topic("a", 4), topic("z", 1), gone=("b",))
    assert leadership.changes(metadata) == ("a", "b", "z")


def test_skipping_the_assignment_still_watches_the_topics() -> None:
    metadata = Metadata()
    leadership = Leadership.of(joined(members={ME: said("a")}, skip_assignment=True), 0.0)
    assert leadership.plan(RangeAssignor(), RebalanceProtocol.EAGER, metadata) == ()
    metadata.update(topic("a", 4))
    assert leadership.changes(metadata) == ("a",)


def test_partitions_are_those_of_the_metadata() -> None:
    leadership = Leadership.of(joined(members={ME: said("a")}), 0.0)
    (assignment,) = leadership.plan(RangeAssignor(), RebalanceProtocol.EAGER, Metadata())
    assert read_assignment(assignment.assignment) == {A0, A1, A2} == {TopicPartition("a", n) for n in range(3)}
