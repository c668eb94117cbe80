"""Batches with commits: a batch that cannot be stored is read again, and nothing is committed before it is stored.

The database here is locked by another connection when the first batch comes, so the batch fails, the positions go back, and the
same records are read again. Each is stored at least once; ``INSERT OR REPLACE`` by the order's number makes that exactly once.
"""

import asyncio
import json
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from examples.mock import source
from kafka_async import ConsumerRecord, KafkaConsumer, TopicPartition
from kafka_async.errors import CommitFailedError

Batch = dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]


def store(database: sqlite3.Connection, batch: Batch) -> int:
    """Store a batch in one transaction, all of it or nothing. Return how many records it had."""
    orders = [json.loads(record.value) for records in batch.values() for record in records]
    with database:
        database.executemany("INSERT OR REPLACE INTO orders VALUES (:order, :cents)", orders)
    return len(orders)


def rewind(consumer: KafkaConsumer[bytes, bytes], batch: Batch) -> None:
    """Seek back, so that the same records are read again, in the partitions that are still assigned."""
    for partition, records in batch.items():
        if partition in consumer.assignment():
            consumer.seek(partition, records[0].offset)


async def read(database: sqlite3.Connection, rival: sqlite3.Connection, bootstrap: str, topic: str, limit: int | None) -> None:
    """Store and commit batch by batch."""
    stored = 0
    async with KafkaConsumer[bytes, bytes](
        topic,
        bootstrap_servers=bootstrap,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    ) as consumer:
        while limit is None or stored < limit:
            batch = await consumer.getmany(timeout_ms=1000, max_records=500)
            try:
                stored += store(database, batch)
            except sqlite3.OperationalError as error:
                print(f"{sum(map(len, batch.values()))} records not stored: {error}; reading them again")
                rewind(consumer, batch)
                rival.rollback()  # the other connection releases the lock
                await asyncio.sleep(0.1)
            else:
                with suppress(CommitFailedError):  # partitions that were lost: their new owner reads those records again
                    await consumer.commit()
        print(f"{stored} records stored and committed")


async def main() -> None:
    """Read all orders into a database that another connection has locked."""
    with tempfile.TemporaryDirectory() as folder, source() as (bootstrap, topic, limit):
        path = Path(folder) / "orders.sqlite"
        with closing(sqlite3.connect(path, timeout=0)) as database, closing(sqlite3.connect(path)) as rival:
            database.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, cents INTEGER)")
            rival.execute("BEGIN EXCLUSIVE")
            await read(database, rival, bootstrap, topic, limit)
            ((count,),) = database.execute("SELECT count(*) FROM orders")
            print(f"{count} orders in the database")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
