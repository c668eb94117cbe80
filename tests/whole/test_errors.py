"""Errors made of what a broker says, and of what a program hands over or raises."""

import pytest

from kafka_async.errors import LONGEST_TEXT, for_code, shown


@pytest.mark.parametrize("code", [24, 9999], ids=["known", "unknown"])
def test_the_words_of_a_broker_are_one_bounded_line(code: int) -> None:
    text = str(for_code(code, "no\n\x1b[31m" + "m" * 100_000))
    assert "no  [31mmmm" in text
    assert text.isprintable()
    assert len(text) < LONGEST_TEXT + 100


@pytest.mark.parametrize("said", [None, ""])
def test_a_broker_without_words_leaves_kafkas_own(said: str | None) -> None:
    assert for_code(24, said).args == for_code(24).args


class Mute(Exception):
    """Nothing can be said about it."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_what_a_program_hands_over_is_shown_with_an_end() -> None:
    assert shown(["a", 1]) == "['a', 1]"
    assert shown(ValueError("no")) == "ValueError('no')"
    assert shown(b"x" * 10_000_000) == f"b'{'x' * (LONGEST_TEXT - 2)}..."


def test_an_error_of_unicode_is_shown_with_its_reason_and_without_the_data() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        (b"x" * 1_000_000 + b"\xff").decode()
    assert shown(caught.value) == (
        "UnicodeDecodeError(\"'utf-8' codec can't decode byte 0xff in position 1000000: invalid start byte\")"
    )


def test_what_cannot_be_shown_is_named() -> None:
    assert shown(Mute()) == "<Mute, whose text raised RuntimeError>"
