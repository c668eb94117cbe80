"""``kafka_async.background.heartbeat``: what is said, what errors mean, the application's silence."""

import pytest
from attrs import evolve

from kafka_async.background.heartbeat import (
    HeartbeatFields,
    Interest,
    PollInterval,
    Verdict,
    assigned_partitions,
    error_of,
    farewell,
    heartbeat,
    judge,
    next_heartbeat,
)
from kafka_async.background.membership import Identity, Progress, Subscription
from kafka_async.background.request_manager import NEVER
from kafka_async.errors import (
    BY_CODE,
    AuthenticationFailedError,
    BrokerResponseError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    NodeNotReadyError,
    StaleMemberEpochError,
    for_code,
)
from kafka_async.wire.messages import HeartbeatResponse, TopicPartitions
from tests.background.member_world import A, B, answer, refusal, topic

FIELDS = HeartbeatFields(
    rack_id="r",
    rebalance_timeout_ms=300_000,
    assignor="uniform",
    topics=("a", "b"),
    regex="",
    owned=frozenset({(B, 1), (A, 2), (A, 0)}),
)
MEMBER = Identity(member_id="m", generation=3, consumer_protocol=True)


# --- what is said -----------------------------------------------------------------------------------------------------------------


def test_the_first_heartbeat_says_everything() -> None:
    request = heartbeat("g", MEMBER, FIELDS, None)
    assert (request.group_id, request.member_id, request.member_epoch, request.instance_id) == ("g", "m", 3, None)
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == ("r", 300_000, "uniform")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (("a", "b"), "")
    assert request.topic_partitions == (
        TopicPartitions(topic_id=A, partitions=(0, 2)),
        TopicPartitions(topic_id=B, partitions=(1,)),
    )


def test_a_heartbeat_without_news_says_only_who_speaks() -> None:
    request = heartbeat("g", evolve(MEMBER, instance_id="i"), FIELDS, FIELDS)
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m", 3, "i")
    assert (request.rack_id, request.rebalance_timeout_ms, request.server_assignor) == (None, -1, None)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions) == (None, None, None)


def test_a_heartbeat_says_what_changed() -> None:
    request = heartbeat("g", MEMBER, evolve(FIELDS, topics=(), regex="x.*"), FIELDS)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions) == ((), "x.*", None)
    request = heartbeat("g", MEMBER, evolve(FIELDS, owned=frozenset()), FIELDS)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions) == (None, None, ())


def test_a_static_member_leaves_to_come_back() -> None:
    assert farewell("g", "m", None).member_epoch == -1
    assert (farewell("g", "m", "i").member_epoch, farewell("g", "m", "i").instance_id) == (-2, "i")


def test_a_pattern_is_evaluated_when_the_picture_changes_and_leaves_internal_topics_out() -> None:
    asked: list[str] = []

    def matches(name: str) -> bool:
        asked.append(name)
        return name != "b"

    interest = Interest(exclude_internal=True)
    interest.subscribe(Subscription(matches=matches))
    topics = {"a": topic("a"), "b": topic("b"), "__c": topic("__c", internal=True)}
    interest.follow(0, {})
    assert (interest.known, interest.wanted_topics) == (False, None)
    interest.follow(1, topics)
    interest.follow(1, topics)
    assert (interest.known, interest.topics, asked) == (True, ("a",), ["a", "b"])
    interest.follow(2, {**topics, "d": topic("d")})
    assert interest.topics == ("a", "d")


def test_internal_topics_can_be_let_in() -> None:
    interest = Interest(exclude_internal=False)
    interest.subscribe(Subscription(matches=lambda name: True))
    interest.follow(1, {"__c": topic("__c", internal=True)})
    assert interest.topics == ("__c",)


def test_an_expression_of_the_coordinators_needs_the_names_of_all_topics() -> None:
    interest = Interest(exclude_internal=True)
    interest.subscribe(Subscription(regex="x.*"))
    assert (interest.topics, interest.regex, interest.wanted_topics, interest.known) == ((), "x.*", None, True)
    interest.subscribe(None)
    assert (interest.topics, interest.regex, interest.wanted_topics) == ((), "", frozenset())


# --- what errors mean -------------------------------------------------------------------------------------------------------------

EXPECTED = {15: Verdict.REDISCOVER, 16: Verdict.REDISCOVER, 14: Verdict.RETRY, 110: Verdict.FENCED, 25: Verdict.FENCED}
EXPECTED |= {29: Verdict.REPORT, 30: Verdict.REPORT, 69: Verdict.GROUP_GONE, 35: Verdict.UNSUPPORTED}
EXPECTED |= dict.fromkeys((42, 81, 112, 128, 111, 82, 24, 113, -1), Verdict.FATAL)


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_code_has_a_verdict(code: int) -> None:
    error = for_code(code)
    assert judge(error) is EXPECTED.get(code, Verdict.RETRY if error.retriable else Verdict.FATAL)


def test_a_code_that_nobody_knows_is_fatal() -> None:
    assert judge(for_code(9999)) is Verdict.FATAL


@pytest.mark.parametrize(
    "error", [KafkaConnectionError("x"), NodeNotReadyError("x"), KafkaTimeoutError("x"), MalformedResponseError("x")]
)
def test_a_coordinator_that_does_not_answer_is_looked_for_again(error: KafkaError) -> None:
    assert judge(error) is Verdict.UNREACHABLE


def test_refused_credentials_are_reported_since_they_can_be_set_right() -> None:
    assert judge(AuthenticationFailedError("x")) is Verdict.REPORT


def test_a_denied_group_is_named() -> None:
    assert "group 'billing'" in str(error_of(refusal(30, None), "billing"))


def test_the_error_of_an_outcome_carries_the_brokers_words() -> None:
    error = error_of(refusal(113, "epoch 3 is not 4"))
    assert isinstance(error, StaleMemberEpochError)
    assert "epoch 3 is not 4" in str(error)
    assert error_of(answer()) is None
    assert error_of(error) is error
    assert isinstance(error_of(HeartbeatResponse()), MalformedResponseError)
    assert isinstance(error_of(refusal(113)), BrokerResponseError)


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_an_epoch_that_no_member_has_is_malformed(epoch: int) -> None:
    with pytest.raises(MalformedResponseError, match=f"epoch {epoch}"):
        assigned_partitions(answer(epoch=epoch))


def test_partitions_that_cannot_be_are_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="-1"):
        assigned_partitions(answer({A: (0, -1)}))


def test_an_assignment_may_name_a_partition_twice() -> None:
    assert assigned_partitions(answer({A: (0, 0)})) == frozenset({(A, 0)})
    assert assigned_partitions(answer()) is None
    assert assigned_partitions(answer({})) == frozenset()


# --- silence ----------------------------------------------------------------------------------------------------------------------


def silent(since: float) -> Progress:
    return Progress(polled_at=since, polling=False)


def test_the_interval_runs_from_the_last_read_or_the_first_partition() -> None:
    interval = PollInterval(10.0)
    assert interval.ends_at(silent(0.0), 100.0) == 110.0
    assert interval.ends_at(silent(104.0), 105.0) == 114.0
    interval.stop()
    assert interval.ends_at(silent(104.0), 200.0) == 210.0


def test_the_interval_does_not_run_while_a_read_call_waits() -> None:
    interval = PollInterval(10.0)
    interval.ends_at(Progress(polled_at=0.0, polling=True), 0.0)
    assert interval.ends_at(Progress(polled_at=0.0, polling=True), 50.0) == 60.0
    assert interval.ends_at(silent(0.0), 55.0) == 60.0


def test_each_silence_is_warned_about_once_and_wakes_for_warning_and_end() -> None:
    interval = PollInterval(10.0)
    assert interval.warning(0.0) is None
    assert interval.wake_at(0.0) == NEVER
    interval.ends_at(silent(0.0), 0.0)
    assert (interval.warning(7.9), interval.wake_at(7.9)) == (None, 8.0)
    warning = interval.warning(8.0)
    assert warning == (
        "the application has not called a read method for 8.0 s; will leave the group in 2.0 s (max_poll_interval_ms)"
    )
    assert (interval.warning(9.0), interval.wake_at(9.0)) == (None, 10.0)
    assert interval.wake_at(10.0) == NEVER
    interval.ends_at(silent(9.0), 9.0)
    assert interval.warning(17.0) is not None


@pytest.mark.parametrize(("sent_at", "due_at"), [(10.0, 11.0), (14.0, 15.0), (15.0, 20.0), (99.0, 104.0)])
def test_heartbeats_come_sooner_for_one_interval_after_something_began(sent_at: float, due_at: float) -> None:
    assert next_heartbeat(sent_at, 5.0, 10.0) == due_at
    assert next_heartbeat(sent_at, 5.0, -NEVER) == sent_at + 5.0
