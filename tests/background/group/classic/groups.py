"""Hypothesis strategies for classic groups: topics with racks, members with subscriptions, and what must hold of any division."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from kafka_async.background.group.classic.assignment import GroupMember, GroupTopics
from kafka_async.model import TopicPartition

RACKS = ("r1", "r2", "r3")


def plain(**counts: int) -> dict[str, tuple[frozenset[str], ...]]:
    """Topics without racks: ``plain(a=3)``."""
    return {topic: (frozenset(),) * count for topic, count in counts.items()}


def member(member_id: str, topics: str, *owned: TopicPartition, **more: Any) -> GroupMember:
    """A member whose topics are the letters of a string."""
    return evolve(GroupMember(member_id=member_id, topics=frozenset(topics), owned=tuple(sorted(owned))), **more)


def tps(text: str) -> list[TopicPartition]:
    """``tps("a0 b12")``."""
    return [TopicPartition(part[0], int(part[1:])) for part in text.split()]


@st.composite
def topics(draw: st.DrawFn) -> dict[str, tuple[frozenset[str], ...]]:
    racks = st.frozensets(st.sampled_from(RACKS), max_size=3) if draw(st.booleans()) else st.just(frozenset[str]())
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True))
    return {name: tuple(draw(st.lists(racks, min_size=0, max_size=9))) for name in names}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[dict[str, tuple[frozenset[str], ...]], list[GroupMember]]:
    found = draw(topics())
    count = draw(st.integers(1, 6))
    wanted = st.frozensets(st.sampled_from("abcdef"), max_size=5)
    same = draw(wanted) if alike or draw(st.booleans()) else None
    members = [
        GroupMember(
            member_id=f"m{number}",
            topics=same if same is not None else draw(wanted),
            instance_id=draw(st.sampled_from((None, f"i{9 - number}"))),
            rack=draw(st.sampled_from((None, *RACKS))),
        )
        for number in range(count)
    ]
    return found, members


def check_division(topics: GroupTopics, members: Sequence[GroupMember], given: Mapping[str, Iterable[TopicPartition]]) -> None:
    """Every partition that somebody subscribes to belongs to exactly one subscriber, and nothing else belongs to anybody."""
    wanted = frozenset().union(*(member.topics for member in members)) if members else frozenset[str]()
    expected = sorted(TopicPartition(topic, number) for topic in wanted & topics.keys() for number in range(len(topics[topic])))
    assert sorted(partition for partitions in given.values() for partition in partitions) == expected
    subscriptions = {member.member_id: member.topics for member in members}
    assert all(partition.topic in subscriptions[key] for key, partitions in given.items() for partition in partitions)


def is_even(members: Sequence[GroupMember], given: Mapping[str, Sequence[TopicPartition]]) -> bool:
    """Whether nobody has two more than another member that could take one of his partitions."""
    return not any(
        len(given[rich.member_id]) >= len(given[poor.member_id]) + 2
        and any(partition.topic in poor.topics for partition in given[rich.member_id])
        for rich in members
        for poor in members
    )
