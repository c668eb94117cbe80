"""Which columns a row has, and what a schema of the user's may ask for.

Decides: names, order and Spark types of the columns, and the columns of Kafka that must be decoded for those that are wanted. Owns
nothing. Must never import Spark: types are texts in Spark's DDL.

The columns are those of Spark's own connector (``KafkaRecordToRowConverter``), so that a job moves over by the name of the format.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from ...errors import KafkaConfigurationError

HEADERS: Final = "headers"
VALUE: Final = "value"
COLUMNS: Final[Mapping[str, str]] = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Name and type of every column, in order; ``headers`` only on request."""

_SIMPLE: Final[Mapping[str, str]] = {name: kind.lower() for name, kind in COLUMNS.items()} | {
    "headers": "array<struct<key:string,value:binary>>"
}
_DECODED: Final[Mapping[str, str]] = {"timestampType": "timestamp_type"}
"""Names of the decoder's columns, where they differ."""
_NULLABLE: Final = frozenset(("key", "value", "headers"))


@frozen
class Field:
    """A column of a schema that the user gave: name, Spark's simple name of its type, and whether it may be null."""

    name: str
    kind: str
    nullable: bool


def layout(*, headers: bool, decoded: Iterable[tuple[str, str]] | None = None, only: Iterable[str] = ()) -> dict[str, str]:
    """Return name and DDL type of the columns of a source, in order.

    ``decoded``: the columns that stand in place of ``value``. ``only``: the columns that are wanted (none: all). Raises
    ``KafkaConfigurationError`` for a decoded column that has the name of another, and for a wanted one that is unknown.
    """
    found: dict[str, str] = {}
    for name, kind in COLUMNS.items():
        if name == VALUE and decoded is not None:
            _put_decoded(found, decoded)
        elif name != HEADERS or headers:
            found[name] = kind
    by_name = {name.lower(): name for name in found}
    chosen = {}
    for name in only:
        if name.lower() not in by_name:
            raise KafkaConfigurationError(f"columns: {name!r} is none of {', '.join(found)}")
        chosen[by_name[name.lower()]] = found[by_name[name.lower()]]
    return chosen or found


def _put_decoded(found: dict[str, str], decoded: Iterable[tuple[str, str]]) -> None:
    taken = {name.lower() for name in COLUMNS if name != VALUE}
    for name, kind in decoded:
        if name.lower() in taken:
            raise KafkaConfigurationError(f"value.schema: a field {name!r} would have the name of another column")
        taken.add(name.lower())
        found[name] = kind


def ddl(columns: Mapping[str, str]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


def projection(fields: Iterable[Field], known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the column of ``known`` that each field of the user's schema means.

    Raises ``KafkaConfigurationError`` for a column that is not there, has another type, or may be null where the schema denies it.
    """
    by_name = {name.lower(): name for name in known}
    chosen = []
    for field in fields:
        name = by_name.get(field.name.lower())
        if name is None:
            hint = "; set includeHeaders to true" if field.name.lower() == HEADERS else ""
            raise KafkaConfigurationError(f"schema: there is no column {field.name!r}; expected some of {', '.join(known)}{hint}")
        if name in COLUMNS and known[name] == COLUMNS[name] and field.kind != _SIMPLE[name]:
            raise KafkaConfigurationError(f"schema: column {name} is {COLUMNS[name]}, not {field.kind.upper()}")
        if not field.nullable and (name not in COLUMNS or name in _NULLABLE):
            raise KafkaConfigurationError(f"schema: column {name} can be null; it cannot be NOT NULL")
        chosen.append(name)
    return tuple(chosen)


def kafka_columns(names: Iterable[str]) -> frozenset[str]:
    """Return the decoder's columns that are needed for these of a row; a name that is not Kafka's comes out of ``value``."""
    return frozenset(_DECODED.get(name, name) if name in COLUMNS else VALUE for name in names)
