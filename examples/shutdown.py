"""A safe shutdown: at SIGTERM and Ctrl-C the program finishes the records that it has, commits them, and leaves the group.

Supervisors, containers and service managers stop a program by SIGTERM. The reading task checks an event between two batches, so it
ends normally; leaving the ``async with`` block then commits its records and leaves the group, and the other members get the
partitions at once. For a program that may drop the records it is working on, ``kafka_async.run`` in place of ``asyncio.run`` is
enough.
"""

import asyncio
import os
import signal
from contextlib import suppress

from examples.mock import source
from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition

GROUP = "billing"


async def bill(record: ConsumerRecord[bytes, bytes]) -> None:
    """Do what a service does with an order."""
    await asyncio.sleep(0)


async def read(bootstrap: str, topic: str, limit: int | None) -> int:
    """Read until a signal comes. Return how many records were handled."""
    leaving = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leaving.set)
    handled = 0
    async with KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", fetch_max_wait_ms=100
    ) as consumer:
        while not leaving.is_set():
            batch = await consumer.getmany(timeout_ms=500, max_records=100)
            for records in batch.values():
                for record in records:
                    await bill(record)
                    handled += 1
                    if handled == 250 and limit is not None:
                        os.kill(os.getpid(), signal.SIGTERM)  # with the mock cluster there is no supervisor to do it
    return handled


async def committed(bootstrap: str, topic: str) -> int:
    """Return how many records the group has committed."""
    async with KafkaConsumer[bytes, bytes](bootstrap_servers=bootstrap, group_id=GROUP) as consumer:
        known = (await consumer.describe_topics(topic)).topics[topic]
        partitions = [TopicPartition(topic, each.partition) for each in known.partitions]
        found = await consumer.committed_offsets(*partitions)
        return sum(each.offset for each in found.values() if each is not None)


async def main() -> None:
    """Read until a signal comes, then print how many records were handled and committed."""
    with source() as (bootstrap, topic, limit):
        print(f"{await read(bootstrap, topic, limit)} records handled, {await committed(bootstrap, topic)} committed")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
