"""Spark's DDL for columns, ``a INT, b STRUCT<c: STRING>``, as Arrow types and back.

Decides: which Spark types a value can be decoded to. Owns nothing. Must never import Spark: an executor has it, a plan needs no
JVM. Types that have no JSON and no Avro form here (intervals, VARIANT, TIME, collations) are refused by name.

Spark parses only the columns that a query reads, and hands them over as types. That is not enough: what counts as a bad value must
not depend on which of its fields are read, so with ``_corrupt`` all fields of ``value.schema`` are decoded.

Sources: the "Data types" page of Spark's SQL reference; ``pyspark.sql.pandas.types.to_arrow_type`` for the Arrow side.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from attrs import define, field

from ....errors import KafkaConfigurationError

Fields = tuple[tuple[str, Any], ...]
"""Names and ``pyarrow.DataType`` of columns, in order."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
MAX_PRECISION: Final = 38
MAX_DEPTH: Final = 100
"""Types within types; Spark's own limits lie far beyond what a schema has."""

_PLAIN: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}
_OTHER_NAMES: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_SIZED: Final = ("VARCHAR", "CHAR", "CHARACTER")
_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|(\w+)|([<>(),:])|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\S))")
_NAMES: Final = {kind: name for name, kind in _PLAIN.items()}


def parse_fields(text: str) -> Fields:
    """Return the columns that ``text`` declares; a single ``STRUCT<...>`` stands for its fields.

    ``NOT NULL`` is dropped, as ``from_json`` does: no record can be made to keep it. Raises ``KafkaConfigurationError`` that names
    what was found and what was expected.
    """
    parser = _Parser.of(text)
    if [token.upper() for _, token in parser.tokens[:2]] == ["STRUCT", "<"]:
        found = tuple((part.name, part.type) for part in parser.type())
    else:
        found = parser.fields("")
    if (rest := parser.peek()) != "":
        raise KafkaConfigurationError(f"value.schema: expected a comma or the end, found {rest!r}")
    return found


def ddl(kind: Any) -> str:
    """Return the DDL of a type that ``parse_fields`` gives."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quoted(part.name)}: {ddl(part.type)}' for part in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{ddl(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _NAMES[kind]


def quoted(name: str) -> str:
    """Return a name in backquotes."""
    return f"`{name.replace('`', '``')}`"


def array_of(kind: Any) -> Any:
    """Return the Arrow type of an array, with Spark's name for its elements."""
    return pa.list_(pa.field("element", kind))


def decimal(precision: int, scale: int, where: str) -> Any:
    """Return a decimal type. Raises ``KafkaConfigurationError`` for one that Spark does not have."""
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise KafkaConfigurationError(f"{where}: DECIMAL({precision},{scale}); expected 1 to {MAX_PRECISION} digits, scale within")
    return pa.decimal128(precision, scale)


def check_names(names: Iterable[str], where: str) -> None:
    """Raise ``KafkaConfigurationError`` for a name that is there twice; Spark tells columns apart without regard to case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise KafkaConfigurationError(f"{where}: two fields have the name {name!r}")
        seen.add(name.lower())


@define(eq=False)
class _Parser:
    """Reads tokens from left to right; every token is a pair of what it is and its text."""

    tokens: list[tuple[str, str]]
    at: int = field(default=0, init=False)
    depth: int = field(default=0, init=False)

    @classmethod
    def of(cls, text: str) -> "_Parser":
        kinds = ("quoted", "word", "sign", "text", "unknown")
        found = []
        for match in _TOKEN.finditer(text):
            kind = kinds[(match.lastindex or 1) - 1]
            token = match[match.lastindex or 1]
            if kind == "unknown":
                raise KafkaConfigurationError(f"value.schema: unexpected {token!r} at character {match.start(5) + 1}")
            found.append((kind, token.replace("``", "`") if kind == "quoted" else token))
        return cls(found)

    def peek(self) -> str:
        """Return the next token, in capitals if it is a word; the empty text at the end."""
        if self.at == len(self.tokens):
            return ""
        kind, token = self.tokens[self.at]
        return token.upper() if kind == "word" else token

    def take(self, *expected: str) -> str:
        """Return the next token and move on. Raises ``KafkaConfigurationError`` if it is none of ``expected``."""
        token = self.peek()
        if expected and token not in expected:
            raise KafkaConfigurationError(f"value.schema: expected {' or '.join(expected)}, found {token or 'the end'!r}")
        self.at += 1
        return token

    def skip(self, *tokens: str) -> bool:
        """Move over ``tokens`` if they come next, and say whether they did."""
        ahead = [token.upper() for _, token in self.tokens[self.at : self.at + len(tokens)]]
        if ahead == list(tokens):
            self.at += len(tokens)
            return True
        return False

    def fields(self, end: str) -> Fields:
        found = [self.field()]
        while self.skip(","):
            found.append(self.field())
        if end:
            self.take(end)
        check_names((name for name, _ in found), "value.schema")
        return tuple(found)

    def field(self) -> tuple[str, Any]:
        kind, name = self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")
        if kind not in ("quoted", "word"):
            raise KafkaConfigurationError(f"value.schema: expected the name of a field, found {name or 'the end'!r}")
        self.at += 1
        self.skip(":")
        found = self.type()
        self.skip("NOT", "NULL")
        if self.skip("COMMENT"):
            self.take()
        return name, found

    def type(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise KafkaConfigurationError(f"value.schema: more than {MAX_DEPTH} types within each other")
        name = self.take()
        found = self._nested(name) if name in ("ARRAY", "MAP", "STRUCT") else self._simple(name)
        self.depth -= 1
        return found

    def _nested(self, name: str) -> Any:
        self.take("<")
        if name == "STRUCT":
            return pa.struct(list(self.fields(">")))
        first = self.type()
        if name == "MAP":
            self.take(",")
            found = pa.map_(first, self.type())
        else:
            found = array_of(first)
        self.take(">")
        return found

    def _simple(self, name: str) -> Any:
        if name in _DECIMAL:
            precision, scale = self._numbers() or (10, 0)
            return decimal(precision, scale, "value.schema")
        if name in _SIZED:
            self._numbers()
            return pa.string()
        found = _PLAIN.get(_OTHER_NAMES.get(name, name))
        if found is None:
            expected = ", ".join((*_PLAIN, "DECIMAL(p,s)", "ARRAY<...>", "MAP<...>", "STRUCT<...>"))
            raise KafkaConfigurationError(
                f"value.schema: {name or 'the end'!r} is not a type that a value can have; expected {expected}"
            )
        return found

    def _numbers(self) -> tuple[int, int] | None:
        """Return ``(a)`` or ``(a, b)``, where it comes next."""
        if not self.skip("("):
            return None
        numbers = [self._number()]
        if self.skip(","):
            numbers.append(self._number())
        self.take(")")
        return numbers[0], (numbers[1] if len(numbers) > 1 else 0)

    def _number(self) -> int:
        token = self.take()
        if not token.isdecimal() or len(token) > 9:
            raise KafkaConfigurationError(f"value.schema: expected a number, found {token or 'the end'!r}")
        return int(token)
