"""The layout of a message in one version: which fields it has there, in the order of the bytes.

It is read off the message's class (``messages/base.py``). ``compiler.py`` makes of it what reads and writes bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from inspect import get_annotations
from types import NoneType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin
from uuid import UUID

from ..values import frozen, metadata_of
from .messages.base import NEWEST, NotOurs, Struct

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {bool: "?", UUID: "16s", str: "string", bytes: "bytes"}


@frozen(kw_only=True)
class WireField:
    """A field in one version of a struct."""

    name: str
    kind: str
    """A ``struct`` code, ``"string"``, ``"bytes"`` or ``"struct"``."""
    array: bool
    nullable: bool
    tag: int | None
    struct: "WireStruct | None"
    skipped: int | None
    """What is written for a field that is not ours; ``None`` for all others."""


@frozen(kw_only=True)
class WireStruct:
    """A struct in one version."""

    cls: type[Struct]
    fields: tuple[WireField, ...]
    """In the order of the bytes, tagged ones included."""
    flexible: bool
    """Compact types and tags are in use (KIP-482)."""


def layout_of(cls: type[Struct], version: int, *, flexible: bool) -> WireStruct:
    """Return the layout of ``cls`` in a version, with compact types and tags if it is ``flexible``."""
    fields = []
    for name, type_, versions, other in fields_of(cls):
        tag = versions.get("tag")
        if versions.get("first", 0) <= version <= versions.get("until", NEWEST) and (other is None or tag is None):
            kind, array, optional, struct = parts_of(type_)
            fields.append(
                WireField(
                    name=name,
                    kind=kind,
                    array=array,
                    nullable=optional and version >= versions.get("null", 0),
                    tag=tag,
                    struct=None if struct is None else layout_of(struct, version, flexible=flexible),
                    skipped=None if other is None else other.default,
                )
            )
    return WireStruct(cls=cls, fields=tuple(fields), flexible=flexible)


def memo(function: F) -> F:
    """Cache without a limit, for functions of classes and versions; ``functools.cache`` with the function's type kept."""
    return cast(F, cache(function))


def fields_of(cls: type[Struct]) -> Iterator[tuple[str, Any, Mapping[str, Any], NotOurs | None]]:
    """Yield the fields of a class in the order of the bytes: name, type, what ``since`` says, and what stands for one not ours."""
    own = metadata_of(cls)
    for name, annotation in get_annotations(cls).items():
        if name in own:
            yield name, annotation, own[name], None
        elif isinstance(other := getattr(cls, name), NotOurs):
            yield name, other.type, other.versions, other


@memo
def parts_of(annotation: Any) -> tuple[str, bool, bool, type[Struct] | None]:
    """Return what a type says: the kind of values, whether there are many, whether it may be ``None``, and the class of structs.

    Raises ``KeyError`` for a type that no field can have, such as ``int``, which does not say its size.
    """
    kind = ""
    array = optional = False
    while (origin := get_origin(annotation)) is not None:
        annotation, *more = get_args(annotation)
        if origin is Annotated:
            (kind,) = more
        elif origin is tuple:
            array = True
        else:  # a union with None
            (annotation,) = (part for part in (annotation, *more) if part is not NoneType)
            optional = True
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return "struct", array, optional, annotation
    return kind or _KINDS[annotation], array, optional, None
