"""What a JSON value means by itself, read without msgspec and without Arrow: with what it is compared in company."""

from datetime import tzinfo
from typing import Any

from kafka_async.adapters.values.ddl import Fields
from kafka_async.adapters.values.decoding import BadValueError
from kafka_async.adapters.values.json_records import convert_field, converter, parsed


def read_alone(columns: Fields, zone: tzinfo, value: bytes | None) -> tuple[list[Any], str | None]:
    """Return what a value holds for each column, and what is wrong with it."""
    try:
        found = {} if value is None else parsed(value)
    except BadValueError as error:
        return [None] * len(columns), str(error)
    problems: list[str] = []
    row = [convert_field(name, found.get(name), converter(kind, zone), problems) for name, kind in columns]
    return row, next(iter(problems), None)
