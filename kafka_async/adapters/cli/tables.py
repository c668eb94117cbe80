"""Rows as a table for people.

Columns are aligned without lines, numbers on the right, with ``-`` for what is not known. Every client chooses its own name, so no
text reaches the terminal with control codes.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from rich.console import Console
from rich.table import Table

Cell: TypeAlias = "str | int | Figure | None"
Rows: TypeAlias = Sequence[Sequence[Cell]]


class Figure(str):
    """A number, or a time, as text."""


class AtLeast(int):
    """A number that may be larger: a part of what it adds up is not known."""

    def __str__(self) -> str:
        return f">={int(self)}"


_WIDE: Final = 10_000
"""Columns if the output is not a terminal: a file or a pipe gets each row on one line."""


def table(columns: Sequence[str], rows: Rows) -> str:
    """Return rows under the names of their columns, each line ended. On a terminal, long cells are folded to fit."""
    grid = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        kinds = {type(row[index]) for row in rows} - {type(None)}
        grid.add_column(name, justify="right" if kinds and kinds <= {int, AtLeast, Figure} else "left", overflow="fold")
    for row in rows:
        grid.add_row(*[_shown(cell) for cell in row])
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=_WIDE)
    with console.capture() as capture:
        console.print(grid)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def printable(text: str) -> str:
    """Return ``text`` with every unprintable character as a Python escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _shown(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    return printable(cell) if isinstance(cell, str) else str(cell)
