"""What brokers are asked for, and what each answer means for records, locks and acknowledgements."""

from typing import Any

import pytest

from kafka_async.background.share.acknowledgements import LINGER
from kafka_async.background.share.fetch import SHORT_POLL, ClosingState
from kafka_async.background.share.orders import (
    Acknowledge,
    AcknowledgeType,
    Close,
    Delivery,
    Flush,
    Hold,
    Lost,
    RecordsDropped,
    RecordsHandedOut,
    Renewed,
    Settled,
)
from kafka_async.errors import (
    GroupAuthorizationFailedError,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    KafkaConnectionError,
    KafkaError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka_async.events import Call
from kafka_async.model import TopicPartition
from kafka_async.trace import Unassigned
from kafka_async.wire.messages import (
    MetadataRequest,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    ShareLeader,
    ShareNodeEndpoint,
    SharePartitionData,
)
from tests.background.support import topic_id

from .world import ID, LOCK, TP, World, acquired, fetched, taken_in

ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW


def acknowledged(code: int = 0, **fields: Any) -> ShareAcknowledgeResponse:
    part = ShareAcknowledgePartitionResponse(partition_index=0, error_code=code)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=int(LOCK * 1000),
        responses=(ShareAcknowledgeTopicResponse(topic_id=ID, partitions=(part,)),),
        **fields,
    )


def fetch(world: World) -> ShareFetchRequest:
    (found,) = world.waiting(ShareFetchRequest)
    return found


def acknowledgement(world: World) -> ShareAcknowledgeRequest:
    (found,) = world.waiting(ShareAcknowledgeRequest)
    return found


def accept(world: World, delivery: Delivery, *offsets: int, read: int | None = None) -> None:
    """Accept records; the application has read all there are, or ``read`` more."""
    world.exchange.taken = world.exchange.delivered if read is None else world.exchange.taken + read
    for offset in offsets:
        world.exchange.order(Acknowledge(delivery.partition, offset, delivery.number, ACCEPT))


def flush(world: World) -> Call[dict[TopicPartition, KafkaError | None]]:
    call: Call[dict[TopicPartition, KafkaError | None]] = Call(100.0)
    world.exchange.order(Flush(call=call))
    return call


# --- fetching -------------------------------------------------------------------------------------------------------------------


def test_a_session_is_opened_for_the_assigned_partitions() -> None:
    world = World()
    world.joined(0, 1)
    request = fetch(world)
    assert (request.share_session_epoch, request.group_id, request.member_id) == (0, "g", "me")
    assert [(topic.topic_id, [part.partition_index for part in topic.partitions]) for topic in request.topics] == [(ID, [0, 1])]
    assert (request.max_records, request.max_wait_ms) == (10, 500)


def test_a_fetch_asks_for_what_read_calls_want_and_ahead_of_them_for_what_the_application_gets_to() -> None:
    def asked(wanted: int, pace: float) -> list[int]:
        world = World()
        world.exchange.demand.wanted = wanted
        world.joined(0, pace=pace)
        return [request.max_records for request in world.waiting(ShareFetchRequest)]

    soon, unknown = LOCK / 3, 0.0
    assert [asked(wanted, unknown) for wanted in (0, 1, 40, 1_000)] == [[], [1], [40], [500]]
    assert [asked(0, pace) for pace in (soon / 10_000, soon / 50, soon / 3, soon, soon * 9)] == [[500], [50], [3], [1], []]
    assert asked(40, soon) == [40]


def test_a_slow_application_asks_one_broker_at_a_time_since_the_records_of_the_others_would_wait_behind_a_long_job() -> None:
    def asked(pace: float) -> list[int]:
        world = World()
        world.exchange.demand.wanted = 1
        world.joined(0, 1, pace=pace, leaders=(1, 2))
        return [request.max_wait_ms for request in world.waiting(ShareFetchRequest)]

    assert asked(LOCK / 10) == [500, 500]
    assert asked(LOCK / 2) == [250]


@pytest.mark.parametrize("why", ["nobody read them", "the connection broke"])
def test_after_unread_records_have_lost_their_locks_few_are_read_ahead_until_many_were_read(why: str) -> None:
    world = World(max_poll_interval_ms=10_000)
    world.delivered(5)
    demand, exchange, since = world.exchange.demand, world.exchange, 10.0
    demand.pace = LOCK / 30_000
    if why == "nobody read them":
        demand.read_at = 0.0
    else:
        exchange.taken = 4  # one of the five is unread
        world.poll(0.0)
        world.answer(ShareFetchRequest, KafkaConnectionError("cut"), 0.0)
    world.poll(since)
    assert [type(report) for report in world.reports()] == [Lost]
    exchange.taken = 5
    for turn in range(4):  # what is released is settled, in a new session if need be
        now = since + 0.2 * turn
        world.poll(now)
        for _ in world.waiting(ShareAcknowledgeRequest):
            world.answer(ShareAcknowledgeRequest, acknowledged(), now)
        for _ in world.waiting(ShareFetchRequest):
            world.answer(ShareFetchRequest, fetched(), now)

    def asked(read: int) -> list[int]:
        exchange.delivered = exchange.taken = 5 + read
        demand.read_at = world.handler.polled_at = since + 2
        world.poll(since + 2)
        found = [request.max_records for request in world.waiting(ShareFetchRequest)]
        for _ in found:
            world.answer(ShareFetchRequest, fetched(), since + 2)
        return found

    assert [asked(read) for read in (0, 9, 10, 200, 10_000)] == [[], [], [1], [20], [500]]


def test_a_slow_application_finds_as_many_records_as_it_asks_for_or_none() -> None:
    def asked(*, last: int, missed: int = 0, unread: int = 0) -> list[int]:
        world = World()
        demand = world.exchange.demand
        demand.asked, demand.missed, world.exchange.delivered = last, missed, unread
        world.joined(0, pace=LOCK)
        return [request.max_records for request in world.waiting(ShareFetchRequest)]

    assert asked(last=1) == []
    assert asked(last=40) == []
    assert asked(last=40, unread=10) == [30]
    assert asked(last=40, missed=40) == [40]
    assert asked(last=1_000, missed=1_000) == [500]


def test_nothing_is_fetched_for_an_application_that_does_not_read() -> None:
    world = World()
    world.coordinated()
    world.handler.polled_at = -100.0
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), 0.0)
    world.poll(0.1)
    assert world.waiting(ShareFetchRequest) == []


def test_records_are_delivered_with_when_their_locks_end() -> None:
    world = World()
    delivery = world.delivered(3)
    assert [record.offset for record in delivery.records] == [0, 1, 2]
    assert delivery.counts == [1, 1, 1]
    assert delivery.deadline == LOCK


def test_polls_are_short_while_records_are_out() -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery)  # the application has all of them
    world.poll(0.1)
    assert fetch(world).max_wait_ms == SHORT_POLL * 1000


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


def test_nothing_is_read_ahead_of_half_a_batch() -> None:
    world = World(max_poll_records=4)
    world.delivered(3)
    world.poll(0.1)
    assert world.waiting(ShareFetchRequest) == []
    world.exchange.taken += 2
    world.poll(0.2)
    assert fetch(world).max_records == 4


def test_a_broker_has_one_request_at_a_time() -> None:
    world = World()
    delivery = world.delivered(3)
    world.poll(0.1)
    accept(world, delivery, 0, 1, 2)
    world.poll(0.2)
    assert len(world.unsent) == 1


# --- acknowledging --------------------------------------------------------------------------------------------------------------


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


def test_a_partition_of_a_topic_that_was_made_anew_is_another_one() -> None:
    world = World()
    world.joined(0)
    world.background.fetch.assign({TP: topic_id("another")}, 1.0)
    assert world.seen[-1] == Unassigned(now=1.0, partitions=frozenset((TP,)))
    world.background.fetch.assign({TP: topic_id("another")}, 2.0)
    assert world.seen[-1] == Unassigned(now=1.0, partitions=frozenset((TP,)))


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


def test_a_flush_returns_the_result_of_each_partition() -> None:
    world = World()
    delivery = world.delivered(2)
    accept(world, delivery, 0)
    call = flush(world)
    world.poll(0.1)
    assert not call.done
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2)
    world.poll(0.2)
    assert call.result() == {TP: None}
    again = flush(world)
    world.poll(0.3)
    assert again.result() == {}


def test_a_partition_that_is_missing_in_the_answer_is_an_error() -> None:
    world = World()
    delivery = world.delivered(2)
    accept(world, delivery, 0)
    call = flush(world)
    world.poll(0.1)
    world.answer(ShareAcknowledgeRequest, ShareAcknowledgeResponse(), 0.2)
    world.poll(0.2)
    assert "did not answer" in str(call.result()[TP])


def test_what_is_said_of_a_lock_that_is_gone_does_not_count() -> None:
    world = World()
    world.delivered(2)
    world.exchange.order(Acknowledge(TP, 0, 999, ACCEPT))
    call = flush(world)
    world.poll(0.1)
    assert isinstance(call.result()[TP], InvalidRecordStateError)


def test_records_that_the_answer_lacks_are_given_back_without_the_application() -> None:
    world = World(max_poll_records=2)
    world.joined(0)
    part = acquired(0, 4)
    compacted = SharePartitionData(partition_index=0, records=part.records[:0], acquired_records=part.acquired_records)
    world.answer(ShareFetchRequest, fetched(compacted), 0.0)
    assert world.reports() == []  # bytes that were cut off: given back, not settled for good
    world.poll(0.1)
    (batch,) = fetch(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 3, (2,))


def test_what_the_application_drops_is_released() -> None:
    world = World(max_poll_records=4)
    delivery = world.delivered(4)
    world.exchange.order(RecordsDropped(TP, delivery.number, (0, 1, 2, 3)))
    world.poll(0.1)
    world.poll(0.31)
    (batch,) = acknowledgement(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 3, (2,))
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2)
    assert world.reports() == []


# --- renewing -------------------------------------------------------------------------------------------------------------------


def test_unread_records_and_those_that_are_worked_on_are_renewed_at_half_of_their_time() -> None:
    world = World(max_poll_records=2)
    delivery = world.delivered(4)
    world.exchange.order(RecordsHandedOut(TP, delivery.number, (0, 1)))
    world.exchange.order(Hold(TP, delivery.number, 0))
    world.poll(1.0)
    world.poll(15.0)
    request = acknowledgement(world)
    assert request.is_renew_ack
    batches = request.topics[0].partitions[0].acknowledgement_batches
    assert [(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches] == [(0, 0, (4,)), (2, 3, (4,))]
    world.answer(ShareAcknowledgeRequest, acknowledged(), 15.1)
    (renewed,) = world.reports()
    assert isinstance(renewed, Renewed)
    assert (renewed.deadline, len(renewed.locks)) == (45.0, 3)  # from when it was asked for


def test_locks_that_nobody_renews_are_reported_when_they_end() -> None:
    world = World(max_poll_records=2)
    delivery = world.delivered(1)
    world.exchange.order(RecordsHandedOut(TP, delivery.number, (0,)))
    world.poll(20.0)
    world.poll(LOCK)
    lost = [report for report in world.reports() if isinstance(report, Lost)]
    assert [report.locks for report in lost] == [((delivery.number, 0),)]


def test_brokers_that_cannot_renew_are_not_asked_to() -> None:
    world = World(max_poll_records=2)
    world.network.offered = None
    delivery = world.delivered(2)
    world.exchange.order(Acknowledge(TP, 0, delivery.number, RENEW))
    world.poll(15.0)
    assert world.waiting(ShareAcknowledgeRequest) == []


# --- what goes wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [KafkaConnectionError("cut"), fetched(error_code=ShareSessionNotFoundError.errno)])
def test_with_its_connection_a_session_loses_its_locks_and_old_acknowledgements_go_first(outcome: object) -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery, 0)
    world.poll(0.1)
    assert fetch(world).topics[0].partitions[0].acknowledgement_batches
    world.answer(ShareFetchRequest, outcome, 0.2)
    (lost,) = world.reports()
    assert isinstance(lost, Lost)
    assert [offset for _, offset in lost.locks] == [1, 2]
    world.poll(0.4)
    opening = fetch(world)
    assert (opening.share_session_epoch, opening.max_records, opening.max_bytes) == (0, 0, 0)
    assert not opening.topics[0].partitions[0].acknowledgement_batches
    world.answer(ShareFetchRequest, fetched(), 0.5)
    world.poll(0.5)
    world.poll(0.6)
    first = acknowledgement(world)
    batches = first.topics[0].partitions[0].acknowledgement_batches
    assert [(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches] == [(0, 0, (1,))]
    world.answer(ShareAcknowledgeRequest, acknowledged(InvalidRecordStateError.errno), 0.6)
    (settled,) = world.reports()
    assert isinstance(settled, Settled)
    assert isinstance(settled.error, InvalidRecordStateError)


@pytest.mark.parametrize("error", [InvalidShareSessionEpochError, ShareSessionLimitReachedError])
def test_another_session_does_not_cost_the_locks(error: type[InvalidShareSessionEpochError]) -> None:
    world = World()
    world.delivered(3)
    world.poll(0.1)
    world.answer(ShareFetchRequest, fetched(error_code=error.errno), 0.2)
    assert world.reports() == []
    world.poll(2.0)
    assert fetch(world).share_session_epoch == 0


def test_a_denied_group_is_reported_and_does_not_spin() -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(error_code=GroupAuthorizationFailedError.errno), 0.0)
    assert [type(error) for error in world.errors()] == [GroupAuthorizationFailedError]
    world.poll(0.5)
    assert world.waiting(ShareFetchRequest) == []
    world.poll(1.0)
    assert fetch(world).share_session_epoch == 0


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


@pytest.mark.parametrize(("error", "told"), [(UnknownTopicOrPartitionError, False), (TopicAuthorizationFailedError, True)])
def test_a_partition_that_fails_is_asked_for_again_after_a_backoff_and_holds_up_no_other(
    error: type[UnknownTopicOrPartitionError], told: bool
) -> None:
    world = World()
    world.joined(0, 1)
    bad = SharePartitionData(partition_index=0, error_code=error.errno)
    world.answer(ShareFetchRequest, fetched(bad, acquired(5, 1, partition=1)), 0.0)
    assert len(world.reports()) == 1
    assert [type(problem) for problem in world.errors()] == ([error] if told else [])
    world.poll(0.01)
    request = fetch(world)
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(ID, (0,))]
    world.answer(ShareFetchRequest, fetched(), 0.02)
    world.poll(2.0)
    assert [part.partition_index for part in fetch(world).topics[0].partitions] == [0]


def test_a_topic_that_is_denied_is_reported_once_and_not_for_each_partition() -> None:
    world = World()
    world.joined(0, 1, 2)
    denied = [SharePartitionData(partition_index=index, error_code=TopicAuthorizationFailedError.errno) for index in range(3)]
    world.answer(ShareFetchRequest, fetched(*denied), 0.0)
    (error,) = world.errors()
    assert str(error).endswith("topics 't': Not authorized to access the topic.")


def test_a_broker_that_does_not_answer_is_suspected_of_leading_no_more() -> None:
    world = World()
    world.joined(0)
    world.poll(1.6)
    assert world.waiting(MetadataRequest)


# --- the end --------------------------------------------------------------------------------------------------------------------


def test_the_end_settles_then_closes_the_sessions_then_leaves() -> None:
    world = World()
    delivery = world.delivered(2)
    accept(world, delivery, 0)
    call: Call[None] = Call(100.0)
    world.exchange.order(Close(call=call))
    world.poll(0.1)
    assert acknowledgement(world).share_session_epoch == 1
    assert world.waiting(ShareFetchRequest) == []
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2)
    world.poll(0.2)
    world.poll(0.2)
    assert acknowledgement(world).share_session_epoch == -1
    assert world.waiting(ShareGroupHeartbeatRequest) == []
    world.answer(ShareAcknowledgeRequest, ShareAcknowledgeResponse(), 0.3)
    world.poll(0.3)
    world.poll(0.3)
    assert world.background.fetch.closing is ClosingState.CLOSED
    (farewell,) = world.waiting(ShareGroupHeartbeatRequest)
    assert farewell.member_epoch == -1
    assert not call.done
    world.answer(ShareGroupHeartbeatRequest, taken_in(epoch=-1), 0.4)
    assert call.done


@pytest.mark.parametrize("answered", [True, False])
def test_the_end_waits_for_the_rest_of_a_poll_which_would_lock_records_for_nobody(answered: bool) -> None:
    world = World()
    world.joined(0)
    call: Call[None] = Call(100.0)
    world.exchange.order(Close(call=call))
    world.poll(0.1)
    assert not world.waiting(ShareGroupHeartbeatRequest)
    rest = fetch(world).max_wait_ms / 1000
    assert rest == 0.5
    if answered:
        world.answer(ShareFetchRequest, fetched(), 0.4)
        world.poll(0.4)
        world.poll(0.4)
        assert acknowledgement(world).share_session_epoch == -1
        world.answer(ShareAcknowledgeRequest, acknowledged(), 0.4)
    assert answered or rest < world.wake_at <= 2 * rest + 0.1
    now = 0.4 if answered else world.wake_at
    world.poll(now)
    world.poll(now)
    assert world.waiting(ShareGroupHeartbeatRequest)[0].member_epoch == -1


def test_acknowledgements_wait_for_the_rest_of_what_was_locked_together_while_the_application_works_through_it() -> None:
    world = World(max_poll_records=8)
    delivery = world.delivered(4)
    accept(world, delivery, 0, 1, read=2)
    world.poll(0.1)
    assert fetch(world).topics == ()
    accept(world, delivery, 2, 3, read=2)
    world.answer(ShareFetchRequest, fetched(), 0.15)
    world.poll(0.15)
    (batch,) = fetch(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset) == (0, 3)


def test_acknowledgements_do_not_wait_for_an_application_that_does_not_go_on() -> None:
    world = World(max_poll_records=2)
    delivery = world.delivered(4)
    accept(world, delivery, 0, read=1)
    world.poll(0.1)
    assert world.unsent == []
    assert world.wake_at == pytest.approx(0.3)
    world.poll(0.31)
    assert acknowledgement(world).share_session_epoch == 1


@pytest.mark.parametrize("after", [0.4, 8.0], ids=["within the poll", "beyond the poll"])
def test_a_lock_whose_answer_may_have_been_held_up_is_counted_from_when_it_was_asked_for(after: float) -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(acquired(0, 1)), after)
    (late,) = world.reports()
    assert isinstance(late, Delivery)
    assert late.deadline == LOCK


def test_a_long_poll_takes_no_more_than_a_part_of_the_locks_time() -> None:
    world = World(fetch_max_wait_ms=10_000)
    world.joined(0)
    assert fetch(world).max_wait_ms == LOCK * 1000 / 10


def test_a_record_that_comes_again_to_the_same_member_is_another_one() -> None:
    """The broker knows members and not deliveries: what was said under the former lock would be taken for the new one."""
    world = World()
    former = world.delivered(3)
    world.poll(0.1)
    accept(world, former, 0)
    world.poll(0.2)  # behind the fetch
    world.answer(ShareFetchRequest, fetched(acquired(0, 2)), 10.0)
    lost, refused, again = world.reports()
    assert isinstance(lost, Lost)
    assert [offset for _, offset in lost.locks] == [1]
    assert isinstance(refused, Settled)
    assert refused.offsets == (0,)
    assert "delivered again" in str(refused.error)
    assert isinstance(again, Delivery)
    accept(world, again, 0)
    flush(world)
    world.poll(10.1)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 10.1)
    (settled,) = world.reports()
    assert settled == Settled(TP, again.number, (0,), ACCEPT, None)


def test_a_renewal_is_counted_from_when_it_was_asked_for() -> None:
    world = World()
    delivery = world.delivered(1)
    world.exchange.order(Hold(TP, delivery.number, 0))
    world.poll(0.0)
    if world.waiting(ShareFetchRequest):
        world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(15.0)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 20.0)
    renewed = [report for report in world.reports() if isinstance(report, Renewed)]
    assert [report.deadline for report in renewed] == [15.0 + LOCK]


def test_a_lock_that_ended_before_the_answer_is_not_renewed() -> None:
    world = World()
    delivery = world.delivered(1)
    world.exchange.order(Hold(TP, delivery.number, 0))
    world.poll(0.0)
    if world.waiting(ShareFetchRequest):
        world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(15.0)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 31.0)
    assert not [locks for report in world.reports() if isinstance(report, Renewed) for locks in report.locks]
    world.poll(31.0)
    assert [type(report) for report in world.reports()] == [Lost]


def test_a_record_that_is_accepted_while_its_lock_is_being_renewed_has_the_new_time() -> None:
    world = World()
    delivery = world.delivered(2)
    for offset in (0, 1):
        world.exchange.order(Hold(TP, delivery.number, offset))
    world.poll(0.0)
    if world.waiting(ShareFetchRequest):
        world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(15.0)
    assert acknowledgement(world).is_renew_ack
    accept(world, delivery, 0)
    world.poll(16.0)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 20.0)
    flush(world)
    world.poll(20.0)
    assert not acknowledgement(world).is_renew_ack
    world.answer(ShareAcknowledgeRequest, acknowledged(), LOCK + 10)
    (settled,) = [report for report in world.reports() if isinstance(report, Settled)]
    assert settled == Settled(TP, delivery.number, (0,), ACCEPT, None)
