"""The import rules of the package: the ladder, purity, one file for one idea."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kafka_async"
LADDER = ("adapters", "application", "background", "network", "records", "wire")
LEAVES = ("config", "errors", "events", "model", "trace")
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
    "network/sasl/factory.py",
    "network/sasl/kerberos.py",
    "network/sasl/msk.py",
    "network/sasl/oidc.py",
    "network/sasl/tokens.py",
    "network/tls.py",
    "network/transport.py",
    "network/waiting.py",
    "background/loop.py",
    "records/implementation.py",
}
"""The files of the pure packages that touch the world; ``implementation`` reads one environment variable, once."""
LONGEST = 500
LONGER = {"errors.py": "a table: one small class for each error code"}

FILES = sorted(path for path in PACKAGE.rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _imports(path: Path) -> Iterator[str]:
    """Yield what a file imports: ours as ``package`` or leaf name relative to the root, others by their top level name."""
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
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


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_package_imports_only_what_sorts_after_it(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    ours = {name.removeprefix("ours:") for name in _imports(path) if name.startswith("ours:")}
    if len(parts) > 1:
        above = LADDER[: LADDER.index(parts[0])]
        assert not ours & set(above)
    elif path.stem in LEAVES:
        assert ours <= set(LEAVES)


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_what_decides_touches_no_clock_socket_thread_or_randomness(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] in ("wire", "records", "background", "network") and _name(path) not in SHELLS:
        assert not set(_imports(path)) & IMPURE


def test_only_wire_knows_kio() -> None:
    assert {_name(path).split("/")[0] for path in FILES if "kio" in path.read_text()} <= {"wire"}


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_file_says_what_it_is_for_and_stays_short(path: Path) -> None:
    text = path.read_text()
    if path.stem != "__init__":
        assert ast.get_docstring(ast.parse(text)), "opens with what it decides, what it owns and what it must never do"
    assert len(text.splitlines()) <= LONGEST or _name(path) in LONGER
