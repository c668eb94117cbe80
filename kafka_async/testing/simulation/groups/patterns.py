"""Patterns of topic names. Brokers use RE2, and here it is Python's ``re`` that compares: what only that knows is refused."""

import re
from typing import Final

_FOREIGN: Final = "|".join(
    (
        r"\\[1-9ZNuU]",  # references to groups, and escapes
        r"\(\?(?:<?[=!]|P=|[>(#])",  # looking around, a reference by name; atomic, conditional, a comment
        r"\(\?[ims-]*[aLux]",  # flags
        r"(?:[*+?]|\{\d+,?\d*\})\+",  # possessive repeats
    )
)
_OTHERS: Final = r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|."
_TOKEN: Final = re.compile(f"(?P<foreign>{_FOREIGN})|{_OTHERS}", re.DOTALL)


def is_valid(pattern: str) -> bool:
    """Whether a broker accepts it, as far as Python can tell."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return all(token["foreign"] is None for token in _TOKEN.finditer(pattern))
