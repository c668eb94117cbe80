"""``kafka_async.background.group.classic.classic_membership``: ``turn(0.0)``, an answer, ``turn(0.1)``; no event loop."""

from collections.abc import Sequence
from math import inf

import pytest

from kafka_async.background.group.classic.assignment import GroupMember, GroupTopics
from kafka_async.background.group.classic.assignors import RangeAssignor
from kafka_async.background.group.membership import Membership
from kafka_async.background.positions.subscription import Subscription
from kafka_async.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
)
from kafka_async.events import Call
from kafka_async.model import ConsumerState, TopicPartition
from kafka_async.trace import Fault, Recovered
from kafka_async.wire import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse, decode_subscription
from tests.background.group.classic.world import (
    A0,
    A1,
    A2,
    AB,
    GROUP,
    MAIN,
    ME,
    ONE,
    TWO,
    A,
    World,
    beaten,
    cooperative,
    identity,
    joined,
    left,
    said,
    synced,
    topic,
    world,
)


def test_before_it_subscribes_nothing_is_due() -> None:
    member: Membership = world().member
    assert member.poll(0.0).wake_at == inf


# --- joining --------------------------------------------------------------------------------------------------------------------


def test_the_first_join_comes_back_with_the_member_id_it_is_given() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    assert w.sent(0.0) == ["JoinGroup"]
    assert w.member.state is ConsumerState.JOINING
    w.reply(JoinGroupResponse(error_code=79, member_id=ME), 0.1)
    assert w.sent(0.1) == ["JoinGroup"]
    assert w.message("JoinGroup").member_id == ME
    assert w.message("JoinGroup").reason == f"back with the member id {ME}"


def test_one_join_group_lists_all_assignors_and_the_rebalance_timeout() -> None:
    w = world(max_poll_interval_ms=60_000, client_rack="r1")
    w.member.subscribe(AB, 0.0)
    (request,) = w.turn(0.0).requests
    message = w.message("JoinGroup")
    assert [protocol.name for protocol in message.protocols] == ["range", "cooperative-sticky", "roundrobin"]
    assert (message.session_timeout_ms, message.rebalance_timeout_ms) == (9_000, 60_000)
    assert (request.channel, request.node_id, request.expires_at) == (GROUP, 1, 65.0)
    subscription = decode_subscription(message.protocols[0].metadata)
    assert (subscription.topics, subscription.rack_id, subscription.owned_partitions) == (("a", "b"), "r1", ())


def test_a_follower_syncs_takes_over_and_is_steady() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.join(0.0, A0, A1)
    assert w.host.assignments == [(1, frozenset({A0, A1}))]
    seen = [w.member.state]
    w.take_over(0.5)
    assert [*seen, w.member.state] == [ConsumerState.REBALANCING, ConsumerState.STEADY]
    assert w.member.identity == identity(1)
    assert w.moves() == ["JOINING", "SYNCING", "ASSIGNING", "STABLE"]


def test_an_assignment_without_a_byte_is_empty() -> None:
    w = world().settle(0.0)
    assert w.host.assignments == [(1, frozenset())]


def test_an_acknowledgement_of_an_old_number_counts_for_nothing() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.join(0.0, A0)
    w.member.assigned(0, 0.1)
    w.member.revoked(1, 0.1)
    assert w.moves()[-1] == "ASSIGNING"


def test_the_leader_divides_the_partitions_for_all() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(leader=ME, members={ME: said("a"), "other": said("a")}), 0.1)
    assert w.sent(0.1) == ["SyncGroup"]
    message = w.message("SyncGroup")
    assert (message.protocol_type, message.protocol_name, message.generation_id) == ("consumer", "range", 1)
    assert [assignment.member_id for assignment in message.assignments] == [ME, "other"]


def test_the_leader_waits_for_the_metadata_of_topics_that_only_others_want() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(leader=ME, members={ME: said("a"), "other": said("az")}), 0.1)
    assert (w.member.wanted_topics, w.member.group_topics) == (frozenset("a"), frozenset("az"))
    assert w.sent(0.1) == []
    w.metadata.update(topic("z", 2))
    assert w.sent(0.2) == ["SyncGroup"]


def test_the_leader_goes_on_when_a_topic_does_not_exist_or_the_wait_is_over() -> None:
    for gone, now in ((("z",), 0.2), ((), 3.2)):
        w = world()
        w.member.subscribe(A, 0.0)
        w.turn(0.0)
        w.reply(joined(leader=ME, members={ME: said("az")}), 0.1)
        assert w.turn(0.1).wake_at == pytest.approx(3.1)
        w.metadata.update(gone=gone)
        assert w.sent(now) == ["SyncGroup"]
        assert [event.text for event in w.events if isinstance(event, Fault)] == [
            "group 'g': the leader cannot divide 'z', to which only other members subscribe"
        ]


def test_a_static_leader_that_came_back_hands_nothing_in() -> None:
    w = world(group_instance_id="i")
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(leader=ME, members={ME: said("a")}, skip_assignment=True), 0.1)
    w.turn(0.1)
    assert w.message("SyncGroup").assignments == ()
    w.reply(synced(A0), 0.2)
    w.take_over(0.3)
    assert w.sent(0.3) == ["DescribeGroups"]
    w.metadata.update(topic("a", 4))
    assert w.sent(0.4) == []  # gives up what it has first
    w.give_up(0.5)
    assert w.sent(0.5) == ["JoinGroup"]


def test_a_pattern_waits_for_metadata_that_were_asked_for_after_it() -> None:
    w = world()
    w.metadata.topics["__internal"] = topic("__internal", 1, internal=True)
    w.metadata.covers_all = True
    w.member.subscribe(Subscription(matches=lambda name: True), 0.0)
    assert w.member.wanted_topics is None
    assert w.sent(0.0) == []
    w.metadata.update()
    assert w.sent(0.1) == ["JoinGroup"]
    assert decode_subscription(w.message("JoinGroup").protocols[0].metadata).topics == ("a", "b")


def test_a_pattern_that_matches_a_new_topic_makes_the_member_join_again() -> None:
    w = cooperative()
    w.metadata.covers_all = True
    w.member.subscribe(Subscription(matches=lambda name: True), 0.0)
    w.metadata.update()
    w.join(0.0, A0)
    w.take_over(0.1)
    assert w.sent(0.1) == []
    w.metadata.update(topic("c", 1))
    assert w.sent(0.2) == ["JoinGroup"]
    assert "subscription" in w.message("JoinGroup").reason


def test_a_broker_side_pattern_is_refused() -> None:
    w = world()
    w.member.subscribe(Subscription(regex="a.*"), 0.0)
    assert isinstance(w.host.errors[0], KafkaConfigurationError)
    assert w.member.state is ConsumerState.FATAL


def test_a_protocol_that_was_not_offered_is_fatal() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(protocol="connect"), 0.1)
    assert isinstance(w.host.errors[0], InconsistentGroupProtocolError)
    assert (w.member.state, w.sent(0.2)) == (ConsumerState.FATAL, ["LeaveGroup"]), "the group waits for its SyncGroup"
    assert [member.member_id for member in w.message("LeaveGroup").members] == [ME]
    assert w.sent(0.3) == []


def test_no_coordinator_no_request_and_no_spin() -> None:
    w = world()
    w.coordinator.coordinator = None
    w.member.subscribe(A, 0.0)
    assert w.turn(0.0) == w.turn(1.0)
    assert (w.turn(2.0).wake_at, w.coordinator.wanted) == (inf, 3)


def test_why_there_is_no_coordinator_is_reported_once() -> None:
    w = world()
    w.coordinator.coordinator = None
    w.coordinator.fatal = GroupAuthorizationFailedError()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.turn(0.1)
    assert w.host.errors == [w.coordinator.fatal]


# --- errors of JoinGroup and SyncGroup ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [14, 27, 7])
def test_a_join_that_can_be_repeated_is_after_a_backoff(code: int) -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=code), 0.1)
    poll = w.turn(0.1)
    assert poll.requests == ()
    assert poll.wake_at == pytest.approx(0.2)
    assert w.sent(0.2) == ["JoinGroup"]


@pytest.mark.parametrize("error", [NotCoordinatorError(), KafkaConnectionError("broken")])
def test_a_lost_coordinator_is_reported_by_id_and_the_member_id_kept(error: KafkaError) -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=79, member_id=ME), 0.0)
    w.turn(0.0)
    w.reply(error, 0.1)
    assert w.coordinator.reports == [(1, error)]
    assert w.sent(1.0) == []
    w.coordinator.found(TWO)
    assert w.turn(1.1).requests[0].node_id == 2
    assert w.message("JoinGroup").member_id == ME


def test_a_report_names_the_broker_that_was_asked_not_the_one_that_is_known_now() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.coordinator.found(TWO)
    w.reply(NotCoordinatorError(), 0.1)
    assert (w.coordinator.reports[0][0], w.coordinator.coordinator) == (1, TWO)


@pytest.mark.parametrize("code", [23, 24, 26, 35, 81, 82])
def test_a_join_that_is_refused_for_good_is_fatal_until_the_next_subscribe(code: int) -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=code), 0.1)
    assert getattr(w.host.errors[0], "errno", None) == code
    assert (w.turn(99.0).requests, w.turn(99.0).wake_at) == ((), inf)
    w.member.subscribe(A, 100.0)
    assert w.sent(101.0) == ["JoinGroup"]


def test_access_that_is_refused_is_reported_and_asked_for_again_slowly() -> None:
    w = world(retry_backoff_max_ms=1_000)
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=30), 0.0)
    assert isinstance(w.host.errors[0], GroupAuthorizationFailedError)
    assert w.turn(0.5).wake_at == pytest.approx(1.0)
    assert w.sent(1.0) == ["JoinGroup"]


def test_an_outage_that_began_while_joining_ends_when_the_member_has_joined() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=14), 0.0)
    w.join(1.0, A0)
    outages = [(type(event), event.now) for event in w.events if isinstance(event, Fault | Recovered)]
    assert outages == [(Fault, 0.0), (Recovered, 1.0)]


def test_a_join_ends_the_outage_although_a_member_id_was_given_in_between() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=14), 0.0)
    w.turn(0.5)
    w.reply(JoinGroupResponse(error_code=79, member_id=ME), 0.5)
    w.join(1.0, A0)

    outages = [(type(event), event.now) for event in w.events if isinstance(event, Fault | Recovered)]
    assert outages == [(Fault, 0.0), (Recovered, 1.0)]


def test_an_unknown_member_joins_again_at_once_without_its_id() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=79, member_id=ME), 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=25), 0.1)
    assert w.sent(0.1) == ["JoinGroup"]
    assert w.message("JoinGroup").member_id == ""


def test_a_broker_that_knows_nobody_is_not_asked_in_a_loop() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(JoinGroupResponse(error_code=25), 0.1)
    assert w.turn(0.1).requests == ()


def test_a_join_answer_without_generation_or_member_is_malformed() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(generation=-1), 0.1)
    assert (w.member.identity.member_id, w.turn(0.1).requests) == ("", ())


@pytest.mark.parametrize(
    ("code", "member_id", "at_once"), [(27, ME, True), (22, ME, True), (25, "", True), (16, ME, False), (14, ME, False)]
)
def test_a_sync_that_fails_is_followed_by_a_join(code: int, member_id: str, at_once: bool) -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(), 0.1)
    w.turn(0.1)
    w.reply(SyncGroupResponse(error_code=code), 0.2)
    w.coordinator.found(ONE)
    assert bool(w.turn(0.2).requests) is at_once
    w.turn(0.4)
    assert w.message("JoinGroup").member_id == member_id


def test_a_sync_can_find_the_member_fenced() -> None:
    w = world(group_instance_id="i")
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(), 0.1)
    w.turn(0.1)
    w.reply(SyncGroupResponse(error_code=82), 0.2)
    assert (w.member.state, type(w.host.errors[0])) == (ConsumerState.FATAL, FencedInstanceIdError)


def test_an_assignment_that_cannot_be_read_is_reported_and_joined_for_again() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(), 0.1)
    w.turn(0.1)
    w.reply(SyncGroupResponse(assignment=b"\0\1\xff"), 0.2)
    assert isinstance(w.host.errors[0], IllegalStateError)
    assert w.turn(0.2).wake_at == pytest.approx(1.2)


def test_a_subscription_that_cannot_be_read_is_reported() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.reply(joined(leader=ME, members={ME: b"\0"}), 0.1)
    assert "subscription" in str(w.host.errors[0])
    assert w.turn(0.2).requests == ()


class Broken(RangeAssignor):
    name = "broken"

    def __init__(self, at: str) -> None:
        self.at = at

    def _maybe(self, what: str) -> None:
        if what == self.at:
            raise ValueError(f"no {what}")

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        self._maybe("user_data")
        return None

    def assign(self, topics: GroupTopics, members: Sequence[GroupMember]) -> dict[str, list[TopicPartition]]:
        self._maybe("assign")
        return {"stranger": []} if self.at == "answer" else {}

    def on_assignment(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._maybe("on_assignment")


@pytest.mark.parametrize("at", ["user_data", "assign", "answer", "on_assignment"])
def test_an_assignor_that_raises_reaches_the_caller_and_the_group_tries_again(at: str) -> None:
    w = World(assignors=(Broken(at),))
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    if at != "user_data":
        w.reply(joined(leader=ME, members={ME: said("a")}), 0.0)
        w.turn(0.0)
    if at == "on_assignment":
        w.reply(synced(A0), 0.0)
    (error,) = w.host.errors
    assert isinstance(error, IllegalStateError)
    assert error.__cause__ is not None
    poll = w.turn(0.1)
    assert poll.requests == ()
    assert poll.wake_at == pytest.approx(1.0)


# --- rebalances -----------------------------------------------------------------------------------------------------------------


def test_eager_gives_everything_up_before_it_joins() -> None:
    w = world().settle(0.0, A0, A1)
    w.turn(3.0)
    w.reply(beaten(27), 3.1)
    assert w.host.revocations == [(2, frozenset({A0, A1}), False)]
    assert w.host.stopped == {A0, A1}
    assert w.sent(3.2) == []
    w.give_up(3.3)
    assert w.sent(3.3) == ["JoinGroup"]
    assert w.message("JoinGroup").member_id == ME
    assert w.member.identity == identity(1)


def test_heartbeats_go_on_while_the_application_gives_up() -> None:
    w = world().settle(0.0, A0)
    w.member.enforce_rebalance("test", 1.0)
    assert w.sent(3.0) == ["Heartbeat"]
    w.reply(beaten(27), 3.1)
    assert w.moves()[-1] == "REVOKING"


def test_cooperative_keeps_what_it_has_and_says_so() -> None:
    w = cooperative().settle(0.0, A0, A1)
    w.turn(3.0)
    w.reply(beaten(27), 3.1)
    assert w.host.revocations == []
    assert w.sent(3.1) == ["JoinGroup"]
    subscription = decode_subscription(w.message("JoinGroup").protocols[0].metadata)
    assert [(t.topic, t.partitions) for t in subscription.owned_partitions] == [("a", (0, 1))]
    assert subscription.generation_id == 1


def test_cooperative_joins_again_when_an_assignment_took_something_away() -> None:
    w = cooperative().settle(0.0, A0, A1)
    w.member.enforce_rebalance("", 1.0)
    w.join(1.0, A0, generation=2)
    assert w.host.stopped == {A1}
    assert w.host.assignments[-1] == (2, frozenset({A0}))
    assert w.sent(1.2) == []
    w.take_over(2.0)
    assert w.sent(2.0) == ["JoinGroup"]
    assert "gave up" in w.message("JoinGroup").reason
    w.reply(joined(generation=3), 2.1)
    w.turn(2.1)
    w.reply(synced(A0), 2.2)
    w.take_over(2.3)
    assert w.moves()[-1] == "STABLE"
    assert w.sent(2.4) == []


def test_cooperative_gives_up_before_joining_only_topics_that_it_does_not_want_any_more() -> None:
    b0 = TopicPartition("b", 0)
    w = cooperative()
    w.member.subscribe(AB, 0.0)
    w.join(0.0, A0, b0)
    w.take_over(0.1)
    w.member.subscribe(A, 1.0)
    w.turn(1.0)
    assert w.host.revocations == [(2, frozenset({b0}), False)]
    w.give_up(1.1)
    assert w.sent(1.1) == ["JoinGroup"]


def test_a_rebalance_during_the_take_over_follows_it() -> None:
    w = cooperative()
    w.member.subscribe(A, 0.0)
    w.join(0.0, A0)
    w.turn(3.0)
    w.reply(beaten(27), 3.1)
    assert w.sent(3.2) == []
    w.take_over(3.3)
    assert w.sent(3.3) == ["JoinGroup"]


def test_a_subscription_that_changed_while_joining_is_joined_with_again_and_the_assignment_left() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.member.subscribe(AB, 0.1)
    w.reply(joined(), 0.2)
    w.turn(0.2)
    w.reply(synced(A0), 0.3)
    assert w.host.assignments == []
    assert w.sent(0.3) == ["JoinGroup"]


def test_subscribing_to_the_same_topics_changes_nothing() -> None:
    w = world().settle(0.0, A0)
    w.member.subscribe(A, 1.0)
    assert (w.sent(1.0), w.host.revocations) == ([], [])


def lead(w: World, now: float) -> World:
    w.member.subscribe(A, now)
    w.turn(now)
    w.reply(joined(leader=ME, members={ME: said("a")}), now)
    w.turn(now)
    w.reply(synced(A0, A1, A2), now)
    w.take_over(now)
    return w


def test_the_leader_rebalances_when_a_topic_grows_or_goes() -> None:
    for update in ({"a": 4}, {}):
        w = lead(cooperative(), 0.0)
        assert w.sent(0.1) == []
        w.metadata.update(*(topic(name, count) for name, count in update.items()), gone=() if update else ("a",))
        assert w.sent(0.2) == ["JoinGroup"]
        assert "partitions of a" in w.message("JoinGroup").reason


def test_racks_and_brokers_that_come_and_go_move_nobody() -> None:
    w = lead(cooperative(), 0.0)
    w.metadata.nodes = {1: ONE}
    w.metadata.update()
    assert w.sent(0.2) == []


def test_a_follower_leaves_watching_to_the_leader() -> None:
    w = cooperative().settle(0.0, A0)
    w.metadata.update(topic("a", 9))
    assert w.sent(0.2) == []


def test_enforcing_a_rebalance_while_one_is_under_way_is_nothing() -> None:
    w = world()
    w.member.enforce_rebalance("", 0.0)
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    w.member.enforce_rebalance("again", 0.1)
    assert w.moves() == ["JOINING"]


# --- heartbeats -----------------------------------------------------------------------------------------------------------------


def test_one_heartbeat_per_interval_and_one_in_flight() -> None:
    w = world().settle(0.0, A0)
    assert w.turn(0.1).wake_at == 3.0
    assert w.sent(3.0) == ["Heartbeat"]
    message = w.message("Heartbeat")
    assert (message.generation_id, message.member_id) == (1, ME)
    assert w.turn(7.0).requests == ()
    w.reply(beaten(), 7.1)
    assert w.sent(7.1) == ["Heartbeat"]


def test_a_cooperative_generation_is_asked_soon_whether_another_one_follows() -> None:
    w = cooperative().settle(0.0, A0)
    due = [w.turn(0.0).wake_at]
    while due[-1] < 5.0:
        assert w.sent(due[-1]) == ["Heartbeat"]
        w.reply(beaten(), due[-1])
        due.append(w.turn(due[-1]).wake_at)
    assert due == pytest.approx([0.25, 0.5, 1.0, 1.6, 2.2, 2.8, 3.4, 6.4])


def test_a_session_counts_from_when_the_heartbeat_was_sent_that_was_answered() -> None:
    """The process was stopped for 20 s while the answer lay in its socket: the coordinator has given our partitions away since."""
    w = world().settle(0.0, A0)
    assert w.member.session_deadline == 9.0
    w.turn(3.0)
    w.reply(beaten(), 23.0)
    assert w.member.session_deadline == 12.0


@pytest.mark.parametrize("lies", ["JoinGroup", "SyncGroup"])
def test_a_session_counts_from_when_the_request_was_sent_that_let_us_in(lies: str) -> None:
    w = cooperative().settle(0.0, A0)
    w.member.enforce_rebalance("", 1.0)
    w.turn(1.0)
    w.reply(joined(generation=2), 30.0 if lies == "JoinGroup" else 1.0)
    if lies == "SyncGroup":
        w.turn(1.0)
        w.reply(synced(A0), 30.0)
    assert w.member.session_deadline == 10.0


# --- what comes back in an eager rebalance ----------------------------------------------------------------------------------------


def test_an_eager_rebalance_says_that_what_is_given_up_may_come_back_and_that_nobody_had_it_meanwhile() -> None:
    w = world().settle(0.0, A0, A1, generation=4)
    w.member.enforce_rebalance("", 1.0)
    assert (w.host.revocations[-1], w.host.returning) == ((2, frozenset({A0, A1}), False), [True])
    w.give_up(1.1)
    w.join(1.2, A0, generation=5)
    assert w.host.successive[-1] is True


def test_a_generation_that_was_missed_may_have_given_the_partitions_to_others() -> None:
    w = world().settle(0.0, A0, generation=4)
    w.member.enforce_rebalance("", 1.0)
    w.give_up(1.1)
    w.turn(1.2)
    w.reply(joined(generation=5), 1.2)
    w.turn(1.2)
    w.reply(SyncGroupResponse(error_code=27), 1.3)
    w.join(1.4, A0, generation=6)
    assert w.host.successive[-1] is False


def test_who_was_forgotten_while_it_joined_has_nothing_to_go_on_with() -> None:
    """The group was deleted and made anew: its generations begin anew, and the number says nothing."""
    w = world().settle(0.0, A0, generation=1)
    w.member.enforce_rebalance("", 1.0)
    w.give_up(1.1)
    w.turn(1.2)
    w.reply(JoinGroupResponse(error_code=25), 1.2)
    w.join(1.4, A0, generation=2)
    assert w.host.successive[-1] is False


def test_what_is_lost_does_not_come_back() -> None:
    w = world().settle(0.0, A0, generation=1)
    w.turn(3.0)
    w.reply(beaten(25), 3.1)
    assert (w.host.revocations[-1], w.host.returning) == ((2, frozenset({A0}), True), [False])


def test_a_cooperative_member_keeps_what_it_has_so_nothing_has_to_come_back() -> None:
    w = cooperative().settle(0.0, A0, A1)
    w.member.subscribe(Subscription(topics=frozenset("b")), 1.0)
    w.metadata.update()
    w.turn(1.0)
    assert w.host.returning == [False]
    w.give_up(1.1)
    w.join(1.2, generation=2)
    assert w.host.successive == [True, True]


# --- how it ends ------------------------------------------------------------------------------------------------------------------


def test_a_final_error_lasts_until_the_application_subscribes_anew() -> None:
    w = world(group_instance_id="i").settle(0.0, A0)
    w.turn(3.0)
    w.reply(beaten(82), 3.1)
    assert w.host.final is w.member.failure is w.host.errors[0]
    w.give_up(3.2)
    w.member.subscribe(A, 4.0)
    assert w.member.failure is None
    w.join(4.0, A0, generation=7)
    w.take_over(4.1)
    assert w.member.state is ConsumerState.STEADY


def test_a_final_error_ends_with_the_subscription() -> None:
    w = world(group_instance_id="i").settle(0.0, A0)
    w.turn(3.0)
    w.reply(beaten(82), 3.1)
    w.host.have = frozenset()
    w.member.leave(None, 3.2)
    assert w.member.failure is None


def test_an_answer_to_what_was_proposed_before_unsubscribe_is_no_answer_to_what_is_proposed_after_it() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.join(0.0, A0)
    stale, _ = w.host.assignments[-1]
    w.member.leave(None, 0.1)
    w.turn(0.1)
    w.reply(left(), 0.1)
    w.member.subscribe(A, 0.2)
    w.join(0.2, A1, generation=3)
    moves = len(w.moves())
    w.member.assigned(stale, 0.3)
    assert len(w.moves()) == moves
    w.take_over(0.4)
    assert w.member.state is ConsumerState.STEADY


def test_a_member_that_keeps_partitions_goes_on_with_heartbeats_while_its_join_waits_on_another_connection() -> None:
    """Reading goes on meanwhile, for minutes if another member is slow, so whether the coordinator counts us in must be known."""
    w = cooperative(max_poll_interval_ms=60_000)
    assert w.member.session_deadline == inf
    w.settle(0.0, A0)
    w.member.enforce_rebalance("", 1.0)
    assert w.sent(1.0) == ["JoinGroup"]
    assert w.member.session_deadline == 9.0
    (beat,) = w.turn(3.0).requests
    assert (beat.name, beat.channel) == ("Heartbeat", MAIN)
    w.reply(beaten(27), 3.1)
    assert (w.member.session_deadline, w.member.state) == (12.0, ConsumerState.REBALANCING)
    w.turn(6.1)
    w.reply(beaten(25), 6.2)  # the answer of JoinGroup says the same, and moves the member
    assert (w.member.session_deadline, w.host.revocations) == (12.0, [])


def test_a_join_that_was_sent_says_nothing_about_the_session() -> None:
    """The event loop was blocked for longer than the session, and the JoinGroup is the first thing that it comes to."""
    w = cooperative().settle(0.0, A0)
    w.member.enforce_rebalance("", 50.0)
    assert w.sent(50.0) == ["JoinGroup"]
    assert w.member.session_deadline < 50.0


def test_a_heartbeat_expires_early_enough_for_another_one() -> None:
    w = world().settle(0.0, A0)
    (request,) = w.turn(3.0).requests
    assert (request.expires_at, request.channel) == (7.5, GROUP)


@pytest.mark.parametrize(("code", "member_id"), [(25, ""), (22, ME)])
def test_a_member_that_is_out_loses_its_partitions_and_joins_again(code: int, member_id: str) -> None:
    w = world().settle(0.0, A0)
    w.turn(3.0)
    w.reply(beaten(code), 3.1)
    assert w.host.revocations == [(2, frozenset({A0}), True)]
    assert w.member.identity == identity(-1, member_id)
    assert w.turn(99.0).requests == ()
    w.give_up(99.0)
    assert w.sent(99.0) == ["JoinGroup"]
    assert w.message("JoinGroup").member_id == member_id


def test_a_fenced_static_member_is_fatal_and_loses_its_partitions() -> None:
    w = world(group_instance_id="i").settle(0.0, A0)
    assert w.sent(3.0) == ["Heartbeat"]
    assert w.message("Heartbeat").group_instance_id == "i"
    w.reply(beaten(82), 3.1)
    assert w.host.revocations == [(2, frozenset({A0}), True)]
    assert isinstance(w.host.errors[0], FencedInstanceIdError)
    w.give_up(3.2)
    assert (w.member.state, w.sent(3.3), w.member.poll_on_close(3.3).requests) == (ConsumerState.FATAL, [], ())


def test_a_subscription_after_a_fatal_error_waits_for_what_was_lost() -> None:
    w = world(group_instance_id="i").settle(0.0, A0)
    w.turn(3.0)
    w.reply(beaten(82), 3.1)
    w.member.subscribe(A, 4.0)
    assert w.sent(4.0) == []
    w.give_up(4.1)
    assert w.sent(4.1) == ["JoinGroup"]


def test_a_coordinator_that_is_away_costs_neither_partitions_nor_identity() -> None:
    w = world().settle(0.0, A0)
    w.turn(3.0)
    w.reply(KafkaConnectionError("gone"), 3.1)
    for now in (4.0, 60.0, 600.0):
        assert w.turn(now).requests == ()
    assert w.member.state is ConsumerState.COORDINATOR_LOST
    assert (w.host.revocations, w.member.identity, w.member.session_deadline) == ([], identity(1), 9.0)
    w.coordinator.found(TWO)
    assert w.turn(601.0).requests[0].node_id == 2
    w.reply(beaten(), 601.1)
    assert (w.member.state, w.host.revocations) == (ConsumerState.STEADY, [])


def test_a_loading_coordinator_is_asked_again_after_a_backoff() -> None:
    w = world().settle(0.0, A0)
    w.turn(3.0)
    w.reply(beaten(14), 3.1)
    assert w.turn(3.1).wake_at == pytest.approx(3.2)
    assert w.sent(3.2) == ["Heartbeat"]


def test_an_answer_to_an_earlier_identity_is_ignored() -> None:
    w = cooperative().settle(0.0, A0)
    w.turn(3.0)
    old = w.flying[0]
    w.member.enforce_rebalance("", 3.1)
    w.join(3.1, A0, generation=2)
    w.take_over(3.2)
    old.on_done(HeartbeatResponse(error_code=25), 3.3)
    assert (w.member.identity, w.host.revocations) == (identity(2), [])


def test_an_unknown_member_in_a_heartbeat_during_a_join_is_left_to_the_join() -> None:
    w = cooperative().settle(0.0, A0)
    w.turn(3.0)
    w.member.enforce_rebalance("", 3.1)
    w.turn(3.1)
    w.reply(HeartbeatResponse(error_code=25), 3.2)
    assert w.moves()[-1] == "JOINING"
    w.reply(JoinGroupResponse(error_code=25), 3.3)
    assert w.host.revocations == [(2, frozenset({A0}), True)]
    (why,) = (event.text for event in w.events if isinstance(event, Fault))
    assert why == "group 'g': not a member any more, since the coordinator does not know our member id; joining again"


# --- leaving --------------------------------------------------------------------------------------------------------------------


def test_unsubscribing_leaves_and_answers_the_call() -> None:
    w = world().settle(0.0, A0)
    w.host.have = frozenset()
    call = Call[None](deadline=10.0)
    w.member.leave(call, 1.0)
    assert (w.sent(1.0), call.done) == (["LeaveGroup"], False)
    (member,) = w.message("LeaveGroup").members
    assert (member.member_id, member.reason) == (ME, "the consumer unsubscribed from all topics")
    w.reply(left(25), 1.1)
    assert call.done
    assert (w.member.identity, w.turn(2.0).wake_at) == (identity(-1, ""), inf)


def test_a_leave_that_was_sent_late_keeps_nobody_awake_until_it_ends() -> None:
    """The time for leaving is over, and the request, which was sent when a coordinator was found, still waits for its answer."""
    w = world(request_timeout_ms=30_000).settle(0.0, A0)
    found, w.coordinator.coordinator = w.coordinator.coordinator, None
    w.member.leave(None, 1.0)
    w.turn(1.0)
    w.coordinator.coordinator = found
    assert w.sent(20.0) == ["LeaveGroup"]
    assert w.turn(30.0).wake_at == 31.0
    assert w.turn(31.0).wake_at == inf
    w.reply(KafkaConnectionError("no answer"), 50.0)
    assert w.moves()[-1] == "UNSUBSCRIBED"


def test_leaving_without_a_coordinator_ends_with_the_call() -> None:
    w = world().settle(0.0, A0)
    w.coordinator.coordinator = None
    call = Call[None](deadline=5.0)
    w.member.leave(call, 1.0)
    assert w.turn(1.0).wake_at == 5.0
    w.turn(5.0)
    assert (call.done, w.moves()[-1]) == (True, "UNSUBSCRIBED")


def test_a_static_member_does_not_leave() -> None:
    w = world(group_instance_id="i").settle(0.0, A0)
    call = Call[None](deadline=5.0)
    w.member.leave(call, 1.0)
    assert (call.done, w.sent(1.0), w.member.poll_on_close(1.0).requests) == (True, [], ())


def test_who_is_no_member_has_left_already() -> None:
    call = Call[None](deadline=5.0)
    world().member.leave(call, 1.0)
    assert call.done


def test_who_is_named_after_it_has_unsubscribed_leaves() -> None:
    """The coordinator counts on whoever it has named (KIP-394): for a session, no rebalance would end without that member."""
    w = world()
    w.member.subscribe(A, 0.0)
    assert w.sent(0.0) == ["JoinGroup"]
    first = w.flying[-1]
    w.member.leave(None, 0.1)
    w.turn(0.1)
    first.on_done(JoinGroupResponse(error_code=79, member_id="ghost"), 0.2)
    assert w.sent(0.2) == ["LeaveGroup"]
    (member,) = w.message("LeaveGroup").members
    assert (member.member_id, w.member.identity) == ("ghost", identity(-1, ""))


def test_who_subscribes_anew_before_it_is_named_leaves_as_the_one_that_was_named() -> None:
    w = world()
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    first = w.flying[-1]
    w.member.leave(None, 0.1)
    w.member.subscribe(A, 0.1)
    assert w.sent(0.1) == ["JoinGroup"]
    first.on_done(JoinGroupResponse(error_code=79, member_id="ghost"), 0.2)
    assert w.sent(0.2) == ["LeaveGroup"]


def test_a_static_member_that_is_named_late_stays() -> None:
    w = world(group_instance_id="i")
    w.member.subscribe(A, 0.0)
    w.turn(0.0)
    first = w.flying[-1]
    w.member.leave(None, 0.1)
    w.turn(0.1)
    first.on_done(joined(generation=2), 0.2)
    assert w.sent(0.2) == []


def test_leaving_while_a_join_waits_takes_another_connection() -> None:
    w = cooperative().settle(0.0, A0)
    w.member.enforce_rebalance("", 1.0)
    w.turn(1.0)
    old = w.flying[-1]
    w.member.leave(None, 1.1)
    (request,) = w.turn(1.1).requests
    assert (request.name, request.channel) == ("LeaveGroup", MAIN)
    old.on_done(joined(generation=2), 1.2)
    assert w.moves()[-1] == "LEAVING"


def test_subscribing_while_leaving_joins_when_it_has_left() -> None:
    w = world().settle(0.0, A0)
    w.host.have = frozenset()
    w.member.leave(None, 1.0)
    w.turn(1.0)
    w.member.subscribe(A, 1.1)
    assert w.sent(1.1) == []
    w.reply(left(), 1.2)
    assert w.sent(1.2) == ["JoinGroup"]
    assert w.message("JoinGroup").member_id == ""


def test_last_words_leave_once_even_from_a_coordinator_that_is_lost() -> None:
    w = world().settle(0.0, A0)
    w.coordinator.coordinator = None
    (request,) = w.member.poll_on_close(1.0).requests
    assert (request.name, request.final, request.node_id) == ("LeaveGroup", True, 1)
    request.on_done(LeaveGroupResponse(), 1.1)
    assert w.member.poll_on_close(1.1).requests == ()


def test_last_words_repeat_a_leave_that_is_not_sent_yet_but_not_one_that_is() -> None:
    w = world().settle(0.0, A0)
    w.member.leave(None, 1.0)
    w.turn(1.0)
    assert w.member.poll_on_close(1.1).requests == ()
    w = world().settle(0.0, A0)
    w.member.leave(None, 1.0)
    assert len(w.member.poll_on_close(1.1).requests) == 1


def test_who_stops_while_it_leaves_does_not_join_with_the_subscription_that_waits_for_that() -> None:
    w = world().settle(0.0, A0)
    w.host.have = frozenset()
    w.member.leave(None, 1.0)
    assert w.sent(1.0) == ["LeaveGroup"]
    w.member.subscribe(A, 1.0)
    w.reply(left(14), 1.1)
    w.flying.extend(w.member.poll_on_close(1.1).requests)
    w.reply(left(14), 1.2)
    assert w.sent(31.0) == []


def test_an_error_that_is_final_ends_a_leave() -> None:
    w = world().settle(0.0, A0)
    call = Call[None](deadline=9.0)
    w.member.leave(call, 1.0)
    w.turn(1.0)
    w.reply(GroupMaxSizeReachedError(), 1.1)
    assert call.done
