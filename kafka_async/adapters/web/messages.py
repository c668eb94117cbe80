"""Requests and replies of HTTP/1.1, as far as a monitor needs them: no bodies come, and each connection carries one request."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from attrs import field, frozen

LARGEST: Final = 8192
"""Bytes of a request's head."""
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""What every reply has: nothing is kept, framed, guessed, or loaded from elsewhere."""


class RefusedRequest(Exception):
    """A request that gets no answer but a status."""

    def __init__(self, status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers or {}

    def reply(self) -> "Reply":
        """Return the reply that says so."""
        return Reply(f"{self}\n".encode(), TEXT, self.status, self.headers)


@frozen
class WebRequest:
    """The head of a request. Names of headers are in lower case."""

    method: str
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str]
    headers: Mapping[str, str]


@frozen
class Reply:
    """A reply."""

    body: bytes
    kind: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(factory=dict)

    def encoded(self, *, head_only: bool = False) -> bytes:
        """Return its bytes."""
        headers = {"Content-Type": self.kind, "Content-Length": str(len(self.body)), **HEADERS, **self.headers}
        head = head_of(self.status, headers)
        return head if head_only else head + self.body


def head_of(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """Return the status line and the headers."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def as_json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    """Return a value as JSON. Raises ``ValueError`` for what JSON has no number for."""
    return Reply(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), JSON, status)


def read_head(head: bytes) -> WebRequest:
    """Return the request that a head is. Raises ``RefusedRequest``."""
    try:
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError:
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, "expected a request line of HTTP") from None
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, "expected HTTP/1.1 and a path")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or (name.lower() == "host" and "host" in headers):
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, "expected 'name: value' in each line, and one Host")
        headers[name.lower()] = value.strip()
    try:
        parts = urlsplit(target)
        path, query = unquote(parts.path, errors="strict"), dict(parse_qsl(parts.query, errors="strict"))
    except ValueError:
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, "expected a path in UTF-8") from None
    return WebRequest(method, path, query, headers)
