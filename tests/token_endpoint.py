"""An OpenID Connect provider on loopback, honest or hostile, for tests.

Decides: what a token contains, unless a test scripts the replies. Owns: a signing key, a server and its threads. Must never listen
beyond 127.0.0.1. RFC 6749 section 4.4 (client credentials), RFC 7517 (the public key as a JSON Web Key Set), RFC 7523 (assertions).
"""

import json
import math
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

import jwt
from attrs import field, frozen
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

_KEY_ID = "tests"


@frozen(kw_only=True)
class Asked:
    """One request to the token endpoint."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]


@frozen
class Reply:
    """A reply of the endpoint. A body of several pieces comes without a length and may have no end."""

    status: int = 200
    body: bytes | Iterable[bytes] = b"{}"
    headers: Mapping[str, str] = field(factory=dict)


class TokenEndpoint:
    """Run the server inside ``with``. ``replies`` are given first, one for each request; then come tokens."""

    def __init__(
        self, *replies: "Reply | Callable[[TokenEndpoint], Reply]", context: ssl.SSLContext | None = None, lifetime: float = 3600
    ) -> None:
        self.asked: list[Asked] = []
        self.tokens: list[str] = []
        self.ended = threading.Event()
        """Set when the server goes; a hostile reply may wait for it."""
        self.lifetime = lifetime
        self.claims: dict[str, Any] = {"sub": "reader", "iss": "https://issuer.test", "aud": "kafka"}
        self.trusted: dict[str, Any] = {}
        """Public keys of clients by ``kid`` ("" for assertions that name none). An assertion of another one is refused."""
        self.asserted: list[dict[str, Any]] = []
        """The claims of the assertions that were taken."""
        self._replies = list(replies)
        self._key: RSAPrivateKey | None = None
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up here, which is no news
        if context is not None:
            # The handshake is the handler's: a client that never says a word must not hold up the others, or the end.
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._base = f"{'https' if context else 'http'}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="token endpoint")

    @property
    def url(self) -> str:
        """The token endpoint."""
        return self._base + "/token"

    @property
    def keys_url(self) -> str:
        """The public keys, for brokers."""
        return self._base + "/keys"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def script(self, *replies: "Reply | Callable[[TokenEndpoint], Reply]") -> None:
        """Give ``replies`` to the next requests."""
        with self._lock:
            self._replies += replies

    def token(self, lifetime: float | None = None, **claims: Any) -> str:
        """Return a signed token, unlike any other."""
        now = time.time()
        end = now + (self.lifetime if lifetime is None else lifetime)
        # Brokers read whole seconds, and a token must not end before "expires_in" is over.
        times = {"iat": int(now), "exp": math.ceil(end), "jti": str(uuid.uuid4())}
        content = self.claims | times | claims
        return jwt.encode(content, self._private_key(), algorithm="RS256", headers={"kid": _KEY_ID})

    def _private_key(self) -> RSAPrivateKey:
        with self._lock:
            if self._key is None:
                self._key = generate_private_key(public_exponent=65537, key_size=2048)
            return self._key

    def _keys(self) -> Reply:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self._private_key().public_key(), as_dict=True)
        return Reply(body=json.dumps({"keys": [key | {"kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}).encode())

    def _answer(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            reply = self._replies.pop(0) if self._replies else None
        assertion = asked.form.get("assertion") or asked.form.get("client_assertion")
        if reply is None and assertion is not None and (fault := self._fault(assertion)) is not None:
            error = "invalid_grant" if "assertion" in asked.form else "invalid_client"
            return Reply(400, json.dumps({"error": error, "error_description": fault}).encode())
        if reply is None:
            token = self.token()
            self.tokens.append(token)
            return Reply(body=json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}).encode())
        return reply(self) if callable(reply) else reply

    def _fault(self, assertion: str) -> str | None:
        """Return what is wrong with an assertion, or keep its claims: PyJWT is an implementation that we did not write."""
        try:
            key = self.trusted[jwt.get_unverified_header(assertion).get("kid", "")]
            claims = jwt.decode(
                assertion, key, algorithms=["RS256", "ES256"], audience=self.url, options={"require": ["iss", "exp", "iat", "nbf"]}
            )
        except (jwt.InvalidTokenError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        with self._lock:
            if "jti" in claims and claims["jti"] in (each.get("jti") for each in self.asserted):
                return "this jti was used before"
            self.asserted.append(claims)
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # http.server's name
                form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())
                words = {name: values[0] for name, values in form.items()}
                self._send(endpoint._answer(Asked(path=self.path, headers=dict(self.headers.items()), form=words)))

            def do_GET(self) -> None:  # http.server's name
                self._send(endpoint._keys() if self.path == "/keys" else Reply(404))

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                pieces = [reply.body] if isinstance(reply.body, bytes) else reply.body
                if isinstance(reply.body, bytes):
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(piece)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
