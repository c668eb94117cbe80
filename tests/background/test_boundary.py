"""What both sides share: the two queues of events, and the ledger of what was fetched and not read."""

import pytest

from kafka_async import TopicPartition
from kafka_async.background.boundary import (
    LARGE,
    EventHandler,
    FetchBuffer,
    FetchedData,
    Parcel,
    PartitionFailed,
    Repositioned,
    Watermarks,
)
from kafka_async.errors import CorruptRecordException, OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka_async.events import ErrorEvent, PausePartitions, ResumePartitions

from .support import A, B


class World:
    def __init__(self, limit: int = 1000) -> None:
        self.woken: list[str] = []
        self.buffer = FetchBuffer(limit, lambda: self.woken.append("application"), lambda: self.woken.append("background"))
        self.handler = EventHandler(lambda: self.woken.append("background"), lambda: self.woken.append("application"))


def held(size: int, partition: TopicPartition = A) -> FetchedData:
    return FetchedData(partition=partition, stamp=1, fetch_offset=0, records=b"x" * size)


# --- events ---------------------------------------------------------------------------------------------------------------------


def test_each_side_wakes_the_other_and_keeps_the_order() -> None:
    world = World()
    first, second = PausePartitions(partitions=frozenset((A,))), ResumePartitions(partitions=frozenset((A,)))
    world.handler.add(first)
    world.handler.add(second)
    assert world.woken == ["background", "background"]
    assert list(world.handler.drain_application()) == [first, second]
    assert list(world.handler.drain_application()) == []
    world.handler.publish_error(OffsetOutOfRangeError("x"))
    assert world.woken[2:] == ["application"]


def test_an_event_that_comes_while_the_queue_is_drained_is_drained_too() -> None:
    world = World()
    event = PausePartitions(partitions=frozenset((A,)))
    world.handler.add(event)
    drained = 0
    for _ in world.handler.drain_application():
        drained += 1
        if drained == 1:
            world.handler.add(event)
    assert drained == 2


def test_an_error_that_waits_already_is_not_queued_again() -> None:
    world = World()
    for _ in range(1000):
        world.handler.publish_error(TopicAuthorizationFailedError("t"))
    world.handler.publish_error(TopicAuthorizationFailedError("u"))
    world.handler.publish_error(OffsetOutOfRangeError("t"))
    errors = [event.error for event in world.handler.drain_background() if isinstance(event, ErrorEvent)]
    assert [str(error.args[0]) for error in errors] == ["t", "u", "t"]
    world.handler.publish_error(TopicAuthorizationFailedError("t"))
    assert len(list(world.handler.drain_background())) == 1


def test_an_event_of_the_background_leaves_the_queue_once_it_is_dealt_with() -> None:
    world = World()
    world.handler.publish_error(OffsetOutOfRangeError("one"))
    world.handler.publish_error(OffsetOutOfRangeError("two"))
    looked = []

    def deal() -> None:
        for event in world.handler.drain_background():
            looked.append(event)
            raise ValueError("in the midst of it")

    for _ in range(2):
        with pytest.raises(ValueError, match="midst"):
            deal()
    assert looked[0] is looked[1], "whoever comes next finds it again"
    assert len(list(world.handler.drain_background())) == 2
    assert not world.handler.background_events


def test_an_event_that_somebody_else_has_dealt_with_meanwhile_is_not_taken_twice() -> None:
    world = World()
    for text in ("one", "two"):
        world.handler.publish_error(OffsetOutOfRangeError(text))
    texts = []
    for event in world.handler.drain_background():
        assert isinstance(event, ErrorEvent)
        texts.append(str(event.error.args[0]))
        if len(texts) == 1:
            list(world.handler.drain_background())  # a signal handler, in the midst of this
    assert texts == ["one"]


def test_errors_of_another_kind_or_of_a_later_subscription_are_other_errors() -> None:
    world = World()
    world.handler.publish_error(OffsetOutOfRangeError("t"))
    world.handler.publish_error(CorruptRecordException("t"))
    world.handler.subscription += 1
    world.handler.publish_error(OffsetOutOfRangeError("t"))
    world.handler.publish_error(OffsetOutOfRangeError("t"))
    assert len(world.handler.background_events) == 3


def test_each_event_of_the_background_makes_an_iteration_look() -> None:
    world = World()
    world.handler.attend = lambda: world.woken.append("iteration")
    world.handler.publish_error(OffsetOutOfRangeError("t"))
    assert world.woken == ["iteration", "application"]


def test_the_last_read_is_now_while_one_waits_and_unknown_before_the_first() -> None:
    handler = World().handler
    assert handler.last_poll(5.0) is None
    handler.polled_at = 3.0
    assert handler.last_poll(5.0) == 3.0
    handler.reading = 1
    assert handler.last_poll(5.0) == 5.0


def test_an_event_that_is_added_wakes_the_background_after_it_is_in_the_queue() -> None:
    found: list[int] = []
    handler = EventHandler(lambda: found.append(len(handler.application_events)), lambda: None)
    handler.add(PausePartitions(partitions=frozenset((A,))))
    assert found == [1]


# --- fetched data ---------------------------------------------------------------------------------------------------------------


def test_bytes_are_unread_until_they_are_released() -> None:
    world = World(limit=100)
    world.buffer.put(held(30))
    world.buffer.put(held(20, B))
    assert (world.buffer.room(), world.buffer.unread(A), world.buffer.unread(B)) == (50, 30, 20)
    taken = world.buffer.take()
    assert isinstance(taken, FetchedData)
    assert world.buffer.room() == 50
    world.buffer.release(taken)
    assert (world.buffer.room(), world.buffer.unread(A)) == (80, 0)


def test_room_can_be_below_nothing() -> None:
    world = World(limit=100)
    world.buffer.put(held(130))
    assert world.buffer.room() == -30


def test_parcels_keep_their_order_and_each_wakes_the_application() -> None:
    world = World(limit=100)
    parcels = (
        held(1),
        Repositioned(partition=A, stamp=1, offset=5),
        PartitionFailed(partition=A, stamp=1, error=OffsetOutOfRangeError()),
    )
    for parcel in parcels:
        world.buffer.put(parcel)
    assert world.woken == ["application"] * 3
    assert [world.buffer.take() for _ in range(4)] == [*parcels, None]


def test_only_a_hungry_background_is_woken_by_room() -> None:
    world = World(limit=100)
    for hungry in (False, True):
        world.buffer.hungry = hungry
        world.buffer.put(held(10))
        taken = world.buffer.take()
        assert isinstance(taken, FetchedData)
        world.buffer.release(taken)
        assert world.woken.count("background") == hungry


def test_what_is_forgotten_is_still_counted_until_it_is_released() -> None:
    world = World(limit=100)
    world.buffer.watermarks[A] = Watermarks(high_watermark=1, last_stable_offset=1, log_start_offset=0, fetched_at=0.0)
    world.buffer.put(held(10))
    world.buffer.forget(A)
    assert (A in world.buffer.watermarks, world.buffer.room()) == (False, 90)
    taken = world.buffer.take()
    assert isinstance(taken, FetchedData)
    world.buffer.release(taken)
    assert (world.buffer.room(), world.buffer.unread(A)) == (100, 0)
    world.buffer.forget(A)
    assert world.buffer.accounts == {}


def test_a_large_parcel_wakes_the_application_once_the_next_request_is_sent_and_a_small_one_at_once() -> None:
    world = World()
    world.buffer.put(held(LARGE))
    world.buffer.put(held(LARGE))
    assert world.woken == []
    world.buffer.announce()
    world.buffer.announce()
    assert world.woken == ["application"]
    world.buffer.put(held(LARGE - 1))
    world.buffer.announce()
    assert world.woken == ["application"] * 2


@pytest.mark.parametrize(
    "parcel",
    [Repositioned(partition=A, stamp=1, offset=0), PartitionFailed(partition=A, stamp=1, error=OffsetOutOfRangeError())],
    ids=["a position", "a failure"],
)
def test_what_has_no_bytes_takes_no_room_and_its_order_is_that_of_the_data(parcel: Parcel) -> None:
    world = World()
    for each in (held(10), parcel, held(10)):
        world.buffer.put(each)
    assert world.buffer.room() == 980
    assert world.buffer.next == held(10)
    assert [world.buffer.take(), world.buffer.take(), world.buffer.take()] == [held(10), parcel, held(10)]
    assert world.buffer.next is None


def test_asking_for_the_same_partitions_again_wakes_nobody() -> None:
    world = World()
    nothing = frozenset[TopicPartition]()
    for asked in (frozenset((A,)), frozenset((A,)), frozenset((B,)), nothing, nothing):
        world.buffer.ask(asked)
    assert world.woken == ["background"] * 3


def test_what_is_released_of_a_partition_without_an_account_makes_room_all_the_same() -> None:
    world = World()
    world.buffer.put(held(10))
    world.buffer.accounts.clear()
    world.buffer.release(held(10))
    assert (world.buffer.room(), world.buffer.unread(A)) == (1000, 0)
