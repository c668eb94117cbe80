"""What ``since`` and ``until`` mean: a moment, or offsets.

A number alone is refused: other tools take it for an offset, or for milliseconds, and either reads the wrong records in silence.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from ...errors import KafkaConfigurationError
from ...model import TopicPartition
from ...values import evolve, field, frozen

_WORDS: Final = {"beginning": "beginning", "earliest": "beginning", "end": "end", "now": "end", "latest": "end"}
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_GROUP: Final = "committed:"
_EXPECTED: Final = (
    "'beginning', 'now', a date or a time such as '2026-11-01' or '2026-11-01T09:30+01:00' (UTC without an offset), '-1h' for an "
    "hour ago, a datetime, date or timedelta, {partition: offset}, or 'committed:GROUP'"
)


@frozen(kw_only=True)
class Moment:
    """Where ranges begin or end."""

    option: str
    """``since`` or ``until``, for messages."""
    kind: str
    """``beginning``, ``end``, ``time``, ``ago``, ``offsets`` or ``committed``."""
    ms: int = 0
    """Milliseconds since the epoch, or before now."""
    offsets: Mapping[TopicPartition, int] = field(factory=dict)
    group: str = ""

    def at(self, now: int) -> "Moment":
        """Return this moment with a time in place of one relative to ``now``, in milliseconds since the epoch."""
        return evolve(self, kind="time", ms=max(0, now - self.ms)) if self.kind == "ago" else self


def moment(option: str, given: Any, topics: tuple[str, ...]) -> Moment:
    """Return what a value of ``since`` or ``until`` means. ``topics``: of a single one, partitions may be numbers.

    Raises ``TypeError`` for a number, ``KafkaConfigurationError`` for what is no moment.
    """
    if isinstance(given, int | float):
        raise TypeError(
            f"{option}={given!r}: a number could be an offset or a time; write {{partition: offset}} for offsets, and a datetime "
            "or an ISO text for a time"
        )
    if isinstance(given, Mapping):
        return Moment(option=option, kind="offsets", offsets=_offsets(option, given, topics))
    if isinstance(given, timedelta):
        return Moment(option=option, kind="ago", ms=abs(given) // timedelta(milliseconds=1))
    if isinstance(given, datetime | date):
        return Moment(option=option, kind="time", ms=_milliseconds(option, given))
    if isinstance(given, str):
        return _of_text(option, given.strip())
    raise TypeError(f"{option}={given!r}: expected {_EXPECTED}")


def check_order(since: Moment, until: Moment) -> None:
    """Raise ``KafkaConfigurationError`` if they are of one kind, and the second is the earlier one."""
    times = since.kind == until.kind == "time" and since.ms > until.ms
    if times or (since.kind == until.kind == "ago" and since.ms < until.ms):
        raise KafkaConfigurationError("since is after until")


def _of_text(option: str, text: str) -> Moment:
    if (kind := _WORDS.get(text.lower())) is not None:
        return Moment(option=option, kind=kind)
    if text.startswith(_GROUP) and (group := text.removeprefix(_GROUP)):
        return Moment(option=option, kind="committed", group=group)
    if text.startswith("-") and (ms := _span(text[1:])) is not None:
        return Moment(option=option, kind="ago", ms=ms)
    if re.fullmatch(r"[-+]?[\d_.]*", text):
        raise KafkaConfigurationError(f"{option}={text!r}: a number could be an offset or a time; expected {_EXPECTED}")
    try:
        return Moment(option=option, kind="time", ms=_milliseconds(option, datetime.fromisoformat(text)))
    except ValueError:
        raise KafkaConfigurationError(f"{option}={text!r}: expected {_EXPECTED}") from None


def _milliseconds(option: str, when: date) -> int:
    if not isinstance(when, datetime):
        when = datetime.combine(when, time())
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    ms = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if ms < 0:
        raise KafkaConfigurationError(f"{option}={when.isoformat()}: expected a time from 1970 on")
    return ms


def _span(text: str) -> int | None:
    """Return the milliseconds of a text such as ``90s`` or ``1h30m``."""
    compact = text.strip()
    if not compact or _SPAN.sub("", compact).strip():
        return None
    return round(sum(float(number) * _UNITS[unit.lower()] for number, unit in _SPAN.findall(compact)))


def span(option: str, given: Any) -> int:
    """Return the milliseconds of a timedelta or of a text such as ``10m``. Raises ``KafkaConfigurationError``, ``TypeError``."""
    if isinstance(given, timedelta):
        ms: int | None = given // timedelta(milliseconds=1)
    elif isinstance(given, str):
        ms = _span(given)
    else:
        raise TypeError(f"{option}={given!r}: expected a timedelta or a text such as '10m'")
    if ms is None or ms < 0:
        raise KafkaConfigurationError(f"{option}={given!r}: expected a timedelta or a text such as '10m', not below zero")
    return ms


def _offsets(option: str, given: Mapping[Any, Any], topics: tuple[str, ...]) -> dict[TopicPartition, int]:
    found = {}
    for partition, offset in given.items():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise KafkaConfigurationError(f"{option}: {partition!r}: {offset!r}; expected an offset, 0 or more")
        found[partition_of(option, partition, topics)] = offset
    return found


def partition_of(option: str, given: Any, topics: tuple[str, ...]) -> TopicPartition:
    """Return a partition that was given as one, or as a number. Raises ``KafkaConfigurationError``."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
    elif len(topics) == 1:
        topic, number = topics[0], given
    else:
        raise KafkaConfigurationError(f"{option}: {given!r}: with several topics, expected TopicPartition(topic, number)")
    if topic not in topics or not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise KafkaConfigurationError(f"{option}: {given!r} is not a partition of {', '.join(topics)}")
    return TopicPartition(topic, number)
