"""``kafka_async.network.connection``, under virtual time and with sockets that are memory."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from attrs import define, field

from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError, KafkaTimeoutError
from kafka_async.network import Authenticated, Channel, PendingWork, Plan, Shut, Write
from kafka_async.network.auth import Step
from kafka_async.network.connection import FLUSH_TIMEOUT
from kafka_async.wire import Api, Response
from kafka_async.wire.messages import HeartbeatResponse
from tests.network.memory import Loop, MemoryNetwork, MemoryTransport
from tests.network.peers import ONE, TWO, VERSIONS, Peer, World, heartbeat
from tests.virtual import run_virtual


def helpful(peer: Peer) -> Response | None:
    """A broker that answers everything at once."""
    return VERSIONS if peer.asked[0].api is Api.API_VERSIONS else HeartbeatResponse()


def silent(peer: Peer) -> Response | None:
    """A broker that negotiates and then says nothing more."""
    return VERSIONS if peer.asked[0].api is Api.API_VERSIONS else None


def test_requests_travel_and_answers_come_back() -> None:
    async def main() -> None:
        world, network = World(ONE, TWO), MemoryNetwork(helpful)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done), heartbeat(world.done, node_id=2), heartbeat(world.done, channel=Channel.GROUP))
            await loop.until(lambda: len(world.outcomes) == 3)
            assert world.outcomes == [HeartbeatResponse()] * 3
            assert sorted(host for _, host, _ in network.attempts) == ["one", "one", "two"]
            assert loop.runner.connections == 3
            await loop.stop()
            assert loop.runner.connections == 0
        assert all(transport.closed for transport in network.transports)
        assert anyio.current_time() == 0.0

    run_virtual(main)


def test_an_idle_loop_does_not_turn() -> None:
    async def main() -> None:
        world, network = World(ONE, connections_max_idle_ms=-1), MemoryNetwork(helpful)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: bool(world.outcomes))
            turns = loop.turns
            with anyio.move_on_after(3600):
                await loop.until(lambda: False)
            assert loop.turns <= turns + 2
            await loop.stop()

    run_virtual(main)


def test_a_broker_that_cannot_be_reached_is_tried_again_with_backoff() -> None:
    async def main() -> None:
        async def reach(number: int) -> None:
            if number < 4:
                raise KafkaConnectionError("refused")

        world, network = World(ONE), MemoryNetwork(helpful, reach)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done, node_id=None))
            await loop.until(lambda: bool(world.outcomes))
            await loop.stop()
        assert world.outcomes == [HeartbeatResponse()]
        assert [(round(at, 3), attempt) for at, _, attempt in network.attempts] == [(0.0, 0), (0.05, 1), (0.15, 2), (0.35, 3)]

    run_virtual(main)


def test_a_connection_that_hangs_in_the_making_is_left_behind_when_the_loop_stops() -> None:
    async def main() -> None:
        async def reach(number: int) -> None:
            await anyio.sleep_forever()

        world = World(ONE)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, MemoryNetwork(helpful, reach))
            loop.add(heartbeat(world.done, expires_at=5.0))
            await loop.until(lambda: bool(world.outcomes))
            assert isinstance(world.outcomes[0], KafkaTimeoutError)
            assert anyio.current_time() == pytest.approx(5.0)
            await loop.stop()
        assert anyio.current_time() == pytest.approx(5.0)

    run_virtual(main)


def test_the_end_of_the_stream_fails_what_is_in_flight() -> None:
    async def main() -> None:
        world, network = World(ONE), MemoryNetwork(silent)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.settle()
            network.transports[0].end()
            await loop.until(lambda: bool(world.outcomes))
            assert "one:9092 (id 1) closed the connection right after the handshake" in str(world.outcomes[0])
        assert network.transports[0].closed

    run_virtual(main)


def test_an_error_while_writing_fails_what_is_in_flight() -> None:
    async def main() -> None:
        world, network = World(ONE), MemoryNetwork(helpful)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: bool(world.outcomes))
            network.transports[0].send_error = KafkaConnectionError("broken pipe")
            loop.add(heartbeat(world.done))
            await loop.until(lambda: len(world.outcomes) == 2)
            assert str(world.outcomes[1]) == "broken pipe"
        assert network.transports[0].closed

    run_virtual(main)


def test_a_server_that_is_not_kafka_is_left() -> None:
    async def main() -> None:
        def http(peer: Peer) -> Response | None:
            network.transports[0].push(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return None

        world = World(ONE)
        network = MemoryNetwork(http)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: bool(world.outcomes))
            await loop.settle()
        assert "the server answered with HTTP" in str(world.outcomes[0])
        assert network.transports[0].closed

    run_virtual(main)


def test_a_broker_that_stops_answering_costs_the_request_timeout() -> None:
    async def main() -> None:
        world, network = World(ONE), MemoryNetwork(silent)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done, expires_at=30.0))
            await loop.until(lambda: bool(world.outcomes))
            assert isinstance(world.outcomes[0], KafkaTimeoutError)
            assert 30.0 <= anyio.current_time() <= 30.2
            assert loop.turns < 10

    run_virtual(main)


def test_cancelling_leaves_no_socket_and_no_task() -> None:
    async def main() -> None:
        world, network = World(ONE, TWO), MemoryNetwork(silent)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done), heartbeat(world.done, node_id=2))
            await loop.settle()
            tasks.cancel_scope.cancel()
        assert loop.runner.connections == 0
        assert [transport.closed for transport in network.transports] == [True, True]

    run_virtual(main)


def test_what_was_planned_is_written_before_a_connection_is_shut() -> None:
    async def main() -> None:
        world, network = World(ONE), MemoryNetwork(silent)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.settle()
            loop.delegate.drain(anyio.current_time())
            loop.add(heartbeat(world.done, final=True))
            loop.step()
            await loop.stop()
        assert len(network.transports[0].sent) == 3
        assert anyio.current_time() == 0.0

    run_virtual(main)


def test_closing_waits_for_a_peer_that_does_not_read_only_so_long() -> None:
    async def main() -> None:
        world, network = World(ONE), MemoryNetwork(helpful)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: bool(world.outcomes))
            network.transports[0].stuck = True
            loop.add(heartbeat(world.done))
            loop.step()
            await loop.stop()
        assert network.transports[0].closed
        assert anyio.current_time() == pytest.approx(FLUSH_TIMEOUT)

    run_virtual(main)


def test_orders_for_connections_that_are_gone_are_ignored() -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            loop = Loop(World(ONE).delegate, tasks, MemoryNetwork(helpful))
            loop.runner.perform(Plan(actions=(Write(key=9, data=b"x"), Shut(key=9)), wake_at=0.0, settled=0))
            assert loop.runner.connections == 0

    run_virtual(main)


class Eager(MemoryTransport):
    """A broker so fast that reading never has to wait: each read finds the next answer."""

    async def receive_into(self, buffer: memoryview) -> int:
        return await super().receive_into(buffer[:16])  # the size of an answer to a heartbeat


def test_a_fast_broker_does_not_starve_others() -> None:
    async def main() -> None:
        world = World(ONE)
        progress: list[int] = []

        async def factory(host: str, port: int, *, timeout: float, attempt: int) -> MemoryTransport:
            return Eager(helpful)

        async def other() -> None:
            while len(world.outcomes) < 10:
                progress.append(len(world.outcomes))
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, factory)
            loop.add(*(heartbeat(world.done) for _ in range(10)))
            tasks.start_soon(other)
            await loop.until(lambda: len(world.outcomes) == 10)
            await loop.stop()
        assert len(set(progress)) >= 4  # 0 and 10 only, if the reader did not let others run

    run_virtual(main)


class Login:
    """A mechanism that fetches a token, which takes three seconds, and needs no word with the broker."""

    def __init__(self, error: AuthenticationFailedError | None) -> None:
        self.error = error

    async def fetch(self) -> str:
        await anyio.sleep(3)
        if self.error:
            raise self.error
        return "token"

    def start(self, *, offered: bool) -> Step:
        return PendingWork(run=self.fetch)

    def receive(self, response: Any) -> Step:
        assert response == "token"
        return Authenticated()


@pytest.mark.parametrize("error", [None, AuthenticationFailedError("no token for you")])
def test_work_of_the_authenticator_is_awaited(error: AuthenticationFailedError | None) -> None:
    async def main() -> None:
        world, network = World(ONE, authenticators=lambda node: Login(error)), MemoryNetwork(helpful)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: bool(world.outcomes))
            assert anyio.current_time() == pytest.approx(3)
            assert str(world.outcomes[0]) == str(error or HeartbeatResponse())
            if error is None:
                await loop.stop()
        assert network.transports[0].closed

    run_virtual(main)


@define(eq=False)
class Stuck:
    """A mechanism with sessions of 100 s, whose second token never comes."""

    fetches: list[float] = field(factory=list)
    cancelled: list[float] = field(factory=list)

    async def fetch(self) -> str:
        self.fetches.append(anyio.current_time())
        if len(self.fetches) == 2:
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.append(anyio.current_time())
        return "token"

    def start(self, *, offered: bool) -> Step:
        return PendingWork(run=self.fetch)

    def receive(self, response: Any) -> Step:
        assert response == "token", "what was cancelled has no outcome"
        return Authenticated(session_lifetime=100.0)


def test_work_that_never_ends_is_cancelled_for_the_next_try_and_keeps_the_connection() -> None:
    async def main() -> None:
        stuck = Stuck()
        world = World(ONE, authenticators=lambda node: stuck, socket_connection_setup_timeout_ms=3000)
        network = MemoryNetwork(helpful)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, network)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: len(stuck.fetches) == 4)
            assert stuck.fetches == pytest.approx([0.0, 90.0, 93.1, 183.1])
            assert stuck.cancelled == pytest.approx([93.1])
            await loop.stop()
        assert len(network.transports) == 1

    run_virtual(main)


class Buggy(MemoryTransport):
    """A transport with a bug of its own."""

    async def receive_into(self, buffer: memoryview) -> int:
        raise ZeroDivisionError


def test_a_bug_is_not_swallowed_and_still_closes_the_socket() -> None:
    made: list[MemoryTransport] = []

    async def main() -> None:
        async def factory(host: str, port: int, *, timeout: float, attempt: int) -> MemoryTransport:
            made.append(Buggy(silent))
            return made[0]

        world = World(ONE)
        async with anyio.create_task_group() as tasks:
            loop = Loop(world.delegate, tasks, factory)
            loop.add(heartbeat(world.done))
            await loop.until(lambda: False)

    def leaves(error: BaseException) -> list[Any]:
        return [leaf for inner in error.exceptions for leaf in leaves(inner)] if isinstance(error, BaseExceptionGroup) else [error]

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(main)
    assert [type(leaf) for leaf in leaves(caught.value)] == [ZeroDivisionError]
    assert made[0].closed
