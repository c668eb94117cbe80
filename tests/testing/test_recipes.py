"""The page for users: each of its recipes runs as printed there."""

import asyncio
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGE = ROOT / "kafka_async" / "testing" / "README.md"
RECIPES = re.findall(r"^### \d\. (.+?)$.*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


SERVICE = re.search(r"^### In a web service$.*?```python\n(.*?)```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that the recipe about web services tests: the first recipe of the README."""
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    assert SERVICE is not None
    module = ModuleType("service")
    exec(compile(SERVICE[1], "README.md: In a web service", "exec"), vars(module))  # noqa: S102 - our own page
    monkeypatch.setitem(sys.modules, "service", module)


def test_there_are_six_recipes() -> None:
    assert len(RECIPES) == 6


@pytest.mark.slow
def test_a_service_lives_again_with_a_new_client(service: None, request: pytest.FixtureRequest) -> None:
    (code,) = (code for title, code in RECIPES if title == "A web service")
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    for _ in range(2):
        names["test_an_order_is_billed"](request.getfixturevalue("monkeypatch"))


@pytest.mark.slow
@pytest.mark.parametrize(("title", "code"), RECIPES, ids=[title for title, _ in RECIPES])
def test_every_recipe_of_the_page_passes(title: str, code: str, service: None, request: pytest.FixtureRequest) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, f"{PAGE.name}: {title}", "exec"), names)  # noqa: S102 - our own page
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        outcome = test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})
        if inspect.isawaitable(outcome):
            asyncio.run(_awaited(outcome))


async def _awaited(outcome: Any) -> None:
    await outcome
