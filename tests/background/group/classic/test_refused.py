"""A member that is refused for good: it leaves, so that the others need not wait for its session to end."""

import pytest

from kafka_async.background.positions.subscription import Subscription
from kafka_async.model import ConsumerState
from tests.background.group.classic.world import A0, GROUP, ME, world


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
