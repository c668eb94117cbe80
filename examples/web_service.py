"""A web service that consumes in the background and shows at a URL what it has read and how far behind it is.

``/`` has the totals; ``/health`` is 200 while the consumer works and 503 while it does not, for a probe or a load balancer.
One event loop serves both. A handler that blocks for long would need ``background="thread"``.

The HTTP server here is the standard library's. In a web framework the two ``async with`` blocks of ``main`` go where the
framework starts and stops an application (its lifespan).
"""

import asyncio
import json
import os
from collections import Counter
from contextlib import suppress
from typing import Any

from examples.mock import source
from kafka_async import ConsumerRecord, ConsumerState, KafkaConsumer


class Service:
    """Counts orders by item. ``enough`` is set after ``limit`` records."""

    def __init__(self, consumer: KafkaConsumer[bytes, Any], limit: int | None) -> None:
        self.consumer = consumer
        self.limit = limit
        self.enough = asyncio.Event()
        self.records = 0
        self.ordered: Counter[str] = Counter()

    async def consume(self) -> None:
        """Consume for as long as the service lives."""
        async for record in self.consumer:
            self.handle(record)

    def handle(self, record: ConsumerRecord[bytes, Any]) -> None:
        """Take one order."""
        self.ordered[record.value["item"]] += record.value["quantity"]
        self.records += 1
        if self.records == self.limit:
            self.enough.set()

    def answer(self, path: str) -> tuple[str, dict[str, Any]]:
        """Return status and body for a path."""
        statistics = self.consumer.statistics()
        match path:
            case "/":
                lag = {f"{where.topic}-{where.partition}": part.lag for where, part in sorted(statistics.partitions.items())}
                return "200 OK", {"records": self.records, "ordered": self.ordered, "lag": lag}
            case "/health":
                healthy = statistics.state is ConsumerState.STEADY
                return "200 OK" if healthy else "503 Service Unavailable", {"state": str(statistics.state)}
            case _:
                return "404 Not Found", {"error": f"nothing at {path}"}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        request = (await reader.readline()).decode("latin-1").split()
        status, content = self.answer(request[1]) if len(request) == 3 else ("400 Bad Request", {"error": "not HTTP"})
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
        async with (
            KafkaConsumer[bytes, Any](
                topic,
                bootstrap_servers=bootstrap,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=100,
                value_deserializer=json.loads,
            ) as consumer,
            asyncio.TaskGroup() as tasks,  # if consuming fails, the service ends with that error
        ):
            service = Service(consumer, limit)
            consuming = tasks.create_task(service.consume())
            async with await asyncio.start_server(service.serve, "127.0.0.1", int(os.environ.get("PORT", "0"))) as server:
                port = server.sockets[0].getsockname()[1]
                print(f"http://127.0.0.1:{port}/", flush=True)
                await service.enough.wait()
                for path in ("/", "/health", "/nothing"):
                    print(await ask(port, path))
            consuming.cancel()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
