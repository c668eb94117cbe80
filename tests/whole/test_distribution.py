"""The distribution: what it is called, what its extras bring, and what people are told to install.

The distribution is ``kafka-async-consumer`` and the import ``kafka_async``. The name of the import, with a hyphen, belongs to
somebody else on the package index, so no text may tell anybody to install it.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOREIGN = re.compile(r"\bpip3? install\b[^\n;&|`]*?\bkafka[-_.]async(?!-consumer)(?![\w/])|kafka[-]async\[")
"""A line that installs the foreign distribution, or names it with an extra."""
TEXT = {"", ".cfg", ".ini", ".ipynb", ".java", ".md", ".py", ".pyi", ".pyx", ".rst", ".sh", ".toml", ".txt", ".yaml", ".yml"}
MADE = {".git", ".venv", "__pycache__", "build", "dist"}


def _texts() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        made = MADE.intersection(parts) or any(part.endswith(("_cache", ".egg-info")) for part in parts)
        if path.is_file() and path.suffix in TEXT and not made:
            yield path


def test_the_distribution_has_a_name_that_nobody_else_has() -> None:
    assert PROJECT["name"] == "kafka-async-consumer"


@pytest.mark.slow
def test_no_text_says_to_install_the_package_of_somebody_else() -> None:
    texts = {path: path.read_text(errors="replace") for path in _texts()}
    assert {ROOT / "README.md", ROOT / ".ci" / "run", ROOT / "kafka_async" / "__init__.py"} <= texts.keys()
    assert [f"{path.relative_to(ROOT)}: {match[0]}" for path, text in texts.items() if (match := FOREIGN.search(text))] == []


@pytest.mark.parametrize(
    ("line", "foreign"),
    [
        ("pip install '{}[spark]'", True),
        ("pip install {}", True),
        ("uv pip install --upgrade {}", True),
        ("needs the extra: {}[cli]", True),
        ("pip install '.[spark]'", False),
        ("pip install {}-consumer", False),
        ("pip install -e . && .venv/bin/python -m kafka_async demo", False),
    ],
)
def test_the_check_knows_such_a_line_when_it_sees_one(line: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(line.format("-".join(("kafka", "async"))))) is foreign


def test_an_extra_that_brings_another_one_names_this_distribution() -> None:
    own = [needed for extra in PROJECT["optional-dependencies"].values() for needed in extra if needed.startswith("kafka")]
    others = ("kafka-python",)
    assert [needed for needed in own if not needed.startswith((PROJECT["name"] + "[", *others))] == []
    named = {name for needed in own for name in re.findall(r"[\w-]+", needed.partition("[")[2])}
    assert named <= PROJECT["optional-dependencies"].keys()


def test_licence_and_changelog_travel_with_the_package() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    (licence,) = PROJECT["license-files"]
    text = (ROOT / licence).read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    changes = (ROOT / "kafka_async" / "CHANGELOG.md").read_text()
    assert f"\n## {PROJECT['version']}" in changes, "the version that is being made has an entry"


def test_every_file_of_the_package_that_people_read_is_in_the_wheel() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = set(tool["package-data"]["kafka_async"])
    package = ROOT / "kafka_async"
    pages = {path.relative_to(package).as_posix() for path in package.rglob("*.md") if path.name != "README.md"}
    assert pages <= shipped
