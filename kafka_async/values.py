"""Classes with fields: attrs' ``define`` and ``frozen``, with one ``__repr__``, ``__eq__`` and ``__hash__`` for all of them.

They behave as attrs' own, except that converters and validators are for arguments only; a test compares the two.

attrs compiles these methods anew for each class, which takes twice as long as making the rest of it, and a consumer has two hundred
classes. Everything else, ``__init__`` above all, is attrs' own, and type checkers and editors see nothing but attrs.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve as evolve
from attrs import field as field

if TYPE_CHECKING:
    from attrs import define as define
    from attrs import frozen as frozen
else:

    def define(cls: type | None = None, *, kw_only: bool = False, eq: bool = True) -> Any:
        """Make a class whose fields can be set.

        Converters and validators are for arguments. With attrs' default one of them would make each change of any field a call.
        """
        unchecked = partial(attrs.define, on_setattr=attrs.setters.NO_OP)
        return _made(unchecked, cls, kw_only, {"__eq__": _eq, "__hash__": None} if eq else {})

    def frozen(cls: type | None = None, *, kw_only: bool = False, eq: bool = True) -> Any:
        """Make a class whose fields are set once."""
        return _made(attrs.frozen, cls, kw_only, {"__eq__": _eq, "__hash__": _hash} if eq else {})


def _made(make: Callable[..., Any], cls: type | None, kw_only: bool, methods: Mapping[str, Any]) -> Any:
    if cls is None:
        return lambda cls: _made(make, cls, kw_only, methods)
    own = vars(cls)
    for name, method in {"__repr__": _repr, **methods}.items():
        if own.get(name) is None:  # a class with an ``__eq__`` of its own has ``None`` as its ``__hash__``
            setattr(cls, name, method)
    return make(cls, kw_only=kw_only, eq=False, repr=False)


@cache
def _compared(cls: type) -> Callable[[Any], Any]:
    return attrgetter(*([name.name for name in attrs.fields(cls) if name.eq] or ["__class__"]))


@cache
def _shown(cls: type) -> tuple[tuple[str, Callable[[Any], str]], ...]:
    return tuple((each.name, each.repr if callable(each.repr) else repr) for each in attrs.fields(cls) if each.repr)


def _eq(self: Any, other: Any) -> Any:
    cls = self.__class__
    return _compared(cls)(self) == _compared(cls)(other) if other.__class__ is cls else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={show(getattr(self, name, attrs.NOTHING))}" for name, show in _shown(self.__class__))
    return f"{type(self).__qualname__.rsplit('>.', 1)[-1]}({values})"


def metadata_of(cls: type) -> Mapping[str, Mapping[Any, Any]]:
    """Return the fields of a class and the metadata of each."""
    return {each.name: each.metadata for each in attrs.fields(cls)}


def defaults_of(cls: type) -> Mapping[str, Any]:
    """Return the fields of a class and the default of each."""
    return {each.name: each.default for each in attrs.fields(cls)}
