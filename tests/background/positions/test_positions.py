"""How partitions get a position, and keep one that can be trusted."""

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.background.boundary import FetchedData, PartitionFailed, Repositioned
from kafka_async.background.positions.subscription import FetchState
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafka_async.events import Call, FindPositions, HaltPartition, PositionFound, ResetOffset
from kafka_async.network import LATE
from kafka_async.trace import Fault, Notice, Recovered
from kafka_async.wire.messages import (
    EpochEndOffset,
    FetchRequest,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
    PartitionData,
)

from ..support import A, B, Untouchable, World, asked, cluster, data, described, fetched, records, topic_id, until


def found(partition: TopicPartition, offset: int, **fields: int) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(partition_index=partition.partition, offset=offset, **fields)
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(part,)),))


def epoch_end(partition: TopicPartition, epoch: int, end: int, error_code: int = 0) -> OffsetForLeaderEpochResponse:
    part = EpochEndOffset(partition=partition.partition, leader_epoch=epoch, end_offset=end, error_code=error_code)
    return OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult(topic="t", partitions=(part,)),))


def looking_up(*partitions: TopicPartition, **options: Any) -> tuple[World, float]:
    """Return a world whose partitions are being looked up, and when."""
    world = World(**options)
    world.assign(*(partitions or (A,)))
    world.learn(described("t", (1, 1, 1)))
    now = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 0.0)
    return world, now


def state(world: World, partition: TopicPartition = A) -> FetchState:
    return world.background.subscription.partitions[partition].state


def timestamp(world: World) -> int:
    return world.waiting(ListOffsetsRequest)[-1].topics[0].partitions[0].timestamp


def reset(world: World, partition: TopicPartition, strategy: str | None) -> None:
    world.stamps[partition] = max(world.stamps.values()) + 1
    world.send(ResetOffset(stamps={partition: world.stamps[partition]}, strategy=strategy))


# Resets.


def check_that_reading_begins(world: World, offset: int, now: float) -> None:
    first = Repositioned(partition=A, stamp=world.stamps[A], offset=offset, is_first=True, topic_id=topic_id("t"))
    assert world.read_all() == [first]
    world.poll(now)
    assert asked(world.waiting(FetchRequest)[0]) == {0: offset}


def looking_up_by_time(duration: str) -> tuple[World, float]:
    """Return a world that has looked up an end, 50, before it looks up the first record that is young enough."""
    world, now = looking_up(auto_offset_reset=f"by_duration:{duration}")
    assert timestamp(world) == -1
    world.answer(ListOffsetsRequest, found(A, 50), now)
    world.poll(now)
    return world, now


@pytest.mark.parametrize(("policy", "expected"), [("earliest", -2), ("latest", -1)])
def test_a_new_partition_is_looked_up_by_policy(policy: str, expected: int) -> None:
    world, now = looking_up(auto_offset_reset=policy)
    assert timestamp(world) == expected
    world.answer(ListOffsetsRequest, found(A, 42), now)
    check_that_reading_begins(world, 42, now)


@pytest.mark.parametrize(("answer", "expected"), [(42, 42), (51, 51), (-1, 50)])
def test_no_record_as_young_as_the_duration_means_the_end_before_it_was_looked_for(answer: int, expected: int) -> None:
    """A record that is written between the two answers is young enough: it must not lie before that end."""
    world, now = looking_up_by_time("PT1M")
    assert timestamp(world) == 1_000_000 - 60_000 + int(now * 1000)
    world.answer(ListOffsetsRequest, found(A, answer), now)
    check_that_reading_begins(world, expected, now)


def test_a_duration_from_before_the_epoch_means_the_epoch() -> None:
    world, _ = looking_up_by_time("P9999D")
    assert timestamp(world) == 0


@pytest.mark.parametrize("by_time", [False, True])
def test_a_look_up_by_duration_that_is_refused_is_made_again_from_its_first_step(by_time: bool) -> None:
    world, now = looking_up_by_time("PT1M") if by_time else looking_up(auto_offset_reset="by_duration:PT1M")
    world.answer(ListOffsetsRequest, found(A, -1, error_code=TopicAuthorizationFailedError.errno), now)
    assert [type(error) for error in world.errors()] == [TopicAuthorizationFailedError]
    now = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now)
    assert timestamp(world) == -1


def test_a_seek_between_the_two_look_ups_by_duration_wins() -> None:
    world, now = looking_up_by_time("PT1M")
    world.seek(A, 7)
    world.poll(now)
    world.answer(ListOffsetsRequest, found(A, -1), now)
    assert world.read_all() == []
    assert asked(world.waiting(FetchRequest)[0]) == {0: 7}


def test_a_topic_made_anew_between_the_two_look_ups_by_duration_is_read_from_its_beginning() -> None:
    world, now = looking_up_by_time("PT1M")
    world.background.metadata.request_update(now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), generation=1)), now)
    world.answer(ListOffsetsRequest, found(A, -1), now)
    world.poll(now)
    assert (world.read_all(), timestamp(world)) == ([], -2)


def test_no_policy_is_an_error_of_the_partition() -> None:
    world = World(auto_offset_reset="none")
    world.assign(A)
    world.learn(described("t", (1,)))
    world.poll(0.2)
    (failure,) = world.read_all()
    assert isinstance(failure, PartitionFailed)
    assert isinstance(failure.error, NoOffsetForPartitionError)
    assert (failure.error.partitions, state(world)) == ((A,), FetchState.HALTED)
    assert timestamp(world) == -1, "only where the log ends, for the lag"


def test_a_seek_while_a_look_up_is_in_flight_wins() -> None:
    world, now = looking_up()
    world.seek(A, 7)
    world.poll(now)
    assert asked(world.waiting(FetchRequest)[0]) == {0: 7}
    world.answer(ListOffsetsRequest, found(A, 42), now + 1)
    assert world.read_all() == []
    assert state(world) is FetchState.FETCHING


def test_a_partition_that_leaves_while_a_look_up_is_in_flight_is_not_moved() -> None:
    world, now = looking_up(A, B)
    world.assign(B)
    world.poll(now)
    world.answer(ListOffsetsRequest, found(A, 42), now + 1)
    assert world.read_all() == []


def test_a_partition_that_left_and_came_back_is_looked_up_anew() -> None:
    world, now = looking_up(A, B)
    world.assign(B)
    world.poll(now)
    world.assign(A, B)
    world.poll(now)
    world.answer(ListOffsetsRequest, found(A, 42), now + 0.01)
    assert world.read_all() == []
    until(
        world, lambda: any(p.partition_index == 0 for r in world.waiting(ListOffsetsRequest) for p in r.topics[0].partitions), now
    )


def test_the_last_of_two_resets_counts() -> None:
    world, now = looking_up()
    reset(world, A, "latest")
    world.poll(now)
    for request in [r for r in world.unsent if isinstance(r.message, ListOffsetsRequest)]:
        world.unsent.remove(request)
        assert isinstance(request.message, ListOffsetsRequest)
        offset = {-2: 0, -1: 99}[request.message.topics[0].partitions[0].timestamp]
        request.on_done(found(A, offset), now)
    world.poll(now)
    if world.waiting(ListOffsetsRequest):
        assert timestamp(world) == -1
        world.answer(ListOffsetsRequest, found(A, 99), now)
    assert [parcel.offset for parcel in world.read_all() if isinstance(parcel, Repositioned)] == [99]


def test_a_reset_that_is_refused_is_reported_and_tried_again_later() -> None:
    world, now = looking_up()
    world.answer(ListOffsetsRequest, found(A, -1, error_code=29), now)
    (error,) = world.errors()
    assert isinstance(error, TopicAuthorizationFailedError)
    assert str(error).endswith("topics 't': Not authorized to access the topic.")
    assert until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now) == pytest.approx(now + 1.0)


def test_a_reset_survives_every_passing_error() -> None:
    world, now = looking_up()
    for code in (3, 5, 6, 7, 9, 13, 14, 56, 74, 75, 78):
        world.answer(ListOffsetsRequest, found(A, -1, error_code=code), now)
        now = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now)
    world.answer(ListOffsetsRequest, found(A, 5), now)
    assert len(world.read_all()) == 1
    assert world.errors() == []


def test_the_outage_of_a_reset_ends_when_the_application_seeks() -> None:
    world, now = looking_up()
    world.answer(ListOffsetsRequest, found(A, -1, error_code=6), now)
    world.seek(A, 7)
    world.poll(now)
    world.poll(now + 600.0)
    seen = [(event.outage, set(event.partitions), event.needed) for event in world.seen if isinstance(event, Recovered)]
    assert seen == [("looking up offsets", {A}, False)]


def test_a_reset_is_not_kept_waiting_by_a_validation_that_hangs() -> None:
    world = validating()
    reset(world, A, "earliest")
    until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.0, limit=3)


def test_a_seek_that_must_be_checked_is_not_kept_waiting_by_a_look_up_in_its_backoff() -> None:
    world, now = looking_up()
    for _ in range(8):
        world.answer(ListOffsetsRequest, found(A, -1, error_code=7), now)
        now = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now)
    world.answer(ListOffsetsRequest, found(A, -1, error_code=7), now)
    world.poll(now)
    world.seek(A, 10, leader_epoch=0)
    until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), now + 0.01, limit=3)


# Validation (KIP-320).


def validating(**options: Any) -> World:
    """Return a world that has read up to offset 30 in epoch 0 and is checking it at a new leader, node 2; it is 1.0 then."""
    world = World(**options)
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 30))), 0.5)
    world.poll(0.5)
    world.find(FetchRequest)
    world.background.metadata.request_update(0.6)
    until(world, lambda: bool(world.waiting(MetadataRequest)), 0.6)
    world.answer(MetadataRequest, cluster(described("t", (2, 2, 2), epoch=1)), 0.9)
    world.poll(1.0)
    assert state(world) is FetchState.AWAIT_VALIDATION
    world.read_all()
    return world


def test_the_new_leader_is_asked_where_the_epoch_ends() -> None:
    world = validating()
    request = world.find(OffsetForLeaderEpochRequest)
    assert isinstance(request.message, OffsetForLeaderEpochRequest)
    part = request.message.topics[0].partitions[0]
    assert (request.node_id, part.partition, part.current_leader_epoch, part.leader_epoch) == (2, 0, 1, 0)


@pytest.mark.parametrize("end", [30, 50])
def test_a_log_that_reaches_the_position_is_read_on(end: int) -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, end), 1.1)
    world.poll(1.1)
    assert asked(world.find(FetchRequest, 2).message) == {0: 30}
    assert world.read_all() == []


def truncated(world: World, end: int) -> float:
    """Have the new leader say twice where epoch 0 ends, with metadata in between; return when that was."""
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, end), 1.1)
    assert world.read_all() == []
    assert state(world) is FetchState.AWAIT_VALIDATION
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.1)
    world.answer(MetadataRequest, cluster(described("t", (2, 2, 2), epoch=1)), now + 0.01)
    now = until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), now + 0.01)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, end), now)
    return now


def test_a_log_that_was_truncated_is_read_from_where_it_diverged() -> None:
    world = validating()
    now = truncated(world, 20)
    assert world.read_all() == [Repositioned(partition=A, stamp=world.stamps[A], offset=20, leader_epoch=0, topic_id=topic_id("t"))]
    world.poll(now)
    assert asked(world.find(FetchRequest, 2).message) == {0: 20}


def test_where_a_log_diverged_is_checked_too_if_another_leader_follows_before_anything_is_read() -> None:
    world = validating()
    now = truncated(world, 20)
    world.background.metadata.request_update(now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (3, 3, 3), epoch=2)), now)
    world.poll(now)
    assert world.find(OffsetForLeaderEpochRequest).node_id == 3


def test_a_log_that_was_truncated_without_a_policy_is_raised() -> None:
    world = validating(auto_offset_reset="none")
    truncated(world, 20)
    (failure,) = world.read_all()
    assert isinstance(failure, PartitionFailed)
    assert isinstance(failure.error, LogTruncationError)
    assert failure.error.positions == {A: 30}
    assert failure.error.divergent_offsets == {A: OffsetAndMetadata(20, "", 0)}
    assert state(world) is FetchState.HALTED


def test_a_truncation_that_only_one_answer_shows_moves_nothing() -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 20), 1.1)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.1)
    world.answer(MetadataRequest, cluster(described("t", (2, 2, 2), epoch=1)), now + 0.01)
    now = until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), now + 0.01)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 30), now)
    world.poll(now)
    assert world.read_all() == []
    assert asked(world.find(FetchRequest, 2).message) == {0: 30}


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_an_epoch_that_the_leader_does_not_know_says_nothing_about_the_log(policy: str) -> None:
    """The offset was committed in another cluster, or the records were copied with their epochs."""
    world = validating(auto_offset_reset=policy)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1), 1.1)
    world.poll(1.1)
    assert world.read_all() == []
    assert asked(world.find(FetchRequest, 2).message) == {0: 30}
    assert [event.text for event in world.seen if isinstance(event, Notice)] == [
        "broker 2 knows no leader epoch 0 of t-0; reading on from offset 30"
    ]


@pytest.mark.parametrize("code", [3, 5, 6, 9, 13, 56, 74, 75])
def test_a_check_survives_every_passing_error(code: int) -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1, code), 1.0)
    assert until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), 1.0) == pytest.approx(1.1)
    assert world.waiting(MetadataRequest)
    assert world.read_all() == []


def test_checks_that_fail_are_an_outage_until_there_is_an_answer() -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1, 75), 1.0)
    when = until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), 1.0)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 50), when)
    outage = [(type(event), event.outage, set(event.partitions)) for event in world.seen if isinstance(event, Fault | Recovered)]
    assert outage == [(Fault, "validating positions", {A}), (Recovered, "validating positions", {A})]


def test_the_outage_of_a_check_is_over_when_the_position_needs_none_any_more() -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1, 75), 1.0)
    world.seek(A, 7)
    world.poll(1.0)
    outage = [(type(event), event.outage, set(event.partitions)) for event in world.seen if isinstance(event, Fault | Recovered)]
    assert outage == [(Fault, "validating positions", {A}), (Recovered, "validating positions", {A})]


@pytest.mark.parametrize("code", [29, 31])
def test_a_check_that_is_refused_is_reported_and_tried_again_later(code: int) -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1, code), 1.0)
    assert [getattr(error, "errno", None) for error in world.errors()] == [code]
    assert until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), 1.0) == pytest.approx(2.0)


@pytest.mark.parametrize("outcome", [KafkaConnectionError("gone"), KafkaTimeoutError("late"), OffsetForLeaderEpochResponse()])
def test_a_check_without_an_answer_is_made_again(outcome: object) -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, outcome, 1.0)
    until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), 1.0)
    assert state(world) is FetchState.AWAIT_VALIDATION


def checked_at_the_next_leader() -> World:
    """Read up to 30 from node 1, which then holds a fetch while node 2 leads in epoch 1 and has the position checked."""
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 30))), 0.5)
    world.poll(0.5)  # the next fetch, which node 1 holds
    named(world, cluster(described("t", (2, 2, 2), epoch=1)), 0.6)
    world.poll(1.0)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 30), 1.1)
    world.poll(1.1)
    world.read_all()
    return world


def named(world: World, answer: MetadataResponse, now: float) -> None:
    """Have metadata asked for, and answered in this way."""
    world.background.metadata.request_update(now)
    world.answer(MetadataRequest, answer, until(world, lambda: bool(world.waiting(MetadataRequest)), now))


def reads_on_at_the_next_leader(world: World, now: float) -> None:
    """Nothing is left out between what both leaders have and what only node 2 has."""
    assert (world.read_all(), state(world)) == ([], FetchState.FETCHING)
    assert not any(isinstance(event, Fault) for event in world.seen)
    world.answer(FetchRequest, fetched(data(A, records(30, 5, epoch=1)), session=8), now, node_id=2)
    (parcel,) = world.read_all()
    assert isinstance(parcel, FetchedData)
    assert parcel.fetch_offset == 30
    world.poll(now)
    assert asked(world.find(FetchRequest, 2).message) == {0: 35}


@pytest.mark.parametrize("late", [data(A, records(30, 10)), data(A, error_code=6)])
def test_what_a_former_leader_gives_after_the_check_at_the_present_one_does_not_count(late: PartitionData) -> None:
    """It was cut off from the cluster and may have lost the election to a log that has other records at these offsets."""
    world = checked_at_the_next_leader()
    world.answer(FetchRequest, fetched(late), 1.2, node_id=1)
    reads_on_at_the_next_leader(world, 1.3)


@pytest.mark.parametrize("late", [data(A, records(30, 10)), data(A, error_code=6)])
@pytest.mark.parametrize("topics", [(described("t", (-1, 2, 2), epoch=1),), ()], ids=["leaderless", "topic left out"])
def test_what_a_former_leader_gives_while_the_present_one_is_away_does_not_count_either(
    topics: tuple[MetadataResponseTopic, ...], late: PartitionData
) -> None:
    """Node 2 comes back in the same epoch, in which the position counts as checked."""
    world = checked_at_the_next_leader()
    named(world, cluster(*topics, brokers=(1, 3)), 2.0)
    world.answer(FetchRequest, fetched(late), 3.0, node_id=1)
    named(world, cluster(described("t", (2, 2, 2), epoch=1)), 4.0)
    world.poll(5.0)
    reads_on_at_the_next_leader(world, 5.1)


@pytest.mark.parametrize("answer", [epoch_end(A, 0, 50), epoch_end(A, 0, 20), epoch_end(A, -1, -1, 29), KafkaTimeoutError("late")])
def test_what_a_former_leader_says_about_a_position_does_not_count_for_the_next_one(answer: object) -> None:
    world = validating()
    world.background.metadata.request_update(1.0)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.0)
    world.answer(MetadataRequest, cluster(described("t", (3, 3, 3), epoch=2)), now)
    world.poll(now)
    world.answer(OffsetForLeaderEpochRequest, answer, now, node_id=2)
    world.poll(now)
    assert not world.waiting(FetchRequest)
    assert world.errors() == []
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 50), now, node_id=3)
    world.poll(now)
    assert asked(world.find(FetchRequest, 3).message) == {0: 30}


def test_the_cluster_is_asked_about_a_leader_that_does_not_answer_a_check() -> None:
    world = validating()
    assert not world.waiting(MetadataRequest)
    assert until(world, lambda: bool(world.waiting(MetadataRequest)), 1.0) == pytest.approx(1.0 + LATE)
    world.answer(MetadataRequest, cluster(described("t", (3, 3, 3), epoch=2), brokers=(1, 3)), 2.1)
    world.answer(OffsetForLeaderEpochRequest, KafkaConnectionError("the cluster does not list the broker any more"), 2.1)
    until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), 2.1)
    assert world.find(OffsetForLeaderEpochRequest).node_id == 3


def led_by(world: World, leader: int, epoch: int, now: float) -> float:
    """Have the cluster, which lists all brokers, name another leader; return when that was."""
    world.background.metadata.request_update(now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (leader,) * 3, epoch=epoch)), now)
    world.poll(now)
    return now


def test_the_next_leader_is_asked_at_once_though_a_silent_one_is_still_in_the_cluster() -> None:
    """The position waited for the request to the silent one to time out."""
    world = validating()
    now = led_by(world, 3, 2, 1.0)
    assert [request.node_id for request in world.unsent] == [2, 3]
    world.answer(OffsetForLeaderEpochRequest, KafkaTimeoutError("late"), now, node_id=2)
    world.poll(now)
    assert len(world.waiting(OffsetForLeaderEpochRequest)) == 1, "the next one is asked once"
    assert not any(isinstance(event, Fault) for event in world.seen)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 50), now, node_id=3)
    world.poll(now)
    assert asked(world.find(FetchRequest, 3).message) == {0: 30}


def test_a_reset_asks_the_next_leader_at_once_though_a_silent_one_is_still_in_the_cluster() -> None:
    world, now = looking_up()
    now = led_by(world, 3, 2, now)
    assert [request.node_id for request in world.unsent] == [1, 3]
    world.answer(ListOffsetsRequest, found(A, 42), now, node_id=3)
    check_that_reading_begins(world, 42, now)


def test_a_broker_that_cannot_tell_is_believed() -> None:
    world = validating()
    world.answer(OffsetForLeaderEpochRequest, UnsupportedVersionError("too old"), 1.0)
    world.poll(1.0)
    assert asked(world.find(FetchRequest, 2).message) == {0: 30}


def test_a_seek_during_a_check_wins() -> None:
    world = validating()
    world.seek(A, 3)
    world.poll(1.0)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 20), 1.1)
    world.poll(1.1)
    assert world.read_all() == []
    assert asked(world.find(FetchRequest, 2).message) == {0: 3}


def test_a_partition_that_leaves_during_a_check_is_not_moved() -> None:
    world = validating()
    world.assign(B)
    world.poll(1.0)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 0, 20), 1.1)
    assert world.read_all() == []


def test_checks_at_one_broker_share_a_request() -> None:
    world = World()
    world.fetching({A: 0, B: 0})
    world.seek(A, 5, leader_epoch=0)
    world.seek(B, 6, leader_epoch=0)
    world.poll(1.0)
    (request,) = world.waiting(OffsetForLeaderEpochRequest)
    assert len(request.topics[0].partitions) == 2


def test_a_leader_without_epochs_needs_no_check() -> None:
    world = World()
    world.fetching({A: 0}, epoch=-1)
    world.seek(A, 5, leader_epoch=0)
    world.poll(1.0)
    assert state(world) is FetchState.FETCHING


# Topics that are not the same any more.


# An epoch that is newer than the metadata (Java: ``Metadata.updateLastSeenEpochIfNewer``).


def newer_epoch(epoch: int = 7) -> World:
    """Return a world whose position is of a newer epoch than the leader that the metadata name; it is 0.2 then."""
    world = World(request_timeout_ms=30_000)
    world.fetching({A: 0}, epoch=5)
    world.seek(A, 30, leader_epoch=epoch)
    until(world, lambda: bool(world.waiting(MetadataRequest)), 0.2)
    return world


def test_a_position_of_a_newer_epoch_than_the_metadata_is_read_without_waiting_for_them() -> None:
    world = newer_epoch()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1), 0.3)
    world.poll(0.3)
    world.answer(FetchRequest, fetched(data(A)), 0.3, node_id=1)  # of the position before the seek
    world.poll(0.3)
    assert asked(world.find(FetchRequest, 1).message) == {0: 30}


@pytest.mark.parametrize("named", [5, 6])
def test_what_a_leader_says_against_a_position_of_a_newer_epoch_is_not_believed_at_once(named: int) -> None:
    world = newer_epoch()
    now = 0.2
    while state(world) is FetchState.AWAIT_VALIDATION and now < 100.0:
        world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 5, 20), now)
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), epoch=named)), now)
        now = until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)) or bool(world.read_all()), now)
    assert 30.0 < now < 35.0, "the time that an election may take"


def test_metadata_that_have_caught_up_name_the_leader_to_ask() -> None:
    world = newer_epoch()
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, 5, 20), 0.3)
    world.answer(MetadataRequest, cluster(described("t", (2, 2, 2), epoch=7)), 0.4)
    until(world, lambda: bool(world.waiting(OffsetForLeaderEpochRequest)), 0.4)
    request = world.find(OffsetForLeaderEpochRequest)
    assert isinstance(request.message, OffsetForLeaderEpochRequest)
    part = request.message.topics[0].partitions[0]
    assert (request.node_id, part.current_leader_epoch, part.leader_epoch) == (2, 7, 7)
    request.on_done(epoch_end(A, 7, 30), 2.5)
    assert state(world) is FetchState.FETCHING


def test_a_listed_offset_of_a_newer_epoch_has_the_metadata_asked_for() -> None:
    world = World()
    world.assign(A)
    world.learn(described("t", (1,), epoch=5))
    until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 0.0)
    world.answer(ListOffsetsRequest, found(A, 40, leader_epoch=7), 0.5)
    until(world, lambda: bool(world.waiting(MetadataRequest)), 0.5)
    world.answer(MetadataRequest, cluster(described("t", (2,), epoch=7)), 1.0)
    until(world, lambda: any(request.node_id == 2 for request in world.unsent), 1.0)


def test_an_epoch_that_nobody_else_knows_is_asked_about_for_a_request_timeout_only() -> None:
    world = newer_epoch(700)
    world.answer(OffsetForLeaderEpochRequest, epoch_end(A, -1, -1), 0.3)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), epoch=5)), 0.3)
    world.poll(40.0)
    world.seek(A, 30, leader_epoch=700)
    assert not any(isinstance(request, MetadataRequest) for request in world.poll(40.0))


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_topic_that_was_created_again_starts_at_its_beginning(policy: str) -> None:
    world = World(auto_offset_reset=policy)
    world.fetching({A: 70})
    world.background.metadata.request_update(1.0)
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(described("t", (1,), generation=1)), 1.1)
    until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.1)
    assert timestamp(world) == -2


def test_a_topic_that_was_created_again_without_a_policy_is_an_error() -> None:
    world = World(auto_offset_reset="none")
    world.fetching({A: 70})
    world.background.metadata.request_update(1.0)
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(described("t", (1,), generation=1)), 1.1)
    (failure,) = world.read_all()
    assert isinstance(failure, PartitionFailed)
    assert isinstance(failure.error, OffsetOutOfRangeError)


def test_data_of_the_old_topic_that_was_on_its_way_is_dropped() -> None:
    world = World()
    world.fetching({A: 70})
    world.background.metadata.request_update(1.0)
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(described("t", (1,), generation=1)), 1.1)
    world.answer(FetchRequest, fetched(data(A, records(70, 5))), 1.2)
    assert not any(isinstance(parcel, FetchedData) for parcel in world.read_all())


# Callers who wait.


def wait_for(world: World, *partitions: TopicPartition) -> Call[Mapping[TopicPartition, PositionFound]]:
    call: Call[Mapping[TopicPartition, PositionFound]] = Call(5.0)
    world.send(FindPositions(call=call, partitions=frozenset(partitions)))
    return call


def test_callers_wait_until_every_position_is_there() -> None:
    world, now = looking_up()
    call = wait_for(world, A)
    world.poll(now)
    assert not call.done
    world.answer(ListOffsetsRequest, found(A, 42), now)
    world.poll(now)
    assert call.result() == {A: PositionFound(stamp=world.stamps[A], offset=42, leader_epoch=None, topic_id=topic_id("t"))}


def test_a_partition_that_is_not_assigned_or_halted_has_nobody_wait() -> None:
    world = World()
    world.fetching({A: 0})
    world.send(HaltPartition(partition=A, stamp=world.stamps[A]))
    call = wait_for(world, A, B)
    world.poll(1.0)
    assert set(call.result()) <= {A}


def test_callers_learn_why_there_is_no_position() -> None:
    world, now = looking_up()
    call = wait_for(world, A)
    world.poll(now)
    world.answer(ListOffsetsRequest, found(A, -1, error_code=6), now)
    world.poll(5.0)
    with pytest.raises(KafkaTimeoutError, match="t-0") as caught:
        call.result()
    assert getattr(caught.value.__cause__, "errno", None) == 6


def test_a_thousand_positioned_partitions_cost_nothing() -> None:
    partitions = [TopicPartition("t", index) for index in range(1000)]
    world = World()
    world.fetching(dict.fromkeys(partitions, 0), leaders=(1,) * 1000)
    positions = world.background.positions
    positions.poll(0.2)
    positions.subscription.partitions = Untouchable(positions.subscription.partitions)
    for turn in range(10):
        assert not positions.poll(1.0 + turn).requests
