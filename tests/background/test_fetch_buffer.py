"""The ledger of what was fetched and not read."""

from kafka_async.background.boundary import FetchBuffer, FetchedData, PartitionFailed, Repositioned, Watermarks
from kafka_async.errors import OffsetOutOfRangeError

from .support import A, B


class World:
    def __init__(self, limit: int = 100) -> None:
        self.parcels = 0
        self.rooms = 0
        self.buffer = FetchBuffer(limit, self._parcel, self._room)

    def _parcel(self) -> None:
        self.parcels += 1

    def _room(self) -> None:
        self.rooms += 1


def held(size: int, partition: object = A) -> FetchedData:
    return FetchedData(partition=A if partition is A else B, stamp=1, fetch_offset=0, records=b"x" * size)


def test_bytes_are_unread_until_they_are_released() -> None:
    world = World()
    world.buffer.put(held(30))
    world.buffer.put(held(20, B))
    assert (world.buffer.room(), world.buffer.unread(A), world.buffer.unread(B)) == (50, 30, 20)
    taken = world.buffer.take()
    assert isinstance(taken, FetchedData)
    assert world.buffer.room() == 50
    world.buffer.release(taken)
    assert (world.buffer.room(), world.buffer.unread(A)) == (80, 0)


def test_room_can_be_below_nothing() -> None:
    world = World()
    world.buffer.put(held(130))
    assert world.buffer.room() == -30


def test_parcels_keep_their_order_and_each_wakes_the_application() -> None:
    world = World()
    parcels = (
        held(1),
        Repositioned(partition=A, stamp=1, offset=5),
        PartitionFailed(partition=A, stamp=1, error=OffsetOutOfRangeError()),
    )
    for parcel in parcels:
        world.buffer.put(parcel)
    assert world.parcels == 3
    assert [world.buffer.take() for _ in range(4)] == [*parcels, None]


def test_only_a_hungry_background_is_woken_by_room() -> None:
    world = World()
    for hungry in (False, True):
        world.buffer.hungry = hungry
        world.buffer.put(held(10))
        taken = world.buffer.take()
        assert isinstance(taken, FetchedData)
        world.buffer.release(taken)
        assert world.rooms == hungry


def test_what_is_forgotten_is_still_counted_until_it_is_released() -> None:
    world = World()
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
