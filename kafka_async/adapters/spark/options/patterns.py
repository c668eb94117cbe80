"""``subscribePattern``: regular expressions that mean the same in Java and in Python.

A pattern that Python read differently would silently read other topics. So what is not known to mean the same is refused, by name
and place.

Sources: ``java.util.regex.Pattern`` of JDK 17, and Python's ``re``.
"""

import re
from typing import Final

from ....errors import KafkaConfigurationError

_CODE: Final = r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[dDsSwWtnrf]|[^A-Za-z0-9\s]"
"""What may follow a backslash anywhere: Java and Python have the same sets, controls, codes and quoted signs."""
_ONE_OF: Final = rf"\[\^?(?:\\(?:{_CODE})|(?!&&|--|~~|\|\|)[^\[\]\\])+\]"
_PARTS: Final = (
    r"\A\(\?i\)",
    r"\((?:\?(?:[:=!>]|<[=!])|(?!\?))",
    r"\{\d+(?:,\d*)?\}",
    rf"\\(?:{_CODE}|[bBA])",
    _ONE_OF,
    r"[^\\\[(){]",
    r"\)",
)
_PART: Final = re.compile("|".join(_PARTS))
_SHOWN: Final = 8
"""Characters of what is not understood that an error shows."""


def python_pattern(text: str) -> str:
    """Return ``text``, a pattern of Java's that Python finds in the same names of topics.

    Raises ``KafkaConfigurationError`` for invalid patterns, and for syntax that is not accepted here: nested classes and their
    intersection, ``\\p``, ``\\Q``, named groups, back references, flags other than ``(?i)`` at the beginning.
    """
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise _refused(text, f"{text[at : at + _SHOWN]!r} at character {at + 1} is not supported; use simpler syntax")
        at = part.end()
    try:
        re.compile(text)
    except (re.error, OverflowError) as error:
        raise _refused(text, str(error)) from None
    return text


def _refused(text: str, problem: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(
        f"subscribePattern={text!r} is not a regular expression that Java and Python both have: {problem}"
    )
