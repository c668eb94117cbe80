"""Java's regular expressions in Python's notation, for names of topics.

Decides: which of Java's notation means the same here, how the rest is written in Python, and what is refused. Owns nothing. Must
never let a pattern through that Python reads in another way: that job would read other topics, without a word.

Topics are named with ASCII letters, digits, ``.``, ``_`` and ``-``; what is said of other characters only has to be well-formed.
Source: ``java.util.regex.Pattern`` of JDK 17.
"""

import re
import string
import unicodedata
from collections.abc import Callable
from typing import Final

from attrs import define

from ...errors import KafkaConfigurationError

_ASCII: Final = "".join(map(chr, range(128)))
_NONE: Final = "\\uffff"
"""A set that has nothing in it; Python knows no empty one."""

_PROPERTIES: Final[dict[str, Callable[[str], bool]]] = {
    "Lower": str.islower,
    "Upper": str.isupper,
    "ASCII": str.isascii,
    "Alpha": str.isalpha,
    "Digit": str.isdigit,
    "Alnum": str.isalnum,
    "Punct": string.punctuation.__contains__,
    "Graph": lambda each: "!" <= each <= "~",
    "Print": lambda each: " " <= each <= "~",
    "Blank": " \t".__contains__,
    "Cntrl": lambda each: each < " " or each == "\x7f",
    "XDigit": string.hexdigits.__contains__,
    "Space": " \t\n\x0b\f\r".__contains__,
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
    "javaLetter": str.isalpha,
    "javaDigit": str.isdigit,
    "javaLetterOrDigit": str.isalnum,
    "IsAlphabetic": str.isalpha,
    "IsLetter": str.isalpha,
    "IsDigit": str.isdigit,
    "IsLowercase": str.islower,
    "IsUppercase": str.isupper,
    "IsLatin": str.isalpha,
    "InBasicLatin": str.isascii,
}
_CATEGORY: Final = re.compile(r"(?:Is|gc=|general_category=)?([LMNPSZC][a-z]?)")
_CATEGORIES: Final = frozenset(unicodedata.category(chr(code)) for code in range(0x10000))

_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CODES: Final = re.compile(
    r"0(?P<octal>[0-3][0-7]{2}|[0-7]{1,2})|x(?P<two>[0-9A-Fa-f]{2})|x\{(?P<any>[0-9A-Fa-f]{1,6})\}|u(?P<four>[0-9A-Fa-f]{4})"
)
_PROPERTY: Final = re.compile(r"[pP](?:\{(?P<long>[^}]*)\}|(?P<short>[A-Z]))")
_SETS: Final = frozenset("dDsSwW")
_ANCHORS: Final = {"A": "\\A", "Z": "\\Z", "z": "\\Z", "b": "\\b", "B": "\\B"}
_BACK: Final = re.compile(r"([1-9])(?![0-9])|k<([A-Za-z][A-Za-z0-9]*)>")
_GROUP: Final = re.compile(r"\(\?(?:(?P<plain>[:=!>]|<[=!])|<(?P<name>[A-Za-z][A-Za-z0-9]*)>|(?P<flags>[idmsu-]+)(?P<end>[:)]))")
_REPETITION: Final = re.compile(r"\{\d+(?:,\d*)?\}")


def python_pattern(text: str) -> str:
    """Return the pattern that Python finds in names of topics where Java finds ``text``.

    Raises ``KafkaConfigurationError`` that names what is no pattern of Java's, or cannot be said in Python.
    """
    try:
        pattern = _Reader(_unquoted(text)).pattern()
        re.compile(pattern)
    except (_UntranslatableError, re.error, OverflowError) as error:
        raise KafkaConfigurationError(
            f"subscribePattern={text!r} is no regular expression of Java's that can be used: {error}"
        ) from None
    return pattern


class _UntranslatableError(Exception):
    """The text says what is in the way."""


def _unquoted(text: str) -> str:
    r"""Return the pattern with what stands between ``\Q`` and ``\E`` escaped, which is what Java begins with too."""
    parts, at = [], 0
    for match in re.finditer(r"\\Q(.*?)(?:\\E|\Z)|\\.", text, re.DOTALL):
        if match[1] is not None:
            parts += [text[at : match.start()], "".join(map(_literal, match[1]))]
            at = match.end()
    return "".join((*parts, text[at:]))


def _literal(character: str) -> str:
    """Return what means this character in both languages, wherever it stands."""
    code = ord(character)
    if character.isascii() and (character.isdigit() or character.isspace()):  # a digit would belong to an escape before it
        return f"\\x{code:02x}"
    return character if character.isalnum() or character == "_" or not character.isascii() else f"\\{character}"


@define
class _Reader:
    """Reads a pattern from left to right."""

    text: str
    at: int = 0
    ignore_case: bool = False

    def pattern(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text):
            parts.append(self._next(first=not any(parts)))
        return ("(?i)" if self.ignore_case else "") + "".join(parts)

    def _next(self, *, first: bool) -> str:
        match self._peek():
            case "\\":
                return self._escaped()
            case "[":
                return self._class()
            case "(" if self.text.startswith("(?", self.at):
                return self._group(first=first)
            case "{":
                return self._take(_REPETITION, "'{' without a number of times; a brace itself is '\\{'")[0]
            case "(" | ")" | "|" | "." | "^" | "$" | "*" | "+" | "?":
                return self._character()
            case _:
                return _literal(self._character())

    # --- steps -----------------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _character(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def _find(self, wanted: re.Pattern[str]) -> re.Match[str] | None:
        found = wanted.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def _take(self, wanted: re.Pattern[str], problem: str) -> re.Match[str]:
        found = self._find(wanted)
        if found is None:
            raise _UntranslatableError(problem)
        return found

    # --- groups ----------------------------------------------------------------------------------------------------------------

    def _group(self, *, first: bool) -> str:
        beginning = self.text[self.at : self.at + 4]
        found = self._take(_GROUP, f"{beginning!r} begins no group that Java and Python both have")
        if found["plain"]:
            return found[0]
        if found["name"]:
            return f"(?P<{found['name']}>"
        on, _, off = found["flags"].partition("-")
        if found["end"] == ":":  # of all flags only this one matters to names of topics
            return "(?i:" if "i" in on else "(?-i:" if "i" in off else "(?:"
        if "i" in found["flags"] and not first:
            raise _UntranslatableError(f"{found[0]!r} in the middle; write it at the beginning, or as '(?i:...)'")
        self.ignore_case = ("i" in on or self.ignore_case) and "i" not in off
        return ""

    # --- escapes ---------------------------------------------------------------------------------------------------------------

    def _escaped(self) -> str:
        """Return what an escape outside a class is in Python."""
        self.at += 1
        back = self._find(_BACK)
        if back is not None:
            return f"(?:\\{back[1]})" if back[1] else f"(?P={back[2]})"  # digits that follow are not part of the number
        letter = self._peek()
        if letter in _ANCHORS and letter and not self.text.startswith("{", self.at + 1):
            self.at += 1
            return _ANCHORS[letter]
        single, inside = self._one_or_set()
        return _literal(single) if single else f"[{inside}]"

    def _one_or_set(self) -> tuple[str, str]:
        """Return the character that an escape means, or what a class holds that means its set."""
        code = self._find(_CODES)
        if code is not None:
            number = int(code["octal"], 8) if code["octal"] else int(code["two"] or code["any"] or code["four"], 16)
            if number > 0x10FFFF:
                raise _UntranslatableError(f"'\\{code[0]}' is no character")
            return chr(number), ""
        named = self._find(_PROPERTY)
        if named is not None:
            return "", _property(named["long"] or named["short"] or "", negated=named[0].startswith("P"))
        letter = self._character() if self._peek() else ""
        if letter in _SETS and letter:
            return "", f"\\{letter}"
        if letter in _CONTROLS:
            return _CONTROLS[letter], ""
        if not letter or (letter.isascii() and letter.isalnum()):
            raise _UntranslatableError(f"the escape '\\{letter}' is not supported here")
        return letter, ""

    # --- classes ---------------------------------------------------------------------------------------------------------------

    def _class(self) -> str:
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        items: list[str] = []
        while self._peek() != "]" or not items:  # a bracket that comes first is one of the characters
            items.append(self._item())
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _item(self) -> str:
        single, inside = self._member()
        if not single:
            return inside
        if self._peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", "["):
            return _literal(single)
        self.at += 1
        last, _ = self._member()
        if not last:
            raise _UntranslatableError(f"in a class, the range from {single!r} has no character at its end")
        return f"{_literal(single)}-{_literal(last)}"

    def _member(self) -> tuple[str, str]:
        if self.text.startswith("&&", self.at):
            raise _UntranslatableError("'&&' in a class, the intersection, is not supported; write out what it leaves")
        match self._peek():
            case "":
                raise _UntranslatableError("a class does not end; expected ']'")
            case "[":
                raise _UntranslatableError("'[' in a class, a class within it, is not supported; a bracket itself is '\\['")
            case "\\":
                self.at += 1
                return self._one_or_set()
            case _:
                return self._character(), ""


def _property(name: str, *, negated: bool) -> str:
    r"""Return what a class holds that means ``\p{name}``, as far as ASCII goes."""
    category = _CATEGORY.fullmatch(name)
    has = _PROPERTIES.get(name)
    if has is None and category is not None and any(each.startswith(category[1]) for each in _CATEGORIES):
        wanted = category[1]
        has = lambda each: unicodedata.category(each).startswith(wanted)  # noqa: E731  # one of a family of functions
    if has is None:
        raise _UntranslatableError(f"the property '\\p{{{name}}}' is not supported; write out its characters")
    return "".join(_literal(each) for each in _ASCII if has(each) != negated) or _NONE
