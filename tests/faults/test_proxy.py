"""The proxy does to a connection what it says, and nothing else."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from attrs import frozen

from .proxy import Proxy, Strike, in_front_of

API = 18


@frozen
class Client:
    """A connection through the proxy to a server that answers each request with its own bytes behind the correlation id."""

    proxy: Proxy
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, correlation_id: int, body: bytes = b"hello", *, api: int = API) -> None:
        frame = struct.pack(">hhih", api, 0, correlation_id, 2) + b"me" + body
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(30):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(length)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def silent(self) -> bool:
        try:
            async with asyncio.timeout(0.1):
                return not await self.reader.read(1)
        except TimeoutError:
            return True

    async def ended(self) -> bytes:
        """Return what comes until the connection ends."""
        found = b""
        try:
            async with asyncio.timeout(30):
                while data := await self.reader.read(1000):
                    found += data
        except ConnectionError:
            pass
        return found


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            answer = frame[4:8] + frame[12:]
            writer.write(struct.pack(">i", len(answer)) + answer)
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with in_front_of("{}:{}".format(*server.sockets[0].getsockname()[:2])) as proxy:
        host, port = proxy.bootstrap_servers.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield Client(proxy, reader, writer)
        finally:
            writer.close()
            server.close()


@pytest.mark.slow
async def test_bytes_pass_unchanged_whole_and_in_pieces() -> None:
    async with connected() as client:
        client.send(1)
        assert await client.answer() == (1, b"hello")
        client.proxy.line("me").piece = 3
        client.send(2, b"x" * 100_000)
        assert await client.answer() == (2, b"x" * 100_000)
        client.proxy.line("me").piece = None
        client.proxy.line("me").gather = 0.05
        for number in range(3, 6):
            client.send(number)
        assert [await client.answer() for _ in range(3)] == [(number, b"hello") for number in range(3, 6)]
        assert (client.proxy.opened, client.proxy.carried) == (1, {API: 1})


async def test_latency_and_rate_take_their_time() -> None:
    async with connected() as client:
        client.proxy.everyone.latency = 0.05
        began = time.monotonic()
        client.send(1)
        assert await client.answer() == (1, b"hello")
        assert time.monotonic() - began >= 0.1
        client.proxy.everyone.heal()
        client.proxy.everyone.rate = 100_000
        began = time.monotonic()
        client.send(2, b"x" * 10_000)
        await client.answer()
        assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("ways", [{"request"}, {"response"}, {"request", "response"}])
async def test_what_a_stalled_direction_held_back_passes_when_it_is_healed(ways: set[str]) -> None:
    async with connected() as client:
        client.proxy.everyone.stalled.update(ways)  # type: ignore[arg-type]  # the names of both directions
        client.send(1)
        assert await client.silent()
        client.proxy.everyone.heal()
        assert await client.answer() == (1, b"hello")


@pytest.mark.parametrize(
    ("strike", "passes"), [(Strike.CUT, b""), (Strike.HALF, b"\0\0\0\t\0\0"), (Strike.AFTER, b"\0\0\0\t\0\0\0\1hello")]
)
async def test_a_trap_strikes_the_answer_to_its_api_once(strike: Strike, passes: bytes) -> None:
    async with connected() as client:
        trap = client.proxy.line("me").set_trap(API, "response", strike)
        client.send(7, api=API + 1)
        assert await client.answer() == (7, b"hello")
        assert not trap.sprung.is_set()
        client.send(1)
        assert await client.ended() == passes
        assert trap.sprung.is_set()
        assert not client.proxy.line("me").traps


async def test_a_flipped_bit_is_the_only_one_that_changes() -> None:
    async with connected() as client:
        for strike, expected in ((Strike.CORRELATION, (1 ^ 0x40, b"hello world")), (Strike.RECORD, (1, b"hdllo world"))):
            client.proxy.line("me").set_trap(API, "response", strike)
            client.send(1, b"hello world")
            assert await client.answer() == expected


async def test_cut_resets_every_connection_and_refusing_every_new_one() -> None:
    async with connected() as client:
        client.send(1)
        await client.answer()
        assert client.proxy.cut("somebody else") == 0
        assert client.proxy.cut("me") == 1
        assert await client.ended() == b""
        client.proxy.everyone.refusing = True
        reader, writer = await asyncio.open_connection(*client.proxy.bootstrap_servers.split(":"))
        assert await Client(client.proxy, reader, writer).ended() == b""
        writer.close()
