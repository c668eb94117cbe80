"""One turn of the background: events, deadlines, managers."""

from math import inf
from uuid import UUID

import pytest

from kafka_async.background.subscription import FetchState
from kafka_async.background.telemetry import Wanted
from kafka_async.errors import ConsumerStoppedError, IllegalStateError, KafkaConnectionError, KafkaTimeoutError
from kafka_async.events import (
    ApplicationEvent,
    BackgroundSnapshot,
    Call,
    ClusterDescription,
    FindClientInstanceId,
    FindPositions,
    HaltPartition,
    ListOffsets,
    MetadataUpdated,
    PausePartitions,
    ResetOffset,
    ResumePartitions,
    Seek,
    Stop,
    TakeSnapshot,
    TopicMetadata,
    Unsubscribe,
)
from kafka_async.trace import Fault
from kafka_async.wire.messages import FetchRequest, GetTelemetrySubscriptionsRequest, MetadataRequest

from .support import A, B, World, cluster, described


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


def test_unsubscribe_drops_everything() -> None:
    world = World()
    world.fetching({A: 5})
    call: Call[None] = Call(9.0)
    world.send(Unsubscribe(call=call))
    world.poll(1.0)
    assert world.background.subscription.partitions == {}
    assert call.done


def test_a_deadline_is_when_the_loop_wakes_and_the_call_fails() -> None:
    world = World()
    call: Call[ClusterDescription] = Call(3.0)
    world.send(TopicMetadata(call=call, topics=frozenset("t")))
    world.poll(0.0)
    assert world.wake_at == 3.0
    world.connection_error = KafkaConnectionError("refused")
    world.poll(3.0)
    with pytest.raises(KafkaTimeoutError, match="refused") as caught:
        call.result()
    assert caught.value.__cause__ is world.connection_error
    assert world.wake_at == inf


def test_a_call_that_was_withdrawn_wakes_nobody() -> None:
    world = World()
    call: Call[ClusterDescription] = Call(3.0)
    world.send(TopicMetadata(call=call, topics=frozenset("t")))
    world.poll(0.0)
    call.withdraw()
    world.poll(1.0)
    assert world.wake_at == inf


def test_news_of_the_cluster_are_told_once() -> None:
    world = World()
    world.fetching({A: 0})
    news = [event for event in world.events() if isinstance(event, MetadataUpdated)]
    assert set(news[-1].cluster.topics) == {"t"}
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
    assert world.background.stopping is not None
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
    world.usable = usable
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
    world.usable = True
    while not world.waiting(MetadataRequest):
        world.poll(now)
        now = max(now, world.wake_at) if world.wake_at < inf else now + 1
    world.answer(MetadataRequest, cluster(described("t", (1, 1))), now)
    assert world.background.nodes


class Silence:
    """A ``MetricsSource`` that has nothing to say."""

    def encode(self, wanted: Wanted, now: float) -> bytes:
        return b""

    def delivered(self) -> None: ...


def test_telemetry_is_polled_with_the_managers_and_can_be_off() -> None:
    world = World(metrics_source=Silence())
    world.offers_telemetry = True
    world.poll(0.0)
    assert world.waiting(GetTelemetrySubscriptionsRequest)
    off = World()
    off.offers_telemetry = True
    off.poll(0.0)
    assert not off.waiting(GetTelemetrySubscriptionsRequest)


def test_a_question_for_the_client_instance_id_is_refused_where_telemetry_is_off() -> None:
    world = World()
    call: Call[UUID] = Call(10.0)
    world.send(FindClientInstanceId(call=call))
    world.poll(0.0)
    with pytest.raises(IllegalStateError, match="enable_metrics_push"):
        call.result()


def test_a_question_for_the_client_instance_id_that_is_not_answered_says_why() -> None:
    world = World(metrics_source=Silence())
    world.offers_telemetry = True
    call: Call[UUID] = Call(10.0)
    world.send(FindClientInstanceId(call=call))
    world.poll(0.0)
    world.answer(GetTelemetrySubscriptionsRequest, KafkaConnectionError("the line is dead"), 1.0)
    world.poll(10.0)
    with pytest.raises(KafkaTimeoutError, match="the line is dead"):
        call.result()
