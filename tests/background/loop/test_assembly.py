"""The parts of the background: which a consumer has, in which order they are polled, and who hears of what."""

from typing import Any

from kafka_async.background.cluster.telemetry import TelemetryManager
from kafka_async.background.group.group_managers import GroupManagers
from kafka_async.background.positions.topic_follower import TopicFollower
from kafka_async.errors import NotLeaderOrFollowerError
from kafka_async.trace import Fault
from kafka_async.wire.messages import FetchRequest, FindCoordinatorRequest, ListOffsetsRequest, MetadataRequest

from ..support import A, World, asked, cluster, data, described, fetched, records


def parts(world: World) -> list[str]:
    return [type(manager).__name__ for manager in world.background.agenda.managers]


def test_a_consumer_without_a_group_has_no_parts_of_one() -> None:
    world = World()
    assert parts(world) == [
        "TopicFollower",
        "PositionsManager",
        "StoppedEnds",
        "ListOffsetsManager",
        "FetchManager",
        "MetadataManager",
    ]
    assert world.background.group is None
    assert isinstance(world.background.subscriber, TopicFollower)


def test_whoever_asks_another_part_for_something_is_polled_before_it() -> None:
    world = World(group_id="g")
    found = parts(world)
    asks = [
        ("GroupManagers", "FindCoordinatorManager"),
        ("PositionsManager", "OffsetFetchManager"),
        ("PositionsManager", "ListOffsetsManager"),
        ("OffsetCommitManager", "FindCoordinatorManager"),
        ("OffsetFetchManager", "FindCoordinatorManager"),
        ("StoppedEnds", "ListOffsetsManager"),
        ("ListOffsetsManager", "FetchManager"),
    ]
    assert [(asker, asked) for asker, asked in asks if found.index(asker) > found.index(asked)] == []
    assert found[-1] == "MetadataManager", "every other one may find that it needs an update"
    assert isinstance(world.background.group, GroupManagers)
    assert world.background.subscriber is world.background.group


class Source:
    """Metrics for telemetry: none."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


def test_telemetry_is_a_part_only_with_a_source_of_metrics() -> None:
    assert World().background.telemetry is None
    pushing = World(metrics_source=Source())
    assert isinstance(pushing.background.telemetry, TelemetryManager)
    assert pushing.background.agenda.managers[-1] is pushing.background.telemetry


def test_what_one_part_asks_of_another_leaves_in_the_same_turn() -> None:
    alone, member = World(), World(group_id="g")
    for world in (alone, member):
        world.assign(A)
    assert [type(request) for request in member.poll(0.0)] == [FindCoordinatorRequest, MetadataRequest], "for committed offsets"
    alone.learn(described("t", (1, 1)))
    assert [type(request) for request in alone.poll(0.1)] == [ListOffsetsRequest], "for the first position"


def test_fetching_hears_of_a_new_leader_from_the_metadata() -> None:
    world = World()
    world.fetching({A: 0}, (1,))
    world.answer(FetchRequest, fetched(data(A, error_code=NotLeaderOrFollowerError.errno)), 0.2)
    world.poll(0.2)
    world.answer(MetadataRequest, cluster(described("t", (2,), epoch=1)), 0.3)
    world.poll(0.3)
    assert [request.node_id for request in world.unsent if isinstance(request.message, FetchRequest)] == [2]


def test_a_seek_is_fetched_in_its_turn() -> None:
    world = World()
    world.fetching({A: 0}, (1,))
    world.answer(FetchRequest, fetched(data(A, records(0, 1))), 0.2)
    world.seek(A, 50)
    assert [asked(request) for request in world.poll(0.3) if isinstance(request, FetchRequest)] == [{0: 50}]


def test_what_a_part_traces_is_heard_once_by_the_listener_of_the_consumer() -> None:
    world = World()
    world.fetching({A: 0}, (1,))
    world.answer(FetchRequest, ConnectionError("gone"), 0.2)
    assert [type(event) for event in world.seen].count(Fault) == 1
