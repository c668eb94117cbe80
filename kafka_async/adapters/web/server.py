"""Connections of browsers and programs.

Must never let one that is slow, silent or rude hold up the others or the polls, nor keep more for a slow reader than one state: it
gets the newest when it is ready for it.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from attrs import define, field

from ..monitor import Snapshot
from .guard import Guard
from .messages import HEADERS, LARGEST, TEXT, RefusedRequest, Reply, WebRequest, head_of, read_head
from .site import LastSeen, Site

_log = logging.getLogger("kafka_async.monitor")

CONNECTIONS: Final = 100
STREAMS: Final = 50
"""Pages that are kept up to date at once."""
HEAD_SECONDS: Final = 5.0
"""How long a request may take to come."""
CROWDED_SECONDS: Final = 1.0
"""The same while there are too many connections: closing one that has not been read from would lose the answer."""
WRITE_SECONDS: Final = 10.0
"""How long a reader may not read."""
BEAT_SECONDS: Final = 15.0
"""Between two signs of life in a stream, so that nothing between here and the page closes it."""
RETRY_MS: Final = 3000
"""How soon a page comes back after its stream ended."""


@define(eq=False)
class WebServer:
    """Serves what was seen last."""

    site: Site
    guard: Guard
    clock: Callable[[], float]
    """Seconds; the clock of the polls."""
    _snapshot: Snapshot | None = field(default=None, init=False)
    _taken_at: float = field(default=0.0, init=False)
    _news: asyncio.Event = field(factory=asyncio.Event, init=False)
    _connections: int = field(default=0, init=False)
    _streams: int = field(default=0, init=False)

    def show(self, snapshot: Snapshot) -> None:
        """Serve this from now on."""
        self._snapshot, self._taken_at = snapshot, self.clock()
        before, self._news = self._news, asyncio.Event()
        before.set()

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen until the block is left; yield the port, which is chosen by the system if ``port`` is 0. Raises ``OSError``."""
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101  # each connection is served by a task
            tasks.add(task)
            try:
                await self._serve(reader, writer)
            except asyncio.CancelledError:  # by us, below; up to Python 3.11 asyncio logs a task of a connection that is cancelled
                pass
            finally:
                tasks.discard(task)

        async with await asyncio.start_server(serve, host, port, limit=LARGEST) as listener:
            yield listener.sockets[0].getsockname()[1]
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- one connection --------------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            crowded = self._connections > CONNECTIONS
            if self._connections > 2 * CONNECTIONS:  # not even the answer that there is no room
                return
            request = await _read(reader, CROWDED_SECONDS if crowded else HEAD_SECONDS)
            if crowded:
                raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
            self.guard.check(request)
            if request.path == "/events":
                await self._stream(request, writer)
                return
            reply = self.site.answer(request, self._seen())
            head_only = request.method == "HEAD"
        except RefusedRequest as refused:
            reply, head_only = refused.reply(), False
        except Exception:
            _log.exception("a request could not be answered")
            reply, head_only = Reply(b"this is our fault\n", TEXT, HTTPStatus.INTERNAL_SERVER_ERROR), False
        await _write(writer, reply.encoded(head_only=head_only))

    def _seen(self) -> LastSeen:
        return LastSeen(snapshot=self._snapshot, age=max(0.0, self.clock() - self._taken_at) if self._snapshot is not None else 0.0)

    async def _stream(self, request: WebRequest, writer: asyncio.StreamWriter) -> None:
        """Tell of each poll, as server-sent events."""
        if self._streams >= STREAMS:
            raise RefusedRequest(HTTPStatus.TOO_MANY_REQUESTS, "too many pages are open", {"Retry-After": "10"})
        self._streams += 1
        try:
            headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **HEADERS}
            await _write(writer, head_of(HTTPStatus.OK, headers))
            if request.method == "HEAD":
                return
            await _write(writer, f"retry: {RETRY_MS}\n\n".encode())
            before: Snapshot | None = None
            while not writer.is_closing():
                news, now = self._news, self._snapshot
                if now is not None and now is not before:
                    data = json.dumps(self.site.event(request, before, now), separators=(",", ":"))
                    await _write(writer, f"id: {now.number}\nevent: poll\ndata: {data}\n\n".encode())
                    before = now
                    continue
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        await news.wait()
                except TimeoutError:
                    await _write(writer, b": still here\n\n")
        finally:
            self._streams -= 1


async def _read(reader: asyncio.StreamReader, seconds: float) -> WebRequest:
    """Return the request. Raises ``RefusedRequest`` for one that is too large or too slow."""
    try:
        async with asyncio.timeout(seconds):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise RefusedRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected {LARGEST} bytes of headers at most") from None
    except TimeoutError:
        raise RefusedRequest(HTTPStatus.REQUEST_TIMEOUT, f"expected a request within {seconds:g} s") from None
    return read_head(head)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, and wait until the reader has taken all but a little. Raises ``TimeoutError`` if it does not."""
    writer.write(data)
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise
