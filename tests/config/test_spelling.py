"""Mistyped names."""

import pytest

from kafka_async.config.spelling import did_you_mean, did_you_mean_one, nearest


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


def test_of_many_names_those_of_another_length_are_not_compared_and_none_if_too_many_are_left() -> None:
    longer, alike = [f"orders_by_region_{number}" for number in range(2000)], [f"{number:06}" for number in range(2000)]
    assert nearest("ordres", ["orders", *longer]) == "orders"
    assert nearest("ordres_by_region_7", ["orders", *longer]) is None
    assert nearest("ordres", ["orders", *longer, *alike]) is None
    assert nearest("orders", ["orders_2024", *alike[:500]], 0.7) == "orders_2024", "among a few, any length is compared"
    assert nearest("orders", ["orders_2024", *longer], 0.7) is None


def test_of_several_missing_names_none_is_what_was_meant() -> None:
    assert did_you_mean_one(["nope", "ordres"], ["orders", "ordres", "payments"]) == "; did you mean 'orders'?"
    assert did_you_mean_one(["ordres", "orders"], ["ordres", "orders"]) == ""
