"""``kafka_async.background.group.heartbeat``: what errors mean in both protocols, when the application is silent."""

import pytest

from kafka_async.background.group.heartbeat import PollInterval, Verdict, judge, next_heartbeat
from kafka_async.background.group.membership import PollProgress
from kafka_async.background.loop.request_manager import NEVER
from kafka_async.errors import (
    BY_CODE,
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    NodeNotReadyError,
    for_code,
)

# --- what errors mean -------------------------------------------------------------------------------------------------------------

EXPECTED = {15: Verdict.REDISCOVER, 16: Verdict.REDISCOVER, 14: Verdict.RETRY, 25: Verdict.UNKNOWN_MEMBER}
EXPECTED |= {
    22: Verdict.OLD_GENERATION,
    110: Verdict.OLD_GENERATION,
    27: Verdict.REBALANCING,
    79: Verdict.NAMED,
    -1: Verdict.REPORT,
}
EXPECTED |= {29: Verdict.REPORT, 30: Verdict.REPORT, 69: Verdict.GROUP_GONE, 35: Verdict.UNSUPPORTED}
EXPECTED |= dict.fromkeys((42, 81, 112, 128, 111, 82, 24, 113), Verdict.FATAL)


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_code_has_a_verdict(code: int) -> None:
    error = for_code(code)
    assert judge(error) is EXPECTED.get(code, Verdict.RETRY if error.retriable else Verdict.FATAL)


def test_a_code_of_a_newer_broker_is_reported_and_tried_again() -> None:
    assert judge(for_code(9999)) is Verdict.REPORT


@pytest.mark.parametrize(
    "error", [KafkaConnectionError("x"), NodeNotReadyError("x"), KafkaTimeoutError("x"), MalformedResponseError("x")]
)
def test_a_coordinator_that_does_not_answer_is_looked_for_again(error: KafkaError) -> None:
    assert judge(error) is Verdict.UNREACHABLE


def test_refused_credentials_are_reported_since_they_can_be_set_right() -> None:
    assert judge(AuthenticationFailedError("x")) is Verdict.REPORT


# --- silence ----------------------------------------------------------------------------------------------------------------------


def silent(since: float) -> PollProgress:
    return PollProgress(polled_at=since, polling=False)


def test_the_interval_runs_from_the_last_read_or_the_first_partition() -> None:
    interval = PollInterval(10.0)
    assert interval.ends_at(silent(0.0), 100.0) == 110.0
    assert interval.ends_at(silent(104.0), 105.0) == 114.0
    interval.stop()
    assert interval.ends_at(silent(104.0), 200.0) == 210.0


def test_the_interval_does_not_run_while_a_read_call_waits() -> None:
    interval = PollInterval(10.0)
    interval.ends_at(PollProgress(polled_at=0.0, polling=True), 0.0)
    assert interval.ends_at(PollProgress(polled_at=0.0, polling=True), 50.0) == 60.0
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


@pytest.mark.parametrize(
    ("sent_at", "due_at"), [(10.0, 10.25), (10.25, 10.5), (10.5, 11.0), (11.0, 12.0), (14.0, 15.0), (15.0, 20.0), (99.0, 104.0)]
)
def test_heartbeats_come_sooner_for_one_interval_after_something_began(sent_at: float, due_at: float) -> None:
    assert next_heartbeat(sent_at, 5.0, 10.0) == due_at
    assert next_heartbeat(sent_at, 5.0, -NEVER) == sent_at + 5.0


@pytest.mark.parametrize(("sent_at", "due_at"), [(14.0, 15.0), (15.0, 16.0), (17.0, 18.0), (17.5, 22.5)])
def test_heartbeats_come_sooner_for_longer_if_others_have_something_to_do_first(sent_at: float, due_at: float) -> None:
    assert next_heartbeat(sent_at, 5.0, 10.0, 2.5) == due_at


def test_the_application_reads_again_when_it_did_so_after_the_interval_was_over() -> None:
    interval = PollInterval(10.0)
    interval.ends_at(silent(0.0), 0.0)
    interval.expire(10.0)
    assert not interval.reads_again(silent(9.0))
    assert interval.reads_again(silent(11.0))
    assert interval.reads_again(PollProgress(polled_at=0.0, polling=True))
    assert interval.wake_at(10.0) == NEVER
