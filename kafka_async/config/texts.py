"""Options that come as text: from a command line, the environment or a file.

An error shows a text only if its option cannot be a secret.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import Attribute

from ..values import field, frozen

_FLAGS: Final = {"true": True, "false": False}


def _flag(text: str) -> bool:
    return _FLAGS[text.strip().lower()]


def _number(text: str) -> int:
    """Return a number in ASCII digits; Python's ``1_000`` is not one."""
    stripped = text.strip()
    if not stripped.removeprefix("-").isdecimal() or not stripped.isascii():
        raise ValueError
    return int(stripped)


def _mapping(text: str) -> Any:
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError
    return found


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_BY_TYPE: Final[Mapping[Any, tuple[Callable[[str], Any], str]]] = {
    int: (_number, "an integer"),
    bool: (_flag, "true or false"),
    Mapping[str, str] | None: (_mapping, 'JSON like {"name": "value"}; the value is not shown'),
}
_BY_NAME: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "partition_assignment_strategy": (_listed, "names of assignors with commas between them"),
    "bootstrap_servers": (str, ""),
}
OBJECTS: Final = frozenset(
    ("key_deserializer", "value_deserializer", "interceptors", "ssl_context", "sasl_oauth_token_provider", "trace")
)
"""Options that take Python objects, which no text can give: code that a text names is never loaded."""


def option_name(name: str) -> str:
    """Return the option that a name means; dots and underscores are the same."""
    return name.strip().replace(".", "_").lower()


@frozen(eq=False)
class OptionTexts:
    """Reads the options of a class from text. Their checks come later."""

    fields: Mapping[str, "Attribute[Any]"] = field(repr=False)

    @property
    def names(self) -> frozenset[str]:
        """The names of all options."""
        return frozenset(self.fields) - {"given"}

    def value(self, name: str, text: str, shown_name: str | None = None) -> Any:
        """Return what ``text`` means as the value of the option ``name``.

        ``shown_name``: what the option is called where the text stands. Raises ``ValueError`` that names it and what is expected,
        and that shows the text only of numbers, flags and assignors, which are no secrets. Raises ``KeyError`` for an option that
        does not exist.
        """
        if name not in self.names:
            raise KeyError(name)
        shown = shown_name or name
        if name in OBJECTS:
            raise ValueError(f"{shown} takes a Python object and cannot be given as text; give it in the program")
        convert, expected = self.reading_of(name)
        try:
            return convert(text)
        except (ValueError, KeyError):
            given = f"{shown}={text!r:.100}" if self.fields[name].type in (int, bool) else shown
            raise ValueError(f"{given}: expected {expected}") from None

    def reading_of(self, name: str) -> tuple[Callable[[str], Any], str]:
        """Return what reads the text of an option, raising ``ValueError`` or ``KeyError``, and what the text is expected to be."""
        return _BY_NAME.get(name) or _BY_TYPE.get(self.fields[name].type) or (str, "")
