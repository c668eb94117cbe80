"""Offsets of topics that were deleted and created again."""

import pytest
from attrs import evolve

from kafka_async.background.cluster.cluster_view import Leader
from kafka_async.events import AssignmentApplied, Seek, SubscribePattern
from kafka_async.trace import Fault, Notice
from kafka_async.wire.messages import FetchRequest, ListOffsetsRequest, MetadataRequest

from ..support import A, World, asked, cluster, data, described, fetched, topic_id, until

OLD, NEW = topic_id("t"), topic_id("t", 1)


def made_anew() -> World:
    """Return a world that reads a topic which was deleted and created again; it is 1.1 then."""
    world = World()
    world.fetching({A: 70})
    world.background.metadata.request_update(1.0)
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(described("t", (1,), generation=1)), 1.1)
    return world


def again(world: World, now: float, generation: int, cluster_id: str = "c") -> list[str]:
    """Ask the cluster again; a broker names this generation of the topic. Return what is said about topics made anew."""
    world.seen.clear()
    world.background.metadata.request_update(now)
    until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    answer = cluster(described("t", (1,), generation=generation))
    world.answer(MetadataRequest, evolve(answer, cluster_id=cluster_id), now + 0.5)
    return [event.text for event in world.seen if isinstance(event, Notice) and "created again" in event.text]


def test_an_id_is_a_former_one_if_the_name_has_another_by_now() -> None:
    incarnations = made_anew().background.metadata.cluster.incarnations
    assert incarnations.is_former("t", OLD)
    assert not incarnations.is_former("t", NEW)
    assert not incarnations.is_former("t", None), "brokers before 2.8 have no ids"
    assert not incarnations.is_former("u", OLD), "nothing is known about it"


def test_a_topic_that_is_gone_is_no_former_one_before_there_is_another() -> None:
    world = World()
    world.fetching({A: 70})
    world.background.metadata.request_update(1.0)
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(), 1.1)
    assert not world.background.metadata.cluster.incarnations.is_former("t", OLD)
    assert world.background.metadata.cluster.incarnations.last("t") == OLD


def test_under_a_pattern_a_topic_that_is_read_is_a_former_one_when_another_takes_its_name() -> None:
    world = World()
    world.send(SubscribePattern(matches=lambda topic: topic == "t", exclude_internal=True))
    world.learn(described("t", (1,)))
    world.send(AssignmentApplied(stamps={A: 1}))
    until(world, lambda: world.background.subscription.get(A) is not None, 1.0)
    world.background.metadata.request_update(5.0)
    until(world, lambda: bool(world.waiting(MetadataRequest)), 5.0)
    world.answer(MetadataRequest, cluster(), 5.5)
    assert again(world, 10.0, generation=1) != []


def test_a_broker_that_names_a_topic_which_was_replaced_is_behind_and_makes_nothing_anew() -> None:
    world = made_anew()
    view = world.background.metadata.cluster
    for now in (10.0, 20.0):
        assert again(world, now, generation=0) == []
        assert (view.topic_id("t"), view.incarnations.last("t"), view.leader(A)) == (NEW, NEW, Leader(1, 0))
        until(world, lambda: bool(world.waiting(MetadataRequest)), now + 0.5)
        world.answer(MetadataRequest, cluster(described("t", (1,), generation=1)), now + 2.0)
    assert again(world, 30.0, generation=2) != [], "a third one is new"
    assert again(world, 40.0, generation=1) == again(world, 50.0, generation=0) == []


def test_a_topic_that_was_replaced_is_believed_when_nobody_has_named_another_for_a_request_timeout() -> None:
    world = made_anew()
    assert again(world, 10.0, generation=0) == again(world, 39.0, generation=0) == []
    assert again(world, 41.0, generation=0) != []
    assert world.background.metadata.cluster.topic_id("t") == OLD
    assert again(world, 50.0, generation=1) == [], "now this one was replaced"


def test_a_topic_that_was_replaced_is_believed_at_once_in_another_cluster() -> None:
    """The name of the bootstrap servers was moved to another cluster, and back."""
    world = World()
    world.fetching({A: 70})
    assert again(world, 10.0, generation=1, cluster_id="d") != []
    assert again(world, 20.0, generation=0, cluster_id="c") != []
    assert world.background.metadata.cluster.topic_id("t") == OLD


def test_what_was_replaced_is_forgotten_with_the_topic() -> None:
    world = made_anew()
    incarnations = world.background.metadata.cluster.incarnations
    assert incarnations.is_outdated("t", OLD, 2.0, 30.0)
    incarnations.keep(())
    assert not incarnations.is_outdated("t", OLD, 3.0, 30.0)


@pytest.mark.parametrize(("made_under", "expected"), [(OLD, None), (NEW, 50), (None, 50)])
def test_a_seek_counts_for_the_topic_that_it_was_made_under(made_under: object, expected: int | None) -> None:
    world = made_anew()
    world.answer(FetchRequest, fetched(data(A)), 1.15)  # was on its way
    world.stamps[A] += 1
    world.send(Seek(partition=A, stamp=world.stamps[A], offset=50, topic_id=made_under))  # type: ignore[arg-type]  # a parameter
    kind = ListOffsetsRequest if expected is None else FetchRequest
    until(world, lambda: bool([r for r in world.waiting(kind) if expected is None or asked(r) == {0: expected}]), 1.2)


def test_what_is_dropped_is_said_once_for_each_kind() -> None:
    world = made_anew()
    incarnations = world.background.metadata.cluster.incarnations
    for _ in range(3):
        incarnations.say("a position", A, OLD, 2.0, world.seen.append, subject="fetch")
        incarnations.say("an offset to commit", A, OLD, 2.0, world.seen.append, subject="fetch")
        incarnations.say("a position", A, None, 2.0, world.seen.append, subject="fetch")
    said = [event.text for event in world.seen if isinstance(event, Fault) and "former" in event.text]
    assert said == [
        "topic 't' was deleted and created again: a position of the former topic is dropped",
        "topic 't' was deleted and created again: an offset to commit of the former topic is dropped",
    ]
