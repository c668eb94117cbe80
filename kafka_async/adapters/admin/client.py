"""Single requests to brokers, without a consumer.

It has a delegate and connections of its own, and drives them as the background loop does; see ``background/loop/loop.py``.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from math import inf
from typing import Self, TypeVar

import anyio
from attrs import define, field

from ...config import ConsumerConfig
from ...errors import KafkaError, NodeNotReadyError, for_code
from ...events import Call
from ...model import Node
from ...network import (
    ConnectionRunner,
    ExponentialBackoff,
    NetworkClientDelegate,
    TcpConnector,
    TransportFactory,
    UnsentRequest,
    authenticators,
    bootstrap_nodes,
    by_canonical_names,
    exposure,
    unable_to_bootstrap,
)
from ...network.waiting import LoopSignal, running_loop
from ...trace import Fault, Listener, LoggingListener
from ...wire import MetadataRequest, MetadataResponse, Request, Response
from ...wire.messages import MetadataRequestTopic
from ...wire.messages.base import NEWEST

T = TypeVar("T")
R = TypeVar("R", bound=Response)


@define(eq=False)
class Client:
    """Sends requests to brokers. Get one from ``Client.connect``."""

    config: ConsumerConfig
    clock: Callable[[], float]
    trace: Listener = field(factory=LoggingListener)
    _delegate: NetworkClientDelegate = field(init=False)
    _signal: LoopSignal = field(factory=LoopSignal, init=False)
    _nodes: dict[int, Node] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._delegate = NetworkClientDelegate(
            self.config, random=random.random, trace=self.trace, authenticators=authenticators(self.config)
        )

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, config: ConsumerConfig, transport_factory: TransportFactory | None = None, *, fail_fast: bool = False
    ) -> AsyncGenerator[Self, None]:
        """Yield a client that knows the cluster's brokers.

        Raises ``KafkaTimeoutError`` if no broker answers within ``request_timeout_ms``, ``KafkaConnectionError`` for names that
        cannot be resolved, ``AuthenticationFailedError``, ``ValueError`` for files of TLS that cannot be used. With ``fail_fast``
        raises ``NoBrokersAvailable`` as soon as each server was tried and none could be reached.
        """
        loop = running_loop()
        # Transports on asyncio tell the delegate what came from outside of any task, where anyio's clock does not answer.
        client = cls(config, loop.time if loop is not None else anyio.current_time)
        failure: Exception | None = None
        if (exposed := exposure(config)) is not None:
            client.trace(Fault(now=client.clock(), text=exposed))
        factory = transport_factory or TcpConnector.from_config(config)  # out here: the task group would wrap what it raises
        factory = by_canonical_names(config, factory, client._replace_bootstrap)
        client._delegate.set_bootstrap(bootstrap_nodes(config))
        async with anyio.create_task_group() as tasks:
            runner = ConnectionRunner(client._delegate, tasks, factory, client.clock, client._signal.wake)
            tasks.start_soon(client._run, runner, name="kafka_async requests")
            try:
                await client._find_brokers(fail_fast=fail_fast)
                yield client
            except Exception as error:
                failure = error  # raised below: the task group would wrap it
            client._delegate.close(client.clock())
            runner.perform(client._delegate.plan(client.clock()))
            await runner.aclose()
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ids of the cluster's brokers, in order."""
        return tuple(sorted(self._nodes))

    def node(self, node_id: int) -> Node:
        """Return where a broker listens; without an address if it has left the cluster."""
        return self._nodes.get(node_id, Node(node_id, "", -1))

    def learn(self, node: Node) -> None:
        """Remember a broker that another one named; it may have joined the cluster after our Metadata request."""
        if self._nodes.setdefault(node.id, node) is node:
            self._delegate.set_nodes(self._nodes, self.clock())

    async def layout(self, topics: Collection[str] | None = None, node_id: int | None = None) -> MetadataResponse:
        """Ask for the brokers, and where topics are (``None``: all topics). Brokers that are not named any more are forgotten."""
        named = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
        answer = await self.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False), node_id)
        self._know(answer)
        return answer

    async def layout_anew(self) -> MetadataResponse:
        """As ``layout``, from the servers to start from: no broker that is known answers any more (KIP-899).

        Those that are known are asked beside them: one of them may be the first to come back.
        """
        if self.config.metadata_recovery_strategy == "rebootstrap":
            self._delegate.disconnect_all(self.clock(), self._nodes.values())
        return await self.layout()

    @property
    def backoff(self) -> ExponentialBackoff:
        """What stands between two attempts."""
        return ExponentialBackoff(max(self.config.retry_backoff_ms, 10) / 1000, max(self.config.retry_backoff_max_ms, 10) / 1000)

    async def persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``attempt`` after retriable failures for ``default_api_timeout_ms``; then raise the last one."""
        deadline = self.clock() + self.config.default_api_timeout_ms / 1000
        failures = 0
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                pause = self.backoff.delay(failures, random.random())  # noqa: S311  # jitter is no secret
                if not error.retriable or self.clock() + pause >= deadline:
                    raise
            failures += 1
            await anyio.sleep(pause)

    async def ask(
        self, message: Request[R], node_id: int | None = None, *, highest_version: int = NEWEST, fail_fast: bool = False
    ) -> R:
        """Send one request to a broker (``None``: any) and return its answer. Raises what the network reports.

        With ``fail_fast`` raises ``NoBrokersAvailable`` once no broker can be reached.
        """
        now = self.clock()
        call: Call[R] = Call(now + self.config.request_timeout_ms / 1000, self._signal.wake)
        request = UnsentRequest(
            message=message,
            on_done=lambda outcome, _: call.fail(outcome) if isinstance(outcome, KafkaError) else call.resolve(outcome),
            expires_at=call.deadline,
            node_id=node_id,
            withdrawn=lambda: call.withdrawn,
            highest_version=highest_version,
        )
        self._delegate.add((request,), now)
        self._signal.wake()
        try:
            while not call.done:
                ticket = self._signal.ticket()
                if fail_fast and not self._delegate.has_usable_node(self.clock()):
                    raise unable_to_bootstrap(self.config, self._delegate.problems())
                await self._signal.wait(ticket, inf)
            return call.result()
        finally:
            call.withdraw()

    async def _run(self, runner: ConnectionRunner) -> None:
        """Do what the delegate plans, whenever there may be something new."""
        while True:
            ticket = self._signal.ticket()
            plan = self._delegate.plan(self.clock())
            runner.perform(plan)
            await self._signal.wait(ticket, plan.wake_at - self.clock())

    def _replace_bootstrap(self, host: str, port: int, names: Collection[str]) -> None:
        self._delegate.replace_bootstrap(host, port, names, self.clock())
        self._signal.wake()

    async def _find_brokers(self, *, fail_fast: bool) -> None:
        self._know(await self.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False), fail_fast=fail_fast))

    def _know(self, answer: MetadataResponse) -> None:
        if answer.error_code:
            raise for_code(answer.error_code)
        if not answer.brokers:
            raise NodeNotReadyError("the broker has just started and knows of no broker")  # as in Java, not to be believed
        self._nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in answer.brokers}
        self._delegate.set_nodes(self._nodes, self.clock())
