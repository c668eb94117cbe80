"""What listens at the address is not what was expected: a typed error in time, and nothing left behind."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kafka_async import KafkaConsumer
from kafka_async.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaProtocolError,
    SslAuthenticationError,
)
from tests.brokers import KafkaCluster

from .tools import make, new_topic, read

pytestmark = pytest.mark.brokers

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(bytes.fromhex("15030300020246"))  # the alert protocol_version


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass


async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close at once."""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[str]:
    """Run ``peer`` on every connection to a loopback port; give ``host:port``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await peer(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "{}:{}".format(*probe.getsockname())


FOUND: dict[Peer, str] = {
    http: "the server answered with HTTP; this is not a Kafka port",
    tls: "this is a TLS port, set security_protocol",
    hasty: "closed the connection",
    echo: "expected",
    silent: "accepted the connection and sent nothing for",
}
"""What an error says was found."""


@pytest.mark.parametrize("peer", [http, tls, hasty, echo])
async def test_start_says_that_the_server_does_not_speak_kafka(peer: Peer) -> None:
    async with serving(peer) as address, asyncio.timeout(25):
        with pytest.raises((KafkaConnectionError, KafkaProtocolError, SslAuthenticationError)) as caught:
            await KafkaConsumer("topic", bootstrap_servers=address).start()
    _told(caught.value, {address: FOUND[peer]})


async def test_start_ends_at_its_timeout_when_the_server_never_answers() -> None:
    async with serving(silent) as address, asyncio.timeout(25):
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer("topic", request_timeout_ms=700, bootstrap_servers=address)
        with pytest.raises(KafkaConnectionError) as caught:
            await consumer.start()
    _told(caught.value, {address: FOUND[silent]})


async def test_start_says_what_was_found_at_each_address(kafka44: KafkaCluster, closed_port: str) -> None:
    controller = kafka44.controller(0)
    async with serving(http) as web, serving(silent) as nothing, asyncio.timeout(25):
        servers = [web, nothing, closed_port, controller]
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer("topic", request_timeout_ms=700, bootstrap_servers=servers)
        with pytest.raises(KafkaConnectionError) as caught:
            await consumer.start()
    found = {web: FOUND[http], nothing: FOUND[silent], closed_port: "refused", controller: "is a KRaft controller"}
    _told(caught.value, found)


def _told(error: Exception, expected: dict[str, str]) -> None:
    """Check that the text alone, which is all that a log has, says what was found at each address."""
    text = str(error).removeprefix(f"Unable to bootstrap from {', '.join(expected)}: ")
    for address, found in expected.items():
        assert re.search(rf"{address}.*{re.escape(found)}", text), str(error)


async def test_start_fails_soon_if_nobody_listens(closed_port: str) -> None:
    async with asyncio.timeout(25):
        with pytest.raises(KafkaConnectionError) as caught:
            await KafkaConsumer("topic", bootstrap_servers=closed_port).start()
    assert closed_port in f"{caught.value} {caught.value.__cause__}"


async def test_a_failed_consumer_is_stopped_and_can_be_stopped_again(closed_port: str) -> None:
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer("topic", bootstrap_servers=closed_port)
    with pytest.raises(KafkaConnectionError):
        await consumer.start()
    assert str(consumer.state) == "new"  # it may be started again
    await consumer.stop()


@pytest.mark.parametrize("peer", [http, silent, hasty])
async def test_one_good_bootstrap_server_is_enough(kafka44: KafkaCluster, closed_port: str, peer: Peer) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 3)
    async with serving(peer) as bad, asyncio.timeout(40):
        servers = [bad, closed_port, kafka44.bootstrap_servers]
        async with make(kafka44, topic, bootstrap_servers=servers, request_timeout_ms=5000) as consumer:
            assert len(await read(consumer, 3)) == 3


async def test_tls_to_a_broker_without_it_is_an_error(kafka44: KafkaCluster) -> None:
    async with asyncio.timeout(40):
        with pytest.raises((KafkaConnectionError, AuthenticationFailedError)) as caught:
            await make(kafka44, security_protocol="SSL", request_timeout_ms=4000).start()
    assert kafka44.bootstrap_servers in f"{caught.value} {caught.value.__cause__}"


async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    async with serving(silent) as address:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await KafkaConsumer("topic", bootstrap_servers=address).start()


async def test_the_background_thread_reports_the_same_errors(closed_port: str) -> None:
    async with asyncio.timeout(25):
        with pytest.raises(KafkaConnectionError) as caught:
            await KafkaConsumer("topic", bootstrap_servers=closed_port, background="thread").start()
    assert closed_port in f"{caught.value} {caught.value.__cause__}"
