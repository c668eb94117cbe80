"""JSON values one by one, with msgspec, and then column by column.

msgspec skips fields that are not wanted, and refuses values that are not strictly JSON. ``json_records`` reads those as Spark's
``from_json`` does, at a tenth of the speed: ``NaN``, bytes that are not UTF-8, text that is not JSON at all. Then a column whose
fields all have the plain type becomes an array at once. In any other column, the functions of ``json_records`` convert the other
fields one by one. So a number in a field of type STRING, or one bad value among many, costs little.
"""

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from decimal import Decimal, InvalidOperation
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...application.reading.arrow import array_of
from ...values import frozen
from .ddl import TIMESTAMP, TIMESTAMP_NTZ, Fields
from .decoding import BadValueError, Piece
from .json_records import convert_field, converter, parsed

try:
    import msgspec
except ImportError as missing:
    raise ImportError("JSON values need msgspec, which the extra 'json' brings: pip install '/path/to/clone[json]'") from missing

_REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidOperation)
"""The last of them is of ``Decimal``."""


class RowReader:
    """Reads values with some columns."""

    def __init__(self, columns: Fields, zone: tzinfo) -> None:
        numbered = [(f"f{number}", name, kind) for number, (name, kind) in enumerate(columns)]
        fields = [(own, _parsed_as(kind), msgspec.field(name=name, default=None)) for own, name, kind in numbered]
        record = msgspec.defstruct("Record", fields, gc=False)
        exact = Decimal if any(_has_decimal(kind) for _, kind in columns) else None
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(record, float_hook=exact).decode
        self._record: Callable[..., Any] = record
        self._names = [(own, name) for own, name, _ in numbered]
        self._columns = [
            _Column(name, kind, attrgetter(own), converter(kind, zone), _bulk(kind, zone)) for own, name, kind in numbered
        ]

    def piece(self, values: Sequence[bytes | None]) -> Piece:
        """Return the columns, and what is wrong with which value."""
        decode, nothing = self._decode, self._record()
        records: list[Any] = []
        bad: dict[int, str] = {}
        for value in values:
            try:
                records.append(nothing if value is None else decode(value))
            except _REFUSED:
                records.append(self._closely(value or b"", len(records), bad))
        return Piece(arrays=[column.array(records, bad) for column in self._columns], bad=bad)

    def _closely(self, value: bytes, place: int, bad: dict[int, str]) -> Any:
        """Return what a value holds that msgspec refused; ``bad`` gets what is wrong with it, by its place."""
        try:
            found = parsed(value)
        except BadValueError as error:
            bad[place] = str(error)
            found = {}
        return self._record(**{own: found.get(name) for own, name in self._names})


@frozen
class _Column:
    """Makes an array of one field of many records."""

    name: str
    kind: Any
    get: Callable[[Any], Any]
    convert: Callable[[Any, list[str]], Any]
    bulk: "Bulk"

    def array(self, records: Sequence[Any], bad: dict[int, str]) -> Any:
        """Return the array. ``bad`` gets what is wrong, by place, too."""
        found = list(map(self.get, records))
        values, left = self.bulk(found, set(map(type, found)) - {NoneType})
        self._convert(values, left, bad)
        try:
            return array_of(self.kind, values)
        except OverflowError:  # a number is too large for the type: only now it is looked which
            self._convert(found, range(len(found)), bad)
            return array_of(self.kind, found)

    def _convert(self, values: list[Any], places: Sequence[int], bad: dict[int, str]) -> None:
        """Convert the values at some places."""
        for place in places:
            if (value := values[place]) is not None:
                problems: list[str] = []
                values[place] = convert_field(self.name, value, self.convert, problems)
                if problems:
                    bad.setdefault(place, problems[0])


def _parsed_as(kind: Any) -> Any:
    """Return the type that msgspec parses a field as: numbers of a floating type at once, all others as they are."""
    return float | str | bool | None if pa.types.is_floating(kind) else Any


def _has_decimal(kind: Any) -> bool:
    """Return whether a type is a decimal, or has one within."""
    return pa.types.is_decimal(kind) or any(_has_decimal(kind.field(i).type) for i in range(kind.num_fields))


# --- many fields at once ---------------------------------------------------------------------------------------------------------

Bulk = Callable[[list[Any], set[type]], tuple[list[Any], Sequence[int]]]
"""Returns fields as Arrow takes them, given the types that are among them, and the places of those that it did not convert."""

_DAY: Final = r"^(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
_TIME: Final = r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE: Final = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)"
_Form = tuple[str, Any, Any]
"""A pattern of texts, the type that Arrow casts such a text to as ``times`` reads it, and the type of the numbers within."""
_DATES: Final[_Form] = (f"{_DAY}$", pa.date32(), pa.int32())
_LOCAL: Final[_Form] = (f"{_DAY}{_TIME}$", TIMESTAMP_NTZ, pa.int64())
_ZONED: Final[_Form] = (f"{_DAY}{_TIME}{_ZONE}$", TIMESTAMP, pa.int64())
_PYTHON: Final = ((pa.types.is_string, str), (pa.types.is_boolean, bool), (pa.types.is_integer, int), (pa.types.is_floating, float))
"""What Arrow's types are as they are parsed; no other is taken as it was parsed."""


def _python_type(kind: Any) -> type:
    return next((plain for belongs, plain in _PYTHON if belongs(kind)), NoneType)


def _bulk(kind: Any, zone: tzinfo) -> Bulk:
    if pa.types.is_string(kind):
        return _texts
    if pa.types.is_date(kind):
        return functools.partial(_times, [_DATES])
    if kind == TIMESTAMP:
        return functools.partial(_times, [_ZONED, _LOCAL] if zone is UTC else [_ZONED])
    if kind == TIMESTAMP_NTZ:
        return functools.partial(_times, [_LOCAL])
    if pa.types.is_nested(kind):
        return functools.partial(_nested, kind)
    return functools.partial(_plain, _python_type(kind))


def _plain(plain: type, found: list[Any], kinds: set[type]) -> tuple[list[Any], Sequence[int]]:
    if kinds <= {plain}:
        return found, ()
    return found.copy(), [place for place, value in enumerate(found) if type(value) is not plain]


def _nested(kind: Any, found: list[Any], kinds: set[type]) -> tuple[list[Any], Sequence[int]]:
    return found.copy(), () if _is_plain(kind, found, kinds) else range(len(found))


def _is_plain(kind: Any, found: Sequence[Any], kinds: set[type]) -> bool:
    """Return whether Arrow takes all that is within arrays, maps and structs as it was parsed."""
    there = [each for each in found if each is not None] if pa.types.is_nested(kind) else found
    if pa.types.is_struct(kind):
        parts = [(part.type, [each.get(part.name) for each in there]) for part in kind] if kinds <= {dict} else []
    elif pa.types.is_map(kind):
        parts = [(kind.item_type, [item for each in there for item in each.values()])] if kinds <= {dict} else []
    elif pa.types.is_list(kind):
        parts = [(kind.value_type, [item for each in there for item in each])] if kinds <= {list} else []
    else:
        plain = _python_type(kind)
        return kinds <= ({int, float} if plain is float else {plain})
    return bool(parts) and all(_is_plain(part, items, set(map(type, items)) - {NoneType}) for part, items in parts)


def _texts(found: list[Any], kinds: set[type]) -> tuple[list[Any], Sequence[int]]:
    """A field of type STRING takes any JSON."""
    if kinds and (kinds <= {int} or (kinds <= {float} and all(map(isfinite, filter(None, found))))):
        return [None if value is None else repr(value) for value in found], ()
    return _plain(str, found, kinds)


def _times(forms: Sequence[_Form], found: list[Any], kinds: set[type]) -> tuple[list[Any], Sequence[int]]:
    """Have Arrow read what is written as most programs write it: ``times`` takes twenty times as long."""
    values = found.copy()
    left: Sequence[int] = range(len(found))
    for pattern, kind, number in forms:
        if str not in kinds:
            break
        left = _cast(values, left, pattern, kind, number)
    return values, left


def _cast(values: list[Any], places: Sequence[int], pattern: str, kind: Any, number: Any) -> Sequence[int]:
    """Cast the texts among some values that fit a pattern. Return the places of all others."""
    ours = [place for place in places if type(values[place]) is str]
    texts = array_of(pa.string(), [values[place] for place in ours])
    fits = pc.match_substring_regex(texts, pattern)
    try:
        numbers = texts.filter(fits).cast(kind).view(number).to_pylist()
    except pa.ArrowInvalid:  # a text of the right form that means nothing, such as the 30th of February
        return places
    fitting = [place for place, fit in zip(ours, fits.to_pylist(), strict=True) if fit]
    for place, each in zip(fitting, numbers, strict=True):
        values[place] = each
    done = set(fitting)
    return [] if len(done) == len(places) else [place for place in places if place not in done]
