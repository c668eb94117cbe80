"""Writes the fields of all messages from Kafka's own schemas: ``python -m tests.wire.generate kafka-clients-4.4.0.jar``.

What Kafka decides is written anew: which fields there are in the versions that ``versions.SUPPORTED`` allows, their order, types,
versions, tags and defaults. What people have written is kept: names and docstrings of classes, comments, defaults where Kafka has
none, and which fields are ``NotOurs``. A new field comes with Kafka's words about it, a new struct as a class of its own. For a new
API, write its two classes without fields, its number in ``Api``, and its versions in ``versions.py``; for a field
that is not ours, make it ``ClassVar = NotOurs(object, default=...)``, and the rest is filled in.
"""

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Final
from zipfile import ZipFile

from attrs import define, field

from kafka_async.testing.server import REQUESTS
from kafka_async.values import defaults_of
from kafka_async.wire import SUPPORTED, Struct, admin_shapes, messages, shapes
from kafka_async.wire.codec import CONSUMER_PROTOCOL_VERSION
from kafka_async.wire.layout import fields_of, parts_of
from kafka_async.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka_async.wire.messages.base import NEWEST
from kafka_async.wire.versions import FLEXIBLE


class SchemaError(ValueError):
    """A class cannot be what its messages need; the text says what to write by hand."""


Schema = Mapping[str, Any]
"""A message or a field, as Kafka's JSON has it."""

MODULES: Final = (
    shapes,
    admin_shapes,
    *(import_module(f"{messages.__name__}.{each.name}") for each in iter_modules(messages.__path__)),
)
"""The modules whose classes are messages, or parts of them."""
_WIDTH: Final = 132
_BASE: Final = ("Api", "NotOurs", "Request", "Response", "Struct", "int8", "int16", "int32", "int64", "since")
_TYPES: Final = {"string": "str", "bytes": "bytes", "records": "bytes", "uuid": "UUID", "bool": "bool"}
_ZEROS: Final = {"string": '""', "bytes": 'b""', "records": 'b""', "uuid": "None", "bool": "False"}


def schemas_in(jar: Path) -> dict[str, Schema]:
    """Return Kafka's schemas by name, from the jar of its clients."""
    with ZipFile(jar) as files:
        texts = [files.read(name).decode() for name in files.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
    found = (json.loads(re.sub(r"(?m)^\s*//.*$", "", text)) for text in texts)
    return {schema["name"]: schema for schema in found}


def _in(versions: Iterable[int], text: str) -> set[int]:
    """Return those of versions that are in a range which Kafka writes as ``3+``, ``0-12``, ``7`` or ``none``."""
    if text == "none":
        return set()
    first, dash, last = text.removesuffix("+").partition("-")
    newest = NEWEST if text.endswith("+") else int(last if dash else first)
    return {version for version in versions if int(first) <= version <= newest}


@define(kw_only=True)
class _Field:
    """A field of one class, put together from all places of one message where the class stands."""

    schema: Schema
    struct: str = ""
    """The name of the class of its items, if they are structs."""
    there: set[int] = field(factory=set)
    null: set[int] = field(factory=set)


@define(kw_only=True)
class _Use:
    """A class in one message."""

    possible: set[int] = field(factory=set)
    fields: dict[str, _Field] = field(factory=dict)


class _Plan:
    """What the classes are to be: walks messages and classes side by side."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self.uses: dict[str, dict[str, _Use]] = {}
        """Class -> message -> what it has there."""
        self.added: dict[str, tuple[str, str]] = {}
        """Class that there is none of yet -> the one that needs it, and Kafka's words about it."""
        self.classes: dict[str, type[Struct]] = {
            name: cls
            for module in MODULES
            for name, cls in vars(module).items()
            if isinstance(cls, type) and issubclass(cls, Struct)
        }
        for name, cls, versions, flexible in _spoken():
            schema = schemas[name]
            compact = _in(versions, schema["flexibleVersions"])
            if compact != {version for version in versions if version >= flexible}:
                raise SchemaError(f"{name} is flexible in {schema['flexibleVersions']}, and from {flexible} on in FLEXIBLE.")
            self._walk(schema, cls.__name__, schema["fields"], _in(versions, schema["validVersions"]))

    def _walk(self, message: Schema, owner: str, rows: Iterable[Schema], versions: set[int]) -> None:
        use = self.uses.setdefault(owner, {}).setdefault(message["name"], _Use())
        use.possible |= versions
        known = {name: (type_, other) for name, type_, _, other in fields_of(self.classes[owner])} if owner in self.classes else {}
        previous = ""
        for row in rows:
            there = _in(versions, row["versions"])
            if not there:
                continue
            name = _snake(row["name"])
            if name not in use.fields:
                names = [*use.fields]
                names.insert(names.index(previous) + 1 if previous else 0, name)
                use.fields = {each: use.fields.get(each) or _Field(schema=row) for each in names}
            previous = name
            found = use.fields[name]
            found.there |= there
            found.null |= _in(there, row.get("nullableVersions", "none"))
            type_, other = known.get(name, (None, None))
            inner = row.get("fields") or _common(message, row["type"])
            if inner and other is None:
                struct = None if type_ is None else parts_of(type_)[-1]
                found.struct = self._struct(owner, row) if struct is None else struct.__name__
                self._walk(message, found.struct, inner, there)

    def _struct(self, owner: str, row: Schema) -> str:
        name: str = row["type"].removeprefix("[]")
        if name in self.classes:
            raise SchemaError(
                f"{owner} needs a class for {row['name']}, and there is another one called {name}: write one without fields "
                f"under a name of its own, and {_snake(row['name'])} with that type into {owner}."
            )
        self.added[name] = (owner, row.get("about", ""))
        return name


def _spoken() -> Iterator[tuple[str, type[Struct], range, int]]:
    """Yield each message by Kafka's name, a class that it has, the versions of that class, and the first flexible one."""
    for api, spoken in SUPPORTED.items():
        flexible = FLEXIBLE.get(api, NEWEST)
        for cls in (REQUESTS[api], REQUESTS[api].response):
            old = shapes.OLD_SHAPES.get(cls) or admin_shapes.OLD_SHAPES.get(cls)
            first = spoken.lowest
            if old is not None:
                yield cls.__name__, old.cls, range(first, old.until + 1), flexible
                first = old.until + 1
            yield cls.__name__, cls, range(first, spoken.highest + 1), flexible
    for data in (ConsumerProtocolSubscription, ConsumerProtocolAssignment):
        yield data.__name__, data, range(CONSUMER_PROTOCOL_VERSION + 1), NEWEST


def _common(message: Schema, kind: str) -> Iterable[Schema]:
    name = kind.removeprefix("[]")
    return next((each["fields"] for each in message.get("commonStructs", ()) if each["name"] == name), ())


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# --- the text of a module --------------------------------------------------------------------------------------------------------


@define(kw_only=True)
class _Written:
    """What people have written about a field."""

    default: str | None = None
    comment: str = ""


def _text(plan: _Plan, module: ModuleType) -> str:
    """Return what the file of a module should be."""
    lines = Path(str(module.__file__)).read_text().splitlines()
    for node in reversed(ast.parse("\n".join(lines)).body):
        if isinstance(node, ast.ClassDef) and node.name in plan.uses:
            lines[node.lineno - 1 : node.end_lineno] = _class(plan, node, lines)
            for name in plan.added:  # each before the one that needs it
                if _owner(plan, name) == node.name:
                    place = node.decorator_list[0].lineno - 1
                    lines[place:place] = [*_new_class(plan, name), "", ""]
    return _with_imports("\n".join(lines) + "\n")


def _owner(plan: _Plan, name: str) -> str:
    """Return the class of ours before which a new one stands."""
    return _owner(plan, plan.added[name][0]) if name in plan.added else name


def _class(plan: _Plan, node: ast.ClassDef, lines: list[str]) -> list[str]:
    """Return the lines of a class with its fields anew."""
    kept, written = [lines[node.lineno - 1]], {}
    start = node.lineno
    for part in node.body:
        end = part.end_lineno or 0
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            above = [line.strip().removeprefix("# ") for line in lines[start : part.lineno - 1] if line.strip()]
            _, _, beside = lines[end - 1][part.end_col_offset :].partition("# ")
            written[part.target.id] = _Written(
                default=_default_in("\n".join(lines), part.value), comment=" ".join([*above, beside]).strip()
            )
        else:
            kept += lines[start:end]
        start = end
    fields = _fields(plan, node.name, written)
    return [*kept, *([""] if fields and kept[-1].endswith('"""') else []), *fields]


def _new_class(plan: _Plan, name: str) -> list[str]:
    about = plan.added[name][1] or "See Kafka's schema."
    return ["@frozen(kw_only=True)", f"class {name}(Struct):", f'    """{about}"""', "", *_fields(plan, name, {})]


def _default_in(text: str, value: ast.expr | None) -> str | None:
    """Return the text of a default, which may be an argument of ``since`` or ``NotOurs``."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("since", "NotOurs"):
        value = next(each.value for each in value.keywords if each.arg == "default")
    return None if value is None else ast.get_source_segment(text, value)


def _fields(plan: _Plan, owner: str, written: Mapping[str, _Written]) -> list[str]:
    """Return the lines of the fields of a class."""
    cls = plan.classes.get(owner)
    left_out = {name for name, _, _, other in fields_of(cls) if other is not None} if cls is not None else set()
    values = defaults_of(cls) if cls is not None else {}
    found: dict[str, list[str]] = {}
    for message, use in plan.uses[owner].items():
        here = {}
        for name, each in use.fields.items():
            ours = written.get(name) or _Written(comment=each.schema.get("about", ""))
            kind, versions = _kind(each), _versions(use, each)
            if name in left_out:
                code = f"ClassVar = NotOurs({', '.join([kind, f'default={ours.default}', *versions])})"
            else:
                needed = bool(versions) or (name not in written and kind.startswith("tuple"))
                default = _default(each, ours.default, values.get(name), needed=needed)
                if versions:
                    first = versions.pop(0).removeprefix("first=") if versions[0].startswith("first=") else "0"
                    default = f"since({', '.join([first, *versions, f'default={default}'])})"
                code = f"{kind} = {default}" if default else kind
            here[name] = _lines(f"{name}: {code}", ours.comment)
        if found and found != here:
            raise SchemaError(f"{owner} is not in {message} what it is elsewhere: give it a class of its own there.")
        found = here
    return [line for lines in found.values() for line in lines]


def _lines(code: str, comment: str) -> list[str]:
    line = f"    {code}  # {comment}" if comment else f"    {code}"
    if len(line) <= _WIDTH:
        return [line]
    return [*(f"    # {part}" for part in textwrap.wrap(comment, _WIDTH - 6)), f"    {code}"]


def _kind(each: _Field) -> str:
    kind = each.schema["type"].removeprefix("[]")
    text = each.struct or _TYPES.get(kind, kind if kind in _BASE else "object")
    if kind != each.schema["type"]:
        text = f"tuple[{text}, ...]"
    return f"{text} | None" if each.null or kind == "uuid" else text


def _versions(use: _Use, each: _Field) -> list[str]:
    """Return what ``Versions`` has to say of a field, if anything."""
    first, until = min(each.there), max(each.there)
    parts = {
        "first": first if first > min(use.possible) else None,
        "until": until if until < max(use.possible) else None,
        "null": min(each.null) if each.null and each.null != each.there else None,
        "tag": each.schema.get("tag"),
    }
    return [f"{name}={value}" for name, value in parts.items() if value is not None]


def _default(each: _Field, ours: str | None, value: object, *, needed: bool) -> str | None:
    """Return Kafka's default, spelled as ``ours`` if that is its ``value``; ours if Kafka has none; what is ``needed`` at least."""
    kind, said = each.schema["type"], each.schema.get("default")
    if said is not None and not each.struct:
        wanted = _value(kind, said)
        if ours is None or wanted != value:
            ours = json.dumps(wanted) if isinstance(wanted, str) else repr(wanted)
    if ours is not None or not needed:
        return ours
    return "()" if kind.startswith("[]") else f"{each.struct}()" if each.struct else _ZEROS.get(kind, "0")


def _value(kind: str, said: Any) -> object:
    """Return a default as Kafka's JSON has it: everything may stand there as a text."""
    if said == "null":
        return None
    if kind == "bool":
        return str(said).lower() == "true"
    return said if kind == "string" else int(str(said), 0)


def _with_imports(text: str) -> str:
    """Return a module that imports what its fields need."""
    body = ast.parse(text).body
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    for part in body:
        if isinstance(part, ast.ImportFrom) and not (part.module or "").endswith("base"):
            used -= {alias.name for alias in part.names}
    return re.sub(r"(?m)^(from \S*base import) .*$", lambda found: f"{found[1]} {', '.join(n for n in _BASE if n in used)}", text)


def generated(schemas: Mapping[str, Schema]) -> dict[Path, str]:
    """Return what the files of ``MODULES`` should be by Kafka's schemas.

    Raises ``SchemaError``.
    """
    plan = _Plan(schemas)
    return {Path(str(module.__file__)): _text(plan, module) for module in MODULES}


if __name__ == "__main__":
    for path, text in generated(schemas_in(Path(sys.argv[1]))).items():
        path.write_text(text)
