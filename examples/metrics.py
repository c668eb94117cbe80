"""Serve the metrics of a consumer to Prometheus, with nothing but the standard library.

``/metrics`` has them in Prometheus's text format. ``kafka_async/application/METRICS.md`` says what each metric means, and
``alerts.yaml`` beside it has alerts for them. A program that exports through OpenTelemetry needs none of this: it gives its
consumer to ``kafka_async.adapters.otel.ConsumerInstruments``. The names are the same.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from examples.mock import source
from kafka_async import KafkaConsumer
from kafka_async.application.lifecycle.descriptions import descriptions
from kafka_async.application.lifecycle.metrics import Point, points


def exposition(metrics: Mapping[str, Mapping[str, float]], **labels: str) -> str:
    """Return what ``consumer.metrics()`` gave in Prometheus's text format, ``labels`` on each number."""
    families: dict[str, list[str]] = defaultdict(list)
    for point in points(metrics):
        if point.name not in families:
            families[point.name] = [f"# HELP {name(point)} {descriptions()[point.name]}", f"# TYPE {name(point)} {kind(point)}"]
        shown = ",".join(f'{label}="{escaped(value)}"' for label, value in (*labels.items(), *point.labels))
        families[point.name].append(f"{name(point)}{{{shown}}} {point.value}")
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def name(point: Point) -> str:
    """Return the name of a metric as Prometheus wants it."""
    return point.name.replace(".", "_")


def kind(point: Point) -> str:
    """Return the type of a metric."""
    return "counter" if point.total else "gauge"


def escaped(value: str) -> str:
    """Return the value of a label, escaped as Prometheus requires."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


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
