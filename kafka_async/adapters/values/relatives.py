"""Arrow types beyond those that Spark has: which of Spark's a column is built as first, and the cast in the end.

Times without a date, durations and types that are always null have no relative, and are refused by name.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow.compute import CastOptions

from ...application.reading.arrow import array_of
from .ddl import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ, list_type

_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_AS_THEY_ARE: Final = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_date32)
_EXPECTED: Final = (
    "bool, int8 to int64, uint8 to uint64, float16 to float64, string, binary, date32, date64, timestamp, decimal, list, map, "
    "struct or a dictionary of strings"
)


def _any(checks: tuple[Callable[[Any], bool], ...], kind: Any) -> bool:
    return any(check(kind) for check in checks)


def relaxed(kind: Any) -> Any:
    """Return a type in which whatever is within may be null: no record can be made to keep a promise."""
    if pa.types.is_struct(kind):
        return pa.struct([_relaxed_field(part) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _relaxed_field(kind.item_field), keys_sorted=False)
    if pa.types.is_list(kind):
        return pa.list_(_relaxed_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_relaxed_field(kind.value_field))
    return kind


def _relaxed_field(part: Any) -> Any:
    return pa.field(part.name, relaxed(part.type), nullable=True, metadata=part.metadata)


def built_as(kind: Any, where: str) -> Any:
    """Return the type that a column is built in before it is cast to ``kind``. Raises ``ValueError`` if there is none."""
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise ValueError(f"{where}: a struct without fields has no values")
        return pa.struct([(part.name, built_as(part.type, f"{where}.{part.name}")) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(built_as(kind.key_type, where), built_as(kind.item_type, where))
    if _any(_LISTS[:2], kind):
        return list_type(built_as(kind.value_type, where))
    if pa.types.is_dictionary(kind) and _any(_TEXTS, kind.value_type):
        return pa.string()
    return _built_as_simple(kind, where)


def _built_as_simple(kind: Any, where: str) -> Any:
    if _any(_AS_THEY_ARE, kind):
        return kind
    if _any(_TEXTS, kind):
        return pa.string()
    if _any(_BYTES, kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal(kind) and 1 <= kind.precision <= MAX_PRECISION and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    raise ValueError(f"{where}: {kind} is not a type that values become; expected {_EXPECTED}")


def cast_to(kind: Any, array: Any, what: str, bad: dict[int, str]) -> Any:
    """Return a column in its type. ``bad`` gets the places of values that the type cannot hold; they are null."""
    if array.type == kind:
        return array
    options = CastOptions(kind, allow_time_truncate=True)
    try:
        return array.cast(options=options)
    except pa.ArrowInvalid:
        outside = list(_outside(array, options, range(len(array))))
    for place in outside:
        bad.setdefault(place, f"{what} is out of range for {kind}")
    gone = frozenset(outside)
    return _some(array, [None if place in gone else place for place in range(len(array))]).cast(options=options)


def _outside(array: Any, options: Any, places: Sequence[int]) -> Iterator[int]:
    """Yield those of some places whose values cannot be cast."""
    try:
        _some(array, places).cast(options=options)
    except pa.ArrowInvalid:
        if len(places) == 1:
            yield places[0]
            return
        middle = len(places) // 2
        yield from _outside(array, options, places[:middle])
        yield from _outside(array, options, places[middle:])


def _some(array: Any, places: Sequence[int | None]) -> Any:
    """Return the values at some places. It is not a slice: of that, Arrow casts all elements of its lists, and others too."""
    return array.take(array_of(pa.int32(), places))
