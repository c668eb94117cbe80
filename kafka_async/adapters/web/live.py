"""What was seen last, as pages that are kept up to date: to each reader the newest when it is ready for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from attrs import define, field

from ..monitor import Snapshot
from .guard import Guard
from .messages import HEADERS, RefusedRequest, Reply, WebRequest, head_of
from .server import HttpServer, write
from .site import LastSeen, Site

STREAMS: Final = 50
"""Pages that are kept up to date at once."""
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
    _streams: int = field(default=0, init=False)

    def show(self, snapshot: Snapshot) -> None:
        """Serve this from now on."""
        self._snapshot, self._taken_at = snapshot, self.clock()
        before, self._news = self._news, asyncio.Event()
        before.set()

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen until the block is left; yield the port, which is chosen by the system if ``port`` is 0. Raises ``OSError``."""
        async with HttpServer(self._check, self._answer, {"/events": self._stream}).listening(host, port) as chosen:
            yield chosen

    def _check(self, request: WebRequest) -> None:
        self.guard.check(request)

    def _answer(self, request: WebRequest) -> Reply:
        return self.site.answer(request, self._seen())

    def _seen(self) -> LastSeen:
        return LastSeen(snapshot=self._snapshot, age=max(0.0, self.clock() - self._taken_at) if self._snapshot is not None else 0.0)

    async def _stream(self, request: WebRequest, writer: asyncio.StreamWriter) -> None:
        """Tell of each poll, as server-sent events."""
        if self._streams >= STREAMS:
            raise RefusedRequest(HTTPStatus.TOO_MANY_REQUESTS, "too many pages are open", {"Retry-After": "10"})
        self._streams += 1
        try:
            headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **HEADERS}
            await write(writer, head_of(HTTPStatus.OK, headers))
            if request.method == "HEAD":
                return
            await write(writer, f"retry: {RETRY_MS}\n\n".encode())
            before: Snapshot | None = None
            while not writer.is_closing():
                news, now = self._news, self._snapshot
                if now is not None and now is not before:
                    data = json.dumps(self.site.event(request, before, now), separators=(",", ":"))
                    await write(writer, f"id: {now.number}\nevent: poll\ndata: {data}\n\n".encode())
                    before = now
                    continue
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        await news.wait()
                except TimeoutError:
                    await write(writer, b": still here\n\n")
        finally:
            self._streams -= 1
