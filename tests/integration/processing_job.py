"""A program that processes records until it is killed: it prints partition and offset of each record that is done.

python -m tests.integration.processing_job BOOTSTRAP GROUP PROTOCOL TOPIC SEED SESSION_MS
"""

import asyncio
import sys
from typing import Any

from kafka_async import ConsumerRecord, KafkaConsumer


async def main(bootstrap: str, group: str, protocol: str, topic: str, seed: str, session_ms: str) -> None:
    """Handle records, each for its own time; every commit travels with the map of what is done."""

    async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
        await asyncio.sleep((record.offset * int(seed) % 101) / 5_000)
        sys.stdout.write(f"{record.partition} {record.offset}\n")
        sys.stdout.flush()

    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "group_protocol": protocol}
    options |= {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}
    if protocol == "classic":  # the broker's business in the other one
        options |= {"session_timeout_ms": int(session_ms)}
    async with KafkaConsumer(topic, **options) as consumer, consumer.processing(handle, concurrency=50) as run:
        await run.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
