"""Java's properties files: what a text of theirs says.

As ``java.util.Properties.load``. No value is shown: such files are where people keep passwords.
"""

import re
from collections.abc import Iterator
from typing import Final

_BLANK: Final = " \t\f"
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<other>.?))", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Return the values by their keys; if a key occurs twice, the last value counts.

    Comments begin with ``#`` or ``!``; a line that ends with a backslash goes on in the next; key and value are separated by ``=``,
    ``:`` or blanks; ``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\uXXXX`` are what they are in Java, and any other character after a
    backslash is itself. Raises ``ValueError`` that names the line of a ``\\u`` without four hexadecimal digits.
    """
    found = {}
    for number, line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: expected key=value; the text is not shown")
        found[_unescaped(match["key"], number)] = _unescaped(match["value"], number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, those that go on in the next joined, with the number of the first of them."""
    begun, joined = 0, ""
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANK)
        if not joined:
            begun = number
            if not line or line[0] in "#!":
                continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if goes_on else line
        if joined and not goes_on:
            yield begun, joined
            joined = ""
    if joined:
        yield begun, joined


def _unescaped(text: str, number: int) -> str:
    def meant(match: re.Match[str]) -> str:
        code, other = match["code"], match["other"]
        if code is not None:
            return chr(int(code, 16))
        if other == "u":
            raise ValueError(f"line {number}: expected four hexadecimal digits after \\u; the text is not shown")
        return _CONTROLS.get(other, other)

    # Java writes characters beyond U+FFFF as two codes.
    return _ESCAPE.sub(meant, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
