"""Looks names of hosts up, on threads that serve nothing else.

Borrowed threads would not do:

- Those of the event loop's default executor, which asyncio takes for look-ups, and those of anyio are the application's. While its
  own work has all of them, no connection could be made, and a group would be left; while a name server does not answer, look-ups
  would have all of them.
- An executor takes no work once the main thread has ended, but Python waits for other threads, which may go on consuming.
- anyio's threads are no daemons. If an event loop was just left, an idle one would keep the program from exiting.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

import anyio
from anyio.lowlevel import RunVar

from ..errors import NameResolutionError
from ..events import Call
from .event_loops import call_on_daemon
from .waiting import running_loop, thread_begins, threadsafe

T = TypeVar("T")
Address = tuple[socket.AddressFamily, str, int]

MOST_THREADS: Final = 32
"""Look-ups of one event loop at once. One that nobody waits for any more keeps its thread until the system gives up: 30 s, say."""

_limiter: Final = RunVar[anyio.CapacityLimiter]("kafka_async name look-ups")


async def look_up_addresses(host: str, port: int) -> list[Address]:
    """Return the addresses of a host. Raises what ``socket.getaddrinfo`` raises, or ``NameResolutionError`` without a thread."""
    found: Sequence[tuple[socket.AddressFamily, Any, Any, Any, tuple[Any, ...]]]
    if host.isascii() and _asks_the_system():
        found = await _on_thread(f"{host}:{port}", partial(socket.getaddrinfo, host.encode(), port, type=socket.SOCK_STREAM))
    else:  # anyio knows how other alphabets are written (IDNA)
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_address(family, where) for family, _, _, _, where in found if isinstance(where[0], str)))


async def look_up_name(ip: str, port: int) -> str:
    """Return the name of an address. Raises what ``socket.getnameinfo`` raises, or ``NameResolutionError`` without a thread."""
    if _asks_the_system():
        return (await _on_thread(ip, partial(socket.getnameinfo, (ip, port), 0)))[0]
    return (await anyio.getnameinfo((ip, port)))[0]


def _address(family: socket.AddressFamily, where: tuple[Any, ...]) -> Address:
    ip, port, *rest = where  # IPv6: flow and scope
    return family, f"{ip}%{rest[1]}" if rest and rest[1] else ip, port


def _asks_the_system() -> bool:
    """Whether the event loop looks names up with ``socket``'s functions. uvloop does not, nor a resolver of the application."""
    loop = running_loop()
    if loop is not None:
        return type(loop).getaddrinfo is asyncio.BaseEventLoop.getaddrinfo
    import trio  # it is running, so it is imported already

    resolver = trio.socket.set_custom_hostname_resolver(None)  # there is no other way to ask for it
    trio.socket.set_custom_hostname_resolver(resolver)
    return resolver is None


async def _on_thread(place: str, function: Callable[[], T]) -> T:
    """Return what ``function`` returns. A caller that is cancelled does not wait for it."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MOST_THREADS)
        _limiter.set(limiter)
    ended = anyio.Event()
    await limiter.acquire_on_behalf_of(ended)  # the thread gives this back, not the caller, which may be gone by then

    def end() -> None:
        limiter.release_on_behalf_of(ended)
        ended.set()

    call = Call[T](inf, threadsafe(end))
    try:
        call_on_daemon(partial(_work, function, call), "Kafka name look-up")
    except RuntimeError as error:
        limiter.release_on_behalf_of(ended)
        raise NameResolutionError(f"{place}: not looked up, for want of a thread: {error}") from error
    returns = thread_begins()
    try:
        await ended.wait()
    finally:
        returns()
    return call.result()


def _work(function: Callable[[], T], call: Call[T]) -> None:
    try:
        call.resolve(function())
    except BaseException as error:  # the caller's, whatever it is
        call.fail(error)
