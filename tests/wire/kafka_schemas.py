"""Writes ``kafka_async/wire/schemas.py`` from ``kio``, which Aiven generates from Kafka's own. Used by hand and by its test.

    python -m tests.wire.kafka_schemas

Decides: how the classes that ``kio`` has for each version of a struct become one table of fields with their versions. Owns nothing.
Must never guess: what does not fit Kafka's own form (a field that comes, goes and comes again) is an ``AssertionError``.

Names: Kafka's in the form of Python, with ``_ms`` where ``kio`` has a time without it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from kafka_async.testing.server import REQUESTS
from kafka_async.wire import Api, schemas
from kafka_async.wire.schemas import Field, Message, Versions

PATH: Final = Path(schemas.__file__)
MARK: Final = "# What follows is generated: python -m tests.wire.kafka_schemas\n# fmt: off\n"
DATA: Final = {
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
}
"""Structs that are neither requests nor responses -> their modules in ``kio``."""
NEWER: Final[Mapping[str, tuple[int, tuple[Field, ...]]]] = {
    "ApiVersionsRequest": (
        5,
        (Field("cluster_id", "string", (5, 5), nullable=(5, 5)), Field("node_id", "int32", (5, 5))),
    ),
    "ApiVersionsResponse": (5, ()),
}
"""Messages of Kafka 4.4 that ``kio`` does not have yet -> their newest version, and the fields that it adds at the end."""
AHEAD_OF_KIO: Final = frozenset({(Api.API_VERSIONS, 5)})
"""The same as versions of APIs."""
TYPES: Final[Mapping[str, str]] = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "records": "bytes",
}
"""``kio``'s types that Kafka knows by another name."""


def modules() -> Iterator[tuple[str, str]]:
    """Yield the name of each message that we speak, and its module in ``kio``."""
    for api, cls in REQUESTS.items():
        yield cls.__name__, api.name.lower()
        yield cls.response.__name__, api.name.lower()
    yield from DATA.items()


@cache
def entities(name: str, module: str) -> dict[int, Any]:
    """Return the class that ``kio`` has for each version of a message."""
    part = next((part for part in ("request", "response") if name.lower().endswith(part)), "data")
    package = import_module(f"kio.schema.{module}")
    numbers = sorted(int(found.name[1:]) for found in iter_modules(package.__path__) if found.name.startswith("v"))
    return {number: getattr(import_module(f"kio.schema.{module}.v{number}.{part}"), name) for number in numbers}


def message(name: str, module: str) -> Message:
    """Return a message in all of its versions."""
    found = entities(name, module)
    flexible = [version for version, entity in found.items() if entity.__flexible__]
    assert not flexible or flexible[-1] == max(found), name
    made = Message(span(found), _fields(found), min(flexible, default=None))
    return made if name not in NEWER else _extended(made, *NEWER[name])


def _extended(known: Message, newest: int, more: tuple[Field, ...]) -> Message:
    """Return a message with one more version, in which every field that was there last still is."""
    first, last = known.versions
    assert newest == last + 1, "kio has caught up"
    return Message((first, newest), (*_kept(known.fields, last, newest), *more), known.flexible)


def _kept(fields: tuple[Field, ...], last: int, newest: int) -> tuple[Field, ...]:
    def longer(versions: Versions) -> Versions:
        return (versions[0], newest) if versions[1] == last else versions

    return tuple(
        field._replace(
            versions=longer(field.versions),
            nullable=longer(field.nullable) if field.nullable is not None else None,
            fields=_kept(field.fields, last, newest),
        )
        for field in fields
    )


def span(versions: Iterable[int]) -> Versions:
    """Return the first and the last of versions, none of which is missing between them."""
    numbers = sorted(versions)
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
    return numbers[0], numbers[-1]


def _fields(entities_: Mapping[int, Any]) -> tuple[Field, ...]:
    by_version = {version: {_name(field): field for field in dataclasses.fields(entity)} for version, entity in entities_.items()}
    found = []
    for name in _order([list(fields) for fields in by_version.values()]):
        there = {version: fields[name] for version, fields in by_version.items() if name in fields}
        shapes = {version: _shape(field.type) for version, field in there.items()}
        (kind,) = {field.metadata.get("kafka_type", "struct") for field in there.values()}
        (array,) = {shape[0] for shape in shapes.values()}
        tagged = {version: field.metadata["tag"] for version, field in there.items() if "tag" in field.metadata}
        assert not tagged or span(tagged) == span(there), f"{name} is tagged in some of its versions"
        nullable = [version for version, shape in shapes.items() if shape[1]]
        found.append(
            Field(
                name,
                "[]" * array + TYPES.get(kind, kind),
                span(there),
                nullable=span(nullable) if nullable else None,
                tag=next(iter(set(tagged.values())), None),
                fields=_fields({version: shape[2] for version, shape in shapes.items()}) if kind == "struct" else (),
            )
        )
    return tuple(found)


def _name(field: "dataclasses.Field[Any]") -> str:
    kind = field.metadata.get("kafka_type", "struct")
    return field.name + "_ms" if kind.startswith(("timedelta", "datetime")) else field.name


def _shape(annotation: Any) -> tuple[bool, bool, Any]:
    """Return whether a type is an array, whether it may be null, and the type inside."""
    nullable = False
    if get_origin(annotation) in (Union, UnionType):
        nullable = NoneType in get_args(annotation)
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is tuple:
        return True, nullable, get_args(annotation)[0]
    return False, nullable, annotation


def _order(lists: list[list[str]]) -> list[str]:
    """Return all names in an order that agrees with each of the lists."""
    rest, found = [names for names in lists if names], []
    while rest:
        first = next(names[0] for names in rest if not any(names[0] in other[1:] for other in rest))
        found.append(first)
        rest = [left for names in rest if (left := names[1:] if names[0] == first else names)]
    return found


def text() -> str:
    """Return what the module should be."""
    head, mark, _ = PATH.read_text().partition(MARK)
    assert mark, f"{PATH} has lost the line from which on it is generated"
    lines = [head, mark, "_SCHEMAS: Final[Mapping[str, tuple[Versions, int | None, tuple[tuple[Any, ...], ...]]]] = {\n"]
    for name, module in sorted(modules()):
        found = message(name, module)
        lines.append(f'    "{name}": ({found.versions}, {found.flexible}, (\n')
        lines += _lines(found.fields, 2)
        lines.append("    )),\n")
    return "".join([*lines, "}\n", '"""Each message by its name: versions, the first flexible one, fields."""\n'])


def _lines(fields: Iterable[Field], depth: int) -> Iterator[str]:
    for field in fields:
        row = list(field[:5])
        while not field.fields and row[-1] is None:
            row.pop()
        start = f"{'    ' * depth}({', '.join(_text(value) for value in row)}"
        if not field.fields:
            yield f"{start}),\n"
            continue
        yield f"{start}, (\n"
        yield from _lines(field.fields, depth + 1)
        yield f"{'    ' * depth})),\n"


def _text(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    PATH.write_text(text())
