"""Dates and times in texts, read as Spark reads them when no pattern is given.

No clock is looked at: ``T10:00`` alone, which Spark completes with the current day, is none here, because the same record would
mean another time tomorrow. Years are 1 to 9999.

Source: the behavior of ``SparkDateTimeUtils.stringToDate`` and ``stringToTimestamp``, as ``from_json`` shows it.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

_EPOCH: Final = date(1970, 1, 1).toordinal()
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
_DATE: Final = re.compile(_DAY + r"(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_TIME: Final = re.compile(
    _DAY + r"(?:[ T](?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?)?)?\s*(\D.*|[+-].*)?)?)?)?", re.DOTALL | re.ASCII
)
_OFFSET: Final = re.compile(r"(?:GMT|UTC?)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_MAX_OFFSET: Final = timedelta(hours=18)
_DAY_LONG: Final = timedelta(hours=24)
"""Zones within texts are below this, as Arrow has it; Spark takes 18 hours at most there, too."""


def zone(name: str) -> tzinfo:
    """Return a time zone by its name (``Europe/Berlin``) or offset (``+02:00``). Raises ``ValueError`` for an unknown one."""
    found = _zone(name)
    if (offset := found.utcoffset(None)) is not None and abs(offset) > _MAX_OFFSET:
        raise ValueError(f"unknown time zone {name!r}")
    return found


def _zone(name: str) -> tzinfo:
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if match := _OFFSET.fullmatch(name):
        sign, *parts = match.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and offset < _DAY_LONG:
            return timezone(-offset if sign == "-" else offset)
    elif re.fullmatch(r"[A-Za-z][\w+-]*(/[\w+-]+)*", name):
        try:
            return ZoneInfo(name)
        except (KeyError, OSError):  # OSError: the name of a folder of zones
            pass
    raise ValueError(f"unknown time zone {name!r}")


def days(text: str) -> int:
    """Return the days from 1970-01-01 to the date in ``text``. Raises ``ValueError`` if it has none."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError("no date")
    year, month, day = match.groups()
    return date(int(year), int(month or 1), int(day or 1)).toordinal() - _EPOCH


def microseconds(text: str, default: tzinfo | None) -> int:
    """Return the microseconds from 1970-01-01 to the time in ``text``, in the zone ``default`` if it has none of its own.

    ``None``: the time must have no zone, and is counted as it stands. Raises ``ValueError`` if ``text`` holds no such time.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError("no time")
    year, month, day, hour, minute, second, fraction, zone_name = match.groups()
    where: tzinfo = default or UTC
    if zone_name is not None:
        if default is None:
            raise ValueError("a zone, where none is expected")
        where = _zone(zone_name.strip())
    micros = int((fraction or "").ljust(6, "0")[:6])
    found = datetime(
        int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), micros, tzinfo=where
    )
    return (found - _START) // _MICROSECOND
