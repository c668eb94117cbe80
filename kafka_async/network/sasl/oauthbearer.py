"""OAUTHBEARER: what the client sends to a broker that takes bearer tokens.

An address that a broker's error names is not followed (RFC 7628 lets it name an ``openid-configuration``): where tokens come from
is configuration. RFC 7628, KIP-255, KIP-342 (extensions), Java ``OAuthBearerSaslClient``, ``OAuthBearerClientInitialResponse``.

The broker that refuses a token answers with JSON, the client sends one byte, and only then does the broker end the conversation
with an error code (RFC 7628 section 3.2.3).
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final

from ...errors import AuthenticationFailedError
from ...values import define, field, frozen
from ..auth import PendingWork
from .conversation import shown

_SEPARATOR: Final = b"\x01"
_GS2_HEADER: Final = b"n,,"
"""No channel binding, no authorization identity: the broker takes the name from the token."""

TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750 section 2.1, b64token
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+", re.ASCII)  # KIP-342
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+", re.ASCII)  # KIP-342
_RESERVED: Final = "auth"


@frozen(kw_only=True)
class Bearer:
    """A token and the extensions that go with it."""

    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(factory=dict, repr=False)


def extension_fault(extensions: Any) -> str | None:
    """Return what is wrong with SASL extensions (KIP-342), or ``None``. The text shows no value."""
    if not isinstance(extensions, Mapping):
        return f"SASL extensions are {type(extensions).__name__}: expected a mapping of names to values"
    for name, value in extensions.items():
        if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name) or name == _RESERVED:
            return f"SASL extension {name!r:.60}: expected a name of letters that is not 'auth'"
        if not isinstance(value, str) or not _EXTENSION_VALUE.fullmatch(value):
            return f"SASL extension {name!r:.60}: expected a value of printable ASCII characters and white space"
    return None


def first_message(bearer: Bearer) -> bytes:
    """Return the client's first message.

    Raises ``AuthenticationFailedError`` for a token or an extension that would not survive the format. The text names what is
    wrong and never shows the token or a value.
    """
    if not isinstance(bearer.token, str) or not TOKEN.fullmatch(bearer.token):
        raise AuthenticationFailedError(
            "the token provider's token is not a bearer token; expected letters, digits and any of '-._~+/', then '=' as padding"
        )
    fault = extension_fault(bearer.extensions)
    if fault is not None:
        raise AuthenticationFailedError(fault)
    pairs = [f"auth=Bearer {bearer.token}", *(f"{name}={value}" for name, value in bearer.extensions.items())]
    return _GS2_HEADER + _SEPARATOR + b"".join(pair.encode() + _SEPARATOR for pair in pairs) + _SEPARATOR


class _Expects(Enum):
    """What ``receive`` is given next."""

    TOKEN = "token"  # noqa: S105  # the name of a state
    VERDICT = "verdict"
    END = "end"
    """The broker refused, we have confirmed that, and it has to end the conversation with an error code."""


@define(eq=False)
class OAuthBearer:
    """One conversation of OAUTHBEARER. ``fetch`` returns the token; it may take its time and raise ``KafkaError``."""

    name: ClassVar[str] = "OAUTHBEARER"
    _fetch: Callable[[], Awaitable[Bearer]]
    _expects: _Expects = field(default=_Expects.TOKEN, init=False)
    _token: str = field(default="", init=False, repr=False)
    _refusal: str = field(default="", init=False, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """See ``Mechanism``. The last part of a JWT, its signature, is what makes it worth stealing."""
        return (self._token, self._token.rpartition(".")[2])

    def start(self) -> PendingWork:
        """See ``Mechanism``."""
        return PendingWork(run=self._fetch)

    def receive(self, incoming: Any) -> bytes | None:
        """Take the ``Bearer``, then the broker's verdict: nothing if it is content, else JSON.

        Raises ``AuthenticationFailedError`` for a token that cannot be sent, and where a broker that refused goes on talking.
        """
        match self._expects:
            case _Expects.TOKEN:
                message = first_message(incoming)
                self._token = incoming.token
                self._expects = _Expects.VERDICT
                return message
            case _Expects.VERDICT:
                if not incoming:
                    return None
                self._refusal = _status(bytes(incoming))
                self._expects = _Expects.END
                return _SEPARATOR
            case _Expects.END:
                raise AuthenticationFailedError(f"the broker refused the token: {shown(self._refusal, self.secrets)}")


def _status(data: bytes) -> str:
    """Return the ``status`` of the broker's error (RFC 7628 section 3.2.2). Nothing else in it is used."""
    try:
        return str(json.loads(data)["status"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "it gave no reason"
