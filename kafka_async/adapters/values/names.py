"""What the options of values and keys are called, and the words that they take."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ...errors import KafkaConfigurationError

VALUE: Final = "value"
KEY: Final = "key"
REGISTRY: Final = "value.schema.registry."
"""Prefix of a schema registry's options; the options of keys are looked up by the names of those of values."""
OF_REGISTRY: Final = ("basic.auth.user.info", "bearer.auth.client.secret", "bearer.auth.token", "proxy", "ssl.key.password")
"""What follows in the names of those that are secrets."""


def one_of(given: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """Return the value of an option; the first of ``words`` if it is not given. Raises ``KafkaConfigurationError``."""
    word = given.get(name, words[0]).strip().lower()
    if word not in words:
        raise KafkaConfigurationError(f"{name}={given[name]!r}: expected {' or '.join(words)}")
    return word


def with_names(text: str, names: Iterable[str], shown: Callable[[str], str]) -> str:
    """Return an error's text with ``shown(name)`` in place of each option's name; what it quotes is a value and stays as it is."""
    known = frozenset(names)
    words = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    quoted = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    return re.sub(rf"{quoted}|(?<![\w.])(?:{words})(?!\w)", lambda found: shown(found[0]) if found[0] in known else found[0], text)
