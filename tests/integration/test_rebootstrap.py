"""All known brokers are gone and the cluster lives on elsewhere: the bootstrap address leads there again (KIP-899)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import pytest

from tests.brokers import CURRENT, KafkaCluster

from .tools import make, nothing_more, read, set_properties, topic_name

pytestmark = [pytest.mark.brokers, pytest.mark.slow]


class Forwarder:
    """A loopback port that leads to another one, until it is closed."""

    target: str | None = None
    """``host:port`` that it leads to; connections are closed at once while there is none."""

    def __init__(self) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        """Listen; return ``host:port``."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Refuse new connections and break those that are open."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()
        await asyncio.gather(*(task for task in self._tasks if task is not None))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        with suppress(OSError):
            host, port = self.target.split(":") if self.target else (None, 0)
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            self._writers |= {writer, inner_writer}
            await asyncio.gather(self._pump(reader, inner_writer), self._pump(inner_reader, writer))
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def forwarding() -> AsyncIterator[tuple[Forwarder, str]]:
    forwarder = Forwarder()
    address = await forwarder.open()
    try:
        yield forwarder, address
    finally:
        await forwarder.close()


async def test_reading_goes_on_when_the_whole_cluster_moved(real_brokers: None) -> None:
    topic = topic_name()
    async with forwarding() as (fixed, bootstrap), forwarding() as (old, here), forwarding() as (new, there):
        cluster = KafkaCluster(CURRENT, properties={"advertised.listeners": f"PLAINTEXT://{here}"})
        with closing(await asyncio.to_thread(cluster.__enter__)):
            fixed.target = old.target = new.target = cluster.address(0)
            await asyncio.to_thread(cluster.create_topic, topic)
            await asyncio.to_thread(cluster.produce, topic, 100)
            short = {"request_timeout_ms": 2000, "reconnect_backoff_max_ms": 200, "retry_backoff_max_ms": 200}
            async with make(cluster, topic, bootstrap_servers=bootstrap, **short) as consumer:
                records = await read(consumer, 100)
                assert [f"{node.host}:{node.port}" for node in consumer.statistics().brokers] == [here]

                set_properties(cluster, 0, advertised_listeners=f"PLAINTEXT://{there}")
                await old.close()
                await asyncio.to_thread(cluster.kill, 0)
                await asyncio.to_thread(cluster.start, 0)
                await asyncio.to_thread(cluster.produce, topic, 100)
                records += await read(consumer, 100)
                await nothing_more(consumer)
                assert [f"{node.host}:{node.port}" for node in consumer.statistics().brokers] == [there]
    assert [record.offset for record in records] == list(range(200))
