"""How much is fetched before the application asks for it, and when."""

import pytest

from kafka_async.background.boundary import EventHandler, Exchange
from kafka_async.background.share.closing import Closing
from kafka_async.background.share.locks import Locks
from kafka_async.background.share.orders import (
    Lost,
    RecordsHandedOut,
)
from kafka_async.background.share.read_ahead import SHORT_POLL, ReadAhead
from kafka_async.background.share.share_settings import ShareSettings
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    CoordinatorNotAvailableError,
    KafkaConnectionError,
)
from kafka_async.wire import Api, BrokerVersions, VersionRange
from kafka_async.wire.messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from tests.background.support import FakeNetwork

from .world import LOCK, TP, World, accept, acknowledged, fetch, fetched, taken_in


def test_a_fetch_asks_for_what_read_calls_want_and_ahead_of_them_for_what_the_application_gets_to() -> None:
    def asked(wanted: int, pace: float) -> list[int]:
        world = World()
        world.exchange.demand.wanted = wanted
        world.joined(0, pace=pace)
        return [request.max_records for request in world.waiting(ShareFetchRequest)]

    soon, unknown = LOCK / 3, 0.0
    assert [asked(wanted, unknown) for wanted in (0, 1, 40, 1_000)] == [[], [1], [40], [500]]
    assert [asked(0, pace) for pace in (soon / 10_000, soon / 50, soon / 3, soon, soon * 9)] == [[500], [10], [3], [1], []]
    assert asked(40, soon) == [40]


def test_what_is_read_ahead_is_shared_among_the_brokers_unless_the_application_is_fast() -> None:
    def asked(pace: float) -> list[int]:
        world = World()
        world.network.offered = BrokerVersions(ranges={Api.SHARE_FETCH: VersionRange(1, 2)})
        world.exchange.demand.average = pace
        world.joined(0, 1, pace=pace, leaders=(1, 2))
        return [request.max_records for request in world.waiting(ShareFetchRequest)]

    assert asked(0.01) == [50, 50], "a second of work"
    assert asked(0.0001) == [500, 500]


def test_a_fetch_asks_for_no_more_than_an_answer_may_bring() -> None:
    world = World(receive_message_max_bytes=1_000_000)
    world.joined(0)
    assert 500_000 < fetch(world).max_bytes < 1_000_000


def test_a_slow_application_asks_one_broker_at_a_time_since_the_records_of_the_others_would_wait_behind_a_long_job() -> None:
    def asked(pace: float) -> list[int]:
        world = World()
        world.exchange.demand.wanted = 1
        world.joined(0, 1, pace=pace, leaders=(1, 2))
        return [request.max_wait_ms for request in world.waiting(ShareFetchRequest)]

    assert asked(LOCK / 10) == [500, 500]
    assert asked(LOCK / 2) == [250]


@pytest.mark.parametrize("why", ["nobody read them", "the connection broke", "the event loop was blocked"])
def test_after_unread_records_have_lost_their_locks_few_are_read_ahead_until_many_were_read(why: str) -> None:
    world = World(max_poll_interval_ms=10_000)
    world.delivered(5)
    demand, exchange, since = world.exchange.demand, world.exchange, 10.0
    demand.pace = LOCK / 30_000
    if why == "nobody read them":
        demand.read_at = 0.0
    elif why == "the event loop was blocked":
        since, demand.wanted = LOCK + 1, 1  # while a read call waited, which was told of the records too late
    else:
        exchange.taken = 4  # one of the five is unread
        world.poll(0.0)
        world.answer(ShareFetchRequest, KafkaConnectionError("cut"), 0.0)
    world.poll(since)
    assert [type(report) for report in world.reports()] == [Lost]
    exchange.taken, demand.wanted = 5, 0
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


@pytest.mark.parametrize("why", ["brokers cannot renew locks", "the event loop was blocked", "a renewal failed"])
def test_records_that_were_read_and_not_acknowledged_before_their_locks_ended_do_not_make_reading_ahead_careful(why: str) -> None:
    world = World()
    if why == "brokers cannot renew locks":
        world.network.offered = None
    delivery = world.delivered(1)
    if why == "a renewal failed":
        world.poll(15.0)
        world.answer(ShareAcknowledgeRequest, acknowledged(CoordinatorNotAvailableError.errno), 15.0)
    world.exchange.notes[delivery.number, 0] = RecordsHandedOut(TP, delivery.number, (0,))
    world.exchange.taken, world.exchange.demand.pace = 1, LOCK / 30_000
    world.handler.polled_at = LOCK
    world.poll(LOCK)
    assert [type(report) for report in world.reports()] == [Lost]
    assert [request.max_records for request in world.waiting(ShareFetchRequest)] == [500]


def test_whole_batches_are_locked_if_the_average_of_many_records_allows_it_whatever_the_last_ones_took() -> None:
    def limited(pace: float, average: float) -> int:
        world = World()
        world.network.offered = BrokerVersions(ranges={Api.SHARE_FETCH: VersionRange(1, 2)})
        world.exchange.demand.wanted, world.exchange.demand.average = 1, average
        world.joined(0, pace=pace)
        return fetch(world).share_acquire_mode

    soon = LOCK / 30 / 500
    assert [limited(0.0, 0.0), limited(soon * 2, soon / 2), limited(soon * 2, soon * 2)] == [1, 0, 1]


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


def test_polls_are_short_while_records_are_out() -> None:
    world = World()
    delivery = world.delivered(3)
    accept(world, delivery)  # the application has all of them
    world.poll(0.1)
    assert fetch(world).max_wait_ms == SHORT_POLL * 1000


def test_nothing_is_read_ahead_of_half_a_batch() -> None:
    world = World(max_poll_records=4)
    world.delivered(3)
    world.poll(0.1)
    assert world.waiting(ShareFetchRequest) == []
    world.exchange.taken += 2
    world.poll(0.2)
    assert fetch(world).max_records == 4


def test_a_long_poll_takes_no_more_than_a_part_of_the_locks_time() -> None:
    world = World(fetch_max_wait_ms=10_000)
    world.joined(0)
    assert fetch(world).max_wait_ms == LOCK * 1000 / 10


def test_an_application_that_makes_room_while_it_is_looked_for_wakes_the_background() -> None:
    """It has a thread of its own. What it takes just then may be all that it takes for a long time."""
    seen: list[bool] = []

    class Looked(Exchange):
        @property
        def unread_bytes(self) -> int:
            seen.append(self.starving)
            return super().unread_bytes

    exchange, settings, config = Looked(EventHandler(lambda: None, lambda: None)), ShareSettings(), ConsumerConfig.of(group_id="g")
    ahead = ReadAhead(config, settings, exchange, FakeNetwork(), Locks(300.0), Closing())
    assert ahead.bytes(()) > 0
    assert (seen, exchange.starving) == ([True], False)
    exchange.put_bytes = config.fetch_buffer_bytes
    assert ahead.bytes(()) == 0
    assert (seen, exchange.starving) == ([True, True], True)
