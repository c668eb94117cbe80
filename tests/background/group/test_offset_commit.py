"""``kafka_async.background.group.offset_commit``: ``commit``, ``poll(0.0)``, an answer; no event loop."""

from collections.abc import Mapping
from math import inf
from uuid import UUID

import pytest

from kafka_async.background.group.membership import CommitFailure, Identity
from kafka_async.background.group.offset_commit import OffsetCommitManager
from kafka_async.background.loop.request_manager import NEVER, Poll
from kafka_async.errors import (
    BY_CODE,
    AuthenticationFailedError,
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestWithdrawnError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka_async.events import Call, Refusals
from kafka_async.model import OffsetAndMetadata, TopicPartition
from kafka_async.network import Channel, UnsentRequest
from kafka_async.trace import Fault, Notice, Recovered
from kafka_async.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.background.group.offsets_world import CLASSIC, CLASSIC_NEXT, MEMBER, NEXT, ONE, TWO, A, B, C, World, found, only

REFUSALS = {
    25: CommitFailure.UNKNOWN_MEMBER,
    69: CommitFailure.UNKNOWN_MEMBER,
    22: CommitFailure.ILLEGAL_GENERATION,
    110: CommitFailure.ILLEGAL_GENERATION,
    82: CommitFailure.FENCED_INSTANCE,
}
COORDINATOR_LOST = {7, 15, 16}
ON_ITS_WAY = {27, 113}
RETRIABLE = {code for code, error in BY_CODE.items() if error.retriable} | ON_ITS_WAY
OF_A_PARTITION = {3, 100, 12, 28, 29} | (RETRIABLE - COORDINATOR_LOST - ON_ITS_WAY - {14})
FATAL = BY_CODE.keys() - RETRIABLE - REFUSALS.keys() - {GroupAuthorizationFailedError.errno}


@pytest.fixture
def world() -> World:
    world = World()
    world.find(0.0)
    return world


@pytest.fixture
def manager(world: World) -> OffsetCommitManager:
    return _manager(world)


def _manager(world: World) -> OffsetCommitManager:
    return OffsetCommitManager(config=world.config, group=world.group, random=world.random, trace=world.traced.append)


def _commit(
    manager: OffsetCommitManager, *partitions: TopicPartition, offset: int = 7, now: float = 0.0, once: bool = False
) -> Call[Refusals]:
    call: Call[Refusals] = Call(60.0)
    manager.commit(call, {partition: OffsetAndMetadata(offset) for partition in partitions}, now, once=once)
    return call


def _lost(call: Call[Refusals]) -> dict[TopicPartition, str]:
    """The partitions that were refused because they are not ours, and the text of each."""
    refused = call.result()
    assert all(isinstance(error, CommitFailedError) and error.lost == (tp,) for tp, error in refused.items())
    return {tp: str(error) for tp, error in sorted(refused.items())}


def _sent(request: UnsentRequest) -> dict[TopicPartition, int]:
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    return {TopicPartition(t.name, p.partition_index): p.committed_offset for t in message.topics for p in t.partitions}


def _made_as(request: UnsentRequest) -> tuple[str, int, str | None]:
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    return message.member_id, message.generation_id_or_member_epoch, message.group_instance_id


def _answer(codes: Mapping[TopicPartition, int]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=tp.topic, partitions=(OffsetCommitResponsePartition(partition_index=tp.partition, error_code=code),)
            )
            for tp, code in codes.items()
        )
    )


def _outages(world: World) -> list[tuple[str, float]]:
    """When commits began to fail, and when that ended."""
    events = [event for event in world.traced if isinstance(event, (Fault, Recovered)) and event.outage == "commits"]
    return [(type(event).__name__, event.now) for event in events]


def _failure(call: Call[Refusals]) -> BaseException:
    with pytest.raises(KafkaError) as caught:
        call.result()
    return caught.value


# --- sending ----------------------------------------------------------------------------------------------------------------------


def test_nothing_to_commit_is_done_at_once(manager: OffsetCommitManager) -> None:
    call = _commit(manager)
    call.result()
    assert manager.poll(0.0) == Poll()


def test_a_commit_carries_offset_metadata_and_leader_epoch(manager: OffsetCommitManager) -> None:
    call: Call[Refusals] = Call(60.0)
    manager.commit(call, {A: OffsetAndMetadata(3, "note", 9), B: OffsetAndMetadata(4)}, 1.0)
    request = only(manager.poll(1.0))
    assert request.message == OffsetCommitRequest(
        group_id="g",
        topics=(
            OffsetCommitRequestTopic(
                name="a",
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=3, committed_leader_epoch=9, committed_metadata="note"
                    ),
                ),
            ),
            OffsetCommitRequestTopic(
                name="b", partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=4, committed_metadata=""),)
            ),
        ),
    )
    assert (request.node_id, request.channel, request.expires_at, request.lowest_version) == (ONE.id, Channel.GROUP, 31.0, 0)
    request.on_done(_answer({A: 0, B: 0}), 1.1)
    call.result()
    assert manager.poll(1.1) == Poll()


def test_topics_go_by_id_if_the_ids_are_known(world: World, manager: OffsetCommitManager) -> None:
    ids = world.give_ids("a", "b")
    call = _commit(manager, A, B)
    request = only(manager.poll(0.0))
    assert isinstance(request.message, OffsetCommitRequest)
    assert {topic.name: topic.topic_id for topic in request.message.topics} == ids
    part = OffsetCommitResponsePartition(partition_index=0)
    request.on_done(
        OffsetCommitResponse(topics=tuple(OffsetCommitResponseTopic(topic_id=ids[name], partitions=(part,)) for name in "ba")), 0.1
    )
    call.result()


def test_a_member_commits_as_itself_and_demands_a_version_with_its_epoch(world: World, manager: OffsetCommitManager) -> None:
    world.join(MEMBER)
    _commit(manager, A)
    request = only(manager.poll(0.0))
    assert _made_as(request) == ("m", 5, None)
    assert request.lowest_version == 9


def test_a_classic_member_commits_with_its_instance_id_in_any_version(world: World, manager: OffsetCommitManager) -> None:
    world.join(CLASSIC)
    _commit(manager, A)
    request = only(manager.poll(0.0))
    assert _made_as(request) == ("m", 5, "static")
    assert request.lowest_version == 0


def test_waiting_for_an_answer_wakes_nobody(manager: OffsetCommitManager) -> None:
    _commit(manager, A)
    manager.poll(0.0)
    assert manager.poll(0.1) == Poll(wake_at=inf)


# --- order ------------------------------------------------------------------------------------------------------------------------


def test_commits_of_one_partition_keep_their_order(manager: OffsetCommitManager) -> None:
    _commit(manager, A, offset=1)
    later = _commit(manager, A, B, offset=2)
    first, second = manager.poll(0.0).requests
    assert _sent(first) == {A: 1}
    assert _sent(second) == {B: 2}, "only what both name waits"
    first.on_done(_answer({A: 14}), 0.0)
    second.on_done(_answer({B: 0}), 0.0)
    assert manager.poll(0.0) == Poll(wake_at=0.1), "the retry of the first one goes before the second"
    first = only(manager.poll(0.1))
    assert _sent(first) == {A: 1}
    first.on_done(_answer({A: 0}), 0.2)
    second = only(manager.poll(0.2))
    assert _sent(second) == {A: 2}
    assert not later.done
    second.on_done(_answer({A: 0}), 0.3)
    assert later.result() == {}


def test_a_commit_waits_only_for_those_with_a_partition_in_common(manager: OffsetCommitManager) -> None:
    _commit(manager, A)
    _commit(manager, B)
    _commit(manager, A, C)
    _commit(manager, C)
    assert [_sent(request) for request in manager.poll(0.0).requests] == [{A: 7}, {B: 7}, {C: 7}]


def test_a_commit_that_was_given_up_holds_nobody_up(manager: OffsetCommitManager) -> None:
    first = _commit(manager, A, offset=1)
    _commit(manager, A, offset=2)
    request = only(manager.poll(0.0))
    assert not request.withdrawn()
    first.withdraw()
    assert request.withdrawn()
    assert _sent(only(manager.poll(0.1))) == {A: 2}


def test_a_commit_waits_for_one_that_was_given_up_on_another_connection(world: World, manager: OffsetCommitManager) -> None:
    """The broker may read the connections in any order, and would store the older offset last."""
    member = world.join(CLASSIC)
    given_up = _commit(manager, A, offset=5)
    first = only(manager.poll(0.0))
    given_up.withdraw()
    member.channel = Channel.MAIN  # a JoinGroup waits on the other one
    _commit(manager, A, offset=7)
    _commit(manager, B, offset=7)
    poll = manager.poll(0.0)
    assert [(request.channel, _sent(request)) for request in poll.requests] == [(Channel.MAIN, {B: 7})]
    assert poll.wake_at == NEVER  # its end is reported, whatever happens to it
    first.on_done(_answer({A: 0}), 0.2)
    assert _sent(only(manager.poll(0.2))) == {A: 7}


def test_a_commit_that_was_given_up_before_it_was_sent_holds_up_none_on_another_connection(
    world: World, manager: OffsetCommitManager
) -> None:
    member = world.join(CLASSIC)
    given_up = _commit(manager, A, offset=5)
    first = only(manager.poll(0.0))
    given_up.withdraw()
    member.channel = Channel.MAIN
    _commit(manager, A, offset=7)
    assert manager.poll(0.0).requests == ()
    assert first.withdrawn()  # the network asks that before it sends, and drops the request
    first.on_done(RequestWithdrawnError(), 0.1)
    assert world.coordinator.coordinator is not None
    assert _sent(only(manager.poll(0.1))) == {A: 7}


def test_a_commit_that_timed_out_is_not_sent_later(world: World, manager: OffsetCommitManager) -> None:
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 14}), 0.0)
    call.fail(KafkaTimeoutError("late"))
    assert manager.poll(1.0) == Poll()


def test_an_answer_after_the_caller_gave_up_still_tells_of_the_coordinator(world: World, manager: OffsetCommitManager) -> None:
    call = _commit(manager, A)
    request = only(manager.poll(0.0))
    call.withdraw()
    manager.poll(0.1)
    request.on_done(NotCoordinatorError(), 0.2)
    assert world.coordinator.coordinator is None
    assert manager.poll(5.0) == Poll()


def test_an_outage_ends_with_a_commit_that_is_stored_though_the_one_that_failed_was_given_up(
    world: World, manager: OffsetCommitManager
) -> None:
    first = _commit(manager, A)
    only(manager.poll(0.0)).on_done(KafkaConnectionError("gone"), 0.0)
    first.fail(KafkaTimeoutError("late"))
    world.find(60.0)
    second = _commit(manager, A, offset=8, now=60.0)
    only(manager.poll(60.0)).on_done(_answer({A: 0}), 60.1)
    assert second.result() == {}
    third = _commit(manager, A, offset=9, now=65.0)
    only(manager.poll(65.0)).on_done(_answer({A: 0}), 65.1)
    assert third.result() == {}
    assert _outages(world) == [("Fault", 0.0), ("Recovered", 60.1)]


def test_an_outage_goes_on_while_a_partition_cannot_be_stored_though_others_are(world: World, manager: OffsetCommitManager) -> None:
    first = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 3}), 0.0)
    second = _commit(manager, B)
    (again,) = (request for request in manager.poll(0.05).requests if _sent(request) == {B: 7})
    again.on_done(_answer({B: 0}), 0.06)
    assert second.result() == {}
    assert _outages(world) == [("Fault", 0.0)]
    only(manager.poll(1.0)).on_done(_answer({A: 0}), 1.1)
    assert first.result() == {}
    assert _outages(world) == [("Fault", 0.0), ("Recovered", 1.1)]


# --- errors -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(RETRIABLE))
def test_a_passing_error_is_retried_after_a_backoff(world: World, manager: OffsetCommitManager, code: int) -> None:
    membership = world.join()
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: code, B: 0}), 0.0)
    assert not call.done
    assert type(manager.last_error(call)) is BY_CODE[code]
    assert (world.coordinator.coordinator is None) == (code in COORDINATOR_LOST)
    if code in COORDINATOR_LOST:
        assert manager.poll(0.05) == Poll(), "the coordinator's manager says when to come back"
        world.find(0.1, TWO)
    else:
        assert manager.poll(0.05) == Poll(wake_at=0.1)
    request = only(manager.poll(0.1))
    assert _sent(request) == {A: 7}, "what is stored is not sent again"
    assert [failure for failure, _ in membership.refusals] == ([CommitFailure.REBALANCING] if code == 27 else [])
    request.on_done(_answer({A: 0}), 0.2)
    call.result()


@pytest.mark.parametrize("code", sorted(FATAL))
def test_an_error_that_no_retry_heals_refuses_its_partition_and_holds_up_no_other(
    world: World, manager: OffsetCommitManager, code: int
) -> None:
    membership = world.join()
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 14, B: code}), 0.0)
    assert not call.done
    request = only(manager.poll(0.1))
    assert _sent(request) == {A: 7}
    request.on_done(_answer({A: 0}), 0.2)
    assert {tp: type(error) for tp, error in call.result().items()} == {B: BY_CODE[code]}
    assert membership.refusals == []
    assert manager.poll(1.0) == Poll()


def test_a_group_that_is_denied_fails_the_commit_as_a_whole(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A, B)
    code = GroupAuthorizationFailedError.errno
    only(manager.poll(0.0)).on_done(_answer({A: code, B: code}), 0.0)
    assert isinstance(_failure(call), GroupAuthorizationFailedError)
    assert manager.poll(1.0) == Poll()


@pytest.mark.parametrize("code", sorted(OF_A_PARTITION))
def test_a_partition_that_cannot_be_stored_now_is_refused_at_once_to_who_wants_one_attempt(
    world: World, manager: OffsetCommitManager, code: int
) -> None:
    world.join()
    call = _commit(manager, A, B, once=True)
    only(manager.poll(0.0)).on_done(_answer({A: code, B: 0}), 0.0)
    refused = call.result()
    assert {tp: type(error) for tp, error in refused.items()} == {A: BY_CODE[code]}
    assert "a-0: " in str(refused[A]) or "topic 'a': " in str(refused[A])
    assert manager.poll(1.0) == Poll()


def test_a_commit_does_not_wait_for_a_partition_that_only_goes_along(manager: OffsetCommitManager) -> None:
    call: Call[Refusals] = Call(60.0)
    manager.commit(call, {A: OffsetAndMetadata(7), B: OffsetAndMetadata(0)}, 0.0, along=frozenset((B,)))
    only(manager.poll(0.0)).on_done(_answer({A: 0, B: 3}), 0.0)
    assert {tp: type(error) for tp, error in call.result().items()} == {B: UnknownTopicOrPartitionError}
    assert manager.poll(1.0) == Poll()


def test_what_only_goes_along_ends_no_attempts_for_what_the_caller_named(manager: OffsetCommitManager) -> None:
    call: Call[Refusals] = Call(60.0)
    manager.commit(call, {A: OffsetAndMetadata(7), B: OffsetAndMetadata(0)}, 0.0, along=frozenset((B,)))
    only(manager.poll(0.0)).on_done(_answer({A: 3, B: 3}), 0.0)
    assert not call.done
    request = only(manager.poll(0.1))
    assert _sent(request) == {A: 7}
    request.on_done(_answer({A: 0}), 0.1)
    assert set(call.result()) == {B}


@pytest.mark.parametrize("code", sorted(COORDINATOR_LOST | ON_ITS_WAY | {14}))
def test_one_attempt_is_not_used_up_by_a_coordinator_that_cannot_answer(
    world: World, manager: OffsetCommitManager, code: int
) -> None:
    world.join()
    call = _commit(manager, A, once=True)
    only(manager.poll(0.0)).on_done(_answer({A: code}), 0.0)
    assert not call.done
    if code in COORDINATOR_LOST:
        world.find(0.1, TWO)
    only(manager.poll(0.1)).on_done(_answer({A: 0}), 0.2)
    assert call.result() == {}


def test_what_is_tried_again_until_the_deadline_is_refused_then_and_the_rest_was_stored_at_once(
    world: World, manager: OffsetCommitManager
) -> None:
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 3, B: 0}), 0.0)
    assert not call.done
    request = only(manager.poll(0.1))
    assert _sent(request) == {A: 7}
    request.on_done(_answer({A: 3}), 0.1)
    manager.expired(call)
    assert {tp: type(error) for tp, error in call.result().items()} == {A: UnknownTopicOrPartitionError}
    assert manager.poll(60.0) == Poll()


def test_a_commit_of_which_nothing_is_known_at_its_deadline_is_left_to_fail(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 14}), 0.0)
    assert type(manager.expired(call)) is BY_CODE[14]
    assert not call.done, "whoever keeps the deadline says that it has passed"


def test_a_commit_that_is_tried_again_does_not_hold_up_one_attempt_behind_it(manager: OffsetCommitManager) -> None:
    first = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 3}), 0.0)
    behind = _commit(manager, A, B, offset=9, once=True)
    request = only(manager.poll(0.05))
    assert _sent(request) == {B: 9}
    request.on_done(_answer({B: 0}), 0.06)
    assert {tp: type(error) for tp, error in behind.result().items()} == {A: UnknownTopicOrPartitionError}
    assert not first.done


@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_the_error_of_a_former_member_says_why(world: World, manager: OffsetCommitManager, code: int) -> None:
    membership = world.join()
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: code, B: code}), 0.0)
    error = _failure(call)
    assert isinstance(error, CommitFailedError)
    assert error.lost == (A, B)
    assert isinstance(error.__cause__, BY_CODE[code])
    assert ("group_instance_id" if code == 82 else "max_poll_interval_ms (300000)") in str(error)
    assert membership.refusals == [(REFUSALS[code], MEMBER)]
    assert manager.poll(1.0) == Poll()


@pytest.mark.parametrize("code", [*sorted(REFUSALS), *sorted(ON_ITS_WAY)])
def test_a_consumer_that_assigns_itself_is_refused_by_a_group_with_members(manager: OffsetCommitManager, code: int) -> None:
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: code}), 0.0)
    error = _failure(call)
    assert isinstance(error, CommitFailedError)
    assert isinstance(error.__cause__, BY_CODE[code])


def test_topics_that_we_may_not_read_are_named_and_the_others_stored(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A, B, C)
    only(manager.poll(0.0)).on_done(_answer({A: 29, B: 14, C: 29}), 0.0)
    assert not call.done
    only(manager.poll(0.1)).on_done(_answer({B: 0}), 0.1)
    refused = call.result()
    assert {tp: type(error) for tp, error in refused.items()} == dict.fromkeys((A, C), TopicAuthorizationFailedError)
    assert "topic 'a'" in str(refused[A])


def test_an_error_about_one_offset_names_the_partition(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 0, B: OffsetMetadataTooLargeError.errno}), 0.0)
    assert "b-0: " in str(call.result()[B])


def test_a_code_of_a_newer_broker_is_an_error_of_its_own(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 9999}), 0.0)
    assert "9999" in str(call.result()[A])


def test_a_partition_that_the_answer_leaves_out_is_sent_again(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 0}), 0.0)
    assert isinstance(manager.last_error(call), MalformedResponseError)
    assert _sent(only(manager.poll(0.1))) == {B: 7}


@pytest.mark.parametrize("error", [KafkaConnectionError("cut"), KafkaTimeoutError("late")])
def test_a_broken_connection_loses_the_coordinator_and_the_commit_is_retried(
    world: World, manager: OffsetCommitManager, error: KafkaError
) -> None:
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(error, 0.0)
    assert world.coordinator.coordinator is None
    assert manager.last_error(call) is error
    manager.poll(0.0)
    only(world.coordinator.poll(0.1)).on_done(found(TWO), 0.1)
    request = only(manager.poll(0.1))
    assert request.node_id == TWO.id
    request.on_done(_answer({A: 0}), 0.2)
    call.result()


def test_refused_credentials_fail_the_commit(manager: OffsetCommitManager) -> None:
    call = _commit(manager, A)
    error = AuthenticationFailedError("no")
    only(manager.poll(0.0)).on_done(error, 0.0)
    assert _failure(call) is error


def test_an_unknown_topic_has_the_metadata_refreshed(world: World, manager: OffsetCommitManager) -> None:
    world.learn_metadata(0.0)
    assert world.metadata.poll(0.0).wake_at == 300.0
    _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: UnknownTopicOrPartitionError.errno}), 0.0)
    assert world.metadata.poll(0.0).wake_at == 0.1
    assert world.coordinator.coordinator == ONE


def test_an_error_pauses_even_without_a_configured_backoff() -> None:
    world = World({"retry_backoff_ms": 0, "retry_backoff_max_ms": 0})
    world.find(0.0)
    manager = _manager(world)
    _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 14}), 0.0)
    assert manager.poll(0.0).wake_at > 0.0


# --- coordinator ------------------------------------------------------------------------------------------------------------------


def test_without_a_coordinator_a_commit_has_it_searched_for_and_wakes_nobody() -> None:
    world = World()
    manager = _manager(world)
    _commit(manager, A)
    assert manager.poll(0.0) == Poll()
    only(world.coordinator.poll(0.0)).on_done(found(), 0.1)
    assert manager.poll(0.1).requests


def test_a_group_that_cannot_be_used_fails_what_waits() -> None:
    world = World()
    manager = _manager(world)
    call = _commit(manager, A)
    manager.poll(0.0)
    only(world.coordinator.poll(0.0)).on_done(found(error_code=GroupAuthorizationFailedError.errno), 0.1)
    manager.poll(0.1)
    assert isinstance(_failure(call), GroupAuthorizationFailedError)
    assert manager.poll(0.2) == Poll()


def test_the_last_error_of_the_search_is_the_cause_of_a_timeout() -> None:
    world = World()
    manager = _manager(world)
    call = _commit(manager, A)
    manager.poll(0.0)
    error = KafkaConnectionError("refused")
    only(world.coordinator.poll(0.0)).on_done(error, 0.1)
    assert manager.last_error(call) is error


# --- membership -------------------------------------------------------------------------------------------------------------------


def test_a_stale_epoch_waits_for_the_new_one(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join()
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: StaleMemberEpochError.errno}), 0.0)
    membership.awaits_epoch = True
    assert manager.poll(5.0) == Poll(), "the heartbeat's answer is what wakes us"
    membership.identity = NEXT
    request = only(manager.poll(5.0))
    assert _made_as(request) == ("m", 6, None)
    request.on_done(_answer({A: 0}), 5.1)
    call.result()
    assert membership.refusals == []


@pytest.mark.parametrize(
    ("error", "says"), [(StaleMemberEpochError, Notice), (RebalanceInProgressError, Notice), (NotCoordinatorError, Fault)]
)
def test_a_rebalance_that_comes_between_is_no_fault(
    world: World, manager: OffsetCommitManager, error: type[BrokerResponseError], says: type[Notice | Fault]
) -> None:
    world.join()
    _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: error.errno}), 0.0)
    assert [type(event) for event in world.traced if isinstance(event, Notice | Fault) and event.subject == "commit"] == [says]


def test_a_stale_epoch_without_a_heartbeat_on_its_way_is_retried_after_a_backoff(
    world: World, manager: OffsetCommitManager
) -> None:
    world.join()
    _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: StaleMemberEpochError.errno}), 0.0)
    assert manager.poll(0.0) == Poll(wake_at=0.1)
    assert manager.poll(0.1).requests


def test_a_new_epoch_is_used_at_once_whatever_the_backoff(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join()
    _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: StaleMemberEpochError.errno}), 0.0)
    membership.identity = NEXT
    assert _made_as(only(manager.poll(0.01))) == ("m", 6, None)


def test_a_rebalance_that_ended_meanwhile_is_retried_in_the_new_generation(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join(CLASSIC)
    call = _commit(manager, A, B)
    request = only(manager.poll(0.0))
    membership.identity = CLASSIC_NEXT
    world.owned = frozenset((A,))
    request.on_done(_answer({A: IllegalGenerationError.errno, B: IllegalGenerationError.errno}), 0.1)
    assert membership.refusals == [(CommitFailure.ILLEGAL_GENERATION, CLASSIC)], "which counts for nothing there"
    request = only(manager.poll(0.3))
    assert _sent(request) == {A: 7}
    assert _made_as(request) == ("m", 6, "static")
    request.on_done(_answer({A: 0}), 0.4)
    assert list(_lost(call)) == [B]


def test_a_generation_that_ended_while_our_join_waits_is_no_refusal(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join(CLASSIC)
    call = _commit(manager, A)
    request = only(manager.poll(0.0))
    membership.awaits_epoch = True  # the JoinGroup goes another way, and its answer comes later
    request.on_done(_answer({A: IllegalGenerationError.errno}), 0.1)
    assert manager.poll(9.0).requests == ()
    membership.identity, membership.awaits_epoch = CLASSIC_NEXT, False
    request = only(manager.poll(9.1))
    assert _made_as(request) == ("m", 6, "static")
    request.on_done(_answer({A: 0}), 9.2)
    call.result()


def test_a_rebalance_under_way_is_retried_while_the_partitions_are_ours(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join(CLASSIC)
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: RebalanceInProgressError.errno}), 0.0)
    assert membership.refusals == [(CommitFailure.REBALANCING, CLASSIC)]
    only(manager.poll(0.1)).on_done(_answer({A: RebalanceInProgressError.errno}), 0.1)
    world.owned = frozenset()
    assert manager.poll(0.1) == Poll()
    assert list(_lost(call)) == [A]
    assert isinstance(call.result()[A].__cause__, RebalanceInProgressError)


def test_what_is_not_ours_is_named_and_the_rest_committed(world: World, manager: OffsetCommitManager) -> None:
    world.join()
    world.owned = frozenset((A,))
    call = _commit(manager, A, B, C)
    request = only(manager.poll(0.0))
    assert _sent(request) == {A: 7}
    assert not call.done
    request.on_done(_answer({A: 0}), 0.1)
    lost = _lost(call)
    assert list(lost) == [B, C]
    assert "b-0: not assigned" in lost[B]


def test_lost_and_denied_partitions_are_both_reported(world: World, manager: OffsetCommitManager) -> None:
    world.join()
    world.owned = frozenset((A,))
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 29}), 0.1)
    refused = call.result()
    assert isinstance(refused[A], TopicAuthorizationFailedError)
    assert isinstance(refused[B], CommitFailedError)


def test_a_partition_that_went_and_came_back_is_lost(world: World, manager: OffsetCommitManager) -> None:
    """Fenced at epoch 5, the partition moves on under another member and returns to us: our old offset would set it back."""
    world.join()
    call = _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 14, B: 14}), 0.0)
    world.owned = frozenset((B,))
    manager.poll(0.05)
    world.owned = frozenset((A, B))
    request = only(manager.poll(0.1))
    assert _sent(request) == {B: 7}
    request.on_done(_answer({B: 0}), 0.2)
    assert list(_lost(call)) == [A]


def test_a_partition_lost_while_its_commit_was_out_and_stored_is_committed(world: World, manager: OffsetCommitManager) -> None:
    world.join()
    call = _commit(manager, A)
    request = only(manager.poll(0.0))
    world.owned = frozenset()
    assert manager.poll(0.1) == Poll()
    request.on_done(_answer({A: 0}), 0.2)
    call.result()


@pytest.mark.parametrize(
    "identity",
    [Identity(member_id="m", generation=0, consumer_protocol=True), Identity(), Identity(member_id="other", generation=6)],
)
def test_offsets_of_a_former_membership_are_not_sent_under_another_name(
    world: World, manager: OffsetCommitManager, identity: Identity
) -> None:
    membership = world.join()
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 14}), 0.0)
    membership.identity = identity
    assert manager.poll(0.1) == Poll()
    assert list(_lost(call)) == [A]


def test_offsets_of_a_member_that_unsubscribed_are_not_sent_as_a_lone_consumer(world: World, manager: OffsetCommitManager) -> None:
    world.join()
    call = _commit(manager, A)
    world.group.membership = None
    assert manager.poll(0.0) == Poll()
    assert list(_lost(call)) == [A]


def test_a_member_that_stays_for_its_commits_is_asked_for_by_those_it_made(world: World, manager: OffsetCommitManager) -> None:
    membership, call = world.join(), _commit(manager, A)
    assert manager.is_storing(0.0)
    world.group.parting, world.group.membership = membership, None
    request = only(manager.poll(0.0))
    assert _made_as(request) == ("m", 5, None)
    request.on_done(_answer({A: 16}), 0.1)
    assert manager.is_storing(0.1)
    world.find(0.2, TWO)
    again = only(manager.poll(0.3))
    assert (again.node_id, _made_as(again)) == (TWO.id, ("m", 5, None))
    again.on_done(_answer({A: 0}), 0.4)
    assert call.result() == {}
    assert not manager.is_storing(0.4)


def test_a_member_stays_for_no_partition_that_is_lost_or_has_an_error_of_its_own(
    world: World, manager: OffsetCommitManager
) -> None:
    world.join()
    _commit(manager, A, B)
    only(manager.poll(0.0)).on_done(_answer({A: 3, B: 0}), 0.1)
    assert not manager.is_storing(0.1)
    _commit(manager, C)
    assert manager.is_storing(0.1)
    world.owned = frozenset((A, B))
    assert not manager.is_storing(0.1)


def test_a_member_stays_for_no_partition_that_waits_behind_one_with_an_error_of_its_own(
    world: World, manager: OffsetCommitManager
) -> None:
    world.join()
    _commit(manager, A)
    only(manager.poll(0.0)).on_done(_answer({A: 3}), 0.1)
    _commit(manager, A)
    assert not manager.is_storing(0.1)
    _commit(manager, A, B)
    assert manager.is_storing(0.1)


def test_a_member_stays_for_no_partition_whose_topic_is_gone(world: World, manager: OffsetCommitManager) -> None:
    manager.by_id = lambda: False
    world.join()
    for _ in range(2):
        manager.commit(Call(60.0), {A: OffsetAndMetadata(7, topic_id=UUID(int=1))}, 0.0)
    assert not manager.is_storing(0.0)
    world.give_ids("a")
    assert manager.is_storing(0.0)


def test_a_lone_consumer_commits_when_the_member_that_it_was_has_left(world: World, manager: OffsetCommitManager) -> None:
    world.group.parting = world.join(CLASSIC)
    world.group.membership = None
    _commit(manager, A)
    assert not manager.is_storing(0.0)
    assert manager.poll(0.0) == Poll()
    world.group.parting = None
    assert _made_as(only(manager.poll(0.1))) == ("", -1, None)


def test_a_new_membership_waits_for_no_partition_of_a_lone_consumer_with_an_error_of_its_own(
    world: World, manager: OffsetCommitManager
) -> None:
    _commit(manager, A, B)
    assert (manager.is_storing(0.0), manager.is_storing_alone(0.0)) == (False, True)
    only(manager.poll(0.0)).on_done(_answer({A: 3, B: 0}), 0.1)
    assert not manager.is_storing_alone(0.1)


def test_a_lone_consumers_commit_waits_for_the_member_that_it_was_though_it_subscribes_anew(
    world: World, manager: OffsetCommitManager
) -> None:
    world.group.parting = world.join(CLASSIC)
    world.group.membership = None
    _commit(manager, A)
    world.group.membership = world.group.parting
    assert manager.poll(0.0) == Poll()
    world.group.parting = None
    assert _made_as(only(manager.poll(0.1))) == ("", -1, None)


def test_who_subscribes_anew_while_it_stays_is_no_member_yet(world: World, manager: OffsetCommitManager) -> None:
    world.group.parting = world.join()
    call = _commit(manager, A)
    assert manager.poll(0.0) == Poll()
    assert list(_lost(call)) == [A]


def test_after_a_final_error_every_commit_fails_with_it(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join()
    waiting = _commit(manager, A)
    membership.failure, membership.identity = FencedInstanceIdError("taken"), Identity()
    later = _commit(manager, A)
    assert manager.poll(0.0) == Poll()
    assert _failure(waiting) is membership.failure
    assert _failure(later) is membership.failure
    world.group.membership = None  # unsubscribed, and partitions assigned by hand
    call = _commit(manager, A)
    only(manager.poll(0.1)).on_done(_answer({A: 0}), 0.1)
    assert call.result() == {}


def test_a_commit_made_before_subscribing_goes_as_it_was_made(world: World, manager: OffsetCommitManager) -> None:
    _commit(manager, A)
    world.join()
    world.owned = frozenset()
    assert _made_as(only(manager.poll(0.0))) == ("", -1, None)


# --- the end ----------------------------------------------------------------------------------------------------------------------


def test_on_close_what_waits_is_sent_in_order_whatever_the_backoff(world: World, manager: OffsetCommitManager) -> None:
    _commit(manager, A, offset=1)
    given_up = _commit(manager, B)
    last = _commit(manager, A, offset=2)
    for request in manager.poll(0.0).requests:
        request.on_done(_answer({A: 14, B: 14}), 0.0)
    given_up.withdraw()
    requests = manager.poll_on_close(0.01).requests
    assert [_sent(request) for request in requests] == [{A: 1}, {A: 2}]
    assert all(request.final and request.node_id == ONE.id for request in requests)
    for request in requests:
        request.on_done(_answer({A: 0}), 0.02)
    last.result()


def test_on_close_the_last_known_coordinator_is_good_enough(world: World, manager: OffsetCommitManager) -> None:
    """What is unsent when the consumer stops ends with a connection error, which takes the coordinator for lost."""
    call = _commit(manager, A)
    only(manager.poll(0.0)).on_done(KafkaConnectionError("was not sent: the consumer is stopping"), 0.1)
    only(manager.poll_on_close(0.1)).on_done(_answer({A: 0}), 0.2)
    call.result()


def test_on_close_what_is_in_flight_is_not_sent_twice(manager: OffsetCommitManager) -> None:
    _commit(manager, A)
    manager.poll(0.0)
    assert manager.poll_on_close(0.1) == Poll()


def test_on_close_without_a_coordinator_a_commit_fails_at_once() -> None:
    manager = _manager(World())
    call = _commit(manager, A)
    assert manager.poll_on_close(0.0) == Poll()
    assert isinstance(_failure(call), CommitFailedError)


def test_a_refused_member_whose_caller_gave_up_is_refused_all_the_same(world: World, manager: OffsetCommitManager) -> None:
    membership = world.join()
    call = _commit(manager, A)
    request = only(manager.poll(0.0))
    call.withdraw()
    request.on_done(_answer({A: UnknownMemberIdError.errno}), 0.1)
    assert membership.refusals == [(CommitFailure.UNKNOWN_MEMBER, MEMBER)]
