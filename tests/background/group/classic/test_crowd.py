"""``kafka_async.background.group.classic.classic_membership``: several members in one group, what no order of events may break."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.model import TopicPartition
from tests.background.group.classic.crowd import Crowd
from tests.background.group.classic.world import AB, World, topic
from tests.effort import examples

OFTEN = ("step", "step", "act", "act")
RARE = ("add", "leave", "forget", "cut", "grow", "enforce")
ACTIONS = st.lists(st.tuples(st.sampled_from((*OFTEN, *RARE)), st.integers(0, 4)), max_size=60)


def _leave(crowd: Crowd, world: World, now: float) -> None:
    crowd.worlds.remove(world)
    for request in world.member.poll_on_close(now).requests:
        crowd.group.answer(request, now)


def _grow(crowd: Crowd) -> None:
    for world in crowd.worlds:
        world.metadata.update(topic("a", len(world.metadata.topics["a"].partitions) + 1))


def _perform(crowd: Crowd, action: str, world: World, now: float) -> None:
    match action:
        case "step":
            crowd.step(world, now)
        case "act":
            crowd.act(world, now)
        case "add" if len(crowd.worlds) < 5:
            crowd.add(now, AB)
        case "leave" if len(crowd.worlds) > 1:
            _leave(crowd, world, now)
        case "forget":
            crowd.group.forget(world.member.identity.member_id, now)
        case "cut":
            crowd.cut(world, now)
        case "grow":
            _grow(crowd)
        case "enforce":
            world.member.enforce_rebalance("", now)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
@examples(0.3)
@given(actions=ACTIONS)
def test_whatever_happens_no_partition_has_two_owners_and_the_group_settles(strategy: str, actions: list[tuple[str, int]]) -> None:
    crowd = Crowd({"partition_assignment_strategy": (strategy,), "max_poll_interval_ms": 10_000_000})
    crowd.add(0.0, AB)
    now = 0.0
    for action, number in actions:
        now += 0.5
        _perform(crowd, action, crowd.worlds[number % len(crowd.worlds)], now)
        assert len(crowd.owners()) == len(set(crowd.owners()))
    counts = {name: max(len(w.metadata.topics[name].partitions) for w in crowd.worlds) for name in "ab"}
    for world in crowd.worlds:
        world.metadata.update(*(topic(name, count) for name, count in counts.items()))
    ghosts = crowd.group.members() - {world.member.identity.member_id for world in crowd.worlds}
    for ghost in ghosts:
        crowd.group.forget(ghost, now)
    for _ in range(60):
        now += 1.5
        for world in crowd.worlds:
            crowd.step(world, now)
            crowd.act(world, now)
            assert len(crowd.owners()) == len(set(crowd.owners()))
    assert [world.moves()[-1] for world in crowd.worlds] == ["STABLE"] * len(crowd.worlds)
    assert crowd.owners() == sorted(TopicPartition(name, number) for name, count in counts.items() for number in range(count))
    assert all(not world.host.errors for world in crowd.worlds)
