"""The network between a consumer and the fake brokers.

Decides: when bytes arrive. Owns: the connections. Must never look into a message: that is the broker's part.

A connection has no task of its own. The broker works inside the client's own ``receive_into``, one request after the other as a
real broker does, so that nothing is left running when the client is gone.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import anyio.lowlevel
from attrs import define, field

from kafka_async.errors import KafkaConnectionError
from kafka_async.network import Transport


class LastBytes(bytes):
    """An answer, or a part of one, after which the broker closes the connection."""


class Server(Protocol):
    """What answers at the other end."""

    node_id: int

    def arrived(self, frame: bytes) -> Callable[[], Awaitable[bytes | None]]:
        """Take a request (without its length); return what answers it. ``None``: the connection is closed instead."""
        ...


class Network(Protocol):
    """Who listens where, and how the lines are."""

    latency: float
    chunk: int | None

    def server_at(self, host: str, port: int) -> Server | None: ...

    def reach(self, node_id: int) -> str: ...


@define(eq=False)
class FakeTransport:
    """One connection, seen from the client."""

    server: Server
    network: Network
    closed: bool = False
    stuck: bool = False
    """Half-open: bytes go nowhere, none come back, nobody says so."""
    ended: bool = False
    """The broker has closed it."""
    _waiting: deque[Callable[[], Awaitable[bytes | None]]] = field(factory=deque)
    _unread: bytearray = field(factory=bytearray)
    _incoming: bytearray = field(factory=bytearray)
    _stirred: anyio.Event = field(factory=anyio.Event)
    _work: anyio.CancelScope | None = None

    @property
    def node_id(self) -> int:
        return self.server.node_id

    def end(self) -> None:
        """The broker closes the connection, whatever it is working on."""
        self.ended = True
        self._stir()

    def hang(self) -> None:
        """From now on nothing gets through in either direction."""
        self.stuck = True
        self._stir()

    async def receive_into(self, buffer: memoryview) -> int:
        while not self._incoming:
            if self.stuck:
                await anyio.sleep_forever()
            if self.ended:
                return 0
            if self._waiting:
                await self._serve(self._waiting.popleft())
            else:
                self._stirred = anyio.Event()
                await self._stirred.wait()
        count = min(len(buffer), len(self._incoming), self.network.chunk or len(self._incoming))
        buffer[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self.stuck:
            return
        if self.ended:
            raise KafkaConnectionError(f"broker {self.node_id}: the connection is closed")
        self._unread += data
        while len(self._unread) >= 4 and len(self._unread) >= 4 + (size := int.from_bytes(self._unread[:4], "big")):
            self._waiting.append(self.server.arrived(bytes(self._unread[4 : 4 + size])))
            del self._unread[: 4 + size]
        self._stirred.set()

    async def aclose(self) -> None:
        self.closed = True

    async def _serve(self, answer: Callable[[], Awaitable[bytes | None]]) -> None:
        with anyio.CancelScope() as self._work:
            await anyio.sleep(self.network.latency)
            frame = await answer()
            if frame is None:
                self.ended = True
            else:
                self._incoming += frame
                self.ended |= isinstance(frame, LastBytes)
        self._work = None

    def _stir(self) -> None:
        self._stirred.set()
        if self._work is not None:
            self._work.cancel()


@define(eq=False)
class FakeNetwork:
    """The ``TransportFactory`` of a fake cluster."""

    network: Network
    transports: list[FakeTransport] = field(factory=list)
    attempts: list[tuple[float, str]] = field(factory=list)
    """When a connection to which host was tried."""

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport:
        self.attempts.append((anyio.current_time(), host))
        await anyio.sleep(self.network.latency)
        server = self.network.server_at(host, port)
        how = "refuse" if server is None else self.network.reach(server.node_id)
        if how == "hang":
            await anyio.sleep(timeout)
            raise KafkaConnectionError(f"{host}:{port}: no connection in time")
        if server is None or how == "refuse":
            raise KafkaConnectionError(f"{host}:{port}: Connection refused")
        transport = FakeTransport(server, self.network)
        self.transports.append(transport)
        return transport

    def live(self, node_id: int | None = None) -> list[FakeTransport]:
        """Return the connections that neither side has closed."""
        return [t for t in self.transports if not t.closed and not t.ended and node_id in (None, t.node_id)]
