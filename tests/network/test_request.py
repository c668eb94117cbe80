"""``kafka_async.network.request``: what is promised to whoever makes a request, whatever happens to it."""

from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kafka_async.errors import KafkaConnectionError, KafkaError
from kafka_async.model import Node
from kafka_async.network import Channel, Open
from kafka_async.wire import Api, Response
from kafka_async.wire.messages import ApiVersionsResponse, HeartbeatResponse, MetadataResponse
from tests.effort import examples
from tests.network.peers import BOOT, BOOT_TWO, OLD_VERSIONS, OLDER, ONE, TWO, VERSIONS, World, heartbeat, metadata, shuts

REFUSED = KafkaConnectionError("refused")

ASKED: dict[Api, tuple[Response, ...]] = {
    Api.API_VERSIONS: (VERSIONS, VERSIONS, VERSIONS, OLDER, OLD_VERSIONS, ApiVersionsResponse(error_code=129)),
    Api.HEARTBEAT: (HeartbeatResponse(), HeartbeatResponse(error_code=27), HeartbeatResponse(throttle_time_ms=700)),
    Api.METADATA: (MetadataResponse(), MetadataResponse(cluster_id="c"), MetadataResponse(cluster_id="another")),
}
"""What brokers answer: what they should, errors, a broker that is meant for another cluster, one that throttles."""
NAMED = ({1: ONE}, {1: ONE, 2: TWO}, {2: TWO}, {1: Node(1, "moved", 9092)}, {1: Node(1, "two", 9092), 2: Node(2, "one", 9092)})


class Requests(RuleBasedStateMachine):
    """Requests to brokers that answer, break, freeze, come and go. Each ends exactly once, and then nothing is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(BOOT, BOOT_TWO)
        self.now = 0.0
        self.ends: list[int] = []
        """How often each request has ended."""
        self.unwanted: set[int] = set()
        self.connecting: list[int] = []
        self.connected: list[int] = []

    @rule(
        node_id=st.sampled_from((None, None, 1, 2, 9)),
        channel=st.sampled_from(Channel),
        seconds=st.sampled_from((0.0, 0.3, 5.0, 30.0)),
        final=st.booleans(),
        abandonable=st.booleans(),
        max_wait=st.sampled_from((0.0, 0.5)),
    )
    def ask(self, node_id: int | None, channel: Channel, seconds: float, final: bool, abandonable: bool, max_wait: float) -> None:
        number = len(self.ends)
        self.ends.append(0)
        more: dict[str, Any] = {"channel": channel, "final": final, "abandonable": abandonable, "max_wait": max_wait}
        more |= {"withdrawn": lambda: number in self.unwanted, "expires_at": self.now + seconds}

        def done(outcome: Any, now: float) -> None:
            assert now >= self.now
            assert self.ends[number] == 0, f"{outcome!r} ends a request that had ended"
            self.ends[number] = 1

        made = metadata(done, **more) if node_id is None else heartbeat(done, node_id=node_id, **more)
        self.world.add(made, now=self.now)

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.unwanted.add(data.draw(st.sampled_from(range(len(self.ends)))))

    @rule(seconds=st.sampled_from((0.0, 0.001, 0.06, 1.0, 7.0, 40.0, 700.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.plan()

    @rule()
    def wait_until_due(self) -> None:
        due_at = self.plan()
        self.now = max(self.now, due_at if due_at < inf else self.now)
        self.plan()

    def plan(self) -> float:
        plan = self.world.plan(self.now)
        for action in plan.actions:
            if isinstance(action, Open):
                self.connecting.append(action.key)
        for key in shuts(plan):
            self.connecting = [other for other in self.connecting if other != key]
            self.connected = [other for other in self.connected if other != key]
        return plan.wake_at

    @precondition(lambda self: self.connecting)
    @rule(data=st.data(), works=st.sampled_from((True, True, False)))
    def connect(self, data: st.DataObject, works: bool) -> None:
        key = data.draw(st.sampled_from(self.connecting))
        self.connecting.remove(key)
        if works:
            self.world.delegate.opened(key, self.now)
            self.connected.append(key)
            self.plan()
        else:
            self.world.delegate.open_failed(key, REFUSED, self.now)

    @precondition(lambda self: any(self.world.peers[key].asked for key in self.connected))
    @rule(data=st.data(), garbled=st.sampled_from((False,) * 9 + (True,)))
    def answer(self, data: st.DataObject, garbled: bool) -> None:
        key = data.draw(st.sampled_from([key for key in self.connected if self.world.peers[key].asked]))
        peer = self.world.peers[key]
        response = data.draw(st.sampled_from(ASKED[peer.asked[0].api]))
        version = 0 if response is OLD_VERSIONS else None
        frame = bytes(6) if garbled else peer.answer(response, version)
        self.world.receive(frame, self.now, key)

    @precondition(lambda self: self.connected)
    @rule(data=st.data(), error=st.sampled_from((None, KafkaConnectionError("reset by peer"))))
    def cut(self, data: st.DataObject, error: KafkaError | None) -> None:
        key = data.draw(st.sampled_from(self.connected))
        self.connected.remove(key)
        self.world.delegate.lost(key, error, self.now)

    @rule(nodes=st.sampled_from(NAMED), cluster_id=st.sampled_from((None, "c")))
    def name(self, nodes: dict[int, Node], cluster_id: str | None) -> None:
        self.world.delegate.set_nodes(nodes, self.now, cluster_id=cluster_id)

    @rule()
    def bootstrap_again(self) -> None:
        self.world.delegate.disconnect_all(self.now, (ONE,))

    @rule()
    def be_cut_off(self) -> None:
        """The task of the event loop is cancelled, and begins anew."""
        self.world.delegate.cut(self.now)
        self.connecting, self.connected = [], []

    def teardown(self) -> None:
        """Nobody answers any more: time ends every request, or else the end of the consumer does."""
        for _ in range(300):
            due_at = self.plan()
            if all(self.ends):
                break
            assert due_at < inf, "a request waits for nothing"
            self.now = due_at
        assert all(self.ends)
        assert self.world.delegate.is_drained
        self.world.delegate.drain(self.now)
        self.world.delegate.close(self.now)
        plan = self.world.delegate.plan(self.now)
        assert plan.wake_at == inf
        assert not any(seen.in_flight for seen in self.world.delegate.connection_states())


class RequestsOfAConsumerThatStops(Requests):
    """The same, and the consumer stops in the midst of it."""

    @rule()
    def drain(self) -> None:
        self.world.delegate.drain(self.now)

    def teardown(self) -> None:
        self.world.delegate.close(self.now)
        assert all(self.ends)
        super().teardown()


TestRequests = Requests.TestCase
TestRequests.settings = settings(examples(0.6), stateful_step_count=60)
TestRequestsOfAConsumerThatStops = RequestsOfAConsumerThatStops.TestCase
TestRequestsOfAConsumerThatStops.settings = settings(examples(0.3), stateful_step_count=60)
