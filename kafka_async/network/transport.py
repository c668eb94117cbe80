"""Sockets: names become addresses, addresses connections, and errors of the system become ours.

Decides: how a byte stream to ``host:port`` is made. Owns: nothing but one socket. Must never know Kafka's protocol or retry by
itself beyond the addresses of one name. This is the only place that sees errors of sockets, TLS and name resolution; they leave as
``KafkaConnectionError`` or, where a certificate or a TLS credential was refused, ``AuthenticationFailedError``.

Without TLS on asyncio a socket is read straight into the connection's receive buffer (``loop.sock_recv_into``): one copy from
the kernel. TLS, other event loops, and loops without these calls go through anyio's streams. KIP-602 (all addresses of a name).
"""

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import checkpoint
from anyio.streams.tls import TLSStream
from attrs import define, field, frozen

from ..config import ConsumerConfig
from ..errors import AuthenticationFailedError, KafkaConnectionError
from ..model import Node

_Address = tuple[socket.AddressFamily, str, int]

# Alerts by which a TLS peer refuses our certificate, or the lack of one (RFC 8446 section 6.2). Others, such as a version or a
# cipher that does not fit, or plain bytes where TLS was expected, may be gone at the next attempt or the next address.
_REFUSALS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "UNKNOWN_PSK_IDENTITY", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")


_STREAM_READ: Final = 65_536  # a stream allocates for the size asked, and TLS hands out 16 KiB at a time whatever is asked


class Transport(Protocol):
    """A connected byte stream. One task reads while another one writes."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put them at the start of ``buffer`` and return how many; 0: the peer has closed.

        Raises ``KafkaConnectionError`` or ``AuthenticationFailedError``.
        """

    async def send(self, data: bytes) -> None:
        """Write all of ``data``. Raises as ``receive_into`` does."""

    async def aclose(self) -> None:
        """Close at once, without a word to the peer. Never raises, whatever the state of the stream."""


class TransportFactory(Protocol):
    """Makes transports."""

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport:
        """Return a transport to one of the addresses of ``host``.

        ``timeout``: seconds for each address. ``attempt``: failed attempts so far; the addresses are tried in an order that starts
        one further each time. Raises ``KafkaConnectionError`` or ``AuthenticationFailedError``.
        """


@frozen
class TcpConnector:
    """The default ``TransportFactory``: TCP, with TLS where there is an ``ssl_context``."""

    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    receive_buffer_bytes: int = -1
    """Size of the socket's receive buffer; -1: the system's, which tunes itself."""
    send_buffer_bytes: int = -1

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> "TcpConnector":
        """Return the connector that ``config`` asks for. TLS verifies certificate and host name unless a context says otherwise."""
        context = config.ssl_context
        if context is None and config.security_protocol.endswith("SSL"):
            context = ssl.create_default_context()
        return cls(context, config.receive_buffer_bytes, config.send_buffer_bytes)

    async def __call__(self, host: str, port: int, *, timeout: float, attempt: int) -> Transport:
        """See ``TransportFactory``."""
        if not host or not 0 < port < 65536:  # metadata can say anything, and an empty name would mean this machine
            raise KafkaConnectionError(f"{host}:{port}: expected a host and a port from 1 to 65535")
        addresses = await _resolve(host, port, timeout)
        start = attempt % len(addresses)
        failures: list[KafkaConnectionError] = []
        for address in addresses[start:] + addresses[:start]:
            try:
                return await self._connect(address, host, timeout)
            except KafkaConnectionError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        texts = "; ".join(map(str, failures))
        raise KafkaConnectionError(f"{host}:{port}: none of {len(failures)} addresses works: {texts}") from failures[-1]

    async def _connect(self, address: _Address, host: str, timeout: float) -> Transport:
        where = f"{host} ({address[1]}):{address[2]}" if host != address[1] else f"{host}:{address[2]}"
        if self.ssl_context is None and (loop := _fast_loop()):
            return await self._connect_fast(loop, address, where, timeout)
        stream: ByteStream | None = None
        try:
            with _translated(where), anyio.fail_after(timeout):
                stream = await anyio.connect_tcp(address[1], address[2])
                self._tune(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - anyio's typed attribute, not Django's
                if self.ssl_context is not None:
                    stream = await TLSStream.wrap(stream, hostname=host, ssl_context=self.ssl_context, standard_compatible=False)
                return StreamTransport(stream, where)
        except BaseException as error:
            if stream is not None:
                await anyio.aclose_forcefully(stream)
            if isinstance(error, anyio.EndOfStream):
                raise KafkaConnectionError(f"{where}: closed in the TLS handshake; does the port speak TLS?") from error
            raise

    async def _connect_fast(self, loop: asyncio.AbstractEventLoop, address: _Address, where: str, timeout: float) -> Transport:
        family, ip, port = address
        with _translated(where):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                self._tune(sock)
                with anyio.fail_after(timeout):
                    await loop.sock_connect(sock, (ip, port))
            except BaseException:
                sock.close()
                raise
        return SocketTransport(sock, loop, where)

    def _tune(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in ((socket.SO_RCVBUF, self.receive_buffer_bytes), (socket.SO_SNDBUF, self.send_buffer_bytes)):
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)


@define(eq=False)
class SocketTransport:
    """A plain socket on asyncio."""

    _sock: socket.socket
    _loop: asyncio.AbstractEventLoop
    _peer: str

    async def receive_into(self, buffer: memoryview) -> int:
        """See ``Transport``."""
        with _translated(self._peer):
            return await self._loop.sock_recv_into(self._sock, buffer)

    async def send(self, data: bytes) -> None:
        """See ``Transport``."""
        with _translated(self._peer):
            await self._loop.sock_sendall(self._sock, data)

    async def aclose(self) -> None:
        """See ``Transport``."""
        # The loop must forget the descriptor first: a new socket may get the same number at once.
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()


@define(eq=False)
class StreamTransport:
    """Any stream of anyio: TLS, other event loops."""

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


def _fast_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running asyncio loop when it can read sockets into memory, else ``None``."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    kind, base = type(loop), asyncio.AbstractEventLoop
    return None if kind.sock_recv_into is base.sock_recv_into or kind.remove_reader is base.remove_reader else loop


async def bootstrap_nodes(config: ConsumerConfig) -> list[Node]:
    """Return the servers to start from, numbered -1, -2, ...

    With ``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` each address of each server becomes a server of its own
    under its canonical name (KIP-235); a name that does not resolve stays as it is and fails when it is connected to.
    """
    servers = list(config.bootstrap_servers)
    if config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
        timeout = config.socket_connection_setup_timeout_ms / 1000
        servers = [server for host, port in servers for server in await _canonical(host, port, timeout)]
    return [Node(-number, host, port) for number, (host, port) in enumerate(dict.fromkeys(servers), start=1)]


async def _canonical(host: str, port: int, timeout: float) -> list[tuple[str, int]]:
    try:
        with _translated(host), anyio.fail_after(timeout):
            addresses = await _resolve(host, port, timeout)
            return [((await anyio.getnameinfo((ip, port)))[0], port) for _, ip, _ in addresses]
    except KafkaConnectionError:
        return [(host, port)]


async def _resolve(host: str, port: int, timeout: float) -> list[_Address]:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:  # an address needs no resolver, and no thread to call it from
        await checkpoint()
        return [(socket.AF_INET if ip.version == 4 else socket.AF_INET6, host, port)]
    with _translated(f"{host}:{port}"), anyio.fail_after(timeout):
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address[0], address[1]) for family, _, _, _, address in found))


@contextmanager
def _translated(peer: str) -> Iterator[None]:
    """Turn what sockets, TLS and the resolver raise into our errors."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationFailedError(f"{peer}: the broker's certificate was refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise _tls_error(peer, error) from error
    except socket.gaierror as error:
        raise KafkaConnectionError(f"{peer}: the name cannot be resolved: {error.strerror}") from error
    except TimeoutError as error:
        raise KafkaConnectionError(f"{peer}: no connection in time") from error
    except OSError as error:
        raise KafkaConnectionError(f"{peer}: {os.strerror(error.errno) if error.errno else error}") from error
    except ValueError as error:  # such as a label of more than 63 characters, which no resolver takes
        raise KafkaConnectionError(f"{peer}: not a usable address: {error}") from error
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise KafkaConnectionError(f"{peer}: the connection broke: {error.__cause__ or type(error).__name__}") from error


def _tls_error(peer: str, error: ssl.SSLError) -> AuthenticationFailedError | KafkaConnectionError:
    reason = error.reason or str(error)
    if "ALERT" in reason and any(word in reason for word in _REFUSALS):
        return AuthenticationFailedError(f"{peer}: the broker refused our TLS credentials: {reason}")
    if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"):
        return KafkaConnectionError(f"{peer}: TLS failed ({reason}); does the port speak TLS?")
    return KafkaConnectionError(f"{peer}: TLS failed: {reason}")
