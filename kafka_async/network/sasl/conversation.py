"""One SASL conversation on one connection: SaslHandshake, then SaslAuthenticate until the mechanism is satisfied.

What the mechanism needs for its first words, such as a token, is asked for only when the broker has confirmed that it offers the
mechanism. In a re-authentication it has, and there the token comes before the handshake: a broker takes nothing else from the
handshake on, so that the connection would be held up for the time that a token takes.

Sources: KIP-43, KIP-152, KIP-368 (session lifetime); ``SaslClientAuthenticator``.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from ...errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    KafkaError,
    KafkaProtocolError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    for_code,
    one_line,
)
from ...wire import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse
from ..auth import Authenticated, PendingWork, Step

LONGEST_CHALLENGE: Final = 512 * 1024
"""Bytes that a broker may send at once; Kafka's own bound for what a client sends (``sasl.server.max.receive.size``)."""

MOST_TURNS: Final = 16
"""Challenges in one conversation. SCRAM needs two, GSSAPI three or four; a broker that goes on is not authenticating."""

_MOST_NAMES: Final = 16

Turn: TypeAlias = bytes | PendingWork | None
"""What a mechanism does next: send bytes, wait for work, or nothing more because it is satisfied."""


class Mechanism(Protocol):
    """One conversation of one mechanism, on our side."""

    @property
    def name(self) -> str:
        """The name in SaslHandshake, such as ``SCRAM-SHA-256``."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets known so far, which must not be shown even if a broker repeats them."""

    def start(self) -> bytes | PendingWork:
        """Return the first bytes to send, or the work to do before them."""

    def receive(self, incoming: Any) -> Turn:
        """Take the broker's bytes, or the result of the work last handed out, and return what comes next.

        Raises ``AuthenticationFailedError`` if we refuse the broker.
        """


class SaslConversation:
    """An ``Authenticator`` that speaks ``mechanism`` with ``peer``, which is what errors call the broker."""

    def __init__(self, mechanism: Mechanism, peer: str) -> None:
        self._mechanism = mechanism
        self._peer = peer
        self._turns = 0
        self._handshake_sent = False  # the handshake is written
        self._first: Turn = None  # what is sent when the broker has taken the handshake, if that is known before it
        self._prepared = False
        self._last_sent = b""
        self._lifetime: float | None = None

    def start(self, *, offered: bool) -> Step:
        """See ``Authenticator``."""
        if not offered:
            self._handshake_sent = True
            return SaslHandshakeRequest(mechanism=self._mechanism.name)
        self._prepared = True
        return self._named(lambda: self._step(self._mechanism.start()))

    def receive(self, response: Any) -> Step:
        """See ``Authenticator``."""
        return self._named(lambda: self._receive(response))

    def _named(self, step: Callable[[], Step]) -> Step:
        try:
            return step()
        except AuthenticationFailedError as error:
            error.args = (f"{self._peer}: {self._mechanism.name}: {error}",)
            raise

    def _receive(self, response: Any) -> Step:
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            return self._step(self._first if self._prepared else self._mechanism.start())
        if isinstance(response, SaslAuthenticateResponse):
            self._check(response)
            self._lifetime = response.session_lifetime_ms / 1000 if response.session_lifetime_ms > 0 else None
            return self._step(self._mechanism.receive(response.auth_bytes))
        return self._step(self._mechanism.receive(response))

    def _step(self, turn: Turn) -> Step:
        if isinstance(turn, PendingWork):
            return turn
        if not self._handshake_sent:
            self._handshake_sent, self._first = True, turn
            return SaslHandshakeRequest(mechanism=self._mechanism.name)
        if turn is None:
            return Authenticated(session_lifetime=self._lifetime)
        self._last_sent = turn
        return SaslAuthenticateRequest(auth_bytes=turn)

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == UnsupportedSaslMechanismError.errno:
            offered = ", ".join(self._shown(name) for name in response.mechanisms[:_MOST_NAMES]) or "nothing"
            text = f"the broker does not offer this sasl_mechanism; it offers {offered}"
            raise AuthenticationMethodNotSupported(text) from for_code(response.error_code)
        if response.error_code:
            raise self._refusal(response.error_code, "")

    def _check(self, response: SaslAuthenticateResponse) -> None:
        if response.error_code:
            raise self._refusal(response.error_code, self._shown(response.error_message or ""))
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise KafkaProtocolError(f"{self._peer}: the authentication did not end after {MOST_TURNS} answers")
        size = len(response.auth_bytes)
        if size > LONGEST_CHALLENGE:
            raise KafkaProtocolError(f"{self._peer}: {size} bytes of authentication: expected {LONGEST_CHALLENGE} at most")

    def _shown(self, text: str) -> str:
        """Return the broker's text without our secrets, also if it repeats our bytes as Base64 or in hexadecimal."""
        secrets = self._mechanism.secrets
        hidden = [secret.encode() for secret in secrets] + [self._last_sent]
        return shown(text, (*secrets, *(form for data in hidden for form in (b64encode(data).decode().rstrip("="), data.hex()))))

    def _refusal(self, code: int, message: str) -> KafkaError:
        cause = for_code(code, message)
        if code == SaslAuthenticationFailed.errno:
            text = "the broker refused the credentials"
        elif code == IllegalSaslStateError.errno:
            text = "the broker does not expect SASL now; does this port demand it? (security_protocol)"
        else:
            return cause
        error = AuthenticationFailedError(f"{text}: {message}" if message else text)
        error.__cause__ = cause
        return error


def shown(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return a broker's ``text`` fit for an error or a log: on one line, bounded, without ``secrets``."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return one_line(text)
