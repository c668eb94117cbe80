"""What a mistyped name may have meant: of an option, a topic or a group.

Names that may be secrets are not to be asked about.
"""

from collections.abc import Iterable
from typing import Final

ALIKE: Final = 0.7
"""From 0, nothing in common, to 1, the same."""


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """Return the one of ``known`` that is most like ``name``, whether in capitals or not; ``None`` if none is."""
    import difflib  # needed only for a mistyped name

    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=alike)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """Return ``"; did you mean 'orders'?"``, the end of an error; the empty text if none of ``known`` is like ``name``."""
    found = nearest(name, known, alike)
    return "" if found is None else f"; did you mean {found!r}?"
