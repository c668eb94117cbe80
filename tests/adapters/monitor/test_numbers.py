from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.monitor import Age, Certainty
from kafka_async.adapters.monitor.numbers import behind, count, duration, rate, sparkline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0 s"), (0.42, "0.4 s"), (41.3, "41 s"), (720.0, "12 min"), (3 * 3600.0, "3 h"), (4 * 86400.0, "4 d")],
)
def test_times(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_what_is_not_known_is_no_number() -> None:
    assert (count(None), count(5, complete=False), rate(None), duration(inf)) == ("?", ">=5", "-", "never")
    assert behind(None, 5) == behind(None, None) == behind(Age(3.0), None) == "?"
    assert behind(None, 0) == "0 s"


def test_how_a_time_is_known_is_told() -> None:
    assert behind(Age(720.0, Certainty.OVER), 5) == "> 12 min"
    assert behind(Age(720.0, Certainty.ABOUT), 5) == "~ 12 min"


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**9), max_size=100), st.integers(0, 80), st.booleans())
def test_a_sparkline_fits(numbers: list[int], width: int, plain: bool) -> None:
    line = sparkline(numbers, width, plain=plain)
    assert len(line) == min(len(numbers), width)
    assert not plain or line.isascii()
