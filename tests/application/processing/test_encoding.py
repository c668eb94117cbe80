"""What is done beyond the committed offset, as text and back."""

from base64 import urlsafe_b64encode
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.application.processing.encoding import LONGEST, DoneMap, decode, encode, is_ours

from .support import TOPIC_ID

runs_of = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=40).map(
    lambda pairs: [length for pair in pairs for length in pair]
)


@pytest.mark.slow
@given(runs=runs_of, offset=st.integers(0, 2**60))
def test_what_fits_comes_back(runs: list[int], offset: int) -> None:
    text = encode(runs, TOPIC_ID)
    if not runs:
        assert text == ""
        return
    found = decode(text, offset, TOPIC_ID)
    assert found is not None
    assert found.runs() == runs
    assert found.end == offset + sum(runs)


@pytest.mark.slow
@given(done=st.sets(st.integers(1, 200)))
def test_a_map_knows_each_offset(done: set[int]) -> None:
    runs, last, was_done = [], 0, False
    for offset in range(202):
        if (offset in done) != was_done:
            runs.append(offset - last)
            last, was_done = offset, not was_done
    found = DoneMap(1_000, runs)
    assert {offset for offset in range(900, 1_300) if offset in found} == {1_000 + offset for offset in done}


def test_the_text_is_printable_and_short() -> None:
    text = encode([1, 50_000], TOPIC_ID)
    assert text == "ka1.a65CaAHQhgM"
    assert text.isascii()
    assert text.isprintable()


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    runs = [1] * 20_000
    text = encode(runs, TOPIC_ID)
    assert len(text) <= LONGEST
    found = decode(text, 5, TOPIC_ID)
    assert found is not None
    assert found.runs() == [1] * len(found.runs())
    assert len(found.runs()) > 3_000
    assert len(found.runs()) % 2 == 0, "what lies behind is not done"


def test_a_topic_that_was_made_anew_has_no_map() -> None:
    text = encode([1, 5], TOPIC_ID)
    assert decode(text, 0, UUID(int=8)) is None
    assert decode(text, 0, None) is None
    assert decode(encode([1, 5], None), 0, None) is not None, "a broker without topic ids"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "ka2.AAAA",
        "ka1.",
        "ka1.!!!",
        "ka1.AAAA",
        "ka1.é",
        "ka1." + "A" * 100_000,
        '{"offset": 5}',
        "ka1.a65CaAE",
        "ka1.a65CaAAA",
    ],
)
def test_what_is_not_ours_is_no_error(text: str) -> None:
    assert decode(text, 0, TOPIC_ID) is None


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert decode(text, 0, TOPIC_ID) is None or is_ours(text)
    decode("ka1." + text, 0, TOPIC_ID)


@given(st.binary(max_size=50))
def test_no_data_is_an_error(data: bytes) -> None:
    text = "ka1." + urlsafe_b64encode(bytes.fromhex("6bae4268") + data).decode()
    found = decode(text, 3, TOPIC_ID)
    assert found is None or all(run > 0 for run in found.runs()[1:]), "only the first may be empty"
