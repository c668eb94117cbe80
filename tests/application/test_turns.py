"""Whose turn it is: no partition that has data waits for long, whatever the others have, and however they got it."""

import pytest

from kafka_async import TopicPartition

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
    assert max(found.values()) - min(found.values()) <= 5000 // len(OTHERS)


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
