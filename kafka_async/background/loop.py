"""The background loop: the only part of this folder that awaits.

Decides: nothing; it asks ``Background`` and the delegate, in that order, and does what they say. Owns: the clock, the wake-up, the
connections' tasks and the failure that ended it. Must never swallow an exception: a bug in here fails every call that waits and
every one that comes later (promise 3), with the original as its cause.

It wakes only when a deadline falls due, a connection has something or the application asks (promise 9).
"""

import random
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
from attrs import define, field

from ..config import ConsumerConfig
from ..errors import BackgroundLoopError, ConsumerStoppedError, KafkaConnectionError, KafkaError
from ..network import (
    AuthenticatorFactory,
    ConnectionRunner,
    NetworkClientDelegate,
    TcpConnector,
    TransportFactory,
    bootstrap_nodes,
)
from ..network.waiting import LoopSignal
from ..trace import Fault, Listener
from ..wire import Api
from .dispatch import Background
from .event_handler import EventHandler
from .fetch_buffer import FetchBuffer

if TYPE_CHECKING:
    from .telemetry import MetricsSource

NAMING: Final = 1.0
"""Seconds for which a stop waits for our member id: without it we cannot leave, and rebalances wait for us for a whole session."""
BLOCKED: Final = 2.0
"""Seconds by which a deadline may be missed before it is worth a word."""


@define(eq=False)
class BackgroundLoop:
    """Runs a ``Background`` on an event loop until it is told to stop."""

    config: ConsumerConfig
    handler: EventHandler
    buffer: FetchBuffer
    trace: Listener
    transport_factory: TransportFactory | None = None
    metrics_source: "MetricsSource | None" = None
    clock: Callable[[], float] = anyio.current_time
    on_end: Callable[[], None] = field(default=lambda: None)
    """Called when the loop has ended, for whatever reason; ``failure`` says which."""
    failure: BaseException | None = field(default=None, init=False)
    ended: bool = field(default=False, init=False)
    background: Background = field(init=False)
    _factory: TransportFactory = field(init=False)
    _delegate: NetworkClientDelegate = field(init=False)
    _signal: LoopSignal = field(factory=LoopSignal, init=False)

    def __attrs_post_init__(self) -> None:
        self._factory = self.transport_factory or TcpConnector.from_config(self.config)
        self._delegate = NetworkClientDelegate(
            self.config, random=random.random, trace=self.trace, authenticators=_authenticators(self.config, self.trace)
        )
        self.background = Background(
            config=self.config,
            handler=self.handler,
            buffer=self.buffer,
            random=random.random,
            wall_ms=lambda now: int(time.time() * 1000),
            trace=self.trace,
            has_usable_node=self._delegate.has_usable_node,
            connection_error=self._connection_error,
            connections=self._connections,
            offers_consumer_protocol=self._offers_consumer_protocol,
            new_member_id=lambda: str(uuid.uuid4()),
            offers_telemetry=self._offers_telemetry,
            metrics_source=self.metrics_source,
        )

    def wake(self) -> None:
        """Have the loop take another turn. From its own thread only."""
        self._signal.wake()

    async def run(self) -> None:
        """Run until a ``Stop`` event was carried out, or until cancelled."""
        try:
            self._delegate.set_bootstrap(await bootstrap_nodes(self.config))
            async with anyio.create_task_group() as connections:
                runner = ConnectionRunner(self._delegate, connections, self._factory, self.clock, self.wake)
                await self._turn_until_stopped(runner)
                await self._say_last_words(runner)
                connections.cancel_scope.cancel()
        except BaseException as error:
            self.failure = _sole(error)
            if not isinstance(self.failure, Exception):
                raise  # cancellation of the task that we are
        finally:
            self._finish()

    async def _turn_until_stopped(self, runner: ConnectionRunner) -> None:
        known = self.background.nodes
        while self.background.stopping is None:
            ticket = self._signal.ticket()
            now = self.clock()
            poll = self.background.poll(now)
            if self.background.nodes is not known:
                known = self.background.nodes
                self._follow_nodes(now)
                self.wake()  # that ended requests, and the managers concerned were polled before they heard of it
            self._delegate.add(poll.requests, now)
            plan = self._delegate.plan(now)
            runner.perform(plan)
            if not plan.settled and self.background.stopping is None:
                await self._sleep(ticket, min(poll.wake_at, plan.wake_at))

    def _follow_nodes(self, now: float) -> None:
        if self.background.nodes:
            self._delegate.set_nodes(self.background.nodes, now)
        else:
            self._delegate.disconnect_all(now)

    async def _sleep(self, ticket: int, wake_at: float) -> None:
        """Wait until something happens or the deadline falls due; say so when the event loop let us wait much longer."""
        await self._signal.wait(ticket, wake_at - self.clock())
        late = self.clock() - wake_at
        if late > BLOCKED:
            advice = "heartbeats and fetches had to wait; keep long work off the event loop, or use background='thread'"
            self.trace(Fault(now=self.clock(), text=f"the event loop was blocked for {late:.0f} s; {advice}"))

    async def _say_last_words(self, runner: ConnectionRunner) -> None:
        """Send what the managers still have to say, within the deadline of the stop; then close every connection."""
        call = self.background.stopping
        deadline = call.deadline if call is not None else 0.0
        if self.background.is_being_named:
            await self._converse(runner, min(deadline, self.clock() + NAMING), lambda: not self.background.is_being_named)
        now = self.clock()
        self._delegate.drain(now)
        self._delegate.add(self.background.poll_on_close(now).requests, now)
        await self._converse(runner, deadline, lambda: self._delegate.is_drained)
        now = self.clock()
        self._delegate.close(now)
        runner.perform(self._delegate.plan(now))
        with anyio.CancelScope(deadline=max(deadline, now)):
            await runner.aclose()

    async def _converse(self, runner: ConnectionRunner, deadline: float, is_done: Callable[[], bool]) -> None:
        """Send and hear what is under way, and ask nothing new, until it is done or the deadline has come."""
        while (now := self.clock()) < deadline:
            ticket = self._signal.ticket()
            plan = self._delegate.plan(now)
            runner.perform(plan)
            if is_done():
                break
            await self._signal.wait(ticket, min(plan.wake_at, deadline) - now)

    def _finish(self) -> None:
        self.ended = True
        error: BaseException
        if isinstance(self.failure, Exception):
            error = BackgroundLoopError(f"the background loop failed: {self.failure!r}")
            error.__cause__ = self.failure
        else:
            error = ConsumerStoppedError("the consumer is stopped")
        self.background.fail_calls(error)
        if self.background.stopping is not None:
            self.background.stopping.resolve(None)
        self.on_end()

    def _connections(self) -> tuple[int, int]:
        states = self._delegate.connection_states()
        ready = sum(state.state.may_send for state in states)
        return ready, sum(state.in_flight for state in states)

    def _offers_consumer_protocol(self) -> bool | None:
        versions = self._delegate.versions()
        return versions.offers_consumer_protocol if versions is not None else None

    def _offers_telemetry(self) -> bool | None:
        versions = self._delegate.versions()
        return versions.supports(Api.GET_TELEMETRY_SUBSCRIPTIONS) if versions is not None else None

    def _connection_error(self) -> KafkaError | None:
        """Return why brokers cannot be talked to: the last failure, or what a connection that is not ready is waiting for.

        Of several failures the one that will not pass.
        """
        states = self._delegate.connection_states()
        errors = [state.last_error for state in states if state.last_error is not None]
        if errors:
            return next((error for error in errors if not error.retriable), errors[0])
        for state in states:
            if not state.state.may_send:
                return KafkaConnectionError(f"{state.node} has not answered: {state.state.value}")
        return None


def _authenticators(config: ConsumerConfig, trace: Listener) -> AuthenticatorFactory | None:
    """Return what makes the conversation of each connection; the mechanisms are imported where the options ask for one."""
    if not config.uses_sasl:
        return None
    from ..network.sasl import authenticators

    return authenticators(config, trace)


def _sole(error: BaseException) -> BaseException:
    """Return the one error inside an exception group: a task group wraps what its tasks raise."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
