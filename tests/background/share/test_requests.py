"""What each broker is sent, and in which session."""

import pytest

from kafka_async.background.share.acknowledgements import LINGER
from kafka_async.background.share.orders import (
    Acknowledge,
    AcknowledgeType,
    Delivery,
    Hold,
    Lost,
    Settled,
)
from kafka_async.background.share.read_ahead import SHORT_POLL
from kafka_async.errors import (
    CoordinatorNotAvailableError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
)
from kafka_async.model import TopicPartition
from kafka_async.trace import Fault, Unassigned
from kafka_async.wire.messages import (
    MetadataRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareLeader,
    ShareNodeEndpoint,
    SharePartitionData,
)
from tests.background.support import cluster, described, topic_id

from .world import ID, TP, World, accept, acknowledged, acknowledgement, acquired, fetch, fetched, flush


def led_by_two(world: World, now: float) -> None:
    """Have the metadata name broker 2 as the leader of the partitions."""
    world.background.metadata.request_update(now)
    world.poll(now)
    world.answer(MetadataRequest, cluster(described("t", (2, 2), epoch=1)), now)
    world.poll(now)


def test_a_session_is_opened_for_the_assigned_partitions() -> None:
    world = World()
    world.joined(0, 1)
    request = fetch(world)
    assert (request.share_session_epoch, request.group_id, request.member_id) == (0, "g", "me")
    assert [(topic.topic_id, [part.partition_index for part in topic.partitions]) for topic in request.topics] == [(ID, [0, 1])]
    assert (request.max_records, request.max_wait_ms) == (10, 500)


def test_a_broker_holds_no_fetch_back_while_there_is_something_to_read_and_has_a_pause_if_there_was_nothing_more() -> None:
    world = World()
    delivery = world.delivered(3)
    world.poll(0.1)
    assert fetch(world).max_wait_ms == 0
    world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(0.11)
    assert world.waiting(ShareFetchRequest) == []  # it may have locked as many records as it may
    assert world.wake_at <= 0.1 + SHORT_POLL
    world.poll(0.1 + SHORT_POLL)
    assert fetch(world).max_wait_ms == 0
    world.answer(ShareFetchRequest, fetched(), 0.3)
    accept(world, delivery)
    world.poll(0.31)  # nothing is left to read
    assert fetch(world).max_wait_ms == SHORT_POLL * 1000


def test_a_broker_has_one_request_at_a_time() -> None:
    world = World()
    delivery = world.delivered(3)
    world.poll(0.1)
    accept(world, delivery, 0, 1, 2)
    world.poll(0.2)
    assert len(world.unsent) == 1


def test_acknowledgements_ride_on_the_next_fetch() -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery, 0, 1)
    world.poll(0.1)
    ((topic,),) = (fetch(world).topics,)
    (batch,) = topic.partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 1, (1,))
    world.answer(ShareFetchRequest, fetched(SharePartitionData(partition_index=0)), 0.2)
    (settled,) = world.reports()
    assert isinstance(settled, Settled)
    assert (settled.error, settled.offsets) == (None, (0, 1))


def test_acknowledgements_go_by_themselves_if_nothing_is_to_be_fetched() -> None:
    world = World()
    delivery = world.delivered(4)
    world.handler.reading = 0
    accept(world, delivery, 0)
    world.poll(11.0)
    assert world.wake_at == pytest.approx(11.0 + LINGER)
    world.poll(11.1)
    assert acknowledgement(world).share_session_epoch == 1


def test_acknowledgements_have_their_turn_however_often_locks_are_renewed() -> None:
    world = World()
    delivery = world.delivered(4)
    world.handler.reading = 0
    accept(world, delivery, 0)
    renewals = []
    for turn in range(4):
        world.exchange.order(Acknowledge(TP, 1, delivery.number, AcknowledgeType.RENEW))
        world.poll(11.1 + turn)
        renewals.append(acknowledgement(world).is_renew_ack)
        world.answer(ShareAcknowledgeRequest, acknowledged(), 11.2 + turn)
    assert renewals == [True, False, True, True]
    assert [report.offsets for report in world.reports() if isinstance(report, Settled)] == [(0,)]


def test_fetches_have_their_turn_however_often_locks_are_renewed() -> None:
    world = World()
    delivery = world.delivered(4)
    accept(world, delivery)
    world.exchange.demand.wanted = 1
    fetches = 0
    for turn in range(4):
        world.exchange.order(Acknowledge(TP, 1, delivery.number, AcknowledgeType.RENEW))
        world.poll(1.1 + turn)
        fetches += len(world.waiting(ShareFetchRequest))
        kind, answer = (
            (ShareFetchRequest, fetched()) if world.waiting(ShareFetchRequest) else (ShareAcknowledgeRequest, acknowledged())
        )
        world.answer(kind, answer, 1.2 + turn)
    assert fetches == 2


def test_a_partition_of_a_topic_that_was_made_anew_is_another_one() -> None:
    world = World()
    world.joined(0)
    world.background.fetch.assign({TP: topic_id("another")}, 1.0)
    assert world.seen[-1] == Unassigned(now=1.0, partitions=frozenset((TP,)))
    world.background.fetch.assign({TP: topic_id("another")}, 2.0)
    assert world.seen[-1] == Unassigned(now=1.0, partitions=frozenset((TP,)))


def test_a_topic_that_was_made_anew_takes_the_locks_of_the_former_one_with_it() -> None:
    world = World()
    accept(world, world.delivered(2), 0)
    world.background.fetch.assign({TP: topic_id("another")}, 1.0)
    world.poll(1.0)
    lost, settled = world.reports()
    assert isinstance(lost, Lost)
    assert isinstance(settled, Settled)
    assert [(offset, type(lost.error)) for _, offset in lost.locks] == [(1, UnknownTopicIdError)]
    assert (settled.offsets, type(settled.error)) == ((0,), UnknownTopicIdError)
    assert [event.error for event in world.seen if isinstance(event, Fault)] == [lost.error]
    world.exchange.demand.wanted = 1
    world.poll(1.1)
    (topic,) = fetch(world).topics
    assert (topic.topic_id, topic.partitions[0].acknowledgement_batches) == (topic_id("another"), ())


def test_acknowledgements_on_their_way_as_the_topic_is_made_anew_are_repeated_for_the_former_one() -> None:
    world = World()
    accept(world, world.delivered(2), 0)
    world.poll(0.1)
    assert fetch(world).topics[0].topic_id == ID
    world.background.fetch.assign({TP: topic_id("another")}, 0.1)
    world.poll(0.1)
    not_now = SharePartitionData(partition_index=0, acknowledge_error_code=CoordinatorNotAvailableError.errno)
    world.answer(ShareFetchRequest, fetched(not_now), 0.2)
    world.poll(1.0)
    (topic,) = acknowledgement(world).topics
    assert topic.topic_id == ID


@pytest.mark.parametrize("change", ["topic", "leader"])
def test_a_late_answer_about_what_a_partition_was_before_is_given_back(change: str) -> None:
    world = World()
    world.joined(0)
    if change == "topic":
        world.background.fetch.assign({TP: topic_id("another")}, 0.1)
    else:
        led_by_two(world, 0.1)
    world.poll(0.1)
    world.answer(ShareFetchRequest, fetched(acquired(5, 2)), 0.2)
    world.poll(0.3)
    assert world.reports() == []
    ((topic,),) = (request.topics for request in world.waiting(ShareAcknowledgeRequest))
    (batch,) = topic.partitions[0].acknowledgement_batches
    assert (topic.topic_id, batch.first_offset, batch.last_offset, batch.acknowledge_types) == (ID, 5, 6, (2,))


def test_a_partition_that_left_and_comes_back_at_another_broker_has_lost_its_locks() -> None:
    world = World()
    world.delivered(2)
    world.background.fetch.assign({}, 0.1)
    led_by_two(world, 0.1)  # new metadata, with which the assignment comes back
    world.poll(0.1)
    (lost,) = world.reports()
    assert isinstance(lost, Lost)
    assert isinstance(lost.error, NotLeaderOrFollowerError)
    assert [offset for _, offset in lost.locks] == [0, 1]


def test_acknowledgements_of_a_partition_that_left_do_not_wait_for_a_pause_between_fetches() -> None:
    world = World()
    delivery = world.delivered(2)
    world.handler.subscription = 1
    world.background.fetch.assign({TopicPartition("t", 1): ID}, 0.0)
    assert world.seen[-1] == Unassigned(now=0.0, partitions=frozenset((TopicPartition("t", 0),)))
    accept(world, delivery, 0, 1)
    world.poll(0.0)
    world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(0.1)
    assert world.waiting(ShareFetchRequest) == []
    (topic,) = acknowledgement(world).topics
    assert [part.partition_index for part in topic.partitions] == [0]
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2)
    world.poll(0.2)
    assert [part.partition_index for topic in fetch(world).topics for part in topic.partitions] == []


def test_a_leader_that_moved_is_followed_by_the_hint_and_the_locks_are_lost() -> None:
    world = World()
    delivery = world.delivered(2)
    accept(world, delivery, 0)
    world.poll(0.1)
    hint = SharePartitionData(
        partition_index=0,
        error_code=NotLeaderOrFollowerError.errno,
        acknowledge_error_code=NotLeaderOrFollowerError.errno,
        current_leader=ShareLeader(leader_id=2, leader_epoch=5),
    )
    endpoint = ShareNodeEndpoint(node_id=2, host="b2", port=9092)
    world.answer(ShareFetchRequest, fetched(hint, node_endpoints=(endpoint,)), 0.2)
    world.poll(0.2)
    settled, lost = world.reports()
    assert isinstance(settled, Settled)
    assert isinstance(settled.error, NotLeaderOrFollowerError)
    assert isinstance(lost, Lost)
    assert [offset for _, offset in lost.locks] == [1]
    world.exchange.demand.wanted = 1
    world.poll(0.3)
    assert [request.node_id for request in world.unsent if isinstance(request.message, ShareFetchRequest)] == [2]


def test_a_lock_that_was_renewed_too_late_is_not_released_at_another_broker() -> None:
    """It has no such lock, and refuses all the acknowledgements of a partition if one lock has ended."""
    world = World()
    delivery = world.delivered(1)
    accept(world, delivery)  # it is read
    world.exchange.order(Hold(TP, delivery.number, 0))
    world.poll(0.0)
    world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(15.0)
    assert acknowledgement(world).is_renew_ack
    world.exchange.demand.wanted = 1
    led_by_two(world, 16.0)
    world.answer(ShareFetchRequest, fetched(acquired(5, 1)), 19.0)
    lost, second = world.reports()
    assert isinstance(lost, Lost)
    assert isinstance(second, Delivery)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 31.0)
    accept(world, second, 5)
    flush(world)
    world.poll(31.0)
    (batch,) = acknowledgement(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (5, 5, (1,))


def test_a_broker_that_does_not_answer_is_suspected_of_leading_no_more() -> None:
    world = World()
    world.joined(0)
    assert world.wake_at == pytest.approx(1.5), "nothing else wakes us earlier"
    world.poll(world.wake_at)
    assert world.waiting(MetadataRequest)


def test_a_broker_that_throttles_us_is_not_suspected_while_the_next_fetch_waits_for_that() -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(throttle_time_ms=5000), 1.0)
    world.exchange.demand.wanted = 1
    world.poll(1.0)
    assert world.waiting(ShareFetchRequest)
    world.poll(6.4)
    assert not world.waiting(MetadataRequest)
    world.poll(7.5)
    assert world.waiting(MetadataRequest)
