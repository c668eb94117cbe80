"""Connections of browsers and programs.

One that is slow, silent or rude does not hold up the others, or what runs beside them.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from attrs import define, field

from .messages import LARGEST, TEXT, RefusedRequest, Reply, WebRequest, read_head

_log = logging.getLogger("kafka_async.web")

CONNECTIONS: Final = 100
HEAD_SECONDS: Final = 5.0
"""How long a request may take to come."""
CROWDED_SECONDS: Final = 1.0
"""The same while there are too many connections: closing one that has not been read from would lose the answer."""
WRITE_SECONDS: Final = 10.0
"""How long a reader may not read."""
CLOSE_SECONDS: Final = 1.0
"""The same for one whose reply is interrupted, because the server ends."""

Stream = Callable[[WebRequest, asyncio.StreamWriter], Awaitable[None]]
"""Writes a reply as it comes."""


@define(eq=False)
class HttpServer:
    """Answers requests."""

    check: Callable[[WebRequest], None]
    """Raises ``RefusedRequest`` for whoever may not ask."""
    answer: Callable[[WebRequest], Reply]
    """Raises ``RefusedRequest``."""
    streams: Mapping[str, Stream] = field(factory=dict)
    """A path -> what writes its reply."""
    _connections: int = field(default=0, init=False)

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen until the block is left; yield the port, which is chosen by the system if ``port`` is 0. Raises ``OSError``."""
        tasks: set[asyncio.Task[None]] = set()
        ending = False

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if ending:  # it came in the last moment, and nobody would cancel this task
                writer.transport.abort()
                return
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
            try:
                yield listener.sockets[0].getsockname()[1]
            finally:
                ending = True
                listener.close()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    # --- one connection --------------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        writer.transport.set_write_buffer_limits(0)  # ``drain`` waits for all, so that closing cuts off no slow reader
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            try:
                with contextlib.suppress(OSError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await writer.wait_closed()
            finally:
                # A reader that does not read keeps its connection open, and since Python 3.12 the server waits for each at its end.
                writer.transport.abort()
                self._connections -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            crowded = self._connections > CONNECTIONS
            if self._connections > 2 * CONNECTIONS:  # not even the answer that there is no room
                return
            request = await read(reader, CROWDED_SECONDS if crowded else HEAD_SECONDS)
            if crowded:
                raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
            self.check(request)
            if request.path in self.streams:
                await self.streams[request.path](request, writer)
                return
            reply = self.answer(request)
            head_only = request.method == "HEAD"
        except RefusedRequest as refused:
            reply, head_only = refused.reply(), False
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):  # whoever asked is gone, or does not read
            raise
        except Exception:
            _log.exception("a request could not be answered")
            reply, head_only = Reply(b"this is our fault\n", TEXT, HTTPStatus.INTERNAL_SERVER_ERROR), False
        await write(writer, reply.encoded(head_only=head_only))


async def read(reader: asyncio.StreamReader, seconds: float) -> WebRequest:
    """Return the request.

    Raises ``RefusedRequest`` for one that is too large or too slow, ``ConnectionError`` or ``IncompleteReadError`` if whoever asks
    is gone.
    """
    try:
        async with asyncio.timeout(seconds):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise RefusedRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected {LARGEST} bytes of headers at most") from None
    except TimeoutError:
        raise RefusedRequest(HTTPStatus.REQUEST_TIMEOUT, f"expected a request within {seconds:g} s") from None
    except OSError as error:
        raise _gone(error) from error
    return read_head(head)


async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, and wait until the reader has taken all that the system does not keep for it.

    Raises ``TimeoutError`` if it does not, ``ConnectionError`` if it is gone.
    """
    writer.write(data)
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise
    except OSError as error:
        raise _gone(error) from error


def _gone(error: OSError) -> ConnectionError:
    """Return what says that whoever asked is gone: a host without a route is an ``OSError`` like that of a file of ours."""
    return ConnectionError(f"whoever asked is gone: {error}")
