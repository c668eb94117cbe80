"""A member of a share group: what its heartbeats say, and what answers do to it."""

import pytest

from kafka_async.background.share.share_membership import SAY_AFTER, SHOWN, TRANSITIONS, ShareMemberInput, ShareMemberState
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    GroupMaxSizeReachedError,
    KafkaConnectionError,
    NotCoordinatorError,
    UnknownError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from kafka_async.events import Call, SubscribeTopics, Unsubscribe
from kafka_async.model import ConsumerState, TopicPartition
from kafka_async.trace import Fault, Recovered
from kafka_async.wire.messages import (
    FindCoordinatorRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from .world import TP, World, fetched, taken_in


def beat(world: World) -> ShareGroupHeartbeatRequest:
    (found,) = world.waiting(ShareGroupHeartbeatRequest)
    return found


def failed(code: int) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code)


def recovered(world: World) -> list[tuple[str, float]]:
    """Return the outages of the group that have ended, and when."""
    return [(event.outage, event.now) for event in world.seen if isinstance(event, Recovered) and event.subject == "group"]


def state(world: World) -> ShareMemberState:
    return world.background.membership.state


def test_every_state_can_be_left_and_is_shown() -> None:
    assert {before for before, _ in TRANSITIONS} == set(ShareMemberState) == SHOWN.keys()
    assert {what for _, what in TRANSITIONS} == set(ShareMemberInput)


def test_joining_says_everything_and_staying_says_what_changed() -> None:
    world = World(client_rack="r")
    world.coordinated()
    first = beat(world)
    assert (first.group_id, first.member_id, first.member_epoch) == ("g", "me", 0)
    assert (first.rack_id, first.subscribed_topic_names) == ("r", ("t",))
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), 0.0)
    world.poll(0.1)
    world.poll(5.0)
    second = beat(world)
    assert (second.member_epoch, second.rack_id, second.subscribed_topic_names) == (1, None, None)


def test_partitions_that_are_waited_for_are_asked_for_more_often() -> None:
    world = World()
    world.coordinated()
    world.answer(ShareGroupHeartbeatRequest, taken_in(), 0.0)
    world.poll(0.2)
    assert world.waiting(ShareGroupHeartbeatRequest) == []
    world.poll(0.25)
    world.answer(ShareGroupHeartbeatRequest, taken_in(epoch=2), 0.25)
    world.poll(1.0)
    world.answer(ShareGroupHeartbeatRequest, taken_in(0, epoch=2), 1.0)
    world.poll(1.1)
    assert world.background.fetch.partitions == {TP}
    world.poll(5.9)
    assert world.waiting(ShareGroupHeartbeatRequest) == []


def beats_without_partitions(world: World, start: float, end: float) -> list[float]:
    """Answer heartbeats with nothing to read; return when that was called a fault."""
    now, before = start, len(world.seen)
    while now < end:
        world.poll(now)
        if world.waiting(ShareGroupHeartbeatRequest):
            world.answer(ShareGroupHeartbeatRequest, taken_in(), now)
        now += 0.25
    return [event.now for event in world.seen[before:] if isinstance(event, Fault) and event.outage == "the assignment"]


def test_a_member_that_waits_long_for_its_first_partitions_says_so_until_they_come() -> None:
    world = World()
    world.coordinated()
    assert beats_without_partitions(world, 0.0, SAY_AFTER) == []
    said = beats_without_partitions(world, SAY_AFTER, 20.0)
    assert SAY_AFTER <= said[0] < SAY_AFTER + 5
    (text,) = {event.text for event in world.seen if isinstance(event, Fault)}
    assert "assigns no partitions" in text
    assert "share.coordinator.state.topic.replication.factor is 3" in text
    assert text.endswith("the brokers known here are 3")
    world.poll(30.0)
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), 30.0)
    assert recovered(world) == [("the assignment", 30.0)]


def test_a_member_that_gets_no_partitions_of_its_next_subscription_says_so() -> None:
    world = World()
    world.joined(0)
    world.poll(100.0)
    world.answer(ShareGroupHeartbeatRequest, taken_in(0, changed=False), 100.0)
    world.handler.add(SubscribeTopics(topics=frozenset(("t", "u")), subscription=2))
    assert beats_without_partitions(world, 101.0, 101.0 + SAY_AFTER) == []
    assert beats_without_partitions(world, 101.0 + SAY_AFTER, 110.0)


def test_a_member_whose_topics_do_not_exist_does_not_look_for_another_cause() -> None:
    world = World()
    world.coordinated()
    world.handler.add(SubscribeTopics(topics=frozenset(("u",)), subscription=2))
    assert beats_without_partitions(world, 0.0, 20.0) == []


@pytest.mark.parametrize("error", [FencedMemberEpochError, UnknownMemberIdError, GroupIdNotFound])
def test_a_member_that_is_out_gives_its_partitions_up_and_joins_again_with_the_same_id(error: type) -> None:
    world = World()
    world.joined(0)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, failed(error.errno), 5.0)  # type: ignore[attr-defined]  # all three are brokers' errors
    assert world.background.fetch.partitions == frozenset()
    world.poll(5.0)
    again = beat(world)
    assert (again.member_id, again.member_epoch, again.subscribed_topic_names) == ("me", 0, ("t",))


def test_a_member_that_is_out_is_a_fault_but_no_outage() -> None:
    world = World()
    world.joined(0)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, failed(UnknownMemberIdError.errno), 5.0)
    (fault,) = [event for event in world.seen if isinstance(event, Fault)]
    assert (fault.text, fault.outage) == ("not a member of the share group any more; joining again", "")


def test_a_coordinator_that_puts_every_new_member_out_is_asked_less_and_less_often() -> None:
    world = World()
    world.coordinated()
    for now in (0.0, 0.2, 0.5):
        world.answer(ShareGroupHeartbeatRequest, failed(UnknownMemberIdError.errno), now)
        world.poll(now + 0.05)
        assert world.waiting(ShareGroupHeartbeatRequest) == []
        until = world.wake_at
        world.poll(until)
    assert until > 0.8
    assert len(world.waiting(ShareGroupHeartbeatRequest)) == 1


def test_a_coordinator_that_knows_who_joins_is_asked_to_forget_it_less_and_less_often() -> None:
    world = World()
    world.coordinated()
    now, waits = 0.0, []
    for _ in range(5):
        assert beat(world).member_epoch == 0
        world.answer(ShareGroupHeartbeatRequest, failed(FencedMemberEpochError.errno), now)
        world.poll(now)
        assert state(world) is ShareMemberState.RECLAIMING
        assert world.waiting(ShareGroupHeartbeatRequest) == []
        waits.append(round(world.wake_at - now, 3))
        now = world.wake_at
        world.poll(now)
        assert (beat(world).member_epoch, beat(world).subscribed_topic_names) == (-1, None)
        world.answer(ShareGroupHeartbeatRequest, taken_in(epoch=-1), now)
        world.poll(now)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), now)
    assert state(world) is ShareMemberState.STABLE


def reclaiming() -> World:
    """Return a world whose member was refused with epoch 0 at 0.0, and asks to leave at 0.5."""
    world = World()
    world.coordinated()
    world.answer(ShareGroupHeartbeatRequest, failed(FencedMemberEpochError.errno), 0.0)
    world.poll(0.5)
    assert state(world) is ShareMemberState.RECLAIMING
    return world


def test_a_member_that_the_coordinator_knows_from_before_says_so_and_that_it_has_joined() -> None:
    world = reclaiming()
    (fault,) = [event for event in world.seen if isinstance(event, Fault)]
    assert fault.text == "the coordinator still knows this member from before; leaving first, to join then"
    assert isinstance(fault.error, FencedMemberEpochError)
    world.answer(ShareGroupHeartbeatRequest, taken_in(epoch=-1), 0.5)
    world.poll(0.5)
    assert recovered(world) == []
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), 0.6)
    assert recovered(world) == [(fault.outage, 0.6)]


def test_a_member_that_is_to_leave_first_shows_that_the_coordinator_is_lost() -> None:
    world = reclaiming()
    world.answer(ShareGroupHeartbeatRequest, failed(NotCoordinatorError.errno), 0.5)
    world.poll(0.6)
    shown = world.background.membership.shown
    assert (state(world), shown(0.6), shown(5.4)) == (ShareMemberState.RECLAIMING, ConsumerState.JOINING, ConsumerState.JOINING)
    assert shown(5.6) is ConsumerState.COORDINATOR_LOST


@pytest.mark.parametrize("error", [UnknownMemberIdError, GroupIdNotFound, GroupAuthorizationFailedError])
def test_a_member_that_is_to_join_does_so_whatever_its_request_to_leave_was_answered(error: type) -> None:
    world = reclaiming()
    world.answer(ShareGroupHeartbeatRequest, failed(error.errno), 0.5)  # type: ignore[attr-defined]  # all are brokers' errors
    world.poll(0.5)
    assert (beat(world).member_epoch, beat(world).subscribed_topic_names) == (0, ("t",))


def test_a_request_to_leave_of_a_member_that_is_to_join_is_sent_until_the_coordinator_has_heard_of_it() -> None:
    world = reclaiming()
    now = 0.5
    for _ in range(100):
        world.answer(ShareGroupHeartbeatRequest, failed(CoordinatorLoadInProgressError.errno), now)
        world.poll(now)
        assert world.waiting(ShareGroupHeartbeatRequest) == []
        now = world.wake_at
        world.poll(now)
        assert beat(world).member_epoch == -1
    assert now > 60.0


def test_a_member_that_is_to_join_can_unsubscribe_instead() -> None:
    world = reclaiming()
    call: Call[None] = Call(20.0)
    world.handler.add(Unsubscribe(call=call, subscription=2))
    world.poll(1.0)
    assert [each.member_epoch for each in world.waiting(ShareGroupHeartbeatRequest)] == [-1, -1]
    world.answer(ShareGroupHeartbeatRequest, taken_in(epoch=-1), 1.0)
    world.answer(ShareGroupHeartbeatRequest, failed(UnknownMemberIdError.errno), 1.0)
    assert (call.done, state(world)) == (True, ShareMemberState.UNSUBSCRIBED)


def test_a_group_that_is_not_found_twice_is_one_of_another_kind() -> None:
    world = World()
    world.coordinated()
    for _ in range(2):
        world.answer(ShareGroupHeartbeatRequest, failed(GroupIdNotFound.errno), 0.0)
        world.poll(0.0)
    assert state(world) is ShareMemberState.FATAL
    assert [type(error) for error in world.errors()] == [GroupIdNotFound]


@pytest.mark.parametrize("outcome", [failed(NotCoordinatorError.errno), KafkaConnectionError("cut")])
def test_a_new_coordinator_gets_everything_again_and_nothing_else_changes(outcome: object) -> None:
    world = World()
    world.joined(0)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, outcome, 5.0)
    world.poll(5.2)
    assert world.waiting(FindCoordinatorRequest)
    assert world.background.fetch.partitions == {TP}
    assert world.background.membership.epoch == 1


def test_the_outage_of_a_coordinator_that_is_named_again_ends_with_its_first_answer() -> None:
    world = World()
    world.joined(0)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, KafkaConnectionError("cut"), 5.0)
    world.poll(5.2)
    world.find_coordinator(5.2)
    world.poll(5.3)
    assert recovered(world) == []
    world.answer(ShareGroupHeartbeatRequest, taken_in(changed=False), 5.4)
    assert recovered(world) == [("the coordinator", 5.4), ("heartbeats", 5.4)]


def test_a_coordinator_that_is_loading_is_asked_again_after_a_backoff() -> None:
    world = World()
    world.joined(0)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, failed(CoordinatorLoadInProgressError.errno), 5.0)
    world.poll(5.05)
    assert world.waiting(ShareGroupHeartbeatRequest) == []
    world.poll(5.1)
    assert (beat(world).member_epoch, beat(world).subscribed_topic_names) == (1, ("t",))


def test_a_denied_group_is_reported_and_asked_again() -> None:
    world = World()
    world.coordinated()
    world.answer(ShareGroupHeartbeatRequest, failed(GroupAuthorizationFailedError.errno), 0.0)
    assert [type(error) for error in world.errors()] == [GroupAuthorizationFailedError]
    world.poll(1.0)
    assert world.waiting(ShareGroupHeartbeatRequest) == []
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), 5.0)
    assert state(world) is ShareMemberState.STABLE


def test_an_unknown_error_of_a_heartbeat_is_logged_and_not_raised() -> None:
    world = World()
    world.joined(0)
    world.poll(5.0)
    world.answer(ShareGroupHeartbeatRequest, failed(UnknownError.errno), 5.0)
    assert world.errors() == []
    assert any(isinstance(event, Fault) and isinstance(event.error, UnknownError) for event in world.seen)
    assert world.background.fetch.partitions == {TP}
    world.poll(10.0)
    assert beat(world).subscribed_topic_names == ("t",)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (failed(GroupMaxSizeReachedError.errno), GroupMaxSizeReachedError),
        (failed(UnsupportedVersionError.errno), UnsupportedVersionError),
        (UnsupportedVersionError("no such API"), UnsupportedVersionError),
    ],
)
def test_what_cannot_be_helped_is_final(outcome: object, kind: type) -> None:
    world = World()
    world.coordinated()
    world.answer(ShareGroupHeartbeatRequest, outcome, 0.0)
    assert state(world) is ShareMemberState.FATAL
    assert [type(error) for error in world.errors()] == [kind]
    world.poll(100.0)
    assert world.waiting(ShareGroupHeartbeatRequest) == []


def test_leaving_says_so_and_is_done_whatever_is_answered() -> None:
    world = World()
    world.joined(0)
    call: Call[None] = Call(10.0)
    world.handler.add(Unsubscribe(call=call, subscription=2))
    world.poll(1.0)
    assert beat(world).member_epoch == -1
    world.answer(ShareGroupHeartbeatRequest, failed(UnknownMemberIdError.errno), 1.0)
    assert call.done
    assert state(world) is ShareMemberState.UNSUBSCRIBED


def test_another_subscription_reads_nothing_more_of_the_former_topics_though_they_are_still_assigned() -> None:
    world = World()
    world.joined(0)

    def subscribe(topic: str, now: float) -> frozenset[TopicPartition]:
        world.exchange.topics = frozenset((topic,))
        world.handler.add(SubscribeTopics(topics=world.exchange.topics, subscription=2))
        world.poll(now)
        return world.background.fetch.partitions

    assert subscribe("u", 1.0) == frozenset()
    world.answer(ShareFetchRequest, fetched(), 1.1)
    world.poll(1.1)
    assert world.waiting(ShareFetchRequest) == []
    world.answer(ShareGroupHeartbeatRequest, taken_in(0, epoch=2), 1.2)  # the coordinator is slow to take the topics away
    world.poll(1.2)
    assert world.background.fetch.partitions == frozenset()
    assert subscribe("t", 1.3) == {TP}, "it has never ceased to be assigned"


def no_member(was: ShareMemberState) -> World:
    """Return a consumer that is no member of its group, at 10.0."""
    world = World(max_poll_interval_ms=10_000)
    if was is ShareMemberState.FATAL:
        world.coordinated()
        world.answer(ShareGroupHeartbeatRequest, failed(GroupMaxSizeReachedError.errno), 0.0)
    elif was is ShareMemberState.UNSUBSCRIBED:
        world.joined(0)
        world.handler.add(Unsubscribe(call=None, subscription=2))
        world.poll(1.0)
    else:
        world.joined(0)
        world.handler.reading = 0
        for now in (5.0, 8.0, 9.9):
            world.poll(now)
            if world.waiting(ShareGroupHeartbeatRequest):
                world.answer(ShareGroupHeartbeatRequest, taken_in(0, changed=False), now)
        world.poll(10.0)
    if was is not ShareMemberState.FATAL:
        assert beat(world).member_epoch == -1
        world.answer(ShareGroupHeartbeatRequest, taken_in(epoch=-1), 10.0)
    assert state(world) is was
    return world


@pytest.mark.parametrize("was", [ShareMemberState.UNSUBSCRIBED, ShareMemberState.AWAY, ShareMemberState.FATAL])
def test_who_unsubscribes_without_being_a_member_joins_with_the_next_subscription(was: ShareMemberState) -> None:
    world = no_member(was)
    call: Call[None] = Call(20.0)
    world.handler.add(Unsubscribe(call=call, subscription=3))
    world.poll(11.0)
    assert call.done
    world.handler.add(SubscribeTopics(topics=frozenset(("t",)), subscription=4))
    world.poll(12.0)
    assert (beat(world).member_epoch, beat(world).subscribed_topic_names) == (0, ("t",))
    world.answer(ShareGroupHeartbeatRequest, failed(CoordinatorLoadInProgressError.errno), 12.0)
    world.poll(12.5)
    assert beat(world).member_epoch == 0


def test_a_member_whose_application_does_not_read_leaves_and_comes_back() -> None:
    world = no_member(ShareMemberState.AWAY)
    assert world.background.fetch.partitions == frozenset()
    world.handler.reading = 1
    world.poll(20.0)
    assert beat(world).member_epoch == 0


def test_a_topic_that_the_metadata_do_not_know_yet_is_read_once_they_do() -> None:
    world = World()
    world.coordinated()
    names = world.background.metadata.cluster.names
    topic_id = next(iter(names))
    name = names.pop(topic_id)
    world.answer(ShareGroupHeartbeatRequest, taken_in(0), 0.0)
    assert world.background.fetch.partitions == frozenset()
    names[topic_id] = name
    world.background.metadata.cluster.version += 1
    world.poll(0.1)
    assert world.background.fetch.partitions == {TP}
