"""Exactly once with many handlers at once: results and offsets in one transaction of a database.

Each handler adds its order to the results and stores ``context.completed``: the offset up to which everything is done, and in its
metadata the records that are done after it. So both are there or neither is, whatever crashes when. At the next start the
consumer seeks to the offsets in the database, and only records that are not done are read again.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Collection
from contextlib import closing, suppress
from functools import partial

from examples.mock import source
from kafka_async import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaConsumer,
    OffsetAndMetadata,
    ProcessingContext,
    TopicPartition,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS revenue (customer TEXT PRIMARY KEY, cents INTEGER NOT NULL, orders INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, partition INTEGER, next INTEGER NOT NULL, done TEXT NOT NULL, PRIMARY KEY (topic, partition)
);
"""
RESULT = """
INSERT INTO revenue VALUES (:customer, :cents, 1)
ON CONFLICT DO UPDATE SET cents = cents + excluded.cents, orders = orders + 1
"""


class GoOn(ConsumerRebalanceListener):
    """Seeks partitions to the offsets in the database when they are assigned."""

    def __init__(self, database: sqlite3.Connection, consumer: KafkaConsumer[bytes, bytes]) -> None:
        self.database = database
        self.consumer = consumer

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Seek each partition that the database knows."""
        for topic, number, offset, done in self.database.execute("SELECT topic, partition, next, done FROM offsets"):
            if (topic, number) in assigned:
                self.consumer.seek(TopicPartition(topic, number), OffsetAndMetadata(offset, done))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Nothing: the database has it."""


async def handle(database: sqlite3.Connection, record: ConsumerRecord[bytes, bytes], context: ProcessingContext) -> None:
    """Look something up, which takes a while, then write result and offset."""
    await asyncio.sleep(record.offset % 5 / 1000)
    with database:  # from here to the end nothing is awaited
        database.execute(RESULT, json.loads(record.value))
        where = TopicPartition(record.topic, record.partition)
        reached = context.completed(where)  # raises if another member may have the record by now, and the result is undone
        if reached is None:
            raise LookupError(f"{where} is not processed here")  # without an offset the order would be counted again
        database.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?)", (*where, reached.offset, reached.metadata))


async def process(database: sqlite3.Connection, bootstrap: str, topic: str, limit: int | None) -> None:
    """Process until ``limit`` orders are in the database, or until interrupted."""
    consumer = KafkaConsumer[bytes, bytes](
        bootstrap_servers=bootstrap, group_id="revenue", auto_offset_reset="earliest", fetch_max_wait_ms=100
    )
    consumer.subscribe([topic], listener=GoOn(database, consumer))
    async with consumer, consumer.processing(partial(handle, database), concurrency=50) as run:
        most = run.statistics().lanes
        while limit is None or _count(database) < limit:
            await asyncio.sleep(0.01)
            most = max(most, run.statistics().lanes)
        print(f"{most} customers at once")


def _count(database: sqlite3.Connection) -> int:
    ((orders,),) = database.execute("SELECT coalesce(sum(orders), 0) FROM revenue")
    return int(orders)


async def main() -> None:
    """Process some of the orders, stop in the middle, and process the rest with a new consumer."""
    with closing(sqlite3.connect(os.environ.get("DATABASE", ":memory:"))) as database:
        database.executescript(SCHEMA)
        with source() as (bootstrap, topic, limit):
            for part in [None] if limit is None else [limit // 3, limit]:
                await process(database, bootstrap, topic, part)
        ((orders, offsets),) = database.execute("SELECT sum(orders), (SELECT sum(next) FROM offsets) FROM revenue")
        print(f"{orders} orders counted, {offsets} by the offsets")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
