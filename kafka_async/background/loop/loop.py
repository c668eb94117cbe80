"""The background loop: the only part of this folder that awaits.

It asks ``Background`` and the delegate, in that order, and does what they return. No exception is swallowed: a bug in here fails
every call that waits and every one that comes later (promise 3), with the original as its cause.

It wakes only when a deadline falls due, a connection has something or the application asks (promise 9).
"""

import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from ...config import ConsumerConfig
from ...errors import LONGEST_REASON, BackgroundLoopError, ConsumerStoppedError, shown
from ...events import BackgroundSnapshot, TakeSnapshot
from ...model import Node
from ...network import (
    AuthenticatorFactory,
    ConnectionRunner,
    NetworkClientDelegate,
    Seeded,
    TcpConnector,
    TransportFactory,
    bootstrap_nodes,
    by_canonical_names,
)
from ...network.waiting import LoopSignal, loop_clock
from ...trace import Fault, Listener
from ...values import define, field
from ..boundary import EventHandler, FetchBuffer, LoopInterrupted
from .assembly import assemble
from .environment import Environment
from .loop_state import LoopState
from .request_manager import IDLE, Poll

if TYPE_CHECKING:
    from ..cluster.metadata import MetadataManager
    from ..cluster.metrics_source import MetricsSource

NAMING: Final = 1.0
"""Seconds for which a stop waits for our member id: without it we cannot leave, and rebalances wait for us for a whole session."""
LAST_WORDS: Final = 0.1
"""Seconds that a stop without any time has all the same for what it sends last: a broker answers within a hundredth of one."""
BLOCKED: Final = 2.0
"""Seconds by which a deadline may be missed before that is logged."""


class Decider(Protocol):
    """What the loop runs: ``Background``, or its counterpart for share consumers."""

    def poll(self, now: float) -> Poll: ...

    def poll_on_close(self, now: float) -> Poll: ...

    def poll_leaving(self, now: float) -> Poll: ...

    @property
    def is_leaving(self) -> bool: ...

    @property
    def is_being_named(self) -> bool: ...

    @property
    def metadata(self) -> "MetadataManager": ...

    @property
    def loop_state(self) -> LoopState: ...

    def snapshot(self) -> BackgroundSnapshot: ...

    def fail_calls(self, error: BaseException) -> None: ...


@define(eq=False)
class BackgroundLoop:
    """Runs a ``Background`` on an event loop until it is asked to stop."""

    config: ConsumerConfig
    handler: EventHandler[Any]
    buffer: FetchBuffer
    trace: Listener
    transport_factory: TransportFactory | None = None
    metrics_source: "MetricsSource | None" = None
    on_end: Callable[[], None] = field(default=lambda: None)
    """Called when the loop has ended, for whatever reason; ``failure`` says which."""
    assemble: Callable[[ConsumerConfig, EventHandler[Any], FetchBuffer, Environment], Decider] = field(default=assemble, repr=False)
    """Makes what decides."""
    clock: Callable[[], float] = field(default=anyio.current_time, init=False)
    """That of the event loop."""
    failure: BaseException | None = field(default=None, init=False)
    background: Decider = field(init=False)
    _nodes: Mapping[int, Node] = field(init=False)
    """The brokers that the network knows of."""
    _factory: TransportFactory = field(init=False)
    _delegate: NetworkClientDelegate = field(init=False)
    _signal: LoopSignal = field(factory=LoopSignal, init=False)

    def __attrs_post_init__(self) -> None:
        self.handler.ended = None
        self._factory = self.transport_factory or TcpConnector.from_config(self.config)
        seeded = self._factory.chance() if isinstance(self._factory, Seeded) else None
        chance = random.random if seeded is None else seeded.random
        self._delegate = NetworkClientDelegate(
            self.config, random=chance, trace=self.trace, authenticators=_authenticators(self.config)
        )
        self.background = self.assemble(
            self.config,
            self.handler,
            self.buffer,
            Environment(
                network=self._delegate,
                random=chance,
                wall_ms=lambda now: int(time.time() * 1000),
                new_member_id=lambda: str(uuid.uuid4() if seeded is None else uuid.UUID(int=seeded.getrandbits(128), version=4)),
                trace=self.trace,
                metrics_source=self.metrics_source,
            ),
        )
        self._nodes = self.background.metadata.cluster.nodes

    def snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics. From the loop's own thread, or once it is gone."""
        return self.background.snapshot()

    def wake(self) -> None:
        """Have the loop take another turn. From its own thread only."""
        self._signal.wake()

    def resume(self) -> None:
        """Make ready to run again, in another task: that of the last run was cancelled, and its connections with it."""
        self.failure = self.handler.ended = None
        self.background.loop_state.is_cut = True
        self._delegate.cut(self.clock())
        self.background.loop_state.is_cut = False

    async def run(self) -> None:
        """Run until a ``Stop`` event was carried out, or until cancelled."""
        if self.clock is anyio.current_time:
            self.clock = loop_clock()  # anyio looks this up at each call
        try:
            if (exposed := _exposure(self.config)) is not None:
                self.trace(Fault(now=self.clock(), text=exposed))
            self._delegate.set_bootstrap(bootstrap_nodes(self.config))
            factory = by_canonical_names(self.config, self._factory, self._replace_bootstrap)
            async with anyio.create_task_group() as connections:
                runner = ConnectionRunner(self._delegate, connections, factory, self.clock, self.wake)
                await self._turn_until_stopped(runner)
                await self._send_final_requests(runner)
                connections.cancel_scope.cancel()
        except BaseException as error:
            self.failure = _failure(error)
            if isinstance(self.failure, (KeyboardInterrupt, SystemExit)):
                raise self.failure from None  # an event loop ends for these two, but not for a group with one of them
            if not isinstance(self.failure, Exception):
                raise  # cancellation of the task that we are
        finally:
            self._finish()

    async def _turn_until_stopped(self, runner: ConnectionRunner) -> None:
        while self.background.loop_state.stopping is None:
            ticket = self._signal.ticket()
            now = self.clock()
            poll = self.background.poll(now)
            if self.background.metadata.cluster.nodes is not self._nodes:
                self._follow_nodes(now)
            self._delegate.add(poll.requests, now)
            plan = self._delegate.plan(now)
            runner.perform(plan)
            if not plan.settled and self.background.loop_state.stopping is None:
                await self._sleep(ticket, min(poll.wake_at, plan.wake_at))

    def _follow_nodes(self, now: float) -> None:
        """Pass on which brokers there are."""
        self._nodes = nodes = self.background.metadata.cluster.nodes
        if nodes:
            self._delegate.set_nodes(nodes, now, cluster_id=self.background.metadata.expected_cluster)
        else:
            self._delegate.disconnect_all(now, self.background.metadata.cluster.former_nodes.values())
        self.wake()  # that ended requests, after their managers had been polled

    def _replace_bootstrap(self, host: str, port: int, names: Collection[str]) -> None:
        self._delegate.replace_bootstrap(host, port, names, self.clock())
        self.wake()

    async def _sleep(self, ticket: int, wake_at: float) -> None:
        """Wait until something happens or the deadline falls due; log it if the event loop took much longer."""
        self.handler.wakes_at = wake_at
        await self._signal.wait(ticket, wake_at - self.clock())
        now = self.clock()
        late = now - wake_at
        if late > BLOCKED:
            advice = "heartbeats and fetches had to wait; keep long work off the event loop, or use background='thread'"
            self.trace(Fault(now=now, text=f"the event loop was blocked for {late:.0f} s; {advice}"))

    async def _send_final_requests(self, runner: ConnectionRunner) -> None:
        """Send the managers' final requests, within the deadline of the stop; then close every connection."""
        call = self.background.loop_state.stopping
        deadline = call.deadline if call is not None else 0.0
        latest = max(deadline, self.clock() + LAST_WORDS)
        if self.background.is_being_named:
            await self._converse(runner, min(deadline, self.clock() + NAMING), lambda: not self.background.is_being_named)
        now = self.clock()
        self._delegate.drain(now)
        self._delegate.add(self.background.poll_on_close(now).requests, now)
        await self._converse(runner, latest, lambda: self._delegate.is_drained and not self.background.is_leaving)
        now = self.clock()
        self._delegate.close(now)
        runner.perform(self._delegate.plan(now))
        with anyio.CancelScope(deadline=latest):
            await runner.aclose()

    async def _converse(self, runner: ConnectionRunner, deadline: float, is_done: Callable[[], bool]) -> None:
        """Exchange what is under way until it is done or the deadline has come. Nothing new is sent but what leaving takes."""
        while (now := self.clock()) < deadline:
            ticket = self._signal.ticket()
            poll = self.background.poll_leaving(now) if self.background.is_leaving else IDLE
            if self.background.metadata.cluster.nodes is not self._nodes:
                self._follow_nodes(now)
            self._delegate.add(poll.requests, now)
            plan = self._delegate.plan(now)
            runner.perform(plan)
            self._answer_questions()
            if is_done():
                break
            if not plan.settled:
                await self._signal.wait(ticket, min(poll.wake_at, plan.wake_at, deadline) - now)

    def _answer_questions(self) -> None:
        """Answer who asks for statistics. Nothing else is carried out any more, and is told so at the end."""
        others = []
        for event in self.handler.drain_application():
            if isinstance(event, TakeSnapshot):
                event.call.resolve(self.snapshot())
            else:
                others.append(event)
        self.handler.application_events.extend(others)

    def _finish(self) -> None:
        self._signal.rest()
        stopping = self.background.loop_state.stopping
        if stopping is None and not isinstance(self.failure, Exception):
            self.handler.ended = LoopInterrupted()  # calls go on waiting: they are answered when the loop goes on
        else:
            error: Exception = ConsumerStoppedError("the consumer is stopped")
            if isinstance(self.failure, Exception):
                error = BackgroundLoopError(f"the background loop failed: {shown(self.failure, LONGEST_REASON)}")
                error.__cause__ = self.failure
            self.handler.ended = self.failure or error
            self.background.fail_calls(error)
            if stopping is not None:
                stopping.resolve(None)
        self.on_end()


def _authenticators(config: ConsumerConfig) -> AuthenticatorFactory | None:
    """Return the factory of SASL conversations; the mechanisms are imported if the options ask for one."""
    if not config.uses_sasl:
        return None
    from ...network.sasl import authenticators

    return authenticators(config)


def _exposure(config: ConsumerConfig) -> str | None:
    if not config.uses_sasl:
        return None
    from ...network.sasl import exposure

    return exposure(config)


def _failure(error: BaseException) -> BaseException:
    """Return the one error inside an exception group, since a task group wraps what its tasks raise; as an ``Exception`` unless it
    ends the task.

    What extensions written in Rust raise for a bug of theirs, such as a provider of tokens, is no ``Exception`` and no end either.
    """
    ending = error.subgroup((KeyboardInterrupt, SystemExit)) if isinstance(error, BaseExceptionGroup) else None
    error = ending or error  # what ends the program comes before what failed beside it
    while isinstance(error, BaseExceptionGroup) and (len(error.exceptions) == 1 or ending is not None):
        error = error.exceptions[0]
    if isinstance(error, (Exception, KeyboardInterrupt, SystemExit, GeneratorExit)):
        return error
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return error
    failure = RuntimeError(shown(error, LONGEST_REASON))
    failure.__cause__ = error
    return failure
