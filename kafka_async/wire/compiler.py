"""Readers and writers of structs, compiled from their layouts.

For each layout two small functions are generated and compiled, as attrs does for ``__init__``: neighboring fields of fixed size
are unpacked by one ``struct`` call, everything else by a reader of ``primitives.py``. A generated reader looks like this::

    def generated(buffer, offset):
        value = new(twin)
        value.partition_index, value.error_code, value.high_watermark, ... = unpack0(buffer, offset)
        offset += 30
        length = buffer[offset]
        if length == 1:
            value.aborted_transactions = ()
            offset += 1
        elif length == 2:
            item, offset = one5(buffer, offset + 1)
            value.aborted_transactions = (item,)
        else:
            value.aborted_transactions, offset = item5(buffer, offset)
        ...
        value.current_leader = default_current_leader
        offset = read_tags(buffer, offset, tags, value) if buffer[offset] else offset + 1
        value.__class__ = cls
        return value, offset

The lengths that nearly every message has (no item, one item, no text) are read and written in place, since a call costs more than
what it would do; ``primitives.py`` has the whole rule, and everything else goes there. What reads and writes the structs inside is
made when the first one is met.

``twin`` has the slots of ``cls`` without its guard against assignment. A frozen class sets every field through
``object.__setattr__``, which takes five times as long as everything else (1.1 us against 0.2 us for the partition of a fetch).
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from struct import Struct as Layout
from typing import Any

from ..values import defaults_of
from . import primitives
from .layout import WireField, WireStruct, memo
from .messages.base import Struct
from .primitives import Reader, Writer

_VARIABLE = ("string", "bytes", "struct")


def _fixed(field: WireField) -> bool:
    return not field.array and field.kind not in _VARIABLE


def _runs(struct: WireStruct) -> Iterator[tuple[bool, int, list[WireField]]]:
    """Group the untagged fields: (fixed size?, index of the first, fields); a field of variable size stands alone."""
    plain = [(i, field) for i, field in enumerate(struct.fields) if field.tag is None]
    for (fixed, _), group in groupby(plain, key=lambda pair: (_fixed(pair[1]), 0 if _fixed(pair[1]) else pair[0])):
        members = list(group)
        yield fixed, members[0][0], [field for _, field in members]


def _compile(lines: list[str], scope: dict[str, Any], cls: type) -> Any:
    code = compile("\n".join(lines), f"<wire of {cls.__name__}>", "exec")
    exec(code, scope)  # noqa: S102 - the source is made of our own field names only, as attrs makes __init__
    return scope["generated"]


def _twin(cls: type[Struct]) -> type:
    """Return a class of the same layout as ``cls`` whose fields can be assigned and whose instances can become ``cls``."""
    return type(cls.__name__, cls.__bases__, {"__slots__": cls.__slots__})


@memo
def reader(struct: WireStruct) -> Reader:
    """Return the reader of a struct; fields that the layout lacks get the defaults of its class.

    Each is compiled once: the source of a field names the reader of its struct twice, and versions share many structs.
    """
    scope: dict[str, Any] = {"new": object.__new__, "cls": struct.cls, "twin": _twin(struct.cls)}
    scope |= {"to_uuid": primitives.to_uuid, "read_tags": primitives.read_tags}
    lines = ["def generated(buffer, offset):", "    value = new(twin)"]
    for fixed, index, fields in _runs(struct):
        if fixed:
            layout = Layout(">" + "".join(field.kind for field in fields))
            scope[f"unpack{index}"] = layout.unpack_from
            targets = ", ".join("_" if field.skipped is not None else f"value.{field.name}" for field in fields)
            lines.append(f"    {targets}, = unpack{index}(buffer, offset)")
            lines.append(f"    offset += {layout.size}")
            lines += [f"    value.{field.name} = to_uuid(value.{field.name})" for field in fields if field.kind == "16s"]
        else:
            lines += _variable_lines(fields[0], index, struct, scope)
    lines += _default_lines(struct, scope)
    if struct.flexible:
        scope["tags"] = {f.tag: (f.name, _tag(f, _both_readers)) for f in struct.fields if f.tag is not None}
        lines.append("    offset = read_tags(buffer, offset, tags, value) if buffer[offset] else offset + 1")
    compiled: Reader = _compile([*lines, "    value.__class__ = cls", "    return value, offset"], scope, struct.cls)
    return compiled


def _put(scope: dict[str, Any], index: int, field: WireField, make: Callable[[], tuple[Any, Any]]) -> None:
    """Put the functions for a field and for one item of it into ``scope``; those for structs are made when one is met.

    Most of the structs in Kafka's messages are in few of them: hints at a new leader, aborted transactions, errors.
    """
    names = f"item{index}", f"one{index}"

    def later(name: str) -> Callable[..., Any]:
        def first(*arguments: Any) -> Any:
            scope.update(zip(names, make(), strict=True))  # two threads make them twice, and the same
            return scope[name](*arguments)

        return first

    scope.update(zip(names, map(later, names) if field.kind == "struct" else make(), strict=True))


def _variable_lines(field: WireField, index: int, struct: WireStruct, scope: dict[str, Any]) -> list[str]:
    """Return the lines that read a field of variable size; short arrays of compact length in place."""
    _put(scope, index, field, lambda: _both_readers(field, struct.flexible))
    line = f"value.{field.name}, offset = item{index}(buffer, offset)"
    if not (struct.flexible and field.array and field.kind in _VARIABLE):
        return [f"    {line}"]
    return [
        "    length = buffer[offset]",
        "    if length == 1:",
        f"        value.{field.name} = ()",
        "        offset += 1",
        "    elif length == 2:",
        f"        item, offset = one{index}(buffer, offset + 1)",
        f"        value.{field.name} = (item,)",
        *(["    elif length == 0:", f"        value.{field.name} = None", "        offset += 1"] if field.nullable else ()),
        "    else:",
        f"        {line}",
    ]


def _default_lines(struct: WireStruct, scope: dict[str, Any]) -> list[str]:
    """Return the lines that set the fields that are not, or not always, in the bytes."""
    present = {field.name for field in struct.fields if field.tag is None}
    absent = {name: default for name, default in defaults_of(struct.cls).items() if name not in present}
    scope.update({f"default_{name}": default for name, default in absent.items()})
    return [f"    value.{name} = default_{name}" for name in absent]


@memo
def writer(struct: WireStruct) -> Writer:
    """Return the writer of a struct; fields that the layout lacks are left out."""
    scope: dict[str, Any] = {"write_tags": primitives.write_tags, "no_uuid": primitives.NO_UUID}
    lines = ["def generated(value, out):"]
    for fixed, index, fields in _runs(struct):
        if fixed:
            scope[f"pack{index}"] = Layout(">" + "".join(field.kind for field in fields)).pack
            lines.append(f"    out += pack{index}({', '.join(_fixed_value(field) for field in fields)})")
        else:
            lines += _write_variable_lines(fields[0], index, struct, scope)
    if struct.flexible:
        lines += _tag_lines(struct, scope)
    compiled: Writer = _compile([*lines, "    return None"], scope, struct.cls)
    return compiled


def _fixed_value(field: WireField) -> str:
    if field.skipped is not None:
        return str(field.skipped)
    if field.kind == "16s":  # what UUID.bytes does, without its calls
        return f"no_uuid if value.{field.name} is None else value.{field.name}.int.to_bytes(16, 'big')"
    return f"value.{field.name}"


def _write_variable_lines(field: WireField, index: int, struct: WireStruct, scope: dict[str, Any]) -> list[str]:
    """Return the lines that write a field of variable size; short arrays and empty strings of compact length in place."""
    _put(scope, index, field, lambda: _both_writers(field, struct.flexible))
    line = f"item{index}(value.{field.name}, out)"
    if not struct.flexible or field.kind not in _VARIABLE:
        return [f"    {line}"]
    if not field.array:
        empty = [f"    if value.{field.name} == '':", "        out.append(1)", "    else:", f"        {line}"]
        return empty if field.kind == "string" else [f"    {line}"]
    return [
        f"    many = value.{field.name}",
        "    if many is None or len(many) > 1:",
        f"        {line}",
        "    else:",
        "        out.append(len(many) + 1)",
        "        for item in many:",
        f"            one{index}(item, out)",
    ]


def _tag(field: WireField, make: Callable[[WireField, bool], tuple[Any, Any]]) -> Callable[..., Any]:
    """Return the function for a tagged field, which is made when one is met: that is rare."""
    made: list[Callable[..., Any]] = []

    def tag(*arguments: Any) -> Any:
        if not made:
            made.append(make(field, True)[0])
        return made[0](*arguments)

    return tag


def _tag_lines(struct: WireStruct, scope: dict[str, Any]) -> list[str]:
    """Return the lines that write the tags; a value that is the default is not written (KIP-482)."""
    tagged = sorted((f for f in struct.fields if f.tag is not None), key=lambda f: f.tag or 0)
    if not tagged:
        return ["    out.append(0)"]
    defaults = defaults_of(struct.cls)
    lines = ["    tags = []"]
    for field in tagged:
        scope[f"default{field.tag}"] = defaults[field.name]
        scope[f"tag{field.tag}"] = _tag(field, _both_writers)
        lines.append(f"    if value.{field.name} != default{field.tag}:")
        lines.append(f"        tags.append(({field.tag}, tag{field.tag}, value.{field.name}))")
    return [*lines, "    write_tags(tags, out)"]


def _scalar_reader(kind: str) -> Reader:
    layout = Layout(">" + kind)

    def read_scalar(buffer: primitives.Buffer, offset: int) -> tuple[Any, int]:
        return layout.unpack_from(buffer, offset)[0], offset + layout.size

    return read_scalar


def _scalar_writer(kind: str) -> Writer:
    layout = Layout(">" + kind)

    def write_scalar(value: Any, out: bytearray) -> None:
        out += layout.pack(value)

    return write_scalar


def _both_readers(field: WireField, compact: bool) -> tuple[Reader, Reader]:
    """Return the reader of a field, and that of one item of it."""
    if field.array and field.kind not in _VARIABLE:
        many = primitives.int_array_reader(field.kind, compact=compact, nullable=field.nullable)
        return many, many
    read = _item_reader(field, compact=compact)
    return primitives.array_reader(read, compact=compact, nullable=field.nullable) if field.array else read, read


def _item_reader(field: WireField, *, compact: bool) -> Reader:
    """Return the reader of a field, or of one item of an array."""
    nullable = field.nullable and not field.array
    read: Reader
    match field.kind:
        case "string":
            read = primitives.string_reader(compact=compact, nullable=nullable)
        case "bytes":
            read = primitives.bytes_reader(compact=compact, nullable=nullable)
        case "struct" if field.struct is not None:
            read = primitives.nullable_reader(reader(field.struct)) if nullable else reader(field.struct)
        case kind:
            read = _scalar_reader(kind)
    return read


def _both_writers(field: WireField, compact: bool) -> tuple[Writer, Writer]:
    """Return the writer of a field, and that of one item of it."""
    if field.array and field.kind not in _VARIABLE:
        many = primitives.int_array_writer(field.kind, compact=compact, nullable=field.nullable)
        return many, many
    write = _item_writer(field, compact=compact)
    return primitives.array_writer(write, compact=compact, nullable=field.nullable) if field.array else write, write


def _item_writer(field: WireField, *, compact: bool) -> Writer:
    """Return the writer of a field, or of one item of an array."""
    nullable = field.nullable and not field.array
    write: Writer
    match field.kind:
        case "string":
            write = primitives.string_writer(compact=compact, nullable=nullable)
        case "bytes":
            write = primitives.bytes_writer(compact=compact, nullable=nullable)
        case "struct" if field.struct is not None:
            write = primitives.nullable_writer(writer(field.struct)) if nullable else writer(field.struct)
        case kind:
            write = _scalar_writer(kind)
    return write
