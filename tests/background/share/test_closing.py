"""Flushes, and the end of a share consumer."""

import pytest

from kafka_async.background.share.closing import ClosingState
from kafka_async.background.share.orders import AcknowledgeType, Close, ReleaseLater, Settled
from kafka_async.errors import InvalidRecordStateError, KafkaTimeoutError
from kafka_async.events import Call
from kafka_async.wire.messages import (
    MetadataRequest,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from tests.background.support import cluster, described

from .world import TP, World, accept, acknowledged, acknowledgement, fetch, fetched, flush, taken_in


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
