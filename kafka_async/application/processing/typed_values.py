"""What a route's ``value=`` means: how the bytes of a record become a value of that type, and whether it may be missing.

Models are read by the library that they belong to, everything else by whichever is installed; none of them is needed otherwise.
A class is never called with bytes: ``str(b"...")`` would be no error and no text.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from inspect import isclass
from typing import Any, Final, get_args, get_origin, get_type_hints

from ...functions import check_plain, returned
from ...values import frozen

Decode = Callable[[bytes], Any]
EXPECTED: Final = (
    "a pydantic model, a msgspec Struct, a dataclass or other type with annotations, str, bytes, or a function of bytes"
)


@frozen
class TypedValue:
    """How a value is decoded."""

    decode: Decode
    optional: bool
    """Whether a tombstone (null) is such a value; ``None`` then."""


def typed_value(kind: Any) -> TypedValue:
    """Return how values of a type are decoded. Raises ``TypeError`` for what is neither a type nor a function, ``ImportError`` if
    the library that would decode it is missing.
    """
    inner, optional = _without_none(_unaliased(kind))
    if inner is bytes:
        return TypedValue(bytes, optional)
    if inner is str:
        return TypedValue(bytes.decode, optional)
    parts = tuple(_parts(inner))
    if any(_is_pydantic(part) for part in parts):
        return TypedValue(_by_pydantic(inner), optional)
    if any(_is_msgspec(part) for part in parts):
        return TypedValue(_by_msgspec(inner), optional)
    if _is_described(inner):
        return TypedValue(_by_what_is_installed(inner), optional)
    if inner is None or isclass(inner):
        raise TypeError(f"value={kind!r}: expected {EXPECTED}")
    check_plain(inner, "value", EXPECTED, 1)

    def decode(data: bytes) -> Any:
        return returned(inner(data), "value")

    return TypedValue(decode, _returns_none(inner))


def _without_none(kind: Any) -> tuple[Any, bool]:
    """Return a type without ``None``, and whether it was there."""
    if get_origin(kind) not in (typing.Union, types.UnionType):
        return kind, False
    rest = tuple(part for part in get_args(kind) if part is not type(None))
    if len(rest) == len(get_args(kind)):
        return kind, False
    return (rest[0] if len(rest) == 1 else typing.Union[rest]), True  # noqa: UP007  # of what is known only now


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a type and all that it is made of."""
    yield kind
    for part in get_args(kind):
        yield from _parts(part)


def _is_pydantic(kind: Any) -> bool:
    return isclass(kind) and (hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__"))


def _is_msgspec(kind: Any) -> bool:
    return isclass(kind) and hasattr(kind, "__struct_fields__")


def _is_described(kind: Any) -> bool:
    """Whether annotations say what JSON has to look like."""
    if get_origin(kind) is not None or typing.is_typeddict(kind) or kind in (dict, list, int, float, bool):
        return True
    return isclass(kind) and (dataclasses.is_dataclass(kind) or hasattr(kind, "__attrs_attrs__"))


def _by_pydantic(kind: Any) -> Decode:
    from pydantic import TypeAdapter

    decode: Decode = TypeAdapter(kind).validate_json
    return decode


def _by_msgspec(kind: Any) -> Decode:
    from msgspec.json import Decoder

    decode: Decode = Decoder(kind).decode
    return decode


def _by_what_is_installed(kind: Any) -> Decode:
    if find_spec("msgspec") is not None:
        return _by_msgspec(kind)
    if find_spec("pydantic") is not None and not hasattr(kind, "__attrs_attrs__"):
        return _by_pydantic(kind)
    raise ImportError(f"value={kind!r}: JSON of a described type is decoded by msgspec or pydantic, and neither is installed")


def _returns_none(function: Callable[..., Any]) -> bool:
    """Whether a function says that ``None`` is among its results."""
    try:
        kind = get_type_hints(function).get("return")
    except Exception:  # an annotation that cannot be resolved, which is evaluated for that, or an object without any
        return False
    return _without_none(kind)[1]


def _unaliased(kind: Any) -> Any:
    """Return what a ``type X = ...`` statement (Python 3.12) stands for."""
    return kind.__value__ if type(kind).__name__ == "TypeAliasType" else kind
