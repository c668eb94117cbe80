"""Numbers of a monitor as people read them.

``> 12 min`` if it is more than that, ``~ 3 h`` if it is about that, ``?`` if it is not known.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from .times import Age, Certainty

UNKNOWN: Final = "?"
NOTHING: Final = "-"
_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "_.-=+*%#"
_UNITS: Final = ((86_400.0 * 2, 86_400.0, "d"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min"))
"""From how many seconds on a unit is used, and its length."""


def count(number: int | None, complete: bool = True) -> str:
    """Return a number of records: ``412,003``; ``>=`` before what is not all of it."""
    if number is None:
        return UNKNOWN
    return f"{'' if complete else '>='}{number:,}"


def duration(seconds: float | None) -> str:
    """Return a time: ``0.4 s``, ``41 s``, ``12 min``, ``3 h``, ``5 d``."""
    if seconds is None:
        return NOTHING
    if seconds == inf:
        return "never"
    for least, length, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


def behind(age: Age | None, lag: int | None) -> str:
    """Return how far behind a group is in time."""
    if lag is None or (age is None and lag):
        return UNKNOWN
    if age is None:
        return duration(0.0)
    marks = {Certainty.OVER: "> ", Certainty.ABOUT: "~ "}
    return f"{marks.get(age.certainty, '')}{duration(age.seconds)}"


def rate(number: float | None) -> str:
    """Return records a second."""
    if number is None:
        return NOTHING
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"


def sparkline(numbers: Sequence[int], width: int, *, plain: bool = False) -> str:
    """Return the last numbers as a line of bars, the largest the highest."""
    bars = _PLAIN_BARS if plain else _BARS
    shown = numbers[-width:] if width > 0 else ()
    most = max(shown, default=0)
    return "".join(bars[min(number * len(bars) // (most + 1), len(bars) - 1)] for number in shown)
