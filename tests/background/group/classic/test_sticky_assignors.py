"""``kafka_async.background.group.classic.sticky_assignors``: even, sticky, rack-aware, cooperative; the bytes are Java's."""

import struct
from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.background.group.classic.assignment import GroupMember, GroupTopics, RebalanceProtocol, checked, in_rack
from kafka_async.background.group.classic.sticky_assignors import CooperativeStickyAssignor, StickyAssignor
from kafka_async.model import TopicPartition
from tests.background.group.classic.groups import check_division, groups, is_even, member, plain, tps

Group = tuple[dict[str, tuple[frozenset[str], ...]], list[GroupMember]]
Division = Mapping[str, Sequence[TopicPartition]]


def eager(topics: GroupTopics, members: Sequence[GroupMember]) -> Division:
    """Divide with ``sticky``; what members own is told through their user data, as in a real group."""
    told = []
    for each in members:
        assignor = StickyAssignor()
        if each.generation >= 0:
            assignor.on_assignment(frozenset(each.owned), each.generation)
        told.append(evolve(each, owned=(), user_data=assignor.user_data(each.topics)))
    return StickyAssignor().assign(topics, told)


def owning(members: Sequence[GroupMember], division: Division, generation: int) -> list[GroupMember]:
    return [evolve(each, owned=tuple(division[each.member_id]), generation=generation) for each in members]


def moved(members: Sequence[GroupMember], division: Division) -> int:
    return sum(len(set(each.owned) - set(division[each.member_id])) for each in members)


def counts(division: Division) -> list[int]:
    return sorted(len(partitions) for partitions in division.values())


def without_racks(group: Group) -> Group:
    topics, members = group
    return {topic: (frozenset(),) * len(racks) for topic, racks in topics.items()}, [evolve(m, rack=None) for m in members]


# --- properties -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(groups())
def test_every_partition_has_one_subscriber_and_the_numbers_are_even(group: Group) -> None:
    division = eager(*group)
    check_division(*group, division)
    assert is_even(group[1], division)


@pytest.mark.slow
@given(groups(alike=True))
def test_alike_members_differ_by_one_at_most(group: Group) -> None:
    sizes = counts(eager(*group))
    assert sizes[-1] - sizes[0] <= 1


@pytest.mark.slow
@given(groups())
def test_nothing_moves_when_nothing_changed(group: Group) -> None:
    topics, members = without_racks(group)
    before = owning(members, eager(topics, members), 1)
    assert moved(before, eager(topics, before)) == 0


@pytest.mark.slow
@given(groups())
def test_a_member_that_leaves_moves_only_what_was_its_own_if_all_subscribe_alike(group: Group) -> None:
    topics, members = without_racks(group)
    members = [evolve(m, topics=members[0].topics) for m in members]
    before = owning(members, eager(topics, members), 1)
    stay = before[1:]
    if stay:
        division = eager(topics, stay)
        check_division(topics, stay, division)
        assert moved(stay, division) == 0


@pytest.mark.slow
@given(groups(alike=True))
def test_a_member_that_joins_takes_its_share_and_nothing_else_moves(group: Group) -> None:
    topics, members = without_racks(group)
    before = owning(members, eager(topics, members), 1)
    now = [*before, evolve(members[0], member_id="new", instance_id=None)]
    division = eager(topics, now)
    check_division(topics, now, division)
    assert moved(now, division) == len(division["new"])


@pytest.mark.slow
@given(groups())
def test_the_order_of_members_does_not_matter(group: Group) -> None:
    topics, members = group
    before = owning(members, eager(topics, members), 1)
    assert eager(topics, before) == eager(topics, before[::-1])


@pytest.mark.slow
@given(groups(), groups())
def test_stale_claims_of_another_world_do_no_harm(group: Group, other: Group) -> None:
    topics, members = group
    claims = list(eager(*other).values())
    odd = [evolve(m, owned=tuple(claims[n % len(claims)]), generation=n % 3) for n, m in enumerate(members)]
    check_division(topics, odd, eager(topics, odd))


@pytest.mark.slow
@given(groups(), groups())
def test_cooperative_gives_nothing_away_that_is_owned_and_ends_even(group: Group, other: Group) -> None:
    """Two groups' worth of members meet; each gives up what it is told to and joins again, until nothing changes."""
    topics, members = group
    first = CooperativeStickyAssignor().assign(*other)
    claims = {key: tuple(partitions) for key, partitions in first.items()}
    current = [evolve(m, owned=claims.get(m.member_id, ()), generation=1) for m in members]
    for generation in range(2, 6):
        division = CooperativeStickyAssignor().assign(topics, current)
        checked(division, current, RebalanceProtocol.COOPERATIVE)
        done = all(set(m.owned) <= set(division[m.member_id]) for m in current)
        current = owning(current, division, generation)
        if done:
            break
    assert done
    check_division(topics, current, division)
    assert is_even(current, division)


# --- cases ----------------------------------------------------------------------------------------------------------------------


def test_a_chain_of_moves_evens_out_what_no_single_move_can() -> None:
    members = [member("x", "a"), member("y", "ab", *tps("a0 a1")), member("z", "b", *tps("b0 b1 b2"))]
    members = [evolve(m, generation=1) for m in members]
    assert counts(eager(plain(a=2, b=3), members)) == [1, 2, 2]
    members = [member("x", "a"), member("y", "ab"), member("z", "bc")]
    assert counts(eager(plain(a=1, b=1, c=4), members)) == [1, 1, 4]


def test_of_two_claims_the_newer_generation_counts() -> None:
    members = [member("x", "a", *tps("a0 a1"), generation=2), member("y", "a", *tps("a0 a1 a2"), generation=1)]
    division = eager(plain(a=4), members)
    assert (division["x"], division["y"]) == (tps("a0 a1"), tps("a2 a3"))


def test_two_claims_of_one_generation_count_for_nobody_but_are_not_given_away_while_they_are_read() -> None:
    members = [member("x", "a", *tps("a0"), generation=1), member("y", "a", *tps("a0"), generation=1), member("z", "a")]
    division = CooperativeStickyAssignor().assign(plain(a=3), members)
    assert TopicPartition("a", 0) not in division["z"]
    check_division(plain(a=3), members, eager(plain(a=3), members))


def test_the_rack_of_a_kept_partition_counts_for_more_than_staying() -> None:
    topics = {"a": (frozenset({"r1"}), frozenset({"r2"}))}
    members = [member("x", "a", *tps("a1"), generation=1, rack="r1"), member("y", "a", *tps("a0"), generation=1, rack="r2")]
    assert eager(topics, members) == {"x": tps("a0"), "y": tps("a1")}


def test_every_partition_is_read_in_its_rack_if_the_numbers_allow_it() -> None:
    topics = {name: tuple(frozenset({f"r{number % 3}"}) for number in range(6)) for name in "ab"}
    members = [member(f"m{number}", "ab", rack=f"r{number % 3}") for number in range(6)]
    division = eager(topics, members)
    assert counts(division) == [2] * 6
    assert all(in_rack(m, topics[p.topic][p.partition]) for m in members for p in division[m.member_id])


def test_members_beyond_the_number_of_partitions_get_nothing() -> None:
    assert counts(eager(plain(a=1), [member(name, "a") for name in "xyz"])) == [0, 0, 1]


def test_a_group_without_partitions_gets_none() -> None:
    assert eager({}, [member("x", "a")]) == {"x": []}
    assert eager(plain(a=1), []) == {}


# --- user data ------------------------------------------------------------------------------------------------------------------

JAVA_V1 = bytes.fromhex("00000001 0001 61 00000002 00000000 00000001 00000007".replace(" ", ""))
"""topic "a" with partitions 0 and 1, generation 7."""


def test_user_data_of_sticky_are_javas_bytes() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data(frozenset("a")) is None
    assignor.on_assignment(frozenset(tps("a1 a0")), 7)
    assert assignor.user_data(frozenset("a")) == JAVA_V1


def test_user_data_of_cooperative_sticky_are_the_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.user_data(frozenset()) == b"\xff\xff\xff\xff"
    assignor.on_assignment(frozenset(), 7)
    assert assignor.user_data(frozenset()) == b"\0\0\0\7"


def test_a_generation_that_only_the_user_data_have_is_read_from_there() -> None:
    members = [
        member("x", "a", *tps("a0"), user_data=b"\0\0\0\7"),
        member("y", "a", *tps("a0 a1"), user_data=b"\0\0\0\6"),
    ]
    assert CooperativeStickyAssignor().assign(plain(a=2), members)["x"] == tps("a0")


def test_user_data_without_a_generation_are_read() -> None:
    x, y = member("x", "a"), member("y", "a", user_data=JAVA_V1[:-4])
    assert StickyAssignor().assign(plain(a=4), [x, y]) == {"x": tps("a2 a3"), "y": tps("a0 a1")}


@given(st.binary(max_size=40) | st.binary(max_size=8).map(lambda tail: JAVA_V1[:-4] + tail))
def test_any_bytes_of_another_client_are_survived(data: bytes) -> None:
    members = [member("x", "a", user_data=data), member("y", "a")]
    check_division(plain(a=3), members, StickyAssignor().assign(plain(a=3), members))


@pytest.mark.parametrize("count", [2**31 - 1, -1, 2**28])
def test_a_count_beyond_the_bytes_claims_nothing(count: int) -> None:
    data = struct.pack(">ih1si", 1, 1, b"a", count)
    assert StickyAssignor().assign(plain(a=1), [member("x", "a", user_data=data)]) == {"x": tps("a0")}
