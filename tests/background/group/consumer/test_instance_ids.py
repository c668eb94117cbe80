"""A static member and its instance id: a coordinator lets nobody join under one that is in use, not even the member that has it."""

import pytest

from kafka_async.background.group.consumer.states import MemberState
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupIdNotFound,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kafka_async.model import ConsumerState
from tests.background.group.consumer.world import A, answer, names, reach

S = MemberState


@pytest.mark.parametrize(
    "gone", [answer(epoch=-2), UnknownMemberIdError(), GroupIdNotFound()], ids=lambda value: type(value).__name__
)
def test_a_static_member_whose_answer_was_lost_releases_its_own_name_and_joins(gone: object) -> None:
    world = reach(S.JOINING, group_instance_id="i")
    world.reply(KafkaConnectionError("cut"), 1.0)
    world.exchange(UnreleasedInstanceIdError(), 2.0)
    assert (world.state, world.member.state, world.member.awaits_epoch) == (S.RECLAIMING, ConsumerState.JOINING, True)
    assert world.turn(2.0).requests == ()  # not at once, however often a broker says so
    said = world.exchange(gone, 3.0)
    assert (said.member_id, said.member_epoch, said.instance_id) == ("m", -2, "i")
    said = world.exchange(answer({A: (0,)}), 3.0)
    assert (said.member_id, said.member_epoch, said.instance_id) == ("m", 0, "i")
    assert (world.state, world.host.errors) == (S.RECONCILING, [])


@pytest.mark.parametrize(
    "lost",
    [KafkaConnectionError("cut"), NotCoordinatorError(), CoordinatorLoadInProgressError()],
    ids=lambda value: type(value).__name__,
)
def test_a_name_is_released_until_the_coordinator_has_heard_of_it(lost: KafkaError) -> None:
    world = reach(S.RECLAIMING, group_instance_id="i")
    world.reply(lost, 2.0)
    assert world.state is S.RECLAIMING
    assert world.exchange(answer(epoch=-2), 10.0).member_epoch == -2
    assert world.exchange(answer(), 10.0).member_epoch == 0


def test_a_name_that_another_member_has_is_refused_for_good() -> None:
    world = reach(S.RECLAIMING, group_instance_id="i")
    world.reply(FencedInstanceIdError(), 2.0)
    assert (world.state, world.host.errors) == (S.JOINING, []), "it may be about to leave"
    world.exchange(UnreleasedInstanceIdError(), 2.0)
    assert (world.state, world.turn(3.0).requests, world.close(3.0).requests) == (S.FATAL, (), ())
    (told,) = world.host.errors
    assert (type(told), type(told.__cause__), world.member.failure) == (UnreleasedInstanceIdError, FencedInstanceIdError, told)
    assert "'g'" in str(told)
    assert "'i'" in str(told)


def test_a_name_of_a_member_that_has_left_is_taken_though_it_may_come_back() -> None:
    world = reach(S.RECLAIMING, group_instance_id="i")
    world.reply(FencedInstanceIdError(), 2.0)
    assert world.exchange(answer({A: (0,)}), 2.0).member_epoch == 0
    assert (world.state, world.host.errors) == (S.RECONCILING, [])


def test_a_broker_without_the_protocol_is_left_to_who_takes_over_though_a_name_was_to_be_released_first() -> None:
    world = reach(S.RECLAIMING, group_instance_id="i")
    world.takes_over = True
    world.reply(UnsupportedVersionError(), 2.0)
    world.exchange(UnsupportedVersionError(), 2.0)
    assert (world.state, world.host.errors) == (S.UNSUBSCRIBED, [])


@pytest.mark.parametrize(("instance", "epochs"), [("i", [-2, 0]), (None, [0])])
def test_who_leaves_and_comes_back_in_one_turn_releases_its_name_first(instance: str | None, epochs: list[int]) -> None:
    world = reach(S.STABLE, group_instance_id=instance)
    world.reply(answer(), 10.0)
    world.host.taken = frozenset()
    world.member.leave(None, 11.0)
    world.member.subscribe(names("b"), 11.0)
    said = [world.exchange(answer(epoch=max(epoch, 1)), 11.0) for epoch in epochs]
    assert [each.member_epoch for each in said] == epochs
    assert (said[-1].subscribed_topic_names, world.state) == (("b",), S.STABLE)


def test_who_was_no_member_yet_has_no_name_to_release() -> None:
    world = reach(S.UNSUBSCRIBED, group_instance_id="i")
    world.member.subscribe(names("a"), 1.0)
    world.member.leave(None, 1.0)
    world.member.subscribe(names("b"), 1.0)
    assert world.exchange(answer(), 1.0).member_epoch == 0


def test_a_name_whose_release_is_in_flight_is_not_released_twice() -> None:
    world = reach(S.LEAVING, group_instance_id="i")
    world.member.subscribe(names("b"), 11.0)
    assert world.turn(11.0).requests == ()
    world.reply(answer(epoch=-2), 12.0)
    assert world.exchange(answer(), 12.0).member_epoch == 0
