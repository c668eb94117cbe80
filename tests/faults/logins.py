"""Logins with a broker that lies in its answers to SaslHandshake and SaslAuthenticate, and tokens from an endpoint that does.

Decides: what an honest server sends, and which part of it is spoiled, from a seeded source of randomness. Owns: a server on
loopback, for the time of one token. Must never let a secret through in an error, whoever repeats it.
"""

import json
import ssl
import warnings
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from random import Random
from typing import Any, Final

import anyio
import anyio.abc
from attrs import evolve

from kafka_async.errors import KafkaError
from kafka_async.network.auth import Authenticated, PendingWork, Step
from kafka_async.network.sasl.conversation import MOST_TURNS, Mechanism, SaslConversation
from kafka_async.network.sasl.gssapi import Gssapi
from kafka_async.network.sasl.oauthbearer import Bearer, OAuthBearer
from kafka_async.network.sasl.oidc import OidcTokenProvider
from kafka_async.network.sasl.plain import Plain
from kafka_async.network.sasl.scram import Scram
from kafka_async.network.sasl.tokens import Token
from kafka_async.testing.server import encode_response
from kafka_async.wire import (
    SUPPORTED,
    Request,
    Response,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_response,
)
from tests.network.sasl.test_gssapi import Context

from .mutation import spoil, twisted_frame

SECRET: Final = "pencil-9f2c"
PATIENCE: Final = 5.0
"""Seconds in which a token comes, or an error; an endpoint on loopback that closes its connections is never near it."""
_ORDER: Final = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI")


async def _bearer() -> Bearer:
    return Bearer(token=SECRET, extensions={"logicalCluster": "lkc"})


async def _salted(salt: bytes, iterations: int) -> bytes:
    return b"salted password"


_MECHANISMS: Final[Mapping[str, Callable[[], Mechanism]]] = {
    "PLAIN": lambda: Plain("user", SECRET),
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", "user", SECRET, nonce="rOprNGfw", derive=_salted),
    "OAUTHBEARER": lambda: OAuthBearer(_bearer),
    "GSSAPI": lambda: Gssapi(Context(2)),
}
_SAID: Final[Mapping[str, tuple[bytes, ...]]] = {
    "PLAIN": (b"",),
    "SCRAM-SHA-256": (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"e=other-error " + SECRET.encode()),
    "OAUTHBEARER": (json.dumps({"status": f"invalid_token {SECRET}", "scope": "x"}).encode(), b"{}"),
    "GSSAPI": (b"theirs", b"theirs again", b"w\x07\x00\xff\xff", b""),
}
"""A broker's messages in turn; one that takes a password or a token sends none."""


def _result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the work of these mechanisms is done at once")


def log_in(random: Random) -> str:
    """Speak a mechanism with a broker that lies. Return what came of it; raise ``AssertionError``, or what should not come."""
    name = random.choice(_ORDER)
    talk = SaslConversation(_MECHANISMS[name](), "b:9092")
    said = list(_SAID[name]) if random.random() < 0.8 else [b""]
    likely = random.choice((0.1, 0.5, 1.0))
    try:
        step = talk.start(offered=False)
        for _ in range(3 * MOST_TURNS):
            if isinstance(step, Authenticated):
                assert name != "SCRAM-SHA-256", "a broker without the password was believed"
                return f"{name} believed"
            step = talk.receive(_next(random, step, said, likely))
    except KafkaError as error:
        _check(error, hidden=name != "GSSAPI")  # which has no secret that a broker could repeat
        return f"{name} refused"
    raise AssertionError("no end of the conversation")


def _check(error: KafkaError, *, hidden: bool = True) -> None:
    assert str(error), f"{error!r} says nothing"
    assert not hidden or SECRET not in f"{error} {error.__cause__}", "a secret is shown"


def _next(random: Random, step: Step, said: list[bytes], likely: float) -> Any:
    """Return what the conversation takes next: the result of its work, or the broker's answer as it is read."""
    if isinstance(step, PendingWork):
        return _result(step.run())  # type: ignore[arg-type]  # all of ours are coroutines
    assert isinstance(step, Request)
    honest = _honest(random, step, said)
    if random.random() >= likely:
        return honest
    version = SUPPORTED[step.api].highest
    if random.random() < 0.5:
        return decode_response(step, version, twisted_frame(random, honest, step.api, version)[4:])
    frame = encode_response(honest, step.api, version, 0)[4:]
    return decode_response(step, version, frame[:4] + spoil(random, frame[4:]))


def _honest(random: Random, step: Request[Any], said: list[bytes]) -> Response:
    if isinstance(step, SaslHandshakeRequest):
        return SaslHandshakeResponse(error_code=random.choice((0, 0, 0, 33)), mechanisms=_ORDER)
    assert isinstance(step, SaslAuthenticateRequest)
    if random.random() < 0.1:
        return SaslAuthenticateResponse(error_code=random.choice((34, 58)), error_message=f"who is {SECRET}?")
    words = said.pop(0) if len(said) > 1 else said[0]  # one that goes on and on says the last again
    answer = SaslAuthenticateResponse(auth_bytes=words, session_lifetime_ms=random.choice((0, 60_000)))
    return evolve(answer, auth_bytes=spoil(random, words)) if random.random() < 0.2 else answer


# --- tokens over HTTP ----------------------------------------------------------------------------------------------------------

_TOKEN: Final = {"access_token": SECRET, "token_type": "Bearer", "expires_in": 3600}
_BODIES: Final = tuple(
    json.dumps(content).encode()
    for content in (
        _TOKEN,
        _TOKEN | {"expires_in": "3599"},
        {"access_token": f"e30.eyJleHAiOiAxOTAwMDAwMDAwfQ.{SECRET}"},
        {"error": "invalid_client", "error_description": f"{SECRET} is wrong"},
    )
)
_STATUS: Final = (b"200 OK",) * 4 + (b"204 No Content", b"302 Found", b"401 Unauthorized", b"429 Too Many Requests", b"503 Busy")


def _answer(status: bytes, body: bytes, *, chunked: bool) -> bytes:
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nLocation: /elsewhere\r\n%s\r\n\r\n" % (status, length)
    return head + (b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)


@cache
def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used: the endpoint speaks without TLS


def fetch_token(random: Random) -> str:
    """Ask an endpoint that lies for a token. Return what came of it; raise ``AssertionError``, or what should not come."""
    answer = _answer(random.choice(_STATUS), random.choice(_BODIES), chunked=random.random() < 0.3)
    head, _, body = answer.partition(b"\r\n\r\n")
    match random.randrange(3):
        case 0:
            answer = spoil(random, answer)
        case 1:
            answer = _answer(b"200 OK", spoil(random, random.choice(_BODIES)), chunked=False)
        case _:
            answer = spoil(random, head) + b"\r\n\r\n" + body
    return anyio.run(_fetch, answer)


async def _fetch(answer: bytes) -> str:
    left = [answer]

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            asked = b""
            while b"client_credentials" not in asked:
                asked += await stream.receive()
            await stream.send(left.pop() if left else _answer(b"200 OK", _BODIES[0], chunked=False))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        _, port = listener.extra_attributes[anyio.abc.SocketAttribute.local_address]()
        token = await _asked(f"http://127.0.0.1:{port}/token")
        tasks.cancel_scope.cancel()
    return token


async def _asked(url: str) -> str:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*used without TLS", RuntimeWarning)
        provider = OidcTokenProvider(
            url, "client", SECRET, allow_http=True, ssl_context=_context(), retry_backoff=0.001, timeout=PATIENCE
        )
    began = anyio.current_time()
    try:
        token = await provider.fetch()
    except KafkaError as error:
        _check(error)
        return "refused"
    finally:
        assert anyio.current_time() - began < 2 * PATIENCE
    assert isinstance(token, Token)
    assert token.lifetime is None or isinstance(token.lifetime, float)
    return "token"
