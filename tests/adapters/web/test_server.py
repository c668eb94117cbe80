"""Connections: limits, those that are slow or silent, streams of events."""

import asyncio
import errno
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kafka_async.adapters.web import Guard, Site, WebServer, live
from kafka_async.adapters.web import server as limits
from kafka_async.adapters.web.messages import Reply, WebRequest

from .views import group, part, snapshot

FIRST = snapshot(group("billing", part("orders", 0, lag=5)), number=1)


@asynccontextmanager
async def serving(token: str | None = None) -> AsyncIterator[tuple[WebServer, int]]:
    server = WebServer(Site(5.0), Guard(frozenset()), asyncio.get_running_loop().time)
    async with server.listening("127.0.0.1", 0) as port:
        server.guard = Guard.of("127.0.0.1", port, (), token)
        yield server, port


async def send(port: int, text: str) -> str:
    """Send bytes and return all that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode("latin-1"))
    found = await reader.read()
    writer.close()
    return found.decode()


async def get(port: int, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, str]:
    head, _, body = (await send(port, f"{method} {path} HTTP/1.1\r\nHost: {host or f'localhost:{port}'}\r\n\r\n")).partition(
        "\r\n\r\n"
    )
    return int(head.split(" ")[1]), head, body


async def test_a_page_with_what_keeps_browsers_safe() -> None:
    async with serving() as (server, port):
        server.show(FIRST)
        status, head, body = await get(port, "/")

    assert status == 200
    assert "billing" in body
    for line in (
        "Content-Security-Policy: default-src 'none'; script-src 'self'",
        "frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
    ):
        assert line in head
    assert "Access-Control" not in head


@pytest.mark.parametrize(
    ("path", "method", "host", "status"),
    [
        ("/", "GET", "evil.example", 403),
        ("/", "POST", None, 405),
        ("/typo", "GET", None, 404),
        ("/api/v1/groups", "GET", None, 503),
        ("/ready", "GET", None, 503),
        ("/alive", "GET", "10.0.0.1", 200),
    ],
)
async def test_refusals_have_a_status_and_a_line(path: str, method: str, host: str | None, status: int) -> None:
    async with serving() as (_, port):
        found, head, body = await get(port, path, method, host)
    assert found == status
    assert body.count("\n") == 1
    assert "Traceback" not in body
    assert ("Allow: GET, HEAD" in head) == (status == 405)


async def test_a_head_has_no_body() -> None:
    async with serving() as (server, port):
        server.show(FIRST)
        status, head, body = await get(port, "/", "HEAD")
    assert (status, body) == (200, "")
    assert "Content-Length: 0" not in head


async def test_a_request_that_is_too_large_or_none_is_refused() -> None:
    async with serving() as (_, port):
        large = await send(port, f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nX: {'x' * 9000}\r\n\r\n")
        odd = await send(port, "hello\r\n\r\n")
    assert large.startswith("HTTP/1.1 431 ")
    assert odd.startswith("HTTP/1.1 400 ")


async def test_a_request_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.05)
    async with serving() as (_, port):
        assert (await send(port, "GET / HT")).startswith("HTTP/1.1 408 ")


async def test_slow_connections_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slowloris: as many connections as there may be, each of which sends nothing."""
    monkeypatch.setattr(limits, "CONNECTIONS", 60)
    monkeypatch.setattr(limits, "HEAD_SECONDS", 600.0)  # a busy machine takes seconds to open them, and none may be given up before
    async with serving() as (server, port):
        server.show(FIRST)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(59)]
        assert (await get(port, "/"))[0] == 200
        idle.append(await asyncio.open_connection("127.0.0.1", port))
        assert (await get(port, "/"))[0] == 503
        for _, writer in idle:
            writer.close()


async def test_the_token_is_asked_for() -> None:
    async with serving("secret") as (server, port):
        server.show(FIRST)
        refused = await get(port, "/")
        let_in = await send(port, f"GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer secret\r\n\r\n")
    assert refused[0] == 401
    assert "secret" not in refused[1] + refused[2]
    assert let_in.startswith("HTTP/1.1 200 ")


async def test_a_bug_is_no_traceback_for_strangers(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (server, port):
        server.show("no snapshot")  # type: ignore[arg-type]  # a bug
        status, _, body = await get(port, "/")
    assert (status, body) == (500, "this is our fault\n")
    assert "a request could not be answered" in caplog.text


# --- events --------------------------------------------------------------------------------------------------------------------


async def open_stream(port: int, query: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    writer.write(f"GET /events{query} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return reader, writer, head


async def next_event(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next event, its data as JSON."""
    found: dict[str, Any] = {}
    while True:
        line = (await asyncio.wait_for(reader.readline(), 10)).decode().rstrip("\n")
        if not line and found:
            return found
        name, _, value = line.partition(": ")
        if name:
            found[name] = json.loads(value) if name == "data" else value
        if found.keys() == {"retry"}:
            found = {}


async def test_a_stream_tells_of_each_poll() -> None:
    async with serving() as (server, port):
        reader, writer, head = await open_stream(port)
        assert "Content-Type: text/event-stream" in head
        assert "Content-Length" not in head
        server.show(FIRST)
        first = await next_event(reader)
        server.show(snapshot(group("billing", part("orders", 0, lag=6)), number=2))
        second = await next_event(reader)
        writer.close()

    assert (first["event"], first["id"], second["id"]) == ("poll", "1", "2")
    assert [row["cells"]["lag"] for row in (first["data"]["rows"][0], second["data"]["rows"][0])] == ["5", "6"]


async def test_an_idle_stream_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)
    async with serving() as (_, port):
        reader, writer, _ = await open_stream(port)
        while not (await asyncio.wait_for(reader.readline(), 10)).startswith(b": "):
            pass
        writer.close()


async def test_too_many_streams_are_refused_and_the_page_still_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS", 2)
    async with serving() as (server, port):
        server.show(FIRST)
        streams = [await open_stream(port) for _ in range(3)]
        assert streams[-1][2].startswith("HTTP/1.1 429 ")
        assert (await get(port, "/"))[0] == 200
        for _, writer, _ in streams:
            writer.close()


@pytest.mark.slow
async def test_a_reader_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_SECONDS", 0.2)
    many = [[group(f"g{number:03}{'x' * 200}", part("t", 0, lag=lag)) for number in range(200)] for lag in (1, 2)]
    async with serving() as (server, port):
        before = len(asyncio.all_tasks())
        silent = socket.create_connection(("127.0.0.1", port))
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.sendall(f"GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            while len(asyncio.all_tasks()) == before:  # noqa: ASYNC110  # nothing tells that a connection is served, or no longer
                await asyncio.sleep(0)
            number = 0
            while len(asyncio.all_tasks()) > before:
                number += 1
                server.show(snapshot(*many[number % 2], number=number))
                await asyncio.sleep(0)
        silent.close()


async def test_a_server_that_ends_ends_its_streams() -> None:
    async with serving() as (_, port):
        reader, writer, _ = await open_stream(port)
    rest = await asyncio.wait_for(reader.read(), 10)
    assert rest == b"retry: 3000\n\n"
    writer.close()


# --- the end of a connection, and of the server -----------------------------------------------------------------------------------


async def received(client: socket.socket) -> int:
    """Return how many bytes come before the connection ends."""
    client.setblocking(False)
    found = 0
    async with asyncio.timeout(20):
        with suppress(ConnectionResetError):
            while data := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                found += len(data)
    return found


@pytest.mark.slow
async def test_a_server_that_ends_waits_for_no_reader_that_does_not_read() -> None:
    page, asked = bytes(40 << 20), asyncio.Event()

    def answer(_: WebRequest) -> Reply:
        asked.set()
        return Reply(page)

    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with asyncio.timeout(20):
            async with limits.HttpServer(lambda _: None, answer).listening("127.0.0.1", 0) as port:
                silent.connect(("127.0.0.1", port))
                silent.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await asked.wait()
        assert 0 < await received(silent) < len(page)


async def test_a_slow_reader_gets_the_whole_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0)  # nothing is left for it
    page = bytes(60_000)

    async def stream(_: WebRequest, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the system keeps next to nothing
        await limits.write(writer, page)

    async with limits.HttpServer(lambda _: None, lambda _: Reply(b""), {"/": stream}).listening("127.0.0.1", 0) as port:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await received(slow) == len(page)


@pytest.mark.parametrize("turns", range(3, 6))  # one that has only just been accepted is forgotten by asyncio itself
async def test_a_server_that_ends_ends_connections_that_are_just_coming(turns: int) -> None:
    with socket.socket() as late:
        async with asyncio.timeout(20):
            async with serving() as (_, port):
                late.connect(("127.0.0.1", port))
                late.sendall(f"GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
                for _ in range(turns):
                    await asyncio.sleep(0)
        assert await received(late) < 1000


async def test_readers_that_go_are_no_errors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving() as (server, port):
        before = len(asyncio.all_tasks())
        _, scanner = await asyncio.open_connection("127.0.0.1", port)
        scanner.write(b"GET ")
        scanner.close()
        _, page, _ = await open_stream(port)
        page.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
        page.transport.abort()
        async with asyncio.timeout(20):
            number = 0
            while len(asyncio.all_tasks()) > before:
                number += 1
                server.show(snapshot(number=number))
                await asyncio.sleep(0)
    assert caplog.records == []


async def test_a_reader_that_cannot_be_reached_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be made so on one machine: this is what the event loop says when the system answers EHOSTUNREACH."""
    ended = asyncio.Event()

    async def stream(_: WebRequest, writer: asyncio.StreamWriter) -> None:
        writer.transport.get_protocol().connection_lost(OSError(errno.EHOSTUNREACH, "no route to host"))
        try:
            await limits.write(writer, b"news")
        finally:
            ended.set()

    caplog.set_level(logging.WARNING)
    server = limits.HttpServer(lambda _: None, lambda _: Reply(b""), {"/": stream})
    async with asyncio.timeout(20), server.listening("127.0.0.1", 0) as port:
        await send(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ended.wait()
    assert caplog.records == []


async def test_one_that_cannot_be_reached_before_it_has_asked_is_gone() -> None:
    reader = asyncio.StreamReader()
    reader.set_exception(OSError(errno.EHOSTUNREACH, "no route to host"))
    with pytest.raises(ConnectionError):
        await limits.read(reader, 1.0)


async def test_a_file_that_is_missing_is_our_fault(caplog: pytest.LogCaptureFixture) -> None:
    def answer(_: WebRequest) -> Reply:
        raise FileNotFoundError("page.js")

    async with limits.HttpServer(lambda _: None, answer).listening("127.0.0.1", 0) as port:
        assert (await get(port, "/page.js"))[0] == 500
    assert "a request could not be answered" in caplog.text
