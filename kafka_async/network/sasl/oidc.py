"""Tokens from an OpenID Connect provider with the credentials of a client (KIP-768, KIP-1258), or for an assertion (KIP-1139).

No address is read that the configuration does not name (CVE-2025-27817): no redirect, no discovery, no proxy, netrc or key log from
the environment. RFC 6749 sections 2.3.1, 4.4 and 5, RFC 7523, Java ``HttpJwtRetriever``, ``ClientCredentialsJwtRetriever``,
``JwtBearerJwtRetriever``.
"""

import base64
import inspect
import json
import secrets
import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit, urlunsplit

import anyio

from ...config import endpoint_fault
from ...config.words import GrantType
from ...errors import AuthenticationFailedError, KafkaConnectionError, KafkaError, linked
from ..backoff import ExponentialBackoff
from ..tls import trusting_context
from .conversation import shown
from .jwt import expiry
from .oauthbearer import TOKEN, extension_fault
from .threads import on_thread
from .tokens import CachingTokenProvider, Token

LONGEST_ANSWER: Final = 256 * 1024
"""Bytes of an answer that are read. Kafka's brokers take 512 KiB from a client at once, tokens are a few KiB."""

TIMEOUT: Final = 7.5
"""Seconds for one token, repetitions included. A connection waits 8 s at least, so that the error is reported and not cut off."""

CLIENT_CREDENTIALS: Final = "client_credentials"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # RFC 7523 section 2.2

_AGAIN: Final = frozenset((408, 425, 429))
"""Status codes below 500 that are temporary: timeout, too early, too many requests."""


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError as missing:
        raise ImportError(
            "tokens from an OpenID Connect provider need httpx, which the extra 'oidc' brings: pip install '/path/to/clone[oidc]'"
        ) from missing
    return httpx


class OidcTokenProvider(CachingTokenProvider):
    """Bearer tokens from the token endpoint ``url`` of an OpenID Connect provider.

    With the ``grant_type`` ``"client_credentials"``, ``client_id`` and ``client_secret`` prove who asks, or ``assertion`` does in
    place of the secret (KIP-1258). With ``"urn:ietf:params:oauth:grant-type:jwt-bearer"``, ``assertion`` is exchanged for a token
    (KIP-1139), and client id and secret are sent if they are given. ``assertion`` returns a JSON Web Token, another one for each
    request; it may be ``async def``, and a plain one is called in a thread.

    ``urlencode`` encodes name and secret in the Authorization header as RFC 6749 has it and few servers expect. ``extensions`` are
    SASL extensions that go with each token. ``ssl_cafile`` or ``ssl_context`` replace the system's certificate authorities.
    Times are in seconds: ``connect_timeout`` and ``read_timeout`` for each step of one request, ``retry_backoff`` growing to
    ``retry_backoff_max`` between requests, ``timeout`` for all of it.

    Raises ``ValueError`` for arguments that cannot work, and ``ImportError`` without the extra ``oidc``. ``http://`` needs
    ``allow_http=True`` and warns: secret and tokens can then be read on the way.
    """

    def __init__(
        self,
        url: str,
        client_id: str | None = None,
        client_secret: str | None = None,
        *,
        assertion: Callable[[], Any] | None = None,
        grant_type: GrantType = "client_credentials",
        scope: str | None = None,
        extensions: Mapping[str, str] | None = None,
        urlencode: bool = False,
        allow_http: bool = False,
        ssl_cafile: str | PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        connect_timeout: float = 10.0,
        read_timeout: float = 10.0,
        retry_backoff: float = 0.1,
        retry_backoff_max: float = 10.0,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__()
        self._http = _httpx()
        fault = (
            endpoint_fault(url, allow_http)
            or _proof_fault(client_id, client_secret, assertion, grant_type)
            or _credentials_fault(client_id or "", urlencode)
            or extension_fault(extensions or {})
        )
        if fault is not None:
            raise ValueError(fault)
        if url.lower().startswith("http:"):
            warnings.warn(f"{_place(url)}: the token endpoint is used without TLS", RuntimeWarning, stacklevel=2)
        self._url, self._target = self._split(url)
        self._place = _place(url)
        self._extensions = dict(extensions or {})
        self._assertion = assertion
        self._hidden: tuple[str, ...] = ()
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # a small answer that unpacks to a large one is not an answer
        }
        self._form: dict[str, str] = {"grant_type": grant_type} | ({"scope": scope} if scope else {})
        if client_secret is not None:
            basic = _basic(client_id or "", client_secret, urlencode)
            self._headers["Authorization"] = f"Basic {basic}"
            self._hidden = (client_secret, quote_plus(client_secret), basic)
        elif client_id is not None:
            self._form["client_id"] = client_id
        self._context = ssl_context or _context(ssl_cafile)
        self._timeouts = self._http.Timeout(read_timeout, connect=connect_timeout)
        self._backoff = ExponentialBackoff(retry_backoff, retry_backoff_max)
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r})"

    def extensions(self) -> Mapping[str, str]:
        """See ``AbstractTokenProvider``."""
        return self._extensions

    def _split(self, url: str) -> tuple[Any, dict[str, bytes]]:
        """Return ``url`` without its query, and how to make httpx send the query too: it logs the URL of each request."""
        try:
            whole = self._http.URL(url)
        except self._http.InvalidURL:
            raise ValueError("sasl_oauthbearer_token_endpoint_url: expected 'https://host/path'; the value is not shown") from None
        return whole.copy_with(query=None, fragment=None), {"target": whole.raw_path} if whole.query else {}

    async def fetch(self) -> Token:
        """Return a new token.

        Raises ``KafkaConnectionError`` if the endpoint gives no usable answer in time, and ``AuthenticationFailedError`` if
        it refuses us or its answer is no token.
        """
        failure = KafkaConnectionError(f"{self._place}: no token within {self._timeout:g} s")
        failures = 0
        with anyio.move_on_after(self._timeout):
            while True:
                try:
                    assertion = await self._asserted()  # another one for each request: an endpoint may take each only once
                    return self._token(*await self._ask(assertion), assertion)
                except KafkaConnectionError as error:
                    failure = error
                await anyio.sleep(self._backoff.delay(failures, secrets.SystemRandom().random()))
                failures += 1
        raise failure

    async def _asserted(self) -> str:
        """Return an assertion, or nothing if none is wanted. Raises ``KafkaConnectionError`` if there is none."""
        make = self._assertion
        if make is None:
            return ""
        try:
            made = make() if inspect.iscoroutinefunction(make) else await on_thread(make)
            assertion = await made if inspect.isawaitable(made) else made
        except KafkaError:
            raise
        except Exception as error:  # it may be the application's code
            raise KafkaConnectionError(f"{self._place}: the assertion raised {type(error).__name__}: no token") from error
        if not isinstance(assertion, str) or not TOKEN.fullmatch(assertion):
            raise KafkaConnectionError(f"{self._place}: the assertion is no JSON Web Token; it is not shown")
        return assertion

    async def _ask(self, assertion: str) -> tuple[int, bytes]:
        """Ask once; return the status of the answer and its body, cut if it is too long."""
        http, form = self._http, self._form
        if assertion and form["grant_type"] == CLIENT_CREDENTIALS:
            form = form | {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        elif assertion:
            form = form | {"assertion": assertion}
        connections: list[Any] = []

        async def keep(event: str, info: Mapping[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                connections.append(info["return_value"])

        extensions = {**self._target, "trace": keep}
        try:
            async with (
                http.AsyncClient(verify=self._context, timeout=self._timeouts, trust_env=False) as client,
                client.stream("POST", self._url, data=form, headers=self._headers, extensions=extensions) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > LONGEST_ANSWER:
                        break
                return response.status_code, bytes(body[: LONGEST_ANSWER + 1])
        except (http.HTTPError, ssl.SSLError) as error:  # httpx passes on what TLS 1.3 says only after the handshake
            raise self._failure(error, assertion) from error
        finally:  # one that is cancelled during the handshake of TLS is closed by nobody else (httpcore 1.0.9)
            with anyio.CancelScope(shield=True):
                for connection in connections:
                    await connection.aclose()

    def _failure(self, error: Exception, assertion: str) -> KafkaError:
        text = f"{self._place}: {type(error).__name__}: {self._shown(str(error), assertion)}"
        return AuthenticationFailedError(text) if _is_untrusted(error) else KafkaConnectionError(text)

    def _token(self, status: int, body: bytes, assertion: str) -> Token:
        answer = _json(body) if len(body) <= LONGEST_ANSWER else {}
        if status >= 500 or status in _AGAIN:
            raise KafkaConnectionError(f"{self._place}: HTTP {status}{self._reason(answer, assertion)}")
        if 300 <= status < 400:
            raise AuthenticationFailedError(
                f"{self._place}: HTTP {status}, a redirect, which is not followed; configure the final URL"
            )
        if status != 200:
            why = self._reason(answer, assertion) + _expired(assertion)
            raise AuthenticationFailedError(f"{self._place}: HTTP {status}, no token{why}")
        value = answer.get("access_token")
        if not isinstance(value, str) or not TOKEN.fullmatch(value):
            expected = f"expected uncompressed JSON of {LONGEST_ANSWER} bytes at most, with a bearer token"
            raise AuthenticationFailedError(f"{self._place}: the answer has no access_token; {expected}")
        kind = answer.get("token_type", "Bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise AuthenticationFailedError(
                f"{self._place}: the token_type is {self._shown(str(kind), assertion)!r}; expected 'Bearer'"
            )
        return Token(value=value, lifetime=_lifetime(answer.get("expires_in"), value))

    def _reason(self, answer: Mapping[str, Any], assertion: str) -> str:
        """Return what the endpoint says of its error in the words of RFC 6749 section 5.2, and nothing else of the body."""
        details = [answer.get(name) for name in ("error", "error_description")]
        return "".join(f": {self._shown(text, assertion)}" for text in details if isinstance(text, str))

    def _shown(self, text: str, assertion: str) -> str:
        return shown(text, (*self._hidden, assertion, assertion.rpartition(".")[2]))


def _place(url: str) -> str:
    """Return the part of ``url`` that errors name. A query may hold a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _basic(client_id: str, client_secret: str, urlencode: bool) -> str:
    words = (quote_plus(client_id), quote_plus(client_secret)) if urlencode else (client_id, client_secret)
    return base64.b64encode(":".join(words).encode()).decode()


def _proof_fault(client_id: str | None, client_secret: str | None, assertion: object, grant_type: str) -> str | None:
    if client_secret is not None and client_id is None:
        return "client_secret is given without client_id"
    if grant_type != CLIENT_CREDENTIALS:
        return None if assertion is not None else f"grant_type={grant_type!r} needs an assertion"
    if assertion is None and client_secret is None:
        return "expected client_id and client_secret, or an assertion"
    if assertion is not None and client_secret is not None:
        return "client_secret and assertion are both given; one of them proves who asks"
    return None


def _expired(assertion: str) -> str:
    """Return what to say of an assertion that had expired, by our clock: the endpoint may only say that it is invalid."""
    end = expiry(assertion)
    since = time.time() - end if end is not None else 0.0
    return f" (the assertion expired {since:.0f} s ago)" if since > 0 else ""


def _credentials_fault(client_id: str, urlencode: bool) -> str | None:
    if ":" in client_id and not urlencode:
        return "the client id has a colon, which would end it in the Authorization header; expected none, or urlencode"
    return None


def _context(cafile: str | PathLike[str] | None) -> ssl.SSLContext:
    try:
        return trusting_context(cafile)
    except OSError as error:
        raise ValueError(f"sasl_oauthbearer_ssl_cafile={str(cafile)!r}: cannot be read as certificates: {error}") from error


def _is_untrusted(error: BaseException) -> bool:
    """Return whether the endpoint's certificate was refused, which trying again does not change."""
    return any(isinstance(each, ssl.SSLCertVerificationError) for each in linked(error))


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _lifetime(expires_in: Any, token: str) -> float | None:
    """Return seconds of life: those of the answer, which need no common clock, else those of the token itself."""
    if isinstance(expires_in, str) and expires_in.isdecimal() and len(expires_in) < 16:
        expires_in = int(expires_in)
    if isinstance(expires_in, int | float) and not isinstance(expires_in, bool) and expires_in > 0:
        return float(min(expires_in, 2**53))
    end = expiry(token)
    return end - time.time() if end is not None else None
