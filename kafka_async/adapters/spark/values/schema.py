"""Which columns a row has, and what a schema of the user's may ask for.

Decides: names, order and Spark types of the columns, and the columns of Kafka that must be decoded for those that are wanted. Owns
nothing. Must never import Spark: types are texts in Spark's DDL.

The columns are those of Spark's own connector (``KafkaRecordToRowConverter``), so that a job moves over by the name of the format.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from attrs import frozen

from ....errors import KafkaConfigurationError

HEADERS: Final = "headers"
VALUE: Final = "value"
KEY: Final = "key"
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
    """A column of a schema that the user gave.

    ``kind``: Spark's simple name of its type. ``nullable``: whether the column may be null; ``whole``: whether something within it,
    a field, an element, or an item of a map, may not.
    """

    name: str
    kind: str
    nullable: bool
    whole: bool = False


def layout(
    *, headers: bool, decoded: Mapping[str, Iterable[tuple[str, str]]] = {}, kept: Collection[str] = (), only: Iterable[str] = ()
) -> dict[str, str]:
    """Return name and DDL type of the columns of a source, in order.

    ``decoded``: the columns that stand in place of ``value`` or ``key``, and beside it if that is ``kept``. ``only``: the
    columns that are wanted (none: all). Raises ``KafkaConfigurationError`` for a decoded column that has the name of another, and
    for a wanted one that is unknown.
    """
    found: dict[str, str] = {}
    for name, kind in COLUMNS.items():
        if (name != HEADERS or headers) and (name not in decoded or name in kept):
            found[name] = kind
        if name in decoded:
            _put_decoded(found, name, decoded[name], {other for other in COLUMNS if other not in decoded or other in kept})
    by_name = {name.lower(): name for name in found}
    chosen = {}
    for name in only:
        if name.lower() not in by_name:
            raise KafkaConfigurationError(f"columns: {name!r} is not one of {', '.join(found)}")
        chosen[by_name[name.lower()]] = found[by_name[name.lower()]]
    return chosen or found


def _put_decoded(found: dict[str, str], part: str, decoded: Iterable[tuple[str, str]], taken: Iterable[str]) -> None:
    names = {name.lower() for name in (*found, *taken)}
    for name, kind in decoded:
        if name.lower() in names:
            raise KafkaConfigurationError(
                f"{part}.schema: a field {name!r} would have the name of another column; {part}.prefix gives all of them a prefix"
            )
        names.add(name.lower())
        found[name] = kind


def ddl(columns: Mapping[str, str]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


def projection(fields: Iterable[Field], known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the column of ``known`` that each field of the user's schema means.

    Raises ``KafkaConfigurationError`` for a column that is not there, has another type, or may be null if the schema denies it,
    and for a schema without columns: Spark would count no rows.
    """
    by_name = {name.lower(): name for name in known}
    chosen: list[str] = []
    for field in fields:
        name = by_name.get(field.name.lower())
        if name is None:
            hint = "; set includeHeaders to true" if field.name.lower() == HEADERS else ""
            raise KafkaConfigurationError(f"schema: there is no column {field.name!r}; expected some of {', '.join(known)}{hint}")
        if name in COLUMNS and known[name] == COLUMNS[name] and field.kind != _SIMPLE[name]:
            raise KafkaConfigurationError(f"schema: column {name} is {COLUMNS[name]}, not {field.kind.upper()}")
        if not field.nullable and (name not in COLUMNS or name in _NULLABLE):
            raise KafkaConfigurationError(f"schema: column {name} can be null; it cannot be NOT NULL")
        if field.whole:
            raise KafkaConfigurationError(f"schema: the content of column {name} can be null; it cannot be NOT NULL")
        chosen.append(name)
    if not chosen:
        raise KafkaConfigurationError(f"schema: there are no columns; expected at least one of {', '.join(known)}")
    return tuple(chosen)


def kafka_columns(names: Iterable[str], decoded: Mapping[str, str] = {}) -> frozenset[str]:
    """Return the columns to decode from records for these of a row; ``decoded``: what part of a record a column comes out of."""
    return frozenset(decoded.get(name) or _DECODED.get(name, name) for name in names)
