"""A proxy between a client and the brokers of a cluster that does to connections what networks and dying brokers do.

Decides: which bytes pass, when, and in which pieces. Owns: the ports that the cluster advertises for its ``proxied`` listener, and
the connections through them. Must never change what passes unless a ``Trap`` or ``Line.edit`` demands it.

Every connection is followed frame by frame (4 bytes of length; a request begins with API key, version, correlation id and client
id, a response with the correlation id), so that a fault can strike the very request of a phase, and one client and not another.
"""

import asyncio
import contextlib
import struct
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Final, Literal

from attrs import define, field, frozen

from tests.brokers import KafkaCluster

PROXIED: Final = "PROXIED"
"""Name of the listener whose advertised ports are the proxy's."""

Way = Literal["request", "response"]
WAYS: Final[tuple[Way, ...]] = ("request", "response")
_PIECE: Final = 1 << 16
_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhih")


class Strike(Enum):
    """What a ``Trap`` does to the frame that springs it."""

    CUT = auto()
    """The connection is reset; nothing of the frame passes."""
    HALF = auto()
    """Half of the frame passes, then the connection is reset."""
    AFTER = auto()
    """The frame passes, then the connection is reset."""
    STALL = auto()
    """From this frame on nothing passes in this direction; the connection stays open (half-open)."""
    LENGTH = auto()
    """A bit of the frame's length is flipped, which makes a frame of 1 GiB of it."""
    CORRELATION = auto()
    """A bit of the response's correlation id is flipped, or one of the request's API key."""
    RECORD = auto()
    """A bit of the tenth byte from the end is flipped, in a Fetch response with records that of a record."""


@define(eq=False)
class Trap:
    """Waits for a frame of one API and strikes it, once."""

    api: int
    way: Way
    strike: Strike
    sprung: asyncio.Event = field(factory=asyncio.Event)


@define(eq=False)
class Line:
    """What the network is like, for one client or for all; changes hold at once, for open connections too.

    ``latency``: seconds that each frame is under way. ``rate``: bytes a second and connection. ``piece``: frames are sent in pieces
    of so many bytes. ``gather``: seconds in which frames are collected and then sent as one piece. ``stalled``: directions in
    which nothing passes. ``refusing``: new connections are closed at once.
    """

    latency: float = 0.0
    rate: float | None = None
    piece: int | None = None
    gather: float = 0.0
    stalled: set[Way] = field(factory=set)
    refusing: bool = False
    traps: list[Trap] = field(factory=list)
    edit: Callable[[int, int, bytes], bytes] | None = None
    """Given API key and version of a request, and its answer without the length: what passes instead of the answer."""
    changed: asyncio.Event = field(factory=asyncio.Event)

    def set_trap(self, api: int, way: Way, strike: Strike) -> Trap:
        """Arm a trap for the next frame of an API (its key), a request or a response."""
        trap = Trap(api, way, strike)
        self.traps.append(trap)
        return trap

    def black_hole(self) -> None:
        """Let nothing pass in either direction; connections stay open, new ones are accepted."""
        self.stalled |= set(WAYS)

    def heal(self) -> None:
        """Be a good network again. What was held back passes now, but behind traps that stalled a connection."""
        self.latency, self.rate, self.piece, self.gather, self.refusing = 0.0, None, None, 0.0, False
        self.edit = None
        self.stalled.clear()
        self.traps.clear()
        self.changed.set()
        self.changed = asyncio.Event()

    def caught(self, api: int | None, way: Way) -> Strike | None:
        """Spring the first trap for such a frame; return what it does."""
        for trap in self.traps:
            if trap.api == api and trap.way == way:
                self.traps.remove(trap)
                trap.sprung.set()
                return trap.strike
        return None


@define(eq=False)
class _Connection:
    """Two streams, spliced."""

    proxy: "Proxy"
    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    client_id: str = ""
    apis: dict[int, tuple[int, int]] = field(factory=dict)
    """API key and version of the requests that are not answered, by correlation id."""
    carried: set[int] = field(factory=set)
    """API keys of all requests so far."""
    stuck: set[Way] = field(factory=set)

    @property
    def line(self) -> Line:
        lines = self.proxy.lines
        return lines[self.client_id] if self.client_id in lines else lines[""]

    pumps: list["asyncio.Task[None]"] = field(factory=list)

    def cut(self) -> None:
        """Reset both ends, whatever is held back."""
        for writer in (self.client, self.broker):
            writer.transport.abort()
        for pump in self.pumps:
            pump.cancel()

    async def pump(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass frames on until an end closes."""
        try:
            while True:
                head = await reader.readexactly(_LENGTH.size)
                frame = head + await reader.readexactly(_LENGTH.unpack(head)[0])
                await self._pass(way, frame, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return  # an end closed, which the other one learns when this returns

    async def _pass(self, way: Way, frame: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        api, version = self._look(way, frame)
        strike = self.line.caught(api, way)
        if strike is Strike.CUT:
            raise ConnectionAbortedError
        if strike is Strike.STALL:
            self.stuck.add(way)
        await self._until_it_flows(way)
        line = self.line
        if line.edit is not None and way == "response" and api is not None:
            frame = line.edit(api, version, frame[_LENGTH.size :])
            frame = _LENGTH.pack(len(frame)) + frame
        if line.gather:
            await asyncio.sleep(line.gather)
            frame += await self._gathered(way, reader)
        if line.latency:
            await asyncio.sleep(line.latency)
        await self._send(_struck(strike, way, frame), line, writer)
        if strike in (Strike.HALF, Strike.AFTER):
            writer.close()  # what was written still goes out
            await writer.wait_closed()
            raise ConnectionAbortedError

    async def _until_it_flows(self, way: Way) -> None:
        while way in self.line.stalled or way in self.stuck:
            await self.line.changed.wait()

    async def _send(self, data: bytes, line: Line, writer: asyncio.StreamWriter) -> None:
        size = line.piece or (_PIECE if line.rate is None else max(1, int(line.rate / 50)))
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            if line.rate is not None:
                await asyncio.sleep(size / line.rate)
            elif line.piece is not None:
                await asyncio.sleep(0)  # so that each piece is a packet

    async def _gathered(self, way: Way, reader: asyncio.StreamReader) -> bytes:
        """Return the frames that have come by now; no trap waits for them."""
        found = b""
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0):
                    head = await reader.readexactly(_LENGTH.size)
                frame = head + await reader.readexactly(_LENGTH.unpack(head)[0])
                self._look(way, frame)
                found += frame
        return found

    def _look(self, way: Way, frame: bytes) -> tuple[int | None, int]:
        """Return API key and version that a frame belongs to, and note what requests say."""
        if way == "response":
            (correlation_id,) = _LENGTH.unpack_from(frame, 4)
            return self.apis.pop(correlation_id, (None, 0))
        api, version, correlation_id, length = _REQUEST.unpack_from(frame, 4)
        self.apis[correlation_id] = api, version
        if api not in self.carried:
            self.carried.add(api)
            self.proxy.carried[api] += 1
        start = 4 + _REQUEST.size
        self.client_id = frame[start : start + max(length, 0)].decode()
        return api, version


def _struck(strike: Strike | None, way: Way, frame: bytes) -> bytes:
    if strike is Strike.HALF:
        return frame[: len(frame) // 2]
    places = {Strike.LENGTH: (0, 0x40), Strike.CORRELATION: (7 if way == "response" else 4, 0x40), Strike.RECORD: (-10, 0x01)}
    if strike not in places:
        return frame
    index, bit = places[strike]
    changed = bytearray(frame)
    changed[index] ^= bit
    return bytes(changed)


@define(eq=False)
class Proxy:
    """The proxies of all brokers of a cluster. ``async with proxied(cluster)`` makes one."""

    bootstrap_servers: str
    lines: dict[str, Line] = field(factory=lambda: defaultdict(Line, {"": Line()}))
    """By client id; ``""`` is for every client that has none of its own."""
    detours: dict[str, str] = field(factory=dict)
    """Where new connections lead instead of to a broker's own address."""
    opened: int = 0
    """Connections that clients have opened."""
    carried: Counter[int] = field(factory=Counter)
    """How many connections have carried a request of an API, by its key."""
    _connections: set[_Connection] = field(factory=set)
    _tasks: set["asyncio.Task[None]"] = field(factory=set)
    _servers: list[asyncio.Server] = field(factory=list)
    _closed: bool = False

    @property
    def everyone(self) -> Line:
        """The line of all clients that have none of their own."""
        return self.lines[""]

    def line(self, client_id: str) -> Line:
        """Return the line of one client, made when it is first asked for."""
        return self.lines[client_id]

    @property
    def connected(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def cut(self, client_id: str | None = None) -> int:
        """Reset the connections of one client, or all; return how many there were."""
        chosen = [connection for connection in self._connections if client_id in (None, connection.client_id)]
        for connection in chosen:
            connection.cut()
        return len(chosen)

    def forget(self, client_id: str | None = None) -> int:
        """Let nothing pass on the connections that one client, or anyone, has open now, whatever heals; new ones are good.

        So does a load balancer that forgets its connections, or a machine that loses its power. Return how many there were.
        """
        chosen = [connection for connection in self._connections if client_id in (None, connection.client_id)]
        for connection in chosen:
            connection.stuck |= set(WAYS)
        return len(chosen)

    async def open(self, port: int, target: str) -> None:
        """Listen at ``port`` (0: any) and forward to ``target``."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            host, _, number = self.detours.get(target, target).rpartition(":")
            await self._splice(reader, writer, host, int(number))

        self._servers.append(await asyncio.start_server(accept, "127.0.0.1", port))

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of each proxy."""
        return ["{}:{}".format(*server.sockets[0].getsockname()[:2]) for server in self._servers]

    async def close(self) -> None:
        """Close the ports and reset what goes through them."""
        self._closed = True
        for server in self._servers:
            server.close()
        self.cut()
        await asyncio.gather(*self._tasks)
        for server in self._servers:
            await server.wait_closed()

    async def _splice(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        self.opened += 1
        if self.everyone.refusing:
            writer.transport.abort()
            return
        try:
            broker_reader, broker_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()  # the broker is down
            return
        connection = _Connection(self, writer, broker_writer)
        connection.pumps = [
            asyncio.create_task(connection.pump("request", reader, broker_writer)),
            asyncio.create_task(connection.pump("response", broker_reader, writer)),
        ]
        self._connections.add(connection)
        if self._closed:
            connection.cut()
        await asyncio.wait(connection.pumps, return_when=asyncio.FIRST_COMPLETED)
        self._connections.discard(connection)
        connection.cut()
        await asyncio.wait(connection.pumps)


@frozen
class _Route:
    advertised: str
    target: str


@asynccontextmanager
async def proxied(cluster: KafkaCluster, listener: str = PROXIED) -> AsyncIterator[Proxy]:
    """Open the ports at which the cluster advertises ``listener``, for the length of the block."""
    routes = [_Route(*pair) for pair in zip(cluster.advertised(listener), cluster.listener(listener).split(","), strict=True)]
    proxy = Proxy(",".join(route.advertised for route in routes))
    try:
        for route in routes:
            await proxy.open(int(route.advertised.rpartition(":")[2]), route.target)
        yield proxy
    finally:
        await proxy.close()


@asynccontextmanager
async def in_front_of(target: str) -> AsyncIterator[Proxy]:
    """Open one proxy at any port in front of ``host:port``; what the broker advertises leads around it."""
    proxy = Proxy("")
    try:
        await proxy.open(0, target)
        proxy.bootstrap_servers = proxy.addresses[0]
        yield proxy
    finally:
        await proxy.close()
