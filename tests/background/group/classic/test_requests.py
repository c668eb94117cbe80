"""``kafka_async.background.group.classic.requests``: what goes out, how long it may take, where it goes."""

from typing import Any

import pytest

from kafka_async.background.group.classic.requests import heartbeat, join, leave, must_leave, sync
from kafka_async.background.group.membership import Identity
from kafka_async.network import Channel, UnsentRequest
from tests.background.group.classic.world import ME, ONE, config, identity


def nothing(outcome: object, now: float) -> None:
    """Nobody waits."""


def no() -> bool:
    return False


def every(who: Identity, **options: Any) -> list[UnsentRequest]:
    options_ = config(**options)
    return [
        join(options_, who, (), "why", ONE, 1.0, on_done=nothing, withdrawn=no),
        sync(options_, who, "range", (), ONE, 1.0, on_done=nothing, withdrawn=no),
        heartbeat(options_, who, ONE, 1.0, channel=Channel.GROUP, on_done=nothing, withdrawn=no),
        leave(options_, who, "why", ONE, 1.0, channel=Channel.GROUP, on_done=nothing),
    ]


def test_all_go_to_the_coordinator_on_the_lane_of_the_group() -> None:
    assert {(request.node_id, request.channel) for request in every(identity())} == {(1, Channel.GROUP)}


def test_a_static_member_says_its_instance_id_everywhere() -> None:
    for request in every(identity(instance_id="i")):
        message: Any = request.message
        said = message.members[0] if request.name == "LeaveGroup" else message
        assert (said.group_instance_id, said.member_id) == ("i", ME)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, (306.0, 31.0, 5.5, 31.0)), ({"max_poll_interval_ms": 1_000, "session_timeout_ms": 90_000}, (31.0, 31.0, 31.0, 31.0))],
)
def test_how_long_each_may_take(options: dict[str, int], expected: tuple[float, ...]) -> None:
    assert tuple(request.expires_at for request in every(identity(), **options)) == expected


def test_reasons_are_cut_to_what_brokers_accept() -> None:
    request = leave(config(), identity(), "x" * 1000, ONE, 0.0, channel=Channel.MAIN, on_done=nothing)
    message: Any = request.message
    assert (len(message.members[0].reason), request.channel, request.final) == (255, Channel.MAIN, True)


def test_only_a_dynamic_member_sends_a_leave_request() -> None:
    assert must_leave(identity())
    assert not must_leave(identity(instance_id="i"))
    assert not must_leave(Identity())
