"""What a mistyped name may have meant: of an option, a topic or a group.

Names that may be secrets are not to be asked about.
"""

from collections.abc import Collection, Iterable
from typing import Final

ALIKE: Final = 0.7
"""From 0, nothing in common, to 1, the same."""
_MANY: Final = 1000
"""Names that may be compared: a cluster has tens of thousands of topics, and an event loop waits meanwhile."""
_LONGER: Final = 3
"""Characters that a name may have more or less if there are many."""


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """Return the one of ``known`` that is most like ``name``, whether in capitals or not; ``None`` if none is.

    Of many, only those of about the same length are compared, and none if these are many too.
    """
    import difflib  # needed only for a mistyped name

    by_lower = {candidate.lower(): candidate for candidate in known}
    if len(by_lower) > _MANY:
        by_lower = {lower: known for lower, known in by_lower.items() if abs(len(lower) - len(name)) <= _LONGER}
        if len(by_lower) > _MANY:
            return None
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=alike)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """Return ``"; did you mean 'orders'?"``, the end of an error; the empty text if none of ``known`` is like ``name``."""
    found = nearest(name, known, alike)
    return "" if found is None else f"; did you mean {found!r}?"


def did_you_mean_one(missing: Collection[str], known: Iterable[str]) -> str:
    """Return the same end for the first of several names that has one; no missing name is meant, even if it is known by now."""
    others = [name for name in known if name not in missing]
    return next((hint for name in missing if (hint := did_you_mean(name, others))), "")
