"""The layout of a message in one version: which fields it has there, and in which order.

Decides: which field of a class of ours is which of Kafka's, and what is written for the few that we leave out. Owns nothing; the
fields and their versions are in ``schemas.py``. Must never read or write a message: ``compiler.py`` makes what does.

Fields are matched by name, structs by the place where they stand, so that a struct may be called differently here.
"""

from collections.abc import Callable, Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from ..errors import UnsupportedVersionError
from ..values import frozen, types_of
from . import schemas
from .messages.base import Struct
from .schemas import Field, Versions

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "bool": "?",
    "uuid": "16s",
}
"""Kafka's name of a type of fixed size -> its ``struct`` code; others are called here as there."""

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


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class WireStruct:
    """A struct in one version."""

    cls: type[Struct]
    fields: tuple[WireField, ...]
    """In the order of the bytes, tagged ones included."""
    flexible: bool
    """Compact types and tags are in use (KIP-482)."""


def layout_of(name: str, version: int, cls: type[Struct]) -> WireStruct:
    """Return the layout of ``cls`` as ``version`` of a request, a response or a piece of data that Kafka calls ``name``.

    Raises ``UnsupportedVersionError`` if Kafka has no such version of it.
    """
    message = schemas.message(name)
    if not _is_in(version, message.versions):
        first, last = message.versions
        raise UnsupportedVersionError(f"{name} has no version {version}; those from {first} to {last} are known.")
    flexible = message.flexible is not None and version >= message.flexible
    return _layout(cls, message.fields, version, flexible)


def _is_in(version: int, versions: Versions | None) -> bool:
    return versions is not None and versions[0] <= version <= versions[1]


def _layout(cls: type[Struct], fields: Iterable[Field], version: int, flexible: bool) -> WireStruct:
    there = (field for field in fields if _is_in(version, field.versions))
    known = (_field(cls, field, version, flexible) for field in there)
    return WireStruct(cls=cls, fields=tuple(field for field in known if field is not None), flexible=flexible)


def _field(cls: type[Struct], field: Field, version: int, flexible: bool) -> WireField | None:
    """Match a field of Kafka's; ``None`` for a tagged one that is skipped."""
    skipped = SKIPPED.get((cls.__name__, field.name))
    if skipped is not None and field.tag is not None:
        return None
    kind = field.type.removeprefix("[]")
    return WireField(
        name=field.name,
        kind=KINDS.get(kind, kind),
        array=kind != field.type,
        nullable=_is_in(version, field.nullable),
        tag=field.tag,
        struct=_layout(struct_types(cls)[field.name], field.fields, version, flexible) if kind == "struct" else None,
        skipped=skipped,
    )


def memo(function: F) -> F:
    """Cache without a limit, for functions of classes and versions; ``functools.cache`` with the function's type kept."""
    return cast(F, cache(function))


@memo
def struct_types(cls: type[Struct]) -> dict[str, type[Struct]]:
    """Return the fields of ``cls`` that hold structs, one or many, and the class of each."""
    found = {name: _inside(annotation) for name, annotation in types_of(cls).items()}
    return {name: inner for name, inner in found.items() if isinstance(inner, type) and issubclass(inner, Struct)}


def _inside(annotation: Any) -> Any:
    """Return the type of a field, or that of the items of one that holds many."""
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
