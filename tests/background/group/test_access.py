"""``kafka_async.background.group.access``: who is told what by an error."""

from uuid import UUID

import pytest

from kafka_async.background.by_topic import named
from kafka_async.background.group.access import REFUSED
from kafka_async.background.group.membership import CommitFailure, Identity
from kafka_async.errors import BY_CODE, KafkaConnectionError, KafkaError, KafkaTimeoutError, MalformedResponseError, for_code
from kafka_async.model import TopicPartition
from kafka_async.network import Channel
from tests.background.group.offsets_world import CLASSIC, MEMBER, NEXT, ONE, A, B, World

LOST = {7, 15, 16}


@pytest.fixture
def world() -> World:
    world = World()
    world.learn_metadata(0.0)
    world.find(0.0)
    return world


def test_a_consumer_without_a_membership_is_nobody() -> None:
    assert World().group.identity == Identity()


def test_a_member_is_who_its_membership_says(world: World) -> None:
    world.join(CLASSIC)
    assert world.group.identity == CLASSIC


def test_offsets_go_on_the_connection_on_which_the_membership_has_nothing_waiting(world: World) -> None:
    channels = [world.group.channel]
    world.join().channel = Channel.MAIN
    assert [*channels, world.group.channel] == [Channel.GROUP, Channel.MAIN]


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_each_error_goes_to_whom_it_concerns(world: World, code: int) -> None:
    membership = world.join()
    error = for_code(code)
    world.group.report_error(error, MEMBER, ONE.id, 1.0)
    assert (world.coordinator.coordinator is None) == (code in LOST)
    expected = CommitFailure.REBALANCING if code == 27 else REFUSED.get(type(error))
    assert membership.refusals == ([(expected, MEMBER)] if expected is not None else [])


@pytest.mark.parametrize("code", sorted(code for code, error in BY_CODE.items() if code not in LOST))
def test_stale_metadata_are_asked_for_again(world: World, code: int) -> None:
    world.group.report_error(for_code(code), MEMBER, ONE.id, 1.0)
    assert bool(world.metadata.poll(1.0).requests) == BY_CODE[code].invalid_metadata


@pytest.mark.parametrize("error", [KafkaConnectionError("cut"), KafkaTimeoutError("late")])
def test_a_way_that_broke_loses_the_coordinator_but_says_nothing_of_topics(world: World, error: KafkaError) -> None:
    world.group.report_error(error, MEMBER, ONE.id, 1.0)
    assert world.coordinator.coordinator is None
    assert not world.metadata.poll(1.0).requests


def test_an_answer_that_makes_no_sense_does_not_lose_the_coordinator(world: World) -> None:
    world.group.report_error(MalformedResponseError("junk"), MEMBER, ONE.id, 1.0)
    assert world.coordinator.coordinator == ONE


def test_a_consumer_that_was_nobody_when_it_asked_has_nothing_to_be_refused(world: World) -> None:
    membership = world.join()
    world.group.report_error(for_code(25), Identity(), ONE.id, 1.0)
    assert membership.refusals == []


def test_an_epoch_is_awaited_while_we_are_still_the_stale_one(world: World) -> None:
    assert not world.group.awaits_epoch(None)
    assert not world.group.awaits_epoch(Identity())
    membership = world.join()
    assert not world.group.awaits_epoch(MEMBER)
    membership.awaits_epoch = True
    assert world.group.awaits_epoch(MEMBER)
    assert not world.group.has_moved_on(MEMBER)
    membership.identity = NEXT
    assert not world.group.awaits_epoch(MEMBER)
    assert world.group.has_moved_on(MEMBER)
    assert not world.group.has_moved_on(None)


def test_topics_without_an_id_are_left_out(world: World) -> None:
    world.give_ids("a")
    assert world.group.topics_by_id({"a", "b"}) == {UUID(int=1): "a"}


def test_partitions_are_named_in_order_and_not_without_end() -> None:
    assert named([B, A]) == "a-0, b-0"
    assert named(TopicPartition("t", number) for number in range(12)).endswith("t-9 and 2 more")
