"""Whose turn it is: no partition that has data waits for long, whatever the others have, and however they got it."""

from random import Random

import pytest

from kafka_async import TopicPartition
from kafka_async.application.reading.turns import TURNS, Turns

from .unread_world import A, B, World

OTHERS = [TopicPartition("t", index) for index in range(10, 20)]
WAYS = pytest.mark.parametrize("way", ["take", "portion", "columns", "call-backs"])


@pytest.mark.parametrize("parcel", [500, 499, 10_007])
@WAYS
def test_a_partition_whose_data_keeps_coming_lets_the_others_have_their_turn(way: str, parcel: int) -> None:
    """Whatever its parcels are: the next one is there before the last one is used up, and no read ends where a parcel does."""
    world = World(A, *OTHERS)
    end = world.more(A, 0, parcel, 3)
    world.read(way, 7)
    for other in OTHERS:
        world.fetched(other, 0, 3)
    seen: set[TopicPartition] = set()
    handed_out = 0
    while not seen.issuperset(OTHERS):
        end = world.more(A, end, parcel, 3)
        for partition, some in world.read(way, 7).items():
            seen.add(partition)
            handed_out += some
        assert handed_out < 10_000
    assert world.entry(A).has_more


@WAYS
def test_a_turn_ends_by_bytes_if_records_are_large(way: str) -> None:
    world = World(A, B)
    end = world.more(A, 0, 4, 3, size=200_000)
    world.read(way, 1)
    world.fetched(B, 0, 3)
    before_b = 0
    while B not in (found := world.read(way, 1)):
        before_b += sum(found.values())
        end = world.more(A, end, 4, 3, size=200_000)
    assert before_b <= 10


@pytest.mark.parametrize("way", ["take", "columns"])
def test_one_read_goes_round_until_it_has_what_it_may_return(way: str) -> None:
    world = World(A, B)
    world.more(A, 0, 20_000, 1)
    world.more(B, 0, 20_000, 1)
    found = world.read(way, 35_000)
    assert sum(found.values()) == 35_000
    assert min(found.values()) >= 15_000


def test_partitions_that_all_have_much_to_read_take_turns_of_equal_length() -> None:
    world = World(*OTHERS)
    for partition in OTHERS:
        world.more(partition, 0, 2000, 1)
    found = dict.fromkeys(OTHERS, 0)
    for _ in range(20):
        for partition, some in world.read("take", 500).items():
            found[partition] += some
    assert max(found.values()) - min(found.values()) <= 8000 // len(OTHERS)


@WAYS
def test_partitions_that_leave_after_their_turns_end_no_round_early(way: str) -> None:
    """Turns of a round that ends early are longer, so the last one in line would wait for twice the records and more."""
    busy = [TopicPartition("t", index) for index in range(100, 300)]
    world = World(*busy, A)
    for partition in (*busy, A):
        world.more(partition, 0, 1000, 10)
    before_a: dict[TopicPartition, int] = {}
    last: TopicPartition | None = None
    while A not in (found := world.read(way, 1)):
        ((partition, some),) = found.items()
        if last is not None and partition != last:
            world.unread.move(world.entry(last), None)
        last = partition
        before_a[partition] = before_a.get(partition, 0) + some
    assert set(before_a) == set(busy)
    assert sum(before_a.values()) <= 10_000
    assert max(before_a.values()) - min(before_a.values()) <= 1


@WAYS
def test_partitions_that_join_during_a_long_turn_cut_it_short(way: str) -> None:
    """Two partitions have long turns, until a hundred more come."""
    many = [TopicPartition("t", index) for index in range(100, 200)]
    world = World(A, B, *many)
    for partition in (A, B):
        world.more(partition, 0, 1000, 10)
    world.read(way, 100)
    for partition in many:
        world.more(partition, 0, 1000, 1)
    handed_out = 0
    while many[-1] not in (found := world.read(way, 100)):
        handed_out += sum(found.values())
    assert handed_out <= 10_000


class Line:
    """Partitions that come, leave, are paused and go on, alone and many at once."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.partitions = [TopicPartition("t", index) for index in range(150)]
        self.world = World(*self.partitions, fetch_buffer_bytes=2**30)
        self.waiting: dict[TopicPartition, int] = {}
        """Records that were handed out since it has had its last turn, or has something to read."""

    def change(self) -> None:
        change = self.chance.choices((self.come, self.go_on, self.leave, self.pause), (6, 2, 1, 1))[0]
        for partition in self.chance.sample(self.partitions, self.chance.choice((1, 1, 2, 40))):
            change(partition)

    def come(self, partition: TopicPartition) -> None:
        world, chance = self.world, self.chance
        if not world.entry(partition).has_more:
            world.more(partition, world.ends.get(partition, 0), chance.choice((1, 40, 700)), chance.choice((1, 3, 9)))
            world.unread.receive()
        self.go_on(partition)

    def go_on(self, partition: TopicPartition) -> None:
        if self.world.entry(partition).paused:
            self.world.unread.pause([partition], paused=False)
        if self.world.entry(partition).has_more:
            self.waiting.setdefault(partition, 0)

    def leave(self, partition: TopicPartition) -> None:
        self.world.unread.move(self.world.entry(partition), None)
        self.waiting.pop(partition, None)

    def pause(self, partition: TopicPartition) -> None:
        self.world.unread.pause([partition], paused=True)
        self.waiting.pop(partition, None)

    def read(self, way: str) -> None:
        found = self.world.read(way, self.chance.choice((1, 100, 500)))
        for partition in found:
            self.waiting.pop(partition, None)
        for partition in self.waiting:
            self.waiting[partition] += sum(found.values())
        for partition in found:
            self.go_on(partition)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@WAYS
def test_whoever_has_data_gets_a_turn_within_10_000_records_whatever_the_others_do(way: str, seed: int) -> None:
    line = Line(Random(seed))  # noqa: S311  # not a secret
    for _ in range(300):
        line.change()
        for _ in range(line.chance.choice((1, 4, 16))):
            line.read(way)
            assert max(line.waiting.values(), default=0) <= 10_000


@WAYS
def test_batches_that_wait_for_their_next_turn_do_not_keep_what_they_were_decompressed_to(way: str) -> None:
    """Ten partitions, of which each has one batch that becomes a megabyte, while no more than three may be held."""
    world = World(*OTHERS, fetch_buffer_bytes=3_500_000)
    for partition in OTHERS:
        world.more(partition, 0, 1000, 1, size=1000, codec=4)
    found = dict.fromkeys(OTHERS, 0)
    while not all(found.values()):
        for partition, some in world.read(way, 100).items():
            found[partition] += some
    held = [cursor.reader.held for cursor in map(world.entry, OTHERS) if cursor.reader is not None]
    assert sum(map(bool, held)) in (3, 4)
    assert max(held) > 1_000_000
    while more := world.read(way, 100):
        for partition, some in more.items():
            found[partition] += some
    assert found == dict.fromkeys(OTHERS, 1000)
    assert world.buffer.total.unread == 0


@pytest.mark.parametrize("seed", range(20))
def test_both_halves_of_the_pair_take_the_same_turns(seed: int) -> None:
    """Whatever the parcels are, however they are read, and whoever pauses, seeks or leaves meanwhile."""
    chance = Random(seed)  # noqa: S311  # not a secret
    partitions = OTHERS[: chance.choice((1, 2, 10))]
    worlds = [World(*partitions, half=half, fetch_buffer_bytes=1_000_000) for half in (Turns, TURNS)]
    for _ in range(300):
        partition, what = chance.choice(partitions), chance.random()
        parcel, size, codec = chance.choice((1, 7, 90, 900)), chance.choice((1, 1, 3000)), chance.choice((0, 0, 1))
        way, count = chance.choice(("take", "take", "portion", "columns", "call-backs")), chance.choice((1, 7, 500, 20_000))
        at = chance.randrange(50)
        found = [_step(world, what, partition, (parcel, size, codec), (way, count), at) for world in worlds]
        assert found[0] == found[1]
        assert list(found[0]) == list(found[1])  # in the same order, too
        assert [world.entry(partition).position for world in worlds] == [worlds[0].entry(partition).position] * 2
    assert worlds[0].unread.consumed_records == worlds[1].unread.consumed_records


def _step(
    world: World, what: float, partition: TopicPartition, data: tuple[int, int, int], read: tuple[str, int], at: int
) -> dict[TopicPartition, int]:
    cursor = world.entry(partition)
    if what < 0.4 or partition not in world.ends:
        count, size, codec = data
        world.more(partition, 0, count, 1 + at % 3, size=size if count < 50 else 1, codec=codec)
    elif what < 0.45:
        world.unread.pause([partition], paused=not cursor.paused)
    elif what < 0.48:
        world.ends[partition] = at
        world.unread.move(cursor, (at, None))
    elif what < 0.5:
        world.fetched(partition, world.ends.setdefault(partition, 0), 3, corrupt=True)
    else:
        return world.read(*read)
    return {}
