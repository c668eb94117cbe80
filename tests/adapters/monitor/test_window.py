"""The status of a partition: each rule, each false alarm of other monitors as an example, and what must hold whatever happens."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.monitor.status import Status
from kafka_async.adapters.monitor.window import GAP, Judgement, Members, Rates, Seen, Window

INTERVAL = 5.0
READ = Members(state="Stable", count=2)
EMPTY = Members(state="Empty", count=0)
OLD, NEW = UUID(int=1), UUID(int=2)


def offsets(committed: int | None, end: int | None, **more: Any) -> Seen:
    return Seen(committed=committed, end=end, **more)


def shared(start: int | None, lag: int | None, end: int, **more: Any) -> Seen:
    return Seen(committed=start, end=end, reported=lag, share=True, **more)


def watch(samples: Iterable[tuple[Seen, Members]], window: Window | None = None, every: float = INTERVAL) -> list[Judgement]:
    """Return the verdict after each poll."""
    window = window or Window()
    found = []
    for place, (seen, members) in enumerate(samples):
        window.add(place * every, seen, members, every)
        found.append(window.judge(place * every, members))
    return found


def statuses(*samples: tuple[Seen, Members], every: float = INTERVAL) -> list[Status]:
    return [verdict.status for verdict in watch(samples, every=every)]


# --- offset groups -------------------------------------------------------------------------------------------------------------


def test_a_group_without_lag_is_fine_with_or_without_members() -> None:
    assert statuses((offsets(10, 10), EMPTY), (offsets(10, 10), READ)) == [Status.OK, Status.OK]


def test_records_and_no_members_is_a_stop_at_the_first_look() -> None:
    assert statuses((offsets(10, 20), EMPTY)) == [Status.STOP]


def test_a_group_that_had_members_is_stopped_at_the_second_poll_without_them() -> None:
    """So a restart is no alarm, and a member that was stopped is one within three polls."""
    restart = [(offsets(10, 11), READ), (offsets(10, 15), EMPTY), (offsets(10, 20), READ)]
    stop = [(offsets(10, 11), READ), (offsets(10, 15), EMPTY), (offsets(10, 20), EMPTY)]

    assert statuses(*restart) == [Status.OK, Status.OK, Status.OK]
    assert statuses(*stop) == [Status.OK, Status.OK, Status.STOP]


def test_a_member_that_moved_until_it_left_has_stopped_and_is_no_program_without_membership() -> None:
    moving = [(offsets(10 * place, 10 * place + 3), READ) for place in range(8)]
    last = [(offsets(80, 90), EMPTY), (offsets(80, 100), EMPTY)]  # what it committed when it left is seen afterwards

    found = watch([*moving, *last])
    assert [verdict.status for verdict in found[-2:]] == [Status.OK, Status.STOP]
    assert found[-1].note == "no members"


def test_a_group_that_is_never_more_than_a_poll_behind_keeps_up_although_its_lag_is_always_the_same() -> None:
    """Burrow takes the lag of a commit from the end that it knew before; a poller that takes the newest would warn for ever."""
    assert set(statuses(*((offsets(25 * place, 25 * place + 25), READ) for place in range(20)))) == {Status.OK}


def test_a_program_that_commits_without_being_a_member_is_not_stopped_while_it_commits() -> None:
    found = watch((offsets(10 * place, 10 * place + 5 - place % 3), EMPTY) for place in range(12))

    assert found[0].status is Status.STOP  # one look cannot tell
    assert {verdict.status for verdict in found[2:]} == {Status.OK}
    assert found[-1].note == "no members (assign?)"


def test_such_a_program_is_stopped_by_burrows_rule_once_it_no_longer_commits() -> None:
    moving = [(offsets(10 * place, 10 * place + 50 - place), EMPTY) for place in range(6)]
    still = [(offsets(50, 200 + 10 * place), EMPTY) for place in range(8)]

    assert statuses(*moving, *still)[-1] is Status.STOP


def test_members_that_commit_nothing_are_a_stall_after_half_a_minute_and_not_before() -> None:
    found = statuses(*((offsets(10, 20 + place), READ) for place in range(9)))

    assert found == [Status.OK] * 6 + [Status.STALL] * 3


def test_members_that_come_back_to_what_was_left_have_as_long_as_new_ones() -> None:
    """They were a stall at the first poll that saw them, because nobody had committed anything before they came."""
    left = [(offsets(10, 200 + place), EMPTY) for place in range(12)]
    back = [(offsets(10, 220 + place), READ) for place in range(8)]
    slow = [(offsets(10 + place, 220 + 2 * place), READ) for place in range(8)]

    assert statuses(*left, *back) == [Status.STOP] * 12 + [Status.OK] * 6 + [Status.STALL] * 2
    assert statuses(*left, *slow) == [Status.STOP] * 12 + [Status.OK] * 6 + [Status.WARN] * 2


def test_members_that_are_gone_in_every_other_poll_are_a_stall_all_the_same() -> None:
    found = statuses(*((offsets(10, 20 + place), (READ, EMPTY)[place % 2]) for place in range(20)))

    assert set(found[8::2]) == {Status.STALL}


def test_a_group_that_commits_rarely_has_three_times_as_long() -> None:
    """Burrow, issues 38 and 303: a commit every minute was an alarm every minute."""
    rare = [(offsets(100 * (place // 12), 100 * (place // 12) + 50 + place % 12), READ) for place in range(12 * 6)]
    assert Status.STALL not in statuses(*rare)[12 * 2 :]
    assert statuses(*rare, *[(offsets(500, 900 + place), READ) for place in range(40)])[-1] is Status.STALL


def test_a_group_whose_lag_never_gets_smaller_is_slow() -> None:
    slow = [(offsets(10 * place, 100 + 15 * place), READ) for place in range(10)]
    saws = [(offsets(10 * place, 10 * place + (3, 9, 6)[place % 3]), READ) for place in range(10)]

    assert statuses(*slow)[-1] is Status.WARN
    assert statuses(*saws)[-1] is Status.OK


def test_a_group_that_caught_up_lately_is_fine() -> None:
    assert statuses(*((offsets(10, 10), READ) for _ in range(7)), *((offsets(10, 20), READ) for _ in range(2)))[-1] is Status.OK


def test_an_offset_that_goes_back_is_a_rewind_until_it_is_made_up_for() -> None:
    before = [(offsets(1000 + place, 2000 + place), READ) for place in range(7)]
    back = [(offsets(place, 2010), READ) for place in range(2)]
    again = [(offsets(1500, 2010), READ)]

    found = statuses(*before, *back, *again)
    assert found[-2] is Status.REWIND
    assert found[-1] is Status.OK


def test_a_program_without_membership_that_goes_back_is_a_rewind_until_it_has_made_up_for_it() -> None:
    before = [(offsets(1000 + place, 2000 + place), EMPTY) for place in range(7)]
    back = [(offsets(place, 2010), EMPTY) for place in range(2)]
    again = [(offsets(1500, 2010), EMPTY)]

    found = statuses(*before, *back, *again)
    assert found[-2:] == [Status.REWIND, Status.OK]


def test_the_first_polls_are_no_reason_for_an_alarm_while_there_are_members() -> None:
    assert set(statuses(*((offsets(10, 10_000_000 + place), READ) for place in range(6)))) == {Status.OK}


@pytest.mark.parametrize("every", [1.0, 5.0, 30.0])
def test_whatever_the_interval_a_stall_takes_three_polls_and_half_a_minute(every: float) -> None:
    found = statuses(*((offsets(10, 20 + place), READ) for place in range(60)), every=every)
    first = found.index(Status.STALL)

    assert first >= 2
    assert first * every >= 30
    assert set(found[first:]) == {Status.STALL}


def test_a_committed_offset_after_the_end_is_unreadable_and_no_lag_of_nothing() -> None:
    """Burrow calls the lag 0, and the group fine."""
    assert statuses((offsets(100, 3), READ)) == [Status.UNREADABLE]
    # An election may show a lower end for a moment.
    assert statuses((offsets(100, 100), READ), (offsets(100, 99), READ), (offsets(100, 100), READ)) == [Status.OK] * 3
    assert statuses((offsets(100, 100), READ), (offsets(100, 3), READ), (offsets(100, 3), READ))[-1] is Status.UNREADABLE


def test_a_topic_that_was_created_again_is_unreadable_until_the_group_commits_in_it() -> None:
    found = statuses(
        (offsets(100, 120, topic_id=OLD), READ),
        (offsets(100, 500, topic_id=NEW), READ),  # it has grown past the committed offset already
        (offsets(100, 510, topic_id=NEW), READ),
        (offsets(7, 520, topic_id=NEW), READ),
    )
    assert found == [Status.OK, Status.UNREADABLE, Status.UNREADABLE, Status.OK]


def test_a_topic_that_was_created_again_is_unreadable_if_the_brokers_dropped_what_was_committed() -> None:
    """So does Kafka 4: the offset goes with the topic, and the members may begin anywhere."""
    found = watch(
        [
            (offsets(100, 120, topic_id=OLD), EMPTY),
            (offsets(None, None), EMPTY),  # it is deleted
            (offsets(None, 5, topic_id=NEW), EMPTY),
            (offsets(None, 6, topic_id=NEW), EMPTY),
            (offsets(2, 6, topic_id=NEW), READ),
        ]
    )
    assert [verdict.status for verdict in found[2:]] == [Status.UNREADABLE, Status.UNREADABLE, Status.OK]
    assert found[2].note == "the topic was created again; 100 was committed in the former one"


def test_members_that_have_begun_in_the_new_topic_when_it_is_first_seen_are_fine() -> None:
    found = statuses((offsets(100, 120, topic_id=OLD), READ), (offsets(3, 5, topic_id=NEW), READ))
    assert found == [Status.OK, Status.OK]


def test_records_that_were_deleted_before_they_were_read_are_an_error() -> None:
    verdict = watch([(offsets(100, 500, start=300), READ)])[0]
    assert verdict == Judgement(Status.ERR, "200 records were deleted unread")
    assert watch([(offsets(100, 300, start=300), EMPTY)])[0].status is Status.OK  # and nothing is left to read


def test_a_group_that_retention_catches_up_with_is_told_when() -> None:
    window = Window()
    for place in range(13):
        window.add(60.0 * place, offsets(1000 + 10 * place, 100_000, start=50 * place), READ, 60.0)
    # The start gains 40 records a minute on the group, and is 520 behind it.
    assert window.retention_in(720.0) == pytest.approx(60 * 520 / 40)
    assert Window().retention_in(0.0) is None


def test_an_open_transaction_is_named_as_what_holds_a_group_up() -> None:
    held = [(offsets(120, 500 + place, stable=120), READ) for place in range(9)]
    verdict = watch(held)[-1]

    assert verdict == Judgement(Status.STALL, "an open transaction holds what comes after 120")


def test_only_a_group_that_stands_still_is_worth_the_question_for_the_last_stable_offset() -> None:
    window = Window()
    asked = []
    for place in range(4):
        window.add(place * INTERVAL, offsets(120, 500), READ, INTERVAL)
        asked.append(window.may_wait_for_a_transaction)
    assert asked == [False, False, True, True]


def test_a_rebalance_that_does_not_end_is_an_error() -> None:
    """aiokafka, issue 1176: 84 members that rebalanced for 45 minutes, each of them healthy."""
    samples = [
        (offsets(10, 20 + place), Members(state="PreparingRebalance", count=84, rebalancing_since=0.0)) for place in range(12)
    ]
    found = watch(samples)

    assert {verdict.status for verdict in found[:9]} == {Status.OK}
    assert found[-1] == Judgement(Status.ERR, "rebalancing for 55 s")


def test_a_partition_that_no_member_has_is_a_warning_and_no_stall() -> None:
    loose = Members(state="Stable", count=2, owned=False)
    assert watch((offsets(10, 20 + place), loose) for place in range(9))[-1] == Judgement(Status.WARN, "no member has it")


def test_what_was_never_committed_is_unknown_and_not_zero() -> None:
    seen = offsets(None, 100)
    assert seen.lag is None
    assert watch([(seen, READ)]) == [Judgement(Status.OK, "no commit")]


def test_a_partition_without_a_leader_has_no_lag() -> None:
    assert offsets(5, None).lag is None
    assert statuses((offsets(5, None), READ)) == [Status.UNKNOWN]


def test_kafka_streams_whose_members_are_not_known_is_not_said_to_have_stopped() -> None:
    assert statuses((offsets(5, 10), Members(state="Stable", count=None))) == [Status.OK]


# --- share groups --------------------------------------------------------------------------------------------------------------


def test_the_lag_of_a_share_group_is_what_the_coordinator_says() -> None:
    assert shared(10, 3, 100).lag == 3
    assert shared(10, None, 100).lag is None  # and not 90, and not 0
    assert statuses((shared(None, None, 100), READ)) == [Status.UNKNOWN]
    assert statuses((shared(100, 0, 100), READ)) == [Status.OK]


def test_a_share_group_without_members_is_stopped() -> None:
    assert statuses((shared(10, 5, 15), READ), (shared(10, 5, 15), EMPTY), (shared(10, 9, 19), EMPTY))[-1] is Status.STOP


def test_acknowledgements_after_the_start_are_progress() -> None:
    """One record that takes long holds up the start, and not the group."""
    busy = [(shared(10, 50 - place, 100), READ) for place in range(12)]
    stuck = [(shared(10, 50 + place, 100 + place), READ) for place in range(12)]

    assert statuses(*busy)[-1] is Status.OK
    assert statuses(*stuck)[-1] is Status.STALL


def test_a_share_group_that_was_set_back_is_a_rewind() -> None:
    before = [(shared(1000 + place, 500, 1500 + place), READ) for place in range(7)]
    assert statuses(*before, (shared(5, 1500, 1507), READ))[-1] is Status.REWIND


def test_a_share_group_of_a_topic_that_was_created_again_is_unreadable() -> None:
    found = statuses((shared(100, 5, 105, topic_id=OLD), READ), (shared(None, None, 3, topic_id=NEW), READ))
    assert found == [Status.OK, Status.UNREADABLE]


def test_what_there_was_when_a_share_group_had_no_lag_is_done_whatever_its_start_says() -> None:
    """Brokers tell the start that they wrote down last: records of an hour ago, all of them done, would wait since then."""
    window = Window()
    window.add(0.0, shared(0, 0, 10), READ, INTERVAL)
    window.add(5.0, shared(0, 500, 510), READ, INTERVAL)
    assert window.oldest == 10
    window.add(10.0, shared(20, 490, 510), READ, INTERVAL)
    assert window.oldest == 20
    window.add(15.0, shared(5, 505, 510), READ, INTERVAL)  # it was set back
    assert window.oldest == 5


def test_the_speed_of_a_share_group_comes_from_its_lag() -> None:
    window = Window()
    window.add(0.0, shared(10, 100, 110), READ, INTERVAL)
    window.add(5.0, shared(10, 80, 160), READ, INTERVAL)
    assert window.rates() == Rates(arriving=10.0, done=14.0)


# --- numbers -------------------------------------------------------------------------------------------------------------------


def test_rates_need_two_samples_and_no_step_back() -> None:
    window = Window()
    window.add(0.0, offsets(0, 100), READ, INTERVAL)
    assert window.rates() == Rates()
    assert window.unmoved(0.0) is None
    window.add(5.0, offsets(50, 200), READ, INTERVAL)
    assert window.rates() == Rates(arriving=20.0, done=10.0)
    assert window.rates(since=1.0) == Rates()
    window.add(10.0, offsets(10, 200), READ, INTERVAL)
    assert window.rates(since=1.0) == Rates(arriving=0.0, done=None)
    assert window.unmoved(12.0) == 2.0


def test_a_gap_in_the_samples_begins_anew() -> None:
    """A laptop that was suspended: nothing was committed for an hour, and nobody looked."""
    window = Window()
    for place in range(5):
        window.add(place * INTERVAL, offsets(10, 20), READ, INTERVAL)
    window.add(3600.0, offsets(10, 5000), READ, INTERVAL)
    assert window.judge(3600.0, READ) == Judgement(Status.OK)
    assert window.rates() == Rates()
    window.add(7200.0, offsets(10, 9000), EMPTY, INTERVAL)
    assert window.judge(7200.0, EMPTY).status is Status.OK
    window.add(7205.0, offsets(10, 9000), EMPTY, INTERVAL)
    assert window.judge(7205.0, EMPTY).status is Status.STOP


# --- whatever happens ----------------------------------------------------------------------------------------------------------

number = st.none() | st.integers(0, 1000)
seen = st.builds(
    Seen,
    committed=number,
    end=number,
    start=number,
    stable=number,
    reported=number,
    share=st.booleans(),
    topic_id=st.sampled_from([None, OLD, NEW]),
)
members = st.builds(
    Members,
    state=st.sampled_from(["Stable", "Empty", "PreparingRebalance", ""]),
    count=st.none() | st.integers(0, 3),
    owned=st.booleans(),
    rebalancing_since=st.none() | st.just(0.0),
)
polls = st.lists(st.tuples(st.floats(0, 100), seen, members), min_size=1, max_size=40)


@pytest.mark.slow
@given(polls)
def test_no_number_is_negative_or_none_at_all(samples: list[tuple[float, Seen, Members]]) -> None:
    window, now = Window(), 0.0
    for step, sample, who in samples:
        now += step
        window.add(now, sample, who, INTERVAL)
        rates = window.rates()
        numbers = [sample.lag, sample.waiting, rates.arriving, rates.done, window.unmoved(now), window.retention_in(now)]
        assert all(number >= 0 for number in numbers if number is not None)  # a NaN is not
        verdict = window.judge(now, who)
        assert verdict.note or verdict.status in (Status.OK, Status.REWIND, Status.STOP, Status.UNKNOWN, Status.STALL)


FACTS = (Status.OK, Status.UNKNOWN, Status.UNREADABLE, Status.ERR)
"""What a single look can say: nothing of it is drawn from what was seen before."""


@pytest.mark.slow
@given(polls, seen, members)
def test_a_gap_is_no_alarm(samples: list[tuple[float, Seen, Members]], sample: Seen, who: Members) -> None:
    window, now = Window(), 0.0
    for step, before, other in samples:
        now += step
        window.add(now, before, other, INTERVAL)
    now += GAP * INTERVAL + 1
    window.add(now, sample, who, INTERVAL)

    assert window.judge(now, who).status in FACTS
    if window.judge(now, who).status is Status.ERR:
        assert sample.lost


@pytest.mark.slow
@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=30))
def test_a_group_that_keeps_up_is_never_an_alarm(first: int, steps: list[tuple[int, int]]) -> None:
    """At each poll it has read all that there was at the one before."""
    end, samples = first, []
    for arriving, _ in steps:
        committed, end = end, end + arriving
        samples.append((offsets(committed, end), READ))
    assert set(statuses(*samples)) == {Status.OK}
