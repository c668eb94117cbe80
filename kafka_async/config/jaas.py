"""The text of ``sasl.jaas.config``: a login module and its options.

Errors show the module's name alone, and that only where the rest is in order: nearly all of such a text is a password, and so may
be what stands in the wrong place.

Sources: KIP-85; ``JaasConfig`` of Kafka 4.3 and ``java.io.StreamTokenizer``, which reads it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from ..errors import KafkaConfigurationError
from ..values import field, frozen

OPTION: Final = "sasl.jaas.config"
_SHAPE: Final = 'Module required name="value" ...;'
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@cache
def _token() -> re.Pattern[str]:
    """Return the pattern of one token. It takes 5 ms to compile, and every worker of Spark imports this module."""
    return re.compile(
        r"""[\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\r\n]*                   # what stands between tokens
        | (?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?P=quote)
        | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)
        | (?P<sign>[=;])""",
        re.VERBOSE | re.DOTALL,
    )


@frozen
class Login:
    """A login module and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def kind(self) -> str:
        """The module's name without its package; some distributions of Kafka have packages of their own."""
        return self.module.rpartition(".")[2]


def parse_login(text: str, option: str = OPTION) -> Login:
    """Return the one login of a text. ``option`` is what it is called where it stands.

    Raises ``KafkaConfigurationError`` that says where the text is wrong, and never shows it.
    """
    tokens = _Tokens(text, option)
    module = tokens.text("the name of a login module")
    if tokens.text("a control flag").lower() not in _FLAGS:
        raise tokens.wrong(f"a control flag ({', '.join(_FLAGS)})")
    options = {}
    while not tokens.skip(";"):
        if tokens.at_end:
            raise KafkaConfigurationError(f"{option}: the semicolon at its end is missing; expected {_SHAPE!r}")
        name = tokens.text("the name of an option, or a semicolon")
        if not tokens.skip("="):
            raise tokens.wrong("an equals sign", following=True)
        options[name] = tokens.text("a value, in quotes unless it is a word")
    if not tokens.at_end:
        raise KafkaConfigurationError(f"{option}: expected one login module; something follows the semicolon")
    return Login(module, options)


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str, option: str) -> None:
        self._option = option
        self._rest = [*_tokens(text, option), (len(text), None, "")]
        self._last = 0

    @property
    def at_end(self) -> bool:
        return len(self._rest) == 1

    def skip(self, sign: str) -> bool:
        """Go over a sign, if it comes next."""
        found = self._rest[0][1:] == ("sign", sign)
        if found:
            self._last = self._rest.pop(0)[0]
        return found

    def text(self, expected: str) -> str:
        """Return the word or the quoted text that comes next."""
        position, kind, text = self._rest[0]
        if kind in (None, "sign"):
            raise self.wrong(expected, following=True)
        self._last = position
        del self._rest[0]
        return text

    def wrong(self, expected: str, *, following: bool = False) -> KafkaConfigurationError:
        """Return an error at the last token, or at the ``following`` one."""
        position = self._rest[0][0] if following else self._last
        return _wrong(self._option, position, expected)


def _wrong(option: str, position: int, expected: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(
        f"{option}: character {position + 1}: expected {expected}, as in {_SHAPE!r}; the text is not shown"
    )


def _tokens(text: str, option: str) -> Iterator[tuple[int, str | None, str]]:
    """Yield position, kind and meaning of each token."""
    position = 0
    while position < len(text):
        match = _token().match(text, position)
        if match is None and text[position] in "\"'":
            raise _wrong(option, position, "a quoted text that ends in the same line")
        if match is None:
            raise _wrong(option, position, "a word, or a value in quotes")
        if match.lastgroup in ("word", "sign"):
            yield position, match.lastgroup, match[0]
        elif match["quote"]:
            yield position, "quoted", _ESCAPE.sub(_unescaped, match["quoted"])
        position = match.end()


def _unescaped(match: re.Match[str]) -> str:
    octal, other = match.groups()
    return chr(int(octal, 8)) if octal else _CONTROLS.get(other, other)
