"""Brokers that send without end, on real sockets: the connection is given up, memory stays bounded, and reading goes on elsewhere.

What stands between an honest start and an honest end is one connection on which the broker does not stop talking, or begins a large
answer that never ends.
"""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import Any, Final

import pytest
from attrs import Factory, define

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import KafkaError
from kafka_async.testing.server import decode_request
from kafka_async.testing.simulation import FakeBroker, FakeCluster
from kafka_async.testing.simulation.waking import finished
from kafka_async.wire import Api

LIMIT: Final = 1 << 20
MEMORY: Final = 4 * LIMIT
"""Bytes that one consumer may take in addition: its receive buffer doubles, and the largest answer is copied out of it once."""
RECORDS: Final = 30
PATIENCE: Final = 20.0
TURNS: Final = 300
"""Turns of the background loop until everything is read; one that spins makes thousands."""

Talk = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]
"""Has the answer that was due, length included, and says something else, until the client hangs up."""


async def _pour(writer: asyncio.StreamWriter, data: bytes, pause: float = 0.0) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(pause)  # at 0 only the other tasks get their turn


async def zeros(writer: asyncio.StreamWriter, answer: bytes) -> None:
    await _pour(writer, bytes(1 << 16))


async def noise(writer: asyncio.StreamWriter, answer: bytes) -> None:
    await _pour(writer, Random(1).randbytes(1 << 16))  # noqa: S311  # the same junk each time


async def the_same_answer(writer: asyncio.StreamWriter, answer: bytes) -> None:
    await _pour(writer, answer * 10)


async def a_large_answer_of_junk(writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write((LIMIT - 1).to_bytes(4, "big") + answer[4:8])
    await _pour(writer, b"\x01" * (1 << 16))


async def a_large_answer_byte_by_byte(writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write((LIMIT - 1).to_bytes(4, "big") + answer[4:8])
    await _pour(writer, b"\x01", 0.01)


async def a_large_answer_that_does_not_come(writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write((LIMIT - 1).to_bytes(4, "big") + answer[4:8])
    await asyncio.Event().wait()


TALKS: Final[tuple[Talk, ...]] = (
    zeros,
    noise,
    the_same_answer,
    a_large_answer_of_junk,
    a_large_answer_byte_by_byte,
    a_large_answer_that_does_not_come,
)


class SocketBroker(FakeBroker):
    """A fake broker at a real address."""

    address = ("127.0.0.1", 0)

    @property
    def host(self) -> str:
        return self.address[0]

    @property
    def port(self) -> int:
        return self.address[1]


@define(eq=False)
class Server:
    """Serves a broker on a socket; talks on the connection on which the first request of ``api`` comes."""

    broker: SocketBroker
    api: Api
    talk: Talk
    talked: bool = False
    hung_up: asyncio.Event = Factory(asyncio.Event)
    """The client has closed the connection on which we talked."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                    await self._answer(frame, reader, writer)
        finally:
            writer.close()

    async def _answer(self, frame: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await finished(self.broker.arrived(frame)(), self.broker.cluster.changes)
        if answer is None:
            raise ConnectionError("a request that the broker does not take")
        if self.talked or decode_request(frame).api is not self.api:
            writer.write(answer)
            return
        self.talked = True
        talking = asyncio.ensure_future(self.talk(writer, answer))
        try:
            while await reader.read(1 << 16):  # the end of what it says is how a client hangs up
                pass
        finally:
            self.hung_up.set()
            talking.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await talking


@asynccontextmanager
async def serving(api: Api, talk: Talk) -> AsyncIterator[Server]:
    """Run a cluster of one broker with a filled topic on a loopback port."""
    cluster = FakeCluster()
    broker = cluster.brokers[0] = SocketBroker(0, cluster)
    (tp,) = cluster.create_topic("t")
    cluster.fill(tp, RECORDS)
    server = Server(broker, api, talk)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    broker.address = listener.sockets[0].getsockname()[:2]
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


async def read_past(api: Api, talk: Talk) -> None:
    """Read everything from a broker that talks once."""
    options: dict[str, Any] = {"request_timeout_ms": 500, "fetch_max_wait_ms": 50, "receive_message_max_bytes": LIMIT}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(api, talk))
        address = f"{server.broker.host}:{server.broker.port}"
        consumer: KafkaConsumer[Any, bytes]
        while True:  # without a second bootstrap server start() fails at once where the first one is impossible
            consumer = KafkaConsumer("t", bootstrap_servers=address, auto_offset_reset="earliest", **options)
            with suppress(KafkaError):
                await stack.enter_async_context(consumer)
                break
            assert server.talked, "start() failed on an honest broker"
        values: list[bytes] = []
        while len(values) < RECORDS:
            batch = await consumer.getmany(timeout_ms=1000)
            values += [record.value for record in batch.get(TopicPartition("t", 0), [])]
        assert values == [str(number).encode() for number in range(RECORDS)]
        assert consumer.statistics().wake_ups < TURNS
        await server.hung_up.wait()  # the first of many answers is a good one, so that this may come later


@pytest.mark.slow
@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.METADATA, Api.FETCH])
async def test_a_broker_that_does_not_stop_talking_costs_bounded_time_and_memory(api: Api) -> None:
    tracemalloc.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(read_past(api, talk) for talk in TALKS))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(TALKS) * MEMORY
