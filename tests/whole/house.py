"""What can be counted of how the package is built: ``python -m tests.whole.house`` prints it, ``test_house.py`` bounds it.

``--walks`` counts the files through which five paths lead, which takes a few seconds.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "kafka_async"
TESTS: Final = Path(__file__).parents[1]
MOST_FIELDS: Final = 15
LONG: Final = 100
CORE: Final = ("application", "background", "config", "network", "records", "wire")
"""The packages of which each long module has a file of tests."""
PUBLIC: Final = {"_asdict", "_exit", "_fields", "_getframe", "_is_coroutine", "_make", "_replace"}
"""Public names of Python's library that begin like private ones; ``_is_coroutine`` is how ``asyncio`` marked functions."""
VALUES: Final = {
    "model.py Statistics": "a value that people read",
    "application/processing/statistics.py ProcessingStatistics": "a value that people read",
    "adapters/spark/options/source_options.py SourceOptions": "options, as in config",
    "application/share/options.py ShareOptions": "options, as in config",
    "application/share/statistics.py ShareStatistics": "a value that people read",
}
"""Classes that are no parts of anything: they may have as many fields as there is to say."""
SUBJECTS: Final = {
    "application/consumer.py": "a file for each subject, and the matrix of edges",
    "application/processing/processing.py": "a file for each subject",
    "application/processing/handling.py": "with processing.py: whole runs under virtual time",
    "background/group/membership.py": "the interface of two memberships, which have tests",
    "config/options.py": "docstrings, which test_reference.py compares with the class",
    "application/share/consumer.py": "a file for each subject, and the matrix of edges",
    "wire/messages/": "generated, and compared with Kafka's own messages, one and all",
}
"""Modules whose tests are spread over several files, as ``tests/README.md`` says."""


def files() -> list[Path]:
    """Return every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a file as the package's README names it."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file, parsed."""
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return everything that is in a file: most checks look at all of it."""
    return tuple(ast.walk(tree_of(path)))


# --- private names --------------------------------------------------------------------------------------


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def _own(cls: ast.ClassDef) -> set[str]:
    """Return the names that a class gives to its objects, which may use each other's."""
    names = {node.name for node in cls.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)} | fields_of(cls)
    slots = [node.value for node in cls.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"]
    return names | {
        each.value for value in slots for each in ast.walk(value) if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _taken(node: ast.AST, own: frozenset[str] = frozenset()) -> Iterator[ast.Attribute]:
    if isinstance(node, ast.ClassDef):
        own |= _own(node)
    if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own and not _is_self(node.value):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _taken(child, own)


def private_names() -> list[str]:
    """Return each use of a private name of another object. Objects of one class may use each other's."""
    return [f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}" for path in files() for node in _taken(tree_of(path))]


# --- circles --------------------------------------------------------------------------------------------


def _module(parts: Iterable[str]) -> Path | None:
    folder = PACKAGE.joinpath(*parts)
    found = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return found if found.exists() else None


def _target(path: Path, node: ast.ImportFrom) -> tuple[str, ...] | None:
    said = tuple((node.module or "").split(".")) if node.module else ()
    if node.level:
        here = path.relative_to(PACKAGE).parts[:-1]
        return here[: len(here) - node.level + 1] + said
    return said[1:] if said[0] == PACKAGE.name else None


@cache
def _defined(path: Path) -> frozenset[str]:
    """Return the names that a module defines, and does not only hand on."""
    found: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return frozenset(found)


@cache
def _handed_on(package: Path) -> Mapping[str, Path]:
    """Return the names that a package takes from its files, and the file of each."""
    found: dict[str, Path] = {}
    for node in nodes_of(package):
        if isinstance(node, ast.ImportFrom) and (parts := _target(package, node)) is not None and (there := _module(parts)):
            for alias in node.names:
                names = _defined(there) if alias.name == "*" else (alias.asname or alias.name,)
                found |= dict.fromkeys(names, there)
    return found


def _where(path: Path, name: str) -> Path:
    """Return the file that defines what a module offers."""
    there = _handed_on(path).get(name) if path.stem == "__init__" and name not in _defined(path) else None
    return path if there is None else _where(there, name)


def imports_of(path: Path) -> set[Path]:
    """Return the files of the package that a file imports from, for types too."""
    found: set[Path] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (parts := _target(path, node)) is not None:
            for alias in node.names:
                there = _module((*parts, alias.name)) or _module(parts)
                if there is not None:
                    found.add(_where(there, alias.name))
    return found - {path}


def circles() -> list[list[str]]:
    """Return the sets of files that import each other in a circle. A package that only hands names on is none of them."""
    faces = {path for path in files() if path.stem == "__init__" and not _defined(path) - {"__all__", "__getattr__"}}
    arrows = {path: imports_of(path) - faces for path in files() if path not in faces}
    reached = {path: _reached(path, arrows) for path in arrows}
    found = {frozenset(other for other in reached[path] if path in reached[other]) for path in arrows if path in reached[path]}
    return sorted(sorted(map(name_of, circle)) for circle in found)


def _reached(path: Path, arrows: Mapping[Path, set[Path]]) -> set[Path]:
    found: set[Path] = set()
    ahead = [path]
    while ahead:
        new = arrows.get(ahead.pop(), set()) - found
        found |= new
        ahead += new
    return found


# --- classes --------------------------------------------------------------------------------------------


def fields_of(cls: ast.ClassDef) -> set[str]:
    """Return what an object holds: what is declared, and what any of its methods assigns."""
    found: set[str] = set()
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and _is_self(each.value)
            }
    return found


def large_classes() -> dict[str, int]:
    """Return the classes with more fields than one can keep in mind, but for options and values."""
    return {
        name: len(fields_of(cls))
        for path in files()
        if not name_of(path).startswith(("config/", "wire/messages/"))
        for cls in nodes_of(path)
        if isinstance(cls, ast.ClassDef) and len(fields_of(cls)) > MOST_FIELDS
        if (name := f"{name_of(path)} {cls.name}") not in VALUES
    }


# --- headers, tests, lines ------------------------------------------------------------------------------


_EMPTY: Final = re.compile(r"Decides:? (and owns )?nothing|Owns:? nothing|owns nothing")


def empty_headers() -> list[str]:
    """Return the files whose header says that they decide or own nothing."""
    return [name_of(path) for path in files() if _EMPTY.search(" ".join((ast.get_docstring(tree_of(path)) or "").split()))]


def untested() -> list[str]:
    """Return the long modules of the core without a file of tests of their own."""
    return [
        name
        for path in files()
        if (name := name_of(path)).startswith(CORE) and path.stem != "__init__" and not name.startswith(tuple(SUBJECTS))
        if len(path.read_text().splitlines()) > LONG
        if not (TESTS / name).with_name(f"test_{path.stem.lstrip('_')}.py").exists()
    ]


def lines() -> int:
    """Return the lines of the package, Python and Cython."""
    return sum(len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py*") if path.suffix in (".py", ".pyx"))


def _told(title: str, rows: Iterable[object]) -> None:
    found = list(rows)
    print(f"{title}: {len(found)}")  # noqa: T201 - it is a command
    for row in found:
        print(f"    {row}")  # noqa: T201


def main() -> None:
    """Print everything."""
    if "--walks" in sys.argv:
        from .walks import walks

        for title, passed in walks().items():
            _told(title, sorted(passed))
        return
    _told("private names across objects", private_names())
    _told("circles of files", (", ".join(circle) for circle in circles()))
    _told(f"classes with more than {MOST_FIELDS} fields", (f"{name}: {count}" for name, count in large_classes().items()))
    _told("headers that say nothing", empty_headers())
    _told(f"modules of the core with more than {LONG} lines and without tests of their own", untested())
    print(f"lines of the package: {lines()}")  # noqa: T201


if __name__ == "__main__":
    main()
