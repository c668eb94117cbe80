"""What JSON means, value by value and field by field, as Spark's ``from_json`` has it in its permissive mode.

No bytes raise: faults are reported.

A field of the wrong type is null, its neighbors are kept, and the record counts as bad. The same applies within structs, but a
bad element makes its whole array or map null. A text that is not a JSON object gives nulls. If a name appears twice, the last one
counts. Fields of type STRING take any JSON, written without blanks.

Different from ``from_json``, on purpose: a value that is empty, or has anything but blanks after its object, is bad: ``from_json``
drops what comes after the first object without a word. What Jackson takes beyond JSON is bad, except the numbers NaN and Infinity,
which Python programs write; numbers in fields of type STRING are written as Python does (1e16, not 1.0E16); a TINYINT of 128 to 255
is bad and does not wrap round, a map has each key once, times without a date and years beyond 9999 are bad (``times``).

Source: the behavior of Spark's ``JacksonParser``, as a comparison with it in the tests shows it.
"""

import base64
import binascii
import functools
import json
import math
from collections.abc import Callable
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import pyarrow as pa

from .ddl import TIMESTAMP, TIMESTAMP_NTZ, shown
from .decoding import BadValueError
from .times import days, microseconds

Convert: TypeAlias = Callable[[Any, list[str]], Any]
"""Makes what Arrow takes of what ``json`` gives; notes what is wrong inside of it, raises ``BadValueError`` for the whole."""

BLANKS: Final = " \t\r\n"


def _number(text: str) -> Decimal | float:
    """Return a number exactly; as a float, infinite or zero, if its exponent is beyond those of ``Decimal``."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


_JSON: Final = json.JSONDecoder(parse_float=_number)


def parsed(value: bytes) -> dict[str, Any]:
    """Return the JSON object that a value is. Raises ``BadValueError``."""
    text = value.decode("utf-8", "replace")
    if not text.strip(BLANKS):
        raise BadValueError("it is empty")
    try:
        found = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        why = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise BadValueError(f"it is not JSON{why}") from None
    if not isinstance(found, dict):
        raise BadValueError(f"expected a JSON object, found {_kind(found)}")
    return found


def convert_field(name: str, value: Any, convert: Convert, problems: list[str]) -> Any:
    """Return the value that Arrow takes for one field; ``None`` and one more problem if it is bad."""
    if value is None:
        return None
    try:
        return convert(value, problems)
    except BadValueError as error:
        problems.append(f"field {name!r}: {error}")
        return None


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float() | Decimal():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _bad(kind: Any, value: Any) -> BadValueError:
    return BadValueError(f"expected {shown(kind)}, found {_kind(value)}")


# --- one type --------------------------------------------------------------------------------------------------------------------


def converter(kind: Any, zone: tzinfo) -> Convert:
    """Return the converter to a type. ``zone``: that of times that have none."""
    if pa.types.is_list(kind):
        return _array(kind, zone)
    if pa.types.is_map(kind):
        return _map(kind, zone)
    if pa.types.is_struct(kind):
        return _struct(kind, zone)
    plain = _decimal(kind) if pa.types.is_decimal(kind) else _plain(kind, zone)
    return lambda value, _: plain(value)


def _plain(kind: Any, zone: tzinfo) -> Callable[[Any], Any]:
    if kind == TIMESTAMP:
        return lambda value: (
            _seconds(kind, value) if _is_whole(value) else _time(kind, lambda text: microseconds(text, zone), value)
        )
    if kind == TIMESTAMP_NTZ:
        return functools.partial(_time, kind, lambda text: microseconds(text, None))
    if pa.types.is_date(kind):
        return functools.partial(_time, kind, days)
    return functools.partial(next(convert for belongs, convert in _SIMPLE if belongs(kind)), kind)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _boolean(kind: Any, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _bad(kind, value)
    return value


def _integer(kind: Any, value: Any) -> int:
    if not _is_whole(value):
        raise _bad(kind, value)
    signed = pa.types.is_signed_integer(kind)
    limit = 1 << kind.bit_width - signed
    if not -limit * signed <= value < limit:
        raise BadValueError(f"a number too large for {shown(kind)}")
    return int(value)


def _floating(kind: Any, value: Any) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise _bad(kind, value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _string(_: Any, value: Any) -> str:
    text = value if isinstance(value, str) else text_of(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _binary(kind: Any, value: Any) -> bytes:
    if not isinstance(value, str):
        raise _bad(kind, value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadValueError("a string that is not base64") from None


_SIMPLE: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]], ...]] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _binary),
)


def _time(kind: Any, read: Callable[[str], int], value: Any) -> int:
    if not isinstance(value, str):
        raise _bad(kind, value)
    try:
        return read(value)
    except (ValueError, OverflowError):
        raise BadValueError(f"a string that is not {shown(kind)}") from None


def _seconds(kind: Any, value: int) -> int:
    if abs(value) >= 1 << 43:  # in microseconds it must fit 64 bits
        raise BadValueError(f"a number too large for {shown(kind)}")
    return value * 1_000_000


def _decimal(kind: Any) -> Callable[[Any], Decimal]:
    unit = Decimal(1).scaleb(-kind.scale)
    context = Context(prec=kind.precision, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise _bad(kind, value)
        if isinstance(value, str) and (value != value.strip() or "_" in value):  # Python takes both
            raise _bad(kind, value)
        try:
            number = Decimal(value).quantize(unit, context=context)
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite():  # "NaN" is a Decimal too, and it rounds to itself
            raise BadValueError(f"a number that does not fit {shown(kind)}")
        return number

    return convert


def _array(kind: Any, zone: tzinfo) -> Convert:
    element = converter(kind.value_type, zone)

    def convert(value: Any, problems: list[str]) -> list[Any]:
        if not isinstance(value, list):
            raise _bad(kind, value)
        return [None if part is None else element(part, problems) for part in value]

    return convert


def _map(kind: Any, zone: tzinfo) -> Convert:
    item = converter(kind.item_type, zone)

    def convert(value: Any, problems: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _bad(kind, value)
        return {key: None if part is None else item(part, problems) for key, part in value.items()}

    return convert


def _struct(kind: Any, zone: tzinfo) -> Convert:
    parts = [(part.name, converter(part.type, zone)) for part in kind]

    def convert(value: Any, problems: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _bad(kind, value)
        return {name: convert_field(name, value.get(name), convert, problems) for name, convert in parts}

    return convert


# --- JSON as a text --------------------------------------------------------------------------------------------------------------


_TEXTS: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=float)  # a Decimal is written as a float


def text_of(value: Any) -> str:
    """Return JSON as a text without blanks, with numbers as Python writes them. Raises ``BadValueError``."""
    try:
        return _TEXTS.encode(value)
    except RecursionError:
        raise BadValueError("it is nested too deeply") from None
