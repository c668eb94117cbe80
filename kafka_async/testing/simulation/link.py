"""The network between a consumer and the fake brokers.

A connection has no task of its own, and the broker answers one request after the other as a real one does. On asyncio the event
loop's timers drive the answers and push them to the client, as sockets do (``PushLine``). On trio the broker works inside the
client's own ``receive_into`` (``PullLine``). So nothing is left running when the client is gone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from random import Random
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.lowlevel
from attrs import define, field

from ...errors import KafkaConnectionError
from .waking import Answering, Changes, Home, finished

_Answer: TypeAlias = Callable[[], Answering[bytes | None]]


class LastBytes(bytes):
    """An answer, or a part of one, after which the broker closes the connection."""


class Server(Protocol):
    """The other end of a connection."""

    node_id: int

    def arrived(self, frame: bytes, line: object = None) -> _Answer:
        """Take a request (without its length); return the function that answers it, with ``None`` to close the connection."""

    def hung_up(self, line: object) -> None:
        """A connection has ended."""


class SimulatedNetwork(Protocol):
    """Who listens where, and how fast connections are."""

    chunk: int | None
    changes: Changes

    def delay(self) -> float:
        """Return how long the next answer takes, in seconds."""

    def server_at(self, host: str, port: int) -> Server | None: ...

    def reach(self, node_id: int) -> str: ...


class BytesReceiver(Protocol):
    """Takes what arrives (``network.Receiver``)."""

    def get_buffer(self) -> memoryview | None: ...

    def received(self, count: int) -> object: ...


@define(eq=False)
class Frames:
    """What the client has sent: bytes become requests, which wait for their turn."""

    waiting: deque[_Answer] = field(factory=deque)
    _unread: bytearray = field(factory=bytearray)

    def add(self, data: bytes, server: Server, line: object) -> None:
        """Take bytes. Raises what ``Server.arrived`` raises."""
        self._unread += data
        while len(self._unread) >= 4 and len(self._unread) >= 4 + (size := int.from_bytes(self._unread[:4], "big")):
            frame = bytes(self._unread[4 : 4 + size])
            del self._unread[: 4 + size]
            self.waiting.append(server.arrived(frame, line))


@define(eq=False, repr=False)
class Drive:
    """Makes answers without a task, driven by timers and by changes in the cluster."""

    answered: Callable[[bytes | None], None]
    failed: Callable[[Exception], None]
    awaits: Callable[[Awaitable[Any]], None]
    """Called with what has to be awaited before ``go_on`` is called with the result."""
    changes: Changes
    home: Home
    work: Answering[bytes | None] | None = None
    """The answer that is being made."""
    _parked: object = None
    """The entry that wakes it at the next change."""
    _timer: asyncio.Handle | None = None
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop)

    def begin(self, work: Answering[bytes | None], delay: float) -> None:
        """Start an answer after ``delay`` seconds."""
        self.work = work
        self._timer = self._loop.call_at(self._loop.time() + delay, self._due, work)

    def go_on(self, work: Answering[bytes | None], sent: Any) -> None:
        """Go on with an answer, unless it was given up meanwhile."""
        if work is not self.work:
            return
        self._sleep_no_more()
        try:
            wanted = work.send(sent)
        except StopIteration as end:
            self.work = None
            self.answered(end.value)
        except Exception as error:
            self.work = None
            self.failed(error)
        else:
            if isinstance(wanted, float):
                # Soon, but not within the change, which may not be complete yet.
                self._parked = self.changes.park(self.home, partial(self._loop.call_soon, self.go_on, work, None))
                self._timer = self._loop.call_at(self.changes.clock.local(wanted), self._due, work) if wanted < inf else None
            else:
                self.awaits(wanted)

    def _due(self, work: Answering[bytes | None]) -> None:
        self._timer = None
        self.go_on(work, None)

    def stop(self) -> None:
        """Give up the answer."""
        self._sleep_no_more()
        work, self.work = self.work, None
        if work is not None and not getattr(work, "gi_running", False):
            work.close()

    def _sleep_no_more(self) -> None:
        if self._parked is not None:
            self.changes.forget(self._parked)
            self._parked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@define(eq=False, repr=False)
class PushLine:
    """One connection, seen from a client on asyncio: a ``network.PushTransport`` without a socket.

    Timers and changes in the cluster drive the broker's answers. Only what a test's own handler awaits needs a task: the client's
    own task, which waits in ``ended``.
    """

    server: Server
    network: SimulatedNetwork
    closed: bool = False
    stuck: bool = False
    """Half-open: bytes go nowhere, none come back, and neither side is notified."""
    is_over: bool = False
    """The broker has closed it."""
    _frames: Frames = field(factory=Frames)
    _incoming: bytearray = field(factory=bytearray)
    _receiver: BytesReceiver | None = None
    _awaited: Awaitable[Any] | None = None
    """What the answer that is being made waits for."""
    _bug: Exception | None = None
    _news: anyio.Event = field(factory=anyio.Event)
    """Set when the task in ``ended`` has something to do."""
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope)
    _home: Home = field(factory=Home)
    _drive: Drive = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._drive = Drive(self._answered, self._fail, self._ask_for_help, self.network.changes, self._home)

    @property
    def node_id(self) -> int:
        return self.server.node_id

    # --- what a test does ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The broker closes the connection, whatever it is working on."""
        self.is_over = True
        self._home.run(self._end)

    def hang(self) -> None:
        """From now on nothing gets through in either direction."""
        self.stuck = True
        self._home.run(self._rest)

    # --- what the client calls -------------------------------------------------------------------------------------------------

    def attach(self, receiver: BytesReceiver) -> None:
        """Start reading into ``receiver``."""
        self._receiver = receiver
        self._deliver()

    def write(self, data: bytes) -> None:
        """Write all of ``data``."""
        if self.stuck or self.is_over or self.closed:
            return
        try:
            self._frames.add(data, self.server, self)
        except Exception as error:
            self._fail(error)
        self._next()

    async def ended(self) -> None:
        """Wait until the connection is over. Raises what a test's handlers raise."""
        try:
            while not (self.closed or self._bug or (self.is_over and not self._incoming)):
                awaited, self._awaited = self._awaited, None
                if awaited is not None:
                    await self._help(awaited)
                else:
                    await self._news.wait()
                    self._news = anyio.Event()
        finally:
            self._close()
        if self._bug is not None:
            raise self._bug

    def shut(self) -> None:
        """Close once everything written has left; here it always has."""
        self.closed = True
        self._news.set()
        self._scope.cancel()

    async def aclose(self) -> None:
        """Close at once."""
        self._close()

    # --- the broker's side -----------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._frames.waiting and self._drive.work is None and not (self.stuck or self.is_over or self.closed):
            self._drive.begin(self._frames.waiting.popleft()(), self.network.delay())

    def _ask_for_help(self, awaited: Awaitable[Any]) -> None:
        self._awaited = awaited
        self._news.set()

    async def _help(self, awaited: Awaitable[Any]) -> None:
        work = self._drive.work
        with anyio.CancelScope() as self._scope:
            sent = await awaited
            if work is not None:
                self._drive.go_on(work, sent)

    def _answered(self, frame: bytes | None) -> None:
        if frame is None:
            self.is_over = True
        else:
            self._incoming += frame
            self.is_over |= isinstance(frame, LastBytes)
        self._deliver()
        self._next()

    def _deliver(self) -> None:
        while self._incoming and self._receiver is not None and not (self.stuck or self.closed):
            buffer = self._receiver.get_buffer()
            if buffer is None:
                self._incoming.clear()
                break
            count = min(len(buffer), len(self._incoming), self.network.chunk or len(self._incoming))
            buffer[:count] = self._incoming[:count]
            del self._incoming[:count]
            try:
                self._receiver.received(count)
            except Exception as error:
                self._fail(error)
                return
            if self._incoming:  # others get a turn, as between two reads of a socket
                asyncio.get_running_loop().call_soon(self._deliver)
                return
        if self.is_over:
            self._end()

    # --- the end ---------------------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self._bug = error
        self._end()

    def _end(self) -> None:
        self._rest()
        self._news.set()

    def _rest(self) -> None:
        """Give up the answer that is being made."""
        self._frames.waiting.clear()
        self._scope.cancel()
        self._drive.stop()
        awaited, self._awaited = self._awaited, None
        if asyncio.iscoroutine(awaited):
            awaited.close()

    def _close(self) -> None:
        self.closed = True
        self._receiver = None  # with it goes the client's whole background, which a broker may outlive
        self._rest()
        self.server.hung_up(self)


@define(eq=False, repr=False)
class PullLine:
    """One connection, seen from a client that reads in a task: a ``network.Transport``."""

    server: Server
    network: SimulatedNetwork
    closed: bool = False
    stuck: bool = False
    """Half-open: bytes go nowhere, none come back, and neither side is notified."""
    is_over: bool = False
    """The broker has closed it."""
    _frames: Frames = field(factory=Frames)
    _incoming: bytearray = field(factory=bytearray)
    _stirred: anyio.Event = field(factory=anyio.Event)
    _work: anyio.CancelScope | None = None
    _home: Home = field(factory=Home)

    @property
    def node_id(self) -> int:
        return self.server.node_id

    def end(self) -> None:
        """The broker closes the connection, whatever it is working on."""
        self.is_over = True
        self._stir()

    def hang(self) -> None:
        """From now on nothing gets through in either direction."""
        self.stuck = True
        self._stir()

    async def receive_into(self, buffer: memoryview) -> int:
        while not self._incoming:
            if self.stuck:
                await anyio.sleep_forever()
            if self.is_over:
                return 0
            if self._frames.waiting:
                await self._serve(self._frames.waiting.popleft())
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
        if self.is_over:
            raise KafkaConnectionError(f"broker {self.node_id}: the connection is closed")
        self._frames.add(data, self.server, self)
        self._stirred.set()

    async def aclose(self) -> None:
        self.closed = True
        self.server.hung_up(self)

    async def _serve(self, answer: _Answer) -> None:
        with anyio.CancelScope() as self._work:
            await anyio.sleep(self.network.delay())
            frame = await finished(answer(), self.network.changes)
            if frame is None:
                self.is_over = True
            else:
                self._incoming += frame
                self.is_over |= isinstance(frame, LastBytes)
        self._work = None

    def _stir(self) -> None:
        self._home.run(self._wake)

    def _wake(self) -> None:
        self._stirred.set()
        if self._work is not None:
            self._work.cancel()


@define(eq=False, repr=False)
class FakeNetwork:
    """The ``TransportFactory`` of a fake cluster."""

    network: SimulatedNetwork
    transports: list[PushLine | PullLine] = field(factory=list)
    """Those that are open, and those that have ended since the last one began."""
    attempts: int = 0
    """How often a client has tried to connect."""
    random: Random | None = None
    """Decides how long answers take, and what is random in clients; ``None``: each takes ``latency``, and clients decide."""
    throttle_ms: int = 0
    """The throttle time in every answer."""

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> PushLine | PullLine:
        self.attempts += 1
        await anyio.sleep(self.network.delay())
        server = self.network.server_at(host, port)
        how = "refuse" if server is None else self.network.reach(server.node_id)
        if how == "hang":
            await anyio.sleep(timeout)
            raise KafkaConnectionError(f"{host}:{port}: no connection in time")
        if server is None or how == "refuse":
            raise KafkaConnectionError(f"{host}:{port}: Connection refused")
        transport = PushLine(server, self.network) if _on_asyncio() else PullLine(server, self.network)
        self.transports[:] = [*(each for each in self.transports if not each.closed), transport]
        return transport

    def chance(self) -> Random | None:
        """Return what is random in the next client: other numbers for each, and the same for the same seed (``network.Seeded``)."""
        return None if self.random is None else Random(self.random.getrandbits(64))  # noqa: S311 - repeatable on purpose

    def date(self) -> float:
        """Return the cluster's date in milliseconds since the epoch (``network.Dated``)."""
        clock = self.network.changes.clock
        return (clock.began or 0) + clock.now() * 1000

    def live(self, node_id: int | None = None) -> list[PushLine | PullLine]:
        """Return the connections that neither side has closed."""
        return [t for t in self.transports if not t.closed and not t.is_over and node_id in (None, t.node_id)]


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
