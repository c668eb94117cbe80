"""The background of a share consumer: what each event does, in which order it is polled, and what it publishes."""

from typing import Any
from uuid import UUID

import pytest

from kafka_async.background.share.orders import Close, Flush
from kafka_async.errors import IllegalStateError, KafkaTimeoutError, NotCoordinatorError, UnsupportedVersionError
from kafka_async.events import (
    BackgroundSnapshot,
    Call,
    ClusterDescription,
    FindClientInstanceId,
    GroupChanged,
    PartitionSnapshot,
    ShareEvent,
    Stop,
    SubscribeTopics,
    TakeSnapshot,
    TopicMetadata,
    Unsubscribe,
)
from kafka_async.model import ConsumerState, TopicPartition
from kafka_async.trace import Fault, Recovered, Unassigned
from kafka_async.wire.messages import (
    FindCoordinatorRequest,
    MetadataRequest,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.background.support import cluster, described

from .world import TP, World, accept, acknowledged, acquired, fetched, taken_in


def changes(world: World) -> list[GroupChanged]:
    return [event for event in world.handler.drain_background() if isinstance(event, GroupChanged)]


def test_what_one_part_asks_of_another_leaves_in_the_same_turn() -> None:
    world = World()
    world.handler.add(SubscribeTopics(topics=frozenset(("t",)), subscription=1))
    assert [type(request) for request in world.poll(0.0)] == [FindCoordinatorRequest, MetadataRequest], "the member asks for both"


def test_a_subscription_that_changes_is_known_by_its_number_and_its_new_topics_are_asked_for() -> None:
    world = World()
    world.joined(0)
    world.handler.add(SubscribeTopics(topics=frozenset(("t", "u")), subscription=2))
    requests = world.poll(1.0)
    assert world.handler.subscription == 2
    assert [request.topics for request in requests if isinstance(request, MetadataRequest)] != []
    (heartbeat,) = [request for request in requests if isinstance(request, ShareGroupHeartbeatRequest)]
    assert heartbeat.subscribed_topic_names == ("t", "u")


def test_unsubscribing_leaves_the_group_and_is_answered_then() -> None:
    world = World()
    world.joined(0)
    call: Call[None] = Call(100.0)
    world.handler.add(Unsubscribe(call=call, subscription=2))
    world.poll(1.0)
    assert not call.done
    left = world.answer(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse(member_epoch=-1), 1.0)
    assert left.member_epoch == -1
    world.poll(1.0)
    assert call.done
    assert world.background.fetch.partitions == frozenset()


def test_assigned_partitions_without_a_leader_are_said_until_they_have_one_or_leave() -> None:
    world = World()
    world.joined(0, 1, leaders=(-1, -1))

    def learn(now: float, *leaders: int) -> list[tuple[type, frozenset[TopicPartition]]]:
        """The cluster is asked and answers; return what is said of partitions then."""
        world.seen.clear()
        world.background.metadata.request_update(now)
        world.poll(now)
        world.answer(MetadataRequest, cluster(described("t", leaders)), now)
        world.poll(now)
        return [(type(event), event.partitions) for event in world.seen if isinstance(event, (Fault, Recovered, Unassigned))]

    both = frozenset((TP, TopicPartition("t", 1)))
    learn(2.0, -1, -1)
    assert learn(5.0, -1, -1) == [(Fault, both)]
    assert learn(7.0, 1, -1) == [(Recovered, frozenset((TP,))), (Fault, both - {TP})]
    world.answer(ShareGroupHeartbeatRequest, taken_in(0, epoch=2), 8.0)
    assert learn(10.0, 1, -1) == []


def test_a_look_up_is_answered_from_the_clusters_answer_and_fails_at_its_deadline() -> None:
    world = World()
    world.coordinated()
    found: Call[ClusterDescription] = Call(100.0)
    late: Call[ClusterDescription] = Call(5.0)
    world.handler.add(TopicMetadata(call=found, topics=frozenset(("u",))))
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(described("t", (1, 1)), described("u", (1,))), 1.0)
    world.poll(1.0)
    assert "u" in found.result().topics
    world.handler.add(TopicMetadata(call=late, topics=frozenset(("v",))))
    world.poll(2.0)
    assert world.wake_at <= 5.0
    world.poll(5.0)
    with pytest.raises(KafkaTimeoutError):
        late.result()


def test_a_snapshot_has_the_assigned_partitions_and_who_leads_them() -> None:
    world = World()
    world.joined(0, 1, leaders=(1, -1))
    call: Call[BackgroundSnapshot] = Call(100.0)
    world.handler.add(TakeSnapshot(call=call))
    world.poll(1.0)
    assert call.result().partitions == {
        TP: PartitionSnapshot(state="fetching", leader=1, read_replica=None),
        TopicPartition("t", 1): PartitionSnapshot(state="fetching", leader=None, read_replica=None),
    }
    before = call.result().wake_ups
    assert before > 0
    world.poll(2.0)
    assert world.background.snapshot().wake_ups == before + 1


def test_a_client_without_telemetry_has_no_id_of_an_instance() -> None:
    world = World()
    call: Call[UUID] = Call(100.0)
    world.handler.add(FindClientInstanceId(call=call))
    world.poll(0.0)
    assert call.done
    with pytest.raises((IllegalStateError, UnsupportedVersionError)):
        call.result()


def test_a_stop_is_left_to_the_loop() -> None:
    world = World()
    call: Call[None] = Call(100.0)
    assert world.background.loop_state.stopping is None
    world.handler.add(Stop(call=call))
    world.poll(0.0)
    assert world.background.loop_state.stopping is call
    assert not call.done


def test_the_group_is_published_when_it_is_another_than_before() -> None:
    world = World()
    world.coordinated()
    before = changes(world)
    assert [change.member_id for change in before] == ["me"] * len(before)
    world.poll(0.1)
    assert changes(world) == []
    world.answer(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse(member_epoch=3, heartbeat_interval_ms=5000), 0.2)
    world.poll(0.2)
    (change,) = changes(world)
    assert (change.generation, change.subscription, change.denied) == (3, 1, False)
    assert change.coordinator is not None


def test_the_end_settles_acknowledgements_then_closes_sessions_then_leaves_and_shows_that_it_is_closed() -> None:
    world = World()
    delivery = world.delivered(2)
    world.poll(0.1)
    if world.waiting(ShareFetchRequest):
        world.answer(ShareFetchRequest, fetched(), 0.1)
    accept(world, delivery, 0, 1)
    call: Call[None] = Call(100.0)
    world.exchange.order(Close(call=call))
    world.poll(0.2)
    assert world.answer(ShareAcknowledgeRequest, acknowledged(), 0.2).share_session_epoch > 0
    world.poll(0.3)
    world.poll(0.3)
    assert world.answer(ShareAcknowledgeRequest, ShareAcknowledgeResponse(), 0.3).share_session_epoch == -1
    world.poll(0.4)
    world.poll(0.4)
    assert changes(world)[-1].state is ConsumerState.CLOSED
    assert world.answer(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse(member_epoch=-1), 0.4).member_epoch == -1
    world.poll(0.5)
    assert call.done


@pytest.mark.parametrize("taken", [False, True], ids=["not taken yet", "taken"])
def test_every_call_fails_with_the_loop_whatever_has_become_of_it(taken: bool) -> None:
    world = World()
    world.delivered(1)
    delivery = world.exchange.delivered
    assert delivery == 1
    flush: Call[Any] = Call(100.0)
    close: Call[None] = Call(100.0)
    snapshot: Call[BackgroundSnapshot] = Call(100.0)
    look_up: Call[ClusterDescription] = Call(100.0)
    events: list[ShareEvent] = [TopicMetadata(call=look_up, topics=frozenset(("v",)))]
    for event in events if taken else [*events, TakeSnapshot(call=snapshot)]:
        world.handler.add(event)
    world.exchange.order(Close(call=close))
    if not taken:
        world.exchange.order(Flush(call=flush))
    else:
        world.poll(0.1)
    world.background.fail_calls(ConnectionError("the loop is gone"))
    for call in (look_up, close) if taken else (look_up, close, flush, snapshot):
        with pytest.raises(ConnectionError):
            call.result()


def test_what_is_left_at_the_end_is_a_request_to_leave() -> None:
    world = World()
    world.joined(0)
    world.answer(ShareFetchRequest, fetched(acquired(0, 1)), 0.0)
    (request,) = world.background.poll_on_close(1.0).requests
    assert isinstance(request.message, ShareGroupHeartbeatRequest)
    assert request.message.member_epoch == -1
    assert world.background.is_leaving
    assert not world.background.is_being_named, "members of share groups name themselves"
    request.on_done(ShareGroupHeartbeatResponse(error_code=NotCoordinatorError.errno), 1.0)
    search = [each for now in (1.0, 2.0) for each in world.background.poll_leaving(now).requests]
    assert [type(each.message) for each in search] == [FindCoordinatorRequest], "it has moved"
    assert all(each.final for each in search), "it is still sent"
