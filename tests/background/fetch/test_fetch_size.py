"""How much one partition may bring in one answer: more where answers come full over a long line, and less again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.background.fetch.fetch_size import FAR, FULL, LEAN, FetchSize, RequestShare
from kafka_async.wire.messages import FetchRequest

from ..support import A, B, World, data, fetched, records

MIB = 2**20


def test_full_answers_that_were_waited_for_double_it_up_to_the_limit() -> None:
    size = FetchSize(MIB, 8 * MIB)
    seen = []
    for _ in range(5):
        size.answered(1.0, FAR, 1)
        seen.append(size.bytes // MIB)
    assert seen == [2, 4, 8, 8, 8]


@pytest.mark.parametrize(("fill", "waited"), [(LEAN / 2, 1.0), (1.0, 0.0), (FULL, 0.0)], ids=["lean", "busy", "full and busy"])
def test_it_shrinks_if_less_would_have_done(fill: float, waited: float) -> None:
    size = FetchSize(MIB, 8 * MIB)
    for _ in range(3):
        size.answered(1.0, 1.0, 1)
    for expected in (4, 2, 1, 1):
        size.answered(fill, waited, 1)
        assert size.bytes == expected * MIB
    assert not size.has_grown


@pytest.mark.parametrize(("fill", "waited"), [(0.5, 1.0), (1.0, FAR / 2)], ids=["half full", "a broker nearby"])
def test_it_stays_if_more_would_not_help(fill: float, waited: float) -> None:
    size = FetchSize(MIB, 8 * MIB)
    size.answered(1.0, 1.0, 1)
    size.answered(fill, waited, 1)
    assert size.bytes == 2 * MIB


@pytest.mark.slow
@given(
    st.integers(1, 2**31 - 1),
    st.integers(1, 2**40),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 10), st.integers(0, 1000)), max_size=50),
)
def test_it_is_never_below_what_was_chosen_and_all_partitions_fit_a_request(
    least: int, room: int, answers: list[tuple[float, float, int]]
) -> None:
    size = FetchSize(least, max(least, room))
    for fill, waited, partitions in answers:
        size.answered(fill, waited, partitions)
        assert size.bytes >= least
        assert size.bytes == least or size.bytes * partitions <= size.most


def asked_bytes(world: World) -> list[int]:
    request = world.waiting(FetchRequest)[0]
    return [part.partition_max_bytes for topic in request.topics for part in topic.partitions]


def read_full_answers(world: World, count: int, *, wait: float) -> list[int]:
    """Answer ``count`` requests in full while a read waits that long for each; return what the requests asked for."""
    world.handler.reading = 1
    found = []
    for number in range(count):
        (size,) = asked_bytes(world)
        found.append(size)
        world.handler.polled_at = now = number * 1.0
        held = records(number, 1, size=size * 9 // 10)
        world.answer(FetchRequest, fetched(data(A, held)), now + wait)
        world.poll(now + wait)
        world.read_all()
    return found


def test_over_a_long_line_the_default_grows_to_a_quarter_of_the_buffer() -> None:
    world = World(fetch_buffer_bytes=16 * MIB)
    world.fetching({A: 0})
    asked = read_full_answers(world, 8, wait=0.02)
    assert asked[0] == MIB
    assert asked[-1] == 4 * MIB


def test_near_a_broker_the_default_does_not_grow() -> None:
    world = World()
    world.fetching({A: 0})
    assert set(read_full_answers(world, 6, wait=0.001)) == {MIB}


def test_what_the_user_has_chosen_is_kept() -> None:
    world = World(max_partition_fetch_bytes=100_000)
    world.fetching({A: 0})
    assert set(read_full_answers(world, 6, wait=0.02)) == {100_000}


def test_an_application_that_does_not_wait_gets_no_more_at_once() -> None:
    world = World()
    world.fetching({A: 0, B: 0})
    for number in range(4):
        held = records(number, 1, size=MIB * 9 // 10)
        world.answer(FetchRequest, fetched(data(A, held), data(B)), number * 0.1)
        world.poll(number * 0.1)
    assert asked_bytes(world) == [MIB]


# What is one partition's beside others.


def test_a_part_of_a_request_doubles_while_there_is_room_and_is_never_more_than_fits() -> None:
    share = RequestShare.equal(1200, 24)
    seen = []
    for _ in range(5):
        share.answered(1200, 24, 4, 1.0)
        seen.append(share.bytes)
    assert seen == [100, 200, 300, 300, 300]


def test_a_part_becomes_an_equal_one_again_if_answers_come_nearly_empty() -> None:
    share = RequestShare.equal(1200, 24)
    for _ in range(5):
        share.answered(1200, 24, 1, 1.0)
    seen = []
    for _ in range(6):
        share.answered(1200, 24, 1, LEAN / 2)
        seen.append(share.bytes)
    assert seen == [600, 300, 150, 75, 50, 50]


def test_a_part_is_not_smaller_than_the_batches_that_come() -> None:
    """Or each answer would have one batch of one partition."""
    share = RequestShare.equal(1200, 24)
    assert share.exceeded(170)
    assert not share.exceeded(170)
    assert not share.exceeded(90)
    assert share.bytes == 170


@pytest.mark.slow
@given(
    st.integers(1, 2**31),
    st.integers(0, 5000),
    st.lists(st.tuples(st.integers(1, 2**31), st.integers(0, 5000), st.integers(1, 5000), st.floats(0, 2)), max_size=50),
)
def test_a_part_is_always_something_and_grows_no_more_than_there_was_room_for(
    request_bytes: int, partitions: int, answers: list[tuple[int, int, int, float]]
) -> None:
    share = RequestShare.equal(request_bytes, partitions)
    for asked_for, wanted, brought, fill in answers:
        before = share.bytes
        share.answered(asked_for, wanted, brought, fill)
        assert share.bytes >= 1
        assert share.bytes <= before or share.bytes * brought <= asked_for


def test_all_partitions_begin_with_equal_parts_of_a_request_that_cannot_hold_them_all() -> None:
    world = World(fetch_buffer_bytes=16_000, max_partition_fetch_bytes=2000)
    world.fetching({A: 0, B: 0})
    request = world.waiting(FetchRequest)[0]
    assert sum(asked_bytes(world)) <= request.max_bytes
    assert len(set(asked_bytes(world))) == 1
