"""Flushes, and the end of a share consumer."""

import pytest

from kafka_async.background.share.closing import ClosingState
from kafka_async.background.share.orders import AcknowledgeType, Close, Delivery, ReleaseLater, Settled
from kafka_async.errors import (
    AuthenticationFailedError,
    InvalidRecordStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
)
from kafka_async.events import Call
from kafka_async.wire.messages import (
    MetadataRequest,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from tests.background.support import cluster, described

from .world import TP, World, accept, acknowledged, acknowledgement, acquired, fetch, fetched, flush, taken_in


def offsets(request: ShareAcknowledgeRequest) -> list[tuple[int, int]]:
    batches = request.topics[0].partitions[0].acknowledgement_batches
    return [(batch.first_offset, batch.last_offset) for batch in batches]


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


def test_a_broker_that_refuses_the_login_is_not_waited_for_if_nothing_was_acknowledged() -> None:
    world = World()
    world.delivered(3)
    world.poll(0.1)
    world.answer(ShareFetchRequest, AuthenticationFailedError("refused"), 0.2)
    flushed = flush(world)
    world.poll(0.3)
    assert flushed.result() == {}
    world.exchange.order(Close(call=Call(100.0)))
    world.poll(0.4)
    world.poll(0.4)
    world.poll(0.4)
    assert world.background.fetch.closing is ClosingState.CLOSED


@pytest.mark.parametrize("given_up", ["withdrawn", "timed out"])
def test_the_results_of_a_flush_that_was_given_up_stay_for_the_next_one(given_up: str) -> None:
    world = World()
    delivery = world.delivered(2)
    accept(world, delivery, 0)
    call = flush(world)
    world.poll(0.1)
    if given_up == "withdrawn":
        call.withdraw()
    else:
        call.fail(KafkaTimeoutError("too late"))
    world.answer(ShareAcknowledgeRequest, acknowledged(InvalidRecordStateError.errno), 0.2)
    world.poll(0.2)
    again = flush(world)
    world.poll(0.3)
    assert isinstance(again.result()[TP], InvalidRecordStateError)


def test_a_flush_does_not_wait_for_what_is_acknowledged_after_it() -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery, 0)
    first = flush(world)
    world.poll(0.1)
    accept(world, delivery, 1)
    second = flush(world)
    world.poll(0.15)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2)
    accept(world, delivery, 2)
    world.poll(0.2)
    assert (first.done, second.done) == (True, False)
    assert first.result() == {TP: None}
    world.answer(ShareAcknowledgeRequest, acknowledged(InvalidRecordStateError.errno), 0.3)
    world.poll(0.3)  # it had two records: each is sent again by itself
    assert not second.done
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.4)
    world.poll(0.4)
    accept(world, delivery, 3)
    world.answer(ShareAcknowledgeRequest, acknowledged(InvalidRecordStateError.errno), 0.5)
    world.poll(0.5)
    assert isinstance(second.result()[TP], InvalidRecordStateError)


def test_the_end_does_not_wait_for_tasks_that_go_on_acknowledging_and_takes_along_what_they_said() -> None:
    world = World()
    delivery = world.delivered(4)
    accept(world, delivery, 0)
    world.exchange.order(ReleaseLater(TP, delivery.number, 1, 20.0))
    call: Call[None] = Call(100.0)
    world.exchange.order(Close(call=call))
    world.poll(0.1)
    assert offsets(acknowledgement(world)) == [(0, 0), (1, 1)]
    accept(world, delivery, 2)
    world.poll(0.15)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2)
    world.poll(0.2)
    accept(world, delivery, 3)
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.3)
    world.poll(0.3)
    assert (acknowledgement(world).share_session_epoch, offsets(acknowledgement(world))) == (-1, [(3, 3)])
    world.reports()
    world.answer(ShareAcknowledgeRequest, acknowledged(), 0.4)
    assert world.reports() == [Settled(TP, delivery.number, (3,), AcknowledgeType.ACCEPT, None)]
    world.poll(0.4)
    world.poll(0.4)
    assert world.background.fetch.closing is ClosingState.CLOSED


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


def test_the_end_of_a_session_releases_records_of_partitions_that_had_left_it() -> None:
    """The broker releases only those of the partitions that are in it."""
    world = World()
    world.joined(0, 1)
    world.answer(ShareFetchRequest, fetched(acquired(0, 2), acquired(0, 4, partition=1)), 0.0)
    _, delivery = world.reports()
    assert isinstance(delivery, Delivery)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, taken_in(0, epoch=2), 5.0)
    world.exchange.taken = world.exchange.delivered
    world.poll(5.1)
    left = world.answer(ShareFetchRequest, fetched(), 5.1)
    assert [topic.partitions for topic in left.forgotten_topics_data] == [(1,)]
    accept(world, delivery, 1)
    call: Call[None] = Call(100.0)
    world.exchange.order(Close(call=call))
    world.poll(6.1)
    world.answer(ShareAcknowledgeRequest, acknowledged(partition=1), 6.2)
    world.poll(6.2)
    accept(world, delivery, 3)
    world.poll(6.2)
    request = acknowledgement(world)
    (part,) = request.topics[0].partitions
    assert (request.share_session_epoch, part.partition_index) == (-1, 1)
    said = [(each.first_offset, each.last_offset, each.acknowledge_types) for each in part.acknowledgement_batches]
    assert said == [(0, 0, (2,)), (2, 2, (2,)), (3, 3, (1,))]


@pytest.mark.parametrize("left", [True, False])
def test_the_end_does_not_wait_for_a_broker_that_has_left_the_cluster(left: bool) -> None:
    world = World()
    world.delivered(2)
    world.poll(0.1)
    world.answer(ShareFetchRequest, fetched(), 0.1)
    if left:
        world.background.metadata.request_update(0.15)
        world.poll(0.15)
        world.answer(MetadataRequest, cluster(described("t", (2, 2), epoch=1), brokers=(2,)), 0.15)
    call: Call[None] = Call(100.0)
    world.exchange.order(Close(call=call))
    world.poll(0.3)
    world.poll(0.3)
    assert (world.background.fetch.closing is ClosingState.CLOSED) is left
    assert len(world.waiting(ShareAcknowledgeRequest)) == (0 if left else 1)


def led_by_two(world: World, now: float) -> None:
    """Have the metadata name broker 2 as the only one."""
    world.background.metadata.request_update(now)
    world.poll(now)
    world.answer(MetadataRequest, cluster(described("t", (2, 2), epoch=1), brokers=(2,)), now)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("assigned", [True, False])
@pytest.mark.parametrize("cut_first", [True, False])
def test_nobody_waits_for_a_broker_that_has_crashed(ends: bool, accepted: bool, assigned: bool, cut_first: bool) -> None:
    """What was to be sent to it has no lock any more, whether its connection breaks before the metadata tells or after that."""
    world = World()
    delivery = world.delivered(3)
    if accepted:
        accept(world, delivery, 0)
    world.poll(0.1)
    assert bool(fetch(world).topics) is accepted
    accept(world, delivery, 1)
    if not assigned:
        world.background.fetch.assign({}, 0.1)
    if cut_first:
        world.answer(ShareFetchRequest, KafkaConnectionError("cut"), 0.15)
        led_by_two(world, 0.2)
    else:
        led_by_two(world, 0.15)
        world.poll(0.15)
        world.answer(ShareFetchRequest, KafkaConnectionError("cut"), 0.2)
    call: Call[None] = Call(100.0)
    flushed = flush(world)
    if ends:
        world.exchange.order(Close(call=call))
    world.poll(0.3)
    world.poll(0.3)
    assert flushed.done
    assert (world.background.fetch.closing is ClosingState.CLOSED) is ends
    settled = {offset: report.error for report in world.reports() if isinstance(report, Settled) for offset in report.offsets}
    assert settled.keys() == ({0, 1} if accepted else {1})
    assert all(isinstance(error, NotLeaderOrFollowerError | InvalidRecordStateError) for error in settled.values())
    assert not accepted or "may have counted then: cut" in str(settled[0])


def test_acknowledgements_wait_for_a_broker_while_the_partition_has_no_leader() -> None:
    world = World()
    accept(world, world.delivered(2), 0)
    world.poll(0.1)
    world.answer(ShareFetchRequest, KafkaConnectionError("cut"), 0.15)
    world.background.metadata.request_update(0.2)
    world.poll(0.2)
    world.answer(MetadataRequest, cluster(described("t", (-1, -1), epoch=1), brokers=(2,)), 0.2)
    call = flush(world)
    world.poll(0.3)
    assert not call.done
    world.poll(world.wake_at)
    world.answer(MetadataRequest, cluster(described("t", (1, 1), epoch=2)), 0.6)
    world.poll(0.7)
    assert [request.node_id for request in world.unsent if isinstance(request.message, ShareFetchRequest)] == [1]


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
