"""Sockets: names become addresses, addresses connections, and errors of the system become ours.

Knows nothing of Kafka's protocol, and tries nothing again but the other addresses of one name. This is the only place that sees
errors of sockets, TLS and name resolution; they leave as
``KafkaConnectionError`` or, if no address has a certificate that is accepted, ``SslAuthenticationError`` (``tls.py`` knows which).

On asyncio the event loop pushes: it reads the socket straight into the connection's receive buffer and calls with what arrived, so
that a round trip wakes no task (``PushTransport``). Elsewhere a task pulls from anyio's streams (``StreamTransport``).
KIP-602 (all addresses of a name).
"""

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, runtime_checkable

import anyio
from anyio.abc import ByteStream, SocketAttribute

from ..config import ConsumerConfig
from ..errors import KafkaConnectionError, NameResolutionError, SslAuthenticationError, TlsHandshakeError
from ..model import Node
from ..values import define, field, frozen
from .frames import describe_peer
from .names import Address, look_up_addresses, look_up_name
from .tls import tls_context, tls_error
from .waiting import pause, running_loop

if TYPE_CHECKING:
    from random import Random

_Failure: TypeAlias = KafkaConnectionError | SslAuthenticationError

_LONGEST_HOST: Final = 255
_CLOSED_EARLY: Final = "closed in the TLS handshake; does the port speak TLS? (security_protocol)"
_STREAM_READ: Final = 65_536  # a stream allocates for the size asked, and TLS hands out 16 KiB at a time whatever is asked
_UNWANTED: Final = 4096  # the event loop insists on a buffer even for bytes that are not wanted
_RELEASE_TURNS: Final = 16  # asyncio closes a socket in the turn after the order; other loops may take a few
_BACKSTOP: Final = 1.0  # asyncio's own limit for a handshake, 60 s, would undercut a longer one of ours


class Transport(Protocol):
    """A connected byte stream to pull from. One task reads while another one writes."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put them at the start of ``buffer`` and return how many; 0: the peer has closed.

        Raises ``KafkaConnectionError`` or ``AuthenticationFailedError``.
        """

    async def send(self, data: bytes) -> None:
        """Write all of ``data``. Raises as ``receive_into`` does."""

    async def aclose(self) -> None:
        """Close at once, without a word to the peer. Never raises, whatever the state of the stream."""


class Receiver(Protocol):
    """Takes what a ``PushTransport`` reads. Called by the event loop, so it must not wait."""

    def get_buffer(self) -> memoryview | None:
        """Return where the next bytes go, at least one; ``None``: nothing more is wanted."""

    def received(self, count: int) -> memoryview | None:
        """``count`` bytes stand at the start of the buffer handed out last. Return where the next ones go, as ``get_buffer``."""


@runtime_checkable
class Pushing(Protocol):
    """A connected byte stream that hands bytes to a ``Receiver`` by itself and takes bytes at any time; asyncio alone."""

    def attach(self, receiver: Receiver) -> None:
        """Start reading, for ``receiver``."""

    def write(self, data: bytes) -> None:
        """Write all of ``data``. What fails is reported by ``ended``."""

    async def ended(self) -> None:
        """Wait until the connection is over; return when the peer, or ``shut``, has closed it. Raises what went wrong."""

    def shut(self) -> None:
        """Close when what was written has left."""

    async def aclose(self) -> None:
        """Close at once, without a word to the peer, and return when that is done. Never raises."""


class PushTransport(asyncio.BufferedProtocol):
    """``Pushing`` on a socket, plain or TLS.

    Nothing is read before ``attach``. An exception that the receiver raises is a bug; asyncio would log it and go on, so it is kept
    for ``ended``.
    """

    def __init__(self, peer: str, sock: socket.socket) -> None:
        self._peer = peer
        self._sock = sock
        self._receiver: Receiver | None = None
        self._buffer = memoryview(bytearray(_UNWANTED))
        self._raw: asyncio.Transport | None = None  # the socket's own, also below TLS
        self._transport: asyncio.Transport | None = None
        self._wanted = False
        self._error: Exception | None = None
        self._bug: Exception | None = None
        self._over = anyio.Event()

    # What the connector and the connection's task call.

    async def start(self, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext | None, host: str, timeout: float) -> None:
        """Hand the connected socket to ``loop`` and go through the handshake of TLS if there is a ``context``.

        Raises what sockets and TLS raise, or ``KafkaConnectionError`` if the peer hung up.
        """
        raw, _ = await loop.create_connection(lambda: self, sock=self._sock)
        if context is None:
            return
        try:
            # Not create_connection(ssl=...): only the transport below TLS knows whether the system has taken everything, and only
            # it can be aborted when the handshake is cancelled before it began.
            tls = await loop.start_tls(raw, self, context, server_hostname=host, ssl_handshake_timeout=timeout + _BACKSTOP)
        except ConnectionError as error:
            raise TlsHandshakeError(f"{self._peer}: {_CLOSED_EARLY}") from error
        if tls is None:  # it broke in the very turn in which the handshake ended
            raise TlsHandshakeError(f"{self._peer}: closed right after the TLS handshake")
        self._transport = tls

    def attach(self, receiver: Receiver) -> None:
        """Start reading, for ``receiver``."""
        self._receiver = receiver
        if self._transport is not None and not self._over.is_set():
            self._wanted = True
            self._take(receiver.get_buffer())
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Write all of ``data``, at once as far as the system takes it. What fails is reported by ``ended``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def ended(self) -> None:
        """Wait until the connection is over; return when the peer, or ``shut``, has closed it.

        Raises ``KafkaConnectionError`` or ``AuthenticationFailedError``, and any other exception that the receiver has raised.
        """
        await self._over.wait()
        if self._bug is not None:
            raise self._bug
        if self._error is not None:
            with _translated(self._peer):
                raise self._error

    def shut(self) -> None:
        """Close when the system has taken what was written, which is at once unless the peer is slow to read."""
        if self._transport is None or self._raw is None or self._transport.is_closing():
            return
        if self._raw.get_write_buffer_size() or self._transport.get_write_buffer_size():
            self._transport.close()
        else:  # closing TLS properly would wait for the broker, which first finishes the answer that it is busy with
            self._transport.abort()

    async def aclose(self) -> None:
        """Close at once, without a word to the peer, and return when the socket is closed. Never raises."""
        for transport in (self._transport, self._raw):
            if transport is not None and self._sock.fileno() >= 0:  # asyncio cannot abort what is closed
                transport.abort()
        for _ in range(_RELEASE_TURNS):
            if self._sock.fileno() < 0:
                return
            await pause()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is the event loop's now."""
        self._raw = self._transport = cast(asyncio.Transport, transport)
        self._raw.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """``count`` bytes have arrived."""
        receiver = self._receiver
        if receiver is None:
            # Only TLS can get here, between its handshake and ``attach``. A broker never speaks first.
            text = describe_peer(bytes(self._buffer[:count])) or "the server spoke before it was asked; is this a Kafka port?"
            self._finish(KafkaConnectionError(f"{self._peer}: {text}"))
        elif self._wanted:
            try:
                # That nothing more is wanted must be known before more bytes arrive.
                self._take(receiver.received(count))
            except Exception as bug:
                self._bug = bug
                self._finish(bug)

    def eof_received(self) -> None:
        """The peer has closed."""
        self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._finish(exc)

    def _take(self, buffer: memoryview | None) -> None:
        """Take the buffer for the next read."""
        if buffer is not None:
            self._buffer = buffer
        else:
            self._stop_reading()

    def _stop_reading(self) -> None:
        self._wanted = False
        self._buffer = memoryview(bytearray(_UNWANTED))
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _finish(self, error: Exception | None) -> None:
        if not self._over.is_set():
            self._error = error
            self._over.set()
            self._stop_reading()


class TransportFactory(Protocol):
    """Makes transports."""

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport | Pushing:
        """Return a transport to one of the addresses of ``host``.

        ``timeout``: seconds for each address. ``attempt``: failed attempts so far; the addresses are tried in an order that starts
        one further each time. Raises ``KafkaConnectionError`` or ``AuthenticationFailedError``.
        """


@runtime_checkable
class Seeded(Protocol):
    """A ``TransportFactory`` that also gives its clients what is random in them, so that a test can be repeated."""

    def chance(self) -> "Random | None":
        """Return the numbers for one client; ``None``: it uses the system's."""


@runtime_checkable
class Dated(Protocol):
    """A ``TransportFactory`` of a cluster in the process, whose date goes by the event loop's clock."""

    def date(self) -> float:
        """Return milliseconds since the epoch."""


@frozen
class TcpConnector:
    """The default ``TransportFactory``: TCP, with TLS if there is an ``ssl_context``."""

    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    receive_buffer_bytes: int = -1
    """Size of the socket's receive buffer; -1: the system's, which tunes itself."""
    send_buffer_bytes: int = -1

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> "TcpConnector":
        """Return the connector that ``config`` asks for. Raises ``ValueError`` for files of TLS that cannot be used."""
        return cls(tls_context(config), config.receive_buffer_bytes, config.send_buffer_bytes)

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport | Pushing:
        """See ``TransportFactory``."""
        # Metadata can say anything; an empty name would mean this machine, and texts for people repeat the name.
        if not 0 < len(host) <= _LONGEST_HOST or not host.isprintable() or not 0 < port < 65536:
            raise KafkaConnectionError(f"{host!r:.80}:{port}: expected a host and a port from 1 to 65535")
        addresses = await _resolve(host, port, timeout)
        start = attempt % len(addresses)
        failures: list[tuple[int, _Failure]] = []
        for address in addresses[start:] + addresses[:start]:
            try:
                return await self._connect(address, host, timeout)
            except (KafkaConnectionError, SslAuthenticationError) as error:
                failures.append((address[0], error))
        last = failures[-1][1]
        if len(failures) == 1:
            raise last
        texts = "; ".join(str(failure) for _, failure in failures)
        raise _kind(failures)(f"{host}:{port}: none of {len(failures)} addresses works: {texts}") from last

    async def _connect(self, address: Address, host: str, timeout: float) -> Transport | Pushing:
        where = f"{host} ({address[1]}):{address[2]}" if host != address[1] else f"{host}:{address[2]}"
        with _translated(where), anyio.fail_after(timeout):
            if (loop := running_loop()) is not None:
                return await self._connect_on_asyncio(loop, address, host, where, timeout)
            return await self._connect_on_anyio(address, host, where)

    async def _connect_on_asyncio(
        self, loop: asyncio.AbstractEventLoop, address: Address, host: str, where: str, timeout: float
    ) -> PushTransport:
        family, ip, port = address
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self._tune(sock)
            await loop.sock_connect(sock, (ip, port))
        except BaseException:
            sock.close()
            raise
        transport = PushTransport(where, sock)
        try:
            await transport.start(loop, self.ssl_context, host, timeout)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await transport.aclose()
            raise
        return transport

    async def _connect_on_anyio(self, address: Address, host: str, where: str) -> Transport:
        stream: ByteStream | None = None
        try:
            stream = await anyio.connect_tcp(address[1], address[2])
            self._tune(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - anyio's typed attribute, not Django's
            if self.ssl_context is not None:
                from anyio.streams.tls import TLSStream  # only with TLS

                stream = await TLSStream.wrap(stream, hostname=host, ssl_context=self.ssl_context, standard_compatible=False)
        except BaseException as error:
            if stream is not None:
                await anyio.aclose_forcefully(stream)
            if isinstance(error, anyio.EndOfStream):
                raise TlsHandshakeError(f"{where}: {_CLOSED_EARLY}") from error
            raise
        return StreamTransport(stream, where)

    def _tune(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in ((socket.SO_RCVBUF, self.receive_buffer_bytes), (socket.SO_SNDBUF, self.send_buffer_bytes)):
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)


@define(eq=False)
class StreamTransport:
    """A stream of anyio, plain or TLS, on event loops other than asyncio."""

    _stream: ByteStream
    _peer: str

    async def receive_into(self, buffer: memoryview) -> int:
        """See ``Transport``."""
        try:
            with _translated(self._peer):
                data = await self._stream.receive(min(len(buffer), _STREAM_READ))
        except anyio.EndOfStream:
            return 0
        buffer[: len(data)] = data
        return len(data)

    async def send(self, data: bytes) -> None:
        """See ``Transport``."""
        with _translated(self._peer):
            await self._stream.send(data)

    async def aclose(self) -> None:
        """See ``Transport``."""
        await anyio.aclose_forcefully(self._stream)


def bootstrap_nodes(config: ConsumerConfig) -> list[Node]:
    """Return the servers to start from, numbered -1, -2, ..."""
    return [Node(-number, host, port) for number, (host, port) in enumerate(dict.fromkeys(config.bootstrap_servers), start=1)]


def by_canonical_names(
    config: ConsumerConfig, factory: TransportFactory, found: Callable[[str, int, Collection[str]], None]
) -> TransportFactory:
    """Return ``factory``, or with ``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` one that looks names up first.

    ``found`` hears which hosts a server to start from stands for (KIP-235), and then has these connected to in its place.
    """
    if config.client_dns_lookup != "resolve_canonical_bootstrap_servers_only":
        return factory
    return CanonicalConnector(factory, frozenset(config.bootstrap_servers), found)


@frozen
class CanonicalConnector:
    """A ``TransportFactory`` that finds out for which hosts the servers to start from stand, each time that one is connected to.

    So a name that is not there yet, or stands for other hosts later, is no matter of the first moment.
    """

    factory: TransportFactory
    servers: frozenset[tuple[str, int]]
    found: Callable[[str, int, Collection[str]], None]

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport | Pushing:
        """See ``TransportFactory``."""
        if (host, port) in self.servers and (names := await _canonical(host, port, timeout)):
            # If they take the place of this host, the attempt is shut. It goes on if the host is a known broker's as well.
            self.found(host, port, names)
        return await self.factory(host, port, timeout=timeout, attempt=attempt)


def _kind(failures: Collection[tuple[int, _Failure]]) -> type[_Failure]:
    """Return what it is that no address of a name works, each with its family.

    A refused certificate is final. But behind an address that failed otherwise may be a good one, so another attempt may work. A
    family of which no address speaks TLS does not count: it is the other way to the same machine, as ``::1`` of ``localhost``.
    """
    speak = {family for family, failure in failures if isinstance(failure, (TlsHandshakeError, SslAuthenticationError))}
    if not speak:
        return KafkaConnectionError
    final = all(isinstance(failure, SslAuthenticationError) for family, failure in failures if family in speak)
    return SslAuthenticationError if final else TlsHandshakeError


async def _canonical(host: str, port: int, timeout: float) -> list[str]:
    """Return the canonical names of all addresses of a host; none if they cannot be looked up: the connection says why."""
    try:
        with _translated(host), anyio.fail_after(timeout):
            addresses = await _resolve(host, port, timeout)
            return [await look_up_name(ip, port) for _, ip, _ in addresses]
    except KafkaConnectionError:
        return []


async def _resolve(host: str, port: int, timeout: float) -> list[Address]:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:  # an address needs no resolver, and no thread to call it from
        await pause()
        return [(socket.AF_INET if ip.version == 4 else socket.AF_INET6, host, port)]
    with _translated(f"{host}:{port}"):
        try:
            with anyio.fail_after(timeout):
                return await look_up_addresses(host, port)
        except TimeoutError as error:  # no connection was tried yet: the server that knows the name does not answer
            raise NameResolutionError(f"{host}:{port}: the name was not resolved within {timeout:.3g} s") from error


@contextmanager
def _translated(peer: str) -> Iterator[None]:
    """Turn what sockets, TLS and the resolver raise into our errors."""
    try:
        yield
    except ssl.SSLError as error:
        raise tls_error(peer, error) from error
    except socket.gaierror as error:
        raise NameResolutionError(f"{peer}: the name cannot be resolved: {error.strerror}") from error
    except TimeoutError as error:
        raise KafkaConnectionError(f"{peer}: no connection in time") from error
    except OSError as error:
        raise KafkaConnectionError(f"{peer}: {os.strerror(error.errno) if error.errno else error}") from error
    except ValueError as error:  # such as a label of more than 63 characters, which no resolver takes
        raise KafkaConnectionError(f"{peer}: not a usable address: {error}") from error
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise KafkaConnectionError(f"{peer}: the connection broke: {error.__cause__ or type(error).__name__}") from error
