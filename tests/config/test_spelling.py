"""Mistyped names."""

import pytest

from kafka_async.config.spelling import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "expected"),
    [("order", "orders"), ("ORDERS", "orders"), ("paymnets", "Payments"), ("xyz", None), ("", None)],
)
def test_the_most_similar_name_is_found_and_none_that_is_far(name: str, expected: str | None) -> None:
    assert nearest(name, ["orders", "Payments"]) == expected


def test_how_similar_it_must_be_can_be_said() -> None:
    assert nearest("orders_2", ["orders"], 0.8) == "orders"
    assert nearest("orders_2024", ["orders"], 0.8) is None


def test_an_error_ends_with_the_name_or_with_nothing() -> None:
    assert did_you_mean("order", ["orders", "payments"]) == "; did you mean 'orders'?"
    assert did_you_mean("xyz", ["orders", "payments"]) == ""
