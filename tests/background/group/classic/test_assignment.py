"""``kafka_async.background.group.classic.assignment``: what every assignor's answer is held to, and the order of members."""

import pytest

from kafka_async.background.group.classic.assignment import (
    RebalanceProtocol,
    checked,
    in_rack,
    join_order,
    racks_matter,
    subscribers,
)
from kafka_async.errors import IllegalStateError
from tests.background.group.classic.groups import member, plain, tps

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def test_members_that_an_assignor_leaves_out_get_nothing() -> None:
    members = [member("x", "a"), member("y", "a")]
    assert checked({"x": tps("a1 a0")}, members, EAGER) == {"x": tuple(tps("a0 a1")), "y": ()}


def test_strangers_are_refused_by_name() -> None:
    with pytest.raises(IllegalStateError, match="'z' are not in the group"):
        checked({"z": []}, [member("x", "a")], EAGER)


@pytest.mark.parametrize("given", [{"x": tps("a0"), "y": tps("a0")}, {"x": tps("a0 a0")}])
def test_no_partition_has_two_owners(given: dict[str, list[object]]) -> None:
    with pytest.raises(IllegalStateError, match="is given to 'x' and to"):
        checked(given, [member("x", "a"), member("y", "a")], EAGER)  # type: ignore[arg-type]  # parametrize loses the type


def test_a_cooperative_assignor_must_not_give_away_what_is_owned() -> None:
    members = [member("x", "a", *tps("a0")), member("y", "a")]
    with pytest.raises(IllegalStateError, match="not cooperative"):
        checked({"y": tps("a0")}, members, COOPERATIVE)
    assert checked({"y": tps("a0")}, members, EAGER)["y"] == tuple(tps("a0"))
    assert checked({"x": tps("a0"), "y": tps("a1")}, members, COOPERATIVE)["y"] == tuple(tps("a1"))


def test_static_members_come_first_by_instance_id() -> None:
    members = [member("a", "t"), member("z", "t", instance_id="i2"), member("b", "t", instance_id="i9"), member("0", "t")]
    assert [m.member_id for m in sorted(members, key=join_order)] == ["z", "b", "0", "a"]
    assert [m.member_id for m in subscribers(plain(t=1), members)["t"]] == ["z", "b", "0", "a"]


def test_topics_without_subscribers_or_metadata_are_left_out() -> None:
    assert list(subscribers(plain(a=1, b=1), [member("x", "bc")])) == ["b"]


@pytest.mark.parametrize(
    ("members", "partitions", "expected"),
    [
        ((), ({"r1"},), False),
        ((None,), ({"r1"}, {"r2"}), False),
        (("r3",), ({"r1"}, {"r2"}), False),
        (("r1",), ({"r1", "r2"}, {"r1", "r2"}), False),
        (("r1",), ({"r1"}, {"r2"}), True),
        (("r1",), (), False),
    ],
)
def test_racks_matter_if_it_makes_a_difference_who_reads(
    members: tuple[str | None, ...], partitions: tuple[set[str], ...], expected: bool
) -> None:
    assert racks_matter(members, [frozenset(racks) for racks in partitions]) is expected


def test_who_has_no_rack_does_not_care() -> None:
    assert in_rack(member("x", "a"), frozenset())
    assert in_rack(member("x", "a", rack="r1"), frozenset({"r1"}))
    assert not in_rack(member("x", "a", rack="r1"), frozenset({"r2"}))
