"""Serve the metrics of a consumer to Prometheus, with nothing but the standard library.

``/metrics`` has them in Prometheus's text format. ``kafka_async/application/METRICS.md`` says what each metric means and which to
watch. A program that exports through OpenTelemetry needs none of this: it gives its consumer to
``kafka_async.adapters.otel.ConsumerInstruments``.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from examples.mock import source
from kafka_async import KafkaConsumer
from kafka_async.application.metrics import points

FAMILY = "org.apache.kafka.consumer."


def exposition(metrics: Mapping[str, Mapping[str, float]], **labels: str) -> str:
    """Return what ``consumer.metrics()`` gave in Prometheus's text format, ``labels`` on each number."""
    lines: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for point in points(metrics):
        name = "kafka_consumer_" + point.name.removeprefix(FAMILY).replace(".", "_")
        shown = ",".join(f'{label}="{escaped(value)}"' for label, value in (*labels.items(), *point.labels))
        lines[name, point.total].append(f"{name}{{{shown}}} {point.value}")
    return "".join(f"# TYPE {name} {'counter' if total else 'gauge'}\n{joined(rows)}" for (name, total), rows in lines.items())


def escaped(value: str) -> str:
    """Return the value of a label, escaped as Prometheus requires."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def joined(rows: Iterable[str]) -> str:
    """Return rows as lines."""
    return "".join(f"{row}\n" for row in rows)


async def main() -> None:
    """Serve until interrupted; with the mock cluster until its orders are read."""
    with source() as (bootstrap, topic, limit):
        async with KafkaConsumer(
            topic, bootstrap_servers=bootstrap, client_id="billing-1", auto_offset_reset="earliest", fetch_max_wait_ms=100
        ) as consumer:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readline()
                body = exposition(consumer.metrics(), client_id="billing-1").encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
                writer.close()

            async with await asyncio.start_server(serve, "127.0.0.1", int(os.environ.get("PORT", "0"))) as server:
                print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics", flush=True)
                read = 0
                while read != limit:
                    batch = await consumer.getmany(timeout_ms=1000, max_records=100)
                    read += sum(map(len, batch.values()))
            print(exposition(consumer.metrics(), client_id="billing-1"))  # before it stops: then it has no partitions any more


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
