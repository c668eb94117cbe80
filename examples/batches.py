"""Read in batches, with results and offsets in one database: each record counts exactly once, whatever crashes when.

The offsets are written in the same transaction as the results, so both are there or neither is. Nothing is committed to Kafka; at
the start the consumer seeks each partition to the offset in the database.
"""

import asyncio
import json
import os
import sqlite3
from contextlib import closing, suppress

from examples.mock import source
from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS revenue (customer TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, partition));
"""


def store(database: sqlite3.Connection, batch: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]) -> int:
    """Add a batch to the results and move the offsets, in one transaction. Return how many records it had."""
    with database:  # commits at the end, or rolls all of it back
        for partition, records in batch.items():
            database.executemany(
                "INSERT INTO revenue VALUES (:customer, :cents) ON CONFLICT DO UPDATE SET cents = cents + excluded.cents",
                [json.loads(record.value) for record in records],
            )
            database.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", (*partition, records[-1].offset + 1))
    return sum(map(len, batch.values()))


async def read(database: sqlite3.Connection, bootstrap: str, topic: str, limit: int | None) -> int:
    """Go on from the offsets in the database; stop after ``limit`` records. Return how many were read."""
    done = 0
    async with KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100
    ) as consumer:
        for partition, offset in database.execute("SELECT partition, next FROM offsets WHERE topic = ?", (topic,)):
            consumer.seek(TopicPartition(topic, partition), offset)
        while limit is None or done < limit:
            left = 500 if limit is None else min(500, limit - done)
            done += store(database, await consumer.getmany(timeout_ms=1000, max_records=left))
    return done


async def main() -> None:
    """Read half of the orders, stop, and read the rest with a new consumer."""
    with closing(sqlite3.connect(os.environ.get("DATABASE", ":memory:"))) as database:
        database.executescript(SCHEMA)
        with source() as (bootstrap, topic, limit):
            for part in [None] if limit is None else [limit // 2, limit - limit // 2]:
                print(f"{await read(database, bootstrap, topic, part)} records stored")
        ((customers, cents),) = database.execute("SELECT count(*), sum(cents) FROM revenue")
        ((offsets,),) = database.execute("SELECT sum(next) FROM offsets")
        print(f"{customers} customers, {cents / 100:,.2f} in total, {offsets} records by the offsets")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
