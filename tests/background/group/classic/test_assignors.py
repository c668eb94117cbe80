"""``kafka_async.background.group.classic.assignors``: Java's cases for range and roundrobin, properties, and the option."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from kafka_async.background.group.classic.assignment import Assignor, GroupMember, GroupTopics, RebalanceProtocol
from kafka_async.background.group.classic.assignors import RangeAssignor, RoundRobinAssignor, assignors_from, common_protocol
from kafka_async.config import ConsumerConfig
from kafka_async.model import TopicPartition
from tests.background.group.classic.groups import check_division, groups, member, plain, tps

Group = tuple[dict[str, tuple[frozenset[str], ...]], list[GroupMember]]


def divide(assignor: Assignor, topics: GroupTopics, *members: GroupMember) -> dict[str, str]:
    """Return the division in short: ``{"m1": "a0 a1"}``."""
    given = assignor.assign(topics, members)
    return {key: " ".join(f"{p.topic}{p.partition}" for p in partitions) for key, partitions in given.items()}


X, Y, Z = (member(name, "a") for name in "xyz")


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda a: a.name)
def test_a_lone_member_gets_all_it_subscribes_to(assignor: Assignor) -> None:
    assert divide(assignor, plain(a=3), X) == {"x": "a0 a1 a2"}
    assert divide(assignor, {}, X) == {"x": ""}
    assert divide(assignor, plain(a=3, other=3), X) == {"x": "a0 a1 a2"}
    assert divide(assignor, plain(a=1, b=2), member("x", "ab")) == {"x": "a0 b0 b1"}
    assert divide(assignor, plain(a=1), member("x", "")) == {"x": ""}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, {"x": "a0", "y": ""}),
        (2, {"x": "a0", "y": "a1"}),
        (3, {"x": "a0 a1", "y": "a2"}),
        (5, {"x": "a0 a1 a2", "y": "a3 a4"}),
    ],
)
def test_range_gives_rows_and_the_first_ones_more(count: int, expected: dict[str, str]) -> None:
    assert divide(RangeAssignor(), plain(a=count), Y, X) == expected


def test_range_divides_topics_of_equal_members_alike() -> None:
    assert divide(RangeAssignor(), plain(a=3, b=3), member("x", "ab"), member("y", "ab")) == {"x": "a0 a1 b0 b1", "y": "a2 b2"}


def test_range_divides_each_topic_among_its_subscribers() -> None:
    members = (member("x", "a"), member("y", "ab"), member("z", "a"))
    assert divide(RangeAssignor(), plain(a=3, b=2), *members) == {"x": "a0", "y": "a1 b0 b1", "z": "a2"}


def test_range_puts_static_members_first_so_that_a_new_member_id_changes_nothing() -> None:
    def static(member_id: str, instance_id: str) -> GroupMember:
        return member(member_id, "a", instance_id=instance_id)

    before = divide(RangeAssignor(), plain(a=3), static("p", "i2"), static("q", "i1"))
    after = divide(RangeAssignor(), plain(a=3), static("zz", "i2"), static("q", "i1"))
    assert (before["q"], before["p"]) == (after["q"], after["zz"]) == ("a0 a1", "a2")


def racks(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(name.split("+")) for name in names)


def test_range_prefers_racks_within_the_same_numbers() -> None:
    x, y = member("x", "a", rack="r2"), member("y", "a", rack="r1")
    assert divide(RangeAssignor(), {"a": racks("r1", "r2", "r1", "r2")}, x, y) == {"x": "a1 a3", "y": "a0 a2"}


def test_range_keeps_topics_divided_alike_before_it_looks_at_racks() -> None:
    x, y = member("x", "ab", rack="r2"), member("y", "ab", rack="r1")
    topics = {"a": racks("r1", "r2"), "b": racks("r1", "r2")}
    assert divide(RangeAssignor(), topics, x, y) == {"x": "a1 b1", "y": "a0 b0"}
    topics = {"a": racks("r1", "r2"), "b": racks("r2", "r1")}
    assert divide(RangeAssignor(), topics, x, y) == {"x": "a0 b0", "y": "a1 b1"}


def test_round_robin_deals_over_topics() -> None:
    members = (member("x", "ab"), member("y", "ab"))
    assert divide(RoundRobinAssignor(), plain(a=3, b=3), *members) == {"x": "a0 a2 b1", "y": "a1 b0 b2"}


def test_round_robin_passes_over_who_is_not_subscribed() -> None:
    members = (member("x", "a"), member("y", "ab"), member("z", "abc"))
    assert divide(RoundRobinAssignor(), plain(a=1, b=2, c=3), *members) == {"x": "a0", "y": "b0", "z": "b1 c0 c1 c2"}


@pytest.mark.slow
@given(groups())
def test_every_partition_has_one_subscriber(group: Group) -> None:
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        check_division(*group, assignor.assign(*group))


@pytest.mark.slow
@given(groups())
def test_range_is_even_within_each_topic(group: Group) -> None:
    topics, members = group
    given_ = RangeAssignor().assign(topics, members)
    for topic in topics:
        counts = [sum(p.topic == topic for p in given_[m.member_id]) for m in members if topic in m.topics]
        assert not counts or max(counts) - min(counts) <= 1


@pytest.mark.slow
@given(groups(alike=True))
def test_round_robin_is_even_if_all_subscribe_alike(group: Group) -> None:
    counts = [len(partitions) for partitions in RoundRobinAssignor().assign(*group).values()]
    assert max(counts) - min(counts) <= 1


@pytest.mark.slow
@given(groups())
def test_the_order_of_members_does_not_matter(group: Group) -> None:
    topics, members = group
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert assignor.assign(topics, members) == assignor.assign(dict(reversed(topics.items())), members[::-1])


# --- the option -----------------------------------------------------------------------------------------------------------------


class Mine:
    """The least that an assignor of a user's own needs."""

    name = "mine"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return None

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> dict[str, list[TopicPartition]]:
        return {members[0].member_id: tps("a0")}

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Nothing."""


class RoundRobinPartitionAssignor:
    """Looks like aiokafka's, which is a class that is never made."""

    name = "roundrobin"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        """Never called."""


def named(value: Any) -> list[str]:
    config = ConsumerConfig.from_options({"partition_assignment_strategy": value})
    return [assignor.name for assignor in assignors_from(config)]


def test_the_default_is_javas_and_eager_and_takes_over_from_aiokafka() -> None:
    """aiokafka's members offer roundrobin alone; last in the list, it is nobody's preference where another one is in common."""
    assignors = assignors_from(ConsumerConfig.from_options({}))
    assert [assignor.name for assignor in assignors] == ["range", "cooperative-sticky", "roundrobin"]
    assert common_protocol(assignors) is RebalanceProtocol.EAGER is common_protocol(assignors[:2])


def test_who_names_assignors_offers_these_alone() -> None:
    assert named(("range", "cooperative-sticky")) == ["range", "cooperative-sticky"]
    assert named(("cooperative-sticky",)) == ["cooperative-sticky"]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (("cooperative-sticky",), ["cooperative-sticky"]),
        (["sticky", "roundrobin"], ["sticky", "roundrobin"]),
        ("range, sticky", ["range", "sticky"]),
        (("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "RangeAssignor"), ["cooperative-sticky", "range"]),
        ((RoundRobinPartitionAssignor,), ["roundrobin"]),
        ((Mine, RangeAssignor()), ["mine", "range"]),
        (Mine(), ["mine"]),
    ],
)
def test_assignors_are_taken_by_name_class_or_object(value: Any, names: list[str]) -> None:
    assert named(value) == names


class NeedsArguments(Mine):
    def __init__(self, argument: int) -> None:
        """Cannot be made."""


class Nameless(Mine):
    name = ""


class WrongProtocols(Mine):
    protocols = ("eager",)  # type: ignore[assignment]  # the point of the test


class OnlyCooperative(Mine):
    protocols = (RebalanceProtocol.COOPERATIVE,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((), "at least one"),
        (("uniform",), "'uniform' is not known; expected one of 'range'"),
        (("range", "range"), "'range' is given more than once"),
        ((7,), "7 is not an assignor"),
        ((NeedsArguments,), "cannot be made without arguments"),
        ((Nameless,), "has the name ''"),
        ((WrongProtocols,), "expected RebalanceProtocol values"),
        ((OnlyCooperative, "range"), "'mine', 'range' have no rebalance protocol in common"),
    ],
)
def test_what_is_wrong_is_named(value: Any, text: str) -> None:
    with pytest.raises(ValueError, match="partition_assignment_strategy") as caught:
        common_protocol(assignors_from(ConsumerConfig.from_options({"partition_assignment_strategy": value})))
    assert text in str(caught.value)


def test_two_consumers_never_share_an_assignor_that_remembers() -> None:
    config = ConsumerConfig.from_options({"partition_assignment_strategy": ("sticky",)})
    assert assignors_from(config)[0] is not assignors_from(config)[0]


def test_all_cooperative_is_cooperative() -> None:
    config = ConsumerConfig.from_options({"partition_assignment_strategy": ("cooperative-sticky", OnlyCooperative)})
    assert common_protocol(assignors_from(config)) is RebalanceProtocol.COOPERATIVE
