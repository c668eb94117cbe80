"""A program whose handler connects to a service that may be down; it writes a line to a file for each attempt.

python -m tests.integration.breaker_job BOOTSTRAP GROUP PROTOCOL BACKGROUND SESSION_MS TOPIC PORT FILE

A line has the process, the value, and whether the service was there.
"""

import asyncio
import os
import sys
from typing import Any

from kafka_async import Breaker, ConsumerRecord, KafkaConsumer, exponential, run


async def main(
    bootstrap: str, group: str, protocol: str, background: str, session_ms: str, topic: str, port: str, file: str
) -> None:
    """Handle records until stopped."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
        well = False
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.close()
            well = True
        finally:
            os.write(out, f"{os.getpid()} {int(record.value)} {int(well)}\n".encode())

    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "group_protocol": protocol}
    options |= {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200, "background": background}
    if protocol == "classic":  # the broker's business in the other one
        options |= {"session_timeout_ms": int(session_ms), "heartbeat_interval_ms": 300}
    # Whatever fails for good ends the program, so a record that is given up is never handled.
    breaker = Breaker(on=(ConnectionError,), window=20, probe_after=exponential(0.5, 3))
    async with KafkaConsumer(topic, **options) as consumer:
        await consumer.process(handle, concurrency=10, breaker=breaker)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
