"""What both sides share. The queues of events and the ledger of bytes have tests of their own, beside this file."""

import pytest

from kafka_async import TopicPartition
from kafka_async.background.boundary import LARGE, EventHandler, FetchBuffer, FetchedData, Parcel, PartitionFailed, Repositioned
from kafka_async.errors import CorruptRecordException, OffsetOutOfRangeError
from kafka_async.events import ErrorEvent, PausePartitions

from .support import A, B


class World:
    def __init__(self) -> None:
        self.woken: list[str] = []
        self.buffer = FetchBuffer(1000, lambda: self.woken.append("application"), lambda: self.woken.append("background"))
        self.handler = EventHandler(lambda: self.woken.append("background"), lambda: self.woken.append("application"))


def held(size: int) -> FetchedData:
    return FetchedData(A, 1, 0, bytes(size))


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
