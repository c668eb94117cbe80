"""Lag in time: interpolated, and never extrapolated."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.monitor.times import MOST, ROUNDS, Age, Certainty, EndTimes, Search


def table(*points: tuple[float, int]) -> EndTimes:
    found = EndTimes()
    for time, end in points:
        found.add(time, end)
    return found


def test_a_group_that_has_caught_up_is_not_behind() -> None:
    assert table((0, 100), (5, 200)).age(60, 200) == Age(0.0)


def test_between_two_samples_it_is_interpolated() -> None:
    assert table((0, 100), (10, 200)).age(10, 150) == Age(5.0)
    assert table((0, 100), (10, 200), (20, 300)).age(20, 200) == Age(10.0)


def test_what_is_older_than_the_samples_is_more_than_their_age() -> None:
    """kafka-lag-exporter, issues 175 and 496: it extrapolated to 75 hours, and to three years."""
    assert table((0, 100), (720, 200)).age(720, 3) == Age(720.0, Certainty.OVER)


def test_one_sample_says_nothing() -> None:
    """kafka-lag-exporter, issues 111, 125 and 404: not a number."""
    assert table((5, 100)).age(5, 3) is None
    assert EndTimes().age(5, 3) is None


def test_an_idle_topic_does_not_make_it_grow_beyond_the_record_that_waits() -> None:
    """kafka-lag-exporter, issues 32 and 37: the record came at 100 s, and nothing since."""
    idle = table((0, 10), (50, 10), (95, 10), (100, 11), (105, 11), (3600, 11))

    assert idle.age(3600, 10) == Age(3505.0)


def test_a_log_that_begins_anew_forgets_what_was() -> None:
    again = table((0, 100), (10, 200), (20, 5))

    assert again.age(20, 3) is None
    assert again.latest == 5


def test_many_samples_are_thinned_and_still_reach_back_to_the_first() -> None:
    many = table(*((float(number), 10 * number) for number in range(5000)))

    age = many.age(5000.0, 25_005)
    assert age is not None
    assert age.certainty is Certainty.SEEN
    assert age.seconds == pytest.approx(2500, abs=100)
    assert many.age(5000.0, -1) == Age(5000.0, Certainty.OVER)


def test_timestamps_of_records_are_anchors_before_the_samples_and_say_so() -> None:
    found = table((1000, 500), (1010, 510))
    found.anchor(400.0, 200)
    found.anchor(100.0, 50)

    assert found.age(1010, 200) == Age(610.0, Certainty.ABOUT)
    assert found.age(1010, 505) == Age(5.0)
    assert found.age(1010, 20) == Age(910.0, Certainty.OVER)


def test_between_anchors_a_record_is_as_old_as_the_one_before_it() -> None:
    """It may have come right after it, and nothing for hours then. A straight line made an alert silent."""
    found = table((10_000, 1051), (10_005, 1051))
    found.anchor(0.0, 3)

    assert found.age(10_005, 1050) == Age(10_005.0, Certainty.ABOUT)
    found.anchor(9_000.0, 1050)
    assert found.age(10_005, 1050) == Age(1005.0, Certainty.ABOUT)
    assert found.age(10_005, 1049) == Age(10_005.0, Certainty.ABOUT)


@pytest.mark.slow
def test_many_anchors_are_thinned_and_still_reach_back_to_the_first() -> None:
    found = table((100_000, 100_000), (100_010, 100_010))
    for number in range(0, 100_000, 20):
        found.anchor(float(number), number)

    for offset in range(0, 100_000, 1111):
        age = found.age(100_010, offset)
        assert age is not None
        assert age.certainty is Certainty.ABOUT
        assert 100_010 - offset <= age.seconds <= 100_010
    assert found.age(100_010, -1) == Age(100_010.0, Certainty.OVER)
    assert found.age(100_010, 100_005) == Age(5.0)


def test_samples_do_not_push_out_what_was_looked_up() -> None:
    found = table((1000, 500), (1005, 501))
    for number in range(100):
        found.anchor(float(number), number)
    for number in range(2, 1000):
        found.add(1000.0 + 5 * number, 500 + number)

    assert [found.age(6000, number) for number in range(100)] == [Age(6000.0 - number, Certainty.ABOUT) for number in range(100)]


def test_a_search_begins_with_what_is_known() -> None:
    found = table((1000, 500), (1010, 510))
    wall_ms = 5_000_000.0
    assert found.search(1010, wall_ms, 505) is None  # seen
    assert found.search(1010, wall_ms, 510) is None  # not there yet
    assert found.search(1010, wall_ms, 300) == Search(300, (4_990_000.0, 500), now=wall_ms)

    found.anchor(400.0, 200)
    assert found.search(1010, wall_ms, 200) is None  # its own timestamp
    assert found.search(1010, wall_ms, 300) == Search(300, (4_990_000.0, 500), (4_390_000.0, 200), now=wall_ms)
    found.anchor(410.0, 320)
    assert found.search(1010, wall_ms, 300) is None  # known to 10 s of ten minutes


def test_a_timestamp_that_contradicts_the_samples_is_dropped() -> None:
    found = table((1000, 500), (1010, 510))
    found.anchor(1005.0, 100)  # a producer whose clock is ahead
    found.anchor(10.0, 600)

    assert found.age(1010, 100) == Age(10.0, Certainty.OVER)


growth = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), min_size=1, max_size=300)


@pytest.mark.slow
@given(growth, st.lists(st.tuples(st.floats(-1000, 1000), st.integers(-10, 2000)), max_size=8), st.data())
def test_it_is_never_negative_never_no_number_and_never_smaller_for_an_older_record(
    steps: list[tuple[float, int]], anchors: list[tuple[float, int]], data: st.DataObject
) -> None:
    found, now, end = EndTimes(), 0.0, 0
    for seconds, records in steps:
        now, end = now + seconds, end + records
        found.add(now, end)
    for time, offset in anchors:
        found.anchor(time, offset)
    now += data.draw(st.floats(0, 1000))
    ages = [found.age(now, offset) for offset in sorted(data.draw(st.lists(st.integers(-100, end + 10), max_size=20)))]

    known = [age.seconds for age in ages if age is not None]
    assert all(age >= 0 for age in known)  # a NaN is not
    assert all(older >= younger - 1e-6 for older, younger in pairwise(known))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 50)), min_size=2, max_size=60),
    st.lists(st.integers(0, 3000), min_size=1, max_size=6),
)
def test_what_is_looked_up_is_never_less_than_the_record_s_own_timestamp_says(
    steps: list[tuple[int, int]], wanted: list[int]
) -> None:
    """Whatever pauses there were, and whichever records were looked up before."""
    wall_ms, appended = 0.0, list[float]()
    for milliseconds, records in steps:
        wall_ms += milliseconds
        appended += [wall_ms] * records
    log = [(time, offset) for offset, time in enumerate(appended)]
    wall_ms += 1000
    found = table((0.0, len(log)))
    for each in wanted:
        search = found.search(0.0, wall_ms, each % len(log))
        if search is not None:
            run(search, log)
            for time, offset in sorted(search.found, reverse=True):
                found.anchor((time - wall_ms) / 1000, offset)
    for time, offset in log:
        age = found.age(0.0, offset)
        assert age is not None
        if age.certainty is Certainty.ABOUT:
            assert age.seconds >= (wall_ms - time) / 1000 - 0.002  # timestamps are whole milliseconds


@pytest.mark.slow
@given(growth)
def test_it_is_right_to_the_distance_of_two_samples(steps: list[tuple[float, int]]) -> None:
    """Each sample's last record was appended in the interval before the sample."""
    appended: dict[int, tuple[float, float]] = {}
    found, now, end = EndTimes(), 0.0, 0
    for seconds, records in steps[: MOST - 1]:
        before, now, end = now, now + seconds, end + records
        found.add(now, end)
        if records and end > records:
            appended[end - 1] = (before, now)
    for offset, (before, after) in appended.items():
        age = found.age(now, offset)
        assert age is not None
        assert now - after - 1e-6 <= age.seconds <= now - before + 1e-6


# --- searching by timestamps ---------------------------------------------------------------------------------------------------


def run(search: Search, log: list[tuple[float, int]]) -> None:
    """Answer as a broker does: with the first record at or after the timestamp."""
    while not search.done:
        asked = search.timestamp()
        search.learn(asked, next(((time, offset) for time, offset in log if time >= asked), None))


def test_a_search_finds_the_time_of_a_record_in_a_few_rounds() -> None:
    log = [(1000.0 * offset, offset) for offset in range(10_000)]
    search = Search(4321, (10_000_000.0, 10_000))
    run(search, log)

    assert search.rounds <= ROUNDS
    found = EndTimes()
    found.add(0.0, 10_000)
    for time, offset in search.found:
        found.anchor((time - 10_000_000.0) / 1000, offset)
    age = found.age(0.0, 4321)
    assert age is not None
    assert age.certainty is Certainty.ABOUT
    assert age.seconds == pytest.approx(5679, rel=0.01)


def test_records_that_came_at_once_are_not_spread_over_the_time_since() -> None:
    log = [(1000.0, offset) for offset in range(100)]
    search = Search(50, (65_000.0, 100))
    run(search, log)

    found = EndTimes()
    found.add(0.0, 100)
    for time, offset in search.found:
        found.anchor((time - 65_000.0) / 1000, offset)
    for offset in (50, 99, 0):
        age = found.age(0.0, offset)
        assert age is not None
        assert age.seconds == pytest.approx(64, abs=2)


def test_a_search_that_finds_the_record_at_once_still_finds_out_when_the_next_ones_came() -> None:
    """Other groups may be at those: 300 records of one moment, of which one group has read none and another 30."""
    search = Search(0, (65_000.0, 300))
    run(search, [(1000.0, offset) for offset in range(300)])

    found = EndTimes()
    found.add(0.0, 300)
    for time, offset in search.found:
        found.anchor((time - 65_000.0) / 1000, offset)
    age = found.age(0.0, 30)
    assert age is not None
    assert age.seconds == pytest.approx(64, abs=2)


def test_a_search_for_a_record_that_is_gone_ends_at_once() -> None:
    search = Search(5, (100_000.0, 50))
    run(search, [(1000.0 * offset, offset) for offset in range(20, 50)])

    assert search.rounds == ROUNDS
    assert search.found == [(20_000.0, 20)]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 50)), min_size=1, max_size=60), st.data())
def test_a_search_ends_and_what_it_finds_brackets_the_record(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    time, offset, log = 0.0, 0, []
    for milliseconds, records in steps:
        time, offset = time + milliseconds, offset + records
        log.append((time, offset))
    wanted = data.draw(st.integers(log[0][1], offset))
    search = Search(wanted, (time + 1000, offset + 1))
    run(search, log)

    assert search.rounds <= ROUNDS
    assert search.oldest is not None
    assert search.oldest[1] <= wanted
    assert search.newest[1] > wanted or search.oldest[1] == wanted
