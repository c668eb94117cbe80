"""The docstrings of the options, which Python does not keep: they are read from the source of ``options.py``.

Nothing that reads records imports this: it parses a source file.
"""

import ast
import inspect
import re
from functools import cache
from itertools import chain, pairwise
from textwrap import indent
from typing import Final

from ..values import frozen
from . import options

_SECTION: Final = re.compile(r"\s*# --- (.+) ---")


_SECTIONS: Final = (
    "Connection",
    "Group",
    "What is read",
    "Fetching",
    "Time",
    "Network",
    "Security",
    "Observing",
    "Where it runs",
)
"""The order of the page. What share consumers have too stands apart from the rest in the source."""


@frozen
class Option:
    """One option as people read it."""

    name: str
    section: str
    type: str
    text: str
    """The docstring: paragraphs, and then ``Default:``, ``Allowed:`` and ``Kafka:``, each on a line."""

    @property
    def meaning(self) -> str:
        """The first paragraph."""
        return " ".join(self.text.partition("\n\n")[0].split())

    def fact(self, name: str) -> str:
        """Return what a line of facts says: ``Default``, ``Allowed`` or ``Kafka``."""
        lines = self.text.rpartition("\n\n")[2].splitlines()
        return next(line.removeprefix(f"{name}: ").removesuffix(".") for line in lines if line.startswith(f"{name}: "))


@cache
def options_by_name() -> dict[str, Option]:
    """Return all options, in the order of the page. Parses ``options.py``."""
    source = inspect.getsource(options)
    lines = source.splitlines()
    classes = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    found: dict[str, Option] = {}
    for annotated, described in chain.from_iterable(map(pairwise, classes)):
        if isinstance(annotated, ast.AnnAssign) and isinstance(annotated.target, ast.Name):
            name = annotated.target.id
            found[name] = Option(name, _section(lines, annotated.lineno), ast.unparse(annotated.annotation), _docstring(described))
    return dict(sorted(found.items(), key=lambda each: _SECTIONS.index(each[1].section)))


def _section(lines: list[str], number: int) -> str:
    return next(match[1] for line in reversed(lines[:number]) if (match := _SECTION.fullmatch(line)))


def _docstring(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def everything(before: str) -> str:
    """Return what is known of all options, as text for ``help``, after the docstring that stands ``before`` it."""
    described = (f"{option.name}: {option.type}\n{indent(option.text, '    ')}\n" for option in options_by_name().values())
    return "\n".join((inspect.cleandoc(before), "", *described))
