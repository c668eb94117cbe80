"""``kafka_async.background.group.offset_fetch``: a question, ``poll(0.0)``, an answer; no event loop."""

from collections.abc import Mapping

import pytest
from attrs import define, field

from kafka_async.background.boundary import Parcel, Repositioned
from kafka_async.background.group.offset_fetch import PATIENCE, Committed, OffsetFetchManager
from kafka_async.background.loop.request_manager import Poll
from kafka_async.background.positions.newcomers import FIRST, FIRST_OF_NEW
from kafka_async.background.positions.subscription import FetchPosition, FetchState, PartitionState, SubscriptionState
from kafka_async.errors import (
    BY_CODE,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    MalformedResponseError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
)
from kafka_async.events import Call, PartitionDescription, TopicDescription
from kafka_async.model import OffsetAndMetadata, TopicPartition
from kafka_async.network import Channel, UnsentRequest
from kafka_async.wire.messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.background.group.offsets_world import CLASSIC, MEMBER, NEXT, ONE, TWO, A, B, C, World, found, only

REFUSALS = {25, 69, 22, 110, 82}
PASSING = {code for code, error in BY_CODE.items() if error.retriable} | REFUSALS | {StaleMemberEpochError.errno}
LASTING = BY_CODE.keys() - PASSING
COORDINATOR_LOST = {7, 15, 16}


@define(eq=False)
class Fetching(World):
    """A world with an assignment and the manager under test."""

    parcels: list[Parcel] = field(factory=list, init=False)
    subscription: SubscriptionState = field(factory=SubscriptionState, init=False)
    committing: set[TopicPartition] = field(factory=set, init=False)
    """Partitions of which a commit is under way."""
    manager: OffsetFetchManager = field(init=False)

    def __attrs_post_init__(self) -> None:
        World.__attrs_post_init__(self)
        self.manager = OffsetFetchManager(
            config=self.config,
            group=self.group,
            subscription=self.subscription,
            deliver=self.parcels.append,
            on_error=self.errors.append,
            random=self.random,
            trace=self.traced.append,
            committing=lambda: self.committing,
        )

    def ask(self, *partitions: TopicPartition, partial: bool = False) -> Call[Committed]:
        call: Call[Committed] = Call(60.0)
        self.manager.fetch(call, frozenset(partitions), 0.0, partial=partial)
        return call

    def assign(self, stamps: Mapping[TopicPartition, int]) -> list[PartitionState]:
        """Assign partitions and have each of them initialized; return their entries."""
        self.subscription.assign(stamps)
        entries = [self.subscription.partitions[partition] for partition in stamps]
        for entry in entries:
            assert self.manager.initialize(entry)
        return entries

    def send(self, now: float) -> UnsentRequest:
        return only(self.manager.poll(now))


@pytest.fixture
def world() -> Fetching:
    world = Fetching()
    world.learn_metadata(0.0)
    world.find(0.0)
    return world


def _asked(request: UnsentRequest) -> set[TopicPartition]:
    message = request.message
    assert isinstance(message, OffsetFetchRequest)
    (group,) = message.groups
    return {TopicPartition(topic.name, index) for topic in group.topics or () for index in topic.partition_indexes}


def _answer(offsets: Mapping[TopicPartition, int], *, errors: Mapping[TopicPartition, int] | None = None) -> OffsetFetchResponse:
    """Return offsets (-1 for none) with metadata "note" and epoch 4, and error codes beside which no offset means anything."""
    codes = errors or {}
    topics = tuple(
        OffsetFetchResponseTopics(
            name=tp.topic,
            partitions=(
                OffsetFetchResponsePartitions(
                    partition_index=tp.partition,
                    committed_offset=offsets.get(tp, -1),
                    committed_leader_epoch=4 if offsets.get(tp, -1) >= 0 else -1,
                    metadata="note" if offsets.get(tp, -1) >= 0 else None,
                    error_code=codes.get(tp, 0),
                ),
            ),
        )
        for tp in (*offsets, *codes)
    )
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=topics),))


def _refused(code: int) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", error_code=code),))


def _failure(call: Call[Committed]) -> BaseException:
    with pytest.raises(KafkaError) as caught:
        call.result()
    return caught.value


# --- callers ----------------------------------------------------------------------------------------------------------------------


def test_nothing_asked_is_answered_at_once(world: Fetching) -> None:
    assert world.ask().result() == {}
    assert world.manager.poll(0.0) == Poll()


def test_stored_offsets_are_asked_for_as_stable_ones(world: Fetching) -> None:
    call = world.ask(A, B)
    request = world.send(0.0)
    topics = tuple(OffsetFetchRequestTopics(name=name, partition_indexes=(0,)) for name in "ab")
    assert request.message == OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),), require_stable=True
    )
    assert (request.node_id, request.channel, request.expires_at) == (ONE.id, Channel.GROUP, 30.0)
    request.on_done(_answer({A: 7, B: -1}), 0.1)
    assert call.result() == {A: OffsetAndMetadata(7, "note", 4), B: None}
    assert world.manager.poll(0.1) == Poll()


def test_topics_go_by_id_if_the_ids_are_known(world: Fetching) -> None:
    ids = world.give_ids("a")
    call = world.ask(A)
    request = world.send(0.0)
    assert isinstance(request.message, OffsetFetchRequest)
    assert [topic.topic_id for topic in request.message.groups[0].topics or ()] == [ids["a"]]
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=3)
    topics = (OffsetFetchResponseTopics(topic_id=ids["a"], partitions=(part,)),)
    request.on_done(OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=topics),)), 0.1)
    assert call.result() == {A: OffsetAndMetadata(3)}


def test_only_a_member_of_the_consumer_protocol_shows_its_epoch(world: Fetching) -> None:
    membership = world.join(MEMBER)
    world.ask(A)
    request = world.send(0.0)
    assert isinstance(request.message, OffsetFetchRequest)
    assert (request.message.groups[0].member_id, request.message.groups[0].member_epoch) == ("m", 5)
    request.on_done(KafkaConnectionError("cut"), 0.0)
    world.find(0.1)
    membership.identity = CLASSIC
    request = world.send(0.1)
    assert isinstance(request.message, OffsetFetchRequest)
    assert (request.message.groups[0].member_id, request.message.groups[0].member_epoch) == (None, -1)


def test_what_is_asked_while_a_request_is_out_shares_the_next_one(world: Fetching) -> None:
    first = world.ask(A)
    request = world.send(0.0)
    second, third = world.ask(A), world.ask(A, B)
    assert world.manager.poll(0.0) == Poll()
    request.on_done(_answer({A: 1}), 0.1)
    assert first.result() == {A: OffsetAndMetadata(1, "note", 4)}
    assert not second.done, "the answer may be older than the question"
    request = world.send(0.1)
    assert _asked(request) == {A, B}
    request.on_done(_answer({A: 2, B: 3}), 0.2)
    assert second.result() == {A: OffsetAndMetadata(2, "note", 4)}
    assert third.result() == {A: OffsetAndMetadata(2, "note", 4), B: OffsetAndMetadata(3, "note", 4)}


def test_a_question_that_was_given_up_is_not_asked(world: Fetching) -> None:
    world.ask(A).withdraw()
    assert world.manager.poll(0.0) == Poll()


@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_passing_error_of_the_group_is_retried_after_a_backoff(world: Fetching, code: int) -> None:
    membership = world.join()
    call = world.ask(A)
    world.send(0.0).on_done(_refused(code), 0.0)
    assert not call.done
    assert type(world.manager.last_error) is BY_CODE[code]
    assert bool(membership.refusals) == (code in REFUSALS)
    if code in COORDINATOR_LOST:
        assert world.manager.poll(0.05) == Poll()
        world.find(0.1, TWO)
    else:
        assert world.manager.poll(0.05) == Poll(wake_at=0.1)
    world.send(0.1).on_done(_answer({A: 7}), 0.2)
    assert call.result() == {A: OffsetAndMetadata(7, "note", 4)}


@pytest.mark.parametrize("code", sorted(LASTING))
def test_a_lasting_error_of_the_group_fails_the_question(world: Fetching, code: int) -> None:
    call = world.ask(A)
    world.send(0.0).on_done(_refused(code), 0.0)
    assert type(_failure(call)) is BY_CODE[code]
    assert world.errors == [], "the caller has it"


@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_passing_error_of_a_partition_holds_up_only_that_one(world: Fetching, code: int) -> None:
    world.join()
    both, easy = world.ask(A, B), world.ask(A)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: code}), 0.0)
    assert easy.result() == {A: OffsetAndMetadata(1, "note", 4)}
    assert not both.done
    if code in COORDINATOR_LOST:
        world.find(0.1)
    else:
        assert world.manager.poll(0.0) == Poll(wake_at=0.1)
    request = world.send(0.1)
    assert _asked(request) == {B}
    request.on_done(_answer({B: 2}), 0.2)
    assert both.result() == {A: OffsetAndMetadata(1, "note", 4), B: OffsetAndMetadata(2, "note", 4)}


def test_a_pending_transaction_is_asked_for_less_and_less_often_and_does_not_slow_others(world: Fetching) -> None:
    world.ask(A)
    now = 0.0
    for wait in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        world.send(now).on_done(_answer({}, errors={A: UnstableOffsetCommitError.errno}), now)
        wake_at = world.manager.poll(now).wake_at
        assert wake_at == pytest.approx(now + wait)
        now = wake_at
    world.send(now).on_done(_answer({}, errors={A: UnstableOffsetCommitError.errno}), now)
    world.ask(B)
    assert _asked(world.send(now)) == {B}


@pytest.mark.parametrize("code", sorted(LASTING - {TopicAuthorizationFailedError.errno}))
def test_a_lasting_error_of_a_partition_fails_those_who_asked_for_it(world: Fetching, code: int) -> None:
    bad, good = world.ask(A, B), world.ask(A)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: code}), 0.0)
    assert type(_failure(bad)) is BY_CODE[code]
    assert good.result() == {A: OffsetAndMetadata(1, "note", 4)}


def test_who_takes_a_part_of_the_answer_gets_what_is_known_by_the_deadline(world: Fetching) -> None:
    part, all_of_it = world.ask(A, B, partial=True), world.ask(A, B)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: UnstableOffsetCommitError.errno}), 0.0)
    assert not part.done
    for call in (part, all_of_it):
        assert isinstance(world.manager.expired(call), UnstableOffsetCommitError)
    assert part.result() == {A: OffsetAndMetadata(1, "note", 4)}
    assert not all_of_it.done


def test_who_takes_a_part_of_the_answer_does_not_wait_for_what_is_refused(world: Fetching) -> None:
    part, none = world.ask(A, B, partial=True), world.ask(B, partial=True)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: 29}), 0.0)
    assert part.result() == {A: OffsetAndMetadata(1, "note", 4)}
    assert isinstance(_failure(none), TopicAuthorizationFailedError)


def test_who_takes_a_part_of_the_answer_waits_for_errors_of_other_partitions_only_so_long(world: Fetching) -> None:
    part, all_of_it, none = world.ask(A, B, partial=True), world.ask(A, B), world.ask(B, partial=True)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: UnstableOffsetCommitError.errno}), 0.0)
    for now in (PATIENCE - 1, PATIENCE):
        assert not part.done
        request = world.send(now)
        assert _asked(request) == {B}
        request.on_done(_answer({}, errors={B: UnstableOffsetCommitError.errno}), now)
    assert part.result() == {A: OffsetAndMetadata(1, "note", 4)}
    assert not all_of_it.done
    assert not none.done, "nothing is known"


def test_who_takes_a_part_of_the_answer_gets_what_is_known_if_the_rest_is_refused_later(world: Fetching) -> None:
    part, whole = world.ask(A, B, C, partial=True), world.ask(A, B, partial=True)
    unstable = UnstableOffsetCommitError.errno
    world.send(0.0).on_done(_answer({A: 1}, errors={B: unstable, C: unstable}), 0.0)
    world.ask(A)
    world.send(1.0).on_done(_answer({B: 2}, errors={A: 29, C: 29}), 1.0)
    assert part.result() == whole.result() == {A: OffsetAndMetadata(1, "note", 4), B: OffsetAndMetadata(2, "note", 4)}


def test_who_takes_a_part_of_the_answer_gets_what_is_known_if_the_group_is_refused_later(world: Fetching) -> None:
    part, all_of_it = world.ask(A, B, partial=True), world.ask(A, B)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: UnstableOffsetCommitError.errno}), 0.0)
    world.send(1.0).on_done(_refused(GroupAuthorizationFailedError.errno), 1.0)
    assert part.result() == {A: OffsetAndMetadata(1, "note", 4)}
    assert isinstance(_failure(all_of_it), GroupAuthorizationFailedError)


def test_topics_that_we_may_not_read_are_named_together(world: Fetching) -> None:
    call = world.ask(A, B, C)
    world.send(0.0).on_done(_answer({A: 1}, errors={B: 29, C: 29}), 0.0)
    error = _failure(call)
    assert isinstance(error, TopicAuthorizationFailedError)
    assert "'b', 'c'" in str(error)


@pytest.mark.parametrize(
    "outcome", [_answer({A: 1}), _answer({A: 1, B: -2}), OffsetFetchResponse(), KafkaConnectionError("cut")], ids=str
)
def test_an_answer_that_does_not_answer_is_not_read_as_no_offset(world: Fetching, outcome: object) -> None:
    call = world.ask(A, B)
    world.send(0.0).on_done(outcome, 0.0)
    assert not call.done
    assert isinstance(world.manager.last_error, (MalformedResponseError, KafkaConnectionError))


def test_a_stale_epoch_waits_for_the_new_one(world: Fetching) -> None:
    membership = world.join()
    world.ask(A)
    world.send(0.0).on_done(_refused(StaleMemberEpochError.errno), 0.0)
    membership.awaits_epoch = True
    assert world.manager.poll(5.0) == Poll()
    membership.awaits_epoch = False
    membership.identity = NEXT
    assert world.send(0.01).message == OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id="g", member_id="m", member_epoch=6, topics=(OffsetFetchRequestTopics(name="a", partition_indexes=(0,)),)
            ),
        ),
        require_stable=True,
    )


def test_who_has_ended_a_stale_membership_waits_for_no_epoch_of_it(world: Fetching) -> None:
    membership = world.join()
    world.ask(A)
    world.send(0.0).on_done(_refused(StaleMemberEpochError.errno), 0.0)
    membership.awaits_epoch = True
    world.group.parting, world.group.membership = membership, None
    assert _asked(world.send(0.01)) == {A}


# --- first positions --------------------------------------------------------------------------------------------------------------


def test_new_partitions_get_their_stored_positions_in_one_request(world: Fetching) -> None:
    first, second = world.assign({A: 1, B: 2})
    request = world.send(0.0)
    assert _asked(request) == {A, B}
    request.on_done(_answer({A: 7, B: -1}), 0.1)
    assert (first.state, first.position) == (FetchState.AWAIT_VALIDATION, FetchPosition(7, 4))
    assert world.parcels == [Repositioned(partition=A, stamp=1, offset=7, leader_epoch=4, is_committed=True)]
    assert (second.state, second.strategy) == (FetchState.AWAIT_RESET, FIRST)
    assert world.manager.poll(0.1) == Poll()


def _grow(world: Fetching, partitions: int) -> list[TopicPartition]:
    """Have topic a known with so many partitions."""
    parts = tuple(
        PartitionDescription(partition=each, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)) for each in range(partitions)
    )
    world.metadata.cluster.topics["a"] = TopicDescription(name="a", topic_id=None, internal=False, partitions=parts)
    return [TopicPartition("a", each) for each in range(partitions)]


def test_an_error_about_another_partition_does_not_mean_that_the_group_has_stored_nothing_of_it(world: Fetching) -> None:
    world.join()
    first, second, third = _grow(world, 3)
    (entry,) = world.assign({third: 1})
    request = world.send(0.0)
    assert _asked(request) == {first, second, third}
    request.on_done(_answer({second: -1, third: -1}, errors={first: UnstableOffsetCommitError.errno}), 0.0)
    assert entry.state is FetchState.INITIALIZING
    assert world.manager.poll(0.0) == Poll(wake_at=0.1), "it is not asked for again and again meanwhile"
    request = world.send(0.1)
    assert _asked(request) == {first, second, third}
    request.on_done(_answer({first: 7, second: -1, third: -1}), 0.1)
    assert (entry.state, entry.strategy) == (FetchState.AWAIT_RESET, FIRST_OF_NEW)


def test_a_partition_is_not_started_while_another_ones_error_has_to_pass(world: Fetching) -> None:
    world.join()
    first, second = _grow(world, 2)
    world.ask(first)
    world.send(0.0).on_done(_answer({}, errors={first: UnstableOffsetCommitError.errno}), 0.0)
    (entry,) = world.assign({second: 1})
    request = world.send(0.05)
    assert _asked(request) == {second}
    request.on_done(_answer({second: -1}), 0.05)
    assert (entry.state, world.manager.poll(0.05).wake_at) == (FetchState.INITIALIZING, 0.1)
    world.send(0.1).on_done(_answer({first: -1, second: -1}), 0.1)
    assert (entry.state, entry.strategy) == (FetchState.AWAIT_RESET, FIRST)


def test_a_partition_with_an_offset_waits_for_no_other_one_and_neither_does_one_that_shows_what_is_new(world: Fetching) -> None:
    world.join()
    first, second, third = _grow(world, 3)
    stored, new = world.assign({second: 1, third: 2})
    world.send(0.0).on_done(_answer({second: 5, third: -1}, errors={first: UnstableOffsetCommitError.errno}), 0.0)
    assert stored.position == FetchPosition(5, 4)
    assert (new.state, new.strategy) == (FetchState.AWAIT_RESET, FIRST_OF_NEW)


def test_a_lasting_error_of_another_partition_for_which_one_waits_is_reported(world: Fetching) -> None:
    world.join()
    first, second = _grow(world, 2)
    world.assign({second: 1})
    world.send(0.0).on_done(_answer({second: -1}, errors={first: TopicAuthorizationFailedError.errno}), 0.0)
    assert [type(error) for error in world.errors] == [TopicAuthorizationFailedError]


def test_a_consumer_that_assigns_its_partitions_itself_waits_for_no_other_partition(world: Fetching) -> None:
    first, second = _grow(world, 2)
    (entry,) = world.assign({second: 1})
    world.send(0.0).on_done(_answer({second: -1}, errors={first: UnstableOffsetCommitError.errno}), 0.0)
    assert (entry.state, entry.strategy) == (FetchState.AWAIT_RESET, FIRST)


def test_a_position_without_a_leader_epoch_needs_no_check(world: Fetching) -> None:
    (entry,) = world.assign({A: 1})
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
    topics = (OffsetFetchResponseTopics(name="a", partitions=(part,)),)
    world.send(0.0).on_done(OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=topics),)), 0.1)
    assert (entry.state, entry.position) == (FetchState.FETCHING, FetchPosition(7))


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_no_error_of_a_partition_resets_its_position(world: Fetching, code: int) -> None:
    world.join()
    (entry,) = world.assign({A: 1})
    world.send(0.0).on_done(_answer({}, errors={A: code}), 0.0)
    assert (entry.state, world.parcels) == (FetchState.INITIALIZING, [])
    assert bool(world.errors) == (code in LASTING)
    if code in COORDINATOR_LOST:
        world.find(0.1)
    retry_at = 1.0 if code in LASTING else 0.1
    world.send(retry_at).on_done(_answer({A: 7}), retry_at)
    assert entry.position == FetchPosition(7, 4)


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_no_error_of_the_group_resets_a_position(world: Fetching, code: int) -> None:
    world.join()
    (entry,) = world.assign({A: 1})
    world.send(0.0).on_done(_refused(code), 0.0)
    assert entry.state is FetchState.INITIALIZING
    assert [type(error) for error in world.errors] == ([BY_CODE[code]] if code in LASTING else [])
    assert world.manager.poll(0.0).wake_at > 0.0


def test_a_partition_that_the_answer_leaves_out_is_asked_for_again(world: Fetching) -> None:
    first, second = world.assign({A: 1, B: 2})
    world.send(0.0).on_done(_answer({A: 7}), 0.0)
    assert first.position is not None
    assert second.state is FetchState.INITIALIZING
    assert _asked(world.send(0.1)) == {B}


def test_a_partition_that_was_moved_meanwhile_stays_where_it_is(world: Fetching) -> None:
    first, second = world.assign({A: 1, B: 2})
    request = world.send(0.0)
    first.stamp = 3
    world.subscription.seek(first, FetchPosition(99))
    world.subscription.assign({A: 3})
    request.on_done(_answer({A: 7, B: 8}), 0.1)
    assert first.position == FetchPosition(99)
    assert second.position is None
    assert world.parcels == []
    assert world.manager.poll(0.1) == Poll()


def test_a_partition_that_went_and_came_back_is_asked_for_anew(world: Fetching) -> None:
    world.assign({A: 1})
    request = world.send(0.0)
    world.subscription.assign({})
    (entry,) = world.assign({A: 2})
    request.on_done(_answer({A: 7}), 0.1)
    assert entry.state is FetchState.INITIALIZING, "the answer is from before somebody else may have had it"
    world.send(0.1).on_done(_answer({A: 9}), 0.2)
    assert entry.position == FetchPosition(9, 4)


def test_initializing_twice_asks_once(world: Fetching) -> None:
    (entry,) = world.assign({A: 1})
    request = world.send(0.0)
    assert world.manager.initialize(entry)
    request.on_done(_answer({A: 7}), 0.1)
    assert entry.position == FetchPosition(7, 4)
    assert world.manager.poll(0.1) == Poll()


# --- coordinator ------------------------------------------------------------------------------------------------------------------


def test_without_a_coordinator_it_is_searched_for() -> None:
    world = Fetching()
    world.ask(A)
    assert world.manager.poll(0.0) == Poll()
    only(world.coordinator.poll(0.0)).on_done(found(), 0.1)
    assert world.manager.poll(0.1).requests


def test_after_a_final_error_every_question_fails_with_it() -> None:
    world = Fetching()
    world.find(0.0)
    membership = world.join()
    membership.failure = FencedInstanceIdError("taken")
    call = world.ask(A)
    assert world.manager.poll(0.1) == Poll()
    assert _failure(call) is membership.failure


@pytest.mark.parametrize("member", [False, True])
def test_a_group_that_cannot_be_used_fails_each_call_and_is_reported_once_for_first_positions(member: bool) -> None:
    world = Fetching()
    if member:
        world.join()
    (entry,) = world.assign({A: 1})
    call = world.ask(A)
    world.manager.poll(0.0)
    only(world.coordinator.poll(0.0)).on_done(found(error_code=GroupAuthorizationFailedError.errno), 0.1)
    for now in (0.1, 0.2, 0.3):
        assert world.manager.poll(now) == Poll()
    assert isinstance(_failure(call), GroupAuthorizationFailedError)
    assert [type(error) for error in world.errors] == ([] if member else [GroupAuthorizationFailedError])
    only(world.coordinator.poll(1.1)).on_done(found(), 1.1)
    world.send(1.1).on_done(_answer({A: 7}), 1.2)
    assert entry.position == FetchPosition(7, 4)


def test_a_question_has_no_last_words(world: Fetching) -> None:
    world.ask(A)
    assert world.manager.poll_on_close(0.0) == Poll()


def test_where_to_start_is_asked_when_the_commit_of_that_partition_is_done(world: Fetching) -> None:
    """The last commit of a member and the question of who comes after it may be on two connections, where nothing keeps their
    order: the answer would be older than the commit, reading would go back, and so would the next commit."""
    world.committing.add(A)
    world.assign({A: 1, B: 2})
    request = world.send(0.0)
    assert _asked(request) == {B}
    request.on_done(_answer({B: 5}), 0.1)
    assert world.manager.poll(0.2) == Poll()
    world.committing.clear()
    request = world.send(0.3)
    assert _asked(request) == {A}
    request.on_done(_answer({A: 7}), 0.4)
    assert world.manager.poll(1.0) == Poll()
