"""A program whose records fail a few times, each as often as its value says; it writes a line to a file for each attempt.

python -m tests.integration.retry_job BOOTSTRAP GROUP PROTOCOL BACKGROUND SESSION_MS PRODUCER TOPIC DELAYS FILE

A line has the value, the number of the attempt, the topic, the time and when the record was due, in milliseconds since the epoch,
and whether the attempt succeeded.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Producer

from kafka_async import ConsumerRecord, KafkaConsumer, ProcessingContext, run
from kafka_async.adapters.retry_topics import RetryTopics
from kafka_async.errors import NoBrokersAvailable


@asynccontextmanager
async def producing(which: str, bootstrap: str) -> AsyncIterator[Any]:
    """A producer that waits for all replicas."""
    if which == "aiokafka":
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
            yield producer
    else:
        yield Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2})


async def main(
    bootstrap: str, group: str, protocol: str, background: str, session_ms: str, which: str, topic: str, delays: str, file: str
) -> None:
    """Handle records until stopped."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(record: ConsumerRecord[bytes, bytes], context: ProcessingContext) -> None:
        value, now = int(record.value), round(time.time() * 1000)
        due = dict(record.headers).get("retry-due") or b"0"
        await asyncio.sleep(0.005)
        well = context.attempt > value % 3
        os.write(out, f"{value} {context.attempt} {record.topic} {now} {int(due)} {int(well)}\n".encode())
        if not well:
            raise ConnectionError("not yet")

    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "group_protocol": protocol}
    options |= {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200, "background": background, "fetch_max_wait_ms": 100}
    if protocol == "classic":  # the broker's business in the other one
        options |= {"session_timeout_ms": int(session_ms), "heartbeat_interval_ms": 300}

    async def work() -> None:
        async with producing(which, bootstrap) as producer:
            retry = RetryTopics(producer, delays=[int(each) for each in delays.split(",")], then="stop")
            async with KafkaConsumer(topic, *retry.topics(topic, group), **options) as consumer:
                await consumer.process(handle, concurrency=20, on_failure=retry)

    while True:
        try:
            await work()
        except (NoBrokersAvailable, KafkaConnectionError):  # the broker is being restarted; a supervisor would start us again
            await asyncio.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
