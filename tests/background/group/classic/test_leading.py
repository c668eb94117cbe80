"""How new the metadata have to be with which the leader of a classic group divides the partitions."""

import pytest

from kafka_async.background.group.classic.leader import read_assignment
from kafka_async.background.positions.subscription import Subscription
from kafka_async.errors import KafkaConnectionError, KafkaError
from kafka_async.model import TopicPartition
from kafka_async.wire import ConsumerProtocolAssignment, encode_assignment
from kafka_async.wire.messages import ConsumerProtocolTopicPartition
from kafka_async.wire.messages.admin import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tests.background.group.classic.world import A0, ME, TWO, A, World, joined, said, synced, topic, world


def leader_with_metadata_of(answered_at: float) -> World:
    """Return a member that leads from 10.0 on."""
    w = world()
    w.metadata.answered_at = answered_at
    w.member.subscribe(A, 9.0)
    w.turn(9.0)
    w.reply(joined(leader=ME, members={ME: said("a")}), 10.0)
    return w


def test_the_leader_divides_what_there_is_now_and_not_what_there_was() -> None:
    """The topic had grown since the last metadata: the group rebalanced twice, and read nothing in between."""
    w = leader_with_metadata_of(8.0)
    assert w.sent(10.0) == []
    assert w.metadata.updates == 2, "one for the subscription, one to lead"
    w.metadata.update(topic("a", 5))
    w.metadata.answered_at = 10.1
    assert w.sent(10.1) == ["SyncGroup"]
    (given,) = w.message("SyncGroup").assignments
    assert len(read_assignment(given.assignment)) == 5


def test_the_leader_waits_for_no_newer_metadata_than_of_the_last_second_and_no_longer_than_one() -> None:
    assert leader_with_metadata_of(9.1).sent(10.0) == ["SyncGroup"]
    w = leader_with_metadata_of(8.0)
    assert w.turn(10.0).wake_at == 11.0
    assert w.sent(11.0) == ["SyncGroup"]


def test_a_leader_that_knows_all_topics_waits_for_none_that_is_missing_but_for_newer_metadata() -> None:
    """A leader with a pattern has no topic asked for by its name, so it is told of none that it is missing."""
    w = world()
    w.metadata.covers_all, w.metadata.answered_at = True, 8.0
    w.member.subscribe(Subscription(matches=lambda name: name == "a"), 9.0)
    w.metadata.version += 1
    w.turn(9.0)
    w.reply(joined(leader=ME, members={ME: said("a"), "other": said("az")}), 10.0)
    assert [w.sent(now) for now in (10.0, 11.5)] == [[], []], "z may be new"
    w.metadata.answered_at = 11.6
    assert w.sent(11.6) == ["SyncGroup"]


def returned_leader() -> World:
    """Return a static leader that came back into its group (KIP-814), with A0, and has asked what the others have."""
    w = world(group_instance_id="i")
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(leader=ME, members={ME: said("a"), "other": said("a")}, skip_assignment=True), 0.1)
    w.turn(0.1)
    w.reply(synced(A0), 0.2)
    assert w.sent(0.2) == ["DescribeGroups"]
    w.take_over(0.3)
    return w


def described(*given: TopicPartition, state: str = "Stable", error_code: int = 0) -> DescribeGroupsResponse:
    mine, others = ({"a": (0,)}, {tp.topic: tuple(each.partition for each in given) for tp in given})
    members = tuple(
        DescribedGroupMember(
            member_id=name,
            member_assignment=encode_assignment(
                ConsumerProtocolAssignment(
                    assigned_partitions=tuple(ConsumerProtocolTopicPartition(topic=t, partitions=n) for t, n in had.items())
                )
            ),
        )
        for name, had in ((ME, mine), ("other", others))
    )
    return DescribeGroupsResponse(groups=(DescribedGroup(group_id="g", group_state=state, error_code=error_code, members=members),))


def test_a_leader_that_came_back_finds_that_the_topic_grew_meanwhile() -> None:
    """The broker leaves each member what it had (KIP-814), so nobody read the new partition until the next rebalance."""
    w = returned_leader()
    w.reply(described(TopicPartition("a", 1)), 0.4)
    w.turn(0.4)
    assert w.moves()[-1] == "REVOKING"


@pytest.mark.parametrize(
    "answer",
    [
        described(TopicPartition("a", 1), TopicPartition("a", 2)),
        described(state="PreparingRebalance"),
        described(error_code=30),
        KafkaConnectionError("gone"),
    ],
)
def test_a_leader_that_came_back_leaves_the_group_alone_unless_something_is_nobodys(
    answer: DescribeGroupsResponse | KafkaError,
) -> None:
    w = returned_leader()
    w.reply(answer, 0.4)
    w.turn(0.4)
    assert w.moves()[-1] == "STABLE"
    w.metadata.update(topic("a", 4))
    w.turn(0.5)
    assert w.moves()[-1] == "REVOKING"


@pytest.mark.parametrize(
    "answer",
    [
        described(state="CompletingRebalance"),
        described(error_code=14),
        DescribeGroupsResponse(groups=()),
        KafkaConnectionError("gone"),
    ],
)
def test_a_leader_that_came_back_asks_until_it_knows_what_the_others_have(answer: DescribeGroupsResponse | KafkaError) -> None:
    w = returned_leader()
    now = 0.4
    for wait in (0.1, 0.2, 0.4):
        w.reply(answer, now)
        poll = w.turn(now)
        assert not poll.requests
        assert poll.wake_at == pytest.approx(now + wait)
        now = poll.wake_at
        assert w.sent(now) == ["DescribeGroups"]
    w.reply(described(TopicPartition("a", 1)), now)
    w.turn(now)
    assert w.moves()[-1] == "REVOKING"


@pytest.mark.parametrize("answer", [described(error_code=30), described(TopicPartition("a", 1), TopicPartition("a", 2))])
def test_a_leader_that_came_back_asks_no_more_once_it_knows_or_is_not_to(answer: DescribeGroupsResponse) -> None:
    w = returned_leader()
    w.reply(answer, 0.4)
    assert [name for now in (0.4, 1.0, 2.9) for name in w.sent(now)] == []


def test_a_leader_that_came_back_while_the_coordinator_was_lost_asks_the_next_one() -> None:
    w = returned_leader()
    w.reply(KafkaConnectionError("gone"), 0.4)
    w.coordinator.coordinator = None
    assert w.sent(0.6) == []
    w.coordinator.found(TWO)
    assert [request.node_id for request in w.turn(0.7).requests] == [TWO.id]
    w.reply(described(TopicPartition("a", 1)), 0.8)
    w.turn(0.8)
    assert w.moves()[-1] == "REVOKING"
