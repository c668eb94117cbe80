"""Texts as dates and times. What is expected here is what Spark's ``from_json`` made of the same texts."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from kafka_async.adapters.values.times import days, microseconds, zone

EPOCH = datetime(1970, 1, 1)  # counts microseconds without a zone


def at(text: str, name: str | None = "UTC") -> str:
    return str(EPOCH + timedelta(microseconds=microseconds(text, None if name is None else zone(name))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-02T03:04:05.123456Z", "2020-01-02 03:04:05.123456"),
        ("2020-01-02T03:04:05.123456789+02:00", "2020-01-02 01:04:05.123456"),
        ("2020-01-02 03:04:05", "2020-01-02 03:04:05"),
        ("2020-1-2 3:4:5", "2020-01-02 03:04:05"),
        ("2020-01-02 03", "2020-01-02 03:00:00"),
        ("2020-01", "2020-01-01 00:00:00"),
        (" 2020 ", "2020-01-01 00:00:00"),
        ("2020-01-02T03:04:05+0200", "2020-01-02 01:04:05"),
        ("2020-01-02T03:04:05-02", "2020-01-02 05:04:05"),
        ("2020-01-02T03:04:05GMT+2", "2020-01-02 01:04:05"),
        ("2020-01-02T03:04:05.1 UTC", "2020-01-02 03:04:05.100000"),
        ("2020-01-02T03:04:05 Europe/Berlin", "2020-01-02 02:04:05"),
        ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00"),
    ],
)
def test_a_time_is_read(text: str, expected: str) -> None:
    assert at(text) == expected


def test_a_time_without_a_zone_is_in_the_default_one() -> None:
    assert at("2020-07-01 12:00:00", "Europe/Berlin") == "2020-07-01 10:00:00"
    assert at("2020-07-01 12:00:00", None) == "2020-07-01 12:00:00"


@pytest.mark.parametrize("text", ["", "nope", "2020-02-30", "2020-01-02T24:00:00", "T03:04:05", "10000-01-01", "2020-01-02t03:04z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        microseconds(text, UTC)


def test_a_zone_is_refused_if_none_is_expected() -> None:
    with pytest.raises(ValueError, match="a zone"):
        microseconds("2020-01-02T03:04:05Z", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1970-01-02", 1), ("2020-1-2", 18263), ("2020", 18262), ("2020-01-02T10:00:00Z", 18263), (" 2020-01-02 x", 18263)],
)
def test_a_date_is_read(text: str, expected: int) -> None:
    assert days(text) == expected


@pytest.mark.parametrize("text", ["", "x", "20200102", "2020-13-01"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        days(text)


def test_zones_have_names_or_offsets() -> None:
    assert zone("UTC") is UTC
    assert zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert zone("-03:30").utcoffset(None) == timedelta(hours=-3, minutes=-30)


@pytest.mark.parametrize("name", ["Mars", "+19:00", "+02:60", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        zone(name)
