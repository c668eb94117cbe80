"""Who may ask.

A page of a stranger can have its own name resolve to 127.0.0.1, and then read a server that listens only there (DNS rebinding). So
the Host header must be one of ours. Liveness and readiness are for supervisors, which know an address alone: they say nothing, and
are open.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from attrs import frozen

from .messages import RefusedRequest, WebRequest

PROBES: Final = ("/alive", "/ready")
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


@frozen
class Guard:
    """Says who may ask."""

    hosts: frozenset[str]
    """Values of the Host header that are ours, in lower case."""
    token: str | None = None
    """What must be sent as ``Authorization: Bearer``, or as the password of a browser's log-in; ``None``: nothing."""

    @classmethod
    def of(cls, host: str, port: int, allowed: Iterable[str] = (), token: str | None = None) -> "Guard":
        """Return the guard of a server at ``host`` and ``port``. ``allowed``: other names of it, with or without a port."""
        name = f"[{host}]" if ":" in host else host
        names = {*LOOPBACK, *([] if host in ("0.0.0.0", "::") else [name])}  # noqa: S104  # the name of any address is none
        hosts = {f"{each}:{port}" for each in names} | (names if port == 80 else set())
        for each in allowed:
            hosts |= {each, f"{each}:{port}"}
        return cls(frozenset(each.lower() for each in hosts), token)

    def check(self, request: WebRequest) -> None:
        """Raise ``RefusedRequest`` unless the request may be answered."""
        if request.method not in ("GET", "HEAD"):
            raise RefusedRequest(HTTPStatus.METHOD_NOT_ALLOWED, "read only: GET and HEAD", {"Allow": "GET, HEAD"})
        if request.path in PROBES:
            return
        host = request.headers.get("host")
        if host is None:
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, "expected a Host header")
        if host.lower() not in self.hosts:
            raise RefusedRequest(HTTPStatus.FORBIDDEN, "this Host is not allowed; --allow-host names more")
        if self.token is not None and not hmac.compare_digest(_sent(request).encode(), self.token.encode()):
            challenge = {"WWW-Authenticate": 'Basic realm="kafka-async monitor", charset="UTF-8"'}
            raise RefusedRequest(HTTPStatus.UNAUTHORIZED, "expected the token", challenge)


def _sent(request: WebRequest) -> str:
    """Return the token of a request; an empty one if there is none."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""
