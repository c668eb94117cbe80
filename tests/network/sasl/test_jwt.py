"""When tokens end, as they say themselves."""

import base64
import json
from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.network.sasl.jwt import expiry


def token(claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2lnbmF0dXJl"


@pytest.mark.parametrize("exp", [1, 1_900_000_000, 1_900_000_000.5])
def test_the_expiry_of_a_token_is_read(exp: float) -> None:
    assert expiry(token({"exp": exp, "sub": "x" * 3})) == exp


@pytest.mark.parametrize("exp", [None, True, "1900000000", -1, 0, float("nan"), float("inf"), 10**400, [1]])
def test_what_is_no_time_is_left_out(exp: Any) -> None:
    assert expiry(token({"exp": exp})) is None


@pytest.mark.parametrize(
    "text",
    [
        "opaque",
        "a.b",
        "a.b.c.d",
        "e30.!!!!.x",
        "e30.e30.x",
        token([1]),
        token("exp"),
        "e30." + base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".x",
        "e30." + "A" * 300_000 + ".x",
        "e30.\u00e9.x",
    ],
)
def test_what_is_no_token_of_that_kind_has_no_time(text: str) -> None:
    assert expiry(text) is None


@given(st.text(max_size=200), st.binary(max_size=200))
def test_no_text_makes_the_reading_of_an_expiry_fail(text: str, payload: bytes) -> None:
    for word in (text, f"{text}.{base64.urlsafe_b64encode(payload).decode()}.{text}"):
        time = expiry(word)
        assert time is None or isfinite(time)
