"""Valid values of options: a check for each kind of value, and the conversion of values that may be written in several ways.

No check shows a value that may be a secret, reads a file, or loads code that a string names (CVE-2023-25194).

A check says what it expects in ``expected``. Error messages and the reference of the options both use that text, so they cannot
differ.
"""

import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

from ..functions import called_of, is_async, takes_three, why_never, why_uncallable
from ..model import IsolationLevel
from .words import Mechanism

if TYPE_CHECKING:
    import datetime

    from typing_extensions import TypeIs

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_MAX_TEXT: Final = 2**15 - 1


class _Named(Protocol):
    """The attribute that a check is about."""

    name: str


class Check:
    """A validator for attrs that can describe what it expects."""

    __slots__ = ("accepts", "expected", "secret", "why")

    def __init__(
        self, expected: str, accepts: Callable[[Any], bool], *, secret: bool = False, why: Callable[[Any], str | None] | None = None
    ) -> None:
        self.expected = expected
        self.accepts = accepts
        self.secret = secret
        """Whether a value may be a secret, and is left out of errors."""
        self.why = why
        """Returns what is wrong with a value that is not ``None`` and accepted; ``None`` if nothing is."""

    def __call__(self, instance: object, attribute: _Named, value: Any) -> None:
        """Raise ``ValueError`` that names the option, the value unless it may be a secret, and what is expected."""
        if not self.accepts(value):
            raise ValueError(self.refusal(attribute.name, value))
        if self.why is not None and value is not None and (why := self.why(value)) is not None:
            raise ValueError(self.refusal(attribute.name, value, why))

    def refusal(self, name: str, value: object, why: str = "") -> str:
        """Return the text of the error about a value. ``why``: what is wrong with it, if it needs to be said."""
        if self.secret:
            return f"{name}: expected {self.expected}; the value is not shown"
        return f"{name}={value!r:.100}: {f'{why}; ' if why else ''}expected {self.expected}"


def number(low: int, high: int = INT32_MAX, *, without: int | None = None) -> Check:
    """Return the check of a whole number from ``low`` to ``high``, except ``without``."""
    return Check(
        f"an integer from {low} to {high}" + ("" if without is None else f" other than {without}"),
        lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high and value != without,
    )


def one_of(words: Any) -> Check:
    """Return the check of a word that is one of a ``Literal``'s."""
    allowed = get_args(words)
    return Check(f"one of {', '.join(map(repr, allowed))}", lambda value: value in allowed)


def is_sendable(text: object) -> bool:
    """Say whether ``text`` can be in a request: a string of at most 32,767 bytes of UTF-8 (Kafka's type STRING)."""
    return isinstance(text, str) and (data := text.encode("utf-8", "replace")).decode() == text and len(data) <= _MAX_TEXT


def _is_filled(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _why_no_deserializer(value: Any) -> str | None:
    called = called_of(value)
    return why_uncallable(called, 3 if takes_three(called) else 1)


def _is_credential(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)


def optional_file(text_option: str | None = None) -> Check:
    """Return the check of the path of a file; ``text_option`` takes the same as PEM text."""
    other = f" (PEM text goes into {text_option})" if text_option is not None else ""
    return Check(
        f"the path of a file{other}, or None",
        # A private key in place of its path must not show.
        lambda value: value is None or (_is_filled(value) and "-----BEGIN " not in value),
        secret=True,
    )


FLAG: Final = Check("True or False", lambda value: isinstance(value, bool))
OPTIONAL_TEXT: Final = Check("a string that is not empty, or None", lambda value: value is None or _is_filled(value))
SENDABLE: Final = Check(f"a string of at most {_MAX_TEXT:,} bytes in UTF-8", is_sendable)
OPTIONAL_SENDABLE: Final = Check(
    f"a string of at most {_MAX_TEXT:,} bytes in UTF-8 that is not empty, or None",
    lambda value: value is None or (_is_filled(value) and is_sendable(value)),
)
OPTIONAL_DESERIALIZER: Final = Check(
    "a callable that takes bytes, or topic, headers and bytes, or None",
    lambda value: value is None or callable(called_of(value)),
    why=_why_no_deserializer,
)
OPTIONAL_LISTENER: Final = Check(
    "a plain callable that takes one event, or None",
    lambda value: value is None or (callable(value) and not is_async(value) and why_never(value) is None),
    why=lambda value: why_uncallable(value, 1),
)
OPTIONAL_CONTEXT: Final = Check("an ssl.SSLContext, or None", lambda value: value is None or isinstance(value, ssl.SSLContext))
OPTIONAL_SECRET: Final = Check(
    "a string that is not empty, or None", lambda value: value is None or (isinstance(value, str) and bool(value)), secret=True
)
OPTIONAL_CREDENTIAL: Final = Check(
    "text without NUL and lone surrogates that is not empty, or None",
    lambda value: value is None or _is_credential(value),
    secret=True,
)
OPTIONAL_PEM: Final = Check(
    "PEM text ('-----BEGIN ...'), or None",
    lambda value: value is None or (isinstance(value, str) and "-----BEGIN " in value),
    secret=True,
)
TOKEN_PROVIDER: Final = Check(
    "an object with a method token(), or a callable without arguments that returns a token, or None",
    lambda value: value is None or (callable(token := getattr(value, "token", value)) and why_uncallable(token, 0) is None),
    secret=True,
)
OPTIONAL_MAPPING: Final = Check(
    "a mapping of names to values, or None", lambda value: value is None or isinstance(value, Mapping), secret=True
)


# --- what is checked by being converted ------------------------------------------------------------------------------------------

_ADDRESS: Final = r"(?:[A-Z_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\s\[\]/]+))(?::(?P<port>\d+))?"


def parse_bootstrap_servers(value: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return ``(host, port)`` pairs from ``"a:9092,b:9092"`` or a list of such strings; the port defaults to 9092.

    Raises ``ValueError`` that names the entry that is wrong.
    """
    if _is_parsed(value):
        return value
    entries = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else None
    if entries is None or not all(isinstance(entry, str) for entry in entries):
        raise ValueError(
            f"bootstrap_servers={value!r:.100}: expected 'host:port', a comma-separated list of them, or a list of strings"
        )
    servers: list[tuple[str, int]] = []
    for entry in entries:
        text = entry.strip()
        if not text:
            continue
        match = re.fullmatch(_ADDRESS, text)
        port = int(match["port"] or 9092) if match else 0
        if match is None or not 0 < port < 65536:
            text = text.rpartition("@")[2]  # what stands before it may be a password
            raise ValueError(
                f"bootstrap_servers: {text!r:.100} is not an address; expected 'host:port' with a port from 1 to 65535"
            )
        servers.append((match["v6"] or match["host"], port))
    if not servers:
        raise ValueError(f"bootstrap_servers={value!r:.100}: expected at least one 'host:port'")
    return tuple(dict.fromkeys(servers))


def _is_parsed(value: object) -> "TypeIs[tuple[tuple[str, int], ...]]":
    """Whether ``parse_bootstrap_servers`` has made it: a configuration that is copied has its own values checked again."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(entry, tuple) for entry in value)


_DURATION: Final = (
    r"(?i)P(?=.)(?:(?P<days>\d{1,8})D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)


def parse_duration(text: str) -> "datetime.timedelta | None":
    """Return the ISO 8601 duration ``PnDTnHnMn.nS`` (KIP-1106); ``None`` if ``text`` is not one, or reaches back too far."""
    match = re.fullmatch(_DURATION, text)
    if match is None:
        return None
    import datetime  # for few

    return datetime.timedelta(**{unit: float(number) for unit, number in match.groupdict().items() if number})


def _is_offset_reset(value: object) -> bool:
    return isinstance(value, str) and (
        value in ("earliest", "latest", "none")
        or (value.startswith("by_duration:") and parse_duration(value.removeprefix("by_duration:")) is not None)
    )


OFFSET_RESET: Final = Check("'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMn.nS'", _is_offset_reset)
ISOLATION: Final = Check("'read_uncommitted' or 'read_committed'", lambda value: isinstance(value, IsolationLevel))


def isolation(value: IsolationLevel | Literal["read_uncommitted", "read_committed"]) -> IsolationLevel:
    """Return the level that a word names; anything else as it is, for ``ISOLATION`` to refuse."""
    levels: dict[Any, IsolationLevel] = {level.name.lower(): level for level in IsolationLevel}
    return levels.get(value, value) if isinstance(value, str) else value  # type: ignore[arg-type]  # what is no level is refused


def as_tuple(value: Sequence[Any] | None) -> Any:
    """Return a sequence as a tuple, nothing for ``None``, and anything else as it is, for the option's user to refuse."""
    return tuple(value or ()) if value is None or (isinstance(value, Sequence) and not isinstance(value, str)) else value


def path(value: str | os.PathLike[str] | None) -> str | None:
    """Return a path object as text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


_PEM_BLOCK: Final = r"(?m)(^)?-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \2-----[ \t]*(?:\r?\n)?"


def pem(value: str | None) -> str | None:
    """Return PEM text in lines, as OpenSSL wants it.

    Java also takes blanks in place of line ends. Its properties files have them there, since a line that goes on in the next has
    no end.
    """
    return re.sub(_PEM_BLOCK, _in_lines, value) if isinstance(value, str) else value


def _in_lines(block: re.Match[str]) -> str:
    at_line_start, label, body = block.groups()
    data = "".join(body.split())
    lines = (f"-----BEGIN {label}-----", *(data[at : at + 64] for at in range(0, len(data), 64)), f"-----END {label}-----", "")
    return "\n".join(lines if at_line_start is not None else ("", *lines))


def or_empty(value: str | None) -> str:
    """Return empty text for ``None``."""
    return "" if value is None else value


def or_gssapi(value: Mechanism | None) -> Mechanism:
    """Return Java's default for ``None``."""
    return "GSSAPI" if value is None else value


def or_unlimited(value: int | None) -> int:
    """Return the largest number for ``None``."""
    return INT32_MAX if value is None else value


def endpoint_fault(url: str, allow_http: bool) -> str | None:
    """Return what is wrong with the address of a token endpoint, or ``None``. The address itself is not shown."""
    from urllib.parse import urlsplit  # with OAUTHBEARER only

    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.scheme not in ("https", "http"):
        fault = "expected 'https://host/path'; the value is not shown"
    elif parts.username is not None or parts.password is not None:
        fault = "expected no user name and password in it; the value is not shown"
    elif parts.scheme == "http" and not allow_http:
        fault = "http would show the secret to the network; expected https, or sasl_oauthbearer_allow_http=True"
    else:
        return None
    return f"sasl_oauthbearer_token_endpoint_url: {fault}"


def without_query(url: str | None) -> str:
    """Return an address as it may be shown: a query may hold a key."""
    return repr(url and url.partition("?")[0])
