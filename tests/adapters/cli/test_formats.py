import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import ConsumerRecord
from kafka_async.adapters.cli.formats import Record, formatter, json_line, unescape


def record(
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp: int = 1234,
    timestamp_type: int = 0,
) -> Record:
    return ConsumerRecord(
        topic="orders",
        partition=3,
        offset=17,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        key=key,
        value=value,
        headers=headers,
        checksum=None,
        serialized_key_size=-1 if key is None else len(key),
        serialized_value_size=-1 if value is None else len(value),
        leader_epoch=0,
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("%t", b"orders"),
        ("%p", b"3"),
        ("%o", b"17"),
        ("%k", b"k"),
        ("%K", b"1"),
        ("%s", b"value"),
        ("%S", b"5"),
        ("%R", b"\0\0\0\5"),
        ("%T", b"1234"),
        ("%h", b"a=1,b=NULL,a=2"),
        ("100%%", b"100%"),
        (r"\n\r\t\0\\\x41", b"\n\r\t\0\\A"),
        (r"%t [%p] at %o: %s\n", b"orders [3] at 17: value\n"),
        ("é%s", "évalue".encode()),
        ("%%s%s", b"%svalue"),
    ],
)
def test_tokens_are_those_of_kcat(text: str, written: bytes) -> None:
    assert formatter(text)(record(headers=(("a", b"1"), ("b", None), ("a", b"2")))) == written


def test_null_is_nothing_or_what_was_asked_for_and_its_length_is_minus_one() -> None:
    empty = record(key=None, value=None)

    assert formatter("%k|%s|%K|%S|%R")(empty) == b"||-1|-1|\xff\xff\xff\xff"
    assert formatter("%k|%s", null=b"NULL")(empty) == b"NULL|NULL"
    assert formatter("%k|%s", null=b"NULL")(record(key=b"", value=b"")) == b"|"


@pytest.mark.parametrize("text", ["%x", "%", "100%", r"\q", "\\", r"\x4"])
def test_what_is_unknown_is_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown .* expected"):
        formatter(text)


def test_unescape_leaves_plain_text_alone() -> None:
    assert unescape("a%s") == b"a%s"
    assert unescape(r"|\x00\n") == b"|\0\n"


@given(st.binary())
def test_values_pass_through_byte_for_byte(value: bytes) -> None:
    assert formatter("%s")(record(value=value)) == value


def test_json_has_the_field_names_of_kcat() -> None:
    line = json_line(record(headers=(("a", b"1"), ("b", None)), value="ü€".encode()))

    assert (
        line
        == (
            '{"topic":"orders","partition":3,"offset":17,"tstype":"create","ts":1234,"headers":["a","1","b",null],"key":"k","payload":"ü€"}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("timestamp_type", "timestamp", "told"), [(0, 5, ("create", 5)), (1, 5, ("logappend", 5)), (-1, -1, ("unknown", None))]
)
def test_json_says_whose_timestamp_it_is(timestamp_type: int, timestamp: int, told: tuple[str, int | None]) -> None:
    line = json.loads(json_line(record(timestamp_type=timestamp_type, timestamp=timestamp)))

    assert (line["tstype"], line["ts"]) == told


@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x7f", "\x85", "\x9b", "\u200b", "\u2028", "\u2029", "\u202e", "\u2066", "\u061c", "\ufeff", "\U000e0041"],
)
def test_json_has_no_character_that_a_terminal_obeys_or_a_person_cannot_see(character: str) -> None:
    written = json_line(record(key=b"k\xc3\xa9y", value=f"a{character}b".encode())).decode()

    assert character not in written
    assert "kéy" in written
    assert json.loads(written)["payload"] == f"a{character}b"


@pytest.mark.slow
@given(st.none() | st.binary(), st.none() | st.binary(), st.binary())
def test_json_is_one_line_of_utf8_that_gives_every_byte_back(key: bytes | None, value: bytes | None, name: bytes) -> None:
    written = json_line(record(key=key, value=value, headers=((name.decode("utf-8", "surrogateescape"), value),)))

    line = json.loads(written.decode("utf-8"))

    def back(text: str | None) -> bytes | None:
        return None if text is None else text.encode("utf-8", "surrogateescape")

    assert b"\n" not in written
    assert (back(line["key"]), back(line["payload"])) == (key, value)
    assert [back(part) for part in line["headers"]] == [name, value]
