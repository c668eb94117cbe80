"""The broker's end of connections, driven by hand: what arrived, and the bytes of an answer."""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field, frozen

from kafka_async.config import ConsumerConfig
from kafka_async.errors import KafkaError
from kafka_async.model import Node
from kafka_async.network import Channel, ConnectionStatistics, NetworkClientDelegate, Open, Plan, Shut, UnsentRequest, Write
from kafka_async.network.auth import AuthenticatorFactory
from kafka_async.testing.server import decode_request
from kafka_async.trace import TraceEvent
from kafka_async.wire import SUPPORTED, Api, Response
from kafka_async.wire.codec import layout, writer
from kafka_async.wire.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
)

_HEADER = struct.Struct(">ihhi")

VERSIONS = ApiVersionsResponse(
    api_keys=tuple(ApiVersion(api_key=api, min_version=low, max_version=high) for api, (low, high) in SUPPORTED.items())
)
"""A broker that speaks all that we speak."""

OLDER = ApiVersionsResponse(
    api_keys=tuple(evolve(key, max_version=4) if key.api_key == Api.API_VERSIONS else key for key in VERSIONS.api_keys)
)
"""A broker that refuses no connection that was meant for another one."""

OLD_VERSIONS = ApiVersionsResponse(api_keys=(ApiVersion(api_key=Api.API_VERSIONS, min_version=0, max_version=2),), error_code=35)


@frozen
class Asked:
    """A request as its header shows it."""

    api: Api
    version: int
    correlation_id: int


def response_bytes(response: Response, api: Api, version: int, correlation_id: int) -> bytes:
    """Return an answer with its length prefix."""
    out = bytearray(struct.pack(">i", correlation_id))
    if api is not Api.API_VERSIONS and layout(api, type(response), version).flexible:
        out.append(0)
    writer(api, type(response), version)(response, out)
    return struct.pack(">i", len(out)) + bytes(out)


@define(eq=False)
class Peer:
    """One connection, seen by the broker."""

    asked: deque[Asked] = field(factory=deque)
    """Requests that are not answered yet, oldest first."""
    heard: list[Any] = field(factory=list)
    """All requests, decoded."""
    _unread: bytes = b""

    def feed(self, data: bytes) -> None:
        """Take bytes of the client, cut in any way."""
        self._unread += data
        while len(self._unread) >= 4 and len(self._unread) >= 4 + (size := int.from_bytes(self._unread[:4], "big")):
            _, api, version, correlation_id = _HEADER.unpack_from(self._unread)
            self.asked.append(Asked(Api(api), version, correlation_id))
            self.heard.append(decode_request(self._unread[4 : 4 + size])[4])
            self._unread = self._unread[4 + size :]

    def answer(self, response: Response, version: int | None = None) -> bytes:
        """Return the bytes that answer the oldest request."""
        asked = self.asked.popleft()
        return response_bytes(response, asked.api, asked.version if version is None else version, asked.correlation_id)


def heartbeat(
    on_done: Callable[[Any, float], None], *, node_id: int | None = 1, expires_at: float = 30.0, **more: Any
) -> UnsentRequest:
    """A small request to one broker."""
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return UnsentRequest(message=message, on_done=on_done, node_id=node_id, expires_at=expires_at, **more)


def metadata(on_done: Callable[[Any, float], None], *, expires_at: float = 30.0, **more: Any) -> UnsentRequest:
    """A small request to any broker."""
    return UnsentRequest(message=MetadataRequest(), on_done=on_done, expires_at=expires_at, **more)


ONE = Node(1, "one", 9092)
TWO = Node(2, "two", 9092)
BOOT = Node(-1, "boot", 9092)
BOOT_TWO = Node(-2, "boot2", 9092)


class World:
    """A delegate with the brokers' ends of its connections. Nothing happens unless the test does it."""

    def __init__(
        self,
        *nodes: Node,
        random: Callable[[], float] = lambda: 0.5,
        authenticators: AuthenticatorFactory | None = None,
        **options: Any,
    ) -> None:
        self.trace: list[TraceEvent] = []
        self.delegate = NetworkClientDelegate(
            ConsumerConfig.from_options(options), random=random, trace=self.trace.append, authenticators=authenticators
        )
        self.outcomes: list[Any] = []
        self.peers: dict[int, Peer] = {}
        self.keys: dict[tuple[int, Channel], int] = {}
        """Newest connection of each broker and channel."""
        if all(node.id < 0 for node in nodes):
            self.delegate.set_bootstrap(nodes)
        else:
            self.delegate.set_nodes({node.id: node for node in nodes}, 0.0)

    def said(self, node_id: int = 1, channel: Channel = Channel.MAIN) -> list[ApiVersionsRequest]:
        """Return the introductions that a broker has heard on its newest connection."""
        return [frame for frame in self.peer(node_id, channel).heard if isinstance(frame, ApiVersionsRequest)]

    def done(self, outcome: Any, now: float) -> None:
        """An ``on_done`` that keeps the outcome."""
        self.outcomes.append(outcome)

    def add(self, *requests: UnsentRequest, now: float = 0.0) -> None:
        self.delegate.add(requests, now)

    def plan(self, now: float) -> Plan:
        """Plan, take note of what is opened, and deliver what is written."""
        plan = self.delegate.plan(now)
        assert plan.wake_at > now
        for action in plan.actions:
            if isinstance(action, Open):
                self.keys[action.node.id, action.channel] = action.key
                self.peers[action.key] = Peer()
            elif isinstance(action, Write):
                self.peers[action.key].feed(action.data)
        return plan

    def key(self, node_id: int = 1, channel: Channel = Channel.MAIN) -> int:
        return self.keys[node_id, channel]

    def peer(self, node_id: int = 1, channel: Channel = Channel.MAIN) -> Peer:
        return self.peers[self.key(node_id, channel)]

    def receive(self, data: bytes, now: float, key: int) -> None:
        """Bytes arrive on a connection; what no longer fits because it was given up is lost, as on a closed socket."""
        while data:
            buffer = self.delegate.get_buffer(key)
            if buffer is None:
                return
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.delegate.received(key, count, now)
            data = data[count:]

    def reply(self, response: Response, now: float, node_id: int = 1, channel: Channel = Channel.MAIN) -> None:
        """A broker answers its oldest request."""
        self.receive(self.peer(node_id, channel).answer(response), now, self.key(node_id, channel))

    def negotiate(self, now: float, node_id: int = 1, channel: Channel = Channel.MAIN) -> None:
        """The connection last planned gets its socket and goes through the handshake."""
        self.delegate.opened(self.key(node_id, channel), now)
        self.plan(now)
        self.reply(VERSIONS, now, node_id, channel)

    def seen(self, node_id: int = 1, channel: Channel = Channel.MAIN) -> ConnectionStatistics:
        """Return the delegate's statistics of a connection."""
        return next(state for state in self.delegate.connection_states() if (state.node.id, state.channel) == (node_id, channel))

    def fail_open(self, error: KafkaError, now: float, node_id: int = 1, channel: Channel = Channel.MAIN) -> None:
        self.delegate.open_failed(self.key(node_id, channel), error, now)

    def connect(self, now: float = 0.0, node_id: int = 1, channel: Channel = Channel.MAIN) -> None:
        """Bring a broker to READY by way of one heartbeat, whose outcome is dropped again."""
        self.add(heartbeat(self.done, node_id=node_id, channel=channel, expires_at=now + 30), now=now)
        self.plan(now)
        self.negotiate(now, node_id, channel)
        self.plan(now)
        self.reply(HeartbeatResponse(), now, node_id, channel)
        self.outcomes.pop()


def opens(plan: Plan) -> list[tuple[int, Channel]]:
    """Return the brokers and channels to which ``plan`` opens connections."""
    return [(action.node.id, action.channel) for action in plan.actions if isinstance(action, Open)]


def shuts(plan: Plan) -> list[int]:
    """Return the keys of the connections that ``plan`` shuts."""
    return [action.key for action in plan.actions if isinstance(action, Shut)]
