"""An in-memory network: a ``TransportFactory`` whose brokers are coroutines or scripts in the test."""

import math
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from attrs import Factory, define, field

from kafka_async.errors import KafkaConnectionError
from kafka_async.network import ConnectionRunner, NetworkClientDelegate, Transport, TransportFactory, UnsentRequest
from kafka_async.wire import Response
from tests.network.peers import Peer

Answer = Callable[[Peer], Response | None]
"""Looks at the oldest request of a connection and answers it, or keeps silent."""


@define(eq=False)
class MemoryTransport:
    """One connection to a broker that is a function."""

    answer: Answer
    peer: Peer = Factory(Peer)
    sent: list[bytes] = field(factory=list)
    closed: bool = False
    stuck: bool = False
    """Writing blocks, as with a peer that does not read."""
    send_error: KafkaConnectionError | None = None
    _incoming: bytearray = field(factory=bytearray)
    _arrived: anyio.Event = field(factory=anyio.Event)
    _eof: bool = False

    def push(self, data: bytes) -> None:
        """Bytes arrive."""
        self._incoming += data
        self._arrived.set()

    def end(self) -> None:
        """The broker closes the connection."""
        self._eof = True
        self._arrived.set()

    async def receive_into(self, buffer: memoryview) -> int:
        while not self._incoming and not self._eof:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        count = min(len(buffer), len(self._incoming))
        buffer[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    async def send(self, data: bytes) -> None:
        if self.send_error:
            raise self.send_error
        if self.stuck:
            await anyio.sleep_forever()
        self.sent.append(data)
        self.peer.feed(data)
        while self.peer.asked:
            response = self.answer(self.peer)
            if response is None:
                return
            self.push(self.peer.answer(response))

    async def aclose(self) -> None:
        self.closed = True


@define(eq=False)
class MemoryNetwork:
    """Makes transports and remembers them. ``reach`` is awaited for each attempt: it may fail, hang or return."""

    answer: Answer
    reach: Callable[[int], Awaitable[None]] | None = None
    transports: list[MemoryTransport] = field(factory=list)
    attempts: list[tuple[float, str, int]] = field(factory=list)
    """When, to which host, and after how many failures."""

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport:
        self.attempts.append((anyio.current_time(), host, attempt))
        if self.reach is not None:
            await self.reach(len(self.attempts))
        transport = MemoryTransport(self.answer)
        self.transports.append(transport)
        return transport


class Loop:
    """The smallest background loop: plan, perform, sleep until something happens or falls due."""

    def __init__(
        self,
        delegate: NetworkClientDelegate,
        task_group: TaskGroup,
        factory: TransportFactory,
    ) -> None:
        self.delegate = delegate
        self.turns = 0
        self.runner = ConnectionRunner(delegate, task_group, factory, anyio.current_time, self.wake)
        self._stirred = anyio.Event()

    def wake(self) -> None:
        self._stirred.set()

    def add(self, *requests: UnsentRequest) -> None:
        self.delegate.add(requests, anyio.current_time())
        self.wake()

    def step(self) -> float:
        self.turns += 1
        plan = self.delegate.plan(anyio.current_time())
        self.runner.perform(plan)
        return plan.wake_at

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run until ``condition`` holds."""
        while not condition():
            self._stirred = anyio.Event()
            wake_at = self.step()
            if condition():
                return
            with anyio.move_on_after(wake_at - anyio.current_time() if wake_at < math.inf else None):
                await self._stirred.wait()

    async def settle(self) -> None:
        """Run until nothing more happens at this moment."""
        while True:
            self._stirred = anyio.Event()
            self.step()
            await anyio.wait_all_tasks_blocked()
            if not self._stirred.is_set():
                return

    async def stop(self) -> None:
        """Close everything."""
        self.delegate.close(anyio.current_time())
        self.step()
        await self.runner.aclose()
