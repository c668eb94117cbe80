"""Which columns a row has, and which schemas a user may give.

The columns are those of Spark's own connector (``KafkaRecordToRowConverter``), so that a job moves over by the name of the format.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...config.spelling import did_you_mean
from ...errors import KafkaConfigurationError

HEADERS: Final = "headers"
COLUMNS: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
"""Name and type of every column, in order; ``headers`` only on request."""

_DECODED: Final[Mapping[str, str]] = {"timestampType": "timestamp_type"}
"""Names of the decoder's columns, where they differ."""
_NULLABLE: Final = frozenset(("key", "value", "headers"))


def layout(
    *,
    headers: bool,
    decoded: Mapping[str, Iterable[tuple[str, DataType]]] = {},
    kept: Collection[str] = (),
    only: Iterable[str] = (),
) -> dict[str, DataType]:
    """Return name and type of the columns of a source, in order.

    ``decoded``: the columns that take the place of ``value`` or ``key``, or follow it if that is ``kept``. ``only``: the
    columns that are wanted (none: all). Raises ``KafkaConfigurationError`` for a decoded column that has the name of another, and
    for a wanted one that is unknown.
    """
    found: dict[str, DataType] = {}
    for name, kind in COLUMNS.items():
        if (name != HEADERS or headers) and (name not in decoded or name in kept):
            found[name] = kind
        if name in decoded:
            _put_decoded(found, name, decoded[name], {other for other in COLUMNS if other not in decoded or other in kept})
    by_name = {name.lower(): name for name in found}
    chosen = {}
    for name in only:
        if name.lower() not in by_name:
            raise KafkaConfigurationError(f"columns: {name!r} is not one of {', '.join(found)}{did_you_mean(name, found)}")
        chosen[by_name[name.lower()]] = found[by_name[name.lower()]]
    return chosen or found


def _put_decoded(found: dict[str, DataType], part: str, decoded: Iterable[tuple[str, DataType]], taken: Iterable[str]) -> None:
    names = {name.lower() for name in (*found, *taken)}
    for name, kind in decoded:
        if name.lower() in names:
            raise KafkaConfigurationError(
                f"{part}.schema: a field {name!r} would have the name of another column; {part}.prefix gives all of them a prefix"
            )
        names.add(name.lower())
        found[name] = kind


def shown(kind: DataType) -> str:
    """Return a type as messages have it; what may be null does not show."""
    text = kind.simpleString()
    return text if "<" in text else text.upper()  # names of fields stay as they are


def projection(schema: StructType, known: Mapping[str, DataType]) -> tuple[str, ...]:
    """Return the column of ``known`` that each field of the user's schema means.

    Raises ``KafkaConfigurationError`` for a column that is not there, has another type, or may be null, itself or within, if the
    schema denies it, and for a schema without columns: Spark would count no rows.
    """
    by_name = {name.lower(): name for name in known}
    chosen: list[str] = []
    for field in schema.fields:
        name = by_name.get(field.name.lower())
        if name is None:
            hint = "; set includeHeaders to true" if field.name.lower() == HEADERS else ""
            raise KafkaConfigurationError(f"schema: there is no column {field.name!r}; expected some of {', '.join(known)}{hint}")
        here, wanted = shown(known[name]), shown(field.dataType)
        if here != wanted or not _alike(known[name], field.dataType):
            raise KafkaConfigurationError(f"schema: column {name} is {here}, not {wanted}")
        if name in chosen:
            raise KafkaConfigurationError(f"schema: column {name} appears twice")
        if not field.nullable and (name not in COLUMNS or name in _NULLABLE):
            raise KafkaConfigurationError(f"schema: column {name} can be null; it cannot be NOT NULL")
        within = StructType([StructField(name, field.dataType)])
        if within.toNullable() != within:
            raise KafkaConfigurationError(f"schema: the content of column {name} can be null; it cannot be NOT NULL")
        chosen.append(name)
    if not chosen:
        raise KafkaConfigurationError(f"schema: there are no columns; expected at least one of {', '.join(known)}")
    return tuple(chosen)


def _alike(one: DataType, other: DataType) -> bool:
    """Return whether types that look alike are: names of fields may have colons and commas. What may be null does not count."""
    from pyspark.sql.pandas.types import to_arrow_schema

    first, second = (to_arrow_schema(StructType([StructField("", kind)]).toNullable(), timezone="UTC") for kind in (one, other))
    return bool(first == second)


def kafka_columns(names: Iterable[str], decoded: Mapping[str, str] = {}) -> frozenset[str]:
    """Return the columns to decode from records for these of a row; ``decoded``: what part of a record a column comes out of."""
    return frozenset(decoded.get(name) or _DECODED.get(name, name) for name in names)
