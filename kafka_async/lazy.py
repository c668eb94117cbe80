"""Public names of a package that are imported only when they are first used (PEP 562).

Names that were found are kept in the package itself. A package that uses it imports the same names under ``TYPE_CHECKING``.

This package has nearly three hundred modules. A program without a group, SASL and telemetry, such as a Spark task, needs less than
two thirds of them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

_ROOT: Final = __name__.partition(".")[0]
_PUBLIC: Final = frozenset(("adapters", "errors", "spark", "sync", "testing"))
"""Packages and modules that programs import from, besides the root."""


def public_name(cls: type) -> str:
    """Return the name by which programs import a class: what is stored must not name a module that may be moved."""
    root, _, rest = cls.__module__.partition(".")
    if root == _ROOT and rest.partition(".")[0] not in _PUBLIC and getattr(sys.modules[_ROOT], cls.__qualname__, None) is cls:
        return f"{_ROOT}.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def on_first_use(package: str, places: Mapping[str, str], modules: str = "") -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package``.

    ``places``: names, with blanks between them, by the module, relative to the package, that has them. ``modules``: modules of the
    package that may be used as its attributes without having been imported.
    """
    where = {name: module for module, names in places.items() for name in names.split()}
    parts = modules.split()

    def find(name: str) -> Any:
        if name in where:
            found = getattr(import_module(where[name], package), name)
        elif name in parts:
            return import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(import_module(package), name, found)
        return found

    return find


def from_modules(package: str, modules: Sequence[str], places: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package`` that finds the classes of ``modules``.

    The modules are imported in this order until one has the name. For ``places``, see ``on_first_use``.
    """
    known = on_first_use(package, places)
    placed = frozenset(" ".join(places.values()).split())

    def find(name: str) -> Any:
        if name in placed:
            return known(name)
        for module in modules if name[:1].isupper() else ():
            found = getattr(import_module(f"{package}.{module}"), name, None)
            if found is not None:
                setattr(import_module(package), name, found)
                return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
