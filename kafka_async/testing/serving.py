"""The cluster on TCP: one listening socket for each broker, on the loopback, for programs that are not in this process.

It runs in the event loop that opened it, so that a cluster is only ever touched by one thread.
"""

import asyncio
import logging
import struct
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from attrs import define, field

from .clock import VirtualLoop
from .server import NotSimulatedError
from .simulation.waking import finished

if TYPE_CHECKING:
    from .simulation import FakeBroker, FakeCluster

_log = logging.getLogger("kafka_async.testing")
HOST: Final = "127.0.0.1"
_LARGEST: Final = 100 * 1024 * 1024
"""Bytes of a request (``socket.request.max.bytes``)."""
_ACCEPTED_AFTER: Final = 8
"""Turns of the event loop, and some more, between accepting a connection and the start of its task."""


@define(eq=False, repr=False)
class ClusterSockets:
    """The sockets of a cluster."""

    cluster: "FakeCluster"
    _servers: list[asyncio.Server] = field(factory=list)
    _connections: dict["asyncio.Task[None]", asyncio.StreamWriter] = field(factory=dict)
    _nodes: dict[asyncio.StreamWriter, int] = field(factory=dict)
    """Which broker each connection leads to."""
    _silent: set[asyncio.StreamWriter] = field(factory=set)
    """Connections on which nothing is answered any more."""
    _closed: bool = field(default=False, init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)

    @classmethod
    async def open(cls, cluster: "FakeCluster") -> Self:
        """Listen. From now on the brokers' addresses are those of the sockets; the old ones still work within the process."""
        if isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise RuntimeError("serve() needs real time: another program does not know the time of a virtual loop")
        listener = cls(cluster)
        for broker in cluster.brokers.values():
            server = await asyncio.start_server(partial(listener.serve, broker), HOST, 0)
            listener._servers.append(server)
            broker.listens(HOST, server.sockets[0].getsockname()[1])
        return listener

    @property
    def is_over(self) -> bool:
        """Whether the event loop that it belongs to is gone."""
        return self._loop.is_closed()

    def cut(self, node_id: int | None = None) -> None:
        """Break the connections: all, or those to one broker."""
        for writer, node in self._nodes.items():
            if node_id in (None, node):
                writer.transport.abort()

    def half_open(self) -> None:
        """Leave the connections open, and answer nothing on them."""
        self._silent |= self._nodes.keys()

    def close(self) -> None:
        """Close the sockets; the tasks end in the next turns of the loop.

        Nothing is accepted from now on, but what was accepted is still on its way to its task, and asyncio loses the socket of such
        a connection if its server is closed meanwhile. So that comes some turns later.
        """
        self._closed = True
        for server in self._servers:
            for each in server.sockets:
                server.get_loop().remove_reader(each.fileno())
        self._close_servers(_ACCEPTED_AFTER)
        for task, writer in self._connections.items():
            writer.transport.abort()
            task.cancel()

    def _close_servers(self, turns: int) -> None:
        for server in self._servers:
            if turns and server.get_loop().is_running():
                server.get_loop().call_soon(self._close_servers, turns - 1)
                return
            server.close()

    async def ended(self) -> None:
        """Wait for the sockets and the tasks."""
        for _ in range(_ACCEPTED_AFTER + 1):
            await asyncio.sleep(0)
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _serves(self, broker: "FakeBroker") -> bool:
        return not self._closed and self.cluster.is_up(broker.node_id)

    async def serve(self, broker: "FakeBroker", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, one request after the other, until either side closes it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of asyncio runs in a task
        self._connections[task] = writer
        self._nodes[writer] = broker.node_id
        try:
            while self._serves(broker):
                size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
                if not 0 <= size <= _LARGEST:
                    break
                frame = await reader.readexactly(size)
                if writer in self._silent:
                    continue
                answer = await finished(broker.arrived(frame, writer)(), self.cluster.changes)
                if writer in self._silent:
                    continue
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except NotSimulatedError as error:
            _log.error("%s", error)
        except (OSError, EOFError):  # the peer has gone
            pass
        except (ValueError, struct.error) as error:  # it does not speak Kafka, or not in plain text: a broker hangs up
            _log.error("broker %d: bytes that are not a request: %s", broker.node_id, error)
        except asyncio.CancelledError:  # the listener or the loop ends: nobody awaits this task
            pass
        finally:
            self._connections.pop(task, None)
            self._nodes.pop(writer, None)
            self._silent.discard(writer)
            broker.hung_up(writer)
            writer.transport.abort()
