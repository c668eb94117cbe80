"""``kafka_async.background.group.consumer.consumer_membership``: ``turn(0.0)``, an answer, ``turn(0.1)``; no event loop."""

from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.background.group.consumer.consumer_membership import CREATION, GIVING_UP
from kafka_async.background.group.consumer.group_settings import SESSION_TIMEOUT
from kafka_async.background.group.consumer.heartbeat import LONGEST_INTERVAL
from kafka_async.background.group.consumer.states import LEAVABLE, MEMBER, SPEAKING, MemberState
from kafka_async.background.group.heartbeat import OUT, Verdict, judge
from kafka_async.background.group.membership import CommitFailure, Identity, Membership
from kafka_async.background.positions.subscription import Subscription
from kafka_async.errors import (
    BY_CODE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
    for_code,
)
from kafka_async.events import Call
from kafka_async.model import ConsumerState
from kafka_async.network import Channel
from kafka_async.trace import Notice, StateChanged
from kafka_async.wire.messages import TopicPartitions
from tests.background.group.consumer.world import (
    A0,
    A1,
    B0,
    INTERVAL,
    LATE,
    ONE,
    TWO,
    A,
    B,
    World,
    answer,
    config,
    is_leave,
    message,
    names,
    reach,
    topic,
)

S = MemberState


def label(value: object) -> str:
    return str(getattr(value, "name", value))


def shown(world: World) -> ConsumerState:
    return world.member.state


OWNED = frozenset({A0, A1})


def in_flight(state: MemberState, **options: object) -> World:
    """Return a world in ``state`` with one heartbeat unanswered."""
    world = reach(state, **options)
    assert len(world.flying) == 1
    return world


def at_rest(**options: object) -> World:
    """Return a member that owns ``OWNED`` and said so at ``INTERVAL``; nothing is in flight."""
    world = in_flight(S.STABLE, **options)
    world.reply(answer(), 2 * INTERVAL)
    return world


# --- joining ----------------------------------------------------------------------------------------------------------------------


def test_before_it_subscribes_it_is_nobody_and_wants_nothing() -> None:
    membership: Membership = World().member
    assert membership.identity == Identity()
    assert (membership.state, membership.wanted_topics, membership.session_deadline) == (ConsumerState.STEADY, frozenset(), inf)
    assert not membership.awaits_epoch


def test_who_did_not_subscribe_says_nothing_and_is_never_woken() -> None:
    world = World()
    poll = world.turn(0.0)
    assert (poll.requests, poll.wake_at, world.coordinator.searches) == ((), inf, 0)


def test_joining_says_everything_to_the_coordinator_on_its_own_connection() -> None:
    world = World(config=config(client_rack="r", group_instance_id="i", group_remote_assignor="uniform", max_poll_interval_ms=7000))
    world.member.subscribe(names("b", "a"), 0.0)
    (request,) = world.turn(0.0).requests
    assert (request.node_id, request.channel, request.expires_at, request.final) == (ONE.id, Channel.GROUP, 30.0, False)
    world.reply(answer(), 0.0)
    said = message(request)
    assert (said.group_id, said.member_id, said.member_epoch, said.instance_id) == ("g", "m", 0, "i")
    assert (said.rack_id, said.rebalance_timeout_ms, said.server_assignor) == ("r", 7000, "uniform")
    assert (said.subscribed_topic_names, said.subscribed_topic_regex, said.topic_partitions) == (("a", "b"), "", ())


def test_one_join_is_in_flight_and_its_answer_brings_id_epoch_and_interval() -> None:
    world = reach(S.JOINING)
    assert world.member.identity == Identity(member_id="m", generation=-1, consumer_protocol=True)
    assert world.turn(1.0).requests == ()
    world.reply(answer({LATE: (0,)}, epoch=4, interval=2.0, member_id="given"), 1.0)
    assert world.member.identity == Identity(member_id="given", generation=4, consumer_protocol=True)
    world.metadata.names[LATE] = "late"
    world.turn(1.0)
    assert world.turn(1.9).wake_at == 2.0  # counted from when the heartbeat was sent


def test_a_heartbeat_without_news_follows_after_the_interval() -> None:
    world = at_rest()
    assert world.turn(14.0).wake_at == 15.0
    said = world.sent(15.0)
    assert said is not None
    assert (said.member_epoch, said.topic_partitions, said.subscribed_topic_names, said.rebalance_timeout_ms) == (1, None, None, -1)


def test_an_answer_without_an_interval_keeps_the_one_that_is_known() -> None:
    world = at_rest()
    world.exchange(answer(interval=0.0), 15.0)
    assert world.turn(15.0).wake_at == 15.0 + INTERVAL


def test_an_interval_of_weeks_is_not_believed() -> None:
    world = at_rest()
    world.exchange(answer(interval=2_000_000.0), 15.0)
    assert world.turn(15.0).wake_at == 15.0 + LONGEST_INTERVAL


def test_who_has_come_and_got_nothing_yet_asks_again_soon_for_as_long_as_the_others_may_take_to_give_something_up() -> None:
    world = reach(S.JOINING)
    world.reply(answer(), 0.0)
    due = [world.turn(0.0).wake_at]
    while due[-1] < 2 * INTERVAL:
        world.exchange(answer(), due[-1])
        due.append(world.turn(due[-1]).wake_at)
    assert due == [0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0]


def test_who_has_confirmed_an_assignment_asks_soon_whether_there_is_more_for_an_interval() -> None:
    world = reach(S.JOINING)
    world.reply(answer(), 0.0)
    world.exchange(answer({A: (0, 1)}), 1.0)
    world.turn(1.0)
    world.carry_out(1.0)
    world.exchange(answer(), 1.0)
    due = [world.turn(1.0).wake_at]
    while due[-1] < 6.0 + INTERVAL:
        world.exchange(answer(), due[-1])
        due.append(world.turn(due[-1]).wake_at)
    assert due == [1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0]


@pytest.mark.parametrize("epoch", [0, -1])
def test_an_answer_with_an_impossible_epoch_counts_for_nothing_and_is_asked_again_later(epoch: int) -> None:
    world = reach(S.JOINING)
    world.reply(answer({A: (0,)}, epoch=epoch), 0.0)
    assert world.state is S.JOINING
    assert world.turn(0.0).wake_at > 0.0
    assert world.faults("trying again")


# --- topics -----------------------------------------------------------------------------------------------------------------------


def test_a_changed_subscription_is_sent_at_once() -> None:
    world = at_rest()
    world.member.subscribe(names("a"), 10.5)
    said = world.sent(10.5)
    assert said is not None
    assert (said.subscribed_topic_names, said.subscribed_topic_regex, said.topic_partitions) == (("a",), None, None)
    assert world.turn(10.5).requests == ()


def test_an_expression_of_the_coordinators_is_set_and_taken_back() -> None:
    world = at_rest()
    world.member.subscribe(Subscription(regex="a.*"), 11.0)
    assert world.member.wanted_topics is None
    said = world.exchange(answer(), 11.0)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == ((), "a.*")
    world.member.subscribe(names("a"), 12.0)
    said = world.exchange(answer(), 12.0)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("a",), "")


def test_a_pattern_is_not_evaluated_on_the_topics_that_somebody_else_needed() -> None:
    world = World()
    world.metadata.covers_all = False  # an answer to a request that was made before the pattern was subscribed
    world.metadata.topics.clear()
    world.member.subscribe(Subscription(matches=lambda name: True), 0.0)
    assert world.sent(0.0) is None
    world.metadata.topics["a"] = topic("a", A)
    world.metadata.version, world.metadata.covers_all = 2, True
    assert world.exchange(answer(), 0.1).subscribed_topic_names == ("a",)


def test_a_pattern_waits_for_metadata_and_follows_topics_as_they_come_and_go() -> None:
    world = World()
    world.metadata.version = 0
    world.member.subscribe(Subscription(matches=lambda name: name != "b"), 0.0)
    assert world.turn(0.0).wake_at == inf
    world.metadata.version = 1
    assert world.exchange(answer({A: (0,)}), 0.1).subscribed_topic_names == ("a",)
    world.turn(0.1)
    world.carry_out(0.2)
    world.exchange(answer(), 0.2)
    world.metadata.version = 2
    assert world.sent(0.3) is None  # the same topics
    world.metadata.topics |= {"c": topic("c"), "__hidden": topic("__hidden", internal=True)}
    world.metadata.version = 3
    assert world.exchange(answer(), 0.4).subscribed_topic_names == ("a", "c")


# --- reconciliation ---------------------------------------------------------------------------------------------------------------


def test_an_assignment_is_proposed_carried_out_and_acknowledged() -> None:
    world = in_flight(S.JOINING)
    world.reply(answer({A: (0, 1)}, epoch=2), 0.0)
    assert world.member.state is ConsumerState.REBALANCING
    world.turn(0.0)
    assert world.host.assignments == [(1, OWNED)]
    assert world.turn(0.1).requests == ()
    world.carry_out(0.2)
    said = world.exchange(answer(epoch=2), 0.2)
    assert (said.member_epoch, said.topic_partitions) == (2, (TopicPartitions(topic_id=A, partitions=(0, 1)),))
    assert (world.state, world.member.state) == (S.STABLE, ConsumerState.STEADY)
    assert any(isinstance(event, Notice) and "2 partitions, 2 of them new" in event.text for event in world.events)


def test_an_empty_first_assignment_is_carried_out_if_nothing_follows_while_others_may_give_something_up() -> None:
    world = in_flight(S.JOINING)
    world.reply(answer({}), 0.0)
    world.turn(0.0)
    for now in (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0):
        assert world.host.assignments == []
        world.exchange(answer(), now)
        world.turn(now)
    assert world.host.assignments == []
    world.turn(INTERVAL + GIVING_UP)
    assert world.host.assignments == [(1, frozenset())]


def test_an_empty_first_assignment_gives_way_to_the_one_that_follows_soon() -> None:
    world = in_flight(S.JOINING)
    world.reply(answer({}), 0.0)
    world.turn(0.0)
    world.exchange(answer({A: (0, 1)}), 0.25)
    world.turn(0.25)
    assert world.host.assignments == [(1, frozenset({A0, A1}))]


def test_an_empty_first_assignment_waits_for_topics_that_may_be_in_creation_and_is_carried_out_then() -> None:
    world = in_flight(S.JOINING)
    world.metadata.topics.clear()
    world.reply(answer({}), 0.0)
    world.turn(0.0)
    for now in (0.25, 0.5, 1.0):
        assert world.host.assignments == []
        world.exchange(answer(), now)
        world.turn(now)
    world.turn(CREATION)
    assert world.host.assignments == [(1, frozenset())]


def test_an_empty_first_assignment_is_carried_out_at_once_if_no_topic_is_created() -> None:
    world = in_flight(S.JOINING, allow_auto_create_topics=False)
    world.metadata.topics.clear()
    world.reply(answer({}), 0.0)
    world.turn(0.0)
    assert world.host.assignments == [(1, frozenset())]


def test_fetching_of_revoked_partitions_stops_before_the_application_is_asked() -> None:
    world = at_rest()
    assert world.exchange(answer({A: (1,), B: (0,)}), 15.0).topic_partitions is None
    world.turn(15.0)
    assert (world.host.stopped, world.host.assignments[-1]) == ([frozenset({A0})], (2, frozenset({A1, B0})))


def test_a_new_target_waits_while_another_one_is_carried_out() -> None:
    world = in_flight(S.ASSIGNING)
    world.reply(answer({B: (0,)}, epoch=2), 5.0)
    world.turn(5.0)
    assert (world.state, len(world.host.assignments)) == (S.ASSIGNING, 1)
    world.carry_out(6.0)
    said = world.sent(6.0)
    assert said is not None
    assert said.topic_partitions == (TopicPartitions(topic_id=A, partitions=(0, 1)),)
    assert (world.state, world.host.assignments[-1]) == (S.ASSIGNING, (2, frozenset({B0})))


def test_the_same_assignment_again_after_another_one_is_acknowledged_again() -> None:
    world = in_flight(S.ASSIGNING)
    world.reply(answer({B: (0,)}, epoch=2), 5.0)
    world.exchange(answer({A: (0, 1)}, epoch=3), 10.0)
    world.carry_out(10.0)
    world.exchange(answer(epoch=3), 10.0)
    assert world.host.assignments[-1] == (2, OWNED)
    world.carry_out(11.0)
    assert (world.state, world.member.state) == (S.ACKNOWLEDGING, ConsumerState.STEADY)


def test_names_that_are_missing_are_asked_for_and_waited_for() -> None:
    world = in_flight(S.JOINING)
    world.reply(answer({A: (0,), LATE: (0,)}), 0.0)
    world.turn(0.0)
    assert (world.host.assignments, world.metadata.updates) == ([(1, frozenset({A0}))], [0.0])
    world.carry_out(0.1)
    assert world.exchange(answer(), 0.1).topic_partitions == (TopicPartitions(topic_id=A, partitions=(0,)),)
    assert (world.state, world.turn(0.2).requests) == (S.RECONCILING, ())  # a partial acknowledgment is not repeated
    world.metadata.names[LATE] = "b"
    world.turn(0.3)
    assert world.host.assignments[-1] == (2, frozenset({A0, B0}))


def test_an_acknowledgment_that_is_lost_is_repeated_with_everything() -> None:
    world = at_rest()
    world.exchange(answer({B: (0,)}), 15.0)
    world.turn(15.0)
    world.carry_out(15.0)
    world.exchange(KafkaConnectionError("cut"), 15.0)
    assert world.turn(15.0).requests == ()
    said = world.exchange(answer(), 16.0)
    assert said.topic_partitions == (TopicPartitions(topic_id=B, partitions=(0,)),)
    assert (said.subscribed_topic_names, said.rebalance_timeout_ms) == (("a", "b"), 300_000)


@pytest.mark.parametrize("state", S, ids=label)
def test_answers_to_old_numbers_count_for_nothing(state: MemberState) -> None:
    world = reach(state)
    for number in (0, 1, 99) if state is not S.ASSIGNING else (0, 99):
        world.member.assigned(number, 2000.0)
        world.member.revoked(number, 2000.0)
    assert world.state is state


# --- errors -----------------------------------------------------------------------------------------------------------------------

ANSWERED = (S.JOINING, S.RECLAIMING, S.RECONCILING, S.ASSIGNING, S.ACKNOWLEDGING, S.STABLE)
OWNS = {S.ACKNOWLEDGING: OWNED, S.STABLE: OWNED, S.ASSIGNING: OWNED}
"""What is lost; while ASSIGNING what is on its way to the application."""


def after(state: MemberState, error: KafkaError) -> MemberState:
    verdict = judge(error)
    if state is S.JOINING and isinstance(error, UnreleasedInstanceIdError):
        return S.RECLAIMING
    if state is S.JOINING and verdict is Verdict.OLD_GENERATION:
        return S.RECLAIMING
    if state is S.RECLAIMING and (verdict in OUT or verdict is Verdict.UNSUPPORTED or isinstance(error, FencedInstanceIdError)):
        return S.JOINING
    if verdict in OUT and (verdict is not Verdict.GROUP_GONE or state is not S.JOINING):
        return S.FENCED if state in OWNS else S.JOINING
    again = (Verdict.REDISCOVER, Verdict.UNREACHABLE, Verdict.RETRY, Verdict.REPORT)
    return state if verdict in again else S.FATAL


@pytest.mark.parametrize(("state", "code"), list(product(ANSWERED, sorted(BY_CODE))), ids=label)
def test_every_error_code_in_every_state(state: MemberState, code: int) -> None:
    world = in_flight(state)
    now = 2 * INTERVAL
    error = for_code(code)
    world.reply(error, now)
    expected = after(state, error)
    assert world.state is expected
    assert [partitions for _, partitions in world.host.losses] == ([OWNS[state]] if state in OWNS and expected is not state else [])
    assert world.host.stopped == [partitions for _, partitions in world.host.losses]
    assert (len(world.host.errors) == 1) is (expected is S.FATAL or judge(error) is Verdict.REPORT)
    assert (world.coordinator.losses == [(ONE.id, error)]) is isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError))
    world.turn(now)


@pytest.mark.parametrize("state", ANSWERED, ids=label)
@pytest.mark.parametrize("error", [KafkaConnectionError("cut"), KafkaTimeoutError("late")])
def test_a_coordinator_that_does_not_answer_costs_nothing_but_time(state: MemberState, error: KafkaError) -> None:
    world = in_flight(state)
    world.reply(error, 10.0)
    assert (world.state, world.coordinator.losses, world.host.losses) == (state, [(ONE.id, error)], [])
    poll = world.turn(10.0)
    assert not poll.requests
    assert world.turn(11.0).requests


def test_backoff_grows_up_to_its_limit_and_ends_with_success() -> None:
    world = World()
    world.member.subscribe(names("a"), 0.0)
    now, waits = 0.0, []
    for _ in range(6):
        world.exchange(CoordinatorLoadInProgressError(), now)
        poll = world.turn(now)
        waits.append(round(poll.wake_at - now, 3))
        now = poll.wake_at
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    world.exchange(answer({A: (0,)}), now)
    world.turn(now)
    world.carry_out(now)
    world.exchange(CoordinatorLoadInProgressError(), now)
    assert round(world.turn(now).wake_at - now, 3) == 0.1


def test_without_a_backoff_configured_nothing_spins() -> None:
    world = World(config=config(retry_backoff_ms=0, retry_backoff_max_ms=0))
    world.member.subscribe(names("a"), 0.0)
    world.exchange(CoordinatorLoadInProgressError(), 0.0)
    assert world.turn(0.0).wake_at > 0.0


def test_a_coordinator_that_moved_is_asked_without_backoff_and_gets_everything() -> None:
    world = in_flight(S.STABLE)
    world.reply(NotCoordinatorError(), 10.0)
    world.coordinator.coordinator = None
    assert not world.turn(10.0).requests
    assert world.coordinator.searches == 1
    world.coordinator.coordinator = TWO
    (request,) = world.turn(10.0).requests
    assert (request.node_id, message(request).member_epoch, message(request).subscribed_topic_names) == (TWO.id, 1, ("a", "b"))


def test_topics_that_may_not_be_seen_are_reported_and_tried_again() -> None:
    world = in_flight(S.STABLE)
    world.reply(TopicAuthorizationFailedError(), 10.0)
    assert [type(error) for error in world.host.errors] == [TopicAuthorizationFailedError]
    world.exchange(answer(), 11.0)
    assert world.state is S.STABLE


@pytest.mark.parametrize("error", [FencedMemberEpochError(), UnknownMemberIdError(), GroupIdNotFound()])
def test_a_fenced_member_gives_up_and_joins_with_its_id_and_epoch_zero(error: KafkaError) -> None:
    world = in_flight(S.STABLE)
    world.reply(error, 10.0)
    assert (world.state, world.host.losses) == (S.FENCED, [(2, OWNED)])
    assert world.turn(10.0).wake_at == inf
    assert world.member.session_deadline == inf
    world.release(11.0)
    said = world.sent(11.0)
    assert said is not None
    assert (said.member_id, said.member_epoch, said.topic_partitions, said.subscribed_topic_names) == ("m", 0, (), ("a", "b"))


def test_a_final_error_lasts_until_the_application_subscribes_anew() -> None:
    world = in_flight(S.STABLE)
    world.reply(FencedInstanceIdError(), 10.0)
    assert world.host.final is world.member.failure is world.host.errors[-1]
    world.release(11.0)
    world.member.subscribe(Subscription(topics=frozenset("a")), 12.0)
    assert world.member.failure is None
    assert world.sent(12.0) is not None


def test_a_coordinator_that_puts_out_who_has_just_come_is_asked_less_and_less() -> None:
    world = in_flight(S.JOINING)
    world.reply(UnknownMemberIdError(), 0.0)
    assert world.turn(0.0).wake_at == pytest.approx(0.1)
    world.exchange(UnknownMemberIdError(), 0.2)
    assert world.turn(0.2).wake_at == pytest.approx(0.4)


def test_a_coordinator_that_fences_who_has_just_come_is_asked_to_forget_it_less_and_less() -> None:
    world = in_flight(S.JOINING)
    world.reply(FencedMemberEpochError(), 0.0)
    now, waits = 0.0, []
    for _ in range(5):
        assert world.state is S.RECLAIMING
        wake_at = world.turn(now).wake_at
        waits.append(round(wake_at - now, 3))
        now = wake_at
        said = world.exchange(answer(epoch=-1), now)
        assert (said.member_id, said.member_epoch) == ("m", -1)
        said = world.exchange(FencedMemberEpochError(), now)
        assert (said.member_id, said.member_epoch, said.subscribed_topic_names) == ("m", 0, ("a", "b"))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert world.host.errors == []


def test_fencing_takes_back_what_is_on_its_way_to_the_application() -> None:
    world = in_flight(S.ASSIGNING)
    world.reply(UnknownMemberIdError(), 10.0)
    assert world.host.losses == [(2, OWNED)]
    world.carry_out(10.0)  # number 1 is old
    assert world.state is S.FENCED


def test_a_fatal_error_is_reported_and_ends_everything() -> None:
    world = in_flight(S.STABLE)
    world.reply(GroupMaxSizeReachedError("full"), 10.0)
    assert (world.state, world.member.state) == (S.FATAL, ConsumerState.FATAL)
    assert [str(error) for error in world.host.errors] == ["[Error 81] GroupMaxSizeReachedError: full"]
    world.release(10.0)
    world.turn(10.0)
    assert (world.turn(10.0).requests, world.turn(10.0).wake_at, world.close(10.0).requests) == ((), inf, ())


@pytest.mark.parametrize("state", [S.JOINING, S.ACKNOWLEDGING, S.STABLE], ids=label)
@pytest.mark.parametrize("stops", [False, True])
def test_a_member_that_is_refused_for_good_leaves_so_that_others_get_its_partitions_at_once(
    state: MemberState, stops: bool
) -> None:
    world = in_flight(state)
    world.reply(InvalidRegularExpressionError("["), 10.0)
    assert world.state is S.FATAL
    (request,) = world.close(10.0).requests if stops else world.turn(10.0).requests
    assert (is_leave(request), request.final) == (True, True)
    assert (world.turn(10.1).requests, world.close(10.1).requests) == ((), ())
    world.reply(answer(epoch=-1), 10.2)
    assert (world.state, len(world.host.errors)) == (S.FATAL, 1)


@pytest.mark.parametrize("error", [FencedInstanceIdError(), UnreleasedInstanceIdError(), UnsupportedVersionError()])
def test_a_member_does_not_leave_for_another_one_that_has_its_name_or_from_where_it_is_not_understood(error: KafkaError) -> None:
    world = in_flight(S.STABLE, group_instance_id="i")
    world.reply(error, 10.0)
    assert (world.state, world.turn(10.0).requests, world.close(10.0).requests) == (S.FATAL, (), ())


def test_a_member_that_was_refused_and_subscribes_again_at_once_leaves_before_it_joins() -> None:
    world = in_flight(S.STABLE)
    world.reply(InvalidRegularExpressionError("["), 10.0)
    world.member.subscribe(names("a"), 10.0)
    assert [is_leave(request) for request in world.turn(10.0).requests] == [True]
    world.reply(answer(epoch=-1), 10.1)
    said = world.sent(10.1)
    assert said is not None
    assert said.member_epoch == 0


def test_subscribing_again_after_a_fatal_error_tries_again() -> None:
    world = reach(S.FATAL)
    world.member.subscribe(names("a"), 20.0)
    world.exchange(answer({A: (0,)}), 20.0)
    assert world.state is S.RECONCILING
    world.release(21.0)  # of the old incarnation
    assert world.state is S.RECONCILING


# --- another protocol -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [UnsupportedVersionError(), GroupIdNotFound()])
def test_a_group_that_cannot_be_joined_is_left_to_who_takes_over(error: KafkaError) -> None:
    world = World(takes_over=True)
    world.member.subscribe(names("a"), 0.0)
    world.exchange(error, 0.0)
    assert (world.state, world.asked_to_fall_back, world.host.errors) == (S.UNSUBSCRIBED, [error], [])
    assert (world.turn(0.0).wake_at, world.member.wanted_topics) == (inf, frozenset())


@pytest.mark.parametrize("error", [UnsupportedVersionError(), GroupIdNotFound()])
def test_a_group_that_cannot_be_joined_is_fatal_if_nobody_takes_over(error: KafkaError) -> None:
    world = World()
    world.member.subscribe(names("a"), 0.0)
    world.exchange(error, 0.0)
    assert (world.state, world.asked_to_fall_back) == (S.FATAL, [error])
    (told,) = world.host.errors
    assert error in (told, told.__cause__)


def test_a_member_does_not_change_its_protocol() -> None:
    world = in_flight(S.STABLE)
    world.takes_over = True
    world.reply(UnsupportedVersionError(), 10.0)
    assert (world.state, world.asked_to_fall_back) == (S.FATAL, [])


# --- leaving ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_sends_the_leave_request_even_with_a_heartbeat_in_flight(instance: str | None, epoch: int) -> None:
    world = in_flight(S.STABLE, group_instance_id=instance)
    call: Call[None] = Call(deadline=inf)
    world.member.leave(call, 10.0)
    assert world.member.identity.generation == -1
    (request,) = world.turn(10.0).requests
    assert (message(request).member_epoch, message(request).instance_id, request.final) == (epoch, instance, True)
    world.reply(answer({B: (0,)}, epoch=9), 10.1)  # the heartbeat's: of an incarnation that has ended
    assert (world.state, call.done) == (S.LEAVING, False)
    world.reply(answer(epoch=epoch), 10.2)
    assert (world.state, call.done, world.host.losses) == (S.UNSUBSCRIBED, True, [])


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_any_answer_to_a_leave_request_ends_the_membership_or_has_it_repeated_in_time(code: int) -> None:
    world = in_flight(S.LEAVING)
    call: Call[None] = Call(deadline=inf)
    world.member.leave(call, 10.0)
    error = for_code(code)
    world.reply(error, 10.0)
    again = judge(error) in (Verdict.REDISCOVER, Verdict.RETRY)
    assert (world.state is S.LEAVING, call.done) == (again, not again)
    if again:
        assert not world.turn(10.0).requests
        world.exchange(error, 40.0)
    assert (world.state, call.done, world.host.errors) == (S.UNSUBSCRIBED, True, [])
    assert bool(world.faults("could not leave")) is (judge(error) not in OUT)


@pytest.mark.parametrize("state", sorted(set(S) - LEAVABLE, key=label), ids=label)
def test_who_is_no_member_leaves_at_once(state: MemberState) -> None:
    world = reach(state)
    call: Call[None] = Call(deadline=inf)
    world.member.leave(call, 2000.0)
    assert (world.state, call.done, world.turn(2000.0).requests) == (S.UNSUBSCRIBED, True, ())
    world.member.revoked(2, 2000.0)
    assert world.state is S.UNSUBSCRIBED


def test_a_member_waits_for_a_lost_coordinator_to_leave_but_not_for_ever() -> None:
    world = at_rest()
    world.coordinator.coordinator = None
    call: Call[None] = Call(deadline=inf)
    world.member.leave(call, 20.0)
    assert (world.turn(20.0).wake_at, world.coordinator.searches) == (50.0, 1)
    assert not call.done
    world.turn(50.0)
    assert (world.state, call.done) == (S.UNSUBSCRIBED, True)


def test_who_never_joined_does_not_wait_for_a_coordinator_to_leave() -> None:
    world = World()
    world.coordinator.coordinator = None
    world.member.subscribe(names("a"), 0.0)
    world.turn(0.0)
    call: Call[None] = Call(deadline=inf)
    world.member.leave(call, 1.0)
    world.turn(1.0)
    assert (world.state, call.done) == (S.UNSUBSCRIBED, True)


def test_a_forbidden_group_is_left_without_a_leave_request() -> None:
    world = at_rest()
    world.coordinator.coordinator = None
    world.coordinator.fatal = GroupAuthorizationFailedError()
    world.member.leave(None, 20.0)
    world.turn(20.0)
    assert world.state is S.UNSUBSCRIBED


def test_subscribing_while_leaving_joins_after_the_leave_request() -> None:
    world = in_flight(S.LEAVING)
    call: Call[None] = Call(deadline=inf)
    world.member.leave(call, 11.0)
    world.member.subscribe(names("b"), 11.0)
    assert call.done
    assert world.turn(11.0).requests == ()
    world.reply(answer(epoch=-1), 12.0)
    assert world.state is S.JOINING
    said = world.sent(12.0)
    assert said is not None
    assert (said.member_epoch, said.subscribed_topic_names) == (0, ("b",))


@pytest.mark.parametrize("state", S, ids=label)
def test_closing_sends_the_leave_request_once_if_the_group_may_still_count_us_in(state: MemberState) -> None:
    world = reach(state)
    before = any(is_leave(request) for request in world.flying)
    poll = world.close(2000.0)
    assert all(request.final and is_leave(request) for request in poll.requests)
    assert (len(poll.requests) == 1) is (state in LEAVABLE and not before)
    assert world.close(2000.0).requests == ()


def test_closing_uses_the_last_coordinator_that_was_known() -> None:
    world = at_rest()
    world.coordinator.coordinator = None
    world.coordinator.latest = TWO
    assert [request.node_id for request in world.close(11.0).requests] == [TWO.id]
    nowhere = at_rest()
    nowhere.coordinator.coordinator = nowhere.coordinator.latest = None
    assert nowhere.close(11.0).requests == ()


# --- the coordinator is away ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(SPEAKING - {S.LEAVING}, key=label), ids=label)
def test_without_a_coordinator_nothing_is_given_up_and_nothing_spins(state: MemberState) -> None:
    world = in_flight(state)
    world.reply(KafkaConnectionError("cut"), 10.0)
    world.coordinator.coordinator = None
    identity = world.member.identity
    now = 10.0
    for _ in range(50):
        poll = world.turn(now)
        assert poll.requests == ()
        now = min(poll.wake_at, now + 100.0)
    assert (world.state, world.member.identity, world.host.losses) == (state, identity, [])
    assert world.coordinator.searches == 50
    assert world.member.state is ConsumerState.COORDINATOR_LOST
    world.coordinator.coordinator = TWO
    world.exchange(answer(), now)
    assert world.member.state is not ConsumerState.COORDINATOR_LOST


def test_a_short_search_for_the_coordinator_is_no_state_to_show() -> None:
    world = at_rest()
    world.turn(10.0)
    world.coordinator.coordinator = None
    assert world.turn(11.0).wake_at == 16.0
    assert shown(world) is ConsumerState.STEADY
    world.turn(16.0)
    assert shown(world) is ConsumerState.COORDINATOR_LOST


def test_a_forbidden_group_is_reported_once_for_each_answer_that_says_so() -> None:
    world = at_rest()
    world.coordinator.coordinator = None
    first, second = GroupAuthorizationFailedError(), GroupAuthorizationFailedError()
    for error in (first, first, second):
        world.coordinator.fatal = error
        world.turn(11.0)
    assert world.host.errors == [first, second]
    assert world.state is S.STABLE


def test_the_session_is_counted_from_the_last_heartbeat_that_was_answered() -> None:
    world = in_flight(S.JOINING)
    assert world.member.session_deadline == inf
    world.reply(answer({}), 3.0)
    assert world.member.session_deadline == SESSION_TIMEOUT  # sent at 0.0: the coordinator counts from no earlier
    world.exchange(KafkaConnectionError("cut"), 5.0)
    assert world.member.session_deadline == SESSION_TIMEOUT


# --- commits ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", CommitFailure, ids=label)
@pytest.mark.parametrize("state", S, ids=label)
def test_a_refused_commit_moves_only_the_member_that_made_it(state: MemberState, failure: CommitFailure) -> None:
    world = reach(state)
    world.member.refused(failure, Identity(member_id="m", generation=77, consumer_protocol=True), 2000.0)
    assert world.state is state
    world.member.refused(failure, world.member.identity, 2000.0)
    if state not in MEMBER or failure is CommitFailure.REBALANCING:
        assert world.state is state
    elif failure is CommitFailure.FENCED_INSTANCE:
        assert world.state is S.FATAL
        assert [type(error) for error in world.host.errors] == [FencedInstanceIdError]
    else:
        assert world.state is (S.FENCED if state in OWNS else S.JOINING)


def test_a_heartbeat_that_was_in_flight_when_a_commit_fenced_us_is_waited_for_and_ignored() -> None:
    world = in_flight(S.STABLE)
    world.member.refused(CommitFailure.UNKNOWN_MEMBER, world.member.identity, 10.0)
    world.release(10.0)
    assert world.turn(10.0).requests == ()
    world.reply(answer({B: (0,)}, epoch=5), 10.5)
    assert world.state is S.JOINING
    said = world.sent(10.5)
    assert said is not None
    assert said.member_epoch == 0


@pytest.mark.parametrize("state", S, ids=label)
def test_a_new_epoch_can_be_waited_for_while_we_are_or_become_a_member(state: MemberState) -> None:
    assert reach(state).member.awaits_epoch is (state in MEMBER or state in (S.JOINING, S.RECLAIMING))


def test_a_rebalance_cannot_be_enforced() -> None:
    world = at_rest()
    world.member.enforce_rebalance("new code", 11.0)
    assert any(isinstance(event, Notice) and "new code" in event.text for event in world.events)
    assert world.turn(11.0).requests == ()


# --- max_poll_interval_ms ---------------------------------------------------------------------------------------------------------


def silent_member(**options: object) -> World:
    """Return a member whose application last read at 10.0 and has 20 s between reads; its last heartbeat was at 10.0."""
    world = at_rest(max_poll_interval_ms=20_000, **options)
    world.host.polling = False
    world.host.polled_at = 10.0
    return world


def test_a_silent_application_is_warned_about_then_left_out() -> None:
    world = silent_member()
    world.exchange(answer(interval=100.0), 15.0)
    assert world.turn(15.0).wake_at == 26.0
    assert world.turn(26.0).wake_at == 30.0
    assert world.faults("has not called a read method for 16.0 s; will leave the group in 4.0 s")
    (request,) = world.turn(30.0).requests
    assert is_leave(request)
    assert (world.state, world.host.losses, world.host.stopped) == (S.STALE, [(2, OWNED)], [OWNED])
    assert world.faults("max_poll_interval_ms=20000")
    world.reply(answer(epoch=-1), 30.1)
    assert world.turn(30.1).wake_at == inf


def test_who_was_left_out_joins_again_when_the_application_reads() -> None:
    world = silent_member()
    world.exchange(answer(), 30.0)
    assert world.state is S.STALE
    world.release(31.0)  # by a commit, which is no read
    assert (world.state, world.turn(31.0).wake_at) == (S.AWAY, 36.0)
    world.host.polled_at = 32.0
    said = world.sent(32.0)
    assert said is not None
    assert (said.member_epoch, world.state) == (0, S.JOINING)


def test_a_read_call_that_waits_brings_back_who_was_left_out() -> None:
    world = silent_member()
    world.exchange(answer(), 30.0)
    world.host.polling = True
    world.release(31.0)
    assert world.turn(31.0).requests


def test_a_read_call_that_waits_stops_the_interval() -> None:
    world = silent_member()
    world.host.polling = True
    for now in range(15, 200, 5):
        world.exchange(answer(), float(now))
    assert (world.state, world.faults("read method")) == (S.STABLE, [])


def test_a_member_without_partitions_may_be_silent_for_ever() -> None:
    world = World(config=config(max_poll_interval_ms=1000))
    world.host.polling = False
    world.member.subscribe(names("a"), 0.0)
    world.exchange(answer({}), 0.0)
    world.turn(0.0)
    world.exchange(answer(), INTERVAL + GIVING_UP)
    world.turn(INTERVAL + GIVING_UP)
    world.carry_out(INTERVAL + GIVING_UP)
    for now in range(10, 100, 5):
        world.exchange(answer(), float(now))
    world.exchange(answer({A: (0,)}), 100.0)
    assert world.turn(100.0).wake_at == 100.8  # the interval begins with the first partition
    assert world.state is S.ASSIGNING


def test_an_application_that_never_takes_its_assignment_over_is_left_out_too() -> None:
    world = in_flight(S.ASSIGNING, max_poll_interval_ms=20_000)
    world.host.polling = False
    world.reply(answer(), 5.0)
    world.turn(5.0)
    world.turn(24.0)
    world.turn(25.0)
    assert world.state is S.STALE
    assert world.host.losses == [(2, OWNED)]


def test_the_interval_begins_anew_with_each_membership() -> None:
    world = silent_member()
    world.exchange(FencedMemberEpochError(), 25.0)
    world.release(28.0)
    world.exchange(answer({A: (0,)}), 28.0)
    assert world.turn(28.0).wake_at == 33.0
    assert (world.turn(32.9).requests, world.state) == ((), S.ASSIGNING)


def test_the_interval_strikes_when_the_coordinator_is_back_and_not_before() -> None:
    world = silent_member()
    world.coordinator.coordinator = None
    assert world.turn(500.0).requests == ()
    assert world.state is S.STABLE
    world.coordinator.coordinator = TWO
    assert is_leave(world.turn(501.0).requests[0])


# --- anything in any order --------------------------------------------------------------------------------------------------------

OUTCOMES = st.one_of(
    st.builds(answer, st.none() | st.dictionaries(st.sampled_from([A, B, LATE]), st.just((0,))), epoch=st.integers(-1, 3)),
    st.sampled_from([for_code(code) for code in (14, 16, 25, 29, 30, 69, 110, 999)]),
    st.sampled_from([KafkaConnectionError("cut"), KafkaTimeoutError("late")]),
)
STEPS = st.one_of(
    st.tuples(st.just("answer"), OUTCOMES),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 1.0, 6.0, 400.0])),
    st.tuples(st.sampled_from(["assigned", "revoked", "subscribe", "leave", "read", "lose", "find", "name", "refuse"]), st.none()),
)


def act(world: World, step: str, value: object, now: float) -> None:  # noqa: C901 - one line for each thing that can happen
    match step:
        case "answer" if world.flying:
            world.reply(value, now)
        case "assigned" if world.host.assignments:
            world.carry_out(now)
        case "revoked" if world.host.losses:
            world.release(now)
        case "subscribe":
            world.member.subscribe(names("a"), now)
        case "leave":
            world.host.taken = frozenset()
            world.member.leave(None, now)
        case "read":
            world.host.polled_at = now
        case "lose":
            world.coordinator.coordinator = None
        case "find":
            world.coordinator.coordinator = ONE
        case "name":
            world.metadata.names[LATE] = "late"
        case "refuse":
            world.member.refused(CommitFailure.UNKNOWN_MEMBER, world.member.identity, now)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=60))
def test_whatever_happens_the_table_knows_it_and_no_turn_spins(steps: list[tuple[str, object]]) -> None:
    world = World()
    world.host.polling = False
    now = 0.0
    world.member.subscribe(names("a"), now)
    for step, value in steps:
        if step == "wait" and isinstance(value, float):
            now += value
        act(world, step, value, now)
        for _ in range(3):
            if not world.turn(now).requests:
                break
        assert (world.member.session_deadline == inf) or world.state in MEMBER
    numbers = [number for number, _ in world.host.assignments + world.host.losses]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert all(event.before != event.after for event in world.events if isinstance(event, StateChanged))
