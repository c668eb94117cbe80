"""``kafka_async.network.backoff``"""

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.network.backoff import ExponentialBackoff


def test_it_doubles_up_to_the_maximum() -> None:
    backoff = ExponentialBackoff(0.05, 1.0)
    assert [round(backoff.delay(n, 0.5), 6) for n in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_is_a_fifth_to_both_sides() -> None:
    backoff = ExponentialBackoff(1.0, 100.0)
    assert backoff.delay(0, 0.0) == 0.8
    assert round(backoff.delay(0, 0.999999), 4) == 1.2


@given(st.floats(0, 60), st.floats(0, 60), st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_it_never_exceeds_the_larger_bound_and_never_overflows(
    initial: float, maximum: float, attempts: int, random: float
) -> None:
    assert 0 <= ExponentialBackoff(initial, maximum).delay(attempts, random) <= max(initial, maximum)
