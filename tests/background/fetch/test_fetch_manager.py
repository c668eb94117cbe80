"""The Fetch request manager: who is asked for what, and what every answer means."""

from typing import Any

import pytest

from kafka_async import TopicPartition
from kafka_async.background.boundary import FetchedData, PartitionFailed, Watermarks
from kafka_async.errors import (
    AuthenticationFailedError,
    CorruptRecordException,
    FrameSizeError,
    KafkaConnectionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from kafka_async.events import AssignFromUser, PausePartitions, ResumePartitions
from kafka_async.network import LATE, Channel
from kafka_async.trace import Fault, Recovered
from kafka_async.wire.messages import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponse,
    NodeEndpoint,
    OffsetForLeaderEpochRequest,
)

from ..support import A, B, C, Untouchable, World, asked, cluster, data, described, fetched, records, topic_id, until


def test_positioned_partitions_are_fetched_from_their_leaders() -> None:
    world = World(client_rack="r9", fetch_max_wait_ms=700, fetch_min_bytes=5)
    world.fetching({A: 3, B: 4, C: 5}, leaders=(1, 2, 1))
    one, two = world.find(FetchRequest, 1), world.find(FetchRequest, 2)
    assert (asked(one.message), asked(two.message)) == ({0: 3, 2: 5}, {1: 4})
    request = one.message
    assert isinstance(request, FetchRequest)
    assert (request.rack_id, request.max_wait_ms, request.min_bytes, request.session_epoch) == ("r9", 700, 5, 0)
    assert (one.channel, one.max_wait) == (Channel.FETCH, 0.7)


def test_a_leader_is_asked_for_again_after_a_request_under_way_that_was_about_something_else() -> None:
    world = World()
    world.fetching({A: 0}, leaders=(9,))  # a broker that nobody has given the address of
    world.send(AssignFromUser(stamps={}))
    assert until(world, lambda: bool(world.waiting(MetadataRequest)), 5.0) < 6.0
    world.assign(A)  # which finds a request under way, and a topic that is known
    world.seek(A, 1)
    world.poll(6.0)
    assert [names(request) for request in world.waiting(MetadataRequest)] == [set()]
    world.answer(MetadataRequest, cluster(), 6.1)
    assert until(world, lambda: any(names(each) == {"t"} for each in world.waiting(MetadataRequest)), 6.1) < 7.5
    world.answer(MetadataRequest, cluster(described("t", (1,))), 7.5)
    world.poll(7.5)
    assert asked(world.find(FetchRequest, 1).message) == {0: 1}


@pytest.mark.parametrize("ids", [True, False])
def test_topics_that_get_an_id_while_they_are_read_are_all_asked_for_by_it_in_a_new_session(ids: bool) -> None:
    """Brokers are upgraded, or the reverse: half of a session by name and half by id would be refused again and again."""
    world = World()
    world.fetching({A: 3, B: 0}, ids=not ids)
    world.answer(FetchRequest, fetched(data(A), data(B), ids=not ids), 0.6)
    world.poll(0.6)
    world.background.metadata.request_update(0.6)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 0.7)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), ids=ids)), now)
    world.answer(FetchRequest, fetched(ids=not ids), now)
    world.poll(now)
    (request,) = world.waiting(FetchRequest)
    assert asked(request) == {0: 3, 1: 0}
    assert {topic.topic_id is not None for topic in request.topics} == {ids}
    assert (request.session_id, request.session_epoch) == (7, 0), "the former one ends with it"


def names(request: MetadataRequest) -> set[str | None]:
    """Return the topics that a request is about."""
    return {topic.name for topic in request.topics or ()}


def test_the_next_request_goes_out_while_the_last_answer_is_read() -> None:
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 5))), 0.1)
    (request,) = world.poll(0.1)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {0: 5}
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert [type(parcel) for parcel in world.read_all()] == [FetchedData]


def test_one_request_at_a_time_goes_to_a_broker() -> None:
    world = World()
    world.fetching({A: 0})
    assert len(world.waiting(FetchRequest)) == 1
    assert world.poll(0.1) == []
    world.send(PausePartitions(partitions=frozenset((A,))))
    world.send(ResumePartitions(partitions=frozenset((A,))))
    assert world.poll(0.2) == []


def test_an_answer_carries_marks_and_aborted_transactions_to_the_reader() -> None:
    world = World(isolation_level="read_committed")
    world.fetching({A: 0})
    aborted = (AbortedTransaction(producer_id=9, first_offset=1),)
    part = data(A, records(0, 2), high_watermark=50, last_stable_offset=40, log_start_offset=1, aborted_transactions=aborted)
    assert world.waiting(FetchRequest)[0].isolation_level == 1
    world.answer(FetchRequest, fetched(part), 0.5)
    (parcel,) = world.read_all()
    assert isinstance(parcel, FetchedData)
    assert (parcel.aborted, parcel.fetch_offset, parcel.stamp) == (((9, 1),), 0, world.stamps[A])
    marks = world.buffer.watermarks[A]
    assert (marks.high_watermark, marks.last_stable_offset, marks.log_start_offset, marks.fetched_at) == (50, 40, 1, 0.5)


def test_an_answer_without_records_leaves_the_position() -> None:
    world = World()
    world.fetching({A: 3})
    world.answer(FetchRequest, fetched(data(A)), 0.5)
    (request,) = world.poll(0.5)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {}
    assert world.read_all() == []


# What comes too late.


def test_data_for_a_position_that_was_left_is_dropped() -> None:
    world = World()
    world.fetching({A: 0})
    world.seek(A, 50)
    world.poll(0.1)
    world.answer(FetchRequest, fetched(data(A, records(0, 5))), 0.2)
    assert world.read_all() == []
    (request,) = world.poll(0.2)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {0: 50}


def test_data_of_a_partition_that_left_is_dropped_and_forgotten_by_the_session() -> None:
    world = World()
    world.fetching({A: 0, B: 0})
    world.assign(B)
    world.poll(0.1)
    world.answer(FetchRequest, fetched(data(A, records(0, 5)), data(B, records(0, 1))), 0.2)
    assert [parcel.partition for parcel in world.read_all()] == [B]
    (request,) = world.poll(0.2)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {1: 1}
    assert [gone.partitions for gone in request.forgotten_topics_data] == [(0,)]


def test_data_of_a_paused_partition_that_was_on_its_way_is_kept() -> None:
    world = World()
    world.fetching({A: 0})
    world.send(PausePartitions(partitions=frozenset((A,))))
    world.poll(0.1)
    world.answer(FetchRequest, fetched(data(A, records(0, 5))), 0.2)
    assert world.poll(0.2) == []
    assert len(world.read_all()) == 1
    world.send(ResumePartitions(partitions=frozenset((A,))))
    (request,) = world.poll(0.3)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {0: 5}


# Every error of a partition.


@pytest.mark.parametrize("code", [3, 5, 6, 9, 13, 56, 72, 74, 75, 100, 103])
def test_errors_of_leadership_ask_for_metadata_and_try_again(code: int) -> None:
    world = World()
    world.fetching({A: 3, B: 0})
    world.answer(FetchRequest, fetched(data(A, error_code=code), data(B, records(0, 1))), 1.0)
    world.poll(1.0)
    assert asked(world.waiting(FetchRequest)[0]) == {1: 1}
    assert world.waiting(MetadataRequest)
    world.answer(MetadataRequest, _same(), 1.01)
    world.answer(FetchRequest, fetched(), 1.05)
    when = until(world, lambda: bool(world.waiting(FetchRequest)) and 0 in asked(world.waiting(FetchRequest)[-1]), 1.1)
    assert when <= 1.2
    assert asked(world.waiting(FetchRequest)[-1]) == {0: 3}
    assert world.errors() == []


def _same() -> MetadataResponse:
    return cluster(described("t", (1, 1, 1)))


@pytest.mark.parametrize("code", [7, 14, 78, 89])
def test_other_passing_errors_are_tried_again_without_asking_for_metadata(code: int) -> None:
    world = World()
    world.fetching({A: 3})
    world.answer(FetchRequest, fetched(data(A, error_code=code)), 1.0)
    assert world.poll(1.0) == []
    assert world.wake_at == pytest.approx(1.1)
    world.poll(1.1)
    world.answer(FetchRequest, fetched(data(A, records(3, 1))), 1.2)
    assert len(world.read_all()) == 1
    assert world.waiting(MetadataRequest) == []


def test_a_backoff_grows_with_the_failures_and_ends_with_data() -> None:
    world = World()
    world.fetching({A: 0})
    now, waits = 1.0, []
    for _ in range(6):
        world.answer(FetchRequest, fetched(data(A, error_code=7)), now)
        then = until(world, lambda: bool(world.waiting(FetchRequest)), now)
        waits.append(round(then - now, 3))
        now = then
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    world.answer(FetchRequest, fetched(data(A, records(0, 1))), now)
    world.poll(now)
    world.answer(FetchRequest, fetched(data(A, error_code=7)), now + 1)
    world.poll(now + 1)
    assert world.wake_at == pytest.approx(now + 1.1)


def test_a_partition_that_left_while_it_failed_recovers_from_nothing_when_it_comes_back() -> None:
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, error_code=7)), 1.0)
    world.assign()
    world.poll(1.0)
    world.assign(A)
    world.seek(A, 0)
    until(world, lambda: bool(world.waiting(FetchRequest)), 1.2)
    world.answer(FetchRequest, fetched(data(A, records(0, 1))), 2.0)
    assert [type(event) for event in world.seen if isinstance(event, Fault | Recovered)] == [Fault]


@pytest.mark.parametrize("held", [b"", records(7, 1)], ids=["nothing", "a record"])
def test_reading_is_an_outage_until_a_broker_answers_also_for_another_position(held: bytes) -> None:
    """A seek is one way to another position; a topic that is made anew is another."""
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, error_code=7)), 1.0)
    world.seek(A, 7)
    world.poll(1.0)
    world.answer(FetchRequest, fetched(data(A, held)), 1.5)
    events = [event for event in world.seen if isinstance(event, Fault | Recovered)]
    assert [(type(event), event.now, event.outage, set(event.partitions)) for event in events] == [
        (Fault, 1.0, "reading", {A}),
        (Recovered, 1.5, "reading", {A}),
    ]


def out_of_range(world: World, partition: TopicPartition, now: float) -> float:
    """Have a partition's position refused, metadata answered, and the same asked again; return when that was."""
    world.answer(FetchRequest, fetched(data(partition, error_code=1)), now)
    assert world.read_all() == []
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now + 0.01)
    return until(world, lambda: bool(world.waiting(FetchRequest)), now + 0.01)


def test_out_of_range_is_reset_by_policy_when_it_is_said_twice() -> None:
    world = World()
    world.fetching({A: 3})
    now = out_of_range(world, A, 1.0)
    assert not world.waiting(ListOffsetsRequest)
    world.answer(FetchRequest, fetched(data(A, error_code=1)), now)
    until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now)
    (request,) = world.waiting(ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -2


def test_out_of_range_that_is_said_once_moves_nothing() -> None:
    """A broker that does not know yet that it is no longer the leader has the shorter log."""
    world = World()
    world.fetching({A: 3})
    now = out_of_range(world, A, 1.0)
    world.answer(FetchRequest, fetched(data(A, records(3, 5))), now)
    (parcel,) = world.read_all()
    assert isinstance(parcel, FetchedData)
    now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
    out_of_range(world, A, now + 1.0)
    assert world.read_all() == []
    assert not world.waiting(ListOffsetsRequest)


def test_out_of_range_is_not_believed_while_the_metadata_are_older_than_the_position() -> None:
    world = World(request_timeout_ms=30_000)
    world.fetching({A: 3}, epoch=4)
    world.answer(FetchRequest, fetched(data(A, records(3, 5, epoch=7))), 1.0)
    world.read_all()
    now = until(world, lambda: bool(world.waiting(FetchRequest)), 1.0)
    while not world.waiting(ListOffsetsRequest) and now < 100.0:
        if world.waiting(FetchRequest):
            world.answer(FetchRequest, fetched(data(A, error_code=1)), now)
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), epoch=4)), now)
        now = until(world, lambda: bool(world.unsent), now)
    assert 30.0 < now < 35.0, "the time that an election may take"


def test_out_of_range_without_a_policy_stops_the_partition_and_no_other() -> None:
    world = World(auto_offset_reset="none")
    world.fetching({A: 3, B: 0})
    world.answer(FetchRequest, fetched(data(A), data(B)), 0.5)
    world.poll(0.5)
    now = out_of_range(world, A, 1.0) + 0.2
    world.answer(FetchRequest, fetched(), now)  # about B alone
    world.poll(now)
    world.answer(FetchRequest, fetched(data(A, error_code=1)), now)
    (failure,) = world.read_all()
    assert isinstance(failure, PartitionFailed)
    assert isinstance(failure.error, OffsetOutOfRangeError)
    assert failure.error.offsets == {A: 3}
    (request,) = (request for request in world.poll(now) if isinstance(request, FetchRequest))
    assert [gone.partitions for gone in request.forgotten_topics_data] == [(0,)]


def test_no_access_is_reported_and_asked_again_now_and_then() -> None:
    world = World()
    world.fetching({A: 3})
    world.answer(FetchRequest, fetched(data(A, error_code=29)), 1.0)
    assert [type(error) for error in world.errors()] == [TopicAuthorizationFailedError]
    assert until(world, lambda: bool(world.waiting(FetchRequest)), 1.0) == pytest.approx(2.0)


def test_a_topic_that_is_denied_is_reported_once_and_not_for_each_partition() -> None:
    world = World()
    world.fetching({A: 3, B: 3, C: 3})
    world.answer(FetchRequest, fetched(*(data(partition, error_code=29) for partition in (A, B, C))), 1.0)
    (error,) = world.errors()
    assert str(error).endswith("topics 't': Not authorized to access the topic.")


REFUSALS = (2, 4, 8, 10, 17, 31, 35, 42, 76, 87, 109, 116)
"""Errors that are no part of an election."""


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_that_passes_stops_nothing_and_is_an_outage_that_ends(code: int) -> None:
    world = World()
    world.fetching({A: 3})
    now = 1.0
    while now < 4.0:
        world.answer(FetchRequest, fetched(data(A, error_code=code)), now)
        assert {partition: type(error) for partition, error in world.buffer.refused.items()} == {A: type(for_code(code))}
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
    assert [*world.read_all(), *world.errors()] == []
    world.answer(FetchRequest, fetched(data(A, records(3, 5))), now)
    (parcel,) = world.read_all()
    assert isinstance(parcel, FetchedData)
    assert world.buffer.refused == {}
    outage = [(type(event), set(event.partitions)) for event in world.seen if isinstance(event, Fault | Recovered)]
    assert (outage[0], outage[-1]) == ((Fault, {A}), (Recovered, {A}))


def test_what_an_election_explains_is_shown_once_it_has_lasted_longer_than_one_and_never_raised() -> None:
    world = World()
    world.fetching({A: 3})
    now = 1.0
    while now < 60.0:
        world.answer(FetchRequest, fetched(data(A, error_code=9)), now)  # REPLICA_NOT_AVAILABLE
        assert bool(world.buffer.refused) is (now >= 4.0), now
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
    assert world.errors() == []
    world.answer(FetchRequest, fetched(data(A, records(3, 5))), now)
    assert world.buffer.refused == {}


def test_a_partition_that_is_paused_during_an_election_is_not_shown_as_if_it_failed_ever_since() -> None:
    world = World()
    world.fetching({A: 3, B: 3})
    world.send(PausePartitions(partitions=frozenset((A,))))
    world.answer(FetchRequest, fetched(data(A, error_code=9), data(B)), 1.0)
    for now in range(2, 61, 2):
        until(world, lambda: bool(world.waiting(FetchRequest)), float(now))
        world.answer(FetchRequest, fetched(data(B)), float(now))
        assert world.buffer.refused == {}


def test_a_refusal_is_tried_again_once_a_second() -> None:
    world = World()
    world.fetching({A: 3})
    now, at = 1.0, []
    for _ in range(6):
        world.answer(FetchRequest, fetched(data(A, error_code=8)), now)
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
        at.append(now)
    assert at == pytest.approx([1.1, 2.1, 3.1, 4.1, 5.1, 6.1])


def test_a_refusal_is_tried_again_at_once_at_another_leader() -> None:
    world = World()
    world.fetching({A: 3})
    world.answer(FetchRequest, fetched(data(A, error_code=76)), 1.0)
    now = until(world, lambda: bool(world.waiting(FetchRequest)), 1.0)
    world.answer(FetchRequest, fetched(data(A, error_code=76)), now)
    world.background.metadata.request_update(now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (2, 2, 2))), now)
    world.poll(now)
    assert asked(world.find(FetchRequest, 2).message) == {0: 3}


def test_a_refusal_that_lasts_is_raised_after_each_request_timeout() -> None:
    world = World()
    world.fetching({A: 3})
    now, raised = 1.0, []
    while now < 70.0:
        world.answer(FetchRequest, fetched(data(A, error_code=2)), now)
        raised += [(now, error) for error in world.errors()]
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
    assert [at for at, _ in raised] == pytest.approx([31.1, 61.1])
    for _, error in raised:
        assert isinstance(error, CorruptRecordException)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 3)


def _refused_for(world: World, seconds: float, now: float) -> list[float]:
    """Refuse the partition whenever it is asked for; return after how many seconds errors were raised."""
    end, raised = now + seconds, []
    while now < end:
        world.answer(FetchRequest, fetched(data(A, error_code=2)), now)
        raised += [now] * len(world.errors())
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
    return raised


def test_a_refusal_is_not_raised_for_a_time_in_which_the_partition_was_paused() -> None:
    world = World()
    world.fetching({A: 3, B: 3})
    world.answer(FetchRequest, fetched(data(A, error_code=2), data(B)), 1.0)
    world.send(PausePartitions(partitions=frozenset((A,))))
    for now in range(2, 61, 2):
        until(world, lambda: bool(world.waiting(FetchRequest)), float(now))
        world.answer(FetchRequest, fetched(data(B)), float(now))
    assert world.errors() == []
    world.send(ResumePartitions(partitions=frozenset((A,))))
    world.send(PausePartitions(partitions=frozenset((B,))))
    until(world, lambda: bool(world.waiting(FetchRequest)), 61.0)
    world.answer(FetchRequest, fetched(data(B)), 61.0)
    assert _refused_for(world, 40, until(world, lambda: bool(world.waiting(FetchRequest)), 61.0)) == pytest.approx([92.1])


def test_a_refusal_is_not_raised_for_a_time_in_which_nothing_was_asked() -> None:
    world = World()
    world.fetching({A: 3})
    world.answer(FetchRequest, fetched(data(A, error_code=2)), 1.0)
    assert _refused_for(world, 40, until(world, lambda: bool(world.waiting(FetchRequest)), 60.0)) == pytest.approx([90.0])


def test_a_partition_that_left_is_not_refused_any_more() -> None:
    world = World()
    world.fetching({A: 3, B: 3})
    world.answer(FetchRequest, fetched(data(A, error_code=8), data(B)), 1.0)
    assert world.buffer.refused.keys() == {A}
    world.assign(B)
    world.poll(1.0)
    assert world.buffer.refused == {}


@pytest.mark.parametrize("code", [-1, 4242])
def test_an_error_that_nobody_knows_is_tried_again(code: int) -> None:
    world = World()
    world.fetching({A: 3})
    now = 1.0
    for _ in range(4):
        world.answer(FetchRequest, fetched(data(A, error_code=code)), now)
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
    assert world.read_all() == []


# KIP-951.


@pytest.mark.parametrize("code", [6, 74])
def test_a_hint_at_the_new_leader_is_taken(code: int) -> None:
    world = World()
    world.fetching({A: 3})
    hint = LeaderIdAndEpoch(leader_id=9, leader_epoch=4)
    node = NodeEndpoint(node_id=9, host="b9", port=9092)
    world.answer(FetchRequest, fetched(data(A, error_code=code, current_leader=hint), node_endpoints=(node,)), 1.0)
    world.poll(1.0)
    assert asked(world.find(FetchRequest, 9).message) == {0: 3}
    assert world.background.metadata.cluster.nodes[9].host == "b9"
    assert world.waiting(MetadataRequest) == []


def test_a_hint_that_is_not_newer_is_no_hint() -> None:
    world = World()
    world.fetching({A: 3}, epoch=5)
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    world.answer(FetchRequest, fetched(data(A, error_code=6, current_leader=hint)), 1.0)
    world.poll(1.0)
    assert world.waiting(FetchRequest) == []
    assert world.waiting(MetadataRequest)


def test_after_a_change_of_leader_the_position_is_checked_first() -> None:
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 5))), 0.5)
    world.poll(0.5)
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    world.answer(FetchRequest, fetched(data(A, error_code=6, current_leader=hint)), 1.0)
    world.poll(1.0)
    assert world.waiting(FetchRequest) == []
    assert world.find(OffsetForLeaderEpochRequest).node_id == 2


def test_what_a_former_leader_gives_after_a_seek_is_asked_of_the_next_one_and_checked_after_the_one_that_follows() -> None:
    """Else the records would count as checked against the next leader's log, which may have lost them."""
    world = World()
    world.fetching({A: 0}, epoch=5)
    world.background.metadata.request_update(1.0)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.0)
    world.answer(MetadataRequest, cluster(described("t", (2, 2, 2), epoch=6)), now)
    world.answer(FetchRequest, fetched(data(A, records(0, 5, epoch=5))), now, node_id=1)
    assert world.read_all() == []
    world.poll(now)
    assert asked(world.waiting(FetchRequest)[-1]) == {0: 0}
    world.answer(FetchRequest, fetched(data(A, records(0, 5, epoch=5)), session=8), now, node_id=2)
    assert len(world.read_all()) == 1
    world.background.metadata.request_update(now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (3, 3, 3), epoch=7)), now)
    world.poll(now)
    assert world.find(OffsetForLeaderEpochRequest).node_id == 3


@pytest.mark.parametrize("code", [0, 1, 3])
def test_an_answer_about_a_topic_that_is_made_anew_meanwhile_says_nothing_about_the_new_one(code: int) -> None:
    """Both begin at 0, with the same leader in the same epoch. It arrives on a slow line, and all that follows overtakes it."""
    world = World(auto_offset_reset="earliest")
    world.fetching({A: 0})
    world.buffer.watermarks[A] = Watermarks(1000, 1000, 0, 0.0)
    world.background.metadata.request_update(1.0)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.0)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), generation=1)), now)
    assert A not in world.buffer.watermarks
    now = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now)
    beginning = ListOffsetsPartitionResponse(partition_index=0, offset=0)
    topic = ListOffsetsTopicResponse(name="t", partitions=(beginning,))
    world.answer(ListOffsetsRequest, ListOffsetsResponse(topics=(topic,)), now)
    world.read_all()
    former = data(A, records(0, 5)) if not code else data(A, error_code=code)
    world.answer(FetchRequest, fetched(former), now, node_id=1)
    assert world.read_all() == []
    world.poll(now)
    (request,) = world.waiting(FetchRequest)
    assert asked(request) == {0: 0}
    assert [topic.topic_id for topic in request.topics] == [topic_id("t", 1)]


# Answers of another session.


def strays(ids: bool) -> list[FetchResponse]:
    """Return answers about what nobody asked for: another partition, another topic, beside one that was asked for."""
    another = FetchableTopicResponse(topic="" if ids else "u", topic_id=topic_id("u") if ids else None, partitions=(data(A),))
    return [
        fetched(data(B, records(0, 5)), ids=ids),
        fetched(data(A, records(3, 5)), data(B), ids=ids),
        FetchResponse(session_id=7, responses=(another,)),
    ]


@pytest.mark.parametrize("answer", [*strays(True), *strays(False)])
def test_an_answer_of_another_session_is_not_read_and_begins_a_new_session_with_a_backoff(answer: FetchResponse) -> None:
    """A proxy swaps two brokers whose sessions have the same id: each answers at once for the partitions of the other."""
    world = World()
    world.fetching({A: 3}, ids=not answer.responses[0].topic)
    now, full = 1.0, []
    while now < 11.0:
        world.answer(FetchRequest, fetched(data(A), ids=not answer.responses[0].topic), now)
        world.poll(now)
        world.answer(FetchRequest, answer, now + 0.001)
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now + 0.001)
        (request,) = world.waiting(FetchRequest)
        full.append((request.session_epoch, request.session_id, asked(request)))
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1), ids=not answer.responses[0].topic)), now)
    assert full == [(0, 0, {0: 3})] * len(full)
    assert len(full) < 20
    assert world.read_all() == []
    outage = [type(event) for event in world.seen if isinstance(event, Fault | Recovered)]
    assert set(outage) == {Fault}
    world.answer(FetchRequest, fetched(data(A), ids=not answer.responses[0].topic), now)
    world.poll(now)
    world.answer(FetchRequest, fetched(data(A, records(3, 5)), ids=not answer.responses[0].topic), now)
    assert [type(event) for event in world.seen if isinstance(event, Fault | Recovered)] == [*outage, Recovered]


def test_a_full_answer_that_leaves_a_partition_out_is_asked_for_again() -> None:
    """The session may not have it: nothing would ever come of it."""
    world = World()
    world.fetching({A: 3, B: 4})
    world.answer(FetchRequest, fetched(data(A, records(3, 5))), 1.0)
    (request,) = world.poll(1.0)
    assert isinstance(request, FetchRequest)
    assert (request.session_epoch, request.session_id, asked(request)) == (0, 7, {0: 8, 1: 4})
    assert len(world.read_all()) == 1


# Errors of the whole answer.


@pytest.mark.parametrize("code", [70, 71])
def test_a_session_that_is_lost_is_opened_again_at_once(code: int) -> None:
    world = World()
    world.fetching({A: 0, B: 4})
    world.answer(FetchRequest, fetched(data(A), data(B)), 0.5)
    world.poll(0.5)
    world.answer(FetchRequest, fetched(error_code=code, session=0), 1.0)
    (request,) = world.poll(1.0)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {0: 0, 1: 4}
    assert (request.session_epoch, request.session_id) == (0, 0 if code == 70 else 7)


@pytest.mark.parametrize("code", [70, 71, 106, -1, 7])
def test_an_error_of_the_whole_answer_that_does_not_end_backs_off(code: int) -> None:
    world = World()
    world.fetching({A: 0})
    now, requests = 1.0, 0
    while now < 11:
        requests += 1
        world.answer(FetchRequest, fetched(error_code=code, session=0), now)
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now) + 0.001
    assert requests < 25


def test_a_broker_that_is_gone_costs_a_backoff_and_no_position() -> None:
    world = World()
    world.fetching({A: 3, B: 0}, leaders=(1, 2, 1))
    world.answer(FetchRequest, KafkaConnectionError("gone"), 1.0, node_id=1)
    world.poll(1.0)
    assert [request.node_id for request in world.unsent if isinstance(request.message, FetchRequest)] == [2]
    assert world.waiting(MetadataRequest)
    world.answer(MetadataRequest, _moved(), 1.05)
    world.poll(1.05)
    world.answer(FetchRequest, fetched(data(B), session=9), 1.06, node_id=2)
    world.poll(1.06)
    (request,) = world.waiting(FetchRequest)
    assert asked(request) == {0: 3, 1: 0}


def test_brokers_that_were_forgotten_are_asked_as_soon_as_they_are_known_again() -> None:
    world = World(retry_backoff_ms=100, retry_backoff_max_ms=100)
    world.fetching({A: 3})
    world.answer(FetchRequest, KafkaConnectionError("cut"), 1.0)
    world.network.usable = False
    world.poll(1.0)
    world.network.usable = True
    world.poll(1.11)
    assert not world.waiting(FetchRequest)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), 1.12)
    world.poll(1.12)
    (request,) = world.waiting(FetchRequest)
    assert asked(request) == {0: 3}


def test_partitions_of_a_broker_that_keeps_its_answer_are_read_from_their_new_leader() -> None:
    world = World()
    world.fetching({A: 3, B: 0}, leaders=(1, 2, 1))
    world.answer(FetchRequest, fetched(data(B), session=9), 0.6, node_id=2)
    world.poll(0.6)
    assert world.wake_at == 0.6 + LATE
    world.poll(0.6 + LATE)
    world.answer(MetadataRequest, _moved(), 1.65)
    world.poll(1.65)
    world.answer(FetchRequest, fetched(session=9), 1.8, node_id=2)
    world.poll(1.8)
    assert asked(world.find(FetchRequest, 2).message)[0] == 3


def test_a_broker_that_keeps_its_answer_is_asked_about_less_and_less() -> None:
    world = World()
    world.fetching({A: 3})
    asked_at, now = [], 0.0
    while now < 29.0:
        world.poll(now)
        if world.waiting(MetadataRequest):
            asked_at.append(now)
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now)
        now = max(now + 0.001, world.wake_at)
    assert asked_at == pytest.approx([1.6, 3.1, 6.1, 12.1, 24.1], abs=0.01)


def _moved() -> MetadataResponse:
    return cluster(described("t", (2, 2, 2), epoch=1), brokers=(2, 3))


def test_a_refusal_that_retrying_cannot_mend_is_reported_and_tried_again_after_a_backoff() -> None:
    world = World()
    world.fetching({A: 3})
    world.answer(FetchRequest, AuthenticationFailedError("wrong password"), 1.0)
    assert [type(error) for error in world.errors()] == [AuthenticationFailedError]
    world.poll(1.0)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), 1.0)
    world.poll(1.0)
    assert not world.waiting(FetchRequest)
    assert world.wake_at == pytest.approx(1.1)
    world.poll(1.1)
    assert asked(world.find(FetchRequest).message) == {0: 3}


def test_answers_that_are_too_long_are_raised_after_each_request_timeout_unless_it_was_one() -> None:
    """The length of one may have been corrupted on its way; a batch that is too large is sent again and again."""
    world = World(receive_message_max_bytes=5000)
    world.fetching({A: 3})
    now, raised = 1.0, []
    while now < 64.0:
        world.answer(FetchRequest, FrameSizeError("frame length 6000: expected 0 to 5000"), now)
        raised += [(now, error) for error in world.errors()]
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
        world.answer(FetchRequest, fetched(data(A)), now)  # another partition was the first one
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now) + 0.5
        if world.waiting(MetadataRequest):
            world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), now)
    assert [at for at, _ in raised] == pytest.approx([1.6, 31.6, 61.6], abs=0.6)
    for _, error in raised:
        assert isinstance(error, FrameSizeError)
        assert "receive_message_max_bytes=5000" in str(error)


def test_an_answer_that_is_too_long_now_and_then_is_no_error() -> None:
    world = World()
    world.fetching({A: 3})
    now = 1.0
    for _ in range(4):
        world.answer(FetchRequest, FrameSizeError("frame length 2000000000: expected 0 to 100000000"), now)
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now)
        world.answer(FetchRequest, fetched(data(A)), now)
        now = until(world, lambda: bool(world.waiting(FetchRequest)), now) + 40.0
    assert world.errors() == []


# The budget.


@pytest.mark.parametrize(
    ("longest", "options"),
    [
        (1_000_000, {}),
        (100_000_000, {"fetch_max_bytes": 200_000_000, "fetch_buffer_bytes": 2**30}),
        (1024, {"max_partition_fetch_bytes": 2000}),
    ],
)
def test_no_request_asks_for_more_than_an_answer_may_bring(longest: int, options: dict[str, Any]) -> None:
    world = World(receive_message_max_bytes=longest, **options)
    world.fetching({A: 0, B: 0}, leaders=(1, 2, 1))
    assert all(longest // 2 < request.max_bytes < longest for request in world.waiting(FetchRequest))


def test_a_full_buffer_asks_for_nothing_until_there_is_room() -> None:
    world = World(fetch_buffer_bytes=10_000, max_partition_fetch_bytes=2000)
    world.fetching({A: 0})
    offset, now = 0, 0.0
    while world.waiting(FetchRequest):
        now += 0.01
        world.answer(FetchRequest, fetched(data(A, records(offset, 1, size=1900))), now)
        offset += 1
        world.poll(now)
    assert world.buffer.hungry
    assert world.wake_at > now
    assert 4000 <= world.buffer.total.unread <= 10_000
    world.read_all()
    (request,) = world.poll(now + 1)
    assert isinstance(request, FetchRequest)


def test_no_request_asks_for_more_than_there_is_room_for() -> None:
    world = World(fetch_buffer_bytes=16_000, max_partition_fetch_bytes=2000, fetch_max_bytes=100_000)
    world.fetching({A: 0, B: 0, C: 0}, leaders=(1, 2, 3))
    sizes = [request.max_bytes for request in world.waiting(FetchRequest)]
    assert len(sizes) == 3
    assert sum(sizes) <= 16_000
    assert all(size >= 2000 for size in sizes)


def test_a_buffer_smaller_than_every_limit_fetches_one_request_at_a_time() -> None:
    world = World(fetch_buffer_bytes=10, max_partition_fetch_bytes=2000)
    world.fetching({A: 0, B: 0}, leaders=(1, 2, 1))
    assert 1 <= len(world.waiting(FetchRequest)) <= 2
    world.answer(FetchRequest, fetched(data(A, records(0, 1, size=5000))), 0.1, node_id=1)
    before = len(world.waiting(FetchRequest))
    world.poll(0.1)
    assert len(world.waiting(FetchRequest)) <= before
    world.read_all()
    world.poll(0.2)
    assert world.waiting(FetchRequest)


def test_every_broker_has_room_for_a_request_however_many_there_are() -> None:
    world = World(fetch_buffer_bytes=16_000, max_partition_fetch_bytes=2000)
    partitions, brokers = [TopicPartition("t", number) for number in range(12)], range(1, 13)
    world.assign(*partitions)
    for partition in partitions:
        world.seek(partition, 0)
    world.learn(described("t", brokers), brokers=brokers)
    world.poll(0.1)
    sizes = [request.max_bytes for request in world.waiting(FetchRequest)]
    assert len(sizes) == 12
    assert sum(sizes) <= 16_000


def test_brokers_that_find_no_room_take_turns() -> None:
    world = World(fetch_buffer_bytes=1, max_partition_fetch_bytes=2000)
    world.fetching({A: 0, B: 0, C: 0}, leaders=(1, 2, 3))
    turns = []
    for now in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        (node_id,) = [request.node_id for request in world.unsent if isinstance(request.message, FetchRequest)]
        turns.append(node_id)
        world.answer(FetchRequest, fetched(), now)
        world.poll(now)
    assert turns[:3] == turns[3:]
    assert set(turns) == {1, 2, 3}


def test_a_partition_with_its_share_unread_is_left_out_and_the_others_go_on() -> None:
    world = World(fetch_buffer_bytes=16_000, max_partition_fetch_bytes=2000)
    world.fetching({A: 0, B: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 1, size=8000)), data(B)), 0.1)
    (request,) = world.poll(0.1)
    assert isinstance(request, FetchRequest)
    assert [gone.partitions for gone in request.forgotten_topics_data] == [(0,)]
    world.read_all()
    world.answer(FetchRequest, fetched(), 0.5)
    (request,) = world.poll(0.5)
    assert isinstance(request, FetchRequest)
    assert asked(request) == {0: 1}


def test_brokers_hold_requests_longer_and_longer_while_a_partition_is_left_out() -> None:
    """The first ones are short, since the application may soon have read; and it may not read at all."""
    world = World(fetch_buffer_bytes=16_000, max_partition_fetch_bytes=2000)
    world.fetching({A: 0, B: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 1, size=8000)), data(B)), 0.1)
    waits = []
    for now in range(1, 11):
        world.poll(now)
        (request,) = world.waiting(FetchRequest)
        waits.append(request.max_wait_ms)
        world.answer(FetchRequest, fetched(), now + 0.5)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 500, 500, 500]
    world.read_all()
    world.poll(11)
    (request,) = world.waiting(FetchRequest)
    assert (asked(request), request.max_wait_ms) == ({0: 1}, 500)


def test_a_partition_with_a_little_unread_stays_in_the_session() -> None:
    world = World()
    world.fetching({A: 0, B: 0})
    world.answer(FetchRequest, fetched(data(A, records(0, 1)), data(B)), 0.1)
    (request,) = world.poll(0.1)
    assert isinstance(request, FetchRequest)
    assert (asked(request), request.forgotten_topics_data) == ({0: 1}, ())


def test_data_that_does_not_hold_together_is_handed_on_and_no_more_is_fetched() -> None:
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A, b"\x00" * 100)), 0.1)
    assert len(world.read_all()) == 1
    world.poll(0.1)
    assert not world.waiting(FetchRequest)
    world.seek(A, 9)
    world.poll(0.2)
    assert any(asked(request) == {0: 9} for request in world.waiting(FetchRequest))


# The end, and the cost.


def test_sessions_in_no_use_are_closed_at_the_end() -> None:
    world = World()
    world.fetching({A: 0, B: 0}, leaders=(1, 2, 1))
    world.answer(FetchRequest, fetched(data(A), session=8), 0.5, node_id=1)
    world.send(PausePartitions(partitions=frozenset((A,))))
    world.poll(0.5)
    (last,) = world.background.poll_on_close(1.0).requests
    assert isinstance(last.message, FetchRequest)
    assert (last.node_id, last.final) == (1, True)
    assert (last.message.session_id, last.message.session_epoch, last.message.topics) == (8, -1, ())


@pytest.mark.slow
def test_a_thousand_idle_partitions_cost_nothing() -> None:
    partitions = [TopicPartition("t", index) for index in range(1000)]
    world = World()
    world.fetching(dict.fromkeys(partitions, 0), leaders=(1,) * 1000)
    world.answer(FetchRequest, fetched(*map(data, partitions)), 0.5)
    subscription = world.background.subscription
    subscription.partitions = Untouchable(subscription.partitions)
    for turn in range(20):
        (request,) = world.poll(1.0 + turn)
        assert isinstance(request, FetchRequest)
        assert asked(request) == {}
        world.answer(FetchRequest, fetched(), 1.5 + turn)


def lost(*partitions: TopicPartition) -> World:
    """Return a world that has forgotten its brokers; it is 2.0 then, and metadata is on its way."""
    world = World()
    world.fetching(dict.fromkeys(partitions, 0), leaders=(1,) * len(partitions))
    world.answer(FetchRequest, KafkaConnectionError("gone"), 1.0)
    world.network.usable = False
    world.background.metadata.request_update(1.0)
    until(world, lambda: not world.background.metadata.cluster.nodes, 1.0)
    world.network.usable = True
    until(world, lambda: bool(world.waiting(MetadataRequest)), 2.0)
    return world


def test_partitions_without_a_leader_wait_for_metadata_and_not_for_the_clock() -> None:
    world = lost(A, B, C)
    now, turns = 2.0, 0
    while now < 12.0:
        world.poll(now)
        now = world.wake_at
        turns += 1
    assert turns <= 20


def test_partitions_without_a_leader_are_fetched_as_soon_as_their_leader_is_known() -> None:
    world = lost(A, B, C)
    world.poll(9.0)
    world.answer(MetadataRequest, cluster(described("t", (1, 1, 1))), 9.0)
    world.poll(9.0)
    assert world.waiting(FetchRequest)


@pytest.mark.parametrize("backoff", [0, 100])
def test_without_a_backoff_a_dead_broker_makes_nobody_spin(backoff: int) -> None:
    world = World(retry_backoff_ms=backoff, retry_backoff_max_ms=backoff)
    world.fetching({A: 0})
    turns = 0
    now = 1.0
    while now < 2.0 and turns < 2000:
        turns += 1
        for pending in list(world.unsent):
            world.unsent.remove(pending)
            pending.on_done(KafkaConnectionError("gone"), now)
        world.background.poll(now)
        poll = world.background.poll(now)
        world.unsent += poll.requests
        now = max(now, poll.wake_at) if not poll.requests else now
    assert turns < 500


def test_what_one_answer_brings_is_handed_over_in_one_step() -> None:
    """On a thread of its own the application reads meanwhile: all partitions of an answer are there before the first is read."""
    world, there = World(), list[int]()
    world.fetching({A: 0, B: 0, C: 0})
    world.buffer.on_parcel = lambda: there.append(len(world.buffer.parcels))
    world.answer(FetchRequest, fetched(*(data(each, records(0, 5)) for each in (A, B, C))), 0.1)
    assert there[0] == 3


def test_a_broker_that_throttles_us_is_not_suspected_while_the_next_fetch_waits_for_that() -> None:
    world = World()
    world.fetching({A: 0})
    world.answer(FetchRequest, fetched(data(A), throttle_time_ms=5000), 1.0)
    world.poll(1.0)
    assert world.waiting(FetchRequest)
    assert world.wake_at == 6.5 + LATE
    world.poll(6.5)
    assert not world.waiting(MetadataRequest)
    world.answer(FetchRequest, fetched(data(A), throttle_time_ms=5000), 7.0)
    world.poll(7.0)
    world.answer(FetchRequest, KafkaConnectionError("gone"), 7.5)
    now = until(world, lambda: bool(world.waiting(FetchRequest)), 7.5)
    world.learn(described("t", (1, 1, 1)), now=now)
    world.poll(now)
    assert world.wake_at == pytest.approx(now + 0.5 + LATE), "it reads what comes on a new connection"
