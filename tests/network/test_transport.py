"""``kafka_async.network.transport``, on real sockets of the loopback interface."""

import asyncio
import gc
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSStream

from kafka_async.config import ConsumerConfig
from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError
from kafka_async.model import Node
from kafka_async.network import NetworkClientDelegate, TcpConnector, Transport, bootstrap_nodes
from kafka_async.network.transport import SocketTransport, StreamTransport
from kafka_async.wire import Api
from kafka_async.wire.messages import HeartbeatResponse
from tests.network.memory import Loop
from tests.network.peers import VERSIONS, Peer, World, heartbeat


class NoReceiveInto(asyncio.SelectorEventLoop):
    """An event loop that cannot read into memory."""

    sock_recv_into = asyncio.AbstractEventLoop.sock_recv_into


BACKENDS: list[dict[str, Any]] = [
    {"backend": "asyncio"},
    {"backend": "asyncio", "backend_options": {"loop_factory": NoReceiveInto}},
    {"backend": "trio"},
]


@pytest.fixture(params=BACKENDS, ids=["asyncio", "asyncio-streams", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Run a coroutine function on each of the event loops and ways of reading."""

    def runner(fn: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(10):
                await fn()

        anyio.run(bounded, **request.param)

    return runner


Run = Callable[[Callable[[], Awaitable[None]]], None]


async def echo(stream: Any) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


async def hang_up(stream: Any) -> None:
    await stream.aclose()


class Serving:
    """A server on a loopback address for the length of a block."""

    def __init__(self, handler: Callable[[Any], Awaitable[None]], *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._handler, self._host, self.port = handler, host, port

    async def __aenter__(self) -> "Serving":
        self._listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self.port)
        self.port = self._listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's typed attribute
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._listener.serve, self._handler)
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._listener.aclose()


async def connect(host: str, port: int, connector: TcpConnector | None = None, timeout: float = 5.0, attempt: int = 0) -> Transport:
    return await (connector or TcpConnector())(host, port, timeout=timeout, attempt=attempt)


async def receive(transport: Transport, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = await transport.receive_into(view)
        assert got, "the stream ended"
        view = view[got:]
    return bytes(data)


def test_bytes_go_both_ways(run: Run) -> None:
    async def main() -> None:
        payload = bytes(range(256)) * 4096
        async with Serving(echo) as server:
            transport = await connect("127.0.0.1", server.port)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.send, payload)
                assert await receive(transport, len(payload)) == payload
            await transport.aclose()

    run(main)


def test_the_end_of_the_stream_is_zero_bytes(run: Run) -> None:
    async def main() -> None:
        async with Serving(hang_up) as server:
            transport = await connect("127.0.0.1", server.port)
            assert await transport.receive_into(memoryview(bytearray(10))) == 0
            await transport.aclose()

    run(main)


def test_a_refused_connection_names_the_address(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            with pytest.raises(KafkaConnectionError, match=f"127.0.0.1:{port}: "):
                await connect("127.0.0.1", port)

    run(main)


def test_a_cancelled_read_leaves_a_socket_that_can_be_closed(run: Run) -> None:
    async def main() -> None:
        async with Serving(echo) as server:
            transport = await connect("127.0.0.1", server.port)
            with anyio.move_on_after(0):
                await transport.receive_into(memoryview(bytearray(10)))
            await transport.aclose()

    run(main)


def test_asyncio_reads_sockets_directly_and_others_through_streams(run: Run, request: pytest.FixtureRequest) -> None:
    direct = request.node.callspec.id == "asyncio"

    async def main() -> None:
        async with Serving(echo) as server:
            transport = await connect("127.0.0.1", server.port)
            assert isinstance(transport, SocketTransport if direct else StreamTransport)
            await transport.aclose()

    run(main)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)


def test_all_addresses_of_a_name_are_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Serving(echo, host="127.0.0.3") as server:
            resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.3")
            transport = await connect("kafka.example", server.port)
            await transport.send(b"hello")
            assert await receive(transport, 5) == b"hello"
            await transport.aclose()

    run(main)


def test_each_attempt_starts_with_another_address(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def answering(word: bytes) -> Callable[[Any], Awaitable[None]]:
        async def handler(stream: Any) -> None:
            await stream.send(word)
            await stream.aclose()

        return handler

    async def main() -> None:
        async with (
            Serving(answering(b"a"), host="127.0.0.1") as server,
            Serving(answering(b"b"), host="127.0.0.2", port=server.port),
        ):
            resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
            words = []
            for attempt in range(3):
                transport = await connect("kafka.example", server.port, attempt=attempt)
                words.append(await receive(transport, 1))
                await transport.aclose()
            assert words == [b"a", b"b", b"a"]

    run(main)


def test_when_no_address_works_the_error_lists_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(KafkaConnectionError, match=r"none of 2 addresses works: .*127\.0\.0\.1.*127\.0\.0\.2"):
                await connect("kafka.example", unused.getsockname()[1])

    run(main)


def test_a_name_that_does_not_resolve_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        with pytest.raises(KafkaConnectionError, match="nowhere:9092: the name cannot be resolved"):
            await connect("nowhere", 9092)

    run(main)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_from_bad_metadata_is_an_error_of_ours(port: int) -> None:
    async def main() -> None:
        with pytest.raises(KafkaConnectionError, match="expected a host and a port from 1 to 65535"):
            await connect("127.0.0.1", port)

    anyio.run(main)


@pytest.mark.parametrize(("host", "text"), [("", "expected a host"), ("\ud800", "not a usable address")])
def test_a_name_that_cannot_be_one_is_an_error_of_ours(host: str, text: str) -> None:
    async def main() -> None:
        with pytest.raises(KafkaConnectionError, match=text):
            await connect(host, 9092)

    anyio.run(main)


def test_socket_options_are_set() -> None:
    async def main() -> None:
        async with Serving(echo) as server:
            connector = TcpConnector.from_config(ConsumerConfig.from_options({"receive_buffer_bytes": 65536}))
            transport = await connect("127.0.0.1", server.port, connector)
            await transport.aclose()
            assert connector.receive_buffer_bytes == 65536
            assert connector.ssl_context is None

    anyio.run(main)


# Names of bootstrap servers.


def test_bootstrap_servers_get_negative_ids() -> None:
    async def main() -> None:
        config = ConsumerConfig.from_options({"bootstrap_servers": "a:1,b:2"})
        assert await bootstrap_nodes(config) == [Node(-1, "a", 1), Node(-2, "b", 2)]

    anyio.run(main)


def test_canonical_names_replace_bootstrap_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getnameinfo(address: tuple[str, int], flags: int = 0) -> tuple[str, str]:
        return f"host-{address[0].rsplit('.')[-1]}.example", str(address[1])

    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    monkeypatch.setattr(anyio, "getnameinfo", getnameinfo)

    async def main() -> None:
        options = {"bootstrap_servers": "a:1", "client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
        config = ConsumerConfig.from_options(options)
        assert await bootstrap_nodes(config) == [Node(-1, "host-1.example", 1), Node(-2, "host-2.example", 1)]

    anyio.run(main)


def test_a_bootstrap_server_without_a_canonical_name_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        options = {"bootstrap_servers": "a:1", "client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
        assert await bootstrap_nodes(ConsumerConfig.from_options(options)) == [Node(-1, "a", 1)]

    anyio.run(main)


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and certificates that it signed: ``good`` for localhost, ``elsewhere`` for another host, ``expired``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command to make certificates")
    path = tmp_path_factory.mktemp("tls")

    def call(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=path, check=True, capture_output=True)  # noqa: S603 - fixed arguments

    key = ("-newkey", "rsa:2048", "-nodes")
    call("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test CA", "-days", "2")
    names = {"good": "DNS:localhost,IP:127.0.0.1", "elsewhere": "DNS:elsewhere.example"}
    for name, alternative in names.items():
        (path / f"{name}.ext").write_text(f"subjectAltName={alternative}\nextendedKeyUsage=serverAuth,clientAuth\n")
        call("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext", "-days", "2")
        call("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return path


def server_context(path: Path, name: str = "good") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path / f"{name}.pem", path / f"{name}.key")
    return context


def over_tls(context: ssl.SSLContext, handler: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def wrapped(stream: Any) -> None:
        async with stream:
            try:
                tls = await TLSStream.wrap(stream, server_side=True, ssl_context=context, standard_compatible=False)
            except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
                return
            await handler(tls)

    return wrapped


@pytest.fixture
def trusting(certificates: Path) -> TcpConnector:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    return TcpConnector.from_config(ConsumerConfig.from_options({"security_protocol": "SSL", "ssl_context": context}))


def test_tls_carries_bytes(run: Run, certificates: Path, trusting: TcpConnector) -> None:
    async def main() -> None:
        payload = bytes(range(256)) * 1024
        async with Serving(over_tls(server_context(certificates), echo)) as server:
            transport = await connect("127.0.0.1", server.port, trusting)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.send, payload)
                assert await receive(transport, len(payload)) == payload
            await transport.aclose()

    run(main)


def test_tls_verifies_by_default_and_refuses_an_unknown_authority(run: Run, certificates: Path) -> None:
    connector = TcpConnector.from_config(ConsumerConfig.from_options({"security_protocol": "SSL"}))

    async def main() -> None:
        async with Serving(over_tls(server_context(certificates), echo)) as server:
            with pytest.raises(AuthenticationFailedError, match="the broker's certificate was refused"):
                await connect("127.0.0.1", server.port, connector)

    run(main)


def test_tls_refuses_a_certificate_for_another_host(run: Run, certificates: Path, trusting: TcpConnector) -> None:
    async def main() -> None:
        async with Serving(over_tls(server_context(certificates, "elsewhere"), echo)) as server:
            with pytest.raises(AuthenticationFailedError, match=r"certificate was refused.*127\.0\.0\.1"):
                await connect("127.0.0.1", server.port, trusting)

    run(main)


def test_a_missing_client_certificate_is_a_refused_credential(run: Run, certificates: Path, trusting: TcpConnector) -> None:
    demanding = server_context(certificates)
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(certificates / "ca.pem")

    async def flush_alert(stream: Any) -> None:
        bio_in, bio_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = demanding.wrap_bio(bio_in, bio_out, server_side=True)
        async with stream:
            async for data in stream:
                bio_in.write(data)
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    await stream.send(bio_out.read())
                except ssl.SSLError:
                    await stream.send(bio_out.read())
                    await stream.send_eof()
                    return

    async def use(port: int) -> None:
        transport = await connect("127.0.0.1", port, trusting)
        try:  # TLS 1.3: the client is through before the server has looked at its certificate
            await transport.receive_into(memoryview(bytearray(10)))
        finally:
            await transport.aclose()

    async def main() -> None:
        async with Serving(flush_alert) as server:
            with pytest.raises(AuthenticationFailedError, match="the broker refused our TLS credentials"):
                await use(server.port)

    run(main)


def test_tls_to_a_port_without_it_raises_the_question(run: Run, trusting: TcpConnector) -> None:
    async def http(stream: Any) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async def main() -> None:
        async with Serving(http) as server:
            with pytest.raises(KafkaConnectionError, match="does the port speak TLS"):
                await connect("127.0.0.1", server.port, trusting)
        async with Serving(hang_up) as server:
            with pytest.raises(KafkaConnectionError):
                await connect("127.0.0.1", server.port, trusting)

    run(main)


def test_a_handshake_that_never_ends_is_bounded(run: Run, trusting: TcpConnector) -> None:
    async def mute(stream: Any) -> None:
        async with stream:
            await anyio.sleep_forever()

    async def main() -> None:
        async with Serving(mute) as server:
            with pytest.raises(KafkaConnectionError, match="no connection in time"):
                await connect("127.0.0.1", server.port, trusting, timeout=0.02)

    run(main)


# The whole network on real sockets.


def test_a_request_goes_over_a_real_socket(run: Run) -> None:
    async def broker(stream: Any) -> None:
        peer = Peer()
        async with stream:
            async for data in stream:
                peer.feed(data)
                while peer.asked:
                    await stream.send(peer.answer(VERSIONS if peer.asked[0].api is Api.API_VERSIONS else HeartbeatResponse()))

    async def main() -> None:
        async with Serving(broker) as server, anyio.create_task_group() as tasks:
            world = World(Node(1, "127.0.0.1", server.port))
            delegate: NetworkClientDelegate = world.delegate
            loop = Loop(delegate, tasks, TcpConnector())
            loop.add(*(heartbeat(world.done, expires_at=anyio.current_time() + 5) for _ in range(5)))
            await loop.until(lambda: len(world.outcomes) == 5)
            assert world.outcomes == [HeartbeatResponse()] * 5
            await loop.stop()

    run(main)


@pytest.fixture(autouse=True)
def _no_socket_is_left() -> Iterator[None]:
    """Warnings are errors, so a socket that nobody closed fails the test when it is collected here."""
    yield
    gc.collect()
