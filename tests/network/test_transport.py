"""``kafka_async.network.transport``, on real sockets of the loopback interface."""

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from anyio.abc import SocketAttribute
from anyio.lowlevel import checkpoint
from anyio.streams.tls import TLSStream
from attrs import define, field

from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    NameResolutionError,
    SslAuthenticationError,
    TlsHandshakeError,
)
from kafka_async.model import Node
from kafka_async.network import (
    NetworkClientDelegate,
    Pushing,
    PushTransport,
    TcpConnector,
    Transport,
    UnsentRequest,
    bootstrap_nodes,
    by_canonical_names,
)
from kafka_async.network.transport import StreamTransport
from kafka_async.wire import Api
from kafka_async.wire.messages import HeartbeatResponse
from tests.network.memory import Loop
from tests.network.peers import VERSIONS, Peer, World, heartbeat

BACKENDS: dict[str, dict[str, Any]] = {"asyncio": {"backend": "asyncio"}, "trio": {"backend": "trio"}}
if find_spec("uvloop") is not None:
    BACKENDS["uvloop"] = {"backend": "asyncio", "backend_options": {"use_uvloop": True}}


@pytest.fixture(params=list(BACKENDS.values()), ids=list(BACKENDS))
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Run a coroutine function on each of the event loops, and so in both ways of reading."""

    def runner(fn: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(60):
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


class Pulling:
    """A ``PushTransport`` that is read like any other transport, so that one test serves both."""

    def __init__(self, push: PushTransport) -> None:
        self.push = push
        self._buffer = memoryview(bytearray(65536))
        self._incoming = bytearray()
        self._arrived = asyncio.Event()
        push.attach(self)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> memoryview:
        self._incoming += self._buffer[:count]
        self._arrived.set()
        return self._buffer

    async def receive_into(self, buffer: memoryview) -> int:
        over, arrived = asyncio.ensure_future(self.push.ended()), asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait({over, arrived}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()
            over.cancel()
        if not self._incoming:
            await over
            return 0
        count = min(len(buffer), len(self._incoming))
        buffer[:count] = self._incoming[:count]
        del self._incoming[:count]
        if not self._incoming:
            self._arrived.clear()
        return count

    async def send(self, data: bytes) -> None:
        self.push.write(data)

    async def aclose(self) -> None:
        await self.push.aclose()


async def connect(host: str, port: int, connector: TcpConnector | None = None, timeout: float = 30, attempt: int = 0) -> Transport:
    transport = await (connector or TcpConnector())(host, port, timeout=timeout, attempt=attempt)
    if isinstance(transport, PushTransport):
        return Pulling(transport)
    assert not isinstance(transport, Pushing)
    return transport


async def receive(transport: Transport, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = await transport.receive_into(view)
        assert got, "the stream ended"
        view = view[got:]
    return bytes(data)


@pytest.mark.slow
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


def test_asyncio_pushes_and_other_event_loops_are_pulled_from(run: Run, request: pytest.FixtureRequest) -> None:
    pulled = request.node.callspec.id == "trio"

    async def main() -> None:
        async with Serving(echo) as server:
            transport = await TcpConnector()("127.0.0.1", server.port, timeout=30, attempt=0)
            assert isinstance(transport, StreamTransport if pulled else PushTransport)
            await transport.aclose()

    run(main)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def look_up(host: str, port: int) -> list[Any]:
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, address, port) for address in addresses]

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", look_up)


@contextlib.contextmanager
def refusing(*hosts: str) -> Iterator[int]:
    """Yield a port at which these addresses refuse connections: nobody else can listen there meanwhile."""
    with contextlib.ExitStack() as held:
        port = 0
        for host in hosts:
            bound = held.enter_context(socket.socket())
            bound.bind((host, port))
            port = bound.getsockname()[1]
        yield port


def test_all_addresses_of_a_name_are_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Serving(echo, host="127.0.0.3", port=refused) as server:
            resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.3")
            transport = await connect("kafka.example", server.port)
            await transport.send(b"hello")
            assert await receive(transport, 5) == b"hello"
            await transport.aclose()

    with refusing("127.0.0.1", "127.0.0.2") as refused:
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
    async def look_up(host: str, port: int) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", look_up)

    async def main() -> None:
        with pytest.raises(KafkaConnectionError, match="nowhere:9092: the name cannot be resolved"):
            await connect("nowhere", 9092)

    run(main)


def test_a_name_server_that_does_not_answer_is_named_as_the_cause(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: str, port: int) -> list[Any]:
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", look_up)

    async def main() -> None:
        with pytest.raises(NameResolutionError, match=r"^b:9092: the name was not resolved within 0\.02 s$"):
            await connect("b", 9092, timeout=0.02)

    run(main)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_from_bad_metadata_is_an_error_of_ours(port: int) -> None:
    async def main() -> None:
        with pytest.raises(KafkaConnectionError, match="expected a host and a port from 1 to 65535"):
            await connect("127.0.0.1", port)

    anyio.run(main)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("", "expected a host"),
        ("\ud800", "expected a host"),
        ("evil\x1b]0;\x07", "expected a host"),
        ("a\nb", "expected a host"),
        ("h" * 5000, "expected a host"),
        ("\u00fc" * 64, "not a usable address"),
    ],
)
def test_a_name_that_cannot_be_one_is_an_error_of_ours(host: str, text: str) -> None:
    async def main() -> None:
        with pytest.raises(KafkaConnectionError, match=text) as caught:
            await connect(host, 9092)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300

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
    config = ConsumerConfig.from_options({"bootstrap_servers": "a:1,b:2,a:1"})
    assert bootstrap_nodes(config) == [Node(-1, "a", 1), Node(-2, "b", 2)]


CANONICAL = "resolve_canonical_bootstrap_servers_only"


def named(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """Addresses have names that end in their last number."""

    async def look_up(ip: str, port: int) -> str:
        if fails:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return f"host-{ip.rsplit('.')[-1]}.example"

    monkeypatch.setattr("kafka_async.network.transport.look_up_name", look_up)


async def looked_up(*servers: tuple[str, int], lookup: str = CANONICAL) -> tuple[list[Any], list[Any]]:
    """Connect to servers, of which ``a:1`` is one to start from; return what names were found, and what was connected to then."""
    found: list[Any] = []
    connected: list[Any] = []

    async def connector(host: str, port: int, *, timeout: float, attempt: int) -> Any:
        connected.append((host, port))

    config = ConsumerConfig.from_options({"bootstrap_servers": "a:1", "client_dns_lookup": lookup})
    factory = by_canonical_names(config, connector, lambda host, port, names: found.append((host, port, names)))
    for host, port in servers:
        await factory(host, port, timeout=30.0, attempt=0)
    return found, connected


def test_canonical_names_are_found_for_bootstrap_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    named(monkeypatch)

    async def main() -> None:
        found, connected = await looked_up(("a", 1), ("b", 1), ("a", 2))
        assert found == [("a", 1, ["host-1.example", "host-2.example"])]
        assert connected == [("a", 1), ("b", 1), ("a", 2)]
        assert (await looked_up(("a", 1), lookup="use_all_dns_ips"))[0] == []

    anyio.run(main)


def test_canonical_names_are_looked_up_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.1", "127.0.0.2"]

    async def look_up(host: str, port: int) -> list[Any]:
        return [(socket.AF_INET, addresses.pop(0), port)]

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", look_up)
    named(monkeypatch)

    async def main() -> None:
        found, _ = await looked_up(("a", 1), ("a", 1))
        assert found == [("a", 1, ["host-1.example"]), ("a", 1, ["host-2.example"])]

    anyio.run(main)


@pytest.mark.parametrize("missing", ["address", "name"])
def test_a_bootstrap_server_without_a_canonical_name_is_connected_to(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    resolve_to(monkeypatch, "127.0.0.1")
    named(monkeypatch, fails=missing == "name")
    if missing == "address":

        async def look_up(host: str, port: int) -> list[Any]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", look_up)

    async def main() -> None:
        assert await looked_up(("a", 1)) == ([], [("a", 1)])

    anyio.run(main)


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and certificates that it signed: ``good`` for localhost and its address, ``named`` without that, ``elsewhere``."""
    path = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(path / "ca.pem")
    for name, identities in {
        "good": ("localhost", "127.0.0.1"),
        "named": ("localhost",),
        "elsewhere": ("elsewhere.example",),
    }.items():
        certificate = authority.issue_cert(*identities)
        certificate.private_key_pem.write_to_path(path / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(path / f"{name}.pem")
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


def test_a_certificate_has_to_be_for_the_name_that_was_asked_for_and_not_for_what_it_resolves_to(
    run: Run, certificates: Path, trusting: TcpConnector
) -> None:
    """Brokers say under which names to connect: whoever else answers at such a name has no certificate for it."""

    async def main() -> None:
        async with Serving(over_tls(server_context(certificates, "named"), echo)) as server:
            transport = await connect("localhost", server.port, trusting)
            await transport.send(b"x")
            assert await receive(transport, 1) == b"x"
            await transport.aclose()
            with pytest.raises(AuthenticationFailedError, match=r"certificate was refused.*127\.0\.0\.1"):
                await connect("127.0.0.1", server.port, trusting)

    run(main)


def test_a_certificate_is_final_only_if_those_of_all_addresses_are_refused(
    run: Run, certificates: Path, trusting: TcpConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, good = (over_tls(server_context(certificates, name), echo) for name in ("elsewhere", "named"))
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")

    async def main() -> None:
        async with Serving(refused, host="127.0.0.1") as server:
            for attempt in range(2):  # nothing listens at the other address
                with pytest.raises(TlsHandshakeError, match=r"none of 2 addresses works: .*certificate was refused"):
                    await connect("localhost", server.port, trusting, attempt=attempt)
            async with Serving(refused, host="127.0.0.2", port=server.port):
                with pytest.raises(SslAuthenticationError, match=r"none of 2 .*127\.0\.0\.1.* refused.*127\.0\.0\.2.* refused"):
                    await connect("localhost", server.port, trusting)
            async with Serving(good, host="127.0.0.2", port=server.port):
                transport = await connect("localhost", server.port, trusting)
                await transport.send(b"x")
                assert await receive(transport, 1) == b"x"
                await transport.aclose()

    run(main)


def test_a_family_in_which_nobody_speaks_tls_leaves_a_refused_certificate_final(
    run: Run, certificates: Path, trusting: TcpConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind ``localhost`` is one machine. A broker that listens to IPv4 alone would be asked for ever."""
    resolve_to(monkeypatch, "::1", "127.0.0.1")

    async def main() -> None:
        async with Serving(over_tls(server_context(certificates, "elsewhere"), echo), host="127.0.0.1") as server:
            for attempt in range(2):
                with pytest.raises(SslAuthenticationError, match=r"none of 2 addresses works: .*certificate was refused"):
                    await connect("localhost", server.port, trusting, attempt=attempt)

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
            with pytest.raises(KafkaConnectionError, match="no connection in time") as caught:
                await connect("127.0.0.1", server.port, trusting, timeout=0.02)
            assert not isinstance(caught.value, NameResolutionError)

    run(main)


# What is pushed, plain and over TLS.


LOOPS = {name: options for name, options in BACKENDS.items() if name != "trio"}


@define(eq=False)
class Scene:
    """A server and how to connect to it, plain or over TLS."""

    run: Run
    connector: TcpConnector
    context: ssl.SSLContext | None

    def serve(self, handler: Callable[[Any], Awaitable[None]]) -> Serving:
        return Serving(over_tls(self.context, handler) if self.context else handler)

    async def connect(self, server: Serving) -> PushTransport:
        transport = await self.connector("127.0.0.1", server.port, timeout=30, attempt=0)
        assert isinstance(transport, PushTransport)
        return transport


@pytest.fixture(params=[f"{name}-{kind}" for name in LOOPS for kind in ("plain", "tls")])
def scene(request: pytest.FixtureRequest) -> Scene:
    name, kind = request.param.split("-")

    def runner(fn: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(60):
                await fn()

        anyio.run(bounded, **LOOPS[name])

    if kind == "plain":
        return Scene(runner, TcpConnector(), None)
    certificates = request.getfixturevalue("certificates")
    return Scene(runner, request.getfixturevalue("trusting"), server_context(certificates))


@define(eq=False)
class Sink:
    """A receiver that keeps what it gets, until it wants no more."""

    wanted: int = 2**31
    data: bytearray = field(factory=bytearray)
    buffer: memoryview = field(factory=lambda: memoryview(bytearray(100)))
    arrived: anyio.Event = field(factory=anyio.Event)

    def get_buffer(self) -> memoryview | None:
        return self.buffer if len(self.data) < self.wanted else None

    def received(self, count: int) -> memoryview | None:
        self.data += self.buffer[:count]
        self.arrived.set()
        return self.get_buffer()


class Broken(Sink):
    """A receiver with a bug."""

    def received(self, count: int) -> memoryview | None:
        raise ValueError("a bug")


async def deaf(stream: Any) -> None:
    """A peer that neither reads nor speaks."""
    async with stream:
        await anyio.sleep_forever()


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of ``waits`` does; raise when it raises."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()


async def give_up_after(turns: int, scope: anyio.CancelScope) -> None:
    for _ in range(turns):
        await checkpoint()
    scope.cancel()


def test_a_bug_in_the_receiver_ends_the_connection_and_is_raised_as_it_is(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serve(echo) as server:
            transport = await scene.connect(server)
            transport.attach(Broken())
            transport.write(b"hello")
            with pytest.raises(ValueError, match="a bug"):
                await transport.ended()
            await transport.aclose()

    scene.run(main)


def test_a_connection_that_the_peer_resets_is_an_error_of_ours(scene: Scene) -> None:
    async def reset(stream: Any) -> None:
        sock = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's typed attribute
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.receive()
        await anyio.aclose_forcefully(stream)

    async def main() -> None:
        async with scene.serve(reset) as server:
            transport = await scene.connect(server)
            transport.attach(Sink())
            transport.write(b"hello")
            with pytest.raises(KafkaConnectionError, match=f"127.0.0.1:{server.port}: Connection reset by peer"):
                await transport.ended()
            transport.write(b"too late")
            await transport.aclose()

    scene.run(main)


def test_what_was_written_reaches_a_slow_peer_although_the_connection_is_shut(scene: Scene) -> None:
    payload = bytes(range(256)) * 65536  # 16 MiB, more than the system takes at once
    got = bytearray()
    shut, done = asyncio.Event(), asyncio.Event()

    async def slow(stream: Any) -> None:
        async with stream:
            await shut.wait()
            async for data in stream:
                got.extend(data)
        done.set()

    async def main() -> None:
        async with scene.serve(slow) as server:
            transport = await scene.connect(server)
            transport.attach(Sink())
            transport.write(payload)
            transport.shut()
            shut.set()
            await transport.ended()
            await transport.aclose()
            await done.wait()
        assert bytes(got) == payload

    scene.run(main)


def test_closing_does_not_wait_for_a_peer_that_does_not_read(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serve(deaf) as server:
            transport = await scene.connect(server)
            transport.attach(Sink())
            transport.write(bytes(16 * 1024 * 1024))
            transport.shut()
            with anyio.move_on_after(0) as waited:
                await transport.ended()
            assert waited.cancelled_caught
            await transport.aclose()
            await transport.ended()

    scene.run(main)


def test_an_idle_connection_is_shut_without_a_word_of_the_peer(scene: Scene) -> None:
    async def once(stream: Any) -> None:
        async with stream:
            await stream.send(await stream.receive())
            await anyio.sleep_forever()

    async def main() -> None:
        async with scene.serve(once) as server:
            transport, sink = await scene.connect(server), Sink()
            transport.attach(sink)
            transport.write(b"hello")
            await sink.arrived.wait()
            transport.shut()
            await transport.ended()
            await transport.aclose()

    scene.run(main)


def test_nothing_is_read_when_nothing_more_is_wanted(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serve(echo) as server:
            transport, sink = await scene.connect(server), Sink(wanted=1)
            transport.attach(sink)
            transport.write(bytes(1000))
            await sink.arrived.wait()
            transport.write(bytes(1000))
            await anyio.wait_all_tasks_blocked()
            assert len(sink.data) <= 100
            await transport.aclose()

    scene.run(main)


def test_bytes_before_the_first_question_are_read_or_refused(scene: Scene) -> None:
    async def smtp(stream: Any) -> None:
        async with stream:
            await stream.send(b"220 mail.example ESMTP\r\n")
            await stream.receive()

    async def main() -> None:
        async with scene.serve(smtp) as server:
            transport, sink = await scene.connect(server), Sink()
            transport.attach(sink)
            refusals = []
            try:
                await first_of(sink.arrived.wait(), transport.ended())
            except KafkaConnectionError as error:  # over TLS they can arrive before anybody could have asked
                refusals.append(str(error))
            assert sink.data.startswith(b"220 ") or "the server answered like SMTP" in refusals[0]
            await transport.aclose()

    scene.run(main)


def test_a_handshake_that_is_cancelled_at_once_leaves_no_socket(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serve(deaf) as server:
            for turns in range(8):
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(give_up_after, turns, scope)
                        transport = await scene.connect(server)
                        await transport.aclose()

    scene.run(main)


# The whole network on real sockets.


async def broker(stream: Any) -> None:
    """Answers everything at once."""
    peer = Peer()
    async with stream:
        async for data in stream:
            peer.feed(data)
            while peer.asked:
                await stream.send(peer.answer(VERSIONS if peer.asked[0].api is Api.API_VERSIONS else HeartbeatResponse()))


def in_time(on_done: Callable[[Any, float], None]) -> UnsentRequest:
    return heartbeat(on_done, expires_at=anyio.current_time() + 30)


def test_a_request_goes_over_a_real_socket(run: Run) -> None:
    async def main() -> None:
        async with Serving(broker) as server, anyio.create_task_group() as tasks:
            world = World(Node(1, "127.0.0.1", server.port))
            delegate: NetworkClientDelegate = world.delegate
            loop = Loop(delegate, tasks, TcpConnector())
            loop.add(*(in_time(world.done) for _ in range(5)))
            await loop.until(lambda: len(world.outcomes) == 5)
            assert world.outcomes == [HeartbeatResponse()] * 5
            await loop.stop()
            assert loop.runner.connections == 0

    run(main)


def test_requests_are_answered_one_after_the_other_over_pushed_bytes(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serve(broker) as server, anyio.create_task_group() as tasks:
            world = World(Node(1, "127.0.0.1", server.port))
            loop = Loop(world.delegate, tasks, scene.connector)
            for _ in range(20):
                loop.add(in_time(world.done))
                await loop.until(lambda: bool(world.outcomes))
                assert world.outcomes.pop() == HeartbeatResponse()
            await loop.stop()

    scene.run(main)


def test_a_bug_in_a_handler_reaches_the_task_group(scene: Scene) -> None:
    def buggy(outcome: Any, now: float) -> None:
        raise ZeroDivisionError("a bug")

    async def main() -> None:
        async with scene.serve(broker) as server, anyio.create_task_group() as tasks:
            loop = Loop(World(Node(1, "127.0.0.1", server.port)).delegate, tasks, scene.connector)
            loop.add(in_time(buggy))
            await loop.until(lambda: False)

    with pytest.raises(ExceptionGroup) as caught:
        scene.run(main)
    matching, rest = caught.value.split(ZeroDivisionError)
    assert matching is not None
    assert rest is None


def test_a_broker_that_resets_fails_what_is_in_flight(scene: Scene) -> None:
    async def resetting(stream: Any) -> None:
        sock = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's typed attribute
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer = Peer()
        peer.feed(await stream.receive())
        await stream.send(peer.answer(VERSIONS))
        await stream.receive()
        await anyio.aclose_forcefully(stream)

    async def main() -> None:
        async with scene.serve(resetting) as server, anyio.create_task_group() as tasks:
            world = World(Node(1, "127.0.0.1", server.port))
            loop = Loop(world.delegate, tasks, scene.connector)
            loop.add(in_time(world.done))
            await loop.until(lambda: bool(world.outcomes))
            assert "Connection reset by peer" in str(world.outcomes[0])
            await loop.stop()

    scene.run(main)


def test_cancelling_the_task_group_closes_pushed_connections(scene: Scene) -> None:
    ended = asyncio.Event()

    async def silent(stream: Any) -> None:
        async with stream:
            async for _ in stream:
                pass
        ended.set()

    async def main() -> None:
        async with scene.serve(silent) as server:
            async with anyio.create_task_group() as tasks:
                loop = Loop(World(Node(1, "127.0.0.1", server.port)).delegate, tasks, scene.connector)
                loop.add(in_time(lambda outcome, now: None))
                await loop.settle()
                tasks.cancel_scope.cancel()
            assert loop.runner.connections == 0
            await ended.wait()

    scene.run(main)


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_is_no_garbage() -> None:
    """Objects of thousands of earlier tests need not be looked through after each one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_socket_is_left() -> Iterator[None]:
    """Warnings are errors, so a socket that nobody closed fails the test when it is collected here."""
    yield
    gc.collect()
