"""What the application says about records, and what time does to their locks."""

import pytest

from kafka_async.background.share.orders import (
    Acknowledge,
    AcknowledgeType,
    Delivery,
    Hold,
    Lost,
    Order,
    RecordsDropped,
    RecordsHandedOut,
    Renewed,
)
from kafka_async.background.share.share_settings import ShareSettings
from kafka_async.errors import (
    InvalidRecordStateError,
)
from kafka_async.trace import Fault
from kafka_async.wire.messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

from .world import LOCK, TP, World, accept, acknowledged, acknowledgement, acquired, fetch, fetched, flush

ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW


def test_what_is_said_of_a_lock_that_is_gone_does_not_count() -> None:
    world = World()
    world.delivered(2)
    world.exchange.order(Acknowledge(TP, 0, 999, ACCEPT))
    call = flush(world)
    world.poll(0.1)
    assert isinstance(call.result()[TP], InvalidRecordStateError)


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


def test_a_lock_that_has_ended_is_not_renewed() -> None:
    """The event loop was blocked. A broker counts from later on: it may have the lock yet, and would keep it for nobody."""
    world = World()
    delivery = world.delivered(2)
    world.poll(0.1)
    world.answer(ShareFetchRequest, fetched(), 0.1)
    world.poll(LOCK + 0.2)
    (lost,) = (report for report in world.reports() if isinstance(report, Lost))
    assert lost.locks == ((delivery.number, 0), (delivery.number, 1))
    assert world.waiting(ShareAcknowledgeRequest) == []


def test_unread_records_whose_locks_have_ended_are_not_released() -> None:
    """A broker refuses all the acknowledgements of a partition if one lock has ended."""
    world = World(max_poll_interval_ms=10_000)
    delivery = world.delivered(3)
    world.exchange.demand.read_at = 0.0
    accept(world, delivery, read=1)
    world.exchange.order(RecordsHandedOut(TP, delivery.number, (0,)))
    world.poll(LOCK + 0.2)
    (error,) = {report.error.args for report in world.reports() if isinstance(report, Lost) and len(report.locks) == 2}
    assert "nothing was read for too long" in error[0]
    call = flush(world)
    world.poll(LOCK + 0.3)
    assert world.waiting(ShareAcknowledgeRequest) == []
    assert call.result() == {}


def _read_one(world: World) -> Delivery:
    """Have four records delivered, of which the application reads one, and then no more: 10 s later the others are given back."""
    delivery = world.delivered(4)
    world.exchange.demand.read_at = 0.0
    world.exchange.taken = 1
    world.exchange.notes[delivery.number, 0] = RecordsHandedOut(TP, delivery.number, (0,))
    return delivery


def test_what_was_accepted_and_is_not_answered_is_not_given_back_with_what_is_unread() -> None:
    """No note says any more that the application has it, since it has acknowledged it."""
    world = World(max_poll_interval_ms=10_000)
    delivery = _read_one(world)
    world.exchange.notes.clear()
    world.poll(9.0)
    accept(world, delivery, 0, read=0)
    world.poll(9.99)
    assert world.waiting(ShareFetchRequest), "it waits for the answer"
    world.poll(10.1)
    (lost,) = (report for report in world.reports() if isinstance(report, Lost))
    assert lost.locks == tuple((delivery.number, offset) for offset in (1, 2, 3))
    world.answer(ShareFetchRequest, fetched(), 10.2)
    world.poll(10.2)
    world.poll(10.6)
    (partition,) = acknowledgement(world).topics[0].partitions
    batches = partition.acknowledgement_batches
    assert [(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches] == [(0, 0, (1,)), (1, 3, (2,))]


@pytest.mark.parametrize("order", ["accept", "hold"])
def test_what_is_said_of_a_record_while_unread_ones_are_given_back_counts(order: str) -> None:
    """A thread says it between the moment when the background takes orders and the one when it looks at the notes."""
    world = World(max_poll_interval_ms=10_000)
    woken: list[str] = []
    world.handler.wake_background = lambda: woken.append("background")
    delivery = _read_one(world)
    fetch_manager = world.background.fetch
    fetch_manager.take_orders(10.1)
    world.exchange.notes.clear()
    world.exchange.order(Acknowledge(TP, 0, delivery.number, ACCEPT) if order == "accept" else Hold(TP, delivery.number, 0))
    woken.clear()
    fetch_manager.poll(10.1)
    assert woken, "it looks again at once"
    world.poll(10.1)
    (lost,) = (report for report in world.reports() if isinstance(report, Lost))
    assert lost.locks == tuple((delivery.number, offset) for offset in (1, 2, 3))


def test_a_renewal_that_waits_is_given_up_when_the_lock_ends() -> None:
    world = World()
    first = world.delivered(2)
    for offset in (0, 1):
        world.exchange.order(Hold(TP, first.number, offset))
    accept(world, first)  # they are read
    world.poll(10.0)
    world.answer(ShareFetchRequest, fetched(acquired(2, 1)), 10.0)
    world.exchange.taken = world.exchange.delivered
    world.poll(14.0)
    world.poll(15.0)  # the first two are to be renewed, once the fetch is answered
    assert world.waiting(ShareFetchRequest)
    world.answer(ShareFetchRequest, fetched(), LOCK + 0.5)
    world.poll(LOCK + 0.5)
    (batch,) = acknowledgement(world).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (2, 2, (4,))


def test_a_note_about_a_record_is_taken_before_its_lock_ends() -> None:
    """The application has the record alone: its lock would not have been renewed, so no reason is given."""
    world = World(settings=ShareSettings(max_processing_ms=20_000))
    delivery = world.delivered(1)
    world.poll(0.1)
    world.exchange.taken = 1
    world.exchange.notes[delivery.number, 0] = RecordsHandedOut(TP, delivery.number, (0,))
    world.poll(LOCK + 0.2)  # the event loop was blocked since before half of the lock's time was over
    (lost,) = (report for report in world.reports() if isinstance(report, Lost))
    assert lost.error.args == ("t-0: the lock ended before the record was acknowledged",)
    assert not [event for event in world.seen if isinstance(event, Fault)]


@pytest.mark.parametrize(
    ("order", "renews", "why"),
    [
        (Hold(TP, 1, 0), True, ": max_processing_ms=20000 is over"),
        (Hold(TP, 1, 0), False, ": the brokers cannot renew locks"),
        (RecordsHandedOut(TP, 1, (0,)), True, ""),
    ],
)
def test_the_loss_of_a_lock_that_would_have_been_renewed_says_why_it_was_not(order: Order, renews: bool, why: str) -> None:
    world = World(max_poll_records=2, settings=ShareSettings(max_processing_ms=20_000))
    if not renews:
        world.network.offered = None
    accept(world, world.delivered(1))
    world.handler.reading = 0
    world.exchange.order(order)
    for now in (15.0, 30.0, 45.0):
        world.poll(now)
        if world.waiting(ShareAcknowledgeRequest):
            world.answer(ShareAcknowledgeRequest, acknowledged(), now)
    (lost,) = (report for report in world.reports() if isinstance(report, Lost))
    assert lost.error.args == (f"t-0: the lock ended before the record was acknowledged{why}",)
    assert [event.error for event in world.seen if isinstance(event, Fault)] == ([lost.error] if why else [])


def test_brokers_that_cannot_renew_are_not_asked_to() -> None:
    world = World(max_poll_records=2)
    world.network.offered = None
    delivery = world.delivered(2)
    world.exchange.order(Acknowledge(TP, 0, delivery.number, RENEW))
    world.poll(15.0)
    assert world.waiting(ShareAcknowledgeRequest) == []


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
