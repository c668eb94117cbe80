"""Rows as lines of JSON.

What JSON has no type for: bytes are text in UTF-8, in which ``\\udcff`` stands for a byte 0xff that is none (in Python
``text.encode("utf-8", "surrogateescape")`` gives every byte back); decimals, dates and times are text, times in ISO 8601, with a
sign if the year has more digits than Arrow writes ("+58851-04-14T..."); numbers that JSON does not have are "NaN", "Infinity" and
"-Infinity"; durations are seconds as in "1.5s" (Protobuf's JSON).
"""

import json
from collections.abc import Callable, Sequence
from datetime import date
from math import isfinite, isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...application.reading.arrow import array_of

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_DIRECTLY: Final = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list)
_AS_TEXT: Final = (pa.types.is_decimal, pa.types.is_time)
_SECOND: Final = 1_000_000
"""Microseconds."""
_DAY: Final = 86_400
"""Seconds."""
_UNITS: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
"""In a second."""
_CYCLE: Final = 146_097
"""Days of 400 years, after which the calendar is the same again."""
_EPOCH: Final = date(1970, 1, 1).toordinal()
_WRITABLE: Final = range(-12_687_428, 11_248_738)
"""Days since 1970 of the years -32767 to 32767: Arrow has 16 bits for a year. It raises for others, or says that they are out of
range."""


def lines(batch: Any) -> bytes:
    """Return each row of a ``pyarrow.RecordBatch`` as one line of JSON, in UTF-8."""
    names = batch.schema.names
    columns = [objects(column) for column in batch.columns]
    rows = zip(*columns, strict=True) if columns else ((),) * batch.num_rows
    text = "".join([_ENCODE(dict(zip(names, row, strict=True))) + "\n" for row in rows])
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate, as an escape of Python, is spelled as JSON spells it


def texts(array: Any) -> list[str | None]:
    """Return each value of an array as JSON; null stays null."""
    return [None if value is None else _ENCODE(value).encode("utf-8", "backslashreplace").decode() for value in objects(array)]


def objects(array: Any) -> list[Any]:
    """Return the values of an array as what ``json`` writes."""
    kind = array.type
    for belongs, convert in _CONVERTERS:
        if belongs(kind):
            return convert(array)
    raise ValueError(f"{kind} has no form in JSON")


def _is(*checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda kind: any(check(kind) for check in checks)


def _plain(array: Any) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _floats(array: Any) -> list[Any]:
    found = _plain(array)
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return found
    return [value if value is None or isfinite(value) else _infinite(value) for value in found]


def _infinite(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes(array: Any) -> list[Any]:
    try:
        return _plain(array.cast(pa.binary()).cast(pa.string()))
    except pa.ArrowInvalid:
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in _plain(array)]


def _texts(array: Any) -> list[Any]:
    return _plain(array.cast(pa.string()))


def _dates(array: Any) -> list[Any]:
    return with_far_times(array, _texts)


def _times(array: Any) -> list[Any]:
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, tz="UTC"))
    return with_far_times(array, _near_times)


def _near_times(array: Any) -> list[Any]:
    return _plain(pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1))


def has_far_times(array: Any) -> bool:
    """Return whether an array has dates or times that Arrow cannot write."""
    if not (pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)):
        return False
    found = pc.min_max(_numbers(array)).as_py()
    return any(each is not None and each // _per_day(array.type) not in _WRITABLE for each in found.values())


def with_far_times(array: Any, write: Callable[[Any], list[Any]]) -> list[Any]:
    """Return what ``write`` makes of dates or times, those that Arrow cannot write in ISO 8601."""
    if not has_far_times(array):
        return write(array)
    per_day, clock = _per_day(array.type), pa.types.is_timestamp(array.type)
    end = "Z" if clock and array.type.tz is not None else ""
    numbers = _plain(_numbers(array))
    far = [value is not None and value // per_day not in _WRITABLE for value in numbers]
    near = write(array_of(array.type, [None if beyond else value for value, beyond in zip(numbers, far, strict=True)]))
    return [
        _far_time(value, per_day, clock=clock) + end if beyond else text
        for value, beyond, text in zip(numbers, far, near, strict=True)
    ]


def _numbers(array: Any) -> Any:
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())


def _per_day(kind: Any) -> int:
    """Return how many units of a type a day has."""
    if pa.types.is_date(kind):
        return 1 if pa.types.is_date32(kind) else _DAY * _UNITS["ms"]
    return _DAY * _UNITS[kind.unit]


def _far_time(value: int, per_day: int, *, clock: bool) -> str:
    """Return a date, or with ``clock`` a time, in ISO 8601 with a year of any length."""
    day, rest = divmod(value, per_day)
    cycles, day = divmod(day, _CYCLE)
    near = date.fromordinal(_EPOCH + day)
    text = f"{near.year + 400 * cycles:+}-{near.month:02}-{near.day:02}"
    if not clock:
        return text
    seconds, part = divmod(rest, per_day // _DAY)
    digits = len(str(per_day // _DAY)) - 1
    minutes, seconds = divmod(seconds, 60)
    return f"{text}T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}" + (f".{part:0{digits}}" if digits else "")


def _durations(array: Any) -> list[Any]:
    found = _plain(array.cast(pa.duration("us")).cast(pa.int64()))
    return [None if value is None else _seconds(value) for value in found]


def _seconds(microseconds: int) -> str:
    whole, rest = divmod(abs(microseconds), _SECOND)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{'-' if microseconds < 0 else ''}{whole}{fraction}s"


def _struct(array: Any) -> list[Any]:
    names = [part.name for part in array.type]
    columns = [objects(part) for part in array.flatten()]
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return _with_nulls(array, found)


def _list(array: Any) -> list[Any]:
    return _with_nulls(array, _pieces(array, objects(array.flatten())))


def _map(array: Any) -> list[Any]:
    # ``flatten`` of a map is not there in all versions; as a list of structs it is.
    entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    flat = entries.flatten()
    keys = [value if isinstance(value, str) else _ENCODE(value) for value in objects(flat.field(0))]
    pairs = list(zip(keys, objects(flat.field(1)), strict=True))
    return _with_nulls(array, [dict(each) for each in _pieces(entries, pairs)])


def _pieces(array: Any, flat: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the parts of ``flat`` that belong to each list; a null one has none."""
    found, at = [], 0
    for length in pc.list_value_length(array).to_pylist():
        end = at + (length or 0)
        found.append(flat[at:end])
        at = end
    return found


def _with_nulls(array: Any, found: list[Any]) -> list[Any]:
    if not array.null_count:
        return found
    return [value if there else None for value, there in zip(found, array.is_valid().to_pylist(), strict=True)]


def _decoded(array: Any) -> list[Any]:
    return objects(array.dictionary_decode())


_CONVERTERS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], list[Any]]], ...]] = (
    (_is(*_DIRECTLY, pa.types.is_null), _plain),
    (_is(pa.types.is_floating), _floats),
    (_is(*_BYTES), _bytes),
    (_is(pa.types.is_timestamp), _times),
    (_is(pa.types.is_date), _dates),
    (_is(*_AS_TEXT), _texts),
    (_is(pa.types.is_duration), _durations),
    (_is(pa.types.is_dictionary), _decoded),
    (_is(pa.types.is_struct), _struct),
    (_is(*_LISTS), _list),
    (_is(pa.types.is_map), _map),
)
