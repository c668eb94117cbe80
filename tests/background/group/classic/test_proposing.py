"""``kafka_async.background.group.classic.member``: what the application is asked for, whatever the member was doing."""

from collections.abc import Callable

import pytest

from kafka_async.background.group.classic.states import HEARTBEATING, ClassicState
from kafka_async.background.group.membership import CommitFailure
from kafka_async.background.positions.subscription import Subscription
from kafka_async.errors import FencedInstanceIdError, KafkaConnectionError
from kafka_async.model import ConsumerState
from kafka_async.wire import LeaveGroupResponse
from tests.background.group.classic.world import (
    A0,
    A1,
    GROUP,
    MAIN,
    ME,
    A,
    World,
    beaten,
    cooperative,
    identity,
    joined,
    said,
    synced,
)

S = ClassicState


def _joining(w: World) -> None:
    w.member.enforce_rebalance("", 1.0)
    w.turn(1.0)


def _leading(w: World) -> None:
    _joining(w)
    w.reply(joined(generation=2, leader=ME, members={ME: said("z")}), 1.1)
    w.turn(1.1)


def _syncing(w: World) -> None:
    _joining(w)
    w.reply(joined(generation=2), 1.1)
    w.turn(1.1)


def _assigning(w: World) -> None:
    _syncing(w)
    w.reply(synced(A0, A1), 1.2)


def _overtaken(w: World) -> None:
    _syncing(w)
    w.reply(synced(A0), 1.2)


def _losing(w: World) -> None:
    w.member.refused(CommitFailure.ILLEGAL_GENERATION, identity(), 1.0)


def _fatal(w: World) -> None:
    w.member.refused(CommitFailure.FENCED_INSTANCE, identity(), 1.0)


def _unsubscribed(w: World) -> None:
    w.member.leave(None, 1.0)
    w.turn(40.0)


def _revoking(w: World) -> None:
    w.member.subscribe(Subscription(topics=frozenset("b")), 1.0)
    w.turn(1.0)


WALKS: dict[ClassicState, Callable[[World], None]] = {
    S.UNSUBSCRIBED: _unsubscribed,
    S.REVOKING: _revoking,
    S.LOSING: _losing,
    S.JOINING: _joining,
    S.LEADING: _leading,
    S.SYNCING: _syncing,
    S.ASSIGNING: _assigning,
    S.OVERTAKEN: _overtaken,
    S.STABLE: lambda w: None,
    S.LEAVING: lambda w: w.member.leave(None, 1.0),
    S.FATAL: _fatal,
}


def reach(state: ClassicState) -> World:
    """Return a cooperative member that owned A0 and A1 in generation 1 and is in ``state`` now."""
    w = cooperative().settle(0.0, A0, A1)
    WALKS[state](w)
    assert w.moves()[-1] == state.name
    return w


every_state = pytest.mark.parametrize("state", S, ids=lambda state: state.name)


@every_state
def test_old_numbers_move_nobody(state: ClassicState) -> None:
    w = reach(state)
    w.member.revoked(0, 2.0)
    w.member.assigned(0, 2.0)
    w.member.revoked(99, 2.0)
    w.member.assigned(99, 2.0)
    assert w.moves()[-1] == state.name


@every_state
@pytest.mark.parametrize("failure", CommitFailure)
def test_a_commit_of_somebody_we_are_not_any_more_triggers_nothing(state: ClassicState, failure: CommitFailure) -> None:
    w = reach(state)
    w.member.refused(failure, identity(0), 2.0)
    assert (w.moves()[-1], w.host.errors) == (state.name, w.host.errors)


@every_state
def test_a_commit_that_finds_us_out_is_believed_if_no_other_request_can_find_out(state: ClassicState) -> None:
    for failure, member_id in ((CommitFailure.UNKNOWN_MEMBER, ""), (CommitFailure.ILLEGAL_GENERATION, ME)):
        w = reach(state)
        who = w.member.identity
        w.member.refused(failure, who, 2.0)
        if state in HEARTBEATING:
            assert w.moves()[-1] == "LOSING"
            assert (w.host.revocations[-1][1:], w.member.identity) == ((frozenset({A0, A1}), True), identity(-1, member_id))
        else:
            assert (w.moves()[-1], w.member.identity) == (state.name, who)


@every_state
def test_a_commit_that_finds_us_fenced_is_fatal_while_we_are_a_member(state: ClassicState) -> None:
    w = reach(state)
    errors = len(w.host.errors)
    w.member.refused(CommitFailure.FENCED_INSTANCE, w.member.identity, 2.0)
    assert (len(w.host.errors) > errors) is (state in HEARTBEATING)
    if state in HEARTBEATING:
        assert isinstance(w.host.errors[-1], FencedInstanceIdError)
        assert w.member.state is ConsumerState.FATAL


@every_state
def test_a_commit_that_finds_a_rebalance_starts_or_follows_one(state: ClassicState) -> None:
    w = reach(state)
    w.member.refused(CommitFailure.REBALANCING, w.member.identity, 2.0)
    expected = {S.STABLE: "JOINING", S.ASSIGNING: "OVERTAKEN"}.get(state, state.name)
    assert w.moves()[-1] == expected


@every_state
def test_leaving_works_from_everywhere_and_nothing_is_proposed_after_it(state: ClassicState) -> None:
    w = reach(state)
    proposals = len(w.host.assignments) + len(w.host.revocations)
    w.member.leave(None, 2.0)
    w.host.have = frozenset()
    w.turn(99.0)
    assert w.moves()[-1] == "UNSUBSCRIBED"
    assert len(w.host.assignments) + len(w.host.revocations) == proposals
    assert w.turn(100.0).requests == ()


@pytest.mark.parametrize("state", [S.ASSIGNING, S.OVERTAKEN], ids=lambda state: state.name)
def test_what_is_still_being_taken_over_is_lost_too(state: ClassicState) -> None:
    w = reach(state)
    w.host.have = frozenset()
    w.turn(10.0)
    w.reply(beaten(25), 10.1)
    assert w.host.revocations[-1][1] == w.host.assignments[-1][1]


@every_state
def test_the_state_that_a_person_sees(state: ClassicState) -> None:
    seen = {
        S.UNSUBSCRIBED: ConsumerState.STEADY,
        S.STABLE: ConsumerState.STEADY,
        S.LEAVING: ConsumerState.STEADY,
        S.FATAL: ConsumerState.FATAL,
    }
    assert reach(state).member.state is seen.get(state, ConsumerState.REBALANCING)


def test_who_subscribes_while_it_still_has_to_leave_is_not_steady_before_it_has_an_assignment() -> None:
    w = World().settle(0.0, A0)
    found, w.coordinator.coordinator = w.coordinator.coordinator, None
    w.host.have = frozenset()
    w.member.leave(None, 1.0)
    w.turn(1.0)
    assert w.member.state is ConsumerState.STEADY, "it wants nothing"
    w.member.subscribe(A, 1.0)
    seen = [w.member.state]
    w.turn(2.0)
    seen.append(w.member.state)
    w.coordinator.coordinator = found
    assert w.sent(3.0) == ["LeaveGroup"]
    seen.append(w.member.state)
    w.reply(LeaveGroupResponse(), 3.1)
    w.join(3.2, A0)
    assert [*seen, w.member.state] == [ConsumerState.JOINING] * 3 + [ConsumerState.REBALANCING]
    w.take_over(3.3)
    assert w.member.state is ConsumerState.STEADY


@every_state
def test_commits_take_another_connection_only_while_one_waits_for_the_other_members(state: ClassicState) -> None:
    waits = state in (S.JOINING, S.SYNCING)
    w = reach(state)
    assert w.member.channel is (MAIN if waits else GROUP)
    if waits:
        w.reply(KafkaConnectionError("cut"), 1.5)
        assert w.member.channel is GROUP


@every_state
def test_a_commit_waits_for_a_generation_only_while_one_is_on_its_way(state: ClassicState) -> None:
    assert reach(state).member.awaits_epoch is (state in (S.JOINING, S.LEADING, S.SYNCING))


@every_state
def test_nothing_is_woken_in_the_past_when_the_coordinator_is_away(state: ClassicState) -> None:
    w = reach(state)
    w.coordinator.coordinator = None
    for now in (2.0, 2.5, 60.0, 600.0):
        assert w.turn(now).requests == ()


def test_topics_are_wanted_while_subscribed() -> None:
    w = cooperative()
    assert w.member.wanted_topics == frozenset()
    w.settle(0.0, A0)
    assert w.member.wanted_topics == frozenset("a")
    w.member.leave(None, 1.0)
    assert w.member.wanted_topics == frozenset()
