"""One turn of the background: events, deadlines, managers."""

from math import inf
from uuid import UUID

import pytest

from kafka_async.background.boundary import FetchedData
from kafka_async.background.cluster.metrics_source import MetricsSelection
from kafka_async.background.positions.subscription import FetchState
from kafka_async.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_async.events import (
    ApplicationEvent,
    AssignFromUser,
    AssignmentApplied,
    BackgroundSnapshot,
    Call,
    ClusterDescription,
    ClusterReachability,
    CommitOffsets,
    ErrorEvent,
    FindClientInstanceId,
    FindPositions,
    HaltPartition,
    ListOffsets,
    MetadataUpdated,
    PausePartitions,
    Refusals,
    ResetOffset,
    ResumePartitions,
    Seek,
    Stop,
    SubscribeTopics,
    TakeSnapshot,
    TopicMetadata,
    Unsubscribe,
)
from kafka_async.model import OffsetAndMetadata, TopicPartition
from kafka_async.network import Reachability
from kafka_async.trace import Fault, Unassigned
from kafka_async.wire.messages import (
    Coordinator,
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GetTelemetrySubscriptionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from ..support import TELEMETRY, A, B, World, asked, cluster, data, described, fetched, records


def test_events_are_carried_out_in_their_order() -> None:
    world = World()
    world.fetching({A: 0})
    world.send(PausePartitions(partitions=frozenset((A,))))
    world.send(ResumePartitions(partitions=frozenset((A,))))
    world.seek(A, 5)
    world.seek(A, 9)
    world.poll(1.0)
    entry = world.background.subscription.partitions[A]
    assert entry.position is not None
    assert (entry.position.offset, entry.paused) == (9, False)


@pytest.mark.parametrize("what", ["seek", "reset", "halt"])
def test_an_event_about_a_position_that_no_longer_counts_changes_nothing(what: str) -> None:
    world = World()
    world.fetching({A: 5})
    stamp = world.stamps[A] - 1
    events: dict[str, ApplicationEvent] = {
        "seek": Seek(partition=A, stamp=stamp, offset=77),
        "reset": ResetOffset(stamps={A: stamp}, strategy="latest"),
        "halt": HaltPartition(partition=A, stamp=stamp),
    }
    world.send(events[what])
    world.poll(1.0)
    entry = world.background.subscription.partitions[A]
    assert entry.position is not None
    assert (entry.position.offset, entry.state) == (5, FetchState.FETCHING)


def test_events_about_what_is_not_assigned_change_nothing() -> None:
    world = World()
    world.fetching({A: 5})
    world.send(Seek(partition=B, stamp=99, offset=77))
    world.send(ResetOffset(stamps={B: 99}, strategy="latest"))
    world.send(HaltPartition(partition=B, stamp=99))
    world.send(PausePartitions(partitions=frozenset((B,))))
    world.poll(1.0)
    assert set(world.background.subscription.partitions) == {A}


def test_a_halted_partition_waits_for_a_seek() -> None:
    world = World()
    world.fetching({A: 5})
    for _ in range(2):
        world.send(HaltPartition(partition=A, stamp=world.stamps[A]))
    world.poll(1.0)
    assert world.background.subscription.partitions[A].state is FetchState.HALTED
    world.seek(A, 8)
    world.poll(1.0)
    assert world.background.subscription.partitions[A].state is FetchState.FETCHING


def test_what_is_set_aside_is_not_fetched_and_what_was_on_its_way_is_taken_and_goes_on_when_it_comes_back() -> None:
    world = World()
    world.fetching({A: 5, B: 7})
    stamps = dict(world.stamps)
    world.send(AssignmentApplied(stamps={}, set_aside=frozenset((A, B))))
    world.poll(1.0)
    assert world.background.snapshot().partitions == {}
    world.answer(FetchRequest, fetched(data(A, records(5, 3)), data(B)), 1.0)
    world.poll(1.1)
    assert not world.waiting(FetchRequest)
    world.send(AssignmentApplied(stamps={A: stamps[A]}))
    world.poll(1.2)
    (parcel,) = world.read_all()
    assert isinstance(parcel, FetchedData)
    assert (parcel.partition, parcel.stamp, parcel.fetch_offset) == (A, stamps[A], 5)
    (request,) = world.waiting(FetchRequest)
    assert asked(request) == {0: 8}
    assert set(world.background.subscription.partitions) == {A}


@pytest.mark.parametrize("event", [Unsubscribe(), AssignFromUser(stamps={})])
def test_what_is_set_aside_is_dropped_by_whatever_the_application_wants_next(event: ApplicationEvent) -> None:
    world = World()
    world.fetching({A: 5})
    world.send(AssignmentApplied(stamps={}, set_aside=frozenset((A,))))
    world.send(event)
    world.poll(1.0)
    assert world.background.subscription.partitions == {}


def test_that_partitions_left_is_traced_once_and_not_while_they_are_set_aside() -> None:
    def left(world: World) -> list[Unassigned]:
        return [event for event in world.seen if isinstance(event, Unassigned)]

    world = World()
    world.fetching({A: 5, B: 7})
    stamps = dict(world.stamps)
    world.send(AssignmentApplied(stamps={A: stamps[A]}, set_aside=frozenset((B,))))
    world.poll(1.0)
    assert left(world) == []
    world.send(AssignmentApplied(stamps={A: stamps[A]}))
    world.send(AssignmentApplied(stamps={A: stamps[A]}))
    world.poll(2.0)
    world.send(Unsubscribe())
    world.poll(3.0)
    assert left(world) == [
        Unassigned(now=2.0, partitions=frozenset((B,))),
        Unassigned(now=3.0, partitions=frozenset((A,))),
    ]


def test_a_partition_that_left_and_came_back_in_one_step_did_leave() -> None:
    """An eager rebalance: it starts afresh, and nothing would end an outage of before."""
    world = World()
    world.fetching({A: 5, B: 7})
    stamps = dict(world.stamps)
    world.send(AssignmentApplied(stamps={A: stamps[A] + 100, B: stamps[B]}))
    world.poll(1.0)
    assert [event for event in world.seen if isinstance(event, Unassigned)] == [Unassigned(now=1.0, partitions=frozenset((A,)))]


def test_unsubscribe_drops_everything() -> None:
    world = World()
    world.fetching({A: 5})
    call: Call[None] = Call(9.0)
    world.send(Unsubscribe(call=call))
    world.poll(1.0)
    assert world.background.subscription.partitions == {}
    assert call.done


def test_what_is_said_of_the_group_carries_the_number_of_the_subscription_that_it_is_about() -> None:
    world = World()
    world.handler.publish_error(KafkaTimeoutError("before"))
    world.send(AssignFromUser(stamps={}, subscription=1))
    world.poll(0.0)
    world.handler.publish_error(KafkaTimeoutError("assigned"))
    world.send(SubscribeTopics(topics=frozenset("t"), subscription=2))
    world.poll(0.0)
    world.handler.publish_error(KafkaTimeoutError("subscribed"), final=True)
    world.send(Unsubscribe(subscription=3))
    world.poll(0.0)
    world.handler.publish_error(KafkaTimeoutError("unsubscribed"))
    events = [event for event in world.events() if isinstance(event, ErrorEvent)]
    assert [event.subscription for event in events] == [0, 1, 2, 3]
    assert [event.final for event in events] == [False, False, True, False]


def test_an_error_of_the_next_subscription_is_said_though_it_reads_like_the_last_one() -> None:
    world = World()
    for number in (1, 1, 2):
        world.handler.subscription = number
        world.handler.publish_error(KafkaTimeoutError("late"))
    assert len(world.errors()) == 2


def commit_of_a_topic_that_is_not_there(world: World, along: frozenset[TopicPartition] = frozenset()) -> Call[Refusals]:
    """Commit ``A`` and have that answered with an unknown topic."""
    world.learn(described("t", (1, 1)))
    call: Call[Refusals] = Call(5.0)
    world.send(CommitOffsets(call=call, offsets={A: OffsetAndMetadata(7)}, along=along))
    world.poll(0.1)
    found = Coordinator(key="g", node_id=1, host="b1", port=9092, error_code=0, error_message=None)
    world.answer(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=(found,)), 0.2)
    world.poll(0.2)
    refused = OffsetCommitResponsePartition(partition_index=A.partition, error_code=UnknownTopicOrPartitionError.errno)
    topics = (OffsetCommitResponseTopic(name=A.topic, partitions=(refused,)),)
    world.find(OffsetCommitRequest).on_done(OffsetCommitResponse(topics=topics), 0.3)
    return call


def test_a_commit_that_is_refused_in_part_until_its_deadline_names_what_was_refused() -> None:
    world = World(group_id="g")
    call = commit_of_a_topic_that_is_not_there(world)
    world.poll(4.9)
    assert not call.done
    world.poll(5.0)
    assert {tp: type(error) for tp, error in call.result().items()} == {A: UnknownTopicOrPartitionError}


def test_a_commit_is_not_held_up_by_a_partition_that_goes_along() -> None:
    world = World(group_id="g")
    call = commit_of_a_topic_that_is_not_there(world, along=frozenset((A,)))
    assert {tp: type(error) for tp, error in call.result().items()} == {A: UnknownTopicOrPartitionError}


def test_a_deadline_is_when_the_loop_wakes_and_the_call_fails() -> None:
    world = World()
    call: Call[ClusterDescription] = Call(3.0)
    world.send(TopicMetadata(call=call, topics=frozenset("t")))
    world.poll(0.0)
    assert world.wake_at == 3.0
    world.network.error = KafkaConnectionError("refused")
    world.poll(3.0)
    with pytest.raises(KafkaTimeoutError, match="refused") as caught:
        call.result()
    assert caught.value.__cause__ is world.network.error
    assert world.wake_at == inf


def test_a_call_that_was_withdrawn_wakes_nobody() -> None:
    world = World()
    call: Call[ClusterDescription] = Call(3.0)
    world.send(TopicMetadata(call=call, topics=frozenset("t")))
    world.poll(0.0)
    call.withdraw()
    world.poll(1.0)
    assert world.wake_at == inf


def test_news_of_the_cluster_are_reported_once() -> None:
    world = World()
    world.fetching({A: 0})
    cluster_reports = [event for event in world.events() if isinstance(event, MetadataUpdated)]
    assert set(cluster_reports[-1].cluster.topics) == {"t"}
    world.poll(5.0)
    assert world.events() == []


def test_a_snapshot_is_taken_at_once() -> None:
    world = World()
    world.fetching({A: 0})
    call: Call[BackgroundSnapshot] = Call(9.0)
    world.send(TakeSnapshot(call=call))
    world.poll(1.0)
    seen = call.result()
    assert (seen.cluster_id, seen.partitions[A].state, seen.partitions[A].leader) == ("c", "fetching", 1)
    assert seen.wake_ups >= 3


def test_whatever_waits_fails_when_the_loop_ends() -> None:
    world = World()
    told: Call[ClusterDescription] = Call(9.0)
    world.send(TopicMetadata(call=told, topics=None))
    world.poll(0.0)
    queued: Call[BackgroundSnapshot] = Call(9.0)
    world.send(TakeSnapshot(call=queued))
    world.background.fail_calls(ConsumerStoppedError("over"))
    for call in (told, queued):
        with pytest.raises(ConsumerStoppedError):
            call.result()


def test_faults_that_stopping_makes_are_not_worth_a_word() -> None:
    world = World()
    world.fetching({A: 0})
    world.send(Stop(call=Call(9.0)))
    world.poll(1.0)
    assert world.background.loop_state.stopping is not None
    world.seen.clear()
    world.answer(FetchRequest, KafkaConnectionError("the consumer is stopping"), 1.1)
    assert not any(isinstance(event, Fault) for event in world.seen)


def test_a_withdrawn_call_cannot_be_resolved_and_a_resolved_one_not_withdrawn() -> None:
    woken: list[int] = []
    call: Call[int] = Call(1.0, lambda: woken.append(1))
    call.withdraw()
    call.resolve(5)
    assert (call.done, call.withdrawn, woken) == (True, True, [])
    with pytest.raises(RuntimeError, match="withdrawn"):
        call.result()
    other: Call[int] = Call(1.0, lambda: woken.append(1))
    other.resolve(5)
    other.withdraw()
    other.fail(ValueError())
    assert (other.result(), woken) == (5, [1])


@pytest.mark.parametrize("backoff", [0, 1, 100])
@pytest.mark.parametrize("usable", [True, False])
def test_with_every_broker_down_the_loop_sleeps_between_its_attempts(backoff: int, usable: bool) -> None:
    """Every request ends in the same instant, as it does without a connection. Time must pass all the same."""
    world = World(retry_backoff_ms=backoff, retry_backoff_max_ms=max(backoff, 1))
    world.fetching({A: 0})
    world.seek(A, 3, leader_epoch=0)
    world.send(ListOffsets(call=Call(1e9), timestamps={B: -1}))
    world.send(FindPositions(call=Call(1e9), partitions=frozenset((A,))))
    world.network.usable = usable
    now = 1.0
    turns = 0
    while now < 3.0:
        turns += 1
        assert turns < 10_000, f"{turns} turns until {now}"
        poll = world.background.poll(now)
        for request in (*world.unsent, *poll.requests):
            request.on_done(KafkaConnectionError("gone"), now)
        world.unsent.clear()
        if not poll.requests:
            assert poll.wake_at > now
            now = poll.wake_at
    world.background.metadata.request_update(now)
    world.network.usable = True
    while not world.waiting(MetadataRequest):
        world.poll(now)
        now = max(now, world.wake_at) if world.wake_at < inf else now + 1
    world.answer(MetadataRequest, cluster(described("t", (1, 1))), now)
    assert world.background.metadata.cluster.nodes


class Silence:
    """A ``MetricsSource`` that has nothing to say."""

    def prepare(self) -> None: ...

    def encode(self, wanted: MetricsSelection, now: float) -> bytes:
        return b""

    def delivered(self) -> None: ...


def test_telemetry_is_polled_with_the_managers_and_can_be_off() -> None:
    world = World(metrics_source=Silence())
    world.network.offered = TELEMETRY
    world.poll(0.0)
    assert world.waiting(GetTelemetrySubscriptionsRequest)
    off = World()
    off.network.offered = TELEMETRY
    off.poll(0.0)
    assert not off.waiting(GetTelemetrySubscriptionsRequest)


def test_a_question_for_the_client_instance_id_is_refused_if_telemetry_is_off() -> None:
    world = World()
    call: Call[UUID] = Call(10.0)
    world.send(FindClientInstanceId(call=call))
    world.poll(0.0)
    with pytest.raises(IllegalStateError, match="enable_metrics_push"):
        call.result()


def test_a_question_for_the_client_instance_id_that_is_not_answered_says_why() -> None:
    world = World(metrics_source=Silence())
    world.network.offered = TELEMETRY
    call: Call[UUID] = Call(10.0)
    world.send(FindClientInstanceId(call=call))
    world.poll(0.0)
    world.answer(GetTelemetrySubscriptionsRequest, KafkaConnectionError("the line is dead"), 1.0)
    world.poll(10.0)
    with pytest.raises(KafkaTimeoutError, match="the line is dead"):
        call.result()


def test_whether_any_broker_can_be_reached_is_reported_when_it_changes() -> None:
    world = World()
    world.poll(0.0)
    world.network.reach = Reachability(5.0, 3.0)
    world.poll(6.0)
    world.poll(7.0)
    world.network.reach = Reachability(None, 8.0)
    world.poll(8.0)
    world.network.reach = Reachability(None, 9.0)
    world.poll(9.0)
    assert [event for event in world.events() if isinstance(event, ClusterReachability)] == [
        ClusterReachability(unreachable_since=5.0, last_answer_at=3.0),
        ClusterReachability(unreachable_since=None, last_answer_at=8.0),
    ]
    snapshot = world.background.snapshot()
    assert (snapshot.unreachable_since, snapshot.last_answer_at) == (None, 9.0)
