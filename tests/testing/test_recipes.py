"""The page for users: each of its recipes runs as printed there."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent.parent / "kafka_async" / "testing" / "README.md"
RECIPES = re.findall(r"^### \d\. (.+?)$.*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_five_recipes() -> None:
    assert len(RECIPES) == 5


@pytest.mark.parametrize(("title", "code"), RECIPES, ids=[title for title, _ in RECIPES])
def test_every_recipe_of_the_page_passes(title: str, code: str, request: pytest.FixtureRequest) -> None:
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
