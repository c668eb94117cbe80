"""``kafka_async.background.group.classic.classic_membership``: the application does not read for ``max_poll_interval_ms``."""

from math import inf

import pytest

from kafka_async.background.group.membership import PollProgress
from kafka_async.errors import NotCoordinatorError
from kafka_async.trace import Fault
from tests.background.group.classic.world import A0, MAIN, TWO, A, World, beaten, cooperative, joined, left, synced, world


def silent(w: World) -> World:
    w.host.seen = PollProgress(polled_at=0.0, polling=False)
    return w


def rebalance_until(w: World, request_that_waits: str) -> None:
    """Join again at 1.0, and send the request for whose answer the group waits."""
    w.member.enforce_rebalance("", 1.0)
    w.turn(1.0)
    if request_that_waits == "SyncGroup":
        w.reply(joined(generation=2), 2.0)
        w.turn(2.0)


def test_a_silent_application_is_warned_and_then_costs_the_member_its_place() -> None:
    w = silent(world(max_poll_interval_ms=10_000, session_timeout_ms=50_000, heartbeat_interval_ms=40_000).settle(0.0, A0))
    assert w.turn(1.0).wake_at == 8.0
    assert w.turn(8.0).wake_at == 10.0
    assert sum(isinstance(event, Fault) for event in w.events) == 1
    assert w.sent(10.0) == ["LeaveGroup"]
    assert "max_poll_interval_ms" in w.message("LeaveGroup").members[0].reason
    assert w.host.revocations == [(2, frozenset({A0}), True)]
    assert w.sent(500.0) == []
    w.give_up(500.0)
    assert w.sent(500.0) == ["JoinGroup"]


def test_a_silent_static_member_does_not_leave_but_stops() -> None:
    w = silent(
        world(group_instance_id="i", max_poll_interval_ms=10_000, session_timeout_ms=50_000, heartbeat_interval_ms=40_000).settle(
            0.0, A0
        )
    )
    assert w.sent(10.0) == []
    assert w.host.revocations[-1][2] is True


def test_a_member_without_partitions_may_be_silent() -> None:
    w = silent(world(max_poll_interval_ms=10_000).settle(0.0))
    w.turn(3.0)
    w.reply(beaten(), 3.1)
    w.turn(500.0)
    assert w.moves()[-1] == "STABLE"


def test_a_read_that_waits_may_wait_for_ever() -> None:
    w = world(max_poll_interval_ms=10_000).settle(0.0, A0)
    w.turn(500.0)
    assert w.moves()[-1] == "STABLE"


def test_an_assignment_that_nobody_takes_over_costs_the_place_too() -> None:
    w = silent(world(max_poll_interval_ms=10_000))
    w.member.subscribe(A, 100.0)
    w.join(100.0, A0)
    w.turn(100.0)
    assert "LeaveGroup" in w.sent(110.0)
    assert w.host.revocations == [(2, frozenset({A0}), True)]


def test_a_rebalance_that_goes_on_without_the_application_gives_it_no_more_time() -> None:
    w = silent(cooperative(max_poll_interval_ms=10_000).settle(0.0, A0))
    w.member.enforce_rebalance("", 9.0)
    w.join(9.0, A0, generation=2)
    assert w.moves()[-1] == "ASSIGNING"
    assert "LeaveGroup" in w.sent(10.0)
    assert w.host.revocations == [(3, frozenset({A0}), True)]
    assert sum(isinstance(event, Fault) and "will leave" in event.text for event in w.events) == 1


@pytest.mark.parametrize("request_that_waits", ["JoinGroup", "SyncGroup"])
def test_a_silent_application_costs_the_place_while_the_group_waits_for_others(request_that_waits: str) -> None:
    w = silent(cooperative(max_poll_interval_ms=10_000, session_timeout_ms=50_000).settle(0.0, A0))
    rebalance_until(w, request_that_waits)
    w.turn(8.0)
    assert "LeaveGroup" in w.sent(10.0)
    assert next(request.channel for request in w.flying if request.name == "LeaveGroup") is MAIN
    assert w.host.revocations == [(2, frozenset({A0}), True)]
    assert w.member.identity.generation == -1
    w.give_up(20.0)
    assert w.sent(20.0) == ["JoinGroup"]


@pytest.mark.parametrize("request_that_waits", ["JoinGroup", "SyncGroup"])
def test_a_silent_static_member_keeps_its_place_until_the_group_has_what_it_waits_for(request_that_waits: str) -> None:
    """It does not tell the group that it stops, so nobody would get an assignment before its session is over."""
    w = silent(cooperative(group_instance_id="i", max_poll_interval_ms=10_000, session_timeout_ms=50_000).settle(0.0, A0))
    rebalance_until(w, request_that_waits)
    w.turn(10.0)
    assert not w.host.revocations
    if request_that_waits == "JoinGroup":
        w.reply(joined(generation=2), 11.0)
        assert w.sent(11.0) == ["SyncGroup"]
    assert not w.host.revocations
    w.reply(synced(A0), 12.0)
    w.turn(12.0)
    assert [lost for _, _, lost in w.host.revocations] == [True]


def test_what_is_assigned_by_hand_after_leaving_is_not_watched() -> None:
    w = silent(world(max_poll_interval_ms=10_000).settle(0.0, A0))
    w.member.leave(None, 1.0)
    w.turn(1.0)
    w.reply(left(), 1.1)
    assert w.turn(500.0).wake_at == inf
    assert not w.host.revocations


def test_a_member_that_joins_keeps_its_place_while_there_is_no_coordinator_to_be_told() -> None:
    w = silent(cooperative(max_poll_interval_ms=10_000, session_timeout_ms=50_000).settle(0.0, A0))
    w.member.enforce_rebalance("", 1.0)
    w.turn(1.0)
    w.reply(NotCoordinatorError(), 2.0)
    w.turn(10.0)
    assert not w.host.revocations
    w.coordinator.found(TWO)
    assert "LeaveGroup" in w.sent(11.0)
    assert [lost for _, _, lost in w.host.revocations] == [True]
