import base64
from http import HTTPStatus

import pytest

from kafka_async.adapters.web.guard import Guard
from kafka_async.adapters.web.messages import LARGEST, RefusedRequest, WebRequest, read_head


def request(path: str = "/", method: str = "GET", **headers: str) -> WebRequest:
    return WebRequest(method, path, {}, {"host": "localhost:8080", **headers})


def refusal(guard: Guard, asked: WebRequest) -> HTTPStatus | None:
    try:
        guard.check(asked)
    except RefusedRequest as refused:
        return refused.status
    return None


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"])
def test_names_of_this_machine_are_let_in(host: str) -> None:
    assert refusal(Guard.of("127.0.0.1", 8080), request(host=host)) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1", "127.0.0.1:80", "localhost:8080.evil", ""])
def test_other_hosts_are_refused(host: str) -> None:
    assert refusal(Guard.of("127.0.0.1", 8080), request(host=host)) is HTTPStatus.FORBIDDEN


def test_a_request_without_a_host_is_none() -> None:
    assert refusal(Guard.of("127.0.0.1", 8080), WebRequest("GET", "/", {}, {})) is HTTPStatus.BAD_REQUEST


def test_more_names_can_be_allowed_with_and_without_the_port() -> None:
    guard = Guard.of("0.0.0.0", 8080, ["Monitor.example", "proxy:443"])  # noqa: S104  # nothing listens
    assert [refusal(guard, request(host=host)) for host in ("monitor.example", "monitor.example:8080", "proxy:443")] == [None] * 3
    assert refusal(guard, request(host="0.0.0.0:8080")) is HTTPStatus.FORBIDDEN
    assert refusal(Guard.of("10.0.0.5", 8080), request(host="10.0.0.5:8080")) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_it_is_read_only(method: str) -> None:
    assert refusal(Guard.of("127.0.0.1", 8080), request(method=method)) is HTTPStatus.METHOD_NOT_ALLOWED


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (None, HTTPStatus.UNAUTHORIZED),
        ("Bearer secret", None),
        ("bearer  secret", None),
        ("Bearer secret2", HTTPStatus.UNAUTHORIZED),
        ("Bearer", HTTPStatus.UNAUTHORIZED),
        ("Basic " + base64.b64encode(b"anyone:secret").decode(), None),
        ("Basic " + base64.b64encode(b"secret").decode(), HTTPStatus.UNAUTHORIZED),
        ("Basic ???", HTTPStatus.UNAUTHORIZED),
        ("Bearer gehe\u00fcm", HTTPStatus.UNAUTHORIZED),
    ],
)
def test_a_token_is_asked_for_if_there_is_one(sent: str | None, expected: HTTPStatus | None) -> None:
    guard = Guard.of("127.0.0.1", 8080, (), "secret")
    assert refusal(guard, request(**({"authorization": sent} if sent else {}))) is expected


def test_probes_need_neither_a_name_nor_a_token() -> None:
    guard = Guard.of("127.0.0.1", 8080, (), "secret")
    assert refusal(guard, request("/alive", host="10.1.2.3:8080")) is None
    assert refusal(guard, request("/ready", host="10.1.2.3:8080")) is None
    assert refusal(guard, request("/alive", "POST")) is HTTPStatus.METHOD_NOT_ALLOWED


def test_a_head_is_read() -> None:
    found = read_head(b"GET /groups/a%2Fb%20%C3%BC?status=stop&limit=5 HTTP/1.1\r\nHost: x:1\r\nAccept:  */*\r\n\r\n")
    assert found == WebRequest("GET", "/groups/a/b ü", {"status": "stop", "limit": "5"}, {"host": "x:1", "accept": "*/*"})


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET http://evil/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / SPDY\r\n\r\n",
        b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(head: bytes) -> None:
    assert len(head) < LARGEST
    with pytest.raises(RefusedRequest) as refused:
        read_head(head)
    assert refused.value.status is HTTPStatus.BAD_REQUEST
