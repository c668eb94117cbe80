"""The shell: performs the delegate's plans on sockets and reports what happened.

Each connection is one task. With a ``Pushing`` it only waits for the end: the event loop puts bytes into the delegate's
buffer by itself, and writes go out from ``perform``. From a ``Transport`` the task pulls, with a reader and a writer in a task
group of its own. Whatever ends one of them ends the connection: the transport is closed, the delegate learns it once, and ``wake``
lets the background loop look again. Cancelling the outer task group leaves no socket and no task behind.
"""

from collections.abc import Callable
from math import inf
from typing import Any

import anyio
from anyio.abc import TaskGroup

from ..errors import KafkaError
from ..values import define, field
from .auth import PendingWork
from .delegate import NetworkClientDelegate, Open, Plan, Run, Shut, Write
from .transport import Pushing, Transport, TransportFactory
from .waiting import LoopSignal, pause

YIELD_AFTER = 256 * 1024
"""Bytes after which a reader lets others run. A fast broker always has more, and reading available bytes does not suspend."""

FLUSH_TIMEOUT = 1.0
"""Seconds for which a connection that is shut may still write what was planned before. Final requests still have to be sent."""


@define(eq=False)
class _Connection:
    """What the runner keeps of one connection."""

    key: int
    scope: anyio.CancelScope = field(factory=anyio.CancelScope)
    push: Pushing | None = None
    """What writes go to at once; without it they wait in ``outgoing``."""
    outgoing: list[bytes] = field(factory=list)
    stirred: LoopSignal = field(factory=LoopSignal)
    """Woken when there is something to write or the connection is to end."""
    ending: bool = False
    tasks: TaskGroup | None = None
    """The connection's own tasks, once it has a transport."""
    work: anyio.CancelScope = field(factory=anyio.CancelScope)
    """The authenticator's last work."""


@define(eq=False)
class _Inbox:
    """Passes what a ``Pushing`` reads to the delegate."""

    key: int
    delegate: NetworkClientDelegate
    clock: Callable[[], float]
    wake: Callable[[], None]

    def get_buffer(self) -> memoryview | None:
        """See ``Receiver``."""
        buffer = self.delegate.get_buffer(self.key)
        if buffer is None:
            self.wake()  # the delegate has given the connection up; its next plan shuts it
        return buffer

    def received(self, count: int) -> memoryview | None:
        """See ``Receiver``."""
        if self.delegate.received(self.key, count, self.clock()):
            self.wake()
        return self.get_buffer()


class ConnectionRunner:
    """Runs connections inside ``task_group``. ``clock`` returns seconds on the time line of the delegate's ``now``."""

    def __init__(
        self,
        delegate: NetworkClientDelegate,
        task_group: TaskGroup,
        factory: TransportFactory,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._delegate = delegate
        self._task_group = task_group
        self._factory = factory
        self._clock = clock
        self._wake = wake
        self._connections: dict[int, _Connection] = {}
        self._gone = LoopSignal()

    def perform(self, plan: Plan) -> None:
        """Start what ``plan`` asks for. Returns at once."""
        for action in plan.actions:
            match action:
                case Open():
                    connection = self._connections[action.key] = _Connection(action.key)
                    self._task_group.start_soon(self._run, action, connection, name=f"kafka_async connection to {action.node}")
                case Write():
                    self._write_soon(action)
                case Run():
                    self._run_soon(action)
                case Shut():
                    if action.key in self._connections:
                        self._end(self._connections[action.key], FLUSH_TIMEOUT)

    async def aclose(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Close all connections, after writing what was planned, and wait until they are gone; at most ``timeout`` seconds."""
        for connection in self._connections.values():
            self._end(connection, timeout)
        while self._connections:
            await self._gone.wait(self._gone.ticket(), inf)

    @property
    def connections(self) -> int:
        """Connections whose task is running."""
        return len(self._connections)

    def _write_soon(self, action: Write) -> None:
        # The connection may have ended since the plan was made; the delegate knows and its requests have ended.
        connection = self._connections.get(action.key)
        if connection is None:
            return
        if connection.push is not None:
            connection.push.write(action.data)
        else:
            connection.outgoing.append(action.data)
            connection.stirred.wake()

    def _run_soon(self, action: Run) -> None:
        connection = self._connections.get(action.key)
        if connection is not None and connection.tasks is not None:
            connection.work.cancel()
            connection.work = anyio.CancelScope()
            connection.tasks.start_soon(self._work, connection, action.work, connection.work)

    def _end(self, connection: _Connection, timeout: float) -> None:
        connection.ending = True
        if connection.tasks is None:  # still being made
            connection.scope.cancel()
        else:
            if connection.push is not None:
                connection.push.shut()
            connection.stirred.wake()
            connection.scope.deadline = min(connection.scope.deadline, anyio.current_time() + timeout)

    async def _run(self, action: Open, connection: _Connection) -> None:
        try:
            with connection.scope:
                transport = await self._connect(action)
                if transport is not None:
                    await self._serve(connection, transport)
        finally:
            del self._connections[action.key]
            self._gone.wake()

    async def _connect(self, action: Open) -> Transport | Pushing | None:
        try:
            return await self._factory(action.node.host, action.node.port, timeout=action.timeout, attempt=action.attempt)
        except KafkaError as error:
            self._delegate.open_failed(action.key, error, self._clock())
            self._wake()
            return None

    async def _serve(self, connection: _Connection, transport: Transport | Pushing) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                connection.tasks = tasks
                self._delegate.opened(connection.key, self._clock())
                self._wake()
                if isinstance(transport, Pushing):
                    await self._follow(connection, transport)
                else:
                    tasks.start_soon(self._read, connection, transport, tasks.cancel_scope)
                    await self._write(connection, transport)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    async def _follow(self, connection: _Connection, transport: Pushing) -> None:
        connection.push = transport
        try:
            transport.attach(_Inbox(connection.key, self._delegate, self._clock, self._wake))
            await transport.ended()
        except KafkaError as error:
            self._lost(connection, error)
        else:
            if not connection.ending:
                self._lost(connection, None)

    async def _write(self, connection: _Connection, transport: Transport) -> None:
        try:
            while connection.outgoing or not connection.ending:
                ticket = connection.stirred.ticket()
                if connection.outgoing:
                    data = b"".join(connection.outgoing)
                    connection.outgoing.clear()
                    await transport.send(data)
                else:
                    await connection.stirred.wait(ticket, inf)
        except KafkaError as error:
            self._lost(connection, error)

    async def _read(self, connection: _Connection, transport: Transport, all_tasks: anyio.CancelScope) -> None:
        try:
            ended = await self._receive(connection.key, transport)
        except KafkaError as error:
            ended = True
            self._lost(connection, error)
        self._wake()
        if ended:
            all_tasks.cancel()
        # Otherwise the delegate wants no more bytes, and its next plan shuts the connection: the writer may be sending a final
        # request.

    async def _receive(self, key: int, transport: Transport) -> bool:
        """Read until the stream ends (true) or its bytes are not wanted any more (false)."""
        delegate, clock = self._delegate, self._clock
        unyielded = 0
        while (buffer := delegate.get_buffer(key)) is not None:
            count = await transport.receive_into(buffer)
            if not count:
                delegate.lost(key, None, clock())
                return True
            unyielded += count
            answers = delegate.received(key, count, clock())
            if answers:
                self._wake()
            if answers or unyielded >= YIELD_AFTER:
                unyielded = 0
                await pause()
        return False

    async def _work(self, connection: _Connection, work: PendingWork, scope: anyio.CancelScope) -> None:
        outcome: Any = None
        with scope:
            try:
                outcome = await work.run()
            except KafkaError as error:
                outcome = error
        if scope.cancel_called:
            return  # the delegate waits for another work, and would take this outcome for that one's
        if not self._delegate.worked(connection.key, outcome, self._clock()):
            self._end(connection, FLUSH_TIMEOUT)
        self._wake()

    def _lost(self, connection: _Connection, error: KafkaError | None) -> None:
        self._delegate.lost(connection.key, error, self._clock())
        self._wake()
