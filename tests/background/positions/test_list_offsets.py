"""The ListOffsets request manager: one request per leader, an answer per look-up."""

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_async import OffsetAndTimestamp, TopicPartition
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    RequestWithdrawnError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from kafka_async.events import Call, ListOffsets
from kafka_async.trace import Fault, Recovered
from kafka_async.wire.messages import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponseTopic,
)

from ..support import A, B, C, World, cluster, described, until

Offsets = Mapping[TopicPartition, OffsetAndTimestamp | None]


def ask(world: World, timestamps: dict[TopicPartition, int], deadline: float = 60.0) -> Call[Offsets]:
    call: Call[Offsets] = Call(deadline)
    world.send(ListOffsets(call=call, timestamps=timestamps))
    return call


def known(**options: Any) -> World:
    """Return a world that knows the leaders of ``t``; it is 1.0 then."""
    world = World(**options)
    world.background.metadata.look_up(Call(9.0), frozenset("t"), create=False, fail_fast=False)
    world.learn(described("t", (1, 2, 1), epoch=4))
    return world


def answer(*parts: ListOffsetsPartitionResponse) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=parts),))


def part(partition: TopicPartition, offset: int = -1, **fields: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition, offset=offset, **fields)


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    world = known(isolation_level="read_committed")
    call = ask(world, {A: -1, B: -2, C: 1234})
    assert len(world.poll(1.0)) == 2
    one, two = world.find(ListOffsetsRequest, 1), world.find(ListOffsetsRequest, 2)
    request = one.message
    assert isinstance(request, ListOffsetsRequest)
    asked = {(p.partition_index, p.timestamp, p.current_leader_epoch) for p in request.topics[0].partitions}
    assert asked == {(0, -1, 4), (2, 1234, 4)}
    assert request.isolation_level == 1
    one.on_done(answer(part(A, 10), part(C, 3, timestamp=1300, leader_epoch=2)), 1.1)
    assert not call.done
    two.on_done(answer(part(B, 0)), 1.2)
    assert call.result() == {
        A: OffsetAndTimestamp(10, -1),
        B: OffsetAndTimestamp(0, -1),
        C: OffsetAndTimestamp(3, 1300, 2),
    }


def test_nothing_to_look_up_is_answered_at_once() -> None:
    world = known()
    call = ask(world, {})
    assert world.poll(1.0) == []
    assert call.result() == {}


def test_no_record_that_young_is_no_offset() -> None:
    world = known()
    call = ask(world, {A: 99})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A)), 1.1)
    assert call.result() == {A: None}


def test_one_partition_asked_for_twice_goes_in_two_requests() -> None:
    world = known()
    first, last = ask(world, {A: -2}), ask(world, {A: -1})
    assert len(world.poll(1.0)) == 2
    for _ in range(2):
        request = world.find(ListOffsetsRequest)
        assert isinstance(request.message, ListOffsetsRequest)
        timestamp = request.message.topics[0].partitions[0].timestamp
        request.on_done(answer(part(A, {-2: 5, -1: 50}[timestamp])), 1.1)
    assert (first.result(), last.result()) == ({A: OffsetAndTimestamp(5, -1)}, {A: OffsetAndTimestamp(50, -1)})


def test_partitions_that_fail_in_one_answer_are_one_line_of_the_log() -> None:
    """It was one line for each partition."""
    world = known()
    ask(world, {A: -1, C: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=6), part(C, error_code=6)), 1.0)
    (fault,) = (event for event in world.seen if isinstance(event, Fault))
    assert (fault.subject, fault.partitions) == ("fetch", frozenset({A, C}))


def test_look_ups_that_fail_are_an_outage_until_there_is_an_answer() -> None:
    world = known()
    ask(world, {A: -1, C: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=6), part(C, 3)), 1.0)
    when = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.0)
    world.answer(ListOffsetsRequest, answer(part(A, 8)), when)
    outage = [(type(event), event.outage, set(event.partitions)) for event in world.seen if isinstance(event, Fault | Recovered)]
    assert outage == [(Fault, "looking up offsets", {A}), (Recovered, "looking up offsets", {A})]


def outages(world: World) -> list[tuple[type, bool, set[TopicPartition]]]:
    """Return which outages of look-ups began and ended, and whether what ended was needed."""
    seen = [event for event in world.seen if isinstance(event, Fault | Recovered) and event.outage == "looking up offsets"]
    return [(type(event), isinstance(event, Fault) or event.needed, set(event.partitions)) for event in seen]


def test_an_outage_of_a_look_up_ends_when_nobody_waits_for_it_any_more() -> None:
    """It ended with the next look-up that went well, hours later, and the log said that it had lasted so long."""
    world = known(metadata_max_age_ms=3_600_000)
    call = ask(world, {A: -1, C: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=7), part(C, error_code=7)), 1.0)
    call.withdraw()
    ask(world, {C: -1})
    world.poll(1.01)
    world.answer(ListOffsetsRequest, answer(part(C, 8)), 1.02)
    world.poll(1.02)
    assert world.wake_at == 601.01, "since it was found that nobody waits"
    world.poll(601.01)
    assert outages(world) == [(Fault, True, {A, C}), (Recovered, True, {C}), (Recovered, False, {A})]
    assert world.wake_at > 1000.0, "nothing is waited for"


def test_an_outage_of_a_look_up_goes_on_while_a_call_waits_for_a_leader_and_for_a_while_after_it() -> None:
    """The wait for a leader is no failure; the outage was said to be no longer needed as soon as the call was over."""
    world = known()
    call = ask(world, {A: -1}, deadline=800.0)
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=6)), 1.0)
    when = until(world, lambda: bool(world.waiting(MetadataRequest)), 1.0)
    world.answer(MetadataRequest, cluster(described("t", (-1, 2, 1), epoch=5)), when)
    for now in range(2, 702):
        world.poll(now)
    call.withdraw()
    for now in range(702, 1302):
        world.poll(now)
    assert outages(world) == [(Fault, True, {A})]
    world.poll(1302.0)
    assert outages(world) == [(Fault, True, {A}), (Recovered, False, {A})]


def test_calls_that_end_at_their_deadlines_and_are_made_again_are_one_outage() -> None:
    world, now = known(), 1.0
    for outcome in (*[part(A, error_code=7)] * 3, part(A, 8)):
        call = ask(world, {A: -1}, deadline=now + 60.0)
        world.poll(now)
        world.answer(ListOffsetsRequest, answer(outcome), now)
        call.withdraw()
        world.poll(now + 1.0)
        now += 120.0
    assert outages(world) == [(Fault, True, {A})] * 3 + [(Recovered, True, {A})]


def test_an_outage_of_a_look_up_ends_when_a_lasting_error_answers_it() -> None:
    world = known()
    call = ask(world, {A: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=6)), 1.0)
    when = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=29)), when)
    assert call.done
    until(world, lambda: len(outages(world)) > 1, when, limit=5)
    assert outages(world) == [(Fault, True, {A}), (Recovered, False, {A})]


@pytest.mark.parametrize("code", [3, 5, 6, 7, 9, 13, 14, 56, 74, 75, 78, 100])
def test_passing_errors_are_tried_again_after_a_backoff(code: int) -> None:
    world = known()
    call = ask(world, {A: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=code)), 1.0)
    when = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.0)
    assert when == pytest.approx(1.1)
    assert bool(world.waiting(MetadataRequest)) is (code in (3, 5, 6, 9, 13, 56, 74, 75, 100))
    world.answer(ListOffsetsRequest, answer(part(A, 8)), when)
    assert call.result() == {A: OffsetAndTimestamp(8, -1)}


@pytest.mark.parametrize(
    ("code", "error"),
    [(29, TopicAuthorizationFailedError), (35, UnsupportedVersionError), (42, KafkaError), (43, UnsupportedForMessageFormatError)],
)
def test_lasting_errors_fail_the_call_with_the_partition_in_the_text(code: int, error: type[KafkaError]) -> None:
    world = known()
    call = ask(world, {A: -1, C: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=code), part(C, 5)), 1.1)
    with pytest.raises(error, match="t-0"):
        call.result()
    assert world.poll(1.2) == []


def test_segments_without_timestamps_have_no_answer() -> None:
    world = known()
    call = ask(world, {A: 5})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, error_code=43)), 1.1)
    assert call.result() == {A: None}


@pytest.mark.parametrize("outcome", [KafkaConnectionError("gone"), KafkaTimeoutError("late"), answer(), answer(part(B, 5))])
def test_answers_that_do_not_come_are_asked_for_again(outcome: object) -> None:
    world = known()
    call = ask(world, {A: -1})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, outcome, 1.0)
    until(world, lambda: bool(world.waiting(ListOffsetsRequest)), 1.0)
    assert not call.done
    assert world.waiting(MetadataRequest), "another broker may lead by now"


def test_the_cluster_is_asked_about_a_leader_that_does_not_answer_less_and_less() -> None:
    world = known()
    call = ask(world, {A: -1, B: -1}, deadline=100.0)
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(B, 8)), 1.1, node_id=2)
    asked_at, now = [], 1.0
    while now < 29.0:
        world.poll(now)
        if world.waiting(MetadataRequest):
            asked_at.append(now)
            world.answer(MetadataRequest, cluster(described("t", (1, 2, 1), epoch=4)), now)
        now = max(now + 0.001, world.wake_at)
    assert asked_at == pytest.approx([2.0, 3.0, 5.0, 9.0, 17.0], abs=0.01)
    world.answer(ListOffsetsRequest, answer(part(A, 8)), now)
    assert call.done
    world.poll(now)
    assert world.wake_at > now + 60.0, "nothing is waited for"


def moving(world: World, leader: int, epoch: int, now: float) -> float:
    """Have another broker lead ``t``; all are still in the cluster. Return when that was known."""
    world.background.metadata.request_update(now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (leader,) * 3, epoch=epoch)), now)
    world.poll(now)
    return now


@pytest.mark.parametrize("late", [KafkaTimeoutError("late"), answer(part(A, 3)), answer(part(A, error_code=6))])
def test_the_next_leader_is_asked_at_once_and_what_the_former_one_says_late_does_not_count(late: object) -> None:
    world = known()
    call = ask(world, {A: -1}, deadline=100.0)
    world.poll(1.0)
    now = moving(world, 3, 5, 1.0)
    assert [request.node_id for request in world.unsent] == [1, 3]
    assert world.unsent[0].withdrawn()
    assert not world.unsent[1].withdrawn()
    world.answer(ListOffsetsRequest, late, now, node_id=1)
    world.poll(now)
    assert len(world.waiting(ListOffsetsRequest)) == 1
    assert not any(isinstance(event, Fault) for event in world.seen)
    world.answer(ListOffsetsRequest, answer(part(A, 8)), now, node_id=3)
    assert call.result() == {A: OffsetAndTimestamp(8, -1)}


def test_a_leader_that_leads_again_before_its_old_request_has_failed_is_asked_once_more() -> None:
    world = known()
    call = ask(world, {A: -1}, deadline=100.0)
    world.poll(1.0)
    now = moving(world, 1, 6, moving(world, 3, 5, 1.0))
    assert [request.node_id for request in world.unsent] == [1, 3, 1]
    for _ in range(2):
        world.answer(ListOffsetsRequest, KafkaTimeoutError("late"), now)
        world.poll(now)
    assert len(world.waiting(ListOffsetsRequest)) == 1
    world.answer(ListOffsetsRequest, answer(part(A, 8)), now, node_id=1)
    assert call.done


def test_a_leader_in_a_new_epoch_is_not_asked_twice() -> None:
    world = known()
    call = ask(world, {A: -1}, deadline=100.0)
    world.poll(1.0)
    now = moving(world, 1, 5, 1.0)
    world.answer(ListOffsetsRequest, answer(part(A, 8)), now)
    assert call.done
    assert not world.waiting(ListOffsetsRequest)


def test_an_end_below_nothing_is_not_believed() -> None:
    world = known()
    call = ask(world, {A: -1}, deadline=5.0)
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(part(A, -1)), 1.1)
    world.poll(5.0)
    with pytest.raises(KafkaTimeoutError) as caught:
        call.result()
    assert isinstance(caught.value.__cause__, MalformedResponseError)


def test_look_ups_that_fail_are_repeated_at_growing_intervals() -> None:
    world = known()
    ask(world, {A: -1})
    now, waits = 1.0, []
    world.poll(now)
    for _ in range(5):
        world.answer(ListOffsetsRequest, answer(part(A, error_code=7)), now)
        then = until(world, lambda: bool(world.waiting(ListOffsetsRequest)), now)
        waits.append(round(then - now, 3))
        now = then
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_a_leader_that_becomes_known_is_asked_at_once() -> None:
    world = World()
    ask(world, {A: -1})
    world.poll(0.0)
    world.answer(MetadataRequest, cluster(described("t", (1,))), 0.01)
    world.poll(0.01)
    assert world.waiting(ListOffsetsRequest)


def test_a_leader_that_becomes_known_late_is_asked_at_once() -> None:
    world = World()
    ask(world, {A: -1})
    now = 0.0
    for _ in range(12):
        now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
        world.answer(MetadataRequest, cluster(described("t", (-1,))), now)
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (1,))), now)
    world.poll(now)
    assert world.waiting(ListOffsetsRequest)


def test_a_topic_that_does_not_exist_fails_the_call_after_a_request_timeout() -> None:
    world = World(request_timeout_ms=20_000)
    call = ask(world, {A: -1})
    missing = MetadataResponseTopic(name="t", error_code=UnknownTopicOrPartitionError.errno)
    now = 0.0
    while not call.done:
        now = until(world, lambda: bool(world.waiting(MetadataRequest)) or call.done, now)
        if not call.done:
            world.answer(MetadataRequest, cluster(missing), now)
    assert 20.0 <= now < 22.0
    with pytest.raises(UnknownTopicOrPartitionError, match="'t'"):
        call.result()
    assert world.errors() == []


def test_a_topic_without_access_fails_the_call_at_once() -> None:
    world = World()
    call = ask(world, {A: -1})
    world.poll(0.0)
    world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="t", error_code=29)), 0.01)
    until(world, lambda: call.done, 0.01)
    with pytest.raises(TopicAuthorizationFailedError, match="'t'"):
        call.result()
    assert world.errors() == []


def test_access_that_was_given_since_the_last_call_is_found_out() -> None:
    world = World()
    call = ask(world, {A: -1})
    world.poll(0.0)
    world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="t", error_code=29)), 0.01)
    now = until(world, lambda: call.done, 0.01)
    call = ask(world, {A: -1})
    now = until(world, lambda: bool(world.waiting(MetadataRequest)), now)
    world.answer(MetadataRequest, cluster(described("t", (1,))), now)
    world.poll(now)
    assert world.waiting(ListOffsetsRequest)
    assert not call.done


def test_a_call_past_its_deadline_fails_and_is_not_asked_again() -> None:
    world = known()
    call = ask(world, {A: -1}, deadline=5.0)
    world.poll(1.0)
    world.answer(ListOffsetsRequest, KafkaConnectionError("gone"), 4.95)
    world.poll(5.0)
    with pytest.raises(KafkaTimeoutError) as caught:
        call.result()
    assert isinstance(caught.value.__cause__, KafkaConnectionError)
    assert world.poll(60.0) == []


def test_a_request_nobody_waits_for_is_withdrawn() -> None:
    world = known()
    call = ask(world, {A: -1})
    world.poll(1.0)
    request = world.find(ListOffsetsRequest)
    assert not request.withdrawn()
    call.withdraw()
    assert request.withdrawn()


def test_a_request_that_was_withdrawn_is_no_failure() -> None:
    world = known()
    ask(world, {A: -1}).withdraw()
    waits = ask(world, {A: -2})
    world.poll(1.0)
    world.answer(ListOffsetsRequest, RequestWithdrawnError(), 1.1)
    world.poll(1.1)
    assert not any(isinstance(event, Fault) for event in world.seen)
    world.answer(ListOffsetsRequest, answer(part(A, 7)), 1.2)
    assert waits.result()[A] == OffsetAndTimestamp(7, -1, None)


def test_a_topic_that_was_never_asked_about_is_asked_about_at_once() -> None:
    """The first ``end_offsets`` of a fresh consumer, which has just learned of the brokers."""
    world = World()
    world.learn()
    call = ask(world, {A: -1})
    world.poll(0.001)
    world.answer(MetadataRequest, cluster(described("t", (1,))), 0.002)
    world.poll(0.002)
    world.answer(ListOffsetsRequest, answer(part(A, 7)), 0.003)
    assert call.done


def test_a_topic_that_does_not_exist_is_asked_about_less_and_less() -> None:
    world = World()
    world.learn()
    ask(world, {A: -1})
    now, requests = 0.001, 0
    while now < 20.0:
        now = until(world, lambda: bool(world.waiting(MetadataRequest)), now) + 0.001
        world.answer(MetadataRequest, cluster(MetadataResponseTopic(name="t", error_code=3)), now)
        requests += 1
    assert requests <= 30


def test_many_look_ups_cost_what_they_are() -> None:
    partitions = [TopicPartition("t", index) for index in range(3000)]
    world = World()
    world.background.metadata.look_up(Call(9.0), frozenset("t"), create=False, fail_fast=False)
    world.learn(described("t", (1,) * 3000))
    call = ask(world, dict.fromkeys(partitions, -1))
    world.poll(1.0)
    world.answer(ListOffsetsRequest, answer(*(part(partition, 1) for partition in partitions)), 1.1)
    assert len(call.result()) == 3000
