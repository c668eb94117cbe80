"""Logging in with SASL: SaslHandshake, SaslAuthenticate (KIP-152, 368)."""

from ...values import field, frozen
from .base import Request, Response, int16, int64, since


@frozen(kw_only=True)
class SaslHandshakeResponse(Response):
    """Whether the mechanism is offered, and which ones are."""

    error_code: int16 = 0
    mechanisms: tuple[str, ...] = ()


@frozen(kw_only=True)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Choose a SASL mechanism; SaslAuthenticate follows (KIP-152)."""

    mechanism: str


@frozen(kw_only=True)
class SaslAuthenticateResponse(Response):
    """The broker's part of the exchange."""

    error_code: int16 = 0
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int64 = since(1, default=0)  # time until the session must be authenticated again, or 0 (KIP-368)


@frozen(kw_only=True)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """The client's part of the exchange; never shown in a ``repr``."""

    auth_bytes: bytes = field(repr=False)
