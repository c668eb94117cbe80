"""A member that is refused for good: it leaves, so that the others need not wait for its session to end."""

import pytest

from kafka_async.background.positions.subscription import Subscription
from kafka_async.errors import GroupAuthorizationFailedError
from kafka_async.events import Call
from kafka_async.model import ConsumerState
from tests.background.group.classic.world import A0, GROUP, ME, ONE, A, World, beaten, joined, left, synced, world

DENIED = GroupAuthorizationFailedError.errno


def denied() -> World:
    """Return a member whose heartbeat was refused because it may not use the group."""
    w = world().settle(0.0, A0)
    assert w.sent(3.0) == ["Heartbeat"]
    w.reply(beaten(DENIED), 3.0)
    assert w.member.is_denied
    return w


@pytest.mark.parametrize("stops", [False, True])
def test_a_member_that_is_refused_for_good_leaves_so_that_others_get_its_partitions_at_once(stops: bool) -> None:
    w = world().settle(0.0, A0)
    w.member.subscribe(Subscription(regex="a.*"), 1.0)
    assert w.member.state is ConsumerState.FATAL
    (request,) = w.member.poll_on_close(1.0).requests if stops else w.turn(1.0).requests
    assert (request.name, request.final, request.channel) == ("LeaveGroup", True, GROUP)
    assert (w.turn(1.1).requests, w.member.poll_on_close(1.1).requests) == ((), ())


@pytest.mark.parametrize("sent", [False, True])
def test_a_subscription_that_is_refused_while_the_member_leaves_does_not_keep_it_in_the_group(sent: bool) -> None:
    w = world().settle(0.0, A0)
    w.host.have = frozenset()
    w.member.leave(None, 1.0)
    if sent:
        assert w.sent(1.0) == ["LeaveGroup"]
    w.member.subscribe(Subscription(regex="a.*"), 1.0)
    assert (w.member.state, w.sent(1.0)) == (ConsumerState.FATAL, [] if sent else ["LeaveGroup"])
    assert [member.member_id for member in w.message("LeaveGroup").members] == [ME]


def test_who_leaves_and_may_not_look_for_the_coordinator_has_left_and_hears_nothing_of_it() -> None:
    w = world().settle(0.0, A0)
    call: Call[None] = Call(60.0)
    w.coordinator.coordinator = None
    w.member.leave(call, 1.0)
    assert (w.sent(1.0), call.done, w.coordinator.wanted) == ([], False, 1)
    w.coordinator.fatal = GroupAuthorizationFailedError()
    assert (w.sent(2.0), call.done, w.host.errors) == ([], True, [])


@pytest.mark.parametrize("trouble", ["denied", "out of reach", "both"])
def test_who_subscribes_anew_leaves_first_though_the_coordinator_may_not_be_looked_for(trouble: str) -> None:
    w = world().settle(0.0, A0)
    w.host.have = frozenset()
    error = GroupAuthorizationFailedError() if trouble != "out of reach" else None
    w.coordinator.coordinator, w.coordinator.fatal, w.coordinator.is_out_of_reach = None, error, trouble != "denied"
    w.member.leave(None, 1.0)
    w.member.subscribe(A, 1.0)
    for now in (1.0, 2.0):
        assert (w.sent(now), w.member.is_leaving) == ([], True)
    assert w.host.errors == ([error] if error is not None else [])
    w.coordinator.fatal, w.coordinator.is_out_of_reach = None, False
    w.coordinator.found(ONE)
    assert w.sent(3.0) == ["LeaveGroup"]
    assert [member.member_id for member in w.message("LeaveGroup").members] == [ME]
    w.reply(left(), 3.0)
    assert w.sent(3.0) == ["JoinGroup"]


def test_who_subscribes_anew_and_never_finds_the_coordinator_joins_when_the_time_to_leave_is_up() -> None:
    w = world(request_timeout_ms=5_000).settle(0.0, A0)
    w.host.have = frozenset()
    w.coordinator.coordinator, w.coordinator.is_out_of_reach = None, True
    w.member.leave(None, 1.0)
    w.member.subscribe(A, 1.0)
    assert (w.sent(5.9), w.member.is_leaving) == ([], True)
    assert (w.sent(6.0), w.member.is_leaving) == ([], False)
    w.coordinator.found(ONE)
    assert w.sent(7.0) == ["JoinGroup"]


def test_a_member_that_is_denied_is_so_until_a_heartbeat_is_accepted() -> None:
    w = denied()
    assert w.sent(4.0) == ["Heartbeat"]
    w.reply(beaten(), 4.0)
    assert not w.member.is_denied


def test_a_member_that_is_denied_is_so_until_it_has_joined_again() -> None:
    w = denied()
    w.member.enforce_rebalance("", 3.1)
    w.give_up(3.1)
    assert w.sent(4.0) == ["JoinGroup"]
    w.reply(joined(generation=2), 4.0)
    assert not w.member.is_denied
    assert w.sent(4.0) == ["SyncGroup"]
    w.reply(synced(A0), 4.0)
    w.take_over(4.0)
    assert not w.member.is_denied


def test_a_member_that_has_left_is_denied_nothing() -> None:
    w = denied()
    w.member.leave(None, 3.1)
    assert not w.member.is_denied
    assert w.sent(3.1) == ["LeaveGroup"]
    w.reply(left(), 3.1)
    assert not w.member.is_denied
