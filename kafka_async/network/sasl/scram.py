"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password, without sending it.

Nothing that depends on the password is sent before the broker's demands are within bounds: a low count of iterations makes the
proof cheap to guess (``i=1``), a high one burns our CPU (CVE-2026-10143: two thousand million). The key is derived by
``PendingWork``, away from the event loop.

Sources: RFC 5802, RFC 7677, KIP-84. There is no channel binding (``n,,``), as in Kafka. Names and passwords are their UTF-8 bytes,
without SASLprep: Kafka stores credentials so (``ScramFormatter.normalize``), and a prepared password would not match them.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from ...errors import AuthenticationFailedError
from ..auth import PendingWork
from .conversation import Turn, shown

LEAST_ITERATIONS: Final = 4096
"""RFC 7677 section 4 demands it, and Kafka stores nothing below."""

MOST_ITERATIONS: Final = 1_000_000
"""Kafka stores 16384 at most; this leaves room for other brokers and costs about a second of one thread."""

LONGEST_MESSAGE: Final = 4096
"""Bytes of a broker's message; Kafka's have about a hundred."""

HASHES: Final = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""SHA-1 is here for RFC 5802's own example; no option chooses it."""

_HEADER: Final = "n,,"

Derive: TypeAlias = Callable[[bytes, int], Awaitable[bytes]]
"""Returns the salted password for a salt and a count of iterations, without holding up the event loop."""


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return ``Hi(password, salt, iterations)`` of RFC 5802. This is what takes time."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


class Scram:
    """One conversation. ``nonce``: printable ASCII without a comma, never used before. ``derive``: see ``Derive``.

    ``token``: whether user name and password are those of a delegation token (KIP-48), which the broker wants to know at first.
    """

    def __init__(self, name: str, username: str, password: str, *, nonce: str, derive: Derive, token: bool = False) -> None:
        self.name = name
        self._password = password
        self._nonce = nonce
        self._derive = derive
        extension = ",tokenauth=true" if token else ""
        self._first = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extension}"
        self._next_step: Callable[[Any], Turn] = self._take_demands
        self._without_proof = ""
        self._signed = b""
        self._server_signature = b""

    @property
    def secrets(self) -> tuple[str, ...]:
        """See ``Mechanism``."""
        return (self._password,)

    def start(self) -> bytes:
        """See ``Mechanism``."""
        return (_HEADER + self._first).encode()

    def receive(self, incoming: Any) -> Turn:
        """See ``Mechanism``."""
        return self._next_step(incoming)

    def _take_demands(self, message: bytes) -> PendingWork:
        """The broker's nonce, salt and count of iterations."""
        fields = self._parsed(message, "rsi")
        nonce, salt, iterations = fields["r"], self._decoded(fields["s"]), self._count(fields["i"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailedError("the broker's nonce does not begin with ours; is this the broker?")
        if not salt:
            raise AuthenticationFailedError("the broker's salt is empty")
        self._without_proof = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        self._signed = f"{self._first},{message.decode()},{self._without_proof}".encode()
        self._next_step = self._take_key
        return PendingWork(run=lambda: self._derive(salt, iterations))

    def _take_key(self, salted: bytes) -> bytes:
        """The salted password, which is everything that the proof is made from."""
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(HASHES[self.name], client_key).digest(), self._signed)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), self._signed)
        self._next_step = self._take_verdict
        return f"{self._without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _take_verdict(self, message: bytes) -> None:
        """The broker's own proof, or the reason why it refuses ours."""
        if message.startswith(b"e="):
            message_text = shown(message[2 : LONGEST_MESSAGE + 2].decode(errors="replace"), self.secrets)
            raise AuthenticationFailedError(f"the broker refused the credentials: {message_text}")
        signature = self._decoded(self._parsed(message, "v")["v"])
        if not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationFailedError("the broker could not prove that it knows the password; is this the broker?")

    def _parsed(self, message: bytes, names: str) -> dict[str, str]:
        """Return the fields of ``message``, which has to begin with ``names`` in this order; unknown ones may follow."""
        try:
            text = message[: LONGEST_MESSAGE + 1].decode("ascii")
        except UnicodeDecodeError:
            text = ""
        parts = text.split(",")
        if text.startswith("m="):
            raise AuthenticationFailedError("the broker demands an extension of SCRAM that this client does not know")
        if len(text) > LONGEST_MESSAGE or [part[:2] for part in parts[: len(names)]] != [f"{name}=" for name in names]:
            raise AuthenticationFailedError(
                f"the broker's message is not SCRAM's: expected {', '.join(names)} in {LONGEST_MESSAGE} bytes"
            )
        return {part[0]: part[2:] for part in parts[: len(names)]}

    @staticmethod
    def _decoded(text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationFailedError("the broker's message is not SCRAM's: expected Base64") from None

    @staticmethod
    def _count(text: str) -> int:
        count = int(text) if text.isdecimal() and len(text) <= len(str(MOST_ITERATIONS)) else -1
        if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
            raise AuthenticationFailedError(
                f"the broker demands {shown(text[:20])} iterations: expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        return count

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, HASHES[self.name])
