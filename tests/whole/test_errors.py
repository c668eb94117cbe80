"""Errors made of what a broker says."""

import pytest

from kafka_async.errors import LONGEST_TEXT, for_code


@pytest.mark.parametrize("code", [24, 9999], ids=["known", "unknown"])
def test_the_words_of_a_broker_are_one_bounded_line(code: int) -> None:
    text = str(for_code(code, "no\n\x1b[31m" + "m" * 100_000))
    assert "no  [31mmmm" in text
    assert text.isprintable()
    assert len(text) < LONGEST_TEXT + 100


@pytest.mark.parametrize("said", [None, ""])
def test_a_broker_without_words_leaves_kafkas_own(said: str | None) -> None:
    assert for_code(24, said).args == for_code(24).args
