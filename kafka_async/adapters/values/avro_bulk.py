"""Whole batches of Avro records by the compiled reader, where the schemas of writer and reader are alike.

The compiled reader reads what both schemas have in common without a rule that needs a closer look: the same types, fields that only
one of them has, and the numbers and texts that may be promoted. A union is one of null and one type. For other schemas, and where
nothing was compiled, ``avro.py`` reads value by value. It does so too for single values that are not plainly records, to say what
is wrong with them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ...application.reading.arrow import array_of, plain_array
from ...values import evolve, frozen
from .avro_schema import DECIMAL, rate
from .ddl import MAX_PRECISION, Fields

try:
    from . import _avro_bulk
except ImportError:  # built without a compiler: one by one is what there is
    _avro_bulk = None  # type: ignore[assignment]

AVAILABLE: Final = _avro_bulk is not None
"""Whether the compiled reader is there."""
(
    _NOTHING, _BOOLEAN, _INT, _LONG, _WHOLE_AS_FLOAT, _WHOLE_AS_DOUBLE, _FLOAT, _DOUBLE, _FLOAT_AS_DOUBLE, _BYTES, _TEXT, _FIXED,
    _ENUM, _DECIMAL, _FIXED_DECIMAL, _ARRAY, _MAP, _RECORD, _UNION,
) = range(19)  # fmt: skip
"""As in ``_avro_bulk.pyx``."""
_WIDTHS: Final = {
    _BOOLEAN: 1, _INT: 4, _LONG: 8, _WHOLE_AS_FLOAT: 4, _WHOLE_AS_DOUBLE: 8, _FLOAT: 4, _DOUBLE: 8, _FLOAT_AS_DOUBLE: 8, _ENUM: 4,
    _DECIMAL: 16, _FIXED_DECIMAL: 16,
}  # fmt: skip
"""Bytes of a value, where all have as many."""
_SIMPLE: Final = {
    ("null", "null"): _NOTHING,
    ("boolean", "boolean"): _BOOLEAN,
    ("int", "int"): _INT,
    ("int", "long"): _LONG,
    ("int", "float"): _WHOLE_AS_FLOAT,
    ("int", "double"): _WHOLE_AS_DOUBLE,
    ("long", "long"): _LONG,
    ("long", "float"): _WHOLE_AS_FLOAT,
    ("long", "double"): _WHOLE_AS_DOUBLE,
    ("float", "float"): _FLOAT,
    ("float", "double"): _FLOAT_AS_DOUBLE,
    ("double", "double"): _DOUBLE,
    ("bytes", "bytes"): _BYTES,
    ("string", "string"): _TEXT,
    ("string", "bytes"): _TEXT,
    ("bytes", "string"): _TEXT,
}
"""Types of writer and reader, and how values are read."""
Described = tuple[int, int, bool, int, int, int, tuple[Any, ...]]
"""Kind, branch that is null (-1: none), whether values are wanted, bytes of a value, size or number of symbols, what a decimal is
below, what is within."""


class _NotAlikeError(Exception):
    """The schemas need a closer look."""


@frozen
class _Shape:
    """How an array is made of what was read."""

    place: int
    """Where it is within what it is a part of."""
    symbols: tuple[str, ...] | None = None
    """Those of an enum, in the order of its numbers."""
    within: "tuple[_Shape, ...]" = ()


@frozen
class Program:
    """How records of one schema are read into columns."""

    described: Described
    shapes: Mapping[str, _Shape]
    """Those of the fields that records have."""
    defaults: Mapping[str, Any]
    """Fields that records do not have, and what stands for them."""


def program(writer: Any, reader: Any, names: Sequence[str]) -> Program | None:
    """Return how to read the fields ``names`` of a reader's schema from records of a writer's; ``None`` if only one by one.

    The schemas are plain ones: see ``avro_schema.plain``.
    """
    if not AVAILABLE or not names:
        return None
    try:
        return _Alike(_named(writer, {}), _named(reader, {})).program(writer, reader, frozenset(names))
    except (_NotAlikeError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _named(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return the types of a schema that have a name; ``found`` gets them."""
    if isinstance(schema, list):
        for part in schema:
            _named(part, found)
    elif isinstance(schema, dict):
        if "name" in schema:
            found[schema["name"]] = schema
        for part in (*(each["type"] for each in schema.get("fields", ())), schema.get("items"), schema.get("values")):
            _named(part, found)
    return found


@frozen(eq=False)
class _Alike:
    """Compares the types of a writer with those of a reader."""

    writers: Mapping[str, Any]
    readers: Mapping[str, Any]

    def program(self, writer: Any, reader: Any, names: frozenset[str]) -> Program:
        """Return how records are read. Raises ``_NotAlikeError``."""
        self._check_record(writer, reader)
        given = {part["name"]: part for part in reader["fields"]}
        within, shapes = [], {}
        for place, part in enumerate(writer["fields"]):
            like = given.pop(part["name"], None)
            if like is None:
                within.append(self._passed(part["type"], ()))
                continue
            described, shape = self._both(part["type"], like["type"], place, (writer["name"],), out=part["name"] in names)
            within.append(described)
            shapes[part["name"]] = shape
        defaults = {name: self._default(part) for name, part in given.items()}
        return Program(_described(_RECORD, within=within), shapes, defaults)

    def _check_record(self, writer: Any, reader: Any) -> None:
        kinds = [each.get("type") if isinstance(each, dict) else None for each in (writer, reader)]
        if kinds != ["record", "record"] or writer["name"] != reader["name"] or reader.get("aliases"):
            raise _NotAlikeError
        if any(part.get("aliases") for part in reader["fields"]):
            raise _NotAlikeError

    def _default(self, part: Any) -> Any:
        """Return what stands for a field that no record has."""
        if "default" not in part:
            raise _NotAlikeError
        default, kind = part["default"], part["type"]
        first = kind[0] if isinstance(kind, list) and kind else kind
        plain = {"null": type(None), "boolean": bool, "int": int, "long": int, "string": str, "double": float, "float": float}
        if not isinstance(first, str) or type(default) is not plain.get(first) or (isinstance(kind, list) and len(kind) > 2):
            raise _NotAlikeError
        return default

    def _both(self, writer: Any, reader: Any, place: int, within: tuple[str, ...], *, out: bool) -> tuple[Described, _Shape]:
        """Return how a value is read, and how the array is made of it. ``within``: the records around it."""
        null_at, writer = self._one(writer, self.writers)
        of_reader, reader = self._one(reader, self.readers)
        if null_at >= 0 and of_reader < 0:
            raise _NotAlikeError  # a null is then a fault
        if rate(writer, reader) != (1, 1):
            raise _NotAlikeError  # a time in another unit is another number
        writer, reader = _without_logical(writer), _without_logical(reader)
        if isinstance(writer, str) or isinstance(reader, str):
            kind = _SIMPLE.get((writer, reader)) if isinstance(writer, str) and isinstance(reader, str) else None
            if kind is None:
                raise _NotAlikeError
            return _described(kind, null_at=null_at, out=out), _Shape(place)
        if writer["type"] != reader["type"] or writer.get("name") != reader.get("name"):
            raise _NotAlikeError
        more, shape = self._complex(writer, reader, within, out=out)
        return _described(null_at=null_at, out=out, **more), evolve(shape, place=place)

    def _complex(self, writer: Any, reader: Any, within: tuple[str, ...], *, out: bool) -> tuple[dict[str, Any], _Shape]:
        match writer["type"]:
            case "record":
                return self._record(writer, reader, within, out=out)
            case "array":
                described, shape = self._both(writer["items"], reader["items"], 0, within, out=out)
                return {"kind": _ARRAY, "within": [described]}, _Shape(0, within=(shape,))
            case "map":
                described, shape = self._both(writer["values"], reader["values"], 1, within, out=out)
                return {"kind": _MAP, "within": [_described(_TEXT, out=out), described]}, _Shape(0, within=(shape,))
            case "enum":
                symbols = tuple(writer["symbols"])
                if set(symbols) - set(reader["symbols"]) or reader.get("aliases"):
                    raise _NotAlikeError
                return {"kind": _ENUM, "size": len(symbols)}, _Shape(0, symbols)
            case _:
                return self._bytes(writer, reader), _Shape(0)

    def _record(self, writer: Any, reader: Any, within: tuple[str, ...], *, out: bool) -> tuple[dict[str, Any], _Shape]:
        self._check_record(writer, reader)
        if writer["name"] in within:
            raise _NotAlikeError
        inside = (*within, writer["name"])
        given = {part["name"]: part for part in reader["fields"]}
        described, shapes = [], {}
        for place, part in enumerate(writer["fields"]):
            if (like := given.get(part["name"])) is None:
                described.append(self._passed(part["type"], inside))
            else:
                each, shapes[part["name"]] = self._both(part["type"], like["type"], place, inside, out=out)
                described.append(each)
        if shapes.keys() != given.keys():
            raise _NotAlikeError  # a default stands for a part of a record
        return {"kind": _RECORD, "within": described}, _Shape(0, within=tuple(shapes[name] for name in given))

    def _bytes(self, writer: Any, reader: Any) -> dict[str, Any]:
        """Return how bytes of some length are read, or of a given one, which may be a decimal."""
        fixed = writer["type"] == "fixed"
        scales = {each.get("scale", 0) for each in (writer, reader) if each.get("logicalType") == DECIMAL}
        if writer["type"] not in ("fixed", "bytes") or writer.get("size") != reader.get("size") or reader.get("aliases"):
            raise _NotAlikeError
        if reader.get("logicalType") != DECIMAL:
            return {"kind": _FIXED if fixed else _BYTES, "size": writer.get("size", 0)}
        if len(scales) > 1:
            raise _NotAlikeError
        limit = 10 ** min(reader["precision"], MAX_PRECISION)
        return {"kind": _FIXED_DECIMAL if fixed else _DECIMAL, "size": writer.get("size", 0), "limit": limit}

    def _passed(self, schema: Any, within: tuple[str, ...]) -> Described:
        """Return how a value is passed over."""
        if isinstance(schema, list):
            return _described(_UNION, within=[self._passed(part, within) for part in schema])
        if isinstance(schema, str) and schema in self.writers:
            schema = self.writers[schema]
        if isinstance(schema, str):
            return _described(_BYTES if schema == "string" else _SIMPLE[schema, schema])
        match schema["type"]:
            case "record":
                if schema["name"] in within:
                    raise _NotAlikeError
                inside = (*within, schema["name"])
                return _described(_RECORD, within=[self._passed(part["type"], inside) for part in schema["fields"]])
            case "array":
                return _described(_ARRAY, within=[self._passed(schema["items"], within)])
            case "map":
                return _described(_MAP, within=[_described(_BYTES), self._passed(schema["values"], within)])
            case "enum":
                return _described(_ENUM, size=len(schema["symbols"]))
            case "fixed":
                return _described(_FIXED, size=schema["size"])
            case kind:
                return self._passed(kind, within)

    def _one(self, schema: Any, named: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the branch of null in a union of null and one type, -1 if it is none; and the type."""
        null_at = -1
        if isinstance(schema, list):
            if len(schema) != 2 or schema.count("null") != 1:
                raise _NotAlikeError
            null_at = schema.index("null")
            schema = schema[1 - null_at]
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        return null_at, schema


def _without_logical(schema: Any) -> Any:
    """Return a type: {"type": "long"} with no more than a logical type, or nothing, around it is a long."""
    alone = isinstance(schema, dict) and schema["type"] in _PRIMITIVE and schema.get("logicalType") != DECIMAL
    return schema["type"] if alone else schema


_PRIMITIVE: Final = frozenset(name for name, _ in _SIMPLE)


def _described(
    kind: int,
    *,
    null_at: int = -1,
    out: bool = False,
    size: int = 0,
    limit: int = 0,
    within: Sequence[Described] = (),
) -> Described:
    return kind, null_at, out, _WIDTHS.get(kind, 0), size, limit, tuple(within)


def frames(values: Any) -> Any:
    """Return the number in the frame of each value of a ``pyarrow.BinaryArray``; -1 if it has none, null for null."""
    found = plain_array(pa.int64(), len(values), _avro_bulk.frames(_within(values)))
    if not values.null_count:
        return found
    import pyarrow.compute as pc

    return pc.if_else(values.is_valid(), found, array_of(pa.int64(), [None])[0])


def _within(values: Any) -> "_avro_bulk.Values":
    validity, ends, data = values.buffers()
    there = validity if values.null_count else None
    return _avro_bulk.Values(data if data is not None else b"", ends, there, values.offset, len(values))


def read(how: Program, values: Any, frame: int, columns: Fields) -> tuple[list[Any], list[int]]:
    """Return arrays of some fields for a ``pyarrow.BinaryArray``, and the places of values that are not plainly records.

    ``frame``: bytes in front of each record. ``columns``: names and the types that ``avro_schema.Types`` builds.
    """
    reader = _avro_bulk.Reader(how.described)
    bad = reader.read(_within(values), frame)
    parts, there = reader.columns(), None
    arrays = []
    for name, kind in columns:
        if (shape := how.shapes.get(name)) is not None:
            arrays.append(_array(kind, shape, parts[shape.place]))
        else:
            there = there or _there(values, bad)
            arrays.append(_default(kind, how.defaults[name], there))
    return arrays, bad


def _there(values: Any, bad: Sequence[int]) -> list[bool]:
    """Return whether each value is a record."""
    found: list[bool] = values.is_valid().to_pylist()
    for place in bad:
        found[place] = False
    return found


def _default(kind: Any, default: Any, there: Sequence[bool]) -> Any:
    return pa.nulls(len(there), kind) if default is None else array_of(kind, [default if each else None for each in there])


def _array(kind: Any, shape: _Shape, part: tuple[Any, ...]) -> Any:
    """Return what was read as an array."""
    rows, nulls, valid, data, ends, within = part
    validity = None if valid is None else pa.py_buffer(valid)
    if shape.symbols is not None:
        numbers = pa.Array.from_buffers(pa.int32(), rows, [validity, pa.py_buffer(data)], nulls)
        return array_of(kind, shape.symbols).take(numbers)
    if pa.types.is_struct(kind):
        children = [_array(each.type, inner, within[inner.place]) for each, inner in zip(kind, shape.within, strict=True)]
        return pa.Array.from_buffers(kind, rows, [validity], nulls, children=children)
    if pa.types.is_list(kind):
        child = _array(kind.value_type, shape.within[0], within[0])
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(ends)], nulls, children=[child])
    if pa.types.is_map(kind):
        both = [_array(kind.key_type, _Shape(0), within[0]), _array(kind.item_type, shape.within[0], within[1])]
        entries = pa.StructArray.from_arrays(both, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(ends)], nulls, children=[entries])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(ends), pa.py_buffer(data)], nulls)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(data)], nulls)
