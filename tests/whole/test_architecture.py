"""The import rules of the package: the ladder, purity, one file for one idea."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from kafka_async.background.boundary import WRITER, Demand, EventHandler, Exchange, FetchBuffer, UnreadBytes

from ..effort import for_each
from .house import fields_of, files, name_of, nodes_of, tree_of

PACKAGE = Path(__file__).parents[2] / "kafka_async"
LADDER = ("adapters", "application", "background", "network", "records", "testing", "wire")
LEAVES = ("config", "errors", "events", "model", "started", "states", "trace")
IMPURE = {
    "asyncio",
    "anyio",
    "trio",
    "socket",
    "ssl",
    "select",
    "selectors",
    "threading",
    "time",
    "random",
    "logging",
    "os",
    "secrets",
}
SHELLS = {
    "network/connection.py",
    "network/event_loops.py",
    "network/names.py",
    "network/sasl/assertion.py",
    "network/sasl/factory.py",
    "network/sasl/kerberos.py",
    "network/sasl/msk.py",
    "network/sasl/oidc.py",
    "network/sasl/threads.py",
    "network/sasl/tokens.py",
    "network/tls.py",
    "network/transport.py",
    "network/waiting.py",
    "background/loop/loop.py",
    "records/implementation.py",
}
"""The files of the pure packages that touch the world; ``implementation`` reads one environment variable, once."""

EXCEPTIONS = {"testing/secure.py": {"network"}}
"""``RealCluster`` is a client of real brokers, and logs in as the consumer does."""

FILES = files()


def _imports(path: Path) -> Iterator[str]:
    """Yield what a file imports: ours as ``package`` or leaf name relative to the root, others by their top level name."""
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                yield "ours:" + parts[1] if parts[0] == "kafka_async" and len(parts) > 1 else parts[0]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = here[: len(here) - node.level + 1] + tuple((node.module or "").split(".") if node.module else ())
                yield from (f"ours:{base[0]}",) if base else (f"ours:{alias.name}" for alias in node.names)
            elif node.module is not None:
                parts = node.module.split(".")
                yield "ours:" + parts[1] if parts[0] == "kafka_async" and len(parts) > 1 else parts[0]


@pytest.mark.slow
@for_each(FILES)
def test_a_package_imports_only_what_sorts_after_it(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    ours = {name.removeprefix("ours:") for name in _imports(path) if name.startswith("ours:")}
    if parts[0] in LADDER:
        above = set(LADDER[: LADDER.index(parts[0])]) - EXCEPTIONS.get(name_of(path), set())
        assert not ours & above
    elif Path(parts[0]).stem in LEAVES:
        assert ours <= {*LEAVES, "functions", "lazy", "values"}


@pytest.mark.slow
@for_each(FILES)
def test_what_decides_touches_no_clock_socket_thread_or_randomness(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] in ("wire", "records", "background", "network") and name_of(path) not in SHELLS:
        assert not set(_imports(path)) & IMPURE


@pytest.mark.slow
def test_kio_is_wanted_by_tests_alone() -> None:
    assert not [name_of(path) for path in FILES if "kio" in set(_imports(path))]


@for_each(FILES)
def test_a_file_says_what_it_is_for(path: Path) -> None:
    if path.stem != "__init__":
        assert ast.get_docstring(tree_of(path)), "opens with its idea"


def _parts(package: Path) -> Iterator[str]:
    """Yield the files and the packages in a package, as its map names them."""
    for path in package.iterdir():
        if path.suffix in (".py", ".pyx") and path.stem not in ("__init__", "__main__"):
            yield path.name
        elif (path / "__init__.py").exists():
            yield f"{path.name}/"


@for_each([path for path in FILES if path.stem == "__init__"])
def test_a_package_opens_with_its_map(path: Path) -> None:
    text = ast.get_docstring(tree_of(path)) or ""
    files, packages = set(re.findall(r"(?<![\w/])\w+\.pyx?\b", text)), set(re.findall(r"(?<![\w/])\w+/(?=[\s,:])", text))

    assert set(_parts(path.parent)) <= files | packages
    assert all((path.parent / name).exists() or (path.parent.parent / name).exists() for name in files | packages)


def test_no_two_classes_have_one_name() -> None:
    """A search for a name finds one class. The blocking facade has the names of what it blocks on: one changes the import alone."""
    found: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name_of(path))

    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert all(set(files) & {"adapters/sync.py", "adapters/sync_share.py"} for files in twice.values()), twice
    assert twice.keys() == {"KafkaConsumer", "ShareConsumer", "Processing"}


def _is_a_partition(found: ast.JoinedStr) -> bool:
    """Return whether a text is made as ``{topic}-{partition}``."""
    names = [
        getattr(part.value, "attr", getattr(part.value, "id", "")) for part in found.values if isinstance(part, ast.FormattedValue)
    ]
    return names[:2] == ["topic", "partition"] and any(getattr(part, "value", None) == "-" for part in found.values)


def test_one_place_writes_a_partition_as_text() -> None:
    found = {
        name_of(path) for path in FILES for node in nodes_of(path) if isinstance(node, ast.JoinedStr) and _is_a_partition(node)
    }

    assert found == {"model.py"}


def test_a_file_of_tests_has_one_subject() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in Path(__file__).parents[1].rglob("*.py")}

    assert {name for name, length in lengths.items() if length > 1000} == set(), "split them by subject"


# --- shape ----------------------------------------------------------------------------------------------------------------------


@cache
def _classes(path: Path) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in nodes_of(path) if isinstance(node, ast.ClassDef))


@cache
def _private(path: Path, cls: ast.ClassDef) -> set[str]:
    """Return the private names that a class defines, or inherits."""
    names = fields_of(cls).union(*(_private(file, base) for file, base in _bases(path, cls)))
    for node in cls.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def _bases(path: Path, cls: ast.ClassDef) -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield the base classes that are ours and stand in another file, with the file."""
    names = {ast.unparse(base).split("[")[0] for base in cls.bases}
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1]
            file = folder.joinpath(*(node.module or "").split(".")).with_suffix(".py")
            wanted = {alias.name for alias in node.names if (alias.asname or alias.name) in names}
            if wanted and file.exists():
                yield from ((file, base) for base in _classes(file) if base.name in wanted)


@pytest.mark.slow
def test_no_class_is_split_over_files_by_inheritance() -> None:
    """A class that uses private names of its base is one class in two files: it holds parts instead."""
    split = set()
    for path in FILES:
        for cls in _classes(path):
            used = {node.attr for node in ast.walk(cls) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"}
            if any(used & _private(file, base) for file, base in _bases(path, cls)):
                split.add(f"{name_of(path)} {cls.name}")
    assert not split


def test_nothing_in_the_application_names_the_inside_of_the_loop() -> None:
    """The loop is started, woken and asked; what it is made of is its own."""
    inside = {name for cls in _classes(PACKAGE / "background" / "loop" / "loop.py") for name in fields_of(cls)} - {
        "ended",
        "failure",
    }
    reaching = {
        name_of(path)
        for path in (PACKAGE / "application").rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in inside and ast.unparse(node.value).endswith("loop")
    }
    assert not reaching


def test_only_the_owner_of_the_subscription_assigns_to_the_state_of_a_partition() -> None:
    state = next(cls for cls in _classes(PACKAGE / "background" / "positions" / "subscription.py") if cls.name == "PartitionState")
    writers = {
        name_of(path)
        for path in (PACKAGE / "background").rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in fields_of(state)
        if ast.unparse(node.value) in ("entry", "start.entry", "known")
    }
    assert writers <= {"background/positions/subscription.py"}


SHARED: Final[dict[str, type[Any]]] = {
    "handler": EventHandler,
    "boundary": EventHandler,
    "buffer": FetchBuffer,
    "account": UnreadBytes,
    "total": UnreadBytes,
    "exchange": Exchange,
    "demand": Demand,
}
"""What objects of the boundary are called where they are used."""


def _shared(node: ast.expr) -> type[Any] | None:
    return SHARED.get(ast.unparse(node).split(".")[-1].lstrip("_"))


def _written(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield what is assigned to: a field, or an item of what a field holds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Attribute):
            yield node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def _writers_of_the_boundary() -> Iterator[tuple[str, str, str]]:
    """Yield the field, who writes it, and who may."""
    for path in (file for side in ("application", "background") for file in (PACKAGE / side).rglob("*.py")):
        side = name_of(path).split("/")[0]
        for node in _written(tree_of(path)):
            cls = _shared(node.value)
            if cls is not None and name_of(path) != "background/boundary.py":
                may = getattr(attrs.fields(cls), node.attr).metadata[WRITER]
                yield f"{cls.__name__}.{node.attr}", "assembly" if name_of(path) == "application/parts.py" else side, may


@pytest.mark.slow
def test_each_field_that_both_sides_see_has_one_writer() -> None:
    found = set(_writers_of_the_boundary())
    assert {name for name, writer, may in found if writer != may} == set()
    both_kinds = {"EventHandler.polled_at", "FetchBuffer.watermarks", "Exchange.taken", "Exchange.delivered", "Demand.read_at"}
    assert both_kinds <= {name for name, _, _ in found}


def test_each_field_of_the_boundary_names_its_writer() -> None:
    fields = {f"{cls.__name__}.{field.name}": field.metadata.get(WRITER) for cls in SHARED.values() for field in attrs.fields(cls)}
    assert {name for name, writer in fields.items() if writer not in ("application", "background", "both", "assembly")} == set()


@pytest.mark.parametrize("side", ["application", "background"])
def test_the_boundary_is_used_from_the_side_that_each_method_is_for(side: str) -> None:
    wrong = set()
    for path in (PACKAGE / side).rglob("*.py"):
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                cls = _shared(node.func.value)
                said = " ".join((inspect.getdoc(getattr(cls, node.func.attr, None)) or "").split()) if cls else ""
                if "Called by the" in said and f"Called by the {side}" not in said:
                    wrong.add(f"{name_of(path)}: {cls}.{node.func.attr}")
    assert not wrong
