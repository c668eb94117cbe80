"""Which fields a message has in a version, and in which order: Kafka's schemas, as ``kio`` generates them.

Decides: how a field of ``kio`` is called here and what is written for the few that we leave out. Owns: nothing; the only module
that imports ``kio``: its base with this module, before there is an event loop to hold up, and the rest one version of one API at
a time. Must never read or write a message: ``kio``'s own reader reserves memory for whatever array length the bytes announce and
ends the process when there is none, so that one broken frame would be fatal; ``compiler.py`` makes readers from the schema instead.

Names: ours are Kafka's, with ``_ms`` where ``kio`` has a time without it. Fields are matched by name, structs by the place where
they stand, so that a struct may be called differently here.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import attrs

from .messages.base import Struct

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "bool": "?",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "string": "string",
    "bytes": "bytes",
    "records": "bytes",
}
"""``kio``'s name of a type -> ours: a ``struct`` code, or the name of a type of variable length."""

SKIPPED: dict[tuple[str, str], int] = {
    ("FetchRequest", "replica_id"): -1,
    ("FetchRequest", "replica_state"): -1,
    ("FetchRequest", "cluster_id"): -1,
    ("FetchPartition", "log_start_offset"): -1,
    ("FetchPartition", "replica_directory_id"): -1,
    ("PartitionData", "snapshot_id"): -1,
    ("ListOffsetsRequest", "replica_id"): -1,
    ("OffsetForLeaderEpochRequest", "replica_id"): -1,
    ("OffsetCommitRequest", "retention_time_ms"): -1,
    ("MetadataRequest", "include_cluster_authorized_operations"): 0,
    ("MetadataResponse", "cluster_authorized_operations"): -(2**31),
    ("ApiVersionsResponse", "zk_migration_ready"): 0,
}
"""Fields that are not needed here -> what is written for them; tagged ones are not written at all.

They are for replicas (-1 says "a consumer"), for the old controller, or were dropped by Kafka itself (KIP-211, KIP-700).
"""


@attrs.frozen(kw_only=True)
class WireField:
    """A field in one version of a struct."""

    name: str
    """Our name of it, or Kafka's if it is skipped."""
    kind: str
    """A ``struct`` code, ``"string"``, ``"bytes"`` or ``"struct"``."""
    array: bool
    nullable: bool
    tag: int | None
    struct: "WireStruct | None"
    skipped: int | None
    """What is written for a field that we leave out; ``None`` for all others."""


@attrs.frozen(kw_only=True)
class WireStruct:
    """A struct in one version."""

    cls: type[Struct]
    fields: tuple[WireField, ...]
    """In the order of the bytes, tagged ones included."""
    flexible: bool
    """Compact types and tags are in use (KIP-482)."""


def _import_base() -> None:
    """Import what all schemas of ``kio`` stand on, and not hypothesis with it.

    ``kio`` imports hypothesis wherever that is installed, to make its types known to it, which takes longer than all else that a
    consumer imports. A program that has imported hypothesis before has its types known.
    """
    absent = "hypothesis" not in sys.modules
    if absent:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # as Python marks what cannot be imported
    try:
        import kio.static.primitive  # noqa: F401 - most of what the first schema would cost
    finally:
        if absent:
            sys.modules.pop("hypothesis", None)


_import_base()


def load(module: str, version: int, name: str, cls: type[Struct]) -> WireStruct:
    """Return the layout of ``cls`` as ``version`` of the struct ``name`` of a schema such as ``"fetch"``.

    ``name`` is Kafka's name of a request, a response or a piece of data. Raises ``ModuleNotFoundError`` if Kafka has no such
    version.
    """
    part = next((part for part in ("request", "response") if name.lower().endswith(part)), "data")
    entity: type = getattr(import_module(f"kio.schema.{module}.v{version}.{part}"), name)
    return _layout(cls, entity)


def _layout(cls: type[Struct], entity: Any) -> WireStruct:
    fields = (_field(cls, field) for field in dataclasses.fields(entity))
    return WireStruct(cls=cls, fields=tuple(f for f in fields if f is not None), flexible=entity.__flexible__)


def _field(cls: type[Struct], field: "dataclasses.Field[Any]") -> WireField | None:
    """Match a field of ``kio``; ``None`` for a tagged one that is skipped."""
    kafka_type = field.metadata.get("kafka_type", "struct")
    name = field.name + "_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name
    tag = field.metadata.get("tag")
    skipped = SKIPPED.get((cls.__name__, name))
    if skipped is not None and tag is not None:
        return None
    array, nullable, inner = _shape(field.type)
    return WireField(
        name=name,
        kind=KINDS.get(kafka_type, "struct"),
        array=array,
        nullable=nullable,
        tag=tag,
        struct=_layout(struct_types(cls)[name], inner) if kafka_type == "struct" else None,
        skipped=skipped,
    )


def _shape(annotation: Any) -> tuple[bool, bool, Any]:
    """Return whether a type is an array, whether it may be null, and the type inside."""
    nullable = False
    if get_origin(annotation) in (Union, UnionType):
        nullable = NoneType in get_args(annotation)
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is tuple:
        return True, nullable, get_args(annotation)[0]
    return False, nullable, annotation


def memo(function: F) -> F:
    """Cache without a limit, for functions of classes and versions; ``functools.cache`` with the function's type kept."""
    return cast(F, cache(function))


@memo
def struct_types(cls: type[Struct]) -> dict[str, type[Struct]]:
    """Return the fields of ``cls`` that hold structs, one or many, and the class of each."""
    found = {field.name: _shape(field.type)[2] for field in attrs.fields(cast(Any, cls))}
    return {name: inner for name, inner in found.items() if isinstance(inner, type) and issubclass(inner, Struct)}
