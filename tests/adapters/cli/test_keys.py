import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.cli.keys import KeyReader


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\r", ["enter"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA", ["up"]),
        (b"\x1b[5~j", ["pageup", "j"]),
        (b"\x7f", ["backspace"]),
        ("ü/".encode(), ["ü", "/"]),
        (b"\x1b[24;80R", []),  # an answer of the terminal that nobody asked for
        (b"\x00\x01", []),
        (b"\x1bq", ["escape", "q"]),
    ],
)
def test_bytes_are_keys(data: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(data) == keys


def test_a_sequence_may_come_in_pieces() -> None:
    """Over a slow line an arrow comes byte by byte: its escape must not leave the page."""
    reader = KeyReader()
    assert [reader.feed(bytes([byte])) for byte in b"\x1b[A"] == [[], [], ["up"]]
    assert not reader.waiting


def test_an_escape_is_one_once_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.waiting
    assert reader.flush() == ["escape"]
    assert reader.flush() == []


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_in_any_pieces_are_the_same_keys_and_leave_little(data: bytes, size: int) -> None:
    whole, pieces = KeyReader(), KeyReader()
    expected = whole.feed(data)
    found = [key for start in range(0, len(data), size) for key in pieces.feed(data[start : start + size])]

    assert found == expected
    assert all(key.isprintable() for key in found)
