"""A program in several processes, with a page for probes and Prometheus.

``service`` is the program: an ``async def`` function without arguments, which runs alone just as well. From a terminal::

    KAFKA_BOOTSTRAP=localhost:9092 KAFKA_TOPIC=orders kafka-async run examples.workers:service --workers 4 --health-port 8080

As a module this file does the same with two processes, and reads from a mock cluster if it gets no ``HOST:PORT TOPIC``.
"""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

import httpx

from examples.mock import source
from kafka_async import ConsumerRecord, KafkaConsumer


async def bill(record: ConsumerRecord[bytes, bytes]) -> None:
    """Do what a service does with an order."""
    await asyncio.sleep(0)


async def service() -> None:
    """Handle orders until the supervisor says that it is over; what is at work is finished and committed then."""
    async with KafkaConsumer[bytes, bytes](
        os.environ["KAFKA_TOPIC"],
        bootstrap_servers=os.environ["KAFKA_BOOTSTRAP"],
        group_id="billing",
        client_id=f"billing-{os.environ.get('KAFKA_ASYNC_WORKER', '0')}",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    ) as consumer:
        await consumer.process(bill, concurrency=20)


async def _started(*arguments: str) -> tuple[Process, str]:
    """Start the supervisor. Return it and the address of its page."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "kafka_async", "run", *arguments, stderr=PIPE)
    assert process.stderr is not None  # noqa: S101  # a pipe
    line = (await process.stderr.readline()).decode()
    found = re.search(r"http://\S+(?=/ready)", line)
    if found is None:
        raise SystemExit(line)
    return process, found[0]


async def main() -> None:
    """Run two processes; with the mock cluster until its orders are handled."""
    with source() as (bootstrap, topic, limit):
        os.environ.update(KAFKA_BOOTSTRAP=bootstrap, KAFKA_TOPIC=topic)
        supervisor, url = await _started("examples.workers:service", "--workers", "2", "--health-port", os.environ.get("PORT", "0"))
        print(f"{url}/ready", flush=True)
        if limit is None:
            await supervisor.wait()
            return
        async with httpx.AsyncClient(base_url=url) as client:
            while (ready := await client.get("/ready")).status_code != 200:  # noqa: ASYNC110  # as a probe does
                await asyncio.sleep(0.1)
            print(ready.text.strip())
            while (handled := _handled((await client.get("/metrics")).text)) < limit:  # noqa: ASYNC110  # as Prometheus does
                await asyncio.sleep(0.1)
            print(f"{handled:.0f} orders handled by two processes")
        supervisor.send_signal(signal.SIGTERM)
        print(f"the supervisor ended with {await supervisor.wait()}")


def _handled(metrics: str) -> float:
    """Return the sum over all processes."""
    values = re.findall(r"^org_apache_kafka_consumer_processing_records_handled_total\S* (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, values))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
