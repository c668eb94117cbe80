"""Spark's DDL for columns, ``a INT, b STRUCT<c: STRING>``, as Arrow types.

Types that have no JSON and no Avro form here (intervals, VARIANT, TIME, collations) are refused by name.

PySpark has no parser of its own: it asks the JVM, which the processes that plan a read cannot reach. Spark parses what ``schema()``
returns, but a job that names its columns with ``.schema(...)`` is not asked for that, and what counts as a bad value must not
depend on which fields are read: with ``_corrupt`` all fields of ``value.schema`` are decoded.

Source: the "Data types" page of Spark's SQL reference.
"""

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from ...config.spelling import did_you_mean
from ...errors import KafkaConfigurationError
from ...values import define

Fields = tuple[tuple[str, Any], ...]
"""Names and ``pyarrow.DataType`` of columns, in order."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
MAX_PRECISION: Final = 38
MAX_DEPTH: Final = 100
"""Types within types; Spark's own limits lie far beyond what a schema has."""

_SIMPLE: Final = {
    "BOOLEAN": pa.bool_(),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), TIMESTAMP),
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}
_SIZED: Final = ("VARCHAR", "CHAR", "CHARACTER")
_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")
_NAME: Final = re.compile(r"`(?:[^`]|``)+`|\w+")
_TEXT: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_TOKEN: Final = re.compile(rf"{_NAME.pattern}|{_TEXT.pattern}|\S")
"""A name, a text in quotes, or a sign."""


def parse_fields(text: str) -> Fields:
    """Return the columns that ``text`` declares; a single ``STRUCT<...>`` stands for its fields.

    ``NOT NULL`` is dropped, as ``from_json`` does: no record can be made to keep it. Raises ``KafkaConfigurationError`` that names
    what was found and what was expected.
    """
    parser = _Parser(_TOKEN.findall(text)[::-1])
    if [token.upper() for token in parser.left[:-3:-1]] == ["STRUCT", "<"]:
        found = tuple((part.name, part.type) for part in parser.type())
    else:
        found = parser.fields()
    if parser.left:
        raise KafkaConfigurationError(f"value.schema: expected a comma or the end, found {parser.peek()!r}")
    return found


_SHOWN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    **{kind: str(kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
    pa.duration("us"): "interval day to second",
}


@functools.cache
def shown(kind: Any) -> str:
    """Return what people call an Arrow type in Spark: ``BIGINT``, ``struct<x:int>``."""
    text = _simple(kind)
    return text if "<" in text else text.upper()  # names of fields stay as they are


def _simple(kind: Any) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{part.name}:{_simple(part.type)}' for part in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_simple(kind.key_type)},{_simple(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{_simple(kind.value_type)}>"
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _SHOWN[kind]


def list_type(kind: Any) -> Any:
    """Return the Arrow type of an array, with Spark's name for its elements."""
    return pa.list_(pa.field("element", kind))


def decimal(precision: int, scale: int, where: str) -> Any:
    """Return a decimal type. Raises ``KafkaConfigurationError`` for one that Spark does not have."""
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise KafkaConfigurationError(f"{where}: DECIMAL({precision},{scale}); expected 1 to {MAX_PRECISION} digits, scale within")
    return pa.decimal128(precision, scale)


def check_names(names: Iterable[str], where: str) -> None:
    """Raise ``KafkaConfigurationError`` for a name that appears twice; Spark ignores the case of column names."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise KafkaConfigurationError(f"{where}: two fields have the name {name!r}")
        seen.add(name.lower())


@define(eq=False)
class _Parser:
    """Reads tokens from left to right."""

    left: list[str]
    """Those that are still to be read, the next one last."""

    def peek(self) -> str:
        """Return the next token in capitals; the empty text at the end."""
        return self.left[-1].upper() if self.left else ""

    def take(self, *expected: str) -> str:
        """Return the next token and move on. Raises ``KafkaConfigurationError`` if it is none of ``expected``."""
        token = self.peek()
        if expected and token not in expected:
            raise KafkaConfigurationError(f"value.schema: expected {' or '.join(expected)}, found {token or 'the end'!r}")
        del self.left[-1:]
        return token

    def skip(self, token: str) -> bool:
        """Move over ``token`` if it comes next, and say whether it did."""
        if found := self.peek() == token:
            self.take()
        return found

    def fields(self, depth: int = 0) -> Fields:
        found = [self.field(depth)]
        while self.skip(","):
            found.append(self.field(depth))
        check_names((name for name, _ in found), "value.schema")
        return tuple(found)

    def field(self, depth: int) -> tuple[str, Any]:
        name = self.left[-1] if self.left else ""
        if not _NAME.fullmatch(name):
            raise KafkaConfigurationError(f"value.schema: expected the name of a field, found {name or 'the end'!r}")
        self.take()
        self.skip(":")
        found = self.type(depth)
        if self.skip("NOT"):
            self.take("NULL")
        if self.skip("COMMENT") and not _TEXT.fullmatch(text := self.take()):
            raise KafkaConfigurationError(f"value.schema: expected a comment in quotes, found {text or 'the end'!r}")
        return name[1:-1].replace("``", "`") if name.startswith("`") else name, found

    def type(self, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise KafkaConfigurationError(f"value.schema: more than {MAX_DEPTH} nested types")
        name = self.take()
        if name in ("ARRAY", "MAP", "STRUCT"):
            self.take("<")
            found = self.nested(name, depth + 1)
            self.take(">")
            return found
        if name in _DECIMAL:
            precision, scale = (*(numbers := self.numbers()), *(10, 0)[len(numbers) :])
            return decimal(precision, scale, "value.schema")
        if name in _SIZED:
            self.numbers()
            return pa.string()
        if name not in _SIMPLE:
            expected = ", ".join((*_SIMPLE, "DECIMAL(p,s)", "ARRAY<...>", "MAP<...>", "STRUCT<...>"))
            unquoted = name and not name[0].isalnum()
            hint = "; a name that holds this character has to be in backquotes" if unquoted else did_you_mean(name, _SIMPLE)
            raise KafkaConfigurationError(f"value.schema: {name or 'the end'!r} is not a supported type; expected {expected}{hint}")
        return _SIMPLE[name]

    def nested(self, name: str, depth: int) -> Any:
        if name == "STRUCT":
            return pa.struct(list(self.fields(depth)))
        first = self.type(depth)
        if name == "ARRAY":
            return list_type(first)
        self.take(",")
        return pa.map_(first, self.type(depth))

    def numbers(self) -> list[int]:
        """Return ``(a)`` or ``(a, b)``, where it comes next."""
        if not self.skip("("):
            return []
        found = [self.number()]
        if self.skip(","):
            found.append(self.number())
        self.take(")")
        return found

    def number(self) -> int:
        token = self.take()
        if not token.isdecimal() or len(token) > 9:
            raise KafkaConfigurationError(f"value.schema: expected a number, found {token or 'the end'!r}")
        return int(token)
