"""Liveness and readiness for the probes of a container.

- ``/alive`` is 503 only if a restart is needed: a final error, or a background loop that no longer runs. A cluster that is down
  does not count.
- ``/ready`` is 503 while this member cannot consume: it has no broker, no coordinator or no assignment.

A liveness probe that fails when Kafka is down restarts every service at the worst moment.
"""

import asyncio
import os
from contextlib import ExitStack, suppress

from examples.mock import source
from kafka_async import KafkaConsumer


class Probes:
    """Answers HTTP about one consumer, with the standard library only."""

    def __init__(self, consumer: KafkaConsumer[bytes, bytes]) -> None:
        self.consumer = consumer

    def answer(self, path: str) -> str:
        """Return the status for a path."""
        known = {"/alive": self.consumer.alive, "/ready": self.consumer.ready}
        if path not in known:
            return "404 Not Found"
        return "200 OK" if known[path] else "503 Service Unavailable"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        request = (await reader.readline()).decode("latin-1").split()
        status = self.answer(request[1]) if len(request) == 3 else "400 Bad Request"
        body = f"{self.consumer.state}\n"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def ask(port: int, path: str) -> str:
    """Ask as a probe would. Return the status and the state."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return f"{path}: {head.splitlines()[0].partition(' ')[2]}, {body.strip()}"


async def read(consumer: KafkaConsumer[bytes, bytes]) -> None:
    """Consume for as long as the service lives."""
    async for _ in consumer:
        pass


async def main() -> None:
    """Serve until interrupted; with the mock cluster until it is gone and the probes say so."""
    with ExitStack() as cluster:
        bootstrap, topic, limit = cluster.enter_context(source())
        async with (
            KafkaConsumer[bytes, bytes](topic, bootstrap_servers=bootstrap, group_id="billing", fetch_max_wait_ms=100) as consumer,
            asyncio.TaskGroup() as tasks,
            await asyncio.start_server(Probes(consumer).serve, "127.0.0.1", int(os.environ.get("PORT", "0"))) as server,
        ):
            reading = tasks.create_task(read(consumer))
            port = server.sockets[0].getsockname()[1]
            print(f"http://127.0.0.1:{port}/ready", flush=True)
            if limit is None:
                await reading
            print(await ask(port, "/alive"), await ask(port, "/ready"), sep="\n")
            cluster.close()
            while consumer.ready:  # noqa: ASYNC110  # as a probe does, from outside
                await asyncio.sleep(0.1)
            print("the cluster is gone", await ask(port, "/alive"), await ask(port, "/ready"), sep="\n")
            reading.cancel()
            await consumer.stop(timeout_ms=100)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
