"""Prometheus's text format 0.0.4."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
Series: TypeAlias = tuple[tuple[tuple[str, str], ...], float | None]
"""Labels and a value; ``None``: not known, and then there is no series."""


def family(name: str, about: str, series: Iterable[Series], kind: str = "gauge") -> Iterator[str]:
    """Yield the lines of one metric."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in series:
        if value is not None:
            inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            yield f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
