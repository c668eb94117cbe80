"""Burrow's rules, each with the cases of its own tests, and the issues that changed them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.monitor.rules import CommitSeen, burrow, moving, rewound
from kafka_async.adapters.monitor.status import Status, worst


def commits(*offsets_lags: tuple[int, int | None], every: float = 10.0) -> list[CommitSeen]:
    return [CommitSeen(offset, every * place, lag) for place, (offset, lag) in enumerate(offsets_lags)]


SLOW = commits((1000, 5), (2000, 5), (3000, 5), (4000, 5))
MOVING = commits((1000, 50), (2000, 40), (3000, 50), (4000, 60))


@pytest.mark.parametrize(
    ("window", "ends", "now", "lag", "expected"),
    [
        # 1: no lag now is fine, whatever the past says
        (commits((1000, 50), (1000, 50), (1000, 50)), [1050], 10_000.0, 0, Status.OK),
        # 2: the last commit is longer ago than all of them took
        (MOVING, [9000], 61.0, 60, Status.STOP),
        (MOVING, [9000], 60.0, 60, Status.OK),
        # 2: ... even if it had caught up at some time in the window, which may be long ago
        (commits((1000, 0), (2000, 0), (3000, 50)), [9000], 100.0, 60, Status.STOP),
        # 2, pull request 338: the log ended there not long ago, so the next record has just come
        (commits((1000, 0), (2000, 0), (3000, 0)), [3000, 3001], 1000.0, 1, Status.OK),
        # 3: a commit went back
        (commits((1000, 50), (2000, 50), (1500, 50), (1600, 50)), [9000], 31.0, 60, Status.REWIND),
        # 3, pull request 716: ... and was made up for
        (commits((1000, 50), (2000, 50), (1500, 50), (2000, 60)), [9000], 31.0, 60, Status.WARN),
        # 4: it had caught up at some time
        (commits((1000, 0), (1000, 10), (1000, 20), (1000, 30)), [9000], 31.0, 40, Status.OK),
        # 5: all commits are of one offset
        (commits((1000, 50), (1000, 50), (1000, 50)), [9000], 21.0, 60, Status.STALL),
        (commits((1000, 50), (1000, 40), (1000, 30)), [9000], 21.0, 60, Status.STALL),
        # 6: the lag never got smaller
        (SLOW, [9000], 31.0, 5, Status.WARN),
        (commits((1000, 50), (2000, None), (3000, 60)), [9000], 21.0, 60, Status.WARN),
        # 7: it did
        (MOVING, [9000], 31.0, 60, Status.OK),
        # a single commit: the distance between first and last is nothing, so a second later it has stopped
        (commits((1000, 5)), [9000], 1.0, 5, Status.STOP),
    ],
)
def test_the_rules(window: Sequence[CommitSeen], ends: list[int], now: float, lag: int, expected: Status) -> None:
    assert burrow(window, ends, now, lag) is expected


def test_lag_that_is_allowed_is_none() -> None:
    """Issue 570: a program that never commits the marker after a transaction has a lag of 1 for ever."""
    stuck = commits((1000, 1), (1000, 1), (1000, 1))

    assert burrow(stuck, [1001], 21.0, 1) is Status.STALL
    assert burrow(stuck, [1001], 1000.0, 1, allowed=1) is Status.OK


def test_only_the_first_step_back_counts() -> None:
    assert not rewound(commits((10, 1), (5, 1), (10, 1), (2, 1)))
    assert rewound(commits((10, 1), (5, 1), (9, 1), (8, 1)))


windows = st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 50)), min_size=1, max_size=10)


@pytest.mark.slow
@given(windows, st.lists(st.integers(0, 100), max_size=10), st.floats(0, 1000), st.integers(0, 50))
def test_whatever_was_committed_one_of_the_rules_applies(
    window: list[tuple[int, int | None]], ends: list[int], now: float, lag: int
) -> None:
    status = burrow(commits(*window), ends, now, lag)

    assert status in (Status.OK, Status.STOP, Status.REWIND, Status.STALL, Status.WARN)
    if lag == 0:
        assert status is Status.OK


@pytest.mark.slow
@given(windows)
def test_a_group_that_had_caught_up_is_never_slow_or_stalled(window: list[tuple[int, int | None]]) -> None:
    assert moving([*commits(*window), CommitSeen(window[-1][0], 1000.0, 0)]) in (Status.OK, Status.REWIND)


def test_the_order_of_trouble_and_the_exit_codes_of_a_check() -> None:
    assert worst([]) is Status.OK
    assert worst([Status.WARN, Status.STOP, Status.UNKNOWN]) is Status.STOP
    assert sorted(Status, key=lambda status: status.severity)[:3] == [Status.OK, Status.UNKNOWN, Status.WARN]
    assert [status.exit_code for status in (Status.OK, Status.WARN, Status.UNREADABLE, Status.UNKNOWN)] == [0, 1, 2, 3]
    assert all(status.mark.isascii() for status in Status)
