"""A web service that consumes in the background and shows at a URL what it has read and how far behind it is.

Decides: what the service answers. ``/`` has the totals, ``/health`` is 200 while the consumer works and 503 when it does not: a load
balancer or a probe asks that. One event loop serves both; a handler that blocks for long would need ``background="thread"``.

The HTTP here is only what the standard library gives; in a web framework, ``Service.run`` belongs into its start-up and shut-down hook.
"""

import asyncio
import contextlib
import json
import os
from collections import Counter
from typing import Any

from examples.mock import source
from kafka_async import ConsumerRecord, ConsumerState, KafkaConsumer


class Service:
    """Counts orders by item."""

    def __init__(self, consumer: KafkaConsumer[bytes, Any]) -> None:
        self.consumer = consumer
        self.ordered: Counter[str] = Counter()
        self.records = 0

    async def run(self) -> None:
        """Consume for as long as the service lives."""
        async for record in self.consumer:
            self.handle(record)

    def handle(self, record: ConsumerRecord[bytes, Any]) -> None:
        """Take one order."""
        self.ordered[record.value["item"]] += record.value["quantity"]
        self.records += 1

    def answer(self, path: str) -> tuple[str, dict[str, Any]]:
        """Return status and body for a path."""
        statistics = self.consumer.statistics()
        lag = {f"{tp.topic}-{tp.partition}": part.lag for tp, part in sorted(statistics.partitions.items())}
        match path:
            case "/":
                return "200 OK", {"records": self.records, "ordered": self.ordered, "lag": lag}
            case "/health":
                healthy = statistics.state is ConsumerState.STEADY
                return "200 OK" if healthy else "503 Service Unavailable", {"state": str(statistics.state)}
            case _:
                return "404 Not Found", {"error": f"nothing at {path}"}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        request = (await reader.readline()).decode("latin-1").split()
        status, content = self.answer(request[1]) if len(request) == 3 else ("400 Bad Request", {"error": "no HTTP"})
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


async def ask(port: int, path: str) -> str:
    """Ask the service as a client would. Return status line and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return f"{path}: {head.splitlines()[0]} {body}"


async def main() -> None:
    """Serve until interrupted; with the mock cluster until its orders are counted."""
    with source() as (bootstrap, topic, limit):
        async with KafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100, value_deserializer=json.loads
        ) as consumer:
            service = Service(consumer)
            server = await asyncio.start_server(service.serve, "127.0.0.1", int(os.environ.get("PORT", "0")))
            port = server.sockets[0].getsockname()[1]
            print(f"http://127.0.0.1:{port}/", flush=True)
            reading = asyncio.create_task(service.run())
            async with server:
                if limit is None:
                    await reading
                while limit is not None and service.records < limit:
                    await asyncio.sleep(0.05)
                for path in ("/", "/health", "/nothing"):
                    print(await ask(port, path))
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


if __name__ == "__main__":
    asyncio.run(main())
