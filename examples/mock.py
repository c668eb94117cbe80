"""Where the examples read from: the brokers named on the command line or in the environment, else a mock cluster with orders.

Owns the mock cluster for as long as an example runs. A program with brokers of its own needs none of this.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Final

RECORDS: Final = 1000
"""Orders in the mock cluster."""


@contextmanager
def source(encode: Callable[[str, str], bytes] | None = None) -> Generator[tuple[str, str, int | None], None, None]:
    """Give bootstrap servers, a topic, and how many records to read: ``None`` if the example goes on until interrupted.

    The first two come from the arguments ``HOST:PORT TOPIC``, or from ``KAFKA_BOOTSTRAP`` and ``KAFKA_TOPIC``. Raises
    ``SystemExit`` if only one of them is given. ``encode`` returns the bytes of a value in the mock cluster, for a topic's name and
    an order in JSON.
    """
    given = sys.argv[1:] or [os.environ[name] for name in ("KAFKA_BOOTSTRAP", "KAFKA_TOPIC") if os.environ.get(name)]
    match given:
        case [bootstrap, topic]:
            yield bootstrap, topic, None
        case []:
            with _mock(encode) as bootstrap:
                yield bootstrap, "orders", RECORDS
        case _:
            raise SystemExit("give both, HOST:PORT and TOPIC, or nothing to read from a mock cluster")


@contextmanager
def _mock(encode: Callable[[str, str], bytes] | None) -> Generator[str, None, None]:
    from kafka_async.adapters.cli.demo import MockCluster, order

    with MockCluster() as cluster:
        cluster.create("orders")
        orders = (order(number, 0) for number in range(RECORDS))
        cluster.produce("orders", [(key, encode("orders", value) if encode else value) for key, value in orders])
        yield cluster.bootstrap


@asynccontextmanager
async def door(bootstrap: str, *, opens_after: float | None) -> AsyncGenerator[str, None]:
    """Give an address that refuses connections for some seconds and then leads to a broker; for ``None`` yield ``bootstrap``."""
    if opens_after is None:
        yield bootstrap
        return
    host, _, broker_port = bootstrap.partition(",")[0].rpartition(":")
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen yet, and no other program gets the port
        port = closed.getsockname()[1]

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            to_reader, to_writer = await asyncio.open_connection(host, int(broker_port))
            await asyncio.gather(_pipe(reader, to_writer), _pipe(to_reader, writer))

        async def open_later() -> None:
            await asyncio.sleep(opens_after)
            async with await asyncio.start_server(forward, sock=closed):
                await asyncio.Event().wait()

        opening = asyncio.create_task(open_later())
        try:
            yield f"127.0.0.1:{port}"
        finally:
            opening.cancel()
            await asyncio.wait([opening])


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()
